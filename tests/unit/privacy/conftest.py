"""A ledger on SQLite, and the same ledger as another process would open it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from escudo.privacy import Ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger(f"sqlite:///{path}") as ledger:
        yield ledger


@pytest.fixture
def again(ledger: Ledger) -> Callable[[], Ledger]:
    def reopened() -> Ledger:
        ledger.close()
        return Ledger(ledger.name)

    return reopened
