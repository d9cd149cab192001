"""The record of an experiment: which dataset was assigned to each run, and what came out. An audit resumes from it.

One JSON object a line. The first names the experiment; then, for each block of runs, a line with the assignments,
written *before* the mechanism is called, and one with the encoded outputs. A line that a crash cut short is dropped.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._outputs import Encoded, Encoder
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
        except ValueError:
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
            self.seed = int(head["seed"])
            self.stored(Encoder())  # a damaged block is found here, where it can be said what is wrong
        except (KeyError, IndexError, TypeError, ValueError, zlib.error):
            raise InputError(
                f"{self.path.name} is damaged: a block of runs cannot be read. Name another file."
            ) from None
        self._written = 1

    def stored(self, encoder: Encoder) -> list[LoggedBlock]:
        """Return the blocks already there, in order; the encoder learns their structures."""
        found: list[LoggedBlock] = []
        for entry in self.blocks:
            if "assigned" in entry:
                labels = _bits(entry["assigned"], entry["runs"])
                found.append(LoggedBlock(int(entry["pair"]), labels, None, None))
                continue
            for structure in entry["structures"]:
                encoder.code_of(structure)
            self._written = len(encoder.structures)
            last = found.pop()
            counted = _bits(entry["counted"], last.labels.size) if entry["counted"] else None
            values = _array(entry["values"], np.float64).reshape(-1, entry["width"])
            codes = _array(entry["codes"], np.int32) if entry["codes"] else np.zeros(len(values), dtype=np.int32)
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
        """Close the file."""
        self._file.close()

    def _line(self, entry: dict[str, Any]) -> None:
        try:
            self._file.write(json.dumps(entry).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise InputError(f"the trial log {self.path} cannot be written: {error.strerror}.") from None


def _text(array: NDArray[Any]) -> str:
    return base64.b85encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 1)).decode()


def _array(text: str, dtype: Any) -> NDArray[Any]:
    return np.frombuffer(zlib.decompress(base64.b85decode(text)), dtype=dtype)


def _bits(text: str, size: int) -> Labels:
    return np.unpackbits(np.frombuffer(bytes.fromhex(text), dtype=np.uint8), count=size).astype(bool)
