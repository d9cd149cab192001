"""Synthesis: generators that follow a causal graph, fitted under differential privacy.

* :func:`synthesize` fits one to a private table and returns a :class:`CausalModel`: ``sample``, ``sample(do=...)``;
* :func:`prepare` does everything that needs no data, for the plan; :func:`fit` and :func:`fitting` do the rest;
* :func:`prepare_discovered` does so where the graph is to be found under the same budget;
* ``model.effect`` compares interventions and returns a :class:`ModelEffect`, free of charge; ``model.effect_range``
  gives one for each way in which open edges may point (:class:`EffectRange`);
* :func:`load` reads a model that ``model.save`` wrote;
* ``GENERATORS``: ``marginals`` (noisy family tables), ``moments`` (one noisy vector of levels and pairs), ``linear``
  (equations from a noisy second-moment matrix), ``autoregressive`` and ``vae`` (networks trained by DP-SGD);
* :func:`stability` measures, on raw data and for the custodian only, how far one point moves a model's parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from escudo.synthesis._discovered import DiscoveredSynthesis as DiscoveredSynthesis
    from escudo.synthesis._discovered import prepare_discovered
    from escudo.synthesis._files import load
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
    from escudo.synthesis._generators import neighbours_of as neighbours_of
    from escudo.synthesis._laws import (
        Conditional,
        LogitConditional,
        MaxConditional,
        NoisyOrConditional,
        TableConditional,
    )
    from escudo.synthesis._linear import LinearConditional, LinearModel
    from escudo.synthesis._model import CausalModel, EffectRange, Model, ModelEffect
    from escudo.synthesis._stability import NodeStability, ParameterChange, Stability, stability
    from escudo.synthesis.neural import NeuralModel

__all__ = [
    "GENERATORS",
    "CausalModel",
    "Conditional",
    "EffectRange",
    "FitOptions",
    "Generator",
    "LinearConditional",
    "LinearModel",
    "LogitConditional",
    "MaxConditional",
    "Model",
    "ModelEffect",
    "NeuralModel",
    "NodeStability",
    "NoisyOrConditional",
    "ParameterChange",
    "Prepared",
    "Stability",
    "TableConditional",
    "fit",
    "fitting",
    "load",
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
        "_discovered": ["DiscoveredSynthesis", "prepare_discovered"],
        "_files": ["load"],
        "_generators": [
            "GENERATORS",
            "Chosen",
            "FitOptions",
            "Generator",
            "Prepared",
            "Synthesis",
            "check_no_privacy",
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
        "_model": ["CausalModel", "EffectRange", "Model", "ModelEffect"],
        "_stability": ["NodeStability", "ParameterChange", "Stability", "stability"],
        "neural": ["NeuralModel"],
    },
)
