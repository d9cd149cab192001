"""The largest log ratio between laws of the same outputs under two settings of the inputs: every effect is one.

**A contrast** is a product of tables with a role for every axis. Whatever is asked of a structural equation model (an
intervention, a direct effect, some paths only), the tables are the same; what differs is the role of each variable:

* *inputs* are set from outside, and two of their settings are compared;
* *choices* are fixed to the values that make the comparison worst: background variables when no population is given
  (a ratio of two averages is largest at a single point), and mediators that are held;
* *outputs* are observed;
* everything else is summed out.

**Possible values**, the deterministic half of a worst case. When no population is given, the background takes its worst
value. Enumerating it costs the product of all ranges; but variables that follow from the background without chance only
matter through the *tuple of values they take in the compared worlds*, and few such tuples are possible. A count of
1,000 people, one of whom is changed, takes 1,000 pairs of values, not 2¹⁰⁰⁰. So possible tuples are carried along,
variable by variable, and duplicates are dropped. Two worlds are enough for any comparison (both settings of the inputs
are then chosen); with few settings it is cheaper to carry all of them side by side, one world per setting.

**Sums over chance** are what is left. Each choice is an axis that is never summed; where two of its values lead to the
same table, one of them is dropped, so that n people who answer with the same noise cost n + 1 alternatives, not 2ⁿ.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from escudo._validate import did_you_mean
from escudo.causal import MAX_CELLS, Factor, Lookup, ancestors, copy_of, marginal, product
from escudo.effects._effect import Array, largest_log_ratio
from escudo.errors import InputError

if TYPE_CHECKING:
    from escudo.causal import SEM

Baseline = Literal["natural", "held"]
Part = Factor | Lookup
Ints: TypeAlias = NDArray[np.intp]
MAX_ROWS = 2**22
_MOST_WORLDS = 64  # above this many joint settings of several inputs, compare two chosen settings instead of all
_WORLD = "world"
_AT_ONCE = 2**14  # tables up to this many cells are built without looking for equal alternatives
_SAME = 1e-12  # log probabilities this close come from the same sum in another order


# ---- what is compared


@dataclass(frozen=True, slots=True)
class Route:
    """Which way a change may take from the variables set to those observed.

    Attributes:
        held: Mediators to hold, each at its worst value.
        through: Children of what is set that read the value set; None means every child does.
        baseline: What the other children read when ``through`` is given: the natural value, or one held constant.
    """

    held: tuple[str, ...] = ()
    through: tuple[str, ...] | None = None
    baseline: Baseline = "natural"


@dataclass(frozen=True, slots=True, eq=False)
class Contrast:
    """Tables and the roles of their axes.

    Attributes:
        parts: Factors and lookups, each setting its last name from the names before it, parents first.
        inputs: Axes that are set and compared, by the variable each one sets.
        choices: Axes fixed to their worst values, by the variable each one fixes.
        outputs: Variables observed.
        sizes: The number of values of every input and choice axis.
        laws: Factors of the given population; empty when the background is a choice.
    """

    parts: tuple[Part, ...]
    inputs: Mapping[str, str]
    choices: Mapping[str, str]
    _: KW_ONLY
    outputs: tuple[str, ...]
    sizes: Mapping[str, int]
    laws: tuple[Factor, ...]


def contrast_of(
    sem: SEM, of: tuple[str, ...], on: tuple[str, ...], *, worst_case: bool, route: Route | None = None
) -> Contrast:
    """Lay out the question "how does setting ``of`` change ``on``?".

    Args:
        sem: The model.
        of: Variables to set.
        on: Variables to observe.
        worst_case: Fix the background at its worst values, rather than average over the model's population.
        route: Which way the change may take; by default every way.
    """
    route = route or Route()
    children = None if route.through is None else _children(sem, of, route.through)
    paths = children is not None and route.baseline == "natural"
    severed = {name: f"hold({name})" for name in route.held}
    if children is not None and route.baseline == "held":
        severed |= {name: f"hold({name})" for name in of}
    elif not paths:
        severed |= {name: f"do({name})" for name in of}
    renames = {c: {x: f"do({x})" for x in of if x in sem.parents(c)} for c in children or () if c not in severed}
    relevant = ancestors(sem, on, severed, renames)
    background = [name for name in sem.exogenous if name in relevant and name not in severed]

    inputs = {f"do({name})": name for name in of}
    choices = {f"hold({name})": name for name in (*route.held, *of) if severed.get(name) == f"hold({name})"}
    parts: list[Part] = [copy_of(sem, name, axis) for name, axis in severed.items() if name in relevant]
    laws: tuple[Factor, ...] = ()
    if worst_case:
        choices |= {f"background({name})": name for name in background}
        parts += [copy_of(sem, name, f"background({name})") for name in background]
    else:
        laws = marginal(sem.population, set(sem.exogenous) - set(background))
    for name in sem.endogenous:
        if name in relevant and name not in severed:
            parts += sem.equation(name).reading(renames.get(name, {}))
    return Contrast(
        tuple(parts),
        inputs,
        choices,
        outputs=on,
        sizes={axis: len(sem.range(name)) for axis, name in {**inputs, **choices}.items()},
        laws=laws,
    )


def names_of(sem: SEM, what: str, names: str | Iterable[str]) -> tuple[str, ...]:
    """Return the variables that ``names`` lists, checked: known, at least one, none twice."""
    listed = (names,) if isinstance(names, str) else tuple(names)
    for name in listed:
        if name not in sem.variables:
            raise InputError(f"{what}: the model has no variable {name!r}." + did_you_mean(str(name), sem.variables))
    if not listed or len(set(listed)) < len(listed):
        raise InputError(f"{what} must name at least one variable, and none twice; got {', '.join(listed) or 'none'}.")
    return listed


def outputs_of(sem: SEM) -> tuple[str, ...]:
    """Return the endogenous variables that nothing reads."""
    read = {parent for name in sem.endogenous for parent in sem.parents(name)}
    outputs = tuple(name for name in sem.endogenous if name not in read)
    if not outputs:
        raise InputError("the model has no equation, so nothing is put out; name what to look at with on=.")
    return outputs


def _children(sem: SEM, of: tuple[str, ...], through: tuple[str, ...]) -> tuple[str, ...]:
    for child in through:
        if child not in sem.variables or not set(sem.parents(child)) & set(of):
            known = [name for name in sem.endogenous if set(sem.parents(name)) & set(of)]
            raise InputError(
                f"through must name children of {', '.join(of)}, which are {', '.join(known) or 'none'}; got {child!r}."
                + did_you_mean(child, known)
            )
    return through


# ---- the answer


@dataclass(frozen=True, slots=True)
class Largest:
    """A largest log ratio and where it is: positions of the outputs, of both input settings, and of the choices."""

    epsilon: float
    outputs: tuple[int, ...]
    _: KW_ONLY
    first: dict[str, int]
    second: dict[str, int]
    choices: dict[str, int]
    logs: tuple[float, float]


def largest_effect(contrast: Contrast) -> Largest:
    """Return the largest log ratio of the question, and where it is attained."""
    found = alternatives(contrast)
    epsilon, (k, first, second, y) = largest_log_ratio(found.logs)
    positions = found.positions(k)
    if found.worlds.settings is None:
        pairs = {axis: divmod(positions.get(axis, 0), contrast.sizes[axis]) for axis in contrast.inputs}
        settings = [{axis: pair[world] for axis, pair in pairs.items()} for world in range(2)]
    else:
        settings = [dict(zip(contrast.inputs, map(int, row), strict=True)) for row in found.worlds.settings]
    return Largest(
        epsilon,
        tuple(int(i) for i in np.unravel_index(y, found.shape)),
        first=settings[first],
        second=settings[second],
        choices={axis: positions.get(axis, 0) for axis in contrast.choices},
        logs=(float(found.logs[k, first, y]), float(found.logs[k, second, y])),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Alternatives:
    """The laws of the outputs, for every alternative and every world: logarithms of shape (alternatives, worlds, y)."""

    logs: Array
    shape: tuple[int, ...]
    worlds: Worlds
    _: KW_ONLY
    axes: tuple[tuple[Origin, int], ...]

    def positions(self, alternative: int) -> dict[str, int]:
        """Return the positions on the question's axes that lead to an alternative."""
        found: dict[str, int] = {}
        rows = np.unravel_index(alternative, [size for _, size in self.axes]) if self.axes else ()
        for (origin, _), row in zip(self.axes, rows, strict=True):
            found |= decode(origin, int(row))
        return found


def alternatives(contrast: Contrast) -> Alternatives:
    """Return the laws of the outputs, leaving out alternatives that equal another."""
    worlds = Worlds.of(contrast)
    relations, rest = possible(contrast, worlds)
    origins: dict[str, Origin] = {}
    parts: list[Part] = [Factor((_WORLD,), np.ones(worlds.count)), *contrast.laws, *rest]
    sizes = {**contrast.sizes, **{part.output: part.size for part in contrast.parts if isinstance(part, Lookup)}}
    for number, relation in enumerate(relations):
        axis = f"choice {number}"
        if len(relation.values) > 1:
            origins[axis] = relation.origin
        for column, name in enumerate(relation.columns):
            parts.append(_reading(axis, name, relation.values[:, column, :], sizes[name]))
    table = _Elimination(parts, origins, (_WORLD, *contrast.outputs)).solve()
    choices = len(table.names) - 1 - len(contrast.outputs)
    shape = table.array.shape[choices + 1 :]
    return Alternatives(
        table.log.reshape(-1, worlds.count, math.prod(shape)),
        shape,
        worlds,
        axes=tuple((origins[name], table.array.shape[i]) for i, name in enumerate(table.names[:choices])),
    )


def _reading(axis: str, name: str, values: Ints, size: int) -> Lookup:
    """Return the lookup of a variable's value from the alternative and the world, as far as it depends on them."""
    varies, same = len(values) > 1, bool((values == values[:, :1]).all())
    inputs = ((axis,) if varies else ()) + (() if same else (_WORLD,))
    index = values[:, 0] if same else values
    return Lookup(inputs, name, np.array(index if varies else index[0], dtype=np.intp), size)


# ---- possible values


@dataclass(frozen=True, slots=True, eq=False)
class Worlds:
    """The settings of the inputs that are compared.

    Attributes:
        settings: One row per world and one column per input; None where both worlds' settings are chosen.
        count: How many worlds.
    """

    settings: Ints | None
    count: int

    @classmethod
    def of(cls, contrast: Contrast) -> Worlds:
        """Return one world per setting of the inputs, or two if there are many settings."""
        sizes = [contrast.sizes[axis] for axis in contrast.inputs]
        if len(sizes) > 1 and math.prod(sizes) > _MOST_WORLDS:
            return cls(None, 2)
        grid = np.indices(sizes).reshape(len(sizes), math.prod(sizes)).T
        return cls(np.asarray(grid, dtype=np.intp), len(grid))


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Where the rows of a relation come from: an axis, or rows of earlier relations."""

    axis: str | None
    sources: tuple[tuple[Origin, Ints], ...] = ()


def decode(origin: Origin, row: int) -> dict[str, int]:
    """Return, per axis, the position that led to a row (for an input with two chosen settings: both, as one number)."""
    found: dict[str, int] = {}
    stack = [(origin, row)]
    while stack:
        here, at = stack.pop()
        if here.axis is not None:
            found[here.axis] = at
        stack += [(source, int(rows[at])) for source, rows in here.sources]
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """Joint possible values: ``values[row, column, world]`` is a position in the range of the column's variable."""

    columns: tuple[str, ...]
    values: Ints
    origin: Origin


def possible(contrast: Contrast, worlds: Worlds) -> tuple[list[Relation], list[Part]]:
    """Return the possible values of the variables that follow from inputs and choices, and the parts left to sum.

    Returns:
        Independent relations over those variables that the remaining parts or the outputs read, and those parts.
    """
    axes = [*contrast.inputs, *contrast.choices]
    decided = set(axes)
    follow: list[Lookup] = []
    rest: list[Part] = []
    for part in contrast.parts:
        if isinstance(part, Lookup) and decided.issuperset(part.inputs):
            follow.append(part)
            decided.add(part.output)
        else:
            rest.append(part)
    wanted = ({name for part in rest for name in part.names} | set(contrast.outputs)) & decided
    state = _Propagation(contrast, worlds, follow, wanted)
    for part in state.cheapest_first():
        state.add(part)
    found = {id(state.home[name]): state.home[name] for name in sorted(wanted)}
    return list(found.values()), rest


class _Propagation:
    """The relations while variables are added one by one; each variable lives in one of them."""

    def __init__(self, contrast: Contrast, worlds: Worlds, follow: list[Lookup], wanted: set[str]) -> None:
        self.worlds = worlds.count
        self.follow = follow
        self.wanted = wanted
        self.sizes = {**contrast.sizes, **{part.output: part.size for part in follow}}
        self.uses = Counter(name for part in follow for name in part.inputs)
        self.home: dict[str, Relation] = {}
        for column, axis in enumerate(contrast.inputs):
            if worlds.settings is None:
                self.home[axis] = _two_settings(axis, self.sizes[axis])
            else:
                self.home[axis] = Relation((axis,), worlds.settings[None, None, :, column], Origin(None))
        for axis in contrast.choices:
            values = np.arange(self.sizes[axis], dtype=np.intp)[:, None, None]
            self.home[axis] = Relation((axis,), np.broadcast_to(values, (len(values), 1, self.worlds)), Origin(axis))

    def cheapest_first(self) -> Iterator[Lookup]:
        """Yield the lookups whose inputs are there, the one that joins the fewest rows first."""
        waiting = {i: len(set(part.inputs) - self.home.keys()) for i, part in enumerate(self.follow)}
        readers: dict[str, list[int]] = {}
        for i, part in enumerate(self.follow):
            for name in part.inputs:
                readers.setdefault(name, []).append(i)
        heap = [(self._cost(self.follow[i]), i) for i, missing in waiting.items() if not missing]
        heapq.heapify(heap)
        while heap:
            cost, i = heapq.heappop(heap)
            if (now := self._cost(self.follow[i])) > cost:
                heapq.heappush(heap, (now, i))
                continue
            yield self.follow[i]
            for reader in readers.get(self.follow[i].output, ()):
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(heap, (self._cost(self.follow[reader]), reader))

    def add(self, part: Lookup) -> None:
        """Compute the part's output in every row of the relations it reads, and drop what nobody reads any more."""
        varied = self._varied(part)
        joined = _join(varied, self.worlds)
        where = []
        for name in part.inputs:
            relation = self.home[name]  # one of the joined ones, or a single row that holds in all of them
            source = joined if len(relation.values) > 1 else relation
            where.append(source.values[:, source.columns.index(name), :])
        output = np.broadcast_to(part.index[tuple(where)], (len(joined.values), self.worlds))
        self.uses.subtract(part.inputs)
        columns = (*joined.columns, part.output)
        values = np.concatenate([joined.values, output[:, None, :]], axis=1)
        needed = [i for i, name in enumerate(columns) if self.uses[name] > 0 or name in self.wanted]
        kept = tuple(columns[i] for i in needed)
        relation = _distinct(kept, values[:, needed, :], joined.origin, [self.sizes[name] for name in kept])
        self.home |= dict.fromkeys(columns, relation)

    def _varied(self, part: Lookup) -> list[Relation]:
        relations = {id(self.home[name]): self.home[name] for name in part.inputs}
        return [relation for relation in relations.values() if len(relation.values) > 1]

    def _cost(self, part: Lookup) -> int:
        return math.prod(len(relation.values) for relation in self._varied(part))


def _two_settings(axis: str, size: int) -> Relation:
    pairs = np.indices((size, size)).reshape(2, -1).T
    return Relation((axis,), np.asarray(pairs, dtype=np.intp)[:, None, :], Origin(axis))


def _join(relations: Sequence[Relation], worlds: int) -> Relation:
    """Return every combination of rows; different relations share no choice."""
    if len(relations) == 1:
        return relations[0]
    if not relations:  # nothing varies: one row without columns
        return Relation((), np.zeros((1, 0, worlds), dtype=np.intp), Origin(None))
    lengths = [len(relation.values) for relation in relations]
    if math.prod(lengths) > MAX_ROWS:
        raise InputError(
            f"The worst case over all populations has {math.prod(lengths):.3g} combinations to look at, above the "
            f"limit of {MAX_ROWS:.3g}. Give a population, or ask about an output that reads fewer variables at once."
        )
    rows = [axis.ravel() for axis in np.indices(lengths)]
    values = np.concatenate([r.values[at] for r, at in zip(relations, rows, strict=True)], axis=1)
    origin = Origin(None, tuple((r.origin, at) for r, at in zip(relations, rows, strict=True)))
    return Relation(tuple(name for r in relations for name in r.columns), values, origin)


def _distinct(columns: tuple[str, ...], values: Ints, origin: Origin, sizes: Sequence[int]) -> Relation:
    first = _first_rows(values, sizes)
    if origin.sources and origin.axis is None:  # skip one level, so that long chains stay shallow
        kept = Origin(None, tuple((source, rows[first]) for source, rows in origin.sources))
    else:
        kept = Origin(None, ((origin, first),))
    return Relation(columns, values[first], kept)


def _first_rows(values: Ints, sizes: Sequence[int]) -> Ints:
    """Return the positions of the first of each group of equal rows."""
    rows, _, worlds = values.shape
    if rows == 1:
        return np.zeros(1, dtype=np.intp)
    flat = values.reshape(rows, -1)
    radix = [size for size in sizes for _ in range(worlds)]
    if math.prod(radix) < 2**62:
        keys = np.zeros(rows, dtype=np.int64)
        for column, size in zip(flat.T, radix, strict=True):
            keys = keys * size + column
        return np.asarray(np.unique(keys, return_index=True)[1], dtype=np.intp)
    return np.asarray(np.unique(flat, axis=0, return_index=True)[1], dtype=np.intp)


# ---- sums over chance


class _Elimination:
    """Sums one variable after another, keeping choices as axes and dropping choices that make no difference."""

    def __init__(self, parts: Iterable[Part], origins: dict[str, Origin], keep: tuple[str, ...]) -> None:
        self.origins = origins
        self.keep = keep
        self.sizes: dict[str, int] = {}
        self.factors: dict[int, Part] = {}
        self.where: dict[str, set[int]] = {}
        self.made = 0
        for part in parts:
            self._put(part)

    def solve(self) -> Factor:
        """Return the table over the choices that are left, the worlds and the outputs."""
        if len(self.origins) > 1 and math.prod(self.sizes[name] for name in (*self.origins, *self.keep)) > _AT_ONCE:
            for number in [n for n, part in self.factors.items() if isinstance(part, Lookup) and len(part.inputs) > 2]:
                for step in _one_by_one(cast(Lookup, self._take(number))):
                    self._put(step)
            hidden = set(self.sizes) - set(self.origins) - set(self.keep)
            while hidden:
                hidden -= self._sum(min(sorted(hidden), key=self._cost), hidden)
        axes = [axis for axis in self.origins if axis in self.where]
        cells = math.prod(self.sizes[axis] for axis in (*axes, *self.keep))
        if cells > MAX_CELLS:
            raise InputError(
                f"The worst case over all populations needs {cells:.3g} cells, above the limit of {MAX_CELLS:.3g}. "
                "Give a population, or ask about fewer outputs at once."
            )
        return product(list(self.factors.values()), (*axes, *self.keep))

    def _put(self, part: Part) -> None:
        self.made += 1
        self.factors[self.made] = part
        shape = (*part.index.shape, part.size) if isinstance(part, Lookup) else part.array.shape
        self.sizes |= dict(zip(part.names, shape, strict=True))
        for name in part.names:
            self.where.setdefault(name, set()).add(self.made)

    def _take(self, number: int) -> Part:
        part = self.factors.pop(number)
        for name in part.names:
            self.where[name].discard(number)
            if not self.where[name]:
                del self.where[name]
        return part

    def _cost(self, name: str) -> int:
        scope = {other for number in self.where[name] for other in self.factors[number].names}
        return math.prod(self.sizes[other] for other in scope - {name})

    def _sum(self, name: str, hidden: set[str]) -> set[str]:
        """Multiply what reads ``name`` and sum out every variable that nothing else reads; return those."""
        gathered = set(self.where[name])
        scope = {other for number in gathered for other in self.factors[number].names} & hidden
        for other in scope:  # tables of variables that are there anyway come along, so that they can go with it
            gathered |= {n for n in self.where[other] if set(self.factors[n].names) & hidden <= scope}
        parts = [self._take(number) for number in sorted(gathered)]
        names = dict.fromkeys(other for part in parts for other in part.names)
        gone = {other for other in names if other in hidden and other not in self.where}
        table = product(parts, [other for other in names if other not in gone])
        self._put(self._without_doubles(table))
        return gone

    def _without_doubles(self, table: Factor) -> Factor:
        """Merge the choices that only this table reads into one axis of different alternatives."""
        own = [name for name in table.names if name in self.origins and name not in self.where]
        if not own:
            return table
        others = [name for name in table.names if name not in own]
        order = [table.names.index(name) for name in (*own, *others)]
        logs = table.log.transpose(order).reshape(math.prod(self.sizes[name] for name in own), -1)
        first = _different_rows(logs)
        rows = np.unravel_index(first, [self.sizes[name] for name in own])
        sources = tuple(
            (self.origins.pop(name), np.asarray(at, dtype=np.intp)) for name, at in zip(own, rows, strict=True)
        )
        axis = f"choices {self.made}"
        self.origins[axis] = Origin(None, sources)
        self.sizes[axis] = len(first)
        shape = (len(first), *(self.sizes[name] for name in others))
        if table.lossy:
            return Factor.from_log((axis, *others), logs[first].reshape(shape))
        array = table.array.transpose(order).reshape(len(logs), -1)
        return Factor((axis, *others), array[first].reshape(shape))


def _one_by_one(lookup: Lookup) -> Iterator[Lookup]:
    """Yield a lookup as steps that read two variables each, so that no sum meets all its inputs at once.

    After two inputs it only matters which function of the remaining ones is left; equal functions are one value.
    """
    while len(lookup.inputs) > 2:
        first, second, *rest = lookup.index.shape
        functions, left = np.unique(lookup.index.reshape(first * second, -1), axis=0, return_inverse=True)
        between = f"{lookup.output} after {lookup.inputs[1]}"
        yield Lookup(lookup.inputs[:2], between, left.reshape(first, second).astype(np.intp), len(functions))
        lookup = Lookup(
            (between, *lookup.inputs[2:]), lookup.output, functions.reshape(len(functions), *rest), lookup.size
        )
    yield lookup


def _different_rows(logs: Array) -> Ints:
    """Return the positions of rows that differ, one per group of rows that are equal up to rounding."""
    finite = np.where(logs == -np.inf, -800.0, logs)
    weights = np.random.default_rng(0).uniform(1.0, 2.0, size=finite.shape[1])  # fixed: equal rows become neighbours
    order = np.argsort(finite @ weights, kind="stable")
    ordered = logs[order]
    with np.errstate(invalid="ignore"):
        same = (ordered[1:] == ordered[:-1]) | (np.abs(ordered[1:] - ordered[:-1]) <= _SAME)
    return np.asarray(order[np.r_[True, ~same.all(axis=1)]], dtype=np.intp)
