"""Columns of numbers that are written as texts, with a currency, a unit or groups of thousands."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import escudo
from escudo.errors import SchemaError
from escudo.table import Categorical, Numeric, PrivateTable, Schema, check, draft, open_data, scan
from texts import FRAMES

PRICE = Numeric("price", 0, 20_000, 20, form="$1,234.5", missing=True)
WEIGHT = Numeric("weight", 0, 200, 10, form="1234.5 kg")
SCHEMA = Schema((PRICE, WEIGHT))
NUMBERS = [(37 * place) % 230 * 99.5 for place in range(120)]
TEXTS: dict[str, list[str]] = {
    "price": [f"$ {number:,.2f}" if place % 9 else "on request" for place, number in enumerate(NUMBERS)],
    "weight": [f"{number / 100:g}{' KG' if place % 2 else ''}" for place, number in enumerate(NUMBERS)],
}
KNOWN: dict[str, list[Any]] = {
    "price": [number if place % 9 else None for place, number in enumerate(NUMBERS)],
    "weight": [float(f"{number / 100:g}") for number in NUMBERS],
}
EXPECTED = {
    column.name: np.bincount(column.encode(KNOWN[column.name]), minlength=column.size) for column in SCHEMA.fields
}


def counts(table: PrivateTable) -> dict[str, list[int]]:
    return {
        name: each.tolist() for name, each in zip(EXPECTED, table.counts([[name] for name in EXPECTED]), strict=True)
    }


def expected() -> dict[str, list[int]]:
    return {name: each.tolist() for name, each in EXPECTED.items()}


@pytest.mark.parametrize("engine", FRAMES)
def test_every_engine_that_hands_over_texts_reads_the_same_numbers(engine: str) -> None:
    assert counts(PrivateTable(FRAMES[engine](TEXTS), SCHEMA)) == expected()
    assert not any(column.problem for column in check(FRAMES[engine](TEXTS), SCHEMA).columns)
    if engine != "polars categories":
        assert counts(PrivateTable(FRAMES[engine](KNOWN), SCHEMA)) == expected(), "numbers are taken as they are"


@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet", "xlsx", "sqlite"])
def test_so_does_every_kind_of_file(kind: str, tmp_path: Path) -> None:
    frame, name = pl.DataFrame(TEXTS), str(tmp_path / f"visits.{kind}")
    if kind == "sqlite":
        with sqlite3.connect(name) as database:
            database.execute("CREATE TABLE visits (price TEXT, weight TEXT)")
            database.executemany("INSERT INTO visits VALUES (?, ?)", frame.rows())
        name = f"sqlite:///{name}?table=visits"
    elif kind == "xlsx":
        frame.write_excel(name)
    else:
        {"csv": frame.write_csv, "ndjson": frame.write_ndjson, "parquet": frame.write_parquet}[kind](name)
    assert counts(PrivateTable(open_data(name, SCHEMA), SCHEMA)) == expected()
    shares = {column.name: column for column in check(name, SCHEMA).columns}
    assert shares["price"].missing == pytest.approx(KNOWN["price"].count(None) / 120)
    assert shares["weight"].outside == pytest.approx(np.mean(np.array(KNOWN["weight"]) > 200))


@given(
    st.text(alphabet="$€0123456789., +-kg%\u00a0", max_size=12) | st.floats(0, 1e6).map("$ {:,.2f}".format) | st.text()
)
def test_a_text_is_the_same_number_whatever_holds_it(text: str) -> None:
    cell = PRICE.encode([text]).tolist()
    assert PRICE.encode(np.array([text])).tolist() == cell
    for frame in (pl.DataFrame({"price": [text]}), pd.DataFrame({"price": [text]}, dtype=object)):
        assert np.flatnonzero(PrivateTable(frame, Schema((PRICE,))).counts("price")).tolist() == cell


@given(
    st.decimals(-1_000_000, 1_000_000, places=2),
    st.sampled_from(["$1,234.5", "€ 1.234,5", "1 234,5 kr", "1'234.5 Fr."]),
)
def test_what_is_written_so_is_read_back(number: Decimal, form: str) -> None:
    before, _, rest = form.partition("1")
    between, point, after = rest[0], rest[4], rest[6:]
    digits = f"{abs(number):,.2f}".translate(str.maketrans({",": between, ".": point}))
    column = Numeric("price", 0, 1, 1, form=form)
    for text in (f"{'-' if number < 0 else ''}{before}{digits}{after}", f"{before}{'-' if number < 0 else ''}{digits}"):
        assert column.read(text) == float(number)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("$12,300", 12300.0),
        ("12300", 12300.0),
        ("$.50", 0.5),
        ("-$5", -5.0),
        ("$ -5", -5.0),
        (" $7 ", 7.0),
        ("1e5", 1e5),
        ("$1.5E-3", 0.0015),
        ("-$1,200e+1", -12000.0),
        ("1e999", np.inf),
        ("1e-999", 0.0),
    ],
)
def test_what_may_be_left_out(text: str, number: float) -> None:
    assert PRICE.read(text) == number


@pytest.mark.parametrize(
    "text",
    ["", "$", "$1,23", "$1.234,5", "€5", "$5 each", "1e", "e5", "1 e5", "1e5.0", "(5)", "--5", "\u0661", "nan", "inf"],
)
def test_what_is_no_number_written_so_is_missing_and_no_error(text: str) -> None:
    assert np.isnan(PRICE.read(text))
    assert PRICE.encode([text]).tolist() == [20]


@pytest.mark.parametrize("form", ["$", "1234", "$1.234.5", "1234.5 5", "-1234.5", "1;234.5", "", 5, "\ud800 1234.5",
                                  "123450.0", "123450.0 kg", "123.450.0%", "x" * 100 + "1234.5"])  # fmt: skip
def test_a_format_shows_how_one_number_is_written(form: Any) -> None:
    with pytest.raises(SchemaError, match=r"column 'price': format must show how text writes the number 1234\.5"):
        Schema.from_dict({"price": {"type": "numeric", "lower": 0, "upper": 1, "format": form}})


@pytest.mark.parametrize("form", ["1234.5%", "123450.0%", "%123450.0", "123.450,0 %", "123,450.0%"])
@given(share=st.decimals(0, 1, places=4))
def test_percent_are_what_the_format_writes(form: str, share: Decimal) -> None:
    written = f"{share * 100:f}".replace(".", "," if ",0" in form else ".")
    column = Numeric("share", 0, 100, 2, form=form)
    text = f"% {written}" if form.startswith("%") else f"{written} %"
    assert column.read(text) == float(share * 100 if form == "1234.5%" else share), "the nearest float, always"
    assert column.read(written) == column.read(float(share * 100)), "what has no sign is taken as it is"
    assert np.isnan(Numeric("share", 0, 1, form="123450.0%").read("1e1%"))


def test_a_check_says_where_bounds_and_percent_disagree() -> None:
    def advice(form: str, upper: float) -> tuple[str, ...]:
        column = {"type": "numeric", "lower": 0, "upper": upper, "format": form}
        return check(pl.DataFrame({"share": ["12%", "7%"]}), Schema.from_dict({"share": column})).advice

    assert advice("1234.5%", 100) == advice("123450.0%", 1) == advice("1234.5 kg", 1) == ()
    (told,) = advice("1234.5%", 1)
    assert "from 0 to 1, and its format reads '12%' as 12." in told
    (told,) = advice("123450.0%", 100)
    assert "from 0 to 100, and its format reads '12%' as 0.12." in told


@pytest.mark.parametrize("form", ["$1,234.5", "1 234.5 kg", "123450.0%"])
@pytest.mark.parametrize("part", ["1", " ", "1,234", "1 234", "$", "1e1", "1,", ".", "0", "%", "k", "-", "\u00a0"])
def test_a_long_cell_takes_time_in_proportion_to_its_length(form: str, part: str) -> None:
    column = Numeric("price", 0, 1, 1, form=form, missing=True)
    text = part * (1_000_000 // len(part))
    start = time.process_time()
    cells = column.encode([text, f"1{text}", f"{text}1", f"1{text}kg"])
    assert time.process_time() - start < 20, "one with the square of its length would take hours"
    assert set(cells.tolist()) <= {0, 1}


NUMBER_FORMS = st.builds(
    "{}1{}234{}5{}".format,
    st.sampled_from(["", "$", "US$ ", "(", "%", "\\d", "[", "e"]),
    st.sampled_from(["", ",", ".", "'", " "]),
    st.sampled_from([".", ","]),
    st.text(alphabet=" kgE%€.*[]()|?^\\-&#~x\u212a", max_size=5),
)


@given(NUMBER_FORMS, st.lists(st.text(alphabet="0123456789.,'eE+-$%kg€ ()[]\\\n\x00", max_size=20) | st.text()))
def test_no_format_and_no_cell_breaks_the_reader(form: str, texts: list[str]) -> None:
    try:
        column = Numeric("price", 0, 1000, 4, form=form, missing=True)
    except SchemaError:
        return  # by the format alone
    told = column.encode(texts).tolist()
    assert told == [column.encode([text]).item() for text in texts], "no cell decides how another one is read"
    assert column.read(form) == 1234.5


def test_a_format_goes_into_a_file_and_the_fingerprint_and_comes_back(tmp_path: Path) -> None:
    SCHEMA.write(tmp_path / "visits.toml")
    assert Schema.read(tmp_path / "visits.toml") == SCHEMA
    assert 'format = "$1,234.5"' in (tmp_path / "visits.toml").read_text(encoding="utf-8")
    assert SCHEMA.fingerprint != Schema.from_dict({**SCHEMA.to_dict()["columns"], "weight": {
        "type": "numeric", "lower": 0, "upper": 200, "bins": 10}}).fingerprint  # fmt: skip


def test_databases_hand_over_no_texts_and_say_what_to_do() -> None:
    with pytest.raises(SchemaError, match="cast it to a number or boolean in the table"):
        PrivateTable(duckdb.sql("SELECT '$5' AS price, '70 kg' AS weight"), SCHEMA)
    plain = Schema.from_dict({"price": {"type": "numeric", "lower": 0, "upper": 1}})
    with pytest.raises(SchemaError, match=r"read by a format, such as format = '\$1,234\.5'"):
        PrivateTable(pl.DataFrame({"price": ["$5"]}), plain)


def test_a_derived_column_is_made_of_such_numbers() -> None:
    paid = {"type": "numeric", "lower": 0, "upper": 100, "bins": 10, "format": "$1,234.5"}
    left = {"type": "numeric", "lower": -100, "upper": 100, "bins": 4, "from": "price - paid"}
    schema = Schema.from_dict({"price": paid, "paid": paid, "left": left})
    table = PrivateTable(pl.DataFrame({"price": ["$90", "$50"], "paid": ["$10", "$70"]}), schema)
    assert table.counts("left").tolist() == [0, 1, 0, 1]


def test_a_release_of_such_a_table_holds_numbers_and_is_evaluated(tmp_path: Path) -> None:
    table = PrivateTable(pl.DataFrame(TEXTS), SCHEMA)
    files = escudo.release(table, tmp_path / "out", epsilon=20.0, delta=1e-6, csv=True, seed=1)
    rows = pl.read_parquet(tmp_path / "out" / "synthetic.parquet")
    assert rows.schema["price"] == pl.Float64
    assert (
        counts(PrivateTable(rows, SCHEMA))["weight"]
        == counts(PrivateTable(scan(files.csv, SCHEMA.as_escudo_writes()), SCHEMA))["weight"]
    )
    assert escudo.load(tmp_path / "out" / "model").schema["price"] == PRICE


def test_bounds_of_such_numbers_are_learnt(tmp_path: Path) -> None:
    known = Schema(
        (Numeric("price", form="$1,234.5", confirmed=False), Numeric("weight", form="1234.5 kg", confirmed=False))
    )
    learnt = escudo.learn_schema(
        pl.DataFrame(TEXTS).select(pl.all().repeat_by(20).explode()), known, epsilon=20.0, seed=1
    )
    for column in learnt.value.fields:
        assert isinstance(column, Numeric)
        assert column.form == known[column.name].form
        assert 0 < column.upper < 40_000


# ---- drafts


def drafted(tmp_path: Path, texts: list[str], **how: Any) -> Schema:
    pl.DataFrame({"x": texts, "plain": ["no", "yes"] * (len(texts) // 2)}).write_csv(tmp_path / "x.csv", separator=";")
    return draft(tmp_path / "x.csv", **how)


def some(write: Any, several: int = 300) -> list[str]:
    rng = random.Random(1)
    return [write(rng.uniform(1, 90_000)) for _ in range(several)]


@pytest.mark.parametrize(
    ("form", "write"),
    [
        ("$1,234.5", lambda x: f"${x:,.0f}"),
        ("$1,234.5", lambda x: f"${x:,.2f}"),
        ("1234.5 kg", lambda x: f"{x / 900:.1f} kg"),
        ("1234.5%", lambda x: f"{x / 900:.1f}%"),
        ("1234.5 mol", lambda x: f"{x:.3e} mol"),
        ("$1234.5", lambda x: f"${x:.4E}" if x > 40_000 else f"${x:.2f}"),
        ("€ 1.234,5", lambda x: f"€ {x:,.2f}".translate(str.maketrans(",.", ".,"))),
        ("1'234.5 CHF", lambda x: f"{x:,.2f} CHF".replace(",", "'")),
        ("US$1234.5", lambda x: f"US${x:.2f}"),
        ("1234.5 mm Hg", lambda x: f"{x / 500:.0f} mm Hg"),
        ("1,234.5", lambda x: f"{x:,.2f}"),
    ],
)
def test_a_draft_proposes_the_format_and_says_so(tmp_path: Path, form: str, write: Any) -> None:
    texts = some(write)
    schema = drafted(tmp_path, [*texts[:-4], "n/a", "ask", "", texts[0]])
    column = schema["x"]
    assert isinstance(column, Numeric)
    assert (column.form, column.missing, column.confirmed) == (form, True, False)
    assert column.upper <= 100_000
    assert "format as it seems to be" in column.note
    (note,) = (note for note in schema.notes if "read as numbers by a format" in note)
    assert f"'x' as {form}. What is not written so is missing." in note
    (found,) = (each for each in check(tmp_path / "x.csv", schema).columns if each.name == "x")
    assert found.findings == ()
    assert found.missing == pytest.approx(3 / 300)


def test_a_draft_of_percent_says_what_they_are_read_as(tmp_path: Path) -> None:
    column = drafted(tmp_path, some(lambda x: f"{x / 900:.1f} %".replace(".", ",")), decimal=",")["x"]
    assert isinstance(column, Numeric)
    assert column.form == "1234,5 %"
    assert '12% is 12. For 0.12, as spreadsheets have it, state format = "123450,0 %"' in column.note


def test_numbers_with_powers_of_ten_are_numbers_in_a_draft(tmp_path: Path) -> None:
    column = drafted(tmp_path, some(lambda x: f"{x:.3e}"))["x"]
    assert isinstance(column, Numeric)
    assert (column.form, column.upper) == (None, 90_000.0)


def test_a_draft_of_a_frame_proposes_it_too() -> None:
    texts = some(lambda x: f"${x:,.0f}")
    objects = pl.DataFrame({"x": pl.Series(texts, dtype=pl.Object)})
    for frame in (pl.DataFrame({"x": texts}), objects, pd.DataFrame({"x": texts}), pa.table({"x": texts})):
        assert draft(frame)["x"].form == "$1,234.5"
    schema = draft(duckdb.sql("SELECT '$' || i AS x, i % 2 = 0 AS y FROM range(500) t(i)"))
    assert any("it holds numbers with signs or units as text. To use it, cast it" in note for note in schema.notes)


def test_one_value_more_or_less_does_not_move_what_a_draft_says_of_formats(tmp_path: Path) -> None:
    texts = some(lambda x: f"${x:,.0f}")
    for odd in ("$9,999,999", "€5", "secret word", "5 kg", "$", "12.5.2020"):
        schema = drafted(tmp_path, [*texts[:-1], odd])
        assert schema["x"].form == "$1,234.5"
        assert not any(odd in note for note in schema.notes if len(odd) > 1)


@pytest.mark.parametrize("end", ["1e307", "-1e308", "1e400"])
def test_a_number_near_the_ends_of_floats_is_no_warning_of_a_draft(tmp_path: Path, end: str) -> None:
    column = drafted(tmp_path, [*some(lambda x: f"${x:,.2f}", 299), f"${end}"])["x"]
    assert isinstance(column, Numeric)
    assert column.form == "$1,234.5"


def test_long_texts_are_not_looked_through_for_numbers() -> None:
    # Patterns take the square of a text's length: one cell of a million blanks would hold up a draft for hours.
    def form_of(blanks: int) -> str | None:
        weights = [f"{number}{' ' * blanks}kg" for number in range(40, 90)]
        drafted = draft(pl.DataFrame({"weight": weights, "ill": [True, False] * 25}))
        return next((each.form for each in drafted.fields if isinstance(each, Numeric)), None)

    assert form_of(1) == "1234.5 kg"
    assert form_of(1_000) is None


def test_several_units_and_currencies_are_named_as_such(tmp_path: Path) -> None:
    rng = random.Random(1)
    for write in (lambda x: f"{x / 900:.1f} {rng.choice(['kg', 'lb'])}", lambda x: f"{rng.choice('$€')}{x:.2f}"):
        schema = drafted(tmp_path, some(write))
        assert isinstance(schema["x"], Categorical)
        assert "in several units or currencies" in schema["x"].note
        assert any("in several units or currencies, which are left as texts: 'x'" in note for note in schema.notes)


def test_a_few_different_ones_are_levels_and_their_comment_has_the_format(tmp_path: Path) -> None:
    column = drafted(tmp_path, ["5 mg", "10 mg", "20 mg", "50 mg"] * 50)["x"]
    assert isinstance(column, Categorical)
    assert column.levels == ("5 mg", "10 mg", "20 mg", "50 mg")
    assert 'format = "1234.5 mg"' in column.note


@pytest.mark.parametrize(
    "write",
    [
        lambda x: f"E{x:.0f}",
        lambda x: f"{x:05.0f} x" if x < 1e4 else f"0{x:.0f} x",
        lambda x: f"#{x:.0f}",
        lambda x: f"{x:.0f}-{x % 7:.0f}",
        lambda x: f"{x:.0f} {'abcdefghij'[int(x) % 10]}",
        lambda x: f"word {x:.0f}",
    ],
)
def test_codes_are_no_numbers(tmp_path: Path, write: Any) -> None:
    texts = some(write)
    schema = drafted(tmp_path, texts + texts)
    assert not isinstance(schema["x"], Numeric)
    assert "numbers" not in schema["x"].note


def test_dates_in_several_ways_are_left_out_in_words(tmp_path: Path) -> None:
    days = [f"{1 + n % 28:02d}.{1 + n % 12:02d}.{1990 + n % 30}" for n in range(150)]
    other = [f"{1990 + n % 30}-{1 + n % 12:02d}-{1 + n % 28:02d}" for n in range(150)]
    (note,) = (note for note in drafted(tmp_path, [*days, *other]).notes if note.startswith("Left out"))
    assert "it holds dates that are written in several ways: %Y-%m-%d and %d.%m.%Y" in note
    assert "write all of them in one way" in note
    assert isinstance(drafted(tmp_path, [*days, *days[:-1], other[0]])["x"], Numeric), (
        "a few in another way are missing"
    )
    words = [f"word {n}" for n in range(100)]
    assert isinstance(drafted(tmp_path, [*days, *other, *words, *words])["x"], Categorical)


def test_the_command_line_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    from escudo.cli import main

    monkeypatch.chdir(tmp_path)
    drafted(tmp_path, some(lambda x: f"${x:,.0f}"))
    told = ""
    for words in (["draft", "x.csv", "--out", "x.toml"], ["show", "x.toml"], ["show", "x.toml", "--json"]):
        monkeypatch.setattr("sys.argv", ["escudo", "schema", *words])
        with pytest.raises(SystemExit):
            main()
        told = capsys.readouterr().out
        assert "$1,234.5" in told
    assert json.loads(told)["columns"]["x"]["format"] == "$1,234.5"


@pytest.mark.parametrize("odd", ["\ud800", np.datetime64("NaT"), 10**400, b"x", 5, None, float("nan"), object(), True])
def test_one_odd_object_among_texts_is_no_error_of_a_draft_or_a_check(odd: Any) -> None:
    texts = {"price": some(lambda x: f"${x:,.0f}"), "sex": ["f", "m "] * 150}
    loose = Categorical("sex", ["F", "M"], loose=True)
    schema = Schema((PRICE, loose))
    for name in texts:
        held: dict[str, list[Any]] = {each: list(values) for each, values in texts.items()}
        held[name][7] = odd
        for frame in (
            pd.DataFrame(held, dtype=object),
            pl.DataFrame([pl.Series(each, values, dtype=pl.Object) for each, values in held.items()]),
        ):
            assert draft(frame).fields
            assert check(frame, schema).problems == ()
            assert PrivateTable(frame, schema).counts("price").sum() == 300
