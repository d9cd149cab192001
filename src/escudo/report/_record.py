"""The release record: ``release.json``, which says by machine what ``report.html`` says to people.

Its form is fixed by ``release.schema.json`` (JSON Schema, draft 2020-12), which ships with the package;
:func:`release_schema` reads it. Everything in a record is public: what was asked, what was promised, and what follows
from what was released. Keys come in a fixed order.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escudo.privacy import Event, GaussianEvent, Guarantee, LaplaceEvent, Plan, delta_warning

if TYPE_CHECKING:
    from escudo.synthesis import Model
    from escudo.utility import PrivateEvaluation

__all__ = [
    "FORMAT",
    "LIBRARIES",
    "VERSION",
    "FileEntry",
    "Noise",
    "added_arrows",
    "details_of",
    "is_record",
    "noise_of",
    "observed_pairs",
    "release_record",
    "release_schema",
    "warnings_of",
]

FORMAT = "escudo release"
VERSION = 3
LIBRARIES = ("dp-accounting", "numpy", "opendp", "polars")
"""Those whose versions decide what noise was drawn, and what it was counted as."""

_CHUNK = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of a release: where it lies in the folder, its size, and its fingerprint."""

    path: str
    bytes: int
    sha256: str

    @classmethod
    def of(cls, folder: Path, path: str) -> FileEntry:
        """Read a file once and describe it."""
        digest, size = hashlib.sha256(), 0
        with (folder / path).open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
        return cls(path=path, bytes=size, sha256=digest.hexdigest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How loud the noise on one released table is: known beforehand, so public.

    Attributes:
        what: The table, as the plan names it.
        buys: What the plan says it is good for.
        count: How many tables of this kind were released.
        deviation: Standard deviation of the noise on a number, over the most that one record moves the table (l2 norm).
        rows: The same in rows, where every number is a count of rows; None otherwise.
        share: ``rows`` as a share of the table's rows; None where ``rows`` is.
    """

    what: str
    buys: str
    count: int
    deviation: float
    rows: float | None
    share: float | None


def release_record(
    model: Model,
    *,
    rows: int,
    dataset: str,
    seed: int | None,
    made: datetime,
    entries: Sequence[FileEntry],
    evaluation: PrivateEvaluation | None = None,
) -> dict[str, Any]:
    """Return the record of a release as JSON values, in the form of ``release.schema.json``.

    Args:
        model: The fitted model that is released.
        rows: How many synthetic rows were drawn.
        dataset: What the table is called.
        seed: The seed of the synthetic rows, if they can be drawn again; it has nothing to do with the noise.
        made: When, in UTC.
        entries: The other files of the release.
        evaluation: Figures about the synthetic rows that the plan paid for.
    """
    graph, added = model.graph, added_arrows(model)
    return {
        "format": FORMAT,
        "version": VERSION,
        "made": {
            "time": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "escudo": version("escudo"),
            "python": platform.python_version(),
            "libraries": {name: version(name) for name in LIBRARIES},
        },
        "dataset": dataset,
        "anchor": model.details.get("anchor"),
        "guarantee": model.guarantee.to_json(),
        "warnings": warnings_of(model),
        "plan": model.plan.to_json(),
        "schema": {"fingerprint": model.schema.fingerprint, "description": model.schema.to_dict()},
        "graph": {
            "nodes": list(graph.nodes),
            "edges": [list(edge) for edge in graph.edges],
            "latents": sorted(graph.latents),
            "added": None if added is None else [list(edge) for edge in added],
            "observed": [list(pair) for pair in observed_pairs(model)],
        },
        "generator": {"name": model.generator, "details": details_of(model)},
        "synthetic": {"rows": rows, "seed": seed},
        "evaluation": {
            "noise": [
                {
                    "what": noise.what,
                    "count": noise.count,
                    "deviation": noise.deviation,
                    "rows": noise.rows,
                    "share": noise.share,
                }
                for noise in noise_of(model, rows)
            ],
            "paid": None if evaluation is None else evaluation.to_json(),
        },
        "files": [
            {"path": entry.path, "bytes": entry.bytes, "sha256": entry.sha256}
            for entry in sorted(entries, key=lambda entry: entry.path)
        ],
    }


def details_of(model: Model) -> dict[str, Any]:
    """Return public facts about the fit itself; what paid for it is told elsewhere."""
    return {name: value for name, value in model.details.items() if name != "anchor"}


def warnings_of(model: Model) -> list[str]:
    """Return what whoever publishes a release should know first: whether its δ is large for the number of records.

    The number is the model's own, exact where it is public and else noisy; where people are protected, there are at
    most as many as rows.
    """
    rows = model.details.get("rows")
    records = float(rows) if isinstance(rows, int | float) else None
    warning = delta_warning(model.guarantee.delta, records, unit=model.guarantee.unit)
    return [warning] if warning else []


@cache
def _schema_text() -> str:
    return (files("escudo.report") / "release.schema.json").read_text(encoding="utf-8")


def release_schema() -> dict[str, Any]:
    """Return the JSON Schema that every ``release.json`` of this version satisfies.

    >>> release_schema()["properties"]["format"]["const"]
    'escudo release'
    """
    schema: dict[str, Any] = json.loads(_schema_text())
    return schema


def added_arrows(model: Model) -> tuple[tuple[str, str], ...] | None:
    """Return the arrows that the given graph did not state, or None if the generator did not say which it did."""
    stated = model.details.get("stated_arrows")
    if stated is None:
        return None
    known = {(str(cause), str(effect)) for cause, effect in stated}
    return tuple(edge for edge in model.graph.edges if edge not in known and edge[0] not in model.graph.latents)


def observed_pairs(model: Model) -> tuple[tuple[str, str], ...]:
    """Return the columns that go together in rows without an intervention, though no arrow joins them."""
    laws = getattr(model, "observed", {})
    joined = {frozenset(edge) for edge in model.graph.edges}
    place = {name: number for number, name in enumerate(model.schema.names)}
    pairs = {
        tuple(sorted((name, other), key=place.__getitem__))
        for name, law in laws.items()
        for other in law.parents
        if frozenset((name, other)) not in joined
    }
    return tuple((a, b) for a, b in sorted(pairs, key=lambda pair: [place[name] for name in pair]))


def noise_of(model: Model, rows: int) -> list[Noise]:
    """Return the noise of every table in the plan, without a look at any of them.

    Args:
        model: The released model. Where its details say how many rows the table has (public, or estimated from what was
            released), shares are of those.
        rows: Taken as the number of rows otherwise.
    """
    stated = model.details.get("rows")
    total = float(stated) if isinstance(stated, int | float) and stated > 0 else float(rows)
    found = []
    for leaf, count in _leaves(model.plan):
        event = leaf.once
        moved = _moved_by_a_record(event, model.guarantee)
        if event is None or moved is None:
            continue
        deviation, record, row, grid = moved
        counted = grid > 0 and math.isclose(row, grid, rel_tol=1e-6)
        in_rows = deviation / grid if counted else None
        found.append(
            Noise(
                what=leaf.name,
                buys=leaf.buys,
                count=count,
                deviation=deviation / record,
                rows=in_rows,
                share=None if in_rows is None else in_rows / total,
            )
        )
    return found


def _leaves(plan: Plan, times: int = 1) -> Iterator[tuple[Plan, int]]:
    times *= plan.count
    if not plan.children:
        yield plan, times
    for child in plan.children:
        yield from _leaves(child, times)


def _moved_by_a_record(event: Event | None, guarantee: Guarantee) -> tuple[float, float, float, float] | None:
    """Return a number's noise, the most a record moves, the most one row adds, and the grid; None for other events.

    Replacing a row takes one contribution away and adds another. Contributions are not negative, so in l2 norm this is
    at most the square root of 2 times one of them, and in l1 norm twice.
    """
    many = guarantee.max_rows_per_person or 1
    replacing = event is not None and event.relation == "replace_one"
    if isinstance(event, GaussianEvent) and event.l2_sensitivity > 0:
        row = event.l2_sensitivity / (math.sqrt(2) if replacing else 1.0) / many
        return event.scale, event.l2_sensitivity, row, event.grid
    if isinstance(event, LaplaceEvent) and event.l1_sensitivity > 0:
        row = event.l1_sensitivity / (2.0 if replacing else 1.0) / many
        return event.scale * math.sqrt(2), event.l1_sensitivity, row, event.grid
    return None


def is_record(path: Path) -> bool:
    """Return whether a file is a release record of escudo, of any version."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("format") == FORMAT
