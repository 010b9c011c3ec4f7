"""Random tabular policies with a sampled token and a support, in float64 numpy."""

from typing import NamedTuple

import numpy as np

from trustax.testing import oracles


class Tokens(NamedTuple):
    """``count`` independent tokens. ``inside [N, V]`` says which ids the support holds; the rest is its padded form."""

    pi: np.ndarray  # [N, V]
    mu: np.ndarray  # [N, V]
    ids: np.ndarray  # [N], y ~ μ
    inside: np.ndarray  # [N, V], TopK(μ) ∪ {y}
    support_ids: np.ndarray  # [N, K + 1]
    mask: np.ndarray  # [N, K + 1]
    slot: np.ndarray  # [N]

    @property
    def log_pi(self) -> np.ndarray:
        """log π on the slots; NaN on the slot that is not valid."""
        return self._on_slots(self.pi)

    @property
    def log_mu(self) -> np.ndarray:
        """log μ on the slots; NaN on the slot that is not valid."""
        return self._on_slots(self.mu)

    @property
    def tails(self) -> dict[str, np.ndarray]:
        """What the passes over the logits know of the tail, by the names of the directions' arguments."""
        outside = np.where(self.inside, 0.0, 1.0)
        with np.errstate(divide="ignore"):
            return {
                "tail_log_pi": np.log((self.pi * outside).sum(-1)),
                "tail_log_mu": np.log((self.mu * outside).sum(-1)),
                "tail_log_sum_sq_pi": np.log((self.pi**2 * outside).sum(-1)),
            }

    def _on_slots(self, probs: np.ndarray) -> np.ndarray:
        return np.where(self.mask, np.log(np.take_along_axis(probs, self.support_ids, axis=-1)), np.nan)


def tokens(pi: np.ndarray, mu: np.ndarray, ids: np.ndarray, k: int) -> Tokens:
    """Build the support TopK(μ) ∪ {y}, the plain way."""
    count, size = mu.shape
    top = np.argsort(-mu, axis=-1, kind="stable")[:, :k]
    among = (top == ids[:, None]).any(axis=-1)
    slot = np.where(among, (top == ids[:, None]).argmax(axis=-1), k)
    support_ids = np.concatenate([top, ids[:, None]], axis=-1)
    mask = np.concatenate([np.ones((count, k), bool), ~among[:, None]], axis=-1)
    inside = np.zeros((count, size), bool)
    np.put_along_axis(inside, support_ids, True, axis=-1)
    return Tokens(pi, mu, ids, inside, support_ids, mask, slot)


def random_tokens(
    seed: int, count: int, *, vocab_size: int = 12, k: int = 3, spread: float = 1.5, shift: float = 0.7
) -> Tokens:
    """Draw μ from normal logits of the given ``spread``; π has its logits moved by ``shift`` times a normal."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(count, vocab_size)) * spread
    mu, pi = oracles.softmax(logits), oracles.softmax(logits + shift * rng.normal(size=logits.shape))
    ids = (mu.cumsum(axis=-1) < rng.uniform(size=(count, 1))).sum(axis=-1).clip(0, vocab_size - 1)
    return tokens(pi, mu, ids, k)
