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
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from escudo.errors import LedgerCorruptError
from escudo.privacy._events import Event
from escudo.privacy._filter import NOTHING, Charge

__all__ = [
    "FIRST_GENESIS",
    "KINDS",
    "AccountRecord",
    "Kind",
    "LedgerRow",
    "canonical_json",
    "charge_text",
    "genesis",
    "make_row",
    "require_whole",
    "state_of",
]

Kind = Literal["open", "spend", "failed", "upgrade", "mark", "resume", "finish"]
KINDS: tuple[Kind, ...] = get_args(Kind)

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
        names = ("sequence", "kind", "dataset", "charge", "state", "recorded_at", "previous", "hash")
        return LedgerRow(text=stored["payload"], **{name: stored[name] for name in names})

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON values, with the payload read."""
        return self._with(self.payload)

    def _with(self, payload: object) -> dict[str, Any]:
        return {
            "sequence": self.sequence,
            "kind": self.kind,
            "dataset": self.dataset,
            "payload": payload,
            "charge": self.charge,
            "state": self.state,
            "recorded_at": self.recorded_at,
            "previous": self.previous,
            "hash": self.hash,
        }


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

    @property
    def digest(self) -> str:
        """Digest of everything above."""
        pure, renyi, slack = self.spent
        return _hash(
            self.dataset,
            self.opened,
            self.opened_at,
            self.last,
            self.terms,
            None if pure is None else str(pure),
            str(renyi),
            str(slack),
            self.spends,
            self.failed,
            self.not_for_release,
            self.trainings,
        )


def state_of(digests: Mapping[str, str]) -> str:
    """Return the digest of all accounts, from the digest of each by dataset."""
    return hashlib.sha256("".join(digests[name] for name in sorted(digests)).encode()).hexdigest()


def canonical_json(value: object) -> str:
    """Return the one text that stands for a JSON value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def charge_text(charge: Charge) -> str:
    """Return a charge as a row keeps it: numbers as text, because they are larger than other readers of JSON expect."""
    return canonical_json([None if part is None else str(part) for part in charge])


def make_row(
    *,
    previous: str,
    sequence: int,
    kind: Kind,
    dataset: str,
    payload: Mapping[str, Any],
    charge: Charge | None,
    state: str,
    recorded_at: str,
) -> LedgerRow:
    """Return the row that follows the one with hash ``previous``."""
    text = canonical_json(payload)
    charged = "" if charge is None else charge_text(charge)
    return LedgerRow(
        sequence=sequence,
        kind=kind,
        dataset=dataset,
        text=text,
        charge=charged,
        state=state,
        recorded_at=recorded_at,
        previous=previous,
        hash=_row_hash(previous, sequence, kind, dataset, text, charged, state, recorded_at),
    )


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
