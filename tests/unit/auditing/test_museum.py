"""The museum: the truth about each piece is checked, every fault is caught, and no twin is accused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import settings
from scipy.stats import laplace, norm

from escudo.auditing import audit, museum
from escudo.auditing.museum import Exhibit, exhibit, exhibits, visit
from escudo.auditing.museum._training import poisson_epsilon, poisson_front, unequal_gaussians_epsilon
from escudo.errors import InputError
from escudo.privacy import gdp_to_delta, gdp_to_epsilon

ROOMS = exhibits()
NAMES = [room.name for room in ROOMS]


@pytest.mark.parametrize("room", ROOMS, ids=NAMES)
class TestEveryExhibit:
    def test_it_says_what_is_wrong_and_where_it_comes_from(self, room: Exhibit) -> None:
        assert room.bug.endswith(".")
        assert room.source
        assert room.twin.source
        assert not room.twin.bug
        assert type(room.mechanism) is not type(room.twin)

    def test_the_broken_piece_claims_too_little_and_the_twin_enough(self, room: Exhibit) -> None:
        broken, twin = room.mechanism, room.twin
        assert room.true_epsilon > room.claim.epsilon_at(broken.delta)
        assert twin.true_epsilon <= twin.claim.epsilon_at(twin.delta) * (1 + 1e-6) + 1e-3

    def test_single_runs_and_batches_have_one_form(self, room: Exhibit) -> None:
        for piece in (room.mechanism, room.twin):
            for dataset in room.pairs[0]:
                try:
                    single = piece(dataset, np.random.default_rng(1))
                except InputError:
                    with pytest.raises(InputError):
                        piece.batch(dataset, 3, np.random.default_rng(1))
                    continue
                many = piece.batch(dataset, 3, np.random.default_rng(1))
                assert len(many) == 3
                assert type(single) is type(many[0])
                assert np.shape(single) == np.shape(many[0])

    def test_a_generator_repeats_its_draws(self, room: Exhibit) -> None:
        one, two = (room.mechanism.batch(room.pairs[0][1], 5, np.random.default_rng(3)) for _ in range(2))
        assert repr(one) == repr(two)


class TestTruths:
    """What the docstrings prove, computed another way."""

    @staticmethod
    def pattern(
        answers: tuple[float, ...], above: tuple[int, ...], threshold_scale: float, query_scale: float
    ) -> float:
        """Return the probability of a pattern of answers, by integrating over the threshold's noise."""

        level = np.linspace(-300.0, 300.0, 240_001)
        density = np.exp(-np.abs(level) / threshold_scale) / (2 * threshold_scale)
        for answer, up in zip(answers, above, strict=True):
            tail = np.exp(-np.abs(level - answer) / query_scale) / 2
            density *= np.where((level > answer) == bool(up), tail, 1 - tail)
        return float(density.sum() * (level[1] - level[0]))

    def test_svt_4_approaches_its_epsilon_far_from_the_threshold_and_never_exceeds_it(self) -> None:
        piece = museum.SparseVector4(epsilon=1.0, cutoff=1)
        found = []
        for far in (0.0, 5.0, 20.0):
            first, second = (far,) * 4 + (1 - far,), (far + 1,) * 4 + (-far,)
            shape = (0, 0, 0, 0, 1)
            ratio = self.pattern(first, shape, 4.0, 4 / 3) / self.pattern(second, shape, 4.0, 4 / 3)
            found.append(math.log(ratio))
        assert found == sorted(found)
        assert found[-1] <= 1.75 + 1e-6 == piece.true_epsilon + 1e-6
        assert found[-1] > 0.99 * piece.true_epsilon

    def test_svt_6_approaches_half_an_epsilon_for_each_query(self) -> None:
        piece = museum.SparseVector6(epsilon=1.0)
        first, second = (20.0, 20.0, -20.0, -20.0), (21.0, 21.0, -21.0, -21.0)
        ratio = self.pattern(first, (0, 0, 1, 1), 2.0, 2.0) / self.pattern(second, (0, 0, 1, 1), 2.0, 2.0)
        assert piece.true_epsilon_of(4) == 2.0
        assert 0.97 * 2.0 < math.log(ratio) <= 2.0 + 1e-6

    def test_svt_1_stays_within_its_epsilon_on_every_pattern(self) -> None:
        answers, neighbour = (0.5, -1.0, 2.0), (1.5, 0.0, 1.0)
        for pattern in [(0, 0, 0), (1,), (0, 1), (0, 0, 1)]:
            probabilities = [self.pattern(side[: len(pattern)], pattern, 2.0, 4.0) for side in (answers, neighbour)]
            assert abs(math.log(probabilities[0] / probabilities[1])) <= 1.0

    @pytest.mark.parametrize(
        ("piece", "threshold_scale", "query_scale", "cutoff"),
        [
            (museum.SparseVector1(), 2.0, 4.0, 1),
            (museum.SparseVector4(), 4.0, 4 / 3, 1),
            (museum.SparseVector6(), 2.0, 2.0, 3),
        ],
        ids=["svt-1", "svt-4", "svt-6"],
    )
    def test_sparse_vectors_follow_their_law(
        self, piece: museum.Piece, threshold_scale: float, query_scale: float, cutoff: int
    ) -> None:
        answers, runs = (1.0, -1.0, 0.5), 40_000
        seen = piece.batch(answers, runs, np.random.default_rng(1))
        for pattern in product((0, 1), repeat=3):
            reached = [i for i in range(3) if sum(pattern[: i + 1]) == cutoff]
            asked = pattern[: reached[0] + 1] if reached else pattern
            if any(pattern[len(asked) :]):
                continue
            expected = self.pattern(answers[: len(asked)], asked, threshold_scale, query_scale)
            if cutoff == 3:  # never stops: the output is the pattern itself
                share = float((seen == pattern).all(axis=1).mean())
            else:
                share = float((seen[:, 0] == reached[0]).mean() if reached else np.isnan(seen[:, 0]).mean())
            assert abs(share - expected) < 5 * math.sqrt(expected / runs)

    @pytest.mark.parametrize("piece", [museum.SparseVector3(cutoff=2), museum.NumericSparseVector(cutoff=2)])
    def test_released_values_stand_after_their_places(self, piece: museum.Piece) -> None:
        answers = (-1000.0, 1000.0, -1000.0, 2000.0, 3000.0)
        rows = piece.batch(answers, 2000, np.random.default_rng(1))
        assert (rows[:, :2] == (1, 3)).all()
        assert rows[:, 2:].mean(axis=0) == pytest.approx((1000, 2000), abs=1)
        none = piece.batch((-1000.0,) * 3, 10, np.random.default_rng(1))
        assert np.isnan(none).all()
        assert none.shape == (10, 4)

    def test_svt_2_draws_a_new_threshold_after_each_value_above(self) -> None:
        """With one threshold for all, equal answers go together more often than with a new one each time."""
        together = []
        for piece in (museum.SparseVector1(cutoff=2, epsilon=0.1), museum.SparseVector2(cutoff=2, epsilon=0.1)):
            rows = piece.batch((0.0, 0.0), 20_000, np.random.default_rng(1))
            together.append(float(np.isfinite(rows[:, 1]).mean()))
        assert together[0] != pytest.approx(together[1], abs=0.005)

    def test_the_maximum_moves_by_half_an_epsilon_for_each_query(self) -> None:
        low = -30.0
        ratio = (laplace.cdf(low, scale=2) / laplace.cdf(low - 1, scale=2)) ** 5
        assert museum.NoisyMaxValueLaplace().true_epsilon_of(5) == pytest.approx(math.log(ratio)) == 2.5

    def test_exponential_maxima_never_lie_below_the_largest_answer(self) -> None:
        values = museum.NoisyMaxValueExponential().batch((1.0, 0.0), 5000, np.random.default_rng(1))
        assert values.min() >= 1.0
        assert values.min() < 1.1

    @pytest.mark.parametrize("piece", [museum.GeometricNaturalLog(), museum.GeometricBinaryLog()], ids=["ln", "log2"])
    def test_the_geometric_law_has_the_stated_ratio(self, piece: museum.GeometricBinaryLog) -> None:
        laws = np.array([piece.law(count) for count in range(6)])
        assert laws.sum(axis=1) == pytest.approx(1.0)
        assert np.abs(np.diff(np.log(laws), axis=0)).max() == pytest.approx(piece.true_epsilon)
        shares = np.bincount(piece.batch(2, 50_000, np.random.default_rng(1)), minlength=6) / 50_000
        assert shares == pytest.approx(laws[2], abs=0.01)

    def test_the_natural_logarithm_exceeds_the_claim_as_published(self) -> None:
        assert museum.GeometricNaturalLog(epsilon=0.1).true_epsilon == pytest.approx(0.1178, abs=1e-4)
        assert museum.GeometricBinaryLog(epsilon=0.1).true_epsilon < 0.1

    def test_numbers_finer_than_the_grid_come_from_zero_and_not_from_one(self) -> None:
        piece = museum.NaiveLaplace()
        fine = []
        for value in (0.0, 1.0):
            out = piece.batch(value, 100_000, np.random.default_rng(1))
            near = out[(out > 0) & (out < 0.25)]
            fine.append(int(np.count_nonzero(np.mod(near * 2.0**53, 1.0))))
        assert fine[0] > 1000
        assert fine[1] == 0

    @pytest.mark.parametrize("piece", [museum.GridLaplace(), museum.SnappingLaplace()], ids=["grid", "snapping"])
    def test_correct_laplace_noise_lies_on_one_grid(self, piece: museum.Piece) -> None:
        for value in (0.0, 1.0):
            out = piece.batch(value, 10_000, np.random.default_rng(1))
            assert np.mod(out * 1024, 1.0).max() == 0
            assert out.std() == pytest.approx(math.sqrt(2), rel=0.2)

    def test_a_cut_off_tail_ends_where_only_one_neighbour_reaches(self) -> None:
        rng = np.random.default_rng(1)
        cut, whole = museum.GeometricCutOff(), museum.GeometricCount()
        assert {int(cut.batch(count, 5000, rng).max()) for count in (2, 3)} == {5, 6}
        assert int(whole.batch(2, 50_000, rng).max()) > 8
        shares = np.bincount(whole.batch(50, 200_000, rng), minlength=101)[47:54] / 200_000
        assert np.log(shares[:3] / shares[1:4]) == pytest.approx(-1.0, abs=0.05)  # e^ε a step, up to the middle
        assert np.log(shares[3:6] / shares[4:7]) == pytest.approx(1.0, abs=0.05)  # and down

    def test_stored_ids_count_a_person_once_for_each_way_of_storing_the_id(self) -> None:
        rows, rng = (1, 1.0, True, 2), np.random.default_rng(1)
        means = [
            float(piece.batch(rows, 20_000, rng).mean())
            for piece in (museum.PeopleByStoredId(), museum.PeopleByCanonicalId())
        ]
        assert means == pytest.approx([4.0, 2.0], abs=0.1)

    def test_a_square_that_underflows_is_taken_for_a_short_gradient(self) -> None:
        piece, taken = museum.DPSGDUnderflow(steps=1), np.ones((1, 1), dtype=bool)
        for length, passed in ((0.5, 0.5), (32.0, 32.0), (64.0, 1.0), (1e9, 1.0)):
            assert piece.total(np.full((1, 1, 1), length), taken)[0, 0] == pytest.approx(passed)


class TestTrainings:
    @pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("dpsgd")])
    def test_the_pair_attains_the_stated_mu(self, name: str) -> None:
        """Noise is the same Gaussian in every entry, so μ is the distance of the means in units of it."""
        room = exhibit(name)
        for piece in (room.mechanism, room.twin):
            if type(piece) in (
                museum.DPSGDSizeLeak, museum.DPSGDRecordedRate, museum.DPSGDPoisson, museum.DPSGDWrongRate
            ):  # fmt: skip
                continue  # scales differ, means are mixed, or a number has no noise: no μ of their own
            assert isinstance(piece, museum.DPSGD)
            runs = 20_000
            first, second = (piece.batch(side, runs, np.random.default_rng(i)) for i, side in enumerate(room.pairs[0]))
            scale = piece.noise_scale() / piece.batch_size
            assert first.std(axis=0) == pytest.approx(scale, rel=0.05)
            distance = float(np.linalg.norm(first.mean(axis=0) - second.mean(axis=0))) / scale
            assert distance <= piece.true_mu + 0.05
            if piece is room.mechanism:
                assert distance == pytest.approx(piece.true_mu, abs=0.06)

    def test_poisson_sampling_at_rate_one_is_the_gaussian_mechanism(self) -> None:
        for epsilon, delta in poisson_front(2.0, 1.0, 4):
            assert delta == pytest.approx(gdp_to_delta(1.0, epsilon), rel=1e-2, abs=1e-6)

    def test_a_lower_rate_costs_less(self) -> None:
        assert poisson_epsilon(1.0, 0.125, 4, 1e-5) < poisson_epsilon(1.0, 0.5, 4, 1e-5)

    def test_poisson_batches_take_each_record_at_the_rate(self) -> None:
        taken = museum.DPSGDPoisson(sample_rate=0.25).taken(0, (40_000, 1), np.random.default_rng(1))
        assert taken.mean() == pytest.approx(0.25, abs=0.01)

    def test_fixed_batches_hold_each_record_once_an_epoch_and_stay(self) -> None:
        piece = museum.DPSGDFixedBatches(steps=8)
        taken = np.array([piece.taken(step, (1, 20), np.random.default_rng(step))[0] for step in range(8)])
        assert (taken[:4].sum(axis=0) == 1).all()
        assert (taken[:4] == taken[4:]).all()
        more = np.array([piece.taken(step, (1, 21), np.random.default_rng(0))[0] for step in range(4)])
        assert (more[:, :20] == taken[:4]).all()  # one record more moves no other

    def test_equal_gaussians_give_the_closed_form(self) -> None:
        assert unequal_gaussians_epsilon(1.0, 1.0, 0.0, 1.0, 1e-5) == pytest.approx(gdp_to_epsilon(1.0, 1e-5), rel=1e-6)

    def test_unequal_gaussians_agree_with_integration(self) -> None:
        delta = 1e-3
        epsilon = unequal_gaussians_epsilon(1.0, 2.0, 0.0, 1.0, delta)
        wide, narrow = norm(1.0, 2.0).pdf, norm(0.0, 1.0).pdf

        def excess(p: Callable[[float], float], q: Callable[[float], float]) -> float:
            points = np.linspace(-30, 30, 600_001)
            return float(np.maximum(p(points) - math.exp(epsilon) * q(points), 0).sum() * 1e-4)

        assert max(excess(wide, narrow), excess(narrow, wide)) == pytest.approx(delta, rel=1e-3)


SLOW = {"svt-3": 100_000, "geometric-log-base": 2_000_000}
"""Faults that take more than some thousand runs to see."""


class TestVisit:
    @pytest.mark.parametrize("name", NAMES)
    def test_the_fault_is_caught(self, name: str) -> None:
        room = exhibit(name)
        piece = room.mechanism
        found = audit(
            piece, claim=piece.claim, pairs=room.pairs, seed=1, max_runs=SLOW.get(name, 10_000), progress=False
        )
        assert found.violated
        assert found.epsilon_lower <= piece.true_epsilon

    @pytest.mark.parametrize("name", NAMES)
    def test_the_twin_is_not_accused(self, name: str) -> None:
        room = exhibit(name)
        twin = room.twin
        runs = min(1500, 25 * settings.default.max_examples)
        found = audit(twin, claim=twin.claim, pairs=room.pairs, seed=2, max_runs=runs, progress=False)
        assert not found.violated
        assert found.epsilon_lower <= twin.true_epsilon

    def test_a_visit_takes_pieces_and_twins_in_turn(self) -> None:
        rooms = [replace(exhibit(name), runs=300) for name in ("svt-5", "categories")]
        seen: list[museum.Finding] = []
        found = visit(rooms, seed=1, on_finding=seen.append)
        assert seen == found
        assert [(one.exhibit.name, one.broken) for one in found] == [
            ("svt-5", True),
            ("svt-5", False),
            ("categories", True),
            ("categories", False),
        ]
        assert all(one.as_expected for one in found)
        assert all(json.dumps(one.to_json(), allow_nan=False) for one in found)

    def test_a_seed_repeats_a_visit(self) -> None:
        rooms = [replace(exhibit("svt-5"), runs=300)]
        first, second = (visit(rooms, seed=5) for _ in range(2))
        assert [one.audit.runs for one in first] == [one.audit.runs for one in second]
        assert [one.audit.epsilon_lower for one in first] == [one.audit.epsilon_lower for one in second]

    def test_a_sum_without_bounds_is_refused_by_the_correct_one(self) -> None:
        with pytest.raises(InputError, match="needs the bounds"):
            museum.BoundedSum(lower=None).batch((0.5,), 1, np.random.default_rng(1))
        out = museum.SumWithoutBounds(lower=None).batch((0.5, 0.25), 3, np.random.default_rng(1))
        assert out.tolist() == [0.75] * 3  # no noise at all

    def test_unknown_names_are_refused_with_the_nearest(self) -> None:
        with pytest.raises(InputError, match="Did you mean 'svt-3'"):
            exhibit("svt3")
