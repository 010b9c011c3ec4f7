"""The recipes that the fast tests go through: one of each structure. `--all` goes through the whole table."""

from collections.abc import Iterable

import pytest

FAST = frozenset(
    [
        "pg_is",
        "ppo_clip",
        "gspo",
        "cispo",
        "icepop",
        "kl_cov",
        "dppo_binary_tv",
        "dppo_topk_kl",
        "pdm_topk_kl",
        "pdm_certified",
        "drpo",
        "minpro",
        "sapo_search",
        "vaco",
    ]
)


def recipes(names: Iterable[str]) -> list:
    """``names`` as parameters; those without a structure of their own are marked slow."""
    return [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in names]
