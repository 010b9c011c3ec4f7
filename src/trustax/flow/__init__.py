"""Flow-matching policies under a divergence trust region: samplers as Gaussian policies, and objectives over them.

    steps = build_steps("flow_sde", time_grid(10), noise=0.7)
    path = sample(velocity, steps, start, condition, key)
    stats = step_stats(steps, path, replay(velocity, steps, path), advantages, reduction="mean")
    loss = RECIPES["flow_dppo"](delta=1e-4)(stats).loss

``policy`` (the only module that knows flax) has velocity fields, ``training`` (the only one that knows optax) a loop,
``toys`` and ``rewards`` what the study in ``experiments/flow`` runs on.
"""

from trustax.flow.objectives import RECIPES, FlowObjective, build
from trustax.flow.paths import Path, StepStats, path_kl, replay, sample, step_stats
from trustax.flow.samplers import SAMPLERS, Steps, build_steps
from trustax.flow.schedule import time_grid

__all__ = [
    "RECIPES",
    "SAMPLERS",
    "FlowObjective",
    "Path",
    "StepStats",
    "Steps",
    "build",
    "build_steps",
    "path_kl",
    "replay",
    "sample",
    "step_stats",
    "time_grid",
]
