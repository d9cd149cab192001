"""Outputs as numbers, and their log: whatever a mechanism returns, encoded once, so that learning sees arrays only.

An output becomes a *structure* (its shape, its texts, None) and the numbers in it, also those that are written in a
text: ``"17.5 mg"`` is ``'# mg'`` and 17.5, and a text that is JSON is what it says. The structure is coded as a whole
number, the numbers fill a row of a matrix, padded with NaN. Nothing is lost that an event could depend on, save that
tables and very long outputs are summarised. An error, or a service's status, is the *kind* of an output, which stands
before the rest of its structure. What has no value to look at, such as a function, is refused.

A :class:`TrialLog` records which dataset was assigned to each run, and what came out; an audit resumes from it. It has
one JSON object a line. The first names the experiment; then, for each block of runs, a line with the assignments,
written *before* the mechanism is called, and one with the encoded outputs. A line that a crash cut short is dropped. A
log may come from somebody else, so nothing in it is believed: every count is held against the bytes that should be
behind it, and nothing is unpacked beyond what was announced. Reading a line takes memory in proportion to the line, and
to :data:`MAX_WIDTH` numbers for each run that it has a bit for.
"""

from __future__ import annotations

import base64
import inspect
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from itertools import accumulate
from numbers import Complex, Rational, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._targets import Failure, Reply, Unreadable, items_of, without_addresses
from escudo.errors import InputError

Labels = NDArray[np.bool_]
"""Whether each run had the second dataset."""
MAX_WIDTH = 256

_MAX_STRUCTURES = 100_000
_PLAIN = "#"
_LONG = f"({_PLAIN} + {_PLAIN})"  # a number of more digits than a float has: the float, and what is left
_EXACT = 2**53  # whole numbers up to this are floats
_DEEPEST = 50  # a text of JSON that is nested deeper is a text,
_BOTTOM = 2 * _DEEPEST  # and other outputs are refused
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]{1,9}+)?+(?!\.?[0-9])")
_KIND = re.compile(r"(error: \w+|status \d+)(?:, |$)")
_FORMAT = "escudo trial log 1"
_BEGINNING = b'{"format": "escudo'  # of a log; one that was cut off on its first line may hold even less


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Outputs as arrays: ``values`` of shape (n, width), NaN where there is no number, and ``codes`` of shape (n,)."""

    values: NDArray[np.float64]
    codes: NDArray[np.int32]

    def __len__(self) -> int:
        return self.codes.size

    def part(self, rows: Labels | slice) -> Encoded:
        """Return some of the outputs."""
        return Encoded(self.values[rows], self.codes[rows])

    def widened(self, width: int) -> Encoded:
        """Return the outputs with at least so many numbers each: a block may hold short ones only."""
        missing = width - self.values.shape[1]
        if missing <= 0:
            return self
        return Encoded(np.pad(self.values, ((0, 0), (0, missing)), constant_values=np.nan), self.codes)


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Runs to learn from: what came out of each, and whether it had the second dataset."""

    outputs: Encoded
    labels: Labels

    def __len__(self) -> int:
        return self.labels.size

    def part(self, rows: Labels | slice) -> Sample:
        """Return some of the runs."""
        return Sample(self.outputs.part(rows), self.labels[rows])


# ---- encoding


class Encoder:
    """Encodes outputs, remembering the structures it has met.

    Args:
        features: A function from one output to what should be looked at instead, or None.
    """

    def __init__(self, features: Callable[[Any], Any] | None = None) -> None:
        self.features = features
        self.structures: list[str] = [_PLAIN]
        self._code = {_PLAIN: 0}
        self._failures: list[int] = []  # codes of errors
        self.summarised = False

    def encode(self, outputs: Any) -> Encoded:
        """Return a block of outputs, an array or a sequence, as arrays."""
        if self.features is not None:
            outputs = [o if isinstance(o, Failure | Reply) and o.failed else self.features(o) for o in outputs]
        array = _as_numbers(outputs)
        if array is not None:
            return self._of_array(array)
        rows = [self._flat(output) for output in outputs]
        width = min(max((len(row) for _, row in rows), default=0), MAX_WIDTH)
        values = np.full((len(rows), max(width, 1)), np.nan)
        for i, (_, row) in enumerate(rows):
            if len(row) > MAX_WIDTH:
                self.summarised = True
                values[i] = _fold(np.array([row]))[0]
            else:
                values[i, : len(row)] = row
        return Encoded(values, np.array([code for code, _ in rows], dtype=np.int32))

    def code_of(self, structure: str) -> int:
        """Return the code of a structure, a new one if it was never met."""
        code = self._code.get(structure)
        if code is None:
            if len(self.structures) >= _MAX_STRUCTURES:
                return self.code_of("(other)") if structure != "(other)" else 0
            code = self._code[structure] = len(self.structures)
            self.structures.append(structure)
            if is_failure(structure):
                self._failures.append(code)
        return code

    def answers(self, outputs: Encoded) -> int:
        """Return how many outputs are answers, and no errors."""
        return len(outputs) - int(np.isin(outputs.codes, self._failures).sum()) if self._failures else len(outputs)

    @property
    def failures(self) -> list[str]:
        """The kinds of errors that were met."""
        return list(dict.fromkeys(kind_of(self.structures[code]) for code in self._failures))

    def _of_array(self, array: NDArray[Any]) -> Encoded:
        values = array.reshape(len(array), -1).astype(np.float64, copy=False)
        if values.shape[1] > MAX_WIDTH:
            self.summarised = True
            values = _fold(values)
        return Encoded(values, np.zeros(len(array), dtype=np.int32))

    def _flat(self, output: Any) -> tuple[int, list[float]]:
        numbers: list[float] = []
        structure = _walk(output, numbers)
        return self.code_of(structure), numbers


def kind_of(structure: str) -> str:
    """Return what kind of output has a structure: the type of an error or a status; of others, the structure itself.

    >>> kind_of("error: KeyError, 'age'"), kind_of("[#, #]")
    ('error: KeyError', '[#, #]')
    """
    found = _KIND.match(structure)
    return found[1] if found else structure


def content_of(structure: str) -> str:
    """Return a structure without its kind."""
    found = _KIND.match(structure)
    return structure[found.end() :] if found else structure


def is_failure(structure: str) -> bool:
    """Return whether outputs of a structure are errors, so that nothing was answered."""
    return _KIND.match(structure) is not None and not structure.startswith("status 2")


def parsed(text: str) -> Any:
    """Return a text as the JSON that it is, or as it is."""
    steps = accumulate(1 if bracket in "[{" else -1 for bracket in re.findall(r"[][{}]", text))
    try:
        return text if max(steps, default=0) > _DEEPEST else json.loads(text)
    except ValueError:
        return text


def _as_numbers(outputs: Any) -> NDArray[Any] | None:
    """Return outputs that are all numbers, or all arrays of one shape, as one array; None if they are not."""
    if isinstance(outputs, np.ndarray):
        return outputs if outputs.ndim >= 1 and outputs.size and _floats(outputs) else None
    if not isinstance(outputs, Sequence) or not outputs:
        return None
    kinds = set(map(type, outputs))
    if all(issubclass(kind, bool | int | float | np.number | np.bool_) for kind in kinds):
        if any(issubclass(kind, np.complexfloating) for kind in kinds):
            return None
        try:
            array = np.array(outputs, dtype=np.float64)
        except OverflowError:
            return None
        whole = any(issubclass(kind, int | np.integer) for kind in kinds)
        return None if whole and (np.abs(array) >= _EXACT).any() else array
    if kinds == {np.ndarray}:
        shapes = {o.shape for o in outputs}
        if len(shapes) == 1 and all(map(_floats, outputs)):
            return np.array(outputs)
    return None


def _floats(array: NDArray[Any]) -> bool:
    """Return whether the entries of an array are floats, or can be without loss."""
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 8 or not array.size:
        return array.dtype.kind in "fiub"
    return int(array.min()) > -_EXACT and int(array.max()) < _EXACT


def _walk(output: Any, numbers: list[float], depth: int = 0) -> str:
    """Append the numbers of an output and return its structure without them."""
    if depth > _BOTTOM:
        raise Unreadable(f"nested more than {_BOTTOM} deep, or holds itself")

    def inside(item: Any) -> str:
        return _walk(item, numbers, depth + 1)

    if output is None:
        return repr(output)
    if isinstance(output, Failure | Reply):
        return f"{output.label}, {inside(output.content)}" if output.content else output.label
    if isinstance(output, str):
        return _of_text(output, inside, numbers)
    if isinstance(output, bytes | bytearray | memoryview):
        try:
            return f"b{_of_text(bytes(output).decode(), inside, numbers)}"
        except UnicodeDecodeError:
            return repr(bytes(output))
    if isinstance(output, Complex | Decimal | np.bool_):
        return _number(output, numbers)
    if isinstance(output, Enum):
        return repr(output.name)
    if isinstance(output, np.ndarray):
        if _floats(output):
            numbers.extend(output.ravel().astype(np.float64).tolist())
            return f"array{output.shape}"
        return inside(output.ravel().tolist())
    if isinstance(output, Mapping):
        keys = sorted(output, key=repr)
        return "{" + ", ".join(f"{without_addresses(repr(k))}: {inside(output[k])}" for k in keys) + "}"
    if is_dataclass(output) and not isinstance(output, type):
        return f"{type(output).__name__}(" + ", ".join(inside(getattr(output, f.name)) for f in fields(output)) + ")"
    if isinstance(output, list | tuple | Set):
        items = sorted(output, key=repr) if isinstance(output, Set) else output
        return "[" + ", ".join(map(inside, items)) + "]"
    table = _table(output)
    if table is not None:
        return inside(table)
    return _of_object(output, inside, numbers)


def _of_object(output: Any, inside: Callable[[Any], str], numbers: list[float]) -> str:
    """Return the structure of anything else: that of an array, of its attributes, of its items, or its text."""
    name = type(output).__name__
    if isinstance(output, type):
        return f"type {output.__name__}"
    if inspect.isroutine(output) or inspect.ismodule(output):
        raise Unreadable(f"a {name}, which has no value to look at")
    if hasattr(output, "__array__"):
        try:
            array = np.asarray(output)
        except Exception as error:  # such as an array on a device
            raise Unreadable(f"a {name}, which numpy cannot read") from error
        return inside(array)
    if getattr(output, "__dict__", None):
        return f"{name}({inside(vars(output))})"
    if isinstance(output, Iterable):
        return f"{name}({inside(items_of(output))})"
    text = str(output)
    if without_addresses(text) != text:
        raise Unreadable(f"a {name}, which has no value to look at, only an address in memory")
    return f"{name}: {_of_text(text, inside, numbers)}"


def _of_text(text: str, inside: Callable[[Any], str], numbers: list[float]) -> str:
    """Return the structure of a text: of the JSON that it is, or the text without the numbers in it."""
    if text[:1] in ("{", "["):
        found = parsed(text)
        if found is not text:
            return f"json({inside(found)})"
    return repr(_NUMBER.sub(lambda token: _written(token[0], numbers), text.replace(_PLAIN, "\uff03")))


def _number(number: Any, numbers: list[float]) -> str:
    """Append a number, in two parts where one float does not hold it, and return what stands for it."""
    if isinstance(number, Decimal) and not number.is_nan():
        return _written(str(number), numbers)
    if isinstance(number, Rational):
        return _ratio(int(number.numerator), int(number.denominator), numbers)
    if isinstance(number, Real | Decimal | np.bool_):
        numbers.append(math.nan if isinstance(number, Decimal) else float(number))
        return _PLAIN
    numbers += [float(number.real), float(number.imag)]
    return f"complex({_PLAIN}, {_PLAIN})"


def _ratio(top: int, bottom: int, numbers: list[float]) -> str:
    try:
        value = top / bottom
    except OverflowError:  # its sign and its size
        numbers += [math.inf if top > 0 else -math.inf, math.log10(abs(top)) - math.log10(bottom)]
        return _LONG
    if -_EXACT < top < _EXACT > bottom or Fraction(value).limit_denominator(bottom) == Fraction(top, bottom):
        numbers.append(value)
        return _PLAIN
    numbers += [value, float(Fraction(top, bottom) - Fraction(value))]
    return _LONG


def _written(token: str, numbers: list[float]) -> str:
    """Append a number that is written down, and return what stands for it: ``#``, and how else it is written if it is.

    >>> _written("1.5", found := []), _written("1.50", found), _written("007", found), found
    ('#', '#0', '#(ddd)', [1.5, 1.5, 7.0])
    """
    value, exact = float(token), Decimal(token)
    short = repr(value)
    if math.isinf(value):
        numbers += [value, float(exact.copy_abs().log10())]
        return _LONG
    if Decimal(short) != exact:
        numbers += [value, float(exact - Decimal(short))]
        return _LONG
    numbers.append(value)
    for least in (short, short.removesuffix(".0")):
        more = token[len(least) :]  # zeros at the end
        if token.startswith(least) and not more.strip(".0") and ("." in least or more[:1] in ("", ".")):
            return _PLAIN + more
    return f"{_PLAIN}({re.sub('[0-9]', 'd', token)})"


def _table(output: Any) -> dict[str, Any] | None:
    """Return a dataframe as its size, and per column counts of its levels or its moments; None if it is none."""
    import narwhals as nw

    try:
        frame = nw.from_native(output, eager_only=True)
    except TypeError:
        return None
    if not isinstance(frame, nw.DataFrame):
        return None
    found: dict[str, Any] = {"rows": len(frame)}
    for name in frame.columns:
        column = frame[name]
        if column.dtype.is_numeric():
            numbers = column.drop_nulls().to_numpy().astype(np.float64)
            numbers = numbers[np.isfinite(numbers)]
            spread = [numbers.sum(), (numbers**2).sum(), numbers.min(), numbers.max()] if numbers.size else [0.0] * 4
            kinds = ("sum", "sum of squares", "smallest", "largest")
            found[name] = {"missing": len(column) - numbers.size, **dict(zip(kinds, map(float, spread), strict=True))}
        else:
            levels, counts = np.unique([str(v) for v in column.to_list()], return_counts=True)
            found[name] = dict(zip(levels.tolist()[:64], map(float, counts[:64]), strict=True))
    return found


def _fold(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return long rows as their first numbers and the sums of all, of squares and of stretches."""
    keep = MAX_WIDTH // 2
    stretches = np.array_split(np.arange(values.shape[1]), MAX_WIDTH - keep - 2)
    sums = np.stack([values[:, s].sum(axis=1) for s in stretches], axis=1)
    return np.column_stack([values[:, :keep], sums, values.sum(axis=1), (values**2).sum(axis=1)])


# ---- the log


@dataclass(frozen=True, slots=True, eq=False)
class LoggedBlock:
    """A block of runs read back; ``outputs`` is None where the crash came before them."""

    pair: int
    labels: Labels
    outputs: Encoded | None
    counted: Labels | None


class TrialLog:
    """An append-only file of trials.

    Args:
        path: The file; made if it is not there, continued if it is.
        facts: What identifies the experiment: the file must hold the same ones, seed aside, where both know them.

    Raises:
        InputError: If the file is something else, or of another experiment, or cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], facts: dict[str, Any]) -> None:
        self.path = Path(path)
        self.blocks: list[dict[str, Any]] = []
        self.seed: int | None = None
        self._written = 1
        try:
            lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
            whole = [line for line in lines if line.endswith(b"\n")]
            if whole:
                self._read(whole, facts)
            elif lines and not (lines[0].startswith(_BEGINNING) or _BEGINNING.startswith(lines[0])):
                raise InputError(f"{self.path.name} is no trial log of escudo; name another file.")
            made = 0 if self.path.exists() else os.O_EXCL | os.O_CREAT
            self._file = os.fdopen(os.open(self.path, os.O_RDWR | made, 0o600), "r+b")
            self._file.truncate(sum(map(len, whole)))
            self._file.seek(0, os.SEEK_END)
        except OSError as error:
            raise InputError(f"the trial log {self.path} cannot be used: {error.strerror}.") from None
        if not whole:
            self._line({"format": _FORMAT, **facts})
            self.seed = facts["seed"]

    def _read(self, lines: Sequence[bytes], facts: dict[str, Any]) -> None:
        try:
            head, *rest = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            raise InputError(f"{self.path.name} is no trial log of escudo; name another file.") from None
        if not isinstance(head, dict) or head.get("format") != _FORMAT:
            raise InputError(f"{self.path.name} is no trial log of escudo; name another file.")
        for key, value in facts.items():
            if key != "seed" and value is not None and head.get(key, value) not in (value, None):
                raise InputError(
                    f"{self.path.name} is the log of another experiment: its {key} differs. Name another file."
                )
        self.blocks = rest
        try:
            self.seed = _whole(head["seed"], "seed")
            for block in self.stored(Encoder()):  # damage is found here, where it can be said what is wrong
                if block.pair > len(facts["pairs"]):  # new questions come after the pairs
                    raise ValueError("a pair that the audit does not have")
        except (KeyError, TypeError, ValueError, AttributeError, zlib.error) as error:
            missing = isinstance(error, KeyError | TypeError | AttributeError)
            why = "a key is missing or of a wrong kind" if missing else str(error)
            raise InputError(
                f"{self.path.name} is damaged: a block of runs cannot be read ({why}). Name another file."
            ) from None
        self._written = 1

    def stored(self, encoder: Encoder) -> list[LoggedBlock]:
        """Return the blocks already there, in order; the encoder learns their structures."""
        found: list[LoggedBlock] = []
        for entry in self.blocks:
            waiting = bool(found) and found[-1].outputs is None
            if "assigned" in entry:
                if waiting:
                    raise ValueError("runs were assigned twice")
                labels = _bits(entry["assigned"], _whole(entry["runs"], "runs", least=1))
                found.append(LoggedBlock(_whole(entry["pair"], "pair"), labels, None, None))
                continue
            if not waiting:
                raise ValueError("outputs without runs")
            last = found.pop()
            if not isinstance(entry["structures"], list) or not all(
                isinstance(one, str) for one in entry["structures"]
            ):
                raise ValueError("forms of outputs that are no texts")
            for structure in entry["structures"]:
                encoder.code_of(structure)
            self._written = len(encoder.structures)
            counted = _bits(entry["counted"], last.labels.size) if entry["counted"] else None
            runs = last.labels.size if counted is None else int(counted.sum())
            width = _whole(entry["width"], "width", least=1, most=MAX_WIDTH)
            values = _array(entry["values"], np.float64, runs * width).reshape(runs, width)
            codes = _array(entry["codes"], np.int32, runs) if entry["codes"] else np.zeros(runs, dtype=np.int32)
            if runs and not 0 <= codes.min() <= codes.max() < len(encoder.structures):
                raise ValueError("an output of a form that is not listed")
            found.append(LoggedBlock(last.pair, last.labels, Encoded(values, codes), counted))
        return found

    def assign(self, pair: int, labels: Labels) -> None:
        """Write down who gets what, before it happens."""
        self._line({"pair": pair, "runs": labels.size, "assigned": np.packbits(labels).tobytes().hex()})

    def observe(self, outputs: Encoded, counted: Labels | None, structures: Sequence[str]) -> None:
        """Write down what came out of the runs assigned last."""
        new, self._written = list(structures[self._written :]), len(structures)
        self._line(
            {
                "width": outputs.values.shape[1],
                "values": _text(outputs.values),
                "codes": _text(outputs.codes) if outputs.codes.any() else "",
                "counted": "" if counted is None else np.packbits(counted).tobytes().hex(),
                "structures": new,
            }
        )

    def close(self) -> None:
        """Close the file; what could not be written was said when it was."""
        with suppress(OSError):  # closing tries once more to write what a full disk did not take
            self._file.close()

    def _line(self, entry: dict[str, Any]) -> None:
        try:
            self._file.write(json.dumps(entry).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise InputError(f"the trial log {self.path} cannot be written: {error.strerror}.") from None


def _text(array: NDArray[Any]) -> str:
    return base64.b85encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 1)).decode()


def _array(text: str, dtype: Any, size: int) -> NDArray[Any]:
    """Return a packed array of ``size`` numbers; unpacks no more than that, however much is packed."""
    wanted = size * np.dtype(dtype).itemsize
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(base64.b85decode(text), wanted + 1)
    if len(data) != wanted or not unpacking.eof:
        raise ValueError("another number of outputs than of runs")
    return np.frombuffer(data, dtype=dtype)


def _bits(text: str, size: int) -> Labels:
    data = bytes.fromhex(text)
    if len(data) != (size + 7) // 8:
        raise ValueError("another number of runs than of assignments")
    return np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=size).astype(bool)


def _whole(number: object, name: str, *, least: int = 0, most: int | None = None) -> int:
    if (
        not isinstance(number, int)
        or isinstance(number, bool)
        or number < least
        or (most is not None and number > most)
    ):
        raise ValueError(f"{name} must be a whole number of at least {least}" + (f", at most {most}" if most else ""))
    return number
