"""A wide table: 5,000 × 222 with a 770-arrow graph, released by ``moments`` at ε = 1 and 3, against the truth.

Run from the repository's root, with scikit-learn installed beside escudo::

    python benchmarks/wide.py --data DIR

``DIR`` holds ``neuropathic_pain/`` (the default is ``../shared/data``); without it nothing is measured, and a message
says so. ``--quick`` leaves out the learners and writes nothing. ``benchmarks/results/wide.json`` and ``wide.md`` are
written anew after each run. ``--keep DIR`` keeps what was done, so that a stopped benchmark goes on where it was, and
several calls (``--only``) may share it.

**Truth.** The rows of the neuropathic pain simulator (Tu et al. 2019) come without its numbers, so these are refitted:
a column is on with the largest of one probability per parent that is on, and off without one (no row contradicts that).
The probabilities are found by coordinate ascent on a grid, with a Beta prior of weight 2 centred on the column's rate
among rows with some parent on. From this truth are drawn a private table, a test table, and a reference of 50,000 rows.

**What is measured.** *Edge TV*: total variation of the two columns of an arrow, synthetic against reference, mean over
the 770. *Edge covariance error*: length of the error in their covariances, relative to the covariances (1 is
independence). *Accuracy* of a logistic regression and a random forest that learn 20 columns, drawn at random, from the
others on synthetic rows and are tested on 2,500 rows of the truth; *AUC* over those of the 20 with at least 1 % on.
Each seed takes its own 20 % of the arrows away; *fresh* seeds draw a private table of their own as well. Each fit runs
in a process of its own, on one thread: seconds and memory are for all of it, with imports, fitting and
sampling.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint8]
Floats = NDArray[np.float64]

SEED = 20_261_115  # of the tables drawn from the truth, the missing arrows, the learnt columns and the learners
SEEDS = (1, 2, 3)
FRESH_SEEDS = (300, 301, 302, 303, 304, 305)  # not looked at while repair was built
EPSILONS = (1.0, 3.0)
DELTA = 1e-5
ROWS = 5000
REFERENCE_ROWS = 50_000
TESTED_ROWS = 2500
LEARNT = 20
MISSING = 154  # of the 770 arrows
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
FILES = ("neuropathic_dag_gt.npy", "neuropathic_data_1000.csv")
RESULTS = Path(__file__).parent / "results"


# -- the truth


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """A simulator in which a column is on with the largest probability among its parents that are on."""

    arrows: NDArray[np.bool_]
    order: NDArray[np.int64]
    rates: Floats
    strengths: Floats

    @classmethod
    def refitted(cls, rows: Codes, arrows: NDArray[np.bool_]) -> Truth:
        """Return the simulator that explains ``rows`` best."""
        count = len(rows)
        grid = np.linspace(0.0025, 0.9975, 200)
        rates, strengths = np.zeros(len(arrows)), np.zeros(arrows.shape)
        for child in range(len(arrows)):
            parents = np.flatnonzero(arrows[:, child])
            on = rows[:, child].astype(np.float64)
            if not parents.size:
                rates[child] = (on.sum() + 0.5) / (count + 1)
                continue
            active = rows[:, parents].astype(bool)
            some = active.any(axis=1)
            assert not on[~some].any()
            active, on = active[some], on[some]
            rate = (on.sum() + 0.5) / (some.sum() + 1)
            prior = 2 * rate * np.log(grid) + 2 * (1 - rate) * np.log1p(-grid)
            found = np.full(parents.size, rate)
            for _ in range(30):
                before = found.copy()
                for place in range(parents.size):
                    others = np.where(np.arange(parents.size) == place, 0.0, found)
                    mine = active[:, place]
                    floor = (active[mine] * others).max(axis=1)
                    chance = np.maximum(floor[None, :], grid[:, None])
                    fit = (on[mine] * np.log(chance) + (1 - on[mine]) * np.log1p(-chance)).sum(axis=1) + prior
                    found[place] = grid[fit.argmax()]
                if (found == before).all():
                    break
            strengths[parents, child] = found
        return cls(arrows=arrows, order=_causal_order(arrows), rates=rates, strengths=strengths)

    def drawn(self, count: int, rng: np.random.Generator) -> Codes:
        """Return ``count`` independent rows."""
        rows = np.zeros((count, len(self.rates)), dtype=np.uint8)
        for child in self.order:
            parents = np.flatnonzero(self.arrows[:, child])
            chance = (
                (rows[:, parents] * self.strengths[parents, child]).max(axis=1) if parents.size else self.rates[child]
            )
            rows[:, child] = rng.random(count) < chance
        return rows


def _causal_order(arrows: NDArray[np.bool_]) -> NDArray[np.int64]:
    depth = np.zeros(len(arrows), dtype=np.int64)
    for _ in range(len(arrows)):
        deeper = np.array([depth[parents].max(initial=-1) + 1 for parents in arrows.T])
        if (deeper == depth).all():
            break
        depth = deeper
    return np.argsort(depth, kind="stable")


# -- one fit, in a process of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A generator with its options, and the graph it is given."""

    title: str
    generator: str
    options: Mapping[str, Any] = field(default_factory=dict)
    missing: bool = False
    learners: tuple[int, ...] = ()  # seeds whose rows the learners get
    seeds: tuple[int, ...] = SEEDS


METHODS = {
    "max": Method(title="moments, max", generator="moments", options={"form": "max"}, learners=SEEDS),
    "noisy-or": Method(title="moments, noisy-or", generator="moments", options={"form": "noisy-or"}),
    "logit": Method(title="moments, logit", generator="moments", learners=(1,)),
    "one-way": Method(title="one-way, max (no arrow measured)", generator="one-way", options={"form": "max"}),
    "independent": Method(title="independent", generator="independent"),
    "repair": Method(title="moments, max, repair", generator="moments", options={"form": "max", "repair": True}),
    "missing": Method(
        title="moments, max, 20 % of arrows missing", generator="moments", options={"form": "max"}, missing=True
    ),
    "missing repair": Method(
        title="moments, max, 20 % missing, repair",
        generator="moments",
        options={"form": "max", "repair": True},
        missing=True,
        learners=SEEDS,
    ),
    "fresh repair": Method(
        title="the same, six fresh tables and graphs",
        generator="moments",
        options={"form": "max", "repair": True},
        missing=True,
        seeds=FRESH_SEEDS,
    ),
}


def fit(job: Mapping[str, Any], folder: Path) -> None:
    """Release the seed's rows as ``synthetic.npy``, and write down what it took."""
    started = time.perf_counter()
    import polars as pl

    import escudo
    from escudo.privacy import MemoryAccount

    rows, arrows = np.load(folder / f"rows{job['seed']}.npy"), np.load(folder / f"{job['graph']}.npy")
    names = [f"x{place:03}" for place in range(rows.shape[1])]
    schema = escudo.Schema.from_dict({name: [0, 1] for name in names})
    edges = [(names[cause], names[effect]) for cause, effect in np.argwhere(arrows)]
    table = escudo.PrivateTable(pl.DataFrame(rows, schema=names), schema, MemoryAccount(relation="add_remove"))
    model = escudo.synthesize(
        table,
        escudo.CausalGraph.from_edges(edges, nodes=names),
        epsilon=job["epsilon"],
        delta=DELTA,
        generator=job["generator"],
        relation="add_remove",
        public_rows=len(rows),
        seed=job["seed"],
        **job["options"],
    )
    np.save(folder / "synthetic.npy", model.sample(len(rows), seed=job["seed"]).to_numpy().astype(np.uint8))
    added = set(model.graph.edges) - set(edges)
    used = resource.getrusage(resource.RUSAGE_SELF)
    record = {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_mb": used.ru_maxrss / 1024,
        "epsilon_spent": model.guarantee.epsilon,
        "l2_clip_norm": model.details["l2_clip_norm"],
        "added": sorted([names.index(cause), names.index(effect)] for cause, effect in added),
    }
    (folder / "record.json").write_text(json.dumps(record))


def run_fit(job: Mapping[str, Any], folder: Path) -> tuple[Codes, dict[str, Any]]:
    command = [sys.executable, __file__, "--fit", json.dumps(job), "--work", str(folder)]
    subprocess.run(command, check=True, env={**os.environ, **THREADS})
    return np.load(folder / "synthetic.npy"), json.loads((folder / "record.json").read_text())


# -- the scores


class Scores:
    """What synthetic rows are compared with: moments of the reference, and test rows for the learners."""

    def __init__(self, truth: Truth, reference: Codes, tested: Codes, learnt: NDArray[np.int64]):
        self._edges = tuple(np.argwhere(truth.arrows).T)
        self._pairs = np.triu_indices(len(truth.arrows), 1)
        self._once, self._twice = _moments(reference)
        self._tested, self._learnt = tested, learnt

    def fidelity(self, made: Codes) -> dict[str, float]:
        """Return how far the rows' one-way and two-way laws are from the reference."""
        once, twice = _moments(made)

        def variation(pairs: Any) -> float:
            a, b = pairs
            both = (twice - self._twice)[pairs]
            first, second = (once - self._once)[a] - both, (once - self._once)[b] - both
            cells = np.abs([both, first, second, both + first + second])
            return 50 * float(cells.sum(axis=0).mean())

        def covariance_error(pairs: Any) -> float:
            found, true = ((t - np.outer(o, o))[pairs] for o, t in ((once, twice), (self._once, self._twice)))
            return float(np.linalg.norm(found - true) / np.linalg.norm(true))

        return {
            "one_way": 100 * float(np.abs(once - self._once).mean()),
            "tv_all": variation(self._pairs),
            "tv_edges": variation(self._edges),
            "cov_edges": covariance_error(self._edges),
            "cov_all": covariance_error(self._pairs),
        }

    def learners(self, made: Codes) -> dict[str, float]:
        """Return what is learnt from the rows, tested on the truth."""
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import roc_auc_score

        scores: dict[str, list[float]] = {}
        for column in self._learnt:
            others = np.arange(made.shape[1]) != column
            on = self._tested[:, column]
            for name, learner in (
                ("logistic", LogisticRegression(max_iter=300)),
                ("forest", RandomForestClassifier(100, random_state=SEED, n_jobs=1)),
            ):
                chance = np.full(len(on), float(made[0, column]))
                if made[:, column].min() < made[:, column].max():
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        learner.fit(made[:, others], made[:, column])
                    chance = learner.predict_proba(self._tested[:, others])[:, 1]
                scores.setdefault(f"{name}_accuracy", []).append(100 * float(((chance > 0.5) == on).mean()))
                if on.mean() >= 0.01:
                    scores.setdefault(f"{name}_auc", []).append(100 * float(roc_auc_score(on, chance)))
        return {name: statistics.fmean(values) for name, values in scores.items()}


def _moments(rows: Codes) -> tuple[Floats, Floats]:
    numbers = rows.astype(np.float64)
    return numbers.mean(axis=0), numbers.T @ numbers / len(numbers)


# -- running, and writing down


def measured(data: Path, kept: Path, *, only: Sequence[str], quick: bool) -> Iterator[dict[str, Any]]:
    """Yield all that is known, after each run."""
    graph, raw = (data / "neuropathic_pain" / name for name in FILES)
    arrows = np.load(graph, allow_pickle=False).astype(bool)
    truth = Truth.refitted(np.loadtxt(raw, delimiter=",", skiprows=1, dtype=np.uint8), arrows)
    rng = np.random.default_rng(SEED)
    rows, tested, fresh = truth.drawn(ROWS, rng), truth.drawn(TESTED_ROWS, rng), truth.drawn(ROWS, rng)
    reference = truth.drawn(REFERENCE_ROWS, rng)
    scores = Scores(truth, reference, tested, rng.choice(arrows.shape[1], LEARNT, replace=False))

    def scored(made: Codes, *, learners: bool) -> dict[str, float]:
        return scores.fidelity(made) | (scores.learners(made) if learners and not quick else {})

    def keep(file: str, run: Mapping[str, Any]) -> dict[str, Any]:
        print(json.dumps(run), flush=True)
        (kept / f"{file}.json").write_text(json.dumps(run))
        ranked = ["real", "fresh", *METHODS]
        runs = [json.loads(path.read_text()) for path in kept.glob("*.json")]
        runs.sort(key=lambda r: (ranked.index(r["method"]), r.get("epsilon", 0), r.get("seed", 0)))
        return {**facts, "setting": setting(), "runs": runs}

    facts = {
        "data": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (graph, raw)},
        "seeds": {"tables, missing arrows, learners": SEED, "runs": SEEDS, "fresh": FRESH_SEEDS},
        "private_rows": ROWS,
        "columns": arrows.shape[1],
        "arrows": int(arrows.sum()),
        "delta": DELTA,
        "relation": "add_remove",
        "public_rows": True,
        "methods": {name: method.title for name, method in METHODS.items()},
    }
    for name, made in (("real", rows), ("fresh", fresh)):
        if not (kept / f"{name}.json").exists():
            yield keep(name, {"method": name, **scored(made, learners=True)})
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        np.save(folder / "true.npy", arrows)
        for seed in (*SEEDS, *FRESH_SEEDS):
            own = rng if seed in SEEDS else np.random.default_rng(seed)
            np.save(folder / f"rows{seed}.npy", rows if seed in SEEDS else truth.drawn(ROWS, own))
            missing = arrows.copy()
            missing[tuple(np.argwhere(arrows)[own.choice(arrows.sum(), MISSING, replace=False)].T)] = False
            np.save(folder / f"missing{seed}.npy", missing)
        for seed, name, epsilon in itertools.product((*SEEDS, *FRESH_SEEDS), only, EPSILONS):
            method, file = METHODS[name], f"{name},{epsilon},{seed}"
            if seed not in method.seeds or (kept / f"{file}.json").exists():
                continue
            job = {
                "generator": method.generator,
                "options": dict(method.options),
                "graph": f"missing{seed}" if method.missing else "true",
                "epsilon": epsilon,
                "seed": seed,
            }
            made, record = run_fit(job, folder)
            true = sum(bool(arrows[cause, effect]) for cause, effect in record["added"])
            record["added"], record["added_true"] = len(record["added"]), true
            scored_now = scored(made, learners=seed in method.learners)
            yield keep(file, {"method": name, "epsilon": epsilon, "seed": seed, **record, **scored_now})


def setting() -> dict[str, Any]:
    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
        return done.stdout.strip()

    processor = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            processor = line.split(":", 1)[1].strip()
            break
    changed = bool(git("status", "--porcelain", "--", "../src"))
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": (git("rev-parse", "--short", "HEAD") or "none") + (" with uncommitted changes" if changed else ""),
        "processor": processor,
        "cores": os.cpu_count(),
        "load_at_end": os.getloadavg()[0],
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def mean(runs: Sequence[Mapping[str, Any]], method: str, epsilon: float | None, figure: str) -> float:
    """Return the mean of a figure over the seeds that have it; NaN if none has."""
    found = [r[figure] for r in runs if (r["method"], r.get("epsilon")) == (method, epsilon) and figure in r]
    return statistics.fmean(found) if found else float("nan")


def targets(payload: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """Return what was aimed at, what was measured, and whether it was reached."""
    runs, found = payload["runs"], []
    for epsilon, (variation, covariance, points) in {1.0: (1.3, 0.15, 0.3), 3.0: (1.0, 0.11, 0.1)}.items():
        tv, cov = (mean(runs, "max", epsilon, figure) for figure in ("tv_edges", "cov_edges"))
        found.append((f"ε = {epsilon:g}: edge TV ≤ {variation:g} %", f"{tv:.2f} %", tv <= variation))
        found.append((f"ε = {epsilon:g}: edge covariance error ≤ {covariance:g}", f"{cov:.3f}", cov <= covariance))
        for learner in ("logistic", "forest"):
            figure = f"{learner}_accuracy"
            lost = mean(runs, "real", None, figure) - mean(runs, "max", epsilon, figure)
            found.append((f"ε = {epsilon:g}: {learner} loses ≤ {points:g} pp", f"{lost:+.2f} pp", lost <= points))
    for learner in ("logistic", "forest"):
        lost = mean(runs, "real", None, f"{learner}_auc") - mean(runs, "max", 1.0, f"{learner}_auc")
        found.append((f"ε = 1: AUC of {learner} loses ≤ 2", f"{lost:+.2f}", lost <= 2))
    for name, note in (("missing repair", ""), ("fresh repair", ", six fresh tables and graphs")):
        every = [r["cov_edges"] for r in runs if (r["method"], r.get("epsilon")) == (name, 1.0)]
        repaired, worst = mean(runs, name, 1.0, "cov_edges"), max(every, default=0.0)
        aim = f"ε = 1: repair, edge covariance error ≤ 0.22{note}"
        found.append((aim, f"{repaired:.3f} (worst {worst:.3f})", repaired <= 0.22))
    fitted = [r for r in runs if "seconds" in r] or [dict.fromkeys(("seconds", "cpu_seconds", "peak_mb"), 0.0)]
    slowest, processor, largest = (max(r[figure] for r in fitted) for figure in ("seconds", "cpu_seconds", "peak_mb"))
    told = f"{processor:.1f} s of processor time at most, {slowest:.1f} s by the clock of a shared machine"
    found.append(("every run < 15 s of one processor", told, processor < 15))
    found.append(("every run < 1 GB", f"{largest:.0f} MB at most", largest < 1000))
    return [(aim, got, met) for aim, got, met in found if "nan" not in got]


def page(payload: Mapping[str, Any]) -> str:
    facts, runs = payload["setting"], payload["runs"]
    lines = [
        "# A wide table",
        "",
        f"{facts['date']}, commit {facts['commit']}, seeds {', '.join(map(str, SEEDS))}. {facts['processor']}, "
        f"{facts['cores']} cores, load {facts['load_at_end']:.1f}. Python {facts['python']}. "
        "Made by `python benchmarks/wide.py`.",
        "",
        f"{payload['private_rows']:,} × {payload['columns']} binary, {payload['arrows']} arrows, drawn from the "
        "refitted neuropathic pain simulator; add/remove neighbours, "
        f"δ = {payload['delta']:g}, number of rows public. Data: "
        + ", ".join(f"`{name}` sha256 {digest[:12]}…" for name, digest in payload["data"].items())
        + ".",
        "",
        "| target | measured | met |",
        "|---|---|---|",
        *(f"| {aim} | {got} | {'yes' if met else '**no**'} |" for aim, got, met in targets(payload)),
        "",
        "Errors in percent (one-way: mean absolute error of a share; TV: total variation of pairs); covariance errors "
        "relative to the covariances. Accuracy: change against learning from the private rows, in points; AUC in "
        "percent. Means over seeds; each seed has its own 20 % of missing arrows. Seconds are wall time of the whole "
        "process, on one thread of a shared machine, then processor time.",
        "",
        "| ε | method | one-way | TV all | TV edges | cov edges | cov all | logistic | forest | AUC | AUC forest "
        "| added (true) | s | CPU-s | MB |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    rows: list[tuple[str, float | None, str]] = [
        ("real", None, "the private rows"),
        ("fresh", None, "a fresh draw of the truth"),
    ]
    rows += [(name, epsilon, title) for epsilon in EPSILONS for name, title in payload["methods"].items()]
    return "\n".join([*lines, *(_line(runs, *row) for row in rows)]) + "\n"


def _line(runs: Sequence[Mapping[str, Any]], method: str, epsilon: float | None, title: str) -> str:
    def shown(figure: str, digits: int) -> str:
        number = mean(runs, method, epsilon, figure)
        return "" if number != number else f"{number:.{digits}f}"

    def change(figure: str) -> str:
        number = mean(runs, method, epsilon, figure) - mean(runs, "real", None, figure)
        return "" if number != number else f"{number:+.2f}"

    added = shown("added", 0) and f"{shown('added', 0)} ({shown('added_true', 0)})"
    cells = [
        "" if epsilon is None else f"{epsilon:g}",
        title,
        *(shown(figure, 2) for figure in ("one_way", "tv_all", "tv_edges", "cov_edges", "cov_all")),
        *(change(figure) for figure in ("logistic_accuracy", "forest_accuracy")),
        *(shown(figure, 1) for figure in ("logistic_auc", "forest_auc")),
        added,
        *(shown(figure, 1) for figure in ("seconds", "cpu_seconds")),
        shown("peak_mb", 0),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with neuropathic_pain/")
    parser.add_argument("--quick", action="store_true", help="leave out the learners, and write nothing")
    parser.add_argument("--keep", type=Path, help="a folder that keeps finished runs")
    parser.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS), help="methods to run")
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit:
        fit(json.loads(options.fit), options.work)
        return
    if not all((options.data / "neuropathic_pain" / name).exists() for name in FILES):
        print(f"{options.data}/neuropathic_pain is not here; nothing measured. Say where it is with --data.")
        return
    kept = options.keep or Path(tempfile.mkdtemp(prefix="wide-"))
    kept.mkdir(parents=True, exist_ok=True)
    payload = None
    for payload in measured(options.data, kept, only=options.only, quick=options.quick):
        if not options.quick:
            RESULTS.mkdir(exist_ok=True)
            (RESULTS / "wide.json").write_text(json.dumps(payload, indent=1) + "\n")
            (RESULTS / "wide.md").write_text(page(payload))
    print("All runs asked for are there already." if payload is None else page(payload))


if __name__ == "__main__":
    main()
