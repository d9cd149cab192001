"""Intervals of effects in linked tables hold the truth as often as they say, however alike one person's rows are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from escudo.discovery._adjustment import holds
from escudo.discovery._effect_of import EffectQuestion
from escudo.discovery._linked_effect import LinkedEffect
from escudo.mechanisms import Purse
from escudo.privacy import Budget
from escudo.table import Histories, HistoryRows, LinkedSchema, Tally

SIGNS = np.array([-1.0, 1.0])
RUNS, PEOPLE, MOST = 300, 3_000, 6
LEAST = 0.938 - 0.0125  # the target less one standard error of as many runs: seeds are fixed, so this cannot flicker
SCHEMA = LinkedSchema.from_dict({
    "linked": {"people": "people", "dates": "days"},
    "tables": {
        "people": {"key": "id", "origin_day": 0, "columns": {"old": ["no", "yes"]}},
        "visits": {
            **{"parent": "people", "foreign_key": "id", "order": "day", "most": MOST},
            **{"start_edges": [0, 9], "gap_edges": [0, 9]},
            "columns": {"ill": ["no", "yes"], "drug": ["no", "yes"]},
        },
    },
})  # fmt: skip


def cohort(people: int, rng: np.random.Generator, *, alike: bool) -> Histories:
    """Return people whose illness and number of visits share a frailty; or people whose visits are all the same."""
    frail, old = rng.random(people) < 0.4, (rng.random(people) < 0.5).astype(np.int64)
    count = 1 + rng.binomial(MOST - 1, np.where(frail, 0.7, 0.3))
    ill, drug = np.zeros((people, MOST), dtype=np.int64), np.zeros((people, MOST), dtype=np.int64)
    for place in range(MOST):
        before = (1.4 * ill[:, place - 1] - 1.0 * drug[:, place - 1]) if place and not alike else 0.0
        chance = 1 / (1 + np.exp(0.4 - 0.8 * frail - 0.5 * old - before))
        ill[:, place] = rng.random(people) < chance
        drug[:, place] = rng.random(people) < 0.25 + 0.4 * ill[:, place] + 0.1 * old
        if alike:  # what happens at the first visit happens at every one
            ill, drug = np.repeat(ill[:, :1], MOST, axis=1), np.repeat(drug[:, :1], MOST, axis=1)
            break
    there = np.arange(MOST) < count[:, None]
    person, place = np.nonzero(there)
    codes = {"ill": ill[there], "drug": drug[there]}
    rows = HistoryRows(person, place + 1, count, codes)
    return Histories(SCHEMA, {"people.old": old}, {"visits": rows}, people, Tally())


@pytest.mark.parametrize(("alike", "delta"), [(False, 0.0), (True, 1e-6)], ids=["a course", "rows alike"])
def test_people_are_what_is_sampled(alike: bool, delta: float) -> None:
    asked = EffectQuestion("visits.drug@prev", "visits.ill", adjust=["people.old", "visits.ill@prev"])
    if alike:  # the row says all of the person; what it is adjusted for leaves something to compare
        asked = EffectQuestion("visits.drug", "visits.ill", adjust=["people.old"])
    question = LinkedEffect(asked).prepare(SCHEMA, SCHEMA.neighbours(people=PEOPLE), Budget(1.0, delta))
    table = question.inside.table
    counted = replace(question.counted, columns=(*table.adjustment, table.treatment, "visits.ill"))

    def counts(people: int) -> np.ndarray:
        return cohort(people, rng, alike=alike).counts(counted).reshape(table.strata, 2, 2)

    rng = np.random.default_rng(20_261_117)
    many = counts(400_000).astype(np.float64)
    means = many[..., 1] / many.sum(axis=2)
    truth = float((many.sum(axis=(1, 2)) / many.sum()) @ (means @ SIGNS))
    held = blind = 0
    for _ in range(RUNS):
        strata = table.release(table.sums(counts(PEOPLE)), Purse(seed=rng))
        held += holds(strata, SIGNS, truth, critical=question.inside._critical)
        noise = table.noise_variance * np.eye(2)
        rows = (strata.covariance - noise) / 3.5  # as if each of about as many rows to a person were a person
        blind += holds(replace(strata, covariance=rows + noise), SIGNS, truth, critical=question.inside._critical)
    assert held / RUNS >= LEAST
    if alike:
        assert blind / RUNS < 0.9
