"""A count on a standalone cluster, as a program of its own: two workers are running, and one may be lost meanwhile.

``python spark_cluster.py MASTER FOLDER`` counts a table whose partitions wait for the file ``go`` in FOLDER and leave
one file each there when they begin. Then it asks four questions, counts linked tables and the Delta table ``visits`` in
FOLDER. Then some work waits, with all rows, for the file ``go on``, and leaves one file each time it begins. Last it
compares two columns and trains a network, and prints counts and answers as JSON.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import escudo
from escudo.attacks import attack, infer_attribute, published_game, victim_of
from escudo.causal import CausalGraph
from escudo.synthesis import Clinic
from escudo.synthesis import clinic as clinic_of_people
from escudo.table import (
    Categorical,
    LinkedSchema,
    LinkedTable,
    Numeric,
    PrivateTable,
    PrivateTables,
    Schema,
    open_data,
)

ROWS = 40_000
SCHEMA = Schema((Categorical("kind", ["a", "b", "c"], missing=True), Numeric("size", 0, 40_000, 8)))
BY_PERSON = Schema(SCHEMA.fields, person_id="who", max_rows_per_person=3)
TABLES = [("kind", "size"), ("kind",)]
# Java machines here live for seconds: compiling well, or clearing up on several cores, costs more than it saves.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


DEADLINE = 1200.0  # seconds until a cluster that does not come up is called broken


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, f"no {what}"
        time.sleep(0.1)


def rows_of(numbers: list[int]) -> dict[str, list[Any]]:
    return {
        "kind": ["abc?"[number % 7 % 4] for number in numbers],
        "size": [float(number) for number in numbers],
        "who": [number % 5000 for number in numbers],
    }


def clinic(rows: int = 3000) -> tuple[pl.DataFrame, Schema]:
    """Return a table for the four of them, and its schema."""
    rng = np.random.default_rng(5)
    smoke = rng.random(rows) < 0.3
    ill = rng.random(rows) < np.where(smoke, 0.6, 0.2)
    dose = np.where(ill, 3.0, 1.0) + rng.normal(0, 0.5, rows)
    frame = pl.DataFrame(
        {"smoke": np.where(smoke, "yes", "no"), "ill": np.where(ill, "yes", "no"), "dose": dose, "late": dose**3 / 30}
    )
    levels = ["no", "yes"]
    numbers = {"dose": {"type": "numeric", "lower": 0, "upper": 5}, "late": {"type": "numeric", "lower": 0, "upper": 4}}
    return frame, Schema.from_dict({"smoke": levels, "ill": levels, **numbers})


def answers(frame: Any, schema: Schema) -> list[Any]:
    """Return what a release, a discovery, a direction and an effect say."""
    table = PrivateTable(frame, schema)
    model = escudo.synthesize(
        table, graph=CausalGraph.parse("digraph {smoke -> ill -> dose}"), epsilon=2.0, delta=1e-6, seed=1
    )
    found = escudo.discover(table, epsilon=2.0, delta=1e-6, seed=1)
    way = escudo.direction(table, "dose", "late", epsilon=2.0, seed=1)
    effect = escudo.effect_of(table, "smoke", "ill", trial=True, epsilon=2.0, seed=1)
    return [model.sample(50, seed=2).rows(), str(found.graph), str(way.to_json()), str(effect.to_json())]


def compared(frame: Any, schema: Schema) -> list[Any]:
    """Return what is found of all rows in one place: directions by whole columns, and a network."""
    table, paid = PrivateTable(frame, schema), {"epsilon": 9.0, "delta": 1e-6, "seed": 1}
    ways = [escudo.direction(table, "dose", "late", method=method, **paid) for method in ("gap", "paper")]
    graph = CausalGraph.parse("digraph {smoke -> ill -> dose}")
    network = {"generator": "vae", "steps": 5, "pretraining": 5, "latent": 2, "encoder": (4,), "decoder": (4,)}
    model = escudo.synthesize(table, graph=graph, **paid, **network)
    return [*(str(way.to_json()) for way in ways), str(model.sample(20, seed=2).rows())]


ATTACKED: dict[str, Any] = {"targets": 1, "shadows": 4, "trials": 4, "attacks": [("queries", "logistic")], "seed": 1}
"""How an attack is made."""


def made_of(rows: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Return synthetic rows by a generator of somebody's own, which promises nothing."""
    return rows.sample(100, with_replacement=True, seed=int(rng.integers(2**31)))


def asked(frame: Any, schema: Schema) -> list[Any]:
    """Return what the custodian is told of private rows: two games, one with a generator of their own, and so on."""
    made = clinic(200)[0].sample(fraction=1.0, with_replacement=True, seed=1)
    few: dict[str, Any] = {"targets": 1, "seed": 1}
    victim = victim_of("independent", schema, epsilon=1.0)
    told: list[str] = []

    def resampled(rows: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:  # a worker need not have this file
        return rows.sample(100, with_replacement=True, seed=int(rng.integers(2**31)))

    games = [
        attack("independent", frame, schema, epsilon=1.0, on_progress=told.append, **ATTACKED),
        attack(resampled, frame, schema, **ATTACKED),
        infer_attribute(victim, frame, schema, "ill", fits=4, size=50, **few),
    ]
    assert len(told) == 1  # of one target
    assert told[0].startswith(games[0].targets[0].label)
    found = escudo.evaluate(frame, frame, [made, made], schema, targets=["ill", "dose"], learners=["logistic"], seed=1)
    table = published_game(victim, frame, schema, fits=1, sets=4, size=50, classifiers=["forest"], **few)
    return [found.to_json(), *(game.to_json() for game in games), [str(score) for score in table]]


def asked_of_people(frames: Mapping[str, Any], made: Clinic) -> list[Any]:
    """Return the same of linked tables."""
    games = [
        attack("marginals", frames, made.schema, graph=made.graph, epsilon=1.0, **ATTACKED),
        attack(lambda frames, _: dict(frames), frames, made.schema, **ATTACKED),
    ]
    found = escudo.evaluate(frames, frames, clinic_of_people(40, seed=3).frames, made.schema)
    return [found.to_json(), *(game.to_json() for game in games)]


def linked(frames: Mapping[str, Any], schema: LinkedSchema) -> list[Any]:
    """Return counts of people with their visits."""
    after = ("visits.severity@prev", "visits.severity", "visits.gap", "patients.smoke")
    tables = [
        LinkedTable(view="people", columns=("patients.smoke", "visits.count")),
        LinkedTable(view="next", table="visits", columns=after),
    ]
    return [counts.tolist() for counts in PrivateTables(frames, schema).counts(tables)]


def main(master: str, folder: Path) -> None:
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "OFF",
        "spark.driver.extraJavaOptions": JAVA,
        "spark.executor.extraJavaOptions": JAVA,
    }
    session = SparkSession.builder.master(master).config(map=settings).getOrCreate()

    def slow(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            (folder / f"began-{uuid.uuid4()}").touch()
            while not (folder / "go").exists():
                time.sleep(0.05)
            yield pa.record_batch(rows_of(batch.column(0).to_pylist()))

    frame = session.range(0, ROWS, numPartitions=4).mapInArrow(slow, "kind string, size double, who long")
    counted = {}
    for unit, schema in (("row", SCHEMA), ("person", BY_PERSON)):
        counted[unit] = [table.tolist() for table in PrivateTable(frame, schema).counts(TABLES)]
    rows, described = clinic()
    counted["answers"] = answers(session.createDataFrame(rows.to_arrow()), described)
    made = clinic_of_people(200, seed=1)
    several = {name: session.createDataFrame(frame.to_arrow()) for name, frame in made.frames.items()}
    counted["linked"] = linked(several, made.schema)
    visits = open_data(f"{master}{folder}/visits", described)
    counted["delta"] = PrivateTable(visits, described).counts(["smoke", "ill"]).tolist()

    def held(rows: Any) -> Any:
        """Of whatever runs of it there are, one answer comes back, by a draw of its own."""
        drawn = secrets.randbits(32)
        (folder / f"held-{os.getsid(0)}-{drawn}").touch()
        while not (folder / "go on").exists():
            time.sleep(0.05)
        return np.array([len(rows), drawn])

    there = session.createDataFrame(rows.to_arrow())
    with PrivateTable(there, described).in_one_place() as whole:
        counted["held"] = whole.found(held).tolist()
    counted["compared"] = compared(there, described)
    print(json.dumps(counted), flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
