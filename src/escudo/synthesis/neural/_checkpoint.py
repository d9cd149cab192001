r"""Going on after a stop.

**Checkpoint**: a folder that a stopped release goes on from, without paying twice; and no copy of it without paying. It
holds what was released and paid for before the release was stopped, and nothing else:

* ``start/``: the model that the training starts from, as any model is saved;
* ``training.safetensors``: the training's state between two steps, empty before the first (see
  ``escudo.mechanisms.dpsgd``). In its header: digests of schema, graph, settings, plan and start, the number of the
  spend that pays, and for a seeded run, which is not for release anyway, where its generator stood.

The account knows the digest of that file, and so of all that is in the folder: nothing in it can be replaced by an
older copy or by anything else. Its newest state goes on once for nothing; any other state that was ever marked goes on
if what is left to do is paid for again. The folder is its owner's alone (0700), is locked while a release uses it,
which is before anything is charged, and is gone when the release is done.

*Whose data.* The rows are not compared with those of the stopped run, and no digest of them is kept, keyed or not:
whoever holds a digest and its key, and knows everybody but one, could try that one's values until the digest fits. Nor
is it needed for the guarantee: had the table changed in between, every step would still be a release of the table it
saw, and a person's steps in both together no more than were paid for. What ties a checkpoint to a table is the account:
a checkpoint that the table's account did not pay for is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from escudo._files import sync
from escudo.errors import InputError
from escudo.mechanisms.dpsgd import Kept, TrainingFile, found, go_on, held, keeping
from escudo.privacy import (
    Account,
    Event,
    Plan,
    RepeatedEvent,
    charging,
)
from escudo.synthesis._model import CausalModel

if TYPE_CHECKING:
    pass

_TRAINING = "training.safetensors"


@dataclass(slots=True, kw_only=True)
class Checkpoint:
    """Where a release keeps what it may go on from.

    Attributes:
        folder: The folder.
        facts: Fingerprints of what must be the same, by what it is; all of them of public things.
        start: What measuring the start costs.
        step: What one step of the training costs.
        steps: How many steps there are.
        again: Whether to pay for what is left once more, where it cannot be had for nothing.
    """

    folder: Path
    facts: Mapping[str, str]
    start: Event
    step: Event
    steps: int
    again: bool = False
    _file: TrainingFile | None = field(default=None, init=False, repr=False)

    @property
    def file(self) -> TrainingFile:
        """The training's file, while the folder is used."""
        assert self._file is not None, "a fit with a checkpoint is run inside its paying()"
        return self._file

    @property
    def begun(self) -> bool:
        """Whether the release that uses the folder goes on from a start that was measured before."""
        return "start" in self.file.about

    @property
    def left(self) -> RepeatedEvent:
        """What the steps cost that are left."""
        arrays = self.file.arrays
        return RepeatedEvent(event=self.step, count=self.steps - (int(arrays["step"][0]) if arrays else 0))

    @contextmanager
    def paying(
        self, account: Account, plan: Plan, stream: np.random.Generator | None, *, for_release: bool, purpose: str
    ) -> Iterator[Account]:
        """Use the folder, alone, and charge the plan; or go on from it, and charge nothing or what is left of the plan.

        Whether the folder can be used is found out before anything is charged. It is gone if all goes well.

        Args:
            account: What is charged.
            plan: The whole release.
            stream: The generator of a seeded run; it is put to where it stood.
            for_release: False for a seeded run.
            purpose: Why, for the account.

        Yields:
            An account that pays what the plan shows, as ``escudo.privacy.charging`` gives it.

        Raises:
            InputError: If the folder cannot be used, another process uses it, it is the checkpoint of another release
                or of another account, or the account does not let it go on. Nothing was spent.
            BudgetExceededError: If the account does not allow what is to be charged; nothing was spent.
        """
        assert plan.event is not None, "a network is trained"
        facts = self._all_facts(plan, stream)
        marking = keeping(account)
        terms: dict[str, Any] = {"for_release": for_release, "purpose": purpose}
        with self._held():
            kept, left = found(self.folder / _TRAINING, marking), plan
            if kept is None:
                receipt = marking.spend(plan.event, **terms)
                self._file = TrainingFile(self.folder / _TRAINING, marking, receipt, {"facts": json.dumps(facts)})
            else:
                left = self._left(kept, plan, facts)
                assert left.event is not None, "the last step is never kept"
                self._file = go_on(kept, marking, left.event, delta=plan.stated_delta, again=self.again, **terms)
                if stream is not None:
                    stream.bit_generator.state = json.loads(kept.about["generator"])
            try:
                with charging(account, left, for_release=for_release, receipt=self.file.receipt) as paying:
                    yield paying
            finally:
                self._file = None
            shutil.rmtree(self.folder, ignore_errors=True)

    def due(self, account: Account, plan: Plan, *, seed: np.random.Generator | None) -> tuple[bool, Event | None]:
        """Return whether :meth:`paying` would go on from the folder, and what it would charge; None for nothing.

        Nothing is spent, recorded or changed. What cannot go on for nothing is charged for only with ``again``.

        Raises:
            InputError: If it is the checkpoint of another release or of another account.
        """
        marking = keeping(account)
        kept = found(self.folder / _TRAINING, marking, look=True)
        if kept is None:
            return False, plan.event
        left = self._left(kept, plan, self._all_facts(plan, seed))
        return True, None if marking.goes_on(kept.receipt, kept.number, kept.digest) else left.event

    def _left(self, kept: Kept, plan: Plan, facts: Mapping[str, str]) -> Plan:
        """Return what is left of a plan, once it is sure that the folder is of this release."""
        self._require(kept, facts)
        return plan.less(self.start, *([RepeatedEvent(event=self.step, count=kept.done)] if kept.done else []))

    def _all_facts(self, plan: Plan, stream: np.random.Generator | None) -> dict[str, str]:
        assert plan.event is not None, "a network is trained"
        state = "none" if stream is None else digest(stream.bit_generator.state)
        return {**self.facts, "plan": digest(plan.event.to_json()), "seed": state}

    def require_same(self) -> None:
        """Refuse to go on with another schema, graph or other settings than the stopped release had.

        Raises:
            InputError: If they differ; says which. Nothing is spent.
        """
        from safetensors import SafetensorError, safe_open

        path = self.folder / _TRAINING
        if not path.exists():
            return
        try:
            with safe_open(path, framework="numpy") as file:
                about = json.loads((file.metadata() or {})["about"])
        except (OSError, SafetensorError, ValueError, KeyError):
            raise InputError(f"{self.folder} is no readable checkpoint.") from None
        self._require_facts(about, self.facts)

    def _require(self, kept: Kept, facts: Mapping[str, str]) -> None:
        """Refuse a folder that was made for another release, or parts of which were put there from elsewhere."""
        self._require_facts(kept.about, facts)
        if kept.about.get("start") != self._start_digest():
            raise InputError(
                f"{self.folder} is no readable checkpoint: its start is not the one that its training began with. Put "
                "the folder back as it was, or remove it and begin again. Nothing was spent."
            )

    def _require_facts(self, about: Mapping[str, str], facts: Mapping[str, str]) -> None:
        known = json.loads(about.get("facts", "{}"))
        if differ := [name for name, value in facts.items() if known.get(name) != value]:
            raise InputError(
                f"{self.folder} is the checkpoint of another release: {' and '.join(differ)} differ. Give what that "
                "release was given, or another folder. Nothing was spent."
            )

    def keep_start(self, start: CausalModel, stream: np.random.Generator | None) -> None:
        """Keep the model that the training starts from, and where a seeded generator stands."""
        start.save(self.folder / "start", overwrite=True)
        sync(*self._start_files(), self.folder / "start", self.folder)
        self.file.about["start"] = self._start_digest()
        if stream is not None:
            self.file.about["generator"] = json.dumps(stream.bit_generator.state, default=int)
        self.file.keep({})

    def read_start(self) -> CausalModel:
        """Return the model that the training starts from."""
        from escudo.synthesis._files import load

        start = load(self.folder / "start")
        assert isinstance(start, CausalModel), "its digest is known"
        return start

    def _start_files(self) -> list[Path]:
        return sorted(path for path in (self.folder / "start").rglob("*") if path.is_file())

    def _start_digest(self) -> str:
        return digest(
            {
                path.relative_to(self.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
                for path in self._start_files()
            }
        )

    @contextmanager
    def _held(self) -> Iterator[None]:
        def opened() -> int:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self.folder, os.O_RDONLY)

        with held(self.folder, opened, self.folder):
            try:
                yield
            finally:
                with suppress(OSError):
                    self.folder.rmdir()  # if nothing was kept


def digest(facts: object) -> str:
    """Return a fingerprint of JSON values."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
