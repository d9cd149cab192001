"""What the membership game of *Causally Constrained Data Synthesis* measures: Tables 5 and 7 to 11, with controls.

Run from the repository's root::

    python experiments/membership.py                      # every part that is not in the results yet
    python experiments/membership.py --only Asia          # parts whose name holds a word
    python experiments/membership.py --shadows FILE       # and the full game, played on an accelerator

``--data DIR`` holds ``neuropathic_pain`` and ``eedi``; ``FILE`` is what ``benchmarks/shadows_device.py`` wrote. Fits
are many: on a machine with an accelerator they are trained side by side, and on others it takes hours (``--jobs`` for
more processes). Parts are written to ``experiments/results/membership.json`` as they are done, and ``membership.md``
and ``.svg`` are made from them; ``--again`` forgets those there are, and ``--quick`` is a smoke run that writes
nothing.

**Published game.** A model is fitted with the target and one without; 50 synthetic sets are drawn from each; half of
all sets, at random, teach an attacker, who is tested on the other half. Four kinds of features, four classifiers.

**Controls.** *Null*: the target is in neither world, so there is nothing to find out. *By fit*: several fits in each
world, and whole fits are on one side of the split.

**Corrected game.** One synthetic set from each fit; some fits teach the attacker, others test them
(:func:`escudo.attack`), with the lower bound on ε that these trials prove, and the ceiling that the promise allows.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _paper import DATA, FOLDERS, MODELS, RESULTS, SEED, Store, Table, header, outlier_game, table_of, vae_of
from joblib import parallel_config

from escudo.attacks import ceiling_of, published_game

FEATURES = ("naive", "histogram", "correlation", "ensemble")
CLASSIFIERS = ("linear svm", "rbf svm", "forest", "neighbours")
TABLES = ("Asia", "Synthetic", "Eedi", "Pain1000", "Pain5000")
SETS = 50
PEOPLE = {"Asia": 2, "Synthetic": 2, "Eedi": 1, "Pain1000": 1, "Pain5000": 1}
FITS = {"Asia": 6, "Synthetic": 4, "Eedi": 4, "Pain1000": 4, "Pain5000": 4}  # in each world, where the split is by fit
CORRECTED = [200, 400]  # fits to learn from, fits to test on; fewer where there is no accelerator

# Accuracy, in the order of FEATURES x CLASSIFIERS; the paper's "kernel" is a linear SVC, its "svc" the RBF one.
# For Eedi it prints the first two kinds of features, in Tables 5 and 7; Table 6 has a graph that is not to be had.
PRINTED = {
    ("Eedi", "causal, DP"): "47.33 47.33 62.18 54.79 100 100 100 100",
    ("Eedi", "causal"): "47.33 47.33 99.21 96.48 100 100 100 100",
    ("Eedi", "plain, DP"): "47.33 53.21 99.76 99.76 52.67 47.33 59.39 59.39",
    ("Eedi", "plain"): "47.33 60.85 100 99.82 100 95.7 100 100",
    ("Pain1000", "causal, DP"): "47.33 47.33 57.7 55.94 48.3 47.33 57.82 59.7 99.7 51.09 97.39 41.52 61.76 47.33 97.94 "
    "81.09",
    ("Pain1000", "causal"): "47.33 47.33 99.58 96.76 57.82 47.33 57.82 59.7 98.24 62.12 100 60.61 61.7 47.33 100 82.12",
    ("Pain1000", "plain, DP"): "47.33 47.33 79.82 80.85 96.36 47.33 100 100 100 94.12 78 53.82 98.55 47.33 94.85 100",
    ("Pain1000", "plain"): "47.33 47.33 99.7 85.76 96.79 47.33 100 94.91 100 100 100 73.88 98.3 47.33 100 88.79",
    ("Pain5000", "causal, DP"): "47.33 47.33 76.85 76.79 47.33 47.33 57.82 58.7 92.61 47.33 100 36.48 47.33 47.33 100 "
    "74.85",
    ("Pain5000", "causal"): "47.33 47.33 98.85 96.12 60.24 47.33 57.82 59.7 100 97.64 100 100 62.18 47.33 100 100",
    ("Pain5000", "plain, DP"): "47.33 64.61 99.94 100 100 65.03 100 100 100 100 99.76 53.09 100 48.85 100 100",
    ("Pain5000", "plain"): "47.33 47.33 100 99.82 100 47.33 100 100 100 100 100 100 100 47.33 100 100",
}


def printed(table: str, model: str) -> list[float] | None:
    """Return the paper's accuracies of one model, if it has them."""
    text = PRINTED.get((table, model))
    return None if text is None else [float(word) for word in text.split()]


# -- the published game and its controls


def published(table: Table, model: str) -> dict[str, Any]:
    """Play the published game with one model, and its controls."""
    victim, fits = vae_of(table, model), FITS[table.name]
    rows = table.rows(table.codes)

    def play(**options: Any) -> list[float]:
        found = published_game(
            victim, rows, table.schema, features=FEATURES, classifiers=CLASSIFIERS, seed=SEED, **options
        )
        return [round(one.accuracy, 1) for one in found]

    once = {"targets": PEOPLE[table.name], "fits": 1, "sets": SETS}
    several = {"targets": 1, "fits": fits, "sets": 20}
    games = {
        "published": play(**once),
        "published, null": play(**once, null=True),
        "by set": play(**several),
        "by fit": play(**several, by_fit=True),
        "by fit, null": play(**several, by_fit=True, null=True),
    }
    return {
        "games": games,
        "people": PEOPLE[table.name],
        "fits_per_world": fits,
        "noise_multiplier": victim.noise,
        "ceiling": None if victim.claim is None else ceiling_of(victim.claim, "add_remove").to_json(),
    }


# -- the corrected game


def corrected(table: Table, model: str, learnt: int, tested: int) -> dict[str, Any]:
    """Attack the person furthest from their neighbours, as escudo does."""
    victim = vae_of(table, model)
    found = outlier_game(victim, table, shadows=learnt, trials=tested)
    return {
        "shadows": learnt,
        "trials": tested,
        "steps": victim.steps,
        "epsilon_lower": found.epsilon_lower,
        "violated": found.violated,
        "confidence": found.confidence,
        "ceiling": None if found.ceiling is None else found.ceiling.to_json(),
        "scores": [score.to_json() for score in found.overall],
    }


# -- the page


def _cells(games: Mapping[str, Sequence[float]], name: str) -> str:
    return "–" if name not in games else f"{np.mean(games[name]):.0f} (best {max(games[name]):.0f})"


def summary(parts: Mapping[str, Any]) -> list[str]:
    """Return the table of means."""
    lines = [
        "| table | model | paper | published | null: target in neither world | several fits, split by set "
        "| **split by fit** | split by fit, null | ceiling e^ε/(1+e^ε) | ceiling of this noise |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    epsilons = {"Asia": 2.36, "Synthetic": 3.9, "Eedi": 12.42, "Pain1000": 2.36, "Pain5000": 5.62}
    for table in TABLES:
        for model in MODELS:
            part = parts.get(f"published/{table}/{model}")
            if part is None:
                continue
            games, theirs = part["games"], printed(table, model)
            private = part["ceiling"] is not None
            lines.append(
                f"| {table} | {model} | "
                + (f"{np.mean(theirs):.0f} (best {max(theirs):.0f})" if theirs else "–")
                + "".join(
                    f" | {_cells(games, name)}"
                    for name in ("published", "published, null", "by set", "by fit", "by fit, null")
                )
                + (f" | {100 / (1 + math.exp(-epsilons[table])):.1f}" if private else " | 100")
                + (f" | {100 * part['ceiling']['accuracy']:.1f} |" if private else " | 100 |")
            )
    return lines


def full_tables(parts: Mapping[str, Any], table: str) -> list[str]:
    """Return the paper's table beside ours, cell by cell."""
    found = {model: parts[key] for model in MODELS if (key := f"published/{table}/{model}") in parts}
    if not found:
        return []
    lines = [
        f"### {table}",
        "",
        "| features | classifier | " + " | ".join(f"{model}: paper / ours / null" for model in found) + " |",
        "|---|---|" + "---:|" * len(found),
    ]
    for place, (kind, name) in enumerate((kind, name) for kind in FEATURES for name in CLASSIFIERS):
        cells = []
        for model, part in found.items():
            theirs = printed(table, model)
            ours, null = part["games"]["published"][place], part["games"]["published, null"][place]
            cells.append(
                (f"{theirs[place]:.0f}" if theirs and place < len(theirs) else "–") + f" / {ours:.0f} / {null:.0f}"
            )
        lines.append(f"| {kind} | {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def _interval(score: Mapping[str, Any], name: str) -> str:
    low, high = score[f"{name}_interval"]
    return f"{100 * score[name]:.0f} [{100 * low:.0f}, {100 * high:.0f}]"


def corrected_table(parts: Mapping[str, Any], kind: str) -> list[str]:
    """Return what the corrected game found, model by model."""
    lines = [
        "| table | model | fits: learnt from, tested | accuracy, mean over attacks | best of them | AUC of the best "
        "| ceiling of the accuracy | ε is at least (95 %) | promise |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for table, model in ((table, model) for table in TABLES for model in MODELS):
        part = parts.get(f"{kind}/{table}/{model}")
        if part is None:
            continue
        best = max(part["scores"], key=lambda score: score["accuracy"])
        ceiling = part["ceiling"]
        most = 100.0 if ceiling is None else 100 * ceiling["accuracy"]
        lines.append(
            f"| {table} | {model} | {part['shadows']}, {best['fits']} "
            f"| {100 * np.mean([score['accuracy'] for score in part['scores']]):.0f} "
            f"| {_interval(best, 'accuracy')} {best['features']}, {best['classifier']} | {_interval(best, 'auc')} "
            f"| {most:.1f} | {part['epsilon_lower']:.2f} "
            f"| {'none' if ceiling is None else 'REFUTED' if part['violated'] else 'not refuted'} |"
        )
    return lines


def device_table(parts: Mapping[str, Any]) -> list[str]:
    """Return the full corrected game on Pain5000, attack by attack."""
    found = {model: parts[key] for model in MODELS if (key := f"device/Pain5000/{model}") in parts}
    if not found:
        return ["Not measured: no shadows were given (`--shadows FILE`).", ""]
    lines = [
        *corrected_table(parts, "device"),
        "",
        "| model | attack | accuracy | TPR | FPR | AUC | TPR at 1 % FPR |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for model, part in found.items():
        for score in part["scores"]:
            lines.append(
                f"| {model} | {score['features']}, {score['classifier']} | {_interval(score, 'accuracy')} "
                f"| {100 * score['tpr']:.0f} | {100 * score['fpr']:.0f} | {_interval(score, 'auc')} "
                f"| {100 * score['tpr_at_1_percent']:.1f} |"
            )
    return [*lines, ""]


def _means(parts: Mapping[str, Any], game: str, *, private: bool) -> list[float]:
    return [
        float(np.mean(part["games"][game]))
        for key, part in parts.items()
        if key.startswith("published/") and game in part["games"] and ("DP" in key) == private
    ]


def verdict(parts: Mapping[str, Any]) -> list[str]:
    """Say what was found, in figures that are measured."""
    lines = []
    for private in (True, False):
        games = {
            name: _means(parts, name, private=private) for name in ("published", "published, null", "by set", "by fit")
        }
        if not games["published"] or not games["by fit"]:
            continue
        lines.append(
            f"* **{'With' if private else 'Without'} differential privacy**, means over tables, models, features and "
            f"classifiers: as published {np.mean(games['published']):.0f} %; **with the target in neither world "
            f"{np.mean(games['published, null']):.0f} %**; several fits, sets split at random "
            f"{np.mean(games['by set']):.0f} %; **whole fits on one side of the split "
            f"{np.mean(games['by fit']):.0f} %** (50 % is a coin)."
        )
    cells = [
        (part["games"]["published, null"][place], 100 * part["ceiling"]["accuracy"])
        for key, part in parts.items()
        if key.startswith("published/") and part["ceiling"] is not None
        for place in range(len(part["games"]["published, null"]))
    ]
    if cells:
        above = sum(got > most for got, most in cells)
        lines.append(
            f"* Against private models, {above} of {len(cells)} cells of the *null* game, where the target is in "
            "neither world, are above the ceiling of any attack on the target: such a figure says nothing about it."
        )
    order = []
    for game in ("published", "published, null", "by fit"):
        pairs = [
            (np.mean(plain["games"][game]), np.mean(part["games"][game]))
            for key, part in parts.items()
            if key.startswith("published/") and "/causal" in key and game in part["games"]
            if (plain := parts.get(key.replace("/causal", "/plain"))) is not None
        ]
        if pairs:
            order.append(
                f"{game}: {np.mean([p - c for p, c in pairs]):+.0f} points over {len(pairs)} pairs of models, the "
                f"causal one lower in {sum(c < p for p, c in pairs)}"
            )
    if order:
        lines.append("* Plain against causal models (plain minus causal): " + "; ".join(order) + ".")
    return [*lines, *_corrected_verdict(parts)]


def _corrected_verdict(parts: Mapping[str, Any]) -> list[str]:
    """Say what the corrected game found, with and without privacy, and for causal against plain models."""
    played = {key: part for key, part in parts.items() if key.startswith(("corrected/", "device/"))}
    lines = []
    for private in (True, False):
        kept = [part for key, part in played.items() if ("DP" in key) == private]
        if not kept:
            continue
        means = [100 * float(np.mean([score["accuracy"] for score in part["scores"]])) for part in kept]
        lines.append(
            f"* **The corrected game, {'with' if private else 'without'} differential privacy**: over {len(kept)} "
            f"models, attacks are right about {min(means):.0f} to {max(means):.0f} % of fits (means of six attacks); "
            f"the largest formal bound is ε ≥ {max(part['epsilon_lower'] for part in kept):.2f}."
        )
    pairs = []
    for key, causal in played.items():
        plain = played.get(key.replace("/causal", "/plain"))
        if "DP" in key or not key.endswith("/causal") or plain is None:
            continue
        best = [max(part["scores"], key=lambda score: score["auc"]) for part in (causal, plain)]
        shown = [
            f"{_interval(score, 'auc')} ({score['features']}; ε ≥ {part['epsilon_lower']:.2f})"
            for score, part in zip(best, (causal, plain), strict=True)
        ]
        pairs.append(f"{key.split('/')[1]}: {shown[0]} against {shown[1]}")
    if pairs:
        lines.append(
            "* **Do causal models leak less?** Without differential privacy, AUC of the best attack, causal against "
            f"plain: {'; '.join(pairs)}. One person each, the one furthest from their neighbours."
        )
    return lines


def page(parts: Mapping[str, Any]) -> str:
    """Return all results as Markdown."""
    said = sorted({part["data"] for part in parts.values() if "data" in part})
    return "\n".join(
        [
            *header("What the published membership game measures", "membership", parts),
            f"Tables: {'; '.join(said)}. VAEs as in the paper, see `experiments/_paper.py`; accuracies in per cent.",
            "",
            "The paper (its Tables 5 to 11) reports attacks that are right in 97 to 100 % of cases about VAEs with "
            "ε = 2.36 and 5.62. A single-record game with fair coins cannot exceed e^ε/(1+e^ε) = 91.4 % and 99.6 % "
            "(plus δ); the noise that makes these ε allows less still (last column: (1 + δ(0))/2 for this "
            "training).",
            "",
            "## What it shows",
            "",
            *verdict(parts),
            "* Why: all sets of a world come from one fit, and the attacker is tested on sets of the very fits they "
            "learnt from. Every fit has its own start, its own samples and, if private, its own noise: it can be "
            "recognised, whoever is in it. The accuracy measures how different two fits look to the features, and so "
            "do its differences between causal and plain models, or with and without DP.",
            "* **How sure is this?** That the published figures are no evidence about the target: sure, since they "
            "come out the same with the target in neither world. That the true risk is this small: for these "
            "attackers, who see one synthetic set, and for the few targets tried; stronger attackers may do better, up "
            "to the ceiling. The full game on Pain5000 below has the narrowest intervals. That causal models leak "
            "less: not shown for private ones, where nothing is found either way. Without privacy it goes both ways: "
            "the causal one leaked more than the plain one on Pain5000 and less on Pain1000, with no difference beyond "
            "chance on the others.",
            "",
            "## Means over the 16 attacks, and the best of them",
            "",
            "Paper: Tables 5 and 7 to 11. Published: one fit in each world for each person, 50 sets of each. By set "
            "and by fit: several fits in each world for one person, 20 sets of each; with few fits the last columns "
            "are uneven (half of them are tested on).",
            "",
            *summary(parts),
            "",
            "![Accuracies of the published game and its controls](membership.svg)",
            "",
            "## The corrected game",
            "",
            "One synthetic set from each fit, fits that teach apart from fits that test, the person furthest from "
            "their neighbours as target, everything else fixed, nobody in the place otherwise (add/remove). Six "
            "attacks. Intervals are 95 % over fits, for one attack; the best of six is flattered by having been "
            "picked. The bound on ε is formal. How long this takes, also without an accelerator: "
            "`benchmarks/results/shadows.md` and `shadows_device.md`.",
            "",
            *corrected_table(parts, "corrected"),
            "",
            "## The full corrected game on Pain5000",
            "",
            "A thousand shadows of each model, trained on an accelerator (`benchmarks/shadows_device.py`): the same "
            "game with more fits, and one start for all of them, which is public and makes the attack stronger.",
            "",
            *device_table(parts),
            "## The paper's tables, cell by cell",
            "",
            "Accuracy; *null* is the same game with the target in neither world. The paper's 47.33 is the score of "
            "always answering that the target was not there.",
            "",
            *(line for table in TABLES for line in full_tables(parts, table)),
        ]
    )


def picture(parts: Mapping[str, Any]) -> str:
    """Return the means of the published game and its controls as an SVG."""
    found = [
        (f"{table}, {model}", parts[key])
        for table in TABLES
        for model in MODELS
        if (key := f"published/{table}/{model}") in parts
    ]
    height = 70 + 22 * len(found)
    shown = {
        "published": ("#b5432f", "as published"),
        "published, null": ("#d99a2b", "target in neither world"),
        "by fit": ("#2f6db5", "split by fit"),
    }

    def x(value: float) -> float:
        return 180 + 6 * (value - 40)

    body = [f'<path d="M{x(50):.0f} 30V{height - 36}" stroke="#999" stroke-dasharray="3 3"/>']
    for value in range(40, 101, 10):
        body.append(f'<text x="{x(value):.0f}" y="{height - 18}" text-anchor="middle">{value} %</text>')
    for place, (colour, title) in enumerate(shown.values()):
        body.append(f'<circle cx="{188 + 140 * place}" cy="16" r="5" fill="{colour}"/>')
        body.append(f'<text x="{198 + 140 * place}" y="20">{title}</text>')
    for place, (title, part) in enumerate(found):
        y = 44 + 22 * place
        body.append(f'<text x="170" y="{y + 4}" text-anchor="end">{title}</text>')
        body.append(f'<path d="M{x(40):.0f} {y}H{x(100):.0f}" stroke="#eee"/>')
        if part["ceiling"] is not None:
            most = x(100 * part["ceiling"]["accuracy"])
            body.append(f'<path d="M{most:.0f} {y - 8}v16" stroke="black" stroke-width="2"/>')
        for game, (colour, _) in shown.items():
            if game in part["games"]:
                mean = float(np.mean(part["games"][game]))
                body.append(f'<circle cx="{x(mean):.1f}" cy="{y}" r="5" fill="{colour}" fill-opacity="0.8"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 620 {height}" font-family="sans-serif" font-size="12">'
        f'<rect width="620" height="{height}" fill="white"/>{"".join(body)}</svg>\n'
    )


def jobs(only: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return the parts in the order in which they are worth having."""
    every = [("published", table, model) for table in TABLES for model in MODELS]
    every += [("corrected", table, model) for table in TABLES if table != "Pain5000" for model in MODELS]
    return [job for job in every if all(word in "/".join(job) + "/" for word in only)]


def main() -> None:
    """Run what is missing, and write the results."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--data", type=Path, default=DATA, help="folder with neuropathic_pain/ and eedi/")
    options.add_argument("--shadows", type=Path, help="shadows_device.json")
    options.add_argument("--only", nargs="*", default=[], help="words that a part's name must hold")
    options.add_argument("--again", action="store_true", help="forget the parts that are there")
    options.add_argument("--quick", action="store_true", help="a smoke run that writes nothing")
    options.add_argument("--page", action="store_true", help="only write the page anew")
    options.add_argument("--jobs", type=int, default=1, help="how many processes")
    options.add_argument(
        "--fits", type=int, nargs=2, default=CORRECTED, help="of the corrected game: to learn, to test"
    )
    chosen = options.parse_args()
    if chosen.quick:
        PEOPLE["Asia"], FITS["Asia"], chosen.only = 1, 2, ["published", "Asia", "plain, DP"]
    store = Store("membership", again=chosen.again, kept=not chosen.quick)
    tables: dict[str, Table] = {}
    for kind, name, model in [] if chosen.page else jobs(chosen.only):
        key = f"{kind}/{name}/{model}"
        if key in store.parts:
            continue
        if name in FOLDERS and not (chosen.data / FOLDERS[name]).exists():
            print(f"{key}: {chosen.data}/{FOLDERS[name]} is not here; say where it is with --data.")
            continue
        if name not in tables:
            tables[name] = table_of(name, chosen.data)
        began = time.process_time()
        with parallel_config(n_jobs=chosen.jobs):
            if kind == "published":
                found = published(tables[name], model)
            else:
                found = corrected(tables[name], model, *chosen.fits)
        store.put(key, {**found, "data": f"{name} {tables[name].data}"}, seconds=time.process_time() - began)
        print(key, f"{time.process_time() - began:.0f} s of processor time", flush=True)
    if chosen.shadows is not None and not chosen.quick:
        report = json.loads(chosen.shadows.read_text(encoding="utf-8"))
        for model, found in report["models"].items():
            store.put(f"device/Pain5000/{model}", {**found, "device": report["device"]}, seconds=0.0)
    elif "device/Pain5000/plain" not in store.parts:
        print("The full game on Pain5000 is left out: it needs --shadows FILE.")
    text = page(store.parts)
    if chosen.quick:
        print(text)
        return
    (RESULTS / "membership.md").write_text(text, encoding="utf-8")
    (RESULTS / "membership.svg").write_text(picture(store.parts), encoding="utf-8")
    print(f"Wrote {RESULTS / 'membership.md'}")


if __name__ == "__main__":
    main()
