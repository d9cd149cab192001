"""How useful synthetic rows are: what can be learnt from them, and how far they are from the real ones.

* :func:`evaluate` runs the whole comparison and returns an :class:`Evaluation`, for the custodian's eyes only;
* :func:`fidelity` compares tables of one, two and three columns, moments and correlations (:class:`Fidelity`);
* :func:`causal_fidelity` compares interventions and treatment effects with a reference model (:class:`CausalFidelity`);
* :func:`evaluate_privately` pays for a few such figures, so that they may be published (:class:`PrivateEvaluation`);
* :func:`prepare_evaluated` and :func:`fitting_evaluated` do so within a release, under one plan;
* :func:`total_variation` and its neighbours: what contingency tables say.

Whatever is given real rows reads them exactly, and its figures are private, but for :func:`evaluate_privately` and
:func:`fitting_evaluated`.
"""

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
from escudo.utility._prediction import LEARNERS, Prediction
from escudo.utility._prediction import auc as auc
from escudo.utility._prediction import check_jobs as check_jobs
from escudo.utility._prediction import learner_of as learner_of
from escudo.utility._private import EVALUATION_PURPOSE as EVALUATION_PURPOSE
from escudo.utility._private import Evaluate as Evaluate
from escudo.utility._private import (
    PreparedEvaluated,
    PrivateEvaluation,
    evaluate_privately,
    fitting_evaluated,
    prepare_evaluated,
)
from escudo.utility._rows import Rows

__all__ = [
    "LEARNERS",
    "CausalFidelity",
    "Change",
    "Evaluation",
    "Fidelity",
    "Prediction",
    "PreparedEvaluated",
    "PrivateEvaluation",
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
