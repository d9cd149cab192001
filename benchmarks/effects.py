"""Exact effects against plain enumeration: how cost grows with the number of people.

Run ``python benchmarks/effects.py``; it writes ``benchmarks/results/effects.json`` and ``effects.md``. Enumeration goes
through every background and follows the equations to every outcome, as the definition says; both must give the same
answer.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
from _made import made, told

from escudo.causal import SEM
from escudo.effects import CountMechanism, associative, definitions, effect, mechanism_of

SEED = 20240501
SMALL = range(2, 13)
LARGE = (50, 100, 300, 1000)
CHAIN = 200
EPSILON = 1.0
REPEATS = 3
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def survey(n: int) -> SEM:
    """Return a noisy count of n people, the first of whom affects the second."""
    return SEM.parse(
        "R1 ~ 0: 0.9, 1: 0.1\nR2 := R1\n"
        + (f"R[3..{n}] ~ 0: 0.9, 1: 0.1\n" if n > 2 else "")
        + f"D[i in 1..{n}] := R[i]\n"
        + f"O := truncated_geometric(count(D[1..{n}] = 1), epsilon = {EPSILON})\n"
    )


def alike(n: int) -> SEM:
    """Return a noisy count of n people who are alike."""
    return SEM.parse(
        f"R[1..{n}] ~ 0: 0.9, 1: 0.1\nD[i in 1..{n}] := R[i]\n"
        + f"O := truncated_geometric(count(D[1..{n}] = 1), epsilon = {EPSILON})\n"
    )


def local(n: int) -> SEM:
    """Return a sum of n answers, each with noise of its own."""
    return SEM.parse(
        f"R[1..{n}] ~ 0: 0.9, 1: 0.1\nD[i in 1..{n}] := randomised_response(R[i], epsilon = {EPSILON})\n"
        + f"O := sum(D[1..{n}])\n"
    )


def chain(n: int, rng: np.random.Generator) -> SEM:
    """Return a chain of n variables with three values and random tables."""
    equations = {f"X{i}": (f"X{i - 1}", rng.dirichlet([0.3] * 3, size=3), (0, 1, 2)) for i in range(1, n)}
    return SEM.build(exogenous={"X0": {0: 0.2, 1: 0.3, 2: 0.5}}, equations=equations)


def enumerated(sem: SEM, of: str, on: str) -> float:
    """Return the effect of ``of`` on ``on``, by following the equations from every background to every outcome."""
    tables = {name: (sem.parents(name), sem.equation(name).table.tolist()) for name in sem.endogenous}
    others = [name for name in sem.exogenous if name != of]
    best = 0.0
    for background in product(*(range(len(sem.range(name))) for name in others)):
        laws = []
        for x in range(len(sem.range(of))):
            worlds = [({**dict(zip(others, background, strict=True)), of: x}, 1.0)]
            for name, (parents, table) in tables.items():
                longer = []
                for values, weight in worlds:
                    row = table
                    for parent in parents:
                        row = row[values[parent]]
                    longer += [({**values, name: v}, weight * p) for v, p in enumerate(row) if p > 0]
                worlds = longer
            law = [0.0] * len(sem.range(on))
            for values, weight in worlds:
                law[values[on]] += weight
            laws.append(law)
        best = max(best, *(math.log(a / b) for one in laws for two in laws for a, b in zip(one, two, strict=True)))
    return best


def timed(work: Callable[[], object], repeats: int = REPEATS) -> tuple[float, object]:
    """Return the shortest time of a few runs, and the result."""
    best, result = math.inf, None
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def against_enumeration() -> list[dict[str, float]]:
    rows = []
    for n in SMALL:
        sem = survey(n)
        quick, found = timed(lambda sem=sem: effect(sem, "R1", "O").epsilon)
        slow, expected = timed(lambda sem=sem: enumerated(sem, "R1", "O"))
        assert math.isclose(found, expected, rel_tol=1e-9), n
        rows.append({"n": n, "escudo_s": quick, "enumeration_s": slow, "epsilon": found})
    return rows


def at_scale() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for n in LARGE:
        sem, same = survey(n), alike(n)
        for what, work in {
            "effect of R1, all populations": lambda sem=sem: effect(sem, "R1", "O").epsilon,
            "effect of R1, own population": lambda sem=sem: effect(sem, "R1", "O", population="own").epsilon,
            "association of D1, own population": lambda sem=sem: associative(sem, "D1", "O").epsilon,
            "ten definitions of the count": lambda same=same: _definitions(same),
        }.items():
            seconds, result = timed(work)
            rows.append({"what": what, "n": n, "seconds": seconds, "epsilon": result})
    for n in (50, 100, 200):
        sem = local(n)
        seconds, result = timed(lambda sem=sem: effect(sem, "R1", "O").epsilon)
        rows.append(
            {"what": "randomised response, effect of R1 on the sum", "n": n, "seconds": seconds, "epsilon": result}
        )
    sem = chain(CHAIN, np.random.default_rng(SEED))
    for start in (0, CHAIN - 10):
        seconds, result = timed(lambda start=start: effect(sem, f"X{start}", f"X{CHAIN - 1}").epsilon)
        what = f"chain of {CHAIN}, effect of X{start} on the last"
        rows.append({"what": what, "n": CHAIN, "seconds": seconds, "epsilon": result})
    return rows


def _definitions(sem: SEM) -> float:
    mechanism, population = mechanism_of(sem)
    if not isinstance(mechanism, CountMechanism):
        raise AssertionError("expected a count")
    return definitions(mechanism, population)[3].epsilon


def markdown(result: dict[str, object]) -> str:
    lines = ["# Exact effects against plain enumeration", ""]
    facts = result["machine"]
    assert isinstance(facts, dict)
    lines += [f"{told(facts)}, numpy {facts['numpy']}. Made by `python benchmarks/effects.py`.", ""]
    lines += [
        "Effect of one person, who affects another, on a noisy count of n people (worst case over all populations).",
        "",
    ]
    lines += ["| n | escudo, s | enumeration, s | times faster |", "|--:|--:|--:|--:|"]
    for row in result["enumeration"]:  # type: ignore[attr-defined]
        ratio = row["enumeration_s"] / row["escudo_s"]
        lines.append(f"| {row['n']} | {row['escudo_s']:.4f} | {row['enumeration_s']:.4f} | {ratio:,.1f} |")
    lines += ["", "Where enumeration cannot go:", "", "| what | n | seconds | ε |", "|---|--:|--:|--:|"]
    for row in result["scale"]:  # type: ignore[attr-defined]
        lines.append(f"| {row['what']} | {row['n']} | {row['seconds']:.3f} | {row['epsilon']:.6g} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    result: dict[str, object] = {
        "seed": SEED,
        "machine": made(seed=SEED, numpy=np.__version__),
        "enumeration": against_enumeration(),
        "scale": at_scale(),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "effects.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    (RESULTS / "effects.md").write_text(markdown(result), encoding="utf-8")
    print(markdown(result))


if __name__ == "__main__":
    main()
