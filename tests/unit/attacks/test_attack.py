"""Claims about membership attacks."""

from __future__ import annotations

import json
import math
from dataclasses import fields

import numpy as np
import polars as pl
import pytest

import escudo
from escudo.attacks import ATTACKS, attack, canary, ceiling_of, every_attack, infer_attribute, published_game, victim_of
from escudo.attacks._attack import AttributeGame, AttributeOptions, PublishedGame, PublishedOptions
from escudo.attacks._attacker import choose, outlyingness
from escudo.attacks._game import FitLog
from escudo.attacks._report import pool, score_of
from escudo.attacks._victims import RowsWithRecord
from escudo.errors import InputError
from escudo.privacy import Guarantee
from escudo.utility import Rows

QUICK = [("queries", "logistic"), ("nearest", "likelihood ratio")]


def test_a_generator_that_resamples_rows_is_caught(rows, schema, resampling):
    found = attack(
        resampling, rows, schema, claim=Guarantee(epsilon=1.0), choose=[60], attacks=QUICK, shadows=30, trials=200
    )
    assert found.violated
    assert found.epsilon_lower >= 1.0
    assert found.targets[0].audit.runs < 200  # it stopped when the answer was clear
    assert "VIOLATED" in found.verdict
    assert "VIOLATED" in found._repr_html_()
    assert found.best.auc > found.ceiling.auc


def test_a_broken_private_generator_is_caught_and_its_sound_twin_is_not(rows, schema, flipped):
    arguments = {"choose": [60], "attacks": QUICK, "shadows": 20, "trials": 300, "size": 5}
    assert attack(flipped(3.0, claimed=0.5), rows, schema, **arguments).violated
    sound = attack(flipped(3.0), rows, schema, **arguments)
    assert not sound.violated
    assert 1.0 < sound.epsilon_lower <= 3.0


def test_a_generator_without_a_promise_has_no_ceiling(rows, schema, resampling):
    found = attack(resampling, rows, schema, choose=[60], attacks=QUICK, shadows=20, trials=60)
    assert found.ceiling is None
    assert not found.violated
    assert found.epsilon_lower > 0
    assert "promises nothing" in found.verdict


def test_escudos_own_generator_keeps_its_promise(rows, schema):
    graph = escudo.CausalGraph.from_edges([("a", "b")], nodes=["a", "b", "c"])
    found = attack(
        "marginals", rows, schema, graph=graph, epsilon=0.5, delta=1e-5, choose=[60], shadows=20, trials=400, seed=2
    )
    assert not found.violated
    assert len(found.overall) == len(ATTACKS)
    assert found.ceiling.accuracy < math.exp(0.5) / (1 + math.exp(0.5))
    body = json.loads(json.dumps(found.to_json()))
    assert body["custodian_only"] is True
    assert "b" not in body["targets"][0]["label"]


def test_every_pair_of_features_and_classifier_runs_on_mixed_columns():
    schema = escudo.Schema.from_dict(
        {"a": ["0", "1"], "x": {"type": "numeric", "lower": 0, "upper": 9, "bins": 3, "missing": True}}
    )
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"a": rng.integers(0, 2, 30), "x": rng.uniform(0, 9, 30)}).with_columns(
        pl.col("a").cast(pl.String), pl.when(pl.col("x") > 1).then(pl.col("x"))
    )

    def mixed(rows, rng):
        return rows.sample(20, with_replacement=True, seed=int(rng.integers(2**31)))

    found = attack(mixed, frame, schema, targets=1, attacks=every_attack(), shadows=12, trials=12)
    assert len(found.overall) == 49
    assert all(0 <= score.accuracy <= 1 for score in found.overall)


def test_objects_with_fit_and_sample_are_copied_for_each_fit(rows, schema):
    class Peer:
        def __init__(self):
            self.fits, self.random_state = 0, 7

        def fit(self, frame):
            self.fits += 1
            self.frame = frame

        def sample(self, count):
            return self.frame.sample(count, replace=True, random_state=self.random_state)

    peer = Peer()
    found = attack(peer, rows, schema, choose=[60], attacks=QUICK, shadows=30, trials=60, size=150, frames="pandas")
    assert peer.fits == 0
    assert found.best.auc > 0.75


@pytest.mark.parametrize("rest", ["fixed", "resampled"])
@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_worlds_differ_in_one_record(rows, schema, rest, relation):
    seen = []

    def watching(frame, rng):
        seen.append(frame)
        return frame

    attack(watching, rows, schema, choose=[60], relation=relation, rest=rest, attacks=QUICK, shadows=6, trials=6)
    there = [frame for frame in seen if (frame["b"] == "2").any()]
    away = [frame for frame in seen if not (frame["b"] == "2").any()]
    assert there
    assert away
    assert {frame.height for frame in there} == {there[0].height}
    assert away[0].height == there[0].height - (relation == "add_remove")
    rests = {str(frame.head(away[0].height - 1).rows()) for frame in seen}
    assert (len(rests) == 1) == (rest == "fixed")


def test_counts_with_a_record_are_those_of_all_rows(rows, schema):
    every = Rows.read(rows, schema)
    places = np.arange(len(every))
    moved = RowsWithRecord(rest=every.take(places != 3), record=every.take(places == 3))
    table, whole = moved.table(Guarantee(epsilon=1.0)), escudo.PrivateTable(rows, schema)
    for columns in ("a", ["a", "b"], [["a"], ["c", "b"]]):
        ours, theirs = table.counts(columns), whole.counts(columns)
        assert all(np.array_equal(x, y) for x, y in zip(ours, theirs, strict=True))
    assert sum(len(batch) for batch in table.batches(7)) == len(every)
    assert np.array_equal(moved.table(Guarantee(epsilon=1.0)).counts("a"), whole.counts("a"))


def test_an_attack_goes_on_where_it_was_stopped(rows, schema, resampling, tmp_path):
    calls = []

    def counting(frame, rng):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return resampling(frame, rng)

    arguments = {"choose": [60], "attacks": QUICK, "shadows": 8, "trials": 8, "seed": 3}
    with pytest.raises(KeyboardInterrupt):
        attack(counting, rows, schema, log=tmp_path / "fits", **arguments)
    with (tmp_path / "fits").open("a") as file:
        file.write('{"key": ["row 60", tr')  # a line that a crash cut short
    resumed = attack(counting, rows, schema, log=tmp_path / "fits", **arguments)
    assert len(calls) == 17  # eight, the one that failed, and eight more
    assert resumed.to_json() == attack(resampling, rows, schema, **arguments).to_json()
    assert (tmp_path / "fits").stat().st_mode & 0o077 == 0
    with pytest.raises(InputError, match="another attack"):
        attack(counting, rows, schema, log=tmp_path / "fits", **{**arguments, "seed": 4})
    (tmp_path / "other").write_text("mine\n")
    with pytest.raises(InputError, match="not a log"):
        FitLog(tmp_path / "other", "x")


def test_a_log_of_another_generator_or_graph_is_not_taken_for_this_ones(rows, schema, resampling, tmp_path):
    def other(frame, rng):
        return resampling(frame, rng)

    arguments = {"choose": [60], "attacks": QUICK, "shadows": 2, "trials": 2}
    attack(resampling, rows, schema, log=tmp_path / "functions", **arguments)
    with pytest.raises(InputError, match="another attack"):
        attack(other, rows, schema, log=tmp_path / "functions", **arguments)
    graphs = [escudo.CausalGraph.from_edges([arrow], nodes=["a", "b", "c"]) for arrow in (("a", "b"), ("b", "c"))]
    arguments |= {"epsilon": 1.0, "log": tmp_path / "graphs"}
    attack("marginals", rows, schema, graph=graphs[0], **arguments)
    with pytest.raises(InputError, match="another attack"):
        attack("marginals", rows, schema, graph=graphs[1], **arguments)


def test_a_log_of_the_same_function_with_other_settings_is_another_ones(rows, schema, tmp_path):
    class Copier:
        def __init__(self, often):
            self.often = often

        def fit(self, frame):
            self.frame = frame

        def sample(self, size):
            return self.frame.sample(size, with_replacement=True, seed=1)

    def times(often):
        return lambda frame, rng: frame.sample(often * frame.height, with_replacement=True, seed=1)

    arguments = {"choose": [60], "attacks": QUICK, "shadows": 2, "trials": 2}
    for name, make in (("objects", Copier), ("functions", times)):
        attack(make(1), rows, schema, log=tmp_path / name, **arguments)
        attack(make(1), rows, schema, log=tmp_path / name, **arguments)
        with pytest.raises(InputError, match="another attack"):
            attack(make(2), rows, schema, log=tmp_path / name, **arguments)


def test_a_log_that_is_no_file_is_refused_and_one_that_others_could_read_is_closed_to_them(tmp_path):
    with pytest.raises(InputError, match="Cannot use the log"):
        FitLog(tmp_path, "x")
    FitLog(tmp_path / "fits", "x")
    (tmp_path / "fits").chmod(0o644)
    FitLog(tmp_path / "fits", "x")
    assert (tmp_path / "fits").stat().st_mode & 0o077 == 0
    (tmp_path / "mine").write_text("mine\n")
    (tmp_path / "mine").chmod(0o644)
    with pytest.raises(InputError, match="not a log"):
        FitLog(tmp_path / "mine", "x")
    assert (tmp_path / "mine").stat().st_mode & 0o077 == 0o044  # it is not ours to touch


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({"choose": [60]}, 60),  # 61 rows, one of them set aside to stand in the target's place
        ({"choose": "canary"}, 61),
        ({"choose": [60], "fit_rows": 20}, 21),
        ({"choose": [60], "rest": "resampled"}, 30),
        ({"choose": [60], "public_rows": 7}, 7),
        ({"choose": [60], "relation": "add_remove"}, None),
    ],
    ids=["all", "canary", "some", "resampled", "stated", "add_remove"],
)
def test_the_attacked_generator_knows_the_rows_that_a_release_would_know(rows, schema, monkeypatch, change, known):
    import escudo.attacks._victims as victims

    stated = []

    def prepare(*arguments, **options):
        stated.append(options.get("public_rows"))
        raise InputError("seen enough")

    monkeypatch.setattr(victims, "prepare", prepare)
    with pytest.raises(InputError, match="seen enough"):
        attack("marginals", rows, schema, epsilon=1.0, attacks=QUICK, shadows=2, trials=2, **change)
    assert stated == [known]


def test_several_processes_give_the_same_answer(rows, schema, resampling):
    arguments = {"choose": [60], "attacks": QUICK, "shadows": 12, "trials": 12, "seed": 3}
    assert (
        attack("independent", rows, schema, epsilon=1.0, jobs=2, **arguments).to_json()
        == attack("independent", rows, schema, epsilon=1.0, jobs=1, **arguments).to_json()
    )


def test_outliers_are_those_far_from_their_neighbours(rows, schema):
    private = Rows.read(rows, schema)
    rng = np.random.default_rng(0)
    assert choose(private, 1, "outliers", rng) == [60]
    apart = (private.codes[:, None, :] != private.codes[None, :, :]).sum(axis=2).astype(float)
    np.fill_diagonal(apart, np.inf)
    assert outlyingness(private, rng) == pytest.approx(np.sort(apart, axis=1)[:, :5].mean(axis=1))
    assert canary(private).codes[0, 1] == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"generator": 3}, "generator must be"),
        ({"generator": "marginals"}, "epsilon says"),
        ({"generator": "marginals", "epsilon": 1.0, "claim": Guarantee(epsilon=1.0)}, "claim is for other"),
        ({"choose": "famous"}, "choose must be one of"),
        ({"choose": [99]}, "numbers of rows"),
        ({"targets": 100}, "only 61 rows"),
        ({"attacks": []}, "at least one pair"),
        ({"attacks": [("smell", "forest")]}, "features must be one of"),
        ({"rest": "moving"}, "rest must be one of"),
        ({"fit_rows": 70}, "there are 59"),
        ({"shadows": 0}, "shadows"),
        ({"confidence": 1.5}, "confidence"),
        ({"frames": "modin"}, "frames"),
        ({"jobs": 0}, "jobs must be 1 or more"),
        ({"claim": Guarantee(epsilon=1.0), "relation": "add_remove"}, "says nothing about a table"),
    ],
    ids=[
        "number", "no-epsilon", "claim", "choice", "row", "many", "none", "features", "rest", "rows", "shadows",
        "confidence", "frames", "jobs", "relation",
    ],
)  # fmt: skip
def test_bad_arguments_are_named(rows, schema, resampling, change, message):
    arguments = {"generator": resampling, "rows": rows, "schema": schema, "shadows": 2, "trials": 2}
    with pytest.raises(InputError, match=message):
        attack(**{**arguments, **change})


class TestCeiling:
    def test_pure_promises_allow_what_the_closed_form_says(self):
        for epsilon in (0.1, 1.0, 5.62):
            ceiling = ceiling_of(Guarantee(epsilon=epsilon), "replace_one")
            assert ceiling.accuracy == pytest.approx(math.exp(epsilon) / (1 + math.exp(epsilon)), abs=1e-9)
            assert ceiling.tpr == pytest.approx(min(0.01 * math.exp(epsilon), 1 - 0.99 * math.exp(-epsilon)), abs=1e-9)

    def test_gaussian_promises_allow_what_the_normal_law_says(self):
        from scipy.stats import norm

        ceiling = ceiling_of(Guarantee(mu=1.0), "replace_one")
        assert ceiling.advantage == pytest.approx(2 * norm.cdf(0.5) - 1, abs=1e-3)
        assert ceiling.auc == pytest.approx(norm.cdf(1 / math.sqrt(2)), abs=5e-3)
        assert ceiling.tpr == pytest.approx(norm.cdf(1.0 + norm.ppf(0.01)), abs=5e-3)

    def test_a_promise_about_adding_one_row_is_two_steps_for_replacing_it(self):
        promise = Guarantee(epsilon=0.5, relation="add_remove")
        assert ceiling_of(promise, "replace_one") == ceiling_of(Guarantee(epsilon=1.0), "replace_one")
        assert ceiling_of(promise, "add_remove").accuracy < ceiling_of(promise, "replace_one").accuracy

    @pytest.mark.parametrize("epsilon", [100.0, 1000.0])
    def test_a_promise_of_next_to_nothing_allows_everything(self, epsilon):
        ceiling = ceiling_of(Guarantee(epsilon=epsilon), "replace_one")
        assert (ceiling.accuracy, ceiling.advantage, ceiling.tpr) == pytest.approx((1.0, 1.0, 1.0))
        assert ceiling.auc == pytest.approx(1.0, abs=1e-5)

    def test_a_promise_about_replacing_says_nothing_about_leaving_out(self):
        with pytest.raises(InputError, match="relation='replace_one'"):
            ceiling_of(Guarantee(epsilon=1.0), "add_remove")


class TestScores:
    def test_figures_agree_with_their_definitions(self):
        there = np.array([True, True, True, False, False])
        score = score_of("queries", "forest", there, np.array([2.0, 1.0, -1.0, -2.0, 0.5]))
        assert (score.accuracy, score.tpr, score.fpr) == (0.6, pytest.approx(2 / 3), 0.5)
        assert score.auc == pytest.approx(5 / 6)
        assert score.tpr_at_1_percent == pytest.approx(2 / 3)
        assert score.accuracy_interval == pytest.approx((0.14663, 0.94726), abs=1e-4)

    def test_intervals_cover_the_truth(self):
        rng = np.random.default_rng(1)
        inside = {"accuracy": 0, "auc": 0}
        for _ in range(400):
            there = rng.random(60) < 0.5
            score = score_of("queries", "forest", there, rng.normal(size=60) + 0.5 * (2 * there - 1))
            low, high = score.accuracy_interval
            inside["accuracy"] += low <= 0.6915 <= high
            low, high = score.auc_interval
            inside["auc"] += low <= 0.7602 <= high
        assert inside["accuracy"] >= 0.94 * 400
        assert inside["auc"] >= 0.92 * 400

    def test_pooling_targets_gives_their_mean(self):
        there = np.array([True, False] * 10)
        scores = [score_of("queries", "forest", there, np.where(there, 1.0, side)) for side in (-1.0, 1.0)]
        both = pool(scores)
        assert both.accuracy == 0.75
        assert both.fits == 40
        assert both.accuracy_interval[0] <= 0.5

    def test_rates_of_targets_alike_are_as_uncertain_as_the_fits_they_are_about(self):
        there = np.repeat([True, False], 20)
        answers = np.r_[np.repeat([1.0, -1.0], [18, 2]), np.repeat([1.0, -1.0], [4, 16])]
        both = pool([score_of("queries", "forest", there, answers)] * 2)  # 40 fits with the target, 40 without
        for rate, (low, high) in ((both.tpr, both.tpr_interval), (both.fpr, both.fpr_interval)):
            assert high - low == pytest.approx(2 * 1.96 * math.sqrt(rate * (1 - rate) / 40))


class TestPublishedGame:
    def test_it_answers_right_where_there_is_nothing_to_find(self, rows, schema):
        victim = victim_of("independent", schema, epsilon=0.5, delta=1e-5)
        arguments = {"features": ["histogram"], "classifiers": ["forest"], "choice": [60], "seed": 1}
        null = published_game(victim, rows, schema, fits=1, sets=20, size=2000, null=True, **arguments)
        assert null[0].accuracy > 90  # neither world has the target; it recognises the fits
        by_fit = published_game(victim, rows, schema, fits=30, sets=4, by_fit=True, null=True, **arguments)
        assert 30 < by_fit[0].accuracy < 70

    def test_bins_lose_their_identity_as_published(self):
        from escudo.attacks._attacker import Attacker

        schema = escudo.Schema.from_dict({"x": {"type": "numeric", "lower": 0, "upper": 10, "bins": 5}})
        low = Rows.read(pl.DataFrame({"x": [0.5] * 10 + [9.5] * 3}), schema)
        high = Rows.read(pl.DataFrame({"x": [0.5] * 3 + [9.5] * 10}), schema)
        for lost in (True, False):
            attacker = Attacker.of(low.take(np.arange(13) == 0), low, kinds=["histogram"], seed=0, sorted_bins=lost)
            seen = [attacker(rows, np.random.default_rng(0))["histogram"] for rows in (low, high)]
            assert np.array_equal(*seen) == lost

    def test_impossible_splits_are_refused(self, rows, schema):
        victim = victim_of("independent", schema, epsilon=0.5, delta=1e-5)
        with pytest.raises(InputError, match="at least 2 fits"):
            published_game(victim, rows, schema, fits=1, by_fit=True)
        with pytest.raises(InputError, match="leaves none"):
            published_game(victim, rows, schema, fits=1, sets=1)


class TestAttributes:
    def test_a_value_that_is_given_away_is_found(self, rows, schema, flipped):
        found = infer_attribute(flipped(4.0, claimed=0.5), rows, schema, "b", choice=[60], fits=200, size=30)
        assert found.violated
        assert found.right > 0.9
        assert found.without < 0.1
        assert not infer_attribute(flipped(4.0), rows, schema, "b", choice=[60], fits=100, size=30).violated

    def test_what_others_give_away_is_no_advantage(self, rows, schema):
        victim = victim_of("independent", schema, epsilon=0.5, delta=1e-5)
        found = infer_attribute(victim, rows, schema, "c", choice=[60], fits=80)
        assert abs(found.advantage) < 0.35
        assert not found.violated
        assert "its own value" in str(found)

    def test_the_guess_is_the_commonest_value_although_less_than_half_of_the_rows_have_it(self):
        schema = escudo.Schema.from_dict({"key": ["0", "1"], "ward": ["a", "b", "c", "d", "e"]})
        rows = pl.DataFrame({"key": ["0"] * 20, "ward": ["a"] * 20})
        every = pl.DataFrame({"key": ["0"] * 25, "ward": ["a"] * 9 + ["b"] * 8 + ["c"] * 8})

        class Tells:
            claim = None

            def synthetic(self, rows, *, sets, size, seed):
                return [Rows.read(every, rows.rest.schema)] * sets

        found = infer_attribute(Tells(), rows, schema, "ward", choice=[0], fits=20, size=25)
        assert (found.right, found.without, found.advantage) == (1.0, 1.0, 0.0)

    def test_only_fits_that_were_made_are_counted(self, rows, schema, flipped):
        found = infer_attribute(flipped(4.0, claimed=0.1), rows, schema, "b", choice=[60], fits=500, size=30)
        assert found.violated
        assert found.audits[0].runs <= found.fits < 100

    def test_fits_of_one_world_alone_give_no_figure(self, rows, schema, flipped):
        found = infer_attribute(flipped(1.0), rows, schema, "b", choice=[60], fits=1, size=30)
        assert math.isnan(found.advantage)
        assert found.to_json()["advantage"] is None

    def test_numeric_columns_are_refused(self, rows):
        schema = escudo.Schema.from_dict({"a": ["0", "1"], "b": {"type": "numeric", "lower": 0, "upper": 2, "bins": 3}})
        frame = rows.select("a", pl.col("b").cast(pl.Float64))
        with pytest.raises(InputError, match="numeric"):
            infer_attribute(victim_of("independent", schema, epsilon=1.0), frame, schema, "b")


@pytest.mark.parametrize(("keywords", "game"), [(AttributeOptions, AttributeGame), (PublishedOptions, PublishedGame)])
def test_a_game_takes_its_fields_as_typed_keywords(keywords, game):
    typed = {name: hint.__forward_arg__ for name, hint in keywords.__annotations__.items()}
    assert typed == {field.name: field.type for field in fields(game)}


def test_a_neural_attacker_finds_what_a_line_cannot():
    """Where membership shows in the product of two features, a network does better than a logistic regression."""
    from escudo.attacks._attacker import train_classifier

    rng = np.random.default_rng(0)
    features = rng.normal(size=(600, 4))
    there = features[:, 0] * features[:, 1] > 0
    right = {}
    for name in ("network", "logistic"):
        judge = train_classifier(name, features[:400], there[:400], seed=1)
        right[name] = np.mean((judge.scores(features[400:]) > 0) == there[400:])
    assert right["network"] > 0.85
    assert right["logistic"] < 0.65
