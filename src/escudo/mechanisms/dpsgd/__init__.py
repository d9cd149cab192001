"""DP-SGD in JAX: networks learnt from Poisson samples, with clipped gradients and Gaussian noise.

* ``_layers``: a network's layers, and the length of each row's gradient without computing it (ghost norms);
* ``_normal``: Gaussian noise from a counter-based generator;
* ``_core``: one step, and a whole training as one compiled loop; all three import only jax and numpy;
* ``_precision``: where factors of gradients are rounded to bfloat16, to be quicker;
* ``_sampling``: Poisson samples laid out in slots of equal size, from which no row is ever dropped;
* ``_checkpoint``: the state between two steps, as a file;
* ``_mechanism``: :func:`train`, which charges the account, draws keys from the operating system, and releases;
* ``_audit``: one step on worst-case gradients, as a mechanism that can be audited.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from escudo.mechanisms.dpsgd._audit import audited_step as audited_step
    from escudo.mechanisms.dpsgd._core import Recipe as Recipe
    from escudo.mechanisms.dpsgd._layers import Layout as Layout
    from escudo.mechanisms.dpsgd._layers import Tape as Tape
    from escudo.mechanisms.dpsgd._mechanism import Training as Training
    from escudo.mechanisms.dpsgd._mechanism import resume as resume
    from escudo.mechanisms.dpsgd._mechanism import train as train

__all__ = ["Layout", "Recipe", "Tape", "Training", "audited_step", "resume", "train"]

_HOME = {
    "Layout": "_layers",
    "Recipe": "_core",
    "Tape": "_layers",
    "Training": "_mechanism",
    "audited_step": "_audit",
    "resume": "_mechanism",
    "train": "_mechanism",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"escudo.mechanisms.dpsgd.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'escudo.mechanisms.dpsgd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
