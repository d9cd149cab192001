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
from escudo.discovery._effect_of import PreparedEffect, effect_of, prepare_effect
from escudo.discovery._treatment import contrast_interval, holds
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
    network: Network, treatment: str, outcome: str, *, rows: int, epsilon: float, delta: float, forget: bool = False
) -> float:
    """Return the share of simulated tables whose interval holds the network's own answer under do()."""
    question = prepared(network, treatment, outcome, epsilon, delta)
    law = joint(network, (*question.table.adjustment, treatment, outcome))
    weights = question.table.outcome.weights
    means = [float(joint(network, (outcome,), {treatment: level}) @ weights) for level in question.contrast]
    rng = np.random.default_rng(20_261_115)
    held = 0
    for _ in range(RUNS):
        counts = rng.multinomial(rows, law.ravel()).reshape(question.table.strata, *law.shape[-2:])
        strata = question.table.release(question.table.sums(counts), Purse(seed=rng))
        strata = strata.only(list(question.contrast))
        if forget:
            strata = replace(strata, covariance=strata.covariance - question.table.noise_variance * np.eye(2))
        held += holds(strata, SIGNS, means[1] - means[0], critical=question._critical)
    return held / RUNS


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.2, 0.0)], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("name", NETWORKS)
def test_intervals_hold_the_truth_as_often_as_they_say(name: str, epsilon: float, delta: float) -> None:
    network, treatment, outcome = NETWORKS[name]
    rows = 30_000 if name == "many strata" else 8_000
    assert coverage(network, treatment, outcome, rows=rows, epsilon=epsilon, delta=delta) >= LEAST


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
