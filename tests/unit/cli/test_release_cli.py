"""``escudo release`` and ``escudo sample``: what people see, what is written, and what is left after a failure."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import escudo.releasing
import escudo.report
import escudo.utility
import warmed
from commands import refusal, run, working_in
from escudo.causal import asia
from escudo.cli import app, main
from escudo.errors import (
    BudgetExceededError,
    GraphError,
    InputError,
    LedgerError,
    LedgerWarning,
    RefusedError,
)
from escudo.privacy import Ledger
from escudo.synthesis import GENERATORS, load
from escudo.table import Schema
from escudo.utility import _private

ROWS = 3000
RELEASE = ["release", "visits.parquet", "--schema", "visits.toml", "--graph", "clinic.dot", "--epsilon", "1"]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three files of a simulated clinic."""
    folder, clinic = tmp_path_factory.mktemp("clinic"), asia()
    clinic.sample_frame(ROWS, rng=np.random.default_rng(0)).write_parquet(folder / "visits.parquet")
    Schema.from_dict({name: list(levels) for name, levels in clinic.levels.items()}).write(folder / "visits.toml")
    clinic.graph.write(folder / "clinic.dot")
    return folder


@pytest.fixture(scope="session")
def released(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One seeded release of them, to look at and to sample from."""
    out = tmp_path_factory.mktemp("released") / "out"
    here = [str(made / word) if word in os.listdir(made) else word for word in RELEASE]
    run(*here, "--out", str(out), "--seed", "1")
    return out


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in os.listdir(made):
        (tmp_path / name).write_bytes((made / name).read_bytes())
    return working_in(tmp_path, monkeypatch)


@pytest.fixture
def ledger(folder: Path) -> Ledger:
    book = Ledger(f"sqlite:///{folder / 'escudo-ledger.db'}")
    book.open("visits-2026", epsilon=1.5, delta=1e-6)
    book.close()
    return book


# -- a release


def test_the_help_names_every_generator() -> None:
    (option,) = [one for one in get_command(app).commands["release"].params if one.name == "generator"]
    assert set(re.findall(r"[\w-]+", option.help)) - {"or", "auto"} == set(GENERATORS)


def test_a_release_prints_the_plan_first_and_then_what_was_made_and_what_it_means(folder: Path) -> None:
    shown = run(*RELEASE, "--out", "out").stdout
    assert re.match(r"marginals +ε = (0\.999\d|1\.00), δ = 1e-06, replace one row \(PLD\)\n├─ single columns", shown)
    parts = [
        "dysp | bronc, either",
        "Ledger   none",
        "Released to out/",
        "3,000 rows",
        "report.html",
        "What it means: ",
    ]
    places = [
        shown.index(part)
        for part in [*parts, "at most a factor e^", "Try: escudo sample out/model --rows 5 --do asia=no"]
    ]
    assert places == sorted(places)
    assert sorted(os.listdir("out")) == ["explore.html", "model", "release.json", "report.html", "synthetic.parquet"]


def test_the_released_rows_are_values_of_the_schema_and_as_many_as_the_table_has(folder: Path) -> None:
    run(*RELEASE, "--out", "out", "--csv")
    made = pl.read_parquet("out/synthetic.parquet")
    assert made.height == ROWS
    assert made.columns == list(asia().nodes)
    assert set(made["smoke"].unique()) == {"yes", "no"}
    assert pl.read_csv("out/synthetic.csv").equals(made)
    assert load("out/model").guarantee.for_release


def test_json_is_one_object_with_the_guarantee(folder: Path) -> None:
    said = json.loads(run(*RELEASE, "--out", "out", "--rows", "50", "--json").stdout)
    assert (said["directory"], said["rows"], said["for_release"], said["dataset"]) == ("out", 50, True, None)
    assert said["guarantee"]["epsilon"] <= 1.0
    assert said["guarantee"]["relation"] == "replace_one"
    assert pl.read_parquet("out/synthetic.parquet").height == 50


def test_a_seeded_release_says_everywhere_that_it_is_not_for_release(folder: Path, released: Path) -> None:
    assert "NOT FOR RELEASE: the noise was seeded" in run(*RELEASE, "--out", "a", "--seed", "1").stdout
    assert Path("a/synthetic.parquet").read_bytes() == (released / "synthetic.parquet").read_bytes()
    record = json.loads(Path("a/release.json").read_text())
    assert record["guarantee"]["for_release"] is False
    assert "not for release" in Path("a/report.html").read_text().lower()


def test_the_custodians_page_lies_beside_the_release_and_says_so(folder: Path) -> None:
    shown = run(*RELEASE, "--out", "out", "--custodian").stdout
    assert "NOT FOR RELEASE: out-custodian.html" in shown
    assert Path("out-custodian.html").exists()
    assert not any("custodian" in name for name in os.listdir("out"))


@pytest.mark.parametrize("generator", ["moments", "one-way", "independent"])
def test_other_generators_go_by_name(folder: Path, generator: str) -> None:
    said = json.loads(run(*RELEASE, "--out", "out", "--generator", generator, "--rows", "10", "--json").stdout)
    assert said["generator"] == generator


def test_options_reach_the_generator(folder: Path) -> None:
    first = run(*RELEASE, "--generator", "moments", "--option", "clip=2.5", "--plan", "--json").stdout
    other = run(*RELEASE, "--generator", "moments", "--option", "clip=1.5", "--plan", "--json").stdout
    assert json.loads(first)["plan"] != json.loads(other)["plan"]
    assert "no option 'clp'" in str(refusal(*RELEASE, "--generator", "moments", "--option", "clp=2", "--plan"))
    assert "takes NAME=VALUE" in str(refusal(*RELEASE, "--option", "clip", "--plan"))
    assert "twice" in str(refusal(*RELEASE, "--option", "clip=1", "--option", "clip=2", "--plan"))


@pytest.mark.parametrize("ending", ["csv", "tsv", "arrow", "ndjson"])
def test_every_kind_of_file_is_read(folder: Path, released: Path, ending: str) -> None:
    frame = pl.read_parquet("visits.parquet")
    write: dict[str, Callable[[str], Any]] = {
        "csv": frame.write_csv,
        "tsv": lambda name: frame.write_csv(name, separator="\t"),
        "arrow": frame.write_ipc,
        "ndjson": frame.write_ndjson,
    }
    write[ending](f"visits.{ending}")
    run("release", f"visits.{ending}", *RELEASE[2:], "--out", "from-file", "--seed", "1")
    assert pl.read_parquet("from-file/synthetic.parquet").equals(pl.read_parquet(released / "synthetic.parquet"))


def test_a_table_in_a_database_is_named_by_its_url(folder: Path, released: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect("clinic.db") as connection:
        connection.execute("CREATE TABLE visits AS SELECT * FROM 'visits.parquet'")
    run("release", "duckdb:///clinic.db?table=visits", *RELEASE[2:], "--out", "from-database", "--seed", "1")
    assert pl.read_parquet("from-database/synthetic.parquet").equals(pl.read_parquet(released / "synthetic.parquet"))


# -- an evaluation that is paid for


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_private, "TEACHERS", ("logistic",))


def test_an_evaluation_stands_in_the_plan_and_within_the_budget(folder: Path, ledger: Ledger) -> None:
    charged = [*RELEASE, "--evaluate", "0.2", "--dataset", "visits-2026", "--plan"]
    shown = run(*charged).stdout
    assert re.match(r"marginals +ε = (0\.999\d|1\.00), δ = 1e-06, replace one row \(PLD\)", shown)
    assert re.search(r"└─ private evaluation +ρ = 0\.0056", shown)  # a fifth of 0.028
    assert "% and fits" in shown
    assert [row.kind for row in ledger.history()] == ["open"]


@pytest.mark.usefixtures("quick")
def test_what_was_paid_for_is_printed_recorded_and_charged_once(folder: Path, ledger: Ledger) -> None:
    charged = [*RELEASE, "--evaluate", "0.2", "--dataset", "visits-2026", "--rows", "500"]
    shown = run(*charged, "--out", "out").stdout
    assert "How good it is, paid for: real rows in the wrong cell: " in shown
    assert [row.kind for row in ledger.history()] == ["open", "spend"]
    record = json.loads(Path("out/release.json").read_text())
    assert record["plan"]["children"][-1]["name"] == "private evaluation"
    assert record["guarantee"]["epsilon"] <= 1.0
    assert 0.9 < record["evaluation"]["paid"]["accuracy"] + 0.1 < 1.1
    assert "How good it is, measured on the real rows" in Path("out/report.html").read_text()
    assert load("out/model").plan.children[-1].name == "private evaluation"
    assert ledger.total("visits-2026").epsilon_at(1e-6) <= 1.0


@pytest.mark.usefixtures("quick")
def test_as_json_it_comes_with_the_release(folder: Path) -> None:
    said = json.loads(run(*RELEASE, "--evaluate", "0.1", "--out", "out", "--rows", "200", "--json").stdout)
    assert said["evaluation"]["intervals"]["one_way"][0] <= said["evaluation"]["one_way"]
    without = json.loads(run(*RELEASE, "--out", "other", "--rows", "20", "--json").stdout)
    assert without["evaluation"] is None


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("options", [["--generator", "moments"], ["--relation", "add_remove"]], ids=" ".join)
def test_it_goes_with_other_generators_and_relations(folder: Path, options: list[str]) -> None:
    said = json.loads(run(*RELEASE, *options, "--evaluate", "0.1", "--out", "out", "--rows", "200", "--json").stdout)
    assert said["guarantee"]["epsilon"] <= 1.0
    assert said["evaluation"]["deviation"] > 0


@pytest.mark.usefixtures("quick")
def test_it_goes_with_a_graph_that_is_discovered(folder: Path) -> None:
    arguments = ["visits.parquet", "--schema", "visits.toml", "--graph", "discover", "--epsilon", "1"]
    run("release", *arguments, "--evaluate", "0.1", "--out", "out", "--rows", "200")
    page = Path("out/report.html").read_text()
    assert "Nobody stated this graph." in page
    assert "How good it is, measured on the real rows" in page


@pytest.mark.parametrize("share", ["0", "1", "-0.1", "nan"])
def test_a_share_is_a_part_of_the_budget(folder: Path, share: str) -> None:
    assert "share" in str(refusal(*RELEASE, "--evaluate", share, "--plan"))


def test_a_failing_evaluation_marks_the_spend_and_leaves_nothing(
    folder: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> object:
        raise RuntimeError("private words")

    monkeypatch.setattr(escudo.utility._private, "exact_figures", broken)
    charged = [*RELEASE, "--evaluate", "0.1", "--dataset", "visits-2026", "--out", "out"]
    assert isinstance(CliRunner().invoke(app, charged).exception, RuntimeError)
    assert [row.kind for row in ledger.history()] == ["open", "spend", "failed"]
    assert "private words" not in json.dumps(ledger.export())
    assert not Path("out").exists()


# -- planning and the ledger


def test_a_plan_stops_before_anything_is_read_spent_or_written(folder: Path, ledger: Ledger) -> None:
    shown = run(*RELEASE, "--dataset", "visits-2026", "--plan").stdout
    assert "Ledger   visits-2026: 0.0 % of ε = 1.50 used; this asks for " in shown
    assert shown.endswith("Nothing was spent. Leave out --plan to go on.\n")
    assert [row.kind for row in ledger.history()] == ["open"]
    others = [name for name in os.listdir() if not name.startswith("escudo-ledger.db")]
    assert sorted(others) == ["clinic.dot", "visits.parquet", "visits.toml"]


def test_edges_without_a_direction_are_said_to_be_mere_association(folder: Path) -> None:
    (folder / "open.dot").write_text("digraph { smoke -> lung; asia -> tub; smoke -> bronc [dir=none]; }")
    words = [*RELEASE[:5], "open.dot", *RELEASE[6:]]
    shown = run(*words, "--out", "out").stdout
    assert "Treated as mere association, not as cause and effect: " in shown
    assert "smoke — bronc" in shown or "bronc — smoke" in shown
    said = json.loads(run(*words, "--out", "again", "--json").stdout)
    assert sorted(said["associations"][0]) == ["bronc", "smoke"]
    record = json.loads((folder / "again" / "release.json").read_text())
    assert sorted(record["graph"]["added"][0]) == ["bronc", "smoke"]
    assert "association" not in run(*RELEASE, "--out", "all").stdout


def test_a_plan_foretells_the_error_and_a_release_does_not_stop_for_it(folder: Path) -> None:
    shown = run(*RELEASE, "--plan").stdout
    assert "Forecast for 3,000 rows: expected error (total variation) at ε = 1" in shown
    assert "along arrows" in shown
    said = json.loads(run(*RELEASE, "--plan", "--json").stdout)
    assert set(said["forecast"]["columns"]) == set(Schema.read("visits.toml").names)
    assert said["forecast"]["pairs"][0]["columns"] == ["asia", "tub"]
    assert not said["forecast"]["rows_assumed"]
    assert "Forecast" not in run(*RELEASE, "--out", "out").stdout


def test_a_forecast_needs_no_data(folder: Path) -> None:
    (folder / "visits.parquet").unlink()
    words = ["forecast", "visits.toml", "--graph", "clinic.dot", "--rows", "3000", "--epsilon", "1", "--delta", "1e-6"]
    shown = run(*words, "--error", "0.01").stdout
    assert "Forecast for 3,000 rows" in shown
    assert "A mean error of 1.00% of columns takes about ε = " in shown
    said = json.loads(run(*words, "--error", "1e-9", "--json").stdout)
    assert said["epsilon_for"] == {"columns": None, "pairs": None}
    assert [each["epsilon"] for each in said["curve"]] == [0.1, 0.3, 1.0, 3.0, 10.0]
    assert "--error" in str(refusal(*words, "--error", "2"))
    assert "no forecast for generator 'vae'" in str(refusal(*words, "--generator", "vae"))
    assert "clinic.txt" in str(refusal(*words[:3], "clinic.txt", *words[4:]))


def test_a_plan_as_json_says_whether_it_fits(folder: Path, ledger: Ledger) -> None:
    said = json.loads(run(*RELEASE, "--dataset", "visits-2026", "--plan", "--json").stdout)
    assert said["spent"] is False
    assert said["plan"]["name"] == "marginals"
    assert said["ledger"]["fits"] is True
    assert said["ledger"]["fits"]
    assert 0.4 < said["ledger"]["asked"] < 0.7


def test_the_ledger_is_charged_once_and_then_refuses(folder: Path, ledger: Ledger) -> None:
    charged = [*RELEASE, "--ledger", f"sqlite:///{folder / 'escudo-ledger.db'}", "--dataset", "visits-2026"]
    run(*charged, "--out", "first", "--rows", "20")
    assert [row.kind for row in ledger.history()] == ["open", "spend"]
    larger = [*charged[:-5], "1.4", *charged[-4:]]
    assert "and would be refused" in run(*larger, "--plan").stdout
    refused = refusal(*larger, "--out", "second")
    assert isinstance(refused, BudgetExceededError)
    assert "the budget of dataset 'visits-2026' does not allow it" in str(refused)
    assert [row.kind for row in ledger.history()] == ["open", "spend"]
    assert not Path("second").exists()


def test_the_ledger_is_found_as_the_other_commands_find_it(
    folder: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "visits-2026: 0.0 % of" in run(*RELEASE, "--dataset", "visits-2026", "--plan").stdout
    Path("escudo-ledger.db").rename("moved.db")
    assert isinstance(refusal(*RELEASE, "--dataset", "visits-2026", "--plan"), LedgerError)
    monkeypatch.setenv("ESCUDO_LEDGER", "sqlite:///moved.db")
    assert "visits-2026: 0.0 % of" in run(*RELEASE, "--dataset", "visits-2026", "--plan").stdout
    assert "Ledger   none" in run(*RELEASE, "--plan").stdout


# -- refusals


def test_an_unconfirmed_schema_is_refused_with_both_ways_out(folder: Path, ledger: Ledger) -> None:
    text = Path("visits.toml").read_text()
    Path("draft.toml").write_text(text.replace("[columns.smoke]", "[columns.smoke]\nconfirmed = false"))
    assert "confirmed = false" in Path("draft.toml").read_text()
    refused = refusal(*RELEASE[:3], "draft.toml", *RELEASE[4:], "--dataset", "visits-2026", "--out", "out")
    assert isinstance(refused, RefusedError)
    for part in (
        "'smoke' (levels)",
        "in draft.toml",
        "escudo schema confirm draft.toml",
        "schema learn visits.parquet",
    ):
        assert part in str(refused)
    assert "Nothing was spent." in str(refused)
    assert [row.kind for row in ledger.history()] == ["open"]


def test_a_graph_with_a_cycle_names_it(folder: Path) -> None:
    Path("clinic.dot").write_text("digraph { smoke -> lung; lung -> xray; xray -> smoke }")
    refused = refusal(*RELEASE, "--out", "out")
    assert isinstance(refused, GraphError)
    assert "cycle" in str(refused)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "--out says where the release goes"),
        (["--out", "taken"], "holds files that are no release"),
        (["--out", "visits.toml"], "is a file"),
        (["--out", "visits.toml/deeper"], "cannot be made"),
        (["--out", "a" * 300], "cannot be made: File name too long"),
        (["--out", "a" * 245], "cannot be made: File name too long"),  # its draft has a longer name
        (["--out", "new/" + "a" * 245], "cannot be made: File name too long"),
        (["--out", "x", "--ledger", "sqlite:///l.db"], "say which one with --dataset"),
        (["--out", "x", "--delta", "0"], "Gaussian noise needs a delta"),
        (["--out", "x", "--generator", "marginal"], "Did you mean 'marginals'"),
        (["--out", "x", "--relation", "twins"], "relation"),
        (["--out", "x", "--generator", "linear"], "smoke|asia"),
        (["--out", "x", "--generator", "vae", "--checkpoint", "kept"], "--checkpoint needs a ledger.*add --dataset"),
        (["--out", "x", "--generator", "vae", "--again"], "--again goes with --checkpoint"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_spent(
    folder: Path, arguments: list[str], expected: str
) -> None:
    Path("taken").mkdir()
    Path("taken/notes.txt").write_text("mine")
    before = sorted(os.listdir())
    refused = refusal(*RELEASE, *arguments)
    assert isinstance(refused, InputError)
    assert re.search(expected, str(refused))
    assert sorted(os.listdir()) == before
    assert Path("taken/notes.txt").read_text() == "mine"


def test_a_copied_checkpoint_is_released_once_and_again_only_if_that_is_paid_for(
    folder: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    from escudo.mechanisms.dpsgd import _mechanism
    from escudo.mechanisms.dpsgd._checkpoint import TrainingFile

    network = ["--generator", "autoregressive", "--option", "steps=12", "--dataset", "visits-2026", "--rows", "10"]
    words = [*RELEASE[:-1], "0.6", *network, "--checkpoint", "kept"]
    keep = TrainingFile.keep

    def interrupted(file: TrainingFile, arrays: Any) -> None:
        keep(file, arrays)
        if arrays:
            raise KeyboardInterrupt

    monkeypatch.setattr(_mechanism, "_SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr("escudo.mechanisms.dpsgd._sampling._SEGMENT_ROWS", 1)
    with monkeypatch.context() as patch:
        patch.setattr(TrainingFile, "keep", interrupted)
        stopped = CliRunner().invoke(app, [*words, "--out", "out"])
    assert stopped.exit_code == 130
    assert "Give the same command again to go on from kept." in stopped.output
    shutil.copytree("kept", "copy")
    before = ledger.head
    assert "this goes on from kept, which was paid for, and asks for nothing\n" in run(*words, "--plan").output
    planned = json.loads(run(*words, "--plan", "--json").stdout)["ledger"]
    assert (planned["asked"], planned["fits"], planned["checkpoint"]) == (0.0, True, "kept")
    assert ledger.head == before
    assert "Goes on from kept" in run(*words, "--out", "out").output
    assert not Path("kept").exists()
    for _ in range(2):
        shutil.copytree("copy", "kept", dirs_exist_ok=True)
        refused = refusal(*words, "--out", "other")
        assert re.search(r"finished.*Nothing was spent.*costs ε = 0\.\d+ at δ = 1e-06 .*--again", str(refused))
        assert not Path("other").exists()
    asks = r"this goes on from kept, asks for [\d.]+ ?% for the rest.*would be refused without --again\n"
    assert re.search(asks, run(*words, "--plan").output)
    assert re.search(r"this goes on from kept, asks for [\d.]+ ?% and fits\n", run(*words, "--plan", "--again").output)
    run(*words, "--out", "other", "--again")
    assert [row.event.kind for row in ledger.history() if row.kind == "spend"] == ["composed", "repeated"]
    assert ledger.verify().ok
    assert not Path("kept").exists()


def test_an_earlier_release_is_replaced_only_by_force(folder: Path) -> None:
    run(*RELEASE, "--out", "out", "--seed", "1", "--rows", "10")
    assert "--force" in str(refusal(*RELEASE, "--out", "out", "--seed", "2", "--rows", "20"))
    assert pl.read_parquet("out/synthetic.parquet").height == 10
    run(*RELEASE, "--out", "out", "--seed", "2", "--rows", "20", "--force")
    assert pl.read_parquet("out/synthetic.parquet").height == 20


def test_exit_codes_and_one_clear_paragraph(
    folder: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = subprocess.run([sys.executable, "-m", "escudo", *RELEASE], capture_output=True, text=True, cwd=folder)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("Error: --out says where")
    over = [*RELEASE[:-1], "9", "--dataset", "visits-2026", "--out", "out", "--json"]
    monkeypatch.setattr(sys, "argv", ["escudo", *over])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr()
    assert (end.value.code, said.out) == (4, "")
    assert json.loads(said.err)["error"] == "BudgetExceededError"


def test_a_release_says_what_the_ledger_was_after_its_spend_and_so_a_rolled_back_ledger_is_noticed(
    folder: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = folder / "escudo-ledger.db"
    older = database.read_bytes()
    run(*RELEASE, "--dataset", "visits-2026", "--out", "out", "--rows", "10", "--evaluate", "0.1")
    anchor = json.loads(Path("out/release.json").read_text())["anchor"]
    (spend,) = [row for row in ledger.history() if row.kind == "spend"]
    assert anchor == {"ledger_id": ledger.anchor["ledger_id"], "rows": spend.sequence, "head": spend.hash}
    page = Path("out/report.html").read_text()
    assert "Anchor of the ledger after this spend" in page
    assert all(str(value) in page for value in anchor.values())
    ledger.open("later", epsilon=1.0)
    ledger.close()
    assert "holds good" in run("ledger", "verify", "--expect", "out/release.json").stdout
    monkeypatch.setenv("ESCUDO_STATE", str(folder / "elsewhere"))  # on another machine: only the release knows
    for path in folder.glob("escudo-ledger.db*"):
        path.unlink()
    database.write_bytes(older)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LedgerWarning)
        assert "fingerprint that you expect" in str(refusal("ledger", "verify", "--expect", "out/release.json"))


def test_a_release_that_no_ledger_paid_for_anchors_nothing(folder: Path) -> None:
    run(*RELEASE, "--out", "out", "--rows", "10")
    assert json.loads(Path("out/release.json").read_text())["anchor"] is None
    assert "Anchor of the ledger" not in Path("out/report.html").read_text()
    assert "no ledger paid for" in str(refusal("ledger", "verify", "--expect", "out/release.json"))


# -- failures half-way


def test_a_failure_while_writing_marks_the_spend_and_leaves_nothing(
    folder: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> str:
        raise RuntimeError("private words")

    monkeypatch.setattr(escudo.report._release_folder, "release_page", broken)
    result = CliRunner().invoke(app, [*RELEASE, "--dataset", "visits-2026", "--out", "out"])
    assert isinstance(result.exception, RuntimeError)
    assert [row.kind for row in ledger.history()] == ["open", "spend", "failed"]
    assert "private words" not in json.dumps(ledger.export())
    assert not Path("out").exists()
    assert not list(folder.glob(".*"))


HALF_WAY = "half way: charged, noise drawn, and all files in a draft"
INTERRUPTED = """
import signal, sys, time
for sent in (signal.SIGINT, signal.SIGHUP):  # a shell in the background, or nohup, has its children ignore them
    signal.signal(sent, signal.default_int_handler if sent == signal.SIGINT else signal.SIG_DFL)
from {package} import {module}
def slow(*_, **__):
    print({said!r}, flush=True)
    while True:  # until a signal ends it
        time.sleep(0.01)
{module}.{name} = slow
from escudo.cli import main
sys.argv = ["escudo", *sys.argv[1:]]
main()
"""


SIGNALS = {"ctrl-c": signal.SIGINT, "kill": signal.SIGKILL, "terminate": signal.SIGTERM, "hang-up": signal.SIGHUP}


@pytest.mark.parametrize("sent", SIGNALS.values(), ids=SIGNALS)
def test_a_release_stopped_half_way_is_in_the_ledger_and_nowhere_else(
    folder: Path, ledger: Ledger, sent: signal.Signals
) -> None:
    program = INTERRUPTED.format(package="escudo.report", module="_release_folder", name="_flush", said=HALF_WAY)
    release = warmed.start(program, [*RELEASE, "--dataset", "visits-2026", "--out", "out"], folder=folder)
    while HALF_WAY not in (line := release.printed.readline()):  # nothing but the draft knows this line
        assert line, release.end()
    assert [row.kind for row in ledger.history()] == ["open", "spend"]
    assert list(folder.glob(".out.*.part/release.json"))
    assert release.process.pid is not None
    os.kill(release.process.pid, sent)
    code, said = release.end()
    kinds = [row.kind for row in ledger.history()]
    if sent == signal.SIGKILL:
        assert kinds == ["open", "spend"]
    else:
        assert code == 128 + sent, said
        assert "nothing was written to out. What was spent stays spent." in said
        assert kinds == ["open", "spend", "failed"]
        assert not [path for path in folder.iterdir() if path.name.startswith(".")]  # no draft is left
    assert ledger.total("visits-2026").epsilon_at(1e-6) > 0.99
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("sent", "there"), [(signal.SIGINT, False), (signal.SIGTERM, True), (signal.SIGHUP, False)], ids=str
)
def test_a_signal_after_the_folder_has_its_name_takes_nothing_back(
    folder: Path,
    ledger: Ledger,
    sent: signal.Signals,
    there: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if there:
        run(*RELEASE, "--out", "out", "--rows", "10")
    put, before = escudo.report._release_folder.put_folder, signal.getsignal(sent)

    def late(draft: Path, target: Path) -> None:
        put(draft, target)
        os.kill(os.getpid(), sent)

    monkeypatch.setattr(escudo.report._release_folder, "put_folder", late)
    force = ["--force"] if there else []
    monkeypatch.setattr(sys, "argv", ["escudo", *RELEASE, "--dataset", "visits-2026", "--out", "out", *force])
    with pytest.raises(SystemExit) as end:
        main()
    shown = capsys.readouterr()
    assert (end.value.code, shown.err) == (0, "")
    assert "Released to out/" in shown.out
    assert [row.kind for row in ledger.history()] == ["open", "spend"]
    assert pl.read_parquet("out/synthetic.parquet").height == ROWS
    assert not list(folder.glob(".*"))
    assert signal.getsignal(sent) is before


# -- sampling


@pytest.fixture
def model(folder: Path, released: Path) -> str:
    return str(released / "model")


def test_rows_are_printed_as_a_table_under_an_intervention(model: str) -> None:
    shown = run("sample", model, "--rows", "4", "--do", "smoke=yes", "--do", "asia=no", "--seed", "1").stdout
    lines = shown.splitlines()
    assert lines[0].split() == list(asia().nodes)
    assert len(lines) == 6
    assert all(line.split()[0] == "no" and line.split()[2] == "yes" for line in lines[2:])


def test_rows_wider_than_the_screen_are_printed_below_each_other_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"column_{number:02}" for number in range(50)]
    frame = pl.DataFrame(dict.fromkeys(names, ["first value", "second value"] * 20))
    schema = escudo.Schema.from_dict({name: ["first value", "second value"] for name in names})
    escudo.synthesize(escudo.PrivateTable(frame, schema), None, epsilon=1.0, delta=1e-6, seed=1).save(tmp_path / "wide")
    monkeypatch.setenv("COLUMNS", "80")
    shown = run("sample", str(tmp_path / "wide"), "--rows", "3", "--seed", "1").stdout
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert re.findall(r"column_\d\d", shown) == names[:40]
    assert "and 10 more columns; --out writes all" in shown
    assert len(re.findall(r"(?:first|second) value", shown)) == 3 * 40


def test_rows_come_as_json_and_the_same_for_the_same_seed(model: str) -> None:
    one, same, other = (
        json.loads(run("sample", model, "-n", "40", "--given", "dysp=yes", "--seed", seed, "--json").stdout)["rows"]
        for seed in ("1", "1", "2")
    )
    assert one == same != other
    assert {row["dysp"] for row in one} == {"yes"}


def test_one_row_is_one_row(folder: Path) -> None:
    shown = run(*RELEASE, "--out", "out", "--seed", "1", "--rows", "1").stdout
    assert "synthetic.parquet   1 row " in shown
    assert run("sample", "out/model", "-n", "1", "--out", "one.csv").stdout == "1 row written to one.csv\n"
    assert run("sample", "out/model", "-n", "0", "--out", "none.csv").stdout == "0 rows written to none.csv\n"


def test_the_help_of_sample_says_what_an_intervention_sets() -> None:
    from typer.main import get_command

    command = get_command(app).commands["sample"]  # type: ignore[attr-defined]
    words = next(one.help for one in command.params if one.name == "do")
    assert "Rows carry the value itself" in words


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_rows_are_written_to_a_new_file(model: str, ending: str) -> None:
    assert run("sample", model, "-n", "30", "--out", f"rows.{ending}").stdout == f"30 rows written to rows.{ending}\n"
    read = pl.read_csv if ending == "csv" else pl.read_parquet
    assert read(f"rows.{ending}").height == 30
    assert "exists" in str(refusal("sample", model, "--out", f"rows.{ending}"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--do", "smoke"], "takes NAME=VALUE"),
        (["--do", "=yes"], "takes NAME=VALUE"),
        (["--do", "smoke=yes", "--do", "smoke=no"], "twice"),
        (["--do", "smok=yes"], "Did you mean 'smoke'"),
        (["--do", "smoke=maybe"], "no level 'maybe'"),
        (["--do", "smoke="], "no missing value"),
        (["--do", "smoke=yes", "--given", "smoke=yes"], "both"),
        (["--out", "rows.xlsx"], r"must end in \.csv or \.parquet"),
        (["--out", "absent/rows.csv"], "cannot write"),
    ],
)
def test_a_question_without_an_answer_is_an_error(model: str, arguments: list[str], expected: str) -> None:
    assert re.search(expected, str(refusal("sample", model, *arguments)))


def test_a_folder_that_is_no_model_is_an_error(folder: Path) -> None:
    assert "cannot be read" in str(refusal("sample", "absent"))


def test_help_names_the_main_job_first() -> None:
    shown = run("--help").stdout
    places = [
        re.search(rf"^│ {name} ", shown, re.MULTILINE).start() for name in ("release", "sample", "schema", "ledger")
    ]
    assert places == sorted(places)
    assert "--plan" in run("release", "--help").stdout


def test_more_rows_than_fit_anywhere_are_refused_before_anything_is_spent(folder: Path) -> None:
    result = CliRunner().invoke(app, [*RELEASE, "--out", "out", "--rows", "99999999999999"])
    assert result.exit_code == 2
    assert "--rows" in result.output
    assert not Path("out").exists()


def test_a_file_name_that_is_too_long_is_bad_input_for_sample(model: str) -> None:
    assert "File name too long" in str(refusal("sample", model, "--out", "a" * 300 + ".csv"))


def test_a_disk_that_fills_up_says_that_the_budget_is_gone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise InputError("The release could not be written to 'out': No space left on device.")

    monkeypatch.setattr(escudo.releasing, "write_release", full)
    refused = refusal(*RELEASE, "--out", "out", "--seed", "1")
    assert "No space left on device. What was spent stays spent." in str(refused)


# -- a δ that is large for the table


def test_a_large_delta_is_refused_unless_it_is_said_twice(folder: Path, ledger: Ledger) -> None:
    large = [*RELEASE, "--delta", "0.1", "--dataset", "visits-2026", "--out", "release"]
    refused = refusal(*large)
    assert isinstance(refused, RefusedError)
    assert f"too large for about {ROWS:,} rows" in str(refused)
    assert "--accept-large-delta" in str(refused)
    assert isinstance(refusal(*large, "--plan"), RefusedError)
    assert ledger.account("visits-2026").total().epsilon == 0
    assert not (folder / "release").exists()
    said = run(*RELEASE, "--delta", "0.1", "--accept-large-delta", "--out", "release", "--seed", "0").output
    assert said.count(f"Warning: δ = 0.1 is too large for about {ROWS:,} rows") == 2  # in the plan, and at the end


def test_a_delta_above_a_tenth_of_one_over_the_rows_is_a_warning_everywhere(folder: Path) -> None:
    warned = f"δ = 0.0001 is large for about {ROWS:,} rows"
    assert f"Warning: {warned}" in run(*RELEASE, "--delta", "1e-4", "--plan").output
    told = json.loads(
        run(*RELEASE, "--delta", "1e-4", "--out", "release", "--seed", "0", "--json", "--rows", "10").output
    )
    record = json.loads((folder / "release" / "release.json").read_text(encoding="utf-8"))
    assert told["warnings"] == record["warnings"]
    assert told["warnings"][0].startswith(warned)
    assert warned in re.sub(r"\s+", " ", (folder / "release" / "report.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "command",
    [
        ["discover", "--out", "graph.dot"],
        ["effect", "smoke", "lung", "--graph", "clinic.dot"],
    ],
    ids=lambda command: command[0],
)
def test_other_commands_refuse_a_large_delta_too(folder: Path, command: list[str]) -> None:
    name, *rest = command
    terms = [name, "visits.parquet", *rest, "--schema", "visits.toml", "--epsilon", "1", "--delta", "0.01"]
    assert isinstance(refusal(*terms), RefusedError)
    assert f"δ = 0.01 is too large for about {ROWS:,} rows" in run(*terms, "--accept-large-delta", "--plan").output
    stated = [*terms, "--relation", "add_remove", "--public-rows", "99", "--plan"]
    assert "δ = 0.01 is large for about 99 rows" in run(*stated).output


def test_learning_a_schema_refuses_it_too(folder: Path) -> None:
    learn = ["schema", "learn", "visits.parquet", "--epsilon", "1", "--delta", "0.01"]
    assert isinstance(refusal(*learn), RefusedError)
    assert "Warning: δ = 0.01 is too large" in run(*learn, "--accept-large-delta", "--out", "learnt.toml").output


def test_no_privacy_has_to_be_said_and_is_said_again(folder: Path) -> None:
    base = ["release", "visits.parquet", "--schema", "visits.toml", "--graph", "clinic.dot", "--out", "open"]
    network = ["--generator", "vae", "--option", "architecture=columns", "--option", "epochs=1", "--seed", "1"]
    missing = CliRunner().invoke(app, [*base, *network])
    assert isinstance(missing.exception, InputError)
    assert "--no-privacy" in str(missing.exception)
    for more in (["--dataset", "visits"], ["--epsilon", "1"], ["--plan"], ["--evaluate", "0.1"]):
        refused = CliRunner().invoke(app, [*base, *network, "--no-privacy", *more])
        assert isinstance(refused.exception, InputError | RefusedError), more
        assert not (folder / "open").exists()
    result = run(*base, *network, "--no-privacy")
    assert "NOT FOR RELEASE: made without privacy" in result.output
    assert "Released to" not in result.output
    told = json.loads((folder / "open" / "release.json").read_text())
    assert told["guarantee"]["none"] is True
    assert told["guarantee"]["for_release"] is False
    drawn = run("sample", "open/model", "--rows", "2")
    assert "NOT FOR RELEASE" in drawn.stderr


def test_rows_made_without_privacy_say_so_themselves(folder: Path) -> None:
    base = ["release", "visits.parquet", "--schema", "visits.toml", "--graph", "clinic.dot", "--csv", "--out"]
    network = ["--generator", "vae", "--option", "architecture=columns", "--option", "epochs=1", "--seed", "1"]
    run(*base, "open", *network, "--no-privacy")
    for name in ("some.parquet", "parts", "some.csv"):
        run("sample", "open/model", "--rows", "2", "--out", name)
    for file in ("open/synthetic.parquet", "some.parquet", "parts/part-00000.parquet"):
        assert pl.read_parquet_metadata(folder / file)["escudo"].startswith("NOT FOR RELEASE: Nothing is promised")
    assert (folder / "some.csv.NOT-FOR-RELEASE.txt").read_text().startswith("NOT FOR RELEASE: Nothing is promised")
    assert json.loads((folder / "open" / "release.json").read_text())["guarantee"]["none"] is True
    run(*base, "kept", "--epsilon", "1", "--delta", "1e-6")
    run("sample", "kept/model", "--rows", "2", "--out", "kept.csv")
    assert "escudo" not in pl.read_parquet_metadata(folder / "kept/synthetic.parquet")
    assert not list(folder.glob("kept.csv.*"))
