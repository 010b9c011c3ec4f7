"""Value of policy B from completions of policy A: the token form, and what to look at beside it.

A language model's state is the prefix, and no prefix is visited twice: the ratio of the states before token t is the
product of the token ratios so far. What the reward depends on is only known at the end, and stands there.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trustax.ope.checks import logged_problems, require_overlap
from trustax.ope.episodes import (
    importance_sampling,
    self_normalized,
    sequence_weights,
    truncated_doubly_robust,
    truncated_share,
)
from trustax.ope.intervals import bootstrap
from trustax.ope.schedules import polynomial_tau
from trustax.ope.terms import Terms, effective_sample_size, estimate
from trustax.ops.advantages import leave_one_out
from trustax.ops.ratios import log_ratio, positions

TAUS = (1.0, 2.0, 5.0, 10.0, math.inf)
FLOOR = 10.0
"""Effective rollouts below which no number is given."""


@dataclasses.dataclass(frozen=True)
class AtTau:
    """One row of the sweep: the estimate, its interval, the step-wise normalised estimate, the share truncated."""

    tau: float
    estimate: float
    low: float
    high: float
    normalized: float
    truncated: float


@dataclasses.dataclass(frozen=True)
class Report:
    """What B is worth, and how far to believe it.

    ``behavior`` is A's mean reward, ``effective`` the effective sample size of the whole completions' weights,
    ``truncated`` the share of tokens whose prefix ratio is beyond ``tau``. ``importance`` and ``self_normalized`` are
    the plain estimators. ``low`` to ``high`` is a bootstrap interval at ``level`` over prompts.
    """

    rollouts: int
    prompts: int
    behavior: float
    estimate: float
    low: float
    high: float
    level: float
    tau: float
    normalized: float
    effective: float
    truncated: float
    importance: float
    self_normalized: float
    sweep: list[AtTau]


def leave_one_out_values(
    rewards: Float[Array, " B"], groups: Int[Array, " B"], token_mask: Bool[Array, "B T"]
) -> Float[Array, "B T"]:
    """Take the mean reward of a prompt's other completions as the value of each prefix of a completion.

    ``V(s_t) = b_i = mean_{j ≠ i, same prompt} R_j``; the mean over all others where a prompt has one completion. It
    needs no critic: all errors but the last are 0, and what is left is truncated weighting with a baseline,
    ``b + min(P_{T−1}, τ) r_T (R − b)``. b does not depend on the completion, so without truncation nothing is biased.

    >>> rewards, groups, mask = jnp.array([1.0, 0.0, 0.0]), jnp.array([4, 4, 4]), jnp.ones((3, 2), bool)
    >>> leave_one_out_values(rewards, groups, mask).tolist()
    [[0.0, 0.0], [0.5, 0.5], [0.5, 0.5]]
    """
    alone = jnp.sum(groups[:, None] == groups[None], axis=-1) == 1
    everybody = leave_one_out(rewards, jnp.zeros_like(groups))
    baseline = rewards - jnp.where(alone, everybody, leave_one_out(rewards, groups))
    return jnp.broadcast_to(baseline[:, None], token_mask.shape)


def outcome_rewards(rewards: Float[Array, " B"], token_mask: Bool[Array, "B T"]) -> Float[Array, "B T"]:
    """Put each completion's reward at its last valid token.

    >>> outcome_rewards(jnp.array([2.0]), jnp.array([[True, True, False]])).tolist()
    [[0.0, 2.0, 0.0]]
    """
    numbers = positions(token_mask)
    last = token_mask & (numbers == numbers[:, -1:])
    return jnp.where(last, rewards[:, None], jnp.zeros((), rewards.dtype))


def evaluate_completions(
    log_pi: Float[np.ndarray | Array, "B T"],
    log_mu: Float[np.ndarray | Array, "B T"],
    token_mask: Bool[np.ndarray | Array, "B T"],
    rewards: Float[np.ndarray | Array, " B"],
    groups: Int[np.ndarray | Array, " B"],
    *,
    values: Float[np.ndarray | Array, "B T"] | None = None,
    tau: float | None = None,
    taus: Sequence[float] = TAUS,
    level: float = 0.9,
    resamples: int = 1000,
    floor: float = FLOOR,
    seed: int = 0,
) -> Report:
    """Estimate B's mean reward by the truncated doubly robust estimator in token form.

    Everything is computed in float64 on the host's values; the interval depends on ``seed`` alone.

    Args:
        log_pi: B's log-probs of the tokens.
        log_mu: A's, exactly of the distribution that was sampled.
        token_mask: the tokens that were decisions.
        rewards: the outcome of each completion.
        groups: its prompt.
        values: B's value before each token, from other data than the completion; ``leave_one_out_values`` if left out.
        tau: where to truncate the prefix ratio; ``polynomial_tau`` for d = 1, which is √B, if left out.
        taus: the sweep.
        level, resamples: of the bootstrap over prompts (over completions if there is only one prompt).
        floor: smallest effective sample size; 0 for none.
        seed: of the bootstrap.

    Raises: UserError for an effective sample size below the floor. ValueError for rollouts without μ, a token that μ
    gives probability 0, rewards or log-probs that are no numbers, and shapes that do not fit, all at once.

    References: arXiv 2402.08201; the token form is ours.

    >>> rewards, groups = np.tile([0.0, 1.0], 8), np.repeat(np.arange(4), 4)
    >>> log_mu = np.log(np.full((16, 1), 0.5))
    >>> log_pi = np.log(np.where(rewards == 1, 0.75, 0.25))[:, None]
    >>> report = evaluate_completions(log_pi, log_mu, np.ones((16, 1), bool), rewards, groups, values=np.zeros((16, 1)))
    >>> report.behavior, round(report.estimate, 6)  # B earns the reward three times in four
    (0.5, 0.75)
    """
    arrays = (np.asarray(log_pi), np.asarray(log_mu), np.asarray(token_mask), np.asarray(rewards), np.asarray(groups))
    problems = logged_problems(*arrays)
    wanted = [*taus, *([] if tau is None else [tau])]
    problems += [f"tau must be above 0, got {one:g}" for one in wanted if not one > 0]
    if problems:
        raise ValueError("; ".join(problems))
    count, names = len(rewards), np.unique(groups)
    tau = float(polynomial_tau(count, 1.0) if tau is None else tau)
    with jax.enable_x64(True):
        group_ids = np.searchsorted(names, groups)
        plain = [jnp.asarray(x, jnp.float64) for x in (log_pi, log_mu, rewards)]
        given = None if values is None else jnp.asarray(values, jnp.float64)
        logged, summary = _prepare(*plain, jnp.asarray(token_mask), jnp.asarray(group_ids), given)
        effective, importance, normalized = (float(x) for x in summary)
        require_overlap(effective, count, floor)
        units = group_ids if len(names) > 1 else np.arange(count)
        rows = {one: _at(logged, units, one, level, resamples, seed) for one in sorted({*map(float, taus), tau})}
    chosen = rows[tau]
    return Report(
        rollouts=count,
        prompts=len(names),
        behavior=float(np.mean(rewards)),
        estimate=chosen.estimate,
        low=chosen.low,
        high=chosen.high,
        level=level,
        tau=tau,
        normalized=chosen.normalized,
        effective=effective,
        truncated=chosen.truncated,
        importance=importance,
        self_normalized=normalized,
        sweep=list(rows.values()),
    )


class _Logged(NamedTuple):
    """What the estimators read, ``[B, T]`` each."""

    rewards: Array
    values: Array
    log_ratios: Array
    token_mask: Array


@jax.jit
def _prepare(
    log_pi: Array, log_mu: Array, outcomes: Array, token_mask: Array, groups: Array, values: Array | None
) -> tuple[_Logged, tuple[Array, Array, Array]]:
    """The completions as the estimators read them; the effective sample size, and the two plain estimates."""
    ratios = log_ratio(log_pi, log_mu, token_mask, limit=math.inf)
    values = leave_one_out_values(outcomes, groups, token_mask) if values is None else values
    logged = _Logged(outcome_rewards(outcomes, token_mask), values, ratios, token_mask)
    plain = [estimate(method(logged.rewards, ratios, token_mask)) for method in (importance_sampling, self_normalized)]
    return logged, (effective_sample_size(sequence_weights(ratios, token_mask)), plain[0], plain[1])


def _at(logged: _Logged, units: np.ndarray, tau: float, level: float, resamples: int, seed: int) -> AtTau:
    terms, told = _terms(logged, jnp.asarray(tau, jnp.float64))
    interval = bootstrap(terms, units, jax.random.key(seed), level=level, resamples=resamples)
    value, normalized, truncated = (float(x) for x in told)
    return AtTau(tau, value, interval.low, interval.high, normalized, truncated)


@jax.jit
def _terms(logged: _Logged, tau: Array) -> tuple[Terms, tuple[Array, Array, Array]]:
    plain, normalized = (truncated_doubly_robust(*logged, tau=tau, normalize=by_step) for by_step in (False, True))
    told = estimate(plain), estimate(normalized), truncated_share(logged.log_ratios, logged.token_mask, tau=tau)
    return plain, told
