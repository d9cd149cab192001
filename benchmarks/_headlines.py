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

from _ratios import Comparison, comparisons

ROOT = Path(__file__).parents[1]
Known = dict[tuple[str, str], Comparison]
HEAD = ("| question | escudo | neighbours | where |", "|---|---|---|---|")


def headlines() -> list[str]:
    """Return the lines of the table."""
    known = {(each.question, each.peer): each for each in comparisons()}
    synthesis = [_asia(known), _table(known, "NLTCS"), _table(known, "Adult"), _interventions(), _wide()]
    causes = [_pairs(), _one_pair(known), _graphs(known), _hidden(), _linked(), _effects()]
    return [*HEAD, *synthesis, *causes, _shadows(), _museum(), _sniper()]


def _asia(known: Known) -> str:
    def of(peer: str, told: str = "graph told") -> list[Comparison]:
        questions = [f"Asia, three-way error, {told}, ε = {epsilon}" for epsilon in ("1", "0.1")]
        return [known[question, peer] for question in questions if (question, peer) in known]

    spent = {peer: known["Asia, processor time", peer] for peer in ("AIM", "MST", "PrivBayes")}
    workload = {run.get("workload", "all pairs") for run in _read("release")["accuracy"]["peers"] if "error" in run}
    names = {"AIM": f"AIM (workload: {'all triples' if 'all triples' in workload else 'all pairs'})"}
    peers = [
        f"{names.get(peer, peer)} {_slashed([each.theirs for each in of(peer)], '.2f')} %, {cost.theirs:.0f} CPU s"
        for peer, cost in spent.items()
    ]
    own = _slashed([each.ours for each in of("AIM")], ".2f")
    ours = [f"n not told; told the graph **{own} %**, {spent['AIM'].ours:.1f} CPU s"]
    for told in ("graph discovered", "no graph"):
        if len(found := of("AIM", told)) == 2:
            ours.append(f"{told} {_slashed([each.ours for each in found], '.2f')} %")
    question = "synthetic Asia, error of three-way tables at ε = 1 / 0.1"
    return _row(question, "; ".join(ours), "; ".join(peers), "release")


def _table(known: Known, name: str) -> str:
    def of(peer: str, told: str = "no graph") -> list[Comparison]:
        questions = [f"{name}, pair error, {told}, n not told, ε = {epsilon}" for epsilon in ("0.1", "1", "3")]
        return [known[question, peer] for question in questions if (question, peer) in known]

    def spent(method: str) -> str:
        runs = [run for run in _read("tables")["runs"] if (run["table"], run["method"]) == (name.lower(), method)]
        by_epsilon = [[run["cpu_seconds"] for run in runs if run["epsilon"] == epsilon] for epsilon in (0.1, 1.0, 3.0)]
        return f"{_range([fmean(some) for some in by_epsilon])} CPU s"

    own = _slashed([each.ours for each in of("MST")], ".2g")
    ours = [f"n not told; no graph **{own} %**, {spent('escudo-none')}"]
    for told, shown in (("graph discovered", "graph discovered"), ("graph given", "told a hand-made graph")):
        if len(found := of("MST", told)) == 3:
            ours.append(f"{shown} {_slashed([each.ours for each in found], '.2g')} %")
    aim, mst = (_slashed([each.theirs for each in of(peer)], ".2g") for peer in ("AIM made faster", "MST"))
    peers = f"AIM made faster (workload: these pairs) {aim} %, {spent('aim-fast')}; MST {mst} %"
    return _row(f"synthetic {name}, pairs at ε = 0.1 / 1 / 3", "; ".join(ours), peers, "tables")


def _interventions() -> str:
    networks = _read("release")["interventions"]
    figures = _slashed([100 * fmean(one["escudo"]["1.0"]) for one in networks.values()], ".2f")
    question = f"interventions on {', '.join(networks)} at ε = 1, told the graph, n not told"
    return _row(question, f"**{figures} %** off the truth", "none answers them", "release")


def _wide() -> str:
    result = _read("wide")
    runs = [run for run in result["runs"] if run["method"] == "max" and run["epsilon"] == 1]
    seconds, memory = fmean(run["cpu_seconds"] for run in runs), max(run["peak_mb"] for run in runs)
    question = f"{result['columns']} columns, told n and {result['arrows']} arrows, without repair, ε = 1"
    peer = "MST: not run, about 20 CPU hours by its time per pair"
    return _row(question, f"**{seconds:.0f} CPU s**, {memory:.0f} MB", peer, "wide")


def _pairs() -> str:
    """Return what verdicts on simulated pairs are worth: on the real ones something was chosen."""
    found = _read("verdicts")["found"]
    none, unseen = found["without direction"], found["unseen"]
    cells = [[none[kind][rows][e] for kind in unseen] for rows, by in none["independent"].items() for e in by]
    most = [
        max(part for by in none[kind].values() for part in by.values()) for kind in ("linear Gaussian", "independent")
    ]
    most = [100 * part for part in (*most, max(map(fmean, cells)))]
    told = [by["1"] for by in found["simulated"].values() if by["1"]["answered"] >= 0.005]
    right, answered = ([100 * one[key] for one in told] for key in ("right", "answered"))
    question = "a direction where there is none: linear with normal noise / independent / common cause (mean of "
    question += f"{len(unseen)} kinds on which nothing was chosen), 100 to 100,000 rows"
    later = _read("unseen_verdicts")["found"]
    ours = f"verdicts in at most **{_slashed(most, '.1f')} %** of tables at any ε (the worst of these kinds "
    ours += f"{100 * max(map(max, cells)):.0f} %, the worst of {len(later)} that were written later "
    ours += f"{100 * max(part for rows in later.values() for by in rows.values() for part in by.values()):.0f} %); "
    ours += f"on other draws of {len(told)} simulated families that settings were chosen on, {min(right):.0f} to "
    ours += f"{max(right):.0f} % right of the {min(answered):.0f} to {max(answered):.0f} % answered at ε = 1; far "
    ours += "fewer are answered than was wanted"
    return _row(question, ours, "the published method always answers", "verdicts")


def _one_pair(known: Known) -> str:
    found = known["direction of one pair, 2,000 rows", "causal-learn ANM"]
    ours, theirs = f"**{found.ours:.0f} ms**", f"causal-learn's ANM {found.theirs / 1e3:.0f} s"
    return _row("one pair, 2,000 rows", ours, theirs, "direction")


def _graphs(known: Known) -> str:
    def of(peer: str) -> list[Comparison]:
        return [known[f"graphs of five networks, F1, ε = {epsilon}", peer] for epsilon in ("0.1", "1")]

    pc, tree = (_slashed([each.theirs for each in of(peer)], ".2f") for peer in ("Priv-PC, repaired", "PrivBayes tree"))
    ours = _slashed([each.ours for each in of("PrivBayes tree")], ".2f")
    question = "graphs of five networks, 100,000 rows, F1 at ε = 0.1 / 1"
    return _row(question, f"**{ours}**", f"Priv-PC repaired {pc}; PrivBayes' tree {tree}", "discovery")


def _hidden() -> str:
    runs = _read("hidden_unseen")["runs"]
    finished = {(run["network"], run["seed"]) for run in runs if run["epsilon"] is None}

    def of(epsilon: float | None) -> tuple[float, str]:
        some = [run for run in runs if run["epsilon"] == epsilon and (run["network"], run["seed"]) in finished]
        true, claimed = (sum(run[name] for run in some) for name in ("true_claims", "claims"))
        return fmean(run["f1"] for run in some), f"{true} of {claimed}"

    ours, theirs = of(1.0), of(None)
    question = "graphs with a fifth of the columns hidden, 100,000 rows, ε = 1: edges (F1); marks claimed that are true"
    tables = {(run["network"], run["seed"]) for run in runs}
    told = f"**{ours[0]:.2f}; {ours[1]}**, on the {len(finished)} of {len(tables)} tables that FCI finished"
    return _row(question, told, f"FCI without privacy {theirs[0]:.2f}; {theirs[1]}", "hidden_unseen")


def _linked() -> str:
    figures = {(one["release"], one["epsilon"]): one["figures"] for one in _read("linked")["clinic"]}
    ours = figures["linked", 1.0]
    flat = next(found for (release, _), found in figures.items() if release.startswith("flat"))
    question = "20,000 people with visits at ε = 1: transitions and visits a person (distance), do() off the truth"
    told = ", ".join(f"{ours[name][0]:.3f}" for name in ("trans", "n", "do"))
    return _row(
        question,
        f"**{told}**",
        f"one flat table of visits {flat['trans'][0]:.3f}, {flat['n'][0]:.2f}, cannot answer",
        "linked",
    )


def _effects() -> str:
    rows = _read("effect_of")["rows"]
    least = 100 * min(row["coverage"] for row in rows)
    others = [100 * row["coverage_without_noise"] for row in rows if row["coverage_without_noise"] is not None]
    peer = f"forgetting the noise: {min(others):.0f} to {max(others):.0f} %"
    return _row("effects: 95 % intervals that hold the truth", f"**≥ {least:.1f} %**", peer, "effect_of")


def _shadows() -> str:
    result = _read("shadows_device")
    models = result["models"].values()
    most = max(model["model_steps_per_second"] for model in models)
    seconds = _range([model["training_seconds"] for model in models])
    ours = f"**{round(most, -3):,.0f}** model-steps/s; 1,000 shadow networks in {seconds} s"
    peer = f"Opacus on the same card: {result['opacus']['hooks']['steps_per_second']:.0f} steps/s"
    return _row("membership games: networks trained at once on one H200", ours, peer, "shadows_device")


def _museum() -> str:
    visits = _read("audit_museum")["visits"]
    every = [finding for visit in visits for finding in visit["findings"]]
    broken, twins = ([f["caught"] for f in every if f["broken"] is is_broken] for is_broken in (True, False))
    question = f"{len(broken) // len(visits)} broken mechanisms, {len(visits)} visits: caught, correct twins accused"
    ours = f"**{sum(broken)} of {len(broken)}, {sum(twins)} of {len(twins)}**"
    return _row(question, ours, "", "audit_museum")


def _sniper() -> str:
    rows = _read("audit_sniper")["rows"]
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
    links = [f"[{page}]({_place(page).with_suffix('.md').relative_to(ROOT)})" for page in pages]
    return f"| {question} | {ours} | {theirs} | {', '.join(links)} |".replace("|  |", "| |")


def _place(page: str) -> Path:
    benchmark, experiment = (ROOT / folder / "results" / f"{page}.json" for folder in ("benchmarks", "experiments"))
    return benchmark if benchmark.exists() else experiment


def _read(page: str) -> Any:
    return json.loads(_place(page).read_text(encoding="utf-8"))


def _slashed(values: Sequence[float], form: str) -> str:
    return " / ".join(format(value, form) for value in values)


def _range(values: Sequence[float]) -> str:
    low, high = (f"{value:.0f}" for value in (min(values), max(values)))
    return low if low == high else f"{low}–{high}"
