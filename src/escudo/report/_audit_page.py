"""The report on an audit: the verdict, the bets that led to it, the witness, and what was not tested."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from escudo.effects import show_epsilon
from escudo.report._charts import bars, histogram
from escudo.report._lines import Line, lines
from escudo.report._page import render

if TYPE_CHECKING:
    from markupsafe import Markup

    from escudo.auditing import Audit, Outputs

__all__ = ["audit_page"]

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
        title="The mechanism breaks its promise" if found.violated else "No broken promise was found",
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
    )


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
    history = found.history
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
        [Line(name="wealth", x=history.runs.astype(np.float64), y=wealth, kind="main")],
        level=limit,
        level_name=f"{10**limit:,.0f}: claim rejected",
        title=title,
        powers=True,
        floor=(-1.0, limit + 0.5),
    )


def _bound(found: Audit) -> Markup:
    """Return the lower bound on ε as it grew, with the claim where it is an ε."""
    history, claim = found.history, found.claim.epsilon
    title = f"Lower bound on ε: {show_epsilon(found.epsilon_lower)} after {found.runs:,} runs"
    if claim is not None:
        title += f"; the claim is {show_epsilon(claim)}"
    return lines(
        [Line(name="ε", x=history.runs.astype(np.float64), y=history.epsilon_lower, kind="main")],
        level=claim,
        level_name="" if claim is None else f"claim {show_epsilon(claim)}",
        title=title,
        floor=(0.0, 1.15 * max(claim or 0.0, 0.1)),
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
        ends = (f"{edges[0]:.4g}", f"{edges[-1]:.4g}")
        chart = histogram(edges, first, title=title, ends=ends, real=second)
    else:
        order = np.argsort(-(first + second), kind="stable")[:_MOST_CELLS]
        labels = [outputs.labels[place] for place in order]
        chart = bars(labels, first[order].tolist(), title=title, real=second[order].tolist())
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
