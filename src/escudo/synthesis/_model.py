r"""The released model: a causal graph with a law per node, to be sampled, intervened on, saved; and its effects.

A model holds no row of the table it was fitted on: only its schema, its graph, noisy parameters and the guarantee they
were bought under. Everything done with it afterwards is post-processing and costs nothing.

:class:`Model` is what all models are, :class:`CellModel` one that draws rows of schema cells, :class:`CausalModel`
the one with a law per column. (``LinearModel`` is in ``_linear``, ``NeuralModel`` in ``neural``.)

**Effects** (:class:`ModelEffect`). The average effect of one column on another, read off a model: for each level of the
treatment it holds the law of the outcome under do(treatment = level), and its mean where the outcome is a number.

**Ranges** (:class:`EffectRange`). Where the direction of edges at the treatment x is open, each set P of columns that
may be its causes, because some graph of the class has just these, gives one law,

.. math:: p(y \mid do(x)) = \sum_p p(p)\, p(y \mid x, p),

which is p(y) if y is itself in P. All graphs with the same P agree on it, since P blocks every path into x; so these
are all the laws that the class allows (M. Maathuis, M. Kalisch, P. Bühlmann (2009), "Estimating high-dimensional
intervention effects from observational data", Annals of Statistics).
"""

from __future__ import annotations

import math
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypedDict, TypeVar, Unpack, get_args, overload

import numpy as np
from numpy.typing import NDArray

from escudo._card import card, number_of, plain, tracking
from escudo._files import to_pandas
from escudo._plot import panels, shares
from escudo._validate import did_you_mean, one_of, whole
from escudo.causal import CausalGraph
from escudo.errors import InputError, NotIdentifiableError, SchemaError, ZeroProbabilityError
from escudo.mechanisms import Purse
from escudo.privacy import Guarantee, Neighbours, Plan, Receipt
from escudo.synthesis._laws import (
    Codes,
    Conditional,
    ancestors,
    as_integers,
    causal_order,
    decode,
    dense_table,
    drawer,
    laws_under,
    typical_numbers,
)
from escudo.synthesis._mending import MENDED, mended_cells, mended_rows
from escudo.synthesis._structure import check_graph, check_identified, check_settled
from escudo.table import Categorical, Column, Numeric, PrivateTable, Schema, broken_rows, plain_values

if TYPE_CHECKING:
    import narwhals as nw
    import polars as pl

    from escudo.causal import Network
    from escudo.synthesis._effect_range import EffectRange

T = TypeVar("T", "pl.DataFrame", NDArray[np.int64])

FrameKind: TypeAlias = Literal["polars", "pandas", "pyarrow"]
"""The libraries in whose frames rows are returned."""

BLOCK = 2**19
"""How many rows are drawn at once."""


class _Options(TypedDict, total=False):
    """What :meth:`Model.sample` takes beside how many rows, whichever frame they come in."""

    do: Mapping[str, object] | None
    given: Mapping[str, object] | None
    columns: Sequence[str] | None
    seed: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Model(ABC):
    """A fitted generator: made under a guarantee, sampled for free.

    Attributes:
        schema: The public description of the columns it makes.
        graph: The DAG it follows, over the schema's columns (and latents, which it does not model).
        guarantee: What was promised to the people in the table.
        generator: The generator's name.
        plan: The budget tree that was spent.
        details: Public facts about the fit, for the report; ``rows`` is how many the table has, exactly where that is
            public, else noisy.
        stated: What is claimed about causes, where that is less than ``graph``: the graph as it was given, with its
            undirected edges, or one that names nothing. Along all else in ``graph`` columns merely go together.
        frames: Which kind of frame rows come in, if nobody says: the kind that came in, where that is a frame of
            pandas or a table of pyarrow. It is not kept in files: rows of a model that was loaded come as frames of
            polars.
    """

    schema: Schema
    graph: CausalGraph
    guarantee: Guarantee
    generator: str
    plan: Plan
    details: Mapping[str, Any] = field(default_factory=dict)
    stated: CausalGraph | None = None
    frames: FrameKind = "polars"

    @property
    @abstractmethod
    def order(self) -> tuple[str, ...]:
        """The columns with parents before children."""

    @overload
    def sample(self, rows: int, *, frame: Literal["polars"], **how: Unpack[_Options]) -> pl.DataFrame: ...

    @overload
    def sample(self, rows: int, *, frame: Literal["pandas"] | None = None, **how: Unpack[_Options]) -> Any: ...

    def sample(
        self,
        rows: int,
        *,
        do: Mapping[str, object] | None = None,
        given: Mapping[str, object] | None = None,
        columns: Sequence[str] | None = None,
        seed: int | None = None,
        frame: FrameKind | None = None,
    ) -> Any:
        """Draw synthetic rows; free of charge, as often as wanted.

        Args:
            rows: How many.
            do: Columns to set by intervention: incoming arrows are cut, so that causes of these columns keep their law
                and effects respond. Rows carry exactly the number that is set. A model of cells knows what a number
                does by its bin: effects respond to it as to any number in that bin.
            given: Columns to condition on: rows among those where they have these values, or numbers in these bins.
            columns: Which columns to return; all by default. Under ``do`` the graph need only settle these.
            seed: For repeatable draws.
            frame: Which kind of frame to return, ``"polars"``, ``"pandas"`` or ``"pyarrow"``; by default the kind that
                came in (``frames``).

        Returns:
            A frame with these columns; only values the schema allows.

        Raises:
            SchemaError: If ``do``, ``given`` or ``columns`` names a column, level or value the schema does not have.
            NotIdentifiableError: If what ``do`` does to these columns depends on something that the stated graph leaves
                open, or a latent that it states acts on an intervened column and on what it affects.
            ZeroProbabilityError: If ``given`` cannot happen under the model, or hardly with the rules of the schema.
            InputError: If ``given`` is too rare under the model.

        Every row holds the rules of the schema: rows that would break one are left out, also under ``do``.
        """
        import polars as pl

        kind = self.frames if frame is None else one_of("frame", frame, get_args(FrameKind))
        drawn = pl.concat(self.blocks(rows, do=do, given=given, columns=columns, seed=seed))
        return to_pandas(drawn) if kind == "pandas" else drawn.to_arrow() if kind == "pyarrow" else drawn

    def blocks(
        self,
        rows: int,
        *,
        do: Mapping[str, object] | None = None,
        given: Mapping[str, object] | None = None,
        columns: Sequence[str] | None = None,
        seed: int | None = None,
    ) -> Iterator[pl.DataFrame]:
        """Draw the rows of :meth:`sample` some at a time, so that any number of them can be written to a disk.

        Args:
            rows: As in :meth:`sample`, like all that follow.
            do: Columns to set by intervention.
            given: Columns to condition on.
            columns: Which columns to return.
            seed: For repeatable draws; together the blocks are the rows of :meth:`sample`.

        Returns:
            Iterator over polars frames of at most 2^19 rows; one without rows if none are asked for.

        Raises:
            EscudoError: As :meth:`sample`, before the first block.
        """
        import polars as pl

        wanted = self._wanted(columns)
        asked = self._asked(rows, do, given, wanted, seed)
        count, how = asked[0], asked[1:]
        numbers = {name: self._set_number(name, value) for name, value in by_column("do", do).items()}
        moved = moved_columns(self.schema, kept={*by_column("do", do), *by_column("given", given)})

        def exact(frame: pl.DataFrame) -> pl.DataFrame:
            kinds = frame.schema
            set_to = (pl.lit(x).cast(kinds[name]).alias(name) for name, x in numbers.items() if x is not None)
            return with_derived(self.schema, frame.with_columns(set_to), moved)

        def drawn(rows: int) -> pl.DataFrame:
            return exact(pl.concat(self._frames(rows, *how)))

        if not self.schema.rules and not self._derived:
            return (exact(frame).select(wanted) for frame in self._frames(count, *how))
        sizes = (min(BLOCK, count - start) for start in range(0, max(count, 1), BLOCK))
        keeping = partial(self._keeping, moved=moved)
        mended = None if do or given else partial(self._mended, moved=moved, rng=asked[-1])
        return (pl.concat(self._held(size, drawn, keeping, mended)).select(wanted) for size in sizes)

    def plot(
        self,
        columns: Sequence[str] | None = None,
        *,
        do: Mapping[str, object] | None = None,
        rows: int = 10_000,
        seed: int | None = None,
    ) -> list[Any]:
        """Draw how often each value of each column comes, from rows that are drawn for it; under ``do`` beside it.

        Args:
            columns: Which columns; all by default.
            do: Columns to set by intervention, as in :meth:`sample`.
            rows: How many rows to draw.
            seed: For repeatable draws.

        Returns:
            Axes of one figure, one for each column; ``[0].figure`` is that figure.

        Raises:
            EscudoError: As :meth:`sample`, or if matplotlib is not installed.
        """
        wanted = self._wanted(columns)
        asked = {"as it is": None} if not do else {"as it is": None, f"do({', '.join(map(str, do))})": do}
        drawn = {
            what: self.sample(rows, do=set_to, columns=wanted, seed=seed, frame="polars")
            for what, set_to in asked.items()
        }
        axes = panels(len(wanted))
        for place, name in zip(axes, wanted, strict=True):
            column = self.schema.columns[name]
            levels = column.levels if isinstance(column, Categorical) else None
            shares(place, name, {what: frame[name].to_list() for what, frame in drawn.items()}, levels)
        return axes

    def _keeping(self, frame: pl.DataFrame, moved: Mapping[str, str]) -> pl.DataFrame:
        """Return the rows that break no rule of the schema, and hold its bounds where columns were moved."""
        import narwhals as nw

        columns, kept = self.schema.columns, nw.from_native(frame)
        if self.schema.rules:
            kept = kept.filter(~broken_rows(self.schema.checked_rules, columns, plain_values(columns)))
        for _, outside in self._out_of_bounds(moved):  # clamped, they would be no difference any more
            kept = kept.filter(~outside | outside.is_null())
        return kept.to_native()

    def _out_of_bounds(self, moved: Mapping[str, str]) -> list[tuple[str, nw.Expr]]:
        """Return for each derived column, and for each that follows from one, which rows are beyond its bounds."""
        value_of, found = plain_values(self.schema.columns), []
        for derived in self._derived:
            for name in dict.fromkeys((derived.name, moved.get(derived.name, derived.name))):
                column = self.schema[name]
                assert isinstance(column, Numeric)
                found.append((derived.name, ~value_of(name).is_between(*column.bounds)))
        return found

    def _mended(self, frame: pl.DataFrame, moved: Mapping[str, str], rng: np.random.Generator) -> pl.DataFrame:
        """Return rows that hold what :meth:`_keeping` looks at, made of some that may not; none where none is found."""
        columns = self.schema.columns
        value_of = plain_values(columns)
        broken = [(rule.columns, rule.broken(columns, value_of)) for rule in self.schema.checked_rules]
        beyond = [((name,), outside) for name, outside in self._out_of_bounds(moved)]
        derived = partial(with_derived, self.schema, moved=moved)
        return mended_rows(self.schema, frame, moved, derived, [*broken, *beyond], rng)

    @property
    def _derived(self) -> list[Numeric]:
        return [column for column in self.schema.fields if isinstance(column, Numeric) and column.derived is not None]

    def _held(
        self,
        rows: int,
        drawn: Callable[[int], T],
        keeping: Callable[[T], T],
        mended: Callable[[T], T] | None,
    ) -> list[T]:
        """Return rows that break no rule of the schema, in parts: others are drawn in place of those that do.

        Where hardly one holds, and nothing is set or observed, what is missing is ``mended``.

        Raises:
            ZeroProbabilityError: If no row holds the rules, or hardly one of those that were asked for.
        """
        first = drawn(rows)
        if not self.schema.rules and not self._derived:
            return [first]
        parts = [keeping(first)]
        found, tried = len(parts[0]), rows
        while found < rows:
            if tried >= _MOST_DRAWN * rows + _LEAST_DRAWN:
                made = drawn(0) if mended is None else mended(drawn(rows - found))
                if len(made):
                    warnings.warn(MENDED.format(tried=tried, found=found, missing=rows - found), stacklevel=2)
                    parts.append(made)
                    break
                raise ZeroProbabilityError(
                    f"Of {tried:,} rows that were drawn, {found:,} hold the rules of the schema and the bounds of what "
                    "is derived. Either what is set or observed hardly goes with them: ask for something they allow. "
                    "Or the model is mostly noise, which knows of neither: it takes more rows or a larger ε."
                )
            # As many as are likely to do, but no more than fit beside each other.
            wanted = min(int(1.1 * (rows - found) * tried / max(found, 1)) + 64, max(4 * rows, _LEAST_DRAWN))
            part = keeping(drawn(wanted))[: rows - found]
            parts.append(part)
            found, tried = found + len(part), tried + wanted
        return parts

    def _set_number(self, name: str, value: object) -> float | int | None:
        """Return the number or day that a column is set to; None where it has levels or is set to be missing.

        Raises:
            SchemaError: If the column holds whole numbers and this is none.
        """
        column = column_of(self.schema, "do", name)
        if not isinstance(column, Numeric) or value is None:
            return None
        number = number_within(column, "do", value)
        if not column.integer:
            return number
        if not number.is_integer():
            raise SchemaError(f"do: column {name!r} takes whole numbers; got {value!r}.")
        return int(as_integers(np.array([number]))[0])

    def _wanted(self, columns: Sequence[str] | None) -> list[str]:
        """Return the columns to draw, or name one that the schema does not have."""
        if columns is None:
            return list(self.schema.names)
        if isinstance(columns, str) or not columns:
            raise InputError(f"columns must be a list of at least one column; got {columns!r}.")
        for name in columns:
            column_of(self.schema, "columns", name)
        return list(dict.fromkeys(columns))

    def _asked(
        self,
        rows: int,
        do: Mapping[str, object] | None,
        given: Mapping[str, object] | None,
        columns: Sequence[str],
        seed: int | None,
    ) -> tuple[int, dict[str, Any], dict[str, Any], np.random.Generator]:
        """Return how many rows to draw, what is set, what is observed, and where the chance comes from."""
        rng = np.random.default_rng(None if seed is None else whole("seed", seed))
        fixed, evidence = self._question(do, given, columns)
        return whole("rows", rows), fixed, evidence, rng

    def _question(
        self, do: Mapping[str, object] | None, given: Mapping[str, object] | None, columns: Sequence[str]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what is set by intervention and what is observed, once the question about these columns makes sense.

        Raises:
            InputError: If a column is both set and observed, or ``do`` or ``given`` is no mapping.
            NotIdentifiableError: If the graph does not say what the intervention does to the columns asked for.
        """
        fixed, evidence = (
            {name: self._read(argument, name, value) for name, value in by_column(argument, values).items()}
            for argument, values in (("do", do), ("given", given))
        )
        for column in self._derived:
            if column.name in fixed or column.name in evidence:
                raise InputError(
                    f"{column.name} is derived from {' and '.join(column.derived or ())}; set or observe these instead."
                )
        if both := sorted(set(fixed) & set(evidence)):
            raise InputError(f"{', '.join(both)} cannot be both set (do) and observed (given); name it once.")
        self.check_do(fixed, [*columns, *evidence])
        return fixed, evidence

    @abstractmethod
    def _read(self, argument: str, name: str, value: object) -> Any:
        """Return a value of a column as the model knows it, or say what the schema does not have."""

    @abstractmethod
    def _frames(
        self, rows: int, fixed: dict[str, Any], evidence: dict[str, Any], rng: np.random.Generator
    ) -> Iterator[pl.DataFrame]:
        """Yield rows drawn where some columns are set and others observed, block by block; none are one empty block."""

    def check_do(self, intervened: Iterable[str], asked: Iterable[str]) -> None:
        """Refuse an intervention of which the graph does not say what it does to the columns that are asked for.

        Raises:
            NotIdentifiableError: Says what would have to be known.
        """
        if self.stated is not None:
            check_settled(self.stated, intervened, asked)
        check_identified(self.graph, intervened)

    def answers_do(self, name: str) -> bool:
        """Return whether a column can be set, and the graph settles what that does to all others."""
        if name in [column.name for column in self._derived]:
            return False
        try:
            self.check_do([name], self.schema.names)
        except NotIdentifiableError:
            return False
        return True

    def save(self, directory: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the model as ``model.json`` and ``parameters.safetensors`` into a new folder.

        Raises:
            InputError: If the folder exists and ``overwrite`` is false, or cannot be written.
        """
        from escudo.synthesis._files import describe, write_folder

        own, arrays = self._stored()
        write_folder(Path(directory), describe(self) | own, arrays, overwrite=overwrite)

    @abstractmethod
    def _stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what the model's files hold beside the fields that all models have: plain values, and arrays."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._facts())})"

    def _facts(self) -> list[str]:
        facts = [self.generator, number_of(len(self.schema.names), "column"), number_of(len(self.graph.edges), "arrow")]
        return ["WITHOUT PRIVACY", *facts] if self.guarantee.none else facts

    def __str__(self) -> str:
        article = "An" if self.generator.startswith(("a", "e", "i", "u")) else "A"  # "one-way" begins with a w
        return f"{article} {self.generator} model of {', '.join(self.schema.names)}. {self.guarantee}"

    def _repr_html_(self) -> str:
        from html import escape

        title = f"{escape(self.generator)} model, {len(self.schema.names)} columns"
        return f"<div><strong>{title}</strong><p>{escape(str(self.guarantee))}</p>{self.graph.to_svg()}</div>"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CellModel(Model):
    """A model that knows values by their cell in the schema, and draws rows of cells."""

    _block: ClassVar[int]  # rows drawn at once

    def codes(
        self,
        rows: int,
        *,
        do: Mapping[str, object] | None = None,
        given: Mapping[str, object] | None = None,
        columns: Sequence[str] | None = None,
        seed: int | None = None,
    ) -> NDArray[np.int64]:
        """Draw rows as schema cells, of shape (rows, columns)."""
        wanted = self._wanted(columns)
        asked = self._asked(rows, do, given, wanted, seed)
        needed = list(dict.fromkeys([*wanted, *(name for rule in self.schema.checked_rules for name in rule.columns)]))

        def drawn(rows: int) -> NDArray[np.int64]:
            parts = self._drawn_cells(rows, *asked[1:])
            return np.concatenate([np.stack([part[name] for name in needed], axis=1) for part in parts])

        masks = [(rule.columns, rule.shares(self.schema.columns) > 0) for rule in self.schema.checked_rules]

        def keeping(cells: NDArray[np.int64]) -> NDArray[np.int64]:
            kept = np.ones(len(cells), dtype=bool)
            for (one, other), mask in masks:
                kept &= mask[cells[:, needed.index(one)], cells[:, needed.index(other)]]
            return cells[kept]

        def mended(cells: NDArray[np.int64]) -> NDArray[np.int64]:
            places = [((needed.index(one), needed.index(other)), mask) for (one, other), mask in masks]
            return mended_cells(cells, places, asked[-1])

        held = self._held(asked[0], drawn, keeping, None if do or given else mended)
        return np.concatenate(held)[:, : len(wanted)]

    def _frames(
        self, rows: int, fixed: dict[str, int], evidence: dict[str, int], rng: np.random.Generator
    ) -> Iterator[pl.DataFrame]:
        return (decode(self.schema, drawn, rng) for drawn in self._drawn_cells(rows, fixed, evidence, rng))

    def _drawn_cells(
        self, rows: int, fixed: dict[str, int], evidence: dict[str, int], rng: np.random.Generator
    ) -> Iterator[Mapping[str, Codes]]:
        """Yield the rows as cells, in blocks that fit the processor's cache; no rows are one empty block."""
        drawn = self._drawer(fixed, evidence)
        blocks = range(0, max(rows, 1), self._block)
        with tracking("Sampling", total=len(blocks)) as advance:
            for start in blocks:
                yield drawn(min(self._block, rows - start), rng)
                advance(1)

    @abstractmethod
    def _drawer(
        self, fixed: Mapping[str, int], evidence: Mapping[str, int]
    ) -> Callable[[int, np.random.Generator], Mapping[str, Codes]]:
        """Return what draws so many cells by column where some are set and others observed."""

    def _read(self, argument: str, name: str, value: object) -> int:
        """Return the cell of a value, or say which level the schema does not have."""
        return cell_of(column_of(self.schema, argument, name), argument, value)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CausalModel(CellModel):
    """A generator that follows a causal graph, fitted under a guarantee.

    Attributes:
        schema: The public description of the columns it makes.
        graph: The DAG it follows, over the schema's columns (and latents, which it does not model).
        conditionals: The law of each column given its parents in ``graph``.
        observed: The laws that rows follow as long as nothing is set, where columns go together for more reasons than
            ``graph`` states; for all columns, or none (see ``_laws``).
        guarantee: What was promised to the people in the table.
        generator: The generator's name.
        plan: The budget tree that was spent.
        details: Public facts about the fit, for the report.
    """

    conditionals: Mapping[str, Conditional]
    observed: Mapping[str, Conditional] = field(default_factory=dict)
    _block: ClassVar[int] = BLOCK

    def __post_init__(self) -> None:
        check_graph(self.graph, self.schema)
        for laws in (self.conditionals, self.observed) if self.observed else (self.conditionals,):
            for name in self.schema.names:
                self._check_law(name, laws.get(name))
            if more := [name for name in laws if name not in self.schema.columns]:
                raise InputError(f"The model has a law for {more[0]!r}, which is no column of its schema.")
            causal_order(laws)  # raises on a cycle

    def _check_law(self, name: str, law: Conditional | None) -> None:
        if law is None or law.size != self.schema.columns[name].size:
            raise InputError(f"The model has no law for column {name!r} that fits its schema.")
        for parent, size in zip(law.parents, law.parent_sizes, strict=True):
            if parent not in self.schema.columns or self.schema.columns[parent].size != size:
                raise InputError(f"The law of column {name!r} does not fit its parent {parent!r}.")
        if len(set(law.parents)) < len(law.parents):
            raise InputError(f"The law of column {name!r} names a parent twice.")

    @property
    def order(self) -> tuple[str, ...]:
        """The columns with parents before children."""
        return causal_order({name: self.conditionals[name] for name in self.schema.names})

    def _drawer(
        self, fixed: Mapping[str, int], evidence: Mapping[str, int]
    ) -> Callable[[int, np.random.Generator], Mapping[str, Codes]]:
        return drawer(laws_under(self.conditionals, self.observed, fixed), fixed, evidence)

    def probability(
        self,
        columns: Sequence[str],
        *,
        do: Mapping[str, object] | None = None,
        given: Mapping[str, object] | None = None,
    ) -> NDArray[np.float64]:
        """Return the exact law of ``columns`` under the model, one axis per column over its cells.

        Raises:
            InputError: If the exact answer needs too large a table; sample instead.
        """
        from escudo.causal import Factor, contract

        for name in columns:
            column_of(self.schema, "columns", name)
        fixed, evidence = self._question(do, given, columns)
        laws = laws_under(self.conditionals, self.observed, fixed)
        rules = self.schema.checked_rules
        needed = ancestors(laws, [*columns, *evidence, *(name for rule in rules for name in rule.columns)], fixed)
        factors = []
        for name in needed:
            if name not in fixed:
                conditional = laws[name]
                factors.append(Factor((*conditional.parents, name), dense_table(conditional)))
        for name, cell in {**evidence, **{name: fixed[name] for name in needed if name in fixed}}.items():
            factors.append(Factor((name,), np.eye(self.schema.columns[name].size)[cell]))
        factors += [Factor(rule.columns, rule.shares(self.schema.columns)) for rule in rules]
        joint = contract(factors, list(columns))
        if joint.sum() <= 0:
            raise ZeroProbabilityError(
                f"The condition on {', '.join(sorted(evidence))} has probability zero under this model; "
                "an intervention (do=) on those columns is defined."
            )
        law: NDArray[np.float64] = joint / joint.sum()
        return law

    def network(self) -> Network:
        """Return the model as a Bayesian network, for other tools: ``model.network().write("model.bif")``; free.

        Its arrows are those of the graph, so that setting a column in it is this model's do(). Rows of the model may go
        together for more reasons than these (``observed``), and rows of the network then do not. Levels are the
        schema's labels without what other programs stumble over: a bin is called ``0 to 10``, a missing value
        ``[missing]``.

        Raises:
            InputError: If a column has too many causes for its law to be spelt out.
            NotIdentifiableError: If arrows of the graph were not stated but found or chosen by chance.
        """
        from escudo.causal import Network

        for name in self.schema.names:
            self.check_do([name], self.schema.names)
        laws = {name: self.conditionals[name] for name in self.schema.names}
        return Network(
            levels={name: _plain_labels(column) for name, column in self.schema.columns.items()},
            parents={name: law.parents for name, law in laws.items()},
            tables={name: dense_table(law) for name, law in laws.items()},
        )

    def effect(self, treatment: str, outcome: str) -> ModelEffect:
        """Return the average effect of one column on another, by do(), for each level of the treatment; free.

        Raises:
            InputError: If one is no column, or both are the same.
            NotIdentifiableError: If the effect depends on something that the stated graph leaves open, or a latent acts
                on the treatment and on what it affects.
        """
        return model_effect(self, treatment, outcome)

    def effect_range(self, treatment: str, outcome: str, *, confidence: float | None = None) -> EffectRange:
        """Return the effect for each way in which undirected edges at the treatment may point; free.

        Where nothing open decides, that is the one effect of :meth:`effect`.

        Args:
            treatment: The column that is set.
            outcome: The column that responds.
            confidence: How often intervals for noise and chance should hold the truth, such as 0.95; None for the range
                without them. They come from fitting the generator again, 40 times, to rows drawn from the model.

        Raises:
            InputError: If one is no column, both are the same, or the model cannot be fitted again from what it holds.
            NotIdentifiableError: If more than the direction of edges is open, or there are too many of them.
        """
        from escudo.synthesis._effect_range import effect_range

        return effect_range(self, treatment, outcome, confidence)

    def _stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the laws: their kinds and parents, and what they are made of."""
        laws, arrays = stored_laws({name: self.conditionals[name] for name in self.schema.names})
        seen, more = stored_laws(self.observed, "observed/")
        return {"laws": laws, "observed": seen}, arrays | more


def public_rows(neighbours: Neighbours, table: PrivateTable) -> int | None:
    """Return the number of rows where it is public, as was stated or because neighbours share it; else None."""
    if neighbours.rows is None and neighbours.relation == "replace_one" and neighbours.unit == "row":
        return table.neighbours.rows or 1  # a table without rows has no neighbour
    return neighbours.rows


def anchor_of(purse: Purse) -> dict[str, Any]:
    """Return what the ledger was just after it paid, for a model's details; nothing if no ledger did."""
    receipt = getattr(purse.account, "receipt", None)
    if not isinstance(receipt, Receipt) or receipt.anchor is None:
        return {}
    return {"anchor": receipt.anchor}


# ---- what is asked of a model


def moved_columns(schema: Schema, kept: Collection[str] = ()) -> dict[str, str]:
    """Return for each derived column which of the two that it is derived from follows from it and the other.

    Two days that are drawn by their bins may lie months apart where a stay takes three days. So an admission and a stay
    are drawn, and the discharge follows: the one with wider bins, of which less is known, and the later one of two
    alike; none, where both are ``kept`` (set or observed), or have a part in another difference.

    Args:
        schema: The columns.
        kept: Columns that stay as they are.

    >>> from escudo.table import Schema
    >>> day = {"type": "date", "lower": "2024-01-01", "upper": "2024-12-31"}
    >>> stay = {"type": "numeric", "lower": 0, "upper": 60, "from": "out - in", "unit": "days"}
    >>> moved_columns(Schema.from_dict({"in": day, "out": day, "stay": stay}))
    {'stay': 'out'}
    """
    found: dict[str, str] = {}
    taken = set(kept)
    for column in schema.fields:
        if not isinstance(column, Numeric) or column.derived is None:
            continue
        widths = []
        for name in column.derived:
            source = schema[name]
            assert isinstance(source, Numeric)
            widths.append((source.bounds[1] - source.bounds[0]) / source.bins)
        later, earlier = column.derived
        order = (later, earlier) if widths[0] >= widths[1] else (earlier, later)
        free = [name for name in order if name not in taken]
        if free:
            found[column.name] = free[0]
        taken |= set(column.derived)
    return found


def with_derived(schema: Schema, frame: pl.DataFrame, moved: Mapping[str, str]) -> pl.DataFrame:
    """Return rows in which the columns that a schema derives from others are these differences; null where one is.

    Where one of the two follows from the difference that was drawn (:func:`moved_columns`), that is computed, and else
    the difference. One that was drawn as missing beside two that are there is taken from another row.
    """
    import polars as pl

    def number(name: str) -> pl.Expr:
        column = schema[name]
        assert isinstance(column, Numeric)
        return (pl.col(name).cast(pl.Int32) if column.date else pl.col(name)).cast(pl.Float64)

    made = []
    for column in schema.fields:
        if not isinstance(column, Numeric) or column.derived is None:
            continue
        later, earlier = map(number, column.derived)
        if column.name in moved and frame[column.name].null_count() < frame.height:
            name = moved[column.name]
            drawn = pl.lit(_never_missing(frame[column.name])).cast(pl.Float64)
            apart = column.distance(drawn, (later - earlier).fill_null(0.0), pl.Expr.floor)
            value = earlier + apart if name == column.derived[0] else later - apart
            source, kind = schema[name], frame.schema[name]
            assert isinstance(source, Numeric)
            value = value.round().cast(pl.Int32) if source.integer or source.date else value
            there = pl.col(name).is_not_null()
            frame = frame.with_columns(pl.when(there).then(value.cast(kind)).otherwise(None).alias(name))
        apart = column.difference(later, earlier, pl.Expr.floor)
        made.append((apart.cast(pl.Int64) if column.integer else apart).alias(column.name))
    return frame.with_columns(made) if made else frame


def _never_missing(drawn: pl.Series) -> pl.Series:
    """Return what was drawn with every missing value replaced by one of another row."""
    there = drawn.drop_nulls()
    places = np.cumsum(drawn.is_null().to_numpy()) % len(there)
    return drawn if len(there) == len(drawn) else drawn.zip_with(drawn.is_not_null(), there.gather(places))


def by_column(argument: str, values: object) -> Mapping[str, object]:
    """Return what ``do`` or ``given`` says, nothing for None.

    Raises:
        InputError: If it is no mapping of columns to values.
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise InputError(
            f"{argument} must map columns to values, as in {{'smoke': 'yes'}}; got {type(values).__name__}."
        )
    return values


def column_of(schema: Schema, argument: str, name: str) -> Column:
    """Return a column that an argument names.

    Raises:
        SchemaError: If there is none.
    """
    column = schema.columns.get(name)
    if column is None:
        raise SchemaError(
            f"{argument} names {name!r}, which is no column of the schema." + did_you_mean(name, schema.names)
        )
    return column


def cell_of(column: Column, argument: str, value: object) -> int:
    """Return the cell of a value that an argument gives for a column.

    Raises:
        SchemaError: If the schema has no such level or value.
    """
    if value is None:
        if column.missing_code is None:
            raise SchemaError(f"{argument}: column {column.name!r} has no missing value in the schema.")
        return column.missing_code
    if isinstance(column, Categorical):
        matches = [code for level, code in column.codes.items() if level == value or str(level) == str(value)]
        if not matches:
            raise SchemaError(
                f"{argument}: column {column.name!r} has no level {value!r}; it has {_listed(column.labels)}."
                + did_you_mean(str(value), column.labels)
            )
        return matches[0]
    return int(column.encode([number_within(column, argument, value)])[0])


def number_within(column: Numeric, argument: str, value: object) -> float:
    """Return a value as a number, or a date as a day, that the column may hold.

    Raises:
        SchemaError: If it is none; says what the schema allows.
    """
    lower, upper = column.bounds
    try:
        number = float(str(value)) if column.date is None else column.day(value)
    except ValueError:
        number = math.nan
    if not lower <= number <= upper:
        kind = "dates" if column.date is not None else "whole numbers" if column.integer else "numbers"
        raise SchemaError(
            f"{argument}: column {column.name!r} takes {kind} from {column.shown(lower)} to {column.shown(upper)}; "
            f"got {value!r}."
        )
    return number


def stored_laws(laws: Mapping[str, Any], prefix: str = "") -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """Return laws as plain values, and what they are made of by names that begin with ``prefix`` and their number."""
    told = [{"column": name, "kind": law.kind, "parents": list(law.parents)} for name, law in laws.items()]
    arrays = {
        f"{prefix}{number}/{key}": np.array(array)
        for number, law in enumerate(laws.values())
        for key, array in law.arrays().items()
    }
    return told, arrays


def _listed(labels: Sequence[str]) -> str:
    shown = ", ".join(labels[:8])
    return shown + (f" and {len(labels) - 8} more" if len(labels) > 8 else "")


# ---- effects


_MOST_DRAWN, _LEAST_DRAWN = 200, 20_000  # rows tried for each that is wanted, and in any case, until rules are given up
_DRAWN = 200_000  # rows per level of the treatment, where the model is too large for an exact answer
_SEED = 20_090_914  # any fixed number: the same model always gives the same answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEffect:
    """What setting a treatment does to an outcome, under a model.

    Attributes:
        treatment: The column that is set.
        outcome: The column that responds.
        levels: The values the treatment is set to, as text.
        outcome_levels: The outcome's levels as text, a missing value included; none in a linear model.
        law: P(outcome = level | do(treatment = value)): a row for each value, a number for each level.
        means: The outcome's mean for each value, among rows where it is not missing; None where it is no number.
            Numbers in bins count as the middle of their bin.
        slope: The change of the mean per unit of the treatment, in a linear model; None in others.
        exact: Whether the model was added up exactly; drawn from otherwise.
    """

    treatment: str
    outcome: str
    levels: tuple[str, ...]
    outcome_levels: tuple[str, ...]
    law: tuple[tuple[float, ...], ...]
    means: tuple[float, ...] | None
    slope: float | None = None
    exact: bool = True

    @classmethod
    def of(
        cls, schema: Schema, treatment: str, outcome: str, laws: Sequence[NDArray[np.float64]], *, exact: bool = True
    ) -> ModelEffect:
        """Return the effect that the law of an outcome's cells shows, for each cell that the treatment is set to."""
        target = schema.columns[outcome]
        values = cell_values(target)
        return cls(
            treatment=treatment,
            outcome=outcome,
            levels=tuple(schema.columns[treatment].labels[: len(laws)]),
            outcome_levels=tuple(target.labels),
            law=tuple(tuple(law.tolist()) for law in laws),
            means=None if values is None else tuple(_mean(law, values) for law in laws),
            exact=exact,
        )

    def difference(self, value: object, baseline: object) -> float:
        """Return by how much the outcome's mean is higher at one value of the treatment than at another.

        Raises:
            InputError: If a value is none of ``levels``, or the outcome is no number.
        """
        if self.means is None:
            raise InputError(
                f"{self.outcome!r} is no number, so it has no mean; ask for shifts(), the change of each level's share."
            )
        return self.means[self._place(value)] - self.means[self._place(baseline)]

    def shifts(self, value: object, baseline: object) -> dict[str, float]:
        """Return by how much each level of the outcome is more frequent at one value of the treatment than at another.

        Raises:
            InputError: If a value is none of ``levels``, or the outcome has no levels.
        """
        if not self.outcome_levels:
            raise InputError(f"{self.outcome!r} has no levels in a linear model; ask for difference().")
        one, other = self.law[self._place(value)], self.law[self._place(baseline)]
        return {level: a - b for level, a, b in zip(self.outcome_levels, one, other, strict=True)}

    def to_json(self) -> dict[str, Any]:
        """Return the effect as plain values."""
        return plain(self)

    def __str__(self) -> str:
        lines = [f"{self.outcome} under do({self.treatment} = ...)" + ("" if self.exact else ", drawn from the model")]
        for place, level in enumerate(self.levels):
            parts = [f"mean {self.means[place]:.4g}"] if self.means is not None else []
            if self.law and len(self.outcome_levels) <= 8:
                named = zip(self.outcome_levels, self.law[place], strict=True)
                parts += [f"{name} {share:.1%}" for name, share in named]
            lines.append(f"  {level}: {', '.join(parts)}")
        return "\n".join(lines + ([] if self.slope is None else [f"  per unit: {self.slope:+.4g}"]))

    def _repr_html_(self) -> str:
        title, *lines = str(self).split("\n")
        return card(title, rows=[line.strip().partition(": ")[::2] for line in lines])

    def _place(self, value: object) -> int:
        text = str(value)
        if text not in self.levels:
            shown = ", ".join(self.levels[:8])
            raise InputError(
                f"{self.treatment!r} was not set to {text!r}; it was set to {shown}.{did_you_mean(text, self.levels)}"
            )
        return self.levels.index(text)


def model_effect(model: CausalModel, treatment: str, outcome: str) -> ModelEffect:
    """Return what setting each level of a treatment does to an outcome; a missing value is no level to set."""
    names = model.schema.names
    source, target = (
        model.schema.columns[one_of(argument, name, names)]
        for argument, name in (("treatment", treatment), ("outcome", outcome))
    )
    if treatment == outcome:
        raise InputError(f"treatment and outcome are both {treatment!r}; name two columns.")
    model.check_do([treatment], [outcome])
    exact = True
    rows = []
    for value in settings(source):
        law, added_up = _law(model, {treatment: value}, outcome, target.size)
        rows.append(law)
        exact = exact and added_up
    return ModelEffect.of(model.schema, treatment, outcome, rows, exact=exact)


def _law(model: CausalModel, do: dict[str, object], outcome: str, size: int) -> tuple[NDArray[np.float64], bool]:
    """Return the law of the outcome, and whether it is exact."""
    try:
        return model.probability([outcome], do=do), True
    except InputError:
        drawn = model.codes(_DRAWN, do=do, columns=[outcome], seed=_SEED)[:, 0]
        return np.bincount(drawn, minlength=size) / _DRAWN, False


_BIN = re.compile(r"\[(.+), (.+)[\])]")
_BRACKETS = str.maketrans({"(": "[", ")": "]", "{": "[", "}": "]", ",": ";"})


def _plain_labels(column: Column) -> tuple[str, ...]:
    """Return a column's labels without brackets and commas that readers of BIF take for their own, pgmpy's for one."""
    labels: list[str] = []
    for label in column.labels:
        found = _BIN.fullmatch(label) if isinstance(column, Numeric) else None
        plain_label = " to ".join(found.groups()) if found else label.translate(_BRACKETS)
        while plain_label in labels:
            plain_label += "_"
        labels.append(plain_label)
    return tuple(labels)


def settings(column: Column) -> Sequence[object]:
    """Return a value for each cell that can be set."""
    if isinstance(column, Categorical):
        return list(column.levels)
    return [float(number) for number in typical_numbers(column)]


def cell_values(column: Column) -> NDArray[np.float64] | None:
    """Return the number each cell stands for, a missing one left out; None if they are no numbers."""
    if isinstance(column, Numeric):
        return typical_numbers(column)
    numbers = column.kind in ("integer", "boolean")
    return np.array([float(level) for level in column.levels]) if numbers else None


def _mean(law: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    present = law[: values.size]
    total = float(present.sum())
    return float(present @ values) / total if total > 0 else math.nan
