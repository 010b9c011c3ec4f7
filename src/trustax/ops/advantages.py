"""Advantage estimators: functions of (reward, group id), never of the layout of a batch.

``B`` completions, ``T`` tokens. Completions of one prompt share a ``group_ids`` value (any integers, in any order,
groups of any size). A row where ``valid`` is false (an unscorable completion; its reward may be NaN) gets advantage 0
and takes no part in its group's statistics. Half-precision and integer rewards are computed in float32. No gradient
is meant to flow through any of these.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from trustax.ops.masked import select

EPS = 1e-6
"""Added to the standard deviation (not to the variance), as in the published GRPO code."""

# Any shape, since _prepare refuses a wrong one in words.
Rewards = Shaped[Array, "..."]
GroupIds = Int[Array, "..."]
Valid = Shaped[Array, "..."] | None


def _prepare(rewards: Array, group_ids: Array, valid: Array | None) -> tuple[Array, Array, Array]:
    """Rewards without NaN in a computing dtype, the validity, and who shares a group with whom ``[B, B]``."""
    if rewards.ndim != 1 or group_ids.shape != rewards.shape:
        raise ValueError(
            f"rewards and group_ids must both have shape [B]; got {rewards.shape} and {group_ids.shape}: "
            "pass one reward per completion"
        )
    if valid is None:
        valid = jnp.ones(rewards.shape, bool)
    if valid.shape != rewards.shape or valid.dtype != jnp.bool_:
        raise ValueError(f"valid must be booleans of shape {rewards.shape}; got {valid.dtype} {valid.shape}")
    floating = jnp.issubdtype(rewards.dtype, jnp.floating) and rewards.dtype.itemsize >= 4
    rewards = select(rewards if floating else rewards.astype(jnp.float32), valid)
    same = (group_ids[:, None] == group_ids[None, :]) & valid[:, None] & valid[None, :]
    return rewards, valid, same


def _above_smallest(rewards: Array, same: Array) -> tuple[Array, Array]:
    """``R_i − min_group R`` and the group sizes.

    Statistics are taken of these differences, which are exactly 0 in a constant group: a mean of equal floats need not
    equal them.
    """
    table = jnp.broadcast_to(rewards[None, :], same.shape)
    smallest = jnp.min(select(table, same, jnp.inf), axis=-1, initial=jnp.inf)
    above = rewards - jnp.where(jnp.isfinite(smallest), smallest, rewards)
    return above, jnp.maximum(jnp.sum(same, axis=-1), 1).astype(rewards.dtype)


def _centered(rewards: Array, same: Array) -> tuple[Array, Array]:
    """``R_i − mean_group R`` and the group sizes."""
    above, size = _above_smallest(rewards, same)
    mean = jnp.sum(select(jnp.broadcast_to(above[None, :], same.shape), same), axis=-1) / size
    return above - mean, size


def group_centered(rewards: Rewards, group_ids: GroupIds, *, valid: Valid = None) -> Float[Array, " B"]:
    """Subtract the group's mean reward.

    ``A_i = R_i − mean_{j ∈ group(i)} R_j``. The mean includes i itself, which scales the expected gradient by
    (G − 1)/G; no bias by the group's spread.

    Args:
        rewards: one number per completion.
        group_ids: equal for completions of one prompt.
        valid: false for unscorable completions.

    Returns: ``[B]``; exactly 0 in constant groups, single-member groups and invalid rows.

    Raises: ValueError for shapes other than [B] and for a non-boolean ``valid``.

    References: Dr. GRPO, arXiv 2503.20783, §3.2.

    >>> group_centered(jnp.array([2.0, 4.0, 6.0]), jnp.array([5, 5, 8])).tolist()
    [-1.0, 1.0, 0.0]
    """
    rewards, valid, same = _prepare(rewards, group_ids, valid)
    return select(_centered(rewards, same)[0], valid)


def group_normalized(
    rewards: Rewards, group_ids: GroupIds, *, valid: Valid = None, eps: float = EPS, ddof: int = 0
) -> Float[Array, " B"]:
    """Subtract the group's mean reward and divide by the group's standard deviation.

    ``A_i = (R_i − mean) / (std + ε)``. Makes groups of any spread count alike, and so over-weights prompts that are
    almost always or almost never solved. Bounded by √(G − 1) with ``ddof=0``.

    Args:
        rewards: one number per completion.
        group_ids: equal for completions of one prompt.
        valid: false for unscorable completions.
        eps: added to the standard deviation.
        ddof: 0 for the population std (default), 1 for the unbiased variance (verl, TRL).

    Returns: ``[B]``; exactly 0 in constant groups, single-member groups and invalid rows.

    Raises: ValueError for shapes other than [B], a non-boolean ``valid``, or a ``ddof`` other than 0 and 1.

    References: GRPO (DeepSeekMath), arXiv 2402.03300, §4.1.2.

    >>> group_normalized(jnp.array([2.0, 4.0, 6.0]), jnp.array([5, 5, 8]), eps=0.0).tolist()
    [-1.0, 1.0, 0.0]
    """
    if ddof not in (0, 1):
        raise ValueError(f"ddof must be 0 (population) or 1 (unbiased); got {ddof}")
    rewards, valid, same = _prepare(rewards, group_ids, valid)
    centered, size = _centered(rewards, same)
    squares = jnp.broadcast_to(jnp.square(centered)[None, :], same.shape)
    freedom = jnp.maximum(size - ddof, jnp.ones_like(size))
    std = jnp.sqrt(jnp.sum(select(squares, same), axis=-1) / freedom)
    scale = jnp.where(std > 0, std + jnp.asarray(eps, std.dtype), jnp.ones_like(std))
    return select(centered / scale, valid)


def group_centered_global_std(
    rewards: Rewards, group_ids: GroupIds, *, valid: Valid = None, eps: float = EPS, clip: float | None = None
) -> Float[Array, " B"]:
    """Subtract the group's mean reward and divide by the standard deviation of all rewards of the batch.

    ``A_i = (R_i − mean_group) / (std_batch(R) + ε)``, population std of the rewards themselves, not of the centered
    ones: groups of any spread keep their weight, and the spread *between* groups shrinks all advantages.

    Args:
        rewards: one number per completion.
        group_ids: equal for completions of one prompt.
        valid: false for unscorable completions.
        eps: added to the standard deviation.
        clip: the largest absolute value (5 in Flow-GRPO's code); None for no limit.

    Returns: ``[B]``; exactly 0 in constant groups, single-member groups and invalid rows.

    References: Flow-GRPO, arXiv 2505.05470 (the option ``global_std`` of its code).

    >>> group_centered_global_std(jnp.array([0.0, 2.0, 4.0, 2.0]), jnp.array([0, 0, 1, 2]), eps=0.0).tolist()[2:]
    [0.0, 0.0]
    >>> group_centered_global_std(jnp.array([0.0, 4.0, 2.0, 2.0]), jnp.array([0, 0, 1, 1]), clip=1.0).tolist()  # ±√2
    [-1.0, 1.0, 0.0, 0.0]
    """
    rewards, valid, same = _prepare(rewards, group_ids, valid)
    centered, _ = _centered(rewards, same)
    count = jnp.maximum(jnp.sum(valid), 1).astype(rewards.dtype)
    mean = jnp.sum(rewards) / count  # rewards of invalid rows are 0 by now
    deviations = select(rewards - jnp.broadcast_to(mean, rewards.shape), valid)
    std = jnp.sqrt(jnp.sum(jnp.square(deviations)) / count)
    scale = jnp.where(std > 0, std + jnp.asarray(eps, std.dtype), jnp.ones_like(std))
    scaled = select(centered / jnp.broadcast_to(scale, centered.shape), valid)
    return scaled if clip is None else jnp.clip(scaled, -clip, clip)


def leave_one_out(rewards: Rewards, group_ids: GroupIds, *, valid: Valid = None) -> Float[Array, " B"]:
    """Subtract the mean reward of the group's other members.

    ``A_i = R_i − mean_{j ≠ i} R_j = G/(G−1) · (R_i − mean R)``. The baseline does not depend on i, so the policy
    gradient is unbiased.

    Returns: ``[B]``; exactly 0 in constant groups, single-member groups and invalid rows.

    References: RLOO, arXiv 2402.14740, eq. 8.

    >>> leave_one_out(jnp.array([1.0, 0.0, 0.0]), jnp.array([3, 3, 3])).tolist()
    [1.0, -0.5, -0.5]
    """
    rewards, valid, same = _prepare(rewards, group_ids, valid)
    above, size = _above_smallest(rewards, same)
    others = jnp.sum(select(jnp.broadcast_to(above[None, :], same.shape), same), axis=-1) - above
    alone = size == 1
    return select(above - others / jnp.where(alone, jnp.ones_like(size), size - 1.0), valid & ~alone)


def length_weighted_baseline(
    rewards: Rewards, group_ids: GroupIds, *, valid: Valid = None, lengths: Float[Array, " B"] | None = None
) -> Float[Array, " B"]:
    """Subtract the group's mean reward, weighted by length (OPO).

    ``A_i = R_i − Σ_j n_j R_j / Σ_j n_j``: the variance-optimal baseline if the squared score norm grows with length.
    Without ``lengths`` it is ``group_centered``.

    References: OPO, arXiv 2505.23585.

    >>> length_weighted_baseline(jnp.array([1.0, 0.0]), jnp.array([0, 0]), lengths=jnp.array([1.0, 3.0])).tolist()
    [0.75, -0.25]
    """
    rewards, valid, same = _prepare(rewards, group_ids, valid)
    centered, _ = _centered(rewards, same)
    weights = jnp.ones_like(rewards) if lengths is None else lengths.astype(rewards.dtype)
    table = select(jnp.broadcast_to(weights[None, :], same.shape), same)
    total = jnp.sum(table, axis=-1)
    moment = jnp.sum(table * jnp.broadcast_to(centered[None, :], same.shape), axis=-1)
    shift = moment / jnp.where(total > 0, total, jnp.ones_like(total))
    return select(centered - shift, valid)


def mean_normalized(
    rewards: Rewards, group_ids: GroupIds, *, valid: Valid = None, eps: float = EPS
) -> Float[Array, " B"]:
    """Subtract the group's mean reward and divide by it (MaxRL).

    ``A_i = (R_i − mean) / mean`` for rewards ≥ 0: a prompt solved once in G tries weighs G times as much. A group
    whose mean is not above ``eps`` gets 0.

    >>> mean_normalized(jnp.array([1.0, 0.0]), jnp.array([0, 0])).tolist()
    [1.0, -1.0]
    """
    rewards, valid, same = _prepare(rewards, group_ids, valid)
    centered, size = _centered(rewards, same)
    mean = jnp.sum(select(jnp.broadcast_to(rewards[None, :], same.shape), same), axis=-1) / size
    scored = valid & (mean > jnp.asarray(eps, mean.dtype))
    return select(centered / jnp.where(scored, mean, jnp.ones_like(mean)), scored)


def _whiten(values: Array, valid: Array, lengths: Array | None, eps: float) -> Array:
    """Mean 0 and std 1 over the batch, each row counted ``lengths`` times; exactly 0 if all are equal."""
    weights = select(jnp.ones_like(values) if lengths is None else lengths.astype(values.dtype), valid)
    total = jnp.sum(weights)
    safe_total = jnp.where(total > 0, total, jnp.ones_like(total))
    smallest = jnp.min(select(values, valid, jnp.inf), initial=jnp.inf)
    above = select(values - jnp.broadcast_to(smallest, values.shape), valid)
    centered = above - jnp.broadcast_to(jnp.sum(weights * above) / safe_total, values.shape)
    std = jnp.sqrt(jnp.sum(weights * jnp.square(centered)) / safe_total)
    scale = jnp.where(std > 0, std + jnp.asarray(eps, std.dtype), jnp.ones_like(std))
    return select(centered / jnp.broadcast_to(scale, values.shape), valid)


def reinforce_plus_plus(
    rewards: Rewards,
    group_ids: GroupIds,
    *,
    valid: Valid = None,
    lengths: Float[Array, " B"] | None = None,
    eps: float = EPS,
) -> Float[Array, " B"]:
    """Whiten the rewards over the whole batch; groups play no part.

    ``A_i = (R_i − mean_batch) / (std_batch + ε)``. With ``lengths`` the statistics are over tokens, each row counted
    n_i times, as in the published code for an outcome reward without discount.

    Returns: ``[B]``; exactly 0 where all rewards are equal, and in invalid rows.

    References: REINFORCE++, arXiv 2501.03262.

    >>> reinforce_plus_plus(jnp.array([1.0, 3.0]), jnp.array([0, 1]), eps=0.0).tolist()
    [-1.0, 1.0]
    """
    rewards, valid, _ = _prepare(rewards, group_ids, valid)
    return _whiten(rewards, valid, lengths, eps)


def reinforce_plus_plus_baseline(
    rewards: Rewards,
    group_ids: GroupIds,
    *,
    valid: Valid = None,
    lengths: Float[Array, " B"] | None = None,
    eps: float = EPS,
) -> Float[Array, " B"]:
    """Subtract the group's mean reward, then whiten over the batch.

    ``c_i = R_i − mean_group``, ``A_i = (c_i − mean_batch c) / (std_batch c + ε)``. One scale for all groups.

    Returns: ``[B]``. Rows of a constant group have c = 0; their advantage is 0 up to the batch mean of c, which is 0
    without ``lengths``; they are set to exactly 0.

    References: REINFORCE++-baseline, arXiv 2501.03262.

    >>> reinforce_plus_plus_baseline(jnp.array([1.0, 3.0, 5.0]), jnp.array([0, 0, 1]), eps=0.0).tolist()[2]
    0.0
    """
    centered = group_centered(rewards, group_ids, valid=valid)
    _, valid, same = _prepare(rewards, group_ids, valid)
    varied = jnp.any(same & (centered != 0)[None, :], axis=-1)
    return select(_whiten(centered, valid, lengths, eps), varied)


def gae(
    rewards: Float[Array, "*B T"],
    values: Float[Array, "*B T"],
    token_mask: Bool[Array, "*B T"],
    *,
    gamma: Float[Array, ""] | float,
    lam: Float[Array, ""] | float,
) -> Float[Array, "*B T"]:
    """Estimate token advantages from a value model (generalised advantage estimation).

    ``δ_t = R_t + γ V_{t+1} − V_t``, ``A_t = δ_t + γλ A_{t+1}``, t+1 the next *valid* token: a masked token (an
    observation, a tool's output) carries the state through unchanged. After the last valid token V = A = 0.

    Args:
        rewards: token rewards; read at valid tokens only.
        values: V before each token.
        token_mask: the valid tokens.
        gamma: discount in [0, 1].
        lam: λ in [0, 1]; 1 gives returns minus values, 0 the one-step error.

    Returns: ``[*B, T]``, 0 at masked tokens. Whiten with ``masked_whiten`` if wanted.

    References: Schulman et al., "High-Dimensional Continuous Control Using GAE", arXiv 1506.02438, eq. 16.

    >>> gae(jnp.array([[0.0, jnp.nan, 1.0]]), jnp.array([[0.5, jnp.nan, 0.25]]), jnp.array([[True, False, True]]),
    ...     gamma=1.0, lam=1.0).tolist()
    [[0.5, 0.0, 0.75]]
    """
    rewards, values = select(rewards, token_mask), select(values, token_mask)
    gamma, lam = jnp.asarray(gamma, rewards.dtype), jnp.asarray(lam, rewards.dtype)

    def step(carry: tuple[Array, Array], token: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], Array]:
        next_value, next_advantage = carry
        reward, value, valid = token
        advantage = reward + gamma * next_value - value + gamma * lam * next_advantage
        carry = (jnp.where(valid, value, next_value), jnp.where(valid, advantage, next_advantage))
        return carry, select(advantage, valid)

    tokens = jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), (rewards, values, token_mask))
    end = jnp.zeros(rewards.shape[:-1], rewards.dtype)
    return jnp.moveaxis(jax.lax.scan(step, (end, end), tokens, reverse=True)[1], 0, -1)


def dynamic_sampling_keep(rewards: Rewards, group_ids: GroupIds, *, valid: Valid = None) -> Bool[Array, " B"]:
    """Say which rows belong to a group whose rewards differ (DAPO's dynamic sampling keeps only these).

    >>> dynamic_sampling_keep(jnp.array([1.0, 1.0, 0.0, 1.0]), jnp.array([0, 0, 1, 1])).tolist()
    [False, False, True, True]
    """
    centered = group_centered(rewards, group_ids, valid=valid)
    _, _, same = _prepare(rewards, group_ids, valid)
    return jnp.any(same & (centered != 0)[None, :], axis=-1)


GAE = "gae"
"""The name of ``gae`` as an objective's estimator: it needs a critic, and has a signature of its own."""

ADVANTAGES: dict[str, Callable[..., Float[Array, " B"]]] = {
    "group_normalized": group_normalized,
    "group_centered": group_centered,
    "group_centered_global_std": group_centered_global_std,
    "leave_one_out": leave_one_out,
    "length_weighted_baseline": length_weighted_baseline,
    "mean_normalized": mean_normalized,
    "reinforce_plus_plus": reinforce_plus_plus,
    "reinforce_plus_plus_baseline": reinforce_plus_plus_baseline,
}
"""Outcome-reward estimators by name, all ``(rewards[B], group_ids[B], *, valid=None) -> [B]``."""
