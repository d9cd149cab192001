"""One account's arithmetic: what was agreed, what is spent, and whether one more event fits."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, Literal, NamedTuple, NoReturn, get_args

from escudo._card import number_of
from escudo._validate import finite, one_of, positive, probability
from escudo.errors import BudgetExceededError, InputError
from escudo.privacy._conversions import zcdp_to_epsilon
from escudo.privacy._events import ComposedEvent, Event, PureEvent, RepeatedEvent, ZCDPEvent, check_loss
from escudo.privacy._filter import NOTHING, Filter, Paid, best_order, filter_of
from escudo.privacy._guarantee import Guarantee, guarantee_of
from escudo.privacy._relations import Relation, Stated, Unit, parse_relation, parse_unit
from escudo.privacy._totals import RunningTotal, to_atto, within

Spending = Literal["adaptive", "planned"]
SPENDING: tuple[Spending, ...] = get_args(Spending)
MAX_ORDER = 1e6
_HAIR = 1.0005  # how close to the largest amount that fits is close enough
_LEAST = 1e-7  # a part of the cap that is not worth asking for


class Cap(NamedTuple):
    """What an account allows in all: ε, None for no cap, and δ, of which a share is for mechanisms with their own."""

    epsilon: float | None
    delta: float
    slack_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms(Stated):
    """What an account promises: a cap on the total loss, for one relation and one unit.

    Attributes:
        dataset: Name of the account; empty for an account in memory.
        epsilon: The cap, or None for no cap.
        delta: The δ at which the total is kept.
        relation: Which tables are neighbours.
        unit: Whose data differs between them.
        max_rows_per_person: Bound on one person's rows; with unit ``person`` only.
        spending: ``"adaptive"``: the cap holds also where releases decide what is asked next and how much.
            ``"planned"``: it holds where all amounts are settled before the first release.
        slack_share: The share of δ for mechanisms with a δ of their own; for adaptive spending with δ > 0 only.
        order: The order of Rényi divergence that the cap is kept in; likewise.
    """

    dataset: str = ""
    epsilon: float | None
    delta: float = 0.0
    relation: Relation = "replace_one"
    unit: Unit = "row"
    max_rows_per_person: int | None = None
    spending: Spending = "adaptive"
    slack_share: float | None = None
    order: float | None = None

    @classmethod
    def agreed(cls, order: float | Event | None, cap: Cap, **terms: Any) -> Terms:
        """Return the terms of an account whose order is as given, or the one under which most of an event fits."""
        if not isinstance(order, Event):
            return cls(**cap._asdict(), **terms, order=order)
        epsilon, delta, share = cap
        if epsilon is None or not delta:
            raise InputError("order goes with a cap whose delta is above 0.")
        best = best_order(epsilon, delta, 0.5 if share is None else share, order)
        return cls(**cap._asdict(), **terms, order=best)

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            positive("epsilon", self.epsilon)
            object.__setattr__(self, "epsilon", check_loss("epsilon", self.epsilon))
        object.__setattr__(self, "delta", probability("delta", self.delta))
        object.__setattr__(self, "relation", parse_relation(self.relation))
        object.__setattr__(self, "unit", parse_unit(self.unit, self.max_rows_per_person))
        if self.max_rows_per_person is not None:
            object.__setattr__(self, "max_rows_per_person", int(self.max_rows_per_person))
        one_of("spending", self.spending, SPENDING)
        if self.epsilon is None or self.delta == 0 or self.spending == "planned":
            if self.slack_share is not None or self.order is not None:
                raise InputError("slack_share and order go with adaptive spending under a cap with delta above 0.")
            return
        share = finite("slack_share", 0.5 if self.slack_share is None else self.slack_share)
        if not 0 <= share < 1:
            raise InputError(f"slack_share must be at least 0 and below 1; got {share:g}.")
        order = best_order(self.epsilon, self.delta, share) if self.order is None else finite("order", self.order)
        if not 1 < order <= MAX_ORDER:
            raise InputError(f"order must be above 1 and at most {MAX_ORDER:g}; got {order:g}.")
        object.__setattr__(self, "slack_share", share)
        object.__setattr__(self, "order", order)

    @property
    def filter(self) -> Filter | None:
        """What decides whether a spend is admitted; None without a cap and for planned spending."""
        if self.epsilon is None or self.spending == "planned":
            return None
        return filter_of(self.epsilon, self.delta, self.slack_share, self.order)

    @property
    def promise(self) -> str:
        """What the cap means, in a sentence."""
        if self.epsilon is None:
            return "There is no cap: spends are counted, and none is refused."
        what = f"(ε = {shown_down(self.epsilon)}{f', δ = {self.delta:g}' if self.delta else ''})-differentially private"
        change = self.neighbours.removeprefix(f"δ = {self.delta:g}, ")
        if self.spending == "planned":
            return (
                f"Everything released from this account, so far and later, is together {what} ({change}), provided "
                "that every amount was settled before the first release."
            )
        how = "basic composition" if self.order is None else f"Rényi filter of order {self.order:g}"
        return (
            f"Everything released from this account, so far and later, is together {what} ({change}), also where "
            f"releases decided what was asked next and how much it cost. {how}; amounts must not depend on the rows "
            "themselves."
        )

    def __str__(self) -> str:
        cap = "no cap" if self.epsilon is None else f"cap ε = {shown_down(self.epsilon)}"
        return f"{cap}, {self.neighbours}"

    @property
    def neighbours(self) -> str:
        """The δ, relation and unit in words."""
        rows = "one row" if self.unit == "row" else f"one person (at most {number_of(self.max_rows_per_person, 'row')})"
        change = "replace" if self.relation == "replace_one" else "add or remove"
        return (f"δ = {self.delta:g}, " if self.delta else "") + f"{change} {rows}"

    @property
    def name(self) -> str:
        """The account in words, for messages."""
        return f"dataset {self.dataset!r}" if self.dataset else "the in-memory account"

    def guarantee(self, epsilon: float, delta: float) -> Guarantee:
        """Return (ε, δ) as a guarantee for the account's neighbours."""
        return Guarantee(epsilon=epsilon, delta=delta, **self.stated)

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
    """The sums of one account, and whether one more event fits.

    Adding an event takes the same time however many came before: only sums are kept up. The accountant's total, which
    also needs to know which events there were, is brought up to date when it is asked for.

    Attributes:
        terms: What was agreed.
        spent: What the filter counts; 0 where there is none.
        count: How many spends there are.
    """

    def __init__(self, terms: Terms):
        self.terms = terms
        self.spent = NOTHING
        self.count = 0
        self._filter = terms.filter
        self._sums = self._counted = RunningTotal(terms.relation, terms.unit, terms.max_rows_per_person)
        self._waiting: list[tuple[Event, int]] = []

    def add(self, event: Event, paid: Paid) -> None:
        """Count an admitted event, charged as ``require`` or ``pay`` said."""
        self.spent, self.count = self.spent.plus(paid.charge), self.count + 1
        if self._filter is None:
            self._sums = replace(self._sums.add(event), events={})
        self._waiting.append((event, 1))

    @property
    def _total(self) -> RunningTotal:
        if self._waiting:
            self._counted, self._waiting = self._counted.add_all(self._waiting), []
        return self._counted

    def pay(self, event: Event) -> Paid | None:
        """Return how the cap allows one more admitted event to be charged, or None if it does not."""
        if self._filter is not None:
            return self._filter.pay(event, self.spent)
        # The exact total is never above the quick bound: it is asked only when that says no.
        if self._allowed(self._sums.add(event).quick_epsilon) or self._allowed(self._total.add(event).epsilon):
            return Paid(NOTHING)
        return None

    def fits(self, event: Event) -> bool:
        """Return whether the cap allows one more admitted event."""
        return self.pay(event) is not None

    def _roughly_fits(self, event: Event) -> bool:
        """Return whether the cap of planned spending allows an event by a total that may be a hair too large."""
        total = self._total.add(event)
        return self._allowed(total.quick_epsilon) or self._allowed(lambda d: total.bound(d, coarse=True).value)

    def within_cap(self) -> bool:
        """Return whether what is counted stays within the cap."""
        if self._filter is not None:
            return self._filter.admits(self.spent, NOTHING)
        return self._allowed(self._sums.quick_epsilon) or self._allowed(self._total.epsilon)

    def _allowed(self, epsilon_at: Callable[[float], float]) -> bool:
        return self.terms.epsilon is None or within(epsilon_at(self.terms.delta), self.terms.epsilon)

    def require(self, event: Event) -> Paid:
        """Return how one more admitted event is charged, or raise if the cap does not allow it.

        Raises:
            BudgetExceededError: With the amounts; nothing is changed.
        """
        paid = self.pay(event)
        if paid is None:
            self.refuse(event)
        return paid

    def refuse(self, event: Event) -> NoReturn:
        """Say that the cap does not allow an event, and what it would allow.

        Raises:
            BudgetExceededError: Always.
        """
        terms = self.terms
        assert terms.epsilon is not None, "without a cap everything fits"
        requested, left = RunningTotal.of(event).epsilon(terms.delta), self.left()
        raise BudgetExceededError(
            f"the budget of {terms.name} does not allow it.\n  {self._amounts(event, requested, left)}   "
            f"({terms.neighbours})\n  {self._advice(event, requested, left)}\nNothing was spent.",
            dataset=terms.dataset,
            requested=requested,
            spent=self.total_epsilon(),
            left=left,
            cap=terms.epsilon,
        )

    def _amounts(self, event: Event, requested: float, left: float) -> str:
        cap = f"cap ε = {shown_down(self.terms.epsilon)}"
        if self._filter is None:
            total = shown_up(self.total_epsilon())
            return f"{cap}   total {total}   left {shown_down(left)}   asked {shown_up(requested)}"
        asked = self._filter.used(self._filter.charge(event))
        amount = f"{percent_up(asked)} of it" if math.isfinite(asked) else "more than any part of it"
        return f"{cap}   used {percent_up(self.used())}   left ε = {shown_down(left)}   this asks for {amount}"

    def _advice(self, event: Event, requested: float, left: float) -> str:
        terms = self.terms
        if math.isinf(requested):
            return (
                f"No ε holds for this event at δ = {terms.delta:g}; it needs an account with a larger δ, or noise "
                "with pure ε."
            )
        if self._filter is not None:
            own = self._filter.charge(event).slack
            have, may = self._filter.slack_used(self.spent)
            if self.spent.slack + own > self._filter.cap.slack:
                return (
                    f"The event has a δ of its own, and of the part of δ for such events ({may:.3g}) {have:.3g} is "
                    "used. Ask with a smaller δ, or for noise without one."
                )
        rho = self.largest_rho()
        parts = [f"The largest pure spend that fits is ε = {shown_down(left)}"] if left > 0 else []
        if rho > 0:
            alone = shown_down(zcdp_to_epsilon(rho, terms.delta))
            parts.append(f"the largest of Gaussian noise is ρ = {shown_down(rho)} (ε = {alone} by itself)")
        advice = ", and ".join(parts) or "Nothing is left"
        owner = f", or ask the owner of the ledger (escudo ledger show {shlex.quote(terms.dataset)})"
        return f"{advice[0].upper()}{advice[1:]}{owner if terms.dataset else ''}."

    def total_epsilon(self) -> float:
        """Return the accountant's total ε at the account's δ; infinity if none holds."""
        found = self._total.epsilon(self.terms.delta)
        # What the filter let through is within the cap, whatever the accountant's grid of orders makes of it.
        return found if self._filter is None else min(found, self._filter.epsilon)

    def used(self) -> float:
        """Return the part of the budget that is used, from 0 to 1."""
        if self._filter is not None:
            return self._filter.used(self.spent)
        return 0.0 if self.terms.epsilon is None else self.total_epsilon() / self.terms.epsilon

    def asked(self, event: Event) -> float:
        """Return the part of the budget that one more admitted event asks for; may be infinite."""
        if self._filter is not None:
            return self._filter.used(self._filter.charge(event))
        after = self._total.add(event).epsilon(self.terms.delta)
        return 0.0 if self.terms.epsilon is None else (after - self.total_epsilon()) / self.terms.epsilon

    def slack_used(self) -> tuple[float, float]:
        """Return how much δ of their own the spends have, and how much they may have."""
        if self._filter is not None:
            return self._filter.slack_used(self.spent)
        return abs(math.expm1(-self._total.slack)), self.terms.delta

    def left(self) -> float:
        """Return the largest ε of a pure spend that fits, to one part in 2,000; infinity without a cap."""
        cap = self.terms.epsilon
        if cap is None:
            return math.inf
        if self._filter is None:
            likely = max(0.0, cap - self.total_epsilon())
        else:
            pure = to_atto(cap)
            assert pure is not None, "a cap is a number"
            likely = 0.0 if self.spent.pure is None else max(0, pure - self.spent.pure) / 10**18
        whole = self.terms.guarantee(cap, delta=0.0).event
        assert isinstance(whole, PureEvent), "a guarantee without delta is a pure one"

        def fits(epsilon: float) -> bool:
            event = replace(whole, epsilon=epsilon)
            if self._filter is None:
                return self._roughly_fits(event)
            return self._filter.admits(self.spent, self._filter.charge(event))  # another form gains nothing

        return _largest(fits, likely, cap)

    def largest_rho(self) -> float:
        """Return the largest ρ of a zCDP spend that fits, to one part in 2,000; 0 where δ = 0."""
        terms, cap = self.terms, self.terms.epsilon
        if cap is None or terms.delta == 0:
            return math.inf if cap is None else 0.0

        def fits(rho: float) -> bool:
            event = ZCDPEvent(rho=rho, **terms.stated)
            return self._roughly_fits(event) if self._filter is None else self.fits(event)

        return _largest(fits, 0.0, cap)  # Gaussian noise of larger ρ has a loss above ε half of the time

    def total(self, delta: float | None = None) -> Guarantee:
        """Return what everything counted would promise together had its amounts been settled beforehand.

        Args:
            delta: Stated at this δ; at the account's by default.

        Raises:
            InputError: If no finite ε holds at that δ.
        """
        terms, counted = self.terms, self._total.events
        parts = [RepeatedEvent(event=event, count=times) if times > 1 else event for event, times in counted.items()]
        whole = ComposedEvent(events=tuple(parts), **terms.stated)
        found = guarantee_of(whole, delta=terms.delta if delta is None else delta)
        if self._filter is not None and found.delta == terms.delta and (found.epsilon or 0) > self._filter.epsilon:
            return replace(found, epsilon=self._filter.epsilon, accountant="Rényi filter")
        return found

    def remaining(self) -> Guarantee:
        """Return ``left`` as the guarantee of a pure spend that fits."""
        return self.terms.guarantee(self.left(), delta=0.0)


def admitted(event: Event | Guarantee, terms: Terms, for_release: bool = True) -> tuple[Event, bool]:
    """Return the event of what is spent, as ``terms`` admit it, and whether it is for release."""
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


def _largest(fits: Callable[[float], bool], likely: float, top: float) -> float:
    """Return the largest amount up to ``top`` that fits, by halving; ``likely`` is tried first."""
    low, high = 0.0, top
    if likely > 0 and fits(likely):
        if likely >= top or not fits(min(top, likely * _HAIR)):
            return likely
        low = likely
    if fits(top):
        return top
    while high > low * _HAIR and high > top * _LEAST:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def percent_up(part: float) -> str:
    """Return a part of a whole for people: in percent with one decimal, rounded up."""
    if math.isinf(part):
        return "∞ %"
    return f"{Decimal(f'{100 * part:.9g}').quantize(Decimal('0.1'), rounding=ROUND_CEILING):f} %"


def _shown(value: float | None, rounding: str) -> str:
    if value is None:
        return "—"
    if math.isinf(value):
        return "∞"
    number = Decimal(f"{value:.12g}")  # so that the dust of float sums does not show
    places = max(2, 3 - number.adjusted()) if number else 2
    text = f"{number.quantize(Decimal(1).scaleb(-places), rounding):f}"
    whole, _, part = text.partition(".")
    return f"{whole}.{part.rstrip('0').ljust(2, '0')}"
