import json

import pytest

from trustax.data import (
    ArithmeticConfig,
    CharTokenizer,
    DataConfig,
    Example,
    ListSource,
    fit,
    prompt_text,
    render,
    supervised_ids,
)

SUM = Example(5, "3 + 4", "7", json.dumps({"a": 3, "b": 4}))
TOKENIZER = CharTokenizer()
SMOLLM2 = DataConfig(ArithmeticConfig(), template="What is {a} + {b}? Reply with only the number.")
TINY = DataConfig(ArithmeticConfig(digits=2), template="{a}+{b}=")


def test_templates_name_the_prompt_and_the_metadata() -> None:
    assert prompt_text(SUM, SMOLLM2.template) == "What is 3 + 4? Reply with only the number."
    assert prompt_text(SUM, TINY.template) == "3+4="
    assert prompt_text(SUM, "{prompt}") == "3 + 4"
    assert prompt_text(SUM, "{{{prompt}}} \\boxed{{}}") == "{3 + 4} \\boxed{}"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{c}", r"names \{c\}, which example 5 doesn't have; it has \{a\}, \{b\}, \{prompt\}"),
        ("{answer}", "names {answer}"),
        ("{a.__class__}", "names {a.__class__}"),
        ("{a!r}", "names {a}"),
        ("{a:>99999999}", "names {a}"),
        ("{}", "names {}"),
        ("{a", "malformed"),
    ],
)
def test_other_fields_are_refused(template: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prompt_text(SUM, template)


def test_render_gives_the_ids_of_the_text() -> None:
    assert TOKENIZER.decode(render(SUM, TINY, TOKENIZER)) == "3+4="
    assert render(SUM, TINY, TOKENIZER, max_length=4) == TOKENIZER.encode("3+4=")


def test_a_long_prompt_names_the_example_and_both_lengths() -> None:
    with pytest.raises(ValueError, match=r"example 5 \('3 \+ 4'\) renders to 4 tokens, the limit is 3"):
        render(SUM, TINY, TOKENIZER, max_length=3)


def test_nothing_to_continue_is_refused() -> None:
    with pytest.raises(ValueError, match="no token at all"):
        render(Example(0, "", "1"), DataConfig(), TOKENIZER)


def test_long_prompts_stop_the_run_or_are_left_out_when_asked(caplog: pytest.LogCaptureFixture) -> None:
    source = ListSource("s", [Example(i, "1" * (i + 1), "1") for i in range(6)])
    with pytest.raises(ValueError, match=r"example 4 .* renders to 5 tokens, the limit is 4"):
        fit(source, DataConfig(), TOKENIZER, max_length=4)
    kept = fit(source, DataConfig(drop_long=True), TOKENIZER, max_length=4)
    assert [kept[i].index for i in range(len(kept))] == [0, 1, 2, 3]
    assert "left out 2 of 6 prompts" in caplog.text
    assert kept.name != source.name  # a stream's state must not fit both
    assert fit(source, DataConfig(), TOKENIZER, max_length=6) is source
    with pytest.raises(ValueError, match="all 6 prompts have more than 0 tokens"):
        fit(source, DataConfig(drop_long=True), TOKENIZER, max_length=0)


def test_the_supervised_completion_ends() -> None:
    ids = supervised_ids(SUM, TOKENIZER)
    assert TOKENIZER.decode(ids) == "7"
    assert ids[-1] in TOKENIZER.eos_ids and len(ids) == 2
