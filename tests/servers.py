"""A PostgreSQL server of our own for whoever needs one: on a free port of this machine, gone at the end."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

PASSWORD = "pa:ss@w/rd%1"
MISSING = "no PostgreSQL server binary on this machine (Debian: apt install postgresql)"


def server_binary(name: str) -> str | None:
    """Return where a program of PostgreSQL's server is, or None."""
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return shutil.which(name) or (str(debian[-1]) if debian else None)


def _server_user() -> str | None:
    """PostgreSQL refuses to run as root: name whom to run it as, or None for the present user."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


@contextmanager
def postgresql() -> Iterator[sa.URL]:
    """Run a server whose owner has a password full of special characters; the URL holds it.

    Raises:
        LookupError: If this machine has none.
    """
    initdb, postgres = server_binary("initdb"), server_binary("postgres")
    if initdb is None or postgres is None:
        raise LookupError(MISSING)
    with tempfile.TemporaryDirectory(prefix="escudo-pg-") as name:
        folder, user = Path(name), _server_user()
        secret = folder / "password"
        secret.write_text(PASSWORD)
        if user is not None:
            shutil.chown(folder, user)
            shutil.chown(secret, user)
        data = folder / "data"
        subprocess.run(
            [initdb, "-D", data, "-U", "owner", "--auth=scram-sha-256", f"--pwfile={secret}", "-E", "UTF8", "-N"],
            check=True,
            capture_output=True,
            user=user,
            cwd=folder,
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                # Clients are killed here, never the server, so it need not wait for the disk.
                [postgres, "-D", data, "-h", "127.0.0.1", "-p", str(port), "-k", folder, "-c", "fsync=off"],
                stdout=log,
                stderr=log,
                user=user,
                cwd=folder,
            )
            url = sa.URL.create("postgresql+psycopg", "owner", PASSWORD, "127.0.0.1", port, "postgres")
            try:
                _wait_until_ready(url, process, folder / "log")
                yield url
            finally:
                process.send_signal(signal.SIGQUIT)
                process.wait(timeout=30)


def _wait_until_ready(url: sa.URL, process: subprocess.Popen[bytes], log: Path) -> None:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    for _ in range(3000):
        if process.poll() is not None:
            raise RuntimeError(f"the PostgreSQL server did not start: {log.read_text()}")
        try:
            with engine.connect():
                return
        except sa.exc.OperationalError:
            time.sleep(0.1)
    raise RuntimeError("the PostgreSQL server was not ready after 5 minutes")
