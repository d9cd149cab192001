r"""The networks: p(z) ∏ p(xᵢ | paᵢ, z) with masked layers, and q(z | x).

Columns form *units*: each column by itself, or the columns of a node of a condensed graph. A unit's columns are
independent given their parents and z. The outputs u of ``_columns`` are the sum of up to three parts, and a shape b:

* **direct**: the parents' features times a masked matrix;
* **hidden**: a feed-forward net for each unit with parents, all of them in one stack of masked layers;
* **latent**: a feed-forward net of z ~ N(0, I).

With a latent the loss of a row is the negative evidence lower bound with one draw of z, and q(z | x) is a feed-forward
net of all features. Without one it is the negative log-likelihood, exactly.

A network is a frozen value that is called as DP-SGD calls networks: equal networks are compiled once. Only jax and
numpy are imported, and jax only for training: a fitted network is run in numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from escudo.synthesis.neural._columns import Columns

if TYPE_CHECKING:
    from escudo.mechanisms.dpsgd._layers import Layout, Tape

__all__ = ["Network", "Unit"]

Array = Any  # a jax or numpy array
Floats = NDArray[np.float64]
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
    """

    columns: Columns
    units: tuple[Unit, ...]
    direct: bool = True
    hidden: tuple[int, ...] = ()
    latent: int = 0
    encoder: tuple[int, ...] = (128, 64)
    decoder: tuple[int, ...] = (64, 128)

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
        if self.latent:
            sizes = (width, *self.encoder)
            made += _dense("encode", sizes)
            for name in ("mean", "spread"):
                made += [(name, "w", (sizes[-1], self.latent)), (name, "b", (self.latent,))]
            sizes = (self.latent, *self.decoder)
            made += [*_dense("decode", sizes), ("decode out", "w", (sizes[-1], width))]
        return tuple(made)

    @cached_property
    def layout(self) -> Layout:
        """Where the arrays lie in one vector of parameters."""
        from escudo.mechanisms.dpsgd._layers import Layout

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

        from escudo.mechanisms.dpsgd._normal import normal

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
            x = features
            for depth in range(len(self.encoder)):
                x = jax.nn.relu(tape.dense(f"encode {depth}", x))
            mean, spread = tape.dense("mean", x), tape.dense("spread", x)
            drawn = jnp.issubdtype(key.dtype, jnp.floating)
            z = mean + jnp.exp(spread / 2) * (key if drawn else normal(key, mean.shape, stream=1, tails=False))
            for depth in range(len(self.decoder)):
                z = jax.nn.relu(tape.dense(f"decode {depth}", z))
            outputs += tape.dense("decode out", z)
            cost = 0.5 * (mean**2 + jnp.exp(spread) - 1 - spread).sum(axis=-1)
        base = tape.bias("base", codes.shape[0])
        return cost - self.columns.log_likelihood(codes, outputs, base)

    # -- running (numpy)

    def from_latent(self, parameters: Mapping[str, Mapping[str, Floats]], z: Floats) -> Floats:
        """Return what z adds to the outputs, of shape (rows, width)."""
        for depth in range(len(self.decoder)):
            z = np.maximum(z @ parameters[f"decode {depth}"]["w"] + parameters[f"decode {depth}"]["b"], 0.0)
        added: Floats = z @ parameters["decode out"]["w"]
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


def _dense(name: str, sizes: tuple[int, ...]) -> Shapes:
    pairs = enumerate(pairwise(sizes))
    return tuple(
        part
        for depth, (before, after) in pairs
        for part in ((f"{name} {depth}", "w", (before, after)), (f"{name} {depth}", "b", (after,)))
    )
