"""The answer to "how much does X change Y?": a log ratio of probabilities, where it is attained, and how it is known.

Audits, attacks, compositions and exact queries all answer with an :class:`Effect`, so that a promise, a proof and a
measurement of the same thing can be put side by side.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

from escudo._validate import one_of, positive, probability
from escudo.errors import InputError

__all__ = ["Effect", "Kind", "Known", "Witness", "show_epsilon"]

Known = Literal["exact", "proved", "measured"]
Kind = Literal["effect", "direct effect", "path effect", "total effect", "association"]


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


def show_values(values: Mapping[str, Any], *, names: bool = True, most: int = 6) -> str:
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
        return show_values(values, most=most)
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
