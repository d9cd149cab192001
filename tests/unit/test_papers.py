"""``make papers``: what was run is not run again, what differs is named, and the map of the papers leads somewhere."""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

STUB = """
import json, os, pathlib
out = pathlib.Path(os.environ["ESCUDO_RESULTS"])
with (out / "runs").open("a") as runs:
    runs.write("x")
kept = out / "stub.json"
parts = json.loads(kept.read_text()) if kept.exists() else {}
fresh = "first" not in parts
parts["first"] = {"figure": 1.0, "seconds": 7.0}
kept.write_text(json.dumps(parts))
if fresh and STOPS:
    raise SystemExit(3)
parts["second"] = {"figure": VALUE}
kept.write_text(json.dumps(parts))
"""


@pytest.fixture
def papers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    return importlib.import_module("papers")


class Bench:
    """A repository with one experiment, its committed result, and a folder for new ones."""

    def __init__(self, papers: ModuleType, root: Path):
        self.papers, self.root, self.out = papers, root, root / "out"
        self.experiment = papers.Experiment(
            name="stub", script="experiments/stub.py", result="stub.json", cpu_seconds=1, relative=0.1, absolute=0.0
        )
        (root / "experiments").mkdir()
        (root / "committed").mkdir()
        committed = {"first": {"figure": 1.0, "seconds": 9.0}, "second": {"figure": 2.0}}
        (root / "committed" / "stub.json").write_text(json.dumps(committed))

    def write(self, *, value: float, stops: bool = False) -> None:
        text = STUB.replace("VALUE", str(value)).replace("STOPS", str(stops))
        (self.root / "experiments" / "stub.py").write_text(text)

    def run(self, **changed: Any) -> Any:
        chosen = replace(self.experiment, **changed)
        return self.papers.run(chosen, self.out, self.root, committed=self.root / "committed", root=self.root)

    @property
    def runs(self) -> int:
        return len((self.out / "runs").read_text())


@pytest.fixture
def bench(papers: ModuleType, tmp_path: Path) -> Bench:
    return Bench(papers, tmp_path)


def test_a_figure_within_its_tolerance_is_as_committed_and_times_are_not_compared(bench: Bench) -> None:
    bench.write(value=2.19)
    outcome = bench.run()
    assert (outcome.kind, outcome.resumed) == ("same", False)
    assert outcome.said.startswith("2 figures as committed, within 0 + 0.1 of the figure")


def test_what_was_run_is_not_run_again_until_its_sources_change(bench: Bench) -> None:
    bench.write(value=2.0)
    assert [bench.run().resumed, bench.run().resumed] == [False, True]
    assert bench.runs == 1
    bench.write(value=2.5)
    assert bench.run().kind == "differs"
    assert bench.runs == 2


def test_a_figure_beyond_its_tolerance_is_named_with_the_committed_one(bench: Bench) -> None:
    bench.write(value=2.21)
    outcome = bench.run()
    assert outcome.kind == "differs"
    assert outcome.said.startswith("1 of 2 figures")
    assert "/second/figure: 2.21, committed 2.0" in outcome.said


def test_a_stopped_run_goes_on_where_it_was(bench: Bench) -> None:
    bench.write(value=2.0, stops=True)
    stopped = bench.run()
    assert (stopped.kind, "code 3" in stopped.said) == ("failed", True)
    assert bench.run().kind == "same"  # its first part was there: else it would have stopped again
    assert bench.runs == 2


def test_parts_of_a_stopped_run_from_other_sources_are_no_start(bench: Bench) -> None:
    bench.write(value=1.0, stops=True)
    bench.run()
    bench.write(value=2.0, stops=True)
    assert bench.run().kind == "failed"  # it began anew, and so stopped after its first part again


def test_data_that_are_not_at_hand_are_named_and_nothing_is_run(bench: Bench) -> None:
    bench.write(value=2.0)
    outcome = bench.run(folders=("pairs",))
    assert (outcome.kind, "has no pairs" in outcome.said) == ("no data", True)
    assert not bench.out.exists()


def test_only_a_whole_result_must_have_every_figure(papers: ModuleType) -> None:
    new, committed = {"a": 1.0}, {"a": 1.0, "b": 2.0}
    fixed = {"relative": 0.0, "absolute": 0.0}
    assert papers.differences(new, committed, whole=False, **fixed) == []
    assert [one.place for one in papers.differences(new, committed, whole=True, **fixed)] == ["/b"]
    assert [one.place for one in papers.differences(committed, new, whole=False, **fixed)] == ["/b"]


@pytest.mark.parametrize(("new", "committed"), [(float("nan"), 1.0), (1.0, float("nan")), ("x", "y"), (True, 0.0)])
def test_what_is_no_number_must_be_equal(papers: ModuleType, new: object, committed: object) -> None:
    wide = {"relative": 9.0, "absolute": 9.0, "whole": True}
    assert papers.differences([new], [committed], **wide)
    assert not papers.differences([committed], [committed], **wide)


def test_what_a_script_prints_is_compared_by_its_words_and_figures(papers: ModuleType, tmp_path: Path) -> None:
    old, new, other = (tmp_path / f"{name}.txt" for name in ("old", "new", "other"))
    old.write_text("ε = 2.000 in every population\n")
    new.write_text("ε = 2.001 in every population\n")
    other.write_text("ε = 2.000 in some population\n")
    fixed = {"relative": 0.01, "absolute": 0.0, "whole": True}
    assert papers.differences(papers.read(new), papers.read(old), **fixed) == []
    assert len(papers.differences(papers.read(other), papers.read(old), **fixed)) == 1


def test_every_script_of_the_map_exists_and_every_result_is_committed(papers: ModuleType) -> None:
    rows = papers.rows()
    assert len(rows) >= 20
    for row in rows:
        assert row.verdict in papers.VERDICTS, row.part
        assert row.because, row.part
        for script in re.findall(r"(?:python|pytest) ((?:\w+/)+\w+\.py)", row.command):
            assert (ROOT / script).is_file(), script
        for link in re.findall(r"\]\((results/[^)]+)\)", row.because):
            assert (ROOT / "experiments" / link).is_file(), link
    for experiment in papers.EXPERIMENTS:
        assert (papers.COMMITTED / experiment.result).is_file(), experiment.result
        assert any(experiment.script in row.command for row in rows), experiment.name
        assert experiment.absolute <= 0.15, "shares lie between 0 and 1: more would compare nothing"
        assert experiment.relative <= 0.05


def test_every_paper_has_rows_and_the_page_of_the_documentation_shows_them_all(papers: ModuleType) -> None:
    rows, page = papers.rows(), papers.page()
    assert {row.part.split(",")[0] for row in rows} == {"*Property*", "*Inference*", "*Synthesis*"}
    assert all(f"| {row.part} | **{row.verdict}** |" in page for row in rows)
    assert "](results/" not in page  # the page lies elsewhere


def test_an_index_without_the_table_is_refused(papers: ModuleType) -> None:
    with pytest.raises(ValueError, match="has no table"):
        papers.rows("# Experiments\n")
