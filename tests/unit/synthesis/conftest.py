"""What several tests share: the Asia network with its true model and its laws by brute force, and a watched account."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from escudo.causal import Network, asia
from escudo.privacy import Event, Guarantee, Plan, PureEvent, Receipt
from escudo.synthesis import CausalModel, TableConditional
from escudo.table import Schema

Law = Callable[..., NDArray[np.float64]]


class Spy:
    """An account that notes what is spent, in place of the purse."""

    relation, unit, max_rows_per_person = "replace_one", "row", None

    def __init__(self) -> None:
        self.events: list[Event] = []

    def spend(self, event: Event, *, purpose: str = "", for_release: bool = True) -> Receipt:
        self.events.append(event)
        return Receipt(dataset="", sequence=1, event=event, recorded_at="")

    def fail(self, receipt: Receipt, reason: str = "") -> None:
        raise AssertionError


ILLS: dict[str, Any] = {
    "age": {"type": "numeric", "lower": 0, "upper": 100, "bins": 20, "missing": True},
    "ill": [False, True],
    "stage": {"type": "ordinal", "levels": [1, 2, 3], "missing": True},
}


@pytest.fixture(scope="session")
def ills() -> tuple[pl.DataFrame, dict[str, Any]]:
    """Numbers, flags and ordinals that depend on each other, some of them missing, and what is public about them."""
    rng = np.random.default_rng(1)
    rows = 30_000
    age = rng.normal(50, 15, rows).clip(0, 100)
    ill = rng.random(rows) < age / 100
    stage = np.where(ill, rng.integers(1, 4, rows), 1)
    frame = pl.DataFrame(
        {
            "age": pl.Series(np.where(rng.random(rows) < 0.2, np.nan, age), nan_to_null=True),
            "ill": ill,
            "stage": pl.Series(stage).set(pl.Series(rng.random(rows) < 0.1), None),
        }
    )
    return frame, ILLS


@pytest.fixture
def spy() -> Spy:
    return Spy()


@pytest.fixture(scope="session")
def clinic() -> Network:
    return asia()


@pytest.fixture(scope="session")
def clinic_schema(clinic: Network) -> Schema:
    return Schema.from_dict({name: list(levels) for name, levels in clinic.levels.items()})


@pytest.fixture(scope="session")
def clinic_model(clinic: Network, clinic_schema: Schema) -> CausalModel:
    """The true network as a model, as if it had been fitted without noise."""
    return CausalModel(
        schema=clinic_schema,
        graph=clinic.graph,
        conditionals={name: TableConditional(clinic.parents[name], clinic.table(name)) for name in clinic.nodes},
        guarantee=Guarantee(epsilon=1.0),
        generator="marginals",
        plan=Plan("marginals", PureEvent(epsilon=1.0)),
    )


@pytest.fixture(scope="session")
def true_law(clinic: Network) -> Law:
    """P(columns | do, given) of the true network, by adding up all 256 patients."""

    def law(
        columns: list[str], do: Mapping[str, str] | None = None, given: Mapping[str, str] | None = None
    ) -> NDArray[np.float64]:
        do, given = do or {}, given or {}
        table = np.zeros([2] * len(columns))
        for codes in itertools.product(*(range(len(clinic.levels[name])) for name in clinic.nodes)):
            row = dict(zip(clinic.nodes, codes, strict=True))
            fixed = {**do, **given}
            if any(clinic.levels[name][row[name]] != level for name, level in fixed.items()):
                continue
            weight = 1.0
            for name in clinic.nodes:
                if name not in do:
                    weight *= clinic.table(name)[(*(row[parent] for parent in clinic.parents[name]), row[name])]
            table[tuple(row[name] for name in columns)] += weight
        total: NDArray[np.float64] = table / table.sum()
        return total

    return law
