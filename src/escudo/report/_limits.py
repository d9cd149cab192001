"""What a release does not protect, and what its data cannot be used for: said once, in plain words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from escudo.privacy import ExponentialEvent
from escudo.report._record import Noise
from escudo.table import Numeric

if TYPE_CHECKING:
    from escudo.synthesis import Model

__all__ = ["limits_of", "picks_arrows"]

_NAMED = 12


def limits_of(
    model: Model, *, noise: Sequence[Noise], added: Sequence[tuple[str, str]] | None
) -> dict[str, list[tuple[str, str]]]:
    """Return headed warnings in two groups: about privacy, and about use.

    Args:
        model: The released model.
        noise: The noise of its tables.
        added: Arrows that nobody stated; None if that is not known.
    """
    return {
        "What it does not protect": _privacy(model),
        "What the data cannot tell": _use(model, noise=noise, added=added),
    }


def _privacy(model: Model) -> list[tuple[str, str]]:
    guarantee = model.guarantee
    if guarantee.unit == "row":
        several = (
            "The promise is for one row. A person with several rows, or a family whose rows resemble each other, gets "
            "the weaker promise of the table above."
        )
    else:
        several = (
            f"The promise is for one person with at most {guarantee.max_rows_per_person} rows; further rows were left "
            "out. A family gets the weaker promise of the table above."
        )
    public = ["the names, levels and bounds of the columns", "the causal graph"]
    if guarantee.relation == "replace_one" and guarantee.unit == "row":
        public.append("how many rows the table has")
    return [
        (
            "What is true of many",
            "The release is meant to show what holds for people in general. If smoking causes cancer, anyone can learn "
            "that and apply it to you, whether or not you are in the table.",
        ),
        ("More than one row", several),
        (
            "Other releases",
            "Whatever else is released from the same table adds to ε. The custodian’s ledger keeps the sum, and "
            "refuses what goes beyond its cap.",
        ),
        (
            "What counts as public",
            f"Not protected, because they are taken as known to all: {', '.join(public[:-1])} and {public[-1]}.",
        ),
        (
            "What was tried against it",
            "No attack was run on this release. The promise is a theorem about how it was made and does not rest on "
            "one.",
        ),
    ]


def _use(model: Model, *, noise: Sequence[Noise], added: Sequence[tuple[str, str]] | None) -> list[tuple[str, str]]:
    found = [
        (
            "The graph is an assumption",
            "Given its causes, a column depends on nothing else here; columns that no path of arrows joins come out "
            "independent, whatever the table says. What an intervention does follows from the directions of the "
            "arrows, which data alone cannot prove.",
        ),
        *_open_ends(model, added),
    ]
    rows = max((one.rows for one in noise if one.rows is not None), default=None)
    if rows is not None:
        found.append(
            (
                "Small groups",
                f"Counts carry noise of up to ± {rows:.1f} rows (one standard deviation). Groups of fewer than about "
                f"{_round_up(10 * rows):,} rows are too small to study here.",
            )
        )
    if model.generator == "linear":
        found.append(
            (
                "Straight lines",
                "Every column is a linear function of its causes with Gaussian noise. Bends, skew and long tails of "
                "the table are not in it.",
            )
        )
    elif any(isinstance(column, Numeric) for column in model.schema.fields):
        found.append(
            (
                "Inside the bins",
                "Numbers are known up to the bins of the schema. Where a value lies inside its bin is made up, from a "
                "straight line that follows the neighbouring bins.",
            )
        )
    found.append(
        (
            "Standard errors",
            "Those that software computes from synthetic rows know nothing of the privacy noise and are too small. "
            "Drawing more rows makes them smaller, not truer.",
        )
    )
    found.append(
        ("Nobody’s row", "No synthetic row belongs to a person. One that looks like somebody is a coincidence.")
    )
    return found


def _open_ends(model: Model, added: Sequence[tuple[str, str]] | None) -> list[tuple[str, str]]:
    """Return what the graph itself leaves open: latents, and arrows that nobody stated."""
    graph, found = model.graph, []
    if graph.latents:
        found.append(
            (
                "Causes nobody measured",
                f"The graph names {_listed(sorted(graph.latents))} as unobserved. Interventions whose effect such a "
                "cause would blur are refused, not guessed.",
            )
        )
    if added:
        arrows = _listed([f"{cause} → {effect}" for cause, effect in added])
        how = (
            "picked privately, by how much the columns depend on each other"
            if picks_arrows(model)
            else "filled in because the graph left them open"
        )
        found.append(
            (
                "Arrows nobody stated",
                f"{len(added)} of {len(graph.edges)} were {how}: {arrows}. Their directions are the order of the "
                "columns, not a finding; do not read cause and effect into them.",
            )
        )
    return found


def picks_arrows(model: Model) -> bool:
    """Return whether the plan pays for choosing arrows."""
    return any(isinstance(leaf.once, ExponentialEvent) for leaf in model.plan.leaves())


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _round_up(number: float) -> int:
    """Return the number rounded up to two digits.

    >>> _round_up(131.4), _round_up(7.2)
    (140, 8)
    """
    unit = int(10 ** max(0, math.floor(math.log10(max(number, 1))) - 1))
    return math.ceil(number / unit) * unit
