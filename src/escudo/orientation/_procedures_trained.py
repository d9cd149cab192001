r"""The trained combiner: boosted trees over the differences of many scores, shipped as plain numbers.

Trained by ``experiments/train_combiner.py`` on pairs that the project simulates, never on real ones. Each difference is
divided by its typical size for blocks of n records, clipped, and handed to trees together with log n; the log-odds of
x->y are :math:`\tfrac12 (F(d, \log n) - F(-d, \log n))`, so that swapping the columns turns their sign and no more.

The file ``combiner.json`` holds arrays only. Tree t stands at the node ``root[t]``; from node i one goes to ``left[i]``
where feature[i] is at most threshold[i], else to ``right[i]``; a leaf leads to itself and has a ``value``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from escudo.orientation._blocks import Blocks
from escudo.orientation._procedures_members import difference
from escudo.orientation._procedures_shape import FEATURES

__all__ = ["Combiner", "combiner", "log_odds", "raw_features"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Combiner:
    """Trees over score differences.

    Attributes:
        features: The names of the scores, in order; log n comes after them.
        sizes: Block sizes at which typical differences were measured, increasing.
        typical: Their sizes there, shape (sizes, features).
        clip: Differences beyond this many typical sizes are clipped.
        root: The first node of each tree.
        feature: What each node looks at.
        threshold: Where it divides.
        left: Where to go if at most the threshold.
        right: Where to go otherwise.
        value: What a leaf adds to F; 0 at inner nodes.
        depth: Steps from a root to the deepest leaf.
    """

    features: tuple[str, ...]
    sizes: Floats
    typical: Floats
    clip: float
    root: Indices
    feature: Indices
    threshold: Floats
    left: Indices
    right: Indices
    value: Floats
    depth: int

    def normalised(self, differences: Floats, n: int) -> Floats:
        """Return differences, shape (blocks, features), in typical sizes for blocks of n records, clipped."""
        place = np.log(n)
        logs = np.log(self.sizes)
        size = np.exp([np.interp(place, logs, np.log(self.typical[:, j])) for j in range(len(self.features))])
        return np.clip(differences / size, -self.clip, self.clip)

    def log_odds(self, differences: Floats, n: int) -> Floats:
        """Return the log-odds of x->y for every block."""
        scaled = self.normalised(differences, n)
        place = np.full((len(scaled), 1), np.log(n))
        return (self._sum(np.hstack([scaled, place])) - self._sum(np.hstack([-scaled, place]))) / 2

    def _sum(self, inputs: Floats) -> Floats:
        at = np.broadcast_to(self.root, (len(inputs), len(self.root)))
        block = np.arange(len(inputs))[:, None]
        for _ in range(self.depth):
            goes_left = inputs[block, self.feature[at]] <= self.threshold[at]
            at = np.where(goes_left, self.left[at], self.right[at])
        total: Floats = self.value[at].sum(axis=1)
        return total


@cache
def combiner() -> Combiner:
    """Return the combiner that is shipped."""
    data = json.loads(files("escudo.orientation").joinpath("combiner.json").read_text(encoding="utf-8"))
    return Combiner(
        features=tuple(data["features"]),
        sizes=np.array(data["sizes"], dtype=np.float64),
        typical=np.array(data["typical"], dtype=np.float64),
        clip=float(data["clip"]),
        root=np.array(data["root"], dtype=np.int64),
        feature=np.array(data["feature"], dtype=np.int64),
        threshold=np.array(data["threshold"], dtype=np.float64),
        left=np.array(data["left"], dtype=np.int64),
        right=np.array(data["right"], dtype=np.int64),
        value=np.array(data["value"], dtype=np.float64),
        depth=int(data["depth"]),
    )


def raw_features(blocks: Blocks) -> Floats:
    """Return the differences of all scores, shape (blocks, features); 0 where one is no number."""
    differences = np.stack([difference(score, blocks) for score in FEATURES.values()], axis=1)
    return np.where(np.isfinite(differences), differences, 0.0)


def log_odds(blocks: Blocks) -> Floats:
    """Return the combiner's log-odds of x->y for every block."""
    return combiner().log_odds(raw_features(blocks), blocks.x.values.shape[1])
