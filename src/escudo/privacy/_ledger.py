"""The ledger: who spent what on which dataset, durable, refusing, and checkable.

Every account has a cap (ε, δ), a relation and a unit. ``spend`` records an event *before* any noise is drawn, in one
transaction that also checks the cap, so two processes cannot both spend the last ε, and a process killed at any moment
never leaves a release that is not counted. Rows are only ever added. A spend whose release failed stays spent and is
marked failed. A seeded run counts too: whoever runs it sees the data, even though its results are not for release.

**What ``verify`` finds.** Rows are chained by hash, and a head record counts them, so an edited, removed, reordered or
inserted row and a missing end are found, and the first such row is named. Someone who may write the database can
compute *all* hashes again; that is only found by comparing with a fingerprint kept elsewhere: note ``ledger.head``, and
pass it to ``verify(expected_head=...)`` later. A ledger that has grown since still holds that fingerprint.
"""

from __future__ import annotations

import html
import re
import shlex
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from escudo._validate import did_you_mean, positive
from escudo.errors import InputError, LedgerCorruptError, LedgerError
from escudo.privacy._account import Receipt, now, one_line
from escudo.privacy._events import Event
from escudo.privacy._guarantee import Guarantee
from escudo.privacy._ledger_chain import LedgerRow
from escudo.privacy._ledger_replay import AccountState, Replay, require_within_cap, terms_to_json
from escudo.privacy._ledger_views import AccountInfo, LedgerAccount, Verification, account_info
from escudo.privacy._relations import Unit
from escudo.privacy._tally import Spending, Terms, percent_up, shown_down, stated, tuned_order

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
        self._replay = Replay()
        self._seen = (self._replay.sequence, self._replay.head)  # never to be missing again
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
        self._store.create()
        with self._writing() as session:
            known = self._replay.accounts.get(name)
            if known is None:
                _require_no_twin(name, self._replay.accounts)
                session.append("open", name, terms_to_json(terms))
            elif known.terms != terms:
                raise InputError(
                    f"Dataset {name!r} has an account already, with other terms: {known.terms} (opened "
                    f"{known.opened_at[:10]}). The terms of an account never change. Use it as it is, or choose "
                    "another name."
                )
        return LedgerAccount(self, terms)

    def account(self, dataset: str) -> LedgerAccount:
        """Return the account of a dataset.

        Raises:
            InputError: If the dataset has none.
        """
        with self._reading():
            return LedgerAccount(self, self._account(dataset).terms)

    def datasets(self) -> list[AccountInfo]:
        """Return every account with what is spent and left, in the order of opening."""
        with self._reading():
            return [account_info(account) for account in self._replay.accounts.values()]

    def info(self, dataset: str) -> AccountInfo:
        """Return one account with what is spent and left."""
        with self._reading():
            return account_info(self._account(dataset))

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
        with self._writing() as session:
            account = self._account(dataset)
            admitted, for_release = stated(event, for_release=for_release, terms=account.terms)
            paid = account.tally.require(admitted)
            payload: dict[str, Any] = {"event": admitted.to_json(), "purpose": purpose, "for_release": for_release}
            if paid.form != "parts":
                payload |= {"form": paid.form, "delta": paid.delta}
            if (relation := getattr(event, "relation", None)) != admitted.relation:
                payload["converted_from"] = relation
            row = session.append("spend", account.terms.dataset, payload)
        return Receipt(
            dataset=account.terms.dataset,
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
            account = self._account(receipt.dataset)
            spend = session.row(receipt.sequence)
            if spend is None or spend.hash != receipt.hash or receipt.sequence not in account.spends:
                raise InputError(
                    f"The receipt (row {receipt.sequence}) is not of this ledger; pass what its spend returned."
                )
            if receipt.sequence not in account.failed:
                session.append("failed", receipt.dataset, {"spend": receipt.sequence, "reason": reason})

    def fits(self, dataset: str, event: Event | Guarantee) -> bool:
        """Return whether ``spend(dataset, event)`` would be allowed now."""
        with self._reading():
            account = self._account(dataset)
            return account.tally.fits(stated(event, for_release=True, terms=account.terms)[0])

    def asked(self, dataset: str, event: Event | Guarantee) -> float:
        """Return the part of the budget that ``spend(dataset, event)`` would ask for; may be above 1, or infinite."""
        with self._reading():
            account = self._account(dataset)
            return account.tally.asked(stated(event, for_release=True, terms=account.terms)[0])

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
        with self._reading():
            return self._replay.head

    def history(self, dataset: str | None = None) -> list[LedgerRow]:
        """Return the rows of one dataset, or of all, in order."""
        with self._reading() as session:
            if dataset is not None:
                dataset = self._account(dataset).terms.dataset
            accounts = self._replay.accounts
            return [accounts[row.dataset].with_bound(row) for row in session.rows(dataset=dataset)]

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
        replay = Replay()
        with self._lock:
            wanted = {self._seen[1]: "this process read before"}
            if expected_head is not None:
                wanted[expected_head] = "you expect"
            try:
                self._require_ledger()
                with self._store.reading() as session:
                    wanted.pop(replay.head, None)
                    for row in session.rows():
                        replay.apply(row)
                        wanted.pop(row.hash, None)
                    replay.require_end(rows=session.rows_recorded, head=session.head)
                    for dataset, account in replay.accounts.items():
                        require_within_cap(account, session.rows(dataset=dataset))
                    if wanted:
                        why = next(iter(wanted.values()))
                        raise LedgerCorruptError(
                            f"no row has the fingerprint that {why}: it was rewritten, cut short, or is another."
                        )
            except LedgerCorruptError as error:
                return Verification(rows=replay.sequence, head=replay.head, problem=str(error))
        return Verification(rows=replay.sequence, head=replay.head)

    def export(self) -> dict[str, Any]:
        """Return the whole ledger as JSON values, also a broken one, with what ``verify`` says about it.

        Payloads are given as the exact text that was hashed, so that anyone can check the chain.
        """
        checked = self.verify()
        with self._store.reading() as session:
            rows = [row.as_stored() for row in session.rows()]
        return {
            "escudo_ledger": 1,
            "exported_at": now(),
            "head": checked.head,
            "problem": checked.problem,
            "rows": rows,
        }

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
            self._require_ledger()
            with self._store.reading() as session:
                self._catch_up(session)
                yield session

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        """Give a session that no other writer overlaps, with every row known; committed durably when the block ends."""
        with self._lock:
            self._require_ledger()
            with self._store.writing() as session:
                self._catch_up(session)
                yield session
            self._apply(session.added)

    def _catch_up(self, session: Session) -> None:
        """Replay the rows that were added since the last look."""
        if session.rows_recorded < self._seen[0]:
            raise LedgerCorruptError(
                f"row {session.rows_recorded + 1} was there before and is missing: the ledger was cut short, or "
                "replaced by an older copy that does not count later spends."
            )
        if session.rows_recorded > self._replay.sequence:
            self._apply(session.rows(after=self._replay.sequence))
        self._replay.require_end(rows=session.rows_recorded, head=session.head)

    def _apply(self, rows: Iterable[LedgerRow]) -> None:
        try:
            for row in rows:
                self._replay.apply(row)
                if row.sequence == self._seen[0] and row.hash != self._seen[1]:
                    raise LedgerCorruptError(f"row {row.sequence} is not the one that was there before.")
        except BaseException:
            self._replay = Replay()  # a row may be half applied: nothing is built on that
            raise
        self._seen = (self._replay.sequence, self._replay.head)

    def _require_ledger(self) -> None:
        if not self._store.exists():
            raise LedgerError(
                f"There is no ledger at {self.name} yet. Make it by opening an account: "
                f"escudo ledger open DATASET --epsilon 1 --ledger {shlex.quote(self.name)}"
            )

    def _account(self, dataset: str) -> AccountState:
        accounts = self._replay.accounts
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
