"""TV's kink at π_a = μ_a, and the outward test that allows for it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ops import directions as dr
from trustax.testing import oracles
from trustax.testing.tokens import Tokens, random_tokens, tokens

predict = jax.jit(dr.predictive_direction, static_argnames=("divergence", "tail", "vocab_size"))
predict_full = jax.jit(dr.predictive_direction_full, static_argnames="divergence")
tie_rate = jax.jit(dr.tv_tie_rate, static_argnames=("tail", "vocab_size"))


def on_support(t: Tokens, **kwargs):
    return predict(t.log_pi, t.log_mu, t.mask, t.slot, **kwargs)


class TestTies:
    """TV has a kink at π_a = μ_a: a tied cell adds |dπ_a|/2 whichever way it moves."""

    def tokens(self):
        t = random_tokens(16, 400, vocab_size=8)
        rng = np.random.default_rng(0)
        mu = np.where(rng.uniform(size=t.pi.shape) < 0.3, t.pi, t.mu)
        mu[:, -1] += 1 - mu.sum(-1)  # the last token takes up the difference
        built = tokens(t.pi, mu, t.ids, 3)
        cells = [np.concatenate([x, oracles.lump(x, built.inside)], axis=-1) for x in (t.pi, mu)]
        distance = np.abs(cells[0] - cells[1])  # tied, or clearly not: a rounding error apart is neither
        keep = (mu > 1e-3).all(-1) & ((distance == 0) | (distance > 1e-5)).all(-1)
        return tokens(t.pi[keep], mu[keep], t.ids[keep], 3)

    @pytest.mark.parametrize("form", ["full", "lumped"])
    def test_outward_is_what_a_small_step_does(self, x64, form):
        t = self.tokens()
        if form == "full":
            g = predict_full(np.log(t.pi), np.log(t.mu), t.ids, divergence="tv")
            ties = dr.tv_tie_rate_full(np.log(t.pi), np.log(t.mu), t.ids)

            def change(s):
                return oracles.DIVERGENCES["tv"](oracles.step(t.pi, t.ids, s), t.mu)
        else:
            g = on_support(t, divergence="tv", **t.tails)
            ties = tie_rate(t.log_pi, t.log_mu, t.mask, t.slot, **t.tails)

            def change(s):
                return oracles.lumped("tv", oracles.step(t.pi, t.ids, s), t.mu, t.inside)

        assert (np.asarray(ties) > 1e-4).mean() > 0.3
        ignored = 0
        for sign in (1.0, -1.0):
            rate = (change(sign * 1e-7) - change(0.0)) / 1e-7
            np.testing.assert_allclose(sign * g + ties, rate, atol=2e-6)
            clear = np.abs(rate) > 1e-5
            advantages = np.full(len(t.ids), 2.5 * sign)
            np.testing.assert_array_equal(dr.is_outward(advantages, g, ties)[clear], (rate > 0)[clear])
            ignored += (np.asarray(dr.is_outward(advantages, g)) != (rate > 0))[clear].sum()
        assert ignored > 10  # without the ties the test is wrong

    def test_a_tail_left_out_has_no_tie(self):
        log_probs, mask = jnp.log(jnp.array([0.5, 0.2])), jnp.array([True, True])
        none = tie_rate(log_probs, jnp.log(jnp.array([0.4, 0.3])), mask, jnp.array(0), tail="none")
        assert float(none) == 0

    def test_the_zero_update_grows_tv_in_both_directions(self):
        t = random_tokens(17, 50)
        ties = tie_rate(t.log_pi, t.log_pi, t.mask, t.slot, tail="aggregated")
        g = predict(t.log_pi, t.log_pi, t.mask, t.slot, tail="aggregated", divergence="tv")
        for advantage in (1.0, -1.0):
            assert dr.is_outward(jnp.full(50, advantage), g, ties).all()
        assert not dr.is_outward(jnp.zeros(50), g, ties).any()
