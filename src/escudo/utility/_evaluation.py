"""The whole comparison of real and synthetic rows: what learners make of them, and how far apart they are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from os import PathLike
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

import numpy as np

from escudo._card import CUSTODIAN_ONLY, plain, plain_for_custodian
from escudo._files import listed
from escudo._plot import Drawn, intervals
from escudo._spread import check_jobs
from escudo._validate import one_of, positive_integer, whole
from escudo.causal import Network
from escudo.errors import InputError
from escudo.synthesis import LinkedModel, Model
from escudo.table import LinkedSchema, Schema, where_rows_are
from escudo.utility._fidelity import CausalFidelity, Fidelity, causal_fidelity, fidelity
from escudo.utility._prediction import LEARNERS, Kind, Lessons, Prediction, predictions
from escudo.utility._rows import Rows

if TYPE_CHECKING:
    from escudo.utility._linked import LinkedEvaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What learning from synthetic instead of real rows does to one learner, in percentage points.

    Attributes:
        learner: A name of ``LEARNERS``, or ``"all"``.
        kind: Of the targets: ``"class"`` (accuracy) or ``"number"`` (variance explained).
        real: Accuracy after learning from real rows, mean over targets, in per cent.
        synthetic: Accuracy after learning from synthetic rows, mean over targets and synthetic tables.
        change: ``real - synthetic``: positive means that something was lost.
        low: Lower end of a 95 % interval for the change.
        high: Its upper end.
        over: What the interval is over: synthetic ``"tables"`` if there are several, otherwise ``"targets"``.
        baseline: Accuracy of always answering the commonest class.
        balanced: The change of balanced accuracy; None for numbers.
        auc: The change of AUC, in points of a hundred; None for numbers.
    """

    learner: str
    kind: Kind
    real: float
    synthetic: float
    change: float
    low: float
    high: float
    over: str
    baseline: float
    balanced: float | None
    auc: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(Drawn):
    """How useful synthetic rows are, measured on the real ones. **For the custodian only**: every figure is exact.

    ``plot`` draws what each learner loses by learning from synthetic rows.

    Attributes:
        changes: What learning from synthetic rows costs, by learner, and over all of them.
        fidelity: How far the synthetic rows are from the real training rows, one for each synthetic table.
        floor: How far the held-out real rows are from the training rows: there is no point in doing better.
        predictions: Every single result.
        causal: Interventions against a reference, if there is one.
        targets: The columns that were predicted.
        rows: How many rows were learnt from at most, real and synthetic alike.
        seed: What decided targets, splits and learners.
    """

    changes: tuple[Change, ...]
    fidelity: tuple[Fidelity, ...]
    floor: Fidelity
    predictions: tuple[Prediction, ...]
    causal: CausalFidelity | None
    targets: tuple[str, ...]
    rows: int
    seed: int

    def change(self, learner: str = "all", kind: Kind = "class") -> Change:
        """Return the change of one learner, or of all together."""
        for found in self.changes:
            if (found.learner, found.kind) == (learner, kind):
                return found
        raise InputError(f"no {kind} target was learnt by {learner!r}; see .changes for what there is.")

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON values; an interval that one value does not give, and other such, is null."""
        return plain_for_custodian(
            self, "changes", "fidelity", "floor", "causal", "targets", "rows", "seed", "predictions"
        )

    def to_pandas(self) -> Any:
        """Return what learning from synthetic rows costs as a pandas frame, a row for each learner.

        Raises:
            InputError: If pandas is not installed.
        """
        rows = [plain(one) for one in self.changes]
        return listed([list(one.values()) for one in rows], list(rows[0]))

    def _draw(self, axes: Any) -> Any:
        names = {"class": "accuracy", "number": "variance explained"}
        return intervals(
            axes,
            [(f"{x.learner}, {names[x.kind]}", x.change, (x.low, x.high) if _known(x) else None) for x in self.changes],
            title=f"What synthetic rows lose ({CUSTODIAN_ONLY})",
            across="lost by learning from synthetic rows, percentage points; 95 % intervals",
            up="learner",
            lines={"nothing lost": 0.0},
        )

    def __str__(self) -> str:
        lines = []
        for found in self.changes:
            what = "accuracy" if found.kind == "class" else "variance explained"
            lines.append(
                f"{found.learner:<11} {what}: real {found.real:5.1f} %, synthetic {found.synthetic:5.1f} %, "
                f"lost {found.change:+.1f} points ({_interval(found)})"
            )
        pairs = [found.two_way for found in self.fidelity if found.two_way is not None]
        if pairs and self.floor.two_way is not None:
            lines.append(
                f"pairs of columns: {100 * float(np.mean(pairs)):.2f} % of rows in the wrong cell; "
                f"a second real sample {100 * self.floor.two_way:.2f} %"
            )
        return "\n".join([*lines, "For the custodian only: these figures read the real rows exactly."])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{title}</th>" for title in ("learner", "real, %", "synthetic, %", "lost", "95 % interval"))
        rows = "".join(
            f"<tr><td>{escape(one.learner)}</td><td>{one.real:.1f}</td><td>{one.synthetic:.1f}</td>"
            f"<td>{one.change:+.1f}</td><td>{_interval(one)}</td></tr>"
            for one in self.changes
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><p>For the custodian only.</p>"


def _known(change: Change) -> bool:
    return math.isfinite(change.low)


def _interval(change: Change) -> str:
    return f"{change.low:+.1f} to {change.high:+.1f}" if _known(change) else "one value only"


class _Options(TypedDict, total=False):
    """What :func:`evaluate` takes for one table beside the rows and their schema."""

    targets: int | Iterable[str]
    learners: Sequence[str]
    most_rows: int
    model: Model | None
    reference: Network | Model | None
    seed: int
    jobs: int | None
    log: str | PathLike[str] | None


@overload
def evaluate(
    real_train: object, real_test: object, synthetic: object, schema: Schema, **how: Unpack[_Options]
) -> Evaluation: ...
@overload
def evaluate(
    real_train: object,
    real_test: object,
    synthetic: object,
    schema: LinkedSchema,
    *,
    model: LinkedModel | None = ...,
) -> LinkedEvaluation: ...
@where_rows_are("real_train", "real_test", public=["synthetic"])
def evaluate(
    real_train: object,
    real_test: object,
    synthetic: object,
    schema: Schema | LinkedSchema,
    *,
    targets: int | Iterable[str] = 20,
    learners: Sequence[str] = LEARNERS,
    most_rows: int = 5000,
    model: Model | LinkedModel | None = None,
    reference: Network | Model | None = None,
    seed: int = 0,
    jobs: int | None = None,
    log: str | PathLike[str] | None = None,
) -> Any:
    """Compare what can be learnt from synthetic rows with what can be learnt from real ones.

    Each target column is predicted from all others by each learner, trained on the real training rows and on the
    synthetic ones, and tested on real rows that neither has seen.

    Of linked tables, each given as a frame for every table, no column is predicted: columns, pairs, what comes next,
    rows per person and, with ``model``, effects along its arrows are compared (:class:`LinkedEvaluation`).

    Where real rows lie on Spark or Dask, all of this is done by one of their workers, and no row comes here.

    Args:
        real_train: The rows that the generator was fitted to; a frame of any engine.
        real_test: Real rows held out from it.
        synthetic: Synthetic rows; or a list of several tables, from several fits, for an interval over fits.
        schema: The public description of the columns.
        targets: How many columns to predict, drawn at random; or their names.
        learners: Which of ``LEARNERS``.
        most_rows: The most rows that a learner sees or is tested on, the same number for real and synthetic ones.
        model: A released model, to compare its interventions with ``reference``; of linked tables by itself.
        reference: The true network, or the best model there is.
        seed: Decides targets, samples of rows, and the learners' own randomness.
        jobs: How many processes, as in joblib; None follows ``joblib.parallel_config`` and is otherwise one. On a
            cluster they are processes of that worker.
        log: A file that keeps every prediction, so that the same call goes on where it was stopped. It is as private
            as the rows, and on a cluster that worker's, under this path. Not for linked tables, of which nothing is
            predicted.

    Returns:
        The evaluation. It is exact, and so for the custodian's eyes only; :func:`evaluate_privately` pays for figures
        that may be shown.

    Reference:
        "Causally Constrained Data Synthesis for Private Data Release", sections 4.4 and 5.1.

    >>> import polars as pl, escudo
    >>> schema = escudo.Schema.from_dict({"smoke": ["no", "yes"], "ill": ["no", "yes"]})
    >>> rows = pl.DataFrame({"smoke": ["yes", "no"] * 50, "ill": ["yes", "no"] * 50})
    >>> found = evaluate(rows, rows, rows, schema, targets=["ill"], learners=["logistic"])
    >>> found.change().change
    0.0
    """
    if isinstance(schema, LinkedSchema):
        from escudo.utility._linked import linked_evaluation

        if reference is not None:
            raise InputError("reference is for one table; of linked ones the model's arrows and effects are compared.")
        if log is not None:
            raise InputError("log is for one table: of linked ones no column is predicted, and nothing takes long.")
        return linked_evaluation(real_train, real_test, synthetic, schema, model)
    if isinstance(model, LinkedModel):
        raise InputError("model is one of linked tables; give their schema, and a frame for each of them.")
    if (model is None) != (reference is None):
        raise InputError("model and reference go together: the model's interventions are compared with the reference.")
    for learner in learners:
        one_of("learners", learner, LEARNERS)
    if not learners:
        raise InputError("learners must name at least one learner.")
    processes = check_jobs(jobs)
    rng = np.random.default_rng(whole("seed", seed))
    most = positive_integer("most_rows", most_rows)
    chosen = _targets(schema, targets, rng)
    train = Rows.read(real_train, schema, argument="real_train")
    test = Rows.read(real_test, schema, argument="real_test")
    tables = synthetic if isinstance(synthetic, list | tuple) else [synthetic]
    made = [Rows.read(table, schema, argument="synthetic") for table in tables]
    if not made:
        raise InputError("synthetic holds no table.")
    size = min(most, len(train), *(len(rows) for rows in made))
    learnt = [rows.at_most(size, rng) for rows in (train, *made)]
    found = predictions(
        learnt[0],
        learnt[1:],
        test.at_most(most, rng),
        Lessons(chosen, learners, seed),
        processes,
        log,
    )
    apart = partial(fidelity, train, seed=seed)
    return Evaluation(
        changes=tuple(_changes(found, learners)),
        fidelity=tuple(map(apart, made)),
        floor=apart(test),
        predictions=tuple(found),
        causal=None if model is None or reference is None else causal_fidelity(model, reference, seed=seed),
        targets=chosen,
        rows=size,
        seed=seed,
    )


def _targets(schema: Schema, targets: int | Iterable[str], rng: np.random.Generator) -> tuple[str, ...]:
    if isinstance(targets, str):
        targets = [targets]
    if len(schema) < 2:
        raise InputError("there is nothing to predict a column from: the schema has only one.")
    if isinstance(targets, Iterable):
        names = tuple(schema[name].name for name in targets)
        if not names:
            raise InputError("targets must name at least one column.")
        return names
    count = min(positive_integer("targets", targets), len(schema))
    return tuple(schema.names[place] for place in np.sort(rng.permutation(len(schema))[:count]))


def _changes(found: Sequence[Prediction], learners: Sequence[str]) -> list[Change]:
    changes = []
    for kind in ("class", "number"):
        of_kind = [one for one in found if one.kind == kind]
        if of_kind:
            changes += [_change(of_kind, learner, kind) for learner in learners]
            changes.append(_change(of_kind, "all", kind))
    return changes


def _change(found: Sequence[Prediction], learner: str, kind: Kind) -> Change:
    kept = [one for one in found if learner in ("all", one.learner)]
    real = {(one.target, one.learner): one for one in kept if one.trained_on == "real"}
    pairs = [(real[one.target, one.learner], one) for one in kept if one.trained_on == "synthetic"]
    runs = sorted({one.run for _, one in pairs})
    lost = {run: {} for run in runs}  # type: dict[int, dict[str, list[float]]]
    for before, after in pairs:
        lost[after.run].setdefault(after.target, []).append(100 * (before.accuracy - after.accuracy))
    if len(runs) > 1:
        over, units = "tables", [np.mean([np.mean(v) for v in lost[run].values()]) for run in runs]
    else:
        over, units = "targets", [np.mean(v) for v in lost[runs[0]].values()]
    change, half = float(np.mean(units)), _half_width([float(unit) for unit in units])
    return Change(
        learner=learner,
        kind=kind,
        real=100 * float(np.mean([one.accuracy for one in real.values()])),
        synthetic=100 * float(np.mean([after.accuracy for _, after in pairs])),
        change=change,
        low=change - half,
        high=change + half,
        over=over,
        baseline=100 * float(np.mean([one.baseline for one in real.values()])),
        balanced=_mean_loss([(before.balanced, after.balanced) for before, after in pairs]),
        auc=_mean_loss([(before.auc, after.auc) for before, after in pairs]),
    )


def _mean_loss(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    losses = [100 * (before - after) for before, after in pairs if before is not None and after is not None]
    return float(np.mean(losses)) if losses else None


def _half_width(values: Sequence[float]) -> float:
    """Return half of a 95 % t-interval for the mean; infinite for a single value."""
    from scipy.stats import t

    if len(values) < 2:
        return math.inf
    return float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
