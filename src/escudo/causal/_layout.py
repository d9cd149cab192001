"""Where to draw each node and edge: layers from causes to effects, few crossings, straight long edges.

The four steps of Sugiyama, Tagawa and Toda ("Methods for visual understanding of hierarchical system structures",
1981): layers; dummy points where an edge passes a layer; an order within each layer by barycentres; coordinates, here
by exact least squares per layer. Everything is deterministic. "Along" is the direction arrows run in, "across" the
other; a caller that wants arrows to run to the right swaps the two.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from escudo.causal._check import Edge

__all__ = ["Layout", "Point", "lay_out"]

Point = tuple[float, float]

_LINE_GAP = 14.0
_LAYER_GAP = 46.0
_COMPONENT_GAP = 36.0
_SWEEPS = 24


@dataclass(slots=True)
class Layout:
    """Positions as (across, along): node centres, edge routes from end to end, and the points edge labels stand at."""

    across: float = 0.0
    along: float = 0.0
    places: dict[str, Point] = field(default_factory=dict)
    routes: dict[Edge, list[Point]] = field(default_factory=dict)
    labels: dict[Edge, Point] = field(default_factory=dict)

    def add(self, part: Layout, across: float, along: float) -> None:
        """Take over a part, moved by so much."""
        self.places.update({name: (x + across, y + along) for name, (x, y) in part.places.items()})
        self.labels.update({edge: (x + across, y + along) for edge, (x, y) in part.labels.items()})
        self.routes.update({edge: [(x + across, y + along) for x, y in route] for edge, route in part.routes.items()})
        self.across, self.along = max(self.across, across + part.across), max(self.along, along + part.along)


@dataclass(slots=True)
class _Item:
    """A node, or the point where an edge passes a layer; it may reach further after its anchor than before it."""

    before: float
    after: float
    depth: float
    name: str | None = None
    edge: Edge | None = None
    up: list[int] = field(default_factory=list)
    down: list[int] = field(default_factory=list)


def lay_out(
    sizes: Mapping[str, Point], edges: Sequence[Edge], label_sizes: Mapping[Edge, Point], *, gap: float
) -> Layout:
    """Place nodes of the given (across, along) sizes, ``gap`` apart, so that all edges (no cycle) run along.

    Parts that no edge connects are laid out alone and set side by side in rows, single nodes last.
    """
    parts = []
    for nodes in _components(sizes, edges):
        inside = [edge for edge in edges if edge[0] in nodes]
        parts.append(_lay_out_connected({name: sizes[name] for name in nodes}, inside, label_sizes, gap))
    return _pack(parts)


def _components(sizes: Mapping[str, Point], edges: Sequence[Edge]) -> list[dict[str, None]]:
    adjacent: dict[str, list[str]] = {name: [] for name in sizes}
    for a, b in edges:
        adjacent[a].append(b)
        adjacent[b].append(a)
    found: list[dict[str, None]] = []
    seen: set[str] = set()
    for name in sizes:
        if name in seen:
            continue
        part, queue = {name}, [name]
        while queue:
            for other in adjacent[queue.pop()]:
                if other not in part:
                    part.add(other)
                    queue.append(other)
        seen |= part
        found.append({node: None for node in sizes if node in part} if len(part) > 1 else {name: None})
    return found


def _pack(parts: list[Layout]) -> Layout:
    """Set parts side by side, in rows no wider than the widest part or a comfortable shape."""
    if len(parts) == 1:
        return parts[0]
    area = sum((part.across + _COMPONENT_GAP) * (part.along + _COMPONENT_GAP) for part in parts)
    limit = max([*(part.across for part in parts), (1.6 * area) ** 0.5])
    whole, across, along, deepest = Layout(), 0.0, 0.0, 0.0
    singles = False
    for part in sorted(parts, key=lambda part: (not part.routes, -part.along)):
        first_single = not part.routes and not singles
        if across and (across + part.across > limit or first_single):
            across, along, deepest = 0.0, along + deepest + _COMPONENT_GAP, 0.0
        singles = not part.routes
        whole.add(part, across, along)
        across, deepest = across + part.across + _COMPONENT_GAP, max(deepest, part.along)
    return whole


def _lay_out_connected(
    sizes: Mapping[str, Point], edges: Sequence[Edge], label_sizes: Mapping[Edge, Point], gap: float
) -> Layout:
    step = 2 if any(edge in label_sizes for edge in edges) else 1  # room for a label between two layers
    depth = _layers(list(sizes), edges)
    items: list[_Item] = []
    layers: list[list[int]] = [[] for _ in range(step * max(depth.values(), default=0) + 1)]
    number: dict[str, int] = {}
    for name, (width, height) in sizes.items():
        number[name] = len(items)
        items.append(_Item(width / 2, width / 2, height, name=name))
        layers[step * depth[name]].append(number[name])
    chains: dict[Edge, list[int]] = {}
    for edge in edges:
        first, last = step * depth[edge[0]], step * depth[edge[1]]
        labelled = (first + last) // 2 | 1 if edge in label_sizes else -1
        chain = [number[edge[0]]]
        for layer in range(first + 1, last):
            width, height = label_sizes[edge] if layer == labelled else (0.0, 0.0)
            items.append(_Item(2.0, 2.0 + width, height, edge=edge))
            layers[layer].append(len(items) - 1)
            chain.append(len(items) - 1)
        chain.append(number[edge[1]])
        for above, below in pairwise(chain):
            items[above].down.append(below)
            items[below].up.append(above)
        chains[edge] = chain
    _reduce_crossings(items, layers)
    across = _coordinates(items, layers, gap)
    along, thickness = _depths(items, layers, across, _LAYER_GAP if step == 1 else 0.62 * _LAYER_GAP)
    return _assemble(items, chains, across, along, thickness)


def _layers(nodes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Return a layer for each node so that every edge runs forward and the edges are as short as can be in total.

    The linear program min Σ (layer of head − layer of tail), each difference at least 1, has a totally unimodular
    matrix, so the corner that the simplex method ends in has whole numbers.
    """
    if not edges:
        return dict.fromkeys(nodes, 0)
    import numpy as np
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    place = {name: number for number, name in enumerate(nodes)}
    tails, heads = [place[tail] for tail, _ in edges], [place[head] for _, head in edges]
    rows, ones = range(len(edges)), np.ones(len(edges))
    matrix = coo_array(
        (np.r_[ones, -ones], (np.r_[rows, rows], np.r_[tails, heads])), shape=(len(edges), len(nodes))
    ).tocsr()
    cost = np.bincount(heads, minlength=len(nodes)) - np.bincount(tails, minlength=len(nodes))
    found = linprog(cost, A_ub=matrix, b_ub=-ones, bounds=(0, len(nodes)), method="highs-ds").x
    layers = np.rint(found).astype(int)
    return dict(zip(nodes, (layers - layers.min()).tolist(), strict=True))


def _reduce_crossings(items: list[_Item], layers: list[list[int]]) -> None:
    """Reorder each layer in place: sweeps by barycentre, then exchanges of neighbours, keeping the best order seen."""
    best, fewest, since = [list(layer) for layer in layers], _crossings(items, layers), 0
    for sweep in range(_SWEEPS):
        if not fewest or since == 6:
            break
        downwards = sweep % 2 == 0
        for number in range(1, len(layers)) if downwards else range(len(layers) - 2, -1, -1):
            fixed = layers[number - 1 if downwards else number + 1]
            _sort_by_barycentre(items, layers[number], fixed, upwards=downwards, flip=sweep % 4 >= 2)
        if len(items) <= 400:
            _exchange(items, layers)
        crossings = _crossings(items, layers)
        since += 1
        if crossings < fewest:
            best, fewest, since = [list(layer) for layer in layers], crossings, 0
    for layer, order in zip(layers, best, strict=True):
        layer[:] = order


def _sort_by_barycentre(items: list[_Item], layer: list[int], fixed: list[int], *, upwards: bool, flip: bool) -> None:
    place = {item: number for number, item in enumerate(fixed)}
    scale = len(fixed) / max(len(layer), 1)
    centre = {}
    for number, item in enumerate(layer):
        near = [place[other] for other in (items[item].up if upwards else items[item].down)]
        centre[item] = sum(near) / len(near) if near else number * scale
    if flip:  # ties in reverse: a way out of an order that two equal sweeps would keep
        layer.reverse()
    layer.sort(key=centre.__getitem__)


def _exchange(items: list[_Item], layers: list[list[int]]) -> None:
    places = [{item: number for number, item in enumerate(layer)} for layer in layers]
    for number, layer in enumerate(layers):
        above = places[number - 1] if number else {}
        below = places[number + 1] if number + 1 < len(layers) else {}
        ends = {
            item: (sorted(above[other] for other in items[item].up), sorted(below[other] for other in items[item].down))
            for item in layer
        }
        for left in range(len(layer) - 1):
            a, b = ends[layer[left]], ends[layer[left + 1]]
            now = _inversions(a[0], b[0]) + _inversions(a[1], b[1])
            if now > _inversions(b[0], a[0]) + _inversions(b[1], a[1]):
                layer[left], layer[left + 1] = layer[left + 1], layer[left]
        places[number] = {item: at for at, item in enumerate(layer)}


def _inversions(left: list[int], right: list[int]) -> int:
    return sum(bisect_left(right, end) for end in left)


def _crossings(items: list[_Item], layers: list[list[int]]) -> int:
    total = 0
    for upper, lower in pairwise(layers):
        place = {item: number for number, item in enumerate(lower)}
        seen: list[int] = []
        for item in upper:
            ends = sorted(place[other] for other in items[item].down)
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _coordinates(items: list[_Item], layers: list[list[int]], gap: float) -> list[float]:
    """Return each item's place across: near its neighbours, in the layer's order, with room between.

    One layer at a time with the others fixed, minimising Σ w (x − mean of neighbours)² subject to x_{i+1} − x_i ≥ gap,
    which is an isotonic regression. Long edges weigh more, so that they run straight.
    """
    across = [0.0] * len(items)
    offsets: list[list[float]] = []
    for layer in layers:
        reach = [0.0]
        for left, right in pairwise(layer):
            lines = items[left].name is None and items[right].name is None
            reach.append(reach[-1] + items[left].after + items[right].before + (_LINE_GAP if lines else gap))
        offsets.append(reach)
        for item, place in zip(layer, reach, strict=False):
            across[item] = place - reach[-1] / 2

    def weight(a: int, b: int) -> float:
        return (16.0, 2.0, 1.0)[(items[a].name is not None) + (items[b].name is not None)]

    def settle(number: int, near: Callable[[_Item], list[int]]) -> None:
        layer = layers[number]
        wanted, weights = [], []
        for item in layer:
            others = [(weight(item, other), across[other]) for other in near(items[item])]
            total = sum(w for w, _ in others)
            wanted.append(sum(w * x for w, x in others) / total if total else across[item])
            weights.append(total or 1e-3)
        for item, place in zip(layer, _isotonic(wanted, weights, offsets[number]), strict=True):
            across[item] = place

    for _ in range(_SWEEPS):
        for number in range(1, len(layers)):
            settle(number, lambda item: item.up)
        for number in range(len(layers) - 2, -1, -1):
            settle(number, lambda item: item.down)
    for number in [*range(len(layers)), *reversed(range(len(layers)))] * 6:
        settle(number, lambda item: item.up + item.down)
    start = min((across[item] - items[item].before for layer in layers for item in layer), default=0.0)
    return [place - start for place in across]


def _isotonic(wanted: list[float], weights: list[float], offsets: list[float]) -> list[float]:
    """Return the weighted least-squares places with differences of at least those of ``offsets`` (pool adjacent)."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, length
    for want, weight, offset in zip(wanted, weights, offsets, strict=False):
        mean, total, length = want - offset, weight, 1
        while blocks and blocks[-1][0] > mean:
            earlier, mass, count = blocks.pop()
            mean = (mean * total + earlier * mass) / (total + mass)
            total, length = total + mass, length + count
        blocks.append((mean, total, length))
    means = [mean for mean, _, length in blocks for _ in range(length)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=False)]


def _depths(
    items: list[_Item], layers: list[list[int]], across: list[float], gap: float
) -> tuple[list[float], list[float]]:
    """Return each item's place along and its layer's thickness; layers joined by wide edges stand further apart."""
    along, thickness = [0.0] * len(items), [0.0] * len(items)
    edge = 0.0
    for number, layer in enumerate(layers):
        thick = max((items[item].depth for item in layer), default=0.0)
        for item in layer:
            along[item], thickness[item] = edge + thick / 2, thick
        spans = sorted(abs(across[item] - across[other]) for item in layer for other in items[item].down)
        wide = spans[len(spans) * 9 // 10] if spans else 0.0
        edge += thick + (min(max(gap, 0.24 * wide), 320.0) if number + 1 < len(layers) else 0.0)
    return along, thickness


def _assemble(
    items: list[_Item],
    chains: Mapping[Edge, list[int]],
    across: list[float],
    along: list[float],
    thickness: list[float],
) -> Layout:
    made = Layout(
        across=max(across[number] + item.after for number, item in enumerate(items)),
        along=max(along[number] + item.depth / 2 for number, item in enumerate(items)),
        places={item.name: (across[n], along[n]) for n, item in enumerate(items) if item.name is not None},
    )
    leaving: dict[int, list[tuple[float, Edge]]] = {}
    entering: dict[int, list[tuple[float, Edge]]] = {}
    for edge, chain in chains.items():
        leaving.setdefault(chain[0], []).append((across[chain[1]], edge))
        entering.setdefault(chain[-1], []).append((across[chain[-2]], edge))
    starts, ends = _ports(items, leaving), _ports(items, entering)
    for edge, chain in chains.items():
        first, last = chain[0], chain[-1]
        start = (across[first] + starts[edge], along[first] + items[first].depth / 2)
        end = (across[last] + ends[edge], along[last] - items[last].depth / 2)
        stops = [start, *((across[number], along[number]) for number in chain[1:-1]), end]
        # A node thinner than its layer is left and reached straight, so that no edge cuts a thicker neighbour.
        route = [start]
        if thickness[first] > items[first].depth:
            route.append((start[0], along[first] + thickness[first] / 2))
        for number, before, (x, y), after in zip(chain[1:-1], stops, stops[1:], stops[2:], strict=False):
            half = thickness[number] / 2
            lean = 0.0 if items[number].depth else _lean(before, (x, y), after, half)
            route += [(x - lean, y - half), (x + lean, y + half)] if half else [(x, y)]
            if items[number].depth:
                made.labels[edge] = (x, y)
        if thickness[last] > items[last].depth:
            route.append((end[0], along[last] - thickness[last] / 2))
        made.routes[edge] = [*route, end]
    return made


def _lean(before: Point, at: Point, after: Point, half: float) -> float:
    """Return how far aside an edge may move while it passes a layer: with its course, but clear of its neighbours."""
    into, out = (at[0] - before[0]) / (at[1] - before[1]), (after[0] - at[0]) / (after[1] - at[1])
    if into * out <= 0:
        return 0.0
    slope = 2 * into * out / (into + out)
    return max(-_LINE_GAP / 2, min(slope * half, _LINE_GAP / 2))


def _ports(items: list[_Item], sides: Mapping[int, list[tuple[float, Edge]]]) -> dict[Edge, float]:
    """Return how far from its node's middle each edge ends, so that edges arrive side by side in their own order."""
    offsets = {}
    for number, ends in sides.items():
        room = max(items[number].before + items[number].after - 20.0, 0.0)
        step = min(14.0, room / max(len(ends) - 1, 1))
        for place, (_, edge) in enumerate(sorted(ends)):
            offsets[edge] = (place - (len(ends) - 1) / 2) * step
    return offsets
