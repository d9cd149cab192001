# %% [markdown]
# # A hospital releases its visits
# A table of patients, a causal graph the doctors agree on, and a budget. What comes out is a folder: synthetic rows,
# a model, a record, and a report. The patients here are simulated; the noise has a seed only so that this page reads
# the same every time.

# %%
import numpy as np

import escudo
from escudo.causal import asia
from escudo.privacy import MemoryAccount

clinic = asia()
patients = clinic.sample_frame(5000, rng=np.random.default_rng(1))
schema = escudo.Schema.from_dict({name: list(levels) for name, levels in clinic.levels.items()})
account = MemoryAccount(epsilon=2.0, delta=1e-6)
table = escudo.PrivateTable(patients, schema, account)
print(table)

# %% [markdown]
# First the plan: all that would be spent, and on what. Nothing is read for it.

# %%
print(escudo.plan(escudo.synthesize, table, clinic.graph, epsilon=1.0, delta=1e-6))
assert account.total().epsilon == 0

# %% [markdown]
# Then the model. The account is charged before any noise is drawn.

# %%
model = escudo.synthesize(table, clinic.graph, epsilon=1.0, delta=1e-6, seed=1)
print(model.guarantee)
rows = model.sample(5000, seed=2)
print(rows.head(3))

# %% [markdown]
# How near is it? The hospital may compare for itself; these figures are private, and not part of the release.

# %%
for name in ("smoke", "lung"):
    real, made = ((frame[name] == "yes").mean() for frame in (patients, rows))
    print(f"{name}: {real:.1%} of the patients, {made:.1%} of the synthetic rows")
    assert abs(real - made) < 0.05
