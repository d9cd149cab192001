"""Pages in a real browser: Playwright with the system's Chromium, which notices errors and requests to elsewhere."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NEEDED = [
    pytest.mark.chromium,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium binary, none is on this machine"),
]
# How much a page has left in the browser beside cookies; pages without an address can leave nothing.
_KEPT = "location.protocol.startsWith('http') ? localStorage.length + sessionStorage.length : 0"
_AXE = Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js"


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser, for as long as the block lasts."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


_left: WeakKeyDictionary[Browser, dict[str, Page]] = WeakKeyDictionary()


@contextmanager
def visiting(started: Browser, *, own: str, **settings: Any) -> Iterator[Page]:
    """Open a tab; what it complains of, or asks of an address that is not ``own``, fails the test.

    A tab that a test has left empty serves the next one with the same settings, cookies among them: a new one costs
    more than most pages, and pages of escudo keep nothing in a browser but the cookie that lets it in. Where a test
    fails, its tab goes.

    Args:
        started: The browser.
        own: How every address must begin that the page may ask for.
        settings: Of the tab, such as ``viewport`` and ``color_scheme``.
    """
    left, kind = _left.setdefault(started, {}), json.dumps(settings, sort_keys=True)
    page = left.pop(kind, None) or started.new_context(**settings).new_page()
    page.set_default_timeout(60_000)
    heard: list[str] = []
    allowed = (own, "data:", "blob:", "about:")
    hearing = {
        "console": lambda said: heard.append(said.text) if said.type in ("error", "warning") else None,
        "pageerror": lambda error: heard.append(str(error)),
        "request": lambda request: None if request.url.startswith(allowed) else heard.append(request.url),
    }
    for event, hear in hearing.items():
        page.on(event, hear)
    try:
        yield page
        for event, hear in hearing.items():
            page.remove_listener(event, hear)
        assert heard == [], heard
        assert page.evaluate(_KEPT) == 0, "a page kept something in the browser"
        page.goto("about:blank")
        left[kind] = page
    finally:
        if left.get(kind) is not page:
            page.context.close()


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
