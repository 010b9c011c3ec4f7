"""Long-run value of a policy π from one long chain, or many transitions, of another policy μ.

``N`` transitions ``(x, action, reward, x')``. ``state_ratio`` is ω(x), how much more often π than μ is at x in the long
run; ``action_ratio`` is π/μ of the action taken. Only ω is ever truncated.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from trustax.ope.terms import Terms

Number = Float[Array, ""] | float | int
Transitions = Float[Array, " N"]


def average_reward(
    rewards: Transitions,
    values: Transitions,
    next_values: Transitions,
    state_ratio: Transitions,
    action_ratio: Transitions,
    *,
    tau: Number = jnp.inf,
) -> Terms:
    """Estimate π's long-run reward a step.

    ``Σ w (Y + Q(x') − Q(x)) / Σ w`` with ``w = min(ω(x), τ) · π/μ`` and Q the differential value,
    ``E_π[Y + Q(x') | x] − Q(x) = V``. With the exact Q every summand has conditional mean V, whatever τ is; with Q = 0
    it is self-normalised weighting. The error is (error of Q) × (error of ω + truncated mass).

    Args:
        rewards: Y.
        values, next_values: Q(x) and Q(x'), up to a common constant.
        state_ratio: ω(x), up to a common factor if τ is in the same units.
        action_ratio: π/μ of the action taken.
        tau: largest ω, above 0; inf for the doubly robust estimator.

    Returns: ``Terms`` with one column.

    References: Mehrabi and Wager, arXiv 2402.08201.

    >>> from trustax.ope.terms import estimate
    >>> one, zero = jnp.ones(2), jnp.zeros(2)
    >>> omega, rewards = jnp.array([1.0, 9.0]), jnp.array([0.0, 4.0])
    >>> float(estimate(average_reward(rewards, zero, zero, omega, one, tau=3.0)))  # 3·4 / (1 + 3)
    3.0
    """
    weights = jnp.minimum(state_ratio, jnp.asarray(tau, state_ratio.dtype)) * action_ratio
    return Terms((weights * (rewards + next_values - values))[:, None], weights[:, None])


def discounted_reward(
    rewards: Transitions,
    values: Transitions,
    next_values: Transitions,
    state_ratio: Transitions,
    action_ratio: Transitions,
    *,
    gamma: Number,
    initial_value: Number,
    tau: Number = jnp.inf,
    normalize: bool = False,
) -> Terms:
    """Estimate ``(1 − γ) E_π Σ_t γ^t Y_t``, π's discounted reward on the scale of one step.

    ``(1 − γ) E V(s_0) + mean w (Y + γ V(x') − Q)`` with ``w = min(ω(x), τ) · π/μ``; ω is the ratio of π's discounted
    visits, ``(1 − γ) Σ_t γ^t P_π(x_t = x)``, to the data's. ``values`` may be Q(x, a) or V(x): either has error 0 in
    conditional mean if it is exact.

    Args:
        rewards, state_ratio, action_ratio, tau: as in ``average_reward``.
        values: what is subtracted: Q(x, a) of the action taken, or V(x).
        next_values: V(x') under π.
        gamma: discount, below 1.
        initial_value: E V(s_0) over the starts that the value is asked for.
        normalize: divide by the mean weight instead of by 1.

    Returns: ``Terms`` with two columns.

    References: Mehrabi and Wager, arXiv 2402.08201; Kallus and Uehara, arXiv 1909.05850.

    >>> from trustax.ope.terms import estimate
    >>> one = jnp.ones(2)
    >>> terms = discounted_reward(one, 2 * one, 2 * one, one, one, gamma=0.5, initial_value=2.0)
    >>> float(estimate(terms))  # 0.5·2 + (1 + 0.5·2 − 2)
    1.0
    """
    gamma = jnp.asarray(gamma, rewards.dtype)
    weights = jnp.minimum(state_ratio, jnp.asarray(tau, state_ratio.dtype)) * action_ratio
    start = (1.0 - gamma) * jnp.broadcast_to(jnp.asarray(initial_value, rewards.dtype), rewards.shape)
    ones = jnp.ones_like(rewards)
    return Terms(
        jnp.stack([start, weights * (rewards + gamma * next_values - values)], axis=-1),
        jnp.stack([ones, weights if normalize else ones], axis=-1),
    )
