"""Two toys of off-policy evaluation whose every quantity is known: a birth–death chain, and a tree of tokens.

In the chain the number x ≥ 0 goes up with probability p and else down (at 0: stays); the reward is −x. With p = 0.3 for
the behaviour and 0.45 for the target, the ratio of their long-run states is not square-integrable.

In the tree a token leads from one of a few hidden states to the next and scores something; the sum of the scores is the
reward, paid at the end. A completion's prefix is never seen twice, as in a language model, and yet everything can be
solved exactly: of a prefix only the state and the sum so far matter.
"""

from typing import NamedTuple

import numpy as np

BEHAVIOR, TARGET = 0.3, 0.45


class Chain(NamedTuple):
    """``[runs, T]`` each: the state, whether the walk went up, and the next state."""

    state: np.ndarray
    up: np.ndarray
    following: np.ndarray

    @property
    def reward(self) -> np.ndarray:
        """−x."""
        return -self.state.astype(float)


def walk(rng: np.random.Generator, runs: int, length: int, *, up: float = BEHAVIOR) -> Chain:
    """Independent chains that start in the long run of their own policy."""
    odds = up / (1 - up)
    state = rng.geometric(1 - odds, runs) - 1
    states, ups = np.zeros((length + 1, runs), int), rng.random((length, runs)) < up
    states[0] = state
    for t in range(length):
        state = np.where(ups[t], state + 1, np.maximum(state - 1, 0))
        states[t + 1] = state
    return Chain(states[:-1].T, ups.T, states[1:].T)


def chain_state_ratio(state: np.ndarray) -> np.ndarray:
    """ω(x) = ((1 − c)/(1 − a)) (c/a)^x, exactly."""
    a, c = BEHAVIOR / (1 - BEHAVIOR), TARGET / (1 - TARGET)
    return (1 - c) / (1 - a) * (c / a) ** state


def chain_action_ratio(up: np.ndarray) -> np.ndarray:
    """π/μ of the direction taken."""
    return np.where(up, TARGET / BEHAVIOR, (1 - TARGET) / (1 - BEHAVIOR))


CHAIN_VALUE = -TARGET / (1 - 2 * TARGET)
"""−E x in the long run of the target: −4.5."""


def chain_differential_value(state: np.ndarray) -> np.ndarray:
    """Q(x) = −(A x² + B x), exactly."""
    a = 1 / (2 * (1 - 2 * TARGET))
    return -(a * state**2 + (CHAIN_VALUE + a) / (1 - 2 * TARGET) * state)


class Tree(NamedTuple):
    """In state s token v has log-probs ``log_mu[s, v]`` and ``log_pi[s, v]``, scores ``score[s, v]`` and leads to
    ``following[s, v]``; a completion starts in state 0 and has ``length`` tokens."""

    log_mu: np.ndarray
    log_pi: np.ndarray
    score: np.ndarray
    following: np.ndarray
    length: int

    def to_come(self, log_probs: np.ndarray) -> np.ndarray:
        """What a policy will still score, by tokens written and state: ``[T + 1, S]``, by backward induction."""
        found = [np.zeros(len(self.score))]
        for _ in range(self.length):
            found.append((np.exp(log_probs) * (self.score + found[-1][self.following])).sum(-1))
        return np.stack(found[::-1])

    def value(self, log_probs: np.ndarray) -> float:
        """A policy's mean reward."""
        return float(self.to_come(log_probs)[0, 0])


class Completions(NamedTuple):
    """``[B, T]``: log π − log μ of each token, and the target's exact value before it; ``[B]``: the reward."""

    log_ratio: np.ndarray
    value: np.ndarray
    reward: np.ndarray


def random_tree(seed: int, *, states: int, vocab: int, length: int, distance: float, scale: float = 1.0) -> Tree:
    """Random policies, scores and transitions; ``distance`` is how far the target's logits are from the behaviour's."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(states, vocab))
    target = logits + distance * rng.normal(size=(states, vocab))

    def normalized(x: np.ndarray) -> np.ndarray:
        return x - np.log(np.exp(x).sum(-1, keepdims=True))

    score = scale * rng.normal(size=(states, vocab))
    return Tree(normalized(logits), normalized(target), score, rng.integers(0, states, (states, vocab)), length)


def complete(tree: Tree, rng: np.random.Generator, count: int, *, by: np.ndarray | None = None) -> Completions:
    """Completions drawn from the behaviour, or from the log-probs ``by``."""
    cumulative = np.exp(tree.log_mu if by is None else by).cumsum(-1)
    to_come, ratio = tree.to_come(tree.log_pi), tree.log_pi - tree.log_mu
    state, total = np.zeros(count, int), np.zeros(count)
    ratios, values = np.zeros((tree.length, count)), np.zeros((tree.length, count))
    for t in range(tree.length):
        token = (rng.random((count, 1)) > cumulative[state, :-1]).sum(-1)
        ratios[t], values[t] = ratio[state, token], total + to_come[t, state]
        total = total + tree.score[state, token]
        state = tree.following[state, token]
    return Completions(ratios.T, values.T, total)
