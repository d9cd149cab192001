"""How well a model answers causal questions, against a model that is known or taken to be true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from escudo._card import card
from escudo._validate import positive_integer
from escudo.causal import Factor, Network, contract
from escudo.errors import InputError
from escudo.synthesis import Model
from escudo.table import Categorical, Schema
from escudo.utility._contingency import synthetic_table, total_variation

__all__ = ["CausalFidelity", "causal_fidelity"]

Floats = NDArray[np.float64]
Question = tuple[str, str, str]


@runtime_checkable
class _Exact(Protocol):
    """A model that answers exactly."""

    def probability(self, columns: Sequence[str], *, do: Mapping[str, object] | None = None) -> Floats:
        """Return the law of columns under an intervention."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalFidelity:
    """How far a model's interventions are from the reference's.

    Attributes:
        intervention: Mean total variation of P(effect | do(cause = level)), over all causes, levels and effects.
        effect: Mean absolute error of the average effect of one level against the first on each other column with an
            order, in parts of that column's range; None if no column has one.
        questions: How many interventions and effects were compared.
        worst: The questions that are furthest off, as (cause, level, effect), with their total variation.
    """

    intervention: float
    effect: float | None
    questions: int
    worst: tuple[tuple[Question, float], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return {
            "intervention": self.intervention,
            "effect": self.effect,
            "questions": self.questions,
            "worst": [[list(question), error] for question, error in self.worst],
        }

    def _repr_html_(self) -> str:
        asked = f"{self.intervention:.2%} of the probability is on the wrong level, over {self.questions:,} questions"
        rows = [(f"do({cause} = {level}) on {effect}", f"{error:.2%}") for (cause, level, effect), error in self.worst]
        return card("Interventions, against the reference", asked, head=("furthest off", "wrong"), rows=rows)


def causal_fidelity(
    model: Model, reference: Network | Model, *, columns: Sequence[str] | None = None, rows: int = 20_000, seed: int = 0
) -> CausalFidelity:
    """Compare all interventions on one column with those of a reference.

    Args:
        model: A released model.
        reference: The truth, or the best there is: a :class:`~escudo.causal.Network` or another model.
        columns: The causes and effects to ask about; by default all categorical columns.
        rows: How many rows are drawn for each intervention from models that cannot answer exactly.
        seed: For those draws.

    Guarantee:
        That of the model and the reference: no private row is read.
    """
    schema = model.schema
    rows = positive_integer("rows", rows)
    names = [name for name in schema.names if isinstance(schema[name], Categorical)] if columns is None else columns
    for name in names:
        if not isinstance(schema[name], Categorical):
            raise InputError(f"interventions are compared on categorical columns; {name!r} is numeric.")
    if len(names) < 2:
        raise InputError("interventions need at least two categorical columns: a cause and an effect.")
    errors: dict[Question, float] = {}
    shifts: list[float] = []
    for cause in names:
        column = schema[cause]
        assert isinstance(column, Categorical)
        first: dict[str, tuple[float, float]] = {}
        for level in column.levels:
            others = [name for name in names if name != cause]
            ours = _laws(model, schema, cause, level, others, rows=rows, seed=seed)
            truth = _laws(reference, schema, cause, level, others, rows=rows, seed=seed + 1)
            for name in others:
                errors[cause, str(level), name] = total_variation(ours[name], truth[name])
                score = _scores(schema, name)
                if score is None:
                    continue
                means = float(ours[name] @ score), float(truth[name] @ score)
                base = first.setdefault(name, means)
                if base is not means:
                    shifts.append(abs((means[0] - base[0]) - (means[1] - base[1])))
    return CausalFidelity(
        intervention=float(np.mean(list(errors.values()))),
        effect=float(np.mean(shifts)) if shifts else None,
        questions=len(errors),
        worst=tuple(sorted(errors.items(), key=lambda item: -item[1])[:10]),
    )


def _scores(schema: Schema, name: str) -> Floats | None:
    """Return the levels of a column with an order as numbers on [0, 1], the missing one in the middle."""
    column = schema[name]
    if not isinstance(column, Categorical) or not (column.ordered or len(column.levels) == 2):
        return None
    scores = np.linspace(0.0, 1.0, len(column.levels))
    return np.append(scores, 0.5) if column.missing else scores


def _laws(
    model: Network | Model, schema: Schema, cause: str, level: object, effects: Sequence[str], *, rows: int, seed: int
) -> dict[str, Floats]:
    """Return the law of each effect under do(cause = level), over the cells of the schema."""
    if isinstance(model, Network):
        return {name: _network_law(model, schema, cause, level, name) for name in effects}
    if isinstance(model, _Exact):
        return {name: model.probability([name], do={cause: level}) for name in effects}
    drawn = synthetic_table(model.sample(rows, do={cause: level}, seed=seed), schema)
    counted = drawn.counts([[name] for name in effects])
    return {name: counts / max(counts.sum(), 1) for name, counts in zip(effects, counted, strict=True)}


def _network_law(network: Network, schema: Schema, cause: str, level: object, effect: str) -> Floats:
    column = schema[effect]
    assert isinstance(column, Categorical)
    chosen = np.eye(len(network.levels[cause]))[network.code(cause, str(level))]
    factors = [Factor((*network.parents[name], name), network.table(name)) for name in network.nodes if name != cause]
    law = contract([*factors, Factor((cause,), chosen)], [effect])
    found = np.zeros(column.size)
    for place, name in enumerate(network.levels[effect]):
        found[column.codes[name]] = law[place]
    return found
