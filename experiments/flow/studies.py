"""What the study runs: two tasks, the objectives with a few thresholds each, one and many updates per batch.

Thresholds are per latent number (``reduction="mean"``), for the noise and the grid named here.
"""

import dataclasses
from typing import Any, Literal

from trustax.flow.policy import VelocityConfig
from trustax.flow.training import FlowTrainingConfig


@dataclasses.dataclass(frozen=True)
class Setting:
    """One recipe with all the numbers it is tried with; every combination is a lane."""

    recipe: str
    numbers: dict[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    label: str = ""


@dataclasses.dataclass(frozen=True)
class Study:
    """A task and everything that is fixed in it."""

    task: Literal["ring", "glyphs"]
    policy: VelocityConfig
    training: FlowTrainingConfig
    settings: tuple[Setting, ...]
    many_updates: int
    once: tuple[str, ...] | None = None  # the recipes that are also run with one update a batch; None is all
    noise: float = 0.7
    grid: int = 10
    noisy: tuple[int, ...] | None = None
    pretrain_steps: int = 2000
    pretrain_batch: int = 256
    seeds: int = 5
    lanes: Literal["vmap", "map"] = "vmap"
    evaluation_samples: int = 512

    def small(self) -> "Study":
        """The same study in a minute or two: fewer seeds, iterations and numbers."""
        settings = tuple(
            dataclasses.replace(s, numbers={name: values[-2:-1] or values for name, values in s.numbers.items()})
            for s in self.settings
        )
        training = dataclasses.replace(self.training, iterations=max(4, self.training.iterations // 10))
        return dataclasses.replace(
            self, settings=settings, training=training, seeds=2, pretrain_steps=min(300, self.pretrain_steps)
        )


def _settings(clips: Any, guards: Any, deltas: Any, steps: Any, betas: Any) -> tuple[Setting, ...]:
    return (
        Setting("policy_gradient"),
        Setting("flow_grpo", {"clip": clips}),
        Setting("grpo_guard", {"clip": guards}),
        Setting("flow_dppo", {"delta": deltas}),
        Setting("flow_dppo_symmetric", {"delta": deltas}),
        Setting("flow_dppo_predictive", {"delta": deltas}),
        Setting("flow_dppo_predictive_full", {"delta": deltas, "step": steps}),
        Setting("flow_dppo", {"delta": deltas[-2:-1], "beta": betas}, label="flow_dppo, KL to reference"),
    )


STUDIES = {
    "ring": Study(
        task="ring",
        policy=VelocityConfig(kind="mlp", size=2, conditions=2, width=64, depth=3),
        training=FlowTrainingConfig(groups=4, group_size=16, iterations=40, learning_rate=1e-3),
        settings=_settings(
            clips=(0.01, 0.03, 0.1),
            guards=(0.001, 0.003, 0.01),
            deltas=(0.0003, 0.001, 0.003, 0.01),
            steps=(2e-3,),
            betas=(0.03,),
        ),
        many_updates=8,
        grid=8,
    ),
    "glyphs": Study(
        task="glyphs",
        policy=VelocityConfig(kind="dit", size=256, conditions=6, width=32, depth=2),
        training=FlowTrainingConfig(groups=6, group_size=8, iterations=20, learning_rate=3e-4),
        settings=_settings(
            clips=(4e-4, 1e-3),
            guards=(1e-4, 3e-4),
            deltas=(3e-5, 1e-4),
            steps=(0.03,),
            betas=(0.01,),
        ),
        many_updates=4,
        once=("policy_gradient", "flow_grpo", "grpo_guard"),  # the others are the first, as the ring shows
        grid=8,
        noisy=(1, 2, 4),
        pretrain_steps=1500,
        pretrain_batch=64,
        lanes="map",
        evaluation_samples=240,
    ),
}
