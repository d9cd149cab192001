"""How a plan is shown: a tree with every node's cost in its own notion, and the total by the accountant."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from escudo.privacy._accounting import RunningTotal
from escudo.privacy._composition import leaf_curve, leaves
from escudo.privacy._curves import ORDERS
from escudo.privacy._events import Event, GaussianEvent, GDPEvent, ZCDPEvent
from escudo.privacy._tally import shown_up

if TYPE_CHECKING:
    from escudo.privacy._plan import Plan

__all__ = ["cost_text", "plan_html", "plan_text"]

FREE = "free (post-processing)"


class _Line(NamedTuple):
    depth: int
    branch: str
    label: str
    cost: str
    buys: str


def plan_text(plan: Plan) -> str:
    """Return the tree as text, in aligned columns."""
    lines = list(_lines(plan))
    labels = max(len(line.branch + line.label) for line in lines)
    costs = max((len(line.cost) for line in lines if line.buys), default=0)
    tree = [f"{line.branch + line.label:<{labels}}   {line.cost:<{costs}}   {line.buys}".rstrip() for line in lines]
    return "\n".join([*tree, f"Warning: {plan.warning}"] if plan.warning else tree)


def plan_html(plan: Plan) -> str:
    """Return the tree as a small HTML table."""
    rows = "".join(
        f'<tr><td style="text-align:left;padding-left:{line.depth * 1.5 + 0.5}em">{html.escape(line.label)}</td>'
        f'<td style="text-align:left">{html.escape(line.cost)}</td>'
        f'<td style="text-align:left">{html.escape(line.buys)}</td></tr>'
        for line in _lines(plan)
    )
    warning = f"<p><strong>Warning:</strong> {html.escape(plan.warning)}</p>" if plan.warning else ""
    return f"<table><caption>Budget plan: nothing is spent yet</caption>{rows}</table>{warning}"


def cost_text(event: Event | None) -> str:
    """Return what an event costs in its own notion: ε for pure losses, ρ or μ for Gaussian noise, δ where it has slack.

    Losses of one notion add up; several notions are listed side by side, and the accountant's total says what they come
    to together.

    >>> from escudo.privacy import GaussianEvent, RepeatedEvent
    >>> cost_text(RepeatedEvent(event=GaussianEvent(l2_sensitivity=1.0, scale=10.0, grid=1.0), count=4))
    'ρ = 0.02'
    """
    if event is None:
        return FREE
    epsilon = rho = mu_squared = slack = 0.0
    for leaf, count in leaves(event):
        curve = leaf_curve(leaf)
        slack += count * curve.slack
        if isinstance(leaf, GDPEvent):
            mu_squared += count * leaf.mu**2
        elif isinstance(leaf, ZCDPEvent | GaussianEvent):
            rho += count * leaf.rho
        elif math.isfinite(curve.pure):
            epsilon += count * curve.pure
        else:
            rho += count * float((curve.renyi / ORDERS).max())
    losses = {"ε": epsilon, "ρ": rho, "μ": math.sqrt(mu_squared)}
    parts = [f"{symbol} = {shown_up(loss)}" for symbol, loss in losses.items() if loss] or ["ε = 0.00"]
    return ", ".join(parts + ([f"δ = {-math.expm1(-slack):.3g}"] if slack else []))


def _lines(plan: Plan) -> Iterator[_Line]:
    yield _Line(0, "", _label(plan), _total_text(plan), plan.buys)
    yield from _below(plan, "", 1)


def _below(plan: Plan, trunk: str, depth: int) -> Iterator[_Line]:
    for number, child in enumerate(plan.children, start=1):
        last = number == len(plan.children)
        yield _Line(depth, trunk + ("└─ " if last else "├─ "), _label(child), cost_text(child.event), child.buys)
        yield from _below(child, trunk + ("   " if last else "│  "), depth + 1)


def _label(plan: Plan) -> str:
    return plan.name if plan.count == 1 else f"{plan.count} × {plan.name}"


def _total_text(plan: Plan) -> str:
    if plan.event is None:
        return FREE
    delta = plan.stated_delta
    bound = RunningTotal.of(plan.event).bound(delta)
    aside = f", δ = {delta:g}" if delta else ""
    change = "replace" if plan.event.relation == "replace_one" else "add or remove"
    return f"ε = {shown_up(bound.value)}{aside}, {change} one {plan.event.unit} ({bound.accountant})"
