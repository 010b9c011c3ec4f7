from collections import Counter

import pytest

from trustax.data import DataConfig, Example, ListSource, MixtureConfig, ReasoningGymConfig, load
from trustax.data.mixture import mixture


def numbers(name: str, count: int) -> ListSource:
    return ListSource(name, [Example(i, f"{name}{i}", str(i)) for i in range(count)])


def test_every_prefix_keeps_the_weights() -> None:
    mixed = mixture([numbers("a", 30), numbers("b", 30), numbers("c", 30)], [3.0, 2.0, 1.0])
    names = [mixed[i].prompt[0] for i in range(len(mixed))]
    assert len(mixed) >= 55
    for end in range(1, len(names) + 1):
        seen = Counter(names[:end])
        assert all(abs(seen[name] - end * share) < 1.5 for name, share in (("a", 3 / 6), ("b", 2 / 6), ("c", 1 / 6)))


def test_nothing_is_repeated_and_indices_are_places() -> None:
    mixed = mixture([numbers("a", 7), numbers("b", 100)], [1.0, 1.0])
    prompts = [mixed[i].prompt for i in range(len(mixed))]
    assert len(set(prompts)) == len(prompts) and [mixed[i].index for i in range(len(mixed))] == list(range(len(mixed)))
    assert sum(prompt.startswith("a") for prompt in prompts) == 7


def test_sizes_as_weights_see_all_of_all() -> None:
    mixed = mixture([numbers("a", 4), numbers("b", 10)], [4.0, 10.0])
    assert len(mixed) == 14
    together = mixture([numbers("a", 4), numbers("b", 10)])
    assert {together[i].prompt for i in range(14)} == {mixed[i].prompt for i in range(14)}


def test_bad_mixtures_are_refused() -> None:
    with pytest.raises(ValueError, match="a mixture of nothing: b has no example"):
        mixture([numbers("a", 1), numbers("b", 0)])
    with pytest.raises(ValueError, match=r"1 weights for 2 sources; weights must be above 0 and finite, got \(0.0,\)"):
        MixtureConfig((ReasoningGymConfig("chain_sum"),) * 2, weights=(0.0,))


@pytest.mark.parametrize("task", ["countdown", "mini_sudoku"])
def test_offline_families_are_ready(task: str, tmp_path) -> None:
    config = DataConfig(source=ReasoningGymConfig(task, train_size=3, test_size=2), folder=str(tmp_path))
    assert len(load(config, "train")) == 3 and len(load(config, "test")) == 2


def test_levels_come_in_order(tmp_path) -> None:
    levels = tuple({"min_terms": n, "max_terms": n, "min_digits": 1, "max_digits": 1} for n in (2, 4, 6))
    source = ReasoningGymConfig("chain_sum", train_size=10, test_size=3, levels=levels)
    train = load(DataConfig(source=source, folder=str(tmp_path)), "train")
    terms = [train[i].prompt.count("+") + train[i].prompt.count(" - ") + 1 for i in range(len(train))]
    assert terms == sorted(terms) and set(terms) == {2, 4, 6} and len(terms) >= 9
