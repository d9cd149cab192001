"""Five learners of different kinds, for classes and for numbers, and how well they predict."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError

__all__ = ["LEARNERS", "Kind", "auc", "balanced_accuracy", "explained", "learner_of", "scores_of"]

Kind = Literal["class", "number"]

LEARNERS = ("linear svc", "rbf svc", "logistic", "forest", "neighbours")
"""Their names. For numeric targets: linear and RBF support vector regression, ridge, forest, neighbours."""


def learner_of(name: str, kind: Kind, seed: int) -> Any:
    """Return an untrained learner with scikit-learn's defaults, which is what the paper used.

    Reference:
        "Causally Constrained Data Synthesis for Private Data Release", section 4.4.
    """
    ensemble, linear_model, neighbors, svm = _sklearn()
    makers: dict[str, tuple[Any, Any]] = {
        "linear svc": (
            lambda: svm.LinearSVC(random_state=seed, max_iter=3000),
            lambda: svm.LinearSVR(random_state=seed, max_iter=3000),
        ),
        "rbf svc": (lambda: svm.SVC(random_state=seed), svm.SVR),
        "logistic": (lambda: linear_model.LogisticRegression(max_iter=1000), linear_model.Ridge),
        "forest": (
            lambda: ensemble.RandomForestClassifier(random_state=seed, n_jobs=1),
            lambda: ensemble.RandomForestRegressor(random_state=seed, n_jobs=1),
        ),
        "neighbours": (neighbors.KNeighborsClassifier, neighbors.KNeighborsRegressor),
    }
    return makers[name][0 if kind == "class" else 1]()


def _sklearn() -> tuple[Any, Any, Any, Any]:
    try:
        from sklearn import ensemble, linear_model, neighbors, svm
    except ImportError:
        raise InputError(
            "learners come from scikit-learn, which is not installed; install escudo with its extra 'evaluation': "
            "pip install 'escudo[evaluation]'."
        ) from None
    return ensemble, linear_model, neighbors, svm


def scores_of(learner: Any, inputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a score for each row and known class, higher where the learner thinks it likelier."""
    if hasattr(learner, "decision_function"):
        scores = np.asarray(learner.decision_function(inputs), dtype=np.float64)
        return np.column_stack([-scores, scores]) if scores.ndim == 1 else scores
    return np.asarray(learner.predict_proba(inputs), dtype=np.float64)


def balanced_accuracy(truth: NDArray[Any], answers: NDArray[Any]) -> float:
    """Return the share of right answers, averaged over the classes that occur.

    >>> balanced_accuracy(np.array([0, 0, 0, 1]), np.array([0, 0, 0, 0]))
    0.5
    """
    return float(np.mean([(answers[truth == level] == level).mean() for level in np.unique(truth)]))


def auc(positive: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    """Return how often a positive row scores above a negative one, ties counting half; NaN if one kind is absent.

    >>> auc(np.array([False, False, True, True]), np.array([0.1, 0.4, 0.35, 0.8]))
    0.75
    """
    from scipy.stats import rankdata

    yes = int(positive.sum())
    no = positive.size - yes
    if yes == 0 or no == 0:
        return float("nan")
    return float((rankdata(scores)[positive].sum() - yes * (yes + 1) / 2) / (yes * no))


def explained(truth: NDArray[np.float64], answers: NDArray[np.float64]) -> float:
    """Return the share of variance explained, 1 if perfect, 0 for the mean, at least -1 for what is worse.

    >>> explained(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0]))
    1.0
    """
    spread = float(((truth - truth.mean()) ** 2).sum())
    missed = float(((truth - answers) ** 2).sum())
    if spread == 0.0:
        return 1.0 if missed == 0.0 else -1.0
    return max(-1.0, 1.0 - missed / spread)
