"""One folder for one run: made new, resumed if it holds the same run, and never overwritten unasked."""

import dataclasses
import fcntl
import importlib.metadata
import json
import os
import platform
import shutil
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import trustax
from trustax.errors import ConfigError
from trustax.experiment.config import ExperimentConfig
from trustax.experiment.config_files import diff, from_json, to_json
from trustax.experiment.files import naming, write_atomically

FORMAT_VERSION = 1

_OWN = (
    "config.json",
    "difficulty.json",
    "metrics.jsonl",
    "samples.jsonl",
    "summary.json",
    "checkpoints",
    "plots",
    "tensorboard",
)
_INVISIBLE = (".lock", *(f".{name}.tmp" for name in _OWN))  # what a process that died early leaves behind


def default_folder(config: ExperimentConfig) -> Path:
    """Where a run goes if nobody says where."""
    return Path("runs") / f"{config.name}-seed{config.seed}"


class RunFolder:
    """The places inside a run's folder; while it is open, no other process can open it.

    An absent or empty folder becomes a new run. One that holds a run with the same config is resumed; ``train.steps``
    may have been raised since. Anything else is refused with nothing touched: another config (the difference is
    shown), files that are no run, a run in progress. ``overwrite`` removes the files of an old run, and only those.
    """

    def __init__(self, path: str | Path, config: ExperimentConfig, *, overwrite: bool = False):
        self.path = Path(path)
        self.config_file = self.path / "config.json"
        self.metrics_file = self.path / "metrics.jsonl"
        self.samples_file = self.path / "samples.jsonl"
        self.summary_file = self.path / "summary.json"
        self.checkpoints = self.path / "checkpoints"
        self.tensorboard = self.path / "tensorboard"
        self.plots = self.path / "plots"
        self.resumed = False
        self.version_changes: list[str] = []
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file; name a folder with --output")
        foreign = self._foreign()  # looked at before anything is made
        if foreign and not self.config_file.is_file():
            raise ConfigError(
                f"{self.path} holds files that are no run of trustax ({', '.join(foreign[:3])}"
                f"{', …' if len(foreign) > 3 else ''}); name another folder with --output"
            )
        with naming(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.path / ".lock")
        try:
            self._open(config, overwrite)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let other processes open the folder."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _foreign(self) -> list[str]:
        if not self.path.is_dir():
            return []
        return sorted(entry.name for entry in self.path.iterdir() if entry.name not in _INVISIBLE)

    def _open(self, config: ExperimentConfig, overwrite: bool) -> None:
        if self.config_file.is_file():
            old = _read(self.config_file)
            if overwrite:
                self._remove_run()
            else:
                self._check_same(old, config)
                self.resumed = True
                self.version_changes = _version_changes(old["versions"])
        document = {
            "trustax_run": FORMAT_VERSION,
            "config": to_json(config),
            "versions": versions(),
        }
        write_atomically(self.config_file, json.dumps(document, indent=2, allow_nan=False) + "\n")

    def _check_same(self, old: dict[str, Any], config: ExperimentConfig) -> None:
        before = from_json(old["config"])
        longer = config.train.steps >= before.train.steps
        comparable = dataclasses.replace(before, train=dataclasses.replace(before.train, steps=config.train.steps))
        changes = diff(comparable if longer else before, config)
        if changes:
            raise ConfigError(
                f"{self.path} holds a run with another config ({'; '.join(changes)}); name another folder with "
                "--output, make the configs equal to resume it, or start over with --overwrite"
            )

    def _remove_run(self) -> None:
        # config.json goes last: until then the folder still looks like a run, and --overwrite can be said again.
        with naming(self.path):
            for name in reversed(_OWN):
                entry = self.path / name
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink(missing_ok=True)


def read_config(folder: str | Path) -> ExperimentConfig:
    """The resolved config of the run in ``folder``."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise ConfigError(f"{folder} holds no run: it has no config.json")
    return from_json(_read(path)["config"])


def versions() -> dict[str, str]:
    """What the numbers of a run depend on besides its config."""
    packages = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
    return {
        "trustax": trustax.__version__,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def _version_changes(old: dict[str, str]) -> list[str]:
    new = versions()
    return [
        f"{name}: {old.get(name, 'absent')} → {new.get(name, 'absent')}"
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    ]


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(
            f"{path} is not JSON ({error}); is this a run folder? Name another one with --output"
        ) from None
    if not isinstance(document, dict) or document.get("trustax_run") != FORMAT_VERSION:
        raise ConfigError(f"{path} was not written by this version of trustax; name another folder with --output")
    return document


def _locked(path: Path) -> IO[str]:
    """An open file with a lock that the system takes back when the process ends, however it ends."""
    with naming(path):
        file = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        owner = file.read().strip()
        file.close()
        who = f" (process {owner})" if owner else ""
        raise ConfigError(f"{path.parent} is in use by another run{who}; wait for it, or name another folder") from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file
