"""Read GGUF files of the Llama architecture through the ``gguf`` library, which is imported only here and lazily."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from trustax.policies.assemble import Index, Stored
from trustax.policies.config import ArchitectureConfig, RopeConfig
from trustax.policies.hf_names import TENSORS, Tensor

# Metadata that changes nothing in the network: descriptions, the tokenizer, how tensors are packed.
IGNORED_PREFIXES = ("GGUF.", "general.", "tokenizer.", "quantize.")
SIZES = {
    "llama.embedding_length": "hidden_size",
    "llama.block_count": "num_layers",
    "llama.attention.head_count": "num_heads",
    "llama.attention.head_count_kv": "num_kv_heads",
    "llama.feed_forward_length": "mlp_size",
    "llama.context_length": "context_length",
}
NORM_EPS = "llama.attention.layer_norm_rms_epsilon"
ROPE_THETA = "llama.rope.freq_base"
REPEATED = ("llama.vocab_size", "llama.rope.dimension_count", "llama.attention.key_length",
            "llama.attention.value_length")  # fmt: skip

# Byte-level pre-tokenizers by GGUF's name: whether digits are split one by one first.
SINGLE_DIGITS = {"smollm": True, "gpt-2": False}
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


def read_gguf(path: Path) -> tuple[ArchitectureConfig, dict[str, Stored]]:
    """The architecture and the tensors of a GGUF file; quantised tensors are expanded when they are read."""
    import gguf

    reader = _open(path)
    stored = {}
    for tensor in reader.tensors:
        shape = tuple(int(size) for size in reversed(tensor.shape))

        def read(index: Index, tensor=tensor, shape=shape) -> np.ndarray:
            rows = tensor.data[index[0]] if len(shape) > 1 else tensor.data
            values = gguf.dequantize(rows, tensor.tensor_type).reshape(-1, *shape[1:])
            return values[:, *index[1:]] if len(shape) > 1 else values[index]

        stored[tensor.name] = Stored(shape, np.dtype(np.float32), read)
    config = _config(path, {name: field.contents() for name, field in _small(reader)}, stored)
    return config, {name: _unpermuted(name, tensor, config) for name, tensor in stored.items()}


def gguf_name(tensor: Tensor) -> str | None:
    """The tensor's name in a GGUF file."""
    return tensor.gguf


def export_tokenizer(path: Path, folder: Path) -> None:
    """Write the tokenizer inside a GGUF file as ``tokenizer.json`` and ``tokenizer_config.json`` into ``folder``."""
    fields = _open(path).fields
    metadata = {name: field.contents() for name, field in fields.items() if name.startswith("tokenizer.")}
    model, kind = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if model != "gpt2" or kind not in SINGLE_DIGITS:
        raise ValueError(
            f"{path}: its tokenizer is {model!r} with pre-tokenizer {kind!r}; only byte-level BPE (gpt2) with one of "
            f"{sorted(SINGLE_DIGITS)} is implemented; put the model's own tokenizer.json beside the file"
        )
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    added = [
        {"id": i, "content": token, "special": kinds[i] == CONTROL, "normalized": False,
         "single_word": False, "lstrip": False, "rstrip": False}
        for i, token in enumerate(tokens)
        if kinds[i] in (CONTROL, USER_DEFINED)
    ]  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = [{"type": "Digits", "individual_digits": True}] if SINGLE_DIGITS[kind] else []
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*digits, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in metadata["tokenizer.ggml.merges"]],
        },
    }  # fmt: skip
    settings: dict[str, Any] = {"add_bos_token": bool(metadata.get("tokenizer.ggml.add_bos_token", False))}
    for role in ("bos", "eos", "unk", "pad"):
        key = {"unk": "unknown", "pad": "padding"}.get(role, role)
        token_id = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if token_id is not None:
            settings[f"{role}_token"] = tokens[token_id]
    if "tokenizer.chat_template" in metadata:
        settings["chat_template"] = metadata["tokenizer.chat_template"]
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "tokenizer_config.json", settings)
    _write_json(folder / "tokenizer.json", tokenizer)  # last: its presence says that both are whole


def _open(path: Path) -> Any:
    import gguf

    try:
        return gguf.GGUFReader(path)
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        raise ValueError(f"{path}: not a readable GGUF file, or a truncated one ({error}); fetch it again") from error


def _small(reader: Any) -> list[tuple[str, Any]]:
    """Fields apart from the tokenizer's, whose lists take a second to decode."""
    return [(name, field) for name, field in reader.fields.items() if not name.startswith("tokenizer.")]


def _config(path: Path, metadata: dict[str, Any], stored: dict[str, Stored]) -> ArchitectureConfig:
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        raise ValueError(f"{path}: GGUF architecture {architecture!r} is not implemented; only 'llama' is")
    known = (*SIZES, NORM_EPS, ROPE_THETA, *REPEATED)
    unknown = [key for key in metadata if key not in known and not key.startswith(IGNORED_PREFIXES)]
    required = [*SIZES, NORM_EPS]
    problems = [f"unknown field {key} = {metadata[key]!r}" for key in unknown]
    problems += [f"missing field {key}" for key in required if key not in metadata]
    if "token_embd.weight" not in stored:
        problems.append("missing tensor token_embd.weight")
    if problems:
        raise ValueError(f"{path}: this GGUF file is not understood:\n  " + "\n  ".join(problems))
    sizes: dict[str, Any] = {ours: int(metadata[theirs]) for theirs, ours in SIZES.items()}
    head_dim = int(metadata.get("llama.attention.key_length", sizes["hidden_size"] // sizes["num_heads"]))
    partial = {
        key: metadata[key]
        for key in ("llama.rope.dimension_count", "llama.attention.value_length")
        if metadata.get(key, head_dim) != head_dim
    }
    if partial:
        raise ValueError(f"{path}: {partial} differ from the head size {head_dim}; this is not implemented")
    return ArchitectureConfig(
        vocab_size=stored["token_embd.weight"].shape[0],
        head_dim=head_dim,
        rope=RopeConfig(theta=float(metadata.get(ROPE_THETA, 10_000.0))),
        norm_eps=float(metadata[NORM_EPS]),
        tie_embeddings="output.weight" not in stored,
        **sizes,
    )


def _unpermuted(name: str, stored: Stored, config: ArchitectureConfig) -> Stored:
    """Undo the interleaving of rotary halves that llama.cpp's converter applies to queries and keys."""
    heads_of = {tensor.gguf.split("{}")[1]: tensor.permuted_heads for tensor in TENSORS
                if tensor.permuted_heads is not None and tensor.gguf is not None}  # fmt: skip
    for suffix, count in heads_of.items():
        if name.startswith("blk.") and name.endswith(suffix):
            heads = count(config)

            def read(index: Index, heads=heads) -> np.ndarray:
                rows = stored.read((slice(None),) * len(stored.shape))
                return rows.reshape(heads, -1, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)[index]

            return Stored(stored.shape, stored.dtype, read)
    return stored


def _write_json(path: Path, content: dict[str, Any]) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    os.replace(partial, path)
