"""Files that appear whole or not at all, and CSV that spreadsheets take for what it is.

**Whole or not at all.** What is written goes into a hidden draft beside its place, and is renamed. An error, Ctrl-C or
a signal to end leaves the place as it was. An earlier *folder* is exchanged with the new one in one step of the file
system (``renameat2`` on Linux, ``renameatx_np`` on macOS): at every instant the name holds the whole old folder or the
whole new one, also if the process is killed. Where the system cannot exchange, the old one is moved aside first; a
process that is killed between the two steps leaves nothing under the name, and :func:`repair_folder` moves it back.
What a kill may leave besides is a hidden draft that nothing reads.

**CSV.** A spreadsheet runs a cell such as ``=cmd|'/c calc'!A1`` as a formula, also one that starts with ``+``, ``-``,
``@``, a tab or a carriage return. Levels and column names come from somebody else, so a *text* cell that starts so is
written with an apostrophe in front, which spreadsheets take for "this is text". A text that starts with an apostrophe
itself gets one more, so that the way back is exact: take one leading apostrophe off every text cell that has one
(:func:`unguarded`). Numbers stay numbers, also a text that is nothing but one, such as "-1", which means itself.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

_ASIDE = ".old"


# ---- whole or not at all


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, which appears under its name, or replaces what has it, once it is complete."""
    with file_draft(path) as draft:
        draft.write_bytes(content)
        draft.replace(path)


@contextmanager
def file_draft(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Give an empty hidden file beside a place, to be renamed to it; it is removed if it was not.

    Args:
        path: The place.
        private: Whether only its owner may read it.
    """
    draft = _draft(path)
    draft.touch(mode=0o600 if private else 0o666, exist_ok=False)
    try:
        yield draft
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def folder_draft(path: Path) -> Iterator[Path]:
    """Give an empty hidden folder beside a place, for :func:`put_folder`; whatever is left of it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = _draft(path)
    draft.mkdir()
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def put_folder(draft: Path, path: Path) -> None:
    """Give a draft its name; an earlier folder gets the draft's, or is moved aside, and is removed."""
    if not path.exists():
        draft.rename(path)
    elif not _exchange(draft, path):
        old = draft.with_name(draft.name + _ASIDE)
        try:
            path.rename(old)
            draft.rename(path)
        finally:
            if old.exists() and not path.exists():
                old.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    sync(path.parent)


def repair_folder(path: Path) -> None:
    """Move an earlier folder back that a process moved aside before it was killed."""
    if os.path.exists(path):
        return
    aside = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{8}\.part" + re.escape(_ASIDE))
    with suppress(OSError, ValueError):  # a place that cannot be read is refused where it is written
        for old in [found for found in path.parent.iterdir() if aside.fullmatch(found.name)][:1]:
            old.rename(path)


def sync(*paths: Path) -> None:
    """Wait until files, and folders with the names in them, are on the disk."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


def _exchange(first: Path, second: Path) -> bool:
    """Exchange the names of two folders in one step; return False, and change nothing, where that cannot be done."""
    import ctypes

    names = {"linux": "renameat2", "darwin": "renameatx_np"}
    try:
        rename = getattr(ctypes.CDLL(None, use_errno=True), names[sys.platform])
    except (KeyError, OSError, AttributeError):
        return False
    here, exchange = {"linux": -100, "darwin": -2}[sys.platform], 2  # AT_FDCWD; RENAME_EXCHANGE and RENAME_SWAP
    return bool(rename(here, os.fsencode(first), here, os.fsencode(second), exchange) == 0)


# ---- CSV

_ACTIVE = r"^[=+\-@\t\r']"
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def guarded(text: str) -> str:
    """Return a text as it is written into a cell.

    >>> guarded("=1+1"), guarded("-1"), guarded("- none -"), guarded("'tis"), guarded("yes")
    ("'=1+1", '-1', "'- none -", "''tis", 'yes')
    """
    return f"'{text}" if re.match(_ACTIVE, text) and not re.match(_NUMBER, text) else text


def unguarded(text: str) -> str:
    """Return the text that was written into a cell.

    >>> [unguarded(guarded(text)) for text in ("=1+1", "-1", "''", "yes")]
    ['=1+1', '-1', "''", 'yes']
    """
    return text.removeprefix("'")


_ROWS_OF_A_PART = 2**20


def mark_of(guarantee: Any) -> str:  # Any: a Guarantee, which is above this file
    """Return what is said wherever rows go for whose making nothing was promised; nothing for all others."""
    return f"NOT FOR RELEASE: {guarantee}" if guarantee.none else ""


def metadata_of(mark: str) -> dict[str, Any]:
    """Return how a Parquet file is told to carry a mark, under the key ``escudo`` of its metadata."""
    return {"metadata": {"escudo": mark}} if mark else {}


def write_rows(blocks: Iterator[pl.DataFrame], path: Path, *, mark: str = "") -> None:
    """Write rows that come in blocks, never holding all of them: the file appears whole or not at all.

    Args:
        blocks: The rows, at least one block.
        path: A ``.parquet`` or ``.csv`` file; else a folder, which gets one Parquet file for each million rows.
        mark: What every Parquet file says about its rows (:func:`metadata_of`). A CSV file has no place for it, so a
            text file beside it says it.
    """
    import polars as pl

    told = metadata_of(mark)

    if path.suffix not in (".csv", ".parquet"):
        with folder_draft(path) as draft:
            for part, frame in enumerate(_parts(blocks)):
                frame.write_parquet(draft / f"part-{part:05}.parquet", **told)
            put_folder(draft, path)
        return
    with file_draft(path) as draft:
        if path.suffix == ".csv":
            if mark:
                path.with_name(f"{path.name}.NOT-FOR-RELEASE.txt").write_text(f"{mark}\n", encoding="utf-8")
            with draft.open("wb") as file:
                for place, frame in enumerate(blocks):
                    write_csv(frame, file, header=place == 0)
        else:
            first, more = next(blocks), next(blocks, None)
            if more is None:
                first.write_parquet(draft, **told)
            else:
                rest = chain([first, more], blocks)
                streamed = pl.io.plugins.register_io_source(lambda *_: rest, schema=first.schema)
                streamed.sink_parquet(draft, **told)
        draft.rename(path)


def _parts(blocks: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    import polars as pl

    waiting: list[pl.DataFrame] = []
    for frame in blocks:
        waiting.append(frame)
        if sum(part.height for part in waiting) >= _ROWS_OF_A_PART:
            yield pl.concat(waiting)
            waiting = []
    if waiting:
        yield pl.concat(waiting)


def write_csv(frame: pl.DataFrame, file: Path | IO[bytes], *, header: bool = True) -> None:
    """Write a frame as CSV; texts and column names that a spreadsheet would run are guarded."""
    import polars as pl

    texts = [name for name, kind in frame.schema.items() if kind in (pl.String, pl.Categorical, pl.Enum)]
    cells = [pl.col(name).cast(pl.String) for name in texts]
    active = [cell.str.contains(_ACTIVE) & ~cell.str.contains(_NUMBER) for cell in cells]
    safe = frame.with_columns(
        pl.when(danger).then(pl.lit("'") + cell).otherwise(cell).alias(name)
        for name, cell, danger in zip(texts, cells, active, strict=True)
    )
    safe.rename({name: guarded(name) for name in frame.columns}).write_csv(file, include_header=header)


def listed(rows: Iterable[Sequence[Any]], columns: Sequence[str]) -> Any:  # Any: a pandas frame
    """Return rows as a pandas frame with these columns.

    Raises:
        InputError: If pandas is not installed.
    """
    import polars as pl

    return to_pandas(pl.DataFrame(list(rows), schema=list(columns), orient="row", infer_schema_length=None))


def to_pandas(frame: Any) -> Any:  # Any: a polars frame, and the pandas one with the same rows
    """Return a polars frame as a pandas one.

    Raises:
        InputError: If pandas is not installed.
    """
    from escudo.errors import InputError

    try:
        return frame.to_pandas()
    except ModuleNotFoundError:
        raise InputError("a pandas frame needs: pip install 'escudo[pandas]'.") from None
