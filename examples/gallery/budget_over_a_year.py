# %% [markdown]
# # A budget over a year
# A ledger holds one account for the dataset. Each month something is asked; each answer costs; when the cap is
# reached, the ledger refuses, and nothing is read any more.

# %%
import numpy as np
import polars as pl

import escudo
from escudo.errors import BudgetExceededError

ledger = escudo.Ledger("sqlite:///year.db")
account = ledger.open("visits", epsilon=2.0, delta=1e-6)
rng = np.random.default_rng(4)
schema = escudo.Schema.from_dict({"ward": ["a", "b"], "stayed": ["no", "yes"]})

# %%
for month in range(1, 13):
    rows = pl.DataFrame({"ward": rng.choice(["a", "b"], 500), "stayed": rng.choice(["no", "yes"], 500)})
    table = escudo.PrivateTable(rows, schema, account)
    try:
        found = escudo.effect_of(table, "ward", "stayed", trial=True, epsilon=0.3)
    except BudgetExceededError:
        print(f"month {month}: refused, and nothing was read")
        continue
    print(f"month {month}: answered; {account.info().used:.0%} of the budget is used")

# %% [markdown]
# The ledger keeps every spend, and anybody who has the file can check its chain of hashes.

# %%
spent = account.info()
print(f"{spent.used:.0%} used")
assert 0.5 < spent.used <= 1
ledger.close()
