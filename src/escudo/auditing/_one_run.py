r"""Audit a training in one run: many canaries, each included or not by a coin, and a score for each from the outcome.

The highest scores are guessed to be included and the lowest not; the rest get no guess. If one data point has little
effect on the outcome, the guesses cannot be right much more often than by chance, however the canaries interact.

**The bound.** Let m canaries be included by fair coins, r of them be guessed, and C guesses be right;
:math:`P_j = \Pr[C \ge j]`. Let :math:`\bar f(x)` be the largest probability that a neighbour can give to an event of
probability x (one minus the trade-off curve; concave). For fixed coins S and canary i, take the outcomes where the
guess on i is right and at least c guesses are: turning coin i round makes that guess wrong and leaves c - 1 right.
Averaging over i and S, with Jensen's inequality,

.. math:: \tfrac1m E[C; C \ge c] \le \bar f\bigl(\tfrac1m E[r - C; C \ge c - 1]\bigr), \qquad c = 1, \dots, r.

With :math:`X_c = \sum_{j > c} P_j` this reads :math:`(r - c + 1) P_{c-1} \ge m\,g((X_c + c P_c)/m) - (c - 1) P_c` for
:math:`g(h) = h + \bar f^{-1}(h)`, and :math:`X_{c-1} = X_c + P_c`. The right side grows in both :math:`X_c` and
:math:`P_c`, so starting from :math:`P_c = \alpha` and :math:`X_c = 0` and going down gives the least possible
:math:`P_0`. If it is above 1, then :math:`\Pr[C \ge c] < \alpha`: seeing c right guesses rejects the curve at level α.

**Canaries that go together.** The bound holds however canaries influence each other, and it cannot be improved much: a
mechanism can be 1-GDP for each canary and yet, in 5 % of its outcomes, give away 92 % of all coins at once. Where
scores come from noise of their own, such as that of a Gaussian step along orthogonal directions, each guess is right
with probability at most :math:`\Phi(\mu/2)` by itself, and Clopper-Pearson says more. That answer is given as well,
under its own name.

**How many guesses.** Numbers of guesses are stated beforehand; with several, each is tested at its share of the error.
Taking the best of many without that is how other tools come to accuse private trainings.

Reference: Steinke, Nasr, Jagielski, *Privacy Auditing with One (1) Training Run*, NeurIPS 2023 (Theorem 5.2);
Mahloujifar, Melis, Chaudhuri, *Auditing f-Differential Privacy in One Run*, arXiv 2410.22235.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from escudo._card import card, plain
from escudo._validate import positive_integer, probability
from escudo.errors import InputError
from escudo.privacy import Guarantee, gdp_to_epsilon

_TOP = 60.0
"""No ε above this is looked for."""
_SHARES = (0.05, 0.2)
"""Shares of the canaries that are guessed by default."""

Inverse = Callable[[float], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRun:
    """What one training says about its privacy.

    Attributes:
        epsilon_lower: ε is at least this at ``delta``, with the stated confidence, whatever the training does.
        epsilon_lower_steinke: The same by the theorem of Steinke et al., for comparison.
        mu_lower: The training is not μ-GDP for any smaller μ, with the stated confidence.
        epsilon_lower_gaussian: ε at ``delta`` of that μ: a bound on ε only if the training's curve is Gaussian.
        mu_lower_independent: The same as ``mu_lower``, if canaries do not influence each other's scores.
        epsilon_lower_independent: ε at ``delta`` of that μ: under both assumptions.
        violated: Whether the claim is rejected; None without a claim.
        claim: The claim, if there was one.
        delta: The δ that ε is stated at.
        confidence: The confidence of each statement by itself.
        canaries: How many canaries there were.
        guesses: The numbers of guesses tried.
        right: How many of them were right.
    """

    epsilon_lower: float
    epsilon_lower_steinke: float
    mu_lower: float
    epsilon_lower_gaussian: float
    mu_lower_independent: float
    epsilon_lower_independent: float
    violated: bool | None
    claim: Guarantee | None
    delta: float
    confidence: float
    canaries: int
    guesses: tuple[int, ...]
    right: tuple[int, ...]

    @property
    def verdict(self) -> str:
        """The finding in a sentence or two, in honest words."""
        found = (
            f"one run with {self.canaries:,} canaries: ε ≥ {self.epsilon_lower:.2f} at δ = {self.delta:g} with "
            f"{100 * self.confidence:.4g} % confidence; a Gaussian training has μ ≥ {self.mu_lower:.2f}, "
            f"that is ε ≥ {self.epsilon_lower_gaussian:.2f} (ε ≥ {self.epsilon_lower_independent:.2f} if canaries do "
            "not influence each other)"
        )
        if self.violated is None:
            return found[0].upper() + found[1:] + "."
        lead = "VIOLATED: the claim is rejected" if self.violated else "No violation found"
        return f"{lead}; {found}. Canaries that are not the worst possible see less than there is."

    def to_json(self) -> dict[str, Any]:
        """Return plain values for ``json.dumps``."""
        return plain(self) | {"verdict": self.verdict}

    def __str__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        return card("One training, audited", self.verdict, alarm=bool(self.violated))


def one_run(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    delta: float,
    claim: Guarantee | None = None,
    confidence: float = 0.95,
    guesses: int | Sequence[int] | None = None,
) -> OneRun:
    """Bound the privacy of one training from the scores of its canaries.

    Args:
        scores: One number for each canary, computed from the outcome of the training alone: higher where it looks
            included. A loss with its sign turned round, or a dot product with the released gradients.
        included: Whether each canary was in the training data, decided by independent fair coins.
        delta: The δ at which ε is stated.
        claim: What the training claims about the two worlds of one coin: for ``add_remove`` if a canary that is not
            included is left out, for ``replace_one`` if another record stands in its place.
        confidence: Of every bound and of the verdict, each by itself.
        guesses: How many canaries to guess, half of them from the top; several numbers share the error between
            them. State them before looking. By default a twentieth and a fifth.

    Returns:
        Lower bounds on ε, and on μ for Gaussian trainings, and the verdict on the claim.

    Raises:
        InputError: If the inputs do not go together, or a score is not a number.

    >>> rng = np.random.default_rng(0)
    >>> coins = rng.random(1000) < 0.5
    >>> found = one_run(coins + rng.normal(size=1000), coins, delta=1e-5)  # a Gaussian mechanism with mu = 1
    >>> 0.3 < found.mu_lower < 1
    True
    """
    probability("delta", delta)
    alpha = 1 - probability("confidence", confidence, allow_zero=False)
    values, coins = _check(scores, included)
    tried = _numbers(guesses, values.size)
    right = tuple(_right(values, coins, number) for number in tried)
    share = alpha / len(tried)

    def rejects(inverse: Inverse) -> bool:
        return any(
            _least_mass(share, c, number, values.size, inverse) > 1 for c, number in zip(right, tried, strict=True)
        )

    epsilon = _largest(lambda e: rejects(_approximate(e, delta)))
    mu = _largest(lambda m: rejects(_gaussian(m)))
    steinke = _largest(
        lambda e: any(
            _steinke(values.size, number, c, e, delta) < share for c, number in zip(right, tried, strict=True)
        )
    )
    alone = _independent(_right(values, coins, values.size), values.size, alpha)
    return OneRun(
        epsilon_lower=epsilon,
        epsilon_lower_steinke=steinke,
        mu_lower=mu,
        epsilon_lower_gaussian=_at(mu, delta),
        mu_lower_independent=alone,
        epsilon_lower_independent=_at(alone, delta),
        violated=None if claim is None else rejects(_curve_of(claim)),
        claim=claim,
        delta=delta,
        confidence=confidence,
        canaries=values.size,
        guesses=tried,
        right=right,
    )


def _check(scores: ArrayLike, included: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    values, coins = np.asarray(scores, dtype=np.float64), np.asarray(included)
    if values.ndim != 1 or values.size < 2 or coins.shape != values.shape:
        raise InputError("scores and included must be two lists of the same length, one entry for each canary.")
    if np.isnan(values).any():
        raise InputError("scores must be numbers; a canary without a score can be given the lowest or the median.")
    if coins.dtype != np.bool_ and not np.isin(coins, (0, 1)).all():
        raise InputError("included must say true or false for each canary.")
    return values, coins.astype(np.bool_)


def _numbers(guesses: int | Sequence[int] | None, canaries: int) -> tuple[int, ...]:
    if guesses is None:
        return tuple(sorted({max(2, round(share * canaries)) for share in _SHARES}))
    stated = (guesses,) if isinstance(guesses, int) else tuple(guesses)
    for number in stated:
        if positive_integer("guesses", number) > canaries:
            raise InputError(f"guesses must be at most the number of canaries, {canaries}; got {number}.")
    if not stated:
        raise InputError("guesses must name at least one number.")
    return stated


def _right(scores: NDArray[np.float64], included: NDArray[np.bool_], guesses: int) -> int:
    """Return how many guesses are right: the top half of them says included, the rest not included."""
    order = np.argsort(scores, kind="stable")  # ties are broken by place, which says nothing about the coins
    top = guesses - guesses // 2
    return int(included[order[-top:]].sum() + (~included[order[: guesses // 2]]).sum())


def _least_mass(alpha: float, right: int, guesses: int, canaries: int, inverse: Inverse) -> float:
    """Return the least total probability that the curve allows when at least ``right`` guesses are right with α."""
    mass, excess = alpha, 0.0
    for c in range(right, 0, -1):
        h = min((excess + c * mass) / canaries, 1.0)
        needed = (canaries * (h + inverse(h)) - (c - 1) * mass) / (guesses - c + 1)
        excess += mass
        mass = max(mass, needed)
        if mass > 1:
            return mass
    return mass


def _gaussian(mu: float) -> Inverse:
    from scipy.special import ndtr, ndtri

    return lambda y: float(ndtr(ndtri(y) - mu))


def _approximate(epsilon: float, delta: float) -> Inverse:
    # beyond e^700 a float ends, and the bound with it
    down, up = math.exp(-epsilon), math.exp(min(epsilon, 700.0))
    return lambda y: max((y - delta) * down, 1 - delta - (1 - y) * up, 0.0)


def _curve_of(claim: Guarantee) -> Inverse:
    """Return the inverse of f̄ that a claim states: the best of all its (ε, δ)."""
    if claim.mu is not None:
        return _gaussian(claim.mu)
    if claim.epsilon is not None and claim.source is None:
        return _approximate(claim.epsilon, claim.delta)
    known = sorted({0.0, *(e for e, _ in claim.curve or ()), *np.geomspace(0.01, 40.0, 60).tolist()})
    front = [_approximate(epsilon, claim.delta_at(epsilon)) for epsilon in known]
    return lambda y: max(point(y) for point in front)


def _steinke(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return the p-value of Theorem 5.2: at least so many right guesses under (ε, δ)."""
    from scipy.special import betainc, gammaln

    if right == 0:
        return 1.0
    p = float(betainc(right, guesses - right + 1, 1 / (1 + math.exp(-epsilon))))  # the binomial's upper tail
    if delta > 0:
        fewer = np.arange(right - 1, -1, -1)
        ways = gammaln(guesses + 1) - gammaln(fewer + 1) - gammaln(guesses - fewer + 1)
        below = np.cumsum(np.exp(ways + fewer * epsilon - guesses * np.logaddexp(0.0, epsilon)))
        p += 2 * canaries * delta * float(np.max(below / np.arange(1, right + 1)))
    return min(p, 1.0)


def _independent(right: int, guesses: int, alpha: float) -> float:
    """Return μ from Clopper-Pearson: a guess on each canary is right with probability at most Φ(μ/2)."""
    from scipy.special import betaincinv, ndtri

    share = float(betaincinv(right, guesses - right + 1, alpha)) if right else 0.0
    return max(0.0, 2 * float(ndtri(share))) if share > 0.5 else 0.0


def _at(mu: float, delta: float) -> float:
    return gdp_to_epsilon(mu, delta) if mu > 0 and delta > 0 else 0.0


def _largest(rejects: Callable[[float], bool]) -> float:
    """Return the largest number that is rejected, from below; rejection is monotone."""
    if not rejects(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while rejects(high):
        low, high = high, 2 * high
        if high > _TOP:
            return low
    while high - low > 1e-4 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if rejects(middle) else (low, middle)
    return low
