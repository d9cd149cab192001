"""An account that writes down what happens to it, and noise that can be watched or broken."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from escudo.errors import BudgetExceededError
from escudo.mechanisms import _noise


@dataclass
class Diary:
    """An account that keeps a diary; with ``refuse`` it allows nothing."""

    refuse: bool = False
    relation: str = "replace_one"
    unit: str = "row"
    max_rows_per_person: int | None = None
    entries: list[tuple] = field(default_factory=list)

    def spend(self, event, *, purpose="", for_release=True):
        if self.refuse:
            self.entries.append(("refused",))
            raise BudgetExceededError("no budget", dataset="d", requested=1.0, spent=1.0, left=0.0, cap=1.0)
        self.entries.append(("spent", event, purpose, for_release))
        return f"receipt {len(self.entries)}"

    def fail(self, receipt, reason=""):
        self.entries.append(("failed", receipt, reason))

    @property
    def words(self):
        return [entry[0] for entry in self.entries]


@pytest.fixture
def diary():
    return Diary()


@pytest.fixture
def refusing():
    return Diary(refuse=True)


DRAWS = ("add_laplace", "add_gaussian", "gumbel_argmax", "exponential_argmax")


@pytest.fixture
def watched_noise(monkeypatch, diary):
    """Make every draw, from either source, write itself into the diary."""
    for source in (_noise.SecureNoise, _noise.SeededNoise):
        for name in DRAWS:
            original = getattr(source, name)

            def watched(self, integers, scale, original=original):
                diary.entries.append(("drew",))
                return original(self, integers, scale)

            monkeypatch.setattr(source, name, watched)
    return diary


@pytest.fixture
def broken_noise(monkeypatch):
    """Make every draw fail, quoting a private number as a careless library might."""

    def broken(self, integers, scale):
        raise RuntimeError(f"cannot add noise to {np.asarray(integers).tolist()}")

    for source in (_noise.SecureNoise, _noise.SeededNoise):
        for name in DRAWS:
            monkeypatch.setattr(source, name, broken)
