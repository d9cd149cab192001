r"""What setting a column does to another, read off a model; where a graph leaves directions open, in each reading.

**Effects** (:class:`ModelEffect`). The average effect of one column on another: for each level of the treatment the law
of the outcome under do(treatment = level), and its mean where the outcome is a number.

**Ranges** (:class:`EffectRange`). Where the direction of edges at the treatment x is open, the graphs that the stated
one stands for differ in the treatment's causes. Each set P of columns that may be its causes, because some graph of the
class has just these, gives one law, that of adjusting for them (IDA),

.. math:: p(y \mid do(x)) = \sum_p p(p)\, p(y \mid x, p),

which is p(y) if y is itself in P. All graphs with the same P agree on it, since P blocks every path into x; so these
are all the laws that the class allows.

**Intervals.** A model does not hold how far chance and noise may have moved it. But all that decides this is public:
the generator, the graph that was stated, the plan with its noise, the number of rows, and the model. So rows are drawn
from the model, as many as the table had, and the generator is fitted to them with fresh noise of the same plan; how far
these models lie from the one they were drawn from shows how far it may lie from the truth (the parametric bootstrap).
Nothing is read or spent: the rows are synthetic. With v what the model says, and mean m and standard deviation s of
what the refitted ones say, the interval is :math:`v ± t \sqrt{s^2 + (m - v)^2}`, t the quantile of Student's law with
one degree of freedom less than there are refits. The second term is what the generator's own shrinking does to rows
that it has shrunk before; it is not taken off, because the first shrinking was of another size. Where a release chose
bins privately, or paid for an evaluation, the budget of the rest is found again, and bins stay as they were chosen.

**Reference.** M. Maathuis, M. Kalisch, P. Bühlmann (2009), "Estimating high-dimensional intervention effects from
observational data", Annals of Statistics 37; B. Efron, R. Tibshirani (1993), "An introduction to the bootstrap",
section 6.5. How often the intervals hold the truth: ``tests/statistical/test_effect_range.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo._card import card, plain, tracking
from escudo._files import listed
from escudo._plot import intervals
from escudo._validate import did_you_mean, one_of, probability
from escudo.causal import CausalGraph
from escudo.errors import InputError, NotIdentifiableError
from escudo.privacy import Budget, Plan
from escudo.synthesis._laws import typical_numbers
from escudo.synthesis._model import CausalModel
from escudo.synthesis._structure import causes_of
from escudo.table import Categorical, Column, Numeric, PrivateTable, Schema

REFITS = 40
"""How often a generator is fitted again for intervals."""

_DRAWN = 200_000  # rows per level of the treatment, where the model is too large for an exact answer
_SEED = 20_090_914  # any fixed number: the same model always gives the same answer

_POOL = 100_000  # rows of the model that stand for it, or as many as the table has
_NEAR = 0.02  # the share by which the noise of a plan that is made again may differ: budgets are stated rounded
_ASIDE = ("private bins", "private evaluation")  # branches of a plan that fitting again does without
_TRIES = 6  # at most, to find the budget that the other branches had
_MOST_OPEN = 8  # undirected edges at a treatment, of which all combinations are tried


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEffect:
    """What setting a treatment does to an outcome, under a model.

    Attributes:
        treatment: The column that is set.
        outcome: The column that responds.
        levels: The values the treatment is set to, as text.
        outcome_levels: The outcome's levels as text, a missing value included; none in a linear model.
        law: P(outcome = level | do(treatment = value)): a row for each value, a number for each level.
        means: The outcome's mean for each value, among rows where it is not missing; None where it is no number.
            Numbers in bins count as the middle of their bin.
        slope: The change of the mean per unit of the treatment, in a linear model; None in others.
        exact: Whether the model was added up exactly; drawn from otherwise.
    """

    treatment: str
    outcome: str
    levels: tuple[str, ...]
    outcome_levels: tuple[str, ...]
    law: tuple[tuple[float, ...], ...]
    means: tuple[float, ...] | None
    slope: float | None = None
    exact: bool = True

    @classmethod
    def of(
        cls, schema: Schema, treatment: str, outcome: str, laws: Sequence[NDArray[np.float64]], *, exact: bool = True
    ) -> ModelEffect:
        """Return the effect that the law of an outcome's cells shows, for each cell that the treatment is set to."""
        target = schema.columns[outcome]
        values = cell_values(target)
        return cls(
            treatment=treatment,
            outcome=outcome,
            levels=tuple(schema.columns[treatment].labels[: len(laws)]),
            outcome_levels=tuple(target.labels),
            law=tuple(tuple(law.tolist()) for law in laws),
            means=None if values is None else tuple(_mean(law, values) for law in laws),
            exact=exact,
        )

    def difference(self, value: object, baseline: object) -> float:
        """Return by how much the outcome's mean is higher at one value of the treatment than at another.

        Raises:
            InputError: If a value is none of ``levels``, or the outcome is no number.
        """
        if self.means is None:
            raise InputError(
                f"{self.outcome!r} is no number, so it has no mean; ask for shifts(), the change of each level's share."
            )
        return self.means[self._place(value)] - self.means[self._place(baseline)]

    def shifts(self, value: object, baseline: object) -> dict[str, float]:
        """Return by how much each level of the outcome is more frequent at one value of the treatment than at another.

        Raises:
            InputError: If a value is none of ``levels``, or the outcome has no levels.
        """
        if not self.outcome_levels:
            raise InputError(f"{self.outcome!r} has no levels in a linear model; ask for difference().")
        one, other = self.law[self._place(value)], self.law[self._place(baseline)]
        return {level: a - b for level, a, b in zip(self.outcome_levels, one, other, strict=True)}

    def to_json(self) -> dict[str, Any]:
        """Return the effect as plain values."""
        return plain(self)

    def __str__(self) -> str:
        lines = [f"{self.outcome} under do({self.treatment} = ...)" + ("" if self.exact else ", drawn from the model")]
        for place, level in enumerate(self.levels):
            parts = [f"mean {self.means[place]:.4g}"] if self.means is not None else []
            if self.law and len(self.outcome_levels) <= 8:
                named = zip(self.outcome_levels, self.law[place], strict=True)
                parts += [f"{name} {share:.1%}" for name, share in named]
            lines.append(f"  {level}: {', '.join(parts)}")
        return "\n".join(lines + ([] if self.slope is None else [f"  per unit: {self.slope:+.4g}"]))

    def _repr_html_(self) -> str:
        title, *lines = str(self).split("\n")
        return card(title, rows=[line.strip().partition(": ")[::2] for line in lines])

    def _place(self, value: object) -> int:
        text = str(value)
        if text not in self.levels:
            shown = ", ".join(self.levels[:8])
            raise InputError(
                f"{self.treatment!r} was not set to {text!r}; it was set to {shown}.{did_you_mean(text, self.levels)}"
            )
        return self.levels.index(text)


def model_effect(model: CausalModel, treatment: str, outcome: str) -> ModelEffect:
    """Return what setting each level of a treatment does to an outcome; a missing value is no level to set."""
    names = model.schema.names
    source, target = (
        model.schema.columns[one_of(argument, name, names)]
        for argument, name in (("treatment", treatment), ("outcome", outcome))
    )
    if treatment == outcome:
        raise InputError(f"treatment and outcome are both {treatment!r}; name two columns.")
    model.check_do([treatment], [outcome])
    exact = True
    rows = []
    for value in settings(source):
        law, added_up = _law(model, {treatment: value}, outcome, target.size)
        rows.append(law)
        exact = exact and added_up
    return ModelEffect.of(model.schema, treatment, outcome, rows, exact=exact)


def _law(model: CausalModel, do: dict[str, object], outcome: str, size: int) -> tuple[NDArray[np.float64], bool]:
    """Return the law of the outcome, and whether it is exact."""
    try:
        return model.probability([outcome], do=do), True
    except InputError:
        drawn = model.codes(_DRAWN, do=do, columns=[outcome], seed=_SEED)[:, 0]
        return np.bincount(drawn, minlength=size) / _DRAWN, False


def settings(column: Column) -> Sequence[object]:
    """Return a value for each cell that can be set."""
    if isinstance(column, Categorical):
        return list(column.levels)
    return [float(number) for number in typical_numbers(column)]


def cell_values(column: Column) -> NDArray[np.float64] | None:
    """Return the number each cell stands for, a missing one left out; None if they are no numbers."""
    if isinstance(column, Numeric):
        return typical_numbers(column)
    numbers = column.kind in ("integer", "boolean")
    return np.array([float(level) for level in column.levels]) if numbers else None


def _mean(law: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    present = law[: values.size]
    total = float(present.sum())
    return float(present @ values) / total if total > 0 else math.nan


# ---- where directions are open


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRange:
    """What setting a treatment may do to an outcome, where the direction of some edges is open.

    Attributes:
        effects: One effect for each reading of the graph.
        causes: The treatment's causes in each of them.
        confidence: How often intervals should hold the truth; None where none were asked for.
        others: The effects in each of the models that other rows and noise would have made.
    """

    effects: tuple[ModelEffect, ...]
    causes: tuple[tuple[str, ...], ...]
    confidence: float | None = None
    others: tuple[tuple[ModelEffect, ...], ...] = ()

    def difference(self, value: object, baseline: object) -> tuple[float, float]:
        """Return the least and the most by which the outcome's mean is higher at one value than at another.

        Raises:
            InputError: If a value is none of the treatment's levels, or the outcome is no number.
        """
        found = [effect.difference(value, baseline) for effect in self.effects]
        return min(found), max(found)

    def shifts(self, value: object, baseline: object) -> dict[str, tuple[float, float]]:
        """Return the least and the most by which each level of the outcome is more frequent at one value than another.

        Raises:
            InputError: If a value is none of the treatment's levels.
        """
        found = [effect.shifts(value, baseline) for effect in self.effects]
        return {level: (min(each[level] for each in found), max(each[level] for each in found)) for level in found[0]}

    def intervals(self, value: object, baseline: object, level: str | None = None) -> tuple[tuple[float, float], ...]:
        """Return for each reading the interval of the change from one value to another, for noise and chance.

        Args:
            value: What the treatment is set to.
            baseline: What that is compared with.
            level: The level of the outcome whose share is meant; its mean by default.

        Raises:
            InputError: If no intervals were asked for, or as for :meth:`difference` and :meth:`shifts`.
        """
        if self.confidence is None:
            raise InputError("No intervals were asked for: effect_range(..., confidence=0.95).")

        def change(effect: ModelEffect) -> float:
            return self._change(effect, value, baseline, level)

        return tuple(
            interval(change(effect), [change(other[place]) for other in self.others], self.confidence)
            for place, effect in enumerate(self.effects)
        )

    @staticmethod
    def _change(effect: ModelEffect, value: object, baseline: object, level: str | None) -> float:
        if level is None:
            return effect.difference(value, baseline)
        shifts = effect.shifts(value, baseline)
        if level not in shifts:
            raise InputError(f"{level!r} is no level of the outcome.{did_you_mean(level, shifts)}")
        return shifts[level]

    def interval(self, value: object, baseline: object, level: str | None = None) -> tuple[float, float]:
        """Return from the least to the most that the change may be, over all readings, with noise and chance.

        Whichever reading is right, this holds the effect at least as often as stated; arguments as for
        :meth:`intervals`.
        """
        ends = self.intervals(value, baseline, level)
        return min(low for low, _ in ends), max(high for _, high in ends)

    def to_pandas(self) -> Any:
        """Return the outcome under each setting as a pandas frame, a row for each reading, setting and level.

        Means are there where the outcome is a number.

        Raises:
            InputError: If pandas is not installed.
        """
        rows = [
            (_reading(causes), setting, level, share, None if effect.means is None else effect.means[place])
            for effect, causes in zip(self.effects, self.causes, strict=True)
            for place, setting in enumerate(effect.levels)
            for level, share in zip(effect.outcome_levels, effect.law[place], strict=True)
        ]
        return listed(rows, ["reading", "set_to", "outcome", "share", "mean"])

    def plot(self, value: object, baseline: object, level: str | None = None, *, axes: Any = None) -> Any:
        """Draw the change from one value of the treatment to another in each reading, with intervals if there are.

        Args:
            value: What the treatment is set to.
            baseline: What that is compared with.
            level: The level of the outcome whose share is meant; its mean by default.
            axes: Axes of matplotlib to draw into; new ones by default.

        Returns:
            The axes; ``.figure`` is their figure, which notebooks show and ``savefig`` writes.

        Raises:
            InputError: As for :meth:`difference` and :meth:`shifts`, or if matplotlib is not installed.
        """
        first = self.effects[0]
        ends = [None] * len(self.causes) if self.confidence is None else self.intervals(value, baseline, level)
        changes = [self._change(effect, value, baseline, level) for effect in self.effects]
        sure = "" if self.confidence is None else f"; intervals of {self.confidence:g} confidence"
        what = f"mean of {first.outcome}" if level is None else f"share of {first.outcome} = {level}"
        return intervals(
            axes,
            list(zip(map(_reading, self.causes), changes, ends, strict=True)),
            title=f"{first.treatment} set from {baseline} to {value}",
            across=f"change of the {what}{sure}",
            up="reading of the graph",
            lines={"no effect": 0.0},
        )

    def to_json(self) -> dict[str, Any]:
        """Return the effects as plain values."""
        pairs = zip(self.effects, self.causes, strict=True)
        return {"effects": [{**effect.to_json(), "causes": list(causes)} for effect, causes in pairs]}

    def __str__(self) -> str:
        parts = []
        for effect, causes in zip(self.effects, self.causes, strict=True):
            title, *lines = str(effect).split("\n")
            reading = f", if its causes are {', '.join(causes) or 'none'}" if len(self.effects) > 1 else ""
            parts.append("\n".join([title + reading, *lines]))
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        title, *lines = str(self).split("\n")
        return card(title, rows=[line.strip().partition(": ")[::2] for line in lines])


def _reading(causes: tuple[str, ...]) -> str:
    return f"causes: {', '.join(causes) or 'none'}"


def effect_range(model: CausalModel, treatment: str, outcome: str, confidence: float | None) -> EffectRange:
    """Return what :meth:`CausalModel.effect_range` does."""
    for argument, name in (("treatment", treatment), ("outcome", outcome)):
        one_of(argument, name, model.schema.names)
    sure = None if confidence is None else probability("confidence", confidence, allow_zero=False)
    if sure == 1:
        raise InputError("confidence must be below 1: no interval is certain.")
    readings: tuple[tuple[str, ...], ...] | None = None
    try:
        effects: tuple[ModelEffect, ...] = (model_effect(model, treatment, outcome),)
    except NotIdentifiableError:
        readings = () if model.stated is None or model.graph.latents else causes_of(model.stated, treatment, _MOST_OPEN)
        if not readings:
            raise
        effects = _by_reading(model, treatment, outcome, readings)
    causes = (model.graph.parents(treatment),) if readings is None else readings
    others = []
    if sure is not None:
        with tracking("Fitting again", total=REFITS) as advance:
            for other in refitted(model):
                one = (model_effect(other, treatment, outcome),) if readings is None else ()
                others.append(one or _by_reading(other, treatment, outcome, readings or ()))
                advance(1)
    return EffectRange(effects=effects, causes=causes, confidence=sure, others=tuple(others))


def _by_reading(
    model: CausalModel, treatment: str, outcome: str, readings: Sequence[Sequence[str]]
) -> tuple[ModelEffect, ...]:
    return tuple(_adjusted(model, treatment, outcome, causes) for causes in readings)


def _adjusted(model: CausalModel, treatment: str, outcome: str, causes: Sequence[str]) -> ModelEffect:
    """Return the effect if these columns, and no others, act on the treatment: all of them are adjusted for."""
    source, target = model.schema.columns[treatment], model.schema.columns[outcome]
    count = len(settings(source))
    if outcome in causes:
        laws = [model.probability([outcome])] * count
    else:
        joint = model.probability([*causes, treatment, outcome]).reshape(-1, source.size, target.size)
        weight, seen = joint.sum(axis=(1, 2)), joint.sum(axis=2)
        laws = []
        for level in range(count):
            there = seen[:, level] > 0  # elsewhere the table never shows this level, and says nothing
            law = (weight[there] / seen[there, level]) @ joint[there, level]
            laws.append(law / law.sum() if law.sum() > 0 else np.full(target.size, math.nan))
    return ModelEffect.of(model.schema, treatment, outcome, laws)


# ---- what other rows and other noise would have made


def refitted(model: CausalModel) -> Iterator[CausalModel]:
    """Yield models that the same generator makes of rows drawn from a model.

    Raises:
        InputError: If the way in which the model was made cannot be repeated from what it holds.
    """
    from escudo.synthesis._generators import Synthesis, fit

    schema, guarantee, rows = model.schema, model.guarantee, model.details.get("rows")
    if schema.unit != "row" or not isinstance(rows, int):
        raise InputError(_cannot("persons with several rows are not drawn from a model, nor tables of unknown size"))
    if guarantee.epsilon is None or not guarantee.delta:
        raise InputError(_cannot("the model does not say by which ε and δ it was made"))
    neighbours = schema.neighbours(relation=guarantee.relation, rows=rows)
    question = Synthesis(_stated(model), model.generator)
    made = _branches(model.plan)
    branches = [branch for branch in made if branch.name not in _ASIDE]
    epsilon, tries = guarantee.epsilon, 1 if len(branches) == len(made) else _TRIES
    for _ in range(tries):
        prepared = question.prepare(schema, neighbours, Budget(epsilon, guarantee.delta))
        again = _branches(prepared.plan)
        if _all_alike(again, branches):
            break
        epsilon *= math.sqrt(_cost(branches) / _cost(again))
    else:
        raise InputError(_cannot("the model was made with options of its own, or of a graph that was found"))
    # A model's rows vary less than rows of a table do (they are drawn in strata), so they are drawn from once more.
    pool, rng = model.sample(max(rows, _POOL), seed=0, frame="polars"), np.random.default_rng(0)
    for number in range(REFITS):
        frame = pool[rng.integers(pool.height, size=rows)]
        table = PrivateTable(frame, schema, relation=guarantee.relation, rows=rows)
        other = fit(prepared, table, accept_large_delta=True, seed=number)
        assert isinstance(other, CausalModel)
        yield other


def interval(value: float, others: Sequence[float], confidence: float) -> tuple[float, float]:
    """Return the interval about a value, from what refitted models say instead of it."""
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(others) - 1, (1 + confidence) / 2))
    half = quantile * math.hypot(float(np.std(others, ddof=1)), float(np.mean(others)) - value)
    return value - half, value + half


def _stated(model: CausalModel) -> CausalGraph:
    return model.graph if model.stated is None else model.stated


def _branches(plan: Plan) -> Sequence[Plan]:
    return plan.children or (plan,)


def _all_alike(some: Sequence[Plan], others: Sequence[Plan]) -> bool:
    return len(some) == len(others) and all(_alike(one, other) for one, other in zip(some, others, strict=True))


def _alike(one: Plan, other: Plan) -> bool:
    """Return whether two plans release the same, about as loudly."""
    if one.name != other.name:
        return False
    if one.children or other.children:
        return _all_alike(one.children, other.children)
    first, second = _loudness(one), _loudness(other)
    return abs(first - second) <= _NEAR * second


def _loudness(leaf: Plan) -> float:
    """Return what a release costs, on the scale of its own kind; 0 for what is free."""
    event = leaf.once
    return 0.0 if event is None else float(getattr(event, "rho", getattr(event, "epsilon", math.inf)))


def _cost(branches: Sequence[Plan]) -> float:
    """Return about what branches cost together, as ρ, of which a pure ε is ε²/8."""
    rho = 0.0
    for leaf in (leaf for branch in branches for leaf in branch.leaves()):
        loud = _loudness(leaf)
        rho += leaf.count * (loud if hasattr(leaf.once, "rho") else loud**2 / 8)
    return rho


def _cannot(why: str) -> str:
    return f"This range has no intervals for noise and chance: {why}. Leave confidence out for the range alone."
