import itertools
import math

import numpy as np
import pytest

from trustax.evaluation.estimates import bootstrap, estimates, majority, majority_at_k, pass_at_k


@pytest.mark.parametrize(("samples", "correct"), [(1, 0), (1, 1), (5, 2), (6, 0), (6, 6), (7, 1)])
def test_pass_at_k_is_the_mean_over_all_subsets(samples: int, correct: int) -> None:
    outcomes = [True] * correct + [False] * (samples - correct)
    for k in range(1, samples + 1):
        subsets = list(itertools.combinations(outcomes, k))
        assert pass_at_k(samples, correct, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)


def test_pass_at_k_is_unbiased() -> None:
    p, samples = 0.3, 8
    for k in (1, 4, 8):
        chances = [math.comb(samples, c) * p**c * (1 - p) ** (samples - c) for c in range(samples + 1)]
        mean = sum(chance * pass_at_k(samples, c, k) for c, chance in enumerate(chances))
        assert mean == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


def test_pass_at_k_refuses_what_it_cannot_know() -> None:
    with pytest.raises(ValueError, match="got 2, 4 and k = 5"):
        pass_at_k(4, 2, 5)


def test_majorities() -> None:
    assert majority(["7", "7", "8"], [True, True, False]) == 1.0
    assert majority(["8", "8", "7"], [False, False, True]) == 0.0
    assert majority(["7", "8", None, None, None], [True, False, False, False, False]) == 0.5  # a tie, and three silent
    assert majority([None], [False]) == 0.0
    assert majority_at_k(["7", "8", "8", "8", "7"], [True, False, False, False, True], 2) == 0.25


@pytest.mark.parametrize(("prompts", "samples"), [(30, 16), (60, 4)])
def test_intervals_cover(prompts: int, samples: int) -> None:
    """Of 400 evaluations with known truth, about 95 % of the intervals hold it."""
    rng = np.random.default_rng(1)
    truth, held = 0.4, 0  # the mean of Beta(2, 3)
    for trial in range(400):
        chances = rng.beta(2, 3, size=prompts)
        scores = rng.binomial(samples, chances) / samples
        found = bootstrap(scores, confidence=0.95, seed=trial, resamples=400)
        held += found.low <= truth <= found.high
    assert 0.92 <= held / 400 <= 0.975, held / 400


def test_the_table_of_an_evaluation() -> None:
    correct = np.array([[True, False], [False, False]])
    found = estimates(correct, [["7", "8"], ["1", "1"]], at=[1, 2], confidence=0.9)
    assert {name: one.value for name, one in found.items()} == {
        "avg@2": 0.25, "pass@1": 0.25, "pass@2": 0.5, "maj@1": 0.25, "maj@2": 0.25,
    }  # fmt: skip
    assert all(0 <= one.low <= one.value <= one.high <= 1 for one in found.values())
    assert bootstrap(np.array([0.5]), confidence=0.9) == (0.5, 0.0, 1.0)
