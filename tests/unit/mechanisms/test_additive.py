"""Laplace and Gaussian: what they charge, what they give back, what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest

from escudo.errors import InputError
from escudo.mechanisms import as_planned, gaussian, gaussian_event, laplace, laplace_event
from escudo.privacy import GaussianEvent, MemoryAccount


class TestLaplace:
    def test_integers_cost_exactly_what_was_asked(self):
        event = laplace(np.zeros((3, 4), dtype=int), sensitivity=2, epsilon=0.5, seed=0).event
        assert (event.l1_sensitivity, event.grid, event.dimensions) == (2.0, 1.0, 12)
        assert event.scale == pytest.approx(4.0, rel=1e-14)
        assert event.l1_sensitivity / event.scale <= 0.5

    def test_reals_pay_for_rounding(self):
        event = laplace(0.7, sensitivity=1.0, epsilon=1.0, grid=0.125, seed=0).event
        assert event.l1_sensitivity == 1.125
        assert event.scale == pytest.approx(1.125)
        assert event.scale >= 1.125

    def test_a_given_scale_is_used_as_it_is(self):
        event = laplace(7, sensitivity=1, scale=3.7, seed=0).event
        assert event.scale == 3.7

    def test_a_vector_of_reals_pays_two_steps_per_coordinate_less_one(self):
        event = laplace([0.1, 0.2, 0.3], sensitivity=1.0, scale=4.0, grid=0.25, seed=0).event
        assert event.l1_sensitivity == 1.0 + (2 * 3 - 1) * 0.25

    def test_values_come_back_on_the_grid_in_type_and_shape(self):
        table = laplace(np.full((2, 3), 0.1), sensitivity=1.0, epsilon=1.0, grid=2.0**-4, seed=0).value
        assert table.shape == (2, 3)
        assert np.array_equal(table * 16, np.rint(table * 16))
        assert type(laplace(5, sensitivity=1, epsilon=1.0, seed=0).value) is int
        assert type(laplace(5.0, sensitivity=1, epsilon=1.0, seed=0).value) is float

    def test_the_answer_is_near_the_truth(self):
        assert laplace(1234.5, sensitivity=1e-6, epsilon=1.0).value == pytest.approx(1234.5, abs=1e-4)
        assert abs(laplace(10**15, sensitivity=1, epsilon=1.0).value - 10**15) < 100

    def test_huge_values_are_clamped_not_refused(self):
        assert laplace(1e300, sensitivity=1.0, epsilon=1.0, seed=0).value < 1e14

    def test_both_or_neither_of_epsilon_and_scale_is_a_slip(self):
        for choice in ({}, {"epsilon": 1.0, "scale": 1.0}):
            with pytest.raises(InputError, match="either epsilon or scale"):
                laplace(1, sensitivity=1, **choice)

    @pytest.mark.parametrize("scale", [0, -1, math.nan, math.inf, 1e300])
    def test_unusable_scales_are_refused(self, scale):
        with pytest.raises(InputError):
            laplace(1, sensitivity=1, scale=scale)

    def test_a_scale_that_protects_nothing_is_refused(self):
        with pytest.raises(InputError):
            laplace(1, sensitivity=1, scale=1e-9)

    def test_a_grid_too_fine_for_the_noise_is_refused(self):
        with pytest.raises(InputError, match="grid steps"):
            laplace(0.5, sensitivity=1.0, epsilon=1.0, grid=2.0**-60)

    def test_a_vector_is_one_call_to_the_sampler(self, watched_noise):
        laplace(np.zeros(1000, dtype=int), sensitivity=1, epsilon=1.0)
        assert watched_noise.words == ["drew"]

    def test_the_event_carries_relation_and_unit(self):
        event = laplace(1, sensitivity=1, epsilon=1.0, relation="add_remove", seed=0).event
        assert event.relation == "add_remove"
        with pytest.raises(InputError, match="relation"):
            laplace(1, sensitivity=1, epsilon=1.0, relation="sideways")


class TestGaussian:
    def test_integers_cost_exactly_what_was_asked(self):
        event = gaussian([1, 2, 3], l2_sensitivity=math.sqrt(2), rho=0.25, seed=0).event
        assert (event.l2_sensitivity, event.grid) == (math.sqrt(2), 1.0)
        assert event.scale == pytest.approx(2.0, rel=1e-14)
        assert event.l2_sensitivity**2 / (2 * event.scale**2) <= 0.25

    def test_reals_pay_for_rounding(self):
        event = gaussian([0.1, 0.2, 0.3, 0.4], l2_sensitivity=1.0, scale=2.0, grid=0.125, seed=0).event
        assert event.l2_sensitivity == pytest.approx(1.0 + 2 * 2 * 0.125)
        assert gaussian(0.1, l2_sensitivity=1.0, scale=2.0, grid=0.125, seed=0).event.l2_sensitivity == 1.125

    def test_changed_cells_reach_the_event_and_sharpen_the_guarantee(self):
        plain = gaussian([5, 6], l2_sensitivity=math.sqrt(2), scale=3.0, seed=0)
        sharp = gaussian([5, 6], l2_sensitivity=math.sqrt(2), scale=3.0, changed_cells=2, seed=0)
        assert (plain.event.changed_cells, sharp.event.changed_cells) == (None, 2)
        assert sharp.guarantee.epsilon_at(1e-6) < plain.guarantee.epsilon_at(1e-6)

    def test_changed_cells_are_for_counts_only(self):
        with pytest.raises(InputError, match="changed_cells"):
            gaussian(0.5, l2_sensitivity=1.0, scale=3.0, changed_cells=1)
        with pytest.raises(InputError, match="cells"):
            gaussian([5, 6], l2_sensitivity=1.0, scale=3.0, changed_cells=2)

    def test_the_guarantee_states_rho(self):
        release = gaussian([5, 6], l2_sensitivity=1, rho=0.1, seed=0)
        assert release.guarantee.rho == pytest.approx(0.1)
        assert release.guarantee.rho <= 0.1

    @pytest.mark.parametrize("rho", [0, -1, math.nan, math.inf, 1e9, 1e-40])
    def test_unusable_rhos_are_refused(self, rho, diary):
        with pytest.raises(InputError):
            gaussian(1, l2_sensitivity=1, rho=rho, account=diary)
        assert diary.words == []

    @pytest.mark.parametrize("l2_sensitivity", [0, -1, math.nan, math.inf, 0.5])
    def test_unusable_sensitivities_are_refused(self, l2_sensitivity):
        with pytest.raises(InputError):
            gaussian([1, 2], l2_sensitivity=l2_sensitivity, rho=1.0)

    def test_both_or_neither_of_rho_and_scale_is_a_slip(self):
        for choice in ({}, {"rho": 1.0, "scale": 1.0}):
            with pytest.raises(InputError, match="either rho or scale"):
                gaussian(1, l2_sensitivity=1, **choice)

    def test_the_answer_is_near_the_truth(self):
        assert gaussian(1234.5, l2_sensitivity=1e-6, rho=0.5).value == pytest.approx(1234.5, abs=1e-4)


def test_a_plan_is_for_real_numbers_unless_it_says_integers():
    for plan, terms in ((laplace_event, {"sensitivity": 1.0}), (gaussian_event, {"l2_sensitivity": 1.0})):
        assert plan(3, **terms, scale=4.0).grid < 1 == plan(3, **terms, scale=4.0, integers=True).grid
    with pytest.raises(InputError, match="pass integers"):
        gaussian_event(3, l2_sensitivity=1.0, scale=4.0, changed_cells=2)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_what_was_planned_is_released_with_the_same_noise_as_by_the_mechanism_itself(kind):
    counts = np.arange(6).reshape(2, 3)
    if kind == "laplace":
        event = laplace_event(6, sensitivity=2, epsilon=0.5, integers=True, relation="add_remove")
        direct = laplace(counts, sensitivity=2, epsilon=0.5, relation="add_remove", seed=4)
    else:
        event = gaussian_event(6, l2_sensitivity=2, rho=0.1, changed_cells=2, integers=True)
        direct = gaussian(counts, l2_sensitivity=2, rho=0.1, changed_cells=2, seed=4)
    account = MemoryAccount(relation=event.relation)
    planned = as_planned(counts, event, account=account, seed=4, purpose="counts")
    assert (planned.value == direct.value).all()
    assert planned.value.shape == (2, 3)
    assert planned.event == direct.event == account.receipts[0].event
    assert planned.guarantee == direct.guarantee


@pytest.mark.parametrize(
    ("values", "event", "problem"),
    [
        ([1.5, 2.0], laplace_event(2, sensitivity=2, epsilon=1.0, integers=True), "integers"),
        ([1, 2], laplace_event(2, sensitivity=2.0, epsilon=1.0), "grid 1"),
        ([1, 2, 3], laplace_event(2, sensitivity=2, epsilon=1.0, integers=True), r"planned for 2 numbers.* has 3"),
        ([], laplace_event(2, sensitivity=2, epsilon=1.0, integers=True), "empty"),
        ([1], GaussianEvent(l2_sensitivity=1, scale=2.0**60, grid=1), "noise scale"),
    ],
    ids=["reals", "another grid", "another number", "nothing", "too much noise"],
)
def test_values_that_a_plan_is_not_for_are_refused_before_the_charge(values, event, problem):
    account = MemoryAccount()
    with pytest.raises(InputError, match=problem):
        as_planned(values, event, account=account, purpose="counts")
    assert account.receipts == ()
