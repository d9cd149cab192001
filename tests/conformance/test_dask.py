"""Dask's blocks vote on its workers, and read the table once, as on every other engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import escudo
from conformance import spark_cluster
from escudo.causal import CausalGraph
from escudo.table import PrivateTable, Schema, _rows

dask = pytest.importorskip("dask")
dd = pytest.importorskip("dask.dataframe")


def _dask(frame: pl.DataFrame, read: list[int]) -> Any:
    """Return a frame of four parts, one of them without rows, that notes which ones are read."""
    whole = frame.to_pandas()
    cuts = [(0, 900), (900, 900), (900, 2000), (2000, len(whole))]

    def part(number: int) -> Any:
        read.append(number)
        return whole.iloc[slice(*cuts[number])]

    delayed = [dask.delayed(part, pure=False)(number) for number in range(len(cuts))]
    return dd.from_delayed(delayed, meta=whole.iloc[:0], verify_meta=False)


def test_blocks_vote_where_their_records_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """By position, by the rows' own values and by person; of one pair and of pairs; to the last vote."""
    frame, schema = spark_cluster.clinic()
    frame = frame.with_columns(who=pl.int_range(pl.len()) // 2, half=pl.col("dose") / 2)
    fields = (*schema.fields, *Schema.from_dict({"half": {"type": "numeric", "lower": 0, "upper": 3}}).fields)
    graph = CausalGraph.parse("graph {dose -- late; half -- late}")
    units: list[tuple[Schema, dict[str, Any]]] = [
        (Schema(fields), {"rows": 3000}),
        (Schema(fields), {"relation": "add_remove", "rows": 3000}),
        (Schema(fields, person_id="who", max_rows_per_person=2), {"people": 1500}),
    ]

    def answers(one: Any, chosen: Schema, terms: dict[str, Any]) -> list[Any]:
        table = PrivateTable(one, chosen, **terms)
        pair = escudo.direction(table, "dose", "late", epsilon=2.0, seed=1).to_json()
        return [pair, str(escudo.orient(table, graph, epsilon=3.0, delta=1e-6, seed=1).to_json())]

    wanted = [answers(frame, *unit) for unit in units]
    assert all(pair["margin"] != 0 for pair, _ in wanted)
    monkeypatch.setattr(_rows.Arrays, "read", None)  # what hands rows to the client
    for unit, expected in zip(units, wanted, strict=True):
        read: list[int] = []
        parts = _dask(frame, read)
        read.clear()
        assert answers(parts, *unit) == expected
        assert sorted(read) == sorted([0, 1, 2, 3] * 2), "each question reads each part once"


def test_a_table_without_rows_is_one_like_any_other() -> None:
    frame, schema = spark_cluster.clinic()
    public = {"relation": "add_remove", "rows": 3000}
    none = [frame.clear(), dd.from_pandas(frame.clear().to_pandas(), npartitions=1)]
    told = [
        escudo.direction(PrivateTable(one, schema, **public), "dose", "late", epsilon=2.0, seed=1).to_json()
        for one in none
    ]
    assert told[0] == told[1]
    assert np.isfinite(told[0]["margin"])
