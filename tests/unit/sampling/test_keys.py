import jax
import jax.numpy as jnp

from trustax.sampling.keys import EVALUATION, sample_keys, token_uniforms


def draws(seed: int, step: int, groups: list[int], samples: list[int], **stream: int) -> list[float]:
    keys = sample_keys(seed, step, jnp.array(groups), jnp.array(samples), **stream)
    return token_uniforms(keys, jnp.int32(3)).tolist()


def test_a_key_depends_on_seed_step_prompt_and_sample_alone() -> None:
    together = draws(0, 5, [7, 7, 9, 2], [0, 1, 0, 3])
    assert draws(0, 5, [2, 9, 7, 7], [3, 0, 1, 0]) == together[::-1]
    assert draws(0, 5, [9], [0]) == [together[2]]


def test_every_part_of_a_key_matters() -> None:
    base = draws(0, 5, [7], [1])
    changed = [draws(1, 5, [7], [1]), draws(0, 6, [7], [1]), draws(0, 5, [8], [1]), draws(0, 5, [7], [2])]
    changed.append(draws(0, 5, [7], [1], stream=EVALUATION))
    assert all(other != base for other in changed)


def test_positions_of_one_completion_get_their_own_numbers() -> None:
    keys = sample_keys(0, 0, jnp.array([1]), jnp.array([0]))
    numbers = jax.vmap(lambda t: token_uniforms(keys, t))(jnp.arange(100))
    assert len(set(numbers[:, 0].tolist())) == 100
