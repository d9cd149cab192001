"""Long work: a command line of escudo's in a process of its own, watched by a page, cancelled by a signal.

The process is the studio's child, not a tab's: closing a tab leaves it alone. Its answer and its complaints go to files
that only their owner can read, in the studio's private folder. Cancelling is SIGTERM, at which commands tidy up: what
was spent stays spent and is marked, and nothing half is left behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from escudo._card import plain
from escudo.errors import InputError

_CANCELLED = 128 + signal.SIGTERM


@dataclass
class Job:
    """A command that is running, or has run.

    Attributes:
        number: Its name in addresses.
        kind: What it is: ``draft``, ``discover``, ``release``, ``audit`` or ``attack``.
        title: The same for people.
        words: What would be typed after ``escudo``.
        folder: Its private files.
        page: The page it writes, if it writes one.
        about: What the studio wants to remember of it.
    """

    number: int
    kind: str
    title: str
    words: Sequence[str]
    folder: Path
    page: Path | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    process: subprocess.Popen[bytes] = field(init=False, repr=False)
    began: float = field(init=False)
    stopped: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(mode=0o700)
        files = {name: _private(self.folder / name) for name in ("answer.json", "complaint.json")}
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "escudo", *self.words],
            stdin=subprocess.DEVNULL,
            stdout=files["answer.json"],
            stderr=files["complaint.json"],
            env={**os.environ, "ESCUDO_PROGRESS": str(self.folder / "progress.jsonl")},
            start_new_session=True,  # Ctrl-C in the terminal ends the studio, which then ends its work in good order
        )
        for file in files.values():
            os.close(file)

    @property
    def state(self) -> str:
        """``running``, ``done``, ``found`` (a check found a violation), ``refused``, ``cancelled`` or ``failed``."""
        code = self.process.poll()
        if code is None:
            return "running"
        known = {
            0: "done",
            5: "found",
            3: "refused",
            4: "refused",
            _CANCELLED: "cancelled",
            -signal.SIGTERM: "cancelled",
        }
        return "cancelled" if self.stopped and code != 0 else known.get(code, "failed")

    @property
    def answer(self) -> dict[str, Any]:
        """What the command answered; nothing while it runs, or if it did not answer."""
        if self.process.poll() is None:
            return {}
        try:
            found = json.loads((self.folder / "answer.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def message(self) -> str:
        """What went wrong, in escudo's own words, which hold no private value."""
        if self.state == "cancelled":
            return "Cancelled. Nothing was written; what was spent before stays spent, and the ledger says so."
        for line in reversed(
            (self.folder / "complaint.json").read_text(encoding="utf-8", errors="replace").splitlines()
        ):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict) and "message" in found:
                return str(found["message"])
        return "" if self.state in ("running", "done", "found") else "The command ended without a word."

    def progress(self) -> dict[str, Any]:
        """Return how far it is: a label, steps done and in all, and seconds left where they can be told."""
        told: dict[str, Any] = {"label": "Starting", "done": 0, "total": 0, "left": None}
        try:
            lines = (self.folder / "progress.jsonl").read_text(encoding="utf-8").splitlines()
        except OSError:
            lines = []
        for line in reversed(lines):
            try:
                told |= json.loads(line)
            except ValueError:  # half a line, which is being written
                continue
            if told["done"] and told["total"]:
                told["left"] = told.pop("seconds", 0.0) * (told["total"] - told["done"]) / told["done"]
            break
        return {key: told[key] for key in ("label", "done", "total", "left")}

    def to_json(self) -> dict[str, Any]:
        """Return what a page shows of it."""
        return {
            **plain(self, "number", "kind", "title", "state", "message"),
            "seconds": round(time.monotonic() - self.began, 1),
            "progress": self.progress(),
            "page": self.page is not None and self.process.poll() is not None and self.page.exists(),
        }

    def stop(self) -> None:
        """Tell it to end."""
        if self.process.poll() is None:
            self.stopped = True
            self.process.terminate()


class Work:
    """All jobs of a studio.

    Args:
        folder: A private folder for their files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jobs: list[Job] = []

    def start(self, kind: str, title: str, words: Sequence[str], page: Path | None = None, **about: Any) -> Job:
        """Start a command, unless one of its kind is running; the fields of :class:`Job` say what is told of it.

        Raises:
            InputError: If one is.
        """
        if any(job.kind == kind and job.state == "running" for job in self._jobs):
            raise InputError("one is running already; wait for it, or cancel it first.")
        number = len(self._jobs) + 1
        job = Job(number, kind, title, words, self._folder / f"job-{number}", page, about)
        self._jobs.append(job)
        return job

    def __getitem__(self, number: int) -> Job:
        """Return a job by its number.

        Raises:
            InputError: If there is none.
        """
        if not 1 <= number <= len(self._jobs):
            raise InputError("there is no such work.")
        return self._jobs[number - 1]

    def of(self, *kinds: str) -> list[Job]:
        """Return the jobs of some kinds, the newest first."""
        return [job for job in reversed(self._jobs) if job.kind in kinds]

    def close(self, patience: float = 20.0) -> None:
        """End what is running, in good order, and without mercy for what does not heed it."""
        for job in self._jobs:
            job.stop()
        for job in self._jobs:
            try:
                job.process.wait(patience)
            except subprocess.TimeoutExpired:
                job.process.kill()
                job.process.wait()


def _private(path: Path) -> int:
    """Open a new file that only its owner can read."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
