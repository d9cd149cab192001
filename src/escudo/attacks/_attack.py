"""The verb: attack a generator, person by person, and bound what its releases give away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo._progress import tracking
from escudo._validate import one_of, positive_integer, probability, whole
from escudo.attacks._ceiling import ceiling_of
from escudo.attacks._classifiers import CLASSIFIERS, trained
from escudo.attacks._features import FEATURES, Attacker
from escudo.attacks._game import Game
from escudo.attacks._log import FitLog, fingerprint
from escudo.attacks._measures import pooled, score_of
from escudo.attacks._report import Attack, AttackedTarget
from escudo.attacks._targets import Choice, canary, choose
from escudo.attacks._trials import Trials
from escudo.attacks._victims import Victim, victim_of
from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.privacy import Guarantee, Relation, parse_relation
from escudo.table import Schema
from escudo.utility import Rows
from escudo.utility._jobs import checked_jobs

__all__ = ["ATTACKS", "attack", "every_attack"]

Floats = NDArray[np.float64]

ATTACKS: tuple[tuple[str, str], ...] = (
    ("queries", "forest"),
    ("queries", "likelihood ratio"),
    ("density", "likelihood ratio"),
    ("nearest", "likelihood ratio"),
    ("histogram", "logistic"),
    ("ensemble", "forest"),
)
"""What is tried by default: features and how they are judged."""


def attack(
    generator: object,
    rows: object,
    schema: Schema,
    *,
    graph: CausalGraph | None = None,
    epsilon: float | None = None,
    delta: float = 1e-6,
    claim: Guarantee | None = None,
    relation: str = "replace_one",
    targets: int = 10,
    choose: Choice | Sequence[int] | str = "outliers",
    attacks: Sequence[tuple[str, str]] = ATTACKS,
    shadows: int = 200,
    trials: int = 200,
    rest: str = "fixed",
    fit_rows: int | None = None,
    size: int | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    jobs: int | None = None,
    frames: str = "polars",
    log: str | PathLike[str] | None = None,
    on_progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Attack:
    """Try to find out from synthetic rows who was in the table.

    For each target a coin decides whether their record is there, the generator is fitted, and the attacker looks at
    what it makes. ``shadows`` such fits teach the attacker; ``trials`` more test them, and each is a trial of a
    randomised experiment that bounds ε from below (:func:`escudo.audit`).

    Fits of escudo's marginal generators share their counts, with one record moved. Where jax finds an accelerator, its
    networks are trained by the hundred side by side. All else is spread over ``jobs`` processes.

    Args:
        generator: The name of one of escudo's generators, or any object or function that makes synthetic rows; see
            :func:`~escudo.attacks.victim_of`.
        rows: The private rows; a frame of any engine.
        schema: Their public description.
        graph: For escudo's generators: the causal graph.
        epsilon: For escudo's generators: what one release costs.
        delta: For escudo's generators.
        claim: What another generator promises; None if nothing. It must speak about ``relation``.
        relation: ``"replace_one"``: somebody else stands in the target's place otherwise; ``"add_remove"``: nobody.
        targets: How many people to attack.
        choose: ``"outliers"``, ``"random"``, ``"canary"`` (one record made up to stand out), or numbers of rows.
        attacks: Pairs of ``FEATURES`` and ``CLASSIFIERS``.
        shadows: Fits to learn from, for each target.
        trials: Fits to test on at most, for each target.
        rest: ``"fixed"``: all other rows stay as they are; ``"resampled"``: they are drawn anew for each fit.
        fit_rows: How many rows a fit gets; all by default, half of them if they are resampled.
        size: How many synthetic rows are looked at; as many as a fit gets by default.
        confidence: Of the formal statements, over all targets together.
        seed: Repeats the attack.
        jobs: How many processes, as in joblib; None follows ``joblib.parallel_config`` and is otherwise one.
        frames: ``"polars"`` or ``"pandas"``: what other generators are given.
        log: A file that keeps every fit, so that the same call goes on where it was stopped. It is as private as the
            rows.
        on_progress: Called with a sentence after each target.
        options: For escudo's generators. ``public_rows`` is what a fit gets, where a release would know it.

    Returns:
        Formal bounds and heuristic figures, with the ceiling that the promise allows. For the custodian only.

    Raises:
        InputError: If an argument is not usable, or the promise says nothing about the worlds that are compared.

    Reference:
        T. Stadler, B. Oprisanu, C. Troncoso (2022), "Synthetic data: anonymisation groundhog day"; F. Houssiau et al.
        (2022), "TAPAS"; M. van Breugel et al. (2023), "Membership inference attacks against synthetic data through
        overfitting detection"; F. Guépin et al. (2024), "Lost in the averages".
    """
    stated = parse_relation(relation)
    held = one_of("rest", rest, ("fixed", "resampled"))
    probability("confidence", confidence, allow_zero=False)
    learnt, tested = positive_integer("shadows", shadows), positive_integer("trials", trials)
    chosen = _checked(attacks)
    processes = checked_jobs(jobs)
    rng = np.random.default_rng(whole("seed", seed))
    private = Rows.read(rows, schema, argument="rows")
    if len(private) < 10:
        raise InputError("rows must have at least 10 rows to attack anybody.")
    most = len(private) - (1 if choose == "canary" else 2)  # one stands in the target's place
    fitted = _fit_size(most, fit_rows, resampled=held == "resampled")
    if isinstance(generator, str) and stated == "replace_one" and schema.unit == "row":
        options.setdefault("public_rows", fitted + 1)  # as a release takes it: neighbours have equally many rows
    victim = victim_of(
        generator,
        schema,
        graph,
        epsilon=epsilon,
        delta=delta,
        relation=relation,
        claim=claim,
        frames=frames,
        **options,
    )
    ceiling = None if victim.claim is None else ceiling_of(victim.claim, stated)
    people = _people(private, targets, choose, rng)
    level = 1 - (1 - confidence) / len(people)
    book = None
    if log is not None:
        what = (_identity(generator), epsilon, delta, options, None if graph is None else graph.to_text(lossy=True))
        how = (stated, held, fit_rows, size, chosen, seed, learnt, frames, [label for label, _, _ in people])
        book = FitLog(log, fingerprint(*what, *how, private.codes, private.numbers))
    found = []
    with tracking("Attacking", total=len(people) * (learnt + tested)) as advance:
        for label, target, others in people:
            game = _game(
                victim,
                target,
                others,
                relation=stated,
                resampled=held == "resampled",
                rows=fitted,
                size=size,
                kinds=tuple(dict.fromkeys(kind for kind, _ in chosen)),
                rng=rng,
                jobs=processes,
                label=label,
                log=book,
            )
            found.append(_attacked(game, chosen, learnt, tested, level, rng, advance))
            if on_progress is not None:
                on_progress(f"{label}: {found[-1].audit.verdict}")
    overall = [pooled(scores) for scores in zip(*(target.scores for target in found), strict=True)]
    return Attack(
        targets=tuple(found),
        overall=tuple(overall),
        claim=victim.claim,
        ceiling=ceiling,
        confidence=confidence,
        relation=stated,
        rest=held,
        shadows=learnt,
        trials=tested,
        seed=seed,
    )


def every_attack() -> tuple[tuple[str, str], ...]:
    """Return every pair of features and classifier."""
    return tuple(product(FEATURES, CLASSIFIERS))


def _checked(attacks: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    chosen = tuple(
        (one_of("features", kind, FEATURES), one_of("classifier", classifier, CLASSIFIERS))
        for kind, classifier in attacks
    )
    if not chosen:
        raise InputError("attacks must name at least one pair of features and classifier.")
    return chosen


def _people(
    private: Rows, targets: int, choice: Choice | Sequence[int] | str, rng: np.random.Generator
) -> list[tuple[str, Rows, Rows]]:
    """Return each target's label, record, and everybody else."""
    if choice == "canary":
        return [("canary", canary(private), private)]
    places = choose(private, targets, choice, rng)  # type: ignore[arg-type]  # other words are refused there
    every = np.arange(len(private))
    return [(f"row {place}", private.take(every == place), private.take(every != place)) for place in places]


def _fit_size(most: int, fit_rows: int | None, *, resampled: bool) -> int:
    """Return how many rows a fit gets besides the place of the target."""
    if fit_rows is None:
        return most // 2 if resampled else most
    wanted = positive_integer("fit_rows", fit_rows)
    if wanted > most:
        raise InputError(f"fit_rows asks for {wanted} rows besides the target; there are {most}.")
    return wanted


def _game(
    victim: Victim,
    target: Rows,
    others: Rows,
    *,
    relation: Relation,
    resampled: bool,
    rows: int,
    size: int | None,
    kinds: tuple[str, ...],
    rng: np.random.Generator,
    jobs: int | None,
    label: str,
    log: FitLog | None,
) -> Game:
    """Return the game of one target: who else is there, and who stands in their place otherwise."""
    order = rng.permutation(len(others))
    instead, pool = others.take(order[:1]), others.take(np.sort(order[1:]))
    if not resampled:
        pool = pool.take(np.sort(rng.permutation(len(pool))[:rows]))
    return Game(
        victim=victim,
        eye=Attacker.of(target, others, kinds=kinds, seed=int(rng.integers(2**31))),
        rest=pool,
        target=target,
        instead=instead if relation == "replace_one" else None,
        rows=rows,
        resampled=resampled,
        size=rows if size is None else positive_integer("size", size),
        jobs=jobs,
        label=label,
        log=log,
    )


def _attacked(
    game: Game,
    attacks: Sequence[tuple[str, str]],
    shadows: int,
    trials: int,
    confidence: float,
    rng: np.random.Generator,
    advance: Callable[[int], None],
) -> AttackedTarget:
    """Learn from shadow fits, then run the experiment on one person."""
    lessons = game.play(shadows, rng, advance)
    learnt = [
        (kind, trained(classifier, lessons.features[kind], lessons.there, int(rng.integers(2**31))))
        for kind, classifier in attacks
    ]

    def judge(features: Mapping[str, Floats]) -> Floats:
        return np.column_stack([judge.scores(features[kind]) for kind, judge in learnt])

    tested = Trials(game, judge, trials=trials, rng=rng, advance=advance)
    found = tested.audited(confidence=confidence, seed=int(rng.integers(2**31)))
    there, scores = np.array(tested.there), np.array(tested.scores)
    return AttackedTarget(
        label=game.label,
        scores=tuple(
            score_of(kind, classifier, there, scores[:, place]) for place, (kind, classifier) in enumerate(attacks)
        ),
        audit=found,
    )


def _identity(generator: object) -> str:
    """Return what tells the log of one generator from that of another: its name, and what it is made of."""
    if isinstance(generator, str):
        return generator
    from joblib import hash as digest

    named = generator if hasattr(generator, "__qualname__") else type(generator)
    code = getattr(generator, "__code__", None)
    made_of: object = getattr(generator, "__dict__", generator)
    if code is not None:
        values = [*code.co_consts, *(cell.cell_contents for cell in getattr(generator, "__closure__", None) or ())]
        plain = [value for value in values if isinstance(value, int | float | str | None)]
        made_of = (code.co_code, code.co_names, plain)
    try:
        return f"{named.__module__}.{named.__qualname__} {digest(made_of)}"
    except Exception:  # what cannot be pickled has no digest
        return f"{named.__module__}.{named.__qualname__}"
