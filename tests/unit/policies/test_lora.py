"""Adapters: what PEFT computes and stores, what is trained, and what is merged."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax import objectives, policies
from trustax.policies.safetensors_io import read_file
from trustax.testing.rollouts import random_rollout
from trustax.training.config import OptimizerConfig
from trustax.training.gradients import Batch
from trustax.training.optimizer import init_optimizer, make_optimizer
from trustax.training.update import make_update

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
ADAPTER = GOLDEN / "adapter"
LORA = policies.LoraConfig(rank=3, alpha=6.0, targets=("q_proj", "v_proj", "o_proj", "down_proj"))


@pytest.fixture(scope="module")
def base():
    return policies.load(GOLDEN / "policies" / "qwen2")


@pytest.fixture(scope="module")
def policy(base) -> policies.Policy:
    return policies.build(base.config, lora=LORA)


@pytest.fixture(scope="module")
def adapted(base, policy):
    return policy.complete(None, policies.join(base.params, policies.load_adapter(ADAPTER, base.config, LORA)))


@pytest.fixture(scope="module")
def logits(policy):
    tokens = np.load(GOLDEN / "policies" / "qwen2" / "logits.npz")["tokens"]
    positions = np.tile(np.arange(tokens.shape[1], dtype=np.int32), (2, 1))
    valid = np.ones(tokens.shape, bool)
    return jax.jit(lambda params: policy.head(params, policy.apply(params, tokens, positions, valid, None)[0]))


@pytest.fixture(scope="module")
def plain_logits(base):
    plain = policies.build(base.config)
    tokens = np.load(GOLDEN / "policies" / "qwen2" / "logits.npz")["tokens"]
    positions = np.tile(np.arange(tokens.shape[1], dtype=np.int32), (2, 1))
    valid = np.ones(tokens.shape, bool)
    return jax.jit(lambda params: plain.head(params, plain.apply(params, tokens, positions, valid, None)[0]))


def test_logits_equal_those_of_peft(adapted, logits):
    expected = np.load(ADAPTER / "logits.npz")["logits"]
    np.testing.assert_allclose(logits(adapted), expected, atol=2e-5, rtol=0)
    assert np.abs(expected - np.load(GOLDEN / "policies" / "qwen2" / "logits.npz")["logits"]).max() > 0.5


def test_merged_parameters_compute_the_same_without_adapters(base, adapted, plain_logits):
    merged = policies.merge(adapted, LORA)
    assert jax.tree.structure(merged) == jax.tree.structure(base.params)
    expected = np.load(ADAPTER / "logits.npz")["logits"]
    np.testing.assert_allclose(plain_logits(merged), expected, atol=2e-5, rtol=0)


def test_new_adapters_change_nothing_yet(base, policy, logits, plain_logits):
    started = policy.complete(jax.random.key(0), base.params)
    np.testing.assert_array_equal(logits(started), plain_logits(base.params))
    a = started["layers"]["attention"]["query_adapter"]["a"]
    assert a.shape == (2, 32, 3) and 0.5 / 32**0.5 < np.abs(a).max() <= 1 / 32**0.5
    axes, shapes = policy.logical_axes(), jax.eval_shape(policy.init, jax.random.key(0))
    assert jax.tree.structure(axes) == jax.tree.structure(shapes) == jax.tree.structure(started)


def test_adapters_leave_and_come_back_bit_for_bit(base, adapted, tmp_path):
    files = policies.save_adapter(tmp_path / "out", base.config, LORA, adapted, base="qwen2")
    assert files == ["adapter_config.json", "adapter_model.safetensors"]
    theirs, ours = (read_file(folder, files[1]).tensors for folder in (ADAPTER, tmp_path / "out"))
    assert theirs.keys() == ours.keys()
    for name, tensor in theirs.items():
        assert ours[name].read((slice(None),) * 2).tobytes() == tensor.read((slice(None),) * 2).tobytes()
    written = json.loads((tmp_path / "out" / files[0]).read_text())
    known = json.loads((ADAPTER / files[0]).read_text())
    assert {name: sorted(v) if isinstance(v, list) else v for name, v in written.items()} == {
        name: sorted(known[name]) if isinstance(known[name], list) else known[name] for name in written
    }


@pytest.mark.slow
def test_only_adapters_are_trained(policy, adapted):
    trained, frozen = policy.split(adapted)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(trained)]
    assert len(paths) == 8 and all("_adapter'" in path for path in paths)
    assert jax.tree.structure(policies.join(trained, frozen)) == jax.tree.structure(adapted)
    rollout = random_rollout(prompts=2, group_size=2, prompt_tokens=3, new_tokens=4, vocab_size=48, top_k=4, seed=1)
    optimizer = make_optimizer(OptimizerConfig())
    opt_state = init_optimizer(optimizer, trained)
    assert (
        sum(leaf.size for leaf in jax.tree.leaves(opt_state)) == 2 * sum(x.size for x in jax.tree.leaves(trained)) + 1
    )
    before = jax.device_get(adapted)
    objective = objectives.build(objectives.RECIPES["pg_is"]())
    batch = Batch(rollout, jnp.array([1.0, -1.0, 0.5, -0.5]))
    update = make_update(policy, optimizer, micro_batches=1)
    result = update(
        jax.tree.map(jnp.copy, adapted), opt_state, objective, batch, jnp.int32(0), jnp.float32(1e-2), jnp.float32(1.0)
    )
    after_trained, after_frozen = policy.split(jax.device_get(result.params))
    jax.tree.map(np.testing.assert_array_equal, after_frozen, policy.split(before)[1])
    for mine, old in zip(jax.tree.leaves(after_trained), jax.tree.leaves(policy.split(before)[0]), strict=True):
        assert np.abs(mine - old).max() > 1e-3


def changed(folder: Path, **changes) -> Path:
    shutil.copytree(ADAPTER, folder)
    raw = json.loads((folder / "adapter_config.json").read_text()) | changes
    (folder / "adapter_config.json").write_text(json.dumps(raw))
    return folder


@pytest.mark.parametrize(
    ("changes", "lora", "message"),
    [
        ({"r": 4}, LORA, r"r = 4, but policy\.lora\.rank is 3"),
        ({"lora_alpha": 3}, LORA, r"lora_alpha = 3, but policy\.lora\.alpha is 6\.0"),
        ({"target_modules": "all-linear"}, LORA, r"target_modules = 'all-linear', but policy\.lora\.targets"),
        ({"use_dora": True}, LORA, "use_dora = True is not implemented"),
        ({"modules_to_save": ["lm_head"]}, LORA, r"modules_to_save = \['lm_head'\] is not implemented"),
        ({"peft_type": "IA3"}, LORA, "peft_type = 'IA3' is not implemented, only 'LORA'"),
        ({"bias": "all"}, LORA, "bias = 'all' is not implemented"),
        ({}, policies.LoraConfig(2, 6.0, LORA.targets), r"mis-shaped: base_model\.model\.model\.layers\.0\.self_attn"),
        ({}, policies.LoraConfig(3, 6.0, (*LORA.targets, "k_proj")), r"missing: .*k_proj\.lora_A\.weight \[3, 32\]"),
        ({}, policies.LoraConfig(3, 6.0, ("q_proj",)), r"unused: .*v_proj\.lora_A\.weight"),
    ],
)
def test_adapters_that_do_not_fit_are_refused(base, tmp_path, changes, lora, message):
    with pytest.raises(ValueError, match=message):
        policies.load_adapter(changed(tmp_path / "adapter", **changes), base.config, lora)


def test_refusals(base, adapted, tmp_path):
    with pytest.raises(ValueError, match=r"no adapter_config\.json found"):
        policies.load_adapter(tmp_path, base.config, LORA)
    folder = changed(tmp_path / "adapter")
    whole = (folder / "adapter_model.safetensors").read_bytes()
    (folder / "adapter_model.safetensors").write_bytes(whole[:-100])
    with pytest.raises(ValueError, match=r"it is truncated") as error:
        policies.load_adapter(folder, base.config, LORA)
    assert "missing" not in str(error.value)
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"\(1 problem\):\s+adapter_model\.safetensors: not there"):
        policies.load_adapter(folder, base.config, LORA)
    with pytest.raises(ValueError, match=r"lora\.targets \['gate'\] are not linear maps .* known: q_proj, k_proj"):
        policies.build(base.config, lora=policies.LoraConfig(2, 2.0, ("gate",)))
    moe = policies.load(GOLDEN / "policies" / "qwen3_moe").config
    with pytest.raises(ValueError, match=r"\['gate_proj', 'up_proj', 'down_proj'\] are not"):
        policies.build(moe, lora=policies.LoraConfig(2))
    with pytest.raises(ValueError, match=r"no adapters \(lora\.rank is 0\)"):
        policies.save_adapter(tmp_path / "out", base.config, policies.LoraConfig(), adapted)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rank": -1}, "rank must be at least 0"),
        ({"rank": 2, "alpha": 0.0}, "alpha must be above 0"),
        ({"rank": 2, "targets": ()}, "targets must be at least one name"),
        ({"adapter": "somewhere"}, "adapter is given, but rank is 0"),
    ],
)
def test_a_bad_config_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        policies.LoraConfig(**fields)
