"""TreatmentEffect: how much one column changes another, with an interval for chance and privacy noise together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from escudo.errors import InputError
from escudo.privacy import Guarantee, Plan

__all__ = ["Arm", "Contrast", "TreatmentEffect"]

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """The outcome if everybody had one level of the treatment.

    Attributes:
        level: The level, as it is shown.
        mean: The mean outcome (or the share, for an event) under do(treatment = level).
        interval: Its confidence interval.
        rows: About how many rows have this level; noisy.
    """

    level: str
    mean: float
    interval: Interval
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """The difference between two arms.

    Attributes:
        control: The level that is taken off.
        treated: The level it is taken off from.
        value: The mean outcome under ``treated`` minus that under ``control``.
        interval: Its confidence interval.
    """

    control: str
    treated: str
    value: float
    interval: Interval

    @property
    def sign_known(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.interval[0] > 0 or self.interval[1] < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TreatmentEffect:
    """The average effect of a treatment on an outcome, privately estimated.

    Attributes:
        treatment: The column that is set.
        outcome: The column that responds.
        contrasts: The differences between pairs of levels; the one asked for comes first.
        arms: The outcome under each level of the treatment.
        confidence: How often intervals made like this hold the truth.
        adjustment: The columns adjusted for.
        method: ``"back-door"`` (columns chosen or checked by the graph), ``"stated"`` or ``"trial"``.
        meaning: What the outcome's mean is, in words.
        estimand: What is estimated, as a formula.
        warnings: Where the measured table has too few rows to compare, or δ is large for them; read off noisy numbers
            only.
        notes: Public remarks: what the estimate assumes.
        plan: The budget tree that was spent.
        guarantee: What was promised to the people in the table.
    """

    treatment: str
    outcome: str
    contrasts: tuple[Contrast, ...]
    arms: tuple[Arm, ...]
    confidence: float
    adjustment: tuple[str, ...]
    method: str
    meaning: str
    estimand: str
    warnings: Sequence[str]
    notes: Sequence[str]
    plan: Plan
    guarantee: Guarantee

    def __post_init__(self) -> None:
        if not self.contrasts:
            raise InputError("contrasts must hold at least the one that was asked for.")
        values = [(one.value, one.interval) for one in self.contrasts] + [(arm.mean, arm.interval) for arm in self.arms]
        if not all(math.isfinite(value) and low <= value <= high for value, (low, high) in values):
            raise InputError("every value must lie within its interval.")

    @property
    def value(self) -> float:
        """The effect: the mean outcome under the treated level minus that under the control level."""
        return self.contrasts[0].value

    @property
    def interval(self) -> Interval:
        """The confidence interval of ``value``."""
        return self.contrasts[0].interval

    @property
    def control(self) -> str:
        """The level that is taken off."""
        return self.contrasts[0].control

    @property
    def treated(self) -> str:
        """The level it is taken off from."""
        return self.contrasts[0].treated

    def between(self, control: object, treated: object) -> Contrast:
        """Return the contrast of two levels, given as they are shown.

        Raises:
            InputError: If the treatment has no such levels.
        """
        for found in self.contrasts:
            if (found.control, found.treated) == (str(control), str(treated)):
                return found
            if (found.treated, found.control) == (str(control), str(treated)):
                low, high = found.interval
                return Contrast(
                    control=found.treated, treated=found.control, value=-found.value, interval=(-high, -low)
                )
        compared = "; ".join(f"{one.control}, {one.treated}" for one in self.contrasts[:20])
        raise InputError(f"These levels of {self.treatment!r} were not compared; those that were: {compared}.")

    @property
    def verdict(self) -> str:
        """What can be said, in one sentence."""
        contrast = self.contrasts[0]
        low, high = map(shown, contrast.interval)
        change = f"from {contrast.control} to {contrast.treated}"
        if not contrast.sign_known:
            return (
                f"Cannot tell: setting {self.treatment} {change} changes {self.meaning} by something between {low} and "
                f"{high}."
            )
        verb = "raises" if contrast.value > 0 else "lowers"
        size = [shown(abs(end)) for end in sorted(contrast.interval, key=abs)]
        return (
            f"Setting {self.treatment} {change} {verb} {self.meaning} by {shown(abs(contrast.value))} "
            f"(between {size[0]} and {size[1]})."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "treatment": self.treatment,
            "outcome": self.outcome,
            "control": self.control,
            "treated": self.treated,
            "value": self.value,
            "interval": list(self.interval),
            "confidence": self.confidence,
            "sign_known": self.contrasts[0].sign_known,
            "verdict": self.verdict,
            "arms": [
                {"level": arm.level, "mean": arm.mean, "interval": list(arm.interval), "rows": arm.rows}
                for arm in self.arms
            ],
            "contrasts": [
                {"control": one.control, "treated": one.treated, "value": one.value, "interval": list(one.interval)}
                for one in self.contrasts
            ],
            "adjustment": list(self.adjustment),
            "method": self.method,
            "estimand": self.estimand,
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "guarantee": self.guarantee.to_json(),
            "plan": self.plan.to_json(),
        }

    def __str__(self) -> str:
        return self.verdict

    def __repr__(self) -> str:
        low, high = map(shown, self.interval)
        return (
            f"<TreatmentEffect of {self.treatment} ({self.control} to {self.treated}) on {self.outcome}: "
            f"{shown(self.value)} [{low}, {high}] at {self.confidence:.0%}>"
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>do({escape(self.treatment)} = {escape(arm.level)})</td><td>{shown(arm.mean)}</td>"
            f"<td>{shown(arm.interval[0])} to {shown(arm.interval[1])}</td></tr>"
            for arm in self.arms
        )
        return (
            f"<p><b>{escape(self.verdict)}</b><br>{escape(str(self.guarantee))}</p>"
            f"<table><caption>{escape(self.meaning)}, {self.confidence:.0%} intervals</caption>{rows}</table>"
        )


def shown(number: float) -> str:
    """Return a number for people: three digits, more before the point if it is large.

    >>> shown(0.012345), shown(-1234.56), shown(2.0), shown(0.0000321)
    ('0.0123', '-1,235', '2', '3.21e-05')
    """
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
