# %% [markdown]
# # A private A/B test
# Half of the visitors saw a new page. Did more of them sign up? The visitors' table stays private; the answer has an
# interval that knows both the chance of the trial and the noise of the privacy.

# %%
import numpy as np
import polars as pl

import escudo
from escudo.privacy import MemoryAccount

rng = np.random.default_rng(11)
page = rng.choice(["old", "new"], 8000)
signed = rng.random(8000) < np.where(page == "new", 0.16, 0.12)
visits = pl.DataFrame({"page": page, "signed": np.where(signed, "yes", "no")})
schema = escudo.Schema.from_dict({"page": ["old", "new"], "signed": ["no", "yes"]})
account = MemoryAccount(epsilon=1.0)
table = escudo.PrivateTable(visits, schema, account)

# %%
found = escudo.effect_of(table, "page", "signed", trial=True, epsilon=0.5, seed=1)
print(found.verdict)
for arm in found.arms:
    print(f"{arm.level}: {arm.mean:.3f}, between {arm.interval[0]:.3f} and {arm.interval[1]:.3f}")
assert found.interval[0] < 0.04 < found.interval[1]

# %% [markdown]
# With a hundredth of the budget the interval is wider, and the answer says that it cannot tell.

# %%
faint = escudo.effect_of(table, "page", "signed", trial=True, epsilon=0.005, seed=2)
print(faint.verdict)
print(f"spent in all: ε = {account.total().epsilon:.3f}")
