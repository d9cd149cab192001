"""A column as plain data, the form that TOML, JSON and ``Schema.from_dict`` share.

A list is short for the levels of a categorical column. Everything else is a mapping with a ``type``:

=============  ==========================================================================================
type           keys beside ``missing``, ``confirmed``
=============  ==========================================================================================
categorical    ``levels``, ``other``
ordinal        ``levels`` in their order, ``other``
boolean        ``other``; the levels are false and true
numeric        ``lower``, ``upper``, ``bins`` or ``edges``; ``integer``, ``fill``
=============  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from escudo._validate import did_you_mean
from escudo.errors import SchemaError
from escudo.table._columns import Categorical, Column, Numeric

__all__ = ["Spec", "column_from_spec", "default_bins", "spec_of_column"]

Spec = dict[str, Any]

_COMMON = ("type", "missing", "confirmed")
_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "categorical": (*_COMMON, "levels", "other"),
    "ordinal": (*_COMMON, "levels", "other"),
    "boolean": (*_COMMON, "other"),
    "numeric": (*_COMMON, "lower", "upper", "bins", "edges", "integer", "fill"),
}
_AS_A = {kind: f"{'an' if kind == 'ordinal' else 'a'} {kind}" for kind in _KEYS}
_BOOLEAN = (False, True)
_BINS = 20


def column_from_spec(name: str, spec: object) -> Column:
    """Build a column from its plain form.

    Raises:
        SchemaError: If a key is unknown, a value is of the wrong kind, or the column is inconsistent.

    >>> column_from_spec("age", {"type": "numeric", "lower": 0, "upper": 110, "bins": 22}).size
    22
    """
    if isinstance(spec, list | tuple):
        return Categorical(name, tuple(spec))
    if not isinstance(spec, Mapping):
        raise SchemaError(f"column {name!r}: expected a list of levels, or a table with a 'type'.")
    kind = spec.get("type")
    if not isinstance(kind, str) or kind not in _KEYS:
        hint = did_you_mean(kind, _KEYS) if isinstance(kind, str) else ""
        raise SchemaError(f"column {name!r}: type must be one of {', '.join(map(repr, _KEYS))}.{hint}")
    for key in spec:
        if key not in _KEYS[kind]:
            allowed = ", ".join(_KEYS[kind])
            raise SchemaError(
                f"column {name!r}: {_AS_A[kind]} column has no key {key!r:.60}; it may have {allowed}."
                + did_you_mean(str(key)[:60], _KEYS[kind])
            )
    options = {key: value for key, value in spec.items() if key != "type"}
    if kind == "numeric":
        return _numeric(name, options)
    if kind == "boolean":
        return Categorical(name, _BOOLEAN, **options)
    if "levels" not in options:
        raise SchemaError(
            f"column {name!r}: {_AS_A[kind]} column needs levels; list them, such as levels = ['no', 'yes']."
        )
    return Categorical(name, ordered=kind == "ordinal", **options)


def _numeric(name: str, options: dict[str, Any]) -> Numeric:
    if "edges" in options and "bins" in options:
        raise SchemaError(f"column {name!r}: edges and bins say the same thing twice; leave one out.")
    column = Numeric(name, **options)
    if "edges" in options or "bins" in options or column.lower is None or column.upper is None:
        return column
    return replace(column, bins=default_bins(column.lower, column.upper, integer=column.integer))


def default_bins(lower: float, upper: float, *, integer: bool) -> int:
    """Return how many bins to cut [lower, upper] into when nobody said: 20, or one for each whole number if fewer.

    >>> default_bins(0, 4, integer=True), default_bins(0, 4, integer=False)
    (5, 20)
    """
    return int(min(_BINS, upper - lower + 1)) if integer and upper - lower >= 1 else _BINS


def spec_of_column(column: Column) -> Spec:
    """Return the plain form of a column, leaving out what is as by default.

    >>> spec_of_column(Categorical("smoke", ["no", "yes"]))
    {'type': 'categorical', 'levels': ['no', 'yes']}
    """
    spec: Spec
    if isinstance(column, Categorical):
        if column.levels == _BOOLEAN and column.kind == "boolean" and not column.ordered:
            spec = {"type": "boolean"}
        else:
            spec = {"type": "ordinal" if column.ordered else "categorical", "levels": list(column.levels)}
        if column.other is not None:
            spec["other"] = column.other
    else:
        spec = {"type": "numeric"}
        if column.edges is not None:
            spec["edges"] = [_short(edge) for edge in column.edges]
        else:
            if column.lower is not None and column.upper is not None:
                spec |= {"lower": _short(column.lower), "upper": _short(column.upper)}
            spec["bins"] = column.bins
        if column.integer:
            spec["integer"] = True
        if column.fill is not None:
            spec["fill"] = _short(column.fill)
    if column.missing:
        spec["missing"] = True
    if not column.confirmed:
        spec["confirmed"] = False
    return spec


def _short(number: float) -> float | int:
    """Write 5.0 as 5: the same float64 when read back, and easier on the eye."""
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
