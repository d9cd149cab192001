"""The release folder of linked tables: one file per table, the model, the record and a page for people.

The folder is written like any release (``_release_folder``): all of it, or nothing. The page shows what is promised, to
one person with all rows; what was measured; how many rows people have; how columns go on from row to row; and the
histories of a few synthetic people. All of it is drawn from the model, so it keeps the model's promise and costs
nothing. How many rows of real people the bound cuts off is private and was not paid for: it is not shown.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from escudo._card import fitted, room_for
from escudo._files import folder_draft, put_folder, write_csv
from escudo._validate import positive_integer
from escudo.errors import InputError
from escudo.report._explore import count_labels, explorable, explore_page
from escudo.report._page import epsilon_delta, power_of_ten, promise_sentence, render, rounded_up
from escudo.report._release_folder import (
    _EXPLORE,
    _MODEL,
    _RECORD,
    _REPORT,
    _TABLES,
    _files_in,
    _flush,
    _now,
    check_target,
)
from escudo.report._release_report import _FORMAT, _LIBRARIES, FileEntry, _discovered_edges, _tree
from escudo.report._svg import bars, escaped, percent, svg
from escudo.table import COUNT, Categorical, ChildTable, LinkedSchema, linked_picture

if TYPE_CHECKING:
    from datetime import datetime

    import polars as pl
    from markupsafe import Markup

    from escudo.synthesis import LinkedModel
    from escudo.utility import PrivateLinkedEvaluation

VERSION = 5
"""Of the record: whoever knows only records of one table must not read one of several."""

_SHOWN, _MOST_LEVELS = 6, 12
_DRAWN = 20_000  # people that the pictures are drawn from


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedReleaseFiles:
    """Where the parts of a release of linked tables lie.

    Attributes:
        directory: The folder to hand over.
        synthetic: The synthetic rows of each table.
        model: The folder of the model, to be sampled again.
        record: The machine-readable record.
        report: The page for people.
        explore: The page that asks the model what if; None for a model that no browser could.
        rows: How many rows each table has.
        fitted: The model itself.
        evaluation: What was paid for to know about the people; None unless asked for.
    """

    directory: Path
    synthetic: dict[str, Path]
    model: Path
    record: Path
    report: Path
    explore: Path | None
    rows: dict[str, int]
    fitted: LinkedModel = field(repr=False, compare=False)
    evaluation: PrivateLinkedEvaluation | None = None

    def _repr_html_(self) -> str:
        listed = "".join(f"<li><code>{escaped(path.name)}</code></li>" for path in self.synthetic.values())
        return f"<div><strong>Released to {escaped(self.directory.name)}</strong><ul>{listed}</ul></div>"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedWriting:
    """How a release of linked tables is written.

    Attributes:
        people: How many synthetic people to draw. It is printed: pass a public number.
        dataset: What the tables are called.
        csv: Whether to write the rows as CSV as well.
        seed: To draw the same people again; the noise does not depend on it.
        overwrite: Whether an earlier release in that folder may be replaced; nothing else ever is.
        before_naming: Called when all is on disk, just before the folder gets its name.
        config: Name and SHA-256 of the file that said what to release, for the record.
        evaluate: Takes the synthetic people, and returns figures about them that were paid for.
    """

    people: int
    dataset: str = ""
    csv: bool = False
    seed: int | None = None
    overwrite: bool = False
    before_naming: Callable[[], object] | None = None
    config: Mapping[str, str] | None = None
    evaluate: Callable[[object], PrivateLinkedEvaluation] | None = None

    def write(self, model: LinkedModel, directory: str | os.PathLike[str]) -> LinkedReleaseFiles:
        """Draw people and write them, the model, the record and the report into one folder, all or nothing.

        Raises:
            InputError: If the folder holds something else, or cannot be written; the target is then as it was.

        **Guarantee.** The folder's contents are post-processing of the model: ``model.guarantee`` holds for them.
        """
        from polars.exceptions import PolarsError

        count = positive_integer("people", self.people)
        target, _ = check_target(directory, overwrite=self.overwrite)
        synthetic, made = model.sample(count, seed=self.seed), _now()
        evaluation = None if self.evaluate is None else self.evaluate(synthetic)
        try:
            with folder_draft(target) as draft:
                (draft / _TABLES).mkdir()
                for name, frame in synthetic.items():
                    frame.write_parquet(draft / _TABLES / f"{name}.parquet")
                    if self.csv:
                        write_csv(frame, draft / _TABLES / f"{name}.csv")
                model.save(draft / _MODEL)
                if explorable(model):
                    (draft / _EXPLORE).write_text(explore_page(model, dataset=self.dataset), encoding="utf-8")
                entries = [FileEntry.of(draft, path) for path in _files_in(draft)]
                page = linked_page(model, synthetic, dataset=self.dataset, made=made, evaluation=evaluation)
                (draft / _REPORT).write_text(page, encoding="utf-8")
                entries.append(FileEntry.of(draft, _REPORT))
                record = self._record(model, synthetic, entries, made)
                if evaluation is not None:
                    record["evaluation"] = {"paid": evaluation.to_json()}
                text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
                (draft / _RECORD).write_text(text, encoding="utf-8")
                _flush(draft)
                if self.before_naming is not None:
                    self.before_naming()
                put_folder(draft, target)
        except (OSError, PolarsError) as error:
            reason = getattr(error, "strerror", None) or "input/output error"
            raise InputError(f"The release could not be written to '{target}': {reason}.") from None
        return LinkedReleaseFiles(
            directory=target,
            synthetic={name: target / _TABLES / f"{name}.parquet" for name in synthetic},
            model=target / _MODEL,
            record=target / _RECORD,
            report=target / _REPORT,
            explore=target / _EXPLORE if explorable(model) else None,
            rows={name: frame.height for name, frame in synthetic.items()},
            fitted=model,
            evaluation=evaluation,
        )

    def _record(
        self, model: LinkedModel, synthetic: Mapping[str, pl.DataFrame], entries: list[FileEntry], made: datetime
    ) -> dict[str, Any]:
        told: dict[str, Any] = {
            "time": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "escudo": version("escudo"),
            "python": platform.python_version(),
            "libraries": {name: version(name) for name in _LIBRARIES},
        }
        if self.config is not None:
            told["config"] = dict(self.config)
        return {
            "format": _FORMAT,
            "version": VERSION,
            "made": told,
            "dataset": self.dataset,
            "anchor": model.details.get("anchor"),
            "guarantee": model.guarantee.to_json(),
            "plan": model.plan.to_json(),
            "schema": {"fingerprint": model.schema.fingerprint, "description": model.schema.to_dict()},
            "graph": {"nodes": list(model.graph.nodes), "edges": [list(edge) for edge in model.graph.edges]},
            "generator": {
                "name": model.generator,
                "details": {k: v for k, v in model.details.items() if k != "anchor"},
            },
            "synthetic": {"rows": {name: frame.height for name, frame in synthetic.items()}, "seed": self.seed},
            "files": [asdict(entry) for entry in sorted(entries, key=lambda entry: entry.path)],
        }


# ---- the page


def linked_page(
    model: LinkedModel,
    synthetic: Mapping[str, pl.DataFrame],
    *,
    dataset: str,
    made: datetime,
    evaluation: PrivateLinkedEvaluation | None = None,
) -> str:
    """Return the page of a release of linked tables as HTML.

    Args:
        model: The fitted model.
        synthetic: The synthetic rows of each table.
        dataset: What the tables are called.
        made: When, in UTC.
        evaluation: Figures about the people that the plan paid for.
    """
    from markupsafe import Markup

    schema, guarantee = model.schema, model.guarantee
    epsilon, delta = epsilon_delta(guarantee)
    unit = f"one person of {schema.people} with all rows in {' and '.join(schema.tables[1:])}"
    total = f"ε = {rounded_up(epsilon)}, δ = {power_of_ten(delta)}"
    return render(
        "linked.html.j2",
        kind="Release of linked tables",
        title=dataset or " with ".join(schema.tables),
        lead=f"Synthetic {schema.people} with their {' and '.join(schema.tables[1:])}; what is protected is {unit}.",
        source=dataset,
        for_release=guarantee.for_release,
        facts=[
            (
                "Promise",
                f"ε = {rounded_up(epsilon)}",
                f"δ = {power_of_ten(delta)}, {promise_words(guarantee.relation)}",
            ),
            ("Protected", "a person", f"with all rows: at most {schema.max_rows_per_person} of each person count"),
            *((name, f"{frame.height:,}", "synthetic rows") for name, frame in synthetic.items()),
        ],
        promise=promise_sentence(guarantee),
        tree=_tree(model.plan, total),
        graph=Markup(linked_picture(schema, model.graph)) if model.graph.edges else "",  # names are escaped
        explore=explorable(model),
        found=_discovered_edges(model),
        open=[f"{a} — {b}" for a, b in model.associations],
        notes=list((model.details.get("discovery") or {"notes": ()})["notes"]),
        paid=[] if evaluation is None else _paid(evaluation),
        tables=[_table(model, child.name, synthetic[child.name]) for child in schema.children],
        bounds=[
            f"At most {child.most} rows of {child.name} of each {_owner(child)} count: the first ones "
            f"{'by what is in them' if child.order is None else f'by {child.order!r}'}. How "
            "many rows of real people that leaves out is private, and was not paid for, so it is not said here."
            for child in schema.children
        ],
        nested=[(child.name, child.parent) for child in schema.children if child.parent],
        weighting=[f"{name}: {how}" for name, how in model.details.get("weighting", {}).items()],
        made=made.strftime("%Y-%m-%d"),
    )


def _paid(evaluation: PrivateLinkedEvaluation) -> list[tuple[str, str, str]]:
    """Return each figure that was paid for: what it is about, the share in the wrong cell, and its interval."""
    from escudo.utility import KINDS

    return [
        (KINDS[kind], percent(far), " to ".join(percent(end) for end in evaluation.intervals[kind]))
        for kind, far in evaluation.figures.items()
    ]


def promise_words(relation: str) -> str:
    """Return between which tables the promise holds, in a few words."""
    return "whoever one person is replaced by" if relation == "replace_one" else "whether one person is there or not"


def _owner(child: ChildTable) -> str:
    return f"row of {child.parent}" if child.parent else "person"


def _table(model: LinkedModel, name: str, rows: pl.DataFrame) -> dict[str, Any]:
    """Return what the page shows of a table of rows."""
    schema = model.schema
    child = schema.child(name)
    drawn = model.codes(_DRAWN, seed=0)
    count, parent = f"{name}.{COUNT}", child.parent
    owners = np.concatenate([part.rows[parent].codes[count] if parent else part.people[count] for part in drawn])
    column = child.column(COUNT)
    shares = np.bincount(owners, minlength=column.size) / max(owners.size, 1)
    transitions = []
    for own in child.schema.names:
        levels = child.schema[own]
        if not isinstance(levels, Categorical) or not 2 <= levels.size <= _MOST_LEVELS:
            continue
        counts = np.zeros((levels.size, levels.size))
        for part in drawn:
            table = part.rows[name]
            later = np.flatnonzero(table.number > 1)
            codes = table.codes[f"{name}.{own}"]
            np.add.at(counts, (codes[later - 1], codes[later]), 1)
        if counts.sum():
            transitions.append({"name": own, "chart": transition_chart(list(levels.labels), counts, own)})
    return {
        "name": name,
        "parent": parent,
        "counts": bars(
            count_labels(child),
            shares.tolist(),
            f"How many rows of {name} synthetic {f'rows of {parent}' if parent else 'people'} have",
        ),
        "transitions": transitions,
        "trajectories": None if parent else _trajectories(schema, name, rows),
    }


def transition_chart(labels: list[str], counts: Any, name: str) -> Markup:
    """Return how a column goes on: a row of squares for each level before, shaded by the share of each level after."""
    side, left = 44.0, min(max(room_for(label, 12.0) for label in labels), 110.0) + 14
    body = [f'<text x="{left:g}" y="12" class="soft">next row</text>']
    for column, label in enumerate(labels):
        x = left + column * side + side / 2
        body.append(f'<text x="{x:.1f}" y="30" class="middle small">{escaped(fitted(label, side - 2, 11))}</text>')
    for row, label in enumerate(labels):
        y = 38 + row * side
        shares = counts[row] / max(counts[row].sum(), 1.0)
        name_at = f'x="{left - 8:.1f}" y="{y + side / 2 + 4:.1f}"'
        body.append(f'<text {name_at} class="end">{escaped(fitted(label, left - 10))}</text>')
        for column, share in enumerate(shares):
            x = left + column * side
            said = f"{escaped(label)} → {escaped(labels[column])}: {percent(share)}"
            body.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{side - 2:g}" height="{side - 2:g}" class="fill" '
                f'style="fill-opacity:{max(share, 0.02):.3f}"><title>{said}</title></rect>'
                f'<text x="{x + side / 2 - 1:.1f}" y="{y + side / 2 + 4:.1f}" '
                f'class="middle small">{100 * share:.0f}</text>'
            )
    return svg(
        left + side * len(labels) + 4, 42 + side * len(labels), body, f"How {name} goes on from row to row, in percent"
    )


def _trajectories(schema: LinkedSchema, name: str, rows: pl.DataFrame) -> dict[str, Any] | None:
    """Return the histories of the first synthetic people with several rows, in the column with most levels."""
    child = schema.child(name)
    categorical = [c for c in child.schema.fields if isinstance(c, Categorical) and 2 <= c.size <= _MOST_LEVELS]
    if not categorical or rows.height == 0 or child.order is None:
        return None
    shown = max(categorical, key=lambda column: (column.ordered, column.size))
    several = rows.filter(rows["number"] == 3)[child.foreign_key].head(_SHOWN).to_list()
    if not several:
        return None
    lines = []
    for person in several:
        own = rows.filter(rows[child.foreign_key] == person)
        when = own[child.order].cast(int, strict=False).fill_null(0).to_numpy()
        codes = shown.encode(own[shown.name].to_list())
        lines.append((person, when - when[0], codes))
    longest = max(max(int(days[-1]) for _, days, _ in lines), 1)
    return {
        "column": shown.name,
        "charts": [
            {"person": person, "chart": _trajectory(list(shown.labels), days, codes, longest)}
            for person, days, codes in lines
        ],
    }


def _trajectory(labels: list[str], days: Any, codes: Any, longest: int) -> Markup:
    wide, row, left = 300.0, 16.0, min(max(room_for(label, 11.0) for label in labels), 90.0) + 12
    height = row * len(labels)
    xs = left + (wide - left - 8) * days / longest
    ys = height - row * (codes + 0.5)
    body = [
        f'<text x="{left - 8:g}" y="{height - row * (place + 0.5) + 4:.1f}" class="end soft small">'
        f"{escaped(fitted(label, left - 10, 11))}</text>"
        for place, label in enumerate(labels)
    ]
    path = "".join(
        f"{'M' if place == 0 else 'L'}{x:.1f} {y:.1f}" for place, (x, y) in enumerate(zip(xs, ys, strict=True))
    )
    body.append(f'<path d="{path}" class="real" style="fill:none"/>')
    body += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" class="fill"/>' for x, y in zip(xs, ys, strict=True)]
    body.append(f'<text x="{wide:g}" y="{height + 14:g}" class="end soft small">{int(days[-1]):,} days</text>')
    return svg(wide, height + 18, body, "The history of one synthetic person")
