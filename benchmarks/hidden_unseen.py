"""Private graphs where causes are hidden, on networks that nothing was chosen on: how many claims are true.

Run ``python benchmarks/hidden_unseen.py --peer PYTHON`` from the repository's root, with an interpreter that has
causal-learn; it takes about half an hour on one core. It writes ``benchmarks/results/hidden_unseen.json`` and
``hidden_unseen.md``.

A tail (this is a cause of that) is shown only if it came back every time the search was repeated: a rule that was made
because of Child (``hidden_causes.md``). Here it meets networks that it was not made on: Alarm, whose seven columns with
most children are hidden, and random ones of 10, 20 and 30 columns with one or two causes each on average, of which a
fifth is hidden at random. They are drawn here by other laws than those on which confidences were fitted, which have at
most 12 columns. 100,000 rows, ε of 0.3 and 1, δ = 1e-6, replace one row, and FCI of causal-learn without privacy on the
same rows, as in ``hidden_causes.py``. *Kept back* are the tails that the rule alone makes circles.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import hidden_causes
from _made import made, told
from hidden_causes import RESULTS, cell, fci, hidden_of, holds, rated, sure, without

from escudo.causal import TAIL, CausalGraph, Network
from escudo.discovery import _hidden, discover
from escudo.table import PrivateTable

SEED, ROWS, EPSILONS, DELTA, LONGEST = 20_261_118, 100_000, (0.3, 1.0), 1e-6, 120
DRAWN = ((10, 1.0), (10, 2.0), (20, 1.0), (20, 2.0), (30, 1.5))
"""Columns, and how many causes each has on average."""

EACH, ALARMS = 4, 2


def random_network(rng: np.random.Generator, columns: int, causes: float) -> Network:
    """Return a network with this many causes a column on average, at most four, and laws with effects of all sizes."""
    names = [f"v{number:02d}" for number in rng.permutation(columns)]
    sizes = {name: int(rng.integers(2, 5)) for name in names}
    parents: dict[str, tuple[str, ...]] = {}
    tables = {}
    chance = 2 * causes / (columns - 1)
    for place, name in enumerate(names):
        above = [other for other in names[:place] if rng.random() < chance]
        several = tuple(rng.permutation(above)[:4].tolist())
        shape = [sizes[other] for other in several]
        odds = np.zeros((*shape, sizes[name])) + rng.normal(scale=0.7, size=sizes[name])
        for axis, size in enumerate(shape):  # each cause moves the odds, and all of them together a little
            moved = rng.normal(scale=rng.uniform(0.5, 1.5), size=(size, sizes[name]))
            odds = odds + moved.reshape([size if i == axis else 1 for i in range(len(shape))] + [sizes[name]])
        odds = odds + rng.normal(scale=0.3, size=odds.shape)
        law = np.exp(odds)
        parents[name], tables[name] = several, law / law.sum(axis=-1, keepdims=True)
    levels = {name: [f"l{k}" for k in range(size)] for name, size in sizes.items()}
    return Network(levels=levels, parents=parents, tables=tables)


def cases(data: Path, quick: bool) -> Iterator[tuple[str, Network, tuple[str, ...], int]]:
    for columns, causes in DRAWN[:1] if quick else DRAWN:
        for number in range(1 if quick else EACH):
            rng = np.random.default_rng([SEED, columns, int(10 * causes), number])
            network = random_network(rng, columns, causes)
            hidden = rng.choice(network.nodes, size=columns // 5, replace=False)
            yield f"random, {columns} columns, {causes:g} causes each", network, tuple(hidden.tolist()), number
    if not quick:
        alarm = Network.read(data / "networks" / "alarm.bif.gz")
        for number in range(ALARMS):
            yield "alarm", alarm, hidden_of(alarm), number


class Tails:
    """Listens to the search: which tails were sure enough, and did not come back every time."""

    def __init__(self) -> None:
        self._judged = _hidden.judged
        self.kept_back: list[tuple[str, str]] = []

    def __call__(self, names: Any, marks: Any, again: Any, known: Any) -> Any:
        """Judge as always, and note the tails that the rule alone takes away."""
        several, self.kept_back = list(again), []
        for a, b in np.argwhere(np.array(marks) == TAIL).tolist():
            there = [other[a][b] for other in several if other[a][b]]
            times = there.count(TAIL)
            if times < len(there) and _hidden._worth("tail", times, len(there)) >= _hidden._LEAST_MARK:
                self.kept_back.append((names[a], names[b]))
        return self._judged(names, marks, iter(several), known)


def measured(data: Path, peer: str | None, quick: bool) -> Iterator[list[dict[str, Any]]]:
    """Yield all runs so far after each table."""
    runs: list[dict[str, Any]] = []
    listening = Tails()
    _hidden.judged = listening
    for name, network, hidden, number in cases(data, quick):
        graph = network.graph
        truth = CausalGraph.from_edges(graph.edges, nodes=graph.nodes, latents=hidden).pag()
        frame, schema = without(network, hidden, ROWS, np.random.default_rng([SEED, number, len(graph.edges)]))
        about = {"network": name, "seed": number, "rows": ROWS, "edges": len(truth.edges)}
        for epsilon in EPSILONS:
            start = time.process_time()
            found = discover(PrivateTable(frame, schema), epsilon=epsilon, delta=DELTA, hidden_causes=True, seed=number)
            seconds = time.process_time() - start
            joined = set(found.graph.adjacencies)
            back = [pair for pair in listening.kept_back if (min(pair), max(pair)) in joined]
            runs.append(
                {
                    **about,
                    "epsilon": epsilon,
                    **rated(found.graph, truth, graph),
                    "kept_back": [len(back), sum(holds(graph, pair, "-") for pair in back)],
                    "sure": [[kind, round(value, 3), bool(true)] for kind, value, true in sure(found, truth, graph)],
                    "seconds": seconds,
                }
            )
        other = None if peer is None else fci(peer, frame, schema)
        if other is not None:
            marks = [
                [sign, holds(graph, pair, sign)] for pair, sign in hidden_causes.ends(other[0]).items() if sign != "o"
            ]
            runs.append({**about, "epsilon": None, **rated(other[0], truth, graph), "said": marks, "seconds": other[1]})
        print(about, [(round(run["f1"], 2), run["true_claims"], run["claims"]) for run in runs[-3:]], flush=True)
        yield runs


def interval(true: int, of: int) -> str:
    """Return a share with its Wilson interval of 95 %."""
    if not of:
        return "none"
    z, p = 1.96, true / of
    middle, wide = (p + z * z / (2 * of)) / (1 + z * z / of), z * math.sqrt(p * (1 - p) / of + (z / (2 * of)) ** 2)
    low, high = middle - wide / (1 + z * z / of), middle + wide / (1 + z * z / of)
    return f"{true} of {of}: {p:.2f} [{low:.2f}, {high:.2f}]"


def page(payload: dict[str, Any]) -> str:
    runs = payload["runs"]
    lines = [
        "# Graphs where causes are hidden, on networks nothing was chosen on",
        "",
        f"{told(payload['setting'])}. Data: {payload['data']}. Made by `python benchmarks/hidden_unseen.py`, once.",
        "",
        "A fifth of the columns hidden: of Alarm those with most children, of random networks any. 100,000 rows. ε is"
        f" private; *FCI* is causal-learn's, without privacy, on the same rows (χ², α = {hidden_causes.ALPHA:g}, at"
        f" most {LONGEST} s by the clock, on a busy machine). A cell: F1 of the edges against the true partial"
        " ancestral graph, mean over tables; the"
        " share of marks that are the same as there, of edges that both have; how many arrows and tails are true in the"
        " network, of how many were claimed. *Finished*: the tables that FCI finished, as many as it says.",
        "",
        "| network | true edges | tables | " + " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS) + " | FCI |",
        "|---|--:|--:|" + "---|" * (len(EPSILONS) + 1),
    ]
    done = {(run["network"], run["seed"]) for run in runs if run["epsilon"] is None}
    finished = [run for run in runs if (run["network"], run["seed"]) in done]
    groups = {
        name: [run for run in runs if run["network"] == name] for name in dict.fromkeys(r["network"] for r in runs)
    }
    for name, some in {**groups, "all": runs, "finished": finished}.items():
        cells = []
        for epsilon in (*EPSILONS, None):
            chosen = [run for run in some if run["epsilon"] == epsilon]
            short = epsilon is None and len(chosen) < len({(run["network"], run["seed"]) for run in some})
            cells.append(cell(chosen) + (f" ({len(chosen)} tables)" if chosen and short else ""))
        tables = {(run["network"], run["seed"]): run["edges"] for run in some}
        lines.append(f"| {name} | {np.mean(list(tables.values())):.0f} | {len(tables)} | " + " | ".join(cells) + " |")
    lines += ["", "## What is claimed, and how much of it is true", ""]
    lines += ["| | arrows | tails | tails kept back by the rule |", "|---|---|---|---|"]
    for epsilon in EPSILONS:
        some = [run for run in runs if run["epsilon"] == epsilon]
        said = {
            kind: [true for run in some for what, _, true in run["sure"] if what == kind] for kind in ("arrow", "tail")
        }
        back = [sum(run["kept_back"][place] for run in some) for place in (0, 1)]
        cells = [interval(sum(said[kind]), len(said[kind])) for kind in ("arrow", "tail")]
        lines.append(f"| ε = {epsilon:g} | {' | '.join(cells)} | {interval(back[1], back[0])} |")
    marks = [mark for run in runs if run["epsilon"] is None for mark in run["said"]]
    split = [[true for sign, true in marks if (sign == ">") == arrows] for arrows in (True, False)]
    lines.append(f"| FCI | {' | '.join(interval(sum(one), len(one)) for one in split)} | |")
    seconds = [run["seconds"] for run in runs if run["epsilon"] is not None]
    lines += [
        "",
        "Intervals: 95 %, as if marks were independent; those of one table are not, so they are too narrow.",
        "",
        f"CPU seconds: {np.mean(seconds):.1f} on average, {max(seconds):.1f} at most.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[1] / ".." / "shared" / "data")
    parser.add_argument("--peer", help="an interpreter with causal-learn")
    parser.add_argument("--quick", action="store_true", help="a smoke run that writes nothing")
    options = parser.parse_args()
    hidden_causes.LONGEST = LONGEST
    digest = hashlib.sha256((options.data / "networks" / "alarm.bif.gz").read_bytes()).hexdigest()[:16]
    setting, payload = made(seed=SEED, numpy=np.__version__), {}
    for runs in measured(options.data, options.peer, options.quick):
        payload = {"setting": setting, "data": f"sha256 of alarm.bif.gz {digest}", "runs": runs}
        if not options.quick:  # written as it goes: it takes long
            (RESULTS / "hidden_unseen.json").write_text(json.dumps(payload) + "\n")
            (RESULTS / "hidden_unseen.md").write_text(page(payload))
    print(page(payload))


if __name__ == "__main__":
    main()
