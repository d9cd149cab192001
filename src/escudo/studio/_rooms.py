"""Beside the journey: what if on any released model, accounts, audits, attacks."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escudo.errors import EscudoError, InputError
from escudo.studio._journey import _number, _onwards, _threaded, _whole, form_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from escudo.studio._server import Studio

_OFFERED = ("report.html", "explore.html", "release.json", "synthetic.parquet", "synthetic.csv")
_DRAWN = 5000  # rows that a model is asked by, where its laws do not fit into a page


# ---- what if


async def what_if(studio: Studio, request: Request) -> Response:
    """List the models that can be asked, and take others by their folder."""
    there = [(number, path.name) for number, path in enumerate(studio.releases) if (path / "model").is_dir()]
    return studio.page("what-if", models=there, explored=None, here="what-if")


async def open_model(studio: Studio, request: Request) -> Response:
    """Take the folder of a release, or of its model."""
    from escudo.synthesis import load

    place = Path((await form_of(request)).get("place", "").strip()).expanduser()
    folder = (place if place.is_absolute() else Path.cwd() / place).resolve()
    folder = folder.parent if folder.name == "model" else folder
    await _threaded(load, folder / "model")
    if folder not in studio.releases:
        studio.releases.append(folder)
    return _onwards(f"/what-if/{studio.releases.index(folder)}")


async def ask_model(studio: Studio, request: Request) -> Response:
    """Ask a model: in the browser where its laws fit there, else here, by drawn rows."""
    from escudo.report import explorable, explored
    from escudo.synthesis import CausalModel, load

    folder = _folder(studio, request)
    model = await _threaded(load, folder / "model")
    there = [(number, path.name) for number, path in enumerate(studio.releases) if (path / "model").is_dir()]
    if explorable(model):
        assert isinstance(model, CausalModel)
        told = await _threaded(explored, model)
        return studio.page("what-if", models=there, explored=folder.name, drawn=None, **told)
    said = {"how": "", "column": "", "value": "", "show": "", **request.query_params}
    told = {"drawn": await _threaded(_drawn, model, said), "data": "", "withheld": ""}
    return studio.page("what-if", models=there, explored=folder.name, **told)


def _drawn(model: Any, said: dict[str, str]) -> dict[str, Any]:
    """Return columns as they were and under what is asked, from rows that are drawn."""
    from escudo.report import column_cards

    do, given = (
        {said["column"]: said.get("value") or None} if said.get("how") == how and said.get("column") else {}
        for how in ("do", "given")
    )
    names = list(model.schema.names)
    sought = _wanted(names, said["show"])
    shown = sought or _affected_first(model, said["column"])
    problem = ""
    try:
        now = model.sample(_DRAWN, do=do, given=given, seed=1) if do or given else None
    except EscudoError as error:
        now, problem = None, str(error)
    was = model.sample(_DRAWN, seed=2)
    cards = column_cards(model.schema, was if now is None else now, None if now is None else was, names=shown)
    return {
        "names": names,
        "cards": cards,
        "more": len(shown) - len(cards),
        "found": bool(sought) or not said["show"].strip(),
        "problem": problem,
        "said": said,
        "rows": _DRAWN,
        "chance": round(196 * 0.5 / _DRAWN**0.5, 1),  # half a share is off by so many percent at most, 95 of 100 times
        "sentence": str(model.guarantee),
    }


def _affected_first(model: Any, column: str) -> list[str]:
    """Return all columns: the one that is asked about, what it affects by the graph, and the rest."""
    names = list(model.schema.names)
    affected = model.graph.descendants(column) if column in model.graph.nodes else set()
    return sorted(names, key=lambda name: (name != column, name not in affected))


def _wanted(names: list[str], text: str) -> list[str]:
    """Return the columns that somebody looks for: those whose name holds one of some words, in any letters."""
    words = [word.strip().casefold() for word in text.split(",") if word.strip()]
    exactly = [name for name in names if name.casefold() in words]
    return exactly + [name for name in names if name not in exactly and any(word in name.casefold() for word in words)]


def _folder(studio: Studio, request: Request) -> Path:
    number = _whole(request, "number")
    if not 0 <= number < len(studio.releases):
        raise InputError("there is no such release.")
    return studio.releases[number]


@cache
def _script_hashes() -> str:
    from escudo.report import source_of

    script = "".join(source_of(name) for name in ("explore_model.js", "explore_charts.js", "explore.js"))
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _page_file(path: Path) -> Response:
    """Return a page that escudo wrote, which has its styles inside, and runs none but our own script."""
    from starlette.responses import FileResponse

    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; frame-ancestors 'self'; "
        f"script-src 'sha256-{_script_hashes()}'; sandbox allow-scripts allow-downloads"
    )
    return FileResponse(path, media_type="text/html", headers={"Content-Security-Policy": policy})


async def released_file(studio: Studio, request: Request) -> Response:
    """Return a file of a release."""
    from starlette.responses import FileResponse

    folder, name = _folder(studio, request), request.path_params["name"]
    if name not in _OFFERED or not (folder / name).is_file():
        raise InputError("there is no such file.")
    if name.endswith(".html"):
        return _page_file(folder / name)
    return FileResponse(folder / name, filename=name)


async def job_page(studio: Studio, request: Request) -> Response:
    """Return the page that some work wrote."""
    job = studio.work[_whole(request, "number")]
    if job.page is None or job.process.poll() is None or not job.page.is_file():
        raise InputError("there is no page yet.")
    return _page_file(job.page)


# ---- accounts


async def accounts(studio: Studio, request: Request) -> Response:
    """Show the ledger: what each account has left, what was spent, and whether it holds good."""
    found = await _threaded(_ledger, studio, request.query_params.get("verify") == "yes")
    return studio.page("accounts", **found)


def _ledger(studio: Studio, verify: bool) -> dict[str, Any]:
    import os

    from escudo.privacy import Ledger

    address = studio.case.ledger
    told: dict[str, Any] = {
        "ledger": address.rpartition("@")[2],
        "infos": [],
        "rows": [],
        "verified": None,
        "missing": False,
    }
    path = address.removeprefix("sqlite:///")
    if address.startswith("sqlite:///") and not os.path.exists(path):
        return told | {"missing": True}
    with Ledger(address) as book:
        told["infos"] = book.datasets()
        told["rows"] = [_row(row) for row in reversed(book.history())][:200]
        if verify:
            told["verified"] = book.verify()
    return told


def _row(row: Any) -> dict[str, Any]:
    from escudo.privacy import cost_text

    event = row.event if row.kind == "spend" else None
    return {
        "number": row.sequence,
        "when": row.recorded_at.replace("T", " ")[:16],
        "kind": row.kind,
        "dataset": row.dataset,
        "purpose": str(row.payload.get("purpose", "")),
        "cost": "" if event is None else cost_text(event),
    }


async def open_account(studio: Studio, request: Request) -> Response:
    """Open an account, with a cap that never changes."""
    from escudo.privacy import Ledger

    said = await form_of(request)
    schema = studio.case.schema()
    terms: dict[str, Any] = {
        "epsilon": _number("epsilon", said.get("epsilon", "")),
        "delta": _number("delta", said.get("delta") or "0"),
        "relation": studio.case.terms["relation"],
    }
    if schema is not None and schema.unit == "person":
        terms |= {"unit": "person", "max_rows_per_person": schema.max_rows_per_person}

    def opened() -> None:
        with Ledger(studio.case.ledger) as book:
            book.open(said.get("dataset", "").strip(), **terms)

    await _threaded(opened)
    studio.case.set_terms({"dataset": said.get("dataset", "").strip()})
    return _onwards("/accounts")


# ---- audits and attacks


async def audits(studio: Studio, request: Request) -> Response:
    """Show audits, and start one."""
    from escudo.auditing import museum

    return studio.page("audits", jobs=studio.work.of("audit"), exhibits=await _threaded(museum.exhibits))


async def start_audit(studio: Studio, request: Request) -> Response:
    """Start an audit of a mechanism of the museum's, or of one's own."""
    said = await form_of(request)
    number = len(studio.work.of("audit")) + 1
    page = studio.folder / f"audit-{number}.html"
    own = said.get("mechanism", "").strip()
    if own:
        words = [
            "audit",
            f"--epsilon={_number('epsilon', said.get('epsilon', ''))}",
            f"--report={page}",
            "--json",
            "--",
            own,
        ]
        if said.get("delta", "").strip():
            words.insert(1, f"--delta={_number('delta', said['delta'])}")
        studio.work.start("audit", f"Audit of {own}", words, page)
    else:
        exhibit = said.get("exhibit", "")
        studio.work.start("audit", f"Museum: {exhibit}", ["museum", "--json", "--", exhibit])
    return _onwards("/audits")


async def attacks(studio: Studio, request: Request) -> Response:
    """Show attacks, and start one."""
    return studio.page("attacks", jobs=studio.work.of("attack"), schema=studio.case.schema())


async def start_attack(studio: Studio, request: Request) -> Response:
    """Start an attack on the generator with the schema, graph and budget at hand; for the custodian's eyes only."""
    case, said = studio.case, await form_of(request)
    case.table()
    number = len(studio.work.of("attack")) + 1
    page = studio.folder / f"attack-{number}.html"
    words = ["attack", f"--schema={case.schema_file}", f"--epsilon={case.terms['epsilon']}"]
    words += [f"--graph={case.graph_file}"] if case.graph_file.exists() else []
    words += [f"--delta={case.terms['delta']}"] if case.terms["delta"] is not None else []
    for name, most in (("targets", 1000), ("shadows", 10_000), ("trials", 10_000)):
        if said.get(name, "").strip():
            words.append(f"--{name}={min(int(_number(name, said[name])), most)}")
    words += [f"--relation={case.terms['relation']}", "--jobs=1", f"--out={page}", "--json", "--", case.data]
    studio.work.start("attack", "Attack on the generator", words, page)
    return _onwards("/attacks")


ROUTES = (
    ("GET", "/what-if", what_if),
    ("POST", "/what-if/open", open_model),
    ("GET", "/what-if/{number}", ask_model),
    ("GET", "/files/{number}/{name}", released_file),
    ("GET", "/pages/{number}", job_page),
    ("GET", "/accounts", accounts),
    ("POST", "/accounts/open", open_account),
    ("GET", "/audits", audits),
    ("POST", "/audits/start", start_audit),
    ("GET", "/attacks", attacks),
    ("POST", "/attacks/start", start_attack),
)
