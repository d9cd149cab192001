"""Claims about ``escudo doctor``."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from typer.testing import CliRunner

from escudo.cli import app
from escudo.privacy import Ledger, PureEvent


@pytest.fixture
def ledger(tmp_path):
    with Ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as book:
        book.open("visits", epsilon=2.0)
        book.spend("visits", PureEvent(epsilon=0.5), purpose="a count")
    return tmp_path / "ledger.db"


def run(*arguments):
    return CliRunner().invoke(app, ["doctor", *arguments])


def test_a_sound_installation_is_healthy(ledger):
    result = run("--ledger", f"sqlite:///{ledger}", "--json")
    body = json.loads(result.stdout)
    assert result.exit_code == 0
    assert body["healthy"] is True
    assert body["ledger"]["state"] == "whole, datasets: 1"
    assert body["audit"]["violated"] is False
    assert body["audit"]["epsilon_lower"] <= 1.0
    assert body["core"]["opendp"]


def test_a_ledger_that_was_tampered_with_ends_with_code_5(ledger):
    with closing(sqlite3.connect(ledger)) as database, database:
        database.execute("UPDATE escudo_ledger SET recorded_at = '2020-01-01' WHERE sequence = 1")
    database.close()
    result = run("--ledger", f"sqlite:///{ledger}")
    assert result.exit_code == 5
    assert "NOT healthy" in result.output


def test_a_password_in_the_url_is_not_shown():
    result = run("--ledger", "postgresql://me:secret@localhost:1/none", "--json")
    assert "secret" not in result.output
    assert json.loads(result.stdout)["ledger"]["whole"] is None


def test_a_ledger_that_cannot_be_read_is_not_called_healthy():
    result = run("--ledger", "postgresql://me:secret@localhost:1/none")
    assert result.exit_code == 0
    assert result.output.rstrip().endswith("Healthy, but for the ledger: it cannot be read.")


def test_people_get_one_line_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ESCUDO_LEDGER", raising=False)
    result = run()
    assert "none here yet" in result.output
    assert result.output.rstrip().endswith("Healthy.")


def test_an_accelerator_that_does_not_start_is_found_and_no_crash(tmp_path, monkeypatch):
    import jax

    def broken():
        raise RuntimeError("driver mismatch on host x")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jax, "devices", broken)
    result = run()
    assert result.exit_code == 0, result.output
    assert "JAX does not start (RuntimeError)" in result.output
