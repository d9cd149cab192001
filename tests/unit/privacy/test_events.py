"""Events are frozen facts: their checks, their relations, and what they become for another relation or unit."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import pytest

from escudo.errors import InputError
from escudo.privacy import (
    ApproximateEvent,
    ComposedEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    GDPEvent,
    LaplaceEvent,
    ParallelEvent,
    PureEvent,
    RepeatedEvent,
    ZCDPEvent,
    parse_relation,
    parse_unit,
)

LAPLACE: dict[str, Any] = {"l1_sensitivity": 1.0, "scale": 1.0, "grid": 0.5}
GAUSSIAN: dict[str, Any] = {"l2_sensitivity": 1.0, "scale": 1.0, "grid": 0.5}


@pytest.mark.parametrize(
    "name",
    [
        "replace_one",
        "REPLACE_ONE",
        "bounded",
        "substitute",
        "change_one",
        "change-one distance",
        "Hamming",
        "replace one",
    ],
)
def test_a_relation_that_changes_a_record_goes_by_many_names(name):
    assert parse_relation(name) == "replace_one"


@pytest.mark.parametrize(
    "name",
    ["add_remove", "add/remove", "ADD_OR_REMOVE_ONE", "unbounded", "insert-delete", "symmetric distance", "AddOneRow"],
)
def test_a_relation_that_adds_or_removes_goes_by_many_names(name):
    assert parse_relation(name) == "add_remove"


def test_an_unknown_relation_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match=r"got 'replac_one'. Did you mean 'replace_one'\?"):
        parse_relation("replac_one")
    with pytest.raises(InputError, match="relation must be"):
        parse_relation(None)  # type: ignore[arg-type]


def test_a_person_needs_a_bound_on_rows_and_a_row_takes_none():
    assert parse_unit("person", 3) == "person"
    with pytest.raises(InputError, match="needs max_rows_per_person"):
        parse_unit("person")
    with pytest.raises(InputError, match="at least 1"):
        parse_unit("person", 0)
    with pytest.raises(InputError, match="goes with unit='person'"):
        parse_unit("row", 3)
    with pytest.raises(InputError, match="unit must be one of"):
        parse_unit("column")


def test_the_base_event_cannot_be_made():
    with pytest.raises(InputError, match="base of all events"):
        Event()


def test_events_are_frozen_hashable_and_equal_by_value():
    event = PureEvent(epsilon=1)
    assert event == PureEvent(epsilon=1.0, relation="bounded")
    assert hash(event) == hash(PureEvent(epsilon=1.0))
    assert event != PureEvent(epsilon=1.0, relation="add_remove")
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.epsilon = 2.0


BAD_NUMBERS = [math.nan, math.inf, -math.inf, -1e-9, "1", None, True, 10**400, 1j]


@pytest.mark.parametrize("bad", [*BAD_NUMBERS, 1000.1])
@pytest.mark.parametrize(
    "make", [PureEvent, ExponentialEvent, lambda epsilon: ApproximateEvent(epsilon=epsilon, delta=0)]
)
def test_an_epsilon_out_of_range_is_refused_by_name(make, bad):
    with pytest.raises(InputError, match="epsilon"):
        make(epsilon=bad)


def test_a_huge_loss_is_refused_because_it_protects_nobody():
    with pytest.raises(InputError, match="epsilon must be at most 1000; got 1e\\+06, which would protect nobody"):
        PureEvent(epsilon=1e6)
    with pytest.raises(InputError, match="rho must be at most"):
        ZCDPEvent(rho=1e9)
    with pytest.raises(InputError, match="mu must be at most"):
        GDPEvent(mu=1e4)
    with pytest.raises(InputError, match="noise that small would protect nobody"):
        LaplaceEvent(**LAPLACE | {"scale": 1e-4})
    with pytest.raises(InputError, match="noise that small would protect nobody"):
        GaussianEvent(**GAUSSIAN | {"scale": 1e-4})


@pytest.mark.parametrize("bad", [*BAD_NUMBERS, 1.0, 1.5])
def test_a_delta_outside_zero_to_one_is_refused(bad):
    with pytest.raises(InputError, match="delta"):
        ApproximateEvent(epsilon=1.0, delta=bad)


@pytest.mark.parametrize("bad", BAD_NUMBERS)
@pytest.mark.parametrize(
    ("kind", "arguments", "field"),
    [
        (LaplaceEvent, LAPLACE, "l1_sensitivity"),
        (LaplaceEvent, LAPLACE, "scale"),
        (LaplaceEvent, LAPLACE, "grid"),
        (GaussianEvent, GAUSSIAN, "l2_sensitivity"),
        (GaussianEvent, GAUSSIAN, "scale"),
        (GaussianEvent, GAUSSIAN, "grid"),
        (ZCDPEvent, {}, "rho"),
        (GDPEvent, {}, "mu"),
    ],
)
def test_every_number_of_an_event_is_checked_by_name(kind, arguments, field, bad):
    with pytest.raises(InputError, match=field):
        kind(**arguments | {field: bad})


@pytest.mark.parametrize("kind", [LaplaceEvent, GaussianEvent])
def test_noise_needs_a_scale_above_zero(kind):
    arguments = LAPLACE if kind is LaplaceEvent else GAUSSIAN
    with pytest.raises(InputError, match="scale must be greater than 0"):
        kind(**arguments | {"scale": 0})


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, 10**10, None, "2"])
def test_counts_are_whole_numbers_from_one(bad):
    event = PureEvent(epsilon=1.0)
    with pytest.raises(InputError, match="count"):
        RepeatedEvent(event=event, count=bad)
    with pytest.raises(InputError, match="dimensions"):
        LaplaceEvent(**LAPLACE, dimensions=bad)
    if bad is not None:
        with pytest.raises(InputError, match="changed_cells"):
            GaussianEvent(**GAUSSIAN, changed_cells=bad)
    with pytest.raises(InputError, match="steps"):
        event.stretched(bad)


def test_changed_cells_must_agree_with_grid_and_sensitivity():
    with pytest.raises(InputError, match="grid must be above 0"):
        GaussianEvent(l2_sensitivity=1, scale=1, grid=0, changed_cells=1)
    with pytest.raises(InputError, match="l2_sensitivity is 1"):
        GaussianEvent(l2_sensitivity=1, scale=1, grid=1, changed_cells=2)
    GaussianEvent(l2_sensitivity=math.sqrt(2), scale=1, grid=1, changed_cells=2)


def test_unit_and_relation_are_checked():
    with pytest.raises(InputError, match="unit must be one of"):
        PureEvent(epsilon=1.0, unit="cell")
    with pytest.raises(InputError, match="relation must be"):
        PureEvent(epsilon=1.0, relation="nearby")


def test_structured_events_take_relation_and_unit_from_their_parts():
    part = PureEvent(epsilon=1.0, relation="add_remove", unit="person", max_rows_per_person=5)
    for whole in (
        RepeatedEvent(event=part, count=2),
        ComposedEvent(events=(part, part)),
        ParallelEvent(events=[part, part], by="value"),
    ):
        assert (whole.relation, whole.unit, whole.max_rows_per_person) == ("add_remove", "person", 5)
    assert ComposedEvent(events=()).relation == "replace_one"


def test_structured_events_refuse_parts_that_disagree():
    here, there = PureEvent(epsilon=1.0), PureEvent(epsilon=1.0, relation="add_remove")
    with pytest.raises(InputError, match="mix relations"):
        ComposedEvent(events=(here, there))
    with pytest.raises(InputError, match="mix rows and persons"):
        ComposedEvent(events=(here, PureEvent(epsilon=1.0, unit="person", max_rows_per_person=2)))
    few, many = here.for_person(2), here.for_person(3)
    with pytest.raises(InputError, match=r"different numbers of rows per person \(2, 3\)"):
        ComposedEvent(events=(many, few))
    with pytest.raises(InputError, match="at most 2 rows per person, not 3"):
        RepeatedEvent(event=few, count=2, max_rows_per_person=3)
    with pytest.raises(InputError, match="needs max_rows_per_person"):
        ComposedEvent(events=(), unit="person")
    with pytest.raises(InputError, match="stated for add_remove, not replace_one"):
        RepeatedEvent(event=there, count=2, relation="replace_one")
    with pytest.raises(InputError, match="stated for add_remove, not replace_one"):
        ParallelEvent(events=(there,), by="position", relation="replace_one")
    with pytest.raises(InputError, match="stated per row, not per person"):
        ComposedEvent(events=(here,), unit="person")
    with pytest.raises(InputError, match="events must be a list"):
        ComposedEvent(events=(here, 1))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="event must be an event"):
        RepeatedEvent(event=1.0, count=2)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least one part"):
        ParallelEvent(events=(), by="value")
    with pytest.raises(InputError, match="by must be one of"):
        ParallelEvent(events=(here,), by="row")


def test_parts_by_position_are_refused_where_a_record_more_shifts_all_behind_it():
    part = PureEvent(epsilon=1.0, relation="add_remove")
    for make in (
        lambda: ParallelEvent(events=(part, part), by="position"),
        lambda: Event.from_json(
            {**ParallelEvent(events=(part,), by="value").to_json(), "by": "position"},
        ),
    ):
        with pytest.raises(InputError, match=r"by position shift when a record is added.*by='value'"):
            make()


ADD_REMOVE: dict[str, Any] = {"relation": "add_remove"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            LaplaceEvent(l1_sensitivity=1, scale=2, grid=0.5, dimensions=3, **ADD_REMOVE),
            LaplaceEvent(l1_sensitivity=2, scale=2, grid=0.5, dimensions=3),
        ),
        (
            GaussianEvent(l2_sensitivity=1, scale=2, grid=0, **ADD_REMOVE),
            GaussianEvent(l2_sensitivity=2, scale=2, grid=0),
        ),
        (
            GaussianEvent(l2_sensitivity=1, scale=2, grid=1, changed_cells=1, **ADD_REMOVE),
            GaussianEvent(l2_sensitivity=2, scale=2, grid=1, changed_cells=2),
        ),
        (ExponentialEvent(epsilon=0.5, **ADD_REMOVE), ExponentialEvent(epsilon=1)),
        (PureEvent(epsilon=0.5, **ADD_REMOVE), PureEvent(epsilon=1)),
        (ZCDPEvent(rho=0.5, **ADD_REMOVE), ZCDPEvent(rho=2)),
        (GDPEvent(mu=0.5, **ADD_REMOVE), GDPEvent(mu=1)),
        (
            RepeatedEvent(event=PureEvent(epsilon=0.5, **ADD_REMOVE), count=3),
            RepeatedEvent(event=PureEvent(epsilon=1), count=3),
        ),
        (ComposedEvent(events=(PureEvent(epsilon=0.5, **ADD_REMOVE),)), ComposedEvent(events=(PureEvent(epsilon=1),))),
        (ComposedEvent(events=(), **ADD_REMOVE), ComposedEvent(events=())),
        (
            ParallelEvent(events=(PureEvent(epsilon=0.5, **ADD_REMOVE),), by="value"),
            ParallelEvent(events=(PureEvent(epsilon=0.5, **ADD_REMOVE),), by="value", relation="replace_one"),
        ),
    ],
    ids=lambda event: event.kind,
)
def test_replacing_a_record_is_two_steps_of_add_remove(before, after):
    assert before.under("replace_one") == after
    assert before.under("unbounded") is before
    with pytest.raises(InputError, match="number of rows may have been released exactly"):
        after.under("add_remove")


def test_an_approximate_event_doubles_epsilon_and_multiplies_delta():
    doubled = ApproximateEvent(epsilon=1.0, delta=1e-6, relation="add_remove").under("replace_one")
    assert isinstance(doubled, ApproximateEvent)
    assert doubled.epsilon == 2.0
    assert doubled.delta == pytest.approx(1e-6 * (1 + math.e), rel=1e-9)
    assert doubled.delta >= 1e-6 * (1 + math.e)
    with pytest.raises(InputError, match="promises nothing 2 steps away"):
        ApproximateEvent(epsilon=10.0, delta=1e-3, relation="add_remove").under("replace_one")


def test_a_person_with_k_rows_is_k_steps_away():
    k = 3
    person: dict[str, Any] = {"unit": "person", "max_rows_per_person": k}
    assert PureEvent(epsilon=0.5).for_person(k) == PureEvent(epsilon=1.5, **person)
    assert ZCDPEvent(rho=0.5).for_person(k) == ZCDPEvent(rho=4.5, **person)
    assert GDPEvent(mu=0.5).for_person(k) == GDPEvent(mu=1.5, **person)
    assert LaplaceEvent(**LAPLACE).for_person(k) == LaplaceEvent(**(LAPLACE | {"l1_sensitivity": 3.0} | person))
    nested = ComposedEvent(
        events=(
            RepeatedEvent(event=PureEvent(epsilon=0.5), count=2),
            ParallelEvent(events=(ExponentialEvent(epsilon=0.5),), by="position"),
        )
    )
    stated = nested.for_person(k)
    assert stated.unit == "person"
    assert stated == ComposedEvent(
        events=(
            RepeatedEvent(event=PureEvent(epsilon=1.5, **person), count=2),
            ParallelEvent(events=(ExponentialEvent(epsilon=1.5, **person),), by="position"),
        )
    )
    with pytest.raises(InputError, match="per person already"):
        stated.for_person(2)


def test_the_rho_of_gaussian_noise_is_never_below_the_exact_one():
    for sensitivity, scale in ((0.1, 0.3), (1 / 3, 7.0), (math.sqrt(2), 1.1), (0.0, 1.0)):
        exact = (Fraction(sensitivity) / Fraction(scale)) ** 2 / 2
        rho = GaussianEvent(l2_sensitivity=sensitivity, scale=scale, grid=0).rho
        assert exact <= Fraction(rho) <= exact * (1 + Fraction(1, 2**52))


def test_rows_of_one_person_may_share_a_cell_so_cells_are_not_counted_for_them():
    table = GaussianEvent(l2_sensitivity=1, scale=2, grid=1, changed_cells=1)
    assert table.for_person(2) == GaussianEvent(l2_sensitivity=2, scale=2, grid=1, unit="person", max_rows_per_person=2)
    one = GaussianEvent(l2_sensitivity=1, scale=2, grid=1, changed_cells=1, unit="person", max_rows_per_person=1)
    assert table.for_person(1) == one
