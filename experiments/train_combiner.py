"""Train the combiner of ``escudo.orientation`` on simulated pairs, and write it as plain numbers.

Run ``python experiments/train_combiner.py --data DIR`` from the repository's root, with scikit-learn installed; it
takes about five minutes on one core. ``DIR`` holds ``tuebingen_odd/``, of which single columns are drawn from, whatever
their role: no real pair and no direction is seen. Writes ``src/escudo/orientation/combiner.json``;
``experiments/verdicts.py`` measures it on families and pairs that it was not trained on. ``--quick`` trains on few
pairs and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pairs import real_pairs
from simulated_pairs import standard, training_pair

from escudo.orientation._blocks import FEWEST_DISTINCT, Blocks
from escudo.orientation._procedures import FEATURES, Judged, judge

SEED = 20_261_116
PAIRS = 24_064
SIZES = (32, 48, 64, 96, 128, 192)
FEWEST_ROWS = 300
CLIP = 8.0
TREES = {
    "max_iter": 150,
    "learning_rate": 0.08,
    "max_leaf_nodes": 16,
    "l2_regularization": 5.0,
    "min_samples_leaf": 60,
    "early_stopping": False,
    "random_state": 0,
}
TARGET = Path(__file__).parents[1] / "src" / "escudo" / "orientation" / "combiner.json"
_AT_ONCE = 128

Floats = NDArray[np.float64]


class Simulated(NamedTuple):
    """What blocks of one size know, one of each simulated pair: which are fine enough, and which have a direction."""

    judged: Judged
    fine: NDArray[np.bool_]
    directed: NDArray[np.bool_]


def real_columns(data: Path) -> list[Floats]:
    """Return single columns of real tables, standardised, in no order that tells causes from effects."""
    pairs, _ = real_pairs(data / "tuebingen_odd", "", FEWEST_ROWS)
    columns = [column for pair in pairs for column in pair.values.T]
    return [standard(column) for column in columns if np.unique(column).size >= FEWEST_DISTINCT]


def simulated(pairs: int, columns: list[Floats]) -> dict[int, Simulated]:
    """Return what blocks of every size know about simulated pairs."""
    rng = np.random.default_rng(SEED)
    found: dict[int, list[Simulated]] = {size: [] for size in SIZES}
    for _ in range(0, pairs, _AT_ONCE):
        drawn = [training_pair(rng, max(SIZES), columns) for _ in range(_AT_ONCE)]
        x, y = (np.stack([pair[side] for pair in drawn]) for side in (0, 1))
        directed = np.array([pair[2] for pair in drawn])
        for size in SIZES:
            with np.errstate(all="ignore"):
                blocks = Blocks(x[:, :size].copy(), y[:, :size].copy())
                found[size].append(Simulated(judge(blocks), ~blocks.coarse(FEWEST_DISTINCT), directed))
    return {size: _joined(parts) for size, parts in found.items()}


def _joined(parts: list[Simulated]) -> Simulated:
    judged = Judged(*(np.concatenate(several) for several in zip(*(part.judged for part in parts), strict=True)))
    return Simulated(judged, *(np.concatenate([part[place] for part in parts]) for place in (1, 2)))


def trained(blocks: dict[int, Simulated]) -> tuple[Any, Floats]:
    """Return the boosted trees, and the typical sizes of the differences.

    Every block is seen from both sides. One of a pair without a direction is seen with both answers, half as heavy.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    typical = np.array([np.median(np.abs(part.judged.differences), axis=0) + 1e-9 for part in blocks.values()])
    inputs, labels, weights = [], [], []
    for place, part in enumerate(blocks.values()):
        scaled = np.clip(part.judged.differences / typical[place], -CLIP, CLIP)
        for side in (1, -1):
            for answer in (1, 0):
                seen = part.fine if (side == 1) == (answer == 1) else part.fine & ~part.directed
                inputs.append(np.c_[side * scaled[seen], part.judged.conditions[seen]])
                labels.append(np.full(seen.sum(), answer))
                weights.append(np.where(part.directed[seen], 1.0, 0.5))
    model = HistGradientBoostingClassifier(**TREES)
    return model.fit(np.vstack(inputs), np.concatenate(labels), sample_weight=np.concatenate(weights)), typical


def as_arrays(model: Any, typical: Floats) -> dict[str, Any]:
    """Return the trees and what goes before them as lists of numbers, to five digits."""
    arrays: dict[str, list[Any]] = {name: [] for name in ("root", "feature", "threshold", "left", "right", "value")}
    deepest = 0
    for (tree,) in model._predictors:
        start = len(arrays["value"])
        arrays["root"].append(start)
        for place, node in enumerate(tree.nodes):
            leaf = bool(node["is_leaf"])
            arrays["feature"].append(0 if leaf else int(node["feature_idx"]))
            arrays["threshold"].append(0.0 if leaf else rounded(node["num_threshold"]))
            arrays["left"].append(start + (place if leaf else int(node["left"])))
            arrays["right"].append(start + (place if leaf else int(node["right"])))
            arrays["value"].append(rounded(node["value"]) if leaf else 0.0)
        deepest = max(deepest, int(tree.nodes["depth"].max()))
    return {
        "about": f"Boosted trees, made by experiments/train_combiner.py: {PAIRS} simulated pairs, seed {SEED}. No real "
        "pair was seen; half of the causes and noises have the shape of single columns of the odd Tuebingen pairs.",
        "features": list(FEATURES),
        "sizes": list(SIZES),
        "typical": [[rounded(number) for number in row] for row in typical],
        "clip": CLIP,
        "depth": deepest,
        **arrays,
    }


def rounded(number: float) -> float:
    """Return the number to five digits."""
    return float(f"{number:.5g}")


def main() -> None:
    """Train and write."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="few pairs, writes nothing")
    options.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder of tuebingen_odd")
    given = options.parse_args()
    quick = given.quick
    start = time.perf_counter()
    blocks = simulated(256 if quick else PAIRS, real_columns(given.data))
    print(f"{time.perf_counter() - start:.0f} s simulating")
    arrays = as_arrays(*trained(blocks))
    print(f"{time.perf_counter() - start:.0f} s in all, {len(arrays['value'])} nodes")
    if not quick:
        TARGET.write_text(json.dumps(arrays, separators=(",", ":")) + "\n", encoding="utf-8")
        print(f"Wrote {TARGET.name}, {TARGET.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
