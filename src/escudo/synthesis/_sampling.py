r"""Drawing rows from laws, under interventions and conditions: first cells, low in variance, then values.

**One node.** Rows with equal parents form a group; in a group of m rows, in random order, row j takes the value at
quantile (j + u) / m of p(x | parents), with one uniform u. Each row alone has exactly the law p(x | parents), and the
counts of the group miss their expectation by less than one: synthetic tables show the model, not the dice. Where there
are more ways to combine parents than rows, and the law is no table, all rows form one group.

**do.** Nodes under intervention are constant; their conditionals are not used (truncated factorisation).

**given.** Only what the evidence is given, directly or not, has another law; all else follows as without it. That law
is exact where the tables stay small: eliminate its nodes one by one, keep each product before its sum, and walk back;
each product restricted to what is known is the next conditional. Otherwise likelihood weighting: clamp the evidence,
weigh rows by its probability, resample.

**Values.** Levels for categories, numbers inside their bins, nulls for the missing cell. Inside a bin of height h with
neighbours of heights a and b the density is taken as linear, rising from :math:`h(1-s)` to :math:`h(1+s)` with
:math:`s = (b - a) / 4h` held to [-1, 1]: it keeps the bin's mass, follows the slope of the histogram and is never
negative. A bin without such evidence is uniform. Everything is computed from drawn cells, never from data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError, ZeroProbabilityError
from escudo.synthesis._laws import (
    MAX_TABLE_CELLS,
    Codes,
    Conditional,
    Floats,
    TableConditional,
    ancestors,
    dense_table,
)
from escudo.table import Categorical, Numeric, Schema

if TYPE_CHECKING:
    import polars as pl

_MAX_EXACT_CELLS = 2**22
_WEIGHTED_FACTOR = 20
_POOL_NUMBERS = 2**25  # codes held at once in the pool that weighted rows are taken from
_CHUNK = 2**24  # probabilities held at once while drawing without groups


def drawer(
    order: Sequence[str],
    conditionals: Mapping[str, Conditional],
    *,
    fixed: Mapping[str, int],
    evidence: Mapping[str, int],
) -> Callable[..., dict[str, Codes]]:
    """Return what draws rows from the law under ``fixed``, conditioned on ``evidence``: called with ``rows, rng=rng``.

    What can be computed before the first row is computed here, so that blocks of rows share it.

    Raises:
        ZeroProbabilityError: If the evidence cannot happen under the model; maybe only once rows are drawn.
    """
    if not evidence:
        return partial(draw, order, conditionals, fixed=fixed)
    steps = _conditioned(ancestors(conditionals, evidence, fixed), conditionals, fixed=fixed, evidence=evidence)
    if steps is not None:
        known = {**fixed, **evidence}
        later = [node for node in order if node not in known and node not in steps]
        return partial(draw, [*known, *steps, *later], {**conditionals, **steps}, fixed=known)
    return partial(_weighted, order, conditionals, fixed=fixed, evidence=evidence)


def draw(
    order: Sequence[str],
    conditionals: Mapping[str, Conditional],
    rows: int,
    *,
    fixed: Mapping[str, int],
    rng: np.random.Generator,
) -> dict[str, Codes]:
    """Return the codes of ``rows`` rows, node by node along ``order``, with ``fixed`` nodes set by intervention."""
    codes: dict[str, Codes] = {}
    for node in order:
        if node in fixed:
            codes[node] = np.full(rows, fixed[node], dtype=np.int64)
        else:
            conditional = conditionals[node]
            parents = [codes[parent] for parent in conditional.parents]
            codes[node] = _draw_node(conditional, parents, rows, rng)
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
    group = np.zeros(rows, dtype=np.int64)
    for code, size in zip(parents, conditional.parent_sizes, strict=True):
        group = group * size + code
    # Narrow integers are sorted by their digits, in linear time.
    group = group.astype(np.min_scalar_type(math.prod(conditional.parent_sizes)))
    shuffled = rng.permutation(rows)
    order = shuffled[np.argsort(group[shuffled], kind="stable")]
    ordered = group[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    counts = np.diff(np.r_[starts, rows])
    position = np.arange(rows) - np.repeat(starts, counts)
    quantile = (position + np.repeat(rng.random(starts.size), counts)) / np.repeat(counts, counts)
    laws = conditional.table.reshape(-1, conditional.size)[ordered[starts]]
    codes = np.empty(rows, dtype=np.int64)
    codes[order] = values_at(laws, np.repeat(np.arange(starts.size), counts), quantile)
    return codes


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


def values_at(laws: Floats, row: Codes, quantile: Floats) -> NDArray[np.int64]:
    """Return the value at ``quantile`` of ``laws[row]``, never one of probability zero."""
    cumulative = np.cumsum(laws, axis=1)
    cumulative /= cumulative[:, -1:]
    offset = np.arange(len(laws), dtype=np.float64)[:, None] * 2.0  # rows apart, so that one search serves all
    flat = (cumulative + offset).ravel()
    found = np.searchsorted(flat, quantile + 2.0 * row, side="right") - row * laws.shape[1]
    last = laws.shape[1] - 1 - np.argmax(laws[:, ::-1] > 0, axis=1)
    codes: NDArray[np.int64] = np.minimum(found, last[row]).astype(np.int64)
    return codes


# ---- given


def _conditioned(
    order: Sequence[str],
    conditionals: Mapping[str, Conditional],
    *,
    fixed: Mapping[str, int],
    evidence: Mapping[str, int],
) -> dict[str, TableConditional] | None:
    """Return the conditioned law as tables in an order to draw along, or None where a table would be too large."""
    known = {**fixed, **evidence}
    sizes = {node: conditionals[node].size for node in order}
    factors: list[tuple[tuple[str, ...], Floats]] = []
    for node in order:
        if node in fixed:
            continue
        conditional = conditionals[node]
        names = (*conditional.parents, node)
        if np.prod([sizes[name] for name in names], dtype=np.float64) > _MAX_EXACT_CELLS:
            return None
        table = dense_table(conditional)[tuple(known.get(name, slice(None)) for name in names)]
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
    order: Sequence[str],
    conditionals: Mapping[str, Conditional],
    rows: int,
    *,
    fixed: Mapping[str, int],
    evidence: Mapping[str, int],
    rng: np.random.Generator,
) -> dict[str, Codes]:
    """Likelihood weighting, as many rows at a time as a pool of many more of them fits into memory."""

    def part(rows: int) -> dict[str, Codes]:
        pool = max(rows * _WEIGHTED_FACTOR, 10_000)
        codes = draw(order, conditionals, pool, fixed={**fixed, **evidence}, rng=rng)
        log_weight = np.zeros(pool)
        for node, value in evidence.items():
            law = conditionals[node]
            parents = np.stack([codes[parent] for parent in law.parents], axis=1) if law.parents else None
            laws = law.probabilities(np.zeros((1, 0), dtype=np.int64) if parents is None else parents)
            with np.errstate(divide="ignore"):
                log_weight += np.log(np.broadcast_to(laws[:, value], (pool,)))
        if not np.isfinite(log_weight.max()):
            raise _impossible(evidence)
        chosen = rng.permutation(resample(log_weight, rows, evidence, rng))
        return {node: column[chosen] for node, column in codes.items()}

    step = max(_POOL_NUMBERS // (_WEIGHTED_FACTOR * len(order)), 1)
    parts = [part(min(step, rows - start)) for start in range(0, max(rows, 1), step)]
    return {node: np.concatenate([each[node] for each in parts]) for node in order}


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


def decode(schema: Schema, codes: Mapping[str, Codes], *, rng: np.random.Generator) -> pl.DataFrame:
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
    return pl.select(pl.when(pl.Series(present)).then(pl.Series(whole)).alias(column.name)).to_series()


def as_integers(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return whole numbers as integers; those that a schema allows but 64 bits do not hold are moved to their ends."""
    return np.clip(numbers, -(2.0**63), 2.0**63 - 1024).astype(np.int64)


def _inside_bins(column: Numeric, codes: Codes, rng: np.random.Generator) -> NDArray[np.float64]:
    boundaries = column.boundaries
    low, width = boundaries[:-1], np.diff(boundaries)
    heights = np.bincount(codes, minlength=column.bins) / width
    before, after = np.r_[heights[:1], heights[:-1]], np.r_[heights[1:], heights[-1:]]
    slope = np.divide(after - before, 4 * heights, out=np.zeros_like(heights), where=heights > 0).clip(-1, 1)
    uniform, s = rng.random(codes.size), slope[codes]
    # The share of the bin below t is (1 - s) t + s t², so t solves a quadratic; this form has no cancellation.
    share = 2 * uniform / ((1 - s) + np.sqrt((1 - s) ** 2 + 4 * s * uniform))
    share = np.where(uniform == 0, 0.0, share)
    if not column.integer:
        values = low[codes] + share * width[codes]
        inner = np.nextafter(boundaries[1:], -np.inf)
        inner[-1] = boundaries[-1]
        return np.minimum(values, inner[codes])
    first = np.ceil(boundaries[:-1])
    last = np.ceil(boundaries[1:]) - 1
    last[-1] = np.floor(boundaries[-1])
    count = last - first + 1
    whole = first[codes] + np.minimum(np.floor(share * count[codes]), count[codes] - 1)
    middle = np.round(low + width / 2).clip(np.ceil(boundaries[0]), np.floor(boundaries[-1]))
    return np.where(count[codes] > 0, whole, middle[codes])
