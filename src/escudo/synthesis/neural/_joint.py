r"""Graph and network together: edges that are learnt with the weights, under one DP-SGD budget.

With ``discover="joint"`` there is no graph to follow, or only a part of one: the steps
are split in two. In the first half every open pair of columns has a gate, an edge's probability, which is learnt with
the weights behind it (:class:`~escudo.synthesis.neural._network.JointNetwork`); then pairs are kept that are joined
more strongly than 99 % of pairs in the same training, noise and all, on rows simulated without a single edge, which is
free; the second half goes on along the graph that is left. All steps are steps of one DP-SGD: what is decided in
between is a function of what they released. Directions are those of an order that was learnt to predict with, which is
no finding: the model's edges are lines, and ``do`` along them is refused, unless ``graph`` states them. In the spirit
of VICause, which the paper uses without saying how it was trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.mechanisms import Purse
from escudo.mechanisms.dpsgd import Training, train
from escudo.privacy import (
    Neighbours,
    Plan,
)
from escudo.synthesis._model import CausalModel, anchor_of
from escudo.synthesis._moments import PreparedMoments
from escudo.synthesis._structure import graph_of, structure_of
from escudo.synthesis.neural._model import NeuralModel
from escudo.synthesis.neural._network import (
    JointNetwork,
    Network,
    Unit,
)
from escudo.synthesis.neural._start import (
    LATENT_RATE,
    MEASURED,
    SEED,
    Codes,
    Floats,
    clip_bound,
    expected_rows,
    learning_rate_for,
    measured_rows,
    parameters_of,
    smallest,
    step_event,
    type_of_codes,
)
from escudo.table import PrivateTable, Schema, Whole

if TYPE_CHECKING:
    pass

_JOINT_QUANTILE = 0.99  # of pairs without an edge, that one which is kept has to exceed


@dataclass(frozen=True, slots=True)
class PreparedJoint:
    """What will be measured and how loudly, where the graph is learnt with the network: public, and fixed beforehand.

    Attributes:
        schema: The columns.
        neighbours: Which tables are neighbours, and what is public about them.
        network: The network with gates.
        generator: The generator's name.
        knowledge: What is known of the graph: its arrows are there, what it forbids is not, all else is open.
        latent: Sizes of z and the layers around it, which join in the second half; none without z.
        start: The levels of single columns, which the training starts from.
        training: Its first half; the clip bound follows from the start, which is released.
        later: How many steps the second half has, at the same noise.
        given: Whether the learning rate was asked for.
        delta: The δ at which the plan is stated.
    """

    schema: Schema
    neighbours: Neighbours
    network: JointNetwork
    _: KW_ONLY
    generator: str
    knowledge: CausalGraph | None
    latent: Mapping[str, Any]
    start: PreparedMoments
    training: Training
    later: int
    given: frozenset[str]
    delta: float

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        rounds, network = self.training, self.network
        step = step_event(self.neighbours, rounds.sampling_probability, rounds.noise_multiplier)
        gates = len(network.pairs) - len(network.known)
        children = [child for child in self.start.plan.children if child.name != "sampling"]
        buys = f"noisy gradients of {network.layout.size:,} parameters, the gates of {gates:,} arrows among them"
        children += [
            Plan("training of graph and network", step, count=rounds.steps, buys=buys),
            Plan("the same on rows simulated without edges"),
            Plan("training along the graph", step, count=self.later, buys="noisy gradients along what was found"),
            Plan("sampling"),
        ]
        return Plan(self.generator, children=children, delta=self.delta)

    def run(self, table: PrivateTable, purse: Purse) -> NeuralModel:
        """Fit the start, learn graph and network, and train along the graph.

        Only the two trainings read rows; the graph is a function of the first one's result and of simulated rows.
        """
        first = self.start.run(table, purse)
        with table.in_one_place(once=False) as whole:
            return self._learnt(first, whole, purse)

    def _learnt(self, first: CausalModel, whole: Whole, purse: Purse) -> NeuralModel:
        network, rows = self.network, expected_rows(first)
        parameters = network.start(parameters_of(_alone(network.columns), first)["base"]["b"])
        flat = np.asarray(network.layout.flatten(parameters), np.float32)
        training = self._settled(self.training, clip_bound(network, flat, measured_rows(first)), rows)
        learnt = network.layout.unflatten(self._train(network, flat, whole, training, rows, purse))
        none = network.layout.unflatten(simulated_training(network, flat, first.codes(rows, seed=SEED), training, rows))
        parents, found = arrows_of(network, learnt, none)
        follower, start = _along(network, learnt, parents, self.latent)
        names = self.schema.names
        causes = {names[child]: tuple(names[parent] for parent in several) for child, several in parents.items()}
        stated = self._stated([(names[a], names[b]) for a, b, _ in found])
        rate = self.training.learning_rate if self.given or not self.latent else LATENT_RATE
        second = replace(self.training, steps=self.later, decline=0.8, learning_rate=rate)
        model = NeuralModel(
            schema=self.schema,
            graph=graph_of(causes),
            stated=stated,
            network=follower,
            parameters=follower.layout.unflatten(start.astype(np.float64)),
            guarantee=purse.guarantee,
            generator=self.generator,
            plan=self.plan,
            details={
                "rows": rows,
                "start": self.start.design.generator,
                "discover": "joint",
                "steps": training.steps + self.later,
                "sampling_probability": training.sampling_probability,
                "noise_multiplier": training.noise_multiplier,
                "stated_arrows": [list(edge) for edge in stated.edges if edge[0] in causes.get(edge[1], ())],
                "discovery": {
                    "method": "joint",
                    "edges": [
                        {"from": names[a], "to": names[b], "directed": False, "confidence": None}
                        | {"direction_confidence": None, "stronger_than": stronger}
                        for a, b, stronger in found
                    ],
                    "cannot_tell": "",
                    "notes": [
                        "Learnt with the network: stronger_than is the share of pairs without an edge that came out "
                        "weaker under the same noise. Pairs that go together through others are among those kept, so "
                        "how sure an edge is was not measured, and directions only help to imitate the table."
                    ],
                },
                **anchor_of(purse),
            },
        )
        simulated = model.codes(MEASURED, seed=SEED).astype(type_of_codes(self.schema))
        second = self._settled(second, clip_bound(follower, start, simulated), rows)
        value = self._train(follower, start, whole, second, rows, purse)
        return replace(model, parameters=follower.layout.unflatten(value.astype(np.float64)))

    def _train(
        self, network: Any, flat: NDArray[np.float32], whole: Whole, training: Training, rows: int, purse: Purse
    ) -> NDArray[np.float32]:
        paid = purse.within(training.event(**self.neighbours.stated), purpose="training by DP-SGD")
        terms: dict[str, Any] = {"seed": paid.stream, **self.neighbours.stated}
        return train(
            network, network.layout, flat, whole, training, expected_rows=rows, delta=self.delta, **terms
        ).value

    def _settled(self, training: Training, bound: float, rows: int) -> Training:
        noise = training.noise_multiplier * bound / max(rows * training.sampling_probability, 1.0)
        rate = training.learning_rate if self.given else learning_rate_for(training.learning_rate, noise)
        return replace(training, clip_norm=bound, learning_rate=rate)

    def _stated(self, found: list[tuple[str, str]]) -> CausalGraph:
        """Return what is claimed about causes: what was known, and lines along what was found."""
        known = {} if self.knowledge is None else {"edges": self.knowledge.edges}
        arrows = known.get("edges", ())
        joined = {frozenset(arrow) for arrow in arrows}
        lines = [pair for pair in found if frozenset(pair) not in joined]
        return CausalGraph.from_edges(arrows, nodes=self.schema.names, undirected=lines)


def open_pairs(
    schema: Schema, graph: CausalGraph | None
) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """Return the pairs (cause, effect) that may be joined, and those of them that are known to be.

    Raises:
        InputError: If the graph has groups or latents, which a graph that is to be learnt does not know.
    """
    names = schema.names
    place = {name: number for number, name in enumerate(names)}
    if graph is None:
        return tuple((a, b) for a in place.values() for b in place.values() if a != b), ()
    structure_of(schema, graph)  # names are those of the schema
    if graph.groups or graph.latents or graph.undirected_edges:
        raise InputError("discover='joint' takes arrows between columns that are known, and forbidden ones; no others.")
    known = tuple((place[a], place[b]) for a, b in graph.edges)
    barred = {(place[a], place[b]) for a, b in graph.forbidden} | {(b, a) for a, b in known}
    pairs = tuple((a, b) for a in place.values() for b in place.values() if a != b and (a, b) not in barred)
    return pairs, known


def simulated_training(
    network: Any, flat: NDArray[np.float32], rows: Codes, training: Training, expected: int
) -> NDArray[np.float32]:
    """Return the parameters after the same training, noise and all, on rows that were simulated; free."""
    from escudo.mechanisms.dpsgd import Sampling, capacity_for, first_state, result, run, slots_of

    knobs, state = training.knobs(expected), first_state(flat)
    sampled = training.sampling_probability
    capacity, rng, rows = capacity_for(expected, sampled), np.random.default_rng(SEED), smallest(rows)
    with tracking("The same on rows without edges", total=training.steps) as advance:
        for segment in slots_of(rng, Sampling(len(rows), sampled, training.steps), capacity):
            batches = segment._replace(rows=rows[segment.rows])
            state = run(network, network.layout, training.recipe, None, knobs, state, batches)
            advance(int(segment.last.sum()))
    return np.asarray(result(knobs, state))


def arrows_of(
    network: JointNetwork, learnt: Mapping[str, Mapping[str, Any]], none: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[int, tuple[int, ...]], list[tuple[int, int, float]]]:
    """Return each column's parents, and the open pairs that are kept, with the share of chance that is weaker.

    Args:
        network: The network with gates.
        learnt: Its parameters after a training.
        none: Its parameters after the same training on rows without edges.
    """
    pairs = {tuple(sorted(pair)) for pair in network.pairs} - {tuple(sorted(pair)) for pair in network.known}
    listed = sorted(pairs)
    strength, weak = network.strengths(learnt), network.strengths(none)
    chance = np.sort([weak[a, b] for a, b in listed])
    weakest = float(np.quantile(chance, _JOINT_QUANTILE))
    order = _ordered(np.asarray(learnt["order"]["b"]), network.known)
    rank = {column: number for number, column in enumerate(order)}
    allowed = set(network.pairs)
    parents: dict[int, set[int]] = {column: set() for column in range(network.count)}
    for cause, effect in network.known:
        parents[effect].add(cause)
    kept = []
    for a, b in listed:
        cause, effect = (a, b) if rank[a] < rank[b] else (b, a)
        below = float(np.searchsorted(chance, strength[a, b]) / (len(chance) + 1))
        if strength[a, b] > weakest and (cause, effect) in allowed:
            parents[effect].add(cause)
            kept.append((cause, effect, below))
    return {column: tuple(sorted(several)) for column, several in parents.items()}, kept


def _ordered(places: Floats, known: tuple[tuple[int, int], ...]) -> list[int]:
    """Return the columns by their places, but none before a cause that is known."""
    left, order = set(range(len(places))), []
    while left:
        free = [column for column in left if not any(b == column and a in left for a, b in known)]
        first = min(free, key=lambda column: (places[column], column))
        order.append(first)
        left.remove(first)
    return order


def _alone(columns: Any) -> Network:
    """Return a network without arrows."""
    return Network(columns, tuple(Unit((place,), ()) for place in range(len(columns.specs))))


def _along(
    network: JointNetwork,
    learnt: Mapping[str, Mapping[str, Any]],
    parents: Mapping[int, tuple[int, ...]],
    latent: Mapping[str, Any],
) -> tuple[Network, NDArray[np.float32]]:
    """Return the network that follows the arrows which were kept, and where its training goes on."""
    follower = Network(
        columns=network.columns,
        units=tuple(Unit((child,), several) for child, several in parents.items()),
        **latent,
    )
    made = follower.start(np.random.default_rng(SEED))
    made["base"]["b"] = np.asarray(learnt["base"]["b"], np.float64)
    if follower.has_direct:
        made["direct"]["w"] = network.weights(learnt)[0] * follower.direct_mask
    return follower, np.asarray(follower.layout.flatten(made), np.float32)
