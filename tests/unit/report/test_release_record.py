"""release.json: its documented form, and what it says about noise."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from escudo.privacy import Event, GaussianEvent, Guarantee, LaplaceEvent, Plan, PureEvent
from escudo.report import release_schema
from escudo.report._release_report import FileEntry, added_arrows, noise_of, observed_pairs, release_record
from escudo.synthesis import CausalModel, TableConditional
from escudo.utility import PrivateEvaluation

MADE = datetime(2026, 11, 5, 12, 30, 59, tzinfo=UTC)
ENTRY = FileEntry(path="synthetic.parquet", bytes=3, sha256="0" * 64)
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}


def violations(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str = "$") -> Iterator[str]:
    """Yield where a JSON value breaks a schema: the part of JSON Schema that ours uses."""
    known = {
        "$schema", "title", "description", "$defs", "$ref", "type", "const", "enum", "pattern", "minimum",
        "maximum", "anyOf",
        "required", "properties", "additionalProperties", "items", "minItems", "maxItems",
    }  # fmt: skip
    assert set(schema) <= known, set(schema) - known
    if "$ref" in schema:
        yield from violations(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, at)
    if "anyOf" in schema and all(list(violations(value, option, root, at)) for option in schema["anyOf"]):
        yield f"{at}: none of the forms"
    if "const" in schema and value != schema["const"]:
        yield f"{at}: not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: not one of {schema['enum']}"
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        fits = [isinstance(value, TYPES[name]) and (name == "boolean") == isinstance(value, bool) for name in names]
        if not any(fits):
            yield f"{at}: not a {' or '.join(names)}"
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{at}: does not match"
    if isinstance(value, int | float) and value < schema.get("minimum", -math.inf):
        yield f"{at}: too small"
    if isinstance(value, int | float) and value > schema.get("maximum", math.inf):
        yield f"{at}: too large"
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf):
            yield f"{at}: wrong length"
        for place, item in enumerate(value):
            yield from violations(item, schema.get("items", {}), root, f"{at}[{place}]")
    if isinstance(value, dict):
        yield from (f"{at}: lacks {key}" for key in schema.get("required", []) if key not in value)
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key, schema.get("additionalProperties", {}))
            if inner is False:
                yield f"{at}: unknown key {key}"
            else:
                yield from violations(item, inner, root, f"{at}.{key}")


def subclasses(kind: type[Event]) -> Iterator[type[Event]]:
    for inner in kind.__subclasses__():
        if inner.__module__.startswith("escudo."):
            yield inner
        yield from subclasses(inner)


def record_of(model: CausalModel, **changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"rows": 500, "dataset": "clinic", "seed": None, "made": MADE, "entries": [ENTRY]}
    record = release_record(model, **(options | changes))
    loaded: dict[str, Any] = json.loads(json.dumps(record, allow_nan=False))
    return loaded


class TestForm:
    def test_records_satisfy_the_documented_schema(self, model_of: Callable[..., CausalModel]) -> None:
        for made in (
            model_of(),
            model_of(seeded=True, picks=2, details={"rows": 9, "stated_arrows": [["age", "smoke"]]}),
            model_of(person=3, relation="add_remove"),
            model_of(arrows=[("genes", "smoke"), ("genes", "lung")], latents=["genes"]),
        ):
            record = record_of(made, seed=4)
            assert list(violations(record, release_schema(), release_schema())) == []
            assert record["version"] == 3

    def test_one_without_a_promise_has_a_form_of_its_own(self, model_of: Callable[..., CausalModel]) -> None:
        open_model = replace(model_of(), guarantee=Guarantee(none=True, for_release=False))
        record, schema = record_of(open_model, seed=4), release_schema()
        assert list(violations(record, schema, schema)) == []
        assert record["version"] == 4
        assert "Nothing is promised" in record["warnings"][0]
        assert not {"epsilon", "delta"} & set(record["guarantee"])
        promised = record_of(model_of(), seed=4)
        for changed in (
            {**record, "version": 3},  # whoever reads version 3 never takes it for a release with a promise
            {**promised, "version": 4},
            {**record, "guarantee": {**record["guarantee"], "for_release": True}},
            {**record, "guarantee": {**record["guarantee"], "epsilon": 1.0}},
        ):
            assert list(violations(changed, schema, schema))

    def test_a_record_may_say_how_text_files_are_written(self, model: CausalModel) -> None:
        record = record_of(model)
        said = {"quoted_newlines": True, "delimiter": ";", "encoding": "cp1252", "decimal": ",", "header": ["a", "b"]}
        said |= {"rules": ["smoke = no -> age >= 0"]}
        record["schema"]["description"] = replace(model.schema, **said).to_dict()
        assert record["schema"]["description"]["table"] == said
        assert list(violations(record, release_schema(), release_schema())) == []

    def test_an_evaluation_that_was_paid_for_has_a_documented_form(
        self, model: CausalModel, paid: PrivateEvaluation
    ) -> None:
        few = replace(paid, three_way=None, accuracy=None, baseline=None, intervals={"one_way": (0.0, 1.0)}, chance={})
        for found in (paid, few):
            record = record_of(model, evaluation=found)
            assert record["evaluation"]["paid"]["one_way"] == 0.012
            assert list(violations(record, release_schema(), release_schema())) == []

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("one_way", 1.2),
            ("accuracy", "most"),
            ("deviation", -0.1),
            ("intervals", {"one_way": [0.1]}),
            ("intervals", {"other": [0.1, 0.2]}),
            ("chance", {"accuracy": 0.1}),
            ("guarantee", None),
            ("rows", 17),
        ],
    )
    def test_a_wrong_evaluation_does_not_fit_it(
        self, model: CausalModel, paid: PrivateEvaluation, key: str, value: object
    ) -> None:
        record = record_of(model, evaluation=paid)
        record["evaluation"]["paid"][key] = value
        assert list(violations(record, release_schema(), release_schema()))

    def test_every_kind_of_event_is_documented_with_its_fields(self) -> None:
        kinds = {kind.kind: kind for kind in subclasses(Event) if kind.kind}
        known = release_schema()["$defs"]["event"]["properties"]
        assert set(kinds) == set(known["kind"]["enum"]), "see report/release.schema.json"
        fields = {field.name for kind in kinds.values() for field in dataclasses.fields(kind)}
        assert fields == set(known) - {"kind", "version"}, "see report/release.schema.json"

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("format", "other"),
            ("version", 2),
            ("anchor", {}),
            ("anchor", {"ledger_id": "a", "rows": 1, "head": "0"}),
            ("made.time", "yesterday"),
            ("made.libraries.opendp", None),
            ("guarantee.relation", "bounded"),
            ("guarantee.for_release", 1),
            ("guarantee.delta", -1),
            ("plan.children", {}),
            ("plan.count", 0),
            ("schema.fingerprint", "abc"),
            ("graph.edges", [["a"]]),
            ("synthetic.rows", 0),
            ("evaluation.noise", [{}]),
            ("evaluation.paid", {}),
            ("graph.observed", [["a", "b", "c"]]),
            ("files", [{"path": "x", "bytes": 1, "sha256": "z"}]),
            ("extra", 1),
        ],
    )
    def test_a_wrong_record_does_not(self, model: CausalModel, path: str, value: object) -> None:
        record = record_of(model)
        *parents, last = path.split(".")
        place = record
        for key in parents:
            place = place[key]
        place[last] = value
        assert list(violations(record, release_schema(), release_schema()))

    def test_every_required_key_is_needed(self, model: CausalModel) -> None:
        for key in release_schema()["required"]:
            record = record_of(model)
            del record[key]
            assert list(violations(record, release_schema(), release_schema())) == [f"$: lacks {key}"]

    def test_keys_come_in_the_order_of_the_schema(self, model: CausalModel) -> None:
        assert list(record_of(model)) == release_schema()["required"] == list(release_schema()["properties"])

    def test_it_says_what_was_promised_and_how(self, model: CausalModel) -> None:
        record = record_of(model)
        assert record["made"]["time"] == "2026-11-05T12:30:59Z"
        assert set(record["made"]["libraries"]) == {"dp-accounting", "numpy", "opendp", "polars"}
        assert record["guarantee"] == json.loads(json.dumps(model.guarantee.to_json()))
        assert record["plan"] == json.loads(json.dumps(model.plan.to_json()))
        assert record["schema"]["fingerprint"] == model.schema.fingerprint
        assert record["graph"]["edges"] == [list(edge) for edge in model.graph.edges]
        assert record["synthetic"] == {"rows": 500, "seed": None}


class TestArrows:
    def test_those_that_nobody_stated_are_told_apart(self, model_of: Callable[..., CausalModel]) -> None:
        assert added_arrows(model_of()) is None
        stated = model_of(details={"stated_arrows": [["age", "smoke"], ["smoke", "lung"]]})
        assert added_arrows(stated) == (("age", "lung"),)
        assert record_of(stated)["graph"]["added"] == [["age", "lung"]]

    def test_a_latents_arrows_are_never_added_ones(self, model_of: Callable[..., CausalModel]) -> None:
        hidden = model_of(
            arrows=[("genes", "smoke"), ("genes", "lung")], latents=["genes"], details={"stated_arrows": []}
        )
        assert added_arrows(hidden) == ()


class TestWhatGoesTogether:
    def observed(self, model: CausalModel, **given: tuple[str, ...]) -> CausalModel:
        laws = {}
        for name in model.schema.names:
            several = given.get(name, ())
            shape = model.schema.shape([*several, name])
            laws[name] = TableConditional(several, np.full(shape, 1 / shape[-1]))
        return replace(model, observed=laws)

    def test_it_is_what_no_arrow_joins(self, model: CausalModel) -> None:
        seen = self.observed(model, lung=("smoke", "region"), smoke=("age",), region=("age",))
        assert observed_pairs(seen) == (("age", "region"), ("lung", "region"))
        record = record_of(seen)
        assert record["graph"]["observed"] == [["age", "region"], ["lung", "region"]]
        assert list(violations(record, release_schema(), release_schema())) == []

    def test_laws_along_the_arrows_add_nothing(self, model: CausalModel) -> None:
        assert observed_pairs(model) == ()
        assert observed_pairs(self.observed(model, lung=("smoke", "age"), smoke=("age",))) == ()


class TestNoise:
    def with_event(self, model: CausalModel, event: Any, count: int = 1) -> CausalModel:
        return replace(model, plan=Plan("all", children=[Plan("part", event, count=count)], count=2))

    @pytest.mark.parametrize(("relation", "person"), [("replace_one", None), ("add_remove", None), ("add_remove", 4)])
    def test_on_counts_it_is_in_rows_and_a_share_of_the_tables_rows(
        self, model_of: Callable[..., CausalModel], relation: str, person: int | None
    ) -> None:
        made = model_of(relation=relation, person=person, scale=25.0, details={"rows": 1000})
        for noise in noise_of(made, 77):
            assert noise.rows == pytest.approx(25.0)
            assert noise.share == pytest.approx(0.025)

    def test_without_a_known_number_of_rows_shares_are_of_the_synthetic_ones(
        self, model_of: Callable[..., CausalModel]
    ) -> None:
        assert noise_of(model_of(scale=25.0), 500)[0].share == pytest.approx(0.05)

    def test_on_sums_that_are_no_counts_only_its_ratio_is_told(self, model: CausalModel) -> None:
        event = GaussianEvent(l2_sensitivity=300.0, scale=900.0, grid=1.0)
        (noise,) = noise_of(self.with_event(model, event), 500)
        assert (noise.rows, noise.share) == (None, None)
        assert noise.deviation == pytest.approx(3.0)

    def test_laplace_noise_is_told_by_its_standard_deviation(self, model: CausalModel) -> None:
        event = LaplaceEvent(l1_sensitivity=2.0, scale=10.0, grid=1.0, dimensions=4)
        (noise,) = noise_of(self.with_event(model, event, count=3), 500)
        assert noise.rows == pytest.approx(10 * math.sqrt(2))
        assert noise.count == 6

    def test_steps_that_add_no_noise_to_numbers_are_left_out(self, model: CausalModel) -> None:
        assert noise_of(self.with_event(model, PureEvent(epsilon=0.1)), 500) == []

    def test_guarantees_in_other_notions_are_documented_too(self) -> None:
        schema = release_schema()
        for guarantee in (Guarantee(rho=0.1), Guarantee(mu=0.2), Guarantee(curve=((0.5, 1e-4), (1.0, 1e-6)))):
            document = json.loads(json.dumps(guarantee.to_json()))
            assert list(violations(document, schema["$defs"]["guarantee"], schema)) == []
