"""Reading weights: every tensor is used or accounted for, and a broken checkpoint is refused before memory is taken."""

import json
import re
import shutil
import struct
from pathlib import Path

import gguf
import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from trustax import policies
from trustax.policies.assemble import Stored
from trustax.policies.gguf_io import export_tokenizer
from trustax.policies.safetensors_io import read_headers

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "policies"
INDEX = "model.safetensors.index.json"


def float32_tensors(name: str) -> dict[str, np.ndarray]:
    stored = read_headers(GOLDEN / name).tensors
    return {key: np.asarray(whole(tensor), np.float32) for key, tensor in stored.items()}


def whole(tensor: Stored) -> np.ndarray:
    return tensor.read((slice(None),) * len(tensor.shape))


def checkpoint(folder: Path, tensors: dict[str, np.ndarray], *, shards: int = 1, **config) -> Path:
    """A folder as transformers writes it: one file, or several with an index."""
    raw = json.loads((GOLDEN / "llama" / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(raw))
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    names, weight_map = sorted(tensors), {}
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[i::shards]}
        save_file(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_single_file_without_index(tmp_path):
    loaded = policies.load(checkpoint(tmp_path, float32_tensors("llama")))
    assert_same(loaded.params, policies.load(GOLDEN / "llama").params)
    assert loaded.tokenizer_folder is None
    assert loaded.ignored == ()
    kernel = float32_tensors("llama")["model.layers.1.mlp.gate_proj.weight"]
    np.testing.assert_array_equal(loaded.params["layers"]["mlp"]["gate"]["kernel"][1], kernel.T)


def test_two_shards_with_index(tmp_path):
    loaded = policies.load(checkpoint(tmp_path, float32_tensors("llama"), shards=2))
    assert_same(loaded.params, policies.load(GOLDEN / "llama").params)


def test_tied_model_that_ships_another_head(tmp_path):
    tensors = float32_tensors("llama")
    loaded = policies.load(checkpoint(tmp_path, tensors, tie_word_embeddings=True))
    assert loaded.ignored == ("lm_head.weight",)
    assert "head" not in loaded.params
    weights = policies.build(loaded.config).head_weights(loaded.params)
    np.testing.assert_array_equal(weights, tensors["model.embed_tokens.weight"])


def test_untied_model_without_a_head_is_refused(tmp_path):
    tensors = float32_tensors("llama")
    del tensors["lm_head.weight"]
    with pytest.raises(ValueError, match=r"missing: lm_head\.weight \[48, 32\]"):
        policies.load(checkpoint(tmp_path, tensors))


def test_missing_unused_and_misshaped_tensors_are_listed_together(tmp_path):
    tensors = float32_tensors("llama")
    del tensors["model.layers.1.self_attn.v_proj.weight"]
    tensors["model.layers.0.self_attn.q_norm.weight"] = np.ones(8, np.float32)
    tensors["model.norm.weight"] = np.ones(33, np.float32)
    with pytest.raises(ValueError, match=r"3 problems") as error:
        policies.load(checkpoint(tmp_path, tensors))
    text = str(error.value)
    assert "missing: model.layers.1.self_attn.v_proj.weight [16, 32]" in text
    assert "mis-shaped: model.norm.weight is [33], the config asks for [32]" in text
    assert "unused: model.layers.0.self_attn.q_norm.weight [8]" in text


def write_raw(path: Path, header: dict, data: bytes, length: int | None = None) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


def test_bfloat16_is_read_as_bfloat16(tmp_path):
    """0x3F80 and 0xC040 are 1 and −3; seen as float16 they would be 1.875 and −2.125."""
    entry = {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}
    write_raw(tmp_path / "model.safetensors", {"x": entry}, struct.pack("<HH", 0x3F80, 0xC040))
    np.testing.assert_array_equal(whole(read_headers(tmp_path).tensors["x"]).astype(np.float32), [1.0, -3.0])


@pytest.mark.parametrize(
    ("entry", "data", "length", "message"),
    [
        ({"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}, 8, None, "truncated"),
        ({"dtype": "F32", "shape": [3], "data_offsets": [0, 16]}, 16, None, "16 bytes cannot hold"),
        ({"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}, 16, None, "malformed entry"),
        ({"dtype": "F32", "shape": [4]}, 16, None, "malformed entry"),
        ({"dtype": "I4", "shape": [4], "data_offsets": [0, 2]}, 2, None, "dtype I4 is not implemented"),
        ({"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}, 16, 10**15, "not a safetensors file, or truncated"),
        ({"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}, 16, 20, "header is not JSON"),
    ],
    ids=["truncated", "wrong-span", "negative", "no-offsets", "dtype", "header-length", "header-cut"],
)
def test_headers_that_lie_are_refused(tmp_path, entry, data, length, message):
    write_raw(tmp_path / "model.safetensors", {"x": entry}, bytes(data), length)
    assert re.search(message, "\n".join(read_headers(tmp_path).problems))
    assert not read_headers(tmp_path).tensors


def test_overlapping_tensors_are_refused(tmp_path):
    header = {name: {"dtype": "F32", "shape": [2], "data_offsets": [begin, begin + 8]} for name, begin in
              (("a", 0), ("b", 4))}  # fmt: skip
    write_raw(tmp_path / "model.safetensors", header, bytes(12))
    assert read_headers(tmp_path).problems == ["model.safetensors: b: overlaps a"]


def test_index_problems_are_listed(tmp_path):
    checkpoint(tmp_path, float32_tensors("llama"), shards=2)
    index = json.loads((tmp_path / INDEX).read_text())
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"")
    index["weight_map"]["extra"] = "model-00009-of-00002.safetensors"
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(ValueError) as error:
        policies.load(tmp_path)
    assert "model-00001-of-00002.safetensors: not a safetensors file, or truncated (0 bytes" in str(error.value)
    assert "model-00009-of-00002.safetensors: the index names it, but it is not there" in str(error.value)


def test_index_must_agree_with_its_shards_and_stay_in_its_folder(tmp_path):
    checkpoint(tmp_path, float32_tensors("llama"), shards=2)
    index = json.loads((tmp_path / INDEX).read_text())
    del index["weight_map"]["model.norm.weight"]
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"stray: model\.norm\.weight is in .* but not in the index"):
        policies.load(tmp_path)
    index["weight_map"]["model.norm.weight"] = "../elsewhere.safetensors"
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(ValueError, match="outside its folder"):
        policies.load(tmp_path)


def test_places_without_a_model(tmp_path):
    with pytest.raises(ValueError, match="no such file or folder"):
        policies.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"neither config\.json nor a \.gguf"):
        policies.load(tmp_path)
    (tmp_path / "config.json").write_text((GOLDEN / "llama" / "config.json").read_text())
    with pytest.raises(ValueError, match=r"no \*\.safetensors"):
        policies.load(tmp_path)


def permuted(rows: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's converter interleaves the rotary halves of every head."""
    return rows.reshape(heads, 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(path: Path, *, rope_scaling: bool = False) -> None:
    """The golden model ``llama`` as a GGUF file with a byte-level tokenizer."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_feed_forward_length(40)
    writer.add_context_length(64)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e4)
    if rope_scaling:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<|end|>", "a", "b", "1", "ab"])
    writer.add_token_types([3, 1, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    writer.add_chat_template("{{ messages }}")
    outside = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
               "lm_head.weight": "output.weight"}  # fmt: skip
    for name, values in float32_tensors("llama").items():
        if name not in outside:
            _, _, layer, middle = name.removesuffix(".weight").split(".", 3)
            values = permuted(values, {"self_attn.q_proj": 4, "self_attn.k_proj": 2}[middle]) if middle in (
                "self_attn.q_proj", "self_attn.k_proj") else values  # fmt: skip
            name = f"blk.{layer}.{GGUF_NAMES[middle]}.weight"
        writer.add_tensor(outside.get(name, name), np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_gguf_equals_safetensors(tmp_path):
    write_gguf(tmp_path / "model.gguf")
    loaded, reference = policies.load(tmp_path), policies.load(GOLDEN / "llama")
    assert_same(loaded.params, reference.params)
    assert loaded.config.rope == reference.config.rope
    assert loaded.config.norm_eps == pytest.approx(1e-6)
    assert loaded.tokenizer_folder == tmp_path


def test_gguf_tokenizer_is_unpacked_beside_the_file(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    write_gguf(tmp_path / "model.gguf")
    policies.load(tmp_path / "model.gguf")
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.encode("ab11<|end|>").ids == [4, 3, 3, 0]
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert settings == {"add_bos_token": False, "eos_token": "<|end|>", "chat_template": "{{ messages }}"}
    (tmp_path / "tokenizer.json").write_text("mine")
    policies.load(tmp_path / "model.gguf")
    assert (tmp_path / "tokenizer.json").read_text() == "mine"


def test_gguf_refusals(tmp_path):
    path = tmp_path / "model.gguf"
    write_gguf(path, rope_scaling=True)
    with pytest.raises(ValueError, match=r"unknown field llama\.rope\.scaling\.type = 'linear'"):
        policies.load(path)
    write_gguf(path)
    whole = path.read_bytes()
    for size in (0, 3, 100, len(whole) // 2):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="not a readable GGUF file, or a truncated one"):
            policies.load(path)
    shutil.copy(path, tmp_path / "second.gguf")
    with pytest.raises(ValueError, match=r"holds 2 GGUF files, name one: model\.gguf, second\.gguf"):
        policies.load(tmp_path)


def test_gguf_tokenizer_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ValueError, match="its tokenizer is 'llama'"):
        export_tokenizer(path, tmp_path)


def test_a_golden_header_reads_like_the_library():
    ours = float32_tensors("llama_wide_heads")
    theirs = load_file(GOLDEN / "llama_wide_heads" / "model.safetensors")
    assert set(ours) == set(theirs)
    for name, values in theirs.items():
        np.testing.assert_array_equal(ours[name], values.astype(np.float32))
