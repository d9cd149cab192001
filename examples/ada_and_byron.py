"""Ada and Byron: a data point has effect ε, but a mother's status reaches the survey twice.

Tschantz, Sen and Datta, Differential Privacy as a Causal Property, sections 1.1 and 6.3.
"""

from __future__ import annotations

import math
from pathlib import Path

from escudo import SEM
from escudo.effects import associative, direct, effect, joint, path, show_epsilon, total

EPSILON = 1.0  # as in the model file


def main() -> None:
    sem = SEM.read(Path(__file__).with_suffix(".sem"))
    together = ["R1", "R2"]
    findings = {
        "effect of Ada's status": (effect(sem, of="R1", on="O"), 2),
        "effect of Byron's status": (effect(sem, of="R2", on="O"), 1),
        "effect of Ada's data point": (effect(sem, of="D1", on="O"), 1),
        "both statuses, set together": (joint(sem, of=together, on="O"), 2),
        "both statuses, person by person": (total(sem, of=together, on="O"), 3),
        "Ada's status past Byron's": (direct(sem, of="R1", on="O", holding="R2"), 1),
        "Ada's status through her own data point": (path(sem, of="R1", on="O", through=["D1"]), 1),
        "Ada's status through Byron": (path(sem, of="R1", on="O", through=["R2"]), 1),
        "learning Ada's data point": (associative(sem, of="D1", on="O"), 2),
    }
    for what, (found, times) in findings.items():
        assert math.isclose(found.epsilon, times * EPSILON), what
        print(f"{what:42} ε = {show_epsilon(found.epsilon)}   {found}")


if __name__ == "__main__":
    main()
