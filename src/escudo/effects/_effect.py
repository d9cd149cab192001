"""The answer to "how much does X change Y?": a log ratio of probabilities, where it is attained, and how it is known.

Audits, attacks, compositions and exact queries all answer with an :class:`Effect`, so that a promise, a proof and a
measurement of the same thing can be put side by side.

Log ratios follow the conventions for zeros that ``a <= e^eps * b`` itself implies: ``a > 0 = b`` is infinite, ``0 / 0``
is skipped (nothing to compare), ``0 / b`` is never the maximum. Zero means exactly zero: nothing is rounded or
thresholded. Laws are kept as natural logarithms, where a probability such as e^-1000 is small and not zero, and where a
ratio is a difference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from escudo._validate import one_of, positive, probability
from escudo.errors import InputError

Known = Literal["exact", "proved", "measured"]
Kind = Literal["effect", "direct effect", "path effect", "total effect", "association"]
Array = NDArray[np.float64]
_SUM_TOLERANCE = 1e-9


# ---- the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """One comparison that attains an effect: the outcome ``y`` is most likely under ``x1`` compared with ``x2``.

    Attributes:
        y: The outcome, as variable -> value.
        x1: The intervention (or observation) under which ``y`` is more likely.
        x2: The one under which it is less likely.
        background: Values of background variables and held mediators that attain it; empty when none matter or when
            a given population was used.
        probabilities: The two probabilities compared, where known.
    """

    y: Mapping[str, Any]
    x1: Mapping[str, Any]
    x2: Mapping[str, Any]
    background: Mapping[str, Any] = field(default_factory=dict)
    probabilities: tuple[float, float] | None = None

    def __str__(self) -> str:
        first, second, same = self.difference
        where = {**same, **self.background}
        text = f"{show_values(self.y)}: {show_pair(first, 'against', second)}"
        return f"{text}, where {show_where(where)}" if where else text

    @property
    def difference(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """The parts of ``x1`` and ``x2`` that differ, and the part that is the same in both."""
        same = {name: value for name, value in self.x1.items() if name in self.x2 and self.x2[name] == value}
        if len(same) == len(self.x1) == len(self.x2):
            same = {}
        first, second = ({name: x[name] for name in x if name not in same} for x in (self.x1, self.x2))
        return first, second, same

    def to_json(self) -> dict[str, Any]:
        """Return plain dictionaries, for ``json.dumps``."""
        return {
            "y": dict(self.y),
            "x1": dict(self.x1),
            "x2": dict(self.x2),
            "background": dict(self.background),
            "probabilities": list(self.probabilities) if self.probabilities else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    r"""How much ``of`` can change ``on``: :math:`\epsilon = \max_{y, x_1, x_2} \log \Pr[y | x_1] / \Pr[y | x_2]`.

    Attributes:
        epsilon: The natural log of the largest relative probability; infinite if some outcome goes from impossible to
            possible.
        witness: Where it is attained (``exact``) or was seen (``measured``); None where nothing is compared.
        known: ``exact`` (attained, and nothing exceeds it), ``proved`` (an upper bound) or ``measured`` (a lower
            confidence bound).
        of: The variables changed.
        on: The variables observed.
        kind: What was changed and how: by intervention, along some paths, or by conditioning.
        population: In words, the populations it speaks about.
        delta: The probability with which a proved or measured bound may not hold; 0 for pure effects.
        confidence: The confidence level of a measured bound.
        derivation: The steps of a proof, one sentence each.
        parts: The effects a total effect adds up.
    """

    epsilon: float
    witness: Witness | None = None
    known: Known = "exact"
    of: tuple[str, ...] = ()
    on: tuple[str, ...] = ()
    kind: Kind = "effect"
    population: str = "every population"
    delta: float = 0.0
    confidence: float | None = None
    derivation: tuple[str, ...] = ()
    parts: tuple[Effect, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.epsilon, (int, float)) or self.epsilon != math.inf:
            positive("epsilon", self.epsilon, allow_zero=True)
        one_of("known", self.known, ("exact", "proved", "measured"))
        one_of("kind", self.kind, ("effect", "direct effect", "path effect", "total effect", "association"))
        probability("delta", self.delta, allow_one=True)
        if self.delta and self.known == "exact":
            raise InputError("delta must be 0 for an exact effect; a bound that may fail is 'proved' or 'measured'.")
        if self.confidence is not None:
            probability("confidence", self.confidence, allow_zero=False)

    @property
    def factor(self) -> float:
        """The largest relative probability, ``e^epsilon`` (infinite where a float cannot hold it)."""
        return math.exp(self.epsilon) if self.epsilon < 709 else math.inf

    @property
    def sentence(self) -> str:
        """The effect in one plain sentence."""
        of, on = show_names(self.of or ("the input",)), show_names(self.on or ("the output",))
        where = f" in {self.population}" if self.population else ""
        if self.known == "proved":
            if math.isinf(self.epsilon):
                return f"No bound is proved for the effect of {of} on {on}{where}."
            fails = f", except with probability {self.delta:g}" if self.delta else ""
            return f"Changing {of} makes no outcome of {on} more than {show_times(self.epsilon)}{where}{fails}."
        if self.known == "measured":
            sure = f", with {100 * self.confidence:.4g} % confidence" if self.confidence else ""
            return f"Changing {of} makes some outcome of {on} at least {show_times(self.epsilon)}{sure}."
        if self.kind == "total effect":
            return f"The effects of {of} on {on} add up to ε = {show_epsilon(self.epsilon)}{where}."
        if self.epsilon < 1e-12 or self.witness is None:
            seeing = "Learning" if self.kind == "association" else "Changing"
            return f"{seeing} {of} changes nothing about {on}{where}."
        if self.population == "every population":
            return f"{self._compare(self.witness)}; no population gives more."
        return f"{self._compare(self.witness)}{where}."

    def _compare(self, witness: Witness) -> str:
        first, second, same = witness.difference
        verb = "Learning" if self.kind == "association" else "Setting"
        lead = f"{verb} {show_pair(first, 'rather than', second)}"
        held = {**same, **witness.background}
        where = f", where {show_where(held)}" if held else ""
        what = show_values(witness.y)
        if math.isinf(self.epsilon):
            return f"{lead} makes {what} possible, which it is not otherwise{where}"
        return f"{lead} makes {what} up to {show_times(self.epsilon)}{where}"

    def __str__(self) -> str:
        return self.sentence

    def to_json(self) -> dict[str, Any]:
        """Return plain dictionaries for ``json.dumps``; an infinite epsilon is the string ``"inf"``."""
        return {
            "of": list(self.of),
            "on": list(self.on),
            "kind": self.kind,
            "epsilon": "inf" if math.isinf(self.epsilon) else self.epsilon,
            "delta": self.delta,
            "known": self.known,
            "population": self.population,
            "confidence": self.confidence,
            "witness": self.witness.to_json() if self.witness else None,
            "derivation": list(self.derivation),
            "parts": [part.to_json() for part in self.parts],
            "sentence": self.sentence,
        }

    def _repr_html_(self) -> str:
        title = f"{show_names(self.of or ('input',))} → {show_names(self.on or ('output',))}"
        return (
            '<div style="border-left:3px solid #0f6e84;padding:.4em .9em;font-family:system-ui,sans-serif">'
            f"<b>{escape(title)}</b> &nbsp; ε = <b>{show_epsilon(self.epsilon)}</b> &nbsp;"
            f'<span style="opacity:.7">{self.known} {escape(self.kind)}</span><br>{escape(self.sentence)}</div>'
        )


# ---- in words


def show_epsilon(epsilon: float) -> str:
    """Return ``epsilon`` for people: two decimals, more only if it is small, and ∞ for infinity.

    >>> [show_epsilon(e) for e in (0.0, 0.0012, 2.0, math.inf)]
    ['0', '0.0012', '2.00', '∞']
    """
    if math.isinf(epsilon):
        return "∞"
    if epsilon < 1e-12:  # what rounding leaves of an exact zero
        return "0"
    return f"{epsilon:.2f}" if epsilon >= 0.095 else f"{epsilon:.2g}"


def show_times(epsilon: float) -> str:
    """Return ``e^epsilon`` for people: ``7.39 times as likely (e^2.00)``, or the power alone when it is huge."""
    if epsilon > 12:
        return f"e^{show_epsilon(epsilon)} times as likely"
    return f"{math.exp(epsilon):.3g} times as likely (e^{show_epsilon(epsilon)})"


def show_values(values: Mapping[str, Any], most: int = 6, *, names: bool = True) -> str:
    """Return ``X = x, Y = y``, or the values alone, shortened when there are many."""
    shown = [f"{name} = {_value(value)}" if names else _value(value) for name, value in list(values.items())[:most]]
    more = len(values) - most
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def show_pair(first: Mapping[str, Any], word: str, second: Mapping[str, Any]) -> str:
    """Return ``X = x rather than x'``; where different things are compared, both with their names."""
    return f"{show_values(first)} {word} {show_values(second, names=first.keys() != second.keys())}"


def show_where(values: Mapping[str, Any], *, most: int = 6) -> str:
    """Return ``X = x, Y = y``, or, of many, how many have which value."""
    counts = Counter(_value(value) for value in values.values())
    if len(values) <= most or len(counts) > 4:
        return show_values(values, most)
    return " and ".join(f"{n} others are {value}" for value, n in counts.most_common())


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"  # as model files write them
    return f"({', '.join(map(_value, value))})" if isinstance(value, tuple) else str(value)


def show_names(names: tuple[str, ...], *, most: int = 6) -> str:
    """Return ``A, B and C``, shortened when there are many."""
    if len(names) > most:
        return ", ".join(names[: most - 1]) + f" and {len(names) - most + 1} more"
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + f" and {names[-1]}"


# ---- log ratios


def spread(top: Array, low: Array) -> Array:
    """Return ``top - low`` entrywise for logarithms ``top >= low``, and 0 where both probabilities are zero."""
    with np.errstate(invalid="ignore"):
        return np.where(top > -np.inf, top - low, 0.0)


def largest_log_ratio(logs: Array) -> tuple[float, tuple[int, int, int, int]]:
    """Return the largest ``logs[k, x1, y] - logs[k, x2, y]`` and its ``(k, x1, x2, y)``.

    Args:
        logs: Shape (alternatives, x, y): for each alternative and each x, the logarithms of a law over y. Only laws of
            the same alternative are compared.
    """
    if logs.size == 0:
        return 0.0, (0, 0, 0, 0)
    found = spread(logs.max(axis=1), logs.min(axis=1))
    k, y = (int(i) for i in np.unravel_index(int(found.argmax()), found.shape))
    return float(found[k, y]), (k, int(logs[k, :, y].argmax()), int(logs[k, :, y].argmin()), y)


def average(log_weights: Array, logs: Array) -> Array:
    """Return ``log sum_r w[r] p[r, o]`` for every o, from logarithms and back to them."""
    peak, high = log_weights.max(), logs.max(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = np.where(high > -np.inf, np.exp(logs - high), 0.0)
        result = np.asarray(np.log(np.exp(log_weights - peak) @ scaled) + peak + high)
    # Where weights and laws are far apart even the scaled products underflow: those sums are done term by term.
    for o in np.flatnonzero(~(result > peak + high - 600.0)):
        result[o] = np.logaddexp.reduce(log_weights + logs[:, o])
    return result


def log_of(values: Array) -> Array:
    """Return natural logarithms, minus infinity for zero."""
    with np.errstate(divide="ignore"):
        return np.log(values)


def probabilities(name: str, values: Any, *, axis: int | None) -> Array:
    """Return ``values`` as floats, or raise unless they are probabilities that sum to 1 over ``axis`` (None: all).

    Fractions are accepted; the array is a read-only copy.
    """
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers: {error}.") from None
    if array.ndim == 0 or array.size == 0 or not np.isfinite(array).all():
        raise InputError(f"{name} must be a non-empty array of finite numbers; got shape {array.shape}.")
    if (array < 0).any():
        raise InputError(f"{name} has a negative entry ({array.min():g}); probabilities are at least 0.")
    sums = np.asarray(array.sum(axis))
    worst = np.unravel_index(int(np.abs(sums - 1).argmax()), sums.shape)
    if abs(sums[worst] - 1) > _SUM_TOLERANCE:
        where = f" in row {tuple(int(i) for i in worst)}" if sums.ndim else ""
        raise InputError(f"{name} must sum to 1{where}; it sums to {sums[worst]:.12g}.")
    array.flags.writeable = False
    return array
