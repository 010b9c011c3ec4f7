"""The supervised warm start of a policy from scratch: maximise log π of given answers."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from trustax.policies import Policy, join
from trustax.rollouts.collect import pad_prompts
from trustax.scoring.score import score
from trustax.training.config import OptimizerConfig, SupervisedConfig
from trustax.training.optimizer import apply_update, init_optimizer, make_optimizer
from trustax.types import FinishReason, Rollout


def teacher_rollout(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    *,
    max_prompt_tokens: int,
    max_new_tokens: int,
    pad_id: int,
) -> Rollout:
    """Given answers in the form of a rollout, so that one scoring function serves both; μ is unknown: NaN."""
    tokens, valid = pad_prompts(prompts, limit=max_prompt_tokens, pad_id=pad_id)
    answers = np.full((len(completions), max_new_tokens), pad_id, np.int32)
    mask = np.zeros(answers.shape, bool)
    for row, completion in enumerate(completions):
        if len(completion) > max_new_tokens:
            raise ValueError(f"answer {row} has {len(completion)} tokens, more than max_new_tokens = {max_new_tokens}")
        answers[row, : len(completion)] = completion
        mask[row, : len(completion)] = True
    rows = jnp.arange(len(prompts), dtype=jnp.int32)
    return Rollout(
        prompt_tokens=jnp.asarray(tokens),
        prompt_valid=jnp.asarray(valid),
        prompt_index=rows,
        group_id=rows,
        sample_index=jnp.zeros_like(rows),
        tokens=jnp.asarray(answers),
        token_mask=jnp.asarray(mask),
        log_mu=jnp.full(answers.shape, jnp.nan, jnp.float32),
        tail_log_mu=None,
        version=jnp.zeros(answers.shape, jnp.int32),
        top_k=None,
        finish_reason=jnp.full(len(prompts), int(FinishReason.STOP), jnp.int32),
    )


def warm_start(policy: Policy, params: Any, batches: Sequence[Rollout], config: SupervisedConfig) -> tuple[Any, float]:
    """Take one optimizer step a batch; returns the parameters and the last batch's loss per token in nats."""
    optimizer = make_optimizer(OptimizerConfig(learning_rate=config.learning_rate))
    trained, frozen = policy.split(params)
    opt_state = init_optimizer(optimizer, trained)

    def loss(trained: Any, frozen: Any, batch: Rollout) -> jax.Array:
        log_pi = score(policy, join(trained, frozen), batch).log_pi
        return -jnp.mean(log_pi, where=batch.token_mask)

    @jax.jit
    def step(
        trained: Any, frozen: Any, opt_state: optax.OptState, batch: Rollout
    ) -> tuple[Any, optax.OptState, jax.Array]:
        value, grads = jax.value_and_grad(loss)(trained, frozen, batch)
        rate = jnp.float32(config.learning_rate)
        new = apply_update(optimizer, grads, opt_state, trained, rate=rate, clip_norm=jnp.float32(1.0))
        return new.params, new.opt_state, value

    value = jnp.float32(jnp.nan)
    for batch in batches:
        trained, opt_state, value = step(trained, frozen, opt_state, batch)
    return join(trained, frozen), float(value)
