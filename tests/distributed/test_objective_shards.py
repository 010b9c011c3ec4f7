"""An objective over eight devices: sums and weights are those of the whole batch, whatever the layout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from trustax.objectives import RECIPES, Aggregation, build
from trustax.ops.masked import masked_whiten
from trustax.types import TokenStats

LAYOUTS = {"rows": PartitionSpec("data"), "tokens": PartitionSpec(None, "data")}


def mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))


def stats(token_mask: np.ndarray) -> TokenStats:
    rng = np.random.default_rng(0)
    shape = token_mask.shape
    log_mu = np.log(rng.uniform(0.1, 0.9, shape)).astype(np.float32)
    log_pi = np.log(rng.uniform(0.1, 0.9, shape)).astype(np.float32)
    advantages = rng.normal(size=shape).astype(np.float32)
    garbage = np.where(token_mask, 0.0, np.nan).astype(np.float32)
    return TokenStats(*map(jnp.asarray, (log_pi + garbage, log_mu + garbage, advantages, token_mask)))


def loss_and_gradient(found: TokenStats):
    objective = build(RECIPES["dppo_binary_tv"](delta=0.2))

    def loss(log_pi: jax.Array) -> jax.Array:
        out = objective(found.replace(log_pi=log_pi))
        return out.sum / out.weight

    return jax.value_and_grad(loss)(found.log_pi)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_shards_change_nothing_even_where_some_are_empty(layout: str) -> None:
    token_mask = np.random.default_rng(1).uniform(size=(16, 24)) < 0.6
    token_mask[:2], token_mask[:, 3:6] = False, False  # the whole of one shard of either layout
    whole = jax.jit(loss_and_gradient)(stats(token_mask))
    sharding = NamedSharding(mesh(), LAYOUTS[layout])
    parts = jax.jit(loss_and_gradient)(jax.device_put(stats(token_mask), sharding))
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-5)
    np.testing.assert_allclose(parts[1], whole[1], atol=1e-6)


def test_a_live_token_in_one_part_and_three_in_another_weigh_alike() -> None:
    """One token of loss 1, three of loss 0, and an empty part: 0.25 in every layout, not 0.5."""
    losses, mask = np.zeros((8, 4), np.float32), np.zeros((8, 4), bool)
    mask[0, 0], losses[0, 0], mask[1, :3] = True, 1.0, True
    aggregation = Aggregation(mode="token_mean")
    for layout, width in (("rows", 4), ("tokens", 8)):
        padded = [np.pad(x, [(0, 0), (0, width - 4)]) for x in (losses, mask)]
        values, valid = jax.device_put(padded, NamedSharding(mesh(), LAYOUTS[layout]))
        total, weight = jax.jit(lambda values, valid: aggregation(values, valid, valid))(values, valid)
        assert float(total / weight) == pytest.approx(0.25)


def test_whitening_has_one_mean_over_all_shards() -> None:
    values = jax.device_put(jnp.arange(1.0, 17.0, 2.0), NamedSharding(mesh(), PartitionSpec("data")))
    found = jax.jit(lambda x: masked_whiten(x, jnp.ones(8, bool)))(values)
    expected = (np.arange(1.0, 17.0, 2.0) - 8.0) / np.std(np.arange(1.0, 17.0, 2.0))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    four = jax.jit(lambda x: masked_whiten(x, jnp.ones(4, bool)))(jnp.array([1.0, 3.0, 5.0, 7.0]))
    np.testing.assert_allclose(four, [-1.342, -0.447, 0.447, 1.342], atol=1e-3)
