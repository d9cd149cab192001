"""The custodian's copy of a release's report: the public page, and sections that read the private table.

``report.html`` is never changed after a release. Its copy lies beside the folder that is handed over, as
``NAME-custodian.html``, readable by its owner only. It holds the public page word for word, marked on the screen and on
every printed page, with one section for each thing that was looked at: the comparison with the real rows, what can be
learnt from the synthetic ones, what an attacker could learn. Sections gather: each is replaced by a newer one of its
kind, and all go when the folder holds another release.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from escudo.errors import InputError
from escudo.report._attack_page import attack_section
from escudo.report._evaluation_page import evaluation_section
from escudo.report._page import CUSTODIAN_ONLY, fragment, is_report
from escudo.report._record import is_record

if TYPE_CHECKING:
    from escudo.attacks import Attack
    from escudo.utility import Evaluation, Rows

__all__ = ["KINDS", "beside", "check_custodian_report", "custodian_copy", "custodian_report", "private_draft"]

KINDS = ("comparison", "utility", "attack")
"""The sections, in the order they are shown."""

_RECORD, _REPORT = "release.json", "report.html"
_OF = re.compile(r'<meta name="escudo-release" content="([0-9a-f]{64})">')
_SECTION = re.compile(r"<!-- section (\w+) -->(.*?)<!-- /section -->", re.DOTALL)
_MARKING = re.compile(r"<!-- marking -->.*?<!-- /marking -->", re.DOTALL)
_PLACE = "<!-- sections -->"


def custodian_report(
    directory: str | os.PathLike[str],
    *,
    evaluation: Evaluation | None = None,
    rows: tuple[Rows, Rows] | None = None,
    attack: Attack | None = None,
) -> Path:
    """Add what was found to the custodian's copy of a release's report, and return where that is.

    Args:
        directory: The release folder; nothing in it is changed.
        evaluation: How useful its synthetic rows are.
        rows: Real and synthetic rows, to draw pairs of columns for the evaluation.
        attack: What an attacker could learn from its generator.

    Raises:
        InputError: If the folder holds no release, its report was changed since, or something else is in the way.

    **Guarantee.** None: the copy shows exact figures of the private table. The release stays as it was.
    """
    page, path, found = _opened(directory)
    if evaluation is not None:
        found["utility"] = evaluation_section(evaluation, rows=rows)
    if attack is not None:
        found["attack"] = attack_section(attack)
    try:
        with private_draft(path) as draft:
            draft.write_text(custodian_copy(page, found), encoding="utf-8")
            draft.replace(path)
    except OSError as error:
        raise InputError(f"'{path}' cannot be written: {error.strerror or 'input/output error'}.") from None
    return path


def check_custodian_report(directory: str | os.PathLike[str]) -> Path:
    """Check that a custodian's copy can be written for a release, before anything is worked out for it.

    Returns:
        Where the copy will be.

    Raises:
        InputError: As :func:`custodian_report`.
    """
    _, path, _ = _opened(directory)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise InputError(f"'{path}' cannot be made: nothing can be written in '{path.parent}'.")
    return path


def _opened(directory: str | os.PathLike[str]) -> tuple[str, Path, dict[str, str]]:
    """Return the public page of a release, where its custodian's copy is, and the sections it holds."""
    target = Path(directory).resolve()
    page = _public_page(target)
    path = beside(target)
    return page, path, _gathered(path, of=_fingerprint(page))


def custodian_copy(page: str, sections: Mapping[str, str]) -> str:
    """Return the public page with marks and sections.

    Args:
        page: ``report.html``, as released.
        sections: Markup by kind.
    """
    ordered = {kind: sections[kind] for kind in KINDS if kind in sections}
    note = fragment("custodian_note.html.j2", kinds=list(ordered))
    gathered = "\n".join(f"<!-- section {kind} -->{html}<!-- /section -->" for kind, html in ordered.items())
    style = fragment("custodian.css")
    head = f'<meta name="escudo-release" content="{_fingerprint(page)}">\n<style>\n{style}</style>\n</head>'
    # Functions in place of texts, as texts are read for backslashes.
    copy = _MARKING.sub(lambda _: str(fragment("custodian_marking.html.j2")), page, count=1)
    copy = copy.replace("</head>", head, 1).replace("<title>", f"<title>{CUSTODIAN_ONLY}: ", 1)
    copy = copy.replace("<main>\n", f"<main>\n{note}\n", 1)
    place = _PLACE if _PLACE in copy else "</main>"
    return copy.replace(place, f"{gathered}\n{place}", 1)


def beside(target: Path) -> Path:
    """Return where the custodian's copy of a release lies."""
    return target.with_name(f"{target.name}-custodian.html")


@contextmanager
def private_draft(path: Path) -> Iterator[Path]:
    """Give an empty hidden file that only its owner can read; it is removed unless it was renamed."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    draft.touch(mode=0o600, exist_ok=False)
    try:
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _public_page(target: Path) -> str:
    """Return the released report, or say what is wrong with it."""
    if not is_record(target / _RECORD):
        raise InputError(f"'{target}' holds no release of escudo; name the folder that 'escudo release' wrote.")
    try:
        page = (target / _REPORT).read_text(encoding="utf-8")
        listed = json.loads((target / _RECORD).read_text(encoding="utf-8"))["files"]
        stated = {entry["path"]: entry["sha256"] for entry in listed}
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"the release in '{target}' is not whole: its report or its record cannot be read.") from None
    if stated.get(_REPORT) != _fingerprint(page):
        raise InputError(f"'{target / _REPORT}' was changed after the release; restore it first.")
    return page


def _gathered(path: Path, *, of: str) -> dict[str, str]:
    """Return the sections that an earlier copy holds, if it is of the same release."""
    try:
        if not path.exists():
            return {}
        text = path.read_text(encoding="utf-8", errors="replace")
        stated = _OF.search(text) if is_report(path) else None
    except OSError as error:
        raise InputError(f"'{path}' cannot be read: {error.strerror or 'input/output error'}.") from None
    if stated is None:
        raise InputError(f"'{path}' is no custodian's copy of a report; move it away.")
    if stated[1] != of:
        return {}
    return {kind: html for kind, html in _SECTION.findall(text) if kind in KINDS}


def _fingerprint(page: str) -> str:
    return hashlib.sha256(page.encode("utf-8")).hexdigest()
