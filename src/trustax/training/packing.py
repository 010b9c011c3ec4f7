"""Prompts with given answers, several in a row: packed rows have the losses of unpacked ones, and little padding."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trustax.policies.policy import Policy
from trustax.types import pytree_dataclass

CHUNK_TOKENS = 512


@pytree_dataclass
class Packed:
    """Rows of whole sequences. ``targets[t]`` is the token after ``tokens[t]``; ``target_mask`` says where it is
    answered.

    ``positions`` begin at 0 with every sequence: that is how the decoder tells them apart.
    """

    tokens: Int[Array | np.ndarray, "B L"]
    positions: Int[Array | np.ndarray, "B L"]
    valid: Bool[Array | np.ndarray, "B L"]
    targets: Int[Array | np.ndarray, "B L"]
    target_mask: Bool[Array | np.ndarray, "B L"]


def pack(
    prompts: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
    *,
    length: int,
    pad_id: int,
    packed: bool = True,
) -> Packed:
    """Put sequences into rows of ``length``, each into the first row where it fits; one a row unless ``packed``.

    The number of rows is rounded up to a power of two, so that few shapes are compiled.
    """
    whole = [([*prompt, *answer], len(prompt)) for prompt, answer in zip(prompts, answers, strict=True)]
    rows: list[list[tuple[list[int], int]]] = []
    room: list[int] = []
    for place, (ids, start) in enumerate(whole):
        if not 0 < start < len(ids):
            raise ValueError(
                f"sequence {place} has a prompt of {start} tokens and {len(ids) - start} to learn; both take one"
            )
        if len(ids) > length:
            raise ValueError(
                f"sequence {place} has {len(ids)} tokens, a row holds {length}: raise the lengths or drop it"
            )
        row = next((r for r, free in enumerate(room) if packed and free >= len(ids)), len(rows))
        if row == len(rows):
            rows.append([])
            room.append(length)
        rows[row].append((ids, start))
        room[row] -= len(ids)
    shape = (1 << max(len(rows) - 1, 0).bit_length(), length)
    tokens, targets = np.full(shape, pad_id, np.int32), np.full(shape, pad_id, np.int32)
    positions = np.zeros(shape, np.int32)
    valid, target_mask = np.zeros(shape, bool), np.zeros(shape, bool)
    for row, sequences in enumerate(rows):
        begin = 0
        for ids, start in sequences:
            end = begin + len(ids)
            tokens[row, begin:end], positions[row, begin:end], valid[row, begin:end] = ids, np.arange(len(ids)), True
            targets[row, begin : end - 1] = ids[1:]
            target_mask[row, begin + start - 1 : end - 1] = True
            begin = end
    return Packed(tokens=tokens, positions=positions, valid=valid, targets=targets, target_mask=target_mask)


def loss_sum(policy: Policy, params: Any, batch: Packed) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The sum of -log π over the answers' tokens, and their number; logits exist for a chunk of tokens at a time."""
    hidden, _, _ = policy.apply(params, batch.tokens, batch.positions, batch.valid, None)
    count = batch.tokens.size
    padding = -count % min(CHUNK_TOKENS, count)

    def in_chunks(x: Array | np.ndarray) -> Array:
        flat = jnp.asarray(x).reshape(count, *x.shape[2:])
        return jnp.pad(flat, [(0, padding)] + [(0, 0)] * (flat.ndim - 1)).reshape(
            -1, min(CHUNK_TOKENS, count), *x.shape[2:]
        )

    @jax.checkpoint
    def chunk_loss(chunk: tuple[Array, Array, Array]) -> Array:
        rows, targets, mask = chunk
        logits = policy.head(params, rows).astype(jnp.float32)
        log_pi = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=-1), targets[:, None], axis=-1)[:, 0]
        return -jnp.sum(jnp.where(mask, log_pi, 0.0))

    losses = jax.lax.map(chunk_loss, (in_chunks(hidden), in_chunks(batch.targets), in_chunks(batch.target_mask)))
    return losses.sum(), jnp.asarray(batch.target_mask).sum().astype(jnp.float32)
