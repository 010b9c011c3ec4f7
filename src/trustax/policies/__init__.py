"""Policies: one scanned decoder behind a tuple of pure functions, and the readers of its weights."""

from trustax.policies.config import (
    ArchitectureConfig,
    LoraConfig,
    PolicyConfig,
    RopeConfig,
    check_tokenizer_fits,
    tiny_config,
)
from trustax.policies.critic import without_critic
from trustax.policies.export import save
from trustax.policies.load import LoadedPolicy, find, load
from trustax.policies.lora import join, merge
from trustax.policies.peft_io import load_adapter, save_adapter
from trustax.policies.policy import Policy, build
from trustax.policies.presets import preset

__all__ = [
    "ArchitectureConfig",
    "LoadedPolicy",
    "LoraConfig",
    "Policy",
    "PolicyConfig",
    "RopeConfig",
    "build",
    "check_tokenizer_fits",
    "find",
    "join",
    "load",
    "load_adapter",
    "merge",
    "preset",
    "save",
    "save_adapter",
    "tiny_config",
    "without_critic",
]
