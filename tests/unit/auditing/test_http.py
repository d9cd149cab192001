"""Services behind HTTP, on this machine only: what counts as an output, when to wait, and what never counts."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from escudo.auditing import Uncounted, audit
from escudo.auditing._http import HttpTarget
from escudo.errors import InputError
from escudo.privacy import Guarantee

Answer = tuple[int, Any, dict[str, str]]
RNG = np.random.default_rng(0)


def timer(sleep: Callable[[float], None] = time.sleep, now: Callable[[], float] = time.perf_counter) -> Any:
    """Return a clock that waits and tells the time as a test says."""
    return SimpleNamespace(sleep=sleep, perf_counter=now)


class Service:
    """A service on the loopback interface whose answers a test decides."""

    def __init__(self) -> None:
        self.reply: Callable[[Any], Answer] = lambda dataset: (200, 0, {})
        self.requests: list[Any] = []
        self.headers: list[dict[str, str]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.requests.append(body)
                service.headers.append(dict(self.headers))
                status, answer, headers = service.reply(body["dataset"])
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:  # where a redirect would lead
                service.requests.append("GET")
                self.send_error(404)

            def log_message(self, *_: Any) -> None:
                return None

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    running = Service()
    yield running
    running.close()


def fresh(draw: Callable[[Any], float]) -> Callable[[Any], Answer]:
    return lambda dataset: (200, draw(dataset), {})


class TestOutputs:
    def test_an_output_is_the_answer_with_its_status_and_its_time(self, service: Service) -> None:
        service.reply = fresh(lambda dataset: sum(dataset) + 0.5)
        output = HttpTarget(service.url)([1, 2], RNG)
        assert (output["value"], output["status"]) == (3.5, 200)
        assert 0 < output["seconds"] < 30
        assert service.requests == [{"dataset": [1, 2]}]

    @pytest.mark.parametrize(("status", "body"), [(400, "bad"), (404, ""), (500, {"error": "x"}), (503, "busy")])
    def test_errors_are_outputs_and_are_not_asked_again(self, service: Service, status: int, body: Any) -> None:
        service.reply = lambda dataset: (status, body, {})
        output = HttpTarget(service.url)([1], RNG)
        assert (output["status"], output["value"]) == (status, body)
        assert len(service.requests) == 1

    def test_text_that_is_no_json_is_an_output_as_it_is(self, service: Service) -> None:
        service.reply = lambda dataset: (200, b"about 3", {})
        assert HttpTarget(service.url)([1], RNG)["value"] == "about 3"

    def test_a_redirect_is_an_output_and_is_not_followed(self, service: Service) -> None:
        service.reply = lambda dataset: (302, "", {"Location": service.url + "elsewhere"})
        assert HttpTarget(service.url)([1], RNG)["status"] == 302
        assert service.requests == [{"dataset": [1]}]

    def test_no_answer_at_all_is_an_output_and_the_next_call_waits(self, service: Service) -> None:
        waits: list[float] = []
        target = HttpTarget(service.url, timeout=0.5, clock=timer(waits.append, lambda: 7.0))
        assert target([1], RNG)["status"] == 200
        service.server.socket.close()  # nobody listens any more
        outputs = [target([1], RNG) for _ in range(8)]
        assert [output["status"] for output in outputs] == [0] * 8
        assert target.calls == 9
        assert waits == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])

    def test_an_audit_of_a_service_that_nobody_answers_for_ends_at_once(self, service: Service) -> None:
        service.server.socket.close()
        target = HttpTarget(service.url + "?key=secret", clock=timer(lambda seconds: None), timeout=0.5)
        with pytest.raises(InputError, match="nobody answers at") as error:
            audit(target, claim=Guarantee(epsilon=1.0), pairs=[([0], [1])], max_runs=50, seed=1)
        assert "secret" not in str(error.value)

    def test_an_error_page_that_is_cut_short_still_has_its_status(self, service: Service) -> None:
        service.reply = lambda dataset: (500, b"x", {"Content-Length": "1000"})
        assert HttpTarget(service.url, timeout=0.5)([1], RNG)["status"] == 500

    def test_numpy_datasets_and_own_encodings_are_sent(self, service: Service) -> None:
        HttpTarget(service.url)(np.array([1.0, 2.0]), RNG)
        HttpTarget(service.url, encode=lambda rows: {"dataset": len(rows), "q": 1})("abc", RNG)
        assert service.requests == [{"dataset": [1.0, 2.0]}, {"dataset": 3, "q": 1}]

    def test_headers_are_sent_and_caches_are_asked_to_stay_out(self, service: Service) -> None:
        HttpTarget(service.url, headers={"Authorization": "Bearer k"})([1], RNG)
        assert service.headers[0]["Authorization"] == "Bearer k"
        assert service.headers[0]["Cache-Control"] == "no-store"

    def test_a_dataset_that_json_cannot_hold_is_refused(self, service: Service) -> None:
        with pytest.raises(InputError, match="plain JSON"):
            HttpTarget(service.url)([object()], RNG)

    def test_only_http_addresses_are_taken(self) -> None:
        with pytest.raises(InputError, match="http://"):
            HttpTarget("file:///etc/passwd")

    def test_a_password_in_the_address_is_refused_and_not_repeated(self) -> None:
        with pytest.raises(InputError, match="in a header") as error:
            HttpTarget("http://ada:lovelace@localhost/count")
        assert "lovelace" not in str(error.value)


class TestRateLimits:
    @pytest.mark.parametrize(
        ("status", "header", "wait"),
        [(429, {"Retry-After": "7"}, 7.0), (429, {}, 1.0), (503, {"Retry-After": "3"}, 3.0)],
        ids=["429-with-time", "429-without", "503-with-time"],
    )
    def test_a_refusal_is_an_output_and_the_service_is_given_the_time_it_asks_for(
        self, service: Service, status: int, header: dict[str, str], wait: float
    ) -> None:
        replies = iter([(status, "", header), (200, 4.25, {})])
        service.reply = lambda dataset: next(replies)
        waits: list[float] = []
        target = HttpTarget(service.url, clock=timer(waits.append, lambda: 7.0))
        assert target([1], RNG)["status"] == status
        assert target([1], RNG)["value"] == 4.25
        assert waits == [wait]
        assert target.calls == 2

    def test_a_date_to_come_back_is_understood(self, service: Service) -> None:
        service.reply = lambda dataset: (429, "", {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})
        waits: list[float] = []
        target = HttpTarget(service.url, clock=timer(waits.append, lambda: 7.0))
        target([1], RNG)
        target([1], RNG)
        assert waits == []

    def test_a_service_that_keeps_refusing_is_asked_less_and_less_often(self, service: Service) -> None:
        service.reply = lambda dataset: (429, "", {})
        waits: list[float] = []
        now = [0.0]

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            now[0] += seconds

        target = HttpTarget(service.url, clock=timer(sleep, lambda: now[0]))
        assert [target([1], RNG)["status"] for _ in range(4)] == [429] * 4
        assert waits == [1.0, 2.0, 4.0]

    def test_a_service_that_refuses_every_call_from_the_first_on_ends_the_audit(self, service: Service) -> None:
        service.reply = lambda dataset: (429, "", {"Retry-After": "0"})
        target = HttpTarget(service.url + "?key=secret", clock=timer(lambda seconds: None))
        with pytest.raises(InputError, match="refused all of 8 calls") as error:
            audit(target, claim=Guarantee(epsilon=1.0), pairs=[([0], [1])], max_runs=10_000, seed=1)
        assert "secret" not in str(error.value)
        assert target.calls == 8

    def test_calls_are_spaced_out(self, service: Service) -> None:
        waits: list[float] = []
        target = HttpTarget(service.url, calls_per_second=0.01, clock=timer(waits.append))
        for _ in range(3):
            target([1], RNG)
        assert len(waits) == 2
        assert all(90 < wait <= 200 for wait in waits)


def sticky(scale: float) -> Callable[[Any], Answer]:
    """Return noise that is drawn once for each question, whatever the order of its records."""
    return fresh(lambda rows: sum(rows) + float(np.random.default_rng([7, len(rows), sum(rows)]).laplace(0, scale)))


class TestRepeats:
    @pytest.mark.parametrize("delta", [0.0, 1e-5])
    def test_a_service_without_noise_is_caught_within_100_calls(self, service: Service, delta: float) -> None:
        service.reply = fresh(sum)
        target = HttpTarget(service.url)
        claim = Guarantee(epsilon=1.0, delta=delta)
        found = audit(target, claim=claim, pairs=[([0, 0, 0], [0, 0, 1])], seed=1)
        assert found.violated
        assert target.calls <= 100
        assert any("each asked once" in note for note in found.notes)

    def test_answers_that_are_kept_are_no_violation(self, service: Service) -> None:
        service.reply = sticky(1.0)
        found = audit(
            HttpTarget(service.url), claim=Guarantee(epsilon=1.0), pairs=[([0, 1], [1, 1])], max_runs=120, seed=1
        )
        assert not found.violated
        assert any("holds if noise is drawn anew for every question" in note for note in found.notes)

    def test_too_little_noise_is_seen_although_answers_are_kept(self, service: Service) -> None:
        service.reply = sticky(0.1)
        found = audit(
            HttpTarget(service.url), claim=Guarantee(epsilon=1.0), pairs=[([0, 1], [1, 1])], max_runs=300, seed=1
        )
        assert found.violated

    def test_a_service_that_always_fails_is_not_asked_for_ever(self, service: Service) -> None:
        service.reply = lambda dataset: (401, {"error": "who are you?"}, {})
        target = HttpTarget(service.url)
        found = audit(target, claim=Guarantee(epsilon=1.0), pairs=[([0], [1])], seed=1)
        assert found.nothing_audited
        assert found.stopped == "failed"
        assert target.calls <= 150
        assert any("status 401" in note for note in found.notes)

    def test_a_service_that_answers_from_a_cache_by_its_own_account_is_not_asked_for_ever(
        self, service: Service
    ) -> None:
        service.reply = lambda dataset: (200, 1.5, {"Age": "12"})
        target = HttpTarget(service.url)
        assert audit(target, claim=Guarantee(epsilon=1.0), pairs=[([0], [1])], seed=1).nothing_audited
        assert target.cached == target.calls <= 150

    @pytest.mark.parametrize("header", [{"Age": "12"}, {"X-Cache": "HIT from edge"}], ids=["age", "x-cache"])
    def test_an_answer_that_says_it_is_cached_does_not_count(self, service: Service, header: dict[str, str]) -> None:
        service.reply = lambda dataset: (200, 1.5, header)
        target = HttpTarget(service.url)
        with pytest.raises(Uncounted):
            target([1], RNG)
        assert "by their own account" in " ".join(target.notes)

    def test_the_cost_of_the_calls_is_said(self, service: Service) -> None:
        target = HttpTarget(service.url)
        target([1], RNG)
        target([2], RNG)
        assert target.notes == (
            "2 calls were made: if one call is ε-private, all of them together are only 2·ε-private.",
        )


class TestAudits:
    def test_a_broken_service_is_caught(self, service: Service) -> None:
        noise = np.random.default_rng(1)
        service.reply = fresh(lambda dataset: sum(dataset) + float(noise.laplace(scale=0.2)))  # claims scale 1
        found = audit(HttpTarget(service.url), claim=Guarantee(epsilon=1.0), pairs=[([0], [1])], max_runs=600, seed=1)
        assert found.violated

    def test_an_error_that_depends_on_the_data_is_caught(self, service: Service) -> None:
        noise = np.random.default_rng(1)
        service.reply = lambda dataset: (500, "", {}) if None in dataset else (200, float(noise.laplace()), {})
        found = audit(
            HttpTarget(service.url), claim=Guarantee(epsilon=1.0), pairs=[([0.5], [None])], max_runs=300, seed=1
        )
        assert found.violated

    def test_a_private_service_whose_refusals_are_private_too_is_not_accused(self, service: Service) -> None:
        """Each call is randomised response at ε = 1; what several calls say together would be more than that."""
        noise = np.random.default_rng(0)

        def reply(dataset: Any) -> Answer:
            refused = noise.random() < 1 / (1 + np.exp(-1.0 if dataset[0] else 1.0))
            return (429, "", {"Retry-After": "0"}) if refused else (200, float(noise.random()), {})

        service.reply = reply
        target = HttpTarget(service.url)
        found = audit(target, claim=Guarantee(epsilon=1.0), pairs=[([0], [1])], max_runs=1200, seed=1)
        assert not found.violated
        assert found.epsilon_lower > 0.5  # the refusals were looked at

    def test_an_answer_whose_time_depends_on_the_data_is_caught(self, service: Service) -> None:
        noise, now = np.random.default_rng(1), [0.0]

        def slow(dataset: Any) -> Answer:
            now[0] += 0.010 + 0.005 * sum(dataset) + 0.001 * noise.random()
            return 200, int(noise.integers(5)), {}

        service.reply = slow
        target = HttpTarget(service.url, clock=timer(now=lambda: now[0]))
        found = audit(target, claim=Guarantee(epsilon=1.0), pairs=[([0], [1])], max_runs=400, seed=1)
        assert found.violated

    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_calls_can_be_made_several_at_a_time(self, service: Service, delta: float) -> None:
        """The first answer waits for another call: one at a time, it would come too late."""
        noise, second, calls = np.random.default_rng(1), threading.Event(), []

        def reply(dataset: Any) -> Answer:
            calls.append(dataset)
            if len(calls) > 1:
                second.set()
            return 200 if second.wait(timeout=25) else 504, sum(dataset) + float(noise.laplace(scale=0.2)), {}

        service.reply = reply
        target, claim = HttpTarget(service.url), Guarantee(epsilon=1.0, delta=delta)
        found = audit(target, claim=claim, pairs=[([0], [1])], max_runs=600, seed=1, workers=2)
        assert found.violated
        assert not any("504" in note for note in found.notes)


@contextmanager
def raw_service(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A service of one call that says what it likes, and when; it must be done when the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            line, _ = listening.accept()
            with line:
                line.recv(65_536)
                with suppress(OSError):  # nobody listens any more
                    answer(line)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            thread.join()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


class TestLimits:
    """A service that will not end is ended: in time, in size and in depth."""

    @pytest.mark.parametrize("start", [HEAD + b"\r\n", HEAD + b"Content-Length: 600\r\n\r\n", b"HTTP/1.1 200 OK"])
    def test_a_service_that_drips_is_no_answer_when_its_time_is_over(self, start: bytes) -> None:
        dripped = 0

        def drip(line: socket.socket) -> None:
            nonlocal dripped
            line.sendall(start)
            never = threading.Event()
            while dripped < 600:  # far beyond the deadline, but not for ever where there is none
                never.wait(0.01)
                line.sendall(b"7")
                dripped += 1

        with raw_service(drip) as url:
            output = HttpTarget(url, timeout=0.4)([1], RNG)
        assert (output["status"], output["value"]) == (0, "")
        assert dripped < 600

    def test_an_endless_answer_is_read_up_to_its_largest_size_and_the_output_says_so(self) -> None:
        sent = 0

        def pour(line: socket.socket) -> None:
            nonlocal sent
            line.sendall(HEAD + b"\r\n")
            while sent < 2**28:
                line.sendall(b"1" * 2**16)
                sent += 2**16

        with raw_service(pour) as url:
            output = HttpTarget(url, largest_answer=1000)([1], RNG)
        assert (output["status"], output["value"]) == (200, "(an answer of more than 1,000 bytes)")
        assert sent < 2**28

    @pytest.mark.parametrize("size", [999, 1000, 1001])
    def test_an_answer_of_just_the_largest_size_is_read_whole(self, service: Service, size: int) -> None:
        service.reply = lambda dataset: (200, b"x" * size, {})
        value = HttpTarget(service.url, largest_answer=1000)([1], RNG)["value"]
        assert value == ("x" * size if size <= 1000 else "(an answer of more than 1,000 bytes)")

    @pytest.mark.parametrize("chunks", [b"2\r\n12\r\n0\r\n\r\n", b"2\r\n12\r\n"], ids=["whole", "cut short"])
    def test_chunks_are_put_together_and_a_missing_end_is_no_answer(self, chunks: bytes) -> None:
        with raw_service(lambda line: line.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)) as url:
            output = HttpTarget(url)([1], RNG)
        assert (output["status"], output["value"]) == ((200, 12) if chunks.endswith(b"0\r\n\r\n") else (0, ""))

    @pytest.mark.parametrize("depth", [50, 51, 900, 200_000])
    def test_an_answer_nested_too_deep_is_text(self, service: Service, depth: int) -> None:
        body = b"[" * depth + b"]" * depth
        service.reply = lambda dataset: (200, body, {})
        output = HttpTarget(service.url)([1], RNG)
        assert isinstance(output["value"], str) == (depth > 50)
        found = audit(HttpTarget(service.url), claim=Guarantee(epsilon=1.0), pairs=[([0], [1])], max_runs=4, seed=1)
        assert not found.violated

    @pytest.mark.parametrize(
        "url",
        [
            "ftp://localhost/",
            "http:///x",
            "http://localhost:x/",
            "https://",
            "http://local host/",
            "http://localhost/ü",
        ],
    )
    def test_addresses_that_name_no_http_service_are_refused(self, url: str) -> None:
        with pytest.raises(InputError, match="a service's address must"):
            HttpTarget(url)

    @pytest.mark.parametrize("options", [{"timeout": 0}, {"timeout": float("inf")}, {"largest_answer": 0}])
    def test_limits_cannot_be_taken_off(self, options: dict[str, Any]) -> None:
        with pytest.raises(InputError, match=next(iter(options))):
            HttpTarget("http://localhost/", **options)


DOCUMENTED = Path(__file__).parents[3] / "docs" / "how-to" / "services.md"
LANGUAGES = {"javascript": ("node", "service.js"), "java": ("java", "Service.java")}  # Python's runs with the page


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_documented_service_keeps_the_contract(language: str, tmp_path: Path) -> None:
    program, name = LANGUAGES[language]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on this machine")
    [code] = re.findall(
        rf"^```{language}\n(.*?)^```$", DOCUMENTED.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    (tmp_path / name).write_text(code, encoding="utf-8")
    with subprocess.Popen([program, name], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            url = f"http://127.0.0.1:{int(running.stdout.readline())}/"
            target, claim = HttpTarget(url), Guarantee(epsilon=1.0, relation="add_remove")
            found = audit(target, claim=claim, pairs=[([1, 0], [1, 0, 1])], max_runs=60, seed=1, progress=False)
            assert (found.answers, found.violated) == (60, False)
        finally:
            running.kill()
