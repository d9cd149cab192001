"""A pytest plugin: the fixture ``assert_private`` audits a mechanism in a test, with one error over all tests.

Load it with ``pytest_plugins = ["escudo.testing"]`` in ``conftest.py``, or ``pytest -p escudo.testing``. It is not
loaded by itself, so that test runs without audits load nothing of escudo::

    def test_the_count_keeps_its_promise(assert_private):
        assert_private(noisy_count, epsilon=1.0)

``--audit-confidence`` is the confidence that no correct mechanism fails any test of the run; audit number k has the
part 1/(k(k+1)) of the error, and these add up to 1 (:mod:`escudo.auditing`). With pytest-xdist each worker has an equal
part.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from escudo.auditing import Audit

_AUDITS = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("escudo").addoption(
        "--audit-confidence",
        type=float,
        default=0.99,
        help="That no correct mechanism fails an assert_private of this run (default: %(default)s).",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count."""
    config.stash[_AUDITS] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was audited, and with what confidence."""
    if found := config.stash[_AUDITS]:
        error = 1 - config.getoption("--audit-confidence")
        terminalreporter.write_line(f"{len(found)} audits, one error of {error:.3g} over all of them:")
        for verdict in found:
            terminalreporter.write_line(f"  {verdict}")


@pytest.fixture
def assert_private(request: pytest.FixtureRequest) -> Callable[..., Audit]:
    """Give :func:`escudo.auditing.assert_private` with a part of the run's error."""
    return partial(_assert, request)


def _assert(request: pytest.FixtureRequest, mechanism: Any, **options: Any) -> Audit:
    from escudo.auditing import assert_private as check

    audits = request.config.stash[_AUDITS]
    number, workers = len(audits) + 1, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    error = (1 - request.config.getoption("--audit-confidence")) / workers
    audits.append(f"{request.node.name}: not finished")
    try:
        found = check(mechanism, confidence=1 - error / (number * (number + 1)), **options)
    except AssertionError as error_found:
        audits[-1] = f"{request.node.name}: {str(error_found).splitlines()[0]}"
        raise
    audits[-1] = f"{request.node.name}: {found.verdict}"
    return found
