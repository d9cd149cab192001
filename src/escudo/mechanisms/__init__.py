"""Mechanisms: the only place where noise meets data.

Each one checks its arguments, charges the account, draws noise, and returns a :class:`Release`: the value, what it
promises (:class:`~escudo.privacy.Guarantee`) and the event that was charged.

* numbers: :func:`laplace`, :func:`gaussian`, on scalars and whole arrays; :func:`laplace_event`,
  :func:`gaussian_event` beforehand, for plans, and :func:`as_planned` to keep to them;
* second moments of rows of bounded length, still without noise: :func:`bounded_rows`, :func:`second_moments`;
* a choice among public candidates: :func:`exponential`, :func:`permute_and_flip`;
* quantiles: :func:`quantiles` of numbers, :func:`quantile_cells` of counts on a public grid;
* which way it goes: :func:`gap_sign` of a difference, :func:`votes` of disjoint blocks, both giving a :class:`Verdict`;
* where stability allows: :func:`propose_test_release`, :func:`log_iqr`, with :func:`read_log_iqr` for its distances;
* keys nobody knew beforehand: :func:`stable_histogram` and its :func:`stable_threshold`;
* the schema itself: :func:`learn_schema`.

``seed=None`` draws secure noise through OpenDP. With a seed the same laws come from numpy, and everything made from
them is marked not for release (:func:`publishable` says which it is). Noise is drawn on integers, in steps of a public
grid: see ``_noise.py`` for the laws and ``_grid.py`` for what rounding costs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from escudo.mechanisms._additive import as_planned as as_planned
    from escudo.mechanisms._additive import gaussian as gaussian
    from escudo.mechanisms._additive import gaussian_event as gaussian_event
    from escudo.mechanisms._additive import laplace as laplace
    from escudo.mechanisms._additive import laplace_event as laplace_event
    from escudo.mechanisms._histogram import Threshold as Threshold
    from escudo.mechanisms._histogram import stable_histogram as stable_histogram
    from escudo.mechanisms._histogram import stable_threshold as stable_threshold
    from escudo.mechanisms._iqr import LogIqr as LogIqr
    from escudo.mechanisms._iqr import read_log_iqr as read_log_iqr
    from escudo.mechanisms._learn import learn_schema as learn_schema
    from escudo.mechanisms._noise import Seed as Seed
    from escudo.mechanisms._noise import publishable as publishable
    from escudo.mechanisms._quantiles import quantile_cells as quantile_cells
    from escudo.mechanisms._quantiles import quantiles as quantiles
    from escudo.mechanisms._release import Release as Release
    from escudo.mechanisms._second_moments import bounded_rows as bounded_rows
    from escudo.mechanisms._second_moments import second_moments as second_moments
    from escudo.mechanisms._selection import exponential as exponential
    from escudo.mechanisms._selection import permute_and_flip as permute_and_flip
    from escudo.mechanisms._signs import Verdict as Verdict
    from escudo.mechanisms._signs import gap_sign as gap_sign
    from escudo.mechanisms._signs import votes as votes
    from escudo.mechanisms._stability import log_iqr as log_iqr
    from escudo.mechanisms._stability import propose_test_release as propose_test_release

__all__ = [
    "LogIqr",
    "Release",
    "Seed",
    "Threshold",
    "Verdict",
    "as_planned",
    "bounded_rows",
    "exponential",
    "gap_sign",
    "gaussian",
    "gaussian_event",
    "laplace",
    "laplace_event",
    "learn_schema",
    "log_iqr",
    "permute_and_flip",
    "propose_test_release",
    "publishable",
    "quantile_cells",
    "quantiles",
    "read_log_iqr",
    "second_moments",
    "stable_histogram",
    "stable_threshold",
    "votes",
]

# Loaded on first use, so that a part that needs little can be used where little is installed.
_HOME = {
    "as_planned": "_additive",
    "gaussian": "_additive",
    "gaussian_event": "_additive",
    "laplace": "_additive",
    "laplace_event": "_additive",
    "Threshold": "_histogram",
    "stable_histogram": "_histogram",
    "stable_threshold": "_histogram",
    "LogIqr": "_iqr",
    "read_log_iqr": "_iqr",
    "learn_schema": "_learn",
    "Seed": "_noise",
    "publishable": "_noise",
    "quantile_cells": "_quantiles",
    "quantiles": "_quantiles",
    "Release": "_release",
    "bounded_rows": "_second_moments",
    "second_moments": "_second_moments",
    "exponential": "_selection",
    "permute_and_flip": "_selection",
    "Verdict": "_signs",
    "gap_sign": "_signs",
    "votes": "_signs",
    "log_iqr": "_stability",
    "propose_test_release": "_stability",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"escudo.mechanisms.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'escudo.mechanisms' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
