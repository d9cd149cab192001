"""What is audited: mechanisms of any kind, run in one way.

A *mechanism* is any callable, an OpenDP measurement, an escudo mechanism or a service. It is called as
``mechanism(dataset, rng)`` and may offer ``mechanism.batch(dataset, count, rng)``, which returns ``count`` independent
outputs at once, as a sequence or as an array whose first axis has that length. What it promises to give later is
waited for: coroutines are awaited, iterators are read to their end. Every call gets a dataset of its own, so that a
mechanism that changes its input changes no later run.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import re
import threading
import weakref
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError
from escudo.mechanisms import Release

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
        self._own = threading.local()  # of each thread that calls it: its event loop
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
        """Return what comes of an awaitable, in one event loop for all calls of a thread: clients live in theirs."""

        async def wait() -> Any:
            return await later

        loop: asyncio.Runner | None = getattr(self._own, "loop", None)
        if loop is None:
            loop = self._own.loop = asyncio.Runner()
            weakref.finalize(self, _closed, loop)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return loop.run(wait())
        if inspect.iscoroutine(later):
            later.close()
        raise Unreachable(
            "a mechanism that is awaited cannot be audited inside an event loop that is already running, such as a "
            "notebook's; run the audit in a thread: await asyncio.to_thread(escudo.audit, ...)."
        )


def _closed(loop: asyncio.Runner) -> None:
    """Close an event loop, in a thread of its own: where this is called, another may be running."""
    closing = threading.Thread(target=loop.close)
    closing.start()
    closing.join()


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
