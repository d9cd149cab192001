r"""Arrows that the graph misses: candidate pairs whose moments are not what the model implies; post-processing.

A candidate's *surprise* is how far its moments are from the model's, in standard deviations of noise and chance. Under
``max`` and ``noisy-or`` causes only ever switch an effect on, so a pair that is seen together too rarely has no arrow
for a remedy, and only an excess counts.

**Cause or effect?** A *loose* column, which no stated arrow touches, may be either. The two differ in all pairs it is
in, not only in those it is joined to: as an effect it goes together with all that comes before its causes, as a cause
it does not. So both are fitted, and the one that leaves less squared surprise in the pairs of this column is kept; an
effect it stays, unless a cause is clearly better.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from escudo.synthesis._moment_forms import MONOTONE
from escudo.synthesis._moment_pass import Parents, State, Task
from escudo.synthesis._moment_statistics import Floats
from escudo.synthesis._structure import Arrow

__all__ = ["Surprise", "joined", "turned", "unrelated", "without_shortcuts"]

_SURPRISE = 3.3  # one candidate in two thousand gets there by chance
_CLEARLY = 6.0  # of squared surprise: a likelihood ratio of twenty


class Surprise:
    """How far what was released is from what a model implies.

    What the model implies for two levels together is first put right for what it gets wrong in each of them: rows with
    a level can be clipped more than simulated just because an arrow elsewhere is missing.

    Attributes:
        entries: For each entry of the layout how many standard deviations the release is above the model.
    """

    def __init__(self, task: Task, state: State):
        self._task = task
        layout = task.layout
        excess, implied, precision = (np.zeros(layout.size) for _ in range(3))
        for moments, clipped in zip(task.releases, state.clipped, strict=True):
            right = (moments.values + moments.scale) / (clipped + moments.scale)
            wanted = clipped.copy()
            pairs = slice(wanted.size - moments.layout.ends.shape[1], None)
            wanted[pairs] *= np.clip(right[moments.layout.ends], 0.5, 2.0).prod(axis=0)
            places, weight = layout.places(moments.layout), moments.scale**-2.0
            excess[places] += weight * (moments.values - wanted)
            implied[places] += weight * wanted
            precision[places] += weight
        share = np.clip(implied / precision / task.rows, 0.0, 1.0)
        chance = share * (1.0 - share) * task.rows * (1.0 + task.rows / len(state.drawn)) + 1.0
        self.entries: Floats = excess / precision / np.sqrt(1.0 / precision + chance)

    def of(self, arrow: Arrow) -> float:
        """Return the surprise that an arrow would explain."""
        layout = self._task.layout
        block = layout.block(arrow)
        entries = self.entries[layout.starts[block] :][: layout.lengths[block]]
        monotone = self._task.forms.get(arrow[1]) in MONOTONE
        return float((entries if monotone else np.abs(entries)).max(initial=0.0))

    def most(self, candidates: Sequence[Arrow], count: int) -> list[Arrow]:
        """Return the most surprising candidates."""
        order = np.argsort([-self.of(arrow) for arrow in candidates], kind="stable")
        return [candidates[place] for place in order[:count]]

    def strongest(self, candidates: Iterable[Arrow]) -> dict[str, list[Arrow]]:
        """Return for each effect the candidates that surprise enough to become arrows, the strongest first."""
        strong: dict[str, list[tuple[float, Arrow]]] = {}
        for arrow in candidates:
            if (surprise := self.of(arrow)) > _SURPRISE:
                strong.setdefault(arrow[1], []).append((surprise, arrow))
        return {effect: [arrow for _, arrow in sorted(several, reverse=True)] for effect, several in strong.items()}

    def left(self, column: str) -> float:
        """Return the squared surprise in all pairs of a column."""
        layout = self._task.layout
        owned = layout.ends - layout.starts[column]
        mine = ((owned >= 0) & (owned < layout.lengths[column])).any(axis=0)
        return float((self.entries[layout.size - mine.size :][mine] ** 2).sum())


def joined(parents: Parents, arrows: Iterable[Arrow]) -> dict[str, tuple[str, ...]]:
    """Return each column's parents once arrows are added."""
    more = dict(parents)
    for cause, effect in arrows:
        more[effect] = (*more[effect], cause)
    return more


def without_shortcuts(arrows: Collection[Arrow], parents: Parents) -> set[Arrow]:
    """Return arrows without those past another effect of the same cause, which may be all there is to them."""
    after = _after(joined(parents, arrows))
    past = {(cause, other) for cause, effect in arrows for other in after(effect)}
    return set(arrows) - past


def unrelated(arrows: Iterable[Arrow], parents: Parents) -> list[Arrow]:
    """Return arrows into one column, strongest first, without those from before or after a stronger one's cause."""
    after = _after(parents)
    kept: list[Arrow] = []
    for cause, effect in arrows:
        if not any(cause in after(other) or other in after(cause) for other, _ in kept):
            kept.append((cause, effect))
    return kept


def turned(columns: Collection[str], as_effects: Surprise, as_causes: Surprise) -> set[str]:
    """Return the columns that explain clearly more as causes of what they are paired with than as its effects."""
    return {name for name in columns if as_causes.left(name) < as_effects.left(name) - _CLEARLY}


def _after(parents: Parents) -> Callable[[str], set[str]]:
    """Return what gives all columns that a column acts on, directly or not."""
    effects: dict[str, set[str]] = {name: set() for name in parents}
    for effect, several in parents.items():
        for cause in several:
            effects[cause].add(effect)

    def after(name: str) -> set[str]:
        found, waiting = set[str](), [name]
        while waiting:
            new = effects[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    return after
