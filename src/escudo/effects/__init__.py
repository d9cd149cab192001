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

from escudo.effects._association import associative
from escudo.effects._composition import bound
from escudo.effects._definitions import Definition, Definitions, Implication, definitions
from escudo.effects._diagram import Diagram, Node, from_ledger
from escudo.effects._effect import Effect, Witness, show_epsilon
from escudo.effects._exact import direct, effect, joint, path, relative_probability, total
from escudo.effects._knowledge import Disclosure, nondisclosure, posterior, secrets
from escudo.effects._mechanism import CountMechanism, Mechanism
from escudo.effects._semantic import SemanticPrivacy, semantic_privacy
from escudo.effects._survey import Survey, SurveyRow, mechanism_of, survey

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
