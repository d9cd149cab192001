"""Counting, releasing and bounding people from 10⁵ to 10⁹ rows: processor time, memory, and how they grow.

Run ``python benchmarks/scale.py --data DIR`` from the repository's root; DIR takes some 6 GB, is made if it is not
there and kept. 30 three-way tables are counted over 20 columns (ten of text with 2 to 20 levels, six of whole numbers,
two of booleans, two of reals, which fall into 20 and 10 bins), from Parquet. Each figure is of a process of its own:
processor seconds of it and its children, imports included only where said, since the cores are shared, and the peak of
the resident memory (of the largest process, for Spark that is the Java machine). *Reading* is the same columns handed
over in batches and dropped. *Linked* are a tenth as many people and their rows, as two tables, of which five are
counted. 10⁹ rows are ten times the file of 10⁸. *Wide* is a table of 1,000 columns with a graph of
1,996 arrows, by the library and by the command; *sample* draws 10⁹ rows of three columns and writes them as Parquet
parts (8 GB, then removed), *draw* draws 10⁷ rows of ten columns and drops them. Results go to
``benchmarks/results/scale.json`` and ``scale.md`` after each job, so that a stopped run goes on where it was;
``--only`` names jobs. Exits with 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from _made import commit, made, told

SEED = 20_261_117
RESULTS = Path(__file__).parent / "results"
LEVELS = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20)
WHOLES = (2, 3, 5, 7, 10, 20)
TEXTS = [f"t{i}" for i in range(len(LEVELS))]
PEOPLE = 10  # rows of each person, on average
MOST_ROWS = 5
PART = 1_000_000
SIZES = (10**5, 10**6, 10**7, 10**8)
TARGETS = {
    "duckdb ratio": 3.0,
    "pyarrow ratio": 3.0,
    "spark ratio": 3.5,
    "release 1e8 CPU-s": 60.0,
    "release 1e8 GB": 1.0,
    "duckdb 1e9 GB": 1.0,
    "people 1e8 CPU-s": 200.0,
    "people 1e8 GB": 1.0,
    "growth": 1.0,
    "wide CPU-s": 10.0,
    "wide command CPU-s": 10.0,
    "sample 1e9 GB": 1.0,
    "draw 1e7 CPU-s": 10.0,
}
WIDE, WIDE_ROWS = 1000, 10_000


def file_of(data: Path, rows: int) -> Path:
    return data / f"rows-{rows}.parquet"


def make(data: Path, rows: int) -> Path:
    """Write the table of so many rows, part by part; a larger one begins with the rows of a smaller one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = file_of(data, rows)
    if path.exists():
        return path
    data.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    writer = None
    for part in range(math.ceil(rows / PART)):
        rng = np.random.default_rng([SEED, part])
        size = min(PART, rows - part * PART)
        columns: dict[str, Any] = {}
        for name, levels in zip(TEXTS, LEVELS, strict=True):
            codes = pa.array(rng.integers(0, levels, PART, dtype=np.int8)[:size])
            texts = pa.array([f"level {level} of {name}" for level in range(levels)])
            columns[name] = pa.DictionaryArray.from_arrays(codes, texts).cast(pa.string())
        for i, levels in enumerate(WHOLES):
            columns[f"i{i}"] = pa.array(rng.integers(0, levels, PART)[:size])
        for i in range(2):
            columns[f"b{i}"] = pa.array(rng.integers(0, 2, PART).astype(bool)[:size])
        columns["f0"], columns["f1"] = pa.array(rng.normal(50, 20, PART)[:size]), pa.array(rng.random(PART)[:size])
        columns["who"] = pa.array(rng.integers(0, max(rows // PEOPLE, 1), PART)[:size])
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(draft, table.schema, compression="zstd")
        writer.write_table(table, row_group_size=131_072)
    assert writer is not None
    writer.close()
    draft.rename(path)
    return path


def schema_of(person: bool = False) -> Any:
    from escudo.table import Categorical, Numeric, Schema

    fields = [Categorical(t, [f"level {i} of {t}" for i in range(n)]) for t, n in zip(TEXTS, LEVELS, strict=True)]
    fields += [Categorical(f"i{i}", list(range(n))) for i, n in enumerate(WHOLES)]
    fields += [Categorical(f"b{i}", [False, True]) for i in range(2)]
    numbers = [Numeric("f0", 0, 100, 20), Numeric("f1", 0, 1, 10)]
    unit = {"person_id": "who", "max_rows_per_person": MOST_ROWS} if person else {}
    return Schema((*fields, *numbers), **unit)


def tables() -> list[tuple[str, ...]]:
    """Return 30 three-way tables of at most 1,200 cells that share columns here and there."""
    schema, rng = schema_of(), np.random.default_rng(SEED)
    drawn = (tuple(map(str, rng.choice(schema.names, 3, replace=False))) for _ in range(10_000))
    return [table for table in drawn if math.prod(schema.shape(table)) <= 1200][:30]


def linked(engine: str, path: Path) -> tuple[dict[str, Any], Any, list[Any]]:
    """Return people and their rows as linked tables, with their schema and five tables to count."""
    import polars as pl

    from escudo.table import LinkedSchema, LinkedTable

    people = path.with_name(f"people-{path.stem}.parquet")
    if not people.exists():
        size = max(int(pl.scan_parquet(path).select(pl.len()).collect().item()) // PEOPLE, 1)
        rng = np.random.default_rng(SEED)
        pl.DataFrame({"who": rng.permutation(size), "smoke": rng.integers(0, 3, size)}).write_parquet(people)
    edges = {"start_edges": [0, 10, 40, 100], "gap_edges": [0, 5, 20, 100]}
    own = {
        "t1": [f"level {level} of t1" for level in range(LEVELS[1])],
        "t3": [f"level {level} of t3" for level in range(LEVELS[3])],
        "i2": {"type": "categorical", "levels": list(range(WHOLES[2]))},
        "f1": {"type": "numeric", "lower": 0, "upper": 1, "bins": 10},
    }
    columns = {"smoke": {"type": "categorical", "levels": [0, 1, 2]}}
    schema = LinkedSchema.from_dict({
        "linked": {"people": "people", "dates": "days"},
        "tables": {
            "people": {"key": "who", "origin_day": 0, "columns": columns},
            "rows": {"parent": "people", "foreign_key": "who", "order": "f0", "most": 20, **edges, "columns": own},
        },
    })  # fmt: skip
    after = ("rows.t1@prev", "rows.t1")
    counted = [
        LinkedTable(view="people", columns=("people.smoke", "rows.count")),
        LinkedTable(view="first", table="rows", columns=("people.smoke", "rows.start", "rows.t1", "rows.t3")),
        LinkedTable(view="next", table="rows", columns=(*after, "rows.gap", "people.smoke")),
        LinkedTable(view="next", table="rows", columns=(*after, "rows.i2", "rows.f1")),
        LinkedTable(view="all", table="rows", columns=("rows.t3", "rows.i2", "rows.f1"), core=("rows.t3",)),
    ]
    return {"people": opened(engine, people), "rows": opened(engine, path)}, schema, counted


# -- one job in a process of its own


def spark_session() -> Any:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    }
    return SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()


def opened(engine: str, path: Path, copies: int = 1) -> Any:
    if engine == "duckdb":
        import duckdb

        return duckdb.connect().read_parquet([str(path)] * copies)
    if engine == "polars":
        import polars as pl

        return pl.scan_parquet(path)
    if engine == "pyarrow":
        import pyarrow.parquet as pq

        return pq.read_table(path, columns=list(schema_of().names), read_dictionary=TEXTS)
    return spark_session().read.parquet(str(path))


def read(engine: str, path: Path) -> int:
    """Hand over the columns in batches, and drop them."""
    names = list(schema_of().names)
    if engine == "duckdb":
        with opened(engine, path).select(", ".join(names)).to_arrow_reader(131_072) as batches:
            return sum(batch.num_rows for batch in batches)
    if engine == "polars":
        batches = opened(engine, path).select(names).collect_batches(chunk_size=131_072, engine="streaming")
        return sum(batch.height for batch in batches)
    if engine == "pyarrow":
        return int(opened(engine, path).num_rows)

    def dropped(batches: Any) -> Any:
        import pyarrow as pa

        total = sum(batch.num_rows for batch in batches)
        yield pa.record_batch({"n": [total]})

    return sum(row[0] for row in opened(engine, path).select(*names).mapInArrow(dropped, "n long").collect())


def work(job: str, engine: str, path: Path, copies: int) -> Any:
    from escudo.table import PrivateTable

    if job == "read":
        return read(engine, path)
    if job in ("count", "people"):
        table = PrivateTable(opened(engine, path, copies), schema_of(job == "people"))
        counts = table.counts(tables())
        return {"rows": int(counts[0].sum()), "hash": hashlib.md5(b"".join(c.tobytes() for c in counts)).hexdigest()}
    if job == "linked":
        from escudo.table import PrivateTables

        frames, schema, asked = linked(engine, path)
        counts = PrivateTables(frames, schema).counts(asked)
        return {"people": int(counts[0].sum()), "hash": hashlib.md5(b"".join(c.tobytes() for c in counts)).hexdigest()}
    if job == "sample":
        return sampled(path, copies)
    if job == "draw":
        return drawn(path, copies)
    if job == "command":
        return command(path.with_name("wide.parquet"))
    if job == "wide":
        table, rows = PrivateTable(*wide(path.with_name("wide.parquet")), relation="add_remove"), WIDE_ROWS
    else:
        table, rows = PrivateTable(opened(engine, path), schema_of(), relation="add_remove"), 1_000_000
    import escudo

    model = escudo.synthesize(table, graph=graph_over(table.columns), epsilon=1.0, delta=1e-9)
    model.sample(rows)
    return {"rows": round(float(model.details["rows"]))}


def graph_over(names: Sequence[str]) -> Any:
    """Return the graph in which the column before and the one half as far are the causes of each."""
    import escudo

    pairs = [(names[i], names[j]) for j in range(1, len(names)) for i in sorted({j - 1, j // 2})]
    return escudo.CausalGraph.from_edges(pairs)


def wide(path: Path) -> tuple[Any, Any]:
    """Return 1,000 columns of two levels that follow such a graph, and their schema."""
    import polars as pl

    from escudo.table import Categorical, Schema

    names = [f"c{i}" for i in range(WIDE)]
    if not path.exists():
        rng = np.random.default_rng(SEED)
        on = np.zeros((WIDE, WIDE_ROWS), dtype=bool)
        for i in range(WIDE):
            causes = [on[j] for j in sorted({i - 1, i // 2}) if 0 <= j < i]
            on[i] = rng.random(WIDE_ROWS) < 0.2 + 0.3 * sum(causes, start=np.zeros(WIDE_ROWS))
        pl.DataFrame({name: np.where(on[i], "yes", "no") for i, name in enumerate(names)}).write_parquet(path)
    return pl.scan_parquet(path), Schema([Categorical(name, ["no", "yes"]) for name in names])


def command(path: Path) -> Any:
    """Release the wide table by ``escudo release``: with its schema and graph from files, and the report."""
    schema, graph, out = path.with_suffix(".toml"), path.with_suffix(".edges"), path.with_name(f"wide-{os.getpid()}")
    _, described = wide(path)
    described.write(schema, overwrite=True)
    graph_over(described.names).write(graph)
    words = ["release", path, "--schema", schema, "--graph", graph, "--relation", "add_remove", "--out", out]
    budget = ["--epsilon", "1", "--delta", "1e-9"]
    subprocess.run([sys.executable, "-m", "escudo", *map(str, words), *budget], check=True, stdout=subprocess.DEVNULL)
    rows = json.loads((out / "release.json").read_text())["synthetic"]["rows"]
    shutil.rmtree(out)
    return {"rows": rows}


def sampled(path: Path, copies: int) -> Any:
    """Draw so many times 10⁴ rows of three columns, write them as Parquet parts, and remove these."""
    import polars as pl

    import escudo
    from escudo._files import write_rows
    from escudo.table import PrivateTable

    names = ["t1", "i1", "f0"]
    table = PrivateTable(pl.scan_parquet(path), schema_of().select(names), relation="add_remove")
    model = escudo.synthesize(table, graph=graph_over(names), epsilon=1.0, delta=1e-9)
    folder = path.with_name(f"sampled-{os.getpid()}")
    write_rows(model.blocks(copies * 10**4), folder)
    size, rows = sum(part.stat().st_size for part in folder.iterdir()), pl.scan_parquet(folder).select(pl.len())
    answer = {"rows": int(rows.collect().item()), "GB on disk": size / 1e9, "parts": len(list(folder.iterdir()))}
    shutil.rmtree(folder)
    return answer


def drawn(path: Path, copies: int) -> Any:
    """Draw so many times 10⁴ rows of ten columns, and drop them."""
    import polars as pl

    import escudo
    from escudo.table import PrivateTable

    names = [*TEXTS[:5], "i1", "i3", "i5", "f0", "f1"]
    table = PrivateTable(pl.scan_parquet(path), schema_of().select(names), relation="add_remove")
    model = escudo.synthesize(table, graph=graph_over(names), epsilon=1.0, delta=1e-9)
    return {"rows": sum(block.height for block in model.blocks(copies * 10**4)), "columns": len(names)}


def alone(job: str, engine: str, path: Path, copies: int) -> None:
    """Do one job and print what it took."""
    work("read", engine, path.with_name("warm.parquet"), 1)  # so that imports and a session do not count
    if job not in ("read", "command"):  # a command's imports do count
        work(job, engine, path.with_name("warm.parquet"), 1)
    before, start = seconds(engine), time.perf_counter()
    Path("/proc/self/clear_refs").write_text("5")
    answer = work(job, engine, path, copies)
    found = {"cpu": seconds(engine) - before, "wall": time.perf_counter() - start, "gb": max(map(peak, family()))}
    if job == "command":  # it has ended
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        found |= {"cpu": ended.ru_utime + ended.ru_stime, "gb": ended.ru_maxrss / 1e6}
    print(json.dumps(found | {"answer": answer}))


def family() -> dict[int, float]:
    """Return this process and all below it, such as the Java machine and its Python workers, with their seconds."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split() if entry.name.isdigit() else []
        except OSError:
            continue
        if fields:
            found[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"))
    mine = {os.getpid()}
    while more := {pid for pid, (parent, _) in found.items() if parent in mine} - mine:
        mine |= more
    return {pid: found[pid][1] for pid in mine}


def peak(pid: int) -> float:
    """Return the most memory that a process had, in GB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it is gone
        return 0.0
    return next((int(line.split()[1]) / 1e6 for line in lines if line.startswith("VmHWM:")), 0.0)


def seconds(engine: str) -> float:
    """Return processor seconds of this process and, for Spark, of the Java machine and its Python workers."""
    if engine != "spark":
        return time.process_time()
    return sum(family().values())


# -- the whole


JOBS: dict[str, tuple[str, str, int, int]] = {
    **{f"read {engine} 1e7": ("read", engine, 10**7, 1) for engine in ("duckdb", "pyarrow", "polars", "spark")},
    **{f"count {engine} 1e7": ("count", engine, 10**7, 1) for engine in ("duckdb", "pyarrow", "polars", "spark")},
    **{f"count duckdb 1e{len(str(rows)) - 1}": ("count", "duckdb", rows, 1) for rows in SIZES},
    "release polars 1e7": ("release", "polars", 10**7, 1),
    "people duckdb 1e7": ("people", "duckdb", 10**7, 1),
    "linked polars 1e7": ("linked", "polars", 10**7, 1),
    "linked spark 1e7": ("linked", "spark", 10**7, 1),
    "release polars 1e8": ("release", "polars", 10**8, 1),
    "people duckdb 1e8": ("people", "duckdb", 10**8, 1),
    "count duckdb 1e9": ("count", "duckdb", 10**8, 10),
    "wide": ("wide", "polars", 10**4, 1),
    "wide command": ("command", "polars", 10**4, 1),
    "sample 1e9": ("sample", "polars", 10**4, 10**5),
    "draw 1e7": ("draw", "polars", 10**4, 10**3),
}


def figures(done: dict[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for engine in ("duckdb", "pyarrow", "polars", "spark"):
        if {f"read {engine} 1e7", f"count {engine} 1e7"} <= set(done):
            found[f"{engine} ratio"] = done[f"count {engine} 1e7"]["cpu"] / done[f"read {engine} 1e7"]["cpu"]
    for key, job in (("release 1e8", "release polars 1e8"), ("people 1e8", "people duckdb 1e8")):
        if job in done:
            found[f"{key} CPU-s"], found[f"{key} GB"] = done[job]["cpu"], done[job]["gb"]
    if "count duckdb 1e9" in done:
        found["duckdb 1e9 GB"] = done["count duckdb 1e9"]["gb"]
    for job in ("wide", "wide command"):
        if job in done:
            found[f"{job} CPU-s"] = done[job]["cpu"]
    if "draw 1e7" in done:
        found["draw 1e7 CPU-s"] = done["draw 1e7"]["cpu"]
    if "sample 1e9" in done:
        found["sample 1e9 CPU-s"], found["sample 1e9 GB"] = done["sample 1e9"]["cpu"], done["sample 1e9"]["gb"]
    points = [
        (power, done[f"count duckdb 1e{power}"]["cpu"]) for power in (6, 7, 8, 9) if f"count duckdb 1e{power}" in done
    ]
    if len(points) > 2:
        found["growth"] = float(np.polyfit([p for p, _ in points], np.log10([s for _, s in points]), 1)[0])
    return found


def missed(found: dict[str, float]) -> list[str]:
    # An exponent is known to about a hundredth.
    slack = {"growth": 0.01}
    return [
        f"{key}: {found[key]:.2f} (target {most:g})"
        for key, most in TARGETS.items()
        if key in found and found[key] > most + slack.get(key, 0)
    ]


def verdict(record: dict[str, Any]) -> str:
    said = (
        f"Missed: {'; '.join(record['missed'])}." if record["missed"] else "Of what was measured no target is missed."
    )
    waiting = [target for target in TARGETS if target not in record["figures"]]
    return said + (f" Not measured yet: {', '.join(waiting)}." if waiting else "")


def markdown(record: dict[str, Any]) -> str:
    about, done = record["machine"], record["jobs"]
    lines = [
        "# From 10⁵ to 10⁹ rows",
        "",
        f"30 three-way tables over 20 columns from Parquet; processor seconds of one process each. {told(about)}, "
        f"polars {about['polars']}, DuckDB {about['duckdb']}, PySpark {about['pyspark']}. "
        "Made by `python benchmarks/scale.py`.",
        "",
        "| job | processor s | wall s | peak GB | commit |",
        "|---|--:|--:|--:|---|",
        *(
            f"| {name} | {one['cpu']:.1f} | {one['wall']:.1f} | {one['gb']:.2f} | {one['commit']} |"
            for name, one in done.items()
        ),
        "",
        "| figure | found | target |",
        "|---|--:|--:|",
        *(f"| {key} | {value:.2f} | {TARGETS.get(key, '')} |" for key, value in record["figures"].items()),
        "",
        "*Ratio*: counting over reading at 10⁷ rows. *Release*: a graph over the 20 columns, ε = 1, a million "
        "synthetic rows. *People*: 10 rows each in no order, of which 5 count. 10⁹ rows are ten times the file of 10⁸. "
        "*Linked*: a tenth as many people and their rows, as two tables, put in order and counted in five tables. "
        "*Wide*: 10,000 rows of 1,000 columns with a graph of 1,996 arrows, fitted at ε = 1, and as many rows drawn. "
        "*Wide command*: the same by `escudo release` from its start to its end, with the files read and written and "
        "the report's expected errors. "
        "*Sample*: 10⁹ rows of three columns drawn and written as Parquet parts. "
        "*Draw*: 10⁷ rows of ten columns drawn and dropped, with the fit to 10⁴ rows. "
        "Wall seconds are of a shared machine, and processor seconds hang on the machine and its load: *wide* and its "
        "command took 8.9 and 12.4 by commit 358d4c4 on a quiet day, and 8.3 and 12.0 by a2cf87c in the hour of the "
        "figures above, with some 20 processes waiting for the two cores. "
        "pyarrow's tables are in memory, which its peak says.",
        "",
        verdict(record),
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure from 10^5 to 10^9 rows.")
    parser.add_argument("--data", type=Path, default=Path("build/scale"))
    parser.add_argument("--only", nargs="*", choices=list(JOBS), help="these jobs, again")
    parser.add_argument("--alone", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        job, engine, path, copies = options.alone
        alone(job, engine, Path(path), int(copies))
        return 0
    file = RESULTS / "scale.json"
    record: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"benchmark": "scale", "jobs": {}}
    warm = make(options.data, 10**4)
    warm.with_name("warm.parquet").write_bytes(warm.read_bytes())
    for name in options.only or [name for name in JOBS if name not in record["jobs"]]:
        job, engine, rows, copies = JOBS[name]
        command = [sys.executable, __file__, "--alone", job, engine, str(make(options.data, rows)), str(copies)]
        print(f"{name} ...", file=sys.stderr, flush=True)
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        record["jobs"][name] = json.loads(done.stdout.splitlines()[-1]) | {"commit": commit()}
        print(f"  {record['jobs'][name]}", file=sys.stderr, flush=True)
        record["jobs"] = {name: record["jobs"][name] for name in JOBS if name in record["jobs"]}
        record["figures"] = figures(record["jobs"])
        record["missed"] = missed(record["figures"])
        packages = ("polars", "duckdb", "pyarrow", "pyspark", "numpy")
        record["machine"] = made(seed=SEED, **{name: version(name) for name in packages})
        file.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        (RESULTS / "scale.md").write_text(markdown(record), encoding="utf-8")
    print(markdown(record))
    return 1 if record["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
