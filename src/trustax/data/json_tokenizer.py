"""Tokenizers of published models: a ``tokenizer.json`` with its configs and chat template, or a GGUF's metadata."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from trustax.data.chat import ChatTemplate, Message
from trustax.data.tokenizer import CharTokenizer, Tokenizer

# A character-level policy's folder says so with this file, which holds its alphabet.
CHAR_FILE = "char_tokenizer.json"

_END_PROBE = "end-of-turn-probe"


class JsonTokenizer:
    """Any ``tokenizers.Tokenizer`` with the facts its file does not hold: end ids, padding, BOS, chat template.

    With a chat template the template alone decides about BOS. Without one, a prompt gets the BOS if ``add_bos``.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        *,
        eos_ids: Iterable[int],
        pad_id: int | None = None,
        bos_id: int | None = None,
        add_bos: bool = False,
        chat_template: str | None = None,
        special_tokens: Mapping[str, str] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> None:
        # A file may carry truncation and padding from its training; silently cutting prompts is not ours to do.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._vocab_size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        self._bos_id = bos_id
        self._add_bos = add_bos
        variables = {**(special_tokens or {}), **(template_options or {})}
        self._template = None if chat_template is None else ChatTemplate(chat_template, variables)
        ends = set(eos_ids) | self._chat_end_ids()
        if not ends:
            raise ValueError(
                "the tokenizer names no end-of-sequence token, so no completion would ever stop: give eos_ids, or an "
                "eos_token in tokenizer_config.json"
            )
        self._eos_ids = frozenset(ends)
        self._pad_id = min(ends) if pad_id is None else pad_id
        named = {"eos_ids": ends, "pad_id": {self._pad_id}, "bos_id": set() if bos_id is None else {bos_id}}
        for name, ids in named.items():
            if outside := sorted(token_id for token_id in ids if not 0 <= token_id < self._vocab_size):
                raise ValueError(f"{name} {outside} lie outside the tokenizer's 0..{self._vocab_size - 1}")

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def eos_ids(self) -> frozenset[int]:
        return self._eos_ids

    @property
    def pad_id(self) -> int:
        return self._pad_id

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Iterable[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def token_text(self, token_id: int) -> str:
        text = self._tokenizer.decode([token_id], skip_special_tokens=False)
        piece = self._tokenizer.id_to_token(token_id)
        if piece is None:
            return f"<unused {token_id}>"
        return piece if "\N{REPLACEMENT CHARACTER}" in text else text  # half of a character: show the piece's name

    def encode_prompt(self, prompt: str, system: str | None = None) -> list[int]:
        if self._template is None:
            if system is not None:
                raise ValueError("the tokenizer has no chat template to put a system prompt in: set system=None")
            front = [self._bos_id] if self._add_bos and self._bos_id is not None else []
            return front + self.encode(prompt)
        messages: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        messages.append({"role": "user", "content": prompt})
        ids = self.encode(self._template.render(messages, add_generation_prompt=True))
        if self._bos_id is not None and ids[:2] == [self._bos_id] * 2:
            raise ValueError("the chat template writes the BOS token twice at the front of a prompt")
        return ids

    def _chat_end_ids(self) -> set[int]:
        """The special token that the chat template writes after an assistant's words, e.g. ``<|im_end|>``."""
        if self._template is None:
            return set()
        messages: list[Message] = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _END_PROBE}]
        rendered = self._template.render(messages, add_generation_prompt=False)
        _, _, after = rendered.rpartition(_END_PROBE)
        ids = self.encode(after.strip())
        special = {token_id for token_id, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        return set(ids[:1]) & special


def load_tokenizer(
    folder: str | Path,
    *,
    eos_ids: Iterable[int] | None = None,
    chat_template: str | None = None,
    template_options: Mapping[str, Any] | None = None,
) -> Tokenizer:
    """Read the tokenizer of a model folder.

    End ids are the union of what generation_config.json, config.json, tokenizer_config.json and the chat template's
    end of turn say; ``eos_ids`` replaces the first three, ``chat_template`` the folder's own.
    """
    folder = Path(folder)
    if (folder / CHAR_FILE).is_file():
        return CharTokenizer(_read_object(folder / CHAR_FILE, required=True)["alphabet"])
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ValueError(f"{folder} holds no tokenizer.json (and no {CHAR_FILE}): copy the model's tokenizer there")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library's parser raises bare Exception
        raise ValueError(f"{path} is not a tokenizer that `tokenizers` can read: {error}") from error
    settings = _read_object(folder / "tokenizer_config.json")
    model = _read_object(folder / "config.json")
    generation = _read_object(folder / "generation_config.json")
    special = {
        name: _token_content(settings[name])
        for name in ("bos_token", "eos_token", "pad_token", "unk_token")
        if settings.get(name) is not None
    }
    ids = {name: tokenizer.token_to_id(text) for name, text in special.items()}
    if unknown := sorted(f"{name} {special[name]!r}" for name, token_id in ids.items() if token_id is None):
        raise ValueError(f"{folder / 'tokenizer_config.json'} names tokens that tokenizer.json lacks: {unknown}")
    if eos_ids is None:
        eos_ids = _id_set(generation) | _id_set(model) | ({ids["eos_token"]} if "eos_token" in ids else set())
    bos_id = ids["bos_token"] if "bos_token" in ids else model.get("bos_token_id")
    adds_bos = bos_id is not None and tokenizer.encode("", add_special_tokens=True).ids[:1] == [bos_id]
    return JsonTokenizer(
        tokenizer,
        eos_ids=eos_ids,
        pad_id=ids["pad_token"] if "pad_token" in ids else model.get("pad_token_id"),
        bos_id=bos_id,
        add_bos=bool(settings.get("add_bos_token", adds_bos)),
        chat_template=_read_template(folder, settings) if chat_template is None else chat_template,
        special_tokens=special,
        template_options=template_options,
    )


# How a GGUF's `tokenizer.ggml.pre` splits text before byte-pair merges.
_PRE_TOKENIZERS = {
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    "smollm": lambda: pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    ),
}
_CONTROL, _USER_DEFINED = 3, 4  # GGUF token types that are matched in the text before any merge


def tokenizer_from_gguf(metadata: Mapping[str, Any], *, eos_ids: Iterable[int] | None = None) -> JsonTokenizer:
    """Build the tokenizer that a GGUF file describes, from its metadata under its own key names.

    ``tokenizer.ggml.{model, pre, tokens, token_type, merges, bos_token_id, eos_token_id, padding_token_id,
    add_bos_token}`` and ``tokenizer.chat_template``. Byte-level BPE (``gpt2``) only.
    """
    prefix = "tokenizer.ggml."
    required = [prefix + name for name in ("model", "pre", "tokens", "token_type", "merges")]
    if missing := [key for key in required if key not in metadata]:
        raise ValueError(f"the GGUF metadata lacks {', '.join(missing)}: it holds no byte-level BPE tokenizer")
    if metadata[prefix + "model"] != "gpt2" or metadata[prefix + "pre"] not in _PRE_TOKENIZERS:
        raise ValueError(
            f"a GGUF tokenizer of model {metadata[prefix + 'model']!r}, pre {metadata[prefix + 'pre']!r} can't be "
            f"built (only gpt2 with pre {', '.join(_PRE_TOKENIZERS)}): use the model's tokenizer.json"
        )
    tokens: list[str] = list(metadata[prefix + "tokens"])
    merges = [tuple(merge.split(" ")) for merge in metadata[prefix + "merges"]]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = _PRE_TOKENIZERS[metadata[prefix + "pre"]]()
    tokenizer.decoder = decoders.ByteLevel()
    added = [
        AddedToken(text, special=kind == _CONTROL, normalized=False)
        for text, kind in zip(tokens, metadata[prefix + "token_type"], strict=True)
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    tokenizer.add_tokens(added)
    ids = {name: metadata.get(f"{prefix}{name}_token_id") for name in ("bos", "eos", "padding", "unknown")}
    names = {"bos": "bos_token", "eos": "eos_token", "padding": "pad_token", "unknown": "unk_token"}
    if eos_ids is None:
        eos_ids = set() if ids["eos"] is None else {int(ids["eos"])}
    return JsonTokenizer(
        tokenizer,
        eos_ids=eos_ids,
        pad_id=None if ids["padding"] is None else int(ids["padding"]),
        bos_id=None if ids["bos"] is None else int(ids["bos"]),
        add_bos=bool(metadata.get(prefix + "add_bos_token", False)),
        chat_template=metadata.get("tokenizer.chat_template"),
        special_tokens={names[name]: tokens[token_id] for name, token_id in ids.items() if token_id is not None},
    )


def _read_object(path: Path, *, required: bool = False) -> dict[str, Any]:
    """A JSON object, or an empty one where an optional file is absent."""
    if not path.is_file() and not required:
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(value).__name__}")
    return value


def _token_content(value: Any) -> str:
    """A token is written as its text, or as an object that holds it."""
    return value["content"] if isinstance(value, dict) else value


def _id_set(settings: Mapping[str, Any]) -> set[int]:
    """``eos_token_id`` is absent, null, one id, or a list of ids."""
    value = settings.get("eos_token_id")
    if value is None:
        return set()
    return set(value) if isinstance(value, list) else {value}


def _read_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """The chat template: its own file, or the tokenizer's config (one text, or the one named "default" of several)."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    value = settings.get("chat_template")
    if isinstance(value, list):
        named = {entry["name"]: entry["template"] for entry in value}
        if "default" not in named:
            raise ValueError(f"{folder}: several chat templates ({', '.join(named)}) and none is named 'default'")
        return named["default"]
    return value
