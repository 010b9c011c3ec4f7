"""What a data set is, as plain data: a source with its settings, and how its questions are put to a model."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from trustax.typed import refuse, type_problems

Split = Literal["train", "test"]


@dataclasses.dataclass(frozen=True)
class ArithmeticConfig:
    """Sums, differences, products, or chains of additions and subtractions.

    Operands lie in ``0 .. 10**digits - 1``. Where ``train_size`` or ``test_size`` is None, the whole space of problems
    is enumerated: ``test_fraction`` of it is held out and the rest is trained on. Problems that differ only in the
    order of their operands are on the same side of the split unless ``split_by="problem"``.
    """

    kind: Literal["arithmetic"] = "arithmetic"
    operation: Literal["sum", "difference", "product", "chain"] = "sum"
    digits: int = 1
    terms: int = 3  # operands of a chain; the other operations have two
    train_size: int | None = None
    test_size: int | None = None
    test_fraction: float = 0.24
    split_by: Literal["operands", "problem"] = "operands"
    seed: int = 0

    def __post_init__(self) -> None:
        operations = ("sum", "difference", "product", "chain")
        problems = [] if self.kind == "arithmetic" else [f"kind is fixed to 'arithmetic', got {self.kind!r}"]
        if self.operation not in operations:
            problems.append(f"operation must be one of {', '.join(operations)}, got {self.operation!r}")
        if self.split_by not in ("operands", "problem"):
            problems.append(f"split_by must be 'operands' or 'problem', got {self.split_by!r}")
        if not 1 <= self.digits <= 9:
            problems.append(f"digits must be 1..9, got {self.digits}")
        if not 2 <= self.terms <= 16:
            problems.append(f"terms must be 2..16, got {self.terms}")
        if not 0.0 < self.test_fraction < 1.0:
            problems.append(f"test_fraction must lie between 0 and 1, got {self.test_fraction}")
        for name, size in (("train_size", self.train_size), ("test_size", self.test_size)):
            if size is not None and size < 1:
                problems.append(f"{name} must be at least 1 or None for all, got {size}")
        refuse(self, problems)


@dataclasses.dataclass(frozen=True)
class ReasoningGymConfig:
    """A task of ``reasoning-gym``, with that task's own settings in ``options`` and its own scorer as the verifier.

    ``levels`` are further options, one mapping a level of difficulty, the easiest first: each level gives an equal part
    of the questions, in this order. With ``DataConfig(shuffle=False)`` that is a curriculum.
    """

    task: str
    kind: Literal["reasoning_gym"] = "reasoning_gym"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    train_size: int = 1000
    test_size: int = 100
    seed: int = 0
    levels: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        problems = [] if self.kind == "reasoning_gym" else [f"kind is fixed to 'reasoning_gym', got {self.kind!r}"]
        for name, size in (("train_size", self.train_size), ("test_size", self.test_size)):
            if size < 1:
                problems.append(f"{name} must be at least 1, got {size}")
        if len(self.levels) > min(self.train_size, self.test_size):
            problems.append(f"{len(self.levels)} levels need at least that many train and test questions")
        if reserved := sorted({"seed", "size"} & set(self.options).union(*self.levels)):
            problems.append(f"options must not hold {', '.join(reserved)}: set seed, train_size and test_size here")
        refuse(self, problems)


@dataclasses.dataclass(frozen=True)
class JsonlConfig:
    """A file with one JSON object a line; held-out questions come from ``test_path`` or are ``test_size`` of its own.

    Lines that repeat a prompt are kept, and stay on one side of the split.
    """

    path: str
    kind: Literal["jsonl"] = "jsonl"
    test_path: str | None = None
    test_size: int = 0
    prompt_key: str = "prompt"
    answer_key: str = "answer"
    seed: int = 0

    def __post_init__(self) -> None:
        problems = [] if self.kind == "jsonl" else [f"kind is fixed to 'jsonl', got {self.kind!r}"]
        if not self.path:
            problems.append("path is empty: name a file with one JSON object a line")
        if self.test_size < 0:
            problems.append(f"test_size must be at least 0, got {self.test_size}")
        if self.test_path is not None and self.test_size > 0:
            problems.append("give test_path or test_size, not both")
        if self.prompt_key == self.answer_key:
            problems.append(f"prompt_key and answer_key are both {self.prompt_key!r}")
        refuse(self, problems)


PUBLISHED = (
    "dapo_math_17k", "aime24", "aime25", "aime26", "math", "math500", "gsm8k", "amc", "minerva", "olympiadbench",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PublishedConfig:
    """A set of the papers, from a file that the user has put into ``path`` (`trustax.data.published` says which).

    ``filtered`` takes the documented subset of DAPO-Math-17k; it changes no other set. ``wording`` is put around each
    question of this set, where ``{prompt}`` stands: a set that comes without instructions gets those of another.
    """

    name: str
    kind: Literal["published"] = "published"
    path: str = ".cache/sets"
    filtered: bool = True
    wording: str = "{prompt}"

    def __post_init__(self) -> None:
        problems = [] if self.kind == "published" else [f"kind is fixed to 'published', got {self.kind!r}"]
        if self.name not in PUBLISHED:
            problems.append(f"name must be one of {', '.join(PUBLISHED)}, got {self.name!r}")
        if self.wording.count("{prompt}") != 1:
            problems.append(f"wording must have {{prompt}} once, got {self.wording!r}")
        refuse(self, problems)


PlainSourceConfig = ArithmeticConfig | ReasoningGymConfig | JsonlConfig | PublishedConfig


@dataclasses.dataclass(frozen=True)
class MixtureConfig:
    """Several sources as one. ``weights`` are their shares; None takes every example of each once."""

    sources: tuple[PlainSourceConfig, ...]
    kind: Literal["mixture"] = "mixture"
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        problems = [] if self.kind == "mixture" else [f"kind is fixed to 'mixture', got {self.kind!r}"]
        if not self.sources:
            problems.append("sources is empty: name at least one")
        if self.weights is not None and len(self.weights) != len(self.sources):
            problems.append(f"{len(self.weights)} weights for {len(self.sources)} sources")
        if self.weights is not None and not all(0 < weight < float("inf") for weight in self.weights):
            problems.append(f"weights must be above 0 and finite, got {self.weights}")
        refuse(self, problems)


SourceConfig = PlainSourceConfig | MixtureConfig


@dataclasses.dataclass(frozen=True)
class DifficultyConfig:
    """Train only on prompts that the start policy solves in a share ``low .. high`` of ``samples`` completions."""

    samples: int = 8
    low: float = 0.05
    high: float = 0.95

    def __post_init__(self) -> None:
        problems = type_problems(self)
        if not problems and self.samples < 1:
            problems.append(f"samples must be at least 1, got {self.samples}")
        if not problems and not 0 <= self.low <= self.high <= 1:
            problems.append(f"low and high must satisfy 0 <= low <= high <= 1, got {self.low} and {self.high}")
        refuse(self, problems)


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """A source and how its questions are put to a model.

    ``template`` may name ``{prompt}`` (the question as the source has it) and any key of the example's metadata, such
    as ``{a}`` and ``{b}`` of a sum. ``system`` replaces the system prompt of the tokenizer's chat template; None keeps
    that template's own. ``folder`` holds prepared data sets. A prompt beyond the length limit stops the run, unless
    ``drop_long`` asks to leave such examples out. Held-out questions are the test split of ``test_source``, or of
    ``source`` itself. ``shuffle=False`` asks the questions in the source's own order, every epoch. ``difficulty``
    leaves out what the start policy finds too hard or too easy, before training.
    """

    source: SourceConfig = dataclasses.field(default_factory=ArithmeticConfig)
    test_source: SourceConfig | None = None
    shuffle: bool = True
    difficulty: DifficultyConfig | None = None
    template: str = "{prompt}"
    system: str | None = None
    folder: str = ".cache/data"
    drop_long: bool = False

    def __post_init__(self) -> None:
        refuse(self, type_problems(self))
