"""The noise in residuals of tables is the noise that the plan states, no less and no more."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from escudo.discovery._measurement import coefficients
from escudo.mechanisms import Purse
from escudo.privacy import Neighbours
from escudo.synthesis._residuals import Unit

ERROR_RATE = 1e-9


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("shape", [(2,), (2, 2), (3, 5), (2, 3, 4)])
def test_the_noise_is_as_planned_and_neither_two_thirds_nor_three_halves_of_it(
    shape: tuple[int, ...], whole: bool
) -> None:
    """Of residuals, and of whole tables that are released beside them."""
    unit = Unit.of(Neighbours(relation="add_remove"), 7.0)
    counts = np.random.default_rng(0).integers(0, 90, shape)
    exact = counts.astype(float) if whole else coefficients(counts.astype(float))
    purse = Purse(None, np.random.default_rng(1))
    columns = tuple("abc"[: len(shape)])
    found = []
    for _ in range(max(1200 // exact.size, 1)):
        noisy = unit.measure(columns, counts, purse, whole=whole)
        released = noisy.counts if whole else coefficients(noisy.counts)
        found.append(((released - exact) / noisy.scale).ravel())
        assert noisy.scale == pytest.approx(unit.scale if whole else unit.noise(shape), rel=0.01)
    distances = np.concatenate(found)

    def plausible(factor: float) -> bool:
        chance = stats.chi2(distances.size).cdf(float(((distances / factor) ** 2).sum()))
        return bool(ERROR_RATE / 2 < chance < 1 - ERROR_RATE / 2)

    assert plausible(1.0)
    assert not plausible(2 / 3)
    assert not plausible(3 / 2)
    assert abs(distances.mean()) < 6 / np.sqrt(distances.size)
