"""A run with adapters: what its checkpoint holds, that it resumes, and that it leaves merged or alone."""

import dataclasses

import jax
import numpy as np
import pytest

from trustax import policies
from trustax.checkpoint.checkpointer import Checkpointer
from trustax.errors import ConfigError
from trustax.experiment import run
from trustax.experiment.assemble import build_parts
from trustax.experiment.convert import convert
from trustax.policies import LoraConfig, PolicyConfig

from .conftest import run_files

LORA = LoraConfig(rank=2, alpha=4.0, targets=("q_proj", "v_proj"))


@pytest.mark.slow
def test_a_lora_run_resumes_and_leaves(small_config, tmp_path):
    config = dataclasses.replace(small_config("grpo"), policy=PolicyConfig(lora=LORA))
    run.train(config, tmp_path / "whole")
    parts = build_parts(config)
    trained, _ = parts.policy.split(parts.params)
    assert {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(trained)} == {
        f"['layers']['attention']['{name}_adapter']['{part}']" for name in ("query", "value") for part in "ab"
    }
    with Checkpointer(tmp_path / "whole" / "checkpoints") as checkpointer:
        templates = jax.eval_shape(lambda: {"params": trained, "reference": trained})  # neither holds anything else
        checkpointer.restore(checkpointer.latest_step(), templates)

    shorter = dataclasses.replace(config, train=dataclasses.replace(config.train, steps=2))
    run.train(shorter, tmp_path / "parts")
    run.train(config, tmp_path / "parts")
    assert run_files(tmp_path / "parts")["summary"] == run_files(tmp_path / "whole")["summary"]

    assert convert(tmp_path / "whole", tmp_path / "merged", dtype=None, shard_bytes=10**9) == [
        "config.json", "model.safetensors",
    ]  # fmt: skip
    trained = run.trained_params(parts, tmp_path / "whole")
    merged = policies.load(tmp_path / "merged")
    jax.tree.map(np.testing.assert_array_equal, merged.params, policies.merge(trained, LORA))
    convert(tmp_path / "whole", tmp_path / "adapter", dtype=None, shard_bytes=10**9, adapter=True)
    alone = policies.load_adapter(tmp_path / "adapter", parts.policy.config, LORA)
    jax.tree.map(np.testing.assert_array_equal, alone, parts.policy.split(trained)[0])
    with pytest.raises(ConfigError, match="is no run folder"):
        convert(tmp_path / "merged", tmp_path / "other", dtype=None, shard_bytes=10**9, adapter=True)
