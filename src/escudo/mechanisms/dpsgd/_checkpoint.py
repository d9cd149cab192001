"""A training's file: its state between two steps, which the account that paid for it knows, and lets go on once.

It holds parameters, Adam's memories, the parameters' average and the number of steps: functions of noisy sums that the
training pays for, and of nothing else. No row, no key and no sum of a step under way is ever written, and the number of
steps is one that public numbers allow (``_sampling``), so the file tells no more than the training itself will.

**Copies.** Two trainings that both went on from one state would release its later steps twice, and pay once. So a file
is only ever written together with a row of the account that paid: a draft is written and synced; its digest is marked;
only then does it get its name. Going on takes the newest mark, once, under a nonce that later marks and the end must
show; the end is recorded before the result leaves (``privacy._trainings``). A file that cannot go on for nothing
may go on for the price of the steps that are left: its state was paid for, whatever became of the training since.

**Killed** between the draft and its mark: the file from before goes on. Between mark and name: the draft is the newest,
and gets its name when it is looked for. Between resuming and the mark that follows at once: the steps that are left are
paid for again, as nobody can tell that from a copy that is still running. Between the end and the result: likewise.

**Locks.** Whoever uses a checkpoint also holds a lock for as long as it does: on a file beside a file, on a folder
itself. Two that meet are told so, before either pays. It is the system's lock (``flock``), which goes with the process
that holds it: none is ever stale. What is locked may be gone by then, as a training that is done takes it away; it is
looked at again once the lock is held, and taken anew if so.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from escudo._files import sync as synced
from escudo.errors import InputError
from escudo.privacy import Account, Event, MarkingAccount, Receipt, guarantee_of, shown_up

if TYPE_CHECKING:
    from escudo.mechanisms.dpsgd._core import State

_VECTORS = ("parameters", "first", "second", "average")
_PAID = ("dataset", "sequence", "recorded_at", "hash")

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Kept:
    """What a file holds.

    Attributes:
        path: The file.
        digest: SHA-256 of it.
        number: Which checkpoint of its training it is.
        receipt: The spend that pays for the training.
        about: Facts about the training, all of them public.
        arrays: The state; empty before the first step.
    """

    path: Path
    digest: str
    number: int
    _: KW_ONLY
    receipt: Receipt
    about: Mapping[str, str]
    arrays: Arrays

    @property
    def done(self) -> int:
        """How many steps it has behind it."""
        return int(self.arrays["step"][0]) if self.arrays else 0


@dataclass(slots=True)
class TrainingFile:
    """The file of a training under way, and the account that knows it.

    Attributes:
        path: Where it is kept.
        account: What paid.
        receipt: The spend.
        about: Facts about the training, all of them public; kept in the file.
        arrays: The state to go on from; empty before the first step.
        number: How many checkpoints it has had.
        nonce: What the account gave when the training was resumed; empty if it was not.
    """

    path: Path
    account: MarkingAccount
    receipt: Receipt
    about: dict[str, str] = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)
    number: int = 0
    nonce: str = ""

    def keep(self, arrays: Arrays) -> None:
        """Write the state, for its owner alone: a draft, its mark in the account, its name.

        Raises:
            InputError: If it cannot be written, or the training was resumed elsewhere: then this one must end.
            LedgerError: If the account cannot be written; the draft stays, because the mark may be there.
        """
        from safetensors.numpy import save

        number, draft = self.number + 1, _draft(self.path)
        paid = {name: getattr(self.receipt, name) for name in _PAID}
        facts = {"about": json.dumps(self.about), "number": str(number), "paid": json.dumps(paid)}
        content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()}, metadata=facts)
        with _written(self.path):
            draft.unlink(missing_ok=True)
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
            synced(draft, draft.parent)
        try:
            self.account.mark(self.receipt, number, hashlib.sha256(content).hexdigest(), nonce=self.nonce)
        except InputError:
            draft.unlink()  # states that nothing pays for
            raise
        with _written(self.path):
            os.replace(draft, self.path)
            synced(self.path.parent)
        self.number, self.arrays = number, arrays

    def finish(self) -> None:
        """Record that the training ends, before its result leaves.

        Raises:
            InputError: If it has ended or was resumed elsewhere: then the result must not leave.
        """
        self.account.finish(self.receipt, nonce=self.nonce)


def keeping(account: Account | None) -> MarkingAccount:
    """Return an account that knows checkpoints.

    Raises:
        InputError: If this one does not; nothing was spent.
    """
    if isinstance(account, MarkingAccount):
        return account
    raise InputError(
        "checkpoint needs an account that knows it, so that no copy of it is released for nothing: one in a ledger, or "
        "in memory while the process lasts. Nothing was spent."
    )


def found(path: Path, account: MarkingAccount, *, look: bool = False) -> Kept | None:
    """Return what can be gone on from at this path; None if there is nothing, or nothing that was marked.

    A draft that was marked, and whose process was killed before it got its name, gets it now.

    Args:
        path: The file.
        account: What paid for it.
        look: Whether to look only, and to leave all names as they are.

    Raises:
        InputError: If the file is not readable, or another account paid for it; nothing was spent.
    """
    draft = _draft(path)
    with suppress(_UnreadableError):
        newer = _read(draft, path, account)
        if newer is not None and account.marked(newer.receipt, newer.number, newer.digest):
            if not look:
                with _written(path):
                    os.replace(draft, path)
                    synced(path.parent)
            return newer
    return _read(path, path, account)


def go_on(
    kept: Kept, account: MarkingAccount, left: Event, *, delta: float, for_release: bool, purpose: str, again: bool
) -> TrainingFile:
    """Go on from a file, which nobody else can from then on: its state is marked once more, at once.

    Args:
        kept: What :func:`found` gave.
        account: What paid.
        left: What is left to do.
        delta: The δ at which its price is stated in words.
        for_release: False for a seeded training.
        purpose: Why, for the account.
        again: Whether to pay for what is left where it cannot be had for nothing.

    Raises:
        InputError: If the account refuses; says why, and what it would cost. Nothing was spent.
        BudgetExceededError: If what is left cannot be paid for again; nothing was spent.
    """
    file = TrainingFile(kept.path, account, kept.receipt, dict(kept.about), kept.arrays, kept.number)
    try:
        file.nonce = account.resume(kept.receipt, kept.number, kept.digest)
    except InputError as refused:
        if not account.marked(kept.receipt, kept.number, kept.digest):
            raise InputError(
                f"{kept.path} is no checkpoint that the account knows: it was changed, or is of an older copy of the "
                "account. Remove it, and begin again. Nothing was spent."
            ) from None
        if not again:
            price = f"ε = {shown_up(guarantee_of(left, delta=delta).epsilon)} at δ = {delta:g}"
            raise InputError(
                f"{kept.path} cannot go on for nothing. {refused} Nothing was spent. What is left to do costs {price} "
                "if it is paid for again: ask for that by again=True, in a command by --again. Or give the newest copy "
                "of the checkpoint, if there is another, or begin again without it."
            ) from None
        file.receipt = account.spend(left, purpose=f"{purpose}, the rest again", for_release=for_release)
        file.number = 0
    file.keep(kept.arrays)
    return file


class _UnreadableError(InputError):
    """A file is no checkpoint."""


def _read(path: Path, name: Path, account: MarkingAccount) -> Kept | None:
    """Return what a file holds; None if it is not there."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        content = path.read_bytes()
        arrays = load(content)
        facts = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
        about, number, paid = json.loads(facts["about"]), int(facts["number"]), json.loads(facts["paid"])
        if not isinstance(about, dict) or {*paid} != {*_PAID} or (arrays and {*arrays} != {*_VECTORS, "step"}):
            raise ValueError
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        raise _UnreadableError(f"{name} is no readable checkpoint.") from None
    return Kept(
        name,
        hashlib.sha256(content).hexdigest(),
        number,
        receipt=_receipt(account, paid, name),
        about=about,
        arrays=arrays,
    )


def _receipt(account: MarkingAccount, paid: Mapping[str, Any], path: Path) -> Receipt:
    """Return the receipt of what paid for a file.

    Raises:
        InputError: If this account did not.
    """
    with suppress(InputError):
        receipt = account.receipt(paid["sequence"])
        if all(getattr(receipt, name) == value for name, value in paid.items()):
            return receipt
    if not paid["dataset"]:
        raise InputError(
            f"{path} was paid for by an account in memory, which was gone with its process. A checkpoint needs a "
            "ledger to go on from elsewhere: remove it, and begin again with one. Nothing was spent."
        )
    raise InputError(
        f"{path} was not paid for by this account, but by that of dataset {paid['dataset']!r}, in this ledger or "
        "another. Give that ledger and dataset, or another checkpoint. Nothing was spent."
    )


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.draft")


@contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"checkpoint {path} cannot be written: {error.strerror}.") from None


@contextmanager
def held(locked: Path, opened: Callable[[], int], checkpoint: Path) -> Iterator[None]:
    """Use a checkpoint, alone.

    Args:
        locked: The file or folder that stands for it.
        opened: Makes that, if it is not there, and opens it.
        checkpoint: What it is called in messages.

    Raises:
        InputError: If it cannot be used, or somebody else uses it.
    """
    while True:
        try:
            handle = opened()
        except OSError as error:
            raise InputError(f"checkpoint {checkpoint} cannot be used: {error.strerror}.") from None
        try:
            _lock(handle, checkpoint)
            if _is_still(handle, locked):
                yield
                return
        finally:
            os.close(handle)


@contextmanager
def file_held(path: Path) -> Iterator[None]:
    """Use the checkpoint in a file, alone; whether it is there or not.

    Raises:
        InputError: If it cannot be used, or another training uses it.
    """
    beside = path.with_name(f".{path.name}.lock")
    with held(beside, lambda: os.open(beside, os.O_RDWR | os.O_CREAT, 0o600), path):
        try:
            yield
        finally:
            with suppress(OSError):
                beside.unlink()


def _lock(handle: int, checkpoint: Path) -> None:
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InputError(
            f"checkpoint {checkpoint} is in use by another training: wait for that to end, or give another checkpoint."
        ) from None


def _is_still(handle: int, path: Path) -> bool:
    """Return whether an open file or folder is the one at this path, and not one that was taken away meanwhile."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError:
        return False


def arrays_of(state: State) -> Arrays:
    """Return the state of a training as it is kept."""
    arrays = {name: np.asarray(getattr(state, name)) for name in _VECTORS}
    return arrays | {"step": np.asarray(state.step).reshape(1)}


def state_of(arrays: Arrays, size: int, path: Path) -> State:
    """Return the state that :func:`arrays_of` gave.

    Raises:
        InputError: If it is of another network.
    """
    import jax.numpy as jnp

    from escudo.mechanisms.dpsgd._core import State

    vectors = [jnp.asarray(arrays[name]) for name in _VECTORS]
    if any(vector.shape != (size,) for vector in vectors):
        raise InputError(f"{path} is the checkpoint of another network.")
    parameters, first, second, average = vectors
    return State(parameters, first, second, average, jnp.int32(arrays["step"][0]), jnp.zeros(size, jnp.float32))
