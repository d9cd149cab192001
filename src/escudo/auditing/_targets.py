"""What is audited, and on what: mechanisms of any kind, run in one way, and pairs of neighbouring datasets.

A *mechanism* is any callable, an OpenDP measurement, an escudo mechanism or a service. It is called as
``mechanism(dataset, rng)`` and may offer ``mechanism.batch(dataset, count, rng)``, which returns ``count`` independent
outputs at once, as a sequence or as an array whose first axis has that length. What it promises to give later is
waited for: coroutines are awaited, iterators are read to their end. Every call gets a dataset of its own, so that a
mechanism that changes its input changes no later run. Pairs are those that are likely to show a fault.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import re
import weakref
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from escudo._validate import one_of, positive_integer
from escudo.errors import InputError
from escudo.mechanisms import Release
from escudo.privacy import Relation
from escudo.table import Categorical, Column, Numeric, Schema

Pair = tuple[Any, Any, str]

_LONGEST = 100_000  # items that are read of an iterator
_LONGEST_MESSAGE = 1000  # signs that are read of an error's text
_THERE = (float, int, str, list, np.ndarray)  # what most outputs are: nothing has to be waited for
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}")


# ---- mechanisms


class Mechanism(Protocol):
    """What is audited: a randomised function of a dataset."""

    def __call__(self, dataset: Any, rng: np.random.Generator, /) -> Any:
        """Return one output."""


class Uncounted(Exception):
    """Raised by a mechanism whose answer must not count as a trial, such as a cached answer seen before.

    Not counting is betting nothing, so it may depend on anything known *before* the answer, and on whether the answer
    is among a set fixed before it (such as all earlier answers); never otherwise on the answer itself.
    """


class Unreachable(InputError):
    """Raised by a mechanism that cannot be run at all, such as a service that nobody answers for: ends the audit."""


class Unreadable(InputError):
    """Raised for an output that has no value to look at, such as a function or an endless iterator: ends the audit."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"an output is {what}. Return numbers, texts, lists, dictionaries, dataclasses or tables instead, or pass "
            "features= to say what is to be looked at."
        )


_NO_OUTPUT = (Uncounted, Unreachable, Unreadable, MemoryError)  # exceptions that are no outputs


class Failure:
    """An output that is an exception: an error is an output too, its type apart from its text.

    Attributes:
        kind: The exception's type.
        label: What kind of output it is.
        content: Its text, in which addresses in memory, which mean nothing, are left out.
        failed: Always.
    """

    __slots__ = ("content", "kind")

    failed = True

    def __init__(self, error: BaseException) -> None:
        self.kind = type(error).__name__
        try:
            self.content = without_addresses(str(error)[:_LONGEST_MESSAGE])
        except Exception:  # an error whose text is another error
            self.content = ""

    @property
    def label(self) -> str:
        return f"error: {self.kind}"


class Reply(dict[str, Any]):
    """What a service answered: its status, apart from its body and its time."""

    @property
    def label(self) -> str:
        return f"status {self['status']}"

    @property
    def content(self) -> dict[str, Any]:
        """All but the status."""
        return {key: value for key, value in self.items() if key != "status"}

    @property
    def failed(self) -> bool:
        """Whether it is no answer to the question."""
        return not 200 <= self["status"] < 300


def without_addresses(text: str) -> str:
    """Return a text in which an address in memory is the same in every run."""
    return _ADDRESS.sub("0x…", text)


def adapt(target: Any) -> Mechanism:
    """Return ``target`` as a mechanism ``(dataset, rng) -> output``.

    Args:
        target: A callable ``(dataset, rng)``; a callable with a keyword ``rng`` or ``seed``, such as a function built
            on ``escudo.mechanisms``; an OpenDP measurement (which draws its own noise); or a callable of the dataset
            alone. A :class:`~escudo.mechanisms.Release` that comes back counts as its value.

    Raises:
        InputError: If it cannot be called.

    >>> from escudo.mechanisms import laplace
    >>> count = adapt(lambda rows, seed: laplace(len(rows), sensitivity=1, epsilon=1.0, seed=seed))
    >>> isinstance(count([1, 2, 3], np.random.default_rng(0)), int)
    True
    """
    if not callable(target):
        raise InputError(f"a mechanism must be callable as mechanism(dataset, rng); got {type(target).__name__}.")
    if hasattr(target, "invoke") and hasattr(target, "map"):  # an OpenDP measurement
        return _Adapted(lambda dataset, rng: target(dataset), target)
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):  # built in C: no signature to look at
        return _Adapted(target, target)
    if "seed" in {*parameters, *_unpacked(target)} and "rng" not in parameters:
        return _Adapted(lambda dataset, rng: target(dataset, seed=rng), target)
    if "rng" in parameters and parameters["rng"].kind is inspect.Parameter.KEYWORD_ONLY:
        return _Adapted(lambda dataset, rng: target(dataset, rng=rng), target)
    required = [
        p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
    ]
    if len(required) == 1 and required[0].kind is not required[0].VAR_POSITIONAL:
        return _Adapted(lambda dataset, rng: target(dataset), target)
    return _Adapted(target, target)


def _unpacked(target: Any) -> set[str]:
    """Return the keywords that a callable takes as unpacked options, as those of ``escudo.mechanisms`` do."""
    try:
        parameters = inspect.signature(target, eval_str=True).parameters.values()
    except Exception:  # annotations that cannot be resolved
        return set()
    options = [option for p in parameters if p.kind is p.VAR_KEYWORD for option in get_args(p.annotation)]
    return {name for option in options for name in getattr(option, "__annotations__", ())}


def name_of(target: Any) -> str | None:
    """Return what tells a mechanism from others: a service's address, or a function's own name; None without one."""
    name = getattr(target, "url", None) or getattr(target, "__qualname__", None)
    return None if name is None or "<" in name else str(name).partition("?")[0]


class _Adapted:
    """A mechanism that calls another, keeps its batch function, waits for what comes later, and opens releases."""

    def __init__(self, call: Callable[[Any, np.random.Generator], Any], target: Any) -> None:
        self._call = call
        self.target = target
        self._loop: asyncio.Runner | None = None
        batch = getattr(target, "batch", None)
        self.batch = batch if callable(batch) else None

    def __call__(self, dataset: Any, rng: np.random.Generator, /) -> Any:
        return self._settled(self._call(dataset, rng))

    def _settled(self, output: Any) -> Any:
        """Return what an output comes to."""
        if isinstance(output, _THERE):
            return output
        if isinstance(output, Release):
            return output.value
        if isinstance(output, Awaitable):
            return self._settled(self._awaited(output))
        if isinstance(output, AsyncIterable):
            return self._awaited(_gathered(output))
        return items_of(output) if isinstance(output, Iterator) else output

    def _awaited(self, later: Awaitable[Any]) -> Any:
        """Return what comes of an awaitable, in one event loop for all calls: clients live in the one they began in."""

        async def wait() -> Any:
            return await later

        if self._loop is None:
            self._loop = asyncio.Runner()
            weakref.finalize(self, self._loop.close)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._loop.run(wait())
        if inspect.iscoroutine(later):
            later.close()
        raise Unreachable(
            "a mechanism that is awaited cannot be audited inside an event loop that is already running, such as a "
            "notebook's; run the audit in a thread: await asyncio.to_thread(escudo.audit, ...)."
        )


async def _gathered(output: AsyncIterable[Any]) -> list[Any]:
    found: list[Any] = []
    async for item in output:
        found.append(item)
        if len(found) > _LONGEST:
            break
    return items_of(found)  # which raises if they are too many


def items_of(output: Iterable[Any]) -> list[Any]:
    """Return the items of an iterable, or raise if there are too many of them to be an output."""
    found = list(islice(output, _LONGEST + 1))
    if len(found) > _LONGEST:
        raise Unreadable(f"longer than {_LONGEST:,} items, or endless")
    return found


def own_copy(dataset: Any) -> Callable[[], Any]:
    """Return what gives every call a dataset of its own: as cheap a copy as will do, or the same if nothing changes it.

    What cannot be copied, such as a connection, is shared.

    >>> fresh = own_copy([1, 2])
    >>> fresh().append(3)
    >>> fresh()
    [1, 2]
    """
    if _never_changes(dataset):
        return lambda: dataset
    kind = type(dataset)
    if kind in (list, dict, set) and all(map(_never_changes, dataset.values() if kind is dict else dataset)):
        return dataset.copy  # type: ignore[no-any-return]
    if kind is np.ndarray and dataset.dtype != object:
        return dataset.copy  # type: ignore[no-any-return]
    if kind.__module__.partition(".")[0] == "polars" and hasattr(dataset, "clone"):
        return dataset.clone  # type: ignore[no-any-return]
    try:
        copy.deepcopy(dataset)
    except Exception:  # whatever it is that cannot be copied
        return lambda: dataset
    return lambda: copy.deepcopy(dataset)


def _never_changes(value: Any) -> bool:
    if type(value) in (tuple, frozenset):
        return all(map(_never_changes, value))
    return (
        value is None or type(value) in (bool, int, float, complex, str, bytes, range) or isinstance(value, np.generic)
    )


def run_one(mechanism: Mechanism, dataset: Any, rng: np.random.Generator) -> Any:
    """Return one output; an exception counts as one, except those that end the audit or are :class:`Uncounted`."""
    try:
        return mechanism(dataset, rng)
    except _NO_OUTPUT:
        raise
    except Exception as error:  # an error is an output
        return Failure(error)


def run_batch(
    mechanism: Mechanism, datasets: tuple[Any, Any], labels: NDArray[np.bool_], rng: np.random.Generator
) -> Any:
    """Return the outputs of a batched mechanism in the order of ``labels``: an array, or a list.

    Which dataset is asked first is drawn too, so that neither is always the earlier.
    """
    batch = getattr(mechanism, "batch", None)
    assert batch is not None
    outputs: dict[bool, Any] = {}
    for arm in (True, False) if rng.random() < 0.5 else (False, True):
        count = int(np.count_nonzero(labels == arm))
        if count:
            outputs[arm] = _check_outputs(_batch_or_failures(batch, datasets[int(arm)], count, rng), count)
    if len(outputs) == 1:
        return next(iter(outputs.values()))
    first, second = outputs[False], outputs[True]
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray) and first.shape[1:] == second.shape[1:]:
        merged = np.empty((labels.size, *first.shape[1:]), dtype=np.result_type(first, second))
        merged[~labels], merged[labels] = first, second
        return merged
    sides = (iter(first), iter(second))
    return [next(sides[int(label)]) for label in labels]


def _batch_or_failures(batch: Any, dataset: Any, count: int, rng: np.random.Generator) -> Any:
    """Return a batch of outputs; if it fails, every run of it did, as an error is an output."""
    try:
        return batch(dataset, count, rng)
    except _NO_OUTPUT:
        raise
    except Exception as error:
        return [Failure(error)] * count


def _check_outputs(outputs: Any, count: int) -> Any:
    if not isinstance(outputs, np.ndarray | Sequence) or len(outputs) != count:
        raise InputError("mechanism.batch(dataset, count, rng) must return count outputs, as an array or a sequence.")
    return outputs


# ---- input pairs


def read_pairs(pairs: Sequence[tuple[Any, ...]]) -> list[Pair]:
    """Return pairs with labels, or raise if they are none."""
    found: list[Pair] = []
    for i, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) not in (2, 3):
            raise InputError(f"pairs must be a list of (d, d′) or (d, d′, label); number {i + 1} is not.")
        found.append((pair[0], pair[1], str(pair[2]) if len(pair) == 3 else f"pair {i + 1}"))
    if not found:
        raise InputError("pairs is empty: give at least one pair of neighbouring datasets.")
    return found


def query_pairs(length: int, *, by: float = 1.0) -> list[Pair]:
    """Return vectors of query answers that differ by at most ``by`` in every entry, in the patterns that show most.

    For mechanisms that take the answers of ``length`` queries, each of which one record can move by ``by``.

    >>> [label for _, _, label in query_pairs(3)][:3]
    ['one up', 'one down', 'all up']

    Reference:
        Z. Ding et al. (2018), "Detecting violations of differential privacy", section 5.2, for most of the patterns.
    """
    size = positive_integer("length", length)
    base = np.full(size, by)
    half = np.arange(size) < size // 2
    step = np.arange(size) == 0
    pairs: list[tuple[NDArray[np.float64], str]] = [
        (base + by * step, "one up"),
        (base - by * step, "one down"),
        (base + by, "all up"),
        (base - by, "all down"),
    ]
    if size > 1:
        pairs += [
            (np.where(half, base - by, base + by), "half down, half up"),
            (np.where(step, base + by, base - by), "one up, others down"),
            (np.where(step, base - by, base + by), "one down, others up"),
            (np.where(half, base, base + by), "half up"),
        ]
    found: list[Pair] = [(base.copy(), other, label) for other, label in pairs]
    if size > 1:
        crossed = np.where(half, by, 0.0)
        found.append((crossed, by - crossed, "crossed"))
    return found


def pairs_of(schema: Schema, *, relation: Relation = "replace_one", rows: Sequence[int] = (1, 5)) -> list[Pair]:
    """Return neighbouring tables as polars frames: the ones in which mistakes show.

    Corners of the domain, values at and beyond the bounds, tables of one record and (``add_remove``) of none, equal
    records, one record unlike all others, missing values, and the changed record first, in the middle and last.

    Args:
        schema: The public description of the table.
        relation: ``"replace_one"``: one record takes other values; ``"add_remove"``: one record is not there.
        rows: Sizes of the tables.

    Raises:
        SchemaError: If a column has no levels or bounds.

    >>> schema = Schema.from_dict({"age": {"type": "numeric", "lower": 0, "upper": 100}})
    >>> [label for _, _, label in pairs_of(schema)][:2]
    ['1 record, lowest to highest', '1 record, lowest to missing']
    """
    import polars as pl

    one_of("relation", relation, ("replace_one", "add_remove"))
    low = {c.name: _value(c, "lowest") for c in schema.fields}
    high = {c.name: _value(c, "highest") for c in schema.fields}
    changed = [("highest", high), ("missing", {c.name: _value(c, "missing") for c in schema.fields})]
    if any(isinstance(c, Numeric) for c in schema.fields):
        changed += [
            ("beyond the bounds", {c.name: _value(c, "beyond") for c in schema.fields}),
            ("the middle", {c.name: _value(c, "middle") for c in schema.fields}),
        ]
    if len(schema.fields) > 1:
        changed += [(f"highest {c.name} only", {**low, c.name: high[c.name]}) for c in schema.fields[:8]]
    kinds = {c.name: _kind(c) for c in schema.fields}

    def frame(records: list[dict[str, Any]]) -> pl.DataFrame:
        return pl.DataFrame({name: [r[name] for r in records] for name in schema.names}, schema=kinds, strict=False)

    found: list[Pair] = []
    for size in dict.fromkeys(positive_integer("rows", n) for n in rows):
        noun = "record" if size == 1 else "records"
        for words, record in changed:
            for place in dict.fromkeys((0, size // 2, size - 1)) if words == "highest" else (0,):
                where = "" if size == 1 or words != "highest" else f", number {place + 1}"
                rest = [low] * (size - 1)
                if relation == "replace_one":
                    pair = [*rest[:place], low, *rest[place:]], [*rest[:place], record, *rest[place:]]
                    label = f"{size} {noun}, lowest to {words}{where}"
                else:
                    pair = rest, [*rest[:place], record, *rest[place:]]
                    label = f"{size - 1} and {size} records, one with {words} more{where}"
                found.append((frame(pair[0]), frame(pair[1]), label))
        if size > 1 and relation == "replace_one":
            found.append(
                (frame([low] + [high] * (size - 1)), frame([high] * size), f"{size} {noun}, the odd one joins")
            )
    if relation == "add_remove":
        found.insert(0, (frame([]), frame([low]), "no record and one"))
    return found


def _value(column: Column, which: str) -> Any:
    if isinstance(column, Categorical):
        assert column.size  # raises where levels are still to be learnt
        levels = column.levels
        return {"lowest": levels[0], "missing": None, "middle": levels[len(levels) // 2]}.get(which, levels[-1])
    lower, upper = column.boundaries[0], column.boundaries[-1]
    if which == "missing":
        return None if column.integer else float("nan")
    number = {
        "lowest": lower,
        "highest": upper,
        "middle": (lower + upper) / 2,
        "beyond": upper + 1000 * (upper - lower),
    }[which]
    return round(number) if column.integer else float(number)


def _kind(column: Column) -> Any:
    import polars as pl

    if isinstance(column, Numeric):
        return pl.Int64 if column.integer else pl.Float64
    return {"string": pl.String, "integer": pl.Int64, "boolean": pl.Boolean}[column.kind]
