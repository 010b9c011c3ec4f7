"""One step of a flow as a Gaussian: log-prob, ratio, KL and TV in closed form.

``*B`` is any leading shape, ``W`` noisy steps, ``X`` latent numbers. Two policies at the same state have means ``d``
apart and share the std S. With x' = mean_old + S·ε:

    log r = ε·d/S − D        D = ‖d‖²/(2S²) = KL(old‖new) = KL(new‖old)        TV = 2Φ(‖d‖/(2S)) − 1
    under old:  E[log r] = −D,  Var[log r] = 2D

**Reduction over the latent numbers** is an argument of every function. ``"sum"`` is the density of the whole state.
``"mean"`` divides log-probs, log r and D by X: the ratio is then the geometric mean over latent numbers and D is nats
a number, as in all published code. Thresholds live in the units of the reduction: from "mean" to "sum" multiply by X.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

REDUCTIONS = ("mean", "sum")

# Any shape: ``check`` refuses a wrong one in words.
Latent = Float[Array, "..."]
"""[..., W, X]"""
PerStep = Float[Array, "..."]
"""[..., W]"""
Std = Float[Array, "..."]
"""[W]"""


def log_prob(x_next: Latent, mean: Latent, std: Std, *, reduction: str) -> PerStep:
    """Compute the log-density of the next state.

    ``−(x' − mean)²/(2S²) − log S − ½ log 2π``, reduced over X.

    Gradient: (x' − mean)/S² with respect to the mean (over X for "mean").

    Raises: ValueError for zero std, an unknown reduction, or shapes that do not agree.

    >>> x, mean = jnp.array([[1.0, 0.0]]), jnp.array([[0.0, 0.0]])
    >>> round(float(log_prob(x, mean, jnp.array([1.0]), reduction="sum")[0]), 6)  # −1/2 − log 2π
    -2.337877
    """
    check(std, reduction, x_next=x_next, mean=mean)
    wide = std[:, None]
    density = -0.5 * jnp.square((x_next - mean) / _like(wide, x_next)) - jnp.log(_like(wide, x_next))
    return _reduce(density - jnp.asarray(0.5 * np.log(2 * np.pi), density.dtype), reduction)


def kl(shift: Latent, std: Std, *, reduction: str) -> PerStep:
    """Compute D, the KL divergence of two steps, in either order.

    ``D = ‖d‖²/(2S²)``, reduced over X.

    Args:
        shift: d, the difference of the means.
        std: S > 0.
        reduction: "sum" for nats, "mean" for nats a latent number.

    Gradient: d/S² with respect to d (over X for "mean").

    Raises: ValueError as ``log_prob``.

    References: Flow-DPPO, arXiv 2606.11025.

    >>> d, std = jnp.array([[0.02, -0.01]]), jnp.array([0.3])
    >>> round(float(kl(d, std, reduction="sum")[0]), 8)
    0.00277778
    """
    check(std, reduction, shift=shift)
    return 0.5 * _reduce(jnp.square(shift / _like(std[:, None], shift)), reduction)


def tv(shift: Latent, std: Std, *, reduction: str) -> PerStep:
    """Compute the total variation of two steps.

    ``TV = 2Φ(√(D/2)) − 1 = erf(√D/2)``. TV does not add up over latent numbers: with "mean" it is the TV of one number
    that has the average D.

    Gradient: as written; 0 where d = 0, a kink.

    Raises: ValueError as ``log_prob``.

    >>> d, std = jnp.array([[0.02, -0.01]]), jnp.array([0.3])
    >>> round(float(tv(d, std, reduction="sum")[0]), 6)
    0.029729
    """
    return tv_of_kl(kl(shift, std, reduction=reduction))


def tv_of_kl(divergence: Float[Array, "..."]) -> Float[Array, "..."]:
    """Turn the KL of two Gaussians of one std into their TV: ``erf(√D/2)``.

    >>> round(float(tv_of_kl(jnp.array(2.0))), 6)  # 2Φ(1) − 1
    0.682689
    """
    some = divergence > 0
    root = jnp.sqrt(jnp.where(some, divergence, jnp.ones_like(divergence)))
    return jnp.where(some, jax.scipy.special.erf(0.5 * root), jnp.zeros_like(root))


def noise_along_shift(noise: Latent, shift: Latent, *, reduction: str) -> PerStep:
    """Compute ε·d, the logarithm of GRPO-Guard's ratio.

    ``S·log r + ‖d‖²/(2S) = ε·d``: the bias −D and the scale 1/S, which differ from step to step, are taken out of
    log r. It is no density ratio. Its gradient with respect to the mean is ε, not (S·ε − d)/S².

    References: GRPO-Guard, arXiv 2510.22319, as Flow-Factory's code has it.

    >>> noise, d = jnp.array([[1.0, -0.5]]), jnp.array([[0.02, -0.01]])
    >>> round(float(noise_along_shift(noise, d, reduction="sum")[0]), 6)
    0.025
    """
    return _reduce(noise * shift, reduction)


def log_ratio(noise: Latent, shift: Latent, std: Std, *, reduction: str) -> PerStep:
    """Compute log r of the state that was sampled, from the noise it was sampled with.

    ``log r = ε·d/S − D``. Equal to the difference of two log-probs, without their cancellation: with a threshold of
    1e-6 a ratio, float32 leaves nothing of that difference.

    Args:
        noise: ε of the old policy's step, x' = mean_old + S·ε.
        shift: d = mean − mean_old.
        std: S > 0.
        reduction: "sum" or "mean" over X.

    Gradient: (S·ε − d)/S² with respect to d (over X for "mean").

    Raises: ValueError as ``log_prob``.

    >>> noise, d, std = jnp.array([[1.0, -0.5]]), jnp.array([[0.02, -0.01]]), jnp.array([0.3])
    >>> round(float(log_ratio(noise, d, std, reduction="sum")[0]), 6)
    0.080556
    """
    check(std, reduction, noise=noise, shift=shift)
    along = noise_along_shift(noise, shift, reduction=reduction)
    return along / _like(std, along) - kl(shift, std, reduction=reduction)


def divergence_after_step(
    divergence: PerStep,
    log_ratios: PerStep,
    residual: PerStep,
    advantages: PerStep,
    std: Std,
    *,
    step: Float[Array, ""] | float,
    size: int,
    reduction: str,
) -> PerStep:
    """Predict D after one gradient step on the mean, the mean taken for a free vector.

    ``D_new = D + (η·A·r/S²)·(log r − D) + η²·A²·r²·‖g‖²/(2·S⁶)``, g = S·ε − d; with "mean" η is η/X, since the gradient
    of a mean over X is. Exact, whatever the step.

    Args:
        divergence: D.
        log_ratios: log r.
        residual: ‖g‖², in the same reduction.
        advantages: A.
        std: S > 0.
        step: η, in mean_new = mean + η·∂(A·r)/∂mean.
        size: X.
        reduction: that of the others.

    Gradient: none is meant to flow.

    References: Flow-DPPO, arXiv 2606.11025, appendix E.

    >>> one = jnp.ones((1,))  # d = 0: log r = 0 and D = 0; ‖g‖² = 1, A = 1, S = 1, η = .1
    >>> value = divergence_after_step(0 * one, 0 * one, one, one, one, step=0.1, size=1, reduction="sum")
    >>> round(float(value[0]), 6)
    0.005
    """
    check(std, reduction)
    square = jnp.square(_like(std, divergence))
    eta = jnp.asarray(step, divergence.dtype) / (size if reduction == "mean" else 1)
    pace = eta * advantages * jnp.exp(log_ratios) / square
    return divergence + pace * (log_ratios - divergence) + 0.5 * jnp.square(pace) * residual / square


def check(std: Array, reduction: str, **latents: Array) -> None:
    """Refuse an unknown reduction, shapes that do not agree and, where it can be seen, a std that is not positive.

    Raises: ValueError with every problem.
    """
    problems = [] if reduction in REDUCTIONS else [f"reduction is {reduction!r}, expected 'mean' or 'sum'"]
    shapes = {name: value.shape for name, value in latents.items()}
    if len(set(shapes.values())) > 1:
        problems.append(f"shapes differ: {', '.join(f'{name} {shape}' for name, shape in shapes.items())}")
    problems += [
        f"{name} has shape {shape}, expected [..., {len(std)}, X]: one std a step, from the same time grid"
        for name, shape in shapes.items()
        if len(shape) < 2 or shape[-2] != len(std)
    ]
    if not isinstance(std, Tracer) and not np.all(np.asarray(std) > 0):
        problems.append(f"std is {np.asarray(std).tolist()}: a step with zero std has no log-prob; leave it out")
    if problems:
        raise ValueError("; ".join(problems))


def _reduce(values: Latent, reduction: str) -> PerStep:
    return jnp.mean(values, axis=-1) if reduction == "mean" else jnp.sum(values, axis=-1)


def _like(values: Array, target: Array) -> Array:
    """Broadcast explicitly: rank promotion is an error in the tests."""
    return jnp.broadcast_to(values.astype(target.dtype), target.shape)
