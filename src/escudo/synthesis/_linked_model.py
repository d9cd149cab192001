"""The model of linked tables: synthetic people with their rows, keys that match and dates in order; sampled under do().

A model holds no row: a law for each column of people, and for each table of rows one law for first rows and one for the
next of each column, with the law of how many rows a person has. Everything done with it is post-processing and costs
nothing.

**Drawing.** People first, along the arrows, each table's number of rows among their columns; then first rows, then
second ones given these, and so on, for all people who have that many. Days between rows are not negative, so dates are
in order, and every row belongs to a person who was drawn: keys match by construction. Rows of rows are drawn in the
same way for every row, of which their number is a column, and are not dated before it.

**do()** sets a column of people, the number of rows, or a column of rows: in all of them, or by their number, as in
``{"visits.treat": {"1": "no", "2-": "yes"}}``. What is set has no cause any more; what it acts on, in the same row and
the next ones, responds. Rows keep their number: an effect is one among people with as many rows as they would have had.

**given** conditions on people exactly, and on rows by drawing until enough people fit: refused where fewer than one in
a hundred do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo._validate import whole
from escudo.causal import CausalGraph
from escudo.errors import InputError, NotIdentifiableError, SchemaError
from escudo.privacy import Guarantee, Plan
from escudo.synthesis._laws import Codes, TableConditional, _draw_node, decode, drawer
from escudo.synthesis._model import by_column, cell_of, stored_laws
from escudo.table import (
    COUNT,
    DAYS,
    GAP,
    NUMBER,
    PREVIOUS,
    START,
    LinkedSchema,
    Numeric,
    RowLaws,
    Schema,
    linked_picture,
)

if TYPE_CHECKING:
    import polars as pl

_BLOCK = 2**17  # people drawn at once
_TRIED = 100  # how many people are drawn at most for each that is wanted
_ROWS = re.compile(r"\s*(\d+)\s*(?:(-)\s*(\d*)\s*)?")

Floats = NDArray[np.float64]
Setting = list[tuple[int, int, int]]
"""From which row to which a column has which cell."""


@dataclass(frozen=True, slots=True, eq=False)
class RowModel:
    """The laws of a table of rows.

    Attributes:
        first: The law of each column in a person's first row, in an order to draw them; of rows of rows, in each row's.
        next: In the rows after it, each given the row before.
        lengths: The law of how many rows a person, or a row, has exactly.
    """

    first: Mapping[str, TableConditional]
    next: Mapping[str, TableConditional]
    lengths: Floats

    @classmethod
    def of(
        cls,
        structure: RowLaws,
        found: Mapping[str, Mapping[str, TableConditional]],
        lengths: Floats,
        schema: LinkedSchema,
    ) -> RowModel:
        """Put together the laws that were found for first, next and all rows; a single level has its own."""

        def laws(view: str, parents: Mapping[str, tuple[str, ...]]) -> dict[str, TableConditional]:
            both = {**found.get("all", {}), **found.get(view, {})}
            return {name: both.get(name) or _certain(schema, name) for name in parents}

        return cls(laws("first", structure.first), laws("next", structure.next), lengths)


def _certain(schema: LinkedSchema, name: str) -> TableConditional:
    return TableConditional((), np.full(schema.column(name).size, 1 / schema.column(name).size))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LinkedModel:
    """A generator of people with their rows, fitted under a guarantee, sampled for free.

    Attributes:
        schema: The public description of the tables it makes.
        graph: What is claimed about causes, by whole names.
        people: The law of each column of people, and of each table's number of rows, in an order to draw them.
        rows: The laws of each table of rows.
        guarantee: What was promised to the people in the tables: each with all rows.
        plan: The budget tree that was spent.
        details: Public facts about the fit: ``people``, how many there are, exactly where that is public, else noisy.
    """

    schema: LinkedSchema
    graph: CausalGraph
    people: Mapping[str, TableConditional]
    rows: Mapping[str, RowModel]
    guarantee: Guarantee
    plan: Plan
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def generator(self) -> str:
        """The generator's name."""
        return "linked"

    def __post_init__(self) -> None:
        for name, law in self.people.items():
            self._check_law(name, law, self.people)
        for child in self.schema.children:
            rows = self.rows.get(child.name)
            if rows is None or rows.lengths.shape != (child.most + 1,) or not np.isclose(rows.lengths.sum(), 1.0):
                raise InputError(f"The model has no law of the number of rows of {child.name!r} that fits its schema.")
            own = [f"{child.name}.{name}" for name in child.schema.names]
            several = [f"{nested.name}.{COUNT}" for nested in self.schema.of_rows(child.name)]
            above = {f"{child.name}.{COUNT}"} if child.parent else set()
            if child.parent:
                above |= {f"{child.parent}.{name}" for name in (NUMBER, *self.schema.schema_of(child.parent))}
            for laws, time in ((rows.first, START), (rows.next, GAP)):
                timed = {f"{child.name}.{time}"} if child.order is not None else set()
                if laws and set(laws) != {*own, *several, *timed}:
                    raise InputError(f"The model lacks a law of the rows of {child.name!r}.")
                seen: set[str] = {*self.people, f"{child.name}.{NUMBER}", *above}
                seen |= {name + PREVIOUS for name in own} if laws is rows.next else set()
                for name, law in laws.items():
                    self._check_law(name, law, seen)
                    seen.add(name)
            if not rows.first or (not rows.next and child.most > 1):
                raise InputError(f"The model lacks a law of the next rows of {child.name!r}.")

    def _check_law(self, name: str, law: TableConditional, known: Any) -> None:
        if name not in self.schema.columns or law.size != self.schema.columns[name].size:
            raise InputError(f"The model has no law for column {name!r} that fits its schema.")
        for parent, size in zip(law.parents, law.parent_sizes, strict=True):
            column = self.schema.columns.get(parent.removesuffix(PREVIOUS))
            if parent not in known or column is None or column.size != size:
                raise InputError(f"The law of column {name!r} does not fit its parent {parent!r}.")

    # -- drawing -------------------------------------------------------------------------------------------------------

    def sample(
        self,
        people: int,
        *,
        do: Mapping[str, object] | None = None,
        given: Mapping[str, object] | None = None,
        seed: int | None = None,
    ) -> dict[str, pl.DataFrame]:
        """Draw synthetic people with their rows; free of charge, as often as wanted.

        Args:
            people: How many.
            do: Columns to set by intervention, by whole names: a value; or, for a column of rows, values by their
                numbers, as in ``{"visits.treat": {"1": "no", "2-": "yes"}}``, where rows that are not named keep their
                law.
            given: Columns to condition on: of people, or of rows by their numbers.
            seed: For repeatable draws.

        Returns:
            A frame for each table: people with keys 1, 2, ..., and rows with the key of their person, their number and
            their date; where no origin is released, with days since it. Rows of rows name the person and the number of
            the row that they belong to.

        Raises:
            SchemaError: If ``do`` or ``given`` names a column, level or value that the schema does not have.
            NotIdentifiableError: If the graph does not name what is set, so that it says nothing of what setting it
                does.
            ZeroProbabilityError: If ``given`` cannot happen under the model.
            InputError: If ``given`` is too rare under the model.
        """
        import polars as pl

        count = whole("people", people)
        rng = np.random.default_rng(None if seed is None else whole("seed", seed))
        parts = list(self._drawn(count, self._settings("do", do), self._settings("given", given), rng))
        frames: dict[str, list[pl.DataFrame]] = {name: [] for name in self.schema.tables}
        start = 0
        for part in parts:
            for name, frame in self._frames(part, start, rng).items():
                frames[name].append(frame)
            start += part.size
        return {name: pl.concat(several) for name, several in frames.items()}

    def codes(
        self,
        people: int,
        *,
        do: Mapping[str, object] | None = None,
        given: Mapping[str, object] | None = None,
        seed: int | None = None,
    ) -> list[Drawn]:
        """Draw people as schema cells, in blocks."""
        rng = np.random.default_rng(None if seed is None else whole("seed", seed))
        count = whole("people", people)
        return list(self._drawn(count, self._settings("do", do), self._settings("given", given), rng))

    def _drawn(
        self, people: int, fixed: dict[str, Setting], evidence: dict[str, Setting], rng: np.random.Generator
    ) -> Iterator[Drawn]:
        if both := sorted(set(fixed) & set(evidence)):
            raise InputError(f"{', '.join(both)} cannot be both set (do) and observed (given); name it once.")
        self.check_do(fixed)
        own = {name: cells[0][2] for name, cells in fixed.items() if name in self.people}
        seen = {name: cells[0][2] for name, cells in evidence.items() if name in self.people}
        rows_seen = {name: cells for name, cells in evidence.items() if name not in self.people}
        # How many rows somebody has is set or observed exactly, of which the laws of people know the bin.
        fixed |= {name: cells for name, cells in evidence.items() if name in self.people}
        drawn = drawer(self.people, own, seen)
        sizes = [min(_BLOCK, people - start) for start in range(0, max(people, 1), _BLOCK)]
        with tracking("Sampling", total=len(sizes)) as advance:
            for size in sizes:
                if rows_seen:
                    yield self._accepted(size, drawn, fixed, rows_seen, rng)
                else:
                    yield self._block(drawn(size, rng), size, fixed, rng)
                advance(1)

    def _accepted(
        self, size: int, drawn: Any, fixed: dict[str, Setting], seen: dict[str, Setting], rng: np.random.Generator
    ) -> Drawn:
        """Draw people until enough of them have rows as they were observed."""
        found: list[Drawn] = []
        have, tried = 0, 0
        while have < size:
            several = max(min(_BLOCK, 4 * (size - have)), 1000)
            block = self._block(drawn(several, rng), several, fixed, rng)
            kept = block.kept(block.fits(seen))
            tried += several
            found.append(kept)
            have += kept.size
            if (have < size and tried >= max(_TRIED * size, 10_000)) or (tried >= 20_000 and have * 100 < tried):
                raise InputError(
                    f"the condition on {', '.join(sorted(seen))} holds for {have} of {tried:,} people drawn, fewer "
                    "than one in a hundred: too rare to draw by. Condition on less."
                )
        return Drawn.joined(found).first(size)

    def _block(self, people: dict[str, Codes], size: int, fixed: dict[str, Setting], rng: np.random.Generator) -> Drawn:
        rows: dict[str, DrawnRows] = {}
        for child in self.schema.children:
            if not child.parent:
                rows[child.name] = self._rows(child.name, people, size, fixed, rng)
                continue
            above, number = rows[child.parent], f"{child.parent}.{NUMBER}"
            known = {name: codes[above.person] for name, codes in people.items()} | dict(above.codes)
            known[number] = self.schema.column(number).encode(above.number).astype(np.int64)
            drawn = self._rows(child.name, known, above.person.size, fixed, rng)
            rows[child.name] = replace(drawn, person=above.person[drawn.person], row=drawn.person, parent=child.parent)
        return Drawn(people, rows, size)

    def _rows(
        self, table: str, people: dict[str, Codes], size: int, fixed: dict[str, Setting], rng: np.random.Generator
    ) -> DrawnRows:
        """Draw the rows of a table: first ones, then those after them, for all people who have that many.

        Of rows of rows, for all rows instead of people.
        """
        child, model = self.schema.child(table), self.rows[table]
        count, number = f"{table}.{COUNT}", f"{table}.{NUMBER}"
        edges = [*child.count_edges, child.most + 1]
        bins = people[count].astype(np.int64)
        if count in fixed:
            lengths = np.full(size, fixed[count][0][1], dtype=np.int64)
        else:
            inside = np.zeros((len(edges) - 1, child.most + 1))
            for place, (low, high) in enumerate(pairwise(edges)):
                part = model.lengths[low:high]
                inside[place, low:high] = part / part.sum() if part.sum() > 0 else 1 / (high - low)
            lengths = _draw_node(TableConditional((count,), inside), [bins], size, rng)
        numbered = child.column(NUMBER)
        several = [f"{nested.name}.{COUNT}" for nested in self.schema.of_rows(table)]
        parts: list[tuple[Codes, Codes, dict[str, Codes]]] = []
        before: dict[str, Codes] = {}
        alive = np.flatnonzero(lengths >= 1)
        nth = 1
        while alive.size:
            laws = model.first if nth == 1 else model.next
            known: dict[str, Codes] = {name: codes[alive] for name, codes in people.items()}
            known[number] = np.full(alive.size, int(numbered.encode([nth])[0]), dtype=np.int64)
            known |= before
            for name, law in laws.items():
                setting = fixed.get(name, [])
                cell = next((cell for low, high, cell in setting if low <= nth <= high or name in several), None)
                if cell is not None:
                    known[name] = np.full(alive.size, cell, dtype=np.int64)
                else:
                    known[name] = _draw_node(law, [known[parent] for parent in law.parents], alive.size, rng)
            own = {name: known[name] for name in laws}
            parts.append((alive, np.full(alive.size, nth, dtype=np.int64), own))
            goes_on = lengths[alive] > nth
            alive = alive[goes_on]
            before = {f"{table}.{name}{PREVIOUS}": own[f"{table}.{name}"][goes_on] for name in child.schema.names}
            nth += 1
        names = [f"{table}.{name}" for name in (*child.schema.names, *((START, GAP) if child.order else ()))]
        return DrawnRows.of(parts, [*names, *several])

    def check_do(self, intervened: Any) -> None:
        """Refuse an intervention on a column of which the graph says nothing, or that reaches an edge left open.

        Raises:
            NotIdentifiableError: Names the column, or the edge.
        """
        for name in intervened:
            if edge := self._open_after(name):
                raise NotIdentifiableError(
                    f"What setting {name!r} does depends on the direction of {edge[0]} — {edge[1]}, which the tables "
                    "do not tell. Discover the graph again with that arrow as knowledge, or give a graph."
                )
            if name not in self.graph:
                raise NotIdentifiableError(
                    f"The graph does not name {name!r}, so it says nothing of what setting it does; state its causes "
                    "and effects."
                )

    def answers_do(self, name: str) -> bool:
        """Return whether the graph says what setting a column does."""
        return name in self.graph and self._open_after(name) is None

    @property
    def associations(self) -> tuple[tuple[str, str], ...]:
        """Edges of a graph that was found whose direction is open: rows follow them, and no cause is claimed."""
        found = self.details.get("discovery") or {"edges": ()}
        return tuple((edge["from"], edge["to"]) for edge in found["edges"] if not edge["directed"])

    def _open_after(self, name: str) -> tuple[str, str] | None:
        """Return an open edge at a column, or at what it may act on, in its row or the next ones; None without one."""
        reached, waiting = set[str](), [name.removesuffix(PREVIOUS)]
        while waiting and self.associations:
            one = waiting.pop()
            for edge in self.associations:
                if one in edge or one + PREVIOUS in edge:
                    return edge
            reached.add(one)
            effects = (effect for cause, effect in self.graph.edges if cause.removesuffix(PREVIOUS) == one)
            waiting += [effect for effect in effects if effect not in reached]
        return None

    # -- what is set or observed ---------------------------------------------------------------------------------------

    def _settings(self, argument: str, values: object) -> dict[str, Setting]:
        """Return for each column from which row to which it has which cell."""
        return {name: self._setting(argument, name, value) for name, value in by_column(argument, values).items()}

    def _setting(self, argument: str, name: str, value: object) -> Setting:
        column = self.schema.columns.get(name) if isinstance(name, str) else None
        if column is None:
            raise SchemaError(f"{argument}: {_unknown(self.schema, name)}")
        table = self.schema.table_of(name)
        what = name.removeprefix(f"{table}.")
        if table == self.schema.people:
            return [(1, 1, cell_of(column, argument, value))]
        child = self.schema.child(table)
        if child.parent and argument == "given":
            raise InputError(
                f"given: {name!r} is of rows of {child.parent}, which are not conditioned on; name columns of "
                f"{self.schema.people} or of {child.parent}."
            )
        if what == COUNT:
            return [(1, _whole_number(argument, name, value, child.most), cell_of(column, argument, value))]
        if what == NUMBER:
            raise InputError(
                f"{argument}: {name!r} says which row it is and cannot be set; give a column by row numbers."
            )
        if not isinstance(value, Mapping):
            return [(1, child.most, cell_of(column, argument, value))]
        found: Setting = []
        for rows, one in value.items():
            low, high = _row_numbers(argument, name, rows, child.most)
            if any(low <= end and start <= high for start, end, _ in found):
                raise InputError(
                    f"{argument}: {name!r} is given twice for row {max(low, min(s for s, _, _ in found))}."
                )
            found.append((low, high, cell_of(column, argument, one)))
        return found

    # -- frames --------------------------------------------------------------------------------------------------------

    def _frames(self, drawn: Drawn, start: int, rng: np.random.Generator) -> dict[str, pl.DataFrame]:
        import polars as pl

        schema = self.schema
        keys = pl.Series(schema.key, np.arange(start + 1, start + drawn.size + 1))
        own = {name: drawn.people[f"{schema.people}.{name}"] for name in schema.person.names}
        people = decode(schema.person, own, rng)
        frames = {schema.people: people.insert_column(0, keys)}
        days: dict[str, Codes] = {}
        for child in schema.children:
            rows = drawn.rows[child.name]
            columns = {name: rows.codes[f"{child.name}.{name}"] for name in child.schema.names}
            made = decode(child.schema, columns, rng)
            made = made.insert_column(0, pl.Series(NUMBER, rows.number))
            if child.order is not None:
                own_days = self._days(child.name, rows, rng)
                days[child.name] = own_days if rows.row is None else own_days + days[rows.parent][rows.row]
                made = made.insert_column(1, self._dates(people, rows.person, days[child.name]).alias(child.order))
            if child.key is not None and child.key != NUMBER:
                made = made.insert_column(0, pl.Series(child.key, rows.number))
            if rows.row is not None:
                made = made.insert_column(0, pl.Series(child.row_key, drawn.rows[rows.parent].number[rows.row]))
            frames[child.name] = made.insert_column(0, pl.Series(child.foreign_key, rows.person + start + 1))
        return frames

    def _days(self, table: str, rows: DrawnRows, rng: np.random.Generator) -> Codes:
        """Return how many days after the person's origin, or after its row, each is: the days before rows, added up."""
        child = self.schema.child(table)
        ahead = np.zeros(rows.person.size, dtype=np.int64)
        for name, chosen in ((START, rows.number == 1), (GAP, rows.number > 1)):
            column = child.column(name)
            assert isinstance(column, Numeric)
            codes = rows.codes[f"{table}.{name}"][chosen]
            ahead[chosen] = decode(Schema((column,)), {name: codes}, rng)[name].to_numpy()
        if not ahead.size:
            return ahead
        total = np.cumsum(ahead)
        first = np.flatnonzero(rows.number == 1)
        before = np.r_[0, total[first[1:] - 1]]
        since: Codes = total - np.repeat(before, np.diff(np.r_[first, ahead.size]))
        return since

    def _dates(self, people: pl.DataFrame, person: Codes, days: Codes) -> pl.Series:
        import polars as pl

        schema = self.schema
        since = pl.Series(days)
        if schema.origin_day is not None:
            since = since + int(schema.origin_day)
        elif schema.origin is not None and schema.origin in schema.person:
            origin = people[schema.origin].cast(pl.Int64, strict=False)
            since = since + origin.gather(person)
        else:
            return since  # no origin is released: days since it
        return since if schema.dates == DAYS else since.cast(pl.Int32).cast(pl.Date)

    # -- files and words -----------------------------------------------------------------------------------------------

    def save(self, directory: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the model as ``model.json`` and ``parameters.safetensors`` into a new folder.

        Raises:
            InputError: If the folder exists and ``overwrite`` is false, or cannot be written.
        """
        from escudo.synthesis._files import describe_linked, write_folder

        laws, arrays = stored_laws(self.people, "people/")
        rows = {}
        for table, model in self.rows.items():
            told = {}
            for view, found in (("first", model.first), ("next", model.next)):
                told[view], more = stored_laws(found, f"{table}/{view}/")
                arrays |= more
            arrays[f"{table}/lengths"] = np.array(model.lengths)
            rows[table] = told
        write_folder(Path(directory), describe_linked(self) | {"laws": laws, "rows": rows}, arrays, overwrite=overwrite)

    def __repr__(self) -> str:
        return f"LinkedModel({', '.join(self.schema.tables)}; {len(self.graph.edges)} arrows)"

    def __str__(self) -> str:
        return f"A model of {' with '.join(self.schema.tables)}. {self.guarantee}"

    def _repr_html_(self) -> str:
        title = f"Linked model: {escape(' with '.join(self.schema.tables))}"
        picture = linked_picture(self.schema, self.graph) if self.graph.edges else ""
        return f"<div><strong>{title}</strong><p>{escape(str(self.guarantee))}</p>{picture}</div>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DrawnRows:
    """Synthetic rows of one table as cells, person by person in order; of rows of rows, row by row.

    Attributes:
        person: Whose each is.
        number: Which row of the person it is, or of the row.
        codes: The cells of each column, by whole names; how many rows of rows a row has among them.
        row: For rows of rows, the place of the row that each is of.
        parent: The table of that row.
    """

    person: Codes
    number: Codes
    codes: Mapping[str, Codes]
    row: Codes | None = None
    parent: str = ""

    @classmethod
    def of(cls, parts: Sequence[tuple[Codes, Codes, dict[str, Codes]]], names: Sequence[str]) -> DrawnRows:
        """Put rows that were drawn number by number into order, person by person."""
        empty = np.zeros(0, dtype=np.int64)
        person = np.concatenate([empty, *(alive for alive, _, _ in parts)])
        number = np.concatenate([empty, *(nth for _, nth, _ in parts)])
        order = np.argsort(person, kind="stable")
        columns = {}
        for name in names:
            several = [own.get(name, np.zeros(alive.size, dtype=np.int64)) for alive, _, own in parts]
            columns[name] = np.concatenate([empty, *several])[order]
        return cls(person[order], number[order], columns)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Drawn:
    """Synthetic people and their rows as cells."""

    people: Mapping[str, Codes]
    rows: Mapping[str, DrawnRows]
    size: int

    def fits(self, seen: Mapping[str, Setting]) -> NDArray[np.bool_]:
        """Return which people have rows as they were observed; who has no such row does not."""
        fine = np.ones(self.size, dtype=bool)
        for name, setting in seen.items():
            rows = next(rows for rows in self.rows.values() if name in rows.codes)
            for low, high, cell in setting:
                within = (rows.number >= low) & (rows.number <= high)
                wrong = within & (rows.codes[name] != cell)
                has = np.bincount(rows.person[rows.number == low], minlength=self.size) > 0
                fine &= has & (np.bincount(rows.person[wrong], minlength=self.size) == 0)
        return fine

    def kept(self, chosen: NDArray[np.bool_]) -> Drawn:
        """Return some of the people, with their rows."""
        place = np.cumsum(chosen) - 1
        rows: dict[str, DrawnRows] = {}
        for name, each in self.rows.items():
            mine = chosen[each.person]
            row = None
            if each.row is not None:
                row = (np.cumsum(chosen[self.rows[each.parent].person]) - 1)[each.row[mine]]
            codes = {key: cells[mine] for key, cells in each.codes.items()}
            rows[name] = replace(each, person=place[each.person[mine]], number=each.number[mine], codes=codes, row=row)
        return Drawn({name: codes[chosen] for name, codes in self.people.items()}, rows, int(chosen.sum()))

    def first(self, size: int) -> Drawn:
        """Return the first so many people."""
        return self.kept(np.arange(self.size) < size)

    @classmethod
    def joined(cls, parts: Sequence[Drawn]) -> Drawn:
        """Return several blocks as one."""
        starts = np.cumsum([0, *(part.size for part in parts)])
        rows = {}
        for name, one in parts[0].rows.items():
            several = [part.rows[name] for part in parts]
            row = None
            if one.row is not None:
                before = np.cumsum([0, *(part.rows[one.parent].person.size for part in parts)])
                row = np.concatenate([cast(Codes, each.row) + b for each, b in zip(several, before[:-1], strict=True)])
            rows[name] = DrawnRows(
                np.concatenate([each.person + start for each, start in zip(several, starts[:-1], strict=True)]),
                np.concatenate([each.number for each in several]),
                {key: np.concatenate([each.codes[key] for each in several]) for key in several[0].codes},
                row,
                one.parent,
            )
        people = {name: np.concatenate([part.people[name] for part in parts]) for name in parts[0].people}
        return cls(people, rows, int(starts[-1]))


def _row_numbers(argument: str, name: str, rows: object, most: int) -> tuple[int, int]:
    """Read which rows: ``"1"``, ``"2-5"``, or ``"3-"`` for all from the third on."""
    found = _ROWS.fullmatch(str(rows))
    if found is None:
        raise InputError(
            f"{argument}: {name!r} takes values by row numbers, such as '1', '2-5' or '3-'; got {str(rows)[:40]!r}."
        )
    low = int(found[1])
    high = low if found[2] is None else most if found[3] == "" else int(found[3])
    if not 1 <= low <= high or low > most:
        raise InputError(f"{argument}: {name!r}: rows are numbered from 1 to {most}; got {str(rows)[:40]!r}.")
    return low, min(high, most)


def _whole_number(argument: str, name: str, value: object, most: int) -> int:
    try:
        found = int(str(value))
    except ValueError:
        found = -1
    if not 0 <= found <= most:
        raise SchemaError(f"{argument}: {name!r} is a number of rows from 0 to {most}; got {str(value)[:40]!r}.")
    return found


def _unknown(schema: LinkedSchema, name: object) -> str:
    try:
        schema.column(name)  # type: ignore[arg-type] # which says what is wrong with it
    except SchemaError as error:
        return str(error)
    raise AssertionError("it is known")
