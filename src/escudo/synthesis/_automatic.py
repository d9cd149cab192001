"""Generator ``auto``: one of the others, chosen by a public rule of columns, cells, rows and ε, which the plan states.

The rule follows the benchmarks. Family tables are best while their cells hold many rows each, in units of the noise.
Beyond that, networks with one parameter per arrow and level are, started at noisy moments. A latent pays only for
condensed graphs, whose groups hold dependences that no arrow states, and only with much data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from escudo.causal import CausalGraph
from escudo.mechanisms import Seed
from escudo.privacy import Account, Guarantee, Plan
from escudo.synthesis._structure import structure_of
from escudo.table import PrivateTable, Schema

if TYPE_CHECKING:
    from escudo.synthesis._generators import Model, Prepared

__all__ = ["Chosen", "choose"]

_UNKNOWN_ROWS = 10_000
_ROWS_PER_CELL = 20  # times 1/ε: what a cell needs on average, if rows spread evenly, to stand out from the noise
_MUCH = 50_000  # rows times ε


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was prepared by the generator that was chosen, with a line in its plan that says why."""

    prepared: Prepared
    why: str

    @property
    def schema(self) -> Schema:
        """The columns it was prepared for."""
        return self.prepared.schema

    @property
    def plan(self) -> Plan:
        """The chosen generator's budget tree."""
        plan = self.prepared.plan
        return Plan(plan.name, children=[Plan(f"chosen: {self.why}"), *plan.children], delta=plan.delta)

    def fit(self, table: PrivateTable, *, account: Account, seed: Seed, guarantee: Guarantee) -> Model:
        """Fit the chosen generator."""
        return self.prepared.fit(table, account=account, seed=seed, guarantee=guarantee)


def choose(schema: Schema, graph: CausalGraph | None, *, epsilon: float, public_rows: int | None) -> tuple[str, str]:
    """Return the name of a generator, and why it was chosen.

    >>> wide = Schema.from_dict({f"x{i}": ["no", "yes"] for i in range(15)})
    >>> star = CausalGraph.from_edges([(f"x{i}", "x14") for i in range(14)])
    >>> choose(wide, star, epsilon=1.0, public_rows=5000)[0], choose(wide, None, epsilon=1.0, public_rows=5000)[0]
    ('autoregressive', 'marginals')
    """
    rows = _UNKNOWN_ROWS if public_rows is None else public_rows
    parents = structure_of(schema, graph).parents
    largest = max(math.prod(schema.shape([name, *several])) for name, several in parents.items())
    allowed = max(rows * epsilon / _ROWS_PER_CELL, 16.0)
    about = f"{rows:,} rows{'' if public_rows else ' (assumed)'} and ε = {epsilon:g}"
    if graph is not None and any(len(group) > 1 for group in graph.groups.values()) and rows * epsilon >= _MUCH:
        return "vae", f"vae, as the graph is over groups of columns and there is much data ({about})"
    if largest <= allowed:
        return (
            "marginals",
            f"marginals, as no family has more than {largest:,} cells ({about} allow for {allowed:,.0f})",
        )
    return "autoregressive", f"autoregressive, as a family has {largest:,} cells ({about} allow for {allowed:,.0f})"
