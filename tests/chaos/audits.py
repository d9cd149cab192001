"""An audit keeps a log of its trials, is stopped again and again, and comes to the same end."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chaos.children import Act
from chaos.faults import drawn_kind
from chaos.stage import Case, Stage, World, command

__all__ = ["AuditWorld", "noisy_count"]


def noisy_count(dataset: list[int], rng: Any) -> int:
    """A mechanism to audit: a count with geometric noise, ε = 1."""
    keep = 1 - math.exp(-1.0)
    return int(sum(dataset) + rng.geometric(keep) - rng.geometric(keep))


class AuditWorld(World):
    """The life of a log of trials."""

    faults = 5

    def __init__(self, stage: Stage, rng: random.Random, kind: str, name: str):
        super().__init__(stage, rng, "log", name)
        self.folder = stage.disk.folder / name
        self.folder.mkdir()
        self.log, self.seed = self.folder / "trials.jsonl", rng.randrange(3)
        self.numbers = iter(range(10**9))

    def close(self) -> None:
        """Remove the logs."""
        shutil.rmtree(self.folder)

    def act(self, log: Path) -> Act:
        """Return the command."""
        words = ["audit", f"{__name__}:noisy_count", "--epsilon", "1", "--max-runs", "240", "--seed", str(self.seed)]
        return command(*words, "--json", "--log", str(log))

    def new(self) -> Path:
        """Return a log that is not there yet."""
        return self.folder / f"{next(self.numbers)}.jsonl"

    def play(self) -> Iterator[Case]:
        """Stop it and let it go on; then let it come to its end."""
        self.stage.warm_commands()
        events = self.stage.events("audit", lambda: self.act(self.new()))
        key = f"undisturbed audit {self.seed}"
        if key not in self.stage.known:
            self.stage.known[key] = self.result(self.new())
        for number in range(self.faults):
            kept = self.lines()
            outcome = self.suffer("audit", self.act(self.log), drawn_kind(self.rng, self.stage.faults("log")), events)
            if self.lines()[: len(kept)] != kept:
                self.case.breaks("lost", "trials that were in the log are not")
            if outcome.status == 0 or number + 1 == self.faults:
                if (found := self.result(self.log)) != self.stage.known[key]:
                    self.case.breaks("unusable", f"it was stopped and ends with {found}, not {self.stage.known[key]}")
                self.log.unlink(missing_ok=True)
            yield self.case

    def lines(self) -> list[bytes]:
        """Return the lines of the log that are whole."""
        data = self.log.read_bytes() if self.log.exists() else b""
        return data.split(b"\n")[:-1]

    def result(self, log: Path) -> Any:
        """Return what an audit without faults finds."""
        outcome = self.stage.run(self.act(log))
        self.require_words(outcome)
        try:
            found = json.loads(outcome.all("printed")[0])
            return {name: found[name] for name in ("epsilon_lower", "runs", "violated")}
        except (IndexError, ValueError):
            return outcome.told
