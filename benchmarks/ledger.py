"""The ledger: durable spends a second, cold spends on long ledgers, many clients, races, and kill -9 at random moments.

Run ``python benchmarks/ledger.py`` from the repository's root; it takes a few minutes and writes
``benchmarks/results/ledger.json`` and ``ledger.md``. The baselines are the least that any durable ledger must do: one
row and one head record in one SQLite transaction with synchronous=FULL, with a rollback journal (durable in the file
itself) and with a write-ahead log, measured in turns with the ledger, so that all see the same disk. The clients of
PostgreSQL need its server's programs on this machine. Exits with 1 if a target is missed or a spend is lost.

Options: ``--folder`` puts the ledgers on another disk; ``--quick`` is a smoke run that writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import random
import shutil
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _made import made, told

from escudo.errors import BudgetExceededError, LedgerError
from escudo.privacy import GaussianEvent, Ledger, PureEvent
from escudo.privacy._filter import Paid
from escudo.privacy._ledger_chain import terms_of

SEED = 20_261_115
TARGET_RATIO = 0.5  # of what a bare durable insert reaches
TARGET_COLD = 2.0  # times as long on a long ledger as on a short one, at most
TARGET_CLIENTS = 0.5  # of the throughput of few clients
ROUNDS, SPENDS_PER_ROUND = 10, 100
EXISTING_ROWS = (10, 100_000)
COLD_SPENDS = 21
CLIENTS, SPENDS_OF_CLIENTS = (8, 64), 768
RACES, RACERS, TRIES, LAST_SPENDS = 5, 8, 50, 100
KILLS = 100
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


def raw_store(path: Path, journal: str) -> sqlite3.Connection:
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute(f"PRAGMA journal_mode = {journal}")
    raw.execute("PRAGMA synchronous = FULL")
    raw.execute("CREATE TABLE spends (sequence INTEGER PRIMARY KEY, payload TEXT)")
    raw.execute("CREATE TABLE head (count INTEGER)")
    raw.execute("INSERT INTO head VALUES (0)")
    return raw


def measure_rate(folder: Path, rounds: int, count: int) -> dict[str, Any]:
    in_file, in_log = raw_store(folder / "journal.db", "DELETE"), raw_store(folder / "log.db", "WAL")
    with Ledger(url_of(folder / "rate.db")) as ledger:
        ledger.open("visits", epsilon=100.0, delta=1e-6)
        ledger_round(ledger, 20)
        turns = [
            (ledger_round(ledger, count), raw_round(in_file, count), raw_round(in_log, count)) for _ in range(rounds)
        ]
        busy = time.process_time()
        ledger_round(ledger, count)
        busy = (time.process_time() - busy) / count
        assert ledger.verify().ok
    in_file.close()
    in_log.close()
    rates = [rate for rate, _, _ in turns]
    return {
        "spends_per_second": {"median": statistics.median(rates), "worst": min(rates), "best": max(rates)},
        "journal_per_second": statistics.median(raw for _, raw, _ in turns),
        "log_per_second": statistics.median(raw for _, _, raw in turns),
        "ratio_to_journal": statistics.median(rate / raw for rate, raw, _ in turns),
        "ratio_to_log": statistics.median(rate / raw for rate, _, raw in turns),
        "cpu_ms_per_spend": busy * 1e3,
        "rounds": rounds,
        "spends_per_round": count,
    }


def fill(ledger: Ledger, rows: int) -> None:
    """Add spends in one transaction, no two with the same event: filling is not what is measured."""
    ledger.open("visits", epsilon=100.0, delta=1e-6)
    with ledger._writing() as session:
        rule = terms_of("visits", session.accounts["visits"].terms).filter
        assert rule is not None
        for number in range(rows):
            event = GaussianEvent(l2_sensitivity=1.0, scale=10_000.0 + number, grid=1.0)
            payload = {"event": event.to_json(), "purpose": "earlier", "for_release": True}
            ledger._append(session, "spend", "visits", payload, paid=Paid(rule.charge(event)))


def measure_cold(folder: Path, sizes: tuple[int, ...], count: int) -> list[dict[str, Any]]:
    """Time the first spend of a ledger that was just opened, in turns on ledgers of different lengths."""
    urls = {}
    for size in sizes:
        with Ledger(url_of(folder / f"cold-{size}.db")) as ledger:
            fill(ledger, size)
            urls[size] = ledger.name
    seconds: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    for number in range(count):
        for size, url in urls.items():
            event = GaussianEvent(l2_sensitivity=1.0, scale=20_000.0 + number, grid=1.0)
            start, busy = time.perf_counter(), time.process_time()
            with Ledger(url) as ledger:
                ledger.spend("visits", event)
            seconds[size].append((time.perf_counter() - start, time.process_time() - busy))
    found = []
    for size, times in seconds.items():
        start = time.perf_counter()
        with Ledger(urls[size]) as ledger:
            assert ledger.verify().ok
        found.append(
            {
                "rows": size,
                "cold_ms": 1e3 * statistics.median(wall for wall, _ in times),
                "cpu_ms": 1e3 * statistics.median(busy for _, busy in times),
                "verify_seconds": time.perf_counter() - start,
            }
        )
    return found


@contextmanager
def postgresql(folder: Path) -> Iterator[str | None]:
    """Give the URL of a PostgreSQL server of our own, with its usual durability; None where there is no server."""

    def program(name: str) -> str | None:
        debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
        return shutil.which(name) or (str(debian[-1]) if debian else None)

    initdb, server = program("initdb"), program("postgres")
    if initdb is None or server is None:
        yield None
        return
    home, user = folder / "postgresql", None
    home.mkdir()
    if os.geteuid() == 0:  # the server refuses to run as root
        names = {entry.pw_name for entry in pwd.getpwall()}
        user = next(name for name in ("postgres", "nobody") if name in names)
        folder.chmod(0o755)
        shutil.chown(home, user)
    data = home / "data"
    subprocess.run(
        [initdb, "-D", data, "-U", "owner", "--auth=trust", "-E", "UTF8"],
        check=True,
        capture_output=True,
        user=user,
        cwd=home,
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [server, "-D", data, "-h", "127.0.0.1", "-p", str(port), "-k", home],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=user,
        cwd=home,
    )
    url = f"postgresql://owner@127.0.0.1:{port}/postgres"
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                with Ledger(url) as ledger:
                    ledger.open("ready", epsilon=1.0)
                break
            except LedgerError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


def measure_clients(url: str, clients: int, spends: int) -> dict[str, Any]:
    """Let so many processes share so many spends; return their pace, the longest wait and how many failed."""
    dataset = f"by {clients}"
    with Ledger(url) as ledger:
        ledger.open(dataset, epsilon=1000.0, delta=1e-6)
    each = max(1, spends // clients)
    gate_read, gate_write = os.pipe()
    children = []
    for _ in range(clients):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(gate_write)
            own, waits, failed = Ledger(url), [], 0
            own.spend(dataset, PureEvent(epsilon=0.01))  # connected before the race
            os.write(write, b"[")
            os.read(gate_read, 1)
            for _ in range(each):
                start = time.perf_counter()
                try:
                    own.spend(dataset, PureEvent(epsilon=0.01))
                except LedgerError:
                    failed += 1
                waits.append(time.perf_counter() - start)
            with os.fdopen(write, "w") as pipe:
                pipe.write(json.dumps([failed, max(waits)])[1:])
            os._exit(0)
        os.close(write)
        children.append((pid, read))
    for _, read in children:
        assert os.read(read, 1) == b"["  # all are ready
    start = time.perf_counter()
    os.close(gate_write)
    answers = []
    for pid, read in children:
        with os.fdopen(read) as pipe:
            answers.append(json.loads("[" + pipe.read()))
        os.waitpid(pid, 0)
    seconds = time.perf_counter() - start
    os.close(gate_read)
    with Ledger(url) as ledger:
        recorded, verified = ledger.info(dataset).spends - clients, ledger.verify().ok
    done = each * clients
    return {
        "clients": clients,
        "spends": done,
        "failed": sum(failed for failed, _ in answers),
        "recorded": recorded,
        "verified": verified,
        "spends_per_second": done / seconds,
        "longest_wait_seconds": max(wait for _, wait in answers),
    }


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
    short, long = result["cold"][0], result["cold"][-1]
    cold = "\n".join(
        f"| {c['rows']:,} | {c['cold_ms']:.1f} ms | {c['cpu_ms']:.1f} ms | {c['verify_seconds']:.1f} s |"
        for c in result["cold"]
    )
    clients = "\n".join(
        f"| {c['clients']} | {c['spends_per_second']:.0f} | {c['longest_wait_seconds']:.1f} s | {c['failed']} |"
        for c in result["clients"]
    )
    shared = "not measured: no server on this machine"
    if result["clients"]:
        few, many = result["clients"][0], result["clients"][-1]
        shared = (
            f"{many['spends_per_second'] / few['spends_per_second']:.2f} of {few['spends_per_second']:.0f} a second, "
            f"{many['failed']} failures"
        )
    return f"""# Ledger benchmark

{told(machine)}, {machine["filesystem"]}, SQLite {machine["sqlite"]}.
Made by `python benchmarks/ledger.py`.

| target | measured | met |
|---|---|---|
| SQLite: at least {TARGET_RATIO:g} of the pace of a bare insert that is durable in the file itself | \
{rate["ratio_to_journal"]:.2f} | {_met(result["met"]["rate"])} |
| the same against a bare insert into a write-ahead log, the stricter reading of "durable" | \
{rate["ratio_to_log"]:.2f} | {_met(rate["ratio_to_log"] >= TARGET_RATIO)}; see below |
| the first spend of a process on {long["rows"]:,} rows takes at most {TARGET_COLD:g} times as long as on \
{short["rows"]:,} | {long["cold_ms"] / short["cold_ms"]:.2f} times | {_met(result["met"]["cold"])} |
| PostgreSQL: {CLIENTS[-1]} clients reach at least {TARGET_CLIENTS:g} of the pace of {CLIENTS[0]}, and none fails | \
{shared} | {_met(result["met"]["clients"])} |
| {RACERS} processes racing for the last budget never pass the cap and lose nothing | {len(races)} races, \
{sum(r["attempts"] for r in races)} attempts: {sum(r["granted"] for r in races)} granted of \
{sum(r["allowed"] for r in races)} allowed, {sum(r["lost"] for r in races)} lost | {_met(result["met"]["races"])} |
| {kills["kills"]} kill -9 at random moments: every release that reached its caller is recorded, `verify` passes | \
{kills["receipts_seen"]} receipts seen, {kills["receipts_lost"]} lost, {kills["verify_failed"]} failed checks | \
{_met(result["met"]["kills"])} |

A spend waits for the disk twice, once for the ledger and once for the witness: {pace["median"]} spends a second
here (worst round {pace["worst"]}, best {pace["best"]}; {rate["rounds"]} rounds of {rate["spends_per_round"]}), which is
{1000 / rate["spends_per_second"]["median"]:.1f} ms each, {rate["cpu_ms_per_spend"]:.1f} ms of them the processor's.
The least that a durable ledger can do (one row and one head record in one SQLite transaction, measured in turns) ran at
{rate["journal_per_second"]:.0f} a second with a rollback journal, and at {rate["log_per_second"]:.0f} with a
write-ahead log, of which the ledger reached {rate["ratio_to_log"]:.2f}.

Against the log, half cannot be reached: such an insert waits for one `fdatasync`, a spend for two (the ledger's log,
then the witness, which must be on disk before the receipt is given), so half is what a spend without any work would
reach. The witness is written into space that it has already, as is the log once it has its length, so neither wait is
for more than the bytes. The rest of the gap is the processor's: the chain of hashes, the check of the accounts, the
filter, and reading the row back.

{kills["killed_before_the_first_receipt"]} processes were killed before their first receipt.
{kills["recorded_without_a_receipt_seen"]} spends were recorded without a receipt seen: the kill came between commit
and answer. That way round is safe.

## Long ledgers

A spend reads no row but the last, so the first one of a process takes as long however many there are. Every row here
holds another event, which `verify` works out again.

| rows before | first spend, connecting included | processor time | `verify` |
|---|---|---|---|
{cold}

## Many clients on PostgreSQL

| clients | spends a second, all together | longest wait | failed |
|---|---|---|---|
{clients}
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
        os.environ["ESCUDO_STATE"] = str(folder / "state")  # the witnesses of these ledgers, on the same disk
        result: dict[str, Any] = {"machine": describe(folder)}
        result["rate"] = measure_rate(folder, ROUNDS // scale or 1, SPENDS_PER_ROUND // scale)
        sizes = (EXISTING_ROWS[0], EXISTING_ROWS[-1] // scale**2)
        result["cold"] = measure_cold(folder, sizes, COLD_SPENDS // scale or 1)
        with postgresql(folder) as url:
            shares = [] if url is None else CLIENTS
            result["clients"] = [measure_clients(str(url), number, SPENDS_OF_CLIENTS // scale) for number in shares]
        result["races"] = [
            race(folder / f"race-{number}.db", RACERS, TRIES // scale, LAST_SPENDS // scale)
            for number in range(RACES // scale or 1)
        ]
        result["kills"] = kill_many(folder / "kills.db", KILLS // scale, rng)
    result["met"] = {
        "rate": result["rate"]["ratio_to_journal"] >= TARGET_RATIO,
        "cold": result["cold"][-1]["cold_ms"] <= TARGET_COLD * result["cold"][0]["cold_ms"],
        "clients": bool(result["clients"])
        and all(c["failed"] == 0 and c["verified"] and c["recorded"] == c["spends"] for c in result["clients"])
        and result["clients"][-1]["spends_per_second"] >= TARGET_CLIENTS * result["clients"][0]["spends_per_second"],
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
