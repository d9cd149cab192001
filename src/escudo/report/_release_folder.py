"""The release folder, and beside it the custodian's copy of its report.

The folder appears as a whole, or not at all (``escudo/_files.py``): all its files are flushed to disk before it gets
its name, and an earlier release is exchanged with the new one in one step. An error, Ctrl-C or a signal to end before
that leaves the place as it was; after it the release is there, and the command line takes no signals until it has said
so.

``report.html`` is never changed after a release. What compares with the real table is no part of it: a copy of the
report lies beside the folder that is handed over, as ``NAME-custodian.html``, readable by its owner only. It holds the
public page word for word, marked on the screen and on every printed page, with one section for each thing that was
looked at: the comparison with the real rows, what can be learnt from the synthetic ones, what an attacker could learn.
Sections gather: each is replaced by a newer one of its kind, and all go when the folder holds another release.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from escudo._card import CUSTODIAN_ONLY
from escudo._files import (
    file_draft,
    folder_draft,
    mark_of,
    metadata_of,
    put_folder,
    repair_folder,
    sync,
    write_rows,
)
from escudo._validate import positive_integer
from escudo.errors import InputError
from escudo.report._accuracy import Expected
from escudo.report._explore import explorable, explore_page
from escudo.report._page import fragment, is_report
from escudo.report._release_report import FileEntry, is_record, release_page, release_record

if TYPE_CHECKING:
    import polars as pl

    from escudo.attacks import Attack
    from escudo.synthesis import Forecast, Model
    from escudo.table import PrivateTable
    from escudo.utility import Evaluation, PrivateEvaluation, Rows

# ---- the folder

_SYNTHETIC, _CSV, _MODEL = "synthetic.parquet", "synthetic.csv", "model"
_RECORD, _REPORT, _EXPLORE = "release.json", "report.html", "explore.html"
_TABLES = "synthetic"  # the folder of the rows of linked tables
_HELD = 2**20
"""So many synthetic rows are held in memory; more of them are drawn and written some at a time."""

_NAMES = frozenset((_SYNTHETIC, _TABLES, _CSV, _MODEL, _RECORD, _REPORT, _EXPLORE))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFiles:
    """Where the parts of a release lie.

    Attributes:
        directory: The folder to hand over.
        synthetic: The synthetic rows.
        csv: The same rows as text, if asked for.
        model: The folder of the model, to be sampled again.
        record: The machine-readable record.
        report: The page for people.
        explore: The page that asks the model what if; None for a model that no browser could.
        custodian: The custodian's copy of the report, which compares with the real table, beside the folder; None
            unless asked for. Not for release.
        evaluation: What was paid for to know about the rows; None unless asked for.
        rows: How many synthetic rows there are.
        fitted: The model itself.
    """

    directory: Path
    synthetic: Path
    csv: Path | None
    model: Path
    record: Path
    report: Path
    explore: Path | None
    custodian: Path | None
    evaluation: PrivateEvaluation | None
    rows: int
    fitted: Model = field(repr=False, compare=False)

    def _repr_html_(self) -> str:
        parts = {
            "report": "open this",
            "explore": "what if",
            "synthetic": "the rows",
            "csv": "the same as text",
            "model": "sample it again, or under an intervention",
            "record": "for machines",
            "custodian": "NOT FOR RELEASE",
        }
        rows = "".join(
            f"<tr><td><code>{escape(path.name)}</code></td><td>{words}</td></tr>"
            for name, words in parts.items()
            if (path := getattr(self, name)) is not None
        )
        figures = "" if self.evaluation is None else self.evaluation._repr_html_()
        return f"<div><strong>Released to {escape(self.directory.name)}</strong><table>{rows}</table>{figures}</div>"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseWriting:
    """How :func:`write_release` writes a release.

    Attributes:
        rows: How many synthetic rows to draw. It is printed: pass a public number. Beyond a million they are never all
            in memory: pages count them in their file.
        dataset: What the table is called.
        csv: Whether to write the rows as CSV as well; texts that a spreadsheet would run as a formula start with an
            apostrophe there (``escudo._files``).
        seed: To draw the same rows again. The noise is drawn already and does not depend on it.
        table: The private table. Given, a copy of the report that compares it with the synthetic rows *without noise*
            is written beside the folder, as ``NAME-custodian.html``, readable by its owner only and marked on every
            page.
        evaluate: Takes the synthetic rows, about a million of them at most, and returns figures about them that were
            paid for, for record and report: what :func:`escudo.utility.fitting_evaluated` gives along with the model.
        overwrite: Whether an earlier release in that folder may be replaced; nothing else ever is.
        before_naming: Called when all is on disk, just before the folder gets its name. From then on the release is
            there: a program that can be stopped by signals should hold them back here until it is done with it.
        config: Name and SHA-256 of the file that said what to release, for the record; None where there was none.
        forecast: What was expected of the release before it was made, for record and report.
    """

    rows: int
    dataset: str = ""
    csv: bool = False
    seed: int | None = None
    table: PrivateTable | None = None
    evaluate: Callable[[object], PrivateEvaluation] | None = None
    overwrite: bool = False
    before_naming: Callable[[], object] | None = None
    config: Mapping[str, str] | None = None
    forecast: Forecast | None = None

    def write(self, model: Model, directory: str | os.PathLike[str]) -> ReleaseFiles:
        """Write it; see :func:`write_release`."""
        from polars.exceptions import PolarsError

        from escudo.synthesis import CausalModel

        count = positive_integer("rows", self.rows)
        table = None if self.table is None else self.table.binned_as(model.schema)
        if table is not None and table.schema != model.schema:
            raise InputError(
                "table has another schema than the model was fitted with; pass the table that was released."
            )
        target, copy = check_target(directory, custodian=table is not None, overwrite=self.overwrite)
        made = _now()
        first, blocks = _begun(model.blocks(count, seed=self.seed))
        evaluation = None if self.evaluate is None else self.evaluate(first)
        told: dict[str, Any] = {"dataset": self.dataset, "made": made, "evaluation": evaluation}
        told["expected"] = Expected.of(model, self.forecast)
        try:
            with folder_draft(target) as draft, ExitStack() as stack:
                copy_draft = None if copy is None else stack.enter_context(file_draft(copy, private=True))
                synthetic = _written(first, blocks, count, draft, mark_of(model.guarantee))
                del first
                if self.csv:
                    write_rows(_read(synthetic), draft / _CSV)
                model.save(draft / _MODEL)
                if asked_in_a_browser := explorable(model):
                    assert isinstance(model, CausalModel)
                    (draft / _EXPLORE).write_text(explore_page(model, dataset=self.dataset), encoding="utf-8")
                told["entries"] = [FileEntry.of(draft, path) for path in _files_in(draft)]
                page = release_page(model, synthetic, **told)
                (draft / _REPORT).write_text(page, encoding="utf-8")
                told["entries"].append(FileEntry.of(draft, _REPORT))
                record = release_record(model, rows=count, seed=self.seed, **told)
                if self.config is not None:
                    record["made"]["config"] = dict(self.config)
                text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
                (draft / _RECORD).write_text(text, encoding="utf-8")
                if table is not None and copy_draft is not None:
                    from escudo.report._custodian import comparison_section

                    section = comparison_section(table, synthetic, self.dataset)
                    copy_draft.write_text(_copy(page, {"comparison": section}), encoding="utf-8")
                _flush(draft)
                if self.before_naming is not None:
                    self.before_naming()
                put_folder(draft, target)
                if copy_draft is not None and copy is not None:
                    copy_draft.replace(copy)
        except (OSError, PolarsError) as error:
            reason = getattr(error, "strerror", None) or "input/output error"
            raise InputError(f"The release could not be written to '{target}': {reason}.") from None
        return ReleaseFiles(
            directory=target,
            synthetic=target / _SYNTHETIC,
            csv=target / _CSV if self.csv else None,
            model=target / _MODEL,
            record=target / _RECORD,
            report=target / _REPORT,
            explore=target / _EXPLORE if asked_in_a_browser else None,
            custodian=copy,
            evaluation=evaluation,
            rows=count,
            fitted=model,
        )


class WriteOptions(TypedDict, total=False):
    """What :func:`write_release` takes beside the number of rows: the fields of :class:`ReleaseWriting`, which see."""

    dataset: str
    csv: bool
    seed: int | None
    table: PrivateTable | None
    evaluate: Callable[[object], PrivateEvaluation] | None
    overwrite: bool
    before_naming: Callable[[], object] | None
    config: Mapping[str, str] | None
    forecast: Forecast | None


def write_release(
    model: Model, directory: str | os.PathLike[str], *, rows: int, **how: Unpack[WriteOptions]
) -> ReleaseFiles:
    """Draw synthetic rows and write them, the model, the record and the report into one folder, all or nothing.

    Args:
        model: The fitted model. Everything in the folder follows from it, so nothing further is spent.
        directory: The folder; made if it does not exist.
        rows: How many synthetic rows to draw. It is printed: pass a public number.
        how: How else it is written (:class:`WriteOptions`).

    Raises:
        InputError: If the folder holds something else, or cannot be written; the target is then as it was.

    **Guarantee.** The folder's contents are post-processing of the model, and of the figures that its plan paid for:
    ``model.guarantee`` holds for them. The custodian's copy has no guarantee at all.
    """
    return ReleaseWriting(rows=rows, **how).write(model, directory)


def _begun(blocks: Iterator[pl.DataFrame]) -> tuple[pl.DataFrame, Iterator[pl.DataFrame]]:
    """Return the first of the synthetic rows, and what draws the others."""
    import polars as pl

    held = [next(blocks)]
    while sum(frame.height for frame in held) < _HELD and (frame := next(blocks, None)) is not None:
        held.append(frame)
    return pl.concat(held), blocks


def _written(
    first: pl.DataFrame, blocks: Iterator[pl.DataFrame], count: int, folder: Path, mark: str
) -> pl.DataFrame | pl.LazyFrame:
    """Write the synthetic rows; return them as they are held, or where there are more of them, as they are written."""
    import polars as pl

    if first.height == count:
        first.write_parquet(folder / _SYNTHETIC, **metadata_of(mark))
        return first
    write_rows(chain([first], blocks), folder / _SYNTHETIC, mark=mark)
    return pl.scan_parquet(glob.escape(str(folder / _SYNTHETIC)))


def _read(synthetic: pl.DataFrame | pl.LazyFrame) -> Iterator[pl.DataFrame]:
    import polars as pl

    if isinstance(synthetic, pl.DataFrame):
        return iter([synthetic])
    return synthetic.collect_batches(chunk_size=2**18, maintain_order=True, engine="streaming")


def check_target(
    directory: str | os.PathLike[str], *, custodian: bool = False, overwrite: bool = False
) -> tuple[Path, Path | None]:
    """Check that a release can be written there, before anything is spent on it.

    Args:
        directory: The folder to hand over.
        custodian: Whether a copy for the custodian will be written beside it.
        overwrite: Whether an earlier release may be replaced.

    Returns:
        The folder, and where the custodian's copy of the report will be; None without one.

    Raises:
        InputError: If something else is in the way, or the place cannot be written to.
    """
    target = Path(directory).resolve()
    copy = _beside(target) if custodian else None
    repair_folder(target)
    _check_target(target, overwrite)
    if copy is not None:
        _check_beside(copy, overwrite)
    _try_writing(target, copy)
    return target, copy


def _try_writing(target: Path, copy: Path | None) -> None:
    """Make the drafts, and take them away again: what the disk, the rights or a long name refuse is refused now."""
    new = [parent for parent in target.parents if not os.path.exists(parent)]
    try:
        with folder_draft(target), ExitStack() as stack:
            if copy is not None:
                stack.enter_context(file_draft(copy, private=True))
    except OSError as error:
        raise InputError(f"'{target}' cannot be made: {error.strerror or 'input/output error'}.") from None
    finally:
        for parent in new:
            with suppress(OSError):
                parent.rmdir()


def _now() -> datetime:
    return datetime.now(UTC)


def _check_target(target: Path, overwrite: bool) -> None:
    """Refuse a target that holds anything but, with ``overwrite``, an earlier release."""
    if not os.path.exists(target):  # unlike Path's, it takes any name; one that is unusable cannot be written
        return
    if not target.is_dir():
        raise InputError(f"'{target}' is a file; name a folder for the release.")
    try:
        inside = sorted(entry.name for entry in target.iterdir())
    except OSError as error:
        raise InputError(f"'{target}' cannot be read: {error.strerror or 'input/output error'}.") from None
    if not inside:
        return
    foreign = [name for name in inside if name not in _NAMES]
    if foreign or not is_record(target / _RECORD):
        what = f", such as '{foreign[0]}'" if foreign else ""
        raise InputError(
            f"'{target}' holds files that are no release of escudo{what}; name another folder. They were not touched."
        )
    if not overwrite:
        raise InputError(f"'{target}' holds a release already; name another folder, or pass overwrite=True (--force).")


def _check_beside(path: Path, overwrite: bool) -> None:
    """Refuse to replace anything but, with ``overwrite``, an earlier page."""
    try:
        if os.path.exists(path) and not (overwrite and is_report(path)):
            hint = "is no report of escudo" if overwrite else "exists already"
            raise InputError(f"'{path}' {hint}; move it away, or name another folder.")
    except OSError as error:
        raise InputError(f"'{path}' cannot be read: {error.strerror or 'input/output error'}.") from None


def _files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _flush(folder: Path) -> None:
    """Have everything on disk before the name changes, so that a crash cannot leave names without contents.

    Files are made as readable as the folder, whose mode follows the user's umask: they are meant to be handed over.
    """
    mode = folder.stat().st_mode
    for path in (*folder.rglob("*"), folder):
        path.chmod(mode & (0o777 if path.is_dir() else 0o666))
        sync(path)


# ---- the custodian's copy of its report

_KINDS = ("comparison", "utility", "attack")
"""The sections, in the order they are shown."""
_OF = re.compile(r'<meta name="escudo-release" content="([0-9a-f]{64})">')
_SECTION = re.compile(r"<!-- section (\w+) -->(.*?)<!-- /section -->", re.DOTALL)
_MARKING = re.compile(r"<!-- marking -->.*?<!-- /marking -->", re.DOTALL)
_PLACE = "<!-- sections -->"


def custodian_report(
    directory: str | os.PathLike[str],
    *,
    evaluation: Evaluation | None = None,
    rows: tuple[object, Rows] | None = None,
    attack: Attack | None = None,
) -> Path:
    """Add what was found to the custodian's copy of a release's report, and return where that is.

    Args:
        directory: The release folder; nothing in it is changed.
        evaluation: How useful its synthetic rows are.
        rows: Real rows, or a frame of them, and synthetic ones, to draw pairs of columns for the evaluation.
        attack: What an attacker could learn from its generator.

    Raises:
        InputError: If the folder holds no release, its report was changed since, or something else is in the way.

    **Guarantee.** None: the copy shows exact figures of the private table. The release stays as it was.
    """
    from escudo.report._custodian import attack_section, evaluation_section

    page, path, found = _open(directory)
    if evaluation is not None:
        found["utility"] = evaluation_section(evaluation, rows)
    if attack is not None:
        found["attack"] = attack_section(attack)
    try:
        with file_draft(path, private=True) as draft:
            draft.write_text(_copy(page, found), encoding="utf-8")
            draft.replace(path)
    except OSError as error:
        raise InputError(f"'{path}' cannot be written: {error.strerror or 'input/output error'}.") from None
    return path


def check_custodian_report(directory: str | os.PathLike[str]) -> Path:
    """Check that a custodian's copy can be written for a release, before anything is worked out for it.

    Returns:
        Where the copy will be.

    Raises:
        InputError: As :func:`custodian_report`.
    """
    _, path, _ = _open(directory)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise InputError(f"'{path}' cannot be made: nothing can be written in '{path.parent}'.")
    return path


def _open(directory: str | os.PathLike[str]) -> tuple[str, Path, dict[str, str]]:
    """Return the public page of a release, where its custodian's copy is, and the sections it holds."""
    target = Path(directory).resolve()
    page = _public_page(target)
    path = _beside(target)
    return page, path, _gathered(path, of=_fingerprint(page))


def _copy(page: str, sections: Mapping[str, str]) -> str:
    """Return the public page with marks and sections.

    Args:
        page: ``report.html``, as released.
        sections: Markup by kind.
    """
    ordered = {kind: sections[kind] for kind in _KINDS if kind in sections}
    note = fragment("custodian_note.html.j2", kinds=list(ordered))
    gathered = "\n".join(f"<!-- section {kind} -->{html}<!-- /section -->" for kind, html in ordered.items())
    style = fragment("custodian.css")
    head = f'<meta name="escudo-release" content="{_fingerprint(page)}">\n<style>\n{style}</style>\n</head>'
    # Functions in place of texts, as texts are read for backslashes.
    copy = _MARKING.sub(lambda _: str(fragment("custodian_marking.html.j2")), page, count=1)
    copy = copy.replace("</head>", head, 1).replace("<title>", f"<title>{CUSTODIAN_ONLY}: ", 1)
    copy = copy.replace("<main>\n", f"<main>\n{note}\n", 1)
    place = _PLACE if _PLACE in copy else "</main>"
    return copy.replace(place, f"{gathered}\n{place}", 1)


def _beside(target: Path) -> Path:
    """Return where the custodian's copy of a release lies."""
    return target.with_name(f"{target.name}-custodian.html")


def _public_page(target: Path) -> str:
    """Return the released report, or say what is wrong with it."""
    if not is_record(target / _RECORD):
        raise InputError(f"'{target}' holds no release of escudo; name the folder that 'escudo release' wrote.")
    try:
        page = (target / _REPORT).read_text(encoding="utf-8")
        listed = json.loads((target / _RECORD).read_text(encoding="utf-8"))["files"]
        stated = {entry["path"]: entry["sha256"] for entry in listed}
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"the release in '{target}' is not whole: its report or its record cannot be read.") from None
    if stated.get(_REPORT) != _fingerprint(page):
        raise InputError(f"'{target / _REPORT}' was changed after the release; restore it first.")
    return page


def _gathered(path: Path, *, of: str) -> dict[str, str]:
    """Return the sections that an earlier copy holds, if it is of the same release."""
    try:
        if not path.exists():
            return {}
        text = path.read_text(encoding="utf-8", errors="replace")
        stated = _OF.search(text) if is_report(path) else None
    except OSError as error:
        raise InputError(f"'{path}' cannot be read: {error.strerror or 'input/output error'}.") from None
    if stated is None:
        raise InputError(f"'{path}' is no custodian's copy of a report; move it away.")
    if stated[1] != of:
        return {}
    return {kind: html for kind, html in _SECTION.findall(text) if kind in _KINDS}


def _fingerprint(page: str) -> str:
    return hashlib.sha256(page.encode("utf-8")).hexdigest()
