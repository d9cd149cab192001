"""Commands about this machine.

``escudo doctor`` says what is installed and what works, and audits the noise itself for a second; ``escudo studio``
opens the whole journey in a browser, here and nowhere else.
"""

from __future__ import annotations

import os
import platform
import time
import warnings
import webbrowser
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from escudo._card import plain
from escudo.cli._console import Answer, console, flag
from escudo.cli._options import command, ledger_url

if TYPE_CHECKING:
    from rich.console import Console

_CORE = ("numpy", "scipy", "narwhals", "polars", "opendp", "dp-accounting", "networkx", "SQLAlchemy", "safetensors")
_EXTRAS = {
    "pandas": "frames of pandas",
    "pyarrow": "Arrow and Parquet through pandas and DuckDB",
    "duckdb": "tables of DuckDB",
    "ibis-framework": "tables inside PostgreSQL (extra database)",
    "dask": "frames of Dask",
    "pyspark": "frames of Spark",
    "deltalake": "Delta tables (extra delta)",
    "pyiceberg": "Iceberg tables (extra iceberg)",
    "psycopg": "a ledger on PostgreSQL (extra postgresql)",
    "jax": "neural generators (extra neural)",
    "scikit-learn": "evaluations and attacks (extra evaluation)",
}


@command
def doctor(
    ledger: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The ledger to look at; else ESCUDO_LEDGER, else escudo-ledger.db here."),
    ] = None,
    spark: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A Spark cluster to look at, spark://HOST:PORT, or spark: for the usual one."),
    ] = None,
) -> Answer:
    """Show versions, engines, devices and the ledger's health, and audit the noise for a second.

    Ends with code 5 if the ledger was tampered with, the audit finds a violation, or the workers of a Spark cluster do
    not have what is installed here.
    """
    from importlib.metadata import version

    found: dict[str, Any] = {
        "escudo": version("escudo"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "core": {name: version(name) for name in _CORE},
        "extras": {name: {"version": _version(name), "for": what} for name, what in _EXTRAS.items()},
        "devices": _devices(),
        "spark": _spark(spark),
        "ledger": _ledger(ledger),
        "audit": _audit(),
    }
    found["healthy"] = found["ledger"].get("whole") is not False and not found["audit"]["violated"]
    found["healthy"] = found["healthy"] and found["spark"]["fits"] is not False
    return Answer(found, lambda screen: _print(screen, found), None if found["healthy"] else typer.Exit(5))


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _devices() -> list[str]:
    """Return what JAX would train on."""
    if _version("jax") is None:
        return []
    try:
        import jax

        return [f"{device.platform}: {device.device_kind}" for device in jax.devices()]
    except Exception as error:  # a driver that does not fit, and much else: what doctor is there to find
        return [f"JAX does not start ({type(error).__name__})"]


def _spark(url: str | None) -> dict[str, Any]:
    """Return whether Spark could run, and what the workers of a cluster have, if one is named."""
    from shutil import which

    from escudo.errors import EscudoError, InputError

    java = os.environ.get("JAVA_HOME") or which("java")
    state = "PySpark is not installed" if _version("pyspark") is None else "no Java" if java is None else "can start"
    if url is None:
        return {"state": state, "workers": [], "fits": None}
    if url != "spark:" and not url.startswith("spark://"):
        raise InputError(f"--spark takes spark://HOST:PORT, or spark: for the cluster that is configured; got {url!r}.")
    from escudo.table import WORKERS_MAY_NEED, spark_remarks, spark_workers, worker_versions

    master = None if url == "spark:" else url
    try:
        workers, remarks = spark_workers(master), spark_remarks(master)
    except EscudoError as error:
        return {"state": str(error), "workers": [], "fits": False}
    here = worker_versions()
    needed = [name for name in here if name not in WORKERS_MAY_NEED]
    fits = bool(workers) and all(found[name] == here[name] for found in workers for name in needed)
    said = "the workers have what is installed here" if fits else "workers have other versions than this machine"
    other = [name for name in WORKERS_MAY_NEED if any(found[name] != here[name] for found in workers)]
    what = "; ".join(f"{name} differs, which is for {WORKERS_MAY_NEED[name]}" for name in other)
    state = "; ".join([f"{said} ({what})" if fits and what else said, *remarks])
    return {"state": state, "workers": workers, "fits": fits}


def _ledger(url: str | None) -> dict[str, Any]:
    """Return whether the ledger is there, and whole."""
    from escudo.errors import EscudoError, LedgerCorruptError, LedgerWarning
    from escudo.privacy import Ledger

    place = ledger_url(url)
    shown = place.partition("://")[0] + "://…" if "@" in place else place  # a URL may hold a password
    if place.startswith("sqlite:///") and not os.path.exists(place.removeprefix("sqlite:///")):
        return {"url": shown, "state": "none here yet; escudo ledger open makes one", "whole": None, "readable": None}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with Ledger(place) as book:
                problem, datasets = book.verify().problem, len(book.datasets())
        except EscudoError as error:
            whole = False if isinstance(error, LedgerCorruptError) else None
            return {"url": shown, "state": str(error), "whole": whole, "readable": False}
    state = problem or f"whole, datasets: {datasets}"
    said = [str(one.message) for one in caught if issubclass(one.category, LedgerWarning)]
    return {"url": shown, "state": state, "whole": problem is None, "readable": True, "warnings": said}


def _audit() -> dict[str, Any]:
    """Return a short audit of Laplace noise as releases draw it, claimed at its true ε."""
    from escudo.auditing import audit
    from escudo.mechanisms import laplace
    from escudo.privacy import Guarantee

    class Count:
        """A noisy count from OpenDP's sampler, many at a time."""

        def __call__(self, rows: list[int], rng: object) -> int:
            return int(self.batch(rows, 1, rng)[0])

        def batch(self, rows: list[int], count: int, rng: object) -> Any:
            # One release of `count` copies: each has the noise of a single release at ε = 1.
            return laplace([sum(rows)] * count, sensitivity=1, scale=1.0).value

    start = time.perf_counter()
    found = audit(
        Count(), claim=Guarantee(epsilon=1.0), pairs=[([0, 0], [0, 1])], max_runs=20_000, max_seconds=1.0,
        confidence=0.999, seed=None, progress=False,
    )  # fmt: skip
    seconds = round(time.perf_counter() - start, 2)
    return plain(found, "violated", "epsilon_lower", "runs", "verdict") | {"seconds": seconds}


def _print(screen: Console, found: dict[str, Any]) -> None:
    screen.print(f"escudo {found['escudo']}   Python {found['python']}   {found['system']}", style="bold")
    screen.print("needs     " + ", ".join(f"{name} {number}" for name, number in found["core"].items()))
    for name, extra in found["extras"].items():
        screen.print(f"{name:<16} {extra['version'] or 'not installed':<14} {extra['for']}", highlight=False)
    screen.print("devices   " + (", ".join(found["devices"]) or "JAX is not installed"))
    screen.print(f"spark     {found['spark']['state']}", markup=False)
    for worker in found["spark"]["workers"]:
        screen.print("          " + ", ".join(f"{name} {number}" for name, number in worker.items()), highlight=False)
    screen.print(f"ledger    {found['ledger']['url']}: {found['ledger']['state']}", markup=False)
    for said in found["ledger"].get("warnings", ()):
        screen.print(f"          Warning: {said}", markup=False, style="yellow")
    screen.print(f"audit     {found['audit']['verdict']} ({found['audit']['seconds']} s)", markup=False)
    if found["healthy"] and found["ledger"]["readable"] is False:
        screen.print("Healthy, but for the ledger: it cannot be read.", style="bold")
        return
    screen.print("Healthy." if found["healthy"] else "NOT healthy: see above.", style="bold")


# ---- the studio


@dataclass(frozen=True)
class StudioOptions:
    """What ``escudo studio`` is told."""

    data: Annotated[
        str | None,
        typer.Argument(metavar="[DATA]", help="A file, folder or database to start with.", show_default=False),
    ] = None
    schema: Annotated[Path | None, typer.Option("--schema", "-s", help="Its schema, if there is one.")] = None
    graph: Annotated[Path | None, typer.Option("--graph", "-g", help="A causal graph, if there is one.")] = None
    ledger: Annotated[str | None, typer.Option("--ledger", metavar="URL", help="The ledger to charge.")] = None
    dataset: Annotated[str | None, typer.Option(help="The account in it.")] = None
    demo: Annotated[bool, flag("--demo", "Open a simulated clinic.")] = False
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; any that is free if left out.")] = 0
    host: Annotated[
        str,
        typer.Option(help="Another address to serve, for others to use: only with --tls-certificate and --tls-key."),
    ] = "127.0.0.1"
    certificate: Annotated[Path | None, typer.Option("--tls-certificate", metavar="FILE", help="For --host.")] = None
    key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="For --host.")] = None
    no_browser: Annotated[bool, flag("--no-browser", "Only print the address, which lets one browser in.")] = False


@command
def studio(asked: StudioOptions) -> None:
    """Go from a table to a release, and from a release to what if, in a browser on this machine.

    Example: escudo studio visits.csv

    Only this machine can reach it, and only the browser that opens the
    address first. Ctrl-C ends it, and removes what it kept.
    """
    from escudo.studio import Opening, serve

    def ready(address: str) -> None:
        screen = console()
        screen.print(f"escudo studio is open: {address}", markup=False, soft_wrap=True)
        screen.print("Ctrl-C ends it. Nothing leaves this machine.")
        if not asked.no_browser:
            webbrowser.open(address)

    serve(Opening(**{one.name: getattr(asked, one.name) for one in fields(Opening)}), ready)
