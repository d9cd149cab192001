r"""The networks: p(z) ∏ p(xᵢ | paᵢ, z) with masked layers, and q(z | x); and which one a schema and a graph ask for.

**Columns.** Every column has cells 0, …, s - 1, the last one for missing values where it has that, and *features* φ(x)
of a cell:

* **levels** (binary and categorical columns): one indicator for each cell but the first;
* **ordered** (ordinal and numeric columns with more than three cells): Legendre polynomials of degree 1 to 3 in the
  cell's place t in [-1, 1], and an indicator of the missing cell.

The likelihood uses the same features the other way round: a network puts out one number per feature, u, and

.. math:: p(x) \propto \exp(b_x + u \cdot φ(x)), \qquad b_0 = 0.

For levels this is a softmax (a logistic law for two cells). For ordered columns it is a bounded law with a free shape b
that is shifted and bent by u, with the truncated Gaussian as a special case: smooth in the order of the cells, and
never outside the schema's bounds. Inside a bin numbers follow the slope of the neighbouring bins, as for all
generators. A missing value is a cell like any other: it is predicted, and it predicts. Columns of one kind and size
form a *block*, so that a table with hundreds of them needs a handful of operations; features come block by block.

**Units.** Columns form *units*, which are independent inside given their parents and z:

* a graph over columns: every column is a unit, and its parents are those the graph states;
* a condensed graph: the columns of a node are one unit, and its parents all columns of the node's parents;
* open pairs, which the graph says nothing about: with a latent they are left to it. Without one they are joined, in the
  order of ``_structure``: their directions are that order's, and so is the meaning of ``do`` along them.

**Outputs.** u is the sum of up to three parts:

* **direct**: the parents' features times a masked matrix;
* **hidden**: a feed-forward net for each unit with parents, all of them in one stack of masked layers;
* **latent**: a feed-forward net of z ~ N(0, I).

With a latent the loss of a row is the negative evidence lower bound with one draw of z, and q(z | x) is a feed-forward
net of all features. Without one it is the negative log-likelihood, exactly.

A network is a frozen value that is called as DP-SGD calls networks: equal networks are compiled once. Loading this file
needs only numpy, and training beside it jax: a fitted network is run in numpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError

if TYPE_CHECKING:
    from escudo.causal import CausalGraph
    from escudo.mechanisms.dpsgd import Layout, Tape
    from escudo.table import Schema

Array = Any  # a jax or numpy array
Floats = NDArray[np.float64]

_DEGREE = 3


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """What a network needs to know of a column.

    Args:
        size: Cells, the missing one included.
        places: Where each cell that is not missing lies in [-1, 1], for an ordered column; empty for levels.
    """

    size: int
    places: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """The number of features."""
        return self.size - 1 if not self.places else _DEGREE + (self.size > len(self.places))

    def features(self) -> Floats:
        """Return φ for each cell, of shape (size, width)."""
        if not self.places:
            return np.eye(self.size)[:, 1:]
        legendre = np.polynomial.legendre.legvander(np.array(self.places), _DEGREE)[:, 1:]
        if self.size == len(self.places):
            return legendre
        missing = np.eye(self.size)[:, -1:]
        return np.concatenate([np.concatenate([legendre, np.zeros((1, _DEGREE))]), missing], axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Columns of one kind and size.

    Attributes:
        columns: Which, in schema order.
        size: Their cells.
        features: φ for each of them, of shape (columns, size, width).
        start: Where their features begin; those of one column are next to each other.
        bias_start: Where their shapes b begin.
    """

    columns: NDArray[np.int64]
    size: int
    features: NDArray[np.float32]
    start: int
    bias_start: int

    @property
    def count(self) -> int:
        """How many columns."""
        return len(self.columns)

    @property
    def width(self) -> int:
        """Features of each column."""
        return int(self.features.shape[2])

    def cells(self, codes: Array) -> Array:
        """Return the block's columns of rows of cells: a slice where they are next to each other, which is quicker."""
        first, last = int(self.columns[0]), int(self.columns[-1])
        return codes[:, first : last + 1] if last - first + 1 == self.count else codes[:, self.columns]

    @property
    def plain(self) -> bool:
        """Whether features are indicators of all cells but the first."""
        return self.width == self.size - 1


@lru_cache(maxsize=64)
def _blocks(specs: tuple[ColumnSpec, ...]) -> tuple[Block, ...]:
    kinds = dict.fromkeys((bool(spec.places), spec.size, spec.width) for spec in specs)
    made, start, bias_start = [], 0, 0
    for ordered, size, width in kinds:
        members = [
            place
            for place, spec in enumerate(specs)
            if (bool(spec.places), spec.size, spec.width) == (ordered, size, width)
        ]
        features = np.stack([specs[place].features() for place in members]).astype(np.float32)
        made.append(Block(np.array(members), size, features, start, bias_start))
        start += len(members) * width
        bias_start += len(members) * (size - 1)
    return tuple(made)


@dataclass(frozen=True)
class Columns:
    """All columns of a table, in schema order.

    Args:
        specs: One for each column.
    """

    specs: tuple[ColumnSpec, ...]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The columns by kind and size."""
        return _blocks(self.specs)

    @cached_property
    def width(self) -> int:
        """The number of features of a row."""
        return sum(spec.width for spec in self.specs)

    @cached_property
    def biases(self) -> int:
        """The number of free entries of all shapes b."""
        return sum(spec.size - 1 for spec in self.specs)

    @cached_property
    def owner(self) -> NDArray[np.int64]:
        """Which column each feature belongs to."""
        owner = np.empty(self.width, dtype=np.int64)
        for block in self.blocks:
            owner[block.start : block.start + block.count * block.width] = np.repeat(block.columns, block.width)
        return owner

    def places(self, some: tuple[int, ...] | None) -> NDArray[np.int64]:
        """Return the features of some columns; None for all."""
        return np.arange(self.width) if some is None else np.flatnonzero(np.isin(self.owner, some))

    def features(self, codes: Array, np_like: Any) -> Array:
        """Return the features of rows of cells, of shape (rows, width).

        Args:
            codes: Cells, of shape (rows, columns).
            np_like: ``jax.numpy`` or ``numpy``.
        """
        parts = []
        for block in self.blocks:
            cells = block.cells(codes)
            if block.size == 2:
                parts.append(cells.astype(np.float32))
            else:
                values = np_like.asarray(block.features)[np.arange(block.count), cells.astype(np.int32)]
                parts.append(values.reshape(codes.shape[0], block.count * block.width))
        return np_like.concatenate(parts, axis=1)

    def log_laws(self, outputs: Array, biases: Array, np_like: Any, block: Block) -> Array:
        """Return the log-probabilities of the cells of a block's columns, of shape (rows, columns, size)."""
        logits = self._logits(outputs, biases, np_like, block)
        logits = logits - logits.max(axis=-1, keepdims=True)
        return logits - np_like.log(np_like.exp(logits).sum(axis=-1, keepdims=True))

    def log_likelihood(self, codes: Array, outputs: Array, biases: Array) -> Array:
        """Return log p of each row (jax arrays), summed over its columns."""
        import jax
        import jax.numpy as jnp

        # jax's own derivative goes through the value, which trainings need not know: several times as slow.
        softplus: Any = jax.custom_jvp(jax.nn.softplus)
        softplus.defjvps(lambda d, _, x: d / (1 + jnp.exp(-x)))
        total: Array = 0.0
        for block in self.blocks:
            cells = block.cells(codes)
            if block.size == 2:
                u, b = block.start, block.bias_start
                score = outputs[:, u : u + block.count] + biases[:, b : b + block.count]
                total += (cells.astype(jnp.float32) * score - softplus(score)).sum(axis=-1)
            elif block.size > 2:
                logits = self._logits(outputs, biases, jnp, block)
                chosen = jnp.take_along_axis(logits, cells.astype(jnp.int32)[..., None], axis=-1)[..., 0]
                total += (chosen - jax.nn.logsumexp(logits, axis=-1)).sum(axis=-1)
        return total

    def _logits(self, outputs: Array, biases: Array, np_like: Any, block: Block) -> Array:
        rows = outputs.shape[0]
        u = outputs[:, block.start : block.start + block.count * block.width]
        b = biases[:, block.bias_start : block.bias_start + block.count * (block.size - 1)]
        u, b = u.reshape(rows, block.count, block.width), b.reshape(rows, block.count, block.size - 1)
        first = np_like.zeros((rows, block.count, 1), b.dtype)
        if block.plain and np.array_equal(block.features[0], np.eye(block.size)[:, 1:]):
            return np_like.concatenate([first, u + b], axis=-1)
        tilt = np_like.einsum("rcf,csf->rcs", u, np_like.asarray(block.features))
        return np_like.concatenate([first, b], axis=-1) + tilt


Shapes = tuple[tuple[str, str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """Columns that are modelled together, and the columns they are modelled from."""

    columns: tuple[int, ...]
    parents: tuple[int, ...]


@dataclass(frozen=True)
class Network:
    """A generative network over the columns of a table.

    Args:
        columns: The columns.
        units: Every column in one unit, parents before children in some order of the units.
        direct: Whether parents act by themselves, through one matrix.
        hidden: Widths of the hidden layers of each unit that has parents; none for no such layers.
        latent: The length of z; 0 for none.
        encoder: Widths of the hidden layers of q(z | x).
        decoder: Widths of the hidden layers from z on.
        encoded: The columns that q(z | x) reads; None for all.
        reached: The columns that z acts on; None for all.
    """

    columns: Columns
    units: tuple[Unit, ...]
    direct: bool = True
    hidden: tuple[int, ...] = ()
    latent: int = 0
    encoder: tuple[int, ...] = (128, 64)
    decoder: tuple[int, ...] = (64, 128)
    encoded: tuple[int, ...] | None = None
    reached: tuple[int, ...] | None = None

    def __hash__(self) -> int:
        return self._hash  # compiled programs are looked up by it at every call

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, part.name) for part in fields(self)))

    # -- parameters

    @cached_property
    def shapes(self) -> Shapes:
        """The arrays of each layer."""
        width = self.columns.width
        made: list[tuple[str, str, tuple[int, ...]]] = [("base", "b", (self.columns.biases,))]
        if self.has_direct:
            made.append(("direct", "w", (width, width)))
        for name, _, (inputs, outputs) in self._masked_layers:
            made.append((name, "w", (inputs, outputs)))
            if name != "hidden out":
                made.append((name, "b", (outputs,)))
        return (*made, *_latent_shapes(self, len(self._read), len(self._written)))

    @cached_property
    def _read(self) -> NDArray[np.int64]:
        """The features that q(z | x) reads."""
        return self.columns.places(self.encoded)

    @cached_property
    def _written(self) -> NDArray[np.int64]:
        """The outputs that z acts on."""
        return self.columns.places(self.reached)

    @cached_property
    def layout(self) -> Layout:
        """Where the arrays lie in one vector of parameters."""
        from escudo.mechanisms.dpsgd import Layout

        return Layout(self.shapes)

    @property
    def has_direct(self) -> bool:
        """Whether there is a direct layer, and some arrow for it."""
        return self.direct and any(unit.parents for unit in self.units)

    @property
    def is_logit(self) -> bool:
        """Whether it is a logit of each column on its parents' levels and nothing more."""
        ordered = any(spec.places for spec in self.columns.specs)
        return not (ordered or self.latent or self._masked_layers)

    @cached_property
    def direct_mask(self) -> NDArray[np.float32]:
        """Which features act on which outputs: 1 where one column is a parent of the other."""
        arrows = np.zeros((len(self.columns.specs), len(self.columns.specs)), np.float32)
        for unit in self.units:
            arrows[np.ix_(unit.parents, unit.columns)] = 1.0
        return arrows[np.ix_(self.columns.owner, self.columns.owner)]

    @cached_property
    def _masked_layers(self) -> tuple[tuple[str, NDArray[np.float32], tuple[int, int]], ...]:
        nets = [unit for unit in self.units if unit.parents] if self.hidden else []
        if not nets:
            return ()
        reads = np.stack([np.isin(self.columns.owner, unit.parents) for unit in nets], axis=1).astype(np.float32)
        writes = np.stack([np.isin(self.columns.owner, unit.columns) for unit in nets]).astype(np.float32)
        same = np.eye(len(nets), dtype=np.float32)
        masks = [("hidden 0", np.repeat(reads, self.hidden[0], axis=1))]
        for depth, (before, after) in enumerate(pairwise(self.hidden), start=1):
            masks.append((f"hidden {depth}", np.repeat(np.repeat(same, before, axis=0), after, axis=1)))
        masks.append(("hidden out", np.repeat(writes, self.hidden[-1], axis=0)))
        return tuple((name, mask, (mask.shape[0], mask.shape[1])) for name, mask in masks)

    def start(self, rng: np.random.Generator) -> dict[str, dict[str, Floats]]:
        """Return parameters to start from: random inner layers, and outputs that do not yet depend on anything."""
        masks = {name: mask for name, mask, _ in self._masked_layers}
        made: dict[str, dict[str, Floats]] = {}
        for layer, name, shape in self.shapes:
            array = np.zeros(shape)
            if name == "w" and layer not in ("direct", "hidden out", "decode out", "spread"):
                mask = masks.get(layer)
                fan_in = np.full(shape[1], shape[0]) if mask is None else np.maximum(mask.sum(axis=0), 1)
                array = rng.normal(size=shape) * np.sqrt(2 / fan_in)
                if mask is not None:
                    array = array * mask
            made.setdefault(layer, {})[name] = array
        return made

    # -- training (jax)

    @property
    def draws(self) -> int:
        """How many standard normal numbers the loss of a row takes."""
        return self.latent

    def __call__(self, tape: Tape, codes: Array, key: Array) -> Array:
        """Return the loss of each row of cells; in place of a key there may be the rows' random numbers themselves."""
        import jax
        import jax.numpy as jnp

        features = self.columns.features(codes, jnp)
        outputs: Array = jnp.zeros((codes.shape[0], self.columns.width))
        if self.has_direct:
            outputs += tape.masked("direct", features, self.direct_mask)
        if self._masked_layers:
            x = features
            for name, mask, _ in self._masked_layers:
                x = tape.masked(name, x, mask)
                x = x if name == "hidden out" else jax.nn.relu(x)
            outputs += x
        cost: Array = 0.0
        if self.latent:
            from_z, cost = _through_latent(
                self, tape, features if self.encoded is None else features[:, self._read], key
            )
            outputs = outputs + from_z if self.reached is None else outputs.at[:, self._written].add(from_z)
        base = tape.bias("base", codes.shape[0])
        return cost - self.columns.log_likelihood(codes, outputs, base)

    # -- running (numpy)

    def from_latent(self, parameters: Mapping[str, Mapping[str, Floats]], z: Floats) -> Floats:
        """Return what z adds to the outputs, of shape (rows, width)."""
        for depth in range(len(self.decoder)):
            z = np.maximum(z @ parameters[f"decode {depth}"]["w"] + parameters[f"decode {depth}"]["b"], 0.0)
        added: Floats = np.zeros((len(z), self.columns.width))
        added[:, self._written] = z @ parameters["decode out"]["w"]
        return added

    def from_parents(
        self, parameters: Mapping[str, Mapping[str, Floats]], features: Floats, wanted: NDArray[np.int64]
    ) -> Floats:
        """Return what the parents add to some outputs, of shape (rows, wanted)."""
        outputs: Floats = np.zeros((features.shape[0], len(wanted)))
        if self.has_direct:
            outputs += features @ (parameters["direct"]["w"] * self.direct_mask)[:, wanted]
        if self._masked_layers:
            kept = self._units_of(wanted)
            x = features
            for depth, (name, mask, _) in enumerate(self._masked_layers):
                w = parameters[name]["w"] * mask
                last = name == "hidden out"
                before = slice(None) if depth == 0 else np.flatnonzero(np.repeat(kept, self.hidden[depth - 1]))
                after = wanted if last else np.flatnonzero(np.repeat(kept, self.hidden[depth]))
                x = x @ w[before][:, after]
                x = x if last else np.maximum(x + parameters[name]["b"][after], 0.0)
            outputs += x
        return outputs

    def _units_of(self, wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the units with parents have one of the wanted outputs."""
        columns = set(self.columns.owner[wanted].tolist())
        return np.array([bool(columns & set(unit.columns)) for unit in self.units if unit.parents])


_SLOPE = 4.0  # of gates: steps of an optimiser are short, and a gate is to open or close within some dozens of them


def _marked(count: int, pairs: Iterable[tuple[int, int]]) -> NDArray[np.float32]:
    """Return a square of zeros with a one for each pair."""
    made = np.zeros((count, count), np.float32)
    for cause, effect in pairs:
        made[cause, effect] = 1.0
    return made


@dataclass(frozen=True)
class JointNetwork:
    r"""A network that learns which columns act on which together with how they do.

    Every open pair i → j has a gate between 0 and 1, and parents act through their gates:

    .. math:: u_j = \sum_i σ(4 e_{ij})\, σ(4 (o_j - o_i))\, φ(x_i) W_{ij}

    The first factor is the edge's probability, the second says that i comes before j: of i → j and j → i at most one
    can be open, and once places o are taken for an order, what is left has no cycle. There is no z: it would explain
    what edges are to be found by.

    Gates and places are parameters like any other: they come through the tape as biases, so that a row's gradient by
    them is known row by row, is part of the one vector whose length is clipped, and gets its noise. Nothing else in
    DP-SGD knows that there is a graph, so its proof holds as it stands.

    Args:
        columns: The columns.
        pairs: The pairs (cause, effect) that may be joined.
        known: Those of them that are: their gate is open.
    """

    columns: Columns
    pairs: tuple[tuple[int, int], ...]
    known: tuple[tuple[int, int], ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, part.name) for part in fields(self)))

    @property
    def count(self) -> int:
        """How many columns there are."""
        return len(self.columns.specs)

    @cached_property
    def shapes(self) -> Shapes:
        """The arrays of each layer."""
        width, count = self.columns.width, self.count
        return (
            ("base", "b", (self.columns.biases,)),
            ("pairs", "w", (width, count * width)),
            ("edges", "b", (count * count,)),
            ("order", "b", (count,)),
        )

    @cached_property
    def layout(self) -> Layout:
        """Where the arrays lie in one vector of parameters."""
        from escudo.mechanisms.dpsgd import Layout

        return Layout(self.shapes)

    @cached_property
    def _allowed(self) -> NDArray[np.float32]:
        return _marked(self.count, self.pairs)

    @cached_property
    def _held(self) -> NDArray[np.float32]:
        return _marked(self.count, self.known)

    @cached_property
    def _mask(self) -> NDArray[np.float32]:
        """Which features speak for which column to which output: a column's own, along the pairs."""
        owner = self.columns.owner
        own = owner[:, None] == np.arange(self.count)  # (features, columns)
        along = self._allowed[:, owner]  # (columns, outputs)
        mask: NDArray[np.float32] = (own[:, :, None] * along[None]).astype(np.float32)
        return mask.reshape(self.columns.width, -1)

    def start(self, biases: Floats) -> dict[str, dict[str, Floats]]:
        """Return parameters to start from: shapes b as given, gates half open, no order, and no dependence yet."""
        made = {layer: {name: np.zeros(shape)} for layer, name, shape in self.shapes}
        made["base"]["b"] = biases
        return made

    def __call__(self, tape: Tape, codes: Array, key: Array) -> Array:
        """Return the loss of each row of cells, its negative log-likelihood; it takes no random numbers."""
        import jax.numpy as jnp

        rows, width = codes.shape[0], self.columns.width
        features = self.columns.features(codes, jnp)
        said = tape.masked("pairs", features, self._mask).reshape(rows, self.count, width)
        gates = self._gates(tape.bias("edges", rows), tape.bias("order", rows), jnp)
        outputs = (said * gates[:, :, self.columns.owner]).sum(axis=1)
        return -self.columns.log_likelihood(codes, outputs, tape.bias("base", rows))

    def _gates(self, edges: Array, order: Array, np_like: Any) -> Array:
        """Return the gates of each row, of shape (rows, causes, effects)."""
        before = order[:, None, :] - order[:, :, None]
        chance = 1 / (1 + np_like.exp(-_SLOPE * edges.reshape(-1, self.count, self.count)))
        soft = chance / (1 + np_like.exp(-_SLOPE * before))
        gates: Array = self._allowed * (self._held + (1 - self._held) * soft)
        return gates

    # -- what was learnt (numpy)

    def weights(self, parameters: Mapping[str, Mapping[str, Floats]]) -> tuple[Floats, Floats]:
        """Return what features add to outputs through the gates, of shape (features, outputs), and the gates."""
        edges, order = parameters["edges"]["b"], parameters["order"]["b"]
        gates = self._gates(np.asarray(edges)[None], np.asarray(order)[None], np)[0]
        width, owner = self.columns.width, self.columns.owner
        whole = (np.asarray(parameters["pairs"]["w"]) * self._mask).reshape(width, self.count, width)
        through: Floats = whole[np.arange(width), owner] * gates[np.ix_(owner, owner)]
        return through, gates

    def strengths(self, parameters: Mapping[str, Mapping[str, Floats]]) -> Floats:
        """Return how strongly each pair of columns is joined, either way: a symmetric matrix."""
        through, _ = self.weights(parameters)
        owner, squares = self.columns.owner, np.zeros((self.count, self.count))
        np.add.at(squares, (owner[:, None], owner[None, :]), through**2)
        both: Floats = np.sqrt(squares + squares.T)
        return both


def _latent_shapes(network: Network, read: int, written: int) -> Shapes:
    """Return the arrays of the layers around z, from so many features to so many outputs; none without z."""
    if not network.latent:
        return ()
    sizes = (read, *network.encoder)
    heads = [
        part
        for name in ("mean", "spread")
        for part in ((name, "w", (sizes[-1], network.latent)), (name, "b", (network.latent,)))
    ]
    out = (network.latent, *network.decoder)
    return (*_dense("encode", sizes), *heads, *_dense("decode", out), ("decode out", "w", (out[-1], written)))


def _through_latent(network: Network, tape: Tape, x: Array, key: Array) -> tuple[Array, Array]:
    """Return what one draw of z ~ q(z | x) adds to the outputs it acts on, and KL(q(z | x) || p(z)); in jax."""
    import jax
    import jax.numpy as jnp

    from escudo.mechanisms.dpsgd import normal

    for depth in range(len(network.encoder)):
        x = jax.nn.relu(tape.dense(f"encode {depth}", x))
    mean, spread = tape.dense("mean", x), tape.dense("spread", x)
    drawn = jnp.issubdtype(key.dtype, jnp.floating)
    z = mean + jnp.exp(spread / 2) * (key if drawn else normal(key, mean.shape, stream=1, tails=False))
    for depth in range(len(network.decoder)):
        z = jax.nn.relu(tape.dense(f"decode {depth}", z))
    return tape.dense("decode out", z), 0.5 * (mean**2 + jnp.exp(spread) - 1 - spread).sum(axis=-1)


def _dense(name: str, sizes: tuple[int, ...]) -> Shapes:
    pairs = enumerate(pairwise(sizes))
    return tuple(
        part
        for depth, (before, after) in pairs
        for part in ((f"{name} {depth}", "w", (before, after)), (f"{name} {depth}", "b", (after,)))
    )


_FEW = 3  # cells: with so few, polynomials are no simpler than levels


def columns_of(schema: Schema) -> Columns:
    """Return what a network needs to know of a schema's columns."""
    from escudo.table import Categorical

    specs = []
    for name in schema.names:
        column = schema[name]
        cells = column.size - (column.missing_code is not None)
        ordered = column.ordered if isinstance(column, Categorical) else True
        places = tuple(2 * cell / (cells - 1) - 1 for cell in range(cells)) if ordered and cells > _FEW else ()
        specs.append(ColumnSpec(column.size, places))
    return Columns(tuple(specs))


def units_of(schema: Schema, graph: CausalGraph | None, *, latent: bool) -> tuple[tuple[Unit, ...], CausalGraph]:
    """Return the units of a network, and the graph over columns that they follow.

    Args:
        schema: The columns.
        graph: What is known of their causes; None for nothing.
        latent: Whether a latent is there to carry what the graph leaves open.
    """
    from escudo.synthesis._structure import structure_of

    structure = structure_of(schema, graph)
    place = {name: number for number, name in enumerate(schema.names)}
    if latent and graph is not None and graph.groups:
        named = _condensed(graph.extension())
    else:
        followed = structure.parents if latent else structure.with_tree(structure.open_arrows)
        named = [((name,), parents) for name, parents in followed.items()]
    listed = {name for names, _ in named for name in names}
    named += [((name,), ()) for name in schema.names if name not in listed]
    units = tuple(
        Unit(tuple(place[name] for name in names), tuple(sorted(place[name] for name in parents)))
        for names, parents in named
    )
    parents = {name: several for names, several in named for name in names}
    return units, structure.fitted_graph({name: parents[name] for name in schema.names})


# ---- the networks of the paper, as printed

Architecture = Literal["graph", "plain", "columns", "pain", "eedi"]
ARCHITECTURES: dict[Architecture, tuple[tuple[int, ...], int, int]] = {
    "plain": ((), 100, 100),
    "columns": ((16, 16), 100, 100),
    "pain": ((128, 64), 100, 100),
    "eedi": ((128, 64), 200, 1000),
}
"""Those of *Causally Constrained Data Synthesis*, Appendix C: hidden widths, size of a sample, epochs (its Table 3)."""


def printed(
    schema: Schema, graph: CausalGraph | None, architecture: Architecture, sizes: Mapping[str, Any]
) -> tuple[Network, CausalGraph, CausalGraph]:
    r"""Return a network of the paper, the graph over columns that it follows, and what it claims about causes.

    * ``plain``: a VAE of all columns, without a graph;
    * ``columns``: p(z) ∏ p(xᵢ | paᵢ, z), a small net for each column with parents;
    * ``pain``: the graph condensed to x₁ → x₂, the columns with children and the others: q(z | x₁, x₂) and
      p(z) p(x₁ | z) p(x₂ | x₁, z);
    * ``eedi``: the same columns, but z acts on x₂ alone and is read off it alone: q(z | x₂) and
      p(z) p(x₁) p(x₂ | x₁, z).

    Both condensed ones add what x₁ and what z say before a column's law is made of it, which is how p(x₂ | x₁) times
    p(x₂ | z) reads as one law. p(x₁) of ``eedi`` is not printed: its columns are independent here. The encoder's other
    factor, q(x₁ | x₂), stands for x₁ that were not observed; they are, so it has no part in the bound.

    A condensed graph claims x₁ → x₂ and nothing about single columns, so ``do`` is refused where these are several.
    """
    from escudo.synthesis._structure import structure_of

    width, hidden = len(schema.names), ARCHITECTURES[architecture][0]
    structure = structure_of(schema, graph)
    if architecture != "plain" and graph is None:
        raise InputError(f"architecture={architecture!r} follows a causal graph; give one, or take 'plain'.")
    claimed, reached = structure.stated, None
    if architecture == "plain":
        units: tuple[Unit, ...] = (Unit(tuple(range(width)), ()),)
        claimed = structure_of(schema, None).stated
    elif architecture == "columns":
        units, _ = units_of(schema, graph, latent=True)
    else:
        first, rest = _halves(schema, graph)
        units = (Unit(first, ()), Unit(rest, first))
        claimed = _condensed_claim([schema.names[place] for place in first], [schema.names[place] for place in rest])
        reached = rest if architecture == "eedi" else None
    network = Network(
        columns_of(schema),
        units,
        direct=False,
        encoded=reached,
        reached=reached,
        **{"hidden": hidden, **{name: value for name, value in sizes.items() if value}},
    )
    parents = {
        schema.names[place]: tuple(schema.names[parent] for parent in unit.parents)
        for unit in units
        for place in unit.columns
    }
    return network, structure.fitted_graph({name: parents[name] for name in schema.names}), claimed


def _halves(schema: Schema, graph: CausalGraph | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the columns with children, and the others."""
    assert graph is not None
    directed = graph if graph.is_dag else graph.extension()
    acting = {
        name
        for node in directed.nodes
        if node not in directed.latents and directed.children(node)
        for name in directed.groups.get(node, (node,))
    }
    first = tuple(place for place, name in enumerate(schema.names) if name in acting)
    rest = tuple(place for place, name in enumerate(schema.names) if name not in acting)
    if not first:
        raise InputError("The graph has no arrow, so there is nothing to condense; take architecture='plain'.")
    return first, rest


def _condensed_claim(first: list[str], rest: list[str]) -> CausalGraph:
    from escudo.causal import CausalGraph

    names = ["x1", "x2"]
    while set(names) & {*first, *rest}:
        names = [name + "_" for name in names]
    return CausalGraph.from_edges([(names[0], names[1])], groups=dict(zip(names, (first, rest), strict=True)))


def _condensed(graph: CausalGraph) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    def members(node: str) -> tuple[str, ...]:
        return () if node in graph.latents else tuple(graph.groups.get(node, (node,)))

    return [
        (members(node), tuple(name for parent in graph.parents(node) for name in members(parent)))
        for node in graph.topological_order()
        if node not in graph.latents
    ]
