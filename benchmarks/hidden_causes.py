"""Private graphs where causes are hidden: how right edges and marks are, and how well it knows.

Run ``python benchmarks/hidden_causes.py --peer PYTHON`` from the repository's root, with an interpreter that has
causal-learn; it takes about half an hour on one core. It writes ``benchmarks/results/hidden_causes.json`` and
``hidden_causes.md``.

* **Networks** of ``--data DIR/networks`` with the columns hidden that have most children (one in five, at least one),
  and twelve **simulated** ones, drawn like those of ``discovery.py`` and never fitted on. 10,000 and 100,000 rows, ε of
  0.3, 1 and 3, δ = 1e-6, replace one row; three seeds each for rows and noise (simulated ones are seeds themselves).
* **The truth** is the partial ancestral graph of the network with those columns latent (``CausalGraph.pag``). Edges: F1
  of the skeletons. Marks, of edges that both have: how many are the same. Claims, of all edges that were found: how
  many arrows and tails are true in the network itself (an arrow at b of the edge with a: b is no cause of a).
* **Beside it** FCI of causal-learn (χ², α = 0.01) without privacy on the same rows, within five minutes. ``--keep``
  takes its answers from the result that is there: the rows are the same, and it takes nearly all of the time.
* **How well it knows**: confidences of edges and marks by bins.

``--fit`` prints the curves of confidence fitted on 600 other simulated tables (``escudo.discovery._hidden``).
``--quick`` is a smoke run that writes nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).parent))
from _made import made, told
from discovery import simulated_network

from escudo.causal import CIRCLE, AncestralGraph, CausalGraph, Marks, Network
from escudo.discovery import AncestralDiscovery, _hidden, discover
from escudo.table import PrivateTable, Schema

NETWORKS = ("cancer", "earthquake", "survey", "asia", "sachs", "child", "alarm")
ROWS, EPSILONS, SEEDS, SIMULATED = (10_000, 100_000), (0.3, 1.0, 3.0), (0, 1, 2), 12
DELTA, ALPHA, SEED, FITTED, LONGEST = 1e-6, 0.01, 20_261_117, 4711, 300
RESULTS = Path(__file__).parent / "results"
BINS = ((0.5, 0.75), (0.75, 0.85), (0.85, 0.95), (0.95, 1.0))


def hidden_of(network: Network) -> tuple[str, ...]:
    """Return the columns to hide: those with most children, one in five."""
    ranked = sorted(network.nodes, key=lambda name: -len(network.graph.children(name)))
    return tuple(ranked[: max(1, len(ranked) // 5)])


def without(
    network: Network, hidden: tuple[str, ...], rows: int, rng: np.random.Generator
) -> tuple[pl.DataFrame, Schema]:
    frame = network.sample_frame(rows, rng=rng).drop(list(hidden))
    return frame, Schema.from_dict({name: list(network.levels[name]) for name in frame.columns})


def ends(graph: AncestralGraph) -> dict[tuple[str, str], str]:
    """Return the sign at the second column of each edge, by (other end, end)."""
    return {pair: graph.kind(*pair)[-1] for a, b in graph.adjacencies for pair in ((a, b), (b, a))}


def rated(graph: AncestralGraph, truth: AncestralGraph, network: CausalGraph) -> dict[str, float]:
    ours, theirs = ends(graph), ends(truth)
    both = ours.keys() & theirs.keys()
    claims = [(pair, sign) for pair, sign in ours.items() if sign != "o"]
    return {
        "f1": graph.skeleton_f1(truth),
        "marks": len(both),
        "same": sum(ours[pair] == theirs[pair] for pair in both),
        "claims": len(claims),
        "true_claims": sum(holds(network, pair, sign) for pair, sign in claims),
        "open": sum(sign == "o" for sign in ours.values()),
    }


def holds(network: CausalGraph, pair: tuple[str, str], sign: str) -> bool:
    """Return whether a mark is true: an arrow says that its column is no cause of the other, a tail that it is one."""
    return (pair[1] in network.ancestors(pair[0])) == (sign != ">")


def sure(found: AncestralDiscovery, truth: AncestralGraph, network: CausalGraph) -> list[tuple[str, float, bool]]:
    """Return each confidence, what it is about, and whether that is true."""
    joined = set(truth.adjacencies)
    told = [("edge", value, edge in joined) for edge, value in found.edge_confidence.items()]
    for pair, value in found.mark_confidence.items():
        sign = found.graph.kind(*pair)[-1]
        told.append(("arrow" if sign == ">" else "tail", value, holds(network, pair, sign)))
    return told


def fci(peer: str, frame: pl.DataFrame, levels: Schema) -> tuple[AncestralGraph, float] | None:
    """Return what causal-learn finds without privacy, and its seconds; None if it takes too long."""
    place = {name: {level: code for code, level in enumerate(levels[name].levels)} for name in frame.columns}
    codes = np.column_stack([frame[name].replace_strict(place[name]).to_numpy() for name in frame.columns])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "codes.npy"
        np.save(file, codes.astype(np.int64))
        script = str(Path(__file__).parent / "peer_fci.py")
        try:
            ran = subprocess.run(
                [peer, script, str(file), str(ALPHA)], capture_output=True, text=True, check=True, timeout=LONGEST
            )
        except subprocess.TimeoutExpired:
            return None
    told = json.loads(ran.stdout.splitlines()[-1])
    return AncestralGraph.from_marks(frame.columns, plausible(told["marks"])), told["seconds"]


def plausible(marks: Marks) -> Marks:
    """Return marks of FCI as a partial ancestral graph: what contradicts itself becomes circles, as in ours."""
    likely = {(a, b): 0.5 for a, row in enumerate(marks) for b, mark in enumerate(row) if mark > CIRCLE}
    _hidden._consistent([str(number) for number in range(len(marks))], marks, likely)
    return marks


def simulated(seed: int, number: int) -> tuple[Network, tuple[str, ...], np.random.Generator]:
    rng = np.random.default_rng([seed, number])
    while True:
        network = simulated_network(rng, int(rng.integers(6, 13)))
        if network.graph.edges:
            break
    weights = np.array([1.0 + len(network.graph.children(name)) for name in network.nodes])
    many = int(rng.integers(1, 1 + max(1, len(network.nodes) // 4)))
    chosen = rng.choice(network.nodes, size=many, replace=False, p=weights / weights.sum())
    return network, tuple(chosen.tolist()), rng


def cases(data: Path, quick: bool) -> Iterator[tuple[str, Network, tuple[str, ...], int]]:
    for number in range(1 if quick else SIMULATED):
        network, hidden, _ = simulated(SEED, number)
        yield "simulated", network, hidden, number
    for name in NETWORKS[:2] if quick else NETWORKS:
        network = Network.read(data / "networks" / f"{name}.bif.gz")
        for seed in SEEDS[:1] if quick else SEEDS:
            yield name, network, hidden_of(network), seed


def measured(
    data: Path, peer: str | None, quick: bool, kept: list[dict[str, Any]]
) -> Iterator[tuple[list[dict[str, Any]], list[list[Any]]]]:
    """Yield the runs so far, and how sure they were, after each table; kept are runs of FCI on the same rows."""
    runs: list[dict[str, Any]] = []
    confidences: list[list[Any]] = []
    for name, network, hidden, seed in cases(data, quick):
        graph = network.graph
        truth = CausalGraph.from_edges(graph.edges, nodes=graph.nodes, latents=hidden).pag()
        for rows in ROWS[:1] if quick else ROWS:
            frame, schema = without(network, hidden, rows, np.random.default_rng([SEED, seed, rows]))
            about = {"network": name, "seed": seed, "rows": rows, "edges": len(truth.edges)}
            for epsilon in EPSILONS[-1:] if quick else EPSILONS:
                start = time.process_time()
                found = discover(
                    PrivateTable(frame, schema), epsilon=epsilon, delta=DELTA, hidden_causes=True, seed=seed
                )
                seconds = time.process_time() - start
                runs.append({**about, "epsilon": epsilon, **rated(found.graph, truth, graph), "seconds": seconds})
                group = "simulated" if name == "simulated" else "networks"
                confidences += [[group, *one] for one in sure(found, truth, graph)]
            other = None if peer is None else fci(peer, frame, schema)
            if other is not None:
                runs.append({**about, "epsilon": None, **rated(other[0], truth, graph), "seconds": other[1]})
            runs += [run for run in kept if all(run[key] == about[key] for key in about)]
            print(about, [round(run["f1"], 2) for run in runs[-4:]], flush=True)
            yield runs, confidences


def fit() -> None:
    """Print the curves of confidence, fitted on simulated tables that nothing else uses."""
    from scipy.optimize import minimize

    _hidden._LEAST_EDGE = _hidden._LEAST_MARK = 0.0
    _hidden.CURVES.update(dict.fromkeys(_hidden.CURVES, (0.0, 1.0, 0.0)))
    told = []
    for number in range(600):
        network, hidden, rng = simulated(FITTED, number)
        graph = network.graph
        truth = CausalGraph.from_edges(graph.edges, nodes=graph.nodes, latents=hidden).pag()
        rows, epsilon = int(rng.choice([2000, 10_000, 30_000, 100_000])), float(rng.choice([0.3, 1.0, 3.0]))
        frame, schema = without(network, hidden, rows, rng)
        found = discover(PrivateTable(frame, schema), epsilon=epsilon, delta=DELTA, hidden_causes=True, seed=number)
        told += sure(found, truth, graph)
    for kind in _hidden.CURVES:
        value = np.array([one[1] for one in told if one[0] == kind])
        sign = np.array([1.0 if one[2] else -1.0 for one in told if one[0] == kind])
        odds, always = np.log(value / (1 - value)), value >= 0.97

        def loss(p: Any, odds: Any = odds, always: Any = always, sign: Any = sign) -> float:
            logits = p[0] + p[1] * odds + p[2] * always
            return float(np.mean(np.log1p(np.exp(-logits * sign))) + 0.001 * (p[1] - 0.5) ** 2)

        print(kind, len(value), np.round(minimize(loss, [0.0, 0.5, 0.0]).x, 2))


# -- the page


def page(payload: dict[str, Any]) -> str:
    runs, lines = payload["runs"], []
    lines += [
        "# Graphs where causes are hidden",
        "",
        f"{told(payload['setting'])}. Data: {payload['data']}.",
        "",
        "Columns hidden: those with most children, one in five; simulated networks: at random. ε is private; *FCI* is "
        f"causal-learn's, without privacy, on the same rows (χ², α = {ALPHA:g}, at most {LONGEST} s). F1 of the edges"
        " against the true partial ancestral graph, means over seeds; *marks*: the share that is the same as in the"
        " true graph, of edges that both have; *claims*: how many arrows and tails are true in the network, of how many"
        " were claimed. *All*: the tables that FCI finished.",
        *(["", payload["since"]] if "since" in payload else []),
        "",
        "| network | edges | rows | tables | " + " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS) + " | FCI |",
        "|---|--:|--:|--:|" + "---|" * 4,
    ]
    names = list(dict.fromkeys(run["network"] for run in runs))
    for name, rows in itertools.product([*names, "all"], dict.fromkeys(run["rows"] for run in runs)):
        cells = []
        some = [run for run in runs if run["rows"] == rows and name in (run["network"], "all")]
        if not some:
            continue
        both = {(run["network"], run["seed"]) for run in some if run["epsilon"] is None} if name == "all" else None
        for epsilon in (*EPSILONS, None):
            chosen = [run for run in some if run["epsilon"] == epsilon]
            if both is not None:  # means of all are over the tables that FCI finished, too
                chosen = [run for run in chosen if (run["network"], run["seed"]) in both]
            cells.append(cell(chosen))
        edges = np.mean([run["edges"] for run in some])
        tables = len({(run["network"], run["seed"]) for run in some})
        lines.append(f"| {name} | {edges:.0f} | {rows:,} | {tables} | " + " | ".join(cells) + " |")
    lines += ["", "A cell: F1, marks, claims.", "", "## How well it knows", ""]
    lines += [
        "| | stated | " + " | ".join(f"{group}" for group in ("simulated", "networks")) + " |",
        "|---|---|---|---|",
    ]
    for kind, (low, high) in itertools.product(("edge", "arrow", "tail"), BINS):
        cells = []
        for group in ("simulated", "networks"):
            inside = [
                (value, true)
                for who, what, value, true in payload["confidences"]
                if who == group and what == kind and low <= value < high + (high == 1.0)
            ]
            if inside:
                stated, real = np.mean([value for value, _ in inside]), np.mean([true for _, true in inside])
                cells.append(f"said {stated:.2f}, true {real:.2f} of {len(inside)}")
            else:
                cells.append("none")
        lines.append(f"| {kind} | {low:g} to {high:g} | " + " | ".join(cells) + " |")
    seconds = [run["seconds"] for run in runs if run["epsilon"] is not None]
    lines += ["", f"CPU seconds: {np.mean(seconds):.1f} on average, {max(seconds):.1f} at most.", ""]
    return "\n".join(lines)


def cell(runs: list[dict[str, Any]]) -> str:
    if not runs:
        return "none"
    f1, marks = np.mean([run["f1"] for run in runs]), sum(run["marks"] for run in runs)
    same = sum(run["same"] for run in runs) / marks if marks else float("nan")
    claims, true = sum(run["claims"] for run in runs), sum(run["true_claims"] for run in runs)
    return f"{f1:.2f}, {same:.2f}, {true}/{claims}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[1] / ".." / "shared" / "data")
    parser.add_argument("--peer", help="an interpreter with causal-learn")
    parser.add_argument("--keep", action="store_true", help="keep what causal-learn answered, do not ask it again")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.fit:
        fit()
        return
    digest = hashlib.sha256()
    for name in NETWORKS:
        digest.update((options.data / "networks" / f"{name}.bif.gz").read_bytes())
    payload: dict[str, Any] = {}
    kept: list[dict[str, Any]] = []
    if options.keep:
        before = json.loads((RESULTS / "hidden_causes.json").read_text())
        kept = [run for run in before["runs"] if run["epsilon"] is None]
    for runs, confidences in measured(options.data, options.peer, options.quick, kept):
        payload = {
            "setting": made(seed=SEED, numpy=np.__version__),
            "data": f"sha256 of the networks {digest.hexdigest()[:16]}",
            "runs": runs,
            "confidences": [[group, kind, round(value, 3), bool(true)] for group, kind, value, true in confidences],
        }
        if not options.quick:  # written as it goes: it takes long
            RESULTS.mkdir(exist_ok=True)
            (RESULTS / "hidden_causes.json").write_text(json.dumps(payload) + "\n")
            (RESULTS / "hidden_causes.md").write_text(page(payload))
    print(page(payload))


if __name__ == "__main__":
    main()
