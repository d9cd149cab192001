"""The rows of a ledger, and the chain of hashes that holds them together.

Row n carries ``hash = SHA-256(canonical JSON of [previous, n, kind, dataset, payload, recorded_at])``, where
``previous`` is the hash of row n - 1. Changing, moving, inserting or removing a row therefore breaks the chain at that
row or the next, unless every later hash is computed again. Whoever may write the whole file can do that; only a
fingerprint kept elsewhere (``Ledger.head``) shows it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from escudo.errors import LedgerCorruptError
from escudo.privacy._events import Event

__all__ = ["GENESIS", "KINDS", "Kind", "LedgerRow", "canonical_json", "make_row", "require_follows"]

Kind = Literal["open", "spend", "failed"]
KINDS: tuple[Kind, ...] = ("open", "spend", "failed")

GENESIS = hashlib.sha256(b"escudo ledger, format 1").hexdigest()
"""What the first row follows: the fingerprint of an empty ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One row of the ledger, as it is stored.

    Attributes:
        sequence: 1, 2, 3, ... over all datasets of the ledger.
        kind: ``open`` (an account and its terms), ``spend`` (an event), ``failed`` (a mark on an earlier spend, which
            stays spent).
        dataset: Name of the account.
        text: The payload as canonical JSON, exactly as it was hashed.
        recorded_at: Time in ISO 8601, UTC.
        previous: Hash of the row before.
        hash: Hash of this row.
        max_rows_per_person: The account's bound on one person's rows, for events that were recorded without it.
    """

    sequence: int
    kind: Kind
    dataset: str
    text: str
    recorded_at: str
    previous: str
    hash: str
    max_rows_per_person: int | None = field(default=None, compare=False, repr=False)

    @property
    def payload(self) -> Mapping[str, Any]:
        """What the row says, as JSON values: terms, an event with its purpose, or the spend that failed."""
        return cast(Mapping[str, Any], json.loads(self.text))

    @property
    def event(self) -> Event | None:
        """The recorded event, or None for a row that is no spend."""
        if self.kind != "spend":
            return None
        return Event.from_json(self.payload["event"], max_rows_per_person=self.max_rows_per_person)

    def as_stored(self) -> dict[str, Any]:
        """Return the row as JSON values, with the payload as the exact text that was hashed; also of a broken row."""
        stored = self._with(self.text)
        # A broken ledger may hold what JSON cannot.
        return {name: value if isinstance(value, str | int) else repr(value) for name, value in stored.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON values, with the payload read."""
        return self._with(self.payload)

    def _with(self, payload: object) -> dict[str, Any]:
        return {
            "sequence": self.sequence,
            "kind": self.kind,
            "dataset": self.dataset,
            "recorded_at": self.recorded_at,
            "payload": payload,
            "previous": self.previous,
            "hash": self.hash,
        }


def canonical_json(value: object) -> str:
    """Return the one text that stands for a JSON value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def make_row(
    *, previous: str, sequence: int, kind: Kind, dataset: str, payload: Mapping[str, Any], recorded_at: str
) -> LedgerRow:
    """Return the row that follows the one with hash ``previous``."""
    text = canonical_json(payload)
    return LedgerRow(
        sequence=sequence,
        kind=kind,
        dataset=dataset,
        text=text,
        recorded_at=recorded_at,
        previous=previous,
        hash=_hash(previous, sequence, kind, dataset, text, recorded_at),
    )


def require_follows(row: LedgerRow, *, sequence: int, head: str) -> None:
    """Raise unless ``row`` is whole and follows the row ``sequence``, whose hash is ``head``.

    Raises:
        LedgerCorruptError: Names the row.
    """
    n = sequence + 1
    if row.sequence != n:
        raise LedgerCorruptError(f"row {n} is missing: it was removed, or given another number.")
    texts = (row.kind, row.dataset, row.text, row.recorded_at)
    # A database file edited by hand may hold any type in any column.
    if row.kind not in KINDS or not all(isinstance(value, str) for value in (*texts, row.previous, row.hash)):
        raise LedgerCorruptError(f"row {n} was edited: it is no row that escudo writes.")
    if row.hash != _hash(row.previous, n, *texts):
        raise LedgerCorruptError(f"row {n} was edited or moved: its contents do not have its hash.")
    if row.previous != head:
        raise LedgerCorruptError(
            f"row {n} does not follow row {sequence}: one of the two was inserted, replaced or moved."
        )


def _hash(*parts: object) -> str:
    # Lone surrogates cannot be encoded; a row that holds one was not written here, so any hash that differs will do.
    return hashlib.sha256(canonical_json(parts).encode(errors="backslashreplace")).hexdigest()
