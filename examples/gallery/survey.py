# %% [markdown]
# # A survey about something people would rather not say
# Each person answers truthfully with probability 3/4. What does one answer change, and about whom? The survey is a
# small structural model, so every effect is computed exactly.

# %%
from escudo import SEM
from escudo.effects import definitions, mechanism_of, survey

model = SEM.parse("""
R1 ~ no: 0.8, yes: 0.2
R2 ~ no: 0.8, yes: 0.2
D1 := randomised_response(R1, epsilon = 1.0986)
D2 := randomised_response(R2, epsilon = 1.0986)
O  := (D1, D2)
""")
print(model.to_text())

# %% [markdown]
# The effect of one person's true answer on everything that is published is ln 3, about 1.10.

# %%
for row in survey(model).rows:
    print(f"{', '.join(row.names)} ({row.role}): {row.effect}")

# %% [markdown]
# Which definition of privacy does that meet? Each has its own smallest ε.

# %%
found = definitions(mechanism_of(model)[0])
print(found)
