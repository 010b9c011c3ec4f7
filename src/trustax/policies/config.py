"""What a decoder is, as data: every family of models is one value of ``ArchitectureConfig``.

Dimension letters: ``V`` vocabulary, ``L`` layers, ``D`` model, ``H`` query heads, ``N`` key/value heads, ``F``
feed-forward.
"""

import dataclasses
from typing import Literal, get_args

from trustax.typed import refuse, type_problems

RopeScaling = Literal["none", "linear", "llama3"]
Activation = Literal["silu", "gelu_tanh"]


@dataclasses.dataclass(frozen=True)
class RopeConfig:
    """Rotary position embedding. The last three fields are read only when ``scaling`` is ``"llama3"``."""

    theta: float = 10_000.0
    scaling: RopeScaling = "none"
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_context_length: int = 8192

    def __post_init__(self) -> None:
        if self.scaling not in get_args(RopeScaling):
            raise ValueError(f"rope scaling {self.scaling!r} is not implemented; known: {get_args(RopeScaling)}")


@dataclasses.dataclass(frozen=True)
class ArchitectureConfig:
    """The shape and the switches of a decoder.

    ``vocab_size`` counts real tokens; the embedding may have more rows (``embedding_rows``), which are padding: they
    are never scored and never sampled. ``layer_windows`` holds one attention window per layer, ``None`` for full
    attention; the empty tuple says that no layer has a window.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    mlp_size: int
    context_length: int
    embedding_rows: int | None = None
    rope: RopeConfig = RopeConfig()
    local_rope: RopeConfig | None = None  # for layers with a window, where it differs (Gemma 3)
    norm_eps: float = 1e-6
    norm_plus_one: bool = False  # scale by 1 + w (Gemma)
    post_norms: bool = False  # a norm after attention and after the MLP too (Gemma 2 and 3)
    qk_norm: bool = False
    qkv_bias: bool = False
    tie_embeddings: bool = True
    scale_embeddings: bool = False  # multiply embeddings by √D (Gemma)
    activation: Activation = "silu"
    attention_scale: float | None = None  # None: head_dim ** -0.5
    attention_soft_cap: float | None = None
    logit_soft_cap: float | None = None
    layer_windows: tuple[int | None, ...] = ()
    num_experts: int = 0  # 0: one dense MLP a layer; otherwise mlp_size is that of one expert
    experts_per_token: int = 0
    normalize_routes: bool = True  # the chosen experts' shares sum to one

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be at least 1, got {value}"
            for name, value in (
                ("vocab_size", self.vocab_size),
                ("hidden_size", self.hidden_size),
                ("num_layers", self.num_layers),
                ("num_heads", self.num_heads),
                ("num_kv_heads", self.num_kv_heads),
                ("head_dim", self.head_dim),
                ("mlp_size", self.mlp_size),
                ("context_length", self.context_length),
            )
            if value < 1
        ]
        if self.num_kv_heads > 0 and self.num_heads % self.num_kv_heads:
            problems.append(f"num_heads ({self.num_heads}) must be a multiple of num_kv_heads ({self.num_kv_heads})")
        if self.head_dim % 2:
            problems.append(f"head_dim must be even for rotary embeddings, got {self.head_dim}")
        if self.embedding_rows is not None and self.embedding_rows < self.vocab_size:
            problems.append(f"embedding_rows ({self.embedding_rows}) must be at least vocab_size ({self.vocab_size})")
        if self.layer_windows and len(self.layer_windows) != self.num_layers:
            problems.append(f"layer_windows has {len(self.layer_windows)} entries for {self.num_layers} layers")
        if any(window is not None and window < 1 for window in self.layer_windows):
            problems.append(f"a window must be at least 1 or None, got {self.layer_windows}")
        if self.activation not in get_args(Activation):
            problems.append(f"activation {self.activation!r} is not implemented; known: {get_args(Activation)}")
        if not (0 < self.experts_per_token <= self.num_experts or self.num_experts == self.experts_per_token == 0):
            problems.append(
                f"experts_per_token must be 1 to num_experts ({self.num_experts}), and 0 without experts, "
                f"got {self.experts_per_token}"
            )
        if problems:
            raise ValueError("architecture: " + "; ".join(problems))

    @property
    def rows(self) -> int:
        """Rows of the embedding table: the real tokens and the padding."""
        return self.vocab_size if self.embedding_rows is None else self.embedding_rows

    def with_vocab_size(self, vocab_size: int) -> "ArchitectureConfig":
        """The same decoder for a tokenizer of ``vocab_size`` tokens: embedding rows beyond them become padding."""
        check_tokenizer_fits(self, vocab_size)
        return dataclasses.replace(self, vocab_size=vocab_size, embedding_rows=self.rows)


def check_tokenizer_fits(config: ArchitectureConfig, vocab_size: int) -> None:
    """Refuse a tokenizer that has ids without a row in the embedding.

    Raises:
        ValueError: ``vocab_size`` (largest token id + 1) exceeds the rows of the embedding.
    """
    if vocab_size > config.rows:
        raise ValueError(
            f"the tokenizer has {vocab_size} tokens but the embedding has {config.rows} rows: ids "
            f"{config.rows}..{vocab_size - 1} have no embedding; use the tokenizer the weights were trained with"
        )


def tiny_config(
    vocab_size: int,
    *,
    hidden_size: int = 128,
    num_layers: int = 3,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    mlp_size: int = 384,
    context_length: int = 256,
) -> ArchitectureConfig:
    """A character-level decoder of about half a million parameters, for tests and for training from scratch."""
    return ArchitectureConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=hidden_size // num_heads,
        mlp_size=mlp_size,
        context_length=context_length,
        qk_norm=True,
    )


@dataclasses.dataclass(frozen=True)
class LoraConfig:
    """Low-rank adapters of the linear maps in ``targets``, in place of training all parameters; ``rank`` 0 for none.

    ``adapter`` is a folder in PEFT's layout to start from.
    """

    rank: int = 0
    alpha: float = 32.0
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    adapter: str | None = None

    def __post_init__(self) -> None:
        refuse(self, type_problems(self) or self._range_problems())

    def _range_problems(self) -> list[str]:
        problems = []
        if self.rank < 0:
            problems.append(f"rank must be at least 0, got {self.rank}")
        if self.alpha <= 0:
            problems.append(f"alpha must be above 0, got {self.alpha}")
        if self.rank and (not self.targets or len(set(self.targets)) < len(self.targets)):
            problems.append(f"targets must be at least one name, each once, got {list(self.targets)}")
        if self.adapter is not None and not self.rank:
            problems.append(
                "adapter is given, but rank is 0; set rank, alpha and targets as its adapter_config.json has"
            )
        return problems

    @property
    def scale(self) -> float:
        """What ``x A B`` is multiplied by."""
        return self.alpha / self.rank


ValueHead = Literal["none", "shared", "own"]


@dataclasses.dataclass(frozen=True)
class PolicyConfig:
    """The policy of an experiment: ``source`` is ``"tiny"`` (from scratch) or a path that ``load`` reads.

    ``start`` is a run folder, of `trustax sft` for one: training starts from its last parameters.
    ``value_head`` is for advantages by GAE: values read off the policy's own hidden states, or off a second trunk that
    starts as a copy (with ``lora``: adapters of its own on the same base).
    """

    source: str = "tiny"
    dtype: str = "float32"
    remat: bool = False
    start: str | None = None
    lora: LoraConfig = LoraConfig()
    value_head: ValueHead = "none"

    def __post_init__(self) -> None:
        refuse(self, type_problems(self))
