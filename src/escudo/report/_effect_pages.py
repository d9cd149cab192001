"""The reports on effects, of one thing on another: exact ones, those that composition bounds, those an audit measured.

* the effects of a model: its diagram with ε on the arrows, the table, and what it means in plain words;
* a ledger: what all releases of a dataset together can change;
* an audit: the verdict, the bets that led to it, the witness, and what was not tested.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
from escudo.report._svg import Line, Scale, bars, histogram, lines

if TYPE_CHECKING:
    from markupsafe import Markup

    from escudo.auditing import Audit, Outputs, SuiteResult
    from escudo.causal import SEM, CausalGraph


# ---- effects of a model, and of all releases

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
    guarded = {edge: f"ε = {show_epsilon(value)}" for edge in edges if math.isfinite(value := _arrow(sem, *edge))}
    graph: CausalGraph = CausalGraph.from_edges(edges, nodes, outcomes=[home[name] for name in effects.outputs])
    return graph.to_svg(
        labels={name: _names(many[name]) for name in nodes if len(many[name]) > 1},
        edge_labels=guarded,
        title=f"What reaches {_names(effects.outputs)}",
    )


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


# ---- an audit

_MOST_CELLS = 40
_LONG = 400


Floats = NDArray[np.float64]


def audit_page(found: Audit, *, mechanism: str = "") -> str:
    """Return the report on an audit.

    Args:
        found: The audit.
        mechanism: What was audited, for the heading.
    """
    return render(
        "audit.html.j2",
        kind="Audit",
        title=_title(found),
        lead=found.verdict,
        source=mechanism,
        violated=found.violated,
        facts=_facts(found),
        wealth=_wealth(found),
        bound=_bound(found),
        threshold=f"{1 / (1 - found.confidence):,.0f}",
        witness=_witness(found),
        outputs=None if found.outputs is None else _outputs(found.outputs),
        pairs=[_cut(label) for label in found.pairs],
        untested=_untested(found),
        notes=found.notes,
        claim=str(found.claim),
        second=show_epsilon(found.clopper_pearson),
        seed=found.seed,
        power=found.power,
        curve=[(f"{delta:g}", show_epsilon(epsilon)) for delta, epsilon in found.curve],
        plausible=None if found.plausible is None else show_epsilon(found.plausible),
        confidence=f"{100 * found.confidence:.4g} %",
    )


def suite_page(found: SuiteResult, *, source: str = "") -> str:
    """Return the report on a suite of audits: what each found, and the whole verdict of those that need a look.

    Args:
        found: The findings.
        source: The file it was read from, for the heading.
    """
    words = {"violated": "rejected", "error": "not audited", "passed": "no violation found"}
    title = "A promise is broken" if found.violated else "No broken promise was found"
    if found.count("error") and not found.violated:
        title = "Not everything could be audited"
    return render(
        "suite.html.j2",
        kind="Audits",
        title=title,
        lead=found.verdict,
        source=source,
        rows=[
            {
                "name": _cut(entry.name),
                "outcome": words[entry.outcome],
                "broken": entry.outcome != "passed",
                "claim": "" if entry.audit is None else entry.audit.claimed,
                "bound": "" if entry.audit is None else show_epsilon(entry.audit.epsilon_lower),
                "runs": "" if entry.audit is None else f"{entry.audit.runs:,}",
                "lines": [_cut(line) for line in entry.lines],
            }
            for entry in found.entries
        ],
    )


def _title(found: Audit) -> str:
    if found.violated:
        return "The mechanism breaks its promise"
    return "Nothing was audited" if found.nothing_audited else "No broken promise was found"


def _facts(found: Audit) -> list[tuple[str, str, str]]:
    at = f"at δ = {found.delta:g}, " if found.delta else ""
    facts = [
        (
            "Claimed",
            found.claimed,
            "one record replaced" if found.claim.relation == "replace_one" else "one record more or less",
        ),
        (
            "Measured",
            f"ε ≥ {show_epsilon(found.epsilon_lower)}",
            f"{at}{100 * found.confidence:.4g} % confidence, valid at any time",
        ),
        (
            "Runs",
            f"{found.runs:,}",
            f"in {found.seconds:,.1f} s" + (", stopped early" if found.stopped == "violated" else ""),
        ),
    ]
    if found.lower is not None:
        sign = "ρ" if found.claim.rho is not None else "μ"
        facts.insert(2, ("In the claim's terms", f"{sign} ≥ {found.lower:.3g}", "the same confidence"))
    return facts


def _wealth(found: Audit) -> Markup:
    """Return how a bettor against the claim fared; at the line the claim is rejected."""
    history, runs = found.history, found.history.runs.astype(np.float64)
    limit = math.log10(1 / (1 - found.confidence))
    wealth = np.maximum(np.where(np.isfinite(history.log_wealth), history.log_wealth, -np.inf) / math.log(10), -4.0)
    end = f"{found.runs:,} runs"
    last = (
        f"{10 ** float(wealth[-1]):.3g}"
        if wealth.size and wealth[-1] < 6
        else f"10^{float(wealth[-1]):.0f}"
        if wealth.size
        else "1"
    )
    title = f"Wealth of a bettor against the claim: {last} after {end}; {10**limit:,.0f} rejects the claim"
    return lines(
        [Line("wealth", runs, wealth)],
        title,
        across=Scale.of_runs(runs),
        up=Scale.of_heights(wealth, covering=(-1.0, limit + 0.5), powers=True),
        level=(limit, f"{10**limit:,.0f}: claim rejected"),
    )


def _bound(found: Audit) -> Markup:
    """Return the lower bound on ε as it grew, with the claim where it is an ε."""
    runs, claim = found.history.runs.astype(np.float64), found.claim.epsilon
    title = f"Lower bound on ε: {show_epsilon(found.epsilon_lower)} after {found.runs:,} runs"
    if claim is not None:
        title += f"; the claim is {show_epsilon(claim)}"
    return lines(
        [Line("ε", runs, found.history.epsilon_lower)],
        title,
        across=Scale.of_runs(runs),
        up=Scale.of_heights(found.history.epsilon_lower, covering=(0.0, 1.15 * max(claim or 0.0, 0.1))),
        level=None if claim is None else (claim, f"claim {show_epsilon(claim)}"),
    )


def _witness(found: Audit) -> dict[str, Any] | None:
    witness = found.witness
    if witness is None:
        return None
    first, second = (", ".join(str(value) for value in side.values()) for side in (witness.x1, witness.x2))
    shown: dict[str, Any] = {
        "first": _cut(first),
        "second": _cut(second),
        "event": ", ".join(str(value) for value in witness.y.values()),
        "times": "",
        "frequencies": None,
    }
    if witness.probabilities is not None:
        one, other = witness.probabilities
        shown["frequencies"] = (f"{100 * one:.3g} %", f"{100 * other:.3g} %" if other > 0 else "none")
        shown["times"] = f"{one / other:.3g} times as often" if other > 0 else ""
    return shown


def _outputs(outputs: Outputs) -> dict[str, Any]:
    """Return the chart of what came out under both inputs, and how to read it."""
    first = outputs.first / max(int(outputs.first.sum()), 1)
    second = outputs.second / max(int(outputs.second.sum()), 1)
    runs = (f"{int(outputs.first.sum()):,}", f"{int(outputs.second.sum()):,}")
    title = "Outputs under the first input (filled) and under the second (outlined)"
    if outputs.edges is not None and outputs.edges.size == first.size + 1 and first.size:
        edges = _finite(outputs.edges)
        chart = histogram(edges, first, title, ends=(f"{edges[0]:.4g}", f"{edges[-1]:.4g}"), real=second)
    else:
        order = np.argsort(-(first + second), kind="stable")[:_MOST_CELLS]
        labels = [outputs.labels[place] for place in order]
        chart = bars(labels, first[order].tolist(), title, real=second[order].tolist())
    what = {
        "number": "The output is a number.",
        "category": "Each bar is one output, or one kind of them.",
        "score": "The output is larger than one number; shown is the number made of it that tells most.",
    }[outputs.kind]
    return {"chart": chart, "what": what, "runs": runs}


def _finite(edges: Floats) -> Floats:
    """Return boundaries of which the outermost may have been infinite."""
    inner = edges[np.isfinite(edges)]
    if inner.size == edges.size and inner[-1] > inner[0]:
        return edges
    step = float(np.median(np.diff(inner))) if inner.size > 1 else 1.0
    shown = edges.copy()
    if not np.isfinite(shown[0]):
        shown[0] = (inner[0] if inner.size else 0.0) - (step or 1.0)
    if not np.isfinite(shown[-1]):
        shown[-1] = (inner[-1] if inner.size else 0.0) + (step or 1.0)
    return shown


def _untested(found: Audit) -> list[tuple[str, str]]:
    """Return what this audit says nothing about, as name and sentence."""
    rare = 10 / max(found.runs, 1)
    untested = [
        ("Other inputs", "Only the input pairs listed above were tried. A mechanism can fail on others alone."),
        (
            "Rarer outputs",
            f"Something that happens less than about once in {1 / rare:,.0f} runs was hardly seen. A mechanism that "
            "gives everything away with so small a probability passes every test from outside.",
        ),
        (
            "Other ways out",
            "Only what the mechanism returned was looked at: no logs, memory, network or other files.",
        ),
    ]
    if not found.violated:
        untested.insert(
            0,
            (
                "That it is private",
                "Not finding a violation is no proof. Only reading the mechanism's proof, and its code, is.",
            ),
        )
    return untested


def _cut(text: str) -> str:
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"
