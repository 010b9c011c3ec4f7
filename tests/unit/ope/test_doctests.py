"""The examples in the docstrings of ope are right, and every public function has one."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import trustax.ope

MODULES = [f"trustax.ope.{module.name}" for module in pkgutil.iter_modules(trustax.ope.__path__)]
WITHOUT = {"logged_problems", "require_overlap", "network_value"}
"""Checks, and a fit whose numbers nobody can verify by hand."""


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    result = doctest.testmod(module, report=True)
    assert result.failed == 0
    functions = {n: f for n, f in inspect.getmembers(module, inspect.isfunction) if f.__module__ == name}
    public = {n for n, f in functions.items() if not n.startswith("_") and ">>>" not in (f.__doc__ or "")}
    assert public <= WITHOUT
