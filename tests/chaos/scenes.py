"""What children do while something goes wrong, and what must hold afterwards.

A *world* is a ledger (or the log of an audit) that lives through several faults, one after the other. Everything in it
is drawn from the suite's seed and the world's number, so that one world alone can be run again.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import math
import os
import random
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

from chaos.children import Act, Outcome, Tell, perform
from chaos.faults import IN_CHILD, ON_SERVER, Disk, Fault, drawn
from chaos.stores import PostgresqlStore, Server, SqliteStore, Store
from escudo.errors import BudgetExceededError, EscudoError, LedgerError
from escudo.privacy import Event, Ledger, LedgerRow, PureEvent

__all__ = ["SCENES", "Case", "Stage", "World", "world"]

SCENES = ("open", "spend", "race", "release", "resume", "audit")

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
    """

    def __init__(self, folder: Path, server: Server | None):
        self.disk, self.server = Disk(folder), server
        state = folder / "state"
        for name in ("HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
            os.environ[name] = str(state)
        state.mkdir()
        self._events: dict[str, dict[str, int]] = {}
        self.results: dict[str, Any] = {}
        self._warm = False

    def events(self, scene: str, act: Callable[[], Act], *, warm: bool = True) -> dict[str, int]:
        """Return the events of a scene, from a rehearsal without faults; what it imports is imported here, for all."""
        if scene not in self._events:
            if scene.startswith(("release", "resume", "audit")):
                self.warm_commands()
            for _ in range(2 if warm else 1):  # the second time without imports, which are events too
                (outcome,) = perform([(act(), None)], self.disk, _no_server)
                if outcome.status != 0 or not outcome.events:
                    raise RuntimeError(f"the rehearsal of {scene} failed ({outcome.status}): {outcome.told}")
                for name in outcome.modules if warm else ():
                    try:
                        importlib.import_module(name)
                    except Exception:  # parts of packages that are made on the way
                        continue
            self._events[scene] = outcome.events
        return self._events[scene]

    def warm_commands(self) -> None:
        """Build what every command builds anew, once: its arguments, and the pages' templates."""
        if not self._warm:
            import typer

            import escudo.cli
            from escudo.report import _page

            escudo.cli.app = typer.main.get_command(escudo.cli.app)  # type: ignore[assignment]
            pages = _page._environment()
            for name in pages.list_templates():
                pages.get_template(name)
            self._warm = True

    def faults(self, store: Store | None) -> tuple[str, ...]:
        """Return the faults that can be had here."""
        faults = IN_CHILD if self.disk.own else tuple(kind for kind in IN_CHILD if kind != "full")
        return faults + ON_SERVER if store is not None and store.kind == "postgresql" else faults


def _no_server(what: str) -> None:
    raise AssertionError(f"a rehearsal asked for {what}")


# -- what children do


def _in_words(body: Callable[[Tell], int]) -> Act:
    """Tell errors of escudo as such, and any other as a bug."""

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


def opening(url: str, dataset: str, cap: float) -> Act:
    """Open an account, and spend from it."""

    def body(tell: Tell) -> int:
        with Ledger(url) as book:
            book.open(dataset, epsilon=cap)
            tell(opened=dataset)
            book.spend(dataset, PureEvent(epsilon=cap / 4), purpose="first")
            tell(granted="first")
        return 0

    return _in_words(body)


def spending(url: str, dataset: str, purposes: Mapping[str, float]) -> Act:
    """Spend several times: the second is marked failed, the third is a mechanism's, which gives a number."""

    def body(tell: Tell) -> int:
        from escudo import mechanisms

        with Ledger(url) as book:
            for number, (purpose, epsilon) in enumerate(purposes.items()):
                try:
                    if number % 4 == 2:
                        account = book.account(dataset)
                        value = mechanisms.laplace(7, sensitivity=1.0, epsilon=epsilon, account=account, purpose=purpose)
                        tell(output=purpose, value=int(value.value))
                        continue
                    receipt = book.spend(dataset, PureEvent(epsilon=epsilon), purpose=purpose)
                    tell(granted=purpose)
                    if number % 4 == 1:
                        book.fail(receipt, "Chaos")
                        tell(failed=purpose)
                except BudgetExceededError:
                    tell(refused=purpose)
        return 0

    return _in_words(body)


def looking(url: str, dataset: str, cap: float, purpose: str) -> Act:
    """See whether a ledger that was tampered with is refused: by verify, by a spend, and by opening it again."""

    def body(tell: Tell) -> int:
        tries: dict[str, Callable[[Ledger], object]] = {
            "verify": lambda book: book.verify().ok,
            "spend": lambda book: bool(book.spend(dataset, PureEvent(epsilon=1e-6), purpose=purpose)),
            "open": lambda book: bool(book.open(dataset, epsilon=cap)),
        }
        for name, use in tries.items():
            with Ledger(url) as book:
                try:
                    tell(tried=name, good=use(book))
                except EscudoError as error:
                    tell(tried=name, good=False, said=f"{type(error).__name__}: {error}"[:300])
        return 0

    return _in_words(body)


def command(*words: str, before: Callable[[], None] | None = None) -> Act:
    """Run a command of escudo, as its entry point does."""

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

    return _in_words(body)


# -- worlds


class World:
    """A life of a ledger.

    Args:
        stage: Where it is played.
        rng: Decides everything.
        store: Where the ledger is.
        folder: A folder of its own, for everything else.
    """

    faults = 0
    """How many faults it lives through."""

    def __init__(self, stage: Stage, rng: random.Random, store: Store, folder: Path):
        self.stage, self.rng, self.store, self.folder = stage, rng, store, folder
        self.case = Case("", store.kind, "")

    def play(self) -> Iterator[Case]:
        """Let one fault after the other happen, and check after each."""
        raise NotImplementedError

    # -- one fault

    def suffer(self, scene: str, act: Act, kind: str, events: Mapping[str, int]) -> Outcome:
        """Run one act with a fault of this kind at a random event."""
        fault = drawn(self.rng, kind, events)
        self.case = Case(scene, self.store.kind, kind, f"{fault.event} #{fault.turn}, {fault.amount}")
        (outcome,) = perform([(act, fault)], self.stage.disk, self.store.serve)
        self.case.struck = _happened(fault, outcome)
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


def _happened(fault: Fault, outcome: Outcome) -> bool:
    """Return whether a fault made a difference, where that can be seen; limits may come too late to be met."""
    if not outcome.struck:
        return False
    if fault.kind in ("kill", "torn"):
        return outcome.killed
    if fault.kind in ("limit", "full"):
        return outcome.status != 0
    return True


class LedgerWorld(World):
    """Accounts are opened and spent from, by one process or several, while anything may happen."""

    CAP = 1.0
    faults = 14

    def __init__(self, stage: Stage, rng: random.Random, store: Store, folder: Path):
        super().__init__(stage, rng, store, folder)
        self.chain: list[str] = []
        self.told: dict[str, str] = {}  # purposes that must be there, and why
        self.names = iter(f"visits-{number}" for number in range(10**9))
        self.marks = iter(f"p{number}" for number in range(10**9))
        self.dataset = next(self.names)

    def play(self) -> Iterator[Case]:
        """Open under a fault; then spends, races and tampering in any order."""
        kinds = self.stage.faults(self.store)
        yield self.opened(self.rng.choice([kind for kind in kinds if kind != "server"]))
        for _ in range(self.faults - 1):
            draw = self.rng.random()
            if draw < 0.2:
                yield self.tampered(self.rng.choice(self.store.roll_backs + self.store.edits))
            elif draw < 0.35:
                yield self.raced(self.rng.choice([kind for kind in kinds if kind != "server"]))
            else:
                kind = self.rng.choices(kinds, [0.25 if kind == "server" else 1.0 for kind in kinds])[0]
                yield self.spent(kind)

    def _rehearsed(self) -> dict[str, int]:
        return self.stage.events(f"spend/{self.store.kind}", self._act)

    def _act(self, count: int = 4) -> Act:
        amounts = [self.rng.choice([0.001, 0.01, 0.05, 0.11]) for _ in range(count)]
        return spending(self.store.url, self.dataset, dict(zip(self.marks, amounts, strict=False)))

    def opened(self, kind: str) -> Case:
        """A new ledger, and its first account."""

        def rehearsal() -> Act:
            return opening(self.store.url, next(self.names), self.CAP)

        first = f"open/{self.store.kind}" not in self.stage._events
        events = self.stage.events(f"open/{self.store.kind}", rehearsal)
        if first:  # the ledger is there already, from the rehearsal
            self.store.close()
            self.store = _fresh(self.stage, self.store.kind, self.rng)
        outcome = self.suffer("open", opening(self.store.url, self.dataset, self.CAP), kind, events)
        self.told.update((purpose, "granted") for purpose in outcome.all("granted"))
        try:
            with Ledger(self.store.url) as book:
                if outcome.all("opened"):
                    book.account(self.dataset)
                book.open(self.dataset, epsilon=self.CAP)
        except EscudoError as error:
            self.case.breaks("lost" if outcome.all("opened") else "unusable", str(error))
            return self.case
        self.check()
        self.told["first"] = "granted"
        with Ledger(self.store.url) as book:
            if not any(row.kind == "spend" and row.payload["purpose"] == "first" for row in book.history()):
                book.spend(self.dataset, PureEvent(epsilon=0.01), purpose="first")
        return self.case

    def spent(self, kind: str) -> Case:
        """Spends of one process."""
        events = self._rehearsed()
        self.heard(self.suffer("spend", self._act(), kind, events))
        self.check()
        return self.case

    def raced(self, kind: str) -> Case:
        """Processes that race, and something goes wrong in some of them."""
        events = self._rehearsed()
        count = self.rng.randint(2, 8)
        hit = 1 if kind in ON_SERVER else self.rng.randint(1, count)
        acts: list[tuple[Act, Fault | None]] = []
        for number in range(count):
            acts.append((self._act(), drawn(self.rng, kind, events) if number < hit else None))
        self.case = Case("race", self.store.kind, kind, f"{hit} of {count} processes")
        outcomes = perform(acts, self.stage.disk, self.store.serve, traced=False)
        happened = [_happened(fault, one) for (_, fault), one in zip(acts, outcomes, strict=True) if fault is not None]
        self.case.struck = any(happened)
        for outcome in outcomes:
            self.require_words(outcome)
            self.heard(outcome)
        self.check()
        return self.case

    def heard(self, outcome: Outcome) -> None:
        """Remember what a child was told; it must be true for ever."""
        self.told.update((purpose, "granted") for purpose in outcome.all("granted"))
        self.told.update((purpose, "given out") for purpose in outcome.all("output"))

    def tampered(self, what: str) -> Case:
        """Somebody copies, restores, removes or edits; then the true ledger is put back."""
        self.case = case = Case("spend", self.store.kind, what)
        earlier = self.store.keep()
        # In the end the child is killed, so that SQLite leaves its files as they are in use.
        last = Fault(kind="kill", event="<privacy/_ledger.Ledger.spend", turn=3, amount=0)
        stop = last if self.rng.random() < 0.8 else None
        (outcome,) = perform([(self._act(), stop)], self.stage.disk, self.store.serve)
        self.require_words(outcome)
        self.heard(outcome)
        case.where = f"{len(outcome.all('granted'))} spends, then {'killed' if outcome.killed else 'closed'}"
        truth, known = self.store.keep(), self.store.rows()
        assert known is not None, "a ledger at rest can be read"
        self.store.tamper(what, earlier, self.rng)
        now = self.store.rows()
        if what == "undoing trigger":
            self._require_no_undoing()
        else:
            mark = next(self.marks)
            (look,) = perform([(looking(self.store.url, self.dataset, self.CAP, mark), None)], self.stage.disk, _no_server)
            self.require_words(look)
            good = {entry["tried"]: entry["good"] for entry in look.told if "tried" in entry}
            if not good:
                case.breaks("hang" if look.hung else "words", str(look.told))
            elif what == "shm removed" or now == known:
                if not (good["verify"] and good["spend"]):
                    case.breaks("unusable", f"nothing was lost, yet: {look.told}")
            elif now is not None and what == "row edited":
                if good["verify"]:
                    case.breaks("verify", "an edited row is not noticed")
            else:
                for use in ("verify", "spend", *(["open"] if what == "emptied" else [])):
                    if good[use]:
                        invariant = "verify" if use == "verify" else "lost"
                        case.breaks(invariant, f"{what}: {use} does not notice it; {look.told}")
        self.store.restore(truth)
        if what == "older copy" and now == known:
            case.struck = False
        self.check()
        return case

    def _require_no_undoing(self) -> None:
        """Require that no spend is granted that a trigger takes back at once."""
        case, noticed = self.case, True
        for _ in range(2):
            (outcome,) = perform([(self._act(), None)], self.stage.disk, _no_server)
            self.require_words(outcome)
            granted = {*outcome.all("granted"), *outcome.all("output")}
            there = json.dumps(self.store.rows(), default=str)
            undone = sorted(purpose for purpose in granted if f'"{purpose}\\"' not in there)
            if undone:
                case.breaks("lost", f"granted and taken back by a trigger: {undone}")
            noticed = noticed and not granted
        with Ledger(self.store.url) as book:
            try:
                good = book.verify().ok
            except LedgerError:
                good = False
        if good and not noticed:
            case.breaks("verify", "a trigger that undoes spends is not noticed")

    def check(self) -> list[LedgerRow]:
        """Check what must hold whenever nobody tampered with the ledger; go on to another account in time."""
        case = self.case
        try:
            with Ledger(self.store.url) as book:
                found = book.verify()
                if not found.ok:
                    case.breaks("verify", f"nobody tampered with it: {found.problem}")
                    return []
                rows = book.history()
                self._check_rows(rows)
                self._check_caps(book, rows)
                return rows
        except EscudoError as error:
            case.breaks("unusable", f"{type(error).__name__}: {error}")
        return []

    def _check_rows(self, rows: list[LedgerRow]) -> None:
        case, hashes = self.case, [row.hash for row in rows]
        if hashes[: len(self.chain)] != self.chain:
            case.breaks("lost", f"rows that were there are not: {len(hashes)} now, {len(self.chain)} before")
        self.chain = hashes
        purposes = Counter(row.payload["purpose"] for row in rows if row.kind == "spend")
        for purpose, what in self.told.items():
            if purposes[purpose] < 1:
                case.breaks("lost" if what == "granted" else "uncharged", f"{purpose} was {what} and is not recorded")
        repeated = [purpose for purpose, count in purposes.items() if count > 1 and purpose.startswith("p")]
        if repeated:
            case.breaks("verify", f"recorded twice: {repeated}")

    def _check_caps(self, book: Ledger, rows: list[LedgerRow]) -> None:
        case = self.case
        spent: Counter[str] = Counter()
        for row in rows:
            if row.kind == "spend" and row.event is not None:
                spent[row.dataset] += pure_cost(row.event)
        for dataset, total in spent.items():
            if total > self.CAP * (1 + 1e-8):
                case.breaks("cap", f"{dataset}: {total} of {self.CAP}")
        left = self.CAP - spent[self.dataset]
        try:
            book.spend(self.dataset, PureEvent(epsilon=left + 0.001), purpose=next(self.marks))
            case.breaks("cap", f"{left} were left, and more was granted")
        except BudgetExceededError:
            pass
        if left > 0.3:
            small = next(self.marks)
            book.spend(self.dataset, PureEvent(epsilon=1e-5), purpose=small)
            self.told[small] = "granted"
        elif self.rng.random() < 0.5:  # else the next ones meet the cap
            self.dataset = next(self.names)
            book.open(self.dataset, epsilon=self.CAP)
        self.chain = [row.hash for row in book.history()]


def pure_cost(event: Event) -> float:
    """Return what a pure event costs, from what it records."""
    return float(event.epsilon if isinstance(event, PureEvent) else event.l1_sensitivity / event.scale)  # type: ignore[attr-defined]


def gaussian_mu(event: Event) -> float:
    """Return μ of Gaussian privacy of an event made of Gaussian ones, by the central formula μ² = Σ (Δ/σ)²."""
    kind = type(event).__name__
    if kind == "GaussianEvent":
        return float(event.l2_sensitivity / event.scale)  # type: ignore[attr-defined]
    if kind == "RepeatedEvent":
        return math.sqrt(event.count) * gaussian_mu(event.event)  # type: ignore[attr-defined]
    assert kind == "ComposedEvent", kind
    return math.hypot(*(gaussian_mu(part) for part in event.events))  # type: ignore[attr-defined]


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the δ of μ-Gaussian privacy at ε (Balle and Wang)."""
    cdf = NormalDist().cdf
    return cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * cdf(-mu / 2 - epsilon / mu)


class ReleaseWorld(World):
    """Releases are written, also over earlier ones, while anything may happen."""

    CAP, DELTA, EPSILON = 1.0, 1e-6, 0.3
    faults = 6

    def __init__(self, stage: Stage, rng: random.Random, store: Store, folder: Path):
        super().__init__(stage, rng, store, folder)
        folder.mkdir()
        self.names = iter(f"visits-{number}" for number in range(10**9))
        self.target = folder / "out"
        write_clinic(folder)
        self._open()
        self.chain: list[str] = []

    def _open(self) -> None:
        self.dataset = next(self.names)
        with Ledger(self.store.url) as book:
            book.open(self.dataset, epsilon=self.CAP, delta=self.DELTA)

    def words(self, *more: str) -> list[str]:
        """Return the command."""
        words = ["release", f"{self.folder}/clinic.csv", "--schema", f"{self.folder}/clinic.toml", "--rows", "40"]
        words += ["--graph", f"{self.folder}/clinic.dot", "--epsilon", f"{self.EPSILON}", "--delta", f"{self.DELTA}"]
        return [*words, "--ledger", self.store.url, "--dataset", self.dataset, "--out", str(self.target), *more]

    def play(self) -> Iterator[Case]:
        """One release after the other, each with a fault; a clean one now and then."""
        kinds = self.stage.faults(self.store)
        for _ in range(self.faults):
            kind = self.rng.choices(kinds, [0.2 if kind == "server" else 1.0 for kind in kinds])[0]
            yield self.released(kind)

    def released(self, kind: str) -> Case:
        """One release with a fault."""
        there = self.target.exists()
        if there and self.rng.random() < 0.2:
            shutil.rmtree(self.target)
            there = False
        more = (["--force"] if there else []) + (["--csv"] if self.rng.random() < 0.5 else [])
        events = self._rehearsed()
        before, drafts = digest_of(self.target), set(self._drafts())
        outcome = self.suffer("release", command(*self.words(*more)), kind, events)
        self.case.where += " --force" if there else ""
        rows = self._rows()
        self.check_target(self.case, before, rows, outcome)
        if kind not in ("kill", "torn") or not outcome.killed:
            self.check_clean(self.case, drafts, before, rows, outcome)
        if rows is not None:
            self.chain = [row.hash for row in rows]
        if self.rng.random() < 0.25:
            self.clean_release()
        return self.case

    def _rehearsed(self) -> dict[str, int]:
        def act() -> Act:
            shutil.rmtree(self.target, ignore_errors=True)
            return command(*self.words("--csv"))

        first = f"release/{self.store.kind}" not in self.stage._events
        if first:
            self._calibrate()
        found = self.stage.events(f"release/{self.store.kind}", act)
        if first:
            shutil.rmtree(self.target)
            rows = self._rows()
            assert rows is not None
            self.chain = [row.hash for row in rows]
        return found

    def _calibrate(self) -> None:
        """Work out here, for all children, how much noise the releases need: it is remembered."""
        from escudo.causal import CausalGraph
        from escudo.synthesis import prepare
        from escudo.table import Schema

        schema, graph = Schema.read(self.folder / "clinic.toml"), CausalGraph.read(self.folder / "clinic.dot")
        prepare(schema, graph, epsilon=self.EPSILON, delta=self.DELTA, public_rows=60)

    def _drafts(self) -> list[str]:
        """Return what lies beside the target that nobody asked for."""
        asked = {"out", "clinic.csv", "clinic.toml", "clinic.dot", "checkpoint"}
        return sorted(path.name for path in self.folder.iterdir() if path.name not in asked)

    def _rows(self) -> list[LedgerRow] | None:
        """Return the ledger's rows, once it is found to be right."""
        case = self.case
        try:
            with Ledger(self.store.url) as book:
                found = book.verify()
                if not found.ok:
                    case.breaks("verify", f"nobody tampered with it: {found.problem}")
                    return None
                rows = book.history()
        except EscudoError as error:
            case.breaks("unusable", f"{type(error).__name__}: {error}")
            return None
        if [row.hash for row in rows][: len(self.chain)] != self.chain:
            case.breaks("lost", "rows that were there are not")
        self.check_cap(rows)
        return rows

    def check_cap(self, rows: list[LedgerRow]) -> None:
        """Require that the Gaussian releases of every account together are within its cap."""
        for dataset in {row.dataset for row in rows}:
            events = [row.event for row in rows if row.kind == "spend" and row.dataset == dataset]
            mu = math.hypot(*(gaussian_mu(event) for event in events if event is not None))
            if mu and gaussian_delta(mu, self.CAP) > self.DELTA * 1.001:
                self.case.breaks("cap", f"{dataset}: {len(events)} releases have mu {mu}")

    def new_spends(self, rows: list[LedgerRow] | None) -> list[LedgerRow]:
        """Return the spends since the last check."""
        return [row for row in (rows or [])[len(self.chain) :] if row.kind == "spend"]

    def check_target(self, case: Case, before: str | None, rows: list[LedgerRow] | None, outcome: Outcome) -> None:
        """Require that the target is as it was, or a whole release that is charged."""
        after = digest_of(self.target)
        if after == HALF:
            case.breaks("half", f"the target is no whole release: {sorted(os.listdir(self.target))}")
        elif after is None and before is not None:
            case.breaks("half", f"an earlier release was there, and nothing is: {self._drafts()}")
        elif after != before and rows is not None and not self.new_spends(rows):
            case.breaks("uncharged", "a release lies there, and the ledger holds no new spend")
        if outcome.status == 0 and after == before:
            case.breaks("half", "the command said that all went well, and nothing is there")

    def check_clean(
        self, case: Case, drafts: set[str], before: str | None, rows: list[LedgerRow] | None, outcome: Outcome
    ) -> None:
        """Require that a release that could clean up did, and marked its spend."""
        if left := sorted(set(self._drafts()) - drafts):
            case.breaks("drafts", f"left beside the target: {left}")
        spends = self.new_spends(rows)
        failed = [row for row in (rows or [])[len(self.chain) :] if row.kind == "failed"]
        writing = case.where.partition(" ")[0].lstrip("<>").startswith(("report/", "synthesis/_files"))
        if case.fault in ("term", "int") and outcome.struck and writing and spends and not failed:
            if digest_of(self.target) == before:
                case.breaks("drafts", "stopped while writing, and the spend is not marked failed")

    def clean_release(self) -> None:
        """Require that a release without faults comes out."""
        force = ["--force"] if self.target.exists() else []
        before = digest_of(self.target)
        (outcome,) = perform([(command(*self.words(*force)), None)], self.stage.disk, _no_server, traced=False)
        if outcome.status == BudgetExceededError.exit_code:
            self._open()
        elif outcome.status != 0 or digest_of(self.target) in (None, HALF, before):
            self.case.breaks("unusable", f"a release without faults ended with {outcome.status}: {outcome.told}")
        rows = self._rows()
        self.chain = [] if rows is None else [row.hash for row in rows]


HALF = "half"


def digest_of(target: Path) -> str | None:
    """Return a fingerprint of a whole release; None where nothing is, HALF for anything else."""
    if not target.exists():
        return None
    try:
        record = (target / "release.json").read_bytes()
        listed = {entry["path"]: entry["sha256"] for entry in json.loads(record)["files"]}
    except (OSError, ValueError, KeyError):
        return HALF
    found = {
        path.relative_to(target).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in target.rglob("*")
        if path.is_file() and path.name != "release.json"
    }
    return hashlib.sha256(record).hexdigest() if found == listed else HALF


def write_clinic(folder: Path, rows: int = 60) -> None:
    """Write a small table with its schema and graph."""
    lines = [f"{'yes' if row % 3 else 'no'},{'yes' if row % 4 else 'no'}" for row in range(rows)]
    (folder / "clinic.csv").write_text("\n".join(["smoker,cough", *lines]) + "\n")
    column = '[columns.{}]\ntype = "categorical"\nlevels = ["no", "yes"]\nconfirmed = true\n'
    (folder / "clinic.toml").write_text(column.format("smoker") + column.format("cough"))
    (folder / "clinic.dot").write_text("digraph { smoker -> cough }\n")


class ResumeWorld(ReleaseWorld):
    """A training is stopped and goes on from its checkpoint, which may have been copied."""

    CAP, DELTA, EPSILON = 8.0, 1e-5, 1.0
    faults = 2

    def words(self, *more: str) -> list[str]:
        """Return the command."""
        network = ["--generator", "autoregressive", "--option", "steps=12", "--checkpoint", f"{self.folder}/checkpoint"]
        return super().words(*network, *more)

    def play(self) -> Iterator[Case]:
        """Stop a training; then go on, from a copy too."""
        kinds = [kind for kind in self.stage.faults(self.store) if kind != "server"]
        yield self.stopped(self.rng.choice(kinds))
        yield self.copied()

    def _rehearsed(self) -> dict[str, int]:
        def act() -> Act:
            return command(*self.words(), before=_often)

        first = f"resume/{self.store.kind}" not in self.stage._events
        found = self.stage.events(f"resume/{self.store.kind}", act, warm=False)
        if first:
            shutil.rmtree(self.target)
            rows = self._rows()
            self.chain = [] if rows is None else [row.hash for row in rows]
        return found

    def check_cap(self, rows: list[LedgerRow]) -> None:
        """Leave the cap to verify: steps on samples have no formula of one line."""

    def stopped(self, kind: str) -> Case:
        """A training with a fault."""
        events = self._rehearsed()
        wanted = ("dpsgd", "_checkpoint", "Ledger", "_release")
        near = {name: count for name, count in events.items() if any(part in name for part in wanted)}
        before, drafts = digest_of(self.target), set(self._drafts())
        outcome = self.suffer("resume", command(*self.words(), before=_often), kind, near)
        rows = self._rows()
        self.check_target(self.case, before, rows, outcome)
        if kind not in ("kill", "torn") or not outcome.killed:
            self.check_clean(self.case, drafts, before, rows, outcome)
        return self.case

    def copied(self) -> Case:
        """Stop a training between two steps, copy its checkpoint, and go on from it twice."""
        self.case = case = Case("resume", self.store.kind, "checkpoint copied")
        shutil.rmtree(self.target, ignore_errors=True)
        shutil.rmtree(self.folder / "checkpoint", ignore_errors=True)
        self._open()
        written = "<mechanisms/dpsgd/_checkpoint.write_state" if False else "<dpsgd/_checkpoint.write_state"
        stop = Fault(kind="kill", event=written, turn=self.rng.randint(1, 2), amount=0)
        (outcome,) = perform([(command(*self.words(), before=_often), stop)], self.stage.disk, self.store.serve)
        self.require_words(outcome)
        checkpoint, copy = self.folder / "checkpoint", self.folder / "copy"
        case.struck = checkpoint.exists()
        if not case.struck:
            return case
        shutil.copytree(checkpoint, copy)
        outputs: set[str] = set()
        elsewhere = self.rng.random() < 0.3
        for turn in range(2):
            if turn:
                shutil.rmtree(checkpoint, ignore_errors=True)
                shutil.copytree(copy, checkpoint)
                if elsewhere:  # another account, which paid nothing
                    case.where = "used with another account"
                    self._open()
            (outcome,) = perform([(command(*self.words(), before=_often), None)], self.stage.disk, _no_server, traced=False)
            self.require_words(outcome)
            made = digest_of(self.target)
            if made == HALF:
                case.breaks("half", "after going on from a checkpoint")
            elif made is not None:
                outputs.add(made)
            elif turn == 0:
                case.breaks("unusable", f"the training does not go on: {outcome.told}")
            shutil.rmtree(self.target, ignore_errors=True)
            rows = self._rows() or []
            paid = sum(row.kind == "spend" and row.dataset == self.dataset for row in rows)
            if elsewhere and turn and made is not None and not paid:
                case.breaks("uncharged", "a checkpoint went on without its account")
        everywhere = sum(row.kind == "spend" for row in (self._rows() or [])[len(self.chain) :])
        if not elsewhere and len(outputs) > paid:
            case.breaks("uncharged", f"{len(outputs)} different releases for {paid} spends ({everywhere} since the start)")
        shutil.rmtree(copy)
        return case


def _often() -> None:
    """Write checkpoints after every few steps."""
    from escudo.mechanisms.dpsgd import _mechanism, _sampling

    _mechanism._SECONDS_BETWEEN = 0.0
    _sampling._SEGMENT_ROWS = 1


def noisy_count(dataset: list[int], rng: Any) -> int:
    """A mechanism to audit: a count with geometric noise, ε = 1."""
    keep = 1 - math.exp(-1.0)
    return int(sum(dataset) + rng.geometric(keep) - rng.geometric(keep))


class AuditWorld(World):
    """An audit keeps a log of its trials, is stopped again and again, and comes to the same end."""

    faults = 5
    LENGTH = 240

    def __init__(self, stage: Stage, rng: random.Random, store: Store | None, folder: Path):
        self.stage, self.rng, self.folder = stage, rng, folder
        folder.mkdir()
        self.case = Case("", "log", "")
        self.log, self.seed = folder / "trials.jsonl", rng.randrange(3)

    def act(self, log: Path) -> Act:
        """Return the command."""
        mechanism = f"{__name__}:noisy_count"
        words = ["audit", mechanism, "--epsilon", "1", "--max-runs", str(self.LENGTH), "--seed", str(self.seed), "--json"]
        return command(*words, "--log", str(log))

    def play(self) -> Iterator[Case]:
        """Stop it and let it go on; then let it come to its end."""
        numbers = iter(range(10**9))
        events = self.stage.events("audit", lambda: self.act(self.folder / f"{next(numbers)}.jsonl"))
        wanted = self._undisturbed()
        for number in range(self.faults):
            kind = self.rng.choice(self.stage.faults(None))
            kept = self._lines()
            fault = drawn(self.rng, kind, events)
            self.case = Case("audit", "log", kind, f"{fault.event} #{fault.turn}, {fault.amount}")
            (outcome,) = perform([(self.act(self.log), fault)], self.stage.disk, _no_server)
            self.case.struck = _happened(fault, outcome)
            self.require_words(outcome)
            if self._lines()[: len(kept)] != kept:
                self.case.breaks("lost", "trials that were in the log are not")
            if outcome.status == 0 or number + 1 == self.faults:
                if (found := self._run(self.log)) != wanted:
                    self.case.breaks("unusable", f"the audit that was stopped ends with {found}, not {wanted}")
                self.log.unlink(missing_ok=True)
            yield self.case

    def _lines(self) -> list[bytes]:
        """Return the lines of the log that are whole."""
        data = self.log.read_bytes() if self.log.exists() else b""
        return data.split(b"\n")[:-1]

    def _undisturbed(self) -> Any:
        key = f"audit {self.seed}"
        if key not in self.stage.results:
            self.stage.results[key] = self._run(self.folder / "undisturbed.jsonl")
        return self.stage.results[key]

    def _run(self, log: Path) -> Any:
        (outcome,) = perform([(self.act(log), None)], self.stage.disk, _no_server, traced=False)
        self.require_words(outcome)
        try:
            found = json.loads(outcome.all("printed")[0])
            return {name: found[name] for name in ("epsilon_lower", "runs", "violated")}
        except (IndexError, ValueError):
            return outcome.told


_WORLDS: dict[str, tuple[type[World], float]] = {
    # with how many of a hundred faults each takes
    "spend": (LedgerWorld, 78.0),
    "release": (ReleaseWorld, 14.0),
    "audit": (AuditWorld, 7.5),
    "resume": (ResumeWorld, 0.5),
}


def _fresh(stage: Stage, kind: str, rng: random.Random) -> Store:
    name = f"w{rng.getrandbits(64):016x}"
    if kind == "sqlite":
        return SqliteStore(stage.disk.folder / name)
    assert stage.server is not None
    return PostgresqlStore(stage.server, name)


def world(stage: Stage, seed: int, number: int, *, only: Mapping[str, tuple[str, ...]]) -> Iterator[Case]:
    """Play one world.

    Args:
        stage: Where.
        seed: The suite's seed.
        number: Which world; with the seed it decides everything.
        only: Which themes (``scenes``) and ``stores`` there may be.
    """
    rng = random.Random(f"{seed}/{number}")
    themes = [theme for theme in _WORLDS if theme in only["scenes"]]
    chance = [_WORLDS[theme][1] / _WORLDS[theme][0].faults for theme in themes]
    theme = rng.choices(themes, chance)[0]
    kind = rng.choice([store for store in only["stores"] if store == "sqlite" or stage.server is not None])
    folder = stage.disk.folder / f"world-{number}"
    make = _WORLDS[theme][0]
    play = partial(make, stage, rng)
    if make is AuditWorld:
        yield from _removed(play(None, folder).play(), folder)  # type: ignore[arg-type]
        return
    place = play(_fresh(stage, kind, rng), folder)
    yield from _removed(place.play(), folder)
    place.store.close()
    state = Path(os.environ["XDG_STATE_HOME"])
    shutil.rmtree(state)
    state.mkdir()


def _removed(cases: Iterator[Case], folder: Path) -> Iterator[Case]:
    yield from cases
    shutil.rmtree(folder, ignore_errors=True)
