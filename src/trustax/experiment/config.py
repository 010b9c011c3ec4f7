"""An experiment as one frozen value: what a config file returns and what ``config.json`` records."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from trustax.data.config import DataConfig
from trustax.errors import ConfigError
from trustax.evaluation.config import EvalConfig
from trustax.experiment.suggest import nearest
from trustax.parallel import MeshConfig
from trustax.policies.config import PolicyConfig
from trustax.rollouts.config import RolloutConfig
from trustax.training.config import OptimizerConfig, SupervisedConfig, TrainConfig
from trustax.typed import refuse, type_problems


@dataclasses.dataclass(frozen=True)
class VerifierConfig:
    """Who judges a completion: a verifier's name and its own options."""

    name: str = "last_number"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse(self, type_problems(self))


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig:
    """A recipe by name, with the hyperparameters in which this experiment differs from the recipe's defaults."""

    recipe: str = "pdm_topk_kl"
    hyperparameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse(self, type_problems(self))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentConfig:
    """Everything that decides what a run computes. Two runs with equal configs and versions are equal bit for bit."""

    name: str
    train: TrainConfig
    seed: int = 0
    policy: PolicyConfig = dataclasses.field(default_factory=PolicyConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    verifier: VerifierConfig = dataclasses.field(default_factory=VerifierConfig)
    rollout: RolloutConfig = dataclasses.field(default_factory=RolloutConfig)
    objective: ObjectiveConfig = dataclasses.field(default_factory=ObjectiveConfig)
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    supervised: SupervisedConfig = dataclasses.field(default_factory=SupervisedConfig)
    evaluation: EvalConfig = dataclasses.field(default_factory=EvalConfig)
    mesh: MeshConfig = dataclasses.field(default_factory=MeshConfig)

    def __post_init__(self) -> None:
        refuse(self, type_problems(self) or self._cross_field_problems())

    def _cross_field_problems(self) -> list[str]:
        problems = []
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name):
            problems.append(f"name becomes a folder's name: letters, digits, '.', '_' and '-' only, got {self.name!r}")
        if not 0 <= self.seed < 2**31:
            problems.append(f"seed must be at least 0 and below 2**31, got {self.seed}")
        prompts, minibatches, micro = self.rollout.prompts_per_step, self.train.minibatches, self.train.micro_batches
        if prompts % minibatches:
            problems.append(
                f"rollout.prompts_per_step = {prompts} does not divide into train.minibatches = {minibatches} equal "
                f"parts; make the first a multiple of the second"
            )
        elif (prompts // minibatches) % micro:
            problems.append(
                f"a minibatch of {prompts // minibatches} prompts (rollout.prompts_per_step / train.minibatches) does "
                f"not divide into train.micro_batches = {micro} equal parts"
            )
        else:
            mesh = self.mesh
            rows, split = prompts // minibatches // micro * self.rollout.group_size, mesh.data * mesh.fsdp * mesh.expert
            if rows % split:
                problems.append(
                    f"{rows} completions at a time (rollout.prompts_per_step / train.minibatches / train.micro_batches "
                    f"× rollout.group_size) do not divide into mesh.data × mesh.fsdp × mesh.expert = {split} parts"
                )
        return problems


def check_objective(objective: ObjectiveConfig, recipes: Mapping[str, Callable[..., Any]]) -> None:
    """Refuse a recipe that is not in the table, or hyperparameters that it does not take or misses."""
    recipe = recipes.get(objective.recipe)
    if recipe is None:
        raise ConfigError(f"objective.recipe: no recipe {objective.recipe!r}{nearest(objective.recipe, recipes)}")
    parameters = inspect.signature(recipe).parameters
    known = [name for name, parameter in parameters.items() if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
    problems = []
    if len(known) == len(parameters):  # a recipe with **hyperparameters checks its own
        problems += [
            f"objective.hyperparameters.{name}: {objective.recipe} has no such hyperparameter{nearest(name, known)}"
            for name in objective.hyperparameters
            if name not in known
        ]
    problems += [
        f"objective.hyperparameters.{name}: {objective.recipe} has no default for it; give a value"
        for name in known
        if parameters[name].default is inspect.Parameter.empty and name not in objective.hyperparameters
    ]
    if problems:
        raise ConfigError("; ".join(problems))


def check_sizes(config: ExperimentConfig, *, vocab_size: int, context_length: int) -> None:
    """Refuse what does not fit the policy, which is known only once it is loaded."""
    problems = []
    if config.rollout.top_k > vocab_size:
        problems.append(
            f"rollout.top_k = {config.rollout.top_k} is more than the vocabulary's {vocab_size} tokens; "
            f"set it to {vocab_size} or less"
        )
    length = config.rollout.max_prompt_tokens + config.rollout.max_new_tokens
    if length > context_length:
        problems.append(
            f"rollout.max_prompt_tokens + rollout.max_new_tokens = {config.rollout.max_prompt_tokens} + "
            f"{config.rollout.max_new_tokens} = {length} is beyond the policy's context of {context_length} tokens"
        )
    if problems:
        raise ConfigError("; ".join(problems))
