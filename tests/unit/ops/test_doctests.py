"""The examples in the docstrings of ops are right, and every public function has one."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import trustax.ops

MODULES = [f"trustax.ops.{module.name}" for module in pkgutil.iter_modules(trustax.ops.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    result = doctest.testmod(module, report=True)
    assert result.failed == 0


@pytest.mark.parametrize("name", ["divergences", "directions", "certificate", "second_order", "support"])
def test_every_public_function_has_an_example(name):
    module = importlib.import_module(f"trustax.ops.{name}")
    public = {n: f for n, f in inspect.getmembers(module, inspect.isfunction) if not n.startswith("_")}
    own = {n: f for n, f in public.items() if f.__module__ == module.__name__ or n in getattr(module, "__all__", ())}
    assert own
    helpers = {"tail_bracket"}
    assert not [n for n, f in own.items() if n not in helpers and ">>>" not in (f.__doc__ or "")]
