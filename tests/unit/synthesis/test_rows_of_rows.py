"""Rows of rows: prescriptions are drawn with their visits, set by do(), judged, attacked, learnt and written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import escudo
from escudo.attacks._linked import People, _MovedTables
from escudo.attacks._victims import RowsWithRecord
from escudo.causal import CausalGraph
from escudo.errors import EscudoError, GraphError, InputError, SchemaError
from escudo.learning import day_counts, learn_linked
from escudo.privacy import Budget, MemoryAccount
from escudo.report import LinkedWriting, explore_page
from escudo.synthesis import Clinic, LinkedModel, LinkedSynthesis, clinic, drawn_histories, load_linked
from escudo.table import LinkedSchema, PrivateTables, check_linked, draft_linked, linked_structure
from escudo.utility import evaluate_privately, linked_fidelity, read_linked
from neighbours.linked import ODD, Person, frames_of, schema_of, someone

PEOPLE = 1500


@pytest.fixture(scope="module")
def made() -> Clinic:
    return clinic(PEOPLE, prescriptions=True, seed=1)


@pytest.fixture(scope="module")
def model(made: Clinic) -> LinkedModel:
    return escudo.synthesize(PrivateTables(made.frames, made.schema), made.graph, epsilon=20.0, delta=1e-6, seed=1)


def joined(frames: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """Return prescriptions beside their visits."""
    return frames["prescriptions"].join(frames["visits"], on=["patient", "visit"], how="inner")


def test_every_prescription_belongs_to_a_visit_and_is_not_dated_before_it(model: LinkedModel) -> None:
    out = model.sample(900, seed=2)
    both = joined(out)
    assert both.height == out["prescriptions"].height > 0
    assert out["visits"]["visit"].equals(out["visits"]["number"].alias("visit"))
    assert (both["filled"] >= both["date"]).all()
    in_order = out["prescriptions"].with_columns(
        pl.col("filled").diff().over("patient", "visit").alias("gap"),
        pl.int_range(1, pl.len() + 1).over("patient", "visit").cast(pl.Int64).alias("nth"),
    )
    assert in_order["gap"].drop_nulls().min() >= 0  # type: ignore[operator]
    assert in_order["number"].equals(in_order["nth"].alias("number"))
    assert in_order["number"].max() <= 4  # type: ignore[operator]


@pytest.mark.parametrize("weighting", ["voice", "unit"])
def test_prescriptions_follow_their_visits_as_in_the_tables(made: Clinic, weighting: Any) -> None:
    child = replace(made.schema.child("prescriptions"), weighting=weighting)
    schema = replace(made.schema, children=(*made.schema.of_people, child))
    found = escudo.synthesize(PrivateTables(made.frames, schema), made.graph, epsilon=20.0, delta=1e-6, seed=1)
    assert found.details["weighting"]["prescriptions"] == weighting
    real, drawn = (read_linked(frames, schema) for frames in (made.frames, found.sample(4000, seed=1)))
    far = linked_fidelity(real, drawn, made.graph)
    assert far.row_pairs is not None
    assert far.counts is not None
    assert far.row_pairs < 0.05
    assert far.counts < 0.04
    per_visit = [
        frames["prescriptions"].height / frames["visits"].height for frames in (made.frames, found.sample(4000, seed=1))
    ]
    assert per_visit[0] == pytest.approx(per_visit[1], abs=0.06)


def test_do_sets_prescriptions_by_their_number_in_the_visit(model: LinkedModel) -> None:
    out = model.sample(400, do={"prescriptions.drug": {"1": "steroid"}, "prescriptions.count": 3}, seed=1)
    assert out["prescriptions"].height == 3 * out["visits"].height
    by = {number: set(part["drug"]) for (number,), part in out["prescriptions"].group_by("number")}
    assert by[1] == {"steroid"}
    assert len(by[2]) == 3
    assert model.sample(50, do={"prescriptions.count": 0}, seed=1)["prescriptions"].height == 0


def test_what_a_visit_has_moves_its_prescriptions_and_not_the_other_way(model: LinkedModel) -> None:
    def mean(do: dict[str, Any]) -> tuple[float, float]:
        out = model.sample(1500, do=do, seed=1)
        severe = float((out["visits"]["severity"] == "severe").mean())  # type: ignore[arg-type]
        return out["prescriptions"].height / out["visits"].height, severe

    low, high = mean({"visits.severity": "none"})[0], mean({"visits.severity": "severe"})[0]
    assert high > low + 0.8
    assert mean({"prescriptions.drug": "steroid"})[1] == pytest.approx(mean({})[1], abs=0.03)


@pytest.mark.parametrize(
    ("do", "words"),
    [
        ({"prescriptions.count": 9}, "from 0 to 4"),
        ({"prescriptions.count": {"1": 2}}, "from 0 to 4"),
        ({"prescriptions.number": 1}, "cannot be set"),
        ({"prescriptions.drug": {"5": "steroid"}}, "numbered from 1 to 4"),
    ],
)
def test_what_cannot_be_set_is_said(model: LinkedModel, do: Any, words: str) -> None:
    with pytest.raises((InputError, SchemaError), match=words):
        model.sample(5, do=do)


def test_rows_of_rows_are_not_conditioned_on(model: LinkedModel) -> None:
    for name in ("prescriptions.drug", "prescriptions.count"):
        with pytest.raises(InputError, match="name columns of patients or of visits"):
            model.sample(5, given={name: "steroid"})
    out = model.sample(30, given={"visits.severity": {"1": "severe"}}, seed=1)  # whose prescriptions stay theirs
    assert joined(out).height == out["prescriptions"].height
    assert set(out["visits"].filter(pl.col("number") == 1)["severity"]) == {"severe"}


@pytest.mark.parametrize(
    ("arrow", "words"),
    [
        (("prescriptions.drug", "visits.severity"), "rows of visits, to rows of visits"),
        (("prescriptions.drug", "patients.smoke"), "rows of visits, to people"),
        (("prescriptions.count", "visits.treat"), "drawn first"),
        (("prescriptions.drug", "prescriptions.count"), "comes before what is in them"),
        (("prescriptions.drug@prev", "prescriptions.count"), "comes before what is in them"),
        (("visits.severity@prev", "prescriptions.drug"), "only columns of the row that prescriptions belong to"),
        (("visits.gap", "prescriptions.drug"), "only columns of the row that prescriptions belong to"),
        (("prescriptions.drug", "prescriptions.start"), "only columns of people and of visits"),
        (("prescriptions.count@prev", "prescriptions.drug"), "only a column of rows"),
        (("visits.severity", "prescriptions.number"), "nothing causes which row"),
    ],
)
def test_arrows_that_lead_nowhere_are_refused_in_a_sentence(made: Clinic, arrow: tuple[str, str], words: str) -> None:
    with pytest.raises(GraphError, match=words):
        linked_structure(made.schema, CausalGraph.from_edges([arrow]))


def test_tables_of_other_rows_are_no_causes(made: Clinic) -> None:
    labs = replace(made.schema.child("visits"), name="labs", key=None)
    schema = replace(made.schema, children=(*made.schema.children, labs))
    with pytest.raises(GraphError, match="from one table of rows to another"):
        linked_structure(schema, CausalGraph.from_edges([("labs.severity", "prescriptions.drug")]))
    structure = linked_structure(schema, CausalGraph.from_edges([("labs.count", "prescriptions.drug")]))
    assert structure.rows["prescriptions"].first["prescriptions.drug"] == ("prescriptions.count", "labs.count")


def test_columns_that_no_arrow_names_follow_themselves_and_numbers_of_rows(made: Clinic) -> None:
    structure = linked_structure(made.schema, None)
    assert structure.rows["visits"].next["prescriptions.count"] == ("visits.count",)
    assert structure.rows["prescriptions"].next["prescriptions.drug"] == (
        *("prescriptions.count", "prescriptions.drug@prev"),
    )
    assert ("prescriptions.count", "prescriptions.drug") in structure.device


def test_the_plan_names_them_and_their_account_is_for_all_rows(made: Clinic) -> None:
    account = MemoryAccount(unit="person", max_rows_per_person=1 + 20 + 20 * 4)
    tables = PrivateTables(made.frames, made.schema, account)
    plan = escudo.plan(escudo.synthesize, tables, made.graph, epsilon=1.0, delta=1e-6)
    assert "rows of prescriptions in each of visits" in str(plan)
    assert "prescriptions.count | visits.severity, visits.treat" in str(plan)
    escudo.synthesize(tables, made.graph, epsilon=1.0, delta=1e-6, seed=1)
    assert len(account.receipts) == 1
    with pytest.raises(InputError, match="21"):
        PrivateTables(made.frames, made.schema, MemoryAccount(unit="person", max_rows_per_person=21))


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize(("most", "each", "timed"), [(1, 1, True), (2, 1, False), (2, 2, True)])
def test_tables_without_rows_and_bounds_of_one_are_like_any_other(
    most: int, each: int, timed: bool, relation: str
) -> None:
    days: dict[str, Any] = {"order": "day", "start_edges": [0, 9], "gap_edges": [0, 9]}
    schema = LinkedSchema.from_dict({
        "linked": {"people": "p", "dates": "days"},
        "tables": {
            "p": {"key": "id", "origin_day": 0, "columns": {"s": ["f", "m"]}},
            "v": {**days, "parent": "p", "foreign_key": "id", "key": "number", "most": most, "columns": {"x": ["a"]}},
            "d": {
                **{"parent": "v", "foreign_key": "id", "row_key": "of", "most": each, **(days if timed else {})},
                "columns": {"y": ["a", "b"]},
            },
        },
    })  # fmt: skip
    key = pl.Int64
    frames = {
        "p": pl.DataFrame({"id": [1, 2], "s": ["f", "m"]}, schema={"id": key, "s": pl.String}),
        "v": pl.DataFrame(schema={"id": key, "number": key, "day": key, "x": pl.String}),
        "d": pl.DataFrame(schema={"id": key, "of": key, "day": key, "y": pl.String}),
    }
    tables = PrivateTables(frames, schema, relation=relation)
    found = escudo.synthesize(tables, None, epsilon=0.5, delta=1e-6, seed=1, accept_large_delta=True)
    out = found.sample(40, do=None, seed=1)
    named = out["d"].join(out["v"], left_on=["id", "of"], right_on=["id", "number"], how="semi")
    assert named.height == out["d"].height
    assert ("day" in out["d"].columns) is timed
    assert read_linked(out, schema).rows["d"].number.size == out["d"].height


def test_synthetic_tables_are_read_back_as_they_were_drawn(model: LinkedModel) -> None:
    """All rows find their visit again, and every column its cell."""
    out = model.sample(500, seed=4)
    read, drawn = read_linked(out, model.schema), drawn_histories(model, 500, seed=4)
    assert read.tally.orphans == {"visits": 0, "prescriptions": 0}
    assert read.tally.early == read.tally.beyond == {"visits": 0, "prescriptions": 0}
    for table in ("visits", "prescriptions"):
        assert read.rows[table].number.size == drawn.rows[table].number.size
    for whose in (read.rows, drawn.rows):  # of one day, visits are put in order by what is in them
        assert whose["prescriptions"].row is not None
    pairs = [
        np.sort(
            whose["visits"].codes["severity"][whose["prescriptions"].row].astype(int) * 10
            + whose["prescriptions"].codes["drug"]
        )
        for whose in (read.rows, drawn.rows)
    ]
    np.testing.assert_array_equal(*pairs)


# ---- files


def test_a_model_survives_its_files(model: LinkedModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    again = load_linked(tmp_path / "model")
    assert again.schema == model.schema
    for one, other in zip(model.sample(60, seed=3).values(), again.sample(60, seed=3).values(), strict=True):
        assert one.equals(other)


@given(data=st.data())
def test_damaged_files_are_refused_or_still_a_model(
    model: LinkedModel, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("model")
    model.save(folder / "model")
    file = folder / "model" / data.draw(st.sampled_from(["model.json", "parameters.safetensors"]))
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        word = data.draw(
            st.sampled_from([b"visits", b"prescriptions", b"count", b"row_key", b"most", b"parent", b"@prev"])
        )
        content = bytearray(
            bytes(content).replace(word, data.draw(st.sampled_from([b"patients", b"", b"order", b"drug"])), 1)
        )
    file.write_bytes(bytes(content))
    try:
        again = load_linked(folder / "model")
    except EscudoError:
        return
    assert set(again.sample(5, seed=1)) == set(again.schema.tables)


def test_a_model_that_lacks_a_law_is_refused(model: LinkedModel) -> None:
    visits = model.rows["visits"]
    lacking = {name: law for name, law in visits.first.items() if name != "prescriptions.count"}
    with pytest.raises(InputError, match="lacks a law of the rows of 'visits'"):
        replace(model, rows={**model.rows, "visits": replace(visits, first=lacking)})
    with pytest.raises(InputError, match="number of rows of 'prescriptions'"):
        replace(model, rows={"visits": visits})


def test_a_release_tells_of_them(model: LinkedModel, tmp_path: Path) -> None:
    files = LinkedWriting(people=60, dataset="clinic", seed=1).write(model, tmp_path / "out")
    assert set(files.synthetic) == {"patients", "visits", "prescriptions"}
    page = files.report.read_text(encoding="utf-8")
    assert "with all rows in visits and prescriptions" in page
    assert "At most 4 rows of prescriptions of each row of visits count" in page
    assert "The share of synthetic rows of visits with so many rows of prescriptions" in page
    assert page.count('class="plate"') == 3
    told = explore_page(model)
    assert "Of prescriptions, which are rows of visits, only their number is shown here." in told
    assert '"prescriptions.count"' in told
    assert '"prescriptions.drug","kind"' not in told


# ---- the other verbs


def test_they_are_judged_attacked_and_left_out_in_words(made: Clinic, model: LinkedModel) -> None:
    others = clinic(600, prescriptions=True, seed=2)
    found = escudo.evaluate(made.frames, others.frames, model.sample(600, seed=1), made.schema, model=model)
    assert set(found.figures) >= {"row_pairs", "counts", "arrows", "transitions"}
    assert all(far < 0.2 for far, _ in found.figures.values())
    tables = PrivateTables(made.frames, made.schema)
    private = evaluate_privately(tables, model.sample(600, seed=1), epsilon=50.0, seed=1)
    assert private.figures["row_pairs"] < 0.1
    for asked in (("visits.treat", "prescriptions.count"), ("prescriptions.drug@prev", "prescriptions.drug")):
        with pytest.raises(InputError, match=r"is of rows of visits, .* a column of visits"):
            escudo.effect_of(tables, *asked, graph=made.graph, epsilon=1.0)
    bare = clinic(PEOPLE, seed=1)
    same = [
        escudo.effect_of(
            PrivateTables(one.frames, one.schema),
            *("visits.treat@prev", "visits.severity"),
            outcome_level="severe",
            graph=one.graph,
            epsilon=1.0,
            seed=1,
        )
        for one in (made, bare)
    ]
    assert same[0].adjustment == same[1].adjustment
    assert str(same[0]) == str(same[1])
    notes = escudo.discover(tables, epsilon=3.0, delta=1e-6, seed=1).notes
    assert any("prescriptions, rows of rows, is not searched for" in note for note in notes)


def test_an_attacked_person_is_counted_as_if_they_had_been_there(made: Clinic) -> None:
    """The made-up one too, whose rows reach as far as the sensitivities say."""
    few = {name: frame.filter(pl.col("patient") <= 30) for name, frame in made.frames.items()}
    everybody = People.read(few, made.schema)
    question = LinkedSynthesis(made.graph)
    neighbours = made.schema.neighbours(relation="add_remove")
    prepared = question.prepare(made.schema, neighbours, Budget(1.0, 1e-6))
    canary = everybody.canary()
    rest, last = everybody.take(np.arange(29)), everybody.take(np.array([29]))
    for block in prepared.shares.blocks:
        for columns in block.tables:
            table = block.counted(columns)
            (moved,) = _MovedTables(RowsWithRecord(rest=rest, record=last)).counts([table])
            np.testing.assert_array_equal(moved, everybody.histories.counts(table))
            reach = float(np.linalg.norm(canary.histories.counts(table).ravel()))
            assert reach <= table.sensitivity("add_remove").l2
            if table.parent:
                assert reach >= 0.7 * table.steps  # all of one voice, or all but what unit weights round off


def test_they_are_drafted_checked_and_learnt(made: Clinic) -> None:
    draft = draft_linked(made.frames, "patients")
    child = draft.child("prescriptions")
    assert (child.parent, child.row_key, child.order, draft.child("visits").key) == (
        "visits",
        "visit",
        "filled",
        "visit",
    )
    assert not child.confirmed
    undated = {**made.frames, "prescriptions": made.frames["prescriptions"].drop("filled")}
    assert draft_linked(undated, "patients").child("prescriptions").order is None
    lost = pl.concat(
        [made.frames["prescriptions"], made.frames["prescriptions"].with_columns(visit=pl.col("visit") + 70)]
    )
    said = check_linked({**made.frames, "prescriptions": lost}, made.schema).findings
    assert any("name no row of visits of the same person that counts" in words for words in said)
    terms: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-6, "most": {"visits": 20, "prescriptions": 4}, "seed": 1}
    learnt = learn_linked(made.frames, draft, **terms).value
    assert learnt.confirmed
    assert learnt.child("prescriptions").start_edges[0] == 0
    assert set(learnt.column("prescriptions.drug").levels) >= {"painkiller", "inhaler", "steroid"}  # type: ignore[union-attr]
    plain = learn_linked(undated, draft_linked(undated, "patients"), **terms).value
    assert plain.confirmed
    assert plain.child("prescriptions").order is None
    open_rows = replace(
        plain, children=tuple(replace(one, confirmed=one.name != "prescriptions") for one in plain.children)
    )
    with pytest.raises(InputError, match="confirm it instead"):
        learn_linked(undated, open_rows, epsilon=1.0, delta=1e-6, most={"prescriptions": 4})


def test_no_history_is_more_than_one_record_of_days() -> None:
    rng = np.random.default_rng(3)
    base: list[Person] = [someone(rng) for _ in range(8)]
    others: list[Person] = [*ODD.values(), *(someone(rng) for _ in range(8))]
    without, *found = (
        day_counts(frames_of(people, below=True), schema_of("voice", below=True))["drugs"]
        for people in [base, *([*base, one] for one in others)]
    )

    def moved(mine: tuple[Any, Any], theirs: tuple[Any, Any]) -> int:
        return max(int(np.abs(a - b).sum()) for a, b in zip(mine, theirs, strict=True))

    assert max(moved(without, one) for one in found) == 1
    assert max(moved(one, other) for one in found for other in found) == 2
