"""The README's table of neighbours, from the results' JSON files.

Used by ``summary.py``, which writes it; a test compares the two. No figure is typed in by hand, but for how long MST
would take on the wide table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

ROOT = Path(__file__).parents[1]
HEAD = ("| question | escudo | neighbours | where |", "|---|---|---|---|")


def headlines() -> list[str]:
    """Return the lines of the table."""
    tables = [_table("nltcs", "NLTCS"), _table("adult", "Adult")]
    synthesis = [_asia(), *tables, _interventions(), _wide()]
    causes = [_pairs(), _one_pair(), _graphs(), _effects()]
    return [*HEAD, *synthesis, *causes, _shadows(), _museum(), _sniper()]


def _asia() -> str:
    result = _read("benchmarks", "release")
    ours, runs = result["accuracy"]["escudo"]["true graph"], result["accuracy"]["peers"]
    seconds = median(run["cpu_seconds"] for run in result["time"])
    peers = []
    for name in ("AIM", "MST", "PrivBayes"):
        mine = [run for run in runs if run["method"].startswith(name) and "error" in run]
        errors = [100 * fmean(run["error"] for run in mine if run["epsilon"] == epsilon) for epsilon in (1.0, 0.1)]
        spent = fmean(run["cpu_seconds"] for run in mine if run["epsilon"] == 1.0)
        peers.append(f"{name} {_slashed(errors, '.2f')} %, {spent:.0f} CPU s")
    figures = " / ".join(f"{100 * fmean(ours[epsilon]):.2f} %" for epsilon in ("1.0", "0.1"))
    question = "synthetic Asia, graph known, error of three-way tables at ε = 1 / 0.1"
    return _row(question, f"**{figures}**, {seconds:.1f} CPU s", "; ".join(peers), "release")


def _table(name: str, title: str) -> str:
    result = _read("benchmarks", "tables")

    def cells(method: str, key: str) -> list[float]:
        runs = [run for run in result["runs"] if (run["table"], run["method"]) == (name, method)]
        every = [[r[key] for r in runs if r["epsilon"] == e and r.get(key) is not None] for e in (0.1, 1.0, 3.0)]
        return [fmean(some) for some in every if some]

    def shown(method: str) -> str:
        return _slashed([100 * value for value in cells(method, "tv2")], ".2g")

    aim = "aim" if len(cells("aim", "tv2")) == 3 else "aim-fast"
    spent = {method: cells(method, "cpu_seconds") for method in ("escudo-repair", aim)}
    ours = f"**{shown('escudo-repair')} %**, {_range(spent['escudo-repair'])} CPU s"
    title_of_aim = result["methods"][aim].partition(":")[0]
    peers = f"{title_of_aim} {shown(aim)} %, {_range(spent[aim])} CPU s; MST {shown('mst')} %"
    return _row(f"synthetic {title}, pairs at ε = 0.1 / 1 / 3", ours, peers, "tables")


def _interventions() -> str:
    networks = _read("benchmarks", "release")["interventions"]
    figures = _slashed([100 * _mean(one["escudo"]["1.0"]) for one in networks.values()], ".2f")
    question = f"interventions on {', '.join(networks)} at ε = 1"
    return _row(question, f"**{figures} %** off the truth", "none answers them", "release")


def _wide() -> str:
    result = _read("benchmarks", "wide")
    runs = [run for run in result["runs"] if run["method"] == "max" and run["epsilon"] == 1]
    seconds, memory = fmean(run["cpu_seconds"] for run in runs), max(run["peak_mb"] for run in runs)
    question = f"{result['columns']} columns, {result['arrows']} arrows, ε = 1"
    peer = "MST: not run, about 20 CPU hours by its time per pair"
    return _row(question, f"**{seconds:.0f} CPU s**, {memory:.0f} MB", peer, "wide")


def _pairs() -> str:
    found = _read("experiments", "pairs")["found"]["real pairs, N ≥ 500"]["1"]["committee"]
    right, among, answered = (100 * found[key] for key in ("accuracy", "accuracy_if_answered", "answered"))
    pairs = _read("experiments", "private_causal_inference")["table_2"].values()
    most = max(fmean(pair[f"paper {score} 1"][0] for pair in pairs) for score in ("spearman", "kendall", "hsic", "iqr"))
    ours = f"**{right:.0f} %** right, {among:.0f} % of the {answered:.0f} % it answers"
    peer = f"the published method on pairs like these: at most {100 * most:.0f} %"
    return _row("direction of real pairs at ε = 1", ours, peer, "pairs", "private_causal_inference")


def _one_pair() -> str:
    result = _read("benchmarks", "direction")
    rows = max(run["rows"] for run in result["peer"])
    ours, theirs = (next(r["wall"] for r in result[key] if r["rows"] == rows) for key in ("small", "peer"))
    return _row(
        f"one pair, {rows:,} rows", f"**{1e3 * ours:.0f} ms**", f"causal-learn's ANM {theirs:.0f} s", "direction"
    )


def _graphs() -> str:
    runs = _read("benchmarks", "discovery")["networks"]
    five = ("cancer", "earthquake", "survey", "asia", "sachs")

    def shown(method: str) -> str:
        chosen = [run for run in runs if run["method"] == method and run["network"] in five]
        return _slashed([fmean(r["f1"] for r in chosen if r["epsilon"] == e) for e in (0.1, 1.0)], ".2f")

    peers = f"Priv-PC repaired {shown('Priv-PC, repaired')}; PrivBayes' tree {shown('PrivBayes tree')}"
    question = "graphs of five networks, 100,000 rows, F1 at ε = 0.1 / 1"
    return _row(question, f"**{shown('escudo')}**", peers, "discovery")


def _effects() -> str:
    rows = _read("benchmarks", "effect_of")["rows"]
    least = 100 * min(row["coverage"] for row in rows)
    others = [100 * row["coverage_without_noise"] for row in rows if row["coverage_without_noise"] is not None]
    peer = f"forgetting the noise: {min(others):.0f} to {max(others):.0f} %"
    return _row("effects: 95 % intervals that hold the truth", f"**≥ {least:.1f} %**", peer, "effect_of")


def _shadows() -> str:
    result = _read("benchmarks", "shadows_device")
    models = result["models"].values()
    most = max(model["model_steps_per_second"] for model in models)
    seconds = _range([model["training_seconds"] for model in models])
    ours = f"**{round(most, -3):,.0f}** model-steps/s; 1,000 shadow networks in {seconds} s"
    peer = f"Opacus on the same card: {result['opacus']['hooks']['steps_per_second']:.0f} steps/s"
    return _row("membership games: networks trained at once on one H200", ours, peer, "shadows_device")


def _museum() -> str:
    visits = _read("benchmarks", "audit_museum")["visits"]
    every = [finding for visit in visits for finding in visit["findings"]]
    broken, twins = ([f["caught"] for f in every if f["broken"] is is_broken] for is_broken in (True, False))
    question = f"{len(broken) // len(visits)} broken mechanisms, {len(visits)} visits: caught, correct twins accused"
    ours = f"**{sum(broken)} of {len(broken)}, {sum(twins)} of {len(twins)}**"
    return _row(question, ours, "", "audit_museum")


def _sniper() -> str:
    rows = _read("benchmarks", "audit_sniper")["rows"]
    ahead = sum(median(one["clopper_pearson"] for one in row["found"].values()) >= row["sniper"] for row in rows)
    question = f"ε found in {len(rows)} mechanisms by 10 million samples, median at or above DP-Sniper's"
    return _row(question, f"**{ahead} of {len(rows)}**", "DP-Sniper: over 230 million samples", "audit_sniper")


def with_headlines(readme: str) -> str:
    """Return the README with today's table in place of the one it has."""
    before, _, rest = readme.partition(HEAD[0] + "\n")
    kept = rest.splitlines(keepends=True)
    while kept and kept[0].startswith("|"):
        kept.pop(0)
    return before + "\n".join(headlines()) + "\n" + "".join(kept)


def _row(question: str, ours: str, theirs: str, *pages: str) -> str:
    links = [f"[{page}]({next(p for p in _places(page) if (ROOT / p).exists())})" for page in pages]
    return f"| {question} | {ours} | {theirs} | {', '.join(links)} |".replace("|  |", "| |")


def _places(page: str) -> list[str]:
    return [f"{folder}/results/{page}.md" for folder in ("benchmarks", "experiments")]


def _read(folder: str, name: str) -> Any:
    return json.loads((ROOT / folder / "results" / f"{name}.json").read_text(encoding="utf-8"))


def _mean(value: Any) -> float:
    return fmean(value) if isinstance(value, list) else float(value)


def _slashed(values: Sequence[float], form: str) -> str:
    return " / ".join(format(value, form) for value in values)


def _range(values: Sequence[float]) -> str:
    low, high = (f"{value:.0f}" for value in (min(values), max(values)))
    return low if low == high else f"{low}–{high}"
