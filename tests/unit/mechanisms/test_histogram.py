"""The stable histogram: the exact (ε, δ) of its law on small neighbours, and the threshold it rests on."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from escudo.errors import InputError
from escudo.mechanisms import stable_histogram, stable_threshold
from escudo.mechanisms._noise import laplace_tail

REACH = 150  # noisy counts above the threshold that are told apart; larger ones are left out and paid for as a whole


def output_law(count, threshold):
    """The exact law of what is shown of one key: nothing (0), or each noisy count from the threshold on."""
    if count == 0:
        return np.append(1.0, np.zeros(REACH))
    shown = [
        laplace_tail(n - count, threshold.scale) - laplace_tail(n + 1 - count, threshold.scale)
        for n in range(threshold.least, threshold.least + REACH)
    ]
    return np.append(1 - laplace_tail(threshold.least - count, threshold.scale), shown)


def hockey_stick(before, after, epsilon):
    """The exact δ at ε between the product laws of two independent keys."""
    p, q = (np.outer(*laws) for laws in (before, after))
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def moves(rows, relation):
    """All ways in which a unit's rows can differ over two keys: (before, after) of its own counts."""
    own = [pair for pair in itertools.product(range(rows + 1), repeat=2) if sum(pair) <= rows]
    if relation == "add_remove":
        return [((0, 0), pair) for pair in own] + [(pair, (0, 0)) for pair in own]
    return list(itertools.product(own, own))


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.01), (0.7, 0.2), (3.0, 1e-4)])
def test_it_is_epsilon_delta_private_by_the_exact_law_of_two_keys(relation, rows, epsilon, delta):
    threshold = stable_threshold(epsilon=epsilon, delta=delta, relation=relation, max_rows_per_person=rows)
    worst = 0.0
    laws = {count: output_law(count, threshold) for count in range(2 * rows + 3)}
    for others in itertools.product(range(3), repeat=2):
        for old, new in moves(rows, relation):
            before, after = (tuple(np.add(others, mine).tolist()) for mine in (old, new))
            worst = max(worst, hockey_stick([laws[n] for n in before], [laws[n] for n in after], epsilon))
    left_out = 2 * laplace_tail(threshold.least + REACH - max(laws), threshold.scale)
    assert worst + left_out <= delta


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("rows", [1, 4, 30])
def test_the_threshold_covers_every_way_to_split_a_persons_rows_over_new_keys(relation, rows):
    epsilon, delta = 1.5, 1e-5
    threshold = stable_threshold(epsilon=epsilon, delta=delta, relation=relation, max_rows_per_person=rows)

    def shown(split, least):
        return sum(laplace_tail(least - count, threshold.scale) for count in split)

    worst = max(shown(split, threshold.least) for split in partitions(rows))
    assert worst <= delta
    # One step lower would break it.
    assert max(shown(split, threshold.least - 1) for split in partitions(rows)) > delta


def partitions(total, largest=None):
    if total == 0:
        yield ()
        return
    for first in range(min(total, largest or total), 0, -1):
        for rest in partitions(total - first, first):
            yield (first, *rest)


def test_replacing_needs_twice_the_noise_of_adding():
    add = stable_threshold(epsilon=1.0, delta=1e-6, relation="add_remove")
    replace = stable_threshold(epsilon=1.0, delta=1e-6)
    assert replace.scale == pytest.approx(2 * add.scale)
    assert replace.least > add.least


def test_common_keys_are_shown_near_their_counts_and_rare_ones_are_not():
    shown = stable_histogram({"a": 5000, "b": 3000, "rare": 2}, epsilon=1.0, delta=1e-6).value
    assert list(shown) == ["a", "b"]
    assert abs(shown["a"] - 5000) < 200


def test_keys_come_back_sorted_whatever_the_order_of_the_table():
    counts = {key: 10_000 for key in (3, 10, 1, 2)}
    assert list(stable_histogram(counts, epsilon=1.0, delta=1e-6).value) == [1, 2, 3, 10]
    mixed = {None: 10_000, "b": 10_000, 7: 10_000, ("x", 1): 10_000}
    reverse = dict(reversed(mixed.items()))
    assert list(stable_histogram(mixed, epsilon=1.0, delta=1e-6).value) == list(
        stable_histogram(reverse, epsilon=1.0, delta=1e-6).value
    )


@pytest.mark.parametrize("counts", [{}, {"a": 0}])
def test_no_keys_give_no_keys_and_cost_the_same(counts, diary):
    assert stable_histogram(counts, epsilon=1.0, delta=1e-6, account=diary).value == {}
    assert diary.words == ["spent"]


def test_a_count_beyond_64_bits_is_just_large():
    assert "a" in stable_histogram({"a": 2**90}, epsilon=1.0, delta=1e-6).value


def test_the_event_states_epsilon_delta_and_the_person():
    release = stable_histogram({"a": 9}, epsilon=0.5, delta=1e-7, unit="person", max_rows_per_person=3, seed=0)
    assert (release.event.epsilon, release.event.delta, release.event.unit) == (0.5, 1e-7, "person")
    assert release.guarantee.max_rows_per_person == 3


@pytest.mark.parametrize("counts", [{"secret": -1}, {"secret": 1.5}, {"secret": True}, {"secret": "2"}, ["secret"]])
def test_unusable_counts_are_refused_without_naming_a_key(counts, diary):
    with pytest.raises(InputError, match="counts must") as caught:
        stable_histogram(counts, epsilon=1.0, delta=1e-6, account=diary)
    assert "secret" not in str(caught.value)
    assert diary.words == []


def test_a_person_needs_a_bound_on_rows():
    with pytest.raises(InputError, match="max_rows_per_person"):
        stable_histogram({"a": 9}, epsilon=1.0, delta=1e-6, unit="person")
