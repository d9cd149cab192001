from __future__ import annotations

import json

import pytest

from escudo.errors import ParseError, SchemaError
from escudo.table import Categorical, Numeric, Schema

HOTEL = {
    "METADATA_SPEC_VERSION": "SINGLE_TABLE_V1",
    "primary_key": "booking",
    "columns": {
        "booking": {"sdtype": "id", "regex_format": "B_[0-9]+"},
        "mail": {"sdtype": "email", "pii": True},
        "rewards": {"sdtype": "boolean"},
        "room": {"sdtype": "categorical"},
        "stars": {"sdtype": "categorical", "order": [1, 2, 3]},
        "nights": {"sdtype": "numerical", "computer_representation": "Int64"},
        "rate": {"sdtype": "numerical"},
        "arrival": {"sdtype": "datetime", "datetime_format": "%d %b %Y"},
    },
}

PUMS = """
"":
  census:
    people:
      max_ids: 3
      rows: 1000
      censor_dims: true
      age: {type: int, lower: 0, upper: 100, nullable: false}
      children: {type: int, lower: 0, upper: 4}
      income: {type: float, lower: 0, upper: 5e5, missing_value: 9e9}
      height: {type: float}
      married: {type: boolean}
      insured: {type: boolean, missing_value: false}
      town: {type: string, cardinality: 12}
      moved: {type: datetime}
      pid: {type: int, private_id: true}
"""


@pytest.fixture
def read(tmp_path):
    def read(content, ending, **options):
        path = tmp_path / f"metadata{ending}"
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return Schema.read(path, **options)

    return read


def test_sdv_metadata_become_a_schema_to_be_completed(read):
    schema = read(HOTEL, ".json")
    assert schema.columns == {
        "rewards": Categorical("rewards", [False, True], missing=True),
        "room": Categorical("room", missing=True, confirmed=False),
        "stars": Categorical("stars", [1, 2, 3], ordered=True, missing=True, confirmed=False),
        "nights": Numeric("nights", integer=True, missing=True, confirmed=False),
        "rate": Numeric("rate", missing=True, confirmed=False),
    }
    assert schema.open_columns == ("room", "nights", "rate")


def test_what_sdv_describes_and_escudo_cannot_use_is_named(read):
    notes = "\n".join(read(HOTEL, ".json").notes)
    assert "Left out 'booking': an identifier" in notes
    assert "Left out 'mail': of type 'email'" in notes
    assert "Left out 'arrival': a date or time" in notes


def test_one_of_several_sdv_tables_must_be_chosen(read):
    both = {
        "METADATA_SPEC_VERSION": "V1",
        "tables": {"hotels": HOTEL, "guests": {"columns": {"vip": {"sdtype": "boolean"}}}},
    }
    assert read(both, ".json", table="guests").names == ("vip",)
    with pytest.raises(SchemaError, match="several tables, 'hotels', 'guests': say which"):
        read(both, ".json")
    with pytest.raises(SchemaError, match=r"no table 'guest';.*Did you mean 'guests'"):
        read(both, ".json", table="guest")
    assert read({"tables": {"only": HOTEL}}, ".json").names == read(HOTEL, ".json").names


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"METADATA_SPEC_VERSION": "V1"}, "no columns"),
        ({"tables": {}}, "no tables"),
        ({"tables": 3}, "no tables"),
        ({"tables": {"t": 3}}, "not described by a mapping"),
        ({"METADATA_SPEC_VERSION": "V1", "columns": {}}, "no column that escudo can use"),
        ({"METADATA_SPEC_VERSION": "V1", "columns": {"x": 3}}, "column 'x'.*no 'sdtype'"),
        ({"columns": {"x": {"sdtype": "text"}}}, "no column that escudo can use"),
        ({"columns": {"x": {"sdtype": "categorical", "order": [1, "a"]}}}, "different kinds"),
        ({"columns": {"": {"sdtype": "boolean"}}}, "not empty"),
        ([], "no columns are described"),
        (3, "no columns are described"),
    ],
)
def test_unusable_json_says_why(read, document, problem):
    with pytest.raises(SchemaError, match=problem):
        read(document, ".json")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "line 1, column 2: not valid JSON"),
        ('{"columns": {}, "columns": {}}', "key 'columns' appears twice"),
        ("[" * 100_000, "not valid JSON"),
        ("9" * 5000, "not valid JSON"),
    ],
)
def test_broken_json_is_a_parse_error(read, text, problem):
    with pytest.raises(ParseError, match=problem):
        read(text, ".json")


def test_smartnoise_metadata_become_a_schema(read):
    schema = read(PUMS, ".yaml")
    assert schema.columns == {
        "age": Numeric("age", 0, 100, integer=True),
        "children": Numeric("children", 0, 4, 5, integer=True, missing=True),
        "income": Numeric("income", 0, 500_000, fill=500_000),
        "height": Numeric("height", missing=True, confirmed=False),
        "married": Categorical("married", [False, True], missing=True),
        "insured": Categorical("insured", [False, True], other=False),
        "town": Categorical("town", missing=True, confirmed=False),
    }
    assert (schema.person_id, schema.max_rows_per_person) == ("pid", 3)
    assert any("Left out 'moved'" in note for note in schema.notes)
    assert schema.unconfirmed == ("height", "town")


def test_smartnoise_row_privacy_protects_rows(read):
    assert read(PUMS.replace("max_ids: 3", "row_privacy: true"), ".yml").unit == "row"
    assert read(PUMS.replace("      max_ids: 3\n", ""), ".yml").max_rows_per_person == 1


def test_one_of_several_smartnoise_tables_must_be_chosen(read):
    both = PUMS + "    towns:\n      size: {type: int, lower: 0, upper: 9}\n"
    assert read(both, ".yaml", table="towns").names == read(both, ".yaml", table="census.towns").names == ("size",)
    with pytest.raises(SchemaError, match=r"several tables, 'census\.people', 'census\.towns'"):
        read(both, ".yaml")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no SmartNoise table"),
        ("a: 3", "no SmartNoise table"),
        ("engine: csv", "no SmartNoise table"),
        ("a: {b: {c: {x: 3}}}", "column 'x'.*no 'type'"),
        ("a: {b: {c: {no: {type: int}}}}", "put it in quotes"),
        ("a: {b: {c: {x: {type: datetime}}}}", "no column that escudo can use"),
        ("a: {b: {c: {x: {type: int, lower: low, upper: 3}}}}", "lower must be a finite number"),
        ("a: {b: {c: {x: {type: int, lower: .nan, upper: 3}}}}", "lower must be a finite number"),
        ("a: {b: {c: {x: {type: int, lower: 5, upper: 3}}}}", "lower must be below upper"),
        ("a: {b: {c: {max_ids: 0, p: {type: int, private_id: true}, x: {type: boolean}}}}", "max_rows_per_person"),
    ],
)
def test_unusable_yaml_says_why(read, text, problem):
    with pytest.raises(SchemaError, match=problem):
        read(text, ".yaml")


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "a: 1\na: 2",
        "\t- a",
        "!!python/object/apply:os.system [ls]",
        "a: 2001-99-99",
        "*nowhere",
        "[" * 20_000,
        "? [a]\n: 1",
        "a: \x01",
        "!!int x",
        "!!timestamp x",
        "<<: 3",
    ],
)
def test_broken_yaml_is_a_parse_error_and_never_runs_code(read, text):
    with pytest.raises(ParseError, match="not valid YAML"):
        read(text, ".yaml")


def test_self_referring_yaml_ends_in_a_clear_error(read):
    with pytest.raises(SchemaError, match="no SmartNoise table"):
        read("&a [*a]", ".yaml")


def test_imported_schemas_write_as_toml_with_their_notes(read, tmp_path):
    schema = read(PUMS, ".yaml")
    schema.write(tmp_path / "out.toml")
    assert Schema.read(tmp_path / "out.toml") == schema
    assert "# Left out 'moved'" in (tmp_path / "out.toml").read_text(encoding="utf-8")
