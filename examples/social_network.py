"""A social network: protecting an edge, a node, or all evidence that somebody took part, are three effects.

The friendship of Alice and Charlie is not Bob's data, but he may have brought it about. Tschantz, Sen and Datta,
Differential Privacy as a Causal Property, section 6.3, after Kifer and Machanavajjhala (2011).
"""

from __future__ import annotations

import math
from pathlib import Path

from escudo import SEM
from escudo.effects import direct, effect, joint, path, show_epsilon, total

EPSILON = 1.0  # as in the model file


def main() -> None:
    sem = SEM.read(Path(__file__).with_suffix(".sem"))
    his_edges = ["EAB", "EBC"]
    findings = {
        "edge privacy: one recorded friendship": (effect(sem, of="DAC", on="O"), 1),
        "node privacy: all of Bob's recorded friendships": (joint(sem, of=["DAB", "DBC"], on="O"), 2),
        "the same, as Bob's direct effect": (direct(sem, of="B", on="O", holding="EAC"), 2),
        "evidence of participation: all that Bob brings about": (effect(sem, of="B", on="O"), 3),
        "one friendship of Bob's, with what follows from it": (effect(sem, of="EAB", on="O"), 2),
        "both of them, set together": (joint(sem, of=his_edges, on="O"), 3),
        "both of them, added up": (total(sem, of=his_edges, on="O"), 4),
        "Bob through his friendship with Alice only": (path(sem, of="B", on="O", through=["EAB"]), 2),
        "the friendship of Alice and Charlie": (effect(sem, of="EAC", on="O"), 1),
        "whether they are friends anyway": (effect(sem, of="F", on="O"), 1),
    }
    for what, (found, times) in findings.items():
        assert math.isclose(found.epsilon, times * EPSILON), what
        print(f"{what:54} ε = {show_epsilon(found.epsilon)}")


if __name__ == "__main__":
    main()
