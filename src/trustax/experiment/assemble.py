"""From a config to the parts of a run: policy, tokenizer, data, verifier, objective, and how they are joined."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from trustax import data, objectives, policies, verifiers
from trustax.data import Example, PromptStream, Source, Tokenizer
from trustax.errors import ConfigError
from trustax.experiment.config import ExperimentConfig, check_objective, check_sizes
from trustax.objectives import Objective
from trustax.policies import Policy
from trustax.rollouts.collect import Collector
from trustax.sampling.sampler import Sampler
from trustax.training.supervised import teacher_rollout, warm_start
from trustax.training.update import check_needs
from trustax.types import Rollout, Transform

TINY = "tiny"


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a config names, loaded and checked against each other."""

    config: ExperimentConfig
    policy: Policy
    params: Any
    tokenizer: Tokenizer
    collector: Collector
    encoder: data.PromptEncoder


def build_parts(config: ExperimentConfig) -> Parts:
    """Load the policy and its tokenizer and join them with the verifier; parameters are those before any training."""
    with as_config_error():
        architecture, params, tokenizer = _load_policy(config)
        policy = policies.build(
            architecture,
            dtype=config.policy.dtype,
            remat=config.policy.remat,
            lora=config.policy.lora,
            value_head=config.policy.value_head,
        )
        verifier = verifiers.build(config.verifier.name, **config.verifier.options)
    check_sizes(config, vocab_size=architecture.vocab_size, context_length=architecture.context_length)
    params = _start(policy, params, config)
    rollout = config.rollout
    if rollout.replay_routes and not architecture.num_experts:
        raise ConfigError(
            "rollout.replay_routes is for a mixture of experts, which this policy is not; set it to False"
        )
    sampler = Sampler(
        policy,
        max_new_tokens=rollout.max_new_tokens,
        top_k=rollout.top_k,
        eos_ids=tokenizer.eos_ids,
        pad_id=tokenizer.pad_id,
        record_routes=rollout.replay_routes,
    )
    encoder = data.PromptEncoder(config.data, tokenizer, max_length=rollout.max_prompt_tokens)
    collector = Collector(
        sampler=sampler,
        tokenizer=tokenizer,
        verifier=verifier,
        encode=encoder,
        group_size=rollout.group_size,
        max_prompt_tokens=rollout.max_prompt_tokens,
        transform=Transform(temperature=rollout.temperature),
        seed=config.seed,
    )
    return Parts(config, policy, params, tokenizer, collector, encoder)


def _start(policy: Policy, params: Any, config: ExperimentConfig) -> Any:
    """Parameters to start from: random ones, or a source's with adapters and a critic."""
    key, adapter = jax.random.key(config.seed), config.policy.lora.adapter
    if params is None and adapter is not None:
        raise ConfigError("policy.lora.adapter belongs to a model, but policy.source is a policy from scratch")
    if params is None:
        return jax.jit(policy.init)(key)
    if adapter is None:
        return policy.complete(key, params)
    with as_config_error():
        return policy.complete(None, policies.join(params, policies.load_adapter(adapter, policy.config, policy.lora)))


def load_split(parts: Parts, split: data.Split) -> Source:
    """The prompts of one split, each of which fits the rollout's length."""
    config = parts.config
    with as_config_error():
        source = parts.encoder.fit(data.load(config.data, split))
        answers = ((source[i].index, source[i].answer) for i in range(len(source)))
        verifiers.check_answers(parts.collector.verifier, answers, name=source.name)
        return source


def build_objective(config: ExperimentConfig) -> Objective:
    """The recipe with its hyperparameters, refused if this trainer cannot give it what it needs."""
    check_objective(config.objective, objectives.RECIPES)
    with as_config_error():
        recipe = objectives.RECIPES[config.objective.recipe]
        objective = objectives.build(recipe(**config.objective.hyperparameters))
        check_needs(objective, has_critic=config.policy.value_head != "none")
    if config.train.micro_batches > 1 and objective.spec.batch_statistics:
        raise ConfigError(
            f"{config.objective.recipe} reads statistics of the whole minibatch, which train.micro_batches = "
            f"{config.train.micro_batches} would take per part; set it to 1"
        )
    return objective


def held_out(parts: Parts) -> list[Example]:
    """The first ``evaluation.prompts`` examples of the test split."""
    source = load_split(parts, "test")
    return [source[i] for i in range(min(parts.config.evaluation.prompts, len(source)))]


def supervised_batches(parts: Parts, source: Source) -> list[Rollout]:
    """Given answers for the warm start, in an order that depends on the seed alone."""
    config = parts.config
    stream = PromptStream(source, batch_size=config.supervised.batch_size, seed=config.seed + 1)
    return [_teach(parts, next(stream)) for _ in range(config.supervised.steps)]


def warm_started(parts: Parts, source: Source) -> Any:
    """The parameters that RL starts from."""
    if not parts.config.supervised.steps:
        return parts.params
    batches = supervised_batches(parts, source)
    params, _ = warm_start(parts.policy, parts.params, batches, parts.config.supervised)
    return params if parts.policy.critic is None else parts.policy.critic.fresh(params)


def _teach(parts: Parts, examples: Sequence[Example]) -> Rollout:
    return teacher_rollout(
        [parts.collector.encode(example) for example in examples],
        [data.supervised_ids(example, parts.tokenizer) for example in examples],
        max_prompt_tokens=parts.config.rollout.max_prompt_tokens,
        max_new_tokens=parts.config.rollout.max_new_tokens,
        pad_id=parts.tokenizer.pad_id,
    )


def _load_policy(config: ExperimentConfig) -> tuple[policies.ArchitectureConfig, Any, Tokenizer]:
    if config.policy.source == TINY:
        tokenizer = data.CharTokenizer()
        return policies.tiny_config(tokenizer.vocab_size), None, tokenizer
    loaded = policies.load(config.policy.source)
    if loaded.tokenizer_folder is None:
        raise ConfigError(f"policy.source = {config.policy.source} has no tokenizer.json beside its weights")
    tokenizer = data.load_tokenizer(loaded.tokenizer_folder)
    return loaded.config.with_vocab_size(tokenizer.vocab_size), loaded.params, tokenizer


def load_policy_tokenizer(config: ExperimentConfig) -> Tokenizer:
    """The tokenizer of a config's policy."""
    with as_config_error():
        return _load_policy(config)[2]


class as_config_error:
    """What the layers below refuse with ValueError or ImportError is the user's to mend: one line, exit code 2."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: object) -> None:
        if isinstance(error, ConfigError) or not isinstance(error, ValueError | ImportError | OSError):
            return
        raise ConfigError(str(error)) from error
