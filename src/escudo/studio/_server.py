"""The studio as one application: its routes, how errors are told, and how it is started and ended.

The server is bound to 127.0.0.1 unless TLS files are given. It writes no log of requests. What it keeps while it runs
lies in a folder of its own that only its owner can read, and that is gone when it ends.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escudo.errors import EscudoError, InputError
from escudo.studio._case import Case
from escudo.studio._door import Door
from escudo.studio._work import Work

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from jinja2 import Environment
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

STEPS = (
    ("table", "Table"),
    ("causes", "Causes"),
    ("budget", "Budget"),
    ("release", "Release"),
    ("what-if", "What if"),
    ("accounts", "Accounts"),
    ("audits", "Audits"),
    ("attacks", "Attacks"),
)
_SHARED_STYLES = ("page.css", "release.css", "explore.css")
_SHARED_SCRIPTS = ("explore_model.js", "explore_charts.js", "explore.js")
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain"}


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What the studio is started with.

    Attributes:
        data: A file, a folder or the address of a database.
        schema: Its schema, if there is one.
        graph: A causal graph, if there is one.
        ledger: The ledger to charge.
        dataset: The account in it.
        demo: Whether to open the simulated clinic.
        host: The address to serve, ``localhost`` being 127.0.0.1; another only with TLS.
        port: The port; any that is free by default.
        certificate: A TLS certificate.
        key: Its private key.
    """

    data: str | None = None
    schema: Path | None = None
    graph: Path | None = None
    ledger: str | None = None
    dataset: str | None = None
    demo: bool = False
    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if self.host == "localhost":
            object.__setattr__(self, "host", "127.0.0.1")


class Studio:
    """What all pages share: the case, the work, and how they look.

    Args:
        opening: What it is started with.
        origin: Where it is served.
    """

    def __init__(self, opening: Opening, origin: str) -> None:
        self.door = Door(origin)
        self.folder = Path(tempfile.mkdtemp(prefix="escudo-studio-"))  # its owner's only
        self.case = Case(folder=self.folder, home=Path.cwd())
        self.work = Work(self.folder)
        self.releases: list[Path] = []
        try:
            self._begin(opening)
        except BaseException:
            self.close()
            raise

    def _begin(self, opening: Opening) -> None:
        case = self.case
        if opening.ledger is not None or opening.dataset is not None:
            case.set_terms({"ledger": opening.ledger, "dataset": opening.dataset})
        if opening.demo:
            self.open_demo()
        if opening.data is not None:
            self.open_data(opening.data)
        if opening.schema is not None:
            from escudo.table import Schema

            case.write_schema(Schema.read(opening.schema))
        if opening.graph is not None:
            from escudo.causal import CausalGraph

            case.write_graph(CausalGraph.read(opening.graph))

    def open_data(self, data: str, name: str = "") -> None:
        """Work on another table."""
        if "://" not in data:
            path = Path(data).expanduser()
            data = str(path if path.is_absolute() else Path.cwd() / path)
            if not os.path.exists(data):
                raise InputError(f"{data!r}: there is no such file or folder.")
        self.case = Case(folder=self.folder, home=Path.cwd(), terms=self.case.terms)
        self.case.data, self.case.name = data, name or (data if "://" not in data else "DATA")
        self.case.schema_file.unlink(missing_ok=True)
        self.case.graph_file.unlink(missing_ok=True)

    def open_demo(self) -> None:
        """Work on the simulated chest clinic, whose patients are made up and whose causes are known."""
        import numpy as np

        from escudo.causal import asia
        from escudo.table import Schema

        clinic = asia()
        codes = clinic.sample(20_000, rng=np.random.default_rng(1988))
        rows = zip(*(np.array(clinic.levels[name])[code].tolist() for name, code in codes.items()), strict=True)
        path = self.folder / "clinic.csv"  # as text, which nothing has to be loaded for before the first page
        path.write_text("\n".join(map(",".join, (tuple(codes), *rows))) + "\n", encoding="utf-8")
        path.chmod(0o600)
        self.open_data(str(path), "clinic.csv")
        self.case.write_schema(Schema.from_dict({name: list(levels) for name, levels in clinic.levels.items()}))
        self.case.write_graph(clinic.graph)

    def page(self, name: str, **content: Any) -> Response:
        """Return a page of the studio."""
        from starlette.responses import HTMLResponse

        shared = {"steps": STEPS, "here": name, "case": self.case, "version": version("escudo"), "problem": ""}
        running = [
            job for job in self.work.of("release", "discover", "audit", "attack", "draft") if job.state == "running"
        ]
        template = _environment().get_template(f"{name}.html.j2")
        return HTMLResponse(template.render({**shared, "running": running, **content}))

    def close(self) -> None:
        """End all work, and remove what was private."""
        self.work.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def _environment() -> Environment:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    from escudo.report import prose

    made = Environment(
        loader=ChoiceLoader([PackageLoader("escudo.studio"), PackageLoader("escudo.report")]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters["prose"] = prose
    return made


@cache
def _asset(name: str) -> bytes | None:
    """Return a file that pages load: the studio's own, or one that it shares with the reports."""
    from escudo.report import source_of

    if name in (*_SHARED_STYLES, *_SHARED_SCRIPTS):
        return source_of(name).encode()
    folder = files("escudo.studio") / "static"
    known = {
        f"{'vendor/' if inside else ''}{file.name}": file
        for inside in (False, True)
        for file in ((folder / "vendor") if inside else folder).iterdir()
        if file.is_file()
    }
    found = known.get(name)
    return None if found is None else found.read_bytes()


def application(studio: Studio) -> Starlette:
    """Return the studio as an ASGI application."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import PlainTextResponse, RedirectResponse, Response
    from starlette.routing import Route

    from escudo.studio import _journey, _rooms

    async def first(request: Request) -> Response:
        return RedirectResponse("/table", status_code=303)

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        found = _asset(name)
        if found is None:
            return PlainTextResponse("There is no such file.\n", status_code=404)
        return Response(found, media_type=_KINDS.get(Path(name).suffix, "application/octet-stream"))

    async def icon(request: Request) -> Response:
        return Response(_ICON, media_type="image/svg+xml")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        threading.Thread(target=_warm, daemon=True).start()
        yield
        studio.close()

    routes = [
        Route("/", first),
        Route("/favicon.ico", icon),
        Route("/static/{name:path}", asset),
        *(
            Route(path, _asked(studio, function), methods=[method])
            for method, path, function in (*_journey.ROUTES, *_rooms.ROUTES)
        ),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=studio.door)],
        lifespan=lifespan,
    )


def _warm() -> None:
    """Load what the next pages will need, while somebody reads the first one."""
    import escudo.releasing
    import escudo.synthesis
    from escudo.privacy import Budget, GaussianEvent, calibrate

    calibrate(lambda scale: GaussianEvent(l2_sensitivity=1.0, scale=scale, grid=1.0), Budget(1.0, 1e-6))
    escudo.synthesis.forecast(escudo.Schema.from_dict({"a": ["no", "yes"]}), None, epsilon=1.0, rows=100)
    assert escudo.releasing.release is not None


def _asked(studio: Studio, function: Callable[..., Any]) -> Callable[[Request], Any]:
    """Return what answers a request, or tells what is wrong; of what is a bug of ours, only where it is."""

    async def asked(request: Request) -> Response:
        try:
            answer: Response = await function(studio, request)
        except EscudoError as error:
            return _told(studio, request, str(error), 400)
        except Exception as error:
            return _told(studio, request, _bug(error), 500)
        return answer

    return asked


def _told(studio: Studio, request: Request, message: str, status: int) -> Response:
    if request.url.path.startswith("/api/"):  # a refusal is an answer that a page asked for, and shows
        from starlette.responses import JSONResponse

        return JSONResponse({"problem": message}, status_code=200 if status == 400 else status)
    page = studio.page("problem", here="", problem=message, back=_back(request))
    page.status_code = status
    return page


_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><path d="M16 2l12 4v10c0 8-6 12-12 14C10 28 4 24 4 '
    '16V6z" fill="#0b6b7f"/></svg>'
)


def _back(request: Request) -> str:
    """Return the step that a request belongs to."""
    step = request.url.path.strip("/").split("/")[0]
    return f"/{step}" if step in dict(STEPS) else "/table"


def _bug(error: Exception) -> str:
    """Say that escudo itself failed, naming the place in the code but no value: a message may hold private data."""
    import traceback

    places = [frame for frame in traceback.extract_tb(error.__traceback__) if "escudo" in Path(frame.filename).parts]
    place = f"{Path(places[-1].filename).name}:{places[-1].lineno}" if places else "an unknown place"
    return f"This is a bug in escudo ({type(error).__name__} at {place}). Please report it with that place."


def serve(opening: Opening, ready: Callable[[str], object]) -> None:
    """Serve the studio until it is told to end.

    Args:
        opening: What it is started with.
        ready: Told the address to open, which lets one browser in, as soon as it answers.

    Raises:
        InputError: If the extra is not installed, the address cannot be served, or TLS files are missing.
    """
    try:
        import starlette  # noqa: F401 # what uvicorn serves
        import uvicorn
    except ImportError:
        raise InputError("the studio needs its extra: pip install 'escudo[studio]'.") from None
    if (opening.certificate is None) != (opening.key is None):
        raise InputError("--tls-certificate and --tls-key belong together.")
    tls = opening.certificate is not None
    if opening.host != "127.0.0.1" and not tls:
        raise InputError(
            f"--host {opening.host} would let others on the network in, in clear text; give --tls-certificate and "
            "--tls-key, or leave --host out and use a tunnel (ssh -L)."
        )
    listening = socket.socket(socket.AF_INET6 if ":" in opening.host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((opening.host, opening.port))
    except OSError as error:
        listening.close()
        raise InputError(f"{opening.host}:{opening.port} cannot be served: {error.strerror}.") from None
    port = listening.getsockname()[1]
    origin = f"{'https' if tls else 'http'}://{opening.host}:{port}"
    try:
        studio = Studio(opening, origin)
    except BaseException:
        listening.close()
        raise
    settings = uvicorn.Config(
        application(studio),
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        date_header=False,
        ssl_certfile=opening.certificate,
        ssl_keyfile=opening.key,
        timeout_graceful_shutdown=5,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready(f"{origin}/open?token={studio.door.token}")

    try:
        Server(settings).run(sockets=[listening])
    finally:
        studio.close()
        listening.close()
