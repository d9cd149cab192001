"""``escudo effects`` and ``escudo definitions``: what they print, what they write, how they refuse."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from escudo.cli._effects import definitions, effects
from escudo.errors import InputError, ParseError
from escudo.privacy import Ledger, PureEvent, ZCDPEvent

SURVEY = """\
# Ada's status affects Byron's
R1 ~ neg: 0.9, pos: 0.1
R3 ~ neg: 0.9, pos: 0.1
R2 := R1
D1 := R1
D2 := R2
D3 := R3
O  := truncated_geometric(count(D1, D2, D3 = pos), epsilon = 1)
"""

app = typer.Typer()
app.command("effects")(effects)
app.command("definitions")(definitions)


@pytest.fixture
def survey(tmp_path: Path) -> Path:
    path = tmp_path / "survey.sem"
    path.write_text(SURVEY, encoding="utf-8")
    return path


def run(*arguments: object) -> str:
    result = CliRunner().invoke(
        app, [str(argument) for argument in arguments], catch_exceptions=False, env={"COLUMNS": "160"}
    )
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(text: str) -> dict[str, list[str]]:
    return {line.split("  ")[0].strip(): [cell for cell in line.split("  ") if cell] for line in text.splitlines()}


class TestEffects:
    def test_all_effects_by_default(self, survey: Path) -> None:
        out = run("effects", survey)
        found = {key: cells[1].strip() for key, cells in rows(out).items() if len(cells) > 3}
        assert found == {
            "effect on O": "ε",
            "R1": "2.00",
            "R2": "1.00",
            "R3": "1.00",
            "D1, D2, D3": "1.00",
        }
        assert "D1 and, through R2, D2" in out
        assert "R1 and R2 together   2.00 jointly, 3.00 in total" in out

    def test_json_says_everything(self, survey: Path) -> None:
        data = json.loads(run("effects", survey, "--json"))
        assert data["outputs"] == ["O"]
        by_name = {row["names"][0]: row["effect"]["epsilon"] for row in data["effects"]}
        assert by_name == pytest.approx({"R1": 2.0, "R2": 1.0, "R3": 1.0, "D1": 1.0})
        assert data["together"][0]["total"]["epsilon"] == pytest.approx(3.0)
        assert data["report"] is None

    def test_infinity_is_text_in_json_and_a_sign_for_people(self, survey: Path) -> None:
        data = json.loads(run("effects", survey, "--of", "R1", "--on", "R2", "--json"))
        assert data["effects"][0]["effect"]["epsilon"] == "inf"
        assert "∞" in run("effects", survey, "--of", "R1", "--on", "R2")

    def test_groups_direct_effects_and_paths(self, survey: Path) -> None:
        together = json.loads(run("effects", survey, "--of", "R1,R2", "--joint", "--json"))["effects"]
        assert [(one["kind"], one["epsilon"]) for one in together] == [
            ("effect", pytest.approx(2.0)),
            ("total effect", pytest.approx(3.0)),
        ]
        assert "joint effect" in run("effects", survey, "--of", "R1,R2", "--joint")
        (direct,) = json.loads(run("effects", survey, "--of", "R1", "--direct", "R2", "--json"))["effects"]
        assert (direct["kind"], direct["epsilon"]) == ("direct effect", pytest.approx(1.0))
        (path,) = json.loads(run("effects", survey, "--of", "R1", "--through", "D1,R2", "--json"))["effects"]
        assert (path["kind"], path["epsilon"]) == ("path effect", pytest.approx(2.0))

    def test_the_models_own_population_on_request(self, survey: Path) -> None:
        data = json.loads(run("effects", survey, "--own", "--json"))
        assert {row["effect"]["population"] for row in data["effects"]} == {"the model's own population"}

    def test_a_report_is_written_and_replaced_but_no_other_file(self, survey: Path, tmp_path: Path) -> None:
        report = tmp_path / "out.html"
        assert f"Report   {report}" in run("effects", survey, "--report", report)
        assert "# Ada&#39;s status affects Byron&#39;s" in report.read_text(encoding="utf-8")
        assert json.loads(run("effects", survey, "--report", report, "--json"))["report"] == str(report)
        packed = tmp_path / "survey.sem.gz"
        packed.write_bytes(gzip.compress(survey.read_bytes()))
        run("effects", packed, "--report", report)
        assert "# Ada&#39;s status affects Byron&#39;s" in report.read_text(encoding="utf-8")
        with pytest.raises(InputError, match="not a report of escudo"):
            run("effects", survey, "--report", survey)
        assert survey.read_text(encoding="utf-8") == SURVEY

    def test_unusable_options_are_refused(self, survey: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="name a model file"):
            run("effects")
        with pytest.raises(InputError, match="need --of"):
            run("effects", survey, "--joint")
        with pytest.raises(InputError, match="give one of them"):
            run("effects", survey, "--of", "R1", "--direct", "R2", "--through", "D1")
        with pytest.raises(InputError, match="shows all effects"):
            run("effects", survey, "--of", "R1,R2", "--joint", "--report", tmp_path / "x.html")
        with pytest.raises(InputError, match=r"no variable 'R11'.*Did you mean 'R1'"):
            run("effects", survey, "--of", "R11")
        with pytest.raises(InputError, match="does not exist"):
            run("effects", tmp_path / "missing.sem")
        (tmp_path / "bad.sem").write_text("X := X", encoding="utf-8")
        with pytest.raises(ParseError, match="line 1"):
            run("effects", tmp_path / "bad.sem")


class TestLedger:
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        url = f"sqlite:///{tmp_path}/ledger.db"
        with Ledger(url) as ledger:
            ledger.open("visits", epsilon=3.0, delta=1e-6)
            ledger.spend("visits", PureEvent(epsilon=0.5), purpose="visits a month")
            ledger.spend("visits", ZCDPEvent(rho=0.01), purpose="<b>diagnoses</b>")
            ledger.open("empty", epsilon=1.0)
        return url

    def test_what_all_releases_do_to_one_and_to_several(self, url: str) -> None:
        data = json.loads(run("effects", "--ledger", url, "--dataset", "visits", "--people", "4", "--json"))
        one, several, attribute = data["effects"]
        with Ledger(url) as ledger:
            assert one["epsilon"] == pytest.approx(ledger.total("visits").epsilon)
        assert one["known"] == "proved"
        assert several["epsilon"] == attribute["epsilon"] > one["epsilon"]
        out = run("effects", "--ledger", url, "--dataset", "visits")
        assert "effect on all 2 releases" in out
        assert "3 rows together" in out

    def test_its_report(self, url: str, tmp_path: Path) -> None:
        report = tmp_path / "ledger.html"
        run("effects", "--ledger", url, "--dataset", "visits", "--report", report)
        text = report.read_text(encoding="utf-8")
        assert "visits a month" in text
        assert "&lt;b&gt;diagnoses&lt;/b&gt;" in text

    def test_unusable_options_are_refused(self, url: str, survey: Path) -> None:
        with pytest.raises(InputError, match="--dataset NAME and no model file"):
            run("effects", survey, "--ledger", url, "--dataset", "visits")
        with pytest.raises(InputError, match="--dataset NAME"):
            run("effects", "--ledger", url)
        with pytest.raises(InputError, match="nothing was released"):
            run("effects", "--ledger", url, "--dataset", "empty")
        with pytest.raises(InputError, match="no account"):
            run("effects", "--ledger", url, "--dataset", "other")


class TestDefinitions:
    def test_every_definition_with_its_sentence_and_witness(self, survey: Path) -> None:
        out = run("definitions", survey)
        assert "3  Bayesian₀" in out
        assert "Whatever the other data points are" in out
        assert "Worst case: O = 0: D1 = neg against pos" in out
        assert "1 ⇒ 3 (if data points are independent): here ε is 3.00, not 1.00, without it" in out

    def test_json(self, survey: Path) -> None:
        data = json.loads(run("definitions", survey, "--json"))
        found = {one["number"]: one["epsilon"] for one in data["definitions"]}
        assert found == pytest.approx(
            {1: 1.0, 2: 1.0, 3: 3.0, 4: 1.0, 5: 1.0, 6: 1.0, 7: 1.0, 8: 1.0, 10: 1.0, "bayesian0": 2.0}
        )
        printed = json.loads(run("definitions", survey, "--printed", "--json"))
        assert {one["number"]: one["epsilon"] for one in printed["definitions"]}[4] == pytest.approx(3.0)

    def test_infinity_is_text_in_json(self, tmp_path: Path) -> None:
        path = tmp_path / "copy.sem"
        path.write_text("D1 ~ 0: 0.5, 1: 0.5\nO := D1\n", encoding="utf-8")
        data = json.loads(run("definitions", path, "--json"))
        assert data["definitions"][0]["epsilon"] == "inf"
        assert "∞" in run("definitions", path)


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; import escudo.cli._effects; "
        "print(sorted(m for m in ('numpy', 'networkx', 'jinja2', 'sqlalchemy', 'escudo.effects') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
