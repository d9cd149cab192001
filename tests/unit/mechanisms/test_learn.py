"""Learning a schema: what is learnt and paid for, on which engines, for whom, and what stays hidden."""

from __future__ import annotations

import datetime as dt
import math

import numpy as np
import polars as pl
import pytest

from escudo.errors import BudgetExceededError, EscudoError, InputError, SchemaError
from escudo.learning import learn_schema, occupied, strip, tail_probability, wide, with_bounds, with_levels
from escudo.mechanisms import stable_threshold
from escudo.privacy import ApproximateEvent, LaplaceEvent, MemoryAccount, RepeatedEvent, plan
from escudo.table import Categorical, Numeric, Schema, draft

ROWS = 4000
BUDGET = {"epsilon": 4.0, "delta": 1e-6}


def people(rows=ROWS):
    generator = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "age": generator.integers(18, 96, rows),
            "income": generator.lognormal(10, 0.5, rows),
            "year": generator.integers(1990, 2021, rows),
            "loss": -generator.exponential(2.0, rows) - 5,
            "town": generator.choice(["Oslo", "Lima", "Pune"], rows),
            "grade": generator.choice([1, 2, 3], rows),
            "smokes": generator.random(rows) < 0.3,
        }
    )


def as_duckdb(frame):
    import duckdb

    return duckdb.connect().from_arrow(frame.to_arrow())


ENGINES = {
    "polars": lambda frame: frame,
    "polars lazy": lambda frame: frame.lazy(),
    "pandas": lambda frame: frame.to_pandas(),
    "pyarrow": lambda frame: frame.to_arrow(),
    "duckdb": as_duckdb,
}
OPEN = Schema(
    (
        Numeric("age", integer=True, confirmed=False),
        Numeric("income", confirmed=False, bins=12),
        Categorical("town", confirmed=False, missing=True),
        Categorical("grade", confirmed=False, missing=True),
        Categorical("smokes", (False, True)),
    )
)


class TestWhatIsLearnt:
    def test_an_outline_becomes_a_confirmed_schema(self):
        learnt = learn_schema(people(), **BUDGET).value
        assert learnt.confirmed
        assert learnt.names == tuple(people().columns)

    def test_bounds_hold_most_values_and_little_else(self):
        learnt, table = learn_schema(people(), seed=0, **BUDGET).value, people()
        for name in ("age", "income", "year", "loss", "grade"):
            column, values = learnt[name], table[name].to_numpy()
            assert np.mean((values >= column.lower) & (values <= column.upper)) > 0.9
            spread = np.quantile(values, 0.99) - np.quantile(values, 0.01)
            assert column.upper - column.lower < 1.5 * spread + 2

    def test_what_few_rows_make_the_bounds_clamp_is_noted_and_a_third_of_it_is_warned_of(self):
        values = np.random.default_rng(1).uniform(100, 200, 1200)
        shares = {}
        for rows in (1200, 450):
            told = learn_schema(pl.DataFrame({"x": values[:rows]}), epsilon=1.0, delta=0.0, seed=0).value
            inside = np.mean((values[:rows] >= told["x"].lower) & (values[:rows] <= told["x"].upper))
            shares[rows] = 1 - inside
            stated = told["x"].note.partition("they clamp about ")[2].partition("%")[0]
            assert abs(float(stated or 0) / 100 - shares[rows]) < 0.12
            warned = [note for note in told.notes if "the bounds of 'x' clamp about a third" in note]
            assert bool(warned) == (rows == 450)
        assert shares[450] > 0.25 > shares[1200]

    def test_a_tail_in_the_cells_beside_is_kept_and_what_is_left_out_of_it_is_told(self):
        """A cell of a tail may hold hundreds of rows and be too small to stand out by itself among a hundred cells."""
        values = np.random.default_rng(3).lognormal(10.5, 0.8, 3000)
        clamped, stated, warned = [], [], 0
        for seed in range(40):
            told = learn_schema(pl.DataFrame({"x": values}), epsilon=0.06, delta=0.0, seed=seed).value
            clamped.append(np.mean((values < told["x"].lower) | (values > told["x"].upper)))
            stated.append(float(told["x"].note.partition("they clamp about ")[2].partition("%")[0] or 0) / 100)
            warned += bool(told.notes)
        assert np.mean(clamped) < 0.15
        assert np.mean(np.abs(np.subtract(stated, clamped))) < 0.1
        assert warned == sum(share >= 1 / 3 for share in stated)

    def test_bounds_of_a_column_of_which_zeros_alone_were_seen_are_left_to_be_stated(self):
        values = np.where(np.arange(3000) % 5, 0.0, np.random.default_rng(4).lognormal(7, 1.5, 3000))
        column = learn_schema(pl.DataFrame({"x": values}), epsilon=0.06, delta=0.0, seed=0).value["x"]
        assert not column.confirmed
        assert "too few values but 0" in column.note
        assert learn_schema(pl.DataFrame({"x": values}), epsilon=6.0, delta=0.0, seed=0).value["x"].upper > 5_000

    def test_whole_numbers_get_whole_bounds_and_no_more_bins_than_values(self):
        grade = learn_schema(people(), seed=0, **BUDGET).value["grade"]
        assert grade.integer
        assert grade.lower == int(grade.lower)
        assert grade.bins <= grade.upper - grade.lower + 1

    def test_levels_that_many_rows_have_are_learnt_and_rare_ones_are_not(self):
        table = people().with_columns(town=pl.when(pl.int_range(ROWS) == 7).then(pl.lit("Ushuaia")).otherwise("town"))
        town = learn_schema(table, OPEN, **BUDGET).value["town"]
        assert town.levels == ("Lima", "Oslo", "Pune", "(other)")
        assert town.other == "(other)"

    def test_whole_numbers_can_be_levels(self):
        assert learn_schema(people(), OPEN, **BUDGET).value["grade"].levels == (1, 2, 3)

    def test_what_the_schema_states_is_kept(self):
        learnt = learn_schema(people(), OPEN, **BUDGET).value
        assert learnt["smokes"] == OPEN["smokes"]
        assert learnt["income"].bins == 12

    def test_booleans_are_free(self):
        account = MemoryAccount(epsilon=0.001)
        schema = Schema((Categorical("smokes", confirmed=False, missing=True),))
        release = learn_schema(people(), schema, account=account, epsilon=1.0, delta=0.0)
        assert release.value["smokes"].levels == (False, True)
        assert release.value.confirmed
        assert account.receipts == ()
        assert release.guarantee.epsilon == 0

    @pytest.mark.parametrize("engine", ENGINES)
    def test_every_engine_learns_the_same(self, engine):
        expected = learn_schema(people(), OPEN, seed=1, **BUDGET).value
        assert learn_schema(ENGINES[engine](people()), OPEN, seed=1, **BUDGET).value == expected

    def test_missing_and_odd_values_are_no_trouble(self):
        table = pl.DataFrame(
            {
                "x": [1.5, None, math.nan, math.inf, -math.inf, 1e300] * 400,
                "t": ["a", None, "(missing)", "", "b\x00", "a"] * 400,
            }
        )
        learnt = learn_schema(table, **BUDGET).value
        assert learnt["t"].levels == ("", "a", "b\x00", "(other)")
        assert learnt["x"].lower < learnt["x"].upper


class TestTooLittleToLearn:
    def test_columns_stay_open_and_say_why(self):
        table = pl.DataFrame({"x": [1.0, 2.0, None], "t": ["a", "b", None]})
        learnt = learn_schema(table, **BUDGET).value
        assert learnt.unconfirmed == ("x", "t")
        assert learnt["t"].levels == ()
        assert "too few" in learnt["x"].note
        assert "common enough" in learnt["t"].note

    def test_few_rows_keep_the_powers_of_four_rather_than_cut_deep(self):
        table = pl.DataFrame({"x": np.linspace(20, 60, 60)})
        learnt = learn_schema(table, epsilon=1.0, delta=0.0, seed=2).value["x"]
        assert (learnt.lower, learnt.upper) in {(16.0, 64.0), (16.0, 256.0), (4.0, 64.0)} or not learnt.confirmed


class TestNothingOfADraftRemains:
    def test_drafted_levels_bounds_notes_and_flags_are_thrown_away(self):
        table = people().with_columns(
            town=pl.when(pl.int_range(ROWS) == 7).then(pl.lit("Ushuaia")).otherwise("town"),
            income=pl.when(pl.int_range(ROWS) == 7).then(123_456_789.25).otherwise("income"),
        )
        learnt = learn_schema(table, draft(table), **BUDGET).value
        text = learnt.to_toml()
        assert "Ushuaia" not in text
        assert learnt["income"].upper < 100_000_000
        assert learnt.notes == ()
        assert learnt["income"].missing
        assert learnt["town"].missing

    def test_stripping_looks_at_the_type_only(self):
        import narwhals as nw

        drafted = Numeric("x", 3, 17, 7, integer=True, confirmed=False, note="from data")
        stated = Numeric("x", integer=True, confirmed=False)  # without bounds: nothing that a draft writes
        assert strip(drafted, nw.Float64()) == Numeric("x", missing=True, confirmed=False)
        assert strip(stated, nw.Float64()) == Numeric("x", integer=True, missing=True, confirmed=False)
        assert strip(Numeric("x", confirmed=False), nw.Float64()) == Numeric("x", missing=True, confirmed=False)
        assert strip(drafted, nw.Int32()).integer
        levels = Categorical("t", ("a", "b"), confirmed=False, note="from data")
        assert strip(levels, nw.String()) == Categorical("t", missing=True, confirmed=False)
        assert strip(levels, nw.String()).note == ""
        never_missing = Categorical("b", (False, True), confirmed=False)
        assert strip(never_missing, nw.Boolean()) == Categorical("b", (False, True), missing=True)


class TestBudget:
    def test_the_plan_is_what_is_charged_in_one_spend(self):
        account = MemoryAccount(epsilon=4.0, delta=1e-6)
        shown = plan(learn_schema, people(), OPEN, **BUDGET)
        release = learn_schema(people(), OPEN, account=account, **BUDGET)
        (receipt,) = account.receipts
        assert receipt.event == release.event == shown.event
        assert receipt.for_release
        assert receipt.purpose == "learn schema"
        assert shown.guarantee().epsilon <= 4.0 * (1 + 1e-9)
        assert release.guarantee.epsilon <= 4.0 * (1 + 1e-9)
        assert release.guarantee.delta == 1e-6

    def test_the_plan_has_a_leaf_for_every_spend(self):
        leaves = learn_schema.plan(people(), OPEN, **BUDGET).leaves()
        kinds = [type(leaf.event) for leaf in leaves]
        assert kinds == [LaplaceEvent, RepeatedEvent, LaplaceEvent, RepeatedEvent, ApproximateEvent, ApproximateEvent]
        assert sum(leaf.event.delta for leaf in leaves[-2:]) == 1e-6

    @pytest.mark.parametrize(("relation", "rows"), [("replace_one", 2), ("add_remove", 1)])
    def test_the_histogram_is_charged_for_the_rows_that_can_move(self, relation, rows):
        whose = {"person_id": "who", "max_rows_per_person": 5}
        frame = people().with_columns(who=pl.int_range(ROWS))
        for schema, per_person in ((OPEN, 1), (Schema(OPEN.fields, **whose), 5)):
            first = learn_schema.plan(frame, schema, relation=relation, **BUDGET).leaves()[0].event
            assert first.l1_sensitivity == rows * per_person
            assert first.l1_sensitivity / first.scale == pytest.approx(4.0 / 4 / 2)

    def test_confirmed_columns_cost_nothing(self):
        known = OPEN.with_columns(Numeric("age", 0, 110), Numeric("income", 0, 1e6), Categorical("grade", (1, 2)))
        (leaf,) = learn_schema.plan(people(), known, **BUDGET).leaves()
        assert leaf.name == "levels of town"
        assert leaf.event == ApproximateEvent(epsilon=4.0, delta=1e-6)

    def test_numbers_alone_need_no_delta(self):
        schema = Schema((Numeric("age", integer=True, confirmed=False),))
        release = learn_schema(people(), schema, epsilon=1.0, delta=0.0)
        assert release.guarantee.delta == 0
        assert release.guarantee.epsilon <= 1 + 1e-9

    def test_planning_draws_nothing(self, watched_noise):
        learn_schema.plan(people(), OPEN, **BUDGET)
        assert watched_noise.words == []

    def test_nothing_is_drawn_when_the_account_refuses(self, watched_noise):
        account = MemoryAccount(epsilon=1.0, delta=1e-6)
        with pytest.raises(BudgetExceededError):
            learn_schema(people(), OPEN, account=account, **BUDGET)
        assert account.receipts == ()
        assert watched_noise.words == []

    def test_a_failure_after_the_charge_is_marked(self, monkeypatch):
        from escudo.mechanisms import _noise

        def broken(self, integers, scale):
            raise RuntimeError("private 42")

        account = MemoryAccount(epsilon=4.0, delta=1e-6)
        monkeypatch.setattr(_noise.SecureNoise, "gumbel_argmax", broken)
        with pytest.raises(RuntimeError):
            learn_schema(people(), OPEN, account=account, **BUDGET)
        assert account.failed == {1: "RuntimeError"}

    def test_an_engine_that_fails_costs_nothing_and_shows_nothing(self, monkeypatch):
        import narwhals as nw

        def broken(*args, **kwargs):
            raise RuntimeError("private value 42")

        account = MemoryAccount(epsilon=4.0, delta=1e-6)
        schema = Schema((Categorical("town", confirmed=False, missing=True),))
        monkeypatch.setattr(nw.LazyFrame, "group_by", broken)
        with pytest.raises(EscudoError, match="withheld") as caught:
            learn_schema(people(), schema, account=account, **BUDGET)
        assert "42" not in str(caught.value)
        assert caught.value.__cause__ is caught.value.__context__ is None
        assert account.receipts == ()

    def test_seeded_runs_are_repeatable_and_not_for_release(self):
        account = MemoryAccount()
        first = learn_schema(people(), OPEN, seed=3, account=account, **BUDGET)
        assert first.value == learn_schema(people(), OPEN, seed=3, **BUDGET).value
        assert not first.guarantee.for_release
        assert not account.receipts[0].for_release

    def test_the_accounts_relation_is_used(self):
        account = MemoryAccount(relation="add_remove")
        release = learn_schema(people(), OPEN, account=account, **BUDGET)
        assert release.event.relation == release.guarantee.relation == "add_remove"


class TestPeople:
    def schema(self, rows):
        return Schema(OPEN.fields, person_id="who", max_rows_per_person=rows)

    def frame(self, ids):
        return people().with_columns(who=ids)

    @pytest.mark.parametrize("engine", ENGINES)
    def test_the_guarantee_is_for_people_on_every_engine(self, engine):
        frame = ENGINES[engine](self.frame(pl.int_range(ROWS) // 2))
        release = learn_schema(frame, self.schema(2), epsilon=20.0, delta=1e-6, seed=1)
        assert release.guarantee.unit == release.event.unit == "person"
        assert release.guarantee.max_rows_per_person == 2
        assert release.value["town"].levels == ("Lima", "Oslo", "Pune", "(other)")
        assert release.value.person_id == "who"

    def test_one_person_with_a_thousand_rows_does_not_make_a_level(self):
        table = self.frame(pl.when(pl.int_range(ROWS) < 1000).then(0).otherwise(pl.int_range(ROWS))).with_columns(
            town=pl.when(pl.int_range(ROWS) < 1000).then(pl.lit("Ushuaia")).otherwise("town")
        )
        learnt = learn_schema(table, self.schema(2), epsilon=20.0, delta=1e-6).value
        assert learnt["town"].levels == ("Lima", "Oslo", "Pune", "(other)")

    @pytest.mark.parametrize("odd", [2**53, -(2**53), 2**62])
    def test_a_number_too_large_for_a_level_is_left_out_and_never_an_error(self, odd):
        # Whole numbers of that size are no levels, and one person's must not decide whether there is an answer.
        table = pl.DataFrame({"x": [odd] * 300 + [1] * 300, "who": range(600)})
        for person in ({}, {"person_id": "who", "max_rows_per_person": 1}):
            schema = Schema((Categorical("x", confirmed=False),), **person)
            assert learn_schema(table, schema, epsilon=8.0, delta=1e-6, seed=0).value["x"].levels == (1,)

    def test_more_rows_per_person_need_a_higher_threshold(self):
        def threshold(rows):
            return stable_threshold(epsilon=1.0, delta=1e-6, max_rows_per_person=rows).least

        assert threshold(1) < threshold(2) < threshold(5)


class TestTexts:
    def test_texts_that_a_database_takes_for_equal_are_different_levels(self):
        # Otherwise one row would decide under which of its spellings a whole group of rows is counted.
        import duckdb

        connection = duckdb.connect()
        connection.execute("CREATE TABLE visits (town VARCHAR COLLATE NOCASE)")
        connection.execute("INSERT INTO visits SELECT 'oslo' FROM range(300) UNION ALL SELECT 'OSLO' FROM range(200)")
        schema = Schema((Categorical("town", confirmed=False),))
        learnt = learn_schema(connection.sql("SELECT * FROM visits"), schema, epsilon=8.0, delta=1e-6, seed=0).value
        assert learnt["town"].levels == ("OSLO", "oslo", "(other)")

    @pytest.mark.parametrize("engine", ["pandas", "dask"])
    def test_one_row_does_not_decide_over_the_columns(self, engine):
        pd = pytest.importorskip("pandas")
        learnt = []
        for first in ("y", 7, None):
            table = pd.DataFrame({"a": pd.Series([first, *["x"] * 1000], dtype=object), "n": np.arange(1001.0)})
            if engine == "dask":
                dask, dd = pytest.importorskip("dask"), pytest.importorskip("dask.dataframe")
                with dask.config.set({"dataframe.convert-string": False, "scheduler": "synchronous"}):
                    frame = dd.from_pandas(table, npartitions=2)
                    learnt.append(learn_schema(frame, epsilon=1.0, delta=1e-6, seed=1).value)
            else:
                learnt.append(learn_schema(table, epsilon=1.0, delta=1e-6, seed=1).value)
        assert learnt[0].names == ("a", "n")
        assert learnt[0] == learnt[1] == learnt[2]

    @pytest.mark.parametrize("engine", ENGINES)
    @pytest.mark.parametrize("person_id", [None, "year"])
    def test_a_table_without_rows_teaches_nothing_and_is_no_error(self, engine, person_id):
        open_columns = (Numeric("age", integer=True, confirmed=False), Categorical("town", confirmed=False))
        schema = Schema(open_columns, person_id=person_id, max_rows_per_person=None if person_id is None else 2)
        learnt = learn_schema(ENGINES[engine](people().clear()), schema, seed=0, **BUDGET).value
        assert learnt.unconfirmed == ("age", "town")

    def test_one_odd_object_among_texts_is_no_error(self):
        import pandas as pd

        table = pd.DataFrame({"town": pd.Series(["Oslo"] * 300 + [1, None, ["a list"]], dtype=object)})
        schema = Schema((Categorical("town", confirmed=False),))
        assert learn_schema(table, schema, epsilon=8.0, delta=1e-6, seed=0).value["town"].levels == ("Oslo", "(other)")


class TestRefusals:
    def test_a_confirmed_schema_leaves_nothing_to_learn(self):
        with pytest.raises(InputError, match="nothing to learn"):
            learn_schema(people(), Schema((Categorical("smokes", (False, True)),)), **BUDGET)

    def test_levels_need_a_delta(self):
        with pytest.raises(InputError, match="delta"):
            learn_schema(people(), OPEN, epsilon=1.0, delta=0.0)

    def test_a_column_that_is_not_there_is_named(self):
        with pytest.raises(SchemaError, match="towns"):
            learn_schema(people(), Schema((Categorical("towns", confirmed=False, missing=True),)), **BUDGET)

    def test_what_is_no_table_is_refused(self):
        with pytest.raises(InputError):
            learn_schema(3, OPEN, **BUDGET)


class TestSteps:
    def test_the_wide_grid_holds_numbers_of_any_scale(self):
        grid = wide(Numeric("x", confirmed=False))
        cells = grid.encode([0, 1e-12, 0.3, 5.0, 2.0**63, -(2.0**63), -0.3])
        assert [(grid.boundaries[cell], grid.boundaries[cell + 1]) for cell in cells[:4]] == [
            (0.0, 4.0**-16),
            (0.0, 4.0**-16),
            (0.25, 1.0),
            (4.0, 16.0),
        ]
        assert grid.boundaries[0] < -(2.0**63) < 2.0**63 < grid.boundaries[-1]
        assert len(set(cells[3:].tolist())) == 4

    def test_noise_alone_looks_occupied_once_in_a_thousand_times(self):
        generator = np.random.default_rng(1)
        from escudo.mechanisms._noise import SeededNoise

        source = SeededNoise(generator)
        zeros = np.zeros(98, dtype=np.int64)
        mistaken = sum(bool(occupied(source.add_laplace(zeros, 24.0), 24.0)) for _ in range(2000))
        assert mistaken <= 12  # expects 1 (one-sided bound 2); 12 is far beyond

    def test_the_span_reaches_from_the_first_to_the_last_occupied_cell(self):
        assert occupied(np.array([0, 900, 0, 800, 3]), 2.0) == range(1, 4)
        assert not occupied(np.array([0, 3, -2]), 2.0)

    def test_more_is_cut_off_where_there_are_fewer_rows(self):
        assert tail_probability(0.005, 10**6, 10.0) == 0.005
        assert 0.005 < tail_probability(0.005, 2000, 10.0) < 0.1
        assert tail_probability(0.005, 100, 10.0) is None
        assert tail_probability(0.3, 1000, 10.0) == 0.3
        assert tail_probability(0.005, -5, 10.0) is None

    @pytest.mark.parametrize(
        ("lower", "upper"), [(17.23, 94.9), (0.0, 1e-9), (-3.3e12, 4.4e15), (1990.2, 1990.3), (-0.51, -0.5)]
    )
    def test_bounds_are_widened_to_round_numbers_and_never_narrowed(self, lower, upper):
        found = Numeric("x", lower, upper, 4)
        learnt = with_bounds(Numeric("x", confirmed=False), found)
        assert learnt.lower <= lower < upper <= learnt.upper
        assert learnt.upper - learnt.lower <= 1.25 * (upper - lower)
        assert len(repr(learnt.upper)) <= 18

    def test_an_other_level_that_the_data_already_have_is_not_repeated(self):
        column = Categorical("t", missing=True, confirmed=False)
        assert with_levels(column, ["(other)", "a"]).levels == ("a", "(other)")


@pytest.mark.parametrize("engine", [lambda frame: frame, as_duckdb, lambda frame: frame.to_pandas()])
def test_drafted_dates_and_what_is_derived_from_them_are_learnt(engine):
    generator = np.random.default_rng(3)
    birth = np.datetime64("1950-03-01") + generator.integers(0, 40 * 365, ROWS).astype("timedelta64[D]")
    visit = np.datetime64("2020-02-01") + generator.integers(0, 600, ROWS).astype("timedelta64[D]")
    sex = generator.choice(["f", "m"], ROWS)
    frame = pl.DataFrame({"birth": birth, "visit": visit, "sex": sex}).cast({"birth": pl.Date, "visit": pl.Date})
    drafted = draft(frame)
    age = Numeric("age", 0, 200, derived=("visit", "birth"), unit="years", integer=True, confirmed=False)
    rules = ("visit >= birth", "sex = m -> age >= 18", "sex = other -> age >= 18")
    levels = Categorical("sex", ("f", "m", "other"), confirmed=False)
    schema = Schema((drafted["birth"], drafted["visit"], levels, age), rules=rules)
    learnt = learn_schema(engine(frame), schema, epsilon=8.0, delta=1e-6, seed=1).value
    assert learnt.confirmed
    assert learnt.to_dict()["columns"]["visit"]["lower"] in ("2019-01-01", "2020-01-01")
    assert learnt.to_dict()["columns"]["visit"]["upper"] in ("2021-12-31", "2022-12-31")
    assert learnt.to_dict()["columns"]["birth"]["lower"] in ("1949-01-01", "1950-01-01")
    assert learnt.to_dict()["columns"]["birth"]["upper"] in ("1989-12-31", "1990-12-31")
    assert learnt["age"].derived == ("visit", "birth")
    assert learnt["age"].unit == "years"
    assert learnt["age"].integer
    assert 29 <= learnt["age"].lower <= 31
    assert 69 <= learnt["age"].upper <= 72
    assert [str(rule) for rule in learnt.rules] == ["visit >= birth", "sex = m -> age >= 18"]
    assert learnt.notes == ("Left out the rule 'sex = other -> age >= 18': it does not go with what was learnt.",)


def test_a_date_without_bounds_is_learnt_as_days_of_any_year():
    grid = wide(Numeric("day", date="%Y-%m-%d", confirmed=False))
    assert grid.date == "%Y-%m-%d"
    assert grid.shown(grid.lower) == "1252-04-10"
    assert grid.shown(grid.upper) == "2687-09-23"
    one = pl.DataFrame({"day": [dt.date(2024, 2, 29)] * 500})
    schema = Schema((Numeric("day", date="%Y-%m-%d", confirmed=False),))
    learnt = learn_schema(one, schema, epsilon=8.0, seed=1).value["day"]
    assert learnt.confirmed
    assert learnt.shown(learnt.lower) <= "2024-01-01"
    assert learnt.shown(learnt.upper) >= "2024-12-31"


def test_a_difference_is_learnt_where_its_dates_cannot_be():
    births = [dt.date(1970, 1, 1) + dt.timedelta(days=sign * 2 * 4**power) for power in range(9) for sign in (-1, 1)]
    frame = pl.DataFrame({"birth": births * 150}).with_columns(
        visit=pl.col("birth") + pl.duration(days=6), pid=pl.int_range(2700)
    )
    day = {"date": "%Y-%m-%d", "confirmed": False}
    stay = Numeric("stay", derived=("visit", "birth"), unit="days", confirmed=False)
    schema = Schema((Numeric("birth", **day), Numeric("visit", **day), stay), person_id="pid", max_rows_per_person=1)
    seen = [learn_schema(frame, schema, epsilon=0.5, seed=seed).value for seed in range(12)]
    assert any(learnt["stay"].confirmed and not learnt["birth"].confirmed for learnt in seen)
