"""Settings of the optimizer, of the loop and of the supervised warm start, as plain data."""

import dataclasses

from trustax.typed import refuse, type_problems


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """AdamW behind a global-norm clip; the rate rises linearly over ``warmup_steps`` updates, then stays.

    The defaults are ours: what took SmolLM2-135M furthest in few steps without a fall.
    """

    learning_rate: float = 2e-5
    warmup_steps: int = 5
    clip_norm: float = 1.0
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        refuse(self, type_problems(self) or self._range_problems())

    def _range_problems(self) -> list[str]:
        problems = [
            f"{name} must be at least 0, got {value}"
            for name, value in (
                ("learning_rate", self.learning_rate),
                ("warmup_steps", self.warmup_steps),
                ("weight_decay", self.weight_decay),
            )
            if value < 0
        ]
        problems += [
            f"{name} must be above 0, got {value}"
            for name, value in (("clip_norm", self.clip_norm), ("eps", self.eps))
            if value <= 0
        ]
        problems += [
            f"{name} must be at least 0 and below 1, got {value}"
            for name, value in (("b1", self.b1), ("b2", self.b2))
            if not 0 <= value < 1
        ]
        return problems


@dataclasses.dataclass(frozen=True)
class CriticConfig:
    """How a value head is used: GAE's discount and λ, and its loss's ``coefficient`` and ``clip`` (inf for none)."""

    gamma: float = 1.0
    lam: float = 0.95
    coefficient: float = 0.5
    clip: float = 0.2
    whiten: bool = True

    def __post_init__(self) -> None:
        refuse(self, type_problems(self) or self._range_problems())

    def _range_problems(self) -> list[str]:
        unit = (("gamma", self.gamma), ("lam", self.lam))
        positive = (("coefficient", self.coefficient), ("clip", self.clip))
        return [f"{name} must be 0 to 1, got {value}" for name, value in unit if not 0 <= value <= 1] + [
            f"{name} must be above 0, got {value}" for name, value in positive if not value > 0
        ]


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How long, and in what parts. ``steps`` counts rollout batches; each is used by ``minibatches`` updates in turn.

    ``checkpoint_every`` and ``eval_every`` count steps; 0 means at the ends only. ``reference_every``: after so many
    steps the reference becomes the policy of the day; 0 keeps the first one. A loss or a gradient that is not finite
    stops the run. ``critic`` is read where advantages are by GAE.
    ``early_warning`` estimates after each step, from its rollouts, what the updated policy earns.
    """

    steps: int
    minibatches: int = 2
    micro_batches: int = 1
    checkpoint_every: int = 5
    keep_checkpoints: int = 2
    eval_every: int = 0
    reference_every: int = 0
    critic: CriticConfig = CriticConfig()
    early_warning: bool = False

    def __post_init__(self) -> None:
        refuse(self, type_problems(self) or self._range_problems())

    def _range_problems(self) -> list[str]:
        at_least_one = ("steps", "minibatches", "micro_batches", "keep_checkpoints")
        at_least_zero = ("checkpoint_every", "eval_every", "reference_every")
        values = dataclasses.asdict(self)
        return [f"{name} must be at least 1, got {values[name]}" for name in at_least_one if values[name] < 1] + [
            f"{name} must be at least 0, got {values[name]}" for name in at_least_zero if values[name] < 0
        ]


@dataclasses.dataclass(frozen=True)
class SupervisedConfig:
    """The warm start of a policy: ``steps`` updates on ``batch_size`` given answers each; 0 for none.

    ``packed`` is for `trustax sft`: several answers with their prompts share a row, each seeing only itself, so that
    nothing is computed for padding. The loss is the same.
    """

    steps: int = 0
    batch_size: int = 64
    learning_rate: float = 1e-3
    packed: bool = True

    def __post_init__(self) -> None:
        refuse(self, type_problems(self) or self._range_problems())

    def _range_problems(self) -> list[str]:
        problems = []
        if self.steps < 0:
            problems.append(f"steps must be at least 0, got {self.steps}")
        if self.batch_size < 1:
            problems.append(f"batch_size must be at least 1, got {self.batch_size}")
        if self.learning_rate < 0:
            problems.append(f"learning_rate must be at least 0, got {self.learning_rate}")
        return problems
