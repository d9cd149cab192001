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

REPEATS = 400  # at most; a night makes all of them
CONFIDENCE = 0.9
ERROR_RATE = 1e-4  # with which one of these tests fails although the bound keeps its level
TWICE = 2 * (1 - CONFIDENCE)  # a rate of errors that must not pass,
MISSED = 0.01  # and how often it is taken for the stated one; with the end at REPEATS it passes in 4 of 100 cases
ALLOWED = int(stats.binom.ppf(1 - ERROR_RATE, REPEATS, 1 - CONFIDENCE))
NIGHT = settings.default.max_examples > 100


class Errors:
    """Counts how often something was wrong, until it is clear whether that is more often than stated.

    A sequential probability ratio test (Wald 1945) of the stated rate against twice that: the ratio of likelihoods is a
    martingale under the stated rate, and exceeds 1 / ERROR_RATE with at most that probability whenever it is looked at
    (Ville); under twice the rate its inverse exceeds 1 / MISSED with at most that one. What is wrong more rarely than
    stated, as most bounds are, is seen to be so after 40 to 60 tries, where 160 of them, counted, let twice the rate
    pass in every other case. A night makes all tries and counts.
    """

    _WRONG, _RIGHT = math.log(TWICE / (1 - CONFIDENCE)), math.log((1 - TWICE) / CONFIDENCE)

    def __init__(self):
        self.tries = self.wrong = 0

    def add(self, wrong):
        if not self.clear:
            self.tries, self.wrong = self.tries + 1, self.wrong + bool(wrong)

    @property
    def _log_ratio(self):
        return self.wrong * self._WRONG + (self.tries - self.wrong) * self._RIGHT

    @property
    def clear(self):
        return not NIGHT and not math.log(MISSED) < self._log_ratio < -math.log(ERROR_RATE)

    @property
    def too_many(self):
        if self.clear:
            return self._log_ratio > 0
        assert self.tries == REPEATS
        return self.wrong > ALLOWED


def rejected_too_often(found):
    """Return whether audits of a claim that is true reject it more often than they may."""
    errors = Errors()
    for one in found:
        errors.add(one.violated)
        if errors.clear:
            break
    return errors.too_many


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
    said = ["claim", "bound at any time", "Clopper-Pearson", *(["curve"] if name == "two outputs" else [])]
    wrong = {what: Errors() for what in said}
    for found in audits(EXACT[name], Guarantee(epsilon=1.0), runs=45, stop_early=False):
        wrong["claim"].add(found.violated)
        wrong["bound at any time"].add(max(found.history.epsilon_lower.max(), found.epsilon_lower) > 1)
        wrong["Clopper-Pearson"].add(found.clopper_pearson > 1)
        if name == "two outputs":  # the event tells at any δ: ε = log((p - δ) / (1 - p))
            wrong["curve"].add(any(e > max(0.0, math.log((KEPT - d) / (1 - KEPT))) for d, e in found.curve))
        if all(errors.clear for errors in wrong.values()):
            break
    assert [what for what, errors in wrong.items() if errors.too_many] == []


@pytest.mark.parametrize("rate", [0.03, 0.1, 0.2, 0.25])
def test_tries_end_when_it_is_clear_what_they_show(rate):
    rng, ends, tries = np.random.default_rng(1), [], []
    for _ in range(300):
        errors = Errors()
        while not errors.clear and errors.tries < REPEATS:
            errors.add(rng.random() < rate)
        ends.append(errors.too_many)
        tries.append(errors.tries)
    if rate > 0.1:
        assert sum(ends) >= 0.93 * len(ends)  # 0.96, and three standard errors of that
    else:
        assert not any(ends)
    assert rate != 0.03 or NIGHT or np.mean(tries) < 70


@pytest.mark.parametrize("name", FRONTS)
def test_a_true_claim_is_rejected_no_more_often_than_stated(name, monkeypatch):
    monkeypatch.setattr(Frontier, "look", lambda self: 0.0)  # only the claim is tested here
    assert not rejected_too_often(audits(normal, FRONTS[name], runs=45))


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
    assert not rejected_too_often(audits(parity, Guarantee(epsilon=1.0), runs=60, pairs=pairs))


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
    assert not rejected_too_often(audits(Drifting, Guarantee(epsilon=1.0), runs=60))


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
