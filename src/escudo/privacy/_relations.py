"""Which two tables a guarantee compares, and whose data differs between them.

``replace_one``: the tables have the same size and one record differs. It is the causal reading of privacy, the
intervention do(Dᵢ = d) against do(Dᵢ = d′). ``add_remove``: one table has one record more. A record is a row, or all
the rows of one person.
"""

from __future__ import annotations

from typing import Literal, get_args

from escudo._validate import did_you_mean, one_of, positive_integer
from escudo.errors import InputError

__all__ = ["RELATIONS", "UNITS", "Relation", "Unit", "parse_relation", "parse_unit"]

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
