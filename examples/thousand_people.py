"""A thousand people: exact effects where a table would have 2¹⁰⁰⁰ rows."""

from __future__ import annotations

import math
from pathlib import Path

from escudo import SEM
from escudo.effects import effect, show_epsilon

EPSILON = 0.1  # as in the model file
TIMES = {"D1": 1, "D500": 1, "R500": 1, "R2": 1, "R1": 10}


def main() -> None:
    sem = SEM.read(Path(__file__).with_suffix(".sem"))
    for name, times in TIMES.items():
        found = effect(sem, of=name, on="O")
        assert math.isclose(found.epsilon, times * EPSILON, rel_tol=1e-9), name
        print(f"{name:5} → O   ε = {show_epsilon(found.epsilon)}")


if __name__ == "__main__":
    main()
