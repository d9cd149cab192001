"""The paper's VAEs as printed: clip searched as the paper did, and Figure 4 at its 80,000 rows.

*Causally Constrained Data Synthesis*, sections 4.2 and 5.2.2, Appendix C. Networks are those of
``generator="vae", architecture="columns"|"pain"|"eedi"|"plain"``. Trained by ``_printed.py`` where there is an
accelerator (its text has the three commands); looked at here.

**Search.** The paper searched clip norm and noise on a grid, on the private rows, which its ε does not pay for, and
prints neither. At its ε, samples and epochs the noise follows from the clip norm, so the grid is one of clip norms: 0.1
to 30. Figures: points of accuracy lost by learners on synthetic rows against real ones (logistic regression, random
forest and nearest neighbours on 6 columns (Asia: 8), asked about rows that no training saw), by clip norm.

**Figure 4** at 80,000 rows of Asia: true graph, asia → smoke added, tub → either removed; the causal VAE with ε = 2.36
and without. *Attack*: the person furthest from their neighbours is in the table or another one, all else fixed; a
logistic regression, a random forest and a network see how many of 20,000 synthetic rows each cell, each pair and each
column has, learn from half of the fits and are asked about the other half. *Utility*: accuracy of learners as above.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from _paper import DATA, DELTA, FOLDERS, RESULTS, SEED, Codes, Store, Table, header, table_of

from escudo.privacy import Budget, RepeatedEvent, SampledGaussianEvent, calibrate
from escudo.synthesis.neural._network import Network, printed

CLIPS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
FITS = 3
COPIES = 192
LARGE = 80_000
SEARCHED = {"Asia": "columns", "Synthetic": "columns", "Pain1000": "pain", "Eedi": "eedi"}
GRAPHS = {"true": "true graph", "added": "asia → smoke added", "removed": "tub → either removed"}


def form_of(network: Network) -> dict[str, Any]:
    """Return what ``_printed.py`` makes the network from."""
    return {
        "columns": len(network.columns.specs),
        "units": [[list(unit.columns), list(unit.parents)] for unit in network.units],
        "hidden": list(network.hidden),
        "encoded": None if network.encoded is None else list(network.encoded),
        "reached": None if network.reached is None else list(network.reached),
    }


def noise_of(table: Table, rows: int) -> tuple[float, int]:
    """Return the noise multiplier that the paper's ε asks for, and how many steps there are."""
    steps = table.epochs * rows // table.batch

    def events(noise: float) -> RepeatedEvent:
        step = SampledGaussianEvent(
            noise_multiplier=noise, sampling_probability=table.batch / rows, relation="add_remove"
        )
        return RepeatedEvent(event=step, count=steps, relation="add_remove")

    return calibrate(events, Budget(table.epsilon, DELTA)), steps


def outlier(codes: Codes) -> int:
    """Return the row of the rarest combination of levels, of which the most unusual."""
    cells, number, counts = np.unique(codes, axis=0, return_inverse=True, return_counts=True)
    shares = codes.mean(axis=0)
    surprise = -(np.log(np.where(cells == 1, shares, 1 - shares) + 1e-9)).sum(axis=1)
    rarest = np.lexsort((-surprise, counts))[0]
    return int(np.flatnonzero(number.ravel() == rarest)[0])


def prepare(file: Path, data: Path) -> None:
    """Write what is trained elsewhere."""
    kept: dict[str, Any] = {}
    jobs = []
    for name, architecture in SEARCHED.items():
        table = table_of(name, data)
        noise, steps = noise_of(table, len(table.codes))
        models = {
            "causal": form_of(printed(table.schema, table.graph, architecture, {"latent": 10})[0]),
            "plain": form_of(printed(table.schema, None, "plain", {"latent": 10})[0]),
        }
        clips = [clip for clip in (*CLIPS, math.inf) for _ in range(FITS)]
        job = {"name": f"search/{name}", "table": name, "steps": steps, "batch": table.batch, "models": models}
        jobs.append(
            {**job, "clips": clips, "noises": [noise] * len(clips), "size": len(table.codes), "seed": SEED % 2**31}
        )
        kept[f"{name}/rows"] = np.concatenate([table.codes, table.codes[:1]]).astype(np.uint8)
        kept[f"search/{name}/worlds"] = np.zeros(len(clips), np.int32)
    large = table_of("Asia", data, rows=LARGE)
    noise, steps = noise_of(large, LARGE)
    codes = large.codes.copy()
    target = outlier(codes)
    codes[[0, target]] = codes[[target, 0]]
    kept["Asia80000/rows"] = np.concatenate([codes, large.fresh[:1]]).astype(np.uint8)
    for place, name in enumerate(GRAPHS):
        network = printed(large.schema, _graph(large, name), "columns", {"latent": 10})[0]
        job = {
            "name": f"wrong/{name}",
            "table": "Asia80000",
            "steps": steps,
            "batch": 100,
            "models": {"causal": form_of(network)},
        }
        clips = [1.0] * COPIES + [math.inf] * COPIES
        jobs.append(
            {**job, "clips": clips, "noises": [noise] * 2 * COPIES, "size": 20_000, "seed": SEED % 2**31 + 100 + place}
        )
        kept[f"wrong/{name}/worlds"] = np.random.default_rng([SEED, place]).integers(0, 2, 2 * COPIES).astype(np.int32)
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, jobs=json.dumps(jobs), **kept)
    print(f"Wrote {file}: {file.stat().st_size / 1e6:.1f} MB")


def _graph(table: Table, name: str) -> Any:
    from escudo.causal import CausalGraph

    edges = {
        "true": table.edges,
        "added": (*table.edges, ("asia", "smoke")),
        "removed": tuple(edge for edge in table.edges if edge != ("tub", "either")),
    }[name]
    return CausalGraph.from_edges(edges, nodes=table.names)


def learners() -> list[Any]:
    """Return three of the paper's five learners, those that are quick."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    return [
        LogisticRegression(max_iter=300),
        RandomForestClassifier(30, random_state=0, min_samples_leaf=2),
        KNeighborsClassifier(),
    ]


def accuracy(made: Codes, tested: Codes, targets: np.ndarray) -> float:
    """Return how often learners are right about real rows that saw these rows, mean over columns and learners, in %."""
    right = []
    for target in targets:
        others = np.delete(np.arange(made.shape[1]), target)
        if len(np.unique(made[:, target])) < 2:
            right += [float((tested[:, target] == made[0, target]).mean())] * 3
            continue
        for learner in learners():
            guess = learner.fit(made[:, others], made[:, target]).predict(tested[:, others])
            right.append(float((guess == tested[:, target]).mean()))
    return 100 * float(np.mean(right))


def searched(name: str, data: Path, trained: Path) -> dict[str, Any]:
    """Return points lost by clip norm, for the causal and the plain network."""
    table = table_of(name, data)
    rng = np.random.default_rng([SEED, 9])
    targets = rng.permutation(len(table.names))[: 8 if name == "Asia" else 6]
    tested = table.tested[:500]
    real = accuracy(table.codes, tested, targets)
    found = np.load(trained / f"search-{name}.npz")
    facts, lost = json.loads(str(found["facts"])), {}
    for model in ("causal", "plain"):
        rows = np.unpackbits(found[f"{model}/rows"], axis=2)[:, :, : len(table.names)]
        losses = [round(real - accuracy(one, tested, targets), 3) for one in rows]
        by_clip = {
            f"{clip:g}": losses[place * FITS : (place + 1) * FITS] for place, clip in enumerate((*CLIPS, math.inf))
        }
        lost[model] = by_clip
    commonest = float(100 * np.mean([max(share, 1 - share) for share in tested[:, targets].mean(axis=0)]))
    noise, steps = noise_of(table, len(table.codes))
    told = {"epsilon": table.epsilon, "noise": round(noise, 4), "steps": steps, "real": real, "commonest": commonest}
    return {**told, "lost": lost, "data": table.data, "trained_on": facts}


def wrong(name: str, data: Path, trained: Path) -> dict[str, Any]:
    """Return what attacks and learners find in the fits of one graph at 80,000 rows."""
    from scipy.stats import binomtest
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    found = np.load(trained / f"wrong-{name}.npz")
    worlds = np.random.default_rng([SEED, list(GRAPHS).index(name)]).integers(0, 2, 2 * COPIES)
    cells = (np.arange(256)[:, None] >> np.arange(8)) & 1  # level of each column in each cell
    pairs = np.stack([cells[:, i] * cells[:, j] for i in range(8) for j in range(i)], axis=1)
    table = table_of("Asia", data, rows=LARGE)
    result: dict[str, Any] = {"trained_on": json.loads(str(found["facts"])), "rows": LARGE, "copies": COPIES}
    for place, model in enumerate(("vae, DP", "vae")):
        counts = found["causal/counts"][place * COPIES : (place + 1) * COPIES].astype(np.float64)
        coin = worlds[place * COPIES : (place + 1) * COPIES]
        features = {"cells": counts, "pairs": counts @ pairs, "columns": counts @ cells}
        half = COPIES // 2
        attacks = {}
        for label, seen in features.items():
            judges = {
                "logistic": make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=500)),
                "forest": RandomForestClassifier(200, random_state=0),
                "network": make_pipeline(
                    StandardScaler(), MLPClassifier((64, 32), alpha=0.1, max_iter=200, random_state=0)
                ),
            }
            for judge, learner in judges.items():
                right = int((learner.fit(seen[:half], coin[:half]).predict(seen[half:]) == coin[half:]).sum())
                bounds = binomtest(right, COPIES - half).proportion_ci()
                attacks[f"{label}, {judge}"] = {
                    "accuracy": right / (COPIES - half),
                    "interval": [round(float(bounds.low), 4), round(float(bounds.high), 4)],
                }
        rng = np.random.default_rng(SEED)
        scores, effects = [], []
        for one in counts[:8]:
            drawn = cells[rng.choice(256, 2000, p=one / one.sum())]
            scores.append(round(accuracy(drawn, table.tested[:1000], np.arange(8)), 3))
            tub, either = table.names.index("tub"), table.names.index("either")
            with_tub = one[cells[:, tub] == 1]
            share = [
                float((part * cells[where, either]).sum() / max(part.sum(), 1))
                for part, where in ((with_tub, cells[:, tub] == 1), (one[cells[:, tub] == 0], cells[:, tub] == 0))
            ]
            effects.append(round(share[0] - share[1], 4))
        result[model] = {"attacks": attacks, "accuracy": scores, "effect": effects}
    result["real"] = accuracy(table.codes[:2000], table.tested[:1000], np.arange(8))
    return result


def _interval(values: list[float], other: list[float] | None = None) -> str:
    from scipy.stats import t

    if other is None:
        half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
        return f"{np.mean(values):.1f} ± {half:.1f}"
    gap = np.mean(values) - np.mean(other)
    spread = math.sqrt(np.var(values, ddof=1) / len(values) + np.var(other, ddof=1) / len(other))
    half = t.ppf(0.975, len(values) + len(other) - 2) * spread
    return f"{gap:+.2f} [{gap - half:+.2f}, {gap + half:+.2f}]"


def page(parts: dict[str, Any]) -> str:
    """Return the page of results."""
    lines = header("The paper's VAEs as printed", "printed_vaes", parts)
    lines += [(__doc__ or "").split("\n\n", 1)[1].strip(), "", "## Clip norm, searched", ""]
    heads = [f"clip {clip:g}" for clip in CLIPS]
    lines += [
        f"| table (real rows; commonest class) | ε | model | {' | '.join(heads)} | no DP |",
        "|---|---:|---|" + "---:|" * (len(CLIPS) + 1),
    ]
    for key, part in parts.items():
        if key.startswith("search/"):
            for model, lost in part["lost"].items():
                name = f"{key.removeprefix('search/')} ({part['real']:.1f} %; {part['commonest']:.1f} %)"
                cells = [f"{np.mean(values):.1f}" for values in lost.values()]
                lines.append(f"| {name} | {part['epsilon']} | {model} | {' | '.join(cells)} |")
    lines += ["", f"Points of accuracy lost, mean of {FITS} fits.", ""]
    wrongs = {key.removeprefix("wrong/"): part for key, part in parts.items() if key.startswith("wrong/")}
    if wrongs:
        lines += [f"## Figure 4 at {LARGE:,} rows", ""]
        first = next(iter(wrongs.values()))
        lines += [f"Learners on 2,000 real rows: {first['real']:.1f} %.", ""]
        lines += [
            "| graph | model | accuracy | against the true graph | P(either given tub) less without (truth 0.945) "
            "| nine attacks, mean | best, 95 % |",
            "|---|---|---:|---:|---:|---:|---:|",
        ]
        for model in ("vae", "vae, DP"):
            for name, part in wrongs.items():
                own, hits = part[model], part[model]["attacks"].values()
                best = max(hits, key=lambda one: one["accuracy"])
                low, high = (100 * end for end in best["interval"])
                gap = "–" if name == "true" else _interval(own["accuracy"], wrongs["true"][model]["accuracy"])
                mean = 100 * np.mean([one["accuracy"] for one in hits])
                lines.append(
                    f"| {GRAPHS[name]} | {model} | {_interval(own['accuracy'])} | {gap} | {np.mean(own['effect']):.2f} "
                    f"| {mean:.1f} % | {100 * best['accuracy']:.1f} % [{low:.0f}, {high:.0f}] |"
                )
    return "\n".join([*lines, ""])


def main() -> None:
    """Prepare, or look at what was trained."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--data", type=Path, default=DATA, help="folder of the real data")
    options.add_argument("--prepare", type=Path, help="write what is to be trained, and stop")
    options.add_argument("--trained", type=Path, help="folder of what was trained")
    options.add_argument("--only", nargs="*", default=[], help="parts whose name holds one of these words")
    given = options.parse_args()
    if given.prepare is not None:
        prepare(given.prepare, given.data)
        return
    store = Store("printed_vaes")
    for name in (*(f"search/{one}" for one in SEARCHED), *(f"wrong/{one}" for one in GRAPHS)):
        known = name in store.parts or given.trained is None or (given.only and not any(w in name for w in given.only))
        if known or not (given.trained / f"{name.replace('/', '-')}.npz").exists():
            continue
        if name.startswith("search") and FOLDERS.get(one := name.removeprefix("search/")) is not None:
            assert (given.data / FOLDERS[one]).is_dir(), f"{given.data} has no {FOLDERS[one]}"
        began, (kind, which) = time.process_time(), name.split("/")
        found = (searched if kind == "search" else wrong)(which, given.data, given.trained)
        store.put(name, found, seconds=time.process_time() - began)
        print(name, f"{time.process_time() - began:.0f} s of processor time", flush=True)
    (RESULTS / "printed_vaes.md").write_text(page(store.parts), encoding="utf-8")


if __name__ == "__main__":
    main()
