"""Settings of a rollout, as plain data."""

import dataclasses

from trustax.typed import refuse, type_problems


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
    """``prompts_per_step`` prompts with ``group_size`` completions each; the ``top_k`` likeliest tokens are stored.

    ``replay_routes``: the experts that sampling chose are chosen again in training (R3).
    """

    prompts_per_step: int = 8
    group_size: int = 8
    max_prompt_tokens: int = 64
    max_new_tokens: int = 12
    temperature: float = 1.0
    top_k: int = 20
    replay_routes: bool = False

    def __post_init__(self) -> None:
        refuse(self, type_problems(self) or self._range_problems())

    def _range_problems(self) -> list[str]:
        counts = ("prompts_per_step", "group_size", "max_prompt_tokens", "max_new_tokens", "top_k")
        values = dataclasses.asdict(self)
        problems = [f"{name} must be at least 1, got {values[name]}" for name in counts if values[name] < 1]
        if self.temperature <= 0:
            problems.append(f"temperature must be above 0, got {self.temperature}; greedy is for evaluation")
        return problems
