"""Work that is spread over processes or a cluster by joblib, with the same answers whatever does it.

``joblib.parallel_config(backend=...)`` around a call says where: processes of this machine, Dask, Ray, Spark. Answers
come in the order of the items, and each item carries its own seed, so neither the number of workers nor which of them
is faster can change an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from escudo._validate import whole
from escudo.errors import InputError

Item = TypeVar("Item")
Found = TypeVar("Found")


def check_jobs(jobs: int | None) -> int | None:
    """Return ``jobs`` as joblib takes it, or raise: a number from 1 on, -1 for all cores, -2 for all but one, or None.

    >>> check_jobs(-1), check_jobs(None)
    (-1, None)
    """
    if jobs is None:
        return None
    if jobs == 0:
        raise InputError("jobs must be 1 or more processes, or -1 for all cores; got 0.")
    return whole("jobs", jobs, minimum=-1024)


def workers(jobs: int | None) -> int:
    """Return how many processes ``jobs`` stands for, as in joblib; one without joblib, if nobody asked for more.

    Raises:
        InputError: If several are asked for and joblib is missing.
    """
    try:
        from joblib import effective_n_jobs
    except ImportError:
        if jobs in (None, 1):
            return 1
        raise InputError("several processes need joblib: pip install 'escudo[evaluation]'.") from None
    return int(effective_n_jobs(jobs))


def spread(
    function: Callable[[Item], Found], items: Sequence[Item], jobs: int | None, *, chunk: int | None = None
) -> Iterator[Found]:
    """Call a function for each item, on several workers if there are several, and give the answers in order.

    Args:
        function: What to call; it and the items travel to where the workers are.
        items: What to call it with.
        jobs: How many processes, as in joblib.
        chunk: How many items travel together, and can share what they count; a fourth of a worker's by default.
    """
    several = workers(jobs)
    if several == 1 or len(items) < 2:
        yield from map(function, items)
        return
    from joblib import Parallel, delayed
    from joblib.parallel import get_active_backend

    size = max(1, -(-len(items) // (4 * several))) if chunk is None else chunk
    streams = getattr(get_active_backend()[0], "supports_return_generator", False)
    work: Any = Parallel(n_jobs=jobs, return_as="generator" if streams else "list")(
        delayed(_each)(function, items[start : start + size]) for start in range(0, len(items), size)
    )
    for found in work:
        yield from found


def _each(function: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
    return [function(item) for item in items]
