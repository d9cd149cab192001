"""A text and where it came from: bounded reading of files, and errors that name the line and column."""

from __future__ import annotations

import gzip
import os
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from escudo.errors import InputError, ParseError

__all__ = ["MAX_BYTES", "Source", "read_text", "shown", "write_text"]

MAX_BYTES = 16 * 2**20
"""The largest graph file read, after unpacking; far above any real graph, and small enough to be safe."""


@dataclass(frozen=True, slots=True)
class Source:
    """A text with its name, able to say where in it something is wrong."""

    text: str
    name: str = "text"

    def error(self, message: str, at: int | None = None) -> ParseError:
        """Return the error for offset ``at`` of the text, with its line and column counted from 1."""
        message = message if message.endswith((".", "?")) else f"{message}."
        if at is None:
            return ParseError(message, source=self.name)
        before = self.text[:at].replace("\r\n", "\n").replace("\r", "\n")
        line_start = before.rfind("\n") + 1
        return ParseError(message, source=self.name, line=before.count("\n") + 1, column=len(before) - line_start + 1)


def shown(text: str, limit: int = 40) -> str:
    """Return ``text`` quoted on one line and cut to ``limit`` characters, for an error message."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def read_text(path: Path, *, what: str = "graph") -> str:
    """Return the text of a UTF-8 file (unpacked if its name ends in ``.gz``), refusing what is too large for one.

    Line ends are kept as they are, because a quoted name may contain them.

    Args:
        path: The file.
        what: What the file should hold, for messages.

    Raises:
        InputError: The file cannot be read, is far too large, or is not gzip although its name says so.
        ParseError: The file is not UTF-8 text.
    """
    try:
        with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist. Check the path.") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; a {what} file was expected.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError(f"{path} is not a complete gzip file. Unpack it yourself, or copy it again.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a usable path"
        raise InputError(f"{path} cannot be read: {reason}.") from None
    if len(content) > MAX_BYTES:
        raise InputError(
            f"{path} is larger than {MAX_BYTES // 2**20} MiB, which no causal {what} is. Is it a data file?"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ParseError("this is not UTF-8 text. Save the file as UTF-8.", source=path.name, line=line) from None


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 (packed if the name ends in ``.gz``), all or nothing.

    The file appears under its name only when it is complete, so a full disk never leaves half a graph.

    Raises:
        InputError: The folder does not exist or cannot be written to.
    """
    content = text.encode("utf-8")
    if path.suffix.lower() == ".gz":
        content = gzip.compress(content, mtime=0)
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with draft.open("xb") as file:
            file.write(content)
        draft.replace(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a usable path"
        raise InputError(f"{path} cannot be written: {reason}.") from None
    finally:
        with suppress(OSError):  # a name that cannot be written cannot be looked for either
            draft.unlink(missing_ok=True)
