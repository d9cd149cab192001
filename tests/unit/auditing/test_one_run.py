"""One-run audits: valid at the truth, also for canaries that conspire, and close to the published figures."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from escudo.auditing._one_run import _approximate, _gaussian, _least_mass, _right, _steinke, one_run
from escudo.errors import InputError
from escudo.privacy import Guarantee, gdp_to_delta, gdp_to_epsilon

REPEATS = 400
ALPHA = 0.05
MOST_FALSE = int(binom.ppf(0.999, REPEATS, ALPHA))  # a right method exceeds this once in a thousand
DELTA = 1e-5
TRUE = gdp_to_epsilon(1.0, DELTA)


def gaussian_canaries(rng: np.random.Generator, canaries: int, mu: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    coins = rng.random(canaries) < 0.5
    return mu * coins + rng.normal(size=canaries), coins


class TestCoverage:
    def test_gaussian_canaries_at_the_truth_are_rarely_accused(self) -> None:
        rng = np.random.default_rng(1)
        found = [one_run(*gaussian_canaries(rng, 100), delta=DELTA, claim=Guarantee(mu=1.0)) for _ in range(REPEATS)]
        assert sum(bool(one.violated) for one in found) <= MOST_FALSE
        assert sum(one.mu_lower > 1 for one in found) <= MOST_FALSE
        assert sum(one.epsilon_lower > TRUE for one in found) <= MOST_FALSE
        assert sum(one.epsilon_lower_steinke > TRUE for one in found) <= MOST_FALSE
        assert sum(one.mu_lower_independent > 1 for one in found) <= MOST_FALSE

    def test_randomised_response_at_the_truth_is_rarely_accused(self) -> None:
        rng, epsilon = np.random.default_rng(2), 1.0
        keep = 1 / (1 + np.exp(-epsilon))
        accused = 0
        for _ in range(REPEATS):
            coins = rng.random(100) < 0.5
            scores = np.where(rng.random(100) < keep, coins, ~coins) + rng.random(100) / 2
            accused += bool(one_run(scores, coins, delta=0.0, claim=Guarantee(epsilon=epsilon), guesses=100).violated)
        assert 0 < accused <= MOST_FALSE  # randomised response is the worst case, so the bound is not slack

    def test_random_scores_are_accused_of_nothing_too_often(self) -> None:
        rng = np.random.default_rng(3)
        positive = 0
        for _ in range(REPEATS):
            coins = rng.random(200) < 0.5
            positive += one_run(rng.random(200), coins, delta=DELTA).epsilon_lower > 0
        assert positive <= MOST_FALSE

    def test_canaries_that_conspire_fool_the_independent_answer_only(self) -> None:
        """1-GDP for each canary, but in a tenth of the outcomes 90 % of the coins come out together."""
        share, known = 0.1, 0.9
        assert share * known <= ndtr(ndtri(share * (1 - known)) + 1)  # the corner of a 1-GDP curve
        rng = np.random.default_rng(4)
        careful = careless = 0
        for _ in range(REPEATS):
            coins = rng.random(300) < 0.5
            seen = np.where(rng.random(300) < known, coins, ~coins)
            scores = seen + rng.random(300) if rng.random() < share else rng.random(300)
            found = one_run(scores, coins, delta=DELTA, guesses=300)
            careful += found.mu_lower > 1
            careless += found.mu_lower_independent > 1
        assert careful <= MOST_FALSE
        assert careless > MOST_FALSE


class TestPower:
    def test_a_thousand_gaussian_canaries_give_the_published_figures(self) -> None:
        rng = np.random.default_rng(5)
        found = [one_run(*gaussian_canaries(rng, 1000), delta=DELTA) for _ in range(20)]
        assert 1.2 < np.mean([one.epsilon_lower_steinke for one in found]) < 2.0
        assert np.mean([one.epsilon_lower_gaussian for one in found]) > 2.1
        assert 3.16 < np.mean([one.epsilon_lower_independent for one in found]) < TRUE

    def test_a_training_without_noise_is_caught(self) -> None:
        coins = np.random.default_rng(6).random(100) < 0.5
        found = one_run(coins.astype(float), coins, delta=DELTA, claim=Guarantee(epsilon=2.0, delta=DELTA), guesses=50)
        assert found.violated
        assert found.right == (50,)
        assert "VIOLATED" in found.verdict

    def test_a_broken_claim_is_rejected_in_every_notion(self) -> None:
        scores, coins = gaussian_canaries(np.random.default_rng(7), 2000, mu=3.0)
        front = tuple((e, gdp_to_delta(0.5, e)) for e in (0.0, 0.5, 1.0, 2.0))
        for claim in (
            Guarantee(mu=0.5),
            Guarantee(rho=0.125),
            Guarantee(epsilon=1.0, delta=DELTA),
            Guarantee(curve=front),
        ):
            assert one_run(scores, coins, delta=DELTA, claim=claim).violated

    def test_more_guesses_stated_cost_their_share(self) -> None:
        scores, coins = gaussian_canaries(np.random.default_rng(8), 500)
        one = one_run(scores, coins, delta=DELTA, guesses=100)
        many = one_run(scores, coins, delta=DELTA, guesses=(100, 100, 100, 100))
        assert many.epsilon_lower < one.epsilon_lower


class TestBounds:
    @pytest.mark.parametrize("right", [60, 70, 80])
    def test_pure_claims_agree_with_the_binomial_bound(self, right: int) -> None:
        """For δ = 0 both bounds say how likely so many right guesses are; neither may be far off."""
        epsilon = 0.5
        exact = _steinke(100, 100, right, epsilon, 0.0)
        low, high = 1e-12, 1.0
        for _ in range(60):
            middle = (low * high) ** 0.5
            low, high = (
                (low, middle)
                if _least_mass(middle, right, 100, 100, _approximate(epsilon, 0.0)) > 1
                else (middle, high)
            )
        assert exact <= high <= 6 * exact

    def test_more_right_guesses_need_less_probability(self) -> None:
        masses = [_least_mass(1e-3, right, 100, 200, _gaussian(0.5)) for right in (50, 60, 70)]
        assert masses == sorted(masses)

    def test_delta_weakens_the_bound(self) -> None:
        values = [_steinke(1000, 50, 40, 1.0, delta) for delta in (0.0, 1e-6, 1e-4)]
        assert values == sorted(values)
        assert values[0] == pytest.approx(binom.sf(39, 50, 1 / (1 + np.exp(-1.0))))

    def test_guesses_take_the_top_and_the_bottom(self) -> None:
        scores = np.array([0.9, 0.1, 0.8, 0.2, 0.5])
        included = np.array([True, False, False, True, True])
        assert _right(scores, included, 2) == 2
        assert _right(scores, included, 4) == 2
        assert _right(scores, included, 1) == 1


class TestArguments:
    @pytest.mark.parametrize(
        ("scores", "included", "message"),
        [
            ([1.0, 2.0], [True], "same length"),
            ([1.0], [True], "same length"),
            ([1.0, np.nan], [True, False], "scores must be numbers"),
            ([1.0, 2.0], [0, 2], "true or false"),
        ],
        ids=["lengths", "one", "nan", "coins"],
    )
    def test_bad_canaries_are_refused(self, scores: list[float], included: list[object], message: str) -> None:
        with pytest.raises(InputError, match=message):
            one_run(scores, included, delta=DELTA)

    @pytest.mark.parametrize("guesses", [0, 11, (), (5, 20)], ids=["none", "too-many", "empty", "one-too-many"])
    def test_bad_numbers_of_guesses_are_refused(self, guesses: object) -> None:
        with pytest.raises(InputError, match="guesses"):
            one_run(np.arange(10.0), np.arange(10) % 2, delta=DELTA, guesses=guesses)  # type: ignore[arg-type]

    def test_the_record_is_plain(self) -> None:
        import json

        found = one_run(np.arange(10.0), np.arange(10) % 2, delta=DELTA)
        assert json.loads(json.dumps(found.to_json()))["violated"] is None
        assert "canaries" in found.verdict
