"""The report on effects: the diagram with ε on its arrows, the table, and what it means in plain words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from escudo.effects import (
    Diagram,
    Effect,
    Survey,
    SurveyRow,
    associative,
    definitions,
    direct,
    effect,
    mechanism_of,
    show_epsilon,
    show_times,
    survey,
)
from escudo.errors import InputError
from escudo.report._page import render

if TYPE_CHECKING:
    from escudo.causal import SEM, CausalGraph

__all__ = ["effects_page", "effects_picture", "ledger_page"]

_MOST_NODES = 80


def effects_page(sem: SEM, *, found: Survey | None = None, source: str = "", text: str = "") -> str:
    """Return the report on all effects of a model on its outputs.

    Args:
        sem: The model.
        found: Its effects, if they are already known.
        source: The file it was read from, for the heading.
        text: The model's text, to show at the end; by default as the model writes itself.
    """
    from markupsafe import Markup

    effects = found if found is not None else survey(sem)
    outputs = _names(effects.outputs)
    picture = effects_picture(sem, effects)
    return render(
        "effects.html.j2",
        kind="Effects",
        title=f"What changes {outputs}, and by how much",
        lead=_lead(effects, outputs),
        source=source,
        picture=Markup(picture),  # safe: every name in it is escaped where it is drawn
        picture_note=(
            "Arrows are direct causes. ε on an arrow is how much that one cause can change the other end while all its "
            "other causes stay as they are; an arrow without a number passes on every change."
        ),
        outputs=outputs,
        quantifier=_quantifier(effects),
        rows=[
            _row(row.effect, effects, names=_names(row.names), role=_plural(row), by_what=row.by_what)
            for row in effects.rows
        ],
        together=[
            {"names": _names(one.of), "joint": show_epsilon(one.epsilon), "total": show_epsilon(all_.epsilon)}
            for one, all_ in effects.together
        ],
        association=_association(sem, effects),
        definitions=_definitions(sem, effects),
        text=text or sem.to_text(),
    )


def effects_picture(sem: SEM, effects: Survey) -> str:
    """Return the causal diagram as SVG with ε on its guarded arrows; variables that are alike share a node."""
    from escudo.causal import CausalGraph, alike

    home = {name: group[0] for group in alike(sem) for name in group}
    many = {group[0]: group for group in alike(sem)}
    arrows = [(parent, name) for name in sem.endogenous for parent in sem.parents(name) if home[name] == name]
    edges = list(dict.fromkeys((home[parent], name) for parent, name in arrows))
    nodes = [name for name in sem.variables if home[name] == name]
    if len(nodes) > _MOST_NODES:
        return ""
    labels = {name: _names(many[name]) for name in nodes if len(many[name]) > 1}
    guarded = {edge: f"ε = {show_epsilon(value)}" for edge in edges if math.isfinite(value := _arrow(sem, *edge))}
    graph: CausalGraph = CausalGraph.from_edges(edges, nodes=nodes, outcomes=[home[name] for name in effects.outputs])
    return graph.to_svg(labels=labels, edge_labels=guarded, title=f"What reaches {_names(effects.outputs)}")


def ledger_page(
    diagram: Diagram, found: Sequence[tuple[str, Effect]], *, dataset: str, terms: str, delta: float
) -> str:
    """Return the report on what all releases of a dataset together can change.

    Args:
        diagram: The ledger as a diagram.
        found: What was changed, in words, and the bound; the first is what the lead is about.
        dataset: The account's name.
        terms: Its relation, unit and delta, in words.
        delta: The delta of the account, at which single releases are shown.
    """
    releases = [(name, node) for name, node in diagram.nodes.items() if node.kind == "mechanism"]
    most = max((one.epsilon for _, one in found if math.isfinite(one.epsilon)), default=0.0)
    who, promise = found[0]
    return render(
        "ledger.html.j2",
        kind="Effects",
        title=f"What all releases together do to {who}, and to several",
        lead=f"If {who} changes, n{_promise(promise)[1:]}",
        source=dataset,
        terms=terms,
        rows=[
            {
                "names": names,
                "epsilon": show_epsilon(one.epsilon),
                "share": _share(one.epsilon, most),
                "endless": math.isinf(one.epsilon),
                "sentence": _promise(one),
            }
            for names, one in found
        ],
        releases=[
            {"name": name, "epsilon": show_epsilon(node.cost(delta)), "purpose": node.text} for name, node in releases
        ],
    )


def _promise(found: Effect) -> str:
    if math.isinf(found.epsilon):
        return "No bound is proved."
    aside = f", except with probability {found.delta:g}" if found.delta else ""
    return f"No outcome becomes more than {show_times(found.epsilon)}{aside}."


def _row(found: Effect, effects: Survey, **more: Any) -> dict[str, Any]:
    finite = [row.effect.epsilon for row in effects.rows if math.isfinite(row.effect.epsilon)]
    return {
        **more,
        "epsilon": show_epsilon(found.epsilon),
        "share": _share(found.epsilon, max(finite, default=0.0)),
        "endless": math.isinf(found.epsilon),
        "sentence": found.sentence,
    }


def _lead(effects: Survey, outputs: str) -> str:
    """Say what protects whom: the promise to single data points, and who does more than that."""
    points = [row for row in effects.rows if row.role == "data point"]
    others = [row for row in effects.rows if row.role == "attribute"]
    promise = max((row.effect.epsilon for row in points), default=0.0)
    if not points or math.isinf(promise):
        lead = f"Single data points can change {outputs} without any bound."
    else:
        lead = f"No single data point changes {outputs} by more than ε = {show_epsilon(promise)}."
    top = max(others, key=lambda row: row.effect.epsilon, default=None)
    if top is None:
        return lead
    much, names = show_epsilon(top.effect.epsilon), _names(top.names)
    if top.effect.epsilon > promise + 1e-9:
        return f"{lead} {names} does more, ε = {much}, because it reaches {outputs} by {top.by_what}."
    return f"{lead} No attribute does more; the strongest is {names}, with ε = {much}."


def _plural(row: SurveyRow) -> str:
    return f"{row.role}s, each" if len(row.names) > 1 else row.role


def _share(epsilon: float, most: float) -> float:
    return 1.0 if math.isinf(epsilon) else epsilon / most if most > 0 else 0.0


def _arrow(sem: SEM, parent: str, child: str) -> float:
    others = [name for name in sem.parents(child) if name != parent]
    return (direct(sem, parent, child, holding=others) if others else effect(sem, parent, child)).epsilon


def _quantifier(effects: Survey) -> str:
    populations = {row.effect.population for row in effects.rows}
    if populations == {"every population"}:
        return "Each number holds in every population, and some population attains it."
    return f"The numbers are for {' and '.join(sorted(populations))}."


def _association(sem: SEM, effects: Survey) -> str:
    """Say where learning a data point tells more about the outputs than setting it changes them."""
    for row in effects.rows:
        if row.role == "data point" and len(effects.outputs) == 1:
            try:
                seen = associative(sem, row.names[0], effects.outputs)
            except InputError:
                continue
            if seen.epsilon > row.effect.epsilon + 1e-9:
                return (
                    f"in the model's own population, learning {row.names[0]} shifts {_names(effects.outputs)} by "
                    f"ε = {show_epsilon(seen.epsilon)}, though setting it does at most "
                    f"ε = {show_epsilon(row.effect.epsilon)}."
                )
    return ""


def _definitions(sem: SEM, effects: Survey) -> list[dict[str, str]]:
    if len(effects.outputs) != 1:
        return []
    try:
        found = definitions(*mechanism_of(sem, effects.outputs[0]))
    except InputError:
        return []  # the output reads too much for a table, or nothing at all
    return [
        {
            "number": "Bayesian₀" if number == "bayesian0" else f"Definition {number}",
            "name": one.name,
            "epsilon": show_epsilon(one.epsilon),
            "compares": one.compares,
            "populations": one.populations,
            "relation": one.relation,
        }
        for number, one in found.items()
    ]


def _names(names: Sequence[str]) -> str:
    if len(names) > 4:
        return f"{names[0]} … {names[-1]} ({len(names)} in all)"
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]
