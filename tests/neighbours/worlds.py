"""Everything that can be seen of a run, and the comparison of two: only what was paid for may differ.

A verb runs on one table with noise as usual; every number that noise is added to is recorded with the noisy answer. It
runs on the neighbour with each answer *held* at what the first run released, which is what composition conditions on.
Then (a) what went into each draw has moved by no more than its event declares, and (b) everything else is the same to
the last bit: answers, files, words, warnings, exceptions, exit codes, charges, and the number, kind and order of draws.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import os
import pkgutil
import re
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import polars as pl

import escudo
from escudo import learning
from escudo.auditing._replay import Transcript
from escudo.mechanisms import Purse
from escudo.mechanisms._noise import watching
from escudo.mechanisms.dpsgd import _mechanism as training
from escudo.privacy import ApproximateEvent, _ledger_store

SECONDS = re.compile(r"\b\d+\.\d+ s\b|(?<=\"seconds\": )\d+(\.\d+)?")
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
THEN = "2020-02-02T20:20:20.000000+00:00"


@dataclass(slots=True)
class Seen:
    """What a run leaves behind.

    Attributes:
        answer: What it gave back, as plain values; or the exception.
        said: What it printed, on both streams.
        warned: The warnings it gave.
        files: The content of each file that it wrote.
    """

    answer: Any = None
    said: str = ""
    warned: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)


class Held:
    """The draws of a first run, against which any number of neighbours are run."""

    def __init__(self, run: Callable[[Path], Any]):
        self._transcript, self._trained, self._listed = Transcript(), [], []  # type: ignore[var-annotated]
        self.first = self._see(run, again=False)

    @property
    def refused(self) -> str:
        """With what words the first run ended, if it gave no answer."""
        answer = self.first.answer
        if isinstance(answer, tuple) and answer[0] == "raised":
            return f"{answer[1]}: {answer[2]}"
        if isinstance(answer, tuple) and isinstance(answer[1], int) and answer[1]:  # a command's exit code
            return f"exit code {answer[1]}: {self.first.said[:300]}"
        return ""

    @property
    def draws(self) -> int:
        """How many releases the first run made."""
        return len(self._transcript.releases) + len(self._trained)

    def difference(self, run: Callable[[Path], Any]) -> str | None:
        """Run on a neighbour, every answer held; return what an attacker could see, or None for nothing."""
        second = self._see(run, again=True)
        if self._found is not None:
            return self._found
        if self._transcript.broken:
            return f"draws: {self._transcript.why}"
        if self._transcript.unplayed or next(self._training, None) is not None or next(self._listing, None) is not None:
            return "draws: the second run made fewer"
        for number, step in enumerate(self._transcript.steps()):
            if step.violated:
                return (
                    f"draw {number} ({step.kind}) declares {step.unit} = {step.declared:.6g}, moved {step.actual:.6g}"
                )
        for name in ("warned", "said", "answer"):
            one, other = getattr(self.first, name), getattr(second, name)
            if one != other:
                return f"{name}: {_where(one, other)}"
        if self.first.files.keys() != second.files.keys():
            return f"files: {sorted(self.first.files.keys() ^ second.files.keys())}"
        for name, content in self.first.files.items():
            if content != second.files[name]:
                return f"file {name}: {_where(content, second.files[name])}"
        return None

    def _see(self, run: Callable[[Path], Any], *, again: bool) -> Seen:
        seen, said = Seen(), io.StringIO()
        self._found: str | None = None
        self._training, self._listing = iter(self._trained), iter(self._listed)
        self._transcript.begin(again=again)
        with (
            TemporaryDirectory(prefix="escudo-") as name,
            warnings.catch_warnings(record=True) as warned,
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
            watching(self._transcript.watch),
            self._holding_the_rest(again),
            _stopped_clock(),
            mock.patch.object(_ledger_store, "secrets", types.SimpleNamespace(token_hex=lambda size: "0" * 2 * size)),
            mock.patch.dict(os.environ, ESCUDO_STATE=str(Path(name) / "input.state")),  # where a ledger has its witness
        ):
            warnings.simplefilter("always")
            folder = Path(name)
            try:
                seen.answer = plain(run(folder))
            except Exception as error:
                seen.answer = ("raised", type(error).__name__, str(error).replace(name, "FOLDER"))
            seen.files = {
                path.relative_to(folder).as_posix(): path.read_bytes()
                for path in sorted(folder.rglob("*"))
                if path.is_file() and not path.relative_to(folder).parts[0].startswith("input.")
            }
        seen.said = SECONDS.sub("… s", said.getvalue().replace(name, "FOLDER"))
        seen.warned = [f"{warning.category.__name__}: {warning.message}" for warning in warned]
        return seen

    @contextlib.contextmanager
    def _holding_the_rest(self, again: bool) -> Iterator[None]:
        """Hold what is released otherwise than by adding noise to a vector of known length.

        A stable histogram and propose-test-release hold the value that they release; a training by DP-SGD the
        parameters, at whose start and end the sum over all rows may move by one clipped gradient at most.
        """
        usual, train, tell = Purse.draw, training._Run.go, learning.show_keys
        take = training._Steps.run
        begun_here: list[Any] = []  # the training under way

        def draw(purse: Purse, event: Any, law: Callable[[Any], Any], purpose: str = "") -> Any:
            if not isinstance(event, ApproximateEvent):
                return usual(purse, event, law, purpose)
            if not again:
                value = usual(purse, event, law, purpose)
                self._listed.append(value)
                return value
            value = next(self._listing, None)

            def held(source: Any) -> Any:
                law(source)  # for the noise that it takes
                return value

            self._transcript.unlike = True  # as many numbers as there are keys; the value is compared instead
            try:
                return usual(purse, event, held, purpose)
            finally:
                self._transcript.unlike = False

        def told(counts: Mapping[Any, int], event: ApproximateEvent, purse: Purse, **terms: Any) -> Any:
            bound = (event.max_rows_per_person or 1) * (2 if event.relation == "replace_one" else 1)
            if not again:
                self._listed.append(dict(counts))
            else:
                self._found = self._found or _moved_keys(next(self._listing, {}), counts, bound)
            return tell(counts, event, purse, **terms)

        def go(run: Any, state: Any, *file: Any) -> Any:
            begun_here[:] = [run]
            return train(run, state, *file)

        def taken(steps: Any, rows: Any, state: Any, *how: Any) -> Any:
            """Stand in where the rows are, which may be in a task of Dask."""
            (run,) = begun_here
            public = plain([run.training, run.layout.shapes, steps.expected_rows, run.event, run.fingerprint])
            start = np.asarray(state.parameters)
            if not again:
                value = take(steps, rows, state, *how)
                ends = (_clipped(steps, rows, flat) for flat in (start, value))
                self._trained.append((public, start.tobytes(), *ends, value))
                return value
            held = next(self._training, None)
            if held is None:
                self._found = "draws: the second run trained more often"
                return take(steps, rows, state, *how)
            settings, begun, at_start, at_end, value = held
            if public != settings:
                self._found = f"training: {_where(settings, public)}"
            elif start.tobytes() != begun:
                self._found = "training: it starts elsewhere"
            else:
                step = run.event.to_json()["event"]
                most = step["rows"] * (1 if step["relation"] == "add_remove" else 2)
                for before, flat in ((at_start, start), (at_end, value)):
                    moved = float(np.linalg.norm(_clipped(steps, rows, flat) - before))
                    allowed = most * run.training.clip_norm * (1 + 1e-5) + 1e-6 * float(np.abs(before).max(initial=0))
                    if not moved <= allowed:
                        self._found = f"training: a clipped sum moved by {moved:.6g}, allowed {allowed:.6g}"
            return value

        try:
            Purse.draw = draw  # type: ignore[assignment, method-assign]
            learning.show_keys = told  # type: ignore[assignment]
            training._Run.go = go  # type: ignore[method-assign]
            training._Steps.run = taken  # type: ignore[method-assign]
            yield
        finally:
            Purse.draw = usual  # type: ignore[method-assign]
            learning.show_keys = tell
            training._Run.go = train  # type: ignore[method-assign]
            training._Steps.run = take  # type: ignore[method-assign]


def _moved_keys(first: Mapping[Any, int], second: Mapping[Any, int], bound: int) -> str | None:
    moved = sum(abs(first.get(key, 0) - second.get(key, 0)) for key in {*first, *second})
    return None if moved <= bound else f"keys: counts moved by {moved}, allowed {bound}"


def _clipped(steps: Any, rows: Any, parameters: Any) -> np.ndarray[Any, Any]:
    """Return the sum of all rows' clipped gradients, each with the same randomness inside the network."""
    import jax.numpy as jnp

    rows, size = np.asarray(rows), 64
    padded = np.zeros((max(-(-len(rows) // size), 1) * size, *rows.shape[1:]), rows.dtype)
    padded[: len(rows)] = rows
    weights = (np.arange(len(padded)) < len(rows)).astype(np.float32)
    each = _clipped_rows(steps.loss_fn, steps.layout)
    terms = jnp.asarray(parameters, jnp.float32), jnp.float32(steps.training.clip_norm)
    parts = range(0, len(padded), size)
    return sum(np.asarray(each(*terms, padded[i : i + size], weights[i : i + size]), np.float64) for i in parts)


@cache
def _clipped_rows(loss_fn: Any, layout: Any) -> Any:
    import jax

    from escudo.mechanisms.dpsgd._layers import clipped_sum

    def one(parameters: Any, clip: Any, row: Any, weight: Any) -> Any:
        batch, tree, key = row[None], layout.unflatten(parameters), jax.random.key(0)
        return layout.flatten(clipped_sum(loss_fn, tree, batch, key, weight[None], clip)[0])

    every = jax.vmap(one, in_axes=(None, None, 0, 0))
    return jax.jit(lambda *terms: every(*terms).sum(axis=0))


@cache
def _modules() -> tuple[types.ModuleType, ...]:
    """Return all of escudo's modules, loaded."""
    names = [found.name for found in pkgutil.walk_packages(escudo.__path__, "escudo.") if "__main__" not in found.name]
    return tuple(map(import_module, names))


@contextlib.contextmanager
def _stopped_clock() -> Iterator[None]:
    """Let every time that is written down be the same."""
    from datetime import datetime

    changed: list[tuple[types.ModuleType, str, Any]] = []
    for module in _modules():
        for attribute, value in (("now", lambda: THEN), ("_now", lambda: datetime.fromisoformat(THEN))):
            found = module.__dict__.get(attribute)
            if isinstance(found, types.FunctionType):
                changed.append((module, attribute, found))
                setattr(module, attribute, value)
    try:
        yield
    finally:
        for module, attribute, found in changed:
            setattr(module, attribute, found)


def plain(value: Any) -> Any:
    """Return any answer as tuples of plain values, which are equal only if all that can be seen of them is."""
    if value is None or isinstance(value, bool | int | str | bytes):
        return value
    if isinstance(value, float):
        return ("float", value.hex() if math.isfinite(value) else str(value))
    if isinstance(value, np.ndarray | np.generic):
        return ("array", str(value.dtype), np.shape(value), np.asarray(value).tobytes())
    if isinstance(value, pl.DataFrame):
        return ("frame", str(value.schema), plain(value.rows()))
    if isinstance(value, Mapping):
        return ("mapping", tuple((plain(key), plain(inner)) for key, inner in value.items()))
    if isinstance(value, list | tuple):
        return (type(value).__name__, *map(plain, value))
    if isinstance(value, set | frozenset):
        return ("set", tuple(sorted(map(repr, map(plain, value)))))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((field.name, plain(getattr(value, field.name))) for field in dataclasses.fields(value))
        return (type(value).__name__, tuple(fields))
    if callable(getattr(value, "to_json", None)):
        return (type(value).__name__, plain(value.to_json()))
    return (type(value).__name__, ADDRESS.sub("", repr(value)))


def _where(one: Any, other: Any, path: str = "") -> str:
    """Return the first place where two plain values differ."""
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        for place, (a, b) in enumerate(zip(one, other, strict=True)):
            if a != b:
                name = f".{one[0]}" if place == 1 and isinstance(one[0], str) else f"[{place}]"
                return _where(a, b, path + name)
    if isinstance(one, str | bytes) and isinstance(other, str | bytes) and type(one) is type(other):
        start = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        low = max(start - 40, 0)
        return f"{path} at {start}: {one[low : start + 40]!r} and {other[low : start + 40]!r}"
    return f"{path}: {str(one)[:160]} and {str(other)[:160]}"
