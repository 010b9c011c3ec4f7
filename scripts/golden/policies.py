"""Make the golden files of tests/golden/policies with ``transformers``, the reference implementation.

This script has an environment of its own, which is not in pdm.lock because torch would bring gigabytes:

    python3 -m venv torchvenv
    torchvenv/bin/pip install torch==2.13.0 transformers==5.24.0 peft==0.21.2 gguf==0.19.0 accelerate
    torchvenv/bin/python scripts/golden/policies.py tiny                # or with the names of some
    torchvenv/bin/python scripts/golden/policies.py adapter
    torchvenv/bin/python scripts/golden/policies.py smollm2 .cache/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

``tiny`` writes, for every architecture switch, a random model of two or three layers (config.json, safetensors in
bf16) and the float32 logits of two token sequences. ``adapter`` writes random adapters of the tiny ``qwen2`` in PEFT's
layout and its logits with them. ``smollm2`` writes greedy continuations of 20 prompts and logits at
the first, a middle and the last position of four of them. Everything is seeded; regenerate only when a family is added.
"""

import json
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import peft
import torch
import transformers
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "policies"
SIZES = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
LOCAL_AND_GLOBAL = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e2},
    "full_attention": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
}
TINY = {
    "llama": LlamaConfig(**SIZES),
    "llama_every_head": LlamaConfig(**SIZES | {"num_key_value_heads": 4}, tie_word_embeddings=True),
    "llama_wide_heads": LlamaConfig(**SIZES, head_dim=12),
    "llama_rope_llama3": LlamaConfig(**SIZES, rope_parameters=LLAMA3),
    "llama_rope_linear": LlamaConfig(**SIZES, rope_parameters=LINEAR),
    "mistral": MistralConfig(**SIZES, sliding_window=5),
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen2_window": Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=5, max_window_layers=1),
    "qwen3": Qwen3Config(**SIZES, head_dim=12),
    "gemma2": Gemma2Config(
        **SIZES, head_dim=12, sliding_window=5, query_pre_attn_scalar=20,
        attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
    ),
    "gemma3": Gemma3TextConfig(
        **SIZES | {"num_hidden_layers": 3}, head_dim=12, sliding_window=5, query_pre_attn_scalar=20,
        rope_parameters=LOCAL_AND_GLOBAL,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    ),
    "qwen3_moe": Qwen3MoeConfig(
        **SIZES, head_dim=12, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=True
    ),
    "qwen3_moe_shares": Qwen3MoeConfig(  # whose shares do not sum to one
        **SIZES | {"num_hidden_layers": 1}, head_dim=12, num_experts=5, num_experts_per_tok=3,
        moe_intermediate_size=8, norm_topk_prob=False, tie_word_embeddings=True,
    ),
}  # fmt: skip
SEQUENCES, LENGTH = 2, 24


def randomize(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Weights large enough that every switch shows in the logits, rounded to bf16 so that they are stored exactly."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("norm.weight"):
            centre = 0.0 if "gemma" in model.config.model_type else 1.0
            values = centre + 0.3 * noise
        elif name.endswith("bias"):
            values = 0.3 * noise
        else:
            values = noise / parameter.shape[-1] ** 0.5
        parameter.data = values.to(torch.bfloat16).to(torch.float32)


def make_tiny(only: list[str]) -> None:
    """Tiny random models of every family, or of ``only`` some: weights, config, and logits."""
    for seed, (name, config) in enumerate(TINY.items()):  # add new ones at the end: a place is a seed
        if only and name not in only:
            continue
        generator = torch.Generator().manual_seed(seed)
        config._attn_implementation = "eager"  # the only one that applies attention's soft cap
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        randomize(model, generator)
        tokens = torch.randint(config.vocab_size, (SEQUENCES, LENGTH), generator=generator)
        with torch.no_grad():
            logits = model(tokens).logits
        folder = GOLDEN / name
        shutil.rmtree(folder, ignore_errors=True)
        model.to(torch.bfloat16).save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        np.savez_compressed(folder / "logits.npz", tokens=tokens.numpy().astype(np.int32), logits=logits.numpy())
        print(f"{name}: largest logit {logits.abs().max():.1f}")


def make_adapter() -> None:
    """Random adapters of the tiny model ``qwen2``, as PEFT saves them, and the logits of the model with them."""
    folder = GOLDEN.parent / "adapter"
    shutil.rmtree(folder, ignore_errors=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        GOLDEN / "qwen2", dtype=torch.float32, attn_implementation="eager"
    )
    targets = ["q_proj", "v_proj", "o_proj", "down_proj"]
    config = peft.LoraConfig(r=3, lora_alpha=6, target_modules=targets, task_type="CAUSAL_LM")
    model = peft.get_peft_model(model, config).eval()
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5
    tokens = torch.from_numpy(np.load(GOLDEN / "qwen2" / "logits.npz")["tokens"]).long()
    with torch.no_grad():
        logits = model(tokens).logits
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    settings = json.loads((folder / "adapter_config.json").read_text()) | {"base_model_name_or_path": "qwen2"}
    (folder / "adapter_config.json").write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    np.savez_compressed(folder / "logits.npz", logits=logits.numpy())
    print(f"adapter: largest logit {logits.abs().max():.1f}")


QUESTIONS = [
    "What is 4 + 3? Reply with only the number.",
    "What is 17 + 25? Reply with only the number.",
    "What is 6 times 7?",
    "What is the capital of France?",
    "Name three primary colours.",
    "Name the first month of the year.",
    "Who wrote Hamlet?",
    "Translate 'good morning' into Spanish.",
    "What is the capital of Japan?",
    "List the days of the weekend.",
    "How many legs does a spider have?",
    "Give me a word that rhymes with cat.",
    "What is H2O?",
    "Complete: The quick brown fox jumps over the lazy",
    "Is 13 a prime number?",
    "What colour do you get from blue and yellow?",
    "Write a Python function that adds two numbers.",
    "What is the largest planet of the solar system?",
    "Name a fruit that is yellow.",
    "How many days are in a week?",
]
CONTINUATION, LOGIT_PROMPTS, VOCABULARY_STRIDE, TOP = 24, 4, 97, 50
SMALLEST_GAP = 2e-3  # twenty times the difference between two float32 implementations


def make_smollm2(file: Path) -> None:
    """SmolLM2's logits and its greedy continuations."""
    options = {"gguf_file": file.name}
    quantization = transformers.GgufConfig(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, **options, quantization_config=quantization, dtype=torch.float32
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, **options)
    template = gguf.GGUFReader(file).fields["tokenizer.chat_template"].contents()  # which transformers leaves out
    texts, prompts, greedy, margins, records = [], [], [], [], []
    for i, question in enumerate(QUESTIONS):
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}],
            chat_template=template,
            add_generation_prompt=True,
            tokenize=False,
        )
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        continuation, margin = continue_greedily(model, ids)
        texts.append(text)
        prompts.append(ids)
        greedy.append(continuation)
        margins.append(margin)
        print(f"{question} → {tokenizer.decode(continuation)!r}", flush=True)
        if i < LOGIT_PROMPTS:
            with torch.no_grad():
                logits = model(torch.tensor([ids])).logits[0]
            for position in (0, len(ids) // 2, len(ids) - 1):
                top = torch.topk(logits[position], TOP)
                records.append((i, position, top.indices.numpy(), top.values.numpy(),
                                logits[position, ::VOCABULARY_STRIDE].numpy()))  # fmt: skip
    columns = list(zip(*records, strict=True))
    np.savez_compressed(
        GOLDEN / "smollm2.npz",
        prompts=pad(prompts),
        greedy=pad(greedy),
        logit_prompt=np.asarray(columns[0], np.int32),
        logit_position=np.asarray(columns[1], np.int32),
        top_ids=np.stack(columns[2]).astype(np.int32),
        top_logits=np.stack(columns[3]),
        strided_logits=np.stack(columns[4]),
    )
    (GOLDEN / "smollm2_prompts.json").write_text(json.dumps(texts, indent=1) + "\n", encoding="utf-8")
    print(f"smallest gap between the best and the second token: {min(margins):.4f}")
    if min(margins) < SMALLEST_GAP:
        sys.exit(f"question {margins.index(min(margins))} is decided by rounding; ask another one")


def continue_greedily(model: torch.nn.Module, ids: list[int]) -> tuple[list[int], float]:
    """``CONTINUATION`` tokens, stop tokens or not, and the smallest gap between the first and the second choice."""
    chosen: list[int] = []
    state, step, margin = None, torch.tensor([ids]), float("inf")
    with torch.no_grad():
        while len(chosen) < CONTINUATION:
            out = model(step, past_key_values=state, use_cache=True)
            state, best = out.past_key_values, torch.topk(out.logits[0, -1], 2)
            margin = min(margin, float(best.values[0] - best.values[1]))
            chosen.append(int(best.indices[0]))
            step = torch.tensor([chosen[-1:]])
    return chosen, margin


def pad(rows: list[list[int]]) -> np.ndarray:
    """Right-padded with −1."""
    out = np.full((len(rows), max(map(len, rows))), -1, np.int32)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


if __name__ == "__main__":
    if sys.argv[1:2] == ["tiny"]:
        make_tiny(sys.argv[2:])
    elif sys.argv[1:] == ["adapter"]:
        make_adapter()
    elif len(sys.argv) == 3 and sys.argv[1] == "smollm2":
        make_smollm2(Path(sys.argv[2]))
    else:
        sys.exit(__doc__)
