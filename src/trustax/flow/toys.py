"""Data made here: a ring of Gaussians in the plane, and drawn glyphs of 16 × 16 pixels.

``B`` samples, ``X`` latent numbers, ``M`` labels. The label is the flow's condition, as a prompt is for a large model.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

MODES, RADIUS, SPREAD = 8, 2.0, 0.15
SIDE = 16
GLYPHS = ("ring", "plus", "square", "cross", "lines", "triangle")


def ring(key: Key[Array, ""], condition: Int[Array, "B"]) -> Float[Array, "B 2"]:
    """Draw from eight modes on a ring: condition 0 has the even ones, 1 the odd ones."""
    which, noise = jax.random.split(key)
    mode = 2 * jax.random.randint(which, condition.shape, 0, MODES // 2) + condition
    return mode_centers()[mode] + SPREAD * jax.random.normal(noise, (len(condition), 2))


def mode_centers() -> Float[Array, "M 2"]:
    """The centers of the ring's modes, counter-clockwise from the right."""
    angles = 2 * np.pi * np.arange(MODES) / MODES
    return jnp.asarray(RADIUS * np.stack([np.cos(angles), np.sin(angles)], axis=-1), jnp.float32)


def glyphs(key: Key[Array, ""], condition: Int[Array, "B"]) -> Float[Array, "B X"]:
    """Draw glyphs, anti-aliased strokes in [−1, 1], at a random place, size and thickness.

    ``condition`` is an index of ``GLYPHS``.
    """
    batch = len(condition)
    place, size, pen = jax.random.split(key, 3)
    center = 7.5 + jax.random.uniform(place, (batch, 2), minval=-1.5, maxval=1.5)
    scale = jax.random.uniform(size, (batch, 1, 1), minval=3.6, maxval=5.2)
    thickness = jax.random.uniform(pen, (batch, 1, 1), minval=0.6, maxval=1.1)
    pixels = jnp.arange(SIDE, dtype=jnp.float32)
    x = jnp.broadcast_to(pixels[None, None, :], (batch, SIDE, SIDE)) - center[:, :1, None]
    y = jnp.broadcast_to(pixels[None, :, None], (batch, SIDE, SIDE)) - center[:, 1:, None]
    distances = jnp.stack(_distances(x, y, scale))
    chosen = jnp.take_along_axis(distances, condition[None, :, None, None], axis=0)[0]
    ink = jnp.clip(thickness - chosen + 0.5, 0.0, 1.0)
    return (2.0 * ink - 1.0).reshape(batch, SIDE * SIDE)


def _distances(x: Array, y: Array, r: Array) -> list[Array]:
    """How far a pixel is from each glyph's stroke, one entry a glyph of ``GLYPHS``."""
    ax, ay = jnp.abs(x), jnp.abs(y)
    u, v = (x + y) / np.sqrt(2.0), (x - y) / np.sqrt(2.0)
    beyond = jnp.maximum(ax, ay) - r
    plus = jnp.maximum(jnp.minimum(ax, ay), beyond)
    cross = jnp.maximum(jnp.minimum(jnp.abs(u), jnp.abs(v)), beyond)
    lines = jnp.maximum(jnp.abs(ay - 0.6 * r), beyond)
    # Three half-planes at distance r/2 from the center.
    sides = jnp.maximum(y - 0.5 * r, jnp.maximum(0.866 * x, -0.866 * x) - 0.5 * y - 0.5 * r)
    return [jnp.abs(jnp.sqrt(x**2 + y**2) - r), plus, jnp.abs(beyond), cross, lines, jnp.abs(sides)]
