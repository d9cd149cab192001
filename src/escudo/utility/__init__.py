"""How useful synthetic rows are: what can be learnt from them, and how far they are from the real ones.

* :func:`evaluate` runs the whole comparison and returns an :class:`Evaluation`, for the custodian's eyes only;
* :func:`fidelity` compares tables of one, two and three columns, moments and correlations (:class:`Fidelity`);
* :func:`causal_fidelity` compares interventions and treatment effects with a reference model (:class:`CausalFidelity`);
* :func:`evaluate_privately` pays for a few such figures, so that they may be published (:class:`PrivateEvaluation`);
* of linked tables these give a :class:`LinkedEvaluation` (made of :class:`LinkedFidelity`) and a
  :class:`PrivateLinkedEvaluation`;
* :func:`prepare_evaluated` and :func:`fitting_evaluated` do so within a release, under one plan;
* :func:`total_variation` and its neighbours: what contingency tables say.

Whatever is given real rows reads them exactly, and its figures are private, but for :func:`evaluate_privately` and
:func:`fitting_evaluated`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from escudo.utility._evaluation import Change, Evaluation, evaluate
    from escudo.utility._fidelity import (
        CausalFidelity,
        Fidelity,
        causal_fidelity,
        cells,
        cramers_v,
        dependence,
        fidelity,
        independence_gap,
        sampling_error,
        synthetic_table,
        total_variation,
    )
    from escudo.utility._fidelity import row_count as row_count  # for reports; not documented
    from escudo.utility._linked import KINDS as KINDS
    from escudo.utility._linked import LinkedEffectFidelity as LinkedEffectFidelity
    from escudo.utility._linked import LinkedEvaluation, LinkedFidelity, PrivateLinkedEvaluation
    from escudo.utility._linked import apart as apart
    from escudo.utility._linked import linked_fidelity as linked_fidelity
    from escudo.utility._linked import read_linked as read_linked
    from escudo.utility._prediction import LEARNERS, Prediction
    from escudo.utility._prediction import auc as auc
    from escudo.utility._prediction import learner_of as learner_of
    from escudo.utility._private import Evaluate as Evaluate
    from escudo.utility._private import (
        PreparedEvaluated,
        PrivateEvaluation,
        evaluate_privately,
        fitting_evaluated,
        prepare_evaluated,
    )
    from escudo.utility._private import prepare_linked_evaluated as prepare_linked_evaluated
    from escudo.utility._rows import EVALUATION_PURPOSE as EVALUATION_PURPOSE
    from escudo.utility._rows import Rows
else:  # loaded on first use: a report needs some distances, and none of what is fitted or learnt
    __getattr__, __dir__, _ = lazy_loader.attach(
        __name__,
        submod_attrs={
            "_evaluation": ["Change", "Evaluation", "evaluate"],
            "_fidelity": [
                "CausalFidelity",
                "Fidelity",
                "causal_fidelity",
                "cells",
                "cramers_v",
                "dependence",
                "fidelity",
                "independence_gap",
                "row_count",
                "sampling_error",
                "synthetic_table",
                "total_variation",
            ],
            "_linked": [
                "KINDS",
                "LinkedEffectFidelity",
                "LinkedEvaluation",
                "LinkedFidelity",
                "PrivateLinkedEvaluation",
                "apart",
                "linked_fidelity",
                "read_linked",
            ],
            "_prediction": ["LEARNERS", "Prediction", "auc", "learner_of"],
            "_private": [
                "Evaluate",
                "PreparedEvaluated",
                "PrivateEvaluation",
                "evaluate_privately",
                "fitting_evaluated",
                "prepare_evaluated",
                "prepare_linked_evaluated",
            ],
            "_rows": ["EVALUATION_PURPOSE", "Rows"],
        },
    )

__all__ = [
    "LEARNERS",
    "CausalFidelity",
    "Change",
    "Evaluation",
    "Fidelity",
    "LinkedEvaluation",
    "LinkedFidelity",
    "Prediction",
    "PreparedEvaluated",
    "PrivateEvaluation",
    "PrivateLinkedEvaluation",
    "Rows",
    "causal_fidelity",
    "cells",
    "cramers_v",
    "dependence",
    "evaluate",
    "evaluate_privately",
    "fidelity",
    "fitting_evaluated",
    "independence_gap",
    "prepare_evaluated",
    "sampling_error",
    "synthetic_table",
    "total_variation",
]
