"""Scripts as modules: they have no .py, so that they are commands."""

import importlib.machinery
import importlib.util
import pathlib
import types
from collections.abc import Callable

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def load_script() -> Callable[[str], types.ModuleType]:
    def load(path: str) -> types.ModuleType:
        loader = importlib.machinery.SourceFileLoader(path.replace("/", "_"), str(ROOT / path))
        spec = importlib.util.spec_from_loader(loader.name, loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        return module

    return load
