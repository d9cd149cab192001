"""The ledger's file: private, durable, and what happens when the file, the folder, the disk or the URL is bad."""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from escudo.errors import BudgetExceededError, InputError, LedgerCorruptError, LedgerError
from escudo.privacy import Ledger, PureEvent
from escudo.privacy._filter import Charge, Paid
from escudo.privacy._ledger_witness import Witness

SPEND = {"event": PureEvent(epsilon=0.001).to_json(), "purpose": "", "for_release": True}


def test_the_file_is_private_from_the_start(path: Path, ledger: Ledger) -> None:
    before = os.umask(0)
    try:
        ledger.open("visits", epsilon=1.0)
        names = {file.name for file in path.parent.iterdir()}
        assert names == {"ledger.db", "ledger.db-wal", "ledger.db-shm"}
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    finally:
        os.umask(before)
    ledger.close()
    assert [file.name for file in path.parent.iterdir()] == ["ledger.db"]


def test_every_commit_waits_for_the_disk(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0)
    with ledger._store.reading() as session:
        settings = {
            name: session._connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "trusted_schema", "busy_timeout")
        }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "trusted_schema": 0, "busy_timeout": 30_000}


LEAVE_WAL = """
import sqlite3, sys
try:
    print(sqlite3.connect(sys.argv[1], timeout=0.1).execute("PRAGMA journal_mode = DELETE").fetchone()[0])
except sqlite3.OperationalError as error:
    print(error)
"""


def test_looking_never_drops_the_locks_that_protect_an_open_ledger(ledger: Ledger, path: Path) -> None:
    # Closing any descriptor of a file drops all of the process's POSIX locks on it, so only SQLite may open the file.
    ledger.open("visits", epsilon=1.0)
    ledger.spend("visits", PureEvent(epsilon=0.1))
    other = Ledger(ledger.name)
    other.open("visits", epsilon=1.0)
    for look in (lambda: ledger.head, lambda: other.head, other.verify, other.close):
        look()
        done = subprocess.run([sys.executable, "-c", LEAVE_WAL, path], capture_output=True, text=True, timeout=30)
        assert done.stdout.strip() == "database is locked"


def many_rows(ledger: Ledger, count: int) -> None:
    """Add spends of 0.001 in one transaction."""
    paid = Paid(Charge(10**15, 0, 0))
    with ledger._writing() as session:
        for _ in range(count):
            ledger._append(session, "spend", "visits", dict(SPEND), paid=paid)


def test_spending_takes_as_many_statements_however_long_the_ledger_is(
    ledger: Ledger, again: Callable[[], Ledger]
) -> None:
    ledger.open("visits", epsilon=1000.0)
    ledger.spend("visits", PureEvent(epsilon=0.1))
    statements: list[str] = []
    with ledger._store.reading() as session:
        session._driver.set_trace_callback(statements.append)  # type: ignore[union-attr]
    statements.clear()
    ledger.spend("visits", PureEvent(epsilon=0.1))
    short = len(statements)
    assert 10 < short < 30
    many_rows(ledger, 3000)
    statements.clear()
    ledger.spend("visits", PureEvent(epsilon=0.1))
    assert len(statements) == short
    cold = again()
    assert cold.spend("visits", PureEvent(epsilon=0.1)).sequence == 3005
    assert cold.total("visits").epsilon == pytest.approx(3.4)


def test_the_ledger_stays_the_same_file_when_the_process_changes_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Ledger("sqlite:///here.db") as ledger:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        ledger.open("visits", epsilon=1.0)
    assert (tmp_path / "here.db").exists()


def test_a_path_with_odd_characters_works(tmp_path: Path) -> None:
    odd = tmp_path / "a b#ä%20'd.db"
    with Ledger(f"sqlite:///{odd}") as ledger:
        ledger.open("visits", epsilon=1.0)
    assert list(tmp_path.iterdir()) == [odd]


def test_a_deleted_ledger_is_noticed(ledger: Ledger, path: Path) -> None:
    ledger.open("visits", epsilon=1.0)
    ledger.spend("visits", PureEvent(epsilon=0.5))
    for file in list(path.parent.iterdir()):
        file.unlink()
    for act in (lambda: ledger.spend("visits", PureEvent(epsilon=0.5)), lambda: ledger.open("visits", epsilon=1.0)):
        with pytest.raises(LedgerCorruptError, match="a ledger of 2 rows was here"):
            act()
    assert list(path.parent.iterdir()) == []
    ledger.forget()
    ledger.open("visits", epsilon=1.0)


def test_an_emptied_ledger_does_not_start_a_fresh_budget(ledger: Ledger, path: Path) -> None:
    ledger.open("visits", epsilon=1.0)
    ledger.spend("visits", PureEvent(epsilon=0.75))
    ledger.close()
    path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(LedgerCorruptError, match="a ledger of 2 rows was here, and it is gone or emptied"):
            Ledger(ledger.name).open("visits", epsilon=1.0)
    path.unlink()
    assert Ledger(ledger.name).recover() == 2
    with pytest.raises(BudgetExceededError):
        Ledger(ledger.name).spend("visits", PureEvent(epsilon=0.75))


def test_an_older_copy_put_in_place_is_noticed(ledger: Ledger, path: Path) -> None:
    ledger.open("visits", epsilon=1.0)
    ledger.close()
    shutil.copy(path, path.with_suffix(".old"))
    ledger.spend("visits", PureEvent(epsilon=0.5))
    ledger.close()
    ledger.head  # noqa: B018 - an open connection to the file that is about to be replaced
    path.with_suffix(".old").replace(path)
    for _ in range(2):
        with pytest.raises(LedgerCorruptError, match="older copy"):
            ledger.spend("visits", PureEvent(epsilon=0.5))


def test_two_first_users_make_one_ledger(path: Path) -> None:
    barrier, problems = threading.Barrier(6), []

    def first_use(number: int) -> None:
        barrier.wait()
        try:
            with Ledger(f"sqlite:///{path}") as ledger:
                ledger.open("visits", epsilon=1.0)
                ledger.open(f"own {number}", epsilon=1.0)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=first_use, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    with Ledger(f"sqlite:///{path}") as ledger:
        assert len(ledger.datasets()) == 7
        assert ledger.verify().rows == 7


def test_a_queue_that_takes_too_long_is_an_error_and_records_nothing(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0)
    waiting = Ledger(ledger.name, timeout=0.05)
    queue = ledger._store.witness.queue(float("inf"), float("inf"))
    with queue, pytest.raises(LedgerError, match=r"locked for 0.05 s.*Nothing was recorded"):
        waiting.spend("visits", PureEvent(epsilon=0.5))
    waiting.spend("visits", PureEvent(epsilon=0.5))
    assert ledger.verify().rows == 2


def test_threads_the_queue_and_the_database_are_waited_for_until_one_deadline(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.open("visits", epsilon=1.0)
    clock, queue, seen = [time.monotonic()], Witness.queue, []
    monkeypatch.setattr("escudo.privacy._ledger_store.time.monotonic", lambda: clock[0])

    @contextmanager
    def slow(self: Witness, *terms: float) -> Iterator[None]:
        clock[0] += 29.0  # of the ledger's 30 seconds
        with queue(self, *terms):
            yield

    monkeypatch.setattr(Witness, "queue", slow)
    with ledger._writing() as session:
        seen = session._run("PRAGMA busy_timeout")
    assert seen == [(1000,)]
    with ledger._reading() as session:  # which waits for nobody before
        assert session._run("PRAGMA busy_timeout") == [(30_000,)]


def test_a_thread_that_keeps_the_ledger_too_long_is_an_error_and_records_nothing(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path / 'ledger.db'}", timeout=0.05) as ledger:
        ledger.open("visits", epsilon=1.0)
        held, done = threading.Event(), threading.Event()

        def keep() -> None:
            with ledger._lock:
                held.set()
                done.wait(10)  # an error comes long before

        thread = threading.Thread(target=keep)
        thread.start()
        held.wait()
        try:
            with pytest.raises(
                LedgerError, match=r"other threads have kept it locked for 0.05 s. Nothing was recorded"
            ):
                ledger.spend("visits", PureEvent(epsilon=0.5))
        finally:
            done.set()
            thread.join()
        assert ledger.verify().rows == 1


# -- bad files, bad disks, bad names


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Root may write everything; a test of permissions must not be root, and then has no witness from before."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(This machine has no|The) witness of the ledger")
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


@pytest.mark.parametrize("folder_mode", [0o555, 0o777])
def test_a_read_only_ledger_is_a_clear_error_and_left_as_it_was(public_folder: Path, folder_mode: int) -> None:
    path = public_folder / "ledger.db"
    with Ledger(f"sqlite:///{path}") as ledger:
        ledger.open("visits", epsilon=1.0)
    before = path.read_bytes()
    path.chmod(0o444)
    public_folder.chmod(folder_mode)
    with as_ordinary_user(), Ledger(f"sqlite:///{path}") as ledger:
        with pytest.raises(LedgerError, match="Nothing was recorded") as error:
            ledger.spend("visits", PureEvent(epsilon=0.5))
        assert not isinstance(error.value, LedgerCorruptError)
    assert path.read_bytes() == before


def test_a_folder_that_may_not_be_written_is_a_clear_error(public_folder: Path) -> None:
    public_folder.chmod(0o555)
    with as_ordinary_user(), pytest.raises(LedgerError, match="read-only for you"):
        Ledger(f"sqlite:///{public_folder / 'ledger.db'}").open("visits", epsilon=1.0)
    assert list(public_folder.iterdir()) == []


def test_a_missing_folder_or_a_folder_for_a_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="folder does not exist"):
        Ledger(f"sqlite:///{tmp_path / 'missing' / 'ledger.db'}").open("visits", epsilon=1.0)
    with pytest.raises(LedgerError, match=r"folder|cannot be opened"):
        Ledger(f"sqlite:///{tmp_path}").open("visits", epsilon=1.0)
    assert list(tmp_path.iterdir()) == []


def uses(ledger: Ledger) -> list[Callable[[], object]]:
    return [
        lambda: ledger.open("visits", epsilon=1.0),
        lambda: ledger.spend("visits", PureEvent(epsilon=0.1)),
        lambda: ledger.total("visits"),
    ]


@pytest.mark.parametrize("content", [b"garbage" * 1000, b"SQLite format 3\x00" + b"\xff" * 4096, b"\x00" * 5000, b"x"])
def test_a_file_of_garbage_is_a_clear_error_and_left_as_it_was(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    for use in uses(Ledger(f"sqlite:///{path}")):
        with pytest.raises(LedgerCorruptError, match="not a SQLite database, or it is damaged"):
            use()
    assert path.read_bytes() == content
    assert not Ledger(f"sqlite:///{path}").verify().ok


def test_a_truncated_file_is_a_clear_error(ledger: Ledger, path: Path) -> None:
    ledger.open("visits", epsilon=1000.0)
    many_rows(ledger, 200)
    ledger.close()
    whole = path.read_bytes()
    for part in (0.9, 0.5, 0.1):
        path.write_bytes(whole[: int(len(whole) * part)])
        fresh = Ledger(f"sqlite:///{path}")
        with pytest.raises(LedgerCorruptError):
            fresh.spend("visits", PureEvent(epsilon=0.1))
        assert not fresh.verify().ok
        fresh.close()


def test_another_programs_database_is_refused_and_left_as_it_was(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("CREATE TABLE patients (name TEXT)")
    raw.close()
    before = path.read_bytes()
    for use in uses(Ledger(f"sqlite:///{path}")):
        with pytest.raises(LedgerError, match="another SQLite database"):
            use()
    assert path.read_bytes() == before


def test_an_empty_file_is_no_ledger_until_an_account_is_opened(ledger: Ledger, path: Path) -> None:
    path.touch()
    with pytest.raises(LedgerError, match="no ledger at"):
        ledger.verify()
    assert path.stat().st_size == 0
    ledger.open("visits", epsilon=1.0)
    assert ledger.verify().ok


DISK_FULL = """
import os, resource, sys
from escudo.errors import LedgerCorruptError, LedgerError
from escudo.privacy import Ledger, PureEvent

path = sys.argv[1]
ledger = Ledger(f"sqlite:///{path}")
ledger.open("visits", epsilon=100.0)
receipts = [ledger.spend("visits", PureEvent(epsilon=0.01)).hash]
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path + "-wal") + 20_000, hard))
try:
    for _ in range(100):
        receipts.append(ledger.spend("visits", PureEvent(epsilon=0.01)).hash)
    sys.exit("the disk never became full")
except LedgerError as error:
    assert not isinstance(error, LedgerCorruptError)
    message = str(error)
assert "full" in message and "Nothing was recorded" in message, message
recorded = [row.hash for row in ledger.history() if row.kind == "spend"]
assert recorded == receipts, "a refused spend was recorded"
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
receipts.append(ledger.spend("visits", PureEvent(epsilon=0.01)).hash)
fresh = Ledger(f"sqlite:///{path}")
assert fresh.verify().ok
assert [row.hash for row in fresh.history() if row.kind == "spend"] == receipts
print(len(receipts))
"""


def test_a_full_disk_during_a_spend_records_nothing_and_breaks_nothing(path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", DISK_FULL, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1


def test_a_database_at_its_size_limit_records_nothing(ledger: Ledger, again: Callable[[], Ledger]) -> None:
    ledger.open("visits", epsilon=100.0)
    with ledger._store.reading() as session:
        session._connection.exec_driver_sql("PRAGMA max_page_count = 1")  # SQLite takes the present size instead
    spends = 0
    try:
        while spends < 100:
            ledger.spend("visits", PureEvent(epsilon=0.01), purpose="x" * 400)
            spends += 1
    except LedgerError as error:
        assert "the disk is full" in str(error)  # noqa: PT017 - how many spends fit first is SQLite's business
    assert spends < 100
    fresh = again()
    assert fresh.verify().ok
    assert fresh.info("visits").spends == spends


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ledger.db", "not by a path"),
        ("", "not by a path"),
        (None, "named by a URL"),
        ("sqlite://", "must outlive the process"),
        ("sqlite:///", "must outlive the process"),
        ("sqlite:///:memory:", "must outlive the process"),
        ("sqlite://ledger.db", "three slashes"),
        ("sqlite:///ledger.db?mode=ro", "no options"),
        ("mysql://user:s3cret@host/db", "not 'mysql'"),
        ("postgresql://user:s3cret@host:port/db", "cannot be read"),
        ("://", "not ''"),
        ("sqlite:///l\udc80.db", "cannot be shown"),
        ("sqlite:///l\0.db", "cannot be shown"),
        ("postgresql://\ud800:s3cret@host/db", "cannot be shown"),
    ],
    ids=ascii,
)
def test_a_bad_url_is_refused_without_repeating_it(url: Any, why: str) -> None:
    with pytest.raises(LedgerError, match=why) as error:
        Ledger(url)
    assert "s3cret" not in str(error.value)


def test_a_ledger_lies_in_a_folder_whose_name_is_no_text_and_its_scheme_may_be_written_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    monkeypatch.chdir(folder)
    with Ledger("SQLite:///ledger.db") as ledger:
        ledger.open("visits", epsilon=1.0)
        assert ledger.verify().ok
    assert (folder / "ledger.db").is_file()


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "1"])
def test_a_bad_timeout_is_refused(timeout: Any) -> None:
    with pytest.raises(InputError, match="timeout"):
        Ledger("sqlite:///x.db", timeout=timeout)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_a_missing_postgresql_driver_names_the_install_command(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    ledger = Ledger(f"{scheme}://owner:s3cret@localhost/books?password=s3cret")
    with pytest.raises(LedgerError, match=r"pip install 'escudo\[postgresql\]'") as error:
        ledger.open("visits", epsilon=1.0)
    assert "s3cret" not in str(error.value) + repr(ledger)
    assert ledger.name == "postgresql://owner:***@localhost/books"


def test_showing_a_ledger_that_is_not_there_is_no_error(ledger: Ledger, path: Path) -> None:
    assert "no ledger at" in ledger._repr_html_()
    assert repr(ledger) == f"Ledger('sqlite:///{path}')"
    assert not path.exists()


KILLED_AT = """
import os, signal, sys
from escudo.privacy import Ledger, PureEvent, _ledger_book, _ledger_store, _ledger_witness

url, where = sys.argv[1], sys.argv[2]
ledger = Ledger(url)
ledger.open("visits", epsilon=1.0)
print(ledger.spend("visits", PureEvent(epsilon=0.25)).hash, flush=True)
owner, name, when = {
    "before the lock": (_ledger_witness.Witness, "queue", "before"),
    "under the lock": (_ledger_store.Session, "put", "before"),
    "before the commit": (_ledger_store.Session, "put", "after"),
    "after the commit": (_ledger_book.Book, "_confirm", "before"),
    "after reading back": (_ledger_witness.Witness, "remember", "before"),
    "before the disk has the witness": (os, "fdatasync", "before"),
    "after the witness": (_ledger_witness.Witness, "remember", "after"),
    "before the receipt": (_ledger_book.Book, "_confirm", "after"),
}[where]
real = getattr(owner, name)

def killed(*arguments, **options):
    if when == "after":
        real(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(owner, name, killed)
print(ledger.spend("visits", PureEvent(epsilon=0.25)).hash, flush=True)
"""


@pytest.mark.parametrize(
    ("where", "recorded"),
    [
        ("before the lock", 1),
        ("under the lock", 1),
        ("before the commit", 1),
        ("after the commit", 2),
        ("after reading back", 2),
        ("before the disk has the witness", 2),
        ("after the witness", 2),
        ("before the receipt", 2),
    ],
)
def test_a_spend_killed_between_any_two_steps_is_counted_or_released_nothing(
    path: Path, where: str, recorded: int
) -> None:
    command = [sys.executable, "-W", "error", "-c", KILLED_AT, f"sqlite:///{path}", where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == -9, done.stderr
    receipts = done.stdout.split()
    assert len(receipts) == 1  # the second never reached its caller
    with Ledger(f"sqlite:///{path}") as ledger:
        assert ledger.verify().ok
        spends = [row.hash for row in ledger.history() if row.kind == "spend"]
        assert spends[:1] == receipts
        assert len(spends) == recorded
        for _ in range(4 - recorded):
            ledger.spend("visits", PureEvent(epsilon=0.25))
        with pytest.raises(BudgetExceededError):
            ledger.spend("visits", PureEvent(epsilon=0.25))
        assert ledger.verify().ok


def test_a_ledger_that_nobody_closes_is_closed_when_it_is_collected(tmp_path):
    ledger = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.open("visits", epsilon=1.0)
    pool = ledger._store._engine.pool
    assert pool.checkedin() == 1
    del ledger
    gc.collect()
    assert pool.checkedin() == 0
