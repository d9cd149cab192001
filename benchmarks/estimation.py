"""Laws from noisy tables: escudo's agreement of tables against Private-PGM (mbi) on the very same noise.

Run ``python benchmarks/estimation.py`` from the repository's root, with ``mbi`` installed; it takes a minute or two and
writes ``benchmarks/results/estimation.json`` and ``estimation.md``. Both get the same noisy family tables of Asia,
Sachs and Child (20,000 simulated rows, true graph, add/remove, δ = 1e-6) and give each column's law given its parents,
and the observed law; mbi by 5,000 steps of mirror descent over a junction tree in 64 bits. Compared are the synthetic
rows' three-way marginals (60 of them, drawn at random) with the real ones, the law of every column under every single
intervention with the true network's, and the processor time, which for mbi includes compiling, once per network. Exits
with 1 if escudo is worse by more than 3 % on average.

Options: ``--data DIR`` holds ``networks/``; ``--quick`` is a smoke run that writes nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
import warnings
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from _made import made, told

from escudo.causal import Network, asia
from escudo.privacy import Guarantee, MemoryAccount, Plan, PureEvent
from escudo.synthesis import CausalModel, TableConditional, _estimation, fit, prepare
from escudo.table import PrivateTable, Schema

SEED = 20_261_115
ROWS, TRIPLES, RUNS = 20_000, 60, 3
EPSILONS = (1.0, 0.1)
STEPS = 5000
RESULTS = Path(__file__).parent / "results"


def schema_of(network: Network) -> Schema:
    return Schema.from_dict({name: list(levels) for name, levels in network.levels.items()})


def by_private_pgm(model: CausalModel, tables: Any, total: float) -> CausalModel:
    """Return a model with the same arrows whose laws are those of the joint law that mbi fits to the tables."""
    import jax

    with warnings.catch_warnings(), jax.enable_x64(True):
        warnings.simplefilter("ignore")
        from mbi import Domain, LinearMeasurement
        from mbi.estimation import MirrorDescent

        measured = [LinearMeasurement(table.counts.ravel(), table.columns, stddev=table.scale) for table in tables]
        names = model.schema.names
        domain = Domain(names, tuple(model.schema[name].size for name in names))
        joint = MirrorDescent().estimate(domain, measured, known_total=total, iters=STEPS)

        def taken(laws: Any) -> dict[str, TableConditional]:
            found = {}
            for name, law in laws.items():
                rows = np.asarray(joint.project((*law.parents, name)).datavector(flatten=False), dtype=np.float64)
                rows = np.maximum(rows, 1e-9)
                found[name] = TableConditional(law.parents, rows / rows.sum(axis=-1, keepdims=True))
            return found

        return replace(model, conditionals=taken(model.conditionals), observed=taken(model.observed))


class Judge:
    """What the laws of one network are compared with."""

    def __init__(self, network: Network, frame: pl.DataFrame):
        schema = schema_of(network)
        rng = np.random.default_rng(SEED)
        triples = list(itertools.combinations(schema.names, 3))
        self.triples = [triples[i] for i in rng.permutation(len(triples))[:TRIPLES]]
        counted = PrivateTable(frame, schema).counts([list(triple) for triple in self.triples])
        self.real = [counts / counts.sum() for counts in counted]
        truth = CausalModel(
            schema=schema,
            graph=network.graph,
            conditionals={name: TableConditional(network.parents[name], network.table(name)) for name in network.nodes},
            guarantee=Guarantee(epsilon=1.0),
            generator="truth",
            plan=Plan("truth", PureEvent(epsilon=1.0)),
        )
        self.answers = {
            (cause, level, effect): truth.probability([effect], do={cause: level})
            for cause in network.nodes
            for level in network.levels[cause]
            for effect in network.nodes
            if effect != cause
        }

    def errors(self, model: CausalModel) -> tuple[float, float]:
        """Return the mean total variation of three-way marginals, and of answers to interventions."""
        codes = model.codes(ROWS, seed=0)
        names = model.schema.names
        seen = []
        for triple, real in zip(self.triples, self.real, strict=True):
            made = np.zeros(real.shape)
            np.add.at(made, tuple(codes[:, names.index(name)] for name in triple), 1 / ROWS)
            seen.append(np.abs(made - real).sum() / 2)
        done = [
            np.abs(model.probability([effect], do={cause: level}) - answer).sum() / 2
            for (cause, level, effect), answer in self.answers.items()
        ]
        return float(np.mean(seen)), float(np.mean(done))


def compare(network: Network, epsilon: float, runs: int) -> dict[str, dict[str, float]]:
    schema = schema_of(network)
    frame = network.sample_frame(ROWS, rng=np.random.default_rng(SEED))
    judge = Judge(network, frame)
    prepared = prepare(schema, network.graph, epsilon=epsilon, delta=1e-6, relation="add_remove")
    ours = _estimation.agreeing
    found: dict[str, list[tuple[float, float, float]]] = {"escudo": [], "Private-PGM": []}
    for seed in range(runs):
        asked: dict[str, Any] = {}

        def noted(tables: Any, *, total: float, asked: dict[str, Any] = asked) -> Any:
            asked["tables"], asked["total"], asked["start"] = tables, total, time.process_time()
            return ours(tables, total=total)

        _estimation.agreeing = noted
        try:
            table = PrivateTable(frame, schema, MemoryAccount(relation="add_remove"))
            model = fit(
                prepared, table, seed=seed
            )  # nothing but estimation comes after the tables are brought together
        finally:
            _estimation.agreeing = ours
        seconds = time.process_time() - asked["start"]
        assert isinstance(model, CausalModel)
        found["escudo"].append((*judge.errors(model), seconds))
        start = time.process_time()
        theirs = by_private_pgm(model, asked["tables"], asked["total"])
        seconds = time.process_time() - start
        found["Private-PGM"].append((*judge.errors(theirs), seconds))
    keys = ("three_way", "interventions", "cpu_seconds")
    return {
        name: dict(zip(keys, (statistics.mean(column) for column in zip(*rows, strict=True)), strict=True))
        for name, rows in found.items()
    }


def report(result: dict[str, Any]) -> str:
    machine = result["machine"]
    lines = [
        "# Estimation benchmark",
        "",
        f"{told(machine)}, mbi {machine['mbi']}. "
        f"{machine['runs']} runs each. Made by `python benchmarks/estimation.py`. Mean total variation, and seconds of "
        "processor time for the estimation alone; mbi compiles once per network, in the first run at ε = 1.",
        "",
        "| network | ε | three-way, escudo | Private-PGM | interventions, escudo | Private-PGM | CPU s, escudo | "
        "Private-PGM |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        ours, theirs = row["escudo"], row["Private-PGM"]
        figures = [f"{side[key]:.5f}" for key in ("three_way", "interventions") for side in (ours, theirs)]
        figures += [f"{ours['cpu_seconds']:.3f}", f"{theirs['cpu_seconds']:.1f}"]
        lines.append(f"| {row['network']} | {row['epsilon']:g} | {' | '.join(figures)} |")
    lines += ["", f"escudo's error over Private-PGM's, mean over all cells: {result['ratio']:.3f}."]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare escudo's estimation with Private-PGM.")
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--quick", action="store_true", help="a smoke run that writes nothing")
    options = parser.parse_args()
    runs = 1 if options.quick else RUNS
    networks = {"Asia": asia()}
    for title in () if options.quick else ("Sachs", "Child"):
        path = options.data / "networks" / f"{title.lower()}.bif.gz"
        if path.exists():
            networks[title] = Network.read(path)
    machine = made(seed=SEED, mbi=version("mbi"), runs=runs)
    rows = [
        {"network": title, "epsilon": epsilon} | compare(network, epsilon, runs)
        for title, network in networks.items()
        for epsilon in EPSILONS
    ]
    ratio = statistics.mean(
        row["escudo"][key] / row["Private-PGM"][key] for row in rows for key in ("three_way", "interventions")
    )
    result = {"machine": machine, "rows": rows, "ratio": ratio}
    print(report(result))
    if not options.quick:
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
        (RESULTS / "estimation.json").write_text(text, encoding="utf-8")
        (RESULTS / "estimation.md").write_text(report(result), encoding="utf-8")
    return 0 if ratio <= 1.03 else 1


if __name__ == "__main__":
    sys.exit(main())
