"""The sampling transform and the draw: shared by sampler and scorer, so that μ is the distribution sampled."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from trustax.types import Transform


def transform_logits(logits: Float[Array, "*B V"], transform: Transform) -> Float[Array, "*B V"]:
    """Return the unnormalised log-probs of the sampled distribution: ``logits / temperature``, in float32 or wider.

    With ``top_p`` the tokens outside the nucleus are −inf.

    Example:
      >>> import jax.numpy as jnp
      >>> tempered = transform_logits(jnp.array([2.0, 0.0]), Transform(temperature=0.5))
      >>> tempered.tolist()
      [4.0, 0.0]
    """
    # Not jnp.promote_types: from jax 0.12 it refuses what strict promotion refuses.
    wide = logits if logits.dtype == jnp.float64 else logits.astype(jnp.float32)
    tempered = wide / jnp.asarray(transform.temperature, wide.dtype)
    return tempered if transform.top_p is None else nucleus(tempered, jnp.asarray(transform.top_p, wide.dtype))


def nucleus(logits: Float[Array, "*B V"], top_p: Float[Array, ""], *, halvings: int = 30) -> Float[Array, "*B V"]:
    """Keep the fewest most probable tokens whose mass is at least ``top_p``; the others become −inf.

        { i : p_i ≥ t },  t the largest threshold with Σ_{p_i ≥ t} p_i ≥ top_p

    The token that crosses ``top_p`` is kept, and the most probable one always is. The threshold is found by halving, as
    sorting a vocabulary is far slower; tokens within 1e-9 of the last one's probability are kept with it, ties
    included.

    Args:
      logits: Unnormalised log-probs.
      top_p: From 0 (the arg-max alone) to 1 (everything).
      halvings: How finely the threshold is searched.

    Example:
      >>> import jax.numpy as jnp
      >>> kept = nucleus(jnp.log(jnp.array([0.45, 0.35, 0.15, 0.05])), jnp.array(0.9))
      >>> jnp.isfinite(kept).tolist()
      [True, True, True, False]
    """
    probs = jax.nn.softmax(logits, axis=-1)
    most = jnp.max(probs, axis=-1, keepdims=True)

    def enough(threshold: Float[Array, "*B 1"]) -> jax.Array:
        mass = jnp.sum(jnp.where(probs >= threshold, probs, 0), axis=-1, keepdims=True)
        return mass >= top_p - jnp.asarray(1e-6, probs.dtype)  # sums of float32 probabilities are not exact

    def halve(_: Any, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = (low + high) / 2
        yes = enough(middle)
        return jnp.where(yes, middle, low), jnp.where(yes, high, middle)

    low, _ = jax.lax.fori_loop(0, halvings, halve, (jnp.zeros_like(most), most))
    return jnp.where(probs >= jnp.where(enough(most), most, low), logits, -jnp.inf)


def canonical(transform: Transform) -> Transform:
    """The same transform with its numbers as float32 arrays: 1, 1.0 and np.float32(1) must not compile three times.

    Example:
      >>> str(canonical(Transform(temperature=1)).temperature.dtype)
      'float32'
    """
    top_p = None if transform.top_p is None else jnp.asarray(transform.top_p, jnp.float32)
    return dataclasses.replace(transform, temperature=jnp.asarray(transform.temperature, jnp.float32), top_p=top_p)


def draw(logits: Float[Array, "*B V"], uniform: Float[Array, "*B"], *, block: int = 256) -> Int[Array, "*B"]:
    """Draw one token a row by inverting the cumulative distribution at ``uniform``.

        y = min { i : Σ_{j≤i} softmax(logits)_j > u }

    One uniform number a row instead of V Gumbel numbers: on a CPU the noise costs more than the network's head. The
    sum runs over blocks first and then inside one block, so that its rounding does not grow with V.

    Args:
      logits: Unnormalised log-probs; −inf is never drawn.
      uniform: Numbers in [0, 1), one a row.
      block: How many tokens are summed at a time.

    Returns:
      Token ids, int32. A row of NaN gives an unspecified id: check the logits first.

    Example:
      >>> import jax.numpy as jnp
      >>> logits = jnp.log(jnp.array([[0.5, 0.3, 0.2]] * 3))
      >>> draw(logits, jnp.array([0.49, 0.51, 0.81])).tolist()
      [0, 1, 2]
    """
    vocab_size = logits.shape[-1]
    weights = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
    padding = [(0, 0)] * (logits.ndim - 1) + [(0, -vocab_size % block)]
    blocks = jnp.pad(weights, padding).reshape(*logits.shape[:-1], -1, block)
    block_mass = blocks.sum(axis=-1)
    which, offset = _invert(block_mass, uniform * block_mass.sum(axis=-1))
    chosen = jnp.take_along_axis(blocks, which[..., None, None], axis=-2)[..., 0, :]
    within, _ = _invert(chosen, offset)
    return which * block + within


def _invert(mass: Float[Array, "*B n"], target: Float[Array, "*B"]) -> tuple[Int[Array, "*B"], Float[Array, "*B"]]:
    """The first entry whose cumulative mass exceeds ``target``, and what of ``target`` is left inside it.

    Rounding can leave ``target`` at or above the whole sum; then the last entry with any mass is taken.
    """
    upto = jnp.cumsum(mass, axis=-1)
    positions = jax.lax.broadcasted_iota(jnp.int32, mass.shape, mass.ndim - 1)
    last = jnp.max(jnp.where(mass > 0, positions, 0), axis=-1)
    first = jnp.sum(upto <= target[..., None], axis=-1, dtype=jnp.int32)
    index = jnp.minimum(first, last)
    before = jnp.take_along_axis(upto - mass, index[..., None], axis=-1)[..., 0]
    return index, jnp.maximum(target - before, 0)
