"""``escudo run`` and ``--save-config``: a command line in a file gives the same plan and the same answer."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from escudo.causal import asia
from escudo.cli import app
from escudo.errors import EscudoError, InputError
from escudo.table import Schema


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    network = asia()
    network.sample_frame(300, rng=np.random.default_rng(1)).write_csv(tmp_path / "visits.csv")
    network.graph.write(tmp_path / "clinic.dot")
    Schema.from_dict({name: list(levels) for name, levels in network.levels.items()}).write(tmp_path / "visits.toml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


RELEASE = ("release", "visits.csv", "--schema", "visits.toml", "--graph", "clinic.dot", "--epsilon", "1")


def run(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def refused(*words: str) -> EscudoError:
    error = run(*words).exception
    assert isinstance(error, EscudoError), error
    return error


def test_a_saved_command_line_gives_the_same_plan_and_the_same_rows(clinic: Path) -> None:
    typed = (*RELEASE, "--delta", "1e-7", "--evaluate", "0.2", "--csv", "--seed", "3")
    first = run(*typed, "--out", "out/first", "--save-config", "release.toml")
    assert first.exit_code == 0, first.output
    text = (clinic / "release.toml").read_text()
    (clinic / "second.toml").write_text(text.replace("out/first", "out/second"))
    plan = run("run", "second.toml", "--plan", "--json")
    assert json.loads(plan.output) == json.loads(run(*typed, "--plan", "--json").output)
    assert not (clinic / "out/second").exists()
    assert json.loads(run("run", "release.toml", "--plan", "--json").output) == json.loads(
        plan.output
    )  # released before
    assert run("run", "second.toml").exit_code == 0
    assert (clinic / "out/first/synthetic.csv").read_bytes() == (clinic / "out/second/synthetic.csv").read_bytes()
    for name, file in (("first", "release.toml"), ("second", "second.toml")):
        record = json.loads((clinic / "out" / name / "release.json").read_text())
        content = (clinic / file).read_bytes()
        assert record["made"]["config"] == {"file": file, "sha256": hashlib.sha256(content).hexdigest()}


def test_what_is_not_as_by_default_is_kept_and_how_to_show_it_is_not(clinic: Path) -> None:
    told = (*RELEASE, "--option", "degree=2", "--option", "repair=false", "--plan", "--json", "--save-config", "a.toml")
    run(*told)
    import tomllib

    assert tomllib.loads((clinic / "a.toml").read_text()) == {
        "command": "release", "data": "visits.csv", "schema": "visits.toml", "epsilon": 1.0, "graph": "clinic.dot",
        "option": ["degree=2", "repair=false"],
    }  # fmt: skip


def test_paths_are_relative_to_the_file_wherever_it_is_run_from(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (clinic / "plans").mkdir()
    run(*RELEASE, "--plan", "--save-config", "plans/a.toml")
    assert 'data = "../visits.csv"' in (clinic / "plans/a.toml").read_text()
    here = run("run", "plans/a.toml", "--plan", "--json")
    monkeypatch.chdir(clinic / "plans")
    assert run("run", "a.toml", "--plan", "--json").output == here.output != ""


def test_a_ledger_and_a_database_stay_the_same_files(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or another ledger of the same name, where the file is run, would be charged."""
    import duckdb

    monkeypatch.delenv("ESCUDO_LEDGER", raising=False)
    with duckdb.connect(str(clinic / "clinic.db")) as connection:
        connection.execute("CREATE TABLE visits AS SELECT * FROM read_csv('visits.csv', all_varchar = true)")
    (clinic / "plans").mkdir()
    for number, ledger in enumerate(
        ((), ("--ledger", "sqlite:///mine.db"), ("--ledger", f"sqlite:///{clinic}/all.db"))
    ):
        run("ledger", "open", "visits", "--epsilon", "9", "--delta", "1e-5", *ledger)
        typed = ("release", "duckdb:///clinic.db?table=visits", *RELEASE[2:], "--dataset", "visits", *ledger)
        assert run(*typed, "--plan", "--save-config", f"plans/{number}.toml").exit_code == 0
    text = (clinic / "plans/0.toml").read_text()
    assert 'data = "duckdb:///../clinic.db?table=visits"' in text
    assert 'ledger = "sqlite:///../escudo-ledger.db"' in text
    assert f'ledger = "sqlite:///{clinic}/all.db"' in (clinic / "plans/2.toml").read_text()
    monkeypatch.chdir(clinic / "plans")
    for number in range(3):
        shown = run("run", f"{number}.toml", "--plan")
        assert shown.exit_code == 0, shown.exception
        assert "visits" in shown.output
    assert not list((clinic / "plans").glob("*.db"))


def test_arguments_in_their_order(clinic: Path) -> None:
    asked = ("effect", "visits.csv", "smoke", "lung", "--graph", "clinic.dot", *RELEASE[2:4], "--epsilon", "2")
    run(*asked, "--plan", "--save-config", "d.toml")
    text = (clinic / "d.toml").read_text()
    assert 'treatment = "smoke"' in text
    swapped = text.replace('treatment = "smoke"\noutcome = "lung"\n', "") + 'outcome = "lung"\ntreatment = "smoke"\n'
    (clinic / "e.toml").write_text(swapped)
    assert run("run", "e.toml", "--plan").output == run("run", "d.toml", "--plan").output != ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "command must be one of"),
        ('command = "ledger"', "command must be one of"),
        ("command = 3", "command must be one of"),
        ('command = "release"\nepsilom = 1', "did you mean 'epsilon'"),
        ('command = "release"\nplan = true', "has no 'plan'"),
        ('command = "release"\ncsv = "yes"', "csv must be true or false"),
        ('command = "release"\nepsilon = {a = 1}', "epsilon must be a text or a number"),
        ('command = "release"\nepsilon = true', "epsilon must be a text or a number"),
        ("command = ", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused_in_words(clinic: Path, text: str, said: str) -> None:
    (clinic / "a.toml").write_text(text)
    assert said in str(refused("run", "a.toml")).replace("Did", "did")


def test_what_the_command_refuses_is_refused(clinic: Path) -> None:
    (clinic / "a.toml").write_text(
        'command = "release"\ndata = "visits.csv"\nschema = "visits.toml"\nepsilon = -1\nout = "out"\n'
    )
    assert "epsilon" in str(refused("run", "a.toml"))
    (clinic / "a.toml").write_text('command = "release"\ndata = "visits.csv"\nschema = "visits.toml"\nepsilon = "x"\n')
    result = run("run", "a.toml")
    assert result.exit_code == 2
    assert "epsilon" in result.output
    assert not (clinic / "out").exists()


def test_a_password_is_never_written(clinic: Path) -> None:
    for address in ("postgresql://me:secret@host/db?table=t", "postgresql://me@host/db?table=t&password=secret"):
        error = refused("release", address, *RELEASE[2:], "--plan", "--save-config", "a.toml")
        assert "holds a password" in str(error)
        assert "secret" not in str(error)
        assert not (clinic / "a.toml").exists()


def test_only_such_a_file_is_replaced(clinic: Path) -> None:
    (clinic / "notes.toml").write_text("mine = 1\n")
    assert "exists already" in str(refused(*RELEASE, "--plan", "--save-config", "notes.toml"))
    for epsilon in ("1", "2"):
        assert run(*RELEASE[:-1], epsilon, "--plan", "--save-config", "a.toml").exit_code == 0
    assert "epsilon = 2.0" in (clinic / "a.toml").read_text()


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
KEYS = st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True) | st.sampled_from(
    ["data", "epsilon", "option", "csv", "rows"]
)
VALUES = st.one_of(
    TEXTS, st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.lists(TEXTS)
)


@given(st.dictionaries(KEYS, VALUES))
def test_no_file_is_an_unclear_error(tmp_path_factory: pytest.TempPathFactory, told: dict[str, Any]) -> None:
    from escudo.table import toml_pairs

    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "a.toml").write_text(toml_pairs({**told, "command": "release"}), encoding="utf-8")
    result = run("run", str(folder / "a.toml"))
    assert isinstance(result.exception, InputError | SystemExit | EscudoError), result.exception
