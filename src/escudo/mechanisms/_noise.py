r"""Discrete noise: where it comes from, and the public grid that it is added on, where floating point cannot leak.

**Sources.** There is one secure source for releases, and one seeded source for tests and demonstrations. Both draw the
same laws, on the integers:

* discrete Laplace of scale s, :math:`P(Z = k) = \frac{1 - p}{1 + p}\, p^{|k|}` with :math:`p = e^{-1/s}`;
* discrete Gaussian of scale σ, :math:`P(Z = k) \propto e^{-k^2 / 2σ^2}`;
* the index of the largest score after adding Gumbel noise of scale s (the exponential mechanism) or exponential noise
  of scale s (permute-and-flip).

:class:`SecureNoise` hands the integers to OpenDP, which takes OS entropy, computes with exact rationals and saturates
at the ends of int64: the result is a function of "value + noise", so saturation costs no privacy. It cannot be seeded.
:class:`SeededNoise` draws from a numpy generator, whose bits can be replayed by whoever knows the seed: everything made
from it is marked not for release. ``tests/statistical/test_noise.py`` compares the two with each other and with the
exact laws. OpenDP draws about 10⁵ numbers a second in one vector call (15 µs a number at most) and about 10⁴ a second
one by one, so callers pass whole arrays.

**The grid, and what rounding does to sensitivity.** Noise is added to integers, in steps of a public grid that is a
power of two: dividing by it is exact. A statistic v of n coordinates becomes
:math:`K_i = \lfloor v_i / g + 1/2 \rfloor`, computed exactly (ties always up: rounding halves to even would send 0.5
and 1.5, one step apart, to 0 and 2).

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

References:
    C. Canonne, G. Kamath, T. Steinke (2020), "The discrete Gaussian for differential privacy", arXiv:2004.00010v5,
    Algorithms 2 and 3. R. McKenna, D. Sheldon (2020), "Permute-and-flip", arXiv:2010.12603. Z. Ding et al. (2021),
    "The permute-and-flip mechanism is identical to report-noisy-max with exponential noise", arXiv:2105.07260.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from escudo._validate import positive, positive_integer
from escudo.errors import InputError, RefusedError

Integers: TypeAlias = NDArray[np.int64]
Seed: TypeAlias = int | np.random.Generator | None


class NoiseSource(Protocol):
    """What a mechanism needs from randomness; ``scale`` is in units of one integer step."""

    for_release: ClassVar[bool]

    def add_laplace(self, integers: Integers, scale: float) -> Integers:
        """Return the integers of a one-dimensional array, each plus discrete Laplace noise of its own."""

    def add_gaussian(self, integers: Integers, scale: float) -> Integers:
        """Return the integers of a one-dimensional array, each plus discrete Gaussian noise of its own."""

    def gumbel_argmax(self, integers: Integers, scale: float) -> int:
        """Return index i with probability proportional to exp(integers[i] / scale)."""

    def exponential_argmax(self, integers: Integers, scale: float) -> int:
        """Return the index of the largest integer after adding exponential noise of mean ``scale`` to each."""


def noise_source(seed: object) -> NoiseSource:
    """Return the secure source for ``seed=None``, else a seeded one whose results are not for release.

    While somebody is :func:`watching`, the secure source is one that is not for release either.

    Raises:
        InputError: If the seed is neither None, nor a whole number of at least 0, nor a numpy Generator.
    """
    if seed is None:
        return SecureNoise() if _WATCHER.get() is None else WatchedNoise()
    if isinstance(seed, np.random.Generator):
        return SeededNoise(seed)
    if isinstance(seed, int | np.integer) and not isinstance(seed, bool) and seed >= 0:
        return SeededNoise(np.random.default_rng(int(seed)))
    raise InputError(
        "seed must be None (secure noise, for release), a whole number of at least 0 or a numpy.random.Generator; "
        f"got {type(seed).__name__}."
    )


def one_stream(seed: Seed) -> np.random.Generator | None:
    """Return None for secure noise, or the one generator that all steps of an operation draw from in turn."""
    source = noise_source(seed)
    return source.generator if isinstance(source, SeededNoise) else None


def publishable(seed: object) -> bool:
    """Return whether what is drawn with this seed may be published: it is None, and no watcher stands in the way.

    Every verb marks its guarantee and its spend by this.

    >>> publishable(None), publishable(0)
    (True, False)
    """
    return noise_source(seed).for_release


_Watcher: TypeAlias = Callable[[NoiseSource, object], NoiseSource]
_WATCHER: ContextVar[_Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watching(watcher: _Watcher) -> Iterator[None]:
    """Let ``watcher(source, event)`` stand in for every noise source inside the block: for replays of an audit.

    A watcher sees what noise is added to, and may put any source in place of the one it is given, such as one without
    noise. So nothing that is made inside the block is for release, and no spend inside it is recorded as if it were,
    whatever the watcher gives back.
    """
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def watched(source: NoiseSource, event: object) -> NoiseSource:
    """Return the source itself, unless somebody is watching: then what the watcher puts in its place.

    Raises:
        RefusedError: If the watcher came after the source was taken for one that is for release.
    """
    watcher = _WATCHER.get()
    if watcher is None:
        return source
    if source.for_release:
        raise RefusedError(
            "The noise is watched, but what is drawn from it was promised for release; nothing is drawn."
        )
    return watcher(source, event)


@dataclass(frozen=True, slots=True)
class SecureNoise:
    """Noise by OpenDP from OS entropy: the only source behind a release."""

    for_release: ClassVar[bool] = True

    def add_laplace(self, integers: Integers, scale: float) -> Integers:
        return _as_integers(_laplace(scale)(integers.tolist()))

    def add_gaussian(self, integers: Integers, scale: float) -> Integers:
        return _as_integers(_gaussian(scale)(integers.tolist()))

    def gumbel_argmax(self, integers: Integers, scale: float) -> int:
        return self._noisy_max(integers, scale, _opendp().measures.zero_concentrated_divergence())

    def exponential_argmax(self, integers: Integers, scale: float) -> int:
        return self._noisy_max(integers, scale, _opendp().measures.max_divergence())

    def _noisy_max(self, integers: Integers, scale: float, measure: Any) -> int:
        # OpenDP picks the noise by the measure: Gumbel for zCDP, exponential for pure differential privacy.
        dp = _opendp()
        space = _vectors(), dp.metrics.linf_distance(T="i64")
        return int(dp.measurements.make_noisy_max(*space, measure, scale)(integers.tolist()))


class WatchedNoise(SecureNoise):
    """Secure noise that somebody looks at, so that nothing made from it is for release."""

    __slots__ = ()
    for_release: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class SeededNoise:
    """The same laws from a numpy generator: for tests and demonstrations, never for release."""

    generator: np.random.Generator
    for_release: ClassVar[bool] = False

    def add_laplace(self, integers: Integers, scale: float) -> Integers:
        return _saturating_sum(integers, self._laplace(integers.size, scale))

    def add_gaussian(self, integers: Integers, scale: float) -> Integers:
        return _saturating_sum(integers, self._gaussian(integers.size, scale))

    def gumbel_argmax(self, integers: Integers, scale: float) -> int:
        return int(np.argmax(_below_top(integers) / scale + self.generator.gumbel(size=integers.size)))

    def exponential_argmax(self, integers: Integers, scale: float) -> int:
        return int(np.argmax(_below_top(integers) / scale + self.generator.standard_exponential(integers.size)))

    def _laplace(self, size: int, scale: float) -> NDArray[np.float64]:
        # ⌊s·E⌋ with E ~ Exp(1) is geometric: P(⌊s·E⌋ ≥ k) = e^(-k/s). The difference of two of them has the law wanted.
        noise: NDArray[np.float64] = np.subtract(*np.floor(self.generator.standard_exponential((2, size)) * scale))
        return noise

    def _gaussian(self, size: int, scale: float) -> NDArray[np.float64]:
        # Canonne, Kamath, Steinke, Algorithm 3: a discrete Laplace proposal of scale ⌊σ⌋ + 1, kept with this chance.
        noise, missing = np.empty(size), np.arange(size)
        proposal_scale = math.floor(scale) + 1.0
        while missing.size:
            proposal = self._laplace(missing.size, proposal_scale)
            excess = (np.abs(proposal) - scale * (scale / proposal_scale)) / scale
            kept = self.generator.standard_exponential(missing.size) >= excess**2 / 2
            noise[missing[kept]] = proposal[kept]
            missing = missing[~kept]
        return noise


def laplace_tail(steps: int, scale: float) -> float:
    r"""Return :math:`P(Z \ge k) = p^k / (1 + p)` for discrete Laplace Z of the given scale and k = ``steps``.

    >>> laplace_tail(0, 1.0), laplace_tail(1, 1.0)
    (0.7310585786300049, 0.2689414213699951)
    """
    if steps < 0:
        return 1.0 - laplace_tail(1 - steps, scale)
    return math.exp(-steps / scale - math.log1p(math.exp(-1 / scale)))


def laplace_cutoff(probability: float, scale: float) -> int:
    """Return the least k ≥ 0 with P(Z ≥ k) ≤ ``probability``, rounded up against ourselves.

    >>> laplace_cutoff(1e-6, 1.0), laplace_tail(14, 1.0) <= 1e-6 < laplace_tail(13, 1.0)
    (14, True)
    """
    allowed = probability * (1 - 2**-40)  # exp, log and division err by a few units in the 53rd bit
    estimate = -scale * (math.log(allowed) + math.log1p(math.exp(-1 / scale)))
    cutoff = max(0, math.floor(estimate) - 1)
    while laplace_tail(cutoff, scale) > allowed:
        cutoff += 1
    return cutoff


def _saturating_sum(integers: Integers, noise: NDArray[np.float64]) -> Integers:
    # Integers are within ±2^62 (see _grid) and so is the clipped noise: their sum fits.
    return integers + np.clip(noise, -(2.0**62), 2.0**62 - 1024).astype(np.int64)


def _below_top(integers: Integers) -> NDArray[np.float64]:
    # Subtracting in int64 first keeps differences exact where the scores themselves exceed 2^53.
    top = integers.max(initial=np.iinfo(np.int64).min)
    below: NDArray[np.float64] = (integers - top).astype(np.float64)
    return below


@cache
def _opendp() -> Any:
    """Return OpenDP with its constructors enabled; imported on the first draw, not before."""
    import opendp.domains
    import opendp.measurements
    import opendp.measures
    import opendp.metrics
    import opendp.mod

    opendp.mod.enable_features("contrib")
    return opendp


def _vectors() -> Any:
    dp = _opendp()
    return dp.domains.vector_domain(dp.domains.atom_domain(T="i64"))


@lru_cache(maxsize=256)
def _laplace(scale: float) -> Any:
    """Return the law of this scale, for vectors of any length: to make it takes as long as to draw a few numbers."""
    dp = _opendp()
    return dp.measurements.make_laplace(_vectors(), dp.metrics.l1_distance(T="i64"), scale)


@lru_cache(maxsize=256)
def _gaussian(scale: float) -> Any:
    dp = _opendp()
    return dp.measurements.make_gaussian(_vectors(), dp.metrics.l2_distance(T="f64"), scale)


def _as_integers(drawn: list[int]) -> Integers:
    return np.array(drawn, dtype=np.int64)


# ---- statistics on a grid

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


class Wanted(NamedTuple):
    """What noise is asked for, by one of two numbers.

    Attributes:
        ratio: What the sensitivity after rounding may be of the noise's scale, such as ε; None where that is given.
        scale: The noise's scale, in the statistic's units.
        grid: A wish for the grid, or None.
    """

    ratio: float | None
    scale: float | None = None
    grid: float | None = None


@dataclass(frozen=True, slots=True)
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

    def noise(self, sensitivity: float, norm: Norm, wanted: Wanted, *, name: str = "sensitivity") -> Noise:
        """Return the noise for a statistic that moves by so much, from its size and type and public numbers alone.

        Args:
            sensitivity: Most that it moves before rounding, in its own units; checked to be positive.
            norm: In which norm.
            wanted: How loud it is to be, and on which grid.
            name: What the sensitivity is called in messages.

        Raises:
            InputError: If the grid cannot be had, or noise or sensitivity leave the safe range on it.
        """
        ratio, scale, grid = wanted
        heading = sensitivity / ratio if scale is None and ratio is not None else scale
        assert heading is not None, "one of the two is given"
        step = default_grid(self, sensitivity, heading, norm, grid)
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
        return Statistic(np.minimum(array, np.uint64(_CLAMP)).astype(np.int64))
    if array.dtype.kind == "i":
        return Statistic(array.astype(np.int64))
    if array.dtype.kind != "f":
        raise InputError(f"{name} must be an array of integers or floats; got dtype {array.dtype}.")
    numbers = array.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise InputError(
            f"{name} holds NaN or an infinity; bound the statistic first: clip its inputs, guard empty sums."
        )
    return Statistic(numbers)


def unknown(size: int, integers: bool) -> Statistic:
    """Return a statistic of so many numbers of which nothing but their type is known, for plans."""
    none: NDArray[Any] = np.zeros((), np.int64 if integers else np.float64)
    return Statistic(np.broadcast_to(none, positive_integer("size", size)))


def default_grid(statistic: Statistic, sensitivity: float, scale: float, norm: Norm, grid: float | None) -> float:
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
