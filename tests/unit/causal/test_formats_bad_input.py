"""Broken graph files: one clear error with its line and column, in time that grows with the text only."""

from __future__ import annotations

import gzip
import os
import random
import time
from contextlib import suppress
from pathlib import Path

import pytest

from escudo.causal import CausalGraph, formats
from escudo.errors import EscudoError, GraphError, InputError, ParseError

CASES = [
    ("dot", "digraph {\n  a -> \n}", 3, 1, "expected a node's name, found '}'"),
    ("dot", "digraph { a -> b", 1, 17, "found the end of the text"),
    ("dot", 'digraph {\r\n "a -> b }', 2, 2, "quote is never closed"),
    ("dot", "digraph { a -> b /* }", 1, 18, "comment is never closed"),
    ("dot", "digraph { a <b }", 1, 13, "'<' is never closed"),
    ("dot", "digraph { X-ray -> b }", 1, 12, "unexpected '-'. Put names with such characters in double quotes"),
    ("dot", "digraph { a -> b } digraph { c }", 1, 20, "one graph a file"),
    ("dot", "digraf { a -> b }", 1, 1, "expected 'graph' or 'digraph', found 'digraf'"),
    ("dot", "digraph { a -> a }", 1, 13, "'a' to itself"),
    ("dot", 'digraph { "" -> a }', 1, 11, "name is empty"),
    ("dot", 'digraph { a -> "\\n" }', 1, 16, "name is empty"),
    ("dot", "digraph { a [x=] }", 1, 16, "expected a value"),
    ("dot", "digraph { a [x= }", 1, 17, "expected a value"),
    ("dot", "digraph { a @-> b }", 1, 13, "partial ancestral"),
    ("dot", "digraph { a -> b [dir=both, arrowtail=odot] }", 1, 13, "circle marks"),
    ("dot", 'digraph { escudo="{"; a }', 1, 17, "must be JSON"),
    ("dot", 'digraph { escudo="{\\"required\\": [[\\"a\\"]]}"; a }', 1, 17, "must be JSON"),
    ("dot", 'digraph { escudo="[]"; a }', 1, 17, "must be JSON"),
    ("dot", 'digraph { graph [escudo="{\\"tiers\\": [[1]]}"]; a }', 1, None, "must be JSON"),
    ("dot", "digraph { subgraph x y }", 1, 22, "expected '{'"),
    ("dot", 'digraph { "a" + b }', 1, 17, "expected a quoted text"),
    ("dot", "digraph { }", None, None, "names no node"),
    ("dagitty", "mag { a -> b }", 1, 1, "describe ancestry"),
    ("dagitty", "pag { a @-> b }", 1, 1, "describe ancestry"),
    ("dagitty", "dag { a -> }", 1, 12, "expected a node's name"),
    ("gml", "graph [ node [ id 1 ]", 1, 1, "'graph' list is never closed"),
    ("gml", "graph [ node [ label 1 ] ]", 1, 9, "no id"),
    ("gml", "graph [ node [ id 1 ] node [ id 1 ] ]", 1, 33, "used twice"),
    ("gml", 'graph [ node [ id 1 label "a" ] node [ id 2 label "a" ] ]', 1, 51, "two nodes are labelled 'a'"),
    ("gml", 'graph [\nnode [ id "ab" ]\nedge [ source "ab" target "aab" ] ]', 3, 1, "not exist. Did you mean 'ab'"),
    ("gml", "graph [ node [ id 1 ] edge [ source 1 ] ]", 1, 23, "no target"),
    ("gml", "graph [ node [ id ] ]", 1, 16, "'id' has no value"),
    ("gml", "graph [ 1 2 ]", 1, 9, "expected a key"),
    ("gml", "graph [ a b ]", 1, 11, "expected a value"),
    ("gml", "[ ]", 1, 1, "before '['"),
    ("gml", "graph [ ] ]", 1, 11, "closes nothing"),
    ("gml", "graph [ ] graph [ ]", 1, 11, "second graph"),
    ("gml", 'graph [ label "x', 1, 15, "quote is never closed"),
    ("gml", "Version 1", 1, 10, "expected 'graph"),
    ("gml", 'graph [ node [ id 1 label " " ] ]', 1, 9, "name is empty"),
    ("bif", "network x { }", None, None, "declares no variable"),
    ("bif", "network x {", 1, 12, "found the end"),
    ("bif", "variable a { type discrete [ 3 ] { x, y }; }", 1, 19, "'3' levels are announced, 2 are listed"),
    ("bif", "variable a { type continuous; }", 1, 19, "only discrete"),
    ("bif", "variable a { }\nvariable a { }", 2, 1, "declared twice"),
    ("bif", "variable abc { }\nprobability ( abc | abd ) { }", 2, 1, "Did you mean 'abc'"),
    ("bif", "variable a { } probability ( a ) { } probability ( a ) { }", 1, 38, "second probability"),
    ("bif", "variable a { } variable b { } probability ( a | b, b ) { }", 1, 31, "named twice"),
    ("bif", "variable a { property x", 1, 14, "never closed by ';'"),
    ("bif", "variable a { colour red; }", 1, 14, "expected 'property'"),
    ("bif", 'variable "a { }', 1, 10, "quote is never closed"),
    ("bif", "variable a { } /* x", 1, 16, "comment is never closed"),
    ("bif", "junk a { }", 1, 1, "expected 'network'"),
    ("bif", 'variable "" { }', 1, 1, "name is empty"),
    ("bif", "variable a { } probability ( a | a ) { }", 1, 1, "'a' to itself"),
    ("csv", "a,b,c\n0,1,0\n", 1, 1, "3 names need 3 rows; found 1"),
    ("csv", "a,b\n0,1\n", 2, 1, "'0' is not in the header"),
    ("csv", "a,b\n0,2\n0,0\n", 2, 1, "expected 0 or 1, found '2'"),
    ("csv", "a,b\n0,1\n0,0,0\n", 3, 1, "3 values for 2 names"),
    ("csv", "a,a\n0,0\n0,0\n", 1, 1, "'a' is in the header twice"),
    ("csv", ",a,b\na,0,0\nc,0,0\n", 3, 1, "'c' is not in the header"),
    ("csv", ",a,b\na,0,0\na,0,0\n", 3, 1, "'a' is used twice"),
    ("csv", 'a,"b\n0,1', 1, 1, "cannot be read"),
    ("csv", "", None, None, "is empty"),
    ("csv", "a,\n0,0\n0,0\n", 1, 1, "name is empty"),
    ("csv", "a,b\n0,0\n0,1\n", 3, 1, "'b' to itself"),
    ("edgelist", "a ->\n", 1, 1, "empty end"),
    ("edgelist", "a -> b\nlung cancer smoke\n", 2, 1, "two names, and perhaps a weight"),
    ("edgelist", "a b c d\n", 1, 1, "two names"),
    ("edgelist", "diagraph { a -> b }", 1, 10, "expected a name, found '{ a -> b }'"),
    ("edgelist", "diagraph {\n a -> b\n}", 1, 10, "unexpected '{'. Put names with brackets in double quotes"),
    ("edgelist", "a o-> b", 1, 3, "circle marks"),
    ("edgelist", '"a -> b', 1, 1, "quote is never closed"),
    ("edgelist", '"a"b -> c', 1, 1, "Put the whole name in quotes"),
    ("edgelist", "{} a", 1, 1, "expected a name"),
    ("edgelist", "# nothing\n", None, None, "names no node"),
]


@pytest.mark.parametrize(("format", "text", "line", "column", "message"), CASES)
def test_a_broken_text_is_refused_where_it_breaks(
    format: formats.FormatName, text: str, line: int | None, column: int | None, message: str
) -> None:
    with pytest.raises(ParseError) as caught:
        CausalGraph.parse(text, format, source="my.file")
    assert message in str(caught.value)
    assert str(caught.value).startswith("my.file")
    assert caught.value.line == line
    if column is not None:
        assert caught.value.column == column


def test_a_readable_text_with_a_cycle_names_its_file() -> None:
    with pytest.raises(GraphError, match=r"^clinic.dot: The graph has a cycle: a → b → a\."):
        CausalGraph.parse("digraph { a -> b -> a }", source="clinic.dot")


def test_unknown_names_in_the_extras_are_refused() -> None:
    with pytest.raises(GraphError, match="forbidden names 'q'"):
        CausalGraph.parse('digraph { escudo="{\\"forbidden\\": [[\\"a\\", \\"q\\"]]}"; a }')


def test_deep_nesting_is_an_error_not_an_overflow() -> None:
    for text in (
        "digraph " + "{" * 100_000,
        "graph [ a " + "[ a " * 100_000,
        'digraph { escudo="' + "[" * 100_000 + '" }',
    ):
        with pytest.raises(ParseError):
            CausalGraph.parse(text)
    assert CausalGraph.parse("digraph " + "{" * 60 + "a" + "}" * 60).nodes == ("a",)


def test_a_short_text_cannot_ask_for_a_great_many_edges() -> None:
    many = " ".join(f"a{i}" for i in range(1100)), " ".join(f"b{i}" for i in range(1100))
    with pytest.raises(ParseError, match="more than 1,000,000 edges"):
        CausalGraph.parse(f"digraph {{ {{{many[0]}}} -> {{{many[1]}}} }}")
    few = "{" + " ".join(f"a{i}" for i in range(300)) + "} -> {" + " ".join(f"b{i}" for i in range(300)) + "} "
    with pytest.raises(ParseError, match="more than 1,000,000 edges"):
        CausalGraph.parse("digraph { " + few * 12 + "}")


REPEATED = [
    *[
        ("digraph {", unit)
        for unit in ("{", "<>", '""', '"a"+', "a->", "a=b;", "a:b ", "/**/", "a [x=1] ", "a\n", "<-")
    ],
    *[("graph [ ", unit) for unit in ("a [ ", "node [ id 1 ] ", "a 1 ", 'a "" ', "#\n")],
    *[("network x { } ", unit) for unit in ("property ", "variable a { } ", '"" ', "//\n")],
    *[("", unit) for unit in (",", "a,", "a ", "a\n", "-", " \t", "\r", "a->", '"a" ', ',a\n"', "/*")],
]


@pytest.mark.parametrize(("opening", "unit"), REPEATED)
def test_time_grows_no_faster_than_the_text(opening: str, unit: str) -> None:
    def seconds(size: int) -> float:
        text = opening + unit * (size // len(unit))
        start = time.process_time()
        with suppress(EscudoError):
            CausalGraph.parse(text)
        return time.process_time() - start

    # Quadratic work would take 100 times as long for 10 times the text; the constant and a second try absorb a busy
    # machine.
    limit = 40 * seconds(5_000) + 0.5
    assert any(seconds(50_000) < limit for _ in range(2))


@pytest.fixture(scope="module")
def junk() -> str:
    return "".join(random.Random(0).choices("".join(map(chr, range(32, 127))) + "\n\té", k=1_000_000))


@pytest.mark.parametrize("format", list(formats.FORMATS))
def test_a_megabyte_of_junk_is_refused(format: formats.FormatName, junk: str) -> None:
    with pytest.raises(EscudoError):
        CausalGraph.parse(junk, format)


class TestFiles:
    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"no\.dot does not exist"):
            CausalGraph.read(tmp_path / "no.dot")

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="is a folder"):
            CausalGraph.read(tmp_path)

    def test_a_name_no_file_can_have(self) -> None:
        with pytest.raises(InputError, match="not a usable path"):
            CausalGraph.read("a\0b.dot")

    @pytest.mark.parametrize(
        "content",
        [b"not gzip", gzip.compress(b"network x { }" * 99, mtime=0)[:-9], b"\x1f\x8b\x08\0"],
        ids=["no header", "cut short", "header only"],
    )
    def test_a_damaged_gzip_file(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "g.bif.gz"
        path.write_bytes(content)
        with pytest.raises(InputError, match="not a complete gzip file"):
            CausalGraph.read(path)

    def test_a_gzip_bomb_stops_at_the_limit(self, tmp_path: Path) -> None:
        path = tmp_path / "g.bif.gz"
        path.write_bytes(gzip.compress(bytes(formats.MAX_BYTES + 1)))
        with pytest.raises(InputError, match="larger than 16 MiB"):
            CausalGraph.read(path)

    def test_a_text_over_the_limit(self) -> None:
        with pytest.raises(ParseError, match="characters, which no causal graph has"):
            CausalGraph.parse(" " * (formats.MAX_BYTES + 1))

    def test_text_that_is_not_utf8_names_its_line(self, tmp_path: Path) -> None:
        path = tmp_path / "g.dot"
        path.write_bytes(b"digraph {\n a -> \xff }")
        with pytest.raises(ParseError, match=r"g\.dot, line 2: this is not UTF-8"):
            CausalGraph.read(path)

    def test_what_is_not_text_at_all(self) -> None:
        with pytest.raises(InputError, match="parsed from text; got bytes"):
            CausalGraph.parse(b"digraph { a }")  # type: ignore[arg-type]

    def test_a_folder_that_does_not_exist_cannot_be_written_to(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="cannot be written: No such file"):
            CausalGraph.from_edges([("a", "b")]).write(tmp_path / "no" / "g.dot")

    def test_a_failed_write_leaves_the_old_file_and_nothing_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "g.dot"
        path.write_text("old")

        def full(*_: object) -> None:
            raise OSError(28, os.strerror(28))

        monkeypatch.setattr(Path, "replace", full)
        with pytest.raises(InputError, match="No space left"):
            CausalGraph.from_edges([("a", "b")]).write(path)
        assert path.read_text() == "old"
        assert [file.name for file in tmp_path.iterdir()] == ["g.dot"]
