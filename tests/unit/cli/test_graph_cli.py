"""``escudo graph``: what it prints, what it writes, how it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from escudo.causal import AncestralGraph, CausalGraph, Network, asia
from escudo.cli._graph import app
from escudo.errors import GraphError, InputError, ParseError

RICH = CausalGraph.from_edges(
    [("person", "y"), ("u", "y")], undirected=[("y", "z")], latents="u", outcomes="y", groups={"person": ["age", "sex"]}
)


@pytest.fixture
def rich_file(tmp_path: Path) -> Path:
    path = tmp_path / "rich.dot"
    RICH.write(path)
    return path


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


class TestShow:
    def test_each_node_is_listed_after_its_causes(self, tmp_path: Path) -> None:
        asia().graph.write(tmp_path / "asia.dot")
        lines = run("show", tmp_path / "asia.dot").splitlines()
        assert lines[0] == "asia.dot: 8 nodes, 8 arrows"
        listed = [line.split()[0] for line in lines[1:]]
        assert all(listed.index(a) < listed.index(b) for a, b in asia().graph.edges)
        assert next(line for line in lines if line.startswith("  either")).endswith("← tub, lung")

    def test_flags_groups_and_undirected_edges_show(self, rich_file: Path) -> None:
        out = run("show", rich_file)
        assert "(latent)" in out
        assert "(outcome)" in out
        assert "(2 columns: age, sex)" in out
        assert "— z" in out

    def test_a_partial_ancestral_graph_is_listed_by_its_edges_and_drawn(self, tmp_path: Path) -> None:
        AncestralGraph.from_edges([("a", "o->", "b"), ("b", "<->", "c")]).write(tmp_path / "found.dot")
        shown = run("show", tmp_path / "found.dot", "--svg", tmp_path / "found.svg")
        assert "found.dot: 3 nodes, 0 arrows, 1 hidden common cause, 1 half open" in shown
        assert "  a o→ b\n  b ↔ c\n" in shown
        assert "<circle" in (tmp_path / "found.svg").read_text()
        assert json.loads(run("show", tmp_path / "found.dot", "--json"))["edges"] == [
            ["a", "o->", "b"],
            ["b", "<->", "c"],
        ]

    def test_json_says_everything(self, rich_file: Path) -> None:
        payload = json.loads(run("show", rich_file, "--json"))
        assert payload["edges"] == [["person", "y"], ["u", "y"]]
        assert payload["undirected_edges"] == [["y", "z"]]
        assert payload["latents"] == ["u"]
        assert payload["groups"] == {"person": ["age", "sex"]}
        assert payload["is_dag"] is False
        assert payload["svg"] is None

    def test_svg_is_drawn_and_never_over_an_existing_file(self, rich_file: Path, tmp_path: Path) -> None:
        out = tmp_path / "rich.svg"
        assert f"Drawn into {out}." in run("show", rich_file, "--svg", out).replace("\n", "")
        assert ElementTree.parse(out).getroot().tag.endswith("svg")
        out.write_text("mine")
        with pytest.raises(InputError, match="exists; choose another name, or pass --force"):
            run("show", rich_file, "--svg", out)
        assert out.read_text() == "mine"
        run("show", rich_file, "--svg", out, "--force")
        assert out.read_text() != "mine"
        with pytest.raises(InputError, match="cannot be written: File name too long"):
            run("show", rich_file, "--svg", tmp_path / f"{'g' * 300}.svg")

    def test_names_cannot_steer_the_terminal(self, tmp_path: Path) -> None:
        CausalGraph.from_edges([("\x1b[31mred", "b[bold]")]).write(tmp_path / "g.dot")
        out = run("show", tmp_path / "g.dot")
        assert "\x1b" not in out
        assert "b[bold]" in out


class TestConvert:
    @pytest.mark.parametrize("name", ["g.gml", "g.gv"])
    def test_everything_survives_where_it_can(self, rich_file: Path, tmp_path: Path, name: str) -> None:
        assert "Wrote" in run("convert", rich_file, tmp_path / name)
        assert CausalGraph.read(tmp_path / name) == RICH

    def test_nothing_is_lost_unless_told_to(self, rich_file: Path, tmp_path: Path) -> None:
        out = tmp_path / "g.csv"
        with pytest.raises(GraphError, match="cannot carry this graph's latents"):
            run("convert", rich_file, out)
        assert not out.exists()
        run("convert", rich_file, out, "--lossy")
        assert CausalGraph.read(out).latents == frozenset()

    def test_an_existing_file_is_left_alone(self, rich_file: Path, tmp_path: Path) -> None:
        out = tmp_path / "g.gml"
        out.write_text("mine")
        with pytest.raises(InputError, match="--force"):
            run("convert", rich_file, out)
        assert out.read_text() == "mine"
        run("convert", rich_file, out, "--force")
        assert CausalGraph.read(out) == RICH

    def test_tables_stay_behind_with_a_note_but_survive_from_bif_to_bif(self, tmp_path: Path) -> None:
        asia().write(tmp_path / "asia.bif")
        payload = json.loads(run("convert", tmp_path / "asia.bif", tmp_path / "asia.dagitty", "--json"))
        assert payload["from"] == "bif"
        assert payload["to"] == "dagitty"
        assert payload["note"] == "Its probability tables stay behind."
        assert CausalGraph.read(tmp_path / "asia.dagitty") == asia().graph
        run("convert", tmp_path / "asia.bif", tmp_path / "asia.bif.gz")
        assert Network.read(tmp_path / "asia.bif.gz") == asia()

    def test_an_ending_that_names_no_format_is_refused(self, rich_file: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="names no graph format"):
            run("convert", rich_file, tmp_path / "g.xyz")


class TestCheck:
    def test_a_good_graph_passes(self, rich_file: Path) -> None:
        out = run("check", rich_file)
        assert "no cycle" in out
        assert "1 edge has no direction" in out

    def test_a_cycle_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "loop.dot"
        path.write_text("digraph { smoke -> lung -> cough -> smoke }")
        with pytest.raises(GraphError, match=r"loop\.dot: The graph has a cycle: smoke → lung → cough → smoke"):
            run("check", path)

    def test_a_broken_file_names_its_line(self, tmp_path: Path) -> None:
        path = tmp_path / "broken.dot"
        path.write_text("digraph {\n a -> -> b\n}")
        with pytest.raises(ParseError, match=r"broken\.dot, line 2, column 7"):
            run("check", path)

    @pytest.fixture
    def schema(self, tmp_path: Path) -> Path:
        from escudo.table import Schema

        yes_no = ["no", "yes"]
        path = tmp_path / "schema.toml"
        Schema.from_dict(dict.fromkeys(("age", "sex", "y", "z", "u", "extra"), yes_no)).write(path)
        return path

    def test_names_are_compared_with_the_schema_through_groups(self, rich_file: Path, schema: Path) -> None:
        payload = json.loads(run("check", rich_file, "--schema", schema, "--json"))
        assert payload["not_in_graph"] == ["extra"]
        assert payload["latent_in_schema"] == ["u"]
        text = run("check", rich_file, "--schema", schema)
        assert "all 4 columns are in schema.toml" in text
        assert "not in the graph: extra" in text
        assert "latent in the graph, yet a column of the schema: u" in text

    def test_a_name_the_schema_does_not_have_is_refused_with_a_hint(self, tmp_path: Path, schema: Path) -> None:
        path = tmp_path / "g.dot"
        CausalGraph.from_edges([("agee", "y"), ("q", "z")]).write(path)
        with pytest.raises(GraphError, match=r"g.dot names 'agee' and 1 more.*Did you mean 'age'.*latent"):
            run("check", path, "--schema", schema)


def test_help_lists_the_three_commands() -> None:
    out = run("--help")
    assert all(command in out for command in ("show", "convert", "check"))
