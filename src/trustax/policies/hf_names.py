"""One table: a tensor of our tree, its name in Hugging Face checkpoints and in GGUF files, and its orientation."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from trustax.policies.config import ArchitectureConfig


class Tensor(NamedTuple):
    """One leaf of the parameter tree. ``{}`` in a file's name stands for the layer, a second one for the expert.

    Such leaves are stacked: files hold one tensor for each layer and expert. ``transpose`` says that files hold
    ``[outputs, inputs]`` and the tree ``[inputs, outputs]``. ``permuted_heads`` says that GGUF files of the Llama
    architecture interleave the two rotary halves of each head.
    """

    path: tuple[str, ...]
    hf: str
    gguf: str | None
    shape: Callable[[ArchitectureConfig], tuple[int, ...]]
    transpose: bool = False
    when: Callable[[ArchitectureConfig], bool] = lambda config: True
    permuted_heads: Callable[[ArchitectureConfig], int] | None = None

    def stack(self, config: ArchitectureConfig) -> tuple[int, ...]:
        """The leading axes of the leaf along which files hold one tensor each."""
        return (config.num_layers, config.num_experts)[: self.hf.count("{}")]

    def file_shape(self, config: ArchitectureConfig) -> tuple[int, ...]:
        """The shape of one tensor in a file."""
        shape = self.shape(config)
        return shape[::-1] if self.transpose else shape

    def tree_shape(self, config: ArchitectureConfig) -> tuple[int, ...]:
        """The shape of the leaf in the tree."""
        return (*self.stack(config), *self.shape(config))

    def files(self, config: ArchitectureConfig, template: str) -> dict[tuple[int, ...], str]:
        """The names of its tensors in files, by their place in the stack; ``template`` is ``hf`` or ``gguf``."""
        return {index: template.format(*index) for index in np.ndindex(self.stack(config))}


def _model(c: ArchitectureConfig) -> tuple[int, ...]:
    return (c.hidden_size,)


def _head(c: ArchitectureConfig) -> tuple[int, ...]:
    return (c.head_dim,)


def _queries(c: ArchitectureConfig) -> tuple[int, ...]:
    return (c.num_heads * c.head_dim,)


def _keys(c: ArchitectureConfig) -> tuple[int, ...]:
    return (c.num_kv_heads * c.head_dim,)


def _mlp(c: ArchitectureConfig) -> tuple[int, ...]:
    return (c.mlp_size,)


def _experts(c: ArchitectureConfig) -> tuple[int, ...]:
    return (c.num_experts,)


def _dense(c: ArchitectureConfig) -> bool:
    return c.num_experts == 0


def _sparse(c: ArchitectureConfig) -> bool:
    return c.num_experts > 0


def _table(c: ArchitectureConfig) -> tuple[int, ...]:
    return (c.rows, c.hidden_size)


def _layer(path: str, hf: str, gguf: str | None, ins, outs=None, **options) -> Tensor:
    """A tensor of each layer: a vector of size ``ins``, or a kernel from ``ins`` to ``outs``."""
    return Tensor(
        ("layers", *path.split(".")),
        f"model.layers.{{}}.{hf}",
        None if gguf is None else f"blk.{{}}.{gguf}",
        ins if outs is None else lambda c: (*ins(c), *outs(c)),
        transpose=outs is not None,
        **options,
    )


TENSORS: tuple[Tensor, ...] = (
    Tensor(("embedding",), "model.embed_tokens.weight", "token_embd.weight", _table),
    Tensor(("head",), "lm_head.weight", "output.weight", _table, when=lambda c: not c.tie_embeddings),
    Tensor(("final_norm", "scale"), "model.norm.weight", "output_norm.weight", _model),
    _layer("attention_norm.scale", "input_layernorm.weight", "attn_norm.weight", _model),
    _layer(
        "attention.query.kernel", "self_attn.q_proj.weight", "attn_q.weight", _model, _queries,
        permuted_heads=lambda c: c.num_heads,
    ),
    _layer(
        "attention.key.kernel", "self_attn.k_proj.weight", "attn_k.weight", _model, _keys,
        permuted_heads=lambda c: c.num_kv_heads,
    ),
    _layer("attention.value.kernel", "self_attn.v_proj.weight", "attn_v.weight", _model, _keys),
    _layer("attention.output.kernel", "self_attn.o_proj.weight", "attn_output.weight", _queries, _model),
    _layer("attention.query.bias", "self_attn.q_proj.bias", None, _queries, when=lambda c: c.qkv_bias),
    _layer("attention.key.bias", "self_attn.k_proj.bias", None, _keys, when=lambda c: c.qkv_bias),
    _layer("attention.value.bias", "self_attn.v_proj.bias", None, _keys, when=lambda c: c.qkv_bias),
    _layer("attention.query_norm.scale", "self_attn.q_norm.weight", None, _head, when=lambda c: c.qk_norm),
    _layer("attention.key_norm.scale", "self_attn.k_norm.weight", None, _head, when=lambda c: c.qk_norm),
    # Gemma 2 and 3 call the norm after attention what the others call the norm before the MLP.
    _layer(
        "attention_post_norm.scale", "post_attention_layernorm.weight", None, _model, when=lambda c: c.post_norms
    ),
    _layer("mlp_norm.scale", "pre_feedforward_layernorm.weight", None, _model, when=lambda c: c.post_norms),
    _layer("mlp_post_norm.scale", "post_feedforward_layernorm.weight", None, _model, when=lambda c: c.post_norms),
    _layer(
        "mlp_norm.scale", "post_attention_layernorm.weight", "ffn_norm.weight", _model,
        when=lambda c: not c.post_norms,
    ),
    _layer("mlp.gate.kernel", "mlp.gate_proj.weight", "ffn_gate.weight", _model, _mlp, when=_dense),
    _layer("mlp.up.kernel", "mlp.up_proj.weight", "ffn_up.weight", _model, _mlp, when=_dense),
    _layer("mlp.down.kernel", "mlp.down_proj.weight", "ffn_down.weight", _mlp, _model, when=_dense),
    _layer("mlp.router", "mlp.gate.weight", None, _model, _experts, when=_sparse),
    _layer("mlp.gate", "mlp.experts.{}.gate_proj.weight", None, _model, _mlp, when=_sparse),
    _layer("mlp.up", "mlp.experts.{}.up_proj.weight", None, _model, _mlp, when=_sparse),
    _layer("mlp.down", "mlp.experts.{}.down_proj.weight", None, _mlp, _model, when=_sparse),
)  # fmt: skip

# Buffers that old checkpoints carry and that follow from the config.
DERIVED_SUFFIXES = ("rotary_emb.inv_freq", "self_attn.bias", "self_attn.masked_bias")


def tensors(config: ArchitectureConfig) -> tuple[Tensor, ...]:
    """The table's rows for ``config``: together they are the whole parameter tree."""
    return tuple(tensor for tensor in TENSORS if tensor.when(config))
