"""Orientation: which of two columns causes the other, asked of a private table.

* :func:`direction` answers for one pair with a :class:`Direction`, :func:`orient` for the undirected edges of a graph,
  or for all pairs, under one budget with an :class:`Orientation`;
* ``METHODS``: ``votes`` (whole-data privacy, the default), ``gap`` (tight sensitivities) and ``paper`` (*Private Causal
  Inference* as published);
* ``PROCEDURES``: what a block may compute before it votes;
* :func:`sign_probability`, :func:`rows_needed` and :func:`epsilon_needed`, for planning votes from public numbers.

Read ``_direction.py`` first (the verb), then ``_votes.py`` (which record goes where, when there is a verdict),
``_blocks.py`` and ``_procedures.py`` (what a block computes). ``_gap.py`` and ``_paper.py`` stand on ``_scores.py`` and
``_regression.py``; ``_curves.py`` compares the methods on simulated pairs.
"""

from __future__ import annotations

from escudo.orientation._curves import PlanningCurves as PlanningCurves  # for command line and report; not documented
from escudo.orientation._curves import planning_curves as planning_curves
from escudo.orientation._direction import CANNOT_TELL, METHODS, Direction, PairData, direction
from escudo.orientation._orient import EdgesQuestion as EdgesQuestion  # for discovery
from escudo.orientation._orient import Orientation, orient
from escudo.orientation._orient import can_be_oriented as can_be_oriented
from escudo.orientation._procedures import PROCEDURES, Procedure
from escudo.orientation._votes import epsilon_needed, rows_needed, sign_probability

__all__ = [
    "CANNOT_TELL",
    "METHODS",
    "PROCEDURES",
    "Direction",
    "Orientation",
    "PairData",
    "Procedure",
    "direction",
    "epsilon_needed",
    "orient",
    "rows_needed",
    "sign_probability",
]
