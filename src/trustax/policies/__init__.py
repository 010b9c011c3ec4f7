"""Policies: one scanned decoder behind a tuple of pure functions, and the readers of its weights."""

from trustax.policies.config import (
    ArchitectureConfig,
    PolicyConfig,
    RopeConfig,
    check_tokenizer_fits,
    tiny_config,
)
from trustax.policies.export import save
from trustax.policies.load import LoadedPolicy, find, load
from trustax.policies.policy import Policy, build
from trustax.policies.presets import preset

__all__ = [
    "ArchitectureConfig",
    "LoadedPolicy",
    "Policy",
    "PolicyConfig",
    "RopeConfig",
    "build",
    "check_tokenizer_fits",
    "find",
    "load",
    "preset",
    "save",
    "tiny_config",
]
