"""Where a ledger lives, and what may happen to it behind escudo's back: copies, roll-backs, edits, killed servers."""

from __future__ import annotations

import os
import pwd
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa

__all__ = ["PostgresqlStore", "Rows", "Server", "SqliteStore", "Store", "server_binaries"]

Rows = list[tuple[Any, ...]]


class Store(Protocol):
    """One ledger, seen from outside.

    Attributes:
        kind: ``sqlite`` or ``postgresql``.
        url: What escudo is given.
        roll_backs: What may happen to it that makes it forget: names, for :meth:`tamper`.
        edits: What may happen that changes it otherwise.
    """

    kind: str
    url: str
    roll_backs: tuple[str, ...]
    edits: tuple[str, ...]

    def keep(self) -> Any:
        """Return everything that is stored, while nobody uses it."""

    def restore(self, kept: Any) -> None:
        """Put back what was kept, and nothing else."""

    def tamper(self, what: str, earlier: Any, rng: random.Random) -> None:
        """Do harm to it while nobody uses it; ``earlier`` is what was kept some time ago."""

    def rows(self) -> Rows | None:
        """Return the ledger's rows, read without escudo; None if they cannot be read."""

    def serve(self, what: str) -> None:
        """Harm the server, as a child asked."""

    def close(self) -> None:
        """Remove it."""


def _ours(columns: dict[str, set[str]]) -> tuple[str, str]:
    """Return the tables of rows and of the head, by their columns, whatever the format calls them."""
    rows = next(table for table, names in columns.items() if {"sequence", "previous", "hash"} <= names)
    head = next(table for table, names in columns.items() if {"rows", "hash"} <= names)
    return rows, head


class SqliteStore:
    """A ledger in a SQLite file.

    Args:
        folder: A folder of its own, which is made.
    """

    kind = "sqlite"
    roll_backs = ("wal removed", "only the file copied", "older copy", "copy used elsewhere", "emptied")
    edits = ("truncated", "bytes flipped", "row edited", "undoing trigger", "shm removed")

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()
        self.path = folder / "ledger.db"
        self.url = self._url = f"sqlite:///{self.path}"

    def keep(self) -> dict[str, bytes]:
        """Return all files."""
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def restore(self, kept: dict[str, bytes]) -> None:
        """Put the files back."""
        self.url = self._url
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        for name, data in kept.items():
            (self.folder / name).write_bytes(data)

    def tamper(self, what: str, earlier: dict[str, bytes], rng: random.Random) -> None:
        """See :class:`Store`."""
        side = [path for path in self.folder.iterdir() if path != self.path and path.suffix != ".lock"]
        wal, shm = (self.path.with_name(f"{self.path.name}-{end}") for end in ("wal", "shm"))
        if what == "wal removed":
            wal.unlink(missing_ok=True)
            shm.unlink(missing_ok=True)
        elif what == "shm removed":
            shm.unlink(missing_ok=True)
        elif what == "only the file copied":
            data = self.path.read_bytes()
            for path in (*side, self.path):
                path.unlink()
            self.path.write_bytes(data)
        elif what == "older copy":
            self.restore(earlier)
        elif what == "copy used elsewhere":
            elsewhere = self.folder / "elsewhere"
            elsewhere.mkdir()
            for name, data in earlier.items():
                (elsewhere / name).write_bytes(data)
            self.url = f"sqlite:///{elsewhere / self.path.name}"
        elif what == "emptied":
            for path in side:
                path.unlink()
            os.truncate(self.path, 0)
        elif what == "truncated":
            os.truncate(self.path, rng.randrange(1, self.path.stat().st_size))
        elif what == "bytes flipped":
            path = wal if wal.exists() and wal.stat().st_size and rng.random() < 0.3 else self.path
            data = bytearray(path.read_bytes())
            for _ in range(rng.choice([1, 1, 8, 64])):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
        else:
            with closing(sqlite3.connect(self.path)) as connection, connection:
                tables = self._tables(connection)
                for statement in _edit(what, *_ours(tables), rng, len(self._read(connection))):
                    connection.execute(statement)
            connection.close()

    def rows(self) -> Rows | None:
        """See :class:`Store`; a copy is read, so that nothing is moved from one file to another by looking."""
        path = Path(self.url.removeprefix("sqlite:///"))
        with tempfile.TemporaryDirectory() as name:
            for file in path.parent.iterdir():
                if file.name.startswith(path.name):
                    shutil.copy(file, name)
            connection = sqlite3.connect(Path(name) / path.name)
            try:
                return self._read(connection)
            except (sqlite3.Error, StopIteration, UnicodeDecodeError):
                return None
            finally:
                connection.close()

    def _read(self, connection: sqlite3.Connection) -> Rows:
        rows, head = _ours(self._tables(connection))
        if connection.execute(f"SELECT count(*) FROM {head}").fetchone() != (1,):
            raise StopIteration
        return connection.execute(f"SELECT * FROM {rows} ORDER BY sequence").fetchall()

    def _tables(self, connection: sqlite3.Connection) -> dict[str, set[str]]:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: {row[1] for row in connection.execute(f"PRAGMA table_info({name})")} for name in names}

    def serve(self, what: str) -> None:
        """There is no server."""
        raise AssertionError(what)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder)


def _edit(what: str, rows: str, head: str, rng: random.Random, count: int) -> list[str]:
    if what == "row edited":
        column, value = rng.choice([("recorded_at", "'2020-01-01'"), ("kind", "'gift'"), ("hash", f"'{'0' * 64}'")])
        return [f"UPDATE {rows} SET {column} = {value} WHERE sequence = {rng.randint(1, count)}"]
    assert what == "undoing trigger"
    return [
        f"CREATE TRIGGER undo AFTER UPDATE ON {head} WHEN NEW.rows > OLD.rows BEGIN "
        f"UPDATE {head} SET rows = OLD.rows, hash = OLD.hash; DELETE FROM {rows} WHERE sequence > OLD.rows; END"
    ]


# -- PostgreSQL


def server_binaries() -> tuple[str, str] | None:
    """Return where initdb and postgres are; None where there is no server."""
    found = [_binary(name) for name in ("initdb", "postgres")]
    return None if None in found else (str(found[0]), str(found[1]))


def _binary(name: str) -> str | None:
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return shutil.which(name) or (str(debian[-1]) if debian else None)


class Server:
    """A PostgreSQL server of our own on a free port of this machine, with data in memory where that is possible.

    Unlike a server that is only used, this one is killed: it keeps ``fsync`` on, as a ledger demands.
    """

    def __init__(self, binaries: tuple[str, str]):
        memory = Path("/dev/shm")
        parent = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
        self._folder = Path(tempfile.mkdtemp(prefix="escudo-chaos-pg-", dir=parent))
        names = {entry.pw_name for entry in pwd.getpwall()}
        self._user = (
            next(name for name in ("postgres", "nobody") if name in names) if os.geteuid() == 0 else None
        )  # PostgreSQL refuses to run as root
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        initdb, self._postgres = binaries
        subprocess.run(
            [initdb, "-D", self._folder / "data", "-U", "owner", "--auth=trust", "-E", "UTF8", "-N"],
            check=True,
            capture_output=True,
            user=self._user,
            cwd=self._folder,
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = sa.URL.create("postgresql+psycopg", "owner", None, "127.0.0.1", self._port, "postgres")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = ["max_wal_size=64MB", "min_wal_size=32MB", "dynamic_shared_memory_type=mmap", "autovacuum=off"]
        where = ["-D", str(self._folder / "data"), "-h", "127.0.0.1", "-p", str(self._port), "-k", str(self._folder)]
        with (self._folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [self._postgres, *where, *(word for setting in settings for word in ("-c", setting))],
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self._folder,
                start_new_session=True,
            )
        while True:
            if self._process.poll() is not None:
                said = (self._folder / "log").read_text()[-3000:]
                if "pre-existing shared memory block" in said.splitlines()[-2:][0]:
                    time.sleep(0.02)  # a process that the killed server had just forked is still on its way out
                    self.start()
                    return
                raise RuntimeError(f"the PostgreSQL server did not start: {said}")
            try:
                self.run("SELECT 1")
                return
            except sa.exc.OperationalError:
                time.sleep(0.02)

    def kill(self) -> None:
        """End it at once, without a word to anybody: SIGKILL to each of its processes."""
        assert self._process is not None
        for pid in (self._process.pid, *_descendants(self._process.pid)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait()

    def run(self, *statements: str, database: str = "postgres") -> list[Any]:
        """Run statements as the owner; returns the rows of the last."""
        engine = sa.create_engine(self.url.set(database=database), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            results = [connection.exec_driver_sql(statement) for statement in statements]
            return [tuple(row) for row in results[-1]] if results[-1].returns_rows else []

    def close(self) -> None:
        """End it and remove its data."""
        self.kill()
        shutil.rmtree(self._folder)


def _descendants(parent: int) -> list[int]:
    """Return the processes that a process has started; a server's have no process group of their own."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(entry.parent.name))
    return found


class PostgresqlStore:
    """A ledger in a database of its own.

    Args:
        server: Where.
        name: The database's name, which is made.
    """

    kind = "postgresql"
    roll_backs = ("older copy",)
    edits = ("row edited", "undoing trigger")

    def __init__(self, server: Server, name: str):
        self._server, self._name = server, name
        server.run(f"CREATE DATABASE {name}")
        self.url = server.url.set(drivername="postgresql", database=name).render_as_string(hide_password=False)
        self._undo: Callable[[], None] | None = None

    def _run(self, *statements: str) -> list[Any]:
        return self._server.run(*statements, database=self._name)

    def _tables(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for schema, table, column in self._run(
            "SELECT table_schema, table_name, column_name FROM information_schema.columns WHERE table_schema NOT IN "
            "('pg_catalog', 'information_schema') ORDER BY ordinal_position"
        ):
            found.setdefault(f'"{schema}"."{table}"', []).append(column)
        return found

    def keep(self) -> dict[str, Rows]:
        """Return the rows of all tables."""
        return {table: self._run(f"SELECT * FROM {table}") for table in self._tables()}

    def restore(self, kept: dict[str, Rows]) -> None:
        """Put the rows back, as a dump that is loaded would."""
        if self._undo is not None:
            self._undo()
            self._undo = None
        engine = sa.create_engine(self._server.url.set(database=self._name), poolclass=sa.NullPool)
        with engine.begin() as connection:
            for table, columns in self._tables().items():
                connection.exec_driver_sql(f"TRUNCATE {table}")
                rows = kept.get(table, [])
                if rows:
                    marks = ", ".join(["%s"] * len(columns))
                    connection.exec_driver_sql(f"INSERT INTO {table} VALUES ({marks})", rows)

    def tamper(self, what: str, earlier: dict[str, Rows], rng: random.Random) -> None:
        """See :class:`Store`."""
        if what == "older copy":
            self.restore(earlier)
            return
        rows, head = _ours({table: set(columns) for table, columns in self._tables().items()})
        if what == "row edited":
            count = self._run(f"SELECT count(*) FROM {rows}")[0][0]
            self._run(*_edit(what, rows, head, rng, count))
            return
        assert what == "undoing trigger"
        self._run(
            f"CREATE FUNCTION public.undo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.rows > OLD.rows THEN "
            f"DELETE FROM {rows} WHERE sequence > OLD.rows; "
            f"UPDATE {head} SET rows = OLD.rows, hash = OLD.hash; END IF; RETURN NULL; END $$",
            f"CREATE TRIGGER undo AFTER UPDATE ON {head} FOR EACH ROW EXECUTE FUNCTION public.undo()",
        )
        self._undo = lambda: self._run(f"DROP TRIGGER undo ON {head}", "DROP FUNCTION public.undo()") and None

    def rows(self) -> Rows | None:
        """See :class:`Store`."""
        rows, _ = _ours({table: set(columns) for table, columns in self._tables().items()})
        return self._run(f"SELECT * FROM {rows} ORDER BY sequence")

    def serve(self, what: str) -> None:
        """End all connections, or kill the server and start it again."""
        if what == "drop":
            self._run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        else:
            assert what == "server"
            self._server.kill()
            self._server.start()

    def close(self) -> None:
        """Remove the database."""
        self._server.run(f"DROP DATABASE {self._name} WITH (FORCE)")
