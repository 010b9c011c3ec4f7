"""The study of experiments/flow: its settings can be built, its records are of what it says now, and it runs."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from trustax.flow import RECIPES
from trustax.typed import jsonable

FOLDER = pathlib.Path(__file__).parents[3] / "experiments" / "flow"


@pytest.fixture(scope="module")
def studies():
    spec = importlib.util.spec_from_file_location("flow_studies", FOLDER / "studies.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module.STUDIES


@pytest.mark.parametrize("name", ["ring", "glyphs"])
def test_every_objective_is_studied_on_enough_seeds(studies, name):
    study = studies[name]
    assert {setting.recipe for setting in study.settings} == set(RECIPES)
    assert study.seeds >= 5
    for setting in (*study.settings, *study.small().settings):
        RECIPES[setting.recipe](**{number: np.array(values) for number, values in setting.numbers.items()})


@pytest.mark.parametrize("name", ["ring", "glyphs"])
def test_the_record_is_of_the_study_as_it_is(studies, name):
    """Whoever changes a study runs ``python experiments/flow/run`` again."""
    study = studies[name]
    record = json.loads((FOLDER / "records" / f"{name}.json").read_text())
    assert record["study"] == jsonable(study)
    done = {(run["label"], run["updates"]) for run in record["runs"]}
    wanted = {(setting.label or setting.recipe, study.many_updates) for setting in study.settings}
    once = [setting for setting in study.settings if study.once is None or setting.recipe in study.once]
    assert done == wanted | {(setting.label or setting.recipe, 1) for setting in once}
    for run in record["runs"]:
        assert len(run["reward"]) == study.seeds


@pytest.mark.slow
def test_it_runs(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(FOLDER.parents[1] / "src")}
    command = [sys.executable, str(FOLDER / "run"), "ring", "--small", "--out", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "ring.json").read_text())
    assert {run["recipe"] for run in record["runs"]} == set(RECIPES)
