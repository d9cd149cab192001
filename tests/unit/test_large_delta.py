"""A δ that is not small against one over the number of records: every verb refuses it unless it is said twice.

The number is public, stated, or, after the fact, noisy; never the true one where neighbours do not share it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.asking import run
from escudo.attacks import victim_of
from escudo.discovery import discover, effect_of, prepare, run_prepared
from escudo.errors import RefusedError
from escudo.learning import learn_schema
from escudo.mechanisms import Purse
from escudo.orientation import direction, orient
from escudo.privacy import MemoryAccount, Plan, PureEvent, delta_warning, plan
from escudo.privacy._plan import judged_delta, usual_delta
from escudo.releasing import release
from escudo.report import warnings_of, write_release
from escudo.synthesis import fit, synthesize
from escudo.synthesis import prepare as prepare_synthesis
from escudo.table import PrivateTable, Schema, outline
from escudo.utility._private import fitting_evaluated, prepare_evaluated

ROWS = 400
NUMBERS = {name: {"type": "numeric", "lower": 0, "upper": 1} for name in "uvwxyz"}
RNG = np.random.default_rng(0)
FRAME = pl.DataFrame(
    {name: RNG.choice(["no", "yes"], ROWS) for name in "ab"} | {name: RNG.uniform(0, 1, ROWS) for name in NUMBERS}
).with_columns(who=pl.Series(np.arange(ROWS) // 4))
SCHEMA = Schema.from_dict({"a": ["no", "yes"], "b": ["no", "yes"], **NUMBERS})
PERSONS = Schema.from_dict({"a": ["no", "yes"], "b": ["no", "yes"], **NUMBERS}, person_id="who", max_rows_per_person=4)
OPEN = outline(FRAME[["a"]])


def table_of(schema: Schema = SCHEMA, relation: str = "replace_one") -> PrivateTable:
    account = MemoryAccount(relation=relation, unit=schema.unit, max_rows_per_person=schema.max_rows_per_person)
    return PrivateTable(FRAME, schema, account)


def learnt(table: PrivateTable, *, relation: str, **terms: Any) -> Any:
    return learn_schema(FRAME, OPEN, relation=relation, account=table.account, **terms)


def learnt_plan(table: PrivateTable, *, relation: str, seed: int, **terms: Any) -> Plan:
    return plan(learn_schema, FRAME, OPEN, relation=relation, account=table.account, **terms)


def evaluated(table: PrivateTable, *, accept_large_delta: bool = False, seed: int, **terms: Any) -> Any:
    rows, epsilon = terms.get("public_rows"), terms.pop("epsilon")
    ready = prepare_evaluated(
        lambda left: prepare_synthesis(table.schema, None, epsilon=left, **terms), share=0.1, epsilon=epsilon, **terms
    )
    with fitting_evaluated(ready, table, seed=seed, public_rows=rows, accept_large_delta=accept_large_delta) as (
        model,
        _,
    ):
        return model


def ran(table: PrivateTable, *, accept_large_delta: bool = False, seed: int, **terms: Any) -> Any:
    ready = prepare(table.schema, **terms)
    rows = terms.get("public_rows")
    return run_prepared(ready, table, seed=seed, public_rows=rows, accept_large_delta=accept_large_delta)


def fitted(table: PrivateTable, *, accept_large_delta: bool = False, seed: int, **terms: Any) -> Any:
    ready = prepare_synthesis(table.schema, None, **terms)
    rows = terms.get("public_rows")
    return fit(ready, table, seed=seed, public_rows=rows, accept_large_delta=accept_large_delta)


def released(table: PrivateTable, **terms: Any) -> Any:
    with TemporaryDirectory() as folder:
        return release(table, Path(folder) / "out", rows=5, **terms).fitted


def told(verb: Callable[..., Any]) -> Callable[..., Any]:
    """A verb that asks its table for the relation and the number of rows."""

    def call(table: PrivateTable, *, relation: str, public_rows: int | None = None, **terms: Any) -> Any:
        return verb(table.under(relation=relation, rows=public_rows), **terms)

    return call


def synthesized(
    table: PrivateTable, *, relation: str | None = None, public_rows: int | None = None, **terms: Any
) -> Any:
    return synthesize(table.under(relation=relation, rows=public_rows), None, **terms)


VERBS: dict[str, Callable[..., Any]] = {
    "synthesize": synthesized,
    "synthesize.plan": lambda table, **terms: plan(synthesize, table, None, **terms),
    "prepare and fit": fitted,
    "with an evaluation": evaluated,
    "discover": told(discover),
    "discover.plan": told(lambda table, **terms: plan(discover, table, **terms)),
    "prepare and run": ran,
    "effect_of": told(lambda table, **terms: effect_of(table, "a", "b", trial=True, **terms)),
    "effect_of.plan": told(lambda table, **terms: plan(effect_of, table, "a", "b", trial=True, **terms)),
    "orient": told(lambda table, **terms: orient(table, blocks=40, abstain=0.0, **terms)),
    "orient.plan": told(lambda table, **terms: plan(orient, table, blocks=40, abstain=0.0, **terms)),
    "release": told(released),
    "release along a graph found first": told(partial(released, graph="discover", generator="moments")),
    "release.plan": told(lambda table, **terms: plan(release, table, "unused", **terms)),
    "learn_schema": learnt,
    "learn_schema.plan": learnt_plan,
}


def test_every_verb_that_can_be_planned_with_a_delta_is_here():
    from inspect import signature

    from escudo.privacy._plan import _PLANNABLE

    with_delta = {name for name, verb in _PLANNABLE.items() if "delta" in signature(verb).parameters}
    assert {name for name in with_delta if "<" not in name} == {
        "synthesize", "discover", "effect_of", "orient", "direction", "learn_schema", "learn_linked", "release"
    }  # fmt: skip
    assert all("accept_large_delta" in signature(_PLANNABLE[name]).parameters for name in with_delta if "<" not in name)


@pytest.mark.parametrize("name", VERBS)
class TestEveryVerb:
    def test_refuses_one_over_the_public_number_of_rows_and_spends_nothing(self, name: str) -> None:
        table = table_of()
        with pytest.raises(RefusedError, match=r"too large for about 400 rows.*accept_large_delta=True"):
            VERBS[name](table, epsilon=1.0, delta=1 / ROWS, relation="replace_one", seed=0)
        assert table.account.receipts == ()  # type: ignore[attr-defined]

    def test_goes_on_if_it_is_said_twice(self, name: str) -> None:
        made = VERBS[name](table_of(), epsilon=1.0, delta=0.1, relation="replace_one", accept_large_delta=True, seed=0)
        if isinstance(made, Plan):
            warned = [line for line in str(made).splitlines() if line.startswith("Warning:")]
            assert len(warned) == 1
            assert warned[0].startswith("Warning: δ = 0.1 is too large for about 400 rows")
            assert "Warning:" in made._repr_html_()

    def test_never_asks_a_table_whose_number_of_rows_is_private(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = table_of(relation="add_remove")
        monkeypatch.setattr(PrivateTable, "record_count", lambda self: pytest.fail("private"))
        if not name.startswith("orient"):  # which cannot do without a stated number
            with pytest.raises(RefusedError, match=r"number of rows is not known.*state the number of rows"):
                VERBS[name](table, epsilon=1.0, delta=1e-3, relation="add_remove", seed=0)
        with pytest.raises(RefusedError, match="about 500 rows"):
            VERBS[name](table, epsilon=1.0, delta=2e-3, relation="add_remove", public_rows=500, seed=0)
        assert table.account.receipts == ()  # type: ignore[attr-defined]


def test_direction_judges_the_delta_of_the_papers_method():
    with pytest.raises(RefusedError, match="too large for about 400 rows"):
        direction(
            table_of(), "u", "v", epsilon=1.0, delta=0.1, method="paper", score="iqr", train=FRAME[:200], seed=0
        )  # fmt: skip


class TestResults:
    """What comes out says it again, in the same words, by the number that is known by then."""

    def test_a_warning_reaches_the_answers(self) -> None:
        terms: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-3, "seed": 0}
        said = delta_warning(1e-3, ROWS)
        assert said
        assert said in discover(table_of(), **terms).notes
        assert any(note.startswith("δ = 0.001 is large") for note in effect_of(
            table_of(), "a", "b", trial=True, **terms
        ).warnings)  # fmt: skip
        assert said in orient(table_of(), blocks=40, abstain=0.0, **terms).notes

    def test_a_release_says_it_in_record_and_report(self, tmp_path: Path) -> None:
        model = synthesize(table_of(), None, epsilon=1.0, delta=1e-3, seed=0)
        said = delta_warning(1e-3, ROWS)
        assert warnings_of(model) == [said]
        files = write_release(model, tmp_path / "release", rows=10, seed=0)
        assert said.split(":")[0].encode() in files.record.read_bytes()
        assert "A large δ." in files.report.read_text(encoding="utf-8")

    def test_where_the_number_is_private_the_noisy_one_says_it_after_the_fact(self, tmp_path: Path) -> None:
        table = table_of(relation="add_remove")
        model = synthesize(table, None, epsilon=1.0, delta=5e-4, seed=0)  # below the ceiling
        noisy = model.details["rows"]
        assert warnings_of(model) == [delta_warning(5e-4, noisy)]
        assert f"about {noisy:,} rows" in warnings_of(model)[0]

    def test_a_small_delta_says_nothing(self, tmp_path: Path) -> None:
        model = synthesize(table_of(), None, epsilon=1.0, delta=1e-6, seed=0)
        assert warnings_of(model) == []
        assert not any("δ" in note for note in discover(table_of(), epsilon=1.0, delta=1e-6, seed=0).notes)
        files = write_release(model, tmp_path / "release", rows=10, seed=0)
        assert "A large δ." not in files.report.read_text(encoding="utf-8")


class TestTheRule:
    @pytest.mark.parametrize(
        ("delta", "records", "start"),
        [
            (0.0, 10, ""),
            (1e-6, 10**5, ""),
            (1.1e-6, 10**5, "δ = 1.1e-06 is large for about 100,000 rows"),
            (0.999e-5, 10**5, "δ = 9.99e-06 is large"),
            (1e-5, 10**5, "δ = 1e-05 is too large"),
            (1e-5, None, ""),
            (1.1e-5, None, "δ = 1.1e-05 is large for a table whose number of rows is not known"),
            (1e-3, None, "δ = 0.001 is too large for a table whose number of rows is not known"),
            (0.5, -3.0, "δ = 0.5 is large for about 1 row:"),  # a noisy number
            (0.05, 0, ""),
        ],
    )
    def test_limits(self, delta: float, records: float | None, start: str) -> None:
        found = delta_warning(delta, records)
        assert found.startswith(start)
        assert bool(found) == bool(start)

    def test_people_are_counted_where_their_number_is_public(self) -> None:
        with pytest.raises(RefusedError, match="about 100 people: from one over their number on"):
            synthesize(table_of(PERSONS), None, epsilon=1.0, delta=0.01, seed=0)
        made = plan(synthesize, table_of(PERSONS), None, epsilon=1.0, delta=0.0099)  # 1/400 of the rows would refuse it
        assert "large for about 100 people" in made.warning

    def test_a_pure_plan_is_not_judged_and_nothing_is_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(PrivateTable, "record_count", lambda self: pytest.fail("not needed"))
        assert judged_delta(0.0, SCHEMA.neighbours()) == ""
        tree = Plan("a count", PureEvent(epsilon=0.5))
        assert tree.judged(SCHEMA.neighbours()) is tree
        assert Plan("nothing").judged(SCHEMA.neighbours()) == Plan("nothing")

        class Free:
            schema, plan = SCHEMA, tree

            def run(self, table: PrivateTable, purse: Purse) -> bool:
                return purse.guarantee.epsilon == 0.5

        assert run(Free(), table_of(), seed=0)

    def test_a_judged_plan_is_the_same_plan_with_a_warning(self) -> None:
        made = plan(synthesize, SCHEMA, None, epsilon=1.0, delta=1e-3, public_rows=ROWS)
        assert made.warning == delta_warning(1e-3, ROWS)
        again = Plan.from_json(made.to_json())
        assert again == made
        assert made.guarantee() == plan(synthesize, SCHEMA, None, epsilon=1.0, delta=1e-3, public_rows=50).guarantee()
        assert "warning" not in plan(synthesize, SCHEMA, None, epsilon=1.0, delta=1e-6).to_json()


@pytest.mark.parametrize("rows", [1, 5_000, 100_000, 100_001, 3_000_000, 10**9])
def test_the_usual_delta_is_never_warned_of(rows: int) -> None:
    usual = usual_delta(SCHEMA.neighbours(rows=rows))
    assert 0 < usual <= 1e-6
    assert delta_warning(usual, rows) == ""
    assert rows > 100_000 or usual == 1e-6


@pytest.mark.parametrize("rows", [400, 300_000])
def test_whoever_states_no_delta_gets_the_usual_one_from_every_verb(rows: int) -> None:
    usual = usual_delta(SCHEMA.neighbours(rows=rows))
    frame = pl.DataFrame({"a": ["x", "y"] * 200})
    for made in (
        plan(synthesize, SCHEMA, None, epsilon=1.0, public_rows=rows),
        plan(discover, SCHEMA, epsilon=1.0, public_rows=rows),
        plan(release, SCHEMA, "out", None, epsilon=1.0, public_rows=rows),
        learn_schema.plan(frame, outline(frame), epsilon=1.0, public_rows=rows),
    ):
        assert made.stated_delta == usual
    told = victim_of("marginals", SCHEMA, None, epsilon=1.0, public_rows=rows).claim
    assert told is not None
    assert told.delta == usual


def test_a_schema_is_learnt_at_the_delta_of_a_release_where_rows_are_counted() -> None:
    frame = pl.DataFrame({"a": ["x", "y"] * 80_000})
    made = learn_schema.plan(frame, outline(frame), epsilon=1.0)
    table = PrivateTable(frame, Schema.from_dict({"a": ["x", "y"]}))
    assert made.stated_delta == plan(synthesize, table, None, epsilon=1.0).stated_delta == 6e-7
    assert made.warning == ""


def test_a_command_that_needs_a_delta_does_not_need_to_be_told_one() -> None:
    from typer.main import get_command

    from escudo.cli import app

    root: Any = get_command(app)
    for words in (["release"], ["discover"], ["attack"], ["schema", "learn"]):
        command = root
        for word in words:
            command = command.commands[word]
        delta = next(one for one in command.params if one.name == "delta")
        assert (delta.required, delta.default) == (False, None), words
        assert "1e-6 if left out" in delta.help


def test_the_usual_delta_asks_a_table_only_for_what_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = table_of().under(relation="add_remove")
    monkeypatch.setattr(PrivateTable, "record_count", lambda self: pytest.fail("it is private"))
    assert usual_delta(asked.neighbours) == 1e-6
