"""Models built from Python values: functions, tables, arrays and text, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from escudo.causal import SEM
from escudo.causal._inference import Factor
from escudo.errors import GraphError, InputError, ParseError


def test_equations_come_in_any_order_and_are_sorted_parents_first():
    sem = SEM.build(
        exogenous={"U": {0: 0.5, 1: 0.5}},
        equations={"C": (("A", "B"), lambda a, b: a + b), "B": ("A", lambda a: 1 - a), "A": ("U", lambda u: u)},
    )
    assert sem.variables == ("U", "A", "B", "C")
    assert sem.exogenous == ("U",)
    assert sem.endogenous == ("A", "B", "C")
    assert sem.range("C") == (0, 1, 2)  # what do(A, B) can lead to, not only what happens by itself


def test_functions_tables_arrays_and_text_say_the_same():
    exogenous = {"U": {"a": 0.25, "b": 0.75}}
    ways = [
        ("U", lambda u: {0: 0.2, 1: 0.8} if u == "a" else 1),
        (("U",), {"a": {0: 0.2, 1: 0.8}, "b": 1}),
        (("U",), {("a",): {0: 0.2, 1: 0.8}, ("b",): {1: 1.0}}),
        ("U", [[0.2, 0.8], [0.0, 1.0]]),
        ("U", [[0.8, 0.2], [1.0, 0.0]], [1, 0]),
        "choose(0: 0.2, 1: 0.8) if U = a else 1",
    ]
    models = [SEM.build(exogenous=exogenous, equations={"X": way}) for way in ways]
    assert all(model == models[0] for model in models[:5])
    for model in models:
        assert model.equation("X").table == pytest.approx(np.array([[0.2, 0.8], [0.0, 1.0]]))


def test_correlated_exogenous_variables_share_a_joint_law():
    sem = SEM.build(exogenous={("A", "B"): {("x", 0): 0.5, ("y", 1): 0.25, ("x", 1): 0.25}})
    assert sem.range("A") == ("x", "y")
    assert sem.probability({"A": "y"}, given={"B": 1}) == pytest.approx(0.5)
    assert sem.probability({"A": "y"}, do={"B": 1}) == pytest.approx(0.25)


def test_a_population_may_be_given_apart_from_the_ranges():
    sem = SEM.build(exogenous={"A": [0, 1], "B": [0, 1]}, population=[[0.5, 0.0], [0.0, 0.5]])
    assert sem.probability({"A": 1, "B": 1}) == 0.5


def test_thirds_typed_with_ten_digits_are_scaled_to_one_and_float_rounding_is_left_alone():
    rough = SEM.build(exogenous={"A": {0: 0.3333333333, 1: 0.3333333333, 2: 0.3333333333}})
    assert math.fsum(rough.population[0].array) == pytest.approx(1, abs=1e-15)
    exact = SEM.build(exogenous={"A": dict.fromkeys(range(10), 0.1)})
    assert exact.population[0].array.tolist() == [0.1] * 10


def test_numpy_values_become_plain_ones():
    sem = SEM.build(
        exogenous={"A": {np.int64(0): 0.5, np.int64(1): 0.5}}, equations={"B": ("A", lambda a: np.bool_(a))}
    )
    assert [type(value) for value in (*sem.range("A"), *sem.range("B"))] == [int, int, bool, bool]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"exogenous": {"A": {0: 0.5, 1: 0.4}}}, r"population of A: probabilities add up to 0\.9"),
        ({"exogenous": {"A": {0: 1.5, 1: -0.5}}}, "at least 0"),
        ({"exogenous": {"A": {0: math.nan, 1: 1.0}}}, "numbers of at least 0"),
        ({"exogenous": {"A": {0: "x"}}}, "numbers as probabilities"),
        ({"exogenous": {"A": {0.5: 1.0}}}, "whole numbers"),
        ({"exogenous": {"A": {}}}, "value: probability"),
        ({"exogenous": {"A": 3}}, "value: probability"),
        ({"exogenous": {("A", "B"): {0: 1.0}}}, r"\(value, value\): probability"),
        ({"exogenous": {("A", "A"): {(0, 0): 1.0}}}, "'A' is given twice"),
        ({"exogenous": {"A": [0, 1]}}, "'A' has no law"),
        ({"exogenous": {"A b": {0: 1.0}}}, "one word"),
        ({"exogenous": {"if": {0: 1.0}}}, "not reserved"),
        ({"exogenous": {"count": {0: 1.0}}}, "not reserved"),
        ({"exogenous": {"A": [0, 1]}, "population": [0.5, 0.25, 0.25]}, r"has shape \(3,\).*need \(2,\)"),
        ({"exogenous": {"A": [0, 1]}, "population": {"B": {0: 1.0}}}, "'B' is not one of A"),
        (
            {"exogenous": {"A": [0, 1]}, "population": {"A": {2: 1.0}}},
            "never takes the value 2; its values are 0, 1",
        ),
        ({"exogenous": {"A": {0: 1.0}}, "equations": {"A": ((), lambda: 0)}}, "'A' is defined twice"),
        (
            {"exogenous": {"A": {0: 1.0}}, "equations": {"X": ("Aa", lambda a: a)}},
            "reads 'Aa', which is not defined. Did",
        ),
        ({"exogenous": {"A": {0: 1.0}}, "equations": {"X": (("A", "A"), lambda a, b: a)}}, "a parent twice"),
        ({"exogenous": {"A": {0: 1.0}}, "equations": {"X": 3}}, "must be text such as"),
        ({"exogenous": {"A": {0: 1.0}}, "equations": {"X": ("A", lambda a: 0.5)}}, "whole numbers"),
        ({"exogenous": {"A": {0: 1.0}}, "equations": {"X": ("A", lambda a: {0: 0.5})}}, r"add up to 0\.5"),
        (
            {"exogenous": {"A": {0: 0.5, 1: 0.5}}, "equations": {"X": ("A", lambda a: (1, True)[a])}},
            "lists a value twice",
        ),
        ({"exogenous": {"A": {0: 0.5, 1: 0.5}}, "equations": {"X": ("A", {0: 1})}}, "no row for A = 1"),
        ({"exogenous": {"A": {0: 1.0}}, "equations": {"X": ("A", {0: 1, 7: 1})}}, "never take"),
        (
            {"exogenous": {"A": {0: 1.0}}, "equations": {"X": ("A", [[1.0], [1.0]])}},
            r"shape \(2, 1\).*need \(1, 1\)",
        ),
        ({"exogenous": {"A": {0: 1.0}}, "equations": {"X": ("A", {0: 2}, [0, 1])}}, "gives 2, which is not among"),
        ({"exogenous": {"A": "ab"}}, "Give A as {value: probability}"),
        ({"exogenous": {3: {0: 1.0}}}, "one word of letters.*got 3"),
        ({"exogenous": {"A": {0: "half"}}}, "population of A needs numbers as probabilities; got 'half'"),
        ({"exogenous": {"A": [0, 1]}, "population": "half"}, "population of A must be an array of numbers"),
        ({"exogenous": {"A": [0, 1]}, "population": {3: {0: 1.0}}}, "3 is not one of A"),
        ({"exogenous": {"A": {0: 1.0}}, "equations": {"X": (3, lambda a: a)}}, "one word of letters.*got 3"),
        (
            {"exogenous": {"A": {0: 1.0}}, "equations": {"X": ("A", {0: {1: "half"}})}},
            "equation of 'X' needs numbers",
        ),
        ({"exogenous": {"A": {0: 1.0}}, "equations": {"X": ("A", "half", [0])}}, "table for 'X' must be an array"),
    ],
)
def test_what_does_not_fit_is_named(arguments, words):
    with pytest.raises(InputError, match=words):
        SEM.build(**arguments)


def test_a_cycle_is_shown():
    with pytest.raises(GraphError, match="X → Y → Z → X"):
        SEM.build(
            exogenous={"A": {0: 1.0}},
            equations={"X": ("Y", lambda v: v), "Y": (("A", "Z"), lambda a, v: v), "Z": ("X", lambda v: v)},
        )


def test_text_in_an_equation_points_at_its_mistake():
    with pytest.raises(ParseError, match=r"equation of X, line 1, column 8: there is no variable or level 'Q'"):
        SEM.build(exogenous={"A": {0: 1.0}}, equations={"X": "max(A, Q)"})


def test_a_function_of_too_many_values_is_refused_with_a_remedy():
    exogenous = {f"A{i}": {0: 0.5, 1: 0.5} for i in range(25)}
    with pytest.raises(InputError, match=r"combinations of its parents' values.*count"):
        SEM.build(exogenous=exogenous, equations={"X": (tuple(exogenous), lambda *a: sum(a))})


def test_the_constructor_wants_one_law_per_variable():
    law = Factor(("A",), [1.0])
    with pytest.raises(InputError, match="two laws"):
        SEM(ranges={"A": (0,)}, equations={}, population=(law, law))
    with pytest.raises(InputError, match="either an equation or"):
        SEM(ranges={"A": (0,), "B": (0,)}, equations={}, population=(law,))
