"""How often does ``escudo.direction`` give a verdict on pairs without a direction of kinds that nobody had thought of?

Run ``python experiments/unseen_verdicts.py`` from the repository's root (some minutes of one core). Writes
``results/unseen_verdicts.json`` and ``results/unseen_verdicts.md``; ``--quick`` is a smoke run that writes nothing.

Settings of the votes were chosen on nine kinds of common causes (``verdicts.py``). The four kinds here were written
after that and looked at once; nothing was chosen on them, and none was changed or left out:

* **thresholds**: a hidden cause moves each column by a step or two where it passes a threshold of that column's own,
  and the size of that column's noise with it.
* **feedback**: each column acts on the other by a curve that levels off; what is seen is their equilibrium.
* **selection**: columns that do not act on each other, of which rows are in the table if a curve of one plus a curve of
  the other, and some noise, are large enough.
* **both ways**: in half of the rows the first column causes the second, in the other half the second the first; by the
  same mechanism in half of the tables, by two in the others.

Given the blocks' own margin the noise is known exactly, so a share of verdicts is its exact expectation over the noise.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from pairs import RESULTS, describe
from simulated_pairs import Floats, Pair, column_of, curve_of, standard
from verdicts import CHOSEN, Case, blocks_of, chances, look

SEED = 20_261_119
ROWS, TABLES, EPSILONS = (500, 2_000, 10_000), 200, (1.0, 10.0)
MOST = 0.10


def thresholds(rng: np.random.Generator, n: int) -> Pair:
    """Draw two columns that a hidden cause moves in steps."""
    cause = column_of(rng, n)
    drawn = []
    for _ in range(2):
        value = np.zeros(n)
        size = np.full(n, np.exp(rng.uniform(np.log(0.25), np.log(1.1))))
        for _ in range(int(rng.integers(1, 3))):
            above = cause > np.quantile(cause, rng.uniform(0.1, 0.9))
            value = value + rng.uniform(0.5, 1.5) * above
            size = size * np.exp(rng.uniform(-0.8, 0.8) * above)
        drawn.append(standard(value) + size * column_of(rng, n))
    return drawn[0], drawn[1]


def feedback(rng: np.random.Generator, n: int) -> Pair:
    """Draw two columns that act on each other, in equilibrium."""
    bends, places = rng.uniform(0.3, 3, 2), rng.uniform(-1, 1, 2)
    forces = rng.uniform(0.2, 0.9, 2) * rng.choice([-1, 1]) / bends  # each slope below 1, so there is one equilibrium
    own = [np.exp(rng.uniform(np.log(0.3), np.log(1.5))) * column_of(rng, n) for _ in range(2)]
    x, y = own
    for _ in range(300):
        x = own[0] + forces[0] * np.tanh(bends[0] * (y - places[0]))
        y = own[1] + forces[1] * np.tanh(bends[1] * (x - places[1]))
    return x, y


def selection(rng: np.random.Generator, n: int) -> Pair:
    """Draw two columns that decide together which rows are there."""
    kept = rng.uniform(0.2, 0.7)
    many = int(1.2 * n / kept) + 100
    x, y = column_of(rng, many), column_of(rng, many)
    score = curve_of(rng, x) + rng.uniform(0.5, 1) * curve_of(rng, y) + rng.uniform(0.1, 0.6) * rng.normal(size=many)
    inside = np.flatnonzero(score > np.quantile(score, 1 - kept))[:n]
    return x[inside], y[inside]


def both_ways(rng: np.random.Generator, n: int) -> Pair:
    """Draw rows of which half go one way round and half the other."""

    def made(rows: int) -> Pair:
        cause, size = column_of(rng, rows), np.exp(rng.uniform(np.log(0.25), np.log(1.1)))
        return cause, standard(standard(curve_of(rng, cause)) + size * column_of(rng, rows))

    if rng.random() < 0.5:
        cause, effect = made(2 * n)
        (x, v), (y, u) = np.split(cause, 2), np.split(effect, 2)
    else:
        (x, y), (v, u) = made(n), made(n)
    forth = rng.random(n) < 0.5
    return np.where(forth, x, u), np.where(forth, y, v)


KINDS: dict[str, Callable[[np.random.Generator, int], Pair]] = {
    "thresholds": thresholds,
    "feedback": feedback,
    "selection": selection,
    "both ways": both_ways,
}


def cases(kind: str, rows: int, count: int) -> Iterator[tuple[Case, Floats]]:
    """Yield pairs of a kind, always the same."""
    rng = np.random.default_rng([SEED, rows, *kind.encode()])
    for _ in range(count):
        yield Case(kind, rows), np.column_stack(KINDS[kind](rng, rows))


def run(quick: bool) -> dict[str, Any]:
    """Return the share of tables with a verdict, by kind, rows and ε."""
    out: dict[str, Any] = {}
    for kind in KINDS:
        for rows in ROWS[: 1 if quick else None]:
            found = []
            for case, values in cases(kind, rows, 5 if quick else TABLES):
                for blocks in {blocks_of(rows, epsilon, CHOSEN[0]) for epsilon in EPSILONS}:
                    look(case, values, blocks, 0)
                found.append([chances(case, CHOSEN, epsilon).sum() for epsilon in EPSILONS])
            shares = np.mean(found, axis=0)
            out.setdefault(kind, {})[str(rows)] = dict(zip(map(str, EPSILONS), shares.tolist(), strict=True))
            print(kind, rows, shares, flush=True)
    return out


def report(result: dict[str, Any]) -> str:
    """Return the page."""
    found = result["found"]
    worst = {kind: max(max(by.values()) for by in by_rows.values()) for kind, by_rows in found.items()}
    most = max(worst, key=worst.__getitem__)
    heads = " | ".join(f"{int(rows):,} rows, ε = {float(epsilon):g}" for rows in map(str, ROWS) for epsilon in EPSILONS)
    lines = [
        f"| {kind} | " + " | ".join(f"{100 * share:.1f}" for by in by_rows.values() for share in by.values()) + " |"
        for kind, by_rows in found.items()
    ]
    machine = result["machine"]
    chance = 200 * np.sqrt(max(worst[most], 0.01) * (1 - worst[most]) / TABLES)
    return f"""# Verdicts on pairs without a direction, of kinds that were written last

{machine["date"]}, commit {machine["commit"]}, seed {result["seed"]}; {machine["cpu"]}, Python {machine["python"]},
numpy {machine["numpy"]}; {result["seconds"]:.0f} CPU s. Made by `python experiments/unseen_verdicts.py`, once; nothing
was chosen on these kinds, and what they are is in its first lines.

| target | measured | met |
|---|---|---|
| at most 10 % of tables get a verdict, in every kind | {100 * worst[most]:.1f} % ({most}) | \
{"yes" if worst[most] <= MOST else "**no**"} |

Verdicts, in % of {TABLES} tables; chance moves the largest share by ± {chance:.0f} points (95 %).

| kind | {heads} |
|---|{"---:|" * len(ROWS) * len(EPSILONS)}
{chr(10).join(lines)}
"""


def main() -> None:
    """Run, and write the results."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="a smoke run that writes nothing")
    arguments = options.parse_args()
    start = time.process_time()
    found = run(arguments.quick)
    result = {"seed": SEED, "seconds": time.process_time() - start, "machine": describe(), "found": found}
    if not arguments.quick:
        (RESULTS / "unseen_verdicts.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "unseen_verdicts.md").write_text(report(result), encoding="utf-8")


if __name__ == "__main__":
    main()
