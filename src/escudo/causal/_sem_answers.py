"""What a structural equation model answers with: distributions, kernels, and views after evidence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product as combinations
from typing import TYPE_CHECKING, overload

from escudo._card import card
from escudo.causal._inference import Array, Factor
from escudo.causal._sem_values import Value
from escudo.errors import InputError, ZeroProbabilityError

if TYPE_CHECKING:
    from escudo.causal._sem import SEM

__all__ = ["Distribution", "Given", "Law", "conditional"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Distribution(Mapping[Value, float]):
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
    def array(self) -> Array:
        """Probabilities, with one axis per variable."""
        return self.law.array

    @property
    def log(self) -> Array:
        """Natural logarithms of the probabilities, right also below the smallest float."""
        return self.law.log

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
        title = f"Law of {', '.join(self.names)}"
        points = combinations(*self.ranges)
        rows = ((*point, f"{share:.6g}") for point, share in zip(points, self.array.flat, strict=False))
        return card(title, head=(*self.names, "probability"), rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Law:
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
    def array(self) -> Array:
        """Probabilities; they sum to 1 over the axes of Y."""
        return self.kernel.array

    @property
    def log(self) -> Array:
        """Natural logarithms: minus infinity exactly where the probability is zero."""
        return self.kernel.log


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


def conditional(joint: Factor, evidence: Factor, seen: Mapping[str, int]) -> Factor:
    """Return ``joint / evidence``, the law given evidence whose probability is ``evidence``; raise if that is zero."""
    if float(evidence.log) == -math.inf:
        raise ZeroProbabilityError(
            f"The evidence on {', '.join(seen)} has probability zero, so nothing follows from it. To ask what would "
            "happen if these values were set, intervene instead: do(...)."
        )
    if joint.lossy or evidence.lossy:
        return Factor.from_log(joint.names, joint.log - evidence.log)
    return Factor(joint.names, joint.array / float(evidence.array))
