"""The page of an attack: what was tried against a generator, beside what its promise allows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from escudo.effects import show_epsilon
from escudo.report._page import fragment, render

if TYPE_CHECKING:
    from markupsafe import Markup

    from escudo.attacks import Attack, Score

__all__ = ["attack_page", "attack_section"]

_TITLE = "What an attacker could learn from the synthetic rows"


def attack_page(found: Attack) -> str:
    """Return the attack as one HTML page, marked as not for release.

    **Guarantee.** None: the page is about single people in the private table.
    """
    return render("attack.html.j2", kind="For the custodian", title=_TITLE, **_content(found))


def attack_section(found: Attack) -> Markup:
    """Return the same as a section of the custodian's copy of a release's report."""
    body = "attack_body.html.j2"
    return fragment("custodian_section.html.j2", anchor="attack", title=_TITLE, body=body, **_content(found))


def _content(found: Attack) -> dict[str, Any]:
    ceiling = found.ceiling
    return {
        "lead": found.verdict,
        "violated": found.violated,
        "promise": None if found.claim is None else str(found.claim),
        "confidence": f"{100 * found.confidence:g}",
        "targets": [
            {
                "label": target.label,
                "bound": show_epsilon(target.audit.epsilon_lower),
                "runs": f"{target.audit.runs:,}",
                "violated": target.audit.violated,
                "best": _percent(max(score.accuracy for score in target.scores)),
            }
            for target in found.targets
        ],
        "scores": [_row(score) for score in found.ranked],
        "ceiling": None
        if ceiling is None
        else {
            "accuracy": _percent(ceiling.accuracy),
            "advantage": _percent(ceiling.advantage),
            "auc": f"{ceiling.auc:.3f}",
            "tpr": _percent(ceiling.tpr),
        },
        "relation": "somebody else stands in their place"
        if found.relation == "replace_one"
        else "nobody stands in their place",
        "rest": "stay as they are" if found.rest == "fixed" else "are drawn anew for each fit",
        "shadows": f"{found.shadows:,}",
        "trials": f"{found.trials:,}",
    }


def _row(score: Score) -> dict[str, Any]:
    low, high = score.accuracy_interval
    return {
        "features": score.features,
        "classifier": score.classifier,
        "accuracy": _percent(score.accuracy),
        "interval": f"{100 * low:.0f} to {100 * high:.0f}",
        "tpr": _percent(score.tpr),
        "fpr": _percent(score.fpr),
        "auc": "" if math.isnan(score.auc) else f"{score.auc:.3f}",
        "share": min(1.0, max(0.0, 2 * score.accuracy - 1)),
    }


def _percent(share: float) -> str:
    return "" if math.isnan(share) else f"{100 * share:.1f}"
