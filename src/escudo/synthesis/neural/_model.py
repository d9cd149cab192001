r"""The released neural model: sampled in numpy, under interventions and conditions, without jax.

**Drawing.** z ~ N(0, I), then columns tier by tier: all columns whose parents are known, at once. Each column's values
are drawn at stratified quantiles in random order, so that a sample's shares miss the law by little.

**do** sets columns and cuts the arrows into them: their own laws are not used, and z stays as it is (truncated
factorisation of the model). What the table says about that is another matter: z may stand for causes that act on
several columns, and then the effect of an intervention is the model's, not identified from the table alone.

**given** is importance sampling: the condition's columns are set, rows are weighed with its probability given their
parents and z, and drawn again by weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from escudo._progress import tracking
from escudo._validate import whole
from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.privacy import Guarantee, Plan
from escudo.synthesis._model import CausalModel
from escudo.synthesis._options import drawing
from escudo.synthesis.neural._network import Network
from escudo.table import Schema

if TYPE_CHECKING:
    import polars as pl

__all__ = ["NeuralModel"]

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

_BLOCK = 2**14
_POOL = 20  # rows drawn for each row wanted, where there is a condition
_LEAST_POOL = 10_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NeuralModel:
    """A network that follows a causal graph, trained under a guarantee.

    Attributes:
        schema: The public description of the columns it makes.
        graph: The DAG it follows, over the schema's columns.
        network: The network's form.
        parameters: Its arrays by layer.
        guarantee: What was promised to the people in the table.
        generator: The generator's name.
        plan: The budget tree that was spent.
        details: Public facts about the fit, for the report.
    """

    schema: Schema
    graph: CausalGraph
    network: Network
    parameters: Mapping[str, Mapping[str, Floats]]
    guarantee: Guarantee
    generator: str
    plan: Plan
    details: Mapping[str, Any] = field(default_factory=dict)
    _tiers: tuple[tuple[int, ...], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.network.columns.specs) != len(self.schema.names):
            raise InputError("The network has another number of columns than the schema.")
        for name, spec in zip(self.schema.names, self.network.columns.specs, strict=True):
            if self.schema[name].size != spec.size:
                raise InputError(f"The network's column {name!r} has another number of cells than the schema's.")
        for layer, name, shape in self.network.shapes:
            array = self.parameters.get(layer, {}).get(name)
            if array is None or array.shape != shape or not np.isfinite(array).all():
                raise InputError(f"The network's layer {layer!r} lacks numbers, or has them in a wrong form.")
        object.__setattr__(self, "_tiers", _tiers(self.network))

    @property
    def order(self) -> tuple[str, ...]:
        """The columns with parents before children."""
        return tuple(self.schema.names[place] for tier in self._tiers for place in tier)

    def sample(
        self,
        rows: int,
        *,
        do: Mapping[str, object] | None = None,
        given: Mapping[str, object] | None = None,
        seed: int | None = None,
    ) -> pl.DataFrame:
        """Draw synthetic rows; free of charge, as often as wanted.

        Args:
            rows: How many.
            do: Columns to set by intervention: arrows into them are cut.
            given: Columns to condition on.
            seed: For repeatable draws.

        Returns:
            A polars frame with the schema's columns; only values the schema allows.

        Raises:
            SchemaError: If ``do`` or ``given`` names a column or level the schema does not have.
            NotIdentifiableError: If a latent that the graph states acts on an intervened column and what it affects.
            InputError: If the condition is too rare under the model.
        """
        import polars as pl

        from escudo.synthesis._decoding import decode

        rng = drawing(seed)
        names = self.schema.names
        parts = [
            decode(self.schema, {name: block[:, place] for place, name in enumerate(names)}, rng=rng)
            for block in self._blocks(rows, do, given, rng)
        ]
        return pl.concat(parts)

    def codes(
        self,
        rows: int,
        *,
        do: Mapping[str, object] | None = None,
        given: Mapping[str, object] | None = None,
        seed: int | None = None,
    ) -> Codes:
        """Draw rows as schema cells, of shape (rows, columns)."""
        return np.concatenate(list(self._blocks(rows, do, given, drawing(seed))))

    def save(self, directory: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the model as ``model.json`` and ``parameters.safetensors`` into a new folder.

        Raises:
            InputError: If the folder exists and ``overwrite`` is false, or cannot be written.
        """
        from escudo.synthesis._files import write_folder
        from escudo.synthesis.neural._files import described

        description, arrays = described(self)
        write_folder(Path(directory), description, arrays, overwrite=overwrite)

    def __repr__(self) -> str:
        size = sum(math.prod(shape) for _, _, shape in self.network.shapes)
        columns, arrows = len(self.schema.names), len(self.graph.edges)
        return f"NeuralModel({self.generator}, {columns} columns, {arrows} arrows, {size:,} parameters)"

    def __str__(self) -> str:
        return f"A {self.generator} model of {', '.join(self.schema.names)}. {self.guarantee}"

    def _repr_html_(self) -> str:
        from html import escape

        title = f"{escape(self.generator)} model, {len(self.schema.names)} columns"
        return f"<div><strong>{title}</strong><p>{escape(str(self.guarantee))}</p>{self.graph.to_svg()}</div>"

    # Values are read as for any model over cells: these look at the schema only.
    _cells = CausalModel._cells
    _column = CausalModel._column

    def _blocks(
        self,
        rows: int,
        do: Mapping[str, object] | None,
        given: Mapping[str, object] | None,
        rng: np.random.Generator,
    ) -> Iterator[Codes]:
        fixed, evidence = CausalModel._asked(cast(CausalModel, self), do, given)
        count = whole("rows", rows)
        starts = range(0, max(count, 1), _BLOCK)
        with tracking("Sampling", total=len(starts)) as advance:
            for start in starts:
                size = min(_BLOCK, count - start)
                yield self._given(size, fixed, evidence, rng) if evidence else self._drawn(size, fixed, {}, rng)[0]
                advance(1)

    def _given(
        self, rows: int, fixed: Mapping[str, int], evidence: Mapping[str, int], rng: np.random.Generator
    ) -> Codes:
        pool = max(rows * _POOL, _LEAST_POOL)
        codes, log_weight = self._drawn(pool, fixed, evidence, rng)
        weight = np.exp(log_weight - log_weight.max())
        if weight.sum() ** 2 < rows / 10 * (weight**2).sum():
            raise InputError(
                f"The condition on {', '.join(sorted(evidence))} is too rare under this model to draw {rows:,} rows "
                "from it; condition on fewer columns, or ask for fewer rows."
            )
        points = (np.arange(rows) + rng.random()) / max(rows, 1) * weight.sum()
        chosen = np.minimum(np.searchsorted(np.cumsum(weight), points, side="right"), pool - 1)
        return codes[rng.permutation(chosen)]

    def _drawn(
        self, rows: int, fixed: Mapping[str, int], evidence: Mapping[str, int], rng: np.random.Generator
    ) -> tuple[Codes, Floats]:
        """Return rows with some columns set, and the log-probability of the evidence in each."""
        network, columns, names = self.network, self.network.columns, self.schema.names
        codes = np.zeros((rows, len(names)), dtype=np.int64)
        log_weight = np.zeros(rows)
        from_z = np.zeros((rows, columns.width))
        if network.latent:
            from_z += network.from_latent(self.parameters, rng.normal(size=(rows, network.latent)))
        for tier in self._tiers:
            features = columns.features(codes, np).astype(np.float64)
            wanted = np.flatnonzero(np.isin(columns.owner, tier))
            outputs = from_z.copy()
            outputs[:, wanted] += network.from_parents(self.parameters, features, wanted)
            biases = np.broadcast_to(self.parameters["base"]["b"], (rows, columns.biases))
            for block in columns.blocks:
                here = [member for member, column in enumerate(block.columns) if column in tier]
                if not here:
                    continue
                laws = columns.log_laws(outputs, biases, np, block)[:, here]
                for position, member in enumerate(here):
                    column = int(block.columns[member])
                    name = names[column]
                    if name in fixed:
                        codes[:, column] = fixed[name]
                    elif name in evidence:
                        codes[:, column] = evidence[name]
                        log_weight += laws[:, position, evidence[name]]
                    else:
                        codes[:, column] = _chosen(np.exp(laws[:, position]), rng)
        return codes, log_weight


def _chosen(laws: Floats, rng: np.random.Generator) -> Codes:
    """Return one cell for each row of ``laws``, at stratified quantiles in random order."""
    rows = len(laws)
    quantile = rng.permutation((np.arange(rows) + rng.random(rows)) / max(rows, 1))
    cells: Codes = (np.cumsum(laws[:, :-1], axis=1) <= quantile[:, None]).sum(axis=1).astype(np.int64)
    return cells


def _tiers(network: Network) -> tuple[tuple[int, ...], ...]:
    """Return the columns in tiers: each tier's parents lie in earlier ones."""
    parents = {column: set(unit.parents) for unit in network.units for column in unit.columns}
    tiers: list[tuple[int, ...]] = []
    known: set[int] = set()
    while len(known) < len(parents):
        tier = tuple(column for column, several in sorted(parents.items()) if column not in known and several <= known)
        if not tier:
            raise InputError("The network's units are their own ancestors.")
        tiers.append(tier)
        known.update(tier)
    return tuple(tiers)
