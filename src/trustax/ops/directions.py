"""Directions: will this token's update increase the divergence that the trust region limits?

``*B`` is any leading shape, ``S`` the slots of a support (K + 1), ``V`` the vocabulary. A policy-gradient step on token
y moves the logits by dz = η·A·w·(e_y − π); a direction G says how D then changes, dD = η·A·w·G. The update is *outward*
iff A·G > 0. Only the sign of G is used by masks, which detach it; its size is dD per unit step.

Computed in float32, or float64 if any input is. No formula subtracts nearly equal masses, so that the sign is right for
policies that are sharpened until one token holds all but 1e-12 of the mass, given tails from the pass over the logits
(``trustax.ops.tails``).
"""

from typing import Unpack

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trustax.ops._arguments import (
    IdsLike,
    LogProbsLike,
    MaskLike,
    SlotsLike,
    TokenLike,
    as_floats,
    raise_problems,
    shape_problems,
)
from trustax.ops._softmax_step import direction, tie_rate
from trustax.ops._tail import KnownOfTail, check_full_inputs, check_inputs, own_masses
from trustax.ops.certificate import direction_certificate

__all__ = [
    "direction_certificate",
    "is_outward",
    "predictive_direction",
    "predictive_direction_full",
    "ratio_direction",
    "tv_tie_rate",
    "tv_tie_rate_full",
]

Token = Float[Array, "*B"]


def ratio_direction(log_pi: TokenLike, log_mu: TokenLike) -> Token:
    """Tell on which side of 1 the ratio lies: the direction test of PPO and DPPO.

        log π_y − log μ_y,   with the sign of r − 1 and of π_y − μ_y

    It reads the sampled token only. For every binary divergence it *is* the predictive direction, because the step
    moves π_y towards sign(A); for the others it is wrong on small shifts, where the softmax moves other tokens more.

    Args:
      log_pi: log π of the sampled token.
      log_mu: log μ of the sampled token.

    Returns:
      The log-ratio, finite: limited to the largest float where a probability is 0.

    Gradient: 1 with respect to ``log_pi``; masks detach it.

    Edge cases: equal log-probs, −inf included, give 0: neither side.

    Raises:
      ValueError: shapes differ, or a dtype is not floating.

    References: DPPO, arXiv 2602.04879, eq. 12.

    Example:
      >>> [round(x, 6) for x in ratio_direction(jnp.array([-1.0, -2.0]), jnp.array([-1.5, -1.0])).tolist()]
      [0.5, -1.0]
    """
    log_pi, log_mu = as_floats(log_pi=log_pi, log_mu=log_mu)
    raise_problems(shape_problems(log_pi.shape, "log_pi", log_mu=log_mu))
    most = jnp.asarray(jnp.finfo(log_pi.dtype).max, log_pi.dtype)
    tied = log_pi == log_mu
    other = jnp.where(tied, jnp.zeros_like(log_mu), log_mu)
    return jnp.where(tied, jnp.zeros_like(log_pi), jnp.clip(jnp.where(tied, 0, log_pi) - other, -most, most))


def predictive_direction(
    log_pi_support: SlotsLike,
    log_mu_support: SlotsLike,
    support_mask: MaskLike,
    sampled_slot: IdsLike,
    *,
    divergence: str = "kl",
    tail: str = "exact",
    sum_sq_pi: TokenLike | None = None,
    vocab_size: int | None = None,
    tail_log_pi: TokenLike | None = None,
    tail_log_mu: TokenLike | None = None,
    tail_log_sum_sq_pi: TokenLike | None = None,
) -> Token:
    """Predict how the token's own update changes the lumped divergence.

        G = Σ_c π_c (g_c − h) φ_c,   φ_c = ∂D/∂π_c,   g_y = 1 − π_y,  g_a = −π_a,  g_T = −q,   h = Σ_c π_c g_c
        KL(μ‖π):  G = (π_y − μ_y) + Σ_S π(μ − π) + q(μ_T − π_T)

    over the slots S and the tail cell T. q = Σ_T π²/π_T says how the tail's mass is spread inside it:

        tail          q                  exact when
        "exact"       Σ_T π²/π_T         always: the derivative of the lumped D (ours)
        "aggregated"  π_T                the tail is one token (PDM's first estimator)
        "uniform"     π_T/N              π is uniform on the tail's N tokens (PDM's second)
        "none"        0                  the tail is negligible

    Args:
      log_pi_support: log π on the slots, [..., S].
      log_mu_support: log μ on the slots.
      support_mask: which slots are valid; the others may hold anything and are never read.
      sampled_slot: the slot of the sampled token y, [...]; it must be valid.
      divergence: "kl" is KL(μ‖π), "reverse_kl" KL(π‖μ); "tv", "js", "chi2", "hellinger2".
      tail: the tail estimator.
      sum_sq_pi: Σ_a π_a² over the vocabulary, for "exact" where ``tail_log_sum_sq_pi`` is not known. Σ_T π² is then
        clipped into [π_T²/N, π_T²].
      vocab_size: V without padding rows, for "uniform" (N = V − |S|) and for the clip.
      tail_log_pi: log π_T from the pass over the logits; else 1 − Σ_S, clipped at 0.
      tail_log_mu: log μ_T, likewise.
      tail_log_sum_sq_pi: log Σ_T π² from the pass over the logits; preferred to ``sum_sq_pi``.

    Returns:
      G, [...]: dD = η·A·w·G, outward iff A·G > 0. For TV, tied cells are counted with φ = 0: see ``tv_tie_rate``.

    Gradient: none flows: a direction decides a mask.

    Edge cases: π = μ gives exactly 0. An empty tail (−inf, or N = 0) adds nothing, for every estimator. No valid slot,
    or a sampled slot that is not valid, gives 0; a slot out of range is clipped into it. A probability of 0 counts as
    the smallest normal float, so that G is finite and has the sign of its limit. ``tail="none"`` takes q = 0; for all
    but the KL it also takes φ_T = 0, that is, leaves the tail cell out, with φ = 0 at π = μ.

    Raises:
      ValueError: everything wrong with names, shapes, dtypes and missing arguments, in one message.

    References: PDM, arXiv 2607.10848 (KL; the two tail estimators); the other divergences, the exact tail and the
    form without cancellation are derived here.

    Example:
      >>> pi, mu = jnp.log(jnp.array([0.4, 0.4])), jnp.log(jnp.array([0.5, 0.2]))
      >>> mask, slot = jnp.array([True, True]), jnp.array(0)
      >>> g = predictive_direction(pi, mu, mask, slot, tail="aggregated")
      >>> round(float(g), 6)  # (.4 − .5) + .4 · .1 + .4 · (−.2) + .2 · (.3 − .2)
      -0.12
      >>> g = predictive_direction(pi, mu, mask, slot, tail="uniform", vocab_size=4)
      >>> round(float(g), 6)  # the last term is halved: N = 2
      -0.13
    """
    inputs = check_inputs(
        log_pi_support,
        log_mu_support,
        support_mask,
        sampled_slot,
        divergence=divergence,
        tail=tail,
        sum_sq_pi=sum_sq_pi,
        vocab_size=vocab_size,
        tail_log_pi=tail_log_pi,
        tail_log_mu=tail_log_mu,
        tail_log_sum_sq_pi=tail_log_sum_sq_pi,
    )
    cells = inputs.cells(divergence)
    return direction(divergence, cells, own_masses(inputs, cells, tail), inputs.is_sampled(), drop_last=tail == "none")


def predictive_direction_full(
    log_probs_pi: LogProbsLike, log_probs_mu: LogProbsLike, sampled_ids: IdsLike, *, divergence: str = "kl"
) -> Token:
    """Predict how the token's own update changes the full-vocabulary divergence.

        G = π_y φ_y − Σ_a π_a² φ_a − h Σ_a π_a φ_a,   h = π_y − Σ_a π_a²
        KL(μ‖π):  G = (π_y − μ_y) + Σ_a π_a (μ_a − π_a)

    For the KL a positive prediction is never wrong, whatever the step size: KL(μ‖softmax(z)) is convex in z.

    Args:
      log_probs_pi: normalised log-probs of π, [..., V].
      log_probs_mu: normalised log-probs of μ.
      sampled_ids: the sampled tokens y, [...].
      divergence: as in ``predictive_direction``.

    Returns:
      G, [...]. E_{y~π}[G] = 0, and for the KL E_{y~μ}[G] = −‖π − μ‖².

    Gradient: none is meant to flow; detach it.

    Edge cases: as in ``predictive_direction``; ids out of range are clipped.

    Raises:
      ValueError: an unknown name, shapes that do not agree, wrong dtypes, in one message.

    References: PDM, arXiv 2607.10848, the closed form for the KL; the others are derived here.

    Example:
      >>> pi, mu = jnp.log(jnp.array([0.2, 0.5, 0.3])), jnp.log(jnp.array([0.5, 0.3, 0.2]))
      >>> round(float(predictive_direction_full(pi, mu, jnp.array(2))), 6)  # .1 + .2 · .3 − .5 · .2 − .3 · .1
      0.03
    """
    cells, is_sampled = check_full_inputs(log_probs_pi, log_probs_mu, sampled_ids, divergence)
    return direction(divergence, cells, cells.masses()[0], is_sampled)


def tv_tie_rate(
    log_pi_support: SlotsLike,
    log_mu_support: SlotsLike,
    support_mask: MaskLike,
    sampled_slot: IdsLike,
    *,
    tail: str = "exact",
    **known: Unpack[KnownOfTail],
) -> Token:
    """Compute what tied cells add to the lumped TV, whichever way the step goes.

        R = ½ Σ_{c: π_c = μ_c} π_c |g_c − h|,    dTV = η (A·w·G + |A·w|·R)

    TV has a kink where π_c = μ_c: any move of such a cell increases it. Ties are exact only where both log-probs are
    the same float. Arguments (``known`` is what it may be told of the tail), edge cases and errors as in
    ``predictive_direction``.

    Returns:
      R ≥ 0, [...]: to be added in the test ``is_outward``.

    Gradient: none is meant to flow.

    References: derived here.

    Example:
      >>> pi, mu = jnp.log(jnp.array([0.5, 0.3])), jnp.log(jnp.array([0.5, 0.2]))
      >>> r = tv_tie_rate(pi, mu, jnp.array([True, True]), jnp.array(0), tail="aggregated")
      >>> round(float(r), 6)  # only y is tied: g = .5, h = .5 − .38, ½ · .5 · .38
      0.095
    """
    inputs = check_inputs(
        log_pi_support, log_mu_support, support_mask, sampled_slot, divergence="tv", tail=tail, **known
    )
    cells = inputs.cells("tv")
    return tie_rate(cells, own_masses(inputs, cells, tail), inputs.is_sampled(), drop_last=tail == "none")


def tv_tie_rate_full(log_probs_pi: LogProbsLike, log_probs_mu: LogProbsLike, sampled_ids: IdsLike) -> Token:
    """Compute what tied tokens add to the full TV, whichever way the step goes: ``tv_tie_rate`` over the vocabulary.

    Example:
      >>> pi, mu = jnp.log(jnp.array([0.5, 0.3, 0.2])), jnp.log(jnp.array([0.5, 0.2, 0.3]))
      >>> round(float(tv_tie_rate_full(pi, mu, jnp.array(0))), 6)  # ½ · .5 · (.5 − (.5 − .38))
      0.095
    """
    cells, is_sampled = check_full_inputs(log_probs_pi, log_probs_mu, sampled_ids, "tv")
    return tie_rate(cells, cells.masses()[0], is_sampled)


def is_outward(advantages: TokenLike, direction: TokenLike, tie_rate: TokenLike | None = None) -> Bool[Array, "*B"]:
    """Tell whether the update increases the divergence.

        A·G > 0,   with ties of TV:  A·G + |A|·R > 0

    By signs, not by the product: it can neither underflow nor be NaN. A positive weight w does not matter.

    Args:
      advantages: A, [...].
      direction: G, [...].
      tie_rate: R of ``tv_tie_rate``, [...]; only TV needs it.

    Returns:
      Booleans, [...]; False where A = 0, G = 0 (without ties) or either is NaN.

    Gradient: none.

    Raises:
      ValueError: shapes differ, or a dtype is not floating.

    Example:
      >>> is_outward(jnp.array([1.0, -1.0, 0.0]), jnp.array([0.1, 0.1, 0.1])).tolist()
      [True, False, False]
      >>> is_outward(jnp.array([-1.0]), jnp.array([0.1]), jnp.array([0.2])).tolist()  # −.1 + .2 > 0
      [True]
    """
    advantages, direction, tie_rate = as_floats(advantages=advantages, direction=direction, tie_rate=tie_rate)
    raise_problems(shape_problems(advantages.shape, "advantages", direction=direction, tie_rate=tie_rate))
    extra = jnp.zeros_like(direction) if tie_rate is None else tie_rate
    return ((advantages > 0) & (extra + direction > 0)) | ((advantages < 0) & (extra - direction > 0))
