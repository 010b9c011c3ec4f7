"""Tokenizers of published models: a ``tokenizer.json`` with its configs and chat template."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tokenizers

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
        identity = [tokenizer.to_str(), chat_template, sorted(eos_ids := set(eos_ids)), bos_id, add_bos, pad_id]
        options = [dict(special_tokens or {}), dict(template_options or {})]
        self._fingerprint = hashlib.sha256(json.dumps([*identity, *options], default=str).encode()).hexdigest()
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

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

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
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if unknown := [f"{name} {text!r}" for name, text in special.items() if text not in vocabulary]:
        raise ValueError(f"{folder / 'tokenizer_config.json'}: tokenizer.json lacks its {', '.join(unknown)}")
    ids = {name: vocabulary[text] for name, text in special.items()}
    ends = set(eos_ids or ())
    if eos_ids is None:
        ends = _id_set(generation) | _id_set(model) | ({ids["eos_token"]} if "eos_token" in ids else set())
    bos_id = ids["bos_token"] if "bos_token" in ids else model.get("bos_token_id")
    adds_bos = bos_id is not None and tokenizer.encode("", add_special_tokens=True).ids[:1] == [bos_id]
    return JsonTokenizer(
        tokenizer,
        eos_ids=ends,
        pad_id=ids["pad_token"] if "pad_token" in ids else model.get("pad_token_id"),
        bos_id=bos_id,
        add_bos=bool(settings.get("add_bos_token", adds_bos)),
        chat_template=_read_template(folder, settings) if chat_template is None else chat_template,
        special_tokens=special,
        template_options=template_options,
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
