"""What an adversary may come to believe: little more for somebody's taking part, but perhaps much more in all.

Tschantz, Sen and Datta, Differential Privacy as a Causal Property, section 7; Kasiviswanathan and Smith on semantic
privacy.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from escudo import SEM
from escudo.effects import Mechanism, definitions, mechanism_of, nondisclosure, posterior, secrets, semantic_privacy

EPSILON = 1.0  # as in the model file


def main() -> None:
    mechanism, population = mechanism_of(SEM.read(Path(__file__).with_name("ada_and_byron.sem")))
    assert isinstance(mechanism, Mechanism)

    worst = semantic_privacy(mechanism)
    assert math.isclose(worst.rho, 2 * EPSILON)
    assert math.isclose(worst.difference, math.tanh(EPSILON / 2))
    print(worst)

    # The credence that attains it, and the two beliefs it leads to.
    credence = np.zeros(population.shape)
    assert worst.credence is not None
    for database, weight in worst.credence:
        credence[tuple(mechanism.values[i].index(v) for i, v in enumerate(database.values()))] = weight
    with_data = posterior(mechanism, credence, worst.output)
    without = posterior(mechanism, credence, worst.output, without=worst.person, value=worst.replacement)
    assert math.isclose(np.abs(with_data - without).sum() / 2, worst.difference)

    # From before to after the output, beliefs about Ada may move further: Byron's data point tells about her too.
    moved = nondisclosure(mechanism, population, about="D1")
    print(f"The output itself moves beliefs about D1 by up to {100 * moved.difference:.1f} percentage points.")

    # Pufferfish: which of two secrets holds, in populations where Ada and Byron are alike or unrelated.
    unrelated = np.full((2, 2, 2), 1 / 8)
    secret = ({"D1": "pos"}, {"D1": "neg"})
    alike, apart = (secrets(mechanism, [secret], [law]).epsilon for law in (population, unrelated))
    assert math.isclose(alike, 2 * EPSILON)
    assert apart <= definitions(mechanism)[1].epsilon + 1e-9
    print(f"Telling Ada's data point apart: ε = {alike:.2f} with Byron like her, {apart:.2f} if people are unrelated.")


if __name__ == "__main__":
    main()
