"""How a private question is asked: charged once, before anything is drawn; marked if it fails; planned for nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pytest

import escudo
from escudo.asking import ask, asking, planning, run, verb
from escudo.errors import BudgetExceededError, InputError, NotInPlanError
from escudo.mechanisms import Purse, laplace_event
from escudo.privacy import Budget, GaussianEvent, LaplaceEvent, MemoryAccount, Neighbours, Plan
from escudo.table import PrivateTable, Schema

SCHEMA = Schema.from_dict({"ill": ["no", "yes"]})
FRAME = pl.DataFrame({"ill": ["no", "yes", "yes"]})


@dataclass(frozen=True, kw_only=True)
class Prepared:
    schema: Schema
    event: LaplaceEvent
    act: Callable[[PrivateTable, Purse, LaplaceEvent], Any]

    @property
    def plan(self) -> Plan:
        return Plan("a count", self.event)

    def run(self, table: PrivateTable, purse: Purse) -> Any:
        return self.act(table, purse, self.event)


@dataclass(frozen=True, kw_only=True)
class Counting:
    """How many rows are in each cell."""

    act: Callable[[PrivateTable, Purse, LaplaceEvent], Any] = lambda table, purse, event: purse.add(
        table.counts("ill"), event
    )

    def prepare(self, schema: Schema, neighbours: Neighbours, budget: Budget) -> Prepared:
        event = laplace_event(2, sensitivity=2, epsilon=budget.epsilon, integers=True, **neighbours.stated)
        return Prepared(schema=schema, event=event, act=self.act)


def table_of(**terms: Any) -> PrivateTable:
    return PrivateTable(FRAME, SCHEMA, MemoryAccount(epsilon=2.0, **terms))


def test_the_whole_plan_is_charged_once_and_before_anything_is_drawn() -> None:
    table = table_of()
    spent: list[int] = []

    def act(_: PrivateTable, purse: Purse, event: LaplaceEvent) -> Any:
        spent.append(len(table.account.receipts))  # type: ignore[attr-defined]
        return purse.add(table.counts("ill"), event), purse.guarantee.epsilon, purse.for_release

    noisy, epsilon, public = ask(Counting(act=act), table, Budget(1.0), seed=0, purpose="why")
    assert noisy.shape == (2,)
    assert epsilon == pytest.approx(1.0)
    assert not public
    (receipt,) = table.account.receipts  # type: ignore[attr-defined]
    assert (receipt.purpose, receipt.for_release, spent) == ("why", False, [1])


def test_what_the_plan_does_not_show_is_not_drawn() -> None:
    def twice(table: PrivateTable, purse: Purse, event: LaplaceEvent) -> None:
        purse.add(table.counts("ill"), event)
        purse.add(table.counts("ill"), event)

    table = table_of()
    with pytest.raises(NotInPlanError, match="used up"):
        ask(Counting(act=twice), table, Budget(1.0), seed=0)
    assert list(table.account.failed.values()) == ["NotInPlanError"]  # type: ignore[attr-defined]


def test_parts_of_an_event_that_is_paid_cost_nothing_more() -> None:
    def parts(table: PrivateTable, purse: Purse, event: LaplaceEvent) -> int:
        paid = purse.within(event)
        paid.add(table.counts("ill"), event)
        paid.add(table.counts("ill"), event)
        with pytest.raises(NotInPlanError):
            purse.add(table.counts("ill"), event)
        return 1

    table = table_of()
    assert ask(Counting(act=parts), table, Budget(1.0), seed=0) == 1
    assert len(table.account.receipts) == 1  # type: ignore[attr-defined]


def test_what_comes_after_the_answer_is_part_of_it() -> None:
    table = table_of()
    with pytest.raises(OSError, match="full"), asking(Counting(), table, Budget(1.0), seed=0):
        raise OSError("the disk is full of private words")
    assert list(table.account.failed.values()) == ["OSError"]  # type: ignore[attr-defined]
    assert table.account.total().epsilon == pytest.approx(1.0)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda table: ask(Counting(), table, Budget(3.0), seed=0), BudgetExceededError),
        (lambda table: ask(Counting(), table, Budget(1.0), seed=-1), InputError),
        (lambda table: Budget(0.0), InputError),
        (lambda table: Budget(1.0, 1.0), InputError),
        (lambda table: run(replace(_prepared(), schema=Schema.from_dict({"ill": [0, 1]})), table), InputError),
    ],
    ids=["more than is left", "no seed", "no epsilon", "no delta", "another schema"],
)
def test_what_is_refused_costs_nothing(change: Callable[[PrivateTable], Any], error: type[Exception]) -> None:
    table = table_of()
    with pytest.raises(error):
        change(table)
    assert not table.account.receipts  # type: ignore[attr-defined]


def _prepared() -> Prepared:
    return Counting().prepare(SCHEMA, SCHEMA.neighbours(), Budget(1.0))


@verb
def count(table: PrivateTable, *, epsilon: float, seed: int | None = None) -> Any:
    return ask(Counting(), table, Budget(epsilon), seed=seed)


def test_a_verb_is_planned_by_its_own_call_and_nothing_is_read_or_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrivateTable, "counts", lambda *_: pytest.fail("rows were read"))
    table = table_of()
    planned = escudo.plan(count, table, epsilon=0.5)
    assert planned.guarantee().epsilon == pytest.approx(0.5)
    assert count.plan(SCHEMA, epsilon=0.5, relation="add_remove").event.relation == "add_remove"  # type: ignore[attr-defined]
    assert not table.account.receipts  # type: ignore[attr-defined]
    assert not planning()


def test_a_verb_takes_the_relation_of_the_account() -> None:
    table = table_of(relation="add_remove")
    count(table, epsilon=1.0, seed=0)
    assert table.account.receipts[0].event.relation == "add_remove"  # type: ignore[attr-defined]


def test_the_old_spelling_warns_and_means_the_same() -> None:
    table = table_of(relation="add_remove")
    with pytest.warns(DeprecationWarning, match=r"relation of count\(\) will end with version 0.3"):
        old = count(table, epsilon=1.0, relation="add_remove", seed=0)
    assert old.tolist() == count(table, epsilon=1.0, seed=0).tolist()


@pytest.mark.parametrize("given", [SCHEMA, FRAME, None], ids=["schema", "frame", "nothing"])
def test_a_verb_asks_a_private_table_and_nothing_else(given: object) -> None:
    with pytest.raises(InputError, match="count asks a PrivateTable"):
        count(given, epsilon=1.0)


def test_numbers_and_events_of_different_kinds_do_not_go_together() -> None:
    whole = laplace_event(2, sensitivity=2, epsilon=1.0, integers=True)
    real = laplace_event(2, sensitivity=2, epsilon=1.0)
    account = MemoryAccount()
    for values, event in (([1.0, 2.0], whole), ([1, 2], real), ([1, 2, 3], whole)):
        with pytest.raises(InputError, match="planned for"):
            Purse(account, 0).add(values, event)
    assert not account.receipts
    noisy = Purse(account, 0).add([1, 2], GaussianEvent(l2_sensitivity=1.0, scale=2.0, grid=1.0))
    assert account.receipts[0].event.kind == "gaussian"
    assert noisy.dtype.kind == "i"  # type: ignore[union-attr]
