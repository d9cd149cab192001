"""Learners: five of different kinds, for classes and for numbers, and how well they predict.

They learn one column from all others on synthetic rows, and what they learnt is tested on real ones. The
learners are spread over processes or a cluster (:mod:`escudo._spread`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo._log import LogKind, WorkLog, fingerprint
from escudo._spread import spread
from escudo.errors import InputError
from escudo.table import Numeric
from escudo.utility._rows import Rows

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
            "attacks and evaluations learn with scikit-learn, which is not installed; install escudo with its extra "
            "'evaluation': pip install 'escudo[evaluation]'."
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


def variance_explained(truth: NDArray[np.float64], answers: NDArray[np.float64]) -> float:
    """Return the share of variance explained, 1 if perfect, 0 for the mean, at least -1 for what is worse.

    >>> variance_explained(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0]))
    1.0
    """
    spread = float(((truth - truth.mean()) ** 2).sum())
    missed = float(((truth - answers) ** 2).sum())
    if spread == 0.0:
        return 1.0 if missed == 0.0 else -1.0
    return max(-1.0, 1.0 - missed / spread)


# ---- learning on synthetic rows, testing on real ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """How well one learner, trained on one table, predicts one column of held-out real rows.

    Attributes:
        target: The column.
        kind: ``"class"``, or ``"number"`` for a numeric column.
        learner: A name of ``LEARNERS``.
        trained_on: The real training rows, or synthetic ones.
        run: Which synthetic table, from 0; real rows are run 0.
        accuracy: The share of right answers; for numbers, the share of variance explained (R²).
        balanced: The same, averaged over classes; None for numbers.
        auc: How often a row of a class scores above one of another, mean over classes; None for numbers.
        baseline: The accuracy of always answering the commonest class of the real training rows; 0 for numbers.
    """

    target: str
    kind: Kind
    learner: str
    trained_on: Literal["real", "synthetic"]
    run: int
    accuracy: float
    balanced: float | None
    auc: float | None
    baseline: float


_WORTH_PROCESSES = 400_000  # rows times fits; for less, starting processes takes longer than learning


@dataclass(frozen=True, slots=True)
class _Task:
    """One learner, one target, one table to learn from."""

    target: str
    learner: str
    trained_on: Literal["real", "synthetic"]
    run: int
    seed: int

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What tells it from the others of an evaluation."""
        return self.target, self.learner, self.trained_on, self.run


def _read_back(line: Any) -> tuple[tuple[str, str, str, int], Prediction]:
    """Return a prediction and its key, or raise if the line holds something else."""
    found = Prediction(**line)
    texts = (found.target, found.learner, found.trained_on)
    numbers = (found.accuracy, found.balanced, found.auc, found.baseline)
    if not all(isinstance(text, str) for text in texts) or found.kind not in ("class", "number"):
        raise ValueError
    if type(found.run) is not int or not all(one is None or type(one) is float for one in numbers):
        raise ValueError
    if found.accuracy is None or found.baseline is None:
        raise ValueError
    return (*texts, found.run), found


_LOG: LogKind[tuple[str, str, str, int], Prediction] = LogKind(
    format="escudo predictions 1",
    question="evaluation",
    piece="prediction",
    differs="other rows, targets, learners or seed",
    write=lambda _, found: asdict(found),
    read=_read_back,
)


def kind_of(rows: Rows, target: str) -> Kind:
    """Return whether a column is predicted as a class or as a number."""
    return "number" if isinstance(rows.schema[target], Numeric) else "class"


class Lessons(NamedTuple):
    """What is predicted, by which learners, and what decides their own randomness."""

    targets: Sequence[str]
    learners: Sequence[str]
    seed: int


def predictions(
    real: Rows,
    synthetic: Sequence[Rows],
    tested: Rows,
    lessons: Lessons,
    jobs: int | None,
    log: str | PathLike[str] | None = None,
) -> list[Prediction]:
    """Train every learner for every target on the real rows and on each synthetic table; test all on the same rows."""
    targets, learners, seed = lessons
    tables: dict[tuple[Literal["real", "synthetic"], int], Rows] = {("real", 0): real}
    tables |= {("synthetic", run): rows for run, rows in enumerate(synthetic)}
    tasks = [
        _Task(target, learner, origin, run, seed + place)
        for place, target in enumerate(targets)
        for learner in learners
        for origin, run in tables
    ]
    book = None
    if log is not None:
        every = [array for rows in (*tables.values(), tested) for array in (rows.codes, rows.numbers)]
        book = WorkLog(log, fingerprint(real.schema.fingerprint, list(targets), list(learners), seed, *every), _LOG)
    known = {task: found for task in tasks if book is not None and (found := book.get(task.key)) is not None}
    missing = [task for task in tasks if task not in known]
    alone = jobs == -1 and len(missing) * len(real) < _WORTH_PROCESSES  # all cores, if that pays
    with tracking("Learning", total=len(tasks)) as advance:
        advance(len(known))
        asked = [(task, tables[task.trained_on, task.run], real, tested) for task in missing]
        for task, prediction in zip(missing, spread(_predict, asked, 1 if alone else jobs, chunk=1), strict=True):
            known[task] = prediction
            if book is not None:
                book.put(task.key, prediction)
            advance(1)
    return [known[task] for task in tasks]


def _predict(asked_for: tuple[_Task, Rows, Rows, Rows]) -> Prediction:
    task, trained, real, tested = asked_for
    kind = kind_of(tested, task.target)
    place = tested.schema.names.index(task.target)
    figures = (_numbers if kind == "number" else _classes)(task, place, trained, real, tested)
    asked = {"target": task.target, "learner": task.learner, "trained_on": task.trained_on, "run": task.run}
    return Prediction(kind=kind, **asked, **figures._asdict())  # type: ignore[arg-type]


class _Figures(NamedTuple):
    """How well it went; only the first for numbers."""

    accuracy: float
    balanced: float | None = None
    auc: float | None = None
    baseline: float = 0.0


def _classes(task: _Task, place: int, trained: Rows, real: Rows, tested: Rows) -> _Figures:
    known, truth = trained.codes[:, place], tested.codes[:, place]
    common = np.bincount(real.codes[:, place]).argmax()
    baseline = float((truth == common).mean())
    levels = np.unique(known)
    if levels.size == 1:  # nothing to learn: the one answer there is, and no order among rows
        answers = np.full(truth.shape, levels[0])
        return _Figures(float((answers == truth).mean()), balanced_accuracy(truth, answers), 0.5, baseline)
    learner = _train(learner_of(task.learner, "class", task.seed), trained.inputs(without=task.target), known)
    inputs = tested.inputs(without=task.target)
    answers, scores = learner.predict(inputs), scores_of(learner, inputs)
    column = {int(level): index for index, level in enumerate(learner.classes_)}
    ranked = [
        auc(truth == level, scores[:, column[int(level)]]) if int(level) in column else 0.5
        for level in np.unique(truth)
    ]
    usable = [value for value in ranked if not math.isnan(value)]
    mean = float(np.mean(usable)) if usable else None
    return _Figures(float((answers == truth).mean()), balanced_accuracy(truth, answers), mean, baseline)


def _numbers(task: _Task, place: int, trained: Rows, real: Rows, tested: Rows) -> _Figures:
    trained = trained.take(~np.isnan(trained.numbers[:, place]))
    tested = tested.take(~np.isnan(tested.numbers[:, place]))
    known, truth = trained.numbers[:, place], tested.numbers[:, place]
    if truth.size == 0 or known.size == 0:
        return _Figures(0.0)
    inputs = trained.inputs(without=task.target)
    if np.ptp(known) == 0.0 or inputs.shape[1] == 0:
        return _Figures(variance_explained(truth, np.full(truth.shape, known.mean())))
    learner = _train(learner_of(task.learner, "number", task.seed), inputs, known)
    return _Figures(variance_explained(truth, learner.predict(tested.inputs(without=task.target))))


def _train(learner: Any, inputs: Any, known: Any) -> Any:
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # an unfinished fit is still the learner's answer
        if hasattr(learner, "n_neighbors"):
            learner.set_params(n_neighbors=min(learner.n_neighbors, len(known)))
        return learner.fit(inputs, known)
