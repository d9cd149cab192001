"""The verb ``direction``: answers, refusals, budgets, and what is said to people."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

import escudo
from escudo.errors import BudgetExceededError, InputError, RefusedError, SchemaError
from escudo.orientation import CANNOT_TELL, Direction, PairData, direction
from escudo.orientation._votes import probability_of
from escudo.privacy import LaplaceEvent, MemoryAccount, Plan, plan
from escudo.table import PrivateTable, Schema, _contributions

BOUNDS = {"type": "numeric", "lower": -2.0, "upper": 2.0}


def frame(rows: int, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    cause = rng.uniform(-1, 1, rows)
    return pl.DataFrame({"cause": cause, "effect": np.tanh(3 * cause) + 0.2 * rng.uniform(-1, 1, rows)})


def table(rows: int = 2000, *, missing: bool = False, **options: Any) -> PrivateTable:
    spec = {**BOUNDS, "missing": missing}
    return PrivateTable(frame(rows), Schema.from_dict({"cause": spec, "effect": spec}), **options)


# -- answers


@pytest.mark.parametrize("method", ["votes", "gap", "paper"])
def test_a_derived_column_is_asked_about_like_any_other(method: str) -> None:
    rng = np.random.default_rng(0)
    start = rng.uniform(0, 1, 2_000)
    ages = pl.DataFrame({"birth": start, "visit": start + (cause := rng.uniform(-1, 1, 2_000)), "effect": cause**3})
    day = {"type": "numeric", "lower": -2.0, "upper": 3.0}
    schema = Schema.from_dict(
        {"birth": day, "visit": day, "age": {**BOUNDS, "from": "visit - birth"}, "effect": BOUNDS}
    )
    worked_out = ages.with_columns(age=pl.col("visit") - pl.col("birth"))

    def margin(rows: pl.DataFrame, described: Schema) -> float:
        known: dict[str, Any] = {} if method == "votes" else {"train": rows}
        data = PrivateTable(rows, described)
        return direction(data, "age", "effect", epsilon=1.0, method=method, seed=0, **known).margin

    assert margin(ages, schema) == margin(worked_out, Schema.from_dict({"age": BOUNDS, "effect": BOUNDS}))


@pytest.mark.parametrize(("x", "y"), [("cause", "effect"), ("effect", "cause")])
@pytest.mark.parametrize("score", ["committee", "committee-3", "trained", "independence"])
def test_the_cause_is_found_whichever_column_comes_first(x: str, y: str, score: str) -> None:
    found = direction(table(), x, y, epsilon=1.0, score=score, seed=0)
    assert found.verdict == "cause->effect"
    assert (found.cause, found.effect) == ("cause", "effect")
    assert (found.margin > 0) == (x == "cause")
    assert found.stability > 0.99
    assert found.scores["cause->effect"] > found.scores["effect->cause"]


def test_a_function_of_ones_own_votes_too() -> None:
    def shorter(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
        return float(np.ptp(y) - np.ptp(x))

    found = direction(table(), "cause", "effect", epsilon=1.0, score=shorter, seed=0)
    assert (found.verdict, found.score) == ("cause->effect", "shorter")


def test_the_margin_is_the_sum_of_votes_plus_noise_of_the_stated_scale() -> None:
    drawn = [
        direction(table(800), "cause", "effect", epsilon=1.0, score=lambda x, y: 1.0, seed=s).margin for s in range(60)
    ]
    assert np.mean(drawn) == pytest.approx(20, abs=1.2)
    assert np.std(drawn) == pytest.approx(np.sqrt(8), abs=1.2)


def test_where_no_margin_could_be_sure_nothing_is_spent_and_the_answer_says_what_would_be_needed() -> None:
    private = table(1000, ledger=MemoryAccount(epsilon=1.0))
    found = direction(private, "cause", "effect", epsilon=0.05)
    assert (found.verdict, found.released, found.guarantee.epsilon) == (CANNOT_TELL, False, 0.0)
    assert "needs about N = " in str(found)
    assert "nothing was released or spent" in str(found)
    assert private.account.receipts == ()
    assert plan(direction, private, "cause", "effect", epsilon=0.05).event is None


def undecided(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Turn a coin that the block itself brings along."""
    return x[0] - float(np.median(x))


def test_blocks_that_disagree_cannot_tell_and_an_explicit_threshold_decides_anyway() -> None:
    shy = direction(table(), "cause", "effect", epsilon=1.0, score=undecided, seed=1)
    bold = direction(table(), "cause", "effect", epsilon=1.0, score=undecided, seed=1, abstain=0.0)
    assert shy.verdict == CANNOT_TELL
    assert shy.cause is shy.effect is None
    assert "chance and noise come that far" in str(shy)
    assert bold.margin == shy.margin != 0
    assert bold.verdict != CANNOT_TELL


def test_missing_values_cost_blocks_nothing_but_their_rows() -> None:
    holes = frame(3000).with_columns(
        pl.when(pl.int_range(3000) % 3 == 0).then(None).otherwise(pl.col("effect")).alias("effect")
    )
    spec = {**BOUNDS, "missing": True}
    private = PrivateTable(holes, Schema.from_dict({"cause": spec, "effect": spec}))
    assert direction(private, "cause", "effect", epsilon=1.0, seed=0).verdict == "cause->effect"


def test_ordered_levels_count_as_numbers() -> None:
    levels = [str(number) for number in range(12)]
    data = frame(4000).with_columns(((pl.col("effect") + 1.3) * 12 / 2.6).floor().clip(0, 11).cast(pl.Int8).cast(str))
    ordinal = {"type": "ordinal", "levels": levels}
    private = PrivateTable(data, Schema.from_dict({"cause": BOUNDS, "effect": ordinal}))
    pairs = PairData(private, "cause", "effect")
    assert set(np.round(pairs.y * 11)) == set(range(12))
    assert direction(private, "cause", "effect", epsilon=2.0, seed=0).released


@pytest.mark.parametrize("method", ["gap", "paper"])
def test_what_compares_whole_columns_keeps_them_in_a_file_where_memory_is_short(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a row there are 8 bytes in memory, of the public shuffle; a batch and what is made of it, besides."""
    rows, schema = 600_000, Schema.from_dict({"cause": BOUNDS, "effect": BOUNDS})
    frame(rows).write_parquet(tmp_path / "pairs.parquet")
    answers = []
    for room in (10**9, 10**6):
        monkeypatch.setattr(_contributions, "memory_for_rows", lambda room=room: room)
        table = PrivateTable(pl.scan_parquet(tmp_path / "pairs.parquet"), schema, rows=rows)
        tracemalloc.start()
        answers.append(direction(table, "cause", "effect", epsilon=2.0, method=method, score="hsic", seed=1).to_json())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (peak < 8 * rows + 12 * 10**6) == (room < 10**9), peak
    assert answers[0] == answers[1]
    assert answers[0]["margin"] != 0


@pytest.mark.parametrize("engine", ["polars", "lazy", "pandas", "pyarrow", "duckdb"])
def test_every_engine_gives_the_same_answer(engine: str) -> None:
    import duckdb

    data = frame(1200)
    views = {
        "polars": lambda: data,
        "lazy": lambda: data.lazy(),
        "pandas": data.to_pandas,
        "pyarrow": data.to_arrow,
        "duckdb": lambda: duckdb.from_arrow(data.to_arrow()),
    }
    schema = Schema.from_dict({"cause": BOUNDS, "effect": BOUNDS})
    found = direction(PrivateTable(views[engine](), schema), "cause", "effect", epsilon=1.0, seed=0)
    assert found.margin == direction(PrivateTable(data, schema), "cause", "effect", epsilon=1.0, seed=0).margin


# -- whom it protects


def people(rows: int = 3000, per_person: int = 2) -> PrivateTable:
    data = frame(rows).with_columns((pl.int_range(rows) // per_person).alias("who"))
    schema = Schema.from_dict({"cause": BOUNDS, "effect": BOUNDS}, person_id="who", max_rows_per_person=3)
    return PrivateTable(data, schema)


def test_people_with_several_rows_are_protected_as_a_whole() -> None:
    found = direction(people(), "cause", "effect", epsilon=1.0, seed=0)
    assert found.verdict == "cause->effect"
    assert (found.guarantee.unit, found.guarantee.epsilon) == ("person", pytest.approx(1.0))
    event = found.plan.event
    assert isinstance(event, LaplaceEvent)
    assert event.l1_sensitivity == 4.0
    assert found.largest_margin == 40


@pytest.mark.parametrize("engine", ["lazy", "pandas", "duckdb"])
@pytest.mark.parametrize("ids", ["numbers", "texts"])
def test_people_are_the_same_in_every_engine(engine: str, ids: str) -> None:
    import duckdb

    data = frame(1500).with_columns((pl.int_range(1500) // 2).alias("who"))
    data = data if ids == "numbers" else data.with_columns(pl.col("who").cast(str) + " p")
    views = {"lazy": data.lazy, "pandas": data.to_pandas, "duckdb": lambda: duckdb.from_arrow(data.to_arrow())}
    schema = Schema.from_dict({"cause": BOUNDS, "effect": BOUNDS}, person_id="who", max_rows_per_person=2)
    options: dict[str, Any] = {"epsilon": 3.0, "score": "entropy", "seed": 0}
    expected = direction(PrivateTable(data, schema), "cause", "effect", **options)
    found = direction(PrivateTable(views[engine](), schema), "cause", "effect", **options)
    assert (found.margin, found.largest_margin) == (expected.margin, 20)


def test_what_is_public_can_still_be_said_in_the_call_for_one_version() -> None:
    private = table().under(relation="add_remove", rows=2000)
    said = direction(private, "cause", "effect", epsilon=1.0, seed=0)
    with pytest.warns(DeprecationWarning, match="say it once, where the table is made"):
        found = direction(table(), "cause", "effect", epsilon=1.0, relation="add_remove", rows=2000, seed=0)
    assert found == said


def test_adding_and_removing_rows_needs_a_public_number_of_rows() -> None:
    with pytest.raises(InputError, match="rows="):
        direction(table().under(relation="add_remove"), "cause", "effect", epsilon=1.0)
    private = table().under(relation="add_remove", rows=2000)
    found = direction(private, "cause", "effect", epsilon=1.0, seed=0)
    assert found.verdict == "cause->effect"
    assert found.guarantee.relation == "add_remove"


# -- budgets


def test_the_account_is_charged_once_for_exactly_the_plan() -> None:
    account = MemoryAccount(epsilon=1.0)
    private = table(ledger=account)
    planned = plan(direction, private, "cause", "effect", epsilon=0.75)
    assert isinstance(planned, Plan)
    assert planned.guarantee().epsilon == pytest.approx(0.75)
    found = direction(private, "cause", "effect", epsilon=0.75)
    assert [receipt.event for receipt in account.receipts] == [planned.event]
    assert found.guarantee.epsilon == pytest.approx(0.75)
    assert found.guarantee.for_release
    with pytest.raises(BudgetExceededError):
        direction(private, "cause", "effect", epsilon=0.75)
    assert len(account.receipts) == 1


def test_a_plan_needs_no_table() -> None:
    schema = table().schema
    assert plan(direction, schema, "cause", "effect", epsilon=0.5, rows=5000).guarantee().epsilon == pytest.approx(0.5)


def test_a_seed_marks_the_answer_not_for_release() -> None:
    found = direction(table(), "cause", "effect", epsilon=1.0, seed=0)
    assert not found.guarantee.for_release
    assert "not for release" in str(found)


# -- refusals


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": "cause", "y": "cause"}, "two different columns"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"method": "vote"}, "Did you mean 'votes'"),
        ({"score": "comittee"}, "Did you mean 'committee'"),
        ({"abstein": 0.3}, "Did you mean 'abstain'"),
        ({"abstain": 1.0}, "abstain"),
        ({"blocks": 1}, "blocks"),
        ({"seed": -1}, "seed"),
    ],
    ids=["same", "epsilon", "method", "score", "option", "abstain", "blocks", "seed"],
)
def test_an_argument_out_of_range_is_refused_before_anything_is_spent(arguments: dict[str, Any], message: str) -> None:
    private = table()
    with pytest.raises(InputError, match=message):
        direction(private, **{"x": "cause", "y": "effect", "epsilon": 1.0, **arguments})
    assert private.account.receipts == ()


def test_too_few_rows_for_any_blocks_are_refused() -> None:
    with pytest.raises(InputError, match="too few for any private answer: a clear pair needs about N = "):
        direction(table(60), "cause", "effect", epsilon=1.0)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"type": "categorical", "levels": ["a", "b", "c"]}, "categorical without an order"),
        ({"type": "categorical", "levels": ["a", "b"]}, "at least"),
        ({"type": "ordinal", "levels": ["low", "middle", "high"]}, "at least"),
    ],
    ids=["unordered", "binary", "three-levels"],
)
def test_columns_without_a_scale_are_refused_by_name(column: dict[str, Any], message: str) -> None:
    data = frame(500).with_columns(pl.lit("a").alias("kind"))
    levels = column["levels"]
    if "low" in levels:
        data = data.with_columns(pl.lit("low").alias("kind"))
    private = PrivateTable(data, Schema.from_dict({"cause": BOUNDS, "kind": column}))
    with pytest.raises(SchemaError, match=f"'kind'.*{message}"):
        direction(private, "cause", "kind", epsilon=1.0)
    assert private.account.receipts == ()


def test_an_unknown_column_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SchemaError, match="Did you mean 'effect'"):
        direction(table(), "cause", "efect", epsilon=1.0)


def test_columns_that_nobody_confirmed_are_refused() -> None:
    private = PrivateTable(frame(500), escudo.table.draft(frame(500)))
    with pytest.raises(RefusedError):
        direction(private, "cause", "effect", epsilon=1.0)


# -- the answer itself


def test_an_answer_reads_as_an_honest_sentence() -> None:
    text = str(direction(table(), "cause", "effect", epsilon=1.0, seed=0))
    assert text.startswith("cause → effect")
    assert "of 21 blocks" in text
    assert "ε = 1, replace one row" in text
    assert "does not rule out a common cause" in text
    assert "no evidence that the model is right" in text


def test_what_is_about_the_noise_and_what_is_about_the_model_are_told_apart() -> None:
    found = direction(table(), "cause", "effect", epsilon=1.0, seed=0)
    assert found.probability == probability_of(found.margin, 21)
    assert 0.5 < found.probability < found.stability
    assert f"right about {100 * found.probability:.0f} %" in str(found)
    assert found.to_json()["probability"] == found.probability
    for shy in (
        direction(table(), "cause", "effect", epsilon=1.0, score=undecided, seed=1),
        direction(table(), "cause", "effect", epsilon=1.0, score="committee-5", seed=0),
    ):
        assert shy.probability is None
        assert shy.to_json()["probability"] is None
        assert "right about" not in str(shy)


def test_the_old_name_of_stability_is_deprecated() -> None:
    found = direction(table(), "cause", "effect", epsilon=1.0, seed=0)
    with pytest.warns(DeprecationWarning, match="about the noise only and called stability"):
        assert found.probability_correct == found.stability


@pytest.mark.parametrize(("rows", "epsilon"), [(100, 10.0), (700, 1.0), (700, 10.0), (3000, 1.0), (3000, 10.0)])
@pytest.mark.parametrize("kind", ["normal and linear", "independent", "common cause"])
def test_where_nothing_can_be_told_there_are_hardly_any_verdicts(kind: str, rows: int, epsilon: float) -> None:
    rng = np.random.default_rng(7)
    told, tables = 0, 20
    for number in range(tables):
        hidden, first, second = rng.normal(size=(3, rows))
        if kind == "normal and linear":
            x, y = hidden, hidden + (0.3 + 0.1 * number) * first
        elif kind == "independent":
            x, y = np.exp(hidden / 2), rng.uniform(-1, 1, rows)
        else:
            x, y = np.tanh(hidden) + 0.6 * first, hidden + 0.2 * hidden**2 + 0.6 * second
        data = pl.DataFrame({"x": x, "y": y})
        schema = Schema.from_dict({name: {"type": "numeric", "lower": -9.0, "upper": 9.0} for name in "xy"})
        told += direction(PrivateTable(data, schema), "x", "y", epsilon=epsilon, seed=number).cause is not None
    assert told <= 1


def test_an_answer_shows_itself_in_a_notebook_with_names_escaped() -> None:
    found = direction(table(), "cause", "effect", epsilon=1.0, seed=0)
    odd = Direction(
        **{**{name: getattr(found, name) for name in Direction.__slots__}, "x": "<b>", "verdict": "<b>->effect"}
    )
    assert "&lt;b&gt;" in odd._repr_html_()
    assert "<b><b>" not in odd._repr_html_()


@pytest.mark.parametrize(
    "wrong",
    [{"verdict": "effect"}, {"margin": np.nan}, {"stability": 1.5}, {"probability": 1.5}, {"noise_scale": -1.0}],
    ids=["verdict", "margin", "stability", "probability", "noise"],
)
def test_an_answer_that_makes_no_sense_cannot_be_made(wrong: dict[str, Any]) -> None:
    found = direction(table(), "cause", "effect", epsilon=1.0, seed=0)
    with pytest.raises(InputError):
        Direction(**{**{name: getattr(found, name) for name in Direction.__slots__}, **wrong})


def test_pairs_stay_in_their_place_when_a_value_is_missing() -> None:
    holes = frame(300).with_columns(
        pl.when(pl.int_range(300) == 5).then(None).otherwise(pl.col("cause")).alias("cause")
    )
    spec = {**BOUNDS, "missing": True}
    pairs = PairData(PrivateTable(holes, Schema.from_dict({"cause": spec, "effect": spec})), "cause", "effect")
    assert pairs.rows == 300
    assert np.flatnonzero(~pairs.complete).tolist() == [5]
    assert (pairs.x[5], pairs.y[5]) == (0.5, 0.5)
    assert pairs.x.min() >= 0
    assert pairs.y.max() <= 1
    assert "0." not in repr(pairs)


@pytest.mark.parametrize("method", ["gap", "paper"])
def test_a_wrong_number_of_rows_is_noticed_before_anything_is_spent(method: str) -> None:
    asked = table(4000).under(rows=3900)
    with pytest.raises(InputError, match="rows was stated as 3,900, but the table has 4,000"):
        direction(asked, "cause", "effect", epsilon=1.0, method=method, train=frame(500, seed=1))
    assert asked.account.receipts == ()
