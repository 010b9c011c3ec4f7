"""Questions: where they come from, in which order they are asked, and as which token ids.

Importing this package needs neither ``grain`` nor ``tensorflow_datasets``; they are loaded where they are used.
"""

from trustax.data.config import (
    ArithmeticConfig,
    DataConfig,
    DifficultyConfig,
    JsonlConfig,
    MixtureConfig,
    PublishedConfig,
    ReasoningGymConfig,
    SourceConfig,
    Split,
)
from trustax.data.json_tokenizer import JsonTokenizer, load_tokenizer
from trustax.data.jsonl import read_jsonl
from trustax.data.prompts import PromptEncoder
from trustax.data.render import fit, prompt_text, render, supervised_ids
from trustax.data.sources import load, prepare
from trustax.data.stream import PromptStream
from trustax.data.tokenizer import CharTokenizer, Tokenizer
from trustax.data.types import Example, ListSource, Source

__all__ = [
    "ArithmeticConfig",
    "CharTokenizer",
    "DataConfig",
    "DifficultyConfig",
    "Example",
    "JsonTokenizer",
    "JsonlConfig",
    "ListSource",
    "MixtureConfig",
    "PromptEncoder",
    "PromptStream",
    "PublishedConfig",
    "ReasoningGymConfig",
    "Source",
    "SourceConfig",
    "Split",
    "Tokenizer",
    "fit",
    "load",
    "load_tokenizer",
    "prepare",
    "prompt_text",
    "read_jsonl",
    "render",
    "supervised_ids",
]
