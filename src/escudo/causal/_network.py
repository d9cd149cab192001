"""Network: a causal graph over finite variables with a probability table for each, as benchmark networks come.

:func:`asia` is the one that every installation carries: small, famous, and with a deterministic node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from escudo._card import card
from escudo._validate import did_you_mean, whole
from escudo.causal import formats
from escudo.causal._graph import CausalGraph
from escudo.causal.formats._bif import Block, Row, parse_bif, quoted
from escudo.causal.formats._source import NamedText, shown
from escudo.errors import GraphError, InputError

if TYPE_CHECKING:
    import polars as pl


_MAX_CELLS = 10_000_000
_TOLERANCE = 1e-3  # published tables are rounded; a row further off than this is a mistake
_EXACT = 1e-12  # a row this close to 1 is left as it is, so that reading what was written changes nothing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Network:
    """A Bayesian network: what each variable can be, its parents, and its probabilities given theirs.

    Args:
        levels: Each variable's levels, in order.
        parents: Each variable's parents, in the order of its table's axes; variables left out have none.
        tables: Each variable's probabilities: one axis per parent, and the variable's own levels last, so that
            ``tables["x"][i, j]`` is the distribution of x where its first parent is at level i, its second at level j.

    Raises:
        InputError: A table has the wrong shape, or a row that is no distribution.
        GraphError: The parents make a cycle or are unknown.

    Example:
        >>> import numpy as np
        >>> rain = Network(
        ...     levels={"rain": ("no", "yes"), "wet": ("no", "yes")},
        ...     parents={"wet": ("rain",)},
        ...     tables={"rain": [0.8, 0.2], "wet": [[1.0, 0.0], [0.1, 0.9]]},
        ... )
        >>> rain.sample(4, rng=np.random.default_rng(0), do={"rain": "no"})["wet"].tolist()
        [0, 0, 0, 0]
    """

    levels: Mapping[str, Sequence[str]]
    parents: Mapping[str, Sequence[str]]
    tables: Mapping[str, npt.ArrayLike]
    graph: CausalGraph = field(init=False)

    def __post_init__(self) -> None:
        levels = {name: _checked_levels(name, values) for name, values in self.levels.items()}
        for what, given in (("parents", self.parents), ("tables", self.tables)):
            for name in given:
                if name not in levels:
                    raise GraphError(f"{what} names {shown(name)}, which has no levels." + did_you_mean(name, levels))
        parents = {name: tuple(self.parents.get(name, ())) for name in levels}
        edges = [(parent, name) for name in levels for parent in parents[name]]
        graph = CausalGraph(nodes=tuple(levels), edges=tuple(edges))
        tables = {}
        for name in levels:
            if name not in self.tables:
                raise InputError(f"{shown(name)} has no table. Give its probabilities in tables.")
            if len(set(parents[name])) < len(parents[name]):
                raise GraphError(f"A parent of {shown(name)} is named twice.")
            shape = (*(len(levels[parent]) for parent in parents[name]), len(levels[name]))
            tables[name] = _checked_table(name, self.tables[name], shape)
        for key, value in (("levels", levels), ("parents", parents), ("tables", tables)):
            object.__setattr__(self, key, MappingProxyType(value))
        object.__setattr__(self, "graph", graph)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The variables' names."""
        return self.graph.nodes

    def table(self, node: str) -> npt.NDArray[np.float64]:
        """Return P(node | parents): one axis per parent, the node's own levels last."""
        return np.asarray(self.tables[self._known(node)])

    def code(self, node: str, level: object) -> int:
        """Return the position of a level among a node's levels."""
        choices = self.levels[self._known(node)]
        if isinstance(level, str) and level in choices:
            return choices.index(level)
        raise InputError(
            f"{node!r} has no level {shown(str(level))}; its levels are {', '.join(map(repr, choices))}."
            + did_you_mean(str(level), choices)
        )

    def sample(
        self, rows: int, *, rng: np.random.Generator, do: Mapping[str, str] | None = None
    ) -> dict[str, npt.NDArray[np.int64]]:
        """Return simulated rows as level codes, one array per variable in node order.

        Args:
            rows: How many rows.
            rng: The source of randomness; the same generator state gives the same rows.
            do: Variables held at a level by intervention: their own tables are not used, their effects respond.
        """
        rows = whole("rows", rows)
        if not isinstance(rng, np.random.Generator):
            raise InputError(f"rng must be a numpy random Generator; got {type(rng).__name__}.")
        held = {name: self.code(name, level) for name, level in (do or {}).items()}
        codes: dict[str, npt.NDArray[np.int64]] = {}
        for name in self.graph.topological_order():
            if name in held:
                codes[name] = np.full(rows, held[name], dtype=np.int64)
                continue
            table = self.table(name)
            place = np.zeros(rows, dtype=np.int64)
            for parent, size in zip(self.parents[name], table.shape, strict=False):
                place = place * size + codes[parent]
            codes[name] = _draw(table.reshape(-1, table.shape[-1]), place, rng)
        return {name: codes[name] for name in self.nodes}

    def sample_frame(self, rows: int, *, rng: np.random.Generator, do: Mapping[str, str] | None = None) -> pl.DataFrame:
        """Return simulated rows as a polars frame of level names; see :meth:`sample`."""
        import polars as pl

        codes = self.sample(rows, rng=rng, do=do)
        names = {name: pl.Series(self.levels[name], dtype=pl.String) for name in codes}
        return pl.DataFrame({name: names[name].gather(code) for name, code in codes.items()})

    @classmethod
    def read(cls, path: str | Path) -> Network:
        """Read a network from a BIF file, packed or not."""
        path = Path(path)
        return cls.parse(formats.read_text(path), source=path.name)

    @classmethod
    def parse(cls, text: str, *, source: str = "text") -> Network:
        """Read a network from BIF text; published rows that are off by rounding are scaled to add up to 1.

        Raises:
            ParseError: The text is no BIF, or a table in it is not complete, with its line.
        """
        if not isinstance(text, str):
            raise InputError(f"A network is parsed from text; got {type(text).__name__}.")
        place = NamedText(text, source)
        blocks = parse_bif(place)
        tables = {}
        for block in blocks.values():
            if block.levels is None:
                raise place.error(
                    f"the variable {shown(block.name)} has no levels, so this is a structure only", block.at
                )
            tables[block.name] = _read_table(place, block, blocks)
        try:
            return cls(
                levels={name: block.levels or () for name, block in blocks.items()},
                parents={name: block.parents for name, block in blocks.items()},
                tables=tables,
            )
        except InputError as error:
            raise type(error)(f"{source}: {error}") from None

    def to_bif(self) -> str:
        """Return the network as BIF text, with every probability to its last digit."""
        lines = ["network unknown {", "}"]
        for name, values in self.levels.items():
            listed = ", ".join(map(quoted, values))
            lines += [f"variable {quoted(name)} {{", f"  type discrete [ {len(values)} ] {{ {listed} }};", "}"]
        for name in self.nodes:
            given = self.parents[name]
            bar = f" | {', '.join(map(quoted, given))}" if given else ""
            lines.append(f"probability ( {quoted(name)}{bar} ) {{")
            table = self.table(name)
            for place in np.ndindex(table.shape[:-1]):
                at = ", ".join(quoted(self.levels[parent][code]) for parent, code in zip(given, place, strict=True))
                numbers = ", ".join(repr(float(number)) for number in table[place])
                lines.append(f"  {f'({at})' if given else 'table'} {numbers};")
            lines.append("}")
        return "\n".join(lines) + "\n"

    def write(self, path: str | Path) -> None:
        """Write the network as a BIF file, packed if the name ends in ``.gz``."""
        formats.write_text(Path(path), self.to_bif())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Network):
            return NotImplemented
        return (
            dict(self.levels) == dict(other.levels)
            and dict(self.parents) == dict(other.parents)
            and all(np.array_equal(self.table(name), other.table(name)) for name in self.nodes)
        )

    def __hash__(self) -> int:
        return hash((frozenset(self.levels.items()), frozenset(self.parents.items())))

    def __reduce__(self) -> tuple[object, ...]:
        again = partial(Network, levels=dict(self.levels), parents=dict(self.parents), tables=dict(self.tables))
        return again, ()

    def __repr__(self) -> str:
        cells = sum(self.table(name).size for name in self.nodes)
        return f"<Network: {self.graph.summary}, {cells} probabilities>"

    def _repr_html_(self) -> str:
        return card("Bayesian network", self.graph.summary, picture=self.graph.to_svg())

    def _known(self, node: str) -> str:
        if node not in self.levels:
            raise GraphError(f"The network has no variable {shown(str(node))}." + did_you_mean(str(node), self.levels))
        return node


def _checked_levels(name: str, values: Sequence[str]) -> tuple[str, ...]:
    levels = tuple(values)
    if isinstance(values, str) or not levels or not all(isinstance(level, str) for level in levels):
        raise InputError(f"The levels of {shown(str(name))} must be a list of one or more texts.")
    if len(set(levels)) < len(levels):
        raise InputError(f"A level of {shown(str(name))} is listed twice.")
    return levels


def _checked_table(name: str, values: npt.ArrayLike, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    try:
        table = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"The table of {shown(name)} must be an array of numbers.") from None
    if table.shape != shape:
        raise InputError(
            f"The table of {shown(name)} must have shape {shape} (parents, then itself); got {table.shape}."
        )
    if not (np.isfinite(table).all() and (table >= 0).all() and (table <= 1 + _TOLERANCE).all()):
        raise InputError(f"The table of {shown(name)} must hold probabilities, from 0 to 1.")
    totals = table.sum(axis=-1, keepdims=True)
    if (np.abs(totals - 1) > _TOLERANCE).any():
        worst = float(totals.flat[int(np.abs(totals - 1).argmax())])
        raise InputError(f"Every row of the table of {shown(name)} must add up to 1; one adds up to {worst:.6g}.")
    table = np.where(np.abs(totals - 1) > _EXACT, table / totals, table)
    table.flags.writeable = False
    return table


def _read_table(source: NamedText, block: Block, blocks: Mapping[str, Block]) -> npt.NDArray[np.float64]:
    own = block.levels or ()
    above = [blocks[parent].levels or () for parent in block.parents]
    shape = tuple(map(len, above))
    cells = math.prod(shape) * len(own)
    if cells > _MAX_CELLS:
        raise source.error(f"the table of {shown(block.name)} would need {cells:,} numbers", block.at)
    if not block.rows:
        raise source.error(f"{shown(block.name)} has no probabilities", block.at)
    table = np.full((*shape, len(own)), np.nan)
    codes = [{level: code for code, level in enumerate(levels)} for levels in above]
    for row in sorted(block.rows, key=lambda row: row.levels != "default"):  # a default fills in, whatever its place
        numbers = _numbers(source, row)
        if row.levels == "table":
            if len(numbers) != cells:
                raise source.error(f"this table has {len(numbers)} numbers, not {cells}", row.at)
            # BIF lists the variable itself first and its last parent fastest.
            table[...] = np.moveaxis(numbers.reshape((len(own), *shape)), 0, -1)
            continue
        if len(numbers) != len(own):
            raise source.error(f"{shown(block.name)} has {len(own)} levels, this row {len(numbers)} numbers", row.at)
        if row.levels == "default":
            table[...] = numbers
            continue
        if len(row.levels) != len(above):
            raise source.error(f"this row names {len(row.levels)} levels for {len(above)} parents", row.at)
        place = []
        for level, known, parent in zip(row.levels, codes, block.parents, strict=True):
            if level not in known:
                raise source.error(f"{shown(parent)} has no level {shown(level)}.{did_you_mean(level, known)}", row.at)
            place.append(known[level])
        table[tuple(place)] = numbers
    if np.isnan(table).any():
        missing = tuple(int(code) for code in np.argwhere(np.isnan(table))[0][:-1])
        at = ", ".join(levels[code] for levels, code in zip(above, missing, strict=True))
        raise source.error(f"the table of {shown(block.name)} has no row for ({at})", block.at)
    return table


def _numbers(source: NamedText, row: Row) -> npt.NDArray[np.float64]:
    try:
        numbers = np.array([float(number) for number in row.numbers], dtype=np.float64)
    except ValueError:
        raise source.error("this row holds something that is not a number", row.at) from None
    if not np.isfinite(numbers).all():
        raise source.error("this row holds a number that is not finite", row.at)
    return numbers


def _draw(
    rows: npt.NDArray[np.float64], place: npt.NDArray[np.int64], rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Draw one level per place from the distribution in that row, never one of probability 0."""
    steps = rows.cumsum(axis=1)
    last = rows.shape[1] - 1 - (rows[:, ::-1] > 0).argmax(axis=1)
    steps[np.arange(rows.shape[1]) >= last[:, None]] = 1.0  # rounding must not leave room above the last possible level
    uniform = rng.random(place.size)
    codes = np.zeros(place.size, dtype=np.int64)
    for step in range(rows.shape[1] - 1):
        codes += uniform >= steps[place, step]
    return codes


_YES_NO = ("yes", "no")


def asia() -> Network:
    """Return the chest-clinic network of eight yes/no variables.

    A visit to Asia raises the risk of tuberculosis, smoking that of lung cancer and bronchitis; either of the first two
    shows on an X-ray, and shortness of breath (``dysp``) follows from either or from bronchitis.

    Reference:
        Lauritzen and Spiegelhalter, "Local computations with probabilities on graphical structures and their
        application to expert systems", Journal of the Royal Statistical Society B 50(2), 1988, table 1.

    Example:
        >>> asia().graph.parents("either")
        ('tub', 'lung')
    """
    return Network(
        levels={name: _YES_NO for name in ("asia", "tub", "smoke", "lung", "bronc", "either", "xray", "dysp")},
        parents={
            "tub": ("asia",),
            "lung": ("smoke",),
            "bronc": ("smoke",),
            "either": ("lung", "tub"),
            "xray": ("either",),
            "dysp": ("bronc", "either"),
        },
        tables={
            "asia": [0.01, 0.99],
            "tub": [[0.05, 0.95], [0.01, 0.99]],
            "smoke": [0.5, 0.5],
            "lung": [[0.1, 0.9], [0.01, 0.99]],
            "bronc": [[0.6, 0.4], [0.3, 0.7]],
            "either": [[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]],
            "xray": [[0.98, 0.02], [0.05, 0.95]],
            "dysp": [[[0.9, 0.1], [0.8, 0.2]], [[0.7, 0.3], [0.1, 0.9]]],
        },
    )
