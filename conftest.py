"""Settings shared by all tests, and by the examples in docstrings (``make doctests``)."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings

import quick_jax  # noqa: F401 - for what it sets, before JAX is loaded
from durations import recorded

# Every commit tries the same few examples; `make nightly` looks for new ones, and says how to repeat what it finds.
settings.register_profile(
    "ci", derandomize=True, max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "nightly", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# The same commands are asked a thousand times: built once, where each call would build all of them again.
typer.testing._get_command = typer.main.get_command = functools.cache(typer.main.get_command)

gc.disable()  # until tests are collected: nothing of what is loaded and listed until then is ever let go


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where ledgers keep their witnesses, for tests and the processes that they start: never the user's own folder."""
    folder, before = tmp_path_factory.mktemp("state"), os.environ.get("ESCUDO_STATE")
    os.environ["ESCUDO_STATE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["ESCUDO_STATE"]
    else:
        os.environ["ESCUDO_STATE"] = before


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start what takes longest first, so that no process works alone at the end."""
    seconds, root = recorded(), Path(__file__).parent
    items.sort(key=lambda item: -seconds.get(item.path.relative_to(root).as_posix(), 0.0))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Look no more through what stays until the end.

    Looking through modules and ten thousand tests for what nobody uses, again and again, took a twentieth of a run.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000)


def pytest_sessionfinish() -> None:
    """Let go of everything in the end: extensions complain of what is left of them."""
    gc.unfreeze()
