r"""How large a δ may be: small against one over the number of people, or said twice.

δ is the probability with which a promise may fail altogether. Publishing one of n records as it is, chosen by chance,
keeps (0, 1/n): a neighbour differs in that record with probability 1/n only. So from δ = 1/n on, an (ε, δ) promise no
longer rules out that somebody's record is handed over, whatever ε is; a tenth of that is where it becomes a risk that
nobody should take without knowing. The rule, for every verb that takes a δ:

* δ ≥ 1/n is refused, unless it is said twice (``accept_large_delta=True``, ``--accept-large-delta``);
* δ > 1/(10 n) is a warning in the plan, the terminal and the report.

n is a public number: what the caller states, or else the number of records under ``replace_one``, which neighbours
share. Under ``add_remove`` the table is not asked. Where n is neither public nor stated the same is done with public
ceilings, 1e-3 and 1e-5. Once noisy counts are released they say what n is about, and the result carries the same
warning in the same words; it is not withheld, since the budget is gone by then and withholding would protect nobody.

Reference:
    C. Dwork, A. Roth (2014), "The algorithmic foundations of differential privacy", section 2.3: a δ of the order of
    one over the number of records allows to publish a few of them whole.
"""

from __future__ import annotations

import math

from escudo.errors import RefusedError
from escudo.privacy._relations import Neighbours, Unit

__all__ = ["delta_warning", "judged_delta", "usual_delta"]

CEILING, CAUTION = 1e-3, 1e-5
"""For a table of unknown size: from here on a δ is refused, and above this one it is a warning."""

USUAL = 1e-6
"""The δ of those who state none, where the table is not so large that it would be too much."""

_NAMES: dict[Unit, str] = {"row": "rows", "person": "people"}


def delta_warning(delta: float, records: float | None, *, unit: Unit = "row") -> str:
    """Return what is to be said about a δ that is large for a table of so many records; empty if nothing is.

    Args:
        delta: The δ of a promise.
        records: The number of rows or people: public, stated or noisy; None where nothing is known about it.
        unit: Which of the two they are.

    >>> delta_warning(1e-7, 22_714)
    ''
    >>> print(delta_warning(1e-5, 22_714))
    δ = 1e-05 is large for about 22,714 rows: above 4e-06, a tenth of one over their number, a promise may well fail for somebody.
    >>> print(delta_warning(0.1, 22_714))
    δ = 0.1 is too large for about 22,714 rows: from one over their number on, publishing a whole row would keep the promise.
    """  # noqa: E501
    refused, cautious = _limits(records)
    if delta <= cautious:
        return ""
    names = _NAMES[unit]
    among = (
        f"a table whose number of {names} is not known" if records is None else f"about {max(records, 1):,.0f} {names}"
    )
    if delta >= refused:
        when = f"with {1 / CEILING:,.0f} of them" if records is None else "from one over their number on"
        what = "a whole row" if unit == "row" else "all rows of somebody"
        return f"δ = {delta:g} is too large for {among}: {when}, publishing {what} would keep the promise."
    tenth = "" if records is None else ", a tenth of one over their number"
    return (
        f"δ = {delta:g} is large for {among}: above {_rounded_down(cautious)}{tenth}, a promise may well fail for "
        "somebody."
    )


def judged_delta(delta: float, neighbours: Neighbours, *, accept_large_delta: bool = False) -> str:
    """Return the warning that a δ deserves before anything is spent, or refuse it.

    Args:
        delta: The δ of the promise.
        neighbours: Whose unit counts, and how many records they have, where that is public.
        accept_large_delta: Whether a δ that the rule refuses was meant.

    Raises:
        RefusedError: If δ is one over the number of records or more and was not said twice; nothing was spent.
    """
    if delta == 0.0:
        return ""
    warning = delta_warning(delta, neighbours.records, unit=neighbours.unit)
    refused, cautious = _limits(neighbours.records)
    if delta < refused or accept_large_delta:
        return warning
    names = _NAMES[neighbours.unit]
    known = "" if neighbours.records is not None else f", state the number of {names} if it is public (rows)"
    raise RefusedError(
        f"{warning} Choose δ of at most {_rounded_down(cautious)}{known}, or say that you mean it with "
        "accept_large_delta=True (--accept-large-delta). Nothing was spent."
    )


def usual_delta(neighbours: Neighbours) -> float:
    """Return the δ for those who state none: 1e-6, or less where a table is so large that this deserves a warning."""
    _, cautious = _limits(neighbours.records)
    return USUAL if cautious >= USUAL else float(_rounded_down(cautious))


def _limits(records: float | None) -> tuple[float, float]:
    """Return from where on a δ is refused, and above what it is a warning."""
    if records is None:
        return CEILING, CAUTION
    whole = 1 / max(records, 1.0)  # a noisy number may be below 1
    return whole, whole / 10


def _rounded_down(delta: float) -> str:
    """Return a δ with one digit, not above the one given.

    >>> _rounded_down(1 / 227_140), _rounded_down(1e-5), _rounded_down(0.1)
    ('4e-06', '1e-05', '0.1')
    """
    power = math.floor(math.log10(delta) + 1e-12)
    return f"{math.floor(delta / 10.0**power + 1e-9) * 10.0**power:.1g}"
