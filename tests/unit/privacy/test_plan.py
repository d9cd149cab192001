"""Plans: the tree, what it costs, and that nothing is spent that it does not show."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from escudo.errors import BudgetExceededError, InputError, LedgerError, NotInPlanError
from escudo.privacy import (
    Account,
    ApproximateEvent,
    ComposedEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    GDPEvent,
    LaplaceEvent,
    Ledger,
    MemoryAccount,
    ParallelEvent,
    Plan,
    PureEvent,
    RepeatedEvent,
    ZCDPEvent,
    charging,
    plan,
    plannable,
)
from escudo.privacy._plan import cost_text
from escudo.privacy._tally import shown_up

PURE = PureEvent(epsilon=0.25)
GAUSSIAN = GaussianEvent(l2_sensitivity=1.0, scale=10.0, grid=1.0)


def clinic() -> Plan:
    return Plan(
        "Budget",
        delta=1e-6,
        children=[
            Plan(
                "tables",
                children=[
                    Plan("dysp | bronc, either", GAUSSIAN, buys="shortness of breath", count=3),
                    Plan("either | tub, lung", GAUSSIAN),
                ],
            ),
            Plan("choice", PURE, buys="which table next"),
            Plan("sampling"),
        ],
    )


# -- the tree


def test_a_plan_prints_as_a_tree_with_each_cost_in_its_own_notion() -> None:
    total = clinic().guarantee()
    assert str(clinic()).splitlines() == [
        f"{'Budget':<30}   ε = {shown_up(total.epsilon)}, δ = 1e-06, replace one row ({total.accountant})",
        "├─ tables                        ρ = 0.02",
        "│  ├─ 3 × dysp | bronc, either   ρ = 0.015   shortness of breath",
        "│  └─ either | tub, lung         ρ = 0.005",
        "├─ choice                        ε = 0.25    which table next",
        "└─ sampling                      free (post-processing)",
    ]


def test_the_total_is_the_accountants_and_pure_plans_need_no_delta() -> None:
    assert clinic().guarantee().delta == 1e-6
    assert clinic().guarantee(1e-9).epsilon > clinic().guarantee().epsilon
    pure = Plan("two", PURE, count=2)
    assert pure.guarantee().epsilon == 0.5
    assert pure.guarantee().delta == 0.0
    assert Plan("noise", GAUSSIAN).guarantee().delta == 1e-6
    assert Plan("nothing").guarantee().epsilon == 0.0
    per_person = Plan("persons", PureEvent(epsilon=0.5, unit="person", max_rows_per_person=3))
    assert per_person.guarantee().max_rows_per_person == 3
    with pytest.raises(InputError, match="stated for 3 rows per person, not 2"):
        per_person.guarantee(max_rows_per_person=2)
    version_1 = {**per_person.to_json(), "event": PureEvent(epsilon=0.5).to_json() | {"unit": "person"}}
    assert Plan.from_json(version_1, max_rows_per_person=3) == per_person
    assert "replace one person" in str(per_person)


def test_the_event_is_the_composition_of_all_that_costs() -> None:
    tree = clinic()
    assert tree.event == ComposedEvent(
        events=(ComposedEvent(events=(RepeatedEvent(event=GAUSSIAN, count=3), GAUSSIAN)), PURE)
    )
    assert [leaf.name for leaf in tree.leaves()] == ["dysp | bronc, either", "either | tub, lung", "choice"]
    assert Plan("twice", children=[Plan("once", PURE)], count=2).event == RepeatedEvent(event=PURE, count=2)
    assert Plan("free").event is None
    assert Plan("free", children=[Plan("also free")]).event is None


def test_a_plan_is_a_frozen_value() -> None:
    assert clinic() == clinic()
    assert hash(clinic()) == hash(clinic())
    with pytest.raises(AttributeError):
        clinic().name = "other"  # type: ignore[misc]


def test_a_plan_goes_to_json_with_its_events() -> None:
    written = json.loads(json.dumps(clinic().to_json()))
    assert written["delta"] == 1e-6
    assert written["event"] is None
    leaf = written["children"][0]["children"][0]
    assert Event.from_json(leaf["event"]) == GAUSSIAN
    assert (leaf["name"], leaf["count"], leaf["buys"]) == ("dysp | bronc, either", 3, "shortness of breath")


def test_a_plan_shows_itself_as_html_without_trusting_names() -> None:
    shown = Plan("<b>release</b>", children=[Plan("tables & more", PURE, buys="<i>")])._repr_html_()
    assert "&lt;b&gt;release" in shown
    assert "tables &amp; more" in shown
    assert "<i>" not in shown


@pytest.mark.parametrize(
    ("event", "cost"),
    [
        (None, "free (post-processing)"),
        (PureEvent(epsilon=0.0), "ε = 0.00"),
        (LaplaceEvent(l1_sensitivity=2.0, scale=8.0, grid=1.0), "ε = 0.25"),
        (ExponentialEvent(epsilon=0.5), "ε = 0.50"),
        (ApproximateEvent(epsilon=0.5, delta=1e-7), "ε = 0.50, δ = 1e-07"),
        (ZCDPEvent(rho=0.01), "ρ = 0.01"),
        (RepeatedEvent(event=GDPEvent(mu=0.3), count=4), "μ = 0.60"),
        (ComposedEvent(events=(PURE, GAUSSIAN, GAUSSIAN)), "ε = 0.25, ρ = 0.01"),
        (ParallelEvent(events=(PURE, PureEvent(epsilon=0.5)), by="position"), "ε = 0.50"),
        (ParallelEvent(events=(PURE, PureEvent(epsilon=0.5)), by="value"), "ε = 0.75"),
        (ParallelEvent(events=(ZCDPEvent(rho=0.01), ZCDPEvent(rho=0.02)), by="position"), "ρ = 0.02"),
    ],
)
def test_costs_are_shown_in_their_own_notion(event: Event | None, cost: str) -> None:
    assert cost_text(event) == cost


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Plan(""), "name of a plan"),
        (lambda: Plan(3), "name of a plan"),
        (lambda: Plan("x", 0.5), "must be an event or None"),
        (lambda: Plan("x", PURE, count=0), "count"),
        (lambda: Plan("x", PURE, count=1.5), "count"),
        (lambda: Plan("x", PURE, delta=1.0), "delta"),
        (lambda: Plan("x", PURE, children=[Plan("y")]), "an event and children"),
        (lambda: Plan("x", children=["y"]), "must be plans"),
        (
            lambda: Plan("x", children=[Plan("y", PURE), Plan("z", PureEvent(epsilon=0.1, relation="add_remove"))]),
            "mix relations",
        ),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(make: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        make()


# -- charging


def test_one_spend_pays_for_the_whole_plan_in_any_order_and_grouping() -> None:
    account = MemoryAccount(epsilon=2.0, delta=1e-6)
    with charging(account, clinic(), purpose="release 7") as purse:
        assert isinstance(purse, Account)
        assert (purse.relation, purse.unit, purse.max_rows_per_person) == ("replace_one", "row", None)
        assert "5 releases unused" in repr(purse)
        receipts = [
            purse.spend(PURE, purpose="choice"),
            purse.spend(RepeatedEvent(event=GAUSSIAN, count=2)),
            purse.spend(GAUSSIAN),
            purse.spend(GAUSSIAN),
        ]
        assert "0 releases unused" in repr(purse)
    assert [receipt.event for receipt in receipts] == [PURE, RepeatedEvent(event=GAUSSIAN, count=2), GAUSSIAN, GAUSSIAN]
    assert [receipt.purpose for receipt in receipts] == ["choice", "release 7", "release 7", "release 7"]
    assert {receipt.sequence for receipt in receipts} == {1}
    assert [receipt.event for receipt in account.receipts] == [clinic().event]
    assert account.failed == {}


def test_what_the_plan_does_not_show_cannot_be_spent() -> None:
    account = MemoryAccount()
    with charging(account, Plan("two counts", PURE, count=2)) as purse:
        for event in (PureEvent(epsilon=0.1), GAUSSIAN, RepeatedEvent(event=PURE, count=3), ZCDPEvent(rho=0.001)):
            with pytest.raises(NotInPlanError, match="two counts"):
                purse.spend(event)
        purse.spend(PURE)
        purse.spend(PURE)
        with pytest.raises(NotInPlanError, match="used up"):
            purse.spend(PURE)
    with pytest.raises(NotInPlanError, match="has ended"):
        purse.spend(PURE)
    assert len(account.receipts) == 1


def test_unused_leaves_stay_spent() -> None:
    account = MemoryAccount()
    with charging(account, Plan("two counts", PURE, count=2)) as purse:
        purse.spend(PURE)
    assert account.total().epsilon == 0.5
    assert account.failed == {}


def test_a_plan_over_the_cap_spends_nothing_and_starts_nothing() -> None:
    account, started = MemoryAccount(epsilon=0.4), []
    with pytest.raises(BudgetExceededError), charging(account, Plan("two counts", PURE, count=2)):
        started.append(True)
    assert started == []
    assert account.receipts == ()


@pytest.mark.parametrize("error", [ValueError("Ada, positive"), KeyboardInterrupt()])
def test_an_exception_marks_the_spend_failed_without_its_message(error: BaseException) -> None:
    account = MemoryAccount()

    def release() -> None:
        with charging(account, Plan("a count", PURE)) as purse:
            purse.spend(PURE)
            raise error

    with pytest.raises(type(error)):
        release()
    assert account.failed == {1: type(error).__name__}
    assert account.total().epsilon == 0.25


def test_a_step_that_fails_marks_the_plan_once() -> None:
    account = MemoryAccount()

    def release() -> None:
        with charging(account, Plan("a count", PURE)) as purse:
            purse.fail(purse.spend(PURE), "the step itself")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        release()
    assert account.failed == {1: "the step itself"}


def test_a_failure_that_cannot_be_recorded_does_not_hide_the_error(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    account = Ledger(f"sqlite:///{path}").open("visits", epsilon=1.0)

    def release() -> None:
        with charging(account, Plan("a count", PURE)):
            for file in tmp_path.iterdir():
                file.unlink()
            raise RuntimeError("the real reason")

    with pytest.raises(RuntimeError, match="the real reason") as raised:
        release()
    assert "could not be marked as failed" in raised.value.__notes__[0]
    with pytest.raises(LedgerError):
        account.total()


def test_seeded_steps_need_a_plan_charged_as_not_for_release() -> None:
    account = MemoryAccount()
    with charging(account, Plan("a count", PURE)) as purse, pytest.raises(InputError, match="for_release=False"):
        purse.spend(PURE, for_release=False)
    with charging(account, Plan("a count", PURE), for_release=False) as purse:
        assert purse.spend(PURE, for_release=False).for_release is False
    with charging(account, Plan("a count", PURE), for_release=False) as purse:
        assert purse.spend(PURE).for_release is False
    assert [receipt.for_release for receipt in account.receipts] == [True, False, False]


def test_a_free_plan_records_nothing_and_allows_nothing() -> None:
    account = MemoryAccount()
    with charging(account, Plan("sampling")) as purse, pytest.raises(NotInPlanError):
        purse.spend(PURE)
    with pytest.raises(ValueError, match="oops"), charging(account, Plan("sampling")):
        raise ValueError("oops")
    assert account.receipts == ()


def test_a_plan_is_charged_to_a_ledger_as_one_row(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        account = ledger.open("visits", epsilon=2.0, delta=1e-6)
        with charging(account, clinic()) as purse:
            assert purse.spend(GAUSSIAN).hash == ledger.head
        with pytest.raises(RuntimeError), charging(account, Plan("a count", PURE)):
            raise RuntimeError
        assert [row.kind for row in ledger.history()] == ["open", "spend", "spend", "failed"]
        assert ledger.history()[1].event == clinic().event
        assert ledger.history()[1].payload["purpose"] == "Budget"
        assert ledger.verify().ok


def test_threads_share_a_purse_without_overspending_it() -> None:
    account, paid, refused, barrier = MemoryAccount(), [], [], threading.Barrier(8)
    with charging(account, Plan("counts", PURE, count=40)) as purse:

        def race() -> None:
            barrier.wait()
            for _ in range(10):
                try:
                    paid.append(purse.spend(PURE))
                except NotInPlanError as error:
                    refused.append(error)

        threads = [threading.Thread(target=race) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (len(paid), len(refused)) == (40, 40)


# -- the verb


@plannable(lambda epsilon, *, buys="": Plan("noisy count", PureEvent(epsilon=epsilon), buys=buys))
def noisy_count(epsilon: float, *, buys: str = "") -> int:
    raise AssertionError("planning must not run the operation")


class Model:
    def __init__(self, rows: int):
        self.rows = rows

    @plannable(lambda self, epsilon: Plan(f"{self.rows} rows", PureEvent(epsilon=epsilon)))
    def sample(self, epsilon: float) -> None:
        raise AssertionError("planning must not run the operation")


def test_plan_shows_the_tree_of_an_operation_without_running_it() -> None:
    assert plan(noisy_count, 0.5, buys="one number") == Plan("noisy count", PureEvent(epsilon=0.5), buys="one number")
    assert plan(Model(7).sample, epsilon=0.5) == Plan("7 rows", PureEvent(epsilon=0.5))


def test_what_has_no_plan_is_refused_with_what_has_one() -> None:
    with pytest.raises(InputError, match=r"len has no plan\..*noisy_count"):
        plan(len, [])
    with pytest.raises(InputError, match="no Plan but int"):
        plan(plannable(lambda: 5)(lambda: None))  # type: ignore[arg-type,return-value]


def test_a_plan_survives_being_written_and_read() -> None:
    tree = Plan(
        "release",
        children=[Plan("counts", PureEvent(epsilon=0.25), count=2, buys="two tables"), Plan("sampling")],
        delta=1e-6,
    )
    assert Plan.from_json(tree.to_json()) == tree


@pytest.mark.parametrize(
    "broken", [{}, {"name": "x"}, {"name": "x", "event": 3, "children": [], "buys": "", "count": 1}]
)
def test_a_record_that_is_no_plan_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Plan.from_json(broken)
