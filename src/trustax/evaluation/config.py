"""Settings of an evaluation, as plain data."""

import dataclasses

from trustax.typed import refuse, type_problems


@dataclasses.dataclass(frozen=True)
class EvalConfig:
    """The first ``prompts`` held-out prompts, ``samples`` completions each at ``temperature``, and one greedy one.

    ``top_p`` below 1 samples from the nucleus alone. pass@k and maj@k are reported for each k of ``at`` beside 1 and
    ``samples``. Intervals are bootstrapped over prompts, at the level ``confidence``.
    """

    prompts: int = 24
    samples: int = 8
    temperature: float = 1.0
    top_p: float = 1.0
    at: tuple[int, ...] = ()
    confidence: float = 0.95

    def __post_init__(self) -> None:
        refuse(self, type_problems(self) or self._range_problems())

    def _range_problems(self) -> list[str]:
        problems = [
            f"{name} must be at least 1, got {value}"
            for name, value in (("prompts", self.prompts), ("samples", self.samples))
            if value < 1
        ]
        if self.temperature <= 0:
            problems.append(f"temperature must be above 0, got {self.temperature}; the greedy pass is always made")
        if not 0 <= self.top_p <= 1:
            problems.append(f"top_p must lie in 0..1 (1 keeps every token), got {self.top_p}")
        if not 0 < self.confidence < 1:
            problems.append(f"confidence must lie between 0 and 1, got {self.confidence}")
        if outside := [k for k in self.at if not 1 <= k <= self.samples]:
            problems.append(f"at must hold numbers in 1..samples = {self.samples}, got {outside}")
        return problems
