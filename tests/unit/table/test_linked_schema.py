"""A schema of linked tables says what it means, survives its formats, and refuses what is wrong in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.errors import EscudoError, InputError, RefusedError, SchemaError
from escudo.table import LinkedSchema, Schema, confirm_linked_file, read_any_schema


def document(**changed: Any) -> dict[str, Any]:
    """Return a clinic as plain data, with settings of the visits changed; None takes one out."""
    visits = {
        **{"parent": "patients", "foreign_key": "patient", "order": "date", "most": 6},
        **{"start_edges": [0, 30, 900], "gap_edges": [0, 30, 900]},
        "columns": {"severity": {"type": "ordinal", "levels": ["none", "mild", "severe"]}, "treat": ["no", "yes"]},
        **changed,
    }
    patients = {"key": "patient", "origin": "entry", "columns": {"smoke": ["no", "yes"]}}
    return {
        "linked": {"people": "patients"},
        "tables": {"patients": patients, "visits": {key: value for key, value in visits.items() if value is not None}},
    }


def test_it_survives_toml_json_and_plain_data(tmp_path: Path) -> None:
    schema = LinkedSchema.from_dict(document(weighting="unit", events=True, confirmed=False, delimiter=";"))
    assert LinkedSchema.from_dict(schema.to_dict()) == schema
    for ending in ("toml", "json"):
        schema.write(tmp_path / f"clinic.{ending}")
        assert LinkedSchema.read(tmp_path / f"clinic.{ending}") == schema
        assert read_any_schema(tmp_path / f"clinic.{ending}") == schema
    assert schema.fingerprint == LinkedSchema.from_dict(schema.to_dict()).fingerprint
    with pytest.raises(InputError, match="exists already"):
        schema.write(tmp_path / "clinic.toml")


def test_a_schema_of_one_table_is_still_read_as_one(tmp_path: Path) -> None:
    Schema.from_dict({"smoke": ["no", "yes"]}).write(tmp_path / "one.toml")
    assert isinstance(read_any_schema(tmp_path / "one.toml"), Schema)


def test_awkward_names_survive_toml() -> None:
    schema = LinkedSchema.from_dict(
        {
            "linked": {"people": "die Leute", "dates": "%d.%m.%Y"},
            "tables": {
                "die Leute": {"key": "a.b", "origin_day": "2020-02-29", "columns": {'x"y': ["columns.", "[columns."]}},
                "Besuche": {**document()["tables"]["visits"], "parent": "die Leute"},
            },
        }
    )
    import tomllib

    assert LinkedSchema.from_dict(tomllib.loads(schema.to_toml())) == schema
    assert schema.to_dict()["tables"]["die Leute"]["origin_day"] == "2020-02-29"


def test_names_of_all_columns_begin_with_their_table() -> None:
    schema = LinkedSchema.from_dict(document())
    assert schema.names == (
        *("patients.smoke", "visits.severity", "visits.treat"),
        *("visits.count", "visits.start", "visits.gap", "visits.number"),
    )
    assert schema.table_of("visits.severity") == "visits"
    assert schema.max_rows_per_person == 7
    with pytest.raises(SchemaError, match=r"Did you mean 'visits.treat'"):
        schema.column("visits.treet")


def test_what_is_not_confirmed_refuses_a_release_and_is_confirmed_by_name(tmp_path: Path) -> None:
    told = document(confirmed=False)
    told["tables"]["patients"]["columns"]["smoke"] = {"type": "categorical", "levels": ["no"], "confirmed": False}
    schema = LinkedSchema.from_dict(told)
    assert schema.unconfirmed == ("patients.smoke", "visits")
    with pytest.raises(RefusedError, match=r"patients\.smoke and visits"):
        schema.require_confirmed()
    schema.write(tmp_path / "clinic.toml")
    assert confirm_linked_file(tmp_path / "clinic.toml", ["visits"]) == ("visits",)
    assert confirm_linked_file(tmp_path / "clinic.toml") == ("patients.smoke",)
    LinkedSchema.read(tmp_path / "clinic.toml").require_confirmed()
    with pytest.raises(SchemaError, match="no column is called 'nothing'"):
        schema.confirm(["nothing"])


def nested(**changed: Any) -> dict[str, Any]:
    """Return the clinic with prescriptions of visits, whose settings are changed; None takes one out."""
    told = document(key="visit")
    drugs = {
        **{"parent": "visits", "foreign_key": "patient", "row_key": "of", "most": 3},
        "columns": {"drug": ["x", "y"]},
        **changed,
    }
    drugs = {key: value for key, value in drugs.items() if value is not None}
    tables = told["tables"]
    return {**told, "tables": {"patients": tables["patients"], "prescriptions": drugs, "visits": tables["visits"]}}


def test_rows_of_rows_come_after_their_rows_and_survive_every_form(tmp_path: Path) -> None:
    days = {"order": "filled", "start_edges": [0, 7, 90], "gap_edges": [0, 7, 90]}
    for schema in (LinkedSchema.from_dict(nested()), LinkedSchema.from_dict(nested(**days, events=True))):
        assert schema.tables == ("patients", "visits", "prescriptions")
        assert LinkedSchema.from_dict(schema.to_dict()) == schema
        for ending in ("toml", "json"):
            schema.write(tmp_path / f"clinic.{ending}", overwrite=True)
            assert LinkedSchema.read(tmp_path / f"clinic.{ending}") == schema
        assert schema.max_rows_per_person == 1 + 6 + 6 * 3
        assert [child.name for child in schema.of_people] == ["visits"]
        assert [child.name for child in schema.of_rows("visits")] == ["prescriptions"]
        assert schema.reading("prescriptions").keys == ("patient", "of")
        assert schema.reading("visits").keys == ("patient", "visit")
    assert {"prescriptions.count", "prescriptions.number"} <= set(LinkedSchema.from_dict(nested()).names)
    assert "prescriptions.gap" not in LinkedSchema.from_dict(nested()).names


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"row_key": None}, "'prescriptions': row_key is missing"),
        ({"row_key": "patient"}, "row_key and foreign_key are the same column"),
        ({"row_key": "number"}, "cannot be called 'number'"),
        ({"row_key": "drug"}, "column 'drug' is the row_key"),
        ({"row_key": 3}, "must be the name of a column"),
        ({"key": "id"}, "key is for rows that have rows"),
        ({"parent": "prescriptions"}, "parent must be 'patients'"),
        ({"parent": "nobody"}, "parent must be 'patients'"),
        ({"parent": "patients"}, "'prescriptions': order is missing"),
        ({"parent": "patients", "order": "day", "start_edges": [0, 1], "gap_edges": [0, 1]}, "row_key is for rows of"),
        ({"order": "filled"}, "start_edges is missing"),
        ({"start_edges": [0, 3]}, "there is no order"),
        ({"most": 4000}, "more than the 4,096 of one person"),
    ],
)
def test_what_is_wrong_with_rows_of_rows_is_said(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        LinkedSchema.from_dict(nested(**changed))


def test_what_rows_need_to_have_rows_is_said() -> None:
    told = nested()
    del told["tables"]["visits"]["key"]
    with pytest.raises(SchemaError, match=r"'visits': key is missing: .* row_key of 'prescriptions'"):
        LinkedSchema.from_dict(told)
    told = nested()
    told["tables"]["refills"] = {**told["tables"]["prescriptions"], "parent": "prescriptions"}
    with pytest.raises(
        SchemaError, match=r"'refills': its parent 'prescriptions' holds rows of rows .* count its rows"
    ):
        LinkedSchema.from_dict(told)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"parent": "visits"}, "parent must be 'patients'"),
        ({"foreign_key": None}, "foreign_key is missing"),
        ({"most": 0}, "most must be"),
        ({"most": 5000}, "at most 4,096"),
        ({"most": "many"}, "most must be"),
        ({"count_edges": [0, 2, 4]}, "must begin with 0, 1, 2"),
        ({"count_edges": [0, 1, 2.5]}, "increasing whole numbers"),
        ({"gap_edges": [1, 2]}, "must begin with 0"),
        ({"gap_edges": [0]}, "at least two"),
        ({"gap_edges": "0,1"}, "must be a list"),
        ({"start_edges": [0, float("nan")]}, "whole numbers of days"),
        ({"weighting": "voise"}, "Did you mean 'voice'"),
        ({"events": "yes"}, "must be true or false"),
        ({"moist": 3}, "Did you mean 'most'"),
        ({"columns": {"count": ["no"]}}, "no column can be called 'count'"),
        ({"columns": {"a@b": ["no"]}}, "marks the row before"),
        ({"columns": {"patient": ["no"]}}, "identifies people"),
        ({"columns": {"date": ["no"]}}, "released as start and gap"),
        ({"columns": {}}, "at least one column"),
        ({"columns": None}, "no columns are described"),
        ({"person_id": "x"}, "has no key 'person_id'"),
    ],
)
def test_what_is_wrong_is_said_with_the_table(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError, match=words) as error:
        LinkedSchema.from_dict(document(**changed))
    assert "visits" in str(error.value)


@pytest.mark.parametrize(
    ("patients", "words"),
    [
        ({"origin": None}, "say from when days are counted"),
        ({"origin_day": "2020-01-01"}, "one of them"),
        ({"origin": None, "origin_day": "soon"}, "origin_day must be a day"),
        ({"key": None}, "key is missing"),
        ({"key": "smoke"}, "identifies people"),
    ],
)
def test_what_is_wrong_with_people_is_said(patients: dict[str, Any], words: str) -> None:
    told = document()
    changed = {**told["tables"]["patients"], **patients}
    told["tables"]["patients"] = {key: value for key, value in changed.items() if value is not None}
    with pytest.raises(SchemaError, match=words):
        LinkedSchema.from_dict(told)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=4)),
    max_leaves=12,
)
KEYS = [
    "parent",
    "foreign_key",
    "order",
    "most",
    "count_edges",
    "start_edges",
    "gap_edges",
    "weighting",
    "events",
    "columns",
]


@given(
    st.dictionaries(st.sampled_from([*KEYS, "row_key", "key", "confirmed", "delimiter", "x"]), JSON, max_size=4),
    JSON,
    JSON,
)
def test_nothing_that_a_file_may_hold_makes_it_fail_in_another_way(changed: Any, people: Any, linked: Any) -> None:
    for told in (
        document(**changed),
        nested(**changed),
        {**document(), "linked": linked},
        {**document(), "tables": people},
        {"linked": {"people": "patients"}, "tables": {**document()["tables"], "patients": people}},
    ):
        try:
            schema = LinkedSchema.from_dict(told)
        except EscudoError:
            continue
        assert LinkedSchema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
