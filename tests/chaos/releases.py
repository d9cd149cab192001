"""Releases are written, also over earlier ones, and trainings go on from checkpoints, while anything may happen."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist

from chaos.children import Act, Outcome
from chaos.faults import Fault, drawn_kind
from chaos.stage import Case, Stage, World, command
from escudo.errors import BudgetExceededError, EscudoError
from escudo.privacy import Event, Ledger, LedgerRow

__all__ = ["ReleaseWorld", "ResumeWorld"]

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


class ReleaseWorld(World):
    """The life of a release folder."""

    faults = 6
    scene = "release"
    cap, delta, epsilon = 1.0, 1e-6, 0.3

    def __init__(self, stage: Stage, rng: random.Random, kind: str, name: str):
        super().__init__(stage, rng, kind, name)
        self.store = stage.store(kind, name)
        self.folder = stage.disk.folder / f"{name}-files"
        self.folder.mkdir()
        self.target = self.folder / "out"
        lines = [f"{'yes' if row % 3 else 'no'},{'yes' if row % 4 else 'no'}" for row in range(60)]
        (self.folder / "clinic.csv").write_text("\n".join(["smoker,cough", *lines]) + "\n")
        column = '[columns.{}]\ntype = "categorical"\nlevels = ["no", "yes"]\nconfirmed = true\n'
        (self.folder / "clinic.toml").write_text(column.format("smoker") + column.format("cough"))
        (self.folder / "clinic.dot").write_text("digraph { smoker -> cough }\n")
        self.names = iter(f"visits-{number}" for number in range(10**9))
        self.chain: list[str] = []
        self.open()

    def open(self) -> None:
        """Go on with a new account."""
        self.dataset = next(self.names)
        with Ledger(self.store.url) as book:
            book.open(self.dataset, epsilon=self.cap, delta=self.delta)

    def close(self) -> None:
        """Remove everything."""
        self.store.close()
        shutil.rmtree(self.folder)

    def serve(self, what: str) -> None:
        """See :class:`World`."""
        self.store.serve(what)

    def words(self, *more: str) -> list[str]:
        """Return the command."""
        words = ["release", f"{self.folder}/clinic.csv", "--schema", f"{self.folder}/clinic.toml", "--rows", "40"]
        words += ["--graph", f"{self.folder}/clinic.dot", "--epsilon", f"{self.epsilon}", "--delta", f"{self.delta}"]
        return [*words, "--ledger", self.store.url, "--dataset", self.dataset, "--out", str(self.target), *more]

    def act(self, *more: str) -> Act:
        """Return what a child does."""
        return command(*self.words(*more))

    def events(self) -> dict[str, int]:
        """Return the events of a release, rehearsed in a world apart."""
        name = f"{self.scene}/{self.kind}"
        if name not in self.stage.known:
            apart = type(self)(self.stage, random.Random(0), self.kind, f"rehearsal_{self.scene}")
            self.stage.warm_commands()
            apart.rehearse(name)
            apart.close()
        found: dict[str, int] = self.stage.known[name]
        return found

    def rehearse(self, name: str) -> None:
        """Find out the events; and work out here, for all children, how much noise releases need: it is remembered."""
        from escudo.causal import CausalGraph
        from escudo.synthesis import prepare
        from escudo.table import Schema

        schema, graph = Schema.read(self.folder / "clinic.toml"), CausalGraph.read(self.folder / "clinic.dot")
        prepare(schema, graph, epsilon=self.epsilon, delta=self.delta, public_rows=60)

        def new() -> Act:
            shutil.rmtree(self.target, ignore_errors=True)
            return self.act("--csv")

        found = self.stage.events(f"{name}, new", new)
        again = self.stage.events(f"{name}, again", lambda: self.act("--csv", "--force"))
        self.stage.known[name] = {event: max(found.get(event, 0), again.get(event, 0)) for event in {*found, *again}}

    # -- what happens

    def play(self) -> Iterator[Case]:
        """One release after the other, each with a fault; a clean one now and then."""
        for _ in range(self.faults):
            yield self.released(drawn_kind(self.rng, self.stage.faults(self.kind)))

    def released(self, kind: str) -> Case:
        """One release with a fault."""
        there = self.target.exists()
        if there and self.rng.random() < 0.2:
            shutil.rmtree(self.target)
            there = False
        more = (["--force"] if there else []) + (["--csv"] if self.rng.random() < 0.5 else [])
        before, drafts = digest_of(self.target), set(self.drafts())
        outcome = self.suffer(self.scene, self.act(*more), kind, self.events())
        self.case.where += " --force" if there else ""
        self.check(before, drafts, outcome)
        if self.rng.random() < 0.25:
            self.undisturbed()
        return self.case

    def undisturbed(self) -> None:
        """Require that a release without faults comes out."""
        force = ["--force"] if self.target.exists() else []
        before = digest_of(self.target)
        outcome = self.stage.run(self.act(*force))
        if outcome.status == BudgetExceededError.exit_code:
            self.open()
        elif outcome.status != 0 or digest_of(self.target) in (None, HALF, before):
            self.case.breaks("unusable", f"a release without faults ended with {outcome.status}: {outcome.told}")
        self.rows()

    # -- what must hold

    def drafts(self) -> list[str]:
        """Return what lies beside the target that nobody asked for."""
        asked = {"out", "clinic.csv", "clinic.toml", "clinic.dot", "checkpoint"}
        return sorted(path.name for path in self.folder.iterdir() if path.name not in asked)

    def rows(self) -> tuple[list[LedgerRow], list[LedgerRow]] | None:
        """Return the ledger's rows and those of them that are new, once it is found to be right."""
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
        hashes, known = [row.hash for row in rows], len(self.chain)
        if hashes[:known] != self.chain:
            case.breaks("lost", "rows that were there are not")
        self.chain = hashes
        self.check_cap(rows)
        return rows, rows[known:]

    def check_cap(self, rows: list[LedgerRow]) -> None:
        """Require that the Gaussian releases of every account together are within its cap."""
        for dataset in {row.dataset for row in rows}:
            events = [row.event for row in rows if row.kind == "spend" and row.dataset == dataset]
            mu = math.hypot(*(gaussian_mu(event) for event in events if event is not None))
            if mu and gaussian_delta(mu, self.cap) > self.delta * 1.001:
                self.case.breaks("cap", f"{dataset}: {len(events)} releases have mu {mu}")

    def check(self, before: str | None, drafts: set[str], outcome: Outcome) -> None:
        """Require that the target is as it was, or a whole release that is charged; and no drafts if avoidable."""
        case, after, rows = self.case, digest_of(self.target), self.rows()
        new = [] if rows is None else rows[1]
        spends = [row for row in new if row.kind == "spend"]
        if after == HALF:
            case.breaks("half", f"the target is no whole release: {sorted(os.listdir(self.target))}")
        elif after is None and before is not None:
            case.breaks("half", f"an earlier release was there, and nothing is: {self.drafts()}")
        elif after != before and rows is not None and not spends:
            case.breaks("uncharged", "a release lies there, and the ledger holds no new spend")
        if outcome.status == 0 and after == before:
            case.breaks("half", "the command said that all went well, and nothing is there")
        said = " ".join(outcome.all("said"))
        if after not in (before, HALF, None) and (
            "nothing was written" in said
            or (case.fault in ("term", "int") and any(row.kind == "failed" for row in new))
        ):
            case.breaks("half", f"a new release lies there, and it is called failed: {said[-300:]}")
        if case.fault in ("kill", "torn") and outcome.killed:
            return
        if left := sorted(set(self.drafts()) - drafts):
            case.breaks("drafts", f"left beside the target: {left}")
        writing = case.where.lstrip("<>").startswith(("report/", "synthesis/_files"))
        marked = any(row.kind == "failed" for row in new)
        if case.fault in ("term", "int") and outcome.struck and writing and spends and after == before and not marked:
            case.breaks("drafts", "stopped while writing, and the spend is not marked failed")


def gaussian_mu(event: Event) -> float:
    """Return μ of Gaussian privacy of an event made of Gaussian ones: μ² = Σ (Δ/σ)²."""
    kind = type(event).__name__
    if kind == "GaussianEvent":
        return float(event.l2_sensitivity / event.scale)  # type: ignore[attr-defined]
    if kind == "RepeatedEvent":
        return math.sqrt(event.count) * gaussian_mu(event.event)  # type: ignore[attr-defined]
    assert kind == "ComposedEvent", kind
    return math.hypot(*(gaussian_mu(part) for part in event.events))  # type: ignore[attr-defined]


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the δ of μ-Gaussian privacy at ε, by its closed form."""
    cdf = NormalDist().cdf
    return cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * cdf(-mu / 2 - epsilon / mu)


class ResumeWorld(ReleaseWorld):
    """A training is stopped and goes on from its checkpoint, which may have been copied."""

    faults = 2
    scene = "resume"
    cap, delta, epsilon = 8.0, 1e-5, 1.0

    def act(self, *more: str) -> Act:
        """Return what a child does."""
        network = ["--generator", "autoregressive", "--option", "steps=12", "--checkpoint", f"{self.folder}/checkpoint"]
        return command(*self.words(*network, *more), before=_often)

    def rehearse(self, name: str) -> None:
        """Find out the events; JAX is never loaded here, because its threads do not survive a fork."""
        new = self.stage.events(f"{name}, new", self.act, warm=False)

        def going_on() -> Act:
            shutil.rmtree(self.target, ignore_errors=True)
            self.stage.run(self.act(), Fault(kind="kill", event=_KEPT, turn=2, amount=0))
            return self.act()

        again = self.stage.events(f"{name}, going on", going_on, warm=False)
        near = ("dpsgd", "_checkpoint", "Ledger", "_release", "posix.")
        self.stage.known[name] = {
            event: max(new.get(event, 0), again.get(event, 0))
            for event in {*new, *again}
            if any(part in event for part in near)
        }

    def check_cap(self, rows: list[LedgerRow]) -> None:
        """Leave the cap to verify: steps on samples have no formula of one line."""

    def play(self) -> Iterator[Case]:
        """Stop a training; then another, whose checkpoint is copied."""
        yield self.released(drawn_kind(self.rng, self.stage.faults(self.kind)))
        yield self.copied()

    def released(self, kind: str) -> Case:
        """A training with a fault, or one that goes on with a fault; it goes on, for nothing or if that is paid for."""
        going_on = self.rng.random() < 0.5
        if going_on:
            self.stage.run(self.act(), Fault(kind="kill", event=_KEPT, turn=self.rng.randint(1, 3), amount=0))
        outcome = self.suffer(self.scene, self.act(), kind, self.events())
        self.case.where += ", going on" if going_on else ""
        self.check(None, set(), outcome)
        for more in ([], ["--again"]):
            if self.target.exists():
                break
            outcome = self.stage.run(self.act(*more))
            self.require_words(outcome)
        if digest_of(self.target) in (None, HALF):
            self.case.breaks("unusable", f"the training does not go on: {outcome.told}")
        self.rows()
        return self.case

    def copied(self) -> Case:
        """Stop a training between two steps, copy its checkpoint, and go on from it again and again."""
        shutil.rmtree(self.target, ignore_errors=True)
        checkpoint, copy = self.folder / "checkpoint", self.folder / "copy"
        shutil.rmtree(checkpoint, ignore_errors=True)
        self.open()
        self.case = case = Case(self.scene, self.kind, "checkpoint copied")
        stop = Fault(kind="kill", event=_KEPT, turn=self.rng.randint(1, self.events()[_KEPT]), amount=0)
        self.require_words(self.stage.run(self.act(), stop))
        case.struck = checkpoint.exists()
        if not case.struck:
            return case
        shutil.copytree(checkpoint, copy)
        outputs, datasets, mine = set[str](), {self.dataset}, self.dataset
        for turn in range(3):
            if turn:
                shutil.rmtree(checkpoint, ignore_errors=True)
                shutil.copytree(copy, checkpoint)
            way = self.rng.choice(["killed", "plain", "plain"]) if turn == 0 else self.rng.choice(_WAYS)
            fault = None
            if way == "another account":
                self.open()
                datasets.add(self.dataset)
            elif way == "killed":
                event = self.rng.choice([name for name in self.events() if _NEAR.search(name)])
                fault = Fault(kind="kill", event=event, turn=1, amount=0)
            case.where += f", {way}"
            outcome = self.stage.run(self.act(*(["--again"] if way == "paid for again" else [])), fault)
            self.dataset = mine
            self.require_words(outcome)
            made = digest_of(self.target)
            if made == HALF:
                case.breaks("half", "after going on from a checkpoint")
            elif made is not None:
                outputs.add(made)
            elif (way == "plain" and turn == 0) or way == "paid for again":
                case.breaks("unusable", f"the training does not go on, {way}: {outcome.told}")
            if made is not None and way == "another account":
                case.breaks("uncharged", "a checkpoint went on with an account that did not pay for it")
            shutil.rmtree(self.target, ignore_errors=True)
        found = self.rows()
        paid = sum(row.kind == "spend" and row.dataset in datasets for row in ([] if found is None else found[0]))
        if len(outputs) > paid:
            case.breaks("uncharged", f"{len(outputs)} different releases for {paid} spends")
        shutil.rmtree(copy)
        return case


_KEPT = "<dpsgd/_checkpoint.TrainingFile.keep"
_NEAR = re.compile(r"TrainingFile|LedgerAccount\.(mark|resume|finish)|go_on")
_WAYS = ["plain", "plain", "killed", "another account", "paid for again"]


def _often() -> None:
    """Write checkpoints after every few steps."""
    from escudo.mechanisms.dpsgd import _mechanism, _sampling

    _mechanism._SECONDS_BETWEEN = 0.0
    _sampling._SEGMENT_ROWS = 1
