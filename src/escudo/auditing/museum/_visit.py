"""A visit to the museum: audit every piece and its twin, and say whether each came out as it should."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from escudo._progress import tracking
from escudo._validate import probability
from escudo.auditing.museum._exhibits import exhibits
from escudo.auditing.museum._piece import Exhibit, Piece

if TYPE_CHECKING:
    from escudo.auditing import Audit

__all__ = ["Finding", "visit"]

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
