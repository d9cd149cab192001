"""What is attacked: anything that fits rows and then draws synthetic ones, called in one way.

What it fits are the same rows with one record more, less or another (:class:`RowsWithRecord`): counted once, moved many
times.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.mechanisms import Purse
from escudo.privacy import Guarantee, MemoryAccount, usual_delta
from escudo.synthesis import Chosen, Model, Prepared, prepare
from escudo.table import Numeric, PrivateTable, Schema
from escudo.utility import Rows

if TYPE_CHECKING:
    import polars as pl

Spread = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""Calls a function for each item, in several processes if there are several; answers come in order."""


# ---- what a victim is


class Victim(Protocol):
    """A generator under attack: fits once, draws several synthetic sets."""

    @property
    def claim(self) -> Guarantee | None:
        """What it promises to the people in the rows; None if it promises nothing."""
        ...

    def synthetic(self, rows: RowsWithRecord, *, sets: int, size: int, seed: int) -> list[Rows]:
        """Fit the rows and return ``sets`` synthetic sets of ``size`` rows."""
        ...


class Fitted(Protocol):
    """A fit that can be sent to another process, and drawn from there."""

    def synthetic(self, *, sets: int, size: int) -> list[Rows]:
        """Return ``sets`` synthetic sets of ``size`` rows."""
        ...


class TrainedTogether(Victim, Protocol):
    """A victim whose fits can be made all at once."""

    @property
    def together(self) -> bool:
        """Whether that is quicker here than one after another, as it is for networks on an accelerator."""
        ...

    def fitted(self, worlds: Sequence[tuple[RowsWithRecord, int]], spread: Spread) -> Iterator[Fitted]:
        """Fit all rows, each with its seed, and give the fits in order.

        Args:
            worlds: Rows and seeds.
            spread: For what is not done on the accelerator.
        """
        ...


def trains_together(victim: Victim) -> TypeGuard[TrainedTogether]:
    """Return whether a victim's fits are to be made all at once."""
    return bool(getattr(victim, "together", False))


def check_own(budget: object, claim: Guarantee | None) -> None:
    """Raise unless one of escudo's generators is attacked on its own terms: at a cost, which says what it promises."""
    if budget is None:
        raise InputError("epsilon says how private the attacked generator is; give one.")
    if claim is not None:
        raise InputError("claim is for other generators; escudo's own promise what epsilon, delta and relation say.")


def check_other(options: Mapping[str, Any]) -> None:
    """Raise if another's generator is given options of escudo's."""
    if options:
        raise InputError(f"option {next(iter(options))!r} is for escudo's own generators, which are given by name.")


def victim_of(
    generator: object,
    schema: Schema,
    graph: CausalGraph | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    relation: str = "replace_one",
    claim: Guarantee | None = None,
    frames: str = "polars",
    **options: Any,
) -> Victim:
    """Return anything that makes synthetic rows as a victim.

    Args:
        generator: The name of one of escudo's generators; a :class:`Victim`; a function ``(rows, rng)`` that returns
            synthetic rows or an object with ``sample(n)``; or an object with ``fit(rows)`` and ``sample(n)``, which is
            copied for each fit.
        schema: The public description of the rows.
        graph: For escudo's generators: the causal graph.
        epsilon: For escudo's generators: what a fit costs.
        delta: For escudo's generators; as a release has it by default.
        relation: For escudo's generators.
        claim: What any other generator promises; None if nothing.
        frames: ``"polars"`` or ``"pandas"``: what other generators are given.
        options: For escudo's generators.
    """
    if isinstance(generator, str):
        check_own(epsilon, claim)
        if delta is None:
            delta = usual_delta(schema.neighbours(relation=relation, rows=options.get("public_rows")))
        terms: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "relation": relation, "generator": generator}
        return EscudoVictim(prepare(schema, graph, **terms, **options))
    check_other(options)
    if frames not in ("polars", "pandas"):
        raise InputError(f"frames must be 'polars' or 'pandas'; got {frames!r}.")
    if hasattr(generator, "synthetic") and hasattr(generator, "claim"):
        victim: Victim = generator
        return victim
    if hasattr(generator, "fit") and hasattr(generator, "sample"):
        return _Callable(_Refitted(generator), claim, frames)
    if callable(generator):
        return _Callable(generator, claim, frames)
    raise InputError(
        "generator must be the name of an escudo generator, a function of rows and a random generator, or an object "
        f"with fit and sample; got {type(generator).__name__}."
    )


# ---- escudo's own generators


class EscudoVictim:
    """One of escudo's generators, prepared once; only fits and samples are repeated.

    Args:
        prepared: What it will measure, from public facts alone; its plan says what a fit costs.
    """

    def __init__(self, prepared: Prepared):
        self._prepared: Any = prepared.prepared if isinstance(prepared, Chosen) else prepared
        self.claim = self._prepared.plan.guarantee(max_rows_per_person=prepared.schema.max_rows_per_person)

    @property
    def _neural(self) -> bool:
        from escudo.synthesis.neural import PreparedNeural

        return isinstance(self._prepared, PreparedNeural)

    @property
    def together(self) -> bool:
        """Whether fits are quicker all at once: networks on an accelerator."""
        if not self._neural:
            return False
        from escudo.synthesis.neural import on_accelerator

        return on_accelerator()

    def synthetic(self, rows: RowsWithRecord, *, sets: int, size: int, seed: int) -> list[Rows]:
        """Fit the rows and return ``sets`` synthetic sets of ``size`` rows."""
        fit = next(self.fitted([(rows, seed)], map)) if self._neural else self._fit(rows, seed)
        return fit.synthetic(sets=sets, size=size)

    def _fit(self, rows: RowsWithRecord, seed: int) -> _Drawn:
        table, noise = rows.table(self.claim), np.random.default_rng(seed)
        purse = Purse(table.account, noise, plan=self._prepared.plan, guarantee=self.claim)
        return self._drawn(self._prepared.run(table, purse), rows, seed)

    def fitted(self, worlds: Sequence[tuple[RowsWithRecord, int]], spread: Spread) -> Iterator[_Drawn]:
        """Fit networks to all rows; their starts are measured in several processes, and all are trained together."""
        from escudo.synthesis.neural import finish

        models = finish(self._prepared, spread(self._begun, worlds), count=len(worlds), guarantee=self.claim)
        for model, (rows, seed) in zip(models, worlds, strict=True):
            yield self._drawn(model, rows, seed)

    def _begun(self, world: tuple[RowsWithRecord, int]) -> Any:
        from escudo.synthesis.neural import begin

        rows, seed = world
        return begin(self._prepared, rows.table(self.claim), seed, self.claim)

    def _drawn(self, model: Model, rows: RowsWithRecord, seed: int) -> _Drawn:
        return _Drawn(model, rows.rest.schema, bool(np.isfinite(rows.rest.numbers).any()), seed)


@dataclass(frozen=True, eq=False, repr=False)
class _Drawn:
    """A fitted model of escudo, with what decides its synthetic sets."""

    model: Model
    schema: Schema
    numeric: bool
    seed: int

    def synthetic(self, *, sets: int, size: int) -> list[Rows]:
        seeds = [self.seed + 1 + place for place in range(sets)]
        codes = getattr(self.model, "codes", None)
        if codes is None or self.numeric:
            return [Rows.read(self.model.sample(size, seed=seed), self.schema) for seed in seeds]
        return [_of_codes(self.schema, codes(size, seed=seed)) for seed in seeds]


def _of_codes(schema: Schema, codes: Any) -> Rows:
    cells = np.asarray(codes, dtype=np.int64)
    return Rows(schema=schema, codes=cells, numbers=np.full(cells.shape, np.nan))


# ---- any other


class _Callable:
    """A function that fits rows and returns synthetic ones, or something that samples."""

    def __init__(self, run: Callable[..., Any], claim: Guarantee | None, frames: str):
        self._run, self.claim, self._frames = run, claim, frames

    def synthetic(self, rows: RowsWithRecord, *, sets: int, size: int, seed: int) -> list[Rows]:
        """Call the function once; draw from what it returns."""
        frame = rows.frame()
        made = self._run(frame.to_pandas() if self._frames == "pandas" else frame, np.random.default_rng(seed))
        if hasattr(made, "sample") and not _is_frame(made):
            return [_read(_sample(made, size, seed + 1 + place), rows.rest.schema) for place in range(sets)]
        if sets > 1:
            raise InputError(
                "the generator returned one synthetic set; to draw several from a fit, return an object with sample()."
            )
        return [_read(made, rows.rest.schema)]


class _Refitted:
    """An object with ``fit`` and ``sample``, copied before each fit."""

    def __init__(self, made: Any):
        self._made = made

    def __call__(self, rows: Any, rng: np.random.Generator) -> Any:
        fresh = copy.deepcopy(self._made)
        for name in ("random_state", "seed"):  # where an object keeps its seed, it must not draw the same noise again
            if isinstance(getattr(fresh, name, None), int):
                setattr(fresh, name, int(rng.integers(2**31)))
        fresh.fit(rows)
        return fresh


def _sample(made: Any, size: int, seed: int) -> Any:
    takes = inspect.signature(made.sample).parameters
    return made.sample(size, seed=seed) if "seed" in takes else made.sample(size)


def _is_frame(made: object) -> bool:
    return type(made).__module__.partition(".")[0] in ("polars", "pandas", "pyarrow", "duckdb")


def _read(made: object, schema: Schema) -> Rows:
    return Rows.read(made, schema, argument="what the generator returned")


# ---- the rows that it fits


@dataclass(frozen=True, eq=False, repr=False)
class RowsWithRecord:
    """Rows that everybody shares, and one record that is there or not.

    Attributes:
        rest: All other rows.
        record: The one in question, a single row; None if nobody stands there.
        counted: Counts of the rest that were asked for before, shared by all that have the same rest.
    """

    rest: Rows
    record: Rows | None
    counted: dict[tuple[str, ...], NDArray[np.int64]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"RowsWithRecord({len(self.rest):,} rows and {'one' if self.record is not None else 'no'} record)"

    def frame(self) -> pl.DataFrame:
        """Return all rows as a frame, the record last."""
        import polars as pl

        rows = [self.rest] if self.record is None else [self.rest, self.record]
        return pl.concat([_decode(part) for part in rows])

    def table(self, claim: Guarantee) -> PrivateTable:
        """Return all rows as a table whose counts are those of the rest, with the record's cells moved.

        Where the claim is about people, every row is a person of their own: each of them is protected at least as well
        as one with more rows.

        Args:
            claim: What the table's account is stated for.
        """
        return _MovedTable(self, claim)


class _MovedTable(PrivateTable):
    """A table that counts its shared rows once."""

    __slots__ = ("_rows",)

    def __init__(self, rows: RowsWithRecord, claim: Guarantee):
        super().__init__(_decode(rows.rest), rows.rest.schema)
        self._account = MemoryAccount(
            relation=claim.relation, unit=claim.unit, max_rows_per_person=claim.max_rows_per_person
        )
        self._rows = rows

    def record_count(self) -> int:
        """Return how many rows there are, with the record."""
        return len(self._rows.rest) + (self._rows.record is not None)

    def counts(self, columns: Any) -> Any:
        """Return counts as :meth:`PrivateTable.counts` does."""
        single = isinstance(columns, str) or all(isinstance(name, str) for name in columns)
        asked = [([columns] if isinstance(columns, str) else list(columns))] if single else [list(c) for c in columns]
        new = [names for names in asked if tuple(names) not in self._rows.counted]
        for names, counts in zip(new, super().counts(new), strict=True) if new else ():
            self._rows.counted[tuple(names)] = counts
        found = [self._with_record(names) for names in asked]
        return found[0] if single else found

    def _with_record(self, names: Sequence[str]) -> NDArray[np.int64]:
        counts = self._rows.counted[tuple(names)]
        record = self._rows.record
        if record is None:
            return counts
        moved = counts.copy()
        moved[tuple(record.codes[0, self.columns.index(name)] for name in names)] += 1
        return moved

    def batches(
        self, size: int = 65_536, columns: Sequence[str] | None = None, *, encode: Any = "codes"
    ) -> Iterator[NDArray[Any]]:
        """Return batches as :meth:`PrivateTable.batches` does, the record in the last one."""
        alone = self._rows.record is None
        read = super().batches if alone else PrivateTable(self._rows.frame(), self.schema).batches
        return read(size, columns, encode=encode)


def _decode(rows: Rows) -> pl.DataFrame:
    """Return rows as a frame: levels, and the values of numeric columns."""
    import polars as pl

    columns: dict[str, pl.Series] = {}
    for place, column in enumerate(rows.schema.fields):
        if isinstance(column, Numeric):
            lower, upper = column.bounds
            values = lower + (rows.numbers[:, place] + 1) / 2 * (upper - lower)
            series = pl.Series(column.name, values).fill_nan(None)
            series = series.round().cast(pl.Int64) if column.integer else series
            columns[column.name] = series if column.date is None else series.cast(pl.Date)
        else:
            levels = [*column.levels, *([None] if column.missing else [])]
            columns[column.name] = pl.Series(column.name, levels).gather(rows.codes[:, place])
    return pl.DataFrame(columns)
