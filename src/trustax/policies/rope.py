"""Rotary position embeddings, in the layout of ``transformers``: the two halves of a head are rotated together."""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from trustax.policies.config import RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> np.ndarray:
    """Radians per position for each pair of channels, float32 ``[head_dim / 2]``, after scaling."""
    plain = rope.theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    if rope.scaling == "none":
        scaled = plain
    elif rope.scaling == "linear":
        scaled = plain / rope.factor
    elif rope.scaling == "llama3":
        scaled = _llama3_frequencies(plain, rope)
    else:
        raise ValueError(f"rope scaling {rope.scaling!r} is not implemented; known: none, linear, llama3")
    return scaled.astype(np.float32)


def _llama3_frequencies(plain: np.ndarray, rope: RopeConfig) -> np.ndarray:
    """Slow waves are stretched by ``factor``, fast ones kept, those between them interpolated (Llama 3.1)."""
    turns = rope.original_context_length * plain / (2 * math.pi)  # full turns within the original context
    low, high = rope.low_frequency_factor, rope.high_frequency_factor
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1 - kept) * plain / rope.factor + kept * plain


def rope_tables(
    rope: RopeConfig, head_dim: int, positions: Int[Array, "B L"]
) -> tuple[Float[Array, "B L Half"], Float[Array, "B L Half"]]:
    """Cosines and sines of every position, in float32: an angle of thousands of radians has no digits in bf16."""
    frequencies = jnp.asarray(inverse_frequencies(rope, head_dim))
    angles = positions.astype(jnp.float32)[..., None] * frequencies[None, None, :]
    return jnp.cos(angles), jnp.sin(angles)


def rotate(
    x: Float[Array, "B L Heads Hd"], cos: Float[Array, "B L Half"], sin: Float[Array, "B L Half"]
) -> Float[Array, "B L Heads Hd"]:
    """Turn every head of ``x`` by its position's angles."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = cos[:, :, None, :], sin[:, :, None, :]
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(x.dtype)
