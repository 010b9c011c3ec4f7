"""Velocity fields, data, rewards, and training: what they compute, what they refuse, and that reward goes up."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.flow import RECIPES, build, build_steps, time_grid
from trustax.flow.policy import VelocityConfig, build_policy
from trustax.flow.rewards import brightness, glyph_classifier, near_mode, on_the_right, symmetry, weighted
from trustax.flow.toys import GLYPHS, SIDE, glyphs, mode_centers, ring
from trustax.flow.training import FlowTrainingConfig, make_train, pretrain

MLP = VelocityConfig(size=2, conditions=2, width=16, depth=2)
DIT = VelocityConfig(kind="dit", size=256, conditions=6, width=8, depth=1, heads=2)


@pytest.fixture(scope="module", params=[MLP, DIT], ids=["mlp", "dit"])
def field(request):
    """Initial parameters, and ``apply`` compiled for two rows."""
    policy = build_policy(request.param)
    return policy.config, jax.jit(policy.init)(jax.random.key(0)), jax.jit(policy.apply)


def test_a_field_depends_on_state_time_and_condition(field):
    config, params, apply = field
    rng = np.random.default_rng(0)
    x, t, c = jnp.asarray(rng.normal(size=(2, config.size)), jnp.float32), jnp.full(2, 0.3), jnp.ones(2, jnp.int32)
    assert not np.any(np.asarray(apply(params, x, t, c)))  # 0 at first
    params = jax.tree.map(lambda p: p + np.asarray(0.1 * rng.normal(size=p.shape), np.float32), params)
    before = apply(params, x, t, c)
    assert before.shape == x.shape
    for other in ((x + 1, t, c), (x, t + 0.1, c), (x, t, 0 * c)):
        assert np.abs(np.asarray(apply(params, *other) - before)).max() > 1e-4
    alone = apply(params, x[jnp.array([0, 0])], t, c)  # rows don't see each other
    np.testing.assert_allclose(alone[0], before[0], atol=1e-5)


def test_a_dit_puts_patches_back_where_they_were(field):
    """At first the blocks are closed: a pixel of the output hears of its own patch alone."""
    config, params, apply = field
    if config.kind != "dit":
        return
    kernel = np.random.default_rng(1).normal(size=params["params"]["out"]["kernel"].shape)
    out = {**params["params"]["out"], "kernel": jnp.asarray(kernel, jnp.float32)}
    params = {"params": {**params["params"], "out": out}}
    x = np.random.default_rng(2).normal(size=(2, 256)).astype(np.float32)
    x[1] = x[0]
    x[1, 5 * SIDE + 9] += 1  # row 5, column 9: patch (1, 2)
    found = np.asarray(apply(params, jnp.asarray(x), jnp.full(2, 0.5), jnp.zeros(2, jnp.int32)))
    rows, columns = np.nonzero(np.abs(found[1] - found[0]).reshape(SIDE, SIDE) > 1e-6)
    assert (set(rows.tolist()), set(columns.tolist())) == ({4, 5, 6, 7}, {8, 9, 10, 11})


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"kind": "dit", "size": 250}, "square image"),
        ({"kind": "dit", "size": 256, "width": 15}, "multiple of heads"),
        ({"width": 0}, "width = 0"),
    ],
)
def test_bad_fields_are_refused(numbers, reason):
    with pytest.raises(ValueError, match=reason):
        VelocityConfig(**numbers)


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"group_size": 1}, "a group of one has no advantage"),
        ({"updates": 0}, "updates = 0"),
        ({"learning_rate": 0.0}, "learning_rate = 0"),
        ({"reduction": "max"}, "'mean' or 'sum'"),
    ],
)
def test_bad_training_is_refused(numbers, reason):
    with pytest.raises(ValueError, match=reason):
        FlowTrainingConfig(**numbers)


def test_the_ring_and_the_glyphs_are_where_they_should_be():
    condition = jnp.arange(400) % 2
    x = jax.jit(ring)(jax.random.key(0), condition)
    apart = np.linalg.norm(np.asarray(x)[:, None] - np.asarray(mode_centers())[None], axis=-1)
    np.testing.assert_array_equal(apart.argmin(1) % 2, condition)
    assert apart.min(1).mean() < 0.3
    assert len(set(apart.argmin(1).tolist())) == 8
    images = np.asarray(jax.jit(glyphs)(jax.random.key(0), jnp.arange(60) % len(GLYPHS))).reshape(60, SIDE, SIDE)
    assert images.min() == -1
    assert images.max() > 0.9
    for k in range(len(GLYPHS)):
        assert 0.03 < (images[k :: len(GLYPHS)] > 0).mean() < 0.45
    assert images[:, :, 0].max() < 1  # within the frame


def test_rewards_mean_what_they_say():
    label = jnp.zeros(1, jnp.int32)
    half = np.ones((1, SIDE, SIDE), np.float32)
    half[:, :, SIDE // 2 :] = -1
    half, upright = jnp.asarray(half.reshape(1, -1)), jnp.asarray(half.swapaxes(1, 2).reshape(1, -1))

    @jax.jit
    def values():
        both = weighted([brightness, symmetry], [2.0, -1.0])
        plane = [near_mode([3, 0])(mode_centers()[3][None], label), on_the_right(jnp.array([[1.0, 5.0]]), label)]
        bright = [brightness(half, label), brightness(1e6 * half, label)]
        return [*plane, *bright, symmetry(half, label), symmetry(upright, label), both(upright, label)]

    # No reward for brightness beyond white; symmetry is left to right.
    assert [float(x[0]) for x in values()] == [1.0, 0.5, 0.5, 0.5, 0.0, 1.0, 0.0]
    for weights in ([1.0, 2.0], [float("nan")]):
        with pytest.raises(ValueError, match="one finite weight for each"):
            weighted([brightness], weights)


@pytest.mark.slow
def test_the_classifier_knows_the_glyphs():
    labels = jnp.arange(120) % len(GLYPHS)

    @jax.jit
    def judged(key):
        images = glyphs(key, labels)
        classify = glyph_classifier(jax.random.key(0), examples=1000, features=300)
        return classify(images, labels), classify(images, (labels + 1) % len(GLYPHS))

    right, wrong = judged(jax.random.key(3))
    assert (np.asarray(right) > 0.5).mean() > 0.9
    assert float(wrong.mean()) < 0.1


@pytest.fixture(scope="module")
def small():
    """A field pretrained on the ring, badly, and the parts of a training run."""
    policy = build_policy(MLP)
    params, losses = jax.jit(lambda key: pretrain(policy, ring, key, steps=200, batch=128))(jax.random.key(0))
    steps = build_steps("flow_sde", time_grid(6), noise=0.7)
    config = FlowTrainingConfig(groups=2, group_size=16, iterations=12, updates=4, learning_rate=3e-3)
    return policy, params, losses, steps, config


def test_pretraining_fits(small):
    losses = np.asarray(small[2])
    assert losses[-20:].mean() < 0.85 * losses[:5].mean()


def test_training_is_a_pure_function_that_raises_the_reward(small):
    policy, params, _, steps, config = small
    train = jax.jit(jax.vmap(make_train(policy, steps, near_mode(width=1.5), config), in_axes=(0, None, 0)))
    deltas, keys = jnp.array([0.0, 0.01, jnp.inf]), jax.random.split(jax.random.key(1), 3)
    objective = build("flow_dppo", delta=deltas)
    out = train(objective, params, keys)
    again = train(objective, params, keys)
    np.testing.assert_array_equal(out.history["reward"], again.history["reward"])
    history = {name: np.asarray(values) for name, values in out.history.items()}
    assert not np.any(history["kl"][:, 0] > 1e-6)  # it starts at the reference
    assert np.all(history["reward"][1:, -1] > history["reward"][1:, 0] + 0.1)
    assert np.all(history["kl"][0] <= history["kl"][2])  # the tightest region moves least
    assert np.all(history["mask/fraction"][2] == 0)


@pytest.mark.slow
def test_one_update_a_batch_makes_all_masks_one(small):
    """At π = μ no mask drops anything, so the runs agree; only GRPO-Guard's gradient is another one."""
    policy, params, _, steps, config = small
    once = dataclasses.replace(config, updates=1, iterations=3)
    make = make_train(policy, steps, near_mode(), once)
    names = ("policy_gradient", "flow_dppo", "grpo_guard")
    runs = {name: jax.jit(make)(RECIPES[name](), params, jax.random.key(1)) for name in names}
    plain = np.asarray(runs["policy_gradient"].history["reward"])
    np.testing.assert_allclose(runs["flow_dppo"].history["reward"], plain, rtol=1e-5)
    assert not np.allclose(runs["grpo_guard"].history["reward"], plain, rtol=1e-5)
