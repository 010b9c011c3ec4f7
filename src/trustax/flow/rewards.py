"""Rewards computed from samples alone, and several of them as one.

``B`` samples, ``X`` latent numbers. A reward is ``(samples [B, X], condition [B]) -> [B]``.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from trustax.flow.toys import GLYPHS, SIDE, glyphs, mode_centers

Reward: TypeAlias = Callable[[Float[Array, "B X"], Int[Array, "B"]], Float[Array, "B"]]


def near_mode(modes: Sequence[int] = (2, 3), *, width: float = 0.5) -> Reward:
    """1 at one mode of the ring for each condition, falling off as ``exp(−‖x − center‖²/(2·width²))``."""
    centers = mode_centers()[jnp.asarray(modes)]

    def reward(samples: Float[Array, "B X"], condition: Int[Array, "B"]) -> Float[Array, "B"]:
        return jnp.exp(-jnp.sum(jnp.square(samples - centers[condition]), axis=-1) / (2 * width**2))

    return reward


def on_the_right(samples: Float[Array, "B X"], condition: Int[Array, "B"]) -> Float[Array, "B"]:
    """A soft step at x = 1, which the data do not ask for: an over-optimiser leaves them."""
    return jax.nn.sigmoid(2.0 * (samples[:, 0] - 1.0))


def brightness(samples: Float[Array, "B X"], condition: Int[Array, "B"]) -> Float[Array, "B"]:
    """The mean of the pixels, from black 0 to white 1; values outside [−1, 1] don't count beyond the end."""
    return 0.5 * (1.0 + jnp.mean(jnp.clip(samples, -1.0, 1.0), axis=-1))


def symmetry(samples: Float[Array, "B X"], condition: Int[Array, "B"]) -> Float[Array, "B"]:
    """1 minus the mean absolute difference from the mirror image, left to right; 1 is symmetric."""
    images = jnp.clip(samples, -1.0, 1.0).reshape(-1, SIDE, SIDE)
    return 1.0 - 0.5 * jnp.mean(jnp.abs(images - images[:, :, ::-1]), axis=(1, 2))


def glyph_classifier(key: Key[Array, ""], *, examples: int = 3000, features: int = 800, ridge: float = 30.0) -> Reward:
    """A classifier of glyphs as a reward: the probability of the label that was asked for.

    Random rectified features and a ridge regression in closed form, fitted on glyphs with noise: nothing is trained by
    steps, and two calls with one key give the same classifier.

    Args:
        key: consumed.
        examples: how many glyphs it is fitted on.
        features: how many random features.
        ridge: the penalty.
    """
    labels_key, draw, noise, weights = jax.random.split(key, 4)
    labels = jax.random.randint(labels_key, (examples,), 0, len(GLYPHS))
    images = glyphs(draw, labels) + 0.3 * jax.random.normal(noise, (examples, SIDE * SIDE))
    projection = jax.random.normal(weights, (SIDE * SIDE, features)) / SIDE

    def embed(samples: Array) -> Array:
        hidden = jax.nn.relu(jnp.clip(samples, -2.0, 2.0) @ projection)
        return jnp.concatenate([hidden, jnp.ones_like(hidden[:, :1])], axis=-1)

    inside = embed(images)
    targets = jax.nn.one_hot(labels, len(GLYPHS)) - 1.0 / len(GLYPHS)
    gram = inside.T @ inside + ridge * jnp.eye(features + 1)
    solution = jnp.linalg.solve(gram, inside.T @ targets)

    def reward(samples: Float[Array, "B X"], condition: Int[Array, "B"]) -> Float[Array, "B"]:
        probabilities = jax.nn.softmax(6.0 * (embed(samples) @ solution), axis=-1)
        return jnp.take_along_axis(probabilities, condition[:, None], axis=-1)[:, 0]

    return reward


def weighted(rewards: Sequence[Reward], weights: Sequence[float]) -> Reward:
    """Several rewards as one: ``Σ_j w_j·R_j``.

    Raises: ValueError if there are not as many weights as rewards, or one is not finite.

    >>> both = weighted([brightness, symmetry], [1.0, 0.5])
    >>> float(both(jnp.ones((1, 256)), jnp.zeros(1, jnp.int32))[0])
    1.5
    """
    if len(rewards) != len(weights) or not rewards or not np.all(np.isfinite(weights)):
        raise ValueError(f"{len(rewards)} rewards with weights {list(weights)}: expected one finite weight for each")

    def reward(samples: Float[Array, "B X"], condition: Int[Array, "B"]) -> Float[Array, "B"]:
        parts = [weight * part(samples, condition) for part, weight in zip(rewards, weights, strict=True)]
        return sum(parts[1:], parts[0])

    return reward
