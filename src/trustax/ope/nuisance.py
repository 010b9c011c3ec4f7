"""What an estimator needs to be told: value functions and state ratios, learned on data that it is not used on.

Transitions are rows: features of the state and of the next one (``F`` features, zeros where the episode has ended, a
constant among them), the reward, and the ratio π/μ of the action taken. ``weights`` say how much a row counts; 0 takes
it out, so that folds of one data set have one shape and compile once.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

Number = Float[Array, ""] | float | int
Features = Float[Array, "N F"]
Column = Float[Array, " N"]
Coefficients = Float[Array, " F"]
States = Float[Array, "*N F"]

RIDGE = 1e-6
"""Relative to the mean square of a moment matrix's singular values: enough to solve a singular system, no more."""


def linear_value(
    features: Features,
    next_features: Features,
    rewards: Column,
    action_ratio: Column,
    weights: Column,
    *,
    gamma: Number = 1.0,
    ridge: Number = RIDGE,
) -> Coefficients:
    """Fit V(s) = θ·φ(s) of the target policy by least-squares temporal differences.

    Solves ``E[w a φ (φ − γ φ')ᵀ] θ = E[w a φ Y]``, a the one-step ratio: unbiased for the target's Bellman equation
    wherever the data was drawn, and exact if V is linear in φ.

    Args:
        features, next_features: φ and φ'; zeros for φ' after the last step.
        rewards: Y.
        action_ratio: a = π/μ.
        weights: how much each row counts.
        gamma: discount; 1 needs episodes that end.
        ridge: penalty on θ, relative to the mean square of the moments. Larger for many features and few episodes, and
            wherever the policy hardly moves the features: what is not determined then goes to 0 and not to infinity.

    Returns: θ.

    References: Bradtke and Barto, "Linear Least-Squares Algorithms for Temporal Difference Learning" (1996).

    >>> one, last = jnp.array([[1.0], [1.0]]), jnp.array([[1.0], [0.0]])
    >>> round(float(linear_value(one, last, jnp.array([0.0, 3.0]), jnp.ones(2), jnp.ones(2))[0]), 3)
    3.0
    """
    weighted = features * (weights * action_ratio)[:, None]
    matrix = weighted.T @ (features - jnp.asarray(gamma, features.dtype) * next_features)
    return _damped_solve(matrix, weighted.T @ rewards, ridge)


def average_value(
    features: Features,
    next_features: Features,
    rewards: Column,
    action_ratio: Column,
    weights: Column,
    *,
    ridge: Number = RIDGE,
) -> tuple[Coefficients, Float[Array, ""]]:
    """Fit the differential value Q(x) = θ·φ(x), and with it the long-run reward V.

    Solves ``E[w a φ̃ (Y + θ·(φ' − φ) − V)] = 0`` for θ and V, φ̃ being φ with a constant: V is the constant's
    coefficient. φ itself must hold no constant, since Q is known only up to one.

    Returns: θ and V. V is what the regression says; the doubly robust estimate corrects it.

    References: Mehrabi and Wager, arXiv 2402.08201; the regression is Bradtke and Barto's.

    >>> x, after = jnp.array([[0.0], [1.0], [0.0], [1.0]]), jnp.array([[1.0], [0.0], [0.0], [1.0]])
    >>> theta, value = average_value(x, after, x[:, 0], jnp.ones(4), jnp.ones(4))
    >>> round(float(theta[0]), 3), round(float(value), 3)  # a fair coin, paid for heads
    (1.0, 0.5)
    """
    ones = jnp.ones_like(features[:, :1])
    tested = jnp.concatenate([features, ones], axis=-1) * (weights * action_ratio)[:, None]
    matrix = tested.T @ jnp.concatenate([features - next_features, ones], axis=-1)
    found = _damped_solve(matrix, tested.T @ rewards, ridge)
    return found[:-1], found[-1]


def state_ratio(
    features: Features, next_features: Features, action_ratio: Column, weights: Column, *, ridge: Number = RIDGE
) -> Coefficients:
    """Fit ω(x) = b·φ(x), the ratio of the two policies' long-run states, by matching moments.

    What stays in a state must be what flows into it: ``E[ω a φ'] = E[ω φ]`` under the data, each feature a test. That
    is a null space, ``M b = 0`` with ``M = E[(a φ' − φ) φᵀ]``; b has the smallest ``|M b|`` of those with ``E ω = 1``.

    Args:
        features, next_features, action_ratio, weights: as in ``linear_value``.
        ridge: relative to the mean square of M.

    Returns: b. Use ``jnp.maximum(φ·b, 0)``: where there is little data the fit may be slightly negative.

    References: Liu, Li, Tang, Zhou, "Breaking the Curse of Horizon", arXiv 1810.12429; Mehrabi and Wager,
    arXiv 2402.08201.

    >>> x, after = jnp.eye(2)[jnp.array([0, 0, 1, 1])], jnp.eye(2)[jnp.array([0, 1, 0, 1])]
    >>> ratio = jnp.array([0.5, 1.5, 0.5, 1.5])  # π goes to state 1 three times in four, μ half of the time
    >>> [round(b, 3) for b in state_ratio(x, after, ratio, jnp.ones(4)).tolist()]
    [0.5, 1.5]
    """
    weighted = features * (weights / jnp.sum(weights))[:, None]
    moments = (action_ratio[:, None] * next_features - features).T @ weighted
    square = moments.T @ moments
    damping = jnp.asarray(ridge, square.dtype) * jnp.trace(square) / square.shape[0]
    mean = jnp.sum(weighted, axis=0)
    found = jnp.linalg.solve(square + damping * jnp.eye(square.shape[0], dtype=square.dtype), mean)
    return found / (mean @ found)


def discounted_state_ratio(
    features: Features,
    next_features: Features,
    action_ratio: Column,
    weights: Column,
    *,
    initial_features: Coefficients,
    gamma: Number,
    ridge: Number = RIDGE,
) -> Coefficients:
    """Fit ω(x) = b·φ(x), the ratio of π's discounted visits to the data's, by matching moments.

    ``E[ω (φ − γ a φ')] = (1 − γ) E φ(s_0)``, as many equations as features.

    Args:
        features, next_features, action_ratio, weights: as in ``linear_value``.
        initial_features: E φ(s_0).
        gamma: discount, below 1.
        ridge: as in ``linear_value``.

    Returns: b, to be used as that of ``state_ratio``.

    References: as ``state_ratio``.

    >>> one = jnp.ones((3, 1))
    >>> b = discounted_state_ratio(one, one, jnp.ones(3), jnp.ones(3), initial_features=jnp.ones(1), gamma=0.9)
    >>> round(float(b[0]), 3)
    1.0
    """
    gamma = jnp.asarray(gamma, features.dtype)
    weighted = features * weights[:, None]
    moments = (features - gamma * action_ratio[:, None] * next_features).T @ weighted
    wanted = (1.0 - gamma) * jnp.sum(weights) * initial_features
    return _damped_solve(moments, wanted, ridge)


class ValueNetwork(nn.Module):
    """A small value function: one hidden layer, linear beside it so that it starts from what a linear one can do."""

    width: int = 32

    @nn.compact
    def __call__(self, features: Array) -> Array:
        """V of each row of features."""
        hidden = nn.tanh(nn.Dense(self.width, dtype=features.dtype, param_dtype=features.dtype)(features))
        both = jnp.concatenate([hidden, features], axis=-1)
        return nn.Dense(1, dtype=features.dtype, param_dtype=features.dtype)(both)[..., 0]


def network_value(
    features: Features,
    next_features: Features,
    rewards: Column,
    action_ratio: Column,
    weights: Column,
    key: Key[Array, ""],
    *,
    gamma: Number = 1.0,
    width: int = 32,
    rounds: int = 20,
    steps: int = 50,
    learning_rate: Number = 3e-3,
) -> Callable[[States], Float[Array, "*N"]]:
    """Fit V by a small network: regress on ``Y + γ V(s')`` with the last round's V, ``rounds`` times.

    Minimises ``E[w a (Y + γ V_old(s') − V(s))²]`` by full-batch Adam: as ``E[a | s] = 1``, its minimum is π's Bellman
    operator applied to V_old. A state whose features are all 0 has ended and is worth 0.

    Returns: features to values.

    References: Le, Voloshin, Yue, "Batch Policy Learning under Constraints", arXiv 1903.08738 (fitted Q evaluation).
    """
    network = ValueNetwork(width)
    params = network.init(key, features[:1])
    rates = jnp.asarray(gamma, features.dtype), jnp.asarray(learning_rate, features.dtype)
    data = (features, next_features, rewards, action_ratio * weights)
    with jax.numpy_dtype_promotion("standard"):  # optax counts in int32 and computes in whatever the parameters are
        params = _fit(network, params, *data, rounds, steps, *rates)
    return lambda states: _evaluate(network, params, states)


def cross_fit(
    folds: Int[np.ndarray, " N"],
    fit: Callable[[np.ndarray], Callable[[np.ndarray], Array]],
    *,
    learn: Bool[np.ndarray, "K N"] | None = None,
) -> Array:
    """Predict every row by a function that was fitted without its fold.

    A value fitted on an episode knows its noise, and the correction then misses it.

    Args:
        folds: the fold of each row, 0 to K − 1; see ``group_folds`` and ``segment_folds``.
        fit: takes the weights of the rows to learn from (0.0 or 1.0) and returns a function from a boolean mask of rows
            to their predictions.
        learn: which rows each fold may learn from; all of the others if left out.

    Raises: ValueError for fewer than two folds.

    >>> y = np.array([1.0, 3.0, 5.0, 7.0])
    >>> mean_of_others = lambda weights: lambda rows: jnp.full(int(rows.sum()), float(np.average(y, weights=weights)))
    >>> cross_fit(np.array([0, 0, 1, 1]), mean_of_others).tolist()
    [6.0, 6.0, 2.0, 2.0]
    """
    count = int(folds.max()) + 1
    if count < 2:
        raise ValueError("one fold: cross-fitting needs at least two, so that each is predicted by the others")
    allowed = folds[None] != np.arange(count)[:, None] if learn is None else learn
    parts = [np.asarray(fit(allowed[fold].astype(np.float64))(folds == fold)) for fold in range(count)]
    found = np.zeros((len(folds), *parts[0].shape[1:]), parts[0].dtype)
    for fold, predicted in enumerate(parts):
        found[folds == fold] = predicted
    return jnp.asarray(found)


def group_folds(groups: Shaped[np.ndarray, " N"], count: int, seed: int = 0) -> Int[np.ndarray, " N"]:
    """Deal whole groups (prompts) out to folds, in an order that depends on the seed alone.

    Raises: ValueError for fewer groups than folds, or fewer than two folds.

    >>> folds = group_folds(np.array([7, 7, 8, 8, 9, 9]), 3)
    >>> sorted(folds[::2].tolist()), bool((folds[::2] == folds[1::2]).all())
    ([0, 1, 2], True)
    """
    names, inverse = np.unique(groups, return_inverse=True)
    if not 2 <= count <= len(names):
        raise ValueError(f"{count} folds of {len(names)} groups: expected at least 2 folds and no more than groups")
    dealt = np.random.default_rng(seed).permutation(len(names)) % count
    return dealt[inverse]


def segment_folds(length: int, count: int, gap: int) -> tuple[Int[np.ndarray, " N"], Bool[np.ndarray, "K N"]]:
    """Cut a chain into consecutive segments, and say for each what may be learned from.

    Rows within ``gap`` of a segment are left out of its training: a chain remembers where it has just been.

    Returns: the fold of each row, and ``[fold, row]``, true where the row may be learned from.

    Raises: ValueError unless every fold has something to learn from.

    >>> segment_folds(6, 2, 1)[1].astype(int).tolist()
    [[0, 0, 0, 0, 1, 1], [1, 1, 0, 0, 0, 0]]
    """
    folds = np.arange(length) * count // length
    place = np.arange(length)
    learn = np.ones((count, length), bool)
    for fold in range(count):
        inside = place[folds == fold]
        learn[fold] = (place < inside[0] - gap) | (place > inside[-1] + gap)
    if count < 2 or gap < 0 or not learn.any(axis=1).all():
        raise ValueError(f"{count} folds of {length} rows with gap {gap} leave some fold nothing to learn from")
    return folds, learn


def _damped_solve(matrix: Array, wanted: Array, ridge: Number) -> Array:
    """Solve in least squares with a penalty: what the data does not determine goes to 0, not to infinity.

    Adding to the diagonal would not do: these matrices are not symmetric, and it can make one singular.
    """
    square = matrix.T @ matrix
    damping = jnp.asarray(ridge, matrix.dtype) * jnp.trace(square) / square.shape[0]
    return jnp.linalg.solve(square + damping * jnp.eye(square.shape[0], dtype=matrix.dtype), matrix.T @ wanted)


def _evaluate(network: ValueNetwork, params: Any, states: Array) -> Array:
    ended = jnp.all(states == 0, axis=-1)
    values: Any = network.apply(params, states)
    return jnp.where(ended, jnp.zeros((), states.dtype), values)


@jax.jit(static_argnums=(0, 6, 7))
def _fit(network, params, features, next_features, rewards, weights, rounds, steps, gamma, learning_rate):
    optimizer = optax.adam(learning_rate)
    total = jnp.sum(weights)

    def loss(params: Any, targets: Array) -> Array:
        return jnp.sum(weights * jnp.square(targets - _evaluate(network, params, features))) / total

    def step(carry, targets):
        params, state = carry
        updates, state = optimizer.update(jax.grad(loss)(params, targets), state)
        return (optax.apply_updates(params, updates), state)

    def one_round(carry, _):
        targets = rewards + gamma * _evaluate(network, carry[0], next_features)
        return jax.lax.fori_loop(0, steps, lambda _, inner: step(inner, targets), carry), None

    (params, _), _ = jax.lax.scan(one_round, (params, optimizer.init(params)), None, length=rounds)
    return params
