"""Accounts are opened and spent from, by one process or by several, while anything may happen."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from chaos.children import Act, Outcome, Tell, perform
from chaos.faults import ON_SERVER, Fault, drawn, drawn_kind
from chaos.stage import Case, Stage, World, happened, in_words
from chaos.stores import Rows
from escudo.errors import BudgetExceededError, EscudoError, LedgerError
from escudo.privacy import Event, Ledger, LedgerRow, PureEvent

__all__ = ["LedgerWorld"]

CAP = 1.0


def opening(url: str, dataset: str) -> Act:
    """Open an account, and spend from it."""

    def body(tell: Tell) -> int:
        with Ledger(url) as book:
            book.open(dataset, epsilon=CAP)
            tell(opened=dataset)
            book.spend(dataset, PureEvent(epsilon=CAP / 4), purpose="first")
            tell(granted="first")
        return 0

    return in_words(body)


def spending(url: str, dataset: str, amounts: Mapping[str, float]) -> Act:
    """Spend amounts by purpose: the second is marked failed, the third is a mechanism's, which gives a number."""

    def body(tell: Tell) -> int:
        from escudo import mechanisms

        with Ledger(url) as book:
            for number, (purpose, epsilon) in enumerate(amounts.items()):
                try:
                    if number == 2:
                        account = book.account(dataset)
                        value = mechanisms.laplace(
                            7, sensitivity=1.0, epsilon=epsilon, account=account, purpose=purpose
                        )
                        tell(output=purpose, value=int(value.value))
                        continue
                    receipt = book.spend(dataset, PureEvent(epsilon=epsilon), purpose=purpose)
                    tell(granted=purpose)
                    if number == 1:
                        book.fail(receipt, "Chaos")
                        tell(failed=purpose)
                except BudgetExceededError:
                    tell(refused=purpose)
        return 0

    return in_words(body)


def recovering(url: str) -> Act:
    """Put rows back that the witness has and the ledger lacks."""

    def body(tell: Tell) -> int:
        with Ledger(url) as book:
            tell(recovered=book.recover())
        return 0

    return in_words(body)


def looking(url: str, dataset: str, purpose: str, uses: Sequence[str]) -> Act:
    """See whether a ledger is refused: by verify, by a spend, by opening it again."""
    ways: dict[str, Callable[[Ledger], object]] = {
        "verify": lambda book: book.verify().ok,
        "spend": lambda book: bool(book.spend(dataset, PureEvent(epsilon=1e-6), purpose=purpose)),
        "open": lambda book: bool(book.open(dataset, epsilon=CAP)),
    }

    def body(tell: Tell) -> int:
        for use in uses:
            with Ledger(url) as book:
                try:
                    tell(tried=use, good=ways[use](book))
                except EscudoError as error:
                    tell(tried=use, good=False, said=f"{type(error).__name__}: {error}"[:300])
        return 0

    return in_words(body)


class LedgerWorld(World):
    """The life of a ledger."""

    faults = 14
    WITNESS = ("witness removed", "witness cut short")

    def __init__(self, stage: Stage, rng: random.Random, kind: str, name: str):
        super().__init__(stage, rng, kind, name)
        self.store = stage.store(kind, name)
        self.chain: list[str] = []
        self.told: dict[str, str] = {}  # purposes that must be there, and what a child was told
        self.names = iter(f"visits-{number}" for number in range(10**9))
        self.marks = iter(f"p{number}" for number in range(10**9))
        self.dataset = next(self.names)
        self.known: Rows | None = None  # what a ledger held before it was rolled back

    def close(self) -> None:
        """Remove the ledger."""
        self.store.close()

    def serve(self, what: str) -> None:
        """See :class:`World`."""
        self.store.serve(what)

    def play(self) -> Iterator[Case]:
        """Open under a fault; then spends, races and tampering in any order."""
        kinds = self.stage.faults(self.kind)
        often = [kind for kind in kinds if kind != "server"]  # which takes a second
        yield self.opened(drawn_kind(self.rng, often))
        for _ in range(self.faults - 1):
            draw = self.rng.random()
            if draw < 0.2:
                yield self.tampered(self.rng.choice(self.store.roll_backs + self.store.edits + self.WITNESS))
            elif draw < 0.25:
                yield self.recovered(drawn_kind(self.rng, often))
            elif draw < 0.4:
                yield self.raced(drawn_kind(self.rng, often))
            else:
                yield self.spent(drawn_kind(self.rng, kinds))

    def _act(self) -> Act:
        amounts = [self.rng.choice([0.001, 0.01, 0.05, 0.11]) for _ in range(4)]
        return spending(self.store.url, self.dataset, {next(self.marks): amount for amount in amounts})

    def _events(self, scene: str) -> dict[str, int]:
        """Return the events of opening or spending, rehearsed in a world apart."""
        if (name := f"{scene}/{self.kind}") not in self.stage.known:
            apart = LedgerWorld(self.stage, random.Random(0), self.kind, f"rehearsal_{scene}")
            with Ledger(apart.store.url) as book:
                book.open("spent", epsilon=CAP)
            apart.dataset = "spent"
            numbers = iter(range(10))
            rehearsals = {
                "open": lambda: opening(apart.store.url, f"new-{next(numbers)}"),
                "spend": apart._act,
                "recover": apart._rolled_back,
            }
            self.stage.events(name, rehearsals[scene])
            apart.close()
        return self.stage.events(name, _known)

    # -- what happens

    def opened(self, kind: str) -> Case:
        """A new ledger, and its first account."""
        outcome = self.suffer("open", opening(self.store.url, self.dataset), kind, self._events("open"))
        self.heard(outcome)
        try:
            with Ledger(self.store.url) as book:
                if outcome.all("opened"):
                    book.account(self.dataset)
                book.open(self.dataset, epsilon=CAP)
        except EscudoError as error:
            self.case.breaks("lost" if outcome.all("opened") else "unusable", str(error))
            return self.case
        self.check()
        return self.case

    def spent(self, kind: str) -> Case:
        """Spends of one process."""
        events = self._events("spend")
        self.heard(self.suffer("spend", self._act(), kind, events))
        self.check()
        return self.case

    def raced(self, kind: str) -> Case:
        """Processes that race, and something goes wrong in some of them."""
        events = self._events("spend")
        count = self.rng.randint(2, 8)
        hit = 1 if kind in ON_SERVER else self.rng.randint(1, count)
        acts: list[tuple[Act, Fault | None]] = []
        for number in range(count):
            acts.append((self._act(), drawn(self.rng, kind, self.stage.offered(events)) if number < hit else None))
        self.case = Case("race", self.kind, kind, f"{hit} of {count} processes")
        outcomes = perform(acts, self.stage.disk, self.serve, traced=False)
        suffered = zip(acts, outcomes, strict=True)
        self.case.struck = any(happened(fault, outcome) for (_, fault), outcome in suffered if fault is not None)
        for outcome in outcomes:
            self.require_words(outcome)
            self.heard(outcome)
        self.check()
        return self.case

    def _rolled_back(self) -> Act:
        """Spend, put an older copy in the ledger's place, and return what puts the spends back."""
        earlier = self.store.keep()
        outcome = self.stage.run(self._act())
        self.require_words(outcome)
        self.heard(outcome)
        self.known = self.store.rows()
        self.store.tamper("older copy", earlier, self.rng)
        return recovering(self.store.url)

    def recovered(self, kind: str) -> Case:
        """An older copy of the ledger is brought up to date from the witness; something goes wrong, and it is again."""
        events = self._events("recover")
        act = self._rolled_back()
        rolled_back = self.store.rows() != self.known
        self.suffer("recover", act, kind, events)
        self.case.struck = self.case.struck and rolled_back
        outcome = self.stage.run(recovering(self.store.url))
        self.require_words(outcome)
        if outcome.status != 0:
            self.case.breaks("unusable", f"what was lost is not put back: {outcome.told}")
        elif self.store.rows() != self.known:
            self.case.breaks("lost", "what was put back is not what was lost")
        self.check()
        return self.case

    def tampered(self, what: str) -> Case:
        """Somebody copies, restores, removes or edits; then the true ledger is put back."""
        self.case = case = Case("spend", self.kind, what)
        earlier = self.store.keep()
        # Mostly the child is killed in the end, so that SQLite leaves its files as they are in use.
        last = Fault(kind="kill", event="<privacy/_ledger.Ledger.spend", turn=3, amount=0)
        outcome = self.stage.run(self._act(), last if self.rng.random() < 0.8 else None)
        self.require_words(outcome)
        self.heard(outcome)
        case.where = f"{len(outcome.all('granted'))} spends, then {'killed' if outcome.killed else 'closed'}"
        truth, known = self.store.keep(), self.store.rows()
        assert known is not None, "a ledger at rest can be read"
        if what in self.WITNESS:
            case.struck = self._tamper_with_witness(what)
        else:
            self.store.tamper(what, earlier, self.rng)
        rows = self.store.rows()
        if what == "undoing trigger":
            self._require_no_undoing()
        elif rows == known:
            case.struck = case.struck and what in ("shm removed", *self.WITNESS)
            # What was cut or flipped may be no row, and a copy that is no older is still not the ledger that goes on.
            if what not in ("truncated", "bytes flipped", "copy used elsewhere"):
                self._require_use()
                self.check()
                return case
        else:
            shorter = rows is not None and rows == known[: len(rows)]
            self._require_notice(what, forgot=shorter or what in self.store.roll_backs)
        self.store.restore(truth)
        self.check()
        return case

    def _tamper_with_witness(self, what: str) -> bool:
        """Take away what this machine remembers of the ledger, or its last bytes; return whether there was anything."""
        found = [path for path in sorted(self.stage.state.rglob("*")) if path.is_file() and path.stat().st_size]
        for path in found:
            if what == "witness removed":
                path.unlink()
            else:
                os.truncate(path, path.stat().st_size - self.rng.randint(1, min(60, path.stat().st_size)))
        return bool(found)

    def _look(self, *uses: str) -> tuple[dict[str, bool], str, str]:
        """Return which uses are granted, the purpose of the spend, and what was said."""
        mark = next(self.marks)
        outcome = self.stage.run(looking(self.store.url, self.dataset, mark, uses))
        self.require_words(outcome)
        good = {entry["tried"]: entry["good"] for entry in outcome.told if "tried" in entry}
        return {use: good.get(use, False) for use in uses}, mark, str(outcome.told)

    def _require_use(self) -> None:
        """Require that a ledger that lost nothing is used as ever."""
        good, mark, said = self._look("verify", "spend")
        if good["spend"]:
            self.told[mark] = "granted"
        if not all(good.values()) and "BudgetExceededError" not in said:
            self.case.breaks("unusable", f"nothing was lost, yet it is refused: {said}")

    def _require_notice(self, what: str, *, forgot: bool) -> None:
        """Require that what was changed is noticed.

        A spend reads the end of the ledger only: it notices what the ledger forgot, not that an old row was edited.
        """
        good, _, said = self._look("verify", *(["spend"] * forgot), *(["open"] * (what == "emptied")))
        for use, granted in good.items():
            if granted:
                self.case.breaks("verify" if use == "verify" else "lost", f"{use} does not notice it: {said}")

    def _require_no_undoing(self) -> None:
        """Require that no spend is granted that a trigger takes back at once."""
        case, noticed = self.case, True
        for _ in range(2):
            outcome = self.stage.run(self._act())
            self.require_words(outcome)
            granted = {*outcome.all("granted"), *outcome.all("output")}
            there = json.dumps(self.store.rows(), default=str)
            if undone := sorted(purpose for purpose in granted if f'"{purpose}\\"' not in there):
                case.breaks("lost", f"granted and taken back by a trigger: {undone}")
            noticed = noticed and not granted
        with Ledger(self.store.url) as book:
            try:
                good = book.verify().ok
            except LedgerError:
                good = False
        if good and not noticed:
            case.breaks("verify", "a trigger that undoes spends is not noticed")

    # -- what must hold

    def heard(self, outcome: Outcome) -> None:
        """Remember what a child was told; it must be true for ever."""
        self.told.update((purpose, "granted") for purpose in outcome.all("granted"))
        self.told.update((purpose, "given out") for purpose in outcome.all("output"))
        self.told.update((f"failed {purpose}", "marked") for purpose in outcome.all("failed"))

    def check(self) -> None:
        """Check what must hold whenever nobody tampered with the ledger; go on to another account in time."""
        try:
            with Ledger(self.store.url) as book:
                found = book.verify()
                if not found.ok:
                    self.case.breaks("verify", f"nobody tampered with it: {found.problem}")
                    return
                self._check_rows(book.history())
                self._check_caps(book, book.history())
                self.chain = [row.hash for row in book.history()]
        except EscudoError as error:
            self.case.breaks("unusable", f"{type(error).__name__}: {error}")

    def _check_rows(self, rows: list[LedgerRow]) -> None:
        case, hashes = self.case, [row.hash for row in rows]
        if hashes[: len(self.chain)] != self.chain:
            case.breaks("lost", f"rows that were there are not: {len(hashes)} now, {len(self.chain)} before")
        spends = {row.sequence: row.payload["purpose"] for row in rows if row.kind == "spend"}
        recorded = Counter(spends.values())
        recorded.update(f"failed {spends[row.payload['spend']]}" for row in rows if row.kind == "failed")
        for mark, what in list(self.told.items()):
            if recorded[mark] != 1:
                del self.told[mark]  # it is said once
                invariant = "uncharged" if what == "given out" else "lost"
                case.breaks(invariant, f"{mark} was {what} and is recorded {recorded[mark]} times")

    def _check_caps(self, book: Ledger, rows: list[LedgerRow]) -> None:
        case = self.case
        spent: Counter[str] = Counter()
        for row in rows:
            if row.kind == "spend" and row.event is not None:
                spent[row.dataset] += pure_cost(row.event)  # type: ignore[assignment]
        for dataset, total in spent.items():
            if total > CAP * (1 + 1e-8):
                case.breaks("cap", f"{dataset}: {total} of {CAP}")
        left = CAP - spent[self.dataset]
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
            book.open(self.dataset, epsilon=CAP)


def _known() -> Act:
    raise AssertionError("it was rehearsed")


def pure_cost(event: Event) -> float:
    """Return what a pure event costs, from what it records."""
    return float(event.epsilon if isinstance(event, PureEvent) else event.l1_sensitivity / event.scale)  # type: ignore[attr-defined]
