"""Structural equation models over finite variables: a population, equations, and exact answers to what-if questions.

A question chooses the tables it needs (the ancestors of what is asked, with set variables cut off from their causes)
and sums their product exactly. Answers are distributions, kernels and views after evidence; rows are drawn one column
at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product as combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from escudo._card import card
from escudo._validate import did_you_mean, positive_integer
from escudo.causal._edges import reach
from escudo.causal._inference import Array, Factor, IntArray, Lookup, product
from escudo.causal._sem_equations import (
    Equation,
    Population,
    Value,
    assemble,
    check_name,
    constant,
    marginal,
    parents_first,
    read_definition,
    read_exogenous,
    replace_laws,
    show,
    typed,
)
from escudo.causal.formats import read_text
from escudo.errors import InputError, ZeroProbabilityError

if TYPE_CHECKING:
    from escudo.causal._graph import CausalGraph


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SEM:
    r"""A recursive structural equation model over finite variables, with possibly randomised equations.

    Exogenous variables U have a joint law P, the population; every other variable is ``X := F_X(parents)``, with
    randomness of its own. The law of the model is

    .. math:: \Pr[u, x_1, \dots, x_k] = P(u) \prod_j F_{X_j}(x_j \mid \text{parents of } X_j)

    and an intervention ``do(X = x)`` replaces the equation of X by the constant x, leaving all others as they are. For
    an exogenous X, ``do`` sets its value while the other exogenous variables keep their *marginal* law: nothing is
    learnt about them, as it would be by conditioning.

    Build one with :meth:`build`, :meth:`parse` or :meth:`read`.

    Attributes:
        ranges: The values of each variable, in order.
        equations: One equation per endogenous variable.
        population: Laws of disjoint groups of exogenous variables; their product is P.

    Assumptions:
        The equations are autonomous (an intervention on one leaves the others alone) and acyclic; the randomness of
        different equations is independent, also of U.

    Reference:
        Pearl (2009), Causality, 2nd edition, sections 1.4 and 3.2. Tschantz, Sen and Datta, Differential Privacy as a
        Causal Property, section 4.

    Example:
        >>> survey = SEM.build(
        ...     exogenous={"R1": {"neg": 0.9, "pos": 0.1}},
        ...     equations={"R2": ("R1", lambda r1: r1), "O": "randomised_response(R2, epsilon = ln(3))"},
        ... )
        >>> survey.probability("O", do={"R2": "pos"})["pos"]
        0.75
    """

    ranges: Mapping[str, tuple[Value, ...]]
    equations: Mapping[str, Equation]
    population: tuple[Factor, ...]

    def __post_init__(self) -> None:
        named = [name for law in self.population for name in law.names]
        if len(set(named)) < len(named) or not self.equations.keys().isdisjoint(named):
            raise InputError("A variable has two laws; give each one an equation or one place in the population.")
        if set(named) | set(self.equations) != set(self.ranges):
            raise InputError("Every variable needs either an equation or a place in the population.")
        parents = {name: self.equations[name].parents if name in self.equations else () for name in self.ranges}
        object.__setattr__(self, "ranges", {name: self.ranges[name] for name in parents_first(parents)})

    @classmethod
    def build(
        cls,
        *,
        exogenous: Mapping[Any, object],
        equations: Mapping[str, object] | None = None,
        population: Population | None = None,
    ) -> SEM:
        """Build a model from Python values.

        Args:
            exogenous: ``{"R": {"neg": 0.9, "pos": 0.1}}``; correlated ones together, as
                ``{("R1", "R2"): {("neg", "neg"): 0.5, ("pos", "pos"): 0.5}}``; with ``population``, ranges are enough:
                ``{"R": ["neg", "pos"]}``.
            equations: Per endogenous variable, in any order: text such as ``"count(D1, D2 = pos)"``; or
                ``(parents, function)``, where the function returns a value or ``{value: probability}``; or ``(parents,
                {parents' values: value or {value: probability}})``; or ``(parents, array[parents…, value], values)``.
            population: Joint law of the exogenous variables (see :meth:`with_population`).

        Returns:
            The model.

        Raises:
            InputError: A name, value or table does not fit, or probabilities do not add up to 1 (within 1e-9).
            GraphError: The equations form a cycle.
        """
        ranges, laws = read_exogenous(exogenous)
        if population is not None:
            laws = list(replace_laws(laws, tuple(ranges), ranges, population))
        covered = {name for law in laws for name in law.names}
        bare = [name for name in ranges if name not in covered]
        if bare:
            raise InputError(f"Exogenous variable {bare[0]!r} has no law; give probabilities or a population.")
        named = {check_name(name): given for name, given in (equations or {}).items()}
        variables = {*ranges, *named}
        definitions = {name: read_definition(name, given, variables) for name, given in named.items()}
        known, compiled = assemble(ranges, definitions)
        return cls(ranges=known, equations=compiled, population=tuple(laws))

    @classmethod
    def parse(cls, text: str, *, source: str = "text") -> SEM:
        """Read a model from its text format, described in :mod:`escudo.causal._sem_text`."""
        from escudo.causal._sem_text import parse

        return parse(text, source)

    @classmethod
    def read(cls, path: str | Path) -> SEM:
        """Read a model from a text file."""
        file = Path(path)
        return cls.parse(read_text(file, what="model"), source=file.name)

    def to_text(self) -> str:
        """Return the model in its text format; :meth:`parse` gives back an equal model."""
        from escudo.causal._sem_text import to_text

        return to_text(self)

    # -- what the model consists of ----------------------------------------------------------------------------------

    @property
    def variables(self) -> tuple[str, ...]:
        """All variables, parents before children."""
        return tuple(self.ranges)

    @cached_property
    def exogenous(self) -> tuple[str, ...]:
        """The variables whose joint law is the population."""
        return tuple(name for name in self.ranges if name not in self.equations)

    @property
    def endogenous(self) -> tuple[str, ...]:
        """The variables that have an equation, parents before children."""
        return tuple(name for name in self.ranges if name in self.equations)

    def range(self, name: str) -> tuple[Value, ...]:
        """Return the values of a variable."""
        return self.ranges[self._check(name)]

    def equation(self, name: str) -> Equation:
        """Return the equation of an endogenous variable."""
        if self._check(name) not in self.equations:
            raise InputError(f"{name!r} is exogenous: its law is in the population, not in an equation.")
        return self.equations[name]

    def parents(self, name: str) -> tuple[str, ...]:
        """Return the variables that the equation of ``name`` reads; none for an exogenous variable."""
        return self.equations[name].parents if self._check(name) in self.equations else ()

    def position(self, name: str, value: object) -> int:
        """Return where ``value`` stands in the range of ``name``."""
        self._check(name)
        try:
            return self._positions[name][value]
        except (KeyError, TypeError):
            raise InputError(
                f"{name!r} never takes the value {value!r}; its values are {show(self.ranges[name])}."
                + did_you_mean(str(value), [str(known) for known in self.ranges[name]])
            ) from None

    @cached_property
    def graph(self) -> CausalGraph:
        """The causal diagram: one arrow into each variable from every parent."""
        from escudo.causal._graph import CausalGraph

        edges = [(parent, name) for name in self.endogenous for parent in self.parents(name)]
        return CausalGraph.from_edges(edges, nodes=self.variables)

    # -- changing it -------------------------------------------------------------------------------------------------

    def do(self, assignment: Mapping[str, object] | None = None, /, **values: object) -> SEM:
        """Return the model after an intervention: each named variable is set to its value, whatever its causes.

        Args:
            assignment: ``{"D1": "pos"}``; the same as keywords, ``do(D1="pos")``.
            values: Further variables and their values.

        Returns:
            A model in which these variables are constants. Other exogenous variables keep their marginal law. Values of
            probability zero are allowed: an intervention does not need the event to happen by itself.
        """
        fixed = self._assignment(assignment, values)
        equations = dict(self.equations)
        for name, position in fixed.items():
            equations[name] = constant(name, position, len(self.ranges[name]))
        return SEM(ranges=self.ranges, equations=equations, population=marginal(self.population, fixed))

    def with_population(self, population: Population) -> SEM:
        """Return the model with another population.

        Args:
            population: An array with one axis per exogenous variable, in the order of :attr:`exogenous`; or a mapping
                ``{"R1": {value: probability}, ("R2", "R3"): {(value, value): probability}}``, whose values may be
                arrays; or a list of :class:`Factor`. Variables a mapping does not name keep their marginal law.
        """
        laws = replace_laws(self.population, self.exogenous, self.ranges, population)
        return SEM(ranges=self.ranges, equations=self.equations, population=laws)

    def given(self, evidence: Mapping[str, object] | None = None, /, **values: object) -> Given:
        """Return a view of the model after observing some values; ask it for :meth:`Given.probability`.

        Raises:
            ZeroProbabilityError: The evidence has probability zero; it can be set by ``do`` but not conditioned on.
        """
        seen = self._assignment(evidence, values)
        view = Given(sem=self, evidence={name: self.ranges[name][position] for name, position in seen.items()})
        self.probability({}, given=view.evidence)
        return view

    # -- asking it ---------------------------------------------------------------------------------------------------

    @overload
    def probability(
        self,
        of: Mapping[str, object],
        *,
        do: Mapping[str, object] | None = ...,
        given: Mapping[str, object] | None = ...,
        population: Population | None = ...,
    ) -> float: ...

    @overload
    def probability(
        self,
        of: str | Sequence[str],
        *,
        do: Mapping[str, object] | None = ...,
        given: Mapping[str, object] | None = ...,
        population: Population | None = ...,
    ) -> Distribution: ...

    def probability(
        self,
        of: str | Sequence[str] | Mapping[str, object],
        *,
        do: Mapping[str, object] | None = None,
        given: Mapping[str, object] | None = None,
        population: Population | None = None,
    ) -> float | Distribution:
        """Return the exact probability ``Pr[Y | do(X = x), Z = z]``.

        Args:
            of: A variable, several variables, or an assignment ``{"O": 0}``.
            do: Variables to set, with their values.
            given: Evidence, observed in the model after the intervention.
            population: Another population to use.

        Returns:
            A float for an assignment; otherwise a :class:`Distribution`, a mapping from values (tuples of values for
            several variables) to probabilities.

        Raises:
            ZeroProbabilityError: The evidence has probability zero.
            InputError: Unknown names or values, or the answer needs too large a table.
        """
        sem = self if population is None else self.with_population(population)
        sem = sem.do(do) if do else sem
        evidence = sem._assignment(given, {})
        if isinstance(of, Mapping):
            wanted = sem._assignment(of, {})
            clash = any(evidence.get(name, position) != position for name, position in wanted.items())
            joint = joint_law(sem, (), {**evidence, **wanted})
            share = condition(joint, joint_law(sem, (), evidence), evidence) if evidence else joint
            return 0.0 if clash else float(share.array)
        names = sem._names(of)
        joint = joint_law(sem, names, evidence)
        if evidence:
            joint = condition(joint, product([joint], ()), evidence)
        return Distribution(
            names=names, ranges=tuple(sem.ranges[name] for name in names), law=joint, single=isinstance(of, str)
        )

    def law(
        self,
        of: str | Sequence[str],
        *,
        inputs: Sequence[str] = (),
        background: bool = False,
        cut: Iterable[tuple[str, str]] | None = None,
    ) -> Law:
        """Return the interventional kernel ``Pr[Y = y | do(X = x), U = u]`` for all x, u and y at once.

        Args:
            of: The variables Y; only their ancestors are ever looked at.
            inputs: The variables X that are set, each value in turn.
            background: Keep the exogenous variables that matter to Y as axes, instead of averaging over the population.
            cut: Edges ``(X, child)`` from inputs to children. If given, only these children read the value that is set;
                everything else reads the natural X, which keeps its own equation or its place in the population.

        Returns:
            A :class:`Law` with axes inputs, background, of; it has ``array`` and ``log``.

        Raises:
            InputError: Unknown names, a cut that is not an arrow out of an input, or too large a table.
        """
        targets, free = self._names(of), self._names(inputs)
        arrows = None if cut is None else self._arrows(cut, free)
        return kernel(self, targets, free, arrows, background=background)

    def sample(
        self, rows: int, *, seed: int | np.random.Generator, do: Mapping[str, object] | None = None
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Draw independent rows from the model, or from the model after an intervention.

        Args:
            rows: How many.
            seed: An integer or a numpy generator; the same seed gives the same rows.
            do: Variables to set.

        Returns:
            One column per variable, in the order of :attr:`variables`; any dataframe library reads it.
        """
        sem = self.do(do) if do else self
        return draw_rows(sem, positive_integer("rows", rows), np.random.default_rng(seed))

    # -- inside ------------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SEM):
            return NotImplemented
        laws = {law.names: law for law in other.population}
        return (
            {name: typed(values) for name, values in self.ranges.items()}
            == {name: typed(values) for name, values in other.ranges.items()}
            and self.equations.keys() == other.equations.keys()
            and all(equation.same_as(other.equations[name]) for name, equation in self.equations.items())
            and {law.names for law in self.population} == set(laws)
            and all(np.array_equal(law.array, laws[law.names].array) for law in self.population)
        )

    __hash__ = None  # type: ignore[assignment]  # equality looks at arrays

    def __repr__(self) -> str:
        return f"SEM(exogenous: {show(self.exogenous) or 'none'}; endogenous: {show(self.endogenous) or 'none'})"

    def _repr_html_(self) -> str:
        return card("Structural equation model", self.graph.summary, picture=self.graph.to_svg())

    @cached_property
    def _positions(self) -> dict[str, dict[object, int]]:
        return {name: {value: index for index, value in enumerate(values)} for name, values in self.ranges.items()}

    def _check(self, name: object) -> str:
        if not isinstance(name, str) or name not in self.ranges:
            raise InputError(f"The model has no variable {name!r}." + did_you_mean(str(name), self.ranges))
        return name

    def _names(self, names: str | Sequence[str]) -> tuple[str, ...]:
        result = tuple(self._check(name) for name in ((names,) if isinstance(names, str) else names))
        if len(set(result)) < len(result):
            raise InputError(f"A variable is named twice in {', '.join(result)}.")
        return result

    def _assignment(self, first: Mapping[str, object] | None, more: Mapping[str, object]) -> dict[str, int]:
        return {name: self.position(name, value) for name, value in {**(first or {}), **more}.items()}

    def _arrows(self, cut: Iterable[tuple[str, str]], free: tuple[str, ...]) -> list[tuple[str, str]]:
        arrows = [(self._check(parent), self._check(child)) for parent, child in cut]
        for parent, child in arrows:
            if parent not in free or parent not in self.parents(child):
                raise InputError(f"({parent!r}, {child!r}) is not an arrow from an input to one of its children.")
        return arrows


# ---- answers


class _Tabled:
    """What is a table of probabilities, with its logarithms."""

    __slots__ = ()

    @property
    def _table(self) -> Factor:
        raise NotImplementedError

    @property
    def array(self) -> Array:
        """Probabilities, with one axis per variable; those of a kernel sum to 1 over the axes of Y."""
        return self._table.array

    @property
    def log(self) -> Array:
        """Natural logarithms, right also below the smallest float: -∞ exactly where the probability is zero."""
        return self._table.log


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Distribution(_Tabled, Mapping[Value, float]):
    """A law of one or several variables, as a mapping from values to probabilities.

    Attributes:
        names: The variables.
        ranges: Their values, in the order of the array's axes.
        law: The table, with its logarithms.
        single: True if keys are the values of one variable rather than tuples.
    """

    names: tuple[str, ...]
    ranges: tuple[tuple[Value, ...], ...]
    law: Factor
    single: bool

    @property
    def _table(self) -> Factor:
        return self.law

    def __getitem__(self, value: Value) -> float:
        point = (value,) if self.single else value
        if not isinstance(point, tuple) or len(point) != len(self.names):
            raise KeyError(value)
        try:
            where = tuple(range_.index(part) for range_, part in zip(self.ranges, point, strict=True))
        except ValueError:
            raise KeyError(value) from None
        return float(self.array[where])

    def __iter__(self) -> Iterator[Value]:
        return iter(self.ranges[0]) if self.single else combinations(*self.ranges)

    def __len__(self) -> int:
        return math.prod(len(values) for values in self.ranges)

    def __eq__(self, other: object) -> bool:
        return dict(self) == dict(other) if isinstance(other, Mapping) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equality looks at an array

    def __repr__(self) -> str:
        shown = ", ".join(f"{value!r}: {weight:.6g}" for value, weight in zip(self, self.array.flat, strict=False))
        return f"Distribution({', '.join(self.names)}: {{{shown}}})"

    def _repr_html_(self) -> str:
        cells = zip(combinations(*self.ranges), self.array.flat, strict=False)
        return card(
            f"Law of {', '.join(self.names)}",
            head=(*self.names, "probability"),
            rows=((*point, f"{share:.6g}") for point, share in cells),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Law(_Tabled):
    """The kernel ``Pr[Y = y | do(X = x), U = u]`` as an array with axes ``[inputs…, background…, of…]``.

    Attributes:
        inputs: The variables X that are set.
        background: The exogenous variables U kept as axes; empty where the population is averaged over.
        of: The variables Y.
        kernel: The table, with its logarithms.
    """

    inputs: tuple[str, ...]
    background: tuple[str, ...]
    of: tuple[str, ...]
    kernel: Factor

    @property
    def _table(self) -> Factor:
        return self.kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A model together with evidence: ``sem.given(R1="pos").probability("O")`` is ``Pr[O | R1 = pos]``."""

    sem: SEM
    evidence: Mapping[str, Value]

    @overload
    def probability(self, of: Mapping[str, object]) -> float: ...

    @overload
    def probability(self, of: str | Sequence[str]) -> Distribution: ...

    def probability(self, of: str | Sequence[str] | Mapping[str, object]) -> float | Distribution:
        """Return the exact probability of ``of`` given the evidence."""
        return self.sem.probability(of, given=self.evidence)

    def given(self, evidence: Mapping[str, object] | None = None, /, **values: object) -> Given:
        """Return the view after further evidence."""
        more = {**(evidence or {}), **values}
        for name, value in more.items():
            if name in self.evidence and self.evidence[name] != value:
                raise InputError(f"{name!r} was already observed as {self.evidence[name]!r}.")
        return self.sem.given({**self.evidence, **more})

    def do(self, assignment: Mapping[str, object] | None = None, /, **values: object) -> Given:
        """Refuse: evidence seen before an intervention is not evidence after it."""
        raise InputError("Intervene first, then condition: sem.do(...).given(...) is Pr[· | do(...), evidence].")


# ---- the tables a question needs, and their product


def joint_law(sem: SEM, names: tuple[str, ...], evidence: Mapping[str, int]) -> Factor:
    """Return Pr[names, evidence] as a table over ``names``; evidence gives positions in ranges."""
    relevant = ancestors(sem, {*names, *evidence})
    factors: list[Factor | Lookup] = list(marginal(sem.population, set(sem.exogenous) - relevant))
    for name in sem.endogenous:
        if name in relevant:
            factors += sem.equations[name].parts
    fixed = {name: position for name, position in evidence.items() if name not in names}
    factors = [factor.at(fixed) for factor in factors]
    for name, position in evidence.items():
        if name in names:
            factors.append(Factor((name,), np.arange(len(sem.ranges[name])) == position))
    return product(factors, names)


def condition(joint: Factor, evidence: Factor, seen: Mapping[str, int]) -> Factor:
    """Return ``joint / evidence``, the law given evidence whose probability is ``evidence``; raise if that is zero."""
    if float(evidence.log) == -math.inf:
        raise ZeroProbabilityError(
            f"The evidence on {', '.join(seen)} has probability zero, so nothing follows from it. To ask what would "
            "happen if these values were set, intervene instead: do(...)."
        )
    if joint.lossy or evidence.lossy:
        return Factor.from_log(joint.names, joint.log - evidence.log)
    return Factor(joint.names, joint.array / float(evidence.array))


def kernel(
    sem: SEM,
    targets: tuple[str, ...],
    inputs: tuple[str, ...],
    arrows: Sequence[tuple[str, str]] | None,
    *,
    background: bool,
) -> Law:
    """Return Pr[targets | do(inputs), background]; see :meth:`SEM.law`.

    Every free axis has a name of its own, ``do(X)`` or ``background(U)``, and X or U becomes a copy of it. So a
    variable may be set and asked about at once, and an arrow that is cut reads ``do(X)`` while the others read X.
    """
    severed = set(inputs) if arrows is None else set()
    renamed: dict[str, dict[str, str]] = {}
    for parent, child in arrows or ():
        renamed.setdefault(child, {})[parent] = f"do({parent})"
    relevant = ancestors(sem, targets, severed, renamed)
    kept = tuple(name for name in sem.exogenous if name in relevant - severed) if background else ()
    factors: list[Factor | Lookup] = [_ones(sem, name, f"do({name})") for name in inputs]
    factors += [copy_of(sem, name, f"do({name})") for name in inputs if name in severed]
    for name in kept:
        factors += [_ones(sem, name, f"background({name})"), copy_of(sem, name, f"background({name})")]
    if not background:
        factors += marginal(sem.population, set(sem.exogenous) - relevant | severed)
    for name in sem.endogenous:
        if name in relevant - severed:
            factors += sem.equations[name].reading(renamed.get(name, {}))
    axes = (*(f"do({name})" for name in inputs), *(f"background({name})" for name in kept), *targets)
    return Law(inputs=inputs, background=kept, of=targets, kernel=product(factors, axes))


def ancestors(
    sem: SEM,
    targets: Iterable[str],
    severed: Iterable[str] = (),
    renamed: Mapping[str, Mapping[str, str]] | None = None,
) -> set[str]:
    """Return the targets and every variable that reaches them once some are severed from their parents."""
    cut, arrows = set(severed), renamed or {}

    def causes(name: str) -> Iterable[str]:
        return () if name in cut else (parent for parent in sem.parents(name) if parent not in arrows.get(name, {}))

    return reach(targets, causes)


def _ones(sem: SEM, name: str, axis: str) -> Factor:
    return Factor((axis,), np.ones(len(sem.ranges[name])))


def copy_of(sem: SEM, name: str, axis: str) -> Lookup:
    """Return the step that makes a variable a copy of a free axis."""
    size = len(sem.ranges[name])
    return Lookup((axis,), name, np.arange(size, dtype=np.intp), size)


# ---- drawing rows

_CHUNK = 2**20  # cells of the row-by-value table held at once


def draw_rows(sem: SEM, rows: int, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Return ``rows`` independent draws, one column of values per variable."""
    columns: dict[str, IntArray] = {}
    for law in sem.population:
        cell = _choose(law.array.reshape(1, -1), np.zeros(rows, dtype=np.intp), rng)
        columns.update(zip(law.names, np.unravel_index(cell, law.array.shape), strict=True))
    for name in sem.endogenous:
        for part in sem.equation(name).parts:
            columns[part.names[-1]] = _step(part, columns, rows, rng)
    return {name: _values(sem.ranges[name], columns[name]) for name in sem.variables}


def _step(part: Factor | Lookup, columns: dict[str, IntArray], rows: int, rng: np.random.Generator) -> IntArray:
    where = tuple(columns[name] for name in part.names[:-1])
    if isinstance(part, Lookup):
        return np.asarray(part.index[where]) if where else np.full(rows, part.index)
    shape = part.array.shape[:-1]
    row = np.ravel_multi_index(where, shape) if where else np.zeros(rows, dtype=np.intp)
    return _choose(part.array.reshape(-1, part.array.shape[-1]), row, rng)


def _choose(table: Array, row: IntArray, rng: np.random.Generator) -> IntArray:
    """Return one column of ``table`` per entry of ``row``, with that row's probabilities."""
    steps = np.cumsum(table, axis=1)
    steps /= steps[:, -1:]
    chosen = np.empty(len(row), dtype=np.intp)
    size = max(1, _CHUNK // table.shape[1])
    for start in range(0, len(row), size):
        block = slice(start, start + size)
        # u < 1 and the last step is exactly 1; a cell of probability zero repeats the step before it and is never hit.
        chosen[block] = (rng.random(len(row[block]))[:, None] >= steps[row[block]]).sum(axis=1)
    return chosen


def _values(values: tuple[Value, ...], column: IntArray) -> np.ndarray[Any, Any]:
    if any(isinstance(value, tuple) for value in values) or len({type(value) for value in values}) > 1:
        labels = np.empty(len(values), dtype=object)
        labels[:] = values
    else:
        labels = np.array(values)
    return np.asarray(labels[column])
