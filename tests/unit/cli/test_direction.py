"""``escudo direction``: what people see, what is charged, what is written, and when it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from escudo import orientation
from escudo.cli._causal import direction
from escudo.errors import BudgetExceededError, InputError, RefusedError, SchemaError
from escudo.orientation import PlanningCurves
from escudo.privacy import Ledger
from escudo.table import Schema

ROWS = 3000
BASE = ("stations.csv", "altitude", "frost", "--schema", "stations.toml")

app = typer.Typer()
app.command("direction")(direction)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three columns in which altitude causes frost, and colour has no order."""
    rng = np.random.default_rng(5)
    altitude = rng.uniform(-0.9, 0.9, ROWS)
    frost = np.clip(0.5 * np.sin(4 * altitude) + rng.normal(0, 0.12, ROWS), -1, 1)
    snow = np.clip(0.6 * np.tanh(3 * altitude) + rng.normal(0, 0.12, ROWS), -1, 1)
    frame = pl.DataFrame(
        {"altitude": altitude, "frost": frost, "snow": snow, "colour": ["red", "blue", "green"] * 1000}
    )
    frame.write_csv(tmp_path / "stations.csv")
    frame[:900].write_csv(tmp_path / "public.csv")
    bounds = {"type": "numeric", "lower": -1, "upper": 1}
    columns = {"altitude": bounds, "frost": bounds, "snow": bounds, "colour": ["red", "blue", "green"]}
    Schema.from_dict(columns).write(tmp_path / "stations.toml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ESCUDO_LEDGER", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    flat = PlanningCurves(rows=ROWS, epsilons=(0.1, 1.0), methods={"votes": (0.9, 1.0), "paper": (0.5, 0.5)})
    monkeypatch.setattr(orientation, "planning_curves", lambda rows: flat)  # a simulation of some seconds
    return tmp_path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refuse(kind: type[Exception], *arguments: str) -> str:
    with pytest.raises(kind) as caught:
        CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    return str(caught.value)


class TestAnswers:
    def test_the_verdict_comes_first_with_what_it_is_worth(self) -> None:
        out = run(*BASE, "--epsilon", "2", "--seed", "1")
        assert out.startswith("altitude → frost")
        assert "released margin" in out
        assert "ε = 2, replace one row    method: votes" in out
        assert "not for release" in out
        assert "common cause" in out

    @pytest.mark.parametrize("method", ["votes", "gap"])
    def test_json_holds_every_number_and_the_promise(self, method: str) -> None:
        said = json.loads(run(*BASE, "--epsilon", "2", "--method", method, "--seed", "1", "--json"))
        assert said["verdict"] == "altitude->frost"
        assert said["margin"] > said["threshold"] > 0
        assert (said["method"], said["released"], said["for_release"]) == (method, True, False)
        assert said["guarantee"]["epsilon"] == pytest.approx(2.0)
        assert 0.5 < said["stability"] <= 1.0
        assert (said["probability"] is not None) == (method == "votes")
        assert "probability_correct" not in said

    def test_public_records_train_and_the_whole_file_is_tested(self) -> None:
        said = json.loads(run(*BASE, "--epsilon", "1", "--method", "gap", "--train", "public.csv", "--json"))
        assert said["guarantee"]["event"]["kind"] == "laplace"
        assert any("all 3,000 private rows" in note for note in said["notes"])
        assert said["for_release"] is True

    def test_the_paper_with_its_own_constants(self) -> None:
        options = ("--method", "paper", "--score", "iqr", "--delta", "1e-5", "--option", "constants=paper")
        said = json.loads(run(*BASE, "--epsilon", "9", *options, "--train", "public.csv", "--json"))
        assert said["guarantee"]["epsilon"] == pytest.approx(12.0)
        assert any("4/3" in note for note in said["notes"])

    def test_all_pairs_share_one_budget(self) -> None:
        said = json.loads(run("stations.csv", "-s", "stations.toml", "-e", "6", "--all-pairs", "--seed", "1", "--json"))
        pairs = {(one["x"], one["y"]): one["verdict"] for one in said["answers"]}
        assert set(pairs) == {("altitude", "frost"), ("altitude", "snow"), ("frost", "snow")}
        assert pairs["altitude", "frost"] == "altitude->frost"
        assert said["guarantee"]["epsilon"] == pytest.approx(6.0)
        assert any("colour" in note for note in said["notes"])

    def test_where_nothing_can_be_told_nothing_is_spent(self) -> None:
        out = run(*BASE, "--epsilon", "0.001", "--method", "gap")
        assert out.startswith("cannot tell")
        assert "Nothing was spent" in out

    def test_a_plan_of_nothing_says_that_nothing_is_charged(self) -> None:
        assert "Ledger   nothing to charge" in run(*BASE, "--epsilon", "0.001", "--method", "gap", "--plan")


class TestBudget:
    @pytest.fixture
    def ledger(self, folder: Path) -> Ledger:
        book = Ledger(f"sqlite:///{folder / 'escudo-ledger.db'}")
        book.open("stations", epsilon=3.0, delta=1e-6)
        return book

    def test_a_plan_spends_nothing_and_says_what_would_be_left(self, ledger: Ledger) -> None:
        out = run(*BASE, "--epsilon", "1", "--dataset", "stations", "--plan")
        assert "this asks for 33.4 % and fits" in out
        assert "Nothing was spent" in out
        said = json.loads(run(*BASE, "--epsilon", "1", "--dataset", "stations", "--method", "gap", "--plan", "--json"))
        assert said["spent"] is False
        assert said["ledger"]["fits"]
        assert said["ledger"]["asked"] == pytest.approx(1 / 3, abs=0.01)
        assert ledger.account("stations").total().epsilon == 0.0

    def test_an_answer_is_charged_once_and_the_next_one_refused(self, ledger: Ledger) -> None:
        out = run(*BASE, "--epsilon", "2", "--dataset", "stations", "--method", "gap")
        assert "0.0 % of ε = 3.00 used; this asks for 66.7 % and fits" in out
        assert ledger.account("stations").total().epsilon == pytest.approx(2.0)
        message = refuse(BudgetExceededError, *BASE, "--epsilon", "2", "--dataset", "stations")
        assert "stations" in message
        assert ledger.account("stations").total().epsilon == pytest.approx(2.0)


class TestReport:
    def test_a_page_is_written_and_replaced(self, folder: Path) -> None:
        out = run(*BASE, "--epsilon", "2", "--seed", "1", "--out", "answer.html")
        assert "Report   answer.html" in out
        page = (folder / "answer.html").read_text(encoding="utf-8")
        assert "altitude → frost" in page
        run(*BASE, "--epsilon", "2", "--seed", "2", "--out", "answer.html")

    def test_an_answer_that_is_paid_for_is_shown_even_if_its_page_cannot_be_written(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full_disk(*_: object) -> None:
            raise InputError("no space left")

        monkeypatch.setattr("escudo.report.write", full_disk)
        result = CliRunner().invoke(app, [*BASE, "--epsilon", "2", "--seed", "1", "--out", "answer.html"])
        assert isinstance(result.exception, InputError)
        assert result.stdout.startswith("altitude → frost")
        assert "Report   " not in result.stdout

    def test_a_page_for_all_pairs(self, folder: Path) -> None:
        run("stations.csv", "-s", "stations.toml", "-e", "6", "--all-pairs", "--seed", "1", "--out", "all.html")
        assert "Which column causes which" in (folder / "all.html").read_text(encoding="utf-8")

    @pytest.mark.parametrize("name", ["stations.csv", "nowhere/page.html", "."], ids=["data", "folder", "directory"])
    def test_what_cannot_be_written_is_refused_before_anything_is_spent(self, name: str, folder: Path) -> None:
        book = Ledger(f"sqlite:///{folder / 'escudo-ledger.db'}")
        book.open("stations", epsilon=3.0, delta=1e-6)
        refuse(InputError, *BASE, "--epsilon", "1", "--dataset", "stations", "--out", name)
        assert book.account("stations").total().epsilon == 0.0


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("stations.csv", "altitude"), "name two columns"),
            (("stations.csv", "altitude", "frost", "--all-pairs"), "leave out X and Y"),
            (("stations.csv", "--all-pairs", "--method", "gap"), "by votes"),
            (("stations.csv", "altitude", "altitude"), "two different columns"),
            (("stations.csv", "altitude", "frost", "--method", "hsic"), "votes"),
            (("stations.csv", "altitude", "frost", "--ledger", "sqlite:///x.db"), "--dataset"),
            (("stations.csv", "altitude", "frost", "--method", "gap", "--option", "bandwidth=2"), "no option"),
            (("stations.csv", "--all-pairs", "--option", "width=2"), "'votes' has no option 'width'; it has abstain"),
            (
                ("stations.csv", "altitude", "frost", "--option", "epsilon=9"),
                "'epsilon' is no --option: it has an argument",
            ),
            (("stations.csv", "altitude", "frost", "--option", "x=3"), "'x' is no --option: it has an argument"),
            (
                ("stations.csv", "altitude", "frost", "--option", "train=x"),
                "'train' is no --option: it has an argument",
            ),
        ],
        ids=[
            *("one column", "too many", "all by gap", "twice", "method", "ledger", "option"),
            *("option for all", "budget as an option", "column as an option", "records as an option"),
        ],
    )
    def test_what_is_wrong_is_named(self, arguments: tuple[str, ...], words: str) -> None:
        assert words in refuse(InputError, *arguments, "--schema", "stations.toml", "--epsilon", "1")

    def test_columns_without_an_order_are_refused(self) -> None:
        message = refuse(SchemaError, "stations.csv", "altitude", "colour", "-s", "stations.toml", "-e", "1")
        assert "colour" in message

    def test_ranks_of_two_private_halves_are_refused(self) -> None:
        message = refuse(RefusedError, *BASE, "--epsilon", "1", "--method", "paper", "--score", "kendall")
        assert "Nothing was spent" in message

    def test_an_unconfirmed_schema_is_refused(self, folder: Path) -> None:
        text = (
            (folder / "stations.toml")
            .read_text(encoding="utf-8")
            .replace("upper = 1", "upper = 1\nconfirmed = false", 1)
        )
        (folder / "stations.toml").write_text(text, encoding="utf-8")
        assert "confirmed" in refuse(RefusedError, *BASE, "--epsilon", "1")
