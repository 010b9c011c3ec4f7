"""From text to token ids and back: the protocol, and a character tokenizer for policies trained from scratch."""

import hashlib
import string
from collections.abc import Iterable
from typing import Protocol

# Order is part of the file format of every character-level policy: append, never reorder.
ALPHABET = string.digits + "+-*/=()<>[]{}.,:;?!'\"#%&$@^_|~\\` \n" + string.ascii_lowercase + string.ascii_uppercase


class Tokenizer(Protocol):
    """What sampling, training and logging ask of a tokenizer."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_ids(self) -> frozenset[int]: ...

    @property
    def pad_id(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """A hash of everything that decides which ids a prompt becomes."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of the text alone: no BOS, no EOS."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text without special tokens."""
        ...

    def encode_prompt(self, prompt: str, system: str | None = None) -> list[int]:
        """Ids that a completion follows: chat template applied once, at most one BOS at the front."""
        ...

    def token_text(self, token_id: int) -> str:
        """One token as a person reads it, special tokens included."""
        ...


class CharTokenizer:
    """One id per character: 0 pads, 1 ends, then the alphabet in order. It has no BOS and no chat template."""

    pad_id = 0
    eos_id = 1

    def __init__(self, alphabet: str = ALPHABET) -> None:
        if repeated := sorted({char for char in alphabet if alphabet.count(char) > 1}):
            raise ValueError(f"the alphabet repeats {', '.join(map(repr, repeated))}")
        self._ids = {char: index for index, char in enumerate(alphabet, start=2)}
        self._texts = ("<pad>", "<eos>", *alphabet)

    @property
    def vocab_size(self) -> int:
        return len(self._texts)

    @property
    def eos_ids(self) -> frozenset[int]:
        return frozenset({self.eos_id})

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256("".join(self._texts).encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        if unknown := sorted(set(text) - self._ids.keys()):
            raise ValueError(
                f"the character tokenizer doesn't know {', '.join(map(repr, unknown))} (in {text[:60]!r}): it knows "
                f"{''.join(self._texts[2:])!r}"
            )
        return [self._ids[char] for char in text]

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self.token_text(token_id) for token_id in ids if token_id not in (self.pad_id, self.eos_id))

    def encode_prompt(self, prompt: str, system: str | None = None) -> list[int]:
        if system is not None:
            raise ValueError("the character tokenizer has no chat template to put a system prompt in: set system=None")
        return self.encode(prompt)

    def token_text(self, token_id: int) -> str:
        if not 0 <= token_id < len(self._texts):
            raise ValueError(f"token id {token_id} is outside 0..{len(self._texts) - 1}")
        return self._texts[token_id]
