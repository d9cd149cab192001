"""The report of a release: what was released, what it promises, what it cost, how good it is, what it does not protect.

It reads the model and the synthetic rows only: nothing on the page looks at the private table again.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from escudo.privacy import (
    ComposedEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    GDPEvent,
    LaplaceEvent,
    ParallelEvent,
    Plan,
    PureEvent,
    RepeatedEvent,
    ZCDPEvent,
)
from escudo.privacy._curves import ORDERS
from escudo.privacy._plan import cost_text
from escudo.privacy._totals import leaf_curve
from escudo.report._charts import heat_map, percent
from escudo.report._limits import FoundEdge, discovered_edges, limits_of, picks_arrows
from escudo.report._look import MAP_CELLS, MOST_CARDS, MOST_MAPPED, column_card, merged, pairs_of
from escudo.report._page import render
from escudo.report._paid import paid_figures
from escudo.report._promise import (
    power_of_ten,
    promise_picture,
    promise_sentence,
    rounded_up,
    stated,
    who_gets_what,
)
from escudo.report._record import LIBRARIES, FileEntry, added_arrows, details_of, noise_of, observed_pairs, warnings_of
from escudo.table import Numeric
from escudo.utility import EVALUATION_PURPOSE as PURPOSE
from escudo.utility import cells, dependence, synthetic_table

if TYPE_CHECKING:
    import polars as pl

    from escudo.causal import CausalGraph
    from escudo.synthesis import Model
    from escudo.utility import PrivateEvaluation

__all__ = ["release_page"]

_MOST_NODES, _MOST_ARROWS = 300, 1500
_MOST_LINES = 24
_MOST_NOISE = 16
_MOST_FOUND = 25
_MOST_TEXT = 60_000
_DELTAS = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10)

_ABOUT = {
    "synthetic.parquet": "the synthetic rows",
    "synthetic.csv": "the same rows as text",
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
    synthetic: pl.DataFrame,
    *,
    dataset: str = "",
    made: datetime,
    entries: Sequence[FileEntry] = (),
    evaluation: PrivateEvaluation | None = None,
) -> str:
    """Return the report of a release as one HTML page of less than 2 MB.

    Args:
        model: The fitted model.
        synthetic: The synthetic rows that are released.
        dataset: What the table is called.
        made: When, in UTC.
        entries: The files beside the report.
        evaluation: Figures about the synthetic rows that the plan paid for.
    """
    from markupsafe import Markup

    guarantee, schema, graph = model.guarantee, model.schema, model.graph
    epsilon, delta = stated(guarantee)
    promise = promise_sentence(guarantee)
    look = _look(model, synthetic)
    added = added_arrows(model)
    noise = [one for one in noise_of(model, synthetic.height) if one.what != PURPOSE]
    found = discovered_edges(model)
    return render(
        "release.html.j2",
        kind="Release",
        title=f"Synthetic data from {dataset}" if dataset else "Synthetic data from a private table",
        lead=promise if guarantee.for_release else f"A trial run. Made without a seed it would promise: {promise}",
        source=f"{made:%d %B %Y}".lstrip("0"),
        for_release=guarantee.for_release,
        warnings=warnings_of(model),
        float_safe=guarantee.float_safe,
        facts=_facts(model, synthetic, epsilon, delta),
        files=[
            {"path": entry.path, "about": _ABOUT.get(entry.path, ""), "size": _size(entry.bytes)}
            for entry in sorted(entries, key=lambda entry: list(_ABOUT).index(entry.path))
        ],
        picture=Markup(promise_picture(guarantee)),  # safe, as is the graph's: names are escaped where they are drawn
        unit=guarantee.unit,
        who=who_gets_what(guarantee),
        delta=power_of_ten(delta),
        graph=Markup(_drawn(graph, found)),
        graph_summary=f"{len(schema.names)} columns, {len(graph.edges)} arrows",
        latents=sorted(graph.latents),
        added=[] if added is None or found is not None else [f"{cause} → {effect}" for cause, effect in added],
        picked=picks_arrows(model),
        found=found,
        found_shown=_MOST_FOUND,
        observed=[" — ".join(pair) for pair in observed_pairs(model)],
        tree=(
            tree := _tree(
                model.plan, f"ε = {rounded_up(epsilon)}" + (f" at δ = {power_of_ten(delta)}" if delta else "")
            )
        ),
        tree_shown=_MOST_LINES if len(tree) > _MOST_LINES + 6 else len(tree),
        rows=synthetic.height,
        look=look,
        columns=len(schema.names),
        grouped=MAP_CELLS if max(schema.shape()) > MAP_CELLS else 0,
        gap=None if look.gap is None else percent(look.gap),
        noise=[_noise_row(one) for one in noise[:_MOST_NOISE]],
        noise_left=len(noise) - _MOST_NOISE,
        paid=None if evaluation is None else paid_figures(evaluation),
        limits=limits_of(model, noise=noise, added=added),
        generator=model.generator,
        hashes="\n".join(f"{entry.sha256}  {entry.path}" for entry in entries),
        history=f"escudo ledger history {shlex.quote(dataset)}" if dataset else "escudo ledger history",
        anchor=model.details.get("anchor"),
        example=_example(model),
        citation=_citation(model, dataset, made, epsilon, delta),
        guarantee=guarantee,
        sentence=str(guarantee),
        curve=[(power_of_ten(at), rounded_up(guarantee.epsilon_at(at))) for at in _DELTAS],
        events=_capped(json.dumps(model.plan.to_json(), indent=1, ensure_ascii=False)),
        schema_text=_capped(schema.to_toml()),
        fingerprint=schema.fingerprint,
        edges=_capped("\n".join(f"{cause} -> {effect}" for cause, effect in graph.edges)),
        details=_capped(json.dumps(details_of(model), indent=1, ensure_ascii=False, default=str)),
        versions=[(name, version(name)) for name in ("escudo", *LIBRARIES)],
    )


def _drawn(graph: CausalGraph, found: Sequence[FoundEdge] | None) -> str:
    """Return the graph as SVG, how sure its edges are where they were found; nothing if it is too large."""
    if len(graph.nodes) > _MOST_NODES or len(graph.edges) > _MOST_ARROWS:
        return ""
    if found is None:
        return graph.to_svg()
    sure = {(cause, effect): 0.0 for cause, effect in graph.edges}
    for one in found:
        for pair in ((one.first, one.second), (one.second, one.first)):
            if pair in sure:
                sure[pair] = one.sure
    labels = {pair: f"{100 * share:.0f} %" for pair, share in sure.items() if share}
    widths = {pair: 0.8 + 3.4 * share for pair, share in sure.items()}
    return graph.to_svg(edge_width=widths, edge_labels=labels if len(labels) <= _MOST_FOUND else {})


def _facts(model: Model, synthetic: pl.DataFrame, epsilon: float, delta: float) -> list[tuple[str, str, str]]:
    guarantee = model.guarantee
    verb = "replaced" if guarantee.relation == "replace_one" else "added or removed"
    limit = guarantee.max_rows_per_person
    if guarantee.unit == "person":
        verb = f"with up to {limit} row{'s' if limit != 1 else ''}, {verb}"
    return [
        ("rows", f"{synthetic.height:,}", "all of them made up"),
        ("columns", f"{len(model.schema.names):,}", f"{len(model.graph.edges)} causal arrows"),
        ("ε", rounded_up(epsilon), f"at δ = {power_of_ten(delta)}" if delta else "with no exception (δ = 0)"),
        ("protects", f"one {guarantee.unit}", verb),
    ]


def _look(model: Model, synthetic: pl.DataFrame) -> _Look:
    schema = model.schema
    names = list(schema.names[:MOST_MAPPED])
    table = synthetic_table(synthetic, schema)
    charted = names[:MOST_CARDS]
    counts = table.counts([[name] for name in charted])
    cards = [column_card(schema[name], counted) for name, counted in zip(charted, counts, strict=True)]
    if len(names) < 2:
        return _Look(cards, "", [], "", None)
    codes = cells(table, names)
    few = [merged(schema[name], codes[:, place], most=MAP_CELLS) for place, name in enumerate(names)]
    strength, gaps = dependence(np.column_stack([some for some, _ in few]), [count for _, count in few])
    mapped = heat_map(names, strength, title="How much each pair of columns depends on each other (Cramér's V)")
    paired, pairs = pairs_of(schema, names, synthetic, codes, strength)
    place = {name: number for number, name in enumerate(names)}
    along = [gaps[place[a], place[b]] for a, b in model.graph.edges if a in place and b in place]
    return _Look(cards, mapped, paired, pairs, float(np.mean(along)) if along else None)


def _tree(plan: Plan, total: str) -> list[dict[str, Any]]:
    """Return the budget tree line by line; bars are shares of the whole in zCDP, in which costs add up."""
    whole = _rho(plan.event) if plan.event is not None else 0.0

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
            "share": times * _rho(event) / whole if event is not None and depth > 0 and whole > 0 else None,
        }
        for child in node.children:
            yield from line(child, depth + 1, times * node.count)

    return list(line(plan, 0, 1))


def _rho(event: Event) -> float:
    """Return the event's zCDP cost where it is a simple one: enough to draw shares with."""
    if isinstance(event, GaussianEvent):
        return (event.l2_sensitivity / event.scale) ** 2 / 2
    if isinstance(event, ExponentialEvent):
        return event.epsilon**2 / 8
    if isinstance(event, PureEvent):
        return event.epsilon**2 / 2
    if isinstance(event, ZCDPEvent):
        return event.rho
    if isinstance(event, GDPEvent):
        return event.mu**2 / 2
    if isinstance(event, LaplaceEvent):
        return (event.l1_sensitivity / event.scale) ** 2 / 2
    if isinstance(event, RepeatedEvent):
        return event.count * _rho(event.event)
    if isinstance(event, ComposedEvent):
        return sum(map(_rho, event.events))
    if isinstance(event, ParallelEvent):
        return max(map(_rho, event.events))
    loss = float((leaf_curve(event).renyi / ORDERS).max())  # as the cost beside the bar
    return loss if math.isfinite(loss) else 0.0


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
    change = "replace one" if guarantee.relation == "replace_one" else "add or remove one"
    promise = f"ε = {rounded_up(epsilon)}" + (f", δ = {power_of_ten(delta)}" if delta else "")
    return (
        f"Synthetic data{f' from {dataset}' if dataset else ''}, {made.year}. Differentially private release "
        f"({promise}, {change} {guarantee.unit}) by escudo {version('escudo')}, generator {model.generator}, "
        f"{made:%Y-%m-%d}."
    )


def _example(model: Model) -> str:
    """Return a command that draws rows under an intervention on some column that has effects and no hidden cause."""
    graph, schema = model.graph, model.schema
    free = [name for name in schema.names if graph.children(name) and not graph.latents & set(graph.parents(name))]
    # Setting a column without causes is no different from looking at rows where it has that value.
    for name in sorted(free, key=lambda name: not graph.parents(name)):
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
