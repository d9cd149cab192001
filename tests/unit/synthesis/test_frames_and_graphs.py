"""What analysts bring and take: a graph of networkx is a graph, and rows come in the kind of frame that came in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import polars as pl
import pytest

import escudo
from escudo.errors import GraphError
from escudo.privacy import MemoryAccount
from escudo.synthesis import forecast

SCHEMA = escudo.Schema.from_dict({"smoke": ["no", "yes"], "ill": ["no", "yes"]})
ROWS = pl.DataFrame({"smoke": ["yes", "no"] * 500, "ill": ["yes", "no", "no", "no"] * 250})
OURS = escudo.CausalGraph.from_edges([("smoke", "ill")])


def _answers(graph: Any, folder: Path) -> list[object]:
    table = escudo.PrivateTable(ROWS, SCHEMA)
    how: dict[str, Any] = {"epsilon": 1.0, "seed": 1}
    return [
        escudo.synthesize(table, graph, **how).graph,
        forecast(SCHEMA, graph, epsilon=1.0, rows=1000).pairs,
        escudo.load(escudo.release(table, folder, graph, **how).model).graph,
        escudo.effect_of(table, "smoke", "ill", graph=graph, **how).value,
    ]


def test_every_verb_takes_a_graph_of_networkx(tmp_path: Path) -> None:
    assert _answers(nx.DiGraph([("smoke", "ill")]), tmp_path / "one") == _answers(OURS, tmp_path / "two")


@pytest.mark.parametrize("graph", [[("smoke", "ill")], "smoke -> ill", {"ill": ["smoke"]}])
def test_what_is_no_graph_is_refused_in_words_and_costs_nothing(graph: object) -> None:
    account = MemoryAccount(epsilon=1.0)
    wrong: Any = graph
    with pytest.raises(GraphError, match=r"graph must be.*from_edges"):
        escudo.synthesize(escudo.PrivateTable(ROWS, SCHEMA, account), wrong, epsilon=1.0)
    with pytest.raises(GraphError, match=r"graph must be.*from_edges"):
        forecast(SCHEMA, wrong, epsilon=1.0)
    assert account.receipts == ()


@pytest.mark.parametrize("kind", ["polars", "pandas", "pyarrow"])
def test_rows_come_back_in_the_kind_of_frame_that_came_in(kind: str) -> None:
    frame = {"polars": lambda: ROWS, "pandas": ROWS.to_pandas, "pyarrow": ROWS.to_arrow}[kind]()
    model = escudo.synthesize(escudo.PrivateTable(frame, SCHEMA), OURS, epsilon=1.0, seed=1)
    drawn = model.sample(20, seed=1)
    assert type(drawn) is type(frame)
    wanted = pl.DataFrame(model.sample(20, seed=1, frame="polars"))
    assert pl.DataFrame(drawn).cast(pl.String).equals(wanted.cast(pl.String))
