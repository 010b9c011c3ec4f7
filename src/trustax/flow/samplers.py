"""Samplers of a flow as Gaussian policies: what one step's mean and standard deviation are.

``B`` samples, ``T`` steps, ``W`` of them noisy, ``X`` latent numbers. Every sampler's mean is linear in the state x and
the velocity v, with coefficients that depend on the times alone:

    x' = mean + S·ε,   mean = a·x + b·v,   u = t + dt,   dt < 0

    flow_sde    a = 1 + s²/(2t)·dt   b = (1 + s²(1 − t)/(2t))·dt            S = s·√−dt,  s = noise·√(t/(1 − t))
    dance_sde   the same                                                  S = s·√−dt,  s = noise
    cps         a = 1 − u + u·cos(noise·π/2)   b = −(1 − u)·t + u·(1 − t)·cos(noise·π/2)   S = u·sin(noise·π/2)
    ode         a = 1                b = dt                                 S = 0, no log-prob

So two policies that share a state differ in their mean by b·(v − v_old), and everything about the step is a function
of that difference: see ``trustax.flow.gaussian``.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trustax.flow.schedule import Times, time_problems
from trustax.types import pytree_dataclass, static_field

Number = float | np.ndarray
"""A time, or the times of many steps."""

SAMPLERS = ("flow_sde", "dance_sde", "cps", "ode")


class StepCoefficients(NamedTuple):
    """a, b and S of one or many steps."""

    state: np.ndarray
    velocity: np.ndarray
    std: np.ndarray


@pytree_dataclass
class Steps:
    """A sampler on a grid: ``mean = state·x + velocity·v`` and ``std`` for each step; 0 where a step has no noise."""

    times: Float[Array, "T1"]
    state: Float[Array, "T"]
    velocity: Float[Array, "T"]
    std: Float[Array, "T"]
    sampler: str = static_field(default="ode")
    noisy: tuple[int, ...] = static_field(default=())

    def mean(self, k: int | Array, x: Float[Array, "*B X"], v: Float[Array, "*B X"]) -> Float[Array, "*B X"]:
        """The mean of the state after step k."""
        return self.state[k] * x + self.velocity[k] * v

    def of_noisy(self) -> "NoisySteps":
        """The times and coefficients of the steps that have a log-prob.

        Raises: ValueError if there is none.
        """
        if not self.noisy:
            raise ValueError(f"sampler {self.sampler!r} has zero std at every step, so no log-prob: name noisy steps")
        index = np.asarray(self.noisy)
        return NoisySteps(self.times[index], self.velocity[index], self.std[index])


class NoisySteps(NamedTuple):
    """Start times, b and S of the noisy steps, ``[W]`` each."""

    times: Float[Array, "W"]
    velocity: Float[Array, "W"]
    std: Float[Array, "W"]


def flow_sde(t: Number, t_next: Number, noise: float, *, first: float | None = None) -> StepCoefficients:
    """Compute Flow-GRPO's SDE with ``s_t = noise·√(t/(1 − t))``.

    Its marginals are the ODE's as dt → 0. At t = 1 the noise is infinite, so there 1 − t is replaced in s_t alone.

    Args:
        t: where the steps start, in (0, 1].
        t_next: where they end.
        noise: a > 0.
        first: the time whose 1 − t stands in at t = 1. ``None`` takes that step's own ``t_next`` (flow_grpo,
            Flow-Factory); UniRL takes 0.99.

    References: Flow-GRPO, arXiv 2505.05470, eq. 8–9, with the signed step of its code.

    >>> [round(float(value), 6) for value in flow_sde(1.0, 0.5, 1.0)]  # s² = 1/(1 − .5); 1 − .5, −.5, √(2·.5)
    [0.5, -0.5, 1.0]
    """
    t, t_next = np.asarray(t, np.float64), np.asarray(t_next, np.float64)
    stand_in = t_next if first is None else np.full_like(t, first)
    return _sde(t, t_next, noise**2 * t / (1.0 - np.where(t == 1.0, stand_in, t)))


def dance_sde(t: Number, t_next: Number, noise: float) -> StepCoefficients:
    """Compute DanceGRPO's SDE, whose noise ``s_t = noise`` is the same everywhere.

    ``mean = x + [v + (η²/2)·(x − (1 − t)(x − t·v))/t²]·dt``, which is Flow-SDE's form with s = η.

    References: DanceGRPO, arXiv 2505.07818, as its code has it.

    >>> [round(float(value), 6) for value in dance_sde(0.5, 0.25, 1.0)]  # 1 − .25, −.25·(1 + .5), √.25
    [0.75, -0.375, 0.5]
    """
    t, t_next = np.asarray(t, np.float64), np.asarray(t_next, np.float64)
    return _sde(t, t_next, np.full_like(t, noise**2))


def cps(t: Number, t_next: Number, noise: float) -> StepCoefficients:
    """Compute coefficient-preserving sampling: noise replaces part of the predicted noise, and none is added.

    ``mean = (1 − u)·(x − t·v) + u·cos(η·π/2)·(x + (1 − t)·v)``, ``S = u·sin(η·π/2)``. At u = 0 it has no noise.

    References: Flow-CPS, arXiv 2509.05952.

    >>> [round(float(value), 6) for value in cps(0.5, 0.25, 1.0)]  # η = 1: all predicted noise is replaced
    [0.75, -0.375, 0.25]
    """
    t, u = np.asarray(t, np.float64), np.asarray(t_next, np.float64)
    kept, replaced = np.cos(noise * np.pi / 2), np.sin(noise * np.pi / 2)
    return StepCoefficients(1.0 - u + u * kept, u * (1.0 - t) * kept - (1.0 - u) * t, u * replaced)


def ode(t: Number, t_next: Number) -> StepCoefficients:
    """Compute an Euler step of the probability-flow ODE.

    >>> [float(value) for value in ode(0.5, 0.25)]
    [1.0, -0.25, 0.0]
    """
    t, t_next = np.asarray(t, np.float64), np.asarray(t_next, np.float64)
    return StepCoefficients(np.ones_like(t), t_next - t, np.zeros_like(t))


def _sde(t: np.ndarray, t_next: np.ndarray, square: Number) -> StepCoefficients:
    dt = t_next - t
    drift = square / (2.0 * t)
    return StepCoefficients(1.0 + drift * dt, (1.0 + drift * (1.0 - t)) * dt, np.sqrt(-square * dt))


def build_steps(
    sampler: str,
    times: Times,
    *,
    noise: float | None = None,
    noisy: Sequence[int] | None = None,
    first: float | None = None,
    dtype: jnp.dtype | type = jnp.float32,
) -> Steps:
    """Put a sampler on a grid, with noise at some steps and ODE steps elsewhere (MixGRPO).

    Args:
        sampler: one of ``SAMPLERS``.
        times: ``[T + 1]``, strictly falling within [0, 1].
        noise: a or η; none for ``ode``.
        noisy: which steps have noise; all by default, none for ``ode``.
        first: see ``flow_sde``.
        dtype: of the coefficients, which are computed in float64.

    Raises: ValueError with everything that is wrong: an unknown name, a grid that does not fall, steps out of range, no
        noise, zero std (``cps`` at u = 0), an undefined end point.

    >>> steps = build_steps("cps", [1.0, 0.5, 0.0], noise=1.0, noisy=[0])
    >>> steps.std.tolist()  # the last step is an ODE step
    [0.5, 0.0]
    """
    problems = [] if sampler in SAMPLERS else [f"sampler is {sampler!r}, expected one of {', '.join(SAMPLERS)}"]
    problems = problems + time_problems(times)
    if problems:
        raise ValueError("; ".join(problems))
    grid = np.asarray(times, np.float64)
    t, t_next = grid[:-1], grid[1:]
    chosen = tuple(range(len(t))) if noisy is None and sampler != "ode" else tuple(sorted(noisy or ()))
    problems = _noise_problems(sampler, noise, chosen, len(t)) or _end_problems(sampler, grid, chosen, first)
    if problems:
        raise ValueError("; ".join(problems))
    plain = ode(t, t_next)
    if sampler == "ode" or noise is None:
        found = plain
    else:
        with_noise = {
            "flow_sde": lambda: flow_sde(t, t_next, noise, first=first),
            "dance_sde": lambda: dance_sde(t, t_next, noise),
            "cps": lambda: cps(t, t_next, noise),
        }[sampler]()
        is_noisy = np.isin(np.arange(len(t)), chosen)
        pairs = zip(with_noise, plain, strict=True)
        found = StepCoefficients(*(np.where(is_noisy, new, old) for new, old in pairs))
    arrays = jax.tree.map(lambda values: jnp.asarray(values, dtype), (grid, *found))
    return Steps(*arrays, sampler=sampler, noisy=chosen)


def _noise_problems(sampler: str, noise: float | None, noisy: tuple[int, ...], count: int) -> list[str]:
    problems = []
    if sampler == "ode":
        if noise is not None or noisy:
            problems.append("ode has no noise, and so no log-prob: leave noise and noisy out, or name another sampler")
        return problems
    limit = 1.0 if sampler == "cps" else np.inf
    if noise is None or not 0 < noise <= limit or not np.isfinite(noise):
        reach = "(0, 1]" if sampler == "cps" else "(0, ∞)"
        problems.append(
            f"noise of {sampler} is {noise}, expected a number in {reach}: zero std has no log-prob; use 'ode'"
        )
    strange = [k for k in noisy if not 0 <= k < count]
    if strange or len(set(noisy)) != len(noisy) or not noisy:
        problems.append(f"noisy steps are {list(noisy)}, expected one or more different numbers in [0, {count - 1}]")
    return problems


def _end_problems(sampler: str, grid: np.ndarray, noisy: tuple[int, ...], first: float | None) -> list[str]:
    problems = []
    if first is not None and (sampler != "flow_sde" or not 0 <= first < 1):
        problems.append(f"first = {first:g} is a time in [0, 1) that flow_sde takes for t = 1; {sampler} was asked for")
    if sampler == "cps" and len(grid) - 2 in noisy and grid[-1] == 0:
        problems.append("cps has zero std where a step ends at t = 0: leave the last step out of noisy, or end above 0")
    return problems
