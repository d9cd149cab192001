"""Corners: outputs of which two numbers are far out at once."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import escudo
from escudo.auditing._bounds import Prospect, best_guesses
from escudo.auditing._calibration import along_cells, towards_corner, with_trend
from escudo.auditing._cells import columns_of, count
from escudo.auditing._outputs import Encoded, Sample
from escudo.auditing._views import choose_views, fit_corners

AHEAD = 1e6


def outputs_of(values):
    return Encoded(np.asarray(values, dtype=np.float64), np.zeros(len(values), dtype=np.int32))


def cornered(rng, size, *, strength):
    """Return two exponential numbers, one of them downwards; far out in both, one dataset is the likelier one."""
    labels = rng.random(size) < 0.5
    values = rng.exponential(size=(size, 2))
    far = np.minimum(values[:, 0], values[:, 1] / 2)
    kept = rng.random(size) < np.where(labels, np.exp(-strength * np.minimum(far, 2.5)), 1.0)
    values[:, 1] *= -1
    return outputs_of(values[kept]), labels[kept]


@pytest.fixture(scope="module")
def found():
    outputs, labels = cornered(np.random.default_rng(5), 200_000, strength=0.6)
    columns = columns_of(outputs, last_bits=False)[:2]
    return fit_corners(columns, Sample(outputs, labels), Prospect(0.0, AHEAD))[0], outputs, labels


class TestCorners:
    def test_the_right_ends_are_found(self, found):
        assert found[0].high == (True, False)

    def test_further_out_is_never_in_a_lower_cell(self, found):
        corner = found[0]
        steps = np.linspace(0, 8, 50)
        for fixed in (0.5, 1.0, 3.0):
            for values in (np.stack([steps, np.full(50, -fixed)], 1), np.stack([np.full(50, fixed), -steps], 1)):
                assert (np.diff(corner(outputs_of(values))) >= 0).all()

    def test_an_output_that_lacks_a_number_is_in_the_lowest_cell(self, found):
        cells = found[0](outputs_of([[np.nan, -9.0], [9.0, np.nan], [9.0, -9.0]]))
        assert cells[0] == cells[1] == 0
        assert cells[2] > 0

    def test_its_words_say_what_is_in_it(self, found):
        corner, outputs, _ = found
        inside = np.zeros(corner.cells, dtype=bool)
        inside[corner.cells // 2 : -1] = True
        words = corner.words(inside, ())
        first, second = words.split(" and ")
        low, high = float(first.split(" ≥ ")[1]), float(second.split(" < ")[1])
        assert first.startswith("entry 1")
        assert second.startswith("entry 2")
        told = (outputs.values[:, 0] >= low) & (outputs.values[:, 1] < high)
        assert (told != inside[corner(outputs)]).mean() < 1e-4  # words have six digits

    def test_a_set_that_is_no_corner_says_so(self, found):
        corner = found[0]
        inside = np.zeros(corner.cells, dtype=bool)
        inside[3:5] = True
        assert ", but not " in corner.words(inside, ())
        assert corner.words(np.zeros(corner.cells, dtype=bool), ()) == "nothing"

    def test_what_is_promised_of_it_comes_true_on_other_runs(self, found):
        corner, outputs, labels = found
        belief, order = towards_corner(count(corner, Sample(outputs, labels))), np.arange(corner.cells)[::-1]
        worth, guess = best_guesses(belief, order, Prospect(0.0, AHEAD))
        fresh, known = cornered(np.random.default_rng(6), 1_000_000, strength=0.6)
        first, second = count(corner, Sample(fresh, known))[guess != 0].sum(axis=0)
        error = math.sqrt(1 / first + 1 / second)
        assert worth > 0.8
        assert math.log(first / second) > worth - 2 * error

    def test_it_is_not_looked_for_among_many_numbers_nor_in_a_single_one(self, found):
        _, outputs, labels = found
        columns = columns_of(outputs, last_bits=False)[:1]
        for some in (columns, columns * 7):
            assert fit_corners(some, Sample(outputs, labels), Prospect(0.0, AHEAD)) == []

    def test_noise_alone_promises_nothing(self):
        rng = np.random.default_rng(9)
        outputs, labels = outputs_of(rng.laplace(size=(50_000, 2))), rng.random(50_000) < 0.5
        corner = fit_corners(columns_of(outputs, last_bits=False)[:2], Sample(outputs, labels), Prospect(0.0, AHEAD))[0]
        belief = towards_corner(count(corner, Sample(outputs, labels)))
        for order in (np.arange(corner.cells), np.arange(corner.cells)[::-1]):
            assert best_guesses(belief, order, Prospect(0.0, AHEAD))[0] < 0.05

    def test_it_is_chosen_where_single_numbers_and_scores_tell_less(self):
        outputs, labels = cornered(np.random.default_rng(7), 100_000, strength=0.6)
        how = {"prospect": Prospect(0.0, AHEAD), "references": (), "structures": ("#",), "last_bits": False}
        best = choose_views(Sample(outputs, labels), rng=np.random.default_rng(1), **how)[0]
        assert " and " in best.use.partition.words(np.arange(best.use.partition.cells) == 3, ("#",))


class TwoTails:
    """Two numbers, one much noisier; where both are far out, they are further out for the second dataset."""

    def __call__(self, dataset, rng):
        return self.batch(dataset, 1, rng)[0]

    def batch(self, dataset, count, rng):
        values = rng.laplace(size=(count, 2)) * [1.0, 100.0]
        far = (values[:, 0] > 1) & (values[:, 1] < -100) & (rng.random(count) < 0.6 * dataset)
        values[far] += [2.0, -200.0]
        return values


class TestShown:
    def test_an_audit_shows_the_corner_in_words_and_outputs_by_how_far_out_they_are(self):
        found = escudo.audit(
            TwoTails(),
            claim=escudo.Guarantee(epsilon=0.2),
            pairs=[(0, 1)],
            max_runs=20_000,
            stop_early=False,
            seed=3,
            progress=False,
        )
        assert found.violated
        assert re.fullmatch(r"entry 1 ≥ [23]\.\S* and entry 2 < -[23]\d\d\.\S*", found.witness.y["event"])
        assert found.outputs.kind == "score"
        assert len(found.outputs.labels) == 60


class TestTrend:
    def test_a_steady_change_is_followed_to_where_runs_are_few(self):
        runs = np.append(np.round(1e6 * 0.5 ** np.arange(1, 16)), 0.0)
        levels = -0.05 * np.arange(16.0)
        second = np.round(runs / (1 + np.exp(-levels)))
        counts = np.stack([runs - second, second], axis=1)
        trend = with_trend(counts)
        error = np.sqrt(np.diag(trend.spread))
        assert np.allclose(trend.level[:12], levels[:12], atol=0.02)
        assert (np.abs(trend.level - levels)[:15] < 3 * error[:15]).all()
        assert trend.evidence > along_cells(counts).evidence

    def test_steps_are_believed_where_they_are_likelier(self):
        runs = np.full(20, 50_000.0)
        second = np.round(runs / (1 + np.exp(-np.where(np.arange(20) < 10, -0.2, 0.2))))
        counts = np.stack([runs - second, second], axis=1)
        assert towards_corner(counts).evidence == along_cells(counts).evidence > with_trend(counts).evidence

    def test_no_runs_are_no_obstacle(self):
        assert np.isfinite(with_trend(np.zeros((4, 2))).level).all()
