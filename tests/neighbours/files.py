"""Tables as files: one row is one line of a text file, and somebody's line may be anything at all."""

from __future__ import annotations

import io
import json
import math
import sqlite3
from contextlib import closing
from typing import Any

import xlsxwriter

from neighbours.tables import ENGINES, Content, Rows, columns_of

LINE = "line"
"""Under this name a row holds its whole line, as it stands in a text file."""

CSV_LINES = [
    b'"', b'no,"50,2,true', b'"no', b'no"', b'"no"x,4,2,true,5,z', b'no,50,2,true,5,"', b"yes,50", b"",
    b",,,,,,,,,,,", b",", b"\xff\xfe,1,\xc3\x28", b"no\x00,3,1,true,1,z", b"no,50,2,true,5,nothing,extra,extra",
    b"no,5\r0,1,true", b"\xef\xbb\xbfno,1", b'no,"a""b",2,"tr""ue",5,""', b'"yes","50","3","false","4","x"',
    b"x" * 100_000, b"no," + b'"' * 999, b"no,1e400,1e400,maybe", b"no,0x1p3,1_0,TRUE", b" yes , 50 , 2 , true ",
    b"no;50;2;true", b"#comment", b"\\N,\\N,\\N,\\N", b"nan,nan,nan,nan", b"smoke,age,stage,lung",
    "\u2028,50\u2029,\x0b2,\x0ctrue".encode(), b"no,50,2,true\x1a",
]  # fmt: skip
SPREAD_LINES = [
    *(line for line in CSV_LINES if b'"' not in line),
    b'"no\n",50,2,true,5,x', b'"yes\r\nno",50,2,true,5,"a ""b""\n"', b'no,"5\n0",2,true,5,x',
    b'no,50,2,true,5,"""\n"""', b'"' + b"\n" * 5000 + b'",50,2,true,5,z', b'"no,50,2,true,5,x\nno,50,2,true,5,x\n",1',
    b'"","","","","",""', b'"\n"', b'"""\n""",""""', b'no,50,2,true,5,",\n"', b'"no","50","2","true\n","5","\n\n"',
    b'"' + b"x" * 100_000 + b'\n"',
    b'no,50,2,true,5,"extra\n",extra,"\n"', b'"""no"",50,2,true\n"', b'"\xff\n\xfe",1,\xc3\x28', b'"a\x00\n",5',
]  # fmt: skip
"""Records of several lines, as a program writes them that closes each quote and quotes each value with one in it."""
JSON_LINES = [
    b"null", b"{", b"}", b'{"age":1e400}', b"[1,2]", b'"x"', b"", b" ", b'{"smoke":"yes","smoke":"no"}',
    b'{"age":{"a":1}}', b'{"age":[50]}', b"\xff", b"[" * 5000, b'{"a":' * 3000, b'{"age":NaN}',
    b'{"age":1e999,"stage":99999999999999999999999}', b"1e400", b'{"smoke":"\\ud800"}', b'{"smoke":"\\u0000"}',
    b'{"lung":1,"stage":"2","age":"50"}', b'{"smoke":true}', b'{"who":1e400}', b"{}",
    b'{"smoke":"yes"} {"smoke":"no"}', b'{"smoke":"ye', b'{"stage":2.0}', b'{"stage":-0.0}', b"nul",
    b'\xef\xbb\xbf{"smoke":"yes"}', b"9" * 5000, b'{"age":' + b"9" * 5000 + b"}",
]  # fmt: skip


def _word(value: Any, decimal: str = ".") -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(value).replace(".", decimal)
    return str(value).replace("\n", " ").replace("\r", " ")


def _csv(separator: str, encoding: str = "utf-8", decimal: str = ".", *, spread: bool = False) -> Any:
    odd = "surrogatepass" if encoding == "utf-8" else "replace"

    def field(value: Any) -> str:
        text = _word(value, decimal)
        special = any(sign in text for sign in ('"', separator))
        return '"' + text.replace('"', '""') + '"' if special else text

    def write(rows: Rows, content: Content) -> bytes:
        names = columns_of(content)
        file = io.BytesIO()
        file.write((separator.join(names) + "\n").encode())
        for row in rows:
            plain = separator.join(field(row[name]) for name in names).encode(encoding, odd)
            whole = row.get(LINE, plain)
            file.write((whole if spread else whole.replace(b"\n", b" ")) + b"\n")
        return file.getvalue()

    return write


def _ndjson(rows: Rows, content: Content) -> bytes:
    file = io.BytesIO()
    for row in rows:
        named = {name: row[name] for name in columns_of(content)}
        file.write(row.get(LINE, json.dumps(named).encode()).replace(b"\n", b" ") + b"\n")
    return file.getvalue()


def _parquet(rows: Rows, content: Content) -> bytes:
    file = io.BytesIO()
    ENGINES["polars"].frame(rows, columns_of(content)).write_parquet(file)
    return file.getvalue()


def _arrow(rows: Rows, content: Content) -> bytes:
    file = io.BytesIO()
    ENGINES["polars"].frame(rows, columns_of(content)).write_ipc(file)
    return file.getvalue()


def _nameless(rows: Rows, content: Content) -> bytes:
    whole: bytes = _csv(",")(rows, content)
    return whole.partition(b"\n")[2]


def _cells(rows: Rows, content: Content) -> list[list[Any]]:
    """Return what a sheet or SQLite can hold of the rows, and all else as text."""
    small = float, bool, type(None)
    return [
        [
            value
            if isinstance(value, small) or (isinstance(value, int) and abs(value) < 2**63)
            else str(value).encode(errors="replace").decode()
            for value in (row[name] for name in columns_of(content))
        ]
        for row in rows
    ]


def _sqlite(rows: Rows, content: Content) -> bytes:
    names = ", ".join(columns_of(content))
    with closing(sqlite3.connect(":memory:")) as connection, connection:
        connection.execute(f"CREATE TABLE kept ({names})")
        for cells in _cells(rows, content):
            connection.execute(f"INSERT INTO kept VALUES ({', '.join('?' * len(cells))})", cells)
        connection.commit()
        return connection.serialize()


def _xlsx(rows: Rows, content: Content) -> bytes:
    file = io.BytesIO()
    with xlsxwriter.Workbook(file, {"in_memory": True, "nan_inf_to_errors": True}) as workbook:
        sheet = workbook.add_worksheet()
        for place, cells in enumerate([columns_of(content), *_cells(rows, content)]):
            for column, value in enumerate(cells):
                write = sheet.write_string if isinstance(value, str) else sheet.write
                write(place, column, value)
    return file.getvalue()


def stated(ending: str, content: Content) -> dict[str, Any]:
    """Return what the schema says about files of this ending."""
    if ending == "nameless.csv":
        return {"header": tuple(columns_of(content))}
    if ending == "spread.csv":
        return {"quoted_newlines": True}
    return {"delimiter": ";", "encoding": "cp1252", "decimal": ","} if ending == "european.csv" else {}


def address(file: str) -> str:
    """Return what names the data in a file."""
    return f"sqlite:///{file}?table=kept" if file.endswith(".sqlite") else file


WRITERS: dict[str, Any] = {
    "csv": _csv(","),
    "tsv": _csv("\t"),
    "european.csv": _csv(";", "cp1252", ","),
    "spread.csv": _csv(",", spread=True),
    "ndjson": _ndjson,
    "parquet": _parquet,
    "arrow": _arrow,
    "nameless.csv": _nameless,
    "sqlite": _sqlite,
    "xlsx": _xlsx,
}
LINES = {
    "csv": CSV_LINES,
    "tsv": CSV_LINES,
    "nameless.csv": CSV_LINES,
    "spread.csv": SPREAD_LINES,
    "european.csv": [line.replace(b",", b";") for line in CSV_LINES] + [b"no;5,5;2,0;true", b"\x81;\x9d;5.5;1,2,3"],
    "ndjson": JSON_LINES,
}
