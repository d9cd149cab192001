"""The attacker: whom to attack, what to look at in a synthetic set, and how to decide.

Targets are people drawn at random, outliers, chosen ones, or records made up to stand out. An :class:`Attacker` turns a
synthetic set into features; learners trained on shadow fits judge them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from escudo._validate import one_of, positive_integer
from escudo.errors import InputError
from escudo.table import Numeric
from escudo.utility import Rows, learner_of

Floats = NDArray[np.float64]
Choice = Literal["outliers", "random"]
CHOICES: tuple[Choice, ...] = ("outliers", "random")
CLASSIFIERS = ("linear svm", "rbf svm", "forest", "neighbours", "logistic", "network", "likelihood ratio")
"""Names of the attack classifiers: ``network`` is a neural one of two hidden layers; the last one compares normal laws
of each feature with and without the target."""

_NEAREST = 5
_MOST_COMPARED = 5000
_BINS = 10
_QUERIES = {1: 50, 2: 300, 3: 300}
_WIDTHS = (0.5, 1.0, 2.0)
_MOST_CORRELATED = 300  # columns; the upper triangle of more would be slow to learn from
_LEAST_SPREAD = 1e-9


# ---- whom to attack


def choose(rows: Rows, count: int, choice: Choice | Sequence[int], rng: np.random.Generator) -> list[int]:
    """Return the rows to attack.

    Args:
        rows: The private rows.
        count: How many.
        choice: ``"outliers"``: those with the largest mean distance to their 5 nearest neighbours, the people most at
            risk; ``"random"``; or the numbers of the rows.
        rng: Decides random ones, and whom outliers are compared with in large tables.

    Reference:
        M. Meeus et al. (2023), "Achilles' Heels: vulnerable record identification in synthetic data publishing".
    """
    if isinstance(choice, str):
        kind = one_of("choose", choice, CHOICES)
        most = positive_integer("targets", count)
        if most > len(rows):
            raise InputError(f"targets asks for {most} people; there are only {len(rows)} rows.")
        if kind == "random":
            return [int(place) for place in np.sort(rng.permutation(len(rows))[:most])]
        far = outlyingness(rows, rng)
        return [int(place) for place in np.argsort(-far, kind="stable")[:most]]
    places = [int(place) for place in choice]
    if not places or min(places) < 0 or max(places) >= len(rows):
        raise InputError(f"targets must be numbers of rows from 0 to {len(rows) - 1}, at least one.")
    return places


def outlyingness(rows: Rows, rng: np.random.Generator) -> Floats:
    """Return each row's mean distance to its 5 nearest neighbours, in columns that differ."""
    values = _scale(rows)
    others = np.arange(len(rows))
    if len(rows) > _MOST_COMPARED:
        others = np.sort(rng.permutation(len(rows))[:_MOST_COMPARED])
    compared = values[others]
    far = np.empty(len(rows))
    most = min(_NEAREST, len(others) - 1)
    if most < 1:
        return np.zeros(len(rows))
    squares = (compared**2).sum(axis=1)
    for start in range(0, len(rows), 1000):
        part = values[start : start + 1000]
        apart = (part**2).sum(axis=1)[:, None] + squares - 2 * part @ compared.T
        apart[(start + np.arange(len(part)))[:, None] == others] = np.inf  # nobody is their own neighbour
        far[start : start + len(part)] = np.sort(np.maximum(apart, 0), axis=1)[:, :most].mean(axis=1)
    return far


def _scale(rows: Rows) -> Floats:
    """Return rows such that squared distances count differing columns, and how far numbers are apart."""
    parts = []
    for place, column in enumerate(rows.schema.fields):
        if isinstance(column, Numeric):
            parts.append(np.nan_to_num(rows.numbers[:, [place]], nan=3.0) / 2)
        else:
            parts.append((rows.codes[:, [place]] == np.arange(column.size)) / np.sqrt(2))
    return np.hstack(parts)


def canary(rows: Rows) -> Rows:
    """Return a record made up to stand out: in each column the rarest level, or the end of the range further away."""
    codes, numbers = np.zeros((1, len(rows.schema)), dtype=np.int64), np.full((1, len(rows.schema)), np.nan)
    for place, column in enumerate(rows.schema.fields):
        if isinstance(column, Numeric):
            values = rows.numbers[:, place]
            middle = np.nanmean(values) if not np.isnan(values).all() else 0.0
            numbers[0, place] = -1.0 if middle > 0 else 1.0
            codes[0, place] = 0 if middle > 0 else column.size - 1 - column.missing
        else:
            codes[0, place] = int(np.bincount(rows.codes[:, place], minlength=column.size).argmin())
    return Rows(schema=rows.schema, codes=codes, numbers=numbers)


# ---- what is looked at


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Attacker:
    """What the attacker knows before looking; called with a synthetic set, what they see in it.

    Attributes:
        target: The record in question, a single row.
        kinds: Which features are looked at.
        density: The log density of the record in other rows of the population, at three widths.
        least: What is added to densities, so that none is 0.
        queries: Sets of columns on which synthetic rows are compared with the target.
        sorted_bins: Whether histograms lose the identity of their bins, as published.
    """

    target: Rows
    kinds: tuple[str, ...]
    density: tuple[float, ...]
    least: float
    queries: tuple[tuple[int, ...], ...]
    sorted_bins: bool = False

    @classmethod
    def of(
        cls, target: Rows, reference: Rows, kinds: Sequence[str], seed: int, *, sorted_bins: bool = False
    ) -> Attacker:
        """Return an attacker who knows other rows of the population, with a random choice of queries."""
        rng, width = np.random.default_rng(seed), len(target.schema)
        queries: list[tuple[int, ...]] = []
        for size, most in _QUERIES.items():
            if size > width:
                continue
            every = list(combinations(range(width), size)) if width**size <= 50_000 else None
            if every is not None:
                kept = rng.permutation(len(every))[:most]
                queries += [every[place] for place in np.sort(kept)]
            else:
                drawn = {tuple(np.sort(rng.choice(width, size, replace=False)).tolist()) for _ in range(most)}
                queries += sorted(drawn)
        least = 1.0 / (2 * len(reference))
        return cls(
            target=target,
            kinds=tuple(kinds),
            density=_log_density(distances(target, reference), least),
            least=least,
            queries=tuple(queries),
            sorted_bins=sorted_bins,
        )

    def __call__(self, synthetic: Rows, rng: np.random.Generator) -> dict[str, Floats]:
        """Return each kind of features of one synthetic set."""
        return {kind: FEATURES[kind](self, synthetic) for kind in self.kinds}


def _naive(attacker: Attacker, rows: Rows) -> Floats:
    """Mean, median and variance of numbers; commonest and rarest level and how many levels there are, of others."""
    found: list[float] = []
    for place, column in enumerate(rows.schema.fields):
        if isinstance(column, Numeric):
            values = rows.numbers[:, place]
            known = values[~np.isnan(values)]
            known = known if known.size else np.zeros(1)
            found += [float(known.mean()), float(np.median(known)), float(known.var())]
        else:
            counts = np.bincount(rows.codes[:, place], minlength=column.size)
            seen = np.flatnonzero(counts)
            found += [float(counts.argmax()), float(seen[counts[seen].argmin()]), float(seen.size)]
    return np.array(found)


def _histogram(attacker: Attacker, rows: Rows) -> Floats:
    """The share of rows in each cell: ten bins of numbers, levels of others."""
    found: list[Floats] = []
    for place, column in enumerate(rows.schema.fields):
        if isinstance(column, Numeric):
            values = rows.numbers[:, place]
            counts = np.histogram(values[~np.isnan(values)], bins=_BINS, range=(-1, 1))[0]
            if attacker.sorted_bins:
                counts = np.sort(counts)[::-1]
        else:
            counts = np.bincount(rows.codes[:, place], minlength=column.size)
        found.append(counts / len(rows))
    return np.concatenate(found)


def _correlation(attacker: Attacker, rows: Rows) -> Floats:
    """The correlations of indicators and numbers."""
    values = rows.inputs()[:, :_MOST_CORRELATED]
    centred = values - values.mean(axis=0)
    lengths = np.sqrt((centred**2).sum(axis=0))
    scaled = centred / np.where(lengths > 0, lengths, 1.0)
    matrix: Floats = (scaled.T @ scaled)[np.triu_indices(values.shape[1], 1)]
    return matrix


def _ensemble(attacker: Attacker, rows: Rows) -> Floats:
    """The three above, together."""
    return np.concatenate([_naive(attacker, rows), _histogram(attacker, rows), _correlation(attacker, rows)])


def _queries(attacker: Attacker, rows: Rows) -> Floats:
    """The share of rows that agree with the target on sets of one, two and three columns."""
    # Eight rows to a byte: those that agree on several columns are the "and" of theirs.
    same = np.packbits(rows.codes == attacker.target.codes[0], axis=0).T.copy()
    agree = (np.bitwise_and.reduce(same[list(places)], axis=0) for places in attacker.queries)
    return np.array([int(np.bitwise_count(each).sum(dtype=np.int64)) / len(rows) for each in agree])


def _nearest(attacker: Attacker, rows: Rows) -> Floats:
    """Distances from the target to the nearest synthetic rows, and how many rows are equal to it."""
    apart = np.sort(distances(attacker.target, rows))
    few = apart[:_NEAREST]
    return np.array([few[0], few.mean(), float((apart == 0).mean()), float(apart.mean())])


def _density(attacker: Attacker, rows: Rows) -> Floats:
    """The log density of the target in the synthetic rows over that in the population, at three widths."""
    made = _log_density(distances(attacker.target, rows), attacker.least)
    return np.array([here - there for here, there in zip(made, attacker.density, strict=True)])


def _log_density(apart: Floats, least: float) -> tuple[float, ...]:
    return tuple(float(np.log(np.exp(-apart / width).mean() + least)) for width in _WIDTHS)


def distances(target: Rows, rows: Rows) -> Floats:
    """Return how many columns of each row differ from the target's; numbers count by how far they are apart."""
    apart = (rows.codes != target.codes[0]).astype(np.float64)
    numeric = [place for place, column in enumerate(rows.schema.fields) if isinstance(column, Numeric)]
    if numeric:
        gaps = np.abs(rows.numbers[:, numeric] - target.numbers[0, numeric]) / 2
        both = np.isnan(rows.numbers[:, numeric]) & np.isnan(target.numbers[0, numeric])
        apart[:, numeric] = np.where(np.isnan(gaps), 1.0 - both, gaps)
    total: Floats = apart.sum(axis=1)
    return total


FEATURES: Mapping[str, Callable[[Attacker, Rows], Floats]] = {
    "naive": _naive,
    "histogram": _histogram,
    "correlation": _correlation,
    "ensemble": _ensemble,
    "queries": _queries,
    "nearest": _nearest,
    "density": _density,
}
"""Kinds of features: the first four as published, the others added since."""


# ---- how it is judged


def train_classifier(name: str, features: Floats, there: NDArray[np.bool_], seed: int) -> Any:
    """Return a trained classifier with ``scores(features)``: positive where it thinks that the target was there."""
    if np.unique(there).size < 2:
        return _Constant()
    if name == "likelihood ratio":
        return _LikelihoodRatio(features, there)
    if name == "network":
        return _Scaled(_network(seed), features, there)
    learner = learner_of(name.replace("svm", "svc"), "class", seed)
    if name == "neighbours":
        learner.set_params(n_neighbors=min(learner.n_neighbors, len(there)))
    return _Scaled(learner, features, there)


def _network(seed: int) -> Any:
    """Return an untrained neural classifier: two hidden layers, which decay by weight keeps from learning by heart."""
    learner_of("logistic", "class", seed)  # says so if scikit-learn is not there
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier((64, 32), alpha=0.1, max_iter=200, random_state=seed)


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
