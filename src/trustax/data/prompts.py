"""Prompts as token ids, made once: kept in memory for a run, and on the disk for the next one."""

import hashlib
import json
import logging
import os
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trustax.data.config import DataConfig
from trustax.data.render import fit, prompt_text, render
from trustax.data.tokenizer import Tokenizer
from trustax.data.types import Example, Source

logger = logging.getLogger(__name__)

FORMAT = "1"


class PromptEncoder:
    """Gives an example's prompt ids; refuses a prompt of more than ``max_length`` tokens.

    ``load`` tokenises a whole source ahead. What it made is kept under ``folder``, by a key of everything that decides
    the ids: the tokenizer with its chat template, the system prompt, and the questions in the words of the template.
    With another tokenizer, template or set the key is another one, and nothing stale can be read.
    """

    def __init__(self, config: DataConfig, tokenizer: Tokenizer, *, max_length: int) -> None:
        self._config, self._tokenizer, self._max_length = config, tokenizer, max_length
        self._ids: dict[str, list[int]] = {}

    def __call__(self, example: Example) -> list[int]:
        """The prompt's ids."""
        return render(example, self._config, self._tokenizer, max_length=self._max_length, encode=self._encode)

    def load(self, source: Source) -> None:
        """Read the ids of all prompts of a source, or make and keep them."""
        texts = [prompt_text(source[i], self._config.template) for i in range(len(source))]
        key = self._key(texts)
        path = Path(self._config.folder) / f"tokens-{key}.npz"
        rows = _read(path, count=len(texts))
        if rows is None:
            rows = [self._encode(text) for text in texts]
            _write(path, rows)
            logger.info("%s: tokenised %d prompts, kept in %s", source.name, len(rows), path)
        self._ids.update(zip(texts, rows, strict=True))

    def fit(self, source: Source) -> Source:
        """``load``, then the source without prompts that are too long (`trustax.data.render.fit`)."""
        self.load(source)
        return fit(source, self._config, self._tokenizer, max_length=self._max_length, encode=self._encode)

    def _encode(self, text: str) -> list[int]:
        if text not in self._ids:
            return self._tokenizer.encode_prompt(text, self._config.system)
        return self._ids[text]

    def _key(self, texts: Sequence[str]) -> str:
        identity = [FORMAT, self._tokenizer.fingerprint, self._config.system, list(texts)]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


def _read(path: Path, *, count: int) -> list[list[int]] | None:
    """The rows of a file, None if there is none or it is not whole."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            ids, ends = stored["ids"], stored["ends"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    if len(ends) != count or (count and ends[-1] != len(ids)):
        return None
    return [row.tolist() for row in np.split(ids, ends[:-1])] if count else []


def _write(path: Path, rows: Sequence[Sequence[int]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = np.array([token for row in rows for token in row], np.int32)
    ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as file:
        np.savez(file, ids=ids, ends=ends)
    os.replace(scratch, path)
