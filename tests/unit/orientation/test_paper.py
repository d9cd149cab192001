"""The paper's method: its theorems, its constants and corrected ones, and what it may promise in each role."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from escudo.errors import BudgetExceededError, InputError, RefusedError
from escudo.orientation import direction
from escudo.orientation._curves import draw_pair
from escudo.orientation._paper import (
    SCORES,
    distance_to_instability,
    iqr_looks,
    residuals,
    score_sensitivity,
    two_scores,
)
from escudo.orientation._regression import residual_change
from escudo.privacy import ApproximateEvent, LaplaceEvent, MemoryAccount, RepeatedEvent, plan
from escudo.table import PrivateTable, Schema

BOUNDS = {"type": "numeric", "lower": -1, "upper": 1}
SCHEMA = Schema.from_dict({"cause": BOUNDS, "effect": BOUNDS})
ROLES = ("train", "test", "neither")


def frame(rows: int = 1000, seed: int = 0) -> pl.DataFrame:
    pair = draw_pair("quadratic", rows, np.random.default_rng(seed))
    return pl.DataFrame({"cause": pair.x, "effect": pair.y})


def ask(role: str, *, rows: int = 1000, account: MemoryAccount | None = None, **options: object):
    public = {} if role == "neither" else {role: frame(seed=9)}
    arguments = {"epsilon": 20.0, "delta": 1e-5, "method": "paper", "seed": 1, **public, **options}
    return direction(PrivateTable(frame(rows), SCHEMA, account), "cause", "effect", **arguments)


class TestAlgorithm1:
    def test_lower_dependence_names_the_cause(self) -> None:
        rng = np.random.default_rng(1)
        found = residuals(draw_pair("quadratic", 1500, rng), draw_pair("quadratic", 1500, rng), regularisation=1e-3)
        forward, backward = two_scores("hsic", found)
        assert forward < backward / 4
        assert np.std(found.of_y) == pytest.approx(0.12, abs=0.02), "what is left is the noise of the model"

    @pytest.mark.parametrize("score", ["hsic", "spearman", "kendall"])
    def test_scores_are_between_0_and_1(self, score: str) -> None:
        rng = np.random.default_rng(1)
        found = residuals(draw_pair("weak", 200, rng), draw_pair("weak", 200, rng), regularisation=0.1)
        assert all(0 <= s <= 1 for s in two_scores(score, found))


class TestConstants:
    def test_they_are_as_printed_or_as_proved(self) -> None:
        fixed = {"n": 1000, "m": 1000, "regularisation": 0.1, "width": 0.15}
        test = {
            (score, constants): score_sensitivity(score, "test", constants=constants, **fixed)
            for score in ("spearman", "kendall", "hsic")
            for constants in ("paper", "corrected")
        }
        assert test["spearman", "paper"] == 30 / 1000
        assert test["spearman", "corrected"] == 6 / 1001
        assert test["kendall", "paper"] == test["kendall", "corrected"] == 4 / 1000
        assert test["hsic", "paper"] == 11_989 / 999**2
        assert test["hsic", "corrected"] == pytest.approx(2.06e-3, abs=1e-5)

    def test_the_training_bound_of_theorem_7_exceeds_the_range_of_hsic(self) -> None:
        fixed = {"n": 1000, "m": 1000, "regularisation": 0.1, "width": 0.15}
        printed = score_sensitivity("hsic", "train", constants="paper", **fixed)
        corrected = score_sensitivity("hsic", "train", constants="corrected", **fixed)
        assert printed > 0.26 > 0.25 * (1000 / 999) ** 2
        assert 500 < printed / corrected < 5000
        assert corrected == pytest.approx(
            (1000 / 999) ** 2 * residual_change(1000, 0.1) / (math.sqrt(2) * 0.15), rel=0.1
        )

    def test_a_record_is_in_one_half_so_the_larger_sensitivity_holds(self) -> None:
        fixed = {"n": 500, "m": 500, "regularisation": 0.3, "width": 0.15, "constants": "corrected"}
        assert score_sensitivity("hsic", "both", **fixed) == max(
            score_sensitivity("hsic", role, **fixed) for role in ("test", "train")
        )

    def test_a_record_moves_four_ranges_or_two(self) -> None:
        assert iqr_looks("test", "corrected") == iqr_looks("both", "corrected") == (4, 4)
        assert iqr_looks("test", "paper") == (4, 3)
        assert iqr_looks("train", "paper") == iqr_looks("train", "corrected") == (2, 2)

    @pytest.mark.parametrize(
        ("gap", "corrected", "printed"), [(0.19, 0, 0), (0.2, 0, 1), (0.3, 1, 1), (1.0, 4, 5), (0.0, 0, 0)], ids=str
    )
    def test_distances_to_instability(self, gap: float, corrected: int, printed: int) -> None:
        assert distance_to_instability(gap, 0.1, "corrected") == corrected
        assert distance_to_instability(gap, 0.1, "paper") == printed


class TestPromises:
    @pytest.mark.parametrize("role", ROLES)
    @pytest.mark.parametrize("score", SCORES)
    @pytest.mark.parametrize("constants", ["corrected", "paper"])
    def test_it_never_claims_what_is_not_proved(self, role: str, score: str, constants: str) -> None:
        account = MemoryAccount()
        if role == "neither" and score in ("spearman", "kendall"):
            with pytest.raises(RefusedError, match="both halves are private"):
                ask(role, score=score, constants=constants, account=account)
            assert account.receipts == ()
            return
        found = ask(role, score=score, constants=constants, account=account)
        assert any("Covers all 1,000" in note for note in found.notes)
        if not found.released:
            assert account.receipts == ()
            return
        (receipt,) = account.receipts
        assert receipt.event == found.plan.event
        if score == "iqr":
            looks = 2 if role == "test" else 4
            share = 3 if constants == "paper" and looks == 4 else looks
            part = ApproximateEvent(epsilon=20.0 / share, delta=1e-5 / share)
            assert receipt.event == RepeatedEvent(event=part, count=looks)
            assert found.guarantee.epsilon == pytest.approx(20 * looks / share)
            assert found.guarantee.delta == pytest.approx(1e-5 * looks / share)
            assert any("4/3" in note for note in found.notes) == (share < looks)
        elif role == "test" and score != "hsic":
            assert receipt.event == RepeatedEvent(event=ApproximateEvent(epsilon=10.0, delta=5e-6), count=2)
        else:
            assert isinstance(receipt.event, LaplaceEvent)
            assert receipt.event.dimensions == 2
            assert found.guarantee.epsilon <= 20.0

    def test_a_noise_larger_than_any_gap_spends_nothing(self) -> None:
        account = MemoryAccount()
        found = ask("test", constants="paper", account=account)
        assert (found.verdict, account.receipts) == ("cannot tell", ())
        assert any("needs about N =" in note for note in found.notes)

    def test_public_training_records_make_a_clear_verdict(self) -> None:
        found = ask("train", epsilon=5.0)
        assert found.verdict == "cause->effect"
        assert set(found.scores) == {"cause->effect", "effect->cause"}
        assert found.scores["cause->effect"] < found.scores["effect->cause"]
        assert found.margin == pytest.approx(found.scores["effect->cause"] - found.scores["cause->effect"])

    def test_each_of_two_scores_gets_half_the_budget(self) -> None:
        found = ask("train", epsilon=5.0, score="kendall")
        assert found.noise_scale == pytest.approx(math.sqrt(2) * 2 * (4 / 1000) / 5.0, rel=1e-4)

    def test_stable_ranks_are_released_as_they_are(self) -> None:
        # Few test records with wide gaps, many training records, strong regularisation.
        test = {"cause": [-0.9, -0.3, 0.3, 0.9], "effect": [-1.0, -0.5, 0.1, 1.0]}
        data = PrivateTable(frame(200_000), SCHEMA)
        arguments = {"epsilon": 2.0, "delta": 1e-3, "method": "paper", "score": "spearman", "seed": 1}
        arguments |= {"accept_large_delta": True}
        found = direction(data, "cause", "effect", test=test, regularisation=1.0, abstain=0.0, **arguments)
        assert found.noise_scale < 1e-5
        assert all(min(abs(s - k / 10) for k in range(11)) < 1e-4 for s in found.scores.values())

    def test_ranges_are_released_where_they_are_stable(self) -> None:
        found = ask("train", rows=4000, score="iqr", epsilon=40.0)
        assert found.released
        assert found.noise_scale == pytest.approx(2 * 12 / 40.0)
        unstable = ask("train", rows=40, score="iqr", epsilon=1.0)
        assert unstable.verdict == "cannot tell"
        assert any("not stable enough" in note for note in unstable.notes)

    def test_the_plan_is_what_is_spent(self) -> None:
        account = MemoryAccount()
        planned = plan(
            direction,
            PrivateTable(frame(), SCHEMA),
            "cause",
            "effect",
            epsilon=3.0,
            method="paper",
            train=frame(seed=9),
        )
        ask("train", epsilon=3.0, account=account)
        assert [receipt.event for receipt in account.receipts] == [planned.event]

    def test_a_refused_budget_spends_nothing(self) -> None:
        account = MemoryAccount(epsilon=1.0)
        with pytest.raises(BudgetExceededError):
            ask("train", account=account)
        assert account.receipts == ()


class TestRefusals:
    @pytest.mark.parametrize(
        ("role", "options", "words"),
        [
            ("train", {"test": frame(seed=3)}, "nothing is private"),
            ("train", {"score": "iqr", "delta": 0.0}, "delta"),
            ("test", {"score": "kendall", "delta": 0.0}, "delta"),
            ("neither", {"constants": "mine"}, "corrected"),
            ("neither", {"constants": "paper", "regularisation": 2.0}, "at most 1"),
            ("neither", {"regularisation": 0.0}, "regularisation"),
            ("neither", {"rows": 6}, "at least 8"),
            ("neither", {"score": "sqrt_hsic"}, "hsic"),
            ("neither", {"sigma": 1.0}, "regularisation"),
            ("neither", {"width": 0.001}, "0.02"),
        ],
        ids=["both public", "iqr", "kendall", "constants", "lambda", "zero", "rows", "score", "option", "width"],
    )
    def test_what_is_wrong_is_named(self, role: str, options: dict[str, object], words: str) -> None:
        with pytest.raises(InputError, match=words):
            ask(role, **options)

    def test_neighbours_of_another_size_are_refused(self) -> None:
        data = PrivateTable(frame(), SCHEMA, relation="add_remove", rows=1000)
        with pytest.raises(RefusedError, match="replace_one"):
            direction(data, "cause", "effect", epsilon=1.0, method="paper")
