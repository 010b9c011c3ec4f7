import numpy as np
import pytest

from trustax.rollouts.collect import _sample_indices, bucket_length, pad_prompts


def test_few_buckets_hold_all_lengths_and_none_is_beyond_the_limit() -> None:
    buckets = {bucket_length(length, 300) for length in range(1, 301)}
    assert buckets == {16, 32, 64, 128, 256, 300}
    assert all(bucket_length(length, 300) >= length for length in range(1, 301))


def test_a_sequence_beyond_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="301 tokens is longer than the limit of 300"):
        bucket_length(301, 300)


def test_prompts_are_padded_on_the_left_to_one_bucket() -> None:
    tokens, valid = pad_prompts([[5, 6, 7], [8]], limit=64, pad_id=9)
    assert tokens.shape == (2, 16)
    assert tokens[0].tolist() == [9] * 13 + [5, 6, 7] and tokens[1].tolist() == [9] * 15 + [8]
    np.testing.assert_array_equal(valid.sum(axis=1), [3, 1])
    assert valid[0, -3:].all() and valid[1, -1]


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        pad_prompts([[1], []], limit=64, pad_id=0)


def test_an_example_that_a_batch_holds_twice_gets_other_samples_the_second_time() -> None:
    assert _sample_indices([7, 9, 7], 2).tolist() == [0, 1, 0, 1, 2, 3]
