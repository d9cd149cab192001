"""Claims about fits that are made all at once, as networks are on an accelerator."""

from __future__ import annotations

from functools import partial

import pytest

import escudo
from escudo.attacks import attack
from escudo.attacks._victims import EscudoVictim
from escudo.synthesis.neural import _many

QUICK = [("queries", "logistic"), ("nearest", "likelihood ratio")]


@pytest.fixture
def together(flipped):
    """A victim whose fits are made all at once, and counted."""

    class Fit:
        def __init__(self, make):
            self.synthetic = make

    class Together(flipped):
        together = True
        fits: tuple[int, ...] = ()

        def fitted(self, worlds, spread):
            self.fits = (*self.fits, len(worlds))
            for rows, seed in worlds:
                yield Fit(partial(flipped.synthetic, self, rows, seed=seed))

    return Together


@pytest.mark.parametrize(("rest", "jobs"), [("fixed", 2), ("resampled", 1)])
def test_the_answer_is_that_of_fits_one_by_one(rows, schema, flipped, together, rest, jobs):
    arguments = {"choose": [60], "attacks": QUICK, "shadows": 70, "trials": 80, "size": 5, "seed": 4, "rest": rest}
    alone = attack(flipped(3.0), rows, schema, **arguments)
    assert attack(together(3.0), rows, schema, jobs=jobs, **arguments).to_json() == alone.to_json()
    assert alone.targets[0].audit.runs == 80


def test_trials_are_made_in_few_large_batches(rows, schema, together):
    victim = together(1.0)
    found = attack(victim, rows, schema, choose=[60], attacks=QUICK, shadows=30, trials=400, size=5)
    assert found.targets[0].audit.runs == 400
    assert victim.fits[0] == 30
    assert len(victim.fits) <= 4
    assert sum(victim.fits[1:]) <= 400 + 2 * 20  # both worlds, and a margin for the coins


def test_it_stops_when_the_answer_is_clear(rows, schema, together):
    victim = together(6.0, claimed=0.1)
    found = attack(victim, rows, schema, choose=[60], attacks=QUICK, shadows=30, trials=5000, size=5)
    assert found.violated
    assert sum(victim.fits) <= 30 + 512


def test_an_attack_goes_on_from_its_log(rows, schema, together, tmp_path):
    arguments = {"choose": [60], "attacks": QUICK, "shadows": 20, "trials": 30, "size": 5, "log": tmp_path / "fits"}
    first = attack(together(1.0), rows, schema, **arguments)
    again = together(1.0)
    assert attack(again, rows, schema, **arguments).to_json() == first.to_json()
    assert again.fits == ()


def test_escudos_networks_give_the_same_answer_together(rows, schema, monkeypatch):
    graph = escudo.CausalGraph.from_edges([("a", "b")], nodes=["a", "b", "c"])
    arguments = {"graph": graph, "epsilon": 2.0, "delta": 1e-5, "steps": 2, "start": "levels", "pretraining": 0}
    arguments |= {"choose": [60], "attacks": QUICK, "shadows": 4, "trials": 4, "seed": 1, "relation": "add_remove"}
    alone = attack("autoregressive", rows, schema, **arguments).to_json()
    monkeypatch.setattr(EscudoVictim, "together", True)
    monkeypatch.setattr(_many, "_width", lambda count, each: 4)
    assert attack("autoregressive", rows, schema, **arguments).to_json() == alone
