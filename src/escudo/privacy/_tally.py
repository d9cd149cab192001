"""One account's arithmetic: what was agreed, what is spent, and whether one more event fits."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from escudo._validate import positive, probability
from escudo.errors import BudgetExceededError, InputError
from escudo.privacy._accounting import RunningTotal, guarantee_of, within
from escudo.privacy._event import check_loss
from escudo.privacy._events import ComposedEvent, Event, RepeatedEvent
from escudo.privacy._guarantee import Guarantee
from escudo.privacy._relations import Relation, Unit, parse_relation, parse_unit

__all__ = ["Tally", "Terms", "shown_down", "shown_up", "stated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What an account promises: a cap on the total loss, for one relation and one unit.

    Attributes:
        dataset: Name of the account; empty for an account in memory.
        epsilon: The cap, or None for no cap.
        delta: The δ at which the total is kept.
        relation: Which tables are neighbours.
        unit: Whose data differs between them.
        max_rows_per_person: Bound on one person's rows; with unit ``person`` only.
    """

    dataset: str = ""
    epsilon: float | None
    delta: float = 0.0
    relation: Relation = "replace_one"
    unit: Unit = "row"
    max_rows_per_person: int | None = None

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            positive("epsilon", self.epsilon)
            object.__setattr__(self, "epsilon", check_loss("epsilon", self.epsilon))
        object.__setattr__(self, "delta", probability("delta", self.delta))
        object.__setattr__(self, "relation", parse_relation(self.relation))
        object.__setattr__(self, "unit", parse_unit(self.unit, self.max_rows_per_person))
        if self.max_rows_per_person is not None:
            object.__setattr__(self, "max_rows_per_person", int(self.max_rows_per_person))

    def __str__(self) -> str:
        cap = "no cap" if self.epsilon is None else f"cap ε = {shown_down(self.epsilon)}"
        return f"{cap}, {self.neighbours}"

    @property
    def neighbours(self) -> str:
        """The δ, relation and unit in words."""
        rows = "one row" if self.unit == "row" else f"one person (at most {self.max_rows_per_person} rows)"
        change = "replace" if self.relation == "replace_one" else "add or remove"
        return (f"δ = {self.delta:g}, " if self.delta else "") + f"{change} {rows}"

    @property
    def name(self) -> str:
        """The account in words, for messages."""
        return f"dataset {self.dataset!r}" if self.dataset else "the in-memory account"

    def guarantee(self, epsilon: float, delta: float) -> Guarantee:
        """Return (ε, δ) as a guarantee for the account's neighbours."""
        return Guarantee(
            epsilon=epsilon,
            delta=delta,
            relation=self.relation,
            unit=self.unit,
            max_rows_per_person=self.max_rows_per_person,
        )

    def admitted(self, event: Event) -> Event:
        """Return ``event`` as this account keeps it, stated for the account's relation and bound on a person's rows.

        An event for more rows per person than the account's is admitted, because it holds for fewer
        (``Event.for_fewer_rows``).

        Raises:
            InputError: If the event says nothing about the account's neighbours.
        """
        if event.unit != self.unit:
            raise InputError(
                f"The event is stated per {event.unit}, but {self.name} is accounted per {self.unit}. State it per "
                f"{self.unit}, or use an account that was opened with unit={event.unit!r}. Nothing was spent."
            )
        if event.relation == "replace_one" and self.relation == "add_remove":
            raise InputError(
                f"The event is stated for replace_one, but {self.name} is accounted for add_remove, about which it "
                "says nothing: it may have released the number of rows. State it for add_remove. Nothing was "
                "spent."
            )
        if self.max_rows_per_person is None:
            return event.under(self.relation)
        assert event.max_rows_per_person is not None, "an event stated per person has a bound"
        if event.max_rows_per_person < self.max_rows_per_person:
            raise InputError(
                f"The event is stated for persons with at most {event.max_rows_per_person} rows, but {self.name} "
                f"protects persons with up to {self.max_rows_per_person}, about whom it says nothing. State it for "
                f"max_rows_per_person={self.max_rows_per_person}. Nothing was spent."
            )
        return event.for_fewer_rows(self.max_rows_per_person).under(self.relation)


class Tally:
    """The running total of one account.

    Adding an event and asking the quick bound take the same time however many events came before: only sums are kept
    up. The exact total, which also needs to know which events there were, is brought up to date when it is asked for.
    """

    def __init__(self, terms: Terms):
        self.terms = terms
        self._sums = self._counted = RunningTotal(terms.relation, terms.unit, terms.max_rows_per_person)
        self._waiting: list[tuple[Event, int]] = []

    def add(self, event: Event) -> None:
        """Count an admitted event."""
        self._sums = replace(self._sums.add(event), events={})
        self._waiting.append((event, 1))

    @property
    def _total(self) -> RunningTotal:
        if self._waiting:
            self._counted, self._waiting = self._counted.add_all(self._waiting), []
        return self._counted

    def fits(self, event: Event) -> bool:
        """Return whether the cap allows one more admitted event."""
        # The exact total is never above the quick bound: it is asked only when that says no.
        return self._allowed(self._sums.add(event).quick_epsilon) or self._allowed(self._total.add(event).epsilon)

    def within_cap(self) -> bool:
        """Return whether what is counted stays within the cap."""
        return self._allowed(self._sums.quick_epsilon) or self._allowed(self._total.epsilon)

    def _allowed(self, epsilon_at: Callable[[float], float]) -> bool:
        return self.terms.epsilon is None or within(epsilon_at(self.terms.delta), self.terms.epsilon)

    def require(self, event: Event) -> None:
        """Raise unless the cap allows one more admitted event.

        Raises:
            BudgetExceededError: With the amounts; nothing is changed.
        """
        if self.fits(event):
            return
        terms, cap = self.terms, self.terms.epsilon
        assert cap is not None, "without a cap everything fits"
        requested, spent, left = RunningTotal.of(event).epsilon(terms.delta), self.spent(), self.left()
        if math.isinf(requested):
            advice = (
                f"No ε holds for this event at δ = {terms.delta:g}; it needs an account with a larger δ, or noise "
                "with pure ε."
            )
        elif left > 0:
            advice = f"Ask for at most ε = {shown_down(left)}"
        else:
            advice = "Nothing is left"
        if terms.dataset and math.isfinite(requested):
            advice += f", or ask the owner of the ledger (escudo ledger show {shlex.quote(terms.dataset)})."
        elif math.isfinite(requested):
            advice += "."
        raise BudgetExceededError(
            f"the budget of {terms.name} does not allow it.\n"
            f"  cap ε = {shown_down(cap)}   spent {shown_up(spent)}   left {shown_down(left)}   "
            f"asked {shown_up(requested)}   ({terms.neighbours})\n"
            f"  {advice}\nNothing was spent.",
            dataset=terms.dataset,
            requested=requested,
            spent=spent,
            left=left,
            cap=cap,
        )

    def spent(self) -> float:
        """Return the total ε at the account's δ; infinity if none holds."""
        return self._total.epsilon(self.terms.delta)

    def left(self) -> float:
        """Return an ε such that a pure spend of it fits: cap minus spent, rounded down."""
        cap = self.terms.epsilon
        if cap is None:
            return math.inf
        left = max(0.0, cap - self.spent())
        # An accountant that works on a grid may charge a little more than the sum: step back until it agrees.
        step = cap * 1e-9
        while left > 0 and not self.fits(self.terms.guarantee(left, delta=0.0).event):
            left, step = max(0.0, left - step), step * 10
        return left

    def total(self, delta: float | None = None) -> Guarantee:
        """Return what everything counted promises together, at ``delta`` or at the account's δ.

        Raises:
            InputError: If no finite ε holds at that δ.
        """
        terms, counted = self.terms, self._total.events
        parts = [RepeatedEvent(event=event, count=times) if times > 1 else event for event, times in counted.items()]
        return guarantee_of(
            ComposedEvent(
                events=tuple(parts),
                relation=terms.relation,
                unit=terms.unit,
                max_rows_per_person=terms.max_rows_per_person,
            ),
            delta=terms.delta if delta is None else delta,
        )

    def remaining(self) -> Guarantee:
        """Return ``left`` as the guarantee of a pure spend that fits."""
        return self.terms.guarantee(self.left(), delta=0.0)


def stated(event: Event | Guarantee, *, for_release: bool, terms: Terms) -> tuple[Event, bool]:
    """Return the event of what is spent, admitted by ``terms``, and whether it is for release."""
    if isinstance(event, Guarantee):
        for_release = for_release and event.for_release
        event = event.event
    if not isinstance(event, Event):
        raise InputError(
            f"Spend an event, such as PureEvent(epsilon=1.0), or a Guarantee; got {type(event).__name__}. A bare "
            "number does not say what was promised."
        )
    return terms.admitted(event), bool(for_release)


def shown_up(value: float | None) -> str:
    """Return a loss for people: four digits, rounded up."""
    return _shown(value, ROUND_CEILING)


def shown_down(value: float | None) -> str:
    """Return a budget for people: four digits, rounded down.

    >>> shown_down(0.59999), shown_up(0.59999), shown_up(2.4), shown_down(0.00031)
    ('0.5999', '0.60', '2.40', '0.00031')
    """
    return _shown(value, ROUND_FLOOR)


def _shown(value: float | None, rounding: str) -> str:
    if value is None:
        return "—"
    if math.isinf(value):
        return "∞"
    number = Decimal(f"{value:.12g}")  # so that the dust of float sums does not show
    places = max(2, 3 - number.adjusted()) if number else 2
    text = f"{number.quantize(Decimal(1).scaleb(-places), rounding=rounding):f}"
    whole, _, part = text.partition(".")
    return f"{whole}.{part.rstrip('0').ljust(2, '0')}"
