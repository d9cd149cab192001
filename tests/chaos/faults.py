"""What may go wrong in a child, and the tracer that makes it go wrong at one event."""

from __future__ import annotations

import os
import random
import re
import resource
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, NoReturn

__all__ = ["IN_CHILD", "ON_SERVER", "Disk", "Fault", "Tracer", "drawn", "drawn_kind", "strike"]

IN_CHILD = ("kill", "torn", "term", "int", "limit", "full", "clock")
"""Faults of a process and its machine.

kill: SIGKILL at the event, or death by a timer some microseconds later, which is inside the database's own code.
torn: death in the middle of a write, once a file reaches a size. limit: that write fails instead. full: no space left
on the disk. term, int: SIGTERM and SIGINT. clock: the time goes back, or leaps ahead.
"""
ON_SERVER = ("drop", "cut", "server")
"""Faults of a database server: drop: it ends the connection; cut: the network does; server: it is killed, and
started again."""

_WEIGHTS = dict(kill=3.0, torn=2.0, term=2.0, int=1.0, limit=1.5, full=1.5, clock=0.5, drop=2.0, cut=2.0, server=1.5)
_DECISIVE = re.compile(
    r"rename|replace|unlink|fsync|commit|append|spend|fail\b|put_folder|\.keep|go_on|resume|mark|finish|_line"
)

# The functions between whose steps a fault is of interest, by file.
_WATCHED = (
    "escudo/privacy/_ledger",
    "escudo/privacy/_account.py",
    "escudo/privacy/_ledger_chain.py",
    "escudo/privacy/_plan.py",
    "escudo/_files.py",
    "escudo/report/_release_folder.py",
    "escudo/synthesis/_files.py",
    "escudo/synthesis/_generators.py",
    "escudo/synthesis/neural/_checkpoint.py",
    "escudo/synthesis/neural/_training.py",
    "escudo/mechanisms/_additive.py",
    "escudo/mechanisms/dpsgd/_checkpoint.py",
    "escudo/mechanisms/dpsgd/_mechanism.py",
    "escudo/auditing/_outputs.py",
    "escudo/cli/_release.py",
    "psycopg/connection.py",
    "psycopg/cursor.py",
)
# What they call, written in C: the system's calls and the drivers'.
_CALLS = frozenset(
    (
        *("execute", "executemany", "executescript", "commit", "rollback", "backup"),
        *("open", "mkstemp", "write", "writelines", "flush", "truncate", "ftruncate", "fsync", "fdatasync", "close"),
        *("mkdir", "rename", "replace", "link", "unlink", "remove", "rmdir", "chmod", "flock", "lockf"),
        *("pwrite", "sendfile", "copy_file_range"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        kind: One of the faults above.
        event: At which event, as the tracer names it.
        turn: At which of its occurrences, from 1.
        amount: How much: bytes, microseconds or seconds.
    """

    kind: str
    event: str
    turn: int
    amount: int


def drawn_kind(rng: random.Random, kinds: Sequence[str]) -> str:
    """Draw what goes wrong; less often where it teaches little or takes long."""
    return rng.choices(kinds, [_WEIGHTS[kind] for kind in kinds])[0]


def drawn(rng: random.Random, kind: str, events: Mapping[str, int]) -> Fault:
    """Draw where a fault strikes: half of them where something is written or handed over, the others anywhere.

    Any event counts alike, however often it happens; so do its occurrences.
    """
    names = sorted(events)
    decisive = [name for name in names if _DECISIVE.search(name)]
    event = rng.choice(decisive if decisive and rng.random() < 0.5 else names)
    amount = {
        "kill": rng.choice([0, rng.randrange(1, 1000)]),
        "torn": _size(rng),
        "limit": _size(rng),
        "full": rng.choice([0, rng.randrange(1 << 17)]),
        "clock": rng.choice([-1, 1]) * rng.choice([1, 3600, 86400, 10 * 365 * 86400]),
    }.get(kind, 0)
    return Fault(kind=kind, event=event, turn=rng.randint(1, events[event]), amount=amount)


def _size(rng: random.Random) -> int:
    """Draw a size at which no file may grow any more; the smallest matter most."""
    return int(2 ** rng.uniform(0, 18))


class Tracer:
    """Counts events in this thread, and calls ``strike`` at one of them; a profile function (``sys.setprofile``).

    An exception that ``strike`` raises comes out of the call at which it struck, as if that call had raised it.

    Attributes:
        events: How often each event happened. ``>name`` is before a call, ``<name`` after it.
    """

    def __init__(self, fault: Fault | None, strike: Callable[[], None]):
        self.events: Counter[str] = Counter()
        self._fault, self._strike = fault, strike
        self._names: dict[CodeType, str] = {}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        """See ``sys.setprofile``."""
        if event == "call" or event == "return":
            code = frame.f_code
            name = self._names.get(code)
            if name is None:
                name = self._names[code] = _name_of(code)
            if not name:
                return
        elif (called := arg.__name__) in _CALLS:
            owner = arg.__self__
            if isinstance(owner, ModuleType):
                name = f"{owner.__name__}.{called}"
            elif type(owner).__module__ in ("_io", "sqlite3"):  # else a text's replace(), and the like
                name = f"{type(owner).__name__}.{called}"
            else:
                return
        else:
            return
        name = (">" if event in ("call", "c_call") else "<") + name
        self.events[name] += 1
        fault = self._fault
        if fault is not None and fault.event == name and fault.turn == self.events[name]:
            self._fault = None
            self._strike()


def _name_of(code: CodeType) -> str:
    file = code.co_filename.replace(os.sep, "/")
    watched = next((part for part in _WATCHED if f"/{part}" in file), None)
    return "" if watched is None else f"{'/'.join(Path(file).with_suffix('').parts[-2:])}.{code.co_qualname}"


def strike(fault: Fault, disk: Disk, ask: Callable[[str], None]) -> None:
    """Make it happen, in this process; what a server suffers is asked of the parent, and waited for."""
    if fault.kind == "kill" and fault.amount == 0:
        _die()
    elif fault.kind == "kill":
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # nobody handles it: as good as SIGKILL, wherever it comes
        signal.setitimer(signal.ITIMER_REAL, fault.amount / 1e6)
    elif fault.kind in ("torn", "limit"):
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if fault.kind == "torn" else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.amount, resource.RLIM_INFINITY))
    elif fault.kind == "full":
        disk.fill(leave=fault.amount)
    elif fault.kind in ("term", "int"):
        os.kill(os.getpid(), signal.SIGTERM if fault.kind == "term" else signal.SIGINT)
    elif fault.kind == "clock":
        _set_clock(fault.amount)
    elif fault.kind == "cut":
        _cut_connections()
    else:
        ask(fault.kind)


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(3600)
    raise AssertionError("SIGKILL came")


def _set_clock(seconds: int) -> None:
    """Move the time that escudo and Python see; only this process."""
    real, shift = time.time, timedelta(seconds=seconds)

    def now() -> str:
        return (datetime.now(UTC) + shift).isoformat(timespec="microseconds")

    for name, module in list(sys.modules.items()):
        if name.startswith("escudo.") and getattr(getattr(module, "now", None), "__module__", "").startswith("escudo"):
            module.now = now  # type: ignore[attr-defined]
    time.time = lambda: real() + seconds


def _cut_connections() -> None:
    """Shut every TCP connection of this process, both ways, as a network that is gone."""
    for entry in os.listdir("/proc/self/fd"):
        try:
            handle = socket.socket(fileno=os.dup(int(entry)))
        except OSError:
            continue
        with handle:
            if handle.family == socket.AF_INET:
                with suppress(OSError):
                    handle.shutdown(socket.SHUT_RDWR)


class Disk:
    """A small disk of our own, which can be filled: a tmpfs in a mount namespace that ends with the process.

    Args:
        folder: An empty folder, where it is mounted. Without the rights to mount, the folder is used as it is.

    Attributes:
        folder: The folder.
        own: Whether it is a disk of its own, so that it may be filled.
    """

    def __init__(self, folder: Path):
        self.folder, self.own = folder, _mounted(folder)

    @property
    def _filler(self) -> Path:
        return self.folder / "filler"

    def fill(self, *, leave: int) -> None:
        """Leave no more than so many bytes."""
        assert self.own, "no other disk is ever filled"
        status = os.statvfs(self.folder)
        size = status.f_bavail * status.f_frsize - leave
        if size > 0:
            with suppress(OSError):  # another process fills it too
                handle = os.open(self._filler, os.O_CREAT | os.O_WRONLY, 0o600)
                try:
                    os.posix_fallocate(handle, 0, size)
                finally:
                    os.close(handle)

    def free(self) -> None:
        """Give the space back."""
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        """Take the disk away, with everything on it."""
        if self.own:
            _libc().umount2(os.fsencode(self.folder), 2)  # also while somebody looks at it


def _mounted(folder: Path, size: str = "48m") -> bool:
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    libc = _libc()
    new_namespace, recursive, private = 0x20000, 0x4000, 0x40000
    return (
        libc.unshare(new_namespace) == 0
        and libc.mount(b"none", b"/", None, recursive | private, None) == 0
        and libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={size},mode=0755".encode()) == 0
    )


def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)
