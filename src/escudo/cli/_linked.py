"""What commands do where the schema describes linked tables: people, and the tables that hold their rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from escudo._card import number_of
from escudo.cli._console import Answer, Filed, print_promise
from escudo.cli._options import ledger_url, to_type, without_secrets
from escudo.cli._run import NAMED_DATA

if TYPE_CHECKING:
    from rich.console import Console

    from escudo.cli._custodian import EvaluateOptions
    from escudo.cli._options import TableOptions
    from escudo.cli._release import ReleaseOptions
    from escudo.report import LinkedReleaseFiles
    from escudo.synthesis import LinkedModel
    from escudo.table import LinkedCheck, LinkedSchema, PrivateTables


_SHOWN_EDGES = 12


def print_graph(screen: Console, found: Mapping[str, Any]) -> None:
    """Say which edges were found and how sure they are, the surest first."""
    edges = sorted(found["edges"], key=lambda edge: -(edge["confidence"] or 0.0))
    surest = ", the surest:" if len(edges) > _SHOWN_EDGES else ""
    share = f", with {found['share']:.0%} of what it and the generator got" if "share" in found else ""
    screen.print(f"Discovered graph{share}: {number_of(len(edges), 'edge')}{surest}")
    for edge in edges[:_SHOWN_EDGES]:
        mark, way = "→" if edge["directed"] else "—", edge["direction_confidence"]
        told = "open" if not edge["directed"] else "known" if way is None else f"{way:.0%}"
        name = f"{edge['from']} {mark} {edge['to']}"
        sure = "how sure is not known" if edge["confidence"] is None else f"{edge['confidence']:.0%}"
        screen.print(f"  {name}   edge {sure}, direction {told}", markup=False)
    if any(not edge["directed"] for edge in edges):
        screen.print(
            "Edges whose direction is open are kept as mere association: they claim no cause, and --do is refused "
            "where they matter. The report names all of them.",
            markup=False,
        )
    if found["cannot_tell"]:
        screen.print(f"Cannot tell more: {found['cannot_tell']}.", markup=False)


def named_data(data: Sequence[str]) -> dict[str, str]:
    """Return files and URLs by the tables that they hold: ``NAME=FILE``, or by the file's or the table's own name.

    Raises:
        InputError: If two have the same name.
    """
    from escudo.errors import InputError

    found: dict[str, str] = {}
    for text in data:
        said = NAMED_DATA.fullmatch(text)
        place = text if said is None else said[2]
        if said is not None:
            name = said[1]
        elif "://" in text:
            name = parse_qs(urlsplit(text).query).get("table", [""])[0]
        else:
            name = Path(text).name.partition(".")[0]
        if name in found:
            raise InputError(f"two tables are called {name!r}; say which is which: {name}=FILE.")
        found[name] = place
    return found


def private_tables(asked: TableOptions, schema: LinkedSchema) -> PrivateTables:
    """Return the private tables that a command is told, behind their account.

    Raises:
        InputError: If tables of the schema are not given, or others are.
    """
    from escudo.errors import InputError
    from escudo.table import PrivateTables

    if asked.ledger is not None and asked.dataset is None:
        raise InputError("a ledger holds one account per dataset; say which one with --dataset.")
    if asked.public_rows is not None:
        raise InputError("--public-rows is about one table; of linked ones the number of people is counted or private.")
    schema.require_confirmed(source=str(asked.schema))
    opened = opened_tables([asked.data, *(getattr(asked, "more", None) or [])], schema, asked.engine)
    account = None if asked.dataset is None else ledger_url(asked.ledger)
    return PrivateTables(opened, schema, account, asked.dataset, relation=asked.relation)


def opened_tables(data: Sequence[str], schema: LinkedSchema, engine: str | None = None) -> dict[str, Any]:
    """Return the frames of linked tables from files and URLs.

    Raises:
        InputError: If tables of the schema are not given, or others are.
    """
    from escudo.table import open_data

    named = named_data(data)
    check_names(named, schema)
    return {name: open_data(named[name], schema.reading(name), engine=engine) for name in schema.tables}


def check_names(data: dict[str, str], schema: LinkedSchema) -> None:
    """Raise unless the tables that were given are those of the schema."""
    from escudo.errors import InputError

    absent = [name for name in schema.tables if name not in data]
    others = [name for name in data if name not in schema.tables]
    if absent or others:
        what = f"lacks {absent[0]!r}" if absent else f"has {others[0]!r}, which the schema does not"
        raise InputError(
            f"the schema describes {', '.join(schema.tables)}, and what was given {what}. A file's name is its "
            "table's; say NAME=FILE where it is not."
        )


def release_linked(asked: ReleaseOptions, schema: LinkedSchema) -> None:
    """Release linked tables: plan, charge, fit, draw people, write."""
    from escudo.asking import run
    from escudo.errors import InputError
    from escudo.releasing import LinkedRelease
    from escudo.report import check_target
    from escudo.synthesis import linked_budget

    start = time.perf_counter()
    for name in ("checkpoint", "custodian", "no_privacy", "again"):
        if getattr(asked, name):
            raise InputError(f"--{name.replace('_', '-')} is not taken with linked tables; leave it out.")
    if asked.out is None and not asked.plan:
        raise InputError("--out says where the release goes: a new folder. Or add --plan to look first.")
    if asked.out is not None:
        check_target(asked.out, overwrite=asked.force)
    tables = private_tables(asked, schema)
    with ExitStack() as last:
        question = LinkedRelease(**asked.question(last), people=asked.rows)
        budget = linked_budget(tables.neighbours, asked.epsilon, asked.delta)
        prepared = question.prepare(schema, tables.neighbours, budget)
        tree = prepared.plan.judged(tables.neighbours, accept_large_delta=asked.accept_large_delta)
        if asked.plan:
            tree = tree.expecting(None, prepared.passes)
        if asked.stops_at(tree, tables.account):
            return
        terms: dict[str, Any] = {"purpose": prepared.purpose, "accept_large_delta": asked.accept_large_delta}
        anything: Any = prepared  # what is asked of one table is asked of these, in the same order
        files: LinkedReleaseFiles = run(anything, tables, seed=asked.seed, **terms)  # type: ignore[arg-type]
        seconds = time.perf_counter() - start
        payload = {
            "directory": str(asked.out),
            "rows": files.rows,
            "generator": files.fitted.generator,
            "guarantee": files.fitted.guarantee.to_json(),
            "for_release": files.fitted.guarantee.for_release,
            "dataset": asked.dataset,
            "graph": files.fitted.details.get("discovery"),
            "associations": [list(edge) for edge in files.fitted.associations],
            "evaluation": None if files.evaluation is None else files.evaluation.to_json(),
            "seconds": round(seconds, 2),
        }
        Answer(payload, lambda screen: _print_release(screen, files, seconds)).show(asked.as_json)


def _print_release(screen: Console, files: LinkedReleaseFiles, seconds: float) -> None:
    screen.print(f"Released to {files.directory.name}/   ({seconds:.1f} s)", markup=False, style="bold")
    for name, path in files.synthetic.items():
        screen.print(f"  synthetic/{path.name:<22} {number_of(files.rows[name], 'row')}", markup=False)
    screen.print("  report.html   open this          release.json   the machine-readable record")
    if files.explore is not None:
        screen.print("  explore.html  ask it what if, in a browser")
    screen.print("  model/        sample it again, or under an intervention", markup=False)
    if found := files.fitted.details.get("discovery"):
        print_graph(screen, found)
    if files.evaluation is not None:
        screen.print(f"How good it is, paid for: {files.evaluation}", markup=False)
    print_promise(screen, files.fitted.guarantee)


def sample_linked(
    model: LinkedModel, people: int, do: dict[str, str | None], given: dict[str, str | None], seed: int | None
) -> dict[str, Any]:
    """Draw people from a model of linked tables; a value may be one for each row, as in ``1:no,2-:yes``."""
    return model.sample(people, do=_by_rows(model, do), given=_by_rows(model, given), seed=seed)


def _by_rows(model: LinkedModel, pairs: dict[str, str | None]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs.items():
        parts = [part.partition(":") for part in (value or "").split(",")]
        of_rows = name in model.schema.columns and model.schema.table_of(name) != model.schema.people
        numbered = of_rows and all(mark and rows.replace("-", "").strip().isdigit() for rows, mark, _ in parts)
        found[name] = {rows.strip(): one or None for rows, _, one in parts} if numbered else value
    return found


def write_frames(frames: dict[str, Any], out: Path, *, csv: bool) -> Answer:
    """Write a file for each table into a new folder, or say why not."""
    from escudo._files import write_csv
    from escudo.errors import InputError

    try:
        out.mkdir()
        for name, frame in frames.items():
            if csv:
                write_csv(frame, out / f"{name}.csv")
            else:
                frame.write_parquet(out / f"{name}.parquet")
    except OSError as error:
        raise InputError(f"cannot write '{out}': {error.strerror or 'input/output error'}.") from None
    rows = {name: frame.height for name, frame in frames.items()}
    said = ", ".join(f"{number_of(count, 'row')} of {name}" for name, count in rows.items())
    return Answer({"rows": rows, "folder": str(out)}, f"{said} written to {out}/")


def linked_schema(schema: Path | None, release: Path | None) -> LinkedSchema | None:
    """Return the schema that a custodian's command is about, if it describes linked tables.

    What is not there is none of linked tables: the command itself says what is missing.

    Raises:
        InputError: If it is not that of the release.
    """
    from escudo.errors import InputError
    from escudo.synthesis import holds_linked, load_linked
    from escudo.table import LinkedSchema, read_any_schema

    given = read_any_schema(schema) if schema is not None and schema.is_file() else None
    if release is None:
        return given if isinstance(given, LinkedSchema) else None
    if not (release / "model/model.json").is_file() or not holds_linked(release / "model"):
        return None
    released = load_linked(release / "model").schema
    if given is not None and given != released:
        raise InputError(f"'{schema}' is not the schema of the release in '{release}'; leave out --schema.")
    return released


def tables_in(folder: str, schema: LinkedSchema, engine: str | None = None, *, made: bool = False) -> dict[str, Any]:
    """Return the linked tables in a folder, each in a file of its name; of several, a Parquet file.

    Raises:
        InputError: If there is none of a table, or several.
    """
    from escudo.errors import InputError
    from escudo.table import open_data

    found = {}
    for name in schema.tables:
        try:
            files = [path for path in Path(folder).iterdir() if path.name.partition(".")[0] == name and path.is_file()]
        except OSError:
            raise InputError(f"'{folder}' is no folder; linked tables are in one, a file for each.") from None
        files = [path for path in files if path.suffix == ".parquet"] or files
        if len(files) != 1:
            several = "no file" if not files else "several files"
            raise InputError(f"'{folder}' has {several} of the table {name!r}; name one {name}.csv or {name}.parquet.")
        reading = schema.reading(name)
        found[name] = open_data(str(files[0]), reading.as_escudo_writes() if made else reading, engine=engine)
    return found


def evaluate_linked(asked: EvaluateOptions, schema: LinkedSchema) -> Filed:
    """Compare synthetic linked tables with real ones, for the custodian."""
    from escudo.errors import InputError
    from escudo.report import evaluation_page, write
    from escudo.synthesis import load_linked
    from escudo.utility import evaluate

    if asked.target or asked.learner or asked.reference or asked.log:
        raise InputError("--target, --learner, --reference and --log are about one table; leave them out.")
    folders = [*(asked.synthetic or []), *([] if asked.release is None else [str(asked.release / "synthetic")])]
    if not folders:
        raise InputError("name the folders of synthetic tables after the real ones, or --release DIR.")
    model = asked.release / "model" if asked.model is None and asked.release is not None else asked.model
    found = evaluate(
        tables_in(asked.real_train, schema, asked.engine),
        tables_in(asked.real_test, schema, asked.engine),
        [tables_in(folder, schema.made, made=True) for folder in folders],
        schema,
        model=None if model is None else load_linked(model),
    )

    def tell(written: bool) -> Answer:
        page = str(asked.out) if written and asked.out is not None else None
        said = f"{found}" if page is None else f"{found}\nNOT FOR RELEASE: {page}"
        return Answer({**found.to_json(), "page": page}, said)

    def write_page() -> None:
        if asked.out is not None:
            write(evaluation_page(found), asked.out)

    return Filed(tell, write_page)


def print_check(report: LinkedCheck, each: Callable[[Console, Any], None]) -> Callable[[Console], None]:
    """Return what shows how linked tables fit their schema; ``each`` shows one table."""

    def show(console: Console) -> None:
        for name, table in report.tables.items():
            console.print(f"— {name}", style="bold", markup=False)
            each(console, table)
        for words in report.findings:
            console.print(words, markup=False)

    return show


def how_to_confirm(data: Sequence[str], out: Path | None) -> str:
    """Return what comes after a draft of linked tables."""
    files, file = to_type(*map(without_secrets, data)), to_type(out or "schema.toml")
    return (
        "Read the file, correct it, then confirm what is public knowledge:\n"
        f"  escudo schema check {files} --schema {file}\n  escudo schema confirm {file}"
    )
