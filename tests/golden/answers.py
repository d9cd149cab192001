"""The golden answers: all cases, the file that holds them, and what an answer that moved is told to have done."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from golden.questions import questions
from golden.seen import CLOSE, Seen, machine
from golden.tables import table_cases

FILE = Path(__file__).parent / "answers.json"


class Case(Protocol):
    """A question with a fixed seed."""

    @property
    def name(self) -> str:
        """What it is called in ``answers.json``."""

    @property
    def slow(self) -> bool:
        """Whether it is left to ``python -m golden``."""

    @property
    def engines(self) -> tuple[str, ...]:
        """In which engines it can be asked; one empty name where that makes no difference."""

    def see(self, engine: str | None = None) -> Seen:
        """Ask, in this engine or the one whose turn it is."""


def every_case() -> Iterator[Case]:
    """Yield every case."""
    yield from table_cases()
    yield from questions()


def read() -> dict[str, Any]:
    """Return the file: ``machine`` and ``answers``, by the name of their case."""
    held: dict[str, Any] = json.loads(FILE.read_text())
    return held


def write(answers: dict[str, Any]) -> None:
    """Renew the file, a line for each case."""
    listed = ",\n".join(f"  {_json(name)}: {_json(answer)}" for name, answer in answers.items())
    FILE.write_text(f'{{\n "machine": {_json(machine())},\n "answers": {{\n{listed}\n }}\n}}\n')


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def moved(held: dict[str, Any], seen: Seen, *, exact: bool) -> list[str]:
    """Return in words what is not as it was: pieces that came, went or differ."""
    new, words = seen.record(), list[str]()
    place = 0 if exact else 1
    for piece in sorted({*held["pieces"], *new["pieces"]}):
        if piece not in new["pieces"]:
            words.append(f"{piece}: is no longer there")
        elif piece not in held["pieces"]:
            words.append(f"{piece}: is new: {seen.exact[piece][:300]}")
        elif held["pieces"][piece][place] not in (None, new["pieces"][piece][place]):
            words.append(f"{piece}: differs, and is now {seen.exact[piece][:300]}")
    for name, size in held.get("sizes", {}).items():
        now = seen.sizes.get(name, math.nan)
        if not math.isclose(size, now, rel_tol=CLOSE, abs_tol=1e-9):
            words.append(f"{name}: its size was {size} and is {now}")
    if words and held["says"] != new["says"]:
        words.append(f"it said {held['says']!r}, and says {new['says']!r}")
    return words


def unsteady(only: str) -> list[tuple[str, str]]:
    """Return cases and pieces that are others here than the file says, though floats are compared to 9 digits only.

    The last bit of a sum may decide a rounding, a drawn row or the length of a file. Such pieces are compared on
    machines like the one that wrote the file and on no others.
    """
    answers, found = read()["answers"], []
    for case in every_case():
        if only in case.name:
            held, new = answers[case.name]["pieces"], case.see().record()["pieces"]
            found += [(case.name, piece) for piece in held if held[piece][1] != new.get(piece, held[piece])[1]]
    return found
