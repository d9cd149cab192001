"""What a ledger's rows add up to: every account's terms and running total, rebuilt row by row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from escudo.errors import LedgerCorruptError, LedgerError, UnsupportedEventError
from escudo.privacy._events import Event
from escudo.privacy._filter import NOTHING, Paid
from escudo.privacy._ledger_chain import GENESIS, LedgerRow, require_follows
from escudo.privacy._tally import Tally, Terms, percent_up, shown_down

__all__ = ["AccountState", "Replay", "require_within_cap", "terms_of", "terms_to_json"]


class AccountState:
    """One account: its terms, its running total, and which rows are its spends."""

    def __init__(self, terms: Terms, opened_at: str):
        self.terms = terms
        self.opened_at = opened_at
        self.tally = Tally(terms)
        self.spends: set[int] = set()
        self.failed: set[int] = set()
        self.not_for_release = 0

    def with_bound(self, row: LedgerRow) -> LedgerRow:
        """Return one of the account's rows with the bound that an event of version 1 was made for."""
        return replace(row, max_rows_per_person=self.terms.max_rows_per_person)


class Replay:
    """The state after a number of rows. ``apply`` takes the next one, and refuses one that does not follow.

    Attributes:
        sequence: Number of rows applied.
        head: Hash of the last of them.
        accounts: State of every account by dataset.
    """

    def __init__(self) -> None:
        self.sequence = 0
        self.head = GENESIS
        self.accounts: dict[str, AccountState] = {}

    def apply(self, row: LedgerRow) -> None:
        """Take the next row.

        Raises:
            LedgerCorruptError: If the row was tampered with, or says what escudo never writes.
            LedgerError: If it holds an event that this version cannot interpret.
        """
        require_follows(row, sequence=self.sequence, head=self.head)
        try:
            self._account_for(row, row.payload)
        except UnsupportedEventError as error:
            raise LedgerError(
                f"row {row.sequence} holds an event that this escudo cannot read ({error}) "
                "A newer escudo may have written it: install that version."
            ) from None
        except (KeyError, TypeError, ValueError, RecursionError):
            raise LedgerCorruptError(f"row {row.sequence} does not say what a row of its kind says.") from None
        self.sequence, self.head = row.sequence, row.hash

    def require_end(self, *, rows: int, head: str) -> None:
        """Raise unless the rows end where the head record says.

        Raises:
            LedgerCorruptError: If rows at the end were removed or added.
        """
        if self.sequence < rows:
            raise LedgerCorruptError(f"row {self.sequence + 1} is missing: the rows at the end were removed.")
        if self.sequence > rows:
            raise LedgerCorruptError(f"row {rows + 1} was added by other means than escudo.")
        if self.head != head:
            raise LedgerCorruptError(f"row {self.sequence} is not the one that the head record names.")

    def _account_for(self, row: LedgerRow, payload: Mapping[str, Any]) -> None:
        if row.kind == "open":
            if row.dataset in self.accounts:
                raise LedgerCorruptError(f"row {row.sequence} opens dataset {row.dataset!r} a second time.")
            terms = terms_of(row.dataset, payload)
            if terms.epsilon is None:
                raise ValueError("no cap")
            self.accounts[row.dataset] = AccountState(terms, row.recorded_at)
            return
        account = self.accounts[row.dataset]
        if row.kind == "spend":
            # Version 1 of an event does not state the bound on a person's rows: the account's was meant.
            event = Event.from_json(payload["event"], max_rows_per_person=account.terms.max_rows_per_person)
            if event != account.terms.admitted(event):
                raise ValueError("recorded for another relation")
            account.tally.add(event, _paid(account.terms, event, payload))
            account.spends.add(row.sequence)
            account.not_for_release += not payload["for_release"]
        else:
            if payload["spend"] not in account.spends or payload["spend"] in account.failed:
                raise ValueError("no such spend, or marked twice")
            account.failed.add(payload["spend"])


def terms_of(dataset: str, payload: Mapping[str, Any]) -> Terms:
    """Return the terms that ``terms_to_json`` wrote; accounts from before there was a choice are planned ones."""
    return Terms(dataset=dataset, **({"spending": "planned"} | payload))


def _paid(terms: Terms, event: Event, payload: Mapping[str, Any]) -> Paid:
    """Return how a recorded spend was charged."""
    if terms.filter is None:
        return Paid(NOTHING)
    form, delta = payload.get("form", "parts"), payload.get("delta", 0.0)
    return Paid(terms.filter.repaid(event, form, delta), form, delta)


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


def require_within_cap(account: AccountState, rows: Iterable[LedgerRow]) -> None:
    """Raise if the spends of an account pass its cap; ``rows`` are those of its dataset.

    Totals only grow, so the last one decides; the first row above the cap is then found by halving.
    """
    if account.tally.within_cap():
        return
    spends = [
        (row.sequence, event, _paid(account.terms, event, row.payload))
        for row in rows
        if (event := account.with_bound(row).event) is not None
    ]
    low, high = 0, len(spends)  # spends[:low] fit, spends[:high] do not
    while high - low > 1:
        middle = (low + high) // 2
        tally = Tally(account.terms)
        for _, event, paid in spends[:middle]:
            tally.add(event, paid)
        low, high = (middle, high) if tally.within_cap() else (low, middle)
    raise LedgerCorruptError(
        f"row {spends[high - 1][0]} passes the cap of dataset {account.terms.dataset!r}: all its spends use "
        f"{percent_up(account.tally.used())} of ε = {shown_down(account.terms.epsilon)}. It was added by other means "
        "than escudo."
    )
