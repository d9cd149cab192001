r"""What one event costs: one pure function per kind of event, for one application of it.

A ``PrivacyCurve`` states several true bounds on the same release; an accountant composes whichever it understands. All
are symmetric: they hold for a pair of neighbours in both orders. Counts are not applied here but once, in
``_totals``.

**Slack.** An (ε, δ) mechanism is at worst randomised response with ε, except that with probability δ it gives
everything away. Proof: Kairouz, Oh, Viswanath (2015), "The composition theorem for differential privacy", show that
every (ε, δ)-DP pair of distributions is a post-processing of the pair that says "this is P" (or "this is Q") with
probability δ and flips the coin of ε-randomised response otherwise: both have the same trade-off curve, and Blackwell's
theorem does the rest. So δ is carried beside the curve, as the additive quantity ``slack`` = -log(1 - δ): several
releases all stay clear of their δ with probability Π(1 - δᵢ).

**The sampled Gaussian.** Gaussian noise on the sum of a Poisson sample, as in DP-SGD: its exact curve.

Every row is drawn with probability q by itself; the drawn rows' vectors, each of length at most C, are summed, and
Gaussian noise of standard deviation σC is added to each coordinate. Lengths are in units of σC from here on, so that
the noise is standard normal, and a row's vector has length at most m = 1/σ.

**Worst case.** Let r rows change. Given which of the other rows are drawn, the output is :math:`P = \sum_j b_j
N(g_j)` for one table and :math:`Q = \sum_j b_j N(g'_j)` for the other, where :math:`b_j` is the binomial probability
that j of the r rows are drawn, :math:`\|g_j\|, \|g'_j\| \le jm`, and a common shift is left out (sets of drawn rows of
equal size are averaged over; what follows holds for each). Under ``add_remove`` all :math:`g'_j` are 0. For a set A of
mass a under N(0), Neyman and Pearson give

.. math:: N(g)(A) \le Φ(Φ^{-1}(a) + \|g\|), \qquad N(g)(A) \ge Φ(Φ^{-1}(a) - \|g\|),

both with equality for a half-line in one dimension. So P(A) - e^ε Q(A) is at most what the half-line of mass a gives
for the pair on the line

.. math:: P^* = \sum_j b_j N(jm, 1), \qquad Q^* = N(0, 1) \;\text{or}\; \sum_j b_j N(-jm, 1),

for every real ε, and in both orders. Hence this pair dominates the step, for the relation ``add_remove`` or
``replace_one``, and composition of steps is composition of this pair (Zhu, Dong, Wang 2022, Theorem 10). Mixing over
the other rows' draws does not raise it, by joint convexity.

**Curve.** log(P*/Q*) grows along the line, so the best set is a half-line {x > t} (or {x < t} in the other order) that
ends where the loss is ε: δ(ε) is a difference of normal tails. For one row t has a closed form.

**References.** M. Abadi et al. (2016), "Deep learning with differential privacy", CCS; Y. Zhu, J. Dong, Y.-X. Wang
(2022), "Optimal accounting of differential privacy via characteristic function", AISTATS; I. Mironov, K. Talwar,
L. Zhang (2019), "Rényi differential privacy of the sampled Gaussian mechanism", arXiv:1908.10530.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from escudo.errors import UnsupportedEventError
from escudo.privacy._conversions import FloatArray, gdp_deltas, round_up
from escudo.privacy._events import (
    ApproximateEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    GDPEvent,
    LaplaceEvent,
    PureEvent,
    SampledGaussianEvent,
    ZCDPEvent,
)

ORDERS: FloatArray = 1 + np.geomspace(1e-3, 1e6, 400)
"""Orders of Rényi divergence that are accounted for, 5% apart: the best of them costs ε less than 0.1%."""
ORDERS.flags.writeable = False


_NEGLIGIBLE = 1e-25
"""A probability that is moved to "everything is given away" where a tail has to end somewhere."""
_MAX_STEPS = 100_000
"""Largest noise, in grid steps, whose mass function is summed up term by term."""
_FINE_STEPS = 2.0**30
"""Least noise, in grid steps, that is as good as continuous noise, but for a loss of ``_FINE_LOSS``."""
_FINE_LOSS = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class HockeyStick:
    """The exact privacy curve of one application: δ as a function of ε, for ε ≥ 0.

    Attributes:
        deltas: δ(ε) for an array of ε ≥ 0, never below the truth.
        top: A loss that is exceeded with negligible probability or never.
        knots: The only losses that occur, if they are few; else None.
        orders: Where the two orders of a pair differ: δ(ε) of each, for any real ε.
    """

    deltas: Callable[[FloatArray], FloatArray]
    top: float
    knots: tuple[float, ...] | None = None
    orders: tuple[Callable[[FloatArray], FloatArray], Callable[[FloatArray], FloatArray]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PrivacyCurve:
    """True bounds on one application of an event, all outside its slack.

    Attributes:
        pure: Bound on every log-ratio of output probabilities, or infinity.
        mu: The event is μ-GDP, or infinity.
        divergences: Rényi divergence at an array of orders.
        slack: -log(1 - δ) for the probability δ with which nothing is promised.
        exact: The exact curve, where known, of one of ``times`` independent parts whose composition the event is.
        times: How many such parts.
    """

    pure: float
    mu: float
    divergences: Callable[[FloatArray], FloatArray]
    slack: float = 0.0
    exact: HockeyStick | None = None
    times: int = 1

    @property
    def renyi(self) -> FloatArray:
        """Rényi divergence at each of ``ORDERS``; worked out when first asked for."""
        return _at_all_orders(self)


@lru_cache(maxsize=4096)
def curve_of(event: Event) -> PrivacyCurve:
    """Return the privacy curve of one application of an unstructured event.

    Raises:
        UnsupportedEventError: If no curve is registered for this kind of event.
    """
    if event.kind not in _CURVES:
        raise UnsupportedEventError(f"No privacy curve is known for events of kind {event.kind!r}.")
    return _CURVES[event.kind](event)


@lru_cache(maxsize=4096)
def _at_all_orders(curve: PrivacyCurve) -> FloatArray:
    renyi = curve.divergences(ORDERS)
    renyi.flags.writeable = False
    return renyi


def _pure_curve(epsilon: float, *, slack: float = 0.0) -> PrivacyCurve:
    r"""Return the curve of randomised response, the worst of all ε-DP mechanisms.

    Kairouz, Oh, Viswanath (2015), Theorem 3.1: every ε-DP mechanism is a post-processing of a coin that shows the truth
    with probability p = e^ε/(1 + e^ε). Post-processing lowers every divergence, so its divergences bound all:

    .. math:: D_α = \frac{\log\cosh((α-\tfrac12)ε) - \log\cosh(ε/2)}{α-1}, \qquad δ(ε') = \frac{e^ε - e^{ε'}}{1 + e^ε},

    from D_α = log(p^α q^{1-α} + q^α p^{1-α})/(α - 1) with q = 1 - p, and δ(ε') = p - e^{ε'} q for 0 ≤ ε' ≤ ε.
    """
    if epsilon == 0:
        return _free(slack)

    def deltas(epsilons: FloatArray) -> FloatArray:
        return _probabilities(-np.expm1(np.minimum(epsilons - epsilon, 0.0)) / (1 + math.exp(-epsilon)))

    def divergences(orders: FloatArray) -> FloatArray:
        renyi = (_log_cosh((orders - 0.5) * epsilon) - _log_cosh(np.array(epsilon / 2))) / (orders - 1)
        return np.minimum(_up(renyi), epsilon)

    exact = HockeyStick(deltas, epsilon, knots=(-epsilon, epsilon))
    return PrivacyCurve(epsilon, math.inf, divergences, slack, exact)


def _exponential(event: ExponentialEvent) -> PrivacyCurve:
    r"""Bounded range ε: ε-DP, ε²/8-zCDP, and the curve :math:`δ(x) = (e^{ε/2} - e^{x/2})^2 / (e^ε - 1)` for x ≤ ε.

    **Proof.** The loss Z = log(P/Q) lies in an interval of length ε; it takes both signs, so |Z| ≤ ε. Let
    K(s) = log E_Q[e^{sZ}], so K(0) = K(1) = 0 and D_α = K(α)/(α - 1). K″(s) is the variance of Z under a tilted
    measure, at most ε²/4. Hence K(s) - s(s - 1)ε²/8 is concave and 0 at 0 and 1, so it is at most 0 for s > 1:
    D_α ≤ αε²/8. The smaller of this and the ε-DP divergence holds at each order.

    *Curve.* δ(x) = E_Q[(e^Z - e^x)₊] with E_Q[e^Z] = 1 and Z in [t - ε, t]. What is averaged is convex in e^Z, so it is
    largest where Z takes both ends only: t with probability p = (e^ε - e^t)/(e^ε - 1) under P, which makes
    p (1 - e^{x-t}) for x ≤ t. Over t that is largest at t = (ε + x)/2, with the value above. Whatever t is, and though
    it may be another in every pick, the curve bounds that of the pick; it is convex in e^x, and the same in both
    orders, since swapping P and Q swaps t for ε - t. So it is the curve of a pair that dominates every pick.

    **Reference.** Cesar, Rogers (2020), "Bounding, concentrating, and truncating"; Dong, Durfee, Rogers (2020),
    "Optimal differential privacy composition for exponential mechanisms", for the pairs of two points.
    """
    pure = _pure_curve(event.epsilon)
    if event.epsilon == 0:
        return pure
    loss = event.epsilon

    def divergences(orders: FloatArray) -> FloatArray:
        return np.minimum(pure.divergences(orders), _up(orders * (loss**2 / 8)))

    def deltas(epsilons: FloatArray) -> FloatArray:
        # e^{-ε} times both parts of the fraction, which stays finite
        root = np.expm1(np.minimum(epsilons - loss, 0.0) / 2)
        return _probabilities(root**2 / -math.expm1(-loss))

    return replace(pure, divergences=divergences, exact=HockeyStick(deltas, loss))


def _laplace(event: LaplaceEvent) -> PrivacyCurve:
    r"""Laplace noise, on a grid or not: ε = l1 sensitivity / scale; in one dimension its exact curve.

    With w e^{(α-1)ε} + (1-w) e^{-αε} for the α-th moment of P/Q, split at the two centres:

    * continuous noise: 1 - w = (α-1)/(2α-1), and δ(ε') = 1 - e^{(ε'-ε)/2};
    * noise on a grid, s steps apart, mass (1-q)/(1+q)·q^{|x|} with q = e^{-ε/s}: summing the geometric series left of,
      between and right of the centres, 1 - w = (q - r)/((1+q)(1-r)) with r = q^{2α-1}. The loss falls from ε to -ε
      between the centres, so with x the last integer where it exceeds ε', δ(ε') = F(x) - e^{ε'} F(x - s) for the
      distribution function F.

    In several dimensions the l1 sensitivity may be spread over coordinates, and only ε-DP is used.
    """
    epsilon = round_up(Fraction(event.l1_sensitivity) / Fraction(event.scale))
    pure = _pure_curve(epsilon)
    if event.dimensions > 1 or epsilon == 0:
        return pure
    other_weight: Callable[[FloatArray], FloatArray]
    if event.grid == 0:
        other_weight = lambda orders: (orders - 1) / (2 * orders - 1)  # noqa: E731 - as the one below
        exact = HockeyStick(
            lambda epsilons: _probabilities(-np.expm1(np.minimum(epsilons - epsilon, 0.0) / 2)), epsilon
        )
        loss = epsilon
    else:
        # The statistic is on the grid, so it moves by whole steps; a quotient may miss a whole number by rounding.
        quotient, step = event.l1_sensitivity / event.grid * (1 + 1e-12), Fraction(event.grid) / Fraction(event.scale)
        if not (1 <= quotient < 2**53 and step > 1e-300):  # less than a step, or steps beyond counting
            return pure
        step_loss = round_up(step)
        steps = math.floor(quotient)
        loss = math.nextafter(steps * step_loss, math.inf)
        q = math.exp(-step_loss)

        def other_weight(orders: FloatArray) -> FloatArray:
            # (q - r) / ((1 + q)(1 - r)), free of cancellation for fine grids.
            return q * np.expm1(-2 * (orders - 1) * step_loss) / np.expm1(-(2 * orders - 1) * step_loss) / (1 + q)

        exact = HockeyStick(lambda epsilons: _discrete_laplace_deltas(steps, step_loss, epsilons), loss)

    def divergences(orders: FloatArray) -> FloatArray:
        return np.minimum(pure.divergences(orders), _mixed_exponentials(orders, other_weight(orders), loss))

    return PrivacyCurve(epsilon, math.inf, divergences, 0.0, exact)


def _mixed_exponentials(orders: FloatArray, other_weight: FloatArray, loss: float) -> FloatArray:
    """Return log((1 - v) e^{(α-1)ε} + v e^{-αε}) / (α - 1) for weights v at each order, rounded up."""
    up, down = (orders - 1) * loss, -orders * loss
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # each form has its own range
        near = np.log1p((1 - other_weight) * np.expm1(up) + other_weight * np.expm1(down))  # exact for small losses
        far = np.logaddexp(np.log1p(-other_weight) + up, np.log(other_weight) + down)
    return (np.where(up < 1, near, far) + 1e-15 * orders * loss) / (orders - 1)


def _discrete_laplace_deltas(steps: int, step_loss: float, epsilons: FloatArray) -> FloatArray:
    q = math.exp(-step_loss)
    # The last x whose loss (steps - 2x)·step_loss exceeds ε; at a tie both neighbours of x give the same sum.
    x = np.maximum(np.ceil((steps - epsilons / step_loss) / 2) - 1, 0.0)
    # 1 - q^{x+1}/(1+q) - e^ε q^{s-x}/(1+q), written as a sum of terms that vanish with the loss, none below 0.
    left = np.nextafter((steps - x) * step_loss, math.inf)
    above = -q * np.expm1(-x * step_loss) - np.expm1(np.minimum(epsilons - left, 0.0))
    largest = math.nextafter(steps * step_loss, math.inf)
    return np.where(epsilons >= largest, 0.0, _probabilities(above / (1 + q) + 1e-16))


def _gaussian(event: GaussianEvent) -> PrivacyCurve:
    """Gaussian noise: continuous it is μ-GDP, on a grid ρ-zCDP, with μ = l2 sensitivity / scale and ρ = μ²/2.

    Noise on a grid keeps the Rényi divergences of continuous noise for shifts by whole steps (Canonne, Kamath, Steinke
    2020, Proposition 5), coordinate by coordinate, and squares of shifts add up. Where k cells differ by one step each,
    the release is k independent copies of a one-dimensional one, whose curve is summed exactly; fewer cells or smaller
    steps are dominated. On a grid that is fine enough, the curve is that of continuous noise, nearly.
    """
    mu = round_up(Fraction(event.l2_sensitivity) / Fraction(event.scale))
    if mu == 0:
        return _free()
    if event.grid == 0:
        return _gdp_curve(mu)
    sigma = event.scale / event.grid
    if event.changed_cells is None:
        curve = _zcdp_curve(mu**2 / 2)
        return replace(curve, exact=_fine_gaussian(mu)) if sigma >= _FINE_STEPS else curve
    curve = _zcdp_curve(min(mu**2 / 2, event.changed_cells / (2 * sigma**2)))
    if sigma > _MAX_STEPS:
        return curve
    return replace(curve, exact=_discrete_gaussian(sigma), times=event.changed_cells)


def _fine_gaussian(mu: float) -> HockeyStick:
    r"""Return a bound on the curve of noise on a grid of which its scale σ is at least ``_FINE_STEPS`` steps.

    *Claim.* If at most D = 2³² coordinates move, by whole steps, and by no more than μσ together in l2,
    :math:`δ(ε) \le e^h δ_μ(ε - h) + e^{-100}`, with :math:`δ_μ` that of N(0, 1) and N(μ, 1) and
    :math:`h = (5 D + 800 + 2 μ^2) / 24 σ^2`, which is below ``_FINE_LOSS`` · (1 + μ²).

    *Proof.* Coordinates that do not move may be left out. Let p be the law of the noise in one coordinate, in steps,
    and r that of a continuous normal variable of the same scale, rounded to whole steps. Shifted by whole steps, r in
    all coordinates is a function of continuous noise that is shifted as far, so that its curve is at most
    :math:`δ_μ`. With φ the normal density and U uniform in ±½, :math:`r(k)/φ(k) = E\,e^{-kU/σ^2 - U^2/2σ^2}`. By
    Jensen's inequality this is at least :math:`e^{-1/24σ^2}`; and since :math:`E\,e^{tU} \le e^{t^2/24}` it is at most
    :math:`e^{k^2/24σ^4}`. By Poisson's summation formula :math:`φ(k)/p(k) = \sum_j φ(j)` is between 1 and
    :math:`1 + 3 e^{-2π^2σ^2}`, which is 1 for all that follows. So, in D coordinates, with P and R for the
    laws,

    * :math:`P \le e^{D/24σ^2} R` everywhere, also after a shift, and
    * :math:`P \ge e^{-T/24σ^2} R` on the ball B of radius :math:`σ\sqrt T`.

    For a set A and a shift v, :math:`P_v(A \cap B) - e^ε P(A \cap B) \le e^{D/24σ^2} R_v(A \cap B) - e^{ε - T/24σ^2}
    R(A \cap B) \le e^h δ_μ(ε - h)`, where :math:`h = (D + T)/24σ^2`. Outside of B, as
    :math:`E\,e^{k^2/4σ^2} = \sqrt 2` in each coordinate, noise z has :math:`P(\|z\|^2 > σ^2(2D + 400)) \le 2^{D/2}
    e^{-D/2 - 100} \le e^{-100}`; so with :math:`T = 4D + 800 + 2μ^2 \ge (\sqrt{2D + 400} + μ)^2` the shifted noise is
    there with no more than that probability. The same holds with P and P_v in each other's place. ∎

    Where ε is less than h, :math:`δ_μ(ε - h) \le δ_μ(0) + h - ε`, as no set has more than probability 1.
    """
    loss = _FINE_LOSS * (1 + mu**2)
    tail = math.sqrt(-2 * math.log(_NEGLIGIBLE))

    def deltas(epsilons: FloatArray) -> FloatArray:
        least = gdp_deltas(mu, np.maximum(epsilons - loss, 0.0)) + np.maximum(loss - epsilons, 0.0)
        return _probabilities(math.exp(loss) * least + _NEGLIGIBLE)

    return HockeyStick(deltas=deltas, top=mu * (mu / 2 + tail) + loss)


def _discrete_gaussian(sigma: float) -> HockeyStick:
    """Return the exact curve of Gaussian noise on the integers for a shift by 1.

    The loss at x is (1 - 2x)/(2σ²), so for the last x where it exceeds ε, δ(ε) = F(x) - e^ε F(x - 1), with the
    distribution function F summed from the left. Left of the cut, terms are below ``_NEGLIGIBLE``; that much is added.
    """
    cut = math.ceil(sigma * math.sqrt(-2 * math.log(_NEGLIGIBLE))) + 2
    exponents = -(np.arange(-cut, 1, dtype=np.float64) ** 2) / (2 * sigma**2)
    masses = np.exp(exponents)
    total = 2 * masses[:-1].sum() + 1
    cumulative = np.concatenate([[0.0], np.cumsum(masses)]) / total  # cumulative[i] = F(i - cut - 1)

    def deltas(epsilons: FloatArray) -> FloatArray:
        x = np.ceil(0.5 - epsilons * sigma**2) - 1
        index = np.clip(x + cut + 1, 1, cut + 1).astype(np.int64)
        # e^ε F(x - 1) stays below F(x); where the float overflows, the difference is negligible anyway.
        lower = np.exp(np.minimum(epsilons, 700.0)) * cumulative[index - 1]
        return _probabilities(cumulative[index] - lower + 1e-14 * cumulative[index] + _NEGLIGIBLE)

    return HockeyStick(deltas, (1 + 2 * cut) / (2 * sigma**2))


def _sampled_gaussian(event: SampledGaussianEvent) -> PrivacyCurve:
    """Gaussian noise on a Poisson sample: its pair of distributions, or plain noise if all rows are drawn."""
    pair = event.pair
    if event.sampling_probability == 0:
        return _free()
    if event.sampling_probability == 1:
        return _gdp_curve(pair.gaussian_mu)
    exact = HockeyStick(pair.deltas, pair.top, orders=None if pair.both else (pair.forward, pair.backward))
    return PrivacyCurve(math.inf, math.inf, lambda orders: _up(pair.renyi(orders)), 0.0, exact)


_TAIL = 10.8  # standard deviations that are exceeded with probability below 1e-26
_NODES = 6_000  # of the quadrature for Rényi divergences, at most
_MAX_ORDER = 256.0


@dataclass(frozen=True, slots=True)
class SampledPair:
    """P* and Q* on the line: mixtures of normals, j shifts to the right, and none or j to the left.

    Attributes:
        shift: How far one drawn row moves the output, in standard deviations of the noise.
        q: The chance that a row is drawn.
        rows: How many rows may be.
        both: Whether the other table has as many rows in their place (``replace_one``).
    """

    shift: float
    q: float
    rows: int
    both: bool

    @property
    def gaussian_mu(self) -> float:
        """The distance between the tables' outputs where all rows are drawn."""
        return self.shift * self.rows * (2 if self.both else 1)

    @property
    def top(self) -> float:
        """A loss that is exceeded with negligible probability, in either order."""
        far = self._loss(np.array([self._centres[-1] + _TAIL]))[0]
        back = -self._loss(np.array([-self._centres[-1] * self.both - _TAIL]))[0]
        return float(max(far, back)) * (1 + 1e-9)

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Return the larger δ(ε) of the two orders."""
        if self.both:
            return self.forward(epsilons)
        return np.maximum(self.forward(epsilons), self.backward(epsilons))

    def forward(self, epsilons: FloatArray) -> FloatArray:
        """Return δ(ε) for P* against Q*, for any real ε; never below the truth."""
        from scipy.special import ndtr  # slow to import

        t = self._end(epsilons)
        upper = _mixed(self._weights, ndtr(self._centres[:, None] - t))
        lower = _mixed(self._weights, ndtr(-self._centres[:, None] - t)) if self.both else ndtr(-t)
        return _difference(upper, epsilons, lower)

    def backward(self, epsilons: FloatArray) -> FloatArray:
        """Return δ(ε) for Q* against P*, for any real ε; never below the truth."""
        from scipy.special import ndtr

        if self.both:
            return self.forward(epsilons)  # mirrored, they are each other
        t = self._end(-epsilons)
        return _difference(ndtr(t), epsilons, _mixed(self._weights, ndtr(t - self._centres[:, None])))

    def renyi(self, orders: FloatArray) -> FloatArray:
        r"""Return the larger Rényi divergence of the two orders at each α, by the trapezoidal rule.

        :math:`(α - 1) D_α = \log \int Q^{1-α} P^{α}`, with an integrand that is analytic in a strip of half-width π/m,
        so the rule's error falls like :math:`e^{-2π^2/(mh)}`. Orders too large for that get the divergence without
        sampling, :math:`αμ^2/2`: mixing lowers it.
        """
        whole = orders * (self.gaussian_mu**2 / 2)
        step = min(0.25, 0.25 / self._centres[-1]) if self.rows > 1 else min(0.25, 0.4 / self.shift)
        reach = self._centres[-1]
        largest = min(_MAX_ORDER, (step * _NODES - 4 * _TAIL) / reach)
        some = orders < largest
        if not some.any():
            return whole
        near = orders[some]
        x = np.arange(-2 * reach - 2 * _TAIL, near.max() * reach + 2 * _TAIL, step)
        loss = self._loss(x)
        log_q = -(x**2) / 2 - math.log(2 * math.pi) / 2
        if self.both:
            log_q = log_q + self._log_ratio(-x)
        scale = math.log(step)
        there = _log_sum(near[:, None] * loss + log_q) + scale
        back = _log_sum((1 - near)[:, None] * loss + log_q) + scale
        found = whole.copy()
        # The sums are close to 1 where little is lost: their logarithm is known to 1e-13 or so.
        found[some] = np.minimum((np.maximum(there, back) + 1e-12) / (near - 1), whole[some])
        return np.maximum(found, 0.0)

    @property
    def _weights(self) -> FloatArray:
        """The chance of each number of drawn rows."""
        if self.rows == 1:
            return np.array([1 - self.q, self.q])
        from scipy.stats import binom

        weights = np.asarray(binom.pmf(np.arange(self.rows + 1), self.rows, self.q), dtype=np.float64)
        total: FloatArray = weights / weights.sum()
        return total

    @property
    def _centres(self) -> FloatArray:
        return np.arange(self.rows + 1, dtype=np.float64) * self.shift

    def _log_ratio(self, x: FloatArray) -> FloatArray:
        """Return log(P*/N(0, 1)) at x."""
        with np.errstate(divide="ignore"):
            terms = np.log(self._weights)[:, None] + self._centres[:, None] * (x - self._centres[:, None] / 2)
        return _log_sum(terms.T)

    def _loss(self, x: FloatArray) -> FloatArray:
        """Return log(P*/Q*) at x; it grows with x."""
        found = self._log_ratio(x)
        return found - self._log_ratio(-x) if self.both else found

    def _end(self, epsilons: FloatArray) -> FloatArray:
        """Return where the loss is ε; -∞ where it is above ε everywhere. In logarithms, because e^{-m²/2} may be 0."""
        m, q = self.shift, self.q
        if self.rows > 1:
            return self._searched(epsilons)
        size = np.abs(epsilons)
        with np.errstate(divide="ignore", invalid="ignore"):
            if not self.both:
                # e^{mx - m²/2} = (e^ε - (1 - q)) / q: 1 + (e^ε - 1)/q where that is near 1, else without overflow.
                near = np.log1p(np.expm1(np.minimum(epsilons, 1.0)) / q)
                far = size - math.log(q) + np.log1p(-(1 - q) * np.exp(-size))
                odds = np.where(epsilons < 1, near, far)
                return np.where(np.isnan(odds), -np.inf, odds / m + m / 2)
            # c y² - b y - c e^ε = 0 for y = e^{mx}, b = (1 - q)(e^ε - 1) and c = q e^{-m²/2}; mirrored for ε < 0.
            b, c = math.log1p(-q) + size + np.log(-np.expm1(-size)), math.log(q) - m * m / 2
            y = np.logaddexp(b, np.logaddexp(2 * b, math.log(4) + 2 * c + size) / 2) - math.log(2) - c
            return np.sign(epsilons) * y / m

    def _searched(self, epsilons: FloatArray) -> FloatArray:
        """Return where the loss is ε, by Newton's method from a table; an error there counts squared in δ."""
        ends = 3 * _TAIL + self._centres[-1]
        table = np.linspace(-ends, ends, 2**14)
        losses = self._loss(table)
        x = np.interp(epsilons, losses, table)
        h = 1e-5
        for _ in range(3):
            slope = (self._loss(x + h) - self._loss(x - h)) / (2 * h)
            x = np.clip(x - (self._loss(x) - epsilons) / np.maximum(slope, 1e-12), -ends, ends)
        return np.where(epsilons <= losses[0], -np.inf, x)


def _mixed(weights: FloatArray, tails: FloatArray) -> FloatArray:
    mixed: FloatArray = weights @ tails
    return mixed


def _difference(upper: FloatArray, epsilons: FloatArray, lower: FloatArray) -> FloatArray:
    """Return upper - e^ε lower, rounded up and within [0, 1]."""
    taken = np.exp(np.minimum(epsilons, 700.0)) * lower
    error = 4e-15 * (upper + np.minimum(taken, upper)) * (1 + np.abs(epsilons))
    deltas: FloatArray = np.clip(upper - taken + error, 0.0, 1.0)
    return deltas


def _log_sum(terms: FloatArray) -> FloatArray:
    """Return log Σ exp over the last axis."""
    top = terms.max(axis=-1, keepdims=True)
    total: FloatArray = np.log(np.exp(terms - top).sum(axis=-1)) + top[..., 0]
    return total


def _zcdp_curve(rho: float) -> PrivacyCurve:
    if rho == 0:
        return _free()
    return PrivacyCurve(math.inf, math.inf, lambda orders: _up(rho * orders))


def _gdp_curve(mu: float) -> PrivacyCurve:
    """μ-GDP: the divergences of N(0, 1) and N(μ, 1), which dominate those of every μ-GDP mechanism."""
    if mu == 0:
        return _free()
    return PrivacyCurve(math.inf, mu, lambda orders: _up(orders * (mu**2 / 2)), exact=gaussian_hockey_stick(mu))


def gaussian_hockey_stick(mu: float) -> HockeyStick:
    """Return the exact curve of N(0, 1) and N(μ, 1); see ``gdp_to_delta``."""
    tail = math.sqrt(-2 * math.log(_NEGLIGIBLE))
    return HockeyStick(lambda epsilons: gdp_deltas(mu, epsilons), mu * (mu / 2 + tail))


_CURVES: Mapping[str, Callable[[Any], PrivacyCurve]] = {
    LaplaceEvent.kind: _laplace,
    GaussianEvent.kind: _gaussian,
    SampledGaussianEvent.kind: _sampled_gaussian,
    ExponentialEvent.kind: _exponential,
    PureEvent.kind: lambda event: _pure_curve(event.epsilon),
    ApproximateEvent.kind: lambda event: _pure_curve(event.epsilon, slack=-math.log1p(-event.delta)),
    ZCDPEvent.kind: lambda event: _zcdp_curve(event.rho),
    GDPEvent.kind: lambda event: _gdp_curve(event.mu),
}


def _free(slack: float = 0.0) -> PrivacyCurve:
    """Return the curve of a release that does not depend on the data, but for its slack."""
    nothing = HockeyStick(lambda epsilons: np.zeros_like(epsilons), 0.0, knots=(0.0,))
    return PrivacyCurve(0.0, 0.0, np.zeros_like, slack, nothing)


def _up(values: FloatArray) -> FloatArray:
    """Round up by more than a handful of floating-point operations can have lost."""
    raised: FloatArray = values * (1 + 1e-12)
    return raised


def _probabilities(values: FloatArray) -> FloatArray:
    """Round up, and keep between 0 and 1."""
    return np.clip(_up(values), 0.0, 1.0)


def _log_cosh(x: FloatArray) -> FloatArray:
    """Return log cosh x for x ≥ 0 to full relative precision, small and large."""
    small: FloatArray = np.log1p(2 * np.sinh(np.minimum(x, 1.0) / 2) ** 2)
    large: FloatArray = x + np.log1p(np.exp(-2 * x)) - math.log(2)
    return np.where(x < 1, small, large)
