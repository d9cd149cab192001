"""The released neural model: sampled in numpy, under interventions and conditions, without jax; and read from files.

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError
from escudo.synthesis._laws import resample
from escudo.synthesis._model import CellModel, Model
from escudo.synthesis.neural._network import Network, Unit, columns_of

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

_POOL = 20  # rows drawn for each row wanted, where there is a condition
_LEAST_POOL = 10_000
_LARGEST = 100_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class NeuralModel(CellModel):
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

    network: Network
    parameters: Mapping[str, Mapping[str, Floats]]
    _tiers: tuple[tuple[int, ...], ...] = field(init=False)
    _block: ClassVar[int] = 2**14

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

    def _facts(self) -> list[str]:
        return [*Model._facts(self), f"{sum(math.prod(shape) for _, _, shape in self.network.shapes):,} parameters"]

    def _stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the network's form, and its arrays in one flat name space."""
        network = self.network
        form = {
            "units": [[list(unit.columns), list(unit.parents)] for unit in network.units],
            "direct": network.direct,
            "hidden": list(network.hidden),
            "latent": network.latent,
            "encoder": list(network.encoder),
            "decoder": list(network.decoder),
        }
        for name in ("encoded", "reached"):  # files of other networks are as they always were
            if (some := getattr(network, name)) is not None:
                form[name] = list(some)
        arrays = {
            f"{layer}/{name}": np.asarray(self.parameters[layer][name], np.float64) for layer, name, _ in network.shapes
        }
        return {"network": form}, arrays

    def _drawer(
        self, fixed: Mapping[str, int], evidence: Mapping[str, int]
    ) -> Callable[[int, np.random.Generator], Mapping[str, Codes]]:
        def drawn(rows: int, rng: np.random.Generator) -> dict[str, Codes]:
            codes = self._given(rows, fixed, evidence, rng) if evidence else self._drawn(rows, fixed, {}, rng)[0]
            return {name: codes[:, place] for place, name in enumerate(self.schema.names)}

        return drawn

    def _given(
        self, rows: int, fixed: Mapping[str, int], evidence: Mapping[str, int], rng: np.random.Generator
    ) -> Codes:
        pool = max(rows * _POOL, _LEAST_POOL)
        codes, log_weight = self._drawn(pool, fixed, evidence, rng)
        chosen: Codes = codes[rng.permutation(resample(log_weight, rows, evidence, rng))]
        return chosen

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


# ---- from files


def read_model(form: Mapping[str, Any], arrays: Mapping[str, Any], common: Mapping[str, Any]) -> NeuralModel:
    """Return the model whose files hold this; every value is checked as if a stranger had written it.

    Raises:
        InputError: If the form is not usable, or an array is missing.
    """
    columns = columns_of(common["schema"])
    count = len(columns.specs)
    units = tuple(Unit(_places(unit[0], count), _places(unit[1], count)) for unit in form["units"])
    if sorted(column for unit in units for column in unit.columns) != list(range(count)):
        raise InputError("its units do not hold every column once.")
    network = Network(
        columns,
        units,
        direct=form["direct"] is True,
        hidden=_widths(form["hidden"]),
        latent=_width(form["latent"], least=0),
        encoder=_widths(form["encoder"]),
        decoder=_widths(form["decoder"]),
        encoded=None if form.get("encoded") is None else _places(form["encoded"], count),
        reached=None if form.get("reached") is None else _places(form["reached"], count),
    )
    parameters: dict[str, dict[str, Any]] = {}
    for layer, name, _ in network.shapes:
        if f"{layer}/{name}" not in arrays:
            raise InputError(f"layer {layer!r} lacks its array {name!r}.")
        parameters.setdefault(layer, {})[name] = arrays[f"{layer}/{name}"]
    return NeuralModel(network=network, parameters=parameters, **common)


def _places(numbers: Any, count: int) -> tuple[int, ...]:
    found = tuple(numbers)
    if not all(type(number) is int and 0 <= number < count for number in found):
        raise InputError("a unit names a column that is not there.")
    return found


def _widths(numbers: Any) -> tuple[int, ...]:
    return tuple(_width(number, least=1) for number in numbers)


def _width(number: Any, *, least: int) -> int:
    if type(number) is not int or not least <= number <= _LARGEST:
        raise InputError("a layer's width is out of range.")
    return number
