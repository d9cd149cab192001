"""The three papers in one go: what of them holds, which command re-does each table, and whether it still comes out.

::

    python experiments/papers.py --list        # every table, figure and theorem: verdict, and the command for it
    python experiments/papers.py               # every cheap experiment again, compared with the committed figures
    python experiments/papers.py --only pairs  # those whose name holds a word

``make papers`` is the second. Results and logs go to ``--out`` (``build/papers``); committed ones are never touched.
What is done there, from the same sources, is not done again, so that a stopped run goes on where it was; ``--again``
forgets it. Before anything runs, the time is estimated from the processor time that the committed runs took; how busy
the machine is shows after the first one.

**Comparison.** Every number of a result is compared with the committed one at the same place: |new - old| is to be at
most ``absolute`` + ``relative`` · |old|, with the tolerances of its experiment, which are printed. Seeds are fixed, so
most of them are about rounding; where learners or attackers are fitted, another library's version moves figures, and
the tolerance is about chance. Times, machines, dates and commits are not compared. Exit codes: 0 all as committed, 5
something is not, 2 wrong options.

An experiment that needs data which are not at hand (``--data``, default ``../shared/data``) is left out, and said so.
What takes hours or an accelerator is in the map, with its command, and is not run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COMMITTED = ROOT / "experiments" / "results"
UNCOMPARED = {"seconds", "cpu_seconds", "machine", "made", "setting", "date", "commit"}
FIGURE = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


# -- what there is to run


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Something that can be run again in minutes, and the committed result that it must give.

    Attributes:
        name: What it is called here.
        script: From the repository's root.
        options: Of the script.
        result: The committed file: the JSON that the script writes, or, for ``.txt``, what it prints.
        cpu_seconds: What it took.
        relative: Tolerance, as a share of the committed figure.
        absolute: Tolerance, in the figure's own unit.
        why: Why the tolerances are what they are.
        folders: Folders of ``--data`` that it reads.
        whole: Whether it makes all of the result; else what it makes is compared.
    """

    name: str
    script: str
    result: str
    cpu_seconds: float
    options: tuple[str, ...] = ()
    relative: float = 1e-6
    absolute: float = 1e-9
    why: str = "seeded; rounding"
    folders: tuple[str, ...] = ()
    whole: bool = True

    @property
    def command(self) -> str:
        """What a person would type."""
        return " ".join(["python", self.script, *self.options])


EXPERIMENTS = (
    *(
        Experiment(name=name, script=f"examples/{name}.py", result=f"{name}.txt", cpu_seconds=1, why="exact; rounding")
        for name in ("ada_and_byron", "counterexamples", "composition", "social_network", "beyond_the_paper")
    ),
    Experiment(name="stability", script="experiments/stability.py", result="stability.json", cpu_seconds=25),
    Experiment(
        name="training_set_privacy",
        script="experiments/training_set_privacy.py",
        result="training_set_privacy.json",
        cpu_seconds=25,
    ),
    Experiment(
        name="observed",
        script="experiments/observed.py",
        options=("--only", "logs"),
        result="observed.json",
        cpu_seconds=12,
        whole=False,
    ),
    Experiment(
        name="private_causal_inference",
        script="experiments/private_causal_inference.py",
        result="private_causal_inference.json",
        cpu_seconds=25,
        folders=("tuebingen_odd",),
    ),
    Experiment(
        name="simulated_directions",
        script="experiments/simulated_directions.py",
        result="simulated_directions.json",
        cpu_seconds=90,
    ),
    Experiment(
        name="pairs",
        script="experiments/pairs.py",
        result="pairs.json",
        cpu_seconds=190,
        folders=("tuebingen_odd", "pairs_new"),
    ),
    Experiment(
        name="wrong_graphs",
        script="experiments/wrong_graphs.py",
        options=("--only", "marginals"),
        result="wrong_graphs.json",
        cpu_seconds=165,
        absolute=0.15,
        relative=0.02,
        why="committed from another machine, and attackers are fitted; shares and ε",
        whole=False,
    ),
    Experiment(
        name="amplification",
        script="experiments/amplification.py",
        options=("--only", "linear"),
        result="amplification.json",
        cpu_seconds=110,
        absolute=0.1,
        relative=0.05,
        why="attackers are fitted; shares",
        whole=False,
    ),
)


# -- the papers, row by row: the table of experiments/README.md

VERDICTS = ("re-done", "re-done in part", "contradicted", "impossible", "open")
HEAD = "| paper, part | verdict | what came out | command |"


@dataclass(frozen=True, slots=True)
class Row:
    """One table, figure or theorem: how it ends, on what evidence or for which reason, and what re-does it."""

    part: str
    verdict: str
    because: str
    command: str


def rows(index: str | None = None) -> list[Row]:
    """Return the rows of the index, ``experiments/README.md``."""
    text = (ROOT / "experiments" / "README.md").read_text(encoding="utf-8") if index is None else index
    _, found, rest = text.partition(HEAD + "\n")
    if not found:
        raise ValueError(f"experiments/README.md has no table that begins with {HEAD}")
    lines = [line for line in rest.split("\n\n")[0].splitlines() if not line.startswith("|---")]
    return [Row(*(cell.strip() for cell in line.strip().strip("|").split(" | "))) for line in lines]


def page(index: str | None = None) -> str:
    """Return the documentation's page: the same rows, for readers who have no clone open."""
    lines = [
        "# What of the three papers holds",
        "",
        "Every theorem, table and figure that escudo was built from. *Property*: *Differential Privacy as a Causal",
        "Property*; *Inference*: *Private Causal Inference*; *Synthesis*: *Causally Constrained Data Synthesis*.",
        "Intervals are 95 %. `make papers` runs what is cheap again, about ten minutes of a processor, and compares it",
        "with the committed figures.",
        "",
        HEAD,
        "|---|---|---|---|",
    ]
    for row in rows(index):
        because = re.sub(r"\[([^]]+)\]\(results/([^)]+)\)", r"`experiments/results/\2`", row.because)
        lines.append(f"| {row.part} | **{row.verdict}** | {because} | {row.command} |")
    return "\n".join(lines) + "\n"


# -- comparing


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure that is not the committed one; None for one that is missing on either side."""

    place: str
    new: object
    committed: object


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, object]]:
    """Yield every number and word of a result with its place, without times, machines and dates."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key not in UNCOMPARED:
                yield from leaves(part, f"{place}/{key}")
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from leaves(part, f"{place}/{number}")
    else:
        yield place, value


def read(path: Path) -> Any:
    """Return a result: JSON, or the words and figures of what was printed."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return json.loads(text)
    return [[*FIGURE.split(line), *map(float, FIGURE.findall(line))] for line in text.splitlines()]


def differences(new: Any, committed: Any, *, relative: float, absolute: float, whole: bool) -> list[Difference]:
    """Return what is not as committed, within the tolerances; only for a whole result does what is missing count."""
    ours, theirs = dict(leaves(new)), dict(leaves(committed))
    places = list(theirs) + [place for place in ours if place not in theirs] if whole else list(ours)
    found = []
    for place in places:
        one, other = ours.get(place), theirs.get(place)
        if place not in ours or place not in theirs or not _same(one, other, relative, absolute):
            found.append(Difference(place, one, other))
    return found


def _same(new: object, committed: object, relative: float, absolute: float) -> bool:
    numbers = (int, float)
    if isinstance(new, numbers) and isinstance(committed, numbers) and not isinstance(new, bool):
        if math.isnan(new) or math.isnan(committed):
            return math.isnan(new) and math.isnan(committed)
        return new == committed or abs(new - committed) <= absolute + relative * abs(committed)
    return new == committed


# -- running


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of an experiment: ``same``, ``differs``, ``failed`` or ``no data``."""

    kind: str
    said: str
    cpu_seconds: float = 0.0
    resumed: bool = False


def fingerprint(experiment: Experiment, root: Path = ROOT) -> str:
    """Return a digest of what a result depends on: the command, the experiments' sources and escudo's."""
    digest = hashlib.sha256(experiment.command.encode())
    sources = [root / experiment.script, *(root / "experiments").glob("*.py"), *(root / "src").rglob("*.py")]
    for path in sorted(set(sources) - {Path(__file__)}):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def run(experiment: Experiment, out: Path, data: Path, *, committed: Path = COMMITTED, root: Path = ROOT) -> Outcome:
    """Run an experiment, unless it was run from the same sources, and compare what it gave."""
    missing = [folder for folder in experiment.folders if not (data / folder).is_dir()]
    if missing:
        return Outcome(kind="no data", said=f"left out: {data} has no {', '.join(missing)}")
    known, mark = fingerprint(experiment, root), out / f"{experiment.name}.state.json"
    state = json.loads(mark.read_text(encoding="utf-8")) if mark.exists() else {}
    resumed = state.get("fingerprint") == known
    if not (resumed and "cpu_seconds" in state):
        if not resumed:  # parts of a result from other sources are no start
            (out / experiment.result).unlink(missing_ok=True)
        out.mkdir(parents=True, exist_ok=True)
        mark.write_text(json.dumps({"fingerprint": known}), encoding="utf-8")
        code, spent = _start(experiment, out, data, root)
        if code != 0:
            return Outcome(kind="failed", said=f"ended with code {code}; see {out / f'{experiment.name}.err'}")
        state = {"fingerprint": known, "cpu_seconds": round(spent, 1)}
        mark.write_text(json.dumps(state), encoding="utf-8")
    new, old = read(out / experiment.result), read(committed / experiment.result)
    apart = differences(new, old, relative=experiment.relative, absolute=experiment.absolute, whole=experiment.whole)
    within = f"{experiment.absolute:g} + {experiment.relative:g} of the figure ({experiment.why})"
    counted = len(list(leaves(new)))
    if not apart:
        said = f"{counted:,} figures as committed, within {within}"
        return Outcome(kind="same", said=said, cpu_seconds=state["cpu_seconds"], resumed=resumed)
    shown = "; ".join(f"{one.place}: {one.new}, committed {one.committed}" for one in apart[:3])
    said = f"{len(apart):,} of {counted:,} figures are not as committed, within {within}: {shown}"
    return Outcome(kind="differs", said=said, cpu_seconds=state["cpu_seconds"], resumed=resumed)


def _start(experiment: Experiment, out: Path, data: Path, root: Path) -> tuple[int, float]:
    """Run the script in a process of its own, results and log in ``out``; return its code and processor time."""
    command = [sys.executable, str(root / experiment.script), *experiment.options]
    command += ["--data", str(data)] if experiment.folders else []
    env = {**os.environ, "ESCUDO_RESULTS": str(out), "PYTHONUNBUFFERED": "1"}
    printed = out / (experiment.result if experiment.result.endswith(".txt") else f"{experiment.name}.log")
    before = os.times()
    with printed.open("w", encoding="utf-8") as words, (out / f"{experiment.name}.err").open("w") as errors:
        code = subprocess.run(command, stdout=words, stderr=errors, env=env, cwd=root, check=False).returncode
    after = os.times()
    return code, after.children_user + after.children_system - before.children_user - before.children_system


def run_all(chosen: Sequence[Experiment], out: Path, data: Path) -> int:
    """Run one after the other, saying where it stands; return the exit code."""
    total, began = sum(one.cpu_seconds for one in chosen), time.perf_counter()
    print(f"{len(chosen)} experiments, about {_minutes(total)} of one processor; results in {out}", flush=True)
    outcomes, passed = [], 0.0
    for number, experiment in enumerate(chosen, start=1):
        print(f"[{number}/{len(chosen)}] {experiment.command} (about {_minutes(experiment.cpu_seconds)})", flush=True)
        outcomes.append(run(experiment, out, data))
        passed += experiment.cpu_seconds
        spent = time.perf_counter() - began
        left = f"; about {_minutes(spent * (total - passed) / passed)} to go" if passed < total else ""
        before = " (run before)" if outcomes[-1].resumed else ""
        print(f"    {outcomes[-1].kind}{before}: {outcomes[-1].said}{left}", flush=True)
    counted = {kind: sum(one.kind == kind for one in outcomes) for kind in ("same", "differs", "failed", "no data")}
    print(", ".join(f"{count} {kind}" for kind, count in counted.items()) + f"; {_minutes(spent)} by the clock")
    return 5 if counted["differs"] or counted["failed"] else 0


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def main() -> int:
    """List the papers' parts, or run the cheap experiments again."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--list", action="store_true", help="every part of the papers, its verdict and its command")
    options.add_argument("--only", nargs="*", default=[], help="experiments whose name holds one of these words")
    options.add_argument("--out", type=Path, default=ROOT / "build" / "papers", help="where results and logs go")
    options.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of the real data")
    options.add_argument("--again", action="store_true", help="forget what was run before")
    given = options.parse_args()
    if given.list:
        for row in rows():
            print(f"{row.part}\n    {row.verdict}: {row.because}\n    {row.command}")
        print("\nRun by `make papers`:")
        for one in EXPERIMENTS:
            print(f"    {one.name}: {one.command} (about {_minutes(one.cpu_seconds)})")
        return 0
    chosen = [one for one in EXPERIMENTS if not given.only or any(word in one.name for word in given.only)]
    if not chosen:
        options.error(f"no experiment is called so; there are {', '.join(one.name for one in EXPERIMENTS)}")
    if given.again:
        for one in chosen:
            (given.out / f"{one.name}.state.json").unlink(missing_ok=True)
    return run_all(chosen, given.out.resolve(), given.data.resolve())


if __name__ == "__main__":
    sys.exit(main())
