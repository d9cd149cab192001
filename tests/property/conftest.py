"""What several of these tests share."""

from __future__ import annotations

import numpy as np
import pytest


class Silent:
    """A purse that draws no noise."""

    def add_each(self, several: list[np.ndarray], event: object, purposes: list[str]) -> list[np.ndarray]:
        return several


@pytest.fixture(scope="module")
def quiet() -> Silent:
    return Silent()
