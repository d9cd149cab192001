# %% [markdown]
# # People with their visits
# Two tables that belong together: patients, and their visits over time. What is protected is a person with all their
# visits. The clinic is simulated, so that the answer can be compared with the truth.

# %%
import polars as pl

import escudo
from escudo.synthesis import clinic

private = clinic(3000, seed=7)
tables = escudo.PrivateTables(private.frames, private.schema)
model = escudo.synthesize(tables, private.graph, epsilon=2.0, delta=1e-6, seed=1)
print(model.guarantee)

# %%
drawn = model.sample(3000, seed=1)
visits = drawn["visits"]
print(f"{drawn['patients'].height:,} synthetic patients with {visits.height:,} visits; one of them:")
print(visits.filter(pl.col("patient") == visits["patient"][0]).head(5))
assert set(visits["patient"]) <= set(drawn["patients"]["patient"])

# %% [markdown]
# What if everybody were treated at every visit? The model is sampled under the intervention.


# %%
def severe(frame):
    return float((frame["severity"] == "severe").mean())


for level in ("yes", "no"):
    made = severe(model.sample(5000, do={"visits.treat": level}, seed=2)["visits"])
    truth = severe(clinic(5000, treat=level, seed=3).frames["visits"])
    print(f"treat = {level}: severe at {made:.1%} of the visits by the model, {truth:.1%} in truth")
    assert abs(made - truth) < 0.1
