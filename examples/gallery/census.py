# %% [markdown]
# # Counts of a census, in three regions
# Households in a table, counted by region and size. Each household is one row; adding or removing one changes one
# count by one.

# %%
import numpy as np
import polars as pl

import escudo
from escudo.privacy import MemoryAccount

rng = np.random.default_rng(3)
regions, sizes = ["north", "middle", "south"], ["1", "2", "3", "4 or more"]
homes = pl.DataFrame(
    {"region": rng.choice(regions, 9000, p=[0.2, 0.5, 0.3]), "size": rng.choice(sizes, 9000, p=[0.4, 0.3, 0.15, 0.15])}
)
schema = escudo.Schema.from_dict({"region": regions, "size": sizes})
account = MemoryAccount(epsilon=1.0, delta=1e-6, relation="add_remove")
table = escudo.PrivateTable(homes, schema, account)

# %% [markdown]
# One model for all tables of two columns: regions, sizes, and both together agree with each other by construction.

# %%
model = escudo.synthesize(table, None, epsilon=1.0, delta=1e-6, seed=3)
made = model.sample(9000, seed=1)
counted = made.group_by("region", "size").len().sort("region", "size")
print(counted.pivot("size", index="region", values="len"))

# %% [markdown]
# Nobody can be told from it: one household moves the probability of any such table by a factor of at most e.

# %%
print(model.guarantee)
real = homes.group_by("region", "size").len().sort("region", "size")
worst = np.abs(real["len"].cast(int).to_numpy() - counted["len"].to_numpy()).max()
print(f"the worst cell is off by {worst} households of {len(homes):,}, sampling included")
assert worst < 250
