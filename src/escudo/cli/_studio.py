"""``escudo studio``: the whole journey in a browser, on this machine."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from escudo.cli._console import console
from escudo.cli._options import command


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
    demo: Annotated[bool, typer.Option("--demo", metavar="", help="Open a simulated clinic.")] = False
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; any that is free if left out.")] = 0
    host: Annotated[
        str,
        typer.Option(help="Another address to serve, for others to use: only with --tls-certificate and --tls-key."),
    ] = "127.0.0.1"
    certificate: Annotated[Path | None, typer.Option("--tls-certificate", metavar="FILE", help="For --host.")] = None
    key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="For --host.")] = None
    no_browser: Annotated[
        bool, typer.Option("--no-browser", metavar="", help="Only print the address, which lets one browser in.")
    ] = False


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

    serve(Opening(**{one.name: getattr(asked, one.name) for one in fields(Opening)}), ready=ready)
