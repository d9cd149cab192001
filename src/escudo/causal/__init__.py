"""Causal graphs, benchmark networks and structural equation models.

* :class:`CausalGraph`: which column causes which; files, d-separation, equivalence, distances, drawing.
* :class:`AncestralGraph`: what can be said of causes where some may be hidden, with circles, arrows and tails.
* :class:`Knowledge`: required and forbidden arrows, and tiers.
* :class:`Network`: a graph with probability tables, to simulate from; :func:`asia` is one that ships.
* :func:`draw`: the picture of a graph as SVG; :class:`Plates`: frames in it around nodes that are there several times.
* :class:`SEM`, made of :class:`Equation`: structural equations over finite variables, with exact answers as
  :class:`Distribution`, :class:`Law` and :class:`Given`.
* :class:`Factor`, :class:`Lookup` and :func:`contract`: tables over variables, and exact sums of their products.
* :mod:`formats`: DOT, GML, dagitty, BIF, adjacency CSV and edge lists, and what each carries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

from escudo.causal import formats
from escudo.causal._ancestral import ARROW as ARROW
from escudo.causal._ancestral import CIRCLE as CIRCLE
from escudo.causal._ancestral import TAIL as TAIL
from escudo.causal._ancestral import AncestralGraph
from escudo.causal._ancestral import Marks as Marks
from escudo.causal._ancestral import as_graph as as_graph
from escudo.causal._ancestral import marks_of as marks_of
from escudo.causal._ancestral import read_graph as read_graph
from escudo.causal._ancestral import show_marked as show_marked
from escudo.causal._draw import draw
from escudo.causal._draw import plot_graph as plot_graph
from escudo.causal._edges import Knowledge
from escudo.causal._edges import first_cycle as first_cycle
from escudo.causal._edges import reach as reach
from escudo.causal._graph import CausalGraph
from escudo.causal._network import Network, asia
from escudo.causal._plates import Plates

if TYPE_CHECKING:
    from escudo.causal._inference import MAX_CELLS as MAX_CELLS
    from escudo.causal._inference import Factor, Lookup, contract
    from escudo.causal._inference import product as product
    from escudo.causal._sem import SEM, Distribution, Given, Law
    from escudo.causal._sem import ancestors as ancestors
    from escudo.causal._sem import copy_of as copy_of
    from escudo.causal._sem_compile import alike as alike
    from escudo.causal._sem_compile import commuting as commuting
    from escudo.causal._sem_equations import Equation
    from escudo.causal._sem_equations import marginal as marginal

# Loaded when first asked for. What __all__ does not list is for the other packages of escudo, not for users.
__getattr__, _, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "_inference": ["MAX_CELLS", "Factor", "Lookup", "contract", "product"],
        "_sem": ["SEM", "Distribution", "Given", "Law", "ancestors", "copy_of"],
        "_sem_compile": ["alike", "commuting"],
        "_sem_equations": ["Equation", "marginal"],
    },
)

__all__ = [
    "SEM",
    "AncestralGraph",
    "CausalGraph",
    "Distribution",
    "Equation",
    "Factor",
    "Given",
    "Knowledge",
    "Law",
    "Lookup",
    "Network",
    "Plates",
    "asia",
    "contract",
    "draw",
    "formats",
]
