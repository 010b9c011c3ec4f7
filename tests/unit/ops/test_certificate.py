"""The certificate: a proven sign is the sign, in both precisions; and the bracket that it rests on."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ops._tail import check_inputs
from trustax.ops.certificate import direction_certificate, tail_bracket
from trustax.testing import oracles
from trustax.testing.tokens import Tokens, random_tokens, tokens

certify = jax.jit(direction_certificate, static_argnames=("vocab_size", "margin"))


@functools.cache
def many() -> Tokens:
    """Tokens of every hardness: near and far policies, fat and thin tails."""
    parts = [random_tokens(i, 2000, spread=s, shift=d) for i, (s, d) in enumerate([(1, 0.1), (1.5, 1), (4, 2)])]
    return Tokens(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def test_the_tail_stays_inside_the_bracket(x64):
    t = many()
    outside = ~t.inside
    tau = ((t.mu - t.pi) * t.pi * outside).sum(-1)
    log_max = np.log((t.pi * outside).max(-1))
    inputs = check_inputs(
        t.log_pi, t.log_mu, t.mask, t.slot, divergence="kl", tail="exact", sum_sq_pi=None, vocab_size=None, **t.tails
    )
    for largest in (None, jnp.asarray(log_max)):
        lower, upper = tail_bracket(inputs, inputs.cells("kl"), largest, 0.0)
        assert (lower <= tau + 1e-15).all() and (tau <= upper + 1e-15).all()
        assert (np.asarray(upper) - tau).min() < 1e-6, "the bound is not sharp anywhere: is it the right one?"


def test_the_bracket_holds_where_only_a_rounded_sum_of_squares_is_known():
    """Σπ² of float32 says nothing of a Σ_T π² of 1e-9, but √(T2·μ_K·μ_T) is then still above the margin."""
    rng = np.random.default_rng(1)
    pi, mu = (oracles.softmax(rng.normal(size=(2000, 6)) + np.array([top, 0, 0, 0, 0, 0])) for top in (10.0, 1.0))
    t = tokens(pi, mu, np.zeros(2000, int), 2)
    log_pi, log_mu, sum_sq = (jnp.asarray(x, jnp.float32) for x in (t.log_pi, t.log_mu, (pi**2).sum(-1)))
    inputs = check_inputs(
        log_pi, log_mu, t.mask, t.slot, divergence="kl", tail="exact", sum_sq_pi=sum_sq, vocab_size=None,
        tail_log_pi=None, tail_log_mu=None, tail_log_sum_sq_pi=None,
    )  # fmt: skip
    lower, upper = tail_bracket(inputs, inputs.cells("kl"), None, 1e-6)
    tau = ((mu - pi) * pi * ~t.inside).sum(-1)
    assert (np.asarray(lower) - 2e-7 <= tau).all() and (tau <= np.asarray(upper) + 2e-7).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])
@pytest.mark.parametrize("known", ["tails", "sum_sq"])
def test_a_proven_sign_is_never_wrong(x64, dtype, known):
    t = many()
    truth = np.sign(oracles.direction("kl", t.pi, t.mu, t.ids))
    tails = t.tails if known == "tails" else {"sum_sq_pi": (t.pi**2).sum(-1)}
    tails = {name: x.astype(dtype) for name, x in tails.items()}
    proven = np.asarray(certify(t.log_pi.astype(dtype), t.log_mu.astype(dtype), t.mask, t.slot, **tails))
    assert proven.dtype == np.int32
    np.testing.assert_array_equal(proven[proven != 0], truth[proven != 0])
    assert (proven == 1).sum() > 50 and (proven == -1).sum() > 500, "it proves next to nothing"
    assert (proven == 0).any(), "it proves everything: the tail must matter somewhere"


def test_the_largest_tail_probability_proves_more(x64):
    t = many()
    log_max = np.log((t.pi * ~t.inside).max(-1))
    base = np.asarray(certify(t.log_pi, t.log_mu, t.mask, t.slot, **t.tails))
    sharper = np.asarray(certify(t.log_pi, t.log_mu, t.mask, t.slot, tail_log_max_pi=log_max, **t.tails))
    assert (sharper[base != 0] == base[base != 0]).all()
    truth = np.sign(oracles.direction("kl", t.pi, t.mu, t.ids))
    np.testing.assert_array_equal(sharper[sharper != 0], truth[sharper != 0])


def test_the_kth_probability_is_of_the_top_k_not_of_the_sampled_token():
    """μ_y = .001 lies outside TopK; the tail holds a token with μ = .1 that must bound the cross term."""
    pi = np.array([[0.002, 0.498, 0.5]])  # slots: one top token, y; the tail is one token
    mu = np.array([[0.899, 0.001, 0.1]])
    args = np.log(pi[:, :2]), np.log(mu[:, :2]), np.ones((1, 2), bool), np.array([1])
    tails = {
        "tail_log_pi": np.log(pi[:, 2]),
        "tail_log_mu": np.log(mu[:, 2]),
        "tail_log_sum_sq_pi": 2 * np.log(pi[:, 2]),
    }
    found = int(certify(*[np.asarray(x) for x in args], **tails)[0])
    assert found in (0, int(np.sign(oracles.direction("kl", pi, mu, np.array([1]))[0])))


def test_equal_policies_empty_tails_and_padding():
    t = random_tokens(5, 40, vocab_size=4, k=4)
    nothing = np.full(40, -np.inf)
    empty = {"tail_log_pi": nothing, "tail_log_mu": nothing, "tail_log_sum_sq_pi": nothing}
    assert not certify(t.log_pi, t.log_pi, t.mask, t.slot, **empty).any()
    g = oracles.direction("kl", t.pi, t.mu, t.ids)
    clear = np.abs(g) > 1e-5
    np.testing.assert_array_equal(certify(t.log_pi, t.log_mu, t.mask, t.slot, **empty)[clear], np.sign(g)[clear])
    junk = jnp.full((40, 5), jnp.nan)
    assert not certify(junk, junk, np.zeros((40, 5), bool), t.slot, sum_sq_pi=junk[:, 0]).any()


def test_problems_are_reported():
    ok = jnp.zeros((2, 3)), jnp.zeros((2, 3)), jnp.ones((2, 3), bool), jnp.zeros(2, jnp.int32)
    with pytest.raises(ValueError, match="needs tail_log_sum_sq_pi"):
        direction_certificate(*ok)
    with pytest.raises(ValueError, match=r"tail_log_max_pi has shape \(3,\)"):
        direction_certificate(*ok, sum_sq_pi=jnp.zeros(2), tail_log_max_pi=jnp.zeros(3))
