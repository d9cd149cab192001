"""What :func:`~escudo.discovery.effect_of` answers: an effect, how sure it is, and what could be said against it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from escudo._files import listed
from escudo._plot import Row, intervals
from escudo._validate import one_of
from escudo.errors import InputError
from escudo.privacy import Guarantee, Plan

Interval = tuple[float, float]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """The outcome if everybody had one level of the treatment.

    Attributes:
        level: The level, as it is shown.
        mean: The mean outcome (or the share, for an event) under do(treatment = level).
        interval: Its confidence interval.
        rows: About how many rows (of linked tables: people) have this level; noisy.
    """

    level: str
    mean: float
    interval: Interval
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EValue:
    """How strong an unmeasured cause must be to explain an effect away.

    It must change both the chance of the treatment and that of the outcome by at least this factor, beside what is
    adjusted for.

    Attributes:
        estimate: To move the estimate to no effect.
        limit: To move the interval's nearest end there, with chance and noise allowed for; 1 where it holds 0.
    """

    estimate: float
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """The difference between two arms.

    Attributes:
        control: The level that is taken off.
        treated: The level it is taken off from.
        value: The mean outcome under ``treated`` minus that under ``control``.
        interval: Its confidence interval.
        e_value: What an unmeasured cause would have to be; None in a trial, where chance alone assigned the treatment.
    """

    control: str
    treated: str
    value: float
    interval: Interval
    e_value: EValue | None = None

    @property
    def sign_known(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.interval[0] > 0 or self.interval[1] < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """How many rows one stratum has, and how they spread over the arms; read off noisy numbers.

    Attributes:
        name: Its levels of the columns adjusted for.
        share: Its share of all rows.
        arms: The share of each arm among its rows.
    """

    name: str
    share: float
    arms: tuple[float, ...]


Refuter = Literal["placebo", "random-cause"]
"""A question with a known answer, asked beside the effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refutation:
    """What came of a question whose answer is known.

    Attributes:
        kind: ``"placebo"``: the treatment was a coin, so the effect should be 0. ``"random-cause"``: a coin was
            adjusted for beside the rest, so the effect should be what it is without.
        value: The estimate.
        interval: Its confidence interval.
        passed: Whether the interval holds 0, or meets that of the effect itself.
    """

    kind: Refuter
    value: float
    interval: Interval
    passed: bool

    def __str__(self) -> str:
        low, high = map(shown, self.interval)
        if self.kind == "placebo":
            name, said = (
                "placebo treatment",
                ("holds 0, as it should" if self.passed else "should hold 0, and does not"),
            )
        else:
            name = "random common cause"
            said = "meets the effect's, as it should" if self.passed else "should meet the effect's, and does not"
        return f"{name}: {shown(self.value)}, interval {low} to {high}, which {said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreatmentEffect:
    """The average effect of a treatment on an outcome, privately estimated.

    Attributes:
        treatment: The column that is set.
        outcome: The column that responds.
        contrasts: The differences between pairs of levels; the one asked for comes first.
        arms: The outcome under each level of the treatment.
        confidence: How often intervals made like this hold the truth.
        joint: Whether the contrasts' intervals hold all their truths together that often, rather than each its own.
        adjustment: The columns adjusted for.
        overlap: The strata with the most rows, and the arms in each.
        compared: The share of rows in strata where both arms of the contrast asked for stand out from the noise.
        refutations: What came of questions with known answers, where these were asked for.
        method: ``"back-door"`` (columns chosen or checked by the graph), ``"stated"`` or ``"trial"``.
        meaning: What the outcome's mean is, in words.
        estimand: What is estimated, as a formula.
        warnings: Where the measured table has too few rows to compare, or δ is large for them; read off noisy numbers
            only.
        notes: Public remarks: what the estimate assumes.
        plan: The budget tree that was spent.
        guarantee: What was promised to the people in the table.
        counted: What is counted: ``"rows"``, or of linked tables ``"people"``, each of whom has one voice.
    """

    treatment: str
    outcome: str
    contrasts: tuple[Contrast, ...]
    arms: tuple[Arm, ...]
    confidence: float
    joint: bool = False
    adjustment: tuple[str, ...]
    overlap: tuple[Stratum, ...] = ()
    compared: float = 1.0
    refutations: tuple[Refutation, ...] = ()
    method: str
    meaning: str
    estimand: str
    warnings: Sequence[str]
    notes: Sequence[str]
    plan: Plan
    guarantee: Guarantee
    counted: str = "rows"

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
                return replace(
                    found, control=found.treated, treated=found.control, value=-found.value, interval=(-high, -low)
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

    @property
    def robustness(self) -> str:
        """What an unmeasured cause would have to be to explain the effect away, in one sentence; empty in a trial."""
        found = self.contrasts[0].e_value
        if found is None:
            return ""
        if found.limit <= 1:
            return (
                "An unmeasured cause is not needed to explain the effect away: the interval holds 0. (E-value of the "
                f"estimate {shown(found.estimate)}, of the interval 1.)"
            )
        return (
            "To explain the estimate away, an unmeasured cause would have to change both the chance of "
            f"{self.treatment} = {self.treated} and that of the outcome {shown(found.estimate)}-fold, beside what is "
            f"adjusted for; to take the interval to 0, {shown(found.limit)}-fold (E-values)."
        )

    @property
    def overlap_sentence(self) -> str:
        """How many rows can be compared, and where an arm is thinnest, in one sentence."""
        both = f"{self.treatment} = {self.control} and {self.treated}"
        told = f"Both {both} are seen where {self.compared:.0%} of the {self.counted} lie"
        places = [[arm.level for arm in self.arms].index(level) for level in (self.control, self.treated)]
        seen = [(one.arms[place], one, place) for one in self.overlap if one.share > 0 for place in places]
        if len(self.overlap) < 2 or not seen:
            return f"{told}."
        share, one, place = min(seen, key=lambda each: each[0])
        return f"{told}; thinnest at {one.name}: {share:.0%} have {self.arms[place].level}."

    def plot(self, of: Literal["contrasts", "arms"] = "contrasts", *, axes: Any = None) -> Any:
        """Draw the differences between levels, or the outcome under each level, with their intervals.

        Args:
            of: Which of the two.
            axes: Axes of matplotlib to draw into; new ones by default.

        Returns:
            The axes; ``.figure`` is their figure, which notebooks show and ``savefig`` writes.

        Raises:
            InputError: If matplotlib is not installed.
        """
        one_of("of", of, ("contrasts", "arms"))
        named = f"{self.confidence:g} confidence" + (", all together" if self.joint and of == "contrasts" else "")
        if of == "arms":
            rows: list[Row] = [(arm.level, arm.mean, arm.interval) for arm in self.arms]
            return intervals(
                axes,
                rows,
                title=f"{self.outcome} where {self.treatment} is set",
                across=f"{self.meaning}; intervals of {named}",
                up=f"{self.treatment} set to",
            )
        rows = [(f"{one.control} to {one.treated}", one.value, one.interval) for one in self.contrasts]
        return intervals(
            axes,
            rows,
            title=f"What {self.treatment} does to {self.outcome}",
            across=f"change of {self.meaning}; intervals of {named}",
            up=f"{self.treatment} set from",
            lines={"no effect": 0.0},
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
                {
                    "control": one.control,
                    "treated": one.treated,
                    "value": one.value,
                    "interval": list(one.interval),
                    "e_value": None
                    if one.e_value is None
                    else {"estimate": one.e_value.estimate, "limit": one.e_value.limit},
                }
                for one in self.contrasts
            ],
            "joint": self.joint,
            "overlap": {
                "compared": self.compared,
                "strata": [{"name": one.name, "share": one.share, "arms": list(one.arms)} for one in self.overlap],
            },
            "refutations": [
                {"kind": one.kind, "value": one.value, "interval": list(one.interval), "passed": one.passed}
                for one in self.refutations
            ],
            "adjustment": list(self.adjustment),
            "method": self.method,
            "estimand": self.estimand,
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "guarantee": self.guarantee.to_json(),
            "plan": self.plan.to_json(),
        }

    def to_pandas(self) -> Any:
        """Return the contrasts as a pandas frame: both levels, the effect, its interval, and its E-values, if any.

        Raises:
            InputError: If pandas is not installed.
        """
        heads = ["control", "treated", "value", "low", "high", "e_value", "e_value_of_interval"]
        return listed([_row_of(one) for one in self.contrasts], heads)

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
        told = "<br>".join(
            escape(line) for line in (self.robustness, self.overlap_sentence, *map(str, self.refutations)) if line
        )
        return (
            f"<p><b>{escape(self.verdict)}</b><br>{told}<br>{escape(str(self.guarantee))}</p>"
            f"<table><caption>{escape(self.meaning)}, {self.confidence:.0%} intervals</caption>{rows}</table>"
        )


def _row_of(one: Contrast) -> tuple[str, str, float, float, float, float | None, float | None]:
    hidden = (None, None) if one.e_value is None else (one.e_value.estimate, one.e_value.limit)
    return (one.control, one.treated, one.value, *one.interval, *hidden)


def shown(number: float) -> str:
    """Return a number for people: three digits, more before the point if it is large.

    >>> shown(0.012345), shown(-1234.56), shown(2.0), shown(0.0000321)
    ('0.0123', '-1,235', '2', '3.21e-05')
    """
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def e_value(ratio: float) -> float:
    """Return how strongly a cause must act on both treatment and outcome to explain a risk ratio away.

    >>> round(e_value(3.9), 2), round(e_value(1 / 3.9), 2), e_value(1.0)
    (7.26, 7.26, 1.0)
    """
    above = max(ratio, 1 / ratio)
    return above + math.sqrt(above * (above - 1))
