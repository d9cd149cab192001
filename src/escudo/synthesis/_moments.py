"""Generator ``moments``: wide tables and columns with many parents, from clipped vectors of sums.

Released is, once, how often each level occurs and how often two levels occur together along each arrow
(``_moment_statistics``), each row's share bounded in length. Each column then gets a law with one parameter per arrow
and level (``_moment_family``), fitted as post-processing (``_moment_fit``). Cost and noise grow with the number of
arrows, not with the number of ways in which parents can be combined.

**Clip bound.** Public if ``clip`` is given. Otherwise a twentieth of the budget goes to the ``_CLIP_QUANTILE`` of
the rows' lengths, by the exponential mechanism on a public grid. The bound sits low because the fit undoes clipping: on
the 222 columns of ``benchmarks/wide.py`` the 80 % point gives a tenth less error than the 98.5 % point at ε = 1 and at
ε = 3, and as little without noise. It sits no lower because undoing needs a true model.

**Number of rows.** Public if ``public_rows`` is given. Under ``replace_one`` with rows as the unit it is public too:
all neighbours of a table have as many rows as the table itself, so its number of rows says nothing that the guarantee
protects. (A person may be replaced by one with fewer rows.) Otherwise a fiftieth of the budget goes to a noisy count.

**Open pairs and repair.** Pairs that the graph leaves open are measured as candidates, at half strength, and become
arrows where the model without them is off by more than a few standard deviations. With ``repair`` this goes for all
pairs that fit the causal order. A missing arrow is the dangerous error of a graph; a superfluous one is nearly
harmless, as it is measured and found weak.

**Second look.** Where there are more candidates than ``_SUSPECTS`` per column, the sums are released twice, for
three fifths of their budget and for the rest: all candidates first, then only the suspects among them, as loudly as
arrows (``_moment_fit``). Both cost what the plan says, whatever the suspects are.

**Generators** ``independent`` **and** ``one-way`` sum levels of single columns only, clipped and noised in the same
way: what a release is worth that measures no arrow, to be reported beside any other.

* ``independent`` ignores the graph;
* ``one-way`` follows it, and gives all arrows into a column the same strength: what the graph and the form of the laws
  are worth by themselves. Under a logit nothing says which way an arrow acts, and it is hardly better than
  ``independent``; under ``max`` and ``noisy-or`` causes switch on, and that can be most of what there is to know. No
  arrow was measured, so what setting a column does is not answered.

**Guarantee.** One discrete Gaussian event for the sums, or two; and where they are paid for one exponential event for
the clip bound and one discrete Gaussian event for the number of rows. Each has the sensitivity proved in
``_moment_statistics``, for every layout and every clip bound. So the second release may be of a layout and under a
bound that the first one decided: given what was released before, it is a Gaussian mechanism with the planned noise, and
adaptive composition adds up the two as if they were fixed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np

from escudo._card import number_of
from escudo._validate import positive, whole, yes_or_no
from escudo.causal import CausalGraph, Knowledge
from escudo.errors import InputError
from escudo.mechanisms import Purse, choose_cells, gaussian_event
from escudo.privacy import Budget, Event, ExponentialEvent, GaussianEvent, Neighbours, Passes, Plan, calibrate
from escudo.synthesis._forecast import Forecast, MeasuredMoments, measured_moments
from escudo.synthesis._model import CausalModel, anchor_of
from escudo.synthesis._moment_family import Form, forms_of
from escudo.synthesis._moment_fit import SecondLook, check_fittable, fit_moments, fittable, loose_columns, ordered_pairs
from escudo.synthesis._moment_statistics import (
    UNIT,
    Codes,
    Floats,
    Integers,
    MomentLayout,
    NoisyMoments,
    row_squares,
    row_sums,
    table_sums,
)
from escudo.synthesis._structure import Arrow, Structure, structure_of, with_lines
from escudo.table import PrivateTable, Schema, count_sensitivity

_CLIP_QUANTILE = 0.8
_LEVELS_QUANTILE = 0.95  # higher than for moments: a model of independent columns cannot undo what clipping does
_CLIP_STEP = 1.1  # from one squared length on the public grid to the next
_MAX_ENTRIES = 2**20
_SUSPECTS = 4  # of a second look, per column


# ---- the generators


class Moments:
    """Clipped sums of levels and pairs, one parameter per arrow and level.

    Args:
        form: How parents act together: ``"logit"`` (any table), or for columns of two levels ``"max"`` or
            ``"noisy-or"``: public knowledge that causes only ever switch the second level on. One form for all columns
            of two levels, or one by column; columns not named, and those of other sizes, are logit.
        clip: Public bound on the length of a row's vector of levels and pairs, each counting 1; paid for by default.
        repair: Whether arrows that the graph misses are looked for, among all pairs that fit the causal order.
        most_added: How many parents a column may get beyond those stated, from open pairs or by repair.
    """

    name = "moments"
    found_by = "auto"
    cuts = True

    def __init__(self, *, form: Form = "logit", clip: float | None = None, repair: bool = False, most_added: int = 3):
        self.form = form
        self.clip = clip
        self.repair = yes_or_no("repair", repair)
        self.most_added = whole("most_added", most_added)

    def prepare(
        self, schema: Schema, graph: CausalGraph | None, neighbours: Neighbours, budget: Budget
    ) -> PreparedMoments:
        """Choose what to measure from public facts alone."""
        structure = structure_of(schema, graph)
        candidates = dict.fromkeys(structure.open_arrows)
        if self.repair:
            candidates |= dict.fromkeys(ordered_pairs(structure))
        sizes = schema.sizes
        kept = [
            (cause, effect)
            for cause, effect in candidates
            if self.most_added and cause not in structure.parents[effect] and min(sizes[cause], sizes[effect]) > 1
        ]
        design = MomentDesign(
            self.name,
            structure,
            MomentLayout(sizes, structure.arrows, tuple(kept)),
            parents=structure.parents,
            forms=forms_of(schema, self.form),
            clip=self.clip,
            most_added=self.most_added,
            loose=loose_columns(structure) if self.repair else (),
        )
        return design.prepare(schema, neighbours, budget)

    def awaiting(self, schema: Schema, neighbours: Neighbours, budget: Budget) -> PreparedMoments:
        """Choose the noise for arrows that are not known yet: the same as for any that leave no pair open.

        Raises:
            InputError: If ``repair`` was asked for: how many candidates there are, and so whether they are looked at
                twice, would wait for the graph.
        """
        if self.repair:
            raise InputError(
                "repair looks for arrows that a stated graph misses; with a graph that is to be discovered (--graph "
                "discover) all pairs have been looked at already. Leave repair out."
            )
        design = MomentDesign(
            self.name,
            Structure(dict.fromkeys(schema.names, ()), (), None),
            _levels(schema),
            parents=dict.fromkeys(schema.names, ()),
            forms=forms_of(schema, self.form),
            clip=self.clip,
            awaits=True,
        )
        return design.prepare(schema, neighbours, budget)


class Independent:
    """Each column by itself.

    Args:
        clip: Public bound on the length of a row's vector of levels, each counting 1; paid for by default.
    """

    name = "independent"

    def __init__(self, *, clip: float | None = None):
        self.clip = clip

    def prepare(
        self, schema: Schema, graph: CausalGraph | None, neighbours: Neighbours, budget: Budget
    ) -> PreparedMoments:
        """Choose the noise from public facts alone; of the graph only names are checked."""
        design = MomentDesign(
            self.name,
            structure_of(schema, graph),
            _levels(schema),
            parents=dict.fromkeys(schema.names, ()),
            forms=forms_of(schema, "logit"),
            clip=self.clip,
            clip_quantile=_LEVELS_QUANTILE,
        )
        return design.prepare(schema, neighbours, budget)


class OneWay:
    """The graph with equal arrows, from levels of single columns.

    Args:
        form: How parents act together, as for ``moments``.
        clip: Public bound on the length of a row's vector of levels, each counting 1; paid for by default.
    """

    name = "one-way"

    def __init__(self, *, form: Form = "logit", clip: float | None = None):
        self.form = form
        self.clip = clip

    def prepare(
        self, schema: Schema, graph: CausalGraph | None, neighbours: Neighbours, budget: Budget
    ) -> PreparedMoments:
        """Choose the noise from public facts alone."""
        structure = structure_of(schema, graph)
        design = MomentDesign(
            self.name,
            structure,
            _levels(schema),
            parents=structure.parents,
            forms=forms_of(schema, self.form),
            clip=self.clip,
            clip_quantile=_LEVELS_QUANTILE,
            tied=True,
        )
        return design.prepare(schema, neighbours, budget)


def _levels(schema: Schema) -> MomentLayout:
    return MomentLayout(schema.sizes, ())


# ---- what is measured


@dataclass(frozen=True, slots=True)
class MomentDesign:
    """What is summed, and how laws follow from it, before it is known how loudly: public.

    Attributes:
        generator: The generator's name.
        structure: The arrows stated, and those left open.
        layout: What is summed.
        parents: The arrows that are followed, as each column's parents.
        forms: The form of each column's law.
        clip: The bound on the length of a row's vector, where it is public; None if it is paid for.
        clip_quantile: The share of rows that a bound that is paid for leaves as they are.
        most_added: How many candidates a column may get as parents.
        loose: Columns that no arrow touches: causes or effects.
        tied: Whether a column's arrows are all equal, for want of measurements.
        awaits: Whether arrows are found first, under the same budget.
    """

    generator: str
    structure: Structure
    layout: MomentLayout
    _: KW_ONLY
    parents: Mapping[str, tuple[str, ...]]
    forms: Mapping[str, str]
    clip: float | None
    clip_quantile: float = _CLIP_QUANTILE
    most_added: int = 0
    loose: tuple[str, ...] = ()
    tied: bool = False
    awaits: bool = False

    @property
    def follows(self) -> bool:
        """Whether laws follow the arrows that are stated: else the model does not say what do() does."""
        return self.parents == self.structure.parents

    def claimed(self, parents: Mapping[str, tuple[str, ...]]) -> CausalGraph:
        """Return what is claimed about causes where laws follow these arrows: what repair added goes together only.

        Where arrows are equal for want of measurements, nothing is: nobody knows how strong they are.
        """
        if self.tied or not self.follows:
            return CausalGraph.from_edges([])
        every = ((cause, effect) for effect, several in parents.items() for cause in several)
        return with_lines(self.structure.stated, [arrow for arrow in every if arrow[0] not in self.parents[arrow[1]]])

    def prepare(self, schema: Schema, neighbours: Neighbours, budget: Budget) -> PreparedMoments:
        """Find the noise with which the sums can be released within a budget.

        Raises:
            InputError: If there is nothing to sum, or too much, a family is too large to fit, or ``clip`` is below 1.
        """
        layout, clip = self.layout, self.clip
        if layout.size == 0:
            raise InputError(
                "Every column of the schema has a single level, so there is nothing to learn or to release."
            )
        if layout.size > _MAX_ENTRIES:
            raise InputError(
                f"There would be {layout.size:,} sums, more than {_MAX_ENTRIES:,}. State more of the graph, leave out "
                "repair, or use fewer levels or bins."
            )
        if clip is not None and positive("clip", clip) < 1:
            raise InputError(f"clip must be at least 1, the length of a row with one level; got {clip!r}.")
        check_fittable(layout.sizes, self.parents, layout.candidates, self.most_added)
        shares = MomentShares(
            neighbours,
            numbers=layout.size,
            twice=len(layout.candidates) > self.suspects,
            clips=clip is None,
            counts=neighbours.rows is None and (neighbours.relation, neighbours.unit) != ("replace_one", "row"),
        )
        level = calibrate(shares.events, budget)
        sums, *again = shares.sums(level)
        return PreparedMoments(
            schema,
            self,
            sums,
            again=again[0] if again else None,
            clip=shares.clip(level) if clip is None else self.bound,
            count=shares.count(level) if shares.counts else None,
            rows=neighbours.rows,
            budget=budget,
        )

    @property
    def bound(self) -> int:
        """The clip bound where it is public, squared and in the layout's units."""
        assert self.clip is not None
        return self.layout.bound(4.0 * self.clip * self.clip)

    def along(self, structure: Structure) -> MomentDesign:
        """Return the same with these arrows: those left out that make a family, or the sums, too large.

        What is left out of the laws is left open in what is claimed. Causes with the most levels go first.
        """
        sizes = self.layout.sizes
        parents = {name: list(several) for name, several in structure.parents.items()}

        def width(arrow: Arrow) -> int:
            return (sizes[arrow[0]] - 1) * (sizes[arrow[1]] - 1)

        for name, several in parents.items():
            while not fittable(sizes, name, several):
                several.remove(max(several, key=lambda cause: sizes[cause]))
        arrows = [(cause, name) for name, several in parents.items() for cause in several]
        room = _MAX_ENTRIES - self.layout.size - sum(map(width, arrows))
        for cause, name in sorted(arrows, key=width, reverse=True):
            if room < 0:
                parents[name].remove(cause)
                room += width((cause, name))
        kept = Structure({name: tuple(several) for name, several in parents.items()}, (), None)
        claimed, lost = structure.stated, set(structure.arrows) - set(kept.arrows)
        if lost:
            directed = tuple(arrow for arrow in claimed.edges if arrow not in lost)
            claimed = with_lines(replace(claimed, edges=directed, knowledge=Knowledge()), sorted(lost))
        return replace(
            self,
            structure=replace(kept, graph=claimed),
            layout=MomentLayout(sizes, kept.arrows),
            parents=kept.parents,
        )

    @property
    def suspects(self) -> int:
        """How many candidates a second look is for."""
        return _SUSPECTS * len(self.layout.sizes)


@dataclass(frozen=True, slots=True)
class PreparedMoments:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The columns.
        design: What is summed, and how laws follow from it.
        sums: The release of the sums.
        again: The second release of them, for suspects; None without one.
        clip: What the clip bound costs; or the bound itself, squared and in the layout's units, where it is public.
        count: What the number of rows costs; None where it is public.
        rows: The number of rows, where it is public beforehand.
        budget: What it may cost.
    """

    schema: Schema
    design: MomentDesign
    sums: GaussianEvent
    again: GaussianEvent | None
    clip: ExponentialEvent | int
    count: GaussianEvent | None
    rows: int | None
    budget: Budget

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        children = []
        if isinstance(self.clip, ExponentialEvent):
            children.append(
                Plan("clip bound", self.clip, buys=f"a length that {self.design.clip_quantile:.0%} of rows keep to")
            )
        if self.count is not None:
            children.append(Plan("number of rows", self.count))
        children.append(Plan("sums", self.sums, buys=self._contents()))
        if self.again is not None:
            children.append(
                Plan("sums again", self.again, buys=f"the {self.design.suspects} most suspicious candidates, louder")
            )
        used = dict.fromkeys(self.design.forms[name] for name, several in self.design.parents.items() if several)
        by = f" ({', '.join(used)})" if used else ""
        children += [Plan(f"fitting each column on its parents{by}"), Plan("sampling")]
        return Plan(self.design.generator, children=children, delta=self.budget.delta)

    @property
    def passes(self) -> Passes:
        """How often the rows are read: for the clip bound where that is paid for, and for the sums."""
        looked = Passes(0) if self.again is None else Passes(0, 1, "sums of the most suspicious candidates")
        return Passes(2 if isinstance(self.clip, ExponentialEvent) else 1) + looked

    def along(self, structure: Structure) -> PreparedMoments:
        """Return the same releases, along these arrows: what they cost holds for every layout."""
        design = self.design.along(structure)
        bounded = design.clip is not None
        return replace(self, design=design, clip=design.bound if bounded else self.clip)

    def measured_at(self, rows: float, louder: float = 1.0) -> MeasuredMoments:
        """Return what will be known, with noise that is louder by a factor than was prepared."""
        return measured_moments(self, rows, louder)

    def forecast(self, rows: int | None) -> Forecast:
        """Return how good the model will be, for so many rows; None where their number is not public."""
        return Forecast.of(self, self.design.generator, self.budget, rows)

    def run(self, table: PrivateTable, purse: Purse) -> CausalModel:
        """Measure and estimate."""
        design = self.design
        moments = self.measure(table, purse)

        def measured_again(layout: MomentLayout, square: int) -> NoisyMoments:
            assert self.again is not None
            exact, _ = table_sums(table, layout, square)
            values = _with_noise(exact, self.again, purse, "sums of suspects")
            return NoisyMoments.from_release(layout, values, self.again.scale, square, moments.rows)

        look = SecondLook(design.suspects, design.clip_quantile, measured_again)
        fitted = fit_moments(
            moments,
            design.parents,
            design.forms,
            most_added=design.most_added,
            loose=design.loose,
            second_look=None if self.again is None else look,
            tied=design.tied,
        )
        return CausalModel(
            schema=self.schema,
            graph=design.structure.fitted_graph(fitted.parents),
            stated=design.claimed(fitted.parents),
            conditionals=fitted.laws,
            guarantee=purse.guarantee,
            generator=design.generator,
            plan=self.plan,
            details={
                "rows": round(moments.rows),
                "l2_clip_norm": math.sqrt(moments.square) / 2,
                "noise": fitted.noise,
                "stated_arrows": design.structure.stated_arrows if design.follows else [],
                **anchor_of(purse),
            },
        )

    def measure(self, table: PrivateTable, purse: Purse) -> NoisyMoments:
        """Release the sums, and the clip bound and the number of rows where they are paid for."""
        square = self.clip if isinstance(self.clip, int) else self._choose_clip(table, purse)
        exact, rows = table_sums(table, self.design.layout, square)
        values = _with_noise(exact, self.sums, purse, "sums of levels and pairs")
        if self.count is not None:
            rows = int(_with_noise(np.array([rows]), self.count, purse, "number of rows")[0])
        elif self.rows is not None:
            rows = self.rows
        return NoisyMoments.from_release(self.design.layout, values, self.sums.scale, square, rows)

    def _choose_clip(self, table: PrivateTable, purse: Purse) -> int:
        """Return a squared length from the public grid that about ``clip_quantile`` of the rows keep to."""
        assert isinstance(self.clip, ExponentialEvent)
        layout = self.design.layout
        grid = _clip_grid(layout.largest_square)

        def by_length(batches: Iterator[Codes]) -> Integers:
            counts = np.zeros(len(grid), dtype=np.int64)
            for codes in batches:
                counts += np.bincount(np.searchsorted(grid, row_squares(layout, codes)), minlength=len(grid))
            return counts

        counts = row_sums(table, layout, by_length)
        chosen = choose_cells(counts, self.design.clip_quantile, self.clip, purse, purpose="clip bound")
        return grid[int(chosen[0])]

    def _contents(self) -> str:
        if self.design.awaits:
            return (
                f"levels of {number_of(len(self.design.layout.sizes), 'column')}, and pairs along arrows that are found"
            )
        parts = [number_of(len(self.design.layout.sizes), "column"), number_of(len(self.design.layout.pairs), "arrow")]
        if self.design.layout.candidates:
            parts.append(f"{len(self.design.layout.candidates)} candidate arrows")
        bound = f", rows clipped to length {math.sqrt(self.clip) / 2:.3g}" if isinstance(self.clip, int) else ""
        return f"{self.design.layout.size:,} sums: {', '.join(parts)}{bound}"


def _with_noise(exact: Integers, event: GaussianEvent, purse: Purse, purpose: str) -> Floats:
    return np.asarray(purse.add(exact, event, purpose), dtype=np.float64)


def _clip_grid(largest: int) -> list[int]:
    """Return the squared lengths that a clip bound may have: from one level up, in equal ratios."""
    grid = [min(4, largest)]
    while grid[-1] < largest:
        grid.append(min(max(grid[-1] + 1, math.floor(grid[-1] * _CLIP_STEP)), largest))
    return grid


# ---- what each release gets of the budget


_CLIP_SHARE = 0.05  # of what the sums cost in zCDP
_ROWS_SHARE = 0.02
_FIRST_SHARE = 0.6  # of what the sums cost, where there is a second look


@dataclass(frozen=True, slots=True)
class MomentShares:
    """What is released, before it is known how loudly: public.

    Attributes:
        neighbours: Which tables are neighbours.
        numbers: How many sums there are.
        twice: Whether there is a second release of them, for suspects.
        clips: Whether the clip bound is paid for.
        counts: Whether the number of rows is.
    """

    neighbours: Neighbours
    numbers: int
    twice: bool
    clips: bool
    counts: bool

    def sums(self, level: float) -> list[GaussianEvent]:
        """Return the release of the sums, or both of them."""
        return [
            self._gaussian(self.numbers, self._moved * UNIT, level * UNIT / math.sqrt(share))
            for share in ((_FIRST_SHARE, 1 - _FIRST_SHARE) if self.twice else (1.0,))
        ]

    def clip(self, level: float) -> ExponentialEvent:
        """Return what the clip bound costs."""
        rho = (self._moved / level) ** 2 / 2
        return ExponentialEvent(epsilon=math.sqrt(8 * _CLIP_SHARE * rho), **self.neighbours.stated)

    def count(self, level: float) -> GaussianEvent:
        """Return the release of the number of rows."""
        most = float(self.neighbours.max_rows_per_person or 1)  # two persons' numbers differ by no more, either way
        return self._gaussian(1, most, level * most / self._moved / math.sqrt(_ROWS_SHARE))

    def events(self, level: float) -> list[Event]:
        """Return everything that is released."""
        paid: list[Event] = [*self.sums(level)]
        paid += [self.clip(level)] if self.clips else []
        return paid + ([self.count(level)] if self.counts else [])

    @property
    def _moved(self) -> float:
        """How far one row or person moves one contingency table, in l2 norm."""
        return count_sensitivity(1, **self.neighbours.stated).l2

    def _gaussian(self, numbers: int, moved: float, scale: float) -> GaussianEvent:
        return gaussian_event(numbers, l2_sensitivity=moved, scale=scale, integers=True, **self.neighbours.stated)
