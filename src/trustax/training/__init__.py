"""From a rollout to new parameters: updates, the loop, the supervised warm start."""

from trustax.training.config import CriticConfig, OptimizerConfig, SupervisedConfig, TrainConfig

__all__ = ["CriticConfig", "OptimizerConfig", "SupervisedConfig", "TrainConfig"]
