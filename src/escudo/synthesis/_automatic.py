"""Generator ``auto``: one of the others, chosen by a public rule of the columns, which the plan states.

The rule follows ``benchmarks/neural_tables.py``: simulated tables of 10 to 160 columns at ε = 0.1, 1 and 3, and what
was known of Asia, NLTCS, Adult and the neuropathic pain table, which are therefore no independent check of it:

* **marginals** for up to 30 columns. One noisy table for each family says everything there is to say of it, and its
  noise grows with the root of the number of families only. How many cells a family has matters little, as very large
  ones are measured in pairs anyway.
* **moments** for more columns. Where most rows are at the first level of most columns, as in wide tables of codes and
  diagnoses, a row has few pairs of levels, so that one clipped vector of all of them is less noisy than hundreds of
  tables: the error is lower, by up to nearly a half. Where they are not, it is higher, by up to a quarter.

Rows and ε move both alike, so they are not in the rule. ``autoregressive`` and ``vae`` are never chosen: they start at
``moments`` and spend the rest of the budget on gradients, which for the networks that small budgets allow are noisy
versions of the same moments. At ε up to 3 they were behind the chosen one on every table that was measured, and are
there for those who want them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from escudo.mechanisms import Seed
from escudo.privacy import Account, Guarantee, Plan
from escudo.table import PrivateTable, Schema

if TYPE_CHECKING:
    from escudo.synthesis._generators import Model, Prepared

__all__ = ["Chosen", "choose"]

_FEW = 30  # columns


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

    @property
    def checkpoint(self) -> object:
        """What the chosen generator goes on from if it was stopped; None for nothing."""
        return getattr(self.prepared, "checkpoint", None)

    def fit(self, table: PrivateTable, *, account: Account, seed: Seed, guarantee: Guarantee) -> Model:
        """Fit the chosen generator."""
        return self.prepared.fit(table, account=account, seed=seed, guarantee=guarantee)


def choose(schema: Schema) -> tuple[str, str]:
    """Return the name of a generator, and why it was chosen.

    >>> few = Schema.from_dict({f"x{i}": ["no", "yes"] for i in range(15)})
    >>> many = Schema.from_dict({f"x{i}": ["no", "yes"] for i in range(200)})
    >>> [choose(schema)[0] for schema in (few, many)]
    ['marginals', 'moments']
    """
    columns = len(schema.names)
    if columns <= _FEW:
        return "marginals", f"marginals, as there are {columns} columns, not more than {_FEW}"
    return "moments", f"moments, as there are {columns} columns, more than {_FEW}"
