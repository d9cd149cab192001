"""The inside of a ledger: transactions that are checked before, read back and witnessed after, and its accounts."""

from __future__ import annotations

import shlex
import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from escudo._validate import did_you_mean, positive
from escudo.errors import InputError, LedgerCorruptError, LedgerError, LedgerWarning, UnsupportedEventError
from escudo.privacy._account import now
from escudo.privacy._events import Event
from escudo.privacy._filter import Paid
from escudo.privacy._ledger_chain import AccountRecord, Kind, LedgerRow, canonical_json, charge_text, require_whole
from escudo.privacy._ledger_replay import add_spend, after_row, terms_of
from escudo.privacy._ledger_witness import Seen
from escudo.privacy._tally import Tally, Terms

if TYPE_CHECKING:
    from escudo.privacy._ledger_session import Session

__all__ = ["Book", "checked_name", "require_no_twin"]

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
            witness.remember(session.ledger_id, added, lambda after: again.rows(after=after))
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
                f"escudo ledger open DATASET --epsilon 1 --ledger {shlex.quote(self.name)}"
            )

    def _append(
        self, session: Session, kind: Kind, dataset: str, payload: dict[str, Any], paid: Paid | None = None
    ) -> LedgerRow:
        """Add a row with what it makes of its account."""
        recorded_at = now()
        draft = LedgerRow(
            sequence=session.rows_recorded + 1,
            kind=kind,
            dataset=dataset,
            text=canonical_json(payload),
            charge="" if paid is None else charge_text(paid.charge),
            state="",
            recorded_at=recorded_at,
            previous="",
            hash="",
        )
        account = after_row(session.accounts.get(dataset), draft)
        charge = None if paid is None else paid.charge
        return session.append(kind, dataset, payload, account=account, charge=charge, recorded_at=recorded_at)

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
        for row in session.rows(after=read, dataset=record.dataset, kind="spend"):
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
            f"ledger.open({name!r}, epsilon=...) or: escudo ledger open {shlex.quote(name)} --epsilon 1 --ledger "
            f"{shlex.quote(self.name)}"
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
