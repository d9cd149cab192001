"""The page of a direction: what it says in each case, and that it says it safely."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.orientation import Direction, _curves, direction, orient
from escudo.orientation._curves import PlanningCurves, draw_pair, planning_curves
from escudo.report._causal_pages import direction_page, margins, matrix, probabilities
from escudo.table import PrivateTable, Schema

BOUNDS = {"type": "numeric", "lower": -1, "upper": 1}
CURVES = PlanningCurves(
    rows=3000, epsilons=(0.1, 1.0, 3.0), methods={"votes": (0.8, 0.9, 1.0), "gap": (math.nan, 0.95, 1.0)}
)


def table(first: str = "cause", second: str = "effect", rows: int = 3000) -> PrivateTable:
    pair = draw_pair("sine", rows, np.random.default_rng(0))
    return PrivateTable(
        pl.DataFrame({first: pair.x, second: pair.y}), Schema.from_dict({first: BOUNDS, second: BOUNDS})
    )


def answer(**options: object) -> Direction:
    return direction(table(), "cause", "effect", **{"epsilon": 2.0, "seed": 1, **options})


class TestOneAnswer:
    @pytest.mark.parametrize("method", ["votes", "gap", "paper"])
    def test_it_says_what_was_found_promised_and_not_shown(self, method: str) -> None:
        train = {"train": table()._source.frame.to_native()} if method == "paper" else {}
        page = direction_page(answer(method=method, **train), source="stations.csv", rows=3000, curves=CURVES)
        assert "<h1>cause → effect</h1>" in page
        assert "common cause" in page
        assert "ε = 2.00" in page
        assert "What is promised" in page
        assert "no evidence that the model is right" in page
        assert "For planning" in page
        assert "Seeded noise: not for release" in page
        assert "3,000" in page

    def test_without_a_seed_there_is_no_warning(self) -> None:
        assert "not for release" not in direction_page(answer(seed=None))

    def test_votes_are_told_in_blocks(self) -> None:
        page = direction_page(answer())
        assert "blocks about" in page
        assert "more voted for cause → effect than for the reverse" in page
        turned = direction_page(direction(table(), "effect", "cause", epsilon=2.0, seed=1))
        assert "more voted for cause → effect than for the reverse" in turned

    def test_scores_are_listed_with_what_they_mean(self) -> None:
        page = direction_page(answer(method="gap", score="iqr", epsilon=8.0))
        assert "log IQR of cause" in page
        assert "exponential mechanism" in page

    def test_the_published_method_shows_both_scores_with_noise_bars(self) -> None:
        page = direction_page(answer(method="paper", train=table()._source.frame.to_native()))
        assert "Released scores with their noise" in page
        assert "lower is more likely the right one" in page

    def test_no_answer_is_no_direction(self) -> None:
        page = direction_page(answer(method="gap", abstain=1e6))
        assert "cannot tell" in page
        assert "does not stand out of chance and noise" in page

    def test_where_nothing_was_released_nothing_is_pictured(self) -> None:
        page = direction_page(answer(method="gap", epsilon=0.001))
        assert "Nothing was released or spent" in page
        assert "<svg" not in page

    def test_names_of_columns_are_escaped(self) -> None:
        evil, other = "<script>x</script>", 'a"b'
        found = direction(table(evil, other), evil, other, epsilon=2.0, seed=1)
        page = direction_page(found, source="<b>", curves=CURVES)
        assert "<script>" not in page
        assert "<b>" not in page.split('class="kind"')[1].split("</p>")[0]


class TestManyAnswers:
    def test_a_matrix_shows_which_causes_which(self) -> None:
        pair = draw_pair("cubic", 3000, np.random.default_rng(0))
        other = draw_pair("tanh", 3000, np.random.default_rng(1))
        frame = pl.DataFrame({"a": pair.x, "b": pair.y, "c": other.x})
        table = PrivateTable(frame, Schema.from_dict({name: BOUNDS for name in "abc"}))
        found = orient(table, epsilon=6.0, seed=1)
        page = direction_page(found, rows=3000)
        told = sum(one.cause is not None for one in found.directions)
        assert f"{told} of 3 pairs have a direction" in page
        assert "Which column causes which" in page
        assert page.count('<td class="name">') >= 3


class TestCharts:
    def test_a_margin_stays_on_the_picture_however_large_the_noise(self) -> None:
        found = answer(method="gap", epsilon=1.0)
        picture = str(margins([found]))
        assert picture.count("<circle") == 1
        assert "nan" not in picture
        assert "inf" not in picture

    def test_lines_leave_out_what_is_refused(self) -> None:
        picture = str(probabilities(CURVES.epsilons, CURVES.methods, mark=1.0))
        drawn = re.findall(r'd="M([^"]*)" class="line"', picture)
        assert [len(points.split("L")) for points in drawn] == [3, 2]
        assert 'class="mark"' in picture
        assert 'class="mark"' not in str(probabilities(CURVES.epsilons, CURVES.methods, mark=50.0))

    def test_an_arrow_points_from_the_row_to_the_column(self) -> None:
        found = answer()
        picture = str(matrix(["cause", "effect"], [found]))
        assert "<title>cause → effect</title>" in picture
        assert "<title>effect → cause</title>" not in picture


class TestPlanning:
    def test_curves_rise_with_the_budget_and_refusals_are_gaps(self) -> None:
        curves = planning_curves(2000, epsilons=(0.1, 3.0))
        assert curves.methods["votes"][1] > curves.methods["votes"][0] > 0.5
        assert math.isnan(curves.methods["gap"][0])
        assert curves.methods["gap"][1] > 0.9
        assert curves.methods["paper"][1] == pytest.approx(0.5, abs=0.01)

    def test_blocks_are_asked_for_once_and_vote_once_on_each_pair(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[float] = []

        def counted(table: PrivateTable, x: str, y: str, *, epsilon: float, **terms: Any) -> Direction:
            asked.append(epsilon)
            return direction(table, x, y, epsilon=epsilon, **terms)

        monkeypatch.setattr(_curves, "direction", counted)
        votes = planning_curves(200, epsilons=(0.1, 1.0, 3.0)).methods["votes"]
        assert asked == [0.1, 1.0, 3.0] + [100.0] * len(_curves.FAMILIES)
        assert 0.5 < votes[0] < votes[1] < votes[2]
