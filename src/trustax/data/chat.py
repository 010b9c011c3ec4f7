"""Chat templates: jinja text that comes with a model, rendered where it can't reach Python or run away.

A template is data from a stranger's file. It is rendered in jinja's immutable sandbox, with a budget of loop steps and
calls and a cap on what it may write. The clock (``strftime_now``) is left undefined, so that a prompt doesn't change
with the day; templates that want a date fall back to their fixed one.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jinja2
import jinja2.filters
import jinja2.nodes
import jinja2.sandbox
from jinja2.exceptions import SecurityError, TemplateError

MAX_TEMPLATE_CHARS = 200_000
MAX_STEPS = 200_000
MAX_OUTPUT_CHARS = 2_000_000
MAX_NUMBER = 100_000  # of counts and widths given to calls and operators

Message = Mapping[str, str]


class _Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox, counting the steps of loops and calls and looking at what text is built from."""

    intercepted_binops = frozenset({"+", "*", "**"})

    def __init__(self) -> None:
        # These options are the ones that model files are written for.
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        self.steps = 0
        self.filters.update(tojson=_to_json, indent=_indent, _counted=self._counted, _bounded=_bounded)
        for name in ("center", "format", "wordwrap"):  # rare, and they build text of any width from a number
            del self.filters[name]
        self.globals["raise_exception"] = _raise_exception

    def _generate(self, source: jinja2.nodes.Template, *args: Any, **kwargs: Any) -> str:
        for loop in list(source.find_all(jinja2.nodes.For)):
            loop.iter = _apply_filter("_counted", loop.iter)
        for concat in list(source.find_all(jinja2.nodes.Concat)):
            concat.nodes = [_apply_filter("_bounded", node) for node in concat.nodes]
        return super()._generate(source, *args, **kwargs)

    def _spend(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise SecurityError(f"more than {MAX_STEPS} loop steps and calls")

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._spend()
            yield item

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        self._spend()
        for value in (*args, *kwargs.values()):
            _bounded(value)
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        left, right = _bounded(left), _bounded(right)
        sized, times = (right, left) if isinstance(left, int) else (left, right)
        if operator == "**":
            raise SecurityError("powers are not allowed")
        repeats = operator == "*" and isinstance(sized, (str, list, tuple)) and isinstance(times, int)
        if repeats and len(sized) * times > MAX_OUTPUT_CHARS:
            raise SecurityError(f"a repetition of {len(sized)} x {times} parts")
        return super().call_binop(context, operator, left, right)


def _apply_filter(name: str, node: jinja2.nodes.Node) -> jinja2.nodes.Filter:
    return jinja2.nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _bounded(value: Any) -> Any:
    """The value itself, unless it is a number or a text from which something huge could be built."""
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        raise SecurityError(f"a number beyond {MAX_NUMBER}")
    if isinstance(value, (str, list, tuple)) and len(value) > MAX_OUTPUT_CHARS:
        raise SecurityError(f"a value with more than {MAX_OUTPUT_CHARS} parts")
    return value


def _indent(text: str, width: int = 4, first: bool = False, blank: bool = False) -> str:
    return jinja2.filters.do_indent(text, _bounded(width), first, blank)


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)  # jinja's own escapes HTML


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


class ChatTemplate:
    """A compiled template with the variables (special tokens, options) that it may name."""

    def __init__(self, template: str, variables: Mapping[str, Any]) -> None:
        if len(template) > MAX_TEMPLATE_CHARS:
            raise ValueError(f"the chat template has {len(template)} characters; the limit is {MAX_TEMPLATE_CHARS}")
        self._environment = _Environment()
        self._variables = dict(variables)
        try:
            self._template = self._environment.from_string(template)
        except TemplateError as error:
            raise ValueError(f"the chat template is not valid jinja: {error}") from error

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        """The conversation as text; ``ValueError`` where the template refuses it or breaks a limit."""
        self._environment.steps = 0
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.generate(
                messages=messages, add_generation_prompt=add_generation_prompt, **self._variables
            ):
                parts.append(part)
                size += len(part)
                if size > MAX_OUTPUT_CHARS:
                    raise SecurityError(f"more than {MAX_OUTPUT_CHARS} characters of output")
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"the chat template failed: {type(error).__name__}: {error}") from error
        return "".join(parts)
