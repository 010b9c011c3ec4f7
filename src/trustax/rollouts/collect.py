"""From prompts to a scored rollout: pad, sample, decode, verify."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trustax.data.tokenizer import Tokenizer
from trustax.data.types import Example
from trustax.ops.transforms import canonical
from trustax.sampling.keys import TRAINING, sample_keys
from trustax.sampling.sampler import Generation, Sampler
from trustax.types import FinishReason, Rollout, Transform, Verdict
from trustax.verifiers.types import Request, Verifier, judge


@dataclasses.dataclass(frozen=True)
class Completion:
    """One completion as a person reads it."""

    prompt: str
    answer: str
    text: str
    token_ids: list[int]
    verdict: Verdict
    reward: float
    finish_reason: FinishReason


def bucket_length(length: int, limit: int, *, smallest: int = 16) -> int:
    """The smallest of ``smallest·2^k`` that holds ``length``, never beyond ``limit``: few shapes, few compilations."""
    if length > limit:
        raise ValueError(f"a sequence of {length} tokens is longer than the limit of {limit}")
    bucket = smallest
    while bucket < length:
        bucket *= 2
    return min(bucket, limit)


def pad_prompts(prompts: Sequence[Sequence[int]], *, limit: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
    """Prompts padded on the left to a common bucket: tokens and which of them exist, both ``[P, Tp]``."""
    if any(len(prompt) == 0 for prompt in prompts):
        raise ValueError("an empty prompt: every prompt needs at least one token")
    width = bucket_length(max(len(prompt) for prompt in prompts), limit)
    tokens = np.full((len(prompts), width), pad_id, np.int32)
    valid = np.zeros((len(prompts), width), bool)
    for row, prompt in enumerate(prompts):
        tokens[row, width - len(prompt) :] = prompt
        valid[row, width - len(prompt) :] = True
    return tokens, valid


@dataclasses.dataclass(frozen=True)
class Collector:
    """Everything that turns a batch of examples into a rollout with verdicts."""

    sampler: Sampler
    tokenizer: Tokenizer
    verifier: Verifier
    encode: Callable[[Example], list[int]]
    group_size: int
    max_prompt_tokens: int
    transform: Transform
    seed: int
    stream: int = TRAINING

    def __call__(
        self, params: Any, examples: Sequence[Example], *, step: int, version: int, round_number: int = 0
    ) -> tuple[Rollout, list[Completion]]:
        """Sample ``group_size`` completions of each example; rows of one prompt stand together.

        ``round_number`` tells several calls of one step apart: an example that comes again gets other samples.
        """
        prompts = [self.encode(example) for example in examples]
        tokens, valid = pad_prompts(prompts, limit=self.max_prompt_tokens, pad_id=self.tokenizer.pad_id)
        prompt_index = np.repeat(np.arange(len(examples), dtype=np.int32), self.group_size)
        group_id = np.array([example.index for example in examples], np.int32)[prompt_index]
        sample_index = _sample_indices([example.index for example in examples], self.group_size)
        sample_index += round_number * len(sample_index)
        keys = sample_keys(self.seed, step, jnp.asarray(group_id), jnp.asarray(sample_index), stream=self.stream)
        generation = self.sampler(params, tokens, valid, prompt_index, keys, self.transform)
        completions = self._verify(jax.device_get(generation), [examples[i] for i in prompt_index.tolist()])
        rollout = Rollout(
            prompt_tokens=jnp.asarray(tokens),
            prompt_valid=jnp.asarray(valid),
            prompt_index=jnp.asarray(prompt_index),
            group_id=jnp.asarray(group_id),
            sample_index=jnp.asarray(sample_index),
            tokens=generation.tokens,
            token_mask=generation.token_mask,
            log_mu=generation.log_mu,
            tail_log_mu=generation.tail_log_mu,
            version=jnp.full(generation.tokens.shape, version, jnp.int32),
            top_k=generation.top_k,
            finish_reason=generation.finish_reason,
            rewards=jnp.asarray([completion.reward for completion in completions], jnp.float32),
            verdict=jnp.asarray([int(completion.verdict) for completion in completions], jnp.int32),
            routes=generation.routes,
            prompt_routes=generation.prompt_routes,
            transform=canonical(self.transform),
        )
        return rollout, completions

    def _verify(self, generation: Generation, examples: Sequence[Example]) -> list[Completion]:
        rows = [
            [int(i) for i in tokens[mask]]
            for tokens, mask in zip(generation.tokens, generation.token_mask, strict=True)
        ]
        texts = [self.tokenizer.decode([i for i in ids if i not in self.tokenizer.eos_ids]) for ids in rows]
        requests = [
            Request(text, example.prompt, example.answer, example.metadata)
            for text, example in zip(texts, examples, strict=True)
        ]
        return [
            Completion(
                prompt=request.example_prompt,
                answer=request.answer,
                text=request.completion,
                token_ids=rows[row],
                verdict=outcome.verdict,
                reward=outcome.reward,
                finish_reason=FinishReason(int(generation.finish_reason[row])),
            )
            for row, (request, outcome) in enumerate(zip(requests, judge(self.verifier, requests), strict=True))
        ]


def _sample_indices(indices: Sequence[int], group_size: int) -> np.ndarray:
    """Number the completions of each example; one that a batch holds twice gets one group of twice the size."""
    seen: dict[int, int] = {}
    rows = []
    for index in indices:
        start = seen.get(index, 0)
        rows.append(np.arange(start, start + group_size, dtype=np.int32))
        seen[index] = start + group_size
    return np.concatenate(rows)
