"""Many faults, counted: ``python -m chaos --faults 10000``.

Ends with code 5 if anything did not hold that must hold. One world is repeated by ``--seed S --world W``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before they are imported: a process with threads must not fork

from chaos import broken  # noqa: E402
from chaos.scenes import INVARIANTS, Stage, world  # noqa: E402
from chaos.stores import Server, server_binaries  # noqa: E402

_SHOWN = 40


def main() -> int:
    """Run, report, and say by the exit code whether everything held."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=200, help="stop after so many faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--world", type=int, action="append", help="only this world, whatever --faults says")
    parser.add_argument("--scenes", nargs="+", default=["spend", "release", "audit", "resume"], metavar="NAME")
    parser.add_argument("--stores", nargs="+", default=["sqlite", "postgresql"], metavar="NAME")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--broken", choices=sorted(broken.WAYS), help="break escudo first; the suite must see it")
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    start = time.time()
    queue: multiprocessing.Queue[dict[str, Any]] = multiprocessing.get_context("fork").Queue()
    quota = [options.faults // options.workers + (number < options.faults % options.workers) for number in range(options.workers)]
    workers = [
        multiprocessing.get_context("fork").Process(target=_work, args=(options, number, quota[number], queue))
        for number in range(options.workers)
    ]
    for worker in workers:
        worker.start()
    counts: Counter[tuple[str, str, str]] = Counter()
    violations: list[dict[str, Any]] = []
    missed = running = 0
    running = len(workers)
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
        violations += found["violations"]
        for one in found["violations"]:
            if len(violations) <= _SHOWN:
                print(f"\r{_shown(one)}", file=sys.stderr)
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
            only = {"scenes": tuple(options.scenes), "stores": tuple(options.stores)}
            which, happened = number, 0
            worlds = iter(options.world or ())
            stack.callback(stage.disk.close)
            while options.world or happened < quota:
                if options.world:
                    which = next(worlds, -1)
                    if which < 0:
                        break
                for case in world(stage, options.seed, which, only=only):
                    happened += case.struck
                    queue.put(
                        {
                            "scene": case.scene,
                            "fault": case.fault,
                            "store": case.store,
                            "struck": case.struck,
                            "violations": [
                                {
                                    "invariant": invariant,
                                    "scene": case.scene,
                                    "fault": case.fault,
                                    "store": case.store,
                                    "where": case.where,
                                    "world": which,
                                    "detail": detail,
                                }
                                for invariant, detail in case.broken
                            ],
                        }
                    )
                    if not options.world and happened >= quota:
                        break
                which += options.workers
    except BaseException:
        import traceback

        problem = traceback.format_exc()
    finally:
        if server is not None:
            server.close()
        queue.put({"end": problem})


def _shown(one: dict[str, Any]) -> str:
    head = f"{one['invariant'].upper()} world {one['world']}: {one['scene']}, {one['fault']}, {one['store']}"
    return f"{head} ({one['where']}): {one['detail'][-1200:]}"


def _print(result: dict[str, Any]) -> None:
    print(f"\n{result['faults']} faults in {result['seconds']} s; {result['drawn_but_too_late']} more came too late to matter.")
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
    git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=Path(__file__).parent)
    return git.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
