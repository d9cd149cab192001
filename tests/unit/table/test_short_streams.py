"""A stream of rows that ends too early is an error, not a smaller count."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.errors import EngineError
from escudo.table import PrivateTable, Schema, open_data
from escudo.table._frames import length_of_files

COLUMNS = {"kind": ["a", "b"], "size": {"type": "numeric", "lower": 0, "upper": 1, "bins": 4}}
SCHEMA = Schema.from_dict(COLUMNS)
BY_PERSON = Schema(SCHEMA.fields, person_id="who", max_rows_per_person=2)
ROWS = pl.DataFrame(
    {"kind": ["a", "b"] * 150, "size": np.linspace(0, 1, 300), "who": [f"p{i % 90}" for i in range(300)]}
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for part in range(3):
        ROWS[part * 100 : part * 100 + 100].write_parquet(tmp_path / f"part-{part}.parquet", row_group_size=40)
    return tmp_path


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that loses the rows at the end without a word, as one that has crashed inside."""
    real = pl.LazyFrame.collect_batches

    def ends_early(self: pl.LazyFrame, **how: Any) -> Iterator[pl.DataFrame]:
        whole = pl.concat(list(real(self, **how)))
        yield whole.head(whole.height - 1)

    monkeypatch.setattr(pl.LazyFrame, "collect_batches", ends_early)


QUESTIONS: dict[str, Callable[[PrivateTable], object]] = {
    "counts": lambda table: table.counts(["kind", "size"]),
    "batches": lambda table: list(table.batches(50)),
    "sums": lambda table: table.sums(lambda batches: np.array([sum(len(batch) for batch in batches)])),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("schema", [SCHEMA, BY_PERSON], ids=["row", "person"])
@pytest.mark.parametrize("name", ["", "part-0.parquet", "*.parquet"])
def test_a_reader_that_ends_early_is_an_error(
    files: Path, short: None, question: str, schema: Schema, name: str
) -> None:
    table = PrivateTable(open_data(f"{files}/{name}", schema), schema)
    with pytest.raises(EngineError, match="not hand over as many rows") as failed:
        QUESTIONS[question](table)
    assert not re.search(r"[0-9]", str(failed.value))  # how many rows there are may be private


def test_people_are_not_counted_short(files: Path, short: None) -> None:
    with pytest.raises(EngineError, match="not hand over as many rows"):
        PrivateTable(open_data(str(files), BY_PERSON), BY_PERSON).record_count()


def test_whole_files_are_read_as_before(files: Path) -> None:
    for schema in (SCHEMA, BY_PERSON):
        found, wanted = (PrivateTable(frame, schema) for frame in (open_data(str(files), schema), ROWS))
        assert found.counts(["kind", "size"]).tolist() == wanted.counts(["kind", "size"]).tolist()
        first = next(iter(found.batches(50)))  # nobody has to read all
        assert len(first) == 50


def test_what_the_files_do_not_say_is_not_read_for_it(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned = pl.scan_parquet(f"{files}/*.parquet")
    assert length_of_files(scanned) == 300
    assert length_of_files(scanned.select(pl.col("size") * 2)) == 300
    assert length_of_files(pl.concat([scanned, scanned.head(7)])) in (307, None)
    ROWS.write_csv(files / "rows.csv")
    read: list[bool] = []
    monkeypatch.setattr(pl.LazyFrame, "collect", lambda *_, **__: read.append(True))
    for frame in (scanned.filter(pl.col("size") > 0.5), pl.scan_csv(files / "rows.csv"), scanned.unique(), ROWS.lazy()):
        assert length_of_files(frame) is None
    assert not read


def test_a_crash_inside_polars_is_an_error_without_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no Exception, and what it says may show values."""

    def crashes(self: pl.LazyFrame, **how: Any) -> Iterator[pl.DataFrame]:
        raise type("PanicException", (BaseException,), {})("SECRET")

    monkeypatch.setattr(pl.LazyFrame, "collect_batches", crashes)
    with pytest.raises(EngineError, match="PanicException") as error:
        PrivateTable(ROWS.lazy(), SCHEMA).counts(["kind"])
    assert "SECRET" not in "".join(traceback.format_exception(error.value))
