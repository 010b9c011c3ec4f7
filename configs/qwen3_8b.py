"""Qwen3-8B-Base under a predictive divergence mask on a pod: the dense row of DPPO's table, at 4,096 tokens.

Run:       trustax plan configs/qwen3_8b.py --topology v5e:16x16
Hardware:  256 TPU v5e chips; `plan` says what each needs
Sources:   256 sequences a minibatch and a learning rate of 1e-6 (DPPO, Table 1); K 20, δ 0.15 and C 5 (the masks' own
           defaults, docs/recipes.md); the mesh is ours
"""

from trustax.experiment import ExperimentConfig, ObjectiveConfig
from trustax.parallel import MeshConfig
from trustax.policies import PolicyConfig
from trustax.rollouts import RolloutConfig
from trustax.training import OptimizerConfig, TrainConfig


def get_config() -> ExperimentConfig:
    return ExperimentConfig(
        name="qwen3-8b",
        policy=PolicyConfig(source="Qwen3-8B-Base", dtype="bfloat16", remat=True),
        rollout=RolloutConfig(
            prompts_per_step=128, group_size=8, max_prompt_tokens=1024, max_new_tokens=3072, top_k=20
        ),
        objective=ObjectiveConfig(recipe="pdm_topk_kl"),
        optimizer=OptimizerConfig(learning_rate=1e-6, warmup_steps=10),
        train=TrainConfig(steps=800, minibatches=4),
        mesh=MeshConfig(fsdp=32, tensor=8),
    )
