"""Ledgers and releases that are wrong on purpose: the suite must see each of them, or it sees nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["WAYS"]


def acknowledged_early() -> None:
    """A spend returns before it is on disk; it is written with the next one, or at the end."""
    from escudo.privacy import Ledger, Receipt

    spend, close = Ledger.spend, Ledger.close
    waiting: list[tuple[Any, ...]] = []

    def written() -> None:
        while waiting:
            ledger, dataset, event, options = waiting.pop(0)
            spend(ledger, dataset, event, **options)

    def early(self: Ledger, dataset: str, event: Any, **options: Any) -> Receipt:
        written()
        if not self.fits(dataset, event):
            return spend(self, dataset, event, **options)
        waiting.append((self, dataset, event, options))
        return Receipt(dataset=dataset, sequence=1, event=event, recorded_at="")

    def closed(self: Ledger) -> None:
        written()
        close(self)

    Ledger.spend, Ledger.close = early, closed  # type: ignore[method-assign]
    Ledger.fail = lambda *_, **__: None  # type: ignore[method-assign,assignment]


def refunded() -> None:
    """A spend that is marked failed is given back: something else may be spent in its place, off the account."""
    from escudo.errors import BudgetExceededError
    from escudo.privacy import Ledger

    spend = Ledger.spend

    def generous(self: Ledger, dataset: str, event: Any, **options: Any) -> Any:
        try:
            return spend(self, dataset, event, **options)
        except BudgetExceededError:
            if not any(row.kind == "failed" for row in self.history(dataset)):
                raise
            self.open("given back", epsilon=1000.0)
            return spend(self, "given back", event, **options)

    Ledger.spend = generous  # type: ignore[method-assign]


def charged_late() -> None:
    """A number is given out before it is charged, with the next one."""
    from escudo import mechanisms

    laplace = mechanisms.laplace

    def late(values: Any, *, account: Any = None, purpose: str = "", **options: Any) -> Any:
        release = laplace(values, account=None, **options)
        spend = type(account.ledger).spend

        def caught_up(self: Any, *arguments: Any, **more: Any) -> Any:
            type(account.ledger).spend = spend
            spend(account.ledger, account.dataset, release.event, purpose=purpose)
            return spend(self, *arguments, **more)

        type(account.ledger).spend = caught_up
        return release

    mechanisms.laplace = late  # type: ignore[attr-defined]


def released_before_charged() -> None:
    """A release is written first, and charged when it lies there."""
    from escudo.privacy import MemoryAccount
    from escudo.synthesis import _generators

    charging = _generators.charging

    @contextmanager
    def late(account: Any, plan: Any, *, for_release: bool = True, purpose: str = "") -> Iterator[Any]:
        with charging(MemoryAccount(relation=account.relation), plan, for_release=for_release) as purse:
            yield purse
        account.spend(plan.event, purpose=purpose, for_release=for_release)

    _generators.charging = late  # type: ignore[assignment]


def resumed_twice() -> None:
    """An account lets a training go on from any checkpoint, and end any number of times."""
    from escudo.privacy import LedgerAccount

    LedgerAccount.mark = LedgerAccount.finish = lambda *_, **__: None  # type: ignore[method-assign,assignment]
    LedgerAccount.resume = lambda *_: ""  # type: ignore[method-assign,assignment]


def copied_into_place() -> None:
    """A release is copied to where it goes, file by file, not renamed."""
    rename = os.rename

    def copied(source: Any, target: Any, **options: Any) -> None:
        if not os.path.isdir(source):
            rename(source, target, **options)
            return
        shutil.copytree(source, target)
        shutil.rmtree(source)

    os.rename = os.replace = copied  # type: ignore[assignment]


WAYS: dict[str, Callable[[], None]] = {
    "acknowledged-early": acknowledged_early,
    "refunded": refunded,
    "charged-late": charged_late,
    "released-before-charged": released_before_charged,
    "copied-into-place": copied_into_place,
    "resumed-twice": resumed_twice,
}
