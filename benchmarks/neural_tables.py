"""Neural generators on mixed tables, what ``generator="auto"`` should choose, and where their rules come from.

Run from the repository's root, with scikit-learn installed beside escudo::

    python benchmarks/neural_tables.py [--parts adult auto rules] [--processes N] [--ctgan PYTHON]

``PYTHON`` is the interpreter of an environment of its own with ``smartnoise-synth==1.0.8`` and ``packaging``, which it
imports and does not require. ``--data`` is the folder that holds ``adult/``, ``nltcs/`` and ``neuropathic_pain/``.
Finished fits are lines of ``--log`` and end up in ``benchmarks/results/neural_tables.json``, from which
``neural_tables.md`` is made: what either file holds is not done again, so that a stopped benchmark goes on where it
was, and several machines may share the work.

**adult.** Split, bins, graph and scores of ``tables.py``, which also has the figures of dpmm's generators: those are
taken from its results. ``DP-CTGAN`` trains until its own accountant says that ε is spent, or ``--cap``
seconds are over; ε and δ are the same, and its relation is add/remove.

**auto.** Every generator on tables with a stated graph at three budgets, and which of them the rule chooses.

**rules.** Trainings on simulated mixed tables, with one thing changed at a time: nothing here was seen by a benchmark.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
import tables
from tables import DELTA, SEED, SOURCES, THREADS, setting

Codes = NDArray[np.int64]

RESULTS = Path(__file__).parent / "results"
FRESH = 50_000  # rows of a simulated truth that errors are measured against
ORDERED = {"age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"}
EPSILONS = {"adult": (1.0, 3.0), "auto": (0.1, 1.0, 3.0), "choice": (0.1, 1.0, 3.0), "rules": (1.0, 3.0)}
SEEDS = {"adult": (1, 2, 3), "auto": (1, 2), "choice": (1,), "rules": (1,)}
AUTO_TABLES = ("asia", "nltcs", "adult", "pain1000", "pain5000")
SIMULATED = ("simulated 1", "simulated 2", "simulated 3")
RULED = (*SIMULATED, "binary 80")
BINARY = (  # that many columns of two levels, the second one common or rare
    "binary 10",
    "binary 20",
    "binary 40",
    "binary 80",
    "binary 160",
    "sparse 20",
    "sparse 40",
    "sparse 80",
    "sparse 160",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A generator with its options, and the graph it is told."""

    title: str
    generator: str
    graph: str | None = "full"
    options: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = None  # what is changed in a prepared training


METHODS = {
    "marginals": Method(title="`marginals`", generator="marginals"),
    "marginals repair": Method(title="`marginals`, repair", generator="marginals", options={"repair": True}),
    "marginals none": Method(
        title="`marginals`, no graph, repair", generator="marginals", graph=None, options={"repair": True}
    ),
    "moments": Method(title="`moments`", generator="moments"),
    "autoregressive": Method(title="`autoregressive`", generator="autoregressive"),
    "autoregressive none": Method(title="`autoregressive`, no graph", generator="autoregressive", graph=None),
    "vae": Method(title="`vae`", generator="vae"),
    "vae none": Method(title="`vae`, no graph", generator="vae", graph=None),
}
PARTS = {
    "adult": tuple(METHODS),
    "auto": ("marginals", "marginals repair", "moments", "autoregressive", "vae"),
    "choice": ("marginals", "moments", "autoregressive"),
}
PEERS = {"ctgan": "DP-CTGAN (smartnoise-synth 1.0.8)"}

# What is changed in the rules, for `autoregressive`; the plan's noise is calibrated anew where it depends on it.
VARIANTS: dict[str, Method] = {
    "as it is": Method(title="as it is", generator="autoregressive"),
    "start 0.9": Method(
        title="start takes 0.9 of the budget", generator="autoregressive", options={"start_share": 0.9}
    ),
    "start 0.3": Method(title="start takes 0.3", generator="autoregressive", options={"start_share": 0.3}),
    "levels": Method(
        title="starts at levels only", generator="autoregressive", options={"start": "levels", "start_share": 0.2}
    ),
    "averaging": Method(
        title="average over the last 20 steps, not 5", generator="autoregressive", training={"averaging": 0.95}
    ),
    "decline": Method(
        title="the same, and the rate falls to nothing",
        generator="autoregressive",
        training={"averaging": 0.95, "decline": 1.0},
    ),
    "slower": Method(title="a third of the rate", generator="autoregressive", options={"learning_rate": 0.01}),
    "faster": Method(title="three times the rate", generator="autoregressive", options={"learning_rate": 0.09}),
    "longer": Method(title="200 steps", generator="autoregressive", options={"steps": 200}),
    "shorter": Method(title="20 steps", generator="autoregressive", options={"steps": 20}),
    "all rows": Method(title="all rows in every step", generator="autoregressive", options={"batch": 30_000}),
    "hidden": Method(title="8 hidden units a column", generator="autoregressive", options={"hidden": (8,)}),
    "moments": Method(title="`moments` by itself", generator="moments"),
    "marginals": Method(title="`marginals`", generator="marginals"),
    "vae": Method(title="`vae`", generator="vae"),
}

# -- tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A coded table with a stated graph, and what errors are measured against."""

    columns: tuple[str, ...]
    sizes: tuple[int, ...]
    private: Codes
    against: Codes
    arrows: tuple[tuple[str, str], ...]
    ordered: frozenset[str]
    data: str


@cache
def table_of(name: str, data: Path) -> Table:
    """Return a table by name."""
    rng = np.random.default_rng([SEED, *name.encode()])
    if name in SOURCES:
        source = SOURCES[name]
        read = tables.load(source, data)
        return Table(
            columns=read.columns,
            sizes=read.sizes,
            private=read.private,
            against=read.private,
            arrows=source.graphs["full"],
            ordered=frozenset(ORDERED & set(read.columns)),
            data=f"sha256 {read.sha256[:12]}…",
        )
    if name == "asia":
        from escudo.causal import asia

        network = asia()
        columns = tuple(network.nodes)

        def drawn(count: int) -> Codes:
            made = network.sample(count, rng=rng)
            return np.stack([made[column] for column in columns], axis=1).astype(np.int64)

        return _simulated(columns, (2,) * len(columns), drawn(5000), drawn(FRESH), tuple(network.graph.edges))
    if name.startswith("pain"):
        from wide import FILES, Truth

        graph, raw = (data / "neuropathic_pain" / file for file in FILES)
        arrows = np.load(graph, allow_pickle=False).astype(bool)
        truth = Truth.refitted(np.loadtxt(raw, delimiter=",", skiprows=1, dtype=np.uint8), arrows)
        columns = tuple(f"x{place:03}" for place in range(len(arrows)))
        made = [truth.drawn(count, rng).astype(np.int64) for count in (int(name.removeprefix("pain")), FRESH)]
        edges = tuple((columns[cause], columns[effect]) for cause, effect in np.argwhere(arrows))
        digest = hashlib.sha256(graph.read_bytes() + raw.read_bytes()).hexdigest()[:12]
        return replace(_simulated(columns, (2,) * len(columns), *made, edges), data=f"sha256 {digest}…")
    return _binary(rng, int(name.split()[1]), rare="sparse" in name) if name in BINARY else _mixed(rng)


def _simulated(
    columns: tuple[str, ...], sizes: tuple[int, ...], private: Codes, fresh: Codes, arrows: tuple[tuple[str, str], ...]
) -> Table:
    return Table(
        columns=columns,
        sizes=sizes,
        private=private,
        against=fresh,
        arrows=arrows,
        ordered=frozenset(),
        data="simulated",
    )


def _binary(rng: np.random.Generator, width: int, *, rare: bool, rows: int = 5000) -> Table:
    """Draw a table of columns with two levels and up to eight parents: logits."""
    columns = tuple(f"v{place:03}" for place in range(width))
    parents = [np.sort(rng.permutation(place)[: min(place, int(rng.poisson(3)), 8)]) for place in range(width)]
    levels = rng.normal(-3.5 if rare else -1.5, 1, width)
    weights = [rng.normal(2 if rare else 1, 1, len(several)) for several in parents]

    def drawn(count: int) -> Codes:
        made = np.zeros((count, width), np.int64)
        for place, several in enumerate(parents):
            logit = levels[place] + made[:, several] @ weights[place]
            made[:, place] = rng.random(count) < 1 / (1 + np.exp(-logit))
        return made

    arrows = tuple((columns[parent], columns[place]) for place, several in enumerate(parents) for parent in several)
    return _simulated(columns, (2,) * width, drawn(rows), drawn(FRESH), arrows)


def _mixed(rng: np.random.Generator, rows: int = 30_000) -> Table:
    """Draw a table of 14 columns with 2 to 40 levels: logits of up to three parents, with some interaction."""
    sizes = tuple(int(size) for size in rng.permutation([2, 2, 2, 3, 5, 5, 7, 7, 9, 10, 14, 16, 20, 40]))
    columns = tuple(f"v{place:02}" for place in range(len(sizes)))
    parents = [np.sort(rng.permutation(place)[: min(place, int(rng.integers(0, 4)))]) for place in range(len(sizes))]
    # Some levels are rare, as in real tables.
    levels = [rng.normal(0, 1.5, size) for size in sizes]
    effects = [[rng.normal(0, 1, (sizes[parent], size)) for parent in several] for several, size in
               zip(parents, sizes, strict=True)]  # fmt: skip
    together = [rng.normal(0, 0.5, (997, size)) for size in sizes]

    def drawn(count: int) -> Codes:
        made = np.zeros((count, len(sizes)), np.int64)
        for place, several in enumerate(parents):
            logits = np.tile(levels[place], (count, 1))
            for parent, effect in zip(several, effects[place], strict=True):
                logits += effect[made[:, parent]]
            if len(several) > 1:
                logits += together[place][(made[:, several] @ (31 ** np.arange(len(several)))) % 997]
            made[:, place] = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        return made

    arrows = tuple((columns[parent], columns[place]) for place, several in enumerate(parents) for parent in several)
    return _simulated(columns, sizes, drawn(rows), drawn(FRESH), arrows)


class CodesTable:
    """Rows of codes behind what generators ask of a private table: batches and counts."""

    unit, max_rows_per_person = "row", None

    def __init__(self, codes: Codes, schema: Any):
        self._codes, self._schema = codes, schema

    def batches(
        self, size: int = 65_536, columns: Sequence[str] | None = None, *, encode: str = "codes"
    ) -> Iterator[Codes]:
        """Yield the codes."""
        assert encode == "codes"
        wanted = self._codes if columns is None else self._codes[:, [self._schema.names.index(c) for c in columns]]
        yield from np.split(wanted, range(size, len(wanted), size))

    def counts(self, columns: Sequence[Sequence[str]]) -> list[Codes]:
        """Return contingency tables."""
        found = []
        for several in columns:
            shape = self._schema.shape(list(several))
            places = [self._schema.names.index(name) for name in several]
            flat = np.ravel_multi_index(tuple(self._codes[:, places].T), shape)
            found.append(np.bincount(flat, minlength=math.prod(shape)).reshape(shape))
        return found


# -- one fit


def fitted(job: Mapping[str, Any], data: Path) -> tuple[Codes, dict[str, Any]]:
    """Fit and sample; every process is one thread."""
    import escudo
    from escudo.mechanisms import Purse
    from escudo.privacy import MemoryAccount
    from escudo.synthesis import prepare

    table = table_of(job["table"], data)
    method = (VARIANTS if job["part"] == "rules" else METHODS)[job["method"]]
    told = {
        name: {"type": "ordinal", "levels": [str(level) for level in range(size)]}
        if name in table.ordered and job["part"] == "adult"
        else [str(level) for level in range(size)]
        for name, size in zip(table.columns, table.sizes, strict=True)
    }
    schema = escudo.Schema.from_dict(told)
    graph = escudo.CausalGraph.from_edges(table.arrows, table.columns) if method.graph and job["graph"] else None
    began = time.process_time()
    prepared: Any = prepare(
        schema,
        graph,
        generator=method.generator,
        epsilon=job["epsilon"],
        delta=DELTA,
        relation="add_remove",
        public_rows=len(table.private),
        **(method.options or {}),
    )
    if method.training:
        prepared = replace(prepared, training=replace(prepared.training, **method.training))
    account, rng = MemoryAccount(relation="add_remove"), np.random.default_rng(job["seed"])
    purse = Purse(account, rng, plan=prepared.plan, guarantee=prepared.plan.guarantee())
    model = prepared.run(CodesTable(table.private, schema), purse)
    made = model.codes(len(table.private), seed=job["seed"])
    return made, {"cpu_seconds": time.process_time() - began}


def errors(table: Table, made: Codes) -> dict[str, float]:
    """Return the mean total variation over single columns, pairs and 100 triples; at most 2,000 pairs."""
    width, rng = len(table.columns), np.random.default_rng(SEED)
    pairs, triples = (list(itertools.combinations(range(width), size)) for size in (2, 3))
    chosen = [triples[place] for place in sorted(rng.choice(len(triples), min(100, len(triples)), replace=False))]
    if len(pairs) > 2000:
        named = {name: place for place, name in enumerate(table.columns)}
        pairs = [pairs[place] for place in sorted(rng.choice(len(pairs), 1230, replace=False))]
        pairs += [(named[cause], named[effect]) for cause, effect in table.arrows]
    sets = {"tv1": [(place,) for place in range(width)], "tv2": pairs, "tv3": chosen}
    return {
        name: statistics.fmean(tables.variation(table.against, made, table.sizes, places) for places in several)
        for name, several in sets.items()
    }


def done(job: Mapping[str, Any], data: Path, learners: bool = True) -> dict[str, Any]:
    """Fit, sample and score; what goes wrong is a note."""
    try:
        made, cost = fitted(job, data)
    except Exception:
        return {**job, "note": traceback.format_exc(limit=-2)[-400:]}
    facts = setting()
    cost["made"] = {name: facts[name] for name in ("date", "commit", "processor")}
    return {**job, **cost, **scored(job, made, data, learners=learners)}


def scored(job: Mapping[str, Any], made: Codes, data: Path, *, learners: bool = True) -> dict[str, Any]:
    """Return errors, and on Adult accuracies too."""
    if job["part"] == "adult" and learners:
        source = SOURCES["adult"]
        found = tables.score(source, tables.load(source, data), made)
        return {name: value for name, value in found.items() if name != "targets"}
    return errors(table_of(job["table"], data), made)


# -- the peer


def ctgan(job: Mapping[str, Any], data: Path, python: str, cap: float) -> dict[str, Any]:
    """Run DP-CTGAN in its own environment."""
    table = table_of("adult", data)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        facts = {**job, "columns": table.columns, "delta": DELTA, "cap": cap}
        (folder / "job.json").write_text(json.dumps(facts))
        np.save(folder / "private.npy", table.private)
        run = subprocess.run(
            [python, str(Path(__file__).with_name("peer_ctgan.py")), name],
            env=os.environ | THREADS | {"MALLOC_MMAP_THRESHOLD_": "1000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000"},
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode != 0:
            last = (run.stderr.strip().splitlines() or ["no message"])[-1]
            return {**job, "note": f"failed: {last[:200]}"}
        made = np.load(folder / "synthetic.npy")
        return {**job, **json.loads((folder / "cost.json").read_text()), **scored(job, made, data)}


# -- running, and writing down


def jobs_of(parts: Sequence[str], seeds: Sequence[int] | None) -> list[dict[str, Any]]:
    """Return what there is to do, a first seed of everything first."""
    jobs = []
    for part in parts:
        names = {"adult": ("adult",), "auto": AUTO_TABLES, "choice": BINARY + SIMULATED, "rules": RULED}[part]
        methods = tuple(VARIANTS) if part == "rules" else PARTS[part]
        told = (True, False) if part == "rules" else (True,)
        for seed, table, epsilon, method, graph in itertools.product(
            SEEDS[part] if seeds is None else seeds, names, EPSILONS[part], methods, told
        ):
            if table.startswith("pain") and "repair" in method:
                continue  # refused: there are too many pairs of columns to choose from
            key = {"part": part, "table": table, "method": method, "epsilon": epsilon, "graph": graph, "seed": seed}
            jobs.append(key)
    return sorted(jobs, key=lambda job: job["seed"])


def key_of(run: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a run is about."""
    return tuple(run[name] for name in ("part", "table", "method", "epsilon", "graph", "seed"))


def logged(file: Path) -> list[dict[str, Any]]:
    """Return what was done, by the results and by the log; a run that is there twice counts once."""
    results = RESULTS / "neural_tables.json"
    runs = json.loads(results.read_text())["runs"] if results.exists() else []
    runs += map(json.loads, file.read_text().splitlines() if file.exists() else [])
    return list({key_of(run): run for run in runs}.values())


def shown(values: Sequence[float], digits: int = 2, factor: float = 100.0) -> str:
    """Return a mean, with a 95 % interval by Student's t where there are three or more."""
    if not values:
        return ""
    scaled = [factor * value for value in values]
    text = f"{statistics.fmean(scaled):.{digits}f}"
    if len(scaled) < 3:
        return text
    from scipy.stats import t

    half = t.ppf(0.975, len(scaled) - 1) * statistics.stdev(scaled) / math.sqrt(len(scaled))
    return f"{text} ± {half:.{digits}f}"


def of(runs: Sequence[Mapping[str, Any]], **where: object) -> list[Mapping[str, Any]]:
    """Return the runs that have these values and were scored."""
    return [run for run in runs if "tv2" in run and all(run.get(key) == value for key, value in where.items())]


def adult_page(runs: Sequence[Mapping[str, Any]], peers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return Adult beside the peers."""
    theirs = {"mst": "MST", "privbayes": "PrivBayes", "aim": "AIM", "aim-fast": "AIM, model ≤ 1 MB, 100 iterations"}
    lines = []
    for epsilon in EPSILONS["adult"]:
        lines += [
            "",
            f"| ε = {epsilon:g} | 2-way | 3-way | logistic | forest | CPU-s | seeds |",
            "|---|---|---|---|---|---|---|",
        ]
        rows = [
            (method.title, of(runs, part="adult", method=name, epsilon=epsilon)) for name, method in METHODS.items()
        ]
        rows += [
            (f"{title} (dpmm 0.1.9)", of(peers, table="adult", method=name, epsilon=epsilon))
            for name, title in theirs.items()
        ]
        rows += [(title, of(runs, part="adult", method=name, epsilon=epsilon)) for name, title in PEERS.items()]
        for title, found in rows:
            if found:
                cells = [
                    shown([run[figure] for run in found if figure in run], digits)
                    for figure, digits in (("tv2", 2), ("tv3", 2), ("logistic", 1), ("forest", 1))
                ]
                cost = shown([run["cpu_seconds"] for run in found][:1], 0, 1.0)
                note = next((f"; {run['told']}" for run in found if "told" in run), "")
                lines.append(f"| {title} | {' | '.join(cells)} | {cost} | {len(found)}{note} |")
        for run in runs:
            if run["method"] in PEERS and run["epsilon"] == epsilon and "note" in run:
                lines.append(f"| {PEERS[run['method']]} | {run['note']} | | | | | |")
    return lines


def auto_page(runs: Sequence[Mapping[str, Any]], data: Path, part: str) -> list[str]:
    """Return every generator beside the one that the rule chooses."""
    import escudo
    from escudo.synthesis._generators import choose

    methods = PARTS[part]
    lines = [
        "| table | ε | " + " | ".join(METHODS[method].title for method in methods) + " | `auto` | costs |",
        "|---|---:|" + "---:|" * len(methods) + "---|---:|",
    ]
    for name, epsilon in itertools.product(AUTO_TABLES if part == "auto" else BINARY + SIMULATED, EPSILONS[part]):
        found = {method: of(runs, part=part, table=name, epsilon=epsilon, method=method) for method in methods}
        if not any(found.values()):
            continue
        table = table_of(name, data)
        levels = {
            column: [str(level) for level in range(size)]
            for column, size in zip(table.columns, table.sizes, strict=True)
        }
        chosen, _ = choose(escudo.Schema.from_dict(levels))
        means = {
            method: 100 * statistics.fmean(run["tv2"] for run in several)
            for method, several in found.items()
            if several
        }
        plain = {method: value for method, value in means.items() if method != "marginals repair"}
        best = min(plain, key=plain.__getitem__)
        cells = [
            "–" if method not in means else f"**{means[method]:.2f}**" if method == best else f"{means[method]:.2f}"
            for method in methods
        ]
        lost = f"{means[chosen] - plain[best]:+.2f}" if chosen in means else ""
        lines.append(f"| {name} | {epsilon:g} | {' | '.join(cells)} | {chosen} | {lost} |")
    return lines


def rules_page(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what each change does, over the simulated tables on which all of them were tried."""
    lines = []
    for title, names, graph in (
        ("mixed, true graph", SIMULATED, True),
        ("mixed, no graph", SIMULATED, False),
        ("80 columns of two levels, true graph", ("binary 80",), True),
    ):
        heads: list[str] = []
        rows: dict[str, list[str]] = {}
        for epsilon in EPSILONS["rules"]:
            here = of(runs, part="rules", epsilon=epsilon, graph=graph)
            tried = {name: {run["table"] for run in here if run["method"] == name} & set(names) for name in VARIANTS}
            tried = {name: several for name, several in tried.items() if several}
            common = set.intersection(*tried.values()) if tried else set()
            heads += [f"ε = {epsilon:g}, {len(common)} tables: {figure}" for figure in ("1-way", "2-way", "3-way")]
            for name, figure in itertools.product(tried, ("tv1", "tv2", "tv3")):
                values = [run[figure] for run in here if run["method"] == name and run["table"] in common]
                rows.setdefault(name, []).append(f"{100 * statistics.fmean(values):.2f}" if values else "–")
        if rows:
            lines += ["", f"| {title} | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
            lines += [f"| {VARIANTS[name].title} | {' | '.join(cells)} |" for name, cells in rows.items()]
    return lines


def page(payload: Mapping[str, Any], data: Path) -> str:
    """Return all results as Markdown."""
    facts, runs = payload["setting"], payload["runs"]
    made = [run["made"] for run in runs if "made" in run]
    machines, commits = (sorted({one[name] for one in made}) for name in ("processor", "commit"))
    table = table_of("adult", data)
    return "\n".join(
        [
            "# Neural generators on mixed tables",
            "",
            f"{facts['date']}, commit {', '.join(commits)}; fits on {', '.join(machines)}, one thread each. Made by "
            f"`python benchmarks/neural_tables.py`. Add/remove neighbours, δ = {DELTA:g}, number of rows public. "
            "Errors: mean total variation in percent.",
            "",
            "## Adult",
            "",
            f"{len(table.private):,} rows private, 14 columns, six ordered; split, bins, graph and scores as in "
            f"`tables.py` ({table.data}). Accuracy: mean over five columns, in percent, learnt on synthetic rows, "
            "tested on held-out real ones; seeds after the first may have errors only. Means, with 95 % intervals over "
            "seeds where there are three. dpmm's figures are those of `tables.md`, which used the same split, bins, δ, "
            "relation and scores.",
            *adult_page(runs, payload["peers"]),
            "",
            "DP-CTGAN installs for Python 3.11 once `packaging` is added by hand. It draws the rows of a batch by the "
            "shares of levels in the private table, which its accountant does not see; that is not held against it "
            "here. Its noise is fixed (multiplier 5), so a budget is a number of epochs: 38 for ε = 1, 300 for ε = 3 "
            "by its accountant."
            + ("" if of(runs, method="ctgan") else " No training of it was finished here (`--ctgan`)."),
            "",
            '## What `generator="auto"` chooses',
            "",
            "Two-way error with the stated graph; the best without repair in bold; *costs*: the chosen one's error "
            "less the best one's. Real tables: against the private rows; simulated ones: against 50,000 fresh rows "
            "(pain: all 770 arrows and 1,230 other pairs).",
            "",
            *auto_page(runs, data, "auto"),
            "",
            "The same on simulated tables, from which the rule was made: columns of two levels (their number is in the "
            "name; up to eight parents; 5,000 rows; *sparse*: one level is rare), and the mixed tables below.",
            "",
            *auto_page(runs, data, "choice"),
            "",
            "## Where the rules of training come from",
            "",
            "Simulated tables (three of 14 columns of 2 to 40 levels, 30,000 rows, logits with interactions; one of 80 "
            "columns of two levels, 5,000 rows), errors against 50,000 fresh rows, `autoregressive` with one thing "
            "changed.",
            *rules_page(runs),
            "",
        ]
    )


def write(runs: Sequence[Mapping[str, Any]], data: Path) -> None:
    """Write the results."""
    peers = json.loads((RESULTS / "tables.json").read_text())["runs"] if (RESULTS / "tables.json").exists() else []
    kept = [
        run for run in peers if run["table"] == "adult" and run["method"] in ("mst", "privbayes", "aim", "aim-fast")
    ]
    payload = {"setting": setting(), "delta": DELTA, "relation": "add_remove", "runs": list(runs), "peers": kept}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "neural_tables.json").write_text(json.dumps(payload, indent=1) + "\n")
    (RESULTS / "neural_tables.md").write_text(page(payload, data))


def main() -> None:
    """Do what is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[1].parent / "shared" / "data")
    parser.add_argument("--parts", nargs="*", choices=list(SEEDS), default=list(SEEDS))
    parser.add_argument("--only", nargs="*", default=[], help="methods to run")
    parser.add_argument("--tables", nargs="*", default=[], help="tables to run on")
    parser.add_argument("--seeds", type=int, nargs="*")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--log", type=Path, default=Path(tempfile.gettempdir()) / "neural_tables.jsonl", help="fits, one a line"
    )
    parser.add_argument("--ctgan", help="the Python of an environment with smartnoise-synth")
    parser.add_argument("--ctgan-epsilons", type=float, nargs="*", default=list(EPSILONS["adult"]))
    parser.add_argument("--cap", type=float, default=600.0, help="seconds by the clock of a training of the peer")
    parser.add_argument("--minutes", type=float, default=600.0, help="stop after so long")
    parser.add_argument("--no-learners", action="store_true", help="errors only")
    parser.add_argument("--no-page", action="store_true", help="only add to the log")
    chosen = parser.parse_args()
    os.environ |= THREADS
    known = {key_of(run) for run in logged(chosen.log)}
    wanted = [
        job
        for job in jobs_of(chosen.parts, chosen.seeds)
        if key_of(job) not in known
        and (not chosen.only or job["method"] in chosen.only)
        and (not chosen.tables or job["table"] in chosen.tables)
    ]
    began = time.perf_counter()
    pool = ProcessPoolExecutor(chosen.processes, mp_context=get_context("spawn"))
    with chosen.log.open("a") as log:
        futures = [pool.submit(done, job, chosen.data, not chosen.no_learners) for job in wanted]
        try:
            for future in as_completed(futures, timeout=60 * chosen.minutes):
                run = future.result()
                log.write(json.dumps(run) + "\n")
                log.flush()
                took = f"{time.perf_counter() - began:.0f} s"
                print(took, {name: run.get(name) for name in (*job_names(run), "tv2", "note")}, flush=True)
        except TimeoutError:
            print("Out of time; the same command goes on from here.")
        pool.shutdown(wait=False, cancel_futures=True)
        if chosen.ctgan is not None:
            for epsilon in chosen.ctgan_epsilons:
                job = {
                    "part": "adult",
                    "table": "adult",
                    "method": "ctgan",
                    "epsilon": epsilon,
                    "graph": False,
                    "seed": 1,
                }
                if key_of(job) not in known:
                    log.write(json.dumps(ctgan(job, chosen.data, chosen.ctgan, chosen.cap)) + "\n")
    if not chosen.no_page:
        write(logged(chosen.log), chosen.data)


def job_names(run: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what names a run."""
    return tuple(name for name in ("part", "table", "method", "epsilon", "graph", "seed") if name in run)


if __name__ == "__main__":
    main()
