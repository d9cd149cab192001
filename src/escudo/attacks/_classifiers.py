"""How an attacker decides: learners on features of synthetic sets, trained on shadow fits."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError

__all__ = ["CLASSIFIERS", "trained"]

Floats = NDArray[np.float64]

CLASSIFIERS = ("linear svm", "rbf svm", "forest", "neighbours", "logistic", "likelihood ratio")
"""Names of the attack classifiers; the last one compares normal laws of each feature with and without the target."""

_LEAST_SPREAD = 1e-9


class _Constant:
    """Answers 0 for every set: what is left to say when the shadow fits were all of one world."""

    def scores(self, features: Floats) -> Floats:
        return np.zeros(len(features))


class _Scaled:
    """A learner of scikit-learn on standardised features; positive scores say that the target was there."""

    def __init__(self, learner: Any, features: Floats, there: NDArray[np.bool_]):
        self._mean, spread = features.mean(axis=0), features.std(axis=0)
        self._spread = np.where(spread > _LEAST_SPREAD, spread, 1.0)
        from sklearn.exceptions import ConvergenceWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self._learner = learner.fit(self._ready(features), there)

    def _ready(self, features: Floats) -> Floats:
        ready: Floats = (features - self._mean) / self._spread
        return ready

    def scores(self, features: Floats) -> Floats:
        ready = self._ready(features)
        if hasattr(self._learner, "decision_function"):
            return np.asarray(self._learner.decision_function(ready), dtype=np.float64)
        return np.asarray(self._learner.predict_proba(ready), dtype=np.float64)[:, 1] - 0.5


class _LikelihoodRatio:
    """The log likelihood ratio of the features under two normal laws, feature by feature."""

    def __init__(self, features: Floats, there: NDArray[np.bool_]):
        self._laws = []
        for world in (True, False):
            mean, spread = features[there == world].mean(axis=0), features[there == world].std(axis=0)
            self._laws.append((mean, np.maximum(spread, _LEAST_SPREAD)))
        both = np.maximum(self._laws[0][1], self._laws[1][1])
        apart = np.abs(self._laws[0][0] - self._laws[1][0]) / both
        # Features that tell the worlds apart no better than chance would add only noise to the sum.
        self._kept = apart >= np.sort(apart)[::-1][: max(1, round(np.sqrt(len(features))))].min()

    def scores(self, features: Floats) -> Floats:
        (mean, spread), (other, wide) = self._laws
        one = -0.5 * ((features - mean) / spread) ** 2 - np.log(spread)
        two = -0.5 * ((features - other) / wide) ** 2 - np.log(wide)
        total: Floats = (one - two)[:, self._kept].sum(axis=1)
        return np.clip(total, -1e6, 1e6)


def trained(name: str, features: Floats, there: NDArray[np.bool_], seed: int) -> Any:
    """Return a trained classifier with ``scores(features)``: positive where it thinks that the target was there."""
    if np.unique(there).size < 2:
        return _Constant()
    if name == "likelihood ratio":
        return _LikelihoodRatio(features, there)
    try:
        from sklearn import ensemble, linear_model, neighbors, svm
    except ImportError:
        raise InputError(
            "attacks learn with scikit-learn, which is not installed; install escudo with its extra 'evaluation': "
            "pip install 'escudo[evaluation]'."
        ) from None
    makers = {
        "linear svm": lambda: svm.LinearSVC(random_state=seed, max_iter=3000),
        "rbf svm": lambda: svm.SVC(random_state=seed),
        "forest": lambda: ensemble.RandomForestClassifier(random_state=seed, n_jobs=1),
        "neighbours": lambda: neighbors.KNeighborsClassifier(n_neighbors=min(5, len(there))),
        "logistic": lambda: linear_model.LogisticRegression(max_iter=1000),
    }
    return _Scaled(makers[name](), features, there)
