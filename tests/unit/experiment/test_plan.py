"""``trustax plan``: the verdict, what is refused, and a small program through the TPU's own compiler."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trustax.experiment.plan import Plan
from trustax.experiment.plan_report import verdict
from trustax.parallel.chips import CHIPS, GIB
from trustax.parallel.compiled import Phase

ROOT = Path(__file__).parents[3]
PHASE = Phase(
    name="update", arguments=GIB, outputs=0.0, temporaries=11 * GIB, peak=12 * GIB, flops=1e12, bytes_moved=GIB,
    collectives={}, seconds={"compute": 1.0, "memory": 2.0, "links": 0.5}, compile_seconds=1.0,
)  # fmt: skip


def plan(phase: Phase) -> Plan:
    return Plan(
        topology="v5e:2x4", chips=8, chip=CHIPS["v5e"], parameters=8, tokens=8, parameter_bytes=1.0,
        optimizer_bytes=2.0, cache_bytes=1.0, phases=[phase],
    )  # fmt: skip


def test_the_verdict_says_what_is_needed_and_one_change() -> None:
    assert verdict(plan(PHASE)) == "fits: update needs 12.00 of 16 GiB a chip (25 % to spare)"
    assert PHASE.bound == "memory"
    temporaries = verdict(plan(dataclasses.replace(PHASE, peak=20 * GIB)))
    assert temporaries.startswith("does not fit: update needs 20.00 GiB a chip, has 16 GiB; ")
    assert "train.micro_batches" in temporaries
    assert "mesh.fsdp" in verdict(plan(dataclasses.replace(PHASE, arguments=17 * GIB, peak=20 * GIB)))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trustax", "plan", str(ROOT / "configs" / "tiny.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT / "src")})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--topology", "v9z:4x4"], "expected KIND:SHAPE such as v5e:16x16; kinds: v4, v5e"),
        (["--topology", "cpu:1", "mesh.fsdp=4"], "the mesh asks for fsdp 4 = 4 devices, but there are 1"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], told: str) -> None:
    found = run(*arguments)
    assert found.returncode == 2 and told in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.tpu_compiler
def test_a_small_run_through_the_tpu_compiler(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    found = run("--topology", "v5e:2x4", "mesh.fsdp=4", "mesh.tensor=2", "--json", str(file))
    assert found.returncode == 0, found.stderr[-2000:]
    told = json.loads(file.read_text())
    assert told["fits"] and told["chips"] == 8
    update, score, generate = told["phases"]
    assert {"all-gather", "all-reduce"} <= update["collectives"].keys()
    # Forward, recomputation or not, and backward: at least three times a forward pass over the same tokens.
    assert update["flops"] > 2.5 * score["flops"]
    assert generate["flops"] > 0 and all(phase["peak"] > 0 for phase in told["phases"])
