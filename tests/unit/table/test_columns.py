from __future__ import annotations

import dataclasses
import math
import pickle
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest

from escudo.errors import InputError, RefusedError, SchemaError
from escudo.table import Categorical, Numeric, PrivateTable, Schema

NAN = math.nan


# Categorical


def test_a_value_falls_into_the_cell_of_the_level_it_equals():
    column = Categorical("smoke", ["no", "yes"])
    assert column.encode(np.array(["yes", "no", "yes"])).tolist() == [1, 0, 1]
    assert column.encode(["yes", "no"]).dtype == np.int64


@pytest.mark.parametrize(
    ("options", "unknown", "null"),
    [
        ({}, 0, 0),
        ({"other": "yes"}, 1, 1),
        ({"missing": True}, 2, 2),
        ({"missing": True, "other": "yes"}, 1, 2),
    ],
)
def test_unknown_and_missing_values_go_where_the_docstring_says(options, unknown, null):
    column = Categorical("smoke", ["no", "yes"], **options)
    assert column.encode(["maybe", 3, ["a list"], b"no", True]).tolist() == [unknown] * 5
    assert column.encode([None, NAN, pd.NA, pd.NaT, np.datetime64("NaT"), Decimal("NaN")]).tolist() == [null] * 6
    assert (column.other_code, column.null_code) == (unknown, null)


def test_numbers_and_booleans_match_by_value_and_never_text():
    column = Categorical("k", [0, 1], missing=True)
    assert column.encode([1, 1.0, True, np.int8(1), np.float32(1), Decimal(1), "1", 1.5]).tolist() == [1] * 6 + [2, 2]
    assert Categorical("b", [False, True], missing=True).encode([1.0, 0, True, "True"]).tolist() == [1, 0, 1, 2]
    assert column.encode(np.array([1.0, NAN, 0.0, 7.0])).tolist() == [1, 2, 0, 2]


def test_typed_arrays_encode_like_lists_of_the_same_values():
    column = Categorical("k", [3, 1, 2], other=2)
    values = np.array([1, 2, 3, 4, 3, 1])
    assert column.encode(values).tolist() == column.encode(values.tolist()).tolist() == [1, 2, 0, 2, 0, 1]
    assert column.encode(np.array([], dtype=np.int64)).tolist() == column.encode([]).tolist() == []


def test_cells_have_labels_and_the_missing_cell_is_last():
    column = Categorical("k", [True, False], missing=True)
    assert (column.size, column.labels, column.missing_code) == (3, ("True", "False", "(missing)"), 2)
    assert Categorical("k", ["a"]).missing_code is None
    assert column.codes == {True: 0, False: 1}


def test_decode_gives_the_levels_back_and_none_for_missing():
    column = Categorical("smoke", ["no", "yes"], missing=True)
    assert column.decode([1, 2, 0]).tolist() == ["yes", None, "no"]
    assert column.decode([]).tolist() == []


@pytest.mark.parametrize("codes", [[-1], [3], [0.5], ["no"]])
def test_decode_refuses_codes_that_are_no_cells(codes):
    with pytest.raises(InputError, match=r"0 \.\.\. 2"):
        Categorical("smoke", ["no", "yes"], missing=True).decode(codes)


@pytest.mark.parametrize(
    ("levels", "problem"),
    [
        ([], "at least one level"),
        (["a", "b", "a"], "levels 1 and 3 are the same"),
        ([1, True], "different kinds"),
        (["1", 1], "different kinds"),
        ([1.5], "level 1 is not a string"),
        ([None], "level 1 is not a string"),
        ([["a"]], "level 1 is not a string"),
        ([2**53], "2\\^53"),
        (["\ud800"], "Unicode"),
        ("no", "must be a list"),
        (7, "must be a list"),
        ({"a": 1}, "must be a list"),
    ],
)
def test_levels_that_no_engine_could_tell_apart_are_refused(levels, problem):
    with pytest.raises(SchemaError, match=f"column 'x': .*{problem}"):
        Categorical("x", levels)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"other": "c"}, "other must be one of the levels"),
        ({"missing": 1}, "missing must be true or false"),
        ({"ordered": "yes"}, "ordered must be true or false"),
        ({"confirmed": None}, "confirmed must be true or false"),
        ({"note": 3}, "note must be text"),
    ],
)
def test_categorical_options_are_checked(options, problem):
    with pytest.raises(SchemaError, match=f"column 'x': {problem}"):
        Categorical("x", ["a", "b"], **options)


def test_other_must_be_a_level_of_the_same_kind():
    with pytest.raises(SchemaError, match="other"):
        Categorical("x", [0, 1], other=True)
    with pytest.raises(SchemaError, match="other"):
        Categorical("x", [], other="a", confirmed=False)


def test_a_level_may_not_look_like_the_missing_cell():
    with pytest.raises(SchemaError, match="rename"):
        Categorical("x", ["(missing)"], missing=True)
    assert Categorical("x", ["(missing)"]).size == 1


def test_numpy_levels_become_plain_python_ones():
    column = Categorical("x", np.array([2, 1]), other=np.int64(1))
    assert [type(level) for level in column.levels] == [int, int]
    assert type(column.other) is int


@pytest.mark.parametrize("name", ["", None, 3, "\udfff"])
def test_a_column_needs_a_usable_name(name):
    with pytest.raises(SchemaError, match="name"):
        Categorical(name, ["a"])
    with pytest.raises(SchemaError, match="name"):
        Numeric(name, 0, 1)


# Numeric


def test_bins_are_half_open_and_the_last_one_is_closed():
    column = Numeric("age", 0, 110, 22)
    assert column.encode([0, 4.999, 5, 104.9, 105, 110]).tolist() == [0, 0, 1, 20, 21, 21]
    assert (column.size, column.labels[0], column.labels[21]) == (22, "[0, 5)", "[105, 110]")


def test_values_beyond_the_bounds_are_clamped_infinities_included():
    column = Numeric("x", -1, 1, 4)
    assert column.encode([-math.inf, -5, 5, math.inf, 10**400, -(10**400)]).tolist() == [0, 0, 3, 3, 3, 0]


def test_every_boundary_opens_the_bin_above_it_and_the_float_below_stays_below():
    for column in (Numeric("x", 0.1, 0.7, 6), Numeric("x", -1e-3, 1e5, 977), Numeric("x", edges=(0.1, 0.2, 0.3))):
        inner = column.boundaries[1:-1]
        assert column.encode(inner).tolist() == list(range(1, column.bins))
        assert column.encode(np.nextafter(inner, -np.inf)).tolist() == list(range(column.bins - 1))


def test_boundaries_are_lower_plus_multiples_of_the_width_in_float64():
    column = Numeric("x", 0.1, 0.7, 7)
    width = (0.7 - 0.1) / 7
    assert column.boundaries.tolist() == [0.1 + j * width for j in range(7)] + [0.7]


@pytest.mark.parametrize(
    ("options", "cell"),
    [({}, 5), ({"fill": 0}, 0), ({"fill": 10}, 9), ({"fill": 3.2}, 3), ({"missing": True}, 10)],
)
def test_missing_numbers_go_to_their_cell_or_the_public_fill(options, cell):
    column = Numeric("x", 0, 10, 10, **options)
    assert column.encode([None, NAN, pd.NA, "7", [1], 1j, b"1", np.datetime64("2020-01-01")]).tolist() == [cell] * 8
    assert column.encode(np.array(["7", "8"])).tolist() == [cell] * 2
    assert column.encode(np.array(["2020-01-01"], dtype="datetime64[D]")).tolist() == [cell]
    assert column.null_code == cell


def test_all_real_number_types_are_read_as_float64():
    column = Numeric("x", 0, 4, 4)
    mixed = [1, 1.0, np.float32(1), np.uint8(1), Decimal(1), Fraction(1), True]
    assert column.encode(mixed).tolist() == [1] * 7
    assert column.encode(np.array([0, 1, 3], dtype=np.uint64)).tolist() == [0, 1, 3]
    assert column.encode(np.array([True, False])).tolist() == [1, 0]


def test_explicit_edges_set_bounds_and_bins():
    column = Numeric("x", edges=[0, 1, 10, 100])
    assert (column.lower, column.upper, column.bins) == (0.0, 100.0, 3)
    assert column.labels == ("[0, 1)", "[1, 10)", "[10, 100]")
    assert column.encode([0.5, 1, 9.9, 10, 1e9]).tolist() == [0, 1, 1, 2, 2]
    assert dataclasses.replace(column, missing=True).size == 4


def test_decode_gives_bin_middles_and_nan_for_missing():
    column = Numeric("x", 0, 10, 5, missing=True)
    np.testing.assert_array_equal(column.decode([0, 4, 5]), [1.0, 9.0, NAN])
    with pytest.raises(InputError):
        column.decode([6])


def test_labels_of_narrow_bins_stay_distinct():
    column = Numeric("x", 1, 1 + 1e-12, 100, missing=True)
    assert len(set(column.labels)) == column.size == 101


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"lower": 1, "upper": 1}, "lower must be below upper"),
        ({"lower": 2, "upper": 1}, "lower must be below upper"),
        ({"lower": NAN, "upper": 1}, "lower must be a finite number"),
        ({"lower": 0, "upper": math.inf}, "upper must be a finite number"),
        ({"lower": "0", "upper": 1}, "lower must be a finite number"),
        ({"lower": False, "upper": 1}, "lower must be a finite number"),
        ({"lower": 0, "upper": 10**400}, "upper must be a finite number"),
        ({"lower": 0, "upper": 1, "bins": 0}, "bins must lie between"),
        ({"lower": 0, "upper": 1, "bins": -3}, "bins must lie between"),
        ({"lower": 0, "upper": 1, "bins": 10**7}, "bins must lie between"),
        ({"lower": 0, "upper": 1, "bins": 2.0}, "bins must be a whole number"),
        ({"lower": 0, "upper": 1, "bins": True}, "bins must be a whole number"),
        ({"lower": 0}, "belong together"),
        ({"upper": 0}, "belong together"),
        ({}, "give lower and upper"),
        ({"lower": 1, "upper": 1 + 1e-14}, "too narrow"),
        ({"lower": -1.7e308, "upper": 1.7e308}, "too wide"),
        ({"lower": 0, "upper": 1, "fill": 2}, "fill must lie"),
        ({"lower": 0, "upper": 1, "fill": NAN}, "fill must be a finite"),
        ({"fill": 2, "confirmed": False}, "fill needs lower"),
        ({"lower": 0, "upper": 1, "integer": 1}, "integer must be true or false"),
        ({"edges": [1]}, "at least two increasing"),
        ({"edges": [1, 1]}, "at least two increasing"),
        ({"edges": [1, NAN]}, "edges must be a finite"),
        ({"edges": "12"}, "edges must be a list"),
        ({"edges": [0, 1], "lower": 0.5}, "lower is not the first edge"),
        ({"edges": [0, 1], "upper": 2}, "upper is not the last edge"),
    ],
)
def test_numeric_descriptions_that_make_no_sense_are_refused(arguments, problem):
    with pytest.raises(SchemaError, match=f"column 'x': .*{problem}"):
        Numeric("x", **arguments)


# Both


@pytest.mark.parametrize("use", ["size", "labels", "codes", "missing_code"])
def test_an_open_categorical_column_refuses_to_count(use):
    column = Categorical("x", missing=True, confirmed=False)
    assert column.open
    with pytest.raises(RefusedError, match=r"column 'x' has no levels yet.*escudo schema learn"):
        getattr(column, use)


@pytest.mark.parametrize("use", ["size", "labels", "boundaries", "bounds", "fill_value", "null_code", "missing_code"])
def test_an_open_numeric_column_refuses_to_count(use):
    column = Numeric("x", missing=True, confirmed=False)
    assert column.open
    with pytest.raises(RefusedError, match=r"column 'x' has no lower and upper yet.*escudo schema learn"):
        getattr(column, use)


def test_open_columns_refuse_to_encode():
    for column in (Categorical("x", confirmed=False), Numeric("x", confirmed=False)):
        with pytest.raises(RefusedError):
            column.encode([1])


def test_repr_and_errors_never_show_what_was_read_from_data():
    diagnosis = Categorical("diagnosis", ["Secretitis"], confirmed=False)
    age = Numeric("age", 17.25, 93.75, confirmed=False)
    assert "Secretitis" not in repr(diagnosis)
    assert "17" not in repr(age)
    assert "93" not in repr(age)
    with pytest.raises(SchemaError) as error:
        Categorical("diagnosis", ["Secretitis", "Secretitis"], confirmed=False)
    assert "Secretitis" not in str(error.value)
    with pytest.raises(SchemaError) as error:
        Numeric("age", 93.75, 17.25, confirmed=False)
    assert "93" not in str(error.value)


def test_repr_of_a_confirmed_column_says_its_shape():
    assert repr(Categorical("s", ["a"])) == "Categorical('s': 1 level)"
    assert (
        repr(Categorical("s", ["a", "b"], ordered=True, missing=True)) == "Categorical('s': 2 ordered levels + missing)"
    )
    assert repr(Numeric("age", 0, 110, 22)) == "Numeric('age': 22 bins on [0, 110])"


def test_columns_are_frozen_hashable_and_pickle():
    for column in (Categorical("s", ["a", "b"], other="b"), Numeric("x", 0, 1, 4, missing=True)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            column.name = "t"
        assert pickle.loads(pickle.dumps(column)) == column
        assert hash(column) == hash(dataclasses.replace(column, note="a remark"))


def test_values_must_be_one_dimensional():
    for column in (Categorical("s", ["a"]), Numeric("x", 0, 1)):
        with pytest.raises(InputError, match="one-dimensional"):
            column.encode(np.zeros((2, 2)))


def test_bounds_up_to_the_largest_float_are_cut_without_overflow():
    largest = sys.float_info.max
    column = Numeric("x", 0, largest, 3)
    assert column.boundaries[-1] == largest
    assert column.encode([0, largest / 2, largest, math.inf]).tolist() == [0, 1, 2, 2]
    assert np.isfinite(column.decode([0, 1, 2])).all()


def test_codes_count_by_their_first_letters():
    column = Categorical("icd", ["E11", "I10", "other"[:3]], prefix=3, missing=True, other="oth")
    assert column.encode(["E11.9", "E11", "I10.0", "E1", "", None, 110, "\u2615E1"]).tolist() == [
        0,
        0,
        1,
        2,
        2,
        3,
        2,
        2,
    ]
    zip_code = Categorical("zip", ["012", "100"], prefix=3)
    assert zip_code.encode(["01234", "10001", "1"]).tolist() == [0, 1, 0]  # text stays text: no zero is lost


def test_with_a_prefix_a_longer_spelling_is_one_value_and_the_other_level_has_any_length():
    column = Categorical(
        "icd",
        ["E11", "U07", "anything else"],
        prefix=3,
        other="anything else",
        missing=True,
        recode={"not known": "(missing)", "U071": "E11", "k": "U07"},
    )
    values = ["E11.9", "not known", "not", "U071", "U0712", "anything else", "k", "kk", None]
    assert column.encode(values).tolist() == [0, 3, 2, 0, 1, 2, 1, 2, 3]


def test_the_other_level_is_itself_also_where_it_begins_like_another():
    """In pandas and Dask texts that are no level had been read a second time, and were that other one."""
    column = Categorical("icd", ["E11", "E11 and others"], prefix=3, other="E11 and others")
    values = ["Z99", "E11.9", "E11 and others", "E11 and other"]
    assert column.encode(values).tolist() == [1, 0, 1, 0]
    for frame in (pl.DataFrame({"icd": values}), pd.DataFrame({"icd": pd.Series(values, dtype=object)})):
        assert PrivateTable(frame, Schema((column,))).counts("icd").tolist() == [2, 2]


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({"levels": ["E11", "I1000"], "prefix": 3}, "level 2 is longer than prefix"),
        ({"levels": [12, 13], "prefix": 2}, "prefix goes with levels that are texts"),
        ({"levels": ["a"], "prefix": 0}, "prefix must be a whole number of letters"),
        ({"levels": ["a"], "prefix": True}, "prefix must be a whole number of letters"),
        ({"levels": ["a"], "prefix": "3"}, "prefix must be a whole number of letters"),
    ],
)
def test_a_prefix_that_makes_no_sense_is_refused(terms, problem):
    with pytest.raises(SchemaError, match=problem):
        Categorical("icd", **terms)
