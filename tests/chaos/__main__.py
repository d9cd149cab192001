"""Many faults, counted: ``python -m chaos --faults 10000``.

Ends with code 5 if anything did not hold that must hold. One world is repeated by ``--seed S --world W``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
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
from chaos.faults import IN_CHILD, ON_SERVER  # noqa: E402
from chaos.ledgers import LedgerWorld  # noqa: E402
from chaos.releases import ReleaseWorld, ResumeWorld  # noqa: E402
from chaos.stage import INVARIANTS, Case, Stage, World  # noqa: E402
from chaos.stores import Server, server_binaries  # noqa: E402

_WORLDS: dict[str, tuple[type[World], float]] = {  # with how many of a hundred faults each takes
    "spend": (LedgerWorld, 86.0),  # about 0.2 s of processor time each
    "release": (ReleaseWorld, 7.0),  # 0.6 s
    "audit": (AuditWorld, 5.0),  # 0.5 s
    "resume": (ResumeWorld, 0.7),  # 10 s
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
    parser.add_argument("--kinds", nargs="+", default=[], choices=IN_CHILD + ON_SERVER)
    parser.add_argument("--near", default="", help="faults strike only at events whose names hold this")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument(
        "--broken", nargs="+", default=[], choices=sorted(broken.WAYS), help="break escudo first; the suite must see it"
    )
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    start, tally = time.time(), _Tally(options)
    readers = []
    for number in range(options.workers):
        reader, writer = multiprocessing.get_context("fork").Pipe(duplex=False)
        share = (options.faults + options.workers - 1 - number) // options.workers
        worker = multiprocessing.get_context("fork").Process(target=_work, args=(options, number, share, writer))
        worker.start()
        writer.close()
        readers.append(reader)
    while readers:
        for reader in multiprocessing.connection.wait(readers):
            try:
                tally.add(reader.recv())
            except EOFError:
                readers.remove(reader)
    result = tally.result(round(time.time() - start))
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    _print(result)
    return 1 if result["problems"] else 5 if result["violations"] else 0


class _Tally:
    """What happened so far."""

    def __init__(self, options: argparse.Namespace):
        self._options, self._start = options, time.time()
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._seconds: Counter[tuple[str, str, str]] = Counter()
        self._violations: list[dict[str, Any]] = []
        self._problems: list[str] = []
        self._missed = 0

    def add(self, found: dict[str, Any]) -> None:
        """Count one fault, and show what it broke."""
        if "problem" in found:
            self._problems.append(found["problem"])
            print(f"\r{found['problem']}", file=sys.stderr)
            return
        self._seconds[found["scene"], found["fault"], found["store"]] += found.pop("processor_seconds")
        if found["struck"]:
            self._counts[found["scene"], found["fault"], found["store"]] += 1
        else:
            self._missed += 1
        for invariant, detail in found.pop("broken"):
            one = {"invariant": invariant, **found, "detail": detail}
            self._violations.append(one)
            if len(self._violations) <= _SHOWN:
                head = f"{invariant.upper()} {one['scene']}, {one['fault']}, {one['store']} ({one['where']})"
                repeat = f"--seed {self._options.seed} --world {one['world']}"
                print(f"\r{head}: {detail[-1200:]} [{repeat}]", file=sys.stderr)
        done = self._counts.total()
        if done and done % 20 == 0:
            rate = done / (time.time() - self._start)
            said = f"{done} faults, {len(self._violations)} violations, {rate:.1f}/s "
            print(f"\r{said}", end="", file=sys.stderr, flush=True)

    def result(self, seconds: int) -> dict[str, Any]:
        """Return everything, for a file."""
        return {
            "what": "faults injected while accounts are in use, and what did not hold afterwards",
            "commit": _commit(),
            "seed": self._options.seed,
            "scenes": self._options.scenes,
            "stores": self._options.stores,
            "machine": {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()},
            "seconds": seconds,
            "faults": self._counts.total(),
            "drawn_but_too_late": self._missed,
            "by_scene_fault_store": [
                {
                    "scene": scene,
                    "fault": fault,
                    "store": store,
                    "faults": count,
                    "processor_seconds": round(self._seconds[scene, fault, store], 1),
                }
                for (scene, fault, store), count in sorted(self._counts.items())
            ],
            "invariants": INVARIANTS,
            "violations": self._violations,
            "problems": self._problems,
        }


def _work(options: argparse.Namespace, number: int, share: int, found: multiprocessing.connection.Connection) -> None:
    """Play every so manieth world until this share of the faults happened, or the worlds that were asked for."""
    for way in options.broken:
        broken.WAYS[way]()
    binaries = server_binaries() if "postgresql" in options.stores else None
    worlds = (
        iter(options.world[number :: options.workers]) if options.world else itertools.count(number, options.workers)
    )
    with tempfile.TemporaryDirectory(prefix="escudo-chaos-") as name, ExitStack() as stack:
        server = None
        if binaries is not None:
            server = Server(binaries)
            stack.callback(server.close)
        stage = Stage(Path(name), server, options.kinds, options.near)
        stack.callback(stage.disk.close)
        for which in worlds:
            try:
                began = _busy()
                for case in _played(stage, options, which):
                    found.send(asdict(case) | {"world": which, "processor_seconds": _busy() - began})
                    began = _busy()
                    share -= case.struck
                    if share <= 0 and not options.world:
                        return
            except Exception as error:  # a mistake of the suite spoils one world, not the hour before it
                traceback.print_exc()
                last = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{Path(last.filename).name}:{last.lineno}"
                problem = f"world {which} could not be played: {type(error).__name__} at {where}: {error}"
                found.send({"problem": problem})
                if stage.failed_again():
                    return


def _busy() -> float:
    """Return how long the processor worked for this process and the children that ended; not for a server."""
    return sum(os.times()[:4])


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


def _print(result: dict[str, Any]) -> None:
    print(
        f"\n{result['faults']} faults in {result['seconds']} s; "
        f"{result['drawn_but_too_late']} more came too late to matter."
    )
    for key in ("scene", "fault", "store"):
        counts, seconds = Counter[str](), Counter[str]()
        for entry in result["by_scene_fault_store"]:
            counts[entry[key]] += entry["faults"]
            seconds[entry[key]] += entry["processor_seconds"]
        shown = [f"{name} {count} ({seconds[name] / count:.2f} s)" for name, count in counts.most_common()]
        print(f"  by {key} (processor time each): " + ", ".join(shown))
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
