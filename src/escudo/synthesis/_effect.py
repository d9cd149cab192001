r"""The average effect of one column on another, read off a released model: free, as often as wanted.

For each level of the treatment it holds the law of the outcome under do(treatment = level), and its mean where the
outcome is a number. The model was bought under a guarantee; what is computed from it costs nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from escudo._card import card
from escudo._validate import did_you_mean, one_of
from escudo.errors import InputError
from escudo.table import Categorical, Column, Numeric

if TYPE_CHECKING:
    from escudo.synthesis._model import CausalModel

__all__ = ["ModelEffect", "effect_of"]

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
        return {
            "treatment": self.treatment,
            "outcome": self.outcome,
            "levels": list(self.levels),
            "outcome_levels": list(self.outcome_levels),
            "law": [list(row) for row in self.law],
            "means": None if self.means is None else list(self.means),
            "slope": self.slope,
            "exact": self.exact,
        }

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


def effect_of(model: CausalModel, treatment: str, outcome: str) -> ModelEffect:
    """Return what setting each level of a treatment does to an outcome; a missing value is no level to set."""
    names = model.schema.names
    source, target = (
        model.schema.columns[one_of(argument, name, names)]
        for argument, name in (("treatment", treatment), ("outcome", outcome))
    )
    if treatment == outcome:
        raise InputError(f"treatment and outcome are both {treatment!r}; name two columns.")
    exact = True
    rows = []
    for value in _settings(source):
        law, added_up = _law(model, {treatment: value}, outcome, target.size)
        rows.append(law)
        exact = exact and added_up
    values = _values(target)
    return ModelEffect(
        treatment=treatment,
        outcome=outcome,
        levels=tuple(source.labels[: len(rows)]),
        outcome_levels=tuple(target.labels),
        law=tuple(tuple(row.tolist()) for row in rows),
        means=None if values is None else tuple(_mean(row, values) for row in rows),
        exact=exact,
    )


def _law(model: CausalModel, do: dict[str, object], outcome: str, size: int) -> tuple[NDArray[np.float64], bool]:
    """Return the law of the outcome, and whether it is exact."""
    try:
        return model.probability([outcome], do=do), True
    except InputError:
        place = model.schema.names.index(outcome)
        drawn = model.codes(_DRAWN, do=do, seed=_SEED)[:, place]
        return np.bincount(drawn, minlength=size) / _DRAWN, False


def _settings(column: Column) -> Sequence[object]:
    """Return a value for each cell that can be set."""
    if isinstance(column, Categorical):
        return list(column.levels)
    return [float(middle) for middle in _middles(column)]


def _values(column: Column) -> NDArray[np.float64] | None:
    """Return the number each cell stands for, a missing one left out; None if they are no numbers."""
    if isinstance(column, Numeric):
        return _middles(column)
    numbers = column.kind in ("integer", "boolean")
    return np.array([float(level) for level in column.levels]) if numbers else None


def _middles(column: Numeric) -> NDArray[np.float64]:
    low, high = np.asarray(column.boundaries)[:-1], np.asarray(column.boundaries)[1:]
    if column.integer:  # the mean of the whole numbers in the bin, which has its lower boundary and not its upper one
        last = np.ceil(high) - 1
        last[-1] = math.floor(high[-1])
        return np.where(last >= np.ceil(low), (np.ceil(low) + last) / 2, (low + high) / 2)
    return (low + high) / 2


def _mean(law: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    present = law[: values.size]
    total = float(present.sum())
    return float(present @ values) / total if total > 0 else math.nan
