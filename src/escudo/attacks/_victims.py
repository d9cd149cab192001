"""What is attacked: anything that fits rows and then draws synthetic ones, called in one way."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import polars as pl

from escudo.attacks._moved import RowsWithRecord
from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.privacy import Guarantee
from escudo.synthesis import prepare
from escudo.table import Schema
from escudo.utility import Rows

__all__ = ["EscudoVictim", "Victim", "victim_of"]


class Victim(Protocol):
    """A generator under attack: fits once, draws several synthetic sets."""

    @property
    def claim(self) -> Guarantee | None:
        """What it promises to the people in the rows; None if it promises nothing."""
        ...

    def synthetic(self, rows: RowsWithRecord, *, sets: int, size: int, seed: int) -> list[Rows]:
        """Fit the rows and return ``sets`` synthetic sets of ``size`` rows."""
        ...


class EscudoVictim:
    """One of escudo's generators, prepared once; only fits and samples are repeated.

    Args:
        schema: The public description of the rows.
        graph: The causal graph.
        generator: Its name.
        epsilon: What a fit costs.
        delta: At this probability aside.
        relation: The neighbouring relation of the promise.
        options: Of the generator.
    """

    def __init__(
        self,
        schema: Schema,
        graph: CausalGraph | None,
        *,
        generator: str,
        epsilon: float,
        delta: float,
        relation: str,
        **options: Any,
    ):
        self._prepared = prepare(
            schema, graph, epsilon=epsilon, delta=delta, generator=generator, relation=relation, **options
        )

        self.claim = self._prepared.plan.guarantee()

    def synthetic(self, rows: RowsWithRecord, *, sets: int, size: int, seed: int) -> list[Rows]:
        """Fit the rows and return ``sets`` synthetic sets of ``size`` rows."""
        table = rows.table(self.claim.relation)
        model = self._prepared.fit(table, account=table.account, seed=np.random.default_rng(seed), guarantee=self.claim)
        codes = getattr(model, "codes", None)
        if codes is not None and not np.isfinite(rows.rest.numbers).any():
            return [_of_codes(rows.rest.schema, codes(size, seed=seed + 1 + place)) for place in range(sets)]
        return [Rows.read(model.sample(size, seed=seed + 1 + place), rows.rest.schema) for place in range(sets)]


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


def victim_of(
    generator: object,
    schema: Schema,
    graph: CausalGraph | None = None,
    *,
    epsilon: float | None = None,
    delta: float = 1e-6,
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
        delta: For escudo's generators.
        relation: For escudo's generators.
        claim: What any other generator promises; None if nothing.
        frames: ``"polars"`` or ``"pandas"``: what other generators are given.
        options: For escudo's generators.
    """
    if isinstance(generator, str):
        if epsilon is None:
            raise InputError("epsilon says how private the attacked generator is; give one.")
        if claim is not None:
            raise InputError(
                "claim is for other generators; escudo's own promise what epsilon, delta and relation say."
            )
        return EscudoVictim(
            schema, graph, generator=generator, epsilon=epsilon, delta=delta, relation=relation, **options
        )
    if options:
        raise InputError(f"option {next(iter(options))!r} is for escudo's own generators, which are given by name.")
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
    return isinstance(made, pl.DataFrame) or type(made).__module__.partition(".")[0] in ("pandas", "pyarrow", "duckdb")


def _read(made: object, schema: Schema) -> Rows:
    return Rows.read(made, schema, argument="what the generator returned")


def _of_codes(schema: Schema, codes: Any) -> Rows:
    cells = np.asarray(codes, dtype=np.int64)
    return Rows(schema=schema, codes=cells, numbers=np.full(cells.shape, np.nan))
