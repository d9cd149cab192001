"""Keeping a ledger: backups, putting back what was lost, bringing an old one up to date, and who may spend."""

from __future__ import annotations

import json
import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escudo.errors import InputError, LedgerCorruptError, LedgerError
from escudo.privacy._account import now
from escudo.privacy._ledger_book import Book
from escudo.privacy._ledger_chain import LedgerRow, canonical_json
from escudo.privacy._ledger_replay import Replay
from escudo.privacy._ledger_views import Verification
from escudo.privacy._ledger_witness import Seen

if TYPE_CHECKING:
    from escudo.privacy._ledger_session import Session

__all__ = ["Keeping", "as_lines", "verify_lines"]


class Keeping(Book):
    """The operations on a ledger as a whole."""

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
    number, rows = 1, []
    try:
        header, *lines = Path(path).read_text(encoding="utf-8").removesuffix("\n").split("\n")
        ledger_id = str(json.loads(header)["ledger_id"])
        for line in lines:
            number += 1
            rows.append(LedgerRow.from_stored(json.loads(line)))
    except OSError as error:
        raise InputError(f"{os.fspath(path)} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{os.fspath(path)} is not UTF-8 text.") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            f"{os.fspath(path)}, line {number}: no row of a ledger. Was it written by 'escudo ledger backup'?"
        ) from None
    return ledger_id, rows
