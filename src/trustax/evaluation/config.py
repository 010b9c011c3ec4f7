"""Settings of an evaluation, as plain data."""

import dataclasses

from trustax.typed import refuse, type_problems


@dataclasses.dataclass(frozen=True)
class EvalConfig:
    """The first ``prompts`` held-out prompts, ``samples`` completions each at ``temperature``, and one greedy one."""

    prompts: int = 24
    samples: int = 8
    temperature: float = 1.0

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
        return problems
