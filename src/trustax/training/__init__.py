"""From a rollout to new parameters: updates, the loop, the supervised warm start."""

from trustax.training.config import OptimizerConfig, SupervisedConfig, TrainConfig

__all__ = ["OptimizerConfig", "SupervisedConfig", "TrainConfig"]
