"""What a mesh and its rules refuse, and where things come to lie."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, PartitionSpec

from trustax import policies
from trustax.parallel import MeshConfig, batch_sharding, make_mesh, parameter_shardings, shardings_like
from trustax.training.placement import check_groups

AXES = ("data", "fsdp", "expert", "sequence", "tensor")


def mesh(**sizes: int) -> AbstractMesh:
    return AbstractMesh(tuple(sizes.get(axis, 1) for axis in AXES), AXES)


def struct(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def test_a_mesh_names_both_numbers_when_devices_are_missing() -> None:
    with pytest.raises(ValueError, match=r"fsdp 4 × tensor 2 = 8 devices, but there are 1"):
        make_mesh(MeshConfig(fsdp=4, tensor=2), jax.devices()[:1])
    with pytest.raises(ValueError, match="fsdp must be at least 1, got 0"):
        MeshConfig(fsdp=0)


def test_every_bad_parameter_is_told_at_once() -> None:
    axes = {"a": PartitionSpec("embed", "mlp"), "b": PartitionSpec("colour"), "c": PartitionSpec("vocab", "embed")}
    shapes = {"a": struct(6, 8), "b": struct(4), "c": struct(8, 8)}
    with pytest.raises(ValueError) as caught:
        parameter_shardings(mesh(fsdp=4), axes, shapes)
    assert "a: axis 'embed' of 6 does not divide into 4 parts (fsdp)" in str(caught.value)
    assert "b: no rule for its axis 'colour'" in str(caught.value)
    assert "c:" not in str(caught.value)


def test_rows_that_do_not_divide_are_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match="12 rows do not divide into the 8 parts of the mesh"):
        batch_sharding(mesh(data=2, fsdp=4), (12, 3))


def test_rules_cover_every_parameter_and_the_optimizer_follows() -> None:
    policy = policies.build(policies.tiny_config(32, hidden_size=32, num_layers=2, num_heads=8, mlp_size=64))
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    found = parameter_shardings(mesh(fsdp=4, tensor=2), policy.logical_axes(), shapes)
    specs = {str(path): sharding.spec for path, sharding in jax.tree_util.tree_flatten_with_path(found)[0]}
    assert len(specs) == len(jax.tree.leaves(shapes))
    whole = [path for path, spec in specs.items() if all(axis is None for axis in spec)]
    assert len(whole) == 2 and all("query_norm" in path or "key_norm" in path for path in whole)  # one head's channels
    moments = {"count": struct(), "mu": shapes, "nu": shapes}
    like = shardings_like(moments, shapes, found, mesh(fsdp=4, tensor=2))
    assert jax.tree.leaves(like["mu"]) == jax.tree.leaves(found)
    assert like["count"].spec == PartitionSpec()


def test_rows_of_a_prompt_must_stand_together_on_a_mesh() -> None:
    check_groups(np.array([0, 0, 1, 1]), 2)
    for index in ([0, 1, 0, 1], [0, 0, 0, 1], [0, 0, 1]):
        with pytest.raises(ValueError, match="prompt by prompt"):
            check_groups(np.array(index), 2)
