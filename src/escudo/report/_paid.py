"""Figures about a release's rows that its plan paid for, in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from escudo.privacy._plan import cost_text

if TYPE_CHECKING:
    from escudo.utility import PrivateEvaluation

__all__ = ["paid_figures"]

_WAYS = {"one_way": "one column at a time", "two_way": "two columns together", "three_way": "three columns together"}
_NAMED = 8


def paid_figures(found: PrivateEvaluation) -> dict[str, Any]:
    """Return what the report says about an evaluation that was paid for."""
    values = found.figures
    learnt = None
    if "accuracy" in values:
        gain = (values["accuracy"] - values["baseline"]) * 100
        learnt = {
            "rows": [
                _row("learners trained on the synthetic rows", found, "accuracy"),
                _row("always answering the commonest value", found, "baseline"),
            ],
            "said": _said(gain, 100 * found.deviation),
            "targets": ", ".join(found.targets[:_NAMED])
            + (f" and {len(found.targets) - _NAMED} more" if len(found.targets) > _NAMED else ""),
        }
    most = max((found.intervals[name][1] for name in _WAYS if name in values), default=1.0)
    return {
        "cost": cost_text(found.guarantee.event),
        "apart": [_row(words, found, name, scale=most) for name, words in _WAYS.items() if name in values],
        "learnt": learnt,
        "deviation": f"{100 * found.deviation:.2g}",
    }


def _row(words: str, found: PrivateEvaluation, name: str, *, scale: float = 1.0) -> dict[str, Any]:
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


def _said(gain: float, deviation: float) -> str:
    """Return what the two shares mean, as far as the noise lets them differ."""
    if gain > 3 * deviation:
        return f"What they learnt from made-up rows holds for real ones: {gain:.1f} points better than knowing nothing."
    if gain < -3 * deviation:
        return f"They do worse than knowing nothing, by {-gain:.1f} points: do not learn from these rows."
    return "The noise is too large to tell whether they do better than knowing nothing."
