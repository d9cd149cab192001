r"""Which columns to adjust for: the back-door question, answered from the graph alone.

The effect of a treatment t on an outcome y is identified by adjusting for Z,

.. math:: E[y \mid do(t)] = \sum_z P(z)\, E[y \mid t, z],

if and only if Z holds nothing that lies on, or descends from, a causal path from t to y, and blocks every other path
between them. Among all such sets the one with the fewest cells is taken, because every cell of the table gets noise of
its own: a minimum cut, with a column's weight the logarithm of its number of cells. Of several smallest sets it is the
one nearest to the outcome: it leaves the least chance variation, and says the least about the treatment.

In a partially directed graph, with the arrows that its own imply, the same is asked of all graphs it stands for at
once: every possibly causal path must leave t by an arrow, and what *may* descend from one is left out. A path that may
go back along itself counts as possible here, which can only refuse more.

**Reference.** I. Shpitser, T. VanderWeele, J. Robins (2010), "On the validity of covariate adjustment", UAI, theorem 2;
E. Perković, J. Textor, M. Kalisch, M. Maathuis (2018), "Complete graphical characterization and construction of
adjustment sets", JMLR 18:220, theorems 5 and 7; B. van der Zander, M. Liśkiewicz, J. Textor (2019), "Separators and
adjustment sets in causal graphs", Artificial Intelligence 270, section 5, for the minimum cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from escudo._validate import did_you_mean
from escudo.causal import CausalGraph
from escudo.discovery._pattern import closed
from escudo.errors import GraphError, InputError, NotIdentifiableError

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["check_adjustment", "open_path", "smallest_adjustment"]

_PER_UNIT = 1_000_000  # weights are whole numbers, so that the cut is exact


def smallest_adjustment(graph: CausalGraph, treatment: str, outcome: str, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return the adjustment set whose table has the fewest cells, in the order of ``sizes``.

    Args:
        graph: Which column causes which; latents and names without a size cannot be adjusted for.
        treatment: The cause.
        outcome: The effect.
        sizes: How many cells each observed column has.

    Raises:
        NotIdentifiableError: If no observed columns will do; names a path that stays open, or the edge whose direction
            decides.
        InputError: If the graph has no causal path from one to the other.

    >>> graph = CausalGraph.from_edges([("age", "smoke"), ("age", "lung"), ("smoke", "lung"), ("lung", "xray")])
    >>> smallest_adjustment(graph, "smoke", "lung", {"age": 3, "xray": 2, "smoke": 2, "lung": 2})
    ('age',)
    """
    import networkx as nx

    question = _Question.of(graph, treatment, outcome)
    usable = question.usable(sizes)
    moral = question.moral_graph()
    flow: nx.DiGraph[tuple[str, str]] = nx.DiGraph()
    for name in moral.nodes:
        capacity = {"capacity": round(math.log(sizes[name]) * _PER_UNIT) + 1} if name in usable else {}
        flow.add_edge((name, "in"), (name, "out"), **capacity)
    for a, b in moral.edges:
        flow.add_edge((a, "out"), (b, "in"))
        flow.add_edge((b, "out"), (a, "in"))
    try:
        # Of several minimum cuts, networkx gives the one nearest to the sink.
        _, (near, _) = nx.minimum_cut(flow, (treatment, "out"), (outcome, "in"))
    except nx.NetworkXUnbounded:
        raise question.refusal(sizes) from None
    cut = {name for name, side in near if side == "in" and (name, "out") not in near}
    return tuple(name for name in sizes if name in cut)


def check_adjustment(graph: CausalGraph, treatment: str, outcome: str, columns: Collection[str]) -> None:
    """Raise unless adjusting for these columns gives the effect.

    Raises:
        NotIdentifiableError: Names the column that must not be adjusted for, or the path that stays open.
        InputError: If the graph has no causal path from one to the other.
    """
    question = _Question.of(graph, treatment, outcome)
    for name in columns:
        if name not in question.dag:
            raise GraphError(
                f"The graph does not have {name!r}, so it cannot say whether to adjust for it."
                f"{did_you_mean(name, question.dag.nodes)} Add it to the graph, or leave the graph out."
            )
        if name in question.forbidden:
            raise NotIdentifiableError(
                f"Adjusting for {name!r} would hide part of the effect of {treatment!r} on {outcome!r}: the graph has "
                "it on a causal path between them, or as an effect of such a path. Leave it out of adjust."
            )
    path = open_path(question.pruned, treatment, outcome, columns)
    if path:
        raise NotIdentifiableError(
            f"Adjusting for {_listed(columns)} leaves the path {path} open between {treatment!r} and {outcome!r}. "
            "Leave adjust out to have a set chosen, or add a column on that path."
        )


def open_path(dag: CausalGraph, start: str, end: str, given: Iterable[str]) -> str:
    """Return a shortest path that ``given`` leaves open, such as ``a ← u → b``; an empty text if there is none.

    Reference:
        Shachter, "Bayes-ball", UAI 1998: a ball that came from a child or a parent passes on or bounces back.
    """
    blocked = set(given)
    collider = blocked | set(dag.ancestors(blocked)) if blocked else set()
    came: dict[tuple[str, str], tuple[str, str] | None] = {(start, "up"): None}
    queue = [(start, "up")]
    for place in queue:
        name, way = place
        if name == end:
            return _drawn(came, place)
        steps: list[tuple[str, str]] = []
        if name not in blocked or name == start:
            steps += [(child, "down") for child in dag.children(name)]
            if way == "up":
                steps += [(parent, "up") for parent in dag.parents(name)]
        if way == "down" and name in collider:
            steps += [(parent, "up") for parent in dag.parents(name)]
        for step in steps:
            if step not in came and step[0] != start:
                came[step] = place
                queue.append(step)
    return ""


def _drawn(came: Mapping[tuple[str, str], tuple[str, str] | None], last: tuple[str, str]) -> str:
    text, place = last[0], last
    while (before := came[place]) is not None:
        text = f"{before[0]} {'→' if place[1] == 'down' else '←'} {text}"
        place = before
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """A treatment and an outcome in a graph, and what the graph says of them.

    Attributes:
        dag: The graph, or one of those that a partially directed graph stands for.
        forbidden: What must not be adjusted for: what is, or may be, an effect on a causal path.
        pruned: The graph without the first arrows of causal paths: what is left between the two is not the effect.
    """

    treatment: str
    outcome: str
    dag: CausalGraph
    forbidden: frozenset[str]
    pruned: CausalGraph

    @classmethod
    def of(cls, graph: CausalGraph, treatment: str, outcome: str) -> _Question:
        full = graph.expand("undirected") if graph.groups else graph
        full = full if full.is_dag else closed(full)
        for role, name in (("treatment", treatment), ("outcome", outcome)):
            if name not in full:
                raise GraphError(
                    f"The graph does not have the {role} {name!r}.{did_you_mean(name, full.nodes)} Add it to the graph."
                )
            if name in full.latents:
                raise GraphError(f"The {role} {name!r} is latent in the graph, so its effect cannot be estimated.")

        def onwards(name: str) -> tuple[str, ...]:
            return (*full.children(name), *full.neighbours(name))

        def backwards(name: str) -> tuple[str, ...]:
            return (*full.parents(name), *full.neighbours(name))

        after = _reached(full.children(treatment), onwards, without=treatment)
        before = _reached([outcome], backwards, without=treatment)
        unsure = [name for name in full.neighbours(treatment) if name in before]
        if unsure:
            raise NotIdentifiableError(
                f"The effect of {treatment!r} on {outcome!r} depends on the direction of {treatment} — {unsure[0]}, "
                "which the graph leaves open. Give that edge a direction, from what is known or from "
                "escudo.direction, or say what to adjust for."
            )
        causal = after & before
        if not causal:
            raise InputError(
                f"The graph has no causal path from {treatment!r} to {outcome!r}: by the graph the effect is 0, and "
                "nothing needs to be spent to know it. Swap the two, or change the graph."
            )
        dag = full if full.is_dag else full.extension()
        pruned = CausalGraph(
            nodes=dag.nodes,
            edges=tuple(edge for edge in dag.edges if not (edge[0] == treatment and edge[1] in causal)),
            latents=dag.latents,
        )
        forbidden = _reached(causal, onwards, without=treatment) | {treatment, outcome}
        return cls(treatment=treatment, outcome=outcome, dag=dag, forbidden=frozenset(forbidden), pruned=pruned)

    def usable(self, observed: Iterable[str]) -> set[str]:
        """Return what may be adjusted for."""
        return {name for name in observed if name in self.dag} - self.forbidden - self.dag.latents

    def moral_graph(self) -> nx.Graph[str]:
        """Return the moral graph of what comes before treatment and outcome: separators are cuts in it."""
        import networkx as nx

        kept = {self.treatment, self.outcome, *self.pruned.ancestors([self.treatment, self.outcome])}
        moral = self.pruned.subgraph(kept).moral()
        graph: nx.Graph[str] = nx.Graph()
        graph.add_nodes_from(moral.nodes)
        graph.add_edges_from(moral.undirected_edges)
        return graph

    def refusal(self, observed: Collection[str]) -> NotIdentifiableError:
        """Return the error that names a path which nothing observed can block."""
        earlier = set(self.pruned.ancestors([self.treatment, self.outcome]))
        path = open_path(self.pruned, self.treatment, self.outcome, earlier & self.usable(observed))
        return NotIdentifiableError(
            f"The effect of {self.treatment!r} on {self.outcome!r} is not identified by adjustment: the path {path} "
            f"stays open whatever observed columns are adjusted for{self._why(path, observed)}. Measure what is "
            "missing, or run a randomised trial."
        )

    def _why(self, path: str, observed: Collection[str]) -> str:
        missing = sorted(name for name in self.dag.nodes if name not in observed and f" {name} " in f" {path} ")
        if not missing:
            return ""
        if missing[0] in self.dag.latents:
            return f" ({missing[0]!r} is not observed)"
        return f" ({missing[0]!r} is no column of the schema.{did_you_mean(missing[0], observed)})"


def _reached(start: Iterable[str], step: Callable[[str], Iterable[str]], *, without: str) -> set[str]:
    """Return the start and all that steps lead to, never through ``without``."""
    found = set(start) - {without}
    queue = list(found)
    while queue:
        for name in step(queue.pop()):
            if name != without and name not in found:
                found.add(name)
                queue.append(name)
    return found


def _listed(columns: Collection[str]) -> str:
    return ", ".join(map(repr, columns)) if columns else "nothing"
