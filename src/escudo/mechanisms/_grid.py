r"""Statistics on a public grid, where floating point cannot leak, and what rounding does to sensitivity.

Noise is added to integers, in steps of a public grid that is a power of two: dividing by it is exact. A statistic v of
n coordinates becomes :math:`K_i = \lfloor v_i / g + 1/2 \rfloor`, computed exactly (ties always up: rounding halves to
even would send 0.5 and 1.5, one step apart, to 0 and 2).

**Integers** (an integer array, g = 1) stay as they are, and so does their sensitivity.

**Real numbers.** Let s, s′ be the exact statistics of neighbours, at distance Δ in the given norm, and let the float64
values handed in differ from them by at most g/2 in each coordinate (a mean or a sum errs by far less). With
:math:`d_i = |s_i - s'_i| / g` the values handed in differ by at most d_i + 1 steps, and
:math:`\lfloor y + d \rfloor \le \lfloor y + \lceil d \rceil \rfloor = \lfloor y \rfloor + \lceil d \rceil` gives

.. math:: |K_i - K'_i| \;\le\; \lceil d_i \rceil + 1 \;<\; d_i + 2.

Hence, in steps,

* one coordinate: :math:`\lceil Δ/g \rceil + 1`;
* l1 over n coordinates: the sum is a whole number below Δ/g + 2n, so at most :math:`\lceil Δ/g \rceil + 2n - 1`;
* l2 over n coordinates: at most :math:`Δ/g + 2\sqrt{n}` (triangle inequality);
* l∞ (each of many utilities): :math:`\lceil Δ/g \rceil + 1`.

One step per coordinate pays for rounding, the other for floating point. The default grid is so fine that both together
cost less than one part in 10⁵ of the sensitivity; it is derived from sensitivity, scale and n, never from the values.

Values beyond ±2⁶² steps are clamped there, which is 1-Lipschitz and so costs nothing; it never raises, because an error
would depend on the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from escudo._validate import positive, positive_integer
from escudo.errors import InputError
from escudo.mechanisms._noise import Integers

Norm: TypeAlias = Literal["l1", "l2", "linf"]

MAX_STEPS = 2.0**52
"""The largest noise scale or sensitivity, in grid steps; int64 leaves ample room above it."""

_FINE = 2.0**-20  # default grid, as a part of the sensitivity per coordinate
_COARSEST_NOISE = 2.0**-50  # and never finer than this part of the noise scale
_CLAMP = 2**62


class Noise(NamedTuple):
    """Noise on a grid: its step in the statistic's units; what the statistic moves by, and the scale, in steps."""

    step: float
    moved: float
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """The numbers to be released, still private: finite, not empty, int64 or float64."""

    numbers: NDArray[np.int64] | NDArray[np.float64]

    @property
    def exact(self) -> bool:
        """Whether these are integers, which need no rounding."""
        return self.numbers.dtype.kind == "i"

    @property
    def size(self) -> int:
        """The number of coordinates, which is public."""
        return self.numbers.size

    def steps(self, grid: float) -> Integers:
        """Return the statistic in grid steps, flattened, rounded half up and clamped to ±2⁶²."""
        if self.exact:
            return np.clip(self.numbers.ravel(), -_CLAMP, _CLAMP)
        with np.errstate(over="ignore"):
            ratio = np.clip(self.numbers.ravel() / grid, -float(_CLAMP), float(_CLAMP))
        down = np.floor(ratio)
        # The difference is exact wherever it matters, unlike floor(ratio + 0.5), which errs just below one half.
        return (down + (ratio - down >= 0.5)).astype(np.int64)

    def sensitivity_in_steps(self, sensitivity: float, grid: float, norm: Norm) -> float:
        """Return the sensitivity of :meth:`steps`; see the module's docstring for the proof."""
        distance = sensitivity / grid
        if self.exact:
            whole = norm != "l2" or self.size == 1
            return float(math.floor(distance)) if whole else distance
        if norm == "l1":
            return math.ceil(distance) + 2.0 * self.size - 1
        if norm == "linf" or self.size == 1:
            return math.ceil(distance) + 1.0
        return rounded_up(distance + 2 * math.sqrt(self.size))

    def noise(
        self,
        sensitivity: float,
        norm: Norm,
        *,
        ratio: float | None,
        scale: float | None = None,
        grid: float | None = None,
        name: str = "sensitivity",
    ) -> Noise:
        """Return the noise for a statistic that moves by so much, from its size and type and public numbers alone.

        Args:
            sensitivity: Most that it moves before rounding, in its own units; checked to be positive.
            norm: In which norm.
            ratio: What the sensitivity after rounding may be of the noise's scale, such as ε; None where that is given.
            scale: The noise's scale, in the statistic's units.
            grid: A wish for the grid, or None.
            name: What the sensitivity is called in messages.

        Raises:
            InputError: If the grid cannot be had, or noise or sensitivity leave the safe range on it.
        """
        heading = sensitivity / ratio if scale is None and ratio is not None else scale
        assert heading is not None, "one of the two is given"
        step = default_grid(self, sensitivity=sensitivity, scale=heading, norm=norm, grid=grid)
        moved = check_steps(name, self.sensitivity_in_steps(sensitivity, step, norm))
        steps = heading / step if ratio is None else rounded_up(moved / ratio)
        return Noise(step, moved, check_steps("the noise scale", steps))

    def restored(self, noisy: Integers, grid: float) -> int | float | NDArray[np.int64] | NDArray[np.float64]:
        """Return noisy steps in the statistic's own units, type and shape: a plain number for a plain number."""
        values: NDArray[Any] = noisy if self.exact else noisy.astype(np.float64) * grid
        if self.numbers.ndim:
            return values.reshape(self.numbers.shape)
        number: int | float = values[0].item()
        return number


def read_statistic(name: str, values: ArrayLike) -> Statistic:
    """Return ``values`` as a statistic.

    Raises:
        InputError: If it is empty, not made of numbers, or holds NaN or an infinity. A statistic is computed from
            bounded sums and counts, so these are slips of the caller, not facts about the data; the message shows none.
    """
    array = np.asarray(values)
    if array.size == 0:
        raise InputError(f"{name} is empty: there is nothing to release.")
    if array.dtype.kind == "u":
        return Statistic(numbers=np.minimum(array, np.uint64(_CLAMP)).astype(np.int64))
    if array.dtype.kind == "i":
        return Statistic(numbers=array.astype(np.int64))
    if array.dtype.kind != "f":
        raise InputError(f"{name} must be an array of integers or floats; got dtype {array.dtype}.")
    numbers = array.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise InputError(
            f"{name} holds NaN or an infinity; bound the statistic first: clip its inputs, guard empty sums."
        )
    return Statistic(numbers=numbers)


def unknown(size: int, integers: bool) -> Statistic:
    """Return a statistic of so many numbers of which nothing but their type is known, for plans."""
    none: NDArray[Any] = np.zeros((), np.int64 if integers else np.float64)
    return Statistic(numbers=np.broadcast_to(none, positive_integer("size", size)))


def default_grid(statistic: Statistic, *, sensitivity: float, scale: float, norm: Norm, grid: float | None) -> float:
    """Return the grid step: 1 for integers, the given power of two, or one derived from public numbers only.

    Args:
        statistic: Only its size and type are looked at.
        sensitivity: In the statistic's units.
        scale: The noise scale the caller is heading for, in the same units.
        norm: The norm of the sensitivity.
        grid: A wish, or None.

    Raises:
        InputError: If the wish is not a power of two, or not 1 for integers, or so fine or coarse that noise and
            sensitivity in steps leave the safe range.
    """
    if statistic.exact:
        if grid is not None and grid != 1:
            raise InputError(f"grid must be 1 for integers, got {grid!r}; pass floats to use another grid.")
        if sensitivity < 1:
            raise InputError(
                f"sensitivity of an integer statistic must be at least 1, because integers move by whole steps; got "
                f"{sensitivity!r}."
            )
        return 1.0
    if grid is None:
        share = {"l1": statistic.size, "l2": math.sqrt(statistic.size), "linf": 1}[norm]
        finest = max(_FINE * min(sensitivity / share, scale), _COARSEST_NOISE * scale)
        exponent = math.frexp(finest)[1] - 1  # of the power of two at or below it
        if not (0 < finest < math.inf and exponent > -1000):
            raise InputError(
                "sensitivity and scale leave the range of floating point numbers; rescale the statistic to usual units."
            )
        return math.ldexp(1.0, exponent)
    step = positive("grid", grid, at_most=2.0**1000)
    if math.frexp(step)[0] != 0.5 or step < 2.0**-1000:
        nearest = math.ldexp(1.0, math.frexp(step)[1] - 1)
        raise InputError(
            f"grid must be a power of two, so that dividing by it is exact; got {grid!r}, try {nearest!r}."
        )
    return step


def check_steps(name: str, steps: float) -> float:
    """Return a scale or sensitivity in steps, or raise if it leaves the safe range."""
    if not 0 < steps <= MAX_STEPS:
        raise InputError(
            f"{name} is {steps:.3g} grid steps, beyond what 64-bit integers hold safely; use a coarser grid, a larger "
            "epsilon or a smaller sensitivity."
        )
    return steps


def rounded_up(value: float) -> float:
    """Return ``value`` raised by less than one part in 10¹⁵: more than the rounding errors of a few operations."""
    return value * (1 + 2.0**-50)
