"""A guarantee is stated once, reads as a sentence, and converts without ever promising more than it did."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.errors import InputError
from escudo.privacy import (
    ApproximateEvent,
    ExponentialEvent,
    GaussianEvent,
    GDPEvent,
    Guarantee,
    PureEvent,
    ZCDPEvent,
    gdp_to_delta,
    gdp_to_epsilon,
    guarantee_of,
    zcdp_to_delta,
    zcdp_to_epsilon,
)

# --- What may be stated ----------------------------------------------------------------------------------------------


def test_exactly_one_notion_is_stated():
    with pytest.raises(InputError, match=r"exactly one notion.*got none"):
        Guarantee()
    with pytest.raises(InputError, match="got epsilon and rho"):
        Guarantee(epsilon=1.0, rho=0.5)
    for notion in ({"rho": 0.5}, {"mu": 1.0}, {"curve": [(1.0, 1e-6)]}):
        with pytest.raises(InputError, match="delta goes with epsilon"):
            Guarantee(delta=1e-6, **notion)


def test_where_nothing_is_promised_no_epsilon_holds_and_everything_may_fail():
    nothing = Guarantee(none=True, for_release=False)
    assert nothing.epsilon_at(1e-6) == math.inf
    assert [nothing.delta_at(epsilon) for epsilon in (0.0, 1.0, 100.0)] == [1.0] * 3


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 1e7, "1", True, 10**400])
@pytest.mark.parametrize("notion", ["epsilon", "rho", "mu"])
def test_losses_out_of_range_are_refused_by_name(notion, bad):
    with pytest.raises(InputError, match=notion):
        Guarantee(**{notion: bad})


@pytest.mark.parametrize("bad", [math.nan, -1e-9, 1.0, 2, "0", None])
def test_a_delta_out_of_range_is_refused(bad):
    with pytest.raises(InputError, match="delta"):
        Guarantee(epsilon=1.0, delta=bad)


@pytest.mark.parametrize("bad", [[], (), 1.0, [1.0], [(1.0,)], [(1.0, 0.1, 0.1)]])
def test_a_curve_is_a_list_of_pairs(bad):
    with pytest.raises(InputError, match="curve"):
        Guarantee(curve=bad)


def test_points_of_a_curve_are_checked():
    with pytest.raises(InputError, match="epsilon of curve"):
        Guarantee(curve=[(-1.0, 0.1)])
    with pytest.raises(InputError, match="delta of curve"):
        Guarantee(curve=[(1.0, 1.0)])


def test_relation_and_unit_are_checked_and_synonyms_understood():
    assert Guarantee(epsilon=1.0, relation="unbounded").relation == "add_remove"
    assert Guarantee(epsilon=1.0) == Guarantee(epsilon=1, relation="bounded")
    with pytest.raises(InputError, match="needs max_rows_per_person"):
        Guarantee(epsilon=1.0, unit="person")
    with pytest.raises(InputError, match="goes with unit='person'"):
        Guarantee(epsilon=1.0, max_rows_per_person=2)
    with pytest.raises(InputError, match="same relation and unit"):
        Guarantee(epsilon=1.0, source=PureEvent(epsilon=1.0, relation="add_remove"))


def test_a_guarantee_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Guarantee(epsilon=1.0).epsilon = 0.5


# --- What it says ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guarantee", "sentence"),
    [
        (
            Guarantee(epsilon=1.0, delta=1e-6, accountant="PLD"),
            "Changing one person's row changes the probability of any output by at most a factor e^1.0 (2.72), except "
            "with probability 1e-06. [replace one row; accountant: PLD]",
        ),
        (
            Guarantee(epsilon=0.1 + 0.2, relation="add_remove"),
            "Adding or removing one person's row changes the probability of any output by at most a factor e^0.3 "
            "(1.35). [add or remove one row; accountant: closed form]",
        ),
        (
            Guarantee(epsilon=2.0, unit="person", max_rows_per_person=3),
            "Changing all rows of one person (at most 3) changes the probability of any output by at most a factor "
            "e^2.0 (7.39). [replace one person; accountant: closed form]",
        ),
        (
            Guarantee(epsilon=0.001, unit="person", max_rows_per_person=1, relation="add_remove", for_release=False),
            "Adding or removing the row of one person changes the probability of any output by at most a factor "
            "e^0.001 (1.00101). [add or remove one person; accountant: closed form] Not for release: the noise was "
            "seeded.",
        ),
        (
            Guarantee(rho=0.5, float_safe=False),
            "Changing one person's row changes the probability of any output by at most a factor e^5.222 (186), except "
            "with probability 1e-06. [replace one row, rho = 0.5 zCDP; accountant: closed form] The noise was drawn in "
            "floating point, which may leak more than stated.",
        ),
        (
            Guarantee(mu=1.0),
            "Changing one person's row changes the probability of any output by at most a factor e^4.887 (133), except "
            "with probability 1e-06. [replace one row, mu = 1.0 GDP; accountant: closed form]",
        ),
        (
            Guarantee(curve=[(1.0, 1e-5), (0.5, 1e-3)]),
            "Changing one person's row changes the probability of any output by at most a factor e^1.0 (2.72), except "
            "with probability 1e-05. [replace one row, curve of 2 points; accountant: closed form]",
        ),
        (
            Guarantee(epsilon=0.0),
            "Changing one person's row does not change the probability of any output. [replace one row; accountant: "
            "closed form]",
        ),
        (
            Guarantee(epsilon=900),
            "Changing one person's row changes the probability of any output by at most a factor e^900.0. [replace one "
            "row; accountant: closed form]",
        ),
    ],
    ids=repr,
)
def test_printing_gives_a_sentence_in_the_causal_reading(guarantee, sentence):
    assert str(guarantee) == sentence


def test_epsilon_zero_with_a_delta_still_says_what_may_happen():
    assert "a factor e^0.0 (1), except with probability 0.01" in str(Guarantee(epsilon=0.0, delta=0.01))


@given(st.floats(1e-6, 600))
def test_printed_numbers_are_never_smaller_than_the_truth(epsilon):
    text = str(Guarantee(epsilon=epsilon))
    exponent, factor = text.split("e^")[1].split(". [")[0].split(" ")
    assert float(exponent) >= epsilon * (1 - 1e-14)
    assert float(exponent) <= epsilon * 1.0011
    assert float(factor.strip("()")) >= math.exp(epsilon) * (1 - 1e-14)


def test_repr_shows_what_was_stated_and_the_relation():
    assert repr(Guarantee(epsilon=1, delta=1e-6)) == "Guarantee(epsilon=1.0, delta=1e-06, relation='replace_one')"
    assert (
        repr(Guarantee(rho=0.5, for_release=False)) == "Guarantee(rho=0.5, relation='replace_one', for_release=False)"
    )


def test_the_card_holds_the_sentence_and_escapes_what_it_is_given():
    card = Guarantee(epsilon=1.0, accountant="<script>")._repr_html_()
    assert "Changing one person&#x27;s row" in card
    assert "&lt;script&gt;" in card
    assert "<script>" not in card
    assert "not for release" in Guarantee(epsilon=1.0, for_release=False)._repr_html_()


def test_json_holds_the_statement_and_the_sentence():
    data = json.loads(json.dumps(Guarantee(curve=[(1.0, 1e-5)], unit="person", max_rows_per_person=2).to_json()))
    assert data["curve"] == [[1.0, 1e-5]]
    assert data["max_rows_per_person"] == 2
    assert data["sentence"].startswith("Changing all rows of one person (at most 2)")
    assert "epsilon" not in data
    assert Guarantee(epsilon=1.0, delta=1e-6).to_json()["delta"] == 1e-6


# --- Other deltas and epsilons ---------------------------------------------------------------------------------------


def test_a_pure_guarantee_trades_epsilon_for_delta_like_randomised_response():
    g = Guarantee(epsilon=1.0)
    assert g.epsilon_at(0.0) == 1.0
    assert g.delta_at(1.0) == 0.0
    assert g.delta_at(0.0) == pytest.approx(math.tanh(0.5), rel=1e-9)
    assert g.epsilon_at(g.delta_at(0.4)) == pytest.approx(0.4, rel=1e-6)


def test_an_approximate_guarantee_says_nothing_below_its_delta():
    g = Guarantee(epsilon=1.0, delta=1e-6)
    assert g.epsilon_at(1e-6) == 1.0
    assert g.epsilon_at(1e-7) == math.inf
    assert g.epsilon_at(1e-3) < 1.0
    assert g.delta_at(2.0) == pytest.approx(1e-6, rel=1e-12)


def test_rho_and_mu_answer_by_their_conversions():
    assert Guarantee(rho=0.5).epsilon_at(1e-6) == zcdp_to_epsilon(0.5, 1e-6)
    assert Guarantee(rho=0.5).delta_at(2.0) == zcdp_to_delta(0.5, 2.0)
    assert Guarantee(mu=0.5).epsilon_at(1e-6) == gdp_to_epsilon(0.5, 1e-6)
    assert Guarantee(mu=0.5).delta_at(2.0) == gdp_to_delta(0.5, 2.0)
    for g in (Guarantee(rho=0.5), Guarantee(mu=0.5)):
        assert g.epsilon_at(0.0) == math.inf
    for g in (Guarantee(rho=0), Guarantee(mu=0)):
        assert g.epsilon_at(0.0) == g.epsilon_at(1e-6) == g.delta_at(0.0) == 0.0


def test_a_curve_answers_between_its_points_by_chords_above_the_truth():
    truth = Guarantee(mu=1.0)
    epsilons = [0.2, 1.0, 2.5, 4.0]
    g = Guarantee(curve=[(e, truth.delta_at(e)) for e in reversed(epsilons)])
    for e in (0.0, 0.1, 0.2, 0.6, 1.0, 1.7, 3.0, 4.0, 5.0):
        assert g.delta_at(e) >= truth.delta_at(e)
    for e in epsilons:
        assert g.delta_at(e) == pytest.approx(truth.delta_at(e), rel=1e-9)
    assert g.delta_at(0.6) < truth.delta_at(0.2)
    assert g.delta_at(9.0) == truth.delta_at(4.0)
    assert g.epsilon_at(truth.delta_at(1.0)) == pytest.approx(1.0, rel=1e-6)
    assert g.epsilon_at(truth.delta_at(5.0)) == math.inf


@given(st.floats(0.1, 3), st.lists(st.floats(0, 12), min_size=1, max_size=6, unique=True), st.floats(0, 12))
def test_a_curve_never_beats_the_mechanism_it_was_read_from(mu, epsilons, at):
    truth = Guarantee(mu=mu)
    g = Guarantee(curve=[(e, truth.delta_at(e)) for e in epsilons])
    assert g.delta_at(at) >= truth.delta_at(at) * (1 - 1e-9)
    delta = g.delta_at(at)
    if 0 < delta < 1:
        assert g.epsilon_at(delta) <= at * (1 + 1e-9) + 1e-12


def test_useless_points_of_a_curve_are_dropped():
    assert Guarantee(curve=[(2.0, 1e-3), (1.0, 1e-3), (3.0, 0.5)]).curve == ((1.0, 1e-3),)


def test_a_guarantee_from_events_answers_from_the_events():
    g = guarantee_of([ExponentialEvent(epsilon=0.5)] * 10, delta=1e-6)
    assert g.epsilon_at(0.0) == 5.0
    assert g.epsilon_at(1e-6) == g.epsilon
    assert g.delta_at(5.0) == 0.0


# --- As an event, and for others -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guarantee", "event"),
    [
        (Guarantee(epsilon=1.0), PureEvent(epsilon=1.0)),
        (Guarantee(epsilon=1.0, delta=1e-6), ApproximateEvent(epsilon=1.0, delta=1e-6)),
        (Guarantee(rho=0.5, relation="add_remove"), ZCDPEvent(rho=0.5, relation="add_remove")),
        (
            Guarantee(mu=0.5, unit="person", max_rows_per_person=2),
            GDPEvent(mu=0.5, unit="person", max_rows_per_person=2),
        ),
        (Guarantee(curve=[(1.0, 1e-3), (2.0, 1e-6)]), ApproximateEvent(epsilon=2.0, delta=1e-6)),
        (Guarantee(curve=[(1.0, 1e-3), (2.0, 0.0)]), PureEvent(epsilon=2.0)),
    ],
    ids=repr,
)
def test_a_guarantee_can_be_spent_as_an_event(guarantee, event):
    assert guarantee.event == event


def test_stating_a_guarantee_for_replace_one_doubles_it():
    assert Guarantee(epsilon=1.0, relation="add_remove").under("replace_one") == Guarantee(epsilon=2.0)
    assert Guarantee(rho=0.5, relation="add_remove").under("bounded") == Guarantee(rho=2.0)
    assert Guarantee(mu=0.5, relation="add_remove").under("replace_one") == Guarantee(mu=1.0)
    approximate = Guarantee(epsilon=1.0, delta=1e-6, relation="add_remove").under("replace_one")
    assert (approximate.epsilon, approximate.delta) == (2.0, pytest.approx(1e-6 * (1 + math.e), rel=1e-9))
    curve = Guarantee(curve=[(1.0, 1e-6), (2.0, 0.0)], relation="add_remove").under("replace_one").curve
    assert curve == ((2.0, pytest.approx(1e-6 * (1 + math.e), rel=1e-9)), (4.0, 0.0))
    same = Guarantee(epsilon=1.0)
    assert same.under("replace_one") is same


@pytest.mark.parametrize("notion", [{"epsilon": 1.0}, {"rho": 0.5}, {"mu": 1.0}, {"curve": [(1.0, 1e-6)]}])
def test_a_guarantee_for_replace_one_says_nothing_about_add_remove(notion):
    with pytest.raises(InputError, match="says nothing about add_remove"):
        Guarantee(**notion).under("add_remove")


def test_a_guarantee_from_events_is_restated_by_its_events():
    g = guarantee_of(GaussianEvent(l2_sensitivity=1, scale=1, grid=0, relation="add_remove"), delta=1e-5)
    assert g.under("replace_one").epsilon == pytest.approx(9.997, abs=1e-3)
    assert g.under("replace_one").epsilon_at(1e-3) == pytest.approx(gdp_to_epsilon(2.0, 1e-3), rel=1e-8)


def test_a_guarantee_whose_events_need_more_delta_grows_in_delta():
    g = guarantee_of(ApproximateEvent(epsilon=0.5, delta=1e-6, relation="add_remove"), delta=1e-6)
    restated = g.under("replace_one")
    assert restated.epsilon == 1.0
    assert restated.delta == pytest.approx(1e-6 * (1 + math.exp(0.5)), rel=1e-9)
    assert restated.epsilon_at(restated.delta) == 1.0


def test_a_guarantee_for_a_row_becomes_one_for_a_person():
    g = Guarantee(epsilon=0.5, delta=1e-9).for_person(3)
    assert (g.epsilon, g.unit, g.max_rows_per_person) == (1.5, "person", 3)
    assert g.delta == pytest.approx(1e-9 * (1 + math.exp(0.5) + math.exp(1.0)), rel=1e-9)
    assert Guarantee(rho=0.5).for_person(2).rho == 2.0
    with pytest.raises(InputError, match="per person already"):
        g.for_person(2)
    with pytest.raises(InputError, match="max_rows_per_person"):
        Guarantee(epsilon=0.5).for_person(0)


@pytest.mark.parametrize(
    "guarantee",
    [
        Guarantee(epsilon=1.0, delta=1e-6),
        Guarantee(rho=0.1, relation="add_remove", for_release=False),
        Guarantee(mu=0.5, unit="person", max_rows_per_person=3),
        Guarantee(curve=((0.5, 1e-3), (1.0, 1e-6))),
    ],
)
def test_a_guarantee_survives_being_written_and_read(guarantee: Guarantee) -> None:
    assert Guarantee.from_json(guarantee.to_json()) == guarantee


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"for_release": "no"}, "for_release of a guarantee must be true or false"),
        ({"float_safe": 1}, "float_safe of a guarantee must be true or false"),
        ({"accountant": None}, "accountant of a guarantee must be text"),
        ({"epsilon": None, "curve": 5}, "curve must be a list"),
        ({"epsilon": None, "curve": [1, 2]}, "every point of curve must be a pair"),
        ({"event": 5}, "an event is a JSON object"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_record_that_was_edited_into_nonsense_is_refused_by_name(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Guarantee.from_json(Guarantee(epsilon=1.0).to_json() | change)
    with pytest.raises(InputError, match="record is a JSON object; this is list"):
        Guarantee.from_json([])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="source of a guarantee must be an event or None"):
        Guarantee(epsilon=1.0, source=1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("notion", [{"rho": 0.5}, {"mu": 1.0}], ids=["rho", "mu"])
def test_rho_and_mu_are_restated_in_their_own_notion_even_where_the_event_is_pure(notion: dict[str, float]) -> None:
    one = Guarantee(**notion, relation="add_remove", source=PureEvent(epsilon=1.0, relation="add_remove"))  # type: ignore[arg-type]
    assert (one.under("replace_one").rho, one.under("replace_one").mu) == ((2.0, None) if one.rho else (None, 2.0))
    assert one.under("replace_one").source == PureEvent(epsilon=2.0)
    assert one.for_person(3).max_rows_per_person == 3


def test_a_record_with_an_unknown_key_is_refused() -> None:
    with pytest.raises(InputError):
        Guarantee.from_json({**Guarantee(epsilon=1.0).to_json(), "epsilonn": 2})
