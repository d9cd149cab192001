"""Intervals of treatment effects hold the truth about as often as they say, and would not if noise were forgotten.

``benchmarks/effect_of.py`` is the long version, over more networks and budgets.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from escudo.causal import CausalGraph, Network, asia
from escudo.discovery._adjustment import Strata, contrast_interval, holds
from escudo.discovery._effect_of import PreparedEffect, effect_of, prepare_effect
from escudo.mechanisms import Purse
from escudo.table import PrivateTable, Schema

RUNS = 400
LEAST = 0.93 - 0.01  # the target less one standard error of 400 runs: seeds are fixed, so this cannot flicker
SIGNS = np.array([-1.0, 1.0])


def chain() -> Network:
    """Confounding by a column of three levels, and a rare treatment."""
    return Network(
        levels={"z": ("a", "b", "c"), "t": ("no", "yes"), "y": ("no", "yes")},
        parents={"t": ("z",), "y": ("z", "t")},
        tables={
            "z": [0.6, 0.3, 0.1],
            "t": [[0.95, 0.05], [0.7, 0.3], [0.2, 0.8]],
            "y": [[[0.8, 0.2], [0.6, 0.4]], [[0.5, 0.5], [0.4, 0.6]], [[0.2, 0.8], [0.1, 0.9]]],
        },
    )


def many_strata() -> Network:
    """Two confounders of four levels each: sixteen strata, some of them small."""
    rng = np.random.default_rng(3)
    rate, need = rng.beta(2, 2, (4, 4, 2)), rng.beta(2, 2, (4, 4))
    return Network(
        levels={"a": tuple("1234"), "b": tuple("1234"), "t": ("no", "yes"), "y": ("no", "yes")},
        parents={"t": ("a", "b"), "y": ("a", "b", "t")},
        tables={
            "a": [0.4, 0.3, 0.2, 0.1],
            "b": [0.55, 0.25, 0.15, 0.05],
            "t": np.stack([1 - need, need], axis=-1),
            "y": np.stack([1 - rate, rate], axis=-1),
        },
    )


def wards() -> Network:
    """Three confounders of four levels each: 64 strata, in some of which one arm is rare."""
    rng = np.random.default_rng(11)
    names = ("a", "b", "c")
    rate, need = rng.beta(2, 2, (4, 4, 4, 2)), rng.beta(1.5, 1.5, (4, 4, 4))
    return Network(
        levels={name: tuple("1234") for name in names} | {"t": ("no", "yes"), "y": ("no", "yes")},
        parents={"t": names, "y": (*names, "t")},
        tables={name: rng.dirichlet(np.full(4, 3.0)) for name in names}
        | {"t": np.stack([1 - need, need], axis=-1), "y": np.stack([1 - rate, rate], axis=-1)},
    )


def doses() -> Network:
    """A confounder and three arms."""
    return Network(
        levels={"z": ("a", "b", "c"), "t": ("none", "low", "high"), "y": ("no", "yes")},
        parents={"t": ("z",), "y": ("z", "t")},
        tables={
            "z": [0.6, 0.3, 0.1],
            "t": [[0.8, 0.15, 0.05], [0.5, 0.2, 0.3], [0.1, 0.2, 0.7]],
            "y": [
                [[0.8, 0.2], [0.7, 0.3], [0.6, 0.4]],
                [[0.5, 0.5], [0.45, 0.55], [0.4, 0.6]],
                [[0.2, 0.8], [0.15, 0.85], [0.1, 0.9]],
            ],
        },
    )


NETWORKS = {"asia": (asia(), "bronc", "dysp"), "chain": (chain(), "t", "y"), "many strata": (many_strata(), "t", "y")}


def joint(network: Network, columns: tuple[str, ...], do: dict[str, int] | None = None) -> NDArray[np.float64]:
    letter = {name: number for number, name in enumerate(network.nodes)}
    operands: list[object] = []
    for name in network.nodes:
        if do and name in do:
            operands += [np.eye(len(network.levels[name]))[do[name]], [letter[name]]]
        else:
            operands += [network.table(name), [*(letter[parent] for parent in network.parents[name]), letter[name]]]
    return np.einsum(*operands, [letter[name] for name in columns], optimize="greedy")


def prepared(network: Network, treatment: str, outcome: str, epsilon: float, delta: float) -> PreparedEffect:
    schema = Schema.from_dict({name: list(levels) for name, levels in network.levels.items()})
    return prepare_effect(schema, treatment, outcome, graph=network.graph, epsilon=epsilon, delta=delta)


def coverage(
    network: Network,
    treatment: str,
    outcome: str,
    *,
    rows: int,
    epsilon: float,
    delta: float,
    forget: bool = False,
    runs: int = RUNS,
) -> float:
    """Return the share of simulated tables whose interval holds the network's own answer under do()."""
    question = prepared(network, treatment, outcome, epsilon, delta)
    law = joint(network, (*question.table.adjustment, treatment, outcome))
    weights = question.table.outcome.weights
    means = [float(joint(network, (outcome,), {treatment: level}) @ weights) for level in question.contrast]
    rng = np.random.default_rng(20_261_115)
    held = 0
    for _ in range(runs):
        counts = rng.multinomial(rows, law.ravel()).reshape(question.table.strata, *law.shape[-2:])
        strata = question.table.release(question.table.sums(counts), Purse(seed=rng))
        strata = strata.only(list(question.contrast))
        if forget:
            strata = replace(strata, covariance=strata.covariance - question.table.noise_variance * np.eye(2))
        held += holds(strata, SIGNS, means[1] - means[0], critical=question._critical)
    return held / runs


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.2, 0.0)], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("name", NETWORKS)
def test_intervals_hold_the_truth_as_often_as_they_say(name: str, epsilon: float, delta: float) -> None:
    network, treatment, outcome = NETWORKS[name]
    rows = 30_000 if name == "many strata" else 8_000
    assert coverage(network, treatment, outcome, rows=rows, epsilon=epsilon, delta=delta) >= LEAST


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.2, 0.0)], ids=["gaussian", "laplace"])
def test_sixty_four_strata_are_covered(epsilon: float, delta: float) -> None:
    held = coverage(wards(), "t", "y", rows=20_000, epsilon=epsilon, delta=delta, runs=150)
    assert held >= 0.938 - 0.018  # the target less one standard error of 150 runs


def test_three_arms_are_covered_each_and_joint_intervals_together() -> None:
    network = doses()
    question = prepared(network, "t", "y", 1.0, 1e-6)
    law = joint(network, (*question.table.adjustment, "t", "y"))
    means = [float(joint(network, ("y",), {"t": level})[1]) for level in range(3)]
    pairs = question._pairs()
    assert len(pairs) == 3
    rng, runs = np.random.default_rng(20_261_116), 250
    each, together = np.zeros(3), 0
    for _ in range(runs):
        counts = rng.multinomial(8_000, law.ravel()).reshape(question.table.strata, *law.shape[-2:])
        strata = question.table.release(question.table.sums(counts), Purse(seed=rng))

        def held(first: int, second: int, critical: float, strata: Strata = strata) -> bool:
            return holds(strata.only([first, second]), SIGNS, means[second] - means[first], critical=critical)

        hold = [held(*pair, question._critical) for pair in pairs]
        each += hold
        together += all(held(*pair, question._critical_of(3)) for pair in pairs)
    assert (each / runs).min() >= LEAST
    assert together / runs >= LEAST
    assert together / runs > 1 - sum(1 - each / runs)  # what the intervals for each alone would promise together


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "unlike"])
def test_persons_with_several_rows_are_covered(alike: bool) -> None:
    """Each person has one to four rows: all alike, or alike in nothing."""
    network = chain()
    columns = {name: list(levels) for name, levels in network.levels.items()}
    schema = Schema.from_dict(columns, person_id="who", max_rows_per_person=4)
    question = prepare_effect(schema, "t", "y", graph=network.graph, epsilon=1.0, delta=1e-6)
    law = joint(network, ("z", "t", "y"))
    truth = float(np.diff([joint(network, ("y",), {"t": level})[1] for level in (0, 1)])[0])
    rng, runs, held, blind = np.random.default_rng(20_261_117), 300, 0, 0
    for _ in range(runs):
        drawn = [rng.multinomial(2_000 * (1 if alike else k), law.ravel()) * (k if alike else 1) for k in range(1, 5)]
        counts = np.sum(drawn, axis=0).reshape(question.table.strata, *law.shape[-2:])
        strata = question.table.release(question.table.sums(counts), Purse(seed=rng))
        held += holds(strata, SIGNS, truth, critical=question._critical)
        noise = question.table.noise_variance * np.eye(2)
        once = replace(strata, covariance=(strata.covariance - noise) / 4 + noise)  # as if rows were people
        blind += holds(once, SIGNS, truth, critical=question._critical)
    assert held / runs >= LEAST
    assert blind <= held
    if alike:
        assert blind / runs < 0.93


def test_intervals_that_forget_the_noise_do_not() -> None:
    network, treatment, outcome = NETWORKS["chain"]
    held = coverage(network, treatment, outcome, rows=8_000, epsilon=0.05, delta=0.0, forget=True)
    assert held < 0.8


def test_numbers_are_covered_through_the_whole_verb() -> None:
    """A number with a skewed law, a confounder, and everything from the frame to the interval."""
    rng = np.random.default_rng(1)
    schema = Schema.from_dict(
        {"old": {"type": "boolean"}, "drug": {"type": "boolean"}, "score": {"type": "numeric", "lower": 0, "upper": 60}}
    )
    graph = CausalGraph.from_edges([("old", "drug"), ("old", "score"), ("drug", "score")])
    question = prepare_effect(schema, "drug", "score", graph=graph, epsilon=0.5)
    held = 0
    for seed in range(120):
        old = rng.random(3000) < 0.4
        drug = rng.random(3000) < np.where(old, 0.7, 0.2)
        score = rng.gamma(4.0, 2.0, 3000) + 4 * old + 3 * drug
        frame = pl.DataFrame({"old": old, "drug": drug, "score": score})
        table = PrivateTable(frame, schema)
        strata = question.table.measure(table, Purse(table.account, seed))
        held += holds(strata, SIGNS, 3.0 / 60, critical=question._critical)
    assert held / 120 >= 0.92
    low, high = (60 * end for end in contrast_interval(strata, SIGNS, critical=question._critical))
    found = effect_of(table, "drug", "score", graph=graph, epsilon=0.5, seed=seed)
    assert found.interval == pytest.approx((low, high))
