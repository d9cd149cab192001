"""The pairs of neighbouring datasets that a mechanism is asked about: given, made from a schema, or made anew.

**Answers that repeat.** A mechanism may keep its answers, or seed its noise by the question. Asked the same again, it
says the same: no fresh noise, no fresh evidence. Such a mechanism can be as private as it claims, although each of two
neighbours always has its own answer; one without any noise looks just the same. :class:`Repeats` tells whether a
question asked again has ever had another answer. If none has, and neighbours have different answers, nothing is bet on
repeated questions: only pairs that are new are, each once (:class:`NewQuestions`), until noise is seen. The same rule
holds for functions and services.

*What is then guaranteed.* Let a pair be new, neither of its datasets asked before, and let noise be drawn anew for
every question, when it is asked first. Given the past, the answer has the law of the mechanism on the one or the other
dataset, by a fair coin, and the claim bounds how they differ: the one condition under which
:mod:`escudo.auditing._wealth` proves that bets are fair. Its test functions may depend on the pair, which is part of
the past, so that bets on many pairs are pooled in one account. □

**What a new pair's answer is compared with.** The answer to a question that nobody asked before is told from its
neighbour's by what earlier questions show: a line through earlier answers, along one property of the dataset (its
size, a sum, a mean, a smallest or largest number, a count), predicts both, and what counts is which of the two is
nearer. Lines are fitted to the past alone.

**Where new pairs come from.** If two datasets differ in one record, they still do after the same records were added to
both: tables, lists and arrays give as many new pairs as wanted, of records that both of them hold.
"""

from __future__ import annotations

import hashlib
import math
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo._validate import one_of, positive_integer
from escudo.auditing._outputs import MAX_WIDTH, Encoded, Encoder, content_of, kind_of
from escudo.errors import InputError
from escudo.privacy import Relation, Unit
from escudo.table import Categorical, Column, Numeric, Schema

Pair = tuple[Any, Any, str]
Record = dict[str, Any]
Floats = NDArray[np.float64]

_SURPRISE = (
    1e-3  # a run of equal answers less likely than this, given how often that answer comes otherwise, is a cache
)
_REPEATED = 10  # so many equal answers to both questions of pairs, asked again, are no noise drawn at every call
GIVEN_UP = (1000, 100)  # after so many equal answers of a function, a service, without new questions, nothing is learnt
_KEPT = 50_000  # answers of a question that are remembered
_ENTRIES, _LEVELS = 8, 8  # numbers of a record, and kinds of records, of which properties are looked at
_LINES = 2  # predictions that an answer is compared with
_TRIES = 200  # to make a pair that is new
_ALONE = 8  # columns that are changed alone, and levels of each
_WHO = "\0 who"  # in a record, whose it is


# ---- pairs that are given, or made from a schema


def read_pairs(pairs: Sequence[tuple[Any, ...]]) -> list[Pair]:
    """Return pairs with labels, or raise if they are none."""
    found: list[Pair] = []
    for i, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) not in (2, 3):
            raise InputError(f"pairs must be a list of (d, d′) or (d, d′, label); number {i + 1} is not.")
        found.append((pair[0], pair[1], str(pair[2]) if len(pair) == 3 else f"pair {i + 1}"))
    if not found:
        raise InputError("pairs is empty: give at least one pair of neighbouring datasets.")
    return found


def query_pairs(length: int, *, by: float = 1.0) -> list[Pair]:
    """Return vectors of query answers that differ by at most ``by`` in every entry, in the patterns that show most.

    For mechanisms that take the answers of ``length`` queries, each of which one record can move by ``by``.

    >>> [label for _, _, label in query_pairs(3)][:3]
    ['one up', 'one down', 'all up']

    Reference:
        Z. Ding et al. (2018), "Detecting violations of differential privacy", section 5.2, for most of the patterns.
    """
    size = positive_integer("length", length)
    base = np.full(size, by)
    half = np.arange(size) < size // 2
    step = np.arange(size) == 0
    pairs: list[tuple[NDArray[np.float64], str]] = [
        (base + by * step, "one up"),
        (base - by * step, "one down"),
        (base + by, "all up"),
        (base - by, "all down"),
    ]
    if size > 1:
        pairs += [
            (np.where(half, base - by, base + by), "half down, half up"),
            (np.where(step, base + by, base - by), "one up, others down"),
            (np.where(step, base - by, base + by), "one down, others up"),
            (np.where(half, base, base + by), "half up"),
        ]
    found: list[Pair] = [(base.copy(), other, label) for other, label in pairs]
    if size > 1:
        crossed = np.where(half, by, 0.0)
        found.append((crossed, by - crossed, "crossed"))
    return found


def pairs_of(
    schema: Schema, *, relation: Relation = "replace_one", rows: Sequence[int] = (1, 5), unit: Unit | None = None
) -> list[Pair]:
    """Return neighbouring tables as polars frames: the ones in which mistakes show.

    Corners of the domain, values at, just beyond and far beyond the bounds, an outlier among ordinary records, tables
    of one record and (``add_remove``) of none, equal records, one record unlike all others, levels that nobody else
    has, missing values, the changed record first, in the middle and last; and where a person may have several rows,
    one who has as many as count, and one who has more. An audit searches them with one error over all.

    Args:
        schema: The public description of the table.
        relation: ``"replace_one"``: one record takes other values; ``"add_remove"``: one record is not there.
        rows: Sizes of the tables.
        unit: Whether a ``"row"`` differs or a ``"person"`` with all their rows; by default what the schema protects.

    Raises:
        SchemaError: If a column has no levels or bounds.

    >>> schema = Schema.from_dict({"age": {"type": "numeric", "lower": 0, "upper": 100}})
    >>> [label for _, _, label in pairs_of(schema)][:2]
    ['1 record, lowest to highest', '1 record, lowest to missing']
    """
    one_of("relation", relation, ("replace_one", "add_remove"))
    one_of("unit", unit or schema.unit, ("row", "person"))
    tables = _Tables(schema, relation)
    found: list[Pair] = []
    for size in dict.fromkeys(positive_integer("rows", n) for n in rows):
        found += tables.of_size(size)
    if relation == "add_remove":
        found.insert(0, tables.pair([], [tables.low], "no record and one"))
    if schema.person_id is not None and (unit or schema.unit) == "person":
        found += tables.of_a_person(schema.max_rows_per_person or 1)
    return found


class _Tables:
    """Makes tables of a schema out of a few telling records."""

    def __init__(self, schema: Schema, relation: Relation) -> None:
        self._schema, self._relation = schema, relation
        self.low, self.high, self._middle = (self._record(which) for which in ("lowest", "highest", "middle"))
        self._changed = [("highest", self.high), ("missing", self._record("missing"))]
        if any(isinstance(column, Numeric) for column in schema.fields):
            self._changed += [
                ("beyond the bounds", self._record("beyond")),
                ("the middle", self._middle),
                ("just beyond the bounds", self._record("just beyond")),
            ]
        if len(schema.fields) > 1:
            self._changed += [
                (f"highest {c.name} only", {**self.low, c.name: self.high[c.name]}) for c in schema.fields[:_ALONE]
            ]
            self._changed += [
                (f"missing {c.name} only", {**self.low, c.name: _value(c, "missing")}) for c in schema.fields[:_ALONE]
            ]
        for column in schema.fields:
            if isinstance(column, Categorical):
                between = column.levels[1:-1][:_ALONE]
                self._changed += [(f"{column.name} {level!r}", {**self.low, column.name: level}) for level in between]

    def of_size(self, size: int) -> list[Pair]:
        """Return pairs of tables of one size."""
        noun, before = "record" if size == 1 else "records", self._relation == "replace_one"
        others = _people([self.low] * (size - 1))
        found = []
        for words, record in self._changed:
            for place in dict.fromkeys((0, size // 2, size - 1)) if words == "highest" else (0,):
                where = "" if size == 1 or words != "highest" else f", number {place + 1}"
                first, second = ([*others[:place], one, *others[place:]] for one in (self.low, record))
                if before:
                    found.append(self.pair(first, second, f"{size} {noun}, lowest to {words}{where}"))
                else:
                    label = f"{size - 1} and {size} records, one with {words} more{where}"
                    found.append(self.pair(others, second, label))
        if size == 1:
            return found
        ordinary, equal = _people([self._middle] * (size - 1)), _people([self.high] * (size - 1))
        odd = f"{size} {noun}, the odd one joins" if before else f"{size - 1} and {size} equal records"
        found.append(self.pair([self.low, *equal] if before else equal, [self.high, *equal], odd))
        out = f"{size} {noun}, one an outlier" if before else f"{size - 1} ordinary records and an outlier"
        outlier = [self._record("beyond"), *ordinary]
        found.append(self.pair([self._middle, *ordinary] if before else ordinary, outlier, out))
        return found

    def of_a_person(self, most: int) -> list[Pair]:
        """Return pairs in which all rows of one person change, or come: as many as count, and more than that."""
        found, others = [], _people([self.low] * 3)
        for count in dict.fromkeys((most, 2 * most + 1)):
            before = [self.low] * count if self._relation == "replace_one" else []
            label = f"one person with {count} rows {'changed' if before else 'more'}"
            found.append(self.pair([*others, *before], [*others, *[self.high] * count], label))
        return found

    def pair(self, first: list[Record], second: list[Record], label: str) -> Pair:
        """Return two tables; records that name nobody are those of the person who differs."""
        return self._frame(first), self._frame(second), label

    def _frame(self, records: list[Record]) -> Any:
        import polars as pl

        kinds = {column.name: _kind(column) for column in self._schema.fields}
        values = {name: [record[name] for record in records] for name in self._schema.names}
        if self._schema.person_id is not None:
            kinds[self._schema.person_id] = pl.String
            values[self._schema.person_id] = [record.get(_WHO, "the one who differs") for record in records]
        return pl.DataFrame(values, schema=kinds, strict=False)

    def _record(self, which: str) -> Record:
        return {column.name: _value(column, which) for column in self._schema.fields}


def _people(records: Sequence[Record]) -> list[Record]:
    """Return records of as many people."""
    return [{**record, _WHO: f"person {place + 1}"} for place, record in enumerate(records)]


def _value(column: Column, which: str) -> Any:
    if isinstance(column, Categorical):
        assert column.size  # raises where levels are still to be learnt
        levels = column.levels
        return {"lowest": levels[0], "missing": None, "middle": levels[len(levels) // 2]}.get(which, levels[-1])
    lower, upper = column.boundaries[0], column.boundaries[-1]
    if which == "missing":
        return None if column.integer else float("nan")
    number = {
        "lowest": lower,
        "highest": upper,
        "middle": (lower + upper) / 2,
        "beyond": upper + 1000 * (upper - lower),
        "just beyond": upper + (1 if column.integer else (upper - lower) / 1000),
    }[which]
    return round(number) if column.integer else float(number)


def _kind(column: Column) -> Any:
    import polars as pl

    if isinstance(column, Numeric):
        return pl.Int64 if column.integer else pl.Float64
    return {"string": pl.String, "integer": pl.Int64, "boolean": pl.Boolean}[column.kind]


# ---- answers that repeat


@dataclass(slots=True)
class _Answers:
    """What was answered to one question so far."""

    counts: Counter[int] = field(default_factory=Counter)
    last: int = 0
    run: int = 0

    def add(self, answer: int) -> None:
        self.run = self.run + 1 if answer == self.last and self.counts else 1
        self.last = answer
        if answer in self.counts or len(self.counts) < _KEPT:
            self.counts[answer] += 1

    @property
    def surprising(self) -> bool:
        """Whether answers came and went, and the latest run of equal ones is too long to be chance.

        Let k of n earlier answers be like these. If answers are independent, and nothing else is known of how likely
        this one is (a Beta prior of 1/2, 1/2), the next is like it with probability (k + 1/2) / (n + 1), and so on. A
        run is surprising if it is less likely than one in a thousand, for each answer with which it could have begun.
        """
        total = self.counts.total()
        like, others = self.counts[self.last] - self.run, total - self.counts[self.last]
        if not others or self.run < 3:
            return False
        steps = np.arange(1, self.run)
        chance = float(np.log((like + steps + 0.5) / (like + others + steps + 1)).sum())
        return chance < math.log(_SURPRISE / total)


class Repeats:
    """Whether a mechanism that is asked the same again draws anew.

    Args:
        pairs: All pairs that may be asked.

    Attributes:
        varied: Whether some question had two different answers.
        caching: Whether answers that varied began to repeat themselves.
        again: How often a question was asked again and had its only answer.
    """

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._questions = [(key_of(first), key_of(second)) for first, second, _ in pairs]
        self._answers: dict[bytes, _Answers] = {}
        self.varied = self.caching = False
        self.again = 0

    @property
    def asked(self) -> frozenset[bytes]:
        """The questions that were asked."""
        return frozenset(self._answers)

    def note(self, pair: int, labels: Iterable[bool], answers: Iterable[int]) -> None:
        """Take note of what runs of a pair answered."""
        for label, answer in zip(labels, answers, strict=True):
            known = self._answers.setdefault(self._questions[pair][int(label)], _Answers())
            self.again += bool(known.counts) and answer == known.last
            known.add(answer)
            self.varied |= len(known.counts) > 1
            self.caching |= known.surprising

    def forbid(self, pair: int) -> bool:
        """Return whether a pair must not be bet on: answers repeat, and the two datasets' differ or are unknown."""
        if self.caching or self.varied:
            return self.caching
        known = [self._answers.get(question) for question in self._questions[pair]]
        return any(one is None for one in known) or len({one.last for one in known if one is not None}) > 1

    @property
    def settled(self) -> bool:
        """Whether it is time for new questions: both datasets of some pairs were asked often enough."""
        if self.caching or self.varied:
            return self.caching
        known = self._answers
        both = [pair for pair in self._questions if all(question in known for question in pair)]
        return sum(min(known[question].run for question in pair) - 1 for pair in both) >= _REPEATED


def key_of(dataset: Any) -> bytes:
    """Return a fingerprint of a dataset, the same for its records in any order."""
    numbers = _numbers(dataset)
    if numbers is not None:
        return hashlib.sha256(numbers[np.lexsort(numbers.T[::-1])].tobytes()).digest()
    records = _records(dataset)
    try:
        if records is None:
            return hashlib.sha256(pickle.dumps(dataset)).digest()
        return hashlib.sha256(b"".join(sorted(hashlib.sha256(pickle.dumps(r)).digest() for r in records))).digest()
    except Exception:  # what cannot be pickled is the same only as itself
        return f"object {id(dataset)}".encode()


def fingerprints(outputs: Encoded, structures: Sequence[str]) -> list[int]:
    """Return a number for each output; equal ones for equal answers, whatever time a service took for them."""
    timed = [structure.startswith("status ") and "'seconds': #" in structure for structure in structures]
    filled = ~np.isnan(outputs.values)  # a block is as wide as its widest output
    return [
        hash((code, row[there][int(timed[code]) :].tobytes()))
        for code, row, there in zip(outputs.codes.tolist(), outputs.values, filled, strict=True)
    ]


# ---- new questions


class NewQuestions:
    """Pairs that were never asked, in an order that a seed repeats, and what earlier answers say of the next.

    Args:
        pairs: The pairs given: those not asked yet come first, then ones made of them.
        asked: Questions that were asked already.
        seed: Of the audit.
    """

    def __init__(self, pairs: Sequence[Pair], asked: Iterable[bytes], seed: int) -> None:
        self._asked = set(asked)
        self._given = iter([(first, second) for first, second, _ in pairs])
        self._made = _made([(first, second) for first, second, _ in pairs], np.random.default_rng([seed, 23]))
        self._encoder = Encoder()
        self._properties: list[Floats] = []  # of the datasets that were asked,
        self._answers: list[Floats] = []  # and the numbers of the answers
        self._lines: list[tuple[int, int, float, float, float]] = []
        self._next = self._new()
        self._taken: list[tuple[Any, Any]] = []

    @property
    def left(self) -> bool:
        """Whether there is a new pair."""
        return self._next is not None

    def take(self, most: int) -> list[tuple[Any, Any]]:
        """Return up to ``most`` new pairs; fewer, or none, where there are no more."""
        self._taken = []
        while self._next is not None and len(self._taken) < most:
            self._taken.append(self._next)
            self._next = self._new()
        self._fit()
        return self._taken

    def compared(self, outputs: Encoded, asked: Sequence[tuple[tuple[Any, Any], bool]], encoder: Encoder) -> Encoded:
        """Return answers with how near each is to what the second dataset of its pair should give.

        Args:
            outputs: The answers.
            asked: The pair of each, and whether its second dataset was asked.
            encoder: Knows the structures of answers, and gets those of answers so compared.
        """
        near, codes = np.full((len(outputs), _LINES), np.nan), []
        for row, (pair, label) in enumerate(asked):
            first, second = (self._described(dataset) for dataset in pair)
            answer = outputs.values[row, :_ENTRIES]
            near[row] = self._near(answer, first, second)
            structure = encoder.structures[int(outputs.codes[row])]
            kind, content = kind_of(structure), content_of(structure)
            told = (
                "{'how near the second it is': ["
                + ", ".join("#" * _LINES)
                + "], 'the answer': "
                + (content or "''")
                + "}"
            )
            codes.append(encoder.code_of(told if content == structure else f"{kind}, {told}"))
            self.learn(second if label else first, answer)
        values = np.column_stack([near, outputs.values])[:, :MAX_WIDTH]
        return Encoded(values, np.array(codes, dtype=np.int32))

    def recall(self, outputs: Encoded, asked: Sequence[tuple[tuple[Any, Any], bool]]) -> None:
        """Learn from answers that were compared before, read from a log."""
        for values, (pair, label) in zip(outputs.values, asked, strict=True):
            self.learn(self._described(pair[int(label)]), values[_LINES : _LINES + _ENTRIES])

    def learn(self, properties: Floats, answer: Floats) -> None:
        """Remember what a dataset with such properties was answered."""
        self._properties.append(properties)
        self._answers.append(np.pad(answer, (0, _ENTRIES - answer.size), constant_values=np.nan))

    def _new(self) -> tuple[Any, Any] | None:
        """Return a pair of which neither dataset was asked before; None if none is found."""
        for source, tries in ((self._given, 10**9), (self._made, _TRIES)):
            for _, pair in zip(range(tries), source, strict=False):
                keys = {key_of(pair[0]), key_of(pair[1])}
                if len(keys) == 2 and not keys & self._asked:
                    self._asked |= keys
                    return pair
        return None

    def _described(self, dataset: Any) -> Floats:
        """Return properties of a dataset: its size, and of its records' numbers and kinds."""
        found = np.full(1 + 5 * _ENTRIES + _LEVELS, np.nan)
        known = self._encoded(dataset)
        found[0] = 0 if known is None else len(known)
        if known is None:
            return found
        for place in range(min(known.values.shape[1], _ENTRIES)):
            numbers = known.values[:, place]
            numbers = numbers[np.isfinite(numbers)]
            if numbers.size:
                facts = numbers.sum(), (numbers**2).sum(), numbers.min(), numbers.max(), numbers.mean()
                found[1 + 5 * place : 6 + 5 * place] = facts
        for level in range(_LEVELS):
            found[1 + 5 * _ENTRIES + level] = np.count_nonzero(known.codes == level)
        return found

    def _encoded(self, dataset: Any) -> Encoded | None:
        """Return the records of a dataset as numbers and kinds; None if it has none."""
        numbers = _numbers(dataset)
        if numbers is not None:
            return Encoded(numbers.astype(np.float64), np.zeros(len(numbers), dtype=np.int32)) if len(numbers) else None
        records = _records(dataset)
        return None if records == [] else self._encoder.encode([dataset] if records is None else records)

    def _fit(self) -> None:
        """Find the properties that answers follow most closely, along a straight line."""
        if len(self._answers) < 4:
            return
        properties, answers = np.array(self._properties), np.array(self._answers)
        found = []
        for entry in range(_ENTRIES):
            for fact in range(properties.shape[1]):
                x, y = properties[:, fact], answers[:, entry]
                there = np.isfinite(x) & np.isfinite(y)
                x, y = x[there], y[there]
                if there.sum() < 4 or np.ptp(x) == 0 or np.ptp(y) == 0:
                    continue
                across = x - x.mean()
                slope = float(across @ (y - y.mean()) / (across @ across))
                start = float(y.mean() - slope * x.mean())
                left = float(np.sqrt(((y - start - slope * x) ** 2).sum() / max(x.size - 2, 1)))
                found.append((left / float(y.std()), entry, fact, slope, start, left))
        found.sort(key=lambda line: line[0])
        self._lines = [line[1:] for line in found[:_LINES] if line[0] < 1]

    def _near(self, answer: Floats, first: Floats, second: Floats) -> Floats:
        """Return how near an answer is to what the second dataset should give: about 1 there, -1 at the first's."""
        found = np.full(_LINES, np.nan)
        for place, (entry, fact, slope, start, left) in enumerate(self._lines):
            gap = slope * (second[fact] - first[fact]) / 2
            if entry < answer.size and np.isfinite(gap) and gap:
                middle = start + slope * (first[fact] + second[fact]) / 2
                found[place] = (answer[entry] - middle) * np.sign(gap) / (abs(gap) + left)
        return np.round(found, 9)


def _numbers(dataset: Any) -> NDArray[Any] | None:
    """Return the records of an array of numbers, one a row; None for anything else."""
    if not isinstance(dataset, np.ndarray) or dataset.dtype.kind not in "fiub" or not dataset.ndim:
        return None
    return dataset.reshape(len(dataset), dataset[:1].size or 1)


def _records(dataset: Any) -> list[Any] | None:
    """Return the records of a list, an array or a table; None for anything else."""
    if type(dataset) in (list, tuple):
        return list(dataset)
    if isinstance(dataset, np.ndarray):
        return [record.tolist() for record in dataset] if dataset.ndim else None
    frame = _frame(dataset)
    return None if frame is None else list(frame.iter_rows())


def _frame(dataset: Any) -> Any:
    import narwhals as nw

    try:
        return nw.from_native(dataset, eager_only=True)
    except TypeError:
        return None


def _made(pairs: Sequence[tuple[Any, Any]], rng: np.random.Generator) -> Iterator[tuple[Any, Any]]:
    """Yield pairs made of others by adding the same records to both, of those that both hold; ever larger ones.

    They grow as fast as mixtures run out: of one kind of record there is one for each size.
    """
    sources = [source for source in map(_extending, pairs) if source is not None]
    sizes = [6.0] * len(sources)
    while sources:
        for place, (extend, kinds) in enumerate(sources):
            yield extend(rng, int(rng.integers(1, int(sizes[place]) + 1)))
            sizes[place] += max(0.26, 1.5 / kinds)


def _extending(pair: tuple[Any, Any]) -> tuple[Callable[[np.random.Generator, int], tuple[Any, Any]], int] | None:
    """Return what adds so many records to both datasets of a pair, and how many kinds of records it has to add.

    None if the datasets do not differ in one record.
    """
    records = [_records(dataset) for dataset in pair]
    first, second = records
    if first is None or second is None or type(pair[0]) is not type(pair[1]) or not _one_apart(first, second):
        return None
    everything = [*first, *second]
    marks = [repr(record) for record in everything]
    both = set(marks[: len(first)]) & set(marks[len(first) :])
    common = [place for place, mark in enumerate(marks) if mark in both] or list(range(len(everything)))

    def extend(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
        few = rng.choice(common, size=max(1, len(common) // 2))  # so that not all mixtures are alike
        share = rng.random(count) < rng.random()
        chosen = np.where(share, rng.choice(few, size=count), rng.choice(common, size=count)).tolist()
        return _with_records(pair[0], pair, chosen), _with_records(pair[1], pair, chosen)

    return extend, len({marks[place] for place in common})


def _one_apart(first: list[Any], second: list[Any]) -> bool:
    """Return whether one record is another in the second list, or is there and not there."""
    one, other = ([repr(record) for record in side] for side in (first, second))
    if len(one) == len(other):
        return sum(a != b for a, b in zip(one, other, strict=True)) == 1
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    return len(longer) == len(shorter) + 1 and any(
        longer[:place] + longer[place + 1 :] == shorter for place in range(len(longer))
    )


def _with_records(dataset: Any, pair: tuple[Any, Any], chosen: list[int]) -> Any:
    """Return a dataset after the chosen records of a pair, counted through both."""
    if type(dataset) in (list, tuple):
        everything = [*pair[0], *pair[1]]
        return type(dataset)([*(everything[place] for place in chosen), *dataset])
    if isinstance(dataset, np.ndarray):
        return np.concatenate([np.concatenate(pair)[chosen], dataset])
    import narwhals as nw

    frames = [_frame(one) for one in pair]
    return nw.concat([nw.concat(frames)[chosen], _frame(dataset)]).to_native()
