"""Fixtures of off-policy evaluation: float64, and the toys."""

import jax
import pytest

from trustax.testing import walks


@pytest.fixture
def x64():
    """Float64 for the length of one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def tree() -> walks.Tree:
    """Three states, two tokens, six steps: small enough to list every completion."""
    return walks.random_tree(12, states=3, vocab=2, length=6, distance=1.0)
