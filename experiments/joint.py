"""Graph and generator learnt together, against one after the other, at equal budget.

*Causally Constrained Data Synthesis*, section 5.2.3, learns the graph of Eedi together with the VAE (VICause), on a
table that cannot be had, and compares it with nothing. Here, on Asia (10,000 rows), Synthetic (1,000) and Eedi (400
students by 44 columns), for ``autoregressive`` and ``vae`` at the paper's ε:

* **joint**: ``discover="joint"``, all of ε for graph and network together;
* **one by one**: ``escudo.discover`` with half of ε, then the generator with the other half along the graph that was
  found (its undirected edges as lines), which by composition costs ε;
* **no graph**: the generator without one;
* **true graph**: the generator told the graph, which nobody has in practice; Eedi's is not known.

Figures, means over seeds: how much of the true graph is found, arrows or lines alike (F1 of the skeleton); rows in the
wrong cell of a table of two columns, mean over all pairs (total variation, against rows that no training saw), in
points; and how much of a row's log-likelihood is gained over independent columns by a logistic regression of each
column on all others, trained on synthetic rows and asked about those rows (nats a column, times 100): whether
dependences are there that a learner can use.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from _paper import DATA, DELTA, SEED, Codes, Store, Table, header, table_of

import escudo
from escudo.causal import CausalGraph
from escudo.synthesis import synthesize

SIZES = {"Asia": {"rows": 10_000}, "Synthetic": {"rows": 1_000}, "Eedi": {}}
METHODS = ("joint", "one by one", "no graph", "true graph")
GENERATORS = ("autoregressive", "vae")
SEEDS = 3


def frame_of(table: Table) -> pl.DataFrame:
    """Return the rows to learn from, as a frame."""
    return pl.DataFrame({name: table.codes[:, place].astype(str) for place, name in enumerate(table.names)})


def fitted(table: Table, generator: str, method: str, seed: int) -> tuple[Codes, CausalGraph | None]:
    """Return synthetic rows, and the graph that was found; None where none was looked for."""
    private = escudo.PrivateTable(frame_of(table), table.schema)
    how: dict[str, Any] = {"generator": generator, "delta": DELTA, "seed": seed}
    found: CausalGraph | None = None
    if method == "joint":
        model = synthesize(private, None, epsilon=table.epsilon, discover="joint", **how)
        found = model.graph
    elif method == "one by one":
        half = {"epsilon": table.epsilon / 2, "delta": DELTA / 2}
        found = escudo.discover(private, **half, seed=seed).graph
        model = synthesize(private, found, **{**how, **half})
    else:
        model = synthesize(private, table.graph if method == "true graph" else None, epsilon=table.epsilon, **how)
    return model.codes(10_000, seed=seed), found


def apart(made: Codes, tested: Codes) -> float:
    """Return the mean total variation over pairs of columns of two levels, in points."""
    both = [np.stack([1 - rows, rows], axis=2).astype(np.float64) for rows in (made, tested)]
    tables = [np.einsum("nia,njb->ijab", one, one, optimize=True) / len(one) for one in both]
    upper = np.triu_indices(made.shape[1], 1)
    return float(50 * np.abs(tables[0] - tables[1])[upper].sum(axis=(1, 2)).mean())


def gained(made: Codes, tested: Codes) -> float:
    """Return what logistic regressions on synthetic rows gain on real ones over shares alone, in nats times 100."""
    from sklearn.linear_model import LogisticRegression

    total = 0.0
    for column in range(made.shape[1]):
        others = np.delete(np.arange(made.shape[1]), column)
        share = np.clip(made[:, column].mean(), 1e-3, 1 - 1e-3)
        alone = np.where(tested[:, column] == 1, np.log(share), np.log(1 - share)).mean()
        if len(np.unique(made[:, column])) == 2:
            learnt = LogisticRegression(C=1.0, max_iter=200).fit(made[:, others], made[:, column])
            chance = np.clip(learnt.predict_proba(tested[:, others])[:, 1], 1e-4, 1 - 1e-4)
            total += np.where(tested[:, column] == 1, np.log(chance), np.log(1 - chance)).mean() - alone
    return float(100 * total / made.shape[1])


def measured(table: Table, generator: str, method: str) -> dict[str, Any]:
    """Return the figures of one method, seed by seed."""
    truth = None if table.name == "Eedi" else {frozenset(edge) for edge in table.edges}
    figures: dict[str, list[float]] = {"two_way": [], "gain": [], "edges": [], "f1": []}
    for seed in range(SEEDS):
        made, found = fitted(table, generator, method, SEED + seed)
        figures["two_way"].append(round(apart(made, table.tested), 3))
        figures["gain"].append(round(gained(made, table.tested), 3))
        if found is not None:
            pairs = {frozenset(pair) for pair in found.adjacencies}
            figures["edges"].append(len(pairs))
            if truth is not None:
                figures["f1"].append(round(2 * len(pairs & truth) / (len(pairs) + len(truth)), 3))
    return {**figures, "epsilon": table.epsilon, "rows": len(table.codes), "data": table.data}


def page(parts: dict[str, Any]) -> str:
    """Return the page of results."""
    lines = header("Graph and generator together, or one after the other", "joint", parts)
    lines += [(__doc__ or "").split("\n\n", 1)[1].strip(), ""]
    lines += [
        "| table | generator | method | ε | edges | skeleton F1 | two-way, points off | gain |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    order = [f"{name}/{generator}/{method}" for name in SIZES for generator in GENERATORS for method in METHODS]
    for key in order:
        if key not in parts:
            continue
        part, (name, generator, method) = parts[key], key.split("/")
        shown = [
            _shown(part[figure], digits) for figure, digits in (("edges", 0), ("f1", 2), ("two_way", 2), ("gain", 1))
        ]
        lines.append(f"| {name} | {generator} | {method} | {part['epsilon']} | {' | '.join(shown)} |")
    data = dict.fromkeys(f"{key.split('/')[0]}: {part['data']}" for key, part in parts.items())
    lines += ["", f"Mean of {SEEDS} seeds, the smallest and the largest beside it. Data: {'; '.join(data)}.", ""]
    return "\n".join([*lines, "## What it shows", "", *_verdict(parts), ""])


def _verdict(parts: dict[str, Any]) -> list[str]:
    """Say how often joint learning was ahead, in figures that are measured."""
    told = []
    for figure, what, better in (("f1", "the graph", 1), ("two_way", "pairs of columns", -1), ("gain", "learners", 1)):
        for other in ("one by one", "no graph"):
            pairs = [
                (part[figure], parts[key.replace("/joint", f"/{other}")][figure])
                for key, part in parts.items()
                if key.endswith("/joint") and key.replace("/joint", f"/{other}") in parts
            ]
            known = [(np.mean(own), np.mean(theirs)) for own, theirs in pairs if own and theirs]
            if known:
                ahead = sum(better * (own - theirs) > 0 for own, theirs in known)
                told.append(f"{what}, against *{other}*: ahead in {ahead} of {len(known)}")
    return [
        f"Joint learning: {'; '.join(told)}. It finds edges under DP-SGD, and both halves of a model come out of one "
        "budget; but at these sizes gradients are a costly way to find a graph: noisy tables of counts, which "
        "`escudo.discover` asks for, say which pairs go together at a fraction of the noise, and what is left of the "
        "budget fits a better model along them. z of the VAE, which starts from nothing in the second half, adds noise."
    ]


def _shown(figures: list[float], digits: int) -> str:
    if not figures:
        return "–"
    return f"{np.mean(figures):.{digits}f} ({min(figures):.{digits}f} to {max(figures):.{digits}f})"


def main() -> None:
    """Measure what is missing, and write the page."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--data", type=Path, default=DATA, help="folder of the real data")
    options.add_argument("--only", nargs="*", default=[], help="parts whose name holds one of these words")
    options.add_argument("--again", action="store_true", help="forget what was measured")
    given = options.parse_args()
    store = Store("joint", again=given.again)
    for name, size in SIZES.items():
        table = None
        for generator in GENERATORS:
            for method in METHODS if name != "Eedi" else METHODS[:3]:
                key = f"{name}/{generator}/{method}"
                if key in store.parts or (given.only and not any(word in key for word in given.only)):
                    continue
                table = table_of(name, given.data, **size) if table is None else table
                began = time.process_time()
                store.put(key, measured(table, generator, method), seconds=time.process_time() - began)
                print(f"{key}: {store.parts[key]['two_way']} {store.parts[key]['f1']}", flush=True)
    store.path.with_suffix(".md").write_text(page(store.parts), encoding="utf-8")


if __name__ == "__main__":
    main()
