"""Calibrated noise never costs more than the budget, and hardly less."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escudo.errors import InputError
from escudo.privacy import (
    ApproximateEvent,
    Budget,
    Event,
    ExponentialEvent,
    GaussianEvent,
    GDPEvent,
    LaplaceEvent,
    PureEvent,
    RepeatedEvent,
    ZCDPEvent,
    calibrate,
)
from escudo.privacy._totals import RunningTotal

Build = Callable[[float], Sequence[Event]]
WASTE = 1e-3  # of the noise


def laplace(sensitivity: float = 1.0, weight: float = 1.0) -> Callable[[float], Event]:
    return lambda noise: LaplaceEvent(l1_sensitivity=sensitivity, scale=noise * weight, grid=1.0)


def counts(changed: int = 1, weight: float = 1.0) -> Callable[[float], Event]:
    return lambda noise: GaussianEvent(
        l2_sensitivity=math.sqrt(changed), scale=noise * weight, grid=1.0, changed_cells=changed
    )


def sums(weight: float = 1.0) -> Callable[[float], Event]:
    return lambda noise: GaussianEvent(l2_sensitivity=1.0, scale=noise * weight, grid=2.0**-10)


def floating(weight: float = 1.0) -> Callable[[float], Event]:
    return lambda noise: GaussianEvent(l2_sensitivity=1.0, scale=noise * weight, grid=0.0)


def picks(weight: float = 1.0) -> Callable[[float], Event]:
    return lambda noise: ExponentialEvent(epsilon=weight / noise)


PARTS = st.one_of(
    st.builds(laplace, st.sampled_from([1.0, 2.0, 5.0]), st.floats(0.5, 3.0)),
    st.builds(counts, st.sampled_from([1, 2, 4]), st.floats(0.5, 3.0)),
    st.builds(sums, st.floats(0.5, 3.0)),
    st.builds(floating, st.floats(0.5, 3.0)),
    st.builds(picks, st.floats(0.5, 3.0)),
)
BUILDS = st.lists(st.tuples(PARTS, st.integers(1, 5)), min_size=1, max_size=4).map(
    lambda chosen: lambda noise: [RepeatedEvent(event=part(noise), count=count) for part, count in chosen]
)


def cost(build: Build, noise: float, delta: float) -> float:
    return RunningTotal.of(build(noise)).epsilon(delta)


@settings(max_examples=settings.default.max_examples // 2)
@given(build=BUILDS, epsilon=st.floats(0.05, 8.0), delta=st.sampled_from([1e-4, 1e-6, 1e-9]))
def test_the_budget_is_kept_and_a_thousandth_less_noise_would_break_it(
    build: Build, epsilon: float, delta: float
) -> None:
    noise = calibrate(build, Budget(epsilon, delta))
    assert cost(build, noise, delta) <= epsilon
    assert cost(build, noise * (1 - WASTE), delta) > epsilon


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
def test_laplace_noise_alone_matches_its_formula(epsilon: float, delta: float) -> None:
    noise = calibrate(lambda t: LaplaceEvent(l1_sensitivity=3.0, scale=t, grid=1.0), Budget(epsilon, delta))
    if delta == 0:
        assert noise == pytest.approx(3.0 / epsilon, rel=WASTE)
    else:
        assert noise <= 3.0 / epsilon * (1 + WASTE)


@pytest.mark.parametrize(
    "build",
    [
        lambda t: [counts(2)(t)] * 3,
        lambda t: [laplace()(t)] * 4 + [sums()(t)],
        lambda t: [picks(0.3)(t)] * 5 + [counts(1, 2.0)(t)],
        lambda t: [PureEvent(epsilon=2 / t), ZCDPEvent(rho=2 / t**2), GDPEvent(mu=1 / t)],
    ],
    ids=["tables", "laplace and sums", "picks and tables", "notions"],
)
def test_it_finds_what_a_patient_bisection_finds(build: Build) -> None:
    low, high, step = 2.0, 50.0, 3e-4
    assert cost(build, low, 1e-6) > 1.0 >= cost(build, high, 1e-6)
    while high / low > 1 + step:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if cost(build, middle, 1e-6) <= 1.0 else (middle, high)
    assert low < calibrate(build, Budget(1.0, 1e-6)) <= high * (1 + WASTE - step)


def test_a_single_event_may_be_given_without_a_list() -> None:
    assert calibrate(counts(), Budget(1.0, 1e-6)) == calibrate(lambda t: [counts()(t)], Budget(1.0, 1e-6))


@pytest.mark.parametrize("rows", [1, 700, 708, 1000, 100_000])
def test_a_person_may_have_very_many_rows(rows: int) -> None:
    # The first level that is tried, 1, would be noise too small for any event to state.
    def build(scale: float) -> Event:
        return GaussianEvent(l2_sensitivity=rows * math.sqrt(2), scale=scale, grid=1.0)

    found, alone = (calibrate(build, Budget(1.0, 1e-6)), calibrate(lambda t: build(t * rows), Budget(1.0, 1e-6)))
    assert found == pytest.approx(alone * rows, rel=1e-3)


def test_more_budget_needs_less_noise() -> None:
    found = [calibrate(counts(2), Budget(epsilon, 1e-6)) for epsilon in (0.1, 1.0, 50.0)]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("build", [counts(), sums(), floating()], ids=["counts", "sums", "floating"])
def test_gaussian_noise_without_a_delta_is_an_error_that_says_so(build: Callable[[float], Event]) -> None:
    with pytest.raises(InputError, match="Gaussian noise needs a delta above 0"):
        calibrate(build, Budget(1.0, 0.0))


def test_a_delta_of_the_mechanisms_own_that_is_too_large_is_an_error() -> None:
    with pytest.raises(InputError, match="No amount of noise meets epsilon = 1 at delta = 1e-06"):
        calibrate(lambda t: ApproximateEvent(epsilon=1 / t, delta=1e-3), Budget(1.0, 1e-6))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"delta": -1e-9}, "delta"),
        ({"delta": math.nan}, "delta"),
    ],
)
def test_a_budget_out_of_range_is_named(arguments: dict[str, float], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        calibrate(counts(), Budget(**{"epsilon": 1.0, "delta": 1e-6, **arguments}))


def test_epsilon_and_delta_one_by_one_still_work_and_say_what_to_write() -> None:
    with pytest.warns(DeprecationWarning, match=r"calibrate\(build, Budget\(epsilon, delta\)\)"):
        noise = calibrate(counts(), epsilon=1.0, delta=1e-6)
    assert noise == calibrate(counts(), Budget(1.0, 1e-6))
