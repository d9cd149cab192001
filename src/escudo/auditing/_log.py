"""The record of an experiment: which dataset was assigned to each run, and what came out. An audit resumes from it.

One JSON object a line. The first names the experiment; then, for each block of runs, a line with the assignments,
written *before* the mechanism is called, and one with the encoded outputs. A line that a crash cut short is dropped.

A log may come from somebody else, so nothing in it is believed: every count is held against the bytes that should be
behind it, and nothing is unpacked beyond what was announced. Reading a line takes memory in proportion to the line, and
to :data:`MAX_WIDTH` numbers for each run that it has a bit for.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._outputs import MAX_WIDTH, Encoded, Encoder
from escudo.auditing._scores import Labels
from escudo.errors import InputError

__all__ = ["LoggedBlock", "TrialLog"]

_FORMAT = "escudo trial log 1"


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
            elif lines and not lines[0].startswith(b'{"format": "escudo'):
                raise InputError(f"{self.path.name} is no trial log of escudo; name another file.")
            self._file = self.path.open("r+b" if self.path.exists() else "x+b")
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
                if block.pair >= len(facts["pairs"]):
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
