"""Architecture configs: what they refuse, and how they meet a tokenizer."""

import dataclasses

import pytest

from trustax.policies import ArchitectureConfig, RopeConfig, check_tokenizer_fits, tiny_config


def test_all_problems_are_named_at_once():
    with pytest.raises(ValueError, match=r"num_layers must be at least 1.*multiple of num_kv_heads.*must be even"):
        ArchitectureConfig(
            vocab_size=4, hidden_size=8, num_layers=0, num_heads=3, num_kv_heads=2, head_dim=3, mlp_size=8,
            context_length=8,
        )  # fmt: skip


def test_unknown_choices_are_refused_by_name():
    # The tests' run-time type check speaks first, the package's own ValueError where there is none.
    with pytest.raises((ValueError, TypeError), match="yarn"):
        RopeConfig(scaling="yarn")  # pyright: ignore[reportArgumentType]
    with pytest.raises((ValueError, TypeError), match="relu"):
        dataclasses.replace(tiny_config(4), activation="relu")


def test_tokenizer_larger_than_the_embedding_is_refused():
    config = tiny_config(10)
    check_tokenizer_fits(config, 10)
    with pytest.raises(ValueError, match=r"11 tokens but the embedding has 10 rows"):
        check_tokenizer_fits(config, 11)


def test_smaller_tokenizer_turns_the_other_rows_into_padding():
    config = tiny_config(16).with_vocab_size(10)
    assert (config.vocab_size, config.rows) == (10, 16)
    check_tokenizer_fits(config, 16)
    with pytest.raises(ValueError, match="17 tokens"):
        config.with_vocab_size(17)


def test_tiny_config_is_tiny():
    assert tiny_config(32).head_dim == 32
