"""Histograms over keys nobody knew beforehand: noise, and a threshold that hides rare keys."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from escudo._validate import positive, probability, whole
from escudo.errors import InputError
from escudo.mechanisms._grid import check_steps, rounded_up
from escudo.mechanisms._noise import Integers, NoiseSource, Seed, laplace_cutoff
from escudo.mechanisms._release import Release, released
from escudo.privacy import Account, ApproximateEvent, Relation, Unit, parse_relation, parse_unit

__all__ = ["Threshold", "stable_histogram", "stable_threshold"]

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """How :func:`stable_histogram` treats a count: noise of this scale, shown from this noisy count on."""

    scale: float
    least: int


def stable_threshold(
    *, epsilon: float, delta: float, relation: Relation = "replace_one", max_rows_per_person: int = 1
) -> Threshold:
    r"""Return the least threshold that makes a histogram over unknown keys (ε, δ)-differentially private.

    With k rows per unit the noise scale is s = k/ε under ``add_remove`` and 2k/ε under ``replace_one``. With
    :math:`q(c) = P(c + Z \ge T)`, the chance that a key of true count c is shown, the threshold T is the least with
    :math:`\max(q(k),\; k\,q(1)) \le δ`. See :func:`stable_histogram` for the proof.

    >>> stable_threshold(epsilon=1.0, delta=1e-6, relation="add_remove").least
    15
    >>> stable_threshold(epsilon=1.0, delta=1e-6).least
    28
    """
    rows = whole("max_rows_per_person", max_rows_per_person, minimum=1)
    slack = probability("delta", delta, allow_zero=False)
    moved = rows * (1 if parse_relation(relation) == "add_remove" else 2)
    scale = check_steps("the noise scale", rounded_up(moved / positive("epsilon", epsilon)))
    return Threshold(
        scale=scale, least=max(rows + laplace_cutoff(slack, scale), 1 + laplace_cutoff(slack / rows, scale))
    )


def stable_histogram(
    counts: Mapping[K, int],
    *,
    epsilon: float,
    delta: float,
    relation: Relation = "replace_one",
    unit: Unit = "row",
    max_rows_per_person: int | None = None,
    account: Account | None = None,
    seed: Seed = None,
    purpose: str = "stable histogram",
) -> Release[dict[K, int]]:
    r"""Release the keys that many rows have, with noisy counts; keys need not be known beforehand.

    Every key that occurs gets :math:`n_x + Z_x` with discrete Laplace noise and is shown if that reaches the
    threshold T of :func:`stable_threshold`. Keys come back in sorted order, never in the order of the table.

    Args:
        counts: Rows per key. Keys of count 0 are as good as absent.
        epsilon: Loss of the counts.
        delta: Probability of showing what only one unit has, in (0, 1).
        relation: Which tables are neighbours.
        unit: Whose rows differ between neighbours.
        max_rows_per_person: With ``unit="person"``: the most rows that one person has.
        account: What to charge, before noise is drawn; None leaves charging to the caller.
        seed: None for a release; a seed makes the noise repeatable and the result not for release.
        purpose: Why, for the account.

    Returns:
        Noisy counts of the keys shown, possibly none.

    Raises:
        InputError: If an argument is out of range; nothing was spent.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** (ε, δ)-differentially private. *Proof.* Let V be the keys that only D has, W those that only its
    neighbour D′ has, C the common ones; let :math:`1 - δ_V` and :math:`1 - δ_W` be the probabilities that no key of
    V, or of W, is shown. Noise is independent across keys. For a set S of outputs let S₀ be those that show keys of C
    only, and P_C, P′_C the laws of the common part. The counts of C move by at most k (``add_remove``) or 2k
    (``replace_one``: k rows leave, k come) in l1 norm, so :math:`P_C \le e^ε P'_C`. Then

    .. math:: P_D(S) \le δ_V + (1 - δ_V) P_C(S_0) \le δ_V + (1 - δ_W) P_C(S_0) + (δ_W - δ_V)^+
              \le \max(δ_V, δ_W) + e^ε (1 - δ_W) P'_C(S_0) \le \max(δ_V, δ_W) + e^ε P_{D'}(S).

    The keys of V (or W) hold at most k rows together, all of one unit, so :math:`δ_V \le \sum_{x \in V} q(c_x)`,
    :math:`\sum c_x \le k`. Because T ≥ k, :math:`q(c) = p^{T-c}/(1+p)` is convex in c on 1...k; for r keys the sum is
    largest with one key of k-r+1 rows and r-1 keys of one, and that is convex in r, so largest at r = 1 or r = k:
    :math:`δ_V \le \max(q(k), k\,q(1)) \le δ`.

    **Reference.** A. Korolova et al. (2009), "Releasing search queries and clicks privately", for the idea; the
    threshold and proof for ``replace_one`` and for persons are ours.

    >>> stable_histogram({"b": 500, "a": 300, "rare": 1}, epsilon=1.0, delta=1e-6, seed=0).value.keys()
    dict_keys(['a', 'b'])
    """
    chosen_unit = parse_unit(unit, max_rows_per_person)
    threshold = stable_threshold(
        epsilon=epsilon, delta=delta, relation=relation, max_rows_per_person=max_rows_per_person or 1
    )
    event = ApproximateEvent(
        epsilon=epsilon, delta=delta, relation=relation, unit=chosen_unit, max_rows_per_person=max_rows_per_person
    )
    keys, occupied = _read_keys(counts)

    def draw(noise: NoiseSource) -> dict[K, int]:
        noisy = noise.add_laplace(occupied, threshold.scale) if keys else occupied
        return {key: count for key, count in zip(keys, noisy.tolist(), strict=True) if count >= threshold.least}

    return released(event, draw, account=account, seed=seed, purpose=purpose)


def _read_keys(counts: Mapping[K, int]) -> tuple[list[K], Integers]:
    if not isinstance(counts, Mapping):
        raise InputError(f"counts must map keys to numbers of rows; got {type(counts).__name__}.")
    # Names no key in its message: keys are private.
    if any(isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0 for n in counts.values()):
        raise InputError("counts must be whole numbers of at least 0.")
    keys = sorted((key for key, count in counts.items() if count > 0), key=_order)
    return keys, np.array([min(int(counts[key]), 2**60) for key in keys], dtype=np.int64)


def _order(key: Hashable) -> tuple[str, int | float | str]:
    return type(key).__name__, key if isinstance(key, int | float | str) else repr(key)
