"""Synthesis: generators that follow a causal graph, fitted under differential privacy.

* :func:`synthesize` fits one to a private table and returns a :class:`CausalModel`: ``sample``, ``sample(do=...)``;
* :func:`prepare` does everything that needs no data, for the plan; :func:`fit` and :func:`fitting` do the rest;
* :func:`forecast` says how good it will be, from public facts alone, before anything is spent;
* :func:`prepare_discovered` does so where the graph is to be found under the same budget;
* ``model.effect`` compares interventions and returns a :class:`ModelEffect`, free of charge; ``model.effect_range``
  gives one for each way in which open edges may point (:class:`EffectRange`);
* :func:`synthesize` of :class:`~escudo.table.PrivateTables` returns a :class:`LinkedModel`: synthetic people with their
  rows; :func:`clinic` simulates some to try it on;
* :func:`load` reads a model that ``model.save`` wrote, :func:`load_linked` one of linked tables;
* ``GENERATORS``: ``marginals`` (noisy family tables), ``moments`` (one noisy vector of levels and pairs), ``linear``
  (equations from a noisy second-moment matrix), ``autoregressive`` and ``vae`` (networks trained by DP-SGD);
* :func:`stability` measures, on raw data and for the custodian only, how far one point moves a model's parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from escudo.synthesis._clinic import Clinic, clinic
    from escudo.synthesis._discovered import DiscoveredSynthesis as DiscoveredSynthesis
    from escudo.synthesis._discovered import prepare_discovered
    from escudo.synthesis._files import holds_linked as holds_linked
    from escudo.synthesis._files import load, load_linked
    from escudo.synthesis._forecast import Forecast, forecast
    from escudo.synthesis._forecast import stated_errors as stated_errors
    from escudo.synthesis._generators import (
        GENERATORS,
        FitOptions,
        Generator,
        Prepared,
        fit,
        fitting,
        prepare,
        synthesize,
    )
    from escudo.synthesis._generators import Chosen as Chosen
    from escudo.synthesis._generators import Synthesis as Synthesis
    from escudo.synthesis._generators import check_no_privacy as check_no_privacy
    from escudo.synthesis._generators import fit_unprotected as fit_unprotected
    from escudo.synthesis._generators import linked_budget as linked_budget
    from escudo.synthesis._generators import linked_question as linked_question
    from escudo.synthesis._generators import neighbours_of as neighbours_of
    from escudo.synthesis._laws import (
        Conditional,
        LogitConditional,
        MaxConditional,
        NoisyOrConditional,
        TableConditional,
    )
    from escudo.synthesis._linear import LinearConditional, LinearModel
    from escudo.synthesis._linked import LinkedSynthesis as LinkedSynthesis
    from escudo.synthesis._linked import PreparedLinked as PreparedLinked
    from escudo.synthesis._linked import drawn_histories as drawn_histories
    from escudo.synthesis._linked_discovered import LinkedDiscoveredSynthesis as LinkedDiscoveredSynthesis
    from escudo.synthesis._linked_discovered import PreparedLinkedDiscovered as PreparedLinkedDiscovered
    from escudo.synthesis._linked_model import LinkedModel, RowModel
    from escudo.synthesis._model import CausalModel, Model
    from escudo.synthesis._model import cell_of as cell_of
    from escudo.synthesis._model_effects import EffectRange, ModelEffect
    from escudo.synthesis._model_effects import cell_values as cell_values
    from escudo.synthesis._stability import NodeStability, ParameterChange, Stability, stability
    from escudo.synthesis._structure import refusals_of as refusals_of
    from escudo.synthesis.neural import NeuralModel

__all__ = [
    "GENERATORS",
    "CausalModel",
    "Clinic",
    "Conditional",
    "EffectRange",
    "FitOptions",
    "Forecast",
    "Generator",
    "LinearConditional",
    "LinearModel",
    "LinkedModel",
    "LogitConditional",
    "MaxConditional",
    "Model",
    "ModelEffect",
    "NeuralModel",
    "NodeStability",
    "NoisyOrConditional",
    "ParameterChange",
    "Prepared",
    "RowModel",
    "Stability",
    "TableConditional",
    "clinic",
    "fit",
    "fitting",
    "forecast",
    "load",
    "load_linked",
    "prepare",
    "prepare_discovered",
    "stability",
    "synthesize",
]

# Loaded on first use, so that a part that needs little can be used where little is installed. What is not in __all__ is
# for other parts of escudo.
__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "_clinic": ["Clinic", "clinic"],
        "_discovered": ["DiscoveredSynthesis", "prepare_discovered"],
        "_files": ["holds_linked", "load", "load_linked"],
        "_forecast": ["Forecast", "forecast", "stated_errors"],
        "_generators": [
            "GENERATORS",
            "Chosen",
            "FitOptions",
            "Generator",
            "Prepared",
            "Synthesis",
            "check_no_privacy",
            "linked_budget",
            "linked_question",
            "neighbours_of",
            "fit",
            "fit_unprotected",
            "fitting",
            "prepare",
            "synthesize",
        ],
        "_laws": [
            "Conditional",
            "LogitConditional",
            "MaxConditional",
            "NoisyOrConditional",
            "TableConditional",
        ],
        "_linear": ["LinearConditional", "LinearModel"],
        "_linked": ["LinkedSynthesis", "PreparedLinked", "drawn_histories"],
        "_linked_discovered": ["LinkedDiscoveredSynthesis", "PreparedLinkedDiscovered"],
        "_linked_model": ["LinkedModel", "RowModel"],
        "_model": ["CausalModel", "Model", "cell_of"],
        "_model_effects": ["EffectRange", "ModelEffect", "cell_values"],
        "_stability": ["NodeStability", "ParameterChange", "Stability", "stability"],
        "_structure": ["refusals_of"],
        "neural": ["NeuralModel"],
    },
)
