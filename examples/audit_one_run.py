"""Audit a training in a single run: a thousand canaries, each put in by a coin, and a score for each from the outcome.

The training here is one Gaussian step that is 1-GDP, so that the truth is known: ε = 4.38 at δ = 1e-5. One run cannot
show all of it. What it can show depends on what one is willing to assume.
"""

from __future__ import annotations

import numpy as np

from escudo.auditing import one_run
from escudo.privacy import Guarantee, gdp_to_epsilon

CANARIES, DELTA, SEED = 1000, 1e-5, 3

rng = np.random.default_rng(SEED)
included = rng.random(CANARIES) < 0.5
released = included + rng.normal(size=CANARIES)  # each canary has a direction of its own, and noise of scale 1 on it

claim = Guarantee(mu=1.0, relation="add_remove")  # a canary that is not included is left out
found = one_run(released, included, delta=DELTA, claim=claim)
print(f"truth                                       ε = {gdp_to_epsilon(1.0, DELTA):.2f}")
print(f"whatever the training does                  ε ≥ {found.epsilon_lower:.2f}")
print(f"if its curve is Gaussian                    ε ≥ {found.epsilon_lower_gaussian:.2f}")
print(f"and canaries do not influence each other    ε ≥ {found.epsilon_lower_independent:.2f}")
assert 0 < found.epsilon_lower < found.epsilon_lower_gaussian < found.epsilon_lower_independent < 4.38
assert not found.violated

wrong = one_run(3 * included + rng.normal(size=CANARIES), included, delta=DELTA, claim=claim)
print(wrong.verdict)
assert wrong.violated
