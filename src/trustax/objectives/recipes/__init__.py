"""Every published method as one row: ``RECIPES[name](**hyperparameters) -> ObjectiveSpec``."""

from collections.abc import Callable

from trustax.objectives.recipes.correction import icepop, mini_rl, mis, tis
from trustax.objectives.recipes.divergence_mask import (
    dppo_binary_kl,
    dppo_binary_tv,
    dppo_topk_kl,
    dppo_topk_tv,
    pdm_certified,
    pdm_topk_kl,
    pdm_topk_reverse_kl,
    pdm_topk_tv,
    update_aware,
)
from trustax.objectives.recipes.prefix import cppo, ctpo, minpro
from trustax.objectives.recipes.ratio_clip import (
    aipo,
    aspo,
    cispo,
    clip_cov,
    dapo,
    dr_grpo,
    gmpo,
    grpo,
    gspo,
    kl_cov,
    luspo,
    pg_is,
    ppo_clip,
)
from trustax.objectives.recipes.regularized import (
    dro,
    drpo,
    drpo_predictive,
    masked_drpo,
    sapo_search,
    sapo_soft,
    sat,
    spo,
)
from trustax.objectives.recipes.sequence import opsm, trm_avg, trm_max, vaco, vespo
from trustax.objectives.spec import ObjectiveSpec

Recipe = Callable[..., ObjectiveSpec]

_ROWS: tuple[Recipe, ...] = (
    pg_is,
    ppo_clip,
    grpo,
    dapo,
    dr_grpo,
    gspo,
    gmpo,
    cispo,
    aipo,
    aspo,
    luspo,
    clip_cov,
    kl_cov,
    dro,
    mini_rl,
    tis,
    mis,
    icepop,
    dppo_binary_tv,
    dppo_binary_kl,
    dppo_topk_tv,
    dppo_topk_kl,
    pdm_topk_kl,
    pdm_topk_reverse_kl,
    pdm_topk_tv,
    pdm_certified,
    update_aware,
    drpo,
    masked_drpo,
    drpo_predictive,
    spo,
    ctpo,
    minpro,
    sapo_search,
    sapo_soft,
    cppo,
    trm_max,
    trm_avg,
    opsm,
    vaco,
    sat,
    vespo,
)

RECIPES: dict[str, Recipe] = {recipe.__name__: recipe for recipe in _ROWS}
"""Name → recipe. The one table: configs, the command line and the reference page read it."""
