"""The base of all events: what every event carries, its checks, and its JSON form."""

from __future__ import annotations

import math
from abc import abstractmethod  # of no ABC: making an Event is refused in words, see __post_init__
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

from escudo._validate import did_you_mean, positive, whole
from escudo.errors import InputError, UnsupportedEventError
from escudo.privacy._relations import RELATIONS, UNITS, Relation, Unit, parse_relation, parse_unit

__all__ = [
    "KINDS",
    "MAX_EPSILON",
    "MAX_RHO",
    "Event",
    "check_count",
    "check_loss",
    "put",
]

MAX_EPSILON = 1e3
"""Largest epsilon or mu an event may state: e^1000 protects nobody, so a larger number is a slip."""
MAX_RHO = MAX_EPSILON**2 / 2
MAX_COUNT = 10**9
MAX_DEPTH = 32
"""Deepest nesting a reader accepts, so that a hostile file cannot exhaust the stack."""

KINDS: dict[str, type[Event]] = {}
"""Every kind of event by the name it has in JSON; filled once, where the kinds are defined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
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
        from escudo.privacy._composition import leaf_curve
        from escudo.privacy._curves import ORDERS

        loss = float((leaf_curve(self).renyi / ORDERS).max())
        return loss if math.isfinite(loss) else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the event as plain JSON values; ``from_json`` reads them back to an equal event.

        >>> from escudo.privacy import PureEvent
        >>> PureEvent(epsilon=0.5).to_json()
        {'kind': 'pure', 'version': 1, 'relation': 'replace_one', 'unit': 'row', 'epsilon': 0.5}
        """
        return {"kind": self.kind, "version": self.version} | {
            name: _plain(getattr(self, name)) for name in _names(type(self), self.version)
        }

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
        return _read(data, path="event", depth=0, bound=max_rows_per_person)

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


def check_loss(name: str, value: object, *, at_most: float = MAX_EPSILON) -> float:
    """Return a finite loss of at least 0; a huge one is refused, because it protects nobody."""
    number = positive(name, value, allow_zero=True)
    if number > at_most:
        raise InputError(f"{name} must be at most {at_most:g}; got {number:g}, which would protect nobody.")
    return number


def check_count(name: str, value: object) -> int:
    """Return a whole number of at least 1 and at most a thousand million."""
    number = whole(name, value, minimum=1)
    if number > MAX_COUNT:
        raise InputError(f"{name} must be at most {MAX_COUNT:,}.")
    return number


def _plain(value: object) -> object:
    if isinstance(value, Event):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _names(kind: type[Event], version: int) -> list[str]:
    """Return the fields of an event in this version of its JSON form."""
    return [field.name for field in fields(kind) if version > 1 or field.name != "max_rows_per_person"]


def _read(data: object, *, path: str, depth: int, bound: int | None) -> Event:
    """Read one event of a JSON document; ``path`` says where it stands, for messages."""
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
    values = {key: _read_value(key, data[key], path=path, depth=depth, bound=bound) for key in names}
    if version == 2 and values["unit"] != "person":
        raise UnsupportedEventError(f"{path}: version 2 is for persons; an event stated per row has version 1.")
    if version == 1 and values["unit"] == "person":
        if bound is None:
            raise UnsupportedEventError(
                f"{path}: version 1 does not state how many rows of one person it covers, and what holds it does not "
                "either. Read it with max_rows_per_person, the bound that it was made for."
            )
        values["max_rows_per_person"] = bound
    try:
        return kind(**values)
    except InputError as error:
        raise UnsupportedEventError(f"{path}: {error}") from None


def _read_value(key: str, value: Any, *, path: str, depth: int, bound: int | None) -> Any:
    # Values are JSON's; the event's own checks decide which are allowed.
    if key == "event":
        return _read(value, path=f"{path}.event", depth=depth + 1, bound=bound)
    if key == "events":
        if not isinstance(value, list):
            raise UnsupportedEventError(f"{path}: events must be a list.")
        return tuple(
            _read(part, path=f"{path}.events[{i}]", depth=depth + 1, bound=bound) for i, part in enumerate(value)
        )
    if key == "max_rows_per_person" and (type(value) is not int or value < 1):
        raise UnsupportedEventError(f"{path}: max_rows_per_person must be a whole number of at least 1.")
    if key == "relation" and value not in RELATIONS:
        raise UnsupportedEventError(f"{path}: unknown relation {value!r:.60}; expected {' or '.join(RELATIONS)}.")
    if key == "unit" and value not in UNITS:
        raise UnsupportedEventError(f"{path}: unknown unit {value!r:.60}; expected {' or '.join(UNITS)}.")
    return value
