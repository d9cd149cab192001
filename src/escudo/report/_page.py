"""One self-contained HTML page: what every kind of report shares.

A page is one file without scripts. It loads nothing, prints well, reads on a phone, and follows the reader's light or
dark setting. A kind of report is a template that extends ``page.html.j2`` and fills its ``body``.
"""

from __future__ import annotations

import os
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escudo.errors import InputError

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = ["CUSTODIAN_ONLY", "check_page", "fragment", "is_report", "render", "write"]

CUSTODIAN_ONLY = "Custodian only, not for release"
"""What stands on every page that reads the private table and was not paid for."""

_POWER = re.compile(r"\be\^([0-9.]+[0-9])")
_GENERATOR = '<meta name="generator" content="escudo '


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("escudo.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["prose"] = _prose
    environment.globals["CUSTODIAN_ONLY"] = CUSTODIAN_ONLY
    return environment


def _prose(text: str) -> Markup:
    """Return text as markup: ``e^2.00`` as a power, and no line break inside ``X = x``."""
    from markupsafe import Markup, escape

    unbroken = str(escape(text)).replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    return Markup(_POWER.sub(r"e<sup>\1</sup>", unbroken))


def render(template: str, *, kind: str, title: str, lead: str, source: str = "", **content: Any) -> str:
    """Return a page as HTML text.

    Args:
        template: The template of this kind of report, such as ``effects.html.j2``.
        kind: What kind of report it is, in a word or two.
        title: The heading: what the page shows.
        lead: The finding, in one sentence.
        source: The file or dataset it is about.
        content: What the template needs. Text is escaped; markup must be a ``markupsafe.Markup``.
    """
    from markupsafe import Markup

    environment = _environment()
    css = environment.loader.get_source(environment, "page.css")[0] if environment.loader else ""
    return environment.get_template(template).render(
        kind=kind, title=title, lead=lead, source=source, css=Markup(css), version=version("escudo"), **content
    )


def fragment(template: str, **content: Any) -> Markup:
    """Return a part of a page as markup; text in ``content`` is escaped, as by :func:`render`."""
    from markupsafe import Markup

    return Markup(_environment().get_template(template).render(**content))


def is_report(path: Path) -> bool:
    """Return whether a file is a report of escudo, which may be replaced by another."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return _GENERATOR in file.read(2000)


def check_page(path: str | Path) -> Path:
    """Check that a page can be written there, before anything is worked out for it.

    Raises:
        InputError: If the path holds something that is not a report of escudo, or cannot be written.
    """
    file = Path(path)
    try:
        if file.exists() and not is_report(file):
            raise InputError(f"{file.name!r} exists and is not a report of escudo; choose another name.")
    except OSError as error:
        raise InputError(f"Cannot write the report {file.name!r}: {error.strerror or error}.") from error
    home = file.resolve().parent
    if not (home.is_dir() and os.access(home, os.W_OK | os.X_OK)):
        raise InputError(f"Cannot write the report {file.name!r}: nothing can be written in '{home}'.")
    return file


def write(html: str, path: str | Path) -> Path:
    """Write a page, replacing an earlier report but no other file; one for the custodian is its owner's to read only.

    Raises:
        InputError: If the path holds something that is not a report of escudo, or cannot be written.
    """
    file = check_page(path)
    try:
        if f'<div class="marking">{CUSTODIAN_ONLY}</div>' in html:
            file.touch(mode=0o600)
            file.chmod(0o600)
        file.write_text(html, encoding="utf-8")
    except OSError as error:
        raise InputError(f"Cannot write the report {file.name!r}: {error.strerror or error}.") from error
    return file
