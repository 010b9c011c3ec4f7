"""``trustax plan``: the run's own programs, compiled for a machine that is not here."""

import dataclasses
import functools
import math
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from trustax import policies
from trustax.data import CharTokenizer
from trustax.experiment.assemble import TINY, as_config_error, build_objective
from trustax.experiment.config import ExperimentConfig, check_sizes
from trustax.experiment.on_mesh import placement_of
from trustax.objectives import Objective
from trustax.ops.transforms import canonical
from trustax.parallel import make_mesh, replicated, rows_or_whole
from trustax.parallel.chips import CHIPS, Chip
from trustax.parallel.compiled import Phase, compile_phase
from trustax.parallel.topology import topology_devices
from trustax.policies import Policy
from trustax.policies.presets import PRESETS, preset
from trustax.sampling.sampler import Sampler
from trustax.training.gradients import Batch, batch_stats
from trustax.training.optimizer import init_optimizer, make_optimizer
from trustax.training.placement import Placement, batch_shardings
from trustax.training.update import UpdateResult, update_function
from trustax.types import Rollout, TopK, Transform


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a config needs on a topology, per chip."""

    topology: str
    chips: int
    chip: Chip
    parameters: int
    tokens: int
    parameter_bytes: float
    optimizer_bytes: float
    cache_bytes: float
    phases: list[Phase]

    @property
    def needs(self) -> float:
        return max(phase.peak for phase in self.phases)

    @property
    def fits(self) -> bool:
        return self.needs <= self.chip.memory


def plan(config: ExperimentConfig, topology: str) -> Plan:
    """Compile the train step, the scoring step and generation of ``config`` for ``topology``.

    Args:
      config: The experiment; its mesh must have as many devices as the topology. ``policy.source`` may be a preset's
        name, for which no weights need be here.
      topology: Such as ``"v5e:16x16"`` or ``"cpu:8"``.
    """
    with as_config_error():
        kind, devices = topology_devices(topology)
        mesh = make_mesh(config.mesh, devices)
        architecture = _architecture(config.policy.source)
        policy = policies.build(architecture, dtype=config.policy.dtype, remat=config.policy.remat)
    check_sizes(config, vocab_size=architecture.vocab_size, context_length=architecture.context_length)
    objective = build_objective(config)
    optimizer = make_optimizer(config.optimizer)
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    placement = placement_of(mesh, policy, shapes, optimizer)
    assert placement is not None
    params = jax.tree.map(_abstract, shapes, placement.params)
    moments = jax.eval_shape(lambda params: init_optimizer(optimizer, policy.split(params)[0]), shapes)
    opt_state = jax.tree.map(_abstract, moments, placement.opt_state)
    batch = _abstract_batch(config, mesh, policy, objective)
    compiled = functools.partial(compile_phase, kind=kind, chips=len(devices))
    with jax.set_mesh(mesh):
        phases = [
            _train(compiled, config, policy, optimizer, placement, mesh, (params, opt_state, objective, batch)),
            _score(compiled, policy, objective, mesh, params, batch),
            _generate(compiled, config, policy, mesh, params),
        ]
    rollout = config.rollout
    rows = rollout.prompts_per_step * rollout.group_size
    length = rollout.max_prompt_tokens + rollout.max_new_tokens
    cache = jax.eval_shape(lambda: policy.init_cache(rows, length))
    return Plan(
        topology=topology,
        chips=len(devices),
        chip=CHIPS[kind],
        parameters=sum(leaf.size for leaf in jax.tree.leaves(shapes)),
        tokens=rows * length,
        parameter_bytes=_bytes_per_device(params),
        optimizer_bytes=_bytes_per_device(opt_state),
        cache_bytes=sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(cache)) / len(devices),
        phases=phases,
    )


def _architecture(source: str) -> policies.ArchitectureConfig:
    if source in PRESETS:
        return preset(source)
    return policies.tiny_config(CharTokenizer().vocab_size) if source == TINY else policies.load(source).config


def _train(compiled, config, policy, optimizer, placement: Placement, mesh: Mesh, arguments) -> Phase:
    settings = config.train
    update = update_function(policy, optimizer, micro_batches=settings.micro_batches, critic=settings.critic)
    scalars = [_scalar(mesh, kind) for kind in (jnp.int32, jnp.float32, jnp.float32)]
    return compiled(
        "update",
        update,
        (*arguments, *scalars),
        weight_passes=3.0 if config.policy.remat else 2.0,  # forward, recomputation, backward
        donate_argnums=(0, 1),
        out_shardings=UpdateResult(placement.params, placement.opt_state, cast(Any, None), cast(Any, None)),
    )


def _score(compiled, policy, objective: Objective, mesh: Mesh, params, batch: Batch) -> Phase:
    def score(params, batch, version):
        return batch_stats(policy, params, batch, version, needs=objective.needs, differentiable=frozenset())

    return compiled("score", score, (params, batch, _scalar(mesh, jnp.int32)), weight_passes=1.0)


def _generate(compiled, config: ExperimentConfig, policy: Policy, mesh: Mesh, params) -> Phase:
    rollout = config.rollout
    sampler = Sampler(
        policy, max_new_tokens=rollout.max_new_tokens, top_k=rollout.top_k, eos_ids=frozenset({0}), pad_id=0
    )
    prompts, rows = rollout.prompts_per_step, rollout.prompts_per_step * rollout.group_size
    shapes = jax.eval_shape(
        lambda: (
            jnp.zeros((prompts, rollout.max_prompt_tokens), jnp.int32),
            jnp.zeros((prompts, rollout.max_prompt_tokens), bool),
            jnp.zeros(rows, jnp.int32),
            jax.random.split(jax.random.key(0), rows),
        )
    )
    arguments = jax.tree.map(lambda x: _abstract(x, rows_or_whole(mesh, x.shape)), shapes)
    transform = jax.tree.map(lambda x: _abstract(x, replicated(mesh)), jax.eval_shape(lambda: canonical(Transform())))
    return compiled(
        "generate",
        sampler.generate,
        (params, *arguments, transform),
        weight_passes=float(rollout.max_new_tokens),
        while_trips=rollout.max_new_tokens,
    )


def _abstract_batch(config: ExperimentConfig, mesh: Mesh, policy: Policy, objective: Objective) -> Batch:
    """The shapes of one minibatch, laid out as a run lays it out."""
    rollout = config.rollout
    prompts = rollout.prompts_per_step // config.train.minibatches
    rows, length, width = prompts * rollout.group_size, rollout.max_new_tokens, rollout.max_prompt_tokens

    def build() -> Batch:
        numbers, ids = jnp.zeros((rows, length), jnp.float32), jnp.zeros((rows, length), jnp.int32)
        count, top = jnp.zeros(rows, jnp.int32), (rows, length, rollout.top_k)
        return Batch(
            rollout=Rollout(
                prompt_tokens=jnp.zeros((prompts, width), jnp.int32),
                prompt_valid=jnp.zeros((prompts, width), bool),
                prompt_index=count,
                group_id=count,
                sample_index=count,
                tokens=ids,
                token_mask=ids > 0,
                log_mu=numbers,
                tail_log_mu=numbers,
                version=ids,
                top_k=TopK(jnp.zeros(top, jnp.int32), jnp.zeros(top, jnp.float32)),
                finish_reason=count,
                transform=canonical(Transform()),
            ),
            advantages=jnp.zeros(rows, jnp.float32),
            log_anchor=numbers if "log_anchor" in objective.needs else None,
            log_ref=numbers if "log_ref" in objective.needs else None,
        )

    shapes = jax.eval_shape(build)
    with as_config_error():
        return jax.tree.map(_abstract, shapes, batch_shardings(mesh, shapes))


def _abstract(x: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def _scalar(mesh: Mesh, dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((), dtype, sharding=replicated(mesh))


def _bytes_per_device(tree: Any) -> float:
    return float(sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree)))
