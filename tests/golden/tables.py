"""Every verb of a private table, by generator, method, relation and unit, in every engine and from every kind of file.

The questions are those of ``neighbours.verbs``, asked once of a fixed table with a fixed seed. Engines hold the same
rows, so they give the same answer: there is one golden answer for all of them, but where a schema is learnt from the
types that an engine has for its columns, and where persons' ids are texts in one engine and numbers in another. A test
asks each question in one engine, and engines take turns; ``python -m golden`` asks all of them in all engines, also
what is too slow for a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from escudo.privacy import Relation, Unit
from golden.seen import Exactness, Seen, see
from neighbours.files import WRITERS
from neighbours.tables import CODES, ENGINES, Content, Rows, columns_of
from neighbours.verbs import Asked, Verb, every_verb

ROWS = 400
_TEXT_IDS = "polars text ids"
_NETWORKS = ("autoregressive", "vae", "a network")
_SLOW = ("synthesize and evaluate", "evaluate_privately", "escudo direction")
_SAME = tuple(f"escudo release {ending}" for ending in ("tsv", "ndjson", "parquet", "arrow"))  # but for the reading


def rows_of(content: Content, unit: Unit, count: int = ROWS) -> Rows:
    """Return a table in which one column depends on another; of two rows each, where rows are of persons."""
    rng, rows = np.random.default_rng(20), []
    for place in range(count):
        if content == "numbers":
            height = float(rng.beta(2, 5) * 100)
            row = {"height": height, "dose": min(height / 2 + float(rng.random() * 40), 100.0)}
            row["pressure"] = min(row["dose"] * height / 100 + float(rng.random() * 30), 100.0)
        elif content == "written":
            price, share = float(rng.beta(2, 5) * 120), float(rng.random())
            row = {"smoke": "yes" if rng.random() < share else "no", "price": f"${price:,.2f}", "share": f"{share:.1%}"}
            row["lung"] = None if rng.random() < 0.05 else bool(rng.random() < price / 120)
        elif content == "rare":
            stage = int(rng.integers(1, 4))
            row = {**{name: bool(rng.random() < 0.02 * stage) for name in CODES}, "stage": stage}
        else:
            smokes, age = bool(rng.random() < 0.4), None if rng.random() < 0.05 else float(rng.integers(0, 100))
            stage = 1 + int(rng.random() < (age or 0.0) / 100) + int(rng.random() < (age or 0.0) / 150)
            row = {"smoke": "yes" if smokes else "no", "age": age, "stage": stage}
            row["lung"] = None if rng.random() < 0.05 else bool(rng.random() < 0.1 + 0.5 * smokes + 0.1 * stage)
        rows.append({**row, "who": place // 2 + 1 if unit == "person" else place, "remark": "nothing"})
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCase:
    """A question to a private table.

    Attributes:
        verb: What is asked.
        relation: Which tables are neighbours.
        unit: What they differ in.
        engine: In which engine a test asks it; empty where it reads a file.
        turn: Whether it is this engine's turn, where each has an answer of its own.
    """

    verb: Verb
    relation: Relation
    unit: Unit
    engine: str
    turn: bool = True

    @property
    def alone(self) -> bool:
        """Whether the engine makes a difference."""
        return self.verb.name == "learn_schema"

    @property
    def name(self) -> str:
        """What it is called in ``answers.json``."""
        return f"{self.verb.name}{f' on {self.engine}' if self.alone else ''}, {self.relation}, {self.unit}"

    @property
    def exactness(self) -> Exactness:
        """How exactly the answer can be known beforehand."""
        if "schema learn" in self.verb.name:  # the command has no seed
            return "chance"
        return "network" if any(network in self.verb.name for network in _NETWORKS) else "exact"

    @property
    def slow(self) -> bool:
        """Whether it is left to ``python -m golden``, since another relation or unit of the same verb is tested."""
        if self.exactness == "network":  # compiling takes seconds
            kinds = ("synthesize autoregressive", "synthesize vae")
            return (self.relation, self.unit) != ("replace_one", "row") or self.verb.name not in kinds
        tested = {("replace_one", "row"), ("add_remove", "person")}
        return not self.turn or (self.verb.name in (*_SLOW, *_SAME) and (self.relation, self.unit) not in tested)

    @property
    def engines(self) -> tuple[str, ...]:
        """All engines in which it can be asked."""
        if self.verb.file or self.alone:
            return (self.engine,)
        by_id = {_TEXT_IDS} if self.unit == "person" else set()  # ids decide which block a person is in
        if self.engine in by_id:
            return (self.engine,)
        return tuple(name for name in ENGINES if name not in {"postgresql", *by_id} and fits(self.verb, name))

    def see(self, engine: str | None = None) -> Seen:
        """Ask, in this engine or the one whose turn it is."""
        verb, engine = self.verb, self.engine if engine is None else engine
        rows = rows_of(verb.content, self.unit, 120 if "escudo direction" in verb.name else ROWS)
        frame: Any = (
            (verb.file, WRITERS[verb.file](rows, verb.content))
            if verb.file
            else ENGINES[engine].frame(rows, columns_of(verb.content))
        )
        asked = Asked(frame=frame, content=verb.content, relation=self.relation, unit=self.unit, rows=len(rows))

        def run(folder: Path) -> Any:
            return verb.ask(asked, folder)

        return see(run, self.exactness)


def fits(verb: Verb, engine: str) -> bool:
    """Whether an engine hands over what a verb asks for: numbers that are written as texts, a database does not."""
    return verb.content != "written" or ENGINES[engine].texts


def table_cases() -> Iterator[TableCase]:
    """Yield every question, each in one engine; where engines differ, in all of them."""
    engines, place = [name for name in ENGINES if name != "postgresql"], 0
    for verb in every_verb():
        for relation in verb.relations:
            for unit in verb.units:
                case = TableCase(verb=verb, relation=relation, unit=unit, engine="")
                if verb.file:
                    yield case
                    continue
                fitting = [name for name in engines if fits(verb, name)]
                for engine in fitting if case.alone else [fitting[place % len(fitting)]]:
                    yield replace(case, engine=engine, turn=engine == fitting[place % len(fitting)])
                place += 1
