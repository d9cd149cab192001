"""Sachs' protein signalling data: which edges of the stated network a private graph finds, beside PC and GES without.

Run ``python experiments/sachs_discovery.py --peer PYTHON`` from the repository's root, where PYTHON is an interpreter
with causal-learn (``pip install causal-learn``, in an environment of its own; left out otherwise). It writes
``experiments/results/sachs_discovery.json`` and ``.md``. ``--data DIR`` holds ``sachs/``; ``--quick`` is a smoke run
that writes nothing.

7,466 cells, 11 proteins, 14 experiments pooled. The stated network is the 18 arrows that the cdt package ships (other
sources name 17 or 20); they hold a cycle (plcg → PIP2 → PIP3 → plcg), so only adjacencies are compared, and directions
where both sides have an arrow. Values lie between 1 and 10,000 by the instrument; escudo gets 24 bins of equal width in
the logarithm as its schema, PC (Fisher's z, α = 0.01) and GES (BIC) get the logarithms, or the same data in four levels
(chi-squared, BDeu), all rows and no noise.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from escudo.discovery import discover
from escudo.table import Numeric, PrivateTable, Schema

SEED, RUNS, DELTA = 20_261_115, 5, 1e-6
EPSILONS = (1.0, 3.0, 10.0)
RESULTS = Path(os.environ.get("ESCUDO_RESULTS", Path(__file__).parent / "results"))

PEER = """
import json, sys, time
import numpy as np
from causallearn.search.ConstraintBased.PC import pc
from causallearn.search.ScoreBased.GES import ges
data = np.load(sys.argv[1])
levels = np.stack([np.digitize(c, np.quantile(c, [.25, .5, .75])) for c in data.T], axis=1)
def edges(graph):
    m, found = graph.graph, []
    for i in range(len(m)):
        for j in range(len(m)):
            if m[i, j] == -1 and m[j, i] == 1: found.append([i, j, True])
            elif i < j and m[i, j] == -1 and m[j, i] == -1: found.append([i, j, False])
            elif i < j and m[i, j] == 1 and m[j, i] == 1: found.append([i, j, False])
    return found
made = {}
for name, run in {
    "PC, Fisher's z": lambda: pc(data, 0.01, "fisherz", show_progress=False).G,
    "GES, BIC": lambda: ges(data, "local_score_BIC")["G"],
    "PC, four levels": lambda: pc(levels, 0.01, "chisq", show_progress=False).G,
    "GES, four levels": lambda: ges(levels, "local_score_BDeu")["G"],
}.items():
    start = time.process_time()
    made[name] = {"edges": edges(run()), "seconds": time.process_time() - start}
print(json.dumps(made))
"""


def rated(edges: list[tuple[str, str, bool]], truth: set[tuple[str, str]]) -> dict[str, float]:
    """Return how the edges found compare with the stated arrows."""
    stated = {frozenset(arrow) for arrow in truth}
    found = {frozenset((a, b)) for a, b, _ in edges}
    hit = len(found & stated)
    arrows = [(a, b) for a, b, directed in edges if directed and frozenset((a, b)) in stated]
    return {
        "edges": len(found),
        "true": hit,
        "precision": hit / len(found) if found else 1.0,
        "recall": hit / len(stated),
        "f1": 2 * hit / (len(found) + len(stated)),
        "arrows": len(arrows),
        "right_way": sum(arrow in truth for arrow in arrows),
    }


def schema_of(names: list[str]) -> Schema:
    """Return the public description: the range of the instrument, in bins of equal width in the logarithm."""
    edges = (*np.geomspace(1, 10_000, 25)[:-1].tolist(), 10_000.0)
    return Schema(tuple(Numeric(name, 1.0, 10_000.0, edges=edges) for name in names))


def private(frame: pl.DataFrame, truth: set[tuple[str, str]], runs: int) -> list[dict[str, Any]]:
    """Return what escudo finds, run by run."""
    schema, found = schema_of(frame.columns), []
    for epsilon in EPSILONS:
        for method in ("auto", "joint"):
            for seed in range(runs):
                start = time.process_time()
                made = discover(PrivateTable(frame, schema), epsilon=epsilon, delta=DELTA, method=method, seed=seed)
                seconds = time.process_time() - start
                edges = [(a, b, True) for a, b in made.graph.edges]
                edges += [(a, b, False) for a, b in made.graph.undirected_edges]
                sure = [value for value in made.edge_confidence.values() if value >= 0.9]
                right = [
                    pair
                    for pair, value in made.edge_confidence.items()
                    if value >= 0.9 and (pair in truth or pair[::-1] in truth)
                ]
                found.append(
                    {
                        "method": "escudo" if method == "auto" else "escudo, joint",
                        "epsilon": epsilon,
                        "seed": seed,
                        "seconds": seconds,
                        **rated(edges, truth),
                        "sure": len(sure),
                        "sure_and_true": len(right),
                        "cannot_tell": bool(made.cannot_tell),
                    }
                )
    return found


def peers(python: str, frame: pl.DataFrame, truth: set[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return what causal-learn finds without privacy."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.npy"
        np.save(file, np.log(frame.to_numpy()))
        done = subprocess.run(
            [python, "-c", PEER, str(file)], capture_output=True, text=True, check=True, env={**os.environ}
        )
    found, names = [], frame.columns
    for method, made in json.loads(done.stdout.splitlines()[-1]).items():
        edges = [(names[i], names[j], directed) for i, j, directed in made["edges"]]
        found.append({"method": method, "epsilon": None, "seconds": made["seconds"], **rated(edges, truth)})
    return found


def setting(data: Path) -> dict[str, Any]:
    """Return commit, data and machine."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
        return done.stdout.strip()

    changed = bool(git("status", "--porcelain", "--", "../src"))
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": (git("rev-parse", "--short", "HEAD") or "none") + (" with uncommitted changes" if changed else ""),
        "seeds": RUNS,
        "data": hashlib.sha256((data / "sachs" / "cyto_full_data.csv").read_bytes()).hexdigest()[:16],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
    }


def page(payload: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    facts = payload["setting"]
    lines = [
        "# Sachs, privately",
        "",
        f"{facts['date']}, commit {facts['commit']}, {facts['seeds']} runs at each ε, data {facts['data']}, "
        f"{facts['machine']}, Python {facts['python']}. Made by `python experiments/sachs_discovery.py`.",
        "",
        "7,466 × 11, 18 stated arrows (cdt), replace one row, δ = 1e-6; means over runs. *Sure*: edges reported at 90 "
        "% or more, and how many of them are stated. PC and GES are causal-learn's, without privacy.",
        "",
        "| method | ε | edges | stated | precision | recall | F1 | right way | sure | CPU-s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, float | None], list[dict[str, Any]]] = {}
    for run in payload["runs"]:
        groups.setdefault((run["method"], run["epsilon"]), []).append(run)
    for (method, epsilon), runs in groups.items():

        def mean(key: str, runs: list[dict[str, Any]] = runs) -> float:
            return float(np.mean([run[key] for run in runs]))

        sure = f"{mean('sure_and_true'):.1f} of {mean('sure'):.1f}" if epsilon is not None else ""
        lines.append(
            f"| {method} | {'∞' if epsilon is None else f'{epsilon:g}'} | {mean('edges'):.1f} | {mean('true'):.1f} | "
            f"{mean('precision'):.2f} | {mean('recall'):.2f} | {mean('f1'):.2f} | {mean('right_way'):.1f} of "
            f"{mean('arrows'):.1f} | {sure} | {mean('seconds'):.1f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the experiment and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[1] / ".." / "shared" / "data")
    parser.add_argument("--peer", help="an interpreter with causal-learn")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    folder = options.data / "sachs"
    frame = pl.read_csv(folder / "cyto_full_data.csv")
    truth = {(row[0], row[1]) for row in pl.read_csv(folder / "cyto_full_target.csv").rows()}
    runs = private(frame, truth, 1 if options.quick else RUNS)
    if options.peer:
        runs += peers(options.peer, frame, truth)
    payload = {"setting": setting(options.data), "runs": runs}
    text = page(payload)
    if not options.quick:
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / "sachs_discovery.json").write_text(json.dumps(payload, indent=1) + "\n")
        (RESULTS / "sachs_discovery.md").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
