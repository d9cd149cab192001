# %% [markdown]
# # Which of two columns causes the other
# Stations on a mountain: does height cause frost, or frost height? The rows are private. Blocks of rows vote, and the
# noisy count of votes decides, or says that it cannot tell.

# %%
import numpy as np
import polars as pl

import escudo

rng = np.random.default_rng(1)
height = rng.uniform(0, 3000, 3000)
frost = (40 + 280 * ((height - 1000) / 2000) ** 2 + rng.normal(0, 20, 3000)).clip(0, 365)  # rarest on the slopes
schema = escudo.Schema.from_dict(
    {"height": {"type": "numeric", "lower": 0, "upper": 3000}, "frost": {"type": "numeric", "lower": 0, "upper": 365}}
)
table = escudo.PrivateTable(pl.DataFrame({"height": height, "frost": frost}), schema)

# %%
found = escudo.direction(table, "frost", "height", epsilon=0.5, seed=1)
print(found)
assert found.verdict == "height->frost"

# %% [markdown]
# Two columns that have nothing to do with each other: no verdict.

# %%
apart = pl.DataFrame({"height": height, "frost": rng.permutation(frost)})
silent = escudo.direction(escudo.PrivateTable(apart, schema), "frost", "height", epsilon=0.5, seed=1)
print(silent.verdict)
assert silent.verdict == "cannot tell"
