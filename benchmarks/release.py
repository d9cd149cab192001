"""``escudo release``: accuracy on Asia, effects of interventions, time from the command line, and ten million rows.

Run ``python benchmarks/release.py`` from the repository's root; it takes a few minutes, and with ``--peers`` about half
an hour more. It writes ``benchmarks/results/release.json`` and ``release.md``, and exits with 1 if a target is missed.

* **Accuracy**: Asia, 80,000 simulated patients, the true graph, add/remove, δ = 1e-6: total variation between the 56
  three-way marginals of the synthetic rows and of the patients, mean over the marginals and over 5 runs. Beside it: the
  same model without noise, escudo with a graph discovered under the same ε, without a graph, and the
  peers; AIM's workload is what is scored, all three-way marginals. ``--peers`` left out keeps the peers' figures that
  ``release.json`` holds already; they do not depend on escudo.
* **Interventions**: for every column and level, the law of every other column when the first is set: mean total
  variation to the true network's answer. No peer has one; what they could do at best is to condition, so that error is
  given too, from the true network itself and without noise.
* **Time**: ``escudo release`` as a process, from start to end.
* **Size**: 10 million rows of 20 columns from Parquet, and as many synthetic rows back.

Options: ``--data DIR`` holds ``networks/`` with sachs.bif.gz and child.bif.gz, which are left out otherwise; ``--peers
PYTHON`` is an interpreter with dpmm 0.1.9 (it needs an environment of its own: ``pip install dpmm==0.1.9``);
``--peer-runs`` is how often each peer runs; ``--ways`` measures the accuracy of these ways to use escudo only, keeping
all else that ``release.json`` holds; ``--quick`` is a smoke run that writes nothing.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from escudo.causal import CausalGraph, Network, asia
from escudo.privacy import Guarantee, MemoryAccount, Plan, PureEvent
from escudo.synthesis import CausalModel, TableConditional, fit, prepare, prepare_discovered
from escudo.table import PrivateTable, Schema

SEED = 20_261_115
PATIENTS = 80_000
DELTA = 1e-6
TARGETS = {1.0: 0.0013, 0.1: 0.0036}
SECONDS, BIG_SECONDS = 6.0, 60.0
RUNS = 5
BIG_ROWS, BIG_COLUMNS = 10_000_000, 20
DISCOVERED = "graph discovered under the same ε"
TOLD = {"true graph": "graph"}
PEERS = ("AIM", "MST", "PrivBayes")
SEEN = {"AIM": (0.0044, 0.0066, 149), "MST": (0.0168, 0.0175, 56), "PrivBayes": (0.0172, 0.0270, 33)}
RESULTS = Path(__file__).parent / "results"

Codes = NDArray[np.int64]


# -- the clinic


def schema_of(network: Network) -> Schema:
    return Schema.from_dict({name: list(levels) for name, levels in network.levels.items()})


def simulated(network: Network, rows: int) -> pl.DataFrame:
    return network.sample_frame(rows, rng=np.random.default_rng(SEED))


def fitted(
    frame: pl.DataFrame, network: Network, graph: CausalGraph | str | None, epsilon: float, runs: int, **options: Any
) -> Iterator[Any]:
    schema, budget = schema_of(network), {"epsilon": epsilon, "delta": DELTA, "relation": "add_remove"}
    prepared: Any
    if graph == "discover":
        prepared = prepare_discovered(schema, **budget)
    else:
        prepared = prepare(schema, graph, **budget, **options)
    for seed in range(runs):
        yield fit(prepared, PrivateTable(frame, schema, MemoryAccount(relation="add_remove")), seed=seed)


def three_way_error(real: Codes, made: Codes) -> float:
    """Return the mean total variation over all three-way marginals of two tables of codes with two levels."""
    errors = []
    for columns in itertools.combinations(range(real.shape[1]), 3):
        places = [(table[:, columns] @ np.array([4, 2, 1])) for table in (real, made)]
        shares = [np.bincount(place, minlength=8) / len(place) for place in places]
        errors.append(np.abs(shares[0] - shares[1]).sum() / 2)
    return float(np.mean(errors))


def ways_to_use(clinic: Network) -> dict[str, CausalGraph | str | None]:
    """Return which graph each way is given."""
    return {"true graph": clinic.graph, DISCOVERED: "discover", "no graph": None}


def measure_ways(names: Iterable[str], clinic: Network, frame: pl.DataFrame, real: Codes, runs: int) -> dict[str, Any]:
    """Return the errors of some ways to use escudo, by ε and run."""
    found: dict[str, Any] = {}
    for name in names:
        graph = ways_to_use(clinic)[name]
        found[name] = {
            str(epsilon): [
                three_way_error(real, model.codes(PATIENTS, seed=0))
                for model in fitted(frame, clinic, graph, epsilon, runs)
            ]
            for epsilon in TARGETS
        }
    return found


def patients(clinic: Network) -> tuple[pl.DataFrame, Codes]:
    """Return the patients, and their cells as numbers."""
    frame = simulated(clinic, PATIENTS)
    codes = [schema_of(clinic)[name].encode(frame[name].to_list()) for name in clinic.nodes]
    return frame, np.stack(codes, axis=1)


def measure_accuracy(runs: int, folder: Path, peers: str | None, peer_runs: int) -> dict[str, Any]:
    clinic = asia()
    frame, real = patients(clinic)
    floor = next(fitted(frame, clinic, clinic.graph, 100.0, 1))
    measured: dict[str, Any] = {"without_noise": three_way_error(real, floor.codes(PATIENTS, seed=0))}
    measured["escudo"] = measure_ways(ways_to_use(clinic), clinic, frame, real, runs)
    measured["peers"] = None
    if peers is not None:
        source = folder / "codes.csv"
        pl.DataFrame(real, schema=list(clinic.nodes)).write_csv(source)
        measured["peers"] = [
            {"method": method, "epsilon": epsilon, "seed": seed} | run_peer(peers, method, epsilon, seed, source, real)
            for method in PEERS
            for epsilon in TARGETS
            for seed in range(peer_runs)
        ]
    return measured


def run_peer(python: str, method: str, epsilon: float, seed: int, source: Path, real: Codes) -> dict[str, Any]:
    target = source.with_name("synthetic.csv")
    script = Path(__file__).with_name("peer_dpmm.py")
    command = [python, str(script), method, str(epsilon), str(DELTA), str(seed), str(source), str(target)]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        return {"failed": run.stderr.strip().splitlines()[-1][:200] if run.stderr.strip() else "no message"}
    print(f"  {method} at ε = {epsilon:g}: {run.stdout.strip().splitlines()[-1]}", flush=True)
    made = pl.read_csv(target).to_numpy().astype(np.int64)
    return json.loads(run.stdout.strip().splitlines()[-1]) | {"error": three_way_error(real, made)}


# -- interventions


def true_model(network: Network) -> CausalModel:
    return CausalModel(
        schema=schema_of(network),
        graph=network.graph,
        conditionals={name: TableConditional(network.parents[name], network.table(name)) for name in network.nodes},
        guarantee=Guarantee(epsilon=1.0),
        generator="truth",
        plan=Plan("truth", PureEvent(epsilon=1.0)),
    )


def measure_interventions(network: Network, runs: int) -> dict[str, Any]:
    truth = true_model(network)
    questions = [
        (cause, level, effect)
        for cause in network.nodes
        for level in network.levels[cause]
        for effect in network.nodes
        if effect != cause
    ]
    answers = {(c, level, e): truth.probability([e], do={c: level}) for c, level, e in questions}

    def error(model: CausalModel, how: str) -> float:
        found = (model.probability([e], **{how: {c: level}}) for c, level, e in questions)
        pairs = zip(found, answers.values(), strict=True)
        return float(np.mean([np.abs(ours - wanted).sum() / 2 for ours, wanted in pairs]))

    frame = simulated(network, PATIENTS)
    return {
        "columns": len(network.nodes),
        "questions": len(questions),
        "by_conditioning_on_the_truth": error(truth, "given"),
        "without_noise": error(next(fitted(frame, network, network.graph, 100.0, 1)), "do"),
        "escudo": {
            str(epsilon): [error(model, "do") for model in fitted(frame, network, network.graph, epsilon, runs)]
            for epsilon in TARGETS
        },
    }


# -- the command line


def run_release(folder: Path, name: str) -> dict[str, Any]:
    out = folder / "out"
    command = [sys.executable, "-m", "escudo", "release", str(folder / f"{name}.parquet")]
    command += ["--schema", str(folder / f"{name}.toml"), "--graph", str(folder / f"{name}.dot")]
    command += ["--epsilon", "1", "--delta", str(DELTA), "--relation", "add_remove", "--out", str(out), "--force"]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak_mb": after.ru_maxrss / 1024,  # of the largest child so far
        "report_kb": (out / "report.html").stat().st_size / 1024,
    }


def measure_time(folder: Path, runs: int) -> list[dict[str, Any]]:
    clinic = asia()
    simulated(clinic, PATIENTS).write_parquet(folder / "asia.parquet")
    schema_of(clinic).write(folder / "asia.toml")
    clinic.graph.write(folder / "asia.dot")
    return [run_release(folder, "asia") for _ in range(runs)]


def measure_size(folder: Path, rows: int) -> dict[str, Any]:
    """Simulate a table with three levels and up to two parents a column, and release it."""
    rng = np.random.default_rng(SEED)
    names = [f"c{place:02}" for place in range(BIG_COLUMNS)]
    arrows: list[tuple[str, str]] = []
    codes: dict[str, NDArray[np.int8]] = {}
    for place, name in enumerate(names):
        causes = [names[i] for i in rng.choice(place, min(place, 2), replace=False)] if place else []
        arrows += [(cause, name) for cause in causes]
        steps = rng.dirichlet(np.ones(3), size=3 ** len(causes)).cumsum(axis=1)
        group = np.zeros(rows, dtype=np.int8)
        for cause in causes:
            group = group * 3 + codes[cause]
        uniform = rng.random(rows)
        codes[name] = (uniform > steps[group, 0]).astype(np.int8) + (uniform > steps[group, 1])
    levels = pl.Series(["a", "b", "c"])
    pl.DataFrame({name: levels.gather(code.astype(np.uint32)) for name, code in codes.items()}).write_parquet(
        folder / "big.parquet"
    )
    Schema.from_dict({name: ["a", "b", "c"] for name in names}).write(folder / "big.toml")
    CausalGraph.from_edges(arrows, nodes=names).write(folder / "big.dot")
    return {"rows": rows, "columns": BIG_COLUMNS} | run_release(folder, "big")


# -- report


def describe() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=RESULTS.parent)
    look = ["git", "status", "--porcelain", "--", "../src"]
    changed = subprocess.run(look, capture_output=True, text=True, cwd=RESULTS.parent)
    clean = commit.returncode == 0 and not changed.stdout.strip()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip() if clean else "uncommitted",
        "seed": SEED,
        "cpu": cpu[0] if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
    }


def report(result: dict[str, Any]) -> str:
    machine, accuracy, times, size = (result[key] for key in ("machine", "accuracy", "time", "size"))
    met = result["met"]
    ours = {float(e): statistics.mean(found) for e, found in accuracy["escudo"]["true graph"].items()}
    wall = statistics.median(run["seconds"] for run in times)
    lines = [
        "# Release benchmark",
        "",
        f"{machine['date']}, commit {machine['commit']}{_added(accuracy)}, seed {machine['seed']}. {machine['cpu']}, "
        f"{machine['cores']} cores, load {machine['load_average']:.1f} at the start, Python {machine['python']}. Made "
        "by `python benchmarks/release.py`.",
        "",
        "| target | measured | met |",
        "|---|---|---|",
    ]
    for epsilon, target in TARGETS.items():
        lines.append(
            f"| Asia, true graph, ε = {epsilon:g}: mean error of three-way marginals ≤ {target} | "
            f"{ours[epsilon]:.5f} | {_met(met[f'accuracy at {epsilon:g}'])} |"
        )
    lines += [
        f"| `escudo release` on it in under {SECONDS:g} s | {wall:.1f} s (median of {len(times)}; "
        f"{statistics.median(run['cpu_seconds'] for run in times):.1f} s of processor time) | {_met(met['time'])} |",
        f"| {size['rows']:,} rows × {size['columns']} columns from Parquet in under {BIG_SECONDS:g} s | "
        f"{size['seconds']:.1f} s, peak {size['peak_mb'] / 1024:.1f} GB, as many synthetic rows written | "
        f"{_met(met['size'])} |",
        "",
        "## Accuracy",
        "",
        f"Asia, {PATIENTS:,} patients, add/remove, δ = {DELTA:g}. Mean total variation over the 56 three-way "
        "marginals.",
        f"The same model without noise reaches {accuracy['without_noise']:.5f}: what is left is the patients' own "
        "chance, which a model that follows the graph does not copy.",
        "",
        "| method | told | ε = 1 | ε = 0.1 | CPU seconds | seen before (ε = 1, ε = 0.1, CPU s) |",
        "|---|---|---|---|---|---|",
    ]
    spent = statistics.median(run["cpu_seconds"] for run in times)
    for name, found in accuracy["escudo"].items():
        figures = " | ".join(f"{statistics.mean(found[str(epsilon)]):.5f}" for epsilon in TARGETS)
        cost = f"{spent:.1f} (whole command)" if name == "true graph" else ""
        lines.append(f"| escudo, {name} | {TOLD.get(name, '')} | {figures} | {cost} | |")
    lines += _peer_lines(accuracy["peers"])
    if any(run["method"] == "AIM" and "workload" not in run for run in accuracy["peers"] or ()):
        lines += [
            "",
            "AIM ran with its default workload, all pairs, and is scored on triples: it may be better with the "
            "workload that is scored, which the next run with `--peers` gives it. escudo was not told how many rows.",
        ]
    lines += [
        "",
        "## Interventions",
        "",
        f"{PATIENTS:,} simulated rows, true graph, add/remove, δ = {DELTA:g}. Mean total variation to the true",
        "network's P(effect | do(cause = level)), over all causes, levels and effects. *Conditioning* answers with",
        "the true P(effect | cause = level) instead, without noise: what a generator that knows no causes can reach.",
        "",
        "| network | questions | ε = 1 | ε = 0.1 | without noise | conditioning |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in result["interventions"].items():
        figures = " | ".join(f"{statistics.mean(found['escudo'][str(epsilon)]):.5f}" for epsilon in TARGETS)
        lines.append(
            f"| {name}, {found['columns']} columns | {found['questions']:,} | {figures} | "
            f"{found['without_noise']:.5f} | {found['by_conditioning_on_the_truth']:.5f} |"
        )
    if len(result["interventions"]) < 3:
        lines += ["", "Sachs and Child were left out: `--data` holds no networks."]
    return "\n".join(lines) + "\n"


def _peer_lines(peers: list[dict[str, Any]] | None) -> list[str]:
    lines = []
    for method in PEERS:
        before = ", ".join(str(value) for value in SEEN[method])
        if peers is None:
            lines.append(f"| {method} (dpmm 0.1.9) | | not run | not run | | {before} |")
            continue
        told = ""
        if method == "AIM":
            told = "workload: " + next((run["workload"] for run in peers if "workload" in run), "all pairs")
        figures = []
        for epsilon in TARGETS:
            runs = [run for run in peers if run["method"] == method and run["epsilon"] == epsilon]
            errors = [run["error"] for run in runs if "error" in run]
            figures.append(f"{statistics.mean(errors):.5f}" if errors else f"failed: {runs[0]['failed']}")
        busy = [run["cpu_seconds"] for run in peers if run["method"] == method and "cpu_seconds" in run]
        cost = f"{statistics.mean(busy):.0f}" if busy else ""
        lines.append(f"| {method} (dpmm 0.1.9) | {told} | {' | '.join(figures)} | {cost} | {before} |")
    return lines


def _added(accuracy: Mapping[str, Any]) -> str:
    """Say which rows were added later, and from what."""
    later = [f"{name}: {made['date']}, {made['commit']}" for name, made in accuracy.get("added", {}).items()]
    return f" ({'; '.join(later)})" if later else ""


def add_ways(names: Sequence[str]) -> int:
    """Measure the accuracy of some ways, and keep all else; without names only the page is written anew."""
    path, clinic = RESULTS / "release.json", asia()
    result = json.loads(path.read_text(encoding="utf-8"))
    if names:
        found = measure_ways(names, clinic, *patients(clinic), RUNS)
        ways = {**result["accuracy"]["escudo"], **found}
        result["accuracy"]["escudo"] = {name: ways[name] for name in ways_to_use(clinic) if name in ways}
        made = {key: describe()[key] for key in ("date", "commit")}
        result["accuracy"]["added"] = {**result["accuracy"].get("added", {}), **dict.fromkeys(names, made)}
    path.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(report(result), encoding="utf-8")
    return 0


def _met(good: bool) -> str:
    return "yes" if good else "**no**"


def main() -> int:
    parser = argparse.ArgumentParser(description="Benchmark escudo release.")
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--peers", help="a Python interpreter with dpmm 0.1.9")
    parser.add_argument("--peer-runs", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where to put large files; a temporary folder if unset")
    parser.add_argument(
        "--ways", nargs="*", choices=list(ways_to_use(asia())), help="ways to use escudo, accuracy only"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run that writes nothing")
    options = parser.parse_args()
    if options.ways is not None:
        return add_ways(options.ways)
    runs = 1 if options.quick else RUNS
    result: dict[str, Any] = {"machine": describe()}
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        result["time"] = measure_time(folder, 1 if options.quick else 3)
        result["size"] = measure_size(folder, BIG_ROWS // (100 if options.quick else 1))
        networks = {"Asia": asia()}
        for title in () if options.quick else ("Sachs", "Child"):
            path = options.data / "networks" / f"{title.lower()}.bif.gz"
            if path.exists():
                networks[title] = Network.read(path)
        result["interventions"] = {title: measure_interventions(net, runs) for title, net in networks.items()}
        result["accuracy"] = measure_accuracy(runs, folder, options.peers, options.peer_runs)
    before = RESULTS / "release.json"
    if options.peers is None and before.exists():
        result["accuracy"]["peers"] = json.loads(before.read_text(encoding="utf-8"))["accuracy"]["peers"]
    found = result["accuracy"]["escudo"]["true graph"]
    result["met"] = {
        f"accuracy at {epsilon:g}": statistics.mean(found[str(epsilon)]) <= target
        for epsilon, target in TARGETS.items()
    } | {
        "time": statistics.median(run["seconds"] for run in result["time"]) < SECONDS,
        "size": result["size"]["seconds"] < BIG_SECONDS,
    }
    print(report(result))
    if not options.quick:
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
        (RESULTS / "release.json").write_text(text, encoding="utf-8")
        (RESULTS / "release.md").write_text(report(result), encoding="utf-8")
    return 0 if all(result["met"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
