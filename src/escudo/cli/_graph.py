"""``escudo graph``: look at a causal graph, turn it into another format, check it against a schema."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from escudo._card import plain
from escudo.cli._console import Answer, flag
from escudo.cli._options import command
from escudo.errors import GraphError, InputError

if TYPE_CHECKING:
    from rich.console import Console

    from escudo.causal import AncestralGraph, CausalGraph

app = typer.Typer(no_args_is_help=True, help="Show, convert and check causal graphs.")

_File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="A graph: .dot .gv .gml .dagitty .bif .bif.gz .csv .edges, or .txt (recognised)."
    ),
]
_Force = Annotated[bool, flag("--force", "Replace the output file if it exists.")]


@app.command()
@command
def show(
    file: _File,
    svg: Annotated[Path | None, typer.Option("--svg", help="Also draw the graph into this SVG file.")] = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", help="Of linked tables: draw the graph as plates, one for each table.")
    ] = None,
    force: _Force = False,
) -> Answer:
    """Show a graph: each node with its causes, causes first.

    Example: escudo graph show clinic.dot --svg clinic.svg
    """
    from escudo.causal import read_graph
    from escudo.causal.formats import write_text

    graph = read_graph(file)
    if svg is not None:
        _free(svg, force)
        write_text(svg, _picture(graph, schema, f"Causal graph {file.name}: {graph.summary}"))

    def human(console: Console) -> None:
        from rich.text import Text

        console.print(Text(file.name, style="bold") + Text(f": {graph.summary}"))
        for line in _listing(graph):
            console.print(line)
        if svg is not None:
            console.print(Text(f"Drawn into {svg}."))

    return Answer({"file": str(file), **_payload(graph), "svg": svg and str(svg)}, human)


def _picture(graph: CausalGraph | AncestralGraph, schema: Path | None, title: str) -> str:
    from escudo.causal import CausalGraph
    from escudo.table import LinkedSchema, linked_picture, read_any_schema

    tables = None if schema is None else read_any_schema(schema)
    if isinstance(tables, LinkedSchema) and isinstance(graph, CausalGraph):
        return linked_picture(tables, graph, title=title)
    return graph.to_svg(title=title)


@app.command()
@command
def convert(
    file: _File,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Where to write; its ending names the format.")],
    lossy: Annotated[bool, flag("--lossy", "Leave out what the new format cannot carry.")] = False,
    force: _Force = False,
) -> Answer:
    """Write a graph in another format; refuses to lose latents, groups or knowledge unless told to.

    Example: escudo graph convert clinic.dagitty clinic.dot

    A released model becomes a Bayesian network with its probabilities:
    escudo graph convert release/model clinic.bif
    """
    from escudo.causal import CausalGraph
    from escudo.causal.formats import format_of, read_text, write_text

    if file.is_dir():
        return _network(file, out, force)
    text = read_text(file)
    source, target = format_of(file, text), format_of(out)
    graph = CausalGraph.parse(text, source, source=file.name)
    # A Bayesian network's tables survive only from BIF to BIF, where the text is kept as it is.
    same_network = source == target == "bif"
    result = text if same_network else graph.to_text(target, lossy=lossy)
    _free(out, force)
    write_text(out, result)
    note = "Its probability tables stay behind." if source == "bif" and not same_network else None

    payload = {"file": str(file), "from": source, "out": str(out), "to": target, "note": note, **_payload(graph)}
    return Answer(payload, f"Wrote {out} ({target}): {graph.summary}." + (f" {note}" if note else ""))


def _network(folder: Path, out: Path, force: bool) -> Answer:
    """Write a released model as a Bayesian network."""
    from escudo.causal.formats import format_of
    from escudo.errors import InputError
    from escudo.synthesis import CausalModel, load

    if format_of(out) != "bif":
        raise InputError(
            f"'{folder}' is a model, whose probabilities only BIF can hold; name a file that ends in .bif."
        )
    model = load(folder)
    if not isinstance(model, CausalModel):
        raise InputError(
            f"'{folder}' is a model of the generator {model.generator}, which has no table for each column."
        )
    network = model.network()
    _free(out, force)
    network.write(out)
    payload = {"file": str(folder), "from": "model", "out": str(out), "to": "bif", "note": None}
    return Answer(
        {**payload, **_payload(network.graph)}, f"Wrote {out} (bif): {network.graph.summary}, with their probabilities."
    )


@app.command()
@command
def check(
    file: _File,
    schema: Annotated[Path | None, typer.Option("--schema", help="Compare the names with this schema.")] = None,
) -> Answer:
    """Check that a graph is acyclic and, with --schema, that it names the table's columns.

    Example: escudo graph check clinic.dot --schema visits.toml
    """
    from escudo.causal import CausalGraph

    graph = CausalGraph.read(file)
    findings = ["no cycle", "every edge has a direction" if graph.is_dag else _undirected_note(graph)]
    payload: dict[str, Any] = {"file": str(file), **_payload(graph)}
    if schema is not None:
        findings += _compare(graph, file, schema, payload)

    def human(console: Console) -> None:
        from rich.text import Text

        console.print(Text(file.name, style="bold") + Text(f": {graph.summary}"))
        for finding in findings:
            console.print(Text(f"  {finding}"))

    return Answer({**payload, "findings": findings}, human)


def _compare(graph: CausalGraph, file: Path, schema: Path, payload: dict[str, Any]) -> list[str]:
    """Raise if the graph names a column the schema does not have; return what else there is to say."""
    from escudo._validate import did_you_mean
    from escudo.table import LinkedSchema, check_linked_graph, read_any_schema

    tables = read_any_schema(schema)
    if isinstance(tables, LinkedSchema):
        check_linked_graph(tables, graph)
        own = [name for table in tables.tables for name in (f"{table}.{one}" for one in tables.schema_of(table).names)]
        payload["not_in_graph"] = [name for name in own if name not in graph.nodes]
        left = ", ".join(payload["not_in_graph"])
        return [f"linked tables of {schema.name} can follow it", *([f"not in the graph: {left}"] if left else [])]
    known = tuple(tables.names)
    unknown = [name for name in graph.columns if name not in known]
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise GraphError(
            f"{file.name} names {unknown[0]!r}{more}, which {schema.name} does not have."
            f"{did_you_mean(unknown[0], known)} Rename it, or mark it latent if it is not observed."
        )
    payload["not_in_graph"] = [name for name in known if name not in graph.columns and name not in graph.latents]
    payload["latent_in_schema"] = [name for name in known if name in graph.latents]
    findings = [f"all {len(graph.columns)} columns are in {schema.name}"]
    if left := payload["not_in_graph"]:
        findings.append(f"not in the graph: {', '.join(left)}")
    if hidden := payload["latent_in_schema"]:
        findings.append(f"latent in the graph, yet a column of the schema: {', '.join(hidden)}")
    return findings


def _free(path: Path, force: bool) -> None:
    if os.path.exists(path) and not force:  # unlike Path's, it takes any name; one that is unusable cannot be written
        raise InputError(f"'{path}' exists; choose another name, or pass --force to replace it.")


def _undirected_note(graph: CausalGraph) -> str:
    count = len(graph.undirected_edges)
    return f"{count} edge{'s have' if count > 1 else ' has'} no direction"


def _payload(graph: CausalGraph | AncestralGraph) -> dict[str, Any]:  # Any: a JSON value
    from escudo.causal import AncestralGraph

    if isinstance(graph, AncestralGraph):
        return plain(graph, "nodes", "edges")
    return {
        **plain(graph, "nodes", "edges", "undirected_edges", "is_dag", "latents", "exposures", "outcomes"),
        **plain(graph, "groups", "required", "forbidden", "tiers"),
    }


def _listing(graph: CausalGraph | AncestralGraph) -> list[Any]:  # Any: rich is imported only when something is shown
    """Return one line per node, causes first: its causes, undirected neighbours, flags and columns.

    Of a partial ancestral graph, one line per edge.
    """
    from rich.text import Text

    from escudo.causal import AncestralGraph

    if isinstance(graph, AncestralGraph):
        return [Text(f"  {line}") for line in str(graph).splitlines()]
    width = min(max((len(name) for name in graph.nodes), default=0), 32)
    lines = []
    for name in graph.topological_order():
        line = Text("  ") + Text(name.ljust(width), style="italic" if name in graph.latents else "bold")
        if parents := graph.parents(name):
            line += Text("  ← ", style="dim") + Text(", ".join(parents))
        if neighbours := graph.neighbours(name):
            line += Text("  — ", style="dim") + Text(", ".join(neighbours))
        flags = [flag for flag in ("latent", "exposure", "outcome") if name in getattr(graph, f"{flag}s")]
        if columns := graph.groups.get(name):
            flags.append(f"{len(columns)} column{'s' if len(columns) > 1 else ''}: {', '.join(columns)}")
        if flags:
            line += Text(f"  ({'; '.join(flags)})", style="cyan")
        lines.append(line)
    return lines
