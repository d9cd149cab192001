"""What a release does not protect, and what its data cannot be used for: said once, in plain words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from escudo.privacy import ExponentialEvent
from escudo.report._record import Noise, observed_pairs
from escudo.table import Numeric

if TYPE_CHECKING:
    from escudo.synthesis import Model

__all__ = ["FoundEdge", "discovered_edges", "limits_of", "picks_arrows"]

_NAMED = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEdge:
    """An edge that a discovery reported.

    Attributes:
        first: The cause, where it has a direction.
        second: The effect.
        directed: Whether it has one.
        sure: The estimated probability that the two are joined.
        way: The estimated probability that the direction is right, if they are; None where it is known or open.
    """

    first: str
    second: str
    directed: bool
    sure: float
    way: float | None

    @property
    def text(self) -> str:
        """The edge for people."""
        return f"{self.first} {'→' if self.directed else '—'} {self.second}"


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
            "The promise is a theorem about how the release was made and does not rest on attacks. What the custodian "
            "tried is no part of the public report: its results are about single people.",
        ),
    ]


def _use(model: Model, *, noise: Sequence[Noise], added: Sequence[tuple[str, str]] | None) -> list[tuple[str, str]]:
    found = [*_graph(model), *_open_ends(model, added)]
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


def _graph(model: Model) -> list[tuple[str, str]]:
    """Return what rests on the graph: an assumption if it was given, a finding with errors if it was discovered."""
    alone = (
        "Given its causes, and the columns it was seen to go with, a column depends on nothing else here"
        if observed_pairs(model)
        else "Given its causes, a column depends on nothing else here"
    )
    apart = "columns that no path of arrows joins come out independent, whatever the table says"
    edges = discovered_edges(model)
    if edges is None:
        return [
            (
                "The graph is an assumption",
                f"{alone}; {apart}. What an intervention does follows from the directions of the arrows, which data "
                "alone cannot prove.",
            )
        ]
    directed = [edge for edge in edges if edge.directed]
    sure = [edge for edge in edges if edge.sure >= 0.9]
    found = [
        (
            "The graph was found, not given",
            f"It was learnt from the same table, through the same noise, so it may be wrong. {len(sure)} of "
            f"{len(edges)} edges are there with a confidence of 90 % or more, and {len(directed)} of {len(edges)} have "
            "a direction that the data speak for. A confidence is about noise and chance; a common cause that nobody "
            "measured can make an arrow that is not there, however sure it looks.",
        ),
        ("What follows from it", f"{alone}; {apart}."),
    ]
    others = len(model.graph.edges) - sum(_in(edge, model) for edge in directed)
    if others:
        found.append(
            (
                "Arrows without a finding",
                f"{others} of the {len(model.graph.edges)} arrows drawn only help to imitate the table: their "
                "direction, or that they are there at all, is not a finding. An intervention still follows them, so "
                "do not read cause and effect into what travels along them.",
            )
        )
    return found


def _in(edge: FoundEdge, model: Model) -> bool:
    return (edge.first, edge.second) in model.graph.edges


def discovered_edges(model: Model) -> list[FoundEdge] | None:
    """Return the edges that a discovery reported, the surest first; None if the graph was given."""
    found = model.details.get("discovery")
    if not isinstance(found, Mapping):
        return None
    edges = [
        FoundEdge(
            first=str(edge["from"]),
            second=str(edge["to"]),
            directed=bool(edge["directed"]),
            sure=float(edge["confidence"]),
            way=None if edge["direction_confidence"] is None else float(edge["direction_confidence"]),
        )
        for edge in found["edges"]
    ]
    return sorted(edges, key=lambda edge: -edge.sure)


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
    if added and discovered_edges(model) is None:
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
