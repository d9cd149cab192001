"""The release folder: whole or not at all, and nothing in it that was not paid for."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import weakref
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo import _files
from escudo.causal import asia
from escudo.errors import InputError
from escudo.privacy import ExponentialEvent
from escudo.report import ReleaseFiles, _custodian, _release_folder, write_release
from escudo.synthesis import CausalModel, synthesize
from escudo.table import PrivateTable, Schema
from escudo.utility import PrivateEvaluation

PARTS = {"synthetic.parquet", "model", "release.json", "report.html", "explore.html"}


@pytest.fixture
def table(model: CausalModel) -> PrivateTable:
    return PrivateTable(model.sample(500, seed=3), model.schema)


@pytest.fixture(autouse=True)
def fixed_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_release_folder, "_now", lambda: datetime(2026, 11, 5, 12, 30, 59, tzinfo=UTC))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class TestAWholeRelease:
    def test_the_folder_holds_rows_model_record_and_report(self, model: CausalModel, tmp_path: Path) -> None:
        files = write_release(model, tmp_path / "out", rows=300, dataset="clinic", seed=1)
        assert {path.name for path in files.directory.iterdir()} == PARTS
        assert pl.read_parquet(files.synthetic).equals(model.sample(300, seed=1))
        assert files.csv is None
        assert files.custodian is None
        assert os.listdir(tmp_path) == ["out"]

    def test_csv_on_request_holds_the_same_rows(self, model: CausalModel, tmp_path: Path) -> None:
        files = write_release(model, tmp_path / "out", rows=40, csv=True)
        assert files.csv is not None
        assert pl.read_csv(files.csv).equals(pl.read_parquet(files.synthetic))

    def test_more_rows_than_memory_should_hold_are_drawn_and_written_some_at_a_time(
        self, model: CausalModel, table: PrivateTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        held = write_release(model, tmp_path / "held", rows=6000, seed=1, csv=True, table=table)
        alive: list[int] = []
        most = [0]

        def blocks(self: CausalModel, rows: int, **how: Any) -> Iterator[pl.DataFrame]:
            for start in range(0, rows, 100):
                frame = drawn.slice(start, 100)
                alive.append(start)
                weakref.finalize(frame, alive.remove, start)
                most[0] = max(most[0], len(alive))
                yield frame
                del frame

        drawn = model.sample(6000, seed=1)
        monkeypatch.setattr(_release_folder, "_HELD", 250)
        monkeypatch.setattr(type(model), "blocks", blocks)
        streamed = write_release(model, tmp_path / "streamed", rows=6000, seed=1, csv=True, table=table)
        assert most[0] <= 20  # of 60
        assert pl.read_parquet(streamed.synthetic).equals(pl.read_parquet(held.synthetic))
        assert streamed.csv is not None
        assert held.csv is not None
        assert streamed.csv.read_bytes() == held.csv.read_bytes()
        assert held.custodian is not None
        assert streamed.custodian is not None
        for page, other in ((held.report, streamed.report), (held.custodian, streamed.custodian)):
            text, again = (each.read_text(encoding="utf-8") for each in (page, other))
            files = re.compile(r"[\d.]+ kB")  # a file that was written in parts has another size
            assert files.sub("", text) == files.sub("", again)

    def test_every_file_has_its_fingerprint_in_the_record(self, model: CausalModel, tmp_path: Path) -> None:
        files = write_release(model, tmp_path / "out", rows=40, csv=True)
        listed = json.loads(files.record.read_text(encoding="utf-8"))["files"]
        held = contents(files.directory)
        assert [entry["path"] for entry in listed] == sorted(set(held) - {"release.json"})
        for entry in listed:
            assert hashlib.sha256(held[entry["path"]]).hexdigest() == entry["sha256"]
            assert len(held[entry["path"]]) == entry["bytes"]

    def test_the_report_shows_the_fingerprints_of_the_data(self, model: CausalModel, tmp_path: Path) -> None:
        files = write_release(model, tmp_path / "out", rows=40)
        digest = hashlib.sha256(files.synthetic.read_bytes()).hexdigest()
        assert f"{digest}  synthetic.parquet" in files.report.read_text(encoding="utf-8")

    def test_the_same_seed_gives_the_same_folder_byte_for_byte(self, model: CausalModel, tmp_path: Path) -> None:
        one = write_release(model, tmp_path / "one", rows=60, seed=5)
        two = write_release(model, tmp_path / "two", rows=60, seed=5)
        assert contents(one.directory) == contents(two.directory)

    def test_all_of_it_is_as_readable_as_the_folder(self, model: CausalModel, tmp_path: Path) -> None:
        files = write_release(model, tmp_path / "out", rows=10)
        mode = files.directory.stat().st_mode & 0o777
        for path in files.directory.rglob("*"):
            assert path.stat().st_mode & 0o777 == (mode if path.is_dir() else mode & 0o666)

    def test_missing_parents_are_made_and_an_empty_folder_is_used(self, model: CausalModel, tmp_path: Path) -> None:
        empty = tmp_path / "deep" / "empty"
        empty.mkdir(parents=True)
        write_release(model, empty, rows=10)
        write_release(model, tmp_path / "other" / "new", rows=10)
        assert {path.name for path in empty.iterdir()} == PARTS

    def test_a_fitted_model_is_released_with_what_its_plan_promised(self, tmp_path: Path) -> None:
        network = asia()
        frame = network.sample_frame(2000, rng=np.random.default_rng(5))
        schema = Schema.from_dict({name: list(levels) for name, levels in network.levels.items()})
        fitted = synthesize(PrivateTable(frame, schema), network.graph, epsilon=1.0, delta=1e-6, seed=0)
        files = write_release(fitted, tmp_path / "asia", rows=2000)
        record = json.loads(files.record.read_text(encoding="utf-8"))
        assert record["guarantee"]["epsilon"] <= 1.0
        assert record["guarantee"]["for_release"] is False
        noisy = [leaf for leaf in fitted.plan.leaves() if not isinstance(leaf.once, ExponentialEvent)]  # not the picks
        assert len(record["evaluation"]["noise"]) == len(noisy)
        assert all(noise["rows"] is not None for noise in record["evaluation"]["noise"])
        assert "Not for release" in files.report.read_text(encoding="utf-8")


class TestAnEvaluation:
    def test_it_is_about_the_rows_that_are_written_and_stands_in_record_and_report(
        self, model: CausalModel, paid: PrivateEvaluation, tmp_path: Path
    ) -> None:
        seen = []

        def evaluate(rows: object) -> PrivateEvaluation:
            seen.append(rows)
            return paid

        files = write_release(model, tmp_path / "out", rows=30, evaluate=evaluate)
        (rows,) = seen
        assert isinstance(rows, pl.DataFrame)
        assert rows.equals(pl.read_parquet(files.synthetic))
        assert files.evaluation is paid
        record = json.loads(files.record.read_text(encoding="utf-8"))
        assert record["evaluation"]["paid"] == json.loads(json.dumps(paid.to_json()))
        assert "How good it is, measured on the real rows" in files.report.read_text(encoding="utf-8")

    def test_without_one_nothing_is_said(self, model: CausalModel, tmp_path: Path) -> None:
        files = write_release(model, tmp_path / "out", rows=30)
        assert json.loads(files.record.read_text(encoding="utf-8"))["evaluation"]["paid"] is None
        assert "measured on the real rows" not in files.report.read_text(encoding="utf-8")


class TestAllOrNothing:
    @pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
    @pytest.mark.parametrize(
        "step", ["release_page", "release_record", "_flush", "put_folder", "comparison_section", "_copy"]
    )
    def test_a_stop_at_any_step_leaves_nothing(
        self,
        model: CausalModel,
        table: PrivateTable,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        step: str,
        error: type[BaseException],
    ) -> None:
        def stop(*args: object, **kwargs: object) -> None:
            raise error

        monkeypatch.setattr(_custodian if step == "comparison_section" else _release_folder, step, stop)
        with pytest.raises(error):
            write_release(model, tmp_path / "out", rows=10, table=table)
        assert os.listdir(tmp_path) == []

    def test_a_failing_evaluation_leaves_nothing(self, model: CausalModel, tmp_path: Path) -> None:
        def refuse(rows: object) -> PrivateEvaluation:
            raise RuntimeError

        with pytest.raises(RuntimeError):
            write_release(model, tmp_path / "out", rows=10, evaluate=refuse)
        assert os.listdir(tmp_path) == []

    def test_a_stop_while_replacing_keeps_the_earlier_release(
        self, model: CausalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = write_release(model, tmp_path / "out", rows=10, seed=1)
        before = contents(files.directory)
        rename = Path.rename

        def stop_at_the_second(self: Path, target: Path) -> Path:
            if target == files.directory and self.suffix == ".part":
                raise KeyboardInterrupt
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", stop_at_the_second)
        monkeypatch.setattr(_files, "_exchange", lambda first, second: False)
        with pytest.raises(KeyboardInterrupt):
            write_release(model, tmp_path / "out", rows=20, overwrite=True)
        assert contents(files.directory) == before
        assert os.listdir(tmp_path) == ["out"]

    def test_a_full_disk_is_an_input_error_and_leaves_nothing(
        self, model: CausalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(path: Path) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(_release_folder, "sync", full)
        with pytest.raises(InputError, match="No space left on device"):
            write_release(model, tmp_path / "out", rows=10)
        assert os.listdir(tmp_path) == []


class TestWhatIsReplaced:
    def test_a_release_is_replaced_only_when_asked(self, model: CausalModel, tmp_path: Path) -> None:
        write_release(model, tmp_path / "out", rows=10, csv=True)
        with pytest.raises(InputError, match="holds a release already"):
            write_release(model, tmp_path / "out", rows=20)
        files = write_release(model, tmp_path / "out", rows=20, overwrite=True)
        assert pl.read_parquet(files.synthetic).height == 20
        assert {path.name for path in files.directory.iterdir()} == PARTS  # the old CSV went with the old rows
        assert os.listdir(tmp_path) == ["out"]

    @pytest.mark.parametrize("precious", ["thesis.txt", "release.json", "model"])
    def test_a_folder_with_anything_else_is_never_touched(
        self, model: CausalModel, tmp_path: Path, precious: str
    ) -> None:
        folder = tmp_path / "mine"
        folder.mkdir()
        (folder / precious).write_text("{}", encoding="utf-8")
        with pytest.raises(InputError, match="no release of escudo"):
            write_release(model, folder, rows=10, overwrite=True)
        assert contents(folder) == {precious: b"{}"}

    def test_a_note_added_to_a_release_protects_it(self, model: CausalModel, tmp_path: Path) -> None:
        files = write_release(model, tmp_path / "out", rows=10)
        (files.directory / "notes.txt").write_text("mine", encoding="utf-8")
        with pytest.raises(InputError, match=r"notes\.txt"):
            write_release(model, tmp_path / "out", rows=10, overwrite=True)

    def test_a_file_is_no_folder(self, model: CausalModel, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("mine", encoding="utf-8")
        with pytest.raises(InputError, match="is a file"):
            write_release(model, tmp_path / "out", rows=10, overwrite=True)

    @pytest.mark.parametrize("rows", [0, -1, 2.5, True])
    def test_rows_must_be_a_whole_number_of_at_least_one(
        self, model: CausalModel, tmp_path: Path, rows: object
    ) -> None:
        with pytest.raises(InputError, match="rows must be"):
            write_release(model, tmp_path / "out", rows=rows)  # type: ignore[arg-type]
        assert os.listdir(tmp_path) == []


class TestTheCustodiansPage:
    def release(self, model: CausalModel, table: PrivateTable, folder: Path) -> ReleaseFiles:
        return write_release(model, folder / "out", rows=100, seed=1, table=table)

    def test_it_lies_beside_the_folder_and_only_its_owner_can_read_it(
        self, model: CausalModel, table: PrivateTable, tmp_path: Path
    ) -> None:
        files = self.release(model, table, tmp_path)
        assert files.custodian == tmp_path / "out-custodian.html"
        assert files.custodian.stat().st_mode & 0o777 == 0o600
        assert sorted(os.listdir(tmp_path)) == ["out", "out-custodian.html"]

    def test_the_folder_is_the_same_with_and_without_it(
        self, model: CausalModel, table: PrivateTable, tmp_path: Path
    ) -> None:
        (tmp_path / "a").mkdir()
        files = self.release(model, table, tmp_path / "a")
        alone = write_release(model, tmp_path / "b" / "out", rows=100, seed=1)
        assert contents(files.directory) == contents(alone.directory)
        assert all(b"ustodian.html" not in data for data in contents(files.directory).values())

    def test_one_that_is_there_is_replaced_only_when_asked_and_only_if_it_is_ours(
        self, model: CausalModel, table: PrivateTable, tmp_path: Path
    ) -> None:
        beside = tmp_path / "out-custodian.html"
        beside.write_text("mine", encoding="utf-8")
        for overwrite, reason in ((False, "exists already"), (True, "no report of escudo")):
            with pytest.raises(InputError, match=reason):
                write_release(model, tmp_path / "out", rows=10, table=table, overwrite=overwrite)
        assert beside.read_text(encoding="utf-8") == "mine"
        beside.unlink()
        self.release(model, table, tmp_path)
        write_release(model, tmp_path / "out", rows=10, table=table, overwrite=True)
        assert beside.stat().st_mode & 0o777 == 0o600

    def test_a_table_with_another_schema_is_refused(
        self, model: CausalModel, model_of: Callable[..., CausalModel], tmp_path: Path
    ) -> None:
        other = model_of({"a": ["x", "y"]}, [])
        table = PrivateTable(other.sample(10, seed=1), other.schema)
        with pytest.raises(InputError, match="another schema"):
            write_release(model, tmp_path / "out", rows=10, table=table)
        assert os.listdir(tmp_path) == []


class TestReplacement:
    """An earlier release is the target until the new one is, and not an instant less."""

    @pytest.fixture
    def steps(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[bool]:
        """Whether the target was whole after each renaming."""
        seen: list[bool] = []

        def looking(rename: Callable[..., object]) -> Callable[..., object]:
            def call(*names: object) -> object:
                done = rename(*names)
                seen.append({path.name for path in (tmp_path / "out").glob("*")} >= PARTS)
                return done

            return call

        for owner, name in ((Path, "rename"), (Path, "replace"), (_files, "_exchange")):
            if hasattr(owner, name):
                monkeypatch.setattr(owner, name, looking(getattr(owner, name)))
        return seen

    def test_the_target_is_whole_at_every_step(self, model: CausalModel, tmp_path: Path, steps: list[bool]) -> None:
        write_release(model, tmp_path / "out", rows=20, seed=1)
        steps.clear()
        write_release(model, tmp_path / "out", rows=30, seed=1, overwrite=True)
        assert steps
        assert all(steps)
        assert pl.read_parquet(tmp_path / "out" / "synthetic.parquet").height == 30
        assert os.listdir(tmp_path) == ["out"]

    def test_a_system_that_cannot_exchange_moves_the_old_one_aside(
        self, model: CausalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_files, "_exchange", lambda first, second: False)
        for rows in (20, 30):
            write_release(model, tmp_path / "out", rows=rows, seed=1, overwrite=True)
        assert pl.read_parquet(tmp_path / "out" / "synthetic.parquet").height == 30
        assert os.listdir(tmp_path) == ["out"]

    @pytest.mark.parametrize("again", ["check_target", "write_release"])
    def test_a_kill_between_its_two_steps_is_made_good_by_the_next_release(
        self, model: CausalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
    ) -> None:
        write_release(model, tmp_path / "out", rows=20, seed=1)
        before = contents(tmp_path / "out")
        (tmp_path / "out").rename(tmp_path / ".out.0123abcd.part.old")  # and here it was killed
        (tmp_path / ".out.0123abcd.part").mkdir()
        (tmp_path / ".out.precious.part.old").mkdir()  # no name that we give
        if again == "check_target":
            with pytest.raises(InputError, match="holds a release already"):
                _release_folder.check_target(tmp_path / "out")
            assert contents(tmp_path / "out") == before
        else:
            write_release(model, tmp_path / "out", rows=30, seed=1, overwrite=True)
            assert pl.read_parquet(tmp_path / "out" / "synthetic.parquet").height == 30
        assert (tmp_path / ".out.precious.part.old").exists()

    def test_two_folders_are_exchanged_or_left_alone(self, tmp_path: Path) -> None:
        for name in "ab":
            (tmp_path / name).mkdir()
            (tmp_path / name / name).touch()
        if _files._exchange(tmp_path / "a", tmp_path / "b"):
            assert (tmp_path / "a" / "b").exists()
            assert (tmp_path / "b" / "a").exists()
        else:
            assert (tmp_path / "a" / "a").exists()
        assert not _files._exchange(tmp_path / "a", tmp_path / "nowhere")
        assert (tmp_path / "a").exists()


class TestCsv:
    TEXTS = ("=cmd|'/c calc'!A1", "+1+cmd", "-none-", "@SUM(A1)", "\tx", "\rx", "'tis", "yes", "-1", "+2.5e3", "")

    def test_what_a_spreadsheet_would_run_is_guarded_and_comes_back_exactly(self, tmp_path: Path) -> None:
        frame = pl.DataFrame({"=x": self.TEXTS, "n": list(range(-5, 6))})
        _files.write_csv(frame.with_columns(e=pl.col("=x").cast(pl.Categorical)), tmp_path / "rows.csv")
        with (tmp_path / "rows.csv").open(encoding="utf-8", newline="") as file:
            names, *rows = csv.reader(file)
        assert names == ["'=x", "n", "e"]
        read = dict(zip(names, zip(*rows, strict=True), strict=True))
        for cells in (read["'=x"], read["e"]):
            assert [_files.unguarded(cell) for cell in cells] == list(self.TEXTS)
            risky = [cell for cell in cells if cell[:1] in tuple("=+-@\t\r")]
            assert risky == ["-1", "+2.5e3"]  # numbers mean themselves
        assert list(read["n"]) == [str(n) for n in range(-5, 6)]

    def test_a_release_and_a_sample_are_written_so(self, tmp_path: Path) -> None:
        levels = ["=1+1", "no"]
        rows = pl.DataFrame({"a": levels * 50})
        model = synthesize(PrivateTable(rows, Schema.from_dict({"a": levels})), None, epsilon=5.0, delta=1e-6, seed=0)
        files = write_release(model, tmp_path / "out", rows=50, csv=True, seed=0)
        assert files.csv is not None
        assert set(files.csv.read_text(encoding="utf-8").splitlines()) == {"a", "'=1+1", "no"}
        assert set(pl.read_parquet(files.synthetic)["a"]) == set(levels)


def test_a_release_takes_all_that_its_writing_does_as_typed_keywords() -> None:
    typed = {name: hint.__forward_arg__ for name, hint in _release_folder.WriteOptions.__annotations__.items()}
    assert {"rows": "int", **typed} == {field.name: field.type for field in fields(_release_folder.ReleaseWriting)}
