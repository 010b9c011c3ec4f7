"""Settings of a rollout, as plain data."""

import dataclasses
from typing import Literal

from trustax.typed import refuse, type_problems


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
    """``prompts_per_step`` prompts with ``group_size`` completions each; the ``top_k`` likeliest tokens are stored.

    ``dynamic_rounds`` beyond 1 is dynamic sampling (DAPO): groups of equal reward are dropped and further prompts are
    drawn, so many times at most; what is still missing then is filled up with dropped ones. ``overlong`` says what
    becomes of completions cut off at ``max_new_tokens``: ``"keep"`` them; ``"filter"`` them out of the loss, not out of
    the baseline; ``"shape"`` the reward, down by up to 1 over the last ``overlong_buffer`` tokens.
    ``replay_routes``: the experts that sampling chose are chosen again in training (R3).
    """

    prompts_per_step: int = 8
    group_size: int = 8
    max_prompt_tokens: int = 64
    max_new_tokens: int = 12
    temperature: float = 1.0
    top_k: int = 20
    dynamic_rounds: int = 1
    overlong: Literal["keep", "filter", "shape"] = "keep"
    overlong_buffer: int = 0
    replay_routes: bool = False

    def __post_init__(self) -> None:
        refuse(self, type_problems(self) or self._range_problems())

    def _range_problems(self) -> list[str]:
        counts = ("prompts_per_step", "group_size", "max_prompt_tokens", "max_new_tokens", "top_k", "dynamic_rounds")
        values = dataclasses.asdict(self)
        problems = [f"{name} must be at least 1, got {values[name]}" for name in counts if values[name] < 1]
        if self.temperature <= 0:
            problems.append(f"temperature must be above 0, got {self.temperature}; greedy is for evaluation")
        if self.overlong == "shape" and not 0 < self.overlong_buffer <= self.max_new_tokens:
            problems.append(
                f"overlong = 'shape' needs overlong_buffer in 1..max_new_tokens = {self.max_new_tokens}, "
                f"got {self.overlong_buffer}"
            )
        return problems
