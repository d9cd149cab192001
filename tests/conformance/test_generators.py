"""One suite for every generator: public plans, one charge before any noise, honest guarantees, faithful files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.errors import BudgetExceededError, EscudoError, InputError, NotIdentifiableError, RefusedError
from escudo.mechanisms import _noise
from escudo.privacy import Ledger, MemoryAccount, plan
from escudo.synthesis import GENERATORS, Model, fit, load, prepare, synthesize
from escudo.table import PrivateTable, Schema

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
ROWS = 600
NUMBER = {"type": "numeric", "lower": 0.0, "upper": 10.0, "bins": 4}
SCHEMA = Schema.from_dict({"cause": NUMBER, "effect": NUMBER, "other": NUMBER})  # numbers: every generator takes them
BY_PERSON = Schema(SCHEMA.fields, person_id="pid", max_rows_per_person=2)
FLOATING = {"autoregressive", "vae"}  # trained with noise in floating point, and the guarantee says so
# What is asked of networks here holds however long they are trained and however large they are.
NO_ARROW = ("independent", "one-way")
"""Generators that measure no arrow, and so do not say what setting a column does."""

SMALL: dict[str, dict[str, Any]] = {
    "autoregressive": {"steps": 40, "pretraining": 40},
    "vae": {"steps": 40, "pretraining": 40, "latent": 2, "encoder": (8,), "decoder": (8,)},
}
GRAPH = CausalGraph.from_edges([("cause", "effect")], nodes=["other"])

pytestmark = pytest.mark.parametrize("generator", GENERATORS)


def rows(seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    cause = rng.random(ROWS) * 10
    effect = (cause + rng.normal(0, 1, ROWS)).clip(0, 10)
    return pl.DataFrame(
        {"cause": cause, "effect": effect, "other": rng.random(ROWS) * 10, "pid": rng.integers(0, 200, ROWS)}
    )


def unreadable() -> pl.LazyFrame:
    """A frame of the right shape that fails as soon as a row of it is read."""

    def fail(_: pl.DataFrame) -> pl.DataFrame:
        raise RuntimeError("a row was read")

    return rows().lazy().map_batches(fail, schema=rows().schema)


def fitted(generator: str, *, frame: Any = None, account: Any = None, schema: Schema = SCHEMA, **options: Any) -> Model:
    known = {"relation": options.pop("relation", None), "rows": options.pop("public_rows", None)}
    table = PrivateTable(rows() if frame is None else frame, schema, account, **known)
    asked = {**BUDGET, "seed": 3, **SMALL.get(generator, {}), **options}
    return synthesize(table, GRAPH, generator=generator, **asked)


@cache
def model_of(generator: str) -> Model:
    """A model to look at, fitted once."""
    return fitted(generator)


# -- planning


@pytest.mark.parametrize(
    "terms", [{"relation": "add_remove"}, {"public_rows": ROWS}], ids=["number of rows private", "given"]
)
def test_the_plan_reads_no_row_and_spends_nothing(generator: str, terms: dict[str, Any]) -> None:
    account = MemoryAccount()
    asked = {"generator": generator, **BUDGET, **terms}
    made = plan(synthesize, PrivateTable(unreadable(), SCHEMA, account), GRAPH, **asked)
    assert made.name == generator
    assert made.event is not None
    assert made.event == plan(synthesize, SCHEMA, GRAPH, **asked).event
    assert account.receipts == ()


def test_where_rows_are_replaced_their_number_is_public_and_counted(generator: str) -> None:
    table = PrivateTable(rows(), SCHEMA)
    asked = {"generator": generator, **SMALL.get(generator, {}), **BUDGET}
    counted = plan(synthesize, table, GRAPH, **asked)
    assert counted == plan(synthesize, SCHEMA, GRAPH, public_rows=ROWS, **asked)
    assert model_of(generator).plan == counted


@pytest.mark.parametrize("delta", [1e-5, 1e-9])
def test_the_plan_is_stated_at_the_delta_asked_for(generator: str, delta: float) -> None:
    made = prepare(SCHEMA, GRAPH, generator=generator, epsilon=1.0, delta=delta).plan
    assert made.stated_delta == delta
    assert 0.99 < made.guarantee().epsilon_at(delta) <= 1.0


def test_the_relation_asked_for_is_the_plans(generator: str) -> None:
    for relation in ("replace_one", "add_remove"):
        made = prepare(SCHEMA, GRAPH, generator=generator, relation=relation, **BUDGET).plan
        assert made.event is not None
        assert made.event.relation == relation


# -- spending


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens, in order: 'noise' for each draw; accounts under test add 'charge'."""
    happened: list[str] = []
    for source in (_noise.SeededNoise, _noise.SecureNoise):
        for name in ("add_laplace", "add_gaussian", "gumbel_argmax", "exponential_argmax"):
            draw: Callable[..., Any] = getattr(source, name)

            def noted(self: Any, *arguments: Any, draw: Callable[..., Any] = draw) -> Any:
                happened.append("noise")
                return draw(self, *arguments)

            monkeypatch.setattr(source, name, noted)
    return happened


class Noting(MemoryAccount):
    """An account in memory that notes when it is charged."""

    def __init__(self, happened: list[str], **terms: Any):
        super().__init__(**terms)
        self.happened = happened

    def spend(self, *arguments: Any, **options: Any) -> Any:
        self.happened.append("charge")
        return super().spend(*arguments, **options)


def test_the_charge_comes_before_the_first_noise_and_there_is_one(generator: str, acts: list[str]) -> None:
    account = Noting(acts)
    model = fitted(generator, account=account)
    assert acts[0] == "charge"
    assert acts.count("charge") == 1
    assert "noise" in acts
    (receipt,) = account.receipts
    assert receipt.event == model.plan.event
    assert receipt.purpose == f"synthesize ({generator})"
    assert account.failed == {}


def test_a_refused_charge_draws_no_noise(generator: str, acts: list[str]) -> None:
    account = Noting(acts, epsilon=0.5, delta=1e-6)
    with pytest.raises(BudgetExceededError):
        fitted(generator, account=account)
    assert acts == ["charge"]
    assert account.receipts == ()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as book:
        yield book


def test_the_ledger_gets_exactly_one_row_and_it_is_what_the_guarantee_says(generator: str, ledger: Ledger) -> None:
    account = ledger.open("visits", epsilon=2.0, delta=1e-6)
    model = fitted(generator, account=account, seed=None)
    assert [row.kind for row in ledger.history("visits")] == ["open", "spend"]
    assert ledger.total("visits").epsilon == pytest.approx(model.guarantee.epsilon, rel=1e-9)
    assert ledger.verify().ok


def test_a_failure_after_the_charge_stays_spent_and_is_marked(generator: str, ledger: Ledger) -> None:
    account = ledger.open("visits", epsilon=2.0, delta=1e-6)
    with pytest.raises(EscudoError) as caught:
        fitted(generator, frame=unreadable(), account=account, seed=None, public_rows=ROWS)
    assert "a row was read" not in str(caught.value)
    assert [row.kind for row in ledger.history("visits")] == ["open", "spend", "failed"]
    assert ledger.info("visits").failed == 1
    assert ledger.total("visits").epsilon_at(1e-6) > 0.99


def test_an_unconfirmed_schema_is_refused_and_nothing_is_spent(generator: str) -> None:
    draft = Schema.from_dict({name: {**NUMBER, "confirmed": False} for name in SCHEMA.names})
    account = MemoryAccount()
    with pytest.raises(RefusedError, match="not confirmed"):
        fitted(generator, account=account, schema=draft)
    assert account.receipts == ()


def test_what_was_prepared_for_another_schema_is_refused(generator: str) -> None:
    prepared = prepare(SCHEMA, GRAPH, generator=generator, **BUDGET)
    account = MemoryAccount()
    wider = Schema.from_dict({name: {**NUMBER, "upper": 20.0} for name in SCHEMA.names})
    with pytest.raises(InputError, match="another schema"):
        fit(prepared, PrivateTable(rows(), wider, account), seed=1)
    assert account.receipts == ()


# -- the guarantee


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("schema", [SCHEMA, BY_PERSON], ids=["row", "person"])
def test_the_guarantee_is_at_most_what_was_asked_for_and_for_whom(
    generator: str, relation: str, schema: Schema
) -> None:
    account = MemoryAccount(relation=relation, unit=schema.unit, max_rows_per_person=schema.max_rows_per_person)
    model = fitted(generator, account=account, schema=schema, relation=relation)
    promised = model.guarantee
    assert promised.epsilon is not None
    assert promised.epsilon <= 1.0
    assert (promised.delta, promised.relation, promised.unit) == (1e-6, relation, schema.unit)
    assert promised.max_rows_per_person == schema.max_rows_per_person
    assert promised.float_safe is (generator not in FLOATING)
    assert account.total(1e-6).epsilon == pytest.approx(promised.epsilon, rel=1e-9)


def test_a_seeded_run_is_not_for_release_and_a_real_one_is(generator: str) -> None:
    for seed, for_release in ((3, False), (None, True)):
        account = MemoryAccount()
        model = fitted(generator, account=account, seed=seed)
        assert model.guarantee.for_release is for_release
        assert account.receipts[0].for_release is for_release


def test_the_number_of_rows_is_exact_only_where_it_is_public(generator: str) -> None:
    assert model_of(generator).details["rows"] == ROWS
    assert fitted(generator, relation="add_remove", public_rows=ROWS).details["rows"] == ROWS
    private = [fitted(generator, relation="add_remove", seed=seed).details["rows"] for seed in range(2)]
    assert all(isinstance(number, int) and number >= 1 for number in private)
    assert len(set(private)) > 1


# -- the model


def test_the_same_seed_gives_the_same_model_and_another_one_does_not(generator: str) -> None:
    one, same, another = (fitted(generator, seed=seed).sample(400, seed=0) for seed in (3, 3, 4))
    assert one.equals(same)
    assert not one.equals(another)


@pytest.mark.parametrize(
    "question", [{}, {"do": {"cause": 9.0}}, {"given": {"cause": 9.0}}], ids=["see", "do", "given"]
)
def test_only_values_of_the_schema_are_drawn(generator: str, question: dict[str, Any]) -> None:
    model = model_of(generator)
    if generator in NO_ARROW and "do" in question:
        with pytest.raises(NotIdentifiableError, match="without a causal graph"):
            model.sample(300, seed=1, **question)
        return
    drawn = model.sample(300, seed=1, **question)
    assert drawn.columns == list(SCHEMA.names)
    assert drawn.height == 300
    for name in SCHEMA.names:
        assert drawn[name].null_count() == 0
        assert drawn[name].is_between(0, 10).all()


def test_a_model_read_back_draws_the_same_rows(generator: str, tmp_path: Path) -> None:
    model = model_of(generator)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    for question in ({}, {"given": {"effect": 5.0}}, *([] if generator in NO_ARROW else [{"do": {"cause": 2.0}}])):
        assert again.sample(200, seed=5, **question).equals(model.sample(200, seed=5, **question))
    assert again.guarantee == model.guarantee
    assert again.plan == model.plan
    assert dict(again.details) == dict(model.details)


def test_a_model_tells_what_it_is(generator: str) -> None:
    model = model_of(generator)
    assert model.generator == generator
    assert model.schema == SCHEMA
    assert set(model.graph.nodes) == set(SCHEMA.names)
    assert sorted(model.order) == sorted(SCHEMA.names)
    assert generator in repr(model)
    article = "An" if generator in ("autoregressive", "independent") else "A"
    assert str(model).startswith(f"{article} {generator} model of ")
    assert "Not for release" in str(model)


@pytest.mark.parametrize("graph", [None, CausalGraph.from_edges([("effect", "cause")])], ids=["none", "partial"])
def test_a_graph_that_says_less_is_enough(generator: str, graph: CausalGraph | None) -> None:
    asked = {"generator": generator, "seed": 1, **SMALL.get(generator, {}), **BUDGET}
    model = synthesize(PrivateTable(rows(), SCHEMA), graph, **asked)
    assert model.sample(50, seed=0).height == 50
    if graph is not None and generator != "independent":
        assert ("effect", "cause") in model.graph.edges


@pytest.mark.parametrize("graph", [None, CausalGraph.from_edges([("effect", "cause")])], ids=["none", "partial"])
def test_what_the_graph_leaves_open_is_not_answered_by_an_intervention(
    generator: str, graph: CausalGraph | None, tmp_path: Path
) -> None:
    asked = {"generator": generator, "seed": 1, **SMALL.get(generator, {}), **BUDGET}
    model = synthesize(PrivateTable(rows(), SCHEMA), graph, **asked)
    model.save(tmp_path / "model")
    for one in (model, load(tmp_path / "model")):
        with pytest.raises(NotIdentifiableError, match=r"without a causal graph|does not name 'other'"):
            one.sample(10, do={"effect": 5.0})
        assert not one.answers_do("effect")
    if graph is not None and generator not in NO_ARROW:
        assert model.sample(10, do={"effect": 5.0}, columns=["cause"]).columns == ["cause"]
