"""Text files read by a schema: no single value decides over a column's type, and none can stop the reading."""

from __future__ import annotations

import csv
import io
import json
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from escudo.errors import EscudoError, InputError, SchemaError
from escudo.table import PrivateTable, Schema, check, draft, outline, scan
from escudo.table._text_files import fields_of, scan_texts

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


def test_a_file_without_line_feeds_is_refused_and_none_of_its_rows_shown(path: Path) -> None:
    path.write_bytes("\r".join(["age,ill,stage,code", *LINES, "12,secret,1,1"]).encode())
    for read in (draft, outline, lambda file: check(file, SCHEMA), lambda file: scan(file, SCHEMA)):
        with pytest.raises(InputError, match="carriage return") as refused:
            read(path)
        assert "secret" not in str(refused.value)
    headed = Schema.from_dict({"columns": {"age": ["1"]}, "table": {"header": ["age", "x"]}})
    assert scan(path, headed).collect().height == 1  # no row is taken for names, so none can be refused


@pytest.mark.parametrize("codec", ["utf-8", "utf-16"])
def test_without_a_line_of_names_a_row_is_the_same_wherever_it_stands(tmp_path: Path, codec: str) -> None:
    """A mark of the byte order is no part of the first row, and of no other, or whoever is first would decide."""
    said = {"header": ["who", "x"], "encoding": codec, "person_id": "who", "max_rows_per_person": 9}
    schema = Schema.from_dict({"columns": {"x": ["a,b", "c"]}, "table": said})
    path, rows = tmp_path / "visits.csv", ['p,"a,b"', '\ufeff"p","a,b"', "\ufeffp,c"]
    for places in ([0, 1, 2], [1, 2, 0], [2, 0, 1]):
        path.write_bytes("".join(rows[place] + "\n" for place in places).encode(codec))
        read = scan(path, schema).collect()
        assert read.rows() == [("p", "c" if place == 2 else "a,b") for place in places]


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


@pytest.mark.parametrize("text", ['"SECRET', 'SECRET"', '"SECRET"x"', '"'])
@pytest.mark.parametrize("others", ["30,true,2,x", '30,true,2,"x"', '30,true,2,"\n"', '30,true,2,",x"', '30,true,2,""'])
def test_an_open_quote_is_refused_where_the_schema_vouches_for_quotes(path: Path, text: str, others: str) -> None:
    """Whoever's rows are around it; `scan` proves that no reader could say how many of them it moves."""
    spread = replace(SCHEMA, quoted_newlines=True)
    write(path, [others] * 20)
    assert PrivateTable(scan(path, spread), spread).record_count() == 20
    write(path, [*[others] * 9, f"10,true,1,{text}", *[others] * 11])
    with pytest.raises(EscudoError) as refused:
        PrivateTable(scan(path, spread), spread).counts("code")
    assert "SECRET" not in "".join(traceback.format_exception(refused.value))
    with pytest.raises(InputError, match=r"Or is a quote not closed\? By quoted_newlines, all are"):
        check(path, spread)
    assert sum(counts(path)["age"]) == (20 if "\n" not in others else 40) + 1, "without that every line is a row"


def test_one_line_more_may_change_every_row_after_it_where_quotes_are_open(path: Path) -> None:
    """The proof in `scan`, by the csv module of Python: the rows of two people change places with what nobody wrote."""
    lines = ['",x', '",y'] * 20
    rows = [[*csv.reader(io.StringIO("\n".join(several) + "\n"))] for several in (lines, ['",y', *lines])]
    assert rows[0] == [[",x\n", "y"]] * 20
    assert rows[1][:20] == [[",y\n", "x"]] * 20
    other = [*csv.reader(io.StringIO("\n".join(['",y', '",x'] * 20) + "\n"))]
    assert other == [[",y\n", "x"]] * 20, "the same lines in turn, rightly written: only where they begin tells which"


@pytest.mark.parametrize("lines", [1, 5, 5000])
def test_a_closed_value_of_many_lines_is_one_row_whatever_is_in_them(path: Path, lines: int) -> None:
    spread = replace(SCHEMA, quoted_newlines=True)
    usual = ["10,true,1,x"] * 30
    text = '"' + '30,false,2,""y""\n' * lines + '"'
    write(path, [*usual, f"30,true,2,{text}", *usual])
    table = PrivateTable(scan(path, spread), spread)
    assert table.record_count() == 61
    assert table.counts("age").tolist()[:2] == [60, 1]


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


# ---- how a file is written

SIGNS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
TOWNS = ["K\xf6ln", "M\xfcnchen", "Bad Segeberg", 'a "b"; c|d, e']


def european(delimiter: str = ";", decimal: str = ",", rows: int = 60) -> str:
    """A table with towns, doses and ages; the last line of four has a quoted town with every sign in it."""

    def field(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in '",;|\t') else text

    lines = [delimiter.join(["town", "dose", "age"])]
    for number in range(rows):
        dose = f"{number / 4:.2f}".replace(".", decimal)
        lines.append(delimiter.join(map(field, (TOWNS[number % 4], dose, str(number)))))
    return "\r\n".join(lines) + "\r\n"


def as_read(path: Path, schema: Schema) -> list[tuple[Any, ...]]:
    return scan(path, schema).collect(engine="streaming").rows()


@pytest.mark.parametrize(
    ("delimiter", "encoding", "decimal"),
    [
        *[(";", "latin-1", ","), (";", "cp1252", ","), (";", "utf-8-sig", "."), ("\t", "utf-16", ",")],
        *[(",", "utf-8", "."), (",", "cp1252", ","), ("|", "utf-8", ","), (",", "latin-1", "."), ("|", "utf-16", ".")],
    ],
)
def test_a_draft_recognises_how_a_file_is_written_and_later_reading_keeps_to_it(
    tmp_path: Path, delimiter: str, encoding: str, decimal: str
) -> None:
    text = european(delimiter, decimal)
    if encoding == "cp1252":
        text = text.replace("Bad Segeberg", "5 \u20ac")
    path = tmp_path / "visits.csv"
    path.write_bytes(text.encode(encoding))
    schema = draft(path)
    name = encoding.removesuffix("-sig")
    assert (schema.delimiter or ",", schema.encoding, schema.decimal) == (delimiter, name, decimal)
    assert schema.names == ("town", "dose", "age")
    assert schema["town"].levels == tuple(sorted(TOWNS if encoding != "cp1252" else [*TOWNS[:2], "5 \u20ac", TOWNS[3]]))
    assert (schema["dose"].kind, schema["dose"].integer, schema["age"].integer) == ("number", False, True)
    said = next(note for note in schema.notes if note.startswith("Read with"))
    assert SIGNS[delimiter] in said
    assert ("decimal comma" in said) == (decimal == ",")
    assert Schema.from_dict(schema.to_dict()) == schema
    rows = as_read(path, Schema.read(_written(tmp_path, schema)))
    assert [row[1] for row in rows] == [number / 4 for number in range(60)]
    assert {row[0] for row in rows} == set(schema["town"].levels)
    assert check(path, schema).problems == ()
    assert check(path, schema).file.findings == ()


def _written(folder: Path, schema: Schema) -> Path:
    schema.write(folder / "visits.toml", overwrite=True)
    return folder / "visits.toml"


def test_what_a_schema_says_about_a_file_is_not_guessed_again(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_bytes(european().encode("latin-1"))
    towns = {"town": TOWNS}
    as_stated = Schema.from_dict({"columns": towns, "table": {"delimiter": ";", "encoding": "latin-1"}})
    assert {row[0] for row in as_read(path, as_stated)} == set(TOWNS)
    usual = Schema.from_dict(towns)
    with pytest.raises(SchemaError, match="'town'"):
        PrivateTable(scan(path, usual), usual)
    read_so = replace(as_stated, encoding="utf-8")
    assert {row[0] for row in as_read(path, read_so)} == {"K\ufffdln", "M\ufffdnchen", *TOWNS[2:]}
    drafted = draft(path, encoding="iso-8859-15", decimal=".", delimiter=";")
    assert (drafted.encoding, drafted.decimal, drafted.delimiter) == ("iso8859-15", ".", ";")
    assert drafted["dose"].form == "1234,5"  # texts, that are read so


def test_a_damaged_line_does_not_make_utf_8_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_bytes(european().encode() + b"K\xf6ln;1,5;3\r\n")
    schema = draft(path)
    assert schema.encoding == "utf-8"
    assert "1 line holds bytes that the encoding does not have." in [
        note[0].lower() + note[1:] for note in schema.notes
    ]


@pytest.mark.parametrize(
    ("text", "delimiter", "names"),
    [
        ("income, in euros\n5\n6\n7\n", None, None),  # a comma in a name alone cuts nothing
        ("text\nhello, world\nbye, all\n", None, ("text",)),
        ('"1";"b"\n1;2\n3;4\n', ";", ("1", "b")),
        ("a,b,c\n1,x,2,y\n2,z,3,y\n", None, ("a", "b", "c")),  # more fields than names, as R writes row names
        ("a, really;b\n1,5;2\n2,5;3\n", ";", ("a, really", "b")),
        ("a;b\n", ";", None),
    ],
)
def test_odd_first_lines(tmp_path: Path, text: str, delimiter: str | None, names: tuple[str, ...] | None) -> None:
    path = tmp_path / "odd.csv"
    path.write_text(text)
    if text.count("\n") == 1:
        assert scan(path).collect_schema().names() == ["a", "b"]
        return
    schema = draft(path)
    if delimiter:
        assert schema.delimiter == delimiter
    assert schema.names == (names or ("income, in euros",))


def test_thousands_are_no_decimals_and_a_point_is_none_where_a_comma_is(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    lines = "".join(f'"{number},250",x\n' for number in range(1, 60))
    path.write_text("income,town\n" + lines)
    assert draft(path).decimal == "."
    path.write_text("income,town\n" + lines + '"1,5",y\n')
    assert draft(path).decimal == ","
    schema = Schema.from_dict(
        {
            "columns": {"x": {"type": "numeric", "lower": 0, "upper": 9000, "bins": 9, "missing": True}},
            "table": {"delimiter": ";", "decimal": ","},
        }
    )
    path.write_text("x;y\n1,5;a\n1.500;b\n1.500,5;c\n1,2,3;d\n7;e\n-2,5e1;f\n")
    assert [row[0] for row in as_read(path, schema)] == [1.5, None, None, None, 7.0, -25.0]


DIALECTS = [
    {"delimiter": ";", "encoding": "cp1252", "decimal": ","},
    {"delimiter": "|", "encoding": "utf-16"},
    {"delimiter": "\t", "encoding": "utf-16-be"},
    {"delimiter": "|"},
]
ODD_LINES = [
    *[b"", b'"', b'"open;x|y', b"5", b"5;true;1;x;more", b"|||||", b";;;;;;", b"\x81\x8d;\xff|\x00", b"\r", b"\x1a"],
    *[b"5,5;true;1;x", b"\xd8\x00\xd8", b"\x00\xd8|\x00", b"\xff\xfe5;true", b"x" * 200_001],
]


@pytest.mark.parametrize("stated", DIALECTS, ids=str)
def test_one_odd_line_changes_its_own_cells_only_in_every_dialect(tmp_path: Path, stated: dict[str, str]) -> None:
    schema = replace(SCHEMA, **stated)
    codec = {"utf-16": "utf-16-le"}.get(schema.encoding, schema.encoding)
    wide = codec.startswith("utf-16")
    mark = b"\xff\xfe" if schema.encoding == "utf-16" else b""
    path = tmp_path / "odd.csv"

    def read(odd: list[bytes]) -> dict[str, list[int]]:
        lines = [line.replace(",", schema.delimiter).encode(codec) for line in [",".join(SCHEMA.names), *LINES]]
        lines[3:3] = odd
        path.write_bytes(mark + b"".join(line + "\n".encode(codec) for line in lines))
        table = PrivateTable(scan(path, schema), schema)
        return {name: table.counts(name).tolist() for name in schema.names}

    before = read([])
    for line in ODD_LINES:
        odd = line + b"x" * (len(line) % 2) if wide else line  # a line is made of whole units
        if wide and "\n" in odd.decode(codec, "replace"):
            continue
        for name, cells in read([odd]).items():
            moved = np.array(cells) - before[name]
            assert moved.min() >= 0, line[:40]
            assert moved.sum() == 1, line[:40]


def test_an_id_with_a_byte_that_the_encoding_does_not_have_is_none(tmp_path: Path) -> None:
    schema = Schema(SCHEMA.fields, person_id="who", max_rows_per_person=1, delimiter=";", encoding="cp1252")
    path = tmp_path / "t.csv"
    ids = [b"M\xfcller", b"M\xf6ller", b"M\x81ller", b"M\x8dller"]
    path.write_bytes(b"who;age;ill;stage;code\n" + b"".join(one + b";10;true;1;x\n" for one in ids))
    assert PrivateTable(scan(path, schema), schema).record_count() == 2


def test_what_learning_starts_from_looks_at_the_first_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    for rows in ("", "1;2\n", "K\xf6ln,5\n", '"\x80'):
        path.write_bytes(("town;gr\xf6\xdfe\n" + rows).encode("latin-1"))
        schema = outline(path)
        assert (schema.names, schema.delimiter, schema.encoding) == (("town", "gr\xf6\xdfe"), ";", "latin-1")
        assert scan(path, schema).collect_schema().names() == ["town", "gr\xf6\xdfe"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("delimiter", ":"), ("delimiter", ""), ("delimiter", 5), ("decimal", ";"), ("decimal", None)],
        *[("encoding", "utf-7"), ("encoding", "no such"), ("encoding", "shift_jis"), ("encoding", 1)],
        *[("encoding", "cp037"), ("encoding", "raw_unicode_escape"), ("encoding", "utf-32"), ("encoding", "rot13")],
    ],
)
def test_what_no_file_can_be_read_by_is_refused(key: str, value: Any) -> None:
    with pytest.raises(SchemaError, match=key):
        Schema.from_dict({"columns": {"x": ["a"]}, "table": {key: value}})


# ---- lines that do not fit


def test_lines_that_do_not_fit_and_names_that_come_twice_are_counted(path: Path) -> None:
    lines = [
        "1,true,1,x",
        "2,true",
        "",
        '3,true,"1,5",x',
        "4,true,1,x,y",
        '5,"tr,1,x',
        'a"b,true,1,x,"more, more"',
        "6,,,",
    ]
    first = [*SCHEMA.names[:3], "age"]
    text = "\n".join([",".join(first), *lines]) + "\n"
    path.write_text(text.replace(",", "\t") if path.suffix == ".tsv" else text)
    schema = Schema.from_dict({"age": {"type": "numeric", "lower": 0, "upper": 9, "bins": 9, "missing": True}})
    found = check(path, schema)
    assert found.file is not None
    assert (found.file.short, found.file.long, found.file.repeated) == (3, 2, ("age",))
    assert found.to_dict()["file"]["short"] == 3
    words = " ".join(found.file.findings)
    assert "3 lines have fewer fields" in words
    assert "2 lines have more fields" in words
    assert "'age' more than once" in words
    assert "more, more" not in words
    notes = " ".join(draft(path).notes)
    for finding in found.file.findings:
        assert finding[1:] in notes or finding.startswith("decimal seems to be ','")
    table = PrivateTable(scan(path, schema), schema)
    assert (table.record_count(), table.counts("age").tolist()[-1]) == (8, 2)


def test_a_check_sees_numbers_that_are_read_with_the_wrong_decimal_sign(tmp_path: Path) -> None:
    path = tmp_path / "pay.csv"
    path.write_text("pay;town\n" + "".join(f"{number},5;B\n" for number in range(30)))
    pay = {"type": "numeric", "lower": 0, "upper": 100, "missing": True}
    schema = replace(Schema.from_dict({"pay": pay, "town": ["B"]}), delimiter=";")
    found = check(path, schema)
    assert found.file is not None
    assert "decimal seems to be ','; if so, say it in [table]" in found.file.findings
    assert found.columns[0].findings == ("all values are missing, or are none as the schema says how they are written",)
    right = check(path, replace(schema, decimal=","))
    assert right.file is not None
    assert (right.file.findings, right.columns[0].findings) == ((), ())
    path.write_text(path.read_text().replace(",5", ""))  # whole numbers speak for no sign
    for decimal in (",", "."):
        same = check(path, replace(schema, decimal=decimal))
        assert same.file is not None
        assert (same.file.findings, same.columns[0].findings) == ((), ())


def test_a_check_says_what_the_file_seems_to_be(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_bytes(european().encode("latin-1"))
    schema = Schema.from_dict({"town": TOWNS})
    found = check(path, schema)
    assert found.file is not None
    assert found.file.looks_like == {"delimiter": ";", "encoding": "latin-1"}
    assert found.problems
    path.write_bytes(european().encode())
    assert check(path, replace(schema, delimiter=";", encoding="cp1252", decimal=",")).file.looks_like == {
        "encoding": "utf-8"
    }
    path.write_bytes(european().encode("ascii", "replace"))
    assert check(path, replace(schema, delimiter=";", encoding="cp1252", decimal=",")).file.looks_like == {}


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("text", ['"open', '"open""', '"'])
def test_one_open_quote_is_no_line_feed_in_a_quoted_field(tmp_path: Path, place: int, text: str) -> None:
    """In the last column it and all lines after it seem to be one row of as many fields as the first line has."""
    path = tmp_path / "visits.csv"
    rows = [["yes", "a"] for _ in range(50)]
    rows[20][place] = text
    path.write_text("smoke;ward\n" + "".join(";".join(row) + "\n" for row in rows))
    drafted = draft(path)
    assert not drafted.quoted_newlines
    assert set(drafted) == {"smoke", "ward"}
    assert len(as_read(path, drafted.confirm())) == 50
