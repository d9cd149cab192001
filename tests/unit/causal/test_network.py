"""Network: tables read and checked, rows simulated, interventions answered."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph, Network, asia
from escudo.errors import GraphError, InputError, ParseError

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "networks"

needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the benchmark networks are not on this machine (../shared/data/networks)"
)

SIZES = {
    "alarm": (37, 46),
    "asia": (8, 8),
    "cancer": (5, 4),
    "child": (20, 25),
    "earthquake": (5, 4),
    "sachs": (11, 17),
    "survey": (6, 6),
}


@needs_shared
@pytest.mark.parametrize("name", SIZES)
def test_every_benchmark_network_is_read_whole_and_comes_back(name: str) -> None:
    path = SHARED / f"{name}.bif.gz"
    network = Network.read(path)
    assert (len(network.nodes), len(network.graph.edges)) == SIZES[name]
    assert CausalGraph.read(path) == network.graph
    assert Network.parse(network.to_bif()) == network
    for node in network.nodes:
        np.testing.assert_allclose(network.table(node).sum(axis=-1), 1, atol=1e-12)
    sample = network.sample(50, rng=np.random.default_rng(1))
    assert all(codes.max() < len(network.levels[node]) for node, codes in sample.items())


@needs_shared
def test_the_asia_network_we_ship_is_the_published_one() -> None:
    assert asia() == Network.read(SHARED / "asia.bif.gz")


class TestAsia:
    def test_its_tables_give_the_known_marginals(self) -> None:
        network = asia()
        p_tub = network.table("asia") @ network.table("tub")
        p_lung = network.table("smoke") @ network.table("lung")
        either = 1 - p_tub[1] * p_lung[1]  # tub and lung have no common cause
        assert p_tub[0] == pytest.approx(0.0104)
        assert p_lung[0] == pytest.approx(0.055)
        assert either == pytest.approx(0.064828)

    def test_simulated_rows_follow_them(self) -> None:
        rows = 200_000
        codes = asia().sample(rows, rng=np.random.default_rng(7))
        for name, share in (("tub", 0.0104), ("lung", 0.055), ("either", 0.064828), ("smoke", 0.5)):
            error = 5 * np.sqrt(share * (1 - share) / rows)
            assert abs((codes[name] == 0).mean() - share) < error
        either = (codes["tub"] == 0) | (codes["lung"] == 0)
        assert np.array_equal(codes["either"] == 0, either)  # no row of probability 0 is ever drawn

    def test_an_intervention_moves_effects_and_leaves_causes(self) -> None:
        network, rows = asia(), 100_000
        done = network.sample(rows, rng=np.random.default_rng(3), do={"lung": "yes"})
        assert (done["lung"] == 0).all()
        assert (done["either"] == 0).all()
        assert abs((done["smoke"] == 0).mean() - 0.5) < 0.01  # seeing lung cancer would give 0.91
        assert abs((done["xray"] == 0).mean() - 0.98) < 0.005

    def test_the_same_seed_gives_the_same_rows(self) -> None:
        first, second = (asia().sample(100, rng=np.random.default_rng(5)) for _ in range(2))
        assert all(np.array_equal(first[name], second[name]) for name in first)
        assert list(first) == list(asia().nodes)

    def test_the_frame_has_level_names_in_the_same_rows(self) -> None:
        frame = asia().sample_frame(50, rng=np.random.default_rng(5), do={"asia": "no"})
        codes = asia().sample(50, rng=np.random.default_rng(5), do={"asia": "no"})
        assert frame.columns == list(asia().nodes)
        assert set(frame.dtypes) == {pl.String}
        assert frame["smoke"].to_list() == [("yes", "no")[code] for code in codes["smoke"]]
        assert frame["asia"].unique().to_list() == ["no"]

    def test_no_rows_is_fine(self) -> None:
        assert asia().sample_frame(0, rng=np.random.default_rng(0)).shape == (0, 8)

    def test_bad_questions_are_refused(self) -> None:
        rng = np.random.default_rng(0)
        with pytest.raises(InputError, match="rows must be a whole number"):
            asia().sample(-1, rng=rng)
        with pytest.raises(InputError, match="numpy random Generator; got int"):
            asia().sample(1, rng=3)  # type: ignore[arg-type]
        with pytest.raises(GraphError, match=r"no variable 'smok'\. Did you mean 'smoke'"):
            asia().sample(1, rng=rng, do={"smok": "yes"})
        with pytest.raises(InputError, match="'smoke' has no level 'yess'; its levels are 'yes', 'no'"):
            asia().sample(1, rng=rng, do={"smoke": "yess"})
        with pytest.raises(InputError, match="no level '0'"):
            asia().sample(1, rng=rng, do={"smoke": 0})  # type: ignore[dict-item]

    def test_it_is_a_value(self) -> None:
        assert pickle.loads(pickle.dumps(asia())) == asia()
        assert hash(asia()) == hash(asia())
        assert repr(asia()) == "<Network: 8 nodes, 8 arrows, 36 probabilities>"
        with pytest.raises(ValueError, match="read-only"):
            asia().table("smoke")[0] = 1.0


class TestReading:
    DOG = """
    network dog { }
    variable out { type discrete [ 2 ] { true, false }; }
    variable bowel { type discrete [ 2 ] { true, false }; }
    variable dog { type discrete [ 2 ] { true, false }; }
    probability ( out ) { table 0.15, 0.85; }
    probability ( bowel ) { table 0.01, 0.99; }
    probability ( dog | bowel, out ) { table 0.99, 0.97, 0.9, 0.3, 0.01, 0.03, 0.1, 0.7; }
    """

    def test_a_table_lists_the_variable_first_and_its_last_parent_fastest(self) -> None:
        table = Network.parse(self.DOG).table("dog")
        assert table[..., 0].tolist() == [[0.99, 0.97], [0.9, 0.3]]  # [bowel, out]

    def test_a_default_fills_the_rows_that_are_not_given(self) -> None:
        text = self.DOG.replace(
            "table 0.99, 0.97, 0.9, 0.3, 0.01, 0.03, 0.1, 0.7;", "(true, false) 0.2, 0.8; default 0.5 0.5;"
        )
        assert Network.parse(text).table("dog")[..., 0].tolist() == [[0.5, 0.2], [0.5, 0.5]]

    def test_rounded_rows_are_scaled_to_one(self) -> None:
        text = "variable a { type discrete [ 3 ] { x, y, z }; } probability ( a ) { table 0.3333, 0.3333, 0.3333; }"
        np.testing.assert_allclose(Network.parse(text).table("a"), 1 / 3)

    def test_levels_of_any_shape_survive(self, tmp_path: Path) -> None:
        network = Network(
            levels={"o2": ("<5", "5-12", "12+"), "x ray": ("Asy/Patch", "a, b", "(c)", "")},
            parents={"x ray": ("o2",)},
            tables={"o2": [0.1, 0.2, 0.7], "x ray": np.full((3, 4), 0.25)},
        )
        network.write(tmp_path / "n.bif.gz")
        assert Network.read(tmp_path / "n.bif.gz") == network

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("table 0.15, 0.85;", "table 0.15;", "1 numbers, not 2"),
            ("table 0.15, 0.85;", "table 0.15, x;", "not a number"),
            ("table 0.15, 0.85;", "table 0.15, 1e999;", "not finite"),
            ("table 0.15, 0.85;", "", "'out' has no probabilities"),
            ("table 0.15, 0.85;", "(true) 0.15, 0.85;", "names 1 levels for 0 parents"),
            ("table 0.99, 0.97, 0.9, 0.3, 0.01, 0.03, 0.1, 0.7;", "(true, true) 1, 0;", "no row for (true, false)"),
            ("table 0.99, 0.97, 0.9, 0.3, 0.01, 0.03, 0.1, 0.7;", "(true, treu) 1, 0;", "Did you mean 'true'"),
            ("table 0.99, 0.97, 0.9, 0.3, 0.01, 0.03, 0.1, 0.7;", "(true, true) 1;", "2 levels, this row 1 numbers"),
            ("type discrete [ 2 ] { true, false };", "", "structure only"),
        ],
    )
    def test_an_incomplete_table_is_refused_with_its_line(self, old: str, new: str, message: str) -> None:
        with pytest.raises(ParseError) as caught:
            Network.parse(self.DOG.replace(old, new, 1), source="dog.bif")
        assert message in str(caught.value)
        assert caught.value.line is not None

    def test_rows_that_are_no_distribution_name_their_variable_and_file(self) -> None:
        with pytest.raises(InputError, match=r"^dog.bif: Every row of the table of 'out' must add up to 1"):
            Network.parse(self.DOG.replace("0.15, 0.85", "0.15, 0.75"), source="dog.bif")
        with pytest.raises(InputError, match="'out' must hold probabilities"):
            Network.parse(self.DOG.replace("0.15, 0.85", "-0.15, 1.15"))

    def test_a_cycle_is_a_graph_error(self) -> None:
        text = self.DOG.replace(
            "probability ( out ) { table 0.15, 0.85; }", "probability ( out | dog ) { default 1, 0; }"
        )
        with pytest.raises(GraphError, match=r"cycle: out → dog → out|cycle: dog → out → dog"):
            Network.parse(text)

    def test_a_table_too_large_to_hold_is_refused_before_it_is_made(self) -> None:
        names = [f"v{i}" for i in range(40)]
        text = "".join(f"variable {name} {{ type discrete [ 2 ] {{ a, b }}; }}\n" for name in names)
        text += "".join(f"probability ( {name} ) {{ table 0.5, 0.5; }}\n" for name in names[1:])
        text += f"probability ( v0 | {', '.join(names[1:])} ) {{ default 0.5, 0.5; }}"
        with pytest.raises(ParseError, match="would need 1,099,511,627,776 numbers"):
            Network.parse(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"levels": {"a": "xy"}}, "must be a list"),
        ({"levels": {"a": ()}}, "one or more"),
        ({"levels": {"a": ("x", "x")}}, "listed twice"),
        ({"parents": {"b": ("a",)}}, "parents names 'b'"),
        ({"parents": {"a": ("c",)}}, "edges names 'c'"),
        ({"tables": {}}, "'a' has no table"),
        ({"tables": {"a": [0.5, 0.5], "q": [1.0]}}, "tables names 'q'"),
        ({"tables": {"a": [[0.5, 0.5]]}}, r"shape \(2,\)"),
        ({"tables": {"a": ["x", "y"]}}, "array of numbers"),
        ({"tables": {"a": [np.nan, 1.0]}}, "hold probabilities"),
    ],
)
def test_an_inconsistent_network_is_refused(change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"levels": {"a": ("x", "y")}, "parents": {}, "tables": {"a": [0.5, 0.5]}, **change}
    with pytest.raises(InputError, match=message):
        Network(**arguments)  # type: ignore[arg-type]


def test_an_impossible_last_level_is_never_drawn_however_the_rest_is_rounded() -> None:
    table = [1 / 3, 1 / 3, 1 / 3 - 5e-13, 0.0]
    network = Network(levels={"a": ("w", "x", "y", "z")}, parents={}, tables={"a": table})

    class Highest(np.random.Generator):
        def random(self, size: int) -> np.ndarray:  # type: ignore[override]
            return np.full(size, np.nextafter(1.0, 0.0))

    assert network.sample(3, rng=Highest(np.random.PCG64(0)))["a"].tolist() == [2, 2, 2]
