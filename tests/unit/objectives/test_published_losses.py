"""Every recipe's gradient against the *published* loss, written down independently and differentiated by JAX.

Each loss below is per token, as its paper or code has it, with its own masks, clips and stop-gradients, in float64;
the aggregation is written out too. None of our terms is used.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recipes import recipes

from trustax.objectives import RECIPES, build
from trustax.testing.full_vocabulary import token_stats

B, T, V, K = 6, 7, 12, 4
SG = jax.lax.stop_gradient


@pytest.fixture(scope="module")
def case():
    """Three policies over a small vocabulary, whose ratios lie on both sides of every clip; ragged lengths."""
    rng = np.random.default_rng(3)
    base = 1.5 * rng.normal(size=(B, T, V))
    drift = rng.normal(size=(2, B, T, V))
    lengths = np.array([7, 5, 1, 0, 6, 4])
    return {
        "mu": base,
        "anchor": base + 0.25 * drift[0],
        "ref": base + 0.3 * rng.normal(size=(B, T, V)),
        "pi": base + 0.25 * drift[0] + 0.45 * drift[1] * rng.random((B, T, 1)),
        "tokens": rng.integers(0, V, (B, T)),
        "a": np.repeat(np.array([1.3, -0.7, 0.4, 0.9, -1.1, 0.0])[:, None], T, 1),
        "m": np.arange(T)[None] < lengths[:, None],
    }


@pytest.fixture(scope="module")
def known(case):
    """The statistics, and the distributions they come from, in float64."""
    with jax.enable_x64(True):
        pi, mu, anchor, ref = (jax.nn.log_softmax(jnp.asarray(case[key])) for key in ("pi", "mu", "anchor", "ref"))
        arrays = (jnp.asarray(case[key]) for key in ("tokens", "a", "m"))
        stats = token_stats(pi, mu, *arrays, top_k=K, log_probs_anchor=anchor, log_probs_ref=ref)
        return stats, np.asarray(pi), np.asarray(mu)


class Tokens:
    """What a published loss reads: log-probs of sampled tokens, cleaned by its own ``where``."""

    def __init__(self, stats, log_pi, full_pi, full_mu):
        self.m = stats.token_mask

        def clean(x):
            return jnp.where(self.m, x, 0.0)

        self.lp, self.mu, self.po, self.ref = map(clean, (log_pi, stats.log_mu, stats.log_anchor, stats.log_ref))
        self.fixed = np.where(self.m, stats.log_pi, 0.0)  # log π as a number, for selections
        self.a, self.support, self.full_pi, self.full_mu = clean(stats.advantages), stats.support, full_pi, full_mu
        self.n = jnp.maximum(self.m.sum(-1, keepdims=True), 1).astype(jnp.float64)
        self.r = jnp.exp(self.lp - self.po)
        self.rm = jnp.exp(self.lp - self.mu)
        self.k = jnp.exp(self.po - self.mu)

    def mean_t(self, x):
        return jnp.where(self.m, x, 0.0).sum(-1, keepdims=True) / self.n


def clip_loss(t, r, low=0.2, high=0.2):
    return jnp.maximum(-t.a * r, -t.a * jnp.clip(r, 1 - low, 1 + high))


def dual(t, loss, c):
    return jnp.where(t.a < 0, jnp.minimum(loss, -t.a * c), loss)


def k3_loss(t):
    return jnp.exp(t.ref - t.lp) - 1 - (t.ref - t.lp)


def gspo(t):
    s = jnp.exp(SG(t.mean_t(t.lp - t.po)) + t.lp - SG(t.lp))
    return clip_loss(t, s, 3e-2, 4e-2)


def gmpo_sequence(t):
    """The published loss is one number per sequence; spread over its n tokens so that their mean is it."""
    x = t.lp - t.po
    clamped = jnp.where(t.a > 0, jnp.minimum(x, 0.4), jnp.maximum(x, -0.4))
    return -t.a * jnp.exp(t.mean_t(clamped))


def ctpo(t):
    s = jnp.cumsum(jnp.where(t.m, jnp.clip(t.lp - t.po, -20, 20), 0.0), -1)
    log_p = jnp.minimum(SG(s) + t.lp - SG(t.lp), 10.0)
    grow = jnp.sqrt(jnp.maximum(jnp.cumsum(t.m, -1), 1).astype(jnp.float64))
    q = jnp.exp(jnp.clip(log_p, -0.25 * grow, 0.3 * grow))
    loss = jnp.maximum(-t.a * jnp.exp(log_p), -t.a * q)
    return jnp.where(t.a < 0, jnp.minimum(loss, -t.a * jnp.exp(0.3 * grow)), loss)


def minpro(t):
    x = jnp.where(t.m, t.lp - t.mu, jnp.inf)
    before = jnp.concatenate([jnp.full((B, 1), jnp.inf), jax.lax.cummin(x, axis=1)[:, :-1]], 1)
    b = jnp.exp(jnp.where(jnp.isinf(before), 0.0, before))
    return -SG(jnp.clip(b * t.rm, 0.8, 1.28)) * t.a * t.lp


def aspo(t):
    r = jnp.where(t.a > 0, jnp.exp(-SG(t.lp - t.po)), SG(t.r))
    keep = jnp.where(t.a > 0, t.r <= 1.2, t.r >= 0.8)
    return -SG(jnp.minimum(r, 3.0) * keep) * t.a * t.lp


def lumped(t, kind):
    """The divergence over TopK(μ) ∪ {y} and the rest, from the whole distributions."""
    rows = []
    for pi, mu, ids, ok in zip(
        np.exp(t.full_pi).reshape(-1, V), np.exp(t.full_mu).reshape(-1, V),
        np.asarray(t.support.ids).reshape(-1, K + 1), np.asarray(t.support.mask).reshape(-1, K + 1), strict=True,
    ):  # fmt: skip
        s = sorted(set(ids[ok].tolist()))
        p, q = np.append(mu[s], 1 - mu[s].sum()), np.append(pi[s], 1 - pi[s].sum())
        rows.append(
            {"tv": 0.5 * np.abs(p - q).sum(), "kl": (p * np.log(p / q)).sum(), "rkl": (q * np.log(q / p)).sum()}[kind]
        )
    return jnp.asarray(rows).reshape(B, T)


def full_direction(t, kind):
    """G of the lumped divergence, as its derivative along the softmax step, by finite differences in float64."""
    rows, h = [], 1e-6
    y = np.asarray(jnp.take_along_axis(t.support.ids, t.support.sampled_slot[..., None], -1)).reshape(-1)
    for z, mu, ids, ok, token in zip(
        np.asarray(t.full_pi).reshape(-1, V), np.exp(t.full_mu).reshape(-1, V),
        np.asarray(t.support.ids).reshape(-1, K + 1), np.asarray(t.support.mask).reshape(-1, K + 1), y, strict=True,
    ):  # fmt: skip
        s = sorted(set(ids[ok].tolist()))
        step = np.eye(V)[token] - np.exp(z)

        def divergence(x, s=s, mu=mu):
            pi = np.exp(x) / np.exp(x).sum()
            p, q = np.append(mu[s], 1 - mu[s].sum()), np.append(pi[s], 1 - pi[s].sum())
            return {"tv": 0.5 * np.abs(p - q).sum(), "kl": (p * np.log(p / q)).sum(), "rkl": (q * np.log(q / p)).sum()}[
                kind
            ]

        rows.append((divergence(z + h * step) - divergence(z - h * step)) / (2 * h))
    return jnp.asarray(rows).reshape(B, T)


def masked_pg(t, d, delta, direction, cap=np.inf):
    drop = (d > delta) & (t.a * direction > 0)
    return -SG(jnp.where(drop, 0.0, jnp.minimum(t.rm, cap))) * t.a * t.lp


def binary_kl(t):
    p, q = (jnp.where(t.m, jnp.exp(x), 0.5) for x in (t.mu, SG(t.lp)))
    return p * jnp.log(p / q) + (1 - p) * jnp.log((1 - p) / (1 - q))


def tv(t):
    return jnp.abs(jnp.exp(SG(t.lp)) - jnp.exp(t.mu))


def drpo(t, where=True):
    return -t.a * t.rm + jnp.where(where, jnp.abs(t.a) / (2 * 0.4) * jnp.exp(t.mu) * (t.rm - 1) ** 2, 0.0)


def cppo(t, d):
    wp = 1 - 0.2 * (jnp.cumsum(t.m, -1) - 1) / jnp.maximum(t.n - 1, 1)
    z, wp = jnp.where(t.m, wp * d, 0.0), jnp.where(t.m, wp, 0.0)
    c = jnp.minimum(0.15, 0.15 + 0.05 * (jnp.cumsum(wp, -1) - wp) - (jnp.cumsum(z, -1) - z))
    keep = (t.a * (t.rm - 1) <= 0) | (z <= c)
    return -SG(keep * jnp.minimum(t.rm, 20.0)) * t.a * t.lp


def sat(t):
    x = np.abs(t.fixed - np.asarray(t.mu))
    q = np.quantile(x[np.asarray(t.m)], 0.9)
    c = np.where(x <= q, 1.0, 2 / (1 + (x / q) ** 2))
    return jnp.maximum(-t.a * t.rm, -t.a * jnp.clip(t.rm, 1 - 0.2 * c, 1 + 0.2 * c))


def sapo_search(t):
    good = (t.a >= 0) & t.m
    lift = -jnp.where(good & (t.r <= 0.8), t.lp - t.po, 0.0).sum() / good.sum() * 0.1
    return clip_loss(t, t.r) + lift  # a constant per token: its token mean is the term itself


def vaco(t):
    drop = (t.mean_t(jnp.abs(t.k - 1)) > 0.15) & ((t.po - t.mu) * t.a > 0)
    return SG(jnp.where(drop, 0.0, jnp.minimum(t.k, 2.0))) * clip_loss(t, t.r)


def vespo(t):
    log_w = jnp.clip((t.n * t.mean_t(t.lp - t.po)), np.log(1e-8), 20)
    k, lam = jnp.where(t.a >= 0, 2.0, 3.0), jnp.where(t.a >= 0, 3.0, 2.0)
    return -SG(jnp.exp(lam) * jnp.exp(log_w) ** k * jnp.exp(-lam * jnp.exp(log_w))) * t.a * t.lp


def covariance(t):
    m, a = np.asarray(t.m), np.asarray(t.a)
    return (t.fixed - t.fixed[m].mean()) * (a - a[m].mean())


def top_share(t, share, among):
    cov = np.where(np.asarray(among), covariance(t), -np.inf)
    count = int(np.floor(share * np.asarray(t.m).sum()))
    return jnp.asarray(cov >= np.sort(cov.ravel())[::-1][count - 1])


def opsm(t):
    drop = (t.a < 0) & (t.mean_t(SG(t.mu - t.lp)) > 0.02)
    return jnp.where(drop, 0.0, clip_loss(t, t.rm))


TOKEN, SUMS, MEANS, HORIZON = "token_mean", "sums", "means", "horizon"

# recipe: (hyperparameters, per-token loss, aggregation)
PUBLISHED = {
    "pg_is": ({}, lambda t: -t.rm * t.a, SUMS),
    "ppo_clip": ({}, lambda t: clip_loss(t, t.r), TOKEN),
    "grpo": ({"beta": 0.3}, lambda t: clip_loss(t, t.r) + 0.3 * k3_loss(t), MEANS),
    "dapo": ({"dual": 1.15}, lambda t: dual(t, clip_loss(t, t.r, 0.2, 0.28), 1.15), TOKEN),
    "dr_grpo": ({"horizon": 9.0}, lambda t: clip_loss(t, t.r), HORIZON),
    "gspo": ({"eps_low": 3e-2, "eps_high": 4e-2}, gspo, MEANS),
    "luspo": ({"eps_low": 3e-2, "eps_high": 4e-2}, gspo, SUMS),
    "gmpo": ({}, gmpo_sequence, MEANS),
    "cispo": ({"cap": 1.2}, lambda t: -SG(jnp.minimum(t.rm, 1.2)) * t.a * t.lp, TOKEN),
    "aipo": ({"rho": 1.2}, lambda t: -SG(jnp.minimum(t.rm, 1.2)) * t.a * t.lp, TOKEN),
    "aspo": ({}, aspo, TOKEN),
    "clip_cov": (
        {"share": 0.2, "cov_low": 0.2},
        lambda t: jnp.where(
            top_share(t, 0.2, t.m & (covariance(t) > 0.2) & (covariance(t) < 5)), 0.0, clip_loss(t, t.r)
        ),
        TOKEN,
    ),
    "kl_cov": (
        {"share": 0.2, "coefficient": 0.7},
        lambda t: -t.a * t.r + jnp.where(top_share(t, 0.2, t.m), 0.35 * (t.lp - t.po) ** 2, 0.0),
        TOKEN,
    ),
    "dro": ({"beta": 0.4}, lambda t: -(t.a * t.lp - 0.2 * (t.lp - t.po) ** 2), TOKEN),
    "mini_rl": (
        {"cap": 1.3},
        lambda t: -SG(jnp.minimum(t.rm, 1.3) * jnp.where(t.a > 0, t.r <= 1.27, t.r >= 0.8)) * t.a * t.lp,
        SUMS,
    ),
    "tis": ({"cap": 1.1}, lambda t: jnp.minimum(t.k, 1.1) * clip_loss(t, t.r), TOKEN),
    "mis": ({"cap": 1.1}, lambda t: jnp.where(t.k <= 1.1, t.k, 0.0) * clip_loss(t, t.r), TOKEN),
    "icepop": (
        {"low": 0.9, "high": 1.2},
        lambda t: jnp.where((t.k >= 0.9) & (t.k <= 1.2), t.k, 0.0) * clip_loss(t, t.r),
        TOKEN,
    ),
    "dppo_binary_tv": ({"delta": 0.02}, lambda t: masked_pg(t, tv(t), 0.02, SG(t.rm) - 1), SUMS),
    "dppo_binary_kl": ({"delta": 0.002}, lambda t: masked_pg(t, binary_kl(t), 0.002, SG(t.rm) - 1), SUMS),
    "dppo_topk_tv": ({"delta": 0.08}, lambda t: masked_pg(t, lumped(t, "tv"), 0.08, SG(t.rm) - 1), SUMS),
    "dppo_topk_kl": ({"delta": 0.02}, lambda t: masked_pg(t, lumped(t, "kl"), 0.02, SG(t.rm) - 1), SUMS),
    "pdm_topk_kl": (
        {"delta": 0.02, "cap": 1.3},
        lambda t: masked_pg(t, lumped(t, "kl"), 0.02, full_direction(t, "kl"), 1.3),
        SUMS,
    ),
    "pdm_topk_reverse_kl": (
        {"delta": 0.02},
        lambda t: masked_pg(t, lumped(t, "rkl"), 0.02, full_direction(t, "rkl"), 5.0),
        SUMS,
    ),
    "pdm_topk_tv": ({"delta": 0.08}, lambda t: masked_pg(t, lumped(t, "tv"), 0.08, full_direction(t, "tv"), 5.0), SUMS),
    "drpo": ({"delta": 0.4, "horizon": 9.0}, drpo, HORIZON),
    "masked_drpo": (
        {"delta": 0.4, "delta_mask": 0.02, "horizon": 9.0},
        lambda t: drpo(t, tv(t) > 0.02),
        HORIZON,
    ),
    "drpo_predictive": (
        {"delta": 0.4, "horizon": 9.0},
        lambda t: -SG(t.rm * (1 - (t.a * full_direction(t, "kl") > 0) * tv(t) / 0.4)) * t.a * t.lp,
        HORIZON,
    ),
    "spo": ({"eps": 0.5}, lambda t: -t.a * t.r + jnp.abs(t.a) * (t.r - 1) ** 2 / (2 * 0.5), TOKEN),
    "ctpo": ({"eps_low": 0.25, "eps_high": 0.3, "dual": 0.3}, ctpo, MEANS),
    "minpro": ({}, minpro, TOKEN),
    "sapo_search": ({}, sapo_search, TOKEN),
    "sapo_soft": (
        {},
        lambda t: -t.a * 4 / jnp.where(t.a > 0, 1.0, 1.05) * jax.nn.sigmoid(jnp.where(t.a > 0, 1.0, 1.05) * (t.r - 1)),
        MEANS,
    ),
    "cppo": ({"adaptive": False, "delta_b": 0.05, "horizon": 9.0}, lambda t: cppo(t, lumped(t, "tv")), HORIZON),
    "trm_max": (
        {"delta": 0.15},
        lambda t: (jnp.where(t.m, SG(t.lp - t.mu) ** 2 / 2, 0.0).max(-1, keepdims=True) <= 0.15) * -t.rm * t.a,
        SUMS,
    ),
    "trm_avg": (
        {"delta": 0.05},
        lambda t: (t.mean_t(SG(t.rm - 1 - (t.lp - t.mu))) <= 0.05) * -t.rm * t.a,
        SUMS,
    ),
    "opsm": ({"delta": 0.02}, opsm, MEANS),
    "vaco": ({"bound": 0.15}, vaco, TOKEN),
    "sat": ({}, sat, MEANS),
    "vespo": ({}, vespo, TOKEN),
}
NOT_DIFFERENTIABLE = {
    "pdm_certified": "its direction is a proof, not a formula: tested with ops.directions",
    "update_aware": "its direction comes from the trainer",
}


def aggregate(losses, m, mode):
    losses = jnp.where(m, losses, 0.0)
    n, sequences = m.sum(-1), (m.sum(-1) > 0).sum()
    return {
        TOKEN: lambda: losses.sum() / n.sum(),
        SUMS: lambda: losses.sum() / sequences,
        MEANS: lambda: (losses.sum(-1) / jnp.maximum(n, 1)).sum() / sequences,
        HORIZON: lambda: losses.sum() / 9.0 / sequences,
    }[mode]()


def test_every_recipe_is_here():
    assert set(PUBLISHED) | set(NOT_DIFFERENTIABLE) == set(RECIPES)


@pytest.mark.parametrize("name", recipes(PUBLISHED))
def test_gradient_equals_that_of_the_published_loss(name, known):
    hyperparameters, published, mode = PUBLISHED[name]
    stats, full_pi, full_mu = known
    a, m = stats.advantages, stats.token_mask
    with jax.enable_x64(True):
        objective = build(RECIPES[name](**hyperparameters))

        def theirs(log_pi):
            return aggregate(published(Tokens(stats, log_pi, full_pi, full_mu)), m, mode)

        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            want = jax.grad(theirs)(stats.log_pi)
            plain = jax.grad(lambda lp: aggregate(-a * lp, m, mode))(stats.log_pi)
        got = jax.grad(lambda lp: objective(stats.replace(log_pi=lp)).loss)(stats.log_pi)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
    assert not np.allclose(got, plain, rtol=1e-3), "the case does not exercise the recipe"
