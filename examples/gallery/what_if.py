# %% [markdown]
# # What if everyone stopped smoking?
# A released model answers questions about interventions. They cost nothing more: whatever is computed from a release
# is covered by its guarantee.

# %%
import numpy as np

import escudo
from escudo.causal import asia

clinic = asia()
patients = clinic.sample_frame(20_000, rng=np.random.default_rng(1))
schema = escudo.Schema.from_dict({name: list(levels) for name, levels in clinic.levels.items()})
model = escudo.synthesize(escudo.PrivateTable(patients, schema), clinic.graph, epsilon=1.0, delta=1e-6, seed=1)

# %% [markdown]
# To see is not to do: patients who smoke are ill more often, and so they would be if everyone were made to smoke, but
# not by as much as a comparison of groups would say where something else acts on both. Here nothing does, and the two
# agree.

# %%
made = model.sample(20_000, seed=1)
seen = {who: float((made.filter(made["smoke"] == who)["lung"] == "yes").mean()) for who in ("no", "yes")}
done = {who: float((model.sample(20_000, do={"smoke": who}, seed=2)["lung"] == "yes").mean()) for who in ("no", "yes")}
for who in ("no", "yes"):
    print(f"smoke = {who}: seen {seen[who]:.3f}, done {done[who]:.3f}")
assert done["yes"] > done["no"]

# %%
print(model.effect("smoke", "lung"))
