"""Bad input is refused by name: all problems of a build or a trace at once, values with their first index."""

import copy

import jax
import jax.numpy as jnp
import pytest

from trustax.objectives import RECIPES, Aggregation, ObjectiveSpec, build
from trustax.objectives.regularizers import KLPenalty
from trustax.types import Support, TokenStats


def forced(record, changes):
    """A copy with fields of any shape and dtype: under pytest the constructors themselves check types."""
    record = copy.copy(record)
    for name, value in changes.items():
        object.__setattr__(record, name, value)
    return record


def good(**changes):
    shape = (2, 3)
    stats = TokenStats(
        log_pi=jnp.full(shape, -1.0),
        log_mu=jnp.full(shape, -1.5),
        advantages=jnp.ones(shape),
        token_mask=jnp.ones(shape, bool).at[1, 2].set(False),
    )
    return forced(stats, changes)


def support(**changes):
    wide = (2, 3, 3)
    found = Support(
        ids=jnp.broadcast_to(jnp.array([4, 5, 6]), wide),
        log_mu=jnp.log(jnp.broadcast_to(jnp.array([0.5, 0.2, 0.1]), wide)),
        log_pi=jnp.log(jnp.broadcast_to(jnp.array([0.4, 0.3, 0.1]), wide)),
        mask=jnp.ones(wide, bool),
        sampled_slot=jnp.zeros((2, 3), jnp.int32),
    )
    return forced(found, changes)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("dppo_binary_tv", {"delta": 1.2}, "delta = 1.2 is outside .*difference of probabilities"),
        ("dppo_topk_tv", {"delta": -0.1}, "delta = -0.1"),
        ("pdm_topk_tv", {"delta": float("nan")}, "delta = nan"),
        ("dppo_binary_kl", {"delta": -0.01}, "not negative"),
        ("pdm_topk_kl", {"delta": -1.0, "cap": -2.0}, "(?s)delta = -1.*cap on the weight"),
        ("pdm_topk_kl", {"tail": "exakt"}, "tail 'exakt' is unknown"),
        ("cppo", {"delta": 2.0}, "delta = 2"),
        ("cppo", {"delta_b": float("inf")}, "large finite budget"),
        ("grpo", {"estimator": "k1"}, "'k1' is refused"),
        ("grpo", {"estimator": "k3", "eps_low": -0.2}, "(?s)eps_low = -0.2.*'k3' is refused"),
        ("dr_grpo", {"horizon": 0.0}, "horizon"),
        ("drpo", {"delta": 0.0}, "must be above 0"),
        ("pg_is", {"aggregation": "seq_mean"}, "aggregation 'seq_mean' is unknown"),
        ("sat", {"quantile": 1.5}, "quantile = 1.5"),
    ],
)
def test_a_bad_hyperparameter_is_refused_at_build(name, options, words):
    with pytest.raises(ValueError, match=words):
        build(RECIPES[name](**options))


def test_infinity_switches_a_mask_off():
    assert build(RECIPES["dppo_binary_tv"](delta=float("inf"))).per_token(good()).keep.sum() == 5


def test_all_problems_of_a_spec_come_at_once():
    spec = ObjectiveSpec(
        aggregation=Aggregation("mean"), advantage="gppo", regularizers=(KLPenalty(-1.0, estimator="k1"),)
    )
    with pytest.raises(ValueError) as error:
        build(spec)
    for word in ("'mean'", "'gppo'", "coefficient = -1", "'k1' is refused"):
        assert word in str(error.value)


def test_unmet_needs_are_listed_together():
    spec = RECIPES["pdm_topk_kl"]().replace(regularizers=RECIPES["grpo"]().regularizers)
    with pytest.raises(ValueError, match="lack log_ref, sum_sq_pi, support"):
        build(spec)(good())
    with pytest.raises(ValueError, match="lack vocab_size"):
        build(RECIPES["pdm_topk_kl"](tail="uniform"))(good(support=support()))


def test_the_tail_from_the_logits_meets_the_need_of_a_sum_of_squares():
    tails = dict.fromkeys(("tail_log_mu", "tail_log_pi", "tail_log_sum_sq_pi"), jnp.full((2, 3), -3.0))
    assert build(RECIPES["pdm_topk_kl"]())(good(support=support(**tails))).weight == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"advantages": jnp.ones(2)}, r"advantages has shape \(2,\), expected .*advantages\[:, None\]"),
        ({"advantages": jnp.ones(3)}, r"advantages has shape \(3,\)"),
        ({"token_mask": jnp.ones((2, 3))}, "token_mask is float32, expected bool"),
        ({"token_mask": jnp.ones((2, 3), jnp.int32)}, "token_mask is int32, expected bool"),
        ({"log_mu": jnp.zeros((2, 4))}, "log_mu has shape"),
        ({"log_pi": jnp.zeros((2, 3), jnp.int32)}, "log_pi is int32"),
        ({"support": support(mask=jnp.ones((2, 3, 3)))}, "support.mask is float32"),
        ({"support": support(ids=jnp.zeros((2, 3, 2), jnp.int32))}, "support.ids has shape"),
        ({"support": support(sampled_slot=jnp.zeros(3, jnp.int32))}, r"support.sampled_slot has shape \(3,\)"),
        ({"support": support(sampled_slot=jnp.zeros((2, 3)))}, "support.sampled_slot is float32"),
        ({"support": support(tail_log_mu=jnp.full(3, -3.0))}, r"support.tail_log_mu has shape \(3,\)"),
        ({"support": support(tail_log_pi=jnp.float32(-3.0))}, r"support.tail_log_pi has shape \(\)"),
        ({"support": support(tail_log_sum_sq_pi=jnp.full((2, 1), -3.0))}, "support.tail_log_sum_sq_pi has shape"),
        ({"policy_staleness": jnp.zeros(2, jnp.int32)}, r"policy_staleness has shape \(2,\)"),
    ],
)
def test_wrong_shapes_and_dtypes_are_refused_while_tracing(changes, words):
    with pytest.raises(ValueError, match=words):
        jax.eval_shape(build(RECIPES["pg_is"]()), good(**changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"log_pi": jnp.full((2, 3), -1.0).at[1, 0].set(0.7)}, r"log_pi\[1, 0\] = 0.7: a log-probability above 0"),
        ({"log_mu": jnp.full((2, 3), -1.0).at[0, 2].set(jnp.nan)}, r"log_mu\[0, 2\] = nan: not finite"),
        ({"advantages": jnp.full((2, 3), jnp.inf)}, r"advantages\[0, 0\] = inf: .*\(5 such\)"),
        ({"support": support(ids=jnp.full((2, 3, 3), 4))}, r"support.ids\[0, 0, 1\] = 4: the id stands twice"),
        (
            {"support": support(log_mu=jnp.log(jnp.full((2, 3, 3), 0.5)))},
            r"mass of support.log_mu\[0, 0\] = 1.5: the support holds more",
        ),
        ({"support": support(log_pi=jnp.full((2, 3, 3), jnp.nan))}, "support.log_pi.*NaN in a valid slot"),
        (
            {"support": support(mask=jnp.ones((2, 3, 3), bool).at[0, 1, 0].set(False))},
            r"sampled_slot\[0, 1\] = 0: it points at an invalid slot",
        ),
        ({"support": support(sampled_slot=jnp.full((2, 3), 9))}, "outside the 3 slots"),
    ],
)
def test_impossible_values_are_refused_eagerly_with_their_index(changes, words):
    stats = good(**({"support": support(), "sum_sq_pi": jnp.full((2, 3), 0.3)} | changes))
    objective = build(RECIPES["dppo_topk_kl"]())
    with pytest.raises(ValueError, match=words):
        objective(stats)
    jax.jit(objective.__call__).lower(stats)  # inside a trace nothing is raised


def test_values_at_masked_tokens_are_not_judged():
    bad = good(log_pi=good().log_pi.at[1, 2].set(5.0), log_mu=good().log_mu.at[1, 2].set(jnp.nan))
    assert build(RECIPES["pg_is"]())(bad).weight == 2


def test_half_precision_is_not_taken_for_too_much_mass():
    """Log-probs rounded to bfloat16 sum to 1 ± 0.4 %; in float32 the same sum is refused."""
    wide = jnp.broadcast_to(jnp.log(jnp.array([0.5, 0.3, 0.203])), (2, 3, 3))
    stats = good(sum_sq_pi=jnp.full((2, 3), 0.3), support=support(log_mu=wide.astype(jnp.bfloat16)))
    assert float(build(RECIPES["dppo_topk_kl"]())(stats).metrics["tokens/mass_above_one"].total) == 0
    with pytest.raises(ValueError, match=r"mass of support\.log_mu"):
        build(RECIPES["dppo_topk_kl"]())(good(support=support(log_mu=wide)))


def test_impossible_values_are_counted_inside_jit():
    stats = good(
        log_pi=good().log_pi.at[1, 0].set(0.7),
        advantages=good().advantages.at[0, 0].set(jnp.nan),
        support=support(ids=jnp.full((2, 3, 3), 4), log_mu=jnp.log(jnp.full((2, 3, 3), 0.5))),
    )
    seen = jax.jit(build(RECIPES["dppo_topk_kl"]()).__call__)(stats).metrics
    counts = {name: float(metric.total) for name, metric in seen.items() if name.startswith("tokens/")}
    assert counts == {
        "tokens/valid": 4,
        "tokens/nonfinite": 1,
        "tokens/log_prob_above_zero": 1,
        "tokens/mass_above_one": 4,
        "tokens/duplicate_ids": 4,
    }


@pytest.mark.parametrize(
    ("name", "hyperparameters", "words"),
    [
        ("aspo", {"cap": -1.0}, "a cap is above 0"),
        ("cispo", {"cap": 0.0}, "a cap is above 0"),
        ("mini_rl", {"cap": float("nan")}, "a cap is above 0"),
        ("ctpo", {"power": float("nan")}, "power = nan"),
        ("cppo", {"ceiling": 0.5}, "ceiling = 0.5"),
        ("cppo", {"scale": -1.0}, "scale = -1"),
        ("clip_cov", {"cov_low": 9.0}, r"cov_high = 5 is outside \[9, inf\]"),
        ("cispo", {"low": 3.0, "cap": 1.0}, "between 0 and the cap"),
        ("cispo", {"low": -1.0}, "between 0 and the cap"),
        ("minpro", {"eps_low": 2.0}, "between 0 and the cap"),
        ("sat", {"exponent": -1.0}, "exponent"),
    ],
)
def test_hyperparameters_that_would_turn_a_gradient_round_are_refused(name, hyperparameters, words):
    with pytest.raises(ValueError, match=words):
        build(RECIPES[name](**hyperparameters))
