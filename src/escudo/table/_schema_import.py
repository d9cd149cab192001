"""Schemas from the neighbours' metadata: SDV (JSON) and SmartNoise (YAML).

SmartNoise's bounds are written to be public, so they count as confirmed. SDV's metadata are mostly detected from data
and state no bounds at all, so whatever they leave open must be stated or learnt. What escudo cannot use (dates, free
text, identifiers) is left out, and a note says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from escudo._validate import did_you_mean
from escudo.errors import SchemaError
from escudo.table._columns import Categorical, Column, Numeric
from escudo.table._schema import Schema
from escudo.table._spec import default_bins

__all__ = ["from_sdv", "from_smartnoise", "is_sdv"]

_SMARTNOISE_TABLE_KEYS = frozenset({
    "rows", "rows_exact", "row_privacy", "max_ids", "sample_max_ids",
    "clamp_counts", "clamp_columns", "use_dpsu", "censor_dims",
})  # fmt: skip


def is_sdv(document: object) -> bool:
    """Whether a JSON document looks like SDV metadata rather than a schema of ours."""
    if not isinstance(document, Mapping):
        return False
    columns = document.get("columns")
    return (
        "METADATA_SPEC_VERSION" in document
        or "tables" in document
        or (isinstance(columns, Mapping) and any(isinstance(c, Mapping) and "sdtype" in c for c in columns.values()))
    )


def from_sdv(document: Mapping[str, Any], *, table: str | None = None) -> Schema:
    """Build a schema from SDV metadata (single table, or one table of several).

    Args:
        document: The metadata, as parsed from JSON.
        table: Which table, if there are several.

    Raises:
        SchemaError: If the metadata name no usable column, or several tables and none is chosen.

    >>> from_sdv({"columns": {"paid": {"sdtype": "boolean"}, "age": {"sdtype": "numerical"}}}).open_columns
    ('age',)
    """
    if "tables" in document:
        document = _choose(document["tables"], table)
    columns = document.get("columns")
    if not isinstance(columns, Mapping):
        raise SchemaError("the SDV metadata describe no columns; expected a 'columns' object.")
    keys = {key for key in (document.get("primary_key"), document.get("sequence_key")) if isinstance(key, str)}
    fields: list[Column] = []
    notes = ["Imported from SDV metadata."]
    for name, spec in columns.items():
        sdtype = spec.get("sdtype") if isinstance(spec, Mapping) else None
        if not isinstance(sdtype, str):
            raise SchemaError(f"column {name!r}: the SDV metadata give it no 'sdtype'.")
        if name in keys or sdtype == "id":
            notes.append(_left_out(name, "an identifier. If it says whose row it is, make it the person_id of [table]"))
        elif sdtype == "boolean":
            fields.append(Categorical(name, (False, True), missing=True))
        elif sdtype == "categorical":
            fields.append(_sdv_categorical(name, spec.get("order")))
        elif sdtype == "numerical":
            whole = "int" in str(spec.get("computer_representation", "")).lower()
            fields.append(
                Numeric(name, integer=whole, missing=True, confirmed=False, note="lower and upper: state or learn them")
            )
        else:
            notes.append(_left_out(name, _unusable(sdtype)))
    return _schema(fields, notes)


def _sdv_categorical(name: str, order: object) -> Categorical:
    if isinstance(order, list) and order:
        note = "levels as listed in the metadata: confirm that they are public"
        return Categorical(name, tuple(order), ordered=True, missing=True, confirmed=False, note=note)
    return Categorical(name, missing=True, confirmed=False, note="levels: state or learn them")


def from_smartnoise(document: object, *, table: str | None = None) -> Schema:
    """Build a schema from SmartNoise metadata (collection, schema, table, columns).

    ``private_id`` and ``max_ids`` become person id and max rows per person, unless ``row_privacy`` is set; nullable
    columns get a missing cell, and a ``missing_value`` is what missing values count as.

    Args:
        document: The metadata, as parsed from YAML.
        table: Which table, as ``table`` or ``schema.table``, if there are several.

    Raises:
        SchemaError: If the metadata name no usable column, or several tables and none is chosen.
    """
    facts = _choose(_smartnoise_tables(document), table)
    fields: list[Column] = []
    notes = ["Imported from SmartNoise metadata."]
    person_id: str | None = None
    for name, spec in facts.items():
        if name in _SMARTNOISE_TABLE_KEYS:
            continue
        if not isinstance(name, str):
            raise SchemaError("a column's name reads as a number or a boolean; put it in quotes.")
        if not isinstance(spec, Mapping) or not isinstance(spec.get("type"), str):
            raise SchemaError(f"column {name!r}: the SmartNoise metadata give it no 'type'.")
        if spec.get("private_id") is True:
            person_id = name
            continue
        column = _smartnoise_column(name, spec)
        if column is None:
            notes.append(_left_out(name, _unusable(spec["type"])))
        else:
            fields.append(column)
    if person_id is None or facts.get("row_privacy") is True:
        return _schema(fields, notes)
    return _schema(fields, notes, person_id=person_id, max_rows_per_person=facts.get("max_ids", 1))


def _smartnoise_tables(document: object) -> dict[str, Any]:
    """Return the tables by ``schema.table``, from the three levels of SmartNoise's layout."""
    tables: dict[str, Any] = {}
    if isinstance(document, Mapping):
        for collection, schemas in document.items():
            if collection == "engine" or not isinstance(schemas, Mapping):
                continue
            for schema, inner in schemas.items():
                if isinstance(inner, Mapping):
                    tables |= {f"{schema}.{name}": facts for name, facts in inner.items() if isinstance(facts, Mapping)}
    if not tables:
        raise SchemaError(
            "no SmartNoise table found; expected collection, schema, table and columns, nested in this order."
        )
    return tables


def _smartnoise_column(name: str, spec: Mapping[str, Any]) -> Column | None:
    kind = spec["type"]
    fallback = spec.get("missing_value")
    missing = spec.get("nullable", True) is not False and fallback is None
    if kind == "boolean":
        other = fallback if isinstance(fallback, bool) else None
        return Categorical(name, (False, True), missing=missing, other=other)
    if kind == "string":
        return Categorical(name, missing=missing, confirmed=False, note="levels: state or learn them")
    if kind not in ("int", "float"):
        return None
    lower, upper = _number(name, "lower", spec), _number(name, "upper", spec)
    if lower is None or upper is None:
        note = "lower and upper: state or learn them"
        return Numeric(name, integer=kind == "int", missing=missing, confirmed=False, note=note)
    fill = _number(name, "missing_value", spec)
    return Numeric(
        name,
        lower,
        upper,
        default_bins(lower, upper, integer=kind == "int"),
        integer=kind == "int",
        missing=missing,
        fill=None if fill is None else min(max(fill, lower), upper),
        note="the metadata say nothing about bins: change the number if you like",
    )


def _number(name: str, key: str, spec: Mapping[str, Any]) -> float | None:
    value = spec.get(key)
    if value is None:
        return None
    try:
        return float(value)  # YAML reads 1e6 as text
    except (TypeError, ValueError, OverflowError):
        raise SchemaError(f"column {name!r}: {key} must be a finite number.") from None


def _choose(tables: object, wanted: str | None) -> Mapping[str, Any]:
    if not isinstance(tables, Mapping) or not tables:
        raise SchemaError("the metadata describe no tables.")
    if wanted is not None:
        matches = [name for name in tables if str(name) == wanted or str(name).endswith(f".{wanted}")]
    else:
        matches = list(tables)
    listed = ", ".join(map(repr, tables))
    if not matches:
        raise SchemaError(
            f"no table {wanted!r}; the metadata describe {listed}." + did_you_mean(str(wanted), map(str, tables))
        )
    if len(matches) > 1:
        raise SchemaError(f"the metadata describe several tables, {listed}: say which one (--table, or table=...).")
    facts = tables[matches[0]]
    if not isinstance(facts, Mapping):
        raise SchemaError(f"table {matches[0]!r} is not described by a mapping.")
    return facts


def _unusable(kind: str) -> str:
    if kind in ("datetime", "date", "time"):
        return "a date or time. To use it, add a column of whole days since a public date"
    return f"of type {kind!r}, which is no number and has no fixed levels"


def _left_out(name: str, why: str) -> str:
    return f"Left out {name!r}: {why}."


def _schema(fields: list[Column], notes: list[str], **person: Any) -> Schema:
    if not fields:
        raise SchemaError("the metadata hold no column that escudo can use: numbers, booleans or categories.")
    return Schema(tuple(fields), notes=tuple(notes), **person)
