"""The finite mechanisms that an equation may use: exact laws as tables, computed with logarithms.

Every function takes the values its argument can have and returns a :class:`Kernel`: the values of the output and the
natural logarithm of ``Pr[output | argument]``. Logarithms keep probabilities such as e⁻¹⁰⁰⁰ apart from zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from escudo._validate import finite, one_of, positive, probability
from escudo.causal._inference import MAX_CELLS, Array
from escudo.causal._sem_equations import MAX_WHOLE, Value, show
from escudo.errors import InputError

_TAIL = 45.0  # e⁻⁴⁵ ≈ 3e-20: what a noise tail may still weigh, relative to the probability it belongs to
_MAX_WORK = 2**25
_MAX_RATE = 1e200  # times any whole number of the text format this is still a float


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """The law of a mechanism's output: ``log[arguments…, output]``, natural logarithms.

    Attributes:
        values: The outputs.
        log: One axis per argument, then one for the output.
        exact: The probabilities themselves where a user wrote them, to be used as written.
    """

    values: tuple[Value, ...]
    log: Array
    exact: Array | None = None

    @classmethod
    def written(cls, values: Sequence[Value], probabilities: npt.ArrayLike) -> Kernel:
        """Return the law with probabilities that a user wrote."""
        exact = np.asarray(probabilities, dtype=np.float64)
        with np.errstate(divide="ignore"):
            return cls(tuple(values), np.log(exact), exact)


def coin(*, probability: float) -> Kernel:
    """True with the given probability, else false."""
    return Kernel.written((False, True), _coin(probability))


def bernoulli(*, probability: float) -> Kernel:
    """1 with the given probability, else 0."""
    return Kernel.written((0, 1), _coin(probability))


def randomised_response(values: Sequence[Value], *, epsilon: float) -> Kernel:
    """Keep one of two values with probability e^ε/(1+e^ε), else give the other (Warner 1965).

    Guarantee:
        Changing the argument changes the probability of each answer by a factor of exactly e^ε or e^-ε.
    """
    if len(values) != 2:
        raise InputError(
            f"randomised_response needs an argument with two values; got {show(values)}. Use kary_response."
        )
    return kary_response(values, epsilon)


def kary_response(values: Sequence[Value], epsilon: float) -> Kernel:
    """Keep one of k values with probability e^ε/(e^ε+k-1), else give one of the others, each alike.

    Guarantee:
        Changing the argument changes the probability of each answer by a factor between e^-ε and e^ε.
    """
    epsilon = positive("epsilon", epsilon, allow_zero=True)
    k = len(values)
    keep = -math.log1p((k - 1) * math.exp(-epsilon))
    return Kernel(tuple(values), np.where(np.eye(k, dtype=bool), keep, keep - epsilon))


def truncated_geometric(
    values: Sequence[Value],
    *,
    epsilon: float,
    sensitivity: float = 1.0,
    lower: float | None = None,
    upper: float | None = None,
) -> Kernel:
    """Add two-sided geometric noise, Pr[noise = z] = (1-α)/(1+α) α^|z| with α = exp(-ε/sensitivity), and clamp.

    Args:
        values: What the argument can be: whole numbers.
        epsilon: Effect of a change by ``sensitivity``.
        sensitivity: How far one person can move the argument.
        lower: Smallest output; the smallest value by default.
        upper: Largest output; the largest value by default.

    Guarantee:
        Moving the argument by at most ``sensitivity`` changes each output's probability by a factor of at most e^ε.

    Reference:
        Ghosh, Roughgarden and Sundararajan (2009), Universally utility-maximizing privacy mechanisms, section 2.
    """
    exact = _whole("truncated_geometric", values)
    rate = _rate(epsilon, sensitivity)
    low = int(exact.min()) if lower is None else _bound("lower", lower)
    high = int(exact.max()) if upper is None else _bound("upper", upper)
    if low > high:
        raise InputError(f"lower must be at most upper; got {low} and {high}.")
    if (high - low + 1) * len(exact) > MAX_CELLS:
        raise InputError(f"truncated_geometric would have {high - low + 1:,} outputs; narrow lower and upper.")
    outputs = np.arange(low, high + 1)
    if low == high:
        return Kernel((low,), np.zeros((len(exact), 1)))
    with np.errstate(divide="ignore"):
        peak = np.log(-np.expm1(-rate)) - np.log1p(np.exp(-rate))
        table = peak - rate * np.abs(outputs[None, :] - exact[:, None])
    table[:, 0] = _log_tail(exact - low, rate)
    table[:, -1] = _log_tail(high - exact, rate)
    return Kernel(tuple(outputs.tolist()), table)


def exponential_mechanism(
    scores: Sequence[Sequence[Value]], labels: Sequence[Value], *, epsilon: float, sensitivity: float = 1.0
) -> Kernel:
    """Give candidate i with probability proportional to exp(ε scoreᵢ / (2 sensitivity)).

    Guarantee:
        If one person moves every score by at most ``sensitivity``, each candidate's probability changes by a factor of
        at most e^ε.

    Reference:
        McSherry and Talwar (2007), Mechanism design via differential privacy, Theorem 6.
    """
    table = _score_table("exponential_mechanism", scores) * _rate(epsilon, sensitivity) / 2
    table -= table.max(axis=-1, keepdims=True)
    return Kernel(tuple(labels), table - np.log(np.exp(table).sum(axis=-1, keepdims=True)))


def report_noisy_max(
    scores: Sequence[Sequence[Value]],
    labels: Sequence[Value],
    *,
    epsilon: float,
    sensitivity: float = 1.0,
    noise: str = "exponential",
) -> Kernel:
    r"""Give the candidate whose score plus noise is largest; ties are broken at random, each alike.

    With exponential noise of mean 2 sensitivity/ε (the same law as permute-and-flip), and p_j = exp(ε(s_j - max
    s)/(2 sensitivity)), candidate i wins with probability

    .. math:: p_i \int_0^1 \prod_{j \ne i} (1 - t p_j)\, dt ,

    a polynomial that Gauss-Legendre nodes integrate exactly, with positive terms only. With geometric noise, whose
    mass and distribution functions are g and G, t is the rank among ties:

    .. math:: \sum_x g(x - s_i) \int_0^1 \prod_{j \ne i} (G(x - 1 - s_j) + t\, g(x - s_j))\, dt .

    Args:
        scores: For each candidate, the values its score can have: whole numbers.
        labels: The candidates.
        epsilon: Noise scale: 2 sensitivity/ε.
        sensitivity: How far one person can move each score.
        noise: ``"exponential"`` (one-sided, continuous) or ``"geometric"`` (two-sided, on the whole numbers).

    Guarantee:
        Exponential noise: as :func:`exponential_mechanism`. Geometric noise with random ties: no factor is claimed; its
        exact law is what makes the true one computable.

    Reference:
        McKenna and Sheldon (2020), Permute-and-flip; Ding et al. (2021), The permute-and-flip mechanism is identical to
        report-noisy-max with exponential noise.
    """
    one_of("noise", noise, ("exponential", "geometric"))
    rate = _rate(epsilon, sensitivity) / 2
    table = _score_table("report_noisy_max", scores)
    shape = table.shape
    gaps = table.reshape(-1, shape[-1])
    gaps = gaps - gaps.max(axis=1, keepdims=True)
    distinct, where = np.unique(gaps, axis=0, return_inverse=True)
    log = _exponential_max(distinct, rate) if noise == "exponential" else _geometric_max(distinct, rate)
    return Kernel(tuple(labels), log[where.reshape(-1)].reshape(shape))


@dataclass(frozen=True, slots=True)
class Signature:
    """How the text format calls a mechanism.

    Attributes:
        form: ``"chance"`` takes a probability, ``"value"`` one argument, ``"candidates"`` labelled scores.
        law: The function above.
        parameters: Names it takes after the arguments; those in ``required`` have no default.
        required: Parameters that must be given.
    """

    form: str
    law: Callable[..., Kernel]
    parameters: tuple[str, ...]
    required: tuple[str, ...] = ("epsilon",)


MECHANISMS: Mapping[str, Signature] = {
    "bernoulli": Signature("chance", bernoulli, (), ()),
    "coin": Signature("chance", coin, (), ()),
    "exponential_mechanism": Signature("candidates", exponential_mechanism, ("epsilon", "sensitivity")),
    "kary_response": Signature("value", kary_response, ("epsilon",)),
    "randomised_response": Signature("value", randomised_response, ("epsilon",)),
    "randomized_response": Signature("value", randomised_response, ("epsilon",)),
    "report_noisy_max": Signature("candidates", report_noisy_max, ("epsilon", "sensitivity", "noise")),
    "truncated_geometric": Signature(
        "value", truncated_geometric, ("epsilon", "sensitivity", "lower", "upper"), ("epsilon",)
    ),
}


def _coin(chance: float) -> tuple[float, float]:
    chance = probability("The probability of a coin", chance, allow_one=True)
    return 1 - chance, chance


def _log_tail(distance: npt.NDArray[np.int64], rate: float) -> Array:
    """Return log Pr[noise ≥ distance] (by symmetry also log Pr[noise ≤ -distance]); distance may be negative."""
    near = np.maximum(distance, 0)
    beyond = -near * rate - math.log1p(math.exp(-rate))
    inside = np.log1p(-np.exp(-rate * np.maximum(1 - distance, 1)) / (1 + math.exp(-rate)))
    return np.where(distance > 0, beyond, np.where(distance == 0, -math.log1p(math.exp(-rate)), inside))


def _whole(mechanism: str, values: Sequence[Value]) -> npt.NDArray[np.int64]:
    if any(isinstance(value, bool) or not isinstance(value, int) for value in values):
        raise InputError(f"{mechanism} needs whole numbers, such as count(...); got {show(values)}.")
    return np.array(values, dtype=np.int64)


def _bound(name: str, value: float) -> int:
    if finite(name, value) != int(value) or abs(value) > MAX_WHOLE:
        raise InputError(f"{name} must be a whole number of at most 2^53 in size; got {value:g}.")
    return int(value)


def _rate(epsilon: float, sensitivity: float) -> float:
    """Return by how much the logarithm of a probability falls for each step of the argument."""
    rate = positive("epsilon", epsilon, allow_zero=True) / positive("sensitivity", sensitivity)
    if rate > _MAX_RATE:
        raise InputError(f"epsilon / sensitivity must be at most {_MAX_RATE:g}; got {rate:g}.")
    return rate


def _score_table(mechanism: str, scores: Sequence[Sequence[Value]]) -> Array:
    """Return the scores of all candidates for every combination: axes ``[score of 1, …, score of k, candidate]``."""
    columns = [_whole(mechanism, values) for values in scores]
    cells = math.prod(len(column) for column in columns) * len(columns)
    if cells > _MAX_WORK:
        raise InputError(
            f"{mechanism} would need a table of {cells:.3g} cells; use fewer candidates or narrower scores."
        )
    return np.stack(np.meshgrid(*columns, indexing="ij"), axis=-1).astype(np.float64)


def _nodes(candidates: int) -> tuple[Array, Array]:
    """Return Gauss-Legendre nodes and weights on [0, 1], exact for the degree that ``candidates`` leads to."""
    nodes, weights = np.polynomial.legendre.leggauss((candidates + 1) // 2)
    return (nodes + 1) / 2, weights / 2


def _exponential_max(gaps: Array, rate: float) -> Array:
    nodes, weights = _nodes(gaps.shape[1])
    keep = np.exp(rate * gaps)
    log = np.empty_like(gaps)
    for i in range(gaps.shape[1]):
        others = np.delete(keep, i, axis=1)
        chance = np.prod(1 - nodes[:, None, None] * others, axis=2)
        log[:, i] = rate * gaps[:, i] + np.log(weights @ chance)
    return log


def _geometric_max(gaps: Array, rate: float) -> Array:
    if rate == 0:
        raise InputError("report_noisy_max with geometric noise needs epsilon above 0.")
    reach = math.ceil(_TAIL / rate)
    lowest = int(gaps.min()) - reach
    nodes, weights = _nodes(gaps.shape[1])
    if gaps.size * (reach - lowest + 1) * nodes.size > _MAX_WORK:
        raise InputError(
            "report_noisy_max with geometric noise is too wide for this epsilon; raise it, or use noise = exponential."
        )
    span = np.arange(lowest, reach + 1, dtype=np.float64)
    peak = math.log(-math.expm1(-rate)) - math.log1p(math.exp(-rate))
    distance = span[None, :, None] - gaps[:, None, :]
    log_mass = peak - rate * np.abs(distance)
    below = _log_tail((1 - distance).astype(np.int64), rate)  # noise ≤ distance - 1
    log = np.empty_like(gaps)
    for i in range(gaps.shape[1]):
        others = np.delete(np.arange(gaps.shape[1]), i)
        terms = np.stack(
            [
                log_mass[:, :, i] + np.logaddexp(below[:, :, others], math.log(t) + log_mass[:, :, others]).sum(axis=2)
                for t in nodes
            ]
        )
        terms += np.log(weights)[:, None, None]
        top = terms.max(axis=(0, 2))
        log[:, i] = top + np.log(np.exp(terms - top[None, :, None]).sum(axis=(0, 2)))
    return log
