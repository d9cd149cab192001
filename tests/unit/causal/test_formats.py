"""Graph files as they are met in the wild, and what each format carries."""

from __future__ import annotations

import gzip
from pathlib import Path

import networkx as nx
import pytest

from escudo.causal import CausalGraph, formats
from escudo.errors import GraphError, InputError

RICH = CausalGraph.from_edges(
    [("person", "treatment"), ("u", "treatment"), ("u", "outcome"), ("treatment", "outcome")],
    undirected=[("person", "region")],
    nodes=["alone"],
    latents="u",
    exposures="treatment",
    outcomes="outcome",
    groups={"person": ["age", 'the "sex"']},
    required=[("treatment", "outcome")],
    forbidden=[("outcome", "person")],
    tiers=[["person"], ["treatment", "outcome"]],
)
CHAIN = CausalGraph.from_edges([("X", "Y"), ("Y", "Z")])


def edges(text: str, format: formats.FormatName | None = None) -> set[tuple[str, str]]:
    return set(CausalGraph.parse(text, format).edges)


class TestDot:
    def test_chains_give_every_link(self) -> None:
        assert CausalGraph.parse("digraph { X -> Y -> Z }") == CHAIN

    @pytest.mark.parametrize(
        "text",
        [
            "digraph {\nX->Y;\nY->Z;\n}\n",
            "digraph{X->Y Y->Z}",
            "\n\n  strict digraph G {\r\n  X -> Y\r\n  Y -> Z;;\r\n}\r\n\n",
            'digraph "my graph" { "X" -> "Y"; Y:port:ne -> Z:n; }',
            "// c\n/* d -> e\n */ digraph { X -> Y # f -> g\n Y -> Z /* h */ }",
            '# line\ndigraph { rankdir=LR; node [shape=box]; edge [color=red] graph [label="a -> b"] X -> Y -> Z }',
            'DiGraph { X [label="Y -> Q", pos="1,2!"]; X -> Y [weight=2.5, label="p -> q"]; Y -> Z [style=dot][x=y] }',
            "digraph { subgraph cluster_1 { label=inner; X } X -> Y; subgraph { Y -> Z } }",
            "digraph { X [label=<<b>bold</b> -&gt; }>]; X -> Y -> Z }",
            'digraph { "X" + "" -> "Y"\nY -> "\\\nZ" }',
            "\ufeffdigraph { X → Y → Z }",
            "digraph { X -> Y -> Z }".replace(" ", "\u00a0"),
        ],
    )
    def test_ways_to_write_the_same_chain(self, text: str) -> None:
        assert CausalGraph.parse(text) == CHAIN

    def test_subgraphs_stand_for_all_their_nodes(self) -> None:
        assert edges("digraph { {A B} -> {C; D} }") == {("A", "C"), ("A", "D"), ("B", "C"), ("B", "D")}
        assert edges("digraph { A -> {B -> C} }") == {("A", "B"), ("A", "C"), ("B", "C")}

    @pytest.mark.parametrize(
        "flag",
        [
            "latent",
            "latent=true",
            "latent=1",
            "observed=no",
            'observed="False"',
            'label="Unobserved Confounders"',
            "hidden",
        ],
    )
    def test_latent_flags_of_all_kinds(self, flag: str) -> None:
        assert CausalGraph.parse(f"digraph {{ U [{flag}]; U -> X }}").latents == {"U"}

    @pytest.mark.parametrize("flag", ["latent=false", "observed=yes", "latent=no", 'label="latent"'])
    def test_flags_that_say_no(self, flag: str) -> None:
        assert CausalGraph.parse(f"digraph {{ U [{flag}]; U -> X }}").latents == frozenset()

    def test_defaults_apply_from_where_they_stand_and_only_inside(self) -> None:
        graph = CausalGraph.parse("digraph { a; { node [latent] u v; } b; u -> {a b}; edge [dir=none]; a -> c }")
        assert graph.latents == {"u", "v"}
        assert graph.undirected_edges == (("a", "c"),)
        assert graph.edges == (("u", "a"), ("u", "b"))

    def test_arrowheads_decide_the_kind_of_edge(self) -> None:
        graph = CausalGraph.parse(
            "digraph { a -> b [dir=none]; c -> d [dir=back]; e -> f [dir=both, arrowtail=none];"
            " g -> h [arrowhead=none]; i -- j }"
        )
        assert set(graph.undirected_edges) == {("a", "b"), ("g", "h"), ("i", "j")}
        assert set(graph.edges) == {("d", "c"), ("e", "f")}

    def test_two_arrowheads_are_a_latent_common_cause(self) -> None:
        graph = CausalGraph.parse("digraph { x -> y; x -> y [dir=both]; y -> x [dir=both]; U_x_y -> x }")
        assert graph.latents == {"U_x_y_2"}
        assert graph.children("U_x_y_2") == ("x", "y")

    def test_an_undirected_graph_has_undirected_edges(self) -> None:
        assert CausalGraph.parse("graph { a -- b -- c }").undirected_edges == (("a", "b"), ("b", "c"))

    def test_the_stray_newline_node_of_pydot_is_dropped(self) -> None:
        assert CausalGraph.parse('strict digraph {\nX;\n"\\n";\n"\\r\\n" ;\nX -> Y;\nY -> Z;\n"\\n";\n}') == CHAIN

    def test_names_with_anything_in_them_survive(self) -> None:
        odd = [
            'a"b',
            "new\nline",
            "back\\slash",
            "trail\\",
            "\\n",
            "->",
            "digraph",
            "{x}",
            "ü→",
            " pad ",
            "tab\t",
            "#1",
        ]
        graph = CausalGraph.from_edges([(odd[0], name) for name in odd[1:]])
        assert CausalGraph.parse(graph.to_text("dot")) == graph

    def test_numerals_are_names(self) -> None:
        assert edges("digraph { 1 -> 2.5; -3 -> .5 }") == {("1", "2.5"), ("-3", ".5")}


class TestDagitty:
    WEB = """
    dag {
    bb="0,0,1,1"
    "age group" [pos="-2.2,-1.5"]
    D [outcome,pos="1.4,1.6"]
    E [exposure,pos="-2.2,1.6"]
    latent [latent,pos="0.8,0.4"]
    "age group" -> E
    "age group" -> Z [pos="-0.791,-1.045"]
    Z [adjusted]
    E -> D
    latent -> D
    latent -> E
    }
    """

    def test_a_graph_from_the_web_page(self) -> None:
        graph = CausalGraph.parse(self.WEB)
        assert graph.exposures == {"E"}
        assert graph.outcomes == {"D"}
        assert graph.latents == {"latent"}
        assert graph.parents("E") == ("age group", "latent")
        assert CausalGraph.parse(graph.to_text("dagitty")) == graph

    def test_one_line_with_chains_sets_and_both_arrows(self) -> None:
        graph = CausalGraph.parse("dag{ x <- u -> y; x -> {a, b} -> y <-> z }")
        assert {("u", "x"), ("u", "y"), ("x", "a"), ("x", "b"), ("a", "y"), ("b", "y")} <= set(graph.edges)
        assert graph.latents == {"U_y_z"}

    def test_whitespace_alone_separates_statements(self) -> None:
        assert edges("dag { x -> y y -> z }") == {("x", "y"), ("y", "z")}

    def test_pdag_edges_may_have_no_direction(self) -> None:
        graph = CausalGraph.parse("pdag { x -- y -> z }")
        assert graph.undirected_edges == (("x", "y"),)
        assert graph.to_text("dagitty").startswith("pdag {")


class TestGml:
    DOWHY = (
        'graph[directed 1node[ id "TOEFL Score" label "TOEFL Score"]node[ id "U" label "Unobserved Confounders"]'
        'node[ id "Admit" label "Admit"]edge[source "TOEFL Score" target "Admit"]edge[source "U" target "Admit"]]'
    )

    def test_dowhy_writes_a_key_right_after_a_number(self) -> None:
        graph = CausalGraph.parse(self.DOWHY)
        assert set(graph.nodes) == {"TOEFL Score", "Unobserved Confounders", "Admit"}
        assert graph.latents == {"Unobserved Confounders"}

    def test_labels_name_nodes_and_ids_where_there_are_none(self) -> None:
        text = (
            'Creator "me"\nVersion 1\ngraph [ directed 1 node [ id 7 label "a b" graphics [ x 1.5e3 ] ]\n'
            "node [ id 8 ] edge [ source 7 target 8 value -1 ] ]"
        )
        assert edges(text) == {("a b", "8")}

    def test_without_directed_1_edges_are_undirected_as_the_format_says(self) -> None:
        text = "graph [ node [ id 1 ] node [ id 2 ] edge [ source 1 target 2 ] ]"
        assert CausalGraph.parse(text).undirected_edges == (("1", "2"),)

    def test_networkx_reads_what_we_write(self) -> None:
        graph = CausalGraph.from_edges([('sm"oke & co', "lüng\n2"), ("lüng\n2", "c")])
        theirs = nx.parse_gml(graph.to_text("gml"))
        assert set(theirs.edges) == set(graph.edges)

    def test_we_read_what_networkx_writes(self) -> None:
        theirs = nx.DiGraph([("sm&oke", "lüng"), ("lüng", 'c"')])
        theirs.nodes["sm&oke"]["latent"] = 1
        graph = CausalGraph.parse("\n".join(nx.generate_gml(theirs)))
        assert set(graph.edges) == set(theirs.edges)
        assert graph.latents == {"sm&oke"}

    def test_comments_and_entities(self) -> None:
        text = (
            '# comment [\ngraph [ directed 1\n# another ]\nnode [ id 1 label "caf&eacute; &#x41;&bogus;&#9999999;" ] ]'
        )
        assert CausalGraph.parse(text).nodes == ("café A&bogus;&#9999999;",)


class TestEdgeList:
    @pytest.mark.parametrize(
        "text",
        [
            "X -> Y\nY -> Z\n",
            "X->Y->Z",
            "X --> Y\r\nZ <-- Y\r\n",
            "X,Y\nY,Z",
            "source,target\nX,Y\nY,Z\n",
            "from\tto\nX\tY\nY\tZ",
            "X Y\nY Z",
            "# comment\nX Y {}\nY Z {'weight': 3}\n",
            "cause,effect,weight\nX,Y,0.5\nY,Z,-1e-3\n",
            "X → Y; Y → Z",
            '"X" -> "Y" # trailing\n"Y", "Z"',
        ],
    )
    def test_ways_to_write_the_same_chain(self, text: str) -> None:
        assert CausalGraph.parse(text, "edgelist") == CHAIN
        assert CausalGraph.parse(text) == CHAIN

    def test_names_with_spaces_need_no_quotes_beside_arrows_and_commas(self) -> None:
        assert edges("lung cancer -> X-ray\n") == {("lung cancer", "X-ray")}
        assert edges("lung cancer, X-ray\n") == {("lung cancer", "X-ray")}

    def test_a_name_alone_is_a_node_and_two_dashes_are_undirected(self) -> None:
        graph = CausalGraph.parse("alone\na -- b\nb --- c\nd <-> e")
        assert graph.undirected_edges == (("a", "b"), ("b", "c"))
        assert graph.latents == {"U_d_e"}
        assert "alone" in graph

    def test_nodes_called_from_and_to_are_safe_in_what_we_write(self) -> None:
        graph = CausalGraph.from_edges([("from", "to")])
        assert CausalGraph.parse(graph.to_text("edgelist")) == graph


class TestCsv:
    @pytest.mark.parametrize(
        "text",
        [
            ",X,Y,Z\nX,0,1,0\nY,0,0,1\nZ,0,0,0\n",
            "X,Y,Z\n0,1,0\n0,0,1\n0,0,0\n",
            "X;Y;Z\r\n0;1;0\r\n0;0;1\r\n0;0;0",
            '"";"X";"Y";"Z"\n"X";0;1;0\n"Y";0;0;1\n"Z";0;0;0\n',
            "X\tY\tZ\n0\t1\t0\n0\t0\t1\n0\t0\t0\n",
            "node, X, Y, Z\nZ, 0, 0, 0\nX, 0.0, 1.0, 0.0\nY, 0, 0, 1\n\n",
            "X,Y,Z\nX,0,1,0\nY,0,0,1\nZ,0,0,0\n",
            ",X,Y,Z\nX,,1,\nY,,,1\nZ,,,\n",
        ],
    )
    def test_ways_to_write_the_same_table(self, text: str) -> None:
        assert CausalGraph.parse(text, "csv") == CHAIN

    def test_a_table_without_an_ending_to_go_by_is_recognised(self) -> None:
        assert CausalGraph.parse(CHAIN.to_text("csv")) == CHAIN

    def test_one_both_ways_is_undirected(self) -> None:
        graph = CausalGraph.parse("a,b\n0,1\n1,0\n", "csv")
        assert graph.undirected_edges == (("a", "b"),)

    def test_a_csv_with_a_header_of_edges_is_an_edge_list(self, tmp_path: Path) -> None:
        path = tmp_path / "edges.csv"
        path.write_text("Source,Target\nX,Y\nY,Z\n")
        assert CausalGraph.read(path) == CHAIN


class TestBif:
    JAVABAYES = """
    // Bayesian network
    network "Dog-Problem" { //5 variables
        property "credal-set constant-density-bounded 1.1" ;
    }
    variable  "light-on" { //2 values
        type discrete[2] {  "true"  "false" };
        property "position = (218, 195); shown" ;
    }
    variable family-out { type discrete[2] { true, false }; }
    probability (  "light-on"  "family-out" ) { table 0.6 0.05 0.4 0.95 ; }
    probability ( "family-out" ) { table 0.15 0.85; property x; }
    """

    def test_the_older_dialect_without_bars_and_commas(self) -> None:
        assert edges(self.JAVABAYES) == {("family-out", "light-on")}

    def test_structure_only_is_valid_and_comes_back(self) -> None:
        odd = CausalGraph.from_edges([("a b", 'q"\\'), ("a b", "variable"), ("//", "/*")], nodes=["alone"])
        assert CausalGraph.parse(odd.to_text("bif")) == odd


class TestCarrying:
    @pytest.mark.parametrize("format", ["dot", "gml"])
    def test_dot_and_gml_carry_everything(self, format: formats.FormatName) -> None:
        back = CausalGraph.parse(RICH.to_text(format))
        assert back == RICH
        assert back.nodes == RICH.nodes

    @pytest.mark.parametrize(
        ("format", "lost"),
        [
            ("dagitty", "groups, knowledge"),
            ("bif", "undirected edges, latents, exposures or outcomes, groups, knowledge"),
            ("csv", "latents, exposures or outcomes, groups, knowledge"),
            ("edgelist", "latents, exposures or outcomes, groups, knowledge"),
        ],
    )
    def test_the_others_refuse_to_lose_anything_unless_told_to(self, format: formats.FormatName, lost: str) -> None:
        with pytest.raises(GraphError, match=f"cannot carry this graph's {lost}"):
            RICH.to_text(format)
        assert set(CausalGraph.parse(RICH.to_text(format, lossy=True)).edges) == set(RICH.edges)

    def test_the_table_in_the_docstring_says_what_the_code_does(self) -> None:
        rows = [line.split("|")[1:-1] for line in (formats.__doc__ or "").splitlines() if line.startswith("| `")]
        assert len(rows) == len(formats.FORMATS)
        for name, endings, arrows, *carried in [[cell.strip() for cell in row] for row in rows]:
            form = formats.FORMATS[name.strip("`")]  # type: ignore[index]
            assert set(form.endings) <= set(endings.split())
            assert arrows == "yes"
            has = [what in form.carries for what in ("undirected edges", "latents", "groups")]
            assert carried == ["yes" if kept else "no" for kept in has]


class TestFiles:
    @pytest.mark.parametrize(
        "name", ["g.dot", "g.gv", "g.gml", "g.dagitty", "g.bif", "g.bif.gz", "g.csv", "g.edges", "g.DOT"]
    )
    def test_the_ending_names_the_format(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / name
        CHAIN.write(path)
        assert CausalGraph.read(path) == CHAIN
        assert [file.name for file in tmp_path.iterdir()] == [name]

    @pytest.mark.parametrize("format", list(formats.FORMATS))
    def test_text_files_are_recognised_by_content(self, tmp_path: Path, format: formats.FormatName) -> None:
        path = tmp_path / "graph.txt"
        path.write_text("\n\n" + CHAIN.to_text(format) if format != "csv" else CHAIN.to_text(format))
        assert CausalGraph.read(path) == CHAIN

    def test_writing_twice_replaces_and_packing_is_reproducible(self, tmp_path: Path) -> None:
        path = tmp_path / "g.bif.gz"
        CausalGraph.from_edges([("q", "r")]).write(path)
        CHAIN.write(path)
        first = path.read_bytes()
        CHAIN.write(path)
        assert path.read_bytes() == first
        assert gzip.decompress(first).startswith(b"network")

    def test_an_unknown_ending_cannot_be_written_to(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"'g.xyz' names no graph format. Use one of \.dot"):
            CHAIN.write(tmp_path / "g.xyz")
        CHAIN.write(tmp_path / "g.xyz", "dot")
        assert CausalGraph.read(tmp_path / "g.xyz") == CHAIN

    def test_a_byte_order_mark_and_any_line_end_are_fine(self, tmp_path: Path) -> None:
        path = tmp_path / "g.dot"
        path.write_bytes("\ufeffdigraph {\r X -> Y\r\n Y -> Z\n }".encode())
        assert CausalGraph.read(path) == CHAIN

    def test_an_unknown_format_is_refused_with_a_hint(self) -> None:
        with pytest.raises(InputError, match="Did you mean 'dagitty'"):
            CausalGraph.parse("dag {x}", "daggity")  # type: ignore[arg-type]
