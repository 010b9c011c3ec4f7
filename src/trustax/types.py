"""The records that travel between layers: rollouts, token statistics, metrics.

All are frozen dataclasses registered as pytrees, so that they pass through ``jit`` and ``grad``. Dimension letters:
``P`` prompts, ``B`` sequences, ``T`` completion tokens, ``K`` stored top-K entries, ``V`` vocabulary. ``T`` counts
completion tokens only: index ``t`` is the probability *of* completion token ``t``.
"""

import dataclasses
import enum
import functools
from collections.abc import Iterable
from typing import Any, Literal, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Cls = TypeVar("Cls", bound=type)


def static_field(**kwargs: Any) -> Any:
    """A dataclass field that is part of the pytree's structure: changing it recompiles."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


@dataclass_transform(frozen_default=True, field_specifiers=(static_field, dataclasses.field))
def pytree_dataclass(cls: Cls) -> Cls:
    """Make ``cls`` a frozen dataclass and a pytree; ``static_field`` fields are structure, the others are leaves.

    JAX rebuilds a pytree with whatever stands for its leaves (shapes, axis numbers, ``None``), so rebuilding goes past
    ``__init__``: the tests check there that the fields' shapes agree.
    """
    cls = dataclasses.dataclass(frozen=True)(cls)
    static = [field.name for field in dataclasses.fields(cls) if field.metadata.get("static", False)]
    leaves = [field.name for field in dataclasses.fields(cls) if field.name not in static]

    def flatten_with_keys(node: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        keyed = [(jax.tree_util.GetAttrKey(name), getattr(node, name)) for name in leaves]
        return keyed, tuple(getattr(node, name) for name in static)

    def unflatten(structure: tuple[Any, ...], children: Iterable[Any]) -> Any:
        node = object.__new__(cls)
        node.__dict__.update(zip(leaves, children, strict=True), **dict(zip(static, structure, strict=True)))
        return node

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten)
    return cls


class FinishReason(enum.IntEnum):
    """Why a completion ended: by a stop token, or by its length limit."""

    STOP = 0
    LENGTH = 1


class Verdict(enum.IntEnum):
    """What a verifier found; only ``CORRECT`` and ``WRONG`` are judgements of the answer."""

    CORRECT = 0
    WRONG = 1
    UNPARSABLE = 2
    TIMEOUT = 3
    ERROR = 4


@pytree_dataclass
class Transform:
    """The map from raw logits to the distribution that is sampled, shared by sampler and scorer.

    ``temperature`` is a leaf, so that changing it does not recompile; it is greater than 0. ``greedy`` takes the
    arg-max; the reported log-probs are then still those of the tempered distribution. ``top_p`` keeps the fewest most
    probable tokens with that mass, for evaluation: training on what was sampled so would need its support stored.
    """

    temperature: Float[Array, ""] | float | int = 1.0
    greedy: bool = static_field(default=False)
    top_p: Float[Array, ""] | float | int | None = None


@pytree_dataclass
class TopK:
    """The K most probable tokens under μ, sorted from the most probable one; NaN where the position is invalid."""

    ids: Int[Array, "*B T K"]
    log_mu: Float[Array, "*B T K"]


@pytree_dataclass
class Support:
    """TopK(μ) ∪ {y} with the log-probs of both policies, and the log-masses of what is left outside.

    Slots ``0..K-1`` are TopK(μ) by rank. Slot ``K`` holds the sampled token y and is valid only if y is not among
    them; ``sampled_slot`` points at y. Only slots where ``mask`` is true are ever read. The three ``tail_*`` fields
    come from a pass over the logits: log μ_T, log π_T and log Σ_T π² of the complement T (−inf where it is empty).
    """

    ids: Int[Array, "*B T K1"]
    log_mu: Float[Array, "*B T K1"]
    log_pi: Float[Array, "*B T K1"]
    mask: Bool[Array, "*B T K1"]
    sampled_slot: Int[Array, "*B T"]
    tail_log_mu: Float[Array, "*B T"] | None = None
    tail_log_pi: Float[Array, "*B T"] | None = None
    tail_log_sum_sq_pi: Float[Array, "*B T"] | None = None


@pytree_dataclass
class TokenStats:
    """All that an objective may look at: one number (or K+1 numbers) per completion token.

    ``log_pi`` is differentiable. ``advantages`` are already broadcast to ``[B, T]``. Values where ``token_mask`` is
    false are never read. ``vocab_size`` is the number of real tokens, without padding of the head.
    """

    log_pi: Float[Array, "*B T"]
    log_mu: Float[Array, "*B T"]
    advantages: Float[Array, "*B T"]
    token_mask: Bool[Array, "*B T"]
    log_anchor: Float[Array, "*B T"] | None = None
    log_ref: Float[Array, "*B T"] | None = None
    entropy: Float[Array, "*B T"] | None = None
    sum_sq_pi: Float[Array, "*B T"] | None = None
    divergence_rate: Float[Array, "*B T"] | None = None
    policy_staleness: Int[Array, "*B T"] | None = None
    support: Support | None = None
    vocab_size: int | None = static_field(default=None)

    def replace(self, **changes: Any) -> "TokenStats":
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)


@pytree_dataclass
class Rollout:
    """A batch of completions with everything known about the distribution they were drawn from.

    ``prompt_tokens`` are padded on the left, ``tokens`` on the right. Row ``b`` continues prompt row
    ``prompt_index[b]``; ``group_id`` and ``sample_index`` name the prompt in the data set and the completion within
    its group. ``log_mu``, ``tail_log_mu`` and ``top_k.log_mu`` are of the transformed distribution and NaN at invalid
    positions. ``version`` is the policy version that produced each token.

    ``routes`` says which experts of each layer the token went to when it was read, −1 where it was not (the last token
    of a row never is); whoever scores the rollout replays them. ``prompt_routes`` are those of the prompts.
    """

    prompt_tokens: Int[Array, "P Tp"]
    prompt_valid: Bool[Array, "P Tp"]
    prompt_index: Int[Array, "B"]
    group_id: Int[Array, "B"]
    sample_index: Int[Array, "B"]
    tokens: Int[Array, "B T"]
    token_mask: Bool[Array, "B T"]
    log_mu: Float[Array, "B T"]
    tail_log_mu: Float[Array, "B T"] | None
    version: Int[Array, "B T"]
    top_k: TopK | None
    finish_reason: Int[Array, "B"]
    rewards: Float[Array, "B"] | None = None
    verdict: Int[Array, "B"] | None = None
    routes: Int[Array, "B T L E"] | None = None
    prompt_routes: Int[Array, "P Tp L E"] | None = None
    transform: Transform = dataclasses.field(default_factory=Transform)

    def replace(self, **changes: Any) -> "Rollout":
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)


Reduction = Literal["mean", "sum", "max", "min"]


@pytree_dataclass
class Metric:
    """A statistic that can be merged exactly across micro-batches and shards.

    A mean carries ``total`` and ``weight``; an absent category has weight 0 and is left out of a log instead of being
    reported as NaN. For the other reductions ``total`` is the value and a weight of 0 says that nothing was seen.
    """

    total: Float[Array, ""]
    weight: Float[Array, ""]
    reduction: Reduction = static_field(default="mean")

    def merge(self, other: "Metric") -> "Metric":
        """The statistic of both parts together."""
        combine = {"mean": jnp.add, "sum": jnp.add, "max": jnp.maximum, "min": jnp.minimum}[self.reduction]
        empty = {"mean": 0.0, "sum": 0.0, "max": -jnp.inf, "min": jnp.inf}[self.reduction]
        mine = jnp.where(self.weight > 0, self.total, empty)
        theirs = jnp.where(other.weight > 0, other.total, empty)
        weight = jnp.add(self.weight, other.weight)  # also where both are numpy scalars, on the host
        return Metric(jnp.where(weight > 0, combine(mine, theirs), 0.0), weight, self.reduction)

    def compute(self) -> Array:
        """The value; 0 where nothing was seen (look at ``weight`` before you log it)."""
        safe_weight = jnp.where(self.weight > 0, self.weight, 1.0)
        return self.total / safe_weight if self.reduction == "mean" else self.total

    def __float__(self) -> float:
        return float(self.compute())


def merge_metrics(parts: list[dict[str, Metric]]) -> dict[str, Metric]:
    """Merge the metrics of several micro-batches; a name that some parts lack is merged over those that have it."""
    names = list(dict.fromkeys(name for part in parts for name in part))
    return {name: functools.reduce(Metric.merge, [part[name] for part in parts if name in part]) for name in names}
