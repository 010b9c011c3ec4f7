"""The support TopK(μ) ∪ {y}: each id once, whatever the engine sent."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ops.support import check_support, sampled_support, top_k
from trustax.testing.tokens import random_tokens

P = np.array([0.4, 0.3, 0.15, 0.1, 0.04, 0.01], np.float32)


@pytest.mark.parametrize(
    ("k", "sampled", "ids", "tail"),
    [(2, 0, {0, 1}, 0.30), (2, 4, {0, 1, 4}, 0.26), (6, 3, set(range(6)), 0.0), (8, 5, set(range(6)), 0.0)],
    ids=["among top", "outside top", "K = V", "K > V"],
)
def test_every_id_stands_once(k, sampled, ids, tail):
    log_mu = jnp.log(jnp.asarray(P))[None]
    top = top_k(log_mu, k)
    built = jax.jit(sampled_support)(top.ids, top.log_mu, jnp.array([sampled]), log_mu[:, sampled])
    check_support(built)
    support = types.SimpleNamespace(**{f.name: getattr(built, f.name) for f in dataclasses.fields(built)})
    support.ids, support.log_mu, support.mask = built.ids[0], built.log_mu[0], built.mask[0]
    valid = np.asarray(support.mask)
    assert valid.sum() == len(ids) and set(np.asarray(support.ids)[valid].tolist()) == ids
    assert 1 - np.exp(np.asarray(support.log_mu)[valid]).sum() == pytest.approx(tail, abs=1e-6)
    assert np.isfinite(np.asarray(support.log_mu)[valid]).all()
    slot = int(support.sampled_slot[0])
    assert valid[slot] and int(support.ids[slot]) == sampled
    assert float(support.log_mu[slot]) == pytest.approx(np.log(P[sampled]), rel=1e-6)
    assert np.isnan(support.log_pi).all()


def test_it_equals_the_plain_construction():
    t = random_tokens(0, 300, k=4)
    rows = np.arange(300)
    top = t.support_ids[:, :4]
    log_mu = np.log(t.mu)
    found = sampled_support(top, np.take_along_axis(log_mu, top, -1), t.ids, log_mu[rows, t.ids])
    np.testing.assert_array_equal(found.mask, t.mask)
    np.testing.assert_array_equal(found.sampled_slot, t.slot)
    np.testing.assert_array_equal(found.ids, t.support_ids)
    np.testing.assert_allclose(found.log_mu[t.mask], t.log_mu[t.mask], rtol=1e-6)


def test_ties_go_to_the_lowest_id_and_k_is_checked():
    assert top_k(jnp.zeros((2, 5)), 3).ids.tolist() == [[0, 1, 2]] * 2
    with pytest.raises(ValueError, match="k is 0"):
        top_k(jnp.zeros(5), 0)


def test_an_engine_that_prepends_the_sampled_token():
    """K + 1 columns with the sampled id first and again by rank: counted twice the mass would be 1.1."""
    log_mu = jnp.log(jnp.asarray(P))
    ids = jnp.array([[0, 0, 1]])
    support = sampled_support(ids, log_mu[ids], jnp.array([0]), log_mu[:1])
    assert support.mask.tolist() == [[True, False, True, False]] and support.sampled_slot.tolist() == [0]


def test_a_token_that_cannot_be_sampled_has_no_slot():
    top_log_mu = jnp.array([[np.log(0.6), np.log(0.4), -np.inf]], jnp.float32)
    support = sampled_support(jnp.array([[3, 1, 0]]), top_log_mu, jnp.array([1]), top_log_mu[:, 1])
    assert support.mask.tolist() == [[True, True, False, False]] and support.sampled_slot.tolist() == [1]


def test_a_padding_position_has_no_valid_slot():
    nan = jnp.full((2, 3), jnp.nan)
    support = sampled_support(
        jnp.zeros((2, 3), jnp.int32), nan, jnp.zeros(2, jnp.int32), nan[:, 0], tail_log_mu=nan[:, 0]
    )
    assert not support.mask.any() and support.sampled_slot.tolist() == [3, 3]
    check_support(support)


def test_what_a_blank_slot_holds_does_not_hide_a_later_one():
    top_log_mu = jnp.array([[jnp.nan, np.log(0.6)]], jnp.float32)
    support = sampled_support(jnp.array([[7, 7]]), top_log_mu, jnp.array([7]), top_log_mu[:, 1])
    assert support.mask.tolist() == [[False, True, False]] and support.sampled_slot.tolist() == [1]


def valid_support():
    top = top_k(jnp.log(jnp.tile(jnp.asarray(P), (4, 1))), 2)
    built = sampled_support(top.ids, top.log_mu, jnp.array([0, 1, 4, 5]), jnp.log(jnp.asarray(P[[0, 1, 4, 5]])))
    return dataclasses.replace(built, log_pi=built.log_mu)


FAULTS = {
    "ids: an id stands in an earlier valid slot already at (2, 2)": ("ids", (2, 2), 1),
    "log_mu: NaN in a valid slot at (1, 0)": ("log_mu", (1, 0), np.nan),
    "log_pi: a log-probability above 0 at (3, 1): 0.5": ("log_pi", (3, 1), 0.5),
    "log_mu: mass above 1 at (2,): 1.24": ("log_mu", (2, 0), np.log(0.9)),
    "sampled_slot: points at no valid slot at (1,)": ("sampled_slot", (1,), 2),
}


@pytest.mark.parametrize("message", FAULTS)
def test_foreign_data_is_refused_by_name_and_index(message):
    support = valid_support()
    check_support(support)
    field, index, value = FAULTS[message]
    broken = dataclasses.replace(support, **{field: getattr(support, field).at[index].set(value)})
    with pytest.raises(ValueError) as error:
        check_support(broken)
    assert message in str(error.value)


def test_rounding_and_blank_slots_are_not_refused():
    support = valid_support()
    blank = dataclasses.replace(support, log_mu=jnp.where(support.mask, support.log_mu + 5e-6, jnp.nan))
    check_support(blank)


def test_shapes_are_checked_together():
    with pytest.raises(ValueError, match=r"top_log_mu has shape \(2, 2\).*sampled_ids has shape \(3,\)"):
        sampled_support(jnp.zeros((2, 3), jnp.int32), jnp.zeros((2, 2)), jnp.zeros(3, jnp.int32), jnp.zeros(2))
