"""``escudo audit`` and ``escudo museum``: verdicts, exit codes, the report, and refusals."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from escudo.auditing import headers_of
from escudo.cli._audit import _live, audit, museum
from escudo.errors import InputError

MECHANISMS = """\
import numpy as np

def half_the_noise(rows, rng):
    return round((sum(rows) + rng.laplace(scale=0.5)) * 1024) / 1024

def enough_noise(rows, rng):
    return round((sum(rows) + rng.laplace(scale=1.0)) * 1024) / 1024

class Gaussian:
    def __call__(self, rows, rng):
        return round((sum(rows) + rng.normal(scale=0.5)) * 1024) / 1024

class Needy:
    def __init__(self, scale):
        self.scale = scale

def leaving(rows, rng):
    raise SystemExit(0)

def refusing(rows, rng):
    raise RuntimeError("no")

number = 3
"""

app = typer.Typer()
app.command("audit")(audit)
app.command("museum")(museum)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "audited_here.py").write_text(MECHANISMS, encoding="utf-8")
    (tmp_path / "broken.py").write_text("def f(:\n", encoding="utf-8")
    (tmp_path / "failing.py").write_text("raise RuntimeError\n", encoding="utf-8")
    (tmp_path / "pairs.json").write_text("[[[0, 0], [0, 1]]]", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False, env={"COLUMNS": "160"})


PAIRS = ("--pairs", "pairs.json", "--seed", 1)


class TestAudit:
    def test_a_violation_is_said_and_ends_with_five(self, folder: Path) -> None:
        done = run("audit", "audited_here.py:half_the_noise", "--epsilon", 1, *PAIRS, "--max-runs", 5000)
        assert done.exit_code == 5
        assert done.stdout.startswith("VIOLATED: the claim ε ≤ 1.00 is rejected")
        for label in ("inputs", "event", "happened", "second opinion", "took"):
            assert f"\n  {label} " in done.stdout
        assert "[0, 0]" in done.stdout
        assert "[0, 1]" in done.stdout

    def test_no_violation_is_never_called_private(self, folder: Path) -> None:
        done = run("audit", "audited_here.py:enough_noise", "--epsilon", 1, *PAIRS, "--max-runs", 1000)
        assert done.exit_code == 0
        assert done.stdout.startswith("No violation found; ε ≥ 0.")
        assert "is private" not in done.stdout

    @pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
    def test_without_inputs_lists_of_zeros_and_ones_are_tried(self, folder: Path, relation: str) -> None:
        done = run("audit", "audited_here.py:half_the_noise", "--epsilon", 1, "--relation", relation, "--seed", 1)
        assert done.exit_code == 5
        assert "lists of zeros and ones" in done.stdout

    def test_pairs_are_made_from_a_schema(self, folder: Path) -> None:
        (folder / "s.toml").write_text('[columns.age]\ntype = "numeric"\nlower = 0\nupper = 99\n')
        (folder / "counts.py").write_text(
            "def rows(frame, rng):\n    return round(len(frame) + 0.1 * rng.laplace(), 3)\n"
            "def over_50(frame, rng):\n    return round(float((frame['age'] > 50).sum()) + 0.2 * rng.laplace(), 3)\n"
        )
        options = ("--epsilon", 1, "--schema", "s.toml", "--seed", 1, "--max-runs", 3000)
        assert run("audit", "counts.py:over_50", *options).exit_code == 5
        assert run("audit", "counts.py:rows", *options).exit_code == 0  # one row replaced leaves their number

    def test_modules_in_this_folder_and_classes_are_found(self, folder: Path) -> None:
        done = run("audit", "audited_here:Gaussian", "--mu", 1, *PAIRS, "--max-runs", 3000)
        assert done.exit_code == 5
        assert "μ" in done.stdout

    def test_json_has_the_verdict_and_the_evidence(self, folder: Path) -> None:
        done = run("audit", "audited_here.py:half_the_noise", "--epsilon", 1, *PAIRS, "--max-runs", 5000, "--json")
        data = json.loads(done.stdout)
        assert done.exit_code == 5
        assert data["violated"] is True
        assert data["mechanism"] == "audited_here.py:half_the_noise"
        assert data["report"] is None
        assert data["history"]["runs"][-1] == data["runs"]

    def test_a_seed_repeats_the_audit(self, folder: Path) -> None:
        found = []
        for _ in range(2):
            done = run("audit", "audited_here.py:enough_noise", "--epsilon", 1, *PAIRS, "--max-runs", 500, "--json")
            data = json.loads(done.stdout)
            found.append((data["epsilon_lower"], data["history"]))
        assert found[0] == found[1]

    def test_the_report_is_written(self, folder: Path) -> None:
        done = run(
            "audit", "audited_here.py:half_the_noise", "--epsilon", 1, *PAIRS, "--max-runs", 5000, "--out", "audit.html"
        )
        assert "report" in done.stdout
        page = (folder / "audit.html").read_text(encoding="utf-8")
        assert "The mechanism breaks its promise" in page
        assert "audited_here.py:half_the_noise" in page

    def test_a_file_that_is_no_report_is_not_replaced(self, folder: Path) -> None:
        (folder / "mine.html").write_text("mine")
        with pytest.raises(InputError, match="not a report"):
            run("audit", "audited_here.py:enough_noise", "--epsilon", 1, *PAIRS, "--max-runs", 50, "--out", "mine.html")

    def test_a_log_is_resumed(self, folder: Path) -> None:
        args = ("audit", "audited_here.py:enough_noise", "--epsilon", 1, *PAIRS, "--log", "log", "--json")
        first = json.loads(run(*args, "--max-runs", 300).stdout)
        second = json.loads(run(*args, "--max-runs", 600).stdout)
        assert (first["runs"], second["runs"]) == (300, 600)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--epsilon", 1), "name what to audit"),
            (("audited_here:enough_noise", "--url", "http://127.0.0.1", "--epsilon", 1), "not both"),
            (("audited_here:enough_noise",), "one of --epsilon"),
            (("audited_here:enough_noise", "--epsilon", 1, "--mu", 1), "one of --epsilon"),
            (("audited_here:enough_noise", "--epsilon", 1, "--pairs", "p", "--schema", "s"), "not both"),
            (("audited_here", "--epsilon", 1), "MODULE:FUNCTION"),
            (("not_there:f", "--epsilon", 1), "cannot import 'not_there'"),
            (("not_there.py:f", "--epsilon", 1), "no file"),
            (("broken.py:f", "--epsilon", 1), "importing 'broken.py' failed with a SyntaxError"),
            (("failing.py:f", "--epsilon", 1), "importing 'failing.py' failed with a RuntimeError"),
            (("failing:f", "--epsilon", 1), "importing 'failing' failed with a RuntimeError"),
            (("audited_here.py:Needy", "--epsilon", 1), "'Needy' is a class that cannot be made without arguments"),
            (("audited_here.py:enough", "--epsilon", 1), "Did you mean 'enough_noise'"),
            (("audited_here.py:number", "--epsilon", 1, "--pairs", "pairs.json"), "callable"),
            (("audited_here.py:enough_noise", "--epsilon", 1, "--pairs", "nowhere.json"), "cannot read"),
            (("audited_here.py:enough_noise", "--epsilon", 1, "--pairs", "audited_here.py"), "not JSON"),
            (("audited_here.py:enough_noise", "--epsilon", 1, "--header", "a: b"), "go with --url"),
            (("audited_here.py:enough_noise", "--epsilon", 1, "--timeout", 3), "go with --url"),
            (("audited_here.py:enough_noise", "--epsilon", 1, "--largest-answer", 9), "go with --url"),
            (("--url", "http://127.0.0.1", "--epsilon", 1, "--header", "ab"), "Name: value"),
        ],
        ids=lambda value: "" if isinstance(value, str) else "-".join(map(str, value)),
    )
    def test_bad_arguments_are_refused_in_words(self, folder: Path, arguments: tuple[Any, ...], message: str) -> None:
        with pytest.raises(InputError, match=message):
            run("audit", *arguments)

    @pytest.mark.parametrize("text", ["{}", "[]", "[[1, 2, 3]]", "[1]"], ids=["object", "empty", "triple", "number"])
    def test_pairs_that_are_none_are_refused(self, folder: Path, text: str) -> None:
        (folder / "pairs.json").write_text(text)
        with pytest.raises(InputError, match="list of pairs"):
            run("audit", "audited_here.py:enough_noise", "--epsilon", 1, *PAIRS)

    def test_progress_is_silent_when_piped(self) -> None:
        with _live(0.95) as show:
            assert show is None


class TestService:
    @pytest.fixture
    def url(self) -> Iterator[str]:
        noise = np.random.default_rng(1)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["dataset"]
                refused = self.headers["X-Key"] != "k"
                data = b"no" if refused else json.dumps(sum(rows) + noise.laplace(scale=0.1)).encode()
                self.send_response(403 if refused else 200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                return None

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()
        server.server_close()

    def test_a_service_is_audited_and_its_cost_is_said(self, folder: Path, url: str) -> None:
        done = run(
            "audit", "--url", url, "--epsilon", 1, *PAIRS, "--max-runs", 400, "--header", "X-Key: k", "--out", "a.html"
        )
        assert done.exit_code == 5
        assert "calls were made: if one call is ε-private" in done.stdout
        assert "calls were made" in (folder / "a.html").read_text(encoding="utf-8")


class TestMuseum:
    def test_the_list_says_what_is_wrong(self) -> None:
        done = run("museum", "--list")
        assert done.exit_code == 0
        assert "svt-5" in done.stdout
        rows = json.loads(run("museum", "--list", "--json").stdout)["exhibits"]
        assert len(rows) >= 20
        assert all(row["bug"] and row["source"] for row in rows)

    def test_broken_pieces_are_caught_and_twins_left_alone(self) -> None:
        done = run("museum", "svt-5", "nan", "--seed", 1)
        assert done.exit_code == 0
        assert done.stdout.count("caught") == 3  # two rows and the sum
        assert done.stdout.count("left alone") == 2
        assert "2 of 2 broken mechanisms caught, 0 of 2 correct twins accused" in done.stdout

    def test_json_is_plain(self) -> None:
        data = json.loads(run("museum", "nan", "--seed", 1, "--json").stdout)
        assert data["unexpected"] == 0
        assert [row["broken"] for row in data["findings"]] == [True, False]
        assert data["findings"][0]["true_epsilon"] == "inf"

    def test_anything_unexpected_ends_with_five(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import dataclasses

        from escudo.auditing.museum import _exhibits

        room = _exhibits.exhibit("nan")
        swapped = dataclasses.replace(room, mechanism=room.twin, twin=room.mechanism, runs=300)
        monkeypatch.setattr("escudo.auditing.museum.exhibits", lambda: (swapped,))
        done = run("museum", "--seed", 1)
        assert done.exit_code == 5
        assert "MISSED" in done.stdout
        assert "ACCUSED" in done.stdout

    def test_unknown_names_are_refused(self) -> None:
        with pytest.raises(InputError, match="the museum has no"):
            run("museum", "mona-lisa")


def test_a_report_that_cannot_be_written_is_refused_before_the_first_run(folder: Path) -> None:
    (folder / "mine.html").write_text("my own page", encoding="utf-8")
    with pytest.raises(InputError, match="not a report"):
        run("audit", "audited_here:half_the_noise", "--epsilon", 1, *PAIRS, "--report", "mine.html", "--log", "trials")
    assert not (folder / "trials").exists()


def test_a_verdict_is_shown_although_its_report_cannot_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import escudo.report

    def full(html: str, path: Path) -> Path:
        raise InputError("the disk is full.")

    monkeypatch.setattr(escudo.report, "write", full)
    result = CliRunner().invoke(
        app, ["audit", "audited_here:half_the_noise", "--epsilon", "1", *map(str, PAIRS), "--report", "new.html"]
    )
    assert "VIOLATED" in result.output
    assert isinstance(result.exception, InputError)


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_an_audit_in_which_every_run_failed_does_not_pass(folder: Path, as_json: bool) -> None:
    with pytest.raises(InputError, match="Nothing was audited: all 50 runs"):
        run("audit", "audited_here:refusing", "--epsilon", 1, "--max-runs", 50, *PAIRS, *["--json"] * as_json)


def test_a_mechanism_that_ends_the_program_does_not_pass(folder: Path) -> None:
    (folder / "script.py").write_text("raise SystemExit(0)", encoding="utf-8")
    for name in ("audited_here:leaving", "script.py:main"):
        with pytest.raises(InputError, match="ended the program"):
            run("audit", name, "--epsilon", 1, *PAIRS)


def test_a_key_in_the_address_of_a_service_is_shown_nowhere(folder: Path) -> None:
    from escudo.cli._audit import AuditOptions, _target

    assert _target(AuditOptions(url="http://localhost/count?key=secret"))[1] == "http://localhost/count"


SUITE = """\
confidence = 0.99
max_runs = 3000
seed = 1

[[audit]]
name = "half the noise"
mechanism = "audited_here.py:half_the_noise"
epsilon = 1.0
pairs = "pairs.json"

[[audit]]
name = "enough noise"
mechanism = "audited_here.py:enough_noise"
epsilon = 1.0
pairs = [[[0, 0], [0, 1]]]
max_runs = 500
"""


class TestSuites:
    def test_a_suite_ends_with_five_and_writes_a_page_and_junit(self, folder: Path) -> None:
        (folder / "suite.toml").write_text(SUITE)
        done = run("audit", "suite.toml", "--report", "page.html", "--junit", "out.xml")
        assert done.exit_code == 5
        assert "1 of 2 claims rejected at 99 % confidence over all of them." in done.stdout
        page = (folder / "page.html").read_text(encoding="utf-8")
        assert "A promise is broken" in page
        assert "half the noise" in page
        cases = ElementTree.fromstring((folder / "out.xml").read_text(encoding="utf-8")).findall(".//testcase")
        assert [case.get("name") for case in cases] == ["half the noise", "enough noise"]
        assert ["VIOLATED" in (case.findtext("failure") or "") for case in cases] == [True, False]

    def test_json_and_changed_terms(self, folder: Path) -> None:
        (folder / "suite.toml").write_text(SUITE)
        done = run("audit", "suite.toml", "--max-runs", 100, "--confidence", 0.9, "--json")
        data = json.loads(done.stdout)
        assert data["confidence"] == 0.9
        assert [one["audit"]["confidence"] for one in data["audits"]] == [pytest.approx(0.95)] * 2
        assert all(one["audit"]["runs"] <= 100 for one in data["audits"])

    def test_what_cannot_be_audited_is_an_error_of_its_own(self, folder: Path) -> None:
        text = '[[audit]]\nname = "gone"\nmechanism = "nowhere.py:f"\nepsilon = 1.0\n'
        (folder / "suite.toml").write_text(
            text + text.replace("gone", "fails").replace("nowhere.py:f", "audited_here:refusing")
        )
        with pytest.raises(InputError, match=r"0 of 2 claims rejected.*2 could not be audited"):
            run("audit", "suite.toml", "--junit", "out.xml")
        root = ElementTree.fromstring((folder / "out.xml").read_text(encoding="utf-8"))
        assert root.get("errors") == "2"
        assert "there is no file" in (root.findtext(".//error") or "")

    @pytest.mark.parametrize(
        ("text", "options", "message"),
        [
            ("nonsense", (), "not TOML"),
            ("seed = 1\n", (), r"at least one \[\[audit\]\]"),
            (SUITE.replace('"enough noise"', '"half the noise"'), (), "name of its own"),
            (SUITE.replace("max_runs = 500", "max_run = 500"), (), "unknown key 'max_run'.*max_runs"),
            ("colour = 1\n" + SUITE, (), "unknown key 'colour'"),
            (SUITE, ("--epsilon", 1), "a suite says itself"),
            (SUITE, ("--run-on",), "a suite says itself"),
        ],
        ids=["no toml", "empty", "one name twice", "a key of an audit", "a key", "a claim", "running on"],
    )
    def test_what_is_not_understood_is_refused(
        self, folder: Path, text: str, options: tuple[Any, ...], message: str
    ) -> None:
        (folder / "suite.toml").write_text(text)
        with pytest.raises(InputError, match=message):
            run("audit", "suite.toml", *options)

    def test_junit_goes_with_a_suite(self, folder: Path) -> None:
        with pytest.raises(InputError, match="--junit goes with a suite"):
            run("audit", "audited_here.py:enough_noise", "--epsilon", 1, "--junit", "out.xml")


class TestHowBad:
    def test_running_on_says_how_bad_it_is(self, folder: Path) -> None:
        options = ("--epsilon", 0.5, *PAIRS, "--max-runs", 4000, "--run-on")
        done = run("audit", "audited_here.py:half_the_noise", *options, "--json")
        data = json.loads(done.stdout)
        assert done.exit_code == 5
        assert data["runs"] == 4000
        deltas, bounds = zip(*data["curve"], strict=True)
        assert deltas == (0.0, 1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.1)
        assert 1 < bounds[0] <= 2
        assert all(bound <= 2 for bound in bounds)
        assert list(bounds) == sorted(bounds, reverse=True)
        assert data["epsilon_lower"] <= data["plausible"]
        shown = run("audit", "audited_here.py:half_the_noise", *options, "--report", "page.html").stdout
        assert "(all at once with 95 % confidence)" in shown
        assert "no guarantee, others may show more" in shown
        assert "How bad is it?" in (folder / "page.html").read_text(encoding="utf-8")


def test_a_header_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_KEY", "s3cret")
    assert headers_of({"Authorization": "env:SERVICE_KEY", "X-Plain": "yes"}) == {
        "Authorization": "s3cret",
        "X-Plain": "yes",
    }
    with pytest.raises(InputError, match="the environment, which has no 'OTHER'"):
        headers_of({"Authorization": "env:OTHER"})
