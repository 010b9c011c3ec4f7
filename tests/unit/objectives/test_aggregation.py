"""Aggregations: hand-derived numbers, and the numbers the usual faults give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.objectives import RECIPES, Aggregation, ObjectiveSpec, build
from trustax.objectives.directions import Always
from trustax.objectives.masks import TrustRegion
from trustax.objectives.proximity import BinaryTV
from trustax.objectives.thresholds import Constant
from trustax.types import TokenStats

LOSSES = jnp.array([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0], [9.0, 9.0, 9.0]])
VALID = jnp.array([[True, True, True], [True, False, False], [False, False, False]])
KEEP = jnp.array([[True, False, True], [False, True, True], [True, True, True]])


@pytest.mark.parametrize(
    ("aggregation", "total", "weight"),
    [
        (Aggregation("token_mean"), 10.0, 4.0),
        (Aggregation("sequence_mean_of_token_sums"), 10.0, 2.0),
        (Aggregation("sequence_mean_of_token_means"), 2.0 + 4.0, 2.0),
        (Aggregation("sequence_sum_over_horizon", horizon=5.0), 2.0, 2.0),
        (Aggregation("token_mean", "surviving"), 10.0, 2.0),
        (Aggregation("sequence_mean_of_token_sums", "surviving"), 10.0, 1.0),
        (Aggregation("sequence_mean_of_token_means", "surviving"), 3.0 + 4.0, 1.0),
    ],
)
def test_by_hand(aggregation, total, weight):
    got = aggregation(LOSSES, VALID, KEEP)
    assert (float(got.sum), float(got.weight)) == (total, weight)


def reinforce(**changes):
    return build(ObjectiveSpec(**changes))


def stats_of(losses, mask):
    """Statistics whose per-token loss −A·log π is ``losses``."""
    losses = jnp.asarray(losses, jnp.float32)
    return TokenStats(
        log_pi=jnp.full(losses.shape, -1.0),
        log_mu=jnp.full(losses.shape, -1.0),
        advantages=losses,
        token_mask=jnp.asarray(mask, bool),
    )


def test_an_excluded_completion_leaves_the_others_gradient_alone():
    """40 tokens of loss 1, 8 of them excluded: 32/32; counting before the mask gives 0.8."""
    mask = np.arange(40).reshape(5, 8) < 32
    assert float(reinforce()(stats_of(np.ones((5, 8)), mask)).loss) == 1.0


@pytest.mark.parametrize("axis", ["rows", "columns"])
def test_parts_sum_to_the_whole(axis):
    """One live token of loss 1, three of loss 0, an empty part: 0.25; a mean of means gives 0.5 or NaN."""
    parts = [([[1.0, 5.0, 5.0]], [[1, 0, 0]]), ([[0.0, 0.0, 0.0]], [[1, 1, 1]]), ([[7.0, 7.0, 7.0]], [[0, 0, 0]])]
    outs = [reinforce()(stats_of(*part)) for part in parts]
    assert sum(float(o.sum) for o in outs) / sum(float(o.weight) for o in outs) == 0.25
    join = np.concatenate
    whole = [join([np.asarray(p[i]) for p in parts], axis=0 if axis == "rows" else 1) for i in (0, 1)]
    assert float(reinforce()(stats_of(*whole)).loss) == 0.25


@pytest.mark.parametrize("name", ["pg_is", "grpo", "dr_grpo", "ppo_clip", "trm_max"])
def test_an_all_masked_batch_is_zero(name):
    objective = build(RECIPES[name]())
    shape = (2, 3)
    stats = TokenStats(
        *[jnp.full(shape, jnp.nan)] * 3,
        token_mask=jnp.zeros(shape, bool),
        log_anchor=jnp.full(shape, jnp.nan),
        log_ref=jnp.full(shape, jnp.nan),
    )
    loss, gradient = jax.value_and_grad(lambda lp: objective(stats.replace(log_pi=lp)).loss)(stats.log_pi)
    assert float(loss) == 0.0
    np.testing.assert_array_equal(gradient, np.zeros(shape))


@pytest.mark.parametrize(("denominator", "weight"), [("original", 2.0), ("surviving", 1.0)])
def test_whether_a_rejected_sequence_counts_is_explicit(denominator, weight):
    mask = TrustRegion(BinaryTV(), Constant(0.1), Always())
    spec = ObjectiveSpec(mask=mask, aggregation=Aggregation("sequence_mean_of_token_sums", denominator))
    stats = stats_of(np.ones((2, 2)), np.ones((2, 2))).replace(log_mu=jnp.array([[-1.0, -1.0], [-3.0, -3.0]]))
    out = build(spec)(stats)
    assert (float(out.sum), float(out.weight)) == (2.0, weight)
