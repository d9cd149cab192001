"""Attacks on linked tables: is somebody, with all rows, among the people?

A person is in the tables or not, with all rows in all of them: that is what linked tables protect. The game and its
bounds are those of one table (:mod:`escudo.attacks._attack`); what differs is what is attacked, and what is looked at.

* *The generator* fits tables of people with their rows. Counts of everybody else are made once and the person's own
  added, as everybody's counts add up (``tests/property/test_linked.py``).
* *What is looked at* are synthetic people, each told as one row: their columns, how many rows they have, and of each
  column of rows the first and the last cell, the commonest one, and how often it changes.
* *The canary* is the worst case of the sensitivity's proof (:mod:`escudo.table._linked`): as many rows as count, all
  alike, in the rarest cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from escudo.attacks._victims import RowsWithRecord, Victim, check_other, check_own
from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.mechanisms import Purse
from escudo.privacy import Budget, Guarantee, MemoryAccount
from escudo.synthesis import PreparedLinked, PreparedLinkedDiscovered, drawn_histories, linked_question
from escudo.table import (
    COUNT,
    GAP,
    NUMBER,
    START,
    Categorical,
    Histories,
    HistoryRows,
    LinkedSchema,
    LinkedTable,
    Schema,
    Tally,
    counted_as,
    exactly,
)
from escudo.utility import Rows, read_linked

if TYPE_CHECKING:
    import polars as pl

Codes = NDArray[np.int64]
_CHANGES = 4  # none, one, two, more


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class People(Rows):
    """People, each as one row, who know their histories.

    Attributes:
        histories: Everybody's, or those of somebody made up.
        places: Which of them these are.
        frames: The tables they were read from, with their places as keys; none for somebody made up.
    """

    histories: Histories
    places: Codes
    frames: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    noun: ClassVar[str] = "person"

    @classmethod
    def of(cls, histories: Histories, frames: Mapping[str, pl.DataFrame] | None = None) -> People:
        """Return everybody."""
        told = _told(histories)
        schema = Schema(tuple(Categorical(name, tuple(map(str, range(size)))) for name, (_, size) in told.items()))
        codes = np.column_stack([codes for codes, _ in told.values()]).astype(np.int64)
        return cls(
            schema=schema,
            codes=codes,
            numbers=np.full(codes.shape, np.nan),
            histories=histories,
            places=np.arange(histories.size),
            frames=frames or {},
        )

    @classmethod
    def read(cls, frames: object, schema: LinkedSchema, *, argument: str = "rows") -> People:  # type: ignore[override]
        """Read the people in frames.

        Raises:
            InputError: If these are no frames of the schema's tables.
        """
        checked = read_linked(frames, schema, argument)
        numbered = _numbered(cast(Mapping[str, Any], frames), checked.schema)
        return cls.of(read_linked(numbered, schema, argument), numbered)

    def take(self, chosen: NDArray[Any]) -> People:
        """Return some of the people."""
        return People(
            schema=self.schema,
            codes=self.codes[chosen],
            numbers=self.numbers[chosen],
            histories=self.histories,
            places=self.places[chosen],
            frames=self.frames,
        )

    def canary(self) -> People:
        """Return somebody made up to stand out: as many rows as count, all alike, in the cells that are rarest."""
        schema, everybody = self.histories.schema, self.histories
        people = {name: np.array([_rarest(codes)]) for name, codes in everybody.people.items()}
        rows: dict[str, HistoryRows] = {}
        for child in schema.children:
            own = everybody.rows[child.name]
            owners = rows[child.parent].number.size if child.parent else 1
            size = owners * child.most
            number = np.tile(np.arange(1, child.most + 1), owners)
            codes = {name: np.full(size, _rarest(cells)) for name, cells in own.codes.items()}
            codes[NUMBER] = child.column(NUMBER).encode(number)
            row = np.repeat(np.arange(owners), child.most) if child.parent else None
            count = np.full(owners, child.most)
            rows[child.name] = HistoryRows(np.zeros(size, dtype=np.int64), number, count, codes, row)
            many = {f"{child.name}.{COUNT}": child.column(COUNT).encode(count), exactly(child.name): count}
            if child.parent:
                rows[child.parent].codes.update({counted_as(name): cells for name, cells in many.items()})
            else:
                people |= many
        return People.of(Histories(schema, people, rows, 1, Tally()))


def _rarest(codes: NDArray[Any]) -> int:
    return int(np.bincount(codes.astype(np.int64)).argmin()) if codes.size else 0


def _numbered(frames: Mapping[str, Any], schema: LinkedSchema) -> dict[str, pl.DataFrame]:
    """Return the frames with people's places as keys; rows that are nobody's are left out."""
    import narwhals as nw
    import polars as pl

    def whole(name: str) -> pl.DataFrame:
        lazy = nw.from_native(frames[name]).lazy()
        return cast(pl.DataFrame, lazy.collect("polars").to_native())

    people = whole(schema.people).drop_nulls(schema.key)
    place = (
        people.select(schema.key)
        .unique(maintain_order=True)
        .with_row_index("@place")
        .with_columns(pl.col("@place").cast(pl.Int64))
    )
    found = {}
    for name in schema.tables:
        key = schema.key if name == schema.people else schema.child(name).foreign_key
        frame = people if name == schema.people else whole(name)
        joined = frame.join(place, left_on=key, right_on=schema.key, how="inner", maintain_order="left")
        found[name] = joined.with_columns(pl.col("@place").alias(key)).select(frame.columns)
    return found


def _told(histories: Histories) -> dict[str, tuple[Codes, int]]:
    """Return what is told of each person: cells, and how many there are."""
    schema, size = histories.schema, histories.size
    known = [name for name in schema.names if name in histories.people]
    found = {name: (histories.people[name].astype(np.int64), schema.column(name).size) for name in known}
    for child in schema.children:
        rows = histories.rows[child.name]
        person, number = rows.person.astype(np.int64), rows.number
        first, last = number == 1, number == rows.count[rows.owner]
        if rows.row is not None:
            found |= _told_of_rows(histories, child.name)
        for name in (*child.schema.names, *((START, GAP) if child.order is not None else ())):
            codes, cells = rows.codes[name].astype(np.int64), child.column(name).size
            own = f"{child.name}.{name}"
            if name == START:
                found[f"{own}, first"] = _placed(person[first], codes[first], size, cells), cells + 1
                continue
            kept = ~first if name == GAP else np.ones(person.size, dtype=bool)
            several = np.bincount(person[kept] * cells + codes[kept], minlength=size * cells).reshape(size, cells)
            found[f"{own}, most"] = np.where(several.sum(axis=1) > 0, several.argmax(axis=1), cells), cells + 1
            if name == GAP:
                continue
            found[f"{own}, first"] = _placed(person[first], codes[first], size, cells), cells + 1
            found[f"{own}, last"] = _placed(person[last], codes[last], size, cells), cells + 1
            changed = np.flatnonzero(~first & (codes != np.roll(codes, 1)))
            changes = np.minimum(np.bincount(person[changed], minlength=size), _CHANGES - 1)
            found[f"{own}, changes"] = changes, _CHANGES
    return found


def _told_of_rows(histories: Histories, table: str) -> dict[str, tuple[Codes, int]]:
    """Return how many rows of rows each person has in all, and in one row at most."""
    rows, size = histories.rows[table], histories.size
    child = histories.schema.child(table)
    above = histories.rows[child.parent]
    every = np.minimum(np.bincount(rows.person, minlength=size), child.most)
    most = np.zeros(size, dtype=np.int64)
    np.maximum.at(most, above.person, rows.count)
    return {f"{table}, in all": (every, child.most + 1), f"{table}, most in a row": (most, child.most + 1)}


def _placed(person: Codes, codes: Codes, size: int, nothing: int) -> Codes:
    found = np.full(size, nothing, dtype=np.int64)
    found[person] = codes
    return found


# ---- what is attacked


def linked_victim(
    generator: object,
    schema: LinkedSchema,
    graph: CausalGraph | None,
    options: Mapping[str, Any],
    *,
    budget: Budget | None,
    relation: str,
    people: int,
    claim: Guarantee | None,
) -> Victim:
    """Return escudo's generator of linked tables, or a function of frames, as something to attack.

    Args:
        generator: ``"marginals"``; or a function ``(frames, rng)`` that returns synthetic frames by table, or an object
            whose ``sample(n)`` does.
        schema: The tables.
        graph: Which column causes which.
        options: What else escudo's generator takes.
        budget: What a fit costs; None for a function.
        relation: Which tables are neighbours.
        people: How many people a fit gets, which is public where one is replaced.
        claim: What a function promises.
    """
    if isinstance(generator, str):
        check_own(budget, claim)
        assert budget is not None, "checked"
        known = people if relation == "replace_one" else None
        neighbours = schema.neighbours(relation=relation, people=known)
        question = linked_question(graph, "marginals" if generator == "linked" else generator, options)
        return LinkedVictim(question.prepare(schema, neighbours, budget))
    check_other(options)
    if not callable(generator):
        raise InputError(
            "of linked tables generator must be 'marginals', or a function of frames and a random generator; got "
            f"{type(generator).__name__}."
        )
    return _CallableOfFrames(generator, schema, claim)


class LinkedVictim:
    """Escudo's generator of linked tables, prepared once; only fits and samples are repeated."""

    def __init__(self, prepared: PreparedLinked | PreparedLinkedDiscovered):
        self._prepared = prepared
        self.claim: Guarantee | None = prepared.plan.guarantee(max_rows_per_person=prepared.schema.max_rows_per_person)

    def synthetic(self, rows: RowsWithRecord, *, sets: int, size: int, seed: int) -> list[Rows]:
        """Fit the people and return ``sets`` synthetic sets of ``size`` people."""
        claim = self.claim
        assert claim is not None
        account = MemoryAccount(relation=claim.relation, unit=claim.unit, max_rows_per_person=claim.max_rows_per_person)
        purse = Purse(account, np.random.default_rng(seed), plan=self._prepared.plan, guarantee=claim)
        model = self._prepared.run(cast(Any, _MovedTables(rows)), purse)
        seeds = [seed + 1 + place for place in range(sets)]
        return [People.of(drawn_histories(model, size, seed=each)) for each in seeds]


class _MovedTables:
    """Linked tables that count everybody else once, and add the person in question."""

    def __init__(self, rows: RowsWithRecord):
        self._rows = rows

    @contextmanager
    def gathered(self) -> Iterator[_MovedTables]:
        """Give what counts."""
        yield self

    def counts(self, tables: Sequence[LinkedTable]) -> list[NDArray[np.int64]]:
        """Return counts as :meth:`PrivateTables.counts` does."""
        shared: dict[Any, Any] = self._rows.counted
        rest = cast(People, self._rows.rest)
        if absent := [table for table in tables if table not in shared]:
            others = rest.histories.of_people(rest.places)
            shared |= {table: others.counts(table) for table in absent}
        if self._rows.record is None:
            return [shared[table] for table in tables]
        record = cast(People, self._rows.record)
        own = record.histories.of_people(record.places)
        return [shared[table] + own.counts(table) for table in tables]


class _CallableOfFrames:
    """A function that fits frames and returns synthetic ones, or something that samples them."""

    def __init__(self, run: Callable[..., Any], schema: LinkedSchema, claim: Guarantee | None):
        self._run, self._schema, self.claim = run, schema, claim

    def synthetic(self, rows: RowsWithRecord, *, sets: int, size: int, seed: int) -> list[Rows]:
        """Call the function once; draw from what it returns."""
        made = self._run(_frames_of(rows, self._schema), np.random.default_rng(seed))
        drawn = [made.sample(size) for _ in range(sets)] if hasattr(made, "sample") else [made]
        if len(drawn) < sets:
            raise InputError(
                "the generator returned one synthetic set; to draw several from a fit, return an object with sample()."
            )
        what = "what the generator returned"
        return [People.of(read_linked(each, self._schema, argument=what)) for each in drawn]


def _frames_of(rows: RowsWithRecord, schema: LinkedSchema) -> dict[str, pl.DataFrame]:
    """Return the frames of all people."""
    import polars as pl

    rest, record = cast(People, rows.rest), cast(People | None, rows.record)
    if record is not None and not record.frames:
        raise InputError("choose='canary' is for escudo's own generator: somebody made up has cells, and no frames.")
    places = rest.places if record is None else np.concatenate([rest.places, record.places])
    kept = pl.Series(places).implode()
    return {
        name: frame.filter(pl.col(schema.key if name == schema.people else schema.child(name).foreign_key).is_in(kept))
        for name, frame in rest.frames.items()
    }
