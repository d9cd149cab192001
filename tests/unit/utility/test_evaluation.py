"""Claims about the comparison of real and synthetic rows."""

from __future__ import annotations

import json
from typing import ClassVar

import numpy as np
import polars as pl
import pytest

import escudo
from escudo.causal import asia
from escudo.errors import InputError
from escudo.utility import LEARNERS, _prediction, causal_fidelity, evaluate, fidelity
from escudo.utility._prediction import auc, balanced_accuracy, variance_explained
from escudo.utility._rows import Rows


def test_a_fresh_real_sample_loses_nothing_and_mixed_columns_lose_much(schema, draw):
    train, test = draw(1500, 1), draw(1500, 2)
    fresh = evaluate(train, test, draw(1500, 3), schema, targets=["ill", "smoke"], learners=["logistic", "forest"])
    mixed = evaluate(train, test, draw(1500, 3, mixed=True), schema, targets=["ill", "smoke"], learners=["logistic"])
    assert abs(fresh.change().change) < 3.0
    assert mixed.change().change > 8.0
    assert mixed.change().auc > 20.0
    assert fresh.fidelity[0].two_way < 1.5 * fresh.floor.two_way
    assert mixed.fidelity[0].two_way > 3 * mixed.floor.two_way
    assert mixed.fidelity[0].one_way < 1.5 * mixed.floor.one_way
    assert abs(fresh.fidelity[0].detection - 0.5) < 0.06
    assert mixed.fidelity[0].detection > 0.7
    assert mixed.fidelity[0].correlation > 5 * fresh.fidelity[0].correlation


def test_the_baseline_is_the_share_of_the_commonest_real_class(schema, draw):
    train, test = draw(400, 1), draw(400, 2)
    found = evaluate(train, test, train, schema, targets=["ward"], learners=["neighbours"])
    common = train["ward"].value_counts(sort=True)["ward"][0]
    assert found.change().baseline == pytest.approx(100 * (test["ward"] == common).mean())
    assert found.change().change == 0.0


@pytest.mark.parametrize("learner", LEARNERS)
def test_every_learner_predicts_classes_and_numbers(schema, draw, learner):
    found = evaluate(draw(300, 1), draw(300, 2), draw(300, 3), schema, targets=["ward", "age"], learners=[learner])
    assert found.change(learner, "class").real > found.change(learner, "class").baseline
    assert -100 <= found.change(learner, "number").real <= 100
    assert {one.kind for one in found.predictions if one.target == "age"} == {"number"}


def test_intervals_are_over_tables_when_there_are_several(schema, draw):
    made = [draw(300, seed) for seed in (3, 4, 5)]
    found = evaluate(draw(300, 1), draw(300, 2), made, schema, targets=2, learners=["logistic"], seed=4)
    change = found.change()
    by_run = [
        100
        * np.mean(
            [
                before.accuracy - after.accuracy
                for after in found.predictions
                if after.trained_on == "synthetic" and after.run == run and after.kind == "class"
                for before in found.predictions
                if before.trained_on == "real" and before.target == after.target
            ]
        )
        for run in range(3)
    ]
    assert change.over == "tables"
    assert change.change == pytest.approx(np.mean(by_run))
    assert change.high - change.change == pytest.approx(4.302653 * np.std(by_run, ddof=1) / np.sqrt(3), rel=1e-5)
    assert len(found.fidelity) == 3


def test_the_same_seed_gives_the_same_evaluation(schema, draw):
    arguments = (draw(200, 1), draw(200, 2), draw(200, 3), schema)
    once = evaluate(*arguments, targets=2, learners=["forest"], seed=7)
    again = evaluate(*arguments, targets=2, learners=["forest"], seed=7)
    assert once.to_json() == again.to_json()
    assert json.loads(json.dumps(once.to_json()))["custodian_only"] is True


def test_frames_of_any_engine_give_the_same_figures(schema, draw):
    frame = draw(200, 1)
    plain = fidelity(Rows.read(frame, schema), Rows.read(draw(200, 2), schema), detect=False)
    for other in (frame.lazy(), frame.to_pandas(), frame.to_arrow()):
        assert fidelity(Rows.read(other, schema), Rows.read(draw(200, 2), schema), detect=False) == plain


def test_a_column_with_one_synthetic_level_is_answered_with_it(schema, draw):
    made = draw(200, 3).with_columns(ill=pl.lit("no"))
    found = evaluate(draw(200, 1), draw(200, 2), made, schema, targets=["ill"], learners=["linear svc"])
    after = next(one for one in found.predictions if one.trained_on == "synthetic")
    assert after.accuracy == pytest.approx((draw(200, 2)["ill"] == "no").mean())
    assert after.auc == 0.5


def test_rows_show_how_many_they_are_and_nothing_else(schema, draw):
    assert repr(Rows.read(draw(20, 1), schema)) == "Rows(20 of 4 columns)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": 0}, "targets must be a whole number"),
        ({"targets": ["height"]}, "height"),
        ({"targets": []}, "at least one column"),
        ({"learners": ["boosting"]}, "learners must be one of"),
        ({"learners": []}, "at least one learner"),
        ({"most_rows": 0}, "most_rows"),
        ({"seed": -1}, "seed"),
        ({"reference": asia()}, "go together"),
        ({"synthetic": []}, "holds no table"),
        ({"synthetic": 3}, "must be a frame"),
    ],
    ids=["no-target", "unknown", "empty", "learner", "no-learner", "rows", "seed", "reference", "no-table", "number"],
)
def test_bad_arguments_are_named(schema, draw, change, message):
    arguments = {"real_train": draw(50, 1), "real_test": draw(50, 2), "synthetic": draw(50, 3), "schema": schema}
    with pytest.raises(InputError, match=message):
        evaluate(**{**arguments, **change})


def test_a_private_table_keeps_its_rows_to_itself(schema, draw):
    with pytest.raises(InputError, match="keeps its rows to itself"):
        Rows.read(escudo.PrivateTable(draw(50, 1), schema), schema)


def test_measures_agree_with_their_definitions():
    rng = np.random.default_rng(3)
    truth, scores = rng.random(60) < 0.4, rng.integers(0, 6, 60).astype(float)
    wins = [(a > b) + 0.5 * (a == b) for a in scores[truth] for b in scores[~truth]]
    assert auc(truth, scores) == pytest.approx(np.mean(wins))
    assert np.isnan(auc(np.ones(3, dtype=bool), np.arange(3.0)))
    assert balanced_accuracy(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])) == 0.75
    assert variance_explained(np.array([0.0, 2.0]), np.array([1.0, 1.0])) == 0.0
    assert variance_explained(np.array([0.0, 2.0]), np.array([90.0, 90.0])) == -1.0


@pytest.fixture(scope="module")
def clinic():
    network = asia()
    schema = escudo.Schema.from_dict({name: list(network.levels[name]) for name in network.nodes})
    table = escudo.PrivateTable(network.sample_frame(20_000, rng=np.random.default_rng(0)), schema)
    return network, escudo.synthesize(table, network.graph, epsilon=4.0, delta=1e-6, seed=1)


class Sampled:
    """The same model, without exact answers."""

    def __init__(self, model):
        self.schema, self.sample = model.schema, model.sample


def test_interventions_are_compared_exactly_and_by_sampling(clinic):
    network, model = clinic
    exact = causal_fidelity(model, network, columns=["smoke", "lung", "bronc"])
    drawn = causal_fidelity(Sampled(model), network, columns=["smoke", "lung", "bronc"], rows=20_000)
    assert exact.questions == 12
    assert exact.intervention < 0.02
    assert drawn.intervention == pytest.approx(exact.intervention, abs=0.01)
    truth = abs(0.1 - 0.01)  # the published effect of smoking on lung cancer
    ours = model.probability(["lung"], do={"smoke": "yes"}) - model.probability(["lung"], do={"smoke": "no"})
    assert abs(ours).max() == pytest.approx(truth, abs=0.02)
    assert causal_fidelity(model, model, columns=["smoke", "lung"]).effect == 0.0


def test_a_model_that_reverses_the_arrow_is_far_off(clinic):
    network, _ = clinic
    schema = escudo.Schema.from_dict({name: list(network.levels[name]) for name in ("smoke", "bronc")})
    frame = network.sample_frame(20_000, rng=np.random.default_rng(0)).select("smoke", "bronc")
    graph = escudo.CausalGraph.from_edges([("bronc", "smoke")])
    wrong = escudo.synthesize(escudo.PrivateTable(frame, schema), graph, epsilon=4.0, delta=1e-6, seed=1)
    assert causal_fidelity(wrong, network).intervention > 0.1


def test_numeric_columns_are_refused_as_interventions(schema, draw):
    model = escudo.synthesize(escudo.PrivateTable(draw(200, 1), schema), None, epsilon=1.0, delta=1e-6, seed=1)
    with pytest.raises(InputError, match="numeric"):
        causal_fidelity(model, model, columns=["ill", "age"])


def test_an_evaluation_shows_itself_in_a_notebook(schema, draw):
    found = evaluate(draw(100, 1), draw(100, 2), draw(100, 3), schema, targets=["ill"], learners=["logistic"])
    html = found._repr_html_()
    assert html.count("<tr>") == 3
    assert "For the custodian only" in html


class TestLog:
    """An evaluation that was stopped goes on where it was."""

    ASKED: ClassVar[dict[str, object]] = {
        "targets": ["ill", "smoke"],
        "learners": ["logistic", "neighbours"],
        "seed": 3,
    }

    def stopped(self, monkeypatch, number):
        """Stop at one of the predictions, and return those that were made."""
        learnt, made = _prediction._predict, []

        def predict(asked):
            if len(made) == number:
                raise KeyboardInterrupt
            made.append(asked[0].key)
            return learnt(asked)

        monkeypatch.setattr(_prediction, "_predict", predict)
        return made

    def test_what_was_predicted_is_not_predicted_again(self, schema, draw, tmp_path, monkeypatch):
        tables = draw(300, 1), draw(300, 2), [draw(300, 3), draw(300, 4)]
        wanted = evaluate(*tables, schema, **self.ASKED)
        log = tmp_path / "log"
        with monkeypatch.context() as patch:
            self.stopped(patch, 5)
            with pytest.raises(KeyboardInterrupt):
                evaluate(*tables, schema, log=log, **self.ASKED)
        assert log.stat().st_mode & 0o077 == 0
        with monkeypatch.context() as patch:
            made = self.stopped(patch, -1)
            found = evaluate(*tables, schema, log=log, **self.ASKED)
        assert len(made) == len(wanted.predictions) - 5
        assert found == wanted
        with monkeypatch.context() as patch:
            self.stopped(patch, 0)  # nothing is left to be done
            assert evaluate(*tables, schema, log=log, jobs=2, **self.ASKED) == wanted

    @pytest.mark.parametrize("changed", [{"seed": 4}, {"learners": ["logistic"]}, {"targets": ["ill"]}, "rows", "test"])
    def test_the_log_of_another_evaluation_is_refused(self, changed, schema, draw, tmp_path):
        tables = {"real_train": draw(60, 1), "real_test": draw(60, 2), "synthetic": draw(60, 3)}
        asked = {**self.ASKED, "learners": ["neighbours"], "log": tmp_path / "log"}
        evaluate(**tables, schema=schema, **asked)
        other = {"rows": {"synthetic": draw(60, 4)}, "test": {"real_test": draw(60, 5)}}
        changes = other[changed] if isinstance(changed, str) else changed
        before = (tmp_path / "log").read_bytes()
        with pytest.raises(InputError, match="log of another evaluation"):
            evaluate(**{**tables, "schema": schema, **asked, **changes})
        assert (tmp_path / "log").read_bytes() == before

    def test_a_line_that_is_no_prediction_is_refused(self, schema, draw, tmp_path):
        rows, log = draw(60, 1), tmp_path / "log"
        asked = {"targets": ["ill"], "learners": ["neighbours"], "log": log}
        evaluate(rows, rows, rows, schema, **asked)
        head, line, *_ = log.read_text().splitlines()
        good = json.loads(line)
        for bad in (3, {}, good | {"run": "0"}, good | {"accuracy": "1"}, good | {"kind": "x"}, good | {"more": 1}):
            log.write_text("\n".join([head, json.dumps(bad), line, ""]))
            with pytest.raises(InputError, match="damaged: line 2 is no prediction"):
                evaluate(rows, rows, rows, schema, **asked)
        log.write_text(f"{head}\n{line}\n{line[:20]}")  # cut short by a crash
        assert evaluate(rows, rows, rows, schema, **asked) == evaluate(
            rows, rows, rows, schema, targets=["ill"], learners=["neighbours"]
        )
