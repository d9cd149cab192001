"""Choosing one of finitely many public candidates by their private utilities."""

from __future__ import annotations

from numpy.typing import ArrayLike

from escudo._validate import positive
from escudo.errors import InputError
from escudo.mechanisms._grid import Statistic, check_steps, default_grid, read_statistic, rounded_up
from escudo.mechanisms._noise import Integers, NoiseSource, Seed
from escudo.mechanisms._release import Release, bound_on_rows, released
from escudo.privacy import Account, ExponentialEvent, PureEvent, Relation, Unit

__all__ = ["exponential", "permute_and_flip", "select_scale"]


def exponential(
    utilities: ArrayLike,
    *,
    sensitivity: float,
    epsilon: float,
    grid: float | None = None,
    relation: Relation = "replace_one",
    unit: Unit = "row",
    max_rows_per_person: int | None = None,
    account: Account | None = None,
    seed: Seed = None,
    purpose: str = "exponential mechanism",
) -> Release[int]:
    r"""Choose a candidate with probability proportional to the exponential of its utility.

    .. math:: P(i) \propto e^{ε u_i / (2Δ)}

    Drawn as the largest of :math:`u_i` + Gumbel noise of scale 2Δ/ε. Prefer :func:`permute_and_flip` for one choice;
    prefer this one where many choices are composed, because its range is bounded.

    Args:
        utilities: One number per candidate, shape (n,). Integers are used as they are; floats are rounded to the grid.
        sensitivity: Most that any one utility moves between neighbours.
        epsilon: What the choice may cost.
        grid: Step of the public grid for float utilities, a power of two; derived from the sensitivity by default.
        relation: The neighbouring relation ``sensitivity`` is stated for.
        unit: The unit ``sensitivity`` is stated for.
        max_rows_per_person: With ``unit="person"``: the most rows of one person that take part; the account's by
            default.
        account: What to charge, before noise is drawn; None leaves charging to the caller.
        seed: None for a release; a seed makes the choice repeatable and not for release.
        purpose: Why, for the account.

    Returns:
        The chosen index, with its guarantee.

    Raises:
        InputError: If an argument is out of range; nothing was spent.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** ε-differentially private and of bounded range ε (hence ε²/8-zCDP), exactly: utilities are whole
    numbers of grid steps, their sensitivity Δ is taken after rounding (:mod:`escudo.mechanisms._grid`), and the noise
    is sampled without floating point error. *Proof.* For neighbours the ratio of the weights of candidate i is
    :math:`e^{ε(u_i - u'_i)/2Δ}`, within :math:`e^{\pm ε/2}`; the ratio c of the two normalisers is the same for all i
    and lies in the same interval. So the log-ratios of all candidates lie in an interval of length ε, and each is at
    most ε.

    **Reference.** F. McSherry, K. Talwar (2007), "Mechanism design via differential privacy", Theorem 6; M. Cesar,
    R. Rogers (2021), "Bounding, concentrating, and truncating", arXiv:2004.07223, for bounded range and zCDP.

    >>> exponential([0, 50, 3], sensitivity=1, epsilon=1.0, seed=7).value
    1
    """
    rows = bound_on_rows(unit, max_rows_per_person, account)
    budget = positive("epsilon", epsilon)
    event = ExponentialEvent(epsilon=budget, relation=relation, unit=unit, max_rows_per_person=rows)
    steps, scale = select_scale(utilities, sensitivity=sensitivity, epsilon=event.epsilon, grid=grid)

    def draw(noise: NoiseSource) -> int:
        return noise.gumbel_argmax(steps, scale)

    return released(event, draw, account=account, seed=seed, purpose=purpose)


def permute_and_flip(
    utilities: ArrayLike,
    *,
    sensitivity: float,
    epsilon: float,
    grid: float | None = None,
    relation: Relation = "replace_one",
    unit: Unit = "row",
    max_rows_per_person: int | None = None,
    account: Account | None = None,
    seed: Seed = None,
    purpose: str = "permute-and-flip",
) -> Release[int]:
    r"""Choose a candidate, never worse in expectation than the exponential mechanism at the same epsilon.

    Go through the candidates in random order and take candidate i with probability
    :math:`e^{ε(u_i - \max u) / (2Δ)}`, until one is taken; equivalently, take the largest of :math:`u_i` + exponential
    noise of mean 2Δ/ε, which is how it is drawn.

    Args:
        utilities: One number per candidate, shape (n,). Integers are used as they are; floats are rounded to the grid.
        sensitivity: Most that any one utility moves between neighbours.
        epsilon: What the choice may cost.
        grid: Step of the public grid for float utilities, a power of two; derived from the sensitivity by default.
        relation: The neighbouring relation ``sensitivity`` is stated for.
        unit: The unit ``sensitivity`` is stated for.
        max_rows_per_person: With ``unit="person"``: the most rows of one person that take part; the account's by
            default.
        account: What to charge, before noise is drawn; None leaves charging to the caller.
        seed: None for a release; a seed makes the choice repeatable and not for release.
        purpose: Why, for the account.

    Returns:
        The chosen index, with its guarantee.

    Raises:
        InputError: If an argument is out of range; nothing was spent.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** ε-differentially private, exactly (integers and exact sampling as in :func:`exponential`); not of
    bounded range ε. *Proof.* Fix the noise of all other candidates and let t be their largest noisy utility; i wins
    if its noise exceeds t - u_i. Between neighbours t - u_i moves by at most 2Δ, and an exponential tail :math:`P(E >
    x) = \min(1, e^{-xε/2Δ})` shifted by 2Δ changes by a factor at most e^ε. Average over the other noise.

    **Reference.** R. McKenna, D. Sheldon (2020), arXiv:2010.12603, Theorem 1; Z. Ding et al. (2021), arXiv:2105.07260,
    Theorem 1, for the noisy-max form.

    >>> permute_and_flip([0, 50, 3], sensitivity=1, epsilon=1.0, seed=7).value
    1
    """
    rows = bound_on_rows(unit, max_rows_per_person, account)
    budget = positive("epsilon", epsilon)
    event = PureEvent(epsilon=budget, relation=relation, unit=unit, max_rows_per_person=rows)
    steps, scale = select_scale(utilities, sensitivity=sensitivity, epsilon=event.epsilon, grid=grid)

    def draw(noise: NoiseSource) -> int:
        return noise.exponential_argmax(steps, scale)

    return released(event, draw, account=account, seed=seed, purpose=purpose)


def select_scale(
    utilities: ArrayLike, *, sensitivity: float, epsilon: float, grid: float | None = None
) -> tuple[Integers, float]:
    """Return utilities in grid steps, and the noise scale 2Δ/ε in steps that makes their noisy maximum cost ε."""
    statistic: Statistic = read_statistic("utilities", utilities)
    if statistic.numbers.ndim != 1:
        raise InputError(f"utilities must be one-dimensional; got {statistic.numbers.ndim} dimensions.")
    delta = positive("sensitivity", sensitivity)
    step = default_grid(statistic, sensitivity=delta, scale=2 * delta / epsilon, norm="linf", grid=grid)
    moved = check_steps("sensitivity", statistic.sensitivity_in_steps(delta, step, "linf"))
    return statistic.steps(step), check_steps("the noise scale", rounded_up(2 * moved / epsilon))
