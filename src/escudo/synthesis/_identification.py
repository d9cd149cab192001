r"""What latents leave behind: which arrows the observed columns need without them, and which interventions they forbid.

Two columns are *confounded* if a latent acts on both, directly or through other latents; columns that a chain of
confounded ones joins form a *district*. Let columns be in causal order. Given everything before it, a column depends on

.. math:: \text{pillow}(v) = D_v \cup pa(D_v) \setminus \{v\},

where :math:`D_v` is its district among the columns up to v itself. So the product of :math:`p(v \mid \text{pillow}(v))`
is the observed law, with nothing lost. The parents of earlier confounded columns belong to it: in x → m → y with m and
y confounded, y depends on x given m, and without the arrow x → y even the effect of x, which no latent touches, would
be wrong.

**do(x)** takes out the factor of x alone. That is the true interventional law if x is the last of its district: its
district's factors add up, over x, to those of the others, and other districts do not know how x came about. Otherwise
later columns of the district answer to the latent through x, and the table alone cannot take that apart.

**Reference.** J. Tian, J. Pearl (2002), "A general identification condition for causal effects", AAAI, Lemma 1 and
Theorem 3.
"""

from __future__ import annotations

from collections.abc import Iterable

from escudo.causal import CausalGraph
from escudo.errors import NotIdentifiableError

__all__ = ["Arrow", "check_identified", "without_latents"]

Arrow = tuple[str, str]


def without_latents(graph: CausalGraph) -> list[Arrow]:
    """Return the arrows among observed columns that, without the latents, still give the observed law.

    >>> without_latents(CausalGraph.from_edges([("x", "m"), ("m", "y"), ("u", "m"), ("u", "y")], latents=["u"]))
    [('x', 'm'), ('x', 'y'), ('m', 'y')]
    """
    order = [name for name in graph.topological_order() if name not in graph.latents]
    causes = {name: _causes(graph, name) for name in order}
    arrows = []
    for place, name in enumerate(order):
        district = _district(order[: place + 1], name, causes, graph.latents)
        pillow = district.union(*(causes[member] for member in district)) - graph.latents - {name}
        arrows += [(earlier, name) for earlier in order[:place] if earlier in pillow]
    return arrows


def check_identified(graph: CausalGraph, intervened: Iterable[str]) -> None:
    """Refuse do() on a column that a later one, of the same district, depends on.

    Args:
        graph: A fitted graph: the arrows of :func:`without_latents`, and those out of latents.
        intervened: The columns that are set.

    Raises:
        NotIdentifiableError: Names the column, the latent and what it confounds.
    """
    if not graph.latents:
        return
    observed = [name for name in graph.nodes if name not in graph.latents]
    causes = {name: _causes(graph, name) for name in observed}
    for name in intervened:
        affected = set(graph.descendants(name)) & _district(observed, name, causes, graph.latents)
        if affected:
            latent, first = min(causes[name] & graph.latents), min(affected)
            raise NotIdentifiableError(
                f"The effect of setting {name!r} is not identified: the unobserved {latent!r} acts on it and, through "
                f"what it confounds, on {first!r}, so the table alone cannot tell the two apart. Measure {latent!r}, "
                "or condition with given= if an association is enough."
            )


def _causes(graph: CausalGraph, name: str) -> set[str]:
    """Return the causes of a column, and the latents between them and it."""
    found: set[str] = set()
    waiting = list(graph.parents(name))
    while waiting:
        cause = waiting.pop()
        if cause not in found:
            found.add(cause)
            waiting += graph.parents(cause) if cause in graph.latents else ()
    return found


def _district(among: Iterable[str], name: str, causes: dict[str, set[str]], latents: frozenset[str]) -> set[str]:
    """Return the columns that are joined to one by chains of shared latents, itself included."""
    left = {other: causes[other] & latents for other in among if other != name}
    district, hidden = {name}, causes[name] & latents
    while joined := {other for other, theirs in left.items() if theirs & hidden}:
        district |= joined
        hidden = hidden.union(*(left.pop(other) for other in joined))
    return district
