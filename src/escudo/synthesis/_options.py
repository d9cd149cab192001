"""How arguments are checked that several generators, or their models, take."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from escudo._validate import probability, whole
from escudo.errors import InputError

__all__ = ["by_column", "delta_above_zero", "drawing", "yes_or_no"]


def by_column(argument: str, values: object) -> Mapping[str, object]:
    """Return what ``do`` or ``given`` says, nothing for None.

    Raises:
        InputError: If it is no mapping of columns to values.
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise InputError(
            f"{argument} must map columns to values, as in {{'smoke': 'yes'}}; got {type(values).__name__}."
        )
    return values


def drawing(seed: object) -> np.random.Generator:
    """Return where the chance comes from with which a model is sampled: repeatable where a seed is given.

    Raises:
        InputError: If the seed is neither None nor a whole number of at least 0.
    """
    return np.random.default_rng(None if seed is None else whole("seed", seed))


def delta_above_zero(delta: object) -> float:
    """Return a δ, or say that it is needed: every generator adds Gaussian noise.

    Raises:
        InputError: If it is no probability, or 0.
    """
    at = probability("delta", delta)
    if at == 0:
        raise InputError("delta must be above 0: Gaussian noise needs a delta, such as 1e-6.")
    return at


def yes_or_no(argument: str, value: object) -> bool:
    """Return a choice, or say that it is none.

    Raises:
        InputError: If the value is neither true nor false.
    """
    if not isinstance(value, bool):
        raise InputError(f"{argument} must be true or false; got {value!r:.60}.")
    return value
