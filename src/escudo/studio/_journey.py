"""The journey: table, causes, budget, release. Each step asks escudo; nothing is spent before the last."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escudo.errors import EscudoError, GraphError, InputError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from escudo.causal import CausalGraph
    from escudo.privacy import Neighbours, Plan
    from escudo.releasing import PreparedRelease
    from escudo.studio._case import Case
    from escudo.studio._server import Studio
    from escudo.table import Column, Schema

_MOST_TEXT = 8 * 2**20  # bytes of a form or of JSON
_MOST_UPLOAD = 8 * 2**30
_MOST_SHOWN = 14  # statements about a graph
_MOST_FORECAST = 40  # columns, and pairs
_SAFE_NAME = re.compile(r"[^\w.\- ]+")


def _onwards(place: str) -> Response:
    from starlette.responses import RedirectResponse

    return RedirectResponse(place, status_code=303)


def _json(value: Mapping[str, Any]) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(dict(value))


async def _text(request: Request) -> bytes:
    """Return what a page sent.

    Raises:
        InputError: If it is too long.
    """
    text = b""
    async for part in request.stream():
        text += part
        if len(text) > _MOST_TEXT:
            raise InputError("that is too long.")
    return text


async def _body(request: Request) -> Any:
    """Return the JSON that a page sent.

    Raises:
        InputError: If it is none, or too long.
    """
    import json

    text = await _text(request)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InputError("the page sent something that is no JSON.") from None


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form that a page sent.

    Raises:
        InputError: If it is none, or too long.
    """
    from urllib.parse import parse_qsl

    text = await _text(request)
    try:
        pairs = parse_qsl(text.decode(), keep_blank_values=True, strict_parsing=bool(text), max_num_fields=10_000)
    except (ValueError, UnicodeDecodeError):
        raise InputError("the page sent something that is no form.") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        found[name] = f"{found[name]}\n{value}" if name in found else value
    return found


async def _threaded(function: Any, *arguments: Any) -> Any:  # Any: whatever it returns
    """Do something that takes a while without keeping others waiting."""
    from starlette.concurrency import run_in_threadpool

    return await run_in_threadpool(function, *arguments)


# ---- the table


async def table(studio: Studio, request: Request) -> Response:
    """Show the table's columns, to be confirmed; or how to open one."""
    case = studio.case
    drafting = next(iter(studio.work.of("draft")), None)
    schema = await _threaded(case.schema)
    if schema is None and drafting is not None and drafting.state not in ("running", "done"):
        stopped = {"problem": drafting.message} if case.data else {}
        return studio.page("table", job=None, schema=None, columns=[], **stopped, **_reasons([]))
    if schema is None and case.data and drafting is None:
        drafting = _draft(studio)
    running = drafting is not None and drafting.state == "running" and schema is None
    notes = [] if drafting is None or drafting.about.get("data") != case.data else drafting.answer.get("notes", [])
    return studio.page(
        "table",
        job=drafting if running else None,
        schema=schema,
        columns=[] if schema is None else [_shown(column, showing=case.showing) for column in schema.fields],
        **_reasons(notes),
    )


def _draft(studio: Studio) -> Any:
    words = ["schema", "draft", f"--out={studio.case.schema_file}", "--json", "--", studio.case.data]
    return studio.work.start("draft", "Reading the table", words, data=studio.case.data)


_TOLD = ("Read with ", "Left out ", "Texts are read ", "Numbers in several ", "The first line names ")


def _reasons(notes: list[str]) -> dict[str, list[str]]:
    """Return what a draft says of the file, of formats and of the columns it left out, and their names; no values."""
    left = [found[1] for note in notes if (found := re.match(r"Left out '(.+?)': ", note))]
    told = [note for note in notes if note.startswith(_TOLD)]
    said = [note.partition(". ")[0].rstrip(".") + "." for note in told]
    return {"notes": said, "left_out": left}


def _shown(column: Column, *, showing: bool) -> dict[str, Any]:
    """Return a column for its form; values that nobody confirmed only to a custodian who asked for them."""
    from escudo.table import Categorical

    hidden = not (column.confirmed or showing)
    told: dict[str, Any] = {
        "name": column.name,
        "confirmed": column.confirmed,
        "open": column.open,
        "hidden": hidden,
        "missing": column.missing,
        "note": column.note,
        "levels": "",
        "recode": "",
        "lower": "",
        "upper": "",
        "bins": "",
        "cut": "",
        "integer": False,
        "format": "",
    }
    if isinstance(column, Categorical):
        kind = "ordinal" if column.ordered else "boolean" if column.kind == "boolean" else "categorical"
        said = (
            f"{len(column.levels)} level{'' if len(column.levels) == 1 else 's'}{' in order' if column.ordered else ''}"
        )
        told |= {"kind": kind, "summary": said, "recoded": len(column.recode)}
        if not hidden:
            told["levels"] = "\n".join(map(str, column.levels))
            told["recode"] = "\n".join(f"{old} => {new}" for old, new in dict(column.recode).items())
            loosely = ", whatever the case and the blanks around them" if column.loose else ""
            told["summary"] = (
                f"{said}{loosely}: {', '.join(map(str, column.levels[:6]))}{', …' if len(column.levels) > 6 else ''}"
            )
        return told
    kind = "date" if column.date is not None else "numeric"
    stated = not column.private and column.edges is None
    kinds = "numbers" if column.date is None else "dates"
    told |= {"kind": kind, "summary": f"{kinds}, bounds", "integer": column.integer, "recoded": 0}
    told |= {"format": column.date or "", "bins": column.bins if stated else ""}
    told["cut"] = "as stated" if column.edges is not None else "private"
    if not (hidden or column.open):
        lower, upper = (column.shown(bound) for bound in column.bounds)
        cut = "bins chosen by the release" if column.private else f"in {column.bins} bins"
        cut += "" if column.form is None else f", written as {column.form}"
        told |= {"lower": lower, "upper": upper, "summary": f"{kinds}, {lower} to {upper}, {cut}"}
    return told


def _spec(said: Mapping[str, str], before: Mapping[str, Any], levels: bool) -> dict[str, Any]:
    """Return a column's description from its form, in the form of a schema file.

    Args:
        said: The form.
        before: The column as it was described.
        levels: Whether the form showed levels and bounds; what was hidden stays as it was.
    """
    kind = said.get("kind", str(before["type"]))
    spec: dict[str, Any] = {"type": kind}
    if kind in ("categorical", "ordinal"):
        typed = [_level(line) for line in said.get("levels", "").splitlines() if line.strip()]
        spec["levels"] = typed if levels and typed else before.get("levels", typed)
        recode = dict(_recoding(line) for line in said.get("recode", "").splitlines() if line.strip())
        recode = recode if levels else before.get("recode", {})
        spec |= {"recode": recode} if recode else {}
        spec |= {"other": before["other"]} if "other" in before and before["other"] in spec["levels"] else {}
        spec |= {key: before[key] for key in ("loose", "prefix") if key in before}
    elif kind in ("numeric", "date"):
        for name in ("lower", "upper"):
            value: Any = said.get(name, "").strip() if levels else before.get(name, "")
            if value != "":
                spec[name] = value if kind == "date" else _number(name, value)
        if said.get("bins", "").strip():
            spec["bins"] = int(_number("bins", said["bins"]))
        if kind == before["type"]:
            spec |= {name: before[name] for name in ("fill", "from", "unit", "format") if name in before}
            if "edges" in before and "bins" not in spec and _same_bounds(spec, before["edges"]):
                spec = {name: value for name, value in spec.items() if name not in ("lower", "upper")}
                spec["edges"] = before["edges"]
        if kind == "numeric" and said.get("integer"):
            spec["integer"] = True
        if kind == "date" and said.get("format", "").strip():
            spec["format"] = said["format"].strip()
    if said.get("missing"):
        spec["missing"] = True
    if not said.get("confirmed"):
        spec["confirmed"] = False
    return spec


def _same_bounds(spec: Mapping[str, Any], edges: list[Any]) -> bool:
    """Return whether bounds are left out, or are the outer edges."""
    return all(
        name not in spec or str(spec[name]) == str(edge) for name, edge in (("lower", edges[0]), ("upper", edges[-1]))
    )


def _level(line: str) -> Any:
    text = line.strip()
    return int(text) if re.fullmatch(r"-?(0|[1-9]\d{0,17})", text) else text


def _recoding(line: str) -> tuple[str, Any]:
    old, arrow, new = line.partition("=>")
    if not arrow or not new.strip():
        raise InputError("a recoding is written as 'old => new', one on each line.")
    return old.strip(), _level(new)


def _number(name: str, text: object) -> float:
    try:
        value = float(str(text).replace(",", ""))
    except ValueError:
        raise InputError(f"{name} must be a number.") from None
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


async def open_table(studio: Studio, request: Request) -> Response:
    """Work on a file, folder or database of this machine, or on the simulated clinic."""
    said = await form_of(request)
    if said.get("demo"):
        await _threaded(studio.open_demo)
    elif place := said.get("place", "").strip():
        studio.open_data(place)
        _draft(studio)
    else:
        raise InputError("name a file, a folder or the address of a database.")
    return _onwards("/table")


async def upload(studio: Studio, request: Request) -> Response:
    """Take a file from the browser into a private copy, which is removed at the end."""
    from urllib.parse import unquote

    name = (
        _SAFE_NAME.sub("_", Path(unquote(request.headers.get("x-file-name", "table.csv"))).name)[-100:] or "table.csv"
    )
    folder = studio.folder / f"upload-{len(list(studio.folder.glob('upload-*'))) + 1}"
    folder.mkdir(mode=0o700)
    path, size = folder / name, 0
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        async for part in request.stream():
            size += len(part)
            if size > _MOST_UPLOAD:
                raise InputError("a file of more than 8 GB is better opened where it lies, by its name.")
            file.write(part)
    studio.open_data(str(path), name)
    _draft(studio)
    return _json({"next": "/table"})


async def show_values(studio: Studio, request: Request) -> Response:
    """Show values that were read from the table, or hide them again."""
    studio.case.showing = (await form_of(request)).get("show") == "yes"
    return _onwards("/table")


async def column(studio: Studio, request: Request) -> Response:
    """Take what a person says about a column."""
    case, said = studio.case, await form_of(request)
    schema = case.schema()
    name = said.get("name", "")
    if schema is None or name not in schema:
        raise InputError("there is no such column.")
    if said.get("leave-out"):
        case.describe(name, None)
    else:
        before = schema.to_dict()["columns"][name]
        visible = schema[name].confirmed or case.showing or bool(said.get("restate"))
        case.describe(name, _spec(said, before, visible))
    return _onwards(f"/table#column-{schema.names.index(name)}")


async def confirm(studio: Studio, request: Request) -> Response:
    """Vouch for all columns that were looked at."""
    schema = studio.case.schema()
    if schema is None:
        raise InputError("there is no table yet; open one first.")
    if not studio.case.showing:
        raise InputError("look at the values first: nobody can vouch for what they have not seen.")
    studio.case.confirm([name for name in schema.unconfirmed if name not in schema.open_columns])
    return _onwards("/table")


async def protect(studio: Studio, request: Request) -> Response:
    """Take who is protected: a row, or a person with so many rows."""
    said = await form_of(request)
    person = said.get("person", "").strip() or None
    studio.case.protect(person, int(_number("rows per person", said.get("rows") or "1")) if person else None)
    return _onwards("/table#protected")


# ---- causes


async def causes(studio: Studio, request: Request) -> Response:
    """Show the graph, to be drawn."""
    schema = studio.case.schema()
    return studio.page(
        "causes",
        columns=[] if schema is None else list(schema.names),
        found=next(iter(studio.work.of("discover")), None),
    )


def _drawn(graph: CausalGraph | None, schema: Schema | None) -> dict[str, Any]:
    """Return a graph for the page, together with what it implies and answers."""
    names = [] if schema is None else list(schema.names)
    if graph is None:
        return {"nodes": names, "edges": [], "lines": [], "latents": [], "forbidden": [], "says": _said(None, schema)}
    return {
        "nodes": [*graph.nodes, *(name for name in names if name not in graph.nodes)],
        "edges": [list(edge) for edge in graph.edges],
        "lines": [list(line) for line in graph.undirected_edges],
        "latents": sorted(graph.latents),
        "forbidden": [list(edge) for edge in graph.forbidden],
        "says": _said(graph, schema),
    }


def _said(graph: CausalGraph | None, schema: Schema | None) -> dict[str, Any]:
    """Return what a graph implies and which questions it answers, in escudo's own words."""
    from escudo.synthesis import refusals_of

    if graph is None or not (graph.edges or graph.undirected_edges):
        return {"summary": "No arrow is drawn yet.", "independent": [], "more": 0, "answered": [], "refused": []}
    independent = graph.independences()
    why = {} if schema is None else refusals_of(schema, graph)
    return {
        "summary": graph.summary,
        "independent": [
            f"{one} and {other}"
            + (f", once {', '.join(given)} {'is' if len(given) == 1 else 'are'} known" if given else "")
            for one, other, given in independent[:_MOST_SHOWN]
        ],
        "more": max(len(independent) - _MOST_SHOWN, 0),
        "answered": [name for name, refused in why.items() if not refused],
        "refused": [{"name": name, "why": refused} for name, refused in why.items() if refused],
    }


async def graph(studio: Studio, request: Request) -> Response:
    """Return the graph as it was kept."""
    return _json(await _threaded(lambda: _drawn(studio.case.graph(), studio.case.schema())))


async def keep_graph(studio: Studio, request: Request) -> Response:
    """Keep the graph as it is drawn, unless it has a cycle or contradicts itself; say what it implies."""
    told = await _body(request)

    def kept() -> dict[str, Any]:
        schema = studio.case.schema()
        drawn = _graph_of(told)
        says = _said(drawn, schema)  # refuses a graph that names what is no column
        studio.case.write_graph(drawn)
        return {"says": says}

    return _json(await _threaded(kept))


def _graph_of(told: Any) -> CausalGraph:
    """Return the graph that a page drew.

    Raises:
        GraphError: A cycle, which is named; or something that is no graph.
    """
    from escudo.causal import CausalGraph

    if not isinstance(told, dict):
        raise GraphError("a graph is sent as nodes and edges.")
    parts = {name: told.get(name, []) for name in ("nodes", "edges", "lines", "latents", "forbidden")}
    for name, value in parts.items():
        pairs = name in ("edges", "lines", "forbidden")
        if (
            not isinstance(value, list)
            or len(value) > 20_000
            or not all(
                (isinstance(one, list) and len(one) == 2 and all(isinstance(end, str) for end in one))
                if pairs
                else isinstance(one, str)
                for one in value
            )
        ):
            raise GraphError(f"{name} must be a list of {'pairs of names' if pairs else 'names'}.")
    return CausalGraph.from_edges(
        [(a, b) for a, b in parts["edges"]],
        nodes=parts["nodes"],
        undirected=[(a, b) for a, b in parts["lines"]],
        latents=parts["latents"],
        forbidden=[(a, b) for a, b in parts["forbidden"]],
    )


async def read_graph(studio: Studio, request: Request) -> Response:
    """Read a graph in any format, and keep it."""
    from escudo.causal import CausalGraph

    told = await _body(request)
    text = told.get("text") if isinstance(told, dict) else None
    if not isinstance(text, str):
        raise InputError("send the text of a graph.")

    def kept() -> dict[str, Any]:
        drawn = CausalGraph.parse(text, source="the file")
        shown = _drawn(drawn, studio.case.schema())
        studio.case.write_graph(drawn)
        return shown

    return _json(await _threaded(kept))


async def write_graph(studio: Studio, request: Request) -> Response:
    """Return the graph as a file of some format."""
    from starlette.responses import Response

    from escudo.causal.formats import FORMATS

    name = request.path_params["format"]
    drawn = studio.case.graph()
    if name not in FORMATS or drawn is None:
        raise InputError("there is no graph yet, or no such format.")
    text = drawn.to_text(name)
    ending = FORMATS[name].endings[0]
    return Response(
        text, media_type="text/plain", headers={"Content-Disposition": f'attachment; filename="graph{ending}"'}
    )


async def find_out(studio: Studio, request: Request) -> Response:
    """Start discovery under a stated part of the budget; what is drawn is taken as known."""
    case, said = studio.case, await form_of(request)
    case.table()  # refuses what is not confirmed
    number = len(studio.work.of("discover")) + 1
    out, page = case.folder / f"found-{number}.dot", case.folder / f"found-{number}.html"
    words = ["discover", f"--schema={case.schema_file}", f"--epsilon={_number('epsilon', said.get('epsilon', ''))}"]
    if case.graph() is not None:
        words.append(f"--knowledge={case.graph_file}")
    for name in ("delta", "relation", "public-rows"):
        if case.terms[name] is not None:
            words.append(f"--{name}={case.terms[name]}")
    if case.terms["dataset"]:
        words += [f"--ledger={case.ledger}", f"--dataset={case.terms['dataset']}"]
    words += [f"--out={out}", f"--report={page}", "--json", "--", case.data]
    studio.work.start("discover", "Finding out causes", words, page, out=out)
    return _onwards("/causes")


async def take_found(studio: Studio, request: Request) -> Response:
    """Draw what discovery found; open edges stay open until somebody decides them."""
    from escudo.causal import CausalGraph

    job = studio.work[_whole(request, "number")]
    if job.kind != "discover" or job.state != "done":
        raise InputError("nothing was found yet.")
    studio.case.write_graph(CausalGraph.read(job.about["out"]))
    return _onwards("/causes")


def _whole(request: Request, name: str) -> int:
    try:
        return int(request.path_params[name])
    except ValueError:
        raise InputError("there is no such page.") from None


# ---- the budget


async def budget(studio: Studio, request: Request) -> Response:
    """Show what a release would cost and promise, as sliders move."""
    return studio.page("budget", schema=studio.case.schema(), accounts=await _threaded(_accounts, studio))


def _accounts(studio: Studio) -> list[str]:
    """Return the names of the ledger's accounts; none if there is no ledger yet."""
    from escudo.privacy import Ledger

    address = studio.case.ledger
    path = address.removeprefix("sqlite:///")
    if address.startswith("sqlite:///") and not os.path.exists(path):
        return []
    try:
        with Ledger(address) as book:
            return [info.dataset for info in book.datasets()]
    except EscudoError:
        return []


async def forecast(studio: Studio, request: Request) -> Response:
    """Return what can be told while a slider moves: the promise, δ against 1/n, and the error that noise will leave."""
    told = await _body(request)
    if not isinstance(told, dict):
        raise InputError("send the terms of a release.")

    def answer() -> dict[str, Any]:
        studio.case.set_terms(told.get("terms") or {})
        return _forecast(studio.case)

    return _json(await _threaded(answer))


def _forecast(case: Case) -> dict[str, Any]:
    from escudo.privacy import Budget, Guarantee, delta_warning, usual_delta
    from escudo.report import promise_sentence
    from escudo.synthesis import forecast as foretell

    terms = case.terms
    schema, neighbours = case.public()
    delta = usual_delta(neighbours) if terms["delta"] is None else terms["delta"]
    budget = Budget(terms["epsilon"], delta)
    unit: dict[str, Any] = {"relation": neighbours.relation, "unit": neighbours.unit}
    promise = Guarantee(
        **unit, epsilon=budget.epsilon, delta=budget.delta, max_rows_per_person=neighbours.max_rows_per_person
    )
    records = neighbours.records
    found = {
        "sentence": promise_sentence(promise),
        "delta": {
            "delta": budget.delta,
            "records": records,
            "warning": delta_warning(budget.delta, records, unit=neighbours.unit) or "",
        },
        "forecast": None,
    }
    asked: dict[str, Any] = {"epsilon": budget.epsilon, "delta": budget.delta, "rows": neighbours.rows}
    try:
        seen = foretell(schema, case.graph(), relation=terms["relation"], generator=terms["generator"], **asked)
    except InputError as none:
        return found | {"no_forecast": str(none)}
    sign = " and " if seen.picked else " → "
    pairs = [(sign.join(pair), error) for pair, error in seen.pairs.items()]
    listed = [sorted(some, key=lambda one: -one[1])[:_MOST_FORECAST] for some in (list(seen.columns.items()), pairs)]
    lead = f"For {seen.rows:,} rows, columns err by {100 * seen.column_error:.2g} % on average"
    lead += f", and {'pairs' if seen.picked else 'arrows'} by {100 * seen.pair_error:.2g} %" if pairs else ""
    return found | {"forecast": {"said": f"{lead}. {seen.note}", "columns": listed[0], "pairs": listed[1]}}


async def budgeted(studio: Studio, request: Request) -> Response:
    """Return what a budget pays for: the plan, what it means for several people, and what the ledger has left."""
    told = await _body(request)
    if not isinstance(told, dict):
        raise InputError("send the terms of a release.")

    def answer() -> dict[str, Any]:
        case = studio.case
        case.set_terms(told.get("terms") or {})
        prepared, neighbours = case.prepared()
        return _budget(case, prepared, neighbours)

    return _json(await _threaded(answer))


def _budget(case: Case, prepared: PreparedRelease, neighbours: Neighbours) -> dict[str, Any]:
    from escudo.privacy import guarantee_of
    from escudo.report import who_gets_what

    plan = prepared.plan
    assert plan.event is not None, "a release costs something"
    guarantee = guarantee_of(plan.event, delta=plan.delta or 0.0, max_rows_per_person=neighbours.max_rows_per_person)
    return {
        "who": who_gets_what(guarantee),
        "plan": str(plan),
        "ledger": _standing(case, plan),
        "command": f"escudo {' '.join(_quoted(case))}",
    }


def _quoted(case: Case) -> list[str]:
    import shlex

    graph = "graph.dot" if case.graph_file.exists() else None
    return [shlex.quote(word) for word in case.words(case.name, "schema.toml", graph, case.out)]


def _standing(case: Case, plan: Plan) -> dict[str, Any] | None:
    """Return where the account stands, and whether the plan fits; None if nothing is recorded."""
    account = case.account()
    if account is None or plan.event is None:
        return None
    info = account.info()
    return {
        "dataset": account.dataset,
        "cap": info.cap.epsilon,
        "used": info.used,
        "left": info.remaining.epsilon,
        "asked": account.asked(plan.event),
        "fits": account.fits(plan.event),
        "promise": info.promise,
    }


# ---- the release


async def release(studio: Studio, request: Request) -> Response:
    """Show what would be run, what is running, or what was released."""
    case = studio.case
    job = next(iter(studio.work.of("release")), None)
    told: dict[str, Any] = {"plan": "", "recipe": {}}
    try:
        prepared, _ = await _threaded(case.prepared)
        told["plan"] = str(prepared.plan)
    except EscudoError as error:
        told["problem"] = str(error)
    else:
        told["recipe"] = await _threaded(case.recipe)
    done = job is not None and job.state == "done"
    told["number"] = studio.releases.index(job.about["target"]) if job is not None and done else None
    return studio.page("release", job=job, **told)


async def start_release(studio: Studio, request: Request) -> Response:
    """Release: from here on the budget is spent."""
    case, said = studio.case, await form_of(request)
    case.set_terms({"csv": said.get("csv", ""), "custodian": said.get("custodian", ""), "out": said.get("out", "")})
    await _threaded(case.prepared)  # what is refused before anything is read is refused here
    words = case.release_words()
    job = studio.work.start("release", f"Releasing to {case.out}", words, target=case.target)
    await _threaded(case.write_recipe)
    if job.about["target"] not in studio.releases:
        studio.releases.append(job.about["target"])
    return _onwards("/release")


async def recipe(studio: Studio, request: Request) -> Response:
    """Return one of the files that say the same question in another way."""
    from starlette.responses import Response

    name = request.path_params["name"]
    found = (await _threaded(studio.case.recipe)).get(name)
    if found is None:
        raise InputError("there is no such file.")
    return Response(found, media_type="text/plain", headers={"Content-Disposition": f'attachment; filename="{name}"'})


async def job(studio: Studio, request: Request) -> Response:
    """Return how far some work is."""
    return _json(studio.work[_whole(request, "number")].to_json())


async def stop(studio: Studio, request: Request) -> Response:
    """Cancel some work."""
    work = studio.work[_whole(request, "number")]
    work.stop()
    return _json(work.to_json())


ROUTES = (
    ("GET", "/table", table),
    ("POST", "/table/open", open_table),
    ("POST", "/api/upload", upload),
    ("POST", "/table/show", show_values),
    ("POST", "/table/column", column),
    ("POST", "/table/confirm", confirm),
    ("POST", "/table/protect", protect),
    ("GET", "/causes", causes),
    ("GET", "/api/graph", graph),
    ("POST", "/api/graph", keep_graph),
    ("POST", "/api/graph/read", read_graph),
    ("GET", "/causes/as/{format}", write_graph),
    ("POST", "/causes/find", find_out),
    ("POST", "/causes/take/{number}", take_found),
    ("GET", "/budget", budget),
    ("POST", "/api/forecast", forecast),
    ("POST", "/api/budget", budgeted),
    ("GET", "/release", release),
    ("POST", "/release/start", start_release),
    ("GET", "/release/recipe/{name}", recipe),
    ("GET", "/api/jobs/{number}", job),
    ("POST", "/api/jobs/{number}/stop", stop),
)
