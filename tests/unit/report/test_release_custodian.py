"""The custodian's report: right figures, and marked wherever it goes."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.report import custodian_page
from escudo.synthesis import CausalModel
from escudo.table import PrivateTable, Schema

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MADE = datetime(2026, 11, 5, tzinfo=UTC)
MARK = "Custodian only, not for release"


def frame(rows: int, seed: int, *, flip: float = 0.0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    a = rng.random(rows) < 0.3
    b = a ^ (rng.random(rows) < 0.1 + flip)
    c = rng.integers(0, 3, rows)
    return pl.DataFrame({"a": a, "b": b, "c": c})


@pytest.fixture(scope="module")
def schema() -> Schema:
    return Schema.from_dict({"a": [False, True], "b": [False, True], "c": [0, 1, 2]})


@pytest.fixture(scope="module")
def real(schema: Schema) -> PrivateTable:
    return PrivateTable(frame(4000, 1), schema)


@pytest.fixture(scope="module")
def page(real: PrivateTable) -> str:
    return custodian_page(real, frame(3000, 2, flip=0.2), dataset="clinic", made=MADE)


def brute_force(columns: tuple[str, ...], one: pl.DataFrame, other: pl.DataFrame) -> float:
    def shares(rows: pl.DataFrame) -> dict[tuple[object, ...], float]:
        counted = rows.group_by(columns).len()
        return {tuple(row[:-1]): row[-1] / rows.height for row in counted.rows()}

    first, second = shares(one), shares(other)
    return sum(abs(first.get(cell, 0) - second.get(cell, 0)) for cell in {*first, *second}) / 2


class TestFigures:
    def test_they_are_those_of_counting_by_hand(self, page: str, outline: Any) -> None:
        text = outline(page).text.replace(" .", ".")
        for size, word in ((1, "one"), (2, "two"), (3, "three")):
            found = [
                brute_force(columns, frame(4000, 1), frame(3000, 2, flip=0.2))
                for columns in combinations(("a", "b", "c"), size)
            ]
            mean, most = 100 * np.mean(found), 100 * max(found)
            assert re.search(rf"\b{word} {mean:.2f} {most:.2f} [\d.]+ {len(found)}\b", text)

    def test_the_worst_pair_comes_first(self, page: str, outline: Any) -> None:
        worst = outline(page).text.split("The pairs that are furthest off")[1]
        assert worst.index("a × b") < worst.index("a × c")

    def test_equal_tables_are_no_distance_apart(self, real: PrivateTable, outline: Any) -> None:
        text = outline(custodian_page(real, frame(4000, 1), made=MADE)).text
        assert "0.0 % of the synthetic rows are in another cell" in text

    def test_a_single_column_is_compared_too(self, outline: Any) -> None:
        schema = Schema.from_dict({"c": [0, 1, 2]})
        only = frame(100, 1).select("c")
        text = outline(custodian_page(PrivateTable(only, schema), only, made=MADE)).text
        assert "over every column" in text
        assert "Pair by pair" not in text

    def test_persons_with_several_rows_count_as_in_the_release(self, outline: Any) -> None:
        schema = Schema.from_dict({"a": [False, True], "b": [False, True]}, person_id="who", max_rows_per_person=1)
        rows = frame(400, 1).select("a", "b").with_columns(who=pl.Series(list(range(200)) * 2))
        text = outline(custodian_page(PrivateTable(rows, schema), frame(200, 2).select("a", "b"), made=MADE)).text
        assert "For the custodian" in text

    def test_many_columns_and_huge_tables_are_capped(self, model_of: Callable[..., CausalModel], outline: Any) -> None:
        columns: dict[str, Any] = {f"c{number}": ["no", "yes"] for number in range(64)}
        columns = {"town": [f"t{number}" for number in range(5000)], "street": [f"s{i}" for i in range(5000)]} | columns
        made = model_of(columns, [])
        table = PrivateTable(made.sample(200, seed=1), made.schema)
        page = custodian_page(table, made.sample(200, seed=2), made=MADE)
        text = outline(page).text
        assert "The first 60 of 66 columns" in text
        assert "117 pairs with very large tables are left out" in text
        assert len(page.encode()) < 2_000_000


class TestMarking:
    def test_it_stands_on_the_screen_and_on_every_printed_page(self, page: str) -> None:
        assert f'<div class="marking">{MARK}</div>' in page
        assert f'@page {{ @top-center {{ content: "{MARK}"' in page
        assert re.search(r"\.marking \{[^}]*position: sticky", page)
        assert re.search(r"@media print.*\.watermark \{[^}]*position: fixed", page, flags=re.DOTALL)

    def test_it_says_why(self, page: str, outline: Any) -> None:
        assert "It shows exact figures of the private table, without noise." in outline(page).text

    @pytest.mark.chromium
    @pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium binary, none is on this machine")
    def test_a_browser_finds_no_fault(self, page: str, tmp_path: Path) -> None:
        assert CHROMIUM is not None
        path = tmp_path / "page.html"
        path.write_text(page, encoding="utf-8")
        flags = ["headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync", "dump-dom"]
        flags += ["disable-background-networking", "disable-component-update", f"user-data-dir={tmp_path / 'profile'}"]
        command = [CHROMIUM, *(f"--{flag}" for flag in flags), "--enable-logging=stderr", path.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert MARK in done.stdout
        assert "CONSOLE" not in done.stderr
