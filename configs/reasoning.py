"""SmolLM2-135M-Instruct on a task of reasoning-gym: somebody else's questions, judged by their own scorer.

Run:       trustax train configs/reasoning.py
           trustax train configs/reasoning.py data.source.task=chain_sum 'data.source.options={"max_terms": 2}'
Hardware:  two CPU cores. A starting point, not a validated result: nothing has been measured with it yet.
"""

from trustax.data import DataConfig, ReasoningGymConfig
from trustax.evaluation import EvalConfig
from trustax.experiment import ExperimentConfig, ObjectiveConfig, VerifierConfig
from trustax.policies import PolicyConfig
from trustax.rollouts import RolloutConfig
from trustax.training import OptimizerConfig, TrainConfig


def get_config() -> ExperimentConfig:
    return ExperimentConfig(
        name="smollm2-reasoning",
        policy=PolicyConfig(source=".cache/smollm2", remat=True),
        data=DataConfig(
            source=ReasoningGymConfig(
                task="basic_arithmetic", options={"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
            ),
            template="{prompt} Reply with only the number.",
            drop_long=True,
        ),
        verifier=VerifierConfig(name="reasoning_gym"),
        rollout=RolloutConfig(prompts_per_step=8, group_size=8, max_prompt_tokens=96, max_new_tokens=12, top_k=20),
        objective=ObjectiveConfig(recipe="pdm_topk_kl"),
        optimizer=OptimizerConfig(learning_rate=2e-5, warmup_steps=5, clip_norm=1.0),
        train=TrainConfig(steps=20, minibatches=2, checkpoint_every=10),
        evaluation=EvalConfig(prompts=24, samples=8),
    )
