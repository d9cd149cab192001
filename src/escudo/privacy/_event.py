"""The base of all events: what every event carries, its checks, and its JSON form."""

from __future__ import annotations

from abc import abstractmethod  # of no ABC: making an Event is refused in words, see __post_init__
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

from escudo._validate import did_you_mean, one_of, positive, whole
from escudo.errors import InputError, UnsupportedEventError
from escudo.privacy._relations import RELATIONS, UNITS, Relation, Unit, parse_relation

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
    """

    kind: ClassVar[str] = ""
    version: ClassVar[int] = 1

    relation: Relation = "replace_one"
    unit: Unit = "row"

    def __post_init__(self) -> None:
        if not self.kind:
            raise InputError("Event is the base of all events; make one of its kinds, such as PureEvent(epsilon=1.0).")
        put(self, relation=parse_relation(self.relation), unit=one_of("unit", self.unit, UNITS))

    def to_json(self) -> dict[str, Any]:
        """Return the event as plain JSON values; ``from_json`` reads them back to an equal event.

        >>> from escudo.privacy import PureEvent
        >>> PureEvent(epsilon=0.5).to_json()
        {'kind': 'pure', 'version': 1, 'relation': 'replace_one', 'unit': 'row', 'epsilon': 0.5}
        """
        return {"kind": self.kind, "version": self.version} | {
            field.name: _plain(getattr(self, field.name)) for field in fields(self)
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Event:
        """Return the event that ``to_json`` wrote.

        Raises:
            UnsupportedEventError: If the kind, version or a field is unknown, or a field is missing or out of range.
                The message names the event and, inside a structured event, the part.
        """
        return _read(data, path="event", depth=0)

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
        return self.stretched(check_count("max_rows_per_person", max_rows_per_person))._per_person()

    def _replacing(self) -> Event:
        """Return this ``add_remove`` event as a ``replace_one`` event."""
        return replace(self.stretched(2), relation="replace_one")

    def _per_person(self) -> Event:
        return replace(self, unit="person")


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


def _read(data: object, *, path: str, depth: int) -> Event:
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
    if type(version) is not int or version != kind.version:
        raise UnsupportedEventError(f"{path}: this escudo reads version {kind.version}, not {version!r:.60}.")
    names = {field.name for field in fields(kind)}
    given = {str(key) for key in data} - {"kind", "version"}
    if given != names:
        wrong = [f"unknown field {key!r:.60}" for key in sorted(given - names)]
        wrong += [f"missing field {key!r}" for key in sorted(names - given)]
        raise UnsupportedEventError(f"{path}: {', '.join(wrong[:5])}.")
    values = {key: _read_value(key, data[key], path=path, depth=depth) for key in names}
    try:
        return kind(**values)
    except InputError as error:
        raise UnsupportedEventError(f"{path}: {error}") from None


def _read_value(key: str, value: Any, *, path: str, depth: int) -> Any:
    # Values are JSON's; the event's own checks decide which are allowed.
    if key == "event":
        return _read(value, path=f"{path}.event", depth=depth + 1)
    if key == "events":
        if not isinstance(value, list):
            raise UnsupportedEventError(f"{path}: events must be a list.")
        return tuple(_read(part, path=f"{path}.events[{i}]", depth=depth + 1) for i, part in enumerate(value))
    if key == "relation" and value not in RELATIONS:
        raise UnsupportedEventError(f"{path}: unknown relation {value!r:.60}; expected {' or '.join(RELATIONS)}.")
    if key == "unit" and value not in UNITS:
        raise UnsupportedEventError(f"{path}: unknown unit {value!r:.60}; expected {' or '.join(UNITS)}.")
    return value
