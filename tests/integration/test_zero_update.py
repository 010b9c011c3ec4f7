"""Scoring a rollout with the sampler's own parameters: ratio 1, divergence 0, nothing masked."""

from pathlib import Path

import jax
import numpy as np
import pytest

from trustax import objectives
from trustax.experiment import ExperimentConfig
from trustax.experiment.assemble import Parts, build_parts, load_split
from trustax.experiment.config_files import load_config
from trustax.experiment.overrides import apply_overrides
from trustax.scoring.score import score

CONFIGS = Path(__file__).parents[2] / "configs"


def zero_update(parts: Parts, prompts: int, record_property) -> tuple[np.ndarray, float]:
    """|log π − log μ| of every token, and the share that ``pdm_topk_kl`` keeps."""
    source = load_split(parts, "train")
    examples = [source[i] for i in range(prompts)]
    rollout, _ = parts.collector(parts.params, examples, step=0, version=0)
    objective = objectives.build(objectives.RECIPES["pdm_topk_kl"](delta=1e-4))
    advantages = np.where(np.arange(rollout.tokens.shape[0]) % 2, 1.0, -1.0).astype(np.float32)

    @jax.jit
    def look(params, rollout, advantages):
        stats = score(parts.policy, params, rollout, needs=objective.needs, advantages=advantages)
        return stats.log_pi, objective.per_token(stats).keep

    log_pi, keep = look(parts.params, rollout, advantages)
    mask = np.asarray(rollout.token_mask)
    gap = np.abs(np.asarray(log_pi) - np.asarray(rollout.log_mu))[mask]
    record_property("max", float(gap.max()))
    record_property("p99", float(np.quantile(gap, 0.99)))
    print(f"|log π − log μ| over {gap.size} tokens: max {gap.max():.1e}, 99th percentile {np.quantile(gap, 0.99):.1e}")
    return gap, float(np.asarray(keep)[mask].mean())


def test_the_tiny_policy(small_config, record_property) -> None:
    gap, kept = zero_update(build_parts(small_config()), 4, record_property)
    assert gap.max() < 5e-6 and kept == 1.0


@pytest.mark.real_model
def test_smollm2(record_property) -> None:
    config = load_config(CONFIGS / "smollm2.py")
    assert isinstance(config, ExperimentConfig)
    root = CONFIGS.parent
    config = apply_overrides(config, [f"policy.source={root / '.cache' / 'smollm2'}"])
    gap, kept = zero_update(build_parts(config), 4, record_property)
    assert gap.max() < 1e-4 and kept == 1.0
