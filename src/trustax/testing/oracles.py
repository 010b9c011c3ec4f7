"""Float64 oracles in plain numpy, written from the definitions and not from the formulas that they check.

Policies are arrays of probabilities ``[..., V]``; sampled tokens and supports are ids. A support is a boolean array
``[..., V]``. Nothing here imports the package.
"""

from collections.abc import Callable

import numpy as np

Array = np.ndarray


def softmax(logits: Array) -> Array:
    """Probabilities of logits along the last axis."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def kl(p: Array, q: Array) -> Array:
    """Σ p ln(p/q) with 0 ln 0 = 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * (np.log(p) - np.log(q)), 0.0)
    return terms.sum(axis=-1)


def _js(pi: Array, mu: Array) -> Array:
    mean = (pi + mu) / 2
    return (kl(pi, mean) + kl(mu, mean)) / 2


DIVERGENCES: dict[str, Callable[[Array, Array], Array]] = {
    "kl": lambda pi, mu: kl(mu, pi),
    "reverse_kl": kl,
    "tv": lambda pi, mu: np.abs(pi - mu).sum(axis=-1) / 2,
    "js": _js,
    "chi2": lambda pi, mu: ((pi - mu) ** 2 / mu).sum(axis=-1),
    "hellinger2": lambda pi, mu: 1 - np.sqrt(pi * mu).sum(axis=-1),
}
"""D(π, μ) of each name over the last axis."""

SLOPES: dict[str, Callable[[Array, Array], Array]] = {
    "kl": lambda pi, mu: -mu / pi,
    "reverse_kl": lambda pi, mu: np.log(pi / mu) + 1,
    "tv": lambda pi, mu: np.sign(pi - mu) / 2,
    "js": lambda pi, mu: np.log(2 * pi / (pi + mu)) / 2,
    "chi2": lambda pi, mu: 2 * (pi / mu - 1),
    "hellinger2": lambda pi, mu: -np.sqrt(mu / pi) / 2,
}
"""∂D/∂π_a of each name, as differentiation gives it, constants included."""


def binary(probs: Array, ids: Array) -> Array:
    """(p_y, 1 − p_y), the latter as a sum."""
    chosen = _one_hot(ids, probs.shape[-1])
    return np.stack([(probs * chosen).sum(-1), (probs * ~chosen).sum(-1)], axis=-1)


def lump(probs: Array, support: Array) -> Array:
    """The probabilities on the support (0 elsewhere) and, last, the mass outside it."""
    inside, outside = np.where(support, probs, 0.0), np.where(support, 0.0, probs)
    return np.concatenate([inside, outside.sum(axis=-1, keepdims=True)], axis=-1)


def lumped(name: str, pi: Array, mu: Array, support: Array) -> Array:
    """The divergence over the support's tokens and one cell for the rest; cells that are empty in both add 0."""
    cells_pi, cells_mu = lump(pi, support), lump(mu, support)
    absent = (cells_pi == 0) & (cells_mu == 0)
    if name == "hellinger2":
        return DIVERGENCES[name](cells_pi, cells_mu)
    total = np.zeros(pi.shape[:-1])
    for c in range(cells_pi.shape[-1]):
        p, m = (np.where(absent[..., c], 1.0, cells[..., c])[..., None] for cells in (cells_pi, cells_mu))
        total += np.where(absent[..., c], 0.0, DIVERGENCES[name](p, m))
    return total


def step(pi: Array, ids: Array, size: float | Array) -> Array:
    """The policy after the logits moved by ``size · (e_y − π)``."""
    size = np.asarray(size)[..., None]
    return softmax(np.log(pi) + size * (_one_hot(ids, pi.shape[-1]) - pi))


def mass_rates(pi: Array, ids: Array) -> Array:
    """dπ_a per unit step: the softmax's Jacobian times e_y − π, multiplied out."""
    gains = _one_hot(ids, pi.shape[-1]) - pi
    return pi * (gains - (pi * gains).sum(axis=-1, keepdims=True))


def direction(name: str, pi: Array, mu: Array, ids: Array) -> Array:
    """dD/ds at s = 0 of the full divergence."""
    return (SLOPES[name](pi, mu) * mass_rates(pi, ids)).sum(axis=-1)


def lumped_direction(name: str, pi: Array, mu: Array, support: Array, ids: Array) -> Array:
    """dD/ds at s = 0 of the lumped divergence."""
    cells_pi, cells_mu = lump(pi, support), lump(mu, support)
    rates = mass_rates(pi, ids)
    cell_rates = np.concatenate(
        [np.where(support, rates, 0.0), np.where(support, 0.0, rates).sum(axis=-1, keepdims=True)], axis=-1
    )
    present = cells_pi > 0
    slopes = SLOPES[name](np.where(present, cells_pi, 1.0), np.where(present, cells_mu, 1.0))
    return np.where(present, slopes * cell_rates, 0.0).sum(axis=-1)


def central_difference(divergence: Callable[[Array], Array], pi: Array, ids: Array, size: float = 1e-5) -> Array:
    """(D(s) − D(−s))/2s of ``divergence(π)`` along the sampled token's own step."""
    return (divergence(step(pi, ids, size)) - divergence(step(pi, ids, -size))) / (2 * size)


def cell_direction(name: str, pi: Array, mu: Array, own: Array, sampled: int) -> tuple[float, float]:
    """One token's G from its cells, without any difference of nearly equal numbers; and Σ|terms| as its scale.

    ``own`` is π_a for a token and Σ_T π²/π_T for a tail. By pairs: g_c − h = Σ_b π_b (g_c − g_b), so that neither a
    sampled nor another token that holds nearly all of the mass makes float64 cancel.
    """
    others = float(np.delete(pi, sampled).sum())
    cells = range(len(pi))

    def gain_difference(c: int, b: int) -> float:
        if c == b:
            return 0.0
        if c == sampled:
            return others + own[b]
        return -(others + own[c]) if b == sampled else own[b] - own[c]

    rates = [pi[c] * sum(pi[b] * gain_difference(c, b) for b in cells) for c in cells]
    top = int(np.argmax(pi))
    slopes = SLOPES[name](pi, mu)
    terms = [rates[c] * (slopes[c] - slopes[top]) for c in cells]
    return float(sum(terms)), float(sum(abs(t) for t in terms))


def _one_hot(ids: Array, size: int) -> Array:
    return np.arange(size) == np.asarray(ids)[..., None]
