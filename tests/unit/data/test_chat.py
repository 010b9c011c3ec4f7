"""Chat templates: what published ones render to, and that a hostile one stays in its box."""

import time

import pytest

from trustax.data import chat
from trustax.data.chat import ChatTemplate

USER = [{"role": "user", "content": "3 + 4?"}]

# The template of SmolLM2-135M-Instruct.
SMOLLM2 = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""


def render(template: str, messages: list = USER, **variables: object) -> str:
    return ChatTemplate(template, variables).render(messages, add_generation_prompt=True)


def test_smollm2_default_system_prompt() -> None:
    assert render(SMOLLM2) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\n3 + 4?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_smollm2_given_system_prompt_replaces_it() -> None:
    assert render(SMOLLM2, [{"role": "system", "content": "Be brief."}, *USER]) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n3 + 4?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_features_that_published_templates_use() -> None:
    template = """
    {%- set ns = namespace(count=0) %}
    {%- for message in messages[::-1] %}
        {%- set ns.count = ns.count + 1 %}
        {%- if loop.last %}{{ message.content | trim ~ '|' ~ loop.index ~ loop.length }}{% endif %}
        {%- if message.role == 'system' %}{% continue %}{% endif %}
    {%- endfor %}
    {%- macro box(text) %}[{{ text }}]{% endmacro %}
    {{- box(ns.count) + (tools | tojson if tools is defined else 'none') + {'é': '<'} | tojson }}
    {%- if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %} 26 Jul 2024{% endif %}"""
    assert render(template) == '3 + 4?|11[1]none{"é": "<"} 26 Jul 2024'


def test_variables_are_special_tokens_and_options() -> None:
    assert render("{{ bos_token }}{{ thinking }}", bos_token="<s>", thinking=False) == "<s>False"


def test_a_template_may_refuse_a_conversation() -> None:
    with pytest.raises(ValueError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ messages.append(1) }}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_it_reaches_neither_python_nor_files(template: str) -> None:
    with pytest.raises(ValueError, match="the chat template failed"):
        assert "class" not in render(template)


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 2000000000 }}",
        "{{ 2000000000 * 'x' }}",
        "{{ 9 ** 99999999 }}",
        "{{ 'x'.ljust(2000000000) }}",
        "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% for i in range(90000) %}{{ 'x' * 1000 }}{% endfor %}",
        "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    ],
)
def test_it_cannot_run_away(template: str) -> None:
    start = time.monotonic()
    with pytest.raises(ValueError, match="the chat template failed"):
        render(template)
    assert time.monotonic() - start < 30.0


def test_the_budget_is_per_conversation() -> None:
    template = ChatTemplate("{% for i in range(1000) %}{% endfor %}ok", {})
    for _ in range(chat.MAX_STEPS // 1000 + 1):
        assert template.render(USER, add_generation_prompt=True) == "ok"


def test_malformed_and_oversized_templates_are_refused() -> None:
    with pytest.raises(ValueError, match="not valid jinja"):
        ChatTemplate("{% for %}", {})
    with pytest.raises(ValueError, match="200001 characters"):
        ChatTemplate("x" * 200_001, {})
