"""A studio that was started as people start it, and a browser that was let in."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import escudo
from browsing import browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@dataclass(frozen=True)
class Served:
    """A studio that is running.

    Attributes:
        origin: Where.
        entry: The address that lets one browser in.
        home: The folder it was started in.
        process: What serves it.
    """

    origin: str
    entry: str
    home: Path
    process: subprocess.Popen[str]


def serve(home: Path, *words: str) -> Served:
    """Start a studio in a folder, and wait until it says where it is."""
    source = str(Path(escudo.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "escudo", "studio", "--no-browser", *words],
        cwd=home,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source, "JAX_PLATFORMS": "cpu"},
    )
    assert process.stdout is not None
    found = re.search(r"(https?://127\.0\.0\.1:\d+)/open\?token=\S+", process.stdout.readline())
    assert found is not None
    return Served(found[1], found[0], home, process)


def end(served: Served) -> None:
    """Tell it to end, as Ctrl-C does."""
    served.process.send_signal(signal.SIGINT)
    served.process.wait(120)
    assert served.process.stdout is not None
    served.process.stdout.close()


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = serve(tmp_path_factory.mktemp("home"), "--demo")
    yield served
    end(served)


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A studio behind TLS; its certificate, which vouches for itself, lies in its home."""
    home = tmp_path_factory.mktemp("certified")
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    words += ["-keyout", "key.pem", "-out", "certificate.pem"]
    subprocess.run(["openssl", *words], cwd=home, check=True, capture_output=True)
    served = serve(home, "--demo", "--host=127.0.0.1", "--tls-certificate=certificate.pem", "--tls-key=key.pem")
    yield served
    end(served)


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with browser() as one:
        yield one


@pytest.fixture(scope="module")
def entered(studio: Served, started: Browser) -> Any:
    """The cookie of the one browser that was let in."""
    context = started.new_context()
    page = context.new_page()
    page.goto(studio.entry, timeout=120_000)
    page.wait_for_url("**/table", timeout=120_000)
    state = context.storage_state()
    context.close()
    return state
