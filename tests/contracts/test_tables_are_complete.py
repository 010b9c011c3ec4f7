"""A public member that is missing from its table fails here; so does a recipe without a source."""

import inspect
import pathlib
import pkgutil

import pytest

from trustax.objectives import ADVANTAGES, RECIPES, ObjectiveSpec, build, recipes, reference_page, reference_table
from trustax.ops import advantages

NAMES = [
    "pg_is",
    "ppo_clip",
    "grpo",
    "dapo",
    "dr_grpo",
    "gspo",
    "gmpo",
    "cispo",
    "aipo",
    "aspo",
    "luspo",
    "clip_cov",
    "kl_cov",
    "dro",
    "mini_rl",
    "tis",
    "mis",
    "icepop",
    "dppo_binary_tv",
    "dppo_binary_kl",
    "dppo_topk_tv",
    "dppo_topk_kl",
    "pdm_topk_kl",
    "pdm_topk_reverse_kl",
    "pdm_topk_tv",
    "pdm_certified",
    "drpo",
    "masked_drpo",
    "drpo_predictive",
    "spo",
    "ctpo",
    "minpro",
    "sapo_search",
    "sapo_soft",
    "cppo",
    "trm_max",
    "trm_avg",
    "opsm",
    "vaco",
    "sat",
    "vespo",
    "update_aware",
]


def _recipes_in_modules():
    found = set()
    for module in pkgutil.iter_modules(recipes.__path__):
        members = vars(__import__(f"{recipes.__name__}.{module.name}", fromlist=["x"]))
        found |= {
            name
            for name, member in members.items()
            if inspect.isfunction(member)
            and member.__module__ == f"{recipes.__name__}.{module.name}"
            and not name.startswith("_")
            and inspect.signature(member).return_annotation is ObjectiveSpec
        }
    return found


def test_every_recipe_is_in_the_table():
    assert _recipes_in_modules() == set(RECIPES) == set(NAMES)


@pytest.mark.parametrize("name", RECIPES)
def test_every_row_is_complete(name):
    spec = RECIPES[name]()
    assert spec.name == name
    assert spec.loss and spec.source
    assert "Source:" in inspect.getdoc(RECIPES[name])
    assert build(spec).advantage in ADVANTAGES
    assert all(isinstance(cell, str) for cell in spec.describe().values())


def test_every_outcome_estimator_is_in_its_table():
    estimators = {
        name
        for name, member in vars(advantages).items()
        if inspect.isfunction(member)
        and member.__module__ == advantages.__name__
        and not name.startswith("_")
        and name not in ("gae", "dynamic_sampling_keep")
    }
    assert estimators == set(ADVANTAGES)


def test_the_committed_page_is_what_the_code_says():
    page = pathlib.Path(__file__).parents[2] / "docs" / "recipes.md"
    assert page.read_text(encoding="utf-8") == reference_page(), "run scripts/docs/recipes"


def test_the_page_has_a_row_for_every_recipe_with_its_defaults():
    rows = {row["recipe"]: row for row in reference_table()}
    assert list(rows) == list(RECIPES)
    assert "delta = 0.15" in rows["pdm_topk_kl"]["defaults"] and "support" in rows["pdm_topk_kl"]["needs"]
    assert rows["grpo"]["aggregation"] == "sequence_mean_of_token_means"
    assert rows["sat"]["batch statistics"] == "yes"
