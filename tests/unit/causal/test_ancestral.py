"""Partial ancestral graphs: marks against brute force over all graphs of a class, files, adjustment."""

from __future__ import annotations

import contextlib
import itertools
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from escudo.causal import ARROW, CIRCLE, TAIL, AncestralGraph, CausalGraph, draw, formats, marks_of
from escudo.errors import GraphError, InputError, NotIdentifiableError, ParseError

NONE, TO, BACK, BOTH = range(4)
Kinds = tuple[int, ...]


class Mixed:
    """A graph of arrows and double arrows over a few columns, with m-separation straight from its definition."""

    def __init__(self, count: int, kinds: Kinds):
        self.count, self.kinds = count, kinds
        self.pairs = list(itertools.combinations(range(count), 2))
        arrows = {
            (a, b) if kind == TO else (b, a)
            for (a, b), kind in zip(self.pairs, kinds, strict=True)
            if kind in (TO, BACK)
        }
        self.both = {frozenset(pair) for pair, kind in zip(self.pairs, kinds, strict=True) if kind == BOTH}
        self.parents = [{a for a, b in arrows if b == node} for node in range(count)]
        self.above = [self._above(node) for node in range(count)]

    def _above(self, node: int) -> frozenset[int]:
        found, waiting = {node}, [node]
        while waiting:
            for parent in self.parents[waiting.pop()] - found:
                found.add(parent)
                waiting.append(parent)
        return frozenset(found)

    @property
    def ancestral(self) -> bool:
        cycle = any(a in self.above[b] and b in self.above[a] for a, b in self.pairs)
        return not cycle and not any(a in self.above[b] or b in self.above[a] for a, b in map(tuple, self.both))

    def separated(self, x: int, y: int, given: frozenset[int]) -> bool:
        """By paths in the graph of their ancestors, in which all that meet at common effects are joined."""
        inside = set().union(*(self.above[node] for node in {x, y, *given}))
        joined = {frozenset((p, c)) for c in inside for p in self.parents[c]} | {e for e in self.both if e <= inside}
        for node in inside:
            district, waiting = {node}, [node]
            while waiting:
                here = waiting.pop()
                for other in inside - district:
                    if frozenset((here, other)) in self.both:
                        district.add(other)
                        waiting.append(other)
            cluster = district.union(*(self.parents[one] for one in district))
            joined |= {frozenset(pair) for pair in itertools.combinations(cluster, 2)}
        found, waiting = {x}, [x]
        while waiting:
            here = waiting.pop()
            for other in inside - found - given:
                if frozenset((here, other)) in joined:
                    if other == y:
                        return False
                    found.add(other)
                    waiting.append(other)
        return True

    def independences(self) -> frozenset[tuple[int, int, frozenset[int]]]:
        found = set()
        for a, b in self.pairs:
            rest = [node for node in range(self.count) if node not in (a, b)]
            for size in range(len(rest) + 1):
                for given in map(frozenset, itertools.combinations(rest, size)):
                    if self.separated(a, b, given):
                        found.add((a, b, given))
        return frozenset(found)

    def maximal(self, independences: frozenset[tuple[int, int, frozenset[int]]]) -> bool:
        apart = {(a, b) for a, b, _ in independences}
        return all((pair in apart) == (kind == NONE) for pair, kind in zip(self.pairs, self.kinds, strict=True))

    def dag(self) -> CausalGraph:
        names = "abcdef"[: self.count]
        hidden = {edge: f"u{number}" for number, edge in enumerate(sorted(map(tuple, map(sorted, self.both))))}
        arrows = [(names[p], names[node]) for node in range(self.count) for p in self.parents[node]]
        arrows += [(u, names[end]) for edge, u in hidden.items() for end in edge]
        return CausalGraph.from_edges(arrows, nodes=[*names, *hidden.values()], latents=hidden.values())


def common_marks(members: list[Kinds], count: int) -> list[list[int]]:
    """Return the marks that all members share, and circles elsewhere."""
    marks = [[0] * count for _ in range(count)]
    ends = {TO: (TAIL, ARROW), BACK: (ARROW, TAIL), BOTH: (ARROW, ARROW)}
    for place, (a, b) in enumerate(itertools.combinations(range(count), 2)):
        if members[0][place] != NONE:
            at_a = {ends[kinds[place]][0] for kinds in members}
            at_b = {ends[kinds[place]][1] for kinds in members}
            marks[b][a] = at_a.pop() if len(at_a) == 1 else CIRCLE
            marks[a][b] = at_b.pop() if len(at_b) == 1 else CIRCLE
    return marks


@cache
def classes(count: int) -> tuple[tuple[Kinds, ...], ...]:
    found = defaultdict(list)
    for kinds in itertools.product(range(4), repeat=count * (count - 1) // 2):
        graph = Mixed(count, kinds)
        if graph.ancestral:
            said = graph.independences()
            if graph.maximal(said):
                found[said].append(kinds)
    return tuple(map(tuple, found.values()))


@pytest.mark.parametrize("count", [3, 4])
def test_the_marks_are_those_that_all_graphs_of_a_class_share(count: int) -> None:
    several = classes(count)
    assert len(several) == {3: 11, 4: 248}[count]  # all classes of ancestral graphs over so many columns
    names = "abcdef"[:count]
    for members in several:
        expected = AncestralGraph.from_marks(names, common_marks(list(members), count))
        for kinds in members[:3]:
            assert Mixed(count, kinds).dag().pag() == expected


def test_the_marks_of_five_columns_are_those_that_all_graphs_of_a_class_share() -> None:
    rng = np.random.default_rng(5)
    tried = 0
    while tried < 6:
        kinds = tuple(int(kind) if rng.random() < 0.62 else NONE for kind in rng.integers(1, 4, size=10))
        graph = Mixed(5, kinds)
        edges = [place for place, kind in enumerate(kinds) if kind]
        if not 5 <= len(edges) <= 7 or not graph.ancestral or not graph.maximal(said := graph.independences()):
            continue
        tried += 1
        members = []
        for those in itertools.product((TO, BACK, BOTH), repeat=len(edges)):
            turned = [NONE] * 10
            for place, kind in zip(edges, those, strict=True):
                turned[place] = kind
            other = Mixed(5, tuple(turned))
            if other.ancestral and all(other.separated(*one) for one in said) and other.independences() == said:
                members.append(tuple(turned))
        assert graph.dag().pag() == AncestralGraph.from_marks("abcde", common_marks(members, 5))


def test_rules_nine_and_ten_are_reached() -> None:
    # Zhang's figure for R9 and R10: without them the first end of these edges would keep its circle.
    ninth = CausalGraph.from_edges(
        [("a", "c"), ("a", "b"), ("b", "d"), ("d", "c"), ("u", "c"), ("u", "e"), ("e", "c")], latents=["u"]
    )
    tenth = CausalGraph.from_edges(
        [("a", "m"), ("a", "w"), ("m", "b"), ("w", "d"), ("b", "c"), ("d", "c"), ("a", "c"), ("u", "c"), ("u", "e")],
        latents=["u"],
    )
    for graph in (ninth, tenth):
        assert graph.pag().kind("a", "c") == "->"


def random_dag(rng: np.random.Generator, columns: int, hidden: int) -> CausalGraph:
    names = [f"x{number}" for number in range(columns)]
    order = rng.permutation(columns)
    arrows = [
        (names[order[i]], names[order[j]])
        for i in range(columns)
        for j in range(i + 1, columns)
        if rng.random() < 2.2 / columns
    ]
    return CausalGraph.from_edges(arrows, nodes=names, latents=set(rng.choice(names, hidden, replace=False).tolist()))


def test_what_is_certain_holds_in_the_graph_it_came_from() -> None:
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(60):
        graph = random_dag(rng, 9, 3)
        found = graph.pag()
        for a, kind, b in found.edges:
            seen.add(kind)
            assert b not in graph.ancestors(a) or kind == "o-o"
            if kind == "->":
                assert a in graph.ancestors(b)
            if kind == "<->":
                assert a not in graph.ancestors(b)
        for name in found.nodes:
            below = set(graph.descendants(name)) & set(found.nodes)
            assert set(found.descendants(name)) <= below <= set(found.possible_descendants(name))
    assert seen == {"->", "<->", "o->", "o-o"}


def valid_adjustment(graph: CausalGraph, treatment: str, outcome: str, columns: tuple[str, ...]) -> bool:
    """Return whether a set meets the adjustment criterion in a DAG."""
    between = set(graph.descendants(treatment)) & {*graph.ancestors(outcome), outcome}
    forbidden = between.union(*(graph.descendants(name) for name in between))
    if forbidden & set(columns):
        return False
    kept = [(a, b) for a, b in graph.edges if not (a == treatment and b in between)]
    return CausalGraph.from_edges(kept, nodes=graph.nodes).d_separated(treatment, outcome, columns)


def test_an_adjustment_set_is_valid_in_the_graph_it_came_from() -> None:
    rng = np.random.default_rng(2)
    found = refused = 0
    for _ in range(120):
        graph = random_dag(rng, 8, 2)
        pag = graph.pag()
        for treatment, outcome in itertools.permutations(pag.nodes, 2):
            try:
                columns = pag.adjustment(treatment, outcome)
            except NotIdentifiableError:
                refused += 1
            except InputError:
                assert outcome not in graph.descendants(treatment)
            else:
                found += 1
                assert valid_adjustment(graph, treatment, outcome, columns)
                pag.check_adjustment(treatment, outcome, columns)
    assert found > 25
    assert refused > 500


def confounded(members: tuple[Kinds, ...], count: int) -> Iterator[CausalGraph]:
    """Yield graphs of a class: its members, also with hidden causes beside arrows where that says nothing new."""
    pag = Mixed(count, members[0]).dag().pag()
    for kinds in members:
        graph = Mixed(count, kinds).dag()
        arrows = [edge for edge in graph.edges if not edge[0].startswith("u")]
        for size in range(len(arrows) + 1):
            for beside in itertools.combinations(arrows, size):
                hidden = [(f"w{number}", end) for number, edge in enumerate(beside) for end in edge]
                latents = {*graph.latents, *(u for u, _ in hidden)}
                more = CausalGraph.from_edges([*graph.edges, *hidden], nodes=graph.nodes, latents=latents)
                if not size or more.pag() == pag:
                    yield more


def test_an_adjustment_set_is_found_wherever_one_is_valid_in_all_graphs_of_a_class() -> None:
    rng = np.random.default_rng(6)
    several = [
        members for members in classes(4) if 3 <= sum(kind != NONE for kind in members[0]) <= 5 and len(members) <= 8
    ]
    found = 0
    for place in rng.choice(len(several), 14, replace=False):
        pag = Mixed(4, several[place][0]).dag().pag()
        graphs = list(confounded(several[place], 4))
        for treatment, outcome in itertools.permutations(pag.nodes, 2):
            if all(outcome not in graph.descendants(treatment) for graph in graphs):
                continue
            rest = [name for name in pag.nodes if name not in (treatment, outcome)]
            sets = [some for size in range(len(rest) + 1) for some in itertools.combinations(rest, size)]
            valid = [
                some for some in sets if all(valid_adjustment(graph, treatment, outcome, some) for graph in graphs)
            ]
            try:
                columns = pag.adjustment(treatment, outcome)
            except NotIdentifiableError:
                assert not valid
            else:
                found += 1
                assert columns in valid
    assert found


def test_an_effect_is_refused_in_words_where_a_hidden_cause_may_act_on_both() -> None:
    graph = AncestralGraph.from_edges([("a", "o->", "b"), ("c", "o->", "b"), ("b", "->", "d")])
    assert graph.adjustment("b", "d") == ()
    with pytest.raises(NotIdentifiableError, match="a o-> b may be a cause, or a hidden cause of both"):
        graph.adjustment("a", "d")
    with pytest.raises(InputError, match="'d' is no cause of 'b'"):
        graph.adjustment("d", "b")
    alone = AncestralGraph.from_edges([("a", "->", "b")])
    with pytest.raises(NotIdentifiableError, match="a → b may have a hidden cause of both beside it"):
        alone.adjustment("a", "b")
    with pytest.raises(NotIdentifiableError, match="Adjusting for 'd'"):
        AncestralGraph.from_edges([("a", "o->", "b"), ("b", "->", "d"), ("d", "->", "e")]).check_adjustment(
            "b", "e", ["d"]
        )


def test_nothing_is_concluded_from_what_cannot_be_told() -> None:
    chain = [[False, True, False], [True, False, True], [False, True, False]]
    assert marks_of(chain, lambda a, c, b: None) == [[0, CIRCLE, 0], [CIRCLE, 0, CIRCLE], [0, CIRCLE, 0]]
    assert marks_of(chain, lambda a, c, b: False)[0][1] == ARROW
    known = marks_of(chain, lambda a, c, b: True, {(0, 1): ARROW})
    assert (known[2][1], known[1][2]) == (TAIL, ARROW)


@pytest.mark.parametrize("format", ["dot", "dagitty"])
def test_files_carry_every_mark_and_odd_names(format: formats.FormatName) -> None:
    rng = np.random.default_rng(3)
    odd = AncestralGraph.from_edges(
        [('a "b"', "o-o", "ä → o"), ("pag", "<->", "x"), ("x", "<-o", "node")], nodes=["alone"]
    )
    for graph in (odd, *(random_dag(rng, 8, 2).pag() for _ in range(20))):
        text = graph.to_text(format)
        assert AncestralGraph.parse(text) == graph
        assert AncestralGraph.parse(text).nodes == graph.nodes
        assert formats.states_ancestry(text)
        with pytest.raises(ParseError, match="AncestralGraph"):
            CausalGraph.parse(text)


def test_formats_without_circles_are_refused(tmp_path) -> None:
    graph = AncestralGraph.from_edges([("a", "o->", "b")])
    for format in ("gml", "bif", "csv", "edgelist"):
        with pytest.raises(GraphError, match="cannot carry the marks"):
            graph.to_text(format)
    graph.write(tmp_path / "found.dot")
    assert AncestralGraph.read(tmp_path / "found.dot") == graph
    assert not formats.states_ancestry("digraph { a -> b }")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("digraph { a -- b }", "has a tail without an arrow"),
        ("digraph { a -> b; b -> a }", "a second edge between"),
        ("pag { a @-> a }", "to itself"),
        ("pag { a @-> }", "expected"),
        ("dag { a -> b }", "'pag' or 'mag'"),
        ("digraph { a -> b -> c -> a }", "The arrows make a cycle"),
        ("digraph { a -> b -> c; a -> c [dir=both] }", "is a cause of 'c' along arrows"),
        ("a -> b", "cannot carry the marks"),
        ("", "cannot carry the marks"),
    ],
)
def test_a_text_that_is_no_ancestral_graph_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        AncestralGraph.parse(text)


def test_random_texts_are_read_or_refused() -> None:
    rng = np.random.default_rng(4)
    pieces = [
        "pag",
        "digraph",
        "{",
        "}",
        "a",
        "b",
        '"c',
        "@->",
        "@-@",
        "<->",
        "->",
        "--",
        "[",
        "]",
        "dir=both",
        "arrowtail=odot",
        ";",
        "\n",
        "<",
        "@",
    ]
    for _ in range(400):
        text = rng.choice(["pag {", "digraph {", ""]) + " ".join(rng.choice(pieces, size=int(rng.integers(0, 14))))
        with contextlib.suppress(InputError):
            AncestralGraph.parse(text)


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        ([("a", "--", "b")], "must be one of"),
        ([("a", "b")], "triples such as"),
        ([("a", "->", "a")], "to itself"),
        ([("a", "->", "b"), ("b", "o->", "a")], "two edges"),
        ([("a", "->", "b"), ("b", "->", "c"), ("c", "->", "a")], "cycle"),
    ],
)
def test_a_graph_that_says_what_cannot_be_is_refused(edges: list, said: str) -> None:
    with pytest.raises(GraphError, match=said):
        AncestralGraph.from_edges(edges)


def test_it_is_drawn_with_circles() -> None:
    graph = AncestralGraph.from_edges([("a", "o-o", "b"), ("b", "o->", "c"), ("d", "<->", "c"), ("c", "->", "e")])
    picture = draw(graph, edge_labels={("b", "c"): "90 %", ("c", "e"): "80 %"}, edge_width={("a", "b"): 3.0})
    assert picture.count("<circle") == 3
    assert picture.count("<polygon") == 4
    for said in ("a o—o b", "b o→ c: 90 %", "d ↔ c", "c → e: 80 %", "1 hidden common cause"):
        assert said in picture
    assert graph._repr_svg_() == graph.to_svg()
    loops = AncestralGraph.from_edges(
        [("a", "o->", "b"), ("b", "o->", "c"), ("c", "o->", "a")]
    )  # half open edges may go in circles
    assert draw(loops).count("<circle") == 3


def test_equal_graphs_say_the_same() -> None:
    one = AncestralGraph.from_edges([("a", "o->", "b"), ("c", "<->", "b")])
    other = AncestralGraph.from_edges([("b", "<->", "c"), ("b", "<-o", "a")])
    assert one == other
    assert hash(one) == hash(other)
    assert one != AncestralGraph.from_edges([("a", "->", "b"), ("c", "<->", "b")])
    assert repr(one) == "<AncestralGraph: 3 nodes, 0 arrows, 1 hidden common cause, 1 half open>"
    assert one.skeleton_f1(AncestralGraph.from_edges([("a", "o-o", "b")], nodes="c")) == pytest.approx(2 / 3)
