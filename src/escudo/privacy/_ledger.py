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
import json
import os
import re
import secrets
import shlex
import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escudo._validate import did_you_mean, positive
from escudo.errors import InputError, LedgerCorruptError, LedgerError, UnsupportedEventError
from escudo.privacy import _trainings as trainings
from escudo.privacy._account import Receipt, now, one_line
from escudo.privacy._events import Event
from escudo.privacy._filter import Paid
from escudo.privacy._guarantee import Guarantee
from escudo.privacy._ledger_chain import AccountRecord, Kind, LedgerRow, canonical_json, charge_text, require_whole
from escudo.privacy._ledger_replay import Replay, add_spend, after_row, terms_of, terms_to_json
from escudo.privacy._ledger_views import AccountInfo, LedgerAccount, Verification, account_info
from escudo.privacy._ledger_witness import Seen
from escudo.privacy._relations import Unit
from escudo.privacy._tally import Spending, Tally, Terms, percent_up, shown_down, stated, tuned_order

if TYPE_CHECKING:
    from escudo.privacy._ledger_store import Session

__all__ = ["AccountInfo", "Ledger", "LedgerAccount", "LedgerRow", "Verification"]

MAX_NAME = 200


class Ledger:
    """An append-only account per dataset, in a SQLite file or a PostgreSQL database.

    The database is not touched before it is needed, and only ``open`` creates one. One ledger may be used by many
    threads and processes, also across a fork.

    Args:
        url: ``sqlite:///relative/path.db``, ``sqlite:////absolute/path.db``, or ``postgresql://user:password@host/name``
            (which needs ``pip install 'escudo[postgresql]'``). Keep a SQLite ledger on a local disk: its locks do not
            hold on most network file systems.
        timeout: Seconds to wait while another process writes.

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

    def __init__(self, url: str = "sqlite:///escudo-ledger.db", *, timeout: float = 30.0):
        from escudo.privacy._ledger_store import Store  # here, because SQLAlchemy is slow to import

        self._store = Store(url, timeout=positive("timeout", timeout))
        self._ledger_id: str | None = None
        self._seen: dict[str, Seen] = {}  # by ledger: never to be missing again
        self._tallies: dict[str, tuple[int, Tally]] = {}  # what was read of accounts, up to which row
        self._lock = self._store.lock

    @property
    def name(self) -> str:
        """The ledger's URL, without password."""
        return self._store.name

    # -- accounts

    def open(
        self,
        dataset: str,
        *,
        epsilon: float,
        delta: float = 0.0,
        relation: str = "replace_one",
        unit: Unit = "row",
        max_rows_per_person: int | None = None,
        spending: Spending = "adaptive",
        slack_share: float | None = None,
        order: float | Event | None = None,
    ) -> LedgerAccount:
        """Open an account, or return the one that was opened with the same terms.

        Args:
            dataset: Name of the account: printable, at most 200 characters. It is kept in Unicode's form NFKC with
                single spaces, and every method takes it in any form; a name that people would take for that of another
                account, such as ``Visits`` beside ``visits``, is refused.
            epsilon: Cap on the loss of all releases together, whenever they are made.
            delta: The δ of the cap; 0 admits pure-ε releases only.
            relation: ``"replace_one"`` (one record changes) or ``"add_remove"``.
            unit: ``"row"``, or ``"person"`` together with ``max_rows_per_person``.
            max_rows_per_person: Bound on one person's rows.
            spending: ``"adaptive"``: the cap holds also where releases decide what is asked next and how much; spends
                are admitted by a Rényi filter. ``"planned"``: spends are admitted while the best accountant's total is
                within the cap, which then holds only if every amount is settled before the first release.
            slack_share: With adaptive spending: the share of δ for mechanisms that have a δ of their own, such as
                propose-test-release; 0.5 by default.
            order: With adaptive spending: the order of Rényi divergence; by default the best one for Gaussian noise. An
                event, such as ``plan.event``, asks for the order under which most of it fits.

        Raises:
            InputError: If a term is out of range, the dataset has an account with other terms, or the name looks like
                that of another account.
            LedgerError: If the database cannot be written.
        """
        name = _checked_name(dataset)
        terms = Terms(
            dataset=name,
            epsilon=positive("epsilon", epsilon),
            delta=delta,
            relation=relation,  # type: ignore[arg-type] # Terms parses synonyms
            unit=unit,
            max_rows_per_person=max_rows_per_person,
            spending=spending,
            slack_share=slack_share,
            order=tuned_order(order, epsilon=epsilon, delta=delta, slack_share=slack_share),
        )
        if not self._store.exists():
            self._store.witness.require_known(None)
        self._store.create()
        with self._writing() as session:
            known = session.accounts.get(name)
            if known is None:
                _require_no_twin(name, session.accounts)
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
        with self._reading() as session:  # what takes long is worked out before anyone has to wait
            record = self._account(session, dataset)
            terms = terms_of(record.dataset, record.terms)
            admitted, for_release = stated(event, for_release=for_release, terms=terms)
            paid = self._pay(session, record, admitted)
        payload: dict[str, Any] = {"event": admitted.to_json(), "purpose": purpose, "for_release": for_release}
        if (relation := getattr(event, "relation", None)) != admitted.relation:
            payload["converted_from"] = relation
        row = None
        if paid is not None:
            with self._writing() as session:
                now_it_is = self._account(session, dataset)
                if now_it_is.spent != record.spent or now_it_is.spends != record.spends:
                    paid = self._pay(session, now_it_is, admitted)
                if paid is not None:
                    form = {} if paid.form == "parts" else {"form": paid.form, "delta": paid.delta}
                    row = self._append(session, "spend", record.dataset, payload | form, paid=paid)
        if row is None:
            with self._reading() as session:  # the refusal's words need every spend; nobody waits for them
                self._tally(session, self._account(session, dataset)).refuse(admitted)
        assert row is not None
        return Receipt(
            dataset=record.dataset,
            sequence=row.sequence,
            event=admitted,
            purpose=purpose,
            for_release=for_release,
            recorded_at=row.recorded_at,
            hash=row.hash,
        )

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
            record = self._account(session, receipt.dataset)
            self._require_spend(session, record, receipt)
            marked = session.rows(after=receipt.sequence, dataset=record.dataset, kind="failed")
            if all(row.payload["spend"] != receipt.sequence for row in marked):
                self._append(session, "failed", record.dataset, {"spend": receipt.sequence, "reason": reason})

    def _require_spend(self, session: Session, record: AccountRecord, receipt: Receipt) -> None:
        spend = session.row(receipt.sequence)
        if spend is None or (spend.hash, spend.dataset, spend.kind) != (receipt.hash, record.dataset, "spend"):
            raise InputError(
                f"The receipt (row {receipt.sequence}) is not of this ledger; pass what its spend returned."
            )

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
            payload, event = row.payload, replace(row, max_rows_per_person=bound).event
            assert event is not None, "a spend has an event"
            return Receipt(
                dataset=record.dataset,
                sequence=sequence,
                event=event,
                purpose=payload["purpose"],
                for_release=payload["for_release"],
                recorded_at=row.recorded_at,
                hash=row.hash,
            )

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
        with self._writing() as session:
            record = self._account(session, receipt.dataset)
            self._require_spend(session, record, receipt)
            trainings.require_mark(record.trainings, receipt.sequence, number, digest, nonce)
            payload = {"spend": receipt.sequence, "number": number, "digest": digest}
            self._append(session, "mark", record.dataset, payload)

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
        with self._writing() as session:
            record = self._account(session, receipt.dataset)
            self._require_spend(session, record, receipt)
            trainings.require_resume(record.trainings, receipt.sequence, number, digest)
            self._append(session, "resume", record.dataset, {"spend": receipt.sequence, "nonce": nonce})
        return nonce

    def marked(self, receipt: Receipt, number: int, digest: str) -> bool:
        """Return whether this file was ever a checkpoint of the training: its state was paid for.

        Args:
            receipt: The training's spend.
            number: Which checkpoint.
            digest: SHA-256 of its file.

        Raises:
            InputError: If the receipt is not of this ledger.
        """
        wanted = {"spend": receipt.sequence, "number": number, "digest": digest}
        with self._reading() as session:
            record = self._account(session, receipt.dataset)
            self._require_spend(session, record, receipt)
            rows = session.rows(after=receipt.sequence, dataset=record.dataset, kind="mark")
            return any({name: row.payload[name] for name in wanted} == wanted for row in rows)

    def finish(self, receipt: Receipt, *, nonce: str = "") -> None:
        """Record that a training ends, before its result leaves; once for each spend.

        Args:
            receipt: The training's spend.
            nonce: What the last ``resume`` gave, if the training was resumed.

        Raises:
            InputError: If it is finished already, or was resumed elsewhere: then the result must not leave.
        """
        with self._writing() as session:
            record = self._account(session, receipt.dataset)
            self._require_spend(session, record, receipt)
            trainings.require_finish(record.trainings, receipt.sequence, nonce)
            self._append(session, "finish", record.dataset, {"spend": receipt.sequence, "nonce": nonce})

    def fits(self, dataset: str, event: Event | Guarantee) -> bool:
        """Return whether ``spend(dataset, event)`` would be allowed now."""
        with self._reading() as session:
            record = self._account(session, dataset)
            admitted, _ = stated(event, for_release=True, terms=terms_of(record.dataset, record.terms))
            return self._pay(session, record, admitted) is not None

    def asked(self, dataset: str, event: Event | Guarantee) -> float:
        """Return the part of the budget that ``spend(dataset, event)`` would ask for; may be above 1, or infinite."""
        with self._reading() as session:
            tally = self._tally(session, self._account(session, dataset))
            return tally.asked(stated(event, for_release=True, terms=tally.terms)[0])

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
                rows, head = (0, "") if replay is None else (replay.sequence, replay.head)
                return Verification(rows=rows, head=head, problem=str(error))
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

    # -- keeping and putting back

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
                session.append("upgrade", "", {"from": 1, "ledger_id": ledger_id})
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

    # -- within one transaction

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        with self._lock:
            witnessed = self._witnessed()
            with self._store.reading() as session:
                self._require_what_was_seen(session, witnessed)
                yield session

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        """Give a session that no other writer overlaps; what it adds is durable, read back and witnessed at the end."""
        with self._lock:
            witnessed = self._witnessed()
            with self._store.writing() as session:
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
            witness.remember_place(session.ledger_id)
        self._seen[session.ledger_id] = Seen(last.sequence, last.hash)

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
                stacklevel=5,
            )
            witness.start(session.ledger_id, here)
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
        name = _checked_name(dataset)
        if name in accounts:
            return accounts[name]
        _require_no_twin(name, accounts)
        raise InputError(
            f"Dataset {name!r} has no account in this ledger.{did_you_mean(name, accounts)} Open one with "
            f"ledger.open({name!r}, epsilon=...) or: escudo ledger open {shlex.quote(name)} --epsilon 1 --ledger "
            f"{shlex.quote(self.name)}"
        )


def _checked_name(dataset: str) -> str:
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


def _require_no_twin(name: str, accounts: Iterable[str]) -> None:
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
    number = 0
    try:
        header, *lines = Path(path).read_text(encoding="utf-8").splitlines()
        ledger_id, rows = str(json.loads(header)["ledger_id"]), []
        for number, line in enumerate(lines, start=2):  # noqa: B007 # for the message
            rows.append(LedgerRow.from_stored(json.loads(line)))
    except OSError as error:
        raise InputError(f"{os.fspath(path)} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{os.fspath(path)} is not UTF-8 text.") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            f"{os.fspath(path)}, line {max(number, 1)}: no row of a ledger. Was it written by 'escudo ledger backup'?"
        ) from None
    return ledger_id, rows
