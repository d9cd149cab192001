# %% [markdown]
# # A graph from a private table, and what knowledge adds
# Data alone leave some arrows open: several graphs say the same about every table. What is known beforehand closes
# them, free of charge.

# %%
import numpy as np
import polars as pl

import escudo

rng = np.random.default_rng(0)
rows = 20_000
age, diet = rng.normal(size=(2, rows))
dose = age + rng.normal(size=rows)
pressure = dose - diet + rng.normal(size=rows)
names = ("age", "diet", "dose", "pressure")
frame = pl.DataFrame(dict(zip(names, (age, diet, dose, pressure), strict=True)))
schema = escudo.Schema.from_dict({name: {"type": "numeric", "lower": -10, "upper": 10} for name in names})
table = escudo.PrivateTable(frame, schema)

# %%
found = escudo.discover(table, epsilon=0.5, delta=1e-6, method="gaussian", seed=1)
print("told:", found.graph.edges)
print("open:", found.graph.undirected_edges)

# %% [markdown]
# Nothing acts on a person's age.

# %%
known = escudo.CausalGraph.from_edges([], nodes=names, tiers=[["age"], ["dose"]])
settled = escudo.discover(table, epsilon=0.5, delta=1e-6, method="gaussian", knowledge=known, seed=1)
print("told:", settled.graph.edges)
assert ("age", "dose") in settled.graph.edges
assert settled.graph.is_dag
