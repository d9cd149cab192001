"""DP-SGD in JAX: networks learnt from Poisson samples, with clipped gradients and Gaussian noise.

* ``_layers``: a network's layers, and the length of each row's gradient without computing it (ghost norms);
* ``_normal``: Gaussian noise from a counter-based generator;
* ``_core``: one step, also as a mechanism that can be audited on worst-case gradients, and a whole training as one
  compiled loop; all three import only jax and numpy;
* ``_sampling``: Poisson samples laid out in slots of equal size, from which no row is ever dropped, and in which
  precision they are multiplied;
* ``_checkpoint``: the state between two steps, as a file;
* ``_mechanism``: :func:`train`, which charges the account, draws keys from the operating system, and releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from escudo.mechanisms.dpsgd._checkpoint import Kept as Kept
    from escudo.mechanisms.dpsgd._checkpoint import TrainingFile as TrainingFile
    from escudo.mechanisms.dpsgd._checkpoint import found as found
    from escudo.mechanisms.dpsgd._checkpoint import go_on as go_on
    from escudo.mechanisms.dpsgd._checkpoint import held as held
    from escudo.mechanisms.dpsgd._checkpoint import keeping as keeping
    from escudo.mechanisms.dpsgd._core import Knobs as Knobs
    from escudo.mechanisms.dpsgd._core import Recipe as Recipe
    from escudo.mechanisms.dpsgd._core import Slots as Slots
    from escudo.mechanisms.dpsgd._core import State as State
    from escudo.mechanisms.dpsgd._core import audited_step as audited_step
    from escudo.mechanisms.dpsgd._core import first_state as first_state
    from escudo.mechanisms.dpsgd._core import result as result
    from escudo.mechanisms.dpsgd._core import row_norms as row_norms
    from escudo.mechanisms.dpsgd._core import run as run
    from escudo.mechanisms.dpsgd._layers import Layout as Layout
    from escudo.mechanisms.dpsgd._layers import Tape as Tape
    from escudo.mechanisms.dpsgd._mechanism import Training as Training
    from escudo.mechanisms.dpsgd._mechanism import resume as resume
    from escudo.mechanisms.dpsgd._mechanism import train as train
    from escudo.mechanisms.dpsgd._normal import normal as normal
    from escudo.mechanisms.dpsgd._sampling import Sampling as Sampling
    from escudo.mechanisms.dpsgd._sampling import capacity_for as capacity_for
    from escudo.mechanisms.dpsgd._sampling import device_slots as device_slots
    from escudo.mechanisms.dpsgd._sampling import precision_for as precision_for
    from escudo.mechanisms.dpsgd._sampling import slots_of as slots_of

__all__ = ["Layout", "Recipe", "Tape", "Training", "audited_step", "resume", "train"]

# What is not in __all__ is for other parts of escudo: a generator trains by the same steps, and many networks at once.
__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "_checkpoint": ["Kept", "TrainingFile", "found", "go_on", "held", "keeping"],
        "_core": ["Knobs", "Recipe", "Slots", "State", "audited_step", "first_state", "result", "row_norms", "run"],
        "_layers": ["Layout", "Tape"],
        "_mechanism": ["Training", "resume", "train"],
        "_normal": ["normal"],
        "_sampling": ["Sampling", "capacity_for", "device_slots", "precision_for", "slots_of"],
    },
)
