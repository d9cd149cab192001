"""What every piece of the museum is: a mechanism with its claim, the truth about it, and where it comes from."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from escudo.privacy import Guarantee, Relation

Pair = tuple[Any, Any]
"""Two neighbouring inputs of a piece: its answers, or its records."""

SHOWN_DELTA = 1e-5
"""The δ at which the true ε of a piece with a Gaussian claim is stated."""

_GRID = 1024.0


class Piece(ABC):
    """A mechanism that can be run many times at once, and says what it claims and what is true of it.

    Its noise comes from the generator it is given: it protects nobody, and is here to be audited.
    """

    bug: ClassVar[str] = ""
    """What is wrong, in one sentence; empty for a correct mechanism."""
    source: ClassVar[str] = ""
    """Where it was published or reported."""

    @property
    @abstractmethod
    def claim(self) -> Guarantee:
        """What the mechanism is said to guarantee."""

    @property
    @abstractmethod
    def true_epsilon(self) -> float:
        """The largest effect of one data point over all neighbouring inputs, at :attr:`delta`."""

    @property
    def delta(self) -> float:
        """The δ at which :attr:`true_epsilon` is stated: that of the claim, or 1e-5 for a Gaussian claim."""
        return self.claim.delta if self.claim.epsilon is not None else SHOWN_DELTA

    @abstractmethod
    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> Any:
        """Return ``count`` independent outputs on ``dataset``, one for each entry of the first axis."""

    def __call__(self, dataset: Any, rng: np.random.Generator) -> Any:
        """Return one output on ``dataset``."""
        return self.batch(dataset, 1, rng)[0]


@dataclass(frozen=True, kw_only=True)
class PurePiece(Piece):
    """A piece that claims ε, and no more than ε is true of it unless it says so.

    Attributes:
        epsilon: The claim.
    """

    relation: ClassVar[Relation] = "replace_one"
    """What one data point of its inputs does between neighbours."""
    unbounded: ClassVar[str] = ""
    """Why no ε holds, if none does."""
    epsilon: float = 1.0

    @property
    def claim(self) -> Guarantee:
        return Guarantee(epsilon=self.epsilon, relation=self.relation)

    @property
    def true_epsilon(self) -> float:
        return math.inf if self.unbounded else self.epsilon


def snap(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return numbers rounded to a grid of 2^-10, which hides how floating point reached them.

    Every piece does this but the one whose fault it is not to: else an audit would find that fault in all of them.
    """
    return np.asarray(np.rint(values * _GRID) / _GRID)


def answers_of(dataset: Any) -> NDArray[np.float64]:
    """Return a dataset of numbers as a vector."""
    return np.atleast_1d(np.asarray(dataset, dtype=np.float64))
