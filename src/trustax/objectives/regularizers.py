"""Terms added to the policy loss: they pull towards a policy, or spread it, whatever the advantage.

Each is a per-token loss, differentiable through ``log_pi`` (or the entropy), multiplied by its coefficient and
aggregated like the policy loss. ``on`` says which tokens pay it: ``"all"`` valid ones, or those ``"kept"`` by the mask.
"""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trustax.objectives.covariance import top_covariance
from trustax.objectives.ratio import Anchor
from trustax.objectives.term import Leaf, Term, number, outside, unknown
from trustax.objectives.view import TokenView, required
from trustax.ops.kl_estimators import check_kl_loss, k2, kl_loss
from trustax.types import pytree_dataclass, static_field

_NEEDS = {"reference": "log_ref", "anchor": "log_anchor"}
_SYMBOL = {"reference": "ρ", "behavior": "μ", "anchor": "α"}


def _log_probs_of(view: TokenView, reference: str) -> Float[Array, "*B T"]:
    if reference == "behavior":
        return view.log_mu
    name = _NEEDS[reference]
    return required({"log_ref": view.log_ref, "log_anchor": view.log_anchor}[name], name)


@pytree_dataclass
class Regularizer(Term):
    """Base: ``penalty(view) -> [B, T]``."""

    differentiable: ClassVar[frozenset[str]] = frozenset()

    coefficient: Leaf
    on: str = static_field(default="all")

    def own_problems(self) -> list[str]:
        found = outside(
            "a regulariser's coefficient", self.coefficient, 0.0, 1e12, "it must be finite and not negative"
        )
        return found + unknown("on", self.on, ("all", "kept")) + self.more_problems()

    def more_problems(self) -> list[str]:
        """Problems of the subclass's own fields."""
        return []

    @property
    def text(self) -> str:
        """The term, as the table writes it."""
        raise NotImplementedError

    def penalty(self, view: TokenView) -> Float[Array, "*B T"]:
        """The loss of each token, before the coefficient."""
        raise NotImplementedError

    def __call__(self, view: TokenView, keep: Bool[Array, "*B T"]) -> Float[Array, "*B T"]:
        paid = view.valid & keep if self.on == "kept" else view.valid
        penalty = self.penalty(view)
        return jnp.where(paid, jnp.asarray(self.coefficient, view.dtype) * penalty, jnp.zeros_like(penalty))


@pytree_dataclass
class KLPenalty(Regularizer):
    """KL to a reference, to μ, or to the anchor, in a form whose gradient is named (``ops.kl_estimators.kl_loss``).

    ``importance_weighted`` multiplies by sg[π/μ], because the tokens were drawn from μ.
    """

    estimator: str = static_field(default="k2")
    reference: str = static_field(default="reference")
    importance_weighted: bool = static_field(default=False)

    @property
    def own_needs(self) -> frozenset[str]:
        return frozenset({_NEEDS[self.reference]} if self.reference in _NEEDS else ())

    def more_problems(self) -> list[str]:
        found = unknown("reference", self.reference, tuple(_SYMBOL))
        try:
            check_kl_loss(self.estimator)
        except ValueError as error:
            found.append(str(error))
        return found

    @property
    def text(self) -> str:
        weighted = "r·" if self.importance_weighted else ""
        return f"{number(self.coefficient)}·{weighted}{self.estimator}(π, {_SYMBOL[self.reference]})"

    def penalty(self, view: TokenView) -> Float[Array, "*B T"]:
        log_ratio = view.log_pi - view.log_mu if self.importance_weighted else None
        log_ref = _log_probs_of(view, self.reference)
        return kl_loss(view.log_pi_grad, log_ref, estimator=self.estimator, log_ratio=log_ratio)


@pytree_dataclass
class SquaredLogRatio(Regularizer):
    """``l²``, l = log π − log anchor: gradient 2 l ∇log π, towards the anchor whatever the advantage."""

    anchor: Anchor = static_field(default="behavior")

    @property
    def own_needs(self) -> frozenset[str]:
        return frozenset({"log_anchor"} if self.anchor == "anchor" else ())

    @property
    def text(self) -> str:
        return f"{number(self.coefficient)}·log² r(π/{_SYMBOL[self.anchor]})"

    def penalty(self, view: TokenView) -> Float[Array, "*B T"]:
        return 2.0 * k2(view.log_pi_grad, _log_probs_of(view, self.anchor))


@pytree_dataclass
class EntropyBonus(Regularizer):
    """``−H(π)``: spreads the policy. The scorer must let a gradient through ``entropy``."""

    differentiable: ClassVar[frozenset[str]] = frozenset({"entropy"})

    @property
    def own_needs(self) -> frozenset[str]:
        return frozenset({"entropy"})

    @property
    def text(self) -> str:
        return f"−{number(self.coefficient)}·H(π)"

    def penalty(self, view: TokenView) -> Float[Array, "*B T"]:
        return -required(view.entropy, "entropy")


@pytree_dataclass
class LiftOfGoodTokens(Regularizer):
    """``−(N/N_B) 1[A ≥ 0, r ≤ τ] log r``: raises tokens of good answers whose ratio fell. SAPO (search), 2603.10069.

    N counts valid tokens, N_B those of rows with A ≥ 0 (A > 0 with ``strict``), so that the token mean of this term
    is the published mean over good rows. 0 where there is no good row.
    """

    batch_level: ClassVar[bool] = True

    tau: Leaf = 1.0
    anchor: Anchor = static_field(default="anchor")
    strict: bool = static_field(default=False)

    @property
    def own_needs(self) -> frozenset[str]:
        return frozenset({"log_anchor"} if self.anchor == "anchor" else ())

    def more_problems(self) -> list[str]:
        return outside("tau", self.tau, 0.0, 1e6, "it is a ratio; at most 1 keeps the term from being negative")

    @property
    def text(self) -> str:
        sign = ">" if self.strict else "≥"
        return f"−{number(self.coefficient)}·(N/N_B)·1[A {sign} 0, r ≤ {number(self.tau)}]·log r"

    def penalty(self, view: TokenView) -> Float[Array, "*B T"]:
        good = (view.advantages > 0 if self.strict else view.advantages >= 0) & view.valid
        log_anchor = _log_probs_of(view, self.anchor)
        fallen = good & (jnp.exp(view.log_pi - log_anchor) <= jnp.asarray(self.tau, view.dtype))
        count = jnp.maximum(jnp.sum(good), 1).astype(view.dtype)
        scale = jnp.sum(view.valid).astype(view.dtype) / count
        return jnp.where(fallen, -scale * (view.log_pi_grad - log_anchor), view.full(0.0))


@pytree_dataclass
class CovariancePenalty(Regularizer):
    """``l²/2`` on the share of tokens whose log-prob and advantage covary most. KL-Cov, arXiv 2505.22617."""

    batch_level: ClassVar[bool] = True

    share: Leaf = 2e-4
    anchor: Anchor = static_field(default="anchor")

    @property
    def own_needs(self) -> frozenset[str]:
        return frozenset({"log_anchor"} if self.anchor == "anchor" else ())

    def more_problems(self) -> list[str]:
        return outside("share", self.share, 0.0, 1.0, "it is a share of the batch's tokens")

    @property
    def text(self) -> str:
        return f"{number(self.coefficient)}·½ log² r on the top {number(self.share)} by covariance"

    def penalty(self, view: TokenView) -> Float[Array, "*B T"]:
        chosen = top_covariance(view, self.share, view.valid)
        value = k2(view.log_pi_grad, _log_probs_of(view, self.anchor))
        return jnp.where(chosen, value, jnp.zeros_like(value))


def unless_zero(regularizer: Any) -> tuple[Any, ...]:
    """The regulariser as a tuple; empty if its coefficient is the Python number 0, so that its needs vanish too."""
    coefficient = regularizer.coefficient
    return () if isinstance(coefficient, (int, float)) and coefficient == 0 else (regularizer,)
