# %% [markdown]
# # An attack before the release
# Would somebody who sees the synthetic rows know whether a certain person was in the table? Before anything is
# published, the custodian plays that game: the generator is fitted many times with and without one outlying person,
# and an attacker who knows the rest guesses.

# %%
import numpy as np
import polars as pl

import escudo

rng = np.random.default_rng(2)
frame = pl.DataFrame(
    {"age": rng.choice(["young", "old"], 200), "town": rng.choice(["a", "b", "c"], 200, p=[0.5, 0.49, 0.01])}
)
schema = escudo.Schema.from_dict({"age": ["young", "old"], "town": ["a", "b", "c"]})
graph = escudo.CausalGraph.from_edges([("age", "town")])

# %%
found = escudo.attack(
    "marginals", frame, schema, graph=graph, epsilon=1.0, targets=1, shadows=10, trials=20, seed=1, jobs=1
)
print(found.verdict)
assert not found.violated

# %% [markdown]
# The verdict names what the guarantee allows at best, and an interval for what was found: twenty fits decide little,
# hundreds would. An attack that fails is no proof; the proof is the guarantee.

# %%
for score in found.ranked[:3]:
    print(f"{score.features}, judged by {score.classifier}: right in {score.accuracy:.0%} of the fits")
