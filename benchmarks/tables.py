"""Synthetic tables at ε = 0.1, 1 and 3, with and without a graph: escudo, MST, AIM and PrivBayes.

Run from the repository's root, with scikit-learn installed beside escudo::

    python benchmarks/tables.py --peers PYTHON

``PYTHON`` is the interpreter of an environment of its own with ``dpmm==0.1.9`` (it pins numpy 1.26 and pandas 2.1);
without it only escudo is measured. ``--data`` is the folder that holds ``adult/``, ``nltcs/`` and ``networks/``. Every
fit of a peer is a process of its own, on one thread, stopped after ``--cap`` seconds by the clock. ``--rows DIR`` joins
peers' rows that were made on another machine: ``costs.json``, and for each table ``rows_TABLE.npz`` with an array
``table,method,ε,seed``.
``benchmarks/results/tables.json`` and ``tables.md`` are written anew after every run. ``--work DIR`` keeps what was
done, so that a stopped benchmark goes on where it was, and several calls (``--only``) may share it. ``--add`` keeps the
runs that the result holds and measures what is missing; a run that was kept says when it was made and from which
commit.
``--drop`` leaves out the runs of some methods, so that they are measured again.

**What is compared.** A third of the rows, drawn at random, is held out. Every method gets the other two thirds as its
private table, the same public bins, ε and δ, add/remove neighbours, and makes as many rows as it was given. escudo is
not told their number. *Error* is the total variation between the marginals of those rows and of the private table, over
all pairs and over 100 fixed triples of columns; AIM's workload, by its default, is all pairs. *Accuracy* is of a
logistic regression, a random forest and boosted trees that learn five columns of Adult and NLTCS from the others on
synthetic rows and are tested on the held-out third (``--no-learn`` leaves it out). What each method was told beyond the
public bins
stands beside its figures.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]
Arrows = tuple[tuple[str, str], ...]

SEED = 20_261_115  # of the split, the triples and the learners
SEEDS = (1, 2, 3)
EPSILONS = (0.1, 1.0, 3.0)
DELTA = 1e-6
TRIPLES = 100
LEARNERS = ("logistic", "forest", "boosted")
LEARNING_ROWS = 10_000
RESULTS = Path(__file__).parent / "results"
NOTES = Path(__file__).with_name("tables_notes.md")
THREADS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}

# -- the tables: public bins, stated graphs


def arrows(families: Mapping[str, str]) -> Arrows:
    """Return the arrows of ``{child: "parent, parent"}``."""
    return tuple((parent, child) for child, parents in families.items() for parent in parents.split(", "))


# Adult. The table is coded: age - 16, hours - 1, gains in thousands, losses in hundredths of the largest, weights in
# hundredths. The bins follow what is publicly known of such numbers: five years of age, the limits of part
# time and overtime around the usual 40 hours, gain and loss as none, some, more; everything else as it is.
ADULT_BINS = {
    "age": tuple(range(5, 85, 5)),
    "fnlwgt": tuple(range(5, 100, 5)),
    "capital-gain": (1, 5, 10, 20, 99),
    "capital-loss": (1, 20, 40, 60),
    "hours-per-week": (19, 34, 39, 40, 49, 59),
}
# Origin shapes race; cohort and race shape schooling; age and sex the family; schooling and sex the trade, the trade
# the employer and the hours; what one learnt, one's household and one's hours the income; who earns more owns more. The
# survey weights people by race. "Full" states what we believe. "Lean" keeps of each family what stays below 500 cells.
ADULT_FULL = arrows(
    {
        "race": "native-country",
        "fnlwgt": "race",
        "education-num": "age, race",
        "marital-status": "age, sex",
        "relationship": "age, sex, marital-status",
        "occupation": "education-num, sex",
        "workclass": "occupation",
        "hours-per-week": "occupation, sex",
        "income>50K": "education-num, marital-status, hours-per-week",
        "capital-gain": "income>50K",
        "capital-loss": "income>50K",
    }
)
ADULT_LEAN = arrows(
    {
        "race": "native-country",
        "fnlwgt": "race",
        "education-num": "age",
        "marital-status": "age, sex",
        "relationship": "sex, marital-status",
        "occupation": "education-num, sex",
        "workclass": "occupation",
        "hours-per-week": "occupation, sex",
        "income>50K": "education-num, marital-status",
        "capital-gain": "income>50K",
        "capital-loss": "income>50K",
    }
)
# NLTCS: sixteen yes/no answers on daily living. Losing mobility indoors comes with trouble in bed and outdoors, these
# with bathing, then dressing, the toilet and last eating (the order in which they are lost is old knowledge); heavy
# work and shopping need mobility outdoors, laundry, light work and cooking need strength; money, medicine and the
# telephone need a clear mind, which shows in cooking and shopping first. "Lean" keeps at most two parents.
NLTCS_FULL = arrows(
    {
        "getting in/out of bed": "getting around inside",
        "getting about outside": "getting around inside, getting in/out of bed",
        "bathing": "getting around inside, getting in/out of bed, getting about outside",
        "heavy house work": "getting around inside, getting about outside, bathing",
        "grocery shopping": "getting about outside, bathing, heavy house work",
        "traveling": "getting about outside, grocery shopping, heavy house work",
        "dressing": "getting around inside, getting in/out of bed, bathing",
        "using toilet": "getting around inside, getting in/out of bed, bathing, dressing",
        "laundry": "heavy house work, grocery shopping, bathing",
        "light house work": "laundry, heavy house work, dressing",
        "cooking": "light house work, laundry, grocery shopping",
        "managing money": "grocery shopping, cooking, traveling",
        "taking medicine": "managing money, cooking",
        "telephoning": "managing money, taking medicine",
        "eating": "dressing, using toilet, taking medicine",
    }
)
NLTCS_LEAN = arrows(
    {
        "getting in/out of bed": "getting around inside",
        "getting about outside": "getting around inside",
        "bathing": "getting around inside, getting in/out of bed",
        "heavy house work": "getting about outside",
        "grocery shopping": "getting about outside, heavy house work",
        "traveling": "getting about outside, grocery shopping",
        "dressing": "getting in/out of bed, bathing",
        "using toilet": "getting in/out of bed, dressing",
        "laundry": "heavy house work, grocery shopping",
        "light house work": "laundry, dressing",
        "cooking": "light house work, laundry",
        "managing money": "grocery shopping, cooking",
        "taking medicine": "managing money, cooking",
        "telephoning": "managing money, taking medicine",
        "eating": "dressing, using toilet",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table and what is publicly said of it; of a network, rows that are simulated from it."""

    name: str
    bins: Mapping[str, tuple[int, ...]]
    graphs: Mapping[str, Arrows]
    targets: tuple[str, ...]
    network: bool = False


SOURCES = {
    source.name: source
    for source in (
        Source(
            name="adult",
            bins=ADULT_BINS,
            graphs={"full": ADULT_FULL, "lean": ADULT_LEAN},
            targets=("income>50K", "sex", "marital-status", "occupation", "hours-per-week"),
        ),
        Source(
            name="nltcs",
            bins={},
            graphs={"full": NLTCS_FULL, "lean": NLTCS_LEAN},
            targets=("bathing", "cooking", "traveling", "managing money", "eating"),
        ),
        Source(
            name="child",
            bins={},
            graphs={},
            targets=(),
            network=True,
        ),
        Source(
            name="alarm",
            bins={},
            graphs={},
            targets=(),
            network=True,
        ),
        Source(
            name="sachs",
            bins={},
            graphs={},
            targets=(),
            network=True,
        ),
    )
}
NETWORK_ROWS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A coded table, split in two: what the methods get, and what is held out."""

    columns: tuple[str, ...]
    sizes: tuple[int, ...]
    private: Codes
    held_out: Codes
    sha256: str
    arrows: Arrows = ()


def load(source: Source, data: Path) -> Table:
    if source.network:
        return simulated(source, data)
    file = data / source.name / f"{source.name}.csv"
    domain = json.loads((data / source.name / f"{source.name}-domain.json").read_text())
    with file.open() as lines:
        columns = tuple(next(lines).strip().split(","))
        rows = np.loadtxt(lines, delimiter=",", dtype=np.int64)
    for position, name in enumerate(columns):
        if name in source.bins:
            rows[:, position] = np.searchsorted(source.bins[name], rows[:, position], side="right")
    sizes = tuple(len(source.bins[name]) + 1 if name in source.bins else int(domain[name]) for name in columns)
    order = np.random.default_rng(SEED).permutation(len(rows))
    third = len(rows) // 3
    return Table(
        columns=columns,
        sizes=sizes,
        private=rows[order[third:]],
        held_out=rows[order[:third]],
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
    )


def simulated(source: Source, data: Path) -> Table:
    """Return rows of a network."""
    from escudo.causal import Network

    file = data / "networks" / f"{source.name}.bif.gz"
    network = Network.read(file)
    codes = network.sample(NETWORK_ROWS, rng=np.random.default_rng(SEED))
    rows = np.stack([np.asarray(codes[name], dtype=np.int64) for name in network.nodes], axis=1)
    third = len(rows) // 3
    return Table(
        columns=tuple(network.nodes),
        sizes=tuple(len(network.levels[name]) for name in network.nodes),
        private=rows[third:],
        held_out=rows[:third],
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        arrows=tuple((cause, name) for name in network.nodes for cause in network.parents[name]),
    )


# -- the methods; each runs in a process of its own (``--fit``)


def fit_escudo(job: Mapping[str, Any], private: Codes) -> Codes:
    import polars as pl

    import escudo

    columns, sizes = job["columns"], job["sizes"]
    schema = escudo.Schema.from_dict(
        {name: [str(level) for level in range(size)] for name, size in zip(columns, sizes, strict=True)}
    )
    frame = pl.DataFrame(private, schema=columns).cast(pl.String)
    table = escudo.PrivateTable(frame, schema, relation="add_remove")
    budget = {"epsilon": job["epsilon"], "delta": DELTA}
    model: Any
    if job["graph"] == "discover":
        from escudo.synthesis import fit, prepare_discovered

        model = fit(prepare_discovered(schema, relation="add_remove", **budget), table, seed=job["seed"])
    else:
        edges = job["graph"]
        graph = None if edges is None else escudo.CausalGraph.from_edges([tuple(a) for a in edges], columns)
        model = escudo.synthesize(table, graph, **budget, seed=job["seed"], **job["options"])
    sample = model.sample(len(private), seed=job["seed"])
    return sample.select(pl.col(columns).cast(pl.String).cast(pl.Int64)).to_numpy()


def fit_peer(job: Mapping[str, Any], private: Codes) -> Codes:
    import pandas as pd
    from dpmm.models.aim import AIMGM
    from dpmm.models.mst import MSTGM
    from dpmm.models.priv_bayes import PrivBayesGM

    # Its noise comes from OpenDP and cannot be seeded; the seed settles its selections and its sampling.
    make = {"mst": MSTGM, "aim": AIMGM, "privbayes": PrivBayesGM}[job["kind"]]
    model = make(
        epsilon=job["epsilon"],
        delta=DELTA,
        domain=dict(zip(job["columns"], job["sizes"], strict=True)),
        random_state=np.random.RandomState(job["seed"]),
        n_jobs=1,
        **job["options"],
    )
    if job["kind"] == "aim" and job.get("round_iterations"):
        _hasten(model.generator, job["round_iterations"])
    model.fit(pd.DataFrame(private, columns=job["columns"]))
    made: Codes = model.generate(n_records=len(private))[job["columns"]].to_numpy(dtype=np.int64)
    return made


def _hasten(aim: Any, iterations: int) -> None:
    """Let AIM refit with fewer iterations between its rounds; the last fit keeps all of them."""
    rounds, full = aim._fit, aim.n_iters

    def quick(*args: Any, **named: Any) -> Any:
        aim.n_iters = iterations
        try:
            return rounds(*args, **named)
        finally:
            aim.n_iters = full

    aim._fit = quick


def fit_resampled(job: Mapping[str, Any], private: Codes) -> Codes:
    return private[np.random.default_rng(job["seed"]).integers(0, len(private), len(private))]


def fit_shuffled(job: Mapping[str, Any], private: Codes) -> Codes:
    rng = np.random.default_rng(job["seed"])
    return np.stack([rng.permutation(column) for column in private.T], axis=1)


PEERS = ("mst", "aim", "privbayes")
FITS: Mapping[str, Callable[[Mapping[str, Any], Codes], Codes]] = {
    "escudo": fit_escudo,
    "mst": fit_peer,
    "aim": fit_peer,
    "privbayes": fit_peer,
    "resampled": fit_resampled,
    "shuffled": fit_shuffled,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A row of the results."""

    title: str
    kind: str
    told: str = ""
    graph: str | None = None
    options: Mapping[str, Any] | None = None
    round_iterations: int | None = None
    private: bool = True


METHODS = {
    "real": Method(title="the private rows, resampled (not private)", kind="resampled", private=False),
    "shuffled": Method(title="its columns, shuffled (not private)", kind="shuffled", private=False),
    "escudo-none": Method(title="escudo, no graph", kind="escudo"),
    "escudo-discover": Method(title="escudo, graph discovered under the same ε", kind="escudo", graph="discover"),
    "escudo-full": Method(title="escudo, graph", kind="escudo", told="graph", graph="full"),
    "mst": Method(title="MST", kind="mst"),
    "privbayes": Method(title="PrivBayes", kind="privbayes"),
    "aim": Method(title="AIM", kind="aim", told="workload: all pairs"),
    "aim-fast": Method(
        title="AIM made faster: model ≤ 1 MB, 100 iterations between rounds (Child, seed 1: 80 rounds)",
        kind="aim",
        told="workload: all pairs",
        options={"max_model_size": 1},
        round_iterations=100,
    ),
}


def fit_here(folder: Path) -> None:
    """Do the job that a folder describes, and leave the rows and what they cost in it."""
    job = json.loads((folder / "job.json").read_text())
    start = time.perf_counter()
    rows = FITS[job["kind"]](job, np.load(folder / "private.npy"))
    np.save(folder / "synthetic.npy", rows)
    cost = {
        "cpu_seconds": time.process_time(),  # from the start of the process, imports and compilation included
        "wall_seconds": time.perf_counter() - start,
    }
    (folder / "cost.json").write_text(json.dumps(cost))


def run_fit(job: Mapping[str, Any], private: Codes, *, python: str, cap: float) -> tuple[Codes | None, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.json").write_text(json.dumps(job))
        np.save(folder / "private.npy", private)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        try:
            done = subprocess.run(
                [python, __file__, "--fit", name],
                env=os.environ | THREADS,
                timeout=cap,
                capture_output=True,
                text=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
            return None, {
                "note": f"did not finish in {cap / 60:.0f} min ({used:.0f} CPU-s of them)",
                "cpu_seconds": used,
            }
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return None, {"note": f"failed: {last[:200]}"}
        return np.load(folder / "synthetic.npy"), json.loads((folder / "cost.json").read_text())


# -- the scores


def variation(real: Codes, made: Codes, sizes: Sequence[int], positions: Sequence[int]) -> float:
    """Return the total variation between two tables' marginals on these columns."""
    shape = [sizes[position] for position in positions]
    cells = int(np.prod(shape))
    laws = [
        np.bincount(np.ravel_multi_index(tuple(rows[:, list(positions)].T), shape), minlength=cells) / len(rows)
        for rows in (real, made)
    ]
    return float(np.abs(laws[0] - laws[1]).sum() / 2)


def errors(table: Table, made: Codes) -> dict[str, float]:
    width = len(table.columns)
    triples = list(itertools.combinations(range(width), 3))
    chosen = np.random.default_rng(SEED).choice(len(triples), TRIPLES, replace=False)
    sets: dict[str, Sequence[tuple[int, ...]]] = {
        "tv1": [(i,) for i in range(width)],
        "tv2": list(itertools.combinations(range(width), 2)),
    }
    sets["tv3"] = [triples[i] for i in sorted(chosen)]
    return {
        name: statistics.fmean(variation(table.private, made, table.sizes, positions) for positions in several)
        for name, several in sets.items()
    }


def accuracies(table: Table, made: Codes, target: str) -> dict[str, float]:
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    place = table.columns.index(target)
    others = [i for i in range(len(table.columns)) if i != place]
    learnt, tested = made[:LEARNING_ROWS], table.held_out
    if len(np.unique(learnt[:, place])) == 1:
        only = float((tested[:, place] == learnt[0, place]).mean())
        return dict.fromkeys(LEARNERS, only)
    levels = [np.arange(table.sizes[i]) for i in others]
    learners = {
        "logistic": make_pipeline(OneHotEncoder(categories=levels), LogisticRegression(max_iter=100, tol=1e-3)),
        "forest": RandomForestClassifier(50, min_samples_leaf=3, random_state=SEED, n_jobs=1),
        "boosted": HistGradientBoostingClassifier(
            max_iter=40, max_leaf_nodes=15, learning_rate=0.15, random_state=SEED
        ),
    }
    scores = {}
    for name, learner in learners.items():
        learner.fit(learnt[:, others], learnt[:, place])
        scores[name] = float((learner.predict(tested[:, others]) == tested[:, place]).mean())
    return scores


def score(source: Source, table: Table, made: Codes, *, learn: bool) -> dict[str, Any]:
    import warnings

    if not learn:
        return errors(table, made)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a regression stopped early is the same for all methods
        by_target = {target: accuracies(table, made, target) for target in source.targets}
    means = {name: statistics.fmean(scores[name] for scores in by_target.values()) for name in LEARNERS}
    return {**errors(table, made), **means, "targets": by_target}


# -- running, and writing down


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
        "peer": "dpmm 0.1.9",
    }


def source_of_escudo() -> str:
    """Return a fingerprint of the code that is measured: the commit alone does not tell while it is being changed."""
    import escudo

    digest = hashlib.sha256()
    for file in sorted(Path(escudo.__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def run(source: Source, table: Table, method: str, epsilon: float | None, seed: int, options: Any) -> dict[str, Any]:
    chosen = METHODS[method]
    job = {
        "kind": chosen.kind,
        "columns": table.columns,
        "sizes": table.sizes,
        "epsilon": epsilon,
        "seed": seed,
        "graph": {"full": table.arrows, **source.graphs}.get(chosen.graph, chosen.graph) if chosen.graph else None,
        "options": chosen.options or {},
        "round_iterations": chosen.round_iterations,
    }
    made: Codes | None
    if chosen.kind in PEERS:
        made, record = run_fit(job, table.private, python=options.peers, cap=options.cap)
    else:
        start, clock = time.process_time(), time.perf_counter()
        made = FITS[chosen.kind](job, table.private)
        record = {"cpu_seconds": time.process_time() - start, "wall_seconds": time.perf_counter() - clock}
    record = {"table": source.name, "method": method, "epsilon": epsilon, "seed": seed, **record}
    if chosen.kind == "escudo":
        record["source_sha256"] = source_of_escudo()
    return (
        record if made is None else {**record, **score(source, table, made, learn=options.learn and not source.network)}
    )


def join(folder: Path, tables: Mapping[str, Table], work: Path, *, learn: bool) -> None:
    """Score peers' rows that were made on another machine."""
    told = json.loads((folder / "costs.json").read_text())
    for cost in told["costs"]:
        name = f"{cost['table']},{cost['method']},{cost['epsilon']},{cost['seed']}"
        file = work / f"{name}.json"
        source, table = SOURCES[cost["table"]], tables[cost["table"]]
        learns = learn and not source.network
        if file.exists() and ("boosted" in json.loads(file.read_text())) >= learns:
            continue
        with np.load(folder / f"rows_{cost['table']}.npz") as rows:
            made = rows[name].astype(np.int64)
        record = {key: cost[key] for key in ("table", "method", "epsilon", "seed", "cpu_seconds", "wall_seconds")}
        record["made"] = {"processor": told["processor"], "options": cost["options"]}
        scores = score(source, table, made, learn=learns)
        file.write_text(json.dumps({**record, **scores}))
        print(name, flush=True)


def write(tables: Mapping[str, Table], runs: Sequence[dict[str, Any]], facts: Mapping[str, Any]) -> None:
    payload = {
        "setting": facts,
        "seeds": {"split, triples, learners": SEED, "runs": SEEDS},
        "delta": DELTA,
        "relation": "add_remove",
        "tables": {
            name: {
                "sha256": table.sha256,
                "private_rows": len(table.private),
                "held_out_rows": len(table.held_out),
                "sizes": dict(zip(table.columns, table.sizes, strict=True)),
                "bins": {column: list(edges) for column, edges in SOURCES[name].bins.items()},
                "graphs": {title: list(edges) for title, edges in SOURCES[name].graphs.items()}
                or {"full": list(table.arrows)},
                "targets": SOURCES[name].targets,
            }
            for name, table in tables.items()
        },
        "methods": {name: method.title for name, method in METHODS.items()},
        "runs": runs,
    }
    put({"tables.json": payload, "tables.md": page(payload)})


def put(files: Mapping[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    for name, content in files.items():
        draft = RESULTS / f".{name}.{os.getpid()}"
        draft.write_text((content if isinstance(content, str) else json.dumps(content, indent=1)).rstrip() + "\n")
        draft.replace(RESULTS / name)


def page(payload: Mapping[str, Any]) -> str:
    facts = payload["setting"]
    seeds = ", ".join(map(str, sorted({run["seed"] for run in payload["runs"]})))
    lines = [
        "# Synthetic tables, with and without a graph",
        "",
        f"{facts['date']}, commit {facts['commit']}{_added(payload['runs'])}, seeds {seeds}. "
        f"{facts['processor']}, "
        f"{facts['cores']} cores, one thread per run, load {facts['load_at_end']:.1f}. Python {facts['python']}; "
        f"peers: {facts['peer']} with their defaults. Made by `python benchmarks/tables.py`.",
        "",
        f"Add/remove neighbours, δ = {DELTA:g}. Error: mean total variation to the private rows, in percent, over all "
        f"pairs (2-way) and {TRIPLES} triples (3-way). Accuracy: mean over five columns, in percent, learnt on "
        f"synthetic rows ({LEARNING_ROWS:,} of them), tested on held-out real ones. Means over the seeds that ran. CPU "
        "seconds of peers include imports. A run that did not finish was stopped by the clock; under the load "
        "above, that is a fraction of the time as processor time, so it says little about the method. A "
        "method without a row at some ε was not run there.",
        "",
        "What each method was told stands beside its figures; what was chosen on these tables, in how many tries, at "
        "the end of the page.",
    ]
    lines += ["", *_targets(payload)]
    for name, table in payload["tables"].items():
        rows = table["private_rows"] + table["held_out_rows"]
        lines += [
            "",
            f"## {'NLTCS' if name == 'nltcs' else name.capitalize()}",
            "",
            f"{rows:,} × {len(table['sizes'])}: {table['private_rows']:,} rows private, "
            f"{table['held_out_rows']:,} held out.",
        ]
        for epsilon in (None, *EPSILONS):
            found = {
                method: [
                    r for r in payload["runs"] if (r["table"], r["method"], r["epsilon"]) == (name, method, epsilon)
                ]
                for method in METHODS
            }
            if not any(found.values()):
                continue
            head = "For comparison" if epsilon is None else f"ε = {epsilon:g}"
            lines += [
                "",
                f"| {head} | told, beside the bins | 2-way | 3-way | logistic | forest | boosted | CPU-s | seeds |",
                "|---|---|---|---|---|---|---|---|---|",
            ]
            lines += [_line(METHODS[method], several) for method, several in found.items() if several]
    ways = [way for way in ("escudo-none", "escudo-discover", "escudo-full") if _measured(payload, way)]
    return "\n".join([*lines, *(line for ours in ways for line in _behind(payload, ours)), "", NOTES.read_text()])


Scored = dict[tuple[str, float], dict[str, dict[str, dict[int, float]]]]


def _scored(payload: Mapping[str, Any]) -> Scored:
    """Return every figure of each method that finished, by table and ε, method, what it is, and seed."""
    found: Scored = {}
    for run in payload["runs"]:
        if "tv2" in run and run["epsilon"] is not None:
            several = found.setdefault((run["table"], run["epsilon"]), {}).setdefault(run["method"], {})
            for key in ("tv2", "tv3", *LEARNERS, "cpu_seconds"):
                if key in run:
                    several.setdefault(key, {})[run["seed"]] = run[key]
    return found


def _targets(payload: Mapping[str, Any]) -> list[str]:
    """Return the table of what was wanted: means over the seeds that ran."""
    found = _scored(payload)
    networks = {name for name, source in SOURCES.items() if source.network}

    def ratios(of: str, to: str, cells: Sequence[tuple[str, float]]) -> list[tuple[float, str]]:
        told = []
        for cell, (key, way) in itertools.product(cells, (("tv2", "pairs"), ("tv3", "triples"))):
            if of in found[cell] and to in found[cell]:
                ours, theirs = found[cell][of][key], found[cell][to][key]
                if METHODS[to].kind == "escudo":  # the same seeds, where both are ours
                    ours, theirs = ({seed: some[seed] for seed in ours.keys() & theirs} for some in (ours, theirs))
                over = mean(ours) / mean(theirs) - 1
                seeds = f"seeds: {len(ours)}" if len(ours) == len(theirs) else f"seeds: {len(ours)} and {len(theirs)}"
                told.append((over, f"{cell[0]}, ε = {cell[1]:g}, {way} ({seeds})"))
        return told

    def mean(several: Mapping[int, float]) -> float:
        return statistics.fmean(several.values())

    def most(several: list[tuple[float, str]], limit: float) -> tuple[str, bool]:
        over = sorted((one for one in several if one[0] > limit), reverse=True)
        told = f"of {len(several)} figures, {len(over)} above" + "".join(f"; {100 * x:+.0f} % {at}" for x, at in over)
        return (told if over else f"{100 * max(several)[0]:+.0f} % at most, {len(several)} figures"), not over

    peers = [name for name, method in METHODS.items() if method.kind in PEERS]
    behind = [one for peer in peers for one in ratios("escudo-none", peer, list(found))]

    def ahead(theirs: Mapping[int, float], ours: Mapping[int, float]) -> tuple[float, float]:
        chance = sum(statistics.variance(some.values()) / len(some) for some in (theirs, ours) if len(some) > 1)
        return 100 * (mean(theirs) - mean(ours)), 100 * math.sqrt(chance)

    accuracy = [
        (*ahead(of["aim-fast"][name], of["escudo-none"][name]), f"{cell[0]}, ε = {cell[1]:g}, {name}")
        for cell, of in found.items()
        for name in LEARNERS
        if name in of.get("aim-fast", {}) and name in of.get("escudo-none", {})
    ]
    spent = [
        (mean(of["escudo-none"]["cpu_seconds"]), cell[0])
        for cell, of in found.items()
        if "escudo-none" in of and len(payload["tables"][cell[0]]["sizes"]) <= 30
    ]
    least = [
        ("smallest pair and triple error without a graph, each peer on each table at each ε", *most(behind, 0.0)),
        (
            "graph discovered: at most 10 % above no graph",
            *most(ratios("escudo-discover", "escudo-none", list(found)), 0.10),
        ),
        (
            "no graph: at most 5 % above the true graph, ε ≥ 1, networks",
            *most(ratios("escudo-none", "escudo-full", [c for c in found if c[0] in networks and c[1] >= 1]), 0.05),
        ),
        (
            "no graph, up to 30 columns: at most 10 CPU seconds",
            f"{max(spent)[0]:.1f} ({max(spent)[1]})",
            max(spent)[0] <= 10,
        ),
        (
            "learners at least as accurate as on AIM's rows (its faster form)",
            f"of {len(accuracy)} figures {sum(x > 0 for x, *_ in accuracy)} behind"
            + "".join(f"; by {x:.2f} ± {se:.2f} points {at}" for x, se, at in sorted(accuracy, reverse=True) if x > 0),
            max(accuracy)[0] <= 0,
        ),
    ]
    told = [f"| {target} | {measured} | {'yes' if met else '**no**'} |" for target, measured, met in least]
    return ["| target | measured | met |", "|---|---|---|", *told]


def _measured(payload: Mapping[str, Any], method: str) -> bool:
    return any(run["method"] == method for run in payload["runs"])


def _added(runs: Sequence[Mapping[str, Any]]) -> str:
    """Say which runs are of another time or machine."""
    later: dict[str, set[str]] = {}
    for record in runs:
        if made := record.get("made"):
            title = METHODS[record["method"]].title.split(":")[0]
            later.setdefault(title, set()).add(made.get("commit") or f"some on {made['processor']}, 16 cores")
    told = [f"{title}: {', '.join(sorted(facts))}" for title, facts in later.items()]
    return f" ({'; '.join(told)})" if told else ""


def _behind(payload: Mapping[str, Any], way: str) -> list[str]:
    """Return where a peer does better than one way to use escudo, from the means shown."""
    measures = {
        "tv2": "2-way error",
        "tv3": "3-way error",
        "logistic": "logistic accuracy",
        "forest": "forest accuracy",
        "boosted": "boosted trees' accuracy",
    }
    lines = ["", f"## Where a peer is ahead of {METHODS[way].title}", ""]
    for name, epsilon in itertools.product(payload["tables"], EPSILONS):
        means: dict[str, dict[str, float]] = {}
        for method in METHODS:
            runs = [r for r in payload["runs"] if (r["table"], r["method"], r["epsilon"]) == (name, method, epsilon)]
            if scored := [r for r in runs if "tv2" in r]:
                known = {key: [r[key] for r in scored if key in r] for key in measures}
                means[method] = {key: 100 * statistics.fmean(several) for key, several in known.items() if several}
        ours = means.get(way)
        for method, theirs in means.items():
            if ours is None or METHODS[method].kind == "escudo":
                continue
            better = [
                f"{title} {theirs[key]:.2f} against {ours[key]:.2f}"
                for key, title in measures.items()
                if key in theirs
                and key in ours
                and (theirs[key] < ours[key] if key.startswith("tv") else theirs[key] > ours[key])
            ]
            if better:
                lines.append(f"- {name}, ε = {epsilon:g}, {METHODS[method].title}: {', '.join(better)}.")
    return lines if len(lines) > 3 else [*lines, "Nowhere, in what was measured."]


def _line(method: Method, runs: Sequence[Mapping[str, Any]]) -> str:
    scored = [r for r in runs if "tv2" in r]
    if not scored:
        return f"| {method.title} | {method.told} | {runs[0]['note']} | | | | | | |"

    def mean(key: str, factor: float = 100.0, digits: int = 2) -> str:
        known = [r[key] for r in scored if key in r]
        return f"{factor * statistics.fmean(known):.{digits}f}" if known else "–"

    cells = [mean("tv2"), mean("tv3"), *(mean(name, digits=1) for name in LEARNERS), mean("cpu_seconds", 1, 0)]
    missing = f"; {len(runs) - len(scored)} {runs[-1].get('note', 'missing')}" if len(scored) < len(runs) else ""
    return f"| {method.title} | {method.told} | {' | '.join(cells)} | {len(scored)}{missing} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Synthetic tables against dpmm's MST, AIM, PrivBayes.")
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/data"), help="the folder of adult/, nltcs/ and networks/"
    )
    parser.add_argument("--peers", help="the Python of an environment with dpmm==0.1.9")
    parser.add_argument("--cap", type=float, default=900.0, help="the most seconds a fit may take")
    parser.add_argument("--work", type=Path, help="a folder that keeps finished runs")
    parser.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS), help="methods to run")
    parser.add_argument("--tables", nargs="+", choices=SOURCES, default=list(SOURCES), help="tables to run on")
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS), help="budgets to run at")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS), help="seeds to run")
    parser.add_argument("--no-learn", dest="learn", action="store_false", help="no accuracy of learners")
    parser.add_argument("--drop", nargs="+", default=[], help="methods whose runs the result holds are left out")
    parser.add_argument("--add", action="store_true", help="keep the runs that the result holds")
    parser.add_argument("--rows", type=Path, help="a folder of peers' rows that were made on another machine")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    parser.add_argument("--fit", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit is not None:
        fit_here(options.fit)
        return
    committed = RESULTS / "tables.json"
    if options.page:
        payload = json.loads(committed.read_text())
        payload["methods"] = {name: method.title for name, method in METHODS.items()}
        put({"tables.json": payload, "tables.md": page(payload)})
        return
    tables = {name: load(source, options.data) for name, source in SOURCES.items()}
    work = options.work or Path(tempfile.mkdtemp(prefix="tables-"))
    work.mkdir(parents=True, exist_ok=True)
    before = json.loads(committed.read_text()) if options.add else None
    if before is not None:
        for record in before["runs"]:
            if record["method"] not in METHODS or record["method"] in options.drop:
                continue
            record.setdefault("made", {key: before["setting"][key] for key in ("date", "commit")})
            name = f"{record['table']},{record['method']},{record['epsilon']},{record['seed']}.json"
            (work / name).write_text(json.dumps(record))
    facts = setting()
    if options.rows is not None:
        join(options.rows, tables, work, learn=options.learn)
    for seed, name, epsilon, method in itertools.product(
        options.seeds, options.tables, (None, *options.epsilons), options.only
    ):
        if METHODS[method].private == (epsilon is None):
            continue
        if METHODS[method].kind in PEERS and options.peers is None:
            continue
        file = work / f"{name},{method},{epsilon},{seed}.json"
        if not file.exists():
            record = run(SOURCES[name], tables[name], method, epsilon, seed, options)
            file.write_text(json.dumps(record))
            print({key: value for key, value in record.items() if key != "targets"}, flush=True)
        ranked = list(METHODS)
        runs = [json.loads(path.read_text()) for path in work.glob("*.json")]
        runs.sort(key=lambda r: (r["table"], r["epsilon"] or 0, ranked.index(r["method"]), r["seed"]))
        write(tables, runs, facts | {"load_at_end": os.getloadavg()[0]})


if __name__ == "__main__":
    main()
