"""CausalGraph as a value: what it accepts, what it refuses, what it says."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError
from itertools import pairwise
from typing import ClassVar

import networkx as nx
import numpy as np
import pytest

from escudo.causal import CausalGraph, Knowledge, reach
from escudo.errors import EscudoError, GraphError, InputError

ASIA = [
    ("asia", "tub"),
    ("smoke", "lung"),
    ("smoke", "bronc"),
    ("lung", "either"),
    ("tub", "either"),
    ("either", "xray"),
    ("bronc", "dysp"),
    ("either", "dysp"),
]


@pytest.fixture
def asia() -> CausalGraph:
    return CausalGraph.from_edges(ASIA)


class TestMaking:
    def test_nodes_come_in_the_order_given_then_met(self) -> None:
        graph = CausalGraph.from_edges([("b", "a"), ("a", "c")], nodes=["z", "c"])
        assert graph.nodes == ("z", "c", "b", "a")

    def test_duplicate_edges_collapse(self) -> None:
        graph = CausalGraph.from_edges([("a", "b"), ("a", "b")], undirected=[("b", "c"), ("c", "b")])
        assert graph.edges == (("a", "b"),)
        assert graph.undirected_edges == (("b", "c"),)

    def test_a_cycle_is_named_with_its_nodes_and_a_remedy(self) -> None:
        with pytest.raises(GraphError) as caught:
            CausalGraph.from_edges([("x", "smoke"), ("smoke", "lung"), ("lung", "cough"), ("cough", "smoke")])
        assert str(caught.value) == (
            "The graph has a cycle: smoke → lung → cough → smoke. "
            "A causal graph must be acyclic; remove one of these arrows."
        )

    def test_a_long_cycle_is_cut_in_its_middle(self) -> None:
        names = [f"n{i}" for i in range(5000)]
        with pytest.raises(GraphError, match=r"n0 → n1 .*… → n4999 → n0\. A causal") as caught:
            CausalGraph.from_edges([*pairwise(names), (names[-1], names[0])])
        assert len(str(caught.value)) < 300

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"edges": [("a", "a")]}, "'a' to itself"),
            ({"edges": [("a", "b"), ("b", "a")]}, "cycle: a → b → a"),
            ({"edges": ["ab"]}, "pairs of names"),
            ({"edges": "ab"}, "list of pairs"),
            ({"edges": {"a": "b"}}, "list of pairs"),
            ({"edges": [("a", "b", "c")]}, "pairs of names"),
            ({"edges": [("a", 1)]}, "pairs of names"),
            ({"edges": [], "nodes": [3]}, "must be text; got int 3"),
            ({"edges": [], "nodes": [""]}, "blank"),
            ({"edges": [(" \n", "b")]}, "blank"),
            ({"edges": [], "nodes": ["\ud800"]}, "valid Unicode"),
            ({"edges": [], "nodes": ["x" * 1001]}, "at most 1000"),
            ({"edges": [("a", "b")], "latents": ["c"]}, "latents names 'c'"),
            ({"edges": [("smoke", "b")], "exposures": "smok"}, "Did you mean 'smoke'"),
            ({"edges": [("a", "b")], "undirected": [("b", "a")]}, "both an arrow and an undirected"),
            ({"edges": [("a", "b")], "groups": {"a": []}}, "no columns"),
            ({"edges": [("a", "b")], "groups": {"a": ["b"]}}, "a node of its own"),
            ({"edges": [("a", "b")], "groups": {"a": ["x"], "b": ["x"]}}, "in group 'a'"),
            ({"edges": [("a", "b")], "groups": {"a": ["x"]}, "latents": ["a"]}, "latent has no columns"),
            ({"edges": [("a", "b")], "groups": {"a": "xy"}}, "group 'a' must be a list"),
            ({"edges": [("a", "b")], "tiers": ["ab"]}, "tiers must be lists"),
        ],
    )
    def test_bad_input_is_refused_with_the_reason(self, arguments: dict[str, object], message: str) -> None:
        with pytest.raises(GraphError, match=message):
            CausalGraph.from_edges(**arguments)  # type: ignore[arg-type]

    def test_the_constructor_wants_every_edge_among_its_nodes(self) -> None:
        with pytest.raises(GraphError, match=r"edges names 'lun', .* Did you mean 'lung'"):
            CausalGraph(nodes=("smoke", "lung"), edges=(("smoke", "lun"),))
        with pytest.raises(GraphError, match="one text"):
            CausalGraph(nodes="ab")  # type: ignore[arg-type]

    def test_errors_are_input_errors_with_exit_code_2(self) -> None:
        with pytest.raises(InputError) as caught:
            CausalGraph.from_edges([("a", "a")])
        assert isinstance(caught.value, EscudoError)
        assert caught.value.exit_code == 2


class TestValue:
    def test_equality_and_hash_go_by_content_not_order(self, asia: CausalGraph) -> None:
        other = CausalGraph.from_edges(ASIA[::-1])
        assert asia == other
        assert hash(asia) == hash(other)
        assert asia.nodes != other.nodes
        assert asia != CausalGraph.from_edges(ASIA[1:], nodes=["asia"])
        assert asia != CausalGraph.from_edges(ASIA, latents=["smoke"])
        assert asia != CausalGraph.from_edges(ASIA, tiers=[["asia"]])
        assert asia != "asia"

    def test_it_is_frozen(self, asia: CausalGraph) -> None:
        with pytest.raises(FrozenInstanceError):
            asia.nodes = ()  # type: ignore[misc]
        grouped = CausalGraph.from_edges([("g", "y")], groups={"g": ["a", "b"]})
        with pytest.raises(TypeError):
            grouped.groups["g"] = ()  # type: ignore[index]

    def test_it_survives_pickle_and_copy(self) -> None:
        graph = CausalGraph.from_edges(
            [("g", "y"), ("u", "y")],
            latents="u",
            groups={"g": ["a", "b"]},
            forbidden=[("y", "g")],
            tiers=[["g"], ["y"]],
        )
        assert pickle.loads(pickle.dumps(graph)) == graph
        assert copy.deepcopy(graph) == graph

    def test_repr_counts_and_names_nothing(self) -> None:
        graph = CausalGraph.from_edges([("secret", "b")], undirected=[("b", "c")], latents=["secret"])
        assert repr(graph) == "<CausalGraph: 3 nodes, 1 arrow, 1 undirected edge, 1 latent>"

    def test_membership_and_length(self, asia: CausalGraph) -> None:
        assert "smoke" in asia
        assert "smok" not in asia
        assert len(asia) == 8


class TestQuestions:
    def test_family(self, asia: CausalGraph) -> None:
        assert asia.parents("either") == ("tub", "lung")
        assert asia.children("smoke") == ("lung", "bronc")
        assert asia.ancestors("either") == ("asia", "tub", "smoke", "lung")
        assert asia.descendants(["tub", "bronc"]) == ("either", "xray", "dysp")
        assert asia.markov_blanket("either") == ("tub", "lung", "bronc", "xray", "dysp")
        assert asia.parents("asia") == asia.neighbours("asia") == ()

    def test_adjacencies_are_sorted_pairs(self) -> None:
        graph = CausalGraph.from_edges([("b", "a")], undirected=[("c", "a")])
        assert graph.adjacencies == (("a", "b"), ("a", "c"))

    def test_topological_order_puts_causes_first(self, asia: CausalGraph) -> None:
        order = asia.topological_order()
        assert sorted(order) == sorted(asia.nodes)
        assert all(order.index(a) < order.index(b) for a, b in asia.edges)

    def test_unknown_names_are_refused_with_a_hint(self, asia: CausalGraph) -> None:
        with pytest.raises(GraphError, match="Did you mean 'smoke'"):
            asia.parents("smokes")
        with pytest.raises(GraphError, match="not in the graph"):
            asia.parents(["smoke"])  # type: ignore[arg-type]
        with pytest.raises(GraphError, match="'nobody'"):
            asia.d_separated("asia", "smoke", given=["nobody"])

    def test_d_separation_on_textbook_cases(self, asia: CausalGraph) -> None:
        assert asia.d_separated("asia", "smoke")
        assert not asia.d_separated("asia", "smoke", given="dysp")
        assert asia.d_separated("lung", "bronc", given="smoke")
        assert asia.d_separated(["asia", "tub"], ["smoke", "bronc"])
        assert not asia.d_separated("xray", "dysp", given=["smoke"])

    def test_a_latent_left_out_of_given_keeps_its_path_open(self) -> None:
        graph = CausalGraph.from_edges([("u", "x"), ("u", "y")], latents="u")
        assert not graph.d_separated("x", "y")
        assert graph.d_separated("x", "y", given="u")
        assert graph.observed == ("x", "y")

    def test_d_separation_refuses_overlap_and_empty_sides(self, asia: CausalGraph) -> None:
        with pytest.raises(GraphError, match="'asia' is named twice"):
            asia.d_separated("asia", "asia")
        with pytest.raises(GraphError, match="named twice"):
            asia.d_separated("asia", "tub", given="tub")
        with pytest.raises(GraphError, match="at least one"):
            asia.d_separated([], "tub")

    def test_questions_that_need_directions_say_so(self) -> None:
        graph = CausalGraph.from_edges([], undirected=[("a", "b")])
        assert not graph.is_dag
        for method in ("moral", "cpdag"):
            with pytest.raises(GraphError, match=r"a — b has none.*extension\(\)"):
                getattr(graph, method)()
        with pytest.raises(GraphError, match="do needs"):
            graph.do("a")


class TestOtherGraphs:
    def test_do_cuts_the_arrows_into_the_node(self, asia: CausalGraph) -> None:
        done = asia.do(["lung", "dysp"])
        assert set(asia.edges) - set(done.edges) == {("smoke", "lung"), ("bronc", "dysp"), ("either", "dysp")}
        assert done.nodes == asia.nodes

    def test_do_drops_what_was_required_into_the_node(self) -> None:
        graph = CausalGraph.from_edges([("a", "b")], required=[("a", "b")], forbidden=[("b", "a")])
        assert graph.do("b").required == ()
        assert graph.do("b").forbidden == (("b", "a"),)

    def test_moral_marries_parents_and_skeleton_does_not(self, asia: CausalGraph) -> None:
        assert set(asia.moral().adjacencies) - set(asia.skeleton().adjacencies) == {
            ("lung", "tub"),
            ("bronc", "either"),
        }
        assert asia.skeleton().edges == ()

    def test_subgraph_keeps_edges_flags_and_knowledge_inside(self) -> None:
        graph = CausalGraph.from_edges(
            [("a", "b"), ("b", "c"), ("u", "c")],
            latents="u",
            required=[("a", "b")],
            forbidden=[("c", "a")],
            tiers=[["a"], ["b", "c"]],
        )
        part = graph.subgraph(["c", "b", "u"])
        assert part == CausalGraph.from_edges([("b", "c"), ("u", "c")], latents="u", tiers=[["b", "c"]])
        assert part.nodes == ("b", "c", "u")


class TestGroups:
    GRAPH = CausalGraph.from_edges(
        [("person", "answers"), ("u", "answers")],
        latents="u",
        groups={"person": ["age", "school"], "answers": ["q1", "q2", "q3"]},
        tiers=[["person"], ["answers"]],
        exposures="person",
    )

    def test_columns_are_those_of_the_groups(self) -> None:
        assert self.GRAPH.columns == ("age", "school", "q1", "q2", "q3")

    def test_expanding_joins_every_column_of_one_group_to_every_column_of_the_other(self) -> None:
        wide = self.GRAPH.expand("independent")
        assert wide.parents("q2") == ("age", "school", "u")
        assert len(wide.edges) == 2 * 3 + 3
        assert wide.tiers == (("age", "school"), ("q1", "q2", "q3"))
        assert wide.exposures == {"age", "school"}
        assert wide.latents == {"u"}
        assert wide.groups == {}

    def test_inside_a_group_nothing_is_claimed(self) -> None:
        undirected = self.GRAPH.expand()
        assert undirected.undirected_edges == (("age", "school"), ("q1", "q2"), ("q1", "q3"), ("q2", "q3"))
        ordered = self.GRAPH.expand("ordered")
        assert ordered.is_dag
        assert ordered.adjacencies == undirected.adjacencies
        assert not ordered.d_separated("q1", "q3", given=["age", "school", "u", "q2"])
        assert self.GRAPH.expand("independent").d_separated("q1", "q3", given=["age", "school", "u"])

    def test_every_order_of_a_group_is_equivalent(self) -> None:
        assert self.GRAPH.expand().extension().cpdag() == self.GRAPH.expand("ordered").cpdag()

    def test_an_unknown_way_is_refused(self) -> None:
        with pytest.raises(InputError, match="within must be one of"):
            self.GRAPH.expand("undirect")  # type: ignore[arg-type]


class TestKnowledge:
    def test_tiers_forbid_going_back_and_nothing_else(self) -> None:
        known = Knowledge(tiers=(("a", "b"), ("c",)))
        assert known.forbids("c", "a")
        assert not known.forbids("a", "c")
        assert not known.forbids("a", "b")
        assert not known.forbids("c", "free")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"required": [("a", "b")], "forbidden": [("a", "b")]}, "both required and forbidden"),
            ({"required": [("b", "a")], "tiers": [["a"], ["b"]]}, "ruled out by the tiers"),
            ({"required": [("a", "b"), ("b", "a")]}, "required arrows make a cycle: a → b → a"),
            ({"tiers": [["a"], ["a"]]}, "two tiers"),
            ({"tiers": [[1]]}, "lists of names"),
            ({"forbidden": [("a", "a")]}, "itself"),
        ],
    )
    def test_contradictions_are_refused(self, arguments: dict[str, object], message: str) -> None:
        with pytest.raises(GraphError, match=message):
            Knowledge(**arguments)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"forbidden": [("a", "b")]}, "a → b is forbidden"),
            ({"tiers": [["b"], ["a"]]}, "against the tiers"),
            ({"required": [("b", "a")]}, "against a required arrow"),
            ({"required": [("a", "x")]}, "required names 'x'"),
            ({"forbidden": [("x", "a")]}, "forbidden names 'x'"),
            ({"tiers": [["x"]]}, "tiers names 'x'"),
            ({"undirected": [("b", "c")], "forbidden": [("b", "c"), ("c", "b")]}, "neither way"),
        ],
    )
    def test_a_graph_against_its_knowledge_is_refused(self, arguments: dict[str, object], message: str) -> None:
        with pytest.raises(GraphError, match=message):
            CausalGraph.from_edges([("a", "b")], **arguments)  # type: ignore[arg-type]

    def test_a_required_arrow_may_still_be_missing(self) -> None:
        graph = CausalGraph.from_edges([], nodes=["a", "b"], required=[("a", "b")])
        assert graph.required == (("a", "b"),)
        assert graph.edges == ()


class TestNetworkx:
    def test_a_graph_with_everything_survives(self) -> None:
        graph = CausalGraph.from_edges(
            [("g", "y"), ("u", "y")],
            undirected=[("y", "z")],
            latents="u",
            exposures="g",
            outcomes="y",
            groups={"g": ["a", "b"]},
            forbidden=[("y", "g")],
        )
        assert CausalGraph.from_networkx(graph.to_networkx()) == graph

    def test_flags_of_other_tools_are_understood(self) -> None:
        theirs = nx.DiGraph([("u", "x"), ("v", "x"), ("w", "x")])
        theirs.nodes["u"]["observed"] = "no"
        theirs.nodes["v"]["latent"] = 1
        theirs.nodes["w"]["latent"] = False
        assert CausalGraph.from_networkx(theirs).latents == {"u", "v"}

    def test_names_become_text_and_an_undirected_graph_stays_so(self) -> None:
        graph = CausalGraph.from_networkx(nx.path_graph(3))
        assert graph.nodes == ("0", "1", "2")
        assert graph.undirected_edges == (("0", "1"), ("1", "2"))

    def test_multigraph_edges_collapse(self) -> None:
        assert CausalGraph.from_networkx(nx.MultiDiGraph([(1, 2), (1, 2)])).edges == (("1", "2"),)

    def test_names_that_clash_as_text_and_other_objects_are_refused(self) -> None:
        with pytest.raises(GraphError, match="same name"):
            CausalGraph.from_networkx(nx.DiGraph([(1, "1")]))
        with pytest.raises(GraphError, match="networkx graph; got list"):
            CausalGraph.from_networkx([("a", "b")])  # type: ignore[arg-type]


class TestMatrix:
    def test_row_causes_column(self) -> None:
        graph = CausalGraph.from_edges([("a", "b")], undirected=[("b", "c")])
        matrix = graph.adjacency_matrix()
        assert matrix.tolist() == [[0, 1, 0], [0, 0, 1], [0, 1, 0]]
        assert CausalGraph.from_adjacency(matrix, graph.nodes) == graph
        assert CausalGraph.from_adjacency(matrix == 1, graph.nodes) == graph

    @pytest.mark.parametrize(
        ("matrix", "message"),
        [
            ([[0, -1], [1, 0]], "only 0 and 1"),
            ([[0, 0.5], [0, 0]], "only 0 and 1"),
            ([[0, np.nan], [0, 0]], "only 0 and 1"),
            ([[0, 1]], "2 x 2"),
            ([["a", "b"], ["c", "d"]], "square table"),
            ([[1, 0], [0, 0]], "'x' has an edge to itself"),
        ],
    )
    def test_anything_but_zeros_and_ones_is_refused(self, matrix: object, message: str) -> None:
        with pytest.raises(GraphError, match=message):
            CausalGraph.from_adjacency(matrix, ["x", "y"])  # type: ignore[arg-type]

    def test_repeated_names_are_refused(self) -> None:
        with pytest.raises(GraphError, match="given twice"):
            CausalGraph.from_adjacency([[0, 0], [0, 0]], ["x", "x"])

    def test_the_hint_for_causal_learn_is_right(self) -> None:
        # causal-learn: [j, i] = 1 and [i, j] = -1 is i → j; -1 both ways is undirected.
        theirs = np.array([[0, -1, 0], [1, 0, -1], [0, -1, 0]])
        graph = CausalGraph.from_adjacency(theirs == -1, ["a", "b", "c"])
        assert graph == CausalGraph.from_edges([("a", "b")], undirected=[("b", "c")])


def test_every_public_name_of_the_package_is_there() -> None:
    import escudo.causal

    assert all(getattr(escudo.causal, name) is not None for name in escudo.causal.__all__)
    with pytest.raises(AttributeError, match=r"No escudo\.causal attribute CausalGrph"):
        escudo.causal.CausalGrph  # noqa: B018 - the access itself is the question


def test_a_graph_is_made_without_loading_networkx_or_scipy() -> None:
    code = (
        "import sys, escudo; escudo.CausalGraph.from_edges([('a', 'b')]).ancestors('b');"
        "print(sorted({'networkx', 'scipy', 'polars'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


class TestReach:
    STEPS: ClassVar = {"a": "bc", "b": "d", "c": "d", "d": "a", "e": ""}

    def test_it_follows_steps_also_round_a_circle_and_includes_the_start(self) -> None:
        assert reach("b", self.STEPS.__getitem__) == {"a", "b", "c", "d"}
        assert reach([], self.STEPS.__getitem__) == set()

    def test_it_never_passes_what_is_left_out(self) -> None:
        assert reach("ae", self.STEPS.__getitem__, without="b") == {"a", "c", "d", "e"}
        assert reach("ae", self.STEPS.__getitem__, without="bc") == {"a", "e"}
        assert reach("ab", self.STEPS.__getitem__, without="b") == {"a", "c", "d"}
