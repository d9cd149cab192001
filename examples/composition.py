"""Composition: what a diagram proves, beside what is exactly so.

A diagram knows only who reads what and what each mechanism promises. Tschantz, Sen and Datta, Differential Privacy as a
Causal Property, Theorem 1 and section 6.2.
"""

from __future__ import annotations

import math
from pathlib import Path

from escudo import SEM
from escudo.effects import Diagram, bound, effect, show_epsilon

HERE = Path(__file__).parent


def main() -> None:
    # Theorem 1: the second mechanism is chosen by the first one's output. Here the sum is attained.
    sequence = SEM.read(HERE / "sequence.sem")
    diagram = Diagram().point("X").mechanism("Y", reads=["X"], epsilon=math.log(2))
    diagram = diagram.mechanism("Z", reads=["X"], epsilon=math.log(3), chosen_by=["Y"])
    proved = bound(diagram, of="X", on=["Y", "Z"])
    exact = effect(sequence, of="X", on=["Y", "Z"])
    assert math.isclose(proved.epsilon, math.log(6))
    assert math.isclose(exact.epsilon, math.log(6))
    print(f"sequence: proved ε ≤ {show_epsilon(proved.epsilon)}, exactly {show_epsilon(exact.epsilon)}")

    # Ada and Byron without equations: a group of two data points, and something computed from the output.
    survey = (
        Diagram()
        .attribute("R1")
        .attribute("R2", causes=["R1"])
        .point("D1", causes=["R1"])
        .point("D2", causes=["R2"])
        .mechanism("O", reads=["D1", "D2"], epsilon=1.0)
        .post("headline", reads=["O"])
    )
    found = bound(survey, of="R1", on="headline")
    assert found.epsilon == 2.0
    print("survey:", found)
    for step in found.derivation:
        print("   ", step)

    # Parallel composition: each person is counted in one region only, the one their value names.
    regions = (
        Diagram().point("D1").partition("regions", reads=["D1"], epsilons={"north": 1.0, "south": 1.0, "west": 0.5})
    )
    parallel = bound(regions, of="D1", on=["north", "south", "west"])
    assert parallel.epsilon == 2.0
    print("regions:", parallel)


if __name__ == "__main__":
    main()
