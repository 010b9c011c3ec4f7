"""The same completions as other stacks would write them, from tabular policies whose every number is known."""

from typing import Any, NamedTuple

import numpy as np

from trustax.testing.tokens import Tokens, random_tokens


class Completions(NamedTuple):
    """Tokens cut into completions of the given lengths, one advantage each."""

    tokens: Tokens
    lengths: tuple[int, ...]
    advantages: tuple[float, ...]

    @property
    def token_advantages(self) -> np.ndarray:
        """The advantages, one a token."""
        return np.repeat(self.advantages, self.lengths)


def completions(seed: int = 1, lengths: tuple[int, ...] = (5, 3, 1, 9), *, shift: float = 1.5) -> Completions:
    """Random ones, with advantages of both signs."""
    signs = [(-1.0) ** i * (i + 1) / 4 for i in range(len(lengths))]
    return Completions(random_tokens(seed, sum(lengths), shift=shift), lengths, tuple(signs))


def records(found: Completions, layout: str = "arrays") -> list[dict[str, Any]]:
    """One JSON-ready row a completion, in one of the layouts."""
    write = {"arrays": _arrays, "vllm": _vllm, "sglang": _sglang}[layout]
    rows, start = [], 0
    for length, advantage in zip(found.lengths, found.advantages, strict=True):
        part = slice(start, start + length)
        start += length
        log_mu, log_pi, ids = np.log(found.tokens.mu[part]), np.log(found.tokens.pi[part]), found.tokens.ids[part]
        top = found.tokens.support_ids[part, :-1]
        common = {
            "log_pi": np.take_along_axis(log_pi, ids[:, None], -1)[:, 0].tolist(),
            "advantages": advantage,
            "sum_sq_pi": (found.tokens.pi[part] ** 2).sum(-1).tolist(),
        }
        rows.append(write(ids, top, log_mu, log_pi) | common)
    return rows


def _arrays(ids: np.ndarray, top: np.ndarray, log_mu: np.ndarray, log_pi: np.ndarray) -> dict[str, Any]:
    return {
        "tokens": ids.tolist(),
        "log_mu": np.take_along_axis(log_mu, ids[:, None], -1)[:, 0].tolist(),
        "top_k_ids": top.tolist(),
        "top_k_log_mu": np.take_along_axis(log_mu, top, -1).tolist(),
        "top_k_log_pi": np.take_along_axis(log_pi, top, -1).tolist(),
    }


def _vllm(ids: np.ndarray, top: np.ndarray, log_mu: np.ndarray, log_pi: np.ndarray) -> dict[str, Any]:
    """A mapping a token with the sampled id first and then the top-K, of which it may be one."""

    def mapping(t: int) -> dict[str, Any]:
        chosen = dict.fromkeys([int(ids[t]), *top[t].tolist()])
        ranks = np.argsort(np.argsort(-log_mu[t])) + 1
        return {
            str(a): {"logprob": float(log_mu[t, a]), "rank": int(ranks[a]), "decoded_token": f"<{a}>"} for a in chosen
        }

    count = range(len(ids))
    return {
        "token_ids": ids.tolist(),
        "logprobs": [mapping(t) for t in count],
        "top_k_log_pi": [{str(a): float(log_pi[t, a]) for a in top[t].tolist()} for t in count],
    }


def _sglang(ids: np.ndarray, top: np.ndarray, log_mu: np.ndarray, log_pi: np.ndarray) -> dict[str, Any]:
    def triples(log_probs: np.ndarray, of: np.ndarray) -> list[Any]:
        return [[float(log_probs[a]), int(a), None] for a in of]

    count = range(len(ids))
    return {
        "output_ids": ids.tolist(),
        "meta_info": {
            "output_token_logprobs": [triples(log_mu[t], ids[t : t + 1])[0] for t in count],
            "output_top_logprobs": [triples(log_mu[t], top[t]) for t in count],
            "finish_reason": {"type": "stop"},
        },
        "top_k_log_pi": [triples(log_pi[t], top[t]) for t in count],
    }
