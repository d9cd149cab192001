"""Mechanisms: the only place where noise meets data.

Each one checks its arguments, charges the account, draws noise, and returns a :class:`Release`: the value, what it
promises (:class:`~escudo.privacy.Guarantee`) and the event that was charged.

* numbers: :func:`laplace`, :func:`gaussian`, on scalars and whole arrays; :func:`gaussian_event` beforehand, for plans;
* a choice among public candidates: :func:`exponential`, :func:`permute_and_flip`;
* quantiles: :func:`quantiles` of numbers, :func:`quantile_cells` of counts on a public grid;
* which way it goes: :func:`gap_sign` of a difference, :func:`votes` of disjoint blocks, both giving a :class:`Verdict`;
* where stability allows: :func:`propose_test_release`, :func:`log_iqr`, with :func:`read_log_iqr` for its distances;
* keys nobody knew beforehand: :func:`stable_histogram` and its :func:`stable_threshold`;
* the schema itself: :func:`learn_schema`.

``seed=None`` draws secure noise through OpenDP. With a seed the same laws come from numpy, and everything made from
them is marked not for release. Noise is drawn on integers, in steps of a public grid: see ``_noise.py`` for the laws
and ``_grid.py`` for what rounding costs.
"""

from __future__ import annotations

from escudo.mechanisms._additive import gaussian, gaussian_event, laplace
from escudo.mechanisms._histogram import Threshold, stable_histogram, stable_threshold
from escudo.mechanisms._iqr import LogIqr, read_log_iqr
from escudo.mechanisms._learn import learn_schema
from escudo.mechanisms._noise import Seed
from escudo.mechanisms._quantiles import quantile_cells, quantiles
from escudo.mechanisms._release import Release
from escudo.mechanisms._selection import exponential, permute_and_flip
from escudo.mechanisms._signs import Verdict, gap_sign, votes
from escudo.mechanisms._stability import log_iqr, propose_test_release

__all__ = [
    "LogIqr",
    "Release",
    "Seed",
    "Threshold",
    "Verdict",
    "exponential",
    "gap_sign",
    "gaussian",
    "gaussian_event",
    "laplace",
    "learn_schema",
    "log_iqr",
    "permute_and_flip",
    "propose_test_release",
    "quantile_cells",
    "quantiles",
    "read_log_iqr",
    "stable_histogram",
    "stable_threshold",
    "votes",
]
