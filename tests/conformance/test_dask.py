"""Dask's workers vote, compare whole columns and train networks; answers are those of every other engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import escudo
from conformance import spark_cluster
from escudo.attacks import attack
from escudo.causal import CausalGraph
from escudo.errors import EngineError, InputError, SchemaError
from escudo.privacy import MemoryAccount
from escudo.synthesis import clinic
from escudo.table import PrivateTable, Schema, _rows, _where, check, draft_linked

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


TRAININGS: dict[str, dict[str, Any]] = {
    "autoregressive": {"generator": "autoregressive", "steps": 10, "pretraining": 10},
    "joint": {"generator": "vae", "discover": "joint", "steps": 10, "latent": 2, "encoder": (8,), "decoder": (8,)},
}


@pytest.mark.parametrize("kind", TRAININGS)
def test_networks_are_trained_by_a_task_to_the_last_bit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frame, schema = spark_cluster.clinic()
    graph = None if kind == "joint" else CausalGraph.parse("digraph {smoke -> ill -> dose; late}")
    terms: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "seed": 1, **TRAININGS[kind]}
    ours = escudo.synthesize(PrivateTable(frame, schema), graph, **terms).parameters
    monkeypatch.setattr(_rows.Arrays, "read", None)
    read: list[int] = []
    parts = _dask(frame, read)
    theirs = escudo.synthesize(PrivateTable(parts, schema), graph, **terms).parameters
    np.testing.assert_equal(theirs, ours)


_READ = _rows.Arrays.read


def _of_public_rows(arrays: Any, source: Any) -> Any:
    assert source.engine == "polars"
    return _READ(arrays, source)


def test_columns_that_are_compared_whole_are_read_by_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each half, if both are private: to the last bit."""
    frame, schema = spark_cluster.clinic()
    public = {"dose": np.linspace(0.1, 4.9, 400), "late": np.linspace(0.1, 4.9, 400) ** 2 / 9}
    asked: list[tuple[int, dict[str, Any]]] = [
        (2, {"method": "gap"}),
        (2, {"method": "gap", "score": "iqr"}),
        (1, {"method": "gap", "train": public}),
        (1, {"method": "paper"}),
        (1, {"method": "paper", "score": "iqr"}),
    ]
    for times, how in asked:
        terms: dict[str, Any] = {"epsilon": 9.0, "delta": 1e-6, "seed": 1, **how}
        ours = escudo.direction(PrivateTable(frame, schema), "dose", "late", **terms).to_json()
        with monkeypatch.context() as patch:
            patch.setattr(_rows.Arrays, "read", _of_public_rows)
            patch.setattr(PrivateTable, "record_count", lambda _: 3000)  # which reads the table as well
            read: list[int] = []
            table = PrivateTable(_dask(frame, read), schema)
            read.clear()
            assert escudo.direction(table, "dose", "late", **terms).to_json() == ours, how
        assert sorted(read) == sorted([0, 1, 2, 3] * times), how


def test_rows_of_people_come_in_one_order_however_they_arrive() -> None:
    """So a seed repeats a training. All rows are those of polars."""
    frame, schema = spark_cluster.clinic()
    people = Schema(schema.fields, person_id="who", max_rows_per_person=2)
    frame = frame.with_columns(who=pl.int_range(pl.len()) // 3)
    wanted = np.concatenate(list(PrivateTable(frame, people).batches()))
    orders = []
    for seed in (1, 2):
        parts = dd.from_pandas(
            frame.sample(fraction=1.0, shuffle=True, seed=seed).to_pandas(), npartitions=4, sort=False
        )
        with PrivateTable(parts, people).in_one_place() as whole:
            orders.append(whole.found(np.copy))
    np.testing.assert_array_equal(orders[0], orders[1])
    np.testing.assert_array_equal(np.sort(orders[0], axis=0), np.sort(wanted, axis=0))


def test_rows_that_come_in_another_order_are_refused_before_they_are_split_again() -> None:
    """Or somebody could be in both halves: charged, and marked failed."""
    frame, schema = spark_cluster.clinic()
    whole, turns = frame.to_pandas(), iter(range(10**9))

    def part(number: int) -> Any:
        return whole.sample(frac=1.0, random_state=next(turns))

    delayed = [dask.delayed(part, pure=False)(0)]
    account = MemoryAccount()
    table = PrivateTable(dd.from_delayed(delayed, meta=whole.iloc[:0], verify_meta=False), schema, account, rows=3000)
    with pytest.raises(EngineError, match="table changed"):
        escudo.direction(table, "dose", "late", method="gap", epsilon=2.0)
    assert list(account.failed.values()) == ["EngineError"]


def test_what_the_custodian_asks_is_done_by_a_task() -> None:
    """Of parts one of which has no rows; checks and drafts, too."""
    frame, schema = spark_cluster.clinic()
    ruled, parts = Schema(schema.fields, rules=("dose >= late",)), _dask(frame, [])
    assert check(parts, ruled).to_dict() == check(frame, ruled).to_dict()
    assert spark_cluster.asked(parts, schema) == spark_cluster.asked(frame, schema)
    people = clinic(40, seed=1)
    linked = {name: dd.from_pandas(one.to_pandas(), npartitions=2) for name, one in people.frames.items()}
    assert draft_linked(linked, "patients").to_dict() == draft_linked(people.frames, "patients").to_dict()
    with pytest.raises(InputError, match="real_test must be a frame"):
        escudo.evaluate(parts, "visits.csv", frame, schema)
    with pytest.raises(SchemaError, match="does not have the schema's column 'ill'"):
        escudo.evaluate(parts[["smoke", "dose", "late"]], frame, frame, schema)


def test_synthetic_rows_of_dask_do_not_take_private_ones_there(monkeypatch: pytest.MonkeyPatch) -> None:
    frame, schema = spark_cluster.clinic(200)
    monkeypatch.setattr(_where, "Errand", None)  # what goes to a worker
    how: dict[str, Any] = {"targets": ["ill"], "learners": ["logistic"]}
    made = dd.from_pandas(frame.to_pandas(), npartitions=2)
    assert escudo.evaluate(frame, frame, made, schema, **how) == escudo.evaluate(frame, frame, frame, schema, **how)


def test_the_client_gets_no_row_and_a_worker_that_is_lost_costs_nothing_but_time(tmp_path: Path) -> None:
    """On workers that are processes: work on all rows is begun anew on another one, and one answer comes back.

    What the custodian asks goes on from its log.
    """
    pytest.importorskip("distributed", reason="distributed is not installed")
    frame, schema = spark_cluster.clinic()
    frame = frame.with_columns(who=pl.int_range(pl.len()) // 2)
    (tmp_path / "rows").mkdir()
    for number, start in enumerate(range(0, frame.height, 700)):
        frame[start : start + 700].write_parquet(tmp_path / "rows" / f"part-{number}.parquet")
    script = [sys.executable, str(Path(spark_cluster.__file__).with_name("dask_cluster.py")), str(tmp_path)]

    def held() -> list[str]:
        return sorted(path.name for path in tmp_path.glob("held-*"))

    def fits() -> list[str]:
        return [path.name for path in tmp_path.glob("fit-*")]

    with subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as client:
        try:
            spark_cluster.until(lambda: len(held()) == 1 or client.poll() is not None, "work on all rows")
            (begun,) = held()
            os.kill(int(begun.split("-")[1]), signal.SIGKILL)
            spark_cluster.until(lambda: len(held()) == 2 or client.poll() is not None, "second run of it")
            (tmp_path / "go on").touch()
            spark_cluster.until(lambda: len(fits()) == 4 or client.poll() is not None, "attack")
            os.kill(int(fits()[0].split("-")[-1]), signal.SIGKILL)
            (tmp_path / "fit on").touch()
            out, _ = client.communicate()
        finally:
            client.kill()
    answers = json.loads(out)
    (second,) = (name for name in held() if name != begun)
    assert answers["held"] == [frame.height, int(second.split("-")[2])]
    assert begun.split("-")[2] != second.split("-")[2]  # each run draws for itself
    made = clinic(40, seed=1)
    asked = {
        "people": [frame.height, 4, spark_cluster.asked_of_people(made.frames, made)],
        "compared": spark_cluster.compared(frame, schema),
        "asked": spark_cluster.asked(frame, schema),
        "attacked": attack(spark_cluster.made_of, frame, schema, **spark_cluster.ATTACKED).to_json(),
    }
    assert {name: answers[name] for name in asked} == json.loads(json.dumps(asked))
    made_anew = len(fits()) - spark_cluster.ATTACKED["shadows"] - answers["attacked"]["targets"][0]["runs"]
    assert made_anew == 1  # the fit that was lost: those before it came from the log
