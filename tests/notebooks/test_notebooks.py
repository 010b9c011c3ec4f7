"""Every notebook of experiments/ runs from top to bottom, and is committed with what it showed."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOKS = sorted(path for path in (ROOT / "experiments").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)
LIMIT = 2_000_000


def name_of(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_there_are_notebooks():
    assert NOTEBOOKS


def stale(cells: list[dict]) -> list[str]:
    """What shows that a notebook was not run from top to bottom before it was committed."""
    code = [cell for cell in cells if cell["cell_type"] == "code" and "".join(cell["source"]).strip()]
    outputs = [output for cell in code for output in cell["outputs"]]
    found = [] if [c["execution_count"] for c in code] == list(range(1, len(code) + 1)) else ["not run in order"]
    found += ["a cell failed"] if any(output["output_type"] == "error" for output in outputs) else []
    return found + ([] if any("image/png" in output.get("data", {}) for output in outputs) else ["no figure"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_it_is_committed_with_its_figures(path):
    assert stale(json.loads(path.read_text())["cells"]) == []
    assert path.stat().st_size < LIMIT


def test_a_stale_notebook_is_found():
    picture = {"output_type": "display_data", "data": {"image/png": ""}}
    good = [{"cell_type": "code", "source": ["x"], "execution_count": 1, "outputs": [picture]}]
    assert stale(good) == []
    assert stale([good[0] | {"execution_count": 3}]) == ["not run in order"]
    assert stale([good[0] | {"outputs": [{"output_type": "error"}]}]) == ["a cell failed", "no figure"]


@pytest.mark.notebook
@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_it_runs(path):
    """By nbmake, in a process of its own: neither pytest's strictness nor its devices are the reader's."""
    source = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    options = ["-c", os.devnull, "--rootdir", str(ROOT), "-p", "no:cacheprovider", "--nbmake", "--nbmake-timeout=900"]
    command = [sys.executable, "-m", "pytest", *options, str(path)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": source}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
