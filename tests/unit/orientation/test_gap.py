"""The gap method: what it says, what it charges, whom it covers, and when it refuses."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from escudo.errors import BudgetExceededError, InputError, RefusedError
from escudo.mechanisms import Purse
from escudo.orientation import direction
from escudo.orientation._curves import FAMILIES, draw_pair
from escudo.orientation._gap import (
    LARGEST_GAP,
    SCORES,
    cell_counts,
    certainty,
    gap_of,
    gap_sensitivity,
    noisy_regressions,
    probability_of_direction,
)
from escudo.orientation._regression import Pair, fit_polynomial
from escudo.privacy import LaplaceEvent, MemoryAccount, ParallelEvent, plan
from escudo.table import PrivateTable, Schema

BOUNDS = {"type": "numeric", "lower": -1, "upper": 1}
SCHEMA = Schema.from_dict({"cause": BOUNDS, "effect": BOUNDS})


def frame(family: str = "cubic", rows: int = 2000, seed: int = 0) -> pl.DataFrame:
    pair = draw_pair(family, rows, np.random.default_rng(seed))
    return pl.DataFrame({"cause": pair.x, "effect": pair.y})


def table(rows: int = 2000, account: MemoryAccount | None = None, seed: int = 0) -> PrivateTable:
    return PrivateTable(frame(rows=rows, seed=seed), SCHEMA, account)


def ask(data: PrivateTable, **options: object):
    return direction(data, "cause", "effect", **{"epsilon": 2.0, "method": "gap", "seed": 1, **options})


class TestVerdict:
    @pytest.mark.parametrize("score", ["sqrt_hsic", "hsic", "spearman"])
    def test_a_clear_pair_is_told_apart_whichever_way_it_is_asked(self, score: str) -> None:
        data = table(4000)
        one = ask(data, score=score)
        other = direction(data, "effect", "cause", epsilon=2.0, method="gap", score=score, seed=1)
        assert one.verdict == other.verdict == "cause->effect"
        assert one.margin > 0 > other.margin
        assert one.stability > 0.95

    @pytest.mark.parametrize("score", SCORES)
    def test_every_score_gives_finite_numbers_and_the_same_promise(self, score: str) -> None:
        found = ask(table(1000), score=score)
        assert math.isfinite(found.margin)
        assert 0.5 <= found.stability <= 1.0
        assert found.guarantee.epsilon == pytest.approx(2.0, rel=1e-9)
        assert found.guarantee.epsilon <= 2.0
        assert (found.guarantee.delta, found.guarantee.for_release) == (0.0, False)
        assert found.scores["gap"] == found.margin

    def test_a_margin_inside_the_noise_is_no_answer(self) -> None:
        found = ask(table(2000), epsilon=0.9, abstain=1e9)
        assert found.verdict == "cannot tell"
        assert found.threshold == pytest.approx(1e9 * found.noise_scale)
        assert any("inside the noise" in note for note in found.notes)
        assert ask(table(2000), epsilon=0.9, abstain=0).verdict != "cannot tell"

    @pytest.mark.parametrize("family", sorted(FAMILIES))
    def test_without_noise_every_family_is_told_right(self, family: str) -> None:
        rng = np.random.default_rng(2)
        train, test = draw_pair(family, 2000, rng), draw_pair(family, 2000, rng)
        assert gap_of("sqrt_hsic", test, fit_polynomial(*train), fit_polynomial(train.y, train.x)) > 0.01

    def test_swapping_the_columns_turns_the_sign(self) -> None:
        pair = draw_pair("exp", 500, np.random.default_rng(0))
        f, g = fit_polynomial(*pair), fit_polynomial(pair.y, pair.x)
        for score in LARGEST_GAP:  # all that gap_of takes
            there = gap_of(score, pair, f, g)
            assert gap_of(score, Pair(pair.y, pair.x), g, f) == pytest.approx(-there, abs=1e-12)

    @pytest.mark.parametrize("constant", ["cause", "effect", "both"])
    def test_constant_columns_are_no_answer_and_no_error(self, constant: str) -> None:
        data = frame().with_columns(
            *(pl.lit(0.25).alias(name) for name in ("cause", "effect") if constant in (name, "both"))
        )
        for score in SCORES:
            found = ask(PrivateTable(data, SCHEMA), score=score)
            assert math.isfinite(found.margin)
            if constant == "both" and score != "iqr":
                assert abs(found.margin) < 20 * found.noise_scale

    def test_missing_values_take_the_public_middle(self) -> None:
        holes = frame().with_columns(
            pl.when(pl.int_range(pl.len()) % 7 == 0).then(None).otherwise("cause").alias("cause")
        )
        assert math.isfinite(ask(PrivateTable(holes, SCHEMA)).margin)


class TestCost:
    def test_the_account_is_charged_what_the_plan_shows_once(self) -> None:
        account = MemoryAccount(epsilon=2.0)
        data = table(account=account)
        planned = plan(direction, data, "cause", "effect", epsilon=2.0, method="gap")
        found = ask(data)
        assert [receipt.event for receipt in account.receipts] == [planned.event] == [found.plan.event]
        assert found.plan.guarantee().epsilon == pytest.approx(2.0, rel=1e-9)

    def test_the_two_halves_are_parts_of_one_table_and_do_not_add_up(self) -> None:
        event = plan(direction, table(), "cause", "effect", epsilon=0.9, method="gap").event
        assert isinstance(event, ParallelEvent)
        assert event.by == "position"
        sketch, gap = event.events
        assert isinstance(sketch, LaplaceEvent)
        assert isinstance(gap, LaplaceEvent)
        assert (sketch.l1_sensitivity, sketch.dimensions) == (2.0, 64)
        assert sketch.l1_sensitivity / sketch.scale == pytest.approx(0.9, rel=1e-9)
        assert gap.l1_sensitivity == pytest.approx(gap_sensitivity("sqrt_hsic", 1000), rel=2e-3)
        assert gap.l1_sensitivity >= gap_sensitivity("sqrt_hsic", 1000)

    def test_public_training_records_leave_every_row_for_the_gap(self) -> None:
        account = MemoryAccount()
        found = ask(table(account=account), train=frame(seed=9))
        (receipt,) = account.receipts
        assert isinstance(receipt.event, LaplaceEvent)
        assert receipt.event.l1_sensitivity == pytest.approx(gap_sensitivity("sqrt_hsic", 2000), rel=2e-3)
        assert "public" in found.notes[0]
        assert found.verdict == "cause->effect"

    def test_the_noise_is_the_sensitivity_over_epsilon(self) -> None:
        found = ask(table(), epsilon=0.9)
        assert found.noise_scale == pytest.approx(2 * math.sqrt(6) / 1000 / 0.9, rel=2e-3)

    def test_the_noise_drawn_is_the_noise_stated(self) -> None:
        data, known = table(1000), frame(rows=500, seed=9)
        answers = [ask(data, epsilon=1.0, train=known, abstain=0.0, seed=seed) for seed in range(300)]
        found = np.array([one.margin for one in answers])
        spread = np.abs(found - np.median(found)).mean() / answers[0].noise_scale
        assert 0.8 < spread < 1.25, "the mean size of Laplace noise is its scale; off by 4 standard errors otherwise"

    def test_unusable_public_records_are_refused_before_the_charge(self) -> None:
        account = MemoryAccount()
        with pytest.raises(InputError, match="train"):
            ask(table(account=account), train={"cause": [1.0]})
        assert account.receipts == ()

    def test_a_refused_budget_reads_and_spends_nothing(self) -> None:
        account = MemoryAccount(epsilon=0.1)
        with pytest.raises(BudgetExceededError):
            ask(table(account=account))
        assert account.receipts == ()

    def test_where_noise_exceeds_any_gap_nothing_is_spent(self) -> None:
        account = MemoryAccount()
        found = ask(table(30, account=account), epsilon=0.1, train=frame(seed=9))
        assert (found.verdict, found.released, account.receipts) == ("cannot tell", False, ())
        assert any("needs about N =" in note for note in found.notes)
        assert ask(table(6), score="iqr", train=frame(seed=9)).released is False

    def test_regressions_that_would_be_mostly_noise_are_not_fitted(self) -> None:
        account = MemoryAccount()
        found = ask(table(2000, account=account), epsilon=0.5)
        assert (found.verdict, account.receipts) == ("cannot tell", ())
        assert any("N = 3,200 rows" in note for note in found.notes)
        assert ask(table(3204), epsilon=0.5).released

    def test_without_a_seed_it_may_be_released(self) -> None:
        assert ask(table(), seed=None).guarantee.for_release

    def test_regressions_from_a_sketch_follow_the_curve(self) -> None:
        pair = draw_pair("sine", 3000, np.random.default_rng(0))
        f, g = noisy_regressions(pair, Purse(seed=0), epsilon=50.0)
        assert np.abs(f(pair.x) - 0.5 * np.sin(4 * pair.x)).mean() < 0.1
        assert np.isfinite(g(pair.y)).all()

    def test_one_training_record_moves_the_sketch_by_two_cells(self) -> None:
        rng = np.random.default_rng(4)
        pair = draw_pair("sine", 300, rng)
        before = cell_counts(pair)
        assert before.sum() == 300
        for _ in range(50):
            x, y = pair.x.copy(), pair.y.copy()
            x[7], y[7] = rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], 2)
            assert np.abs(cell_counts(Pair(x, y)) - before).sum() in (0, 2)


class TestRefusals:
    def test_neighbours_of_another_size_are_refused(self) -> None:
        with pytest.raises(RefusedError, match="replace_one"):
            ask(table().under(relation="add_remove", rows=2000))

    def test_persons_with_several_rows_are_refused(self) -> None:
        people = Schema.from_dict({"cause": BOUNDS, "effect": BOUNDS}, person_id="id", max_rows_per_person=2)
        data = frame().with_columns(pl.int_range(pl.len()).alias("id"))
        with pytest.raises(RefusedError, match="votes"):
            ask(PrivateTable(data, people))

    def test_a_wrong_number_of_rows_releases_nothing(self) -> None:
        with pytest.raises(InputError, match="rows was stated as"):
            ask(table().under(rows=10_000_000))

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"bandwidth": 1.0}, "train, abstain, shuffle, width"),
            ({"score": "pearson"}, "sqrt_hsic"),
            ({"width": 0.001}, "0.02"),
            ({"abstain": -1.0}, "abstain"),
            ({"shuffle": 0.5}, "shuffle"),
        ],
        ids=["unknown option", "unknown score", "width", "abstain", "shuffle"],
    )
    def test_what_is_wrong_is_named(self, options: dict[str, object], words: str) -> None:
        with pytest.raises(InputError, match=words):
            ask(table(), **options)


class TestProbability:
    @pytest.mark.parametrize("noises", [1, 2, 4])
    @pytest.mark.parametrize(("scale", "margin"), [(1.0, 0.5), (1.0, 2.0), (0.3, 1.0), (1.0, -0.7)], ids=str)
    def test_closed_forms_agree_with_simulation(self, noises: int, scale: float, margin: float) -> None:
        draws = 200_000
        noise = np.random.default_rng(1).laplace(size=(noises, draws)).sum(axis=0)
        share = float(np.mean(margin + scale * noise > 0))
        error = math.sqrt(max(share * (1 - share), 1 / draws) / draws)
        assert abs(share - probability_of_direction(margin, scale, noises=noises)) < 5 * error

    def test_they_are_the_numbers_of_the_design_note(self) -> None:
        assert probability_of_direction(0.5, 1.0, noises=2) == pytest.approx(0.6209, abs=1e-4)
        assert probability_of_direction(1.0, 0.3, noises=4) == pytest.approx(0.8904, abs=1e-4)

    @pytest.mark.parametrize("x", [0.1, 0.5, 1.0, 3.0, 10.0], ids=str)
    def test_the_gap_beats_two_scores_and_the_exponential_mechanism(self, x: float) -> None:
        # At one total: gap with scale 2Δ/ε, two scores with 2Δ/ε each, logistic 1/(1 + e^-x); x = gap ε / 2Δ.
        gap = probability_of_direction(x, 1.0, noises=1)
        assert gap > probability_of_direction(x, 1.0, noises=2)
        assert gap > 1 / (1 + math.exp(-x))

    def test_a_margin_beyond_what_is_possible_proves_little(self) -> None:
        assert certainty(5000.0, 40.0, noises=2, largest=0.25) < 0.51
        assert certainty(0.2, 0.001, noises=2, largest=0.25) > 0.999
        assert certainty(0.0, 1.0, largest=0.5) == pytest.approx(0.5)
        assert certainty(-3.0, 1.0) == certainty(3.0, 1.0)

    def test_other_numbers_of_noises_have_no_formula(self) -> None:
        with pytest.raises(InputError, match="1, 2 or 4"):
            probability_of_direction(1.0, 1.0, noises=3)
