"""The inside of a ledger: transactions that are checked before, read back and witnessed after, and its accounts.

``Keeping`` adds backups, putting back what was lost, bringing an old one up to date, and who may spend. What a ledger
shows: one account to charge, an account at one moment, the outcome of a check.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import shlex
import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escudo._card import card
from escudo._validate import did_you_mean, positive
from escudo.errors import InputError, LedgerCorruptError, LedgerError, LedgerWarning, UnsupportedEventError
from escudo.privacy._account import AgreedAccount, Receipt, now
from escudo.privacy._events import Event
from escudo.privacy._filter import Paid
from escudo.privacy._guarantee import Guarantee
from escudo.privacy._ledger_chain import (
    AccountRecord,
    Kind,
    LedgerRow,
    Replay,
    add_spend,
    after_row,
    canonical_json,
    require_whole,
    terms_of,
)
from escudo.privacy._ledger_witness import Seen
from escudo.privacy._tally import Spending, Tally, Terms

if TYPE_CHECKING:
    from escudo.privacy._ledger import Ledger
    from escudo.privacy._ledger_store import Session

MAX_NAME = 200


class Book:
    """What all of a ledger's operations are made of; ``Ledger`` has the operations."""

    def __init__(self, url: str = "sqlite:///escudo-ledger.db", *, timeout: float = 30.0):
        from escudo.privacy._ledger_store import Store  # here, because SQLAlchemy is slow to import

        self._store = Store(url, timeout=positive("timeout", timeout))
        self._ledger_id: str | None = None
        self._seen: dict[str, Seen] = {}  # by ledger: never to be missing again
        self._known: dict[str, AccountRecord] = {}  # as last seen, to prepare with
        self._tallies: dict[str, tuple[int, Tally]] = {}  # what was read of accounts, up to which row
        self._lock = self._store.lock

    @property
    def name(self) -> str:
        """The ledger's URL, without password."""
        return self._store.name

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        with self._store.held():
            witnessed = self._witnessed()
            with self._store.reading() as session:
                self._require_what_was_seen(session, witnessed)
                yield session

    @contextmanager
    def _writing(self, deadline: float | None = None) -> Iterator[Session]:
        """Give a session that no other writer overlaps; what it adds is durable, read back and witnessed at the end."""
        with self._store.held(deadline) as until:
            witnessed = self._witnessed()
            with self._store.writing(until) as session:
                self._require_what_was_seen(session, witnessed)
                yield session
            if session.added:
                self._confirm(session)

    def _confirm(self, session: Session) -> None:
        """Read what was added in a transaction of its own, and write it to the witness.

        Raises:
            LedgerCorruptError: If something undid it after it was committed; then nothing must be released.
        """
        added, witness = session.added, self._store.witness
        with self._store.reading(whole=False) as again:
            for row in added:
                if again.row(row.sequence) != row:
                    raise LedgerCorruptError(
                        f"row {row.sequence} was recorded, and is gone or changed now: something undoes spends. "
                        "Nothing must be released."
                    )
            last = added[-1]
            account = again.account(last.dataset)
            expected = session.accounts.get(last.dataset)
            moved_on = again.rows_recorded > last.sequence
            if (again.head != last.hash or account != expected) and not moved_on:
                raise LedgerCorruptError(
                    f"the head or the account was changed back after row {last.sequence}: something undoes spends. "
                    "Nothing must be released."
                )
            witness.remember(session.ledger_id, added, again.rows)
        self._seen[session.ledger_id] = Seen(last.sequence, last.hash)
        self._known = dict(session.accounts)

    def _require_what_was_seen(self, session: Session, witnessed: Seen | None) -> None:
        """Raise if rows are missing that this process or this machine has seen.

        Raises:
            LedgerCorruptError: If the ledger is an older copy, was cut short or rewritten, or is another one.
        """
        witness = self._store.witness
        if session.ledger_id != self._ledger_id:  # another database was put in its place
            self._ledger_id, witnessed = session.ledger_id, witness.last(session.ledger_id)
        witness.require_known(session.ledger_id)
        here = Seen(session.rows_recorded, session.head)
        for seen in (witnessed, self._seen.get(session.ledger_id)):
            if seen is None or not seen.rows or seen == here:
                continue
            if here.rows < seen.rows:
                raise LedgerCorruptError(
                    f"row {here.rows + 1} was there before and is missing: the ledger was cut short, or replaced by an "
                    "older copy that does not count later spends. Put the rows back with: escudo ledger recover."
                )
            row = session.row(seen.rows)
            if row is None or row.hash != seen.hash:
                raise LedgerCorruptError(f"row {seen.rows} is not the one that was there before.")
        if witnessed is None and here.rows and session.ledger_id not in self._seen:
            warnings.warn(
                f"This machine has no witness of the ledger {self.name} yet, and starts one at row {here.rows}: an "
                "older copy from before would not be noticed here.",
                LedgerWarning,
                stacklevel=5,
            )
            witness.start(session.ledger_id, here)
            witness.remember_place(session.ledger_id)
        if session.ledger_id not in self._seen:
            witness.remember_place(session.ledger_id)
        self._seen[session.ledger_id] = here

    def _witnessed(self) -> Seen | None:
        """Return what the witness has seen; asked before a transaction, which then must hold at least as much."""
        self._require_ledger()
        if self._ledger_id is None:
            with self._store.reading(whole=False) as session:
                self._ledger_id = session.ledger_id
        return self._store.witness.last(self._ledger_id)

    def _require_ledger(self) -> None:
        if not self._store.exists():
            self._store.witness.require_known(None)
            raise LedgerError(
                f"There is no ledger at {self.name} yet. Make it by opening an account: "
                f"escudo ledger open DATASET --epsilon 1 --delta 1e-6 --ledger {shlex.quote(self.name)}"
            )

    def _append(
        self, session: Session, kind: Kind, dataset: str, payload: dict[str, Any], paid: Paid | None = None
    ) -> LedgerRow:
        """Add a row with what it makes of its account."""
        row = session.next_row(kind, dataset, payload, None if paid is None else paid.charge)
        return session.append(row, after_row(session.accounts.get(dataset), row))

    def _pay(self, session: Session, record: AccountRecord, event: Event) -> Paid | None:
        """Return how an account pays for an admitted event, or None if it does not."""
        rule = terms_of(record.dataset, record.terms).filter
        return self._tally(session, record).pay(event) if rule is None else rule.pay(event, record.spent)

    def _tally(self, session: Session, record: AccountRecord) -> Tally:
        """Return an account with all its spends, of which only those since the last look are read.

        Raises:
            LedgerCorruptError: If they do not add up to what the account says.
        """
        read, tally = self._tallies.get(record.dataset, (record.opened, None))
        if tally is None or read > record.last or session.ledger_id not in self._seen:
            read, tally = record.opened, Tally(terms_of(record.dataset, record.terms))
        self._tallies.pop(record.dataset, None)  # a row may be half counted: nothing is built on that
        for row in session.rows(read, record.dataset, "spend"):
            require_whole(row, sequence=row.sequence)
            try:
                add_spend(tally, row)
            except UnsupportedEventError as error:
                raise LedgerError(
                    f"row {row.sequence} holds an event that this escudo cannot read ({error}) A newer escudo may have "
                    "written it: install that version."
                ) from None
            except (KeyError, TypeError, ValueError, RecursionError):
                raise LedgerCorruptError(f"row {row.sequence} does not say what a row of its kind says.") from None
        if tally.count != record.spends or tally.spent != record.spent:
            raise LedgerCorruptError(f"the account of dataset {record.dataset!r} is not what its rows add up to.")
        self._tallies[record.dataset] = (record.last, tally)
        return tally

    def _terms(self, session: Session, dataset: str) -> Terms:
        record = self._account(session, dataset)
        return terms_of(record.dataset, record.terms)

    def _account(self, session: Session, dataset: str) -> AccountRecord:
        accounts = session.accounts
        if isinstance(dataset, str) and dataset in accounts:  # as it was recorded, before names were normalised
            return accounts[dataset]
        name = checked_name(dataset)
        if name in accounts:
            return accounts[name]
        require_no_twin(name, accounts)
        raise InputError(
            f"Dataset {name!r} has no account in this ledger.{did_you_mean(name, accounts)} Open one with "
            f"ledger.open({name!r}, epsilon=..., delta=...) or: escudo ledger open {shlex.quote(name)} --epsilon 1 "
            f"--delta 1e-6 --ledger {shlex.quote(self.name)}"
        )


def checked_name(dataset: str) -> str:
    """Return a name in the one form in which it is kept: NFKC, without spaces at the ends or twice in a row."""
    form = unicodedata.normalize("NFKC", dataset) if isinstance(dataset, str) else ""
    name = " ".join(form.split())
    if not name or not form.isprintable() or max(len(name), len(dataset)) > MAX_NAME:
        raise InputError(
            f"dataset must be a name of 1 to {MAX_NAME} printable characters; got "
            + (f"{dataset!r:.60}." if isinstance(dataset, str) else f"{type(dataset).__name__}.")
        )
    return name


# Letters that look like Latin ones, after case folding: Cyrillic, Greek, and others that keyboards and copies bring in.
_LOOK_ALIKES = str.maketrans(
    "аеорсухіјѕһԁԛԝѵкмтвн" "αορνικυτχ" "ıȷɑɡ" "‐‑‒–—―−﹘ـ" "’‘ʼ`´" "·∙⋅",
    "aeopcyxijshdqwvkmtbh" "aopvikutx" "ijag" "---------" "'''''" "...",
)  # fmt: skip
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


def _looks(name: str) -> str:
    """Return what a name looks like at a glance: without case, accents' order, unseen characters and foreign twins."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    seen = "".join(c for c in folded if c not in _UNSEEN and not "\ufe00" <= c <= "\ufe0f" and c < "\U000e0000")
    return " ".join(seen.translate(_LOOK_ALIKES).split())


def require_no_twin(name: str, accounts: Iterable[str]) -> None:
    """Raise if people would take ``name`` for the name of another account: it would open a second budget.

    Raises:
        InputError: Names the account that it resembles.
    """
    twin = next((known for known in accounts if known != name and _looks(known) == _looks(name)), None)
    if twin is not None:
        raise InputError(
            f"Dataset {name!r} has no account, and its name looks like that of {twin!r}, which has one. Spend from "
            f"{twin!r} if the table is the same, or choose a name that nobody can mistake for it."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountInfo:
    """An account at one moment.

    Attributes:
        dataset: Name of the account.
        cap: What may be spent in all.
        promise: What the cap means, in a sentence.
        used: The part of the budget that is used, from 0 to 1.
        own_delta: How much δ of their own the spends have.
        own_delta_cap: How much they may have.
        total: What the spends would promise together, at the cap's δ, had amounts been settled beforehand. Not a
            promise where amounts were chosen on the way.
        remaining: The largest pure spend that fits.
        spending: ``"adaptive"`` or ``"planned"``.
        opened_at: Time in ISO 8601, UTC.
        spends: Number of spends, failed and seeded ones included.
        failed: How many of them were marked failed.
        not_for_release: How many of them were seeded runs.
    """

    dataset: str
    cap: Guarantee
    promise: str
    used: float
    own_delta: float
    own_delta_cap: float
    total: Guarantee
    remaining: Guarantee
    spending: Spending
    opened_at: str
    spends: int
    failed: int
    not_for_release: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What ``Ledger.verify`` found.

    Attributes:
        rows: Number of rows that hold good, from the first on.
        head: Fingerprint of the last of them.
        problem: What is wrong and at which row, or None.
    """

    rows: int
    head: str
    problem: str | None = None

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return self.problem is None

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if self.problem is not None:
            return self.problem
        return f"ledger holds good: {self.rows} row{'s' * (self.rows != 1)}, head {self.head}"

    def _repr_html_(self) -> str:
        return card("Ledger checked", str(self), alarm=not self.ok)


class LedgerAccount(AgreedAccount):
    """One dataset's account in a ledger: what a table and its mechanisms charge (an ``Account``).

    Attributes:
        ledger: The ledger it is kept in.
        terms: What was agreed when it was opened.
    """

    def __init__(self, ledger: Ledger, terms: Terms):
        self.ledger, self.terms = ledger, terms

    @property
    def dataset(self) -> str:
        """Name of the account."""
        return self.terms.dataset

    def spend(self, event: Event | Guarantee, *, purpose: str = "", for_release: bool = True) -> Receipt:
        """Record an event on disk, before its release; see ``Ledger.spend``."""
        return self.ledger.spend(self.dataset, event, purpose=purpose, for_release=for_release)

    def fail(self, receipt: Receipt, reason: str = "") -> None:
        """Mark a spend as failed; it stays spent."""
        self.ledger.fail(receipt, reason)

    def receipt(self, sequence: int) -> Receipt:
        """Return the receipt of a recorded spend; see ``Ledger.receipt``."""
        return self.ledger.receipt(self.dataset, sequence)

    def mark(self, receipt: Receipt, number: int, digest: str, *, nonce: str = "") -> None:
        """Record a checkpoint of a training; see ``Ledger.mark``."""
        self.ledger.mark(receipt, number, digest, nonce=nonce)

    def goes_on(self, receipt: Receipt, number: int, digest: str) -> bool:
        """Return whether ``resume`` would let a training go on from a file now; see ``Ledger.goes_on``."""
        return self.ledger.goes_on(receipt, number, digest)

    def resume(self, receipt: Receipt, number: int, digest: str) -> str:
        """Record that a training goes on from its newest checkpoint; see ``Ledger.resume``."""
        return self.ledger.resume(receipt, number, digest)

    def marked(self, receipt: Receipt, number: int, digest: str) -> bool:
        """Return whether this file was ever a checkpoint of the training; see ``Ledger.marked``."""
        return self.ledger.marked(receipt, number, digest)

    def finish(self, receipt: Receipt, *, nonce: str = "") -> None:
        """Record that a training ends, before its result leaves; see ``Ledger.finish``."""
        self.ledger.finish(receipt, nonce=nonce)

    def fits(self, event: Event | Guarantee) -> bool:
        """Return whether ``spend(event)`` would be allowed now."""
        return self.ledger.fits(self.dataset, event)

    def asked(self, event: Event | Guarantee) -> float:
        """Return the part of the budget that ``spend(event)`` would ask for; see ``Ledger.asked``."""
        return self.ledger.asked(self.dataset, event)

    def info(self) -> AccountInfo:
        """Return the account with what is used and left."""
        return self.ledger.info(self.dataset)

    def total(self) -> Guarantee:
        """Return what all spends would promise together had amounts been settled beforehand; see ``Ledger.total``."""
        return self.ledger.total(self.dataset)

    def remaining(self) -> Guarantee:
        """Return the largest pure spend that fits."""
        return self.ledger.remaining(self.dataset)

    def __repr__(self) -> str:
        return f"account {self.dataset!r} in {self.ledger!r}: {self.terms}"


def account_info(record: AccountRecord, tally: Tally) -> AccountInfo:
    """Return what an account shows now."""
    terms = tally.terms
    assert terms.epsilon is not None, "an account in a ledger has a cap"
    if math.isinf(tally.total_epsilon()):
        raise LedgerCorruptError(f"the spends of dataset {terms.dataset!r} pass every cap.")
    own, own_cap = tally.slack_used()
    return AccountInfo(
        dataset=terms.dataset,
        cap=terms.guarantee(terms.epsilon, terms.delta),
        promise=terms.promise,
        used=tally.used(),
        own_delta=own,
        own_delta_cap=own_cap,
        spending=terms.spending,
        total=tally.total(),
        remaining=tally.remaining(),
        opened_at=record.opened_at,
        spends=record.spends,
        failed=record.failed,
        not_for_release=record.not_for_release,
    )


class Keeping(Book):
    """The operations on a ledger as a whole."""

    def verify(self, expected_head: str | None = None) -> Verification:
        """Read every row again and check the chain, the head record, what the rows say, and the caps.

        Args:
            expected_head: A fingerprint kept from an earlier ``head``. The ledger must contain it: equal to the head
                now, or to the hash of an earlier row. Nothing else finds a ledger that was rewritten as a whole.

        Raises:
            LedgerError: If there is no ledger, or it cannot be read.
        """
        if expected_head is not None and not re.fullmatch(r"[0-9a-f]{64}", expected_head):
            raise InputError("expected_head must be a fingerprint as ledger.head gives it: 64 hexadecimal digits.")
        with self._lock:
            replay = None
            try:
                witnessed = self._witnessed()
                with self._store.reading(whole=False) as session:
                    replay = Replay(session.ledger_id)
                    wanted = self._wanted(session, witnessed, expected_head)
                    wanted.pop(replay.head, None)
                    for row in session.rows():
                        replay.apply(row)
                        wanted.pop(row.hash, None)
                    session.read_accounts()
                    replay.require_end(rows=session.rows_recorded, head=session.head, accounts=session.accounts)
                    if wanted:
                        why = next(iter(wanted.values()))
                        raise LedgerCorruptError(
                            f"no row has the fingerprint that {why}: it was rewritten, cut short, or is another."
                        )
                    session.require_nothing_foreign()
            except LedgerCorruptError as error:
                return Verification(
                    rows=0 if replay is None else replay.sequence,
                    head="" if replay is None else replay.head,
                    problem=str(error),
                )
        return Verification(rows=replay.sequence, head=replay.head)

    def _wanted(self, session: Session, witnessed: Seen | None, expected_head: str | None) -> dict[str, str]:
        """Return which hashes must be among the rows, and who says so."""
        wanted: dict[str, str] = {}
        if (seen := self._seen.get(session.ledger_id)) is not None and seen.rows:
            wanted[seen.hash] = "this process read before"
        if witnessed is not None and witnessed.rows:
            wanted[witnessed.hash] = "this machine's witness has seen"
        if expected_head is not None:
            wanted[expected_head] = "you expect"
        return wanted

    def export(self) -> dict[str, Any]:
        """Return the whole ledger as JSON values, also a broken one, with what ``verify`` says about it.

        Payloads are given as the exact text that was hashed, so that anyone can check the chain.
        """
        checked = self.verify()
        with self._store.reading(whole=False) as session:
            rows, ledger_id = [row.as_stored() for row in session.rows()], session.ledger_id
        return {
            "escudo_ledger": 2,
            "ledger_id": ledger_id,
            "exported_at": now(),
            "head": checked.head,
            "problem": checked.problem,
            "rows": rows,
        }

    def backup(self, path: str | os.PathLike[str]) -> int:
        """Write all rows to a new file that only its owner can read; return how many.

        Raises:
            InputError: If the file exists or cannot be written.
            LedgerCorruptError: If the ledger does not hold good.
        """
        found = self.verify()
        if found.problem is not None:
            raise LedgerCorruptError(found.problem)
        exported = self.export()
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(as_lines(exported))
                file.flush()
                os.fsync(file.fileno())
        except FileExistsError:
            raise InputError(f"{os.fspath(path)} exists already. Name a new file; nothing was written.") from None
        except OSError as error:
            raise InputError(f"{os.fspath(path)} cannot be written: {error.strerror}.") from None
        return len(exported["rows"])

    def restore(self, path: str | os.PathLike[str]) -> int:
        """Make the ledger again from a backup, with the later rows that this machine's witness has; return how many.

        Raises:
            InputError: If the file is no backup.
            LedgerError: If there is a ledger here.
            LedgerCorruptError: If the rows do not hold together.
        """
        ledger_id, rows = _read_lines(path)
        if self._store.exists():
            raise LedgerError("there is a ledger here already. Restore to another place, or move it away first.")
        return self._rebuild(ledger_id, rows)

    def recover(self) -> int:
        """Put rows back that this machine's witness has and the ledger lacks; return how many were missing.

        Raises:
            LedgerError: If this machine has seen no ledger here.
            LedgerCorruptError: If what is there and what was seen do not hold together.
        """
        witness = self._store.witness
        with self._lock:
            if not self._store.exists():
                ledger_id = witness.ledger_here()
                if ledger_id is None:
                    raise LedgerError(f"This machine has seen no ledger at {self.name}.")
                return self._rebuild(ledger_id, [])
            with self._store.reading(whole=False) as session:
                replay = Replay(session.ledger_id)
                for row in session.rows():
                    replay.apply(row)
            missing = self._after(replay, session.ledger_id)
            if missing:
                with self._store.writing() as session:
                    if session.head != replay.head:
                        raise LedgerError("the ledger is in use. Try again.")
                    for row in missing:
                        replay.apply(row)
                        session.put(row, replay.accounts.get(row.dataset))
            self._tallies.clear()
            return len(missing)

    def _rebuild(self, ledger_id: str, rows: list[LedgerRow]) -> int:
        replay = Replay(ledger_id)
        for row in rows:
            replay.apply(row)
        rows = rows + self._after(replay, ledger_id)
        if not rows:
            raise LedgerError("there are no rows to put back.")
        self._store.create(ledger_id, head=rows[0].previous)
        replay = Replay(ledger_id)
        with self._store.writing() as session:
            for row in rows:
                replay.apply(row)
                session.put(row, replay.accounts.get(row.dataset))
        witness = self._store.witness
        witness.remember(ledger_id, rows, lambda after: iter(()))
        witness.remember_place(ledger_id)
        return len(rows)

    def _after(self, replay: Replay, ledger_id: str) -> list[LedgerRow]:
        """Return the rows that the witness has behind those of ``replay``, without a gap."""
        found: list[LedgerRow] = []
        for row in self._store.witness.rows(ledger_id):
            if row.sequence == replay.sequence + len(found) + 1:
                found.append(row)
        return found

    def upgrade(self) -> int:
        """Bring a ledger of format 1 up to date; return its number of rows. Its accounts stay planned ones.

        Raises:
            InputError: If it is up to date.
            LedgerCorruptError: If it does not hold good.
        """
        with self._lock:
            self._require_ledger()
            old = self._store.first_format()
            if old is None:
                raise InputError(f"The ledger {self.name} is up to date.")
            ledger_id = secrets.token_hex(16)
            with self._store.upgrading(ledger_id) as session:
                replay = Replay(ledger_id)
                for row in old:
                    replay.apply(row)
                session.seed(replay.accounts)
                session.append(session.next_row("upgrade", "", {"from": 1, "ledger_id": ledger_id}))
            self._confirm(session)
            return len(old)

    def forget(self) -> None:
        """Let a new ledger begin here, after the one that this machine has seen was removed on purpose."""
        self._store.witness.forget()

    def grant(self, role: str) -> None:
        """Let a PostgreSQL role read the ledger and spend, and neither change, remove nor lower anything.

        Raises:
            LedgerError: On SQLite, or if you may not grant that.
        """
        self._require_ledger()
        self._store.grant(role)


def as_lines(exported: dict[str, Any]) -> str:
    """Return an export as JSON lines: one that says which ledger it is, then one for each row."""
    about = {name: value for name, value in exported.items() if name != "rows"}
    return "".join(canonical_json(line) + "\n" for line in (about, *exported["rows"]))


def verify_lines(path: str | os.PathLike[str], expected_head: str | None = None) -> Verification:
    """Check a backup or an export in JSON lines as a ledger is checked: the chain, what the rows say, and the caps.

    Args:
        path: The file.
        expected_head: A fingerprint that was kept; one of the rows must have it.

    Raises:
        InputError: If it is no such file.
    """
    ledger_id, rows = _read_lines(path)
    replay, wanted = Replay(ledger_id), expected_head
    try:
        for row in rows:
            replay.apply(row)
            wanted = None if row.hash == wanted else wanted
        if wanted is not None:
            raise LedgerCorruptError(
                "no row has the fingerprint that you expect: it was rewritten, cut short, or is another."
            )
    except LedgerCorruptError as error:
        return Verification(rows=replay.sequence, head=replay.head, problem=str(error))
    return Verification(rows=replay.sequence, head=replay.head)


def _read_lines(path: str | os.PathLike[str]) -> tuple[str, list[LedgerRow]]:
    """Return the ledger's id and the rows of a backup; whether they hold together is for others to say."""
    number, rows = 1, []
    try:
        header, *lines = Path(path).read_text(encoding="utf-8").removesuffix("\n").split("\n")
        ledger_id = str(json.loads(header)["ledger_id"])
        for line in lines:
            number += 1
            rows.append(LedgerRow.from_stored(json.loads(line)))
    except OSError as error:
        raise InputError(f"{os.fspath(path)} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{os.fspath(path)} is not UTF-8 text.") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            f"{os.fspath(path)}, line {number}: no row of a ledger. Was it written by 'escudo ledger backup'?"
        ) from None
    return ledger_id, rows
