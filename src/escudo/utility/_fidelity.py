"""How close synthetic rows are: in their tables and moments, and in what a model answers to causal questions.

Two-way tables say how much columns depend on each other, and how far two tables are apart (:func:`total_variation` and
its neighbours). :func:`fidelity` compares rows; :func:`causal_fidelity` compares interventions and effects with a model
that is known or taken to be true.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from escudo._card import CUSTODIAN_ONLY, card, plain
from escudo._validate import positive_integer
from escudo.causal import Factor, Network, contract
from escudo.errors import InputError
from escudo.synthesis import Model
from escudo.table import Categorical, Numeric, PrivateTable, Schema
from escudo.utility._prediction import auc, learner_of, scores_of
from escudo.utility._rows import Rows

if TYPE_CHECKING:
    import polars as pl

Floats = NDArray[np.float64]
Counts = NDArray[Any]
Columns = tuple[str, ...]
Question = tuple[str, str, str]

_MOST_ROWS = 50_000
_MOST_CELLS = 2**16
_MOST_SUBSETS = {1: 2000, 2: 2000, 3: 500}
_DETECTED_ROWS = 4000
_WORST = 10


# ---- two-way tables


def row_count(frame: pl.DataFrame | pl.LazyFrame) -> int:
    """Return how many synthetic rows there are, in memory or in a file."""
    import polars as pl

    return int(frame.lazy().select(pl.len()).collect().item())


def synthetic_table(frame: pl.DataFrame | pl.LazyFrame, schema: Schema) -> PrivateTable:
    """Return a synthetic frame as a table that can be counted; its rows are nobody's, so no person has several."""
    return PrivateTable(frame, replace(schema, person_id=None, max_rows_per_person=None))


def cells(table: PrivateTable, names: Sequence[str]) -> NDArray[np.int64]:
    """Return the first 50,000 rows of a synthetic table as cells, of shape (rows, columns)."""
    return next(iter(table.batches(_MOST_ROWS, list(names)))).astype(np.int64)


def dependence(codes: NDArray[np.int64], sizes: Sequence[int]) -> tuple[Floats, Floats]:
    """Return, for each pair of columns, Cramér's V and the gap to independence, as two symmetric matrices."""
    columns = len(sizes)
    strength, gap = np.zeros((columns, columns)), np.zeros((columns, columns))
    for i, j in combinations(range(columns), 2):
        pair = np.bincount(codes[:, i] * sizes[j] + codes[:, j], minlength=sizes[i] * sizes[j])
        table = pair.reshape(sizes[i], sizes[j])
        strength[i, j] = strength[j, i] = cramers_v(table)
        gap[i, j] = gap[j, i] = independence_gap(table)
    return strength, gap


def cramers_v(table: Counts) -> float:
    """Return Cramér's V of a two-way table of counts, from 0 (independent) to 1, without its upward bias.

    Reference:
        W. Bergsma (2013), "A bias-correction for Cramér's V and Tschuprow's T", Journal of the Korean Statistical
        Society 42(3).

    >>> cramers_v(np.array([[50, 0], [0, 50]])), cramers_v(np.array([[25, 25], [25, 25]]))
    (1.0, 0.0)
    """
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0].astype(np.float64)
    total, (rows, columns) = table.sum(), table.shape
    if min(rows, columns) < 2 or total < 2:
        return 0.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / total
    phi = float(((table - expected) ** 2 / expected).sum() / total)
    unbiased = max(0.0, phi - (rows - 1) * (columns - 1) / (total - 1))
    side = min(rows - (rows - 1) ** 2 / (total - 1), columns - (columns - 1) ** 2 / (total - 1)) - 1
    return min(1.0, float(np.sqrt(unbiased / side))) if side > 0 else 0.0


def independence_gap(table: Counts) -> float:
    """Return the share of rows that a two-way table would have elsewhere if its columns were independent.

    >>> float(independence_gap(np.array([[50, 0], [0, 50]])))
    0.5
    """
    return total_variation(table, np.outer(table.sum(axis=1), table.sum(axis=0)))


def total_variation(one: Counts, other: Counts) -> float:
    r"""Return :math:`\tfrac12 \sum |p - q|` of two tables of counts: the share of rows in the wrong cell.

    >>> total_variation(np.array([1, 3]), np.array([2, 2]))
    0.25
    """
    return float(np.abs(one / max(one.sum(), 1) - other / max(other.sum(), 1)).sum() / 2)


def sampling_error(table: Counts, rows: int) -> float:
    r"""Return about what total variation a fresh sample of ``rows`` rows from the same population would have.

    For each cell :math:`E|\hat p - \hat q| \approx \sqrt{2 p (1 - p) (1/n + 1/m) / \pi}`, and never above 2p.
    """
    counted = max(int(table.sum()), 1)
    share = table / counted
    spread = np.sqrt(2 / np.pi * share * (1 - share) * (1 / counted + 1 / max(rows, 1)))
    return float(np.minimum(spread, 2 * share).sum() / 2)


# ---- how close rows are


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """How far one table is from another.

    Attributes:
        one_way: Mean total variation over columns: the share of rows in the wrong cell.
        two_way: The same over pairs of columns; None if there is no pair.
        three_way: The same over triples, at most 500 of them, drawn at random; None if there is no triple.
        worst: The pairs that are furthest off, with their total variation.
        correlation: Mean absolute difference of the correlations between columns with an order.
        mean: Mean absolute difference of the columns' means, in parts of the column's range.
        deviation: The same for standard deviations.
        detection: How well the better of a forest and a logistic regression tells the tables apart on rows it has not
            seen, as AUC: 0.5 if not at all, 1 if always. None if it was not tried.
    """

    one_way: float
    two_way: float | None
    three_way: float | None
    worst: tuple[tuple[Columns, float], ...]
    correlation: float | None
    mean: float | None
    deviation: float | None
    detection: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return plain(self)

    def _repr_html_(self) -> str:
        figures = {name: value for name, value in self.to_json().items() if isinstance(value, float)}
        return card(
            "How far two tables are apart",
            rows=[(name.replace("_", " "), f"{value:.4f}") for name, value in figures.items()],
            note=CUSTODIAN_ONLY,
        )


def fidelity(real: Rows, other: Rows, *, seed: int = 0, detect: bool = True) -> Fidelity:
    """Compare two tables of the same schema.

    Args:
        real: One table.
        other: The other.
        seed: Decides which triples are looked at and how rows are split for detection.
        detect: Whether learners try to tell the tables apart.

    Guarantee:
        None: the figures are exact.
    """
    rng = np.random.default_rng(seed)
    errors = {
        size: marginal_errors(real, other, subsets(real, size, rng)) for size in range(1, min(3, len(real.schema)) + 1)
    }
    means = {size: float(np.mean(list(found.values()))) if found else None for size, found in errors.items()}
    pairs = errors.get(2, {})
    return Fidelity(
        one_way=means[1] or 0.0,
        two_way=means.get(2),
        three_way=means.get(3),
        worst=tuple(sorted(pairs.items(), key=lambda item: -item[1])[:_WORST]),
        **_moments(real, other)._asdict(),
        detection=_detection(real, other, rng) if detect else None,
    )


def subsets(rows: Rows, size: int, rng: np.random.Generator) -> list[Columns]:
    """Return the sets of ``size`` columns whose table is small enough, a random share of them if they are many."""
    names = rows.schema.names
    most = _MOST_SUBSETS[size]
    if math.comb(len(names), size) <= 4 * most:
        chosen = [columns for columns in combinations(names, size) if _cells(rows, columns) <= _MOST_CELLS]
        kept = rng.permutation(len(chosen))[:most] if len(chosen) > most else range(len(chosen))
        return [chosen[place] for place in sorted(kept)]
    drawn: set[Columns] = set()
    for _ in range(4 * most):  # so many sets that drawing beats listing them
        columns = tuple(names[place] for place in np.sort(rng.choice(len(names), size, replace=False)))
        if _cells(rows, columns) <= _MOST_CELLS:
            drawn.add(columns)
        if len(drawn) == most:
            break
    return sorted(drawn)


def marginal_errors(real: Rows, other: Rows, chosen: Sequence[Columns]) -> dict[Columns, float]:
    """Return the total variation between the tables of each set of columns."""
    return {columns: total_variation(count_cells(real, columns), count_cells(other, columns)) for columns in chosen}


def _cells(rows: Rows, columns: Columns) -> int:
    return math.prod(rows.schema.shape(columns))


def count_cells(rows: Rows, columns: Columns) -> NDArray[np.int64]:
    """Return how many rows are in each cell of the columns' table, flattened."""
    places = [rows.schema.names.index(name) for name in columns]
    sizes = rows.schema.shape(columns)
    flat = np.ravel_multi_index(tuple(rows.codes[:, place] for place in places), sizes)
    return np.bincount(flat, minlength=math.prod(sizes))


class _Moments(NamedTuple):
    """The mean differences of correlations, means and deviations; None where there is none."""

    correlation: float | None = None
    mean: float | None = None
    deviation: float | None = None


def _moments(real: Rows, other: Rows) -> _Moments:
    """Return how far moments are apart, over the columns that have an order."""
    ordered = [
        place
        for place, column in enumerate(real.schema.fields)
        if isinstance(column, Numeric) or (isinstance(column, Categorical) and (column.ordered or column.size == 2))
    ]
    if not ordered:
        return _Moments()
    ours, theirs = _values(real, ordered), _values(other, ordered)
    mean = float(np.abs(ours.mean(axis=0) - theirs.mean(axis=0)).mean())
    deviation = float(np.abs(ours.std(axis=0) - theirs.std(axis=0)).mean())
    if len(ordered) < 2:
        return _Moments(None, mean, deviation)
    upper = np.triu_indices(len(ordered), 1)
    return _Moments(float(np.abs(_correlations(ours)[upper] - _correlations(theirs)[upper]).mean()), mean, deviation)


def _values(rows: Rows, places: Sequence[int]) -> Floats:
    """Return columns on [0, 1], missing values at the column's mean."""
    found = np.empty((len(rows), len(places)))
    for index, place in enumerate(places):
        column = rows.schema.fields[place]
        if isinstance(column, Numeric):
            values = (rows.numbers[:, place] + 1) / 2
        else:
            codes = rows.codes[:, place].astype(np.float64)
            values = codes / max(column.size - 1 - column.missing, 1)
            if column.missing:
                values[rows.codes[:, place] == column.missing_code] = np.nan
        gaps = np.isnan(values)
        found[:, index] = np.where(gaps, values[~gaps].mean() if not gaps.all() else 0.5, values)
    return found


def _correlations(values: Floats) -> Floats:
    centred = values - values.mean(axis=0)
    lengths = np.sqrt((centred**2).sum(axis=0))
    scaled: Floats = centred / np.where(lengths > 0, lengths, 1.0)
    return scaled.T @ scaled


def _detection(real: Rows, other: Rows, rng: np.random.Generator) -> float | None:
    """Return the AUC of the better of two learners on the half of the rows that it did not learn from."""
    size = min(len(real), len(other), _DETECTED_ROWS)
    if size < 20:
        return None
    half = size // 2
    ours, theirs = (rows.take(rng.permutation(len(rows))[:size]).inputs() for rows in (real, other))
    inputs = np.vstack([ours[:half], theirs[:half]])
    tested = np.vstack([ours[half:], theirs[half:]])
    truth = np.repeat([False, True], [half, half])
    asked = np.repeat([False, True], [size - half, size - half])
    found = []
    for name in ("forest", "logistic"):
        learner = learner_of(name, "class", int(rng.integers(2**31))).fit(inputs, truth)
        found.append(auc(asked, scores_of(learner, tested)[:, 1]))
    return max(found)


# ---- how close answers to causal questions are


@runtime_checkable
class _Exact(Protocol):
    """A model that answers exactly."""

    def probability(self, columns: Sequence[str], *, do: Mapping[str, object] | None = None) -> Floats:
        """Return the law of columns under an intervention."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalFidelity:
    """How far a model's interventions are from the reference's.

    Attributes:
        intervention: Mean total variation of P(effect | do(cause = level)), over all causes, levels and effects.
        effect: Mean absolute error of the average effect of one level against the first on each other column with an
            order, in parts of that column's range; None if no column has one.
        questions: How many interventions and effects were compared.
        worst: The questions that are furthest off, as (cause, level, effect), with their total variation.
    """

    intervention: float
    effect: float | None
    questions: int
    worst: tuple[tuple[Question, float], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return plain(self)

    def _repr_html_(self) -> str:
        asked = f"{self.intervention:.2%} of the probability is on the wrong level, over {self.questions:,} questions"
        return card(
            "Interventions, against the reference",
            asked,
            head=("furthest off", "wrong"),
            rows=[
                (f"do({cause} = {level}) on {effect}", f"{error:.2%}") for (cause, level, effect), error in self.worst
            ],
        )


def causal_fidelity(
    model: Model, reference: Network | Model, *, columns: Sequence[str] | None = None, rows: int = 20_000, seed: int = 0
) -> CausalFidelity:
    """Compare all interventions on one column with those of a reference.

    Models are asked along all arrows that their laws follow, those included that nobody claimed to be causal: what is
    measured is how far off one would be who took them for causes.

    Args:
        model: A released model.
        reference: The truth, or the best there is: a :class:`~escudo.causal.Network` or another model.
        columns: The causes and effects to ask about; by default all categorical columns.
        rows: How many rows are drawn for each intervention from models that cannot answer exactly.
        seed: For those draws.

    Guarantee:
        That of the model and the reference: no private row is read.
    """
    schema = model.schema
    rows = positive_integer("rows", rows)
    names = [name for name in schema.names if isinstance(schema[name], Categorical)] if columns is None else columns
    for name in names:
        if not isinstance(schema[name], Categorical):
            raise InputError(f"interventions are compared on categorical columns; {name!r} is numeric.")
    if len(names) < 2:
        raise InputError("interventions need at least two categorical columns: a cause and an effect.")
    errors: dict[Question, float] = {}
    shifts: list[float] = []
    for cause in names:
        column = schema[cause]
        assert isinstance(column, Categorical)
        first: dict[str, tuple[float, float]] = {}
        for level in column.levels:
            others = [name for name in names if name != cause]
            ours = _laws(model, schema, (cause, level), others, rows, seed)
            truth = _laws(reference, schema, (cause, level), others, rows, seed + 1)
            for name in others:
                errors[cause, str(level), name] = total_variation(ours[name], truth[name])
                score = _scores(schema, name)
                if score is None:
                    continue
                means = float(ours[name] @ score), float(truth[name] @ score)
                base = first.setdefault(name, means)
                if base is not means:
                    shifts.append(abs((means[0] - base[0]) - (means[1] - base[1])))
    return CausalFidelity(
        intervention=float(np.mean(list(errors.values()))),
        effect=float(np.mean(shifts)) if shifts else None,
        questions=len(errors),
        worst=tuple(sorted(errors.items(), key=lambda item: -item[1])[:10]),
    )


def _scores(schema: Schema, name: str) -> Floats | None:
    """Return the levels of a column with an order as numbers on [0, 1], the missing one in the middle."""
    column = schema[name]
    if not isinstance(column, Categorical) or not (column.ordered or len(column.levels) == 2):
        return None
    scores = np.linspace(0.0, 1.0, len(column.levels))
    return np.append(scores, 0.5) if column.missing else scores


def _laws(
    model: Network | Model, schema: Schema, do: tuple[str, object], effects: Sequence[str], rows: int, seed: int
) -> dict[str, Floats]:
    """Return the law of each effect under an intervention, over the cells of the schema."""
    if isinstance(model, Network):
        return {name: _network_law(model, schema, *do, name) for name in effects}
    setting, followed = dict([do]), replace(model, stated=None) if is_dataclass(model) else model
    if isinstance(followed, _Exact):
        return {name: followed.probability([name], do=setting) for name in effects}
    drawn = synthetic_table(followed.sample(rows, do=setting, seed=seed), schema)
    counted = drawn.counts([[name] for name in effects])
    return {name: counts / max(counts.sum(), 1) for name, counts in zip(effects, counted, strict=True)}


def _network_law(network: Network, schema: Schema, cause: str, level: object, effect: str) -> Floats:
    column = schema[effect]
    assert isinstance(column, Categorical)
    chosen = np.eye(len(network.levels[cause]))[network.code(cause, str(level))]
    factors = [Factor((*network.parents[name], name), network.table(name)) for name in network.nodes if name != cause]
    law = contract([*factors, Factor((cause,), chosen)], [effect])
    found = np.zeros(column.size)
    for place, name in enumerate(network.levels[effect]):
        found[column.codes[name]] = law[place]
    return found
