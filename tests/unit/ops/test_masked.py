"""Masks are booleans: another array in a mask's place is refused, not multiplied with."""

import jax.numpy as jnp
import pytest

from trustax.ops import masked


@pytest.mark.parametrize("reduction", [masked.masked_sum, masked.masked_mean, masked.masked_max, masked.masked_whiten])
def test_advantages_in_the_place_of_a_mask_are_refused(reduction):
    with pytest.raises(ValueError, match="expected bool"):
        reduction(jnp.array([2.0, 4.0]), jnp.array([1.0, -1.0]))
