from __future__ import annotations

import os
import tomllib

import pytest

from escudo.errors import InputError, ParseError, SchemaError
from escudo.table import Categorical, Numeric, Schema
from escudo.table._schema_files import confirm_file

EXAMPLE = """\
# The clinic's public code book.
[table]
person_id = "patient"
max_rows_per_person = 3

[columns]
smoke = ["no", "yes"]

[columns.age]           # in years
type = "numeric"
lower = 0
upper = 110
bins = 22
missing = true

[columns."blood type"]
type = "ordinal"
levels = ["0", "A"]
other = "0"
"""


def test_a_hand_written_file_reads_as_meant(tmp_path):
    path = tmp_path / "clinic.toml"
    path.write_text(EXAMPLE, encoding="utf-8")
    assert Schema.read(path) == Schema(
        (
            Categorical("smoke", ["no", "yes"]),
            Numeric("age", 0, 110, 22, missing=True),
            Categorical("blood type", ["0", "A"], ordered=True, other="0"),
        ),
        person_id="patient",
        max_rows_per_person=3,
    )


def test_a_byte_order_mark_is_no_obstacle(tmp_path):
    path = tmp_path / "clinic.toml"
    path.write_bytes(b"\xef\xbb\xbf[columns]\nx = ['a']\n")
    assert Schema.read(path).names == ("x",)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[columns.x\n", "line 1, column"),
        ("[columns]\nx = [1, 2\ny = 3", "line 3, column"),
        ("[columns]\nx = ['a']\nx = ['b']", "line 3"),
        ("a = '''", "line 1"),
        ("x = " + "9" * 5000, "beyond what can be read"),
        ("x = " + "[" * 5000, "nested too deeply"),
    ],
)
def test_broken_toml_names_the_file_and_the_place(tmp_path, text, place):
    path = tmp_path / "broken.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ParseError, match=rf"broken\.toml.*{place}"):
        Schema.read(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no columns are described"),
        ("columns = 3", "no columns are described"),
        ("[columns]", "at least one column"),
        ("[colums.x]\ntype='boolean'", "no columns are described"),
        ("[columns]\nx=['a']\n[tabel]\nperson_id='p'", "unknown section 'tabel'.*Did you mean 'table'"),
        ("smoke=['a']\n[columns]\nx=['a']", "unknown section 'smoke'.*belongs under columns"),
        ("person_id='p'\n[columns]\nx=['a']", "unknown section 'person_id'.*belongs under table"),
        ("[columns.x]\ntype='numeric'\nlower=5\nupper=1", "column 'x': lower must be below upper"),
        ("[columns.x]\ntype='numeric'\nlower=nan\nupper=1", "column 'x': lower must be a finite number"),
        ("[columns]\nx=[2020-01-01]", "level 1 is not a string"),
    ],
)
def test_a_file_that_describes_no_schema_says_why(tmp_path, text, problem):
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SchemaError, match=rf"bad\.toml: .*{problem}"):
        Schema.read(path)


def test_unreadable_files_are_input_errors(tmp_path):
    (tmp_path / "latin.toml").write_bytes(b"x = '\xe9'")
    with pytest.raises(InputError, match="not UTF-8"):
        Schema.read(tmp_path / "latin.toml")
    with pytest.raises(InputError, match=r"cannot read .*absent"):
        Schema.read(tmp_path / "absent.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(InputError, match="cannot read"):
        Schema.read(tmp_path / "folder.toml")
    with pytest.raises(InputError, match="path is not usable"):
        Schema.read("a\0b.toml")
    with pytest.raises(InputError, match="looks like a data file"):
        Schema.read(tmp_path / "visits.csv")
    with pytest.raises(InputError, match=r"ending in \.toml"):
        Schema.read(tmp_path / "schema.ini")


def test_a_huge_file_is_taken_for_data(tmp_path, monkeypatch):
    monkeypatch.setattr("escudo.table._schema_files._MAX_BYTES", 10)
    (tmp_path / "big.toml").write_text("# 0123456789", encoding="utf-8")
    with pytest.raises(InputError, match="too large for a schema"):
        Schema.read(tmp_path / "big.toml")


def test_strange_names_and_levels_survive_the_round_trip(tmp_path):
    strange = [
        '"',
        "a.b",
        "a b",
        "\n",
        "é",
        "日本",
        "\t\x00\x7f\x1f",
        "#",
        "]",
        "'",
        "\\",
        "true",
        "1",
        "-_",
        "\u2028",
        "𝄞",
    ]
    schema = Schema((*(Categorical(name, strange, other=name) for name in strange), Numeric("x", 0.1, 1e300, 7)))
    schema.write(tmp_path / "strange.toml")
    assert Schema.read(tmp_path / "strange.toml") == schema
    schema.write(tmp_path / "strange.json")
    assert Schema.read(tmp_path / "strange.json") == schema


def test_long_lists_of_levels_are_wrapped():
    schema = Schema.from_dict({"x": [f"level number {i}" for i in range(100)]})
    text = schema.to_toml()
    assert max(map(len, text.splitlines())) <= 104
    assert Schema.from_dict(tomllib.loads(text)) == schema


def test_notes_are_written_as_comments_whatever_they_hold():
    schema = Schema(
        (Categorical("x", ["a"], note="levels read\nfrom\x00the data\r[columns.y]"),),
        notes=("Drafted.", "", "x = 1\ny = 2"),
    )
    assert tomllib.loads(schema.to_toml()) == {"columns": {"x": {"type": "categorical", "levels": ["a"]}}}
    assert "# levels read\n# from the data\n# [columns.y]\n[columns.x]" in schema.to_toml()


def test_write_never_replaces_a_file_unasked(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text("precious", encoding="utf-8")
    schema = Schema.from_dict({"x": ["a"]})
    with pytest.raises(InputError, match="exists already"):
        schema.write(path)
    assert path.read_text(encoding="utf-8") == "precious"
    schema.write(path, overwrite=True)
    assert Schema.read(path) == schema
    assert os.listdir(tmp_path) == ["s.toml"]


def test_write_says_why_it_cannot(tmp_path):
    schema = Schema.from_dict({"x": ["a"]})
    with pytest.raises(InputError, match=r"\.toml or \.json"):
        schema.write(tmp_path / "s.yaml")
    with pytest.raises(InputError, match="cannot write"):
        schema.write(tmp_path / "no folder" / "s.toml")


def test_a_full_disk_leaves_no_half_file(tmp_path, monkeypatch):
    def full(self, *_args, **_options):
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(InputError, match="No space left"):
        Schema.from_dict({"x": ["a"]}).write(tmp_path / "s.toml")
    assert os.listdir(tmp_path) == []


DRAFT = """\
# my own remark
[columns.age]
type = "numeric"
lower = 17  # youngest
upper = 93
confirmed = false   # ask the board

[columns."blood type"]
type = "categorical"
levels = ["0", "A"]
confirmed=false

[columns.town]
type = "categorical"
levels = []
confirmed = false
"""


def test_confirm_edits_only_the_lines_it_must(tmp_path):
    path = tmp_path / "draft.toml"
    path.write_text(DRAFT, encoding="utf-8")
    assert confirm_file(path, ["age"]) == ("age",)
    assert path.read_text(encoding="utf-8") == DRAFT.replace("confirmed = false   # ask", "confirmed = true   # ask")
    assert confirm_file(path, ["blood type", "age"]) == ("blood type",)
    assert "confirmed=true" in path.read_text(encoding="utf-8")
    assert confirm_file(path, ["age"]) == ()
    with pytest.raises(SchemaError, match="town"):
        confirm_file(path)


def test_confirm_keeps_windows_line_endings(tmp_path):
    path = tmp_path / "draft.toml"
    path.write_bytes(DRAFT.replace("\n", "\r\n").encode())
    confirm_file(path, ["age"])
    assert path.read_bytes().count(b"\r\n") == DRAFT.count("\n")
    assert b"# youngest" in path.read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        "[columns]\nx = {type = 'categorical', levels = ['a'], confirmed = false}\n",
        "columns.x.type = 'categorical'\ncolumns.x.levels = ['a']\ncolumns.x.confirmed = false\n",
        "[columns.x]\ntype='categorical'\nlevels=['''\nconfirmed = false\n''']\nconfirmed = false\n",
    ],
)
def test_confirm_rewrites_a_file_whose_lines_it_cannot_follow(tmp_path, text):
    path = tmp_path / "odd.toml"
    path.write_text(text, encoding="utf-8")
    before = Schema.read(path)
    assert confirm_file(path) == ("x",)
    assert Schema.read(path) == before.confirm()


def test_confirm_works_on_json_and_refuses_other_tools_files(tmp_path):
    path = tmp_path / "draft.json"
    Schema((Categorical("x", ["a"], confirmed=False),)).write(path)
    assert confirm_file(path) == ("x",)
    assert Schema.read(path).confirmed
    (tmp_path / "sdv.json").write_text('{"columns": {"x": {"sdtype": "boolean"}}}', encoding="utf-8")
    for name in ("sdv.json", "smartnoise.yaml"):
        with pytest.raises(InputError, match="convert it first"):
            confirm_file(tmp_path / name)
