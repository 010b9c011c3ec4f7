"""Sample estimators of a KL divergence, and losses whose *gradient* is right.

``x = log π(y) − log ρ(y)`` for a token y drawn from π, ρ the reference. An estimator with the right mean may have a
wrong gradient when it is differentiated as a loss: y depends on π too. The table, by exact enumeration:

    k1 = x              E[k1] = KL(π‖ρ)    E[∇k1] = 0
    k2 = x²/2           biased             E[∇k2] = ∇KL(π‖ρ)
    k3 = e^{−x} − 1 + x E[k3] = KL(π‖ρ)    E[∇k3] = ∇KL(ρ‖π), of another divergence

so ``kl_loss`` refuses plain ``k1`` and ``k3`` by name and offers forms that are right.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trustax.ops.ratios import LOG_RATIO_LIMIT

KL_LOSSES = ("k2", "k1_weighted", "k3_weighted", "k1_with_k2_gradient", "k3_with_k2_gradient", "k3_of_forward_kl")
"""The forms ``kl_loss`` offers."""

_REFUSED = {
    "k1": "its expected gradient is zero (it regularises nothing): use 'k2' or 'k1_weighted'",
    "k3": (
        "its expected gradient is ∇KL(ρ‖π), not ∇KL(π‖ρ): use 'k2' or 'k3_weighted', or 'k3_of_forward_kl' "
        "if that is what you want (GRPO as published)"
    ),
}


def k1(log_pi: Float[Array, "..."], log_ref: Float[Array, "..."]) -> Float[Array, "..."]:
    """Estimate KL(π‖ρ) by the log-ratio.

    ``k1 = log π − log ρ``. Unbiased in value, high variance, negative for single samples. Not to be differentiated as
    a loss: its expected gradient is 0.

    References: Schulman, "Approximating KL divergence" (2020); Tang and Munos, arXiv 2506.09477.

    >>> float(k1(jnp.array(-1.0), jnp.array(-1.5)))
    0.5
    """
    return log_pi - log_ref


def k2(log_pi: Float[Array, "..."], log_ref: Float[Array, "..."]) -> Float[Array, "..."]:
    """Estimate KL(π‖ρ) by half the squared log-ratio.

    ``k2 = (log π − log ρ)² / 2``. Biased in value to second order, never negative; differentiated as a loss over
    samples of π its expected gradient is exactly ∇KL(π‖ρ).

    Gradient: ``x`` with respect to ``log_pi``.

    >>> float(k2(jnp.array(-1.0), jnp.array(-2.0)))
    0.5
    """
    return 0.5 * jnp.square(log_pi - log_ref)


def k3(log_pi: Float[Array, "..."], log_ref: Float[Array, "..."]) -> Float[Array, "..."]:
    """Estimate KL(π‖ρ) by the log-ratio plus a control variate.

    ``k3 = ρ/π − 1 − log(ρ/π) = expm1(−x) + x``. Unbiased in value and never negative, also in float32, where
    ``exp(−x) − 1 + x`` is not; ``x`` is limited to [−20, 20]. Differentiated as a loss its expected gradient is that
    of KL(ρ‖π).

    Gradient: ``1 − ρ/π`` with respect to ``log_pi``, 0 beyond the limit.

    >>> round(float(k3(jnp.array(-1.0), jnp.array(-1.0 + 0.693147181))), 6)
    0.306853
    """
    x = jnp.clip(log_pi - log_ref, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    # Near 0 the difference of two nearly equal numbers loses all digits; the series is exact to float64 there.
    near = jnp.abs(x) < 1e-2
    small = jnp.where(near, x, jnp.zeros_like(x))
    series = small * small * (0.5 - small * (1.0 / 6.0 - small * (1.0 / 24.0 - small * (1.0 / 120.0 - small / 720.0))))
    large = jnp.where(near, jnp.ones_like(x), x)
    return jnp.where(near, series, jnp.expm1(-large) + large)


def check_kl_loss(estimator: str) -> None:
    """Refuse an estimator whose gradient is wrong, or that does not exist.

    Raises: ValueError naming the reason and what to ask for instead.
    """
    if estimator in _REFUSED:
        raise ValueError(f"KL estimator {estimator!r} is refused as a loss: {_REFUSED[estimator]}")
    if estimator not in KL_LOSSES:
        raise ValueError(f"unknown KL estimator {estimator!r}; expected one of {', '.join(KL_LOSSES)}")


def kl_loss(
    log_pi: Float[Array, "..."],
    log_ref: Float[Array, "..."],
    *,
    estimator: str = "k2",
    log_ratio: Float[Array, "..."] | None = None,
) -> Float[Array, "..."]:
    """Penalise the divergence from a reference, with a gradient that is what the name says.

    Per token, y ~ π (or y ~ μ with ``log_ratio`` = log π − log μ, which weights every form by sg[π/μ]):

        k2                   x²/2                        E∇ = ∇KL(π‖ρ)
        k1_weighted          r·x,  r = π/sg[π]           E∇ = ∇KL(π‖ρ)
        k3_weighted          r·k3                        E∇ = ∇KL(π‖ρ)
        k1_with_k2_gradient  value k1, gradient of k2    E∇ = ∇KL(π‖ρ)
        k3_with_k2_gradient  value k3, gradient of k2    E∇ = ∇KL(π‖ρ)
        k3_of_forward_kl     value k3, its own gradient  E∇ = ∇KL(ρ‖π)   (GRPO as published)

    Token sums of such terms ignore how a token changes later states (a partial gradient).

    Args:
        log_pi: differentiable log-probs of the sampled tokens.
        log_ref: log-probs under the reference; no gradient flows.
        estimator: one of ``KL_LOSSES``.
        log_ratio: log π − log μ when the tokens were drawn from μ; detached here and limited to [−20, 20].

    Raises: ValueError for ``k1`` and ``k3``, whose plain gradients are wrong, and for an unknown name.

    References: Tang and Munos, arXiv 2506.09477; GRPO's k3: DeepSeekMath, arXiv 2402.03300, eq. 4.

    >>> float(jax.grad(lambda lp: kl_loss(lp, jnp.array(-1.5)))(jnp.array(-1.0)))
    0.5
    """
    check_kl_loss(estimator)
    log_ref = jax.lax.stop_gradient(log_ref)
    detached = jax.lax.stop_gradient(log_pi)
    own_ratio = jnp.exp(log_pi - detached)
    straight_through = k2(log_pi, log_ref) - k2(detached, log_ref)
    value = {
        "k2": lambda: k2(log_pi, log_ref),
        "k1_weighted": lambda: own_ratio * k1(log_pi, log_ref),
        "k3_weighted": lambda: own_ratio * k3(log_pi, log_ref),
        "k1_with_k2_gradient": lambda: k1(detached, log_ref) + straight_through,
        "k3_with_k2_gradient": lambda: k3(detached, log_ref) + straight_through,
        "k3_of_forward_kl": lambda: k3(log_pi, log_ref),
    }[estimator]()
    if log_ratio is None:
        return value
    return jnp.exp(jnp.clip(jax.lax.stop_gradient(log_ratio), -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)) * value
