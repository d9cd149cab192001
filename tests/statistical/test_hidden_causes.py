"""Discovery with hidden causes: what it claims is true about as often as it says, on tables nothing was fitted to."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.discovery import AncestralDiscovery, discover
from escudo.table import PrivateTable, Schema

TABLES, ROWS = 16, 30_000
QUANTILE = 3.09  # exceeded with probability 1e-3: how often a test fails although every confidence is right


def made(rng: np.random.Generator) -> tuple[CausalGraph, pl.DataFrame]:
    """Return a random graph of eight columns with logistic effects, and rows of the six that are not hidden."""
    names = [f"x{number}" for number in range(8)]
    order = rng.permutation(8)
    values: dict[str, np.ndarray] = {}
    arrows = []
    for place, number in enumerate(order):
        above = [names[order[other]] for other in range(place) if rng.random() < 0.35]
        arrows += [(cause, names[number]) for cause in above]
        push = sum(
            (rng.choice([-1, 1]) * rng.uniform(1.5, 3) * (values[cause] - 0.5) for cause in above), np.zeros(ROWS)
        )
        values[names[number]] = (rng.random(ROWS) < 1 / (1 + np.exp(-push - rng.normal() / 2))).astype(int)
    hidden = set(rng.choice(names, 2, replace=False).tolist())
    graph = CausalGraph.from_edges(arrows, nodes=names, latents=hidden)
    return graph, pl.DataFrame({name: values[name] for name in names if name not in hidden})


@pytest.fixture(scope="module")
def found() -> list[tuple[CausalGraph, AncestralDiscovery]]:
    rng = np.random.default_rng(8)
    answers = []
    for seed in range(TABLES):
        graph, frame = made(rng)
        schema = Schema.from_dict({name: [0, 1] for name in frame.columns})
        answer = discover(PrivateTable(frame, schema), epsilon=2.0, delta=1e-6, hidden_causes=True, seed=seed)
        answers.append((graph, answer))
    return answers


def at_least(stated: list[float], true: list[bool]) -> bool:
    """Return whether as many are true as was stated, as far as chance allows."""
    spread = np.sqrt(sum(value * (1 - value) for value in stated))
    return sum(true) >= sum(stated) - QUANTILE * spread


def test_edges_are_there_as_often_as_stated(found) -> None:
    stated, true = [], []
    for graph, answer in found:
        joined = set(graph.pag().adjacencies)
        stated += answer.edge_confidence.values()
        true += [edge in joined for edge in answer.edge_confidence]
    assert len(true) > 60
    assert at_least(stated, true)
    assert not at_least(stated, [*true[: -len(true) // 4], *([False] * (len(true) - len(true[: -len(true) // 4])))])


def test_marks_are_true_as_often_as_stated(found) -> None:
    stated, true, turned = [], [], []
    for graph, answer in found:
        for (a, b), sure in answer.mark_confidence.items():
            stated.append(sure)
            true.append((b in graph.ancestors(a)) == (answer.graph.kind(a, b)[-1] != ">"))
            turned.append((a in graph.ancestors(b)) == (answer.graph.kind(a, b)[-1] != ">"))
    assert len(true) > 30
    assert at_least(stated, true)
    assert not at_least(stated, turned)  # the same claims about the other end would be found out


def test_most_of_what_can_be_seen_is_found(found) -> None:
    scores = [answer.graph.skeleton_f1(graph.pag()) for graph, answer in found]
    assert np.mean(scores) > 0.75
