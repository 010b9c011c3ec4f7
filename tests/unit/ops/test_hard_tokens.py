"""Float32 against float64 on the tokens that are hard: one token holds all of the mass but 1e-12."""

import decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ops.directions import predictive_direction
from trustax.ops.divergences import DIVERGENCES as NAMES
from trustax.ops.tails import tail_statistics
from trustax.testing import oracles

predict = jax.jit(predictive_direction, static_argnames="divergence")
statistics = jax.jit(tail_statistics)


class TestHardTokens:
    K = 20

    def batch(self, seed: int, count: int, vocab_size: int):
        """Logits of μ and π in float32: sharpened ×3 or ×8; in half of them one token of the top ones raised by 18."""
        rng = np.random.default_rng(seed)
        z_mu = (rng.normal(size=(count, vocab_size)) * rng.uniform(0.5, 3.0, size=(count, 1))).astype(np.float32)
        ids = np.argmax(z_mu + rng.gumbel(size=z_mu.shape), axis=-1)
        sharpness = rng.choice([3.0, 8.0], size=(count, 1)).astype(np.float32)
        z_pi = (z_mu + rng.normal(size=z_mu.shape).astype(np.float32) * np.float32(0.3)) * sharpness
        top = np.argpartition(-z_mu, self.K, axis=-1)[:, : self.K]
        raised = np.where(rng.uniform(size=count) < 0.5, ids, top[np.arange(count), rng.integers(self.K, size=count)])
        lifted = rng.uniform(size=count) < 0.5
        z_pi[np.arange(count), raised] += np.float32(18) * lifted
        return z_mu, z_pi, ids, self._slots(z_mu, ids)

    def _slots(self, z_mu, ids):
        order = np.argpartition(-z_mu, self.K, axis=-1)[:, : self.K]
        among = (order == ids[:, None]).any(-1)
        slot = np.where(among, (order == ids[:, None]).argmax(-1), self.K)
        mask = np.concatenate([np.ones_like(order, bool), ~among[:, None]], axis=-1)
        return np.concatenate([order, ids[:, None]], axis=-1), mask, slot

    @staticmethod
    def in_float64(logits, ids, mask):
        """Cells (slots, then tail) and own masses, each mass as a sum."""
        weights = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        slots = np.where(mask, np.take_along_axis(weights, ids, axis=-1), 0.0)
        np.put_along_axis(weights, ids, 0.0, axis=-1)
        tail, tail_sq = weights.sum(-1), (weights**2).sum(-1)
        own = np.concatenate([slots, (tail_sq / tail)[:, None]], axis=-1)
        return np.concatenate([slots, tail[:, None]], axis=-1), own

    def wrong_signs(self, seed: int, count: int, vocab_size: int):
        """Wrong signs by divergence; the largest error relative to Σ|terms|; the least 1 − π_y and the least π_T."""
        z_mu, z_pi, _, (slots, mask, slot) = self.batch(seed, count, vocab_size)
        of_pi, of_mu = (statistics(z, slots, mask) for z in (z_pi, z_mu))
        tails = {"tail_log_pi": of_pi.tail_log_mass, "tail_log_mu": of_mu.tail_log_mass}
        tails["tail_log_sum_sq_pi"] = of_pi.tail_log_sum_sq
        (pi, own), (mu, _) = (self.in_float64(z, slots, mask) for z in (z_pi, z_mu))
        wrong, error = dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 0.0)
        for name in NAMES:
            found = np.asarray(predict(of_pi.log_probs, of_mu.log_probs, mask, slot, divergence=name, **tails))
            for n in range(count):
                cells = np.append(mask[n], True)
                exact, scale = oracles.cell_direction(name, pi[n, cells], mu[n, cells], own[n, cells], slot[n])
                wrong[name] += int(np.sign(found[n]) != np.sign(exact))
                # TV jumps where float32 cannot tell π_c from μ_c; below 1e-30 no digits are left, only the sign.
                if name != "tv" and scale > 1e-30:
                    error[name] = max(error[name], abs(found[n] - exact) / scale)
        others = np.where(np.arange(self.K + 2) == slot[:, None], 0, pi).sum(-1)
        return wrong, error, (others.min(), pi[:, -1].min())

    def test_no_wrong_sign(self):
        wrong, error, hardness = self.wrong_signs(0, 300, 5000)
        assert max(hardness) < 1e-12, "the tokens are not hard enough"
        assert not any(wrong.values()), wrong
        assert max(error.values()) < 1e-3, error

    def test_the_sign_outlasts_the_value(self):
        """1 − π_y = 1e-25: G is of the order 1e-50, which float32 has not."""
        log_pi, log_mu = jnp.array([-1e-25, np.log(1e-25)]), jnp.log(jnp.array([0.4, 0.6]))
        mask, nothing = jnp.array([True, True]), jnp.float32(-jnp.inf)
        tails = {"tail_log_pi": nothing, "tail_log_mu": nothing, "tail_log_sum_sq_pi": nothing}
        for name in ("reverse_kl", "tv"):
            for slot in (0, 1):
                g = float(predict(log_pi, log_mu, mask, jnp.array(slot), divergence=name, **tails))
                assert np.sign(g) == (1 if slot == 0 else -1) and np.isfinite(g)

    @pytest.mark.slow
    def test_no_wrong_sign_among_ten_thousand(self):
        for seed in range(100, 150):
            wrong, error, _ = self.wrong_signs(seed, 200, 50_000)
            assert not any(wrong.values()), (seed, wrong)
            assert max(error.values()) < 1e-3, (seed, error)

    def test_the_oracle_agrees_with_sixty_digits(self):
        """A few of the hard tokens once more from the definition, in decimal arithmetic."""
        rng = np.random.default_rng(3)
        with decimal.localcontext(prec=80):
            for _ in range(12):
                z_mu = rng.normal(size=6) * 2
                z_pi = z_mu * 8
                z_pi[rng.integers(6)] += 18
                pi, mu = ([decimal.Decimal(float(x)).exp() for x in z] for z in (z_pi, z_mu))
                pi, mu = [p / sum(pi) for p in pi], [m / sum(mu) for m in mu]
                y = int(rng.integers(6))
                gains = [(a == y) - pi[a] for a in range(6)]
                h = sum(p * g for p, g in zip(pi, gains, strict=True))
                exact = sum(pi[a] * (gains[a] - h) * (pi[a] / mu[a]).ln() for a in range(6))
                probs = [np.array([float(x) for x in xs]) for xs in (pi, mu)]
                found, _ = oracles.cell_direction("reverse_kl", *probs, probs[0], y)
                assert found == pytest.approx(float(exact), rel=1e-9, abs=1e-300)
