"""Checkpoints: complete or absent, and equal to what was saved."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from trustax.checkpoint import Checkpointer
from trustax.errors import CheckpointError

SRC = Path(__file__).parents[3] / "src"


def state(value: float = 1.0) -> dict:
    return {
        "params": {"w": jnp.full((3, 2), value), "b": [jnp.arange(2, dtype=jnp.bfloat16), jnp.asarray(7, jnp.int32)]},
        "buffer": {"tokens": np.arange(4, dtype=np.int32)},
    }


def assert_equal(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for mine, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(theirs))


def run_python(code: str, *args: object, **env: str) -> subprocess.CompletedProcess:
    """Run ``code`` in a process of its own; what kills a process or sets its limits must not touch ours."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        env={**os.environ, "PYTHONPATH": str(SRC), "JAX_PLATFORMS": "cpu", **env},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_every_item_and_the_record_come_back(tmp_path):
    arrays = {**state(), "key": jax.random.key(3), "optimizer": optax.adam(0.1).init({"w": jnp.ones(2)}), "none": {}}
    record = {"version": 4, "iterator": {"position": 3, "order": [1, 2]}, "note": None}
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(5, arrays, record)
        checkpointer.wait()
        restored, read = checkpointer.restore(5, jax.eval_shape(lambda: arrays))
        assert read == record == checkpointer.read_record(5)
    keys = restored.pop("key"), arrays.pop("key")
    np.testing.assert_array_equal(jax.random.key_data(keys[0]), jax.random.key_data(keys[1]))
    assert keys[0].dtype == keys[1].dtype
    assert_equal(restored, arrays)


class Pair(NamedTuple):
    left: Any
    right: Any


def test_without_a_template_numbers_come_back_as_numpy_in_plain_containers(tmp_path):
    pending = {"fates": [Pair(jnp.ones(2), (jnp.zeros(1),)), Pair(jnp.ones(2), None)], "empty": [], "nothing": {}}
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {**state(), "pending": pending, "one": np.float32(2), "none": None}, {})
        checkpointer.wait()
        restored, _ = checkpointer.restore(1, {"params": None, "pending": None, "one": None, "none": None})
    assert list(restored) == ["params", "pending", "one", "none"]  # items that are not named are not read
    assert isinstance(restored["params"]["w"], np.ndarray)
    assert restored["params"]["b"][0].dtype == jnp.bfloat16
    np.testing.assert_array_equal(restored["params"]["w"], np.ones((3, 2), np.float32))
    first, second = restored["pending"].pop("fates")
    np.testing.assert_array_equal(first["left"], np.ones(2))
    np.testing.assert_array_equal(first["right"][0], np.zeros(1))
    assert second["right"] is None
    assert restored["pending"] == {"empty": [], "nothing": {}}
    assert restored["one"] == np.float32(2) and restored["none"] is None


def test_resumed_adam_goes_on_where_it_stopped(tmp_path):
    optimizer, gradients = optax.adam(0.1), [1.0, -2.0, 0.5, 3.0]

    def advance(params: Any, moments: Any, gradients: list[float]) -> tuple[Any, Any]:
        for gradient in gradients:
            with jax.numpy_dtype_promotion("standard"):  # optax does not bear the strict one
                updates, moments = optimizer.update(jnp.asarray(gradient, jnp.float32), moments, params)
            params = optax.apply_updates(params, updates)
        return params, moments

    start = jnp.asarray(1.0, jnp.float32)
    unbroken, _ = advance(start, optimizer.init(start), gradients)
    params, moments = advance(start, optimizer.init(start), gradients[:2])
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(2, {"params": params, "optimizer": moments}, {"next": 2})
    with Checkpointer(tmp_path) as checkpointer:  # another process would do the same
        templates = {"params": start, "optimizer": optimizer.init(start)}
        restored, record = checkpointer.restore(2, templates)
    resumed, _ = advance(restored["params"], restored["optimizer"], gradients[record["next"] :])
    forgetful, _ = advance(restored["params"], optimizer.init(start), gradients[2:])
    assert resumed == unbroken  # bit for bit
    assert float(resumed) == pytest.approx(0.910870, abs=1e-6)
    assert float(forgetful) == pytest.approx(0.752200, abs=1e-6)


def test_old_steps_go_only_when_the_new_one_is_complete_and_also_after_a_restart(tmp_path):
    with Checkpointer(tmp_path, keep=2) as checkpointer:
        for step in (1, 2, 3):
            checkpointer.save(step, state(step), {})
        assert set(checkpointer.steps()) >= {1, 2}  # 3 may still be on its way
    assert Checkpointer(tmp_path).steps() == [2, 3]
    with Checkpointer(tmp_path, keep=1) as checkpointer:
        assert checkpointer.steps() == [2, 3]  # opening a folder changes nothing
        checkpointer.save(4, state(4), {})
    assert [path.name for path in tmp_path.iterdir()] == ["4"]


def test_step_numbers_are_ordered_as_numbers(tmp_path):
    with Checkpointer(tmp_path, keep=3) as checkpointer:
        for step in (9, 10, 100):
            checkpointer.save(step, state(), {})
    assert checkpointer.steps() == [9, 10, 100]
    assert checkpointer.latest_step() == 100


def test_a_step_saved_again_replaces_the_first_when_complete(tmp_path):
    with Checkpointer(tmp_path, keep=2) as checkpointer:
        checkpointer.save(1, state(1.0), {})
        for value in (2.0, 3.0):
            checkpointer.save(5, state(value), {"value": value})
            assert checkpointer.has(5)
        checkpointer.wait()
        assert checkpointer.steps() == [1, 5]  # one step, however often it was saved
        assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "5-1"]
        restored, record = checkpointer.restore(5, {"params": None})
    assert record == {"value": 3.0}
    np.testing.assert_array_equal(restored["params"]["w"], np.full((3, 2), 3.0, np.float32))


def test_folders_that_are_not_complete_steps_are_never_the_latest(tmp_path):
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, state(), {})
    for name in ("7.orbax-checkpoint-tmp-123", "0.deleting", "notes"):
        shutil.copytree(tmp_path / "1", tmp_path / name)
    (tmp_path / "8").write_text("a file, not a folder")
    checkpointer = Checkpointer(tmp_path)
    assert checkpointer.latest_step() == 1
    checkpointer.save(2, state(), {})
    checkpointer.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "1",
        "2",
        "8",
        "notes",
    ]  # leftovers swept, the rest kept


def test_the_caller_may_change_or_donate_the_arrays_after_save(tmp_path):
    host = np.ones(4, np.float32)
    device = jnp.arange(2_000_000, dtype=jnp.float32)
    before = np.array(device)
    increment = jax.jit(lambda x: x + 1.0, donate_argnums=0)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"host": host, "device": device}, {})
        host[:] = np.nan
        device = increment(increment(device))
        checkpointer.wait()
        restored, _ = checkpointer.restore(1, {"host": None, "device": None})
    np.testing.assert_array_equal(restored["host"], np.ones(4))
    np.testing.assert_array_equal(restored["device"], before)
    np.testing.assert_array_equal(np.asarray(device), before + 2)


def test_a_tree_that_does_not_fit_is_refused_with_every_difference(tmp_path):
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, state(), {})
        checkpointer.wait()
        template = {"params": {"w": jnp.ones((3, 4)), "c": jnp.ones(1), "b": [jnp.ones(2), jnp.asarray(7, jnp.int32)]}}
        with pytest.raises(CheckpointError) as caught:
            checkpointer.restore(1, {**template, "moments": None})
    text = str(caught.value)
    assert "params/w: float32[3, 2] in the checkpoint, float32[3, 4] in this run" in text
    assert "params/c: not in the checkpoint, float32[1] in this run" in text
    assert "params/b/0: bfloat16[2] in the checkpoint, float32[2] in this run" in text
    assert "moments: not in the checkpoint, which holds buffer, params" in text
    assert "\n" not in text


def test_an_unknown_format_version_says_so(tmp_path):
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, state(), {})
        checkpointer.wait()
        document = next((tmp_path / "1" / "record").glob("metadata"))
        document.write_text(json.dumps({**json.loads(document.read_text()), "format_version": 99}))
        with pytest.raises(CheckpointError, match="has format version 99; this trustax reads version 1"):
            checkpointer.restore(1, {"params": None})


def test_a_missing_step_names_those_that_exist(tmp_path):
    with Checkpointer(tmp_path / "none") as checkpointer:
        assert checkpointer.latest_step() is None
        with pytest.raises(CheckpointError, match="complete steps: none"):
            checkpointer.restore(3, {"params": None})


@pytest.mark.parametrize("damage", ["truncate", "remove"])
def test_a_damaged_step_is_named_with_the_one_before_it(tmp_path, damage):
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"params": {"w": jnp.arange(5000.0)}}, {})
        checkpointer.save(2, {"params": {"w": jnp.arange(5000.0)}}, {})
        checkpointer.wait()
        largest = max(
            (tmp_path / "2" / "params").rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else -1
        )
        if damage == "truncate":
            largest.write_bytes(largest.read_bytes()[: largest.stat().st_size // 2])
        else:
            largest.unlink()
        with pytest.raises(CheckpointError, match=r"2 is damaged.*resume from step 1"):
            checkpointer.restore(2, {"params": {"w": jnp.zeros(5000)}})
        restored, _ = checkpointer.restore(1, {"params": {"w": jnp.zeros(5000)}})
    np.testing.assert_array_equal(restored["params"]["w"], np.arange(5000.0))


@pytest.mark.parametrize("record", [{"loss": float("nan")}, {"path": Path("x")}], ids=["nan", "not json"])
def test_the_record_must_be_strict_json(tmp_path, record):
    with Checkpointer(tmp_path) as checkpointer, pytest.raises(ValueError, match="strict JSON"):
        checkpointer.save(1, state(), record)
    assert checkpointer.steps() == []


def test_ambiguous_paths_are_refused(tmp_path):
    with Checkpointer(tmp_path) as checkpointer, pytest.raises(ValueError, match="slash"):
        checkpointer.save(1, {"params": {"a/b": jnp.ones(1)}}, {})


def test_keep_and_names_are_checked(tmp_path):
    with pytest.raises(ValueError, match="keep is 0"):
        Checkpointer(tmp_path, keep=0)
    with Checkpointer(tmp_path) as checkpointer, pytest.raises(ValueError, match="'record'"):
        checkpointer.save(1, {"record": jnp.ones(1)}, {})


FULL_DISK = """
    import resource, sys
    import jax.numpy as jnp, numpy as np
    from trustax.checkpoint import Checkpointer
    from trustax.errors import CheckpointError
    checkpointer = Checkpointer(sys.argv[1], keep=1)
    small = {"params": {"w": jnp.ones(10)}, "buffer": {"x": jnp.ones(10)}}
    checkpointer.save(1, small, {}); checkpointer.wait()
    # A file may not grow beyond 100 kB: the write of 4 MB fails in the background, after its first part.
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    noise = np.random.default_rng(0).standard_normal(1_000_000).astype(np.float32)
    checkpointer.save(2, {"params": {"w": jnp.asarray(noise)}, "buffer": {"x": jnp.ones(10)}}, {})
    try:
        checkpointer.save(3, small, {})
    except CheckpointError as error:
        print("surfaced:", error)
    print(checkpointer.steps(), sorted(p.name for p in checkpointer.directory.iterdir()))
    print(checkpointer.restore(checkpointer.latest_step(), {"params": None})[0]["params"]["w"].sum())
    checkpointer.save(3, small, {}); checkpointer.close()
    print(checkpointer.steps())
"""


def test_a_write_that_fails_half_way_keeps_the_previous_step_and_surfaces_at_the_next_save(tmp_path):
    result = run_python(FULL_DISK, tmp_path)
    assert result.returncode == 0, result.stderr
    surfaced, left, value, after = result.stdout.splitlines()
    assert surfaced.startswith("surfaced: checkpoint of step 2 could not be written")
    assert "step 1 is kept" in surfaced
    assert left == "[1] ['1']"
    assert float(value) == 10.0
    assert after == "[3]"  # and the next one works, with keep=1 enforced


KILLED = """
    import os, sys
    import jax.numpy as jnp
    from etils import epath
    from trustax.checkpoint import Checkpointer
    checkpointer = Checkpointer(sys.argv[1], keep=1)
    checkpointer.save(1, {"params": {"w": jnp.ones(10)}, "buffer": {"x": jnp.ones(3)}}, {}); checkpointer.wait()
    posix = type(epath.Path(sys.argv[1]))
    posix.rename = lambda *_: os._exit(9)  # die when everything is written and nothing is renamed
    checkpointer.save(2, {"params": {"w": jnp.zeros(10)}, "buffer": {"x": jnp.ones(3)}}, {}); checkpointer.wait()
"""


def test_a_kill_between_write_and_rename_leaves_the_previous_step(tmp_path):
    assert run_python(KILLED, tmp_path).returncode == 9
    assert len(list(tmp_path.iterdir())) == 2  # step 1 and the unfinished one
    with Checkpointer(tmp_path, keep=1) as checkpointer:
        assert checkpointer.latest_step() == 1
        restored, _ = checkpointer.restore(1, {"params": None, "buffer": None})
        assert restored["params"]["w"].sum() == 10
        checkpointer.save(2, state(), {})
    assert [path.name for path in tmp_path.iterdir()] == ["2"]


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    checkpointer = Checkpointer(blocker / "checkpoints")
    with pytest.raises(CheckpointError, match=r"step 1 could not be written.*no earlier checkpoint"):
        checkpointer.save(1, state(), {})
        checkpointer.wait()


RESTORE_ELSEWHERE = """
    import sys
    import jax, jax.numpy as jnp, numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from trustax.checkpoint import Checkpointer
    devices, axis = int(sys.argv[2]), sys.argv[3]
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:devices]), (axis,)), PartitionSpec(axis))
    if sys.argv[4] == "save":
        with Checkpointer(sys.argv[1]) as checkpointer:
            checkpointer.save(1, {"x": jax.device_put(jnp.arange(8), sharding)}, {})
    else:
        with Checkpointer(sys.argv[1]) as checkpointer:
            template = jax.ShapeDtypeStruct((8,), jnp.int32, sharding=sharding)
            x = checkpointer.restore(1, {"x": template})[0]["x"]
            assert x.sharding == sharding, x.sharding
            np.testing.assert_array_equal(np.asarray(x), np.arange(8))
            if devices == 1:
                plain = checkpointer.restore(1, {"x": jax.ShapeDtypeStruct((8,), jnp.int32)})[0]["x"]
                np.testing.assert_array_equal(np.asarray(plain), np.arange(8))
"""


def test_restores_on_other_devices_and_meshes_with_the_target_sharding(tmp_path):
    def run(devices: int, axis: str, what: str, available: int) -> None:
        flags = f"--xla_force_host_platform_device_count={available}"
        result = run_python(RESTORE_ELSEWHERE, tmp_path, devices, axis, what, XLA_FLAGS=flags)
        assert result.returncode == 0, result.stderr

    run(4, "data", "save", available=4)
    run(2, "data", "restore", available=2)
    run(4, "model", "restore", available=4)  # the same devices under another name
    run(1, "data", "restore", available=1)
