"""Audits where one cannot experiment, and a neural attacker: two readings of the papers that were left open.

**Logs** (*Differential Privacy as a Causal Property*, section 8: "we could approach the problem using observational
studies"). Randomised response with a known ε, in runs where a common cause makes a record likelier to be there and its
output likelier to be "yes": ``escudo.auditing.observe`` on the log, with the cause adjusted for, and with it hidden.
Figures over 400 logs of 2,000 runs: how often the stated bound is above the true ε (at most 5 % is allowed), how often
a claim of half the true ε is spoken against, and how often the true claim is, wrongly. Where the cause is hidden: how
strong it is (γ), and how strong a cause the answer said would be needed to explain what it found.

**A neural attacker** in the membership game (*Causally Constrained Data Synthesis*, section 4.3, whose adversary
"learns a classifier"): two hidden layers, beside the six attacks that are tried by default, on Asia (1,000 rows), the
person furthest from their neighbours, all others fixed; against ``marginals`` at ε = 2.36 and at ε = 20, and against
rows drawn from the table itself.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np
import polars as pl
from _paper import DELTA, SEED, Store, header, table_of

from escudo.attacks import ATTACKS, attack
from escudo.auditing import observe

LOGS, RUNS = 400, 2000
EPSILONS = (0.5, 1.0, 2.0)
PULLS = {"none": 0.5, "weak": 0.6, "strong": 0.8}  # how often the record is there with the cause; without it, the rest
NETWORK = (("queries", "network"), ("histogram", "network"), ("ensemble", "network"))


def simulated(epsilon: float, pull: float, rng: np.random.Generator) -> pl.DataFrame:
    """Return a log: cause → record → output ← cause; given the cause, the effect of the record is exactly ε.

    Without the cause an answer is "yes" with chance 0.2 for the record and 0.2 e^-ε without it, and the cause doubles
    both; so few say "yes" that "no" tells less than that.
    """
    cause = rng.random(RUNS) < 0.5
    there = rng.random(RUNS) < np.where(cause, pull, 1 - pull)
    chance = 0.2 * np.where(there, 1.0, math.exp(-epsilon)) * np.where(cause, 2.0, 1.0)
    return pl.DataFrame({"there": there, "said": rng.random(RUNS) < chance, "cause": cause})


def logs(epsilon: float, pull: float) -> dict[str, Any]:
    """Return how observational audits do, with the cause logged and with it hidden."""
    told: dict[str, Any] = {"epsilon": epsilon, "gamma": max(pull / (1 - pull), 2.0) if pull > 0.5 else 1.0}
    for name, adjust in (("adjusted", ["cause"]), ("hidden", [])):
        bounds, strengths = [], []
        for number in range(LOGS):
            rng = np.random.default_rng([SEED, number, round(100 * pull), round(10 * epsilon)])
            found = observe(simulated(epsilon, pull, rng), record="there", output="said", adjust=adjust, claim=epsilon)
            bounds.append(found.epsilon_lower)
            strengths.append(found.strength)
        above = np.array(bounds) > epsilon
        told[name] = {
            "bound": round(float(np.mean(bounds)), 4),
            "above the truth": float(above.mean()),
            "half the truth spoken against": float((np.array(bounds) > epsilon / 2).mean()),
            "largest strength": round(float(max(strengths)), 4),
        }
    return told


def game(victim: str) -> dict[str, Any]:
    """Return what the default attacks and the neural ones find."""
    table = table_of("Asia")
    rows = table.rows(table.codes)
    how: dict[str, Any] = {"targets": 1, "choose": "outliers", "shadows": 100, "trials": 200, "seed": SEED}
    how["attacks"] = (*ATTACKS, *NETWORK)
    if victim == "the table itself":

        def resampled(private: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
            return private[rng.integers(0, len(private), len(private)).tolist()]

        found = attack(resampled, rows, table.schema, relation="add_remove", **how)
    else:
        epsilon = float(victim.split("=")[1])
        terms = {"epsilon": epsilon, "delta": DELTA, "relation": "add_remove"}
        found = attack("marginals", rows, table.schema, graph=table.graph, **terms, **how)
    return {
        "scores": {f"{score.features}, {score.classifier}": round(score.accuracy, 4) for score in found.overall},
        "interval": round(1.96 * math.sqrt(0.25 / found.overall[0].fits), 4),
        "epsilon_lower": round(found.epsilon_lower, 4),
        "ceiling": None if found.ceiling is None else round(found.ceiling.accuracy, 4),
    }


def page(parts: dict[str, Any]) -> str:
    """Return the page of results."""
    lines = header("Audits from logs, and a neural attacker", "observed", parts)
    lines += [(__doc__ or "").split("\n\n", 1)[1].strip(), "", "## Logs", ""]
    lines += [
        "| true ε | common cause | γ | adjusted: bound, mean | above the truth | ε/2 spoken against "
        "| hidden: bound, mean | above the truth | strength stated, at most |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for key, part in parts.items():
        if key.startswith("logs/"):
            fair, blind = part["adjusted"], part["hidden"]
            lines.append(
                f"| {part['epsilon']} | {key.split('/')[2]} | {part['gamma']:.2g} | {fair['bound']:.2f} "
                f"| {100 * fair['above the truth']:.1f} % | {100 * fair['half the truth spoken against']:.0f} % "
                f"| {blind['bound']:.2f} | {100 * blind['above the truth']:.0f} % | {blind['largest strength']:.2f} |"
            )
    lines += [
        "",
        "With the cause in the log and adjusted for, the bound holds; with it hidden, the same log speaks against a "
        "true claim, and says that a hidden cause of the stated strength or more would explain it: which the one at "
        "work, γ, is. That is all that logs can do: an experiment needs no such sentence.",
        "",
        "## A neural attacker",
        "",
    ]
    games = {key.removeprefix("game/"): part for key, part in parts.items() if key.startswith("game/")}
    if games:
        lines += [f"| attack | {' | '.join(games)} |", "|---|" + "---:|" * len(games)]
        for name in next(iter(games.values()))["scores"]:
            cells = [f"{100 * part['scores'][name]:.1f} %" for part in games.values()]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        bounds = [f"{part['epsilon_lower']:.2f}" for part in games.values()]
        lines += [f"| ε is at least | {' | '.join(bounds)} |", ""]
        half = 100 * next(iter(games.values()))["interval"]
        lines.append(f"Accuracy, ± {half:.0f} points (95 %).")
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure what is missing, and write the page."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--only", nargs="*", default=[], help="parts whose name holds one of these words")
    options.add_argument("--again", action="store_true", help="forget what was measured")
    given = options.parse_args()
    store = Store("observed", again=given.again)
    wanted = [
        (f"logs/{epsilon}/{pull}", lambda e=epsilon, p=pull: logs(e, PULLS[p]))
        for epsilon in EPSILONS
        for pull in PULLS
    ]
    wanted += [
        (f"game/{victim}", lambda v=victim: game(v))
        for victim in ("marginals, ε =2.36", "marginals, ε =20", "the table itself")
    ]
    for key, measure in wanted:
        if key in store.parts or (given.only and not any(word in key for word in given.only)):
            continue
        began = time.process_time()
        store.put(key, measure(), seconds=time.process_time() - began)
        print(key, f"{time.process_time() - began:.0f} s of processor time", flush=True)
    store.path.with_suffix(".md").write_text(page(store.parts), encoding="utf-8")


if __name__ == "__main__":
    main()
