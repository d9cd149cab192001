"""What an audit found: a lower confidence bound on ε, the verdict on the claim, and the evidence for both."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from escudo._card import card
from escudo._validate import positive, probability, whole
from escudo.effects import Effect, Witness, show_epsilon
from escudo.privacy import Guarantee

__all__ = ["Audit", "History", "Outputs", "Power", "Stopped"]

Stopped = Literal["violated", "runs", "time"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class History:
    """How the audit went: after so many runs, the wealth against the claim and the bound.

    Attributes:
        runs: Number of runs, increasing, at most some hundred points.
        log_wealth: Natural log of the wealth bet against the claim; it crosses log(1/α) where the claim is rejected.
        epsilon_lower: The lower bound on ε at that time; never falls.
    """

    runs: NDArray[np.int64]
    log_wealth: NDArray[np.float64]
    epsilon_lower: NDArray[np.float64]

    def to_json(self) -> dict[str, list[float]]:
        """Return plain lists, for ``json.dumps``."""
        return {
            "runs": self.runs.tolist(),
            "log_wealth": [round(float(w), 6) if math.isfinite(w) else -1e308 for w in self.log_wealth],
            "epsilon_lower": [round(float(e), 6) for e in self.epsilon_lower],
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outputs:
    """How often the witness pair's two datasets led to each kind of output.

    Attributes:
        kind: ``"number"`` (``edges`` bound the cells), ``"category"`` (an output, or a kind of them), or ``"score"``:
            the number made of a larger output that tells most, with edges.
        labels: One text per cell.
        edges: Cell boundaries, one more than cells, for numbers and scores.
        first: Runs per cell under the witness's first dataset, which makes its event likelier.
        second: Runs per cell under its second dataset.
    """

    kind: Literal["number", "category", "score"]
    labels: tuple[str, ...]
    edges: NDArray[np.float64] | None
    first: NDArray[np.int64]
    second: NDArray[np.int64]

    def to_json(self) -> dict[str, Any]:
        """Return plain lists, for ``json.dumps``."""
        return {
            "kind": self.kind,
            "labels": list(self.labels),
            "edges": None if self.edges is None else self.edges.tolist(),
            "first": self.first.tolist(),
            "second": self.second.tolist(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """What the audit could have seen: a violation of this size, on events as likely as those it bet on.

    Attributes:
        epsilon: A true ε above the claim.
        probability: With which such a mechanism would have been rejected within the runs that were made.
        mass: How likely the event is that this assumes, under both datasets on average.
    """

    epsilon: float
    probability: float
    mass: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Audit:
    """The result of a randomised experiment on a mechanism.

    Attributes:
        epsilon_lower: The mechanism's ε is at least this, at the stated confidence, whenever the audit was stopped;
            0 if nothing was found. Stated at ``delta``.
        violated: Whether the claim is rejected at the stated confidence.
        runs: How many runs of the mechanism were counted.
        claim: What the mechanism promises.
        confidence: Of every statement, all events, bets, directions and input pairs together.
        delta: The δ at which ``epsilon_lower`` holds: the claim's own, or 0 for claims in another notion.
        witness: Inputs and event with the largest difference, with their frequencies.
        lower: For claims in ρ or μ: the smallest value not rejected; None otherwise.
        clopper_pearson: The familiar second answer: an event is chosen after a fifth of the runs (up to half of few),
            and the later ones bound it, by Clopper-Pearson. Valid for a number of runs fixed beforehand; 0 if the
            audit stopped before.
        history: Wealth and bound over time.
        outputs: What came out under both inputs of the witness pair.
        power: What the audit would have seen.
        pairs: Labels of the input pairs, in order.
        stopped: Why it ended.
        seconds: Wall-clock time.
        seed: Repeats the audit.
        notes: What else a reader should know, one sentence each.
    """

    epsilon_lower: float
    violated: bool
    runs: int
    claim: Guarantee
    confidence: float
    delta: float = 0.0
    witness: Witness | None = None
    lower: float | None = None
    clopper_pearson: float = 0.0
    history: History
    outputs: Outputs | None = None
    power: Power | None = None
    pairs: tuple[str, ...] = ()
    stopped: Stopped = "runs"
    seconds: float = 0.0
    seed: int | None = None
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        positive("epsilon_lower", self.epsilon_lower, allow_zero=True)
        probability("confidence", self.confidence, allow_zero=False)
        probability("delta", self.delta)
        whole("runs", self.runs)

    @property
    def effect(self) -> Effect:
        """The measured effect of one record on the output, comparable with exact and proved ones."""
        return Effect(
            epsilon=self.epsilon_lower,
            witness=self.witness,
            known="measured",
            of=("one record",),
            on=("the output",),
            population="the input pairs tried",
            delta=self.delta,
            confidence=self.confidence,
        )

    @property
    def claimed(self) -> str:
        """The claim in short: ``ε ≤ 1.00``, ``(1.00, 1e-06)-DP``, ``ρ ≤ 0.1``, ``μ ≤ 1``."""
        claim = self.claim
        if claim.epsilon is not None:
            return f"ε ≤ {show_epsilon(claim.epsilon)}" + (f" at δ = {claim.delta:g}" if claim.delta else "")
        if claim.rho is not None:
            return f"ρ ≤ {claim.rho:.4g} (zCDP)"
        return f"μ ≤ {claim.mu:.4g} (GDP)" if claim.mu is not None else "the claimed privacy curve"

    @property
    def verdict(self) -> str:
        """The finding in honest words: never "private", only what was found, and what would have been."""
        sure = f"{100 * self.confidence:.4g} % confidence"
        at = f" at δ = {self.delta:g}" if self.delta else ""
        bound = f"ε ≥ {show_epsilon(self.epsilon_lower)}{at} with {sure}"
        if self.lower is not None:
            bound += f"; {'ρ' if self.claim.rho is not None else 'μ'} ≥ {self.lower:.3g}"
        if self.violated:
            early = "stopped early after" if self.stopped == "violated" else "after"
            return f"VIOLATED: the claim {self.claimed} is rejected; {bound} ({early} {self.runs:,} runs)."
        text = f"No violation found; {bound} ({self.runs:,} runs)"
        if self.power is not None:
            text += (
                f"; an ε of {show_epsilon(self.power.epsilon)} would have been seen with probability "
                f"{self.power.probability:.2f}, on an event of probability {self.power.mass:.2g}"
            )
        return text + "."

    def __str__(self) -> str:
        return self.verdict

    def to_json(self) -> dict[str, Any]:
        """Return plain values for ``json.dumps``."""
        return {
            "epsilon_lower": self.epsilon_lower,
            "delta": self.delta,
            "violated": self.violated,
            "runs": self.runs,
            "claim": self.claim.to_json(),
            "confidence": self.confidence,
            "lower": self.lower,
            "clopper_pearson": self.clopper_pearson,
            "effect": self.effect.to_json(),
            "history": self.history.to_json(),
            "outputs": None if self.outputs is None else self.outputs.to_json(),
            "power": None
            if self.power is None
            else {"epsilon": self.power.epsilon, "probability": self.power.probability, "mass": self.power.mass},
            "pairs": list(self.pairs),
            "stopped": self.stopped,
            "seconds": self.seconds,
            "seed": self.seed,
            "notes": list(self.notes),
            "verdict": self.verdict,
        }

    def _repr_html_(self) -> str:
        return card(f"Audit of {self.claimed}", self.verdict, alarm=self.violated)
