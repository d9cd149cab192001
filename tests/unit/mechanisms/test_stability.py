"""Propose-test-release: exact distances, their sensitivity, and the exact (ε, δ) on small cases."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from escudo.errors import InputError
from escudo.mechanisms import log_iqr, propose_test_release, read_log_iqr
from escudo.mechanisms._noise import laplace_cutoff, laplace_tail
from escudo.mechanisms._stability import _Ordered

LATTICE = (0.0, 0.5, 1.0, 2.0, 4.0)  # the public bounds are its ends, and changed records may take any of these


def log_range(table):
    ordered = sorted(table)
    low, high = ordered[math.ceil(len(table) / 4) - 1], ordered[math.ceil(3 * len(table) / 4) - 1]
    return math.log(high - low) if high > low else None


def bin_of(value, width, offset):
    return None if value is None else math.floor((value - offset) / width + 1e-12)


def brute_force_distances(size, width, offset):
    """Distances by breadth-first search from the tables whose neighbours are in another bin."""
    tables = list(itertools.combinations_with_replacement(LATTICE, size))
    bins = {table: bin_of(log_range(table), width, offset) for table in tables}

    def neighbours(table):
        return {tuple(sorted((*table[:i], new, *table[i + 1 :]))) for i in range(size) for new in LATTICE}

    def distance(table):
        if bins[table] is None:
            return 1
        reached, changes = {table}, 0
        while all(bins[other] == bins[table] for other in reached):
            reached |= {other for known in reached for other in neighbours(known)}
            changes += 1
        return changes

    return {table: distance(table) for table in tables}, neighbours


@pytest.mark.parametrize("width", [0.7, 2.0, 4.5])
@pytest.mark.parametrize("size", [2, 4, 5, 7])
def test_distances_are_exact_and_have_sensitivity_one(width, size):
    found = {
        table: read_log_iqr(table, lower=LATTICE[0], upper=LATTICE[-1], width=width)
        for table in itertools.combinations_with_replacement(LATTICE, size)
    }
    for which, offset in enumerate((0.0, width / 2)):
        expected, neighbours = brute_force_distances(size, width, offset)
        assert {table: part.distances[which] for table, part in found.items()} == expected
        for table in found:
            for other in neighbours(table):
                assert abs(found[table].distances[which] - found[other].distances[which]) <= 1
                if found[table].distances[which] >= 2:
                    assert abs(found[table].value - found[other].value) < width


@pytest.mark.parametrize("size", [3, 5, 8])
def test_reachable_ranges_are_exact(size):
    """Against all tables on the lattice that so many changes can reach."""
    for table in itertools.combinations_with_replacement(LATTICE, size):
        ordered = _Ordered(np.array(table), LATTICE[0], LATTICE[-1])
        for changes in range(1, min(3, ordered.third - ordered.first + 1)):
            ranges = [
                sorted((*kept, *new))[ordered.third] - sorted((*kept, *new))[ordered.first]
                for kept in set(itertools.combinations(table, size - changes))
                for new in itertools.combinations_with_replacement(LATTICE, changes)
            ]
            assert ordered.smallest(changes) == min(ranges)
            assert ordered.largest(changes) == max(ranges)


def test_the_value_is_the_log_of_the_range_between_the_quartiles():
    assert read_log_iqr(np.arange(1.0, 101), lower=0, upper=200, width=0.5).value == pytest.approx(math.log(50))


@pytest.mark.parametrize("values", [[3.0], [3.0] * 50, [math.nan] * 4])
def test_a_range_of_zero_has_no_value_and_distance_one(values):
    found = read_log_iqr(values, lower=0, upper=10, width=0.5)
    assert (found.value, found.distances) == (None, (1, 1))


def test_a_range_below_every_bin_has_distance_one():
    assert read_log_iqr([0.0, 1e-300] * 9, lower=0, upper=1, width=0.5).distances == (1, 1)


def test_values_are_clamped_and_nan_counts_as_the_middle():
    assert read_log_iqr([math.nan, math.nan, 9, 9], lower=3, upper=10, width=0.5).value == math.log(9 - 6.5)
    wild = read_log_iqr([-math.inf, -9.0, math.nan, 99.0, math.inf], lower=0, upper=10, width=0.5)
    tame = read_log_iqr([0, 0, 5, 10, 10], lower=0, upper=10, width=0.5)
    assert wild == tame


def test_large_tables_are_quick():
    values = np.random.default_rng(0).normal(size=200_000)
    assert min(read_log_iqr(values, lower=-9, upper=9, width=0.5).distances) >= 1


@pytest.mark.parametrize(
    "keywords", [{"lower": 1, "upper": 1}, {"lower": math.nan}, {"width": 0}, {"width": math.inf}, {"upper": math.inf}]
)
def test_unusable_bounds_and_widths_are_refused(keywords):
    with pytest.raises(InputError):
        read_log_iqr([1.0, 2.0], **{"lower": 0, "upper": 5, "width": 0.5} | keywords)


@pytest.mark.parametrize("values", [[], [[1.0]], ["a"], 3.0])
def test_unusable_columns_are_refused(values):
    with pytest.raises(InputError, match="column"):
        read_log_iqr(values, lower=0, upper=5, width=0.5)


def answering_law(distances, epsilon, delta):
    """The exact probability of an answer, from the law of the tests alone."""
    tests = len(distances)
    scale = (tests + 1) / epsilon
    least = 1 + laplace_cutoff(delta / tests, scale)
    return 1 - math.prod(1 - laplace_tail(least - distance, scale) for distance in distances)


class TestProposeTestRelease:
    @pytest.mark.parametrize("tests", [1, 2])
    @pytest.mark.parametrize("delta", [1e-6, 0.01, 0.3])
    def test_it_is_epsilon_delta_private_on_every_pair_of_small_distances(self, tests, delta):
        """Enumerates distances of neighbours; what is released costs e₂ more only where both share a stable bin."""
        epsilon = 1.2
        for before in itertools.product(range(1, 40), repeat=tests):
            for shift in itertools.product((-1, 0, 1), repeat=tests):
                after = tuple(np.add(before, shift))
                if min(after) < 1:
                    continue
                p, q = answering_law(before, epsilon, delta), answering_law(after, epsilon, delta)
                shared = max(*before, *after) >= 2
                # Answers are then within e₂ of each other; otherwise they may be told apart entirely.
                extra = epsilon / (tests + 1)
                answers = p - math.exp(epsilon - extra) * q if shared else p
                silence = (1 - p) - math.exp(epsilon) * (1 - q)
                assert max(answers, 0) + max(silence, 0) <= delta * (1 + 1e-9)

    def test_the_threshold_is_spent_to_the_last_step(self):
        """Lowering the bar by one step would answer at distance 1 with probability above delta."""
        scale = 2 / 1.0
        assert answering_law([1], 1.0, 1e-6) <= 1e-6 < math.exp(1 / scale) * answering_law([1], 1.0, 1e-6) * (1 + 1e-9)

    def test_the_sampled_chance_of_an_answer_is_the_exact_one(self):
        generator = np.random.default_rng(1)
        for distances in ([3, 9], [12]):
            exact = answering_law(distances, 1.0, 0.05)
            answers = [
                propose_test_release(1.0, distances, sensitivity=1.0, epsilon=1.0, delta=0.05, seed=generator).value
                is not None
                for _ in range(3000)
            ]
            assert np.mean(answers) == pytest.approx(exact, abs=6 * 0.5 / math.sqrt(3000))

    def test_two_tests_at_e0_cost_three_e0(self):
        event = propose_test_release(1.0, (5, 7), sensitivity=1.0, epsilon=3 * 0.4, delta=1e-5, seed=0).event
        assert (event.epsilon, event.delta) == (pytest.approx(1.2), 1e-5)

    def test_the_answer_carries_laplace_noise_of_its_share(self):
        generator = np.random.default_rng(2)
        noise = [
            propose_test_release(
                5.0, 10**6, sensitivity=0.5, epsilon=1.0, delta=1e-6, release_share=0.25, seed=generator
            ).value
            - 5.0
            for _ in range(3000)
        ]
        assert np.mean(np.abs(noise)) == pytest.approx(0.5 / 0.25, rel=6 / math.sqrt(3000))

    def test_a_passed_test_without_a_value_says_no_answer(self):
        answers = {
            propose_test_release(None, 1, sensitivity=1.0, epsilon=1.0, delta=0.9, seed=seed).value
            for seed in range(30)
        }
        assert answers == {None}

    @pytest.mark.parametrize("distances", [[], [-1], [1.5], [True], ["3"], -2])
    def test_unusable_distances_are_refused(self, distances, diary):
        with pytest.raises(InputError, match="distances"):
            propose_test_release(1.0, distances, sensitivity=1.0, epsilon=1.0, delta=1e-6, account=diary)
        assert diary.words == []

    def test_a_missing_value_far_from_trouble_contradicts_itself(self):
        with pytest.raises(InputError, match="None only"):
            propose_test_release(None, 7, sensitivity=1.0, epsilon=1.0, delta=1e-6)

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_values_must_be_finite(self, value):
        with pytest.raises(InputError, match="value"):
            propose_test_release(value, 7, sensitivity=1.0, epsilon=1.0, delta=1e-6)

    @pytest.mark.parametrize("share", [0, 1, -0.5, math.nan])
    def test_the_release_takes_a_part_and_not_all_or_nothing(self, share):
        with pytest.raises(InputError, match="release_share"):
            propose_test_release(1.0, 7, sensitivity=1.0, epsilon=1.0, delta=1e-6, release_share=share)

    def test_a_distance_too_large_for_64_bits_is_just_large(self):
        assert propose_test_release(1.0, 2**80, sensitivity=1.0, epsilon=1.0, delta=1e-6).value is not None


class TestLogIqr:
    @pytest.mark.parametrize("width", [0.7, 2.0])
    @pytest.mark.parametrize("delta", [0.02, 0.4])
    def test_it_is_epsilon_delta_private_on_all_neighbouring_tables_of_a_lattice(self, width, delta):
        """The exact chance of an answer on each side; what is answered differs by a factor e^(e₂|H - H′|/w)."""
        epsilon, size = 1.5, 6
        found = {
            table: read_log_iqr(table, lower=LATTICE[0], upper=LATTICE[-1], width=width)
            for table in itertools.combinations_with_replacement(LATTICE, size)
        }
        answer = {table: answering_law([max(part.distances)], epsilon, delta) for table, part in found.items()}
        worst = 0.0
        for table, part in found.items():
            p = 0.0 if part.value is None else answer[table]
            for position, new in itertools.product(range(size), LATTICE):
                other = tuple(sorted((*table[:position], new, *table[position + 1 :])))
                q = 0.0 if found[other].value is None else answer[other]
                apart = abs(part.value - found[other].value) / width if p and q else math.inf
                answers = max(p - math.exp(max(epsilon - epsilon / 2 * apart, -700)) * q, 0.0)
                silence = max((1 - p) - math.exp(epsilon) * (1 - q), 0.0)
                worst = max(worst, answers + silence)
        assert 0 < worst <= delta * (1 + 1e-9)

    def test_it_compares_scales_of_several_columns_of_the_same_records(self):
        generator = np.random.default_rng(3)
        wide, narrow = generator.normal(0, 4.0, 20_000), generator.normal(0, 1.0, 20_000)
        release = log_iqr(
            [wide, narrow], weights=[1, -1], lower=-50, upper=50, epsilon=2.0, delta=1e-6, width=0.2, seed=0
        )
        assert release.value == pytest.approx(math.log(4), abs=4 * 2 * 0.2 * 2 / 2.0)
        assert (release.event.epsilon, release.event.delta) == (2.0, 1e-6)

    def test_unstable_columns_get_no_answer(self):
        assert log_iqr([[1.0] * 30], lower=0, upper=9, epsilon=1.0, delta=1e-6).value is None

    def test_one_unstable_column_silences_all(self):
        steady = np.random.default_rng(4).normal(size=20_000)
        constant = np.zeros(20_000)
        args = {"lower": -9, "upper": 9, "epsilon": 2.0, "delta": 1e-6}
        assert log_iqr([steady], **args).value is not None
        assert log_iqr([steady, constant], weights=[1, -1], **args).value is None

    def test_it_is_refused_where_the_number_of_records_is_private(self):
        with pytest.raises(InputError, match="replace_one"):
            log_iqr([[1.0, 2.0]], lower=0, upper=9, epsilon=1.0, delta=1e-6, relation="add_remove")

    def test_it_is_refused_for_persons_whose_rows_its_distances_do_not_count_together(self):
        person = {"unit": "person", "max_rows_per_person": 2}
        with pytest.raises(InputError, match="unit='row'"):
            log_iqr([[1.0, 2.0]], lower=0, upper=9, epsilon=1.0, delta=1e-6, **person)

    @pytest.mark.parametrize("weights", [[], [0.0], [1, 2], [math.nan]])
    def test_weights_go_with_columns(self, weights):
        with pytest.raises(InputError, match="weights"):
            log_iqr([[1.0, 2.0]], lower=0, upper=9, epsilon=1.0, delta=1e-6, weights=weights)

    def test_columns_describe_the_same_records(self):
        with pytest.raises(InputError, match="same number"):
            log_iqr([[1.0, 2.0], [1.0]], weights=[1, 1], lower=0, upper=9, epsilon=1.0, delta=1e-6)
