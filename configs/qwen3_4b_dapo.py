"""Qwen3-4B-Base on DAPO-Math under a predictive divergence mask, evaluated by avg@16 on AIME 2024 and 2025.

Run:       trustax train configs/qwen3_4b_dapo.py
Hardware:  accelerators with room for 4 B float32 parameters, their gradients and Adam's moments; not a CPU
Needs:     the model's folder in .cache/qwen3-4b-base, and in .cache/sets the files that `trustax.data.published` names:
           dapo-math-17k.parquet, aime24.parquet or .jsonl, aime25.parquet or .jsonl

Published settings, by their source. PDM (2607.10848): the model, about 13k questions of DAPO-Math-17k, K 20, delta
0.15, C 5, T 1 without truncation, avg@16. Its learning rate, batch and lengths are not known to us; they are those of
DRPO's recipe for the same model (2606.09821): 64 prompts of 8 completions, 4 updates a batch, AdamW 1e-6 without
warm-up, betas 0.9 and 0.999, weight decay 0.01, clip 1, answers of at most 8192 tokens, 800 batches, an evaluation
every 10. Prompts of at most 1024 tokens are DPPO's (2602.04879). Which 13k questions is not published: the filter is
ours. The aggregation is DPPO's example. Nothing has been measured with this config here.
"""

from trustax.data import DataConfig, MixtureConfig, PublishedConfig
from trustax.evaluation import EvalConfig
from trustax.experiment import ExperimentConfig, ObjectiveConfig, VerifierConfig
from trustax.policies import PolicyConfig
from trustax.rollouts import RolloutConfig
from trustax.training import OptimizerConfig, TrainConfig

# DAPO's questions carry these words; AIME's files don't. Leave them out for a file that does.
WORDING = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n{prompt}\n\nRemember to put your answer "
    'on its own line after "Answer:".'
)


def get_config() -> ExperimentConfig:
    return ExperimentConfig(
        name="qwen3-4b-dapo",
        policy=PolicyConfig(source=".cache/qwen3-4b-base", remat=True, dtype="bfloat16"),
        data=DataConfig(
            source=PublishedConfig("dapo_math_17k"),
            test_source=MixtureConfig(
                (PublishedConfig("aime24", wording=WORDING), PublishedConfig("aime25", wording=WORDING))
            ),
            drop_long=True,
        ),
        verifier=VerifierConfig(name="math"),
        rollout=RolloutConfig(prompts_per_step=64, group_size=8, max_prompt_tokens=1024, max_new_tokens=8192, top_k=20),
        objective=ObjectiveConfig(recipe="pdm_topk_kl", hyperparameters={"delta": 0.15, "cap": 5.0}),
        optimizer=OptimizerConfig(
            learning_rate=1e-6, warmup_steps=0, clip_norm=1.0, b1=0.9, b2=0.999, weight_decay=0.01
        ),
        train=TrainConfig(steps=800, minibatches=4, micro_batches=16, checkpoint_every=10, eval_every=10),
        evaluation=EvalConfig(prompts=60, samples=16, temperature=1.0),
    )
