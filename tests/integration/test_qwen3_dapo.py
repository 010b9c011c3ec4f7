"""The published experiment: its full size in the abstract, and three steps of it with a tiny random checkpoint."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
import tokenizers
from safetensors import safe_open
from safetensors.numpy import save_file
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from trustax import policies
from trustax.data import load, published
from trustax.experiment import run
from trustax.experiment.assemble import build_objective, build_parts
from trustax.experiment.config_files import load_config
from trustax.experiment.overrides import apply_overrides
from trustax.policies.hf_config import read_hf_config

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "qwen3_4b_dapo.py"
GOLDEN = ROOT / "tests" / "golden" / "policies" / "qwen3"
# What the model's card says of its shape.
QWEN3_4B = {
    "hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 9728, "vocab_size": 151936, "max_position_embeddings": 32768, "tie_word_embeddings": True,
    "rope_theta": 1000000, "layer_types": ["full_attention"] * 36, "rope_parameters": None,
}  # fmt: skip
VERL = {"data_source": "math_dapo", "ability": "MATH", "extra_info": {"index": "a"}}


def test_it_is_the_published_experiment_and_builds_in_the_abstract(tmp_path: Path) -> None:
    config = load_config(CONFIG)
    assert build_objective(config).name == "pdm_topk_kl"
    assert config.rollout.prompts_per_step * config.rollout.group_size // config.train.minibatches == 128
    settings = {k: v for k, v in (json.loads((GOLDEN / "config.json").read_text()) | QWEN3_4B).items() if v is not None}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    policy = policies.build(read_hf_config(tmp_path / "config.json"), dtype=config.policy.dtype, remat=True)
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    count = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))
    assert count == 4_022_468_096
    length = config.rollout.max_prompt_tokens + config.rollout.max_new_tokens
    assert length <= policy.config.context_length
    hidden, _, _ = jax.eval_shape(
        lambda params, tokens: policy.apply(params, tokens, tokens, tokens > 0, None),
        shapes,
        jax.ShapeDtypeStruct((8, 64), np.int32),
    )
    assert hidden.shape == (8, 64, 2560)


def write_tiny_qwen3(folder: Path) -> None:
    """A random Qwen3 of two layers as models are published: config, weights and tokenizer."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken("<|endoftext|>", special=True)],
    )  # fmt: skip
    tokenizer.train_from_iterator(
        ["Solve the following math problem step by step. The last line of your response"] * 9, trainer
    )
    size = tokenizer.get_vocab_size()
    settings = json.loads((GOLDEN / "config.json").read_text())
    settings |= {"vocab_size": size, "max_position_embeddings": 1024, "eos_token_id": 0}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    rng = np.random.default_rng(0)
    tensors = {}
    with safe_open(GOLDEN / "model.safetensors", "numpy") as golden:
        for name in golden.keys():  # noqa: SIM118  not a mapping
            shape = golden.get_slice(name).get_shape()
            shape = [size if "embed_tokens" in name or "lm_head" in name else shape[0], *shape[1:]]
            tensors[name] = (0.3 * rng.standard_normal(shape)).astype(np.float32) + ("norm" in name)
    save_file(tensors, folder / "model.safetensors")


def write_sets(folder: Path) -> None:
    folder.mkdir(parents=True)
    chats = [
        VERL
        | {"prompt": [{"role": "user", "content": f"Solve {n} + 4."}], "reward_model": {"ground_truth": f"{n + 4}"}}
        for n in range(12)
    ]
    rows = {
        "dapo-math-17k.jsonl": chats,
        "aime24.jsonl": [{"ID": "a", "Problem": "3 + 4", "Solution": "7", "Answer": 7}],
        "aime25.jsonl": [{"id": "0", "problem": "2 + 4", "answer": "6"}],
    }
    for name, lines in rows.items():
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.slow
def test_three_steps_with_a_tiny_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("math_verify", reason="math-verify is missing: pdm install -G tasks")
    monkeypatch.chdir(tmp_path)
    write_tiny_qwen3(tmp_path / ".cache" / "qwen3-4b-base")
    write_sets(tmp_path / ".cache" / "sets")
    small = [
        "rollout.prompts_per_step=4", "rollout.group_size=2", "rollout.max_prompt_tokens=256",
        "rollout.max_new_tokens=6",
        "train.steps=3", "train.minibatches=2", "train.micro_batches=1", "train.eval_every=0", "evaluation.samples=2",
    ]  # fmt: skip
    config = apply_overrides(load_config(CONFIG), small)
    assert set(published.SETS) >= {config.data.source.name}
    test = load(config.data, "test")
    assert len(test) == 2 and test[0].prompt.startswith("Solve the following") and "3 + 4" in test[0].prompt
    summary = run.train(config, tmp_path / "run")
    assert summary.steps == 3 and summary.name == "qwen3-4b-dapo"
    steps = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps if step["kind"] == "train"] == [1, 2, 3]
    folder = tmp_path / ".cache" / "qwen3-4b-base"
    found = run.evaluate(config, checkpoint=folder)  # a Hugging Face folder: the policy before training
    assert found.sampled == summary.eval_before
    assert build_parts(config).tokenizer.vocab_size > 256
