"""Value of a policy π from episodes of another policy μ: importance weights, control variates, truncation.

``B`` episodes, ``T`` steps, of which ``token_mask`` says which are decisions (completion tokens). With
``r_t = π_t/μ_t`` of the action that was taken, the ratio of the *state* distributions before step t is the product
``P_{t−1} = r_1 … r_{t−1}``, and ``P_t = P_{t−1} r_t`` is the weight of what happens at t. Every function returns
``Terms``; ``estimate`` makes a number of them, ``bootstrap`` an interval.

Log-ratios are not limited in size here: an estimator that quietly changes large weights is a truncated one, and says τ.
A ratio of 0 (π never does what was done) is fine; μ = 0 is not, see ``checks``. No gradient is meant to flow.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trustax.ope.terms import Terms
from trustax.ops.masked import masked_sum, select
from trustax.ops.ratios import positions, prefix_log_ratio, sequence_log_ratio

ROUNDING = 1e-4
Number = Float[Array, ""] | float | int
Steps = Float[Array, "B T"]
Mask = Bool[Array, "B T"]


def importance_sampling(rewards: Steps, log_ratios: Steps, token_mask: Mask, *, gamma: Number = 1.0) -> Terms:
    """Weigh each return by the whole episode's probability ratio.

    ``mean_i P_T Σ_t γ^{t−1} R_t``. Unbiased wherever π ⊂ μ; the variance grows exponentially in T.

    Args:
        rewards: one number a step; read at valid steps only.
        log_ratios: log π − log μ of the actions that were taken.
        token_mask: the valid steps.
        gamma: discount in [0, 1] a valid step.

    Returns: ``Terms`` with one column.

    References: Precup, Sutton, Singh, "Eligibility Traces for Off-Policy Policy Evaluation" (2000).

    >>> from trustax.ope.terms import estimate
    >>> rewards, mask = jnp.array([[0.0, 1.0], [0.0, 3.0]]), jnp.ones((2, 2), bool)
    >>> ratios = jnp.log(jnp.array([[2.0, 0.5], [0.5, 1.0]]))
    >>> round(float(estimate(importance_sampling(rewards, ratios, mask))), 6)  # (1·1 + 0.5·3) / 2
    1.25
    """
    weighted = sequence_weights(log_ratios, token_mask) * _returns(rewards, token_mask, gamma)
    return Terms(weighted[:, None], jnp.ones_like(weighted)[:, None])


def self_normalized(rewards: Steps, log_ratios: Steps, token_mask: Mask, *, gamma: Number = 1.0) -> Terms:
    """Divide the weighted returns by the sum of the weights.

    ``Σ_i P_T^i G_i / Σ_i P_T^i``: stays within the returns that were seen and does not move when the rewards are
    shifted; the bias is of order 1/B, towards the behaviour's value where few weights dominate.

    Args, References: as ``importance_sampling``.

    >>> from trustax.ope.terms import estimate
    >>> rewards, mask = jnp.array([[0.0, 1.0], [0.0, 3.0]]), jnp.ones((2, 2), bool)
    >>> ratios = jnp.log(jnp.array([[2.0, 0.5], [0.5, 1.0]]))
    >>> round(float(estimate(self_normalized(rewards, ratios, mask))), 6)  # (1·1 + 0.5·3) / 1.5
    1.666667
    """
    weights = sequence_weights(log_ratios, token_mask)
    return Terms((weights * _returns(rewards, token_mask, gamma))[:, None], weights[:, None])


def per_decision(
    rewards: Steps, log_ratios: Steps, token_mask: Mask, *, gamma: Number = 1.0, normalize: bool = False
) -> Terms:
    """Weigh each reward by the ratios up to it and no further.

    ``mean_i Σ_t γ^{t−1} P_t R_t``: later ratios have conditional mean one and only add variance. With an outcome
    reward at the last step it is ``importance_sampling``. ``normalize`` as in ``truncated_doubly_robust``.

    Args, References: as ``importance_sampling``.

    >>> from trustax.ope.terms import estimate
    >>> rewards, mask = jnp.array([[1.0, 1.0]]), jnp.ones((1, 2), bool)
    >>> float(estimate(per_decision(rewards, jnp.log(jnp.array([[2.0, 0.5]])), mask)))  # 2·1 + 1·1
    3.0
    """
    zeros = jnp.zeros_like(rewards)
    return truncated_doubly_robust(
        rewards, zeros, log_ratios, token_mask, tau=jnp.inf, gamma=gamma, normalize=normalize
    )


def doubly_robust(
    rewards: Steps, values: Steps, log_ratios: Steps, token_mask: Mask, *, gamma: Number = 1.0, normalize: bool = False
) -> Terms:
    """Correct a value function's answer by its own weighted one-step errors.

    ``truncated_doubly_robust`` without truncation: unbiased for any ``values`` that do not depend on the episode.

    References: Jiang and Li, "Doubly Robust Off-policy Value Evaluation for Reinforcement Learning", arXiv 1511.03722;
    Thomas and Brunskill, arXiv 1604.00923.

    >>> from trustax.ope.terms import estimate
    >>> rewards, mask = jnp.array([[0.0, 1.0]]), jnp.ones((1, 2), bool)
    >>> values, ratios = jnp.array([[0.5, 0.75]]), jnp.log(jnp.array([[2.0, 0.5]]))
    >>> float(estimate(doubly_robust(rewards, values, ratios, mask)))  # 0.5 + 2·0.25 + 1·0.25
    1.25
    """
    return truncated_doubly_robust(
        rewards, values, log_ratios, token_mask, tau=jnp.inf, gamma=gamma, normalize=normalize
    )


def truncated_doubly_robust(
    rewards: Steps,
    values: Steps,
    log_ratios: Steps,
    token_mask: Mask,
    *,
    tau: Number,
    gamma: Number = 1.0,
    normalize: bool = False,
) -> Terms:
    """Correct a value function's answer by its one-step errors, with the *state* ratio truncated at τ.

    ``mean_i [ V(s_1) + Σ_t γ^{t−1} min(P_{t−1}, τ) r_t (R_t + γ V(s_{t+1}) − V(s_t)) ]``, t+1 the next valid step and
    V = 0 after the last. The one-step ratio r_t stays whole: with the exact V each error has conditional mean 0 and
    no τ adds bias. (``min(P_t, τ)`` is biased even then, and the form ``P_t (R + V') − P_{t−1} V`` telescopes to plain
    importance weighting.) Otherwise the bias is the truncated mass times the error of V, and the weights' variance
    falls with τ.

    Args:
        rewards: one number a step; read at valid steps only.
        values: V *before* each step, from data other than the episode itself.
        log_ratios: log π − log μ of the actions that were taken.
        token_mask: the valid steps.
        tau: largest state ratio, above 0; inf for the doubly robust estimator. A run-time number.
        gamma: discount in [0, 1] a valid step.
        normalize: divide each step's weights by their mean over the episodes; those that have ended keep their last
            weight. Less variance, a bias of order 1/B.

    Returns: ``Terms`` with one column, or T + 1 with ``normalize``.

    Edge cases: without a valid step an episode is worth 0. Values at masked steps are never read.

    References: Mehrabi and Wager, "Off-Policy Evaluation in Markov Decision Processes under Weak Distributional
    Overlap", arXiv 2402.08201; the form over a tree of tokens is ours.

    >>> from trustax.ope.terms import estimate
    >>> rewards, mask = jnp.array([[0.0, 1.0]]), jnp.ones((1, 2), bool)
    >>> values, ratios = jnp.array([[0.5, 0.75]]), jnp.log(jnp.array([[4.0, 0.5]]))
    >>> terms = truncated_doubly_robust(rewards, values, ratios, mask, tau=2.0)
    >>> float(estimate(terms))  # 0.5 + 1·4·(0.75 − 0.5) + min(4, 2)·0.5·(1 − 0.75)
    1.75
    """
    gamma = jnp.asarray(gamma, rewards.dtype)
    first, following = _along(values, token_mask)
    errors = select(rewards, token_mask) + gamma * following - select(values, token_mask)
    weights = truncated_weights(log_ratios, token_mask, tau=tau)
    steps = select(_discounts(token_mask, gamma, rewards.dtype) * weights * errors, token_mask)
    ones = jnp.ones_like(first)[:, None]
    if not normalize:
        return Terms((first + jnp.sum(steps, axis=-1))[:, None], ones)
    return Terms(
        jnp.concatenate([first[:, None], steps], axis=-1),
        jnp.concatenate([ones, weights], axis=-1),
    )


def state_ratios(log_ratios: Steps, token_mask: Mask) -> Steps:
    """Multiply the ratios *before* each step.

    ``P_{t−1} = Π_{j<t, m_j} r_j``: how much more often π than μ comes to the state before step t. 1 at the first step.

    >>> state_ratios(jnp.log(jnp.array([[2.0, 3.0, 9.0]])), jnp.array([[True, True, False]])).round(4).tolist()
    [[1.0, 2.0, 6.0]]
    """
    return jnp.exp(_log_state_ratios(log_ratios, token_mask))


def truncated_weights(log_ratios: Steps, token_mask: Mask, *, tau: Number) -> Steps:
    """Weigh each step by its truncated state ratio and its own whole ratio.

    ``min(P_{t−1}, τ) r_t``; at a masked step r = 1.

    >>> truncated_weights(jnp.log(jnp.array([[4.0, 0.5]])), jnp.ones((1, 2), bool), tau=2.0).round(4).tolist()
    [[4.0, 1.0]]
    """
    # In logarithms: a state ratio that overflows, times a ratio of 0, is 0 and not NaN.
    bound = jnp.log(jnp.asarray(tau, log_ratios.dtype))
    return jnp.exp(jnp.minimum(_log_state_ratios(log_ratios, token_mask), bound) + select(log_ratios, token_mask))


def truncated_share(log_ratios: Steps, token_mask: Mask, *, tau: Number) -> Float[Array, ""]:
    """Say at which share of the valid steps the state ratio is beyond τ.

    >>> float(truncated_share(jnp.log(jnp.array([[4.0, 0.5]])), jnp.ones((1, 2), bool), tau=2.0))
    0.5
    """
    # Log-probs of one policy, computed twice, differ by their rounding: that is not a ratio beyond 1.
    beyond = state_ratios(log_ratios, token_mask) > jnp.asarray(tau, log_ratios.dtype) * (1 + ROUNDING)
    valid = jnp.sum(token_mask).astype(log_ratios.dtype)
    return jnp.sum(beyond & token_mask).astype(log_ratios.dtype) / jnp.maximum(valid, 1.0)


def sequence_weights(log_ratios: Steps, token_mask: Mask) -> Float[Array, " B"]:
    """Multiply all ratios of an episode: ``P_T``.

    >>> sequence_weights(jnp.log(jnp.array([[4.0, 0.5]])), jnp.ones((1, 2), bool)).round(4).tolist()
    [2.0]
    """
    return jnp.exp(sequence_log_ratio(log_ratios, token_mask))


def _log_state_ratios(log_ratios: Array, token_mask: Array) -> Array:
    through = prefix_log_ratio(log_ratios, token_mask)
    return jnp.concatenate([jnp.zeros_like(through[:, :1]), through[:, :-1]], axis=-1)


def _discounts(token_mask: Array, gamma: Array, dtype: jnp.dtype) -> Array:
    return gamma ** jnp.maximum(positions(token_mask) - 1, 0).astype(dtype)


def _returns(rewards: Array, token_mask: Array, gamma: Number) -> Array:
    gamma = jnp.asarray(gamma, rewards.dtype)
    return masked_sum(_discounts(token_mask, gamma, rewards.dtype) * select(rewards, token_mask), token_mask, axis=-1)


def _along(values: Array, token_mask: Array) -> tuple[Array, Array]:
    """V at the first valid step ``[B]``, and V at the valid step after each one ``[B, T]``; 0 where there is none."""
    length = token_mask.shape[-1]
    index = jnp.where(token_mask, jnp.arange(length, dtype=jnp.int32)[None], length)
    at_or_after = jax.lax.cummin(index, axis=1, reverse=True)
    ended = jnp.full_like(at_or_after[:, :1], length)
    padded = jnp.concatenate([select(values, token_mask), jnp.zeros_like(values[:, :1])], axis=-1)
    found = jnp.take_along_axis(padded, jnp.concatenate([at_or_after, ended], axis=-1), axis=-1)
    return found[:, 0], found[:, 1:]
