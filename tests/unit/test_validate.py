"""Shared argument checks: what passes, what is refused, and that the message names the argument."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from escudo import _validate
from escudo.errors import InputError


@pytest.mark.parametrize("value", [0, 1.5, -3, np.float64(2), np.int64(2), Fraction(1, 3)])
def test_finite_takes_numbers_of_any_kind(value: object) -> None:
    assert _validate.finite("x", value) == float(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [math.nan, math.inf, "1", None, True, 1j, 10**400, [1]])
def test_finite_refuses_what_is_no_finite_number(value: object) -> None:
    with pytest.raises(InputError, match="epsilon"):
        _validate.finite("epsilon", value)


def test_a_number_too_long_to_be_written_out_is_refused_like_any_other() -> None:
    for check in (_validate.finite, _validate.positive_integer):
        with pytest.raises(InputError, match=r"epsilon must be .* got int beyond what can be shown"):
            check("epsilon", -(10**5000))


@pytest.mark.parametrize(("value", "zero_ok"), [(0, False), (-1, True), (-1e-300, True), (200.0, True)])
def test_positive_refuses_zero_negative_and_huge(value: float, zero_ok: bool) -> None:
    with pytest.raises(InputError, match="epsilon"):
        _validate.positive("epsilon", value, allow_zero=zero_ok, at_most=100)


def test_positive_allows_zero_only_on_request() -> None:
    assert _validate.positive("x", 0, allow_zero=True) == 0.0


@pytest.mark.parametrize("value", [1, 1.5, -0.1])
def test_probability_refuses_what_is_outside(value: float) -> None:
    with pytest.raises(InputError, match=r"delta.*\[0, 1\)"):
        _validate.probability("delta", value)


def test_probability_ends_are_open_or_closed_as_stated() -> None:
    assert _validate.probability("p", 1, allow_one=True) == 1.0
    with pytest.raises(InputError, match=r"\(0, 1\)"):
        _validate.probability("p", 0, allow_zero=False)


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "3", None])
def test_positive_integer_refuses_everything_else(value: object) -> None:
    with pytest.raises(InputError, match="count"):
        _validate.positive_integer("count", value)


def test_whole_takes_numpy_integers() -> None:
    assert _validate.whole("n", np.int32(0)) == 0


def test_one_of_names_the_nearest_choice() -> None:
    assert _validate.one_of("relation", "add_remove", ("add_remove", "replace_one")) == "add_remove"
    with pytest.raises(InputError, match="Did you mean 'replace_one'"):
        _validate.one_of("relation", "replace-one", ("add_remove", "replace_one"))


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(InputError) as caught:
        _validate.finite("x", "a" * 1000)
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(
    "value", [None, 10**5000, np.array(["row", "row"]), ["row"]], ids=["none", "huge", "array", "list"]
)
def test_one_of_refuses_what_is_no_text(value: object) -> None:
    with pytest.raises(InputError, match="unit must be one of 'row'; got"):
        _validate.one_of("unit", value, ("row",))
