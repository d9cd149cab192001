"""How many processes: one word for all that is spread over them."""

from __future__ import annotations

from escudo._validate import whole
from escudo.errors import InputError

__all__ = ["checked_jobs"]


def checked_jobs(jobs: int | None) -> int | None:
    """Return ``jobs`` as joblib takes it, or raise: a number from 1 on, -1 for all cores, -2 for all but one, or None.

    >>> checked_jobs(-1), checked_jobs(None)
    (-1, None)
    """
    if jobs is None:
        return None
    if jobs == 0:
        raise InputError("jobs must be 1 or more processes, or -1 for all cores; got 0.")
    return whole("jobs", jobs, minimum=-1024)
