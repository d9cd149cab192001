"""Effects: how much one thing changes another, exactly, by proof, or by what an adversary may believe.

* one answer for all: :class:`Effect` with its :class:`Witness`;
* exact, in structural equation models: :func:`effect`, :func:`joint`, :func:`total`, :func:`direct`, :func:`path`,
  :func:`relative_probability`; by conditioning: :func:`associative`; all variables at once: :func:`survey`;
* the ten definitions for one mechanism: :func:`definitions` of a table, a :class:`Mechanism` or a
  :class:`CountMechanism`; :func:`mechanism_of` takes one out of a model;
* proved, by composition: :class:`Diagram`, :func:`bound`, :func:`from_ledger`;
* beliefs: :func:`posterior`, :func:`semantic_privacy`, :func:`nondisclosure`, :func:`secrets`.

The mathematics, with proofs, is in ``README.md`` beside this file.
"""

from __future__ import annotations

from escudo.effects._definitions import (
    CountMechanism,
    Definition,
    Definitions,
    Implication,
    Mechanism,
    definitions,
    mechanism_of,
)
from escudo.effects._diagram import Diagram, Node, bound, from_ledger
from escudo.effects._effect import Effect, Witness, show_epsilon
from escudo.effects._effect import show_times as show_times  # for the report
from escudo.effects._exact import (
    Survey,
    SurveyRow,
    associative,
    direct,
    effect,
    joint,
    path,
    relative_probability,
    survey,
    total,
)
from escudo.effects._knowledge import Disclosure, SemanticPrivacy, nondisclosure, posterior, secrets, semantic_privacy
from escudo.effects._worst import outputs_of as outputs_of  # for the command line

__all__ = [
    "CountMechanism",
    "Definition",
    "Definitions",
    "Diagram",
    "Disclosure",
    "Effect",
    "Implication",
    "Mechanism",
    "Node",
    "SemanticPrivacy",
    "Survey",
    "SurveyRow",
    "Witness",
    "associative",
    "bound",
    "definitions",
    "direct",
    "effect",
    "from_ledger",
    "joint",
    "mechanism_of",
    "nondisclosure",
    "path",
    "posterior",
    "relative_probability",
    "secrets",
    "semantic_privacy",
    "show_epsilon",
    "survey",
    "total",
]
