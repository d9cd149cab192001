"""How work and its result show themselves: a bar while it lasts, then plain values for programs, a card for notebooks.

A bar is for anything over two seconds: shown in terminals and notebooks, silent when piped.

Every text is escaped here, so that a column called ``<script>`` stays a name; :func:`printable` keeps names from
steering a terminal, and :func:`text_width` says how much room they take in a picture.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from html import escape
from math import isfinite
from typing import Any
from unicodedata import category, combining, east_asian_width

CUSTODIAN_ONLY = "Custodian only, not for release"
"""What stands on every card and page that reads private rows and was not paid for."""

_ACCENT, _ALARM = "#0f6e84", "#b71c1c"
_PACE = 0.2  # seconds
_MOST_ROWS, _MOST_TEXT = 20, 1000
_NARROW, _WIDE = frozenset("fijlrtI.,:;'|!()[]{} "), frozenset("mwMW@%&")


def number_of(count: int | None, what: str) -> str:
    """Return a number with what it counts.

    >>> number_of(1, "row"), number_of(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"1 {what}" if count == 1 else f"{count or 0:,} {what}s"


def first_of(names: Iterable[str], most: int = 8) -> str:
    """Return names as in a sentence; of many the first ones, and how many more there are, which are two at least.

    >>> first_of("a"), first_of("ab"), first_of("abcd", most=3), first_of("abcdefgh", most=3)
    ('a', 'a and b', 'a, b, c and d', 'a, b, c and 5 more')
    """
    listed = list(names)
    several = listed if len(listed) <= most + 1 else [*listed[:most], f"{len(listed) - most:,} more"]
    *before, last = several
    return f"{', '.join(before)} and {last}" if before else last


def plain(found: Any, *names: str) -> dict[str, Any]:
    """Return attributes of a result as JSON values, under their names; all fields of a dataclass if none is named.

    What has a ``to_json`` of its own gives that. JSON knows no infinities: a number that is not finite becomes null.

    >>> plain(3 + 4j, "real", "imag")
    {'real': 3.0, 'imag': 4.0}
    """
    return {name: _plain(getattr(found, name)) for name in names or [field.name for field in fields(found)]}


def plain_for_custodian(found: Any, *names: str) -> dict[str, Any]:
    """Return the same of what only the custodian may see, which says so first."""
    return {"custodian_only": True, **plain(found, *names)}


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return plain(value)
    if hasattr(value, "tolist"):  # an array, or a number of numpy's
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, Set):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def card(
    title: str,
    text: str = "",
    *,
    head: Sequence[str] = (),
    rows: Iterable[Sequence[object]] = (),
    picture: str = "",
    note: str = "",
    alarm: bool = False,
) -> str:
    """Return a small card as HTML.

    Args:
        title: What it is, in bold.
        text: The finding; lines stay lines. A very long one is cut.
        head: Titles of the table's columns.
        rows: The table's cells; of many rows the first twenty are shown.
        picture: SVG, safe as it is.
        note: What else must be said, in small print.
        alarm: Whether something is wrong, which the colour of the edge says too.

    >>> card("a < b", note="so it is").count("&lt;")
    1
    """
    listed = [[escape(str(cell)) for cell in row] for row in rows]
    short = text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…"
    lines = escape(short).replace("\n", "<br>")
    parts = [f"<b>{escape(title)}</b>", f"<br>{lines}" if text else ""]
    if picture:
        parts.append(f"<div>{picture}</div>")
    if listed:
        titles = "".join(f"<th>{escape(one)}</th>" for one in head)
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in listed[:_MOST_ROWS])
        parts.append(f"<table>{f'<thead><tr>{titles}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>")
    if len(listed) > _MOST_ROWS:
        parts.append(f"<div>and {len(listed) - _MOST_ROWS:,} more</div>")
    if note:
        parts.append(f"<div><small>{escape(note)}</small></div>")
    edge = _ALARM if alarm else _ACCENT
    style = f"border-left:3px solid {edge};padding:.4em .9em;font-family:system-ui,sans-serif"
    return f'<div style="{style}">{"".join(parts)}</div>'


def printable(text: str, *, also: str = "") -> str:
    r"""Return text with a mark in place of what is no letter, sign or space: it could steer a terminal, or turn text.

    Args:
        text: Any text.
        also: Other characters to keep, such as the end of a line.

    >>> printable("café [31mred‮") == "café �[31mred�"
    True
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in also or category(c) == "Zs" else "\ufffd" for c in text)


def text_width(text: str, size: float) -> float:
    """Return about how wide a text is drawn at a font size, a little on the safe side: the reader's font is unknown.

    >>> text_width("illicit", 10) < text_width("smokers", 10) < text_width("SMOKERS", 10)
    True
    """
    ems = 0.0
    for char in text:
        if combining(char):
            continue
        if east_asian_width(char) in "WF":
            ems += 1.0
        else:
            ems += 0.34 if char in _NARROW else 0.9 if char in _WIDE else 0.7 if char.isupper() else 0.57
    return ems * size


def fitted(text: str, pixels: float, size: float = 12.0) -> str:
    """Return the text, or as much of its start and end as fits, with an ellipsis between them.

    >>> fitted("smoke", 100), fitted("symptom number 12", 80)
    ('smoke', 'sympto…r 12')
    """
    if room_for(text, size) <= pixels:
        return text
    kept = len(text)
    while kept > 0:
        kept -= 1
        end = kept * 2 // 5
        shown = text[: kept - end] + "…" + (text[-end:] if end else "")
        if room_for(shown, size) <= pixels:
            return shown
    return "…"


def room_for(text: str, size: float) -> float:
    """Return how wide a text is at most: some fonts have wide figures and small letters."""
    return 1.12 * text_width(text, size)


@contextmanager
def _told(file: str, label: str, total: int) -> Iterator[Callable[..., None]]:
    """Write how far things are to a file instead, a line of JSON at a time, a few times a second at most."""
    start, last, done = time.monotonic(), -1.0, 0

    def tell(said: str) -> None:
        seconds = round(time.monotonic() - start, 3)
        line = {"label": f"{label} {said}".rstrip(), "done": done, "total": total, "seconds": seconds}
        with open(file, "a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")

    def advance(steps: int, said: str = "") -> None:
        nonlocal done, last
        done += steps
        if time.monotonic() - last > _PACE or done >= total:
            last = time.monotonic()
            tell(said)

    tell("")
    yield advance


@contextmanager
def tracking(label: str, total: int) -> Iterator[Callable[..., None]]:
    """Give a function that advances a bar of ``total`` steps with its expected end, and may say how far things are.

    The bar is written to standard error and vanishes when done; where ``ESCUDO_PROGRESS`` names a file, lines of JSON
    are written to that instead, for another program to show. Steps must be public facts (tables, epochs, trials),
    never the progress of a scan whose speed depends on private values.

    >>> with tracking("Measuring", total=2) as advance:
    ...     advance(1)
    ...     advance(1, "almost done")
    """
    if (file := os.environ.get("ESCUDO_PROGRESS")) is not None:
        with _told(file, label, total) as advance:
            yield advance
        return
    if not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        yield lambda steps, said="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda steps, said="": bar.update(task, advance=steps, description=f"{label} {said}".rstrip())
