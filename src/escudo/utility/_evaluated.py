r"""A release that pays for figures about itself: generator and private evaluation under one plan.

Of the budget, in zCDP, in which costs add up, a share goes to the figures and the rest to the generator. With μ the
Gaussian privacy that (ε, δ) buys, the generator is prepared for the ε that :math:`\mu \sqrt{1 - share}` costs at δ, and
the figures get Gaussian noise of :math:`\mu \sqrt{share}`. A generator that is not Gaussian throughout may cost more
together with them; then their noise is raised until the accountant's total is at most (ε, δ).

**Guarantee.** The accountant's total of the plan, which holds for everything in the release. The synthetic rows that
the figures are about were released before, and the account was charged for the whole tree before any noise was drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from math import floor, log10, sqrt
from typing import Any

import numpy as np

from escudo._validate import finite
from escudo.errors import InputError
from escudo.mechanisms import Purse
from escudo.privacy import Account, Budget, GDPEvent, Plan, calibrate, charging, guarantee_of
from escudo.synthesis import Model, Prepared, fitting, neighbours_of
from escudo.table import PrivateTable, Schema
from escudo.utility._private import PreparedFigures, PrivateEvaluation, prepare_figures

__all__ = ["Evaluate", "PreparedEvaluated", "fitting_evaluated", "prepare_evaluated"]

Evaluate = Callable[[object], PrivateEvaluation]
"""Takes the synthetic rows that are released, once."""

_LOUDER = (1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 4.0, 16.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedEvaluated:
    """A generator that knows what it will measure, and the figures about its rows.

    Attributes:
        generator: What was prepared for the rest of the budget.
        figures: What was prepared for the share.
    """

    generator: Prepared
    figures: PreparedFigures

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self.generator.schema

    @property
    def plan(self) -> Plan:
        """The generator's budget tree, with a leaf for the figures."""
        plan = self.generator.plan
        return Plan(plan.name, children=[*plan.children, self.figures.plan], delta=plan.delta)

    def paying(
        self, account: Account, plan: Plan, *, stream: np.random.Generator | None, **terms: Any
    ) -> AbstractContextManager[Account]:
        """Charge a plan as the generator does, which may go on after a stop."""
        own = getattr(self.generator, "paying", None)
        payment: AbstractContextManager[Account]
        payment = charging(account, plan, **terms) if own is None else own(account, plan, stream=stream, **terms)
        return payment

    def run(self, table: PrivateTable, purse: Purse) -> tuple[Model, Evaluate]:
        """Fit the generator; return its model, with the plan of the whole, and what evaluates its rows, once."""
        model = replace(self.generator.run(table, purse), plan=purse.plan)
        return model, partial(self.figures.evaluate, table, purse)


def prepare_evaluated(
    prepare: Callable[[float], Prepared],
    *,
    share: float,
    epsilon: float,
    delta: float,
    relation: str = "replace_one",
    public_rows: int | None = None,
    targets: int | Sequence[str] = 5,
) -> PreparedEvaluated:
    """Choose what to measure for a generator and for figures about its rows, from public facts alone.

    Args:
        prepare: Prepares the generator for the ε it is given, at the same δ.
        share: Which part of the budget goes to the figures, in zCDP: above 0 and below 1; 0.1 is plenty for most.
        epsilon: What both may cost together.
        delta: With this probability the promise of both may fail.
        relation: The neighbouring relation.
        public_rows: The number of rows, if it is public knowledge.
        targets: Which columns to predict; see :func:`~escudo.utility.evaluate_privately`.

    Returns:
        What :func:`fitting_evaluated` takes; its ``plan`` is the whole tree.

    Raises:
        InputError: If an argument is out of range.
    """
    part = finite("share", share)
    if not 0 < part < 1:
        raise InputError(
            f"the share of the budget that goes to an evaluation must lie between 0 and 1, such as 0.1; got {share:g}."
        )
    budget = Budget(epsilon, delta)
    if budget.delta == 0:
        raise InputError("an evaluation within a release has Gaussian noise, which needs a delta above 0.")
    mu = 1 / calibrate(lambda noise: GDPEvent(mu=1 / noise), epsilon=budget.epsilon, delta=budget.delta)
    left = guarantee_of(GDPEvent(mu=mu * sqrt(1 - part)), delta=budget.delta).epsilon
    assert left is not None
    generator = prepare(_rounded_down(left))
    neighbours = neighbours_of(generator.schema, relation, public_rows)
    quiet = prepare_figures(generator.schema, neighbours, targets=targets, scale=1.0)
    scale = quiet.l2_sensitivity / (mu * sqrt(part))
    for louder in _LOUDER:
        found = PreparedEvaluated(generator=generator, figures=replace(quiet, noise={"scale": scale * louder}))
        total = found.plan.guarantee(budget.delta, max_rows_per_person=generator.schema.max_rows_per_person).epsilon
        if total is not None and total <= budget.epsilon * (1 + 1e-9):
            return found
    raise InputError(
        f"generator {generator.plan.name!r} leaves no room for an evaluation at this budget; give it a smaller share."
    )


def fitting_evaluated(
    prepared: PreparedEvaluated, table: PrivateTable, **how: Any
) -> AbstractContextManager[tuple[Model, Evaluate]]:
    """Run what was prepared: charge the whole plan, fit the generator, and give what evaluates its rows.

    Like :func:`escudo.synthesis.fitting`, which see; the block is the rest of the release. It gives the model, whose
    plan and guarantee are those of the whole; and a function that takes the synthetic rows to be released and returns
    the figures about them, once.
    """
    return fitting(prepared, table, **how)


def _rounded_down(number: float) -> float:
    """Return a number with four digits, for people to read in the plan.

    >>> _rounded_down(0.94487), _rounded_down(12.3456), _rounded_down(0.5)
    (0.9448, 12.34, 0.5)
    """
    unit = 10.0 ** (3 - floor(log10(number)))
    return floor(number * unit * (1 + 1e-12)) / unit
