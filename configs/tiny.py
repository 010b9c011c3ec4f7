"""A character-level policy from scratch: a short supervised warm start, then RL on sums of two numbers below 100.

Run:       bash scripts/quickstart configs/tiny.py
Hardware:  two CPU cores; under three minutes, see README.md for what was measured
Task:      all 10,000 ordered pairs, 7,600 to train on and 2,400 held out (the first 128 are asked); the whole
           completion must be the answer. The warm start stops early, where about one sample in three is right.
"""

from trustax.data import ArithmeticConfig, DataConfig
from trustax.evaluation import EvalConfig
from trustax.experiment import ExperimentConfig, ObjectiveConfig, VerifierConfig
from trustax.policies import PolicyConfig
from trustax.rollouts import RolloutConfig
from trustax.training import OptimizerConfig, SupervisedConfig, TrainConfig


def get_config() -> ExperimentConfig:
    return ExperimentConfig(
        name="tiny-sums",
        policy=PolicyConfig(source="tiny"),
        data=DataConfig(source=ArithmeticConfig(operation="sum", digits=2), template="{prompt} ="),
        verifier=VerifierConfig(name="exact"),
        rollout=RolloutConfig(prompts_per_step=64, group_size=16, max_prompt_tokens=16, max_new_tokens=4, top_k=20),
        objective=ObjectiveConfig(recipe="pdm_topk_kl"),
        supervised=SupervisedConfig(steps=300, batch_size=128, learning_rate=1e-3),
        optimizer=OptimizerConfig(learning_rate=2e-4, warmup_steps=5, clip_norm=1.0),
        train=TrainConfig(steps=150, minibatches=4, checkpoint_every=75),
        evaluation=EvalConfig(prompts=128, samples=4),
    )
