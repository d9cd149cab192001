"""Fitting laws to moments: exact on exact moments, sceptical of noisy ones, and undisturbed by clipping."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from escudo.synthesis import LogitConditional, MaxConditional, NoisyOrConditional, TableConditional
from escudo.synthesis._laws import Conditional, dense_table, draw
from escudo.synthesis._moment_family import FIRST_PRIORS, FORMS, Family, kinds_of, law_of, learn_priors, minimise
from escudo.synthesis._moment_fit import FittedMoments, fit_moments
from escudo.synthesis._moment_statistics import MomentLayout, NoisyMoments, clip_factors, row_squares, sum_rows

Codes = NDArray[np.int64]
COUNT = 400_000


def moments_of(
    layout: MomentLayout, codes: Codes, *, noise: float = 1e-3, square: int | None = None, seed: int = 0
) -> NoisyMoments:
    """Return the moments of a table with noise of ``noise`` rows in each level."""
    bound = layout.largest_square if square is None else square
    factors = clip_factors(layout, bound)
    exact = sum_rows(layout, [(codes, factors[row_squares(layout, codes)])]).astype(np.float64)
    scale = noise * 2 * float(factors[0])
    noisy = exact + np.random.default_rng(seed).normal(0, scale, exact.size)
    return NoisyMoments.from_release(layout, noisy, scale, square=bound, rows=len(codes))


def simulated(laws: Mapping[str, Conditional], count: int = COUNT, seed: int = 1) -> tuple[Codes, MomentLayout]:
    """Return rows drawn from laws listed in causal order, and the layout of their arrows."""
    drawn = draw(laws, {}, count, np.random.default_rng(seed))
    arrows = tuple((parent, name) for name, law in laws.items() for parent in law.parents)
    layout = MomentLayout(sizes={name: law.size for name, law in laws.items()}, pairs=arrows)
    return np.stack([drawn[name] for name in laws], axis=1), layout


def refitted(laws: Mapping[str, Conditional], form: str, **options: float) -> FittedMoments:
    codes, layout = simulated(laws)
    parents = {name: law.parents for name, law in laws.items()}
    return fit_moments(moments_of(layout, codes, **options), parents, dict.fromkeys(laws, form))


def worst(found: Conditional, true: Conditional) -> float:
    return float(np.abs(dense_table(found) - dense_table(true)).max())


ROOTS = {
    "p": TableConditional((), np.array([0.7, 0.3])),
    "q": TableConditional((), np.array([0.6, 0.4])),
    "r": TableConditional(("p",), np.array([[0.5, 0.5], [0.2, 0.8]])),
}
STRENGTHS = (np.array([0.0, 0.4]), np.array([0.0, 0.7]), np.array([0.0, 0.25]))


@pytest.mark.parametrize(
    "law",
    [
        MaxConditional(("p", "q", "r"), 0.02, STRENGTHS),
        NoisyOrConditional(("p", "q", "r"), 0.02, STRENGTHS),
        LogitConditional(
            ("p", "q", "r"), np.array([0.0, -2.0]), tuple(np.array([[0, 0], [0, w]]) for w in (1.0, 2.0, -0.5))
        ),
    ],
    ids=lambda law: law.kind,
)
def test_a_known_model_is_found_again_from_its_moments(law: Conditional) -> None:
    fitted = refitted({**ROOTS, "child": law}, law.kind)
    assert type(fitted.laws["child"]) is type(law)
    assert fitted.parents["child"] == ("p", "q", "r")
    # moments of 400,000 rows and 100,000 simulated ones: both err by a few thousandths
    assert worst(fitted.laws["child"], law) < 0.015


def test_a_logit_of_many_levels_is_found_again() -> None:
    rng = np.random.default_rng(4)
    three = TableConditional((), np.array([0.5, 0.3, 0.2]))
    law = LogitConditional(
        ("three", "q"), np.array([0.0, 0.5, -0.5, 0.2]), (rng.normal(size=(3, 4)), rng.normal(size=(2, 4)))
    )
    fitted = refitted({"three": three, "q": ROOTS["q"], "child": law}, "logit")
    assert worst(fitted.laws["child"], law) < 0.02
    assert worst(fitted.laws["three"], three) < 0.01


def test_levels_of_a_parent_fire_each_with_its_own_strength() -> None:
    three = TableConditional((), np.array([0.5, 0.3, 0.2]))
    law = NoisyOrConditional(("three", "q"), 0.05, (np.array([0.0, 0.3, 0.6]), np.array([0.0, 0.2])))
    fitted = refitted({"three": three, "q": ROOTS["q"], "child": law}, "noisy-or")
    assert worst(fitted.laws["child"], law) < 0.015


def test_a_leak_is_never_zero_and_no_law_certain() -> None:
    law = MaxConditional(("p",), 0.0, (np.array([0.0, 1.0]),))
    found = refitted({"p": ROOTS["p"], "child": law}, "max").laws["child"]
    assert isinstance(found, MaxConditional)
    assert 0 < found.leak < 0.01
    assert 0.97 < found.strengths[0][1] < 1


# -- noise


def test_an_arrow_drowned_by_noise_goes_where_the_others_are_and_a_clear_one_stays() -> None:
    names = [f"p{i}" for i in range(8)]
    roots = {name: TableConditional((), np.array([0.7, 0.3])) for name in names}
    laws: dict[str, Conditional] = dict(roots)
    for i, name in enumerate(names):
        law = LogitConditional((name,), np.array([0.0, -1.0]), (np.array([[0, 0], [0, 1.5]]),))
        laws[f"c{i}"] = law
    codes, layout = simulated(laws, count=5000)
    parents = {name: law.parents for name, law in laws.items()}

    def weights(noise: float) -> NDArray[np.float64]:
        fitted = fit_moments(moments_of(layout, codes, noise=noise, seed=2), parents, dict.fromkeys(laws, "logit"))
        found = [fitted.laws[f"c{i}"] for i in range(8)]
        return np.array([law.weights[0][1, 1] for law in found if isinstance(law, LogitConditional)])

    assert weights(1.0) == pytest.approx(1.5, abs=0.25)
    drowned = weights(5000.0)
    assert np.abs(drowned).max() < 1.0  # nothing to see: towards the first prior, at 0
    assert drowned.std() < 0.5


def test_one_drowned_arrow_is_drawn_to_its_family() -> None:
    priors = dict(FIRST_PRIORS) | {"max family": (-2.0, 1.5), "max arrow": (0.0, 0.5)}
    design = np.array([[1, a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)], dtype=np.float64)
    strength = np.array([-5.0, 0.5, 0.5, 0.5])[:, None]
    rows = np.full(8, 1000.0)
    target = (rows[:, None] * design).T @ FORMS["max"](strength, design).probabilities
    noise = np.full((4, 1), 50.0)
    noise[3] = np.inf  # the third arrow was not measured
    family = Family(
        form="max",
        kinds=kinds_of("max", 2, (2, 2, 2)),
        target=target,
        noise=noise,
        design=design,
        rows=rows,
    )
    found = family.fitted(priors)
    assert found.theta[1:3, 0] == pytest.approx(0.5, abs=0.15)
    assert found.theta[3, 0] == pytest.approx(float(found.level[0]), abs=0.3)
    assert found.variance[3, 0] > 5 * found.variance[1, 0]


def test_priors_are_learnt_from_many_and_hardly_from_few() -> None:
    def family(strength: float) -> Family:
        design = np.array([[1.0, 0.0], [1.0, 1.0]])
        theta = np.array([[-4.0], [strength]])
        rows = np.array([50_000.0, 50_000.0])
        return Family(
            form="noisy-or",
            kinds=kinds_of("noisy-or", 2, (2,)),
            target=(rows[:, None] * design).T @ FORMS["noisy-or"](theta, design).probabilities,
            noise=np.ones((2, 1)),
            design=design,
            rows=rows,
        )

    strengths = np.random.default_rng(0).normal(1.0, 0.3, 200)
    many = learn_priors([family(strength).fitted(FIRST_PRIORS) for strength in strengths])
    mean, spread = many["noisy-or family"]
    assert mean == pytest.approx(1.0, abs=0.2)
    assert spread < 0.8
    few = learn_priors([family(1.0).fitted(FIRST_PRIORS)])
    assert few["noisy-or family"][0] == pytest.approx(-2 + 3 / 6, abs=0.3)
    assert many["logit arrow"] == FIRST_PRIORS["logit arrow"]


# -- clipping


def test_a_tight_clip_bound_is_undone() -> None:
    laws: dict[str, Conditional] = {**ROOTS, "child": MaxConditional(("p", "q", "r"), 0.02, STRENGTHS)}
    codes, layout = simulated(laws)
    square = int(np.quantile(row_squares(layout, codes), 0.6))
    assert (row_squares(layout, codes) > square).mean() > 0.2
    clipped = moments_of(layout, codes, square=square)
    assert clipped.values[-1] < 0.9 * moments_of(layout, codes).values[-1]  # clipping does bite
    parents = {name: law.parents for name, law in laws.items()}
    fitted = fit_moments(clipped, parents, dict.fromkeys(laws, "max"))
    assert worst(fitted.laws["child"], laws["child"]) < 0.03
    assert worst(fitted.laws["q"], laws["q"]) < 0.01


# -- arrows that were not stated


def test_a_missing_arrow_is_found_among_candidates_and_a_needless_one_is_not_added() -> None:
    laws: dict[str, Conditional] = {**ROOTS, "child": MaxConditional(("p", "q"), 0.02, STRENGTHS[:2])}
    codes, layout = simulated(laws, count=20_000)
    stated = {"p": (), "q": (), "r": ("p",), "child": ("q",)}
    pairs = (("p", "r"), ("q", "child"))
    offered = MomentLayout(sizes=layout.sizes, pairs=pairs, candidates=(("p", "child"), ("r", "child"), ("q", "r")))
    fitted = fit_moments(moments_of(offered, codes, noise=20.0), stated, dict.fromkeys(laws, "max"), most_added=2)
    assert fitted.parents == {**stated, "child": ("q", "p")}
    assert np.abs(fitted.laws["child"].probabilities(np.array([[0, 1], [1, 0]]))[:, 1] - [0.4, 0.7]).max() < 0.05
    none = fit_moments(moments_of(offered, codes, noise=20.0), stated, dict.fromkeys(laws, "max"), most_added=0)
    assert none.parents == stated


def test_known_laws_are_simulated_and_left_as_they_are() -> None:
    laws: dict[str, Conditional] = {**ROOTS, "child": NoisyOrConditional(("q", "r"), 0.02, STRENGTHS[:2])}
    codes, _ = simulated(laws)
    part = MomentLayout(sizes={"q": 2, "r": 2, "child": 2}, pairs=(("q", "child"), ("r", "child")))
    known = {name: laws[name] for name in ROOTS}
    parents = {name: law.parents for name, law in laws.items()}
    fitted = fit_moments(moments_of(part, codes[:, 1:]), parents, {"child": "noisy-or"}, known=known)
    assert all(fitted.laws[name] is known[name] for name in known)
    assert worst(fitted.laws["child"], laws["child"]) < 0.015


def test_the_same_release_gives_the_same_model() -> None:
    codes, layout = simulated(ROOTS, count=2000)
    parents = {name: law.parents for name, law in ROOTS.items()}
    one, other = (fit_moments(moments_of(layout, codes), parents, dict.fromkeys(ROOTS, "logit")) for _ in range(2))
    for name in ROOTS:
        assert (dense_table(one.laws[name]) == dense_table(other.laws[name])).all()


def test_more_parents_than_configurations_can_be_numbered_are_fitted() -> None:
    names = [f"p{i:02}" for i in range(30)]
    laws: dict[str, Conditional] = {name: TableConditional((), np.array([0.8, 0.2])) for name in names}
    strengths = tuple(np.array([0.0, 0.05]) for _ in names)
    laws["child"] = NoisyOrConditional(tuple(names), 0.05, strengths)
    codes, layout = simulated(laws, count=10_000)
    parents = {name: law.parents for name, law in laws.items()}
    fitted = fit_moments(moments_of(layout, codes, noise=5.0), parents, dict.fromkeys(laws, "noisy-or"))
    found = fitted.laws["child"]
    assert isinstance(found, NoisyOrConditional)
    assert np.mean([strength[1] for strength in found.strengths]) == pytest.approx(0.05, abs=0.015)


# -- forms and minimisation


@pytest.mark.parametrize("form", FORMS)
def test_slopes_are_those_of_the_probabilities(form: str) -> None:
    rng = np.random.default_rng(3)
    width = 3 if form == "logit" else 1
    design = np.column_stack([np.ones(6), rng.integers(0, 2, (6, 4))]).astype(np.float64)
    theta = rng.normal(-1, 1, (5, width))
    slopes = rng.normal(size=(6, width))
    formed = FORMS[form](theta, design)
    pulled, own = formed.pulled(slopes), formed.own_slopes(design)
    step = 1e-6
    for place in np.ndindex(theta.shape):
        nudged = theta.copy()
        nudged[place] += step
        change = (FORMS[form](nudged, design).probabilities - formed.probabilities) / step
        assert pulled[place] == pytest.approx((change * slopes).sum(), abs=1e-5)
        assert own[place] == pytest.approx((design.T @ change)[place], abs=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_a_law_means_what_its_form_means(form: str) -> None:
    rng = np.random.default_rng(5)
    width = 2 if form == "logit" else 1
    theta = rng.normal(size=(1 + 2 + 1, width))
    law = law_of(form, ("three", "two"), (3, 2), theta)
    codes = np.array([[i, j] for i in range(3) for j in range(2)])
    design = np.array([[1, i == 1, i == 2, j == 1] for i, j in codes], dtype=np.float64)
    assert law.probabilities(codes)[:, 1:] == pytest.approx(FORMS[form](theta, design).probabilities)


def test_minimising_reaches_the_bottom_of_smooth_and_kinked_functions() -> None:
    def valley(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        a, b = x
        return float((1 - a) ** 2 + 100 * (b - a**2) ** 2), np.array(
            [-2 * (1 - a) - 400 * a * (b - a**2), 200 * (b - a**2)]
        )

    assert minimise(valley, np.array([-1.2, 1.0])) == pytest.approx([1.0, 1.0], abs=1e-4)

    def kinked(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        return float(np.abs(x - 2).sum() + 0.1 * (x @ x)), np.sign(x - 2) + 0.2 * x

    assert minimise(kinked, np.array([-3.0, 7.0])) == pytest.approx([2.0, 2.0], abs=1e-3)


def test_minimising_stays_put_at_the_bottom_and_where_nothing_goes_down() -> None:
    assert minimise(lambda x: (0.0, np.zeros_like(x)), np.array([4.0])) == pytest.approx([4.0])
    assert minimise(lambda x: (float(x @ x), -2 * x), np.array([4.0])) == pytest.approx([4.0])  # a wrong slope
    assert minimise(lambda x: (0.0, x), np.zeros(0)).shape == (0,)
