"""Who may ask the studio something, and what is left when it ends."""

from __future__ import annotations

import http.client
import json
import random
import re
import shutil
import ssl
import stat
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from starlette.requests import Request
from typer.testing import CliRunner

from browsing import NEEDED
from escudo.causal import CausalGraph
from escudo.cli import app
from escudo.report import write_release
from escudo.studio import _journey, _rooms
from escudo.studio._case import Case
from escudo.studio._door import Door
from escudo.synthesis import synthesize
from escudo.table import PrivateTable, Schema

if TYPE_CHECKING:
    from conftest import Served
    from playwright.sync_api import Browser


HOSTILE = """async (studio) => {
    const graph = `${studio}/api/graph`;
    const credentials = "include";
    const body = JSON.stringify({ nodes: ["gone"], edges: [], lines: [], latents: [], forbidden: [] });
    const added = (tag, attributes, ended) => new Promise((done) => {
        const element = Object.assign(document.createElement(tag), attributes);
        element.onload = () => done(ended(element));
        element.onerror = () => done("failed");
        document.body.append(element);
    });
    const inside = (frame) => { try { return frame.contentDocument.body.innerText; } catch { return "blocked"; } };
    const ways = {
        read: () => fetch(graph, { credentials }).then((answer) => answer.text()),
        write: () => fetch(graph, { method: "POST", body, credentials }).then((answer) => answer.text()),
        blind: () => fetch(graph, { method: "POST", mode: "no-cors", body, credentials }).then((answer) => answer.type),
        script: () => added("script", { src: graph }, () => "loaded"),
        frame: () => added("iframe", { src: `${studio}/table` }, inside),
    };
    const tried = {};
    for (const [name, way] of Object.entries(ways)) tried[name] = await way().catch(() => "failed");
    return tried;
}"""
FORGED = """(studio) => {
    const form = Object.assign(document.createElement("form"), { method: "post", action: `${studio}/table/open` });
    form.append(Object.assign(document.createElement("input"), { name: "demo", value: "yes" }));
    document.body.append(form);
    form.submit();
}"""


class Visitor:
    """Somebody who sends what they like, with a cookie or without."""

    def __init__(self, origin: str) -> None:
        self.host = origin.removeprefix("http://")
        self.origin = origin
        self.cookie = ""

    def send(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.host, timeout=120)
        told = {"Host": self.host, "Cookie": self.cookie, "Origin": self.origin}
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {name: value for name, value in told.items() if value})
        answer = connection.getresponse()
        found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        connection.close()
        return found


@pytest.fixture(scope="module")
def visitor(studio: Served) -> Visitor:
    """Whoever opened the address first."""
    one = Visitor(studio.origin)
    status, headers, _ = one.send("GET", studio.entry.removeprefix(studio.origin))
    assert status == 200
    one.cookie = headers["set-cookie"].split(";")[0]
    return one


def test_a_token_in_any_letters_is_turned_away_before_the_first_visit() -> None:
    door = Door("http://127.0.0.1:1")
    scope = {"type": "http", "method": "GET", "path": "/open", "headers": [(b"host", b"127.0.0.1:1")]}
    for token in ("%C3%A9", "", "x" * 5000):
        answer = door._turned_away(Request({**scope, "query_string": f"token={token}".encode()}))
        assert answer is not None
        assert answer.status_code == 403
    assert door.token is not None


class TestTheDoor:
    def test_the_cookie_is_for_this_browser_and_this_site_only(self, studio: Served, visitor: Visitor) -> None:
        assert visitor.send("GET", "/table")[0] == 200
        status, headers, _ = visitor.send("GET", studio.entry.removeprefix(studio.origin))
        assert status == 403  # an address lets one browser in, once
        assert "set-cookie" not in headers

    @pytest.mark.parametrize(
        "headers",
        [
            {"Cookie": ""},
            {"Cookie": "escudo-studio=wrong"},
            {"Host": "evil.example:80"},
            {"Host": "127.0.0.1"},
            {"Host": "127.0.0.1.nip.io"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ],
    )
    def test_a_page_is_refused_to_others(self, visitor: Visitor, headers: dict[str, str]) -> None:
        told = {name.replace("-", "_"): value for name, value in headers.items()}
        assert visitor.send("GET", "/table", None, **told)[0] == 403

    @pytest.mark.parametrize("origin", ["", "null", "http://evil.example", "https://127.0.0.1", "http://127.0.0.1:1"])
    def test_a_change_is_refused_to_pages_of_others(self, visitor: Visitor, origin: str) -> None:
        assert visitor.send("POST", "/table/open", b"demo=yes", Origin=origin)[0] == 403

    def test_every_answer_forbids_what_a_page_does_not_need(self, visitor: Visitor) -> None:
        for path in ("/table", "/nowhere", "/static/studio.js", "/api/graph", "/api/jobs/99"):
            _, headers, _ = visitor.send("GET", path)
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"

    def test_files_beside_the_static_ones_are_not_served(self, visitor: Visitor) -> None:
        for path in ("../_server.py", "%2e%2e/_server.py", "vendor/../../_case.py", "/etc/passwd", ""):
            assert visitor.send("GET", f"/static/{path}")[0] == 404
        for path in ("/files/0/..%2f..%2fetc%2fpasswd", "/files/-1/report.html", "/pages/999"):
            assert visitor.send("GET", path)[0] in (400, 404)


def test_no_route_fails_whatever_it_is_sent(visitor: Visitor) -> None:
    """Random methods, bodies and paths: a refusal at most, never a bug, and never a word of the table's."""
    rng = random.Random(5)
    pieces = [
        *("", "{}", "[]", "null", "1e999", "name=x&kind=y", "place=%00", "place=/nowhere", "%ff", "number=-1"),
        *('{"terms":{"epsilon":"x"}}', '{"terms":{"out":"../x"}}', '{"terms":{"delta":"-1"}}', '{"terms":[]}'),
        *('{"terms":{"generator":"nobody"}}', '{"nodes":[1]}', '{"lines":[["a"]]}', '{"text":"a->"}'),
        '{"edges":[["a","b"],["b","a"]],"nodes":["a","b"]}',
        *(
            '{"terms":{"rows-per-person":"0"}}',
            "person=nobody&rows=0",
            "epsilon=nan&dataset=",
            "exhibit=nobody",
            "\x00" * 20,
        ),
    ]
    inside = ["0", "-1", "1e3", "..", "ü", "dot", "release.py"]
    for method, route, _ in (*_journey.ROUTES, *_rooms.ROUTES):
        if route in ("/release/start", "/attacks/start", "/audits/start", "/causes/find"):
            continue  # these start processes
        for _ in range(3):
            path = route
            for name in ("{number}", "{name}", "{format}"):
                path = path.replace(name, urllib.parse.quote(rng.choice(inside)))
            status, _, answer = visitor.send(method, path, rng.choice(pieces).encode() if method == "POST" else None)
            assert status < 500, (method, path, answer)
            assert b"Traceback" not in answer
    visitor.send("POST", "/table/open", b"demo=yes")


def test_what_was_private_is_gone_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from escudo.studio._server import Opening, Studio

    monkeypatch.chdir(tmp_path)
    studio = Studio(Opening(demo=True), "http://127.0.0.1:1")
    assert stat.S_IMODE(studio.folder.stat().st_mode) == 0o700
    for path in studio.folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or path.name == "graph.dot", path
    studio.close()
    assert not studio.folder.exists()


def test_rows_per_person_are_the_schemas_to_say(tmp_path: Path) -> None:
    from escudo.errors import EscudoError

    case = Case(folder=tmp_path, home=tmp_path)

    def known() -> Schema:
        found = case.schema()
        assert found is not None
        return found

    case.set_terms({"rows-per-person": "4"})  # no table yet: nothing to say it of
    case.write_schema(Schema.from_dict({"ill": ["no", "yes"]}))
    case.set_terms({"rows-per-person": "4"})
    assert (known().person_id, known().max_rows_per_person) == (None, None)
    case.protect("who", 2)
    case.set_terms({"rows-per-person": "4", "epsilon": "2"})
    assert (known().person_id, known().max_rows_per_person) == ("who", 4)
    for wrong in ("0", "-3", "many", "1.5", "1e999"):
        with pytest.raises(EscudoError):
            case.set_terms({"rows-per-person": wrong, "epsilon": "5"})
    case.set_terms({"rows-per-person": ""})
    assert (known().max_rows_per_person, case.terms["epsilon"]) == (4, 2.0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "--tls-certificate"),
        (["--tls-key", "k.pem"], "belong together"),
        (["nowhere.csv"], "no such file"),
    ],
)
def test_a_start_that_is_not_safe_or_possible_is_refused(words: list[str], said: str) -> None:
    from escudo.errors import InputError

    found = CliRunner().invoke(app, ["studio", "--no-browser", *words])
    assert isinstance(found.exception, InputError)
    assert said in str(found.exception)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_with_a_certificate_it_is_served_over_tls_with_a_cookie_for_tls_only(certified: Served) -> None:
    trusting = ssl.create_default_context(cafile=str(certified.home / "certificate.pem"))
    assert certified.origin.startswith("https://")
    with urllib.request.urlopen(certified.entry, context=trusting, timeout=120) as answer:
        cookie = answer.headers["Set-Cookie"]
    assert {"Secure", "HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
    asked = urllib.request.Request(f"{certified.origin}/table", headers={"Cookie": cookie.split(";")[0]})
    with urllib.request.urlopen(asked, context=trusting, timeout=120) as answer:
        assert "8 columns, 0 to confirm" in answer.read().decode()
    with pytest.raises(urllib.error.URLError):  # nobody else vouches for it
        urllib.request.urlopen(asked, context=ssl.create_default_context(), timeout=120)


class TestRooms:
    def test_a_model_too_wide_for_a_browser_is_asked_here(self, studio: Served, visitor: Visitor) -> None:
        names = [f"c{number}" for number in range(61)]
        schema = Schema.from_dict({name: ["no", "yes"] for name in names})
        graph = CausalGraph.from_edges([("c0", "c1")], nodes=names)
        frame = pl.DataFrame({name: ["no", "yes"] * 20 for name in names})
        model = synthesize(PrivateTable(frame, schema), graph, epsilon=5.0, generator="moments", seed=1)
        write_release(model, studio.home / "wide", rows=20, overwrite=True)
        status, headers, _ = visitor.send("POST", "/what-if/open", b"place=wide")
        assert status == 303
        place = headers["location"]
        assert visitor.send("GET", place)[0] == 200
        answer = visitor.send("GET", f"{place}?how=do&column=c0&value=yes")[2].decode()
        assert "They are 5,000 rows drawn from the released model" in answer
        assert 'class="chart"' in answer
        assert "no level" in visitor.send("GET", f"{place}?how=do&column=c0&value=maybe")[2].decode()
        assert visitor.send("GET", "/files/0/report.html")[0] == 200

    def test_an_audit_is_started_watched_and_read(self, studio: Served, visitor: Visitor) -> None:
        (studio.home / "mylib.py").write_text("def count(rows, rng):\n    return sum(rows)\n")
        said = urllib.parse.urlencode({"mechanism": "mylib.py:count", "epsilon": "1"}).encode()
        assert visitor.send("POST", "/audits/start", said)[0] == 303
        page = visitor.send("GET", "/audits")[2].decode()  # while it runs, or with what it found
        number = max(int(found) for found in re.findall(r'(?:data-job="|/pages/)(\d+)"', page))
        while (job := json.loads(visitor.send("GET", f"/api/jobs/{number}")[2]))["state"] == "running":
            time.sleep(0.2)
        assert job["state"] == "found", job
        assert "A violation was found." in visitor.send("GET", "/audits")[2].decode()
        status, headers, answer = visitor.send("GET", f"/pages/{number}")
        assert status == 200
        assert "sandbox" in headers["content-security-policy"]
        assert b"mylib" in answer


class TestAHostilePage:
    pytestmark = NEEDED

    @pytest.fixture
    def elsewhere(self) -> Iterator[str]:
        """Another site on the same machine: same host name, another port, which browsers call same-site."""
        import threading
        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

        class Evil(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(b"<!doctype html><title>evil</title><body></body>")

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Evil)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        server.server_close()
        thread.join()

    def test_it_can_neither_read_nor_change_anything(
        self, started: Browser, visitor: Visitor, studio: Served, elsewhere: str
    ) -> None:
        name, _, value = visitor.cookie.partition("=")
        context = started.new_context()
        context.add_cookies(
            [{"name": name, "value": value, "url": studio.origin, "sameSite": "Strict", "httpOnly": True}]
        )
        own = context.new_page()
        own.goto(f"{studio.origin}/causes")  # the custodian is at work in the next tab
        before = json.loads(visitor.send("GET", "/api/graph")[2])
        evil = context.new_page()
        evil.goto(elsewhere)
        found = evil.evaluate(HOSTILE, studio.origin)
        assert found["read"] == found["write"] == "failed"
        assert found["blind"] in ("opaque", "failed")
        assert found["script"] == "failed"
        assert "columns" not in str(found["frame"])
        evil.evaluate(FORGED, studio.origin)
        evil.get_by_text("Only pages of the studio may ask this.").wait_for()
        assert json.loads(visitor.send("GET", "/api/graph")[2]) == before
        context.close()
