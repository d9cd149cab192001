from __future__ import annotations

import io
import json
import os
import shlex
import sqlite3
import sys
import tomllib
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from escudo.cli import main
from escudo.errors import InputError
from escudo.privacy import Ledger
from escudo.table import Categorical, Schema

CSV = "pid,age,smoke\n" + "".join(f"{i},{20 + i},{'yes' if i % 3 else 'no'}\n" for i in range(30))


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def data(self):
        return json.loads(self.out)


@pytest.fixture
def escudo(monkeypatch, capsys, tmp_path):
    """Run the command line as a user would, inside an empty folder that holds visits.csv."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits.csv").write_text(CSV, encoding="utf-8")

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["escudo", "schema", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return Outcome(int(stop.value.code or 0), captured.out, captured.err)

    return run


def test_a_draft_without_a_file_prints_toml_that_can_be_piped(escudo):
    outcome = escudo("draft", "visits.csv")
    assert outcome.code == 0
    columns = tomllib.loads(outcome.out)["columns"]
    assert list(columns) == ["age", "smoke"]
    assert columns["smoke"] == {"type": "categorical", "levels": ["no", "yes"], "confirmed": False}
    assert "custodian's eyes only" in outcome.out


def test_only_its_owner_can_read_a_draft_also_when_part_of_it_is_confirmed(escudo, tmp_path):
    (tmp_path / "visits.toml").write_text("", encoding="utf-8")
    (tmp_path / "visits.toml").chmod(0o644)
    before = os.umask(0o022)
    try:
        escudo("draft", "visits.csv", "--out", "visits.toml", "--force")
        assert (tmp_path / "visits.toml").stat().st_mode & 0o777 == 0o600
        escudo("confirm", "visits.toml", "age")
        assert (tmp_path / "visits.toml").stat().st_mode & 0o777 == 0o600
        escudo("convert", "visits.toml", "public.toml")
        assert (tmp_path / "public.toml").stat().st_mode & 0o777 == 0o644  # what somebody makes of it is theirs to say
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_a_draft_with_a_file_says_what_to_do_next(escudo, tmp_path):
    outcome = escudo("draft", "visits.csv", "--out", "visits.toml")
    assert outcome.code == 0
    assert Schema.read(tmp_path / "visits.toml").unconfirmed == ("age", "smoke")
    assert "custodian's eyes only" in outcome.out
    assert "escudo schema learn visits.csv --schema visits.toml --epsilon" in outcome.out
    assert "escudo schema confirm visits.toml" in outcome.out


def test_a_draft_as_json_carries_the_notice(escudo):
    data = escudo("draft", "visits.csv", "--json").data
    assert "custodian's eyes only" in data["notice"]
    assert data["unconfirmed"] == ["age", "smoke"]
    assert Schema.from_dict(data["schema"]).names == ("age", "smoke")
    assert any("Left out 'pid'" in note for note in data["notes"])


def test_no_command_replaces_a_file_unasked(escudo, tmp_path):
    target = tmp_path / "out.toml"
    target.write_text("precious", encoding="utf-8")
    Schema.from_dict({"x": ["a"]}).write(tmp_path / "s.toml")
    for command in (("draft", "visits.csv", "--out", "out.toml"), ("convert", "s.toml", "out.toml")):
        outcome = escudo(*command)
        assert outcome.code == 2
        assert "exists" in outcome.err
        assert target.read_text(encoding="utf-8") == "precious"
        assert escudo(*command, "--force").code == 0
        target.write_text("precious", encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("draft", "absent.csv"), "cannot read 'absent.csv'"),
        (("draft", "visits.sas"), "cannot tell the format"),
        (("draft", "visits.csv.gz"), "zcat FILE | escudo"),
        (("draft", "visits.db"), "sqlite:///FILE?table=NAME"),
        (("draft", "visits.csv", "--out", "schema.yaml"), "must end in .toml or .json"),
        (("draft", "visits.csv", "--out", "no folder/schema.toml"), "does not exist"),
        (("show", "absent.toml"), "cannot read 'absent.toml'"),
        (("show", "visits.csv"), "looks like a data file"),
        (("check", "visits.csv", "--schema", "absent.toml"), "cannot read 'absent.toml'"),
        (("confirm", "absent.toml"), "cannot read 'absent.toml'"),
        (("convert", "absent.json", "x.toml"), "cannot read 'absent.json'"),
        (("learn", "visits.csv", "--epsilon", "1", "--delta", "1e-6", "--ledger", "sqlite:///l.db"), "belong together"),
        (("learn", "visits.csv", "--epsilon", "1", "--delta", "1e-6", "--out", "visits.csv"), "must end in .toml"),
    ],
)
def test_bad_input_ends_with_code_2_and_one_clear_paragraph(escudo, tmp_path, arguments, problem):
    before = sorted(tmp_path.iterdir())
    outcome = escudo(*arguments)
    assert outcome.code == 2
    assert problem in outcome.err.replace("\n", " ")
    assert "Traceback" not in outcome.err
    assert outcome.out == ""
    assert sorted(tmp_path.iterdir()) == before


def test_a_broken_schema_names_its_line(escudo, tmp_path):
    (tmp_path / "s.toml").write_text("[columns.x\n", encoding="utf-8")
    outcome = escudo("show", "s.toml", "--json")
    assert outcome.code == 2
    error = json.loads(outcome.err)
    assert error["error"] == "ParseError"
    assert "s.toml, line 1" in error["message"]


# check


@pytest.fixture
def schema_file(tmp_path):
    path = tmp_path / "visits.toml"
    document = {"smoke": ["yes"], "age": {"type": "numeric", "lower": 0, "upper": 40, "bins": 4}}
    Schema.from_dict(document, person_id="pid", max_rows_per_person=1).write(path)
    return path


def test_check_is_for_the_custodian_only_and_says_so(escudo, schema_file):
    outcome = escudo("check", "visits.csv", "--schema", "visits.toml")
    assert outcome.code == 0
    assert outcome.out.startswith("For the custodian's eyes only")
    assert "smoke: 33.3 % of the values are outside the schema" in outcome.out
    assert "0 % of people have more rows than count" in outcome.out
    data = escudo("check", "visits.csv", "--schema", "visits.toml", "--json").data
    assert "custodian's eyes only" in data["notice"]
    assert data["columns"][0]["outside"] == pytest.approx(1 / 3)


def test_check_ends_with_code_5_if_the_table_cannot_be_used(escudo, schema_file):
    schema_file.unlink()
    Schema.from_dict({"smoke": [1, 2], "agee": ["a"]}).write(schema_file)
    outcome = escudo("check", "visits.csv", "--schema", "visits.toml")
    assert outcome.code == 5
    assert "Did you mean 'age'?" in outcome.err
    assert "100 % are missing" in outcome.out  # as a release reads them: texts that are no numbers
    assert "custodian's eyes only" in outcome.out


# show, convert, confirm


def test_show_lists_columns_protection_and_state(escudo, tmp_path):
    schema = Schema(
        (Categorical("[red]x", ["a", "b"]), Categorical("town", confirmed=False)), person_id="p", max_rows_per_person=3
    )
    schema.write(tmp_path / "s.toml")
    outcome = escudo("show", "s.toml")
    assert outcome.code == 0
    for part in (
        "[red]x",
        "a, b",
        "to be learnt",
        "one person, by 'p', with at most 3 rows",
        "releases refuse",
        schema.fingerprint[:16],
    ):
        assert part in outcome.out
    data = escudo("show", "s.toml", "--json").data
    assert (data["unit"], data["unconfirmed"], data["open"]) == ("person", ["town"], ["town"])
    assert data["fingerprint"] == schema.fingerprint


def test_show_speaks_of_every_kind_of_column(escudo, tmp_path):
    Schema.from_dict(
        {
            "b": {"type": "boolean", "missing": True},
            "o": {"type": "ordinal", "levels": list("abcdefgh")},
            "n": {"type": "numeric", "lower": 0, "upper": 1.5, "bins": 3},
            "i": {"type": "numeric", "lower": 0, "upper": 9, "integer": True},
        }
    ).write(tmp_path / "s.toml")
    out = escudo("show", "s.toml").out
    for part in ("boolean", "or missing", "ordinal", "f, ...", "3 bins on [0, 1.5]", "integer", "Protects one row."):
        assert part in out


def test_convert_reads_the_neighbours_metadata(escudo, tmp_path):
    (tmp_path / "sdv.json").write_text(
        '{"columns": {"x": {"sdtype": "boolean"}, "m": {"sdtype": "email"}}}', encoding="utf-8"
    )
    outcome = escudo("convert", "sdv.json", "x.toml")
    assert outcome.code == 0
    assert "Left out 'm'" in outcome.out
    assert Schema.read(tmp_path / "x.toml").names == ("x",)
    (tmp_path / "sn.yaml").write_text("'': {s: {t: {x: {type: boolean}}, u: {y: {type: boolean}}}}", encoding="utf-8")
    assert escudo("convert", "sn.yaml", "y.toml").code == 2
    assert escudo("convert", "sn.yaml", "y.json", "--table", "u", "--json").data["file"] == "y.json"
    assert Schema.read(tmp_path / "y.json").names == ("y",)


def test_confirm_sets_the_named_columns_or_all(escudo, tmp_path):
    escudo("draft", "visits.csv", "--out", "visits.toml")
    outcome = escudo("confirm", "visits.toml", "age")
    assert outcome.code == 0
    assert "Confirmed as public: age" in outcome.out
    assert Schema.read(tmp_path / "visits.toml").unconfirmed == ("smoke",)
    assert "# levels read from the data" in (tmp_path / "visits.toml").read_text(encoding="utf-8")
    refused = escudo("confirm", "visits.toml")
    assert refused.code == 2
    assert "pass --all" in refused.err
    assert escudo("confirm", "visits.toml", "--all", "--json").data["unconfirmed"] == []
    assert "all confirmed" in escudo("confirm", "visits.toml").out
    assert escudo("confirm", "visits.toml", "agee").code == 2


# learn


@pytest.fixture
def learner(monkeypatch):
    """Stand in for the private learner: give every open column two levels, remember how it was called."""
    calls = []

    def learn_schema(frame, schema_draft, *, epsilon, delta, account=None, **judged):
        calls.append(SimpleNamespace(frame=frame, draft=schema_draft, epsilon=epsilon, delta=delta, account=account))
        learnt = [Categorical(column.name, ["p", "q"]) for column in schema_draft.fields if not column.confirmed]
        return SimpleNamespace(value=schema_draft.with_columns(*learnt), guarantee="ε = 0.5, replace one row")

    monkeypatch.setattr("escudo.learning.learn_schema", learn_schema)
    return calls


def test_learn_starts_from_an_outline_when_there_is_no_draft(escudo, learner, tmp_path):
    outcome = escudo("learn", "visits.csv", "--epsilon", "0.5", "--delta", "1e-6", "--out", "learnt.toml")
    assert outcome.code == 0
    (call,) = learner
    assert call.draft.open_columns == ("age", "smoke")
    assert (call.epsilon, call.delta, call.account) == (0.5, 1e-6, None)
    assert Schema.read(tmp_path / "learnt.toml").confirmed
    assert "ε = 0.5, replace one row" in outcome.out
    assert "No ledger was given" in outcome.out
    assert "taken as public" in outcome.out
    assert "# Learnt under differential privacy. ε = 0.5" in (tmp_path / "learnt.toml").read_text(encoding="utf-8")


def test_learn_takes_no_type_from_the_values_of_a_file(escudo, learner, tmp_path):
    for first in ("7", "seven", '"', ""):
        (tmp_path / "visits.csv").write_text(f"age,smoke\n{first},yes\n8,no\n")
        assert escudo("learn", "visits.csv", "--epsilon", "1", "--delta", "1e-6").code == 0
        assert learner[-1].draft == learner[0].draft
        assert learner[-1].frame.collect_schema() == learner[0].frame.collect_schema()


def test_learn_takes_nobodys_row_for_names(escudo, learner, tmp_path):
    rows = [f"{'FM'[i % 2]},{20 + i},2024-03-{1 + i % 28:02},{7 * i}" for i in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    refused = escudo("learn", "rows.csv", "--epsilon", "1")
    assert refused.code == 2
    assert "seems to be a row and no line of names" in " ".join(refused.err.split())
    assert "2024" not in refused.err
    assert learner == []
    for header, names in (("none", "column_1 column_2 column_3 column_4"), ("sex,age,day,pay", "sex age day pay")):
        assert escudo("learn", "rows.csv", "--epsilon", "1", "--header", header).code == 0
        assert " ".join(learner[-1].draft.names) == names
        assert len(learner[-1].frame.collect()) == 60
    assert escudo("learn", "rows.csv", "--epsilon", "1", "--header", "first").code == 0
    assert learner[-1].draft.names == ("F", "20", "2024-03-01", "0")
    (tmp_path / "visits.toml").write_text('[columns.age]\ntype = "numeric"\nconfirmed = false\n', encoding="utf-8")
    both = escudo("learn", "rows.csv", "--epsilon", "1", "--header", "none", "--schema", "visits.toml")
    assert both.code == 2
    assert "its own header says it" in " ".join(both.err.split())


@pytest.mark.parametrize("names", ["sex,age,2024", "2019,2020,2021,2022", "q1,q2", "id,1,a,b"])
def test_learn_takes_names_for_names(escudo, learner, tmp_path, names):
    row = ",".join("1" for _ in names.split(","))
    (tmp_path / "rows.csv").write_text(f"{names}\n{row}\n", encoding="utf-8")
    assert escudo("learn", "rows.csv", "--epsilon", "1").code == 0
    assert set(learner[-1].draft.names) == set(names.split(",")) - {"id"}


def test_learn_keeps_whole_numbers_where_somebody_said_so_and_says_how_where_nobody_did(escudo, tmp_path):
    rows = "\n".join(str(20 + i % 60) for i in range(3000))
    (tmp_path / "big.csv").write_text(f"age\n{rows}\n", encoding="utf-8")
    for said, whole in (("integer = true", True), ("integer = true\nlower = 20\nupper = 79", False), ("", False)):
        text = f'[columns.age]\ntype = "numeric"\nconfirmed = false\n{said}\n'
        (tmp_path / "visits.toml").write_text(text, encoding="utf-8")
        outcome = escudo(
            "learn", "big.csv", "--schema", "visits.toml", "--epsilon", "4", "--out", "learnt.toml", "--force"
        )
        assert outcome.code == 0
        assert Schema.read(tmp_path / "learnt.toml")["age"].integer == whole, said
        assert ("write integer = true" in outcome.out) != whole


def test_a_table_of_nobody_is_checked_as_it_is_released(escudo, tmp_path):
    from escudo import PrivateTable, synthesize
    from escudo.table import open_data

    (tmp_path / "visits.toml").write_text('[columns]\nsmoke = ["no", "yes"]\n', encoding="utf-8")
    (tmp_path / "none.csv").write_text("smoke\n", encoding="utf-8")
    outcome = escudo("check", "none.csv", "--schema", "visits.toml")
    assert outcome.code == 0
    assert "The table has no rows: nobody is in it." in outcome.out
    assert "smoke: fits" in outcome.out
    schema = Schema.read(tmp_path / "visits.toml")
    table = PrivateTable(open_data("none.csv", schema), schema)
    assert synthesize(table, None, epsilon=1.0, delta=1e-6, seed=1).sample(3, seed=1).shape == (3, 1)
    assert "nobody is in it" not in escudo("check", "visits.csv", "--schema", "visits.toml").out


def test_learn_completes_a_given_draft(escudo, learner):
    escudo("draft", "visits.csv", "--out", "visits.toml")
    escudo("confirm", "visits.toml", "age")
    outcome = escudo("learn", "visits.csv", "--schema", "visits.toml", "--epsilon", "1", "--delta", "0.001")
    assert outcome.code == 0
    assert learner[0].draft.unconfirmed == ("smoke",)
    assert tomllib.loads(outcome.out)["columns"]["smoke"]["levels"] == ["p", "q"]
    as_json = escudo(
        "learn", "visits.csv", "--schema", "visits.toml", "--epsilon", "1", "--delta", "0.001", "--json"
    ).data
    assert as_json["unconfirmed"] == []


def test_learn_is_private_and_charges_the_named_account(escudo, tmp_path):
    # OS entropy: the rare level passes, and one of the common ones fails, with probability below 1e-5.
    rows = [f"{20 + i % 60},{('no', 'yes', 'often')[i % 3]}" for i in range(3000)] + ["30,rare secret"]
    (tmp_path / "big.csv").write_text("age,smoke\n" + "\n".join(rows) + "\n", encoding="utf-8")
    Ledger("sqlite:///l.db").open("visits", epsilon=5.0, delta=1e-4)
    arguments = ("--epsilon", "4", "--delta", "1e-6", "--ledger", "sqlite:///l.db", "--dataset", "visits")
    outcome = escudo("learn", "big.csv", *arguments, "--out", "learnt.toml")
    assert outcome.code == 0
    assert "Charged to 'visits'." in outcome.out
    learnt = Schema.read(tmp_path / "learnt.toml")
    assert learnt.confirmed
    assert set(learnt["smoke"].levels) >= {"no", "yes", "often"}
    assert "rare secret" not in (tmp_path / "learnt.toml").read_text(encoding="utf-8")
    assert Ledger("sqlite:///l.db").total("visits").epsilon == pytest.approx(4, rel=1e-2)
    again = escudo("learn", "big.csv", *arguments, "--out", "more.toml")
    assert again.code == 4
    assert not (tmp_path / "more.toml").exists()


def test_learn_says_what_could_not_be_learnt(escudo, tmp_path):
    (tmp_path / "few.csv").write_text("age,smoke\n" + "40,yes\n" * 20, encoding="utf-8")
    outcome = escudo("learn", "few.csv", "--epsilon", "0.1", "--delta", "1e-9", "--out", "learnt.toml")
    assert outcome.code == 0
    assert "Not learnt: 'smoke', no level was common enough to be learnt with this budget" in outcome.out
    assert "every column of a text file is taken for texts. Where one holds numbers or dates" in outcome.out
    draft = ("few.csv", "--schema", "learnt.toml", "--epsilon", "0.1", "--delta", "1e-9", "--out", "more.toml")
    assert "is taken for texts" not in escudo("learn", *draft).out


@pytest.mark.parametrize(
    ("column", "told"),
    [("age", "these bounds clamp"), ("smoke", "are none of these levels"), ("few", None)],
)
def test_learn_tells_what_is_lost_by_what_was_learnt(escudo, tmp_path, column, told):
    rows = [f"{20 + place % 60},{('no', 'yes')[place % 2]},{40 if place < 5 else ''}" for place in range(3000)]
    (tmp_path / "big.csv").write_text("\n".join(["age,smoke,few", *rows]) + "\n", encoding="utf-8")
    kind = 'type = "categorical"\nlevels = []' if column == "smoke" else 'type = "numeric"'
    (tmp_path / "visits.toml").write_text(f"[columns.{column}]\n{kind}\nconfirmed = false\n", encoding="utf-8")
    outcome = escudo("learn", "big.csv", "--schema", "visits.toml", "--epsilon", "4", "--out", "learnt.toml")
    assert outcome.code == 0
    assert ("clamp" in outcome.out) == (column == "age")
    assert ("How many values" in outcome.out) == (told is not None)
    assert told is None or f"How many values {told} is private" in outcome.out
    assert ("Not learnt: 'few'" in outcome.out) == (column == "few")


def test_learn_checks_its_output_before_it_spends(escudo, learner, tmp_path):
    (tmp_path / "learnt.toml").write_text("precious", encoding="utf-8")
    outcome = escudo("learn", "visits.csv", "--epsilon", "1", "--delta", "1e-6", "--out", "learnt.toml")
    assert outcome.code == 2
    assert learner == []


def test_learn_prints_what_was_paid_for_if_it_cannot_be_written(escudo, learner, monkeypatch):
    def fail(*_arguments, **_options):
        raise InputError("cannot write 'learnt.toml': No space left on device.")

    monkeypatch.setattr("escudo.table._schema_files.write_text", fail)
    outcome = escudo("learn", "visits.csv", "--epsilon", "1", "--delta", "1e-6", "--out", "learnt.toml")
    assert outcome.code == 2
    assert "No space left" in outcome.err
    assert tomllib.loads(outcome.out)["columns"]["age"]["levels"] == ["p", "q"]


def test_every_command_explains_itself(escudo):
    text = escudo("--help").out
    for command in ("draft", "learn", "check", "show", "convert", "confirm"):
        assert command in text
        assert escudo(command, "--help").code == 0


def test_a_file_name_that_is_too_long_is_bad_input(escudo):
    outcome = escudo("draft", "visits.csv", "--out", "a" * 300 + ".toml")
    assert outcome.code == 2
    assert "File name too long" in outcome.err


def european(rows):
    """Rows as a spreadsheet of many countries saves them: semicolons, Windows-1252, decimal commas."""
    towns = ("5 \u20ac", "K\xf6ln", "K\xf6ln")
    lines = (f"{i};{i % 40 / 4:.2f};{towns[i % 3]};{20 + i % 7}".replace(".", ",") for i in range(rows))
    return "\n".join(["pid;dose;town;age", *lines]).encode("cp1252")


def test_a_file_with_semicolons_goes_from_draft_to_release_and_evaluation(escudo, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from escudo.cli import app
    from escudo.synthesis import load

    for name in ("visits", "others"):
        (tmp_path / f"{name}.csv").write_bytes(european(400))
    outcome = escudo("draft", "visits.csv", "--out", "visits.toml")
    assert "semicolons between fields, Windows-1252 (cp1252), a decimal comma" in outcome.out
    text = (tmp_path / "visits.toml").read_text(encoding="utf-8")
    assert 'delimiter = ";"\nencoding = "cp1252"\ndecimal = ","\n' in text
    (tmp_path / "visits.toml").write_text(text.replace('bins = "private"', "bins = 20"), encoding="utf-8")
    learn = ["learn", "visits.csv", "--schema", "visits.toml", "--epsilon", "8", "--delta", "1e-6"]
    assert Schema.from_dict(escudo(*learn, "--json").data["schema"])["town"].levels[:2] == ("5 \u20ac", "K\xf6ln")
    assert escudo("confirm", "visits.toml", "--all").code == 0
    assert escudo("check", "visits.csv", "--schema", "visits.toml").out.count(": fits") == 3
    assert "delimiter ';', encoding 'cp1252', decimal ','" in escudo("show", "visits.toml").out

    def command(*arguments):
        result = CliRunner().invoke(app, [*arguments])
        assert result.exit_code == 0, result.output
        return result.output

    terms = ["--schema", "visits.toml", "--epsilon", "20", "--generator", "independent", "--seed", "1"]
    command("release", "visits.csv", *terms, "--out", "out", "--csv", "--rows", "300")
    made = load(tmp_path / "out" / "model").schema
    assert (made["town"].levels, made.encoding) == (("5 \u20ac", "K\xf6ln"), "cp1252")
    told = ["--schema", "visits.toml", "--epsilon", "20", "--seed", "1"]
    command("discover", "visits.csv", *told, "--out", "found.dot")
    assert "do(town = K\xf6ln)" in command("effect", "visits.csv", "town", "dose", "--trial", *told)
    calls = []
    monkeypatch.setattr("escudo.utility.evaluate", lambda *rows, **_: calls.append(rows) or 1 / 0)
    monkeypatch.setattr("escudo.attacks.attack", lambda *asked, **_: calls.append(asked) or 1 / 0)
    for words in (
        ["evaluate", "visits.csv", "others.csv", "--release", "out"],
        ["evaluate", "visits.csv", "others.csv", "out/synthetic.csv", "--schema", "visits.toml"],
        ["attack", "visits.csv", "--release", "out"],
    ):
        assert isinstance(CliRunner().invoke(app, words).exception, ZeroDivisionError)
    wanted = [number % 40 / 4 for number in range(400)]
    assert calls[2][1].collect()["dose"].to_list() == wanted
    drawn = [rows[2][0].codes.tolist() for rows in calls[:2]]
    assert drawn[0] == drawn[1]  # the same rows, from Parquet and from CSV as escudo writes it
    towns = [number % 3 > 0 for number in range(400)]
    for rows in calls[:2]:
        assert rows[0].codes[:, 1].tolist() == rows[1].codes[:, 1].tolist() == towns


def test_lines_that_do_not_fit_and_names_that_come_twice_are_said(escudo, tmp_path):
    (tmp_path / "visits.csv").write_text("age,smoke,age\n1,no,2\n3,secret\n4,no,5,hidden\n6,no,7,8\n")
    drafted = escudo("draft", "visits.csv", "--out", "visits.toml").out
    Schema.from_dict({"smoke": ["no", "yes"]}).write(tmp_path / "visits.toml", overwrite=True)
    checked = escudo("check", "visits.csv", "--schema", "visits.toml")
    for said in (drafted, checked.out):
        assert "1 line has fewer fields than the first one" in said
        assert "2 lines have more fields than the first one" in said
        assert "names 'age' more than once" in said
        assert "secret" not in said
        assert "hidden" not in said
    assert checked.code == 0
    found = escudo("check", "visits.csv", "--schema", "visits.toml", "--json").data["file"]
    assert (found["short"], found["long"], found["repeated"]) == (1, 2, ["age"])


def test_how_a_file_is_written_can_be_said_before_the_draft(escudo, tmp_path):
    (tmp_path / "visits.csv").write_text("a\tb\n" + "1,5\tx\n2,5\ty\n" * 20)
    schema = escudo("draft", "visits.csv", "--delimiter", "tab", "--decimal", ".", "--json").data["schema"]
    assert schema["table"] == {"delimiter": "\t"}
    assert schema["columns"]["a"]["levels"] == ["1,5", "2,5"]
    outcome = escudo("draft", "visits.csv", "--delimiter", ":")
    assert (outcome.code, "delimiter must be" in outcome.err) == (2, True)


def test_a_table_in_a_database_is_drafted_learnt_and_checked(escudo, tmp_path):
    import duckdb

    with duckdb.connect(str(tmp_path / "clinic.db")) as connection:
        connection.execute("CREATE TABLE visits AS SELECT i % 3 AS stage, 20 + i % 50 AS age FROM range(300) t(i)")
    address = "duckdb:///clinic.db?table=visits"
    assert escudo("draft", address, "--out", "visits.toml").code == 0
    assert Schema.read(tmp_path / "visits.toml")["stage"].levels == (0, 1, 2)
    escudo("confirm", "visits.toml", "--all")
    assert escudo("check", address, "--schema", "visits.toml").code == 0
    assert escudo("learn", address, "--epsilon", "5", "--delta", "1e-6", "--out", "learnt.toml").code == 0


def test_an_address_with_a_password_is_not_repeated(escudo):
    for command in (("draft",), ("check", "--schema", "visits.toml"), ("learn", "--epsilon", "1")):
        Schema.from_dict({"a": ["x"]}).write("visits.toml", overwrite=True)
        outcome = escudo(command[0], "postgresql://me:hidden-word@127.0.0.1:1/db?table=t", *command[1:])
        assert outcome.code == 2
        assert "hidden-word" not in outcome.out + outcome.err


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_columns_are_asked_one_by_one(escudo, tmp_path, monkeypatch):
    escudo("draft", "visits.csv", "--out", "visits.toml")
    monkeypatch.setattr(sys, "stdin", _Terminal("n\ny\n"))
    outcome = escudo("confirm", "visits.toml")
    assert outcome.code == 0
    assert "1 of 2  age: from 20 to 49, in 20 bins" in outcome.err
    assert "2 of 2  smoke: no, yes" in outcome.err
    assert Schema.read(tmp_path / "visits.toml").unconfirmed == ("age",)
    monkeypatch.setattr(sys, "stdin", _Terminal("q\n"))
    escudo("confirm", "visits.toml")
    assert Schema.read(tmp_path / "visits.toml").unconfirmed == ("age",)


def test_all_that_is_vouched_for_is_shown(escudo, tmp_path, monkeypatch):
    """What is confirmed is published with every release: each level, and each other spelling that a draft found."""
    levels = [f"ward {place}" for place in range(60)]
    rows = [*levels, " ward 7", "ward 8\u00a0", "N/A"]
    (tmp_path / "wards.csv").write_text("ward\n" + "\n".join(rows * 3) + "\n", encoding="utf-8")
    escudo("draft", "wards.csv", "--out", "wards.toml")
    monkeypatch.setattr(sys, "stdin", _Terminal("n\n"))
    asked = " ".join(escudo("confirm", "wards.toml").err.split())
    for level in levels:
        assert f"{level}," in asked
    for spelt in ("whatever their case and the blanks around them", r"'ward 8\xa0' as ward 8", "'N/A' as (missing)"):
        assert spelt in asked


def test_answers_given_before_the_end_of_input_are_kept_and_an_interrupt_changes_nothing(escudo, tmp_path, monkeypatch):
    escudo("draft", "visits.csv", "--out", "visits.toml")
    text = (tmp_path / "visits.toml").read_text(encoding="utf-8")

    class Interrupted(_Terminal):
        def readline(self, *size: int) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted())
    assert escudo("confirm", "visits.toml").code == 130
    assert (tmp_path / "visits.toml").read_text(encoding="utf-8") == text
    monkeypatch.setattr(sys, "stdin", _Terminal("y\n"))
    outcome = escudo("confirm", "visits.toml")
    assert outcome.code == 0
    assert "Confirmed as public: age" in outcome.out
    assert Schema.read(tmp_path / "visits.toml").unconfirmed == ("smoke",)


def test_all_that_is_not_stated_is_named_at_once(escudo, tmp_path):
    text = "[columns.a]\ntype = 'categorical'\nlevels = []\nconfirmed = false\n"
    (tmp_path / "open.toml").write_text(text + text.replace(".a]", ".b]"), encoding="utf-8")
    assert "columns 'a' and 'b' have no levels to confirm" in escudo("confirm", "open.toml", "--all").err


def test_of_very_many_columns_the_first_are_named_and_how_many_more(escudo, tmp_path):
    text = "".join(f'[columns.q{n}]\ntype = "categorical"\nlevels = ["a"]\nconfirmed = false\n' for n in range(40))
    (tmp_path / "wide.toml").write_text(text, encoding="utf-8")
    refused = escudo("confirm", "wide.toml")
    assert refused.code == 2
    assert "40 columns of 'wide.toml' are not confirmed: 'q0'," in refused.err
    assert "'q7' and 32 more. " in refused.err
    assert "schema show" in refused.err
    assert "not confirmed: q1, q2, q3, q4, q5, q6, q7, q8 and 31 more." in escudo("confirm", "wide.toml", "q0").out
    unlike = escudo("check", "visits.csv", "--schema", "wide.toml")
    assert unlike.code == 5
    assert "q39: the table has no column 'q39'" in unlike.out
    assert "And 32 more, listed above." in unlike.err


def test_what_is_to_be_typed_next_can_be_typed(escudo, tmp_path):
    """A shell takes patterns and blanks apart, and the address of a file holds no password."""
    import polars as pl

    (tmp_path / "some parts").mkdir()
    frame = pl.DataFrame({"smoke": ["no", "yes"] * 300})
    frame.write_parquet(tmp_path / "some parts" / "1.parquet")
    with sqlite3.connect(tmp_path / "clinic.db") as database:
        database.execute("CREATE TABLE visits (smoke TEXT)")
        database.executemany("INSERT INTO visits VALUES (?)", frame.rows())
    for place, data in enumerate(("some parts/*.parquet", "sqlite:///clinic.db?table=visits")):
        told = escudo("draft", data, "--out", f"my schema {place}.toml").out
        (line,) = (line for line in told.splitlines() if "schema learn" in line)
        words = shlex.split(line)
        assert words[3] == data
        done = escudo(*words[2:4], "-s", f"my schema {place}.toml", "-e", "3", "--delta", "1e-6")
        assert done.code == 0, done.err
        assert words[words.index("--schema") + 1] == f"my schema {place}.toml"
