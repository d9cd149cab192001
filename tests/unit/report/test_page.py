"""The page every report shares, and the report on effects."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from escudo.causal import SEM
from escudo.effects import survey
from escudo.errors import InputError
from escudo.report import effects_page, effects_picture, render, write

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

TEXT = """\
R1 ~ neg: 0.9, pos: 0.1
R3 ~ neg: 0.9, pos: 0.1
R2 := R1
D[i in 1..3] := R[i]
O := truncated_geometric(count(D[1..3] = pos), epsilon = 1)
"""


@pytest.fixture(scope="module")
def sem() -> SEM:
    return SEM.parse(TEXT)


@pytest.fixture(scope="module")
def page(sem: SEM) -> str:
    return effects_page(sem, source="survey.sem", text=TEXT)


class Outline(HTMLParser):
    """Collects headings, what the page would load, and whether tags are closed."""

    VOID = ("meta", "link", "br", "img")

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "data", "action")]
        self.scripts += tag == "script"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def outline(html: str) -> Outline:
    parser = Outline()
    parser.feed(html)
    parser.close()
    assert not parser.open
    return parser


class TestPage:
    def test_it_is_one_file_that_loads_nothing(self, page: str) -> None:
        found = outline(page)
        assert found.loads == ["data:,"]
        assert found.scripts == 0
        assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", page)
        assert "default-src 'none'" in page

    def test_text_is_escaped(self) -> None:
        html = render(
            "ledger.html.j2",
            kind="Effects",
            title="<script>alert(1)</script>",
            lead="a & b",
            terms="",
            rows=[],
            releases=[{"name": "<i>", "epsilon": "1.00", "purpose": "</td>"}],
        )
        assert outline(html).scripts == 0
        assert "&lt;script&gt;" in html
        assert "a &amp; b" in html
        assert "&lt;/td&gt;" in html

    def test_a_missing_piece_is_an_error_and_not_a_blank(self) -> None:
        from jinja2 import UndefinedError

        with pytest.raises(UndefinedError):
            render("effects.html.j2", kind="Effects", title="t", lead="l")

    def test_light_dark_print_and_phone_are_looked_after(self, page: str) -> None:
        for rule in ("prefers-color-scheme: dark", "@media print", "@media (max-width: 44rem)", "viewport"):
            assert rule in page

    def test_writing_replaces_a_report_but_nothing_else(self, page: str, tmp_path: Path) -> None:
        path = tmp_path / "out.html"
        assert write(page, path) == path
        write(page, path)
        precious = tmp_path / "precious.html"
        precious.write_text("<html>mine</html>", encoding="utf-8")
        with pytest.raises(InputError, match="not a report of escudo"):
            write(page, precious)
        assert precious.read_text(encoding="utf-8") == "<html>mine</html>"
        with pytest.raises(InputError, match="Cannot write"):
            write(page, tmp_path / "missing" / "out.html")


class TestEffectsPage:
    def test_it_says_the_finding_first(self, page: str) -> None:
        text = re.sub(r"<[^>]+>", "", page.split("</h1>")[1].split("</p>")[0]).replace("\N{NO-BREAK SPACE}", " ")
        assert "No single data point changes O by more than ε = 1.00. R1 does more, ε = 2.00" in text
        assert "D1 and, through R2, D2" in text

    def test_the_diagram_has_epsilon_on_the_guarded_arrows(self, sem: SEM) -> None:
        svg = effects_picture(sem, survey(sem))
        assert svg.count("ε = 1.00") >= 3
        assert svg.startswith("<svg")

    def test_alike_people_share_a_node_and_a_row(self) -> None:
        sem = SEM.parse(
            "R[1..50] ~ 0: 0.9, 1: 0.1\nD[i in 1..50] := R[i]\nO := truncated_geometric(sum(D[1..50]), epsilon = 1)"
        )
        page = effects_page(sem)
        assert "D1 … D50 (50 in all)" in page
        assert page.count('class="name"') < 30

    def test_what_may_be_inferred_is_told_apart_from_what_is_caused(self, page: str) -> None:
        assert "learning D1 shifts O by" in page

    def test_definitions_are_one_fold_below(self, page: str) -> None:
        assert "Definition 10" in page
        assert page.index("<details>") > page.index("What this does not say")

    def test_unprotected_models_say_so(self) -> None:
        page = effects_page(SEM.parse("R ~ 0: 0.5, 1: 0.5\nO := R"))
        assert "without any bound" in page
        assert "∞" in page

    def test_several_outputs_are_observed_together(self) -> None:
        page = effects_page(
            SEM.parse("R ~ 0: 0.5, 1: 0.5\nO := randomised_response(R, epsilon = 1)\nP := bernoulli(1/2)")
        )
        assert "What changes O and P" in page

    def test_the_same_model_gives_the_same_page(self, sem: SEM, page: str) -> None:
        assert effects_page(sem, source="survey.sem", text=TEXT) == page


@pytest.mark.chromium
@pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium binary, none is on this machine")
class TestInABrowser:
    def test_no_error_and_nothing_is_asked_for(self, page: str, tmp_path: Path) -> None:
        dom, log = browse(page, tmp_path)
        assert "What changes O, and by how much" in dom
        assert "CONSOLE" not in log

    def test_the_browser_would_tell(self, page: str, tmp_path: Path) -> None:
        # The page's own policy refuses every request, and the refusal is an error on the console.
        tampered = page.replace("</main>", '<img src="https://example.invalid/x.png"></main>')
        assert "CONSOLE" in browse(tampered, tmp_path)[1]


def browse(page: str, folder: Path) -> tuple[str, str]:
    """Return what a browser makes of a page, and what it logs."""
    assert CHROMIUM is not None
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    flags = ["headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking"]
    flags += ["disable-component-update", "disable-sync", f"user-data-dir={folder / 'profile'}"]
    flags += ["enable-logging=stderr", "dump-dom"]
    command = [CHROMIUM, *(f"--{flag}" for flag in flags), path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, done.stderr
