"""The parts of the statistical engine, one by one."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath

import numpy as np
import polars as pl
import pytest
from scipy import stats

from escudo.auditing import _experiment, adapt, audit, pairs_of, query_pairs, renyi_claim
from escudo.auditing._bounds import (
    FixedEvent,
    Prospect,
    best_event,
    best_guesses,
    cautious_worth,
    choose_event,
    clopper_pearson,
    power_of,
    seen_worth,
)
from escudo.auditing._calibration import about_claims, along_cells, cell_by_cell
from escudo.auditing._cells import Use, columns_of, count, cut, grain, joint_cells
from escudo.auditing._outputs import Encoded, Encoder, Sample, TrialLog
from escudo.auditing._result import with_names
from escudo.auditing._scores import fit_additive, fit_boosted, fit_linear, fit_logistic, fit_stratified
from escudo.auditing._targets import Failure, run_batch, run_one
from escudo.auditing._views import choose_views
from escudo.auditing._wealth import Book, Frontier, Stage, View, epsilon_family, front_of, own_family
from escudo.errors import InputError
from escudo.mechanisms import laplace
from escudo.privacy import Guarantee, gdp_to_delta, zcdp_to_delta
from escudo.table import Schema


def encoded(values):
    array = np.asarray(values, dtype=np.float64)
    array = array[:, None] if array.ndim == 1 else array
    return Encoded(array, np.zeros(len(array), dtype=np.int32))


class TestClaims:
    def test_pure_and_approximate_claims_are_one_point(self):
        front = front_of(Guarantee(epsilon=0.7, delta=0.01))
        assert (front.epsilons.tolist(), front.deltas.tolist()) == ([0.7], [0.01])

    @pytest.mark.parametrize(
        ("claim", "delta_at"),
        [
            (Guarantee(mu=1.0), lambda e: gdp_to_delta(1.0, e)),
            (Guarantee(rho=0.1), lambda e: zcdp_to_delta(0.1, e)),
            (Guarantee(curve=((0.5, 0.1), (2.0, 0.001))), Guarantee(curve=((0.5, 0.1), (2.0, 0.001))).delta_at),
        ],
        ids=["GDP", "zCDP", "curve"],
    )
    def test_other_claims_are_points_of_their_curve(self, claim, delta_at):
        front = front_of(claim)
        assert front.epsilons.size >= 2
        assert np.allclose(front.deltas, [delta_at(float(e)) for e in front.epsilons])

    def test_families_go_from_strong_to_weak(self):
        for family in (epsilon_family(0.0), epsilon_family(0.01, 500), own_family(Guarantee(mu=1.0))):
            assert (np.diff(family.values) > 0).all()
            assert family.front(float(family.values[3])).epsilons.size == family.front(5.0).epsilons.size

    def test_only_claims_with_a_parameter_have_a_family(self):
        assert own_family(Guarantee(epsilon=1.0)) is None
        assert own_family(Guarantee(rho=1.0)).values[-1] > 100

    def test_a_renyi_claim_implies_what_conversion_says(self):
        claim = renyi_claim([2.0, 10.0], [0.1, 0.5])
        assert claim.delta_at(1.0) < 0.2
        assert claim.delta_at(3.0) < claim.delta_at(1.0)

    @pytest.mark.parametrize(
        ("orders", "divergences"),
        [([], []), ([2.0], []), ([1.0], [1.0]), ([2.0], [-1.0]), ([2.0], [1e9])],
        ids=["none", "too few", "order one", "negative", "nothing promised"],
    )
    def test_bad_renyi_claims_are_refused(self, orders, divergences):
        with pytest.raises(InputError):
            renyi_claim(orders, divergences)

    def test_a_claim_that_promises_nothing_is_refused(self):
        with pytest.raises(InputError, match="promises nothing"):
            front_of(Guarantee(rho=400_000.0))


class TestOutputs:
    def test_arrays_stay_arrays(self):
        made = Encoder().encode(np.arange(6).reshape(3, 2))
        assert made.values.tolist() == [[0, 1], [2, 3], [4, 5]]
        assert not made.codes.any()

    def test_structures_are_told_apart(self):
        encoder = Encoder()
        made = encoder.encode([None, 1, "a", [1, 2], [1, "b"], {"k": 2}, Failure(ValueError("secret")), b"x"])
        assert len(set(made.codes.tolist())) == 8
        assert "error: ValueError, 'secret'" in encoder.structures

    def test_numbers_beyond_floats_become_infinite(self):
        assert Encoder().encode([10**400, -(10**400), "a"]).values[:2, 0].tolist() == [math.inf, -math.inf]
        assert Encoder().encode([10**400, 1]).values[0, 0] == math.inf

    def test_an_unknown_object_is_its_text(self):
        encoder = Encoder()
        encoder.encode([PurePosixPath("a/b")])
        assert encoder.structures[-1] == "PurePosixPath: 'a/b'"


class TestNames:
    @pytest.mark.parametrize(
        ("output", "entry", "name"),
        [
            ({"b": 1, "a": {"x": 2, "y": [3, 4]}}, 3, "number 2 of a: y"),
            ({"it's": "a, b}", "n": None, "z": 5}, 1, "z"),
            ({1: np.zeros((2, 2)), 2: (True, 7)}, 4, "number 4 of 1"),
            (pl.DataFrame({"age": [3, 4], "smoke": ["no", "yes"]}), 1, "age: largest"),
            (pl.DataFrame({"age": [3, 4], "smoke": ["no", "yes"]}), 8, "smoke: yes"),
        ],
        ids=["nested", "texts", "arrays", "a table", "levels"],
    )
    def test_numbers_are_called_by_the_keys_that_lead_to_them(self, output, entry, name):
        encoder = Encoder()
        encoder.encode([output])
        assert with_names(f"entry {entry} < 5", encoder.structures) == f"{name} < 5"

    def test_numbers_without_keys_are_called_entries(self):
        encoder = Encoder()
        encoder.encode([[1, [2, 3]]])
        assert with_names("entry 3 minus entry 1 < 5", encoder.structures) == "entry 3 minus entry 1 < 5"

    def test_keys_that_differ_between_outputs_name_nothing(self):
        encoder = Encoder()
        encoder.encode([{"a": 1}, {"b": 1}])
        assert with_names("entry 1 < 5", encoder.structures) == "entry 1 < 5"


class TestColumns:
    def test_vectors_have_differences_and_sums(self):
        numbers = np.random.default_rng(0).normal(size=(50, 3))
        names = [c.name for c in columns_of(encoded(numbers), last_bits=False)]
        assert names == [
            "entry 1",
            "entry 2",
            "entry 3",
            "entry 1 minus entry 2",
            "entry 1 minus entry 3",
            "entry 2 minus entry 3",
            "sum",
            "largest",
            "smallest",
            "place of the largest",
            *(f"distance of entry {i + 1} from {middle:.6g}" for i, middle in enumerate(np.median(numbers, axis=0))),
        ]

    def test_last_bits_are_looked_at_over_the_noiseless_answer_too(self):
        sample = encoded(np.random.default_rng(0).normal(size=50))
        names = [c.name for c in columns_of(sample, [np.array([0.0]), np.array([3.0])])]
        assert names == [
            "output",
            "distance of the output from 0.0994562",
            "last bit of the output",
            "last bit over noiseless answer 2 of the output",
        ]

    def test_whole_numbers_have_no_last_bits(self):
        assert len(columns_of(encoded(np.arange(40) % 10))) == 1

    def test_the_grain_of_no_number_is_none(self):
        assert np.isnan(grain(np.array([0.0, np.inf, np.nan, 5e-324]))).all()

    def test_frequent_values_have_cells_of_their_own(self):
        numbers = np.concatenate([np.random.default_rng(0).normal(size=500), np.full(500, 0.25)])
        cells = cut(numbers, 10)
        assert cells(np.array([0.25]))[0] not in cells(np.array([0.2499, 0.2501])).tolist()

    def test_rare_ends_have_cells_of_their_own(self):
        numbers = np.sort(np.random.default_rng(0).normal(size=100_000))
        counts = np.bincount(cut(numbers, 64)(numbers))
        assert counts[counts > 0].min() < 100

    def test_two_cells_meet_at_the_median(self):
        numbers = np.random.default_rng(0).normal(size=10_001)
        assert cut(numbers, 2).edges == pytest.approx([np.median(numbers)])

    def test_few_values_have_one_cell_each(self):
        assert cut(np.array([3.0, 1.0, 3.0, 2.0]), 10).edges.tolist() == [2.0, 3.0]


class TestWholeOutputs:
    def test_single_numbers_are_in_order_and_others_are_not(self):
        rng = np.random.default_rng(4)
        labels = rng.random(1000) < 0.5
        numbers = rng.choice([7.0, -3.0, 2.5], size=1000)
        every = np.ones(1000, dtype=bool)
        single = joint_cells(Sample(encoded(numbers), labels), every, ("#",))
        assert single.ordered
        assert single(encoded([-3.0, 2.5, 7.0])).tolist() == [0, 1, 2]
        assert single(encoded([5.0])).tolist() == [3]
        assert single.words(np.array([False, True, False, False]), ("#",)) == "output is 2.5"
        both = encoded(np.stack([numbers, numbers], axis=1))
        assert not joint_cells(Sample(both, labels), every, ("#",)).ordered


class TestScores:
    def setup_method(self):
        rng = np.random.default_rng(5)
        self.labels = rng.random(6000) < 0.5
        self.outputs = encoded(rng.normal(size=(6000, 5)) + 0.5 * self.labels[:, None])

    def separation(self, score):
        return float(score[self.labels].mean() - score[~self.labels].mean()) / float(score.std())

    def test_additive_scores_add_up_what_columns_know(self):
        columns = columns_of(self.outputs, last_bits=False)[:5]
        score = fit_additive(columns, Sample(self.outputs, self.labels), cells=8)(self.outputs)
        assert self.separation(score) > 0.9
        # The log ratio of five shifts by 1/2 has this spread: estimates are not blown up by noise.
        assert 0.7 < np.std(score) / np.sqrt(5 * 0.25 + (5 * 0.25) ** 2 / 4) < 1.2

    def test_nothing_to_learn_gives_a_score_of_almost_nothing(self):
        columns = columns_of(self.outputs, last_bits=False)[:5]
        coin = np.random.default_rng(1).random(6000) < 0.5
        assert np.abs(fit_additive(columns, Sample(self.outputs, coin), cells=16)(self.outputs)).max() < 0.3

    def test_the_linear_score_points_the_right_way(self):
        assert self.separation(fit_linear(Sample(self.outputs, self.labels))(self.outputs)) > 0.9

    def test_scores_are_log_ratios_and_not_off_by_a_constant(self):
        moved = encoded(self.outputs.values[:, :3] + 7.0)
        columns = columns_of(moved, last_bits=False)[:3]
        for score in (
            fit_linear(Sample(moved, self.labels)),
            fit_logistic(columns, Sample(moved, self.labels), crossed=True),
            fit_additive(columns, Sample(moved, self.labels), cells=8),
        ):
            # The mean of the likelihood ratio under the first law is 1.
            assert math.log(np.exp(score(moved)[~self.labels]).mean()) == pytest.approx(0, abs=0.1)

    def test_equal_means_have_no_linear_score_or_a_useless_one(self):
        constant = encoded(np.ones((100, 2)))
        assert fit_linear(Sample(constant, np.arange(100) % 2 == 0)) is None

    def test_steps_of_two_columns_at_once_are_learnt(self):
        rng = np.random.default_rng(2)
        signs = rng.choice([-1.0, 1.0], size=(8000, 2))
        labels = (signs[:, 0] * signs[:, 1] > 0) ^ (rng.random(8000) < 0.1)
        outputs = encoded(signs)
        columns = columns_of(outputs, last_bits=False)[:2]
        score = fit_logistic(columns, Sample(outputs, labels), crossed=True)(outputs)
        assert np.mean((score > score.mean()) == labels) > 0.85

    def test_smooth_scores_stay_right_where_columns_repeat_each_other(self):
        twice = encoded(np.repeat(self.outputs.values[:, :1], 6, axis=1))
        columns = columns_of(twice, last_bits=False)[:6]
        score = fit_logistic(columns, Sample(twice, self.labels), crossed=False)(twice)
        assert 0.3 < np.std(score) < 0.8  # the log ratio of one shift by 1/2 has a spread of about 1/2

    def test_a_column_without_numbers_has_no_smooth_score(self):
        nothing = encoded(np.full((100, 2), np.nan))
        columns = columns_of(encoded(np.zeros((5, 2))), last_bits=False)[:2]
        assert fit_logistic(columns, Sample(nothing, np.arange(100) % 2 == 0), crossed=False) is None

    def test_tables_by_a_discrete_entry_find_that_its_meaning_turns(self):
        rng = np.random.default_rng(2)
        labels = rng.random(20_000) < 0.5
        kind = rng.integers(3, size=20_000)
        shift = np.array([-0.8, 0.0, 0.8])[kind] * labels
        outputs = encoded(np.stack([kind, rng.normal(size=20_000) + shift], axis=1))
        (score,) = fit_stratified(columns_of(outputs, last_bits=False)[:2], Sample(outputs, labels))
        truth = np.array([-0.8, 0.0, 0.8])[kind] * outputs.values[:, 1] - np.array([0.32, 0.0, 0.32])[kind]
        assert np.corrcoef(score(outputs), truth)[0, 1] > 0.95
        assert np.abs(score(outputs)[kind == 1]).max() < 0.3

    def test_without_a_discrete_entry_there_are_no_tables_by_one(self):
        assert fit_stratified(columns_of(self.outputs, last_bits=False)[:5], Sample(self.outputs, self.labels)) == []

    def test_trees_find_what_no_single_column_shows(self):
        rng = np.random.default_rng(2)
        signs = rng.choice([-1.0, 1.0], size=(8000, 2))
        labels = (signs[:, 0] * signs[:, 1] > 0) ^ (rng.random(8000) < 0.1)
        outputs = encoded(signs + 0.01 * rng.normal(size=(8000, 2)))
        score = fit_boosted(columns_of(outputs, last_bits=False)[:2], Sample(outputs, labels), rng=rng)(outputs)
        assert np.mean((score > 0) == labels) > 0.85

    def test_the_best_view_is_the_one_that_tells_most(self):
        rng = np.random.default_rng(3)
        labels = rng.random(4000) < 0.5
        values = rng.normal(size=(4000, 3))
        values[:, 1] += 2 * labels
        found = choose_views(
            Sample(encoded(values), labels),
            Prospect(0.0, 4000),
            references=(),
            structures=["#"],
            rng=rng,
            last_bits=False,
        )
        counts = found[0].counts
        ratios = np.log((counts[:, 1] + 0.5) / (counts[:, 0] + 0.5))
        assert ratios.max() - ratios.min() > 3

    def test_what_outputs_in_a_set_look_like_is_said_in_words(self):
        rng = np.random.default_rng(3)
        labels = rng.random(4000) < 0.5
        best, *_ = choose_views(
            Sample(encoded(rng.normal(size=4000) + labels), labels),
            Prospect(0.0, 4000),
            references=(),
            structures=["#"],
            rng=rng,
            last_bits=False,
        )
        event = best_event(best.use, best.counts, delta=0.0)
        assert "output" in best.use.partition.words(event.cells, ["#"])


class TestBounds:
    @pytest.mark.parametrize(("hits", "runs"), [(0, 20), (3, 20), (20, 20)], ids=["none", "some", "all"])
    def test_clopper_pearson_is_the_textbook_one(self, hits, runs):
        low, high = clopper_pearson(hits, runs, 0.05)
        reference = stats.binomtest(hits, runs).proportion_ci(0.9, method="exact")
        assert low == pytest.approx(reference.low, abs=1e-12)
        assert high == pytest.approx(reference.high, abs=1e-12)

    def test_power_grows_with_runs_and_violation(self):
        small = power_of(claim=1.0, delta=0.0, mass=0.3, runs=2000, alpha=0.05)
        large = power_of(claim=1.0, delta=0.0, mass=0.3, runs=200_000, alpha=0.05)
        assert 1 < large.epsilon < small.epsilon
        assert small.probability >= 0.9

    def test_no_power_is_claimed_where_there_is_none(self):
        assert power_of(claim=1.0, delta=0.0, mass=0.0, runs=1000, alpha=0.05) is None
        assert power_of(claim=5.0, delta=0.0, mass=1e-9, runs=1000, alpha=0.05) is None


class TestGuesses:
    counts = np.array([[6000.0, 2000.0], [5000.0, 5000.0], [2000.0, 6000.0]])

    def test_both_ends_are_guessed_where_both_tell(self):
        worth, guess = best_guesses(cell_by_cell(self.counts), np.arange(3), Prospect(0.0, 26_000.0))
        assert guess.tolist() == [-1, 0, 1]
        assert math.log(3) - 0.1 < worth < math.log(3)

    def test_with_a_slack_one_end_is_guessed(self):
        worth, guess = best_guesses(cell_by_cell(self.counts), np.arange(3), Prospect(0.01, 26_000.0))
        assert len(set(guess.tolist()) - {0}) == 1
        assert worth < math.log(3)

    def test_the_order_decides_which_cells_are_ends(self):
        swapped = cell_by_cell(self.counts[[1, 0, 2]])
        assert best_guesses(swapped, np.array([1, 0, 2]), Prospect(0.0, 26_000.0))[1].tolist() == [0, -1, 1]

    def test_rare_sets_are_guessed_only_where_there_are_runs_to_count_them(self):
        belief = cell_by_cell(np.array([[50_000.0, 45_000.0], [200.0, 260.0]]))
        few, many = (best_guesses(belief, np.arange(2), Prospect(0.0, ahead))[1] for ahead in (1e4, 1e7))
        assert few[0] == -1
        assert many.tolist() == [0, 1]

    def test_what_is_not_sure_is_worth_less(self):
        belief = cell_by_cell(self.counts)
        unsure = replace(belief, spread=100 * belief.spread)
        worths = [best_guesses(b, np.arange(3), Prospect(0.0, 1e5))[0] for b in (belief, unsure)]
        assert worths[0] > worths[1]


class TestFixedEvent:
    def event(self, guess, counts):
        found = FixedEvent(Use(None, np.arange(len(guess))), np.array(guess, dtype=np.int8))
        found.counts = np.array(counts)
        return found

    def test_without_guesses_there_is_no_bound(self):
        assert choose_event([], [], Prospect(0.0, 100.0)) is None
        assert self.event([0, 1], [[9, 9], [0, 0]]).bound(delta=0.0, alpha=0.05) == 0.0
        assert self.event([0, 1], [[9, 9], [0, 0]]).bound(delta=0.1, alpha=0.05) == 0.0

    def test_the_share_of_right_guesses_is_bounded_in_both_directions_at_once(self):
        found = self.event([-1, 0, 1], [[60, 20], [50, 50], [20, 60]]).bound(delta=0.0, alpha=0.1)
        low, _ = clopper_pearson(120, 160, 0.1)
        assert found == pytest.approx(math.log(low / (1 - low)))

    def test_with_a_slack_two_probabilities_are_bounded(self):
        found = self.event([-1, 0], [[60, 20], [40, 80]]).bound(delta=0.05, alpha=0.1)
        low, high = clopper_pearson(60, 100, 0.05)[0], clopper_pearson(20, 100, 0.05)[1]
        assert found == pytest.approx(math.log((low - 0.05) / high))

    def test_it_is_too_large_no_more_often_than_stated(self):
        rng = np.random.default_rng(8)
        kept = math.e / (1 + math.e)
        right = rng.binomial(200, kept, size=3000)
        wrong = sum(self.event([-1], [[int(r), 200 - int(r)]]).bound(delta=0.0, alpha=0.1) > 1 for r in right)
        assert wrong <= stats.binom.ppf(1 - 1e-4, 3000, 0.1)


class TestWhenTheEventIsChosen:
    @pytest.mark.parametrize(
        ("rows", "after"), [(100_000, 0.35), (2_500, 0.25), (1_000, 0.2)], ids=["later", "once full", "at once"]
    )
    def test_a_learnt_score_waits_only_while_there_is_more_to_learn_from(self, monkeypatch, rows, after):
        class Leaning:
            """Eight numbers that all lean a little: no single one tells much."""

            def __call__(self, dataset, rng):
                return self.batch(dataset, 1, rng)[0]

            def batch(self, dataset, count, rng):
                return dataset + rng.laplace(scale=4.0, size=(count, 8))

        class Enough(Exception):
            """What comes after the choice is looked at once."""

        made, whole = [], rows == 1_000

        def noted(uses, beliefs, prospect):
            made.append((uses[0].partition.learnt, prospect.ahead))
            if not whole:
                raise Enough
            return choose_event(uses, beliefs, prospect)

        monkeypatch.setattr(_experiment, "choose_event", noted)
        monkeypatch.setattr(_experiment, "_KEPT_ROWS", rows)
        how = {"max_runs": 10_000, "stop_early": False, "seed": 3, "progress": False, "last_bits": False}
        with nullcontext() if whole else pytest.raises(Enough):
            audit(Leaning(), claim=Guarantee(epsilon=2.0), pairs=[(0.0, 1.0)], **how)
        [(learnt, ahead)] = made
        assert learnt
        assert ahead == pytest.approx((1 - after) * 10_000, rel=0.01)


class TestCaution:
    def test_what_is_sure_is_worth_more_than_what_is_as_large_and_unsure(self):
        sure, unsure = (cell_by_cell(np.array([[5e5, 5e5], [n, 1.2 * n]])) for n in (50_000.0, 500.0))
        guess = np.array([0, 1], dtype=np.int8)
        few, many = (cautious_worth(b, guess, Prospect(0.0, 1e9), errors=2.0) for b in (unsure, sure))
        assert few < many < math.log(1.2)

    def test_it_is_below_the_promise_of_the_same_guess(self):
        belief = cell_by_cell(np.array([[52_000.0, 48_000.0], [200.0, 280.0], [900.0, 1_000.0]]))
        for delta in (0.0, 1e-4):
            worth, guess = best_guesses(belief, np.arange(3), Prospect(delta, 1e6))
            assert cautious_worth(belief, guess, Prospect(delta, 1e6), errors=2.0) < worth

    def test_a_sure_belief_leaves_the_promise_as_it_is(self):
        belief = cell_by_cell(np.array([[52_000.0, 48_000.0], [200.0, 280.0], [900.0, 1_000.0]]))
        sure = replace(belief, spread=0 * belief.spread)
        for delta in (0.0, 1e-4):
            worth, guess = best_guesses(sure, np.arange(3), Prospect(delta, 1e6))
            assert cautious_worth(sure, guess, Prospect(delta, 1e6), errors=2.0) == pytest.approx(worth)

    def test_what_other_runs_show_is_lowered_by_their_standard_error(self):
        how = {"prospect": Prospect(0.0, 1e12), "runs": 1e5}
        plain, lowered = (seen_worth(1200.0, 1000.0, errors=errors, **how) for errors in (0.0, 1.0))
        assert plain == pytest.approx(math.log(1.2), abs=1e-3)
        assert plain - lowered == pytest.approx(math.sqrt(1 / 1200 + 1 / 1000), rel=0.01)
        assert seen_worth(0.0, 0.0, errors=1.0, **how) == -math.inf

    def test_a_lucky_difference_does_not_win_a_choice_that_is_checked(self):
        def runs(rng, size):
            labels = rng.random(size) < 0.5
            return encoded(rng.laplace(size=(size, 10)) + 0.05 * labels[:, None]), labels

        how = {"prospect": Prospect(0.0, 1e6), "references": (), "structures": ("#",), "last_bits": False}
        seen = runs(np.random.default_rng(2), 40_000)  # with these, two entries differ by luck
        chosen = choose_views(Sample(*seen), rng=np.random.default_rng(1), checked=True, **how)[0]
        _, guess = best_guesses(chosen.belief, chosen.use.order, Prospect(0.0, 1e6))
        counts = count(chosen.use.partition, Sample(*runs(np.random.default_rng(1002), 400_000)))
        right = counts[guess > 0, 1].sum() + counts[guess < 0, 0].sum()
        wrong = counts[guess > 0, 0].sum() + counts[guess < 0, 1].sum()
        assert math.log(right / wrong) > 0.3  # all ten entries together have 0.5


class TestCalibration:
    def test_a_score_that_claims_too_much_is_corrected(self):
        levels = np.linspace(-2, 2, 9)
        runs = np.full(9, 20_000.0)
        second = runs / (1 + np.exp(-levels / 2))
        found = about_claims(levels, np.stack([runs - second, second], axis=1))
        assert np.allclose(found.level, levels / 2, atol=0.06)
        assert np.allclose(found.counts.sum(axis=1), runs)

    def test_a_lucky_cell_is_drawn_towards_its_claim(self):
        levels = np.array([-0.1, 0.1, 0.12])
        found = about_claims(levels, np.array([[10_500.0, 9_500], [9_500, 10_500], [0, 6]]))
        assert 0 < found.level[2] < 0.3

    def test_a_score_that_is_right_nearer_by_is_believed_far_out(self):
        levels = np.linspace(-1, 1, 21)
        runs = np.where(np.abs(levels) > 0.85, 20.0, 1e5)
        second = np.round(runs / (1 + np.exp(-levels)))
        found = about_claims(levels, np.stack([runs - second, second], axis=1))
        assert np.allclose(found.level, levels, atol=0.1)

    def test_a_score_of_noise_about_two_levels_is_flattened(self):
        levels = np.linspace(-0.2, 0.2, 20)
        runs = np.full(20, 50_000.0)
        second = runs / (1 + np.exp(-0.1 * np.sign(levels)))
        found = about_claims(levels, np.stack([runs - second, second], axis=1))
        assert np.allclose(found.level, 0.1 * np.sign(levels), atol=0.02)

    def test_where_nothing_is_claimed_each_cell_counts_by_itself(self):
        counts = np.array([[3.0, 5.0], [4.0, 4.0]])
        assert about_claims(np.zeros(2), counts).level.tolist() == cell_by_cell(counts).level.tolist()

    def test_single_cells_are_believed_as_far_as_their_runs_go(self):
        belief = cell_by_cell(np.array([[0.0, 3.0], [0.0, 40.0], [50_000.0, 50_000.0], [5_000.0, 6_000.0]]))
        found = belief.level
        assert abs(found[0]) < 1.5 * math.sqrt(belief.spread[0, 0])
        assert found[1] > 2.5
        assert abs(found[2]) < 0.01
        assert found[3] == pytest.approx(math.log(1.2), abs=0.04)

    def test_opposite_ends_lend_each_other_strength(self):
        rng = np.random.default_rng(3)
        labels = rng.random(400_000) < 0.5
        numbers = rng.laplace(scale=10, size=labels.size) + labels
        edges = np.linspace(-30.5, 30.5, 62)
        cells = np.searchsorted(edges, numbers)
        belief = along_cells(np.bincount(cells * 2 + labels, minlength=126).reshape(-1, 2).astype(float))
        error = math.sqrt(belief.spread[0, 0])
        assert belief.level[0] == pytest.approx(-belief.level[-1], abs=1e-9)
        assert belief.level[-1] == pytest.approx(0.1, abs=3 * error)
        # One end alone, with half of the runs, would be known to within 2 / sqrt(200,000).
        assert error < 1.2 * 2 / math.sqrt(400_000)

    def test_ends_that_are_not_opposite_are_told_apart(self):
        runs = np.full(20, 50_000.0)
        levels = np.where(np.arange(20) < 15, -0.05, 0.15)
        second = np.round(runs / (1 + np.exp(-levels)))
        belief = along_cells(np.stack([runs - second, second], axis=1))
        assert np.allclose(belief.level, levels, atol=0.01)

    def test_neighbouring_cells_lend_each_other_strength(self):
        rng = np.random.default_rng(4)
        truth = 1 / (1 + np.exp(-np.linspace(-1, 1, 40)))
        second = rng.binomial(120, truth).astype(float)
        found = along_cells(np.stack([120 - second, second], axis=1))
        share = 1 / (1 + np.exp(-found.level))
        assert np.abs(share - truth).mean() < 0.7 * np.abs(second / 120 - truth).mean()

    def test_a_tail_of_constant_ratio_is_known_from_what_is_seen_nearer_by(self):
        rng = np.random.default_rng(6)
        runs = np.concatenate([np.geomspace(30, 20_000, 20), np.full(20, 20_000.0)])
        second = rng.binomial(runs.astype(int), 1 / (1 + np.exp(np.where(np.arange(40) < 25, 0.2, -0.2))))
        found = along_cells(np.stack([runs - second, second], axis=1))
        assert np.abs(found.level[:24] + 0.2).max() < 0.05
        assert np.sqrt(found.spread[0, 0]) < 0.1  # thirty runs by themselves would leave 0.37

    def test_a_cell_that_stands_out_among_neighbours_is_not_smoothed_away(self):
        counts = np.full((30, 2), 1000.0)
        counts[::3] = [400.0, 1600.0]
        level = along_cells(counts).level
        assert level[::3].min() > 1.2
        assert np.abs(level[1::3]).max() < 0.1


class TestFrontier:
    def test_the_bound_is_the_last_value_up_to_which_all_are_rejected(self):
        book = Book(1)
        before = np.array([[900.0, 100.0], [100.0, 900.0]])
        view = View(before, np.arange(2), np.zeros((2, 2), dtype=np.int64))
        book.open(Stage(0, (view,), True, 1e4))
        frontier = Frontier(book, epsilon_family(0.0, 2000), math.log(20))
        assert frontier.look() == 0.0
        view.counts[...] = before
        assert 1.8 < frontier.look() < math.log(9)
        view.counts[...] = 0
        assert frontier.bound > 1.8  # what was rejected stays rejected


FACTS = {"claim": {"epsilon": 1.0}, "pairs": ["pair 1"], "seed": 3}


class TestTrialLog:
    def logged(self, path):
        log = TrialLog(path, FACTS)
        log.assign(0, np.array([True, False]))
        log.observe(encoded([1.0, 2.0]), None, ["#"])
        log.close()

    def test_what_was_written_is_read_back(self, tmp_path):
        self.logged(tmp_path / "log")
        again = TrialLog(tmp_path / "log", FACTS | {"seed": 9})
        again.close()
        (block,) = again.stored(Encoder())
        assert (block.labels.tolist(), block.outputs.values.ravel().tolist()) == ([True, False], [1.0, 2.0])

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ('"seed": 3', '"sead": 3'),
            ('"values": "', '"values": "00'),
            ('"width": 1', '"wide": 1'),
            ('"pair"', '"pear"'),
        ],
        ids=["no seed", "values that are none", "no width", "no pair"],
    )
    def test_a_damaged_block_is_named_and_not_a_crash(self, tmp_path, old, new):
        self.logged(tmp_path / "log")
        text = (tmp_path / "log").read_text(encoding="utf-8")
        assert old in text
        (tmp_path / "log").write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(InputError, match="damaged"):
            TrialLog(tmp_path / "log", FACTS)


class TestTargets:
    def test_a_callable_of_the_dataset_alone_is_taken(self):
        assert adapt(lambda dataset: dataset + 1)(1, np.random.default_rng(0)) == 2

    def test_a_callable_with_a_seed_gets_the_generator(self):
        assert adapt(lambda dataset, *, seed: seed.integers(1) + dataset)(4, np.random.default_rng(0)) == 4

    def test_a_mechanism_of_escudo_is_given_the_audits_randomness(self):
        noisy = adapt(partial(laplace, sensitivity=1, epsilon=0.01))
        drawn = {noisy(0, np.random.default_rng(3)) for _ in range(5)}
        assert drawn == {laplace(0, sensitivity=1, epsilon=0.01, seed=np.random.default_rng(3)).value}

    def test_builtins_are_taken(self):
        assert adapt(len)([1, 2], np.random.default_rng(0)) == 2

    def test_an_opendp_measurement_is_taken(self):
        import opendp.prelude as dp

        dp.enable_features("contrib")
        space = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")
        measurement = dp.m.make_laplace(*space, scale=1.0)
        assert isinstance(adapt(measurement)(5, np.random.default_rng(0)), int)

    def test_batches_come_back_in_the_order_of_the_coins(self):
        class Echo:
            def __call__(self, dataset, rng):
                return dataset

            def batch(self, dataset, count, rng):
                return np.full(count, dataset)

        labels = np.array([True, False, False, True])
        assert run_batch(Echo(), (0, 1), labels, np.random.default_rng(0)).tolist() == [1, 0, 0, 1]

    def test_batches_of_different_shapes_are_merged_as_lists(self):
        class Ragged:
            def __call__(self, dataset, rng):
                return [0] * dataset

            def batch(self, dataset, count, rng):
                return np.zeros((count, 1 + dataset))

        labels = np.array([True, False])
        assert [len(o) for o in run_batch(Ragged(), (0, 1), labels, np.random.default_rng(0))] == [2, 1]

    def test_a_batch_of_the_wrong_size_is_refused(self):
        class Short:
            def __call__(self, dataset, rng):
                return 0

            def batch(self, dataset, count, rng):
                return [0]

        with pytest.raises(InputError, match="count outputs"):
            run_batch(Short(), (0, 1), np.array([True, True]), np.random.default_rng(0))

    def test_memory_errors_are_not_outputs(self):
        def greedy(dataset, rng):
            raise MemoryError

        with pytest.raises(MemoryError):
            run_one(greedy, 0, np.random.default_rng(0))

    def test_a_generator_by_keyword_only_is_handed_over_by_keyword(self):
        def noisy(rows, *, rng):
            return len(rows) + rng.integers(10)

        assert adapt(noisy)([1, 2], np.random.default_rng(0)) == noisy([1, 2], rng=np.random.default_rng(0))


class TestPairs:
    def test_query_patterns_differ_by_at_most_the_step(self):
        for first, second, label in query_pairs(6, by=0.5):
            assert 0 < np.abs(first - second).max() <= 0.5, label

    def test_one_query_has_no_patterns_of_several(self):
        assert len(query_pairs(1)) == 4

    @pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
    def test_tables_from_a_schema_are_neighbours(self, relation):
        schema = Schema.from_dict(
            {
                "smoke": ["no", "yes"],
                "age": {"type": "numeric", "lower": 0, "upper": 110, "integer": True},
                "dose": {"type": "numeric", "lower": -1, "upper": 1},
            }
        )
        for first, second, label in pairs_of(schema, relation=relation):
            assert first.columns == second.columns == list(schema.names)
            if relation == "replace_one":
                assert len(first) == len(second)
                changed = sum(a != b and str(a) != str(b) for a, b in zip(first.rows(), second.rows(), strict=True))
                assert changed == 1, label
            else:
                assert len(second) == len(first) + 1, label

    def test_empty_tables_bounds_and_missing_values_are_among_them(self):
        schema = Schema.from_dict({"age": {"type": "numeric", "lower": 0, "upper": 110}})
        pairs = pairs_of(schema, relation="add_remove")
        assert len(pairs[0][0]) == 0
        values = [v for _, second, _ in pairs for v in second["age"].to_list()]
        assert {0.0, 110.0} <= set(values)
        assert max(v for v in values if v == v) > 110
        assert any(v != v for v in values)

    def test_uses_keep_the_order_they_were_given(self):
        partition = choose_views(
            Sample(encoded(np.arange(400) % 7), np.arange(400) % 2 == 0),
            Prospect(0.0, 400),
            references=(),
            structures=["#"],
            rng=np.random.default_rng(0),
        )[0].use.partition
        assert Use(partition, np.arange(partition.cells)).order.size == partition.cells
