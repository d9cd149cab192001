"""What the museum shows: every broken piece beside its twin, with inputs that tell them apart; and a visit to it.

A visit audits every piece and its twin, and says whether each came out as it should.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from escudo._card import tracking
from escudo._validate import did_you_mean, probability
from escudo.auditing.museum import _counts as counts
from escudo.auditing.museum import _selection as selection
from escudo.auditing.museum import _training as training
from escudo.auditing.museum._piece import Pair, Piece
from escudo.errors import InputError

if TYPE_CHECKING:
    from escudo.auditing import Audit
    from escudo.privacy import Guarantee


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """A broken piece beside its correct twin, with neighbouring inputs that tell them apart.

    Attributes:
        name: A short name, such as ``"svt-4"``.
        mechanism: The broken piece.
        twin: The same thing done right.
        pairs: Neighbouring inputs for both.
        runs: How many runs are enough to see the fault; the twin gets as many.
    """

    name: str
    mechanism: Piece
    twin: Piece
    pairs: tuple[Pair, ...]
    runs: int = 30_000

    @property
    def claim(self) -> Guarantee:
        """What the broken piece is said to guarantee."""
        return self.mechanism.claim

    @property
    def true_epsilon(self) -> float:
        """The true ε of the broken piece, at its :attr:`Piece.delta`."""
        return self.mechanism.true_epsilon

    @property
    def bug(self) -> str:
        """What is wrong, in one sentence."""
        return self.mechanism.bug

    @property
    def source(self) -> str:
        """Where the fault was published or reported."""
        return self.mechanism.source


_HUGE = 1e6
"""A residual whose gradient is clipped whatever the weights are."""


def _queries(below: int, above: int, *, low: float = 0.0, high: float = 0.0) -> Pair:
    """Return answers that invite "below" first and "above" after, and the neighbour that makes both less likely."""
    first = (low,) * below + (high + 1.0,) * above
    second = (low + 1.0,) * below + (high,) * above
    return first, second


def _training(*others: tuple[float, ...], canary: tuple[float, ...]) -> Pair:
    return others, (*others, canary)


_FIVE = ((0.0,) * 5, (1.0,) * 5), ((1.0, 0.0, 0.0, 0.0, 0.0), (0.0, 1.0, 1.0, 1.0, 1.0))  # answers of five queries
_CALM = (0.0, 0.0)
_JOINED = _training(_CALM, canary=(1.0, -_HUGE))
_TURNED = _training((1.0, _HUGE), canary=(1.0, -3 * _HUGE))
_REPLACED = ((_CALM, (1.0, _HUGE)), (_CALM, (1.0, -_HUGE)))
_LAYERS = _training((0.0,) * 5, canary=(1.0,) * 4 + (-_HUGE,))
_SEVEN = tuple(_CALM for _ in range(7))


def _beside(name: str, broken: Piece, twin: Piece, *pairs: Pair, **runs: int) -> Exhibit:
    return Exhibit(name=name, mechanism=broken, twin=twin, pairs=pairs, **runs)


def exhibits() -> tuple[Exhibit, ...]:
    """Return all exhibits, in the order of the catalogue.

    >>> [one.name for one in exhibits()][:3]
    ['svt-3', 'svt-4', 'svt-5']
    """
    return (
        _beside(
            "svt-3",
            selection.SparseVector3(),
            selection.NumericSparseVector(),
            ((-1.0,) * 60, (0.0,) * 60),
            runs=200_000,
        ),
        _beside("svt-4", selection.SparseVector4(cutoff=4), selection.SparseVector1(cutoff=4), _queries(4, 4)),
        _beside("svt-5", selection.SparseVector5(), selection.SparseVector1(), _queries(1, 1)),
        _beside("svt-6", selection.SparseVector6(), selection.SparseVector2(), _queries(5, 5)),
        _beside("noisy-max-value", selection.NoisyMaxValueLaplace(), selection.NoisyMaxLaplace(), *_FIVE),
        _beside(
            "noisy-max-exponential-value", selection.NoisyMaxValueExponential(), selection.NoisyMaxExponential(), *_FIVE
        ),
        _beside(
            "inverted-scale",
            counts.HistogramInverted(epsilon=0.1),
            counts.Histogram(epsilon=0.1),
            ((0, 0, 0), (1, 0, 0)),
        ),
        _beside("shared-noise", counts.HistogramSharedNoise(), counts.Histogram(), ((4, 4, 4), (5, 4, 4))),
        _beside("float-laplace", counts.NaiveLaplace(), counts.GridLaplace(), (0.0, 1.0)),
        _beside(
            "geometric-log-base", counts.GeometricNaturalLog(), counts.GeometricBinaryLog(), (2, 3), runs=3_000_000
        ),
        _beside("cut-off-tail", counts.GeometricCutOff(), counts.GeometricCount(), (2, 3)),
        _beside("stored-ids", counts.PeopleByStoredId(), counts.PeopleByCanonicalId(), ((2,), (2, 1, 1.0, True))),
        _beside(
            "missing-bounds",
            counts.SumWithoutBounds(lower=None, upper=None),
            counts.BoundedSum(),
            ((0.5, 0.25), (0.5, 0.75)),
        ),
        _beside("nan", counts.SumNanLeak(), counts.SumNanIgnored(), ((0.5, 0.25), (0.5, float("nan")))),
        _beside(
            "categories",
            counts.CategoriesFromData(),
            counts.CategoriesFromSchema(),
            (("flu", "cold", "flu"), ("flu", "cold", "flu", "measles")),
            runs=20_000,
        ),
        *_trainings(),
    )


def _trainings() -> tuple[Exhibit, ...]:
    return (
        _beside(
            "dpsgd-size",
            training.DPSGDSizeLeak(steps=1),
            training.DPSGD(steps=1),
            _training((1.0, -_HUGE), canary=(1.0, _HUGE)),
        ),
        _beside("dpsgd-recorded-rate", training.DPSGDRecordedRate(steps=1), training.DPSGD(steps=1), _JOINED),
        _beside(
            "dpsgd-underflow",
            training.DPSGDUnderflow(steps=1),
            training.DPSGD(steps=1),
            _training(_CALM, canary=(1.0, -32.0)),
        ),
        _beside(
            "dpsgd-sample-rate",
            training.DPSGDWrongRate(noise_multiplier=1.0, sample_rate=0.5),
            training.DPSGDPoisson(noise_multiplier=1.0, sample_rate=0.5),
            _JOINED,
        ),
        _beside("dpsgd-mean-noise", training.DPSGDMeanNoise(), training.DPSGD(), _JOINED),
        _beside("dpsgd-replace-one", training.DPSGDReplaceOneUndercounted(), training.DPSGDReplaceOne(), _REPLACED),
        _beside("dpsgd-batch-clipping", training.DPSGDBatchClipping(), training.DPSGD(), _TURNED),
        _beside("dpsgd-layer-clipping", training.DPSGDLayerClipping(), training.DPSGD(), _LAYERS),
        _beside(
            "dpsgd-fixed-batches",
            training.DPSGDFixedBatches(steps=16),
            training.DPSGDPoisson(steps=16),
            _training(*_SEVEN, canary=(1.0, -_HUGE)),
        ),
        _beside("dpsgd-forgotten-steps", training.DPSGDForgottenSteps(), training.DPSGD(), _JOINED),
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


def _nothing(steps: int) -> None:
    """Show nothing."""


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
    several = len(rooms) > 1  # one room is told by the trials of its two audits, which may take minutes
    with tracking("Auditing the museum", total=2 * len(rooms)) if several else nullcontext(_nothing) as advance:
        for number, room in enumerate(rooms):
            for piece, start in ((room.mechanism, 0), (room.twin, _TWIN_SEED)):
                result = audit(
                    piece,
                    claim=piece.claim,
                    pairs=list(room.pairs),
                    confidence=each,
                    max_runs=room.runs,
                    seed=None if seed is None else seed + start + number,
                    progress=not several,
                )
                found.append(Finding(exhibit=room, piece=piece, audit=result))
                advance(1)
                if on_finding is not None:
                    on_finding(found[-1])
    return found
