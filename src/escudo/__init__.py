"""escudo: causal questions about private tables, answered without exposing anyone.

A privacy guarantee is a bound on a causal effect: intervening on one person's data point, do(Dᵢ = d) against
do(Dᵢ = d′), changes the probability of every output by at most a factor e^ε. Everything here either promises such a
bound (``mechanisms``, ``privacy``), computes it exactly (``causal``, ``effects``), measures it, or spends it well.

Names are loaded on first use, so that ``import escudo`` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from escudo.attacks import attack as attack
    from escudo.auditing import audit as audit
    from escudo.causal import SEM as SEM
    from escudo.causal import CausalGraph as CausalGraph
    from escudo.discovery import discover as discover
    from escudo.discovery import effect_of as effect_of
    from escudo.errors import BudgetExceededError as BudgetExceededError
    from escudo.errors import EscudoError as EscudoError
    from escudo.learning import learn_schema as learn_schema
    from escudo.orientation import direction as direction
    from escudo.orientation import orient as orient
    from escudo.privacy import Guarantee as Guarantee
    from escudo.privacy import Ledger as Ledger
    from escudo.privacy import Plan as Plan
    from escudo.privacy import plan as plan
    from escudo.synthesis import load as load
    from escudo.synthesis import synthesize as synthesize
    from escudo.table import PrivateTable as PrivateTable
    from escudo.table import Schema as Schema
    from escudo.utility import evaluate as evaluate

_HOME = {
    "BudgetExceededError": "escudo.errors",
    "CausalGraph": "escudo.causal",
    "EscudoError": "escudo.errors",
    "Guarantee": "escudo.privacy",
    "Ledger": "escudo.privacy",
    "Plan": "escudo.privacy",
    "PrivateTable": "escudo.table",
    "SEM": "escudo.causal",
    "Schema": "escudo.table",
    "attack": "escudo.attacks",
    "audit": "escudo.auditing",
    "direction": "escudo.orientation",
    "discover": "escudo.discovery",
    "effect_of": "escudo.discovery",
    "evaluate": "escudo.utility",
    "learn_schema": "escudo.learning",
    "load": "escudo.synthesis",
    "orient": "escudo.orientation",
    "plan": "escudo.privacy",
    "synthesize": "escudo.synthesis",
}
_PACKAGES = (
    "asking",
    "attacks",
    "auditing",
    "causal",
    "discovery",
    "effects",
    "errors",
    "learning",
    "mechanisms",
    "orientation",
    "privacy",
    "report",
    "synthesis",
    "table",
    "utility",
)

__all__ = sorted([*_HOME, *_PACKAGES])


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    if name in _PACKAGES:
        return import_module(f"escudo.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version("escudo")
    raise AttributeError(f"module 'escudo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
