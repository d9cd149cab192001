r"""DP-SGD on a linear model, small enough to be run a million times, and ten ways to get it wrong.

Records are (x₁, …, x_d, y); the loss is (w·x - y)²/2. Each step clips gradients to norm 1, adds Gaussian noise of scale
σ to their sum and divides by a public number; the output is every noisy gradient, which the guarantee covers.
One record that is always in the batch moves the sum by at most 1, so that T steps are Gaussian differentially private
with :math:`\mu = \sqrt{T} / \sigma` when a record is added or removed, and twice that when one is replaced. A record
with a huge residual attains it: its clipped gradient is the same unit vector in every step. Where no closed form in μ
says what is true of a piece, the accountant or a search over two Gaussians does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.auditing.museum._piece import SHOWN_DELTA, Piece, snap
from escudo.privacy import Guarantee, gdp_to_epsilon

Floats = NDArray[np.float64]

_FRONT_EPSILONS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)


@dataclass(frozen=True, kw_only=True)
class DPSGD(Piece):
    """Every record in every step. Correct when one record is added or removed.

    Attributes:
        noise_multiplier: σ, the noise on the sum in units of the clipping norm 1.
        steps: T.
        batch_size: The public number that noisy sums are divided by.
        learning_rate: How far the weights follow a noisy gradient.
    """

    source = "Abadi et al., CCS 2016"
    noise_multiplier: float = 2.0
    steps: int = 4
    batch_size: int = 4
    learning_rate: float = 0.1

    @property
    def true_mu(self) -> float:
        """The Gaussian differential privacy that is attained: √T/σ."""
        return math.sqrt(self.steps) / self.noise_multiplier

    @property
    def claim(self) -> Guarantee:
        return Guarantee(mu=math.sqrt(self.steps) / self.noise_multiplier, relation="add_remove")

    @property
    def true_epsilon(self) -> float:
        return gdp_to_epsilon(self.true_mu, SHOWN_DELTA)

    def total(self, gradients: Floats, taken: NDArray[np.bool_]) -> Floats:
        """Return the sum of clipped gradients, of shape (runs, d), from gradients of shape (runs, records, d)."""
        norms = np.linalg.norm(gradients, axis=2, keepdims=True)
        return np.asarray(np.sum(gradients / np.maximum(norms, 1.0) * taken[:, :, None], axis=1))

    def taken(self, step: int, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.bool_]:
        """Return which records are in the batch of a step, of shape (runs, records)."""
        return np.ones(shape, dtype=bool)

    def noise_scale(self) -> float:
        """Return the noise on the sum."""
        return self.noise_multiplier

    def divisor(self, records: int) -> float:
        """Return what noisy sums are divided by."""
        return float(self.batch_size)

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> Floats:
        table = np.asarray(dataset, dtype=np.float64)
        inputs, targets = table[:, :-1], table[:, -1]
        weights = np.zeros((count, inputs.shape[1]))
        released = np.empty((count, self.steps, inputs.shape[1]))
        for step in range(self.steps):
            residuals = weights @ inputs.T - targets
            taken = self.taken(step, residuals.shape, rng)
            total = self.total(residuals[:, :, None] * inputs, taken)
            noisy = total + rng.normal(scale=self.noise_scale(), size=total.shape)
            released[:, step] = snap(noisy / self.divisor(len(table)))
            weights -= self.learning_rate * released[:, step]
        return released.reshape(count, -1)


class DPSGDBatchClipping(DPSGD):
    """Clips the sum of the batch."""

    bug = "The gradient of the whole batch is clipped instead of each record's, so that one record can turn it round."
    source = "the clipping of Abadi et al. 2016 left out; compare Tramèr et al., arXiv 2202.12219"

    @property
    def true_mu(self) -> float:
        """2√T/σ: one record can turn a clipped sum of norm 1 into its opposite."""
        return 2 * math.sqrt(self.steps) / self.noise_multiplier

    def total(self, gradients: Floats, taken: NDArray[np.bool_]) -> Floats:
        summed = np.sum(gradients * taken[:, :, None], axis=1)
        return np.asarray(summed / np.maximum(np.linalg.norm(summed, axis=1, keepdims=True), 1.0))


class DPSGDLayerClipping(DPSGD):
    """Clips each of d layers to norm 1; every weight is a layer of its own here."""

    bug = "Each layer is clipped to the full norm, so that a record with d layers moves the sum by √d."
    source = "compare Tramèr et al., arXiv 2202.12219, where clipping was wrong"
    layers = 4

    @property
    def true_mu(self) -> float:
        """√(dT)/σ: all d layers are at their bound."""
        return math.sqrt(self.layers * self.steps) / self.noise_multiplier

    def total(self, gradients: Floats, taken: NDArray[np.bool_]) -> Floats:
        return np.asarray(np.sum(np.clip(gradients, -1.0, 1.0) * taken[:, :, None], axis=1))


class DPSGDMeanNoise(DPSGD):
    """Adds σ/B to the sum."""

    bug = "Noise meant for the mean of B gradients is added to their sum, and so is B times too small."
    source = "the mirror image of jax_privacy#383, where noise meant for the sum was added to the mean"

    @property
    def true_mu(self) -> float:
        """B√T/σ."""
        return self.batch_size * math.sqrt(self.steps) / self.noise_multiplier

    def noise_scale(self) -> float:
        return self.noise_multiplier / self.batch_size


class DPSGDSizeLeak(DPSGD):
    """Divides by the number of records there are. One step."""

    bug = "Noisy sums are divided by the true number of records, which scales the noise by a private number."
    source = "opacus#571"

    @property
    def true_epsilon(self) -> float:
        """That of N(1, σ²) against N(0, σ²/4): one record with gradient 1, joined by one with gradient -1.

        Of all tables with a record, these have the largest ratio of scales and the largest distance of means.
        """
        assert self.steps == 1
        return unequal_gaussians_epsilon(1.0, self.noise_multiplier, 0.0, self.noise_multiplier / 2, SHOWN_DELTA)

    def divisor(self, records: int) -> float:
        return float(records)


class DPSGDRecordedRate(DPSGD):
    """Sets the learning rate by the number of records, and writes it beside the model."""

    bug = (
        "A setting that looks public, the learning rate, is computed from the number of records and published exactly."
    )
    source = "escudo's own networks, whose free first steps followed the true number of rows"

    @property
    def true_epsilon(self) -> float:
        """Infinite: the rate tells how many records there are."""
        return math.inf

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> Floats:
        rate = self.learning_rate / len(dataset)
        gradients = DPSGD.batch(replace(self, learning_rate=rate), dataset, count, rng)
        return np.column_stack([gradients, np.full(count, rate)])


class DPSGDUnderflow(DPSGD):
    """Clips to a tiny norm in single precision, in which squares of tiny numbers are 0. One step."""

    bug = "The squared norm of a gradient underflows to 0, so that it passes for short and is not clipped."
    source = "escudo's own DP-SGD with a clip bound below the square root of the smallest float"
    clip_norm = 2.0**-80

    @property
    def true_mu(self) -> float:
        """32/σ: the longest gradient whose square rounds to 0 in float32 is 2⁻⁷⁵, which is 32 times the bound."""
        assert self.steps == 1
        return 2.0**-75 / self.clip_norm / self.noise_multiplier

    def total(self, gradients: Floats, taken: NDArray[np.bool_]) -> Floats:
        tiny = np.clip(gradients, -1e6, 1e6).astype(np.float32) * np.float32(self.clip_norm)
        norms = np.sqrt(np.sum(tiny * tiny, axis=2, keepdims=True))
        clipped = tiny / np.maximum(norms / np.float32(self.clip_norm), 1.0)
        return np.asarray(np.sum(clipped * taken[:, :, None], axis=1, dtype=np.float64) / self.clip_norm)


class DPSGDForgottenSteps(DPSGD):
    """Claims what one step costs."""

    bug = "The accountant is told of one step where the training takes T."
    source = "a composition forgotten; compare dp_accounting, where a count was dropped"

    @property
    def claim(self) -> Guarantee:
        return Guarantee(mu=1 / self.noise_multiplier, relation="add_remove")


class DPSGDReplaceOne(DPSGD):
    """The same mechanism, with the guarantee for one record replaced. Correct."""

    @property
    def true_mu(self) -> float:
        """2√T/σ: a gradient can turn into its opposite."""
        return 2 * math.sqrt(self.steps) / self.noise_multiplier

    @property
    def claim(self) -> Guarantee:
        return Guarantee(mu=2 * math.sqrt(self.steps) / self.noise_multiplier)


class DPSGDReplaceOneUndercounted(DPSGDReplaceOne):
    """The guarantee for one record added or removed, stated for one record replaced."""

    bug = "The guarantee for adding a record is stated for replacing one, which can change a sum twice as much."
    source = "google/differential-privacy#378"

    @property
    def claim(self) -> Guarantee:
        return Guarantee(mu=math.sqrt(self.steps) / self.noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class DPSGDPoisson(DPSGD):
    """Each record joins each batch with probability q, by itself. Correct, at what the accountant says of q.

    Attributes:
        sample_rate: q.
    """

    source = "Abadi et al., CCS 2016; Mironov, Talwar, Zhang, arXiv 1908.10530"
    sample_rate: float = 0.25

    @property
    def accounted_rate(self) -> float:
        """The rate that the accountant is told."""
        return self.sample_rate

    @property
    def claim(self) -> Guarantee:
        front = poisson_front(self.noise_multiplier, self.accounted_rate, self.steps)
        return Guarantee(curve=front, relation="add_remove", accountant="PLD of dp-accounting")

    @property
    def true_epsilon(self) -> float:
        return poisson_epsilon(self.noise_multiplier, self.sample_rate, self.steps, SHOWN_DELTA)

    def taken(self, step: int, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.bool_]:
        return rng.random(shape) < self.sample_rate


class DPSGDWrongRate(DPSGDPoisson):
    """Accounts for a quarter of the rate it uses."""

    bug = "The accountant is told another sample rate than the sampler uses."
    source = "the shape of opacus#813, where the rate was that of the sampler instead of the data (and ε too large)"

    @property
    def accounted_rate(self) -> float:
        return self.sample_rate / 4


class DPSGDFixedBatches(DPSGDPoisson):
    """Puts each record into one batch, once, with a public seed, and takes the batches in turn."""

    bug = "Batches are dealt once and taken in turn, but accounted for as if each were drawn afresh."
    source = "opacus#80 and #128; Chua et al., ICML 2024"
    deal_seed = 0

    @property
    def batches(self) -> int:
        """The number of batches in an epoch."""
        return round(1 / self.sample_rate)

    @property
    def true_mu(self) -> float:
        """√E/σ for E epochs: a record is in one known batch of each."""
        return math.sqrt(self.steps / self.batches) / self.noise_multiplier

    @property
    def true_epsilon(self) -> float:
        return gdp_to_epsilon(self.true_mu, SHOWN_DELTA)

    def taken(self, step: int, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.bool_]:
        # a record's batch depends on its place alone, so that a new record at the end moves no other
        dealt = np.random.default_rng(self.deal_seed).integers(self.batches, size=shape[1])
        return np.broadcast_to(dealt == step % self.batches, shape)


# ---- what is true of them, where no closed form in μ says it


@cache
def _accountant(noise_multiplier: float, sample_rate: float, steps: int):  # type: ignore[no-untyped-def]
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    event = dp_accounting.PoissonSampledDpEvent(sample_rate, dp_accounting.GaussianDpEvent(noise_multiplier))
    return accountant.compose(event, steps)


def poisson_epsilon(noise_multiplier: float, sample_rate: float, steps: int, delta: float) -> float:
    """Return ε at δ of T Poisson-sampled Gaussian steps, one record added or removed."""
    return float(_accountant(noise_multiplier, sample_rate, steps).get_epsilon(delta))


@cache
def poisson_front(noise_multiplier: float, sample_rate: float, steps: int) -> tuple[tuple[float, float], ...]:
    """Return points (ε, δ) of the guarantee of T Poisson-sampled Gaussian steps."""
    accountant = _accountant(noise_multiplier, sample_rate, steps)
    points = [(epsilon, float(accountant.get_delta(epsilon))) for epsilon in _FRONT_EPSILONS]
    return tuple((epsilon, delta) for epsilon, delta in points if delta > 1e-9)


def unequal_gaussians_epsilon(mean1: float, scale1: float, mean2: float, scale2: float, delta: float) -> float:
    """Return the least ε such that two Gaussians are (ε, δ)-close in both directions.

    >>> unequal_gaussians_epsilon(1.0, 1.0, 0.0, 1.0, 1e-5) - 4.377 < 1e-3  # the Gaussian mechanism with mu = 1
    True
    """
    from scipy.optimize import brentq

    first, second = (mean1, scale1), (mean2, scale2)

    def excess(epsilon: float) -> float:
        return max(_hockey_stick(first, second, epsilon), _hockey_stick(second, first, epsilon)) - delta

    high = 1.0
    while excess(high) > 0:
        high *= 2
    return float(brentq(excess, 0.0, high))


def _hockey_stick(p: tuple[float, float], q: tuple[float, float], epsilon: float) -> float:
    """Return sup over events of P(E) - e^ε Q(E) for Gaussians P and Q: the event where the log-ratio exceeds ε."""
    from scipy.special import ndtr

    (m1, s1), (m2, s2) = p, q
    # log p/q = a x² + b x + c, and the event is a x² + b x + c > ε
    a = 0.5 / s2**2 - 0.5 / s1**2
    b = m1 / s1**2 - m2 / s2**2
    c = math.log(s2 / s1) + m2**2 / (2 * s2**2) - m1**2 / (2 * s1**2) - epsilon

    def below(x: float) -> float:
        return float(ndtr((x - m1) / s1) - math.exp(epsilon) * ndtr((x - m2) / s2))

    whole = 1 - math.exp(epsilon)
    if abs(a) < 1e-12:
        return (whole - below(-c / b)) if b > 0 else below(-c / b)
    root = b * b - 4 * a * c
    if root <= 0:
        return max(whole, 0.0) if a > 0 else 0.0
    low, high = sorted(((-b - math.sqrt(root)) / (2 * a), (-b + math.sqrt(root)) / (2 * a)))
    inside = below(high) - below(low)
    return whole - inside if a > 0 else inside
