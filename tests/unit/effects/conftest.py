"""Models and mechanisms that several tests use."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from escudo.causal import SEM


def clamped_geometric(epsilon: float, top: int) -> np.ndarray:
    """Return the clamped geometric mechanism on counts 0..top as a table, written out from its formula."""
    alpha = math.exp(-epsilon)
    table = np.empty((top + 1, top + 1))
    for count in range(top + 1):
        for o in range(1, top):
            table[count, o] = (1 - alpha) / (1 + alpha) * alpha ** abs(o - count)
        table[count, 0] = alpha**count / (1 + alpha)
        table[count, top] = alpha ** (top - count) / (1 + alpha)
    return table


@pytest.fixture
def geometric() -> Callable[[float, int], np.ndarray]:
    return clamped_geometric


@pytest.fixture(params=[0.01, math.log(2), 1.0, 3.5], ids=lambda e: f"e={e:.2f}")
def e(request: pytest.FixtureRequest) -> float:
    return float(request.param)


@pytest.fixture
def survey_model(e: float) -> SEM:
    """Ada and Byron: R2 := R1, and a noisy count of three data points."""
    return SEM.parse(f"""
        R1 ~ 0: 0.5, 1: 0.5
        R3 ~ 0: 0.5, 1: 0.5
        R2 := R1
        D[i in 1..3] := R[i]
        O := truncated_geometric(count(D[1..3] = 1), epsilon = {e!r})
    """)
