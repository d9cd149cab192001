"""The rows of a ledger, the accounts they add up to, and the hashes that hold both together.

Row n carries ``hash = SHA-256(canonical JSON of [previous, n, kind, dataset, payload, charge, state, recorded_at])``,
where ``previous`` is the hash of row n - 1 and ``state`` is the digest of all accounts *after* the row. Changing,
moving, inserting or removing a row therefore breaks the chain at that row or the next, and changing an account breaks
the state of the last row, unless every later hash is computed again. Whoever may write the whole database can do that;
only what is kept elsewhere shows it: the witness (``_ledger_witness``), or a fingerprint (``Ledger.head``).

Because the last row holds the state of all accounts, whoever has checked that row and the accounts can add the next one
without reading any other: a spend takes as long after a million rows as after ten.

Rows of format 1 have no charge and no state, and a hash without them. An ``upgrade`` row after them gives each account
its state.

``after_row`` says how each row changes its account; ``Replay`` checks every row again from the first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, cast, get_args

from escudo.errors import InputError, LedgerCorruptError, LedgerError, UnsupportedEventError
from escudo.privacy import _trainings as trainings
from escudo.privacy._events import Event
from escudo.privacy._filter import NOTHING, Charge, Paid
from escudo.privacy._tally import Tally, Terms, percent_up, shown_down

Kind = Literal["open", "spend", "failed", "upgrade", "mark", "resume", "finish"]
KINDS: tuple[Kind, ...] = get_args(Kind)


ROW_COLUMNS = ("sequence", "kind", "dataset", "payload", "charge", "state", "recorded_at", "previous", "hash")
"""What a row is stored as, in this order."""


FIRST_GENESIS = hashlib.sha256(b"escudo ledger, format 1").hexdigest()
"""What the first row of a ledger of format 1 follows."""


def genesis(ledger_id: str) -> str:
    """Return what the first row follows: the fingerprint of an empty ledger, which no two share."""
    return hashlib.sha256(f"escudo ledger, format 2, {ledger_id}".encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One row of the ledger, as it is stored.

    Attributes:
        sequence: 1, 2, 3, ... over all datasets of the ledger.
        kind: ``open`` (an account and its terms), ``spend`` (an event), ``failed`` (a mark on an earlier spend, which
            stays spent), ``mark``, ``resume`` and ``finish`` (the life of a training that is kept in a file), or
            ``upgrade`` (an account taken over from format 1).
        dataset: Name of the account.
        text: The payload as canonical JSON, exactly as it was hashed.
        charge: What a spend was charged with, as ``[pure, renyi, slack]`` in canonical JSON; empty for other rows.
        state: Digest of all accounts after the row; empty in rows of format 1.
        recorded_at: Time in ISO 8601, UTC.
        previous: Hash of the row before.
        hash: Hash of this row.
        max_rows_per_person: The account's bound on one person's rows, for events that were recorded without it.
    """

    sequence: int
    kind: Kind
    dataset: str
    text: str
    charge: str
    state: str
    recorded_at: str
    previous: str
    hash: str
    max_rows_per_person: int | None = field(default=None, compare=False, repr=False)

    @property
    def payload(self) -> Mapping[str, Any]:
        """What the row says, as JSON values: terms, an event with its purpose, or the spend that it is about."""
        return cast(Mapping[str, Any], json.loads(self.text))

    @property
    def event(self) -> Event | None:
        """The recorded event, or None for a row that is no spend."""
        if self.kind != "spend":
            return None
        return Event.from_json(self.payload["event"], max_rows_per_person=self.max_rows_per_person)

    @property
    def charged(self) -> Charge:
        """What the spend was charged with; nothing for other rows.

        Raises:
            ValueError: If it is not what escudo writes.
        """
        if not self.charge:
            return NOTHING
        pure, renyi, slack = (None if part is None else int(part) for part in json.loads(self.charge))
        if renyi is None or slack is None or min(renyi, slack, pure or 0) < 0:
            raise ValueError("no charge")
        return Charge(pure, renyi, slack)

    def as_stored(self) -> dict[str, Any]:
        """Return the row as JSON values, with the payload as the exact text that was hashed; also of a broken row."""
        stored = self._with(self.text)
        # A broken ledger may hold what JSON cannot.
        return {name: value if isinstance(value, str | int) else repr(value) for name, value in stored.items()}

    @staticmethod
    def from_stored(stored: Mapping[str, Any]) -> LedgerRow:
        """Return the row that ``as_stored`` wrote.

        Raises:
            KeyError: If a column is missing.
        """
        return LedgerRow(text=stored["payload"], **{name: stored[name] for name in ROW_COLUMNS if name != "payload"})

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON values, with the payload read."""
        return self._with(self.payload)

    def _with(self, payload: object) -> dict[str, Any]:
        return {name: payload if name == "payload" else getattr(self, name) for name in ROW_COLUMNS}


ACCOUNT_COLUMNS = (
    "dataset", "opened", "opened_at", "last", "terms", "pure", "renyi", "slack", "spends", "failed", "not_for_release",
    "trainings",
)  # fmt: skip
"""What an account is stored as, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRecord:
    """One account as it stands after the last row: what the ledger keeps so that nothing has to be added up again.

    Attributes:
        dataset: Name of the account.
        opened: Number of the row that opened it.
        opened_at: Time of that row.
        last: Number of its last row.
        terms: The terms, as canonical JSON.
        spent: What the filter counts.
        spends: Number of spends.
        failed: How many of them were marked failed.
        not_for_release: How many of them were seeded runs.
        trainings: What is known of spends whose training is kept in files, as canonical JSON.
    """

    dataset: str
    opened: int
    opened_at: str
    last: int
    terms: str
    spent: Charge = NOTHING
    spends: int = 0
    failed: int = 0
    not_for_release: int = 0
    trainings: str = "{}"

    def as_stored(self) -> dict[str, Any]:
        """Return the account as it is kept: the sums as text, because they are larger than databases' whole numbers."""
        sums = {name: None if value is None else str(value) for name, value in self.spent._asdict().items()}
        return {name: sums[name] if name in sums else getattr(self, name) for name in ACCOUNT_COLUMNS}

    @staticmethod
    def from_stored(stored: Mapping[str, Any]) -> AccountRecord:
        """Return the account that ``as_stored`` gave.

        Raises:
            LedgerCorruptError: If it holds what escudo never writes.
        """
        kept = dict(stored)
        pure, renyi, slack = (kept.pop(name) for name in Charge._fields)
        try:
            spent = Charge(None if pure is None else int(pure), int(renyi), int(slack))
            counts = {name: int(kept[name]) for name in ("spends", "failed", "not_for_release")}
        except (TypeError, ValueError):
            raise LedgerCorruptError("an account was edited: it is no record that escudo writes.") from None
        return AccountRecord(**kept | counts, spent=spent)

    @property
    def digest(self) -> str:
        """Digest of everything above."""
        return _hash(*self.as_stored().values())


def state_of(digests: Mapping[str, str]) -> str:
    """Return the digest of all accounts, from the digest of each by dataset."""
    return hashlib.sha256("".join(digests[name] for name in sorted(digests)).encode()).hexdigest()


def canonical_json(value: object) -> str:
    """Return the one text that stands for a JSON value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def charge_text(charge: Charge) -> str:
    """Return a charge as a row keeps it: numbers as text, because they are larger than other readers of JSON expect."""
    return canonical_json([None if part is None else str(part) for part in charge])


def sealed(row: LedgerRow, previous: str, state: str) -> LedgerRow:
    """Return the row as it follows the one with hash ``previous``, with the accounts' state after it, and its hash."""
    texts = (row.kind, row.dataset, row.text, row.charge, state, row.recorded_at)
    return replace(row, previous=previous, state=state, hash=_row_hash(previous, row.sequence, *texts))


def require_whole(row: LedgerRow, *, sequence: int, previous: Iterable[str] | None = None) -> None:
    """Raise unless ``row`` is row ``sequence``, has its own hash, and follows a row with one of the hashes given.

    Raises:
        LedgerCorruptError: Names the row.
    """
    if row.sequence != sequence:
        raise LedgerCorruptError(f"row {sequence} is missing: it was removed, or given another number.")
    texts = (row.kind, row.dataset, row.text, row.charge, row.state, row.recorded_at)
    # A database file edited by hand may hold any type in any column.
    if row.kind not in KINDS or not all(isinstance(value, str) for value in (*texts, row.previous, row.hash)):
        raise LedgerCorruptError(f"row {sequence} was edited: it is no row that escudo writes.")
    if row.hash != _row_hash(row.previous, sequence, *texts):
        raise LedgerCorruptError(f"row {sequence} was edited or moved: its contents do not have its hash.")
    if previous is not None and row.previous not in previous:
        raise LedgerCorruptError(
            f"row {sequence} does not follow row {sequence - 1}: one of the two was inserted, replaced or moved."
        )


def _row_hash(
    previous: str, sequence: int, kind: str, dataset: str, text: str, charge: str, state: str, recorded_at: str
) -> str:
    if not charge and not state:  # format 1
        return _hash(previous, sequence, kind, dataset, text, recorded_at)
    return _hash(previous, sequence, kind, dataset, text, charge, state, recorded_at)


def _hash(*parts: object) -> str:
    # Lone surrogates cannot be encoded; a row that holds one was not written here, so any hash that differs will do.
    return hashlib.sha256(canonical_json(parts).encode(errors="backslashreplace")).hexdigest()


_LOOSER = 1 - 1e-9
"""A recorded charge may be below the one worked out again by this much: a bound's last digits depend on the machine."""


def terms_to_json(terms: Terms) -> dict[str, Any]:
    """Return the payload of the row that opens an account."""
    return {
        "spending": terms.spending,
        "slack_share": terms.slack_share,
        "order": terms.order,
        "epsilon": terms.epsilon,
        "delta": terms.delta,
        "relation": terms.relation,
        "unit": terms.unit,
        "max_rows_per_person": terms.max_rows_per_person,
    }


@lru_cache(maxsize=1024)
def terms_of(dataset: str, text: str) -> Terms:
    """Return the terms that ``terms_to_json`` wrote; accounts from before there was a choice are planned ones."""
    return Terms(dataset=dataset, **({"spending": "planned"} | json.loads(text)))


def after_row(account: AccountRecord | None, row: LedgerRow) -> AccountRecord:
    """Return an account as it stands after one of its rows.

    Raises:
        ValueError: Or KeyError, TypeError or InputError, if the row does not say what a row of its kind may say there.
        LedgerCorruptError: If it opens an account a second time.
    """
    payload = row.payload
    if row.kind == "open":
        if account is not None:
            raise LedgerCorruptError(f"row {row.sequence} opens dataset {row.dataset!r} a second time.")
        terms = canonical_json(payload)
        if terms_of(row.dataset, terms).epsilon is None:
            raise ValueError("no cap")
        number = row.sequence
        return AccountRecord(dataset=row.dataset, opened=number, opened_at=row.recorded_at, last=number, terms=terms)
    if account is None:
        raise ValueError("no such account")
    account = replace(account, last=row.sequence)
    if row.kind == "spend":
        return replace(
            account,
            spent=account.spent.plus(row.charged),
            spends=account.spends + 1,
            not_for_release=account.not_for_release + (not payload["for_release"]),
        )
    if row.kind == "failed":
        return replace(account, failed=account.failed + 1)
    known, spend = account.trainings, int(payload["spend"])
    if row.kind == "mark":
        known = trainings.marked(known, spend, payload["number"], payload["digest"], payload["nonce"])
    elif row.kind == "resume":
        known = trainings.resumed(known, spend, payload["number"], payload["digest"], payload["nonce"])
    elif row.kind == "finish":
        known = trainings.finished(known, spend, payload["nonce"])
    else:
        raise ValueError("no such kind")
    return replace(account, trainings=known)


def add_spend(tally: Tally, row: LedgerRow) -> Event:
    """Count a recorded spend, as it was charged, and return its event.

    Raises:
        UnsupportedEventError: If its event cannot be read.
        ValueError: If it was recorded for other neighbours than the account's.
    """
    terms = tally.terms
    event = Event.from_json(row.payload["event"], max_rows_per_person=terms.max_rows_per_person)
    if event != terms.admitted(event):
        raise ValueError("recorded for another relation")
    tally.add(event, Paid(row.charged))
    return event


class Replay:
    """The state after a number of rows. ``apply`` takes the next one, and refuses one that does not follow.

    Everything is worked out again: hashes, states, what each spend costs, and that no cap was ever passed.

    Attributes:
        sequence: Number of rows applied.
        head: Hash of the last of them.
        accounts: Every account by dataset.
    """

    def __init__(self, ledger_id: str) -> None:
        self.sequence = 0
        self.head = genesis(ledger_id)
        self.accounts: dict[str, AccountRecord] = {}
        self._digests: dict[str, str] = {}
        self._tallies: dict[str, Tally] = {}
        self._spends: dict[str, set[int]] = {}
        self._failed: set[int] = set()
        self._with_state = False
        self._starts = (self.head, FIRST_GENESIS)

    def apply(self, row: LedgerRow) -> None:
        """Take the next row.

        Raises:
            LedgerCorruptError: If the row was tampered with, or says what escudo never writes.
            LedgerError: If it holds an event that this version cannot interpret.
        """
        number = self.sequence + 1
        require_whole(row, sequence=number, previous=self._starts if number == 1 else (self.head,))
        try:
            self._account_for(row)
        except UnsupportedEventError as error:
            raise LedgerError(
                f"row {number} holds an event that this escudo cannot read ({error}) "
                "A newer escudo may have written it: install that version."
            ) from None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, InputError):
            raise LedgerCorruptError(f"row {number} does not say what a row of its kind says.") from None
        if row.state:
            self._with_state = True
            if row.state != state_of(self._digests):
                raise LedgerCorruptError(f"row {number} says another state of the accounts than its rows add up to.")
        elif self._with_state or row.charge:
            raise LedgerCorruptError(f"row {number} does not say what the accounts come to after it.")
        self.sequence, self.head = number, row.hash

    def require_end(self, *, rows: int, head: str, accounts: Mapping[str, AccountRecord]) -> None:
        """Raise unless rows and accounts end where the ledger says.

        Raises:
            LedgerCorruptError: If rows at the end were removed or added, or an account was edited.
        """
        if self.sequence < rows:
            raise LedgerCorruptError(f"row {self.sequence + 1} is missing: the rows at the end were removed.")
        if self.sequence > rows:
            raise LedgerCorruptError(f"row {rows + 1} was added by other means than escudo.")
        if self.head != head and rows:
            raise LedgerCorruptError(f"row {self.sequence} is not the one that the head record names.")
        for dataset in {*self.accounts, *accounts}:
            if self.accounts.get(dataset) != accounts.get(dataset):
                raise LedgerCorruptError(f"the account of dataset {dataset!r} is not what its rows add up to.")

    def _account_for(self, row: LedgerRow) -> None:
        if row.kind == "upgrade":
            return
        account = after_row(self.accounts.get(row.dataset), row)
        self.accounts[row.dataset], self._digests[row.dataset] = account, account.digest
        if row.kind == "open":
            self._tallies[row.dataset] = Tally(terms_of(row.dataset, account.terms))
            self._spends[row.dataset] = set()
        elif row.kind == "spend":
            self._count(row)
        elif row.kind == "failed":
            spend = row.payload["spend"]
            if spend not in self._spends[row.dataset] or spend in self._failed:
                raise ValueError("no such spend, or marked twice")
            self._failed.add(spend)

    def _count(self, row: LedgerRow) -> None:
        tally, payload = self._tallies[row.dataset], row.payload
        before = tally.spent
        event = add_spend(tally, row)
        self._spends[row.dataset].add(row.sequence)
        rule = tally.terms.filter
        if rule is not None:
            charge = rule.repaid(event, payload.get("form", "parts"), payload.get("delta", 0.0))
            if payload.get("form") == "everything" and before != NOTHING:
                raise ValueError("not the first spend")
            if _below(row.charged, charge):
                raise LedgerCorruptError(
                    f"row {row.sequence} is charged with less than its event costs: it was added by other means than "
                    "escudo."
                )
        if not tally.within_cap():
            raise LedgerCorruptError(
                f"row {row.sequence} passes the cap of dataset {row.dataset!r}: its spends use "
                f"{percent_up(tally.used())} of ε = {shown_down(tally.terms.epsilon)}. It was added by other means "
                "than escudo."
            )


def _below(recorded: Charge, worth: Charge) -> bool:
    """Return whether a charge is less than it should be, by more than the last digits."""
    if recorded.pure is not None and (worth.pure is None or recorded.pure < worth.pure * _LOOSER):
        return True
    return recorded.renyi < worth.renyi * _LOOSER or recorded.slack < worth.slack * _LOOSER
