r"""The paper's sensitivities as printed, and the corrected ones, side by side.

| score, one record replaced | the paper | corrected | is the paper's bound true? |
|---|---|---|---|
| Spearman, test record | 30/m (Theorem 1) | 6/(m+1) | yes, 5 times too large |
| Kendall, test record | 4/m (Theorem 1) | 4/m | yes; its proof is not |
| HSIC, test record | (12m-11)/(m-1)² (Theorem 3) | 2.0556/m + 4/m² | yes, 5.8 times too large |
| residual, training record | 8/(nλ^{3/2}), λ ≤ 1 (Theorem 5) | Proposition 10 | yes, 1.7 to 5.7 times too large |
| HSIC, training record | 32 L √m/n · 8/λ^{3/2} (Theorem 7) | Proposition 11 | yes; it even exceeds the range of HSIC |
| distance to instability | ⌊nγλ^{3/2}/16⌋ | ⌈γ/2R⌉ - 1 | yes, as a lower bound |
| four log IQRs, test record | "three looks": (9e₀, 3δ₀) | (12e₀, 4δ₀) | **no**: one record moves all four |
| two log IQRs, training record | (6e₀, 2δ₀) | (6e₀, 2δ₀) | yes |

So with ``constants="paper"`` only the interquartile ranges cost more than the paper says: 4/3 of ε and δ. What is
charged is always what is proved.

**The paper's first bound for HSIC**, (16m-8)/(m-1)², is larger still and not used.
"""

from __future__ import annotations

import math
from typing import Literal

from escudo.orientation._regression import paper_residual_change, residual_change
from escudo.orientation._scores import kendall_sensitivity, spearman_sensitivity
from escudo.orientation._scores_kernel import hsic_sensitivity, hsic_training_sensitivity

__all__ = [
    "CONSTANTS",
    "Constants",
    "Role",
    "distance_to_instability",
    "drift",
    "iqr_looks",
    "score_sensitivity",
]

Constants = Literal["corrected", "paper"]
CONSTANTS: tuple[Constants, ...] = ("corrected", "paper")

Role = Literal["test", "train", "both"]
"""Which part of the data the private table is; with ``both`` it is cut in two."""

_FLOAT = 1 + 1e-6  # residuals as computed may move by rounding errors more


def drift(n: int, regularisation: float, constants: Constants) -> float:
    """Return how far one of ``n`` training records can move a residual."""
    change = residual_change if constants == "corrected" else paper_residual_change
    return change(n, regularisation) * _FLOAT


def score_sensitivity(
    score: str, role: Role, *, n: int, m: int, regularisation: float, width: float, constants: Constants
) -> float:
    """Return how far one score can move when one private record is replaced.

    Args:
        score: ``"hsic"``; or, for role ``"test"`` only, ``"spearman"`` or ``"kendall"``.
        role: What the private records are used for. With ``"both"``, a record is in one part, so the larger of the
            two sensitivities holds (split by position; design note, Proposition 12).
        n: Training records.
        m: Test records.
        regularisation: λ.
        width: Of the kernel of the residuals.
        constants: The paper's, or the corrected ones.
    """
    printed = constants == "paper"
    if score == "spearman":
        return 30 / m if printed else spearman_sensitivity(m)
    if score == "kendall":
        return 4 / m if printed else kendall_sensitivity(m)
    change = drift(n, regularisation, constants)
    lipschitz = math.exp(-0.5) / width
    testing = (12 * m - 11) / (m - 1) ** 2 if printed else hsic_sensitivity(m)
    training = 32 * lipschitz * math.sqrt(m) * change if printed else hsic_training_sensitivity(m, change, width)
    return {"test": testing, "train": training, "both": max(testing, training)}[role]


def distance_to_instability(smallest_gap: float, change: float, constants: Constants) -> int:
    r"""Return a lower bound, of sensitivity 1, on the training records to change before one more can move a rank.

    Ranks stay while every two residuals are more than 2R apart; k changes bring them closer by 2kR at most.

    >>> distance_to_instability(1.0, 0.1, "corrected"), distance_to_instability(0.1, 0.1, "corrected")
    (4, 0)
    """
    steps = smallest_gap / (2 * change)
    return max(0, math.ceil(steps) - 1) if constants == "corrected" else math.floor(steps)


def iqr_looks(role: Role, constants: Constants) -> tuple[int, int]:
    """Return how many log IQRs are released, and by how many the budget is divided for each."""
    if role == "train":
        return 2, 2
    return 4, 3 if constants == "paper" else 4
