"""The token form: what it says of completions, and what it refuses."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from trustax.errors import UserError
from trustax.ope.checks import logged_problems
from trustax.ope.completion_values import learned_values
from trustax.ope.completions import evaluate_completions, leave_one_out_values
from trustax.testing import walks


def logged(count: int = 24, *, seed: int = 0, distance: float = 0.3) -> dict[str, np.ndarray]:
    """Completions of a tree with a wide margin of padding, four to a prompt."""
    tree = walks.random_tree(1, states=4, vocab=3, length=5, distance=distance)
    found = walks.complete(tree, np.random.default_rng(seed), count)
    shape = (count, 8)
    mask = np.zeros(shape, bool)
    mask[:, 1:6] = True
    log_pi, log_mu = np.full(shape, np.nan), np.full(shape, np.nan)
    log_mu[mask] = -3.0
    log_pi[mask] = (found.log_ratio - 3.0).reshape(-1)
    return {"log_pi": log_pi, "log_mu": log_mu, "token_mask": mask, "rewards": found.reward,
            "groups": np.arange(count) // 4}  # fmt: skip


def test_the_policy_itself_is_worth_what_it_earned():
    given = logged()
    report = evaluate_completions(**given | {"log_pi": given["log_mu"]})
    for value in (report.estimate, report.normalized, report.importance, report.self_normalized, report.behavior):
        assert value == pytest.approx(given["rewards"].mean())
    assert (report.effective, report.truncated, report.rollouts, report.prompts) == (pytest.approx(24), 0, 24, 6)
    assert report.low < report.estimate < report.high
    assert report.tau == pytest.approx(np.sqrt(24)) and report.tau in [row.tau for row in report.sweep]


def test_it_is_truncated_weighting_with_a_leave_one_out_baseline():
    given = logged()
    report = evaluate_completions(**given, taus=(0.9,), tau=0.9)
    ratios = (given["log_pi"] - given["log_mu"])[:, 1:6]
    rewards = given["rewards"].reshape(-1, 4)
    baseline = ((rewards.sum(-1, keepdims=True) - rewards) / 3).reshape(-1)
    weights = np.minimum(np.exp(ratios[:, :-1].sum(-1)), 0.9) * np.exp(ratios[:, -1])
    assert report.estimate == pytest.approx(np.mean(baseline + weights * (given["rewards"] - baseline)))
    beyond = np.exp(np.pad(ratios.cumsum(-1)[:, :-1], ((0, 0), (1, 0)))) > 0.9
    assert report.truncated == pytest.approx(beyond.mean())


def test_a_prompt_with_one_completion_has_the_mean_of_all_others():
    values = leave_one_out_values(*map(jnp.asarray, ([1.0, 0.0, 0.5], [0, 1, 1], np.ones((3, 1), bool))))
    np.testing.assert_allclose(values[:, 0], [0.25, 0.5, 0.0], atol=1e-6)


def test_padding_and_the_order_of_rows_change_nothing():
    given = logged()
    report = evaluate_completions(**given)
    wide = {name: np.pad(x, ((0, 0), (0, 3))) if x.ndim == 2 else x for name, x in given.items()}
    order = np.random.default_rng(0).permutation(24)
    shuffled = evaluate_completions(**{name: x[order] for name, x in given.items()})
    for name in ("estimate", "normalized", "effective", "truncated", "importance"):
        expected = pytest.approx(vars(report)[name], abs=1e-9)
        assert vars(evaluate_completions(**wide))[name] == expected and vars(shuffled)[name] == expected


def test_too_little_overlap_is_refused_with_the_numbers():
    far = logged(distance=4.0)
    with pytest.raises(UserError, match=r"effective sample size \d\.\d of 24 rollouts, below the floor of 10"):
        evaluate_completions(**far)
    assert evaluate_completions(**far, floor=0).effective < 10


@pytest.mark.parametrize(
    ("name", "index", "value", "expected"),
    [
        ("log_mu", (3, 2), np.nan, "row 3, token 2: no μ"),
        ("log_mu", (3, 2), -np.inf, "row 3, token 2: μ gives an action that was taken probability 0"),
        ("log_mu", (3, 2), 0.5, "row 3, token 2: log_mu is above 0"),
        ("log_pi", (0, 1), np.nan, "row 0, token 1: log_pi is NaN"),
        ("rewards", 2, np.inf, "row 2: the reward is not finite"),
        ("token_mask", 5, False, "row 5: a completion without a token"),
    ],
)
def test_bad_rollouts_are_refused_with_the_place(name, index, value, expected):
    given = logged()
    given[name][index] = value
    with pytest.raises(ValueError, match=expected):
        evaluate_completions(**given)


def test_all_problems_are_told_at_once():
    given = logged()
    given["log_mu"][0, 1], given["rewards"][1] = np.nan, np.nan
    with pytest.raises(ValueError, match=r"no μ.*reward is not finite.*tau must be above 0, got 0"):
        evaluate_completions(**given, tau=0.0)
    assert logged_problems(**given | {"groups": np.arange(3)}) == ["groups has shape (3,), expected (24,) as log_mu"]


def test_an_action_that_the_target_never_takes_is_fine():
    given = logged()
    given["log_pi"][0, 1] = -np.inf
    assert np.isfinite(dataclasses.astuple(evaluate_completions(**given))[3])


@pytest.mark.parametrize("kind", ["linear", pytest.param("network", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_learned_values_are_near_the_exact_ones_and_unbiased_by_their_own_reward(kind):
    """Features are the hidden state and the sum so far; the exact value is linear in them."""
    tree = walks.random_tree(2, states=3, vocab=3, length=4, distance=0.4)
    rng = np.random.default_rng(0)
    found = walks.complete(tree, rng, 400)
    features = np.stack([found.value, rng.normal(size=found.value.shape)], axis=-1)
    given = {"log_pi": found.log_ratio - 3.0, "log_mu": np.full(found.log_ratio.shape, -3.0),
             "token_mask": np.ones((400, 4), bool), "rewards": found.reward, "groups": np.arange(400)}  # fmt: skip
    values = np.asarray(learned_values(features, **given, kind=kind))
    assert np.corrcoef(values.reshape(-1), found.value.reshape(-1))[0, 1] > 0.97
    poisoned = given | {"rewards": np.where(np.arange(400) == 7, 1e3, found.reward)}
    moved = np.asarray(learned_values(features, **poisoned, kind=kind))
    if kind == "linear":
        np.testing.assert_allclose(moved[7], values[7], atol=1e-6)  # its own fold learned without it
    assert np.abs(moved - values).max() > 1
    report = evaluate_completions(**given, values=values)
    assert report.low - 0.2 < tree.value(tree.log_pi) < report.high + 0.2


def test_fewer_prompts_than_folds_are_refused():
    given = logged()
    with pytest.raises(ValueError, match="7 folds of 6 groups"):
        learned_values(np.zeros((24, 8, 2)), **given, folds=7)
