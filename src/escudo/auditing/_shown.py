"""What an audit shows: the witness in words, and the outputs of both datasets side by side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from escudo.auditing._bounds import Event
from escudo.auditing._corners import CornerCells
from escudo.auditing._experiment import Experiment
from escudo.auditing._names import named
from escudo.auditing._result import Outputs
from escudo.auditing._views import NumberCells, count
from escudo.effects import Witness

__all__ = ["shown_dataset", "shown_outputs", "shown_witness"]

_CELLS = 60
_CATEGORIES = 12


def shown_dataset(dataset: Any) -> str:
    """Return a dataset in few words."""
    shape = getattr(dataset, "shape", None)
    if isinstance(dataset, np.ndarray) and dataset.size <= 12:
        return str(dataset.tolist())
    if hasattr(dataset, "columns") and hasattr(dataset, "rows"):  # a polars frame, of few rows
        rows = dataset.rows() if len(dataset) <= 3 else dataset.rows()[:3]
        return f"{len(dataset)} rows: {', '.join(map(str, rows))}" + ("" if len(dataset) <= 3 else ", ...")
    text = str(dataset) if shape is None else f"{type(dataset).__name__} of shape {shape}"
    return text if len(text) <= 120 else text[:117] + "..."


def shown_witness(event: Event, experiment: Experiment, structures: Sequence[str]) -> Witness:
    """Return the event, under which input it is likelier, and how often it happened."""
    first, second = (shown_dataset(d) for d in experiment.pair)
    if first == second:  # two datasets that look alike in few words
        first, second = f"{experiment.label}, first", f"{experiment.label}, second"
    likely, other = (second, first) if event.second else (first, second)
    words = named(event.use.partition.words(event.cells, structures), structures)
    return Witness(y={"event": words}, x1={"data": likely}, x2={"data": other}, probabilities=event.probabilities)


def shown_outputs(experiment: Experiment, structures: Sequence[str], *, likelier_second: bool) -> Outputs | None:
    """Return how often each kind of output came from each dataset of a pair, from the outputs kept.

    Args:
        experiment: The pair's runs.
        structures: What outputs looked like.
        likelier_second: Whether the witness names the pair's second dataset first, so that both agree.
    """
    if not experiment.kept_rows:
        return None
    outputs, labels = experiment.sample()
    labels = ~labels if likelier_second else labels
    numbers = outputs.values[:, 0]
    plain = outputs.values.shape[1] == 1 and not outputs.codes.any() and np.isfinite(numbers).all()
    if plain and np.unique(numbers[:5000]).size > _CATEGORIES:
        return _histogram("number", numbers, labels)
    cells = experiment.uses[0].partition if experiment.uses else None
    if isinstance(cells, NumberCells | CornerCells) and outputs.values.shape[1] > 1:
        scores = cells.of(outputs) if isinstance(cells, NumberCells) else cells.depth(outputs)
        finite = np.isfinite(scores)
        if finite.mean() > 0.5 and np.unique(scores[finite][:5000]).size > _CATEGORIES:
            return _histogram("score", scores[finite], labels[finite])
        some = outputs.values[:1000]
        if len(np.unique(some, axis=0)) > len(some) / 2:  # hardly an output comes twice: a bar for each says nothing
            return _cells(cells, outputs, labels, structures)
    return _categories(outputs.values, outputs.codes, labels, structures)


def _histogram(kind: Any, numbers: Any, labels: Any) -> Outputs:
    low, high = np.quantile(numbers, [0.002, 0.998])
    edges = np.linspace(low, high if high > low else low + 1, _CELLS + 1)
    inside = np.clip(numbers, edges[0], edges[-1])
    first, second = (np.histogram(inside[labels == side], edges)[0] for side in (False, True))
    names = tuple(f"{(a + b) / 2:.4g}" for a, b in pairwise(edges.tolist()))
    return Outputs(kind=kind, labels=names, edges=edges, first=first, second=second)


def _cells(cells: NumberCells | CornerCells, outputs: Any, labels: Any, structures: Sequence[str]) -> Outputs:
    counts = count(cells, outputs, labels)
    seen = np.flatnonzero(counts.sum(axis=1))
    names = tuple(named(cells.words(np.arange(cells.cells) == cell, structures), structures) for cell in seen)
    first, second = counts[seen].astype(np.int64).T
    return Outputs(kind="category", labels=names, edges=None, first=first, second=second)


def _categories(values: Any, codes: Any, labels: Any, structures: Sequence[str]) -> Outputs:
    from escudo.auditing._joint import keys_of, shown_output
    from escudo.auditing._outputs import Encoded

    encoded = Encoded(values, codes)
    distinct, first_row, place, times = np.unique(
        keys_of(encoded), return_index=True, return_inverse=True, return_counts=True
    )
    common = np.argsort(-times, kind="stable")[:_CATEGORIES]
    names = [shown_output(encoded, int(first_row[i]), structures) for i in common]
    counts = np.bincount(place * 2 + labels, minlength=2 * distinct.size).reshape(-1, 2)
    rest = counts.sum(axis=0) - counts[common].sum(axis=0)
    table = counts[common]
    if rest.any():
        names.append(f"{distinct.size - common.size:,} others")
        table = np.concatenate([table, rest[None, :]])
    return Outputs(kind="category", labels=tuple(names), edges=None, first=table[:, 0], second=table[:, 1])
