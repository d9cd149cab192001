"""A joint effect can exceed the total, and a direct effect can exceed the whole effect, where paths cancel."""

from __future__ import annotations

import math
from pathlib import Path

from escudo import SEM
from escudo.effects import direct, effect, joint, show_epsilon, total

EPSILON = 1.0  # as in the model file


def main() -> None:
    sem = SEM.read(Path(__file__).with_suffix(".sem"))
    findings = {
        "effect of R1": (effect(sem, of="R1", on="O"), 0),
        "effect of R2": (effect(sem, of="R2", on="O"), 1),
        "in total": (total(sem, of=["R1", "R2"], on="O"), 1),
        "set together": (joint(sem, of=["R1", "R2"], on="O"), 2),
        "R1 past R2": (direct(sem, of="R1", on="O", holding="R2"), 1),
    }
    for what, (found, times) in findings.items():
        assert math.isclose(found.epsilon, times * EPSILON, abs_tol=1e-12), what
        print(f"{what:14} ε = {show_epsilon(found.epsilon)}")


if __name__ == "__main__":
    main()
