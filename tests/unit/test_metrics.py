"""Metrics merge by their own weights, whatever the parts."""

import json

import jax.numpy as jnp
import pytest

from trustax.types import Metric, merge_metrics


def metric(total: float, weight: float, reduction: str = "mean") -> Metric:
    return Metric(jnp.float32(total), jnp.float32(weight), reduction)  # type: ignore[arg-type]


def test_fractions_of_unequal_parts() -> None:
    """D02: three tokens that are all masked and one that is kept make 0.75, not the mean of the parts."""
    merged = merge_metrics([{"masked": metric(3, 3)}, {"masked": metric(0, 1)}])
    assert float(merged["masked"]) == 0.75


def test_a_category_without_a_sample_is_absent_and_no_nan() -> None:
    """D02: 0/0 turned plots into spikes."""
    merged = merge_metrics([{"rare": metric(0, 0)}, {"rare": metric(0, 0)}])
    assert float(merged["rare"].weight) == 0
    logged = {name: float(one) for name, one in merged.items() if float(one.weight) > 0}
    assert json.loads(json.dumps(logged, allow_nan=False)) == {}
    seen = merge_metrics([{"rare": metric(0, 0)}, {"rare": metric(2, 4)}, {}])
    assert float(seen["rare"]) == 0.5


@pytest.mark.parametrize(("reduction", "expected"), [("max", 5.0), ("min", -2.0), ("sum", 3.0)])
def test_extremes_and_sums_are_reduced_as_such(reduction: str, expected: float) -> None:
    parts = [metric(5, 1, reduction), metric(-2, 3, reduction), metric(9, 0, reduction)]
    assert float(merge_metrics([{"x": part} for part in parts])["x"]) == expected
