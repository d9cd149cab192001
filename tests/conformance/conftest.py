"""A PostgreSQL server of our own for the suites that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from servers import postgresql, server_binary


@pytest.fixture(scope="session")
def server() -> Iterator[sa.URL]:
    """A server whose owner has a password full of special characters; the URL holds it."""
    if server_binary("initdb") is None or server_binary("postgres") is None:
        pytest.skip("no PostgreSQL server binary on this machine (Debian: apt install postgresql)")
    with postgresql() as url:
        yield url
