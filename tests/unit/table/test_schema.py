from __future__ import annotations

import dataclasses
import pickle

import pytest

from escudo.errors import RefusedError, SchemaError
from escudo.table import Categorical, Numeric, Schema


@pytest.fixture
def schema() -> Schema:
    return Schema.from_dict(
        {"smoke": ["no", "yes"], "age": {"type": "numeric", "lower": 0, "upper": 110, "bins": 22, "missing": True}}
    )


def test_a_schema_from_python_is_confirmed_and_keeps_the_order(schema):
    assert schema.names == tuple(schema) == ("smoke", "age")
    assert schema.confirmed
    assert schema.unconfirmed == schema.open_columns == ()
    assert schema.columns == {
        "smoke": Categorical("smoke", ["no", "yes"]),
        "age": Numeric("age", 0, 110, 22, missing=True),
    }
    schema.require_confirmed()


def test_shape_gives_the_cells_of_the_named_columns(schema):
    assert schema.shape() == (2, 23)
    assert schema.shape(["age", "smoke"]) == (23, 2)
    assert schema.shape("age") == (23,)
    with pytest.raises(SchemaError, match=r"no column 'agee'. Did you mean 'age'\?"):
        schema.shape(["agee"])


def test_a_schema_looks_up_columns_by_name(schema):
    assert schema["age"].size == 23
    assert "age" in schema
    assert "weight" not in schema
    assert len(schema) == 2
    with pytest.raises(SchemaError, match=r"no column 'smok'. Did you mean 'smoke'\?"):
        schema["smok"]


@pytest.mark.parametrize(
    ("spec", "column"),
    [
        (["a", "b"], Categorical("x", ["a", "b"])),
        ((1, 2), Categorical("x", [1, 2])),
        ({"type": "categorical", "levels": ["a", "b"], "other": "b"}, Categorical("x", ["a", "b"], other="b")),
        ({"type": "categorical", "levels": ["E11"], "prefix": 3}, Categorical("x", ["E11"], prefix=3)),
        ({"type": "ordinal", "levels": [1, 2, 3]}, Categorical("x", [1, 2, 3], ordered=True)),
        ({"type": "boolean", "missing": True}, Categorical("x", [False, True], missing=True)),
        ({"type": "numeric", "lower": -1, "upper": 1}, Numeric("x", -1, 1)),
        ({"type": "numeric", "lower": -1, "upper": 1, "bins": "private"}, Numeric("x", -1, 1, "private")),
        ({"type": "numeric", "lower": 0, "upper": 4, "integer": True}, Numeric("x", 0, 4, 5, integer=True)),
        ({"type": "numeric", "edges": [0, 1, 5], "fill": 2}, Numeric("x", edges=(0, 1, 5), fill=2)),
        ({"type": "categorical", "levels": [], "confirmed": False}, Categorical("x", confirmed=False)),
        ({"type": "numeric", "bins": 7, "confirmed": False}, Numeric("x", bins=7, confirmed=False)),
    ],
)
def test_every_kind_of_column_reads_from_plain_data_and_writes_back(spec, column):
    schema = Schema.from_dict({"x": spec})
    assert schema["x"] == column
    assert Schema.from_dict(schema.to_dict()) == schema


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("no", "a list of levels, or a table with a 'type'"),
        (None, "a list of levels, or a table with a 'type'"),
        ({}, "type must be one of"),
        ({"type": 3}, "type must be one of"),
        ({"type": "nummeric"}, "Did you mean 'numeric'"),
        ({"type": "numeric", "lower": 0, "uper": 1}, "no key 'uper'.*Did you mean 'upper'"),
        ({"type": "numeric", "levels": [1]}, "numeric column has no key 'levels'"),
        ({"type": "categorical", "levels": ["a"], "lower": 1}, "categorical column has no key 'lower'"),
        ({"type": "boolean", "levels": [False]}, "boolean column has no key 'levels'"),
        ({"type": "categorical"}, "needs levels"),
        ({"type": "categorical", "levels": "ab"}, "levels must be a list"),
        ({"type": "numeric", "edges": [0, 1], "bins": 1}, "same thing twice"),
        ({"type": "numeric", "lower": 3, "upper": 1, "bins": 2}, "lower must be below upper"),
        ({"type": "numeric", 3: 4}, "no key 3"),
        ([], "at least one level"),
    ],
)
def test_a_bad_description_names_the_column_and_the_remedy(spec, problem):
    with pytest.raises(SchemaError, match=f"column 'x': .*{problem}"):
        Schema.from_dict({"x": spec})


def test_an_empty_schema_and_duplicates_are_refused():
    with pytest.raises(SchemaError, match="at least one column"):
        Schema.from_dict({})
    with pytest.raises(SchemaError, match="'a' is described twice"):
        Schema((Categorical("a", ["x"]), Numeric("a", 0, 1)))
    with pytest.raises(SchemaError, match="must be Categorical or Numeric"):
        Schema(("a",))
    with pytest.raises(SchemaError, match="mapping"):
        Schema.from_dict(["a"])
    with pytest.raises(SchemaError, match="notes"):
        Schema((Categorical("a", ["x"]),), notes=(3,))


def test_a_person_id_makes_the_person_the_unit():
    schema = Schema.from_dict({"x": ["a"]}, person_id="pid", max_rows_per_person=5)
    assert (schema.unit, schema.person_id, schema.max_rows_per_person) == ("person", "pid", 5)
    assert Schema.from_dict({"x": ["a"]}).unit == "row"
    assert Schema.from_dict(schema.to_dict()) == schema
    assert schema.select(["x"]).unit == "person"


@pytest.mark.parametrize(
    ("person", "problem"),
    [
        ({"person_id": "pid"}, "belong together"),
        ({"max_rows_per_person": 5}, "belong together"),
        ({"person_id": "pid", "max_rows_per_person": 0}, "max_rows_per_person"),
        ({"person_id": "pid", "max_rows_per_person": 1.5}, "max_rows_per_person"),
        ({"person_id": "x", "max_rows_per_person": 1}, "take it out of the columns"),
        ({"person_id": "", "max_rows_per_person": 1}, "person_id must be"),
        ({"person_id": 3, "max_rows_per_person": 1}, "person_id must be"),
    ],
)
def test_the_person_id_is_checked(person, problem):
    with pytest.raises(SchemaError, match=problem):
        Schema.from_dict({"x": ["a"]}, **person)


def test_a_column_named_like_a_section_is_still_a_column():
    plain = {"columns": {"type": "numeric", "lower": 0, "upper": 1, "bins": 4}, "table": ["oak", "pine"]}
    schema = Schema.from_dict(plain)
    assert schema.names == ("columns", "table")
    assert Schema.from_dict(schema.to_dict()) == schema
    odd = Schema.from_dict({"type": ["a"], "columns": ["b"], "levels": ["c"]})
    assert Schema.from_dict(odd.to_dict()) == odd


def test_explicit_person_arguments_win_over_a_document():
    document = Schema.from_dict({"x": ["a"]}, person_id="pid", max_rows_per_person=5).to_dict()
    assert Schema.from_dict(document, person_id="other", max_rows_per_person=2).person_id == "other"


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"columns": {"x": ["a"]}, "table": 3}, "section table"),
        ({"columns": {"x": ["a"]}, "table": {"personid": "p"}}, "Did you mean 'person_id'"),
    ],
)
def test_the_table_section_is_checked(document, problem):
    with pytest.raises(SchemaError, match=problem):
        Schema.from_dict(document)


def test_select_keeps_the_given_order(schema):
    assert schema.select(["age", "smoke"]).names == ("age", "smoke")
    assert schema.select("age").names == ("age",)
    with pytest.raises(SchemaError, match="no column 'b'"):
        schema.select(["b"])


def test_with_columns_replaces_by_name_in_place(schema):
    new = schema.with_columns(Numeric("age", 0, 100, 10))
    assert new.names == schema.names
    assert new["age"].size == 10
    with pytest.raises(SchemaError, match="no column 'x'"):
        schema.with_columns(Numeric("x", 0, 1))


@pytest.fixture
def drafted() -> Schema:
    return Schema(
        (
            Categorical("diagnosis", ["Secretitis", "None"], confirmed=False),
            Numeric("age", 17.25, 93.75, confirmed=False),
            Categorical("sex", ["f", "m"]),
            Categorical("town", confirmed=False),
        )
    )


def test_an_unconfirmed_schema_is_refused_with_both_ways_out(drafted):
    assert drafted.unconfirmed == ("diagnosis", "age", "town")
    assert drafted.open_columns == ("town",)
    with pytest.raises(RefusedError) as refusal:
        drafted.require_confirmed(source="visits.toml", data="visits.csv")
    message = str(refusal.value)
    assert message.startswith("the schema was drafted from the data and not confirmed.")
    listed = "columns 'diagnosis' (levels), 'age' (lower, upper) and 'town' (levels)"
    assert f"{listed} still say confirmed = false in visits.toml." in message
    assert "escudo schema confirm visits.toml" in message
    assert "escudo schema learn visits.csv --schema visits.toml --epsilon" in message
    assert message.endswith("Nothing was spent.")
    assert refusal.value.exit_code == 3


def test_the_refusal_of_many_columns_names_the_first_and_how_to_see_all():
    many = Schema(tuple(Categorical(f"q{place}", ["a"], confirmed=False) for place in range(324)))
    with pytest.raises(RefusedError) as refusal:
        many.require_confirmed(source="visits.toml", data="visits.csv")
    message = str(refusal.value)
    assert "columns 'q0' (levels), 'q1' (levels)," in message
    assert "'q7' (levels) and 316 more still say confirmed = false in visits.toml." in message
    assert "escudo schema show visits.toml" in message
    assert len(message) < 800
    with pytest.raises(RefusedError) as one:
        many.select(["q0"]).require_confirmed()
    assert "schema show" not in str(one.value)
    opened = Schema(tuple(Categorical(f"q{place}", confirmed=False) for place in range(324)))
    with pytest.raises(SchemaError, match="'q7' and 316 more have no levels to confirm"):
        opened.confirm()


def test_the_refusal_reads_well_for_one_column_and_no_file(drafted):
    with pytest.raises(RefusedError, match="column 'age' \\(lower, upper\\) still says confirmed = false\\.\n"):
        drafted.select(["age", "sex"]).require_confirmed()


def test_nothing_read_from_data_shows_in_repr_html_or_refusal(drafted):
    with pytest.raises(RefusedError) as refusal:
        drafted.require_confirmed()
    for text in (repr(drafted), drafted._repr_html_(), str(refusal.value)):
        assert "diagnosis" in text
        assert not any(secret in text for secret in ("Secretitis", "17.25", "93.75"))


def test_confirm_vouches_for_named_columns_only(drafted):
    assert drafted.confirm(["age"]).unconfirmed == ("diagnosis", "town")
    assert drafted.confirm("age")["age"].confirmed
    with pytest.raises(SchemaError, match="column 'town' has no levels to confirm"):
        drafted.confirm()
    with pytest.raises(SchemaError, match="no column 'agee'"):
        drafted.confirm(["agee"])
    assert drafted.select(["diagnosis", "age"]).confirm().confirmed


def test_the_fingerprint_names_content_and_order_but_not_remarks(schema):
    assert len(schema.fingerprint) == 64
    assert schema.fingerprint == Schema.from_dict(schema.to_dict()).fingerprint
    assert schema.fingerprint != schema.select(["age", "smoke"]).fingerprint
    assert schema.fingerprint != schema.with_columns(Categorical("smoke", ["yes", "no"])).fingerprint
    remarked = dataclasses.replace(schema, notes=("hello",))
    assert remarked.fingerprint == schema.fingerprint
    assert remarked == schema


def test_the_fingerprint_is_stable_across_releases():
    schema = Schema.from_dict(
        {"smoke": ["no", "yes"], "age": {"type": "numeric", "lower": 0, "upper": 110, "bins": 22}}
    )
    assert schema.fingerprint == "b8c4a8724b5479207ced1640bd4be7ac671edcc839461cf72bfd5d8aa919d5dd"


def test_repr_is_short_even_for_wide_tables(schema):
    assert repr(schema) == "Schema(smoke: 2 levels, age: 22 bins on [0, 110] + missing)"
    wide = Schema.from_dict({f"c{i}": ["a", "b"] for i in range(500)}, person_id="p", max_rows_per_person=3)
    assert len(repr(wide)) < 300
    assert "492 more columns" in repr(wide)
    assert "at most 3 rows each" in repr(wide)


def test_the_html_card_escapes_names_and_says_the_state(drafted):
    card = Schema.from_dict({"<b>": ["a"]}, person_id="<i>", max_rows_per_person=2)._repr_html_()
    assert "&lt;b&gt;" in card
    assert "&lt;i&gt;" in card
    assert "<b>" not in card
    assert "not confirmed" in drafted._repr_html_()
    assert "and 60 more" in Schema.from_dict({f"c{i}": ["a"] for i in range(100)})._repr_html_()


def test_a_schema_is_frozen_hashable_and_pickles(schema):
    with pytest.raises(dataclasses.FrozenInstanceError):
        schema.person_id = "x"
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert len({schema, Schema.from_dict(schema.to_dict())}) == 1


def test_a_column_is_looked_up_not_searched_for():
    class Name(str):
        compared = 0

        def __eq__(self, other):
            Name.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    schema = Schema.from_dict({f"c{number}": ["a", "b"] for number in range(500)})
    last = Name("c499")
    for found in (lambda: schema[last], lambda: schema.columns[last], lambda: last in schema):
        Name.compared = 0
        assert found()
        assert Name.compared < 5
    assert list(schema.columns) == list(schema.names) == list(schema)
    assert 5 not in schema
    assert ["c1"] not in schema
    with pytest.raises(TypeError):
        schema.columns["c1"] = schema["c2"]
