"""Generators ``independent`` and ``one-way``: what a release is worth that measures no arrow.

Both sum levels of single columns only, clipped and noised as in ``moments``. To be reported beside any other generator:

* ``independent`` ignores the graph;
* ``one-way`` follows it, and gives all arrows into a column the same strength: what the graph and the form of the laws
  are worth by themselves. Under a logit nothing says which way an arrow acts, and it is hardly better than
  ``independent``; under ``max`` and ``noisy-or`` causes switch on, and that can be most of what there is to know.

**Guarantee.** As for ``moments``.
"""

from __future__ import annotations

from escudo.causal import CausalGraph
from escudo.privacy import Relation
from escudo.synthesis._moment_statistics import MomentLayout
from escudo.synthesis._moments import Form, PreparedMoments, forms_of, prepare_moments
from escudo.synthesis._structure import structure_of
from escudo.table import Schema

__all__ = ["Independent", "OneWay"]

_CLIP_QUANTILE = 0.95  # higher than for moments: a model of independent columns cannot undo what clipping does


class Independent:
    """Each column by itself.

    Args:
        clip: Public bound on the length of a row's vector of levels, each counting 1; paid for by default.
    """

    name = "independent"

    def __init__(self, *, clip: float | None = None):
        self.clip = clip

    def prepare(
        self,
        schema: Schema,
        graph: CausalGraph | None,
        *,
        epsilon: float,
        delta: float,
        relation: Relation = "replace_one",
        public_rows: int | None = None,
    ) -> PreparedMoments:
        """Choose the noise from public facts alone; of the graph only names are checked."""
        return prepare_moments(
            self.name,
            schema,
            structure_of(schema, graph),
            _levels(schema),
            parents=dict.fromkeys(schema.names, ()),
            forms=forms_of(schema, "logit"),
            clip=self.clip,
            clip_quantile=_CLIP_QUANTILE,
            epsilon=epsilon,
            delta=delta,
            relation=relation,
            public_rows=public_rows,
        )


class OneWay:
    """The graph with equal arrows, from levels of single columns.

    Args:
        form: How parents act together, as for ``moments``.
        clip: Public bound on the length of a row's vector of levels, each counting 1; paid for by default.
    """

    name = "one-way"

    def __init__(self, *, form: Form = "logit", clip: float | None = None):
        self.form = form
        self.clip = clip

    def prepare(
        self,
        schema: Schema,
        graph: CausalGraph | None,
        *,
        epsilon: float,
        delta: float,
        relation: Relation = "replace_one",
        public_rows: int | None = None,
    ) -> PreparedMoments:
        """Choose the noise from public facts alone."""
        structure = structure_of(schema, graph)
        return prepare_moments(
            self.name,
            schema,
            structure,
            _levels(schema),
            parents=structure.parents,
            forms=forms_of(schema, self.form),
            clip=self.clip,
            clip_quantile=_CLIP_QUANTILE,
            tied=True,
            epsilon=epsilon,
            delta=delta,
            relation=relation,
            public_rows=public_rows,
        )


def _levels(schema: Schema) -> MomentLayout:
    return MomentLayout(sizes={name: schema[name].size for name in schema.names}, pairs=())
