"""Neighbouring tables, from ordinary rows and from every value that somebody's row might hold, in every engine."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

import dask
import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from escudo.causal import CausalGraph
from escudo.privacy import Relation, Unit
from escudo.table import Schema

Row = dict[str, Any]
Rows = list[Row]
Content = Literal["mixed", "numbers", "unbinned", "rare", "written"]

MOST_ROWS = 2  # of a person that count
RELATIONS: tuple[Relation, ...] = ("replace_one", "add_remove")
UNITS: tuple[Unit, ...] = ("row", "person")

MIXED: dict[str, Any] = {
    "smoke": ["no", "yes"],
    "age": {"type": "numeric", "lower": 0, "upper": 100, "bins": 4, "missing": True},
    "stage": {"type": "ordinal", "levels": [1, 2, 3]},
    "lung": {"type": "boolean", "missing": True},
}
NUMBERS: dict[str, Any] = {
    name: {"type": "numeric", "lower": 0, "upper": 100, "bins": 4} for name in ("height", "dose", "pressure")
}
UNBINNED: dict[str, Any] = {**MIXED, "age": {"type": "numeric", "lower": 0, "upper": 100, "missing": True}}
CODES = [f"code {place}" for place in range(14)]
RARE: dict[str, Any] = {
    **{name: {"type": "boolean", "missing": place % 5 == 0} for place, name in enumerate(CODES)},
    "stage": MIXED["stage"],
}
WRITTEN: dict[str, Any] = {
    "smoke": MIXED["smoke"],
    "price": {"type": "numeric", "lower": 0, "upper": 100, "bins": 4, "format": "$1,234.5", "missing": True},
    "share": {"type": "numeric", "lower": 0, "upper": 1, "bins": 4, "format": "123450.0%"},
    "lung": MIXED["lung"],
}
"""Columns of numbers that are written as texts."""
COLUMNS: dict[Content, dict[str, Any]] = {
    "mixed": MIXED, "numbers": NUMBERS, "unbinned": UNBINNED, "rare": RARE, "written": WRITTEN,
}  # fmt: skip
RULES = ("lung = true -> smoke = yes", "age >= 90 -> stage != 1")
"""Public rules for columns without bins, which about half of the private rows break."""

ARROWS = {
    "mixed": [("smoke", "lung"), ("age", "stage"), ("stage", "lung")],
    "unbinned": [("smoke", "lung"), ("age", "stage"), ("stage", "lung")],
    "numbers": [("height", "dose"), ("height", "pressure"), ("dose", "pressure")],
    "rare": [("stage", "code 0"), ("stage", "code 1")],
    "written": [("smoke", "lung"), ("price", "share"), ("share", "lung")],
}


class Hostile:
    """Raises whatever it is asked."""

    def _no(self, *_: Any) -> Any:
        raise RuntimeError("a private value")

    __eq__ = __lt__ = __float__ = __int__ = __bool__ = __str__ = __repr__ = __len__ = __iter__ = __array__ = _no  # type: ignore[assignment]
    __hash__ = _no  # type: ignore[assignment]


class Twofold:
    """Is whatever its asker likes to hear."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("yes")

    def __float__(self) -> float:
        return 50.0


def schema_of(content: Content, unit: Unit) -> Schema:
    """Return the schema of a table."""
    columns = dict(COLUMNS[content])
    terms: dict[str, Any] = {"person_id": "who", "max_rows_per_person": MOST_ROWS} if unit == "person" else {}
    schema = Schema.from_dict(columns, **terms)
    return replace(schema, rules=RULES) if content == "unbinned" else schema


def graph_of(content: Content) -> CausalGraph:
    """Return the causal graph of a table."""
    return CausalGraph.from_edges(ARROWS[content])


TEXTS = [
    "no", "yes", "", "NO", " yes ", "a secret habit", "\x00", "\x001", "nan", "None", "null", "1", "true", "é",
    "e\u0301", "＝ｙｅｓ", 'say "yes"', '"', "'", "a,b", "a\tb", "=cmd|' /C calc'!A0", "x" * 3000, "☕", "\u202eyes",
    "yes\u200b",
]  # fmt: skip
NUMBERS_IN_TEXTS = [
    "$50", "-$5", "$1,234.50", "$1,2", "$ 7 ", "$7e1", "1E-3", "1e999", "-1e999", "1e-999", "e5", "$", ".", "-", "+-5",
    "50%", "5 %", "% 5", "5e1%", "0.5", "120%", "-3%", "99.99999999999999999999%", "1" * 3000, "$1" + ",000" * 900,
    "1e" + "9" * 3000, " " * 3000 + "5", "5" + " " * 3000 + "%", "5\n%", "\u066053", "５", "$5\x00", "inf", "NaN",
    "5%%", "25%", "25.000000000000001%", "$25", "$24.999999999999999999", "\u22125", "(5)", "5,5",
]  # fmt: skip
REALS = [
    math.nan, math.inf, -math.inf, -0.0, 0.0, 1.0, 2.0, 25.0, math.nextafter(25.0, 0), 50.0, 100.0,
    100.00000000000001, 2.0**53 - 1, 2.0**53, 2.0**53 + 2, -(2.0**53), 2.0**63, -(2.0**64), 5e-324, 1e308, -1e308,
    1e-30, 3.5,
]  # fmt: skip
OBJECTS: list[Any] = [
    Decimal("sNaN"), Decimal("NaN"), Decimal("-Infinity"), Decimal("1e999999"), Decimal("1e-999999"), Decimal("2.0"),
    Decimal("0.1"), Fraction(1, 3), Fraction(10**400), complex(1, 2), complex(math.nan, 0), complex(2, 0), b"yes",
    b"\xff", bytearray(b"no"), memoryview(b"yes"), [1], ["yes"], {"a": 1}, (1, 2), {1}, frozenset({"no"}), 10**5000,
    -(10**400), 2**53 + 1, 2**63, True, False, np.float32(3), np.float16(2), np.int64(2), np.uint8(1), np.bool_(True),
    np.str_("yes"), np.bytes_(b"no"), np.complex128(1j), np.longdouble(2), np.datetime64("NaT"),
    np.datetime64("2020-01-01"), np.timedelta64(3, "D"), np.array([1, 2]), np.array("yes"), pd.NA, pd.NaT,
    pd.Timestamp(0), pd.Interval(0, 1), datetime(2020, 1, 1, tzinfo=UTC), date(1900, 1, 1), "\ud800", "yes\udfff",
    uuid.UUID(int=7), object, range(3), Hostile(), Twofold(), lambda: 1, Ellipsis, float, int("9" * 30),
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two neighbouring tables.

    Attributes:
        first: The rows of one.
        second: The rows of the other.
        relation: How they differ.
        unit: In whose rows.
        label: The difference in words, for a finding.
    """

    first: Rows
    second: Rows
    relation: Relation
    unit: Unit
    label: str


def ordinary(content: Content, rng: np.random.Generator) -> Row:
    """Return somebody's row with nothing strange in it."""
    if content == "numbers":
        height = float(rng.random() * 100)
        return {"height": height, "dose": float(rng.random() * 50 + height / 2), "pressure": float(rng.random() * 100)}
    if content == "rare":
        return {**{name: bool(rng.random() < 0.04) for name in CODES}, "stage": int(rng.integers(1, 4))}
    if content == "written":
        amount, part = rng.random() * 1200, rng.random() * 100
        return {
            "smoke": str(rng.choice(["no", "yes"])),
            "price": f"${amount / 10:,.2f}" if amount < 1000 else f"{amount:.3e}",
            "share": f"{part:.1f}%" if part < 80 else f"{part / 100:.3f}",
            "lung": bool(rng.random() < 0.5),
        }
    return {
        "smoke": str(rng.choice(["no", "yes"])),
        "age": float(rng.integers(0, 100)),
        "stage": int(rng.integers(1, 4)),
        "lung": bool(rng.random() < 0.5),
    }


def odd(content: Content, rng: np.random.Generator, *, objects: bool) -> Row:
    """Return a row in which some values are strange; where ``objects`` fit, of any kind."""
    row = ordinary(content, rng)
    for name in row:
        if rng.random() < 0.6:
            row[name] = _odd_value(name, rng, objects=objects)
    return row


def _odd_value(name: str, rng: np.random.Generator, *, objects: bool) -> Any:
    def one(values: Sequence[Any]) -> Any:
        return values[int(rng.integers(len(values)))]

    if rng.random() < 0.15:
        return None
    if objects and rng.random() < 0.7:
        return one([*OBJECTS, *TEXTS, *REALS])
    if name == "smoke":
        return one(TEXTS)
    if name in ("price", "share"):
        return one([*NUMBERS_IN_TEXTS, *NUMBERS_IN_TEXTS, *TEXTS])
    if name == "lung" or name in CODES:
        return one([True, True, False, None])
    if name == "stage":
        return one([0, 1, 2, 3, 99, -1, 2**31, -(2**31), 2**53, 2**53 + 1, 2**63 - 1, -(2**63)])
    return one(REALS)


MERGED = 2**53
"""The id of somebody whom floats cannot tell from the next one: in a column of floats, rows of nobody."""


def base_rows(content: Content, rng: np.random.Generator, count: int, unit: Unit) -> Rows:
    """Return a table to start from."""
    rows = [ordinary(content, rng) for _ in range(count)]
    for place, row in enumerate(rows):
        row["who"] = (place // 2 or MERGED) if unit == "person" else place
        row["remark"] = "nothing"  # a column that the schema does not name
    return rows


def neighbour(
    rows: Rows, content: Content, relation: Relation, unit: Unit, rng: np.random.Generator, *, objects: bool
) -> Pair:
    """Return the rows beside others that differ in one row or person."""
    change = _changed_row if unit == "row" else _changed_person
    second, label = change(rows, content, relation, rng, objects)
    return Pair(first=rows, second=second, relation=relation, unit=unit, label=label)


def _newcomer(content: Content, rng: np.random.Generator, objects: bool, who: Any) -> Row:
    row = odd(content, rng, objects=objects) if rng.random() < 0.8 else ordinary(content, rng)
    row["who"] = who
    row["remark"] = _odd_value("smoke", rng, objects=objects)
    return row


def _changed_row(
    rows: Rows, content: Content, relation: Relation, rng: np.random.Generator, objects: bool
) -> tuple[Rows, str]:
    second, place = list(rows), int(rng.integers(len(rows) + (relation == "add_remove"))) if rows else 0
    row = _newcomer(content, rng, objects, who=0)
    if relation == "add_remove":
        second.insert(place, row)
        return second, f"row {place} comes"
    second[place] = row
    return second, f"row {place} becomes another"


NOBODY = [None, math.nan, pd.NA, pd.NaT, Decimal("NaN"), Decimal("sNaN"), np.datetime64("NaT")]


def _changed_person(
    rows: Rows, content: Content, relation: Relation, rng: np.random.Generator, objects: bool
) -> tuple[Rows, str]:
    """Let one person come, or one be another: with other rows, more or fewer, also beyond the bound."""
    people = sorted({row["who"] for row in rows} - {MERGED})
    if relation == "add_remove":
        rest, ids, label = list(rows), _fresh_ids(rng, objects, max(people, default=0) + 1), "a person comes"
        if rng.random() < 0.15:
            ids, label = (NOBODY if objects else [None]), "rows of nobody come"
    else:
        leaving = people[int(rng.integers(len(people)))]
        rest = [row for row in rows if row["who"] != leaving]
        kept = rng.random() < 0.6
        own = _spellings(leaving) if objects else [leaving]
        ids = own if kept else _fresh_ids(rng, objects, max(people) + 1, certain=True)
        label = f"person {leaving} becomes another"
    for _ in range(int(rng.integers(1, 7))):
        row = _newcomer(content, rng, objects, who=ids[int(rng.integers(len(ids)))])
        rest.insert(int(rng.integers(len(rest) + 1)), row)
    return rest, label


def _spellings(number: int) -> list[Any]:
    """Return ways to write one person's number."""
    same = [
        number,
        float(number),
        Decimal(number),
        Decimal(number).scaleb(2).scaleb(-2),
        Fraction(number),
        np.int64(number),
    ]
    return [*same, bool(number), np.bool_(number)] if number in (0, 1) else [*same, np.float32(number)]


def _fresh_ids(rng: np.random.Generator, objects: bool, free: int, *, certain: bool = False) -> list[Any]:
    """Return the ways in which somebody new is written; all of them are one person.

    ``certain``: only what is an id without doubt. Who is replaced by nobody has left, and that is another relation.
    """
    if not objects:
        return [free] if certain or rng.random() < 0.7 else [MERGED + 1]
    another = [[f"\x00{free - 1}"], [f"\x00n{free - 1:x}"], [str(free - 1)]]  # looks like somebody who is there
    kinds: list[list[Any]] = [
        *another, *another, *another, _spellings(free), _spellings(free), ["\x001"],
        ["1"], [0.5, Decimal("0.5")], [Decimal("0.1")], [0.1], [10**5000], [2**53 + 1], [-(2**70)], [Fraction(1, 3)],
        [np.str_("x"), "x"],
    ]  # fmt: skip
    if not certain:
        kinds += [
            [""], [b"1"], [uuid.UUID(int=1)], ["\ud800"], [Decimal("1e999999")], [Decimal("Infinity"), math.inf],
            [2.0**60], [complex(7, 7)], [(1, 2)], [date(2000, 1, 1)], [Hostile()], [Twofold()],
        ]  # fmt: skip
    return kinds[int(rng.integers(len(kinds)))]


# ---- the same rows in every engine


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return str(value)


def _real(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and abs(value) < 1e309 else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


TYPES: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "smoke": (pl.String, _text),
    "remark": (pl.String, _text),
    "price": (pl.String, _text),
    "share": (pl.String, _text),
    "lung": (pl.Boolean, _flag),
    "stage": (pl.Int64, _whole),
    "who": (pl.Int64, _whole),
    **{name: (pl.Boolean, _flag) for name in CODES},
}


def _polars(rows: Rows, names: Sequence[str]) -> pl.DataFrame:
    columns = {}
    for name in names:
        dtype, read = TYPES.get(name, (pl.Float64, _real))
        columns[name] = pl.Series(name, [read(row[name]) for row in rows], dtype=dtype)
    return pl.DataFrame(columns)


def _texts(rows: Rows, names: Sequence[str]) -> pl.DataFrame:
    """Return a frame whose ids are texts."""
    return _polars(rows, names).with_columns(pl.format("p{}", pl.col("who")).alias("who"))


def _objects(rows: Rows, names: Sequence[str]) -> pd.DataFrame:
    columns = {}
    for name in names:
        values = np.empty(len(rows), dtype=object)
        for place, row in enumerate(rows):
            values[place] = row[name]
        columns[name] = pd.Series(values, dtype=object)
    return pd.DataFrame(columns)


def _pandas(rows: Rows, names: Sequence[str]) -> pd.DataFrame:
    """Return pandas with NumPy's types, ids as the floats that they become beside a missing one."""
    typed = _polars(rows, names)
    return pd.DataFrame(
        {
            name: typed[name].cast(pl.Float64).to_numpy() if typed[name].dtype != pl.String else typed[name].to_pandas()
            for name in names
        }
    )


def _dask(rows: Rows, names: Sequence[str]) -> Any:
    """Return Dask with three partitions, the last one empty."""
    dask.config.set({"dataframe.convert-string": False})  # or it would turn every object into text
    whole = _objects(rows, names)
    cut = len(rows) // 2
    parts = [whole.iloc[:cut], whole.iloc[cut:], whole.iloc[:0]]
    return dd.from_map(lambda part: part, parts, meta=whole.iloc[:0])


@dataclass(frozen=True, slots=True)
class Engine:
    """A dataframe engine.

    Attributes:
        frame: Makes its frame of rows, with these columns.
        objects: Whether a cell can hold any Python object.
        texts: Whether it hands over texts, so that they are read as numbers; a database does not.
    """

    frame: Callable[[Rows, Sequence[str]], Any]
    objects: bool = False
    texts: bool = True


ENGINES: dict[str, Engine] = {
    "polars": Engine(_polars),
    "polars lazy": Engine(lambda rows, names: _polars(rows, names).lazy()),
    "polars text ids": Engine(lambda rows, names: _texts(rows, names).lazy()),
    "pandas": Engine(_pandas),
    "pandas objects": Engine(_objects, objects=True),
    "pandas arrow": Engine(lambda rows, names: _polars(rows, names).to_pandas(use_pyarrow_extension_array=True)),
    "pyarrow": Engine(lambda rows, names: _polars(rows, names).to_arrow()),
    "duckdb": Engine(lambda rows, names: duckdb.from_arrow(_arrow(rows, names)), texts=False),
    "dask": Engine(_dask, objects=True),
}
"""Every engine in this process; ``servers`` adds those that need one."""


def _arrow(rows: Rows, names: Sequence[str]) -> pa.Table:
    return _polars(rows, names).to_arrow()


def columns_of(content: Content) -> list[str]:
    """Return the columns of the frame: the schema's, whose row it is, and one that nobody asks for."""
    return [*COLUMNS[content], "who", "remark"]
