"""The release folder: written as a whole, or not at all.

Everything is written into a hidden folder beside the target, flushed to disk, and renamed. An error, Ctrl-C or a signal
to end before that leaves the target as it was; after it the release is there, and the command line takes no signals
until it has said so. An earlier release is *exchanged* with the new one in one step of the file system (``renameat2``
on Linux, ``renameatx_np`` on macOS): at every instant the target is the whole old release or the whole new one, also if
the process is killed. Where the system cannot exchange, the old one is moved aside first; a process
that is killed between the two steps leaves no target, and the next release to that place, which looks first, moves it
back. What a kill may leave besides is a hidden folder that nothing reads.

A page that compares with the real table is no part of a release, so it never lies in the folder that is handed over but
beside it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from escudo._validate import positive_integer
from escudo.errors import InputError
from escudo.report._csv import write_csv
from escudo.report._custodian_page import comparison_section
from escudo.report._custodian_report import beside, custodian_copy, private_draft
from escudo.report._page import is_report
from escudo.report._record import FileEntry, is_record, release_record
from escudo.report._release_page import release_page

if TYPE_CHECKING:
    from escudo.synthesis import Model
    from escudo.table import PrivateTable
    from escudo.utility import PrivateEvaluation

__all__ = ["ReleaseFiles", "check_target", "write_release"]

_SYNTHETIC, _CSV, _MODEL, _RECORD, _REPORT = (
    "synthetic.parquet",
    "synthetic.csv",
    "model",
    "release.json",
    "report.html",
)
_ASIDE = ".old"
_NAMES = frozenset((_SYNTHETIC, _CSV, _MODEL, _RECORD, _REPORT))


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
        custodian: The custodian's copy of the report, which compares with the real table, beside the folder; None
            unless asked for. Not for release.
        evaluation: What was paid for to know about the rows; None unless asked for.
    """

    directory: Path
    synthetic: Path
    csv: Path | None
    model: Path
    record: Path
    report: Path
    custodian: Path | None
    evaluation: PrivateEvaluation | None

    def _repr_html_(self) -> str:
        parts = {
            "report": "open this",
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


def write_release(
    model: Model,
    directory: str | os.PathLike[str],
    *,
    rows: int,
    dataset: str = "",
    csv: bool = False,
    seed: int | None = None,
    table: PrivateTable | None = None,
    evaluate: Callable[[object], PrivateEvaluation] | None = None,
    overwrite: bool = False,
    before_naming: Callable[[], object] | None = None,
) -> ReleaseFiles:
    """Draw synthetic rows and write them, the model, the record and the report into one folder, all or nothing.

    Args:
        model: The fitted model. Everything in the folder follows from it, so nothing further is spent.
        directory: The folder; made if it does not exist.
        rows: How many synthetic rows to draw. It is printed: pass a public number.
        dataset: What the table is called.
        csv: Whether to write the rows as CSV as well; texts that a spreadsheet would run as a formula start with an
            apostrophe there (``escudo.report._csv``).
        seed: To draw the same rows again. The noise is drawn already and does not depend on it.
        table: The private table. Given, a copy of the report that compares it with the synthetic rows *without noise*
            is written beside the folder, as ``NAME-custodian.html``, readable by its owner only and marked on every
            page.
        evaluate: Takes the synthetic rows and returns figures about them that were paid for, for record and report:
            what :func:`escudo.utility.fitting_evaluated` gives along with the model.
        overwrite: Whether an earlier release in that folder may be replaced; nothing else ever is.
        before_naming: Called when all is on disk, just before the folder gets its name. From then on the release is
            there: a program that can be stopped by signals should hold them back here until it is done with it.

    Raises:
        InputError: If the folder holds something else, or cannot be written; the target is then as it was.

    **Guarantee.** The folder's contents are post-processing of the model, and of the figures that its plan paid for:
    ``model.guarantee`` holds for them. The custodian's copy has no guarantee at all.
    """
    from polars.exceptions import PolarsError

    count = positive_integer("rows", rows)
    if table is not None and table.schema != model.schema:
        raise InputError("table has another schema than the model was fitted with; pass the table that was released.")
    target, copy = check_target(directory, custodian=table is not None, overwrite=overwrite)
    made = _now()
    synthetic = model.sample(count, seed=seed)
    evaluation = None if evaluate is None else evaluate(synthetic)
    try:
        with _draft_of(target) as draft, ExitStack() as stack:
            copy_draft = None if copy is None else stack.enter_context(private_draft(copy))
            synthetic.write_parquet(draft / _SYNTHETIC)
            if csv:
                write_csv(synthetic, draft / _CSV)
            model.save(draft / _MODEL)
            entries = [FileEntry.of(draft, path) for path in _files_in(draft)]
            page = release_page(model, synthetic, dataset=dataset, made=made, entries=entries, evaluation=evaluation)
            (draft / _REPORT).write_text(page, encoding="utf-8")
            entries.append(FileEntry.of(draft, _REPORT))
            record = release_record(
                model, rows=count, dataset=dataset, seed=seed, made=made, entries=entries, evaluation=evaluation
            )
            text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
            (draft / _RECORD).write_text(text, encoding="utf-8")
            if table is not None and copy_draft is not None:
                section = comparison_section(table, synthetic, dataset=dataset)
                copy_draft.write_text(custodian_copy(page, {"comparison": section}), encoding="utf-8")
            _flush(draft)
            if before_naming is not None:
                before_naming()
            _put(draft, target)
            if copy_draft is not None and copy is not None:
                copy_draft.replace(copy)
    except (OSError, PolarsError) as error:
        reason = getattr(error, "strerror", None) or "input/output error"
        raise InputError(f"The release could not be written to '{target}': {reason}.") from None
    return ReleaseFiles(
        directory=target,
        synthetic=target / _SYNTHETIC,
        csv=target / _CSV if csv else None,
        model=target / _MODEL,
        record=target / _RECORD,
        report=target / _REPORT,
        custodian=copy,
        evaluation=evaluation,
    )


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
    copy = beside(target) if custodian else None
    _repair(target)
    _check_target(target, overwrite=overwrite)
    if copy is not None:
        _check_beside(copy, overwrite=overwrite)
    _try_writing(target, copy)
    return target, copy


def _try_writing(target: Path, copy: Path | None) -> None:
    """Make the drafts, and take them away again: what the disk, the rights or a long name refuse is refused now."""
    new = [parent for parent in target.parents if not os.path.exists(parent)]
    try:
        with _draft_of(target), ExitStack() as stack:
            if copy is not None:
                stack.enter_context(private_draft(copy))
    except OSError as error:
        raise InputError(f"'{target}' cannot be made: {error.strerror or 'input/output error'}.") from None
    finally:
        for parent in new:
            with suppress(OSError):
                parent.rmdir()


def _now() -> datetime:
    return datetime.now(UTC)


def _check_target(target: Path, *, overwrite: bool) -> None:
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


def _check_beside(path: Path, *, overwrite: bool) -> None:
    """Refuse to replace anything but, with ``overwrite``, an earlier page."""
    try:
        if os.path.exists(path) and not (overwrite and is_report(path)):
            hint = "is no report of escudo" if overwrite else "exists already"
            raise InputError(f"'{path}' {hint}; move it away, or name another folder.")
    except OSError as error:
        raise InputError(f"'{path}' cannot be read: {error.strerror or 'input/output error'}.") from None


@contextmanager
def _draft_of(target: Path) -> Iterator[Path]:
    """Give an empty hidden folder beside the target; whatever is left of it at the end is removed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    draft.mkdir()
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _put(draft: Path, target: Path) -> None:
    """Give the draft the target's name; an earlier release gets the draft's, or is moved aside, and is removed."""
    if not target.exists():
        draft.rename(target)
    elif not _exchanged(draft, target):
        old = draft.with_name(draft.name + _ASIDE)
        try:
            target.rename(old)
            draft.rename(target)
        finally:
            if old.exists() and not target.exists():
                old.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    _sync(target.parent)


def _repair(target: Path) -> None:
    """Move an earlier release back that a process moved aside before it was killed; see ``_put``."""
    if os.path.exists(target):
        return
    aside = re.compile(re.escape(f".{target.name}.") + r"[0-9a-f]{8}\.part" + re.escape(_ASIDE))
    with suppress(OSError, ValueError):  # a place that cannot be read is refused where it is written
        for old in [path for path in target.parent.iterdir() if aside.fullmatch(path.name)][:1]:
            old.rename(target)


def _exchanged(first: Path, second: Path) -> bool:
    """Exchange the names of two folders in one step; return False, and change nothing, where that cannot be done."""
    import ctypes

    names = {"linux": "renameat2", "darwin": "renameatx_np"}
    try:
        rename = getattr(ctypes.CDLL(None, use_errno=True), names[sys.platform])
    except (KeyError, OSError, AttributeError):
        return False
    here, exchange = {"linux": -100, "darwin": -2}[sys.platform], 2  # AT_FDCWD; RENAME_EXCHANGE and RENAME_SWAP
    return bool(rename(here, os.fsencode(first), here, os.fsencode(second), exchange) == 0)


def _files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _flush(folder: Path) -> None:
    """Have everything on disk before the name changes, so that a crash cannot leave names without contents.

    Files are made as readable as the folder, whose mode follows the user's umask: they are meant to be handed over.
    """
    mode = folder.stat().st_mode
    for path in (*folder.rglob("*"), folder):
        path.chmod(mode & (0o777 if path.is_dir() else 0o666))
        _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
