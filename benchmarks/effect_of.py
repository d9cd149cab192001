"""``escudo.effect_of``: how often its intervals hold the truth, and how wide they are.

Run ``python benchmarks/effect_of.py`` from the repository's root; it takes about half an hour of one core. It writes
``benchmarks/results/effect_of.json`` and ``effect_of.md``, and exits with 1 if a target is missed.

Every question is asked of 1,000 simulated tables or more: rows from the network, noise from the mechanism, the interval
at 95 %. The truth is the network's own answer under do(), computed exactly. Targets: at least 93.8 % of the intervals
hold it, for every question, number of rows and budget (of several contrasts, for each; and together, where they are to
hold together); and the noise alone never decides a sign wrongly more often than 5 %. Where fewer than 93.8 % of the
first 1,000 hold it, which chance does to one in thirty of intervals that are right, 3,000 more are asked, and all
count.

* **Asia**: bronchitis on dyspnoea, adjusting for one column.
* **Survey**: occupation on travelling by car; adjusting for residence.
* **Sachs**: Mek on Erk, three levels each, adjusting for PKA.
* **Clinic**: a drug that is given to those who need it: 24 strata, some almost without comparison.
* **Score**: the same clinic with a skewed number as outcome.
* **Wards**: 64 strata, from three columns of four levels.
* **Doses**: the clinic with three arms, and all three contrasts of them.
* **Persons**: the clinic with one to four rows of each person, all alike, persons being protected.
* **Visits**: the same, but a person's rows have the same stratum and drug only, and outcomes that resemble each other.

Beside them the same intervals for chance alone: what an analyst who forgets the noise would report.

Options: ``--only NAMES`` (comma-separated) asks these questions again and keeps the others' results; ``--data DIR``
holds ``networks/`` with sachs.bif.gz and survey.bif.gz (left out where missing); ``--quick`` is a smoke run that writes
nothing; ``--runs`` is how many tables.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from _made import made, told
from numpy.typing import NDArray

from escudo.causal import CausalGraph, Network, asia
from escudo.discovery._adjustment import Strata, contrast_interval, contrast_value, holds
from escudo.discovery._effect_of import PreparedEffect, prepare_effect
from escudo.mechanisms import Purse
from escudo.table import Schema

SEED = 20_261_115
RUNS = 1000
ROWS = (5_000, 50_000)
BUDGETS = ((0.1, 0.0), (1.0, 0.0), (1.0, 1e-6))
COVERAGE = 0.938
RESULTS = Path(__file__).parent / "results"
RECORD = RESULTS / "effect_of.json"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Question:
    """A treatment and an outcome in a simulated world whose answer is known."""

    name: str
    schema: Schema
    graph: CausalGraph
    treatment: str
    outcome: str
    means: tuple[float, ...]  # of the outcome under each arm
    counts: Callable[[PreparedEffect, int, np.random.Generator], NDArray[np.int64]]
    options: dict[str, Any]


def of_network(name: str, network: Network, treatment: str, outcome: str, **options: Any) -> Question:
    schema = Schema.from_dict({column: list(levels) for column, levels in network.levels.items()})
    prepared = prepare_effect(schema, treatment, outcome, graph=network.graph, epsilon=1.0, **options)
    columns = (*prepared.table.adjustment, treatment, outcome)
    law = joint(network, columns)
    weights = prepared.table.outcome.weights.astype(float)
    arms = range(len(prepared.table.arms))
    means = tuple(float(joint(network, (outcome,), {treatment: level}) @ weights) for level in arms)

    def counts(prepared: PreparedEffect, rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
        drawn = rng.multinomial(rows, law.ravel())
        return drawn.reshape(prepared.table.strata, *law.shape[-2:])

    return Question(name, schema, network.graph, treatment, outcome, means, counts, options)


def of_persons(name: str, network: Network, treatment: str, outcome: str, *, alike: bool) -> Question:
    """The same question, of persons with one to four rows each."""
    rowwise = of_network(name, network, treatment, outcome)
    columns = {column: list(levels) for column, levels in network.levels.items()}
    schema = Schema.from_dict(columns, person_id="who", max_rows_per_person=4)

    def counts(prepared: PreparedEffect, rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
        people = rows // 10  # with each number of rows, so that there are as many rows
        if alike:
            return sum(several * rowwise.counts(prepared, people, rng) for several in range(1, 5))
        found = 0
        for several in range(1, 5):
            drawn = rowwise.counts(prepared, people, rng)  # where the first row of each person lies
            found = found + drawn
            if several > 1:  # the others follow it half of the time, else the law of their stratum and arm
                law = rowwise.counts(prepared, 10**9, rng) + 1e-9
                law = law / law.sum(axis=-1, keepdims=True)
                following = rng.binomial((several - 1) * drawn, 0.5)
                own = ((several - 1) * drawn - following).sum(axis=-1)
                found = found + following + rng.multinomial(own, law)
        return np.asarray(found)

    return replace(rowwise, schema=schema, counts=counts)


def joint(network: Network, columns: tuple[str, ...], do: dict[str, int] | None = None) -> Floats:
    """Return the law of some columns, exactly, also where others are set."""
    letter = {name: number for number, name in enumerate(network.nodes)}
    operands: list[Any] = []
    for name in network.nodes:
        if do and name in do:
            operands += [np.eye(len(network.levels[name]))[do[name]], [letter[name]]]
        else:
            operands += [network.table(name), [*(letter[parent] for parent in network.parents[name]), letter[name]]]
    found = np.einsum(*operands, [letter[name] for name in columns], optimize="greedy")
    return np.asarray(found / found.sum())


def clinic() -> tuple[Network, Floats]:
    """A drug given to those who need it, over age, sex and severity; the numbers are drawn once and kept."""
    rng = np.random.default_rng(7)
    sizes = {"age": 4, "sex": 2, "severity": 3}
    need = rng.beta(0.8, 0.8, tuple(sizes.values()))  # some are almost always treated, some almost never
    well = np.clip(0.75 - 0.5 * need + 0.1 * rng.standard_normal(need.shape), 0.05, 0.9)
    helped = np.clip(well + rng.uniform(-0.05, 0.3, need.shape), 0.02, 0.98)
    shares = rng.dirichlet(np.full(4, 2.0)), np.array([0.5, 0.5])
    severity = rng.dirichlet(np.full(3, 1.5), size=(4, 2))
    outcome = np.stack([well, helped], axis=-1)
    network = Network(
        levels={name: tuple(f"{name}{i}" for i in range(size)) for name, size in sizes.items()}
        | {"drug": ("no", "yes"), "well": ("no", "yes")},
        parents={"severity": ("age", "sex"), "drug": tuple(sizes), "well": (*sizes, "drug")},
        tables={
            "age": shares[0],
            "sex": shares[1],
            "severity": severity,
            "drug": np.stack([1 - need, need], axis=-1),
            "well": np.stack([1 - outcome, outcome], axis=-1),
        },
    )
    return network, outcome


def wards() -> Network:
    """Three columns of four levels each: 64 strata, of which some have few rows and some hardly a comparison."""
    rng = np.random.default_rng(11)
    names = ("age", "ward", "severity")
    rate, need = rng.beta(2, 2, (4, 4, 4, 2)), rng.beta(1.5, 1.5, (4, 4, 4))
    return Network(
        levels={name: tuple("1234") for name in names} | {"drug": ("no", "yes"), "well": ("no", "yes")},
        parents={"drug": names, "well": (*names, "drug")},
        tables={name: rng.dirichlet(np.full(4, 3.0)) for name in names}
        | {"drug": np.stack([1 - need, need], axis=-1), "well": np.stack([1 - rate, rate], axis=-1)},
    )


def doses() -> Network:
    """The clinic with a drug in three doses."""
    network, share = clinic()
    rng = np.random.default_rng(13)
    need = network.table("drug")[..., 1]
    half = rng.uniform(0.2, 0.8, need.shape)
    low = np.clip(share[..., 0] + rng.uniform(0, 0.15, need.shape), 0.02, 0.98)
    well = np.stack([share[..., 0], low, share[..., 1]], axis=-1)
    return Network(
        levels={**network.levels, "drug": ("none", "low", "high")},
        parents=network.parents,
        tables={name: network.table(name) for name in ("age", "sex", "severity")}
        | {
            "drug": np.stack([1 - need, need * half, need * (1 - half)], axis=-1),
            "well": np.stack([1 - well, well], axis=-1),
        },
    )


def score() -> Question:
    """The clinic with a number between 0 and 100 as outcome: skewed, and far from filling its range."""
    network, share = clinic()
    names = ("age", "sex", "severity", "drug")
    columns: dict[str, Any] = {name: list(network.levels[name]) for name in names}
    schema = Schema.from_dict({**columns, "score": {"type": "numeric", "lower": 0, "upper": 100}})
    graph = CausalGraph.from_edges([(a, "score" if b == "well" else b) for a, b in network.graph.edges])
    law = joint(network, names)
    shape, means = 3.0, 20 + 40 * share  # a gamma law of this mean, so skewed, cut off at 100
    grid = np.linspace(0, 100, 4097)
    from scipy.special import gammainc

    below = gammainc(shape, grid[1:, None] * shape / means.reshape(1, -1))
    below[-1] = 1.0
    cells = np.diff(below, axis=0, prepend=0.0)
    middle = (grid[1:] + grid[:-1]) / 2
    true = (middle @ cells).reshape(share.shape)
    means_under = tuple(float((law.sum(axis=-1) * true[..., arm]).sum()) for arm in (0, 1))
    every = (law.reshape(-1)[:, None] * cells.T).reshape(-1)

    def counts(prepared: PreparedEffect, rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return rng.multinomial(rows, every / every.sum()).reshape(prepared.table.strata, 2, 4096)

    return Question("Score", schema, graph, "drug", "score", means_under, counts, {})


def questions(data: Path) -> list[Question]:
    found = [of_network("Asia", asia(), "bronc", "dysp")]
    for name, treatment, outcome, options in (
        ("survey", "O", "T", {"outcome_level": "car"}),
        ("sachs", "Mek", "Erk", {"outcome_level": "HIGH"}),
    ):
        path = data / "networks" / f"{name}.bif.gz"
        if path.exists():
            found.append(of_network(name.title(), Network.read(path), treatment, outcome, **options))
    return [
        *found,
        of_network("Clinic", clinic()[0], "drug", "well"),
        score(),
        of_network("Wards", wards(), "drug", "well"),
        of_network("Doses", doses(), "drug", "well"),
        of_persons("Persons", clinic()[0], "drug", "well", alike=True),
        of_persons("Visits", clinic()[0], "drug", "well", alike=False),
    ]


def without_noise(strata: Strata, variance: float) -> Strata:
    """What an analyst believes who takes the noisy numbers for exact ones."""
    return replace(
        strata,
        covariance=strata.covariance - variance * np.eye(2),
        rest_variance=np.maximum(strata.rest_variance - variance, 0.0),
    )


def measure(question: Question, rows: int, epsilon: float, delta: float, runs: int) -> dict[str, Any]:
    prepared = prepare_effect(
        question.schema,
        question.treatment,
        question.outcome,
        graph=question.graph,
        epsilon=epsilon,
        delta=delta,
        **question.options,
    )
    rng = np.random.default_rng([SEED, rows, round(epsilon * 1000), round(-np.log10(delta or 1.0))])
    signs, span = np.array([-1.0, 1.0]), prepared.table.outcome.span
    pairs = prepared._pairs()
    truths = [question.means[second] - question.means[first] for first, second in pairs]
    truth, together = truths[0], prepared._critical_of(len(pairs))
    held, all_held = np.zeros(len(pairs), dtype=int), 0
    naive = wrong = told = 0
    compared = delta == 0 and epsilon < 1 and rows == max(ROWS)
    widths, errors = [], []
    start = time.process_time()
    run = 0
    while run < runs or (runs >= RUNS and run < 4 * runs and not (run == runs and held.min() >= COVERAGE * run)):
        exact = prepared.table.sums(question.counts(prepared, rows, rng))
        whole = prepared.table.release(exact, Purse(seed=rng))
        strata = whole.only(list(pairs[0]))
        asked = [(whole.only(list(pair)), value / span) for pair, value in zip(pairs, truths, strict=True)]
        hold = [holds(one, signs, value, critical=prepared._critical) for one, value in asked]
        held += hold
        all_held += all(
            one_held or holds(one, signs, value, critical=together)
            for one_held, (one, value) in zip(hold, asked, strict=True)
        )
        if not holds(strata, signs, 0.0, critical=prepared._critical):
            told += 1
            wrong += (contrast_value(strata, signs) > 0) != (truth > 0)
        if run % 20 == 0:
            low, high = contrast_interval(strata, signs, critical=prepared._critical)
            widths.append(span * (high - low))
        errors.append(span * contrast_value(strata, signs) - truth)
        if compared:
            bare = without_noise(strata, prepared.table.noise_variance)
            naive += holds(bare, signs, truth / span, critical=prepared._critical)
        run += 1
    runs = run
    return {
        "question": question.name,
        "adjustment": list(prepared.table.adjustment),
        "strata": prepared.table.strata,
        "truth": truth,
        "rows": rows,
        "runs": runs,
        "epsilon": epsilon,
        "delta": delta,
        "noise": float(np.sqrt(prepared.table.noise_variance)),
        "coverage": float(held.min() / runs),
        "coverage_of_each": (held / runs).tolist(),
        "coverage_together": all_held / runs if len(pairs) > 1 else None,
        "coverage_without_noise": naive / runs if compared else None,
        "width": float(np.median(widths)),
        "rmse": float(np.sqrt(np.mean(np.square(errors)))),
        "sign_told": told / runs,
        "sign_wrong": wrong / runs,
        "cpu_ms": 1000 * (time.process_time() - start) / runs,
    }


def report(result: dict[str, Any]) -> str:
    machine, rows, met = result["machine"], result["rows"], result["met"]
    least, runs = min(rows, key=lambda row: row["coverage"]), [row["runs"] for row in rows]
    together = [row["coverage_together"] for row in rows if row.get("coverage_together") is not None]
    naive = [row["coverage_without_noise"] for row in rows if row["coverage_without_noise"] is not None]
    lines = [
        "# Treatment effects",
        "",
        f"{told(machine)}. Made by `python benchmarks/effect_of.py`, {min(runs):,} to {max(runs):,} tables each.",
        "",
        "| target | measured | met |",
        "|---|---|---|",
        f"| at least {COVERAGE:.1%} of 95 % intervals hold the truth, everywhere | least {least['coverage']:.1%} "
        f"({least['question']}, {least['rows']:,} rows, ε = {least['epsilon']:g}, δ = {least['delta']:g}) | "
        f"{'yes' if met['coverage'] else '**no**'} |",
        f"| joint intervals hold all three truths of Doses as often | least {min(together, default=1):.1%} | "
        f"{'yes' if met['together'] else '**no**'} |",
        f"| a wrong sign in at most 5 % of the answers | most {max(row['sign_wrong'] for row in rows):.1%} | "
        f"{'yes' if met['signs'] else '**no**'} |",
        "",
        f"Intervals that take the noisy table for the exact one hold the truth, at ε = 0.1 and {max(ROWS):,} rows, in "
        f"{min(naive, default=0):.0%} to {max(naive, default=0):.0%} of the cases.",
        "",
        f"Chance alone moves a coverage by ±{1.96 * np.sqrt(0.05 * 0.95 / min(runs)):.1%} (95 %). Of several "
        "contrasts the least is shown.",
        "",
        "| question | strata | truth | rows | ε | δ | coverage | width | r.m.s. error | sign told | CPU ms |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['question']} | {row['strata']} | {row['truth']:.3g} | {row['rows']:,} | {row['epsilon']:g} | "
        f"{row['delta']:g} | {row['coverage']:.3f} | {row['width']:.3g} | {row['rmse']:.3g} | {row['sign_told']:.2f} | "
        f"{row['cpu_ms']:.0f} |"
        for row in rows
    ]
    return "\n".join([*lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description="Benchmark escudo.effect_of.")
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--only", default="", help="the questions to ask again, comma-separated; others are kept")
    parser.add_argument("--quick", action="store_true", help="a smoke run that writes nothing")
    options = parser.parse_args()
    runs = 20 if options.quick else options.runs
    machine, rows, every = made(seed=SEED), [], questions(options.data)
    if options.only and not options.quick:
        rows = [row for row in json.loads(RECORD.read_text())["rows"] if row["question"] not in options.only.split(",")]
    for question in (one for one in every if not options.only or one.name in options.only.split(",")):
        for count in ROWS[:1] if options.quick else ROWS:
            for epsilon, delta in BUDGETS:
                rows.append(measure(question, count, epsilon, delta, runs))
                print(
                    {key: rows[-1][key] for key in ("question", "rows", "epsilon", "delta", "coverage", "width")},
                    flush=True,
                )
    order = [one.name for one in every]
    rows.sort(key=lambda row: order.index(row["question"]))
    result = {
        "machine": machine,
        "rows": rows,
        "met": {
            "coverage": all(row["coverage"] >= COVERAGE for row in rows),
            "together": all((row.get("coverage_together") or 1) >= COVERAGE for row in rows),
            "signs": all(row["sign_wrong"] <= 0.05 for row in rows),
        },
    }
    print(report(result))
    if not options.quick:
        RESULTS.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        (RESULTS / "effect_of.md").write_text(report(result), encoding="utf-8")
    return 0 if all(result["met"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
