"""Claims about releases that pay for figures about themselves."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import polars as pl
import pytest

import escudo
from escudo.errors import BudgetExceededError, InputError, NotInPlanError
from escudo.privacy import ExponentialEvent, MemoryAccount
from escudo.synthesis import prepare, prepare_discovered
from escudo.utility import _private, evaluate_privately
from escudo.utility._private import fitting_evaluated, prepare_evaluated

GRAPH = escudo.CausalGraph.from_edges([("smoke", "ill"), ("age", "ill"), ("ill", "ward")])
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.fixture(scope="module", autouse=True)
def quick_learner():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_private, "TEACHERS", ("logistic",))
        yield


def preparing(schema, generator="marginals", **options):
    if generator == "discover":
        return lambda left: prepare_discovered(schema, None, epsilon=left, delta=1e-6, **options)
    return lambda left: prepare(schema, GRAPH, epsilon=left, delta=1e-6, generator=generator, **options)


def rho(event):
    if isinstance(event, ExponentialEvent):
        return event.epsilon**2 / 8
    return (event.l2_sensitivity / event.scale) ** 2 / 2


@pytest.mark.parametrize("generator", ["marginals", "moments", "independent", "discover"])
@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_the_whole_tree_costs_at_most_the_budget_and_wastes_little(schema, generator, relation):
    prepared = prepare_evaluated(
        preparing(schema, generator, relation=relation), share=0.1, relation=relation, **BUDGET
    )
    total = prepared.plan.guarantee(1e-6).epsilon
    assert 0.97 < total <= 1.0
    assert prepared.plan.children[-1].name == "private evaluation"
    assert prepared.plan.children[-1].event == prepared.figures.event
    assert prepared.plan.guarantee().relation == relation


@pytest.mark.parametrize(
    ("epsilon", "delta", "share"),
    [(0.05, 1e-6, 0.5), (0.3, 1e-9, 0.02), (4.0, 1e-3, 0.9), (10.0, 1e-6, 0.1)],
    ids=["small", "tiny delta", "nearly all", "large"],
)
def test_no_budget_is_exceeded(schema, epsilon, delta, share):
    def prepare_for(left):
        return prepare(schema, GRAPH, epsilon=left, delta=delta)

    prepared = prepare_evaluated(prepare_for, share=share, epsilon=epsilon, delta=delta)
    assert 0.95 * epsilon < prepared.plan.guarantee(delta).epsilon <= epsilon * (1 + 1e-9)


def test_the_share_is_of_what_adds_up(schema):
    prepared = prepare_evaluated(preparing(schema), share=0.25, **BUDGET)
    parts = [leaf.count * rho(leaf.once) for leaf in prepared.plan.leaves()]
    assert parts[-1] / sum(parts) == pytest.approx(0.25, abs=0.01)


def test_a_larger_share_means_less_noise_on_the_figures_and_more_on_the_rows(schema):
    small, large = (prepare_evaluated(preparing(schema), share=share, **BUDGET) for share in (0.05, 0.5))
    assert small.figures.event.scale > 2 * large.figures.event.scale
    assert small.generator.plan.guarantee().epsilon > large.generator.plan.guarantee().epsilon


@pytest.mark.parametrize("share", [0.0, -0.1, 1.0, 1.5, float("nan")])
def test_a_share_lies_between_0_and_1(schema, share):
    with pytest.raises(InputError, match="share"):
        prepare_evaluated(preparing(schema), share=share, **BUDGET)


def test_one_spend_is_recorded_and_the_figures_are_about_the_rows_that_are_passed(schema, draw):
    account = MemoryAccount()
    table = escudo.PrivateTable(draw(2000, 1), schema, account)
    prepared = prepare_evaluated(preparing(schema), share=0.2, epsilon=20.0, delta=1e-6)
    with fitting_evaluated(prepared, table, seed=1) as (model, evaluate):
        assert [receipt.event for receipt in account.receipts] == [prepared.plan.event]
        good = evaluate(model.sample(2000, seed=1))
        with pytest.raises(NotInPlanError):
            evaluate(model.sample(2000, seed=2))  # it was paid for once
    assert len(account.receipts) == 1
    assert model.plan == prepared.plan
    assert model.guarantee.epsilon == pytest.approx(prepared.plan.guarantee().epsilon)
    assert not model.guarantee.for_release
    with fitting_evaluated(prepared, table, seed=1) as (_, evaluate):
        bad = evaluate(draw(2000, 2, mixed=True))
    assert bad.two_way > good.two_way + 0.05
    assert good.accuracy > bad.accuracy


def test_after_the_block_nothing_more_can_be_spent(schema, draw):
    table = escudo.PrivateTable(draw(200, 1), schema)
    prepared = prepare_evaluated(preparing(schema), share=0.2, **BUDGET)
    with fitting_evaluated(prepared, table) as (model, evaluate):
        pass
    with pytest.raises(NotInPlanError):
        evaluate(model.sample(50, seed=1))


def test_a_failure_is_marked_and_a_refusal_costs_nothing(schema, draw):
    account = MemoryAccount(epsilon=1.2, delta=1e-6)
    table = escudo.PrivateTable(draw(200, 1), schema, account)
    prepared = prepare_evaluated(preparing(schema), share=0.2, **BUDGET)
    with pytest.raises(RuntimeError), fitting_evaluated(prepared, table):
        raise RuntimeError("half way")
    assert list(account.failed.values()) == ["RuntimeError"]
    with pytest.raises(BudgetExceededError), fitting_evaluated(prepared, table):
        pass
    assert len(account.receipts) == 1
    other = escudo.PrivateTable(draw(200, 1).select("smoke", "ill"), escudo.Schema.from_dict(
        {"smoke": ["no", "yes"], "ill": ["no", "yes"]}))  # fmt: skip
    with pytest.raises(InputError, match="another schema"), fitting_evaluated(prepared, other):
        pass


def test_persons_are_protected_with_all_their_rows(draw):
    schema = escudo.Schema.from_dict(
        {"smoke": ["no", "yes"], "ill": ["no", "yes"]}, person_id="who", max_rows_per_person=2
    )
    rows = draw(400, 1).select("smoke", "ill").with_columns(who=pl.Series(np.arange(400) // 2))
    table = escudo.PrivateTable(rows, schema, MemoryAccount(unit="person", max_rows_per_person=2))
    graph = escudo.CausalGraph.from_edges([("smoke", "ill")])
    prepared = prepare_evaluated(lambda left: prepare(schema, graph, epsilon=left, delta=1e-6), share=0.2, **BUDGET)
    assert prepared.figures.event.l2_sensitivity == pytest.approx(2 * np.sqrt(5))
    with fitting_evaluated(prepared, table, seed=1) as (model, evaluate):
        found = evaluate(model.sample(400, seed=1))
    assert (model.guarantee.unit, model.guarantee.max_rows_per_person) == ("person", 2)
    assert model.guarantee.epsilon <= 1.0
    assert found.guarantee.unit == "person"


def test_without_a_delta_it_is_refused(schema):
    with pytest.raises(InputError, match="delta"):
        prepare_evaluated(partial(preparing(schema)), share=0.1, epsilon=1.0, delta=0.0)


def test_figures_are_of_the_bins_that_the_release_chose_and_hold_for_them(tmp_path):
    """Equal bins between wide bounds put nearly all of a heavy tail into one cell, and find nothing wrong with it."""
    rng = np.random.default_rng(0)
    income = np.exp(10 + 0.8 * rng.normal(size=3_000))
    frame = pl.DataFrame({"income": income, "rich": np.where(income > 20_000, "yes", "no")})
    schema = escudo.Schema.from_dict(
        {"income": {"type": "numeric", "lower": 0, "upper": 10_000_000}, "rich": ["no", "yes"]}
    )
    data = escudo.PrivateTable(frame, schema, account := MemoryAccount())
    escudo.release(data, tmp_path / "release", evaluate=0.1, seed=1, **BUDGET)
    told = json.loads((tmp_path / "release" / "release.json").read_text())["evaluation"]["paid"]
    rows = pl.read_parquet(tmp_path / "release" / "synthetic.parquet")
    model = escudo.synthesis.load(tmp_path / "release" / "model")
    bins, wide = (
        evaluate_privately(escudo.PrivateTable(frame, one), rows, epsilon=50.0, seed=1)
        for one in (model.schema, schema)
    )
    assert wide.two_way < bins.two_way / 3
    alike = evaluate_privately(escudo.PrivateTable(frame, schema), rows, epsilon=50.0, model=model, seed=1)
    assert alike.figures == bins.figures
    assert (wide.equal_bins, bins.equal_bins, alike.equal_bins) == (("income",), (), ())
    assert "Nobody chose the bins of 'income': 20 of equal width were compared" in str(wide)
    assert "equal width" not in str(alike)
    asked = {"epsilon": 50.0, "model": model}
    assert alike.guarantee.epsilon == evaluate_privately.plan(schema, rows, **asked).guarantee().epsilon
    assert told["two_way"] == pytest.approx(bins.two_way, abs=5 * told["deviation"])
    assert told["two_way"] > wide.two_way + 2 * told["deviation"]
    assert [receipt.event for receipt in account.receipts] == [model.plan.event]


def test_the_model_whose_bins_are_taken_is_one_of_this_table(schema, draw):
    account = MemoryAccount()
    table = escudo.PrivateTable(draw(200, 1), schema, account)
    other = escudo.synthesize(
        escudo.PrivateTable(draw(200, 1).select("smoke"), schema.select("smoke")), None, epsilon=1.0, delta=1e-6, seed=1
    )
    for model in (other, "release/model"):
        with pytest.raises(InputError, match="model must be one of this table"):
            evaluate_privately(table, draw(50, 2), epsilon=1.0, model=model)
    assert account.receipts == ()
