"""The same counts on PySpark and Dask as on polars, to the last unit, by row and by person.

Run ``python benchmarks/engines.py`` from the repository's root; engines that are not installed are skipped with a
message (``pip install 'escudo[spark]' 'escudo[dask]'``; PySpark also needs Java 17). It draws a table with missing and
unknown values, infinities and NaN, counts it in every engine, and compares all tables with those of polars and, by
row, with the reference encoder. It writes ``benchmarks/results/engines.json`` and ``engines.md``, and exits with 1 if a
count differs.

Option: ``--quick`` is a smoke run on fewer rows that writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from _made import made, told

from escudo.table import Categorical, Numeric, PrivateTable, Schema

SEED = 20_261_115
ROWS = 1_000_000
PEOPLE = 100_000
MAX_ROWS_PER_PERSON = 5
RESULTS = Path(__file__).parent / "results"

FIELDS = (
    Categorical("smoke", ["no", "yes", "çok"], missing=True, other="no"),
    Categorical("ward", [3, 1, 2]),
    Categorical("ill", [False, True], missing=True),
    Numeric("age", 0, 110, 22, missing=True),
    Numeric("dose", edges=[-1, 0, 0.1, 5]),
)
UNITS = {
    "row": {},
    "person, whole numbers": {"person_id": "patient", "max_rows_per_person": MAX_ROWS_PER_PERSON},
    "person, text": {"person_id": "label", "max_rows_per_person": MAX_ROWS_PER_PERSON},
}
TABLES = [("smoke", "ward"), ("age", "ill", "dose"), ("ill",), ("ward", "age", "smoke"), ("dose", "smoke")]


def data(rows: int) -> pl.DataFrame:
    rng = np.random.default_rng(SEED)

    def drawn(values: list[Any], dtype: Any) -> pl.Series:
        return pl.Series(values, dtype=dtype).gather(rng.integers(0, len(values), rows))

    people = rng.integers(-PEOPLE // 2, PEOPLE // 2, rows)
    odd = [np.nan, np.inf, -np.inf, None, 0.0, -0.0, 0.1, 5.0]
    return pl.DataFrame(
        {
            "smoke": drawn(["no", "yes", "çok", "NO", "perhaps", None], pl.String),
            "ward": drawn([1, 2, 3, 9, None], pl.Int64),
            "ill": drawn([True, False, None], pl.Boolean),
            "age": pl.Series(rng.normal(50, 40, rows)),
            "dose": drawn([*odd, *rng.normal(0, 3, 500).tolist()], pl.Float64),
            "patient": people,
            "label": pl.Series([f"pätient {person}" if person % 50 else None for person in people.tolist()]),
        }
    )


def spark_frame(frame: pl.DataFrame) -> Any:
    from pyspark.sql import SparkSession

    cores = f"local[{os.cpu_count()}]"
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4", "spark.driver.memory": "4g"}
    builder = SparkSession.builder.master(cores).config(map=settings)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session.createDataFrame(frame.to_arrow()).cache()


def dask_frame(frame: pl.DataFrame) -> Any:
    import dask.dataframe as dd

    return dd.from_pandas(frame.to_pandas(use_pyarrow_extension_array=True), npartitions=8)


def duckdb_frame(frame: pl.DataFrame) -> Any:
    import duckdb

    connection = duckdb.connect()
    connection.register("arrow", frame.to_arrow())
    connection.execute("CREATE TABLE rows AS SELECT * FROM arrow")
    return connection.table("rows")


ENGINES: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars": lambda frame: frame.lazy(),
    "duckdb": duckdb_frame,
    "dask": dask_frame,
    "pyspark": spark_frame,
}


def by_reference(frame: pl.DataFrame, schema: Schema) -> list[np.ndarray]:
    cells = {column.name: column.encode(frame[column.name].to_numpy()) for column in schema.fields}
    tables = []
    for names in TABLES:
        shape = schema.shape(names)
        flat = np.ravel_multi_index([cells[name] for name in names], shape)
        tables.append(np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape))
    return tables


def markdown(record: dict[str, Any]) -> str:
    lines = [
        "# The same counts in every engine",
        "",
        f"Five tables over {record['rows']:,} rows with missing, unknown and infinite values. "
        f"{told(record['machine'])}. Made by `python benchmarks/engines.py`.",
        "",
        "| engine | unit | seconds, first and second run | the same counts |",
        "|---|---|---|---|",
    ]
    for found in record["measured"]:
        first, second = found["seconds"]
        verdict = "yes" if found["same"] else "**no**"
        lines.append(
            f"| {found['engine']} {found['version']} | {found['unit']} | {first:.2f}, {second:.2f} | {verdict} |"
        )
    lines += ["", *(f"Skipped: {name}, not installed." for name in record["skipped"]), ""]
    return "\n".join(lines)


def measure(rows: int) -> tuple[list[dict[str, Any]], list[str]]:
    frame = data(rows)
    skipped = [name for name in ENGINES if find_spec(name) is None]
    for name in skipped:
        print(f"skipped {name}: not installed", file=sys.stderr)
    truth: dict[str, list[np.ndarray]] = {"row": by_reference(frame, Schema(FIELDS))}
    measured = []
    for name, build in ENGINES.items():
        if name in skipped:
            continue
        native = build(frame)
        for unit, person in UNITS.items():
            table = PrivateTable(native, Schema(FIELDS, **person))
            seconds = []
            for _ in range(2):
                start = time.perf_counter()
                counts = table.counts(TABLES)
                seconds.append(time.perf_counter() - start)
            same = all(map(np.array_equal, counts, truth.setdefault(unit, counts)))
            measured.append({"engine": name, "version": version(name), "unit": unit, "seconds": seconds, "same": same})
    return measured, skipped


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the engines' counts.")
    parser.add_argument("--quick", action="store_true", help="a smoke run that writes nothing")
    quick = parser.parse_args().quick
    rows = 20_000 if quick else ROWS
    about = made(seed=SEED)
    measured, skipped = measure(rows)
    record = {
        "benchmark": "engines",
        "machine": about,
        "seed": SEED,
        "rows": rows,
        "measured": measured,
        "skipped": skipped,
    }
    print(markdown(record))
    if not quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "engines.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        (RESULTS / "engines.md").write_text(markdown(record), encoding="utf-8")
    return 0 if all(found["same"] for found in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
