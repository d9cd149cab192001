"""Forecasts: what noise will leave of a table, from public facts alone."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import polars as pl
import pytest

import escudo
from escudo.errors import InputError, RefusedError
from escudo.privacy import Budget
from escudo.synthesis import _forecast as inside
from escudo.synthesis import forecast, prepare, stated_errors
from escudo.synthesis._estimation import NoisyTable, settled, sums_of, sums_over
from escudo.synthesis._forecast import ASSUMED_ROWS, rough_level
from escudo.synthesis._marginals import prepare_marginals
from escudo.synthesis._shares import nearest_margins
from escudo.synthesis._structure import structure_of
from escudo.table import draft

FACTOR = 1.5
SIZES = {"a": 2, "b": 4, "c": 3, "d": 6, "e": 2}
ARROWS = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e")]


def schema_of(sizes: dict[str, int]) -> escudo.Schema:
    return escudo.Schema.from_dict({name: [str(level) for level in range(size)] for name, size in sizes.items()})


SCHEMA = schema_of(SIZES)
GRAPH = escudo.CausalGraph.from_edges(ARROWS)


def simulated(rows: int, seed: int) -> pl.DataFrame:
    """Rows in which every column leans on its causes."""
    rng = np.random.default_rng(seed)
    codes: dict[str, np.ndarray] = {}
    for name, size in SIZES.items():
        causes = [codes[cause] for cause, effect in ARROWS if effect == name]
        free = rng.choice(size, size=rows, p=rng.dirichlet(np.ones(size)))
        follows = (sum(causes) if causes else free) % size
        codes[name] = np.where(rng.random(rows) < 0.5, follows, free)
    return pl.DataFrame({name: code.astype(str) for name, code in codes.items()})


def total_variation(real: pl.DataFrame, made: pl.DataFrame, columns: list[str]) -> float:
    shares = [
        frame.group_by(columns).agg((pl.len() / frame.height).alias(which))
        for frame, which in ((real, "real"), (made.cast(pl.String), "made"))
    ]
    both = shares[0].join(shares[1], on=columns, how="full").fill_null(0.0)
    return float((both["real"] - both["made"]).abs().sum()) / 2


@pytest.mark.parametrize("graph", [GRAPH, None], ids=["graph", "none"])
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_the_mean_error_seen_is_within_a_factor_of_the_forecast(epsilon, graph, relation):
    real, how = simulated(8000, 1), {"epsilon": epsilon, "delta": 1e-6}
    told = forecast(SCHEMA, graph, rows=8000, relation=relation, **how)
    columns, pairs = [], []
    for seed in range(6):
        model = escudo.synthesize(escudo.PrivateTable(real, SCHEMA, relation=relation), graph, seed=seed, **how)
        made = model.sample(8000, seed=seed)
        columns += [total_variation(real, made, [name]) for name in SIZES]
        pairs += [total_variation(real, made, list(arrow)) for arrow in ARROWS]
    assert 1 / FACTOR < told.column_error / np.mean(columns) < FACTOR
    if graph is not None:
        assert 1 / FACTOR < told.pair_error / np.mean(pairs) < FACTOR


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_moments_of_a_wide_table_err_as_was_forecast(epsilon):
    names = [f"x{number}" for number in range(60)]
    arrows = [(names[place // 3], names[place]) for place in range(3, 60)]
    rng = np.random.default_rng(5)
    on: dict[str, np.ndarray] = {}
    for place, name in enumerate(names):
        share = rng.uniform(0.01, 0.3)
        cause = on[names[place // 3]] if place >= 3 else np.zeros(2000, dtype=bool)
        on[name] = rng.random(2000) < np.where(cause, min(3 * share, 0.6), share)
    real = pl.DataFrame({name: each.astype(int).astype(str) for name, each in on.items()})
    schema, graph = schema_of(dict.fromkeys(names, 2)), escudo.CausalGraph.from_edges(arrows, nodes=names)
    how = {"epsilon": epsilon, "delta": 1e-6, "generator": "moments"}
    told = forecast(schema, graph, rows=2000, **how)
    columns, pairs = [], []
    for seed in range(2):
        made = escudo.synthesize(escudo.PrivateTable(real, schema), graph, seed=seed, **how).sample(2000, seed=seed)
        columns += [total_variation(real, made, [name]) for name in names]
        pairs += [total_variation(real, made, list(arrow)) for arrow in arrows]
    assert 1 / FACTOR < told.column_error / np.mean(columns) < FACTOR
    assert 1 / FACTOR < told.pair_error / np.mean(pairs) < FACTOR


def test_moments_of_more_arrows_do_not_count_their_columns_more_precisely():
    """A pair of moments holds no first levels, so it says nothing about its columns; its part of a row costs them."""
    schema, how = schema_of(dict.fromkeys("abcdefgh", 2)), {"epsilon": 1.0, "delta": 1e-6, "generator": "moments"}
    few, many = (
        forecast(schema, escudo.CausalGraph.from_edges(arrows, nodes=schema.names), rows=5000, clip=6.0, **how)
        for arrows in ([("a", "b")], [(cause, effect) for cause in "abcd" for effect in "efgh"])
    )
    assert many.columns["e"] >= few.columns["e"]


def test_moments_of_one_column_err_by_the_noise_of_the_level_that_is_counted():
    """Of two levels one is counted: its error is the noise's mean, not that of two counts that were averaged."""
    told = forecast(schema_of({"a": 2}), None, epsilon=1.0, delta=1e-6, rows=50_000, generator="independent", clip=1.0)
    noise = told.design.sums.scale / 2**20 / 50_000
    assert told.column_error == pytest.approx(np.sqrt(2 / np.pi) * noise, rel=0.1)


def test_more_budget_and_more_rows_leave_less():
    curve = forecast(SCHEMA, GRAPH, epsilon=1.0, delta=1e-6, rows=5000).curve((0.1, 0.3, 1.0, 3.0, 10.0))
    for of in ("column_error", "pair_error"):
        errors = [getattr(each, of) for each in curve]
        assert errors == sorted(errors, reverse=True)
    few, many = (forecast(SCHEMA, GRAPH, epsilon=1.0, delta=1e-6, rows=rows) for rows in (1000, 10_000))
    assert 5 < few.column_error / many.column_error < 15


def test_every_column_and_arrow_is_told_and_the_means_are_theirs():
    told = forecast(SCHEMA, GRAPH, epsilon=1.0, delta=1e-6, rows=5000)
    assert list(told.columns) == list(SIZES)
    assert list(told.pairs) == sorted(ARROWS, key=lambda arrow: (list(SIZES).index(arrow[1]), arrow[0]))
    assert told.column_error == pytest.approx(np.mean(list(told.columns.values())))
    assert told.pair_error == pytest.approx(np.mean(list(told.pairs.values())))
    assert not told.picked


def test_without_a_graph_every_pair_is_told_as_if_it_were_measured():
    told = forecast(SCHEMA, None, epsilon=1.0, delta=1e-6, rows=5000)
    assert len(told.pairs) == 10
    assert told.picked
    assert "privately" in told.note


def test_what_may_stay_unknown_is_said_where_pairs_are_told_as_if_measured():
    several = {"ward": 500, **{f"q{place}": 3 for place in range(8)}}
    told = forecast(schema_of(several), None, epsilon=1.0, delta=1e-6, rows=1500)
    assert told.doubtful == ("ward",)
    assert "Pairs with 'ward' are not measured unless few of its levels have most of the rows" in str(told)
    assert told.note == told.to_json()["note"]
    assert "Pairs with" not in forecast(SCHEMA, None, epsilon=1.0, delta=1e-6, rows=5000).note
    loud, quiet = told.at(0.1), told.at(100.0)
    assert "ward" in loud.doubtful
    assert quiet.doubtful == ()
    assert forecast(schema_of(several), None, epsilon=1.0, delta=1e-6, rows=1_000_000).doubtful == ()
    along = escudo.CausalGraph.from_edges([("ward", "q0"), *((f"q{place}", f"q{place + 1}") for place in range(7))])
    assert forecast(schema_of(several), along, epsilon=1.0, delta=1e-6, rows=1500).doubtful == ()


def test_what_is_said_to_stay_unknown_does_where_its_levels_are_equally_common():
    several = {"ward": 500, **{f"q{place}": 3 for place in range(8)}}
    rng = np.random.default_rng(1)
    codes = {name: rng.permutation(1500) % levels for name, levels in several.items()}
    frame = pl.DataFrame({name: [f"{name}{code}" for code in held] for name, held in codes.items()})
    schema = escudo.Schema.from_dict({name: sorted(set(frame[name])) for name in several})
    table = escudo.PrivateTable(frame, schema, rows=1500)
    assert forecast(schema, None, epsilon=1.0, delta=1e-6, rows=1500).doubtful == ("ward",)
    model = escudo.synthesize(table, None, epsilon=1.0, delta=1e-6, seed=1)
    several_columns = [each["columns"] for each in model.details["tables"] if len(each["columns"]) > 1]
    assert several_columns
    assert not any("ward" in each for each in several_columns)


def test_a_column_of_one_level_has_no_error():
    told = forecast(
        schema_of({**SIZES, "same": 1}),
        escudo.CausalGraph.from_edges([*ARROWS, ("same", "e"), ("e", "same")][:-1]),
        epsilon=1.0,
        delta=1e-6,
        rows=5000,
    )
    assert told.columns["same"] == 0.0
    assert told.pairs["same", "e"] == told.columns["e"]


def test_the_same_question_gets_the_same_answer():
    first, again = (forecast(SCHEMA, GRAPH, epsilon=0.7, rows=5000) for _ in range(2))
    assert first == again
    assert first.at(2.0) == again.at(2.0)


def test_the_epsilon_for_an_error_reaches_it_and_hardly_more():
    told = forecast(SCHEMA, GRAPH, epsilon=1.0, delta=1e-6, rows=5000)
    for of in ("columns", "pairs"):
        enough = told.epsilon_for(0.01, of=of)
        there = told.at(enough)
        error = there.column_error if of == "columns" else there.pair_error
        assert 0.0095 < error <= 0.01001
        assert f"{enough:.3g}" == f"{enough:.12g}"


def test_an_error_that_no_epsilon_reaches_is_said_to_be_out_of_reach():
    told = forecast(SCHEMA, GRAPH, epsilon=1.0, delta=1e-6, rows=20)
    with pytest.raises(InputError, match="No epsilon up to 100 is enough"):
        told.epsilon_for(1e-6)


@pytest.mark.parametrize("error", [0.0, -1.0, 2.0, float("nan"), "x", None])
def test_an_error_out_of_range_is_refused(error):
    with pytest.raises(InputError, match="error"):
        forecast(SCHEMA, GRAPH, epsilon=1.0, rows=500).epsilon_for(error)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": float("inf")}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"rows": 0}, "rows"),
        ({"rows": 2.5}, "rows"),
        ({"relation": "cousins"}, "relation"),
        ({"generator": "magic"}, "generator"),
        ({"generator": "marginals", "clip": 3}, "clip"),
    ],
)
def test_bad_arguments_are_named(change, said):
    with pytest.raises(InputError, match=said):
        forecast(SCHEMA, GRAPH, **{"epsilon": 1.0, "rows": 500} | change)


def test_a_schema_that_nobody_confirmed_is_refused():
    drafted = draft(simulated(50, 2))
    with pytest.raises(RefusedError, match="confirm"):
        forecast(drafted, None, epsilon=1.0)


@pytest.mark.parametrize("generator", ["linear", "vae", "autoregressive"])
def test_a_generator_that_cannot_tell_says_so(generator):
    numbers = escudo.Schema.from_dict(
        {name: {"type": "numeric", "lower": 0.0, "upper": 1.0, "bins": 4} for name in "xy"}
    )
    with pytest.raises(InputError, match="no forecast for generator"):
        forecast(numbers, escudo.CausalGraph.from_edges([("x", "y")]), epsilon=1.0, rows=500, generator=generator)


@pytest.mark.parametrize("generator", ["moments", "one-way", "independent", "auto"])
def test_other_generators_tell_what_they_measure(generator):
    told = forecast(SCHEMA, GRAPH, epsilon=1.0, delta=1e-6, rows=5000, generator=generator)
    assert 0 < told.column_error < 0.1
    assert bool(told.pairs) == (generator in ("moments", "auto"))
    if not told.pairs:
        assert np.isnan(told.pair_error)
        assert told.to_json()["pair_error"] is None
        with pytest.raises(InputError, match="no pairs"):
            told.epsilon_for(0.01, of="pairs")


def test_the_rough_noise_level_is_near_the_accountants():
    neighbours = SCHEMA.neighbours(rows=5000)
    for graph in (GRAPH, None):
        structure, budget = structure_of(SCHEMA, graph), Budget(1.0, 1e-6)
        exact = prepare_marginals(SCHEMA, structure, neighbours, budget).level
        rough = prepare_marginals(SCHEMA, structure, neighbours, budget, level_of=rough_level).level
        assert rough == pytest.approx(exact, rel=0.04)


def test_rows_that_are_not_public_are_assumed_and_that_is_said():
    told = forecast(SCHEMA, GRAPH, epsilon=1.0, relation="add_remove")
    assert (told.rows, told.assumed) == (ASSUMED_ROWS, True)
    assert "assumed" in told.note
    assert "assumed" not in forecast(SCHEMA, GRAPH, epsilon=1.0, rows=500).note


def test_people_with_many_rows_need_more_noise():
    sizes = {name: [str(level) for level in range(size)] for name, size in SIZES.items()}
    people = escudo.Schema.from_dict(sizes, person_id="who", max_rows_per_person=4)
    alone = forecast(SCHEMA, GRAPH, epsilon=1.0, delta=1e-6, rows=5000)
    together = forecast(people, GRAPH, epsilon=1.0, delta=1e-6, rows=5000)
    assert together.column_error > 3 * alone.column_error


# ---- in plans


def test_the_plan_of_a_verb_shows_the_forecast_and_no_table_is_needed():
    by_schema = escudo.synthesize.plan(SCHEMA, GRAPH, epsilon=1.0, delta=1e-6, rows=8000)
    by_table = escudo.synthesize.plan(escudo.PrivateTable(simulated(8000, 1), SCHEMA), GRAPH, epsilon=1.0, delta=1e-6)
    assert by_schema.forecast == by_table.forecast
    assert "Forecast for 8,000 rows" in str(by_schema)
    assert "Forecast for 8,000 rows" in by_schema._repr_html_()
    assert by_schema.forecast.columns == pytest.approx(
        forecast(SCHEMA, GRAPH, epsilon=1.0, delta=1e-6, rows=8000).columns, rel=0.05
    )


def test_neighbours_have_the_same_forecast():
    frame = simulated(500, 3)
    other = pl.concat([frame[:-1], pl.DataFrame({name: ["0"] for name in SIZES})])
    plans = [
        escudo.synthesize.plan(escudo.PrivateTable(each, SCHEMA), GRAPH, epsilon=1.0, delta=1e-6)
        for each in (frame, other)
    ]
    assert str(plans[0]) == str(plans[1])
    fewer = [
        escudo.synthesize.plan(escudo.PrivateTable(each, SCHEMA, relation="add_remove"), GRAPH, epsilon=1.0, delta=1e-6)
        for each in (frame, frame[:-1])
    ]
    assert str(fewer[0]) == str(fewer[1])
    assert fewer[0].forecast.assumed


@pytest.mark.parametrize("options", [{"graph": "discover"}, {"graph": GRAPH, "evaluate": 0.1}, {"generator": "auto"}])
def test_the_plan_of_a_release_shows_it_at_its_whole_budget(options, tmp_path):
    plan = escudo.release.plan(SCHEMA, tmp_path / "out", epsilon=1.0, delta=1e-6, people=None, **options)
    assert plan.forecast.budget == Budget(1.0, 1e-6)
    assert plan.forecast.picked == (options.get("graph") is not GRAPH)
    whole = forecast(SCHEMA, GRAPH if options.get("graph") is GRAPH else None, epsilon=1.0, delta=1e-6)
    more = plan.forecast.column_error / whole.column_error
    assert 1.01 < more < 1.1 if "auto" not in options.values() else 0.96 < more < 1.04


def test_a_plan_is_the_same_plan_with_a_forecast_and_its_record_has_none():
    plan = prepare(SCHEMA, GRAPH, epsilon=1.0, delta=1e-6).plan
    told = plan.expecting(forecast(SCHEMA, GRAPH, epsilon=1.0))
    assert told == plan
    assert told.to_json() == plan.to_json()
    assert plan.forecast is None


def test_a_network_has_a_plan_without_a_forecast():
    plan = escudo.synthesize.plan(SCHEMA, GRAPH, epsilon=1.0, delta=1e-6, rows=500, generator="vae")
    assert plan.forecast is None
    assert "Forecast" not in str(plan)


# ---- how it shows itself


def test_it_is_json_and_names_cannot_steer_a_page():
    bad = schema_of({"<script>": 2, "b": 3})
    told = forecast(bad, escudo.CausalGraph.from_edges([("<script>", "b")]), epsilon=1.0, rows=500)
    assert json.loads(json.dumps(told.to_json()))["pairs"][0]["columns"] == ["<script>", "b"]
    assert "<script>" not in told._repr_html_()
    assert "along arrows" in str(told)
    assert "design" not in repr(told)


# ---- after the release


def test_a_release_compares_what_was_foretold_with_the_noise_it_got(tmp_path):
    table = escudo.PrivateTable(simulated(2000, 4), SCHEMA)
    files = escudo.release(table, tmp_path / "out", GRAPH, epsilon=1.0, delta=1e-6, seed=1)
    expected = json.loads(files.record.read_text())["evaluation"]["expected"]
    assert [tuple(each["columns"]) for each in expected[:5]] == [(name,) for name in SIZES]
    assert {tuple(each["columns"]) for each in expected[5:]} == set(ARROWS)
    for each in expected:
        assert 1 / 3 < each["stated"] / each["forecast"] < 3
    page = files.report.read_text()
    assert "foretold" in page
    assert "all arrows, on average" in page


def test_the_noise_a_model_states_is_that_of_its_tables():
    table = escudo.PrivateTable(simulated(2000, 4), SCHEMA)
    model = escudo.synthesize(table, GRAPH, epsilon=1.0, delta=1e-6, seed=1)
    stated = {tuple(each["columns"]): each["noise"] for each in model.details["tables"]}
    prepared = prepare(SCHEMA, GRAPH, epsilon=1.0, delta=1e-6, public_rows=2000)
    planned = {columns: event.scale for columns, event in prepared.shares.tables(prepared.level).items()}
    unit = prepared.shares.adaptive(prepared.level).unit.scale
    for columns, noise in stated.items():
        units = (noise**-2.0 - (planned[columns] ** -2.0 if columns in planned else 0.0)) * unit**2
        assert units == pytest.approx(round(units), abs=0.05)
        assert units > -0.05
    columns, pairs = stated_errors(model)
    assert set(pairs) == set(ARROWS)
    assert all(0 < error < 0.2 for error in columns.values())


def test_a_model_that_does_not_tell_its_noise_states_no_error():
    table = escudo.PrivateTable(simulated(2000, 4), SCHEMA)
    model = escudo.synthesize(table, GRAPH, epsilon=1.0, delta=1e-6, seed=1, generator="independent")
    assert stated_errors(model) is None


def test_bins_that_the_release_chooses_are_paid_for_first():
    columns = {"income": {"type": "numeric", "lower": 0, "upper": 1e5, "bins": "private"}, "sex": ["f", "m"]}
    binned = escudo.Schema.from_dict(columns)
    graph = escudo.CausalGraph.from_edges([("sex", "income")])
    told = forecast(binned, graph, epsilon=1.0, delta=1e-6, rows=5000)
    assert told.budget == Budget(1.0, 1e-6)
    assert set(told.columns) == {"income", "sex"}
    assert escudo.synthesize.plan(binned, graph, epsilon=1.0, delta=1e-6, rows=5000).forecast.columns == told.columns


# ---- for analysts


def test_it_is_drawn_and_listed():
    told = forecast(SCHEMA, GRAPH, epsilon=1.0, delta=1e-6, rows=5000)
    axes = told.plot([0.1, 1.0])
    assert [line.get_label() for line in axes.lines] == ["columns", "along arrows"]
    assert list(axes.lines[0].get_xdata()) == [0.1, 1.0]
    assert axes.lines[0].get_ydata()[1] == pytest.approx(100 * told.column_error)
    assert told.plot([1.0], axes=axes) is axes
    listed = told.to_pandas()
    assert len(listed) == len(SIZES) + len(ARROWS)
    assert set(listed["kind"]) == {"columns", "along arrows"}


def test_what_is_not_installed_is_named(monkeypatch):
    told = forecast(SCHEMA, GRAPH, epsilon=1.0, delta=1e-6, rows=5000)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"escudo\[plot\]"):
        told.plot()


def test_rows_come_as_the_frame_that_is_asked_for():
    model = escudo.synthesize(escudo.PrivateTable(simulated(500, 4), SCHEMA), GRAPH, epsilon=1.0, delta=1e-6, seed=1)
    ours, theirs = model.sample(20, seed=1), model.sample(20, seed=1, frame="pandas")
    assert type(theirs).__module__.startswith("pandas")
    assert pl.from_pandas(theirs.astype(str)).equals(ours.cast(pl.String))
    with pytest.raises(InputError, match="frame"):
        model.sample(20, frame="excel")


def test_rows_come_in_the_kind_of_frame_that_came_in(tmp_path):
    def made(frame):
        return escudo.synthesize(escudo.PrivateTable(frame, SCHEMA), GRAPH, epsilon=1.0, delta=1e-6, seed=1)

    ours, theirs = made(simulated(500, 4)), made(simulated(500, 4).to_pandas())
    rows = theirs.sample(20, seed=1)
    assert type(rows).__module__.startswith("pandas")
    assert pl.from_pandas(rows.astype(str)).equals(ours.sample(20, seed=1).cast(pl.String))
    assert isinstance(theirs.sample(20, frame="polars"), pl.DataFrame)
    theirs.save(tmp_path / "model")  # files do not say what the custodian works with
    assert isinstance(escudo.synthesis.load(tmp_path / "model").sample(20), pl.DataFrame)
    assert theirs.plot(list(SCHEMA.names)[:2], rows=50, seed=1)  # asks its rows in the kind it reads


@pytest.mark.parametrize("shape", [(2, 2, 2), (3, 4), (2, 5, 3), (1, 6), (9, 12)])
@pytest.mark.parametrize("scale", [1e-4, 0.03, 0.3])
def test_draws_that_are_settled_at_once_are_those_settled_one_by_one(shape, scale):
    """To the last bit: some are settled at once, others take long, and none waits for another."""
    shares = np.random.default_rng(5).dirichlet(np.full(math.prod(shape), 0.4)).reshape(shape)
    margins = (0.02, math.inf, 0.1)[: len(shape)]
    pairs = ((0, 1), (1, 0))
    rng, names, several = np.random.default_rng(inside._SEED), tuple("abc"[: len(shape)]), inside._times(shares)
    wanted = np.zeros(len(pairs))
    for _ in range(several):
        tables = [NoisyTable(names, shares + scale * rng.standard_normal(shape), scale)]
        for name, noise in zip(names, margins, strict=True):
            if math.isfinite(noise):
                known = sums_over(names, shares, (name,))
                tables.append(NoisyTable((name,), known + noise * rng.standard_normal(known.shape), noise))
        sums = sums_of(tables, {})[0]
        margins_wanted = [nearest_margins(sums[name][None], 1.0) for name in names]
        missed = settled(tables[0].counts[None], scale, margins_wanted, inside._SWEEPS)[0] - shares
        wanted += [np.abs(sums_over(names, missed, tuple(names[place] for place in pair))).sum() / 2 for pair in pairs]
    law = inside._Law(shape, tuple(shares.ravel().tolist()))
    assert inside._missed_sums(law, scale, margins, pairs, inner=False) == tuple((wanted / several).tolist())


def test_the_text_tells_every_column_and_every_arrow_and_of_very_many_the_worst() -> None:
    told = str(forecast(SCHEMA, GRAPH, epsilon=1.0, rows=8_000))
    assert all(f"{name} " in told for name in SIZES)
    assert all(f"{cause} → {effect} " in told for cause, effect in ARROWS)
    wide = schema_of({f"column {number}": 3 for number in range(60)})
    without = str(forecast(wide, None, epsilon=1.0, rows=8_000))
    assert "and 20 more of at most" in " ".join(without.split())
    assert max(map(len, without.splitlines()[:-1])) <= 100
