"""The ledger: who spent what on which dataset, durable, refusing, and checkable.

Every account has a cap (ε, δ), a relation and a unit. ``spend`` records an event *before* any noise is drawn, in one
transaction that also checks the cap, so two processes cannot both spend the last ε, and a process killed at any moment
never leaves a release that is not counted. Rows are only ever added. A spend whose release failed stays spent and is
marked failed. A seeded run counts too: whoever runs it sees the data, even though its results are not for release.

**A spend**, whose time does not depend on how many rows there are: read the witness; lock; check what hangs on the
tables, the last row, the head and the accounts against each other, and that the last row of the witness is still there;
admit by the filter; add the row and commit; read row, account and head back in a new transaction; write the row to the
witness; only then give the receipt. A crash before the last step leaves a spend that is counted and released nothing.

**What ``verify`` finds.** Rows are chained by hash, and each says what all accounts come to after it, so an edited,
removed, reordered or inserted row, an edited account and a missing end are found, and the first such row is named. An
older copy of the whole ledger is found by what this machine's witness has seen. Someone who may write database and
witness can compute *all* hashes again; that is only found by comparing with a fingerprint kept elsewhere: note
``ledger.head``, and pass it to ``verify(expected_head=...)`` later. A ledger that has grown since still holds it.
"""

from __future__ import annotations

import html
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from escudo._validate import positive
from escudo.errors import InputError, LedgerError
from escudo.privacy import _trainings as trainings
from escudo.privacy._account import Receipt, one_line
from escudo.privacy._events import Event
from escudo.privacy._guarantee import Guarantee
from escudo.privacy._ledger_book import (
    AccountInfo,
    Keeping,
    LedgerAccount,
    account_info,
    checked_name,
    require_no_twin,
)
from escudo.privacy._ledger_chain import AccountRecord, Kind, LedgerRow, terms_of, terms_to_json
from escudo.privacy._relations import NeighbourOptions
from escudo.privacy._tally import Cap, Spending, Terms, admitted, percent_up, shown_down

if TYPE_CHECKING:
    from escudo.privacy._ledger_store import Session


class Ledger(Keeping):
    """An append-only account per dataset, in a SQLite file or a PostgreSQL database.

    The database is not touched before it is needed, and only ``open`` creates one. One ledger may be used by many
    threads and processes, also across a fork.

    Args:
        url: ``sqlite:///relative/path.db``, ``sqlite:////absolute/path.db``, or ``postgresql://user:password@host/name``
            (which needs ``pip install 'escudo[postgresql]'``). Keep a SQLite ledger on a local disk: its locks do not
            hold on most network file systems.
        timeout: Seconds that a call waits while other processes and threads write, all together.

    Raises:
        LedgerError: If the URL is not usable.

    >>> import tempfile; folder = tempfile.TemporaryDirectory()
    >>> from escudo.privacy import PureEvent
    >>> with Ledger(f"sqlite:///{folder.name}/ledger.db") as ledger:
    ...     account = ledger.open("visits", epsilon=1.0)
    ...     receipt = ledger.spend("visits", PureEvent(epsilon=0.25), purpose="a count")
    ...     ledger.remaining("visits").epsilon, ledger.verify().ok
    (0.75, True)
    >>> folder.cleanup()
    """

    # -- accounts

    def open(
        self,
        dataset: str,
        *,
        epsilon: float,
        delta: float = 0.0,
        spending: Spending = "adaptive",
        slack_share: float | None = None,
        order: float | Event | None = None,
        **neighbours: Unpack[NeighbourOptions],
    ) -> LedgerAccount:
        """Open an account, or return the one that was opened with the same terms.

        Args:
            dataset: Name of the account: printable, at most 200 characters. It is kept in Unicode's form NFKC with
                single spaces, and every method takes it in any form; a name that people would take for that of another
                account, such as ``Visits`` beside ``visits``, is refused.
            epsilon: Cap on the loss of all releases together, whenever they are made.
            delta: The δ of the cap; 0 admits pure-ε releases only.
            spending: ``"adaptive"``: the cap holds also where releases decide what is asked next and how much; spends
                are admitted by a Rényi filter. ``"planned"``: spends are admitted while the best accountant's total is
                within the cap, which then holds only if every amount is settled before the first release.
            slack_share: With adaptive spending: the share of δ for mechanisms that have a δ of their own, such as
                propose-test-release; 0.5 by default.
            order: With adaptive spending: the order of Rényi divergence; by default the best one for Gaussian noise. An
                event, such as ``plan.event``, asks for the order under which most of it fits.
            neighbours: The ``relation``, ``"replace_one"`` (one record changes; the default) or ``"add_remove"``; the
                ``unit``, ``"row"`` by default, or ``"person"`` together with ``max_rows_per_person``, the bound on one
                person's rows (:class:`~escudo.privacy.NeighbourOptions`).

        Raises:
            InputError: If a term is out of range, the dataset has an account with other terms, or the name looks like
                that of another account.
            LedgerError: If the database cannot be written.
        """
        name = checked_name(dataset)
        cap = Cap(positive("epsilon", epsilon), delta, slack_share)
        terms = Terms.agreed(order, cap, dataset=name, spending=spending, **neighbours)
        if not self._store.exists():
            self._store.witness.require_known(None)
        self._store.create()
        with self._writing() as session:
            known = session.accounts.get(name)
            if known is None:
                require_no_twin(name, session.accounts)
                self._append(session, "open", name, terms_to_json(terms))
            elif terms_of(name, known.terms) != terms:
                raise InputError(
                    f"Dataset {name!r} has an account already, with other terms: {terms_of(name, known.terms)} (opened "
                    f"{known.opened_at[:10]}). The terms of an account never change. Use it as it is, or choose "
                    "another name."
                )
        return LedgerAccount(self, terms)

    def account(self, dataset: str) -> LedgerAccount:
        """Return the account of a dataset.

        Raises:
            InputError: If the dataset has none.
        """
        with self._reading() as session:
            return LedgerAccount(self, self._terms(session, dataset))

    def datasets(self) -> list[AccountInfo]:
        """Return every account with what is spent and left, in the order of opening."""
        with self._reading() as session:
            records = sorted(session.accounts.values(), key=lambda record: record.opened)
            return [account_info(record, self._tally(session, record)) for record in records]

    def info(self, dataset: str) -> AccountInfo:
        """Return one account with what is spent and left."""
        with self._reading() as session:
            record = self._account(session, dataset)
            return account_info(record, self._tally(session, record))

    # -- spending

    def spend(self, dataset: str, event: Event | Guarantee, *, purpose: str = "", for_release: bool = True) -> Receipt:
        """Record an event on disk, before its release; when this returns, it is spent.

        Args:
            dataset: Name of the account.
            event: What is about to be released. An ``add_remove`` event on a ``replace_one`` account is recorded as the
                ``replace_one`` event that it implies.
            purpose: Why, in one line of at most 500 characters.
            for_release: False for a seeded run; it counts all the same.

        Raises:
            BudgetExceededError: If the cap does not allow it; nothing is changed.
            InputError: If the dataset has no account, or the event says nothing about the account's neighbours.
            LedgerError: If the database cannot be written; then nothing must be released.
        """
        purpose = one_line("purpose", purpose)
        left = self._prepare(dataset, event)
        with self._writing(time.monotonic() + left) as session:
            record = self._account(session, dataset)
            fact, public = admitted(event, terms_of(record.dataset, record.terms), for_release)
            paid, row = self._pay(session, record, fact), None
            if paid is not None:
                payload: dict[str, Any] = {"event": fact.to_json(), "purpose": purpose, "for_release": public}
                if (relation := getattr(event, "relation", None)) != fact.relation:
                    payload["converted_from"] = relation
                if paid.form != "parts":
                    payload |= {"form": paid.form, "delta": paid.delta}
                row = self._append(session, "spend", record.dataset, payload, paid)
        if row is None:
            with self._reading() as session:  # the refusal's words need every spend; nobody waits for them
                self._tally(session, self._account(session, dataset)).refuse(fact)
        return _receipt(row, fact, session.ledger_id)

    def _prepare(self, dataset: str, event: Event | Guarantee) -> float:
        """Work out beforehand, and keep, what takes long about a spend: nobody is to wait for it.

        Returns:
            How many seconds may still be waited for others; working takes none of them.
        """
        with self._store.held() as deadline:
            left = deadline - time.monotonic()
            record = self._known.get(dataset)
            if record is None or terms_of(record.dataset, record.terms).filter is None:
                with self._reading() as session:
                    record = self._account(session, dataset)
                    terms = terms_of(record.dataset, record.terms)
                    tally = self._tally(session, record) if terms.filter is None else None
            else:
                terms, tally = terms_of(record.dataset, record.terms), None
        fact, _ = admitted(event, terms)
        if tally is not None:
            tally.pay(fact)
        elif terms.filter is not None:
            terms.filter.pay(fact, record.spent)
        return left

    def fail(self, receipt: Receipt, reason: str = "") -> None:
        """Mark a spend as failed; it stays spent. Marking it again changes nothing.

        Args:
            receipt: What ``spend`` returned.
            reason: Why, in one line. Never pass a value from the data.

        Raises:
            InputError: If the receipt is not of this ledger.
        """
        reason = one_line("reason", reason)
        with self._writing() as session:
            record = self._account_of(session, receipt)
            marked = session.rows(receipt.sequence, record.dataset, "failed")
            if all(row.payload["spend"] != receipt.sequence for row in marked):
                self._append(session, "failed", record.dataset, {"spend": receipt.sequence, "reason": reason})

    def _account_of(self, session: Session, receipt: Receipt) -> AccountRecord:
        """Return the account that a spend was recorded in."""
        record, spend = self._account(session, receipt.dataset), session.row(receipt.sequence)
        if spend is None or (spend.hash, spend.dataset, spend.kind) != (receipt.hash, record.dataset, "spend"):
            raise InputError(
                f"The receipt (row {receipt.sequence}) is not of this ledger; pass what its spend returned."
            )
        return record

    # -- trainings that are kept in files

    def receipt(self, dataset: str, sequence: int) -> Receipt:
        """Return the receipt of a recorded spend, such as one whose process has ended.

        Raises:
            InputError: If the row is no spend of this account.
        """
        with self._reading() as session:
            record = self._account(session, dataset)
            row = session.row(sequence) if isinstance(sequence, int) else None
            if row is None or row.kind != "spend" or row.dataset != record.dataset:
                raise InputError(f"Row {sequence!r:.30} of this ledger is no spend of dataset {record.dataset!r}.")
            bound = terms_of(record.dataset, record.terms).max_rows_per_person
            event = replace(row, max_rows_per_person=bound).event
            assert event is not None, "a spend has an event"
            return _receipt(row, event, session.ledger_id)

    def mark(self, receipt: Receipt, number: int, digest: str, *, nonce: str = "") -> None:
        """Record a checkpoint of a training before its file gets its name; only the newest can be resumed, once.

        Args:
            receipt: The training's spend.
            number: Which checkpoint it is: larger than those before.
            digest: SHA-256 of the file.
            nonce: What ``resume`` gave, if the training was resumed.

        Raises:
            InputError: If the training is finished, was resumed elsewhere, or has this mark already.
        """
        self._note("mark", receipt, {"number": number, "digest": digest, "nonce": nonce})

    def _note(self, kind: Kind, receipt: Receipt, facts: dict[str, Any]) -> None:
        """Record something about a spend."""
        with self._writing() as session:
            dataset = self._account_of(session, receipt).dataset
            self._append(session, kind, dataset, {"spend": receipt.sequence} | facts)

    def goes_on(self, receipt: Receipt, number: int, digest: str) -> bool:
        """Return whether ``resume`` would let a training go on from a file now; nothing is recorded.

        Args:
            receipt: The training's spend.
            number: Which checkpoint.
            digest: SHA-256 of its file.

        Raises:
            InputError: If the receipt is not of this ledger.
        """
        with self._reading() as session:
            known = self._account_of(session, receipt).trainings
            return trainings.goes_on(known, receipt.sequence, number, digest)

    def resume(self, receipt: Receipt, number: int, digest: str) -> str:
        """Record that a training goes on from a checkpoint, and return the nonce that its end must show.

        Args:
            receipt: The training's spend; see :meth:`receipt`.
            number: Which checkpoint.
            digest: SHA-256 of its file.

        Raises:
            InputError: If it is not the newest checkpoint, was resumed before, or the training is finished: going on
                would release what was paid for once a second time.
        """
        nonce = secrets.token_hex(16)
        self._note("resume", receipt, {"number": number, "digest": digest, "nonce": nonce})
        return nonce

    def marked(self, receipt: Receipt, number: int, digest: str) -> bool:
        """Return whether this file was ever a checkpoint of the training: its state was paid for.

        Args:
            receipt: As in :meth:`goes_on`, and so for both that follow.
            number: Which checkpoint.
            digest: Of its file.

        Raises:
            InputError: If the receipt is not of this ledger.
        """
        wanted = {"spend": receipt.sequence, "number": number, "digest": digest}
        with self._reading() as session:
            dataset = self._account_of(session, receipt).dataset
            rows = session.rows(receipt.sequence, dataset, "mark")
            return any({name: row.payload[name] for name in wanted} == wanted for row in rows)

    def finish(self, receipt: Receipt, *, nonce: str = "") -> None:
        """Record that a training ends, before its result leaves; once for each spend.

        Args:
            receipt: The training's spend.
            nonce: What the last ``resume`` gave, if the training was resumed.

        Raises:
            InputError: If it is finished already, or was resumed elsewhere: then the result must not leave.
        """
        self._note("finish", receipt, {"nonce": nonce})

    def fits(self, dataset: str, event: Event | Guarantee) -> bool:
        """Return whether ``spend(dataset, event)`` would be allowed now."""
        with self._reading() as session:
            record = self._account(session, dataset)
            fact, _ = admitted(event, terms_of(record.dataset, record.terms))
            return self._pay(session, record, fact) is not None

    def asked(self, dataset: str, event: Event | Guarantee) -> float:
        """Return the part of the budget that ``spend(dataset, event)`` would ask for; may be above 1, or infinite."""
        with self._reading() as session:
            tally = self._tally(session, self._account(session, dataset))
            return tally.asked(admitted(event, tally.terms)[0])

    def total(self, dataset: str) -> Guarantee:
        """Return what all spends would promise together, at the account's δ, had amounts been settled beforehand.

        Where amounts were chosen on the way, only the cap is promised: ``info(dataset).promise`` says it.
        """
        return self.info(dataset).total

    def remaining(self, dataset: str) -> Guarantee:
        """Return the largest pure spend that fits."""
        return self.info(dataset).remaining

    # -- looking and checking

    @property
    def head(self) -> str:
        """Fingerprint of everything recorded so far. Keep it elsewhere, and give it to ``verify`` later."""
        with self._reading() as session:
            return session.head

    @property
    def anchor(self) -> dict[str, Any]:
        """What to keep elsewhere, so that an older or another ledger is noticed: its id, number of rows and head."""
        with self._reading() as session:
            return {"ledger_id": session.ledger_id, "rows": session.rows_recorded, "head": session.head}

    def history(self, dataset: str | None = None) -> list[LedgerRow]:
        """Return the rows of one dataset, or of all, in order."""
        with self._reading() as session:
            if dataset is not None:
                dataset = self._account(session, dataset).dataset
            bounds = {
                name: terms_of(name, record.terms).max_rows_per_person for name, record in session.accounts.items()
            }
            found = session.rows(dataset=dataset)
            return [replace(row, max_rows_per_person=bounds.get(row.dataset)) for row in found]

    def close(self) -> None:
        """Close the connections; the next use opens new ones."""
        self._store.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self.name!r})"

    def _repr_html_(self) -> str:
        try:
            accounts = self.datasets()
        except LedgerError as error:
            return f"<p>{html.escape(str(error))}</p>"
        rows = "".join(
            f"<tr><td>{html.escape(info.dataset)}</td><td>{shown_down(info.cap.epsilon)}</td>"
            f"<td>{percent_up(info.used)}</td><td>{shown_down(info.remaining.epsilon)}</td>"
            f"<td>{info.spends}</td></tr>"
            for info in accounts
        )
        head = "<tr><th>dataset</th><th>cap ε</th><th>used</th><th>left (pure ε)</th><th>spends</th></tr>"
        return f"<table><caption>{html.escape(repr(self))}</caption>{head}{rows}</table>"


def _receipt(row: LedgerRow, event: Event, ledger_id: str) -> Receipt:
    """Return the receipt of a spend, by its row."""
    payload = row.payload
    return Receipt(
        dataset=row.dataset,
        sequence=row.sequence,
        event=event,
        purpose=payload["purpose"],
        for_release=payload["for_release"],
        recorded_at=row.recorded_at,
        hash=row.hash,
        ledger_id=ledger_id,
    )
