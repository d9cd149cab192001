"""What the museum shows: every broken piece beside its twin, with inputs that tell them apart; and a visit to it.

A visit audits every piece and its twin, and says whether each came out as it should.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from escudo._progress import tracking
from escudo._validate import did_you_mean, probability
from escudo.auditing.museum import _counts as counts
from escudo.auditing.museum import _selection as selection
from escudo.auditing.museum import _training as training
from escudo.auditing.museum._piece import Exhibit, Pair, Piece
from escudo.errors import InputError

if TYPE_CHECKING:
    from escudo.auditing import Audit

__all__ = ["Finding", "exhibit", "exhibits", "visit"]


_HUGE = 1e6
"""A residual whose gradient is clipped whatever the weights are."""


def _queries(below: int, above: int, *, low: float = 0.0, high: float = 0.0) -> Pair:
    """Return answers that invite "below" first and "above" after, and the neighbour that makes both less likely."""
    first = (low,) * below + (high + 1.0,) * above
    second = (low + 1.0,) * below + (high,) * above
    return first, second


def _training(*others: tuple[float, ...], canary: tuple[float, ...]) -> Pair:
    return others, (*others, canary)


_CALM = (0.0, 0.0)
_JOINED = _training(_CALM, canary=(1.0, -_HUGE))
_TURNED = _training((1.0, _HUGE), canary=(1.0, -3 * _HUGE))
_REPLACED = ((_CALM, (1.0, _HUGE)), (_CALM, (1.0, -_HUGE)))
_LAYERS = _training((0.0,) * 5, canary=(1.0,) * 4 + (-_HUGE,))
_SEVEN = tuple(_CALM for _ in range(7))


def exhibits() -> tuple[Exhibit, ...]:
    """Return all exhibits, in the order of the catalogue.

    >>> [one.name for one in exhibits()][:3]
    ['svt-3', 'svt-4', 'svt-5']
    """
    return (
        Exhibit(
            name="svt-3",
            mechanism=selection.SparseVector3(),
            twin=selection.NumericSparseVector(),
            pairs=(((-1.0,) * 60, (0.0,) * 60),),
            runs=200_000,
        ),
        Exhibit(
            name="svt-4",
            mechanism=selection.SparseVector4(cutoff=4),
            twin=selection.SparseVector1(cutoff=4),
            pairs=(_queries(4, 4),),
        ),
        Exhibit(
            name="svt-5",
            mechanism=selection.SparseVector5(),
            twin=selection.SparseVector1(),
            pairs=(_queries(1, 1),),
        ),
        Exhibit(
            name="svt-6",
            mechanism=selection.SparseVector6(),
            twin=selection.SparseVector2(),
            pairs=(_queries(5, 5),),
        ),
        Exhibit(
            name="noisy-max-value",
            mechanism=selection.NoisyMaxValueLaplace(),
            twin=selection.NoisyMaxLaplace(),
            pairs=(((0.0,) * 5, (1.0,) * 5), ((1.0, 0.0, 0.0, 0.0, 0.0), (0.0, 1.0, 1.0, 1.0, 1.0))),
        ),
        Exhibit(
            name="noisy-max-exponential-value",
            mechanism=selection.NoisyMaxValueExponential(),
            twin=selection.NoisyMaxExponential(),
            pairs=(((0.0,) * 5, (1.0,) * 5), ((1.0, 0.0, 0.0, 0.0, 0.0), (0.0, 1.0, 1.0, 1.0, 1.0))),
        ),
        Exhibit(
            name="inverted-scale",
            mechanism=counts.HistogramInverted(epsilon=0.1),
            twin=counts.Histogram(epsilon=0.1),
            pairs=(((0, 0, 0), (1, 0, 0)),),
        ),
        Exhibit(
            name="shared-noise",
            mechanism=counts.HistogramSharedNoise(),
            twin=counts.Histogram(),
            pairs=(((4, 4, 4), (5, 4, 4)),),
        ),
        Exhibit(
            name="float-laplace",
            mechanism=counts.NaiveLaplace(),
            twin=counts.GridLaplace(),
            pairs=((0.0, 1.0),),
        ),
        Exhibit(
            name="geometric-log-base",
            mechanism=counts.GeometricNaturalLog(),
            twin=counts.GeometricBinaryLog(),
            pairs=((2, 3),),
            runs=3_000_000,
        ),
        Exhibit(
            name="cut-off-tail",
            mechanism=counts.GeometricCutOff(),
            twin=counts.GeometricCount(),
            pairs=((2, 3),),
        ),
        Exhibit(
            name="stored-ids",
            mechanism=counts.PeopleByStoredId(),
            twin=counts.PeopleByCanonicalId(),
            pairs=(((2,), (2, 1, 1.0, True)),),
        ),
        Exhibit(
            name="missing-bounds",
            mechanism=counts.SumWithoutBounds(lower=None, upper=None),
            twin=counts.BoundedSum(),
            pairs=(((0.5, 0.25), (0.5, 0.75)),),
        ),
        Exhibit(
            name="nan",
            mechanism=counts.SumNanLeak(),
            twin=counts.SumNanIgnored(),
            pairs=(((0.5, 0.25), (0.5, float("nan"))),),
        ),
        Exhibit(
            name="categories",
            mechanism=counts.CategoriesFromData(),
            twin=counts.CategoriesFromSchema(),
            pairs=((("flu", "cold", "flu"), ("flu", "cold", "flu", "measles")),),
            runs=20_000,
        ),
        *_trainings(),
    )


def _trainings() -> tuple[Exhibit, ...]:
    return (
        Exhibit(
            name="dpsgd-size",
            mechanism=training.DPSGDSizeLeak(steps=1),
            twin=training.DPSGD(steps=1),
            pairs=(_training((1.0, -_HUGE), canary=(1.0, _HUGE)),),
        ),
        Exhibit(
            name="dpsgd-recorded-rate",
            mechanism=training.DPSGDRecordedRate(steps=1),
            twin=training.DPSGD(steps=1),
            pairs=(_JOINED,),
        ),
        Exhibit(
            name="dpsgd-underflow",
            mechanism=training.DPSGDUnderflow(steps=1),
            twin=training.DPSGD(steps=1),
            pairs=(_training(_CALM, canary=(1.0, -32.0)),),
        ),
        Exhibit(
            name="dpsgd-sample-rate",
            mechanism=training.DPSGDWrongRate(noise_multiplier=1.0, sample_rate=0.5),
            twin=training.DPSGDPoisson(noise_multiplier=1.0, sample_rate=0.5),
            pairs=(_JOINED,),
        ),
        Exhibit(
            name="dpsgd-mean-noise",
            mechanism=training.DPSGDMeanNoise(),
            twin=training.DPSGD(),
            pairs=(_JOINED,),
        ),
        Exhibit(
            name="dpsgd-replace-one",
            mechanism=training.DPSGDReplaceOneUndercounted(),
            twin=training.DPSGDReplaceOne(),
            pairs=(_REPLACED,),
        ),
        Exhibit(
            name="dpsgd-batch-clipping",
            mechanism=training.DPSGDBatchClipping(),
            twin=training.DPSGD(),
            pairs=(_TURNED,),
        ),
        Exhibit(
            name="dpsgd-layer-clipping",
            mechanism=training.DPSGDLayerClipping(),
            twin=training.DPSGD(),
            pairs=(_LAYERS,),
        ),
        Exhibit(
            name="dpsgd-fixed-batches",
            mechanism=training.DPSGDFixedBatches(steps=16),
            twin=training.DPSGDPoisson(steps=16),
            pairs=(_training(*_SEVEN, canary=(1.0, -_HUGE)),),
        ),
        Exhibit(
            name="dpsgd-forgotten-steps",
            mechanism=training.DPSGDForgottenSteps(),
            twin=training.DPSGD(),
            pairs=(_JOINED,),
        ),
    )


def exhibit(name: str) -> Exhibit:
    """Return the exhibit of that name.

    Raises:
        InputError: If there is none.
    """
    known = {one.name: one for one in exhibits()}
    if name not in known:
        raise InputError(f"the museum has no {name!r}; it shows {', '.join(known)}.{did_you_mean(name, known)}")
    return known[name]


_TWIN_SEED = 1_000_003
"""Twins are audited with other draws than the pieces they stand beside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What an audit said about one piece, broken or correct.

    Attributes:
        exhibit: Where it stands.
        piece: The mechanism that was audited.
        audit: What was found.
    """

    exhibit: Exhibit
    piece: Piece
    audit: Audit

    @property
    def broken(self) -> bool:
        """Whether the piece is one of the broken ones."""
        return self.piece is self.exhibit.mechanism

    @property
    def as_expected(self) -> bool:
        """Whether a broken piece was caught, or a correct one left alone."""
        return self.audit.violated == self.broken

    def to_json(self) -> dict[str, Any]:
        """Return plain values; an infinite ε is the text "inf"."""
        true = self.piece.true_epsilon
        return {
            "exhibit": self.exhibit.name,
            "piece": type(self.piece).__name__,
            "broken": self.broken,
            "caught": self.audit.violated,
            "as_expected": self.as_expected,
            "claim": self.piece.claim.to_json(),
            "true_epsilon": "inf" if true == float("inf") else true,
            "true_epsilon_at_delta": self.piece.delta,
            "epsilon_lower": self.audit.epsilon_lower,
            "runs": self.audit.runs,
            "seconds": self.audit.seconds,
            "bug": self.piece.bug,
            "source": self.piece.source,
        }


def visit(
    shown: Sequence[Exhibit] | None = None,
    *,
    confidence: float = 0.95,
    seed: int | None = None,
    on_finding: Callable[[Finding], None] | None = None,
) -> list[Finding]:
    """Audit broken pieces and their twins.

    The confidence is that of the whole visit: each audit gets its share of the error, so that with probability
    ``confidence`` not one correct twin is accused.

    Args:
        shown: The exhibits to visit; all of them by default.
        confidence: Of the whole visit.
        seed: Makes the visit repeatable.
        on_finding: Called after each audit.

    Returns:
        Two findings for each exhibit: the broken piece, then its twin.
    """
    from escudo.auditing import audit

    rooms = exhibits() if shown is None else shown
    each = 1 - (1 - probability("confidence", confidence, allow_zero=False)) / max(2 * len(rooms), 1)
    found = []
    with tracking("Auditing the museum", total=2 * len(rooms)) as advance:
        for number, room in enumerate(rooms):
            for piece, start in ((room.mechanism, 0), (room.twin, _TWIN_SEED)):
                result = audit(
                    piece,
                    claim=piece.claim,
                    pairs=list(room.pairs),
                    confidence=each,
                    max_runs=room.runs,
                    seed=None if seed is None else seed + start + number,
                    progress=False,
                )
                found.append(Finding(exhibit=room, piece=piece, audit=result))
                advance(1)
                if on_finding is not None:
                    on_finding(found[-1])
    return found
