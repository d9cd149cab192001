"""Which rows of a person are kept does not depend on memory, disk or pieces, and the disk keeps nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.errors import EngineError, InputError
from escudo.table import _contributions
from escudo.table._columns import Categorical, Column, Numeric
from escudo.table._contributions import MEMORY_SETTING, Packing, PersonParts, held, kept, memory_for_rows
from escudo.table._persons import PERSON, PERSON_NUMBER
from escudo.table._schema import Schema
from escudo.table._table import PrivateTable

COLUMNS: tuple[Column, ...] = (
    Categorical("text", ["no", "yes", "ärger", ""], missing=True),
    Categorical("whole", [7, -3, 5], missing=True, other=5),
    Numeric("real", 0, 1, 7, missing=True),
    Categorical("plain", ["b", "a"]),
)
SCHEMA = Schema(COLUMNS, person_id="who", max_rows_per_person=3)
TABLES = [("text", "whole"), ("real", "plain", "text"), ("whole",)]


def _frame(rows: int = 4000, people: int = 300, text: bool = False) -> pl.DataFrame:
    rng = np.random.default_rng(4)
    who = rng.integers(0, people, rows)
    drawn = {
        "text": pl.Series(["no", "yes", "ärger", "", "?", None]).gather(rng.integers(0, 6, rows)),
        "whole": pl.Series([7, -3, 5, 4, None]).gather(rng.integers(0, 5, rows)),
        "real": rng.normal(0.5, 1, rows),
        "plain": pl.Series(["b", "a", None]).gather(rng.integers(0, 3, rows)),
    }
    return pl.DataFrame({**drawn, "who": [f"p{w}" for w in who] if text else who})


def test_rows_come_back_from_their_words_and_sort_as_their_contents_do() -> None:
    packing = Packing.of(COLUMNS)
    rng = np.random.default_rng(1)
    cells = {column.name: rng.integers(0, column.size, 500) for column in COLUMNS}
    words = pl.DataFrame(packing.packed(cells))
    back = packing.cells(words, ["plain", "text", "whole", "real"])
    assert all((back[name] == cells[name]).all() for name in cells)
    # Numbers by value, missing above them; then texts by their bytes, missing below them.
    values: dict[str, list[Any]] = {
        "whole": [7, -3, 5, 8],
        "real": list(range(8)),
        "text": [b"1no", b"1yes", "1ärger".encode(), b"1", b""],
        "plain": [b"b", b"a"],
    }
    contents = [tuple(values[name][cells[name][row]] for name in values) for row in range(500)]
    order = words.select(pl.arg_sort_by(packing.names)).to_series().to_list()
    assert [contents[row] for row in order] == sorted(contents)


def test_many_columns_take_several_words() -> None:
    columns = [Numeric(f"x{i}", 0, 1, 1000) for i in range(20)]
    packing = Packing.of(columns)
    assert [len(names) for names in packing.words] == [6, 6, 6, 2]
    cells = {column.name: np.random.default_rng(i).integers(0, 1000, 50) for i, column in enumerate(columns)}
    back = packing.cells(pl.DataFrame(packing.packed(cells)), list(cells))
    assert all((back[name] == cells[name]).all() for name in cells)


def test_exactly_so_many_rows_are_kept_by_the_rule_as_it_is_written() -> None:
    rng = np.random.default_rng(2)
    people = rng.integers(0, 40, 600)
    rows = pl.DataFrame({PERSON: people, PERSON_NUMBER: people * 7919 + 3, "w0": rng.permutation(600)})
    mask = kept(rows, ["w0"], 4)
    for person in range(40):
        own = np.flatnonzero(people == person)
        own = own[np.argsort(rows["w0"].to_numpy()[own])]
        n, u = own.size, (person * 7919 + 3) % max(own.size, 1)
        wanted = {row for i, row in enumerate(own.tolist()) if n <= 4 or (i * 4 + u) % n >= n - 4}
        assert set(own[mask[own]].tolist()) == wanted
        assert len(wanted) == min(4, n)


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("engine", ["polars lazy", "duckdb"])
def test_buckets_on_disk_keep_what_memory_keeps(engine: str, text: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = _frame(text=text)
    wanted = PrivateTable(frame, SCHEMA)
    tables, people = wanted.counts(TABLES), wanted.record_count()
    source: Any = frame.lazy() if engine != "duckdb" else pytest.importorskip("duckdb").from_arrow(frame.to_arrow())
    written: list[int] = []
    real = _contributions._Buckets._write

    def spy(self: Any, bucket: int, rows: pl.DataFrame) -> None:
        written.append(rows.height)
        real(self, bucket, rows)

    monkeypatch.setattr(_contributions._Buckets, "_write", spy)
    monkeypatch.setattr(_contributions, "memory_for_rows", lambda: 3000)  # one bucket of 64 is too large, too
    monkeypatch.setattr(_contributions, "_AT_ONCE", 700)
    table = PrivateTable(source, SCHEMA)
    for counts, expected in zip(table.counts(TABLES), tables, strict=True):
        np.testing.assert_array_equal(counts, expected)
    assert sum(written) >= frame.height
    assert table.record_count() == people


def test_one_person_of_very_many_rows_is_not_parted_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_contributions, "memory_for_rows", lambda: 100)
    rows = pl.DataFrame({PERSON: [1] * 900, PERSON_NUMBER: [17] * 900, "w0": range(900)})
    with PersonParts([rows]) as parts:
        assert [part.height for part in parts] == [part.height for part in parts] == [900]


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "many", "²"])
def test_a_setting_that_is_no_size_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEMORY_SETTING, text)
    with pytest.raises(InputError, match="whole number of megabytes"):
        memory_for_rows()
    with pytest.raises(InputError, match=MEMORY_SETTING):
        PrivateTable(_frame(), SCHEMA).counts("whole")


def test_rows_that_do_not_fit_into_memory_are_mapped_from_a_file_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = np.random.default_rng(1).integers(0, 200, (1000, 7))
    none = np.empty((0, 7), np.uint8)
    for room in (10**6, 2000, 1):
        monkeypatch.setattr(_contributions, "memory_for_rows", lambda room=room: room)
        found = held(iter(np.array_split(rows, 13)), none)
        assert found.flags.writeable == (room > rows.size)  # what is mapped is not
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, rows)
        assert list(tmp_path.iterdir()) == []
        assert held([], none).shape == held([none], none).shape == (0, 7)


ON_DISK: dict[str, Callable[[], object]] = {
    "counts": lambda: PrivateTable(_frame(), SCHEMA).counts("whole"),
    "people": lambda: PrivateTable(_frame(), SCHEMA).record_count(),
    "rows": lambda: held([np.zeros((70, 2)), np.zeros((7, 2))], np.empty((0, 2))),
    "parts": lambda: PersonParts([pl.DataFrame({PERSON: range(1000), PERSON_NUMBER: range(1000)})]),
}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device is always full here")
@pytest.mark.parametrize("buffering", [0, -1])
@pytest.mark.parametrize("ask", ON_DISK.values(), ids=ON_DISK)
def test_a_full_disk_is_named(ask: Callable[[], object], buffering: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_contributions, "memory_for_rows", lambda: 1000)
    place = partial(open, "/dev/full", "r+b" if buffering == 0 else "wb", buffering=buffering)
    monkeypatch.setattr(_contributions.tempfile, "TemporaryFile", place)
    with pytest.raises(EngineError, match=r"the disk is full.*TMPDIR"):
        ask()


def test_no_folder_for_temporary_files_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_contributions, "memory_for_rows", lambda: 1000)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "none")])
    for ask in ON_DISK.values():
        with pytest.raises(EngineError, match=r"no folder for temporary files.*TMPDIR"):
            ask()


_CHILD = """
import os, sys, tempfile
import polars as pl
from escudo.table import _contributions
from escudo.table._persons import PERSON, PERSON_NUMBER
_contributions.memory_for_rows = lambda: 1000
_contributions._AT_ONCE = 100

def rows():
    for start in range(0, 100_000, 1000):
        yield pl.DataFrame({PERSON: range(start, start + 1000), PERSON_NUMBER: range(start, start + 1000)})
    found = [status(fd) for fd in os.listdir("/proc/self/fd")]
    mine = [one for one in found if one and not one.st_nlink and one.st_size]
    private = all(one.st_mode & 0o777 == 0o600 for one in mine)
    print(len(mine), private, os.listdir(tempfile.gettempdir()), flush=True)
    os.kill(os.getpid(), 9)

def status(fd):
    try:
        return os.fstat(int(fd))
    except OSError:
        return None

_contributions.PersonParts(rows())
"""


def test_a_kill_leaves_nothing_on_the_disk(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -9, done.stderr
    assert done.stdout.split(maxsplit=2) == ["64", "True", "[]\n"], done.stdout
    assert list(tmp_path.iterdir()) == []
    assert tempfile.gettempdir() != str(tmp_path)
