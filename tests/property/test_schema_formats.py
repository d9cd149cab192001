"""Schemas survive every format, and no text, document or table makes a parser fail in any other way than ours."""

from __future__ import annotations

import json
import math
import traceback
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

from escudo.errors import EscudoError
from escudo.table import Categorical, Column, Numeric, Schema, check, draft, outline
from escudo.table._schema_files import confirm_toml, from_sdv, from_smartnoise, parse_schema

NAMES = st.text(min_size=1, max_size=8).filter(lambda text: text.isascii() or _encodable(text))
TEXTS = st.text(max_size=8).filter(lambda text: _encodable(text) and text != "(missing)")
FINITE = st.floats(min_value=-1e12, max_value=1e12, allow_nan=False)


def _encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


@st.composite
def categorical(draw: st.DrawFn, name: str) -> Categorical:
    kind = draw(st.sampled_from([TEXTS, st.integers(-(2**53) + 1, 2**53 - 1), st.booleans()]))
    levels = draw(st.lists(kind, unique=True, max_size=6))
    confirmed = draw(st.booleans()) and bool(levels)
    return Categorical(
        name,
        tuple(levels),
        ordered=draw(st.booleans()),
        missing=draw(st.booleans()),
        other=draw(st.sampled_from([None, *levels])),
        confirmed=confirmed,
        note=draw(TEXTS),
    )


@st.composite
def numeric(draw: st.DrawFn, name: str) -> Numeric:
    options: dict[str, Any] = {"integer": draw(st.booleans()), "missing": draw(st.booleans()), "note": draw(TEXTS)}
    form = draw(st.sampled_from(["bins", "edges", "open"]))
    if form == "open":
        return Numeric(name, bins=draw(st.integers(1, 9)), confirmed=False, **options)
    steps = draw(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=6))
    lower = draw(st.floats(-1e6, 1e6))
    edges = np.cumsum([lower, *steps]).tolist()
    options |= {"confirmed": draw(st.booleans()), "fill": draw(st.sampled_from([None, lower]))}
    if form == "edges":
        return Numeric(name, edges=tuple(edges), **options)
    return Numeric(name, edges[0], edges[-1], draw(st.integers(1, 999)), **options)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    names = draw(st.lists(NAMES, unique=True, min_size=1, max_size=5))
    columns: list[Column] = [draw(st.one_of(categorical(name), numeric(name))) for name in names]
    person = draw(st.none() | NAMES.filter(lambda name: name not in names))
    rows = None if person is None else draw(st.integers(1, 10**6))
    return Schema(
        tuple(columns), person_id=person, max_rows_per_person=rows, notes=tuple(draw(st.lists(TEXTS, max_size=2)))
    )


@given(schemas())
def test_a_schema_survives_every_format(schema):
    assert parse_schema(schema.to_toml(), ".toml") == schema
    assert parse_schema(json.dumps(schema.to_dict()), ".json") == schema
    again = Schema.from_dict(schema.to_dict())
    assert again == schema
    assert again.fingerprint == schema.fingerprint


@given(schemas(), st.data())
def test_confirming_in_place_means_confirming_the_schema(schema, data):
    closed = [column.name for column in schema.fields if not column.confirmed and not column.open]
    names = data.draw(st.lists(st.sampled_from(closed), unique=True)) if closed else []
    after = schema.confirm(names)
    assert parse_schema(confirm_toml(schema.to_toml(), names, confirmed=after), ".toml") == after


# Fuzzing: whatever comes in, only our own errors come out.


def survives(function, *arguments, **options):
    try:
        result = function(*arguments, **options)
    except EscudoError:
        return None
    assert isinstance(result, Schema)
    assert parse_schema(result.to_toml(), ".toml") == result
    return result


SDV = {
    "METADATA_SPEC_VERSION": "V1",
    "tables": {
        "t": {
            "primary_key": "i",
            "columns": {
                "i": {"sdtype": "id"},
                "n": {"sdtype": "numerical", "computer_representation": "Int64"},
                "c": {"sdtype": "categorical", "order": [1, 2]},
            },
        }
    },
}
SEEDS = {
    ".toml": """
[table]
person_id = "p"
max_rows_per_person = 2
[columns]
a = ["x", "y"]
[columns."b c"]
type = "numeric"
lower = -1.5
upper = 1e3
bins = 4
missing = true
confirmed = false
""",
    ".json": json.dumps(SDV),
    ".yaml": """
"":
  s:
    t:
      max_ids: 3
      n: {type: int, lower: 0, upper: 9}
      b:
        type: boolean
        nullable: no
      p: {type: string, private_id: true}
      f: {type: float, missing_value: 1e3}
""",
}
ENDINGS = st.sampled_from(sorted(SEEDS))
TOKENS = st.sampled_from(
    [
        *"[]{}\"':,=\n\t#~\x00\ufeff\ud7ff",
        *("&a ", "*a", "!!int ", "- ", "? ", "<<: ", "[[", "nan", "inf", "-1", "1e999", "9" * 30),
        *("true", "null", "2020-13-40", "levels", "type", "columns"),
    ]
)


@given(ENDINGS, st.text(max_size=60))
def test_random_text_never_breaks_a_parser(ending, text):
    survives(parse_schema, text, ending)


@given(ENDINGS, st.lists(TOKENS, max_size=25))
def test_random_tokens_never_break_a_parser(ending, tokens):
    survives(parse_schema, "".join(tokens), ending)


@given(ENDINGS, st.data())
def test_mutated_files_never_break_a_parser(ending, data):
    text = SEEDS[ending]
    for _ in range(data.draw(st.integers(0, 3))):
        start = data.draw(st.integers(0, len(text)))
        stop = start + data.draw(st.integers(0, 12))
        text = text[:start] + data.draw(TOKENS | st.text(max_size=4)) + text[stop:]
    survives(parse_schema, text, ending)


def test_the_seeds_of_the_mutations_are_valid():
    assert all(survives(parse_schema, text, ending) is not None for ending, text in SEEDS.items())


KEYS = st.sampled_from(
    [
        *(
            "columns",
            "table",
            "tables",
            "type",
            "levels",
            "lower",
            "upper",
            "bins",
            "edges",
            "fill",
            "other",
            "missing",
        ),
        *("confirmed", "sdtype", "order", "primary_key", "person_id", "max_rows_per_person", "max_ids", "private_id"),
    ]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 10**18)
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["numeric", "categorical", "ordinal", "boolean", "numerical", "int", "float", "string", "id"])
    | st.just(10**400)
    | st.dates()
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=2) | st.integers(0, 2), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(DOCUMENTS)
@example({"columns": {"x": {"type": "numeric", "lower": 0, "upper": 10**400}}})
@example({"x": {"type": "categorical", "levels": [[1]], "confirmed": False}})
def test_random_documents_never_break_from_dict(document):
    survives(Schema.from_dict, document)
    survives(Schema.from_dict, {"x": document})


@given(st.dictionaries(KEYS, DOCUMENTS, max_size=4))
def test_random_metadata_never_break_an_importer(document):
    survives(from_sdv, document)
    survives(from_sdv, {"columns": document})
    survives(from_smartnoise, {"a": {"b": {"c": document}}})


# Encoding


VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from([pd.NA, pd.NaT, (1,), [2]])
)


@given(numeric("x").filter(lambda column: not column.open), st.lists(VALUES, max_size=20), st.data())
def test_a_number_falls_into_the_bin_that_counts_the_boundaries_it_reaches(column, values, data):
    boundaries = column.boundaries.tolist()
    near = st.sampled_from(boundaries).flatmap(
        lambda b: st.sampled_from([b, math.nextafter(b, -math.inf), math.nextafter(b, math.inf)])
    )
    numbers = data.draw(st.lists(near | FINITE, max_size=20))
    assert column.encode(numbers).tolist() == [sum(x >= b for b in boundaries[1:-1]) for x in numbers]
    assert column.encode(np.array(numbers, dtype=np.float64)).tolist() == column.encode(numbers).tolist()
    assert all(0 <= code < column.size for code in column.encode(values))
    bins = np.arange(column.bins)
    assert column.encode(column.decode(bins)).tolist() == bins.tolist()


@given(categorical("x").filter(lambda column: not column.open), st.lists(VALUES, max_size=20))
def test_a_level_falls_into_its_own_cell_and_anything_else_into_a_valid_one(column, values):
    assert column.encode(column.levels).tolist() == list(range(len(column.levels)))
    assert all(0 <= code < column.size for code in column.encode(values))
    cells = np.arange(column.size)
    assert column.encode(column.decode(cells).tolist()).tolist() == cells.tolist()


# Drafts of any table


SECRETS = VALUES | st.text(max_size=2).map("§".__add__)


@given(st.dictionaries(st.text(max_size=4), st.lists(SECRETS, min_size=6, max_size=6), min_size=1, max_size=3))
def test_no_table_of_objects_breaks_a_draft_or_a_check_or_speaks_through_them(columns):
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
    shown = []
    for make in (outline, draft):
        try:
            schema = make(frame)
        except EscudoError as error:
            shown.append("".join(traceback.format_exception(error)))
            continue
        shown += [repr(schema), repr(schema.fields), schema._repr_html_(), *schema.notes]
        report = check(frame, schema)
        shown.append(repr(report))
        assert all(column.outside == 0 for column in report.columns if not schema[column.name].open)
    if not any("§" in name for name in columns):
        assert not any("§" in text for text in shown)


@given(
    st.lists(st.none() | st.floats() | st.integers(-(10**6), 10**6).map(float), min_size=1, max_size=40),
    st.lists(st.none() | st.text(max_size=2), min_size=1, max_size=40),
)
def test_a_draft_covers_the_data_it_was_drafted_from(numbers, texts):
    rows = min(len(numbers), len(texts))
    frame = pl.DataFrame(
        {"number": numbers[:rows], "text": texts[:rows]}, schema={"number": pl.Float64, "text": pl.String}
    ).with_columns(flag=pl.lit(True))
    schema = draft(frame)
    report = {column.name: column for column in check(frame, schema).columns}
    for name, column in schema.columns.items():
        if column.open:
            continue
        infinite = sum(x is not None and math.isinf(x) for x in numbers[:rows]) / rows if name == "number" else 0.0
        assert math.isclose(report[name].outside, infinite, abs_tol=1e-12)
        assert column.missing or report[name].missing == 0
