"""Every bound is right as often as it says, at claim = truth, looked at after every run, also on a drifting service."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import settings
from scipy import stats

from escudo.auditing import audit, renyi_claim
from escudo.auditing._wealth import Frontier
from escudo.privacy import Guarantee, gdp_to_delta

REPEATS = min(400, 8 * settings.default.max_examples)  # 160 a commit, which shows a rate of 1 in 5; 400 a night
CONFIDENCE = 0.9
ERROR_RATE = 1e-4  # with which one of these tests fails although the bound keeps its level
ALLOWED = int(stats.binom.ppf(1 - ERROR_RATE, REPEATS, 1 - CONFIDENCE))


class Batched:
    """A mechanism given by its batch function."""

    def __init__(self, batch):
        self.batch = batch

    def __call__(self, dataset, rng):
        return self.batch(dataset, 1, rng)[0]


KEPT = math.e / (1 + math.e)
coin = Batched(lambda d, count, rng: np.where(rng.random(count) < KEPT, d, 1 - d))  # ε = 1
geometric = Batched(
    lambda d, count, rng: d + rng.geometric(1 - math.exp(-1), count) - rng.geometric(1 - math.exp(-1), count)
)  # ε = 1
normal = Batched(lambda d, count, rng: d + rng.normal(size=count))  # μ = 1, ρ = 1/2

EXACT = {"two outputs": coin, "many outputs": geometric}
FRONTS = {
    "approximate": Guarantee(epsilon=1.0, delta=gdp_to_delta(1.0, 1.0)),
    "GDP": Guarantee(mu=1.0),
    "zCDP": Guarantee(rho=0.5),
    "Renyi": renyi_claim([1.5, 2, 3, 5, 9, 20], [0.75, 1, 1.5, 2.5, 4.5, 10]),
}


def audits(mechanism, claim, *, runs, pairs=((0, 1),), stop_early=True):
    for seed in range(REPEATS):
        yield audit(
            mechanism() if isinstance(mechanism, type) else mechanism,
            claim=claim,
            pairs=pairs,
            confidence=CONFIDENCE,
            max_runs=runs,
            stop_early=stop_early,
            seed=seed,
            last_bits=False,
            progress=False,
        )


@pytest.mark.parametrize("name", EXACT)
def test_claim_and_bounds_at_the_truth_fail_no_more_often_than_stated(name):
    wrong = {"claim": 0, "bound at any time": 0, "Clopper-Pearson": 0, "curve": 0}
    for found in audits(EXACT[name], Guarantee(epsilon=1.0), runs=45, stop_early=False):
        wrong["claim"] += found.violated
        wrong["bound at any time"] += max(found.history.epsilon_lower.max(), found.epsilon_lower) > 1
        wrong["Clopper-Pearson"] += found.clopper_pearson > 1
        if name == "two outputs":  # the event tells at any δ: ε = log((p - δ) / (1 - p))
            wrong["curve"] += any(e > max(0.0, math.log((KEPT - d) / (1 - KEPT))) for d, e in found.curve)
    assert max(wrong.values()) <= ALLOWED, wrong


@pytest.mark.parametrize("name", FRONTS)
def test_a_true_claim_is_rejected_no_more_often_than_stated(name, monkeypatch):
    monkeypatch.setattr(Frontier, "look", lambda self: 0.0)  # only the claim is tested here
    assert sum(found.violated for found in audits(normal, FRONTS[name], runs=45)) <= ALLOWED


@pytest.mark.parametrize("claim", [Guarantee(mu=0.3), Guarantee(rho=0.01)], ids=["mu", "rho"])
def test_bounds_in_other_notions_stay_below_the_truth(claim):
    limit = 1.0 if claim.mu else 0.5
    found = [
        audit(normal, claim=claim, pairs=[(0, 1)], max_runs=1500, stop_early=False, seed=seed, last_bits=False)
        for seed in range(2)
    ]
    assert all(0.1 * limit < f.lower <= limit for f in found)


def test_several_pairs_share_one_error_rate(monkeypatch):
    monkeypatch.setattr(Frontier, "look", lambda self: 0.0)
    parity = Batched(lambda d, count, rng: np.where(rng.random(count) < KEPT, d % 2, 1 - d % 2))
    pairs = [(0, 1), (2, 1), (1, 4)]
    assert sum(f.violated for f in audits(parity, Guarantee(epsilon=1.0), runs=60, pairs=pairs)) <= ALLOWED


class Drifting:
    """ε = 1 at every single call, while its answers wander with time: a block design would accuse it always."""

    def __init__(self):
        self.calls = 0

    def __call__(self, dataset, rng):
        self.calls += 1
        kept = dataset if rng.random() < KEPT else 1 - dataset
        return kept + 2 * (self.calls // 40)


def test_a_service_that_drifts_but_is_private_is_not_accused(monkeypatch):
    monkeypatch.setattr(Frontier, "look", lambda self: 0.0)
    assert sum(found.violated for found in audits(Drifting, Guarantee(epsilon=1.0), runs=60)) <= ALLOWED


def test_a_block_design_would_accuse_the_drifting_service():
    service, rng = Drifting(), np.random.default_rng(0)
    first = [service(0, rng) for _ in range(300)]
    second = [service(1, rng) for _ in range(300)]
    low = stats.binomtest(sum(o >= 14 for o in second), 300).proportion_ci(0.95).low
    high = stats.binomtest(sum(o >= 14 for o in first), 300).proportion_ci(0.95).high
    assert math.log(low / high) > 1


def test_looking_all_the_time_at_a_fixed_test_would_not_be_allowed():
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(REPEATS):
        right = rng.random(2000) < KEPT
        share = np.cumsum(right) / np.arange(1, 2001)
        error = np.sqrt(KEPT * (1 - KEPT) / np.arange(1, 2001))
        alarms += bool(((share - KEPT) / error > stats.norm.ppf(CONFIDENCE))[50:].any())
    assert alarms > 2 * ALLOWED
