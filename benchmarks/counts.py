"""Contingency counts: eight 3-way tables over 10 million rows and 8 columns, against the same group-bys by hand.

Run ``python benchmarks/counts.py`` from the repository's root; it takes a few minutes and writes
``benchmarks/results/counts.json`` and ``counts.md``. The baselines are the group-bys a careful user would write
directly in polars (lazy, all eight collected together, the faster of its two engines) and in DuckDB; both leave sparse
groups, while escudo also guards against values outside the schema and fills dense arrays. Runs are interleaved and the
fastest of each counts. Memory is the peak resident size (as Linux keeps it) of a fresh process that counts once, above
what it held just before. Every result is checked against counts by NumPy. Exits with 1 if a target is missed or a count
is wrong.

Options: ``--quick`` is a smoke run on fewer rows that checks no target and writes nothing; ``--memory`` is what the
benchmark calls itself with.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
from _made import made, told

from escudo.table import PrivateTable, Schema

SEED = 20_261_115
ROWS = 10_000_000
COLUMNS = 8
LEVELS = (4, 10)  # small enough for several tables to share a group-by, and not
REPEATS = 7
TARGET_RATIO = 1.5
TARGET_MEMORY_MB = 1000.0
RESULTS = Path(__file__).parent / "results"

TABLES = [tuple(f"x{(first + step) % COLUMNS}" for step in (0, 1, 3)) for first in range(COLUMNS)]


def drawn(levels: int, rows: int) -> pl.DataFrame:
    rng = np.random.default_rng(SEED)
    return pl.DataFrame({f"x{i}": rng.integers(0, levels, rows, dtype=np.int8) for i in range(COLUMNS)})


def in_duckdb(frame: pl.DataFrame) -> Any:
    connection = duckdb.connect()
    connection.register("arrow", frame.to_arrow())
    connection.execute("CREATE TABLE d AS SELECT * FROM arrow")
    return connection


FRAMES: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars": lambda frame: frame,
    "polars lazy": lambda frame: frame.lazy(),
    "DuckDB": lambda frame: in_duckdb(frame).table("d"),
    "pyarrow": lambda frame: frame.to_arrow(),
    "pandas": lambda frame: frame.to_pandas(),
}


def counted(source: Any, levels: int) -> list[np.ndarray]:
    schema = Schema.from_dict({f"x{i}": list(range(levels)) for i in range(COLUMNS)})
    return PrivateTable(source, schema).counts(TABLES)


def status_mb(field: str) -> float:
    """Read a size that Linux keeps for this process: VmRSS is now, VmHWM the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith(f"{field}:"))


def growth_mb(name: str, levels: int, rows: int) -> float:
    source = FRAMES[name](drawn(levels, rows))
    counted(FRAMES[name](drawn(levels, 1000)), levels)  # so that imports do not count
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = status_mb("VmRSS")
    counted(source, levels)
    return status_mb("VmHWM") - before


def growth_in_a_fresh_process(name: str, levels: int, rows: int) -> float:
    command = [sys.executable, __file__, "--memory", name, str(levels), str(rows)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def by_numpy(frame: pl.DataFrame, levels: int) -> list[np.ndarray]:
    cells = {name: frame[name].to_numpy().astype(np.int32) for name in frame.columns}
    return [
        np.bincount((cells[a] * levels + cells[b]) * levels + cells[c], minlength=levels**3).reshape((levels,) * 3)
        for a, b, c in TABLES
    ]


def measure(levels: int, rows: int, repeats: int) -> dict[str, Any]:
    frame = drawn(levels, rows)
    lazy = frame.lazy()
    connection = in_duckdb(frame)
    queries = [f"SELECT {', '.join(t)}, count(*) AS n FROM d GROUP BY {', '.join(t)}" for t in TABLES]

    def in_polars(engine: Any) -> Any:
        return pl.collect_all([lazy.group_by(list(table)).len() for table in TABLES], engine=engine)

    jobs: dict[str, Callable[[], Any]] = {
        "by hand: polars lazy, in-memory engine": lambda: in_polars("in-memory"),
        "by hand: polars lazy, streaming engine": lambda: in_polars("streaming"),
        "by hand: DuckDB": lambda: [connection.execute(query).fetchnumpy() for query in queries],
    }
    for name, build in FRAMES.items():
        source = connection.table("d") if name == "DuckDB" else build(frame)
        jobs[f"escudo: {name}"] = lambda source=source: counted(source, levels)
    truth = by_numpy(frame, levels)
    seconds: dict[str, list[float]] = {key: [] for key in jobs}
    wrong: set[str] = set()
    for _ in range(repeats):
        for key, job in jobs.items():
            start = time.perf_counter()
            result = job()
            seconds[key].append(time.perf_counter() - start)
            if key.startswith("escudo") and not all(map(np.array_equal, result, truth)):
                wrong.add(key)
    fastest = {key: min(times) for key, times in seconds.items()}
    polars = min(fastest[f"by hand: polars lazy, {engine} engine"] for engine in ("in-memory", "streaming"))
    against = {name: fastest["by hand: DuckDB"] if name == "DuckDB" else polars for name in FRAMES}
    return {
        "levels": levels,
        "seconds": fastest,
        "all_seconds": seconds,
        "ratio": {name: fastest[f"escudo: {name}"] / against[name] for name in FRAMES},
        "memory_mb": {name: growth_in_a_fresh_process(name, levels, rows) for name in FRAMES},
        "wrong": sorted(wrong),
    }


def missed(found: dict[str, Any], *, speed: bool) -> list[str]:
    problems = [f"{name}: wrong counts" for name in found["wrong"]]
    for name, ratio in found["ratio"].items() if speed else ():
        if ratio > TARGET_RATIO:
            problems.append(f"{name}: {ratio:.2f}x the engine's own time, more than {TARGET_RATIO}x")
        if found["memory_mb"][name] >= TARGET_MEMORY_MB:
            problems.append(f"{name}: {found['memory_mb'][name]:.0f} MB above the table")
    return problems


def verdict(record: dict[str, Any]) -> str:
    if record["missed"]:
        return f"Missed: {'; '.join(record['missed'])}."
    return "All met." if record["rows"] == ROWS else "Not checked in a smoke run."


def markdown(record: dict[str, Any]) -> str:
    about = record["machine"]
    lines = [
        "# Contingency counts",
        "",
        f"Eight 3-way tables over {record['rows']:,} rows × {COLUMNS} columns of small integers; fastest of "
        f"{record['repeats']} interleaved runs. {told(about)}, polars {about['polars']}, DuckDB {about['duckdb']}. "
        "Made by `python benchmarks/counts.py`.",
        "",
        "| | levels | seconds | against the same group-bys by hand | MB above the table |",
        "|---|---|---|---|---|",
    ]
    for found in record["measured"]:
        for key, seconds in found["seconds"].items():
            kind, name = key.split(": ")
            last = f"{found['ratio'][name]:.2f}x | {found['memory_mb'][name]:.0f}" if kind == "escudo" else " | "
            lines.append(f"| {key} | {found['levels']} | {seconds:.3f} | {last} |")
    lines += [
        "",
        f"Targets: at most {TARGET_RATIO}x, less than {TARGET_MEMORY_MB:.0f} MB above the table. " + verdict(record),
        "",
        "pandas and pyarrow frames are counted by polars, which shares their memory, and are compared with it.",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure contingency counts.")
    parser.add_argument("--quick", action="store_true", help="a smoke run that writes nothing")
    parser.add_argument("--memory", nargs=3, metavar=("FRAME", "LEVELS", "ROWS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        name, levels, rows = options.memory
        print(growth_mb(name, int(levels), int(rows)))
        return 0
    quick = options.quick
    rows, repeats = (100_000, 1) if quick else (ROWS, REPEATS)
    packages = ("numpy", "narwhals", "polars", "duckdb", "pyarrow", "pandas")
    about = made(seed=SEED, **{name: version(name) for name in packages})
    measured = [measure(levels, rows, repeats) for levels in LEVELS]
    problems = [f"{found['levels']} levels, {text}" for found in measured for text in missed(found, speed=not quick)]
    record = {
        "benchmark": "counts",
        "seed": SEED,
        "rows": rows,
        "repeats": repeats,
        "targets": {"ratio": TARGET_RATIO, "memory_mb": TARGET_MEMORY_MB},
        "machine": about,
        "measured": measured,
        "missed": problems,
    }
    print(markdown(record))
    if not quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "counts.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        (RESULTS / "counts.md").write_text(markdown(record), encoding="utf-8")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
