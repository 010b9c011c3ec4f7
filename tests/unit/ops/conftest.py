"""Fixtures of the mathematics: float64, and the golden tokens."""

import json
import pathlib

import jax
import pytest

GOLDEN = json.loads((pathlib.Path(__file__).parents[2] / "golden" / "directions.json").read_text())


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: minutes, not seconds; the full-size form of a test that has a fast one")


@pytest.fixture
def x64():
    """Float64 for the length of one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=GOLDEN, ids=[case["name"] for case in GOLDEN])
def golden(request):
    """One token with known numbers, worked out in float64."""
    return request.param
