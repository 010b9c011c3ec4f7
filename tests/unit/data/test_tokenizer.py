import pytest
from hypothesis import given
from hypothesis import strategies as st

from trustax.data import CharTokenizer
from trustax.data.tokenizer import ALPHABET


@given(st.text(ALPHABET))
def test_characters_round_trip(text: str) -> None:
    tokenizer = CharTokenizer()
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert len(ids) == len(text)
    assert not {tokenizer.pad_id, *tokenizer.eos_ids} & set(ids)


def test_the_table_is_fixed() -> None:
    """Policies trained from scratch are stored with these ids: a change of order would garble them all."""
    tokenizer = CharTokenizer()
    assert tokenizer.encode("0123456789+-*/=") == list(range(2, 17))
    assert tokenizer.encode("azAZ") == [46, 71, 72, 97]
    assert (tokenizer.pad_id, tokenizer.eos_ids, tokenizer.vocab_size) == (0, frozenset({1}), 98)


def test_every_token_has_a_text() -> None:
    tokenizer = CharTokenizer()
    assert len({tokenizer.token_text(i) for i in range(tokenizer.vocab_size)}) == tokenizer.vocab_size
    with pytest.raises(ValueError, match=r"token id 98 is outside 0\.\.97"):
        tokenizer.token_text(98)


def test_end_and_padding_leave_no_text() -> None:
    tokenizer = CharTokenizer()
    assert tokenizer.decode([*tokenizer.encode("7"), 1, 0, 0]) == "7"


def test_unknown_characters_are_named() -> None:
    with pytest.raises(ValueError, match="doesn't know '²', 'é'"):
        CharTokenizer().encode("3²+é")


def test_a_system_prompt_has_no_place() -> None:
    assert CharTokenizer().encode_prompt("3+4=") == CharTokenizer().encode("3+4=")
    with pytest.raises(ValueError, match="no chat template"):
        CharTokenizer().encode_prompt("3+4=", system="Be brief.")


def test_an_alphabet_names_each_character_once() -> None:
    assert CharTokenizer("01+=").vocab_size == 6
    with pytest.raises(ValueError, match="repeats '1'"):
        CharTokenizer("011")
