"""Which pairs are tried: every verb in every engine, for every relation and unit, and any number of neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from escudo.privacy import Relation, Unit
from neighbours import linked
from neighbours.files import LINE, LINES, WRITERS
from neighbours.tables import ENGINES, RELATIONS, Pair, Rows, base_rows, columns_of, neighbour
from neighbours.verbs import Asked, Verb, every_verb
from neighbours.worlds import Held


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A question, where it is asked, and what it protects."""

    verb: Verb
    engine: str
    relation: Relation
    unit: Unit

    @property
    def name(self) -> str:
        """The case in a few words."""
        where = "" if self.verb.file else f" on {self.engine}"
        return f"{self.verb.name}{where}, {self.relation}, {self.unit}"

    def frame(self, rows: Rows) -> Any:
        """Return the rows as the engine, or the file, holds them."""
        if self.verb.file:
            return self.verb.file, WRITERS[self.verb.file](rows, self.verb.content)
        return ENGINES[self.engine].frame(rows, columns_of(self.verb.content))

    def run(self, rows: Rows, known: int) -> Any:
        """Return what asks the question of these rows."""
        asked = Asked(
            frame=self.frame(rows), content=self.verb.content, relation=self.relation, unit=self.unit, rows=known
        )

        def run(folder: Path) -> Any:
            return self.verb.ask(asked, folder)

        return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What told two neighbours apart."""

    case: str
    pair: str
    seed: int
    difference: str

    def __str__(self) -> str:
        return f"{self.case}: {self.pair} (seed {self.seed}): {self.difference}"


def every_case(engines: dict[str, Any] = ENGINES) -> Iterator[Case]:
    """Yield every case there is; files have an engine of their own, and so have linked tables."""
    for verb in every_verb():
        fitting = [name for name, engine in engines.items() if engine.texts or verb.content != "written"]
        for engine in (verb.file,) if verb.file else fitting:
            for relation in verb.relations:
                for unit in verb.units:
                    yield Case(verb=verb, engine=engine, relation=relation, unit=unit)
    for name in linked.VERBS:
        for relation in RELATIONS:
            yield LinkedCase(verb=Verb(name=name, ask=_asked_elsewhere, cost=80), engine="linked", relation=relation)


def _asked_elsewhere(asked: Asked, folder: Path) -> Any:
    raise AssertionError("linked tables are asked by their own case")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedCase(Case):
    """A question to linked tables: people with all their rows."""

    unit: Unit = "person"

    def tries(self, rng: np.random.Generator, neighbours: int) -> Iterator[tuple[str, str | None]]:
        """Yield what each neighbour is called, and what told it apart."""
        weighting = "unit" if rng.random() < 0.5 else "voice"
        people = [linked.someone(rng) for _ in range(int(rng.integers(2, 15)))]
        held = Held(linked.asked(people, self.relation, weighting, self.verb.name))
        if held.refused and neighbours:
            yield "the tables themselves", f"nothing was tried, since it is refused: {held.refused}"
            return
        for _ in range(neighbours):
            label, others = linked.neighbour(people, self.relation, rng)
            yield label, held.difference(linked.asked(others, self.relation, weighting, self.verb.name))


BATCH = 50  # neighbours of one table, before another is made


def slowness(engine: str) -> float:
    """Return how much longer an engine takes than polars on a table of a few rows."""
    return {"dask": 11.0, "duckdb": 5.0, "postgresql": 8.0}.get(engine, 1.0)


class Tries:
    """A case on one table and on so many neighbours of it: yields what told each apart, None for nothing.

    Attributes:
        refused: With what words the first run ended, if it gave no answer.
    """

    def __init__(self, case: Case, seed: int, neighbours: int):
        self._case, self._seed, self._neighbours = case, seed, neighbours
        self.refused = ""

    def __iter__(self) -> Iterator[Finding | None]:
        case = self._case
        rng = np.random.default_rng([self._seed, *case.name.encode()])
        if isinstance(case, LinkedCase):
            for label, difference in case.tries(rng, self._neighbours):
                found = Finding(case=case.name, pair=label, seed=self._seed, difference=difference or "")
                yield None if difference is None else found
            return
        # Now and then there is hardly anybody: empty tables and partitions are tables like any other.
        few = case.relation == "add_remove" and rng.random() < 0.3
        count = int(rng.integers(0, 3)) if few else case.verb.rows
        rows = base_rows(case.verb.content, rng, count, case.unit)
        held = Held(case.run(rows, len(rows)))
        self.refused = held.refused
        if self.refused and self._neighbours:
            words = f"nothing was tried, since it is refused: {self.refused}"
            yield Finding(case=case.name, pair="the table itself", seed=self._seed, difference=words)
            return
        for _ in range(self._neighbours):
            pair = _neighbour(case, rows, rng)
            difference = held.difference(case.run(pair.second, len(rows)))
            yield (
                None
                if difference is None
                else Finding(case=case.name, pair=pair.label, seed=self._seed, difference=difference)
            )


def _neighbour(case: Case, rows: Rows, rng: np.random.Generator) -> Pair:
    objects = not case.verb.file and ENGINES[case.engine].objects
    pair = neighbour(rows, case.verb.content, case.relation, case.unit, rng, objects=objects)
    lines = LINES.get(case.verb.file)
    if lines is not None and case.unit == "row" and rng.random() < 0.6:
        known = {id(row) for row in rows}
        for row in pair.second:
            if id(row) not in known:
                row[LINE] = lines[int(rng.integers(len(lines)))]
    return pair
