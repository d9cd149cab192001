"""Auditing: measure the causal effect of one record on a mechanism's output.

Three rungs, one kind of answer (:class:`~escudo.effects.Effect`):

* by experiment: :func:`audit` assigns do(Dᵢ = d) or do(Dᵢ = d′) at random, observes and bounds; an :class:`Audit` with
  its verdict, :class:`History`, :class:`Outputs` and :class:`Power`;
* by replay: :func:`replay` runs both with the same noise and compares what goes into it; a :class:`Replay` of
  :class:`Step`;
* exactly: :func:`exact`, for finite mechanisms and structural equation models.

And one below them, where nothing can be run: :func:`observe` bounds the effect from a log, under assumptions that an
:class:`ObservedEffect` states, with how strong a hidden cause would have to be to explain it away.

Many at once: a :class:`Suite` of audits with one error over all of them, whose :class:`SuiteResult` has a
:class:`SuiteEntry` for each; :func:`assert_private` in tests. What files and command lines say of them:
:func:`claim_of`, :func:`mechanism_named`, :func:`pairs_in`, :func:`plain_pairs`, :func:`headers_of`.

What is audited: anything that :func:`adapt` takes, a :class:`Mechanism`; services by :class:`HttpTarget`, with
:class:`Uncounted` for answers that must not count. Inputs: :func:`pairs_of` a schema, :func:`query_pairs`. Claims: any
:class:`~escudo.privacy.Guarantee`, and :func:`renyi_claim`. Broken mechanisms to practise on: ``museum``.

How it works: ``_audit`` (the run), ``_wealth`` (how it bets, and why the error rate holds), ``_experiment`` (the runs
of a pair), ``_pairs`` (what is asked), ``_outputs``, ``_cells``, ``_scores``, ``_views`` (what it looks at),
``_calibration`` (what it believes), ``_bounds`` (what stands beside the bound).
"""

from __future__ import annotations

from escudo.auditing._audit import audit
from escudo.auditing._bounds import Power
from escudo.auditing._http import HttpTarget
from escudo.auditing._logs import ObservedEffect, observe
from escudo.auditing._one_run import OneRun, one_run
from escudo.auditing._pairs import pairs_of, query_pairs
from escudo.auditing._replay import Replay, Step, exact, replay
from escudo.auditing._result import Audit, History, Outputs
from escudo.auditing._suite import (
    Suite,
    SuiteEntry,
    SuiteResult,
    assert_private,
    claim_of,
    headers_of,
    mechanism_named,
    pairs_in,
    plain_pairs,
)
from escudo.auditing._targets import Mechanism, Uncounted, adapt
from escudo.auditing._wealth import renyi_claim

__all__ = [
    "Audit",
    "History",
    "HttpTarget",
    "Mechanism",
    "ObservedEffect",
    "OneRun",
    "Outputs",
    "Power",
    "Replay",
    "Step",
    "Suite",
    "SuiteEntry",
    "SuiteResult",
    "Uncounted",
    "adapt",
    "assert_private",
    "audit",
    "claim_of",
    "exact",
    "headers_of",
    "mechanism_named",
    "observe",
    "one_run",
    "pairs_in",
    "pairs_of",
    "plain_pairs",
    "query_pairs",
    "renyi_claim",
    "replay",
]
