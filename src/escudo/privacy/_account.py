"""What a mechanism charges: the ``Account`` protocol, the receipt it gives, and an account in memory.

A mechanism calls ``spend`` with its event *before* it draws noise; when ``spend`` returns, the event is recorded for
good. If the release then fails, ``fail`` marks it, and it stays spent.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, Unpack, runtime_checkable

from escudo.errors import EscudoError, InputError, RefusedError
from escudo.privacy import _trainings as trainings
from escudo.privacy._events import Event
from escudo.privacy._guarantee import Guarantee
from escudo.privacy._relations import NeighbourOptions, Relation, Unit
from escudo.privacy._tally import Cap, Spending, Tally, Terms, admitted

MAX_TEXT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Proof that an event was recorded before its release.

    Attributes:
        dataset: Name of the account; empty for an account in memory.
        sequence: Number of the row in the ledger, or of the spend in memory.
        event: The event as recorded, stated for the account's relation.
        purpose: Why it was spent.
        for_release: False for a seeded run, whose results must not be published.
        recorded_at: Time in ISO 8601, UTC.
        hash: Hash of the ledger's row, or empty for an account in memory.
        ledger_id: Which ledger it is in; empty for an account in memory.
    """

    dataset: str
    sequence: int
    event: Event
    purpose: str = ""
    for_release: bool = True
    recorded_at: str
    hash: str = ""
    ledger_id: str = ""

    @property
    def anchor(self) -> dict[str, str | int] | None:
        """The ledger just after this spend, as ``Ledger.anchor`` says it, to keep elsewhere; None in memory."""
        return {"ledger_id": self.ledger_id, "rows": self.sequence, "head": self.hash} if self.ledger_id else None


@runtime_checkable
class Account(Protocol):
    """What a mechanism charges."""

    @property
    def relation(self) -> Relation:
        """Which tables are neighbours."""

    @property
    def unit(self) -> Unit:
        """Whose data differs between them."""

    @property
    def max_rows_per_person(self) -> int | None:
        """Bound on one person's rows, for unit ``person``."""

    def spend(self, event: Event, *, purpose: str = "", for_release: bool = True) -> Receipt:
        """Record ``event`` for good, before its release; or raise BudgetExceededError and change nothing."""

    def fail(self, receipt: Receipt, reason: str = "") -> None:
        """Mark a recorded spend as failed; it stays spent."""


@runtime_checkable
class MarkingAccount(Account, Protocol):
    """An account that also knows the checkpoints of trainings, so that a copy of one buys nothing.

    Ledgers' accounts are such, and accounts in memory for as long as their process lasts. ``_trainings`` has the rules.
    """

    def receipt(self, sequence: int) -> Receipt:
        """Return the receipt of a recorded spend."""

    def mark(self, receipt: Receipt, number: int, digest: str, *, nonce: str = "") -> None:
        """Record a checkpoint of a training, before its file gets its name."""

    def marked(self, receipt: Receipt, number: int, digest: str) -> bool:
        """Return whether a file was ever a checkpoint of the training."""

    def goes_on(self, receipt: Receipt, number: int, digest: str) -> bool:
        """Return whether ``resume`` would let a training go on from a file now."""

    def resume(self, receipt: Receipt, number: int, digest: str) -> str:
        """Record that a training goes on from its newest checkpoint, once; return the nonce that its end must show."""

    def finish(self, receipt: Receipt, *, nonce: str = "") -> None:
        """Record that a training ends, before its result leaves; once."""


class AgreedAccount:
    """An account by what was agreed when it was opened: an ``Account`` says between which tables it is kept.

    Attributes:
        terms: What was agreed.
    """

    terms: Terms

    @property
    def relation(self) -> Relation:
        """Which tables are neighbours."""
        return self.terms.relation

    @property
    def unit(self) -> Unit:
        """Whose data differs between them."""
        return self.terms.unit

    @property
    def max_rows_per_person(self) -> int | None:
        """Bound on one person's rows, for unit ``person``."""
        return self.terms.max_rows_per_person


class MemoryAccount(AgreedAccount):
    """An account for a table without a ledger: it is gone when the process ends, and says so.

    Args:
        epsilon: Cap on everything that is ever spent; None for no cap.
        delta: The δ of the cap.
        spending: ``"adaptive"`` or ``"planned"``, see ``Ledger.open``.
        slack_share: See ``Ledger.open``.
        order: See ``Ledger.open``.
        neighbours: The ``relation``, ``unit`` and, for persons, ``max_rows_per_person``, see ``Ledger.open``.

    >>> account = MemoryAccount(epsilon=1.0)
    >>> account
    in-memory account (not recorded anywhere): 0 spends, cap ε = 1.00, replace one row
    """

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        delta: float = 0.0,
        spending: Spending = "adaptive",
        slack_share: float | None = None,
        order: float | Event | None = None,
        **neighbours: Unpack[NeighbourOptions],
    ):
        cap = Cap(epsilon, delta, slack_share)
        self.terms = Terms.agreed(order, cap, dataset="", spending=spending, **neighbours)
        self._tally = Tally(self.terms)
        self._receipts: list[Receipt] = []
        self._failed: dict[int, str] = {}
        self._trainings, self._marks = "{}", set[tuple[int, int, str]]()
        self._lock = threading.Lock()
        self._given_up = False

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Every spend so far, in order."""
        with self._lock:
            return tuple(self._receipts)

    @property
    def failed(self) -> dict[int, str]:
        """The spends that were marked failed: sequence number and reason."""
        with self._lock:
            return dict(self._failed)

    def spend(self, event: Event | Guarantee, *, purpose: str = "", for_release: bool = True) -> Receipt:
        """Count ``event``, before its release.

        Raises:
            BudgetExceededError: If the cap does not allow it; nothing is changed.
            InputError: If the event is stated for another unit, or for a relation that says nothing here.
        """
        fact, public = admitted(event, self.terms, for_release)
        with self._lock:
            self._require_kept()
            paid = self._tally.require(fact)
            receipt = Receipt(
                dataset="",
                sequence=len(self._receipts) + 1,
                event=fact,
                purpose=one_line("purpose", purpose),
                for_release=public,
                recorded_at=now(),
            )
            self._tally.add(fact, paid)
            self._receipts.append(receipt)
        return receipt

    def give_up(self) -> None:
        """Note that the table is about to be read without privacy: from here on no sum of spends would be true.

        Nothing can be spent afterwards, as an account says what everything together promises. Only an account in memory
        can be given up: a ledger's promise was made for good.

        Raises:
            RefusedError: If there is a cap, or something was spent: that promise would be broken.
        """
        with self._lock:
            if self.terms.epsilon is not None or self._receipts:
                why = "has a cap" if self.terms.epsilon is not None else "has been charged"
                raise RefusedError(
                    f"The table's account {why}, so a promise was made to the people in it: it cannot be read without "
                    "privacy. Nothing was read."
                )
            self._given_up = True

    def _require_kept(self) -> None:
        if self._given_up:
            raise RefusedError(
                "This table was read without privacy before, so nothing that is charged now would be a true sum. Make "
                "another PrivateTable for private questions, and publish nothing of what was made without privacy."
            )

    def fail(self, receipt: Receipt, reason: str = "") -> None:
        """Mark a spend as failed; it stays spent."""
        with self._lock:
            self._require_own(receipt)
            self._failed.setdefault(receipt.sequence, one_line("reason", reason))

    def receipt(self, sequence: int) -> Receipt:
        """Return the receipt of a spend; see ``Ledger.receipt``."""
        with self._lock:
            if not isinstance(sequence, int) or not 0 < sequence <= len(self._receipts):
                raise InputError(f"This in-memory account has no spend {sequence!r:.30}.")
            return self._receipts[sequence - 1]

    def mark(self, receipt: Receipt, number: int, digest: str, *, nonce: str = "") -> None:
        """Note a checkpoint of a training; see ``Ledger.mark``."""
        with self._lock:
            self._require_own(receipt)
            self._trainings = trainings.marked(self._trainings, receipt.sequence, number, digest, nonce)
            self._marks.add((receipt.sequence, number, digest))

    def marked(self, receipt: Receipt, number: int, digest: str) -> bool:
        """Return whether a file was ever a checkpoint of the training; see ``Ledger.marked``."""
        with self._lock:
            self._require_own(receipt)
            return (receipt.sequence, number, digest) in self._marks

    def goes_on(self, receipt: Receipt, number: int, digest: str) -> bool:
        """Return whether ``resume`` would let a training go on from a file now; see ``Ledger.goes_on``."""
        with self._lock:
            self._require_own(receipt)
            return trainings.goes_on(self._trainings, receipt.sequence, number, digest)

    def resume(self, receipt: Receipt, number: int, digest: str) -> str:
        """Note that a training goes on from its newest checkpoint; see ``Ledger.resume``."""
        nonce = secrets.token_hex(16)
        with self._lock:
            self._require_own(receipt)
            self._trainings = trainings.resumed(self._trainings, receipt.sequence, number, digest, nonce)
        return nonce

    def finish(self, receipt: Receipt, *, nonce: str = "") -> None:
        """Note that a training ends, before its result leaves; see ``Ledger.finish``."""
        with self._lock:
            self._require_own(receipt)
            self._trainings = trainings.finished(self._trainings, receipt.sequence, nonce)

    def _require_own(self, receipt: Receipt) -> None:
        if not (0 < receipt.sequence <= len(self._receipts) and self._receipts[receipt.sequence - 1] == receipt):
            raise InputError("The receipt is not of this in-memory account; pass what its spend returned.")

    def fits(self, event: Event | Guarantee) -> bool:
        """Return whether ``spend(event)`` would be allowed."""
        fact, _ = admitted(event, self.terms)
        with self._lock:
            return self._tally.fits(fact)

    def total(self, delta: float | None = None) -> Guarantee:
        """Return what all spends would promise together had their amounts been settled before the first release.

        It is stated at ``delta``, or at the account's δ. Where amounts were chosen on the way, only the cap is promised
        (``terms.promise``).

        Raises:
            InputError: If no finite ε holds at that δ, such as for Gaussian noise at δ = 0.
            RefusedError: If the table was read without privacy.
        """
        with self._lock:
            self._require_kept()
            return self._tally.total(delta)

    def used(self) -> float:
        """Return the part of the budget that is used, from 0 to 1; 0 where there is no cap."""
        with self._lock:
            return self._tally.used()

    def remaining(self) -> Guarantee | None:
        """Return the largest pure spend that still fits, or None where there is no cap."""
        with self._lock:
            return None if self.terms.epsilon is None else self._tally.remaining()

    def __repr__(self) -> str:
        count = len(self._receipts)
        read = ", given up: the table was read without privacy" if self._given_up else ""
        return f"in-memory account (not recorded anywhere): {count} spend{'s' * (count != 1)}, {self.terms}{read}"


@contextmanager
def marked_if_failed(account: Account, receipt: Receipt | None) -> Iterator[None]:
    """Mark a spend as failed if the block raises, by the kind of the error only: its message may hold private values.

    Args:
        account: What was charged.
        receipt: The spend; None if there was none.
    """
    try:
        yield
    except BaseException as error:
        if receipt is not None:
            try:
                account.fail(receipt, type(error).__name__)
            except EscudoError as other:
                error.add_note(f"The spend could not be marked as failed in the account: {other}")
        raise


def now() -> str:
    """Return the time in ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def one_line(name: str, text: str) -> str:
    """Return ``text`` as one printable line of bounded length, as it is recorded."""
    if not isinstance(text, str):
        raise InputError(f"{name} must be text; got {type(text).__name__}.")
    line = "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
    return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 1] + "…"
