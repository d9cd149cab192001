"""Synthesis: generators that follow a causal graph, fitted under differential privacy.

* :func:`synthesize` fits one to a private table and returns a :class:`CausalModel`: ``sample``, ``sample(do=...)``;
* :func:`prepare` does everything that needs no data, for the plan; :func:`fit` and :func:`fitting` do the rest;
* :func:`load` reads a model that ``model.save`` wrote;
* ``GENERATORS``: ``marginals`` (noisy family tables), ``linear`` (equations from a noisy second-moment matrix);
* :func:`stability` measures, on raw data and for the custodian only, how far one point moves a model's parameters.
"""

from escudo.synthesis._conditionals import (
    Conditional,
    LogitConditional,
    MaxConditional,
    NoisyOrConditional,
    TableConditional,
)
from escudo.synthesis._files import load
from escudo.synthesis._generators import GENERATORS, Generator, Model, Prepared, fit, fitting, prepare, synthesize
from escudo.synthesis._linear_model import LinearConditional, LinearModel
from escudo.synthesis._model import CausalModel
from escudo.synthesis._stability import NodeStability, ParameterChange, Stability, stability

__all__ = [
    "GENERATORS",
    "CausalModel",
    "Conditional",
    "Generator",
    "LinearConditional",
    "LinearModel",
    "LogitConditional",
    "MaxConditional",
    "Model",
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
    "stability",
    "synthesize",
]
