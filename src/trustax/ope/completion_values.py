"""The value of each prefix of a completion, learned from the completions of other prompts."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trustax.ope.completions import outcome_rewards
from trustax.ope.nuisance import cross_fit, group_folds, linear_value, network_value
from trustax.ops.masked import masked_mean, select
from trustax.ops.ratios import log_ratio

Kind = Literal["linear", "network"]
RIDGE = 1e-2
"""A hidden state has hundreds of features and a data set hundreds of outcomes."""


def learned_values(
    features: Float[np.ndarray | Array, "B T F"],
    log_pi: Float[np.ndarray | Array, "B T"],
    log_mu: Float[np.ndarray | Array, "B T"],
    token_mask: Bool[np.ndarray | Array, "B T"],
    rewards: Float[np.ndarray | Array, " B"],
    groups: Int[np.ndarray | Array, " B"],
    *,
    kind: Kind = "linear",
    folds: int = 5,
    seed: int = 0,
) -> Float[Array, "B T"]:
    """Fit B's value before each token by cross-fitting over prompts.

    Features are standardised and given a constant; each fold's values come from a fit on the other prompts.

    Args:
        features: what is known before each token, such as B's hidden state that predicts it.
        log_pi, log_mu, token_mask, rewards, groups: as in ``evaluate_completions``.
        kind: ``linear_value`` or ``network_value``.
        folds: how many parts; at most the number of prompts.
        seed: of the deal, and of the network.

    Returns: ``[B, T]`` in float64, 0 at masked tokens.

    Raises: ValueError for fewer prompts than folds.

    >>> rng = np.random.default_rng(0)
    >>> good, mask = np.tile([0.0, 1.0], 10), np.ones((20, 1), bool)  # the feature is the reward
    >>> log_mu = np.log(np.full((20, 1), 0.5))
    >>> learned_values(good[:, None, None], log_mu, log_mu, mask, good, np.arange(20))[:2, 0].round(1).tolist()
    [0.0, 1.0]
    """
    with jax.enable_x64(True):
        mask = jnp.asarray(token_mask)
        ratios = log_ratio(jnp.asarray(log_pi, jnp.float64), jnp.asarray(log_mu, jnp.float64), mask, limit=jnp.inf)
        before = _standardised(jnp.asarray(features, jnp.float64), mask)
        rows: dict[str, Any] = {
            "features": before,
            "next_features": _next(before, mask),
            "rewards": outcome_rewards(jnp.asarray(rewards, jnp.float64), mask),
            "action_ratio": select(jnp.exp(ratios), mask),
        }
        flat: dict[str, Any] = {name: value.reshape(-1, *value.shape[2:]) for name, value in rows.items()}
        dealt = group_folds(np.asarray(groups), folds, seed)

        def fit(learn: np.ndarray) -> Callable[[np.ndarray], Array]:
            weights = jnp.where(mask, jnp.asarray(learn)[:, None], 0.0).reshape(-1)
            if kind == "linear":
                theta = linear_value(**flat, weights=weights, ridge=RIDGE)
                return lambda asked: before[asked] @ theta
            value = network_value(**flat, weights=weights, key=jax.random.key(seed))
            return lambda asked: value(before[asked])

        return select(cross_fit(dealt, fit), mask)


def _standardised(features: Array, mask: Array) -> Array:
    """Mean 0 and spread 1 over the valid tokens, a constant behind; zeros at masked tokens."""
    wide = jnp.broadcast_to(mask[..., None], features.shape)
    center = masked_mean(features, wide, axis=(0, 1))
    apart = select(features - jnp.broadcast_to(center, features.shape), wide)
    spread = jnp.sqrt(masked_mean(jnp.square(apart), wide, axis=(0, 1)))
    scaled = apart / jnp.broadcast_to(jnp.where(spread > 0, spread, 1.0), apart.shape)
    return jnp.concatenate([scaled, mask[..., None].astype(features.dtype)], axis=-1)


def _next(features: Array, mask: Array) -> Array:
    """Features before the next valid token, zeros where there is none."""

    def step(later: Array, token: tuple[Array, Array]) -> tuple[Array, Array]:
        feature, valid = token
        return jnp.where(valid[:, None], feature, later), later

    end = jnp.zeros_like(features[:, 0])
    found = jax.lax.scan(step, end, (jnp.moveaxis(features, 1, 0), mask.T), reverse=True)[1]
    return jnp.moveaxis(found, 0, 1)
