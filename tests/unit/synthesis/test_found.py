"""A graph that is found first, and a generator that follows it: one plan, one charge, whatever is found."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import escudo
from escudo.cli import app
from escudo.errors import NotIdentifiableError
from escudo.mechanisms._noise import watching
from escudo.privacy import ExponentialEvent, GaussianEvent, MemoryAccount, Plan
from escudo.synthesis import CausalModel, LinearModel, Model, fit, load, prepare_discovered
from escudo.synthesis import _moment_fit as moment_fit
from escudo.synthesis import _moments as moments
from escudo.synthesis._budget import GRAPH_SHARE
from escudo.synthesis._found import PreparedFound
from escudo.table import PrivateTable, Schema

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
ROWS = 20_000
LEVELS = Schema.from_dict({name: ["no", "yes"] for name in "abcd"})
NUMBERS = Schema.from_dict({name: {"type": "numeric", "lower": -5, "upper": 5} for name in "abcd"})
BINNED = Schema.from_dict({name: {"type": "numeric", "lower": -5, "upper": 5, "bins": 5} for name in "abcd"})


def _common_effect(rng: np.random.Generator) -> pl.DataFrame:
    """Return numbers with a → c ← b and c → d: every direction can be told."""
    a, b = rng.normal(0, 1, (2, ROWS))
    c = 0.8 * a + 0.8 * b + rng.normal(0, 0.6, ROWS)
    return pl.DataFrame({"a": a, "b": b, "c": c, "d": 0.9 * c + rng.normal(0, 0.6, ROWS)})


def _chain(rng: np.random.Generator) -> pl.DataFrame:
    """Return numbers with a → b → c → d: no direction can be told."""
    a = rng.normal(0, 1, ROWS)
    found = [a]
    for _ in "bcd":
        found.append(0.8 * found[-1] + rng.normal(0, 0.6, ROWS))
    return pl.DataFrame(dict(zip("abcd", found, strict=True)))


def _levels(rng: np.random.Generator, parents: dict[str, str]) -> pl.DataFrame:
    """Return columns of two levels, each likelier to be "yes" the more of its parents are."""
    found: dict[str, Any] = {}
    for name, several in parents.items():
        share = 0.5 + sum(0.35 * (2 * found[each] - 1) / max(len(several), 1) for each in several)
        found[name] = (rng.random(ROWS) < share).astype(int)
    return pl.DataFrame({name: np.where(values == 1, "yes", "no") for name, values in found.items()})


EFFECT, CHAIN = _common_effect(np.random.default_rng(1)), _chain(np.random.default_rng(2))
COMMON = _levels(np.random.default_rng(3), {"a": "", "b": "", "c": "ab", "d": "c"})
LINE = _levels(np.random.default_rng(4), {"a": "", "b": "a", "c": "b", "d": "c"})
# Generator, schema, rows whose directions can be told, rows whose directions cannot.
CASES = {
    "linear": ("linear", NUMBERS, EFFECT, CHAIN),
    "moments": ("moments", LEVELS, COMMON, LINE),
    "moments of numbers": ("moments", BINNED, EFFECT, CHAIN),
    "moments with bins to be chosen": ("moments", NUMBERS, EFFECT, CHAIN),
}


def _rho(plan: Plan) -> float:
    total = 0.0
    for leaf in plan.leaves():
        if isinstance(leaf.once, GaussianEvent):
            total += leaf.count * leaf.once.rho
        elif isinstance(leaf.once, ExponentialEvent):
            total += leaf.count * leaf.once.epsilon**2 / 8
    return total


def _fitted(case: str, *, told: bool = True, **options: Any) -> tuple[Model, MemoryAccount]:
    generator, schema, some, others = CASES[case]
    account = MemoryAccount()
    table = PrivateTable(some if told else others, schema, account)
    return fit(prepare_discovered(schema, generator=generator, **BUDGET, **options), table, seed=1), account


@pytest.mark.parametrize("case", CASES)
def test_a_stated_part_finds_the_graph_and_both_cost_what_was_asked(case: str) -> None:
    generator, schema, *_ = CASES[case]
    plan = prepare_discovered(schema, generator=generator, **BUDGET).plan
    assert plan.name == generator
    assert 0.99 < plan.guarantee().epsilon <= 1.0
    (search,) = (child for child in plan.children if child.name == "graph, 25% of what it and the generator get")
    assert _rho(search) / _rho(plan) == pytest.approx(GRAPH_SHARE, abs=0.02)


@pytest.mark.parametrize("case", CASES)
def test_what_is_drawn_is_the_plan_whichever_graph_is_found(case: str) -> None:
    generator, schema, *tables = CASES[case]
    prepared = prepare_discovered(schema, generator=generator, **BUDGET)
    planned = Counter(repr(leaf.once) for leaf in prepared.plan.leaves() if leaf.once for _ in range(leaf.count))
    graphs = []
    for frame in tables:
        drawn: list[str] = []

        def note(source: Any, event: Any, seen: list[str] = drawn) -> Any:
            seen.append(repr(event))
            return source

        account = MemoryAccount()
        with watching(note):
            model = fit(prepared, PrivateTable(frame, schema, account), seed=1)
        graphs.append(model.stated)
        (receipt,) = account.receipts
        assert receipt.event == prepared.plan.event
        assert model.plan == prepared.plan
        if case == "moments of numbers":  # either moments or tables, within events that leave both open
            assert len(drawn) == planned.total()
        else:
            assert Counter(drawn) == planned
    assert set(graphs[0].adjacencies) != set(graphs[1].adjacencies)


@pytest.mark.parametrize("case", CASES)
def test_the_model_follows_what_was_found_and_says_what_setting_a_column_does(case: str) -> None:
    model, _ = _fitted(case)
    assert isinstance(model, LinearModel if case == "linear" else CausalModel)
    assert set(model.graph.edges) == {("a", "c"), ("b", "c"), ("c", "d")}
    assert set(model.stated.edges) == set(model.graph.edges)
    assert {tuple(arrow) for arrow in model.details["stated_arrows"]} == set(model.graph.edges)
    low, high = ("no", "yes") if case == "moments" else (-1.5, 1.5)

    def outcome(value: Any, **how: Any) -> float:
        column = model.sample(5000, do={"a": value}, seed=0, **how)["d"]
        return float((column == "yes").mean() if case == "moments" else column.mean())

    assert outcome(high) - outcome(low) > 0.1
    still = model.sample(5000, do={"d": high}, seed=0)["a"], model.sample(5000, do={"d": low}, seed=0)["a"]
    assert still[0].equals(still[1]), "an effect does not act on its cause"


@pytest.mark.parametrize("case", CASES)
def test_edges_that_nothing_directs_stay_open(case: str) -> None:
    model, _ = _fitted(case, told=False)
    assert {frozenset(edge) for edge in model.stated.undirected_edges} == set(map(frozenset, ("ab", "bc", "cd")))
    assert not model.stated.edges
    assert not model.details["stated_arrows"]
    with pytest.raises(NotIdentifiableError, match="nobody has stated"):
        model.sample(10, do={"a": "yes" if case == "moments" else 1.0})
    drawn = model.sample(5000, seed=0)
    if case == "moments":
        drawn = drawn.select((pl.all() == "yes").cast(pl.Float64))
    assert drawn.select(pl.corr("a", "b")).item() > 0.2, "they go together all the same"


@pytest.mark.parametrize("case", CASES)
def test_it_is_told_with_its_part_of_the_budget_and_confidences(case: str) -> None:
    told = _fitted(case)[0].details["discovery"]
    assert told["share"] == GRAPH_SHARE
    assert told["notes"][0].startswith("25% of what graph and generator got, as inverse variance, found the graph")
    assert {(edge["from"], edge["to"]) for edge in told["edges"]} == {("a", "c"), ("b", "c"), ("c", "d")}
    assert all(0.5 < edge["confidence"] <= 1 and 0.5 < edge["direction_confidence"] <= 1 for edge in told["edges"])
    assert (told["method"] == "gaussian") == (case in ("linear", "moments of numbers"))


def test_knowledge_and_method_are_those_of_discovery() -> None:
    known = escudo.CausalGraph.from_edges([("a", "b"), ("b", "c"), ("c", "d")])
    for case, method in (("moments", "two-stage"), ("linear", "gaussian")):
        model, _ = _fitted(case, told=False, knowledge=known, method=method)
        assert set(model.stated.edges) == set(known.edges)
        assert model.details["discovery"]["method"] == method
        model.sample(10, do={"a": "yes" if case == "moments" else 1.0})


@pytest.mark.parametrize("generator", ["moments", "linear"])
def test_days_and_whole_numbers_are_taken(generator: str) -> None:
    columns = {
        "day": {"type": "date", "lower": "2020-01-01", "upper": "2024-12-31"},
        "many": {"type": "numeric", "lower": 0, "upper": 100, "integer": True},
        "dose": {"type": "numeric", "lower": 0, "upper": 10},
    }
    share = np.random.default_rng(5).beta(4, 4, 5000)
    days = pl.Series("day", (18_262 + share * 1_800).astype(np.int32)).cast(pl.Date)
    frame = pl.DataFrame([days, pl.Series("many", (100 * share).astype(int)), pl.Series("dose", 10 * share)])
    schema = Schema.from_dict(columns)
    model = fit(prepare_discovered(schema, generator=generator, **BUDGET), PrivateTable(frame, schema), seed=1)
    assert model.stated.adjacencies
    assert model.sample(10, seed=1).schema["day"] == pl.Date


def test_a_public_clip_bound_holds_along_the_graph_that_is_found() -> None:
    model, _ = _fitted("moments", clip=2.0)
    assert model.details["l2_clip_norm"] == 2.0
    # At a single column's length there would be room for one level; along the arrows it is no looser than needed.
    assert _fitted("moments", clip=50.0)[0].details["l2_clip_norm"] == pytest.approx(7**0.5)


@pytest.mark.parametrize("limit", ["families", "sums"])
def test_what_is_too_large_to_fit_stays_open_and_is_no_error(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether there is an error after the charge must not hang on the graph."""
    if limit == "families":
        monkeypatch.setattr(moment_fit, "_MAX_NUMBERS", 8)  # a family with two causes has 16
    else:
        monkeypatch.setattr(moments, "_MAX_ENTRIES", 6)  # four columns and two arrows
    model, account = _fitted("moments")
    assert not account.failed
    (lost,) = {("a", "c"), ("b", "c"), ("c", "d")} - set(model.graph.edges)
    assert lost not in model.stated.edges
    assert frozenset(lost) in set(map(frozenset, model.stated.undirected_edges))
    told = model.details["discovery"]
    assert f"left out of laws that would have too many levels: {lost[0]} → {lost[1]}." in told["notes"][-1]
    assert [edge["directed"] for edge in told["edges"] if (edge["from"], edge["to"]) == lost] == [False]
    with pytest.raises(NotIdentifiableError):
        model.sample(10, do={lost[0]: "yes"})


def test_auto_takes_it_too() -> None:
    many = Schema.from_dict({f"x{i}": ["no", "yes"] for i in range(31)})
    plan = prepare_discovered(many, generator="auto", **BUDGET).plan
    assert plan.name == "moments"
    assert plan.children[0].name.startswith("chosen: moments")
    assert prepare_discovered(LEVELS, generator="auto", **BUDGET).plan.name == "marginals"


def test_events_may_not_follow_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare_discovered(LEVELS, generator="moments", **BUDGET)
    assert isinstance(prepared, PreparedFound)
    other = prepare_discovered(LEVELS, generator="moments", epsilon=2.0, delta=1e-6)
    monkeypatch.setattr(moments.PreparedMoments, "along", lambda self, structure: other.rest)
    with pytest.raises(AssertionError, match="whatever the graph"):
        fit(prepared, PrivateTable(COMMON, LEVELS), seed=1)


# ---- the command


@pytest.mark.parametrize("generator", ["linear", "moments"])
def test_the_command_finds_and_follows(generator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    EFFECT.write_parquet("rows.parquet")
    NUMBERS.write("rows.toml")
    words = ["release", "rows.parquet", "--schema", "rows.toml", "--graph", "discover", "--generator", generator]
    words += ["--epsilon", "1", "--delta", "1e-6", "--seed", "1"]
    looked = CliRunner().invoke(app, [*words, "--plan"])
    assert looked.exit_code == 0, looked.output
    assert "graph, 25% of what it and the generator get" in looked.output
    assert not Path("out").exists()
    made = CliRunner().invoke(app, [*words, "--out", "out", "--rows", "500"])
    assert made.exit_code == 0, made.output
    assert "Discovered graph, with 25% of what it and the generator got: 3 edges" in made.output
    record = json.loads(Path("out/release.json").read_text())
    assert record["generator"]["details"]["discovery"]["share"] == GRAPH_SHARE
    assert (
        "under the same budget, with 25 % of what it and the generator got, and may be wrong"
        in Path("out/report.html").read_text()
    )
    assert load(Path("out/model")).sample(5, do={"a": 1.0}).height == 5


def test_the_command_refuses_generators_without_arrows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    EFFECT.write_parquet("rows.parquet")
    NUMBERS.write("rows.toml")
    words = ["release", "rows.parquet", "-s", "rows.toml", "-g", "discover", "-e", "1", "-o", "out"]
    refused = CliRunner().invoke(app, [*words, "--generator", "one-way"])
    assert "measures no arrow" in str(refused.exception)
    assert not Path("out").exists()
