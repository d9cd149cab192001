"""Structural equation models over finite variables: a population, equations, and exact answers to what-if questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from escudo._card import card
from escudo._validate import did_you_mean, positive_integer
from escudo.causal import _sem_population as populations
from escudo.causal._inference import Factor, product
from escudo.causal._sem_answers import Distribution, Given, Law, conditional
from escudo.causal._sem_build import assemble, parents_first
from escudo.causal._sem_equation import Equation, constant, read_definition
from escudo.causal._sem_population import Population
from escudo.causal._sem_queries import joint_law, kernel
from escudo.causal._sem_values import Value, check_name, show, typed
from escudo.causal.formats import read_text
from escudo.errors import InputError

if TYPE_CHECKING:
    from escudo.causal._graph import CausalGraph

__all__ = ["SEM"]


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
        ranges, laws = populations.read_exogenous(exogenous)
        if population is not None:
            laws = list(populations.replaced(laws, tuple(ranges), ranges, population))
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

        return parse(text, source=source)

    @classmethod
    def read(cls, path: str | Path) -> SEM:
        """Read a model from a text file."""
        file = Path(path)
        return cls.parse(read_text(file, what="model"), source=file.name)

    def to_text(self) -> str:
        """Return the model in its text format; :meth:`parse` gives back an equal model."""
        from escudo.causal._sem_writer import to_text

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
        return SEM(ranges=self.ranges, equations=equations, population=populations.marginal(self.population, fixed))

    def with_population(self, population: Population) -> SEM:
        """Return the model with another population.

        Args:
            population: An array with one axis per exogenous variable, in the order of :attr:`exogenous`; or a mapping
                ``{"R1": {value: probability}, ("R2", "R3"): {(value, value): probability}}``, whose values may be
                arrays; or a list of :class:`Factor`. Variables a mapping does not name keep their marginal law.
        """
        laws = populations.replaced(self.population, self.exogenous, self.ranges, population)
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
            share = conditional(joint, joint_law(sem, (), evidence), evidence) if evidence else joint
            return 0.0 if clash else float(share.array)
        names = sem._names(of)
        joint = joint_law(sem, names, evidence)
        if evidence:
            joint = conditional(joint, product([joint], ()), evidence)
        ranges = tuple(sem.ranges[name] for name in names)
        return Distribution(names=names, ranges=ranges, law=joint, single=isinstance(of, str))

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
        return kernel(self, targets, free, background=background, arrows=arrows)

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
        from escudo.causal._sem_sampling import draw

        sem = self.do(do) if do else self
        return draw(sem, positive_integer("rows", rows), np.random.default_rng(seed))

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
