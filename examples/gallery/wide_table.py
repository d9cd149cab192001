# %% [markdown]
# # A wide table, as of genes
# Two dozen markers, each with two levels, and a disease that depends on two of them. Nobody knows the graph; the budget
# is shared so that what goes together is measured, and the rest is not.

# %%
import numpy as np
import polars as pl

import escudo

rng = np.random.default_rng(7)
people, markers = 3000, 24
blocks = rng.integers(0, 2, (people, markers // 3))
genes = (blocks[:, np.arange(markers) // 3] ^ (rng.random((people, markers)) < 0.1)).astype(int)
ill = rng.random(people) < 0.1 + 0.25 * genes[:, 0] + 0.25 * genes[:, 15]
levels = np.array(["a", "b"])
frame = pl.DataFrame({f"m{k}": levels[genes[:, k]] for k in range(markers)} | {"ill": np.where(ill, "yes", "no")})
schema = escudo.Schema.from_dict({f"m{k}": ["a", "b"] for k in range(markers)} | {"ill": ["no", "yes"]})
table = escudo.PrivateTable(frame, schema)

# %%
model = escudo.synthesize(table, None, epsilon=3.0, delta=1e-6, seed=1)
made = model.sample(people, seed=2)
print(f"{len(made.columns)} columns, {len(made):,} rows")

# %% [markdown]
# Neighbouring markers agree in the real table; do they in the synthetic one?


# %%
def agreeing(rows, first, second):
    return float((rows[first] == rows[second]).mean())


for pair in (("m0", "m1"), ("m15", "m16"), ("m0", "m15")):
    print(pair, f"real {agreeing(frame, *pair):.2f}, synthetic {agreeing(made, *pair):.2f}")
assert agreeing(made, "m0", "m15") < 0.65
print(model.guarantee)
