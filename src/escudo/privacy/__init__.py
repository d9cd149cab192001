"""Privacy: what a guarantee is, what was done to a table, and what that costs in all.

Read in this order:

* ``_relations``: which tables are neighbours (``Neighbours``), and what a question may cost (``Budget``);
* ``_events``: the facts that are recorded, from ``LaplaceEvent`` to ``ParallelEvent``;
* ``_conversions``: from one privacy notion to another, with proofs;
* ``_curves``: what one event costs, one pure function per kind, and privacy loss distributions;
* ``_totals``: what many cost together (``RunningTotal``);
* ``_guarantee``: the bound that people read (``Guarantee``, ``guarantee_of``), and the least noise that keeps one;
* ``_filter``: the cap that holds where releases decide what is asked next; ``_tally``: one account's arithmetic;
* ``_account``: who has spent what (``Account``); ``_trainings``: which checkpoint may go on;
* ``_ledger``: accounts that are kept: ``_ledger_chain`` the rows and what follows from them, ``_ledger_store`` the
  databases, ``_ledger_witness`` the copy beside them, ``_ledger_book`` reading, writing and checking;
* ``_plan``: the budget tree beforehand, and how large its δ may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

from escudo.privacy._conversions import (
    approximate_for_group,
    gdp_for_group,
    gdp_to_delta,
    gdp_to_epsilon,
    pure_for_group,
    pure_to_gdp,
    pure_to_zcdp,
    renyi_to_delta,
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
from escudo.privacy._guarantee import Guarantee, calibrate, guarantee_of
from escudo.privacy._relations import Budget, NeighbourOptions, Neighbours, Relation, Unit, parse_relation, parse_unit
from escudo.privacy._totals import RunningTotal, within

if TYPE_CHECKING:
    from escudo.privacy._account import Account as Account
    from escudo.privacy._account import MarkingAccount as MarkingAccount
    from escudo.privacy._account import MemoryAccount as MemoryAccount
    from escudo.privacy._account import Receipt as Receipt
    from escudo.privacy._account import marked_if_failed as marked_if_failed
    from escudo.privacy._ledger import Ledger as Ledger
    from escudo.privacy._ledger_book import AccountInfo as AccountInfo
    from escudo.privacy._ledger_book import LedgerAccount as LedgerAccount
    from escudo.privacy._ledger_book import Verification as Verification
    from escudo.privacy._ledger_book import as_lines as as_lines
    from escudo.privacy._ledger_book import verify_lines as verify_lines
    from escudo.privacy._ledger_chain import LedgerRow as LedgerRow
    from escudo.privacy._plan import Passes as Passes
    from escudo.privacy._plan import Plan as Plan
    from escudo.privacy._plan import charging as charging
    from escudo.privacy._plan import cost_text as cost_text
    from escudo.privacy._plan import delta_warning as delta_warning
    from escudo.privacy._plan import plan as plan
    from escudo.privacy._plan import plannable as plannable
    from escudo.privacy._plan import usual_delta as usual_delta
    from escudo.privacy._tally import Spending as Spending
    from escudo.privacy._tally import percent_up as percent_up
    from escudo.privacy._tally import shown_down as shown_down
    from escudo.privacy._tally import shown_up as shown_up

# Loaded on first use: the ledger needs SQLAlchemy, which is slow to import.
__getattr__, _, _later = lazy_loader.attach(
    __name__,
    submod_attrs={
        "_account": ["Account", "MarkingAccount", "MemoryAccount", "Receipt", "marked_if_failed"],
        "_ledger": ["Ledger"],
        "_ledger_book": ["AccountInfo", "LedgerAccount", "Verification", "as_lines", "verify_lines"],
        "_ledger_chain": ["LedgerRow"],
        "_plan": ["Passes", "Plan", "charging", "cost_text", "delta_warning", "plan", "plannable", "usual_delta"],
        "_tally": ["Spending", "percent_up", "shown_down", "shown_up"],
    },
)

__all__ = [
    "ApproximateEvent",
    "Budget",
    "ComposedEvent",
    "Event",
    "ExponentialEvent",
    "GDPEvent",
    "GaussianEvent",
    "Guarantee",
    "LaplaceEvent",
    "NeighbourOptions",
    "Neighbours",
    "ParallelEvent",
    "PureEvent",
    "Relation",
    "RepeatedEvent",
    "RunningTotal",
    "SampledGaussianEvent",
    "Unit",
    "ZCDPEvent",
    "approximate_for_group",
    "calibrate",
    "gdp_for_group",
    "gdp_to_delta",
    "gdp_to_epsilon",
    "guarantee_of",
    "parse_relation",
    "parse_unit",
    "pure_for_group",
    "pure_to_gdp",
    "pure_to_zcdp",
    "renyi_to_delta",
    "within",
    "zcdp_for_group",
    "zcdp_to_delta",
    "zcdp_to_epsilon",
]
# But for how costs and ledgers are told, which is for other packages of escudo.
_OURS = {"Spending", "as_lines", "cost_text", "percent_up", "shown_down", "shown_up", "usual_delta", "verify_lines"}
__all__ += sorted(set(_later) - _OURS)
