"""Mechanisms of other libraries, made into something to audit: one function for each kind.

* :func:`opendp`: a measurement;
* :func:`diffprivlib`: a mechanism with ``randomise``, or a function of ``diffprivlib.tools``;
* :func:`pydp`: an algorithm with ``quick_result``;
* :func:`smartnoise`: a query asked of a private reader; its synthesizers by :func:`generator`;
* :func:`estimator`: anything with ``fit``, as in scikit-learn: what it learnt, and what it predicts;
* :func:`training`: a training of a network, by Opacus, JAX or anybody: its parameters;
* :func:`generator`: a fit of synthetic data: the whole table that comes out, and how near it is to canaries.

None of these packages is needed here: an adapter calls the object it is given. What libraries draw from their own
source of randomness cannot be repeated with a seed; the audit is as valid. An audit of what is made once and called
often is one of each call: a mechanism that counts its own budget is made anew for every call, by a function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._targets import Mechanism
from escudo.errors import InputError

__all__ = ["diffprivlib", "estimator", "generator", "opendp", "pydp", "smartnoise", "training"]

_SEEDS = 2**31 - 1  # below this, every library takes a seed


def opendp(measurement: Any) -> Mechanism:
    """Return a mechanism of an OpenDP measurement: ``measurement(dataset)``.

    >>> import opendp.prelude as dp
    >>> dp.enable_features("contrib")
    >>> space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    >>> count = opendp(dp.m.make_laplace(*space, scale=1.0))
    >>> isinstance(count(3, np.random.default_rng(0)), int)
    True
    """
    if not callable(measurement):
        raise InputError("opendp() takes a measurement, such as dp.m.make_laplace(...).")

    def mechanism(dataset: Any, rng: np.random.Generator, /) -> Any:
        return measurement(dataset)

    return mechanism


def diffprivlib(what: Any, **options: Any) -> Mechanism:
    """Return a mechanism of a diffprivlib mechanism (``randomise``) or of a function of ``diffprivlib.tools``.

    Args:
        what: ``Laplace(epsilon=1, sensitivity=1)``, or ``tools.mean``.
        options: Of the function: ``epsilon``, ``bounds`` and so on. Its ``random_state`` is drawn for every call.
    """
    randomise = getattr(what, "randomise", None)

    def mechanism(dataset: Any, rng: np.random.Generator, /) -> Any:
        if randomise is not None:
            return randomise(dataset)
        return what(dataset, random_state=_seed(rng), **options)

    if randomise is None and not callable(what):
        raise InputError("diffprivlib() takes a mechanism with randomise(), or a function such as tools.mean.")
    return mechanism


def pydp(make: Callable[[], Any]) -> Mechanism:
    """Return a mechanism of a PyDP algorithm, made anew for every call since it counts its own budget.

    Args:
        make: ``lambda: BoundedSum(epsilon=1, lower_bound=0, upper_bound=10)``.
    """

    def mechanism(dataset: Any, rng: np.random.Generator, /) -> Any:
        return make().quick_result(list(dataset))

    return mechanism


def smartnoise(reader: Callable[[Any], Any], query: str) -> Mechanism:
    """Return a mechanism that asks a SmartNoise reader a query; the rows that come back are the output.

    Args:
        reader: From a table to a private reader: ``lambda frame: from_df(frame, metadata=..., privacy=...)``.
        query: In SQL.
    """

    def mechanism(dataset: Any, rng: np.random.Generator, /) -> Any:
        return [list(row) for row in reader(dataset).execute(query)][1:]  # the first row names the columns

    return mechanism


def estimator(make: Callable[[], Any], *, label: str | int | None = -1, probes: Any = None) -> Mechanism:
    """Return a mechanism that fits an estimator: what it learnt, and what it predicts at some points.

    Args:
        make: Makes the estimator, unfitted: ``lambda: LogisticRegression(epsilon=1)``. Where it has a ``random_state``,
            that is drawn for every fit.
        label: The column of the dataset that is learnt, by its name or place; None if there is none.
        probes: Rows at which to predict, without the label: those where one record should not matter.
    """

    def mechanism(dataset: Any, rng: np.random.Generator, /) -> dict[str, Any]:
        model = make()
        if "random_state" in getattr(model, "get_params", dict)():
            model.set_params(random_state=_seed(rng))
        rows, labels = _split(dataset, label)
        model.fit(rows) if labels is None else model.fit(rows, labels)
        found: dict[str, Any] = {
            name: np.asarray(value, dtype=np.float64)
            for name, value in sorted(vars(model).items())
            if name.endswith("_") and not name.startswith("_") and _is_numeric(value)
        }
        if probes is not None:
            found["predicted"] = np.asarray(model.predict(probes)).tolist()
        return found

    return mechanism


def training(train: Callable[..., Any], *, look: Callable[[Any], Any] | None = None) -> Mechanism:
    """Return a mechanism that trains a network: all its parameters as numbers, or what ``look`` makes of them.

    Args:
        train: ``train(dataset, seed)``; returns parameters: nested lists, tuples and dictionaries of arrays, as JAX has
            them, a ``state_dict()`` of tensors, or a module that has one.
        look: What to look at instead, such as the loss of the changed record: with few numbers, fewer trainings tell.
    """

    def mechanism(dataset: Any, rng: np.random.Generator, /) -> Any:
        trained = train(dataset, _seed(rng))
        if look is not None:
            return look(trained)
        state = trained.state_dict() if hasattr(trained, "state_dict") else trained
        return np.concatenate([leaf.ravel() for leaf in _leaves(state)])

    return mechanism


def generator(
    fit: Callable[..., Any], *, rows: int | None = None, canaries: Sequence[Mapping[str, Any]] = ()
) -> Mechanism:
    """Return a mechanism that fits synthetic data: the whole table is the output, and how near it is to canaries.

    Tables are compared by what their columns add up to and how often each level comes, and by scores learnt from both;
    a canary, such as the record in which neighbours differ, is looked for by itself.

    Args:
        fit: ``fit(dataset, seed)``; returns a table, or something with ``sample(rows)``.
        rows: How many rows to sample.
        canaries: Records: for each, how many rows are like it, and in how many columns the nearest one is.
    """

    def mechanism(dataset: Any, rng: np.random.Generator, /) -> dict[str, Any]:
        fitted = fit(dataset, _seed(rng))
        table = fitted.sample(rows) if hasattr(fitted, "sample") and rows is not None else fitted
        alike = [_alike(table, canary) for canary in canaries]
        return {"table": table, "like a canary": [count for count, _ in alike], "nearest": [near for _, near in alike]}

    return mechanism


# ---- what they share


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(_SEEDS))


def _split(dataset: Any, label: str | int | None) -> tuple[Any, Any]:
    """Return the rows of a dataset without its label, and the label, as arrays; a pair (X, y) is taken as it is."""
    if isinstance(dataset, tuple) and len(dataset) == 2:
        return dataset
    columns = list(getattr(dataset, "columns", ()))
    numbers = np.asarray(dataset.to_numpy() if hasattr(dataset, "to_numpy") else dataset)
    if label is None:
        return numbers, None
    place = columns.index(label) if isinstance(label, str) else label
    return np.delete(numbers, place, axis=1), numbers[:, place]


def _is_numeric(value: Any) -> bool:
    if isinstance(value, bool | str | bytes):
        return False
    try:
        return np.asarray(value).dtype.kind in "fiu"
    except ValueError:  # ragged
        return False


def _leaves(tree: Any) -> list[NDArray[np.float64]]:
    """Return the arrays of nested lists, tuples and dictionaries, in order."""
    if isinstance(tree, Mapping):
        return [leaf for key in sorted(tree, key=str) for leaf in _leaves(tree[key])]
    if isinstance(tree, list | tuple):
        return [leaf for part in tree for leaf in _leaves(part)]
    for step in ("detach", "cpu", "numpy"):  # a tensor
        tree = getattr(tree, step)() if hasattr(tree, step) else tree
    return [np.asarray(tree, dtype=np.float64)]


def _alike(table: Any, record: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many rows are like a record, and in how many columns the one that is most like it is."""
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True)
    same = sum(np.array([value == record[name] for value in frame[name].to_list()], dtype=np.int64) for name in record)
    agree = np.asarray(same)
    if not len(frame) or not agree.ndim:
        return 0, 0
    return int((agree == len(record)).sum()), int(agree.max())
