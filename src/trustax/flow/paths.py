"""What a sampler leaves behind, and what a policy makes of the same path: all that an objective looks at.

``B`` samples, ``T`` steps, ``W`` of them noisy, ``X`` latent numbers, flat.
"""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, Key

from trustax.flow.gaussian import kl, log_ratio, noise_along_shift
from trustax.flow.samplers import Steps
from trustax.types import pytree_dataclass, static_field

Velocity: TypeAlias = Callable[[Float[Array, "B X"], Float[Array, "B"], Int[Array, "B"]], Float[Array, "B X"]]
"""A velocity field: (states, times, conditions) -> v, a policy with its parameters filled in."""


@pytree_dataclass
class Path:
    """Samples, and of every noisy step the state before it, its noise ε and the behaviour policy's velocity there.

    ``times`` is the grid they were drawn on: a path means nothing on another one.
    """

    samples: Float[Array, "B X"]
    states: Float[Array, "B W X"]
    noise: Float[Array, "B W X"]
    velocity: Float[Array, "B W X"]
    condition: Int[Array, "B"]
    times: Float[Array, "T1"]

    def rows(self, index: Int[Array, "M"]) -> "Path":
        """Some of the samples, as a mini-batch."""
        picked = [x[index] for x in (self.samples, self.states, self.noise, self.velocity, self.condition)]
        return Path(*picked, times=self.times)


@pytree_dataclass
class StepStats:
    """One number a sample and noisy step: what objectives are functions of. Gradients flow through the first three.

    ``log_ratio`` is log r; ``guard`` ε·d; ``reference_kl`` D from the reference, or None. ``divergence`` is D from the
    behaviour policy and ``residual`` ‖S·ε − d‖², both detached. All in the units of ``reduction``.
    """

    log_ratio: Float[Array, "B W"]
    guard: Float[Array, "B W"]
    reference_kl: Float[Array, "B W"] | None
    divergence: Float[Array, "B W"]
    residual: Float[Array, "B W"]
    advantages: Float[Array, "B W"]
    std: Float[Array, "W"]
    sampler: str = static_field(default="flow_sde")
    reduction: str = static_field(default="mean")
    size: int = static_field(default=1)


def sample(
    velocity: Velocity,
    steps: Steps,
    start: Float[Array, "B X"],
    condition: Int[Array, "B"],
    key: Key[Array, ""],
) -> Path:
    """Walk from noise to data.

    Args:
        velocity: the behaviour policy.
        steps: sampler and grid.
        start: the states at ``times[0]``, standard normal where that is 1.
        condition: one a sample.
        key: consumed.

    Returns: the samples and what is needed to score them; states are kept in the dtype they were computed in.
    """
    count = steps.state.shape[0]

    def step(x: Array, k: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        noise = jax.random.normal(jax.random.fold_in(key, k), x.shape, x.dtype)
        v = velocity(x, jnp.broadcast_to(steps.times[k], x.shape[:1]), condition)
        return steps.mean(k, x, v) + steps.std[k] * noise, (x, noise, v)

    samples, recorded = jax.lax.scan(step, start, jnp.arange(count))
    index = np.asarray(steps.noisy, np.int32)
    states, noise, old = (jnp.moveaxis(values[index], 0, 1) for values in recorded)
    return Path(samples, states, noise, old, condition, steps.times)


def replay(velocity: Velocity, steps: Steps, path: Path) -> Float[Array, "B W X"]:
    """Compute a policy's velocity at every noisy step of a path.

    Raises: ValueError if the path was drawn on another grid (values can only be compared outside ``jit``).
    """
    check_grid(steps, path)
    noisy = steps.of_noisy()
    batch, count, size = path.states.shape
    times = jnp.broadcast_to(noisy.times, (batch, count)).reshape(-1)
    found = velocity(path.states.reshape(-1, size), times, jnp.repeat(path.condition, count))
    return found.reshape(batch, count, size)


def step_stats(
    steps: Steps,
    path: Path,
    velocity: Float[Array, "B W X"],
    advantages: Float[Array, "B"],
    *,
    reference: Float[Array, "B W X"] | None = None,
    reduction: str = "mean",
) -> StepStats:
    """Compare a policy with the behaviour policy, and with a reference, along a path.

    ``d = b·(v − v_old)``: exactly 0, and r exactly 1, where the velocities are the same floats. One advantage a sample,
    shared by its steps.

    Args:
        steps: sampler and grid of the path.
        path: what the behaviour policy sampled.
        velocity: from ``replay``, differentiable.
        advantages: A, one a sample.
        reference: the reference's velocity, from ``replay``.
        reduction: over latent numbers; all thresholds are in its units.

    Raises: ValueError for another grid, zero std, an unknown reduction.
    """
    check_grid(steps, path)
    noisy = steps.of_noisy()
    drift = noisy.velocity[:, None]
    shift = jnp.broadcast_to(drift, velocity.shape) * (velocity - jax.lax.stop_gradient(path.velocity))
    fixed = jax.lax.stop_gradient(shift)
    std = jnp.broadcast_to(noisy.std[:, None], shift.shape)
    residual = jnp.square(std * path.noise - fixed)
    from_reference = None
    if reference is not None:
        apart = jnp.broadcast_to(drift, velocity.shape) * (velocity - jax.lax.stop_gradient(reference))
        from_reference = kl(apart, noisy.std, reduction=reduction)
    return StepStats(
        log_ratio=log_ratio(path.noise, shift, noisy.std, reduction=reduction),
        guard=noise_along_shift(path.noise, shift, reduction=reduction),
        reference_kl=from_reference,
        divergence=kl(fixed, noisy.std, reduction=reduction),
        residual=jnp.mean(residual, axis=-1) if reduction == "mean" else jnp.sum(residual, axis=-1),
        advantages=jnp.broadcast_to(advantages[:, None], shift.shape[:2]),
        std=noisy.std,
        sampler=steps.sampler,
        reduction=reduction,
        size=shift.shape[-1],
    )


def path_kl(steps: Steps, path: Path, reference: Float[Array, "B W X"]) -> Float[Array, "B"]:
    """Compute the KL of a path's policy from a reference, in nats, summed over steps and latent numbers.

    Averaged over paths of the policy it is KL(paths of π ‖ paths of ρ) exactly, and so no less than the KL of the
    samples. Steps without noise carry no KL: both policies would have to agree there.

    Args:
        steps: sampler and grid.
        path: sampled by the policy.
        reference: the reference's velocity on the same states, from ``replay``.
    """
    noisy = steps.of_noisy()
    apart = jnp.broadcast_to(noisy.velocity[:, None], reference.shape) * (path.velocity - reference)
    return jnp.sum(kl(apart, noisy.std, reduction="sum"), axis=-1)


def check_grid(steps: Steps, path: Path) -> None:
    """Refuse a path that was not drawn on the grid of ``steps``.

    Raises: ValueError naming both grids.
    """
    if isinstance(path.times, Tracer) or isinstance(steps.times, Tracer):
        differ = path.times.shape != steps.times.shape
    else:
        differ = not np.array_equal(np.asarray(path.times), np.asarray(steps.times))
    if differ:
        raise ValueError(
            f"time grids differ: the path has {_words(path.times)}, the sampler {_words(steps.times)}; "
            "score a path with the steps it was drawn with"
        )
    if path.states.shape[1] != len(steps.noisy):
        raise ValueError(
            f"the path holds {path.states.shape[1]} noisy steps, the sampler has {len(steps.noisy)}; "
            "score a path with the steps it was drawn with"
        )


def _words(times: Array) -> str:
    if isinstance(times, Tracer):
        return f"{len(times) - 1} steps"
    return "[" + ", ".join(f"{t:.4g}" for t in np.asarray(times)) + "]"
