"""The membership game as it was published, with its faults, so that its figures can be made again and explained.

A few generators are fitted with the target and as many without; many synthetic sets are drawn from each; the sets are
split at random into those to learn from and those to test on. Sets of one fit share its noise and its starting point,
so they are on both sides of the split: an attacker who recognises *fits* is right about every set, whatever the record
did. With ``null=True`` the target is in neither world, and the same figures come out.

Reference:
    T. Stadler, B. Oprisanu, C. Troncoso (2022), "Synthetic data: anonymisation groundhog day"; "Causally Constrained
    Data Synthesis for Private Data Release", section 4.3 and appendix G.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from escudo._progress import tracking
from escudo._validate import one_of, positive_integer, whole
from escudo.attacks._classifiers import CLASSIFIERS, trained
from escudo.attacks._features import FEATURES, Attacker
from escudo.attacks._game import Game, collected
from escudo.attacks._targets import Choice, choose
from escudo.attacks._victims import Victim
from escudo.errors import InputError
from escudo.table import Schema
from escudo.utility import Rows
from escudo.utility._jobs import checked_jobs

__all__ = ["PublishedScore", "published_game"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedScore:
    """One cell of the published tables, in per cent.

    Attributes:
        features: The extractor.
        classifier: The attack model.
        accuracy: Sets answered right.
        na: Sets of fits without the target answered right.
        pa: Sets of fits with the target answered right.
        sets: How many sets were tested.
    """

    features: str
    classifier: str
    accuracy: float
    na: float
    pa: float
    sets: int


def published_game(
    victim: Victim,
    rows: object,
    schema: Schema,
    *,
    targets: int = 1,
    choice: Choice | Sequence[int] = "random",
    fits: int = 1,
    sets: int = 50,
    size: int | None = None,
    features: Sequence[str] = ("naive", "histogram", "correlation", "ensemble"),
    classifiers: Sequence[str] = ("linear svm", "rbf svm", "forest", "neighbours"),
    by_fit: bool = False,
    null: bool = False,
    seed: int = 0,
    jobs: int | None = None,
) -> list[PublishedScore]:
    """Play the game as published and return its table.

    Args:
        victim: The generator, from :func:`victim_of`.
        rows: The private rows; a frame of any engine.
        schema: Their public description.
        targets: How many people; figures are means over them.
        choice: Who they are.
        fits: Fits in each world.
        sets: Synthetic sets drawn from each fit.
        size: Rows in each set; as many as a fit gets by default.
        features: What is looked at.
        classifiers: How it is judged.
        by_fit: Whether whole fits go to one side of the split, which is the correction; needs at least 2 fits.
        null: Whether the target stays away in both worlds: then there is nothing to be found out about them.
        seed: Repeats the game.
        jobs: How many processes, as in joblib.
    """
    count, drawn = positive_integer("fits", fits), positive_integer("sets", sets)
    if by_fit and count < 2:
        raise InputError("splitting by fit needs at least 2 fits in each world.")
    if not by_fit and count * drawn < 2:
        raise InputError("one synthetic set in each world leaves none to test on; draw more sets or fits.")
    kinds = tuple(one_of("features", kind, FEATURES) for kind in features)
    judges = [one_of("classifiers", name, CLASSIFIERS) for name in classifiers]
    processes = checked_jobs(jobs)
    rng = np.random.default_rng(whole("seed", seed))
    private = Rows.read(rows, schema, argument="rows")
    every = np.arange(len(private))
    found: dict[tuple[str, str], list[tuple[float, float, int]]] = {}
    people = choose(private, targets, choice, rng)
    with tracking("Playing", total=2 * count * len(people)) as advance:
        for place in people:
            target, rest = private.take(every == place), private.take(every != place)
            game = Game(
                victim=victim,
                eye=Attacker.of(target, rest, kinds=kinds, seed=int(rng.integers(2**31)), sorted_bins=True),
                rest=rest,
                target=target,
                instead=None,
                rows=len(rest),
                sets=drawn,
                size=len(rest) if size is None else positive_integer("size", size),
                jobs=processes,
            )
            labels = np.repeat([False, True], count)
            worlds = np.zeros_like(labels) if null else labels
            made = []
            for one in game.worlds(worlds.tolist(), rng.integers(2**62, size=2 * count).tolist()):
                made.append(one)
                advance(1)
            played = collected(labels, made)
            tested = _split(played.there, played.fit, by_fit=by_fit, rng=rng)
            for kind, name in product(kinds, judges):
                judge = trained(name, played.features[kind][~tested], played.there[~tested], int(rng.integers(2**31)))
                answers = judge.scores(played.features[kind][tested]) > 0
                truth = played.there[tested]
                right = float((~answers[~truth]).mean()), float(answers[truth].mean()), int(tested.sum())
                found.setdefault((kind, name), []).append(right)
    return [
        PublishedScore(
            features=kind,
            classifier=name,
            accuracy=100 * float(np.mean([(na + pa) / 2 for na, pa, _ in figures])),
            na=100 * float(np.mean([na for na, _, _ in figures])),
            pa=100 * float(np.mean([pa for _, pa, _ in figures])),
            sets=sum(size for _, _, size in figures),
        )
        for (kind, name), figures in found.items()
    ]


def _split(
    there: np.ndarray[tuple[int], np.dtype[np.bool_]],
    fit: np.ndarray[tuple[int], np.dtype[np.int64]],
    *,
    by_fit: bool,
    rng: np.random.Generator,
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which sets are tested on: half of each world's sets, or of its fits."""
    tested = np.zeros(there.size, dtype=bool)
    for world in (False, True):
        places = np.flatnonzero(there == world)
        if by_fit:
            fits = rng.permutation(np.unique(fit[places]))
            tested[places] = np.isin(fit[places], fits[: len(fits) // 2])
        else:
            tested[rng.permutation(places)[: places.size // 2]] = True
    return tested
