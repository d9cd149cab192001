"""Adapters call other libraries' objects as those libraries are called; packages that are here are used themselves."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from escudo.auditing import adapters, audit
from escudo.errors import InputError
from escudo.privacy import Guarantee

RNG = np.random.default_rng(0)


class Algorithm:
    """Called as PyDP's algorithms are, and as strict: one result, then its budget is used up."""

    def __init__(self):
        self.used = False

    def quick_result(self, rows):
        assert isinstance(rows, list)
        assert not self.used
        self.used = True
        return sum(rows)


def test_a_mechanism_with_randomise_is_asked_for_it():
    assert adapters.diffprivlib(SimpleNamespace(randomise=lambda value: value + 1))(3, RNG) == 4


def test_a_function_of_tools_gets_its_options_and_another_seed_every_time():
    seen = []

    def mean(array, *, epsilon, random_state):
        seen.append((epsilon, random_state))
        return 0.5

    mechanism = adapters.diffprivlib(mean, epsilon=2.0)
    assert [mechanism([1], RNG), mechanism([1], RNG)] == [0.5, 0.5]
    assert [epsilon for epsilon, _ in seen] == [2.0, 2.0]
    assert len({seed for _, seed in seen}) == 2


def test_an_algorithm_that_counts_its_budget_is_made_anew():
    mechanism = adapters.pydp(Algorithm)
    assert [mechanism((1, 2), RNG) for _ in range(2)] == [3, 3]


def test_rows_of_a_query_come_without_their_heading():
    def reader(frame):
        return SimpleNamespace(execute=lambda query: [("n",), (len(frame),)])

    assert adapters.smartnoise(reader, "SELECT COUNT(*) AS n FROM t")([1, 2], RNG) == [[2]]


@pytest.mark.parametrize("make", [adapters.opendp, adapters.diffprivlib])
def test_what_cannot_be_called_is_refused(make):
    with pytest.raises(InputError, match="takes a me"):
        make(3)


def test_an_opendp_measurement_is_a_mechanism():
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    laplace = adapters.opendp(dp.m.make_laplace(*space, scale=0.5))
    assert audit(laplace, claim=Guarantee(epsilon=0.5), pairs=[(0, 1)], max_runs=4000, seed=1, progress=False).violated


class TestEstimators:
    def test_what_was_learnt_and_predicted_is_the_output_and_its_seed_is_drawn(self):
        from sklearn.linear_model import SGDClassifier

        rows = np.column_stack([np.linspace(-1, 1, 20), np.arange(20) % 2])
        fitted = adapters.estimator(lambda: SGDClassifier(max_iter=5, tol=None), probes=[[0.5]])
        outputs = [fitted(rows, RNG) for _ in range(3)]
        assert {"coef_", "intercept_", "predicted"} <= set(outputs[0])
        assert len({float(output["coef_"][0, 0]) for output in outputs}) > 1

    @pytest.mark.parametrize(
        ("dataset", "label"),
        [
            (pl.DataFrame({"x": [1.0, 2.0], "y": [0.0, 1.0]}), "y"),
            (np.array([[0.0, 1.0], [1.0, 2.0]]), 0),
            ((np.array([[1.0], [2.0]]), np.array([0.0, 1.0])), -1),
        ],
        ids=["a name", "a place", "X and y"],
    )
    def test_the_label_is_told_apart(self, dataset, label):
        from sklearn.linear_model import LinearRegression

        output = adapters.estimator(LinearRegression, label=label)(dataset, RNG)
        assert output["coef_"].tolist() == pytest.approx([1.0])


class TestTrainings:
    def test_parameters_of_any_form_become_numbers_in_order(self):
        tensor = SimpleNamespace(detach=lambda: SimpleNamespace(cpu=lambda: SimpleNamespace(numpy=lambda: [7.0, 8.0])))
        module = SimpleNamespace(state_dict=lambda: {"weight": tensor})
        tree = {"b": [np.ones((2, 1)), 3.0], "a": (np.zeros(1),)}
        assert adapters.training(lambda rows, seed: tree)([], RNG).tolist() == [0.0, 1.0, 1.0, 3.0]
        assert adapters.training(lambda rows, seed: module)([], RNG).tolist() == [7.0, 8.0]

    def test_something_else_can_be_looked_at(self):
        looked = adapters.training(lambda rows, seed: {"w": 2.0}, look=lambda found: -found["w"])
        assert looked([], RNG) == -2.0


class TestGenerators:
    TABLE = pl.DataFrame({"age": [30, 99], "town": ["a", "b"]})

    def test_canaries_are_counted_and_the_nearest_row_is_found(self):
        canaries = [{"age": 30, "town": "a"}, {"age": 99, "town": "a"}, {"age": 1, "town": "c"}]
        output = adapters.generator(lambda table, seed: table, canaries=canaries)(self.TABLE, RNG)
        assert output["like a canary"] == [1, 0, 0]
        assert output["nearest"] == [2, 1, 0]
        assert output["table"].equals(self.TABLE)

    def test_a_model_is_sampled(self):
        model = SimpleNamespace(sample=lambda rows: self.TABLE.head(rows))
        output = adapters.generator(lambda table, seed: model, rows=1, canaries=[{"age": 99}])(self.TABLE, RNG)
        assert (len(output["table"]), output["like a canary"]) == (1, [0])

    def test_an_empty_table_is_near_nothing(self):
        output = adapters.generator(lambda table, seed: table.head(0), canaries=[{"age": 99}])(self.TABLE, RNG)
        assert (output["like a canary"], output["nearest"]) == ([0], [0])
