"""The released linear model: an equation per column, sampled exactly under interventions and conditions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from escudo._validate import did_you_mean, whole
from escudo.causal import CausalGraph
from escudo.errors import InputError, SchemaError
from escudo.privacy import Guarantee, Plan
from escudo.synthesis._decoding import as_integers
from escudo.synthesis._identification import check_identified
from escudo.synthesis._options import by_column, drawing
from escudo.synthesis._structure import check_graph, graph_of
from escudo.table import Numeric, Schema

if TYPE_CHECKING:
    import polars as pl

    from escudo.synthesis._effect import ModelEffect

__all__ = ["LinearConditional", "LinearModel", "numeric_columns"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class LinearConditional:
    r"""A linear equation with Gaussian noise: :math:`x = a + \sum_j w_j\, pa_j + e`, :math:`e \sim N(0, v)`.

    All numbers are on the scale where each column's bounds are -1 and 1.

    Args:
        parents: The parents' names.
        intercept: a.
        weights: w, one number per parent.
        variance: v, above 0.
    """

    parents: tuple[str, ...]
    intercept: float
    weights: Floats
    variance: float
    kind: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        if weights.shape != (len(self.parents),):
            raise InputError("A linear equation needs one weight per parent.")
        if not (np.isfinite([self.intercept, *weights]).all() and 0 < self.variance < math.inf):
            raise InputError("A linear equation must hold finite numbers and a variance above 0.")
        weights.flags.writeable = False
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "intercept", float(self.intercept))
        object.__setattr__(self, "variance", float(self.variance))

    def arrays(self) -> dict[str, Floats]:
        """Return everything the equation is made of, to be stored."""
        return {"numbers": np.array([self.intercept, self.variance]), "weights": self.weights}

    @classmethod
    def from_arrays(cls, parents: tuple[str, ...], arrays: Mapping[str, Floats]) -> LinearConditional:
        """Rebuild the equation that :meth:`arrays` took apart.

        Raises:
            InputError: If an array is missing or not usable.
        """
        try:
            (intercept, variance), weights = arrays["numbers"].tolist(), arrays["weights"]
        except (KeyError, TypeError, ValueError):
            raise InputError("A 'linear' equation lacks one of its numbers; the model file is damaged.") from None
        return cls(parents, intercept, weights, variance)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearModel:
    """A linear Gaussian structural causal model, fitted under a guarantee.

    Attributes:
        schema: The public description of the columns it makes, all numeric.
        graph: The DAG it follows, over the schema's columns (and latents, which it does not model).
        conditionals: The equation of each column.
        guarantee: What was promised to the people in the table.
        generator: The generator's name.
        plan: The budget tree that was spent.
        details: Public facts about the fit, for the report.
    """

    schema: Schema
    graph: CausalGraph
    conditionals: Mapping[str, LinearConditional]
    guarantee: Guarantee
    generator: str
    plan: Plan
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in numeric_columns(self.schema):
            if name not in self.conditionals:
                raise InputError(f"The model has no equation for column {name!r}.")
            for parent in self.conditionals[name].parents:
                if parent not in self.schema.columns:
                    raise InputError(f"The equation of column {name!r} has a parent {parent!r} that is no column.")
        check_graph(self.graph, self.schema)
        _ = self.order  # raises on a cycle

    @property
    def order(self) -> tuple[str, ...]:
        """The columns with parents before children."""
        return graph_of({name: self.conditionals[name].parents for name in self.schema.names}).topological_order()

    def sample(
        self,
        rows: int,
        *,
        do: Mapping[str, object] | None = None,
        given: Mapping[str, object] | None = None,
        seed: int | None = None,
    ) -> pl.DataFrame:
        r"""Draw synthetic rows; free of charge, as often as wanted.

        Conditions are exact. Draw x from the model without them and add :math:`Σ_{\cdot E} Σ_{EE}^{-1} (e - x_E)`: the
        sum is Gaussian, has the conditional mean and covariance, and has :math:`x_E = e`.

        Args:
            rows: How many.
            do: Columns to set by intervention: incoming arrows are cut, so that causes of these columns keep their law
                and effects respond.
            given: Columns to condition on: rows among those where the equations give these values.
            seed: For repeatable draws.

        Returns:
            A polars frame with the schema's columns. Values beyond the bounds are moved to them, after everything else;
            whole-number columns are rounded.

        Raises:
            SchemaError: If ``do`` or ``given`` names a column or value the schema does not have.
            NotIdentifiableError: If a latent acts on an intervened column and on what it affects.
        """
        fixed, evidence = self._numbers("do", do), self._numbers("given", given)
        if both := sorted(set(fixed) & set(evidence)):
            raise InputError(f"{', '.join(both)} cannot be both set (do) and observed (given); name it once.")
        check_identified(self.graph, fixed)
        # A damaged file may hold numbers too large to add up; that must not end in a warning and a wrong table.
        with np.errstate(over="ignore", invalid="ignore"):
            drawn = self._draw(whole("rows", rows), fixed, drawing(seed))
            if evidence:
                drawn += self._correction(drawn, fixed, evidence)
        _check_finite(drawn)
        return self._frame(drawn, {**fixed, **evidence})

    def effect(self, treatment: str, outcome: str) -> ModelEffect:
        r"""Return the average effect of one column on another, in the units of the table; free.

        .. math:: \text{slope} = \frac{∂}{∂c} E[y \mid do(x = c)],

        the sum over all directed paths of the product of their weights. The means are those of the equations, at the
        bounds of the treatment, before anything is moved to the outcome's bounds.

        Raises:
            InputError: If one is no column, or both are the same.
            NotIdentifiableError: If a latent acts on the treatment and on what it affects.
        """
        from escudo.synthesis._effect import ModelEffect

        source, target = self._column("treatment", treatment), self._column("outcome", outcome)
        if treatment == outcome:
            raise InputError(f"treatment and outcome are both {treatment!r}; name two columns.")
        check_identified(self.graph, [treatment])
        names = self.schema.names
        here, there = names.index(treatment), names.index(outcome)
        responses = self._responses({treatment: 0.0})[there]
        lower, upper = target.bounds
        means = []
        for end in (-1.0, 1.0):
            levels = np.array([self.conditionals[name].intercept for name in names])
            levels[here] = end
            means.append(lower + (upper - lower) * (float(responses @ levels) + 1.0) / 2.0)
        width = source.bounds[1] - source.bounds[0]
        return ModelEffect(
            treatment=treatment,
            outcome=outcome,
            levels=tuple(f"{bound:g}" for bound in source.bounds),
            outcome_levels=(),
            law=(),
            means=(means[0], means[1]),
            slope=float(responses[here]) * (upper - lower) / width,
        )

    def save(self, directory: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the model as ``model.json`` and ``parameters.safetensors`` into a new folder.

        Raises:
            InputError: If the folder exists and ``overwrite`` is false, or cannot be written.
        """
        from escudo.synthesis._files import save_model

        save_model(self, Path(directory), overwrite=overwrite)

    def __repr__(self) -> str:
        return f"LinearModel({self.generator}, {len(self.schema.names)} columns, {len(self.graph.edges)} arrows)"

    def __str__(self) -> str:
        return f"A {self.generator} model of {', '.join(self.schema.names)}. {self.guarantee}"

    def _repr_html_(self) -> str:
        from html import escape

        title = f"{escape(self.generator)} model, {len(self.schema.names)} columns"
        return f"<div><strong>{title}</strong><p>{escape(str(self.guarantee))}</p>{self.graph.to_svg()}</div>"

    def _draw(self, rows: int, fixed: Mapping[str, float], rng: np.random.Generator) -> Floats:
        """Return rows on the scale of the equations, column by column along the graph."""
        from scipy.special import ndtri

        place = {name: number for number, name in enumerate(self.schema.names)}
        drawn = np.empty((rows, len(place)))
        for name in self.order:
            if name in fixed:
                drawn[:, place[name]] = self._scaled(name, fixed[name])
                continue
            equation = self.conditionals[name]
            # One draw from each of ``rows`` slices of the normal law, shuffled: it shows the model, not the dice.
            share = (rng.permutation(rows) + rng.random(rows)) / max(rows, 1)
            noise = ndtri(np.clip(share, 2.0**-54, 1 - 2.0**-53)) * math.sqrt(equation.variance)
            causes = drawn[:, [place[parent] for parent in equation.parents]]
            drawn[:, place[name]] = equation.intercept + causes @ equation.weights + noise
        return drawn

    def _responses(self, fixed: Mapping[str, float]) -> Floats:
        """Return how much each column (row) moves per unit of another's noise (column), with ``fixed`` ones cut."""
        names = self.schema.names
        direct = np.zeros((len(names), len(names)))
        for here, name in enumerate(names):
            if name not in fixed:
                equation = self.conditionals[name]
                direct[here, [names.index(parent) for parent in equation.parents]] = equation.weights
        responses: Floats = np.linalg.inv(np.eye(len(names)) - direct).astype(np.float64)
        return responses

    def _correction(self, drawn: Floats, fixed: Mapping[str, float], evidence: Mapping[str, float]) -> Floats:
        names = self.schema.names
        variances = [0.0 if name in fixed else self.conditionals[name].variance for name in names]
        responses = self._responses(fixed)
        covariance = (responses * variances) @ responses.T
        _check_finite(covariance)
        seen = [names.index(name) for name in evidence]
        gain = np.linalg.lstsq(covariance[np.ix_(seen, seen)], covariance[seen])[0]
        values = np.array([self._scaled(name, value) for name, value in evidence.items()])
        correction: Floats = (values - drawn[:, seen]) @ gain
        return correction

    def _frame(self, drawn: Floats, known: Mapping[str, float]) -> pl.DataFrame:
        import polars as pl

        series = []
        for place, (name, column) in enumerate(numeric_columns(self.schema).items()):
            lower, upper = column.bounds
            values = lower + (upper - lower) * ((drawn[:, place].clip(-1.0, 1.0) + 1.0) / 2.0)
            if name in known:
                values = np.full(len(drawn), known[name])
            if column.integer:
                whole_numbers = np.rint(values).clip(math.ceil(lower), math.floor(upper))
                series.append(pl.Series(name, as_integers(whole_numbers)))
            else:
                series.append(pl.Series(name, values.clip(lower, upper)))
        return pl.DataFrame(series)

    def _column(self, argument: str, name: str) -> Numeric:
        column = numeric_columns(self.schema).get(name)
        if column is None:
            raise SchemaError(
                f"{argument} names {name!r}, which is no column of the schema." + did_you_mean(name, self.schema.names)
            )
        return column

    def _numbers(self, argument: str, values: Mapping[str, object] | None) -> dict[str, float]:
        """Return the named values as numbers, or say what the schema allows."""
        numbers = {}
        for name, value in by_column(argument, values).items():
            column = self._column(argument, name)
            lower, upper = column.bounds
            try:
                number = float(str(value))
            except ValueError:
                number = math.nan
            if not lower <= number <= upper or (column.integer and number != round(number)):
                kind = "whole numbers" if column.integer else "numbers"
                raise SchemaError(
                    f"{argument}: column {name!r} takes {kind} from {lower:g} to {upper:g}; got {value!r}."
                )
            numbers[name] = number
        return numbers

    def _scaled(self, name: str, value: float) -> float:
        lower, upper = numeric_columns(self.schema)[name].bounds
        return 2.0 * (value - lower) / (upper - lower) - 1.0


def _check_finite(numbers: Floats) -> None:
    if not np.isfinite(numbers).all():
        raise InputError("The model's equations leave the range of floating point; the model file is damaged.")


def numeric_columns(schema: Schema) -> dict[str, Numeric]:
    """Return the columns, which must all be numbers that are never missing.

    Raises:
        SchemaError: Names the first column that is something else, and what to do.
    """
    columns = {}
    for name, column in schema.columns.items():
        if not isinstance(column, Numeric):
            raise SchemaError(
                f"column {name!r} is categorical, and generator 'linear' takes numbers only; use "
                "generator='marginals', or leave the column out of the schema."
            )
        if column.missing:
            raise SchemaError(
                f"column {name!r} keeps missing values apart, and generator 'linear' has no place for them; say "
                "missing = false and a public fill in the schema, or use generator='marginals'."
            )
        lower, upper = column.bounds
        if column.integer and math.ceil(lower) > math.floor(upper):
            raise SchemaError(f"column {name!r} is of whole numbers, but there is none between its bounds.")
        columns[name] = column
    return columns
