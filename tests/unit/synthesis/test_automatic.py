"""generator="auto": a public rule, which the plan states, and nothing else than the generator it names."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.privacy import MemoryAccount
from escudo.synthesis import prepare, synthesize
from escudo.synthesis._automatic import choose
from escudo.table import PrivateTable, Schema

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
NAMES = [f"x{number}" for number in range(12)]
SCHEMA = Schema.from_dict({name: ["no", "yes"] for name in NAMES})
CHAIN = CausalGraph.from_edges(list(pairwise(NAMES)))
STAR = CausalGraph.from_edges([(name, NAMES[-1]) for name in NAMES[:-1]])
GROUPS = CausalGraph.from_edges([("first", "second")], groups={"first": NAMES[:6], "second": NAMES[6:]})


@pytest.mark.parametrize(
    ("graph", "rows", "epsilon", "expected"),
    [
        (CHAIN, 1000, 0.5, "marginals"),
        (STAR, 1000, 1.0, "autoregressive"),
        (STAR, 10**6, 1.0, "marginals"),
        (STAR, 10**6, 0.001, "autoregressive"),
        (GROUPS, 10**6, 1.0, "vae"),
        (GROUPS, 1000, 1.0, "marginals"),
        (None, None, 1.0, "marginals"),
    ],
    ids=["chain", "star", "much data", "little budget", "groups", "groups and little data", "no graph"],
)
def test_the_choice_follows_cells_rows_and_epsilon(graph, rows, epsilon, expected):
    name, why = choose(SCHEMA, graph, epsilon=epsilon, public_rows=rows)
    assert name == expected
    assert why.startswith(expected)


def test_the_plan_is_the_chosen_ones_and_says_why():
    made = prepare(SCHEMA, CHAIN, generator="auto", **BUDGET).plan
    plain = prepare(SCHEMA, CHAIN, generator="marginals", **BUDGET).plan
    assert made.name == "marginals"
    assert made.event == plain.event
    assert made.stated_delta == plain.stated_delta
    assert "chosen: marginals, as no family has more than 4 cells" in str(made)


def test_the_model_is_the_chosen_generators_and_charged_once():
    account = MemoryAccount()
    frame = pl.DataFrame({name: ["no", "yes"] * 100 for name in NAMES})
    model = synthesize(PrivateTable(frame, SCHEMA, account), CHAIN, generator="auto", seed=1, **BUDGET)
    assert model.generator == "marginals"
    assert len(account.receipts) == 1


def test_options_are_the_chosen_generators():
    with pytest.raises(InputError, match="generator 'marginals' has no option 'latent'"):
        prepare(SCHEMA, CHAIN, generator="auto", latent=3, **BUDGET)
