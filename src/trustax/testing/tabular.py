"""A policy small enough to enumerate: exact expectations and gradients in plain numpy float64.

One logit vector for every prefix of a tree with V ≤ 5 tokens and length T ≤ 3: ``logits[t]`` has shape ``[V^t, V]``,
row p the prefix read as a base-V number. A sequence ends after T tokens, or after ``end``, if one is named.
"""

import itertools
from typing import NamedTuple

import numpy as np

Logits = list[np.ndarray]


class Tree(NamedTuple):
    """All sequences: ``tokens [N, T]``, ``mask [N, T]``, and the prefix row of each token ``prefix [N, T]``."""

    tokens: np.ndarray
    mask: np.ndarray
    prefix: np.ndarray
    vocab: int


def enumerate_tree(vocab: int, length: int, *, end: int | None = None) -> Tree:
    """List every sequence once; tokens after ``end`` are masked and 0."""
    rows: dict[tuple[int, ...], None] = {}
    for sequence in itertools.product(range(vocab), repeat=length):
        cut = sequence.index(end) + 1 if end is not None and end in sequence else length
        rows[sequence[:cut]] = None
    tokens, mask = np.zeros((len(rows), length), int), np.zeros((len(rows), length), bool)
    for i, sequence in enumerate(rows):
        tokens[i, : len(sequence)], mask[i, : len(sequence)] = sequence, True
    prefix = np.zeros_like(tokens)
    for t in range(1, length):
        prefix[:, t] = prefix[:, t - 1] * vocab + tokens[:, t - 1]
    return Tree(tokens, mask, prefix, vocab)


def random_logits(rng: np.random.Generator, vocab: int, length: int, scale: float = 1.0) -> Logits:
    """Independent normal logits for every prefix."""
    return [scale * rng.normal(size=(vocab**t, vocab)) for t in range(length)]


def distributions(logits: Logits, tree: Tree) -> np.ndarray:
    """The next-token log-probs at every token, ``[N, T, V]``."""
    rows = np.stack([table[tree.prefix[:, t]] for t, table in enumerate(logits)], axis=1)
    rows = rows - rows.max(-1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(-1, keepdims=True))


def token_log_probs(logits: Logits, tree: Tree) -> np.ndarray:
    """The log-prob of every token, 0 where masked, ``[N, T]``."""
    found = np.take_along_axis(distributions(logits, tree), tree.tokens[..., None], -1)[..., 0]
    return np.where(tree.mask, found, 0.0)


def weighted_score(logits: Logits, tree: Tree, coefficients: np.ndarray) -> Logits:
    """``Σ_{sequence, t} coefficient · ∇ log π(y_t | prefix)``, by hand: ``e_y − π`` at the token's prefix."""
    gradient = [np.zeros_like(table) for table in logits]
    score = np.eye(tree.vocab)[tree.tokens] - np.exp(distributions(logits, tree))
    weighted = np.where(tree.mask, coefficients, 0.0)[..., None] * score
    for t, table in enumerate(gradient):
        np.add.at(table, tree.prefix[:, t], weighted[:, t])
    return gradient


def expected_reward(logits: Logits, tree: Tree, rewards: np.ndarray) -> float:
    """``J = Σ_sequence π(sequence) R(sequence)``."""
    return float((np.exp(token_log_probs(logits, tree).sum(-1)) * rewards).sum())


def policy_gradient(logits: Logits, tree: Tree, rewards: np.ndarray) -> Logits:
    """``∇J = Σ π(sequence) R Σ_t ∇ log π_t``, exactly."""
    probability = np.exp(token_log_probs(logits, tree).sum(-1))
    return weighted_score(logits, tree, np.broadcast_to((probability * rewards)[:, None], tree.tokens.shape))
