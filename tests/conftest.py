"""Strictness for every test, set here, where pytest always runs it, and the choice of tests.

The run-time check of shapes and types (jaxtyping with beartype) is switched on by pyproject.toml, before anything of
trustax is imported: nothing here may import it at the top.
"""

import collections
import hashlib
import importlib.util
import os
import pathlib
import platform

import pytest

TESTS = pathlib.Path(__file__).parent
DISTRIBUTED = TESTS / "distributed"
MODEL = TESTS.parent / ".cache" / "smollm2"
LEFT_OUT = pytest.StashKey[collections.Counter]()
ALONE = pytest.StashKey[bool]()


def compile_cache() -> pathlib.Path:
    """A folder for compiled programs, which hold instructions of this very processor."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    processor = " ".join(
        [platform.machine(), platform.processor(), *sorted({x for x in lines if x.startswith("flags")})]
    )
    return TESTS.parent / ".cache" / "jax" / hashlib.sha256(processor.encode()).hexdigest()[:12]


# In the environment, so that the commands that tests start have them too.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(compile_cache()))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")

import hypothesis  # noqa: E402
import jax  # noqa: E402

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

hypothesis.settings.register_profile("trustax", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("trustax")

# What `pytest` leaves out unless it is told `--all`, with what a test must find to run at all.
REQUIREMENTS = {
    "slow": None,
    "real_model": lambda: None if any(MODEL.glob("*.gguf")) else f"no model in {MODEL}: scripts/test --all fetches it",
    "notebook": lambda: None if importlib.util.find_spec("nbmake") else "nbmake is missing: pdm install -G notebooks",
    "tpu_compiler": lambda: None if importlib.util.find_spec("libtpu") else "libtpu is missing: pdm install -G tpu",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also run tests marked " + ", ".join(REQUIREMENTS))


def pytest_configure(config: pytest.Config) -> None:
    """Give ``tests/distributed`` eight devices; that can't be undone, so those tests run alone.

    Nearly all of the fast set's time goes into compiling small programs: there XLA leaves out most optimizations.
    ``--all`` runs the same tests on programs as users have them.
    """
    if not config.option.all:
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
        jax.config.update("jax_disable_most_optimizations", os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "true")
    paths = [pathlib.Path(argument.split("::")[0]).resolve() for argument in config.args]
    inside = [path.is_relative_to(DISTRIBUTED) for path in paths]
    config.stash[ALONE] = all(inside)
    if config.stash[ALONE]:
        jax.config.update("jax_num_cpu_devices", 8)
    elif any(inside):
        raise pytest.UsageError("tests/distributed needs eight devices: run it in a process of its own")


def pytest_ignore_collect(collection_path: pathlib.Path, config: pytest.Config) -> bool | None:
    return True if collection_path == DISTRIBUTED and not config.stash[ALONE] else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the special tests out, unless they were asked for by ``--all``, by ``-m`` or by name."""
    special = {item: [name for name in REQUIREMENTS if item.get_closest_marker(name)] for item in items}
    for item, names in special.items():
        for problem in (REQUIREMENTS[name]() for name in names if REQUIREMENTS[name]):
            if problem:
                item.add_marker(pytest.mark.skip(reason=problem))
    asked_for = config.option.all or config.option.markexpr or any("::" in argument for argument in config.args)
    left_out = [] if asked_for else [item for item in items if special[item]]
    config.stash[LEFT_OUT] = collections.Counter(special[item][-1] for item in left_out)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not special[item]]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where several processes share the tests (``-n``), each has the whole list and sends what it left out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(session.config.stash[LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    node.config.stash[LEFT_OUT] = collections.Counter(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left_out = config.stash.get(LEFT_OUT, collections.Counter())
    if left_out:
        names = ", ".join(f"{count} {name}" for name, count in left_out.items())
        terminalreporter.write_line(f"left out (--all runs them): {names}")
