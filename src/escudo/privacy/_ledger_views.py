"""What a ledger shows: one account to charge, an account at one moment, the outcome of a check."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from escudo._card import card
from escudo.errors import LedgerCorruptError
from escudo.privacy._account import Receipt
from escudo.privacy._events import Event
from escudo.privacy._guarantee import Guarantee
from escudo.privacy._ledger_chain import AccountRecord
from escudo.privacy._relations import Relation, Unit
from escudo.privacy._tally import Spending, Tally, Terms

if TYPE_CHECKING:
    from escudo.privacy._ledger import Ledger

__all__ = ["AccountInfo", "LedgerAccount", "Verification", "account_info"]


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


class LedgerAccount:
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
