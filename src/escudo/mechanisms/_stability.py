"""Propose-test-release: answer precisely where the data are stable, and say "no answer" where they are not."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from escudo._validate import finite, positive, probability
from escudo.errors import InputError
from escudo.mechanisms._grid import check_steps, default_grid, read_statistic, rounded_up
from escudo.mechanisms._iqr import LogIqr, read_log_iqr
from escudo.mechanisms._noise import Integers, NoiseSource, Seed, laplace_cutoff
from escudo.mechanisms._release import Release, bound_on_rows, released
from escudo.privacy import Account, ApproximateEvent, Relation, Unit, parse_relation

__all__ = ["log_iqr", "propose_test_release"]


def propose_test_release(
    value: float | None,
    distances: int | Sequence[int],
    *,
    sensitivity: float,
    epsilon: float,
    delta: float,
    release_share: float | None = None,
    grid: float | None = None,
    relation: Relation = "replace_one",
    unit: Unit = "row",
    max_rows_per_person: int | None = None,
    account: Account | None = None,
    seed: Seed = None,
    purpose: str = "propose-test-release",
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
        relation: The neighbouring relation of sensitivities and distances.
        unit: The unit of sensitivities and distances.
        max_rows_per_person: With ``unit="person"``: the most rows of one person that take part; the account's by
            default.
        account: What to charge, before noise is drawn; None leaves charging to the caller.
        seed: None for a release; a seed makes the noise repeatable and the result not for release.
        purpose: Why, for the account.

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
    tests = _read_distances(distances, value)
    share = 1 / (tests.size + 1) if release_share is None else finite("release_share", release_share)
    if not 0 < share < 1:
        raise InputError(f"release_share must lie strictly between 0 and 1; got {share!r}.")
    total = positive("epsilon", epsilon)
    slack = probability("delta", delta, allow_zero=False)
    rows = bound_on_rows(unit, max_rows_per_person, account)
    event = ApproximateEvent(epsilon=total, delta=slack, relation=relation, unit=unit, max_rows_per_person=rows)
    statistic = read_statistic("value", 0.0 if value is None else float(value))
    moved = positive("sensitivity", sensitivity)
    step = default_grid(statistic, sensitivity=moved, scale=moved / (share * total), norm="l1", grid=grid)
    steps = check_steps("sensitivity", statistic.sensitivity_in_steps(moved, step, "l1"))
    release_scale = check_steps("the noise scale", rounded_up(steps / (share * total)))
    test_scale = check_steps("the noise scale", rounded_up(tests.size / ((1 - share) * total)))
    least = 1 + laplace_cutoff(slack / tests.size, test_scale)

    def draw(noise: NoiseSource) -> float | None:
        passed = bool((noise.add_laplace(tests, test_scale) >= least).any())
        if not passed or value is None:
            return None
        noisy = statistic.restored(noise.add_laplace(statistic.steps(step), release_scale), step)
        assert isinstance(noisy, float)
        return noisy

    return released(event, draw, account=account, seed=seed, purpose=purpose)


def log_iqr(
    columns: Sequence[ArrayLike],
    *,
    lower: float,
    upper: float,
    epsilon: float,
    delta: float,
    weights: Sequence[float] = (1.0,),
    width: float = 0.5,
    relation: Relation = "replace_one",
    account: Account | None = None,
    seed: Seed = None,
    purpose: str = "log interquartile range",
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
        relation: Must be ``"replace_one"``: quartiles of a table whose size changes are not covered.
        account: What to charge, before noise is drawn; None leaves charging to the caller.
        seed: None for a release; a seed makes the noise repeatable and the result not for release.
        purpose: Why, for the account.

    Returns:
        The noisy sum, or None for "no answer"; both cost the same.

    Raises:
        InputError: If an argument is out of range; nothing was spent.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** (ε, δ)-differentially private for a whole record, all columns at once, by
    :func:`propose_test_release` with the distance :math:`\min_j \max(A_{j,1}, A_{j,2})` (a minimum of maxima of
    sensitivity-1 distances, :mod:`escudo.mechanisms._iqr`): where it is at least 2, every column shares a bin with
    its neighbour, and the sum moves by less than :math:`w \sum_j |c_j|`.

    Prefer :func:`quantiles` unless the bounds are very wide: it always answers, is purely ε-private and errs less.

    **Reference.** Design note "sensitivities", Proposition 8, joint variant.

    >>> noise = np.random.default_rng(0).normal(size=4000)
    >>> answer = log_iqr([noise], lower=-50, upper=50, epsilon=4.0, delta=1e-6, seed=0).value
    >>> abs(answer - math.log(1.35)) < 1
    True
    """
    if parse_relation(relation) != "replace_one":
        raise InputError("log_iqr holds for relation='replace_one', where the number of records is public.")
    factors = [finite("weights", weight) for weight in weights]
    if len(factors) != len(columns) or not any(factors):
        raise InputError(
            f"weights must be one factor per column, not all 0; got {len(factors)} for {len(columns)} columns."
        )
    found = [read_log_iqr(column, lower=lower, upper=upper, width=width) for column in columns]
    if len({part.records for part in found}) > 1:
        raise InputError("columns must all have the same number of records: they describe the same ones.")
    return propose_test_release(
        _weighted(found, factors),
        min(max(part.distances) for part in found),
        sensitivity=positive("width", width) * math.fsum(map(abs, factors)),
        epsilon=epsilon,
        delta=delta,
        relation=relation,
        account=account,
        seed=seed,
        purpose=purpose,
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
