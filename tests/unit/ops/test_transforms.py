import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ops.transforms import draw, transform_logits
from trustax.types import Transform


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("vocab_size", [3, 256, 700])
def test_draws_follow_the_reported_probabilities(temperature: float, vocab_size: int) -> None:
    count = 200_000
    raw = 2.0 * jax.random.normal(jax.random.key(vocab_size), (vocab_size,))
    logits = transform_logits(raw, Transform(temperature=temperature))
    uniform = jax.random.uniform(jax.random.key(1), (count,))
    tokens = jax.jit(jax.vmap(draw, in_axes=(None, 0)))(logits, uniform)
    expected = np.asarray(jax.nn.softmax(logits), np.float64) * count
    observed = np.bincount(np.asarray(tokens), minlength=vocab_size)
    common = expected >= 5
    pooled_expected = np.append(expected[common], expected[~common].sum() + 1e-9)
    pooled_observed = np.append(observed[common], observed[~common].sum())
    chi_square = ((pooled_observed - pooled_expected) ** 2 / np.maximum(pooled_expected, 1.0)).sum()
    freedom = len(pooled_expected) - 1
    # mean + 5 standard deviations of a chi-square variable
    assert chi_square < freedom + 5 * np.sqrt(2 * freedom)


def test_draw_inverts_the_cumulative_distribution() -> None:
    logits = jnp.log(jnp.array([0.5, 0.0, 0.3, 0.2]))
    rows = jnp.broadcast_to(logits, (6, 4))
    uniform = jnp.array([0.0, 0.499, 0.501, 0.799, 0.801, 0.9999999])
    assert draw(rows, uniform).tolist() == [0, 0, 2, 2, 3, 3]


def test_a_token_of_no_probability_is_never_drawn() -> None:
    vocab_size = 600
    allowed = np.array([3, 255, 256, 511])
    logits = jnp.full(vocab_size, -jnp.inf).at[allowed].set(0.0)
    uniform = jnp.linspace(0.0, 1.0 - 2**-24, 4001, dtype=jnp.float32)
    drawn = jax.jit(jax.vmap(draw, in_axes=(None, 0)))(logits, uniform)
    assert sorted(set(drawn.tolist())) == allowed.tolist()


def test_a_draw_depends_on_its_own_row_alone() -> None:
    logits = jax.random.normal(jax.random.key(0), (8, 300))
    uniform = jax.random.uniform(jax.random.key(1), (8,))
    together = draw(logits, uniform)
    alone = [int(draw(logits[i : i + 1], uniform[i : i + 1])[0]) for i in range(8)]
    assert together.tolist() == alone


def test_logits_are_scored_in_float32_whatever_they_come_in() -> None:
    assert transform_logits(jnp.zeros(3, jnp.bfloat16), Transform()).dtype == jnp.float32


@pytest.mark.parametrize(
    ("probs", "top_p", "kept"),
    [
        ([0.45, 0.35, 0.15, 0.05], 0.9, 3),
        ([0.5, 0.3, 0.2], 1e-8, 1),
        ([0.5, 0.3, 0.2], 0.0, 1),
        ([0.5, 0.3, 0.15, 0.05], 0.8, 2),
        ([0.5, 0.3, 0.15, 0.05], 1.0, 4),
        ([0.25, 0.25, 0.25, 0.25], 0.3, 4),  # ties stand together
        ([1.0, 0.0, 0.0], 0.95, 1),
    ],
)
def test_nucleus_keeps_the_token_that_crosses(probs: list[float], top_p: float, kept: int) -> None:
    """S06: one token too few, or none at all, elsewhere."""
    logits = jnp.log(jnp.array(probs, jnp.float32))
    found = transform_logits(logits, Transform(top_p=top_p))
    assert int(jnp.isfinite(found).sum()) == kept
    assert jnp.array_equal(found[:1], logits[:1])


def test_nucleus_of_many_tokens_is_the_sorted_one() -> None:
    logits = jax.random.normal(jax.random.key(0), (5, 300)) * 3
    found = jnp.isfinite(transform_logits(logits, Transform(temperature=0.7, top_p=0.95)))
    probs = np.sort(np.asarray(jax.nn.softmax(logits / 0.7)).astype(np.float64))[:, ::-1]
    expected = (np.cumsum(probs, axis=-1) - probs < 0.95).sum(axis=-1)
    assert found.sum(axis=-1).tolist() == expected.tolist()
