"""The verbs: attack a generator, person by person, and bound what its releases give away.

*Membership* (:func:`attack`): is somebody's record in the rows? One experiment for each person.

*Attribute inference* (:func:`infer_attribute`): the attacker knows all of a record but one value, and wants that one.
Two figures answer two questions. *How often is the guess right?* says little by itself: a guess from other people's
rows is right just as often, and no promise forbids it. *Does it depend on whether the record says so?* is the effect of
the value: do(Dᵢ = record with value a) against do(Dᵢ = record with value b), an experiment like the membership game.

*The membership game as it was published* (:func:`published_game`), with its faults, so that its figures can be made
again and explained. A few generators are fitted with the target and as many without; many synthetic sets are drawn from
each; the sets are split at random into those to learn from and those to test on. Sets of one fit share its noise and
its starting point, so they are on both sides of the split: an attacker who recognises *fits* is right about every set,
whatever the record did. With ``null=True`` the target is in neither world, and the same figures come out.

Reference:
    T. Stadler, B. Oprisanu, C. Troncoso (2022), "Synthetic data: anonymisation groundhog day"; "Causally Constrained
    Data Synthesis for Private Data Release", section 4.3 and appendix G.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from os import PathLike
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo._log import fingerprint
from escudo._spread import check_jobs
from escudo._validate import one_of, positive_integer, probability, whole
from escudo.attacks._attacker import (
    CLASSIFIERS,
    FEATURES,
    Attacker,
    Choice,
    canary,
    choose,
    distances,
    train_classifier,
)
from escudo.attacks._game import FitLog, Game, Person, Played, Trials, collect
from escudo.attacks._linked import People, linked_victim
from escudo.attacks._report import Attack, AttackedTarget, AttributeAttack, PublishedScore, ceiling_of, pool, score_of
from escudo.attacks._victims import Victim, victim_of
from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.privacy import Budget, Guarantee, Relation, parse_relation, usual_delta
from escudo.table import Categorical, LinkedSchema, Schema, where_rows_are
from escudo.utility import Rows

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

_ASKED = 25  # synthetic rows nearest to a record are asked for the value that it lacks


def _told(found: Attack) -> list[str]:
    return [f"{target.label}: {target.audit.verdict}" for target in found.targets]


@where_rows_are("rows", said=_told)
def attack(
    generator: object,
    rows: object,
    schema: Schema | LinkedSchema,
    *,
    graph: CausalGraph | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
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
    networks are trained by the hundred side by side. All else is spread over ``jobs`` processes. Where the rows lie on
    Spark or Dask, all of it is done by one of their workers, and no row comes here.

    Args:
        generator: The name of one of escudo's generators, or any object or function that makes synthetic rows; see
            :func:`~escudo.attacks.victim_of`.
        rows: The private rows; a frame of any engine. Of linked tables a frame for each: people are attacked with all
            their rows, and another generator is a function of such frames (:mod:`escudo.attacks._linked`).
        schema: Their public description.
        graph: For escudo's generators: the causal graph.
        epsilon: For escudo's generators: what one release costs.
        delta: For escudo's generators; by default as a release of so many rows has it, 1e-6 or less.
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
        jobs: How many processes, as in joblib; None follows ``joblib.parallel_config`` and is otherwise one. On a
            cluster they are processes of that worker.
        frames: ``"polars"`` or ``"pandas"``: what other generators are given.
        log: A file that keeps every fit, so that the same call goes on where it was stopped. It is as private as the
            rows, and on a cluster that worker's, under this path.
        on_progress: Called with a sentence after each target; of rows on a cluster when all is done.
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
    chosen = _check_attacks(attacks)
    processes = check_jobs(jobs)
    rng = np.random.default_rng(whole("seed", seed))
    private = (
        People.read(rows, schema) if isinstance(schema, LinkedSchema) else Rows.read(rows, schema, argument="rows")
    )
    if len(private) < 10:
        raise InputError(f"rows must have at least 10 {private.noun}s to attack anybody.")
    most = len(private) - (1 if choose == "canary" else 2)  # one stands in the target's place
    fitted = _fit_size(most, fit_rows, resampled=held == "resampled")
    terms: dict[str, Any] = {"relation": stated, "claim": claim}
    if isinstance(schema, LinkedSchema):
        known = schema.neighbours(relation=stated, people=fitted + 1 if stated == "replace_one" else None)
        budget = None if epsilon is None else Budget(epsilon, usual_delta(known) if delta is None else delta)
        terms |= {"budget": budget, "people": fitted + 1}
        victim = linked_victim(generator, schema, graph, options, **terms)
    else:
        if isinstance(generator, str) and stated == "replace_one" and schema.unit == "row":
            options.setdefault("public_rows", fitted + 1)  # as a release takes it: neighbours have equally many rows
        terms |= {"epsilon": epsilon, "delta": delta, "frames": frames}
        victim = victim_of(generator, schema, graph, **terms, **options)
    ceiling = None if victim.claim is None else ceiling_of(victim.claim, stated)
    people = _people(private, targets, choose, rng)
    book = None
    if log is not None:
        what = (_identity(generator), epsilon, delta, options, None if graph is None else graph.to_text(lossy=True))
        how = (stated, held, fit_rows, size, chosen, seed, learnt, frames, [person.label for person in people])
        book = FitLog(log, fingerprint(*what, *how, private.codes, private.numbers))
    campaign = _Campaign(
        victim=victim,
        attacks=chosen,
        relation=stated,
        resampled=held == "resampled",
        rows=fitted,
        size=fitted if size is None else positive_integer("size", size),
        shadows=learnt,
        trials=tested,
        confidence=1 - (1 - confidence) / len(people),
        jobs=processes,
        log=book,
    )
    found = []
    with tracking("Attacking", len(people) * (learnt + tested)) as advance:
        for person in people:
            found.append(campaign.against(person, rng, advance))
            if on_progress is not None:
                on_progress(f"{person.label}: {found[-1].audit.verdict}")
    overall = [pool(scores) for scores in zip(*(target.scores for target in found), strict=True)]
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


def _check_attacks(attacks: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    chosen = tuple(
        (one_of("features", kind, FEATURES), one_of("classifier", classifier, CLASSIFIERS))
        for kind, classifier in attacks
    )
    if not chosen:
        raise InputError("attacks must name at least one pair of features and classifier.")
    return chosen


def _people(
    private: Rows, targets: int, choice: Choice | Sequence[int] | str, rng: np.random.Generator
) -> list[Person]:
    if choice == "canary":
        made_up = private.canary() if isinstance(private, People) else canary(private)
        return [Person("canary", made_up, private)]
    places = choose(private, targets, choice, rng)  # type: ignore[arg-type]  # other words are refused there
    return [Person.of(private, place) for place in places]


def _fit_size(most: int, fit_rows: int | None, *, resampled: bool) -> int:
    """Return how many rows a fit gets besides the place of the target."""
    if fit_rows is None:
        return most // 2 if resampled else most
    wanted = positive_integer("fit_rows", fit_rows)
    if wanted > most:
        raise InputError(f"fit_rows asks for {wanted} rows besides the target; there are {most}.")
    return wanted


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class _Campaign:
    """What the attacks on all targets share: :func:`attack`'s arguments, checked."""

    victim: Victim
    attacks: tuple[tuple[str, str], ...]
    relation: Relation
    resampled: bool
    rows: int
    size: int
    shadows: int
    trials: int
    confidence: float  # of what is said about one target
    jobs: int | None
    log: FitLog | None

    def against(self, person: Person, rng: np.random.Generator, advance: Callable[[int], None]) -> AttackedTarget:
        """Learn from shadow fits, then run the experiment on one person."""
        game = self._game(person, rng)
        lessons = game.play(self.shadows, rng, advance)
        learnt = [
            (kind, train_classifier(classifier, lessons.features[kind], lessons.there, int(rng.integers(2**31))))
            for kind, classifier in self.attacks
        ]

        def judge(features: Mapping[str, Floats]) -> Floats:
            return np.column_stack([judge.scores(features[kind]) for kind, judge in learnt])

        tested = Trials(game, judge, self.trials, rng, advance)
        found = tested.audit(confidence=self.confidence)
        there, scores = np.array(tested.there), np.array(tested.scores)
        return AttackedTarget(
            label=person.label,
            scores=tuple(score_of(*names, there, scores[:, place]) for place, names in enumerate(self.attacks)),
            audit=found,
        )

    def _game(self, person: Person, rng: np.random.Generator) -> Game:
        """Return the game of one target: who else is there, and who stands in their place otherwise."""
        order = rng.permutation(len(person.others))
        instead, pool = person.others.take(order[:1]), person.others.take(np.sort(order[1:]))
        if not self.resampled:
            pool = pool.take(np.sort(rng.permutation(len(pool))[: self.rows]))
        kinds = tuple(dict.fromkeys(kind for kind, _ in self.attacks))
        return Game(
            self.victim,
            Attacker.of(person.record, person.others, kinds, int(rng.integers(2**31))),
            person._replace(others=pool),
            instead if self.relation == "replace_one" else None,
            self.size,
            drawn=self.rows if self.resampled else None,
            jobs=self.jobs,
            log=self.log,
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


# ---- attribute inference


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Asker:
    """An attacker who knows all of a record but one value, and asks the synthetic rows nearest in all others."""

    target: Rows
    place: int

    def __call__(self, synthetic: Rows, rng: np.random.Generator) -> dict[str, NDArray[np.float64]]:
        """Return the share of the true value among the nearest synthetic rows, and whether it is their commonest."""
        known = np.delete(np.arange(len(synthetic.schema)), self.place)
        apart = distances(_narrow(self.target, known), _narrow(synthetic, known))
        nearest = np.argsort(apart + rng.random(apart.size) * 1e-6)[:_ASKED]
        true = int(self.target.codes[0, self.place])
        votes = np.bincount(synthetic.codes[nearest, self.place], minlength=true + 1)
        guess = rng.choice(np.flatnonzero(votes == votes.max()))
        return {"neighbours": np.array([votes[true] / len(nearest), float(guess == true)])}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeGame:
    """How :func:`infer_attribute` plays.

    Attributes:
        targets: How many people to attack.
        choice: Who they are.
        fits: Fits for each of them, at most.
        size: Synthetic rows looked at; as many as a fit gets by default.
        confidence: Of the bounds, over all targets together.
        seed: Repeats the attack.
        jobs: How many processes, as in joblib.
    """

    targets: int = 5
    choice: Choice | Sequence[int] = "outliers"
    fits: int = 200
    size: int | None = None
    confidence: float = 0.95
    seed: int = 0
    jobs: int | None = None

    @where_rows_are("rows")
    def play(self, victim: Victim, rows: object, schema: Schema, attribute: str) -> AttributeAttack:
        """Play it; see :func:`infer_attribute`."""
        column = schema[attribute]
        if not isinstance(column, Categorical):
            raise InputError(f"attribute must be a categorical column; {attribute!r} is numeric.")
        if column.size < 2 or len(schema) < 2:
            raise InputError("there is nothing to infer: the column has one level, or there is no other column.")
        runs = positive_integer("fits", self.fits)
        probability("confidence", self.confidence, allow_zero=False)
        processes = check_jobs(self.jobs)
        rng = np.random.default_rng(whole("seed", self.seed))
        private = Rows.read(rows, schema, argument="rows")
        place = private.schema.names.index(attribute)
        people = choose(private, self.targets, self.choice, rng)
        level = 1 - (1 - self.confidence) / len(people)
        audits, right, without, made = [], [], [], 0
        with tracking("Attacking", len(people) * runs) as advance:
            for row in people:
                person = Person.of(private, row)
                codes = person.record.codes.copy()
                codes[0, place] = (codes[0, place] + 1 + rng.integers(column.size - 1)) % column.size
                eye, instead = _Asker(person.record, place), replace(person.record, codes=codes)
                game = Game(victim, eye, person, instead, _set_size(self.size, person), jobs=processes)
                tested = Trials(game, lambda seen: seen["neighbours"], runs, rng, advance)
                audits.append(tested.audit(confidence=level))
                there, guessed = np.array(tested.there), np.array(tested.scores)[:, 1]
                made += there.size
                if there.any() and not there.all():  # one side alone says nothing about a difference
                    right.append(float(guessed[there].mean()))
                    without.append(float(guessed[~there].mean()))
        often, otherwise = (float(np.mean(side)) if side else math.nan for side in (right, without))
        return AttributeAttack(
            attribute=attribute,
            right=often,
            without=otherwise,
            advantage=often - otherwise,
            audits=tuple(audits),
            claim=victim.claim,
            ceiling=None if victim.claim is None else ceiling_of(victim.claim, "replace_one"),
            fits=made,
        )


class AttributeOptions(TypedDict, total=False):
    """What :func:`infer_attribute` takes: the fields of :class:`AttributeGame`, which see."""

    targets: int
    choice: Choice | Sequence[int]
    fits: int
    size: int | None
    confidence: float
    seed: int
    jobs: int | None


def infer_attribute(
    victim: Victim, rows: object, schema: Schema, attribute: str, **game: Unpack[AttributeOptions]
) -> AttributeAttack:
    """Find out how much of one value of a record its own presence gives away. For the custodian only.

    Args:
        victim: The generator, from :func:`victim_of`.
        rows: The private rows; a frame of any engine.
        schema: Their public description.
        attribute: The categorical column that the attacker wants.
        game: How it is played (:class:`AttributeOptions`).
    """
    return AttributeGame(**game).play(victim, rows, schema, attribute)


def _set_size(size: int | None, person: Person) -> int:
    return len(person.others) if size is None else positive_integer("size", size)


def _narrow(rows: Rows, places: NDArray[np.int64]) -> Rows:
    return Rows(
        schema=rows.schema.select([rows.schema.names[place] for place in places]),
        codes=rows.codes[:, places],
        numbers=rows.numbers[:, places],
    )


# ---- the game as published


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedGame:
    """How :func:`published_game` plays.

    Attributes:
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

    targets: int = 1
    choice: Choice | Sequence[int] = "random"
    fits: int = 1
    sets: int = 50
    size: int | None = None
    features: Sequence[str] = ("naive", "histogram", "correlation", "ensemble")
    classifiers: Sequence[str] = ("linear svm", "rbf svm", "forest", "neighbours")
    by_fit: bool = False
    null: bool = False
    seed: int = 0
    jobs: int | None = None

    @where_rows_are("rows")
    def play(self, victim: Victim, rows: object, schema: Schema) -> list[PublishedScore]:
        """Play it; see :func:`published_game`."""
        count, drawn = positive_integer("fits", self.fits), positive_integer("sets", self.sets)
        if self.by_fit and count < 2:
            raise InputError("splitting by fit needs at least 2 fits in each world.")
        if not self.by_fit and count * drawn < 2:
            raise InputError("one synthetic set in each world leaves none to test on; draw more sets or fits.")
        kinds = tuple(one_of("features", kind, FEATURES) for kind in self.features)
        judges = [one_of("classifiers", name, CLASSIFIERS) for name in self.classifiers]
        processes = check_jobs(self.jobs)
        rng = np.random.default_rng(whole("seed", self.seed))
        private = Rows.read(rows, schema, argument="rows")
        found: dict[tuple[str, str], list[tuple[float, float, int]]] = {}
        people = choose(private, self.targets, self.choice, rng)
        with tracking("Playing", 2 * count * len(people)) as advance:
            for row in people:
                person = Person.of(private, row)
                seed = int(rng.integers(2**31))
                eye = Attacker.of(person.record, person.others, kinds, seed, sorted_bins=True)
                game = Game(victim, eye, person, None, _set_size(self.size, person), sets=drawn, jobs=processes)
                labels = np.repeat([False, True], count)
                worlds = np.zeros_like(labels) if self.null else labels
                made = []
                for one in game.worlds(worlds.tolist(), rng.integers(2**62, size=2 * count).tolist()):
                    made.append(one)
                    advance(1)
                played = collect(labels, made)
                tested = self._tested(played, rng)
                for kind, name in product(kinds, judges):
                    judge = train_classifier(
                        name, played.features[kind][~tested], played.there[~tested], int(rng.integers(2**31))
                    )
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

    def _tested(self, played: Played, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Return which sets are tested on: half of each world's sets, or of its fits."""
        there, fit = played.there, played.fit
        tested = np.zeros(there.size, dtype=bool)
        for world in (False, True):
            places = np.flatnonzero(there == world)
            if self.by_fit:
                fits = rng.permutation(np.unique(fit[places]))
                tested[places] = np.isin(fit[places], fits[: len(fits) // 2])
            else:
                tested[rng.permutation(places)[: places.size // 2]] = True
        return tested


class PublishedOptions(TypedDict, total=False):
    """What :func:`published_game` takes: the fields of :class:`PublishedGame`, which see."""

    targets: int
    choice: Choice | Sequence[int]
    fits: int
    sets: int
    size: int | None
    features: Sequence[str]
    classifiers: Sequence[str]
    by_fit: bool
    null: bool
    seed: int
    jobs: int | None


def published_game(
    victim: Victim, rows: object, schema: Schema, **game: Unpack[PublishedOptions]
) -> list[PublishedScore]:
    """Play the game as published and return its table.

    Args:
        victim: The generator, from :func:`victim_of`.
        rows: The private rows; a frame of any engine.
        schema: Their public description.
        game: How it is played (:class:`PublishedOptions`), such as ``null=True``.
    """
    return PublishedGame(**game).play(victim, rows, schema)
