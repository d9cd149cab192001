"""``escudo.release``: the whole job in one call, paid for before a row is read and written down or marked failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import escudo
from escudo.causal import asia
from escudo.cli import app
from escudo.errors import BudgetExceededError, InputError, RefusedError
from escudo.report import _release_folder

CLINIC = asia()
ROWS = 2000
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


@pytest.fixture(scope="module")
def visits() -> pl.DataFrame:
    frame: pl.DataFrame = CLINIC.sample_frame(ROWS, rng=np.random.default_rng(0))
    return frame


@pytest.fixture
def schema() -> escudo.Schema:
    return escudo.Schema.from_dict({name: list(levels) for name, levels in CLINIC.levels.items()})


@pytest.fixture
def ledger(tmp_path: Path) -> escudo.Ledger:
    book = escudo.Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    book.open("visits", epsilon=2.0, delta=1e-5)
    return book


def kinds(ledger: escudo.Ledger) -> list[str]:
    return [row.kind for row in ledger.history()]


def test_it_writes_the_very_files_that_the_command_writes(
    visits: pl.DataFrame, schema: escudo.Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    visits.write_parquet("visits.parquet")
    schema.write("visits.toml")
    CLINIC.graph.write("clinic.dot")
    words = ["release", "visits.parquet", "-s", "visits.toml", "-g", "clinic.dot", "-e", "1", "--out", "typed"]
    assert CliRunner().invoke(app, [*words, "--seed", "4", "--evaluate", "0.2", "--csv"]).exit_code == 0
    table = escudo.PrivateTable(visits, schema)
    files = escudo.release(table, "called", CLINIC.graph, epsilon=1.0, seed=4, evaluate=0.2, csv=True)
    assert files.rows == ROWS
    assert files.fitted.guarantee.epsilon_at(1e-6) <= 1.0
    assert not files.fitted.guarantee.for_release
    for name in ("synthetic.parquet", "synthetic.csv", "model/model.json", "model/parameters.safetensors"):
        assert Path("typed", name).read_bytes() == Path("called", name).read_bytes(), name
    typed, called = (json.loads(Path(folder, "release.json").read_text()) for folder in ("typed", "called"))
    for record in (typed, called):
        record.pop("made")
        record["files"] = [entry for entry in record["files"] if entry["path"] != "report.html"]  # it says when
    assert typed == called


def test_the_plan_is_what_is_charged(
    visits: pl.DataFrame, schema: escudo.Schema, ledger: escudo.Ledger, tmp_path: Path
) -> None:
    table = escudo.PrivateTable(visits, schema, ledger, "visits")
    arguments: dict[str, Any] = {**BUDGET, "evaluate": 0.1, "generator": "one-way", "seed": 1, "rows": 50}
    tree = escudo.plan(escudo.release, table, tmp_path / "out", CLINIC.graph, **arguments)
    assert kinds(ledger) == ["open"]
    assert not (tmp_path / "out").exists()
    files = escudo.release(table, tmp_path / "out", CLINIC.graph, **arguments)
    spent = ledger.history()[-1]
    assert spent.event == tree.event
    assert json.loads(files.record.read_text())["dataset"] == "visits"
    assert pl.read_parquet(files.synthetic).height == 50


def test_a_graph_can_be_discovered_on_the_way(visits: pl.DataFrame, schema: escudo.Schema, tmp_path: Path) -> None:
    table = escudo.PrivateTable(visits, schema)
    files = escudo.release(table, tmp_path / "out", "discover", **BUDGET, seed=1, rows=20)
    assert json.loads(files.record.read_text())["generator"]["details"]["discovery"]["edges"]


@pytest.mark.parametrize(
    ("graph", "arguments", "said"),
    [
        (CLINIC.graph, {"knowledge": CLINIC.graph}, "knowledge goes with a graph that is to be discovered"),
        ("discover", {"generator": "one-way"}, "generator 'one-way' measures no arrow"),
        ("discover", {"generator": "independent"}, "generator 'independent' measures no arrow"),
        ("discover", {"generator": "moments", "repair": True}, "Leave repair out"),
        ("discover", {"generator": "moments", "bins": 3}, "no option 'bins'"),
        ("discover", {"generator": "wishes"}, "generator must be one of"),
        ("discover", {"generator": "moments", "method": "magic"}, "method must be one of"),
        ("discover", {"bins": 3}, "no option 'bins'"),
        (None, {"generator": "wishes"}, "generator must be one of"),
        (None, {"evaluate": 1.5}, "between 0 and 1"),
        (None, {"epsilon": 0.0}, "epsilon"),
    ],
)
def test_what_is_out_of_range_costs_nothing(
    visits: pl.DataFrame,
    schema: escudo.Schema,
    ledger: escudo.Ledger,
    tmp_path: Path,
    graph: Any,
    arguments: dict[str, Any],
    said: str,
) -> None:
    table = escudo.PrivateTable(visits, schema, ledger, "visits")
    with pytest.raises(InputError, match=said):
        escudo.release(table, tmp_path / "out", graph, **{**BUDGET, **arguments})
    assert kinds(ledger) == ["open"]
    assert not (tmp_path / "out").exists()


def test_refusals_come_before_a_charge(
    visits: pl.DataFrame, schema: escudo.Schema, ledger: escudo.Ledger, tmp_path: Path
) -> None:
    table = escudo.PrivateTable(visits, schema, ledger, "visits")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "letter.txt").touch()
    with pytest.raises(InputError, match="no release of escudo"):
        escudo.release(table, tmp_path / "taken", CLINIC.graph, **BUDGET)
    with pytest.raises(RefusedError, match="too large"):
        escudo.release(table, tmp_path / "out", CLINIC.graph, epsilon=1.0, delta=0.1)
    with pytest.raises(BudgetExceededError):
        escudo.release(table, tmp_path / "out", CLINIC.graph, epsilon=50.0, delta=1e-6)
    assert kinds(ledger) == ["open"]


def test_a_release_that_cannot_be_written_stays_paid_and_is_marked(
    visits: pl.DataFrame,
    schema: escudo.Schema,
    ledger: escudo.Ledger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_release_folder, "sync", full)
    table = escudo.PrivateTable(visits, schema, ledger, "visits")
    with pytest.raises(InputError, match=r"No space left on device\. What was spent stays spent\."):
        escudo.release(table, tmp_path / "out", CLINIC.graph, **BUDGET)
    assert kinds(ledger) == ["open", "spend", "failed"]
    assert not (tmp_path / "out").exists()
