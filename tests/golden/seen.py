"""All that can be seen of a run, without what is chance by nature, as one digest for each piece.

An answer has pieces: ``answer`` (its values, as JSON where it has one), ``fields`` (its public attributes), ``rows``
(what was drawn from a model), ``events`` (what was charged), ``text``, ``page`` (HTML), ``warnings``, ``error`` and one
piece for each file. Each is written down in one canonical way and digested twice. *Exactly*: floats to the last bit.
*About*: floats to 9 digits, for machines whose processors or libraries round the last bit otherwise than those of the
machine that wrote the file; null where even that hangs on a last bit.

Networks are trained in single precision, where even the ninth digit depends on the processor. Of them the shape of
every array is exact, its size is a number that is compared roughly, and rows drawn from them are left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import math
import os
import platform
import re
import warnings
from calendar import month_name
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from unittest import mock

import numpy as np
import polars as pl
from safetensors.numpy import load as load_tensors
from threadpoolctl import threadpool_limits

from escudo.privacy import Receipt

Exactness = Literal["exact", "network", "chance"]
"""``exact``: every bit; ``network``: shapes and sizes; ``chance``: no seed can be given, so only events are kept."""

SIGNS = 20  # of a SHA-256, in hexadecimal: enough to tell any two answers apart
CLOSE = 0.1  # how far, relative to it, the size of a network's array may be off: steps of Adam blow last bits up

_CHANCE = (  # what differs from run to run by nature, and what stands for it
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d| UTC)?"), "TIME"),
    (re.compile(r"\b20\d\d-\d\d-\d\d\b"), "DAY"),
    # the day on which the pages that are held were made; and its year, where a release is cited
    (re.compile(rf"\b\d{{1,2}} ({'|'.join(month_name[1:])}) 20\d\d\b"), "17 November 2026"),
    (re.compile(r"(Synthetic data from [^,]{1,80}, )20\d\d\b"), r"\g<1>2026"),
    (re.compile(r"\b\d+(\.\d+)? (s|ms|seconds)\b"), "SECONDS"),
    (re.compile(r"(seconds\W{1,4} )\d+(\.\d+)?"), r"\1SECONDS"),
    (re.compile(r"engine='[^']*'"), "engine='ENGINE'"),  # one golden answer for all engines
    (re.compile(r" at 0x[0-9a-f]+"), " at ADDRESS"),
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])"), "HASH"),
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])"), "ID"),
    (
        re.compile(r"\b(escudo|[Pp]ython|numpy|polars|[Oo]pen(dp|DP)|dp-accounting|jax)(\W{1,6})\d+(\.\w+)+"),
        r"\1\3VERSION",
    ),
)
# A decimal that is no part of a hash, an id or a time.
_DECIMAL = re.compile(r"(?<![\w.])(?<!\d:)-?\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+)(?!\w)")
_DIGITS = re.compile(r"\d+")


@dataclass(slots=True)
class Seen:
    """What a run leaves behind, piece by piece, as canonical texts.

    Attributes:
        says: The answer in a line, for people.
        exact: Each piece, to the last bit.
        about: Each piece, floats to 9 digits.
        sizes: Of a network's arrays: root of the mean square, to be compared with a tolerance.
    """

    says: str = ""
    exact: dict[str, str] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, float] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return what is kept of it."""
        pieces = {name: [_digest(text), _digest(self.about[name])] for name, text in sorted(self.exact.items())}
        return {"says": self.says, "pieces": pieces, **({"sizes": self.sizes} if self.sizes else {})}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:SIGNS]


@cache
def machine() -> dict[str, str]:
    """Return what last bits depend on: the kind of processor, and the libraries that compute."""
    found = np.show_config(mode="dicts") or {}
    simd = " ".join(found.get("SIMD Extensions", {}).get("found", []))
    libraries = {
        name: version(name) for name in ("numpy", "scipy", "polars", "opendp", "dp-accounting", "typer", "rich")
    }
    return {"processor": f"{platform.machine()} {simd}".strip(), **libraries}


def see(run: Callable[[Path], Any], exactness: Exactness = "exact") -> Seen:
    """Run a question in a folder of its own and return all that is seen of it."""
    said = io.StringIO()
    error: Exception | None = None
    value: Any = None
    with (
        TemporaryDirectory(prefix="escudo-") as name,
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        threadpool_limits(1),  # sums of parts depend on how many parts there are
        mock.patch.dict(os.environ, ESCUDO_STATE=f"{name}/input.state", COLUMNS="100", NO_COLOR="1", TERM="dumb"),
    ):
        warnings.simplefilter("always")
        folder = Path(name)
        try:
            value = run(folder)
        except Exception as raised:
            error = raised
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.relative_to(folder).parts[0].startswith("input.")
        }
    pieces = _sorted_out(value)
    if said.getvalue():
        pieces["text"] = [said.getvalue(), *pieces.get("text", [])]
    if warned:
        pieces["warnings"] = [f"{warning.category.__name__}: {warning.message}" for warning in warned]
    if error is not None:
        pieces["error"] = [type(error).__name__, str(error)]
    seen = Seen(says=_short(_steady(_first_line(pieces), name)))
    for piece, content in {**pieces, **{f"file {file}": _read(file, data) for file, data in files.items()}}.items():
        _keep(seen, piece, content, name, exactness)
    return seen


def _keep(seen: Seen, piece: str, content: Any, folder: str, exactness: Exactness) -> None:
    if exactness == "chance" and piece not in ("events", "answer", "error", "warnings"):
        content = None  # that it is there
    if exactness == "network":
        if piece == "rows":
            return
        if isinstance(content, _Arrays):
            for array, values in content.arrays.items():
                size = float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if values.size else 0.0
                seen.sizes[f"{piece} {array}"] = float(f"{size:.6g}")
            content = {array: [str(values.dtype), list(values.shape)] for array, values in content.arrays.items()}
        elif isinstance(content, pl.DataFrame):
            content = [str(content.schema), content.height]
        elif piece.endswith(".csv"):
            content = content.splitlines()[0]
        elif piece.endswith((".html", "release.json")):
            content = _DIGITS.sub("0", content)
    seen.exact[piece] = _steady(canonical(content, exact=True), folder)
    seen.about[piece] = _steady(canonical(content, exact=False), folder)


def _sorted_out(value: Any) -> dict[str, list[Any]]:
    """Sort what a question gave back into pieces, by what each part is."""
    pieces: dict[str, list[Any]] = {}

    def sort(part: Any) -> None:
        if isinstance(part, str):
            page = part.lstrip().startswith("<") and part.rstrip().endswith(">") and "</" in part
            pieces.setdefault("page" if page else "text", []).append(part)
        elif isinstance(part, pl.DataFrame):
            pieces.setdefault("rows", []).append(part)
        elif isinstance(part, tuple) and part and all(isinstance(one, Receipt) for one in part):
            pieces.setdefault("events", []).extend([one.purpose, one.for_release, one.event] for one in part)
        elif type(part) is tuple:
            for one in part:
                sort(one)
        elif isinstance(part, list) and part and all(isinstance(one, tuple) and len(one) == 2 for one in part):
            pieces.setdefault("events", []).append(part)  # a ledger's rows
        else:
            pieces.setdefault("answer", []).append(part)
            if dataclasses.is_dataclass(part) and hasattr(part, "to_json"):
                pieces.setdefault("fields", []).append(_fields(part))

    sort(value)
    return pieces


@dataclass(frozen=True, slots=True)
class _Arrays:
    """The content of a file of arrays: its bytes, and about the same the numbers in it."""

    data: bytes

    @property
    def arrays(self) -> dict[str, Any]:
        """The arrays, by name."""
        return dict(sorted(load_tensors(self.data).items()))


def _read(name: str, data: bytes) -> Any:
    """Return what a file holds: the bytes of texts, and of others what is in them, whoever wrote it."""
    if name.endswith(".parquet"):
        return pl.read_parquet(data)
    if name.endswith(".safetensors"):
        return _Arrays(data)
    return data.decode("utf-8", "surrogateescape")


def _steady(text: str, folder: str) -> str:
    text = text.replace(folder, "FOLDER")
    for pattern, instead in _CHANCE:
        text = pattern.sub(instead, text)
    return text


def _first_line(pieces: Mapping[str, list[Any]]) -> str:
    if "error" in pieces:
        return ": ".join(pieces["error"])
    texts = [line.strip() for text in pieces.get("text", []) for line in text.splitlines() if line.strip()]
    return texts[0] if texts else canonical(pieces.get("answer", []), exact=False)


def _short(text: str) -> str:
    return text if len(text) <= 140 else text[:139] + "…"


def canonical(value: Any, *, exact: bool) -> str:
    """Return any value as JSON in which equal values, and only they, are equal texts.

    Names of classes are left out and fields are sorted: a class may be named or arranged anew as long as what it holds
    is the same.
    """
    return json.dumps(_plain(value, exact), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any, exact: bool) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, str):
        return value if exact else _DECIMAL.sub(lambda found: _rounded(float(found[0])), value)
    if isinstance(value, float | np.floating):
        return (float(value).hex() if math.isfinite(value) else str(float(value))) if exact else _rounded(float(value))
    if isinstance(value, np.generic):
        return _plain(value.item(), exact)
    if isinstance(value, np.ndarray):
        if exact and value.dtype != object:
            content: Any = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:SIGNS]
        else:
            content = [_plain(one, exact) for one in value.ravel().tolist()]
        return [str(value.dtype), list(value.shape), content]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Path):
        return value.as_posix()
    if isinstance(value, pl.DataFrame):
        return [str(value.schema), [_plain(row, exact) for row in value.rows()]]
    if isinstance(value, _Arrays):
        return hashlib.sha256(value.data).hexdigest() if exact else _plain(value.arrays, exact)
    if isinstance(value, Mapping):
        return [[_plain(key, exact), _timeless(key, inner, exact)] for key, inner in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(one, exact) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(canonical(one, exact=exact) for one in value)
    if callable(getattr(value, "to_json", None)):
        return _plain(value.to_json(), exact)
    if callable(getattr(value, "to_dict", None)):
        return _plain(value.to_dict(), exact)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _timeless(name, inner, exact) for name, inner in _fields(value).items()}
    return _plain(repr(value), exact)


def _timeless(name: Any, value: Any, exact: bool) -> Any:
    return "SECONDS" if name == "seconds" else _plain(value, exact)


def _fields(value: Any) -> dict[str, Any]:
    names = sorted(one.name for one in dataclasses.fields(value) if not one.name.startswith("_"))
    return {name: getattr(value, name) for name in names}


def _rounded(value: float) -> str:
    return "0" if abs(value) < 1e-12 else f"{value:.9g}"
