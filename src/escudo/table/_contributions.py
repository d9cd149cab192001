r"""At most k rows of each person: which ones, and how they are found without sorting the table or holding it in memory.

**What one person can change**: a bounded sample of each person's rows is kept. A person's rows are put in order of
their encoded content, :math:`i = 0, \dots, n - 1`. If :math:`n > k`, where :math:`k` is ``max_rows_per_person``, a
systematic sample is kept,

.. math:: \{\, i : (i k + u) \bmod n \ge n - k \,\}, \qquad u = \mathrm{hash}(\text{person, public seed}) \bmod n.

*It has exactly k rows*: :math:`i` is kept if and only if :math:`\lfloor ((i + 1) k + u) / n \rfloor` exceeds
:math:`\lfloor (i k + u) / n \rfloor`, and over all :math:`i` these steps add up to :math:`k`. *Each row is equally
likely*: for every :math:`i` exactly :math:`k` of the :math:`n` values of :math:`u` keep it.

*It depends on the person's own rows only.* Order, :math:`n` and :math:`u` are functions of the person's key and the
multiset of their encoded rows; rows that tie in the order are equal in all that is counted, so it does not matter
which of them is taken. Hence another person's rows never change what is kept of this one's, and one person
moves the counts of kept rows by their own at most :math:`k` rows: see
:func:`~escudo.table._counts.count_sensitivity`. It rests on keys that are one-to-one with people, which
:mod:`escudo.table._persons` proves, and that are there before rows are parted.

Rows without a person id are left out. Nobody can say whose they are, so counting them, even as one more person, could
let somebody contribute more than :math:`k` rows. The same goes for ids that the table itself has merged with others.

**How they are found.** A row travels *packed*: the person's key, the hash of it, and the row's cells in a few words
that sort as the contents do (:class:`Packing`). Packed rows are held in memory up to ``ESCUDO_MEMORY_MB`` (100 unless
stated); if there are more, they go to buckets on local disk by the hash, and then the rule is applied bucket by bucket:
all rows of a person are in one. The files have no name from the moment they are opened, so nobody else can open them
and they are gone when the process is, however it ends. Neither the setting nor the disk can change which rows are kept.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from escudo.errors import EngineError, InputError
from escudo.table._columns import Categorical, Column, Numeric
from escudo.table._frames import known_reason
from escudo.table._persons import PERSON, PERSON_NUMBER

if TYPE_CHECKING:
    import polars as pl

MEMORY_SETTING = "ESCUDO_MEMORY_MB"
_MEMORY_MB = 100
_WORD = 2**63  # words are int64
_BUCKETS = 64
_AT_ONCE = 1_000_000  # rows that are parted into buckets together
_DEEPEST = 5  # 64^5 buckets are more than there are hashes


def memory_for_rows() -> int:
    """Return how many bytes of packed rows may be held in memory.

    Raises:
        InputError: If the setting is no whole number of megabytes.
    """
    text = os.environ.get(MEMORY_SETTING, str(_MEMORY_MB))
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InputError(f"the setting {MEMORY_SETTING} must be a whole number of megabytes, such as {_MEMORY_MB}.")
    return int(text) * 10**6


@dataclass(frozen=True, slots=True)
class Packing:
    """How the cells of a row go into few whole numbers that sort as its contents do, and come back.

    Columns of numbers come first, by value; then columns of text, by their characters. A missing value is above all
    numbers and below all texts.

    Attributes:
        words: For each word the names of its columns, the most significant first.
        ranks: For each column the place of each of its cells in the order.
    """

    words: tuple[tuple[str, ...], ...]
    ranks: dict[str, NDArray[np.int64]]

    @staticmethod
    def of(columns: Sequence[Column]) -> Packing:
        """Return the packing of rows of these columns."""
        numbers = [column for column in columns if column.kind != "string"]
        texts = [column for column in columns if column.kind == "string"]
        return Packing(_words([*numbers, *texts]), {column.name: _ranks(column) for column in columns})

    @staticmethod
    def of_cells(columns: Sequence[Column]) -> Packing:
        """Return the packing that keeps the order of the columns, and of the cells of each."""
        return Packing(_words(columns), {column.name: np.arange(column.size) for column in columns})

    @property
    def names(self) -> list[str]:
        """What the words are called in a frame."""
        return [f"w{position}" for position in range(len(self.words))]

    def packed(self, cells: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.int64]]:
        """Return the words of rows whose cells are given."""
        found = {}
        for place, names in zip(self.names, self.words, strict=True):
            word = np.zeros(len(cells[names[0]]), dtype=np.int64)
            for name in names:
                word *= len(self.ranks[name])
                word += self.ranks[name].take(cells[name])
            found[place] = word
        return found

    def cells(self, frame: pl.DataFrame, wanted: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return the cells of some columns of packed rows."""
        found: dict[str, NDArray[Any]] = {}
        for place, names in zip(self.names, self.words, strict=True):
            if not set(names) & set(wanted):
                continue
            word = frame[place].to_numpy()
            for name in reversed(names):
                word, rank = np.divmod(word, len(self.ranks[name]))
                if name in wanted:
                    cell = np.argsort(self.ranks[name])
                    found[name] = cell.astype(np.min_scalar_type(len(cell) - 1)).take(rank)
        return {name: found[name] for name in wanted}


def _words(columns: Sequence[Column]) -> tuple[tuple[str, ...], ...]:
    """Share columns out among words, as many to each as it has room for."""
    words: list[list[str]] = []
    room = 0
    for column in columns:
        if column.size > room:
            words.append([])
            room = _WORD
        words[-1].append(column.name)
        room //= column.size
    return tuple(map(tuple, words))


def _ranks(column: Column) -> NDArray[np.int64]:
    """Return the place of each cell in the order of contents."""
    if isinstance(column, Numeric):
        return np.arange(column.size)
    assert isinstance(column, Categorical)
    text = column.kind == "string"
    levels = [str(level).encode() if text else int(level) for level in column._compared.levels]
    order = sorted(range(len(levels)), key=levels.__getitem__)
    if column.missing:
        order = [len(levels), *order] if text else [*order, len(levels)]
    return np.argsort(order)


def kept(rows: pl.DataFrame, order: Sequence[str], most: int) -> NDArray[np.bool_]:
    """Return which rows are kept, of a frame that holds all rows of each person in it.

    Args:
        rows: Packed rows, each of some person.
        order: The columns that put a person's rows in order.
        most: The most rows of a person that are kept.
    """
    import polars as pl

    if not rows.height:
        return np.zeros(0, dtype=bool)
    k = min(most, 2**30)  # products stay within 64 bits
    sorting = rows.select(pl.arg_sort_by([PERSON, *order])).to_series().to_numpy()
    whose = rows[PERSON].gather(sorting).rle_id().to_numpy()
    total = np.bincount(whose)
    first = np.concatenate([[0], np.cumsum(total)[:-1]])
    n = total[whose]
    place = np.arange(rows.height) - first[whose]
    number = rows[PERSON_NUMBER].to_numpy()[sorting]
    mask = np.empty(rows.height, dtype=bool)
    mask[sorting] = (n <= k) | ((place * k + number % n) % n >= n - k)
    return mask


def bounded(frames: Iterable[pl.DataFrame], order: Sequence[str], most: int) -> Iterator[pl.DataFrame]:
    """Yield the rows that are kept, of all packed rows: in their order if they fit into memory."""
    import polars as pl

    with PersonParts(map(_named, frames)) as parts:
        for rows in parts:
            yield rows.filter(pl.Series(kept(rows, order, most)))


def number_of_people(frames: Iterable[pl.DataFrame]) -> int:
    """Return how many different people packed rows are of."""
    with PersonParts(map(_named, frames)) as parts:
        return sum(rows.unique().height for rows in parts)


def _named(rows: pl.DataFrame) -> pl.DataFrame:
    """Leave out rows of nobody."""
    return rows.filter(rows[PERSON].is_not_null()) if rows[PERSON].null_count() else rows


@contextmanager
def _on_disk() -> Iterator[None]:
    """Say so where the disk is full."""
    why = None
    try:
        yield
    except OSError as error:
        if (why := known_reason(error, "reading")) is None:
            raise
    if why:
        raise EngineError(why)


def held(batches: Iterable[NDArray[Any]], none: NDArray[Any]) -> NDArray[Any]:
    """Return batches of rows as one array: in memory, or beyond the setting mapped from a file that has no name.

    Args:
        batches: The rows, some at a time.
        none: No rows, in the type and with the columns that all of them have.
    """
    waiting, room = [none], memory_for_rows()
    with _on_disk(), tempfile.TemporaryFile() as file:
        for batch in batches:
            waiting.append(np.ascontiguousarray(batch, dtype=none.dtype))
            if file.tell() or sum(rows.nbytes for rows in waiting) > room:
                file.writelines(rows.data for rows in waiting if rows.size)
                waiting.clear()
        if not file.tell():
            return np.concatenate(waiting)
        file.flush()
        # The file is there as long as the array is.
        return np.asarray(np.memmap(file, none.dtype, "r")).reshape(-1, none.shape[1])


class PersonParts:
    """Packed rows in parts that hold all rows of each person in them, to be gone through as often as wanted.

    Args:
        frames: Packed rows, in pieces, each with a number: the hash of whose it is, and anything where it is nobody's.
        depth: How often these rows were parted before.

    Attributes:
        whole: All of them, if they fit into memory.
    """

    def __init__(self, frames: Iterable[pl.DataFrame], depth: int = 0):
        import polars as pl

        self.whole: pl.DataFrame | None = None
        self._depth = depth
        self._buckets: _Buckets | None = None
        most, held = memory_for_rows(), 0
        waiting: list[pl.DataFrame] = []
        try:
            for rows in frames:
                waiting.append(rows)
                held += int(rows.estimated_size())
                if self._buckets is None and held > most and depth < _DEEPEST:
                    self._buckets = _Buckets(depth)
                if self._buckets is not None and sum(rows.height for rows in waiting) >= _AT_ONCE:
                    self._buckets.add_all(waiting)
            if self._buckets is not None:
                self._buckets.add_all(waiting)
            elif waiting:
                self.whole = pl.concat(waiting)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[pl.DataFrame]:
        if self.whole is not None:
            yield self.whole
        for bucket in self._buckets.parts() if self._buckets is not None else ():
            with PersonParts(bucket, self._depth + 1) as parts:
                yield from parts

    def close(self) -> None:
        """Forget the rows."""
        self.whole = None
        if self._buckets is not None:
            self._buckets.close()

    def __enter__(self) -> PersonParts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Buckets:
    """Packed rows on local disk, parted by digits of the hash of whose they are."""

    def __init__(self, depth: int):
        self._divisor = _BUCKETS**depth
        self._files: list[IO[bytes] | None] = [None] * _BUCKETS
        self._lengths: list[list[int]] = [[] for _ in range(_BUCKETS)]

    def add_all(self, waiting: list[pl.DataFrame]) -> None:
        """Write frames to their buckets, and forget them: some rows at a time, so that no copy of all is made."""
        import polars as pl

        while waiting:
            taken = [waiting.pop()]
            while waiting and sum(rows.height for rows in taken) < _AT_ONCE:
                taken.append(waiting.pop())
            self.add(pl.concat(taken))

    def add(self, rows: pl.DataFrame) -> None:
        """Write rows to their buckets."""
        homes = (rows[PERSON_NUMBER].to_numpy() // self._divisor % _BUCKETS).astype(np.uint8)
        order = np.argsort(homes, kind="stable")
        ends = np.cumsum(np.bincount(homes, minlength=_BUCKETS))
        sorted_rows = rows[order]
        for bucket, end in enumerate(ends.tolist()):
            start = int(ends[bucket - 1]) if bucket else 0
            if end > start:
                self._write(bucket, sorted_rows[start:end])

    def _write(self, bucket: int, rows: pl.DataFrame) -> None:
        written = io.BytesIO()
        rows.write_ipc_stream(written, compression="uncompressed")
        with _on_disk():
            file = self._files[bucket]
            if file is None:
                file = self._files[bucket] = tempfile.TemporaryFile()  # noqa: SIM115 # closed by close()
            file.write(written.getbuffer())
            file.flush()
        self._lengths[bucket].append(written.tell())

    def parts(self) -> Iterator[Iterator[pl.DataFrame]]:
        """Yield the rows of one bucket after the other."""
        for file, lengths in zip(self._files, self._lengths, strict=True):
            if file is not None:
                file.seek(0)
                yield _read(file, lengths)

    def close(self) -> None:
        """Close the files, which deletes them."""
        for file in self._files:
            if file is not None:
                with suppress(OSError):  # what there was no room for is not wanted any more
                    file.close()


def _read(file: IO[bytes], lengths: Sequence[int]) -> Iterator[pl.DataFrame]:
    import polars as pl

    for length in lengths:
        yield pl.read_ipc_stream(io.BytesIO(file.read(length)))
