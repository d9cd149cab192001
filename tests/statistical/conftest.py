"""How the statistical tests decide: one overall error rate, split over a fixed number of decisions.

Secure noise cannot be seeded, so its tests are random. Every "is accepted" decision compares a p-value with ``LEVEL``;
a correct library fails one of them with probability at most ``OVERALL_ERROR_RATE`` per run of the whole folder. The
"is rejected" decisions use samples so large that a wrong scale passes with a far smaller probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

OVERALL_ERROR_RATE = 1e-6
DECISIONS = 200  # at least as many as "is accepted" decisions in this folder (Bonferroni)
LEVEL = OVERALL_ERROR_RATE / DECISIONS

Law = Callable[[NDArray[np.int64]], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Fit:
    """Goodness of fit by Pearson's chi-squared, with cells merged until each expects at least 10 draws."""

    level: float = LEVEL

    def p_value(self, sample: NDArray[np.int64], law: Law) -> float:
        """Return the p-value of "the sample follows the law", a vector of masses at given integers."""
        reach = int(np.abs(sample).max(initial=1)) + 1
        support = np.arange(-reach, reach + 1)
        mass = law(support)
        return self.p_value_of_counts(
            np.append(np.bincount(sample + reach, minlength=support.size), 0), np.append(mass, max(1 - mass.sum(), 0.0))
        )

    def p_value_of_counts(self, counts: NDArray[np.int64], probabilities: NDArray[np.float64]) -> float:
        """Return the p-value of "the counts are multinomial with these probabilities"."""
        expected = probabilities / probabilities.sum() * counts.sum()
        likely = expected >= 10
        observed = np.append(counts[likely], counts[~likely].sum())
        wanted = np.append(expected[likely], expected[~likely].sum())
        if wanted[-1] < 10:  # the rare rest joins the least likely cell
            observed[-2:-1] += observed[-1:]
            wanted[-2:-1] += wanted[-1:]
            observed, wanted = observed[:-1], wanted[:-1]
        return float(stats.chisquare(observed, wanted * (observed.sum() / wanted.sum())).pvalue)

    def same_p_value(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
        """Return the p-value of "both samples follow one law", whatever it is."""
        edges = np.unique(np.quantile(np.concatenate([first, second]), np.linspace(0, 1, 31)[1:-1]))
        table = [
            np.bincount(np.searchsorted(edges, sample, side="right"), minlength=edges.size + 1)
            for sample in (first, second)
        ]
        kept = np.array(table)[:, np.sum(table, axis=0) > 0]
        return float(stats.chi2_contingency(kept, correction=False).pvalue)

    def accepts(self, sample: NDArray[np.int64], law: Law) -> bool:
        """Whether the sample may come from the law."""
        return self.p_value(sample, law) >= self.level


def discrete_laplace(scale: float) -> Law:
    """Return the exact mass function of the discrete Laplace law."""
    ratio = math.exp(-1 / scale)
    return lambda k: (1 - ratio) / (1 + ratio) * np.exp(-np.abs(k) / scale)


def discrete_gaussian(scale: float) -> Law:
    """Return the exact mass function of the discrete Gaussian law."""
    support = np.arange(-math.ceil(40 * scale) - 1, math.ceil(40 * scale) + 2)
    total = np.exp(-(support**2) / (2 * scale**2)).sum()
    return lambda k: np.exp(-(k.astype(np.float64) ** 2) / (2 * scale**2)) / total


def exponential_probabilities(utilities: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """Return the choice probabilities of the exponential mechanism, P(i) ∝ exp(rate · u_i)."""
    weights = np.exp(rate * (utilities - utilities.max()))
    return weights / weights.sum()


def permute_and_flip_probabilities(utilities: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """Return the choice probabilities of permute-and-flip by going through all orders of the candidates."""
    accept = np.exp(rate * (utilities - utilities.max()))
    chosen = np.zeros(utilities.size)
    orders = list(permutations(range(utilities.size)))
    for order in orders:
        reached = 1.0
        for candidate in order:
            chosen[candidate] += reached * accept[candidate] / len(orders)
            reached *= 1 - accept[candidate]
    return chosen


@pytest.fixture
def fit() -> Fit:
    return Fit()


@pytest.fixture
def laws() -> Mapping[str, Callable[[float], Law]]:
    return {"laplace": discrete_laplace, "gaussian": discrete_gaussian}


@pytest.fixture
def choices() -> Mapping[str, Callable[[NDArray[np.float64], float], NDArray[np.float64]]]:
    return {"gumbel": exponential_probabilities, "exponential": permute_and_flip_probabilities}
