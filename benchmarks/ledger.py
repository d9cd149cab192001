"""The ledger on SQLite: durable spends a second, races for the last budget, and kill -9 at random moments.

Run ``python benchmarks/ledger.py`` from the repository's root; it takes a few minutes and writes
``benchmarks/results/ledger.json`` and ``ledger.md``. The baseline is the least that any durable ledger must do: one row
and one head record in one SQLite transaction, with the same journal and the same synchronous=FULL, measured in turns
with the ledger, so that both see the same disk. Exits with 1 if a target is missed or a spend is lost.

Options: ``--folder`` puts the ledgers on another disk; ``--quick`` is a smoke run that writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _made import made, told

from escudo.errors import BudgetExceededError
from escudo.privacy import GaussianEvent, Ledger, PureEvent

SEED = 20_261_115
TARGET_RATE = 200.0  # durable spends a second, one process
ROUNDS, SPENDS_PER_ROUND = 10, 200
EXISTING_ROWS = (0, 10_000, 50_000)
RACES, RACERS, TRIES, LAST_SPENDS = 5, 8, 50, 100
KILLS = 200
RESULTS = Path(__file__).parent / "results"


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


# -- speed


def raw_round(connection: sqlite3.Connection, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO spends (payload) VALUES (?)", ["x" * 400])
        connection.execute("UPDATE head SET count = count + 1")
        connection.execute("COMMIT")
    return count / (time.perf_counter() - start)


def ledger_round(ledger: Ledger, count: int) -> float:
    event = GaussianEvent(l2_sensitivity=1.0, scale=1000.0, grid=1.0)
    start = time.perf_counter()
    for _ in range(count):
        ledger.spend("visits", event, purpose="one of many tables")
    return count / (time.perf_counter() - start)


def measure_rate(folder: Path, rounds: int, count: int) -> dict[str, Any]:
    raw = sqlite3.connect(folder / "raw.db", isolation_level=None)
    raw.execute("PRAGMA journal_mode = WAL")
    raw.execute("PRAGMA synchronous = FULL")
    raw.execute("CREATE TABLE spends (sequence INTEGER PRIMARY KEY, payload TEXT)")
    raw.execute("CREATE TABLE head (count INTEGER)")
    raw.execute("INSERT INTO head VALUES (0)")
    with Ledger(url_of(folder / "rate.db")) as ledger:
        ledger.open("visits", epsilon=100.0, delta=1e-6)
        ledger_round(ledger, 20)
        pairs = [(ledger_round(ledger, count), raw_round(raw, count)) for _ in range(rounds)]
        assert ledger.verify().ok
    raw.close()
    rates = [rate for rate, _ in pairs]
    return {
        "spends_per_second": {"median": statistics.median(rates), "worst": min(rates), "best": max(rates)},
        "raw_sqlite_per_second": {"median": statistics.median(raw for _, raw in pairs)},
        "ratio_to_raw": {"median": statistics.median(rate / raw for rate, raw in pairs)},
        "rounds": rounds,
        "spends_per_round": count,
    }


def measure_growth(folder: Path, sizes: tuple[int, ...], count: int) -> list[dict[str, Any]]:
    """Time opening and spending on ledgers with rows in them; no two of those rows hold the same event."""
    measured = []
    for size in sizes:
        with Ledger(url_of(folder / f"growth-{size}.db")) as ledger:
            ledger.open("visits", epsilon=100.0, delta=1e-6)
            with ledger._writing() as writer:  # in one transaction: filling is not what is measured
                for number in range(size):
                    event = GaussianEvent(l2_sensitivity=1.0, scale=1000.0 + number, grid=1.0)
                    payload = {"event": event.to_json(), "purpose": "earlier", "for_release": True}
                    writer.append("spend", "visits", payload)
        with Ledger(ledger.name) as ledger:
            start = time.perf_counter()
            ledger.account("visits")
            opened = time.perf_counter() - start
            ledger_round(ledger, 10)
            busy = time.process_time()
            rate = ledger_round(ledger, count)
            busy = (time.process_time() - busy) / count
        measured.append(
            {"rows": size, "open_seconds": opened, "spends_per_second": rate, "cpu_ms_per_spend": busy * 1e3}
        )
    return measured


# -- safety


def race(path: Path, racers: int, tries: int, last: int) -> dict[str, Any]:
    """Let processes race for a budget that allows ``last`` spends; return what they got and what was recorded."""
    with Ledger(url_of(path)) as ledger:
        ledger.open("visits", epsilon=1.0)
    gate_read, gate_write = os.pipe()
    children = []
    for _ in range(racers):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(gate_write)
            own = Ledger(url_of(path))
            os.read(gate_read, 1)  # returns when the parent closes its end: all start at once
            got = []
            for _ in range(tries):
                try:
                    got.append(own.spend("visits", PureEvent(epsilon=1.0 / last)).hash)
                except BudgetExceededError:
                    got.append("")
            with os.fdopen(write, "w") as pipe:
                pipe.write(json.dumps(got))
            os._exit(0)
        os.close(write)
        children.append((pid, read))
    start = time.perf_counter()
    os.close(gate_write)
    answers: list[str] = []
    for pid, read in children:
        with os.fdopen(read) as pipe:
            answers += json.loads(pipe.read())
        os.waitpid(pid, 0)
    seconds = time.perf_counter() - start
    os.close(gate_read)
    receipts = {answer for answer in answers if answer}
    with Ledger(url_of(path)) as ledger:
        recorded = {row.hash for row in ledger.history() if row.kind == "spend"}
        return {
            "attempts": len(answers),
            "granted": len(receipts),
            "allowed": last,
            "lost": len(receipts - recorded),
            "recorded": len(recorded),
            "total_epsilon": ledger.total("visits").epsilon,
            "verified": ledger.verify().ok,
            "seconds": seconds,
        }


def kill_many(path: Path, kills: int, rng: random.Random) -> dict[str, Any]:
    """Kill a spending process again and again; after each, look for every receipt it had handed out."""
    seen: set[str] = set()
    lost = broken = before_first = 0
    ledger = Ledger(url_of(path))
    ledger.open("visits", epsilon=1000.0)
    for _ in range(kills):
        ledger.head  # noqa: B018 - caught up before the fork, so that the child spends from the start
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            while True:
                receipt = ledger.spend("visits", PureEvent(epsilon=0.001))
                os.write(write, f"{receipt.hash}\n".encode())  # the release reaches its caller
        os.close(write)
        time.sleep(rng.uniform(0.0, 0.15))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        with os.fdopen(read) as pipe:
            received = set(pipe.read().split())
        before_first += not received
        seen |= received
        with Ledger(url_of(path)) as fresh:
            broken += not fresh.verify().ok
            lost += len(received - {row.hash for row in fresh.history()})
    with Ledger(url_of(path)) as fresh:
        recorded = {row.hash for row in fresh.history() if row.kind == "spend"}
    return {
        "kills": kills,
        "killed_before_the_first_receipt": before_first,
        "receipts_seen": len(seen),
        "receipts_lost": len(seen - recorded) + lost,
        "recorded_without_a_receipt_seen": len(recorded - seen),
        "verify_failed": broken,
    }


# -- report


def describe(folder: Path) -> dict[str, Any]:
    mounts = [line.split()[1:3] for line in _lines("/proc/mounts")]
    place = max(
        (m for m in mounts if folder.resolve().is_relative_to(m[0])), key=lambda m: len(m[0]), default=["", "?"]
    )
    return made(seed=SEED, filesystem=place[1], sqlite=sqlite3.sqlite_version)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def report(result: dict[str, Any]) -> str:
    machine, rate, races, kills = result["machine"], result["rate"], result["races"], result["kills"]
    pace = {name: f"{value:.0f}" for name, value in rate["spends_per_second"].items()}
    raw = f"{rate['raw_sqlite_per_second']['median']:.0f}"
    growth = "\n".join(
        f"| {g['rows']:,} | {g['open_seconds']:.2f} s | {g['spends_per_second']:.0f} | {g['cpu_ms_per_spend']:.2f} ms |"
        for g in result["growth"]
    )
    return f"""# Ledger benchmark

{told(machine)}, {machine["filesystem"]}, SQLite {machine["sqlite"]}.
Made by `python benchmarks/ledger.py`.

| target | measured | met |
|---|---|---|
| ≥ {TARGET_RATE:.0f} durable spends a second from one process | median {pace["median"]} (worst round \
{pace["worst"]}, best {pace["best"]}) | {_met(result["met"]["rate"])} |
| {RACERS} processes racing for the last budget never pass the cap and lose nothing | {len(races)} races, \
{sum(r["attempts"] for r in races)} attempts: {sum(r["granted"] for r in races)} granted of \
{sum(r["allowed"] for r in races)} allowed, {sum(r["lost"] for r in races)} lost | {_met(result["met"]["races"])} |
| {kills["kills"]} kill -9 at random moments: every release that reached its caller is recorded, `verify` passes | \
{kills["receipts_seen"]} receipts seen, {kills["receipts_lost"]} lost, {kills["verify_failed"]} failed checks | \
{_met(result["met"]["kills"])} |

A spend waits for the disk, so the disk sets the pace. The least that a durable ledger can do (one row and one head
record in one SQLite transaction, same settings, measured in turns) ran at {raw} a second;
the ledger reached {rate["ratio_to_raw"]["median"]:.2f} of that (median of {rate["rounds"]} rounds of
{rate["spends_per_round"]}).

{kills["killed_before_the_first_receipt"]} processes were killed before their first receipt.
{kills["recorded_without_a_receipt_seen"]} spends were recorded without a receipt seen: the kill came between commit
and answer. That way round is safe.

## Long ledgers

Opening replays every row once; spending reads none of them, and its processor time does not grow. Every row here holds
another event.

| rows before | opening | spends a second | processor time per spend |
|---|---|---|---|
{growth}
"""


def _met(good: bool) -> str:
    return "yes" if good else "**no**"


def main() -> int:
    parser = argparse.ArgumentParser(description="Benchmark the ledger on SQLite.")
    parser.add_argument(
        "--folder", type=Path, default=None, help="where to put the ledgers; a temporary folder if unset"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run that writes nothing")
    options = parser.parse_args()
    scale = 10 if options.quick else 1
    rng = random.Random(SEED)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        result: dict[str, Any] = {"machine": describe(folder)}
        result["rate"] = measure_rate(folder, ROUNDS // scale or 1, SPENDS_PER_ROUND // scale)
        result["growth"] = measure_growth(folder, tuple(n // scale for n in EXISTING_ROWS), SPENDS_PER_ROUND // scale)
        result["races"] = [
            race(folder / f"race-{number}.db", RACERS, TRIES // scale, LAST_SPENDS // scale)
            for number in range(RACES // scale or 1)
        ]
        result["kills"] = kill_many(folder / "kills.db", KILLS // scale, rng)
    result["met"] = {
        "rate": result["rate"]["spends_per_second"]["median"] >= TARGET_RATE,
        "races": all(
            r["granted"] == r["recorded"] == r["allowed"]
            and not r["lost"]
            and r["verified"]
            and r["total_epsilon"] <= 1 + 1e-9
            for r in result["races"]
        ),
        "kills": not result["kills"]["receipts_lost"] and not result["kills"]["verify_failed"],
    }
    print(report(result))
    if not options.quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "ledger.json").write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        (RESULTS / "ledger.md").write_text(report(result), encoding="utf-8")
    return 0 if all(result["met"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
