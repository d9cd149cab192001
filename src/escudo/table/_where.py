"""What the custodian asks of frames, done where their rows are: here, or on one worker of the cluster they lie on.

An evaluation or an attack learns from the same rows many times over, and its figures are for whoever may see the rows.
Here that is a function of frames. Where some of these lie on Spark or Dask, the function is taken to *one* worker
(:func:`where_rows_are`): the others send it the columns that the schema names, in the order of the rows, and it does
there what it does here, on frames with the same rows; so a seed gives the same answer. The driver and the client get no
row. Frames that are not on the cluster go along with the work: a file of somebody's, synthetic rows.

**What travels.** To the worker: the function's arguments, a generator of one's own among them, as the cluster sends
functions. Back: the result, as text that cannot run code (:mod:`escudo.table._answers`), or what escudo said
(:class:`~escudo.table._whole.Errand`).

**What is different there.** ``jobs`` are processes of the worker. How far it is, that worker knows: progress is told
when the answer is there, all at once. A ``log`` is a file that the worker sees under the name that it has for the
driver: on storage that both see, or the work begins anew. A worker that is lost costs time: the work begins anew on
another one, with the log if there is one, and the answer is the same.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo.errors import InputError
from escudo.table._answers import from_text, to_text
from escudo.table._frames import Source, engine_of, read_names, shielded, stored_names
from escudo.table._linked_schema import LinkedSchema
from escudo.table._schema import Schema
from escudo.table._whole import Errand

P = ParamSpec("P")
Found = TypeVar("Found")

CLUSTERS = {"pyspark": "Spark", "dask": "Dask"}
"""Engines with workers of their own, from which no row is brought here."""


def where_rows_are(
    *frames: str, public: Sequence[str] = (), said: Callable[[Any], Iterable[str]] | None = None
) -> Callable[[Callable[P, Found]], Callable[P, Found]]:
    """Let a function be done on a worker if some of its frames lie on a cluster, and here if none does.

    Args:
        frames: Which of its arguments are frames: each one frame, a list of them, or, of linked tables, one by table.
            Its argument ``schema``, if it has one, names the columns that it looks at.
        public: Which others are frames that anybody may see, such as synthetic rows: they go where the private ones
            are, and where none of these is on a cluster they are read here.
        said: What its ``on_progress`` is told by the answer of a worker.
    """

    def here_or_there(function: Callable[P, Found]) -> Callable[P, Found]:
        signature = inspect.signature(function)

        @wraps(function)
        def found(*args: P.args, **kwargs: P.kwargs) -> Found:
            try:
                given = signature.bind(*args, **kwargs)
            except TypeError:
                return function(*args, **kwargs)  # which says what is wrong
            asked = _Asked(given.arguments)
            asked.look_at(frames)
            engine = one_cluster((frame.where, frame.engine) for frame in asked.frames)
            if engine is None:
                return function(*args, **kwargs)
            asked.look_at(public)
            tell = given.arguments.pop("on_progress", None)
            away = asked.prepare(engine)
            errand = Errand(engine, partial(_done, found, given.args, given.kwargs))
            send = shielded(engine, "asking for rows", lambda: _sender(engine, away))
            with tracking(f"Working on a worker of {CLUSTERS[engine]}", total=1) as advance:
                told = errand.answer(send)["found"].tobytes().decode()
                advance(1)
            answer: Found = shielded(engine, "reading an answer", lambda: from_text(told))
            for words in () if said is None or tell is None else said(answer):
                tell(words)
            return answer

        return found

    return here_or_there


class _Asked:
    """What a function was given.

    Attributes:
        frames: The frames among it that were looked at, and what may be such.
    """

    def __init__(self, arguments: dict[str, Any]):
        self._arguments = arguments
        self._held: dict[str, Any] = {}
        self.frames: list[_Frame] = []

    def look_at(self, names: Iterable[str]) -> None:
        """Find the frames among some arguments."""

        def noted(frame: Any, columns: Sequence[str] | None, where: str) -> _Frame:
            self.frames.append(_Frame(frame, columns, where))
            return self.frames[-1]

        for name in names:
            self._held[name] = _each(self._arguments[name], name, self._arguments.get("schema"), noted)

    def prepare(self, engine: str) -> list[_Frame]:
        """Turn the arguments into what is sent to a worker, and return the frames whose rows are there."""
        away = [frame for frame in self.frames if frame.engine == engine]
        for name, held in self._held.items():
            self._arguments[name] = _Sent(_each(held, name, None, lambda one, *_: one.sent(away)))
        if self._arguments.get("log") is not None:
            self._arguments["log"] = os.path.abspath(self._arguments["log"])
        return away


def on_workers(frame: object) -> bool:
    """Return whether a frame lies on a cluster, from which no row is brought here."""
    return _Frame(frame, None, "").engine in CLUSTERS


def one_cluster(frames: Iterable[tuple[str, str]]) -> str | None:
    """Return the one cluster that frames lie on, given what each is called and its engine; None if none does.

    Raises:
        InputError: If there are two.
    """
    there = {engine: name for name, engine in frames if engine in CLUSTERS}
    if len(there) > 1:
        (engine, name), (other, second), *_ = there.items()
        raise InputError(
            f"{name} is on {CLUSTERS[engine]} and {second} on {CLUSTERS[other]}, and rows of a cluster are not brought "
            "to another one: write one of the two to files that both can read, and open it where the other one is."
        )
    return next(iter(there), None)


def _sender(engine: str, away: Sequence[_Frame]) -> Callable[[Errand], bytes]:
    if engine == "dask":
        from escudo.table._dask import dask_frames as frames_of
    else:
        from escudo.table._spark import spark_frames as frames_of
    return frames_of([frame.source for frame in away])


def _done(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], rows: Sequence[Any]
) -> dict[str, NDArray[Any]]:
    """Do it on a worker, given the rows of what is there."""

    def arrived(argument: Any) -> Any:
        return argument.arrived(rows) if isinstance(argument, _Sent) else argument

    found = function(*map(arrived, args), **{name: arrived(argument) for name, argument in kwargs.items()})
    return {"found": np.frombuffer(to_text(found).encode(), np.uint8)}


class _Frame:
    """What may be a frame among the arguments of a function.

    Attributes:
        where: What it is called.
        engine: Its engine; none of what is no frame, which whoever would read it refuses.
    """

    def __init__(self, frame: Any, columns: Sequence[str] | None, where: str):
        self._frame, self._columns, self.where, self.engine = frame, columns, where, ""
        with suppress(Exception):
            self._opened: Any = nw.from_native(frame)
            self.engine = engine_of(self._opened)

    @property
    def source(self) -> tuple[Source, list[str]]:
        """The frame and which columns of it are asked for; if it has none of them all, so that it is said there."""
        names: list[str] = self._opened.collect_schema().names()
        chosen = [name for name in names if self._columns is None or name in self._columns]
        return Source(engine=self.engine, frame=self._opened), chosen or names

    def sent(self, away: Sequence[_Frame]) -> Any:
        """Return what is sent: of a frame on the workers its number among those, of another one its rows."""
        if not self.engine:
            return self._frame
        if self in away:
            return _There(away.index(self))
        return shielded(self.engine, "reading rows", self._rows)

    def _rows(self) -> Any:
        source, names = self.source
        chosen = source.frame.select(names)
        return (chosen.collect() if isinstance(chosen, nw.LazyFrame) else chosen).to_native()


@dataclass(frozen=True, slots=True)
class _There:
    """Stands for a frame whose rows are on the workers."""

    number: int


@dataclass(frozen=True, slots=True)
class _Sent:
    """An argument on its way to a worker, where it is given the frames that it stands for."""

    held: Any

    def arrived(self, rows: Sequence[Any]) -> Any:
        """Return the argument as the function takes it."""
        return _each(self.held, "", None, lambda one, *_: rows[one.number] if isinstance(one, _There) else one)


def _each(
    argument: Any,
    where: str,
    schema: Schema | LinkedSchema | None,
    change: Callable[[Any, Sequence[str] | None, str], Any],
) -> Any:
    """Return an argument of frames with something else for each: made of it, of the columns asked for, of its name."""
    if isinstance(argument, list | tuple):
        return [_each(one, where, schema, change) for one in argument]
    if isinstance(argument, Mapping):
        read = {} if not isinstance(schema, LinkedSchema) else {t: read_names(schema.reading(t)) for t in schema.tables}
        return {name: change(one, read.get(name), f"{name!r:.60} of {where}") for name, one in argument.items()}
    # Whose a row of one table is makes no difference to what takes frames.
    return change(argument, stored_names(schema, schema.names) if isinstance(schema, Schema) else None, where)
