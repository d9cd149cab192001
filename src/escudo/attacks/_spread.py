"""Work spread over processes by joblib, so that ``joblib.parallel_config`` sends it to a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

__all__ = ["spread", "workers"]

Item = TypeVar("Item")
Found = TypeVar("Found")


def workers(jobs: int | None) -> int:
    """Return how many processes ``jobs`` stands for, as in joblib."""
    from joblib import effective_n_jobs

    return int(effective_n_jobs(jobs))


def spread(function: Callable[[Item], Found], items: Sequence[Item], jobs: int | None) -> Iterator[Found]:
    """Call a function for each item, in several processes if there are several, and give the answers in order."""
    several = workers(jobs)
    if several == 1 or len(items) < 2:
        yield from map(function, items)
        return
    from joblib import Parallel, delayed
    from joblib.parallel import get_active_backend

    chunk = max(1, -(-len(items) // (4 * several)))  # items of a chunk share what they count
    streams = getattr(get_active_backend()[0], "supports_return_generator", False)
    work: Any = Parallel(n_jobs=jobs, return_as="generator" if streams else "list")(
        delayed(_each)(function, items[start : start + chunk]) for start in range(0, len(items), chunk)
    )
    for found in work:
        yield from found


def _each(function: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
    return [function(item) for item in items]
