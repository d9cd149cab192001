r"""Laws: what a column's value depends on, p(x | parents) over schema cells; and which of them hold under do().

| class | form | used by |
|---|---|---|
| ``TableConditional`` | one probability per parent configuration and value | ``marginals`` |
| ``LogitConditional`` | multinomial logit, one weight per parent level and value | ``moments`` |
| ``MaxConditional`` | binary child: the largest of one number per parent level, and a leak | ``moments``, monotone |
| ``NoisyOrConditional`` | binary child: each parent level fires on its own, and a leak | ``moments``, monotone |

All are frozen, hold arrays only, and say the same three things: ``parents``, ``size`` and ``probabilities``.

**Under do().** A model may know two laws of a column: one given its parents in the causal graph, and an *observed* one
given columns it goes with, in any order, where columns go together for more reasons than the graph states. Without an
intervention rows follow the observed laws. Under do(S), let D be the columns that the graph's arrows lead to from S,
and N all others. Then

.. math:: p(n, d \mid do(s)) = p_{obs}(n) \prod_{x \in D} p(x \mid pa_x).

*Nothing that is no effect of S changes*: N keeps the observed law. Effects follow the stated arrows only, so that no
intervention ever travels along a dependence that is not stated to be causal. Where there are no observed laws of their
own, this is the truncated factorisation; where the stated graph holds, the two are the same.

The observed law of N may be stated through columns of D and S *as they would have been*. They take part under another
name, are drawn by their observed laws, and are left out of what is returned.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError
from escudo.synthesis._structure import graph_of

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

MAX_TABLE_CELLS = 2**24
"""The largest dense table a conditional is ever spelled out into."""


@runtime_checkable
class Conditional(Protocol):
    """The law of one node given its parents."""

    kind: ClassVar[str]

    @property
    def parents(self) -> tuple[str, ...]:
        """The parents' names, in the order of the code columns that ``probabilities`` takes."""
        ...

    @property
    def parent_sizes(self) -> tuple[int, ...]:
        """How many cells each parent has."""
        ...

    @property
    def size(self) -> int:
        """How many cells the node has."""
        ...

    def probabilities(self, parents: Codes) -> Floats:
        """Return the law for each row: codes of shape (rows, parents) give shape (rows, size)."""
        ...

    def arrays(self) -> dict[str, Floats]:
        """Return everything the law is made of, to be stored."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TableConditional:
    """One probability per configuration of the parents: ``table[pa_1, ..., pa_k, x]``, rows summing to 1.

    >>> TableConditional(("smoke",), np.array([[0.99, 0.01], [0.9, 0.1]])).probabilities(np.array([[1]]))
    array([[0.9, 0.1]])
    """

    parents: tuple[str, ...]
    table: Floats
    kind: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        table = np.asarray(self.table, dtype=np.float64)
        if table.ndim != len(self.parents) + 1 or table.shape[-1] < 1:
            raise InputError("A conditional table needs one axis per parent and one for the node itself.")
        totals = table.sum(axis=-1)
        if not (np.isfinite(table).all() and (table >= 0).all() and np.allclose(totals, 1.0, atol=1e-6)):
            raise InputError("A conditional table must hold probabilities that sum to 1 for each parent configuration.")
        object.__setattr__(self, "table", _frozen(table / totals[..., None]))

    @property
    def parent_sizes(self) -> tuple[int, ...]:
        """How many cells each parent has."""
        return self.table.shape[:-1]

    @property
    def size(self) -> int:
        """How many cells the node has."""
        return int(self.table.shape[-1])

    def probabilities(self, parents: Codes) -> Floats:
        """Return the law for each row of parent codes."""
        rows: Floats = self.table[tuple(np.asarray(parents).T)] if self.parents else self.table[None, :]
        return rows

    def arrays(self) -> dict[str, Floats]:
        """Return the table."""
        return {"table": self.table}


@dataclass(frozen=True, slots=True, eq=False)
class LogitConditional:
    r"""Multinomial logit: :math:`p(x \mid pa) \propto \exp(b_x + \sum_j w_j[pa_j, x])`.

    Args:
        parents: The parents' names.
        intercept: Shape (size,).
        weights: For each parent an array of shape (cells of the parent, size).
    """

    parents: tuple[str, ...]
    intercept: Floats
    weights: tuple[Floats, ...]
    kind: ClassVar[str] = "logit"

    def __post_init__(self) -> None:
        intercept = np.asarray(self.intercept, dtype=np.float64)
        weights = tuple(np.asarray(weight, dtype=np.float64) for weight in self.weights)
        fits = intercept.ndim == 1 and len(weights) == len(self.parents)
        if not fits or any(weight.ndim != 2 or weight.shape[1] != intercept.size for weight in weights):
            raise InputError(
                "A logit conditional needs an intercept per value and a weight per parent level and value."
            )
        # Twice the largest sum of them is finite too, so that no row can leave the range of floating point.
        largest = sum(float(np.abs(array).max(initial=0.0)) for array in (intercept, *weights))
        if not math.isfinite(2 * largest):
            raise InputError("A logit conditional must hold finite numbers, of usual size.")
        object.__setattr__(self, "intercept", _frozen(intercept))
        object.__setattr__(self, "weights", tuple(_frozen(weight) for weight in weights))

    @property
    def parent_sizes(self) -> tuple[int, ...]:
        """How many cells each parent has."""
        return tuple(weight.shape[0] for weight in self.weights)

    @property
    def size(self) -> int:
        """How many cells the node has."""
        return int(self.intercept.size)

    def probabilities(self, parents: Codes) -> Floats:
        """Return the law for each row of parent codes."""
        codes = np.asarray(parents, dtype=np.int64).reshape(len(parents), len(self.parents))
        logits = np.repeat(self.intercept[None, :], max(len(codes), 1), axis=0)
        for position, weight in enumerate(self.weights):
            logits += weight[codes[:, position]]
        logits -= logits.max(axis=1, keepdims=True)
        odds: Floats = np.exp(logits)
        odds /= odds.sum(axis=1, keepdims=True)
        return odds

    def arrays(self) -> dict[str, Floats]:
        """Return intercept and weights."""
        return {"intercept": self.intercept} | {f"weight{i}": weight for i, weight in enumerate(self.weights)}


@dataclass(frozen=True, slots=True, eq=False)
class _Firing:
    """A binary child of parents that can each set it off: ``strength[j][level]`` in [0, 1), and a leak."""

    parents: tuple[str, ...]
    leak: float
    strengths: tuple[Floats, ...]
    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        strengths = tuple(np.asarray(strength, dtype=np.float64) for strength in self.strengths)
        if len(strengths) != len(self.parents) or any(strength.ndim != 1 for strength in strengths):
            raise InputError("A firing conditional needs one strength per level of each parent.")
        numbers = np.concatenate([np.array([self.leak]), *strengths])
        if not (np.isfinite(numbers).all() and (numbers >= 0).all() and (numbers <= 1).all()):
            raise InputError("Strengths and the leak must lie in [0, 1].")
        object.__setattr__(self, "leak", float(self.leak))
        object.__setattr__(self, "strengths", tuple(_frozen(strength) for strength in strengths))

    @property
    def parent_sizes(self) -> tuple[int, ...]:
        """How many cells each parent has."""
        return tuple(strength.size for strength in self.strengths)

    @property
    def size(self) -> int:
        """Two: off and on."""
        return 2

    def probabilities(self, parents: Codes) -> Floats:
        """Return the law for each row of parent codes."""
        codes = np.asarray(parents, dtype=np.int64).reshape(len(parents), len(self.parents))
        fired = [strength[codes[:, position]] for position, strength in enumerate(self.strengths)]
        on = self._on(np.stack([np.full(max(len(codes), 1), self.leak), *fired]))
        return np.stack([1.0 - on, on], axis=1)

    def _on(self, strengths: Floats) -> Floats:
        raise AssertionError  # each form states its own

    def arrays(self) -> dict[str, Floats]:
        """Return leak and strengths."""
        return {"leak": np.array([self.leak])} | {f"strength{i}": array for i, array in enumerate(self.strengths)}


class MaxConditional(_Firing):
    r"""Binary child, :math:`p(1 \mid pa) = \max(\mathrm{leak}, \max_j s_j[pa_j])`."""

    kind: ClassVar[str] = "max"

    def _on(self, strengths: Floats) -> Floats:
        largest: Floats = strengths.max(axis=0)
        return largest


class NoisyOrConditional(_Firing):
    r"""Binary child, :math:`p(1 \mid pa) = 1 - (1 - \mathrm{leak}) \prod_j (1 - s_j[pa_j])`."""

    kind: ClassVar[str] = "noisy-or"

    def _on(self, strengths: Floats) -> Floats:
        silent: Floats = np.prod(1.0 - strengths, axis=0)
        return 1.0 - silent


def _frozen(array: Floats) -> Floats:
    array = np.array(array, dtype=np.float64)
    array.flags.writeable = False
    return array


def conditional_from_arrays(kind: str, parents: Sequence[str], arrays: Mapping[str, Floats]) -> Conditional:
    """Rebuild the conditional that ``arrays()`` took apart.

    Raises:
        InputError: If the kind is unknown or an array is missing or not usable.
    """
    names = tuple(parents)
    try:
        if kind == "table":
            return TableConditional(names, arrays["table"])
        if kind == "logit":
            weights = tuple(arrays[f"weight{i}"] for i in range(len(names)))
            return LogitConditional(names, arrays["intercept"], weights)
        for form in (MaxConditional, NoisyOrConditional):
            if kind == form.kind:
                strengths = tuple(arrays[f"strength{i}"] for i in range(len(names)))
                return form(names, float(arrays["leak"][0]), strengths)
    except (KeyError, IndexError):
        raise InputError(f"A {kind!r} conditional lacks one of its arrays; the model file is damaged.") from None
    raise InputError(f"Unknown kind of conditional {kind!r}; this model needs a newer escudo.")


def dense_table(conditional: Conditional) -> Floats:
    """Spell a conditional out as ``[pa_1, ..., pa_k, x]``.

    Raises:
        InputError: If that has more than ``MAX_TABLE_CELLS`` cells.
    """
    if isinstance(conditional, TableConditional):
        return conditional.table
    sizes = conditional.parent_sizes
    if math.prod(sizes) * conditional.size > MAX_TABLE_CELLS:
        raise InputError(
            f"A node with {len(sizes)} parents has too many parent configurations for an exact answer; sample instead."
        )
    codes = np.indices(sizes, dtype=np.int64).reshape(len(sizes), math.prod(sizes)).T
    return conditional.probabilities(codes).reshape(*sizes, conditional.size)


# ---- which laws hold under do()


def laws_under(
    causal: Mapping[str, Conditional], observed: Mapping[str, Conditional], fixed: Collection[str]
) -> dict[str, Conditional]:
    """Return the laws to draw along when ``fixed`` columns are set, in an order to draw them.

    Args:
        causal: The law of each column given its parents in the graph.
        observed: The laws that hold without an intervention, in an order of their own; none if the causal ones do.
        fixed: The columns that are set; their own laws are not used.

    Returns:
        A law for each column, and for those that are needed as they would have been, by a name that no column has.
    """
    if not fixed or not observed:
        laws = dict(observed or causal)
        return {name: laws[name] for name in causal_order(laws)}
    moved = _affected(causal, fixed)
    shadow = _shadows(moved, causal)
    laws = {}
    waiting = [name for name in causal if name not in moved]
    while waiting:
        name = waiting.pop()
        as_it_was = shadow.get(name, name)
        if as_it_was not in laws:
            waiting += [parent for parent in observed[name].parents if parent in moved]
            laws[as_it_was] = _renamed(observed[name], shadow)
    laws |= {name: law for name, law in causal.items() if name in moved}
    return {name: laws[name] for name in causal_order(laws, fixed)}


def causal_order(laws: Mapping[str, Conditional], fixed: Collection[str] = ()) -> tuple[str, ...]:
    """Return the columns with what they are given before them; fixed ones need nothing before them.

    Raises:
        GraphError: If there is a cycle.
    """
    return graph_of({name: () if name in fixed else law.parents for name, law in laws.items()}).topological_order()


def ancestors(laws: Mapping[str, Conditional], columns: Iterable[str], fixed: Collection[str]) -> list[str]:
    """Return columns and all that they are given, directly or not, in the order of the laws."""
    needed: set[str] = set()
    waiting = list(columns)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += () if name in fixed else laws[name].parents
    return [name for name in laws if name in needed]


def _affected(causal: Mapping[str, Conditional], fixed: Collection[str]) -> set[str]:
    """Return the fixed columns and all that arrows lead to from them."""
    moved = set(fixed)
    for name in causal_order(causal):
        if not moved.isdisjoint(causal[name].parents):
            moved.add(name)
    return moved


def _shadows(names: Collection[str], taken: Collection[str]) -> dict[str, str]:
    """Return for each column a name that no column has."""
    mark = "′"
    while any(f"{name}{mark}" in taken for name in names):
        mark += "′"
    return {name: f"{name}{mark}" for name in names}


def _renamed(law: Conditional, names: Mapping[str, str]) -> Conditional:
    """Return a law with its parents under other names; every form of law is a frozen dataclass."""
    parents = tuple(names.get(parent, parent) for parent in law.parents)
    return cast(Conditional, replace(cast(Any, law), parents=parents))
