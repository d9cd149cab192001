r"""Where stability allows: precise answers, and levels that many share; "no answer" and a threshold for the rest.

**How far a table is from a different interquartile range**, the distances behind propose-test-release. For m records,
:math:`H = \ln(v_{(h)} - v_{(l)})` with :math:`l = \lceil m/4 \rceil`, :math:`h = \lceil 3m/4 \rceil`. The log scale is
cut into bins :math:`[iw + o, (i+1)w + o)`, for the offsets o = 0 and o = w/2. The distance A_o is the least number of
records to change so that H leaves its bin.

**Exact.** After at most k changes the smallest reachable range is :math:`\min_{0 \le i \le k} v_{(h-k+i)} - v_{(l+i)}`
(move i records from below v_(l) and k-i from above v_(h) into the middle; 0 once k ≥ h - l), the largest is
:math:`\max_{0 \le i \le k} v_{(h+i)} - v_{(l-k+i)}` (move i records from the middle to the top and k-i to the bottom),
with the public bounds in place of ranks past the ends. Both are monotone in k, so bisection finds A_o.

**Sensitivity 1.** If D and a neighbour D′ are in the same bin, a way out for one is a way out for the other with at
most one change more. If they are not, one change leads out for each, so both distances are 1.

**Degenerate ranges.** A range of 0, or below the lowest edge, belongs to no bin: its distance is 1, and so is that of
every neighbour in a bin, because one change leads out of that bin.

Comparisons are made on the range itself, against the edges :math:`e^{iw+o}` as float64 numbers; float64 subtraction is
monotone, so all of the above holds for the numbers as computed.

**Histograms over keys nobody knew beforehand** have noise, and a threshold that hides rare keys.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from escudo._validate import finite, positive, probability, whole
from escudo.errors import InputError
from escudo.mechanisms._noise import (
    Integers,
    NoiseSource,
    Wanted,
    check_steps,
    laplace_cutoff,
    read_statistic,
    rounded_up,
)
from escudo.mechanisms._purse import Purse, Release, ReleaseOptions, opened
from escudo.privacy import ApproximateEvent, Relation, parse_relation

_DEEP = 50.0  # bins reach down to e^-50 of the public range


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIqr:
    """A private log interquartile range and how many records must change to move it out of its two bins.

    Attributes:
        value: ln IQR, or None where the range is 0.
        distances: The distance for the offsets 0 and w/2, each of sensitivity 1.
        records: How many records there are, which is public under ``replace_one``.
    """

    value: float | None
    distances: tuple[int, int]
    records: int


def read_log_iqr(values: ArrayLike, *, lower: float, upper: float, width: float) -> LogIqr:
    """Return the log interquartile range of a column and its distances; all of it is private.

    Args:
        values: The column, shape (m,), m ≥ 1; clamped to [lower, upper], NaN counts as the middle.
        lower: Public lower bound.
        upper: Public upper bound.
        width: Width of the bins on the natural log scale, from 0.001 to 10.

    Raises:
        InputError: If the column is empty or not made of numbers, or an argument is out of range.
    """
    return _read(values, _Bins.checked(lower, upper, width))


class _Bins(NamedTuple):
    """A public range, and the width of the bins on the natural log scale in which ranges within it are put."""

    low: float
    high: float
    width: float

    @classmethod
    def checked(cls, lower: float, upper: float, width: float) -> _Bins:
        low, high = finite("lower", lower), finite("upper", upper)
        if not low < high or not math.isfinite(high - low):
            raise InputError("lower must be below upper, by a finite amount.")
        if not 1e-3 <= finite("width", width) <= 10:
            raise InputError(f"width must lie between 0.001 and 10; got {width!r}.")
        return cls(low, high, width)


def _read(values: ArrayLike, bins: _Bins) -> LogIqr:
    """Return :func:`read_log_iqr` of a column, in bins that are known to be right."""
    low, high, width = bins
    array = np.asarray(values)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iuf":
        raise InputError("each column must be a one-dimensional array of numbers with at least one record.")
    clamped = np.nan_to_num(array.astype(np.float64), nan=low / 2 + high / 2, posinf=high, neginf=low)
    ordered = _Ordered(np.sort(np.clip(clamped, low, high)), low, high)
    spread = ordered.smallest(0)
    first, second = (_distance(ordered, _edges(low, high, width, offset)) for offset in (0.0, width / 2))
    return LogIqr(value=math.log(spread) if spread > 0 else None, distances=(first, second), records=array.size)


class _Ordered:
    """Sorted values within public bounds, and the ranges that k changes can reach."""

    def __init__(self, values: NDArray[np.float64], lower: float, upper: float) -> None:
        count = values.size
        self.values = values
        self.first, self.third = math.ceil(count / 4) - 1, math.ceil(3 * count / 4) - 1
        # Ranks past an end mean records moved to the public bound.
        self.padded = np.concatenate([np.full(count, lower), values, np.full(count, upper)])

    def smallest(self, changes: int) -> float:
        """Return the smallest interquartile range that at most ``changes`` changed records can bring about."""
        if changes > 0 and changes >= self.third - self.first:
            return 0.0
        low = self.values[self.first : self.first + changes + 1]
        high = self.values[self.third - changes : self.third + 1]
        return float(np.min(high - low))

    def largest(self, changes: int) -> float:
        """Return the largest interquartile range that at most ``changes`` changed records can bring about."""
        count = self.values.size
        low = self.padded[count + self.first - changes : count + self.first + 1]
        high = self.padded[count + self.third : count + self.third + changes + 1]
        return float(np.max(high - low))


def _edges(low: float, high: float, width: float, offset: float) -> NDArray[np.float64]:
    top = math.log(high - low)
    indices = np.arange(math.floor((top - _DEEP) / width), math.ceil(top / width) + 2)
    edges: NDArray[np.float64] = np.maximum.accumulate(np.exp(indices * width + offset))
    return edges


def _bin(edges: NDArray[np.float64], spread: float) -> int:
    return int(np.searchsorted(edges, spread, side="right"))


def _distance(ordered: _Ordered, edges: NDArray[np.float64]) -> int:
    home = _bin(edges, ordered.smallest(0))
    if home == 0:  # below the lowest edge
        return 1
    stays, leaves = 0, ordered.third - ordered.first  # with that many changes the range can be 0
    while leaves - stays > 1:
        middle = (stays + leaves) // 2
        if _bin(edges, ordered.smallest(middle)) == home == _bin(edges, ordered.largest(middle)):
            stays = middle
        else:
            leaves = middle
    return leaves


def propose_test_release(
    value: float | None,
    distances: int | Sequence[int],
    *,
    sensitivity: float,
    epsilon: float,
    delta: float,
    release_share: float | None = None,
    grid: float | None = None,
    **terms: Unpack[ReleaseOptions],
) -> Release[float | None]:
    r"""Release a number whose sensitivity is small only near stable tables, if this table is one; else None.

    With t tests, :math:`ε = t e_1 + e_2`: each distance A_j is tested by :math:`A_j + Z_j > 1 + k`, where Z_j is
    discrete Laplace noise of scale 1/e₁ and k makes :math:`P(Z_j > k) \le δ/t`. If a test passes, ``value`` is
    released with Laplace noise of scale Δ/e₂; otherwise the answer is None.

    Args:
        value: The private number; None where it does not exist, which then must be at distance at most 1.
        distances: A private whole number per test. Each must have sensitivity 1, and wherever one of them is 2 or more,
            ``value`` must move by at most ``sensitivity`` to every neighbour.
        sensitivity: Most that ``value`` moves between neighbours of which one is stable in that sense.
        epsilon: What tests and release together may cost.
        delta: Probability of answering where no test should pass, in (0, 1).
        release_share: The part of epsilon for the release; 1/(t + 1) by default, so that e₁ = e₂.
        grid: Step of the public grid for ``value``, a power of two; derived from public numbers by default.
        terms: How it is paid for and drawn, and between which tables sensitivities and distances are stated: account,
            seed, purpose, relation, unit (:class:`ReleaseOptions`).

    Returns:
        The noisy number, or None for "no answer"; both cost the same.

    Raises:
        InputError: If an argument is out of range; nothing was spent.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** (ε, δ)-differentially private: the tests cost t·e₁ because each A_j has sensitivity 1. *Proof.* If
    some A_j is at least 2 on D or on its neighbour D′, value has sensitivity Δ between the two, the release costs e₂,
    and the total is ε. Otherwise all A_j are at most 1 on both, each passes with probability at most δ/t, and
    :math:`P_D(S) \le P_D(S, \text{no answer}) + δ \le e^{t e_1} P_{D'}(S) + δ`. With two tests, e₁ = e₂ = e₀ it is
    (3e₀, δ).

    **Reference.** C. Dwork, J. Lei (2009), "Differential privacy and robust statistics", Section 3; design note
    "sensitivities", Proposition 8, whose proof this is.

    >>> propose_test_release(2.5, 400, sensitivity=0.01, epsilon=1.0, delta=1e-6, seed=0).value is None
    False
    >>> propose_test_release(2.5, 1, sensitivity=0.01, epsilon=1.0, delta=1e-6, seed=0).value is None
    True
    """
    purse, stated = opened(terms, "propose-test-release")
    event = ApproximateEvent(
        epsilon=positive("epsilon", epsilon), delta=probability("delta", delta, allow_zero=False), **stated
    )
    found = release_if_stable(
        value, distances, event, purse, sensitivity=sensitivity, release_share=release_share, grid=grid
    )
    return purse.release(found, event)


def release_if_stable(
    value: float | None,
    distances: int | Sequence[int],
    event: ApproximateEvent,
    purse: Purse,
    *,
    sensitivity: float,
    release_share: float | None = None,
    grid: float | None = None,
    purpose: str = "",
) -> float | None:
    """Return what :func:`propose_test_release` releases, or None; a purse pays the event for tests and release."""
    tests = _read_distances(distances, value)
    share = 1 / (tests.size + 1) if release_share is None else finite("release_share", release_share)
    if not 0 < share < 1:
        raise InputError(f"release_share must lie strictly between 0 and 1; got {share!r}.")
    statistic = read_statistic("value", 0.0 if value is None else float(value))
    moved = positive("sensitivity", sensitivity)
    step, _, release_scale = statistic.noise(moved, "l1", Wanted(share * event.epsilon, None, grid))
    test_scale = check_steps("the noise scale", rounded_up(tests.size / ((1 - share) * event.epsilon)))
    least = 1 + laplace_cutoff(event.delta / tests.size, test_scale)

    def law(noise: NoiseSource) -> float | None:
        passed = bool((noise.add_laplace(tests, test_scale) >= least).any())
        if not passed or value is None:
            return None
        noisy = statistic.restored(noise.add_laplace(statistic.steps(step), release_scale), step)
        assert isinstance(noisy, float)
        return noisy

    return purse.draw(event, law, purpose)


def log_iqr(
    columns: Sequence[ArrayLike],
    *,
    lower: float,
    upper: float,
    epsilon: float,
    delta: float,
    weights: Sequence[float] = (1.0,),
    width: float = 0.5,
    **terms: Unpack[ReleaseOptions],
) -> Release[float | None]:
    r"""Release a weighted sum of log interquartile ranges if they are stable, else None.

    :math:`\sum_j c_j \ln \mathrm{IQR}(v_j)` over columns of the same records: one column for a scale, several for a
    comparison of scales. One joint test on the least stable column, on its steadier of two ways of cutting the log
    scale into bins of the given width; then Laplace noise of scale :math:`2 w \sum_j |c_j| / ε`.

    Args:
        columns: The private columns, each of shape (m,), all with the same m, which is public. Values are clamped to
            [lower, upper]; NaN counts as the middle.
        lower: Public lower bound of every column.
        upper: Public upper bound of every column.
        epsilon: What test and release together may cost, in equal halves.
        delta: Probability of answering where the test should not pass, in (0, 1).
        weights: One finite factor c_j per column, not all 0.
        width: Width w of the bins: small for a precise answer, large for an answer more often.
        terms: How it is paid for and drawn: account, seed, purpose (:class:`ReleaseOptions`). The relation must be
            ``"replace_one"``, as quartiles of a table whose size changes are not covered, and the unit the row.

    Returns:
        The noisy sum, or None for "no answer"; both cost the same.

    Raises:
        InputError: If an argument is out of range; nothing was spent.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** (ε, δ)-differentially private for a whole record, all columns at once, by
    :func:`propose_test_release` with the distance :math:`\min_j \max(A_{j,1}, A_{j,2})` (a minimum of maxima of
    sensitivity-1 distances, see :func:`read_log_iqr`): where it is at least 2, every column shares a bin with
    its neighbour, and the sum moves by less than :math:`w \sum_j |c_j|`.

    Prefer :func:`quantiles` unless the bounds are very wide: it always answers, is purely ε-private and errs less.

    **Reference.** Design note "sensitivities", Proposition 8, joint variant.

    >>> noise = np.random.default_rng(0).normal(size=4000)
    >>> answer = log_iqr([noise], lower=-50, upper=50, epsilon=4.0, delta=1e-6, seed=0).value
    >>> abs(answer - math.log(1.35)) < 1
    True
    """
    if parse_relation(terms.get("relation", "replace_one")) != "replace_one":
        raise InputError("log_iqr holds for relation='replace_one', where the number of records is public.")
    if terms.get("unit", "row") != "row":
        raise InputError("log_iqr holds for unit='row': its distances count records that change, whoever's they are.")
    factors = [finite("weights", weight) for weight in weights]
    if len(factors) != len(columns) or not any(factors):
        raise InputError(
            f"weights must be one factor per column, not all 0; got {len(factors)} for {len(columns)} columns."
        )
    bins = _Bins.checked(lower, upper, width)
    found = [_read(column, bins) for column in columns]
    if len({part.records for part in found}) > 1:
        raise InputError("columns must all have the same number of records: they describe the same ones.")
    moved = positive("width", width) * math.fsum(map(abs, factors))
    least = min(max(part.distances) for part in found)
    how: ReleaseOptions = {"purpose": "log interquartile range", **terms}
    return propose_test_release(
        _weighted(found, factors), least, sensitivity=moved, epsilon=epsilon, delta=delta, **how
    )


def _weighted(parts: Sequence[LogIqr], factors: Sequence[float]) -> float | None:
    if any(part.value is None for part in parts):
        return None
    return math.fsum(factor * part.value for factor, part in zip(factors, parts, strict=True) if part.value is not None)


def _read_distances(distances: int | Sequence[int], value: float | None) -> Integers:
    listed = [distances] if isinstance(distances, int | np.integer) else list(distances)
    if not listed:
        raise InputError("distances is empty: at least one test decides whether to answer.")
    # Names no distance in its message: they are private.
    if any(isinstance(d, bool) or not isinstance(d, int | np.integer) or d < 0 for d in listed):
        raise InputError("distances must be whole numbers of at least 0.")
    tests = np.array([min(int(distance), 2**60) for distance in listed], dtype=np.int64)
    if value is None and (tests > 1).any():
        raise InputError("value may be None only where every distance is at most 1.")
    return tests


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
    **terms: Unpack[ReleaseOptions],
) -> Release[dict[K, int]]:
    r"""Release the keys that many rows have, with noisy counts; keys need not be known beforehand.

    Every key that occurs gets :math:`n_x + Z_x` with discrete Laplace noise and is shown if that reaches the
    threshold T of :func:`stable_threshold`. Keys come back in sorted order, never in the order of the table.

    Args:
        counts: Rows per key. Keys of count 0 are as good as absent.
        epsilon: Loss of the counts.
        delta: Probability of showing what only one unit has, in (0, 1).
        terms: How it is paid for and drawn, and between which tables: account, seed, purpose, relation, unit
            (:class:`ReleaseOptions`); for persons ``max_rows_per_person``, the most rows that one has.

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
    purse, stated = opened(terms, "stable histogram", bound_of_account=False)
    event = ApproximateEvent(epsilon=epsilon, delta=delta, **stated)
    return purse.release(show_keys(counts, event, purse), event)


def show_keys(
    counts: Mapping[K, int], event: ApproximateEvent, purse: Purse, *, rows: int | None = None, purpose: str = ""
) -> dict[K, int]:
    """Return the keys and noisy counts of :func:`stable_histogram`, paid by a purse; the event states the terms.

    ``rows`` is the most rows of one person in ``counts``, where that is fewer than the event is stated for.
    """
    threshold = stable_threshold(
        epsilon=event.epsilon,
        delta=event.delta,
        relation=event.relation,
        max_rows_per_person=rows or event.max_rows_per_person or 1,
    )
    keys, occupied = _read_keys(counts)

    def law(noise: NoiseSource) -> dict[K, int]:
        noisy = noise.add_laplace(occupied, threshold.scale) if keys else occupied
        return {key: count for key, count in zip(keys, noisy.tolist(), strict=True) if count >= threshold.least}

    return purse.draw(event, law, purpose)


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
