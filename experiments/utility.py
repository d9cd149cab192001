"""Utility of synthetic rows: Tables 1 and 4 and Figure 1 of *Causally Constrained Data Synthesis*, with a control.

Run from the repository's root::

    python experiments/utility.py                 # every part that is not in the results yet
    python experiments/utility.py --only Asia     # parts whose name holds a word

``--data DIR`` holds ``neuropathic_pain`` and ``eedi``. Parts are written to ``experiments/results/utility.json`` as
they are done, and ``utility.md`` and ``utility.svg`` are made from them; ``--again`` forgets those there are, and
``--quick`` is a smoke run that writes nothing.

**Protocol** (:func:`escudo.evaluate`): 20 columns drawn at random, each predicted from all others by five learners that
are trained on the real rows or on synthetic ones, and tested on real rows that neither has seen. The loss is real minus
synthetic, in points; negative would mean that synthetic rows teach *more* than the rows they were made from. The paper
repeats five times, and so does ``--fits 5``; learners see at most 1,000 rows.

**Control.** Fresh rows from the true law, as many as the real ones: what a perfect generator would give. Eedi has no
known law; there the control is the real rows drawn with replacement.

**More rows than there are real ones** (``more``). A generator can be asked for any number of rows, and the paper does
not say how many it drew. Learners are given 1,000 real rows, or 10,000 synthetic ones of one fit; the control is 10,000
fresh rows of the truth, which no generator fitted to 1,000 rows can know.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _paper import DATA, DELTA, FOLDERS, MODELS, RESULTS, SEED, PaperVae, Store, Table, header, table_of, vae_of
from joblib import parallel_config

from escudo.attacks import victim_of
from escudo.attacks._victims import RowsWithRecord
from escudo.utility import LEARNERS, Prediction, Rows, evaluate

TABLES = ("Pain1000", "Pain5000", "Eedi", "Synthetic", "Asia")
TIMES = 10  # as many synthetic rows as real ones, in the parts "more"
MORE = {"Asia": 8, "Synthetic": 12, "Pain1000": 6}  # tables, and how many columns are predicted
MORE_METHODS = ("causal", "moments")
MOST_ROWS = 1000  # that learners see
FITS = 5  # of each model, as in the paper; fewer where there is no accelerator
TARGETS = 20
MODELS_FREE, MODELS_PRIVATE = ("causal", "plain"), ("causal, DP", "plain, DP")
EPSILONS = (0.5, 1.0, 2.36, 5.0, 10.0)
TITLES = {
    "causal, DP": "causal VAE, DP",
    "causal": "causal VAE",
    "plain, DP": "plain VAE, DP",
    "plain": "plain VAE",
    "moments": "`moments`, DP",
    "marginals": "`marginals`, DP",
    "vae": "escudo's `vae`, DP",
    "pgm": "Private-PGM, all pairs",
    "pgm, graph": "Private-PGM, told the graph",
    "fresh": "control: fresh rows of the truth",
    "redrawn": "control: real rows drawn with replacement",
}

# Table 1 (loss in points) and Table 4 (accuracy on the original data), in the order of LEARNERS.
PRINTED = {
    ("Pain1000", "plain, DP"): (9.56, 6.34, 2.48, 5.86, 2.03),
    ("Pain1000", "plain"): (5.42, 5.5, 1.31, 6.22, -0.924),
    ("Pain1000", "causal, DP"): (-1.84, 4.03, -1.27, 2.22, -4.64),
    ("Pain1000", "causal"): (-1.73, 1.56, -3.16, 2.11, -6.92),
    ("Pain5000", "plain, DP"): (4.09, 6.89, 6.8, 2.27, 5.22),
    ("Pain5000", "plain"): (3.53, 5.93, 5.68, 0.48, 4.07),
    ("Pain5000", "causal, DP"): (1.7, 2.11, 4.58, 0.62, -0.82),
    ("Pain5000", "causal"): (-0.64, 0.07, -0.24, -4.62, -5.13),
    ("Eedi", "plain, DP"): (6.83, 7.11, 6.82, 6.54, 5.36),
    ("Eedi", "plain"): (1.14, 3.86, 2.6, 5.27, 2.41),
    ("Eedi", "causal, DP"): (-4.04, -0.22, -3.49, 6.09, 5.87),
    ("Eedi", "causal"): (-6.83, -2.74, -6.13, -0.03, -1.96),
}
PRINTED_BASELINE = {
    "Eedi": {"plain": (86.93, 91.24, 88.53, 93.8, 88.22), "causal": (87.38, 91.46, 88.95, 93.44, 87.92)},
    "Pain1000": {"plain": (92.75, 94.42, 91.56, 94.19, 88.78), "causal": (92.69, 94.03, 91.81, 94.28, 89.5)},
    "Pain5000": {"plain": (95.37, 96.53, 97.47, 93.03, 92.14), "causal": (95.48, 96.5, 97.39, 92.74, 92.19)},
}


def made_by(table: Table, method: str, epsilon: float | None, fits: int, times: int = 1) -> list[Rows]:
    """Return synthetic tables as large as the real one, or some times as large, each from a fit of its own."""
    real = table.rows(table.codes)
    size = times * len(real)
    if method == "fresh":
        return [table.rows(table.fresh)]
    if method == "redrawn":
        return [table.rows(np.random.default_rng(SEED).choice(table.codes, len(real)))]
    if method in MODELS:
        victim: Any = vae_of(table, method)
        if epsilon is not None:
            victim = PaperVae(table, causal=MODELS[method][0], epsilon=epsilon)
    else:
        victim = victim_of(
            method,
            table.schema,
            table.graph,
            epsilon=table.epsilon if epsilon is None else epsilon,
            delta=DELTA,
            relation="add_remove",
            public_rows=len(real),
        )
    alone = RowsWithRecord(rest=real, record=None)
    if method not in (*MODELS, "vae"):
        return [victim.synthetic(alone, sets=1, size=size, seed=SEED + place)[0] for place in range(fits)]
    every = victim.fitted([(alone, SEED + place) for place in range(fits)], map)
    return [one.synthetic(sets=1, size=size)[0] for one in every]


def lost(found: Sequence[Prediction], runs: Sequence[int], learner: str | None = None) -> dict[str, float | None]:
    """Return what was lost on some synthetic tables, with 95 % intervals over targets and over fits."""
    kept = [one for one in found if learner in (None, one.learner)]
    real = {(one.target, one.learner): one for one in kept if one.trained_on == "real"}
    by_target: dict[str, list[float]] = {}
    by_fit: dict[int, list[float]] = {}
    balanced, ranked = [], []
    for one in kept:
        if one.trained_on == "synthetic" and one.run in runs:
            before = real[one.target, one.learner]
            by_target.setdefault(one.target, []).append(100 * (before.accuracy - one.accuracy))
            by_fit.setdefault(one.run, []).append(100 * (before.accuracy - one.accuracy))
            if before.balanced is not None and one.balanced is not None:
                balanced.append(100 * (before.balanced - one.balanced))
            if before.auc is not None and one.auc is not None:
                ranked.append(100 * (before.auc - one.auc))
    means = [float(np.mean(values)) for values in by_target.values()]
    half = _half(means)
    return {
        "loss": float(np.mean(means)),
        "low": float(np.mean(means)) - half,
        "high": float(np.mean(means)) + half,
        "half_over_fits": _half([float(np.mean(values)) for values in by_fit.values()]) if len(by_fit) > 1 else None,
        "balanced": float(np.mean(balanced)),
        "auc": float(np.mean(ranked)),
    }


def _half(values: Sequence[float]) -> float:
    """Return half the width of the 95 % interval of a mean, by Student's t."""
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))


def table_1(table: Table, fits: int) -> dict[str, Any]:
    """Compare all models on one table."""
    methods = ["fresh" if len(table.fresh) else "redrawn", *MODELS, "moments", "vae"]
    tables, runs = [], {}
    for method in methods:
        made = made_by(table, method, None, 1 if method in ("fresh", "redrawn") else fits)
        runs[method] = list(range(len(tables), len(tables) + len(made)))
        tables += made
    found = evaluate(
        table.rows(table.codes),
        table.rows(table.tested[:MOST_ROWS]),
        tables,
        table.schema,
        targets=min(TARGETS, len(table.names)),
        most_rows=MOST_ROWS,
        seed=SEED,
    )
    real = [one for one in found.predictions if one.trained_on == "real"]
    return {
        "rows": found.rows,
        "fits": fits,
        "baseline": 100 * float(np.mean([one.baseline for one in real])),
        "real": {
            learner: 100 * float(np.mean([one.accuracy for one in real if one.learner == learner]))
            for learner in LEARNERS
        },
        "real_balanced": 100 * float(np.mean([one.balanced for one in real])),
        "floor_two_way": found.floor.two_way,
        "methods": {
            method: {
                "all": lost(found.predictions, places),
                **{learner: lost(found.predictions, places, learner) for learner in LEARNERS},
                "two_way": float(np.mean([found.fidelity[place].two_way for place in places])),
            }
            for method, places in runs.items()
        },
    }


def more_rows(table: Table, fits: int) -> dict[str, Any]:
    """Compare the real rows with ten times as many synthetic ones, and with as many, of the same fits."""
    real, tables, runs = table.rows(table.codes), [], {}
    for method in ("fresh", *MORE_METHODS):
        if method == "fresh":  # the test rows after those that are tested on: they come from the same law
            large = [table.rows(table.tested[MOST_ROWS : MOST_ROWS + TIMES * len(real)])]
        else:
            large = made_by(table, method, None, fits, TIMES)
        small = [one.take(np.arange(len(one)) < len(real)) for one in large]
        for times, made in ((1, small), (TIMES, large)):
            runs[f"{method}/{times}"] = list(range(len(tables), len(tables) + len(made)))
            tables += made
    found = evaluate(
        real,
        table.rows(table.tested[:MOST_ROWS]),
        tables,
        table.schema,
        targets=MORE[table.name],
        most_rows=TIMES * len(real),
        seed=SEED,
    )
    learnt = [one for one in found.predictions if one.trained_on == "real"]
    return {
        "rows": len(real),
        "times": TIMES,
        "targets": MORE[table.name],
        "fits": fits,
        "baseline": 100 * float(np.mean([one.baseline for one in learnt])),
        "real": 100 * float(np.mean([one.accuracy for one in learnt])),
        "methods": {
            name: {
                "all": lost(found.predictions, places),
                **{learner: lost(found.predictions, places, learner) for learner in LEARNERS},
            }
            for name, places in runs.items()
        },
    }


def figure_1(table: Table, epsilon: float | None, fits: int, *, pgm: bool = False) -> dict[str, Any]:
    """Return mean accuracy of the five learners by method, at one ε; without one, of what needs none."""
    methods = ("fresh", "causal", "plain") if epsilon is None else ("causal, DP", "plain, DP", "marginals", "moments")
    methods = methods if not pgm else ("pgm", "pgm, graph")
    tables, runs = [], {}
    for method in methods:
        if pgm:
            assert epsilon is not None
            made = by_private_pgm(table, epsilon, fits, told="graph" in method)
        else:
            made = made_by(table, method, epsilon, fits)
        runs[method] = list(range(len(tables), len(tables) + len(made)))
        tables += made
    found = evaluate(
        table.rows(table.codes),
        table.rows(table.tested[:MOST_ROWS]),
        tables,
        table.schema,
        targets=len(table.names),
        most_rows=MOST_ROWS,
        seed=SEED,
    )
    real = [one for one in found.predictions if one.trained_on == "real"]

    def mean(places: Sequence[int], name: str) -> float:
        kept = [one for one in found.predictions if one.trained_on == "synthetic" and one.run in places]
        return 100 * float(np.mean([getattr(one, name) for one in kept]))

    return {
        "real": 100 * float(np.mean([one.accuracy for one in real])),
        "real_balanced": 100 * float(np.mean([one.balanced for one in real])),
        "baseline": 100 * float(np.mean([one.baseline for one in real])),
        "methods": {
            method: {
                "accuracy": mean(places, "accuracy"),
                "balanced": mean(places, "balanced"),
                "each": [mean([place], "accuracy") for place in places],
                "two_way": float(np.mean([found.fidelity[place].two_way for place in places])),
            }
            for method, places in runs.items()
        },
    }


def by_private_pgm(table: Table, epsilon: float, fits: int, *, told: bool) -> list[Rows]:
    """Return synthetic rows of Private-PGM (the library mbi), as many as there are: not an escudo generator.

    It measures all pairs of columns, or, where it is told the graph, each column with its parents; with Gaussian noise
    for ε at the same δ and relation, and fits one joint law to them by mirror descent.
    """
    import warnings

    from escudo.privacy import Budget, GaussianEvent, calibrate

    names, codes = table.names, table.codes
    scopes = [(a, b) for b in range(len(names)) for a in range(b)]
    if told:
        scopes = [(*parents, child) for child, parents in table.parents(table.edges).items()]
    length = math.sqrt(len(scopes))  # a row is counted once in each

    def event(noise: float) -> GaussianEvent:
        return GaussianEvent(l2_sensitivity=length, scale=length * noise, grid=0.0, relation="add_remove")

    scale = length * calibrate(event, Budget(epsilon, DELTA))
    made = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mbi import Domain, LinearMeasurement
        from mbi.estimation import MirrorDescent

        for fit in range(fits):
            rng = np.random.default_rng([SEED, fit, round(100 * epsilon), told])
            measured = []
            for scope in scopes:
                cells = codes[:, scope] @ (2 ** np.arange(len(scope))[::-1])
                counts = np.bincount(cells, minlength=2 ** len(scope)) + rng.normal(0, scale, 2 ** len(scope))
                measured.append(LinearMeasurement(counts, tuple(names[place] for place in scope), stddev=scale))
            joint = MirrorDescent().estimate(Domain(names, (2,) * len(names)), measured, iters=1000)
            law = np.maximum(np.asarray(joint.project(names).datavector(), np.float64), 0)
            drawn = rng.choice(len(law), len(codes), p=law / law.sum())
            bits = (drawn[:, None] >> np.arange(len(names))[::-1]) & 1
            made.append(table.rows(bits))
    return made


# -- the page


def _table_1(name: str, part: Mapping[str, Any]) -> list[str]:
    heads = " | ".join(LEARNERS)
    lines = [
        f"## {name}",
        "",
        f"{part['rows']:,} rows to learn from, {part['fits']} fits of each model. Answering the commonest class is "
        f"right in {part['baseline']:.1f} % of cases, the learners on real rows in "
        f"{np.mean(list(part['real'].values())):.1f} % (balanced: {part['real_balanced']:.1f} %). *Pairs*: share of "
        "rows in the wrong cell of a table of two columns; a second real sample has "
        f"{100 * part['floor_two_way']:.2f} %.",
        "",
        f"| Table 4: accuracy on real rows | {heads} |",
        "|---|" + "---:|" * 5,
        "| ours | " + " | ".join(f"{part['real'][learner]:.2f}" for learner in LEARNERS) + " |",
    ]
    for model, values in PRINTED_BASELINE.get(name, {}).items():
        lines.append(f"| paper, {model} | " + " | ".join(f"{value:.2f}" for value in values) + " |")
    lines += [
        "",
        f"| Table 1: points lost | {heads} | mean | 95 % over targets | ± over fits | balanced accuracy lost "
        "| AUC lost | pairs, % |",
        "|---|" + "---:|" * 11,
    ]
    for method, found in part["methods"].items():
        whole = found["all"]
        lines.append(
            f"| {TITLES[method]} | "
            + " | ".join(f"{found[learner]['loss']:+.2f}" for learner in LEARNERS)
            + f" | **{whole['loss']:+.2f}** | [{whole['low']:+.2f}, {whole['high']:+.2f}] "
            + ("| – " if whole["half_over_fits"] is None else f"| {whole['half_over_fits']:.2f} ")
            + f"| {whole['balanced']:+.1f} "
            f"| {whole['auc']:+.1f} | {100 * found['two_way']:.2f} |"
        )
        if (name, method) in PRINTED:
            theirs = PRINTED[name, method]
            lines.append(
                "| *paper* | "
                + " | ".join(f"*{value:+.2f}*" for value in theirs)
                + f" | *{np.mean(theirs):+.2f}* | | | | | |"
            )
    return [*lines, ""]


def _figure(parts: Mapping[str, Any]) -> dict[str, list[tuple[float, float]]]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for epsilon in EPSILONS:
        for key in (f"figure1/Asia/{epsilon:g}", f"pgm/Asia/{epsilon:g}"):
            for method, found in parts.get(key, {"methods": {}})["methods"].items():
                lines.setdefault(method, []).append((epsilon, found["accuracy"]))
    return lines


def picture(parts: Mapping[str, Any]) -> str:
    """Return Figure 1 as an SVG."""
    lines, flat = _figure(parts), parts.get("figure1/Asia/none")
    low, high = 65.0, 95.0
    left, top, width, height = 50, 20, 400, 240

    def x(epsilon: float) -> float:
        return left + width * math.log(epsilon / EPSILONS[0]) / math.log(EPSILONS[-1] / EPSILONS[0])

    def y(value: float) -> float:
        return top + height * (1 - (min(max(value, low), high) - low) / (high - low))

    body = [f'<path d="M{left} {top}v{height}h{width}" fill="none" stroke="#999"/>']
    for value in range(int(low), int(high) + 1, 5):
        body.append(f'<text x="{left - 6}" y="{y(value) + 4:.0f}" text-anchor="end">{value}</text>')
    for epsilon in EPSILONS:
        body.append(f'<text x="{x(epsilon):.0f}" y="{top + height + 16}" text-anchor="middle">{epsilon:g}</text>')
    body.append(f'<text x="{left + width / 2}" y="{top + height + 34}" text-anchor="middle">ε (δ = {DELTA:g})</text>')
    if flat:
        known = {"real rows": flat["real"], "commonest class": flat["baseline"]}
        for title, value in known.items():
            body.append(f'<path d="M{left} {y(value):.1f}h{width}" stroke="#bbb" stroke-dasharray="2 3"/>')
            body.append(f'<text x="{left + width + 6}" y="{y(value) + 4:.0f}" fill="#777">{title}</text>')
    colours = {"causal, DP": "#b5432f", "plain, DP": "#d99a2b", "marginals": "#2f6db5", "moments": "#2f9e6d"}
    colours |= {"pgm": "#6b4fa0", "pgm, graph": "#a06fa8"}
    for place, (method, points) in enumerate(lines.items()):
        path = "L".join(f"{x(epsilon):.1f} {y(value):.1f}" for epsilon, value in points)
        body.append(f'<path d="M{path}" fill="none" stroke="{colours[method]}" stroke-width="2"/>')
        title = TITLES[method].replace("`", "")
        body.append(f'<text x="{left + 230}" y="{top + 130 + 16 * place}" fill="{colours[method]}">{title}</text>')
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 570 310" font-family="sans-serif" font-size="12">'
        f'<rect width="570" height="310" fill="white"/>{"".join(body)}</svg>\n'
    )


def _more_page(parts: Mapping[str, Any]) -> list[str]:
    found = {name: part for name in MORE if (part := parts.get(f"more/{name}")) is not None}
    if not found:
        return []
    lines = [
        f"## {TIMES} times as many synthetic rows as real ones",
        "",
        "Points lost against learning from the 1,000 real rows, 95 % over targets in brackets; negative is a gain. The "
        "same fits, of which learners are given 1,000 or 10,000 rows. `moments` is told the graph and has the paper's "
        "ε; the control at 10,000 rows is 10,000 fresh rows of the truth, ten times the knowledge that a fit has.",
        "",
        "| table | columns predicted, fits | learners on real rows | synthetic rows | as many | 10 times as many |",
        "|---|---:|---:|---|---:|---:|",
    ]
    for name, part in found.items():
        for method in ("fresh", *MORE_METHODS):
            cells = [_said(part["methods"][f"{method}/{times}"]["all"], 2) for times in (1, TIMES)]
            fits = 1 if method == "fresh" else part["fits"]
            about = f"{part['targets']}, {fits} | {part['real']:.1f} %"
            lines.append(f"| {name} | {about} | {TITLES[method]} | {' | '.join(cells)} |")
    return [*lines, ""]


def _said(one: Mapping[str, float | None], digits: int = 1) -> str:
    spread = "" if one["half_over_fits"] is None else f" ± {one['half_over_fits']:.{digits}f} over fits"
    return f"{one['loss']:+.{digits}f} [{one['low']:+.{digits}f}, {one['high']:+.{digits}f}]{spread}"


def _figure_page(parts: Mapping[str, Any]) -> list[str]:
    lines, flat = _figure(parts), parts.get("figure1/Asia/none")
    if not lines:
        return []
    fits = sorted(
        {
            len(found["each"])
            for key, part in parts.items()
            if key.startswith(("figure1/", "pgm/"))
            for method, found in part["methods"].items()
            if method != "fresh"
        }
    )
    page = [
        "## Figure 1: accuracy against ε (Asia, 1,000 rows)",
        "",
        "The paper's figure has no printed numbers, and does not say which table it is about. Mean accuracy of five "
        f"learners over all eight columns, {' or '.join(map(str, fits))} fits of each. `marginals` and `moments` "
        "follow the true graph. Private-PGM, which the paper compares with, is its authors' library (mbi) on noisy "
        "tables of all pairs of columns, without the graph, or of each column with its parents.",
        "",
        "![Accuracy against ε](utility.svg)",
        "",
        "| | " + " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS) + " | no noise |",
        "|---|" + "---:|" * (len(EPSILONS) + 1),
    ]
    for method, points in lines.items():
        known = dict(points)
        bare = (flat or {"methods": {}})["methods"].get(method.removesuffix(", DP"))
        page.append(
            f"| {TITLES[method]} | "
            + " | ".join(f"{known[epsilon]:.1f}" if epsilon in known else "–" for epsilon in EPSILONS)
            + " | "
            + (f"{bare['accuracy']:.1f}" if bare else "–")
            + " |"
        )
    if flat:
        control = flat["methods"]["fresh"]["accuracy"]
        page += [
            "",
            f"Real rows: {flat['real']:.1f} %; fresh rows of the truth: {control:.1f} %; the commonest class: "
            f"{flat['baseline']:.1f} %.",
        ]
    return [*page, ""]


def _verdict_of(name: str, part: Mapping[str, Any]) -> list[str]:
    """Say where the paper's claims hold on one table."""
    loss: dict[str, Mapping[str, float | None]] = {method: found["all"] for method, found in part["methods"].items()}
    real, floor = float(np.mean(list(part["real"].values()))), part["baseline"]
    left = {model: real - loss[model]["loss"] for model in MODELS_PRIVATE}
    at_floor = ""
    if max(left.values()) < floor + 0.5:  # nothing that accuracy could tell apart is left
        at_floor = (
            f" **A floor effect**: with DP learners are right in {left['causal, DP']:.1f} and {left['plain, DP']:.1f} "
            f"% of cases, always answering the commonest class in {floor:.1f} %: both models have lost what accuracy "
            "could show, so that they are equal says nothing about the paper's claim (of AUC they lose "
            f"{loss['causal, DP']['auc']:.1f} and {loss['plain, DP']['auc']:.1f} points)."
        )

    def said(method: str) -> str:
        return _said(loss[method])

    def apart(models: tuple[str, str]) -> str:
        causal, plain = (loss[model] for model in models)
        gap = plain["loss"] - causal["loss"]
        if causal["half_over_fits"] is None or abs(gap) <= math.hypot(
            causal["half_over_fits"], plain["half_over_fits"]
        ):
            return "no difference over fits"
        return f"the {'causal' if gap > 0 else 'plain'} one better by {abs(gap):.1f}"

    control = "fresh" if "fresh" in loss else "redrawn"
    theirs = {model: np.mean(PRINTED[name, model]) for model in MODELS if (name, model) in PRINTED}
    claimed = (
        f"The paper's causal VAE without DP gains {-theirs['causal']:.1f} points on average (up to "
        f"{-min(PRINTED[name, 'causal']):.1f}). Here it loses"
        if theirs
        else "The causal VAE without DP loses"
    )
    order = (
        f" The paper: {theirs['causal']:+.1f} against {theirs['plain']:+.1f}, and {theirs['causal, DP']:+.1f} against "
        f"{theirs['plain, DP']:+.1f}."
        if theirs
        else ""
    )
    return [
        f"* **{name}: synthetic rows that teach more than real ones?** {claimed} {said('causal')}; "
        + ("fresh rows of the truth itself lose" if control == "fresh" else "the real rows drawn with replacement lose")
        + f" {said(control)}.",
        f"* **{name}: causal against plain.** Without DP {said('causal')} against {said('plain')}, "
        f"{apart(MODELS_FREE)}; with DP {said('causal, DP')} against {said('plain, DP')} points lost, "
        f"{apart(MODELS_PRIVATE)}.{at_floor}{order}",
        f"* **{name}: what the graph is worth when it is used well.** `moments` with the same ε and the same graph "
        f"loses {said('moments')} points.",
    ]


def verdict(parts: Mapping[str, Any]) -> list[str]:
    """Say where the paper's claims hold, in figures that are measured."""
    lines = []
    for name in TABLES:
        part = parts.get(f"table1/{name}")
        if part is not None:
            lines += _verdict_of(name, part)
    curves = {method: dict(points) for method, points in _figure(parts).items()}
    if curves:
        at = sorted(curves["causal, DP"])
        better = sum(curves["causal, DP"][e] > curves["plain, DP"][e] for e in at)
        beaten = sum(curves["marginals"][e] > curves["causal, DP"][e] for e in at)
        pgm = sum(curves.get("pgm", {}).get(e, 0.0) > curves["causal, DP"][e] for e in at)
        lines.append(
            f"* **Figure 1** (Asia): the causal VAE is above the plain one at {better} of {len(at)} values of ε (the "
            "paper: at all). The paper puts its causal VAE above PGM too; here `marginals`, which measures the tables "
            f"of the same graph, is above the causal VAE at {beaten} of {len(at)}"
            + (f", and Private-PGM, which is not told the graph, at {pgm} of {len(at)}." if "pgm" in curves else ".")
        )
    return lines


def _more_verdict(parts: Mapping[str, Any]) -> list[str]:
    """Say whether more synthetic rows than real ones teach more than the real ones."""
    told = []
    for name in MORE:
        part = parts.get(f"more/{name}")
        if part is not None:
            shown = [
                f"{TITLES[m]} {_said(part['methods'][f'{m}/{TIMES}']['all'], 2)}" for m in ("fresh", *MORE_METHODS)
            ]
            told.append(f"{name}: {', '.join(shown)}")
    if not told:
        return []
    return [
        f"* **{TIMES} times as many synthetic rows as real ones** (points lost; negative is a gain): {'; '.join(told)}"
        ". The paper does not say how many rows it drew. A generator that is told the graph knows something that the "
        "learners on real rows do not, so a gain is possible in principle; the control is what more rows of the truth "
        "itself would give."
    ]


def page(parts: Mapping[str, Any]) -> str:
    """Return all results as Markdown."""
    said = sorted({part["data"] for part in parts.values()})
    tables = [line for name in TABLES if (p := parts.get(f"table1/{name}")) for line in _table_1(name, p)]
    return "\n".join(
        [
            *header("How useful the synthetic rows are", "utility", parts),
            f"Tables: {'; '.join(said)}. VAEs as in the paper, see `experiments/_paper.py`. Points lost: accuracy "
            "after learning from real rows minus after learning from synthetic ones; negative is a gain.",
            "",
            "## What it shows",
            "",
            *verdict(parts),
            *_more_verdict(parts),
            "* Most columns of Pain are rare, so accuracy hardly moves even where everything is lost: always answering "
            "the commonest class is close to the learners. Balanced accuracy and AUC, beside it, show what accuracy "
            "hides.",
            "* **How sure is this?** That as many synthetic rows as real ones do not teach more than the real ones: "
            "sure, for these tables; nor does the control. For more rows than real ones see above. Whether the "
            "causal VAE beats the plain one *on these columns and rows* is settled by the intervals over fits; for "
            "other columns of such tables the intervals over targets count, which overlap. There are other draws of "
            "the 20 columns, a refitted simulator, another Eedi table than the paper's, and one clipping norm where "
            "the paper searched for the best on the data.",
            "",
            *tables,
            *_more_page(parts),
            *_figure_page(parts),
        ]
    )


def main() -> None:
    """Run what is missing, and write the results."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--data", type=Path, default=DATA, help="folder with neuropathic_pain/ and eedi/")
    options.add_argument("--only", nargs="*", default=[], help="words that a part's name must hold")
    options.add_argument("--again", action="store_true", help="forget the parts that are there")
    options.add_argument("--quick", action="store_true", help="a smoke run that writes nothing")
    options.add_argument("--page", action="store_true", help="only write the page anew")
    options.add_argument("--jobs", type=int, default=1, help="how many processes")
    options.add_argument("--fits", type=int, default=FITS, help="of each model")
    chosen = options.parse_args()
    if chosen.quick:
        chosen.fits = 1
    store = Store("utility", again=chosen.again, kept=not chosen.quick)
    every: list[tuple[str, str, float | None]] = [("figure1", "Asia", None)]
    every += [("figure1", "Asia", epsilon) for epsilon in EPSILONS]
    every += [("pgm", "Asia", epsilon) for epsilon in EPSILONS]
    every += [("table1", name, None) for name in TABLES]
    every += [("more", name, None) for name in MORE]
    for kind, name, epsilon in every[:2] if chosen.quick else [] if chosen.page else every:
        key = f"{kind}/{name}" + (
            f"/{'none' if epsilon is None else f'{epsilon:g}'}" if kind in ("figure1", "pgm") else ""
        )
        if key in store.parts or not all(word in key + "/" for word in chosen.only):
            continue
        if name in FOLDERS and not (chosen.data / FOLDERS[name]).exists():
            print(f"{key}: {chosen.data}/{FOLDERS[name]} is not here; say where it is with --data.")
            continue
        began = time.process_time()
        table = table_of(name, chosen.data, **({"tested": (TIMES + 1) * MOST_ROWS} if kind == "more" else {}))
        with parallel_config(n_jobs=chosen.jobs):
            if kind in ("figure1", "pgm"):
                found = figure_1(table, epsilon, chosen.fits, pgm=kind == "pgm")
            else:
                found = (table_1 if kind == "table1" else more_rows)(table, chosen.fits)
        store.put(key, {**found, "data": f"{name} {table.data}"}, seconds=time.process_time() - began)
        print(key, f"{time.process_time() - began:.0f} s of processor time", flush=True)
    text = page(store.parts)
    if chosen.quick:
        print(text)
        return
    (RESULTS / "utility.md").write_text(text, encoding="utf-8")
    (RESULTS / "utility.svg").write_text(picture(store.parts), encoding="utf-8")
    print(f"Wrote {RESULTS / 'utility.md'}")


if __name__ == "__main__":
    main()
