r"""What logs say about a mechanism that nobody may run: an observational audit, plainly weaker than an experiment.

An experiment sets a record, do(D = d), and counts outputs. Where one cannot run the mechanism, there may be a log: what
the record was, what came out, and what else is known of each run. Then P(o | D = d) stands for P(o | do(D = d)) only
under assumptions, which are stated with every answer:

1. **Nothing else differs**: within each level of the columns that are adjusted for, whatever decided what the record
   was has no other way to the output. Adjusted columns are from before the record was decided (what came after it would
   open ways, ``escudo/effects/README.md``).
2. **Runs are independent**, and the mechanism was the same in all of them.
3. **What is logged is what happened**: nothing was left out by what came out.

**Estimate.** In a stratum s let :math:`L_{d}(o)` and :math:`U_{d}(o)` be Clopper-Pearson bounds on P(o | d, s), all of
them together right with probability ``confidence`` (Bonferroni). Under the assumptions each
:math:`\ln (L_{d}(o) / U_{d'}(o))` bounds ε from below: a promise holds for every population, so also for that of one
stratum. The same holds with both averaged over strata by the same weights. The largest of them is the answer.

**Hidden causes.** A cause that nobody logged, which is at most γ times as common under one record as under the other,
and multiplies the probability of the output by at most γ, can feign or hide a ratio of at most
:math:`B(γ) = γ^2 / (2γ - 1)`. So what is left of the bound is :math:`ε - \ln B(γ)`, and the γ at which nothing is left
of a claimed violation is its *strength*: the larger, the harder to explain away.

**Reference.** M. Tschantz, S. Sen, A. Datta, "Differential Privacy as a Causal Property", section 8. P. Ding, T.
VanderWeele (2016), "Sensitivity analysis without assumptions", Epidemiology 27: the bounding factor; T. VanderWeele, P.
Ding (2017), "Sensitivity analysis in observational research: introducing the E-value", Annals of Internal Medicine 167.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo._card import card
from escudo._validate import did_you_mean, finite, positive, probability
from escudo.errors import InputError

__all__ = ["ObservedEffect", "observe"]

_MOST_STRATA = 1000
_MOST_OUTPUTS = 1000
ASSUMPTIONS = (
    "within each level of the columns adjusted for, what decided the record has no other way to the output",
    "the columns adjusted for are from before the record was decided",
    "runs are independent, and the mechanism was the same in all of them",
    "no run was left out of the log because of what came out",
)
"""What an estimate from logs takes for granted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedEffect:
    """What a log says about how much a record changes an output, if the assumptions hold.

    Attributes:
        epsilon_lower: A lower bound on ε, at the stated confidence, under the assumptions; 0 where nothing shows.
        output: The output it was found at.
        records: The two records: more often with the first than with the second.
        stratum: The levels of the adjusted columns it was found at; None for the average over all.
        adjusted: The columns that were adjusted for.
        runs: How many runs the log has.
        confidence: With this probability all bounds behind it hold together.
        claim: The ε that is claimed; None if nothing is.
        assumptions: What is taken for granted.
    """

    epsilon_lower: float
    output: object
    records: tuple[object, object]
    stratum: tuple[object, ...] | None
    adjusted: tuple[str, ...]
    runs: int
    confidence: float
    claim: float | None = None
    assumptions: tuple[str, ...] = ASSUMPTIONS

    def with_hidden_cause(self, gamma: float) -> float:
        """Return what is left of the bound if there was a hidden cause of this strength, at least 1."""
        strength = finite("gamma", gamma)
        if strength < 1:
            raise InputError(f"gamma is how many times as common or as likely: at least 1; got {strength:g}.")
        return max(self.epsilon_lower - math.log(strength * strength / (2 * strength - 1)), 0.0)

    @property
    def strength(self) -> float:
        """The weakest hidden cause that could explain why the log speaks against the claim; 1 where it does not.

        It is the E-value of what is above the claim: with R = e^(ε - claim), R + √(R (R - 1)).
        """
        beyond = self.epsilon_lower - (self.claim or 0.0)
        if beyond <= 0:
            return 1.0
        ratio = math.exp(min(beyond, 700.0))
        return ratio + math.sqrt(ratio * (ratio - 1))

    @property
    def speaks_against(self) -> bool:
        """Whether the claim cannot be true if the assumptions are."""
        return self.claim is not None and self.epsilon_lower > self.claim

    @property
    def verdict(self) -> str:
        """What was found, with what it rests on."""
        found = f"ε is at least {self.epsilon_lower:.2f}"
        if self.epsilon_lower == 0:
            found = "the log shows no effect of the record"
        elif self.speaks_against:
            found += (
                f", against a claim of {self.claim:g}, unless a hidden cause of strength {self.strength:.2f} or more "
                "was at work"
            )
        return f"Observed, not tried: if nothing hidden decided both record and output, {found}."

    def __str__(self) -> str:
        where = "on average over all strata" if self.stratum is None else f"where {self._where}"
        lines = [
            self.verdict,
            f"Found at output {self.output!r}, for record {self.records[0]!r} against {self.records[1]!r}, {where}, "
            f"from {self.runs:,} runs, at {100 * self.confidence:g} % confidence.",
            "It takes for granted: " + "; ".join(self.assumptions) + ".",
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return card("An effect read from logs", str(self), alarm=self.speaks_against)

    @property
    def _where(self) -> str:
        assert self.stratum is not None
        pairs = zip(self.adjusted, self.stratum, strict=True)
        return " and ".join(f"{name} is {level!r}" for name, level in pairs) or "all runs count alike"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "epsilon_lower": self.epsilon_lower,
            "output": str(self.output),
            "records": [str(record) for record in self.records],
            "stratum": None if self.stratum is None else [str(level) for level in self.stratum],
            "adjusted": list(self.adjusted),
            "runs": self.runs,
            "confidence": self.confidence,
            "claim": self.claim,
            "strength": self.strength,
            "assumptions": list(self.assumptions),
            "verdict": self.verdict,
        }


def observe(
    log: object,
    *,
    record: str,
    output: str,
    adjust: Sequence[str] = (),
    claim: float | None = None,
    confidence: float = 0.95,
) -> ObservedEffect:
    """Bound the effect of a record on an output from a log of runs that nobody set up as an experiment.

    Args:
        log: A dataframe of any engine, one row for each run: for those who may see it, like any audit.
        record: The column that says what the record was in that run, such as whether a person was in the table.
        output: The column that says what came out; of finitely many values, so numbers are to be put into bins first.
        adjust: Columns from before the record was decided that may have to do with both.
        claim: The ε that is claimed.
        confidence: With which probability the bound holds, if the assumptions do.

    Raises:
        InputError: If a column is missing, a value is, or there are too many different ones.

    **What it is not.** An experiment, in which coins decide the record: ``escudo.audit`` needs none of the assumptions.
    Prefer it wherever the mechanism can be run.

    >>> import numpy as np, polars as pl
    >>> rng = np.random.default_rng(0)
    >>> there = rng.random(4000) < 0.5
    >>> said = np.where(rng.random(4000) < 0.9, there, ~there)
    >>> found = observe(pl.DataFrame({"there": there, "said": said}), record="there", output="said", claim=1.0)
    >>> round(found.epsilon_lower, 2), found.speaks_against, round(found.strength, 2)
    (2.03, True, 5.05)
    >>> round(found.with_hidden_cause(2.0), 2)
    1.74
    """
    import narwhals as nw

    given: Any = log
    try:
        frame = nw.from_native(given, eager_only=True)
    except TypeError:
        raise InputError(f"log must be a dataframe that is in memory; got {type(log).__name__}.") from None
    names = (record, output, *adjust)
    if len(set(names)) < len(names):
        raise InputError("record, output and adjust must be different columns.")
    for name in names:
        if name not in frame.columns:
            raise InputError(f"the log has no column {name!r}.{did_you_mean(name, frame.columns)}")
    level = probability("confidence", confidence, allow_zero=False)
    said = None if claim is None else positive("claim", claim, allow_zero=True)
    columns = {name: frame[name].to_list() for name in names}
    for name, values in columns.items():
        if any(value is None or value != value for value in values):
            raise InputError(f"column {name!r} of the log has missing values; leave those runs out, or name them.")
    if not columns[record]:
        raise InputError("the log has no runs.")
    strata, stratum = _numbered(list(zip(*(columns[name] for name in adjust), strict=True)) or [()] * len(frame))
    records, place = _numbered(columns[record])
    outputs, came = _numbered(columns[output])
    if len(records) < 2:
        raise InputError(f"column {record!r} has the same value in all runs: nothing can be compared.")
    for what, found in (("adjusted columns", strata), ("outputs", outputs), ("records", records)):
        if len(found) > (_MOST_STRATA if what == "adjusted columns" else _MOST_OUTPUTS):
            raise InputError(f"the log has {len(found):,} different values of {what}: put them into fewer groups.")
    counts = np.zeros((len(strata), len(records), len(outputs)))
    np.add.at(counts, (stratum, place, came), 1)
    best = _largest(counts, 1 - level)
    where = None if best[1] is None else strata[best[1]]
    return ObservedEffect(
        epsilon_lower=best[0],
        output=outputs[best[4]],
        records=(records[best[2]], records[best[3]]),
        stratum=where,
        adjusted=tuple(adjust),
        runs=len(columns[record]),
        confidence=level,
        claim=said,
    )


def _numbered(values: Sequence[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the different values in order of appearance, and the number of each."""
    known: dict[Any, int] = {}
    numbers = [known.setdefault(value, len(known)) for value in values]
    return list(known), np.array(numbers, np.int64)


def _largest(counts: NDArray[np.float64], miss: float) -> tuple[float, int | None, int, int, int]:
    """Return the largest bound, and the stratum (None for all), the two records and the output it was found at."""
    from scipy.stats import beta

    strata, records = counts.shape[:2]
    runs = counts.sum(axis=2, keepdims=True)
    tail = miss / (2 * counts.size)  # every bound, on either side
    with np.errstate(all="ignore"):
        low = np.where(counts > 0, beta.ppf(tail, counts, runs - counts + 1), 0.0)
        high = np.where(counts < runs, beta.ppf(1 - tail, counts + 1, runs - counts), 1.0)
    shares = runs[:, :, 0].sum(axis=1) / runs.sum()
    whole = [np.einsum("s,sro->ro", shares, bound)[None] for bound in (low, high)]
    best: tuple[float, int | None, int, int, int] = (0.0, None, 0, min(1, records - 1), 0)
    for lower, upper, everywhere in ((low, high, False), (*whole, True)):
        for one in range(records):
            for other in range(records):
                if one == other:
                    continue
                with np.errstate(divide="ignore"):
                    found = np.log(lower[:, one]) - np.log(upper[:, other])
                stratum, output = np.unravel_index(int(found.argmax()), found.shape)
                if found[stratum, output] > best[0]:
                    at = None if everywhere or strata == 1 else int(stratum)
                    best = (float(found[stratum, output]), at, one, other, int(output))
    return best
