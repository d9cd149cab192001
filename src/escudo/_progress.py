"""A progress bar for anything over two seconds: shown in terminals and notebooks, silent when piped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def tracking(label: str, total: int) -> Iterator[Callable[..., None]]:
    """Give a function that advances a bar of ``total`` steps with its expected end, and may say how far things are.

    The bar is written to standard error and vanishes when done. Steps must be public facts (tables, epochs, trials),
    never the progress of a scan whose speed depends on private values.

    >>> with tracking("Measuring", total=2) as advance:
    ...     advance(1)
    ...     advance(1, "almost done")
    """
    if not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        yield lambda steps, said="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda steps, said="": bar.update(task, advance=steps, description=f"{label} {said}".rstrip())
