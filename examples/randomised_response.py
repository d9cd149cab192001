"""Randomised response: the noise is between attribute and data point, so the data point itself is not protected.

Tschantz, Sen and Datta, Differential Privacy as a Causal Property, section 6.3.
"""

from __future__ import annotations

import math
from pathlib import Path

from escudo import SEM
from escudo.effects import effect, show_epsilon

EPSILON = 1.0  # as in the model file
EXPECTED = {
    ("R1", "D1"): EPSILON,
    ("R3", "D3"): EPSILON,
    ("R3", "O"): EPSILON,
    ("R2", "O"): EPSILON,
    ("R1", "O"): 2 * EPSILON,  # R1 drives two answers
    ("D1", "O"): math.inf,  # what was handed in is shown as it is
}


def main() -> None:
    sem = SEM.read(Path(__file__).with_suffix(".sem"))
    for (of, on), expected in EXPECTED.items():
        found = effect(sem, of=of, on=on)
        assert math.isclose(found.epsilon, expected), (of, on)
        print(f"{of} → {on}   ε = {show_epsilon(found.epsilon):<5} {found}")


if __name__ == "__main__":
    main()
