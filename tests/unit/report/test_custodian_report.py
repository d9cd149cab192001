"""The custodian's copy of a report: gathers sections, stays private, and never touches the release."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from escudo.attacks import Attack, attack
from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.report import (
    attack_page,
    check_custodian_report,
    custodian_report,
    evaluation_page,
    write,
    write_release,
)
from escudo.synthesis import CausalModel, synthesize
from escudo.table import PrivateTable, Schema
from escudo.utility import Evaluation, Rows, evaluate

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MARK = "Custodian only, not for release"
COMPARISON, UTILITY, ATTACK = (
    f'<section class="custodian" id="{kind}">' for kind in ("comparison", "utility", "attack")
)
NASTY = "<script>alert('x')</script> -- <!-- /section --> & \\1"


@pytest.fixture(scope="module")
def rows(model: CausalModel) -> tuple[Rows, Rows]:
    real, made = (Rows.read(model.sample(200, seed=seed), model.schema) for seed in (11, 12))
    return real, made


@pytest.fixture(scope="module")
def evaluated(model: CausalModel, rows: tuple[Rows, Rows]) -> Evaluation:
    real, made = rows
    return evaluate(real, made, made, model.schema, targets=["smoke", "age"], learners=["logistic"], jobs=1)


@pytest.fixture(scope="module")
def attacked(model: CausalModel) -> Attack:
    options: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "targets": 1, "shadows": 4, "trials": 4, "jobs": 1}
    return attack("independent", model.sample(40, seed=1), model.schema, **options)


@pytest.fixture
def release(model: CausalModel, tmp_path: Path) -> Path:
    write_release(model, tmp_path / "out", rows=50, seed=1)
    return tmp_path / "out"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class TestGathering:
    def test_evaluation_then_attack_make_one_report_with_both_in_any_order(
        self, release: Path, evaluated: Evaluation, attacked: Attack, rows: tuple[Rows, Rows]
    ) -> None:
        custodian_report(release, evaluation=evaluated, rows=rows)
        both = custodian_report(release, attack=attacked).read_text(encoding="utf-8")
        assert both.index(UTILITY) < both.index(ATTACK) < both.index("What it does not protect")
        (release.parent / "out-custodian.html").unlink()
        custodian_report(release, attack=attacked)
        again = custodian_report(release, evaluation=evaluated, rows=rows).read_text(encoding="utf-8")
        assert again == both

    def test_doing_it_again_changes_nothing(self, release: Path, attacked: Attack) -> None:
        once = custodian_report(release, attack=attacked).read_bytes()
        assert custodian_report(release, attack=attacked).read_bytes() == once
        assert once.count(b'id="attack"') == 1

    def test_the_comparison_of_the_release_stays(self, model: CausalModel, tmp_path: Path, attacked: Attack) -> None:
        table = PrivateTable(model.sample(80, seed=3), model.schema)
        files = write_release(model, tmp_path / "out", rows=50, table=table)
        path = custodian_report(files.directory, attack=attacked)
        assert path == files.custodian
        page = path.read_text(encoding="utf-8")
        assert page.index(COMPARISON) < page.index(ATTACK)

    def test_sections_of_another_release_are_dropped(
        self, model: CausalModel, release: Path, evaluated: Evaluation, attacked: Attack
    ) -> None:
        custodian_report(release, attack=attacked)
        write_release(model, release, rows=60, seed=2, overwrite=True)
        page = custodian_report(release, evaluation=evaluated).read_text(encoding="utf-8")
        assert UTILITY in page
        assert ATTACK not in page

    def test_it_is_the_public_page_word_for_word(self, release: Path, attacked: Attack, outline: Any) -> None:
        public = outline((release / "report.html").read_text(encoding="utf-8")).text
        copy = outline(custodian_report(release, attack=attacked).read_text(encoding="utf-8")).text
        head, tail = (part.strip() for part in public.split("What it does not protect", 1))
        assert tail in copy
        assert head.split("What was released", 1)[1] in copy

    def test_pairs_are_drawn_real_beside_synthetic(
        self, release: Path, evaluated: Evaluation, rows: tuple[Rows, Rows]
    ) -> None:
        page = custodian_report(release, evaluation=evaluated, rows=rows).read_text(encoding="utf-8")
        section = page.split(UTILITY)[1]
        assert section.count('class="panel twin"') == 6
        assert "real, at the right" in section
        assert "panel twin" not in custodian_report(release, evaluation=evaluated).read_text(encoding="utf-8")


class TestPrivacy:
    def test_the_release_is_not_touched(self, release: Path, evaluated: Evaluation, attacked: Attack) -> None:
        before = contents(release)
        custodian_report(release, evaluation=evaluated, attack=attacked)
        assert contents(release) == before
        assert sorted(os.listdir(release.parent)) == ["out", "out-custodian.html"]

    def test_only_its_owner_can_read_it_also_when_it_is_written_again(self, release: Path, attacked: Attack) -> None:
        path = custodian_report(release, attack=attacked)
        assert path.stat().st_mode & 0o777 == 0o600
        path.chmod(0o644)
        assert custodian_report(release, attack=attacked).stat().st_mode & 0o777 == 0o600

    def test_pages_of_their_own_are_for_their_owner_only_too(
        self, tmp_path: Path, evaluated: Evaluation, attacked: Attack
    ) -> None:
        for name, page in (("e.html", evaluation_page(evaluated)), ("a.html", attack_page(attacked))):
            (tmp_path / name).touch(mode=0o644)
            (tmp_path / name).unlink()
            assert write(page, tmp_path / name).stat().st_mode & 0o777 == 0o600

    def test_it_is_marked_on_the_screen_and_on_every_printed_page(self, release: Path, attacked: Attack) -> None:
        page = custodian_report(release, attack=attacked).read_text(encoding="utf-8")
        assert page.count(f'<div class="marking">{MARK}</div>') == 1
        assert f'@page {{ @top-center {{ content: "{MARK}"' in page
        assert f"<title>{MARK}: " in page
        assert "Keep this copy to yourself." in page

    def test_a_seeded_release_carries_the_stronger_mark_last(
        self, model_of: Callable[..., CausalModel], tmp_path: Path, attacked: Attack
    ) -> None:
        write_release(model_of(seeded=True), tmp_path / "out", rows=20)
        page = custodian_report(tmp_path / "out", attack=attacked).read_text(encoding="utf-8")
        assert re.findall(r'<div class="marking">(.*?)</div>', page) == [MARK]
        assert re.findall(r'@top-center \{ content: "(.*?)"', page)[-1] == MARK
        assert "Nobody is protected by this one." in page

    def test_every_text_is_escaped_and_cannot_end_a_section(self, tmp_path: Path, outline: Any) -> None:
        frame = pl.DataFrame({NASTY: [NASTY, "b"] * 40, "c": ["x", "y", "y", "x"] * 20})
        schema = Schema.from_dict({NASTY: [NASTY, "b"], "c": ["x", "y"]})
        model = synthesize(
            PrivateTable(frame, schema), CausalGraph.from_edges([(NASTY, "c")]), epsilon=1.0, delta=1e-6, seed=1
        )
        write_release(model, tmp_path / "out", rows=40)
        real = Rows.read(frame, schema)
        found = evaluate(real, real, real, schema, targets=[NASTY, "c"], learners=["logistic"], jobs=1)
        custodian_report(tmp_path / "out", evaluation=found, rows=(real, real))
        page = custodian_report(tmp_path / "out", evaluation=found, rows=(real, real)).read_text(encoding="utf-8")
        read = outline(page)
        assert read.scripts == 0
        assert page.count("<!-- /section -->") == 1
        assert read.text.count("<script>alert(") > 3


class TestRefusals:
    def test_a_folder_without_a_release(self, tmp_path: Path) -> None:
        for place in (tmp_path, tmp_path / "nowhere"):
            with pytest.raises(InputError, match="holds no release of escudo"):
                check_custodian_report(place)

    def test_a_report_that_was_changed(self, release: Path) -> None:
        report = release / "report.html"
        report.write_text(report.read_text(encoding="utf-8") + " ", encoding="utf-8")
        with pytest.raises(InputError, match="changed after the release"):
            check_custodian_report(release)

    def test_a_report_that_is_gone(self, release: Path) -> None:
        (release / "report.html").unlink()
        with pytest.raises(InputError, match="is not whole"):
            check_custodian_report(release)

    def test_something_else_in_the_way_is_kept(self, release: Path, attacked: Attack) -> None:
        other = release.parent / "out-custodian.html"
        for text in ("mine", (release / "report.html").read_text(encoding="utf-8")):
            other.write_text(text, encoding="utf-8")
            with pytest.raises(InputError, match="no custodian's copy"):
                custodian_report(release, attack=attacked)
            assert other.read_text(encoding="utf-8") == text

    def test_a_stop_leaves_the_earlier_copy(
        self, release: Path, attacked: Attack, evaluated: Evaluation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = custodian_report(release, attack=attacked).read_bytes()

        def stop(self: Path, *_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "write_text", stop)
        with pytest.raises(InputError, match="No space left on device"):
            custodian_report(release, evaluation=evaluated)
        assert (release.parent / "out-custodian.html").read_bytes() == before
        assert sorted(os.listdir(release.parent)) == ["out", "out-custodian.html"]

    def test_what_can_be_written_says_where(self, release: Path) -> None:
        assert check_custodian_report(release) == release.parent / "out-custodian.html"
        assert os.listdir(release.parent) == ["out"]


@pytest.mark.chromium
@pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium binary, none is on this machine")
def test_a_browser_finds_no_fault(
    release: Path, evaluated: Evaluation, attacked: Attack, rows: tuple[Rows, Rows], tmp_path: Path
) -> None:
    assert CHROMIUM is not None
    path = custodian_report(release, evaluation=evaluated, rows=rows, attack=attacked)
    assert path.stat().st_size < 2_000_000
    flags = ["headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync", "dump-dom"]
    flags += ["disable-background-networking", "disable-component-update", f"user-data-dir={tmp_path / 'profile'}"]
    command = [CHROMIUM, *(f"--{flag}" for flag in flags), "--enable-logging=stderr", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert MARK in done.stdout
    assert "CONSOLE" not in done.stderr
