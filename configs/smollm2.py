"""SmolLM2-135M-Instruct learns one-digit sums under a predictive divergence mask.

Run:       bash scripts/quickstart            (or: trustax train configs/smollm2.py)
Hardware:  two CPU cores, under 6 GiB; minutes, see README.md for what was measured
Task:      100 ordered pairs, 76 to train on and 24 held out; graded by the last number in at most 12 new tokens. The
           start policy is right on about one sample in six, so that groups have something to compare.
"""

from trustax.data import ArithmeticConfig, DataConfig
from trustax.evaluation import EvalConfig
from trustax.experiment import ExperimentConfig, ObjectiveConfig, VerifierConfig
from trustax.policies import PolicyConfig
from trustax.rollouts import RolloutConfig
from trustax.training import OptimizerConfig, TrainConfig


def get_config() -> ExperimentConfig:
    return ExperimentConfig(
        name="smollm2-sums",
        policy=PolicyConfig(source=".cache/smollm2", remat=True),  # less memory, no slower here
        data=DataConfig(
            source=ArithmeticConfig(operation="sum", digits=1),
            template="What is {prompt}? Reply with only the number.",
        ),
        verifier=VerifierConfig(name="last_number"),
        rollout=RolloutConfig(prompts_per_step=8, group_size=8, max_prompt_tokens=48, max_new_tokens=12, top_k=20),
        objective=ObjectiveConfig(recipe="pdm_topk_kl"),
        optimizer=OptimizerConfig(learning_rate=2e-5, warmup_steps=5, clip_norm=1.0),
        train=TrainConfig(steps=14, minibatches=2, checkpoint_every=7),
        evaluation=EvalConfig(prompts=24, samples=8),
    )
