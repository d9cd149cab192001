r"""Where noise comes from: one secure source for releases, one seeded source for tests and demonstrations.

Both draw the same laws, on the integers:

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
from functools import cache
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
        dp = _opendp()
        space = _vectors(), dp.metrics.l1_distance(T="i64")
        return _as_integers(dp.measurements.make_laplace(*space, scale=scale)(integers.tolist()))

    def add_gaussian(self, integers: Integers, scale: float) -> Integers:
        dp = _opendp()
        space = _vectors(), dp.metrics.l2_distance(T="f64")
        return _as_integers(dp.measurements.make_gaussian(*space, scale=scale)(integers.tolist()))

    def gumbel_argmax(self, integers: Integers, scale: float) -> int:
        return self._noisy_max(integers, scale, _opendp().measures.zero_concentrated_divergence())

    def exponential_argmax(self, integers: Integers, scale: float) -> int:
        return self._noisy_max(integers, scale, _opendp().measures.max_divergence())

    def _noisy_max(self, integers: Integers, scale: float, measure: Any) -> int:
        # OpenDP picks the noise by the measure: Gumbel for zCDP, exponential for pure differential privacy.
        dp = _opendp()
        space = _vectors(), dp.metrics.linf_distance(T="i64")
        return int(dp.measurements.make_noisy_max(*space, measure, scale=scale)(integers.tolist()))


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


def _as_integers(drawn: list[int]) -> Integers:
    return np.array(drawn, dtype=np.int64)
