"""Exact inference in structural equation models: tensor contraction against plain enumeration, n = 2..12 people.

Run ``python benchmarks/inference.py`` from the repository's root; it takes under a minute and writes
``benchmarks/results/inference.json`` and ``inference.md``. The model is a noisy count of people who influence each
other: answer i+1 is a randomised copy of answer i. The question is Pr[O | do(D2 = pos)]. Enumeration adds up all
worlds, 2^n answers times n+1 outputs, as the definition says; both must agree to 1e-9. Larger models show how far
contraction goes alone. Nothing is random, so there is no seed. Exits with 1 if answers differ or a larger model takes
2 seconds or more.

Option: ``--quick`` is a smoke run that writes nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from _made import made, told

from escudo.causal import SEM

PEOPLE = range(2, 13)
REPEATS = 3
TOLERANCE = 1e-9
LIMIT_S = 2.0
RESULTS = Path(__file__).parent / "results"


LARGER = {
    "noisy count of 1,000 people": (
        "R[1..1000] ~ neg: 0.9, pos: 0.1\nD[i in 1..1000] := R[i]\n"
        "O := truncated_geometric(count(D[1..1000] = pos), epsilon = 1)",
        {"D2": "pos"},
    ),
    "noisy count of 200 people who influence each other": (
        "D1 ~ neg: 0.9, pos: 0.1\nD[i in 2..200] := randomised_response(D[i-1], epsilon = 2)\n"
        "O := truncated_geometric(count(D[1..200] = pos), epsilon = 1)",
        {"D2": "pos"},
    ),
    "chain of 200 variables": (
        "D1 ~ neg: 0.9, pos: 0.1\nD[i in 2..200] := randomised_response(D[i-1], epsilon = 6)\nO := D200",
        {"D2": "pos"},
    ),
}


def answers(people: int) -> SEM:
    return SEM.parse(
        "D1 ~ neg: 0.9, pos: 0.1\n"
        f"D[i in 2..{people}] := randomised_response(D[i-1], epsilon = 2)\n"
        f"O := truncated_geometric(count(D[1..{people}] = pos), epsilon = 1)"
    )


def enumerate_worlds(sem: SEM, name: str, do: dict[str, str]) -> list[float]:
    """Sum the probability of every world, one after the other: the definition, without any cleverness."""
    ranges = [range(len(sem.range(variable))) for variable in sem.variables]
    place = {variable: position for position, variable in enumerate(sem.variables)}
    laws = [([place[axis] for axis in law.names], law.array) for law in sem.population]
    tables = [
        ([*(place[parent] for parent in sem.parents(variable)), place[variable]], sem.equation(variable).table)
        for variable in sem.endogenous
        if variable not in do
    ]
    fixed = {place[variable]: sem.position(variable, value) for variable, value in do.items()}
    for position, value in fixed.items():
        ranges[position] = range(value, value + 1)
    answer = [0.0] * len(sem.range(name))
    for world in product(*ranges):
        weight = 1.0
        for axes, table in (*laws, *tables):
            weight *= table[tuple(world[axis] for axis in axes)]
            if weight == 0.0:
                break
        answer[world[place[name]]] += weight
    return answer


def seconds(work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the least processor time of some runs, and the result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return best, result


def compare(people: int) -> dict[str, Any]:
    sem, do = answers(people), {"D2": "pos"}
    fast, law = seconds(lambda: sem.probability("O", do=do), REPEATS)
    slow, expected = seconds(lambda: enumerate_worlds(sem, "O", do), 1)
    difference = float(np.abs(law.array - np.array(expected)).max())
    return {"people": people, "contraction_s": fast, "enumeration_s": slow, "largest_difference": difference}


def reach(text: str, do: dict[str, str]) -> dict[str, float]:
    reading, sem = seconds(lambda: SEM.parse(text), 1)
    asking, law = seconds(lambda: sem.probability("O", do=do), REPEATS)
    return {"reading_s": reading, "question_s": asking, "total_probability": float(law.array.sum())}


def report(result: dict[str, Any]) -> str:
    machine = result["machine"]
    rows = "\n".join(
        f"| {row['people']} | {1000 * row['contraction_s']:.1f} | {1000 * row['enumeration_s']:.1f} "
        f"| {row['enumeration_s'] / row['contraction_s']:.1f} | {row['largest_difference']:.0e} |"
        for row in result["people"]
    )
    larger = "\n".join(
        f"| {name} | {row['reading_s']:.2f} | {row['question_s']:.2f} |" for name, row in result["larger"].items()
    )
    return f"""# Exact inference: contraction against enumeration

{told(machine)}, numpy {machine["numpy"]}.
Processor time, best of {REPEATS} (enumeration: one run). Made by `python benchmarks/inference.py`.

Noisy count of n people who influence each other, Pr[O given do(D2 = pos)]:

| n | contraction, ms | enumeration, ms | times as long | largest difference |
|---:|---:|---:|---:|---:|
{rows}

Contraction alone, beyond what can be enumerated (limit {LIMIT_S:g} s for the question):

| model | reading, s | question, s |
|---|---:|---:|
{larger}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smoke run that writes nothing")
    quick = parser.parse_args().quick
    result: dict[str, Any] = {
        "machine": made(numpy=np.__version__),
        "people": [compare(people) for people in (range(2, 7) if quick else PEOPLE)],
        "larger": {name: reach(text, do) for name, (text, do) in LARGER.items()},
    }
    sys.stdout.write(report(result))
    if not quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "inference.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        (RESULTS / "inference.md").write_text(report(result), encoding="utf-8")
    agree = all(row["largest_difference"] <= TOLERANCE for row in result["people"])
    quick_enough = all(row["question_s"] < LIMIT_S for row in result["larger"].values())
    return 0 if agree and quick_enough else 1


if __name__ == "__main__":
    sys.exit(main())
