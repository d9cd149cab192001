r"""A release that pays for figures about itself: generator and private evaluation under one plan.

Of the budget, in zCDP, in which costs add up, a share goes to the figures and the rest to the generator. With μ the
Gaussian privacy that (ε, δ) buys, the generator is prepared for the ε that :math:`\mu \sqrt{1 - share}` costs at δ, and
the figures get Gaussian noise of :math:`\mu \sqrt{share}`. A generator that is not Gaussian throughout may cost more
together with them; then their noise is raised until the accountant's total is at most (ε, δ).

**Guarantee.** The accountant's total of the plan, which holds for everything in the release. The synthetic rows that
the figures are about were released before, and the account was charged for the whole tree before any noise was drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import floor, log10, sqrt

import numpy as np

from escudo._validate import finite, positive, probability, whole
from escudo.errors import InputError
from escudo.mechanisms import publishable
from escudo.privacy import GDPEvent, Plan, calibrate, guarantee_of
from escudo.synthesis import Model, Prepared
from escudo.synthesis._generators import anchored, paying
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
    budget, at = positive("epsilon", epsilon, at_most=100.0), probability("delta", delta)
    if at == 0:
        raise InputError("an evaluation within a release has Gaussian noise, which needs a delta above 0.")
    mu = 1 / calibrate(lambda noise: GDPEvent(mu=1 / noise), epsilon=budget, delta=at)
    left = guarantee_of(GDPEvent(mu=mu * sqrt(1 - part)), delta=at).epsilon
    assert left is not None
    generator = prepare(_rounded_down(left))
    quiet = prepare_figures(generator.schema, relation=relation, public_rows=public_rows, targets=targets, scale=1.0)
    scale = quiet.l2_sensitivity / (mu * sqrt(part))
    for louder in _LOUDER:
        found = PreparedEvaluated(generator=generator, figures=replace(quiet, noise={"scale": scale * louder}))
        total = found.plan.guarantee(at, max_rows_per_person=generator.schema.max_rows_per_person).epsilon
        if total is not None and total <= budget * (1 + 1e-9):
            return found
    raise InputError(
        f"generator {generator.plan.name!r} leaves no room for an evaluation at this budget; give it a smaller share."
    )


@contextmanager
def fitting_evaluated(
    prepared: PreparedEvaluated,
    table: PrivateTable,
    *,
    seed: int | None = None,
    public_rows: int | None = None,
    accept_large_delta: bool = False,
) -> Iterator[tuple[Model, Evaluate]]:
    """Run what was prepared: charge the whole plan, fit the generator, and give what evaluates its rows.

    Like :func:`escudo.synthesis.fitting`, which see; the block is the rest of the release.

    Yields:
        The model, whose plan and guarantee are those of the whole; and a function that takes the synthetic rows to be
        released and returns the figures about them, once.

    Raises:
        InputError: If it was prepared for another schema; nothing was spent.
        RefusedError: If δ is too large for the table; nothing was spent.
        BudgetExceededError: If the account does not allow the plan; nothing was spent.
    """
    if prepared.schema != table.schema:
        raise InputError("What to measure was prepared for another schema than the table's. Nothing was spent.")
    noise = None if seed is None else np.random.default_rng(whole("seed", seed))
    plan = prepared.plan.judged(table, rows=public_rows, accept_large_delta=accept_large_delta)
    promise = replace(plan.guarantee(max_rows_per_person=table.max_rows_per_person), for_release=publishable(seed))
    with paying(prepared.generator, table.account, plan, for_release=promise.for_release, seed=noise) as purse:
        model = prepared.generator.fit(table, account=purse, seed=noise, guarantee=promise)
        yield anchored(model, purse, plan=plan), partial(prepared.figures.run, table, account=purse, seed=noise)


def _rounded_down(number: float) -> float:
    """Return a number with four digits, for people to read in the plan.

    >>> _rounded_down(0.94487), _rounded_down(12.3456), _rounded_down(0.5)
    (0.9448, 12.34, 0.5)
    """
    unit = 10.0 ** (3 - floor(log10(number)))
    return floor(number * unit * (1 + 1e-12)) / unit
