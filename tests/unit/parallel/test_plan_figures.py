"""Figures of compiled programs, on programs small enough to count by hand."""

import jax
import jax.numpy as jnp
import pytest

from trustax.parallel.collectives import collectives
from trustax.parallel.flops import count_flops
from trustax.parallel.topology import topology_devices

ENTRY = """HloModule m

%body (p: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %x = f32[4,8] get-tuple-element(%p), index=1
  %g = f32[16,8]{1,0} all-gather(f32[4,8] %x), dimensions={0}
  ROOT %t = (s32[], f32[4,8]) tuple(%i, %x)
}

%cond (p: (s32[], f32[4,8])) -> pred[] {
  ROOT %c = pred[] compare(%i, %n), direction=LT
}

%bounded (p: (s32[], f32[4,8])) -> pred[] {
  %n = s32[]{:T(128)} constant(3)
  ROOT %c = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (a: f32[4,8]) -> f32[4,8] {
  %w = (s32[], f32[4,8]) while(%s), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  %v = (s32[], f32[4,8]) while(%s), condition=%bounded, body=%body
  %u = (s32[], f32[4,8]) while(%s), condition=%cond, body=%body
  %r = (bf16[2,2], bf16[8,2]) all-reduce-start(bf16[2,2] %a)
  ROOT %o = f32[4,8] get-tuple-element(%w), index=1
}
"""


def test_collectives_inside_loops_count_as_often_as_they_run() -> None:
    found = collectives(ENTRY, while_trips=7)
    assert found == {"all-gather": (5 + 3 + 7, 15 * 16 * 8 * 4.0), "all-reduce": (1, 8 * 2 * 2.0)}


def test_flops_of_products_and_loops() -> None:
    a, b = jnp.zeros((2, 3, 5)), jnp.zeros((2, 5, 7))
    product = 2.0 * 2 * 3 * 7 * 5
    assert count_flops(jax.make_jaxpr(jnp.matmul)(a, b).jaxpr) == product

    def scanned(a, b):
        return jax.lax.scan(lambda c, _: (c + 1, jnp.matmul(a + c, b)), 0.0, None, length=4)

    assert count_flops(jax.make_jaxpr(scanned)(a, b).jaxpr) == 4 * product

    def looped(a, b):
        return jax.lax.while_loop(lambda c: jnp.sum(c) < 9, lambda c: c + jnp.sum(jnp.matmul(a, b)), jnp.zeros(()))

    assert count_flops(jax.make_jaxpr(looped)(a, b).jaxpr, while_trips=3) == 3 * product
    sizes = jnp.array([1, 2], jnp.int32)
    ragged = jax.make_jaxpr(jax.lax.ragged_dot)(jnp.zeros((3, 5)), jnp.zeros((2, 5, 7)), sizes)
    assert count_flops(ragged.jaxpr) == 2.0 * 3 * 5 * 7


def test_recomputation_counts() -> None:
    def loss(w, x):
        return jnp.sum(jax.checkpoint(lambda x: jnp.tanh(jnp.tanh(x @ w) @ w))(x))

    w, x = jnp.zeros((4, 4)), jnp.zeros((4, 4))
    one = 2.0 * 4**3
    assert count_flops(jax.make_jaxpr(loss)(w, x).jaxpr) == 2 * one
    assert count_flops(jax.make_jaxpr(jax.grad(loss))(w, x).jaxpr) >= 6 * one


@pytest.mark.parametrize("name", ["v5e", "v9z:4x4", "v5e:4x4x4x4", "cpu:2x2", "cpu:100000"])
def test_an_unknown_topology_is_one_line_with_what_is_known(name: str) -> None:
    with pytest.raises(ValueError, match="topology") as caught:
        topology_devices(name)
    assert "\n" not in str(caught.value)
