"""Events that happened at one go: which noise met which sensitivity, or which bound was proved."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self

from escudo._validate import positive, probability
from escudo.errors import InputError
from escudo.privacy._conversions import (
    approximate_for_group,
    gdp_for_group,
    pure_for_group,
    round_up,
    zcdp_for_group,
)
from escudo.privacy._event import MAX_EPSILON, MAX_RHO, Event, check_count, check_loss, put

__all__ = [
    "ApproximateEvent",
    "ExponentialEvent",
    "GDPEvent",
    "GaussianEvent",
    "LaplaceEvent",
    "PureEvent",
    "ZCDPEvent",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceEvent(Event):
    """Laplace noise of the given scale was added to every coordinate of a statistic.

    Attributes:
        l1_sensitivity: Most that the statistic moves in l1 norm between neighbours.
        scale: The noise has density, or mass on the grid, proportional to exp(-|x| / scale).
        grid: Step of the public grid that statistic and noise live on; 0 for continuous noise, which floating point
            numbers do not implement safely.
        dimensions: Number of coordinates.
    """

    kind: ClassVar[str] = "laplace"

    l1_sensitivity: float
    scale: float
    grid: float
    dimensions: int = 1

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        put(
            self,
            l1_sensitivity=positive("l1_sensitivity", self.l1_sensitivity, allow_zero=True),
            scale=positive("scale", self.scale),
            grid=positive("grid", self.grid, allow_zero=True),
            dimensions=check_count("dimensions", self.dimensions),
        )
        _bounded_ratio("l1_sensitivity", self.l1_sensitivity, self.scale)

    @property
    def weight(self) -> float:
        """About its cost in zCDP."""
        return (self.l1_sensitivity / self.scale) ** 2 / 2

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps`` times the sensitivity and the same noise."""
        return replace(self, l1_sensitivity=self.l1_sensitivity * check_count("steps", steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianEvent(Event):
    """Gaussian noise of the given scale was added to every coordinate of a statistic.

    Attributes:
        l2_sensitivity: Most that the statistic moves in l2 norm between neighbours.
        scale: Standard deviation σ; the noise has density, or mass on the grid, proportional to exp(-x² / 2σ²).
        grid: Step of the public grid that statistic and noise live on; 0 for continuous noise, which floating point
            numbers do not implement safely.
        changed_cells: Set only for tables of counts, where every record adds one grid step to some cells and nothing to
            the others: the number of cells that differ between neighbours, each by one step. It sharpens
            ``l2_sensitivity``, which must be at least its square root in steps.
    """

    kind: ClassVar[str] = "gaussian"

    l2_sensitivity: float
    scale: float
    grid: float
    changed_cells: int | None = None

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        put(
            self,
            l2_sensitivity=positive("l2_sensitivity", self.l2_sensitivity, allow_zero=True),
            scale=positive("scale", self.scale),
            grid=positive("grid", self.grid, allow_zero=True),
        )
        _bounded_ratio("l2_sensitivity", self.l2_sensitivity, self.scale)
        if self.changed_cells is not None:
            cells = check_count("changed_cells", self.changed_cells)
            put(self, changed_cells=cells)
            if self.grid == 0:
                raise InputError("changed_cells counts cells that change by one grid step, so grid must be above 0.")
            if self.l2_sensitivity < math.sqrt(cells) * self.grid * (1 - 1e-9):
                raise InputError(
                    f"{cells} cells that change by one grid step of {self.grid:g} move the table by "
                    f"{math.sqrt(cells) * self.grid:g} in l2 norm; l2_sensitivity is {self.l2_sensitivity:g}."
                )

    @property
    def rho(self) -> float:
        """The release is ρ-zCDP with ρ = (l2_sensitivity / scale)² / 2, rounded up."""
        return round_up((Fraction(self.l2_sensitivity) / Fraction(self.scale)) ** 2 / 2)

    @property
    def weight(self) -> float:
        """About its cost in zCDP."""
        return (self.l2_sensitivity / self.scale) ** 2 / 2

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps`` times the sensitivity; several records may share a cell."""
        k = check_count("steps", steps)
        cells = self.changed_cells if k == 1 else None
        return replace(self, l2_sensitivity=self.l2_sensitivity * k, changed_cells=cells)

    def _replacing(self) -> GaussianEvent:
        # One record leaves at most c cells and another enters at most c: the difference of two 0/1 tables of at most c
        # ones has entries in {-1, 0, 1}, at most 2c of them not 0. So no cell moves by two steps.
        doubled = self.stretched(2)
        cells = None if self.changed_cells is None else 2 * self.changed_cells
        return replace(doubled, changed_cells=cells, relation="replace_one")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialEvent(Event):
    """A candidate was chosen by a mechanism of bounded range ε, such as the exponential mechanism.

    For neighbours D, D′ the log-ratios log(P(y | D) / P(y | D′)) over all outputs y lie in an interval of length ε.

    Attributes:
        epsilon: Length of that interval.
    """

    kind: ClassVar[str] = "exponential"

    epsilon: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        put(self, epsilon=check_loss("epsilon", self.epsilon))

    @property
    def weight(self) -> float:
        """About its cost in zCDP."""
        return self.epsilon**2 / 8

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps`` times epsilon: the intervals add along the path."""
        return replace(self, epsilon=pure_for_group(self.epsilon, check_count("steps", steps)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PureEvent(Event):
    """A mechanism that was proved ε-differentially private was run.

    Attributes:
        epsilon: Bound on every log-ratio of output probabilities.
    """

    kind: ClassVar[str] = "pure"

    epsilon: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        put(self, epsilon=check_loss("epsilon", self.epsilon))

    @property
    def weight(self) -> float:
        """About its cost in zCDP."""
        return self.epsilon**2 / 2

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps`` times epsilon."""
        return replace(self, epsilon=pure_for_group(self.epsilon, check_count("steps", steps)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproximateEvent(Event):
    """A mechanism that was proved (ε, δ)-differentially private was run.

    Attributes:
        epsilon: Loss outside the slack.
        delta: Slack, in [0, 1).
    """

    kind: ClassVar[str] = "approximate"

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        put(self, epsilon=check_loss("epsilon", self.epsilon), delta=probability("delta", self.delta))

    def stretched(self, steps: int) -> Self:
        """Return the event for (kε, δ(1 + e^ε + … + e^{(k-1)ε}))."""
        epsilon, delta = approximate_for_group(self.epsilon, self.delta, check_count("steps", steps))
        return replace(self, epsilon=epsilon, delta=delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZCDPEvent(Event):
    """A mechanism that was proved ρ-zero-concentrated differentially private was run.

    Attributes:
        rho: The Rényi divergence of every order α > 1 is at most ρα.
    """

    kind: ClassVar[str] = "zcdp"

    rho: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        put(self, rho=check_loss("rho", self.rho, at_most=MAX_RHO))

    @property
    def weight(self) -> float:
        """About its cost in zCDP."""
        return self.rho

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps``² times rho."""
        return replace(self, rho=zcdp_for_group(self.rho, check_count("steps", steps)))


@dataclass(frozen=True, slots=True, kw_only=True)
class GDPEvent(Event):
    """A mechanism that was proved μ-Gaussian differentially private was run.

    Attributes:
        mu: Telling neighbours apart is at least as hard as telling N(0, 1) from N(μ, 1).
    """

    kind: ClassVar[str] = "gdp"

    mu: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        put(self, mu=check_loss("mu", self.mu))

    @property
    def weight(self) -> float:
        """About its cost in zCDP."""
        return self.mu**2 / 2

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps`` times mu."""
        return replace(self, mu=gdp_for_group(self.mu, check_count("steps", steps)))


def _bounded_ratio(name: str, sensitivity: float, scale: float) -> None:
    if sensitivity > scale * MAX_EPSILON:
        raise InputError(
            f"{name} / scale must be at most {MAX_EPSILON:g}; {sensitivity:g} / {scale:g} is more, and noise that "
            "small would protect nobody."
        )
