"""The ten definitions of the paper for one mechanism: the smallest epsilon of each, where it is attained, and why.

Definitions 1, 2, 5, 6 and 8 always agree; 4 agrees under mutual independence; 3 is stronger; 7, 10 and Bayesian₀ for a
given population are weaker or not comparable. The numbers say so for the mechanism at hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from escudo._card import card
from escudo._validate import one_of
from escudo.effects._comparisons import Comparison, TableComparisons
from escudo.effects._counts import CountComparisons
from escudo.effects._effect import Witness, show_epsilon, show_times
from escudo.effects._mechanism import CountMechanism, Mechanism, as_mechanism
from escudo.errors import InputError

__all__ = ["Definition", "Definitions", "Implication", "Independence", "Number", "definitions"]

Number = Literal[1, 2, 3, 4, 5, 6, 7, 8, 10, "bayesian0"]
Independence = Literal["mutual", "pairwise-conditional"]

# Per definition: name, populations, point of comparison (Table 1 of the paper), relation to Definition 1, sentence.
_MEANING: dict[Number, tuple[str, str, str, str, str]] = {
    1: ("Differential privacy", "none", "Pr[A(d) = o]", "is DP",
        "Whatever the other data points are, changing one makes"),
    2: ("Strong adversary", "every", "Pr[O = o | D1, …, Dn]", "⇔ DP",
        "To someone who knows all other data points, learning the last one makes"),
    3: ("Bayesian₀", "every", "Pr[O = o | Di]", "⇒ DP",
        "Learning one data point, and through it others that go with it, makes"),
    4: ("Bayesian₀, independent points", "independent", "Pr[O = o | Di]", "⇔ DP",
        "Where data points are independent, learning one of them makes"),
    5: ("Whole database set, every population", "every", "Pr[O = o | do(D1, …, Dn)]", "⇔ DP",
        "Setting the whole database, with one data point changed, makes"),
    6: ("Whole database set", "given", "Pr[O = o | do(D1, …, Dn)]", "⇔ DP",
        "Setting the whole database, with one data point changed, makes"),
    7: ("One data point set", "given", "Pr[O = o | do(Di)]", "⇐ DP",
        "Setting one data point, while the others come as they do, makes"),
    8: ("One data point set, every population", "every", "Pr[O = o | do(Di)]", "⇔ DP",
        "Setting one data point, while the others come as they do, makes"),
    10: ("Strong adversary, given population", "given", "Pr[O = o | D1, …, Dn]", "⇐ DP",
        "Among databases that occur, one data point changed makes"),
    "bayesian0": ("Bayesian₀, given population", "given", "Pr[O = o | Di]", "neither",
        "Learning one data point, and through it others that go with it, makes"),
}  # fmt: skip
_PRINTED = (
    "Bayesian₀, points independent given the rest",
    "independent",
    "Pr[O = o | Di]",
    "⇒ DP",
    "Where each two data points are independent given the others, learning one of them makes",
)
_BOUNDED = {"every": ", in every population", "given": ", in the given population"}
_UNBOUNDED = {"every": ", in some population", "given": ", in the given population"}
_NEED_POPULATION = (7, 10, "bayesian0")


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
    def _meaning(self) -> tuple[str, str, str, str, str]:
        printed = self.number == 4 and self.independence == "pairwise-conditional"
        return _PRINTED if printed else _MEANING[self.number]

    @property
    def name(self) -> str:
        """What the definition is called."""
        return self._meaning[0]

    @property
    def populations(self) -> str:
        """Which populations it speaks about: none, every, independent or given."""
        return self._meaning[1]

    @property
    def compares(self) -> str:
        """The probability that should hardly change, as in Table 1 of the paper."""
        return self._meaning[2]

    @property
    def relation(self) -> str:
        """How it relates to differential privacy, for all mechanisms."""
        return self._meaning[3]

    @property
    def sentence(self) -> str:
        """The definition and its epsilon in one plain sentence."""
        lead = self._meaning[4]
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
        rows = [(k, d.name, show_epsilon(d.epsilon), d.compares, d.populations) for k, d in self._found.items()]
        return card("Definitions of privacy", head=("", "name", "ε", "compares", "populations"), rows=rows)

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
