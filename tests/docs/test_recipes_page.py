"""docs/recipes.md is what the code says: change a recipe and this fails until the page is made again."""

import pytest

from trustax.objectives import RECIPES


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("scripts/docs/recipes")


def test_the_page_is_what_the_code_says(script):
    same = script.PAGE.read_text() == script.page()  # not compared in the assert: the difference would be pages long
    assert same, f"docs/recipes.md is not what the code says: run `{script.COMMAND}` and commit the page"


def test_every_recipe_has_a_row_and_a_section(script):
    page = script.page()
    for name in RECIPES:
        assert f"| [`{name}`](#{name}) |" in page
        assert page.count(f"\n### {name}\n") == 1


def test_a_changed_default_changes_the_page(script, monkeypatch):
    before = script.page()
    original = RECIPES["drpo"]

    def drpo(*, delta: float = 0.3, horizon: float = 8192.0):
        return original(delta=delta, horizon=horizon)

    drpo.__module__, drpo.__doc__ = original.__module__, original.__doc__
    monkeypatch.setitem(RECIPES, "drpo", drpo)
    assert script.page() != before
    assert "delta = 0.3, horizon = 8192" in script.page()
