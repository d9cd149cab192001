"""The stage: what all worlds share, and what a world is.

A *world* is a ledger, or the log of an audit, that lives through several faults, one after the other. Everything in it
is drawn from the suite's seed and the world's number, so that one world alone can be run again.
"""

from __future__ import annotations

import importlib
import io
import os
import random
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.children import Act, Outcome, Tell, perform
from chaos.faults import IN_CHILD, ON_SERVER, Disk, Fault, drawn
from chaos.stores import PostgresqlStore, Server, SqliteStore, Store
from escudo.errors import EscudoError

__all__ = ["INVARIANTS", "Case", "Stage", "World", "command", "happened", "in_words"]

INVARIANTS = {
    "lost": "an acknowledged spend is in the ledger, or its loss is noticed",
    "uncharged": "nothing comes out that is not charged",
    "cap": "no cap is passed",
    "half": "a release is whole, or absent; with --force the earlier or the new one is there",
    "drafts": "who is stopped by a signal or an error that can be caught leaves no drafts, and marks the spend failed",
    "verify": "verify finds what was tampered with, and nothing where nothing was",
    "unusable": "the ledger, the target and the log can be used afterwards",
    "words": "what goes wrong is said in words: an error of escudo, never a bug",
    "hang": "everything comes to an end",
}


@dataclass(slots=True)
class Case:
    """One fault in one world, and what it broke.

    Attributes:
        scene: What was under way.
        store: Where the ledger is, or ``log``.
        fault: What went wrong.
        where: At which event, for people.
        struck: Whether it happened: a fault may be drawn for an event that does not come, or come too late to matter.
        broken: The invariants that do not hold, with details.
    """

    scene: str
    store: str
    fault: str
    where: str = ""
    struck: bool = True
    broken: list[tuple[str, str]] = field(default_factory=list)

    def breaks(self, invariant: str, detail: str) -> None:
        """Note that something does not hold."""
        assert invariant in INVARIANTS
        self.broken.append((invariant, detail))


class Stage:
    """What all worlds of a process share: its disk, its server, and which events there are.

    Args:
        folder: An empty folder for everything.
        server: A PostgreSQL server, or None.
        kinds: The only faults that there may be in a child or a server; all if empty.
        near: Faults strike only at events whose names hold this, where there are any.
    """

    def __init__(self, folder: Path, server: Server | None, kinds: Sequence[str] = (), near: str = ""):
        self.disk, self.server, self._kinds, self._near = Disk(folder), server, kinds, near
        self.state = folder / "state"
        for name in ("ESCUDO_STATE", "HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
            os.environ[name] = str(self.state)  # where ledgers are witnessed
        self.state.mkdir()
        self.known: dict[str, Any] = {}
        """What was found out once for all worlds."""

    def failed_again(self, most: int = 3) -> bool:
        """Count a failure of the suite itself; return whether it is time to give up."""
        self.known["failures"] = self.known.get("failures", 0) + 1
        return bool(self.known["failures"] >= most)

    def store(self, kind: str, name: str) -> Store:
        """Return a place for a new ledger."""
        if kind == "sqlite":
            return SqliteStore(self.disk.folder / name)
        assert self.server is not None, "there is a server"
        return PostgresqlStore(self.server, name)

    def faults(self, store: str) -> tuple[str, ...]:
        """Return the faults that can be had here."""
        faults = tuple(kind for kind in IN_CHILD if kind != "full" or self.disk.own)
        faults += ON_SERVER if store == "postgresql" else ()
        return tuple(kind for kind in faults if kind in self._kinds) or faults

    def offered(self, events: Mapping[str, int]) -> Mapping[str, int]:
        """Return the events at which a fault may strike."""
        return {event: times for event, times in events.items() if self._near in event} or events

    def run(self, act: Act, fault: Fault | None = None, *, traced: bool = False) -> Outcome:
        """Run one act where no server is harmed."""
        return perform([(act, fault)], self.disk, _no_server, traced=traced)[0]

    def events(self, scene: str, rehearsal: Callable[[], Act], *, warm: bool = True) -> dict[str, int]:
        """Return the events of a scene, from a rehearsal without faults; what it imports is imported here, for all."""
        if scene not in self.known:
            while True:
                outcome = self.run(rehearsal(), traced=True)
                if outcome.status != 0 or not outcome.events:
                    raise RuntimeError(f"the rehearsal of {scene} failed ({outcome.status}): {outcome.told}")
                before = len(sys.modules)
                for name in outcome.modules if warm else ():
                    try:
                        importlib.import_module(name)
                    except Exception:  # parts of packages that are made on the way
                        continue
                if len(sys.modules) < before + 150:
                    break  # else once more without the imports, which are events too
            self.known[scene] = outcome.events
        found: dict[str, int] = self.known[scene]
        return found

    def warm_commands(self) -> None:
        """Build what every command builds anew, once: its imports, its arguments, and the pages' templates."""
        if "commands" not in self.known:
            import opendp.measurements  # noqa: F401 - slow to import, like the next ones
            import polars  # noqa: F401
            import scipy.special  # noqa: F401
            import typer

            import escudo.cli
            import escudo.synthesis._marginals
            import escudo.utility._private
            from escudo.report import _page

            escudo.cli.app = typer.main.get_command(escudo.cli.app)  # type: ignore[assignment]
            pages = _page._environment()
            for name in pages.list_templates():
                pages.get_template(name)
            self.known["commands"] = True


def _no_server(what: str) -> None:
    raise AssertionError(f"nobody may harm a server here: {what}")


def in_words(body: Callable[[Tell], int]) -> Act:
    """Return an act that tells errors of escudo as such, and any other as a bug."""

    def act(tell: Tell) -> int:
        try:
            return body(tell)
        except EscudoError as error:
            tell(error=type(error).__name__, said=str(error)[:500])
            return 2
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            tell(bug="".join(traceback.format_exception(error))[-2500:])
            return 1

    return act


def command(*words: str, before: Callable[[], None] | None = None) -> Act:
    """Return an act that runs a command of escudo as its entry point does."""

    def body(tell: Tell) -> int:
        from escudo.cli import main

        if before is not None:
            before()
        sys.argv = ["escudo", *words]
        sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        tell(printed=sys.stdout.getvalue()[:20000], said=sys.stderr.getvalue()[-1500:])
        if code == 1:
            tell(bug=sys.stderr.getvalue()[-1500:])
        return code

    return in_words(body)


class World(ABC):
    """A life with faults.

    Args:
        stage: Where it is played.
        rng: Decides everything.
        kind: Where its ledger is: ``sqlite`` or ``postgresql``.
        name: A name of its own.

    Attributes:
        faults: How many faults it lives through.
        case: The fault at hand.
    """

    faults = 0

    def __init__(self, stage: Stage, rng: random.Random, kind: str, name: str):
        self.stage, self.rng, self.kind, self.name = stage, rng, kind, name
        self.case = Case("", kind, "")

    @abstractmethod
    def play(self) -> Iterator[Case]:
        """Let one fault after the other happen, and check after each."""

    def close(self) -> None:  # noqa: B027 - most leave nothing
        """Remove what is left of it."""

    def serve(self, what: str) -> None:
        """Harm the server, as a child asked."""
        _no_server(what)

    def suffer(self, scene: str, act: Act, kind: str, events: Mapping[str, int]) -> Outcome:
        """Run one act with a fault of this kind at a random event."""
        fault = drawn(self.rng, kind, self.stage.offered(events))
        self.case = Case(scene, self.kind, kind, f"{fault.event} #{fault.turn}, {fault.amount}")
        (outcome,) = perform([(act, fault)], self.stage.disk, self.serve)
        self.case.struck = happened(fault, outcome)
        self.require_words(outcome)
        return outcome

    def require_words(self, outcome: Outcome) -> None:
        """Require that a child met nothing but errors in words, and came to an end."""
        for text in outcome.all("lost"):
            raise RuntimeError(f"the suite itself failed in a child: {text}")
        if outcome.hung:
            self.case.breaks("hang", f"after {outcome.told[-3:]}")
        for text in outcome.all("bug"):
            self.case.breaks("words", text)


def happened(fault: Fault, outcome: Outcome) -> bool:
    """Return whether a fault made a difference, where that can be seen; limits may come too late to be met."""
    if not outcome.struck:
        return False
    if fault.kind in ("kill", "torn"):
        return outcome.killed
    if fault.kind in ("limit", "full"):
        return outcome.status != 0
    return True
