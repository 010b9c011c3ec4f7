"""Reading weights takes little more memory than the weights: measured in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest

from trustax import policies
from trustax.policies.hf_config_write import to_hf
from trustax.policies.hf_names import tensors
from trustax.policies.safetensors_io import Tensors, write_safetensors

CONFIG = policies.ArchitectureConfig(
    vocab_size=20_000, hidden_size=512, num_layers=12, num_heads=8, num_kv_heads=8, head_dim=64, mlp_size=4096,
    context_length=64,
)  # fmt: skip
PROGRAM = """
import re, sys
import jax
from trustax import policies
def kilobytes(name):
    return int(re.search(name + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1])
policies.load(sys.argv[1])  # a small one: what JAX itself needs is there afterwards
before = kilobytes("VmRSS")
open("/proc/self/clear_refs", "w").write("5")  # the peak starts again
loaded = policies.load(sys.argv[2])
result = sum(leaf.nbytes for leaf in jax.tree.leaves(loaded.params)) // 1024
print(kilobytes("VmHWM") - before - result)
"""
GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "policies"
COMPILING = 40 * 2**20  # what the compiler takes for the shapes of this model; a copy of one leaf would be 96


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_peak_is_about_one_layer_above_the_result(tmp_path: Path) -> None:
    names = {name: row.file_shape(CONFIG) for row in tensors(CONFIG) for name in row.files(CONFIG, row.hf).values()}
    bf16 = np.dtype(ml_dtypes.bfloat16)
    write_safetensors(
        tmp_path,
        Tensors(names, dict.fromkeys(names, bf16), lambda name: np.zeros(names[name], bf16)),
        shard_bytes=10**8,
    )
    (tmp_path / "config.json").write_text(json.dumps(to_hf(CONFIG)))
    shapes = jax.eval_shape(policies.build(CONFIG).init, jax.random.key(0))
    layer = 4 * sum(leaf.size for leaf in jax.tree.leaves(shapes["layers"])) // CONFIG.num_layers
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(GOLDEN / "llama"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    above = 1024 * int(done.stdout)
    print(f"{above / 2**20:.0f} MiB above the result; a layer is {layer / 2**20:.0f} MiB")
    assert above < layer + COMPILING
