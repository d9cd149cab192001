r"""The average effect of one column on another, from a private table under a budget, and which columns to adjust for.

**Which columns to adjust for** is the back-door question, answered from the graph alone. The effect of a treatment t on
an outcome y is identified by adjusting for Z,

.. math:: E[y \mid do(t)] = \sum_z P(z)\, E[y \mid t, z],

if and only if Z holds nothing that lies on, or descends from, a causal path from t to y, and blocks every other path
between them. Among all such sets the one with the fewest cells is taken, because every cell of the table gets noise of
its own: a minimum cut, with a column's weight the logarithm of its number of cells. Of several smallest sets it is the
one nearest to the outcome: it leaves the least chance variation, and says the least about the treatment.

In a partially directed graph, with the arrows that its own imply, the same is asked of all graphs it stands for at
once: every possibly causal path must leave t by an arrow, and what *may* descend from one is left out. A path that may
go back along itself counts as possible here, which can only refuse more.

**Reference.** I. Shpitser, T. VanderWeele, J. Robins (2010), "On the validity of covariate adjustment", UAI, theorem 2;
E. Perković, J. Textor, M. Kalisch, M. Maathuis (2018), "Complete graphical characterization and construction of
adjustment sets", JMLR 18:220, theorems 5 and 7; B. van der Zander, M. Liśkiewicz, J. Textor (2019), "Separators and
adjustment sets in causal graphs", Artificial Intelligence 270, section 5, for the minimum cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo._validate import did_you_mean, one_of, probability
from escudo.asking import ask, linked, verb
from escudo.causal import AncestralGraph, CausalGraph, as_graph
from escudo.discovery._adjustment import (
    REFUTERS,
    AdjustmentTable,
    Reach,
    Strata,
    adjustment_tables,
    contrast_interval,
    contrast_value,
    e_value_of_means,
    e_value_of_shares,
    level_of,
    usual_levels,
)
from escudo.discovery._pattern import meek_closure
from escudo.discovery._treatment import (
    Arm,
    Contrast,
    EValue,
    Refutation,
    Refuter,
    Stratum,
    TreatmentEffect,
)
from escudo.errors import GraphError, InputError, NotIdentifiableError, SchemaError
from escudo.mechanisms import Purse
from escudo.privacy import Budget, GaussianEvent, Neighbours, Passes, Plan, delta_warning
from escudo.table import LinkedSchema, Numeric, PrivateTable, PrivateTables, Schema

if TYPE_CHECKING:
    import networkx as nx

Method = Literal["back-door", "stated", "trial"]
_NOTICED = 0.005  # the share of rows in strata without a comparison that is worth a warning
_NAMED = 3
_ALL_PAIRS = 6  # arms up to which all pairs of them are compared
_MOST_STRATA = 64  # strata of which the overlap is told, the largest
_CONTROL_TREATED = np.array([-1.0, 1.0])


@verb
@linked
def effect_of(
    table: PrivateTable | PrivateTables,
    treatment: str,
    outcome: str,
    *,
    graph: CausalGraph | AncestralGraph | None = None,
    epsilon: float,
    delta: float = 0.0,
    adjust: Sequence[str] | None = None,
    trial: bool = False,
    contrast: tuple[object, object] | None = None,
    outcome_level: object = None,
    confidence: float = 0.95,
    joint: bool = False,
    refute: Sequence[str] = (),
    accept_large_delta: bool = False,
    seed: int | None = None,
) -> TreatmentEffect:
    """Estimate the average effect of a treatment on an outcome, under (ε, δ), by back-door adjustment.

    Args:
        table: The private table; its account is charged once, before any noise is drawn. Of linked tables columns
            have whole names, such as ``"visits.severity"``, and ``"visits.treat@prev"`` is the treatment at the row
            before that of the outcome; every person counts once (:mod:`escudo.discovery._linked_effect`).
        treatment: The column that is set. Numbers are taken in the schema's bins.
        outcome: The column that responds: the mean of a number, or the share of a level.
        graph: Which column causes which. It chooses what to adjust for: the valid set with the fewest cells. Of a
            partial ancestral graph, a set that is valid whatever is hidden; where there is none it is refused.
        epsilon: What it may cost.
        delta: At this probability aside. With 0 the noise is Laplace's, which is less for a single question; above 0
            it is Gaussian, which adds up to less over many questions to one account.
        adjust: The columns to adjust for; checked against the graph if there is one.
        trial: Whether the treatment was assigned by chance: the difference in means.
        contrast: The levels to compare, (control, treated); by default the first and the last, or no and yes; of a
            number, bins a quarter in from either end. All other pairs are compared as well; of more than six levels,
            each with the control.
        outcome_level: Whose share is asked for; the last of two levels by default.
        confidence: How often the interval should hold the truth.
        joint: Whether the intervals of all contrasts should hold their truths together that often (by Bonferroni),
            rather than each its own.
        refute: Questions with known answers to ask beside it, each for a fifth of the budget: ``"placebo"`` (a coin in
            place of the treatment has no effect) and ``"random-cause"`` (adjusting for a coin changes nothing).
        accept_large_delta: Whether a δ that is not below one over the number of rows or people was meant; it is
            refused otherwise, by a public or stated number (``Plan.judged``).
        seed: Repeatable noise for tests and demonstrations; marks everything not for release.

    Returns:
        The effect with its interval, the arms, how strong an unmeasured cause would have to be to explain it away
        (``contrasts[0].e_value``), how well the arms overlap, what came of the refuters, and what it assumes. Where the
        data are too few for the budget the interval is wide, up to everything the schema allows.

    Raises:
        NotIdentifiableError: If the graph does not allow it; names the open path. Nothing was spent.
        RefusedError: If the schema is not confirmed, or δ is too large for the table; nothing was spent.
        BudgetExceededError: If the account does not allow the plan; nothing was spent.

    **Guarantee.** (ε, δ) between the table's neighbours, by one release of the adjustment table and one for each
    refuter, all in one plan; their sensitivity is proved in ``_adjustment.py``.

    **Assumptions.** The graph (or ``adjust``, or the trial) is right. Intervals hold the truth about as often as
    stated, over the chance of who is in the table and of the noise: see ``_adjustment.py``.

    >>> import polars as pl, escudo
    >>> frame = pl.DataFrame({"drug": ["yes", "no"] * 5000, "well": ["yes", "no", "no", "no"] * 2500})
    >>> schema = escudo.Schema.from_dict({"drug": ["no", "yes"], "well": ["no", "yes"]})
    >>> found = effect_of(escudo.PrivateTable(frame, schema), "drug", "well", trial=True, epsilon=1.0, seed=1)
    >>> round(found.value, 2), found.interval[0] < 0.5 < found.interval[1]
    (0.5, True)
    """
    asked = EffectQuestion(
        treatment,
        outcome,
        as_graph(graph),
        adjust,
        trial=trial,
        contrast=contrast,
        outcome_level=outcome_level,
        confidence=confidence,
        joint=joint,
        refute=refute,
    )
    question: Any = asked
    described: Schema | LinkedSchema = table.schema
    if isinstance(described, LinkedSchema):
        from escudo.discovery._linked_effect import LinkedEffect

        question = LinkedEffect(asked)
    budget, private = Budget(epsilon, delta), cast(PrivateTable, table)  # what is asked of one is asked of linked ones
    return cast(TreatmentEffect, ask(question, private, budget, accept_large_delta=accept_large_delta, seed=seed))


@dataclass(frozen=True, slots=True)
class EffectQuestion:
    """How much one column changes another: the question, as :func:`effect_of` takes it."""

    treatment: str
    outcome: str
    graph: CausalGraph | AncestralGraph | None = None
    adjust: Sequence[str] | None = None
    trial: bool = False
    contrast: tuple[object, object] | None = None
    outcome_level: object = None
    confidence: float = 0.95
    joint: bool = False
    refute: Sequence[str] = ()

    def prepare(
        self, schema: Schema, neighbours: Neighbours, budget: Budget, reach: Reach | None = None
    ) -> PreparedEffect:
        """Check every public argument and choose what to measure; nothing is read or spent.

        Args:
            schema: The columns.
            neighbours: Between which tables it promises.
            budget: What it may cost.
            reach: How far one record moves counts, where they are none of single rows.
        """
        schema.require_confirmed()
        treatment, outcome = self.treatment, self.outcome
        for name in (treatment, outcome):
            schema[name]  # raises if unknown
        if treatment == outcome:
            raise InputError(f"treatment and outcome are both {treatment!r}; name two columns.")
        adjustment, method = self._adjustment(schema)
        contrast = self._contrast(schema)
        confidence = probability("confidence", self.confidence, allow_zero=False)
        refuters = self._refuters()
        table, *others = adjustment_tables(
            schema, treatment, outcome, adjustment, neighbours, budget, self.outcome_level, refuters, reach
        )
        return PreparedEffect(
            table,
            contrast,
            method,
            confidence,
            budget.delta,
            neighbours.stated_rows,
            bool(self.joint),
            tuple(zip(refuters, others, strict=True)),
        )

    def _refuters(self) -> tuple[Refuter, ...]:
        if isinstance(self.refute, str):
            raise InputError(f"refute must be a list, such as [{REFUTERS[0]!r}]; got one text.")
        asked = {one_of("refute", name, REFUTERS) for name in self.refute}
        return tuple(name for name in REFUTERS if name in asked)

    def _contrast(self, schema: Schema) -> tuple[int, int]:
        """Return the cells of the treatment that are compared."""
        column = schema[self.treatment]
        if column.size - column.missing < 2:
            raise SchemaError(f"treatment {self.treatment!r} has a single level, so there is nothing to compare.")
        if self.contrast is None:
            return usual_levels(column)
        if not isinstance(self.contrast, tuple | list) or len(self.contrast) != 2:
            raise InputError("contrast must be two levels of the treatment: (control, treated).")
        control, treated = (level_of(column, level, "contrast") for level in self.contrast)
        if control == treated:
            raise InputError(f"contrast names the same level of {self.treatment!r} twice; name two.")
        return control, treated

    def _adjustment(self, schema: Schema) -> tuple[tuple[str, ...], Method]:
        """Return the columns to adjust for, and how they were found."""
        treatment, outcome, graph, adjust = self.treatment, self.outcome, self.graph, self.adjust
        if self.trial:
            if graph is not None or adjust:
                raise InputError(
                    "trial=True means that the treatment was assigned by chance; leave graph and adjust out."
                )
            return (), "trial"
        if adjust is not None:
            if isinstance(adjust, str):
                raise InputError("adjust must be a list of columns; got one text.")
            columns = tuple(dict.fromkeys(schema[name].name for name in adjust))
            if both := {treatment, outcome} & set(columns):
                raise InputError(f"adjust names {min(both)!r}, which is the treatment or the outcome itself.")
            if graph is None:
                return columns, "stated"
            if isinstance(graph, AncestralGraph):
                graph.check_adjustment(treatment, outcome, columns)
            else:
                check_adjustment(graph, treatment, outcome, columns)
            return columns, "back-door"
        if graph is None:
            raise InputError(
                "An effect needs to know what else acts on both columns: give a graph, or the columns to adjust for "
                "(adjust=[...], --adjust), or say trial=True (--trial) if the treatment was assigned by chance."
            )
        sizes = {column.name: column.size for column in schema.fields}
        if isinstance(graph, AncestralGraph):
            return graph.adjustment(treatment, outcome, sizes), "back-door"
        return smallest_adjustment(graph, treatment, outcome, sizes), "back-door"


def prepare_effect(
    schema: Schema | LinkedSchema,
    treatment: str,
    outcome: str,
    *,
    epsilon: float,
    delta: float = 0.0,
    relation: str = "replace_one",
    public_rows: int | None = None,
    **question: Any,
) -> Any:
    """Prepare :func:`effect_of` for a schema, before there is a table: its ``plan`` says what it will spend.

    Args:
        schema: The table's schema, or that of linked ones.
        treatment: As in :func:`effect_of`, like all that follow.
        outcome: The column that responds.
        epsilon: What it may cost.
        delta: At this probability aside.
        relation: Which tables are neighbours.
        public_rows: The number of rows, if it is public knowledge.
        question: What else :func:`effect_of` takes.
    """
    asked: Any = EffectQuestion(treatment, outcome, **question)
    if isinstance(schema, LinkedSchema):
        from escudo.discovery._linked_effect import LinkedEffect

        asked = LinkedEffect(asked)
    return asked.prepare(schema, schema.neighbours(relation=relation, rows=public_rows), Budget(epsilon, delta))


@dataclass(frozen=True, slots=True)
class PreparedEffect:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        table: The adjustment table.
        contrast: The arms that are compared: control, treated.
        method: How the columns adjusted for were found.
        confidence: How often intervals should hold the truth.
        delta: The δ at which the plan is stated.
        rows: The number of rows, where it was stated as public.
        joint: Whether contrasts' intervals should hold all truths together.
        refuters: The tables of questions with known answers.
    """

    table: AdjustmentTable
    contrast: tuple[int, int]
    method: Method
    confidence: float
    delta: float
    rows: int | None
    joint: bool = False
    refuters: tuple[tuple[Refuter, AdjustmentTable], ...] = ()

    @property
    def schema(self) -> Schema:
        """The columns it was prepared for."""
        return self.table.schema

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        table, outcome = self.table, self.table.outcome.column.name
        given = f" by {', '.join(table.adjustment)}" if table.adjustment else ""
        named = {
            "": f"table of {outcome} by {table.treatment}{given}",
            "arm": f"placebo: {outcome} by a coin{given}",
            "stratum": f"random cause: {outcome} by {table.treatment} by {', '.join((*table.adjustment, 'a coin'))}",
        }

        def child(one: AdjustmentTable) -> Plan:
            strata = "1 stratum" if one.strata == 1 else f"{one.strata:,} strata"
            noise = math.sqrt(one.noise_variance)
            return Plan(
                named[one.coin], one.event, buys=f"{len(one.arms)} arms in {strata}, ±{noise:.3g} rows of noise"
            )

        return Plan(
            f"effect of {table.treatment} on {outcome}",
            children=[
                *map(child, (table, *(other for _, other in self.refuters))),
                Plan("estimate and interval", buys=self._forecast),
            ],
            delta=self.delta,
        )

    @property
    def _forecast(self) -> str:
        """What interval to expect where rows spread evenly over strata and arms, and half of them have the event."""
        if self.rows is None:
            return ""
        strata, arms, rows = self.table.strata, len(self.table.arms), self.rows
        variance = strata * arms**2 * self.table.noise_variance / rows**2 + arms / (2 * rows)
        half = min(math.sqrt(self._critical * variance), 1.0) * self.table.outcome.span
        return f"±{half:.2g} if rows spread evenly, more if not"

    @property
    def _critical(self) -> float:
        """The critical distance of one interval."""
        return self._critical_of(1)

    def _critical_of(self, intervals: int) -> float:
        """Return the critical distance at which so many intervals hold all their truths (Bonferroni).

        It is that of χ² with one degree of freedom, or what Laplace noise alone needs if that is more.
        """
        from scipy.special import ndtri

        miss = (1 - self.confidence) / intervals
        quantile = -float(ndtri(miss / 2))
        if not isinstance(self.table.event, GaussianEvent):
            quantile = max(quantile, -math.log(miss) / math.sqrt(2))
        return quantile**2

    @property
    def passes(self) -> Passes:
        """How often the rows are read: questions with a known answer follow from the same counts."""
        return Passes(1)

    def run(self, table: PrivateTable, purse: Purse) -> TreatmentEffect:
        """Measure and estimate; a δ that is large for as many rows as were measured is a warning."""
        return self.answer(self.table.count(table), purse)

    def answer(self, counts: NDArray[np.int64], purse: Purse) -> TreatmentEffect:
        """Release exact counts of strata, treatment and outcome, and estimate from what comes out."""
        strata = self.table.release(self.table.sums(counts), purse)
        known = [(kind, other, other.release(other.sums(counts), purse)) for kind, other in self.refuters]
        outcome, labels, pairs = self.table.outcome, self.table.arms, self._pairs()
        contrasts, arms = [], []
        with tracking("Estimating", total=len(pairs) + len(labels)) as advance:
            for place, label in enumerate(labels):
                value, ends = self._estimate_contrast(strata.only([place]), np.array([1.0]), self._critical)
                mean, low, high = (outcome.lower + outcome.span * each for each in (value, *ends))
                rows = float(strata.rows[:, place].sum())
                arms.append(Arm(level=label, mean=mean, interval=(low, high), rows=max(round(rows), 0)))
                advance(1)
            for first, second in pairs:
                contrasts.append(self._contrast(strata.only([first, second]), (arms[first], arms[second])))
                advance(1)
        counted = sum(arm.rows for arm in arms) if self.rows is None else self.rows
        large = delta_warning(purse.plan.stated_delta, counted, unit=purse.guarantee.unit)
        return TreatmentEffect(
            treatment=self.table.treatment,
            outcome=outcome.column.name,
            contrasts=tuple(contrasts),
            arms=tuple(arms),
            confidence=self.confidence,
            joint=self.joint,
            adjustment=self.table.adjustment,
            overlap=self._overlap(strata),
            compared=self._compared(strata),
            refutations=tuple(self._refutation(*one, contrasts[0]) for one in known),
            method=self.method,
            meaning=outcome.meaning,
            estimand=self._estimand(),
            warnings=[*self._warnings(strata), *([large] if large else [])],
            notes=self._notes(),
            plan=purse.plan,
            guarantee=purse.guarantee,
        )

    def interval_of(self, strata: Strata) -> tuple[float, float]:
        """Return the interval of the contrast asked for, from what was measured."""
        _, (low, high) = self._estimate_contrast(strata.only(list(self.contrast)), _CONTROL_TREATED, self._critical)
        return self.table.outcome.span * low, self.table.outcome.span * high

    def _pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of arms to compare, the one asked for first: all, or of many arms each with the control."""
        count, (control, treated) = len(self.table.arms), self.contrast
        every = combinations(range(count), 2) if count <= _ALL_PAIRS else ((control, arm) for arm in range(count))
        return [self.contrast, *(pair for pair in every if len({*pair}) == 2 and {*pair} != {control, treated})]

    def _contrast(self, strata: Strata, arms: tuple[Arm, Arm]) -> Contrast:
        """Return the difference between two arms, and what would explain it away."""
        outcome = self.table.outcome
        critical = self._critical_of(len(self._pairs()) if self.joint else 1)
        value, (low, high) = self._estimate_contrast(strata, _CONTROL_TREATED, critical)
        known = low > 0 or high < 0
        robust: EValue | None = None
        if self.method != "trial" and outcome.counts:
            shares = arms[0].mean, arms[1].mean
            robust = e_value_of_shares(strata, shares, critical=critical, sign_known=known)
        elif self.method != "trial":
            robust = e_value_of_means(strata, value, min(low, high, key=abs) if known else 0.0)
        return Contrast(
            control=arms[0].level,
            treated=arms[1].level,
            value=outcome.span * value,
            interval=(outcome.span * low, outcome.span * high),
            e_value=robust,
        )

    def _refutation(self, kind: Refuter, table: AdjustmentTable, strata: Strata, effect: Contrast) -> Refutation:
        """Return what came of a question whose answer is known."""
        arms = [0, 1] if table.coin == "arm" else list(self.contrast)
        value, ends = self._estimate_contrast(strata.only(arms), _CONTROL_TREATED, self._critical)
        span = table.outcome.span
        low, high = span * ends[0], span * ends[1]
        within = (0.0, 0.0) if kind == "placebo" else effect.interval
        return Refutation(
            kind=kind, value=span * value, interval=(low, high), passed=low <= within[1] and within[0] <= high
        )

    @staticmethod
    def _estimate_contrast(
        strata: Strata, signs: NDArray[np.float64], critical: float
    ) -> tuple[float, tuple[float, float]]:
        low, high = contrast_interval(strata, signs, critical)
        return min(max(contrast_value(strata, signs), low), high), (low, high)

    def _overlap(self, strata: Strata) -> tuple[Stratum, ...]:
        """Return the strata with the most rows, by noisy numbers."""
        rows = np.maximum(strata.rows, 0.0)
        size = np.maximum(strata.rows.sum(axis=1) + strata.rest, 0.0)
        shares, inside = size / max(float(size.sum()), 1.0), rows / np.maximum(rows.sum(axis=1), 1.0)[:, None]
        return tuple(
            Stratum(
                name=self._stratum(int(z)) or "all rows",
                share=float(shares[z]),
                arms=tuple(min(float(one), 1.0) for one in inside[z]),
            )
            for z in np.argsort(-size, kind="stable")[:_MOST_STRATA]
        )

    def _compared(self, strata: Strata) -> float:
        """Return the share of rows in strata where both arms stand out from the noise."""
        size = np.maximum(strata.rows.sum(axis=1) + strata.rest, 0.0)
        seen = np.all([self._stands_out(strata, place) for place in self.contrast], axis=0)
        return float(size[seen].sum()) / max(float(size.sum()), 1.0)

    @staticmethod
    def _stands_out(strata: Strata, place: int) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = strata.rows[:, place] >= 2 * strata.rows_deviation[:, place]
        return found

    def _estimand(self) -> str:
        table, (control, treated) = self.table, self.contrast
        name, (a, b) = table.treatment, (table.arms[control], table.arms[treated])
        outcome, given = table.outcome.column.name, ", ".join(table.adjustment)
        if table.outcome.counts:
            outcome = f"1[{table.outcome.meaning.removeprefix('the share of rows with ')}]"
        effect = f"E[{outcome} | do({name} = {b})] - E[{outcome} | do({name} = {a})]"
        if not given:
            return f"{effect} = E[{outcome} | {name} = {b}] - E[{outcome} | {name} = {a}]"
        return f"{effect} = Σ_z P(z) (E[{outcome} | {name} = {b}, z] - E[{outcome} | {name} = {a}, z]), z = ({given})"

    def _warnings(self, strata: Strata) -> list[str]:
        """Say where an arm cannot be told from having no rows at all, from the noisy table alone."""
        found = []
        weights = strata.rows.sum(axis=1) + strata.rest
        total = max(float(weights.sum()), 1.0)
        for place in self.contrast:
            lost = ~self._stands_out(strata, place)
            share = float(np.maximum(weights[lost], 0.0).sum()) / total
            arm = f"{self.table.treatment} = {self.table.arms[place]}"
            if len(lost) == 1 and lost[0]:
                found.append(f"Rows with {arm} cannot be told from none at all: nothing can be said about them.")
            elif share > _NOTICED:
                largest = [int(z) for z in np.argsort(-weights) if lost[z] and weights[z] > 0][:_NAMED]
                found.append(
                    f"About {min(share, 1.0):.0%} of the rows lie where those with {arm} cannot be told from none at "
                    f"all ({'; '.join(map(self._stratum, largest))}). There the interval allows any outcome."
                )
        return found

    def _stratum(self, place: int) -> str:
        schema, names = self.table.schema, self.table.adjustment
        cells = np.unravel_index(place, schema.shape(names))
        return ", ".join(f"{name} = {schema[name].labels[int(cell)]}" for name, cell in zip(names, cells, strict=True))

    def _notes(self) -> list[str]:
        table, schema = self.table, self.table.schema
        notes = {
            "trial": "Taken as a randomised trial: the treatment was assigned by chance, so nothing is adjusted for.",
            "stated": "What to adjust for was stated, not derived: the effect is causal only if nothing else acts on "
            "both treatment and outcome.",
            "back-door": "Causal if the graph is right: nothing that it leaves out acts on both treatment and outcome.",
        }
        found = [notes[self.method]]
        if (count := len(self._pairs())) > 1:
            sure = f"{self.confidence:.0%} of the time"
            found.append(
                f"The intervals of the {count} contrasts hold all their truths together {sure}."
                if self.joint
                else f"Each of the {count} contrasts' intervals holds its own truth {sure}; all of them together less "
                "often (joint=True, --joint)."
            )
        if self.refuters:
            found.append(
                "What is known beforehand tries how the effect was estimated, not what it was adjusted for: with a "
                "common cause left out, it comes out just as well."
            )
        binned = [name for name in (*table.adjustment, table.treatment) if isinstance(schema[name], Numeric)]
        if binned:
            found.append(
                f"{', '.join(binned)}: taken in the schema's bins. What varies within a bin is not adjusted for."
            )
        if schema[table.treatment].missing or table.outcome.column.missing:
            found.append(
                "Rows with a missing treatment or outcome count for the strata's sizes only: the others are taken to "
                "stand for them, within each stratum."
            )
        if schema.unit == "person" and schema.max_rows_per_person != 1:
            found.append(
                "The average is over rows. The interval allows for all rows of a person being alike, so it is wide "
                "where they are not."
            )
        return found


# ---- which columns to adjust for

_PER_UNIT = 1_000_000  # weights are whole numbers, so that the cut is exact


def smallest_adjustment(graph: CausalGraph, treatment: str, outcome: str, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return the adjustment set whose table has the fewest cells, in the order of ``sizes``.

    Args:
        graph: Which column causes which; latents and names without a size cannot be adjusted for.
        treatment: The cause.
        outcome: The effect.
        sizes: How many cells each observed column has.

    Raises:
        NotIdentifiableError: If no observed columns will do; names a path that stays open, or the edge whose direction
            decides.
        InputError: If the graph has no causal path from one to the other.

    >>> graph = CausalGraph.from_edges([("age", "smoke"), ("age", "lung"), ("smoke", "lung"), ("lung", "xray")])
    >>> smallest_adjustment(graph, "smoke", "lung", {"age": 3, "xray": 2, "smoke": 2, "lung": 2})
    ('age',)
    """
    import networkx as nx

    question = _BackDoor.of(graph, treatment, outcome)
    usable = question.usable(sizes)
    moral = question.moral_graph()
    flow: nx.DiGraph[tuple[str, str]] = nx.DiGraph()
    for name in moral.nodes:
        capacity = {"capacity": round(math.log(sizes[name]) * _PER_UNIT) + 1} if name in usable else {}
        flow.add_edge((name, "in"), (name, "out"), **capacity)
    for a, b in moral.edges:
        flow.add_edge((a, "out"), (b, "in"))
        flow.add_edge((b, "out"), (a, "in"))
    try:
        # Of several minimum cuts, networkx gives the one nearest to the sink.
        _, (near, _) = nx.minimum_cut(flow, (treatment, "out"), (outcome, "in"))
    except nx.NetworkXUnbounded:
        raise question.refusal(sizes) from None
    cut = {name for name, side in near if side == "in" and (name, "out") not in near}
    return tuple(name for name in sizes if name in cut)


def check_adjustment(graph: CausalGraph, treatment: str, outcome: str, columns: Collection[str]) -> None:
    """Raise unless adjusting for these columns gives the effect.

    Raises:
        NotIdentifiableError: Names the column that must not be adjusted for, or the path that stays open.
        InputError: If the graph has no causal path from one to the other.
    """
    question = _BackDoor.of(graph, treatment, outcome)
    for name in columns:
        if name not in question.dag:
            raise GraphError(
                f"The graph does not have {name!r}, so it cannot say whether to adjust for it."
                f"{did_you_mean(name, question.dag.nodes)} Add it to the graph, or leave the graph out."
            )
        if name in question.forbidden:
            raise NotIdentifiableError(
                f"Adjusting for {name!r} would hide part of the effect of {treatment!r} on {outcome!r}: the graph has "
                "it on a causal path between them, or as an effect of such a path. Leave it out of adjust."
            )
    path = open_path(question.pruned, treatment, outcome, columns)
    if path:
        raise NotIdentifiableError(
            f"Adjusting for {', '.join(map(repr, columns)) or 'nothing'} leaves the path {path} open "
            f"between {treatment!r} and {outcome!r}. "
            "Leave adjust out to have a set chosen, or add a column on that path."
        )


def open_path(dag: CausalGraph, start: str, end: str, given: Iterable[str]) -> str:
    """Return a shortest path that ``given`` leaves open, such as ``a ← u → b``; an empty text if there is none.

    Reference:
        Shachter, "Bayes-ball", UAI 1998: a ball that came from a child or a parent passes on or bounces back.
    """
    blocked = set(given)
    collider = blocked | set(dag.ancestors(blocked)) if blocked else set()
    came: dict[tuple[str, str], tuple[str, str] | None] = {(start, "up"): None}
    queue = [(start, "up")]
    for place in queue:
        name, way = place
        if name == end:
            return _path_text(came, place)
        steps: list[tuple[str, str]] = []
        if name not in blocked or name == start:
            steps += [(child, "down") for child in dag.children(name)]
            if way == "up":
                steps += [(parent, "up") for parent in dag.parents(name)]
        if way == "down" and name in collider:
            steps += [(parent, "up") for parent in dag.parents(name)]
        for step in steps:
            if step not in came and step[0] != start:
                came[step] = place
                queue.append(step)
    return ""


def _path_text(came: Mapping[tuple[str, str], tuple[str, str] | None], last: tuple[str, str]) -> str:
    text, place = last[0], last
    while (before := came[place]) is not None:
        text = f"{before[0]} {'→' if place[1] == 'down' else '←'} {text}"
        place = before
    return text


@dataclass(frozen=True, slots=True)
class _BackDoor:
    """A treatment and an outcome in a graph, and what the graph says of them.

    Attributes:
        dag: The graph, or one of those that a partially directed graph stands for.
        forbidden: What must not be adjusted for: what is, or may be, an effect on a causal path.
        pruned: The graph without the first arrows of causal paths: what is left between the two is not the effect.
    """

    treatment: str
    outcome: str
    dag: CausalGraph
    forbidden: frozenset[str]
    pruned: CausalGraph

    @classmethod
    def of(cls, graph: CausalGraph, treatment: str, outcome: str) -> _BackDoor:
        stated = graph.expand("undirected") if graph.groups else graph
        full = stated if stated.is_dag else meek_closure(stated)
        for role, name in (("treatment", treatment), ("outcome", outcome)):
            if name not in full:
                raise GraphError(
                    f"The graph does not have the {role} {name!r}.{did_you_mean(name, full.nodes)} Add it to the graph."
                )
            if name in full.latents:
                raise GraphError(f"The {role} {name!r} is latent in the graph, so its effect cannot be estimated.")

        def onwards(name: str, among: CausalGraph = full) -> tuple[str, ...]:
            return (*among.children(name), *among.neighbours(name))

        def backwards(name: str) -> tuple[str, ...]:
            return (*full.parents(name), *full.neighbours(name))

        after = _reachable(full.children(treatment), onwards, without=treatment)
        before = _reachable([outcome], backwards, without=treatment)
        unsure = [name for name in full.neighbours(treatment) if name in before]
        if unsure:
            raise NotIdentifiableError(
                f"The effect of {treatment!r} on {outcome!r} depends on the direction of {treatment} — {unsure[0]}, "
                "which the graph leaves open. Give that edge a direction, from what is known or from "
                "escudo.direction, or say what to adjust for. A model made with this graph gives the range over all "
                "directions, with intervals: model.effect_range(..., confidence=0.95), escudo what-if."
            )
        causal = after & before
        if not causal:
            follow = sorted(set(full.edges) - set(stated.edges))
            as_stated = partial(onwards, among=stated)
            if outcome in _reachable(as_stated(treatment), as_stated, without=treatment):
                raise NotIdentifiableError(
                    f"The graph leaves {', '.join(f'{b} — {a}' for a, b in follow)} open, but its arrows allow one "
                    f"direction only, {', '.join(f'{a} → {b}' for a, b in follow)}: with the other, causes that are "
                    "not joined would meet, and such arrows a graph shows. So it has no causal path from "
                    f"{treatment!r} to {outcome!r}. If that is not meant, give the edge its direction."
                )
            raise InputError(
                f"The graph has no causal path from {treatment!r} to {outcome!r}: by the graph the effect is 0, and "
                "nothing needs to be spent to know it. Swap the two, or change the graph."
            )
        dag = full if full.is_dag else full.extension()
        pruned = CausalGraph(
            nodes=dag.nodes,
            edges=tuple(edge for edge in dag.edges if not (edge[0] == treatment and edge[1] in causal)),
            latents=dag.latents,
        )
        forbidden = _reachable(causal, onwards, without=treatment) | {treatment, outcome}
        return cls(treatment, outcome, dag, frozenset(forbidden), pruned)

    def usable(self, observed: Iterable[str]) -> set[str]:
        """Return what may be adjusted for."""
        return {name for name in observed if name in self.dag} - self.forbidden - self.dag.latents

    def moral_graph(self) -> nx.Graph[str]:
        """Return the moral graph of what comes before treatment and outcome: separators are cuts in it."""
        import networkx as nx

        kept = {self.treatment, self.outcome, *self.pruned.ancestors([self.treatment, self.outcome])}
        moral = self.pruned.subgraph(kept).moral()
        graph: nx.Graph[str] = nx.Graph()
        graph.add_nodes_from(moral.nodes)
        graph.add_edges_from(moral.undirected_edges)
        return graph

    def refusal(self, observed: Collection[str]) -> NotIdentifiableError:
        """Return the error that names a path which nothing observed can block."""
        earlier = set(self.pruned.ancestors([self.treatment, self.outcome]))
        path = open_path(self.pruned, self.treatment, self.outcome, earlier & self.usable(observed))
        return NotIdentifiableError(
            f"The effect of {self.treatment!r} on {self.outcome!r} is not identified by adjustment: the path {path} "
            f"stays open whatever observed columns are adjusted for{self._why(path, observed)}. Measure what is "
            "missing, or run a randomised trial."
        )

    def _why(self, path: str, observed: Collection[str]) -> str:
        missing = sorted(name for name in self.dag.nodes if name not in observed and f" {name} " in f" {path} ")
        if not missing:
            return ""
        if missing[0] in self.dag.latents:
            return f" ({missing[0]!r} is not observed)"
        return f" ({missing[0]!r} is no column of the schema.{did_you_mean(missing[0], observed)})"


def _reachable(start: Iterable[str], step: Callable[[str], Iterable[str]], *, without: str) -> set[str]:
    """Return the start and all that steps lead to, never through ``without``."""
    found = set(start) - {without}
    queue = list(found)
    while queue:
        for name in step(queue.pop()):
            if name != without and name not in found:
                found.add(name)
                queue.append(name)
    return found
