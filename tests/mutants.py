"""Small defects put into ``privacy/`` and ``mechanisms/`` at random, and whether a test notices each.

    python tests/mutants.py plan build/mutants.json --sample 1000 --seed 1     (after a run with --cov-context=test)
    python tests/mutants.py run build/mutants.json --out experiments/results/mutants.json --workers 2

cosmic-ray says what can be changed where. One change of each kind at each place is a site; sites are drawn at random,
so that the share of noticed ones is an estimate with an interval. Changes that only touch annotations, which nothing
reads at run time, are no defects and are left out. A mutant is given the tests that pass through its line, by the
coverage recorded before; what no test passes through is not noticed. ``make mutants`` does both.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any

HOME = Path(__file__).parents[1]
PLACES = ("src/escudo/privacy", "src/escudo/mechanisms")
MOST_TESTS = 250  # of those that pass through a line
SECONDS = 600.0  # for the tests of one mutant; more is an endless loop
NOTICED = ("noticed", "endless")  # and not "survived", or "untested": no test passes through it


def bare(source: str) -> str:
    """Return what a module does, without annotations and documentation."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(value=None)
    return ast.dump(tree)


def sites(file: Path) -> list[list[Any]]:
    """Return the places of a file that can be changed: at each, the changes of one kind."""
    from cosmic_ray.commands.init import init
    from cosmic_ray.work_db import WorkDB, use_db

    with TemporaryDirectory() as folder, use_db(str(Path(folder) / "work.sqlite"), WorkDB.Mode.create) as work:
        init([file], work, {})
        items = [item.mutations[0] for item in work.work_items]
    alike: dict[tuple[Any, ...], list[Any]] = {}
    for item in items:
        family = re.sub(r"_.*", "", item.operator_name.removeprefix("core/"))
        alike.setdefault((item.start_pos, item.end_pos, family), []).append(item)
    return [alike[key] for key in sorted(alike)]


def changed(file: Path, item: Any) -> str | None:
    """Return the text of a file with one change, or None if nothing that runs is changed."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    before = file.read_text()
    try:
        after = mutate_code(before, get_operator(item.operator_name)(**item.operator_args), item.occurrence)
        return None if after is None or bare(after) == bare(before) else after
    except (AttributeError, SyntaxError):  # cosmic-ray cannot make this one
        return None


def shared(first: str, second: str) -> int:
    """Return how many characters two texts begin with alike."""
    pairs = zip(first, second, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def difference(before: str, after: str) -> tuple[int, int, str]:
    """Return where two texts begin and end to differ in the first, and what the second has there."""
    start = shared(before, after)
    end = shared(before[start:][::-1], after[start:][::-1])
    return start, len(before) - end, after[start : len(after) - end]


def plan(arguments: argparse.Namespace) -> None:
    """Draw mutants, and write them with the tests that may notice each."""
    from coverage import CoverageData

    data = CoverageData(str(HOME / ".coverage"))
    data.read()
    files = sorted(path for place in PLACES for path in (HOME / place).rglob("*.py"))
    places = [(file, alike) for file in files for alike in sites(file)]
    chance = random.Random(arguments.seed)
    chance.shuffle(places)
    mutants: list[dict[str, Any]] = []
    passed: dict[Path, dict[int, list[str]]] = {file: data.contexts_by_lineno(str(file)) for file in files}
    looked = 0
    for file, alike in places:
        if len(mutants) == arguments.sample:
            break
        looked += 1
        item = chance.choice(alike)
        text = changed(file, item)
        if text is None:
            continue
        line = item.start_pos[0]
        tests = {name for name in passed[file].get(line, []) if name}
        tests = tests or {name for names in passed[file].values() for name in names if name}
        given = chance.sample(sorted(tests), min(len(tests), MOST_TESTS))
        mutants.append(
            {
                "file": file.relative_to(HOME).as_posix(),
                "line": line,
                "operator": item.operator_name.removeprefix("core/"),
                "was": file.read_text().splitlines()[line - 1].strip(),
                "is": text.splitlines()[line - 1].strip(),
                "change": difference(file.read_text(), text),
                "tests": sorted({name.split("|")[0] for name in given}),
            }
        )
        if len(mutants) % 100 == 0:
            print(f"{len(mutants)} drawn", flush=True)
    arguments.plan.parent.mkdir(parents=True, exist_ok=True)
    asked = ["git", "-C", str(HOME), "describe", "--always", "--dirty", "--exclude", "*"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    known = {"commit": commit, "places": len(places), "looked": looked, "seed": arguments.seed, "mutants": mutants}
    arguments.plan.write_text(json.dumps(known))
    print(f"{len(mutants)} changes at {looked} of {len(places)} places, drawn at random")


def surroundings(home: Path) -> dict[str, str]:
    """Return the environment in which a copy of the project is tested: its own source first."""
    path = os.pathsep.join([str(home / "src"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}


def noticed(mutant: dict[str, Any], home: Path) -> str:
    """Put a mutant into a copy of the project, and return what its tests say of it."""
    if not mutant["tests"]:
        return "untested"
    file = home / mutant["file"]
    before = file.read_text()
    start, end, instead = mutant["change"]
    file.write_text(before[:start] + instead + before[end:])
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-n", "0"]
    settings: dict[str, Any] = {"cwd": home, "env": surroundings(home), "capture_output": True, "text": True}
    try:
        done = subprocess.run([*command, *mutant["tests"]], timeout=SECONDS, check=False, **settings)
        mutant["said"] = done.stdout[-300:] if done.returncode else ""
        return "noticed" if done.returncode else "survived"
    except subprocess.TimeoutExpired:
        return "endless"
    finally:
        file.write_text(before)


def failing(mutants: list[dict[str, Any]], home: Path, workers: int) -> set[str]:
    """Return the tests, and files of them, that fail here without any defect: they can notice nothing."""
    files = sorted({name.split("::")[0] for mutant in mutants for name in mutant["tests"]})
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no", "-n", str(workers), "-p", "no:cacheprovider"]
    settings: dict[str, Any] = {"cwd": home, "env": surroundings(home), "capture_output": True, "text": True}
    done = subprocess.run([*command, *files], check=False, **settings)
    print("\n".join(done.stdout.splitlines()[-12:]), flush=True)
    return set(re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE))


def run(arguments: argparse.Namespace) -> None:
    """Try the mutants that were drawn, until time is up, and write what came of them."""
    drawn = json.loads(arguments.plan.read_text())
    ends = time.monotonic() + arguments.seconds
    copies: SimpleQueue[Path] = SimpleQueue()
    with TemporaryDirectory(prefix="escudo-") as folder:
        for number in range(arguments.workers):
            copy = Path(folder) / str(number)
            for name in ("src", "tests"):
                shutil.copytree(HOME / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            for name in ("conftest.py", "pyproject.toml"):
                shutil.copy(HOME / name, copy / name)
            copies.put(copy)

        useless = failing(drawn["mutants"], copy, arguments.workers)
        for mutant in drawn["mutants"]:
            mutant["tests"] = [
                name for name in mutant["tests"] if name not in useless and name.split("::")[0] not in useless
            ]

        def one(mutant: dict[str, Any]) -> dict[str, Any] | None:
            if time.monotonic() > ends:
                return None
            home = copies.get()
            try:
                outcome = noticed(mutant, home)
            finally:
                copies.put(home)
            print(outcome[0], end="", flush=True)
            return {key: mutant[key] for key in ("file", "line", "operator", "was", "is")} | {
                "outcome": outcome,
                "tests": len(mutant["tests"]),
                "said": mutant.get("said", ""),
            }

        with ThreadPoolExecutor(arguments.workers) as pool:
            results: list[dict[str, Any]] = []
            for result in pool.map(one, drawn["mutants"]):
                results += [result] if result else []
                write(arguments.out, drawn, results)  # what was found stays, whatever stops the rest
    print(f"\n{sum(result['outcome'] in NOTICED for result in results)} of {len(results)} noticed")


def write(out: Path, drawn: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """Write down what came of the mutants so far, whole or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_suffix(".draft")
    draft.write_text(json.dumps(summary(drawn, results), indent=1) + "\n")
    draft.replace(out)


def summary(drawn: dict[str, Any], results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the share that was noticed with its 95 % interval (Wilson), by file, and who survived."""
    files: dict[str, list[int]] = {}
    for result in results:
        counts = files.setdefault(result["file"], [0, 0])
        counts[0] += result["outcome"] in NOTICED
        counts[1] += 1
    tried = len(results)
    share = sum(counts[0] for counts in files.values()) / max(tried, 1)
    z = 1.96
    centre = (share + z * z / (2 * max(tried, 1))) / (1 + z * z / max(tried, 1))
    half = (
        z
        * math.sqrt(share * (1 - share) / max(tried, 1) + z * z / (4 * max(tried, 1) ** 2))
        / (1 + z * z / max(tried, 1))
    )
    return {
        "commit": drawn["commit"],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "places": drawn["places"],
        "seed": drawn["seed"],
        "tried": tried,
        "noticed": round(share, 4),
        "interval": [round(centre - half, 4), round(centre + half, 4)],
        "files": {name: f"{counts[0]} of {counts[1]}" for name, counts in sorted(files.items())},
        "survived": [
            {key: result[key] for key in ("file", "line", "operator", "was", "is", "tests")}
            for result in results
            if result["outcome"] not in NOTICED
        ],
        "endless": sum(result["outcome"] == "endless" for result in results),
        "examples of notices": [result["said"] for result in results if result["outcome"] == "noticed"][:5],
    }


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(required=True)
    for step, name in ((plan, "plan"), (run, "run")):
        one = steps.add_parser(name)
        one.set_defaults(step=step)
        one.add_argument("plan", type=Path)
    steps.choices["plan"].add_argument("--sample", type=int, default=1000)
    steps.choices["plan"].add_argument("--seed", type=int, default=1)
    steps.choices["run"].add_argument("--out", type=Path, required=True)
    steps.choices["run"].add_argument("--workers", type=int, default=2)
    steps.choices["run"].add_argument("--seconds", type=float, default=math.inf)
    arguments = parser.parse_args()
    arguments.step(arguments)


if __name__ == "__main__":
    main()
