"""``escudo ledger``: what people and programs see, and that looking creates nothing."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from commands import working_in
from escudo.cli import main
from escudo.cli._ledger import app
from escudo.errors import EscudoError, InputError, LedgerCorruptError, LedgerError
from escudo.privacy import ComposedEvent, GaussianEvent, Ledger, PureEvent
from escudo.privacy._tally import percent_up


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return working_in(tmp_path, monkeypatch)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None, result.output
    return result


def run_json(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def refusal(*arguments: str) -> EscudoError:
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, EscudoError), result.output
    return result.exception


@pytest.fixture
def used(folder: Path) -> Ledger:
    """A ledger with a bit of everything in it."""
    run("open", "visits", "--epsilon", "3", "--delta", "1e-6")
    run(
        "open",
        "[red]staff",
        "--epsilon",
        "1",
        "--unit",
        "person",
        "--max-rows-per-person",
        "5",
        "--relation",
        "add_remove",
    )
    ledger = Ledger()
    ledger.spend("visits", PureEvent(epsilon=0.5), purpose="[bold]a count")
    ledger.spend("visits", GaussianEvent(l2_sensitivity=1.0, scale=20.0, grid=1.0), for_release=False)
    ledger.fail(ledger.spend("visits", PureEvent(epsilon=0.25, relation="add_remove")), "TimeoutError")
    ledger.close()
    return ledger


def test_open_makes_the_ledger_in_this_folder_and_says_what_was_agreed(folder: Path) -> None:
    result = run("open", "visits", "--epsilon", "3", "--delta", "1e-6")
    assert "Account 'visits' is open: cap ε = 3.00, δ = 1e-06, replace one row." in result.stdout
    assert (folder / "escudo-ledger.db").exists()
    again = run_json("open", "visits", "--epsilon", "3", "--delta", "1e-6")
    assert (again["dataset"], again["epsilon_cap"], again["epsilon_left"], again["spends"]) == ("visits", 3.0, 3.0, 0)
    assert "other terms" in str(refusal("open", "visits", "--epsilon", "4"))


@pytest.mark.parametrize(
    "terms",
    [
        ["--epsilon", "0"],
        ["--epsilon", "-1"],
        ["--epsilon", "nan"],
        ["--epsilon", "1e9"],
        ["--epsilon", "1", "--delta", "1"],
        ["--epsilon", "1", "--relation", "twins"],
        ["--epsilon", "1", "--unit", "family"],
        ["--epsilon", "1", "--unit", "person"],
        ["--epsilon", "1", "--max-rows-per-person", "3"],
    ],
)
def test_bad_terms_are_refused_and_nothing_is_created(folder: Path, terms: list[str]) -> None:
    assert isinstance(refusal("open", "visits", *terms), InputError)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("command", [["show"], ["show", "visits"], ["history"], ["verify"], ["export"]])
def test_looking_does_not_create_a_ledger(folder: Path, command: list[str]) -> None:
    error = refusal(*command)
    assert isinstance(error, LedgerError)
    assert "There is no ledger at" in str(error)
    assert "escudo ledger open DATASET --epsilon 1 --delta 1e-6" in str(error)  # which a usual release needs
    assert list(folder.iterdir()) == []


def test_the_ledger_is_named_by_option_or_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("open", "visits", "--epsilon", "1", "--ledger", "sqlite:///one.db")
    monkeypatch.setenv("ESCUDO_LEDGER", "sqlite:///two.db")
    run("open", "visits", "--epsilon", "2")
    assert {file.name for file in folder.iterdir()} == {"one.db", "two.db"}
    assert run_json("show")["accounts"][0]["epsilon_cap"] == 2.0
    assert run_json("show", "--ledger", "sqlite:///one.db")["accounts"][0]["epsilon_cap"] == 1.0


def test_show_lists_caps_spends_and_what_is_left(used: Ledger) -> None:
    shown = run("show").stdout
    assert "[red]staff" in shown
    assert "1 failed, 1 not for release" in shown
    assert used.head in shown
    (visits,) = run_json("show", "visits")["accounts"]
    assert visits["spends"] == 3
    assert visits["failed"] == visits["not_for_release"] == 1
    assert visits["epsilon_if_settled_beforehand"] == used.total("visits").epsilon
    assert visits["used"] == used.info("visits").used
    assert visits["spending"] == "adaptive"
    assert visits["epsilon_left"] == used.remaining("visits").epsilon
    staff = run_json("show")["accounts"][1]
    assert (staff["unit"], staff["max_rows_per_person"], staff["relation"]) == ("person", 5, "add_remove")
    shown = " ".join(run("show", "visits").stdout.split())
    assert "is together (ε = 3.00, δ = 1e-06)-differentially private (replace one row), also where releases" in shown
    assert f"{percent_up(visits['used'])} of the budget is used" in shown
    assert "Had all amounts been settled before the first release, these spends would total ε = " in shown


def test_history_lists_every_row(used: Ledger) -> None:
    shown = run("history").stdout
    for text in ("cap ε = 3, δ = 1e-06", "[bold]a count", "ε = 0.50", "ρ = 0.00125", "not for release", "TimeoutError"):
        assert text in shown
    assert "failed, stated for add_remove" in shown
    rows = run_json("history", "visits")["rows"]
    assert [row["kind"] for row in rows] == ["open", "spend", "spend", "spend", "failed"]
    assert rows[1]["payload"]["event"] == PureEvent(epsilon=0.5).to_json()
    assert isinstance(refusal("history", "visit"), InputError)


def test_history_says_that_a_cost_in_several_notions_is_not_the_epsilon_that_was_asked_for(used: Ledger) -> None:
    assert "several notions" not in run("history").stdout
    choice, noise = PureEvent(epsilon=0.1), GaussianEvent(l2_sensitivity=1.0, scale=20.0, grid=1.0)
    with closing(Ledger()) as ledger:
        ledger.spend("visits", ComposedEvent(events=(choice, noise)))
    shown = run("history").stdout
    assert "ε = 0.10, ρ = 0.00125" in shown
    assert "is not the ε that was asked for" in shown


def test_verify_says_that_the_ledger_holds_good(used: Ledger) -> None:
    assert "Ledger holds good: 6 rows." in run("verify").stdout
    kept = used.head
    assert run_json("verify", "--head", kept) == {"ledger": used.name, "ok": True, "rows": 6, "head": kept}
    assert isinstance(refusal("verify", "--head", "0" * 64), LedgerCorruptError)
    assert isinstance(refusal("verify", "--head", "zero"), InputError)


def test_verify_ends_with_five_when_a_row_was_edited(
    used: Ledger, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(folder / "escudo-ledger.db")) as raw, raw:
        raw.execute("UPDATE escudo_ledger SET payload = replace(payload, '0.5', '0.1') WHERE sequence = 3")
    raw.close()
    for extra in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", ["escudo", "ledger", "verify", *extra])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 5
        assert "row 3 was edited" in capsys.readouterr().err
    exported = run("export")
    assert len(exported.stdout.splitlines()) == 1 + len(run_json("export")["rows"])
    assert "row 3 was edited" in json.loads(run("export", "--format", "json").stdout)["problem"]
    assert "Careful, the ledger is broken." in exported.stderr


def test_export_writes_every_row_as_json_or_csv(used: Ledger, folder: Path) -> None:
    exported = run_json("export")
    assert [row["sequence"] for row in exported["rows"]] == [1, 2, 3, 4, 5, 6]
    rows = list(csv.DictReader(io.StringIO(run("export", "--format", "csv").stdout)))
    assert [row["hash"] for row in rows] == [row["hash"] for row in exported["rows"]]
    assert json.loads(rows[2]["payload"])["purpose"] == "[bold]a count"
    run("export", "--format", "csv", "--out", "ledger.csv")
    assert (folder / "ledger.csv").read_text(encoding="utf-8") == run("export", "--format", "csv").stdout


def test_json_lines_hold_one_row_each_and_can_be_verified_without_the_ledger(used: Ledger, folder: Path) -> None:
    about, *lines = run("export").stdout.splitlines()
    whole = run_json("export")
    assert [json.loads(line) for line in lines] == whole["rows"]
    assert json.loads(about)["ledger_id"] == whole["ledger_id"]
    run("backup", "kept.jsonl")
    (folder / "escudo-ledger.db").rename(folder / "gone.db")
    found = run_json("verify", "--export", "kept.jsonl")
    assert (found["ok"], found["rows"], found["head"]) == (True, 6, json.loads(lines[-1])["hash"])
    assert (
        "holds good: 6 rows" in run("verify", "--export", "kept.jsonl", "--head", json.loads(lines[2])["hash"]).stdout
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda lines: [*lines[:3], lines[3].replace("0.5", "0.1"), *lines[4:]], "row 3 was edited"),
        (lambda lines: [*lines[:2], *lines[3:]], "row 2 is missing"),
        (lambda lines: [*lines, lines[-1]], "row 7 is missing"),
        (lambda lines: [*lines[:3], "{}", *lines[3:]], "line 4: no row of a ledger"),
        (lambda lines: lines[1:], "line 1: no row of a ledger"),
        (lambda lines: [], "line 1: no row of a ledger"),
        (lambda lines: ["[" * 100_000], "line 1: no row of a ledger"),
        (lambda lines: ["\udcff"], "UTF-8"),
    ],
    ids=["edited", "removed", "added", "another object", "no header", "empty", "nested", "no text"],
)
def test_an_export_that_was_changed_is_found(used: Ledger, folder: Path, change: Any, expected: str) -> None:
    lines = change(run("export").stdout.splitlines())
    (folder / "kept.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogateescape")
    assert expected in str(refusal("verify", "--export", "kept.jsonl"))


def test_an_export_must_hold_the_head_that_was_kept(used: Ledger, folder: Path) -> None:
    run("export", "--out", "kept.jsonl")
    assert "fingerprint that you expect" in str(refusal("verify", "--export", "kept.jsonl", "--head", "0" * 64))
    assert "cannot be read" in str(refusal("verify", "--export", "missing.jsonl"))


def test_a_spreadsheet_runs_nothing_in_an_exported_csv(folder: Path) -> None:
    run("open", "=cmd", "--epsilon", "3")
    assert ",'=cmd," in run("export", "--format", "csv").stdout
    assert '"dataset":"=cmd"' in run("export").stdout


def test_export_does_not_overwrite(used: Ledger, folder: Path) -> None:
    (folder / "notes.txt").write_text("keep me")
    assert "exists already" in str(refusal("export", "--out", "notes.txt"))
    assert (folder / "notes.txt").read_text() == "keep me"
    assert "cannot be written" in str(refusal("export", "--out", "missing/ledger.json"))


def test_a_bad_ledger_url_is_an_error_without_its_password(folder: Path) -> None:
    error = refusal("show", "--ledger", "mysql://owner:s3cret@host/db")
    assert isinstance(error, LedgerError)
    assert "s3cret" not in str(error)


def test_a_backup_is_restored_and_expected(used: Ledger, folder: Path) -> None:
    said = run_json("show")
    assert (said["rows"], said["head"]) == (6, used.head)
    (folder / "kept.json").write_text(json.dumps(said))
    assert "Wrote 6 rows" in run("backup", "kept.jsonl").stdout
    assert run_json("verify", "--expect", "kept.json", "--expect", "kept.jsonl")["ok"] is True
    (folder / "other.json").write_text(json.dumps({"head": "0" * 64}))
    assert isinstance(refusal("verify", "--expect", "other.json"), LedgerCorruptError)
    assert "holds no head" in str(refusal("verify", "--expect", __file__))
    assert "cannot be read" in str(refusal("verify", "--expect", "missing.json"))
    assert "6 rows are in" in run("restore", "kept.jsonl", "--ledger", "sqlite:///new.db").stdout
    assert run_json("verify", "--ledger", "sqlite:///new.db")["head"] == used.head
    assert "Nothing was missing" in run("recover").stdout
    assert "is up to date" in str(refusal("upgrade"))
    assert "file's permissions" in str(refusal("grant", "someone"))


def test_one_row_is_one_row(folder: Path) -> None:
    run("open", "visits", "--epsilon", "3")
    assert "Ledger holds good: 1 row.\n" in run("verify").stdout
    assert "Wrote 1 row to kept.jsonl." in run("backup", "kept.jsonl").stdout
    assert run("restore", "kept.jsonl", "--ledger", "sqlite:///new.db").stdout.startswith("1 row is in ")
    for file in folder.glob("escudo-ledger.db*"):
        file.unlink()
    assert "a ledger of 1 row was here" in str(refusal("show"))
    assert "1 row was put back." in run("recover").stdout
    run("open", "staff", "--epsilon", "1", "--unit", "person", "--max-rows-per-person", "1")
    assert "(≤ 1 row)" in run("show").stdout


def test_a_removed_ledger_is_recovered_or_forgotten(used: Ledger, folder: Path) -> None:
    def remove() -> None:
        for file in folder.glob("escudo-ledger.db*"):
            file.unlink()

    remove()
    for command in (["show"], ["open", "visits", "--epsilon", "3"]):
        assert "a ledger of 6 rows was here" in str(refusal(*command))
    assert "6 rows were put back" in run("recover").stdout
    assert run_json("verify")["rows"] == 6
    remove()
    run("forget")
    run("open", "visits", "--epsilon", "3")
    assert run_json("verify")["rows"] == 1


@pytest.mark.parametrize("command", ["open", "show", "history", "verify", "export", "backup", "restore", "recover"])
def test_help_is_short_and_ends_with_an_example(folder: Path, command: str) -> None:
    text = run(command, "--help").stdout
    assert "--json" in text
    assert f"Example: escudo ledger {command}" in text
    assert len(text.splitlines()) <= 40
