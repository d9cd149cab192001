"""The answer to "which of the two causes the other": a verdict, and what every number in it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from types import MappingProxyType

from escudo._validate import finite, positive, probability
from escudo.errors import InputError
from escudo.privacy import Guarantee, Plan

__all__ = ["CANNOT_TELL", "Direction", "arrow"]

CANNOT_TELL = "cannot tell"
"""The verdict where there is none."""

CAVEAT = (
    "This says which direction fits a model of noise better. It does not rule out a common cause, and agreement is no "
    "evidence that the model is right."
)


def arrow(cause: str, effect: str) -> str:
    """Return the verdict that ``cause`` causes ``effect``, such as ``altitude->temperature``."""
    return f"{cause}->{effect}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """Which of two columns causes the other, as far as a noise model and a privacy budget can tell.

    Every number was released under ``guarantee`` or computed from what was.

    Attributes:
        x: The first column asked about.
        y: The second one.
        verdict: ``"x->y"`` or ``"y->x"`` with the columns' names, or ``"cannot tell"``.
        margin: What was released: above 0 speaks for x->y, below 0 for y->x, whatever the method. For votes, the blocks
            for x->y minus those for y->x, plus noise; for a gap, score(y->x) minus score(x->y), plus noise.
        probability_correct: How sure the *sign* of the margin is in spite of the noise: the probability that without
            noise it would be the same, before anything else is known about it (the method's module says what is taken
            as equally likely). 0.5 where nothing is known. It is not the probability that the verdict is true: on real
            pairs noise models are wrong about one time in five even without any privacy.
        scores: Released or derived numbers by name; ``scores_mean`` says what they are and which way is better.
        scores_mean: One line about ``scores``.
        noise_scale: Scale of the Laplace noise in the margin, in its units; 0 if nothing was released.
        largest_margin: The largest size the margin can have without noise (the number of blocks, for votes); None
            where there is no such bound.
        threshold: The verdict is "cannot tell" unless the margin is larger than this in size.
        guarantee: What was promised to the people in the table.
        method: ``"votes"``, ``"gap"`` or ``"paper"``.
        score: The block procedure or dependence score.
        plan: The budget tree that was spent.
        notes: Sentences for people: what limits the answer, what would be needed.

    Raises:
        InputError: If the verdict is none of the three, or a number is out of range.
    """

    x: str
    y: str
    verdict: str
    margin: float
    probability_correct: float
    guarantee: Guarantee
    method: str
    score: str
    plan: Plan
    scores: Mapping[str, float] = field(default_factory=dict)
    scores_mean: str = ""
    noise_scale: float = 0.0
    largest_margin: float | None = None
    threshold: float = 0.0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.verdict not in (arrow(self.x, self.y), arrow(self.y, self.x), CANNOT_TELL):
            raise InputError(f"verdict must be one of the two directions or {CANNOT_TELL!r}.")
        finite("margin", self.margin)
        probability("probability_correct", self.probability_correct, allow_one=True)
        positive("noise_scale", self.noise_scale, allow_zero=True)
        positive("threshold", self.threshold, allow_zero=True)
        object.__setattr__(self, "scores", MappingProxyType(dict(self.scores)))
        object.__setattr__(self, "notes", tuple(self.notes))

    @property
    def cause(self) -> str | None:
        """The column that the verdict calls the cause, or None."""
        return None if self.verdict == CANNOT_TELL else self.x if self.verdict == arrow(self.x, self.y) else self.y

    @property
    def effect(self) -> str | None:
        """The column that the verdict calls the effect, or None."""
        return None if self.cause is None else self.y if self.cause == self.x else self.x

    @property
    def released(self) -> bool:
        """Whether anything was released; if not, nothing was spent and the margin means nothing."""
        return self.plan.event is not None

    def __str__(self) -> str:
        return "\n".join((f"{self._headline()}        {self._evidence()}", *(f"  {line}" for line in self._below())))

    def _repr_html_(self) -> str:
        below = "".join(f"<br><small>{escape(line)}</small>" for line in self._below())
        return f"<p><b>{escape(self._headline())}</b> &nbsp; {escape(self._evidence())}{below}</p>"

    def _headline(self) -> str:
        return CANNOT_TELL if self.cause is None else f"{self.cause} → {self.effect}"

    def _evidence(self) -> str:
        if not self.released:
            return "nothing was released or spent"
        of = "" if self.largest_margin is None else f" of {self.largest_margin:g} blocks"
        flipped = 100 * (1 - self.probability_correct)
        return (
            f"released margin {self.margin:+.4g}{of} (above 0: {self.x} → {self.y}); the noise alone has turned its "
            f"sign with probability {flipped:.2g} %"
        )

    def _below(self) -> tuple[str, ...]:
        promise = self.guarantee
        change = "replace" if promise.relation == "replace_one" else "add or remove"
        epsilon = f"ε = {promise.epsilon:.3g}, " if promise.epsilon is not None else ""
        delta = f"δ = {promise.delta:g}, " if promise.delta else ""
        paid = f"{epsilon}{delta}{change} one {promise.unit}    method: {self.method}, {self.score}"
        seeded = () if promise.for_release else ("Made with a seed: not for release.",)
        return (paid, *self.notes, *seeded, CAVEAT)
