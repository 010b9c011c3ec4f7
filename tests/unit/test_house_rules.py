"""Rules of the house that no linter knows, over every file of the package."""

import ast
import pathlib
import re
import subprocess
from collections.abc import Callable

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "trustax").rglob("*.py"))
TREES = {path.relative_to(ROOT): ast.parse(path.read_text()) for path in SOURCES}


def places(breaks: Callable[[ast.AST], bool]) -> list[str]:
    return [f"{path}:{node.lineno}" for path, tree in TREES.items() for node in ast.walk(tree) if breaks(node)]  # type: ignore[attr-defined]


def test_no_file_is_longer_than_a_person_reads():
    assert [str(path) for path in SOURCES if len(path.read_text().splitlines()) > 400] == []


def test_no_attribute_has_a_silent_default():
    """``getattr(config, "nmae", 0)`` turns a typing mistake into a number."""

    def breaks(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and len(node.args) == 3

    assert places(breaks) == []


def test_no_number_is_replaced_for_being_zero():
    """``x or 1.0`` replaces a 0 that somebody meant."""

    def breaks(node: ast.AST) -> bool:
        if not (isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or)):
            return False
        last = node.values[-1]
        return isinstance(last, ast.Constant) and type(last.value) in (int, float) and last.value != 0

    assert places(breaks) == []


def tracked_text() -> dict[str, str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    texts = {}
    for name in filter(None, listed.stdout.split("\0")):
        data = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b""
        if b"\0" not in data and name != "pdm.lock":
            texts[name] = data.decode("utf-8")
    return texts


def test_no_path_of_somebodys_machine():
    machine_path = re.compile(r"""(?<![\w.}/*])/(?:work|home|Users|root|mnt|opt)/\w""")
    found = [
        f"{name}:{number}"
        for name, text in tracked_text().items()
        for number, line in enumerate(text.splitlines(), 1)
        if machine_path.search(line) and name != "tests/unit/test_house_rules.py"
    ]
    assert found == []
