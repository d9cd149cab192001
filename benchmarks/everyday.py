"""What everyday commands cost: processor seconds of the help, a small release, an attack and an evaluation.

    python benchmarks/everyday.py

Each command runs in a process of its own, imports included, on 2,000 simulated patients of the Asia network; modules
are compiled already, as they are where escudo is installed. The median of ``--repeats`` runs is compared with the
target; a busy machine only ever adds. Targets: the help in 0.3 s, a small release in 2 s,
an attack on one person with 10 + 10 fits in 15 s. Writes ``benchmarks/results/everyday.json`` and ``everyday.md``.
``--quick`` measures once and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _made import made, told

import escudo
from escudo.causal import asia

SEED = 1988
ROWS = 2000
RESULTS = Path(__file__).parent / "results"
PACKAGE = str(Path(escudo.__file__).parents[1])  # the very code that is looked at, wherever a command runs
TABLE = ("visits.csv", "--schema", "visits.toml")
RELEASE = ("release", *TABLE, "--graph", "clinic.dot", "--epsilon", "1")
COMMANDS: dict[str, tuple[tuple[str, ...], float | None]] = {
    "help": (("--help",), 0.3),
    "a release's plan": ((*RELEASE, "--plan"), None),
    "a small release": ((*RELEASE, "--out", "{new}"), 2.0),
    "rows of its model": (("sample", "made/model", "--rows", "5"), None),
    "an attack, one person, 10 + 10 fits": (
        ("attack", *TABLE, "--graph", "clinic.dot", "--epsilon", "1", "--targets", "1", "--shadows", "10",
         "--trials", "10", "--jobs", "1"),
        15.0,
    ),
    "an evaluation for the custodian": (("evaluate", "visits.csv", "test.csv", "--release", "made"), None),
}  # fmt: skip


def prepare(folder: Path) -> None:
    """Write the table, its schema and its graph, a test set, and one release to look at."""
    clinic, rng = asia(), np.random.default_rng(SEED)
    clinic.sample_frame(ROWS, rng=rng).write_csv(folder / "visits.csv")
    clinic.sample_frame(ROWS, rng=rng).write_csv(folder / "test.csv")
    schema = escudo.Schema.from_dict({name: list(levels) for name, levels in clinic.levels.items()})
    schema.write(folder / "visits.toml")
    clinic.graph.write(folder / "clinic.dot")
    spent(folder, (*RELEASE, "--out", "made"))


def spent(folder: Path, words: tuple[str, ...]) -> float:
    """Run a command and return the processor seconds it took, children included."""
    code = "from escudo.cli import main; main()"
    around = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=folder, env=around | {"ESCUDO_LEDGER": "", "PYTHONPATH": PACKAGE},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"escudo {' '.join(words)} failed:\n{done.stdout[-500:]}{done.stderr[-1500:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--quick", action="store_true")
    asked = options.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder)
        for name, (words, target) in COMMANDS.items():
            times = []
            for repeat in range(1 if asked.quick else asked.repeats):
                times.append(spent(folder, tuple(word.format(new=f"new{repeat}") for word in words)))
            row = {"least": min(times), "seconds": statistics.median(times), "most": max(times)}
            rows.append({"command": name, **row, "target": target})
            print(f"{name}: {row['seconds']:.2f} ({min(times):.2f} to {max(times):.2f}) CPU s", flush=True)
    facts = made(seed=SEED)
    if asked.quick:
        return
    lines = [
        "# What everyday commands cost",
        "",
        f"{told(facts)}. {ROWS:,} rows, 8 columns; median, least and most of {asked.repeats} runs, in processor",
        "seconds, start and imports included. A busy machine adds to all of them: the least is nearest to a quiet one.",
        "",
        "| command | median | least | most | target |",
        "|---|--:|--:|--:|--:|",
        *(
            f"| {row['command']} | {row['seconds']:.2f} | {row['least']:.2f} | {row['most']:.2f} | "
            f"{row['target'] or ''} |"
            for row in rows
        ),
    ]
    missed = [row for row in rows if row["target"] is not None and row["seconds"] > row["target"]]
    if missed:
        lines += ["", "Missed: " + ", ".join(f"{row['command']} ({row['seconds']:.2f} s)" for row in missed) + "."]
    (RESULTS / "everyday.json").write_text(json.dumps({**facts, "rows": rows}, indent=1, ensure_ascii=False) + "\n")
    (RESULTS / "everyday.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
