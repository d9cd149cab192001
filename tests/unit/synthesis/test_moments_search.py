"""Missing arrows: suspects are measured again, chance is no arrow, and loose columns end up on the right side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from escudo.causal import CausalGraph
from escudo.synthesis import MaxConditional, TableConditional
from escudo.synthesis._laws import Conditional, draw
from escudo.synthesis._moment_fit import SecondLook, Surprise, Task, fit_moments, loose_columns, one_pass, ordered_pairs
from escudo.synthesis._moment_statistics import MomentLayout, NoisyMoments, clip_factors, row_squares, sum_rows
from escudo.synthesis._structure import Structure, structure_of
from escudo.table import Schema

Codes = NDArray[np.int64]
ROWS = 4000
NAMES = ("p", "q", "r", "child", "other")


def root(share: float) -> TableConditional:
    return TableConditional((), np.array([1 - share, share]))


def fires(*parents: str, strengths: tuple[float, ...]) -> MaxConditional:
    return MaxConditional(parents, 0.01, tuple(np.array([0.0, strength]) for strength in strengths))


TRUTH: Mapping[str, Conditional] = {
    "p": root(0.3),
    "q": root(0.4),
    "r": root(0.3),
    "child": fires("p", "q", strengths=(0.7, 0.4)),
    "other": fires("r", strengths=(0.6,)),
}
STATED = {"p": (), "q": (), "r": (), "child": ("q",), "other": ("r",)}
PAIRS = (("q", "child"), ("r", "other"))
CANDIDATES = (("p", "child"), ("r", "child"), ("p", "other"), ("q", "other"))
LAYOUT = MomentLayout(sizes=dict.fromkeys(NAMES, 2), pairs=PAIRS, candidates=CANDIDATES)
FORMS = dict.fromkeys(NAMES, "max")


def simulated(laws: Mapping[str, Conditional], count: int = ROWS, seed: int = 1) -> Codes:
    drawn = draw(laws, {}, count, np.random.default_rng(seed))
    return np.stack([drawn[name] for name in laws], axis=1)


def released(
    layout: MomentLayout, codes: Codes, *, noise: float, square: int | None = None, seed: int = 0
) -> NoisyMoments:
    """Return the moments of a table with noise of ``noise`` rows in each level."""
    bound = layout.largest_square if square is None else square
    factors = clip_factors(layout, bound)
    exact = sum_rows(layout, [(codes, factors[row_squares(layout, codes)])]).astype(np.float64)
    scale = noise * 2 * float(factors[0])
    noisy = exact + np.random.default_rng(seed).normal(0, scale, exact.size)
    return NoisyMoments.from_release(layout, noisy, scale, square=bound, rows=len(codes))


# -- the second look


def test_a_second_look_measures_what_is_stated_and_the_most_surprising_candidates() -> None:
    codes = simulated(TRUTH)
    seen: list[tuple[MomentLayout, int]] = []

    def measure(layout: MomentLayout, square: int) -> NoisyMoments:
        seen.append((layout, square))
        return released(layout, codes, noise=10.0, square=square, seed=5)

    look = SecondLook(suspects=2, clip_quantile=0.8, measure=measure)
    fit_moments(released(LAYOUT, codes, noise=40.0), STATED, FORMS, most_added=2, second_look=look)
    ((layout, square),) = seen
    assert layout.candidates == ()
    assert layout.sizes == LAYOUT.sizes
    assert layout.pairs[:2] == PAIRS
    assert len(layout.pairs) == 4
    assert layout.pairs[2] == ("p", "child")  # by far the most surprising, and so the first
    assert 4 <= square <= layout.largest_square


def test_an_arrow_that_drowns_in_the_first_release_is_found_by_the_second() -> None:
    codes = simulated(TRUTH)
    first = released(LAYOUT, codes, noise=150.0)

    def measure(layout: MomentLayout, square: int) -> NoisyMoments:
        return released(layout, codes, noise=20.0, square=square, seed=5)

    look = SecondLook(suspects=2, clip_quantile=0.8, measure=measure)
    assert fit_moments(first, STATED, FORMS, most_added=2).parents == STATED
    found = fit_moments(first, STATED, FORMS, most_added=2, second_look=look)
    assert found.parents == {**STATED, "child": ("q", "p")}
    strength = found.laws["child"].probabilities(np.array([[0, 1], [1, 0]]))[:, 1]
    assert np.abs(strength - [0.7, 0.4]).max() < 0.12
    assert found.noise == pytest.approx((150.0**-2 + 20.0**-2) ** -0.5, rel=1e-3)


def test_what_was_released_twice_counts_by_its_precision() -> None:
    """A second release nobody can hear changes nothing; one that is exact drowns the first."""
    codes = simulated(TRUTH, count=20_000)
    loud, exact = (released(LAYOUT, codes, noise=noise, seed=noise) for noise in (300, 1))
    deaf = replace(exact, scale=np.full(LAYOUT.size, 1e9), values=np.zeros(LAYOUT.size))

    def strength(*releases: NoisyMoments) -> float:
        task, state = Task(releases=releases, forms=FORMS, known={}, tied=False), None
        for _ in range(3):
            state = one_pass(task, STATED, state)
        assert state is not None
        law = state.laws["other"]
        assert isinstance(law, MaxConditional)
        return float(law.strengths[0][1])

    assert strength(loud, deaf) == pytest.approx(strength(loud), abs=1e-6)
    assert strength(loud, exact) == pytest.approx(strength(exact), abs=1e-3)
    assert abs(strength(loud) - strength(exact)) > 5e-3


def test_releases_under_different_clip_bounds_agree_once_clipping_is_undone() -> None:
    codes = simulated(TRUTH, count=60_000)
    tight = int(np.quantile(row_squares(LAYOUT, codes), 0.5))
    releases = tuple(released(LAYOUT, codes, noise=1.0, square=bound) for bound in (tight, LAYOUT.largest_square))
    task, state = Task(releases=releases, forms=FORMS, known={}, tied=False), None
    parents = {**STATED, "child": ("q", "p")}
    for _ in range(3):
        state = one_pass(task, parents, state)
    assert state is not None
    assert releases[0].values[-5] < 0.9 * releases[1].values[-5]  # clipping does bite
    law = state.laws["child"].probabilities(np.array([[0, 1], [1, 0]]))[:, 1]
    assert np.abs(law - [0.7, 0.4]).max() < 0.02


# -- surprise


def surprise(codes: Codes, *, form: str, noise: float = 20.0, seed: int = 0) -> Surprise:
    release = released(LAYOUT, codes, noise=noise, seed=seed)
    task, state = Task(releases=(release,), forms=dict.fromkeys(NAMES, form), known={}, tied=False), None
    for _ in range(2):
        state = one_pass(task, STATED, state)
    assert state is not None
    return Surprise(task, state)


def test_surprise_without_a_missing_arrow_is_a_standard_normal() -> None:
    laws = {**TRUTH, "child": fires("q", strengths=(0.4,))}
    found = [
        surprise(simulated(laws, seed=seed), form="max", noise=30.0, seed=seed).entries[-len(CANDIDATES) :]
        for seed in range(20)
    ]
    entries = np.concatenate(found)
    assert abs(entries.mean()) < 0.35
    assert 0.6 < entries.std() < 1.25


def test_a_pair_seen_together_too_rarely_has_no_arrow_for_a_remedy_where_causes_only_switch_on() -> None:
    codes = simulated(TRUTH)
    codes[:, 4] &= 1 - codes[:, 0]  # other is never on where p is
    assert surprise(codes, form="max").of(("p", "other")) == 0
    assert surprise(codes, form="logit").of(("p", "other")) > 4
    assert fit_moments(released(LAYOUT, codes, noise=20.0), STATED, FORMS, most_added=2).parents["other"] == ("r",)


def test_the_most_surprising_come_first() -> None:
    found = surprise(simulated(TRUTH), form="max")
    ranked = found.most(CANDIDATES, 3)
    assert ranked[0] == ("p", "child")
    assert len(ranked) == 3
    assert [found.of(arrow) for arrow in ranked] == sorted((found.of(arrow) for arrow in CANDIDATES), reverse=True)[:3]


# -- loose columns


def with_a_common_cause() -> dict[str, Conditional]:
    """``u`` switches a and b on, each of which has a cause of its own."""
    return {
        "u": root(0.4),
        "s": root(0.3),
        "t": root(0.3),
        "a": fires("u", "s", strengths=(0.8, 0.6)),
        "b": fires("u", "t", strengths=(0.7, 0.6)),
        "end": fires("a", "b", strengths=(0.5, 0.5)),
    }


def with_a_common_effect() -> dict[str, Conditional]:
    """``u`` is switched on by a and b."""
    return {
        "s": root(0.3),
        "t": root(0.3),
        "a": fires("s", strengths=(0.9,)),
        "b": fires("t", strengths=(0.9,)),
        "end": fires("a", "b", strengths=(0.5, 0.5)),
        "u": fires("a", "b", strengths=(0.8, 0.7)),
    }


STATED_BESIDE_U = (("s", "a"), ("t", "b"), ("a", "end"), ("b", "end"))


@pytest.mark.parametrize(
    ("laws", "wanted"),
    [
        (with_a_common_cause(), {("u", "a"), ("u", "b")}),
        (with_a_common_effect(), {("a", "u"), ("b", "u")}),
    ],
    ids=["cause", "effect"],
)
def test_a_loose_column_is_put_on_the_side_that_explains_what_was_measured(
    laws: Mapping[str, Conditional], wanted: set[tuple[str, str]]
) -> None:
    names = tuple(laws)
    structure = structure_of(
        Schema.from_dict({name: [0, 1] for name in names}), CausalGraph.from_edges(STATED_BESIDE_U, nodes=names)
    )
    assert loose_columns(structure) == ("u",)
    stated = set(structure.arrows)
    candidates = tuple(arrow for arrow in ordered_pairs(structure) if arrow not in stated)
    layout = MomentLayout(sizes=dict.fromkeys(names, 2), pairs=structure.arrows, candidates=candidates)
    moments = released(layout, simulated(laws, count=20_000), noise=30.0)
    found = fit_moments(moments, structure.parents, dict.fromkeys(names, "max"), most_added=2, loose=("u",))
    added = {(cause, effect) for effect, several in found.parents.items() for cause in several} - stated
    assert added == wanted


def test_only_a_column_of_which_nothing_is_said_is_loose() -> None:
    names = ("a", "b", "u", "v")
    schema = Schema.from_dict({name: [0, 1] for name in names})

    def structure(**knowledge: Any) -> Structure:
        return structure_of(schema, CausalGraph.from_edges([("a", "b")], nodes=names, **knowledge))

    assert loose_columns(structure()) == ("u", "v")
    # u with all that is not loose, v with u as well, and no pair twice
    assert set(ordered_pairs(structure())) == {
        ("a", "b"),
        ("a", "u"),
        ("b", "u"),
        ("a", "v"),
        ("b", "v"),
        ("u", "v"),
    }
    assert loose_columns(structure(tiers=[["a"], ["b", "u", "v"]])) == ()
    forbidding = structure(forbidden=[("u", "a")])
    assert loose_columns(forbidding) == ("v",)
    assert ("a", "u") in ordered_pairs(forbidding)
    assert loose_columns(structure_of(schema, None)) == ()  # open pairs have an order of their own
