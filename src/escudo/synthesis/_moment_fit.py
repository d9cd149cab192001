r"""From noisy moments to one law per column, as post-processing.

Columns are fitted along the causal order: parents are simulated from the laws fitted so far, and the column's law is
the most likely one given its moments on these simulated parents (``_moment_family``). Three passes, because two things
are learnt from one for the next:

* **what parameters are like** in this table, for the priors;
* **what clipping did.** It pulls moments down, most those of levels that come in long rows. By how much is read off the
  simulated rows, clipped and unclipped, and undone. So the clip bound may be tight, and the noise small.

**Missing arrows.** Candidate pairs are compared with what the model implies; each column gets its most surprising one
above ``_SURPRISE`` standard deviations as a new parent, one per round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from escudo._progress import tracking
from escudo.causal import CausalGraph
from escudo.synthesis._conditionals import Conditional
from escudo.synthesis._moment_family import FIRST_PRIORS, Family, Found, kinds_of, learnt
from escudo.synthesis._moment_forms import law_of
from escudo.synthesis._moment_statistics import NoisyMoments, clip_factors, row_squares, summed
from escudo.synthesis._structure import Arrow

__all__ = ["FittedMoments", "fit_moments"]

_SIMULATED = 20_000
_MAX_SIMULATED = 100_000
_SEED = 20_190_917  # any fixed number: the same release always gives the same model
_PASSES = 3
_SURPRISE = 4.0
_STEADY = 5.0  # simulated rows that draw a correction to 1, for pairs hardly ever seen
_MANY = 2**20  # configurations, before those that do not occur are left out

Floats: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.int64]
Parents: TypeAlias = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedMoments:
    """What a fit found: each column's parents and law."""

    parents: Parents
    laws: Mapping[str, Conditional]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Task:
    """What is given: the release, the form of each column to fit, laws already known, whether arrows are equal."""

    moments: NoisyMoments
    forms: Mapping[str, str]
    known: Mapping[str, Conditional]
    tied: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _State:
    """What a pass leaves to the next.

    Attributes:
        laws: The law of each column.
        found: The parameters of each fitted column.
        expected: The moments that the model implies, in rows, without clipping.
        clipped: The same with clipping, as they were released.
        simulated: How many rows they were simulated on.
    """

    laws: Mapping[str, Conditional]
    found: Mapping[str, Found]
    expected: Floats
    clipped: Floats
    simulated: int


def fit_moments(
    moments: NoisyMoments,
    parents: Parents,
    forms: Mapping[str, str],
    *,
    known: Mapping[str, Conditional] | None = None,
    most_added: int = 0,
    tied: bool = False,
) -> FittedMoments:
    """Fit a law to each column from moments alone.

    Args:
        moments: What was released.
        parents: The parents of each column; without a cycle, also together with the candidates.
        forms: The form of each column that is to be fitted.
        known: Laws of the other columns, which are only simulated; those need no moments.
        most_added: How many of its candidates a column may get as parents.
        tied: Whether the arrows into a column all get the same parameters; for pairs that were not measured.
    """
    task = _Task(moments=moments, forms=forms, known=known or {}, tied=tied)
    now, candidates = dict(parents), list(moments.layout.candidates)
    rounds = most_added if candidates else 0
    with tracking("Fitting", total=_PASSES + rounds + 1) as advance:
        state = _pass(task, now, None)
        for _ in range(_PASSES - 1):
            advance(1)
            state = _pass(task, now, state)
        for _ in range(rounds):
            advance(1)
            added = _most_surprising(moments, state, candidates)
            if not added:
                break
            candidates = [arrow for arrow in candidates if arrow not in added]
            for cause, effect in added:
                now[effect] = (*now[effect], cause)
            state = _pass(task, now, state)
        if now != parents:
            advance(1)
            state = _pass(task, now, state)  # with priors and corrections of the model that has all its arrows
    return FittedMoments(parents=now, laws=state.laws)


def _pass(task: _Task, parents: Parents, before: _State | None) -> _State:
    """Fit every column once along the causal order, with priors and corrections from the pass before."""
    moments = task.moments
    sizes = {name: law.size for name, law in task.known.items()} | dict(moments.layout.sizes)
    values, noise = _corrected(moments, before)
    priors = FIRST_PRIORS if before is None else learnt(before.found.values())
    rng = np.random.default_rng(_SEED)
    rows = int(np.clip(moments.rows, _SIMULATED, _MAX_SIMULATED))
    codes: dict[str, Codes] = {}
    laws: dict[str, Conditional] = {}
    found: dict[str, Found] = {}
    for name in _causal_order(parents):
        several = parents[name]
        parent_sizes = [sizes[parent] for parent in several]
        simulated = _Configurations([codes[parent] for parent in several], parent_sizes, rows)
        if name in task.known:
            laws[name] = task.known[name]
        else:
            entries = moments.layout.family(name, several)
            form = task.forms[name] if several else "logit"
            family = Family(
                form=form,
                kinds=kinds_of(form, sizes[name], parent_sizes),
                target=np.where(entries >= 0, values[entries], 0.0),
                noise=np.where(entries >= 0, noise[entries] ** 2, np.inf),
                design=simulated.design,
                rows=simulated.shares * moments.rows,
                tied=task.tied,
            )
            found[name] = family.fitted(priors, None if before is None else before.found[name])
            laws[name] = law_of(form, several, parent_sizes, found[name].theta)
        codes[name] = simulated.drawn(laws[name], rng)
    return _state(moments, codes, laws, found, rows)


def _state(
    moments: NoisyMoments,
    codes: Mapping[str, Codes],
    laws: Mapping[str, Conditional],
    found: Mapping[str, Found],
    rows: int,
) -> _State:
    layout = moments.layout
    drawn = np.stack([codes[name] for name in layout.sizes], axis=1)
    factors = clip_factors(layout, moments.square)
    weights = factors[row_squares(layout, drawn)]
    unit = layout.strengths * (float(factors[0]) * rows / moments.rows)
    clipped, expected = (summed(layout, [(drawn, each)]) / unit for each in (weights, np.full(rows, factors[0])))
    return _State(laws=laws, found=found, expected=expected, clipped=clipped, simulated=rows)


def _corrected(moments: NoisyMoments, before: _State | None) -> tuple[Floats, Floats]:
    """Return the moments with clipping undone, and the standard deviation of their noise."""
    if before is None:
        return moments.values, moments.scale
    steady = _STEADY * moments.rows / before.simulated
    undo = (before.expected + steady) / (before.clipped + steady)
    return moments.values * undo, moments.scale * undo


def _most_surprising(moments: NoisyMoments, state: _State, candidates: Iterable[Arrow]) -> set[Arrow]:
    """Return, for each effect that has one, the candidate whose moments are furthest from what the model implies.

    What the model implies for two levels together is first put right for what it gets wrong in each of them: rows with
    a level can be clipped more than simulated just because an arrow elsewhere is missing.
    """
    layout = moments.layout
    right = (moments.values + moments.scale) / (state.clipped + moments.scale)
    implied = state.clipped.copy()
    implied[layout.size - layout.ends.shape[1] :] *= np.clip(right[layout.ends], 0.5, 2.0).prod(axis=0)
    share = np.clip(implied / moments.rows, 0.0, 1.0)
    sampling = share * (1.0 - share) * moments.rows * (1.0 + moments.rows / state.simulated) + 1.0
    surprise = np.abs(moments.values - implied) / np.sqrt(moments.scale**2 + sampling)
    best: dict[str, tuple[float, Arrow]] = {}
    for arrow in candidates:
        most = float(surprise[layout.starts[arrow] :][: layout.lengths[arrow]].max(initial=0.0))
        if most > max(_SURPRISE, best.get(arrow[1], (0.0,))[0]):
            best[arrow[1]] = most, arrow
    return {arrow for _, arrow in best.values()}


class _Configurations:
    """Simulated parents, row by row, and the distinct configurations among them.

    Attributes:
        codes: The distinct configurations, shape (configurations, parents).
        shares: The share of rows that has each.
        design: Them as 0/1 rows: an intercept, then the levels of each parent without the first.
    """

    def __init__(self, parents: Sequence[Codes], sizes: Sequence[int], rows: int):
        group, count = np.zeros(rows, dtype=np.int64), 1
        for code, size in zip(parents, sizes, strict=True):
            if count * size > _MANY:
                group, count = _renumbered(group, count)
            group, count = group * size + code, count * size
        self._group, count = _renumbered(group, count)
        self._counts = np.bincount(self._group, minlength=count)
        self.shares: Floats = (self._counts / rows).astype(np.float64)
        example = np.zeros(count, dtype=np.int64)
        example[self._group] = np.arange(rows)
        self.codes = np.stack([code[example] for code in parents], axis=1) if parents else np.zeros((1, 0), np.int64)
        levels = [self.codes[:, [place]] == np.arange(1, size)[None, :] for place, size in enumerate(sizes)]
        self.design: Floats = np.concatenate([np.ones((count, 1)), *levels], axis=1)

    def drawn(self, law: Conditional, rng: np.random.Generator) -> Codes:
        """Return the child's value in each row; in each configuration the values have the law's shares, to one row."""
        laws = np.broadcast_to(law.probabilities(self.codes), (len(self._counts), law.size))
        mixed = rng.permutation(self._group.size)
        short = self._group.astype(np.min_scalar_type(len(self._counts)))  # numpy sorts 16 bits ten times faster
        order = mixed[np.argsort(short[mixed], kind="stable")]
        place = np.arange(order.size) - np.repeat(np.cumsum(self._counts) - self._counts, self._counts)
        quantile = (place + np.repeat(rng.random(self._counts.size), self._counts)) / np.repeat(
            self._counts, self._counts
        )
        values = np.zeros(order.size, dtype=np.int64)
        for bound in np.cumsum(laws[:, :-1], axis=1).T:
            values[order] += np.repeat(bound, self._counts) <= quantile
        return values


def _renumbered(group: Codes, count: int) -> tuple[Codes, int]:
    """Return groups numbered without gaps, and how many there are."""
    present = np.bincount(group, minlength=count) > 0
    return (np.cumsum(present) - 1)[group], int(present.sum())


def _causal_order(parents: Parents) -> tuple[str, ...]:
    arrows = [(parent, name) for name, several in parents.items() for parent in several]
    return CausalGraph.from_edges(arrows, nodes=tuple(parents)).topological_order()
