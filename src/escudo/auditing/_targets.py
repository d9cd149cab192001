"""What can be audited: any callable, an OpenDP measurement, an escudo mechanism, a service. One way to run them all.

A *mechanism* is called as ``mechanism(dataset, rng)`` and may offer ``mechanism.batch(dataset, count, rng)``, which
returns ``count`` independent outputs at once, as a sequence or as an array whose first axis has that length.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError
from escudo.mechanisms import Release

__all__ = ["Failure", "Mechanism", "Uncounted", "Unreachable", "adapt", "name_of", "run_batch", "run_one"]


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


class Failure:
    """An output that is an exception: an error is an output too, by its type only."""

    __slots__ = ("kind",)

    def __init__(self, error: BaseException) -> None:
        self.kind = type(error).__name__

    def __repr__(self) -> str:
        return f"error: {self.kind}"


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
    if "seed" in parameters and "rng" not in parameters:
        return _Adapted(lambda dataset, rng: target(dataset, seed=rng), target)
    if "rng" in parameters and parameters["rng"].kind is inspect.Parameter.KEYWORD_ONLY:
        return _Adapted(lambda dataset, rng: target(dataset, rng=rng), target)
    required = [
        p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
    ]
    if len(required) == 1 and required[0].kind is not required[0].VAR_POSITIONAL:
        return _Adapted(lambda dataset, rng: target(dataset), target)
    return _Adapted(target, target)


def name_of(target: Any) -> str | None:
    """Return what tells a mechanism from others: a service's address, or a function's own name; None without one."""
    name = getattr(target, "url", None) or getattr(target, "__qualname__", None)
    return None if name is None or "<" in name else str(name).partition("?")[0]


class _Adapted:
    """A mechanism that calls another, keeps its batch function, and opens releases."""

    def __init__(self, call: Callable[[Any, np.random.Generator], Any], target: Any) -> None:
        self._call = call
        self.target = target
        batch = getattr(target, "batch", None)
        self.batch = batch if callable(batch) else None

    def __call__(self, dataset: Any, rng: np.random.Generator, /) -> Any:
        output = self._call(dataset, rng)
        return output.value if isinstance(output, Release) else output


def run_one(mechanism: Mechanism, dataset: Any, rng: np.random.Generator) -> Any:
    """Return one output; an exception counts as one, except those that end the audit or are :class:`Uncounted`."""
    try:
        return mechanism(dataset, rng)
    except (Uncounted, Unreachable, MemoryError):
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
            outputs[arm] = _checked(_batch_or_failures(batch, datasets[int(arm)], count, rng), count)
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
    except (Uncounted, Unreachable, MemoryError):
        raise
    except Exception as error:
        return [Failure(error)] * count


def _checked(outputs: Any, count: int) -> Any:
    if not isinstance(outputs, np.ndarray | Sequence) or len(outputs) != count:
        raise InputError("mechanism.batch(dataset, count, rng) must return count outputs, as an array or a sequence.")
    return outputs
