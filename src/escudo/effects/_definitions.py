"""The ten definitions of the paper for one mechanism: the smallest epsilon of each, where it is attained, and why.

Definitions 1, 2, 5, 6 and 8 always agree; 4 agrees under mutual independence; 3 is stronger; 7, 10 and Bayesian₀ for a
given population are weaker or not comparable. The numbers say so for the mechanism at hand.

A mechanism is a table, from every database to a law over outputs. Six comparisons stand behind the definitions; each
returns a :class:`Comparison`: the largest log ratio per data point, and where the largest of all is attained. They are
closed forms: "for all populations" is never sampled. ``README.md`` in this folder says why they are right.

For counts of exchangeable binary points their cost grows with n, not 2^n: databases with the same number of ones are
one case, so a population is the law of that number (all databases with the same number equally likely), and every
comparison is between rows of the count table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from escudo._card import card
from escudo._validate import one_of
from escudo.causal import Lookup, alike, commuting
from escudo.effects._effect import (
    Array,
    Witness,
    average,
    largest_log_ratio,
    log_of,
    probabilities,
    show_epsilon,
    show_names,
    show_times,
    spread,
)
from escudo.effects._worst import Contrast, alternatives, contrast_of, names_of, outputs_of
from escudo.errors import InputError

if TYPE_CHECKING:
    from escudo.causal import SEM

Number = Literal[1, 2, 3, 4, 5, 6, 7, 8, 10, "bayesian0"]
Independence = Literal["mutual", "pairwise-conditional"]


class _Meaning(NamedTuple):
    name: str
    populations: str
    compares: str  # Table 1 of the paper
    relation: str  # to Definition 1
    lead: str  # how its sentence begins


_MEANING: dict[Number, _Meaning] = {
    1: _Meaning("Differential privacy", "none", "Pr[A(d) = o]", "is DP",
        "Whatever the other data points are, changing one makes"),
    2: _Meaning("Strong adversary", "every", "Pr[O = o | D1, …, Dn]", "⇔ DP",
        "To someone who knows all other data points, learning the last one makes"),
    3: _Meaning("Bayesian₀", "every", "Pr[O = o | Di]", "⇒ DP",
        "Learning one data point, and through it others that go with it, makes"),
    4: _Meaning("Bayesian₀, independent points", "independent", "Pr[O = o | Di]", "⇔ DP",
        "Where data points are independent, learning one of them makes"),
    5: _Meaning("Whole database set, every population", "every", "Pr[O = o | do(D1, …, Dn)]", "⇔ DP",
        "Setting the whole database, with one data point changed, makes"),
    6: _Meaning("Whole database set", "given", "Pr[O = o | do(D1, …, Dn)]", "⇔ DP",
        "Setting the whole database, with one data point changed, makes"),
    7: _Meaning("One data point set", "given", "Pr[O = o | do(Di)]", "⇐ DP",
        "Setting one data point, while the others come as they do, makes"),
    8: _Meaning("One data point set, every population", "every", "Pr[O = o | do(Di)]", "⇔ DP",
        "Setting one data point, while the others come as they do, makes"),
    10: _Meaning("Strong adversary, given population", "given", "Pr[O = o | D1, …, Dn]", "⇐ DP",
        "Among databases that occur, one data point changed makes"),
    "bayesian0": _Meaning("Bayesian₀, given population", "given", "Pr[O = o | Di]", "neither",
        "Learning one data point, and through it others that go with it, makes"),
}  # fmt: skip
_PRINTED = _Meaning(
    "Bayesian₀, points independent given the rest",
    "independent",
    "Pr[O = o | Di]",
    "⇒ DP",
    "Where each two data points are independent given the others, learning one of them makes",
)
_BOUNDED = {"every": ", in every population", "given": ", in the given population"}
_UNBOUNDED = {"every": ", in some population", "given": ", in the given population"}
_NEED_POPULATION = (7, 10, "bayesian0")
_MOST_CELLS = 2**20  # above this, a mechanism is taken out as a count or not at all


# ---- mechanisms


class Mechanism:
    """A mechanism of ``n`` data points: ``table[d1, ..., dn, o]`` is the probability of output ``o``.

    Args:
        table: Shape (|Dom 1|, ..., |Dom n|, outputs); each row sums to 1. Floats or fractions.
        points: Names of the data points; D1, D2, ... by default.
        values: Names of each point's values; 0, 1, ... by default.
        outputs: Names of the outputs; 0, 1, ... by default.
        log: Natural logarithms of the table, where floats cannot hold its smallest probabilities.

    >>> Mechanism([[0.75, 0.25], [0.25, 0.75]])
    Mechanism(D1; 2 outputs)
    """

    __slots__ = ("log", "outputs", "points", "table", "values")

    def __init__(
        self,
        table: Any,
        *,
        points: Iterable[str] | None = None,
        values: Iterable[Iterable[Any]] | None = None,
        outputs: Iterable[Any] | None = None,
        log: Array | None = None,
    ) -> None:
        self.table: Array = probabilities("the mechanism's table", table, axis=-1)
        self.log = _checked_log(self.table, log)
        *sizes, size = self.table.shape
        if not sizes:
            raise InputError("the mechanism's table needs an axis for each data point and one for the output.")
        self.points = tuple(points) if points is not None else tuple(f"D{i + 1}" for i in range(len(sizes)))
        self.values = tuple(map(tuple, values)) if values is not None else tuple(tuple(range(s)) for s in sizes)
        self.outputs = _named("outputs", outputs, size)
        if len(self.points) != len(sizes):
            raise InputError(f"points must name {len(sizes)} data points; got {len(self.points)}.")
        if tuple(map(len, self.values)) != tuple(sizes):
            raise InputError(f"values must name {sizes} values; got {[len(v) for v in self.values]}.")

    def __repr__(self) -> str:
        names = ", ".join(self.points[:4]) + (", ..." if len(self.points) > 4 else "")
        return f"Mechanism({names}; {len(self.outputs)} outputs)"

    def database(self, index: Iterable[int]) -> dict[str, Any]:
        """Return the database at ``index`` as point -> value."""
        return {p: v[i] for p, v, i in zip(self.points, self.values, index, strict=True)}


class CountMechanism:
    """A mechanism that reads ``n`` binary data points only through their count: ``table[c, o]``.

    Its cost grows with ``n``, not with ``2^n``: databases with the same count are one case.

    Args:
        table: Shape (n + 1, outputs); row ``c`` is the law of the output when ``c`` of the points are 1.
        n: The number of points; may be left out, as the table determines it.
        outputs: Names of the outputs; 0, 1, ... by default.
        log: Natural logarithms of the table, where floats cannot hold its smallest probabilities.

    >>> CountMechanism([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]])
    CountMechanism(n=2; 2 outputs)
    """

    __slots__ = ("log", "n", "outputs", "table")

    def __init__(
        self, table: Any, n: int | None = None, *, outputs: Iterable[Any] | None = None, log: Array | None = None
    ) -> None:
        self.table: Array = probabilities("the mechanism's table", table, axis=-1)
        if self.table.ndim != 2 or self.table.shape[0] < 2:
            raise InputError(f"a count table has shape (n + 1, outputs) with n >= 1; got {self.table.shape}.")
        self.log = _checked_log(self.table, log)
        self.n = self.table.shape[0] - 1
        if n is not None and n != self.n:
            raise InputError(f"a count table for n = {n} points has {n + 1} rows; got {self.n + 1}.")
        self.outputs = _named("outputs", outputs, self.table.shape[1])

    def __repr__(self) -> str:
        return f"CountMechanism(n={self.n}; {len(self.outputs)} outputs)"

    def expand(self) -> Mechanism:
        """Return the same mechanism as a table over all ``2^n`` databases (for small ``n``)."""
        if self.n > 16:
            raise InputError(f"a table over 2^{self.n} databases is too large; use the count mechanism itself.")
        counts = np.indices((2,) * self.n).sum(axis=0)
        return Mechanism(self.table[counts], outputs=self.outputs, log=self.log[counts])


def as_mechanism(mechanism: Mechanism | CountMechanism | Any) -> Mechanism | CountMechanism:
    """Return ``mechanism`` itself, or the array as a :class:`Mechanism`."""
    return mechanism if isinstance(mechanism, (Mechanism, CountMechanism)) else Mechanism(mechanism)


def _checked_log(table: Array, log: Array | None) -> Array:
    if log is None:
        return log_of(table)
    logs = np.array(log, dtype=np.float64)
    if logs.shape != table.shape or np.isnan(logs).any() or np.abs(np.exp(logs) - table).max() > 1e-12:
        raise InputError("log must hold the natural logarithms of the mechanism's table, in the same shape.")
    return logs


def _named(what: str, names: Iterable[Any] | None, size: int) -> tuple[Any, ...]:
    result = tuple(names) if names is not None else tuple(range(size))
    if len(result) != size:
        raise InputError(f"{what} must name {size} {what}; got {len(result)}.")
    return result


# ---- the mechanism at the end of a model


def mechanism_of(sem: SEM, on: str | None = None) -> tuple[Mechanism | CountMechanism, Array]:
    """Return the mechanism that sets an output from its data points, and the model's population of these.

    Args:
        sem: The model; the parents of the output are the data points.
        on: The output; by default the only variable that nothing reads.

    Returns:
        A :class:`Mechanism` and the joint table of its data points; for many exchangeable binary points that are only
        counted, a :class:`CountMechanism` and the law of the count.
    """
    outputs = outputs_of(sem) if on is None else names_of(sem, "on", on)
    if len(outputs) != 1:
        raise InputError(f"the model puts out {show_names(outputs)}; choose one of them with on=.")
    output = outputs[0]
    points = sem.parents(output)
    if not points:
        raise InputError(f"{output!r} reads nothing, so it is no mechanism.")
    if math.prod(len(sem.range(name)) for name in (*points, output)) <= _MOST_CELLS:
        equation = sem.equation(output)
        known = Mechanism(
            equation.table,
            log=equation.log_table,
            points=points,
            values=[sem.range(name) for name in points],
            outputs=sem.range(output),
        )
        return known, sem.law(points).array
    return _count_mechanism(sem, output, points)


def _count_mechanism(sem: SEM, output: str, points: tuple[str, ...]) -> tuple[CountMechanism, Array]:
    exchangeable = [group for group in commuting(sem, output) if set(group) == set(points)]
    if not exchangeable or points not in alike(sem) or len(sem.range(points[0])) != 2:
        raise InputError(
            f"{output!r} reads {len(points)} data points, too many for a table; definitions then need data points that "
            "are binary, alike, and read only as count(…)."
        )
    # Ask about one database per count: the first c points have the second value, the others the first.
    n = len(points)
    set_to = [
        Lookup(("ones",), name, np.asarray(i < np.arange(n + 1), dtype=np.intp), 2) for i, name in enumerate(points)
    ]
    asked = Contrast(
        parts=(*set_to, *sem.equation(output).parts),
        inputs={"ones": "ones"},
        choices={},
        outputs=(output,),
        sizes={"ones": n + 1},
        laws=(),
    )
    log = alternatives(asked).logs[0]
    return CountMechanism(np.exp(log), outputs=sem.range(output), log=log), _law_of_the_count(sem, points)


def _law_of_the_count(sem: SEM, points: tuple[str, ...]) -> Array:
    """Return the law of how many of some binary variables have their second value."""
    known = contrast_of(sem, (), points, worst_case=False)
    running = [Lookup((points[0],), "ones 1", np.arange(2, dtype=np.intp), 2)]
    for i, name in enumerate(points[1:], start=1):
        index = np.add.outer(np.arange(i + 1, dtype=np.intp), np.arange(2, dtype=np.intp))
        running.append(Lookup((f"ones {i}", name), f"ones {i + 1}", index, i + 2))
    parts = (*known.parts, *running)
    asked = Contrast(parts, {}, {}, outputs=(f"ones {len(points)}",), sizes={}, laws=known.laws)
    return np.asarray(np.exp(alternatives(asked).logs[0, 0]))


# ---- definitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The smallest epsilon for which one definition holds.

    Attributes:
        number: Its number in the paper, or ``"bayesian0"`` for Definition 3 at one given population.
        epsilon: The definition holds for this epsilon and above; infinite if for none.
        witness: Two databases, or two values of one data point, and the output that attain it; None if epsilon is 0.
        persons: The same epsilon for each data point alone.
        independence: What "independent" means in Definition 4.
    """

    number: Number
    epsilon: float
    witness: Witness | None
    persons: tuple[float, ...]
    independence: Independence = "mutual"

    @property
    def _meaning(self) -> _Meaning:
        printed = self.number == 4 and self.independence == "pairwise-conditional"
        return _PRINTED if printed else _MEANING[self.number]

    @property
    def name(self) -> str:
        """What the definition is called."""
        return self._meaning.name

    @property
    def populations(self) -> str:
        """Which populations it speaks about: none, every, independent or given."""
        return self._meaning.populations

    @property
    def compares(self) -> str:
        """The probability that should hardly change, as in Table 1 of the paper."""
        return self._meaning.compares

    @property
    def relation(self) -> str:
        """How it relates to differential privacy, for all mechanisms."""
        return self._meaning.relation

    @property
    def sentence(self) -> str:
        """The definition and its epsilon in one plain sentence."""
        lead = self._meaning.lead
        if math.isinf(self.epsilon):
            return f"{lead} some output possible that was impossible{_UNBOUNDED.get(self.populations, '')}: no ε holds."
        what = "no output more or less likely"
        if self.epsilon >= 1e-12:
            what = f"no output more than {show_times(self.epsilon)}"
        return f"{lead} {what}{_BOUNDED.get(self.populations, '')}."

    def __str__(self) -> str:
        return self.sentence

    def to_json(self) -> dict[str, Any]:
        """Return plain values for ``json.dumps``; an infinite epsilon is the string ``"inf"``."""
        return {
            "number": self.number,
            "name": self.name,
            "populations": self.populations,
            "compares": self.compares,
            "relation": self.relation,
            "epsilon": _plain(self.epsilon),
            "persons": [_plain(e) for e in self.persons[:100]],
            "witness": self.witness.to_json() if self.witness else None,
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Implication:
    """One arrow of the paper's Figure 2: what holds for all mechanisms, and what it means for the one at hand.

    Attributes:
        first: A definition.
        arrow: ``⇔`` or ``⇒``.
        second: What follows from it, with the same epsilon.
        assumption: What must be assumed for that; empty if nothing.
        here: This mechanism's numbers.
    """

    first: Number
    arrow: Literal["⇔", "⇒"]
    second: Number
    assumption: str
    here: str

    def __str__(self) -> str:
        return f"{self.first} {self.arrow} {self.second}{self.assumption and f' ({self.assumption})'}: {self.here}"


class Definitions(Mapping[Number, Definition]):
    """The definitions of one mechanism, by number: ``result[7].epsilon``.

    Definitions 7, 10 and ``"bayesian0"`` are there if a population was given.
    """

    def __init__(self, found: Mapping[Number, Definition]) -> None:
        self._found = dict(found)

    def __getitem__(self, number: Number) -> Definition:
        if number in _NEED_POPULATION and number not in self._found:
            raise InputError(f"Definition {number} is about a given population: definitions(mechanism, population).")
        if number not in self._found:
            raise InputError(f"Definition {number!r} is not one of {', '.join(map(str, _MEANING))}.")
        return self._found[number]

    def __contains__(self, number: object) -> bool:
        return number in self._found

    def get(self, number: Number, default: Any = None) -> Any:  # Any: of whatever type the default is
        """Return a definition, or ``default`` where it needs a population and none was given."""
        return self._found.get(number, default)

    def __iter__(self) -> Iterator[Number]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"Definitions({', '.join(f'{k}: {show_epsilon(d.epsilon)}' for k, d in self._found.items())})"

    def _repr_html_(self) -> str:
        return card(
            "Definitions of privacy",
            head=("", "name", "ε", "compares", "populations"),
            rows=((k, d.name, show_epsilon(d.epsilon), d.compares, d.populations) for k, d in self._found.items()),
        )

    @property
    def implications(self) -> tuple[Implication, ...]:
        """Which definition implies which, for all mechanisms, with this mechanism's numbers."""
        printed = self._found[4].independence == "pairwise-conditional"
        arrows: list[tuple[Number, Literal["⇔", "⇒"], Number, str]] = [
            (1, "⇔", 2, ""),
            (4, "⇒", 1, "") if printed else (1, "⇔", 4, ""),
            (3, "⇒", 1, ""),
            (1, "⇒", 3, "if the adversary knows all other data points"),
            (1, "⇒", 3, "if data points are independent"),
            (1, "⇔", 5, ""),
            (1, "⇔", 6, ""),
            (1, "⇔", 8, ""),
            (1, "⇒", 7, ""),
            (1, "⇒", 10, ""),
            (3, "⇒", "bayesian0", ""),
        ]
        return tuple(
            Implication(first=a, arrow=arrow, second=b, assumption=why, here=_here(self._found[a], self._found[b], why))
            for a, arrow, b, why in arrows
            if b in self._found
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values for ``json.dumps``."""
        arrows = [
            {"first": i.first, "arrow": i.arrow, "second": i.second, "assumption": i.assumption, "here": i.here}
            for i in self.implications
        ]
        return {"definitions": [found.to_json() for found in self._found.values()], "implications": arrows}


def definitions(
    mechanism: Mechanism | CountMechanism | Any, population: Any = None, *, independence: Independence = "mutual"
) -> Definitions:
    """Return the smallest epsilon of Definitions 1-8 and 10, and of Bayesian₀ for the given population.

    Args:
        mechanism: A table ``A[d1, …, dn, o]``, a :class:`Mechanism`, or a :class:`CountMechanism`.
        population: The joint table ``P[d1, …, dn]``; for a count mechanism, the law of the number of ones.
        independence: What "independent" means in Definition 4. ``"mutual"``: the data points are independent.
            ``"pairwise-conditional"``: the condition as printed, each two are independent given the others; with three
            points or more and zeros in the population it allows copies, and the definition is stronger than DP.

    Returns:
        The definitions by number.

    Example:
        >>> result = definitions([[0.75, 0.25], [0.25, 0.75]], [0.5, 0.5])
        >>> [round(result[k].epsilon, 4) for k in (1, 3, 7)]
        [1.0986, 1.0986, 1.0986]

    Reference:
        Tschantz, Sen and Datta, Differential Privacy as a Causal Property, Definitions 1-8 and 10, Table 1, Figure 2.
    """
    one_of("independence", independence, ("mutual", "pairwise-conditional"))
    known = as_mechanism(mechanism)
    compare = CountComparisons(known) if isinstance(known, CountMechanism) else TableComparisons(known)
    neighbours = compare.neighbours()
    found: dict[Number, Comparison] = dict.fromkeys((1, 2, 3, 4, 5, 6), neighbours)
    found[3] = compare.all_pairs()
    if independence == "pairwise-conditional":
        found[4] = compare.near_or_far()
    law = None if population is None else compare.population(population)
    if law is not None:
        found[7] = compare.set_one(law)
    found[8] = neighbours
    if law is not None:
        found[10] = compare.neighbours(law)
        found["bayesian0"] = compare.see_one(law)
    return Definitions(
        {
            k: Definition(number=k, epsilon=c.epsilon, witness=c.witness, persons=c.persons, independence=independence)
            for k, c in found.items()
        }
    )


def _here(first: Definition, second: Definition, assumption: str) -> str:
    strong, weak = show_epsilon(first.epsilon), show_epsilon(second.epsilon)
    same = abs(first.epsilon - second.epsilon) < 1e-9 or first.epsilon == second.epsilon
    if assumption:
        return f"not needed here, ε = {weak} either way" if same else f"here ε is {weak}, not {strong}, without it"
    return f"here ε = {strong} in both" if same else f"here ε = {strong} and {weak}"


def _plain(epsilon: float) -> float | str:
    return "inf" if math.isinf(epsilon) else epsilon


# ---- comparisons


@dataclass(frozen=True, slots=True)
class Comparison:
    """The largest log ratio, for each data point, and a witness of the largest of all (None if nothing differs)."""

    epsilon: float
    persons: tuple[float, ...]
    witness: Witness | None


_Found = tuple[float, Witness | None]


class TableComparisons:
    """Comparisons of a mechanism's table over all databases."""

    def __init__(self, mechanism: Mechanism) -> None:
        self.mechanism = mechanism
        self.log = mechanism.log
        self.n = self.log.ndim - 1

    def population(self, values: Any) -> Array:
        """Check a joint table over databases."""
        population = probabilities("population", values, axis=None)
        if population.shape != self.log.shape[:-1]:
            raise InputError(
                f"population must have one entry per database, shape {self.log.shape[:-1]}; got {population.shape}."
            )
        return population

    def neighbours(self, population: Array | None = None) -> Comparison:
        """Compare databases that differ in one point; with a population, only where both have positive probability."""

        def person(i: int) -> _Found:
            top = low = np.moveaxis(self.log, i, -2)  # (others, v, o)
            if population is not None:
                inside = np.moveaxis(population, i, -1)[..., None] > 0
                top, low = np.where(inside, top, -np.inf), np.where(inside, low, np.inf)
            found = spread(top.max(axis=-2), low.min(axis=-2))
            *others, o = (int(k) for k in np.unravel_index(int(found.argmax()), found.shape))
            at = tuple(others)
            v, w = int(top[at][:, o].argmax()), int(low[at][:, o].argmin())
            first, second = (*others[:i], v, *others[i:]), (*others[:i], w, *others[i:])
            return float(found[(*others, o)]), self._between(first, second, o)

        return _over_people(range(self.n), person)

    def all_pairs(self, only: int | None = None) -> Comparison:
        """Compare any two databases that differ in the person's point, the others arbitrary; of one person ``only``."""

        def person(i: int) -> _Found:
            logs = np.moveaxis(self.log, i, 0)
            rest = logs.shape[1:-1]
            flat = logs.reshape(logs.shape[0], -1, logs.shape[-1])  # (v, others, o)
            high, low = flat.max(axis=1), flat.min(axis=1)
            best: _Found = (0.0, None)
            for v, w in ((v, w) for v in range(len(flat)) for w in range(len(flat)) if v != w):
                found = spread(high[v], low[w])
                o = int(found.argmax())
                if found[o] > best[0]:
                    d = np.unravel_index(int(flat[v, :, o].argmax()), rest)
                    e = np.unravel_index(int(flat[w, :, o].argmin()), rest)
                    best = float(found[o]), self._between((*d[:i], v, *d[i:]), (*e[:i], w, *e[i:]), o)
            return best

        return _over_people(range(self.n) if only is None else [only], person)

    def near_or_far(self) -> Comparison:
        """Compare databases that differ in exactly one point or in at least three: Definition 4 as printed.

        Pairwise conditional independence allows two-point populations on databases at distance 1 or >= 3, but not 2.
        """
        databases = np.stack([axis.ravel() for axis in np.indices(self.log.shape[:-1])], axis=1)
        logs = self.log.reshape(len(databases), -1)

        def person(i: int) -> _Found:
            best: _Found = (0.0, None)
            for o, column in enumerate(logs.T):
                for d in np.argsort(-column):  # from the most likely down, until no partner could beat the best
                    if spread(column[d], column.min()) <= best[0]:
                        break
                    distance = (databases != databases[d]).sum(axis=1)
                    allowed = ((distance == 1) | (distance >= 3)) & (databases[:, i] != databases[d, i])
                    if not allowed.any():
                        continue
                    e = int(np.where(allowed, column, np.inf).argmin())
                    if (value := float(spread(column[d], column[e]))) > best[0]:
                        best = value, self._between(databases[d], databases[e], o)
            return best

        return _over_people(range(self.n), person)

    def set_one(self, population: Array) -> Comparison:
        """Compare do(Di = v) with do(Di = w), the other points distributed as in the population."""

        def person(i: int) -> _Found:
            others = log_of(population.sum(axis=i).ravel())
            logs = np.moveaxis(self.log, i, 0).reshape(self.log.shape[i], others.size, -1)
            return self._within(i, np.stack([average(others, row) for row in logs]), range(self.log.shape[i]))

        return _over_people(range(self.n), person)

    def see_one(self, population: Array) -> Comparison:
        """Compare conditioning on Di = v with Di = w, wherever both have positive probability."""

        def person(i: int) -> _Found:
            weights = np.moveaxis(population, i, 0).reshape(self.log.shape[i], -1)
            logs = np.moveaxis(self.log, i, 0).reshape(*weights.shape, -1)
            marginal = weights.sum(axis=1)
            seen = np.flatnonzero(marginal > 0)
            laws = [average(log_of(weights[v] / marginal[v]), logs[v]) for v in seen]
            return self._within(i, np.stack(laws), seen.tolist())

        return _over_people(range(self.n), person)

    def _within(self, i: int, logs: Array, values: Sequence[int]) -> _Found:
        epsilon, (_, v, w, o) = largest_log_ratio(logs[None])
        name, labels = self.mechanism.points[i], self.mechanism.values[i]
        return epsilon, Witness(
            y={"O": self.mechanism.outputs[o]},
            x1={name: labels[values[v]]},
            x2={name: labels[values[w]]},
            probabilities=(float(np.exp(logs[v, o])), float(np.exp(logs[w, o]))),
        )

    def _between(self, first: Iterable[Any], second: Iterable[Any], o: int) -> Witness:
        d, e = tuple(map(int, first)), tuple(map(int, second))
        return Witness(
            y={"O": self.mechanism.outputs[o]},
            x1=self.mechanism.database(d),
            x2=self.mechanism.database(e),
            probabilities=(float(np.exp(self.log[(*d, o)])), float(np.exp(self.log[(*e, o)]))),
        )


def _over_people(people: Iterable[int], person: Callable[[int], _Found]) -> Comparison:
    found = [person(i) for i in people]
    epsilon, witness = max(found, key=lambda one: one[0])
    return Comparison(epsilon, tuple(f[0] for f in found), witness if epsilon > 0 else None)


class CountComparisons:
    """Comparisons of a count mechanism; see :class:`TableComparisons` for their meaning."""

    def __init__(self, mechanism: CountMechanism) -> None:
        self.mechanism = mechanism
        self.log = mechanism.log
        self.n = mechanism.n

    def population(self, values: Any) -> Array:
        """Check a law of the number of ones."""
        population = probabilities("population", values, axis=None)
        if population.shape != (self.n + 1,):
            raise InputError(
                f"for a count mechanism, population is the law of the number of ones: {self.n + 1} probabilities; "
                f"got shape {population.shape}."
            )
        return population

    def neighbours(self, population: Array | None = None) -> Comparison:
        """Compare counts that differ by one; with a population, only where both have positive probability."""
        allowed = np.ones(self.n, dtype=bool)
        if population is not None:
            allowed = (population[1:] > 0) & (population[:-1] > 0)
        return self._rows(np.arange(self.n)[allowed], np.arange(1, self.n + 1)[allowed])

    def all_pairs(self) -> Comparison:
        """Compare any two counts."""
        return self._comparison(*largest_log_ratio(self.log[None]))

    def near_or_far(self) -> Comparison:
        """Compare counts of databases that differ in one point or in at least three: Definition 4 as printed.

        Counts c and c' belong to databases at distance h if and only if h has the parity of c - c' and
        |c - c'| <= h <= min(c + c', 2n - c - c'). So only a difference of two needs a look: distance 4 allows it.
        """
        low = np.arange(max(self.n - 1, 0))
        low = low[np.minimum(2 * low + 2, 2 * self.n - 2 * low - 2) >= 4]
        near = max(self.neighbours(), self._rows(low, low + 2), key=lambda found: found.epsilon)
        if self.n < 3:
            return near
        # A difference of three or more: each row against the extremes of all rows at least three before it.
        later = self.log[3:]
        top, bottom = np.maximum.accumulate(self.log[:-3]), np.minimum.accumulate(self.log[:-3])
        falls, rises = spread(top, np.minimum(later, top)), spread(later, np.minimum(bottom, later))
        found = np.maximum(falls, rises)
        row, o = (int(i) for i in np.unravel_index(int(found.argmax()), found.shape))
        if found[row, o] <= near.epsilon:
            return near
        before = self.log[: row + 1, o]
        pair = (int(before.argmax()), row + 3) if falls[row, o] >= rises[row, o] else (row + 3, int(before.argmin()))
        return self._comparison(float(found[row, o]), (0, *pair, o))

    def set_one(self, population: Array) -> Comparison:
        """Compare do(Di = 1) with do(Di = 0), the others distributed as in the population."""
        counts = np.arange(self.n)
        others = population[:-1] * (self.n - counts) / self.n + population[1:] * (counts + 1) / self.n
        weights = log_of(others)
        return self._values(np.stack([average(weights, self.log[:-1]), average(weights, self.log[1:])]), (0, 1))

    def see_one(self, population: Array) -> Comparison:
        """Compare conditioning on Di = 1 with Di = 0, wherever both have positive probability."""
        share = np.arange(self.n + 1) / self.n
        weights = np.stack([population * (1 - share), population * share])
        marginal = weights.sum(axis=1)
        seen = np.flatnonzero(marginal > 0)
        laws = [average(log_of(weights[v] / marginal[v]), self.log) for v in seen]
        return self._values(np.stack(laws), tuple(seen.tolist()))

    def _rows(self, first: Any, second: Any) -> Comparison:
        """Compare rows ``first[k]`` and ``second[k]``, both ways."""
        if len(first) == 0:
            return Comparison(0.0, (0.0,) * self.n, None)
        epsilon, (k, one, two, o) = largest_log_ratio(np.stack([self.log[first], self.log[second]], axis=1))
        rows = (int(first[k]), int(second[k]))
        return self._comparison(epsilon, (0, rows[one], rows[two], o))

    def _comparison(self, epsilon: float, place: tuple[int, int, int, int]) -> Comparison:
        _, c1, c2, o = place
        return self._found(epsilon, o, {"count": c1}, {"count": c2}, self.log[[c1, c2], o])

    def _values(self, logs: Array, values: tuple[int, ...]) -> Comparison:
        epsilon, (_, v, w, o) = largest_log_ratio(logs[None])
        return self._found(epsilon, o, {"D1": values[v]}, {"D1": values[w]}, logs[[v, w], o])

    def _found(self, epsilon: float, o: int, x1: dict[str, int], x2: dict[str, int], logs: Array) -> Comparison:
        chances = (float(np.exp(logs[0])), float(np.exp(logs[1])))
        witness = Witness(y={"O": self.mechanism.outputs[o]}, x1=x1, x2=x2, probabilities=chances)
        return Comparison(epsilon, (epsilon,) * self.n, witness if epsilon > 0 else None)
