"""The released model: a causal graph with a law per node, to be sampled, intervened on, saved and loaded.

A model holds no row of the table it was fitted on: only its schema, its graph, noisy parameters and the guarantee they
were bought under. Everything done with it afterwards is post-processing and costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from escudo._progress import tracking
from escudo._validate import did_you_mean, whole
from escudo.causal import CausalGraph
from escudo.errors import InputError, SchemaError
from escudo.privacy import Guarantee, Plan
from escudo.synthesis._conditionals import Conditional
from escudo.synthesis._identification import check_identified
from escudo.synthesis._intervention import ancestors, causal_order, laws_under
from escudo.synthesis._options import by_column, drawing
from escudo.synthesis._structure import check_graph
from escudo.table import Categorical, Schema

if TYPE_CHECKING:
    import polars as pl

    from escudo.synthesis._effect import ModelEffect

__all__ = ["CausalModel"]

_BLOCK = 2**19


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CausalModel:
    """A generator that follows a causal graph, fitted under a guarantee.

    Attributes:
        schema: The public description of the columns it makes.
        graph: The DAG it follows, over the schema's columns (and latents, which it does not model).
        conditionals: The law of each column given its parents in ``graph``.
        observed: The laws that rows follow as long as nothing is set, where columns go together for more reasons than
            ``graph`` states; for all columns, or none (see ``_intervention``).
        guarantee: What was promised to the people in the table.
        generator: The generator's name.
        plan: The budget tree that was spent.
        details: Public facts about the fit, for the report.
    """

    schema: Schema
    graph: CausalGraph
    conditionals: Mapping[str, Conditional]
    guarantee: Guarantee
    generator: str
    plan: Plan
    details: Mapping[str, Any] = field(default_factory=dict)
    observed: Mapping[str, Conditional] = field(default_factory=dict)

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

    def sample(
        self,
        rows: int,
        *,
        do: Mapping[str, object] | None = None,
        given: Mapping[str, object] | None = None,
        seed: int | None = None,
    ) -> pl.DataFrame:
        """Draw synthetic rows; free of charge, as often as wanted.

        Args:
            rows: How many.
            do: Columns to set by intervention: incoming arrows are cut, so that causes of these columns keep their law
                and effects respond. The model knows numbers by their bin: one sets the bin it lies in, and rows are
                spread over that bin.
            given: Columns to condition on: rows among those where they have these values, or numbers in these bins.
            seed: For repeatable draws.

        Returns:
            A polars frame with the schema's columns; only values the schema allows.

        Raises:
            SchemaError: If ``do`` or ``given`` names a column or level the schema does not have.
            NotIdentifiableError: If a latent acts on an intervened column and on what it affects.
            ZeroProbabilityError: If ``given`` cannot happen under the model.
        """
        import polars as pl

        from escudo.synthesis._decoding import decode

        rng = drawing(seed)
        return pl.concat([decode(self.schema, drawn, rng=rng) for drawn in self._draw(rows, do, given, rng)])

    def codes(
        self,
        rows: int,
        *,
        do: Mapping[str, object] | None = None,
        given: Mapping[str, object] | None = None,
        seed: int | None = None,
    ) -> NDArray[np.int64]:
        """Draw rows as schema cells, of shape (rows, columns)."""
        drawn = self._draw(rows, do, given, drawing(seed))
        return np.concatenate([np.stack([part[name] for name in self.schema.names], axis=1) for part in drawn])

    def _draw(
        self,
        rows: int,
        do: Mapping[str, object] | None,
        given: Mapping[str, object] | None,
        rng: np.random.Generator,
    ) -> Iterator[dict[str, NDArray[np.int64]]]:
        """Yield the rows as cells, in blocks that fit the processor's cache; no rows are one empty block."""
        from escudo.synthesis._sampling import drawer

        fixed, evidence = self._asked(do, given)
        count = whole("rows", rows)
        laws = laws_under(self.conditionals, self.observed, fixed)
        drawn = drawer(list(laws), laws, fixed=fixed, evidence=evidence)
        blocks = range(0, max(count, 1), _BLOCK)
        with tracking("Sampling", total=len(blocks)) as advance:
            for start in blocks:
                size = min(_BLOCK, count - start)
                yield drawn(size, rng=rng)
                advance(1)

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
        from escudo.errors import ZeroProbabilityError
        from escudo.synthesis._conditionals import dense_table

        fixed, evidence = self._asked(do, given)
        for name in columns:
            self._column("columns", name)
        laws = laws_under(self.conditionals, self.observed, fixed)
        needed = ancestors(laws, [*columns, *evidence], fixed)
        factors = []
        for name in needed:
            if name not in fixed:
                conditional = laws[name]
                factors.append(Factor((*conditional.parents, name), dense_table(conditional)))
        for name, cell in {**evidence, **{name: fixed[name] for name in needed if name in fixed}}.items():
            factors.append(Factor((name,), np.eye(self.schema.columns[name].size)[cell]))
        joint = contract(factors, list(columns))
        if joint.sum() <= 0:
            raise ZeroProbabilityError(
                f"The condition on {', '.join(sorted(evidence))} has probability zero under this model; "
                "an intervention (do=) on those columns is defined."
            )
        law: NDArray[np.float64] = joint / joint.sum()
        return law

    def effect(self, treatment: str, outcome: str) -> ModelEffect:
        """Return the average effect of one column on another, by do(), for each level of the treatment; free.

        Raises:
            InputError: If one is no column, or both are the same.
            NotIdentifiableError: If a latent acts on the treatment and on what it affects.
        """
        from escudo.synthesis._effect import effect_of

        return effect_of(self, treatment, outcome)

    def save(self, directory: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the model as ``model.json`` and ``parameters.safetensors`` into a new folder.

        Raises:
            InputError: If the folder exists and ``overwrite`` is false, or cannot be written.
        """
        from escudo.synthesis._files import save_model

        save_model(self, Path(directory), overwrite=overwrite)

    def __repr__(self) -> str:
        return f"CausalModel({self.generator}, {len(self.schema.names)} columns, {len(self.graph.edges)} arrows)"

    def __str__(self) -> str:
        return f"A {self.generator} model of {', '.join(self.schema.names)}. {self.guarantee}"

    def _repr_html_(self) -> str:
        from html import escape

        title = f"{escape(self.generator)} model, {len(self.schema.names)} columns"
        return f"<div><strong>{title}</strong><p>{escape(str(self.guarantee))}</p>{self.graph.to_svg()}</div>"

    def _column(self, argument: str, name: str) -> Any:
        column = self.schema.columns.get(name)
        if column is None:
            raise SchemaError(
                f"{argument} names {name!r}, which is no column of the schema." + did_you_mean(name, self.schema.names)
            )
        return column

    def _asked(
        self, do: Mapping[str, object] | None, given: Mapping[str, object] | None
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Return the cells set by intervention and those observed, once the question makes sense."""
        fixed, evidence = self._cells("do", do), self._cells("given", given)
        if both := sorted(set(fixed) & set(evidence)):
            raise InputError(f"{', '.join(both)} cannot be both set (do) and observed (given); name it once.")
        check_identified(self.graph, fixed)
        return fixed, evidence

    def _cells(self, argument: str, values: Mapping[str, object] | None) -> dict[str, int]:
        """Return the cell of each named value, or say which level the schema does not have."""
        cells: dict[str, int] = {}
        for name, value in by_column(argument, values).items():
            column = self._column(argument, name)
            if value is None:
                if column.missing_code is None:
                    raise SchemaError(f"{argument}: column {name!r} has no missing value in the schema.")
                cells[name] = column.missing_code
            elif isinstance(column, Categorical):
                matches = [code for level, code in column.codes.items() if level == value or str(level) == str(value)]
                if not matches:
                    raise SchemaError(
                        f"{argument}: column {name!r} has no level {value!r}; it has {_listed(column.labels)}."
                        + did_you_mean(str(value), column.labels)
                    )
                cells[name] = matches[0]
            else:
                try:
                    number = float(str(value))
                except ValueError:
                    number = float("nan")
                if not column.lower <= number <= column.upper:
                    raise SchemaError(
                        f"{argument}: column {name!r} takes numbers from {column.lower:g} to {column.upper:g}; "
                        f"got {value!r}."
                    )
                cells[name] = int(column.encode([number])[0])
        return cells


def _listed(labels: Sequence[str]) -> str:
    shown = ", ".join(labels[:8])
    return shown + (f" and {len(labels) - 8} more" if len(labels) > 8 else "")
