"""The two commands on machines where something is missing: one clear line, and the right exit code."""

import os
import pathlib
import shutil
import stat
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    """What the scripts need of a checkout, in a folder with a space in its name; nothing is installed."""
    folder = tmp_path / "a checkout"
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    for name in ("pyproject.toml", "pdm.lock"):
        shutil.copy(ROOT / name, folder)
    (folder / "configs").mkdir()
    for name in ("smollm2.py", "tiny.py"):
        (folder / "configs" / name).touch()
    return folder


def run(checkout: pathlib.Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    home = checkout.parent / "home"
    home.mkdir(exist_ok=True)
    clean = {"PATH": os.environ["PATH"], "HOME": str(home), "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}
    return subprocess.run(
        ["bash", str(checkout / "scripts" / command[0]), *command[1:]],
        cwd=home,
        env=clean | {"PYTHON": sys.executable} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def executable(path: pathlib.Path, text: str) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("script", ["quickstart", "test"])
def test_an_old_python_is_named_with_the_way_out(checkout: pathlib.Path, script: str):
    old = executable(checkout.parent / "python3.10", "echo 3.10.13")
    done = run(checkout, script, PYTHON=str(old))
    assert done.returncode == 1
    assert f"{old} is 3.10.13" in last_line(done)
    assert "PYTHON=" in last_line(done)
    assert not (checkout / ".pdm-tool").exists()


def test_a_python_that_is_not_there(checkout: pathlib.Path):
    done = run(checkout, "test", PYTHON="python3.99")
    assert done.returncode == 1
    assert "no python3.99 here" in last_line(done)


@pytest.mark.slow
def test_no_network(checkout: pathlib.Path):
    done = run(checkout, "test", PIP_INDEX_URL="http://127.0.0.1:9/simple")
    assert done.returncode == 1
    assert "pdm could not be installed: no network" in last_line(done)
    assert not (checkout / ".pdm-tool" / "stamp").exists()


def full_disk(checkout: pathlib.Path) -> dict[str, str]:
    df = executable(checkout.parent / "bin" / "df", "printf 'Filesystem\\nnone 100 99 1024 99%% /\\n'")
    return {"PATH": f"{df.parent}:{os.environ['PATH']}"}


def test_no_disk_space(checkout: pathlib.Path):
    done = run(checkout, "test", **full_disk(checkout))
    assert done.returncode == 1
    assert "no disk space" in last_line(done)
    assert "1 MB left" in last_line(done)


def test_an_unknown_config_is_told_before_anything_is_installed(checkout: pathlib.Path):
    done = run(checkout, "quickstart", "configs/huge.py")
    assert done.returncode == 2
    assert "no config configs/huge.py (there are: configs/smollm2.py configs/tiny.py" in last_line(done)
    assert not (checkout / ".cache").exists()


@pytest.mark.parametrize("script", ["quickstart", "test"])
def test_help(checkout: pathlib.Path, script: str):
    done = run(checkout, script, "--help")
    assert done.returncode == 0
    assert f"bash scripts/{script} [" in done.stdout


def ready(checkout: pathlib.Path, *groups: str) -> pathlib.Path:
    """A checkout whose set-up is done, with stand-ins that tell how they were called instead of working."""
    stamps = checkout / ".venv" / ".trustax"
    stamps.mkdir(parents=True)
    project = (checkout / "pyproject.toml").read_text()
    fingerprint = project[: project.index("[tool.")] + (checkout / "pdm.lock").read_text()
    for group in groups:
        (stamps / group).write_text(fingerprint)
    (stamps / "root").write_text(f"{checkout}\n")
    report = f'[ "$1" = -c ] && exec "{sys.executable}" "$@"\nprintf "<%s>" "$(basename "$0")" "$@"; echo " in $PWD"'
    executable(checkout / ".venv" / "bin" / "python", report)
    executable(checkout / ".venv" / "bin" / "trustax", report)
    return checkout


def test_a_finished_set_up_goes_straight_to_the_job(checkout: pathlib.Path):
    ready(checkout, "default", "tasks")
    done = run(checkout, "quickstart", "configs/tiny.py", "seed=3", "run.name=a b")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"<trustax><train><configs/tiny.py><seed=3><run.name=a b> in {checkout}\n"
    assert "installing" not in done.stderr


def test_a_config_beside_the_caller_is_found(checkout: pathlib.Path):
    ready(checkout, "default", "tasks")
    own = checkout.parent / "home" / "own.py"
    own.parent.mkdir()
    own.touch()
    done = run(checkout, "quickstart", "own.py")
    assert f"<train><{own}>" in done.stdout


def test_the_tests_on_many_devices_run_apart(checkout: pathlib.Path):
    ready(checkout, "default", "tasks", "test")
    (checkout / "tests" / "distributed").mkdir(parents=True)
    lines = run(checkout, "test", "-q").stdout.splitlines()
    assert [line.split(" in ")[0] for line in lines] == [
        "<python><-m><pytest><tests/distributed><-q>",
        "<python><-m><pytest><--numprocesses><logical><--maxprocesses><4><--dist><loadfile><-q>",
    ]
    lines = run(checkout, "test", "tests").stdout.splitlines()
    assert len(lines) == 1


@pytest.mark.parametrize("change", ["nothing", "unfinished", "lock", "project", "moved", "python", "group"])
def test_what_is_stale_is_installed_again(checkout: pathlib.Path, change: str):
    """The installation itself ends at once: the disk is full."""
    ready(checkout, "default", "tasks", "test")
    environment = {"PYTHON": "", **full_disk(checkout)}
    if change == "unfinished":
        (checkout / ".venv" / ".trustax" / "unfinished").touch()
    elif change == "lock":
        with (checkout / "pdm.lock").open("a") as lock:
            lock.write("\n")
    elif change == "project":
        project = checkout / "pyproject.toml"
        project.write_text(project.read_text().replace("jax>=0.10.2", "jax>=0.11"))
    elif change == "moved":
        checkout = checkout.rename(checkout.parent / "elsewhere")
    elif change == "python":
        other = executable(checkout.parent / "python3.13", '[[ "$2" == *platform* ]] && echo 3.13.0 || echo 3 13')
        environment["PYTHON"] = str(other)
    elif change == "group":
        (checkout / ".venv" / ".trustax" / "test").unlink()
    done = run(checkout, "test", **environment)
    assert done.returncode == (0 if change == "nothing" else 1), done.stderr
    assert ("no disk space" in done.stderr) == (change != "nothing")
