"""The state of a training between two steps, as a file for its owner alone, which one training at a time may use.

It holds parameters, Adam's memories, the parameters' average and the number of steps: functions of noisy sums that the
training pays for, and of nothing else. No row, no key and no sum of a step under way is ever written, and the number of
steps is one that public numbers allow (``_sampling``), so the file tells no more than the training itself will.

**Locks.** Two trainings that both went on from one checkpoint would release its later steps twice, and pay once. So
whoever uses a checkpoint holds a lock for as long as it does: on a file beside a file, on a folder itself. It is the
system's lock (``flock``), which goes with the process that holds it: none is ever stale. What is locked may be gone by
then, as a training that is done takes it away; it is looked at again once the lock is held, and taken anew if so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from escudo.errors import InputError

if TYPE_CHECKING:
    from escudo.mechanisms.dpsgd._core import State

__all__ = ["file_held", "held", "read_state", "write_privately", "write_state"]

_VECTORS = ("parameters", "first", "second", "average")


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


def write_privately(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, all of it or nothing."""
    draft = path.with_name(f".{path.name}.draft")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    os.replace(draft, path)


def write_state(path: Path, state: State, fingerprint: str) -> None:
    """Write the state of the training with this fingerprint."""
    from safetensors.numpy import save

    arrays = {name: np.asarray(getattr(state, name)) for name in _VECTORS}
    arrays["step"] = np.asarray(state.step).reshape(1)
    write_privately(path, save(arrays, metadata={"training": fingerprint}))


def read_state(path: Path, fingerprint: str, size: int) -> State:
    """Return what :func:`write_state` wrote.

    Raises:
        InputError: If there is no such file, or it is of another training.
    """
    import jax.numpy as jnp
    from safetensors import SafetensorError, safe_open

    from escudo.mechanisms.dpsgd._core import State

    try:
        with safe_open(path, framework="numpy") as file:
            if (file.metadata() or {}).get("training") != fingerprint:
                raise InputError(f"{path} is the checkpoint of another training.")
            arrays = {name: file.get_tensor(name) for name in (*_VECTORS, "step")}
    except (OSError, SafetensorError):
        raise InputError(f"{path} is no readable checkpoint.") from None
    found = [jnp.asarray(arrays[name]) for name in _VECTORS]
    if any(array.shape != (size,) for array in found):
        raise InputError(f"{path} is the checkpoint of another network.")
    parameters, first, second, average = found
    return State(parameters, first, second, average, jnp.int32(arrays["step"][0]), jnp.zeros(size, jnp.float32))
