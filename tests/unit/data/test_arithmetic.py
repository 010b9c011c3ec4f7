import collections
import json
import re

import pytest

from trustax.data import ArithmeticConfig, Example
from trustax.data.arithmetic import split

PAIR = {"sum": lambda a, b: a + b, "difference": lambda a, b: a - b, "product": lambda a, b: a * b}


def signed_terms(prompt: str) -> list[int]:
    """The terms of ``3 + 4 - 2``, read from the text alone."""
    return [int(term.replace(" ", "")) for term in re.findall(r"[-+]? ?\d+", prompt)]


def operands(example: Example) -> tuple[int, ...]:
    return tuple(sorted(int(number) for number in re.findall(r"\d+", example.prompt)))


def test_one_digit_sums_are_all_hundred_pairs() -> None:
    splits = split(ArithmeticConfig())
    assert (len(splits["train"]), len(splits["test"])) == (76, 24)
    prompts = [example.prompt for side in splits.values() for example in side]
    assert sorted(prompts) == sorted(f"{a} + {b}" for a in range(10) for b in range(10))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("operation", ["sum", "product"])
def test_no_held_out_pair_is_trained_on_in_the_other_order(operation: str, seed: int) -> None:
    splits = split(ArithmeticConfig(operation=operation, seed=seed))  # type: ignore[arg-type]
    assert not {operands(e) for e in splits["train"]} & {operands(e) for e in splits["test"]}
    assert len(splits["test"]) == 24


def test_the_other_order_may_be_trained_on_when_asked() -> None:
    splits = split(ArithmeticConfig(split_by="problem"))
    assert (len(splits["train"]), len(splits["test"])) == (76, 24)
    assert {operands(e) for e in splits["train"]} & {operands(e) for e in splits["test"]}


@pytest.mark.parametrize("operation", ["sum", "difference", "product"])
@pytest.mark.parametrize("sizes", [{}, {"digits": 4, "train_size": 50, "test_size": 20}])
def test_answers_of_pairs(operation: str, sizes: dict) -> None:
    for side in split(ArithmeticConfig(operation=operation, **sizes)).values():  # type: ignore[arg-type]
        for example in side:
            a, symbol, b = example.prompt.split(" ")
            assert int(example.answer) == PAIR[operation](int(a), int(b))
            assert symbol == {"sum": "+", "difference": "-", "product": "*"}[operation]
            metadata = json.loads(example.metadata)
            assert (metadata["a"], metadata["b"], metadata["operation"]) == (int(a), int(b), operation)


@pytest.mark.parametrize("sizes", [{}, {"digits": 3, "terms": 4, "train_size": 60, "test_size": 30}])
def test_chains_and_their_split(sizes: dict) -> None:
    splits = split(ArithmeticConfig(operation="chain", **sizes))
    for side in splits.values():
        for example in side:
            assert sum(signed_terms(example.prompt)) == int(example.answer)
            assert json.loads(example.metadata)["terms"] == signed_terms(example.prompt)
    terms = {name: {tuple(sorted(signed_terms(e.prompt))) for e in side} for name, side in splits.items()}
    assert not terms["train"] & terms["test"]


@pytest.mark.parametrize("config", [ArithmeticConfig(), ArithmeticConfig(digits=4, train_size=200, test_size=50)])
def test_problems_are_distinct_numbered_and_reproducible(config: ArithmeticConfig) -> None:
    splits = split(config)
    for side in splits.values():
        assert [example.index for example in side] == list(range(len(side)))
    counts = collections.Counter(example.prompt for side in splits.values() for example in side)
    assert max(counts.values()) == 1
    assert split(config) == splits


def test_a_large_space_is_drawn_without_leaks_and_repeats() -> None:
    # Of a million products, about nine training problems would be held-out ones in the other order, and about
    # eighteen would come twice, if nothing prevented it.
    splits = split(ArithmeticConfig(operation="product", digits=3, train_size=3000, test_size=3000))
    assert not {operands(e) for e in splits["train"]} & {operands(e) for e in splits["test"]}
    assert len({e.prompt for side in splits.values() for e in side}) == 6000


def test_sizes_choose_from_an_enumerated_space() -> None:
    splits = split(ArithmeticConfig(train_size=10, test_size=7))
    assert (len(splits["train"]), len(splits["test"])) == (10, 7)


def test_another_seed_holds_out_others() -> None:
    first, second = (split(ArithmeticConfig(seed=seed))["test"] for seed in (0, 1))
    assert {e.prompt for e in first} != {e.prompt for e in second}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"digits": 4}, "too many to enumerate"),
        ({"digits": 3, "train_size": 900_000, "test_size": 10}, "over half"),
        ({"train_size": 90}, "only 76 of 100"),
        ({"test_size": 100}, "leaves none of the 100"),
        ({"operation": "difference", "test_size": 101}, "can't be split into exactly 101"),
    ],
)
def test_impossible_sizes_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split(ArithmeticConfig(**settings))


def test_every_wrong_setting_is_named_at_once() -> None:
    with pytest.raises(ValueError, match=r"operation must be.*'sums'; digits must be 1\.\.9, got 0; test_fraction"):
        ArithmeticConfig(operation="sums", digits=0, test_fraction=1.0)  # type: ignore[arg-type]
