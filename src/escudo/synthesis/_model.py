r"""The released model: a causal graph with a law per node, to be sampled, intervened on, saved.

A model holds no row of the table it was fitted on: only its schema, its graph, noisy parameters and the guarantee they
were bought under. Everything done with it afterwards is post-processing and costs nothing.

:class:`Model` is what all models are, :class:`CellModel` one that draws rows of schema cells, :class:`CausalModel`
the one with a law per column. (``LinearModel`` is in ``_linear``, ``NeuralModel`` in ``neural``; what holds in
every row in ``_holding``, effects that are read off a model in ``_model_effects``.)
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypedDict, TypeVar, Unpack, get_args, overload

import numpy as np
from numpy.typing import NDArray

from escudo._card import number_of, tracking
from escudo._files import to_pandas
from escudo._plot import panels, shares
from escudo._validate import did_you_mean, one_of, whole
from escudo.causal import CausalGraph
from escudo.errors import InputError, NotIdentifiableError, SchemaError, ZeroProbabilityError
from escudo.mechanisms import Purse
from escudo.privacy import Guarantee, Neighbours, Plan, Receipt
from escudo.synthesis._holding import (
    CellRule,
    Holding,
    derived_columns,
    held,
    kept_cells,
    mended_cells,
    moved_columns,
)
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
)
from escudo.synthesis._structure import check_graph, check_identified, check_settled
from escudo.table import Categorical, Column, Numeric, PrivateTable, Schema

if TYPE_CHECKING:
    import polars as pl

    from escudo.causal import Network
    from escudo.synthesis._model_effects import EffectRange, ModelEffect

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
        fixed = {*by_column("do", do), *by_column("given", given)}
        holding = Holding(self.schema, moved_columns(self.schema, fixed))

        def exact(frame: pl.DataFrame) -> pl.DataFrame:
            kinds = frame.schema
            set_to = (pl.lit(x).cast(kinds[name]).alias(name) for name, x in numbers.items() if x is not None)
            return holding.derived(frame.with_columns(set_to))

        def drawn(rows: int) -> pl.DataFrame:
            return exact(pl.concat(self._frames(rows, *how)))

        if not holding.anything:
            return (exact(frame).select(wanted) for frame in self._frames(count, *how))
        sizes = (min(BLOCK, count - start) for start in range(0, max(count, 1), BLOCK))
        mended = None if fixed else partial(holding.mended, rng=how[-1])
        return (pl.concat(held(size, drawn, holding.kept, mended)).select(wanted) for size in sizes)

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
        for column in derived_columns(self.schema):
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
        if name in [column.name for column in derived_columns(self.schema)]:
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

        rules: list[CellRule] = []
        for rule in self.schema.checked_rules:
            one, other = map(needed.index, rule.columns)
            rules.append(((one, other), rule.shares(self.schema.columns) > 0))
        mended = None if do or given else partial(mended_cells, rules=rules, rng=asked[-1])
        parts = held(asked[0], drawn, partial(kept_cells, rules=rules), mended)
        return np.concatenate(parts)[:, : len(wanted)]

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
        from escudo.synthesis._model_effects import model_effect

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
        from escudo.synthesis._model_effects import effect_range

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
