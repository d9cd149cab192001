"""Randomness of single runs: a function of the seed and the run's number, so that an audit repeats and resumes exactly.

Blocks of single calls end sooner where calls are slow, so that there is progress to see; what a run draws must not
depend on that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Randomness"]


class Randomness:
    """Coins and generators by run.

    Args:
        seed: Of the audit.

    >>> draws = Randomness(3)
    >>> draws.coins(0, 5).tolist() == [*draws.coins(0, 2), *draws.coins(2, 3)]
    True
    >>> first = draws.of_run(7).random()
    >>> draws.of_run(8).random() != first == draws.of_run(7).random()
    True
    """

    def __init__(self, seed: int) -> None:
        self._coins = np.random.SeedSequence([seed, 0])
        self._bits = np.random.Philox(np.random.SeedSequence([seed, 1]))
        self._start = self._bits.state
        self._rng = np.random.Generator(self._bits)

    def coins(self, first: int, count: int) -> NDArray[np.bool_]:
        """Return fair coins of ``count`` runs from run ``first`` on."""
        bits = np.random.PCG64(self._coins)
        bits.advance(first)
        return np.random.Generator(bits).random(count) < 0.5

    def of_run(self, run: int) -> np.random.Generator:
        """Return a generator for one run; it is the one of the run before, set to another place of a long sequence."""
        self._start["state"]["counter"][:] = (0, run, 0, 0)
        self._bits.state = self._start
        return self._rng
