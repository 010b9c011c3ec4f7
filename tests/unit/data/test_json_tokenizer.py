import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trustax.data import JsonTokenizer, load_tokenizer
from trustax.data.tokenizer import CharTokenizer
from trustax.policies.gguf_io import export_tokenizer

BOS, EOS, PAD, TURN, END = range(5)


def rewrite(folder: Path, name: str, **changes: object) -> None:
    path = folder / name
    settings = json.loads(path.read_text()) if path.exists() else {}
    settings = {key: value for key, value in {**settings, **changes}.items() if value is not None}
    path.write_text(json.dumps(settings))


@pytest.fixture(scope="session")
def plain(bpe: str) -> JsonTokenizer:
    import tokenizers

    return JsonTokenizer(tokenizers.Tokenizer.from_str(bpe), eos_ids=[EOS])


def test_any_text_round_trips(plain: JsonTokenizer) -> None:
    @given(st.text(st.characters(exclude_categories=["Cs"])))
    def check(text: str) -> None:
        if any(special in text for special in ("<s>", "</s>", "<pad>", "<|")):
            return
        assert plain.decode(plain.encode(text)) == text

    check()


def test_a_files_own_truncation_and_padding_are_off(plain: JsonTokenizer) -> None:
    text = "What is 3 + 4? Reply with only the number. " * 4
    assert plain.decode(plain.encode(text)) == text
    assert PAD not in plain.encode("3")


def test_exactly_one_bos(model_folder: Path) -> None:
    """T02: the template writes the BOS, the file's post-processor would write another one."""
    with_template = load_tokenizer(model_folder)
    ids = with_template.encode_prompt("3 + 4?")
    assert ids.count(BOS) == 1 and ids[0] == BOS
    rewrite(model_folder, "tokenizer_config.json", chat_template=None)
    without = load_tokenizer(model_folder)
    assert without.encode_prompt("3 + 4?") == [BOS, *without.encode("3 + 4?")]
    rewrite(model_folder, "tokenizer_config.json", add_bos_token=False)
    assert load_tokenizer(model_folder).encode_prompt("3 + 4?") == without.encode("3 + 4?")


def test_a_doubled_bos_is_refused(model_folder: Path) -> None:
    tokenizer = load_tokenizer(model_folder, chat_template="{{ bos_token }}<s>{{ messages[0]['content'] }}")
    with pytest.raises(ValueError, match="BOS token twice"):
        tokenizer.encode_prompt("3 + 4?")


def test_the_template_is_applied_once_with_the_given_system_prompt(model_folder: Path) -> None:
    tokenizer = load_tokenizer(model_folder)
    expected = [BOS]
    for role, content in (("system", "Be brief."), ("user", "3 + 4?")):
        expected += [TURN, *tokenizer.encode(f"{role}\n{content}"), END, *tokenizer.encode("\n")]
    expected += [TURN, *tokenizer.encode("assistant\n")]
    assert tokenizer.encode_prompt("3 + 4?", system="Be brief.") == expected


def test_end_ids_are_a_set_from_every_place_that_names_one(model_folder: Path) -> None:
    """T01: </s> by the tokenizer, <|end|> by the chat template, others by the model's configs."""
    assert load_tokenizer(model_folder).eos_ids == {EOS, END}
    rewrite(model_folder, "config.json", eos_token_id=7)
    rewrite(model_folder, "generation_config.json", eos_token_id=[8, 9])
    assert load_tokenizer(model_folder).eos_ids == {EOS, END, 7, 8, 9}
    assert load_tokenizer(model_folder, eos_ids=[6]).eos_ids == {6, END}


def test_without_any_end_id_it_is_refused(model_folder: Path) -> None:
    rewrite(model_folder, "tokenizer_config.json", chat_template=None, eos_token=None)
    with pytest.raises(ValueError, match="no end-of-sequence token"):
        load_tokenizer(model_folder)


def test_padding_falls_back_to_an_end_id(model_folder: Path) -> None:
    assert load_tokenizer(model_folder).pad_id == PAD
    rewrite(model_folder, "tokenizer_config.json", pad_token=None)
    assert load_tokenizer(model_folder).pad_id == EOS


def test_the_template_in_its_own_file_wins(model_folder: Path) -> None:
    (model_folder / "chat_template.jinja").write_text("<s>Q: {{ messages[0]['content'] }}")
    tokenizer = load_tokenizer(model_folder)
    assert tokenizer.encode_prompt("3") == [BOS, *tokenizer.encode("Q: 3")]


def test_of_several_templates_the_default_one_is_taken(model_folder: Path) -> None:
    named = [{"name": "tools", "template": "x"}, {"name": "default", "template": "{{ messages[0]['content'] }}"}]
    rewrite(model_folder, "tokenizer_config.json", chat_template=named)
    tokenizer = load_tokenizer(model_folder)
    assert tokenizer.encode_prompt("3 + 4") == tokenizer.encode("3 + 4")
    rewrite(model_folder, "tokenizer_config.json", chat_template=named[:1])
    with pytest.raises(ValueError, match="none is named 'default'"):
        load_tokenizer(model_folder)


def test_token_texts_are_readable(plain: JsonTokenizer) -> None:
    assert plain.token_text(END) == "<|end|>"
    assert "".join(plain.token_text(i) for i in plain.encode("the number")) == "the number"
    half = plain.encode("é")[0]  # one byte of two: no text of its own
    assert plain.token_text(half) and "\N{REPLACEMENT CHARACTER}" not in plain.token_text(half)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds no tokenizer.json"),
        ({"tokenizer.json": "{"}, "is not a tokenizer"),
        ({"tokenizer.json": None, "tokenizer_config.json": "[1]"}, "must hold a JSON object, got list"),
        ({"tokenizer.json": None, "tokenizer_config.json": "{nope"}, "is not valid JSON"),
        ({"tokenizer.json": None, "tokenizer_config.json": '{"eos_token": "<eos>"}'}, "lacks its eos_token '<eos>'"),
        ({"tokenizer.json": None, "config.json": '{"eos_token_id": 9999}'}, r"eos_ids \[9999\] lie outside"),
    ],
)
def test_broken_folders_are_refused(tmp_path: Path, bpe: str, files: dict[str, str | None], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(bpe if text is None else text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_tokenizer(tmp_path)


def test_a_character_level_folder_says_so(tmp_path: Path) -> None:
    (tmp_path / "char_tokenizer.json").write_text(json.dumps({"alphabet": "01+="}))
    tokenizer = load_tokenizer(tmp_path)
    assert isinstance(tokenizer, CharTokenizer)
    assert tokenizer.encode("1+0=") == [3, 4, 2, 5]


@pytest.mark.real_model
def test_smollm2_prompts_have_the_ids_that_transformers_gives(tmp_path: Path) -> None:
    """``smollm2_prompt_ids.json``: ``apply_chat_template`` of transformers 5.24.0 on the template of the GGUF file."""
    files = sorted((Path(__file__).parents[3] / ".cache" / "smollm2").glob("*.gguf"))
    if not files:
        pytest.skip("no SmolLM2 in .cache/smollm2")
    export_tokenizer(files[0], tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.eos_ids, tokenizer.vocab_size) == ({2}, 49_152)
    for case in json.loads((Path(__file__).parent / "smollm2_prompt_ids.json").read_text()):
        assert tokenizer.encode_prompt(case["prompt"], case["system"]) == case["ids"]
