"""A graph and a generator under one plan: the same tables serve both, and the command line offers it."""

from __future__ import annotations

import itertools
import json

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from escudo.causal import CausalGraph, Knowledge, asia
from escudo.cli._release import release
from escudo.discovery import constraints_of
from escudo.errors import BudgetExceededError, EscudoError, InputError
from escudo.privacy import GaussianEvent, Ledger, MemoryAccount
from escudo.synthesis import TableConditional, fit, load, prepare
from escudo.synthesis._discovered import ORIENTATION, Information, find, prepare_discovered
from escudo.synthesis._estimation import NoisyTable
from escudo.table import PrivateTable, Schema

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def rho(event) -> float:
    return (event.l2_sensitivity / event.scale) ** 2 / 2


def gap(first: pl.DataFrame, second: pl.DataFrame, columns: list[str]) -> float:
    """Total variation between the laws of some columns in two tables."""
    a, b = (
        {tuple(row[:-1]): row[-1] / len(frame) for row in frame.group_by(columns).len().rows()}
        for frame in (first, second)
    )
    return sum(abs(a.get(key, 0) - b.get(key, 0)) for key in a | b) / 2


def test_the_plan_keeps_a_share_for_directions_and_costs_what_was_asked(collider_schema):
    plan = prepare_discovered(collider_schema, **BUDGET).plan
    costs = {leaf.name: rho(leaf.once) * leaf.count for leaf in plan.leaves() if isinstance(leaf.once, GaussianEvent)}
    picks = sum(leaf.once.epsilon**2 / 8 * leaf.count for leaf in plan.leaves() if leaf.name.startswith("pick"))
    assert costs["tables that tell directions"] / (sum(costs.values()) + picks) == pytest.approx(ORIENTATION, abs=1e-3)
    assert 0.99 < plan.guarantee().epsilon <= 1.0
    assert plan.name == "marginals"


def test_the_model_follows_the_discovered_graph_and_imitates_the_table(collider_rows, collider_schema, collider):
    table = PrivateTable(collider_rows, collider_schema)
    model = fit(prepare_discovered(collider_schema, **BUDGET), table, seed=1)
    assert len(table.account.receipts) == 1
    assert set(collider.graph.adjacencies) <= set(model.graph.adjacencies)
    synthetic = model.sample(20_000, seed=2)
    assert gap(synthetic, collider_rows, ["a", "b"]) < 0.02
    assert gap(synthetic, collider_rows, ["a", "c"]) < 0.02
    assert gap(synthetic, collider_rows, ["a", "d"]) < 0.015
    told = model.details["discovery"]
    assert {frozenset((edge["from"], edge["to"])) for edge in told["edges"]} == set(
        map(frozenset, collider.graph.adjacencies)
    )
    claimed = {(edge["from"], edge["to"]) for edge in told["edges"] if edge["directed"]}
    assert {("a", "c"), ("b", "c")} <= claimed <= set(collider.graph.edges)
    assert {tuple(arrow) for arrow in model.details["stated_arrows"]} == claimed
    assert claimed <= set(model.graph.edges), "so that do() follows what was found"


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_the_table_is_about_as_good_as_without_a_graph(epsilon):
    network = asia()
    rows = network.sample_frame(20_000, rng=np.random.default_rng(3))
    schema = Schema.from_dict({name: list(levels) for name, levels in network.levels.items()})
    pairs = [list(pair) for pair in itertools.combinations(schema.names, 2)]

    def error(prepared) -> float:
        drawn = [fit(prepared, PrivateTable(rows, schema), seed=seed).sample(20_000, seed=0) for seed in range(4)]
        return float(np.mean([gap(each, rows, pair) for each in drawn for pair in pairs]))

    budget = {"epsilon": epsilon, "delta": 1e-6}
    # Over ten seeds it is 1.15 and 1.07 times; before the graph was read off the table it was up to twice.
    assert error(prepare_discovered(schema, **budget)) < 1.35 * error(prepare(schema, None, **budget))


def test_what_cannot_be_told_stays_open(collider_schema):
    """In a chain no direction can be told from the table; in a common effect two can."""
    laws = {
        "a": TableConditional((), np.array([0.5, 0.5])),
        "b": TableConditional(("a",), np.array([[0.8, 0.2], [0.2, 0.8]])),
        "c": TableConditional(("b",), np.array([[0.8, 0.2], [0.2, 0.8]])),
    }
    other = {
        "a": TableConditional((), np.array([0.5, 0.5])),
        "c": TableConditional((), np.array([0.5, 0.5])),
        "b": TableConditional(("a", "c"), np.array([[[0.9, 0.1], [0.3, 0.7]], [[0.3, 0.7], [0.1, 0.9]]])),
    }
    names = ("a", "b", "c")
    schema = Schema.from_dict({name: ["no", "yes"] for name in names})
    tables = [NoisyTable(pair, np.full((2, 2), 250.0), 1.0) for pair in itertools.combinations(names, 2)]
    chain = find(names, Information(laws, {}), tables, 1000.0, constraints_of(schema, None))
    assert set(chain.graph.undirected_edges) == {("a", "b"), ("b", "c")}
    assert not chain.graph.edges
    common = find(names, Information(other, {}), tables, 1000.0, constraints_of(schema, None))
    assert set(common.graph.edges) == {("a", "b"), ("c", "b")}
    unmeasured = find(names, Information(other, {}), tables[:1] + tables[2:], 1000.0, constraints_of(schema, None))
    assert not unmeasured.graph.edges
    assert unmeasured.ends == [("a", "c")]
    tiers = CausalGraph.from_edges([], nodes=names, tiers=[["a"], ["b", "c"]])
    known = find(names, Information(laws, {}), tables, 1000.0, constraints_of(schema, tiers))
    assert ("a", "b") in known.graph.edges
    # What knowledge allows in one direction only, and would close a cycle, is not there.
    every = {**laws, "c": TableConditional(("a", "b"), np.array([[[0.9, 0.1], [0.4, 0.6]], [[0.6, 0.4], [0.1, 0.9]]]))}
    round_about = Knowledge(forbidden=(("b", "a"), ("c", "b"), ("a", "c")))
    ruled = CausalGraph(nodes=names, knowledge=round_about)
    cut = find(names, Information(every, {}), tables, 1000.0, constraints_of(schema, ruled))
    assert len(cut.graph.edges) == 2
    assert not cut.graph.undirected_edges


def test_wide_columns_are_generated_at_full_resolution():
    rng = np.random.default_rng(0)
    cause = rng.normal(50, 12, 20_000)
    frame = pl.DataFrame({"cause": cause, "effect": np.where(rng.random(20_000) < cause / 100, "yes", "no")})
    schema = Schema.from_dict(
        {"cause": {"type": "numeric", "lower": 0, "upper": 100, "bins": 40}, "effect": ["no", "yes"]}
    )
    model = fit(prepare_discovered(schema, **BUDGET), PrivateTable(frame, schema), seed=1)
    assert model.conditionals["cause"].size == 40
    synthetic = model.sample(20_000, seed=1)
    assert synthetic["cause"].mean() == pytest.approx(frame["cause"].mean(), abs=1.0)
    assert synthetic["cause"].std() == pytest.approx(frame["cause"].std(), rel=0.1)


def test_knowledge_reaches_the_generator(collider_rows, collider_schema):
    known = CausalGraph.from_edges([("a", "d")])
    model = fit(
        prepare_discovered(collider_schema, known, **BUDGET), PrivateTable(collider_rows, collider_schema), seed=1
    )
    assert ("a", "d") in model.graph.edges


def test_constant_columns_are_generated_too(collider_rows):
    schema = Schema.from_dict({"always": ["x"], "a": ["no", "yes"], "c": ["no", "yes"]})
    frame = collider_rows.with_columns(always=pl.lit("x"))
    model = fit(prepare_discovered(schema, **BUDGET), PrivateTable(frame, schema), seed=1)
    assert set(model.sample(10, seed=0)["always"]) == {"x"}


def test_add_remove_and_over_budget(collider_rows, collider_schema):
    account = MemoryAccount(relation="add_remove", epsilon=1.0, delta=1e-6)
    prepared = prepare_discovered(collider_schema, **BUDGET, relation="add_remove")
    table = PrivateTable(collider_rows, collider_schema, account)
    assert fit(prepared, table, seed=1).guarantee.relation == "add_remove"
    with pytest.raises(BudgetExceededError):
        fit(prepared, table, seed=1)


@pytest.mark.parametrize("bad", [{"epsilon": -1.0}, {"delta": 2.0}, {"method": "gaussian"}], ids=str)
def test_bad_arguments_are_refused(bad, collider_schema):
    with pytest.raises(InputError):
        prepare_discovered(collider_schema, **{**BUDGET, **bad})


# -- the command


app = typer.Typer()
app.command()(release)


@pytest.fixture
def clinic(tmp_path, monkeypatch):
    network = asia()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ESCUDO_LEDGER", raising=False)
    network.sample_frame(20_000, rng=np.random.default_rng(0)).write_csv("visits.csv")
    Schema.from_dict({name: list(levels) for name, levels in network.levels.items()}).write("visits.toml")
    return tmp_path


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


COMMAND = ("visits.csv", "--schema", "visits.toml", "--graph", "discover", "--epsilon", "1")


def test_release_discovers_the_graph_in_one_charge_and_says_what_it_found(clinic):
    Ledger("sqlite:///ledger.db").open("clinic", epsilon=3.0, delta=1e-5)
    result = run(*COMMAND, "--out", "made", "--ledger", "sqlite:///ledger.db", "--dataset", "clinic", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.output)
    assert told["graph"]["edges"]
    assert told["for_release"]
    assert [row.kind for row in Ledger("sqlite:///ledger.db").history("clinic")].count("spend") == 1
    record = json.loads((clinic / "made" / "release.json").read_text())
    assert record["generator"]["details"]["discovery"]["edges"] == told["graph"]["edges"]
    page = (clinic / "made" / "report.html").read_text()
    assert "<svg" in page
    assert "direction_confidence" in page
    model = load(clinic / "made" / "model")
    assert model.sample(5, given={"smoke": "yes"}).height == 5
    assert model.stated is not None
    for end in {name for line in model.stated.undirected_edges for name in line}:
        assert not model.answers_do(end)  # an edge at it may point either way


def test_the_plan_is_shown_without_spending(clinic):
    result = run(*COMMAND, "--plan")
    assert result.exit_code == 0
    assert "tables that tell directions" in result.output
    assert "Nothing was spent" in result.output


def test_what_it_finds_is_there(clinic):
    told = json.loads(run(*COMMAND, "--out", "made", "--seed", "1", "--json").output)
    found = {frozenset((edge["from"], edge["to"])) for edge in told["graph"]["edges"]}
    truth = {frozenset(edge) for edge in asia().graph.edges}
    assert found <= truth
    assert len(found) >= 4
    assert not told["for_release"]


def test_people_read_edges_with_their_confidence(clinic):
    result = run(*COMMAND, "--out", "made", "--seed", "1")
    assert result.exit_code == 0
    assert "Discovered graph" in result.output
    assert "bronc — dysp" in result.output or "bronc → dysp" in result.output
    assert "direction open" in result.output
    assert "are kept as mere association: they claim no cause" in " ".join(result.output.split())
    assert "%" in result.output


def test_knowledge_comes_from_a_file(clinic):
    CausalGraph.from_edges([("asia", "xray")]).write(clinic / "known.dot")
    result = run(*COMMAND, "--knowledge", "known.dot", "--out", "made", "--seed", "1", "--json")
    assert result.exit_code == 0
    assert {"from": "asia", "to": "xray"}.items() <= next(
        edge.items() for edge in json.loads(result.output)["graph"]["edges"] if edge["from"] == "asia"
    )


def test_the_ledger_may_come_from_the_environment(clinic, monkeypatch):
    Ledger("sqlite:///other.db").open("clinic", epsilon=3.0, delta=1e-5)
    monkeypatch.setenv("ESCUDO_LEDGER", "sqlite:///other.db")
    result = run(*COMMAND, "--dataset", "clinic", "--plan", "--json")
    assert result.exit_code == 0
    assert json.loads(result.output)["ledger"]["cap"] == 3.0
    assert run(*COMMAND, "--plan").exit_code == 0, "without --dataset nothing is recorded"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--generator", "linear"), "marginals"),
        (("--option", "depth=3"), "depth"),
    ],
    ids=["generator", "option"],
)
def test_what_does_not_go_with_discovery_is_refused(clinic, more, words):
    result = run(*COMMAND, *more, "--plan")
    assert result.exit_code != 0
    assert isinstance(result.exception, EscudoError)
    assert words in str(result.exception)


def test_knowledge_without_discovery_is_refused(clinic):
    CausalGraph.from_edges([("asia", "xray")]).write(clinic / "known.dot")
    result = run("visits.csv", "--schema", "visits.toml", "--epsilon", "1", "--knowledge", "known.dot", "--plan")
    assert isinstance(result.exception, InputError)


def test_families_too_large_for_the_rows_lose_parents(collider_rows):
    many = [f"l{i}" for i in range(300)]
    rng = np.random.default_rng(0)
    place = rng.integers(0, 300, size=len(collider_rows))
    frame = collider_rows.with_columns(
        wide=pl.Series([many[i] for i in place]),
        other=pl.Series([many[(i * 7 + int(rng.integers(9))) % 300] for i in place]),
    )
    schema = Schema.from_dict({"wide": many, "other": many, "a": ["no", "yes"], "c": ["no", "yes"]})
    model = fit(prepare_discovered(schema, **BUDGET), PrivateTable(frame, schema), seed=1)
    assert all(law.table.size <= 1000 for law in model.conditionals.values())
    assert ("a", "c") in model.graph.adjacencies
