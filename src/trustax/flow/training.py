"""Pretraining by flow matching, and reinforcement learning of a flow. Only this module of the package uses optax.

``make_train`` gives a pure function of keys and arrays, so that seeds and thresholds are one ``vmap``.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from trustax.flow.objectives import FlowObjective
from trustax.flow.paths import Path, path_kl, replay, sample, step_stats
from trustax.flow.policy import Params, VelocityPolicy
from trustax.flow.rewards import Reward
from trustax.flow.samplers import Steps
from trustax.ops.advantages import group_centered_global_std
from trustax.typed import refuse, type_problems

Draw = Callable[[Key[Array, ""], Int[Array, "B"]], Float[Array, "B X"]]


@dataclasses.dataclass(frozen=True)
class FlowTrainingConfig:
    """Groups of samples of one condition, and how often each batch is used.

    ``updates`` gradient steps on the whole batch: with one, π = μ at the only step, and nothing is far.
    ``reduction`` is over latent numbers; the objective's thresholds are in its units.
    """

    groups: int = 8
    group_size: int = 16
    iterations: int = 50
    updates: int = 1
    learning_rate: float = 3e-4
    reduction: str = "mean"
    advantage_clip: float = 5.0

    def __post_init__(self) -> None:
        problems = type_problems(self)
        if not problems:
            whole = {name: value for name, value in dataclasses.asdict(self).items() if type(value) is int}
            problems += [f"{name} = {value}, expected at least 1" for name, value in whole.items() if value < 1]
            problems += (
                [] if self.group_size > 1 else ["group_size = 1: a group of one has no advantage; take 2 or more"]
            )
            problems += [] if self.learning_rate > 0 else [f"learning_rate = {self.learning_rate:g}, expected above 0"]
            problems += (
                [] if self.advantage_clip > 0 else [f"advantage_clip = {self.advantage_clip:g}, expected above 0"]
            )
            known = self.reduction in ("mean", "sum")
            problems += [] if known else [f"reduction is {self.reduction!r}, expected 'mean' or 'sum'"]
        refuse(self, problems)


class Trained(NamedTuple):
    """Parameters, and per iteration what was seen *before* its updates: reward, KL of paths, the mask's metrics."""

    params: Params
    history: dict[str, Float[Array, "N"]]


def pretrain(
    policy: VelocityPolicy, draw: Draw, key: Key[Array, ""], *, steps: int, batch: int, learning_rate: float = 2e-3
) -> tuple[Params, Float[Array, "N"]]:
    """Fit a velocity field to data: ``E‖v(x_t, t) − (ε − x_0)‖²`` with t uniform, by Adam under a cosine schedule.

    Args:
        policy: the field.
        draw: gives data for conditions.
        key: consumed.
        steps: how many gradient steps.
        batch: samples a step.
        learning_rate: at the start.

    Returns: parameters and the loss of every step.
    """
    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))
    start, run = jax.random.split(key)
    params = policy.init(start)

    def loss(params: Params, key: Array) -> Array:
        labels, data, noise, time = jax.random.split(key, 4)
        condition = jax.random.randint(labels, (batch,), 0, policy.config.conditions)
        x0 = draw(data, condition)
        eps = jax.random.normal(noise, x0.shape)
        t = jax.random.uniform(time, (batch,))
        wide = jnp.broadcast_to(t[:, None], x0.shape)
        return jnp.mean(jnp.square(policy.apply(params, (1 - wide) * x0 + wide * eps, t, condition) - (eps - x0)))

    def step(carry: tuple[Params, Any], key: Array) -> tuple[tuple[Params, Any], Array]:
        params, state = carry
        value, grads = jax.value_and_grad(loss)(params, key)
        params, state = _update(optimizer, grads, state, params)
        return (params, state), value

    (params, _), losses = jax.lax.scan(step, (params, _init(optimizer, params)), jax.random.split(run, steps))
    return params, losses


def make_train(
    policy: VelocityPolicy, steps: Steps, reward: Reward, config: FlowTrainingConfig
) -> Callable[[FlowObjective, Params, Key[Array, ""]], Trained]:
    """Make ``train(objective, params, key) -> Trained``, pure and free of Python side effects.

    The parameters it starts from are also the reference. ``vmap`` it over keys and over the numbers of an objective.
    """
    optimizer = optax.adam(config.learning_rate)
    batch = config.groups * config.group_size
    group_ids = jnp.repeat(jnp.arange(config.groups), config.group_size)
    condition = (group_ids % policy.config.conditions).astype(jnp.int32)

    def train(objective: FlowObjective, params: Params, key: Key[Array, ""]) -> Trained:
        reference = policy.of(params)

        def loss(params: Params, path: Path, advantages: Array, velocity: Array) -> tuple[Array, dict[str, Array]]:
            now = replay(policy.of(params), steps, path)
            apart = None if objective.beta is None else velocity
            stats = step_stats(steps, path, now, advantages, reference=apart, reduction=config.reduction)
            out = objective(stats)
            return out.loss, out.metrics

        def iterate(carry: tuple[Params, Any], key: Array) -> tuple[tuple[Params, Any], dict[str, Array]]:
            start, noise = jax.random.split(key)
            x1 = jax.random.normal(start, (batch, policy.config.size))
            path = sample(policy.of(carry[0]), steps, x1, condition, noise)
            rewards = reward(path.samples, condition)
            advantages = group_centered_global_std(rewards, group_ids, clip=config.advantage_clip)
            velocity = replay(reference, steps, path)

            def update(carry: tuple[Params, Any], _: None) -> tuple[tuple[Params, Any], dict[str, Array]]:
                params, state = carry
                grads, metrics = jax.grad(loss, has_aux=True)(params, path, advantages, velocity)
                return _update(optimizer, grads, state, params), metrics

            carry, metrics = jax.lax.scan(update, carry, None, length=config.updates)
            # The last update's view: by then the policy is furthest from what was sampled.
            seen = {name: values[-1] for name, values in metrics.items()}
            seen["reward"] = jnp.mean(rewards)
            seen["kl"] = jnp.mean(path_kl(steps, path, velocity))
            return carry, seen

        keys = jax.random.split(key, config.iterations)
        (params, _), history = jax.lax.scan(iterate, (params, _init(optimizer, params)), keys)
        return Trained(params, history)

    return train


def evaluate(
    policy: VelocityPolicy,
    steps: Steps,
    reward: Reward,
    params: Params,
    reference: Params,
    condition: Int[Array, "B"],
    key: Key[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, "B X"]]:
    """Sample once more: mean reward, KL of paths from the reference in nats, and the samples."""
    start, noise = jax.random.split(key)
    x1 = jax.random.normal(start, (len(condition), policy.config.size))
    path = sample(policy.of(params), steps, x1, condition, noise)
    kl = jnp.mean(path_kl(steps, path, replay(policy.of(reference), steps, path)))
    return jnp.mean(reward(path.samples, condition)), kl, path.samples


def _init(optimizer: optax.GradientTransformation, params: Params) -> Any:
    # optax is not written for strict dtype promotion.
    with jax.numpy_dtype_promotion("standard"):
        return optimizer.init(params)


def _update(optimizer: optax.GradientTransformation, grads: Params, state: Any, params: Params) -> tuple[Params, Any]:
    with jax.numpy_dtype_promotion("standard"):
        moves, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, moves), state  # type: ignore[return-value]
