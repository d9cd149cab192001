"""The state of a training between two steps, as a file for its owner alone.

It holds parameters, Adam's memories, the parameters' average and the number of steps: functions of noisy sums that the
training pays for, and of nothing else. No row, no key and no sum of a step under way is ever written, so the file tells
no more than the training itself will.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from escudo.errors import InputError

if TYPE_CHECKING:
    from escudo.mechanisms.dpsgd._core import State

__all__ = ["read_state", "write_privately", "write_state"]

_VECTORS = ("parameters", "first", "second", "average")


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
