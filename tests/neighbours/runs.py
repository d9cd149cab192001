"""Many pairs, spread over all cases and processes, and what they showed as a file."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from zlib import crc32

HOME = Path(__file__).parents[2]


def tried(name: str, seed: int, neighbours: int, served: str | None) -> tuple[str, int, list[str]]:
    """Run one case in a worker; return its name, how many pairs, and what told some apart."""
    from neighbours import search, servers

    if served is not None:
        servers.use(served)
    case = next(case for case in search.every_case() if case.name == name)
    tries = list(search.Tries(case, seed, neighbours))
    return name, len(tries), [str(finding) for finding in tries if finding is not None]


def _tried(job: tuple[str, int, int, str | None]) -> tuple[str, int, list[str]]:
    return tried(*job)


def _ignoring_signals() -> None:
    """Leave it to the parent to stop: a shell sends its Ctrl-C to all of them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def commit() -> str:
    """Return which version of the project runs."""
    asked = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(asked, cwd=HOME, capture_output=True, text=True, check=False).stdout.strip()


def machine() -> str:
    """Return what it runs on."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def run(pairs: int, *, only: str, seed: int, workers: int, out: Path | None, first: bool) -> int:
    """Spread pairs over all cases, what is quick more often than what is slow, and return how many told apart."""
    from neighbours import search, servers
    from neighbours.promises import PROMISES

    broken = [found for promise in PROMISES if (found := promise()) is not None] if only in ("", "promises") else []
    for found in broken:
        print(f"told apart: promise: {found}", flush=True)
    if only == "promises" or (first and broken):
        return len(broken)
    with servers.postgresql_if_there() as served:
        cases = [case for case in search.every_case() if only in case.name]
        # Twice as slow is six times as seldom: most pairs are quick ones, and every case has its share.
        costs = [case.verb.cost * search.slowness(case.engine) for case in cases]
        whole = sum(cost**-2.5 for cost in costs)
        wanted = [max(5 if cost < 200 else 1, round(pairs * cost**-2.5 / whole)) for cost in costs]
        jobs = []
        for case, count in zip(cases, wanted, strict=True):
            for part, begun in enumerate(range(0, count, search.BATCH)):
                jobs.append((case.name, seed + part, min(search.BATCH, count - begun), served))
        jobs.sort(key=lambda job: crc32(f"{job[1]} {job[0]}".encode()))  # in no order, but always in the same
        done: Counter[str] = Counter()
        findings: list[str] = []
        begun, said = time.perf_counter(), 0.0
        # Spawned, since forks of jax hang; and anew now and then, since what jax has compiled it keeps.
        with get_context("spawn").Pool(workers, initializer=_ignoring_signals, maxtasksperchild=100) as pool:
            try:
                for name, count, found in pool.imap_unordered(_tried, jobs):
                    done[name] += count
                    findings += found
                    for finding in found[:2]:
                        print(f"told apart: {finding}", flush=True)
                    if first and findings:
                        break
                    if time.perf_counter() - said > 10:
                        said = time.perf_counter()
                        print(f"{done.total():,} pairs, {len(findings)} told apart, {said - begun:.0f} s", flush=True)
            except KeyboardInterrupt:
                print("Stopped; what was tried is kept.", flush=True)
    seconds = time.perf_counter() - begun
    print(f"{done.total():,} pairs of {len(done)} cases in {seconds:.0f} s: {len(findings)} told apart.")
    if out is not None:
        _write(out, {case.name: case for case in cases}, done, [*broken, *findings], seconds, seed)
    return len(findings) + len(broken)


def _write(
    out: Path,
    cases: Mapping[str, Any],
    done: Counter[str],
    findings: list[str],
    seconds: float,
    seed: int,
) -> None:
    by: dict[str, Counter[str]] = {"verb": Counter(), "engine": Counter(), "relation": Counter(), "unit": Counter()}
    for name, count in done.items():
        case = cases[name]
        for key, value in zip(by, (case.verb.name, case.engine, case.relation, case.unit), strict=True):
            by[key][value] += count
    result: dict[str, Any] = {
        "commit": commit(),
        "seed": seed,
        "machine": machine(),
        "pairs": done.total(),
        "cases": len(done),
        "told_apart": len(findings),
        "seconds": round(seconds),
        "findings": findings[:50],
        **{f"pairs_by_{key}": dict(counts.most_common()) for key, counts in by.items()},
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
