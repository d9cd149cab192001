"""A release, told: ``release.json`` by machine, ``report.html`` to people. Both say the same.

They say what was released, what it promises, what it cost, how good it is, what it does not protect and what it cannot
be used for. Everything in them is public, and made from the model and the synthetic rows alone: nothing here looks at
the private table again. The record's form is fixed by ``release.schema.json`` (JSON Schema, draft 2020-12), which ships
with the package; :func:`release_schema` reads it. Its keys come in a fixed order.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from escudo._card import number_of, plain
from escudo.privacy import (
    ExponentialEvent,
    Plan,
    cost_text,
    delta_warning,
)
from escudo.report._accuracy import Expected, Noise, noise_of
from escudo.report._look import MAP_CELLS, MOST_CARDS, MOST_MAPPED, column_card, merge_cells, pairs_of
from escudo.report._page import (
    epsilon_delta,
    power_of_ten,
    promise_picture,
    promise_sentence,
    render,
    rounded_up,
    who_gets_what,
)
from escudo.report._svg import heat_map, percent
from escudo.table import Numeric
from escudo.utility import EVALUATION_PURPOSE, cells, dependence, row_count, synthetic_table

if TYPE_CHECKING:
    import polars as pl

    from escudo.causal import CausalGraph
    from escudo.synthesis import LinkedModel, Model
    from escudo.utility import PrivateEvaluation

# ---- the record

_FORMAT = "escudo release"
_VERSION = 3
_LIBRARIES = ("dp-accounting", "numpy", "opendp", "polars")
"""Those whose versions decide what noise was drawn, and what it was counted as."""


_CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a release: where it lies in the folder, its size, and its fingerprint."""

    path: str
    bytes: int
    sha256: str

    @classmethod
    def of(cls, folder: Path, path: str) -> FileEntry:
        """Read a file once and describe it."""
        digest, size = hashlib.sha256(), 0
        with (folder / path).open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
        return cls(path, size, digest.hexdigest())


def release_record(
    model: Model,
    *,
    rows: int,
    dataset: str,
    seed: int | None,
    made: datetime,
    entries: Sequence[FileEntry],
    evaluation: PrivateEvaluation | None = None,
    expected: Expected | None = None,
) -> dict[str, Any]:
    """Return the record of a release as JSON values, in the form of ``release.schema.json``.

    Args:
        model: The fitted model that is released.
        rows: How many synthetic rows were drawn.
        dataset: What the table is called.
        seed: The seed of the synthetic rows, if they can be drawn again; it has nothing to do with the noise.
        made: When, in UTC.
        entries: The other files of the release.
        evaluation: Figures about the synthetic rows that the plan paid for.
        expected: What error was expected of it, before and after.
    """
    graph, added = model.graph, added_arrows(model)
    return {
        "format": _FORMAT,
        # Whoever knows only records with a promise must not read one without.
        "version": _VERSION + 1 if model.guarantee.none else _VERSION,
        "made": {
            "time": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "escudo": version("escudo"),
            "python": platform.python_version(),
            "libraries": {name: version(name) for name in _LIBRARIES},
        },
        "dataset": dataset,
        "anchor": model.details.get("anchor"),
        "guarantee": model.guarantee.to_json(),
        "warnings": warnings_of(model),
        "plan": model.plan.to_json(),
        "schema": {"fingerprint": model.schema.fingerprint, "description": model.schema.to_dict()},
        "graph": {
            "nodes": list(graph.nodes),
            "edges": [list(edge) for edge in graph.edges],
            "latents": sorted(graph.latents),
            "added": None if added is None else [list(edge) for edge in added],
            "observed": [list(pair) for pair in observed_pairs(model)],
        },
        "generator": {"name": model.generator, "details": _details(model)},
        "synthetic": {"rows": rows, "seed": seed},
        "evaluation": {
            "noise": [plain(noise, "what", "count", "deviation", "rows", "share") for noise in noise_of(model, rows)],
            "expected": None if expected is None else expected.to_json(),
            "paid": None if evaluation is None else evaluation.to_json(),
        },
        "files": [asdict(entry) for entry in sorted(entries, key=lambda entry: entry.path)],
    }


def _details(model: Model) -> dict[str, Any]:
    """Return public facts about the fit itself; what paid for it is told elsewhere."""
    return {name: value for name, value in model.details.items() if name != "anchor"}


@cache
def _schema_text() -> str:
    return (files("escudo.report") / "release.schema.json").read_text(encoding="utf-8")


def release_schema() -> dict[str, Any]:
    """Return the JSON Schema that every ``release.json`` of this version satisfies.

    >>> release_schema()["properties"]["format"]["const"]
    'escudo release'
    """
    schema: dict[str, Any] = json.loads(_schema_text())
    return schema


def is_record(path: Path) -> bool:
    """Return whether a file is a release record of escudo, of any version."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("format") == _FORMAT


# ---- what a model says about itself


def warnings_of(model: Model) -> list[str]:
    """Return what whoever publishes a release should know first: whether its δ is large for the number of records.

    Where nothing is promised that is the first and the last word.

    The number is the model's own, exact where it is public and else noisy; where people are protected, there are at
    most as many as rows.
    """
    if model.guarantee.none:
        return [str(model.guarantee)]
    rows = model.details.get("rows")
    records = float(rows) if isinstance(rows, int | float) else None
    warning = delta_warning(model.guarantee.delta, records, unit=model.guarantee.unit)
    return [warning] if warning else []


def added_arrows(model: Model) -> tuple[tuple[str, str], ...] | None:
    """Return the arrows that the given graph did not state, or None if the generator did not say which it did."""
    stated = model.details.get("stated_arrows")
    if stated is None:
        return None
    known = {(str(cause), str(effect)) for cause, effect in stated}
    return tuple(edge for edge in model.graph.edges if edge not in known and edge[0] not in model.graph.latents)


def observed_pairs(model: Model) -> tuple[tuple[str, str], ...]:
    """Return the columns that go together in rows without an intervention, though no arrow joins them."""
    laws = getattr(model, "observed", {})
    joined = {frozenset(edge) for edge in model.graph.edges}
    place = {name: number for number, name in enumerate(model.schema.names)}
    pairs = {
        tuple(sorted((name, other), key=place.__getitem__))
        for name, law in laws.items()
        for other in law.parents
        if frozenset((name, other)) not in joined
    }
    return tuple((a, b) for a, b in sorted(pairs, key=lambda pair: [place[name] for name in pair]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundEdge:
    """An edge that a discovery reported.

    Attributes:
        first: The cause, where it has a direction.
        second: The effect.
        directed: Whether it has one.
        sure: The estimated probability that the two are joined; None where that was not measured.
        way: The estimated probability that the direction is right, if they are; None where it is known or open.
    """

    first: str
    second: str
    directed: bool
    sure: float | None
    way: float | None

    @property
    def text(self) -> str:
        """The edge for people."""
        return f"{self.first} {'→' if self.directed else '—'} {self.second}"


def _discovered_edges(model: Model | LinkedModel) -> list[_FoundEdge] | None:
    """Return the edges that a discovery reported, the surest first; None if the graph was given."""
    found = model.details.get("discovery")
    if not isinstance(found, Mapping):
        return None
    edges = [
        _FoundEdge(
            first=str(edge["from"]),
            second=str(edge["to"]),
            directed=bool(edge["directed"]),
            sure=None if edge["confidence"] is None else float(edge["confidence"]),
            way=None if edge["direction_confidence"] is None else float(edge["direction_confidence"]),
        )
        for edge in found["edges"]
    ]
    return sorted(edges, key=lambda edge: -(edge.sure or 0.0))


def _picks_arrows(model: Model) -> bool:
    """Return whether the plan pays for choosing arrows."""
    return any(isinstance(leaf.once, ExponentialEvent) for leaf in model.plan.leaves())


# ---- what it does not protect, and cannot be used for


def limits_of(
    model: Model, noise: Sequence[Noise], added: Sequence[tuple[str, str]] | None
) -> dict[str, list[tuple[str, str]]]:
    """Return headed warnings in two groups: about privacy, and about use.

    Args:
        model: The released model.
        noise: The noise of its tables.
        added: Arrows that nobody stated; None if that is not known.
    """
    return {
        "What it does not protect": _unprotected(model),
        "What the data cannot tell": _unusable(model, noise, added),
    }


def _unprotected(model: Model) -> list[tuple[str, str]]:
    guarantee = model.guarantee
    if guarantee.none:
        return [
            (
                "Anybody",
                "The rows of the table were used as they are, without noise. Whoever sees the synthetic rows, the "
                "model or this page may learn whose rows were in it, and what they say. It is there to be compared "
                "with releases that keep a promise, by those who may see the table.",
            )
        ]
    if guarantee.unit == "row":
        several = (
            "The promise is for one row. A person with several rows, or a family whose rows resemble each other, gets "
            "the weaker promise of the table above."
        )
    else:
        several = (
            f"The promise is for one person with at most {number_of(guarantee.max_rows_per_person, 'row')}; further "
            "rows were left "
            "out. A family gets the weaker promise of the table above."
        )
    public = ["the names, levels and bounds of the columns", "the causal graph"]
    if guarantee.relation == "replace_one" and guarantee.unit == "row":
        public.append("how many rows the table has")
    return [
        (
            "What is true of many",
            "The release is meant to show what holds for people in general. If smoking causes cancer, anyone can learn "
            "that and apply it to you, whether or not you are in the table.",
        ),
        ("More than one row", several),
        (
            "Other releases",
            "Whatever else is released from the same table adds to ε. "
            + (
                "The custodian’s ledger keeps the sum, and refuses what goes beyond its cap."
                if "anchor" in model.details
                else "No ledger keeps the sum."
            ),
        ),
        (
            "What counts as public",
            f"Not protected, because they are taken as known to all: {', '.join(public[:-1])} and {public[-1]}.",
        ),
        (
            "What was tried against it",
            "The promise is a theorem about how the release was made and does not rest on attacks. What the custodian "
            "tried is no part of the public report: its results are about single people.",
        ),
    ]


def _unusable(model: Model, noise: Sequence[Noise], added: Sequence[tuple[str, str]] | None) -> list[tuple[str, str]]:
    found = [*_graph(model), *_open_ends(model, added)]
    rows = max((one.rows for one in noise if one.rows is not None), default=None)
    if rows is not None:
        found.append(
            (
                "Small groups",
                f"Counts carry noise of up to ± {rows:.1f} rows (one standard deviation). Groups of fewer than about "
                f"{_round_up(10 * rows):,} rows are too small to study here.",
            )
        )
    if model.generator == "linear":
        found.append(
            (
                "Straight lines",
                "Every column is a linear function of its causes with Gaussian noise. Bends, skew and long tails of "
                "the table are not in it.",
            )
        )
    elif any(isinstance(column, Numeric) for column in model.schema.fields):
        found.append(
            (
                "Inside the bins",
                "Numbers are known up to the bins of the schema. Where a value lies inside its bin is made up, from a "
                "straight line that follows the neighbouring bins.",
            )
        )
    found.append(
        (
            "Standard errors",
            "Those that software computes from synthetic rows know nothing of the privacy noise and are too small. "
            "Drawing more rows makes them smaller, not truer.",
        )
    )
    found.append(
        ("Nobody’s row", "No synthetic row belongs to a person. One that looks like somebody is a coincidence.")
    )
    return found


def _graph(model: Model) -> list[tuple[str, str]]:
    """Return what rests on the graph: an assumption if it was given, a finding with errors if it was discovered."""
    alone = (
        "Given its causes, and the columns it was seen to go with, a column depends on nothing else here"
        if observed_pairs(model)
        else "Given its causes, a column depends on nothing else here"
    )
    apart = "columns that no path of arrows joins come out independent, whatever the table says"
    edges = _discovered_edges(model)
    if edges is None:
        return [
            (
                "The graph is an assumption",
                f"{alone}; {apart}. What an intervention does follows from the directions of the arrows, which data "
                "alone cannot prove.",
            )
        ]
    directed = [edge for edge in edges if edge.directed]
    sure = [edge for edge in edges if edge.sure is not None and edge.sure >= 0.9]
    stated = (
        f"{len(sure)} of {len(edges)} edges are there with a confidence of 90 % or more"
        if all(edge.sure is not None for edge in edges)
        else f"How sure its {len(edges)} edges are was not measured: columns that go together only through others may "
        "be among them"
    )
    found = [
        (
            "The graph was found, not given",
            f"It was learnt from the same table, through the same noise, so it may be wrong. {stated}, and "
            f"{len(directed)} of {len(edges)} have "
            "a direction that the data speak for. A confidence is about noise and chance; a common cause that nobody "
            "measured can make an arrow that is not there, however sure it looks.",
        ),
        ("What follows from it", f"{alone}; {apart}."),
    ]
    others = len(model.graph.edges) - sum(_in(edge, model) for edge in directed)
    if others:
        found.append(
            (
                "Arrows without a finding",
                f"{others} of the {len(model.graph.edges)} arrows drawn only help to imitate the table: their "
                "direction, or that they are there at all, is not a finding. An intervention whose effect would "
                "depend on them is refused.",
            )
        )
    return found


def _in(edge: _FoundEdge, model: Model) -> bool:
    return (edge.first, edge.second) in model.graph.edges


def _open_ends(model: Model, added: Sequence[tuple[str, str]] | None) -> list[tuple[str, str]]:
    """Return what the graph itself leaves open: latents, and arrows that nobody stated."""
    graph, found = model.graph, []
    if graph.latents:
        found.append(
            (
                "Causes nobody measured",
                f"The graph names {_listed(sorted(graph.latents))} as unobserved. Interventions whose effect such a "
                "cause would blur are refused, not guessed.",
            )
        )
    if added and _discovered_edges(model) is None:
        arrows = _listed([f"{cause} → {effect}" for cause, effect in added])
        how = (
            "picked privately, by how much the columns depend on each other"
            if _picks_arrows(model)
            else "filled in because the graph left them open"
        )
        found.append(
            (
                "Arrows nobody stated",
                f"{len(added)} of {len(graph.edges)} were {how}: {arrows}. Their directions are no finding: columns "
                "go together there, and nothing says why. What would happen under an intervention is refused where it "
                "depends on them.",
            )
        )
    return found


def _listed(names: Sequence[str], *, most: int = 12) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _round_up(number: float) -> int:
    """Return the number rounded up to two digits.

    >>> _round_up(131.4), _round_up(7.2)
    (140, 8)
    """
    unit = int(10 ** max(0, math.floor(math.log10(max(number, 1))) - 1))
    return math.ceil(number / unit) * unit


# ---- figures that its plan paid for

_WAYS = {"one_way": "one column at a time", "two_way": "two columns together", "three_way": "three columns together"}


def _paid_figures(found: PrivateEvaluation) -> dict[str, Any]:
    """Return what the report says about an evaluation that was paid for."""
    values = found.figures
    learnt = None
    if "accuracy" in values:
        gain = (values["accuracy"] - values["baseline"]) * 100
        learnt = {
            "rows": [
                _paid_row("learners trained on the synthetic rows", found, "accuracy"),
                _paid_row("always answering the commonest value", found, "baseline"),
            ],
            "said": _gain_sentence(gain, 100 * found.deviation),
            "targets": _listed(found.targets, most=8),
        }
    most = max((found.intervals[name][1] for name in _WAYS if name in values), default=1.0)
    return {
        "cost": cost_text(found.guarantee.event),
        "apart": [_paid_row(words, found, name, scale=most) for name, words in _WAYS.items() if name in values],
        "learnt": learnt,
        "deviation": f"{100 * found.deviation:.2g}",
    }


def _paid_row(words: str, found: PrivateEvaluation, name: str, *, scale: float = 1.0) -> dict[str, Any]:
    low, high = found.intervals[name]
    value, scale = found.figures[name], max(scale, 1e-9)
    return {
        "what": words,
        "value": f"{100 * value:.1f}",
        "interval": f"{100 * low:.1f} to {100 * high:.1f}",
        "at": min(value / scale, 1.0),
        "low": min(low / scale, 1.0),
        "high": min(high / scale, 1.0),
        "chance": f"{100 * found.chance[name]:.1f}" if name in found.chance else None,
    }


def _gain_sentence(gain: float, deviation: float) -> str:
    """Return what the two shares mean, as far as the noise lets them differ."""
    if gain > 3 * deviation:
        return f"What they learnt from made-up rows holds for real ones: {gain:.1f} points better than knowing nothing."
    if gain < -3 * deviation:
        return f"They do worse than knowing nothing, by {-gain:.1f} points: do not learn from these rows."
    return "The noise is too large to tell whether they do better than knowing nothing."


# ---- the page

_MOST_NODES, _MOST_ARROWS = 300, 1500
_MOST_LINES = 24
_MOST_NOISE = 16
_MOST_FOUND = 25
_MOST_TEXT = 60_000
_DELTAS = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10)


_ABOUT = {
    "synthetic.parquet": "the synthetic rows",
    "synthetic.csv": "the same rows as text",
    "explore.html": "what if: set a column and see the others respond; open it in a browser",
    "model/model.json": "the model: schema, graph, guarantee",
    "model/parameters.safetensors": "the model: its numbers; holds no row of the table",
}


class _Look(NamedTuple):
    cards: list[dict[str, Any]]
    mapped: Any  # Markup, as are the pairs
    paired: list[str]
    pairs: Any
    gap: float | None


def release_page(
    model: Model,
    synthetic: pl.DataFrame | pl.LazyFrame,
    *,
    dataset: str = "",
    made: datetime,
    entries: Sequence[FileEntry] = (),
    evaluation: PrivateEvaluation | None = None,
    expected: Expected | None = None,
) -> str:
    """Return the report of a release as one HTML page of less than 2 MB.

    Args:
        model: The fitted model.
        synthetic: The synthetic rows that are released.
        dataset: What the table is called.
        made: When, in UTC.
        entries: The files beside the report.
        evaluation: Figures about the synthetic rows that the plan paid for.
        expected: What error was expected of it, before and after.
    """
    from markupsafe import Markup

    guarantee, schema, graph = model.guarantee, model.schema, model.graph
    epsilon, delta = epsilon_delta(guarantee)
    promise = promise_sentence(guarantee)
    trial = "" if guarantee.for_release or guarantee.none else "A trial run. Made without a seed it would promise: "
    look, count = _look(model, synthetic), row_count(synthetic)
    added = added_arrows(model)
    noise = [one for one in noise_of(model, count) if one.what != EVALUATION_PURPOSE]
    found = _discovered_edges(model)
    return render(
        "release.html.j2",
        kind="Release",
        title=f"Synthetic data from {dataset}" if dataset else "Synthetic data from a private table",
        lead=trial + promise,
        source=f"{made:%d %B %Y}".lstrip("0"),
        for_release=guarantee.for_release,
        unprotected=guarantee.none,
        withheld="Not for release: made without privacy" if guarantee.none else "Not for release: the noise was seeded",
        warnings=[] if guarantee.none else warnings_of(model),
        float_safe=guarantee.float_safe,
        facts=_facts(model, count, epsilon, delta),
        files=[
            {"path": entry.path, "about": _ABOUT.get(entry.path, ""), "size": _size(entry.bytes)}
            for entry in sorted(entries, key=lambda entry: list(_ABOUT).index(entry.path))
        ],
        picture=""
        if guarantee.none
        else Markup(promise_picture(guarantee)),  # safe, as is the graph's: names are escaped where they are drawn
        unit=guarantee.unit,
        who=[] if guarantee.none else who_gets_what(guarantee),
        delta=power_of_ten(delta),
        graph=Markup(_drawn(_claimed(graph, added or ()), found)),
        graph_summary=f"{_several(len(schema.names), 'column')}, {_arrows(graph, added)}",
        lines=bool(added),
        latents=sorted(graph.latents),
        added=[] if added is None or found is not None else [f"{cause} → {effect}" for cause, effect in added],
        picked=_picks_arrows(model),
        found=found,
        found_shown=_MOST_FOUND,
        found_share=dict(model.details.get("discovery") or {}).get("share"),
        observed=[" — ".join(pair) for pair in observed_pairs(model)],
        tree=(
            tree := _tree(
                model.plan, f"ε = {rounded_up(epsilon)}" + (f" at δ = {power_of_ten(delta)}" if delta else "")
            )
        ),
        tree_shown=_MOST_LINES if len(tree) > _MOST_LINES + 6 else len(tree),
        rows=count,
        look=look,
        columns=len(schema.names),
        grouped=MAP_CELLS if max(schema.shape()) > MAP_CELLS else 0,
        gap=None if look.gap is None else percent(look.gap),
        noise=[_noise_row(one) for one in noise[:_MOST_NOISE]],
        noise_left=len(noise) - _MOST_NOISE,
        expected=None if expected is None else expected.shown(),
        paid=None if evaluation is None else _paid_figures(evaluation),
        limits=limits_of(model, noise, added),
        generator=model.generator,
        hashes="\n".join(f"{entry.sha256}  {entry.path}" for entry in entries),
        history=f"escudo ledger history {shlex.quote(dataset)}" if dataset else "escudo ledger history",
        anchor=model.details.get("anchor"),
        example=_example(model),
        citation=_citation(model, dataset, made, epsilon, delta),
        guarantee=guarantee,
        sentence=str(guarantee),
        curve=[] if guarantee.none else [(power_of_ten(at), rounded_up(guarantee.epsilon_at(at))) for at in _DELTAS],
        events=_capped(json.dumps(model.plan.to_json(), indent=1, ensure_ascii=False)),
        schema_text=_capped(schema.to_toml()),
        fingerprint=schema.fingerprint,
        edges=_capped("\n".join(f"{cause} -> {effect}" for cause, effect in graph.edges)),
        details=_capped(json.dumps(_details(model), indent=1, ensure_ascii=False, default=str)),
        versions=[(name, version(name)) for name in ("escudo", *_LIBRARIES)],
    )


def _claimed(graph: CausalGraph, added: Sequence[tuple[str, str]]) -> CausalGraph:
    """Return the graph that laws follow, with lines in place of the arrows that nobody stated."""
    stated = tuple(edge for edge in graph.edges if edge not in added)
    return replace(graph, edges=stated, undirected_edges=(*graph.undirected_edges, *added))


def _arrows(graph: CausalGraph, added: Sequence[tuple[str, str]] | None, name: str = "arrow") -> str:
    """Return how many arrows are stated, and how many more edges there are."""
    lines = len(added or ())
    return _several(len(graph.edges) - lines, name) + (f", {_several(lines, 'line')}" if lines else "")


def _several(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'s' if count != 1 else ''}"


def _drawn(graph: CausalGraph, found: Sequence[_FoundEdge] | None) -> str:
    """Return the graph as SVG, how sure its edges are where they were found; nothing if it is too large."""
    edges = (*graph.edges, *graph.undirected_edges)
    if len(graph.nodes) > _MOST_NODES or len(edges) > _MOST_ARROWS:
        return ""
    if found is None:
        return graph.to_svg()
    sure = dict.fromkeys(edges, 0.0)
    for one in found:
        for pair in ((one.first, one.second), (one.second, one.first)):
            if pair in sure:
                sure[pair] = one.sure or 0.0
    labels = {pair: f"{100 * share:.0f} %" for pair, share in sure.items() if share}
    widths = {pair: 0.8 + 3.4 * share for pair, share in sure.items()}
    return graph.to_svg(edge_width=widths, edge_labels=labels if len(labels) <= _MOST_FOUND else {})


def _facts(model: Model, rows: int, epsilon: float, delta: float) -> list[tuple[str, str, str]]:
    guarantee = model.guarantee
    verb = "replaced" if guarantee.relation == "replace_one" else "added or removed"
    limit = guarantee.max_rows_per_person
    if guarantee.unit == "person":
        verb = f"with up to {limit} row{'s' if limit != 1 else ''}, {verb}"
    return [
        ("rows", f"{rows:,}", "all of them made up"),
        ("columns", f"{len(model.schema.names):,}", _arrows(model.graph, added_arrows(model), "causal arrow")),
        ("promised", "nothing", "made without privacy")
        if guarantee.none
        else ("ε", rounded_up(epsilon), f"at δ = {power_of_ten(delta)}" if delta else "with no exception (δ = 0)"),
        ("protects", "nobody", "not for release") if guarantee.none else ("protects", f"one {guarantee.unit}", verb),
    ]


def _look(model: Model, synthetic: pl.DataFrame | pl.LazyFrame) -> _Look:
    schema = model.schema
    names = list(schema.names[:MOST_MAPPED])
    table = synthetic_table(synthetic, schema)
    charted = names[:MOST_CARDS]
    counts = table.counts([[name] for name in charted])
    cards = [column_card(schema[name], counted) for name, counted in zip(charted, counts, strict=True)]
    if len(names) < 2:
        return _Look(cards, "", [], "", None)
    codes = cells(table, names)
    few = [merge_cells(schema[name], codes[:, place], most=MAP_CELLS) for place, name in enumerate(names)]
    strength, gaps = dependence(np.column_stack([some for some, _ in few]), [count for _, count in few])
    mapped = heat_map(names, strength, title="How much each pair of columns depends on each other (Cramér's V)")
    paired, pairs = pairs_of(schema, names, synthetic.lazy().head(len(codes)).collect(), codes, strength)
    place = {name: number for number, name in enumerate(names)}
    along = [gaps[place[a], place[b]] for a, b in model.graph.edges if a in place and b in place]
    return _Look(cards, mapped, paired, pairs, float(np.mean(along)) if along else None)


def _tree(plan: Plan, total: str) -> list[dict[str, Any]]:
    """Return the budget tree line by line; bars are shares of the whole in zCDP, in which costs add up."""
    whole = plan.event.weight if plan.event is not None else 0.0

    def line(node: Plan, depth: int, times: int) -> Iterator[dict[str, Any]]:
        event = node.event
        cost = total if depth == 0 else cost_text(event)
        symbol, _, figure = cost.partition(" = ")
        plain = depth > 0 and event is not None and figure.replace(".", "", 1).isdigit()
        yield {
            "depth": depth,
            "name": node.name if node.count == 1 else f"{node.count} × {node.name}",
            "buys": node.buys,
            "free": event is None,
            "symbol": symbol if plain else "",
            "figure": figure if plain else "",
            "cost": cost,
            "share": times * event.weight / whole if event is not None and depth > 0 and whole > 0 else None,
        }
        for child in node.children:
            yield from line(child, depth + 1, times * node.count)

    return list(line(plan, 0, 1))


def _noise_row(noise: Any) -> dict[str, Any]:
    return {
        "what": noise.what if noise.count == 1 else f"{noise.count} × {noise.what}",
        "buys": noise.buys,
        "rows": None if noise.rows is None else f"{noise.rows:.1f}",
        "share": None if noise.share is None else f"{100 * noise.share:.2f}",
        "deviation": f"{noise.deviation:.1f}",
    }


def _citation(model: Model, dataset: str, made: datetime, epsilon: float, delta: float) -> str:
    guarantee = model.guarantee
    if guarantee.none:
        return "Not to be cited: made without privacy, not for release."
    change = "replace one" if guarantee.relation == "replace_one" else "add or remove one"
    promise = f"ε = {rounded_up(epsilon)}" + (f", δ = {power_of_ten(delta)}" if delta else "")
    return (
        f"Synthetic data{f' from {dataset}' if dataset else ''}, {made.year}. Differentially private release "
        f"({promise}, {change} {guarantee.unit}) by escudo {version('escudo')}, generator {model.generator}, "
        f"{made:%Y-%m-%d}."
    )


def _example(model: Model) -> str:
    """Return a command that draws rows under an intervention on some column that has effects, if one is answered."""
    graph, schema = model.graph, model.schema
    acting = [name for name in schema.names if graph.children(name)]
    # Setting a column without causes is no different from looking at rows where it has that value.
    for name in filter(model.answers_do, sorted(acting, key=lambda name: not graph.parents(name))):
        column = schema[name]
        value = f"{column.fill_value:g}" if isinstance(column, Numeric) else column.labels[0]
        return f"escudo sample model --rows 1000 --do {shlex.quote(f'{name}={value}')}"
    return "escudo sample model --rows 1000"


def _size(count: int) -> str:
    """Return a file size for people.

    >>> _size(999), _size(12_345), _size(3_200_000)
    ('999 B', '12.3 kB', '3.2 MB')
    """
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def _capped(text: str) -> str:
    if len(text) <= _MOST_TEXT:
        return text
    return text[:_MOST_TEXT].rsplit("\n", 1)[0] + "\n… the rest is in release.json"
