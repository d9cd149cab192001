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

All of them take the same :class:`ReleaseOptions`: what to charge, a seed, and between which tables.
Inside a question that is asked (:mod:`escudo.asking`) a :class:`Purse` draws all of it: each draw is given its event.

``seed=None`` draws secure noise through OpenDP. With a seed the same laws come from numpy, and everything made from
them is marked not for release (:func:`publishable` says which it is). Noise is drawn on integers, in steps of a public
grid: see ``_noise.py`` for the laws and what rounding costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from escudo.mechanisms._additive import Verdict as Verdict
    from escudo.mechanisms._additive import as_planned as as_planned
    from escudo.mechanisms._additive import bounded_rows as bounded_rows
    from escudo.mechanisms._additive import gap_event as gap_event
    from escudo.mechanisms._additive import gap_sign as gap_sign
    from escudo.mechanisms._additive import gaussian as gaussian
    from escudo.mechanisms._additive import gaussian_event as gaussian_event
    from escudo.mechanisms._additive import laplace as laplace
    from escudo.mechanisms._additive import laplace_event as laplace_event
    from escudo.mechanisms._additive import second_moments as second_moments
    from escudo.mechanisms._additive import sum_of_votes as sum_of_votes
    from escudo.mechanisms._additive import verdict as verdict
    from escudo.mechanisms._additive import votes as votes
    from escudo.mechanisms._additive import votes_event as votes_event
    from escudo.mechanisms._noise import Integers as Integers
    from escudo.mechanisms._noise import NoiseSource as NoiseSource
    from escudo.mechanisms._noise import Seed as Seed
    from escudo.mechanisms._noise import laplace_cutoff as laplace_cutoff
    from escudo.mechanisms._noise import one_stream as one_stream
    from escudo.mechanisms._noise import publishable as publishable
    from escudo.mechanisms._noise import watching as watching
    from escudo.mechanisms._purse import Noisy as Noisy
    from escudo.mechanisms._purse import Purse as Purse
    from escudo.mechanisms._purse import Release as Release
    from escudo.mechanisms._purse import ReleaseOptions as ReleaseOptions
    from escudo.mechanisms._selection import choose_cells as choose_cells
    from escudo.mechanisms._selection import choose_quantiles as choose_quantiles
    from escudo.mechanisms._selection import exponential as exponential
    from escudo.mechanisms._selection import permute_and_flip as permute_and_flip
    from escudo.mechanisms._selection import quantile_cells as quantile_cells
    from escudo.mechanisms._selection import quantile_counts as quantile_counts
    from escudo.mechanisms._selection import quantile_event as quantile_event
    from escudo.mechanisms._selection import quantiles as quantiles
    from escudo.mechanisms._stability import LogIqr as LogIqr
    from escudo.mechanisms._stability import Threshold as Threshold
    from escudo.mechanisms._stability import log_iqr as log_iqr
    from escudo.mechanisms._stability import propose_test_release as propose_test_release
    from escudo.mechanisms._stability import read_log_iqr as read_log_iqr
    from escudo.mechanisms._stability import release_if_stable as release_if_stable
    from escudo.mechanisms._stability import show_keys as show_keys
    from escudo.mechanisms._stability import stable_histogram as stable_histogram
    from escudo.mechanisms._stability import stable_threshold as stable_threshold

# Loaded on first use, so that a part that needs little can be used where little is installed.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "_additive": [
            "Verdict",
            "as_planned",
            "bounded_rows",
            "gap_event",
            "gap_sign",
            "gaussian",
            "gaussian_event",
            "laplace",
            "laplace_event",
            "second_moments",
            "sum_of_votes",
            "verdict",
            "votes",
            "votes_event",
        ],
        "_noise": ["Integers", "NoiseSource", "Seed", "laplace_cutoff", "one_stream", "publishable", "watching"],
        "_purse": ["Noisy", "Purse", "Release", "ReleaseOptions"],
        "_selection": [
            "choose_cells",
            "choose_quantiles",
            "exponential",
            "permute_and_flip",
            "quantile_cells",
            "quantile_counts",
            "quantile_event",
            "quantiles",
        ],
        "_stability": [
            "LogIqr",
            "Threshold",
            "log_iqr",
            "propose_test_release",
            "read_log_iqr",
            "release_if_stable",
            "show_keys",
            "stable_histogram",
            "stable_threshold",
        ],
    },
)
