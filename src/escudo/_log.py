"""Work that goes on where it was stopped: an append-only file with what came out of each piece of it.

A piece of work is decided by its key (and carries its own seed), so what came out of it can be looked up by that. The
first line names the question by a digest of all that it depends on: the log of another question is refused. Logs hold
functions of private rows: they are written for their owner's eyes only, and are as private as the rows. What is read
back is checked, not believed: it takes memory in proportion to the file, and a whole line that is none of ours is
refused. A line cut short by a crash is left out.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

import numpy as np

from escudo.errors import InputError

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")


def fingerprint(*parts: object) -> str:
    """Return a digest of arguments and arrays: logs of another question must not be taken for this one's."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode()
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogKind(Generic[Key, Found]):
    """What a kind of log holds.

    Attributes:
        format: The name and version of the format, in the first line.
        question: What is asked, such as ``"attack"``.
        piece: A piece of its work, such as ``"fit"``.
        differs: What differs in another question.
        write: Return a piece as a line: JSON values by name.
        read: Return the key and what came out, or raise if a line holds something else.
    """

    format: str
    question: str
    piece: str
    differs: str
    write: Callable[[Key, Found], dict[str, Any]]
    read: Callable[[Any], tuple[Key, Found]]


class WorkLog(Generic[Key, Found]):
    """An append-only file of pieces of work.

    Args:
        path: The file; made if it is not there.
        asked: The fingerprint of the question.
        kind: What it holds.

    Raises:
        InputError: If the file is of another question, damaged, no log at all, or cannot be used.
    """

    def __init__(self, path: str | PathLike[str], asked: str, kind: LogKind[Key, Found]):
        self._path, self._kind = Path(path), kind
        self._known: dict[Key, Found] = {}
        if self._path.exists():
            self._read(asked)
        else:
            with self._open("x") as file:
                file.write(json.dumps({"format": kind.format, kind.question: asked}) + "\n")

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: Key) -> Found | None:
        """Return what came out of a piece, if it was done before."""
        return self._known.get(key)

    def put(self, key: Key, found: Found) -> None:
        """Keep what came out of a piece."""
        self._known[key] = found
        with self._open("a") as file:
            file.write(json.dumps(self._kind.write(key, found)) + "\n")

    def _open(self, mode: str) -> IO[str]:
        flags = os.O_WRONLY | os.O_APPEND | (os.O_CREAT | os.O_EXCL if mode == "x" else 0)
        try:
            return os.fdopen(os.open(self._path, flags, 0o600), "a", encoding="utf-8")
        except OSError as error:
            raise InputError(f"Cannot write the log {self._path.name!r}: {error.strerror or error}.") from error

    def _read(self, asked: str) -> None:
        kind = self._kind
        try:
            lines = self._path.read_bytes().split(b"\n")
        except OSError as error:
            raise InputError(f"Cannot use the log {self._path.name!r}: {error.strerror or error}.") from error
        head = _parse(lines[0])
        if not isinstance(head, dict) or head.get("format") != kind.format:
            raise InputError(f"{self._path.name!r} exists and is not a log of {kind.piece}s; choose another name.")
        if head.get(kind.question) != asked:
            raise InputError(
                f"{self._path.name!r} is the log of another {kind.question}: {kind.differs}. "
                f"Choose another name, or repeat that {kind.question}'s arguments."
            )
        self._path.chmod(0o600)
        whole = len(lines[0]) + 1
        for line in lines[1:-1]:  # what follows the last line end was cut short
            try:
                key, found = kind.read(_parse(line))
            except (TypeError, KeyError, ValueError, AttributeError):
                raise InputError(
                    f"{self._path.name!r} is damaged: line {1 + lines.index(line)} is no {kind.piece}. "
                    "Choose another name."
                ) from None
            self._known[key] = found
            whole += len(line) + 1
        os.truncate(self._path, whole)


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
