"""Text files read by a schema: no single value decides over a column's type, and none can stop the reading."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from escudo.errors import SchemaError
from escudo.table import PrivateTable, Schema, scan

SCHEMA = Schema.from_dict(
    {
        "age": {"type": "numeric", "lower": 0, "upper": 100, "bins": 4, "missing": True},
        "ill": {"type": "boolean", "missing": True},
        "stage": {"type": "ordinal", "levels": [1, 2, 3], "missing": True},
        "code": {"type": "categorical", "levels": ["1", "02", "x"], "missing": True},
    }
)
LINES = ["10,true,1,1", "30,false,2,02", "60,True,3,x", "99,0,1.0,y", " 99 ,1, 2 ,02"]


def counts(path: Path) -> dict[str, list[int]]:
    table = PrivateTable(scan(path, SCHEMA), SCHEMA)
    return {name: table.counts(name).tolist() for name in SCHEMA.names}


@pytest.fixture(params=["csv", "tsv"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"visits.{request.param}"


def write(path: Path, lines: list[str], encoding: str = "utf-8") -> Path:
    text = "\n".join([",".join(SCHEMA.names), *lines]) + "\n"
    path.write_bytes((text.replace(",", "\t") if path.suffix == ".tsv" else text).encode(encoding))
    return path


def test_values_are_read_as_the_schema_says(path: Path) -> None:
    assert counts(write(path, LINES)) == {
        "age": [1, 1, 1, 2, 0],
        "ill": [2, 3, 0],
        "stage": [2, 2, 1, 0],
        "code": [1, 2, 1, 1],
    }


@pytest.mark.parametrize(
    "line",
    [
        "unknown,perhaps,first,",
        ",,,",
        "1e999,2,9e99,\u2603",
        "nan,NaN,NaN,NaN",
        '"1,0","","",""',
        "5",
        "7,true,1,x,9,9,9",
    ],
)
def test_one_odd_line_changes_its_own_cells_only(path: Path, line: str) -> None:
    before = counts(write(path, LINES))
    after = counts(write(path, [*LINES, line]))
    for name, cells in after.items():
        moved = np.array(cells) - before[name]
        assert moved.min() >= 0
        assert moved.sum() == 1


def test_bytes_that_are_no_text_are_one_odd_value(path: Path) -> None:
    path = write(path, [*LINES, "5,true,1,caf\xe9"], encoding="latin-1")
    assert counts(path)["code"] == [1, 2, 1, 2]


def test_a_line_of_json_may_hold_anything(tmp_path: Path) -> None:
    path = tmp_path / "visits.ndjson"
    usual = [{"age": 10, "ill": True, "stage": 1, "code": "1"}, {"age": 30.5, "ill": False, "stage": 2, "code": "02"}]
    odd = [
        {"age": "x", "ill": "maybe", "stage": [1], "code": {"a": 1}},
        {"age": None, "code": 1},
        {"age": True, "ill": 1, "stage": "3", "code": "x", "more": 1},
    ]

    def read(rows: list[dict[str, object]]) -> dict[str, list[int]]:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return counts(path)

    before = read(usual)
    assert before == {"age": [1, 1, 0, 0, 0], "ill": [1, 1, 0], "stage": [1, 1, 0, 0], "code": [1, 1, 0, 0]}
    for line in odd:
        for name, cells in read([*usual, line]).items():
            moved = np.array(cells) - before[name]
            assert moved.min() >= 0
            assert moved.sum() == 1


def test_a_column_that_is_not_there_is_still_an_error(path: Path) -> None:
    write(path, LINES)
    other = Schema.from_dict({"height": {"type": "numeric", "lower": 0, "upper": 3, "bins": 3}})
    with pytest.raises(SchemaError, match="'height'"):
        PrivateTable(scan(path, other), other)


def test_without_a_schema_the_whole_file_decides(path: Path) -> None:
    write(path, LINES)
    assert scan(path).collect_schema()["age"] in (pl.Int64, pl.String, pl.Float64)
    write(path, [*LINES, "unknown,true,1,1"])
    assert scan(path).collect_schema()["age"] == pl.String
