"""What this machine remembers of a ledger, outside its database: the witness against which a roll-back is noticed.

A database alone cannot show that it is an older copy of itself, that its write-ahead log was lost, or that it was
emptied. So every row is also written to a file of its own in the user's state folder (``ESCUDO_STATE``, else
``XDG_STATE_HOME/escudo``, else ``~/.local/state/escudo``) before a spend is acknowledged. A ledger that lacks what the
witness has seen is refused, and ``escudo ledger recover`` puts the missing rows back from it.

The witness is append-only, one JSON row per line; readable by its owner alone. It protects against accidents and
against whoever may write the database but not this folder. Whoever writes both defeats both; then only a fingerprint
kept on another machine helps (``escudo ledger show`` prints it).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from escudo._card import number_of
from escudo.errors import LedgerCorruptError, LedgerError, LedgerWarning
from escudo.privacy._ledger_chain import LedgerRow, canonical_json

NOTHING = "Nothing was recorded and nothing was released."
KEPT = f"{{who}} kept it locked for {{timeout:g}} s. {NOTHING} Try again."


_MOST_MISSED = 10_000
"""Most rows written by others that are copied on the way; a longer gap is left, and only the end is remembered."""
_BLOCK = 65_536
_TAIL = 4_096  # longer than most rows


class Seen(NamedTuple):
    """The last row that was seen: its number and its hash."""

    rows: int
    hash: str


class Witness:
    """What was seen of the ledger at one place.

    Args:
        place: The ledger's URL, without password.
    """

    def __init__(self, place: str):
        self._key = hashlib.sha256(place.encode(errors="surrogatepass")).hexdigest()[:32]

    @property
    def _folder(self) -> Path:
        state = os.environ.get("ESCUDO_STATE")
        if state:
            return Path(state) / "ledgers"
        base = os.environ.get("XDG_STATE_HOME")
        return (Path(base) if base else Path.home() / ".local" / "state") / "escudo" / "ledgers"

    # -- which ledger is where

    def ledger_here(self) -> str | None:
        """Return the id of the ledger that was last used at this place; None if none was."""
        try:
            return (self._folder / f"{self._key}.place").read_text(encoding="ascii").strip() or None
        except (OSError, ValueError):
            return None

    def require_known(self, ledger_id: str | None) -> None:
        """Raise if another ledger was here before, with rows that this one does not have; ``None``: there is none now.

        Raises:
            LedgerCorruptError: Says what was here.
        """
        before = self.ledger_here()
        if before is None or before == ledger_id:
            return
        seen = self.last(before)
        if seen is not None and seen.rows:
            raise LedgerCorruptError(
                f"a ledger of {number_of(seen.rows, 'row')} was here, and it is gone or emptied: what was spent would "
                "start afresh. Put it back from a backup (escudo ledger restore) or from this machine's witness "
                "(escudo ledger recover); if it was removed on purpose, say so with: escudo ledger forget."
            )

    def remember_place(self, ledger_id: str) -> None:
        """Note which ledger is here."""
        if self.ledger_here() != ledger_id:
            with self._usable():
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                draft = self._folder / f".{self._key}.{os.getpid()}.{time.monotonic_ns()}"
                draft.write_text(ledger_id, encoding="ascii")
                draft.chmod(0o600)
                draft.replace(self._folder / f"{self._key}.place")

    def forget(self) -> None:
        """Forget what was here; the rows that were seen of it stay, in a file that is no witness any more."""
        ledger_id = self.ledger_here()
        with suppress(FileNotFoundError):
            (self._folder / f"{self._key}.place").unlink()
            self._file(str(ledger_id)).replace(self._folder / f"{ledger_id}.forgotten")

    # -- what was seen of it

    def last(self, ledger_id: str) -> Seen | None:
        """Return the last row that was seen, or None if none was."""
        try:
            with self._file(ledger_id).open("rb") as file:
                line = _last_line(file.fileno())
        except FileNotFoundError:
            return None
        except OSError:
            return None
        if line is None:
            return None
        try:
            row = json.loads(line)
            return Seen(int(row["sequence"]), str(row["hash"]))
        except (ValueError, KeyError, TypeError):
            raise LedgerError(f"the witness {self._file(ledger_id)} is damaged at its end.") from None

    def rows(self, ledger_id: str) -> Iterator[LedgerRow]:
        """Yield all rows that were seen and kept, in order; an anchor without contents is left out."""
        try:
            lines = self._file(ledger_id).read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        for line in lines:
            with suppress(ValueError, KeyError, TypeError):
                row = json.loads(line)
                if "payload" in row:
                    yield LedgerRow.from_stored(row)

    def remember(self, ledger_id: str, rows: Sequence[LedgerRow], missed: Callable[[int], Iterator[LedgerRow]]) -> None:
        """Write rows behind those that were seen, durably, with all between that others have written.

        Args:
            ledger_id: Which ledger.
            rows: What was added, in order; at least one.
            missed: Gives the rows numbered above so many.
        """
        with self._usable(), self._locked(ledger_id) as descriptor:
            line = _last_line(descriptor)
            seen = None if line is None else int(json.loads(line)["sequence"])
            new = [row for row in rows if seen is None or row.sequence > seen]
            if not new:
                return
            if seen is not None and seen < new[0].sequence - 1 <= seen + _MOST_MISSED:
                new = [row for row in missed(seen) if row.sequence < new[0].sequence] + new
            text = b"".join(canonical_json(row.as_stored()).encode() + b"\n" for row in new)
            _append(descriptor, text)

    def start(self, ledger_id: str, seen: Seen) -> None:
        """Begin to remember a ledger that was made elsewhere: from its last row on, without those before."""
        with self._usable(), self._locked(ledger_id) as descriptor:
            if _last_line(descriptor) is None:
                _append(descriptor, canonical_json({"sequence": seen.rows, "hash": seen.hash}).encode() + b"\n")

    def _file(self, ledger_id: str) -> Path:
        return self._folder / f"{ledger_id}.witness"

    def _opened(self, name: str) -> int:
        """Open a file of the folder, for its owner alone; both are made if they are not there."""
        folder, flags = self._folder, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(folder / name, flags, 0o600)
        except FileNotFoundError:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.open(folder / name, flags, 0o600)

    @contextmanager
    def _locked(self, ledger_id: str) -> Iterator[int]:
        descriptor = self._opened(f"{ledger_id}.witness")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def queue(self, deadline: float, timeout: float) -> Iterator[None]:
        """Wait until no other process of this user writes to the ledger: a fair wait, where SQLite's own starves some.

        It is a courtesy; what keeps writers apart is the database's lock.

        Args:
            deadline: Until when, by ``time.monotonic``.
            timeout: How many seconds that is from when the wait began, for the message.

        Raises:
            LedgerError: If it takes longer.
        """
        try:
            descriptor = self._opened(f"{self._key}.lock")
        except OSError:
            yield
            return
        try:
            pause = 0.0002
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise LedgerError(KEPT.format(who="other processes have", timeout=timeout)) from None
                    time.sleep(pause)
                    pause = min(2 * pause, 0.002)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """Go on without a witness where its folder cannot be written, and say so."""
        try:
            yield
        except OSError as error:
            warnings.warn(
                f"The witness of the ledger cannot be written in {self._folder} ({error.strerror}): an older copy of "
                "the ledger would not be noticed. Name another folder in ESCUDO_STATE.",
                LedgerWarning,
                stacklevel=2,
            )


def _append(descriptor: int, text: bytes) -> None:
    """Write whole lines behind the last whole line, and wait for the disk.

    The file is made longer by a block of zeros at a time: a write that does not make it longer is durable much sooner.
    """
    end = _end(descriptor)
    room = os.fstat(descriptor).st_size - end
    if len(text) > room:
        text += bytes(_BLOCK)
    else:
        text += b"\0" * min(1, room - len(text))
    while text:
        written = os.pwrite(descriptor, text, end)
        text, end = text[written:], end + written
    os.fdatasync(descriptor)


def _last_line(descriptor: int) -> bytes | None:
    """Return the last whole line of a file, or None if there is none."""
    tail, start = b"", _end(descriptor)
    while True:
        end = len(tail) - 1  # tail ends with the newline of a whole line
        while end >= 0 and (begin := tail.rfind(b"\n", 0, end)) >= 0:
            if b"\0" not in (line := tail[begin + 1 : end]):  # a power cut may leave holes
                return line
            end = begin
        if not start:
            line = tail[: max(0, end)]
            return line if line and b"\0" not in line else None
        begin = max(0, start - _TAIL)
        tail, start = os.pread(descriptor, start - begin, begin) + tail, begin


def _end(descriptor: int) -> int:
    """Return where the last whole line ends: before the zeros, and before a line that a crash cut short."""
    start = os.fstat(descriptor).st_size
    while start:
        begin = max(0, start - _BLOCK)  # the zeros behind it are at most so many
        block = os.pread(descriptor, start - begin, begin)
        if (found := block.rfind(b"\n")) >= 0:
            return begin + found + 1
        start = begin
    return 0
