"""Commands of escudo, run in this process, for tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from escudo.cli import app
from escudo.errors import EscudoError


def run(*arguments: str) -> Result:
    """Run a command that has to succeed, and return what it printed."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None, (result.output, result.exception)
    return result


def refusal(*arguments: str) -> EscudoError:
    """Run a command that has to be refused, and return with what error."""
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, EscudoError), (result.output, result.exception)
    return result.exception


def working_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let commands run in a folder, with lines long enough not to be broken and no ledger but one that is named."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("ESCUDO_LEDGER", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return folder
