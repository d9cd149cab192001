"""Every figure that was measured on escudo and on a peer, with their ratio, from the results' JSON files.

Used by ``summary.py``. A comparison whose file or cell does not exist is left out: nothing is typed in by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results"


class Comparison(NamedTuple):
    """One figure of escudo's beside a peer's, and whether the smaller one is the better."""

    question: str
    ours: float
    peer: str
    theirs: float
    unit: str
    page: str
    smaller_is_better: bool = True

    @property
    def times_better(self) -> float:
        return self.theirs / self.ours if self.smaller_is_better else self.ours / self.theirs


def comparisons() -> list[Comparison]:
    """Return all comparisons for which there are results, page by page."""
    found: list[Comparison] = []
    for page, reader in READERS.items():
        path = RESULTS / f"{page}.json"
        if path.exists():
            found += reader(json.loads(path.read_text(encoding="utf-8")))
    return found


def _release(result: Any) -> Iterator[Comparison]:
    told = {
        "true graph": "graph told",
        "graph discovered under the same ε": "graph discovered",
        "no graph": "no graph",
    }
    for epsilon, (way, title) in product((1.0, 0.1), told.items()):
        if way not in result["accuracy"]["escudo"]:
            continue
        ours = fmean(result["accuracy"]["escudo"][way][str(epsilon)])
        runs = [run for run in result["accuracy"]["peers"] if run["epsilon"] == epsilon and "error" in run]
        for peer in sorted({run["method"] for run in runs}):
            theirs = [run for run in runs if run["method"] == peer]
            question = f"Asia, three-way error, {title}, ε = {epsilon:g}"
            yield Comparison(question, 100 * ours, peer, 100 * fmean(run["error"] for run in theirs), "%", "release")
            if epsilon == 1 and way == "true graph":
                seconds = median(run["cpu_seconds"] for run in result["time"])
                every = fmean(
                    run["cpu_seconds"]
                    for run in result["accuracy"]["peers"]
                    if run["method"] == peer and "error" in run
                )
                yield Comparison("Asia, processor time", seconds, peer, every, "s", "release")


def _tables(result: Any) -> Iterator[Comparison]:
    def mean(table: str, method: str, epsilon: float) -> float | None:
        cells = [
            run["tv2"]
            for run in result["runs"]
            if (run["table"], run["method"], run["epsilon"]) == (table, method, epsilon) and run.get("tv2") is not None
        ]
        return 100 * fmean(cells) if cells else None

    peers = {
        key: title.partition(":")[0] for key, title in result["methods"].items() if key[:3] in ("mst", "aim", "pri")
    }
    told = {
        "escudo-none": "no graph",
        "escudo-discover": "graph discovered",
        "escudo-full": "graph given",
    }
    for table, (way, graph), epsilon in product(result["tables"], told.items(), (0.1, 1.0, 3.0)):
        ours = mean(table, way, epsilon)
        for key, title in peers.items():
            theirs = mean(table, key, epsilon)
            if ours is not None and theirs is not None:
                name = "NLTCS" if table == "nltcs" else table.capitalize()
                question = f"{name}, pair error, {graph}, n not told, ε = {epsilon:g}"
                yield Comparison(question, ours, title, theirs, "%", "tables")


def _estimation(result: Any) -> Iterator[Comparison]:
    for row in result["rows"]:
        ours, theirs = row["escudo"]["three_way"], row["Private-PGM"]["three_way"]
        question = f"{row['network']}, estimation from the same noise, ε = {row['epsilon']:g}"
        yield Comparison(question, 100 * ours, "Private-PGM", 100 * theirs, "%", "estimation")


def _direction(result: Any) -> Iterator[Comparison]:
    theirs = {run["rows"]: run["wall"] for run in result.get("peer", [])}
    for run in result["small"]:
        if run["rows"] in theirs:
            question = f"direction of one pair, {run['rows']:,} rows"
            yield Comparison(
                question, 1e3 * run["wall"], "causal-learn ANM", 1e3 * theirs[run["rows"]], "ms", "direction"
            )


def _discovery(result: Any) -> Iterator[Comparison]:
    small = {"cancer", "earthquake", "survey", "asia", "sachs"}
    for epsilon in (0.1, 1.0):
        means = {
            method: fmean(
                run["f1"]
                for run in result["networks"]
                if (run["method"], run["epsilon"]) == (method, epsilon) and run["network"] in small
            )
            for method in ("escudo", "Priv-PC, repaired", "PrivBayes tree")
        }
        ours = means.pop("escudo")
        for peer, theirs in means.items():
            question = f"graphs of five networks, F1, ε = {epsilon:g}"
            yield Comparison(question, ours, peer, theirs, "", "discovery", smaller_is_better=False)


def _dpsgd(result: Any) -> Iterator[Comparison]:
    titles = {"ghost": "Opacus, ghost clipping", "hooks": "Opacus, hooks", "jax-privacy": "jax-privacy"}
    for key, title in titles.items():
        for batch, theirs in result["best"].get(key, {}).items():
            ours = result["best"]["escudo"][batch]
            question = f"DP-SGD on one core, batches of {batch}"
            yield Comparison(question, ours, title, theirs, "steps/s", "dpsgd", smaller_is_better=False)


def _counts(result: Any) -> Iterator[Comparison]:
    for size in result["measured"]:
        for ours, theirs in (("polars lazy", "polars lazy, streaming engine"), ("DuckDB", "DuckDB")):
            seconds = size["seconds"]
            question = f"eight three-way tables, 10 million rows, {size['levels']} levels"
            yield Comparison(
                question, seconds[f"escudo: {ours}"], f"{theirs}, by hand", seconds[f"by hand: {theirs}"], "s", "counts"
            )


def _audit_sniper(result: Any) -> Iterator[Comparison]:
    for row in result["rows"]:
        question = f"ε found in {row['name']}, {result['runs'] / 1e6:g} million samples"
        every = row["found"].values()
        ours = max(median(one[kind] for one in every) for kind in ("epsilon_lower", "clopper_pearson"))
        yield Comparison(question, ours, "DP-Sniper, 230 million", row["sniper"], "", "audit_sniper", False)


def _audit_power(result: Any) -> Iterator[Comparison]:
    for row in result["rows"]:
        question = f"runs to reject: {row['problem']}"
        yield Comparison(question, row["audit_80"], "split Clopper-Pearson", row["split_80"], "runs", "audit_power")


def _linked(result: Any) -> Iterator[Comparison]:
    titles = {
        "v1": "single columns of visits",
        "v2": "pairs of columns of visits",
        "trans": "from visit to visit",
        "n": "visits per person",
        "pv": "people with their visits",
        "rd": "effect on the next visit",
    }
    linked = [row for row in result["clinic"] if row["release"] == "linked"]
    for row, (figure, title) in product(linked, titles.items()):
        if "hma" in result:
            ours, theirs = (each["figures"][figure][0] for each in (row, result["hma"]))
            question = f"linked tables, {title}, ε = {row['epsilon']:g}"
            peer = f"SDV's HMA, {result['hma']['people']:,} people, without privacy"
            yield Comparison(question, 100 * ours, peer, 100 * theirs, "%", "linked")


READERS = {
    "release": _release,
    "tables": _tables,
    "estimation": _estimation,
    "direction": _direction,
    "discovery": _discovery,
    "dpsgd": _dpsgd,
    "counts": _counts,
    "linked": _linked,
    "audit_sniper": _audit_sniper,
    "audit_power": _audit_power,
}
