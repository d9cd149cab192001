r"""Laws: what a column's value depends on, p(x | parents) over schema cells; which hold under do(), and rows drawn.

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

**Drawing rows**, under interventions and conditions: first cells, low in variance, then values.

*One node.* Rows with equal parents form a group; in a group of m rows, in random order, row j takes the value at
quantile (j + u) / m of p(x | parents), with one uniform u. Each row alone has exactly the law p(x | parents), and the
counts of the group miss their expectation by less than one: synthetic tables show the model, not the dice. Where there
are more ways to combine parents than rows, and the law is no table, all rows form one group.

*do.* Nodes under intervention are constant; their conditionals are not used (truncated factorisation).

*given.* Only what the evidence is given, directly or not, has another law; all else follows as without it. That law
is exact where the tables stay small: eliminate its nodes one by one, keep each product before its sum, and walk back;
each product restricted to what is known is the next conditional. Otherwise likelihood weighting: clamp the evidence,
weigh rows by its probability, resample.

*Values.* Levels for categories, numbers inside their bins, nulls for the missing cell. Inside a bin of height h with
neighbours of heights a and b the density is taken as linear, rising from :math:`h(1-s)` to :math:`h(1+s)` with
:math:`s = (b - a) / 4h` held to [-1, 1]: it keeps the bin's mass, follows the slope of the histogram and is never
negative. A bin without such evidence is uniform. Everything is computed from drawn cells, never from data. Between
stated or chosen edges of one sign that are a factor of ``_FAR`` apart or more, and in the bin that ends at the bound
furthest from zero, the density is a power of the number, as in a heavy tail: the one by which this bin and its
neighbour towards zero have as many rows as they have. A bin whose neighbour is at zero is like all others. How far away
a bound was stated says little of the numbers, so the mean of that last bin is at most three times the edge it starts
from, as in a Pareto law of index 1.5: incomes and wealth have larger indices. A bin of less than a billionth of the
range is one number: zero if it holds it, else the bound it lies at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError, ZeroProbabilityError
from escudo.synthesis._structure import graph_of
from escudo.table import Categorical, Numeric, Schema

if TYPE_CHECKING:
    import polars as pl

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


# ---- drawing rows

_MAX_EXACT_CELLS = 2**22
_WEIGHTED_FACTOR = 20
_POOL_NUMBERS = 2**25  # codes held at once in the pool that weighted rows are taken from
_CHUNK = 2**24  # probabilities held at once while drawing without groups


def drawer(
    laws: Mapping[str, Conditional], fixed: Mapping[str, int], evidence: Mapping[str, int]
) -> Callable[[int, np.random.Generator], dict[str, Codes]]:
    """Return what draws so many rows from the law under ``fixed``, conditioned on ``evidence``.

    What can be computed before the first row is computed here, so that blocks of rows share it.

    Args:
        laws: The law of each column, in an order to draw them.
        fixed: Columns that are set by intervention.
        evidence: Columns that are observed.

    Raises:
        ZeroProbabilityError: If the evidence cannot happen under the model; maybe only once rows are drawn.
    """
    if not evidence:
        return partial(draw, laws, fixed)
    steps = _conditioned(laws, fixed, evidence)
    if steps is None:
        return partial(_weighted, laws, fixed, evidence)
    known = {**fixed, **evidence}
    later = [node for node in laws if node not in known and node not in steps]
    return partial(draw, {node: steps.get(node, laws[node]) for node in (*known, *steps, *later)}, known)


def draw(
    laws: Mapping[str, Conditional], fixed: Mapping[str, int], rows: int, rng: np.random.Generator
) -> dict[str, Codes]:
    """Return the codes of ``rows`` rows, node by node in the order of ``laws``, ``fixed`` ones set by intervention."""
    codes: dict[str, Codes] = {}
    for node, law in laws.items():
        if node in fixed:
            codes[node] = np.full(rows, fixed[node], dtype=np.int64)
        else:
            codes[node] = _draw_node(law, [codes[parent] for parent in law.parents], rows, rng)
    return codes


def _draw_node(
    conditional: Conditional, parents: Sequence[Codes], rows: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    if rows == 0:
        return np.zeros(0, dtype=np.int64)
    if not isinstance(conditional, TableConditional):
        configurations = math.prod(conditional.parent_sizes)
        if configurations > rows or configurations * conditional.size > MAX_TABLE_CELLS:
            return _draw_rowwise(conditional, parents, rows, rng)
        conditional = TableConditional(conditional.parents, dense_table(conditional))
    # Narrow integers are sorted by their digits, in linear time.
    kind = np.min_scalar_type(math.prod(conditional.parent_sizes))
    group = np.zeros(rows, dtype=kind)
    for code, size in zip(parents, conditional.parent_sizes, strict=True):
        np.multiply(group, kind.type(size), out=group)
        np.add(group, code, out=group, casting="unsafe")
    counts = np.bincount(group)
    present = np.flatnonzero(counts)
    laws = conditional.table.reshape(-1, conditional.size)[present]
    order, shifts = shuffled_groups(group, present.size, rng)
    codes = np.empty(rows, dtype=np.int64)
    codes[order] = strata(laws, counts[present], shifts)
    return codes


def shuffled_groups(group: Codes, present: int, rng: np.random.Generator) -> tuple[Codes, Floats]:
    """Return the rows group by group, in random order within each; and where the quantiles of each begin.

    Row number i of n in a group has the quantile (i + shift) / n in it.

    Args:
        group: The group of each row.
        present: How many groups have rows.
        rng: What draws.
    """
    shuffled = rng.permutation(group.size)
    if present > 1:
        shuffled = shuffled[np.argsort(group[shuffled], kind="stable")]
    return shuffled, rng.random(present)


def strata(laws: Floats, counts: Codes, shifts: Floats) -> Codes:
    """Return the values of rows by their quantiles, group by group, never one of probability zero.

    Quantiles rise within a group, so a value is that of all rows up to a place: places are computed, not quantiles.

    Args:
        laws: The law of each group.
        counts: How many rows each has, at least 1.
        shifts: Where in the first of them its first quantile lies.
    """
    cumulative = np.cumsum(laws, axis=1)
    cumulative /= cumulative[:, -1:]
    offset = np.arange(len(laws), dtype=np.float64)[:, None] * 2.0  # as one search for all groups would round
    ends = reached(cumulative, counts, shifts, offset)
    lengths = np.diff(ends, axis=1, prepend=0, append=counts[:, None])
    last = laws.shape[1] - 1 - np.argmax(laws[:, ::-1] > 0, axis=1)
    values = np.minimum(np.arange(laws.shape[1] + 1), last[:, None]).astype(np.min_scalar_type(laws.shape[1]))
    return np.repeat(values.ravel(), lengths.ravel())


def reached(steps: Floats, counts: Codes, shifts: Floats, offset: Floats | float = 0.0) -> Codes:
    """Return how many rows of each group have quantiles below each step.

    About that many by arithmetic, and then by the comparison that each row would make: it depends on no rounding.

    Args:
        steps: Of each group, not falling, shape (groups, steps).
        counts: How many rows each has, at least 1.
        shifts: Where their quantiles begin.
        offset: Added to both sides of each comparison, to round as it does.
    """
    rows, shift = counts[:, None], shifts[:, None]
    raised = steps + offset

    def below(place: Codes) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = (place + shift) / rows + offset < raised
        return found

    ends = np.clip(np.ceil(steps * rows - shift), 0, rows).astype(np.int64)
    while (early := (ends < rows) & below(ends)).any():
        ends += early
    while (late := (ends > 0) & ~below(ends - 1)).any():
        ends -= late
    return ends


def _draw_rowwise(
    conditional: Conditional, parents: Sequence[Codes], rows: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    stacked = np.stack(parents, axis=1) if parents else np.zeros((rows, 0), dtype=np.int64)
    quantile = rng.permutation((np.arange(rows) + rng.random(rows)) / rows)
    codes = np.empty(rows, dtype=np.int64)
    step = max(1, _CHUNK // conditional.size)
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        laws = conditional.probabilities(stacked[part])
        laws = np.broadcast_to(laws, (part.stop - start, conditional.size))
        codes[part] = (np.cumsum(laws[:, :-1], axis=1) <= quantile[part, None]).sum(axis=1)
    return codes


# ---- drawing rows under a condition


def _conditioned(
    laws: Mapping[str, Conditional], fixed: Mapping[str, int], evidence: Mapping[str, int]
) -> dict[str, TableConditional] | None:
    """Return the conditioned law as tables in an order to draw along, or None where a table would be too large."""
    known, order = {**fixed, **evidence}, ancestors(laws, evidence, fixed)
    sizes = {node: laws[node].size for node in order}
    factors: list[tuple[tuple[str, ...], Floats]] = []
    for node in order:
        if node in fixed:
            continue
        names = (*laws[node].parents, node)
        if np.prod([sizes[name] for name in names], dtype=np.float64) > _MAX_EXACT_CELLS:
            return None
        table = dense_table(laws[node])[tuple(known.get(name, slice(None)) for name in names)]
        factors.append((tuple(name for name in names if name not in known), table))
    waiting = [node for node in order if node not in known]
    steps: list[tuple[str, TableConditional]] = []
    while waiting:
        node = min(waiting, key=lambda name: _scope_cells(name, factors, sizes))
        touching = [factor for factor in factors if node in factor[0]]
        factors = [factor for factor in factors if node not in factor[0]]
        scope = tuple(dict.fromkeys(name for names, _ in touching for name in names if name != node))
        if np.prod([sizes[name] for name in (*scope, node)], dtype=np.float64) > _MAX_EXACT_CELLS:
            return None
        joint = np.ones([sizes[name] for name in (*scope, node)])
        for names, table in touching:
            joint = joint * _aligned(table, names, (*scope, node))
        message = joint.sum(axis=-1)
        # A configuration that cannot happen given the evidence is never reached when walking back; any law will do.
        safe = np.where(message[..., None] > 0, joint, 1.0)
        steps.append((node, TableConditional(scope, safe / safe.sum(axis=-1, keepdims=True))))
        peak = message.max()
        if peak <= 0:
            raise _impossible(evidence)
        factors.append((scope, message / peak))
        waiting.remove(node)
    if any(table.min() <= 0 for names, table in factors if not names):
        raise _impossible(evidence)
    return dict(reversed(steps))


def _scope_cells(node: str, factors: Sequence[tuple[tuple[str, ...], Floats]], sizes: Mapping[str, int]) -> float:
    scope = {name for names, _ in factors if node in names for name in names}
    return float(np.prod([sizes[name] for name in scope], dtype=np.float64))


def _aligned(table: Floats, names: Sequence[str], axes: Sequence[str]) -> Floats:
    """Return ``table`` with its axes in the order of ``axes``, of length 1 where it lacks one."""
    order = sorted(range(len(names)), key=lambda axis: axes.index(names[axis]))
    shape = [table.shape[names.index(name)] if name in names else 1 for name in axes]
    return table.transpose(order).reshape(shape)


def _weighted(
    laws: Mapping[str, Conditional],
    fixed: Mapping[str, int],
    evidence: Mapping[str, int],
    rows: int,
    rng: np.random.Generator,
) -> dict[str, Codes]:
    """Likelihood weighting, as many rows at a time as a pool of many more of them fits into memory."""

    def part(rows: int) -> dict[str, Codes]:
        pool = max(rows * _WEIGHTED_FACTOR, 10_000)
        codes = draw(laws, {**fixed, **evidence}, pool, rng)
        log_weight = np.zeros(pool)
        for node, value in evidence.items():
            law = laws[node]
            parents = np.stack([codes[parent] for parent in law.parents], axis=1) if law.parents else None
            chances = law.probabilities(np.zeros((1, 0), dtype=np.int64) if parents is None else parents)
            with np.errstate(divide="ignore"):
                log_weight += np.log(np.broadcast_to(chances[:, value], (pool,)))
        if not np.isfinite(log_weight.max()):
            raise _impossible(evidence)
        chosen = rng.permutation(resample(log_weight, rows, evidence, rng))
        return {node: column[chosen] for node, column in codes.items()}

    step = max(_POOL_NUMBERS // (_WEIGHTED_FACTOR * len(laws)), 1)
    parts = [part(min(step, rows - start)) for start in range(0, max(rows, 1), step)]
    return {node: np.concatenate([each[node] for each in parts]) for node in laws}


def resample(log_weight: Floats, rows: int, evidence: Iterable[str], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return which rows of a pool are taken, by systematic resampling with their weights.

    Raises:
        InputError: If too few rows have all the weight; names the columns of the evidence.
    """
    weight = np.exp(log_weight - log_weight.max())
    if weight.sum() ** 2 < rows / 10 * (weight**2).sum():
        raise InputError(
            f"The condition on {', '.join(sorted(evidence))} is too rare under this model to draw {rows:,} rows from "
            "it; condition on fewer columns, or ask for fewer rows."
        )
    points = (np.arange(rows) + rng.random()) / max(rows, 1) * weight.sum()
    chosen: NDArray[np.int64] = np.minimum(np.searchsorted(np.cumsum(weight), points, side="right"), len(weight) - 1)
    return chosen


def _impossible(evidence: Mapping[str, int]) -> ZeroProbabilityError:
    return ZeroProbabilityError(
        f"The condition on {', '.join(sorted(evidence))} has probability zero under this model, so nothing can be "
        "drawn from it. An intervention (do=) on those columns is defined."
    )


# ---- from cells to values


def decode(schema: Schema, codes: Mapping[str, Codes], rng: np.random.Generator) -> pl.DataFrame:
    """Return the rows as a polars frame, columns in schema order, with values the schema allows and no others."""
    import polars as pl

    columns: list[pl.Series] = []
    for name, column in schema.columns.items():
        if isinstance(column, Categorical):
            kind = {"string": pl.String, "integer": pl.Int64, "boolean": pl.Boolean}[column.kind]
            levels = pl.Series(name, [*column.levels, None], dtype=kind)
            columns.append(levels.gather(codes[name]).alias(name))
        else:
            columns.append(_numbers(column, codes[name], rng))
    return pl.DataFrame(columns)


def _numbers(column: Numeric, codes: Codes, rng: np.random.Generator) -> pl.Series:
    import polars as pl

    present = codes < column.bins
    drawn = _inside_bins(column, codes[present], rng)
    if not column.integer:
        values = np.full(codes.shape, np.nan)
        values[present] = drawn
        return pl.Series(column.name, values, nan_to_null=True)
    whole = np.zeros(codes.shape, dtype=np.int64)
    whole[present] = as_integers(drawn)
    found = pl.select(pl.when(pl.Series(present)).then(pl.Series(whole)).alias(column.name)).to_series()
    return found if column.date is None else found.cast(pl.Date)


def as_integers(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return whole numbers as integers; those that a schema allows but 64 bits do not hold are moved to their ends."""
    return np.clip(numbers, -(2.0**63), 2.0**63 - 1024).astype(np.int64)


_FAR = 4.0
_STEEPEST = -6.0
_LARGEST_MEAN = 3.0  # of a tail, in parts of where it starts: that of a Pareto law of index 1.5
_ONE_NUMBER = 1e-9  # of the range


SPREAD = {"rule": "slope, power in tails", "far": _FAR, "steepest": _STEEPEST, "largest mean": _LARGEST_MEAN}
"""How numbers spread inside bins of unequal width, as model files say it (see the head of this file)."""


def _inside_bins(column: Numeric, codes: Codes, rng: np.random.Generator) -> NDArray[np.float64]:
    boundaries = column.boundaries
    low, width = boundaries[:-1], np.diff(boundaries)
    heights = np.bincount(codes, minlength=column.bins) / width
    uniform, s = rng.random(codes.size), _slopes(heights)[codes]
    # The share of the bin below t is (1 - s) t + s t², so t solves a quadratic; this form has no cancellation.
    share = 2 * uniform / ((1 - s) + np.sqrt((1 - s) ** 2 + 4 * s * uniform))
    share = np.where(uniform == 0, 0.0, share)
    if column.edges is not None and column.date is None:
        share = _far_shares(boundaries, heights, codes, uniform, share)
    if not column.integer:
        values = low[codes] + share * width[codes]
        inner = np.nextafter(boundaries[1:], -np.inf)
        inner[-1] = boundaries[-1]
        values = np.minimum(values, inner[codes])
        if (one := width <= _ONE_NUMBER * (boundaries[-1] - boundaries[0])).any():
            number = np.where((low <= 0) & (boundaries[1:] > 0), 0.0, low)
            number[-1] = boundaries[-1]
            values = np.where(one[codes], number[codes], values)
        return values
    first = np.ceil(boundaries[:-1])
    last = np.ceil(boundaries[1:]) - 1
    last[-1] = np.floor(boundaries[-1])
    count = last - first + 1
    whole = first[codes] + np.minimum(np.floor(share * count[codes]), count[codes] - 1)
    middle = np.round(low + width / 2).clip(np.ceil(boundaries[0]), np.floor(boundaries[-1]))
    return np.where(count[codes] > 0, whole, middle[codes])


def _slopes(heights: Floats) -> Floats:
    """Return how much each bin's density rises, from the heights of its neighbours."""
    before, after = np.r_[heights[:1], heights[:-1]], np.r_[heights[1:], heights[-1:]]
    slope: Floats = np.divide(after - before, 4 * heights, out=np.zeros_like(heights), where=heights > 0)
    return slope.clip(-1, 1)


def _far(boundaries: Floats) -> NDArray[np.bool_]:
    """Return in which bins numbers follow a power law: tails, with another bin of their sign towards zero."""
    inner, outer = np.sort(np.abs([boundaries[:-1], boundaries[1:]]), axis=0)
    same = np.sign(boundaries[:-1]) * np.sign(boundaries[1:]) > 0
    below = boundaries[1:] <= 0
    far = same & (outer / _FAR >= inner)
    far[-1] |= same[-1] & ~below[-1]
    far[0] |= same[0] & below[0]
    before, after = np.r_[False, same[:-1]], np.r_[same[1:], False]
    return np.asarray(far & np.where(below, after, before))


def typical_numbers(column: Numeric) -> Floats:
    """Return the number that each bin stands for: its middle; in a tail the mean of a Pareto law of index 2.

    Between a and b that is the harmonic mean of the two, 2ab / (a + b): the middle of a bin from 10,000 to a bound of
    5,000,000 that somebody stated would be none of the numbers that are in it.
    """
    low, high = column.boundaries[:-1], column.boundaries[1:]
    found = low / 2 + high / 2
    if column.integer:  # the mean of the whole numbers in the bin, which has its lower boundary and not its upper one
        last = np.ceil(high) - 1
        last[-1] = math.floor(high[-1])
        found = np.where(last >= np.ceil(low), (np.ceil(low) + last) / 2, found)
    if column.edges is None or column.date is not None:
        return found
    far = _far(column.boundaries) & (
        np.maximum(np.abs(low), np.abs(high)) >= _FAR * np.minimum(np.abs(low), np.abs(high))
    )
    return np.where(far, low * (2 / (1 + low / np.where(far, high, np.inf))), found)


def _far_shares(boundaries: Floats, heights: Floats, codes: Codes, uniform: Floats, share: Floats) -> Floats:
    """Return which part of its bin each number is past, by a power law where a bin's ends are far apart."""
    inner, outer = np.sort(np.abs([boundaries[:-1], boundaries[1:]]), axis=0)
    below = boundaries[1:] <= 0
    far = _far(boundaries)
    if not far.any():
        return share
    rows = np.bincount(codes, minlength=heights.size).astype(np.float64)
    power = np.full(heights.size, -1.0)
    for place in np.flatnonzero(far & (rows > 0)):
        nearer = place + (1 if below[place] else -1)
        if rows[nearer] > 0:
            power[place] = _power(inner[nearer], inner[place], outer[place], rows[place] / rows[nearer])
        if place == (0 if below[place] else heights.size - 1):
            power[place] = min(power[place], _flattest(outer[place] / inner[place]))
    more = np.where(np.abs(power + 1) < 1e-6, 1e-6, power + 1)[codes]
    ratio = np.where(far, outer / np.where(far, inner, 1.0), 2.0)[codes]
    u = np.where(below[codes], 1 - uniform, uniform)
    times = (1 + u * (ratio**more - 1)) ** (1 / more)
    part = ((times - 1) / (ratio - 1)).clip(0.0, 1.0)
    found: Floats = np.where(far[codes], np.where(below[codes], 1 - part, part), share)
    return found


def _power(near: float, edge: float, end: float, ratio: float) -> float:
    """Return the power by which there is ``ratio`` times as much from ``edge`` to ``end`` as from ``near`` to it."""
    before, after = math.log(edge / near), math.log(end / edge)
    return _falling(lambda power: _held(power, after) / -_held(power, -before), ratio)


def _flattest(ends: float) -> float:
    """Return the power of a tail that reaches ``ends`` times as far as it starts, and has the largest mean allowed."""
    after = math.log(ends)
    return _falling(lambda power: _held(power + 1, after) / _held(power, after), _LARGEST_MEAN)


def _held(power: float, logarithm: float) -> float:
    """Return the integral of a power from 1 to the number with this logarithm."""
    more = power + 1
    return logarithm if abs(more) < 1e-6 else math.expm1(more * logarithm) / more


def _falling(value: Callable[[float], float], wanted: float) -> float:
    """Return the power between the steepest and 0 with a value, which falls as the power gets steeper."""
    steep, flat = _STEEPEST, 0.0
    for _ in range(40):
        middle = (steep + flat) / 2
        if value(middle) > wanted:
            flat = middle
        else:
            steep = middle
    return (steep + flat) / 2
