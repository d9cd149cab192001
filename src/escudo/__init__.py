"""escudo: causal questions about private tables, answered without exposing anyone.

A privacy guarantee is a bound on a causal effect: intervening on one person's data point, do(Dᵢ = d) against
do(Dᵢ = d′), changes the probability of every output by at most a factor e^ε. Everything here either promises such a
bound (``mechanisms``, ``privacy``), computes it exactly (``causal``, ``effects``), measures it, or spends it well.

Names are loaded on first use, so that ``import escudo`` stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lazy_loader

if TYPE_CHECKING:
    from escudo import (
        asking,
        attacks,
        auditing,
        causal,
        discovery,
        effects,
        errors,
        learning,
        mechanisms,
        orientation,
        privacy,
        releasing,
        report,
        synthesis,
        table,
        utility,
    )
    from escudo.attacks import attack
    from escudo.auditing import audit
    from escudo.causal import SEM, CausalGraph
    from escudo.discovery import discover, effect_of
    from escudo.errors import BudgetExceededError, EscudoError
    from escudo.learning import learn_linked, learn_schema
    from escudo.orientation import direction, orient
    from escudo.privacy import Guarantee, Ledger, Plan, plan
    from escudo.releasing import release
    from escudo.synthesis import load, synthesize
    from escudo.table import LinkedSchema, PrivateTable, PrivateTables, Schema
    from escudo.utility import evaluate

    __version__: str
else:
    _attribute, _names, __all__ = lazy_loader.attach(
        __name__,
        submodules=[
            "asking", "attacks", "auditing", "causal", "discovery", "effects", "errors", "learning", "mechanisms",
            "orientation", "privacy", "releasing", "report", "synthesis", "table", "utility",
        ],
        submod_attrs={
            "attacks": ["attack"],
            "auditing": ["audit"],
            "causal": ["SEM", "CausalGraph"],
            "discovery": ["discover", "effect_of"],
            "errors": ["BudgetExceededError", "EscudoError"],
            "learning": ["learn_linked", "learn_schema"],
            "orientation": ["direction", "orient"],
            "privacy": ["Guarantee", "Ledger", "Plan", "plan"],
            "releasing": ["release"],
            "synthesis": ["load", "synthesize"],
            "table": ["LinkedSchema", "PrivateTable", "PrivateTables", "Schema"],
            "utility": ["evaluate"],
        },
    )  # fmt: skip

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version("escudo")
        return _attribute(name)

    def __dir__() -> list[str]:
        return [*_names(), "__version__"]
