r"""Privacy events: frozen facts about what was released, with a fixed meaning and no arithmetic.

An event states what a mechanism did to the table (noise, scale, sensitivity), for which neighbouring ``relation`` and
``unit``. What it costs is computed elsewhere, by accountants that may improve; the fact stays as it was recorded.
Events are never removed and never change meaning: a new meaning is a new ``version``, and a reader that does not know a
kind, version or field refuses it.

Sensitivities are those of the *stated* relation: under ``replace_one`` a row of a table of counts may leave one cell
and enter another, so two cells change; under ``add_remove`` one does.

They happen at one go (which noise met which sensitivity, or which bound was proved), or are made of others: repeated,
one after the other, or side by side on disjoint parts of the table.

"""

from __future__ import annotations

import math
from abc import abstractmethod  # of no ABC: making an Event is refused in words, see __post_init__
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast, get_args

from escudo._card import plain
from escudo._validate import did_you_mean, one_of, positive, probability, whole
from escudo.errors import InputError, UnsupportedEventError
from escudo.privacy._conversions import (
    approximate_for_group,
    gdp_for_group,
    pure_for_group,
    round_up,
    zcdp_for_group,
)
from escudo.privacy._relations import RELATIONS, UNITS, Relation, Stated, Unit, parse_relation, parse_unit

if TYPE_CHECKING:
    from escudo.privacy._curves import SampledPair

MAX_EPSILON = 1e3
"""Largest epsilon or mu an event may state: e^1000 protects nobody, so a larger number is a slip."""
MAX_RHO = MAX_EPSILON**2 / 2
MAX_COUNT = 10**9
MAX_DEPTH = 32
"""Deepest nesting a reader accepts, so that a hostile file cannot exhaust the stack."""


KINDS: dict[str, type[Event]] = {}
"""Every kind of event by the name it has in JSON; filled once, where the kinds are defined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Stated):
    """What one release did, stated for one neighbouring relation and one privacy unit.

    Attributes:
        relation: Which tables are neighbours; the event's sensitivity or loss is stated for them.
        unit: Whose data differs between neighbours: one row, or all rows of one person.
        max_rows_per_person: The most rows of one person that the statement covers; with unit ``person`` only. A person
            with more rows is not protected by it.
    """

    kind: ClassVar[str] = ""

    relation: Relation = "replace_one"
    unit: Unit = "row"
    max_rows_per_person: int | None = None

    def __post_init__(self) -> None:
        if not self.kind:
            raise InputError("Event is the base of all events; make one of its kinds, such as PureEvent(epsilon=1.0).")
        put(self, relation=parse_relation(self.relation), unit=parse_unit(self.unit, self.max_rows_per_person))
        if self.max_rows_per_person is not None:
            put(self, max_rows_per_person=check_count("max_rows_per_person", self.max_rows_per_person))

    @property
    def version(self) -> int:
        """Version of the JSON form: 2 for persons, whose bound on rows it states, and 1 for rows.

        Version 1 for persons did not state the bound; it meant that of the account or guarantee it was kept in.
        """
        return 2 if self.unit == "person" else 1

    @property
    def weight(self) -> float:
        """About how much of a budget it takes, in zCDP, in which costs add up: to draw shares with, and no bound."""
        from escudo.privacy._curves import ORDERS
        from escudo.privacy._totals import leaf_curve

        loss = float((leaf_curve(self).renyi / ORDERS).max())
        return loss if math.isfinite(loss) else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the event as plain JSON values; ``from_json`` reads them back to an equal event.

        >>> from escudo.privacy import PureEvent
        >>> PureEvent(epsilon=0.5).to_json()
        {'kind': 'pure', 'version': 1, 'relation': 'replace_one', 'unit': 'row', 'epsilon': 0.5}
        """
        return plain(self, "kind", "version", *_names(type(self), self.version))

    @staticmethod
    def from_json(data: Mapping[str, Any], *, max_rows_per_person: int | None = None) -> Event:
        """Return the event that ``to_json`` wrote.

        Args:
            data: The JSON values.
            max_rows_per_person: The bound on one person's rows that version 1 did not state: that of the account or
                guarantee which holds the event. Events that state their own keep it.

        Raises:
            UnsupportedEventError: If the kind, version or a field is unknown, or a field is missing or out of range.
                The message names the event and, inside a structured event, the part.
        """
        return _Reader(max_rows_per_person).event(data, "event", 0)

    def under(self, relation: str) -> Event:
        """Return the same release stated for another neighbouring relation.

        Replacing a record is removing one and adding another: a path of two ``add_remove`` steps. Group privacy for two
        steps (see ``stretched``) therefore turns a statement for ``add_remove`` into one for ``replace_one``: with the
        same noise, sensitivities, ε and μ double, ρ grows fourfold, and (ε, δ) becomes (2ε, δ(1 + e^ε)). The converse
        does not hold: ``replace_one`` neighbours have equally many rows, so a mechanism that prints the number of rows
        satisfies every ``replace_one`` guarantee and no ``add_remove`` one.

        Raises:
            InputError: From ``replace_one`` to ``add_remove``.
        """
        target = parse_relation(relation)
        if target == self.relation:
            return self
        if target == "add_remove":
            raise InputError(
                f"A {self.kind!r} event stated for replace_one says nothing about add_remove: tables that differ by "
                "one replaced row have equally many rows, so the number of rows may have been released exactly. "
                "State the event for add_remove, with the sensitivity for adding or removing a row."
            )
        return self._replacing()

    @abstractmethod
    def stretched(self, steps: int) -> Self:
        """Return the same release stated for tables ``steps`` neighbouring steps apart (group privacy).

        Along a path of k neighbours D₀, …, D_k a statistic moves by at most k sensitivities, so Laplace and Gaussian
        sensitivities and μ grow k-fold and ρ k²-fold; log-ratios of probabilities add, so ε grows k-fold; and from
        P₀(S) ≤ e^ε P₁(S) + δ, applied k times, (ε, δ) becomes (kε, δ(1 + e^ε + … + e^{(k-1)ε})). Structured events
        stretch their parts; ``ParallelEvent`` says why that holds for disjoint parts.

        Raises:
            InputError: If nothing is left of the guarantee, such as δ ≥ 1.
        """

    def for_person(self, max_rows_per_person: int) -> Event:
        """Return the same release stated for a person with at most so many rows, from a statement for one row.

        Adding or removing a person is at most k row steps (``stretched``). Under ``replace_one``, k steps change up to
        k rows in place: the person keeps the number of rows. To protect that number too, state the event for
        ``add_remove`` first; then ``for_person(k).under("replace_one")`` covers k rows removed and k others added.
        """
        if self.unit == "person":
            raise InputError("The event is stated per person already.")
        rows = check_count("max_rows_per_person", max_rows_per_person)
        return self.stretched(rows)._per_person(rows)

    def for_fewer_rows(self, max_rows_per_person: int) -> Event:
        """Return the same release stated for persons with at most so many rows, from a statement that allows more.

        It holds a fortiori: tables in which every person has at most k rows are among those in which every person has
        at most K ≥ k, so neighbours under the bound k are neighbours under the bound K.

        Raises:
            InputError: If the event is stated per row, or for fewer rows: then it says nothing about larger persons.
        """
        rows = check_count("max_rows_per_person", max_rows_per_person)
        if self.max_rows_per_person is None:
            raise InputError("The event is stated per row; event.for_person says what it means for a person.")
        if rows > self.max_rows_per_person:
            raise InputError(
                f"The event is stated for persons with at most {self.max_rows_per_person} rows and says nothing about "
                f"persons with up to {rows}. State its sensitivity for {rows} rows."
            )
        return self._per_person(rows)

    def _replacing(self) -> Event:
        """Return this ``add_remove`` event as a ``replace_one`` event."""
        return replace(self.stretched(2), relation="replace_one")

    def _per_person(self, rows: int) -> Event:
        return replace(self, unit="person", max_rows_per_person=rows)


def put(event: Event, **values: object) -> None:
    """Set fields of an event that is still being made."""
    for name, value in values.items():
        object.__setattr__(event, name, value)


class TooLoudError(InputError):
    """A loss that protects nobody: a slip where somebody states it, and a step on the way where noise is looked for."""


def check_loss(name: str, value: object, *, at_most: float = MAX_EPSILON) -> float:
    """Return a finite loss of at least 0; a huge one is refused, because it protects nobody."""
    number = positive(name, value, allow_zero=True)
    if number > at_most:
        raise TooLoudError(f"{name} must be at most {at_most:g}; got {number:g}, which would protect nobody.")
    return number


def check_count(name: str, value: object) -> int:
    """Return a whole number of at least 1 and at most a thousand million."""
    number = whole(name, value, minimum=1)
    if number > MAX_COUNT:
        raise InputError(f"{name} must be at most {MAX_COUNT:,}.")
    return number


def _names(kind: type[Event], version: int) -> list[str]:
    """Return the fields of an event in this version of its JSON form."""
    return [field.name for field in fields(kind) if version > 1 or field.name != "max_rows_per_person"]


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the events of a JSON document; version 1 for persons takes the bound on rows that is given."""

    bound: int | None

    def event(self, data: object, path: str, depth: int) -> Event:
        """Read one event, so deep inside others; ``path`` says where it stands, for messages."""
        if depth > MAX_DEPTH:
            raise UnsupportedEventError(f"{path[:60]}…: events are nested more than {MAX_DEPTH} deep.")
        if not isinstance(data, Mapping):
            raise UnsupportedEventError(f"{path}: an event is a JSON object; this is {type(data).__name__}.")
        name, version = data.get("kind"), data.get("version")
        kind = KINDS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise UnsupportedEventError(
                f"{path}: unknown kind of event {name!r:.60}.{did_you_mean(str(name)[:60], KINDS)} "
                "It may come from a newer escudo."
            )
        path = f"{path} ({kind.kind})"
        if type(version) is not int or version not in (1, 2):
            raise UnsupportedEventError(f"{path}: this escudo reads versions 1 and 2, not {version!r:.60}.")
        names = set(_names(kind, version))
        given = {str(key) for key in data} - {"kind", "version"}
        if given != names:
            wrong = [f"unknown field {key!r:.60}" for key in sorted(given - names)]
            wrong += [f"missing field {key!r}" for key in sorted(names - given)]
            raise UnsupportedEventError(f"{path}: {', '.join(wrong[:5])}.")
        values = {key: self._value(key, data[key], path, depth) for key in names}
        if version == 2 and values["unit"] != "person":
            raise UnsupportedEventError(f"{path}: version 2 is for persons; an event stated per row has version 1.")
        if version == 1 and values["unit"] == "person":
            if self.bound is None:
                raise UnsupportedEventError(
                    f"{path}: version 1 does not state how many rows of one person it covers, and what holds it does "
                    "not either. Read it with max_rows_per_person, the bound that it was made for."
                )
            values["max_rows_per_person"] = self.bound
        try:
            return kind(**values)
        except InputError as error:
            raise UnsupportedEventError(f"{path}: {error}") from None

    def _value(self, key: str, value: Any, path: str, depth: int) -> Any:
        # Values are JSON's; the event's own checks decide which are allowed.
        if key == "event":
            return self.event(value, f"{path}.event", depth + 1)
        if key == "events":
            if not isinstance(value, list):
                raise UnsupportedEventError(f"{path}: events must be a list.")
            return tuple(self.event(part, f"{path}.events[{i}]", depth + 1) for i, part in enumerate(value))
        if key == "max_rows_per_person" and (type(value) is not int or value < 1):
            raise UnsupportedEventError(f"{path}: max_rows_per_person must be a whole number of at least 1.")
        if key == "relation" and value not in RELATIONS:
            raise UnsupportedEventError(f"{path}: unknown relation {value!r:.60}; expected {' or '.join(RELATIONS)}.")
        if key == "unit" and value not in UNITS:
            raise UnsupportedEventError(f"{path}: unknown unit {value!r:.60}; expected {' or '.join(UNITS)}.")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceEvent(Event):
    """Laplace noise of the given scale was added to every coordinate of a statistic.

    Attributes:
        l1_sensitivity: Most that the statistic moves in l1 norm between neighbours.
        scale: The noise has density, or mass on the grid, proportional to exp(-|x| / scale).
        grid: Step of the public grid that statistic and noise live on; 0 for continuous noise, which floating point
            numbers do not implement safely.
        dimensions: Number of coordinates.
    """

    kind: ClassVar[str] = "laplace"

    l1_sensitivity: float
    scale: float
    grid: float
    dimensions: int = 1

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        _check_added(self, "l1_sensitivity")
        put(self, dimensions=check_count("dimensions", self.dimensions))

    @property
    def weight(self) -> float:
        """About its cost in zCDP."""
        return (self.l1_sensitivity / self.scale) ** 2 / 2

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps`` times the sensitivity and the same noise."""
        return replace(self, l1_sensitivity=self.l1_sensitivity * check_count("steps", steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianEvent(Event):
    """Gaussian noise of the given scale was added to every coordinate of a statistic.

    Attributes:
        l2_sensitivity: Most that the statistic moves in l2 norm between neighbours.
        scale: Standard deviation σ; the noise has density, or mass on the grid, proportional to exp(-x² / 2σ²).
        grid: Step of the public grid that statistic and noise live on; 0 for continuous noise, which floating point
            numbers do not implement safely.
        changed_cells: Set only for tables of counts, where every record adds one grid step to some cells and nothing to
            the others: the number of cells that differ between neighbours, each by one step. It sharpens
            ``l2_sensitivity``, which must be at least its square root in steps.
    """

    kind: ClassVar[str] = "gaussian"

    l2_sensitivity: float
    scale: float
    grid: float
    changed_cells: int | None = None

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        _check_added(self, "l2_sensitivity")
        if self.changed_cells is not None:
            cells = check_count("changed_cells", self.changed_cells)
            put(self, changed_cells=cells)
            if self.grid == 0:
                raise InputError("changed_cells counts cells that change by one grid step, so grid must be above 0.")
            if self.l2_sensitivity < math.sqrt(cells) * self.grid * (1 - 1e-9):
                raise InputError(
                    f"{cells} cells that change by one grid step of {self.grid:g} move the table by "
                    f"{math.sqrt(cells) * self.grid:g} in l2 norm; l2_sensitivity is {self.l2_sensitivity:g}."
                )

    @property
    def rho(self) -> float:
        """The release is ρ-zCDP with ρ = (l2_sensitivity / scale)² / 2, rounded up."""
        return round_up((Fraction(self.l2_sensitivity) / Fraction(self.scale)) ** 2 / 2)

    @property
    def weight(self) -> float:
        """About its cost in zCDP."""
        return (self.l2_sensitivity / self.scale) ** 2 / 2

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps`` times the sensitivity; several records may share a cell."""
        k = check_count("steps", steps)
        cells = self.changed_cells if k == 1 else None
        return replace(self, l2_sensitivity=self.l2_sensitivity * k, changed_cells=cells)

    def _replacing(self) -> GaussianEvent:
        # One record leaves at most c cells and another enters at most c: the difference of two 0/1 tables of at most c
        # ones has entries in {-1, 0, 1}, at most 2c of them not 0. So no cell moves by two steps.
        doubled = self.stretched(2)
        cells = None if self.changed_cells is None else 2 * self.changed_cells
        return replace(doubled, changed_cells=cells, relation="replace_one")


@dataclass(frozen=True, slots=True, kw_only=True)
class _EpsilonEvent(Event):
    """A mechanism was run whose one number is an ε that adds up along a path of neighbours."""

    _divided: ClassVar[int]  # ε² over this is about its cost in zCDP

    epsilon: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        put(self, epsilon=check_loss("epsilon", self.epsilon))

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps`` times epsilon: log-ratios, and the intervals they lie in, add up."""
        return replace(self, epsilon=pure_for_group(self.epsilon, check_count("steps", steps)))

    @property
    def weight(self) -> float:
        """About its cost in zCDP."""
        return self.epsilon**2 / self._divided


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialEvent(_EpsilonEvent):
    """A candidate was chosen by a mechanism of bounded range ε, such as the exponential mechanism.

    For neighbours D, D′ the log-ratios log(P(y | D) / P(y | D′)) over all outputs y lie in an interval of length ε.

    Attributes:
        epsilon: Length of that interval.
    """

    kind: ClassVar[str] = "exponential"
    _divided: ClassVar[int] = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PureEvent(_EpsilonEvent):
    """A mechanism that was proved ε-differentially private was run.

    Attributes:
        epsilon: Bound on every log-ratio of output probabilities.
    """

    kind: ClassVar[str] = "pure"
    _divided: ClassVar[int] = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproximateEvent(Event):
    """A mechanism that was proved (ε, δ)-differentially private was run.

    Attributes:
        epsilon: Loss outside the slack.
        delta: Slack, in [0, 1).
    """

    kind: ClassVar[str] = "approximate"

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        put(self, epsilon=check_loss("epsilon", self.epsilon), delta=probability("delta", self.delta))

    def stretched(self, steps: int) -> Self:
        """Return the event for (kε, δ(1 + e^ε + … + e^{(k-1)ε}))."""
        epsilon, delta = approximate_for_group(self.epsilon, self.delta, check_count("steps", steps))
        return replace(self, epsilon=epsilon, delta=delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZCDPEvent(Event):
    """A mechanism that was proved ρ-zero-concentrated differentially private was run.

    Attributes:
        rho: The Rényi divergence of every order α > 1 is at most ρα.
    """

    kind: ClassVar[str] = "zcdp"

    rho: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        put(self, rho=check_loss("rho", self.rho, at_most=MAX_RHO))

    @property
    def weight(self) -> float:
        """About its cost in zCDP."""
        return self.rho

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps``² times rho."""
        return replace(self, rho=zcdp_for_group(self.rho, check_count("steps", steps)))


@dataclass(frozen=True, slots=True, kw_only=True)
class GDPEvent(Event):
    """A mechanism that was proved μ-Gaussian differentially private was run.

    Attributes:
        mu: Telling neighbours apart is at least as hard as telling N(0, 1) from N(μ, 1).
    """

    kind: ClassVar[str] = "gdp"

    mu: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        put(self, mu=check_loss("mu", self.mu))

    @property
    def weight(self) -> float:
        """About its cost in zCDP."""
        return self.mu**2 / 2

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps`` times mu."""
        return replace(self, mu=gdp_for_group(self.mu, check_count("steps", steps)))


def _check_added(event: LaplaceEvent | GaussianEvent, moved: str) -> None:
    """Check how far a statistic moves, by the name of that field, and the noise that was added to it."""
    sensitivity = positive(moved, getattr(event, moved), allow_zero=True)
    scale, grid = positive("scale", event.scale), positive("grid", event.grid, allow_zero=True)
    put(event, **{moved: sensitivity, "scale": scale, "grid": grid})
    _bounded_ratio(moved, sensitivity, scale)


def _bounded_ratio(name: str, sensitivity: float, scale: float) -> None:
    if sensitivity > scale * MAX_EPSILON:
        raise TooLoudError(
            f"{name} / scale must be at most {MAX_EPSILON:g}; {sensitivity:g} / {scale:g} is more, and noise that "
            "small would protect nobody."
        )


_MAX_ROWS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledGaussianEvent(Event):
    """Gaussian noise was added to the sum of clipped vectors over a Poisson sample of the rows.

    Attributes:
        noise_multiplier: Standard deviation of the noise on each coordinate, over the bound on a row's vector.
        sampling_probability: The chance with which each row was drawn, independently of all others.
        rows: How many rows change between neighbours: 1, or all that a person or a group may have; by default
            ``max_rows_per_person``, or 1.
    """

    kind: ClassVar[str] = "sampled_gaussian"

    noise_multiplier: float
    sampling_probability: float
    rows: int = cast(int, None)  # one person's, unless more are given

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        one = self.max_rows_per_person or 1
        put(
            self,
            noise_multiplier=positive("noise_multiplier", self.noise_multiplier),
            sampling_probability=probability("sampling_probability", self.sampling_probability, allow_one=True),
            rows=one if self.rows is None else check_count("rows", self.rows),
        )
        if self.rows < one:
            raise InputError(
                f"rows must be at least max_rows_per_person ({one}): all rows of one person change; got {self.rows}."
            )
        if self.rows > _MAX_ROWS:
            raise InputError(f"rows must be at most {_MAX_ROWS:,}: nothing useful is promised to larger groups.")
        if self.rows > self.noise_multiplier * MAX_EPSILON:
            raise InputError(
                f"noise_multiplier must be at least {self.rows / MAX_EPSILON:g} where {self.rows} rows change: less "
                "would protect nobody."
            )

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps`` times as many rows changing."""
        return replace(self, rows=self.rows * check_count("steps", steps))

    def _replacing(self) -> SampledGaussianEvent:
        # Removing r rows and adding r others is, in place, r rows replaced.
        return replace(self, relation="replace_one")

    @property
    def pair(self) -> SampledPair:
        """The pair of distributions that dominates the release."""
        from escudo.privacy._curves import SampledPair

        both = self.relation == "replace_one"
        return SampledPair(1 / self.noise_multiplier * (1 + 1e-15), self.sampling_probability, self.rows, both)


Parts = Literal["position", "value"]


# A structured event takes relation, unit and the bound on a person's rows from its parts unless they are given.
_OF_THE_PARTS = cast(Relation, "")
_UNIT_OF_THE_PARTS = cast(Unit, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedEvent(Event):
    """The same event happened ``count`` times on the same table, each with fresh noise, adaptively.

    Attributes:
        event: What happened each time.
        count: How often, at least once.
    """

    kind: ClassVar[str] = "repeated"

    event: Event
    count: int
    relation: Relation = _OF_THE_PARTS
    unit: Unit = _UNIT_OF_THE_PARTS

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event):
            raise InputError("event must be an event, such as PureEvent(epsilon=1.0).")
        _take_from_parts(self, (self.event,))
        Event.__post_init__(self)
        put(self, count=check_count("count", self.count))

    @property
    def weight(self) -> float:
        """About its cost in zCDP."""
        return self.count * self.event.weight

    def stretched(self, steps: int) -> Self:
        """Return the event with its part stretched."""
        return replace(self, event=self.event.stretched(steps))

    def _replacing(self) -> RepeatedEvent:
        return replace(self, event=self.event.under("replace_one"), relation="replace_one")

    def _per_person(self, rows: int) -> RepeatedEvent:
        return replace(self, event=self.event._per_person(rows), unit="person", max_rows_per_person=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SeveralEvents(Event):
    """What happens to all parts alike."""

    events: tuple[Event, ...]

    def stretched(self, steps: int) -> Self:
        """Return the event with every part stretched."""
        return replace(self, events=tuple(event.stretched(steps) for event in self.events))

    def _per_person(self, rows: int) -> Self:
        parts = tuple(event._per_person(rows) for event in self.events)
        return replace(self, events=parts, unit="person", max_rows_per_person=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedEvent(_SeveralEvents):
    """Several events happened on the same table, one after the other, adaptively. None at all costs nothing.

    Attributes:
        events: What happened, in order.
    """

    kind: ClassVar[str] = "composed"

    relation: Relation = _OF_THE_PARTS
    unit: Unit = _UNIT_OF_THE_PARTS

    def __post_init__(self) -> None:
        put(self, events=_tuple_of_events(self.events))
        _take_from_parts(self, self.events)
        Event.__post_init__(self)

    @property
    def weight(self) -> float:
        """About its cost in zCDP."""
        return sum(event.weight for event in self.events)

    def _replacing(self) -> ComposedEvent:
        return replace(self, events=tuple(e.under("replace_one") for e in self.events), relation="replace_one")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelEvent(_SeveralEvents):
    """Each event happened on its own part of the table; the parts are disjoint.

    How many parts see a change decides the cost:

    * ``by="position"``: a public rule that looks at no value, such as the row's number, assigns records to parts. A
      changed record stays where it is, so one part changes, and the total is the worst part's. For ``replace_one``
      only: a record added or removed would shift all those behind it into other parts.
    * ``by="value"``: a rule that looks at the record assigns it. Under ``add_remove`` still one part changes. Under
      ``replace_one`` a record may leave one part and enter another, so two parts change:

      - parts stated for ``replace_one``, each covering a part that loses, gains or swaps one record: the worst *two*
        parts are composed;
      - parts stated for ``add_remove`` (give ``relation="replace_one"`` for the whole): the worst part, stated for two
        steps. Two steps in one part are as bad as one step in each of two, by the lemma below.

    **Lemma.** Let f_i(k) be the cost of part i for k steps: its pure ε, μ², its Rényi divergence at some order as
    accounted here, or -log(1 - δ). Then f_i(k)/k does not fall as k grows. For ε, μ² and ρ it is plain. For Laplace
    noise, on a grid or not, f_i is a log-sum-exp of linear functions of k and 0 at 0, so convex. For ε-DP it is
    log cosh(aεk) - log cosh(εk/2) up to a factor, with a = α - 1/2 > 1/2, and u tanh u - log cosh u grows with u. For δ
    it is a convex function of the convex k ↦ δ(e^{kε} - 1)/(e^ε - 1), again 0 at 0. Minima, maxima and sums keep the
    property. So k steps of which k_i fall on part i cost Σ f_i(k_i) ≤ Σ (k_i/k) f_i(k) ≤ max_i f_i(k), and where each
    step may touch two parts (k_i ≤ k, Σ k_i ≤ 2k) at most the two largest f_i(k). Hence stretching a parallel event
    means stretching its parts.

    **Lemma, for equal parts and exact curves.** Steps a and b in two equal parts are dominated by a + b steps in one.
    ε-DP and (ε, δ)-DP: by the canonical mechanism of the sum. Gaussian: √(a² + b²) ≤ a + b, and counts by cells are as
    many cells. Laplace: with the noise X clamped to Y = min(max(X, 0), s), the loss for a shift by s is s - 2Y, and
    δ(ε) for ε ≥ 0 is the mean of a falling function of Y that vanishes from s/2 on. For shifts a ≥ b the losses add up
    to a + b - 2(Y_a + Y_b), and up to (a + b)/2 ≤ a, Y_a + Y_b ≥ Y_a exceeds each level at least as often as Y_{a+b}
    does. So δ(ε) is smaller. Domination survives composition with more releases.

    Attributes:
        events: One per part, at least one.
        by: ``"position"`` or ``"value"``.
    """

    kind: ClassVar[str] = "parallel"

    by: Parts
    relation: Relation = _OF_THE_PARTS
    unit: Unit = _UNIT_OF_THE_PARTS

    def __post_init__(self) -> None:
        put(self, events=_tuple_of_events(self.events), by=one_of("by", self.by, get_args(Parts)))
        if not self.events:
            raise InputError("events of a parallel event must name at least one part.")
        if any(_samples(part) for part in self.events):
            raise InputError("The lemmas for parallel events do not cover sampled_gaussian events; compose them.")
        _take_from_parts(self, self.events, may_be_add_remove=self.by == "value")
        Event.__post_init__(self)
        if self.by == "position" and self.relation == "add_remove":
            raise InputError(
                "Parts cut by position shift when a record is added or removed. Assign records to parts by a rule that "
                "looks at the record alone and say by='value', or state the parts for replace_one."
            )

    @property
    def weight(self) -> float:
        """About its cost in zCDP."""
        return max(event.weight for event in self.events)

    def _replacing(self) -> ParallelEvent:
        return replace(self, relation="replace_one")  # by value: the parts stay as they are stated


def _samples(event: Event) -> bool:
    if isinstance(event, RepeatedEvent):
        return _samples(event.event)
    parts = event.events if isinstance(event, ComposedEvent | ParallelEvent) else ()
    return isinstance(event, SampledGaussianEvent) or any(_samples(part) for part in parts)


def _tuple_of_events(events: object) -> tuple[Event, ...]:
    if not isinstance(events, list | tuple) or not all(isinstance(event, Event) for event in events):
        raise InputError("events must be a list or tuple of events.")
    return tuple(events)


def _take_from_parts(event: Event, parts: tuple[Event, ...], *, may_be_add_remove: bool = False) -> None:
    """Give ``event`` relation, unit and bound of its parts where it names none, or raise where they disagree."""
    relations, units = {part.relation for part in parts}, {part.unit for part in parts}
    bounds = {part.max_rows_per_person for part in parts}
    if len(units) > 1:
        raise InputError(f"The parts of a {event.kind} event mix rows and persons; state all for one unit.")
    if len(relations) > 1:
        raise InputError(
            f"The parts of a {event.kind} event mix relations; state all for one, with event.under('replace_one')."
        )
    if len(bounds) > 1:
        raise InputError(
            f"The parts of a {event.kind} event allow different numbers of rows per person "
            f"({', '.join(str(bound) for bound in sorted(bounds, key=lambda bound: bound or 0))}); state all for the "
            "smallest, with event.for_fewer_rows."
        )
    relation = parse_relation(event.relation) if event.relation else next(iter(relations), "replace_one")
    unit = event.unit if event.unit else next(iter(units), "row")
    if units - {unit}:
        raise InputError(f"The parts of this {event.kind} event are stated per {units.pop()}, not per {unit}.")
    if relations - {relation} and not (may_be_add_remove and relation == "replace_one"):
        raise InputError(
            f"The parts of this {event.kind} event are stated for {relations.pop()}, not {relation}; use "
            f"event.under({relation!r}) on the whole."
        )
    bound = next(iter(bounds), event.max_rows_per_person)
    if event.max_rows_per_person not in (None, bound):
        raise InputError(
            f"The parts of this {event.kind} event are stated for at most {bound} rows per person, not "
            f"{event.max_rows_per_person}."
        )
    put(event, relation=relation, unit=unit, max_rows_per_person=bound)


KINDS.update(
    {
        kind.kind: kind
        for kind in (
            LaplaceEvent,
            GaussianEvent,
            SampledGaussianEvent,
            ExponentialEvent,
            PureEvent,
            ApproximateEvent,
            ZCDPEvent,
            GDPEvent,
            RepeatedEvent,
            ComposedEvent,
            ParallelEvent,
        )
    }
)
