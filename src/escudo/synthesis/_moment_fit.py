"""From noisy moments to one law per column, and to the arrows that the graph misses; post-processing.

**Passes.** Columns are fitted along the causal order, ``_PASSES`` times: each gets the most likely law given its
moments (``_moment_family``), on parents simulated from earlier laws. Two things are learnt from a pass for the next:

* **what parameters are like** in this table, for the priors;
* **what clipping did.** It pulls moments down, most those of levels that come in long rows. By how much is read off the
  simulated rows, clipped and unclipped, and undone. So the clip bound may be tight, and the noise small.

What was released more than once is averaged by its precision, after the clipping of each release is undone.

**Candidates** are the pairs that are measured in case the graph misses an arrow between them; which, is public
(:func:`ordered_pairs`): all pairs that fit the causal order, by tiers if the graph states them for all columns, and
else with each column as late as its effects allow. A column that no arrow touches comes last, and so may get causes.
But where nothing else is said of it, it is *loose*: it may as well be a cause, all of whose effects were missed. It is
paired with every column, and which of the two it is, is settled by what was measured.

**Surprise.** A candidate's surprise is how far its moments are from the model's, in standard deviations of noise and
chance. Under ``max`` and ``noisy-or`` causes only ever switch an effect on, so a pair that is seen together too rarely
has no arrow for a remedy, and only an excess counts.

**Second look.** Thousands of candidates share one release, so what each of them shows is mostly noise. Where there are
many, the first release only finds suspects. The most surprising are released a second time together with all that is
stated, each as loudly as an arrow: a row's vector is short without the other candidates, so this noise is small. Which
they are, and the clip bound, follow from the first release alone: the bound is a quantile of the lengths of rows
simulated from the model that it gave.

**Cause or effect?** A loose column may be either. The two differ in all pairs it is in, not only in those it is joined
to: as an effect it goes together with all that comes before its causes, as a cause it does not. So both are fitted, and
the one that leaves less squared surprise in the pairs of this column is kept; an effect it stays, unless a cause is
clearly better.

**Rounds.** Each column gets its most surprising candidate as a new parent, one per round; then all is fitted again,
since an arrow explains other surprises away. An arrow from a cause past something that it is joined to in the same
round waits for the next: what it would explain may go that way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.synthesis._laws import Conditional, reached, shuffled_groups, strata
from escudo.synthesis._moment_family import (
    FIRST_PRIORS,
    MONOTONE,
    Family,
    FittedFamily,
    kinds_of,
    law_of,
    learn_priors,
)
from escudo.synthesis._moment_statistics import (
    Codes,
    Floats,
    MomentLayout,
    NoisyMoments,
    clip_factors,
    row_squares,
    sum_rows,
)
from escudo.synthesis._shares import likely_shares
from escudo.synthesis._structure import Arrow, Structure, graph_of

Parents: TypeAlias = Mapping[str, tuple[str, ...]]
Whole: TypeAlias = NDArray[np.int64]

_PASSES = 3


def fit_moments(
    moments: NoisyMoments,
    parents: Parents,
    forms: Mapping[str, str],
    *,
    known: Mapping[str, Conditional] | None = None,
    most_added: int = 0,
    loose: Collection[str] = (),
    second_look: SecondLook | None = None,
    tied: bool = False,
) -> FittedMoments:
    """Fit a law to each column from moments alone.

    Args:
        moments: What was released.
        parents: The parents of each column; without a cycle, also together with the candidates.
        forms: The form of each column that is to be fitted.
        known: Laws of the other columns, which are only simulated; those need no moments.
        most_added: How many of its candidates a column may get as parents.
        loose: Columns without arrows, effects in all their candidates, that may as well be the causes in them.
        second_look: How suspects are measured again; None if they are not.
        tied: Whether the arrows into a column all get the same parameters; for pairs that were not measured.
    """
    task = Task((moments,), forms, known or {}, tied)
    now, candidates = parents, list(moments.layout.candidates)
    rounds = most_added if candidates else 0
    with tracking("Fitting", total=_PASSES + rounds + 1) as advance:
        state = one_pass(task, now, None)
        for _ in range(_PASSES - 1 - (second_look is not None)):
            advance(1)
            state = one_pass(task, now, state)
        if second_look is not None:
            advance(1)
            candidates = Surprise(task, state).most(candidates, second_look.suspects)
            again = _measured_again(second_look, moments, candidates, state)
            task = replace(task, releases=(moments, again))
            state = one_pass(task, now, state.with_release(again))
        if rounds and loose:
            causes = _causes(task, now, loose, candidates, state, most_added)
            candidates = [(b, a) if b in causes else (a, b) for a, b in candidates]
        for _ in range(rounds):
            advance(1)
            strong = Surprise(task, state).strongest(candidates)
            added = _skip_shortcuts([arrows[0] for arrows in strong.values()], now)
            if not added:
                break
            candidates = [arrow for arrow in candidates if arrow not in added]
            now = _join(now, added)
            state = one_pass(task, now, state)
        if now != parents:
            advance(1)
            state = one_pass(task, now, state)  # with priors and corrections of the model that has all its arrows
    noise = sum(float(each.scale.min(initial=np.inf)) ** -2.0 for each in task.releases) ** -0.5
    return FittedMoments(now, state.laws, noise)


@dataclass(frozen=True, slots=True)
class FittedMoments:
    """What a fit found.

    Attributes:
        parents: Each column's parents.
        laws: Each column's law.
        noise: Standard deviation of the noise in a level or arrow, in rows, after all releases.
    """

    parents: Parents
    laws: Mapping[str, Conditional]
    noise: float


@dataclass(frozen=True, slots=True)
class SecondLook:
    """A second release, of fewer candidates.

    Attributes:
        suspects: How many.
        clip_quantile: The share of simulated rows that its clip bound leaves as they are.
        measure: Releases a layout under a clip bound on squared lengths.
    """

    suspects: int
    clip_quantile: float
    measure: Callable[[MomentLayout, int], NoisyMoments]


def _measured_again(look: SecondLook, moments: NoisyMoments, suspects: list[Arrow], state: State) -> NoisyMoments:
    """Release the suspects with all that is stated; the clip bound is read off simulated rows."""
    layout = MomentLayout(moments.layout.sizes, (*moments.layout.pairs, *suspects))
    square = int(np.quantile(row_squares(layout, state.drawn), look.clip_quantile))
    return look.measure(layout, layout.bound(square))


def _causes(
    task: Task, parents: Parents, loose: Collection[str], candidates: list[Arrow], state: State, most: int
) -> set[str]:
    """Return the loose columns that are causes rather than effects, by a trial of both."""
    strong = Surprise(task, state).strongest(arrow for arrow in candidates if arrow[1] in loose)
    if not strong:
        return set()
    arrows = [arrow for several in strong.values() for arrow in _unrelated(several, parents)[:most]]
    as_effects, as_causes = (
        Surprise(task, one_pass(task, _join(parents, each), state))
        for each in (arrows, [(effect, cause) for cause, effect in arrows])
    )
    return {name for name in strong if as_causes.left(name) < as_effects.left(name) - _CLEARLY}


# ---- one pass over all columns


_SIMULATED = 20_000
_MAX_SIMULATED = 100_000
_SEED = 20_190_917  # any fixed number: the same release always gives the same model
_STEADY = 5.0  # simulated rows that draw a correction to 1, for pairs hardly ever seen
_MANY = 2**20  # configurations, before those that do not occur are left out
_FEW_LEVELS = 32  # up to which one comparison for each is the faster way to draw
_MAX_NUMBERS = 2**27  # in the design or the laws of a family


@dataclass(frozen=True, slots=True, eq=False)
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


@dataclass(frozen=True, slots=True, eq=False)
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
    found: Mapping[str, FittedFamily]
    drawn: Codes
    expected: Floats
    clipped: tuple[Floats, ...]

    def with_release(self, moments: NoisyMoments) -> State:
        """Return the same before a task with one more release."""
        return replace(self, clipped=(*self.clipped, _clipped(moments, self.drawn)[0]))


def one_pass(task: Task, parents: Parents, before: State | None) -> State:
    """Fit every column once along the causal order, with priors and corrections from the pass before."""
    sizes = {name: law.size for name, law in task.known.items()} | dict(task.layout.sizes)
    seen = _corrected(task, before)
    settled = _settled_levels(task, *seen)
    priors = FIRST_PRIORS if before is None else learn_priors(before.found.values())
    rng = np.random.default_rng(_SEED)
    rows = int(np.clip(task.rows, _SIMULATED, _MAX_SIMULATED))
    codes: dict[str, Whole] = {}
    laws: dict[str, Conditional] = {}
    found: dict[str, FittedFamily] = {}
    for name in graph_of(parents).topological_order():
        several = parents[name]
        parent_sizes = [sizes[parent] for parent in several]
        simulated = _Configurations([codes[parent] for parent in several], parent_sizes, rows)
        if name in task.known:
            laws[name] = task.known[name]
        else:
            entries = task.layout.family(name, several)
            form = task.forms[name] if several else "logit"
            values, noise = seen if form in MONOTONE else settled
            family = Family(
                form,
                kinds_of(form, sizes[name], parent_sizes),
                np.where(entries >= 0, values[entries], 0.0),
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
    return State(laws, found, drawn, first[0] + first[1], (first[0], *(each for each, _ in later)))


def _clipped(moments: NoisyMoments, drawn: Codes) -> tuple[Floats, Floats]:
    """Return the moments that simulated rows imply for a release, in rows of the table, and what clipping took away."""
    factors = clip_factors(moments.layout, moments.square)
    squares = row_squares(moments.layout, drawn)
    weights, long = factors[squares], squares > moments.square
    one = moments.layout.strengths * (float(factors[0]) * squares.size / moments.rows)
    kept = sum_rows(moments.layout, [(drawn, weights)])
    return kept / one, sum_rows(moments.layout, [(drawn[long], factors[0] - weights[long])]) / one


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


def _settled_levels(task: Task, values: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Return the same with the sums of single levels settled, and taken as known from here on.

    That is for families that have a logit. Where causes only switch on, the causes of a level that is rare say how rare
    it is, and its leak is taken to be small to begin with.
    """
    values, noise = values.copy(), noise.copy()
    single = slice(0, sum(task.layout.lengths[name] for name in task.layout.sizes))
    sizes = np.array(list(task.layout.sizes.values()))
    of_each = np.repeat(sizes, sizes - 1)  # the first level of a column is not counted
    shares, _ = likely_shares(values[single] / task.rows, noise[single] / task.rows, of_each)
    for name in task.layout.sizes:
        start, length = task.layout.starts[name], task.layout.lengths[name]
        shares[start : start + length] /= max(float(shares[start : start + length].sum()), 1.0)
    values[single], noise[single] = task.rows * shares, 0.0
    return values, noise


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
        # The groups are numbered without gaps. Numpy sorts 16 bits ten times faster.
        order, shifts = shuffled_groups(self._group.astype(np.min_scalar_type(len(self._counts))), len(laws), rng)
        values = np.zeros(order.size, dtype=np.int64)
        if law.size > _FEW_LEVELS:
            values[order] = strata(laws, self._counts, shifts)
            return values
        ends = reached(np.cumsum(laws[:, :-1], axis=1), self._counts, shifts)
        lengths = np.diff(ends, axis=1, prepend=0, append=self._counts[:, None])
        values[order] = np.repeat(np.tile(np.arange(law.size), len(laws)), lengths.ravel())
        return values


def _renumbered(group: Whole, count: int) -> tuple[Whole, int]:
    """Return groups numbered without gaps, and how many there are."""
    present = np.bincount(group, minlength=count) > 0
    return (np.cumsum(present) - 1)[group], int(present.sum())


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
        if not fittable(sizes, name, causes):
            raise InputError(
                f"The family of {name!r} and {', '.join(map(repr, causes))} has too many levels to be fitted to "
                "moments. Use fewer levels or bins, fewer parents, or generator='marginals'."
            )


def fittable(sizes: Mapping[str, int], name: str, causes: Collection[str]) -> bool:
    """Return whether the family of a column and its causes is small enough to be fitted."""
    configurations = min(math.prod(sizes[cause] for cause in causes), _MAX_SIMULATED)
    return configurations * max(sum(sizes[cause] for cause in causes), sizes[name]) <= _MAX_NUMBERS


# ---- arrows that the graph misses


_SURPRISE = 3.3  # one candidate in two thousand gets there by chance
_CLEARLY = 6.0  # of squared surprise: a likelihood ratio of twenty


class Surprise:
    """How far what was released is from what a model implies.

    What the model implies for two levels together is first put right for what it gets wrong in each of them: rows with
    a level can be clipped more than simulated just because an arrow elsewhere is missing.

    Attributes:
        entries: For each entry of the layout how many standard deviations the release is above the model.
    """

    def __init__(self, task: Task, state: State):
        self._task = task
        layout = task.layout
        excess, implied, precision = (np.zeros(layout.size) for _ in range(3))
        for moments, clipped in zip(task.releases, state.clipped, strict=True):
            right = (moments.values + moments.scale) / (clipped + moments.scale)
            wanted = clipped.copy()
            pairs = slice(wanted.size - moments.layout.ends.shape[1], None)
            wanted[pairs] *= np.clip(right[moments.layout.ends], 0.5, 2.0).prod(axis=0)
            places, weight = layout.places(moments.layout), moments.scale**-2.0
            excess[places] += weight * (moments.values - wanted)
            implied[places] += weight * wanted
            precision[places] += weight
        share = np.clip(implied / precision / task.rows, 0.0, 1.0)
        chance = share * (1.0 - share) * task.rows * (1.0 + task.rows / len(state.drawn)) + 1.0
        self.entries: Floats = excess / precision / np.sqrt(1.0 / precision + chance)

    def of(self, arrow: Arrow) -> float:
        """Return the surprise that an arrow would explain."""
        layout = self._task.layout
        block = layout.block(arrow)
        entries = self.entries[layout.starts[block] :][: layout.lengths[block]]
        monotone = self._task.forms.get(arrow[1]) in MONOTONE
        return float((entries if monotone else np.abs(entries)).max(initial=0.0))

    def most(self, candidates: Sequence[Arrow], count: int) -> list[Arrow]:
        """Return the most surprising candidates."""
        order = np.argsort([-self.of(arrow) for arrow in candidates], kind="stable")
        return [candidates[place] for place in order[:count]]

    def strongest(self, candidates: Iterable[Arrow]) -> dict[str, list[Arrow]]:
        """Return for each effect the candidates that surprise enough to become arrows, the strongest first."""
        strong: dict[str, list[tuple[float, Arrow]]] = {}
        for arrow in candidates:
            if (surprise := self.of(arrow)) > _SURPRISE:
                strong.setdefault(arrow[1], []).append((surprise, arrow))
        return {effect: [arrow for _, arrow in sorted(several, reverse=True)] for effect, several in strong.items()}

    def left(self, column: str) -> float:
        """Return the squared surprise in all pairs of a column."""
        layout = self._task.layout
        owned = layout.ends - layout.starts[column]
        mine = ((owned >= 0) & (owned < layout.lengths[column])).any(axis=0)
        return float((self.entries[layout.size - mine.size :][mine] ** 2).sum())


def _join(parents: Parents, arrows: Iterable[Arrow]) -> dict[str, tuple[str, ...]]:
    """Return each column's parents once arrows are added."""
    more = dict(parents)
    for cause, effect in arrows:
        more[effect] = (*more[effect], cause)
    return more


def _skip_shortcuts(arrows: Collection[Arrow], parents: Parents) -> set[Arrow]:
    """Return arrows without those past another effect of the same cause, which may be all there is to them."""
    after = _after(_join(parents, arrows))
    past = {(cause, other) for cause, effect in arrows for other in after(effect)}
    return set(arrows) - past


def _unrelated(arrows: Iterable[Arrow], parents: Parents) -> list[Arrow]:
    """Return arrows into one column, strongest first, without those from before or after a stronger one's cause."""
    after = _after(parents)
    kept: list[Arrow] = []
    for cause, effect in arrows:
        if not any(cause in after(other) or other in after(cause) for other, _ in kept):
            kept.append((cause, effect))
    return kept


def _after(parents: Parents) -> Callable[[str], set[str]]:
    """Return what gives all columns that a column acts on, directly or not."""
    effects: dict[str, set[str]] = {name: set() for name in parents}
    for effect, several in parents.items():
        for cause in several:
            effects[cause].add(effect)

    def after(name: str) -> set[str]:
        found, waiting = set[str](), [name]
        while waiting:
            new = effects[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    return after


# ---- candidates


def ordered_pairs(structure: Structure) -> list[Arrow]:
    """Return all pairs whose effect comes later than their cause, or is loose, and that are not forbidden."""
    knowledge = None if structure.graph is None else structure.graph.knowledge
    level = _levels(structure)
    names, loose = list(structure.parents), set(loose_columns(structure))
    place = {name: number for number, name in enumerate(names)}

    def follows(cause: str, effect: str) -> bool:
        if effect in loose:
            return cause not in loose or place[cause] < place[effect]
        return level[cause] < level[effect]

    return [
        (cause, effect)
        for effect in names
        for cause in names
        if follows(cause, effect) and not (knowledge is not None and knowledge.forbids(cause, effect))
    ]


def loose_columns(structure: Structure) -> tuple[str, ...]:
    """Return the columns of which the graph says nothing but that no arrow touches them."""
    knowledge = None if structure.graph is None else structure.graph.knowledge
    if knowledge is None or knowledge.tiers:
        return ()
    touched = {name for arrow in (*structure.arrows, *structure.open_arrows) for name in arrow}
    return tuple(
        name
        for name in structure.parents
        if name not in touched
        and not any(knowledge.forbids(name, other) or knowledge.forbids(other, name) for other in structure.parents)
    )


def _levels(structure: Structure) -> dict[str, int]:
    """Return how late each column comes."""
    knowledge = None if structure.graph is None else structure.graph.knowledge
    level = {name: number for number, tier in enumerate(() if knowledge is None else knowledge.tiers) for name in tier}
    if set(structure.parents) <= set(level):
        return level
    return _latest_levels([*structure.arrows, *structure.open_arrows], structure.parents)


def _latest_levels(arrows: list[Arrow], names: Mapping[str, object]) -> dict[str, int]:
    """Return how late each column can come: one before its earliest effect, and last without effects.

    A column whose arrows are all missing may then still get causes.
    """
    order = CausalGraph.from_edges(arrows, nodes=tuple(names)).topological_order()
    effects: dict[str, list[str]] = {name: [] for name in names}
    for cause, effect in arrows:
        effects[cause].append(effect)
    level: dict[str, int] = {}
    for name in reversed(order):
        level[name] = min((level[effect] - 1 for effect in effects[name]), default=0)
    return level
