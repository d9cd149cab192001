"""Could other inputs do better? The rows of DP-Sniper's table where even the best method reaches its figure by luck.

Run ``python benchmarks/audit_inputs.py`` (about two minutes on one core); it writes
``benchmarks/results/audit_inputs.json`` and ``audit_inputs.md``. For each such row, neighbouring inputs are searched
for those at which the best possible method, which knows both laws, reaches DP-Sniper's figure most often with ten
million samples (:mod:`audit_ceilings`): answers anywhere, each of which may move by up to 1. First the pattern that
sparse vectors are weakest for (some answers below, one above, the rest far below), then all answers and moves at once
from there on. It is a search, not a proof: larger chances may exist.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from audit_ceilings import Floats, by_ratio, maximum_law, power, sparse_vector_law
from audit_sniper import CONFIDENCE, FAR, RESULTS, RUNS, Row, heading, machine, rows
from scipy.optimize import differential_evolution

SEED = 20_261_300
LEVELS = (-100.0, 150.0)
NAMES = ("noisy max 3", "SVT1", "SVT4")  # SVT2 has the law of SVT1


@dataclass(frozen=True, slots=True)
class Inputs:
    """Answers, by how much each moves, and the chance of the best possible method there."""

    answers: list[float]
    moves: list[float]
    chance: float


def law_of(name: str) -> Callable[[Sequence[float]], Floats]:
    """Return the law of a mechanism's output, by its answers."""
    return {
        "noisy max 3": lambda answers: maximum_law(answers, 20),
        "SVT1": lambda answers: sparse_vector_law(answers, 20, 40),
        "SVT4": lambda answers: sparse_vector_law(answers, 40, 40 / 3),
    }[name]


def search(row: Row, start: Inputs, patterns: Sequence[Callable[[Floats], Floats]]) -> Inputs:
    """Return the best inputs that are found: answers and moves, from those of the table on."""
    law, queries = law_of(row.name), len(start.answers)

    def chance(both: Floats) -> float:
        pair = law(both[:queries]), law(both[:queries] + both[queries:])
        return power(by_ratio(pair), row.sniper, runs=RUNS, confidence=CONFIDENCE)

    best = np.array([*start.answers, *start.moves])
    found = chance(best)
    for pattern in patterns:

        def inverse(levels: Floats, pattern: Callable[[Floats], Floats] = pattern) -> float:
            return -chance(pattern(levels))

        result = differential_evolution(inverse, [LEVELS] * 2, seed=SEED, maxiter=15, popsize=8, polish=False)
        if -result.fun > found:
            best, found = pattern(result.x), -float(result.fun)
    bounds = [(FAR, LEVELS[1])] * queries + [(-1.0, 1.0)] * queries
    result = differential_evolution(
        lambda both: -chance(both), bounds, x0=best, seed=SEED, maxiter=60, popsize=4, polish=False, tol=0
    )
    if -result.fun > found:
        best, found = result.x, -float(result.fun)
    return Inputs(best[:queries].tolist(), best[queries:].tolist(), found)


def below_and_above(below: int, queries: int) -> Callable[[Floats], Floats]:
    """Return the pattern of answers that all lie at one level, one at another, and the rest far below."""

    def pattern(levels: Floats) -> Floats:
        far = queries - below - 1
        answers = [levels[0]] * below + [levels[1]] + [FAR] * far
        return np.array(answers + [1.0] * below + [-1.0] * (far + 1))

    return pattern


def measure(row: Row) -> dict[str, Any]:
    """Return the chance at the table's inputs and at the best that were found."""
    assert row.chance is not None
    first, second = (np.asarray(side, dtype=np.float64) for side in row.pair)
    start = Inputs(first.tolist(), (second - first).tolist(), row.chance)
    sparse = row.name.startswith("SVT")
    patterns = [below_and_above(k, first.size) for k in range(1, first.size)] if sparse else []
    best = search(row, start, patterns)
    return {
        "name": row.name,
        "sniper": row.sniper,
        "chance": row.chance,
        "best": best.chance,
        "answers": best.answers,
        "moves": best.moves,
    }


def markdown(result: dict[str, Any]) -> str:
    lines = [
        *heading("Inputs for the rows of DP-Sniper's table where luck decides", result["machine"], f"seed: {SEED}"),
        f"Chance: how often the best possible method, which knows both laws, has a bound of confidence {CONFIDENCE} "
        f"that is at least DP-Sniper's figure with {RUNS:,} samples: at the inputs of `audit_sniper.md`, and at the "
        "best that a search over answers and moves found. Below one half, no method's bounds have a median as large as "
        "the figure, at any inputs that were tried. SVT2 has the law of SVT1.",
        "",
        "| mechanism | DP-Sniper | chance | best found | at answers | moved by |",
        "|---|--:|--:|--:|---|---|",
    ]
    for row in result["rows"]:
        answers, moves = (" ".join(f"{value:.3g}" for value in row[key]) for key in ("answers", "moves"))
        lines.append(
            f"| {row['name']} | {row['sniper']} | {row['chance']:.3f} | {row['best']:.3f} | {answers} | {moves} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    table = [row for row in rows() if row.name in NAMES]
    result = {"machine": machine(), "seed": SEED, "rows": [measure(row) for row in table]}
    (RESULTS / "audit_inputs.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    text = markdown(result)
    (RESULTS / "audit_inputs.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
