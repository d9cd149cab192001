"""Which cause-effect pairs do votes get right, at which ε? Real pairs, and simulated families apart from training.

Run ``python experiments/pairs.py --data DIR`` from the repository's root (some minutes; ``DIR`` holds
``tuebingen_odd/``, by default ``../shared/data``). Writes ``results/pairs.json`` and ``results/pairs.md``. ``--quick``
is a smoke run on few pairs that writes nothing.

Every block procedure votes as ``escudo.direction`` would seat its records, for several public shuffles. Given the
blocks' own margin the noise is known exactly, so *accuracy* is the exact expectation over it: no draws. A real pair
counts with the weight of its source. *With abstention* uses the default rule; *answered* is the weighted share of
answers, and the accuracy is that among them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from simulated_pairs import SIMULATIONS, held_out_pair

from escudo.orientation import PROCEDURES
from escudo.orientation._blocks import cast
from escudo.orientation._curves import FAMILIES, draw_pair
from escudo.orientation._direction import Batch
from escudo.orientation._votes import seating_of, threshold_of
from escudo.privacy import Neighbours

SEED = 20_261_115
SHUFFLES = 5
EPSILONS = (0.1, 0.3, 1.0, 3.0)
FEWEST_ROWS = 500
RESULTS = Path(__file__).parent / "results"
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pair:
    """One pair: the first column causes the second."""

    name: str
    family: str
    weight: float
    values: Floats


@dataclass(frozen=True, slots=True)
class Chances:
    """What the noise makes of a margin: the chances of a right and a wrong answer."""

    right: float
    wrong: float


@dataclass(frozen=True, slots=True)
class Rule:
    """How a margin is read: the noise on it, and how large it must be; None if none could ever be sure enough."""

    scale: float
    threshold: float | None


def chances(margin: int, rule: Rule, threshold: float) -> Chances:
    """Return the exact chances that the released margin exceeds the threshold on the right and on the wrong side."""
    ratio = np.exp(-1 / rule.scale)

    def tail(k: float) -> float:  # P(Z >= k)
        whole = int(np.ceil(k))
        return float(ratio**whole / (1 + ratio)) if whole > 0 else 1 - float(ratio ** (1 - whole) / (1 + ratio))

    above = np.floor(threshold) + 1
    return Chances(right=tail(above - margin), wrong=tail(above + margin))


def real_pairs(folder: Path) -> tuple[list[Pair], str]:
    """Return the pairs with one cause and one effect and enough rows, and the hash of their files."""
    pairs, digest = [], hashlib.sha256()
    for line in (folder / "pairmeta.txt").read_text(encoding="utf-8").splitlines():
        number, first, last, start, end, weight = line.split()
        file = folder / f"pair{int(number):04d}.txt"
        if first != last or start != end or not file.exists():
            continue
        digest.update(file.read_bytes())
        values = np.loadtxt(file)[:, [int(first) - 1, int(start) - 1]]
        values = values[np.isfinite(values).all(axis=1)]
        if len(values) >= FEWEST_ROWS:
            pairs.append(Pair(number, "real pairs", float(weight), values))
    return pairs, digest.hexdigest()


def simulated_pairs(each: int) -> Iterator[Pair]:
    """Yield pairs of the held-out families: 1,000 rows of random mechanisms, 4,000 of additive ones."""
    rng = np.random.default_rng(SEED)
    for family in SIMULATIONS:
        for number in range(each):
            yield Pair(f"{family} {number}", family, 1.0, np.column_stack(held_out_pair(rng, 1000, family)))
    for family in FAMILIES:
        for number in range(max(1, each // 5)):
            values = np.column_stack(draw_pair(family, 4000, rng))
            yield Pair(f"{family} {number}", f"additive, {family}", 1.0, values)


def margins(pair: Pair, epsilon: float, shuffle: int, names: Sequence[str]) -> tuple[dict[str, int], Rule]:
    """Return the exact margin of every procedure for x->y, and the rule that would read it; columns swap at random."""
    seating = seating_of(Neighbours(rows=len(pair.values)), epsilon=epsilon, shuffle=shuffle)
    low, high = pair.values.min(axis=0), pair.values.max(axis=0)
    scaled = (pair.values - low) / np.where(high > low, high - low, 1.0)
    swapped = np.random.default_rng([SEED, shuffle, len(pair.values)]).random() < 0.5
    records = seating.gather([Batch(scaled[:, ::-1] if swapped else scaled, None)], 2)
    sign = -1 if swapped else 1
    found = {name: sign * int(cast(PROCEDURES[name].prefer, records).sum()) for name in names}
    scale = seating.sensitivity / epsilon
    return found, Rule(scale, threshold_of(seating.blocks, scale, None))


def measured(pairs: Sequence[Pair], names: Sequence[str], shuffles: int) -> list[dict[str, Any]]:
    """Return one row per pair, ε and procedure."""
    rows = []
    for pair in pairs:
        for epsilon in EPSILONS:
            found = [margins(pair, epsilon, shuffle, names) for shuffle in range(shuffles)]
            for name in names:
                always = [chances(margin[name], rule, 0.0) for margin, rule in found]
                shy = [
                    Chances(0.0, 0.0) if rule.threshold is None else chances(margin[name], rule, rule.threshold)
                    for margin, rule in found
                ]
                rows.append(
                    {
                        "pair": pair.name,
                        "family": pair.family,
                        "weight": pair.weight,
                        "rows": len(pair.values),
                        "epsilon": epsilon,
                        "procedure": name,
                        "blocks": found[0][1].blocks,
                        "margins": [margin[name] for margin, _ in found],
                        "accuracy": float(np.mean([c.right + (1 - c.right - c.wrong) / 2 for c in always])),
                        "right": float(np.mean([c.right for c in shy])),
                        "wrong": float(np.mean([c.wrong for c in shy])),
                    }
                )
    return rows


def summed(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return weighted accuracy, and accuracy and rate of answers with abstention."""
    weights = np.array([row["weight"] for row in rows])
    total = weights.sum()
    right, wrong = (float((weights * [row[key] for row in rows]).sum() / total) for key in ("right", "wrong"))
    return {
        "accuracy": float((weights * [row["accuracy"] for row in rows]).sum() / total),
        "answered": right + wrong,
        "accuracy_if_answered": right / max(right + wrong, 1e-12),
    }


def groups(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows by what the report shows together."""
    found: dict[str, list[dict[str, Any]]] = {"real pairs, N ≥ 500": [], "real pairs, N ≥ 1000": []}
    for row in rows:
        if row["family"] == "real pairs":
            found["real pairs, N ≥ 500"].append(row)
            if row["rows"] >= 1000:
                found["real pairs, N ≥ 1000"].append(row)
        else:
            found.setdefault(row["family"], []).append(row)
            if row["family"].startswith("additive"):
                found.setdefault("additive, all seven", []).append(row)
    return found


def summary(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Return the figures of every group, ε and procedure."""
    return {
        group: {
            f"{epsilon:g}": {
                name: summed([row for row in part if row["epsilon"] == epsilon and row["procedure"] == name])
                for name in names
            }
            for epsilon in EPSILONS
        }
        for group, part in groups(rows).items()
        if part
    }


def interval(rows: Sequence[dict[str, Any]], draws: int = 2000) -> tuple[float, float]:
    """Return a 90 % interval of the weighted accuracy, by drawing pairs again with replacement."""
    rng = np.random.default_rng(SEED)
    weights, right = (np.array([row[key] for row in rows]) for key in ("weight", "accuracy"))
    drawn = rng.integers(0, len(rows), (draws, len(rows)))
    means = (weights[drawn] * right[drawn]).sum(axis=1) / weights[drawn].sum(axis=1)
    low, high = np.quantile(means, (0.05, 0.95))
    return float(low), float(high)


def describe() -> dict[str, Any]:
    """Return when, from what and where this was made."""
    here: dict[str, Any] = {"cwd": RESULTS.parent, "capture_output": True, "text": True, "check": False}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], **here)
    changed = subprocess.run(["git", "status", "--porcelain", "--", "../src"], **here)
    clean = commit.returncode == 0 and not changed.stdout.strip()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit.stdout.strip() if clean else "uncommitted",
        "cpu": _cpu(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _cpu() -> str:
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text(encoding="utf-8").splitlines() if listed.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _table(found: dict[str, Any], group: str, names: Sequence[str]) -> str:
    heads = " | ".join(f"ε = {epsilon}" for epsilon in found[group])
    lines = [f"| {group} | {heads} |", "|---|" + "---|" * len(found[group])]
    for name in names:
        cells = []
        for part in found[group].values():
            figures = part[name]
            shy = f"{figures['accuracy_if_answered']:.2f} @ {figures['answered']:.2f}" if figures["answered"] else "–"
            cells.append(f"{figures['accuracy']:.3f} ({shy})")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def report(result: dict[str, Any]) -> str:
    """Return the result as a page of Markdown."""
    machine, found, names = result["machine"], result["found"], result["procedures"]
    tables = "\n\n".join(_table(found, group, names) for group in found)
    low, high = result["interval"]
    default = found["real pairs, N ≥ 500"]["1"]["committee"]
    singles = [
        f"| {row['pair']} | {row['rows']} | {row['weight']:g} | {row['blocks']} | {row['margins']} |"
        for row in result["rows"]
        if row["epsilon"] == 1.0
    ]
    listed = "\n".join(
        ["| pair | rows | weight | blocks | margins, one per shuffle |", "|---|---|---|---|---|", *singles]
    )
    return f"""# Which way do pairs go? Votes at ε = 0.1 to 3

{machine["date"]}, commit {machine["commit"]}, seed {result["seed"]}, {result["shuffles"]} public shuffles, data
{result["data_hash"][:16]}. {machine["cpu"]}, Python {machine["python"]}, numpy {machine["numpy"]};
{result["seconds"]:.0f} s. Made by `python experiments/pairs.py`.

Weighted accuracy, exact over the noise, ties one half; in brackets accuracy among answers @ share answered under the
default abstention. On the real pairs at ε = 1 the default is right with {default["accuracy"]:.3f} (90 % interval over
pairs {low:.2f} to {high:.2f}), with abstention {default["accuracy_if_answered"]:.3f} at {default["answered"]:.2f}.

{tables}

## The real pairs one by one (ε = 1, default; above 0 is right)

{listed}

**Reading.** The odd-numbered pairs are those on which the committees of three and five were chosen (design note
"pairs"), so their figures carry that selection. The combiner has seen no real pair, but how much it counts beside the
five signs (1 + 32/n, n records in a block) was chosen among about fifteen settings with these pairs and the simulated
families in view. For the real pairs that choice is mostly about one of them: pair 69, an eighth of the weight, on
which scores and combiner disagree. There are few sources among these pairs; differences of 0.1 between procedures are
chance. Margins far from 0 with the wrong sign exist: blocks may agree that a model of noise fits better the wrong way
round. The simulated families were written apart from those the combiner was trained on, but by the same hands.
"""


def main() -> None:
    """Run, and write the results."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--data", type=Path, default=Path(__file__).parents[1] / ".." / "shared" / "data")
    options.add_argument("--quick", action="store_true", help="a smoke run that writes nothing")
    given = options.parse_args()
    start = time.perf_counter()
    names = ("committee", "committee-5", "trained") if given.quick else tuple(PROCEDURES)
    real, digest = real_pairs(given.data / "tuebingen_odd")
    rows = measured(real[:4] if given.quick else real, names, 1 if given.quick else SHUFFLES)
    rows += measured(list(simulated_pairs(2 if given.quick else 100)), names, 1)
    default = [r for r in rows if r["family"] == "real pairs" and r["epsilon"] == 1.0 and r["procedure"] == "committee"]
    result = {
        "seed": SEED,
        "shuffles": SHUFFLES,
        "data_hash": digest,
        "machine": describe(),
        "seconds": time.perf_counter() - start,
        "procedures": names,
        "found": summary(rows, names),
        "interval": interval(default),
        "rows": [row for row in rows if row["family"] == "real pairs" and row["procedure"] == "committee"],
    }
    text = report(result)
    if given.quick:
        print(text)
        return
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "pairs.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "pairs.md").write_text(text, encoding="utf-8")
    print(f"Wrote {RESULTS / 'pairs.md'}")


if __name__ == "__main__":
    main()
