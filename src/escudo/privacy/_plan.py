r"""Plans: the budget tree of an operation, shown before any data is touched, and charged in one spend.

A leaf is an event that will be spent, ``count`` times; a node without event and children is free (post-processing);
an inner node is the composition of its children. ``charging`` spends the whole tree at once and then hands out a purse
that pays only what the tree shows.

**How large a δ may be**: small against one over the number of people, or said twice. δ is the probability with which a
promise may fail altogether. Publishing one of n records as it is, chosen by chance, keeps (0, 1/n): a neighbour differs
in that record with probability 1/n only. So from δ = 1/n on, an (ε, δ) promise no longer rules out that somebody's
record is handed over, whatever ε is; a tenth of that is where it becomes a risk that nobody should take without
knowing. The rule, for every verb that takes a δ:

* δ ≥ 1/n is refused, unless it is said twice (``accept_large_delta=True``, ``--accept-large-delta``);
* δ > 1/(10 n) is a warning in the plan, the terminal and the report.

n is a public number: what the caller states, or else the number of records under ``replace_one``, which neighbours
share. Under ``add_remove`` the table is not asked. Where n is neither public nor stated the same is done with public
ceilings, 1e-3 and 1e-5. Once noisy counts are released they say what n is about, and the result carries the same
warning in the same words; it is not withheld, since the budget is gone by then and withholding would protect nobody.

Reference:
    C. Dwork, A. Roth (2014), "The algorithmic foundations of differential privacy", section 2.3: a δ of the order of
    one over the number of records allows to publish a few of them whole.
"""

from __future__ import annotations

import html
import inspect
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeVar

from escudo._validate import did_you_mean, probability
from escudo.errors import InputError, NotInPlanError, RefusedError
from escudo.privacy._account import Account, Receipt, marked_if_failed
from escudo.privacy._curves import ORDERS
from escudo.privacy._events import ComposedEvent, Event, GaussianEvent, GDPEvent, RepeatedEvent, ZCDPEvent, check_count
from escudo.privacy._guarantee import Guarantee, guarantee_of
from escudo.privacy._relations import Neighbours, Unit
from escudo.privacy._tally import shown_up
from escudo.privacy._totals import RunningTotal, leaf_curve, leaves

FREE = "free (post-processing)"


class _Line(NamedTuple):
    depth: int
    branch: str
    label: str
    cost: str
    buys: str


def plan_text(plan: Plan) -> str:
    """Return the tree as text, in aligned columns."""
    lines = list(_lines(plan))
    labels = max(len(line.branch + line.label) for line in lines)
    costs = max((len(line.cost) for line in lines if line.buys), default=0)
    tree = [f"{line.branch + line.label:<{labels}}   {line.cost:<{costs}}   {line.buys}".rstrip() for line in lines]
    told = [f"Warning: {plan.warning}"] if plan.warning else []
    told += [str(each) for each in (plan.passes, plan.forecast) if each is not None]
    return "\n".join([*tree, *told])


def plan_html(plan: Plan) -> str:
    """Return the tree as a small HTML table."""
    rows = "".join(
        f'<tr><td style="text-align:left;padding-left:{line.depth * 1.5 + 0.5}em">{html.escape(line.label)}</td>'
        f'<td style="text-align:left">{html.escape(line.cost)}</td>'
        f'<td style="text-align:left">{html.escape(line.buys)}</td></tr>'
        for line in _lines(plan)
    )
    warning = f"<p><strong>Warning:</strong> {html.escape(plan.warning)}</p>" if plan.warning else ""
    passes = "" if plan.passes is None else f"<p>{html.escape(str(plan.passes))}</p>"
    forecast = passes + ("" if plan.forecast is None else plan.forecast._repr_html_())
    return f"<table><caption>Budget plan: nothing is spent yet</caption>{rows}</table>{warning}{forecast}"


def cost_text(event: Event | None) -> str:
    """Return what an event costs in its own notion: ε for pure losses, ρ or μ for Gaussian noise, δ where it has slack.

    Losses of one notion add up; several notions are listed side by side, and the accountant's total says what they come
    to together.

    >>> from escudo.privacy import GaussianEvent, RepeatedEvent
    >>> cost_text(RepeatedEvent(event=GaussianEvent(l2_sensitivity=1.0, scale=10.0, grid=1.0), count=4))
    'ρ = 0.02'
    """
    if event is None:
        return FREE
    epsilon = rho = mu_squared = slack = 0.0
    for leaf, count in leaves(event):
        curve = leaf_curve(leaf)
        slack += count * curve.slack
        if isinstance(leaf, GDPEvent):
            mu_squared += count * leaf.mu**2
        elif isinstance(leaf, ZCDPEvent | GaussianEvent):
            rho += count * leaf.rho
        elif math.isfinite(curve.pure):
            epsilon += count * curve.pure
        else:
            rho += count * float((curve.renyi / ORDERS).max())
    losses = {"ε": epsilon, "ρ": rho, "μ": math.sqrt(mu_squared)}
    parts = [f"{symbol} = {shown_up(loss)}" for symbol, loss in losses.items() if loss] or ["ε = 0.00"]
    return ", ".join(parts + ([f"δ = {-math.expm1(-slack):.3g}"] if slack else []))


def _lines(plan: Plan) -> Iterator[_Line]:
    yield _Line(0, "", _label(plan), _total_text(plan), plan.buys)
    yield from _below(plan, "", 1)


def _below(plan: Plan, trunk: str, depth: int) -> Iterator[_Line]:
    for number, child in enumerate(plan.children, start=1):
        last = number == len(plan.children)
        yield _Line(depth, trunk + ("└─ " if last else "├─ "), _label(child), cost_text(child.event), child.buys)
        yield from _below(child, trunk + ("   " if last else "│  "), depth + 1)


def _label(plan: Plan) -> str:
    return plan.name if plan.count == 1 else f"{plan.count} × {plan.name}"


def _total_text(plan: Plan) -> str:
    if plan.event is None:
        return FREE
    delta = plan.stated_delta
    bound = RunningTotal.of(plan.event).bound(delta)
    aside = f", δ = {delta:g}" if delta else ""
    change = "replace" if plan.event.relation == "replace_one" else "add or remove"
    return f"ε = {shown_up(bound.value)}{aside}, {change} one {plan.event.unit} ({bound.accountant})"


CEILING, CAUTION = 1e-3, 1e-5
"""For a table of unknown size: from here on a δ is refused, and above this one it is a warning."""


USUAL = 1e-6
"""The δ of those who state none, where the table is not so large that it would be too much."""


_NAMES: dict[Unit, str] = {"row": "rows", "person": "people"}


def delta_warning(delta: float, records: float | None, *, unit: Unit = "row") -> str:
    """Return what is to be said about a δ that is large for a table of so many records; empty if nothing is.

    Args:
        delta: The δ of a promise.
        records: The number of rows or people: public, stated or noisy; None where nothing is known about it.
        unit: Which of the two they are.

    >>> delta_warning(1e-7, 22_714)
    ''
    >>> print(delta_warning(1e-5, 22_714))
    δ = 1e-05 is large for about 22,714 rows: above 4e-06, a tenth of one over their number, a promise may well fail for somebody.
    >>> print(delta_warning(0.1, 22_714))
    δ = 0.1 is too large for about 22,714 rows: from one over their number on, publishing a whole row would keep the promise.
    """  # noqa: E501
    refused, cautious = _limits(records)
    if delta <= cautious:
        return ""
    among = f"a table whose number of {_NAMES[unit]} is not known"
    if records is not None:
        count = f"{max(records, 1):,.0f}"
        among = f"about {count} {unit if count == '1' else _NAMES[unit]}"
    if delta >= refused:
        when = f"with {1 / CEILING:,.0f} of them" if records is None else "from one over their number on"
        what = "a whole row" if unit == "row" else "all rows of somebody"
        return f"δ = {delta:g} is too large for {among}: {when}, publishing {what} would keep the promise."
    tenth = "" if records is None else ", a tenth of one over their number"
    return (
        f"δ = {delta:g} is large for {among}: above {_rounded_down(cautious)}{tenth}, a promise may well fail for "
        "somebody."
    )


def judged_delta(delta: float, neighbours: Neighbours, accept_large_delta: bool = False) -> str:
    """Return the warning that a δ deserves before anything is spent, or refuse it.

    Args:
        delta: The δ of the promise.
        neighbours: Whose unit counts, and how many records they have, where that is public.
        accept_large_delta: Whether a δ that the rule refuses was meant.

    Raises:
        RefusedError: If δ is one over the number of records or more and was not said twice; nothing was spent.
    """
    if delta == 0.0:
        return ""
    warning = delta_warning(delta, neighbours.records, unit=neighbours.unit)
    refused, cautious = _limits(neighbours.records)
    if delta < refused or accept_large_delta:
        return warning
    names = _NAMES[neighbours.unit]
    known = "" if neighbours.records is not None else f", state the number of {names} if it is public (rows)"
    raise RefusedError(
        f"{warning} Choose δ of at most {_rounded_down(cautious)}{known}, or say that you mean it with "
        "accept_large_delta=True (--accept-large-delta). Nothing was spent."
    )


def usual_delta(neighbours: Neighbours) -> float:
    """Return the δ for those who state none: 1e-6, or less where a table is so large that this deserves a warning."""
    _, cautious = _limits(neighbours.records)
    return USUAL if cautious >= USUAL else float(_rounded_down(cautious))


def _limits(records: float | None) -> tuple[float, float]:
    """Return from where on a δ is refused, and above what it is a warning."""
    if records is None:
        return CEILING, CAUTION
    whole = 1 / max(records, 1.0)  # a noisy number may be below 1
    return whole, whole / 10


def _rounded_down(delta: float) -> str:
    """Return a δ with one digit, not above the one given.

    >>> _rounded_down(1 / 227_140), _rounded_down(1e-5), _rounded_down(0.1)
    ('4e-06', '1e-05', '0.1')
    """
    power = math.floor(math.log10(delta) + 1e-12)
    return f"{math.floor(delta / 10.0**power + 1e-9) * 10.0**power:.1g}"


@dataclass(frozen=True, slots=True)
class Passes:
    """How often an operation reads the rows of its table: public, and known before one is read.

    Counting the rows or people is not among them: it is done where their number is public and nobody has stated it.

    Attributes:
        least: So often in any case.
        more: And at most so often beyond that,
        why: for this.

    >>> print(Passes(1) + Passes(1, 4, "a round in which triples may be picked"))
    Reads the rows 2 times, and once more for a round in which triples may be picked, 4 times at most.
    """

    least: int
    more: int = 0
    why: str = ""

    @property
    def most(self) -> int:
        """So often at most."""
        return self.least + self.more

    def __add__(self, other: Passes) -> Passes:
        why = " and ".join(each.why for each in (self, other) if each.more)
        return Passes(self.least + other.least, self.more + other.more, why)

    def __str__(self) -> str:
        often = "once" if self.least == 1 else f"{self.least} times"
        more = f", and once more for {self.why}" if self.more else ""
        more += f", {self.more} times at most" if self.more > 1 else " at most" if self.more else ""
        return f"Reads the rows {often}{more}."

    def to_json(self) -> dict[str, int]:
        """Return it as JSON values."""
        return {"least": self.least, "most": self.most}


class Expectation(Protocol):
    """How good what a plan pays for will be, from public facts alone; it shows itself as text, HTML and JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        ...

    def _repr_html_(self) -> str: ...


@dataclass(frozen=True, slots=True, init=False)
class Plan:
    """A node of a budget tree.

    Args:
        name: What is done.
        event: What one go of it releases; None for an inner node or for work that is free.
        children: The parts of an inner node.
        buys: What the spend is good for, in a few words.
        count: How many times the event, or the whole of the children, happens.
        delta: The δ at which the total is stated; None to choose: 0 if a pure ε holds, else 1e-6.
        warning: What whoever spends it should know first; ``judged`` fills it in.

    Raises:
        InputError: If a node has both an event and children, or its parts mix relations or units.

    >>> from escudo.privacy import PureEvent
    >>> print(Plan("release", children=[
    ...     Plan("counts", PureEvent(epsilon=0.25), count=2, buys="two tables"),
    ...     Plan("sampling"),
    ... ]))
    release         ε = 0.50, replace one row (basic composition)
    ├─ 2 × counts   ε = 0.50   two tables
    └─ sampling     free (post-processing)
    """

    name: str
    once: Event | None
    children: tuple[Plan, ...]
    buys: str
    count: int
    delta: float | None
    warning: str
    forecast: Expectation | None = field(compare=False)
    passes: Passes | None = field(compare=False)

    def __init__(
        self,
        name: str,
        event: Event | None = None,
        *,
        children: Sequence[Plan] = (),
        buys: str = "",
        count: int = 1,
        delta: float | None = None,
        warning: str = "",
    ):
        if not isinstance(name, str) or not name.strip():
            raise InputError("name of a plan must be text that says what is done.")
        if event is not None and not isinstance(event, Event):
            raise InputError(f"event of plan {name!r} must be an event or None; got {type(event).__name__}.")
        if any(not isinstance(child, Plan) for child in children):
            raise InputError(f"children of plan {name!r} must be plans.")
        if event is not None and children:
            raise InputError(f"Plan {name!r} has an event and children; give the event to a child of its own.")
        count = check_count("count", count)
        delta = None if delta is None else probability("delta", delta)
        if children:
            parts = tuple(child.event for child in children if child.event is not None)
            event = None if not parts else parts[0] if len(parts) == 1 else ComposedEvent(events=parts)
        values = {
            "name": name,
            "once": event,
            "children": tuple(children),
            "buys": buys,
            "count": count,
            "delta": delta,
            "warning": warning,
            "forecast": None,
            "passes": None,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def event(self) -> Event | None:
        """The whole of it as one event, or None if it is free."""
        return self.once if self.once is None or self.count == 1 else RepeatedEvent(event=self.once, count=self.count)

    def leaves(self) -> tuple[Plan, ...]:
        """Return the nodes that spend something, from top to bottom; a count above them is not multiplied out."""
        if self.children:
            return tuple(leaf for child in self.children for leaf in child.leaves())
        return () if self.once is None else (self,)

    def guarantee(self, delta: float | None = None, *, max_rows_per_person: int | None = None) -> Guarantee:
        """Return the total by the accountant.

        Args:
            delta: The δ it is stated at; the plan's own if None.
            max_rows_per_person: Bound on one person's rows that the events must be stated for; None takes theirs.
        """
        event = ComposedEvent(events=()) if self.event is None else self.event
        return guarantee_of(
            event, delta=self.stated_delta if delta is None else delta, max_rows_per_person=max_rows_per_person
        )

    @property
    def stated_delta(self) -> float:
        """The δ at which the total is stated: the plan's own, or 0 if a pure ε holds, or else 1e-6."""
        if self.delta is not None:
            return self.delta
        return 0.0 if self.event is None or math.isfinite(RunningTotal.of(self.event).quick_epsilon(0.0)) else 1e-6

    def judged(self, neighbours: Neighbours, *, accept_large_delta: bool = False) -> Plan:
        """Return the plan with a warning if its δ is large for so many records, by the rule above.

        Args:
            neighbours: Between which tables the plan promises, and how many records they have, where that is public.
            accept_large_delta: Whether a δ that is not below one over the number of records was meant.

        Raises:
            RefusedError: If it was not; nothing was spent.
        """
        if self.event is None:
            return self
        warning = judged_delta(self.stated_delta, neighbours, accept_large_delta)
        if not warning:
            return self
        whole = {"children": self.children} if self.children else {"event": self.once}
        return Plan(self.name, **whole, buys=self.buys, count=self.count, delta=self.delta, warning=warning)

    def expecting(self, forecast: Expectation | None, passes: Passes | None = None) -> Plan:
        """Return the plan together with what is known beforehand; that costs nothing and is no part of it.

        Args:
            forecast: How good what it pays for will be.
            passes: How often the rows are read for it.
        """
        told = copy(self)
        object.__setattr__(told, "forecast", forecast)
        object.__setattr__(told, "passes", passes)
        return told

    def less(self, *paid: Event) -> Plan:
        """Return the plan of what is left once some of its events have happened.

        Raises:
            NotInPlanError: If the plan does not show them.

        >>> from escudo.privacy import PureEvent
        >>> count = PureEvent(epsilon=0.25)
        >>> Plan("counts", count, count=3).less(count).guarantee().epsilon
        0.5
        """
        left = Counter(dict(leaves(self.event)) if self.event is not None else {})
        for event in paid:
            left.subtract(dict(leaves(event)))
        if any(times < 0 for times in left.values()):
            raise NotInPlanError(f"The plan {self.name!r} does not show what happened of it.")
        parts = [Plan(event.kind, event, count=times) for event, times in left.items() if times]
        return Plan(f"{self.name}, what is left", children=parts, delta=self.delta, warning=self.warning)

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, max_rows_per_person: int | None = None) -> Plan:
        """Return the tree that ``to_json`` wrote.

        Args:
            data: The JSON values.
            max_rows_per_person: The bound for events of version 1, which state none; see ``Event.from_json``.

        Raises:
            InputError: If it is no such tree.
        """
        try:
            event = data["event"]
            return cls(
                data["name"],
                None if event is None else Event.from_json(event, max_rows_per_person=max_rows_per_person),
                children=[cls.from_json(c, max_rows_per_person=max_rows_per_person) for c in data["children"]],
                buys=str(data["buys"]),
                count=data["count"],
                delta=data["delta"],
                warning=str(data.get("warning", "")),
            )
        except (KeyError, TypeError, RecursionError):
            raise InputError("The plan's record lacks a key or has one in a wrong form.") from None

    def to_json(self) -> dict[str, Any]:
        """Return the tree as JSON values."""
        return {
            "name": self.name,
            "buys": self.buys,
            "count": self.count,
            "delta": self.delta,
            "event": None if self.children or self.once is None else self.once.to_json(),
            "children": [child.to_json() for child in self.children],
            **({"warning": self.warning} if self.warning else {}),
        }

    def __str__(self) -> str:
        return plan_text(self)

    def _repr_html_(self) -> str:
        return plan_html(self)


class _PlannedAccount:
    """An account that pays what a plan shows and nothing else; made by ``charging``.

    Attributes:
        account: The account that paid.
        receipt: Its spend of the whole plan, for ``mark``, ``resume`` and ``finish``; None if the plan is free.
    """

    def __init__(self, account: Account, plan: Plan, receipt: Receipt | None, *, for_release: bool):
        self.account, self._plan, self.receipt, self._for_release = account, plan, receipt, for_release
        self._unused = Counter(dict(leaves(plan.event)) if plan.event is not None else {})
        self._open, self._failed = True, False
        self._lock = threading.Lock()
        self.relation, self.unit, self.max_rows_per_person = account.relation, account.unit, account.max_rows_per_person

    def spend(self, event: Event, *, purpose: str = "", for_release: bool = True) -> Receipt:
        """Pay for one step out of what was charged for the whole plan; nothing more is recorded.

        Raises:
            NotInPlanError: If the plan does not show this event, or no longer.
            InputError: If a seeded step comes in a plan that was charged for release.
        """
        wanted = Counter(dict(leaves(event)))
        with self._lock:
            if not self._open or self.receipt is None or not wanted <= self._unused:
                raise NotInPlanError(self._why_not(event, wanted))
            if self._for_release and not for_release:
                raise InputError(
                    f"A seeded step is not for release, but plan {self._plan.name!r} was charged for release. Charge "
                    "it with for_release=False."
                )
            self._unused -= wanted
        return replace(
            self.receipt, event=event, purpose=purpose or self.receipt.purpose, for_release=self._for_release
        )

    def fail(self, receipt: Receipt, reason: str = "") -> None:
        """Mark the whole plan's spend as failed, once; it stays spent."""
        with self._lock:
            if self._failed or self.receipt is None:
                return
            self.account.fail(self.receipt, reason)
            self._failed = True

    def close(self) -> None:
        """Pay nothing more."""
        with self._lock:
            self._open = False

    def _why_not(self, event: Event, wanted: Counter[Event]) -> str:
        plan, end = self._plan, "Nothing was spent. Every spend must be shown in the plan first."
        if not self._open:
            return f"The plan {plan.name!r} has ended, and with it the right to spend a {event.kind} event. {end}"
        planned = set(dict(leaves(plan.event)) if plan.event is not None else {})
        if set(wanted) <= planned:
            return f"The plan {plan.name!r} shows this {event.kind} event, but all of it is used up. {end}"
        return f"The plan {plan.name!r} does not show this {event.kind} event. {end}"

    def __repr__(self) -> str:
        return f"purse of plan {self._plan.name!r}: {self._unused.total()} releases unused, paid by {self.account!r}"


@contextmanager
def charging(
    account: Account, plan: Plan, *, for_release: bool = True, purpose: str = "", receipt: Receipt | None = None
) -> Iterator[Account]:
    """Spend a whole plan at once, then give an account that pays only what the plan shows.

    One spend of ``plan.event`` is recorded before the block starts. Inside, ``purse.spend(event)`` accepts the plan's
    events, each as often as planned, in any order and grouping, and refuses all others. An exception marks the spend
    failed; it stays spent. So do events that the block did not use: they were promised, and are not given back.

    Args:
        account: What is charged.
        plan: What will be spent.
        for_release: False for a seeded run.
        purpose: Why; the plan's name if empty.
        receipt: The spend that pays for the plan, where that was made before: then nothing is spent.

    Raises:
        BudgetExceededError: If the account does not allow the plan as a whole; nothing is spent.

    >>> from escudo.privacy import MemoryAccount, PureEvent
    >>> step, account = PureEvent(epsilon=0.25), MemoryAccount(epsilon=1.0)
    >>> with charging(account, Plan("two counts", step, count=2)) as purse:
    ...     _ = purse.spend(step), purse.spend(step)
    >>> len(account.receipts), account.total().epsilon
    (1, 0.5)
    """
    event = plan.event
    if event is not None and receipt is None:
        receipt = account.spend(event, purpose=purpose or plan.name, for_release=for_release)
    purse = _PlannedAccount(account, plan, receipt, for_release=for_release)
    try:
        with marked_if_failed(purse, receipt):
            yield purse
    finally:
        purse.close()


_Operation = TypeVar("_Operation", bound=Callable[..., Any])
_PLANNABLE: dict[str, Callable[..., Any]] = {}


def plannable(plan_fn: Callable[..., Plan]) -> Callable[[_Operation], _Operation]:
    """Give an operation its plan: ``plan_fn`` takes the same arguments and reads nothing that is private.

    >>> from escudo.privacy import PureEvent
    >>> @plannable(lambda epsilon: Plan("a count", PureEvent(epsilon=epsilon)))
    ... def count_privately(epsilon): ...
    >>> print(plan(count_privately, epsilon=0.5))
    a count   ε = 0.50, replace one row (basic composition)
    """

    def decorate(operation: _Operation) -> _Operation:
        operation.plan = plan_fn  # type: ignore[attr-defined]
        _PLANNABLE[operation.__qualname__] = operation
        return operation

    return decorate


def plan(operation: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Plan:
    """Return the budget tree of ``operation(*args, **kwargs)``, without running it or reading anything private.

    Args:
        operation: A function or method of escudo that releases something.
        args: Its positional arguments.
        kwargs: Its keyword arguments.

    Raises:
        InputError: If the operation has no plan; names those that have one.
    """
    plan_fn = getattr(operation, "plan", None)
    if not callable(plan_fn):
        name = getattr(operation, "__qualname__", type(operation).__qualname__)
        known = ", ".join(sorted(_PLANNABLE)) or "none is loaded yet"
        raise InputError(f"{name} has no plan.{did_you_mean(name, _PLANNABLE)} What can be planned: {known}.")
    if inspect.ismethod(operation):
        args = (operation.__self__, *args)
    made = plan_fn(*args, **kwargs)
    if not isinstance(made, Plan):
        raise InputError(f"The plan of {operation.__qualname__} is no Plan but {type(made).__name__}.")
    return made
