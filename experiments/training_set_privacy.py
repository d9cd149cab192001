"""Training-set privacy with ranks and interquartile ranges: from how many rows on is there a verdict?

Run ``python experiments/training_set_privacy.py`` from the repository's root; it takes a minute and writes
``experiments/results/training_set_privacy.json`` and ``.md``. *Private Causal Inference*, sections 5.1 and 5.3: n
private records train kernel ridge regressions, m public ones are scored. Ranks are released as they are if the training
set is far from one where a rank could change (Algorithm 13 of Dwork and Roth), log interquartile ranges by
propose-test-release. ε = 2 and δ = 1e-6 are totals of the answer.

For each of seven additive noise models (``escudo.orientation._curves``), drawn here from the seed below, and for n up
to 10¹²: the probability over the noise that there is an answer (closed form: a distance and a threshold with Laplace
noise) and that it is right. Regressions are fitted on 20,000 records, beyond which they hardly change, while the
sensitivity of a residual is that of n. λ is the one of four with the most answers, which favours the method.

**Both halves private**, where the paper has no rank score: ``method="gap"`` draws its regressions from a noisy
histogram of one half and scores the other with the tight sensitivities of ranks. Verdicts of ``escudo.direction``.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np
import polars as pl
from _paper import SEED, Store, header

from escudo.orientation import direction
from escudo.orientation._curves import FAMILIES, draw_pair
from escudo.orientation._gap import probability_of_direction
from escudo.orientation._paper import distance_to_instability, drift, residuals, two_scores
from escudo.orientation._scores import interquartile_range, log_iqr_with_drift
from escudo.table import PrivateTable, Schema

EPSILON, DELTA = 2.0, 1e-6
ROWS = tuple(10**power for power in range(2, 13))
TESTED = (20, 100, 500, 2000)
LAMBDAS = (0.03, 0.1, 0.3, 1.0)
FITTED = 20_000
WHOLE = (500, 2_000, 8_000, 32_000)
SCHEMA = Schema.from_dict({name: {"type": "numeric", "lower": -1, "upper": 1} for name in "xy"})


def passed(distances: tuple[int, ...], epsilon: float, delta: float, share: float) -> float:
    """Return the probability that a test of propose-test-release passes, for the budget of one released number."""
    tests = len(distances)
    scale = tests / ((1 - share) * epsilon)
    least = 1 + scale * math.log(tests / (2 * delta))
    return 1 - math.prod(1 - _above(least - distance, scale) for distance in distances)


def _above(threshold: float, scale: float) -> float:
    tail = 0.5 * math.exp(-abs(threshold) / scale)
    return tail if threshold > 0 else 1 - tail


def ranks(score: str, n: int, m: int, found: Any, lam: float, constants: str) -> tuple[float, float]:
    """Return the probability of an answer, and that it is there and right."""
    change = drift(n, lam, constants)
    each = []
    for values in (found.of_y, found.of_x):
        far = 1 + distance_to_instability(float(np.min(np.diff(np.sort(values)))), change, constants)
        each.append(passed((far,), EPSILON / 2, DELTA / 2, 1e-3))
    forward, backward = two_scores(score, found)
    answered = each[0] * each[1]
    return answered, answered * (1.0 if backward > forward else 0.5 if backward == forward else 0.0)


def ranges(n: int, m: int, found: Any, lam: float, constants: str) -> tuple[float, float]:
    """Return the same for interquartile ranges, whose noise does not fall with n."""
    change, answered = drift(n, lam, constants), 1.0
    logs = {name: math.log(max(interquartile_range(getattr(found, name)), 1e-3)) for name in ("x", "of_y", "y", "of_x")}
    for values in (found.of_y, found.of_x):
        read = log_iqr_with_drift(values, lower=-2.0, upper=2.0, width=1.0, drift=change, values_private=False)
        answered *= passed(read.distances, EPSILON / 2, DELTA / 2, 1 / 3)
    margin = logs["y"] + logs["of_x"] - logs["x"] - logs["of_y"]
    return answered, answered * probability_of_direction(margin, 3 * 2 / EPSILON, noises=2)


def training_set(score: str, m: int, constants: str, draws: int) -> dict[str, list[float]]:
    """Return the curve over n: answers, and right ones among them, means over families and draws; at the best λ."""
    rng = np.random.default_rng([SEED, m, len(score)])
    total = np.zeros((len(LAMBDAS), len(ROWS), 2))
    for family in FAMILIES:
        for _ in range(draws):
            test, train = draw_pair(family, m, rng), draw_pair(family, FITTED, rng)
            for place, lam in enumerate(LAMBDAS):
                found = residuals(train, test, regularisation=lam)
                for number, n in enumerate(ROWS):
                    way = (
                        ranges(n, m, found, lam, constants)
                        if score == "iqr"
                        else ranks(score, n, m, found, lam, constants)
                    )
                    total[place, number] += way
    total /= draws * len(FAMILIES)
    best = total[..., 0].argmax(axis=0)
    chosen = total[best, np.arange(len(ROWS))]
    return {
        "answered": [round(float(share), 4) for share in chosen[:, 0]],
        "right": [round(float(right / max(share, 1e-12)), 4) for share, right in chosen],
        "regularisation": [LAMBDAS[place] for place in best],
    }


def both_halves(score: str, rows: int, draws: int) -> dict[str, Any]:
    """Return how often escudo's own gap method answers, and is right, with all rows private."""
    answered, right, asked = 0, 0, 0
    for number, family in enumerate(FAMILIES):
        for draw in range(draws):
            rng = np.random.default_rng([SEED, rows, number, draw])
            pair = draw_pair(family, rows, rng)
            table = PrivateTable(pl.DataFrame({"x": pair.x, "y": pair.y}), SCHEMA)
            found = direction(
                table,
                "x",
                "y",
                epsilon=EPSILON,
                delta=DELTA if score == "iqr" else 0.0,
                method="gap",
                score=score,
                seed=draw,
            )
            asked += 1
            answered += found.verdict != "cannot tell"
            right += found.verdict == "x->y"
    return {"answered": answered / asked, "right": None if not answered else right / answered, "asked": asked}


def page(parts: dict[str, Any]) -> str:
    """Return the page of results."""
    lines = header("Training-set privacy: from how many rows on?", "training_set_privacy", parts)
    lines += [(__doc__ or "").split("\n\n", 1)[1].strip(), "", "## Answers, in % (and right among them)", ""]
    lines += [
        f"| score | m | constants | {' | '.join(f'n = 10^{round(math.log10(n))}' for n in ROWS)} |",
        "|---|---:|---|" + "---:|" * len(ROWS),
    ]
    for key, part in parts.items():
        if key.startswith("both"):
            continue
        score, m, constants = key.split("/")
        cells = [
            "0" if share < 0.0005 else f"{100 * share:.3g} ({100 * right:.0f})"
            for share, right in zip(part["answered"], part["right"], strict=True)
        ]
        lines.append(f"| {score} | {m} | {constants} | {' | '.join(cells)} |")
    lines += [
        "",
        "**Ranks** need the smallest gap of m residuals to be wider than a dozen records can move them. That gap falls "
        "with m², so that more public test records make it harder: a verdict in half of the cases takes about 10⁵ to "
        "10⁶ private rows at m = 20, where scores of so few records are right no more often than a coin; 10⁷ at m = "
        "100, 10⁸ at m = 500, 10⁹ to 10¹⁰ at m = 2,000. **Interquartile ranges** are released from about 10⁴ rows on, "
        "but with noise of scale 3 on numbers that differ by less than 1, which no number of rows makes smaller: "
        "right half of the time for every n. At 4,000 rows neither says anything.",
    ]
    halves = [key for key in parts if key.startswith("both")]
    lines += ["", "## Both halves private, by the gap of two scores", ""]
    lines += [
        f"| score | {' | '.join(f'{rows:,} rows' for rows in WHOLE)} |",
        "|---|" + "---:|" * len(WHOLE),
    ]
    for score in dict.fromkeys(key.split("/")[1] for key in halves):
        cells = []
        for rows in WHOLE:
            part = parts[f"both/{score}/{rows}"]
            right = "–" if part["right"] is None else f"{100 * part['right']:.0f}"
            cells.append(f"{100 * part['answered']:.0f} ({right})")
        lines.append(f"| {score} | {' | '.join(cells)} |")
    asked = next((parts[key]["asked"] for key in halves), 0)
    lines += [
        "",
        f"Verdicts in % of {asked} pairs, and right among them. So with the tight route ranks answer from 2,000 rows "
        "on with all rows private, no public ones needed; how often they are right is a matter of the score, not of "
        "privacy (`simulated_directions.md`).",
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure what is missing, and write the page."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--draws", type=int, default=4, help="of each family")
    options.add_argument("--again", action="store_true", help="forget what was measured")
    given = options.parse_args()
    store = Store("training_set_privacy", again=given.again)
    for score in ("spearman", "kendall", "iqr"):
        for m in TESTED:
            for constants in ("corrected", "paper"):
                key = f"{score}/{m}/{constants}"
                if key not in store.parts and not (score == "kendall" and constants == "paper"):
                    began = time.process_time()
                    store.put(key, training_set(score, m, constants, given.draws), seconds=time.process_time() - began)
    for score in ("spearman", "kendall", "iqr"):
        for rows in WHOLE:
            key = f"both/{score}/{rows}"
            if key not in store.parts:
                began = time.process_time()
                store.put(key, both_halves(score, rows, given.draws), seconds=time.process_time() - began)
    store.path.with_suffix(".md").write_text(page(store.parts), encoding="utf-8")


if __name__ == "__main__":
    main()
