"""Work spread over processes by joblib, so that ``joblib.parallel_config`` sends it to a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

__all__ = ["awake", "spread", "workers"]

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

    chunk = max(1, -(-len(items) // (4 * several)))  # items of a chunk share what they count
    work: Any = Parallel(n_jobs=jobs, return_as="generator" if _streams() else "list")(
        delayed(_each)(function, items[start : start + chunk]) for start in range(0, len(items), chunk)
    )
    for found in work:
        yield from found


def awake(jobs: int | None) -> Iterator[Any]:
    """Start the processes while this one does something else; what comes back must be exhausted before they are used.

    A process takes seconds to load the libraries, as long as an accelerator takes to compile.
    """
    several = workers(jobs)
    if several == 1 or not _streams():
        return iter(())
    from joblib import Parallel, delayed

    woken: Iterator[Any] = Parallel(n_jobs=jobs, return_as="generator")(delayed(_each)(len, []) for _ in range(several))
    return woken


def _streams() -> bool:
    """Return whether answers come back one by one where joblib sends work now."""
    from joblib.parallel import get_active_backend

    return bool(getattr(get_active_backend()[0], "supports_return_generator", False))


def _each(function: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
    return [function(item) for item in items]
