"""Fits that were made before, so that an attack that was stopped goes on where it was.

A fit is decided by its coin and its seed, so what came out of it can be looked up by them. The log holds functions of
private rows: it is written for its owner's eyes only, and is as private as the rows. What is read back is checked, not
believed: it takes memory in proportion to the file, and a whole line that is none of ours is refused.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError

__all__ = ["FitLog", "fingerprint"]

Floats = NDArray[np.float64]
Sets = list[dict[str, Floats]]
Key = tuple[str, bool, int]

_FORMAT = "escudo fits 1"


def fingerprint(*parts: object) -> str:
    """Return a digest of arguments and arrays: logs of another attack must not be taken for this one's."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode()
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()


class FitLog:
    """An append-only file of fits; a line cut short by a crash is left out.

    Args:
        path: The file; made if it is not there.
        attack: The fingerprint of the attack.

    Raises:
        InputError: If the file is of another attack, damaged, no log at all, or cannot be used.
    """

    def __init__(self, path: str | PathLike[str], attack: str):
        self._path = Path(path)
        self._known: dict[Key, Sets] = {}
        if self._path.exists():
            self._read(attack)
        else:
            with self._open("x") as file:
                file.write(json.dumps({"format": _FORMAT, "attack": attack}) + "\n")

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: Key) -> Sets | None:
        """Return what came out of a fit, if it was made before."""
        return self._known.get(key)

    def put(self, key: Key, sets: Sets) -> None:
        """Keep what came out of a fit."""
        self._known[key] = sets
        line = {"key": list(key), "sets": [{kind: _packed(values) for kind, values in one.items()} for one in sets]}
        with self._open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _open(self, mode: str) -> IO[str]:
        flags = os.O_WRONLY | os.O_APPEND | (os.O_CREAT | os.O_EXCL if mode == "x" else 0)
        try:
            return os.fdopen(os.open(self._path, flags, 0o600), "a", encoding="utf-8")
        except OSError as error:
            raise InputError(f"Cannot write the log {self._path.name!r}: {error.strerror or error}.") from error

    def _read(self, attack: str) -> None:
        try:
            lines = self._path.read_bytes().split(b"\n")
        except OSError as error:
            raise InputError(f"Cannot use the log {self._path.name!r}: {error.strerror or error}.") from error
        head = _parsed(lines[0])
        if not isinstance(head, dict) or head.get("format") != _FORMAT:
            raise InputError(f"{self._path.name!r} exists and is not a log of fits; choose another name.")
        if head.get("attack") != attack:
            raise InputError(
                f"{self._path.name!r} is the log of another attack: other rows, generator, targets or seed. "
                "Choose another name, or repeat that attack's arguments."
            )
        self._path.chmod(0o600)
        whole = len(lines[0]) + 1
        for line in lines[1:-1]:  # what follows the last line end was cut short
            try:
                key, sets = _fit_in(_parsed(line))
            except (TypeError, KeyError, ValueError, AttributeError):
                raise InputError(
                    f"{self._path.name!r} is damaged: line {1 + lines.index(line)} is no fit. Choose another name."
                ) from None
            self._known[key] = sets
            whole += len(line) + 1
        os.truncate(self._path, whole)


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _fit_in(found: Any) -> tuple[Key, Sets]:
    """Return the key of a fit and what came out of it, or raise if the line holds something else."""
    world, there, seed = found["key"]
    if not (isinstance(world, str) and isinstance(there, bool) and isinstance(seed, int) and seed >= 0):
        raise ValueError
    if not isinstance(found["sets"], list):
        raise TypeError
    sets = [{kind: _unpacked(text) for kind, text in one.items()} for one in found["sets"]]
    return (world, there, seed), sets


def _packed(values: Floats) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode("ascii")


def _unpacked(text: str) -> Floats:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8").astype(np.float64)
