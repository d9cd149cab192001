"""Two questions that *Differential Privacy as a Causal Property* leaves open, answered exactly.

**Conditional effects.** How much does do(Dᵢ = d) against do(Dᵢ = d′) change an output *given* that something else was
seen? Given what lies before the data point, never more than ε. Given what comes after it, as much as the whole table
can, even where the data point has no effect at all: seeing a common effect makes other people's data answer for it.

**A Bayesian causal characterisation** (its section 2: "should be possible, but leave that to future work"). Whoever is
unsure which of two *settings* of a data point was made, and believes whatever they like of all else, cannot multiply
their odds by more than e^ε; and a mechanism with that property for all beliefs is ε-differentially private. Whoever
asks instead what the data point *is* learns more, as it goes along with others'. The proofs are in
``src/escudo/effects/README.md``.
"""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import numpy as np

from escudo import SEM
from escudo.effects import associative, effect, semantic_privacy, show_epsilon

EPSILON = 1.0  # as in the model files


def given(sem: SEM, of: str, on: str, seen: dict[str, object]) -> float:
    """Return the largest log ratio of the output's law under two settings of a point, given what was seen."""
    worlds = [sem.do({of: value}) for value in sem.range(of)]
    laws = [(world.given(seen) if seen else world).probability(on).array for world in worlds]
    with np.errstate(divide="ignore", invalid="ignore"):
        return max(float(np.nanmax(np.log(one / other))) for one, other in product(laws, repeat=2))


def odds(sem: SEM, of: str, on: str) -> float:
    """Return by how much seeing the output multiplies the odds between two settings of a point, at most, as a log.

    The settings are hypotheses with odds of their own, and by Bayes the factor is the ratio of the output's laws.
    """
    return given(sem, of, on, {})


def main() -> None:
    here = Path(__file__).parent
    three, ada = SEM.read(here / "beyond_the_paper.sem"), SEM.read(here / "ada_and_byron.sem")
    flip = 1 / (1 + math.exp(EPSILON))
    alone = np.array([[1 - flip, flip], [flip, 1 - flip]])  # randomised response: by data point, then output
    both = np.array([[alone[0], alone[1]], [alone[1], alone[0]]])  # of whether two data points differ
    found = {
        "effect of D2": (effect(three, of="D2", on="O").epsilon, 1),
        "effect of D2 given R2, which lies before it": (given(three, "D2", "O", {"R2": 1}), 1),
        "effect of D2 given R3, which goes along with it": (given(three, "D2", "O", {"R3": 1}), 1),
        "effect of D1, who is not counted": (effect(three, of="D1", on="O").epsilon, 0),
        "effect of D1 given C, which comes after it": (given(three, "D1", "O", {"C": "same"}), 2),
        "odds between settings of Ada's data point": (odds(ada, "D1", "O"), 1),
        "odds between values of Ada's data point": (associative(ada, of="D1", on="O").epsilon, 2),
        "beliefs with and without one, randomised response": (semantic_privacy(alone).rho, 1),
        "beliefs with and without one, of a difference": (semantic_privacy(both).rho, 2),
    }
    for what, (epsilon, times) in found.items():
        assert math.isclose(epsilon, times * EPSILON, abs_tol=1e-9), (what, epsilon)
        print(f"{what:52} ε = {show_epsilon(epsilon)}")


if __name__ == "__main__":
    main()
