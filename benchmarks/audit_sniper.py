"""DP-Sniper's published table beside ours: the same mechanisms, a twentieth of the samples.

Run ``python benchmarks/audit_sniper.py`` (about two and a half hours on one core: seven audits of each mechanism, or
more); it writes ``benchmarks/results/audit_sniper.json`` and ``audit_sniper.md``. DP-Sniper's and StatDP's figures are
those in the logs of DP-Sniper's repository (commit ee087b2): over 10 million samples for each of three stages of its
search and 200 million for its final bound, at confidence 0.9. Ours are the anytime-valid and the split-sample
Clopper-Pearson bound from at most 10 million samples in all, search for the event included, at the same confidence.
Each mechanism has one pair of inputs, with as many queries as DP-Sniper's; where the law is known, one with a large
ceiling, chosen beforehand. Numbers are rounded to a grid of 2^-10, as if they were real numbers, because
floating-point Laplace noise has no finite ε at all; the row "float Laplace" is about that.

Options: ``--runs`` for fewer samples (writes nothing below 10 million); ``--only`` for some rows and ``--seeds`` for
some of the seeds, which then join the results of the others.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from audit_ceilings import (
    argmax_law,
    both,
    by_ratio,
    ceiling,
    laplace_law,
    maximum_law,
    power,
    signs_law,
    snapped_law,
    sparse_vector_law,
)

from escudo.auditing import audit, museum
from escudo.auditing.museum._piece import Pair, Piece, answers_of, snap
from escudo.privacy import Guarantee

SEEDS = tuple(20_261_200 + i for i in range(101))
AUDITS = 7  # with as many of the seeds,
LUCK = (0.02, 0.95)  # or all, where the chance of the best possible method lies between these
RUNS = 10_000_000
CONFIDENCE = 0.9
FAR = -300.0  # an answer so low that it is never the largest nor above a threshold
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True, kw_only=True)
class _Rappor(Piece):
    """Bits 0 to 3 or bits 4 to 7 of 20 are set, and each is reported through two randomised responses (or one)."""

    f: float = 0.75
    p: float = 0.45
    q: float = 0.55
    once: bool = False

    @property
    def claim(self) -> Guarantee:
        return Guarantee(epsilon=self.true_epsilon)

    @property
    def true_epsilon(self) -> float:
        """Eight bits differ, and each has the same two ratios."""
        high, low = self.chances
        return 8 * math.log(high / low)

    @property
    def chances(self) -> tuple[float, float]:
        """The chances of reporting 1 for a bit that is set, and for one that is not."""
        kept = (1 - self.f / 2, self.f / 2)
        if self.once:
            return kept
        return tuple(share * self.q + (1 - share) * self.p for share in kept)  # type: ignore[return-value]

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> np.ndarray:
        high, low = self.chances
        chance = np.full(20, low)
        chance[4 * int(dataset) : 4 * int(dataset) + 4] = high
        return (rng.random((count, 20)) < chance).astype(np.int8)


@dataclass(frozen=True, kw_only=True)
class _ParallelLaplace(Piece):
    """One number, released 20 times with noise of its own."""

    epsilon: float = 0.1
    copies: int = 20

    @property
    def claim(self) -> Guarantee:
        return Guarantee(epsilon=self.epsilon)

    @property
    def true_epsilon(self) -> float:
        return self.epsilon

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> np.ndarray:
        return snap(float(dataset) + rng.laplace(scale=self.copies / self.epsilon, size=(count, self.copies)))


@dataclass(frozen=True, kw_only=True)
class _PrefixSum(Piece):
    """Running sums of noisy answers, all of which may move."""

    epsilon: float = 0.1

    @property
    def claim(self) -> Guarantee:
        return Guarantee(epsilon=self.epsilon)

    @property
    def true_epsilon(self) -> float:
        return 10 * self.epsilon

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> np.ndarray:
        answers = answers_of(dataset)
        noisy = snap(answers + rng.laplace(scale=1 / self.epsilon, size=(count, answers.size)))
        return np.cumsum(noisy, axis=1)


@dataclass(frozen=True, kw_only=True)
class _Both(Piece):
    """Two mechanisms on the same answers."""

    parts: tuple[Piece, Piece]

    @property
    def claim(self) -> Guarantee:
        return Guarantee(epsilon=0.2)

    @property
    def true_epsilon(self) -> float:
        return math.inf

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> np.ndarray:
        return np.concatenate([part.batch(dataset, count, rng) for part in self.parts], axis=1)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A mechanism, inputs, and what others found: the better of DP-Sniper's two classifiers, and StatDP's event."""

    name: str
    piece: Piece
    pair: Pair
    true: float
    sniper: float
    statdp: float | None
    ceiling: float | None  # the largest median bound of any method
    chance: float | None  # of any method to reach what DP-Sniper found


def up(below: int, above: int, *, high: float = 0.0, queries: int = 10) -> Pair:
    """Return answers where "below" and then "above" become less likely; the rest lie far below."""
    far = queries - below - above
    return (0.0,) * below + (high,) * above + (FAR,) * far, (1.0,) * below + (high - 1,) * above + (FAR - 1,) * far


def rows() -> list[Row]:
    e = {"epsilon": 0.1}
    cells = ((1, 1, 1, 1, 1), (2, 1, 1, 1, 1))
    shifted = ((0.0,) * 5, (1.0,) * 5)
    rising = ((0.0,) * 7 + (5.0, 10.0, 12.0), (1.0,) * 7 + (6.0, 11.0, 13.0))
    crossed, level, numeric = up(8, 1, high=10.0), up(6, 1), up(5, 5, high=10.0)
    two = _Both(parts=(museum.SparseVector3(**e), museum.SparseVector4(**e)))
    low = ((-14.0, 0, 0, 0, 0), (-15.0, 1, 1, 1, 1))
    even = ((2.0, 0, FAR, FAR, FAR), (1.0, 1, FAR, FAR, FAR))
    table: list[tuple[str, Piece, Pair, float, tuple[float | None, float], float | None]] = [
        ("Laplace", museum.Histogram(**e), (0, 1), 0.1, (0.0968, 0.0976), 0.0998),
        ("truncated geometric", museum.GeometricNaturalLog(**e), (2, 3), 0.1178, (0.1156, 0.1155), 0.1169),
        ("hist 1", museum.Histogram(**e), cells, 0.1, (0.0978, 0.0977), 0.0994),
        ("hist 2", museum.HistogramInverted(**e), cells, 10.0, (4.602, 4.601), 10.0),
        ("noisy max 1", museum.NoisyMaxLaplace(**e), low, 0.1, (0.0923, 0.0925), 0.0921),
        ("noisy max 2", museum.NoisyMaxExponential(**e), even, 0.1, (0.0975, 0.0979), 0.0997),
        ("noisy max 3", museum.NoisyMaxValueLaplace(**e), shifted, 0.25, (0.2478, 0.2488), 0.199),
        ("noisy max 4", museum.NoisyMaxValueExponential(**e), shifted, math.inf, (0.346, 0.353), 0.199),
        ("SVT1", museum.SparseVector1(**e), crossed, 0.1, (0.0858, 0.0858), 0.030),
        ("SVT2", museum.SparseVector2(**e), crossed, 0.1, (0.0859, 0.0852), 0.041),
        ("SVT3", museum.SparseVector3(**e), rising, 0.5, (0.172, 0.182), 0.179),
        ("SVT4", museum.SparseVector4(**e), level, 0.175, (0.1687, 0.1696), 0.1719),
        ("SVT5", museum.SparseVector5(**e), up(5, 5, high=1.0), math.inf, (1.761, 1.761), 14.31),
        ("SVT6", museum.SparseVector6(**e), up(5, 5), 0.5, (0.272, 0.270), 0.322),
        ("NumericalSVT", museum.NumericSparseVector(**e), numeric, 0.1, (0.0343, 0.0345), None),
        ("RAPPOR", _Rappor(), (0, 1), 0.4, (0.293, 0.301), 0.242),
        ("one-time RAPPOR", _Rappor(f=0.95, once=True), (0, 1), 0.8, (0.598, 0.600), 0.471),
        ("20 Laplace", _ParallelLaplace(), (0, 1), 0.1, (0.0350, 0.0299), 0.0135),
        ("SVT3+4", two, rising, 0.675, (0.261, 0.262), 0.196),
        ("PrefixSum", _PrefixSum(), ((0.0,) * 10, (1.0,) * 10), 1.0, (0.504, 0.577), 0.352),
        ("float Laplace", museum.NaiveLaplace(**e), (0.0, 1.0), math.inf, (None, 0.2521), None),
        ("snapping Laplace", museum.SnappingLaplace(**e), (7.0, 8.0), 0.1, (None, 0.0979), None),
    ]
    laws = {
        "Laplace": [laplace_law(mean, 10) for mean in (0, 1)],
        "truncated geometric": [museum.GeometricNaturalLog(**e).law(count) for count in (2, 3)],
        "hist 1": [laplace_law(mean, 10) for mean in (0, 1)],
        "noisy max 1": [argmax_law(side, 20) for side in low],
        "noisy max 2": [argmax_law(side, 20, exponential=True) for side in even],
        "noisy max 3": [maximum_law(side, 20) for side in shifted],
        "SVT1": [sparse_vector_law(side, 20, 40) for side in crossed],
        "SVT2": [sparse_vector_law(side, 20, 40) for side in crossed],
        "SVT3": [sparse_vector_law(side, 20, 20, compared=True) for side in rising],
        "SVT4": [sparse_vector_law(side, 40, 40 / 3) for side in level],
        "NumericalSVT": [sparse_vector_law(side, 30, 60, value_scale=30) for side in numeric],
        "RAPPOR": [signs_law(8, 0.05, second=second) for second in (False, True)],
        "one-time RAPPOR": [signs_law(8, 0.1, second=second) for second in (False, True)],
        "20 Laplace": [signs_law(20, 0.005, second=second) for second in (False, True)],
        "PrefixSum": [signs_law(10, 0.1, second=second) for second in (False, True)],
        "SVT3+4": [
            both(sparse_vector_law(side, 20, 20, compared=True), sparse_vector_law(side, 40, 40 / 3)) for side in rising
        ],
        "snapping Laplace": [snapped_law(mean, 10, grid=16, bound=100) for mean in (7, 8)],
    }
    how = {"runs": RUNS, "confidence": CONFIDENCE}
    found = []
    for name, piece, pair, true, sniper, statdp in table:
        theirs = max(value for value in sniper if value)
        known = by_ratio((laws[name][0], laws[name][1])) if name in laws else None
        most = None if known is None else ceiling(known, **how)
        chance = None if known is None else power(known, theirs, **how)
        row = {"name": name, "piece": piece, "pair": pair, "true": true, "sniper": theirs, "statdp": statdp}
        found.append(Row(**row, ceiling=most, chance=chance))
    return found


def measure(row: Row, runs: int, seed: int) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    found = audit(
        row.piece,
        claim=row.piece.claim,
        pairs=[row.pair],
        confidence=CONFIDENCE,
        max_runs=runs,
        stop_early=False,
        seed=seed,
        progress=False,
    )
    return {
        "epsilon_lower": found.epsilon_lower,
        "clopper_pearson": found.clopper_pearson,
        "runs": found.runs,
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "event": str(found.witness.y.get("event", found.witness.y)) if found.witness else "",
    }


def machine() -> dict[str, object]:
    return {
        "commit": commit(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }


def commit() -> str:
    """Return the commit that was measured, and whether the working tree differs from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=ROOT, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    changed = git("status", "--porcelain", "--", "src/escudo/auditing", "benchmarks/audit_sniper.py")
    return (git("rev-parse", "--short", "HEAD") or "uncommitted") + (" with uncommitted changes" if changed else "")


def show(value: float | None, digits: int = 4) -> str:
    if value is None:
        return "-"
    return "∞" if math.isinf(value) else f"{value:.{digits}g}" if value < 1 else f"{value:.3f}"


def heading(title: str, machine: dict[str, object], seeds: str) -> list[str]:
    """Return the first lines of a page: its title and what it was measured on."""
    facts = ", ".join(f"{key}: {value}" for key, value in machine.items())
    return [f"# {title}", "", f"{facts}, {seeds}.", ""]


def markdown(result: dict[str, Any]) -> str:
    seeds = f"seeds: {result['seeds'][0]} and following"
    lines = [
        *heading("DP-Sniper's table, with a twentieth of the samples", result["machine"], seeds),
        f"Lower bounds on ε at confidence {result['confidence']}. DP-Sniper: the better of its two classifiers, over "
        "230 million samples; StatDP: what 200 million fresh samples confirm of its event. escudo: the medians of "
        f"{AUDITS} audits, or of {len(result['seeds'])} where the chance below lies between {LUCK[0]} and {LUCK[1]}, "
        f"of at most {result['runs']:,} samples each in all, search included: the bound "
        "that may be read at any time, and the Clopper-Pearson bound for that fixed number, which is the kind of bound "
        "that DP-Sniper gives; reached: how many of the audits have a bound for fixed n that is at least DP-Sniper's. "
        "Ceiling: the median bound of the best possible method that knows both laws beforehand, on these inputs with "
        "that many samples; chance: with which that method reaches DP-Sniper's figure (derivation in "
        "`benchmarks/audit_ceilings.py`). Each mechanism has one pair of inputs, with as many queries as DP-Sniper's; "
        "where the laws are known, one with a large ceiling, chosen from them beforehand (DP-Sniper tried several "
        "patterns of inputs); what others would give is in `audit_inputs.md`. Where the chance is near one half, even "
        "the best method is above DP-Sniper's figure in every second audit only. Bold: at least DP-Sniper's. CPU: of "
        "one audit.",
        "",
        *([result["history"], ""] if "history" in result else []),
        "| mechanism | true ε | StatDP | DP-Sniper | escudo | escudo, fixed n | reached | ceiling | chance | samples | "
        "CPU s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in result["rows"]:
        found, theirs = list(row["found"].values()), row["sniper"]
        typical = {key: median(one[key] for one in found) for key in ("epsilon_lower", "clopper_pearson", "cpu_s")}
        shown = [
            f"**{show(typical[key])}**" if typical[key] >= theirs else show(typical[key])
            for key in ("epsilon_lower", "clopper_pearson")
        ]
        reached = sum(one["clopper_pearson"] >= theirs for one in found)
        lines.append(
            f"| {row['name']} | {show(row['true'])} | {show(row['statdp'])} | {show(theirs)} | {' | '.join(shown)} | "
            f"{reached} of {len(found)} | {show(row['ceiling'])} | "
            f"{'-' if row['chance'] is None else format(row['chance'], '.2f')} | "
            f"{max(one['runs'] for one in found):,} | {typical['cpu_s']:.0f} |"
        )
    return "\n".join(lines) + "\n"


Found = dict[str, dict[str, dict[str, Any]]]


def earlier_results() -> dict[str, Any]:
    """Return the results that are there already."""
    file = RESULTS / "audit_sniper.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def merged(found: Found, earlier: dict[str, Any], table: list[Row]) -> Found:
    """Return results by row and seed: new ones among earlier ones with these seeds."""
    known = {row["name"]: row["found"] for row in earlier.get("rows", [])}
    every = {row.name: {**known.get(row.name, {}), **found.get(row.name, {})} for row in table}
    seeds = {row.name: {str(seed) for seed in seeds_of(row)} for row in table}
    kept = {name: {s: one for s, one in sorted(every[name].items()) if s in seeds[name]} for name in every}
    return {name: results for name, results in kept.items() if results}


def seeds_of(row: Row) -> tuple[int, ...]:
    """Return the seeds of a row's audits: more of them where luck decides."""
    return SEEDS if row.chance is not None and LUCK[0] < row.chance < LUCK[1] else SEEDS[:AUDITS]


def described(row: Row, found: dict[str, Any]) -> dict[str, Any]:
    published = {"true": row.true, "sniper": row.sniper, "statdp": row.statdp}
    published |= {"ceiling": row.ceiling, "chance": row.chance}
    return {"name": row.name, **published, "found": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=lambda text: int(float(text)), default=RUNS)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seeds", nargs="*", type=int, choices=range(len(SEEDS)), default=range(len(SEEDS)))
    options = parser.parse_args()
    found: Found = {}
    table = rows()
    for row in [row for row in table if not options.only or row.name in options.only]:
        for seed in (SEEDS[i] for i in options.seeds if SEEDS[i] in seeds_of(row)):
            result = measure(row, options.runs, seed)
            found.setdefault(row.name, {})[str(seed)] = result
            print(
                f"{row.name:20} true {show(row.true):>6}  DP-Sniper {show(row.sniper):>6}  "
                f"escudo {show(result['epsilon_lower']):>7}  CP {show(result['clopper_pearson']):>7}  "
                f"{result['runs']:>10,}  {result['wall_s']:.0f} s  {result['cpu_s']:.0f} s CPU  {result['event'][:60]}",
                flush=True,
            )
    earlier = earlier_results() if options.runs >= RUNS else {}
    known = merged(found, earlier, table)
    shown = [described(row, known[row.name]) for row in table if row.name in known]
    full = {"seeds": list(SEEDS), "machine": machine(), "confidence": CONFIDENCE, "runs": options.runs, "rows": shown}
    full |= {"history": earlier["history"]} if "history" in earlier else {}  # told by hand: how the figures came about
    if options.runs >= RUNS:
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps(full, indent=2).replace("Infinity", '"inf"')
        (RESULTS / "audit_sniper.json").write_text(text + "\n", encoding="utf-8")
        (RESULTS / "audit_sniper.md").write_text(markdown(full), encoding="utf-8")
    print(markdown(full))


if __name__ == "__main__":
    main()
