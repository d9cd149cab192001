"""Queries that run in the frame's own engine: grouping, collecting and streaming, with its error messages withheld."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import narwhals as nw

from escudo.errors import EngineError, EscudoError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["collect", "groups", "shielded", "stream"]

_T = TypeVar("_T")
_QUERIES_AT_ONCE = 32  # bounds the memory of the hash tables that live at the same time
_GROUPING_COLUMNS = 60  # GROUPING() packs one bit per column into a 64-bit integer


def groups(frame: nw.LazyFrame[Any], sets: Sequence[Sequence[str]]) -> list[pl.DataFrame]:
    """Return, for each set of columns, its groups and their numbers of rows ``n``, in as few passes as the engine can.

    Args:
        frame: Lazy frame with columns named by plain identifiers.
        sets: Non-empty sets of its columns.
    """
    implementation = frame.implementation
    if implementation.is_duckdb() or implementation.is_pyspark():
        return [found for part in _parts(sets) for found in _grouping_sets(frame, part)]
    counted = [frame.group_by(*chosen).agg(nw.len().alias("n")) for chosen in sets]
    results: list[pl.DataFrame] = []
    for start in range(0, len(counted), _QUERIES_AT_ONCE):
        part = counted[start : start + _QUERIES_AT_ONCE]
        if implementation.is_polars():
            import polars as pl

            results += pl.collect_all([query.to_native() for query in part], engine="streaming")
        else:
            results += [collect(query) for query in part]
    return results


def collect(frame: nw.LazyFrame[Any]) -> pl.DataFrame:
    """Run a query and return its rows."""
    if frame.implementation.is_polars():
        return frame.to_native().collect(engine="streaming")  # type: ignore[no-any-return]
    return frame.collect("polars").to_native()  # type: ignore[no-any-return]


def stream(frame: nw.LazyFrame[Any], size: int) -> Iterator[pl.DataFrame]:
    """Yield a query's rows in pieces, without holding all of them; pieces may be smaller or larger than ``size``."""
    import polars as pl

    native: Any = frame.to_native()
    implementation = frame.implementation
    if implementation.is_polars():
        yield from native.collect_batches(chunk_size=size, maintain_order=True, engine="streaming")
    elif implementation.is_duckdb():
        # DuckDB allows one open result per connection: close it even if the caller stops half-way.
        with getattr(native, "to_arrow_reader", native.fetch_arrow_reader)(size) as reader:
            yield from map(_arrow_to_polars, reader)
    elif implementation.is_ibis():
        yield from map(_arrow_to_polars, native.to_pyarrow_batches(chunk_size=size))
    elif implementation.is_pyspark():
        rows = map(tuple, native.toLocalIterator(prefetchPartitions=True))
        while piece := list(islice(rows, size)):
            yield pl.DataFrame(piece, schema=native.columns, orient="row", infer_schema_length=None)
    else:
        yield collect(frame)


def shielded(engine: str, doing: str, work: Callable[[], _T]) -> _T:
    """Do ``work``, replacing any error of the engine, whose message may show values, by one that names its kind only.

    Raises:
        EngineError: If the engine failed.
    """
    try:
        return work()
    except EscudoError:
        raise
    except Exception as error:
        kind = type(error).__name__
    # Raised outside the handler: no chain of causes leads back to the engine's message.
    raise EngineError(
        f"the {engine} engine failed while {doing} ({kind}): a damaged file, a lost connection or too little memory, "
        "for instance. Its message is withheld because it may show values of the table; run a query over the schema's "
        "columns in the engine itself to see it."
    )


def _arrow_to_polars(data: Any) -> pl.DataFrame:
    import polars as pl

    frame = pl.from_arrow(data)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _parts(sets: Sequence[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    """Split the sets so that each part is small enough for one query."""
    part: list[Sequence[str]] = []
    for chosen in sets:
        if part and (len(part) == _QUERIES_AT_ONCE or len({*chosen}.union(*part)) > _GROUPING_COLUMNS):
            yield part
            part = []
        part.append(chosen)
    if part:
        yield part


def _grouping_sets(frame: nw.LazyFrame[Any], sets: Sequence[Sequence[str]]) -> list[pl.DataFrame]:
    """Group by several sets of columns in one pass, with SQL's GROUPING SETS."""
    names = sorted({name for chosen in sets for name in chosen})
    native: Any = frame.select(*names).to_native()
    if frame.implementation.is_duckdb():
        listed = ", ".join(names)
        wanted = ", ".join(f"({', '.join(chosen)})" for chosen in sets)
        native = native.aggregate(f"{listed}, grouping({listed}) AS absent, count(*) AS n", f"GROUPING SETS ({wanted})")
    else:
        from pyspark.sql import functions

        native = native.groupingSets([[native[name] for name in chosen] for chosen in sets], *names).agg(
            functions.grouping_id(*names).alias("absent"), functions.count("*").alias("n")
        )
    found = collect(nw.from_native(native))
    # One bit per name, set where the name is not in the group; it tells these nulls from those of the data.
    absent = [sum(1 << (len(names) - 1 - i) for i, name in enumerate(names) if name not in chosen) for chosen in sets]
    import polars as pl

    return [
        found.filter(pl.col("absent") == mask).select(*chosen, "n") for mask, chosen in zip(absent, sets, strict=True)
    ]
