r"""One pass over all columns: each gets the most likely law given its moments, on parents simulated from earlier laws.

Passes follow one another, because two things are learnt from one for the next:

* **what parameters are like** in this table, for the priors (``_moment_family``);
* **what clipping did.** It pulls moments down, most those of levels that come in long rows. By how much is read off the
  simulated rows, clipped and unclipped, and undone. So the clip bound may be tight, and the noise small.

What was released more than once is averaged by its precision, after the clipping of each release is undone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError
from escudo.synthesis._conditionals import Conditional
from escudo.synthesis._moment_family import FIRST_PRIORS, Family, Found, kinds_of, learnt
from escudo.synthesis._moment_forms import law_of
from escudo.synthesis._moment_statistics import (
    Codes,
    Floats,
    MomentLayout,
    NoisyMoments,
    clip_factors,
    row_squares,
    summed,
)
from escudo.synthesis._sampling import values_at
from escudo.synthesis._structure import Arrow, graph_of

__all__ = ["Parents", "State", "Task", "check_fittable", "one_pass"]

_SIMULATED = 20_000
_MAX_SIMULATED = 100_000
_SEED = 20_190_917  # any fixed number: the same release always gives the same model
_STEADY = 5.0  # simulated rows that draw a correction to 1, for pairs hardly ever seen
_MANY = 2**20  # configurations, before those that do not occur are left out
_FEW_LEVELS = 32  # up to which one comparison for each is the faster way to draw
_MAX_NUMBERS = 2**27  # in the design or the laws of a family

Parents: TypeAlias = Mapping[str, tuple[str, ...]]
Whole: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """What is given.

    Attributes:
        releases: What was released: the first has all entries, a later one some of them.
        forms: The form of each column to fit.
        known: Laws of the other columns.
        tied: Whether the arrows into a column are all equal.
    """

    releases: tuple[NoisyMoments, ...]
    forms: Mapping[str, str]
    known: Mapping[str, Conditional]
    tied: bool

    @property
    def layout(self) -> MomentLayout:
        """What the entries are."""
        return self.releases[0].layout

    @property
    def rows(self) -> float:
        """The number of rows, public or noisy."""
        return self.releases[0].rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class State:
    """What a pass leaves to the next.

    Attributes:
        laws: The law of each column.
        found: The parameters of each fitted column.
        drawn: Rows simulated from the laws, with the columns of the layout.
        expected: The moments that they imply, in rows of the table, without clipping.
        clipped: The same for each release, clipped as it was.
    """

    laws: Mapping[str, Conditional]
    found: Mapping[str, Found]
    drawn: Codes
    expected: Floats
    clipped: tuple[Floats, ...]

    def with_release(self, moments: NoisyMoments) -> State:
        """Return the same before a task with one more release."""
        return replace(self, clipped=(*self.clipped, _clipped(moments, self.drawn)[0]))


def one_pass(task: Task, parents: Parents, before: State | None) -> State:
    """Fit every column once along the causal order, with priors and corrections from the pass before."""
    sizes = {name: law.size for name, law in task.known.items()} | dict(task.layout.sizes)
    values, noise = _corrected(task, before)
    priors = FIRST_PRIORS if before is None else learnt(before.found.values())
    rng = np.random.default_rng(_SEED)
    rows = int(np.clip(task.rows, _SIMULATED, _MAX_SIMULATED))
    codes: dict[str, Whole] = {}
    laws: dict[str, Conditional] = {}
    found: dict[str, Found] = {}
    for name in graph_of(parents).topological_order():
        several = parents[name]
        parent_sizes = [sizes[parent] for parent in several]
        simulated = _Configurations([codes[parent] for parent in several], parent_sizes, rows)
        if name in task.known:
            laws[name] = task.known[name]
        else:
            entries = task.layout.family(name, several)
            form = task.forms[name] if several else "logit"
            family = Family(
                form=form,
                kinds=kinds_of(form, sizes[name], parent_sizes),
                target=np.where(entries >= 0, values[entries], 0.0),
                noise=np.where(entries >= 0, noise[entries] ** 2, np.inf),
                design=simulated.design,
                rows=simulated.shares * task.rows,
                tied=task.tied,
            )
            found[name] = family.fitted(priors, None if before is None else before.found[name])
            laws[name] = law_of(form, several, parent_sizes, found[name].theta)
        codes[name] = simulated.drawn(laws[name], rng)
    short = np.min_scalar_type(max(task.layout.sizes.values(), default=1))
    drawn = np.stack([codes[name].astype(short) for name in task.layout.sizes], axis=1)
    first, *later = (_clipped(moments, drawn) for moments in task.releases)
    clipped = first[0], *(each for each, _ in later)
    return State(laws=laws, found=found, drawn=drawn, expected=first[0] + first[1], clipped=clipped)


def _clipped(moments: NoisyMoments, drawn: Codes) -> tuple[Floats, Floats]:
    """Return the moments that simulated rows imply for a release, in rows of the table, and what clipping took away."""
    factors = clip_factors(moments.layout, moments.square)
    squares = row_squares(moments.layout, drawn)
    weights, long = factors[squares], squares > moments.square
    one = moments.layout.strengths * (float(factors[0]) * squares.size / moments.rows)
    kept = summed(moments.layout, [(drawn, weights)])
    return kept / one, summed(moments.layout, [(drawn[long], factors[0] - weights[long])]) / one


def _corrected(task: Task, before: State | None) -> tuple[Floats, Floats]:
    """Return the moments with clipping undone, and the standard deviation of their noise."""
    total, precision = np.zeros(task.layout.size), np.zeros(task.layout.size)
    for number, moments in enumerate(task.releases):
        places = task.layout.places(moments.layout)
        undo = np.ones(places.size)
        if before is not None:
            steady = _STEADY * task.rows / len(before.drawn)
            undo = (before.expected[places] + steady) / (before.clipped[number] + steady)
        weight = (moments.scale * undo) ** -2.0
        total[places] += weight * undo * moments.values
        precision[places] += weight
    return total / precision, precision**-0.5


def check_fittable(sizes: Mapping[str, int], parents: Parents, candidates: Collection[Arrow], most_added: int) -> None:
    """Refuse a family that could not be fitted, before anything is spent.

    Args:
        sizes: Cells of each column.
        parents: The parents of each column.
        candidates: Arrows that may be added,
        most_added: so many to a column at most.

    Raises:
        InputError: Names the family, with a way out.
    """
    open_causes: dict[str, list[str]] = {}
    for cause, effect in candidates:
        open_causes.setdefault(effect, []).append(cause)
    for name, several in parents.items():
        widest = sorted(open_causes.get(name, ()), key=lambda cause: -sizes[cause])[:most_added]
        causes = [*several, *widest]
        configurations = min(math.prod(sizes[cause] for cause in causes), _MAX_SIMULATED)
        levels = max(sum(sizes[cause] for cause in causes), sizes[name])
        if configurations * levels > _MAX_NUMBERS:
            raise InputError(
                f"The family of {name!r} and {', '.join(map(repr, causes))} has too many levels to be fitted to "
                "moments. Use fewer levels or bins, fewer parents, or generator='marginals'."
            )


class _Configurations:
    """Simulated parents, row by row, and the distinct configurations among them.

    Attributes:
        codes: The distinct configurations, shape (configurations, parents).
        shares: The share of rows that has each.
        design: Them as 0/1 rows: an intercept, then the levels of each parent without the first.
    """

    def __init__(self, parents: Sequence[Whole], sizes: Sequence[int], rows: int):
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

    def drawn(self, law: Conditional, rng: np.random.Generator) -> Whole:
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
        if law.size > _FEW_LEVELS:
            values[order] = values_at(laws, np.repeat(np.arange(self._counts.size), self._counts), quantile)
            return values
        for bound in np.cumsum(laws[:, :-1], axis=1).T:
            values[order] += np.repeat(bound, self._counts) <= quantile
        return values


def _renumbered(group: Whole, count: int) -> tuple[Whole, int]:
    """Return groups numbered without gaps, and how many there are."""
    present = np.bincount(group, minlength=count) > 0
    return (np.cumsum(present) - 1)[group], int(present.sum())
