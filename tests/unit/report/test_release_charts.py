"""Charts of a release, and the figures behind them."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from escudo.report._look import _axis, column_card, merge_cells, pairs_beside, pairs_of
from escudo.report._svg import Axis, Panel, bars, heat_map, histogram, pair_plot
from escudo.table import Categorical, Numeric, Schema
from escudo.utility import (
    Rows,
    cells,
    cramers_v,
    dependence,
    independence_gap,
    sampling_error,
    synthetic_table,
    total_variation,
)

NASTY = '<b>"x"</b>\x00'


def widths(svg: str) -> list[float]:
    return [float(found) for found in re.findall(r'<rect [^>]*?width="([\d.]+)"[^>]*class="fill"', svg)]


class TestBars:
    def test_lengths_are_in_proportion_and_shares_are_written(self) -> None:
        svg = bars(["no", "yes"], [0.75, 0.25], title="smoke")
        long, short = widths(svg)
        assert long == pytest.approx(3 * short, abs=0.2)
        assert re.findall(r"([\d.]+)\N{NO-BREAK SPACE}%", svg) == ["75.0", "25.0"]

    def test_real_shares_are_marks_of_their_own_shape(self) -> None:
        assert bars(["no", "yes"], [0.75, 0.25], title="smoke", real=[0.5, 0.5]).count('class="real"') == 2

    def test_texts_are_escaped_and_long_ones_cut(self) -> None:
        svg = bars([NASTY, "a very long label that has no room at all"], [0.5, 0.5], title=NASTY)
        assert "<b>" not in svg
        assert "\x00" not in svg
        assert 'aria-label="&lt;b&gt;&#34;x&#34;&lt;/b&gt;\ufffd"' in svg
        assert "…" in svg

    def test_codes_have_room_in_a_font_with_wide_figures(self) -> None:
        svg = bars(["00501", "90210"], [0.5, 0.5], title="zip")
        assert (
            min(map(float, re.findall(r'<text x="([\d.]+)"', svg))) >= 5 * 12 * 0.64
        )  # an em is 12, a figure of it 0.64

    def test_a_long_label_that_was_shortened_has_room_in_such_a_font(self) -> None:
        svg = bars(["banana and banana and banana 1"], [1.0], title="fruit")
        (end, shown) = re.findall(r'<text x="([\d.]+)"[^>]*><title>[^<]*</title>([^<]*)</text>', svg)[0]
        assert shown.startswith("bana")
        assert shown.endswith("1")
        assert float(end) >= 0.6 * 12 * len(shown)

    def test_nothing_at_all_is_drawn_without_a_division_by_zero(self) -> None:
        assert widths(bars(["no", "yes"], [0.0, 0.0], title="empty")) == [0.0, 0.0]


class TestHistogram:
    def test_heights_are_densities(self) -> None:
        svg = histogram(np.array([0.0, 1.0, 4.0]), np.array([0.5, 0.5]), title="x", ends=("0", "4"))
        heights = [float(found) for found in re.findall(r'height="([\d.]+)" class="fill"', svg)]
        assert heights[0] == pytest.approx(3 * heights[1], abs=0.3)

    def test_the_real_ones_are_a_line(self) -> None:
        edges, shares = np.array([0.0, 1.0, 2.0]), np.array([0.5, 0.5])
        assert 'class="real"' in histogram(edges, shares, title="x", ends=("0", "2"), real=shares)


class TestHeatMap:
    def test_the_shade_follows_the_value_and_large_maps_leave_out_the_figures(self) -> None:
        values = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 1.0], [0.0, 1.0, 1.0]])
        svg = heat_map(["a", "b", "c"], values, title="pairs")
        assert re.findall(r'fill-opacity="([\d.]+)"', svg) == ["0.53", "0.06", "1.00"]
        assert re.findall(r'class="value[^>]*>([\d.]+)<', svg) == ["0.50", "0.00", "1.00"]
        many = heat_map([f"c{i}" for i in range(40)], np.zeros((40, 40)), title="pairs")
        assert "value" not in many
        assert many.count("<rect") == 40 * 39 // 2

    def test_pairs_left_out_have_no_square(self) -> None:
        values = np.full((3, 3), np.nan)
        values[1, 0] = 0.2
        assert heat_map(["a", "b", "c"], values, title="pairs").count("<rect") == 1


class TestPairPlot:
    def test_panels_show_points_or_shades(self) -> None:
        axes = [
            Axis(name=name, heights=np.array([0.5, 0.5]), across=[(0.25, "no"), (0.75, "yes")], down=[(0.25, "no")])
            for name in ("a", "b", NASTY)
        ]
        panels = {
            (1, 0): Panel(points=np.array([[0.0, 1.0], [0.5, 0.5]])),
            (2, 0): Panel(shades=np.array([[1.0, 0.0], [0.0, 1.0]])),
        }
        svg = pair_plot(axes, panels, title="pairs")
        assert svg.count("h0") == 2
        assert svg.count('class="shade"') == 1  # one path for one shade
        assert "<b>" not in svg

    def test_at_most_ten_columns_are_shown_and_those_that_depend_most(self) -> None:
        rng = np.random.default_rng(1)
        base = rng.integers(0, 2, 3000)
        frame = pl.DataFrame(
            {f"c{i}": base ^ (rng.random(3000) < 0.1) if i >= 4 else rng.integers(0, 2, 3000) for i in range(14)}
        )
        schema = Schema.from_dict({name: [0, 1] for name in frame.columns})
        table = synthetic_table(frame, schema)
        codes = cells(table, schema.names)
        strength, _ = dependence(codes, schema.shape())
        shown, svg = pairs_of(schema, schema.names, frame, codes, strength)
        assert shown == [f"c{i}" for i in range(4, 14)]
        assert svg.count('class="frame"') == 45


class TestRealBesideSynthetic:
    def rows(self, count: int, seed: int, *, flip: float = 0.1) -> Rows:
        rng = np.random.default_rng(seed)
        base = rng.random(count) < 0.5
        columns = {f"c{i}": base ^ (rng.random(count) < flip) for i in range(12)}
        frame = pl.DataFrame({**columns, "x": rng.random(count), "y": rng.random(count) * base})
        number = {"type": "numeric", "lower": 0, "upper": 1, "bins": 5}
        schema = Schema.from_dict({**{name: [False, True] for name in columns}, "x": number, "y": number})
        return Rows.read(frame, schema)

    def test_every_panel_has_its_twin(self) -> None:
        found = pairs_beside(self.rows(800, 1), self.rows(500, 2))
        assert found is not None
        shown, svg = found
        assert len(shown) == 10
        assert svg.count('class="panel"') == svg.count('class="panel twin"') == 45
        assert svg.count("synthetic</title>") == svg.count(": real</title>") == 45
        assert svg.count('class="real"') == 10  # a line over the bars of each column
        assert len(svg) < 300_000

    def test_equal_rows_look_the_same_on_both_sides_and_others_do_not(self) -> None:
        def opacities(kind: str, svg: str) -> list[list[str]]:
            panels = re.findall(rf'<g class="{kind}">(.*?)</g>', svg)
            return [re.findall(r'fill-opacity="([\d.]+)"', panel) for panel in panels]

        same = pairs_beside(self.rows(800, 1), self.rows(800, 1))
        other = pairs_beside(self.rows(800, 1), self.rows(800, 2, flip=0.5))
        assert same is not None
        assert other is not None
        assert opacities("panel", same[1]) == opacities("panel twin", same[1])
        assert opacities("panel", other[1]) != opacities("panel twin", other[1])

    def test_rare_levels_are_the_same_on_both_sides(self) -> None:
        towns = [f"t{i:02d}" for i in range(40)]
        schema = Schema.from_dict({"town": towns, "ill": [0, 1]})
        ours = pl.DataFrame({"town": towns[:20] * 50, "ill": [0, 1] * 500})
        theirs = pl.DataFrame({"town": towns[20:] * 50, "ill": [0, 1] * 500})
        found = pairs_beside(Rows.read(theirs, schema), Rows.read(ours, schema))
        assert found is not None
        panels = re.findall(r'<g class="panel(?: twin)?">(.*?)</g>', found[1])
        assert len(set(panels)) == 2

    def test_one_column_has_no_pairs(self) -> None:
        schema = Schema.from_dict({"a": [0, 1]})
        rows = Rows.read(pl.DataFrame({"a": [0, 1, 1]}), schema)
        assert pairs_beside(rows, rows) is None


class TestCards:
    def test_a_long_list_of_levels_ends_in_the_rest(self) -> None:
        column = Categorical("town", [f"town {i}" for i in range(20)])
        card = column_card(column, np.arange(20) * 5)
        assert card["note"].replace("\N{NO-BREAK SPACE}", " ") == "most often town 19, 10.0 %"
        assert "13 others" in card["chart"]

    def test_numbers_say_where_half_of_them_lie_and_how_many_are_missing(self) -> None:
        column = Numeric("income", 0, 400_000, 4, missing=True)
        card = column_card(column, np.array([25, 25, 25, 25, 100]))
        assert card["note"].replace("\N{NO-BREAK SPACE}", " ") == (
            "half lie between 100,000 and 300,000; missing 50.0 %"
        )
        assert "400,000" in card["chart"]

    def test_whole_numbers_stay_whole(self) -> None:
        card = column_card(Numeric("age", 0, 110, 22, integer=True), np.arange(22))
        assert card["note"] == "half lie between 56 and 96"

    def test_many_bins_are_drawn_as_few(self) -> None:
        card = column_card(Numeric("x", 0, 1, 1000), np.ones(1000, dtype=np.int64))
        assert len(widths(card["chart"])) == 59  # 17 bins in each

    def test_an_empty_column_is_no_error(self) -> None:
        card = column_card(Numeric("x", 0, 1, 4), np.zeros(4, dtype=np.int64))
        assert card["note"] == ""


def test_what_a_screen_reader_says_has_its_signs() -> None:
    drawn = column_card(Categorical("smoke", ["no", "yes"]), np.array([1, 3]))["chart"]
    label = re.search(r'aria-label="([^"]*)"', drawn)
    assert label is not None
    assert label[1].replace("\N{NO-BREAK SPACE}", " ") == "smoke: no 25.0 %, yes 75.0 %"


class TestMerging:
    def test_neighbouring_bins_go_together_and_missing_stays_apart(self) -> None:
        column = Numeric("x", 0, 100, 100, missing=True)
        codes, count = merge_cells(column, np.arange(101), most=11)
        assert count == 11
        assert codes.tolist() == [place // 10 for place in range(100)] + [10]

    def test_rare_levels_go_together(self) -> None:
        column = Categorical("town", [f"town {i}" for i in range(10)])
        seen = np.repeat(np.arange(10), [1, 9, 1, 8, 1, 7, 1, 1, 1, 1])
        codes, count = merge_cells(column, seen, most=4)
        assert count == 4
        assert np.bincount(codes).tolist() == [9, 8, 7, 7]

    def test_few_cells_are_left_as_they_are(self) -> None:
        codes, count = merge_cells(Categorical("smoke", ["no", "yes"]), np.array([1, 0, 1]), most=4)
        assert (codes.tolist(), count) == ([1, 0, 1], 2)


class TestFigures:
    def test_cramers_v_has_no_upward_bias(self) -> None:
        rng = np.random.default_rng(2)
        values = []
        for _ in range(200):
            table = np.zeros((5, 5))
            np.add.at(table, (rng.integers(0, 5, 100), rng.integers(0, 5, 100)), 1)
            values.append(cramers_v(table))
        assert np.mean(values) < 0.08  # uncorrected, it would be about 0.2

    def test_cramers_v_of_a_known_table(self) -> None:
        n = 10**7  # so many that the correction does not matter
        table = np.array([[0.4, 0.1], [0.1, 0.4]]) * n
        assert cramers_v(table) == pytest.approx(0.6, abs=1e-6)

    @pytest.mark.parametrize("table", [np.zeros((2, 2)), np.array([[5, 5]]), np.array([[3, 0], [4, 0]])])
    def test_constant_columns_depend_on_nothing(self, table: np.ndarray) -> None:
        assert cramers_v(table) == 0.0

    def test_dependence_is_read_from_all_pairs(self) -> None:
        codes = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 1, 1]] * 50)
        strength, gap = dependence(codes, (2, 2, 2))
        assert strength[0, 1] == strength[1, 0] == pytest.approx(1.0)
        assert strength[0, 2] == 0.0
        assert gap[0, 1] == pytest.approx(0.5)
        assert independence_gap(np.array([[1, 1], [1, 1]])) == 0.0

    def test_sampling_error_is_what_two_samples_show(self) -> None:
        rng = np.random.default_rng(3)
        law = np.array([0.5, 0.3, 0.15, 0.05])
        seen = np.mean([total_variation(rng.multinomial(800, law), rng.multinomial(300, law)) for _ in range(2000)])
        assert sampling_error(law * 800, 300) == pytest.approx(seen, rel=0.03)
        assert sampling_error(np.zeros(4), 300) == 0.0

    def test_synthetic_rows_belong_to_nobody(self) -> None:
        schema = Schema.from_dict({"smoke": ["no", "yes"]}, person_id="patient", max_rows_per_person=2)
        table = synthetic_table(pl.DataFrame({"smoke": ["no", "yes", "yes"]}), schema)
        assert table.counts("smoke").tolist() == [1, 2]


def test_days_and_the_mark_for_missing_values_do_not_lie_over_each_other_in_pairs() -> None:
    date = Numeric("day", "1920-01-01", "2023-12-31", date="%d.%m.%Y", bins=10)
    dose = Numeric("dose", 0, 200, bins=11, missing=True)
    year = Numeric("week", "2023-01-01", "2023-12-31", date="%d.%m.%Y", bins=10)
    codes = np.tile(np.arange(10), 12)
    axes = [_axis(column, codes, column.size) for column in (date, dose, year)]
    assert [label for _, label in axes[0].across] == ["1920", "2023"]
    assert [label for _, label in axes[2].across] == ["01-01", "12-31"]
    dark = np.zeros((10, 10))
    svg = pair_plot(axes, {(1, 0): Panel(shades=dark), (2, 0): Panel(shades=dark), (2, 1): Panel(shades=dark)}, "pairs")
    found = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" class="([a-z ]*)">([^<]*)</text>', svg)
    ticks = [(float(x), float(y), kind.split()[-1], label) for x, y, kind, label in found if "tick" in kind]
    beside = sorted(y for x, y, kind, label in ticks if kind == "tick" and label in ("∅", "200", "0") and x < 60)
    assert len(beside) == 3
    assert all(lower - upper >= 11 for upper, lower in pairwise(beside))
    mark = next(x for x, _, kind, label in ticks if (label, kind) == ("∅", "mid"))
    last = next(x for x, y, kind, label in ticks if label == "200" and kind == "end" and y > 300)
    assert last <= mark - 6
