"""What a ledger's rows add up to: how each row changes its account, and every row checked again from the first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from escudo.errors import LedgerCorruptError, LedgerError, UnsupportedEventError
from escudo.privacy import _trainings as trainings
from escudo.privacy._events import Event
from escudo.privacy._filter import NOTHING, Charge, Paid
from escudo.privacy._ledger_chain import (
    FIRST_GENESIS,
    AccountRecord,
    LedgerRow,
    canonical_json,
    genesis,
    require_whole,
    state_of,
)
from escudo.privacy._tally import Tally, Terms, percent_up, shown_down

__all__ = ["Replay", "add_spend", "after_row", "terms_of", "terms_to_json"]

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
        ValueError: Or KeyError or TypeError, if the row does not say what a row of its kind says.
        LedgerCorruptError: If it opens an account a second time.
    """
    payload = row.payload
    if row.kind == "open":
        if account is not None:
            raise LedgerCorruptError(f"row {row.sequence} opens dataset {row.dataset!r} a second time.")
        terms = canonical_json(payload)
        if terms_of(row.dataset, terms).epsilon is None:
            raise ValueError("no cap")
        return AccountRecord(
            dataset=row.dataset,
            opened=row.sequence,
            opened_at=row.recorded_at,
            last=row.sequence,
            terms=terms,
        )
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
    return replace(account, trainings=trainings.after(account.trainings, row.kind, payload))


def add_spend(tally: Tally, row: LedgerRow) -> None:
    """Count a recorded spend, as it was charged.

    Raises:
        UnsupportedEventError: If its event cannot be read.
        ValueError: If it was recorded for other neighbours than the account's.
    """
    terms = tally.terms
    event = Event.from_json(row.payload["event"], max_rows_per_person=terms.max_rows_per_person)
    if event != terms.admitted(event):
        raise ValueError("recorded for another relation")
    tally.add(event, Paid(row.charged))


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
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
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
        add_spend(tally, row)
        self._spends[row.dataset].add(row.sequence)
        rule = tally.terms.filter
        if rule is not None:
            event = Event.from_json(payload["event"], max_rows_per_person=tally.terms.max_rows_per_person)
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
