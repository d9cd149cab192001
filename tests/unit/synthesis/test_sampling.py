"""Drawing rows follows the model's law, under do and given, with less noise than independent draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from escudo.errors import InputError, ZeroProbabilityError
from escudo.synthesis import _laws
from escudo.synthesis._laws import (
    LogitConditional,
    MaxConditional,
    NoisyOrConditional,
    TableConditional,
    conditional_from_arrays,
    dense_table,
)

SMOKE = TableConditional((), np.array([0.5, 0.5]))
LUNG = TableConditional(("smoke",), np.array([[0.99, 0.01], [0.9, 0.1]]))
COUGH = TableConditional(("smoke", "lung"), np.array([[[0.9, 0.1], [0.3, 0.7]], [[0.7, 0.3], [0.2, 0.8]]]))
CLINIC = {"smoke": SMOKE, "lung": LUNG, "cough": COUGH}
ORDER = ("smoke", "lung", "cough")


def joint(codes: dict[str, np.ndarray]) -> np.ndarray:
    table = np.zeros((2, 2, 2))
    np.add.at(table, tuple(codes[name] for name in ORDER), 1)
    return table / table.sum()


def truth() -> np.ndarray:
    return SMOKE.table[:, None, None] * LUNG.table[:, :, None] * COUGH.table


def test_counts_miss_their_expectation_by_less_than_one_per_family_cell() -> None:
    rows = 10_000
    codes = _laws.draw(CLINIC, {}, rows, np.random.default_rng(0))
    assert abs(int((codes["smoke"] == 1).sum()) - rows / 2) < 1
    for smoke in (0, 1):
        of_group = codes["smoke"] == smoke
        expected = of_group.sum() * LUNG.table[smoke, 1]
        assert abs(int((codes["lung"][of_group] == 1).sum()) - expected) < 1


@pytest.mark.parametrize("rows", [3, 50_000], ids=["fewer rows than configurations", "more"])
def test_a_law_that_is_no_table_is_drawn_as_its_table_would_be(rows: int) -> None:
    steep = np.array([[0.0, 0.0, 0.0], [0.0, 2.0, -1.0]])
    laws = {"a": SMOKE, "b": SMOKE, "c": LogitConditional(("a", "b"), np.array([0.0, 0.5, 1.0]), (steep, steep))}
    codes = _laws.draw(laws, {}, rows, np.random.default_rng(0))
    assert codes["c"].shape == (rows,)
    if rows > 4:
        counts = np.zeros((2, 2, 3))
        np.add.at(counts, (codes["a"], codes["b"], codes["c"]), 1)
        expected = counts.sum(axis=2, keepdims=True) * dense_table(laws["c"])
        assert np.abs(counts - expected).max() < 1


def test_each_single_row_has_the_models_law() -> None:
    draws = np.array([_draw_three(seed) for seed in range(4000)])
    share = draws[:, 0].mean(axis=0)
    # 5 standard errors of a share of 4000 independent one-row draws
    assert np.abs(share - truth().sum(axis=(0, 1))).max() < 5 * np.sqrt(0.25 / 4000)


def _draw_three(seed: int) -> np.ndarray:
    codes = _laws.draw(CLINIC, {}, 3, np.random.default_rng(seed))
    return np.eye(2)[codes["cough"]]


def test_an_intervention_cuts_the_arrows_into_its_node() -> None:
    codes = _laws.draw(CLINIC, {"lung": 1}, 40_000, np.random.default_rng(1))
    expected = np.zeros((2, 2, 2))
    expected[:, 1, :] = SMOKE.table[:, None] * COUGH.table[:, 1, :]
    assert np.abs(joint(codes) - expected).sum() < 1e-3


@pytest.mark.parametrize("exact", [True, False])
def test_a_condition_is_met_and_leaves_the_conditional_law(exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not exact:
        monkeypatch.setattr(_laws, "_MAX_EXACT_CELLS", 1)
    drawn = _laws.drawer(CLINIC, fixed={}, evidence={"cough": 1})
    codes = drawn(20_000, np.random.default_rng(2))
    expected = truth()
    expected[:, :, 0] = 0
    expected /= expected.sum()
    assert np.abs(joint(codes) - expected).sum() < (2e-3 if exact else 2e-2)


def test_do_and_given_together_condition_in_the_intervened_model() -> None:
    drawn = _laws.drawer(CLINIC, fixed={"lung": 1}, evidence={"cough": 1})
    codes = drawn(20_000, np.random.default_rng(3))
    expected = SMOKE.table * COUGH.table[:, 1, 1]
    assert abs((codes["smoke"] == 1).mean() - expected[1] / expected.sum()) < 1e-3


def test_what_comes_after_the_evidence_does_not_stand_in_the_way_of_an_exact_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    causes = [f"x{i}" for i in range(30)]
    steep = np.array([[0.0, 0.0], [0.0, 1.0]])
    child = LogitConditional(tuple(causes), np.array([0.0, -15.0]), (steep,) * 30)  # its table has 2^31 cells
    laws = {"first": TableConditional((), np.array([0.5, 0.5]))}
    laws |= {name: TableConditional(("first",), np.array([[0.8, 0.2], [0.2, 0.8]])) for name in causes}
    laws["child"] = child
    monkeypatch.delattr(_laws, "_weighted")
    drawn = _laws.drawer(laws, fixed={}, evidence={"x3": 1})(20_000, np.random.default_rng(0))
    assert (drawn["x3"] == 1).all()
    assert (drawn["first"] == 1).mean() == pytest.approx(0.8, abs=1e-3)
    assert (drawn["x7"] == 1).mean() == pytest.approx(0.8 * 0.8 + 0.2 * 0.2, abs=1e-3)
    assert (drawn["child"] == 1).mean() == pytest.approx(0.8, abs=0.1)


def test_weighted_rows_are_taken_from_pools_that_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    def watched(laws: Any, fixed: Any, rows: int, rng: np.random.Generator) -> Any:
        held.append(rows * len(laws))
        return plain(laws, fixed, rows, rng)

    plain = _laws.draw
    monkeypatch.setattr(_laws, "_MAX_EXACT_CELLS", 1)
    monkeypatch.setattr(_laws, "_POOL_NUMBERS", 2**18)
    monkeypatch.setattr(_laws, "draw", watched)
    drawn = _laws.drawer(CLINIC, fixed={}, evidence={"cough": 1})
    codes = drawn(20_000, np.random.default_rng(2))
    assert max(held) <= 2**18
    assert codes["smoke"].size == 20_000
    expected = truth()[:, :, 1].sum(axis=1)
    assert abs((codes["smoke"] == 1).mean() - expected[1] / expected.sum()) < 0.02
    assert drawn(0, np.random.default_rng(2))["smoke"].size == 0


@pytest.mark.parametrize("exact", [True, False])
def test_an_impossible_condition_says_so_and_recommends_do(exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not exact:
        monkeypatch.setattr(_laws, "_MAX_EXACT_CELLS", 1)
    never = {"a": TableConditional((), np.array([1.0, 0.0])), "b": TableConditional(("a",), np.eye(2))}
    with pytest.raises(ZeroProbabilityError, match="do="):
        _laws.drawer(never, fixed={}, evidence={"b": 1})(10, np.random.default_rng(0))


def test_values_of_probability_zero_are_never_drawn() -> None:
    law = {"a": TableConditional((), np.array([0.0, 0.3, 0.0, 0.7, 0.0]))}
    codes = _laws.draw(law, {}, 10_001, np.random.default_rng(0))
    assert set(codes["a"].tolist()) == {1, 3}


def test_weights_whose_sum_leaves_the_range_of_floating_point_are_refused() -> None:
    huge = np.array([[0.0, 0.0], [0.0, 1e308]])
    with pytest.raises(InputError, match="finite"):
        LogitConditional(("a", "b"), np.zeros(2), (huge, huge))


def test_no_rows_are_no_rows() -> None:
    assert _laws.draw(CLINIC, {}, 0, np.random.default_rng(0))["cough"].shape == (0,)


@pytest.mark.parametrize(
    "law",
    [
        LogitConditional(("a", "b"), np.array([0.0, 1.0, -1.0]), (np.ones((2, 3)), np.array([[0, 0, 0], [2, 0, 1.0]]))),
        MaxConditional(("a", "b"), 0.05, (np.array([0.0, 0.4]), np.array([0.0, 0.7]))),
        NoisyOrConditional(("a", "b"), 0.05, (np.array([0.0, 0.4]), np.array([0.0, 0.7]))),
        TableConditional(("a",), np.array([[0.2, 0.8], [1.0, 0.0]])),
    ],
    ids=lambda law: law.kind,
)
def test_every_form_is_a_law_and_survives_being_taken_apart(law: object) -> None:
    table = dense_table(law)
    assert np.allclose(table.sum(axis=-1), 1.0)
    assert (table >= 0).all()
    again = conditional_from_arrays(law.kind, law.parents, law.arrays())
    assert np.allclose(dense_table(again), table)


def test_max_and_noisy_or_mean_what_they_say() -> None:
    strengths = (np.array([0.0, 0.4]), np.array([0.0, 0.7]))
    assert np.isclose(dense_table(MaxConditional(("a", "b"), 0.05, strengths))[1, 1, 1], 0.7)
    assert np.isclose(dense_table(NoisyOrConditional(("a", "b"), 0.05, strengths))[1, 1, 1], 1 - 0.95 * 0.6 * 0.3)
    assert np.isclose(dense_table(MaxConditional(("a", "b"), 0.05, strengths))[0, 0, 1], 0.05)


@pytest.mark.parametrize(
    ("kind", "arrays"),
    [("table", {}), ("logit", {"intercept": np.zeros(2)}), ("neural", {}), ("max", {"leak": np.zeros(0)})],
)
def test_damaged_or_unknown_arrays_are_refused(kind: str, arrays: dict[str, np.ndarray]) -> None:
    with pytest.raises(InputError):
        conditional_from_arrays(kind, ("a",), arrays)


@pytest.mark.parametrize(
    "table", [np.array([0.5, 0.6]), np.array([1.5, -0.5]), np.array([np.nan, 1.0]), np.array([[0.5, 0.5]])]
)
def test_a_table_that_is_no_law_is_refused(table: np.ndarray) -> None:
    with pytest.raises(InputError):
        TableConditional((), table)


@pytest.mark.parametrize("rows", [1, 9, 400, 100_000])
def test_values_of_whole_groups_are_those_of_each_row_to_the_last_bit(rows: int) -> None:
    rng = np.random.default_rng(rows)
    laws = rng.dirichlet(np.full(6, 0.2), 500)
    laws[laws < 0.03] = 0.0
    laws[0], laws[1] = [0, 0, 0, 0, 0, 1], np.full(6, 1 / 6)
    group = rng.integers(0, 500, rows).astype(np.uint16)
    counts = np.bincount(group)
    present = np.flatnonzero(counts)
    laws, counts = laws[present], counts[present]
    order, shifts = _laws.shuffled_groups(group, present.size, rng)
    assert (np.sort(order) == np.arange(rows)).all()
    assert (np.diff(group[order].astype(int)) >= 0).all()

    place = np.arange(rows) - np.repeat(np.cumsum(counts) - counts, counts)
    row = np.repeat(np.arange(present.size), counts)
    quantile = (place + shifts[row]) / counts[row]
    cumulative = np.cumsum(laws, axis=1)
    cumulative /= cumulative[:, -1:]
    found = (cumulative[row] + 2.0 * row[:, None] <= (quantile + 2.0 * row)[:, None]).sum(axis=1)
    last = np.array([np.flatnonzero(law)[-1] for law in laws])
    values = _laws.strata(laws, counts, shifts)
    np.testing.assert_array_equal(values, np.minimum(found, last[row]))
    assert (laws[row, values] > 0).all()
    below = _laws.reached(cumulative[:, :-1], counts, shifts)
    each = np.repeat(np.tile(np.arange(6), present.size), np.diff(below, prepend=0, append=counts[:, None]).ravel())
    np.testing.assert_array_equal(each, (cumulative[row, :-1] <= quantile[:, None]).sum(axis=1))
