"""Discovery: causal graphs from private tables, and the effect of one column on another, under a stated budget.

* :func:`discover` learns a graph and returns a :class:`Discovery`: the graph, how sure it is of each edge, and what it
  cost; :func:`prepare` does everything that needs no data, for the plan, and :func:`run_prepared` the rest.
  :class:`Measured` is what it leaves behind for a generator.
* :func:`effect_of` estimates an average treatment effect and returns a :class:`TreatmentEffect` made of :class:`Arm`
  and :class:`Contrast`; :func:`prepare_effect` is for its plan.

Graphs from counts, in this order: ``_levels`` (columns, merged where wide), ``_residuals`` and ``_measurement`` (what
is measured, and its sensitivity), ``_tables`` (tables from it), ``_evidence`` (what they say for and against an edge,
knowing the noise), ``_exact``, ``_local`` and ``_search``, ``_joint`` (graph and model together), ``_pattern`` and
``_confidence`` (what is reported), ``_report`` and ``_discrete`` (all of it together). Graphs from moments:
``_gaussian``. Votes on what either leaves open: ``_directions``. Effects: ``_adjustment`` (which columns to adjust
for), ``_treatment``, ``_effect_of``.
"""

from escudo.discovery._discover import METHODS, Discovery, Measured, Prepared, discover, prepare, run_prepared
from escudo.discovery._effect_of import effect_of, prepare_effect
from escudo.discovery._treatment import Arm, Contrast, TreatmentEffect

__all__ = [
    "METHODS",
    "Arm",
    "Contrast",
    "Discovery",
    "Measured",
    "Prepared",
    "TreatmentEffect",
    "discover",
    "effect_of",
    "prepare",
    "prepare_effect",
    "run_prepared",
]
