"""The examples in the docstrings of the flow's mathematics are right."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["schedule", "samplers", "gaussian", "objectives", "rewards"])
def test_examples(name):
    result = doctest.testmod(importlib.import_module(f"trustax.flow.{name}"), report=True)
    assert result.attempted > 0
    assert result.failed == 0
