"""Out again: a folder that was read comes out bit for bit, and other policies find the family that they are of."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from trustax import policies
from trustax.policies.hf_config import from_hf
from trustax.policies.hf_config_write import to_hf
from trustax.policies.safetensors_io import INDEX, read_headers

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "policies"
NAMES = sorted(folder.name for folder in GOLDEN.iterdir() if folder.is_dir())


def bits(folder: Path) -> dict[str, tuple[str, bytes]]:
    tensors = read_headers(folder).tensors
    return {name: (t.dtype.name, t.read((slice(None),) * len(t.shape)).tobytes()) for name, t in tensors.items()}


@pytest.mark.parametrize("name", NAMES)
def test_from_hugging_face_and_back_is_the_same_folder(name, tmp_path):
    loaded = policies.load(GOLDEN / name)
    files = policies.save(tmp_path / "out", loaded.config, loaded.params, source=GOLDEN / name)
    assert files == ["config.json", "model.safetensors"]
    assert bits(tmp_path / "out") == bits(GOLDEN / name)
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == json.loads(
        (GOLDEN / name / "config.json").read_text()
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_config_is_written_from_the_architecture_alone(name):
    raw = json.loads((GOLDEN / name / "config.json").read_text())
    config = from_hf(raw)
    written = to_hf(config)
    assert (written["model_type"], written["architectures"]) == (raw["model_type"], raw["architectures"])
    assert from_hf(written) == config


def test_padding_of_the_vocabulary_leaves_as_rows(tmp_path):
    loaded = policies.load(GOLDEN / "qwen3")
    policies.save(tmp_path / "out", loaded.config.with_vocab_size(40), loaded.params)
    again = policies.load(tmp_path / "out")
    assert again.config == loaded.config
    jax.tree.map(np.testing.assert_array_equal, again.params, loaded.params)


def test_switches_that_no_family_has_are_refused():
    with pytest.raises(ValueError, match="no model_type of Hugging Face has this combination"):
        to_hf(policies.ArchitectureConfig(48, 32, 2, 4, 2, 8, 40, 64, qk_norm=True, qkv_bias=True))


def test_shards_have_an_index_and_carry_the_other_files_along(tmp_path):
    source = tmp_path / "in"
    loaded = policies.load(GOLDEN / "qwen2")
    policies.save(source, loaded.config, loaded.params, dtype="bfloat16")
    for name in ("tokenizer.json", "generation_config.json", "chat_template.jinja", "notes.txt"):
        (source / name).write_text(name)
    files = policies.save(tmp_path / "out", loaded.config, loaded.params, source=source, shard_bytes=9000)
    shards = [name for name in files if name.startswith("model-")]
    assert len(shards) > 2
    assert sorted(set(files) - set(shards)) == sorted(
        ["chat_template.jinja", "config.json", "generation_config.json", INDEX, "tokenizer.json"]
    )
    sizes = [(tmp_path / "out" / shard).stat().st_size for shard in shards]
    assert max(sizes) < 9000 + 4000  # and the header
    index = json.loads((tmp_path / "out" / INDEX).read_text())
    assert set(index["weight_map"].values()) == set(shards)
    assert index["metadata"]["total_size"] == sum(2 * leaf.size for leaf in jax.tree.leaves(loaded.params))
    assert bits(tmp_path / "out") == bits(source)


def test_the_library_reads_what_is_written(tmp_path):
    loaded = policies.load(GOLDEN / "llama")
    policies.save(tmp_path / "out", loaded.config, loaded.params, dtype="float16")
    with safe_open(tmp_path / "out" / "model.safetensors", "numpy") as file:
        assert file.metadata() == {"format": "pt"}
        kernel = file.get_tensor("model.layers.1.mlp.gate_proj.weight")
    assert kernel.dtype == np.float16
    np.testing.assert_array_equal(kernel, np.asarray(loaded.params["layers"]["mlp"]["gate"]["kernel"][1].T, np.float16))
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "float16"


def test_each_tensor_keeps_its_own_dtype(tmp_path):
    loaded = policies.load(GOLDEN / "llama")
    policies.save(tmp_path / "in", loaded.config, loaded.params, dtype="bfloat16")
    mixed = load_file(tmp_path / "in" / "model.safetensors")
    mixed["model.norm.weight"] = mixed["model.norm.weight"].astype(np.float32) + np.float32(1e-3)
    save_file(mixed, tmp_path / "in" / "model.safetensors")
    again = policies.load(tmp_path / "in")
    policies.save(tmp_path / "out", again.config, again.params, source=tmp_path / "in")
    assert bits(tmp_path / "out") == bits(tmp_path / "in")
    assert bits(tmp_path / "out")["model.norm.weight"][0] == "float32"


def test_bfloat16_is_rounded_to_the_nearest(tmp_path):
    config = policies.tiny_config(7, hidden_size=8, num_layers=1, num_heads=2, num_kv_heads=1, mlp_size=4)
    params = jax.jit(policies.build(config).init)(jax.random.key(0))
    policies.save(tmp_path / "out", config, params, dtype="bfloat16")
    got = policies.load(tmp_path / "out").params["embedding"]
    np.testing.assert_array_equal(got, np.asarray(params["embedding"]).astype(ml_dtypes.bfloat16).astype(np.float32))


def test_refusals_leave_nothing_behind(tmp_path):
    loaded = policies.load(GOLDEN / "llama")
    big = jax.tree.map(jnp.array, loaded.params)
    big["final_norm"]["scale"] = big["final_norm"]["scale"] * 1e6
    with pytest.raises(ValueError, match=r"model\.norm\.weight: .* does not fit float16"):
        policies.save(tmp_path / "out", loaded.config, big, dtype="float16")
    with pytest.raises(ValueError, match="dtype must be one of float32, bfloat16, float16, got 'int8'"):
        policies.save(tmp_path / "out", loaded.config, loaded.params, dtype="int8")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").write_text("")
    with pytest.raises(ValueError, match="is there already"):
        policies.save(tmp_path, loaded.config, loaded.params)
