"""What the membership game of *Causally Constrained Data Synthesis* measures: Tables 8 to 11, with controls.

Run from the repository's root::

    python experiments/membership.py                      # every part that is not in the results yet
    python experiments/membership.py --only Asia          # parts whose name holds a word
    python experiments/membership.py --shadows DIR        # and the full game, from shadows trained on an accelerator

``--data DIR`` holds ``neuropathic_pain``; ``DIR`` of ``--shadows`` holds what ``benchmarks/shadows_device.py`` wrote.
Parts are written to ``experiments/results/membership.json`` as they are done, and ``membership.md`` and ``.svg`` are
made from them; ``--again`` forgets those there are, and ``--quick`` is a smoke run that writes nothing.

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
from _paper import DATA, DELTA, MODELS, RESULTS, SEED, Store, Table, header, table_of, vae_of
from numpy.typing import NDArray

import escudo
from escudo.attacks import attack, ceiling_of, published_game
from escudo.attacks._classifiers import trained
from escudo.attacks._measures import score_of
from escudo.privacy import Guarantee, RepeatedEvent, SampledGaussianEvent, guarantee_of

FEATURES = ("naive", "histogram", "correlation", "ensemble")
CLASSIFIERS = ("linear svm", "rbf svm", "forest", "neighbours")
TABLES = ("Asia", "Synthetic", "Pain1000", "Pain5000")
SETS = 50
SIZES = {  # people and fits of the published game, fits in each world of the split by fit; learning and tested fits
    "Asia": {"people": 2, "fits": 6, "corrected": (24, 40)},
    "Synthetic": {"people": 2, "fits": 4, "corrected": (24, 40)},
    "Pain1000": {"people": 1, "fits": 4, "corrected": (24, 40)},
    "Pain5000": {"people": 1, "fits": 0, "corrected": None},
}
CORRECTED = {  # which models; a fit of Pain5000 takes too long here, and is done on an accelerator
    "Asia": tuple(MODELS),
    "Synthetic": (),
    "Pain1000": ("plain, DP",),
    "Pain5000": (),
}
DEVICE_ATTACKS = (
    ("queries", "likelihood ratio"),
    ("queries", "forest"),
    ("queries", "logistic"),
    ("histogram", "forest"),
    ("histogram", "logistic"),
)
DEVICE_NAMES = {
    "causal, DP": "causal, private",
    "causal": "causal, not private",
    "plain, DP": "plain, private",
    "plain": "plain, not private",
}

# Accuracy, in the order of FEATURES x CLASSIFIERS; the paper's "kernel" is a linear SVC, its "svc" the RBF one.
PRINTED = {
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
    victim, sizes = vae_of(table, model), SIZES[table.name]
    rows = table.rows(table.codes)

    def play(**options: Any) -> list[float]:
        found = published_game(
            victim, rows, table.schema, features=FEATURES, classifiers=CLASSIFIERS, seed=SEED, **options
        )
        return [round(one.accuracy, 1) for one in found]

    once = {"targets": sizes["people"], "fits": 1, "sets": SETS}
    games = {"published": play(**once), "published, null": play(**once, null=True)}
    if sizes["fits"]:
        several = {"targets": 1, "fits": sizes["fits"], "sets": 20}
        games |= {
            "by set": play(**several),
            "by fit": play(**several, by_fit=True),
            "by fit, null": play(**several, by_fit=True, null=True),
        }
    return {
        "games": games,
        "fits": victim.fits,
        "people": sizes["people"],
        "fits_per_world": sizes["fits"],
        "noise_multiplier": victim.noise,
        "ceiling": None if victim.claim is None else ceiling_of(victim.claim, "add_remove").to_json(),
    }


# -- the corrected game


def corrected(table: Table, model: str) -> dict[str, Any]:
    """Attack the person furthest from their neighbours, as escudo does."""
    victim = vae_of(table, model)
    learnt, tested = SIZES[table.name]["corrected"]
    began = time.perf_counter()
    found = attack(
        victim,
        table.rows(table.codes),
        table.schema,
        relation="add_remove",
        targets=1,
        choose="outliers",
        shadows=learnt,
        trials=tested,
        seed=SEED,
    )
    return {
        "shadows": learnt,
        "trials": tested,
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds_of_fits": round(victim.seconds, 1),
        "steps": victim.steps,
        "epsilon_lower": found.epsilon_lower,
        "violated": found.violated,
        "confidence": found.confidence,
        "ceiling": None if found.ceiling is None else found.ceiling.to_json(),
        "scores": [score.to_json() for score in found.overall],
    }


class _Recorded:
    """Recorded fits as a mechanism that an audit can run: each is handed out once, in the world that is asked for."""

    def __init__(self, there: NDArray[np.bool_], scores: NDArray[np.float64]):
        self._left = {world: list(scores[there == world]) for world in (False, True)}
        least = min(len(left) for left in self._left.values())
        # So many trials that no world runs out, but once in 30,000 audits.
        self.trials = int((math.sqrt(2 * least + 4) - 2) ** 2)
        self.ran_out = False

    def __call__(self, there: bool, rng: np.random.Generator) -> NDArray[np.float64]:
        if not self._left[there]:
            self.ran_out = True
            raise RuntimeError("no recorded fit of this world is left")
        return self._left[there].pop()


def from_device(kept: Mapping[str, Any], report: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Play the corrected game on shadows trained by ``benchmarks/shadows_device.py``."""
    name = DEVICE_NAMES[model]
    there = np.asarray(kept[f"{name}/there"], dtype=bool)
    half = there.size // 2
    claim = Guarantee(epsilon=30.0)
    ceilings: dict[str, Any] = {}
    if "DP" in model:

        def promise(relation: Any) -> Guarantee:
            step = SampledGaussianEvent(
                noise_multiplier=report["noise_multiplier"], sampling_probability=100 / 5000, relation=relation
            )
            events = RepeatedEvent(event=step, count=report["steps"], relation=relation)
            return guarantee_of(events, delta=DELTA)

        claim = promise("replace_one")  # what the shadows differ in: another person stands in the target's place
        ceilings = {
            relation: {"epsilon": promise(relation).epsilon, **ceiling_of(promise(relation), relation).to_json()}
            for relation in ("add_remove", "replace_one")
        }
    scores, judged = [], []
    for kind, classifier in DEVICE_ATTACKS:
        features = np.asarray(kept[f"{name}/{kind}"], dtype=np.float64)
        judge = trained(classifier, features[:half], there[:half], SEED)
        judged.append(judge.scores(features[half:]))
        scores.append(score_of(kind, classifier, there[half:], judged[-1]))
    recorded = _Recorded(there[half:], np.stack(judged, axis=1))
    found = escudo.audit(
        recorded,
        claim=claim,
        pairs=[(True, False, "target")],
        max_runs=recorded.trials,
        stop_early=False,
        last_bits=False,
        seed=SEED,
        progress=False,
    )
    assert not recorded.ran_out
    return {
        "shadows": half,
        "trials": there.size - half,
        "audited": recorded.trials,
        "epsilon_lower": found.epsilon_lower,
        "violated": "DP" in model and found.violated,
        "confidence": found.confidence,
        "ceilings": ceilings,
        "scores": [score.to_json() for score in scores],
        "device": {**report["models"][name], "device": report["device"], "steps": report["steps"]},
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
    epsilons = {"Asia": 2.36, "Synthetic": 3.9, "Pain1000": 2.36, "Pain5000": 5.62}
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
            cells.append((f"{theirs[place]:.0f}" if theirs else "–") + f" / {ours:.0f} / {null:.0f}")
        lines.append(f"| {kind} | {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def _interval(score: Mapping[str, Any], name: str) -> str:
    low, high = score[f"{name}_interval"]
    return f"{100 * score[name]:.0f} [{100 * low:.0f}, {100 * high:.0f}]"


def corrected_table(parts: Mapping[str, Any]) -> list[str]:
    """Return what the corrected game found where shadows were trained here."""
    lines = [
        "| table | model | fits: learnt from, tested | accuracy, mean over attacks | best of them | AUC of the best "
        "| ceiling of the accuracy | ε is at least (95 %) | promise | CPU-s |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|---:|",
    ]
    for key, part in parts.items():
        if not key.startswith("corrected/"):
            continue
        _, table, model = key.split("/")
        best = max(part["scores"], key=lambda score: score["accuracy"])
        ceiling = part["ceiling"]
        most = 100.0 if ceiling is None else 100 * ceiling["accuracy"]
        lines.append(
            f"| {table} | {model} | {part['shadows']}, {best['fits']} "
            f"| {100 * np.mean([score['accuracy'] for score in part['scores']]):.0f} "
            f"| {_interval(best, 'accuracy')} {best['features']}, {best['classifier']} | {_interval(best, 'auc')} "
            f"| {most:.1f} | {part['epsilon_lower']:.2f} "
            f"| {'none' if ceiling is None else 'REFUTED' if part['violated'] else 'not refuted'} "
            f"| {part['made']['cpu_seconds']:.0f} |"
        )
    return lines


def _on_cpu(parts: Mapping[str, Any]) -> list[str]:
    """Say what 64 shadows take without an accelerator."""
    part = parts.get("corrected/Pain1000/plain, DP")
    if part is None:
        return []
    fits = part["shadows"] + part["scores"][0]["fits"]
    return [
        "",
        f"On the CPU, one thread: {fits} VAEs of Pain1000 ({part['steps']:,} steps each) took "
        f"{part['cpu_seconds_of_fits']:.0f} s of processor time ({part['seconds']:.0f} s on the shared machine), "
        f"{fits * part['steps'] / part['cpu_seconds_of_fits']:,.0f} model-steps a second. Pain5000 has five times "
        "as many steps, and was not done here.",
    ]


def device_table(parts: Mapping[str, Any]) -> list[str]:
    """Return the full corrected game on Pain5000."""
    found = {model: parts[key] for model in MODELS if (key := f"device/Pain5000/{model}") in parts}
    if not found:
        return ["Not measured: no shadows were given (`--shadows DIR`).", ""]
    lines = [
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
    lines += [
        "",
        "| model | learnt from, tested, audited | ε is at least (95 %) | promise, add/remove | ceiling "
        "| promise, replace one | ceiling | verdict | seconds on the device | with compiling | model-steps/s |",
        "|---|---|---:|---:|---:|---:|---:|---|---:|---:|---:|",
    ]
    for model, part in found.items():
        ceilings = part["ceilings"]
        promised = [
            f"ε = {ceilings[name]['epsilon']:.2f} | {100 * ceilings[name]['accuracy']:.1f}"
            if ceilings
            else "none | 100"
            for name in ("add_remove", "replace_one")
        ]
        device = part["device"]
        said = "–" if not ceilings else "REFUTED" if part["violated"] else "not refuted"
        lines.append(
            f"| {model} | {part['shadows']}, {part['trials']}, {part['audited']} | {part['epsilon_lower']:.2f} "
            f"| {promised[0]} | {promised[1]} | {said} "
            f"| {device['seconds_without_compiling']:.1f} | {device['seconds']:.1f} "
            f"| {device['model_steps_per_second']:,.0f} |"
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
    return lines


def page(parts: Mapping[str, Any]) -> str:
    """Return all results as Markdown."""
    said = sorted({part["data"] for part in parts.values() if "data" in part})
    return "\n".join(
        [
            *header("What the published membership game measures", "membership", parts),
            f"Tables: {'; '.join(said)}. VAEs as in the paper, see `experiments/_paper.py`; accuracies in per cent.",
            "",
            "The paper (its Tables 8 to 11) reports attacks that are right in 97 to 100 % of cases about VAEs with "
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
            "less: not shown, and not excluded.",
            "",
            "## Means over the 16 attacks, and the best of them",
            "",
            "Paper: Tables 8 to 11. Published: one fit in each world for each person, 50 sets of each. By set and by "
            "fit: several fits in each world for one person, 20 sets of each; with few fits the last columns are "
            "uneven (Pain1000: 2 tested fits in each world).",
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
            "picked. The bound on ε is formal. The 64-shadow version on a CPU is the row of Pain1000 (24 fits to learn "
            "from, 40 to test).",
            "",
            *corrected_table(parts),
            *_on_cpu(parts),
            "",
            "## The full corrected game on Pain5000",
            "",
            "1,000 shadows of each model, trained on an accelerator (`benchmarks/shadows_device.py`): one half "
            "teaches, the other is scored, and the recorded scores are the trials of `escudo.audit`, each used once. "
            "One start for all, which is public and makes the attack stronger. In these worlds another person stands "
            "in the target's place, so the promise that is tested is the one for replacing a record.",
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
    every = [("published", table, model) for table in TABLES[:3] for model in MODELS]
    every += [("corrected", table, model) for table in TABLES[:3] for model in CORRECTED[table]]
    every += [("published", "Pain5000", model) for model in MODELS]
    return [job for job in every if all(word in "/".join(job) + "/" for word in only)]


def main() -> None:
    """Run what is missing, and write the results."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--data", type=Path, default=DATA, help="folder with neuropathic_pain/")
    options.add_argument("--shadows", type=Path, help="folder with shadows.npz and shadows_device.json")
    options.add_argument("--only", nargs="*", default=[], help="words that a part's name must hold")
    options.add_argument("--again", action="store_true", help="forget the parts that are there")
    options.add_argument("--quick", action="store_true", help="a smoke run that writes nothing")
    options.add_argument("--page", action="store_true", help="only write the page anew")
    chosen = options.parse_args()
    if chosen.quick:
        for sizes in SIZES.values():
            sizes |= {"people": 1, "fits": 2, "corrected": (4, 4)}
        chosen.only = ["Asia", "plain, DP"]
    store = Store("membership", again=chosen.again, kept=not chosen.quick)
    tables: dict[str, Table] = {}
    for kind, name, model in [] if chosen.page else jobs(chosen.only):
        key = f"{kind}/{name}/{model}"
        if key in store.parts:
            continue
        if name.startswith("Pain") and not (chosen.data / "neuropathic_pain").exists():
            print(f"{key}: {chosen.data}/neuropathic_pain is not here; say where it is with --data.")
            continue
        table = tables.setdefault(name, table_of(name, chosen.data)) if name not in tables else tables[name]
        began = time.process_time()
        found = (published if kind == "published" else corrected)(table, model)
        store.put(key, {**found, "data": f"{name} {table.data}"}, seconds=time.process_time() - began)
        print(key, f"{time.process_time() - began:.0f} s of processor time", flush=True)
    if chosen.shadows is not None and not chosen.quick:
        with np.load(chosen.shadows / "shadows.npz") as kept:
            arrays = {name: kept[name] for name in kept.files}
        report = json.loads((chosen.shadows / "shadows_device.json").read_text(encoding="utf-8"))
        for model in MODELS:
            began = time.process_time()
            found = from_device(arrays, report, model)
            store.put(f"device/Pain5000/{model}", found, seconds=time.process_time() - began)
    elif not chosen.quick:
        print("The full game on Pain5000 is left as it was: it needs --shadows DIR.")
    text = page(store.parts)
    if chosen.quick:
        print(text)
        return
    (RESULTS / "membership.md").write_text(text, encoding="utf-8")
    (RESULTS / "membership.svg").write_text(picture(store.parts), encoding="utf-8")
    print(f"Wrote {RESULTS / 'membership.md'}")


if __name__ == "__main__":
    main()
