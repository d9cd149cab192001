"""Questions that need no private table: effects, audits, attacks, formats, schemas, ledgers, pages, help, mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golden.seen import Seen, see


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with a name of its own."""

    name: str
    ask: Callable[[Path], Any]
    slow: bool = False
    engines: tuple[str, ...] = ("",)

    def see(self, engine: str | None = None) -> Seen:
        """Ask."""
        return see(self.ask)


def questions() -> Iterator[Question]:
    """Yield every question."""
    yield from ()
