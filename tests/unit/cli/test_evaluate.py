"""Claims about ``escudo evaluate``."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import escudo.utility
from escudo.causal import asia
from escudo.cli import app
from escudo.errors import EngineError, InputError, SchemaError
from escudo.table import Schema

SMALL = ["--target", "lung", "--target", "bronc", "--learner", "logistic", "--jobs", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("evaluate")
    network = asia()
    for seed, name in enumerate(("train", "test", "made", "again")):
        network.sample_frame(400, rng=np.random.default_rng(seed)).write_csv(place / f"{name}.csv")
    Schema.from_dict({name: list(network.levels[name]) for name in network.nodes}).write(place / "clinic.toml")
    return place


def run(folder, *arguments):
    files = [str(folder / name) for name in ("train.csv", "test.csv")]
    return CliRunner().invoke(app, ["evaluate", *files, *arguments, "--schema", str(folder / "clinic.toml")])


def test_it_prints_a_table_and_whom_it_is_for(folder):
    result = run(folder, str(folder / "made.csv"), *SMALL)
    assert result.exit_code == 0, result.output
    assert "logistic" in result.output
    assert "For the custodian only" in result.output


def test_several_synthetic_tables_and_json(folder):
    result = run(folder, str(folder / "made.csv"), str(folder / "again.csv"), *SMALL, "--json")
    body = json.loads(result.output)
    assert body["custodian_only"] is True
    assert len(body["fidelity"]) == 2
    assert {change["over"] for change in body["changes"]} == {"tables"}


def test_the_page_is_marked_on_the_screen_and_in_print(folder, tmp_path):
    page = tmp_path / "evaluation.html"
    assert run(folder, str(folder / "made.csv"), *SMALL, "--out", str(page)).exit_code == 0
    html = page.read_text(encoding="utf-8")
    assert html.count("Custodian only, not for release") >= 3
    assert "://" not in html.replace("http://www.w3.org", "")
    assert run(folder, str(folder / "made.csv"), *SMALL, "--out", str(folder / "train.csv")).exit_code != 0


def test_one_target_has_no_interval_and_says_so(folder):
    one = ["--target", "lung", "--learner", "logistic", "--jobs", "1"]
    shown = run(folder, str(folder / "made.csv"), *one).output
    assert "one value only" in shown
    assert "inf" not in shown
    assert " all " not in shown  # of one learner
    body = json.loads(run(folder, str(folder / "made.csv"), *one, "--json").output)
    assert {(change["low"], change["high"]) for change in body["changes"]} == {(None, None)}


def test_synthetic_rows_as_text_are_read_as_escudo_writes_them_whatever_the_real_file_has(tmp_path):
    days = pl.Series("day", np.datetime64("2024-01-01") + np.random.default_rng(0).integers(0, 360, 400)).cast(pl.Date)
    rows = pl.DataFrame(
        {"day": days, "sick": [["no", "yes"][day.month > 6] for day in days], "cost": days.dt.day() / 4}
    )
    text = [f"{day:%d.%m.%Y};{sick};{str(cost).replace('.', ',')}\n" for day, sick, cost in rows.iter_rows()]
    (tmp_path / "real.csv").write_text("".join(text))
    rows.write_csv(tmp_path / "made.csv")
    date = {"type": "date", "lower": "2024-01-01", "upper": "2024-12-31", "format": "%d.%m.%Y"}
    columns = {"day": date, "sick": ["no", "yes"], "cost": {"type": "numeric", "lower": 0, "upper": 10}}
    table = {"delimiter": ";", "decimal": ",", "header": list(columns)}
    Schema.from_dict({"columns": columns, "table": table}).write(tmp_path / "days.toml")
    files = [str(tmp_path / name) for name in ("real.csv", "real.csv", "made.csv")]
    asked = [
        "--schema",
        str(tmp_path / "days.toml"),
        "--target",
        "sick",
        "--learner",
        "logistic",
        "--jobs",
        "1",
        "--json",
    ]
    result = CliRunner().invoke(app, ["evaluate", *files, *asked])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["fidelity"][0]["one_way"] == 0


# -- for a release


@pytest.fixture(scope="module")
def release(folder):
    """A release of the training rows, and what it holds."""
    arguments = [str(folder / "train.csv"), "--schema", str(folder / "clinic.toml"), "--epsilon", "5"]
    result = CliRunner().invoke(app, ["release", *arguments, "--out", str(folder / "out"), "--seed", "1"])
    assert result.exit_code == 0, result.output
    return folder / "out"


def for_release(folder, release, *arguments):
    files = [str(folder / name) for name in ("train.csv", "test.csv")]
    return CliRunner().invoke(app, ["evaluate", *files, "--release", str(release), *arguments])


def test_a_release_needs_neither_schema_nor_rows_and_its_copy_gets_a_section(folder, release):
    before = {path: path.read_bytes() for path in release.rglob("*") if path.is_file()}
    result = for_release(folder, release, *SMALL)
    assert result.exit_code == 0, result.output
    assert "NOT FOR RELEASE: " in result.output
    copy = folder / "out-custodian.html"
    html = copy.read_text(encoding="utf-8")
    assert html.count('<section class="custodian" id="utility">') == 1
    assert 'class="panel twin"' in html
    assert copy.stat().st_mode & 0o777 == 0o600
    assert {path: path.read_bytes() for path in release.rglob("*") if path.is_file()} == before
    assert for_release(folder, release, *SMALL).exit_code == 0
    assert copy.read_text(encoding="utf-8") == html


def test_json_says_where_the_copy_is(folder, release):
    body = json.loads(for_release(folder, release, *SMALL, "--json").output)
    assert body["custodian"] == str((folder / "out-custodian.html").resolve())
    assert body["page"] is None


def test_a_reference_is_compared_with_the_released_model(folder, release):
    asia().write(folder / "truth.bif")
    body = json.loads(for_release(folder, release, *SMALL, "--reference", str(folder / "truth.bif"), "--json").output)
    assert body["causal"]["questions"] > 10


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "name the synthetic rows after the real ones"),
        (["made.csv"], "--schema says what the columns are"),
        (["made.csv", "--release", "out"], "leave out SYNTHETIC, or --release"),
        (["--release", "nowhere"], "holds no release of escudo"),
        (["--release", "out", "--schema", "other.toml"], "is not the schema of the release"),
        (["--release", "out", "--out", "train.csv"], "is not a report of escudo"),
        (["--release", "out", "--out", "nowhere/page.html"], "nothing can be written in"),
    ],
    ids=["nothing", "no schema", "both", "no release", "other schema", "other file", "no folder"],
)
def test_what_is_missing_or_too_much_is_said_before_any_work(folder, release, monkeypatch, arguments, expected):
    Schema.from_dict({"a": [0, 1]}).write(folder / "other.toml", overwrite=True)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(escudo.utility, "evaluate", None)
    result = CliRunner().invoke(app, ["evaluate", "train.csv", "test.csv", *arguments])
    assert isinstance(result.exception, InputError)
    assert expected in str(result.exception)


@pytest.mark.parametrize("jobs", ["0", "x"], ids=["none", "no number"])
def test_a_number_of_processes_that_is_none_is_bad_input(folder, release, jobs):
    start = ["evaluate", str(folder / "train.csv"), str(folder / "test.csv"), "--release", str(release)]
    result = CliRunner().invoke(app, [*start, "--jobs", jobs])
    assert result.exit_code == 2 or "jobs must be 1 or more" in str(result.exception)


def test_a_file_without_rows_is_named(folder, release):
    header = (folder / "train.csv").read_text(encoding="utf-8").splitlines()[0]
    (folder / "empty.csv").write_text(header + "\n", encoding="utf-8")
    result = CliRunner().invoke(
        app, ["evaluate", str(folder / "train.csv"), str(folder / "empty.csv"), "--release", str(release)]
    )
    assert isinstance(result.exception, InputError)
    assert "empty.csv" in str(result.exception)


def test_a_file_without_the_columns_is_named(folder, release):
    (folder / "bad.csv").write_text("asia\nyes\n", encoding="utf-8")
    result = CliRunner().invoke(
        app, ["evaluate", str(folder / "train.csv"), str(folder / "bad.csv"), "--release", str(release)]
    )
    assert isinstance(result.exception, SchemaError)
    assert "bad.csv" in str(result.exception)


def test_a_password_in_the_address_of_a_database_is_not_shown(folder, release):
    start = ["evaluate", "postgresql://me:secret@127.0.0.1:1/none?table=t", str(folder / "test.csv")]
    result = CliRunner().invoke(app, [*start, "--release", str(release)])
    assert isinstance(result.exception, InputError | EngineError)
    assert "secret" not in f"{result.exception}{result.output}"
