"""Complete checkpoints or none: every part of a run's state in one orbax step.

A step is a folder named by its number (``5``; saved again, ``5-1``). Orbax writes it under a temporary name and renames
it when all of its items are on the disk, so a folder with such a name is complete, whatever happened to the process.
What is older is deleted only after that rename, and under another name first, so that a deletion cut short never looks
like a checkpoint either.
"""

import json
import re
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import jax
import numpy as np
import orbax.checkpoint as ocp

from trustax.checkpoint import trees
from trustax.errors import CheckpointError

FORMAT_VERSION = 1

_RECORD = "record"  # the item that holds the JSON record; orbax names the folder after it
_COMPLETE = re.compile(r"(\d+)(?:-(\d+))?")  # step, and how often it was saved before
_LEFTOVER_MARKS = (".orbax-checkpoint-tmp", ".deleting")


class Checkpointer:
    """Saves and restores numbered steps under ``directory``; keeps the last ``keep`` complete ones.

    Opening one for reading touches nothing. ``save`` returns when the values are safe from being overwritten or
    donated; the writing goes on in the background, and ``wait`` (or the next ``save``) raises what went wrong there.
    """

    def __init__(self, directory: str | Path, *, keep: int = 2):
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least 1 checkpoint must be kept to resume from")
        self.directory = Path(directory).absolute()
        self.keep = keep
        self._orbax = ocp.AsyncCheckpointer(ocp.CompositeCheckpointHandler(handler_registry=_handlers()))
        self._pending: int | None = None

    def save(self, step: int, arrays: dict[str, Any], record: dict[str, Any]) -> None:
        """Write one step: a pytree for every name in ``arrays``, and ``record``, which must be strict JSON.

        A step that is there already is replaced when the new one is complete.
        """
        self.wait()
        if _RECORD in arrays:
            raise ValueError(f"{_RECORD!r} is the name of the JSON record; give the arrays another one")
        document = {
            "format_version": FORMAT_VERSION,
            "step": step,
            "manifest": {name: trees.manifest(tree) for name, tree in arrays.items()},
            "outline": {name: trees.outline(tree) for name, tree in arrays.items()},
            "record": _checked_json(record),
        }
        saves: dict[str, Any] = {
            name: ocp.args.PyTreeSave(trees.to_nested(trees.leaves_by_path(jax.tree.map(_writable, tree))))
            for name, tree in arrays.items()
            if jax.tree.leaves(tree)
        }
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._clear_leftovers()
            self._orbax.save(
                self._next_path(step), args=ocp.args.Composite(**saves, **{_RECORD: ocp.args.JsonSave(document)})
            )
        except Exception as error:  # orbax and its C++ parts raise anything; what matters is that nothing was written
            raise self._save_failed(step, error) from error
        self._pending = step

    def wait(self) -> None:
        """Return when no save is in flight; raise ``CheckpointError`` if the last one failed."""
        if self._pending is None:
            return
        step, self._pending = self._pending, None
        try:
            self._orbax.wait_until_finished()
        except Exception as error:  # as in save
            self._clear_leftovers()
            raise self._save_failed(step, error) from error
        self._prune()

    def close(self) -> None:
        """Finish the save in flight and stop the background thread."""
        try:
            self.wait()
        finally:
            self._orbax.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def steps(self) -> list[int]:
        """The complete steps on the disk, oldest first."""
        return sorted({step for step, _ in self._complete()})

    def latest_step(self) -> int | None:
        """The last complete step, or ``None``."""
        return max(self.steps(), default=None)

    def has(self, step: int) -> bool:
        """Whether ``step`` is complete or being written."""
        return step == self._pending or step in self.steps()

    def read_record(self, step: int) -> dict[str, Any]:
        """The JSON record alone, without reading any array."""
        return self._read_document(step)["record"]

    def restore(self, step: int, templates: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read the items named in ``templates`` and the record; items that are not named are not read.

        A template is a pytree of arrays or of ``jax.ShapeDtypeStruct``; every leaf is placed by the *template's*
        sharding, so the number of devices may differ from the one that saved. ``None`` gives numpy arrays in lists
        and dicts: named tuples and dataclasses come back as dicts by field, typed keys as their data.
        """
        document = self._read_document(step)
        problems = self._mismatches(document["manifest"], templates)
        if problems:
            raise CheckpointError(
                f"checkpoint {self._path(step)} does not fit this run ({len(problems)} differences): "
                + "; ".join(problems[:10])
                + ("; …" if len(problems) > 10 else "")
                + ". Use the config it was made with (config.json in the run folder), or start another run"
            )
        wanted = {name: _wanted(document["manifest"][name], template) for name, template in templates.items()}
        requests = {name: _request(leaves) for name, leaves in wanted.items() if leaves}
        found = self._read(step, requests) if requests else {}
        arrays = {}
        for name, template in templates.items():
            nested = found.get(name, {})
            if template is None:
                arrays[name] = trees.fill(document["outline"][name], nested)
            else:
                leaves = [_placed(trees.lookup(nested, path), leaf) for path, leaf in wanted[name].items()]
                arrays[name] = jax.tree.unflatten(jax.tree.structure(template), leaves)
        return arrays, document["record"]

    def _mismatches(self, manifests: dict[str, trees.Manifest], templates: dict[str, Any]) -> list[str]:
        problems = []
        for name, template in templates.items():
            if name not in manifests:
                problems.append(f"{name}: not in the checkpoint, which holds {', '.join(sorted(manifests))}")
            elif template is not None:
                lines = trees.differences(manifests[name], trees.manifest(template))
                problems += [f"{name}/{line}" for line in lines]
        return problems

    def _read_document(self, step: int) -> dict[str, Any]:
        if step not in self.steps():
            there = ", ".join(map(str, self.steps())) or "none"
            raise CheckpointError(f"no complete checkpoint of step {step} in {self.directory}; complete steps: {there}")
        document = self._read(step, {_RECORD: ocp.args.JsonRestore()})[_RECORD]
        version = document.get("format_version") if isinstance(document, dict) else None
        if version != FORMAT_VERSION:
            raise CheckpointError(
                f"checkpoint {self._path(step)} has format version {version}; this trustax reads version "
                f"{FORMAT_VERSION}: use the trustax that wrote it (named in config.json of the run folder)"
            )
        return document

    def _read(self, step: int, requests: dict[str, Any]) -> dict[str, Any]:
        try:
            return dict(self._orbax.restore(self._path(step), args=ocp.args.Composite(**requests)).items())
        except Exception as error:  # a torn file surfaces as whatever the reader tripped over
            others = [other for other in self.steps() if other != step]
            advice = (
                f"remove it to resume from step {max(others)}" if others else "there is no other step to resume from"
            )
            message = f"checkpoint {self._path(step)} is damaged, it cannot be read ({_reason(error)}); {advice}"
            raise CheckpointError(message) from error

    def _complete(self) -> dict[tuple[int, int], Path]:
        """Folders of complete steps by (step, how often it was saved before)."""
        if not self.directory.is_dir():
            return {}
        matches = [(path, _COMPLETE.fullmatch(path.name)) for path in self.directory.iterdir() if path.is_dir()]
        return {(int(match[1]), int(match[2] or 0)): path for path, match in matches if match}

    def _path(self, step: int) -> Path:
        complete = self._complete()
        return complete[max(key for key in complete if key[0] == step)]

    def _next_path(self, step: int) -> Path:
        times = [again for other, again in self._complete() if other == step]
        return self.directory / (f"{step}-{max(times) + 1}" if times else str(step))

    def _prune(self) -> None:
        kept = {self._path(step) for step in self.steps()[-self.keep :]}
        for path in set(self._complete().values()) - kept:
            shutil.rmtree(path.rename(path.with_name(f"{path.name}.deleting")))

    def _clear_leftovers(self) -> None:
        for path in self.directory.iterdir():
            if any(mark in path.name for mark in _LEFTOVER_MARKS):
                shutil.rmtree(path)

    def _save_failed(self, step: int, error: Exception) -> CheckpointError:
        latest = self.latest_step()
        kept = "no earlier checkpoint exists" if latest is None else f"step {latest} is kept and can be resumed"
        return CheckpointError(
            f"checkpoint of step {step} could not be written to {self.directory}: {_reason(error)}; {kept}"
        )


def _handlers() -> ocp.handlers.CheckpointHandlerRegistry:
    """Orbax's handlers of pytrees and JSON. Weights hardly compress: trying to made a save take four times as long."""
    registry = ocp.handlers.DefaultCheckpointHandlerRegistry()
    pytrees, json_records = ocp.PyTreeCheckpointHandler(use_compression=False), ocp.JsonCheckpointHandler()
    for args in (ocp.args.PyTreeSave, ocp.args.PyTreeRestore):
        registry.add(None, args, pytrees)
    for args in (ocp.args.JsonSave, ocp.args.JsonRestore):
        registry.add(None, args, json_records)
    return registry


def _checked_json(record: dict[str, Any]) -> dict[str, Any]:
    try:
        return json.loads(json.dumps(record, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the checkpoint's record must be strict JSON: {error}") from error


def _writable(leaf: Any) -> Any:
    """A typed key as its data (its type is in the manifest), a Python number as an array."""
    if not isinstance(leaf, jax.Array):
        return np.asarray(leaf)  # orbax copies host arrays before save returns
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _wanted(manifest: trees.Manifest, template: Any) -> dict[trees.Path, Any]:
    """The template's leaves by path; stand-ins for what was saved if there is no template."""
    if template is not None:
        return trees.leaves_by_path(template)
    return {tuple(path.split("/")): np.empty(0) for path in manifest}


def _request(leaves: dict[trees.Path, Any]) -> Any:
    restore_args = {path: _restore_args(leaf) for path, leaf in leaves.items()}
    return ocp.args.PyTreeRestore(restore_args=trees.to_nested(restore_args))


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _restore_args(leaf: Any) -> Any:
    """How orbax is to read a leaf: straight into the template's sharding, or as numpy where it has none."""
    if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) and leaf.sharding is not None and not _is_key(leaf):
        return ocp.ArrayRestoreArgs(sharding=leaf.sharding, global_shape=leaf.shape, dtype=leaf.dtype)
    return ocp.RestoreArgs(restore_type=np.ndarray)


def _placed(value: Any, leaf: Any) -> Any:
    """A value that was read, as the kind of thing that the template's leaf is."""
    if _is_key(leaf):
        impls: list[Any] = []
        jax.eval_shape(lambda key: impls.append(jax.random.key_impl(key)), leaf)  # abstract keys do not tell theirs
        key = jax.random.wrap_key_data(value, impl=impls[0])
        return key if leaf.sharding is None else jax.device_put(key, leaf.sharding)
    if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
        return jax.numpy.asarray(value)
    return value if isinstance(leaf, np.ndarray | np.generic) else value.item()


def _reason(error: Exception) -> str:
    """The first telling line of a third party's error, short enough for one line of ours."""
    text = str(error)
    if "No space left" in text or "ENOSPC" in text:
        return "no space left on the disk; free some, or save elsewhere with --output"
    lines = text.strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
