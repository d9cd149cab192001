"""Graph files, by property: what is written comes back, and no text whatever breaks a reader."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from escudo.causal import CausalGraph, Network, asia, formats
from escudo.errors import InputError

ALL: tuple[formats.FormatName, ...] = ("dot", "gml", "dagitty", "bif", "csv", "edgelist")

# Short texts from the characters that formats treat specially, beside arbitrary ones.
special = st.text(alphabet="aB1 \t\n\r\"'\\{}[]();,|=:+-><#/*&.%→\u00a0\u2028é界😀\x00\x1b", min_size=1, max_size=6)
KEYWORDS = ["graph", "node", "edge", "subgraph", "strict", "dag", "table", "from", "to", "NA", "0", "1", "-1", "U_a_b"]
ODD = [
    "\\n",
    "&amp;",
    "&#10;",
    "a;b;c;d;e;f",
    "{}",
    "o->",
    "//",
    "/*",
    "<b>",
    " lead",
    "trail ",
    "\tt",
    '"',
    "a\nb",
    "a\r",
]
words = st.sampled_from([*KEYWORDS, *ODD])
names = st.one_of(words, special, st.text(min_size=1, max_size=8)).filter(
    lambda name: bool(name.strip()) and not any("\ud800" <= char <= "\udfff" for char in name)
)


@st.composite
def graphs(draw: st.DrawFn, *, carries: tuple[str, ...] = ()) -> CausalGraph:
    nodes = draw(st.lists(names, min_size=1, max_size=7, unique=True))
    arrows, lines = [], []
    for i, tail in enumerate(nodes):
        for head in nodes[i + 1 :]:
            kind = draw(st.sampled_from("  >>-"))
            if kind == ">":
                arrows.append((tail, head))
            elif kind == "-" and "undirected edges" in carries:
                lines.append((head, tail))
    some = st.sets(st.sampled_from(nodes), max_size=2)
    latents = draw(some) if "latents" in carries else set()
    flagged = draw(st.tuples(some, some)) if "exposures or outcomes" in carries else (set(), set())
    options: dict[str, Any] = {}
    if "groups" in carries:
        columns = draw(st.lists(names, max_size=3, unique=True).filter(lambda found: not set(found) & set(nodes)))
        if columns and nodes[0] not in latents:
            options["groups"] = {nodes[0]: columns}
    if "knowledge" in carries:
        kept = arrows[: draw(st.integers(0, 2))]
        options["required"] = kept
        options["forbidden"] = [(head, tail) for tail, head in arrows[: draw(st.integers(0, 2))]]
        options["tiers"] = draw(st.sampled_from([[], [nodes], [nodes[:1], nodes[1:]] if len(nodes) > 1 else []]))
    shuffled = draw(st.permutations(nodes))
    return CausalGraph.from_edges(
        arrows, nodes=shuffled, undirected=lines, latents=latents, exposures=flagged[0], outcomes=flagged[1], **options
    )


@pytest.mark.parametrize("format", ALL)
@given(data=st.data())
def test_what_is_written_comes_back(format: formats.FormatName, data: st.DataObject) -> None:
    graph = data.draw(graphs(carries=formats.FORMATS[format].carries))
    back = CausalGraph.parse(graph.to_text(format), format)
    assert back == graph
    assert back.nodes == graph.nodes


@pytest.mark.parametrize("format", ["dot", "gml", "dagitty", "bif"])
@given(data=st.data())
def test_what_is_written_is_recognised(format: formats.FormatName, data: st.DataObject) -> None:
    graph = data.draw(graphs(carries=formats.FORMATS[format].carries))
    assert formats.recognise(graph.to_text(format)) == format


@given(graph=graphs(carries=formats.FORMATS["dot"].carries))
def test_networkx_and_back(graph: CausalGraph) -> None:
    assert CausalGraph.from_networkx(graph.to_networkx()) == graph


@given(graph=graphs(carries=("undirected edges",)))
def test_matrix_and_back(graph: CausalGraph) -> None:
    assert CausalGraph.from_adjacency(graph.adjacency_matrix(), graph.nodes) == graph


@st.composite
def networks(draw: st.DrawFn) -> Network:
    graph = draw(graphs())
    assume(len(graph.edges) <= 6)
    levels = {node: draw(st.lists(names, min_size=1, max_size=3, unique=True)) for node in graph.nodes}
    tables = {}
    for node in graph.nodes:
        shape = [len(levels[parent]) for parent in graph.parents(node)]
        rows = 1
        for size in shape:
            rows *= size
        weights = draw(
            st.lists(
                st.lists(st.integers(0, 9), min_size=len(levels[node]), max_size=len(levels[node])).filter(sum),
                min_size=rows,
                max_size=rows,
            )
        )
        table = np.array([[weight / sum(row) for weight in row] for row in weights])
        tables[node] = table.reshape((*shape, len(levels[node])))
    return Network(levels=levels, parents={node: graph.parents(node) for node in graph.nodes}, tables=tables)


@given(network=networks())
def test_a_network_comes_back_to_the_last_digit(network: Network) -> None:
    assert Network.parse(network.to_bif()) == network


SAMPLES = {
    "dot": 'digraph g { node [shape=box]; "a b" -> {c d} [label=<x <b>y</b>>]; subgraph s { u [latent=true] } u -> c }',
    "gml": 'Creator "x" graph [ directed 1 node [ id 1 label "a&amp;b" latent 1 ]\n'
    "node [ id 2 ] edge [ source 1 target 2 ] ]",
    "dagitty": 'dag { bb="0,0,1,1" "a b" [exposure,pos="1,2"] y [outcome] "a b" -> y <-> z -- w }',
    "bif": asia().to_bif(),
    "csv": ',"a","b"\n"a",0,1\n"b",0,0\n',
    "edgelist": 'a -> b <- "c d"\n# x\nq, r, 0.5\ns t {}\n',
}


def _survives(text: str, format: formats.FormatName | None) -> None:
    """Fail on anything but a value or an error of ours that says something short."""
    said = []
    for read in (lambda: CausalGraph.parse(text, format), lambda: Network.parse(text)):
        try:
            read()
        except InputError as error:
            said.append(str(error))
    assert all(0 < len(message) < 20_000 for message in said)


@pytest.mark.parametrize("format", [*ALL, None])
@given(text=st.one_of(st.text(max_size=300), st.text(alphabet="ab\"'{}[]()<>-=;,|&#/*\\ \n\t01.", max_size=300)))
def test_no_text_breaks_a_reader(format: formats.FormatName | None, text: str) -> None:
    _survives(text, format)
    for opening in ("digraph { ", "graph [ ", "dag { ", "network x { } variable a { "):
        _survives(opening + text, format)


@pytest.mark.parametrize("format", ALL)
@given(seed=st.integers(0, 2**32), data=st.data())
def test_no_damage_to_a_good_file_breaks_a_reader(format: formats.FormatName, seed: int, data: st.DataObject) -> None:
    rng = random.Random(seed)
    text = list(SAMPLES[format])
    for _ in range(data.draw(st.integers(1, 6))):
        at = rng.randrange(len(text))
        what = rng.randrange(4)
        if what == 0:
            del text[at : at + rng.randrange(1, 20)]
        elif what == 1:
            text.insert(at, rng.choice('"{}[]()<>-=;,|&#/*\\ \n09aé\x00\ud7ff'))
        elif what == 2:
            text[at:at] = text[at : at + rng.randrange(1, 40)]
        else:
            text[at] = rng.choice(["9" * 400, "1e999", "nan", "-1", "inf", "{" * 99, '"'])
        text = text or ["x"]
    _survives("".join(text), format)
