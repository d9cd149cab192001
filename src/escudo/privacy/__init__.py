"""Privacy: what a guarantee is, what was done to a table, and what that costs in all.

Read in this order:

* ``_relations``: which tables are neighbours (``Relation``) and whose data differs (``Unit``);
* ``_event``: what all facts that are recorded share; ``_simple_events``, ``_sampled_gaussian``,
  ``_structured_events``: their kinds, from ``LaplaceEvent`` to ``ParallelEvent``; ``_events``: all of them;
* ``_conversions``: from one privacy notion to another, with proofs;
* ``_curves``: what one event costs, one pure function per kind;
* ``_composition``, ``_pld``, ``_totals``: what many cost together (``RunningTotal``);
* ``_guarantee``, ``_accounting``: the bound that people read (``Guarantee``, ``guarantee_of``);
* ``_filter``: the cap that holds where releases decide what is asked next; ``_tally``: one account's arithmetic;
* ``_account``, ``_ledger``: who has spent what (``Account``, ``Ledger``); ``_plan``: the budget tree beforehand;
  ``_plan_delta``: how large its δ may be.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from escudo.privacy._accounting import RunningTotal, guarantee_of, within
from escudo.privacy._calibration import calibrate
from escudo.privacy._conversions import (
    approximate_for_group,
    gdp_for_group,
    gdp_to_delta,
    gdp_to_epsilon,
    pure_for_group,
    pure_to_gdp,
    pure_to_zcdp,
    zcdp_for_group,
    zcdp_to_delta,
    zcdp_to_epsilon,
)
from escudo.privacy._events import (
    ApproximateEvent,
    ComposedEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    GDPEvent,
    LaplaceEvent,
    ParallelEvent,
    PureEvent,
    RepeatedEvent,
    SampledGaussianEvent,
    ZCDPEvent,
)
from escudo.privacy._guarantee import Guarantee
from escudo.privacy._relations import Budget, NeighbourOptions, Neighbours, Relation, Unit, parse_relation, parse_unit

if TYPE_CHECKING:
    from escudo.privacy._account import Account, MarkingAccount, MemoryAccount, Receipt, marked_if_failed
    from escudo.privacy._ledger import AccountInfo, Ledger, LedgerAccount, LedgerRow, Verification
    from escudo.privacy._ledger_keeping import as_lines as as_lines
    from escudo.privacy._ledger_keeping import verify_lines as verify_lines
    from escudo.privacy._plan import Plan, charging, plan, plannable
    from escudo.privacy._plan_delta import delta_warning
    from escudo.privacy._plan_delta import usual_delta as usual_delta
    from escudo.privacy._plan_text import cost_text as cost_text
    from escudo.privacy._tally import Spending as Spending
    from escudo.privacy._tally import percent_up as percent_up
    from escudo.privacy._tally import shown_down as shown_down
    from escudo.privacy._tally import shown_up as shown_up

__all__ = [
    "Account",
    "AccountInfo",
    "ApproximateEvent",
    "Budget",
    "ComposedEvent",
    "Event",
    "ExponentialEvent",
    "GDPEvent",
    "GaussianEvent",
    "Guarantee",
    "LaplaceEvent",
    "Ledger",
    "LedgerAccount",
    "LedgerRow",
    "MarkingAccount",
    "MemoryAccount",
    "NeighbourOptions",
    "Neighbours",
    "ParallelEvent",
    "Plan",
    "PureEvent",
    "Receipt",
    "Relation",
    "RepeatedEvent",
    "RunningTotal",
    "SampledGaussianEvent",
    "Unit",
    "Verification",
    "ZCDPEvent",
    "approximate_for_group",
    "calibrate",
    "charging",
    "delta_warning",
    "gdp_for_group",
    "gdp_to_delta",
    "gdp_to_epsilon",
    "guarantee_of",
    "marked_if_failed",
    "parse_relation",
    "parse_unit",
    "plan",
    "plannable",
    "pure_for_group",
    "pure_to_gdp",
    "pure_to_zcdp",
    "within",
    "zcdp_for_group",
    "zcdp_to_delta",
    "zcdp_to_epsilon",
]

# Loaded on first use: the ledger needs SQLAlchemy, which is slow to import.
_LATER = {
    "Account": "_account",
    "MarkingAccount": "_account",
    "MemoryAccount": "_account",
    "Receipt": "_account",
    "marked_if_failed": "_account",
    "AccountInfo": "_ledger",
    "Ledger": "_ledger",
    "LedgerAccount": "_ledger",
    "LedgerRow": "_ledger",
    "Verification": "_ledger",
    "Plan": "_plan",
    "charging": "_plan",
    "plan": "_plan",
    "plannable": "_plan",
    "delta_warning": "_plan_delta",
    # for other packages of escudo: how costs and ledgers are told
    "as_lines": "_ledger_keeping",
    "cost_text": "_plan_text",
    "percent_up": "_tally",
    "shown_down": "_tally",
    "shown_up": "_tally",
    "Spending": "_tally",
    "usual_delta": "_plan_delta",
    "verify_lines": "_ledger_keeping",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        value = getattr(import_module(f"escudo.privacy.{_LATER[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'escudo.privacy' has no attribute {name!r}")
