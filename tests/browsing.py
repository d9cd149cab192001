"""Pages in a real browser: Playwright with the system's Chromium, which notices errors and requests to elsewhere."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NEEDED = [
    pytest.mark.chromium,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium binary, none is on this machine"),
]
_AXE = Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js"


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser, for as long as the block lasts."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@contextmanager
def visiting(started: Browser, *, own: str, **settings: Any) -> Iterator[Page]:
    """Open a tab of its own; what it complains of, or asks of an address that is not ``own``, fails the test.

    Args:
        started: The browser.
        own: How every address must begin that the page may ask for.
        settings: Of the tab, such as ``viewport`` and ``color_scheme``.
    """
    context = started.new_context(**settings)
    page = context.new_page()
    page.set_default_timeout(60_000)
    heard: list[str] = []
    page.on("console", lambda said: heard.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: heard.append(str(error)))
    allowed = (own, "data:", "blob:", "about:")
    page.on("request", lambda request: None if request.url.startswith(allowed) else heard.append(request.url))
    yield page
    context.close()
    assert heard == [], heard


def faults(page: Page) -> list[str]:
    """Return the serious faults of accessibility that axe-core finds, with where they are."""
    page.evaluate(_AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run({resultTypes: ['violations']}).then((result) => result.violations)")
    return [
        f"{one['id']}: {json.dumps([node['html'] for node in one['nodes']])[:500]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def overflow(page: Page) -> int:
    """Return by how many pixels a page is wider than its window."""
    wide: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wide
