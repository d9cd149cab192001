"""A folder that a stopped release goes on from, without paying twice.

It holds what was released and paid for before the release was stopped, and nothing else:

* ``start/``: the model that the training starts from, as any model is saved;
* ``training.safetensors``: the training's state between two steps (see ``escudo.mechanisms.dpsgd``);
* ``record.json``: digests of schema, graph and settings, the account's receipt, and for a seeded run, which is not for
  release anyway, where its generator stood.

The folder is its owner's alone (0700), is locked while a release uses it, and is gone when the release is done.

**Whose data.** The rows are not compared with those of the stopped run, and no digest of them is kept, keyed or not:
whoever holds a digest and its key, and knows everybody but one, could try that one's values until the digest fits. Nor
is it needed for the guarantee: had the table changed in between, every step would still be a release of the table it
saw, and a person's steps in both together no more than were paid for. What ties a checkpoint to a table is the account:
a receipt that the table's account does not hold pays for nothing, and the plan is charged anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from escudo.errors import InputError
from escudo.mechanisms.dpsgd._checkpoint import held, write_privately
from escudo.privacy import Account, Event, MemoryAccount, Receipt
from escudo.synthesis._model import CausalModel

__all__ = ["Checkpoint", "MadeBefore", "digest", "paid"]

_RECORD = "record.json"


def digest(facts: object) -> str:
    """Return a fingerprint of JSON values."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where a release keeps what it may go on from.

    Attributes:
        folder: The folder.
        facts: Fingerprints of what must be the same, by what it is; all of them of public things.
    """

    folder: Path
    facts: Mapping[str, str]

    @property
    def training(self) -> Path:
        """The file of the training's state."""
        return self.folder / "training.safetensors"

    @property
    def begun(self) -> bool:
        """Whether a release was stopped here after its start was measured."""
        return (self.folder / _RECORD).is_file()

    def require_left(self, receipt: Receipt) -> None:
        """Refuse a charge that was made for a stopped release, where that has been finished meanwhile.

        Whoever looks for a charge does so before the folder is locked (:func:`paid`), and the process that held it may
        have come to its end in between: the charge has had its release.

        Raises:
            InputError: If so.
        """
        if isinstance(receipt, MadeBefore) and not self.begun:
            raise InputError(
                f"the release that {self.folder} was a checkpoint of was finished meanwhile, by another process. Run "
                "this again for another release, at its full price."
            )

    def require_same(self) -> None:
        """Refuse to go on with another schema, graph or other settings than the stopped release had.

        Raises:
            InputError: If they differ; says which. Nothing is spent.
        """
        if not self.begun:
            return
        known = _read(self.folder)["facts"]
        if differ := [name for name, value in self.facts.items() if known.get(name) != value]:
            raise InputError(
                f"{self.folder} is the checkpoint of another release: {' and '.join(differ)} differ. Give what that "
                "release was given, or another folder. Nothing was spent."
            )

    def write(self, start: CausalModel, receipt: Receipt, seed: np.random.Generator | None) -> None:
        """Keep the model that the training starts from, what paid for it, and where a seeded generator stands."""
        start.save(self.folder / "start", overwrite=True)
        record = {
            "facts": dict(self.facts),
            "receipt": {
                "dataset": receipt.dataset,
                "sequence": receipt.sequence,
                "recorded_at": receipt.recorded_at,
                "hash": receipt.hash,
            },
            "generator": None if seed is None else seed.bit_generator.state,
        }
        write_privately(self.folder / _RECORD, json.dumps(record, default=int).encode())

    def read(self, seed: np.random.Generator | None) -> CausalModel:
        """Return the model that the training starts from, and put a seeded generator to where it stood."""
        from escudo.synthesis._files import load

        start, state = load(self.folder / "start"), _read(self.folder)["generator"]
        if not isinstance(start, CausalModel) or (state is None) != (seed is None):
            raise InputError(f"{self.folder} is the checkpoint of another release: its seed differs.")
        if seed is not None:
            seed.bit_generator.state = state
        return start

    @contextmanager
    def held(self) -> Iterator[None]:
        """Use the folder, alone; it is gone if all goes well.

        Raises:
            InputError: If it cannot be made, or another process uses it.
        """

        def opened() -> int:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self.folder, os.O_RDONLY)

        with held(self.folder, opened, self.folder):
            yield
            shutil.rmtree(self.folder, ignore_errors=True)


def paid(folder: str | os.PathLike[str], account: Account) -> Account:
    """Return the account, without a second charge for a release that was stopped and goes on from ``folder``.

    The same plan as was charged then is not charged again, once, if the account holds that charge. Anything else is
    charged as ever; so is everything where the folder holds no checkpoint, or one that was paid from another account.
    """
    if not (Path(folder) / _RECORD).is_file():
        return account
    wanted = _read(Path(folder))["receipt"]
    found = next((receipt for receipt in _receipts(account, wanted) if _matches(receipt, wanted)), None)
    return account if found is None else _Paid(account, found)


class MadeBefore(Receipt):
    """The receipt of a charge that a stopped release made, and that is not made again; equal to the first one."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        same = (getattr(self, field.name) == getattr(other, field.name) for field in fields(Receipt))
        return isinstance(other, Receipt) and all(same)

    __hash__ = Receipt.__hash__


class _Paid:
    """An account that takes one charge as made before."""

    def __init__(self, account: Any, receipt: Receipt):
        self._account, self._receipt, self._used = account, receipt, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._account, name)

    def spend(self, event: Event, *, purpose: str = "", for_release: bool = True) -> Receipt:
        """Return the receipt of the same charge, once; or charge the account."""
        same = self._account.terms.admitted(event) == self._receipt.event
        if same and for_release == self._receipt.for_release and not self._used:
            self._used = True
            return MadeBefore(**{field.name: getattr(self._receipt, field.name) for field in fields(Receipt)})
        charged: Receipt = self._account.spend(event, purpose=purpose, for_release=for_release)
        return charged


def _receipts(account: Account, wanted: Mapping[str, Any]) -> Iterator[Receipt]:
    """Yield the account's charges, as its receipts."""
    if isinstance(account, MemoryAccount):
        yield from account.receipts
        return
    from escudo.privacy import LedgerAccount  # loads a database library

    if isinstance(account, LedgerAccount) and account.dataset == wanted["dataset"]:
        for row in account.ledger.history(account.dataset):
            if row.kind == "spend" and row.event is not None:
                yield Receipt(
                    dataset=row.dataset,
                    sequence=row.sequence,
                    event=row.event,
                    purpose=row.payload["purpose"],
                    for_release=row.payload["for_release"],
                    recorded_at=row.recorded_at,
                    hash=row.hash,
                )


def _matches(receipt: Receipt, wanted: Mapping[str, Any]) -> bool:
    return all(getattr(receipt, name) == value for name, value in wanted.items())


def _read(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        if {"facts", "receipt", "generator"} <= set(record):
            return dict(record)
    except (OSError, ValueError, TypeError):
        pass
    raise InputError(f"{folder} is no readable checkpoint.")
