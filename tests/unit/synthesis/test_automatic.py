"""generator="auto": a public rule, which the plan states, and nothing else than the generator it names."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.privacy import MemoryAccount
from escudo.synthesis import prepare, synthesize
from escudo.table import PrivateTable, Schema

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
NAMES = [f"x{number}" for number in range(12)]
SCHEMA = Schema.from_dict({name: ["no", "yes"] for name in NAMES})
CHAIN = CausalGraph.from_edges(list(pairwise(NAMES)))
WIDE = Schema.from_dict({f"x{number}": ["no", "yes"] for number in range(31)})
MIXED = Schema.from_dict({f"x{number}": ["no", "yes", "maybe"][: 2 + number % 2] for number in range(31)})
WIDE_CHAIN = CausalGraph.from_edges(list(pairwise(WIDE.names)))
STAR = CausalGraph.from_edges([(name, NAMES[-1]) for name in NAMES[:-1]])
GROUPS = CausalGraph.from_edges([("first", "second")], groups={"first": NAMES[:6], "second": NAMES[6:]})


@pytest.mark.parametrize(
    ("schema", "graph", "rows", "epsilon", "expected"),
    [
        (SCHEMA, CHAIN, 1000, 0.5, "marginals"),
        (SCHEMA, STAR, 1000, 1.0, "marginals"),
        (SCHEMA, STAR, 10**6, 0.001, "marginals"),
        (SCHEMA, GROUPS, 10**6, 1.0, "marginals"),
        (SCHEMA, None, None, 1.0, "marginals"),
        (WIDE, WIDE_CHAIN, 1000, 0.1, "moments"),
        (WIDE, WIDE_CHAIN, 10**6, 3.0, "moments"),
        (WIDE, WIDE_CHAIN, None, 1.0, "moments"),
        (MIXED, WIDE_CHAIN, None, 1.0, "marginals"),
        (MIXED, None, None, 1.0, "marginals"),
    ],
    ids=[
        "chain",
        "star",
        "little budget",
        "groups",
        "no graph",
        "wide",
        "wide and much data",
        "wide, rows unknown",
        "wide, more levels",
        "wide, more levels, no graph",
    ],
)
def test_the_choice_follows_the_columns_and_their_levels(schema, graph, rows, epsilon, expected):
    made = prepare(schema, graph, generator="auto", epsilon=epsilon, delta=1e-6, public_rows=rows).plan
    assert made.name == expected
    assert made.children[0].name.startswith(f"chosen: {expected}")


def test_the_plan_is_the_chosen_ones_and_says_why():
    made = prepare(SCHEMA, CHAIN, generator="auto", **BUDGET).plan
    plain = prepare(SCHEMA, CHAIN, generator="marginals", **BUDGET).plan
    assert made.name == "marginals"
    assert made.event == plain.event
    assert made.stated_delta == plain.stated_delta
    assert "chosen: marginals, as there are 12 columns, not more than 30" in str(made)


def test_the_model_is_the_chosen_generators_and_charged_once():
    account = MemoryAccount()
    frame = pl.DataFrame({name: ["no", "yes"] * 100 for name in NAMES})
    model = synthesize(PrivateTable(frame, SCHEMA, account), CHAIN, generator="auto", seed=1, **BUDGET)
    assert model.generator == "marginals"
    assert len(account.receipts) == 1


def test_options_are_the_chosen_generators():
    with pytest.raises(InputError, match="generator 'marginals' has no option 'latent'"):
        prepare(SCHEMA, CHAIN, generator="auto", latent=3, **BUDGET)
