"""Every kind of event, in one suite: JSON there and back, refusals, and a cost that makes sense."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.errors import InputError, UnsupportedEventError
from escudo.privacy import (
    ApproximateEvent,
    ComposedEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    GDPEvent,
    LaplaceEvent,
    MemoryAccount,
    ParallelEvent,
    PureEvent,
    RepeatedEvent,
    RunningTotal,
    SampledGaussianEvent,
    ZCDPEvent,
)
from escudo.privacy._events import KINDS

# What version 1 of each kind looks like on disk. A line here may be added and never changed: old ledgers hold it. For
# persons, version 1 had the same fields; version 2 also has the bound on a person's rows.
RECORDED: dict[str, tuple[str, Event]] = {
    "laplace": (
        '{"kind": "laplace", "version": 1, "relation": "replace_one", "unit": "row", "l1_sensitivity": 2.0, '
        '"scale": 4.0, "grid": 1.0, "dimensions": 1}',
        LaplaceEvent(l1_sensitivity=2, scale=4, grid=1),
    ),
    "gaussian": (
        '{"kind": "gaussian", "version": 1, "relation": "add_remove", "unit": "row", "l2_sensitivity": 1.0, '
        '"scale": 3.0, "grid": 1.0, "changed_cells": 1}',
        GaussianEvent(l2_sensitivity=1, scale=3, grid=1, changed_cells=1, relation="add_remove"),
    ),
    "sampled_gaussian": (
        '{"kind": "sampled_gaussian", "version": 1, "relation": "add_remove", "unit": "row", "noise_multiplier": 2.0, '
        '"sampling_probability": 0.125, "rows": 1}',
        SampledGaussianEvent(noise_multiplier=2, sampling_probability=0.125, relation="add_remove"),
    ),
    "exponential": (
        '{"kind": "exponential", "version": 1, "relation": "replace_one", "unit": "row", "epsilon": 0.5}',
        ExponentialEvent(epsilon=0.5),
    ),
    "pure": (
        '{"kind": "pure", "version": 1, "relation": "replace_one", "unit": "row", "epsilon": 0.5}',
        PureEvent(epsilon=0.5),
    ),
    "approximate": (
        '{"kind": "approximate", "version": 1, "relation": "replace_one", "unit": "row", "epsilon": 0.5, '
        '"delta": 1e-09}',
        ApproximateEvent(epsilon=0.5, delta=1e-9),
    ),
    "zcdp": (
        '{"kind": "zcdp", "version": 1, "relation": "replace_one", "unit": "row", "rho": 0.125}',
        ZCDPEvent(rho=0.125),
    ),
    "gdp": ('{"kind": "gdp", "version": 1, "relation": "replace_one", "unit": "row", "mu": 0.5}', GDPEvent(mu=0.5)),
    "repeated": (
        '{"kind": "repeated", "version": 1, "relation": "replace_one", "unit": "row", "event": {"kind": "zcdp", '
        '"version": 1, "relation": "replace_one", "unit": "row", "rho": 0.125}, "count": 3}',
        RepeatedEvent(event=ZCDPEvent(rho=0.125), count=3),
    ),
    "composed": (
        '{"kind": "composed", "version": 1, "relation": "replace_one", "unit": "row", "events": [{"kind": "gdp", '
        '"version": 1, "relation": "replace_one", "unit": "row", "mu": 0.5}]}',
        ComposedEvent(events=(GDPEvent(mu=0.5),)),
    ),
    "parallel": (
        '{"kind": "parallel", "version": 1, "relation": "replace_one", "unit": "row", "events": [{"kind": "pure", '
        '"version": 1, "relation": "add_remove", "unit": "row", "epsilon": 0.5}], "by": "value"}',
        ParallelEvent(events=(PureEvent(epsilon=0.5, relation="add_remove"),), by="value", relation="replace_one"),
    ),
}
NUMBERS = {
    name: [key for key, value in json.loads(text).items() if isinstance(value, float)]
    for name, (text, _) in RECORDED.items()
}
by_kind = pytest.mark.parametrize("kind", sorted(KINDS))


def test_every_kind_has_a_recorded_form():
    assert set(RECORDED) == set(KINDS)


@by_kind
def test_recorded_events_are_read_and_written_as_they_were(kind):
    text, event = RECORDED[kind]
    assert Event.from_json(json.loads(text)) == event
    written = json.dumps(event.to_json(), sort_keys=True)
    assert written == json.dumps(json.loads(text), sort_keys=True)


@by_kind
def test_what_an_event_says_is_named_and_nothing_can_be_added_to_it(kind):
    event = RECORDED[kind][1]
    with pytest.raises(TypeError, match="takes 1 positional argument"):
        type(event)(1.0)
    assert not hasattr(event, "__dict__")


@by_kind
def test_unknown_or_missing_fields_are_refused_by_name(kind):
    data = json.loads(RECORDED[kind][0])
    with pytest.raises(UnsupportedEventError, match=rf"event \({kind}\): unknown field 'sampling'"):
        Event.from_json(data | {"sampling": 0.1})
    for field in data:
        if field not in ("kind", "version"):
            with pytest.raises(UnsupportedEventError, match=f"missing field '{field}'"):
                Event.from_json({key: value for key, value in data.items() if key != field})


@by_kind
@pytest.mark.parametrize("version", [0, 3, True, 1.0, "1", None])
def test_another_version_is_refused(kind, version):
    with pytest.raises(UnsupportedEventError, match=rf"\({kind}\): this escudo reads versions 1 and 2"):
        Event.from_json(json.loads(RECORDED[kind][0]) | {"version": version})


def per_person(kind: str, rows: int) -> Event:
    """Return the recorded event as a statement for persons with at most so many rows."""
    return RECORDED[kind][1].for_person(rows)


@by_kind
def test_an_event_for_persons_states_their_rows_and_is_read_back(kind):
    event = per_person(kind, 3)
    assert event.max_rows_per_person == 3
    written = json.loads(json.dumps(event.to_json()))
    assert (written["version"], written["max_rows_per_person"]) == (2, 3)
    assert Event.from_json(written) == Event.from_json(written, max_rows_per_person=7) == event
    with pytest.raises(UnsupportedEventError, match="missing field 'max_rows_per_person'"):
        Event.from_json({key: value for key, value in written.items() if key != "max_rows_per_person"})
    for bad in (None, 0, -1, 1.5, "3", True):
        with pytest.raises(UnsupportedEventError, match=r"max_rows_per_person|rows per person"):
            Event.from_json(written | {"max_rows_per_person": bad})


@by_kind
def test_version_1_for_persons_means_the_bound_of_what_holds_it(kind):
    event = per_person(kind, 3)

    def version_1(value: Any) -> Any:
        if isinstance(value, list):
            return [version_1(item) for item in value]
        if not isinstance(value, dict):
            return value
        kept = {key: version_1(item) for key, item in value.items() if key != "max_rows_per_person"}
        return kept | {"version": 1}

    old = version_1(event.to_json())
    assert Event.from_json(old, max_rows_per_person=3) == event
    with pytest.raises(UnsupportedEventError, match="version 1 does not state how many rows of one person"):
        Event.from_json(old)
    with pytest.raises(UnsupportedEventError, match="version 2 is for persons"):
        Event.from_json(json.loads(RECORDED[kind][0]) | {"version": 2, "max_rows_per_person": 3})


@by_kind
@given(data=st.data())
def test_an_account_for_persons_refuses_events_for_fewer_rows_and_takes_those_for_more(kind, data):
    rows, bound = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12))
    event = per_person(kind, rows)
    account = MemoryAccount(relation=event.relation, unit="person", max_rows_per_person=bound)
    if rows < bound:
        with pytest.raises(InputError, match=f"at most {rows} rows, but .* up to {bound}.*Nothing was spent"):
            account.spend(event)
        with pytest.raises(InputError, match="says nothing about persons with up to"):
            event.for_fewer_rows(bound)
        assert account.receipts == ()
    else:
        kept = account.spend(event).event
        assert kept.max_rows_per_person == bound
        assert RunningTotal.of(kept).events.keys() == RunningTotal.of(event.for_fewer_rows(bound)).events.keys()
        for delta in (0.0, 1e-6):
            assert RunningTotal.of(kept).quick_epsilon(delta) == RunningTotal.of(event).quick_epsilon(delta)


@by_kind
@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, "1", None, True, [], 10**400])
def test_a_number_out_of_range_is_refused_by_name(kind, bad):
    for field in NUMBERS[kind]:
        with pytest.raises(UnsupportedEventError, match=rf"\({kind}\).*{field}"):
            Event.from_json(json.loads(RECORDED[kind][0]) | {field: bad})


@by_kind
@pytest.mark.parametrize("bad", ["", "bounded", 1, None, []])
def test_relation_and_unit_are_read_literally(kind, bad):
    data = json.loads(RECORDED[kind][0])
    for field in ("relation", "unit"):
        with pytest.raises(UnsupportedEventError, match=f"unknown {field}"):
            Event.from_json(data | {field: bad})


def test_a_refusal_names_the_event_and_the_part():
    inner = PureEvent(epsilon=0.5).to_json()
    outer = ComposedEvent(events=(PureEvent(epsilon=1), RepeatedEvent(event=PureEvent(epsilon=0.5), count=2))).to_json()
    outer["events"][1]["event"] = inner | {"kind": "pur"}
    with pytest.raises(UnsupportedEventError) as caught:
        Event.from_json(outer)
    assert "event (composed).events[1] (repeated).event: unknown kind of event 'pur'" in str(caught.value)
    assert "Did you mean 'pure'?" in str(caught.value)


def test_events_nested_beyond_reason_are_refused_without_exhausting_the_stack():
    data: dict[str, Any] = PureEvent(epsilon=0.5).to_json()
    for _ in range(10_000):
        data = {"kind": "repeated", "version": 1, "relation": "replace_one", "unit": "row", "event": data, "count": 1}
    with pytest.raises(UnsupportedEventError, match="nested more than 32 deep"):
        Event.from_json(data)


@pytest.mark.parametrize("data", [None, 1, "pure", [], [{"kind": "pure"}], {}, {"kind": ["pure"]}, {"kind": {}}])
def test_what_is_not_an_event_is_refused(data):
    with pytest.raises(UnsupportedEventError):
        Event.from_json(data)


def test_parts_that_are_no_list_are_refused():
    data = RECORDED["composed"][1].to_json()
    for bad in ({}, "pure", None, 3):
        with pytest.raises(UnsupportedEventError, match="events must be a list"):
            Event.from_json(data | {"events": bad})


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([*KINDS, "replace_one", "add_remove", "row", "person", "position", "value", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_any_json_is_read_or_refused_never_worse(data):
    with pytest.raises(UnsupportedEventError):
        Event.from_json(data)


@given(st.data())
def test_a_recorded_event_with_fields_scrambled_is_read_or_refused_never_worse(data):
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    record = json.loads(RECORDED[kind][0])
    for field in data.draw(st.lists(st.sampled_from(sorted(record)), max_size=2)):
        record[field] = data.draw(json_values)
    try:
        event = Event.from_json(record)
    except UnsupportedEventError:
        return
    again = Event.from_json(json.loads(json.dumps(event.to_json())))
    assert again == event
    cost = RunningTotal.of(event).quick_epsilon(1e-6)
    assert cost >= 0
    assert not math.isnan(cost)


@by_kind
def test_an_event_costs_something_and_nothing_when_it_does_nothing(kind):
    text, event = RECORDED[kind]
    assert 0 < RunningTotal.of(event).quick_epsilon(1e-9) < math.inf
    data = json.loads(text)
    silent = {
        "laplace": data | {"l1_sensitivity": 0.0},
        "gaussian": data | {"l2_sensitivity": 0.0, "changed_cells": None},
        "sampled_gaussian": data | {"sampling_probability": 0.0},
        "approximate": data | {"epsilon": 0.0, "delta": 0.0},
        "repeated": data | {"event": ZCDPEvent(rho=0).to_json()},
        "composed": data | {"events": [GDPEvent(mu=0).to_json(), PureEvent(epsilon=0).to_json()]},
        "parallel": data | {"events": [PureEvent(epsilon=0, relation="add_remove").to_json()]},
    }.get(kind) or data | dict.fromkeys(NUMBERS[kind], 0.0)
    nothing = Event.from_json(silent)
    total = RunningTotal(nothing.relation).add(nothing, 1000)
    for delta in (0.0, 1e-9):
        assert total.quick_epsilon(delta) == 0.0
        assert total.epsilon(delta) == 0.0
    assert total.delta(0.0) == 0.0


@by_kind
def test_a_counted_event_costs_what_repeating_it_costs(kind):
    event = RECORDED[kind][1]
    start = RunningTotal(event.relation)
    repeated = start
    for _ in range(7):
        repeated = repeated.add(event)
    for counted in (start.add(event, 7), start.add(RepeatedEvent(event=event, count=7))):
        assert counted.events == repeated.events
        for delta in (0.0, 1e-5):
            assert counted.quick_epsilon(delta) == pytest.approx(repeated.quick_epsilon(delta), rel=1e-12)
            assert counted.epsilon(delta) == pytest.approx(repeated.epsilon(delta), rel=1e-9)
    assert repeated.epsilon(1e-5) > 1.5 * start.add(event).epsilon(1e-5)


@by_kind
def test_stating_an_event_for_replace_one_never_lowers_its_cost(kind):
    event = RECORDED[kind][1]
    if event.relation == "replace_one":
        data = json.loads(json.dumps(event.to_json()).replace("replace_one", "add_remove"))
        event = Event.from_json(data)
    replaced = event.under("replace_one")
    assert replaced.relation == "replace_one"
    for delta in (0.0, 1e-5):
        assert RunningTotal.of(replaced).epsilon(delta) >= RunningTotal.of(event).epsilon(delta)
