"""Audits from logs: a bound under stated assumptions, and what a hidden cause leaves of it."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from escudo.auditing import observe
from escudo.errors import InputError


def log(runs: int, epsilon: float, *, seed: int, pull: float = 0.0, noise: float = 1.0) -> pl.DataFrame:
    """Runs of randomised response with ε, where a cause goes with the record (``pull``) and acts on the output."""
    rng = np.random.default_rng(seed)
    cause = rng.random(runs) < 0.5
    there = rng.random(runs) < np.where(cause, 0.5 + pull, 0.5 - pull)
    truth = rng.random(runs) < math.exp(epsilon) / (1 + math.exp(epsilon))
    said = np.where(truth, there, ~there)
    quiet = cause & (rng.random(runs) < 1 - noise)  # with the cause, some answers are "no" whatever the record
    return pl.DataFrame({"there": there, "said": said & ~quiet, "cause": cause})


def test_the_bound_is_near_the_truth_and_below_it():
    found = observe(log(20_000, 1.0, seed=1), record="there", output="said", claim=0.5)
    assert 0.8 < found.epsilon_lower < 1.0
    assert found.speaks_against
    assert "unless a hidden cause" in found.verdict


def test_it_is_above_the_truth_no_more_often_than_it_says():
    runs = 200
    wrong = sum(
        observe(log(400, 0.5, seed=seed), record="there", output="said", confidence=0.8).epsilon_lower > 0.5
        for seed in range(runs)
    )
    assert wrong <= 0.2 * runs


def test_what_is_logged_can_be_adjusted_for():
    """A mechanism that ignores the record, whose output a cause decides: the log alone speaks against it."""
    told = {"record": "there", "output": "said", "claim": 0.0}
    for seed in range(5):
        rng = np.random.default_rng(seed)
        cause = rng.random(8000) < 0.5
        frame = pl.DataFrame(
            {
                "there": rng.random(8000) < np.where(cause, 0.8, 0.2),
                "said": rng.random(8000) < np.where(cause, 0.7, 0.2),
                "cause": cause,
            }
        )
        assert observe(frame, **told).speaks_against
        assert not observe(frame, adjust=["cause"], **told).speaks_against


def test_a_hidden_cause_of_the_stated_strength_would_explain_it():
    """Ding and VanderWeele: no hidden cause below the strength makes an output as unequal where there is no effect."""
    found = observe(log(50_000, 1.5, seed=3), record="there", output="said", claim=0.2)
    assert found.with_hidden_cause(found.strength) == pytest.approx(found.claim)
    assert found.with_hidden_cause(1.0) == found.epsilon_lower
    for gamma in (1.2, 2.0, 4.0):
        common, effect = gamma, gamma  # how much commoner the cause is, and how much it multiplies the output
        rare = 1 / common
        ratio = (rare * common * effect + 1 - rare * common) / (rare * effect + 1 - rare)
        assert math.log(ratio) <= found.epsilon_lower - found.with_hidden_cause(gamma) + 1e-12


def test_a_mechanism_that_keeps_its_claim_is_left_alone():
    found = observe(log(5000, 0.5, seed=4, pull=0.3), record="there", output="said", adjust=["cause"], claim=0.5)
    assert not found.speaks_against
    assert found.strength == 1.0


def test_it_says_what_it_takes_for_granted():
    found = observe(log(2000, 3.0, seed=5), record="there", output="said", adjust=["cause"], claim=1.0)
    assert "Observed, not tried" in str(found)
    assert "from before the record was decided" in str(found)
    assert found.to_json()["assumptions"] == list(found.assumptions)
    assert found.stratum is None or len(found.stratum) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"record": "their"}, "no column 'their'"),
        ({"adjust": ["said"]}, "different columns"),
        ({"confidence": 0.0}, "confidence"),
        ({"claim": -1.0}, "claim"),
    ],
)
def test_what_cannot_be_asked_is_refused(change, words):
    with pytest.raises(InputError, match=words):
        observe(log(100, 1.0, seed=0), **{"record": "there", "output": "said", **change})


def test_logs_that_say_nothing_are_refused():
    frame = log(100, 1.0, seed=0)
    with pytest.raises(InputError, match="dataframe"):
        observe([1, 2], record="there", output="said")
    with pytest.raises(InputError, match="nothing can be compared"):
        observe(frame.filter(pl.col("there")), record="there", output="said")
    with pytest.raises(InputError, match="no runs"):
        observe(frame.head(0), record="there", output="said")
    with pytest.raises(InputError, match="missing"):
        observe(frame.with_columns(said=pl.lit(None)), record="there", output="said")
    many = pl.DataFrame({"there": [True, False] * 600, "said": np.arange(1200)})
    with pytest.raises(InputError, match="fewer groups"):
        observe(many, record="there", output="said")
