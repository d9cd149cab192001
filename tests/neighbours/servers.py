"""Engines that need a server: Ibis on PostgreSQL."""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import servers
from neighbours.tables import ENGINES, Engine, Rows, _polars

_NUMBER = iter(range(10**9))
_TYPES = {"String": "text", "Int64": "bigint", "Float64": "float8", "Boolean": "boolean"}


@contextmanager
def postgresql_if_there() -> Iterator[str | None]:
    """Run a server and use it; give its address, or None where this machine has none."""
    if servers.server_binary("postgres") is None:
        yield None
        return
    with servers.postgresql() as url:
        address = url.set(drivername="postgresql").render_as_string(hide_password=False)
        use(address)
        try:
            yield address
        finally:
            ENGINES.pop("postgresql", None)


def use(address: str) -> None:
    """Add the engine of a server that runs."""
    ENGINES["postgresql"] = Engine(lambda rows, names: _table(address, rows, names), texts=False)


@cache
def _connected(address: str) -> tuple[Any, Any]:
    import ibis
    import psycopg

    connections = [psycopg.connect(address, autocommit=True) for _ in range(2)]
    for connection in connections:
        atexit.register(connection.close)
    return connections[0], ibis.postgres.from_connection(connections[1])


def _table(address: str, rows: Rows, names: Sequence[str]) -> Any:
    """Return a table in the server; the one made a few tables before is gone then."""
    connection, backend = _connected(address)
    number = next(_NUMBER)
    frame, name = _polars(rows, names), f"people_{connection.info.backend_pid}_{number}"
    before = f"people_{connection.info.backend_pid}_{max(number - 4, 0)}"
    columns = ", ".join(f'"{column}" {_TYPES[str(dtype)]}' for column, dtype in frame.schema.items())
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {before}")
        cursor.execute(f"CREATE UNLOGGED TABLE {name} ({columns})")
        with cursor.copy(f"COPY {name} FROM STDIN") as copy:
            for row in frame.rows():
                copy.write_row([value.replace("\x00", "") if isinstance(value, str) else value for value in row])
    return backend.table(name)
