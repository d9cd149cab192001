"""Train the combiner of ``escudo.orientation`` on simulated pairs, and write it as plain numbers.

Run ``python experiments/train_combiner.py`` from the repository's root, with scikit-learn installed; it takes about ten
minutes on one core. No real pair is read. Writes ``src/escudo/orientation/combiner.json``; ``experiments/pairs.py``
measures it on families and pairs that it was not trained on. ``--quick`` trains on few pairs and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from simulated_pairs import training_pair

from escudo.orientation._blocks import Blocks
from escudo.orientation._procedures import FEATURES, raw_features

SEED = 20_261_115
PAIRS = 16_000
SIZES = (25, 40, 64, 100, 200, 500, 1000, 2000)
CLIP = 8.0
TREES = {
    "max_iter": 200,
    "learning_rate": 0.08,
    "max_leaf_nodes": 16,
    "l2_regularization": 5.0,
    "min_samples_leaf": 60,
    "early_stopping": False,
    "random_state": 0,
}
TARGET = Path(__file__).parents[1] / "src" / "escudo" / "orientation" / "combiner.json"
_AT_ONCE = 64

Floats = NDArray[np.float64]


def simulated(pairs: int) -> dict[int, Floats]:
    """Return score differences of simulated pairs for blocks of every size, shape (pairs, features) each."""
    rng = np.random.default_rng(SEED)
    found: dict[int, list[Floats]] = {size: [] for size in SIZES}
    for start in range(0, pairs, _AT_ONCE):
        drawn = [training_pair(rng, max(SIZES)) for _ in range(min(_AT_ONCE, pairs - start))]
        x, y = (np.stack([pair[side] for pair in drawn]) for side in (0, 1))
        for size in SIZES:
            with np.errstate(all="ignore"):
                found[size].append(raw_features(Blocks(x[:, :size].copy(), y[:, :size].copy())))
    return {size: np.concatenate(parts) for size, parts in found.items()}


def trained(differences: dict[int, Floats]) -> tuple[Any, Floats]:
    """Return the boosted trees, and the typical sizes of the differences."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    typical = np.array([np.median(np.abs(differences[size]), axis=0) + 1e-9 for size in SIZES])
    scaled = [np.clip(differences[size] / typical[i], -CLIP, CLIP) for i, size in enumerate(SIZES)]
    places = np.concatenate([np.full(len(part), np.log(size)) for part, size in zip(scaled, SIZES, strict=True)])
    forward = np.concatenate(scaled)
    inputs = np.vstack([np.c_[forward, places], np.c_[-forward, places]])
    labels = np.repeat([1, 0], len(forward))
    return HistGradientBoostingClassifier(**TREES).fit(inputs, labels), typical


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
        "about": f"Boosted trees, made by experiments/train_combiner.py: {PAIRS} simulated pairs, seed {SEED}.",
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
    quick = options.parse_args().quick
    start = time.perf_counter()
    differences = simulated(256 if quick else PAIRS)
    print(f"{time.perf_counter() - start:.0f} s simulating")
    arrays = as_arrays(*trained(differences))
    print(f"{time.perf_counter() - start:.0f} s in all, {len(arrays['value'])} nodes")
    if not quick:
        TARGET.write_text(json.dumps(arrays, separators=(",", ":")) + "\n", encoding="utf-8")
        print(f"Wrote {TARGET.name}, {TARGET.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
