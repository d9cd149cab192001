"""Does a mechanism keep its promise? A randomised experiment catches one that adds half the noise it should.

Each run gives the mechanism one of two neighbouring tables, by a coin; bets on which one it was make money only if the
claim is false. The second mechanism is correct, and the audit says how large a fault it would have seen.
"""

from __future__ import annotations

import numpy as np

from escudo.auditing import audit
from escudo.mechanisms import laplace
from escudo.privacy import Guarantee

CLAIM = Guarantee(epsilon=1.0)
PAIRS = [([1, 0, 1], [1, 1, 1]), ([0, 0, 0], [0, 0, 1])]
SEED = 7


def careless(rows: list[int], rng: np.random.Generator) -> float:
    """Return a noisy count whose author halved the scale: half the noise that ε = 1 needs."""
    return round(sum(rows) + rng.laplace(scale=0.5), 3)


def careful(rows: list[int], rng: np.random.Generator) -> int:
    """Return a noisy count as escudo draws it."""
    return int(laplace(sum(rows), sensitivity=1, epsilon=1.0, seed=rng).value)


quick = audit(careless, claim=CLAIM, pairs=PAIRS, seed=SEED, max_runs=20_000)
print(quick)
print("  witness:", quick.witness)
assert quick.violated
assert quick.runs < 5_000  # it stops as soon as it is sure

whole = audit(careless, claim=CLAIM, pairs=PAIRS, seed=SEED, max_runs=10_000, stop_early=False)
print(f"with all runs: ε ≥ {whole.epsilon_lower:.2f}; the truth is 2")
assert 1.4 < whole.epsilon_lower <= 2.0

sound = audit(careful, claim=CLAIM, pairs=PAIRS, seed=SEED, max_runs=2_000)
print(sound)
assert not sound.violated
assert sound.epsilon_lower <= 1.0
