"""Many faults, counted: ``python -m chaos --faults 10000``.

Ends with code 5 if anything did not hold that must hold. One world is repeated by ``--seed S --world W``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before they are imported: a process with threads must not fork

from chaos import broken  # noqa: E402
from chaos.audits import AuditWorld  # noqa: E402
from chaos.ledgers import LedgerWorld  # noqa: E402
from chaos.releases import ReleaseWorld, ResumeWorld  # noqa: E402
from chaos.stage import INVARIANTS, Case, Stage, World  # noqa: E402
from chaos.stores import Server, server_binaries  # noqa: E402

_WORLDS: dict[str, tuple[type[World], float]] = {  # with how many of a hundred faults each takes
    "spend": (LedgerWorld, 78.0),
    "release": (ReleaseWorld, 14.0),
    "audit": (AuditWorld, 7.5),
    "resume": (ResumeWorld, 0.5),
}
_SHOWN = 40


def main() -> int:
    """Run, report, and say by the exit code whether everything held."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=200, help="stop after so many faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--world", type=int, action="append", help="only this world, whatever --faults says")
    parser.add_argument("--scenes", nargs="+", default=list(_WORLDS), choices=_WORLDS)
    parser.add_argument("--stores", nargs="+", default=["sqlite", "postgresql"], choices=["sqlite", "postgresql"])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--broken", choices=sorted(broken.WAYS), help="break escudo first; the suite must see it")
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    start = time.time()
    queue: multiprocessing.Queue[dict[str, Any]] = multiprocessing.get_context("fork").Queue()
    quota = [
        options.faults // options.workers + (number < options.faults % options.workers)
        for number in range(options.workers)
    ]
    workers = [
        multiprocessing.get_context("fork").Process(target=_work, args=(options, number, quota[number], queue))
        for number in range(options.workers)
    ]
    for worker in workers:
        worker.start()
    counts: Counter[tuple[str, str, str]] = Counter()
    violations: list[dict[str, Any]] = []
    missed, running = 0, len(workers)
    while running:
        found = queue.get()
        if "end" in found:
            running -= 1
            if found["end"]:
                print(found["end"], file=sys.stderr)
                return 1
            continue
        if found["struck"]:
            counts[found["scene"], found["fault"], found["store"]] += 1
        else:
            missed += 1
        for invariant, detail in found.pop("broken"):
            violations.append({"invariant": invariant, **found, "detail": detail})
            if len(violations) <= _SHOWN:
                print(f"\r{_shown(violations[-1])}", file=sys.stderr)
        done = counts.total()
        if done % 20 == 0:
            rate = done / (time.time() - start)
            print(f"\r{done} faults, {len(violations)} violations, {rate:.1f}/s ", end="", file=sys.stderr, flush=True)
    for worker in workers:
        worker.join()
    result = {
        "what": "faults injected while accounts are in use, and what did not hold afterwards",
        "commit": _commit(),
        "seed": options.seed,
        "machine": {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()},
        "seconds": round(time.time() - start),
        "faults": counts.total(),
        "drawn_but_too_late": missed,
        "by_scene_fault_store": [
            {"scene": scene, "fault": fault, "store": store, "faults": count}
            for (scene, fault, store), count in sorted(counts.items())
        ],
        "invariants": INVARIANTS,
        "violations": violations,
    }
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    _print(result)
    return 5 if violations else 0


def _work(options: argparse.Namespace, number: int, quota: int, queue: Any) -> None:
    """Play every worker's share of the worlds until its share of the faults happened."""
    server, problem = None, ""
    try:
        if options.broken:
            broken.WAYS[options.broken]()
        binaries = server_binaries() if "postgresql" in options.stores else None
        server = None if binaries is None else Server(binaries)
        with tempfile.TemporaryDirectory(prefix="escudo-chaos-") as name, ExitStack() as stack:
            stage = Stage(Path(name), server)
            stack.callback(stage.disk.close)
            numbers = iter(options.world) if options.world else itertools.count(number, options.workers)
            left = quota
            for which in numbers:
                for case in _played(stage, options, which):
                    queue.put(asdict(case) | {"world": which})
                    left -= case.struck
                    if left <= 0 and not options.world:
                        return
    except BaseException:
        import traceback

        problem = traceback.format_exc()
    finally:
        if server is not None:
            server.close()
        queue.put({"end": problem})


def _played(stage: Stage, options: argparse.Namespace, number: int) -> Iterator[Case]:
    """Play one world: the seed and its number decide everything, given which scenes and stores there may be."""
    rng = random.Random(f"{options.seed}/{number}")
    themes = [theme for theme in _WORLDS if theme in options.scenes]
    make = _WORLDS[rng.choices(themes, [_WORLDS[theme][1] / _WORLDS[theme][0].faults for theme in themes])[0]][0]
    kind = rng.choice([store for store in options.stores if store == "sqlite" or stage.server is not None])
    played = make(stage, rng, kind, f"world_{number}")
    try:
        yield from played.play()
    finally:
        played.close()
        shutil.rmtree(stage.state)
        stage.state.mkdir()


def _shown(one: dict[str, Any]) -> str:
    head = f"{one['invariant'].upper()} world {one['world']}: {one['scene']}, {one['fault']}, {one['store']}"
    return f"{head} ({one['where']}): {one['detail'][-1200:]}"


def _print(result: dict[str, Any]) -> None:
    print(
        f"\n{result['faults']} faults in {result['seconds']} s; "
        f"{result['drawn_but_too_late']} more came too late to matter."
    )
    for key in ("scene", "fault", "store"):
        counts: Counter[str] = Counter()
        for entry in result["by_scene_fault_store"]:
            counts[entry[key]] += entry["faults"]
        print(f"  by {key}: " + ", ".join(f"{name} {count}" for name, count in counts.most_common()))
    kinds = Counter((one["invariant"], one["scene"], one["fault"], one["store"]) for one in result["violations"])
    print(f"{len(result['violations'])} violations" + (":" if kinds else "."))
    for kind, count in kinds.most_common():
        print(f"  {count} x {', '.join(kind)}")


def _commit() -> str:
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    return git.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
