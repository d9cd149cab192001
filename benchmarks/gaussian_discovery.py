"""``escudo.discover(method="gaussian")``: graphs of linear effects, beside simpler ways and the truth.

Run ``python benchmarks/gaussian_discovery.py`` from the repository's root; it takes some minutes of one core. It writes
``benchmarks/results/gaussian_discovery.json`` and ``gaussian_discovery.md``, and exits with 1 if a target is missed.

Random graphs with 2.5 neighbours a column on average, weights ±(0.5 to 1.5), noise of variance 1, replace-one, δ =
1e-6, bounds of the schema 6 to 18 standard deviations away, so that scales must be learnt. F1 of the adjacencies and
structural Hamming distance to the true CPDAG, mean over seeds; the target is F1 ≥ 0.96 at ε = 0.1 for 10 columns and
100,000 rows.

* **escudo**: the method as it is.
* **no whitening**: one matrix of rows clipped to C² = d + 3 √(2d), scales known and free of charge, the same search:
  what the second look is worth.
* **no noise**: the same search on the exact correlations: what no method that searches like this can beat.

Edge confidence: of all reported edges in all runs, how many are true, by the confidence that was reported.

Options: ``--seeds`` is how many graphs; ``--quick`` is a smoke run that writes nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from _made import made, told
from numpy.typing import NDArray

from escudo.causal import CausalGraph
from escudo.discovery import discover
from escudo.discovery._gaussian import Moments
from escudo.discovery._pattern import Constraints, pattern
from escudo.discovery._search import LinearScore, search_linear
from escudo.mechanisms import gaussian
from escudo.privacy import Budget, GaussianEvent, calibrate
from escudo.table import PrivateTable, Schema

SEED = 20_261_115
DELTA = 1e-6
TARGET = 0.96
CASES = (
    (10, 100_000, "normal", (0.1, 0.3, 1.0)),
    (10, 10_000, "normal", (0.1, 0.3, 1.0)),
    (20, 100_000, "normal", (0.1, 1.0)),
    (10, 100_000, "skewed", (0.1, 1.0)),
    (10, 100_000, "uniform", (0.1,)),
)
RESULTS = Path(__file__).parent / "results"

Floats = NDArray[np.float64]


def simulated(columns: int, rows: int, law: str, rng: np.random.Generator) -> tuple[Floats, CausalGraph]:
    order = rng.permutation(columns)
    present = np.triu(rng.random((columns, columns)) < 2.5 / (columns - 1), 1)
    weights = present * rng.choice([-1, 1], (columns, columns)) * rng.uniform(0.5, 1.5, (columns, columns))
    values = np.zeros((rows, columns))
    for place in range(columns):
        noise = {
            "normal": lambda: rng.normal(size=rows),
            "skewed": lambda: rng.exponential(size=rows) - 1,
            "uniform": lambda: rng.uniform(-math.sqrt(3), math.sqrt(3), rows),
        }[law]()
        values[:, place] = values @ weights[:, place] + noise
    names = [f"x{order[place]:02d}" for place in range(columns)]
    edges = [(names[a], names[b]) for a, b in np.argwhere(weights)]
    truth = CausalGraph.from_edges(edges, nodes=sorted(names))
    return values[:, np.argsort(names)], truth


def searched_on(matrix: Floats, rows: float, names: tuple[str, ...]) -> CausalGraph:
    free = Constraints(names=names, allowed=~np.eye(len(names), dtype=bool), required=frozenset(), joined=frozenset())
    return pattern(names, search_linear(LinearScore(matrix, rows, strictness=1.5, constraints=free), rounds=200))


def plain(values: Floats, epsilon: float, names: tuple[str, ...], rng: np.random.Generator) -> CausalGraph:
    """One clipped matrix with known scales, and the same score with the noise in it."""
    rows, columns = values.shape
    limit = columns + 3 * math.sqrt(2 * columns)
    moved = math.sqrt(2) * limit

    def event(level: float) -> GaussianEvent:
        return GaussianEvent(l2_sensitivity=moved, scale=level * moved, grid=2.0**-20)

    standard = (values - values.mean(axis=0)) / values.std(axis=0)
    standard *= np.minimum(1.0, np.sqrt(limit / (standard**2).sum(axis=1)))[:, None]
    release = gaussian(
        standard.T @ standard,
        l2_sensitivity=moved,
        scale=event(calibrate(event, Budget(epsilon, DELTA))).scale,
        seed=rng,
    )
    noisy = np.asarray(release.value)
    matrix = (noisy + noisy.T) / 2 / rows
    size = float(np.trace(matrix)) / columns
    moments = Moments(
        white=matrix / size,
        back=np.eye(columns),
        noise=release.event.scale / rows / size,
        rows=float(rows),  # type: ignore[attr-defined]
    )
    return searched_on(moments.correlation, moments.effective_rows(), names)


def measure(columns: int, rows: int, law: str, epsilons: tuple[float, ...], seeds: int) -> list[dict[str, Any]]:
    found: dict[float, list[dict[str, Any]]] = {epsilon: [] for epsilon in epsilons}
    for seed in range(seeds):
        rng = np.random.default_rng([SEED, columns, rows, seed])
        values, truth = simulated(columns, rows, law, rng)
        names, spread = truth.nodes, values.std(axis=0)
        bounds = {
            name: {"type": "numeric", "lower": float(-6 * (1 + place % 3) * s), "upper": float(8 * s)}
            for place, (name, s) in enumerate(zip(names, spread, strict=True))
        }
        table = PrivateTable(pl.DataFrame(dict(zip(names, values.T, strict=True))), Schema.from_dict(bounds))
        best = searched_on(np.corrcoef(values.T), float(rows), names)
        for epsilon in epsilons:
            start = time.process_time()
            answer = discover(table, epsilon=epsilon, delta=DELTA, method="gaussian", seed=seed)
            seconds = time.process_time() - start
            other = plain(values, epsilon, names, rng)
            true = set(truth.adjacencies)
            found[epsilon].append(
                {
                    "cpu_seconds": seconds,
                    "cannot_tell": bool(answer.cannot_tell),
                    "edges": [[sure, edge in true] for edge, sure in answer.edge_confidence.items()],
                    **{
                        name: [graph.skeleton_f1(truth), graph.shd(truth.cpdag())]
                        for name, graph in (("escudo", answer.graph), ("no whitening", other), ("no noise", best))
                    },
                }
            )
    return [
        {
            "columns": columns,
            "rows": rows,
            "law": law,
            "epsilon": epsilon,
            "seeds": seeds,
            "runs": runs,
            **{
                name: [float(np.mean([run[name][kind] for run in runs])) for kind in (0, 1)]
                for name in ("escudo", "no whitening", "no noise")
            },
            "cannot_tell": sum(run["cannot_tell"] for run in runs),
            "cpu_seconds": float(np.mean([run["cpu_seconds"] for run in runs])),
        }
        for epsilon, runs in found.items()
    ]


def calibration(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    edges = np.array([edge for row in rows for run in row["runs"] for edge in run["edges"]])
    found = []
    for low, high in ((0.0, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.01)):
        kept = (edges[:, 0] >= low) & (edges[:, 0] < high)
        if kept.any():
            found.append(
                {
                    "from": low,
                    "to": min(high, 1.0),
                    "edges": int(kept.sum()),
                    "reported": float(edges[kept, 0].mean()),
                    "true": float(edges[kept, 1].mean()),
                }
            )
    return found


def report(result: dict[str, Any]) -> str:
    machine = result["machine"]
    target = result["rows"][0]
    lines = [
        "# Discovery of linear effects",
        "",
        f"{told(machine)}. Made by `python benchmarks/gaussian_discovery.py`.",
        "",
        "| target | measured | met |",
        "|---|---|---|",
        f"| 10 columns, 100,000 rows, ε = 0.1: F1 ≥ {TARGET} | {target['escudo'][0]:.3f} (without noise "
        f"{target['no noise'][0]:.3f}) | {'yes' if result['met'] else '**no**'} |",
        "",
        "F1 of the adjacencies / structural Hamming distance to the true CPDAG.",
        "",
        "| columns | rows | law | ε | escudo | no whitening | no noise | cannot tell | CPU s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['columns']} | {row['rows']:,} | {row['law']} | {row['epsilon']:g} | "
        + " | ".join(f"{row[name][0]:.3f} / {row[name][1]:.1f}" for name in ("escudo", "no whitening", "no noise"))
        + f" | {row['cannot_tell']} of {row['seeds']} | {row['cpu_seconds']:.2f} |"
        for row in result["rows"]
    ]
    lines += [
        "",
        "## Edge confidence",
        "",
        "| reported between | edges | mean reported | true |",
        "|---|---|---|---|",
        *(
            f"| {row['from']:.2f} and {row['to']:.2f} | {row['edges']} | {row['reported']:.3f} | {row['true']:.3f} |"
            for row in result["calibration"]
        ),
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Benchmark the discovery of linear effects.")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="a smoke run that writes nothing")
    options = parser.parse_args()
    machine, rows = made(seed=SEED), []
    for columns, count, law, epsilons in CASES[:2] if options.quick else CASES:
        rows += measure(columns, count, law, epsilons, 2 if options.quick else options.seeds)
        print(
            columns,
            count,
            law,
            [(row["epsilon"], row["escudo"], row["no whitening"]) for row in rows[-len(epsilons) :]],
            flush=True,
        )
    result = {"machine": machine, "rows": rows, "calibration": calibration(rows), "met": rows[0]["escudo"][0] >= TARGET}
    print(report(result))
    if not options.quick:
        RESULTS.mkdir(exist_ok=True)
        for row in rows:
            row.pop("runs")
        text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
        (RESULTS / "gaussian_discovery.json").write_text(text, encoding="utf-8")
        (RESULTS / "gaussian_discovery.md").write_text(report(result), encoding="utf-8")
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
