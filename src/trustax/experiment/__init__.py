"""An experiment as one value, and the folder that records its run."""

from trustax.experiment.config import ExperimentConfig, ObjectiveConfig, VerifierConfig

__all__ = ["ExperimentConfig", "ObjectiveConfig", "VerifierConfig"]
