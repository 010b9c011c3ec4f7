"""The quickstart's task with adapters in place of all parameters: what configs/smollm2.py does, in less memory.

Run:       trustax train configs/smollm2_lora.py
           trustax convert runs/smollm2-sums-lora-seed0 exported --adapter     (or merged, without --adapter)
Hardware:  two CPU cores
"""

from trustax.data import ArithmeticConfig, DataConfig
from trustax.evaluation import EvalConfig
from trustax.experiment import ExperimentConfig, ObjectiveConfig, VerifierConfig
from trustax.policies import LoraConfig, PolicyConfig
from trustax.rollouts import RolloutConfig
from trustax.training import OptimizerConfig, TrainConfig


def get_config() -> ExperimentConfig:
    return ExperimentConfig(
        name="smollm2-sums-lora",
        policy=PolicyConfig(source=".cache/smollm2", remat=True, lora=LoraConfig(rank=16, alpha=32.0)),
        data=DataConfig(
            source=ArithmeticConfig(operation="sum", digits=1),
            template="What is {prompt}? Reply with only the number.",
        ),
        verifier=VerifierConfig(name="last_number"),
        rollout=RolloutConfig(prompts_per_step=8, group_size=8, max_prompt_tokens=48, max_new_tokens=12, top_k=20),
        objective=ObjectiveConfig(recipe="pdm_topk_kl"),
        optimizer=OptimizerConfig(learning_rate=2e-4, warmup_steps=5, clip_norm=1.0),
        train=TrainConfig(steps=14, minibatches=2, checkpoint_every=7),
        evaluation=EvalConfig(prompts=24, samples=8),
    )
