"""How a question becomes the ids that a policy continues."""

import json
import logging
import string
from collections.abc import Callable
from typing import Any

from trustax.data.config import DataConfig
from trustax.data.tokenizer import Tokenizer
from trustax.data.types import Example, ListSource, Source

logger = logging.getLogger(__name__)


def prompt_text(example: Example, template: str) -> str:
    """The question in the words of ``template``, which may name ``{prompt}`` and the keys of the metadata."""
    fields: dict[str, Any] = {**json.loads(example.metadata), "prompt": example.prompt}
    parts: list[str] = []
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ValueError(
            f"the prompt template {template!r} is malformed: {error} (a literal brace is doubled)"
        ) from error
    for literal, name, spec, conversion in pieces:
        parts.append(literal)
        if name is None:
            continue
        # Plain names only: a template can't reach attributes of what it is given.
        if spec or conversion or name not in fields:
            raise ValueError(
                f"the prompt template {template!r} names {{{name}}}, which example {example.index} doesn't have; "
                f"it has {', '.join(f'{{{field}}}' for field in sorted(fields))}"
            )
        parts.append(str(fields[name]))
    return "".join(parts)


def render(
    example: Example,
    config: DataConfig,
    tokenizer: Tokenizer,
    *,
    max_length: int | None = None,
    encode: Callable[[str], list[int]] | None = None,
) -> list[int]:
    """The prompt's ids; refuses a prompt of more than ``max_length`` tokens. ``encode`` may know the ids already."""
    text = prompt_text(example, config.template)
    ids = tokenizer.encode_prompt(text, config.system) if encode is None else encode(text)
    if not ids:
        raise ValueError(f"example {example.index} renders to no token at all")
    if max_length is not None and len(ids) > max_length:
        raise ValueError(
            f"example {example.index} ({example.prompt[:60]!r}) renders to {len(ids)} tokens, the limit is "
            f"{max_length}: raise the limit, or set drop_long to leave such examples out"
        )
    return ids


def fit(
    source: Source,
    config: DataConfig,
    tokenizer: Tokenizer,
    *,
    max_length: int,
    encode: Callable[[str], list[int]] | None = None,
) -> Source:
    """The source without prompts of more than ``max_length`` tokens; refuses the first one unless ``drop_long``.

    Reads and renders every example once, so that a run can't stop on a long prompt hours later. Examples keep their
    index.
    """
    limit = None if config.drop_long else max_length
    examples = [source[index] for index in range(len(source))]
    lengths = [len(render(one, config, tokenizer, max_length=limit, encode=encode)) for one in examples]
    kept = [example for example, length in zip(examples, lengths, strict=True) if length <= max_length]
    dropped = len(source) - len(kept)
    if dropped == 0:
        return source
    if not kept:
        raise ValueError(
            f"{source.name}: all {dropped} prompts have more than {max_length} tokens (the shortest has "
            f"{min(lengths)}); nothing is left"
        )
    logger.warning(
        "%s: left out %d of %d prompts of more than %d tokens", source.name, dropped, len(source), max_length
    )
    return ListSource(f"{source.name}:max_length={max_length}", kept)


def supervised_ids(example: Example, tokenizer: Tokenizer) -> list[int]:
    """The ids of the right completion, its end token included, so that the policy learns to stop."""
    return [*tokenizer.encode(example.answer), min(tokenizer.eos_ids)]
