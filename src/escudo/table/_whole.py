"""All rows of a table as one array, in one place: work is taken to them, and a few numbers come back.

Few questions need all rows at once: a training takes the same ones step by step, and what hangs on the place of each
row in a public shuffle cannot be added up from parts. In this process rows are read and held, in memory or beyond it in
a file without a name. Where a frame has workers (Spark, Dask), they encode their parts and send them to *one* worker,
which holds them in the same way, in the order in which the table would have come here, and does the work: neither the
driver nor the client gets a row. The answers are the same, since it is the same work on the same array.

**What travels.** To the worker: the work, which is public or was paid for (settings, regressions on noisy counts, the
parameters that a training starts from); whoever makes it sees to that. No noise, no key and no generator for a release
travels: a training draws on the worker, from its operating system. Back: numbers, as an archive that cannot run code.
What escudo itself refuses comes back as its words, which hold no values (:mod:`escudo.errors`); of any other error the
kind comes back and nothing else, as from an engine. Since it comes as an answer, the cluster does not try again.

**Work that is done twice.** A cluster may do it again: its worker was lost, or was slow and another began as a spare.
It is one task, and of all its runs the cluster takes the first that ends and drops the others, so there is one answer.
For work that is fixed by the rows it is the same whichever that is; for work that draws noise see
:mod:`escudo.mechanisms.dpsgd`.

**In order.** Where rows are split by their position, and each half is asked for something by itself, all rests on the
order: a row in both halves would be paid for once and used twice. So each of these answers comes with a digest of the
array, and a second one of other rows, or of the same in another order, is refused before anything is made of it. The
digest is in the memory of the process that asks until the question is answered, and goes nowhere. A training needs no
order: whatever rows it sees, in whatever order, its steps are paid for.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from escudo.errors import (
    EngineError,
    EscudoError,
    GraphError,
    InputError,
    NotIdentifiableError,
    RefusedError,
    SchemaError,
    UnsupportedEventError,
)
from escudo.table._contributions import held
from escudo.table._frames import shielded

Work: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]
"""What makes a few numbers of all rows. It may be sent to a worker, with all that it holds."""

_DOING = "working on all rows in one place"
_TOLD = {
    kind.__name__: kind
    for kind in (InputError, SchemaError, GraphError, NotIdentifiableError, UnsupportedEventError, RefusedError)
}


@dataclass(frozen=True, slots=True, eq=False)
class Errand:
    """Work on its way to rows, in whatever form these come there.

    Attributes:
        engine: Where the rows are.
        work: What makes an answer of them, in arrays.
    """

    engine: str
    work: Callable[[Any], dict[str, NDArray[Any]]]

    def __call__(self, rows: Any) -> bytes:
        """Do the work on a worker; what it came to, be it an error."""
        try:
            answer = shielded(self.engine, _DOING, lambda: self._done(rows))
        except EscudoError as error:
            answer = {"error": np.array([type(error).__name__, str(error)])}
        written = io.BytesIO()
        np.savez(written, **answer)  # type: ignore[arg-type] # numpy's own options are no arrays
        return written.getvalue()

    def _done(self, rows: Any) -> dict[str, NDArray[Any]]:
        try:
            return self.work(rows)
        except (ModuleNotFoundError, InputError) as error:
            # Where a package is an extra, escudo says how to install it: here it matters that a worker lacks it.
            absent = error if isinstance(error, ModuleNotFoundError) else error.__context__
            if not isinstance(absent, ModuleNotFoundError):
                raise
            lacking = absent.name
        raise EngineError(f"a worker lacks the package {lacking!r}: install there what is installed here.")

    def answer(self, send: Callable[[Errand], bytes]) -> dict[str, NDArray[Any]]:
        """Send it, and return the answer.

        Raises:
            EngineError: If the cluster failed; or what escudo itself said there.
        """
        answer = shielded(self.engine, _DOING, lambda: _read(send(self)))
        if "error" in answer:
            kind, words = answer["error"].tolist()
            raise _TOLD.get(kind, EngineError)(words)
        return answer


class Whole:
    """All rows of a table, as one array in one place.

    Args:
        engine: Where they are.
        rows: The rows, if that is here.
        none: No rows, in their type.
        send: Takes an errand to the worker that they are brought to, if they are not here.

    Attributes:
        rows: The rows, if they are here; None if they are on a worker.
        engine: Where they are.
    """

    __slots__ = ("_none", "_seen", "_send", "engine", "rows")

    def __init__(
        self,
        engine: str,
        rows: NDArray[Any] | None,
        none: NDArray[Any],
        *,
        send: Callable[[Errand], bytes] | None = None,
    ):
        self.engine, self.rows = engine, rows
        self._none, self._send = none, send
        self._seen: bytes | None = None

    def found(self, work: Work, *, in_order: bool = False) -> NDArray[Any]:
        """Return what some work makes of all rows, done where they are.

        Args:
            work: The work.
            in_order: Whether the rows must be those that were last asked for in order, and in the same order.

        Raises:
            EngineError: If the cluster failed, or rows that have to come in order do not.
        """
        if self.rows is not None:
            return work(self.rows)
        assert self._send is not None, "the rows are here or elsewhere"
        answer = Errand(self.engine, partial(_of_array, work, self._none, in_order)).answer(self._send)
        if in_order:
            before, self._seen = self._seen, answer["seen"].tobytes()
            if before not in (None, self._seen):
                raise EngineError("the table changed while it was read; ask again, or of a copy that stays as it is.")
        return answer["found"]

    def __repr__(self) -> str:
        return f"Whole(engine={self.engine!r})"


def _of_array(
    work: Work, none: NDArray[Any], in_order: bool, batches: Iterable[NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Return what some work makes of all rows, which come in batches, with a digest of them if it is wanted."""
    rows = held(batches, none)
    found = work(rows)
    seen = hashlib.sha256(np.ascontiguousarray(rows).data).digest() if in_order and rows.size else b""
    return {"found": found, "seen": np.frombuffer(seen, np.uint8)}


def _read(blob: bytes) -> dict[str, NDArray[Any]]:
    with np.load(io.BytesIO(blob), allow_pickle=False) as answer:
        return {name: answer[name] for name in answer.files}
