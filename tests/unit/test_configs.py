"""Every config file of the repository loads, and names a recipe that this trainer can serve."""

from pathlib import Path

import pytest

from trustax.experiment.assemble import build_objective
from trustax.experiment.config_files import from_json, load_config, to_json

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.py"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_config_file_is_an_experiment(path: Path) -> None:
    config = load_config(path)
    assert build_objective(config).name == config.objective.recipe
    assert from_json(to_json(config)) == config
