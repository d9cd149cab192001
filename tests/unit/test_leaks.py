"""Nothing private leaks: under the same noise, tables that differ in one person differ in noise-bearing values only.

Everything that a release writes and prints is compared: files and their names, keys and their order, columns and their
types, warnings, messages, exit codes, ledger rows. Numbers that carry noise are masked; nothing else is.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from escudo.cli import app
from escudo.privacy import Ledger
from escudo.synthesis import GENERATORS
from escudo.table import Schema

ROWS = 60
SCHEMA = Schema.from_dict(
    {
        "smoke": ["no", "yes"],
        "age": {"type": "numeric", "lower": 0, "upper": 100, "bins": 5, "missing": True},
        "stage": {"type": "ordinal", "levels": [1, 2, 3]},
        "lung": {"type": "boolean", "missing": True},
    }
)
GRAPH = "digraph { smoke -> lung; age -> stage; stage -> lung }"
NUMBER = re.compile(r"[-+−]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?|\.\d+")
DIGEST = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{32})\b")  # and the names of ledgers, which are drawn by chance
MARK = re.compile(r"<(path|rect|circle|line)\b[^>]*/>|(?<=class=\"value) over(?=\")")
TABLE_ROWS = re.compile(r'(?:<tr><td class="name">(?:(?!</tr>).)*</tr>\s*)+', re.DOTALL)
BASE: dict[str, Any] = {"smoke": "no", "age": 40.0, "stage": 1, "lung": False}

ODD_PEOPLE: dict[str, dict[str, Any]] = {
    "another cell": {"smoke": "yes", "age": 77.0, "stage": 3, "lung": True},
    "missing": {"smoke": None, "age": None, "stage": None, "lung": None},
    "outside the schema": {"smoke": "a secret habit", "age": 1e12, "stage": 99, "lung": True},
    "not a number": {"smoke": "", "age": math.nan, "stage": -(2**31), "lung": None},
    "infinite": {"smoke": "NO", "age": -math.inf, "stage": 2, "lung": False},
}


def people(last: dict[str, Any]) -> pl.DataFrame:
    """Return everybody, the last one as given; nobody else is in stage 3."""
    rng = np.random.default_rng(0)
    rest = {
        "smoke": rng.choice(["no", "yes"], ROWS - 1).tolist(),
        "age": (rng.random(ROWS - 1) * 100).tolist(),
        "stage": rng.integers(1, 3, ROWS - 1).tolist(),
        "lung": rng.choice([True, False], ROWS - 1).tolist(),
    }
    types = {"smoke": pl.String, "age": pl.Float64, "stage": pl.Int64, "lung": pl.Boolean}
    return pl.DataFrame({name: [*values, last[name]] for name, values in rest.items()}, schema=types)


class Outcome:
    """Everything one run left behind."""

    def __init__(self, folder: Path, *arguments: str):
        before = os.getcwd()
        os.chdir(folder)
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                result = CliRunner().invoke(app, list(arguments))
        finally:
            os.chdir(before)
        self.folder = folder
        self.exit = (result.exit_code, type(result.exception).__name__, str(result.exception or ""))
        self.said = re.sub(r"\(\d+\.\d s\)", "(… s)", result.output)
        self.warned = [(warning.category, str(warning.message)) for warning in warned]
        self.files = sorted(
            path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.name.startswith("people.")
        )


def release(
    folder: Path, frame: pl.DataFrame, ending: str, *options: str, schema: Schema = SCHEMA, graph: str = GRAPH
) -> Outcome:
    folder.mkdir()
    write: dict[str, Callable[[Path], Any]] = {
        "parquet": frame.write_parquet,
        "csv": frame.write_csv,
        "ndjson": frame.write_ndjson,
    }
    write[ending](folder / f"people.{ending}")
    schema.write(folder / "schema.toml")
    (folder / "graph.dot").write_text(graph)
    with Ledger(f"sqlite:///{folder / 'ledger.db'}") as book:
        book.open("people", epsilon=2.0, delta=1e-6)
    wanted = ["release", f"people.{ending}", "-s", "schema.toml", "-g", "graph.dot", "-e", "1", "-o", "out"]
    return Outcome(
        folder, *wanted, "--ledger", "sqlite:///ledger.db", "--dataset", "people", "--seed", "7", "--csv", *options
    )


def masked(text: str) -> str:
    """Return a text with one sign for each number and digest, and without the marks of charts, which draw numbers."""
    return NUMBER.sub("#", DIGEST.sub("#", MARK.sub("", text)))


def page(out: Path) -> str:
    """Return a report, masked, with rows of its tables in one order: those that err most, by released numbers, lead."""
    text = masked((out / "report.html").read_text())
    return TABLE_ROWS.sub(lambda rows: "".join(sorted(re.split(r"(?=<tr>)", rows[0]))), text)


def outline(value: Any, path: tuple[str, ...] = ()) -> Any:
    """Return a JSON value with its noise-bearing leaves masked: digests, sizes, the time, numbers of the evaluation.

    And numbers of a model's ``details``, such as a clip bound that was paid for.
    """
    if path and path[-1] in ("made", "bytes", "size"):
        return type(value).__name__
    if isinstance(value, str) and DIGEST.fullmatch(value):
        return "a digest"
    if isinstance(value, dict):
        return [(key, outline(inner, (*path, key))) for key, inner in value.items()]
    if isinstance(value, list):
        return [outline(inner, path) for inner in value]
    if {"evaluation", "details"} & set(path) and isinstance(value, int | float):
        return "#"
    return value


def header(path: Path) -> Any:
    """Return what a safetensors file says about its arrays, without the arrays."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length])


def picked(run: Outcome) -> list[list[str]]:
    """Return which tables a release measured."""
    model = json.loads((run.folder / "out" / "model" / "model.json").read_text())
    return sorted(sorted(table["columns"]) for table in model["details"]["tables"])


def ledger_rows(folder: Path) -> list[tuple[str, Any]]:
    with Ledger(f"sqlite:///{folder / 'ledger.db'}") as book:
        return [(row.kind, row.payload) for row in book.history()]


def without_digests(text: str) -> str:
    return DIGEST.sub("#", text)


def assert_alike(
    one: Outcome, other: Outcome, *, noisy_numbers: bool = False, names: tuple[str, ...] = SCHEMA.names
) -> None:
    """Compare all that two runs left; ``noisy_numbers``: what is said, and a model's details, hold released numbers."""
    assert one.exit == other.exit
    assert one.exit[0] == 0, one.exit
    show = masked if noisy_numbers else without_digests
    assert show(one.said) == show(other.said)
    assert one.warned == other.warned == []
    assert one.files == other.files
    assert ledger_rows(one.folder) == ledger_rows(other.folder)
    first, second = one.folder / "out", other.folder / "out"
    records = [json.loads((out / "release.json").read_text()) for out in (first, second)]
    models = [json.loads((out / "model" / "model.json").read_text()) for out in (first, second)]
    assert outline(records[0]) == outline(records[1])
    assert outline(models[0]) == outline(models[1])
    if not noisy_numbers:
        for model in models:
            assert set(model["details"].pop("anchor")) == {"ledger_id", "rows", "head"}  # by chance, and by the clock
        assert models[0] == models[1]
    assert header(first / "model" / "parameters.safetensors") == header(second / "model" / "parameters.safetensors")
    frames = [pl.read_parquet(out / "synthetic.parquet") for out in (first, second)]
    assert frames[0].schema == frames[1].schema
    assert frames[0].height == frames[1].height
    assert (first / "synthetic.csv").read_text().splitlines()[0] == ",".join(names)
    assert page(first) == page(second)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    home = tmp_path_factory.mktemp("usual")
    return {ending: release(home / ending, people(BASE), ending) for ending in ("parquet", "csv", "ndjson")}


@pytest.mark.parametrize("ending", ["parquet", "csv", "ndjson"])
@pytest.mark.parametrize("who", ODD_PEOPLE)
def test_replacing_one_person_changes_noise_bearing_values_only(
    usual: dict[str, Outcome], tmp_path: Path, who: str, ending: str
) -> None:
    assert_alike(usual[ending], release(tmp_path / "changed", people(ODD_PEOPLE[who]), ending))


def test_a_person_who_reads_the_same_by_the_schema_changes_nothing_at_all(tmp_path: Path) -> None:
    """Values outside the schema fall into its cells: the same cells give the same bytes under the same noise."""
    inside = {"smoke": "no", "age": 100.0, "stage": 1, "lung": None}
    outside = {"smoke": "a secret habit", "age": 3e9, "stage": 99, "lung": None}
    one = release(tmp_path / "inside", people(inside), "parquet")
    other = release(tmp_path / "outside", people(outside), "parquet")
    assert_alike(one, other)
    for name in ("synthetic.parquet", "synthetic.csv", "model/parameters.safetensors"):
        assert (one.folder / "out" / name).read_bytes() == (other.folder / "out" / name).read_bytes()
    first, second = ((run.folder / "out" / "model" / "model.json").read_text() for run in (one, other))
    assert without_digests(first) == without_digests(second)
    assert one.said == other.said


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_adding_one_person_changes_noise_bearing_values_only(tmp_path: Path, ending: str) -> None:
    """Which pairs were picked is released, too: of a few seeds, one is taken by which both pick the same."""
    everybody = people(ODD_PEOPLE["outside the schema"])
    for seed in range(7, 12):
        options = ["--relation", "add_remove", "--rows", "50", "--seed", str(seed)]
        runs = [
            release(tmp_path / f"{name} {seed}", frame, ending, *options)
            for name, frame in (("with", everybody), ("without", everybody[:-1]))
        ]
        if picked(runs[0]) == picked(runs[1]):
            break
    assert_alike(*runs, noisy_numbers=True)


NUMBERS = Schema.from_dict(
    {name: {"type": "numeric", "lower": 0, "upper": 100, "bins": 4} for name in ("age", "dose", "pressure")}
)
FEW = ("--option", "steps=2", "--option", "pretraining=2")
SHORT = {"autoregressive": FEW, "vae": (*FEW, "--option", "latent=1")}  # as private, less to wait for
TINY = {"vae": {"encoder": (), "decoder": ()}}  # options that no command line can give


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks of a few parameters, which compile in a second."""
    for name, options in TINY.items():
        monkeypatch.setitem(GENERATORS, name, functools.wraps(GENERATORS[name])(partial(GENERATORS[name], **options)))


def patients(last: float) -> pl.DataFrame:
    """Return patients of numbers only, which every generator takes."""
    drawn = np.random.default_rng(1).random((ROWS - 1, 3)) * 100
    return pl.DataFrame(np.vstack([drawn, np.full((1, 3), last)]), schema=NUMBERS.names)


@pytest.mark.parametrize("generator", GENERATORS)
def test_no_generator_leaks_more(tmp_path: Path, tiny: None, generator: str) -> None:
    given = {"schema": NUMBERS, "graph": "digraph { age -> dose; age -> pressure; dose -> pressure }"}
    options = ("--generator", generator, *SHORT.get(generator, ()))
    one = release(tmp_path / "one", patients(50.0), "parquet", *options, **given)
    other = release(tmp_path / "other", patients(-1e9), "parquet", *options, **given)
    assert_alike(one, other, noisy_numbers=True, names=NUMBERS.names)


def test_picking_leaks_no_more_than_what_was_picked(tmp_path: Path) -> None:
    """Which pairs were picked is released; everything else is alike, the number of picks included."""
    one = release(tmp_path / "one", people(BASE), "parquet")
    other = release(tmp_path / "other", people(ODD_PEOPLE["another cell"]), "parquet")
    assert (one.exit, one.warned, one.files) == (other.exit, other.warned, other.files)
    assert one.exit[0] == 0
    assert without_digests(one.said) == without_digests(other.said)
    assert ledger_rows(one.folder) == ledger_rows(other.folder)
    records = [json.loads((each.folder / "out" / "release.json").read_text()) for each in (one, other)]
    assert outline(records[0]) == outline(records[1])


def test_a_failure_says_the_same_for_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong half-way is reported without a word of the data."""

    def broken(*tables: Any, **_: Any) -> None:
        raise RuntimeError(f"values: {tables}")

    monkeypatch.setattr("escudo.table._table.count_tables", broken)
    one = release(tmp_path / "one", people(BASE), "parquet")
    other = release(tmp_path / "other", people(ODD_PEOPLE["another cell"]), "parquet")
    assert one.exit == other.exit
    assert one.exit[0] != 0
    assert "values:" not in str(one.exit)
    assert (one.said, one.files) == (other.said, other.files)
    assert ledger_rows(one.folder) == ledger_rows(other.folder)
    assert [kind for kind, _ in ledger_rows(one.folder)] == ["open", "spend", "failed"]


def test_the_check_itself_sees_a_leak(usual: dict[str, Outcome], tmp_path: Path) -> None:
    other = release(tmp_path / "other", people(BASE), "parquet")
    report = other.folder / "out" / "report.html"
    report.write_text(report.read_text().replace("</body>", "a secret habit</body>"))
    with pytest.raises(AssertionError):
        assert_alike(usual["parquet"], other)
