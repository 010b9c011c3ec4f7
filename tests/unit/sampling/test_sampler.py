import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax import policies
from trustax.policies.policy import Policy
from trustax.sampling.keys import sample_keys
from trustax.sampling.sampler import Generation, Sampler
from trustax.types import FinishReason, Transform

VOCAB, EOS, PAD, LENGTH, TOP_K = 23, frozenset({1, 4}), 0, 6, 5


@pytest.fixture(scope="module")
def policy() -> Policy:
    return policies.build(policies.tiny_config(VOCAB, hidden_size=32, num_layers=2, mlp_size=48))


@pytest.fixture(scope="module")
def params(policy: Policy):
    return jax.tree.map(lambda x: 3.0 * x if x.ndim > 1 else x, policy.init(jax.random.key(0)))


@pytest.fixture(scope="module")
def sampler(policy: Policy) -> Sampler:
    return Sampler(policy, max_new_tokens=LENGTH, top_k=TOP_K, eos_ids=EOS, pad_id=PAD)


def prompts(width: int = 5) -> tuple[np.ndarray, np.ndarray]:
    tokens, valid = np.zeros((3, width), np.int32), np.zeros((3, width), bool)
    for row, prompt in enumerate([[5, 6, 7], [8, 9, 10, 11, 12], [13]]):
        tokens[row, width - len(prompt) :] = prompt
        valid[row, width - len(prompt) :] = True
    return tokens, valid


def generate(sampler: Sampler, params, rows=(0, 0, 1, 1, 2, 2), samples=(0, 1, 0, 1, 0, 1), **kwargs) -> Generation:
    tokens, valid = prompts(kwargs.pop("width", 5))
    rows, samples = np.array(rows, np.int32), np.array(samples, np.int32)
    keys = sample_keys(kwargs.pop("seed", 0), kwargs.pop("step", 0), jnp.asarray(rows), jnp.asarray(samples))
    return jax.device_get(sampler(params, tokens, valid, rows, keys, Transform(**kwargs)))


def test_a_sample_does_not_depend_on_its_place_in_the_batch(sampler: Sampler, params) -> None:
    together = generate(sampler, params)
    shuffled = generate(sampler, params, rows=(2, 1, 0, 2, 1, 0), samples=(1, 0, 1, 0, 1, 0))
    order = [5, 2, 1, 4, 3, 0]
    np.testing.assert_array_equal(shuffled.tokens, together.tokens[order])
    np.testing.assert_allclose(shuffled.log_mu, together.log_mu[order], atol=1e-5)


def test_padding_of_the_prompt_changes_nothing(sampler: Sampler, params) -> None:
    narrow, wide = generate(sampler, params), generate(sampler, params, width=8)
    np.testing.assert_array_equal(narrow.tokens, wide.tokens)
    np.testing.assert_allclose(narrow.log_mu, wide.log_mu, atol=1e-5)


def test_completions_of_a_group_are_distinct(sampler: Sampler, params) -> None:
    found = generate(sampler, params, rows=(0,) * 8, samples=range(8))
    assert len({tuple(row) for row in found.tokens}) == 8


def test_another_step_or_seed_gives_other_samples(sampler: Sampler, params) -> None:
    many = {"rows": (0,) * 16, "samples": range(16)}
    base = generate(sampler, params, **many).tokens
    for other in (generate(sampler, params, step=1, **many), generate(sampler, params, seed=1, **many)):
        assert (base == other.tokens).all(-1).mean() < 0.25  # short ones may coincide by chance


def test_rows_end_with_a_stop_token_or_at_their_length(sampler: Sampler, params) -> None:
    found = generate(sampler, params, rows=(0,) * 64, samples=range(64))
    ends = np.isin(found.tokens, list(EOS)) & found.token_mask
    lengths = found.token_mask.sum(-1)
    stopped = found.finish_reason == FinishReason.STOP
    assert stopped.any() and (~stopped).any()
    np.testing.assert_array_equal(ends.any(-1), stopped)  # also where the stop token is the very last one
    last = found.tokens[np.arange(64), lengths - 1]
    assert np.isin(last[stopped], list(EOS)).all() and (ends.sum(-1) <= 1).all()
    assert (lengths[~stopped] == LENGTH).all()
    np.testing.assert_array_equal(found.token_mask, np.arange(LENGTH)[None] < lengths[:, None])
    assert (found.tokens[~found.token_mask] == PAD).all() and np.isnan(found.log_mu[~found.token_mask]).all()


def test_what_is_recorded_is_the_distribution_sampled(sampler: Sampler, policy: Policy, params) -> None:
    temperature = 0.7
    found = generate(sampler, params, temperature=temperature)
    for row, prompt in enumerate([[5, 6, 7]] * 2 + [[8, 9, 10, 11, 12]] * 2 + [[13]] * 2):
        length = int(found.token_mask[row].sum())
        ids = jnp.array([prompt + found.tokens[row, :length].tolist()])
        hidden, _, _ = policy.apply(
            params, ids, jnp.arange(ids.shape[1], dtype=jnp.int32)[None], jnp.ones(ids.shape, bool), None
        )
        expected = jax.nn.log_softmax(policy.head(params, hidden)[0, len(prompt) - 1 : -1] / temperature)
        for t in range(length):
            mu = np.asarray(expected[t], np.float64)
            y, top = found.tokens[row, t], found.top_k.ids[row, t]
            assert found.log_mu[row, t] == pytest.approx(mu[y], abs=2e-5)
            assert sorted(top) == sorted(np.argsort(-mu)[:TOP_K]) and (np.diff(found.top_k.log_mu[row, t]) <= 0).all()
            np.testing.assert_allclose(found.top_k.log_mu[row, t], mu[top], atol=2e-5)
            outside = np.setdiff1d(np.arange(VOCAB), [*top, y])
            assert found.tail_log_mu[row, t] == pytest.approx(np.log(np.exp(mu[outside]).sum()), abs=1e-4)


def test_greedy_takes_the_most_probable_token(sampler: Sampler, params) -> None:
    found = generate(sampler, params, greedy=True)
    np.testing.assert_array_equal(found.tokens[found.token_mask], found.top_k.ids[..., 0][found.token_mask])
    np.testing.assert_array_equal(found.tokens[0], found.tokens[1])


def test_new_parameters_are_used_at_once_and_without_a_compilation(sampler: Sampler, params) -> None:
    before = generate(sampler, params)
    traces = sampler.traces
    generate(sampler, params, temperature=0.6)
    after = generate(sampler, jax.tree.map(lambda x: 1.5 * x, params))
    assert sampler.traces == traces
    assert (after.tokens != before.tokens).any()


def test_without_top_k_the_log_probs_are_the_same(policy: Policy, sampler: Sampler, params) -> None:
    plain = Sampler(policy, max_new_tokens=LENGTH, top_k=0, eos_ids=EOS, pad_id=PAD)
    found, full = generate(plain, params), generate(sampler, params)
    assert found.top_k is None and found.tail_log_mu is None
    np.testing.assert_array_equal(found.tokens, full.tokens)
    np.testing.assert_allclose(found.log_mu, full.log_mu, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"top_k": VOCAB + 1}, "top_k is 24, expected 0 to the vocabulary's size 23"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"eos_ids": frozenset({99})}, r"ids \[99\] lie outside the vocabulary of 23"),
    ],
)
def test_bad_settings_are_refused(policy: Policy, changes: dict, message: str) -> None:
    settings = {"max_new_tokens": 4, "top_k": 2, "eos_ids": EOS, "pad_id": PAD} | changes
    with pytest.raises(ValueError, match=message):
        Sampler(policy, **settings)
