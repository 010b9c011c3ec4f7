"""Velocity fields as pure functions. Only this module of ``trustax.flow`` knows that flax stands behind them."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from trustax.flow.paths import Velocity
from trustax.typed import refuse, type_problems

Params = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class VelocityConfig:
    """A small velocity field.

    ``mlp`` takes any latent size. ``dit`` takes square images of one channel, cut into patches, and conditions its
    blocks on time and label by adaptive layer norm.
    """

    kind: Literal["mlp", "dit"] = "mlp"
    size: int = 2
    conditions: int = 2
    width: int = 64
    depth: int = 3
    heads: int = 4
    patch: int = 4

    def __post_init__(self) -> None:
        problems = type_problems(self)
        if not problems:
            numbers = {name: value for name, value in dataclasses.asdict(self).items() if name != "kind"}
            problems = [f"{name} = {value}, expected at least 1" for name, value in numbers.items() if value < 1]
        if not problems and self.kind == "dit":
            side = round(self.size**0.5)
            if side**2 != self.size or side % self.patch:
                problems.append(f"size = {self.size} with patch = {self.patch}: expected a square image cut evenly")
            if self.width % self.heads:
                problems.append(f"width = {self.width} is not a multiple of heads = {self.heads}")
        refuse(self, problems)


class VelocityPolicy(NamedTuple):
    """``init(key) -> params``; ``apply(params, x [B, X], t [B], condition [B]) -> v [B, X]``."""

    config: VelocityConfig
    init: Callable[[Key[Array, ""]], Params]
    apply: Callable[[Params, Float[Array, "B X"], Float[Array, "B"], Int[Array, "B"]], Float[Array, "B X"]]

    def of(self, params: Params) -> Velocity:
        """The velocity field with its parameters filled in."""
        return lambda x, t, condition: self.apply(params, x, t, condition)


def build_policy(config: VelocityConfig) -> VelocityPolicy:
    """Build the velocity field of ``config``; at its initial parameters it is 0."""
    network = {"mlp": _MLP, "dit": _DiT}[config.kind](config)

    def init(key: Key[Array, ""]) -> Params:
        one = jnp.zeros((1,))
        return dict(network.init(key, jnp.zeros((1, config.size)), one, one.astype(jnp.int32)))

    def apply(params: Params, x: Array, t: Array, condition: Array) -> Array:
        return network.apply(params, x, t, condition)  # type: ignore[return-value]

    return VelocityPolicy(config, init, apply)


def _features(t: Array, count: int = 16) -> Array:
    """Sines and cosines of a time in [0, 1]."""
    frequencies = jnp.asarray(2 * np.pi * 2.0 ** np.linspace(-2, 4, count // 2), t.dtype)
    angles = t[:, None] * frequencies[None, :]
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


class _MLP(nn.Module):
    config: VelocityConfig

    @nn.compact
    def __call__(self, x: Array, t: Array, condition: Array) -> Array:
        c = self.config
        h = jnp.concatenate([x, _features(t), jax.nn.one_hot(condition, c.conditions, dtype=x.dtype)], axis=-1)
        for _ in range(c.depth):
            h = nn.silu(nn.Dense(c.width)(h))
        return nn.Dense(c.size, kernel_init=nn.initializers.zeros)(h)


class _DiT(nn.Module):
    config: VelocityConfig

    @nn.compact
    def __call__(self, x: Array, t: Array, condition: Array) -> Array:
        c = self.config
        grid = round(c.size**0.5) // c.patch
        cut = x.reshape(-1, grid, c.patch, grid, c.patch).swapaxes(2, 3).reshape(-1, grid**2, c.patch**2)
        place = self.param("place", nn.initializers.normal(0.5), (grid**2, c.width))
        h = nn.Dense(c.width)(cut) + place[None]
        label = nn.Embed(c.conditions, c.width)(condition)
        about = nn.silu(nn.Dense(c.width)(_features(t)) + label)
        for _ in range(c.depth):
            h = self._block(h, about)
        scale, shift = jnp.split(nn.Dense(2 * c.width, kernel_init=nn.initializers.zeros)(about)[:, None, :], 2, -1)
        h = nn.LayerNorm(use_bias=False, use_scale=False)(h) * (1.0 + scale) + shift
        out = nn.Dense(c.patch**2, kernel_init=nn.initializers.zeros, name="out")(h)
        return out.reshape(-1, grid, grid, c.patch, c.patch).swapaxes(2, 3).reshape(-1, c.size)

    def _block(self, h: Array, about: Array) -> Array:
        c = self.config
        modulation = nn.Dense(6 * c.width, kernel_init=nn.initializers.zeros)(about)[:, None, :]
        scale1, shift1, gate1, scale2, shift2, gate2 = jnp.split(modulation, 6, axis=-1)
        normed = nn.LayerNorm(use_bias=False, use_scale=False)(h) * (1.0 + scale1) + shift1
        h = h + gate1 * nn.MultiHeadDotProductAttention(num_heads=c.heads)(normed)
        normed = nn.LayerNorm(use_bias=False, use_scale=False)(h) * (1.0 + scale2) + shift2
        return h + gate2 * nn.Dense(c.width)(nn.gelu(nn.Dense(4 * c.width)(normed)))
