from __future__ import annotations

import math
import time
from itertools import pairwise

import numpy as np
import pytest

from escudo.causal import _inference
from escudo.causal._inference import Factor, Lookup, contract, product
from escudo.errors import InputError


def running_count(n: int, p: float) -> tuple[list[Factor | Lookup], str]:
    """Independent D1…Dn and their count as a chain of running counts."""
    factors: list[Factor | Lookup] = [Factor((f"D{i}",), [1 - p, p]) for i in range(n)]
    total = "D0"
    for i in range(1, n):
        index = np.add.outer(np.arange(i + 1), np.arange(2))
        factors.append(Lookup((total, f"D{i}"), f"S{i}", index, i + 2))
        total = f"S{i}"
    return factors, total


def test_the_kept_axes_come_in_the_order_asked_for():
    joint = Factor(("a", "b"), [[0.1, 0.2, 0.3], [0.4, 0.0, 0.0]])
    assert contract([joint], ["b", "a"]) == pytest.approx(joint.array.T)
    assert contract([joint], ["a"]) == pytest.approx([0.6, 0.4])
    assert contract([joint], []) == pytest.approx(1.0)


def test_nothing_to_multiply_gives_one():
    assert contract([], []) == 1.0


def test_a_variable_with_one_value_keeps_its_axis():
    assert contract([Factor(("a", "b"), [[0.3, 0.7]])], ["b", "a"]).shape == (2, 1)
    assert contract([Lookup(("a",), "b", np.array([0]), 1), Factor(("a",), [1.0])], ["b"]).tolist() == [1.0]


def test_a_hundred_variables_with_one_value_do_not_run_into_the_limit_of_axes():
    names = tuple(f"x{i}" for i in range(100))
    factors = [Factor((a, b), [[1.0]]) for a, b in pairwise(names)]
    assert contract(factors, ["x0", "x99"]).tolist() == [[1.0]]


def test_a_lookup_used_twice_with_the_same_variable_reads_the_diagonal():
    difference = Lookup(("a", "b"), "c", np.array([[1, 0], [2, 1]]), 3).rename({"b": "a"})
    assert difference.inputs == ("a",)
    assert difference.index.tolist() == [1, 1]


def test_fixing_the_output_of_a_lookup_leaves_the_inputs_that_lead_to_it():
    step = Lookup(("a", "b"), "c", np.array([[0, 1], [1, 2]]), 3)
    assert step.at({"c": 1}).array.tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert step.at({"a": 1}).index.tolist() == [1, 2]


def test_a_kept_output_of_kept_inputs_is_laid_out_in_full():
    step = Lookup(("a",), "b", np.array([1, 0]), 2)
    assert contract([step, Factor(("a",), [0.25, 0.75])], ["a", "b"]).tolist() == [[0.0, 0.25], [0.75, 0.0]]


def test_the_count_of_a_thousand_variables_is_binomial_and_quick():
    factors, total = running_count(1000, 0.1)
    start = time.process_time()
    law = contract(factors, [total], log=True)
    assert time.process_time() - start < 20.0
    expected = [
        math.lgamma(1001) - math.lgamma(k + 1) - math.lgamma(1001 - k) + k * math.log(0.1) + (1000 - k) * math.log(0.9)
        for k in range(1001)
    ]
    assert law == pytest.approx(expected, abs=1e-9)


def test_two_counts_of_the_same_variables_are_taken_together():
    factors, total = running_count(40, 0.3)
    others, other_total = running_count(40, 0.3)
    second = [factor.rename({f"S{i}": f"T{i}" for i in range(40)}) for factor in others if isinstance(factor, Lookup)]
    joint = contract([*factors, *second], [total, other_total.replace("S", "T")])
    assert np.count_nonzero(joint - np.diag(np.diag(joint))) == 0
    assert np.diag(joint) == pytest.approx(contract(factors, [total]))


def test_probabilities_below_the_smallest_float_are_not_lost():
    chain = [Factor((f"x{i}",), [1e-300, 1.0]) for i in range(3)]
    everything = Lookup(("x0", "x1", "x2"), "all", np.array([1, 0, 0, 0, 0, 0, 0, 0]).reshape(2, 2, 2), 2)
    assert contract([*chain, everything], ["all"], log=True)[1] == pytest.approx(3 * math.log(1e-300))
    assert contract([*chain, everything], ["all"]).tolist() == [1.0, 0.0]


def test_a_factor_given_by_logarithms_says_when_its_numbers_are_too_small():
    assert Factor.from_log(("a",), [-1000.0, 0.0]).lossy
    assert not Factor.from_log(("a",), [-np.inf, 0.0]).lossy
    assert product([Factor.from_log(("a",), [-1000.0, 0.0])], ["a"]).log[0] == -1000.0


def test_zero_stays_zero_and_positive_stays_positive_in_logarithms():
    tiny = Factor.from_log(("a",), [-5000.0, -np.inf])
    assert contract([tiny, Factor(("a", "b"), [[1.0, 0.0], [0.5, 0.5]])], ["b"], log=True).tolist() == [
        -5000.0,
        -np.inf,
    ]


def test_equal_questions_have_equal_answers_to_the_last_bit():
    factors, total = running_count(60, 0.37)
    first = contract(factors, [total])
    assert np.array_equal(first, contract(factors, [total]))


def test_a_factor_is_not_changed_by_changing_the_array_it_came_from():
    array = np.array([0.5, 0.5])
    factor = Factor(("a",), array)
    array[0] = 7.0
    assert factor.array.tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="read-only"):
        factor.array[0] = 1.0


def test_a_table_that_would_not_fit_is_refused_before_it_is_built(monkeypatch):
    monkeypatch.setattr(_inference, "MAX_CELLS", 1000)
    names = [f"x{i}" for i in range(12)]
    with pytest.raises(InputError, match=r"table of 4\.1e\+03 cells.*count"):
        contract([Factor((name,), [0.5, 0.5]) for name in names], names)


@pytest.mark.parametrize(
    ("factors", "keep", "words"),
    [
        ([Factor(("a",), [1.0])], ["b"], "Cannot keep b"),
        ([Factor(("a",), [1.0])], ["a", "a"], "Cannot keep a, a"),
        ([Factor(("a",), [1.0]), Factor(("a",), [0.5, 0.5])], [], "'a' has 1 values in one factor and 2"),
        ([Lookup((), "a", np.array(0), 2), Lookup((), "a", np.array(1), 2)], [], "set by two lookups"),
    ],
)
def test_factors_that_do_not_fit_together_are_refused(factors, keep, words):
    with pytest.raises(InputError, match=words):
        contract(factors, keep)


@pytest.mark.parametrize(("names", "array"), [(("a",), [[1.0]]), (("a", "a"), [[1.0]]), ((), [1.0])])
def test_a_factor_needs_one_different_name_per_axis(names, array):
    with pytest.raises(InputError, match="axes"):
        Factor(names, array)
