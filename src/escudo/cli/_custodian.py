"""What ``escudo evaluate`` and ``escudo attack`` do with a finding that only the custodian may see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escudo.cli._arguments import never_lost
from escudo.cli._console import emit

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["deliver"]


def deliver(
    payload: Mapping[str, Any],
    *,
    human: Callable[[Console], None],
    as_json: bool,
    page: Callable[[], str],
    out: Path | None,
    copy: Callable[[], Path] | None,
) -> None:
    """Add a finding to the custodian's copy of a report, write its own page, and show it, whether or not that worked.

    Args:
        payload: The finding for programs.
        human: Shows it to people.
        as_json: For whom it is.
        page: Makes its page.
        out: Where the page goes; None for no page.
        copy: Adds it to a release's copy and returns where that is; None without a release.
    """
    from escudo.report import write

    written: dict[str, Path] = {}

    def show(_: bool) -> None:
        def both(screen: Console) -> None:
            human(screen)
            for path in written.values():
                screen.print(f"NOT FOR RELEASE: {path}", markup=False)

        places = {name: str(written[name]) if name in written else None for name in ("page", "custodian")}
        emit({**payload, **places}, as_json=as_json, human=both)

    with never_lost(show):
        if copy is not None:
            written["custodian"] = copy()
        if out is not None:
            written["page"] = write(page(), out)
