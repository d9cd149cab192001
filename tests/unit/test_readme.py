"""What the README promises is run."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_quickstart_runs_and_prints_its_guarantee() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert re.search(r"at most a factor e\^(1\.0|0\.99)", run.stdout)
    assert run.stdout.count("yes") >= 5


def test_every_command_in_the_readme_exists() -> None:
    from typer.main import get_command

    from escudo.cli import app

    commands = get_command(app).commands
    for words in re.findall(r"`escudo ([a-z-]+)", README):
        assert words in commands, words


def test_questions_of_the_readme_are_answered_as_they_are_typed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from escudo.causal import asia
    from escudo.cli import app
    from escudo.table import Schema

    monkeypatch.chdir(tmp_path)
    clinic = asia()
    clinic.sample_frame(400, rng=np.random.default_rng(1)).write_csv("visits.csv")
    clinic.graph.write("clinic.dot")
    Schema.from_dict({name: list(clinic.levels[name]) for name in clinic.nodes}).write("visits.toml")
    number = {"type": "numeric", "lower": 0, "upper": 1}
    Schema.from_dict({"altitude": number, "temperature": number}).write("stations.toml")
    rows = np.random.default_rng(1).random((400, 2))
    pl.DataFrame(rows, schema=["altitude", "temperature"]).write_csv("stations.csv")
    typed = re.findall(r"`escudo ((?:forecast|discover|direction|effect|graph) [^`]+)`", README)
    assert len(typed) >= 6
    for words in typed:
        found = CliRunner().invoke(app, words.split())
        assert found.exit_code == 0, (words, found.exception)


def test_the_makefile_has_the_two_commands() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("demo", "test"):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
    (parts,) = re.findall(r"^test: .*\n((?:\t.*\n)+)", makefile, flags=re.MULTILINE)
    assert {"unit", "checks"} <= set(parts.split())
    (checks,) = re.findall(r"^checks: .*\n\t.* in ([a-z ]+); do ", makefile, flags=re.MULTILINE)
    assert {"lint", "types", "layers", "docs", "doctests"} <= set(checks.split())


def test_every_place_where_contributors_are_sent_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text[text.index("## Where things go") : text.index("## A new mechanism")]
    places = re.findall(r"`([\w./]+(?:/|\.py))`", table)
    assert len(places) > 15
    homes = {
        place: [home / place for home in (ROOT, ROOT / "src/escudo") if (home / place).exists()] for place in places
    }
    assert [place for place, found in homes.items() if not found] == []
    lists = re.findall(r"`([A-Z]+)` of `([\w./]+)`", table)
    assert {name for name, _ in lists} >= {"GENERATORS", "DEPENDENCE", "PROCEDURES"}
    for name, place in lists:
        assert re.search(rf"^{name}: ", homes[place][0].read_text(encoding="utf-8"), flags=re.MULTILINE), name


def test_every_figure_of_the_comparison_links_to_a_page_that_exists() -> None:
    links = re.findall(r"\]\((benchmarks/[^)]+|experiments/[^)]+)\)", README)
    assert len(links) >= 10
    for link in links:
        assert (ROOT / link).is_file(), link


def test_every_figure_of_the_comparison_is_the_one_that_was_measured(monkeypatch) -> None:
    """``python benchmarks/summary.py`` writes them."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    headlines = importlib.import_module("_headlines")
    assert headlines.with_headlines(README) == README
    assert headlines.with_headlines(README.replace("| **", "| **9")) == README  # a wrong one would be seen


def test_make_bench_runs_every_benchmark() -> None:
    """But for those that need an accelerator, and parts of others."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    listed = " ".join(re.findall(r"^BENCHES [:+]= (.*)$", makefile, flags=re.MULTILINE))
    parts = ("_", "peer_", "summary", "audit_ceilings")
    scripts = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if not path.stem.startswith(parts)}
    assert {name for name in scripts if not name.endswith("_device")} == set(listed.split())
