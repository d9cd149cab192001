"""How good are neural generators under privacy: causal and not, against ``moments``, on the neuropathic pain table.

Run from the repository's root; needs jax, numpy, scipy and scikit-learn beside escudo's source and narwhals, and is
quick only where there are many cores or an accelerator::

    PYTHONPATH=src python3 benchmarks/neural_quality.py --data DIR [--out DIR] [--processes N] [--only METHOD ...]
        [--join FILE.json ...]

``DIR`` holds ``neuropathic_pain/`` (the default is ``../shared/data``). Tables and scores are those of ``wide.py``:
rows drawn from the simulator refitted on the public rows, add/remove neighbours, δ = 1e-5, the number of rows public.
Writes ``neural_quality.json`` and ``neural_quality.md`` into ``--out`` (``benchmarks/results`` by default). Runs that
the files of ``--join`` hold are kept and not done again, so that a stopped benchmark goes on, and several processes may
share the work; ``--page`` joins them without doing more.

**Methods.** The start of a training is fitted in a process of its own; all else is the generators' own code, with
seeded noise. *Condensed* is the paper's model: the 79 columns that cause something, and the 143 that do not; *plain* is
the variational autoencoder without a graph. Both come as in the paper (levels of single columns as the start, clip norm
1, samples of 500 rows, 1,500 steps) and started at ``moments``. ε = ∞ trains without noise and clipping.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import statistics
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from wide import FILES, SEED, Scores, Truth, setting

DELTA = 1e-5
INFINITY = math.inf
LARGEST = 100.0  # the ε of the start where there is to be none
SIZES = (5000, 1000)
SEEDS = (1, 2, 3, 4, 5)
EPSILONS = (1.0, 3.0, 12.0, INFINITY)
STEPS_WITHOUT = 6000  # steps of batches of 240 rows, without privacy
PAPER: dict[str, Any] = {"start": "levels", "start_share": 0.1, "pretraining": 0, "clip_norm": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A generator with its options, and how much of the graph it is told."""

    title: str
    generator: str
    graph: str = "full"
    options: Mapping[str, Any] = field(default_factory=dict)
    sizes: tuple[int, ...] = (5000, 1000)


METHODS = {
    "moments": Method(title="moments (no network)", generator="moments"),
    "moments condensed": Method(title="moments, condensed (no network)", generator="moments", graph="condensed"),
    "autoregressive": Method(title="autoregressive", generator="autoregressive"),
    "autoregressive hidden": Method(
        title="autoregressive, 4 hidden units a column", generator="autoregressive", options={"hidden": (4,)}
    ),
    "vae": Method(title="VAE on the full graph", generator="vae"),
    "condensed": Method(
        title="VAE, condensed, from moments",
        generator="vae",
        graph="condensed",
        options={"hidden": (64,), "direct": False},
    ),
    "plain": Method(title="VAE, no graph, from moments", generator="vae", graph="none"),
    "condensed as in the paper": Method(
        title="VAE, condensed, as in the paper",
        generator="vae",
        graph="condensed",
        options={**PAPER, "hidden": (64,), "direct": False},
    ),
    "plain as in the paper": Method(
        title="VAE, no graph, as in the paper", generator="vae", graph="none", options=PAPER
    ),
}


class CodesTable:
    """Rows of codes behind what generators ask of a private table: batches."""

    unit, max_rows_per_person = "row", None

    def __init__(self, codes: np.ndarray):
        self._codes = codes

    def batches(self, size: int, columns: object = None, *, encode: str = "codes") -> Iterator[np.ndarray]:
        """Yield the codes."""
        assert encode == "codes"
        yield from np.split(self._codes, range(size, len(self._codes), size))


class Ready:
    """A start that was fitted already, and the rows that were simulated from it."""

    def __init__(self, model: Any, prepared: Any):
        self._model, self._prepared = model, prepared
        self._simulated: dict[tuple[int, int], np.ndarray] = {}
        self.plan, self.design = prepared.plan, prepared.design

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def run(self, *_: object) -> Any:
        """Return the fitted start."""
        return self

    def codes(self, rows: int, *, seed: int) -> np.ndarray:
        """Return simulated rows, the same for the same seed."""
        if (rows, seed) not in self._simulated:
            self._simulated[rows, seed] = self._model.codes(rows, seed=seed)
        return self._simulated[rows, seed]


def graph_of(kind: str, arrows: np.ndarray, names: Sequence[str]) -> Any:
    from escudo.causal import CausalGraph

    if kind == "none":
        return None
    if kind == "full":
        return CausalGraph.from_edges([(names[a], names[b]) for a, b in np.argwhere(arrows)], nodes=names)
    causes = arrows.any(axis=1)
    groups = {
        "causes": [name for name, cause in zip(names, causes, strict=True) if cause],
        "effects": [name for name, cause in zip(names, causes, strict=True) if not cause],
    }
    return CausalGraph.from_edges([("causes", "effects")], groups=groups)


_PREPARED: dict[tuple[str, float, int], Any] = {}


def prepared_for(method: str, epsilon: float, rows: int, arrows: np.ndarray) -> Any:
    if (method, epsilon, rows) not in _PREPARED:
        _PREPARED[method, epsilon, rows] = _prepared(method, epsilon, rows, arrows)
    return _PREPARED[method, epsilon, rows]


def _prepared(method: str, epsilon: float, rows: int, arrows: np.ndarray) -> Any:
    from escudo.synthesis import prepare
    from escudo.table import Schema

    names = [f"x{place:03}" for place in range(len(arrows))]
    spec = METHODS[method]
    options = dict(spec.options)
    if "as in the paper" in method:
        options |= {"batch": 500 if rows >= 2500 else 200, "steps": 1500, "learning_rate": 2e-3}
    return prepare(
        Schema.from_dict({name: [0, 1] for name in names}),
        graph_of(spec.graph, arrows, names),
        generator=spec.generator,
        epsilon=min(epsilon, LARGEST),
        delta=DELTA,
        relation="add_remove",
        public_rows=rows,
        **options,
    )


def start_of(job: tuple[str, float, int, int], codes: np.ndarray, arrows: np.ndarray) -> tuple[Any, float]:
    """Fit what needs no accelerator: the whole of ``moments``, or the start of a training."""
    began = time.process_time()
    method, epsilon, rows, seed = job
    prepared = prepared_for(method, epsilon, rows, arrows)
    first = prepared if METHODS[method].generator == "moments" else prepared.start
    model = first.run(CodesTable(codes), purse_of(first.plan, first.plan.guarantee(), seed))
    return model, time.process_time() - began


def purse_of(plan: Any, guarantee: Any, seed: int) -> Any:
    from escudo.mechanisms import Purse
    from escudo.privacy import MemoryAccount

    rng = np.random.default_rng(seed)
    return Purse(MemoryAccount(relation="add_remove"), rng, plan=plan, guarantee=guarantee)


def start_key(job: tuple[str, float, int, int]) -> tuple[Any, ...]:
    """Return what the start of a job depends on: methods that share it fit it once."""
    method, *rest = job
    spec = METHODS[method]
    own = spec.options.get("start", "moments"), spec.options.get("start_share")
    return (spec.graph, spec.generator == "moments", *own, *rest)


def finished(job: tuple[str, float, int, int], start: Any, codes: np.ndarray, arrows: np.ndarray) -> Any:
    """Train from a fitted start."""
    method, epsilon, rows, seed = job
    if METHODS[method].generator == "moments":
        return start
    if math.isinf(epsilon):
        return without_privacy(prepared_for(method, epsilon, rows, arrows), start, codes)
    prepared = replace(prepared_for(method, epsilon, rows, arrows), start=start)
    return prepared.run(CodesTable(codes), purse_of(prepared.plan, start.guarantee, 1000 + seed))


class Rows:
    """The private rows themselves, where pre-training asks for simulated ones."""

    def __init__(self, codes: np.ndarray):
        self._codes = codes

    def codes(self, rows: int, *, seed: int) -> np.ndarray:
        """Return all rows, whatever was asked for."""
        return self._codes.astype(np.int64)


def without_privacy(prepared: Any, start: Any, codes: np.ndarray) -> Any:
    """Train on the rows as pre-training does: no clipping, no noise, as long as it takes."""
    from escudo.synthesis.neural import NeuralModel
    from escudo.synthesis.neural._start import parameters_of, pretrain

    network = prepared.network
    flat = pretrain(network, parameters_of(network, start), start, prepared.pretraining)
    arrays = network.layout.unflatten(flat.astype(np.float64))
    flat = pretrain(network, arrays, Rows(codes), STEPS_WITHOUT)
    return NeuralModel(
        schema=prepared.schema,
        graph=prepared.graph,
        network=network,
        parameters=network.layout.unflatten(flat.astype(np.float64)),
        guarantee=start.guarantee,
        generator=prepared.generator,
        plan=prepared.plan,
    )


def score(scores: Scores, made: np.ndarray, learners: bool) -> dict[str, float]:
    return scores.fidelity(made) | (scores.learners(made) if learners else {})


def measured(
    data: Path,
    *,
    processes: int,
    only: Sequence[str],
    seeds: Sequence[int],
    minutes: float,
    learn: bool,
    known: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    began = time.perf_counter()
    graph, raw = (data / "neuropathic_pain" / name for name in FILES)
    arrows = np.load(graph, allow_pickle=False).astype(bool)
    truth = Truth.refitted(np.loadtxt(raw, delimiter=",", skiprows=1, dtype=np.uint8), arrows)
    rng = np.random.default_rng(SEED)
    tables = {5000: truth.drawn(5000, rng)}
    tested, fresh = truth.drawn(2500, rng), truth.drawn(5000, rng)
    reference = truth.drawn(50_000, rng)
    scores = Scores(truth, reference, tested, rng.choice(arrows.shape[1], 20, replace=False))
    tables[1000] = truth.drawn(1000, rng)
    jobs = [
        (method, epsilon, rows, seed)
        for epsilon in EPSILONS
        for method in METHODS
        if not only or method in only
        for rows in METHODS[method].sizes
        for seed in seeds
        if (method, epsilon, rows, seed) not in {_key(run) for run in known}
    ]
    jobs.sort(key=lambda job: (job[3], -job[2], job[1], str(start_key(job))))  # by seed, so that all methods get some
    runs: list[dict[str, Any]] = []
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = {start_key(job): job for job in reversed(jobs)}
        starts = {
            key: pool.submit(start_of, waiting[key], tables[waiting[key][2]], arrows)
            for key in dict.fromkeys(map(start_key, jobs))
        }
        last: tuple[Any, Any] = (None, None)
        scored: list[tuple[dict[str, Any], Any]] = []
        for name, rows in (("real", tables[5000]), ("real 1000", tables[1000]), ("fresh", fresh)):
            if name not in {run["method"] for run in known}:
                scored.append(({"method": name}, pool.submit(score, scores, rows, learn)))
        for job in jobs:
            if time.perf_counter() - began > 60 * minutes:
                starts[start_key(job)].cancel()
                continue
            method, epsilon, rows, seed = job
            start, cpu = starts[start_key(job)].result()
            if METHODS[method].generator != "moments":
                if last[0] != start_key(job):
                    last = start_key(job), Ready(start, prepared_for(method, epsilon, rows, arrows).start)
                start = last[1]
            clock = time.perf_counter()
            try:
                model = finished(job, start, tables[rows], arrows)
            except Exception:  # one method that fails must not cost the others their results
                traceback.print_exc()
                continue
            took = time.perf_counter() - clock
            made = model.codes(rows, seed=seed).astype(np.uint8)
            facts = {"method": method, "epsilon": epsilon, "rows": rows, "seed": seed}
            facts |= {"start_cpu_seconds": cpu, "training_seconds": took}
            scored.append((facts, pool.submit(score, scores, made, learn and seed == 1)))
            print(facts, flush=True)
        for facts, future in scored:
            runs.append(facts | future.result())
            print(json.dumps(runs[-1]), flush=True)
    return {
        "setting": setting(),
        "data": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (graph, raw)},
        "seed": SEED,
        "delta": DELTA,
        "relation": "add_remove",
        "methods": {name: method.title for name, method in METHODS.items()},
        "runs": runs,
    }


def _key(run: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(run.get(name) for name in ("method", "epsilon", "rows", "seed"))


def figures(runs: Sequence[Mapping[str, Any]], figure: str, **where: object) -> list[float]:
    return [run[figure] for run in runs if figure in run and all(run.get(key) == value for key, value in where.items())]


def shown(values: Sequence[float], digits: int) -> str:
    """Return a mean with a 95 % interval by Student's t over the seeds."""
    if not values:
        return ""
    middle = statistics.fmean(values)
    if len(values) < 3:
        return f"{middle:.{digits}f}"
    return f"{middle:.{digits}f} ± {_half(values):.{digits}f}"


PAIRS = {
    "As in the paper": ("condensed as in the paper", "plain as in the paper"),
    "Started at moments": ("condensed", "plain"),
    "Full graph against none": ("vae", "plain"),
}


def _half(values: Sequence[float]) -> float:
    """Return half the width of the 95 % interval of a mean, by Student's t."""
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))


def statement(runs: Sequence[Mapping[str, Any]], rows: int) -> list[str]:
    """Return where a causal model beats the plain one, by the interval of the difference of their means."""
    lines = [
        "| error of edge covariances, causal against plain | "
        + " | ".join(f"ε = {'∞' if math.isinf(epsilon) else f'{epsilon:g}'}" for epsilon in EPSILONS)
        + " |",
        "|---|" + "---|" * len(EPSILONS),
    ]
    for title, methods in PAIRS.items():
        cells = []
        for epsilon in EPSILONS:
            both = [figures(runs, "cov_edges", method=method, epsilon=epsilon, rows=rows) for method in methods]
            if min(map(len, both)) < 3:
                cells.append("–")
                continue
            causal, plain = map(statistics.fmean, both)
            apart = abs(causal - plain) > math.hypot(*map(_half, both))
            verdict = "no difference" if not apart else "causal better" if causal < plain else "causal worse"
            cells.append(f"{causal:.3f} against {plain:.3f}: {verdict}")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def targets(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what was aimed at, and what the best neural generator reached."""
    neural = [name for name, method in METHODS.items() if method.generator != "moments"]

    def mean(method: str, epsilon: float, figure: str) -> float:
        found = figures(runs, figure, method=method, epsilon=epsilon, rows=5000)
        return statistics.fmean(found) if found else math.inf

    best = min(neural, key=lambda name: mean(name, 1.0, "cov_edges"))
    error = mean(best, 1.0, "cov_edges")
    lost = {
        name: figures(runs, name, method="real")[0] - mean(best, 1.0, name)
        for name in ("logistic_accuracy", "forest_accuracy")
        if figures(runs, name, method="real")
    }
    free = min(neural, key=lambda name: mean(name, INFINITY, "cov_edges"))
    without, moments = mean(free, INFINITY, "cov_edges"), mean("moments", INFINITY, "cov_edges")
    worst = max(lost.values(), default=math.inf)
    rows = [
        ("ε = 1, n = 5000: edge covariance error ≤ .30", f"{error:.3f} ({best})", error <= 0.30),
        ("ε = 1, n = 5000: accuracy within 1 point of real rows", f"{worst:.2f} points lost at most", worst <= 1),
        ("ε = ∞: at least as good as `moments`", f"{without:.3f} ({free}) against {moments:.3f}", without <= moments),
    ]
    return [
        "| target | measured | met |",
        "|---|---|---|",
        *(f"| {aim} | {got} | {'yes' if met else '**no**'} |" for aim, got, met in rows),
    ]


def page(payload: Mapping[str, Any]) -> str:
    facts, runs = payload["setting"], payload["runs"]
    lines = [
        "# Neural generators under privacy",
        "",
        f"{facts['date']}, commit {facts['commit']}, {facts['processor']}, {facts['cores']} cores"
        f"{payload.get('device', '')}. Made by `python benchmarks/neural_quality.py`.",
        "",
        "Rows drawn from the refitted neuropathic pain simulator, 222 columns, 770 arrows; add/remove neighbours, "
        f"δ = {payload['delta']:g}, number of rows public. Data: "
        + ", ".join(f"`{name}` sha256 {digest[:12]}…" for name, digest in payload["data"].items())
        + ".",
        "",
        "Covariance errors are relative to the covariances (1 is independence); total variation and one-way error in "
        "percent; accuracy: change against learning from the private rows, in points (logistic regression, random "
        "forest; one seed). Means with 95 % intervals over seeds, which vary noise and sampling, not the table.",
        "",
        *targets(runs),
    ]
    for rows in SIZES:
        real = "real" if rows == 5000 else f"real {rows}"
        lines += [
            "",
            f"## {rows:,} rows",
            "",
            *statement(runs, rows),
            "",
            "| ε | method | seeds | cov edges | cov all | TV edges | one-way | logistic | forest | AUC |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        base = {name: figures(runs, name, method=real) for name in ("logistic_accuracy", "forest_accuracy")}
        plain = {name: shown(figures(runs, name, method=real), 3) for name in ("cov_edges", "cov_all")}
        auc = shown(figures(runs, "logistic_auc", method=real), 1)
        lines.append(f"| | the private rows | | {plain['cov_edges']} | {plain['cov_all']} | | | | | {auc} |")
        for epsilon in EPSILONS:
            for method, title in payload["methods"].items():
                where = {"method": method, "epsilon": epsilon, "rows": rows}
                errors = figures(runs, "cov_edges", **where)
                if not errors:
                    continue
                cells = [
                    shown(figures(runs, name, **where), 2 if "cov" not in name else 3)
                    for name in ("cov_edges", "cov_all", "tv_edges", "one_way")
                ]
                for name, values in base.items():
                    found = figures(runs, name, **where)
                    cells.append(f"{statistics.fmean(found) - values[0]:+.2f}" if found and values else "")
                cells.append(shown(figures(runs, "logistic_auc", **where), 1))
                label = "∞" if math.isinf(epsilon) else f"{epsilon:g}"
                lines.append(f"| {label} | {title} | {len(errors)} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])  # fmt: skip


def _read(path: Path) -> list[dict[str, Any]]:
    """Return the runs of a file, with their budgets as numbers again."""
    runs: list[dict[str, Any]] = json.loads(path.read_text())["runs"]
    return [run | ({"epsilon": float(run["epsilon"])} if "epsilon" in run else {}) for run in runs]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[1].parent / "shared" / "data")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    parser.add_argument("--no-learners", action="store_true", help="fidelity only")
    parser.add_argument("--join", type=Path, nargs="*", default=[], help="files of this benchmark, whose runs are kept")
    parser.add_argument("--page", action="store_true", help="do nothing more than to join files")
    parser.add_argument("--minutes", type=float, default=60.0, help="trainings that would begin later are left out")
    arguments = parser.parse_args()
    if not (arguments.data / "neuropathic_pain").is_dir():
        print(f"Nothing measured: {arguments.data} holds no neuropathic_pain/.")
        return
    known = list({_key(run): run for path in arguments.join for run in _read(path)}.values())
    if arguments.page:
        last = json.loads(arguments.join[-1].read_text())
        payload = last | {"runs": known, "methods": {name: method.title for name, method in METHODS.items()}}
    else:
        import jax

        payload = measured(
            arguments.data,
            processes=arguments.processes,
            only=arguments.only,
            seeds=arguments.seeds,
            minutes=arguments.minutes,
            learn=not arguments.no_learners,
            known=known,
        )
        payload |= {"device": f", {jax.devices()[0].device_kind}", "runs": known + payload["runs"]}
    arguments.out.mkdir(exist_ok=True, parents=True)
    text = json.dumps(payload, indent=1).replace('"epsilon": Infinity', '"epsilon": "inf"')  # JSON has no infinity
    (arguments.out / "neural_quality.json").write_text(text + "\n")
    (arguments.out / "neural_quality.md").write_text(page(payload))


if __name__ == "__main__":
    main()
