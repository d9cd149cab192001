"""Discovery: causal graphs from private tables, and the effect of one column on another, under a stated budget.

* :func:`discover` learns a graph and returns a :class:`Discovery`: the graph, how sure it is of each edge, and what it
  cost; :func:`prepare` does everything that needs no data, for the plan, and :func:`run_prepared` the rest.
  :class:`Measured` is what it leaves behind for a generator. Where causes may be hidden it returns an
  :class:`AncestralDiscovery`.
* :func:`effect_of` estimates an average treatment effect and returns a :class:`TreatmentEffect` made of :class:`Arm`
  and :class:`Contrast` (with its :class:`EValue`), :class:`Stratum` and :class:`Refutation` (of :data:`REFUTERS`);
  :func:`prepare_effect` is for its plan.

Read ``_discover.py`` first (the verb). Graphs from counts: ``_measurement.py`` (what is measured, its sensitivity, and
tables from it), ``_evidence.py`` (what they say for and against an edge, knowing the noise), ``_search.py``,
``_pattern.py`` (what is known before and may be claimed after), ``_discrete.py`` (all of it together). Graphs from
moments: ``_gaussian.py``. Graphs where causes may be hidden, from either: ``_hidden.py``. Effects: ``_effect_of.py``
(the verb, and which columns to adjust for), ``_adjustment.py`` (the table that is measured, and the intervals),
``_treatment.py`` (the answer).
"""

from escudo.discovery._adjustment import REFUTERS
from escudo.discovery._answer import AncestralDiscovery, Discovery, Measured
from escudo.discovery._discover import METHODS, Prepared, discover, prepare, run_prepared

# What a generator with a graph of its own shares with discovery; not documented.
from escudo.discovery._discover import GraphQuestion as GraphQuestion
from escudo.discovery._effect_of import effect_of, prepare_effect
from escudo.discovery._linked_discovery import LinkedGraphQuestion as LinkedGraphQuestion
from escudo.discovery._linked_discovery import PreparedLinkedGraph as PreparedLinkedGraph
from escudo.discovery._pattern import Constraints as Constraints
from escudo.discovery._pattern import constraints_of as constraints_of
from escudo.discovery._treatment import Arm, Contrast, EValue, Refutation, Stratum, TreatmentEffect
from escudo.discovery._treatment import shown as shown  # for the command line and reports

__all__ = [
    "METHODS",
    "REFUTERS",
    "AncestralDiscovery",
    "Arm",
    "Contrast",
    "Discovery",
    "EValue",
    "Measured",
    "Prepared",
    "Refutation",
    "Stratum",
    "TreatmentEffect",
    "discover",
    "effect_of",
    "prepare",
    "prepare_effect",
    "run_prepared",
]
