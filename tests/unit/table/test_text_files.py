"""Text files read by a schema: no single value decides over a column's type, and none can stop the reading."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from escudo.errors import SchemaError
from escudo.table import PrivateTable, Schema, scan
from escudo.table._files import fields_of, scan_texts

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
        '5,true,1,"x',
        '"5,true,1,x',
        '5,true,"1""2",x"y"',
        '""""',
        '5,true,1,x,"more',
        '5,true,1,x,more"more',
        "",
        "\r",
        "5,\rtrue,1,x",
        "5,true\0,1,x\0",
        '"5","true\0","1","x"',
        "\ufeff5,true,1,x",
        f"5,true,1,{'x' * 200_000}",
        "5",
        "7,true,1,x,9,9,9",
    ],
)
@pytest.mark.parametrize("place", [0, 2, 5])
def test_one_odd_line_changes_its_own_cells_only(path: Path, line: str, place: int) -> None:
    before = counts(write(path, LINES))
    after = counts(write(path, [*LINES[:place], line, *LINES[place:]]))
    for name, cells in after.items():
        moved = np.array(cells) - before[name]
        assert moved.min() >= 0
        assert moved.sum() == 1


def test_how_lines_end_does_not_matter(path: Path) -> None:
    wanted = counts(write(path, LINES))
    text = path.read_bytes()
    for changed in (text.replace(b"\n", b"\r\n"), text[:-1], b"\xef\xbb\xbf" + text):
        path.write_bytes(changed)
        assert counts(path) == wanted


def test_a_name_may_be_quoted(path: Path) -> None:
    wanted = counts(write(path, LINES))
    separator = "\t" if path.suffix == ".tsv" else ","
    first, _, rest = path.read_text().partition("\n")
    path.write_text(first.replace("ill", '"ill"').replace("code", f'"code"{separator}"a{separator}b"') + "\n" + rest)
    assert counts(path) == wanted
    assert scan(path, SCHEMA).collect_schema().names() == [*SCHEMA.names, f"a{separator}b"]


def test_quotes_span_lines_only_if_the_schema_says_so(path: Path) -> None:
    spread = replace(SCHEMA, quoted_newlines=True)
    assert Schema.from_dict(spread.to_dict()) == spread
    assert "quoted_newlines = true" in spread.to_toml()
    write(path, ['10,true,1,"x', '"', "30,true,2,x"])
    rows = {schema: PrivateTable(scan(path, schema), schema).record_count() for schema in (SCHEMA, spread)}
    assert list(rows.values()) == [3, 2]


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


ODD_JSON = [
    *["", "null", "[1]", "1", '"x"', "{", '{"age": 10', '{"age": 10} x', "\0", '{"age": 1\0}', "[" * 100_000],
    *['{"age": 1e400}', '{"age": -1e400}', '{"age": NaN}', '{"age": "1e400"}', f'{{"age": {"9" * 20_000}}}'],
    *['{"age": 10, "age": 60}', '{"age": [10], "code": {"x": 1}}', '{"code": "\\ud800"}', '{"\\ud800": 1}', "{}"],
]


@pytest.mark.parametrize("place", [0, 2])
def test_one_odd_line_of_json_is_one_row(tmp_path: Path, place: int) -> None:
    path = tmp_path / "visits.jsonl"
    usual = [
        '{"age": 10, "ill": true, "stage": 1, "code": "1"}',
        '{"age": 30.5, "ill": false, "stage": 2, "code": "x"}',
    ]

    def read(lines: list[str]) -> dict[str, list[int]]:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return counts(path)

    before = read(usual)
    wanted = {"1e400": 3, '"age": 10, "age": 60': 2, "9999": 3, "-1e400": 0}
    for line in ODD_JSON:
        after = read([*usual[:place], line, *usual[place:]])
        for name, cells in after.items():
            moved = np.array(cells) - before[name]
            assert moved.min() >= 0
            assert moved.sum() == 1
        cell = next((cell for text, cell in reversed(wanted.items()) if text in line), 4)
        assert after["age"][cell] - before["age"][cell] == 1, line[:60]
    assert read([]) == {name: [0] * SCHEMA[name].size for name in SCHEMA.names}


def _kept(path: Path, content: bytes) -> int:
    path.write_bytes(content)
    schema = Schema(SCHEMA.fields, person_id="who", max_rows_per_person=1)
    table = PrivateTable(scan(path, schema), schema)
    assert table.record_count() == table.counts("age").sum()
    return table.record_count()


def test_ids_in_text_files_are_as_different_as_they_are_written(tmp_path: Path) -> None:
    first = b"who,age,ill,stage,code\n"
    for ids, people in (
        (["1", "1.0", "01", "1", '"1"'], 3),
        (["", '""', "", '""'], 1),  # a quoted empty text is an id, an empty field is none
        (["a\0b", "a", '"a\0b"', "\0n1", "1"], 4),
        (["M\xfcller", "M\xf6ller", "Moller"], 1),  # bytes that are no UTF-8 would merge the first two
    ):
        lines = [f"{whose},10,true,1,x".encode("latin-1") for whose in ids]
        assert _kept(tmp_path / "t.csv", first + b"\n".join(lines)) == people
    for ids, people in (
        (["1", '"1"', "1.0", "1e0", "true", '"true"'], 3),  # true is the number 1, as everywhere
        (["0.1", "0.10", "0.1000000000000000055511151231257827", "9007199254740993", "9007199254740992"], 4),
        (["null", "[1]", '""', '"\\u0000n1"', '"\\ud800"', '"\\udfff"', "1e999999999", '"\ufffd"'], 4),
    ):
        lines = [f'{{"who": {whose}, "age": 10}}'.encode() for whose in ids]
        assert _kept(tmp_path / "t.ndjson", b"\n".join(lines)) == people


pieces = st.sampled_from(
    [*(bytes([byte]) for byte in b'""",,,a1 \r\0\t\\#\xff\xc3'), "é".encode(), b"\xef\xbb\xbf", b'""']
)
odd_lines = st.lists(pieces, max_size=9).map(b"".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(odd_lines, max_size=6), columns=st.integers(1, 3), ended=st.booleans())
def test_any_bytes_are_cut_line_by_line_as_the_reference_does(
    tmp_path: Path, lines: list[bytes], columns: int, ended: bool
) -> None:
    path = tmp_path / "odd.csv"
    names = [f"c{position}" for position in range(columns)]
    path.write_bytes(b"\n".join([",".join(names).encode(), *lines]) + b"\n" * ended)
    if lines and not ended and not lines[-1]:
        lines = lines[:-1]  # the line feed before it was the end of the file

    def wanted(line: bytes) -> tuple[Any, ...]:
        fields = fields_of(line.removesuffix(b"\r").decode("utf-8", "replace"), ",")
        return tuple((*fields, *[None] * columns)[:columns])

    assert scan_texts(path).collect(engine="streaming").rows() == list(map(wanted, lines))


def test_a_large_file_is_cut_alike_wherever_its_parts_end(tmp_path: Path) -> None:
    """Many times what is read at once, with special lines all over."""
    rng = np.random.default_rng(0)
    kinds = ["{0},a,b", '"{0}","a","b"', '{0},"a ""x"", y",b', '{0},"open,b', "", '{0},a"b,c', "{0}", "{0},a,b,c"]
    chosen = rng.integers(0, len(kinds), 200_000)
    path = tmp_path / "large.csv"
    path.write_text("x,y,z\n" + "\n".join(kinds[kind].format(place) for place, kind in enumerate(chosen)) + "\n")
    found = scan_texts(path).group_by("y", "z").len().collect(engine="streaming")
    tally = np.bincount(chosen, minlength=len(kinds))
    assert {(y, z): n for y, z, n in found.rows()} == {
        ("a", "b"): tally[0] + tally[1] + tally[7],
        ('a "x", y', "b"): tally[2],
        ("open,b", None): tally[3],
        (None, None): tally[4] + tally[6],
        ('a"b', "c"): tally[5],
    }
    numbers = scan_texts(path).select(pl.col("x").cast(pl.Int64)).drop_nulls().collect(engine="streaming")["x"]
    assert numbers.to_list() == np.flatnonzero(chosen != 4).tolist()


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
