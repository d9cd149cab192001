"""effect_of: right answers on simulated tables, honest refusals, one charge, nothing private shown."""

from __future__ import annotations

import json
import math

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.discovery._effect_of import effect_of, prepare_effect
from escudo.errors import BudgetExceededError, InputError, NotIdentifiableError, RefusedError, SchemaError
from escudo.privacy import GaussianEvent, LaplaceEvent, MemoryAccount, Plan, plan
from escudo.table import PrivateTable, Schema

ROWS = 20_000
GRAPH = CausalGraph.from_edges(
    [("age", "drug"), ("age", "well"), ("drug", "well"), ("age", "score"), ("drug", "score")]
)
TRUTH = 0.2


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    """A drug that helps by 0.2 and is given to those who fare worse anyway: the raw difference has the wrong sign."""
    rng = np.random.default_rng(5)
    age = rng.integers(0, 3, ROWS)
    drug = rng.random(ROWS) < np.array([0.1, 0.5, 0.9])[age]
    well = rng.random(ROWS) < np.array([0.7, 0.45, 0.1])[age] + TRUTH * drug
    dose = np.where(drug, rng.integers(1, 3, ROWS), 0)
    return pl.DataFrame(
        {
            "age": np.array(["young", "middle", "old"])[age],
            "drug": np.where(drug, "yes", "no"),
            "well": np.where(well, "yes", "no"),
            "score": 20 + 10.0 * (2 - age) + 8 * drug + rng.normal(0, 4, ROWS),
            "dose": np.array(["none", "low", "high"])[dose],
            "stars": np.clip(1 + well + rng.integers(0, 3, ROWS), 1, 5),
            "person": rng.integers(0, ROWS // 2, ROWS),
        }
    )


COLUMNS: dict[str, object] = {
    "age": ["young", "middle", "old"],
    "drug": ["no", "yes"],
    "well": ["no", "yes"],
    "score": {"type": "numeric", "lower": 0, "upper": 70},
    "dose": ["none", "low", "high"],
    "stars": [1, 2, 3, 4, 5],
}


@pytest.fixture(scope="module")
def schema() -> Schema:
    return Schema.from_dict(COLUMNS)


@pytest.fixture
def table(frame: pl.DataFrame, schema: Schema) -> PrivateTable:
    return PrivateTable(frame, schema)


@pytest.mark.parametrize("delta", [0.0, 1e-6], ids=["laplace", "gaussian"])
def test_adjustment_turns_a_misleading_difference_into_the_true_effect(table: PrivateTable, delta: float) -> None:
    found = effect_of(table, "drug", "well", graph=GRAPH, epsilon=1.0, delta=delta, seed=1)
    assert found.adjustment == ("age",)
    assert found.method == "back-door"
    assert found.interval[0] < TRUTH < found.interval[1]
    assert found.interval[1] - found.interval[0] < 0.07
    raw = effect_of(table, "drug", "well", trial=True, epsilon=1.0, delta=delta, seed=1)
    assert raw.interval[1] < 0


def test_the_mean_of_a_number_needs_no_bins(table: PrivateTable) -> None:
    found = effect_of(table, "drug", "score", graph=GRAPH, epsilon=1.0, seed=2)
    assert found.interval[0] < 8.0 < found.interval[1]
    assert found.interval[1] - found.interval[0] < 1.5
    assert found.meaning == "the mean of score"
    assert [arm.level for arm in found.arms] == ["no", "yes"]
    assert found.arms[0].interval[0] < 30 < found.arms[0].interval[1]


def test_whole_number_levels_are_averaged(table: PrivateTable, frame: pl.DataFrame) -> None:
    found = effect_of(table, "dose", "stars", trial=True, epsilon=100.0, seed=1)
    means = {level: frame.filter(pl.col("dose") == level)["stars"].mean() for level in ("none", "high")}
    assert found.value == pytest.approx(means["high"] - means["none"], abs=0.01)


def test_with_hardly_any_noise_the_estimate_is_the_textbook_one(table: PrivateTable, frame: pl.DataFrame) -> None:
    found = effect_of(table, "drug", "well", adjust=["age"], epsilon=100.0, seed=3)
    groups = frame.group_by("age", "drug").agg((pl.col("well") == "yes").mean().alias("m"), pl.len().alias("n"))
    value = 0.0
    for age in ("young", "middle", "old"):
        cell = {row["drug"]: row for row in groups.filter(pl.col("age") == age).to_dicts()}
        value += (cell["yes"]["n"] + cell["no"]["n"]) / ROWS * (cell["yes"]["m"] - cell["no"]["m"])
    assert found.value == pytest.approx(value, abs=1e-3)
    assert found.method == "stated"


def test_every_pair_of_levels_is_compared(table: PrivateTable) -> None:
    found = effect_of(table, "dose", "well", adjust=["age"], epsilon=2.0, contrast=("none", "low"), seed=4)
    assert (found.control, found.treated) == ("none", "low")
    assert len(found.contrasts) == 3
    back, forth = found.between("high", "none"), found.between("none", "high")
    assert back.value == -forth.value
    assert back.interval == (-forth.interval[1], -forth.interval[0])
    with pytest.raises(InputError, match="none, low; none, high; low, high"):
        found.between("none", "huge")


def test_a_chosen_level_of_the_outcome_is_its_share(table: PrivateTable, frame: pl.DataFrame) -> None:
    found = effect_of(table, "drug", "age", trial=True, outcome_level="old", epsilon=100.0, seed=1)
    shares = [(frame.filter(pl.col("drug") == d)["age"] == "old").mean() for d in ("no", "yes")]
    assert found.value == pytest.approx(shares[1] - shares[0], abs=1e-3)
    with pytest.raises(InputError, match="'age' has 3 levels; say whose share"):
        effect_of(table, "drug", "age", trial=True, epsilon=1.0)


def test_yes_is_compared_with_no_whatever_their_order(frame: pl.DataFrame) -> None:
    swapped = Schema.from_dict({**COLUMNS, "drug": ["yes", "no"], "well": ["yes", "no"]})
    found = effect_of(PrivateTable(frame, swapped), "drug", "well", graph=GRAPH, epsilon=1.0, seed=1)
    assert (found.control, found.treated) == ("no", "yes")
    assert found.meaning.endswith("well = yes")
    assert found.value > 0


def test_too_little_budget_gives_everything_and_says_so(table: PrivateTable) -> None:
    found = effect_of(table, "drug", "well", graph=GRAPH, epsilon=1e-4, seed=6)
    assert found.interval == (-1.0, 1.0)
    assert found.verdict.startswith("Cannot tell")
    assert not found.contrasts[0].sign_known


def test_an_arm_that_is_missing_somewhere_is_reported_and_bounded() -> None:
    rng = np.random.default_rng(1)
    old = rng.random(20_000) < 0.3
    drug = ~old & (rng.random(20_000) < 0.5)  # nobody old ever got it
    frame = pl.DataFrame({"old": old, "drug": drug, "well": rng.random(20_000) < 0.5})
    schema = Schema.from_dict({name: {"type": "boolean"} for name in ("old", "drug", "well")})
    found = effect_of(PrivateTable(frame, schema), "drug", "well", adjust=["old"], epsilon=1.0, seed=1)
    assert len(found.warnings) == 1
    assert "About 30% of the rows" in found.warnings[0]
    assert "drug = True" in found.warnings[0]
    assert "old = True" in found.warnings[0]
    low, high = found.interval
    assert high - low == pytest.approx(0.3, abs=0.06)  # the mean among them may be anything from 0 to 1


def test_missing_values_leave_the_rest_to_stand_for_them(frame: pl.DataFrame) -> None:
    rng = np.random.default_rng(2)
    gone = frame.with_columns(
        well=pl.when(pl.Series(rng.random(ROWS) < 0.2)).then(None).otherwise(pl.col("well")),
        drug=pl.when(pl.Series(rng.random(ROWS) < 0.1)).then(None).otherwise(pl.col("drug")),
    )
    spec = {"type": "categorical", "levels": ["no", "yes"], "missing": True}
    schema = Schema.from_dict({**COLUMNS, "drug": spec, "well": spec})
    found = effect_of(PrivateTable(gone, schema), "drug", "well", graph=GRAPH, epsilon=1.0, seed=1)
    assert [arm.level for arm in found.arms] == ["no", "yes"]
    assert found.interval[0] < TRUTH < found.interval[1]
    assert any("missing treatment or outcome" in note for note in found.notes)


def test_a_person_with_several_rows_is_protected_and_allowed_for(frame: pl.DataFrame, table: PrivateTable) -> None:
    schema = Schema.from_dict(COLUMNS, person_id="person", max_rows_per_person=4)
    found = effect_of(PrivateTable(frame, schema), "drug", "well", graph=GRAPH, epsilon=1.0, seed=1)
    assert found.guarantee.unit == "person"
    assert found.guarantee.max_rows_per_person == 4
    alone = effect_of(table, "drug", "well", graph=GRAPH, epsilon=1.0, seed=1)
    assert found.interval[0] < TRUTH < found.interval[1]
    assert np.diff(found.interval)[0] > 1.5 * np.diff(alone.interval)[0]
    assert any("average is over rows" in note for note in found.notes)


def test_days_are_compared_by_their_bins() -> None:
    frame = pl.DataFrame({"born": ["1951-05-01", "1991-05-01"] * 500, "well": ["yes", "no"] * 500})
    born = {"type": "date", "lower": "1940-01-01", "upper": "1999-12-31", "bins": 6}
    days = PrivateTable(
        frame.with_columns(pl.col("born").str.to_date()), Schema.from_dict({"born": born, "well": ["no", "yes"]})
    )
    found = effect_of(days, "born", "well", trial=True, contrast=("1951-01-01", "1992-12-31"), epsilon=2.0, seed=1)
    for arm, day in ((found.control, "1951-01-01"), (found.treated, "1992-12-31")):
        first, last = arm.split(" to ")
        assert first <= day <= last
    assert found.value < -0.9
    with pytest.raises(InputError, match="has no level '2010-01-01'"):
        effect_of(days, "born", "well", trial=True, contrast=("1951-01-01", "2010-01-01"), epsilon=2.0)


def test_a_treatment_in_numbers_is_taken_in_the_schemas_bins(table: PrivateTable) -> None:
    found = effect_of(table, "score", "well", trial=True, contrast=(20, 60.0), epsilon=1.0, seed=1)
    assert found.control.startswith("[17.5,")
    assert len(found.contrasts) == 19
    assert {one.control for one in found.contrasts} == {found.control}
    assert any("bins" in note for note in found.notes)


class TestBudget:
    @pytest.mark.parametrize("outcome", ["well", "score"])
    @pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
    @pytest.mark.parametrize("delta", [0.0, 1e-6], ids=["laplace", "gaussian"])
    def test_the_promise_is_what_was_asked_for(self, schema: Schema, outcome: str, relation: str, delta: float) -> None:
        prepared = prepare_effect(schema, "drug", outcome, trial=True, epsilon=0.7, delta=delta, relation=relation)
        promise = prepared.plan.guarantee()
        assert promise.epsilon == pytest.approx(0.7, rel=1e-3)
        assert promise.epsilon <= 0.7 * (1 + 1e-9)
        assert (promise.delta, promise.relation) == (delta, relation)
        assert isinstance(prepared.table.event, LaplaceEvent if delta == 0 else GaussianEvent)

    def test_the_account_is_charged_once_with_what_the_plan_shows(self, frame: pl.DataFrame, schema: Schema) -> None:
        account = MemoryAccount(epsilon=1.0)
        table = PrivateTable(frame, schema, account)
        shown = plan(effect_of, table, "drug", "well", graph=GRAPH, epsilon=0.6)
        assert account.receipts == ()
        found = effect_of(table, "drug", "well", graph=GRAPH, epsilon=0.6)
        assert [receipt.event for receipt in account.receipts] == [shown.event]
        assert found.guarantee.for_release
        with pytest.raises(BudgetExceededError):
            effect_of(table, "drug", "well", graph=GRAPH, epsilon=0.6)

    def test_a_seeded_run_is_not_for_release(self, table: PrivateTable) -> None:
        assert not effect_of(table, "drug", "well", trial=True, epsilon=1.0, seed=0).guarantee.for_release

    def test_the_forecast_is_about_right(self, table: PrivateTable) -> None:
        shown = plan(effect_of, table, "drug", "well", trial=True, epsilon=0.1, public_rows=ROWS)
        forecast = float(shown.children[1].buys.split()[0].removeprefix("±"))
        found = effect_of(table, "drug", "well", trial=True, epsilon=0.1, seed=1)
        assert (found.interval[1] - found.interval[0]) / 2 == pytest.approx(forecast, rel=0.3)

    def test_an_unconfirmed_schema_is_refused(self, frame: pl.DataFrame) -> None:
        spec = {"type": "categorical", "levels": ["no", "yes"], "confirmed": False}
        drafted = Schema.from_dict({**COLUMNS, "drug": spec})
        with pytest.raises(RefusedError):
            effect_of(PrivateTable(frame, drafted), "drug", "well", trial=True, epsilon=1.0)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({}, InputError, "give a graph, or the columns to adjust for"),
        ({"trial": True, "adjust": ["age"]}, InputError, "leave graph and adjust out"),
        ({"trial": True, "graph": GRAPH}, InputError, "leave graph and adjust out"),
        ({"adjust": "age"}, InputError, "list of columns"),
        ({"adjust": ["agee"]}, SchemaError, "agee"),
        ({"adjust": ["well"]}, InputError, "is the treatment or the outcome"),
        ({"graph": GRAPH, "adjust": []}, NotIdentifiableError, "drug ← age → well"),
        ({"trial": True, "contrast": ("no", "maybe")}, InputError, "no level 'maybe'"),
        ({"trial": True, "contrast": ("no", "no")}, InputError, "same level"),
        ({"trial": True, "contrast": "yes"}, InputError, "two levels"),
        ({"trial": True, "epsilon": 0.0}, InputError, "epsilon"),
        ({"trial": True, "epsilon": 1e-300}, InputError, "noise scale"),
        ({"trial": True, "delta": 1.0}, InputError, "delta"),
        ({"trial": True, "confidence": 1.0}, InputError, "confidence"),
        ({"trial": True, "outcome": "score", "outcome_level": 3}, InputError, "is a number"),
        ({"trial": True, "outcome": "drug"}, InputError, "both 'drug'"),
        ({"trial": True, "outcome": "pain"}, SchemaError, "pain"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_what_cannot_be_answered_is_refused_before_anything_is_spent(
    frame: pl.DataFrame, schema: Schema, arguments: dict[str, object], error: type[Exception], match: str
) -> None:
    account = MemoryAccount()
    table = PrivateTable(frame, schema, account)
    options = {"outcome": "well", "epsilon": 1.0, **arguments}
    with pytest.raises(error, match=match):
        effect_of(table, "drug", options.pop("outcome"), **options)
    assert account.receipts == ()


@pytest.mark.parametrize("epsilon", [1.0, 1e-3, 1e-9, 2e-15])
def test_the_variance_of_laplace_noise_holds_however_much_there_is(schema: Schema, epsilon: float) -> None:
    table = prepare_effect(schema, "drug", "well", trial=True, epsilon=epsilon).table
    assert table.noise_variance == pytest.approx(2 * table.event.scale**2, rel=0.1 * epsilon**2 + 1e-9)


def test_a_single_level_cannot_be_compared(frame: pl.DataFrame) -> None:
    schema = Schema.from_dict({**COLUMNS, "drug": ["yes"]})
    with pytest.raises(SchemaError, match="single level"):
        effect_of(PrivateTable(frame, schema), "drug", "well", trial=True, epsilon=1.0)


def test_too_many_cells_are_refused_by_name() -> None:
    wide = {"type": "numeric", "lower": 0, "upper": 1, "bins": 1000}
    schema = Schema.from_dict({"a": wide, "b": wide, "t": ["no", "yes"], "y": ["no", "yes"]})
    with pytest.raises(InputError, match="'t', 'y' and 'a', 'b' would have 5,000,000 numbers"):
        prepare_effect(schema, "t", "y", adjust=["a", "b"], epsilon=1.0)


def test_the_result_tells_itself(table: PrivateTable) -> None:
    found = effect_of(table, "drug", "well", graph=GRAPH, epsilon=1.0, seed=1)
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert data["value"] == found.value
    assert data["adjustment"] == ["age"]
    assert Plan.from_json(data["plan"]).event == found.plan.event
    assert str(found).startswith("Setting drug from no to yes raises the share of rows with well = yes by 0.")
    assert repr(found).startswith("<TreatmentEffect of drug (no to yes) on well: 0.")
    assert "do(drug = yes)" in found._repr_html_()
    assert found.estimand == (
        "E[1[well = yes] | do(drug = yes)] - E[1[well = yes] | do(drug = no)] = "
        "Σ_z P(z) (E[1[well = yes] | drug = yes, z] - E[1[well = yes] | drug = no, z]), z = (age)"
    )


def test_engines_agree_to_the_last_digit(frame: pl.DataFrame, schema: Schema) -> None:
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.from_arrow(frame.to_arrow())
    found = [
        effect_of(PrivateTable(data, schema), "drug", "score", graph=GRAPH, epsilon=1.0, seed=1).to_json()
        for data in (frame, frame.lazy(), frame.to_pandas(), relation)
    ]
    assert all(one == found[0] for one in found[1:])


def test_a_narrow_range_far_from_zero_still_has_bins() -> None:
    rng = np.random.default_rng(0)
    treated = rng.random(4000) < 0.5
    frame = pl.DataFrame({"t": treated, "y": 1e9 + 2e-4 * rng.random(4000) + 5e-4 * treated})
    schema = Schema.from_dict({"t": {"type": "boolean"}, "y": {"type": "numeric", "lower": 1e9, "upper": 1e9 + 1e-3}})
    found = effect_of(PrivateTable(frame, schema), "t", "y", trial=True, epsilon=5.0, seed=1)
    assert math.isclose(found.value, 5e-4, rel_tol=0.2)


def test_an_account_says_between_which_tables_without_being_told_twice(frame: pl.DataFrame, schema: Schema) -> None:
    account = MemoryAccount(relation="add_remove")
    found = effect_of(PrivateTable(frame, schema, account), "drug", "well", graph=GRAPH, epsilon=1.0, seed=1)
    assert found.guarantee.relation == "add_remove"
    assert [receipt.event.relation for receipt in account.receipts] == ["add_remove"]
    assert found.plan.leaves()[0].name == "table of well by drug by age"
