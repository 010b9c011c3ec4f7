"""Arithmetic problems, split so that nothing held out can be seen in training."""

import dataclasses
import itertools
import json
import math
import random
from collections.abc import Callable, Iterator

from trustax.data.config import ArithmeticConfig
from trustax.data.types import Example

# Above this number of problems the space is sampled instead of enumerated.
ENUMERATION_LIMIT = 200_000

Key = tuple[int, ...] | str


@dataclasses.dataclass(frozen=True)
class Operation:
    """How a problem of signed operands is written and answered."""

    symbol: str
    evaluate: Callable[[tuple[int, ...]], int]
    commutes: bool


OPERATIONS = {
    "sum": Operation("+", sum, commutes=True),
    "difference": Operation("-", lambda operands: operands[0] - operands[1], commutes=False),
    "product": Operation("*", math.prod, commutes=True),
}


@dataclasses.dataclass(frozen=True)
class Problem:
    """The question ``prompt``; ``key`` is shared by problems that only differ in the order of their operands."""

    prompt: str
    answer: int
    key: Key
    metadata: dict[str, object]

    def example(self, index: int) -> Example:
        """The problem as a record of a data set."""
        return Example(index, self.prompt, str(self.answer), json.dumps(self.metadata))


def pair_problem(config: ArithmeticConfig, operands: tuple[int, ...]) -> Problem:
    """``3 + 4``, and so on."""
    operation = OPERATIONS[config.operation]
    a, b = operands
    prompt = f"{a} {operation.symbol} {b}"
    key = tuple(sorted(operands)) if operation.commutes else operands
    metadata: dict[str, object] = {"a": a, "b": b, "operation": config.operation, "symbol": operation.symbol}
    return Problem(prompt, operation.evaluate(operands), key if config.split_by == "operands" else prompt, metadata)


def chain_problem(config: ArithmeticConfig, operands: tuple[int, ...], signs: tuple[int, ...]) -> Problem:
    """``3 + 4 - 2``, and so on; ``signs`` has one entry less than ``operands``."""
    tail = [f" {'+' if sign > 0 else '-'} {operand}" for sign, operand in zip(signs, operands[1:], strict=True)]
    prompt = f"{operands[0]}" + "".join(tail)
    terms = (operands[0], *(sign * operand for sign, operand in zip(signs, operands[1:], strict=True)))
    key = tuple(sorted(terms)) if config.split_by == "operands" else prompt
    return Problem(prompt, sum(terms), key, {"operation": "chain", "terms": list(terms)})


def space_size(config: ArithmeticConfig) -> int:
    """How many different problems the settings allow."""
    if config.operation == "chain":
        return 10 ** (config.digits * config.terms) * 2 ** (config.terms - 1)
    return 10 ** (2 * config.digits)


def enumerate_problems(config: ArithmeticConfig) -> Iterator[Problem]:
    """Every problem of the space, once."""
    operands_of = range(10**config.digits)
    if config.operation == "chain":
        for operands in itertools.product(operands_of, repeat=config.terms):
            for signs in itertools.product((1, -1), repeat=config.terms - 1):
                yield chain_problem(config, operands, signs)
    else:
        for operands in itertools.product(operands_of, repeat=2):
            yield pair_problem(config, operands)


def sample_problems(config: ArithmeticConfig, rng: random.Random) -> Iterator[Problem]:
    """Problems of a space too large to enumerate: uniform draws, each problem at most once, without end."""
    seen: set[str] = set()
    while True:
        if config.operation == "chain":
            operands = tuple(rng.randrange(10**config.digits) for _ in range(config.terms))
            problem = chain_problem(config, operands, tuple(rng.choice((1, -1)) for _ in range(config.terms - 1)))
        else:
            problem = pair_problem(config, (rng.randrange(10**config.digits), rng.randrange(10**config.digits)))
        if problem.prompt not in seen:
            seen.add(problem.prompt)
            yield problem


def split(config: ArithmeticConfig) -> dict[str, list[Example]]:
    """The training and the held-out problems; no key is on both sides.

    Without sizes, one-digit sums give all 100 ordered pairs: 76 to train on and 24 held out.
    """
    total = space_size(config)
    rng = random.Random(config.seed)
    asked = (config.train_size, config.test_size)
    if total > ENUMERATION_LIMIT:
        if None in asked:
            raise ValueError(
                f"{total:,} {config.operation} problems of {config.digits} digits are too many to enumerate (limit "
                f"{ENUMERATION_LIMIT:,}): set train_size and test_size"
            )
        if sum(size for size in asked if size is not None) > total // 2:
            raise ValueError(f"train_size + test_size = {asked[0]} + {asked[1]} is over half of {total:,} problems")
        test, train = _split_sampled(config, rng)
    else:
        test, train = _split_enumerated(config, rng)
    return {
        "train": [problem.example(index) for index, problem in enumerate(train)],
        "test": [problem.example(index) for index, problem in enumerate(test)],
    }


def _split_enumerated(config: ArithmeticConfig, rng: random.Random) -> tuple[list[Problem], list[Problem]]:
    groups: dict[Key, list[Problem]] = {}
    for problem in enumerate_problems(config):
        groups.setdefault(problem.key, []).append(problem)
    order = list(groups)
    rng.shuffle(order)
    total = space_size(config)
    test_size = round(total * config.test_fraction) if config.test_size is None else config.test_size
    test: list[Problem] = []
    train: list[Problem] = []
    for key in order:
        # A group that would overshoot is trained on; a smaller one later in the order fills the gap.
        side = test if len(test) + len(groups[key]) <= test_size else train
        side.extend(groups[key])
    if len(test) != test_size:
        raise ValueError(
            f"the {total} problems can't be split into exactly {test_size} held-out ones without separating problems "
            f"with the same operands (nearest below: {len(test)}): change test_size or test_fraction"
        )
    if not train:
        raise ValueError(f"test_size = {test_size} leaves none of the {total} problems to train on")
    rng.shuffle(test)
    rng.shuffle(train)
    if config.train_size is not None and config.train_size > len(train):
        raise ValueError(f"train_size is {config.train_size}, but only {len(train)} of {total} problems are left")
    return test, train[: config.train_size]


def _split_sampled(config: ArithmeticConfig, rng: random.Random) -> tuple[list[Problem], list[Problem]]:
    problems = sample_problems(config, rng)
    test = list(itertools.islice(problems, config.test_size))
    held_out = {problem.key for problem in test}
    train = list(itertools.islice((p for p in problems if p.key not in held_out), config.train_size))
    return test, train
