"""Which two tables a guarantee compares, and whose data differs between them.

``replace_one``: the tables have the same size and one record differs. It is the causal reading of privacy, the
intervention do(Dᵢ = d) against do(Dᵢ = d′). ``add_remove``: one table has one record more. A record is a row, or all
the rows of one person.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypedDict, get_args

from escudo._validate import did_you_mean, one_of, positive, positive_integer, probability, whole
from escudo.errors import InputError

if TYPE_CHECKING:
    from escudo.privacy._events import Event

Relation = Literal["replace_one", "add_remove"]
Unit = Literal["row", "person"]

RELATIONS: tuple[Relation, ...] = get_args(Relation)
UNITS: tuple[Unit, ...] = get_args(Unit)

# Spelled without case, spaces, dashes, slashes and underscores; "bounded" and "unbounded" are the literature's words.
_SYNONYMS: dict[str, Relation] = {
    **dict.fromkeys(
        (
            "replaceone",
            "replace",
            "replaceonerow",
            "bounded",
            "boundeddp",
            "substitute",
            "substituteone",
            "substitution",
            "changeone",
            "changeonedistance",
            "hamming",
            "hammingdistance",
            "swap",
        ),
        "replace_one",
    ),
    **dict.fromkeys(
        (
            "addremove",
            "addorremove",
            "addremoveone",
            "addorremoveone",
            "addonerow",
            "unbounded",
            "unboundeddp",
            "insertdelete",
            "insertdeletedistance",
            "symmetric",
            "symmetricdistance",
        ),
        "add_remove",
    ),
}


def parse_relation(relation: str) -> Relation:
    """Return the relation that a name stands for, in any library's spelling.

    Args:
        relation: ``"replace_one"`` (also ``"bounded"``, ``"substitute"``, ``"change_one"``, ``"REPLACE_ONE"``...) or
            ``"add_remove"`` (also ``"unbounded"``, ``"add/remove"``, ``"ADD_OR_REMOVE_ONE"``, ``"symmetric"``...).

    Raises:
        InputError: If the name is not known; the closest known one is suggested.

    >>> parse_relation("ADD_OR_REMOVE_ONE"), parse_relation("bounded")
    ('add_remove', 'replace_one')
    """
    if isinstance(relation, str):
        found = _SYNONYMS.get("".join(filter(str.isalnum, relation.lower())))
        if found is not None:
            return found
    raise InputError(
        f"relation must be 'replace_one' (one record changes) or 'add_remove' (one record is added or removed); "
        f"got {relation!r:.60}.{did_you_mean(str(relation), RELATIONS)}"
    )


def parse_unit(unit: str, max_rows_per_person: int | None = None) -> Unit:
    """Return the unit, or raise unless a person comes with a bound on rows and a row without one."""
    chosen: Unit = one_of("unit", unit, UNITS)
    if chosen == "person":
        if max_rows_per_person is None:
            raise InputError(
                "unit='person' needs max_rows_per_person: without a bound on the rows of one person there is no "
                "guarantee for that person."
            )
        positive_integer("max_rows_per_person", max_rows_per_person)
    elif max_rows_per_person is not None:
        raise InputError("max_rows_per_person goes with unit='person'; leave it out to protect single rows.")
    return chosen


class NeighbourOptions(TypedDict, total=False):
    """Between which tables a sensitivity or a promise is stated; replacing one row where nothing else is said.

    Attributes:
        relation: Which tables are neighbours.
        unit: Whose data differs between them.
        max_rows_per_person: With ``unit="person"``: the most rows of one person that take part.
    """

    relation: Relation
    unit: Unit
    max_rows_per_person: int | None


class Stated:
    """What holds between two neighbouring tables, and says between which."""

    __slots__ = ()

    relation: Relation
    unit: Unit
    max_rows_per_person: int | None

    @property
    def stated(self) -> NeighbourOptions:
        """Between which tables it holds, as the options that say so elsewhere."""
        return {"relation": self.relation, "unit": self.unit, "max_rows_per_person": self.max_rows_per_person}


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours(Stated):
    """Which two tables a question compares, and what both of them have in common.

    Attributes:
        relation: Which tables are neighbours; any library's spelling is taken.
        unit: Whose data differs between them.
        max_rows_per_person: With ``unit="person"``: the most rows of one person that take part.
        rows: The number of rows if it is public: stated, or the same in all neighbours; None where it is private.
        people: With ``unit="person"``: the number of people, likewise.
        counted: Whether that number was counted in the table that is asked, which is public where all neighbours have
            as many; otherwise somebody stated it.

    Raises:
        InputError: If an argument is out of range, or unit and bound do not go together.

    >>> Neighbours(relation="bounded", rows=120)
    Neighbours(relation='replace_one', unit='row', max_rows_per_person=None, rows=120, people=None, counted=False)
    """

    relation: Relation = "replace_one"
    unit: Unit = "row"
    max_rows_per_person: int | None = None
    rows: int | None = None
    people: int | None = None
    counted: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", parse_relation(self.relation))
        parse_unit(self.unit, self.max_rows_per_person)
        for name, count in (("rows", self.rows), ("people", self.people)):
            if count is not None:
                object.__setattr__(self, name, whole(name, count, minimum=1))

    @property
    def stated_rows(self) -> int | None:
        """The number of rows that somebody stated, before the table was looked at; None if nobody did."""
        return None if self.counted else self.rows

    @property
    def records(self) -> int | None:
        """The number of what is protected, if it is public; a number of rows bounds that of people."""
        return self.rows if self.people is None else self.people


@dataclass(frozen=True, slots=True)
class Budget:
    """What a question may cost: ε at most, except with probability δ.

    Attributes:
        epsilon: In all.
        delta: In all.
        reserved: Events that are paid from it as well, settled beforehand: what is chosen beside them gets the rest.

    Raises:
        InputError: If ε is not above 0 and at most 100, or δ is not in [0, 1).
    """

    epsilon: float
    delta: float = 0.0
    reserved: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon, at_most=100.0))
        object.__setattr__(self, "delta", probability("delta", self.delta))

    def reserving(self, events: Iterable[Event]) -> Budget:
        """Return the same budget, from which these events are paid as well."""
        return replace(self, reserved=(*self.reserved, *events))
