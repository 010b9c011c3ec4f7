"""Weights read by slices to eight devices are the weights read to one."""

from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from trustax import policies
from trustax.policies import assemble

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "policies"


@pytest.mark.parametrize("name", [pytest.param("qwen2", marks=pytest.mark.slow), "qwen3_moe"])
def test_sharded_equals_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "BLOCK_ELEMENTS", 100)  # tables are read in parts too
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("fsdp", "tensor"))
    rules = {"embed": "fsdp", "vocab": "tensor", "mlp": "tensor", "heads": "tensor", "layers": None}

    def shardings(config: policies.ArchitectureConfig):
        axes = policies.build(config).logical_axes()
        return jax.tree.map(
            lambda spec: NamedSharding(mesh, PartitionSpec(*(rules.get(axis) for axis in spec))),
            axes,
            is_leaf=lambda node: isinstance(node, PartitionSpec),
        )

    whole, sharded = policies.load(GOLDEN / name), policies.load(GOLDEN / name, shardings=shardings)
    wanted = shardings(whole.config)
    for mine, theirs, sharding in zip(
        jax.tree.leaves(sharded.params), jax.tree.leaves(whole.params), jax.tree.leaves(wanted), strict=True
    ):
        assert mine.sharding == sharding
        np.testing.assert_array_equal(mine, theirs)
    embedding = sharded.params["embedding"]
    assert {shard.data.shape for shard in embedding.addressable_shards} == {(12, 16)}
