r"""From noisy moments to one law per column, as post-processing.

Columns are fitted along the causal order, in ``_PASSES`` passes (``_moment_pass``). Then missing arrows are looked for
among the candidates (``_moment_search``).

**Second look.** Thousands of candidates share one release, so what each of them shows is mostly noise. Where there are
many, the first release only finds suspects. The most surprising are released a second time together with all that is
stated, each as loudly as an arrow: a row's vector is short without the other candidates, so this noise is small. Which
they are, and the clip bound, follow from the first release alone: the bound is a quantile of the lengths of rows
simulated from the model that it gave.

**Rounds.** Each column gets its most surprising candidate as a new parent, one per round; then all is fitted again,
since an arrow explains other surprises away. An arrow from a cause past something that it is joined to in the same
round waits for the next: what it would explain may go that way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from escudo._progress import tracking
from escudo.synthesis._conditionals import Conditional
from escudo.synthesis._moment_pass import Parents, State, Task, one_pass
from escudo.synthesis._moment_search import Surprise, joined, turned, unrelated, without_shortcuts
from escudo.synthesis._moment_statistics import MomentLayout, NoisyMoments, row_squares
from escudo.synthesis._structure import Arrow

__all__ = ["FittedMoments", "SecondLook", "fit_moments"]

_PASSES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedMoments:
    """What a fit found.

    Attributes:
        parents: Each column's parents.
        laws: Each column's law.
        noise: Standard deviation of the noise in a level or arrow, in rows, after all releases.
    """

    parents: Parents
    laws: Mapping[str, Conditional]
    noise: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondLook:
    """A second release, of fewer candidates.

    Attributes:
        suspects: How many.
        clip_quantile: The share of simulated rows that its clip bound leaves as they are.
        measure: Releases a layout under a clip bound on squared lengths.
    """

    suspects: int
    clip_quantile: float
    measure: Callable[[MomentLayout, int], NoisyMoments]


def fit_moments(
    moments: NoisyMoments,
    parents: Parents,
    forms: Mapping[str, str],
    *,
    known: Mapping[str, Conditional] | None = None,
    most_added: int = 0,
    loose: Collection[str] = (),
    second_look: SecondLook | None = None,
    tied: bool = False,
) -> FittedMoments:
    """Fit a law to each column from moments alone.

    Args:
        moments: What was released.
        parents: The parents of each column; without a cycle, also together with the candidates.
        forms: The form of each column that is to be fitted.
        known: Laws of the other columns, which are only simulated; those need no moments.
        most_added: How many of its candidates a column may get as parents.
        loose: Columns without arrows, effects in all their candidates, that may as well be the causes in them.
        second_look: How suspects are measured again; None if they are not.
        tied: Whether the arrows into a column all get the same parameters; for pairs that were not measured.
    """
    task = Task(releases=(moments,), forms=forms, known=known or {}, tied=tied)
    now, candidates = parents, list(moments.layout.candidates)
    rounds = most_added if candidates else 0
    with tracking("Fitting", total=_PASSES + rounds + 1) as advance:
        state = one_pass(task, now, None)
        for _ in range(_PASSES - 1 - (second_look is not None)):
            advance(1)
            state = one_pass(task, now, state)
        if second_look is not None:
            advance(1)
            candidates = Surprise(task, state).most(candidates, second_look.suspects)
            again = _measured_again(second_look, moments, candidates, state)
            task = replace(task, releases=(moments, again))
            state = one_pass(task, now, state.with_release(again))
        if rounds and loose:
            causes = _causes(task, now, loose, candidates, state, most_added)
            candidates = [(b, a) if b in causes else (a, b) for a, b in candidates]
        for _ in range(rounds):
            advance(1)
            strong = Surprise(task, state).strongest(candidates)
            added = without_shortcuts([arrows[0] for arrows in strong.values()], now)
            if not added:
                break
            candidates = [arrow for arrow in candidates if arrow not in added]
            now = joined(now, added)
            state = one_pass(task, now, state)
        if now != parents:
            advance(1)
            state = one_pass(task, now, state)  # with priors and corrections of the model that has all its arrows
    noise = sum(float(each.scale.min(initial=np.inf)) ** -2.0 for each in task.releases) ** -0.5
    return FittedMoments(parents=now, laws=state.laws, noise=noise)


def _measured_again(look: SecondLook, moments: NoisyMoments, suspects: list[Arrow], state: State) -> NoisyMoments:
    """Release the suspects with all that is stated; the clip bound is read off simulated rows."""
    layout = MomentLayout(sizes=moments.layout.sizes, pairs=(*moments.layout.pairs, *suspects))
    square = int(np.quantile(row_squares(layout, state.drawn), look.clip_quantile))
    return look.measure(layout, layout.bound(square))


def _causes(
    task: Task, parents: Parents, loose: Collection[str], candidates: list[Arrow], state: State, most: int
) -> set[str]:
    """Return the loose columns that are causes rather than effects, by a trial of both."""
    strong = Surprise(task, state).strongest(arrow for arrow in candidates if arrow[1] in loose)
    if not strong:
        return set()
    arrows = [arrow for several in strong.values() for arrow in unrelated(several, parents)[:most]]
    as_effects, as_causes = (
        Surprise(task, one_pass(task, joined(parents, each), state))
        for each in (arrows, [(effect, cause) for cause, effect in arrows])
    )
    return turned(strong, as_effects, as_causes)
