"""A count on a standalone cluster, as a program of its own: two workers are running, and one may be lost meanwhile.

``python spark_cluster.py MASTER FOLDER`` counts a table whose partitions wait for the file ``go`` in FOLDER and leave
one file each there when they begin. It prints the counts as JSON.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from escudo.table import Categorical, Numeric, PrivateTable, Schema

ROWS = 40_000
SCHEMA = Schema((Categorical("kind", ["a", "b", "c"], missing=True), Numeric("size", 0, 40_000, 8)))
BY_PERSON = Schema(SCHEMA.fields, person_id="who", max_rows_per_person=3)
TABLES = [("kind", "size"), ("kind",)]


def rows_of(numbers: list[int]) -> dict[str, list[Any]]:
    return {
        "kind": ["abc?"[number % 7 % 4] for number in numbers],
        "size": [float(number) for number in numbers],
        "who": [number % 5000 for number in numbers],
    }


def main(master: str, folder: Path) -> None:
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "OFF",
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
    print(json.dumps(counted), flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
