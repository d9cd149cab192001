r"""The method of *Private Causal Inference*, as published: kernel ridge regression, a split, two noisy scores.

Algorithm 1: fit f̂ (x to y) and ĝ (y to x) on training records; on test records compute residuals r_Y = y - f̂(x)
and r_X = x - ĝ(y); score s(x, r_Y) and s(y, r_X); the lower score names the direction. Scores: ``hsic`` (default),
``spearman``, ``kendall``, ``iqr``. Noise by the paper's theorems with corrected constants, or, with
``constants="paper"``, with those printed; ``_paper_constants.py`` compares the two. ε and δ are totals for the
whole answer (the paper's ε is that of one score).

**Whose privacy.** The paper protects either the test set or the training set. Here the private table always is
protected as a whole, so one says what it is:

* ``train=records``: public records train, every private row is a test record (the paper's Section 4). Two scores
  with Laplace noise of scale 2Δ/ε each; four log IQRs by propose-test-release.
* ``test=records``: public records are scored, every private row trains (Section 5). HSIC with Laplace noise; ranks
  as they are, if the table is far enough from one where a rank could change (Dwork & Roth, Algorithm 13); two log
  IQRs by propose-test-release, with distances by how far one record moves a residual.
* neither: the table is cut in two by row number and both halves are private. A record is in one half, so the larger
  of the two sensitivities holds for the whole (``_paper_constants.score_sensitivity``); distances of IQRs count
  changes in either half (``_scores_iqr.py``). Rank scores are refused: one test record can bring two residuals as
  close together as it likes, so no table is ever far from instability, and the answer would always be "no answer".

**Guarantee.** Laplace: ε-differentially private. Algorithm 13: (ε, δ): the distance d̂ has sensitivity 1; where d̂
≥ 1 the score is the same for all neighbours; where d̂ = 0 on both of two neighbours, each answers with probability
at most δ. Log IQRs: 4 (test, both) or 2 (train) runs of propose-test-release at (3e₀, δ₀), by
:func:`escudo.mechanisms.propose_test_release`.

Reference: M. Kusner, Y. Sun, K. Sridharan, K. Weinberger (2016), "Private Causal Inference", AISTATS. C. Dwork, A.
Roth (2014), "The algorithmic foundations of differential privacy", Algorithm 13. Design note "sensitivities".
"""

from __future__ import annotations

import math
from collections.abc import Callable

from escudo._validate import one_of, positive, whole
from escudo.errors import InputError, RefusedError
from escudo.mechanisms import laplace_event
from escudo.orientation._asked import Asked, check_options, check_width
from escudo.orientation._gap import WIDTH
from escudo.orientation._gap_answer import ABSTAIN, Question, check_question
from escudo.orientation._gap_probability import LARGEST_GAP
from escudo.orientation._paper_constants import CONSTANTS, Constants, Role, iqr_looks, score_sensitivity
from escudo.orientation._paper_release import PaperPrepared
from escudo.orientation._regression_data import halves, public_pair
from escudo.privacy import ApproximateEvent, Plan, RepeatedEvent

__all__ = ["SCORES", "prepare"]

SCORES = ("hsic", "spearman", "kendall", "iqr")
"""Every dependence score of the paper, the default first."""


def prepare(asked: Asked) -> PaperPrepared:
    """Choose what the paper's method will release, from public facts alone.

    The relation must be ``"replace_one"`` and the unit ``"row"``. With ``constants="paper"`` ε is what the paper says
    that the answer costs. A δ is needed for ``iqr``, and for ranks of private training records. Scores: one of
    ``SCORES``.

    Options:
        train: Public records to fit the regressions on.
        test: Public records to score, instead.
        constants: ``"corrected"`` or ``"paper"``.
        regularisation: λ; 0.001 with public training records, else 0.3.
        width: Of HSIC's kernels, on [-1, 1].
        shuffle: Public seed of the split.
        abstain: In noise scales; 1.6 by default.

    Raises:
        InputError: If an argument is out of range.
        RefusedError: If the relation or unit is not covered, or no mechanism is known.
    """
    epsilon, delta = asked.epsilon, asked.delta
    count = check_question("paper", asked)
    known = {
        "train": None,
        "test": None,
        "constants": "corrected",
        "regularisation": None,
        "width": WIDTH,
        "shuffle": 0,
        "abstain": ABSTAIN,
    }
    chosen = check_options("paper", asked.options, known)
    named = one_of("score", SCORES[0] if asked.score == "committee" else asked.score, SCORES)
    if chosen["train"] is not None and chosen["test"] is not None:
        raise InputError("train and test are both public: then nothing is private. Give one of them.")
    role: Role = "test" if chosen["train"] is not None else "train" if chosen["test"] is not None else "both"
    other = "train" if role == "test" else "test"
    public = None if role == "both" else public_pair(asked.schema, asked.x, asked.y, chosen[other], option=other)
    _check_known(named, role, delta)
    lam = 1e-3 if role == "test" else 0.3
    lam = lam if chosen["regularisation"] is None else positive("regularisation", chosen["regularisation"])
    constants: Constants = one_of("constants", chosen["constants"], CONSTANTS)
    if constants == "paper" and lam > 1:
        raise InputError("constants='paper' holds for a regularisation of at most 1.")
    width = check_width(chosen["width"])
    n, m = halves(count)
    if public is not None:
        n, m = (len(public.x), count) if role == "test" else (count, len(public.x))
    if min(n, m) < 4:
        raise InputError("the table needs at least 8 rows, 4 with public records beside it.")

    def one_score(n: int, m: int) -> float:
        return score_sensitivity(named, role, n=n, m=m, regularisation=lam, width=width, constants=constants)

    one = one_score(n, m) if _by_laplace(named, role) else None
    plan = _plan(named, one, epsilon=epsilon, delta=delta, looks=iqr_looks(role, constants))
    notes = _notes(role, named, constants, count)
    if plan.event is None:
        notes += (_needs(named, one_score, role, n, m, epsilon),)
    return PaperPrepared(
        question=Question(
            x=asked.x,
            y=asked.y,
            method="paper",
            score=named,
            plan=plan,
            abstain=positive("abstain", chosen["abstain"], allow_zero=True),
            notes=notes,
        ),
        epsilon=epsilon,
        delta=delta,
        rows=count,
        role=role,
        public=public,
        shuffle=whole("shuffle", chosen["shuffle"]),
        regularisation=lam,
        width=width,
        constants=constants,
    )


def _by_laplace(score: str, role: Role) -> bool:
    return score == "hsic" or (score != "iqr" and role == "test")


def _check_known(score: str, role: Role, delta: float) -> None:
    """Raise where no mechanism is known, or one that needs a δ has none."""
    if score in ("spearman", "kendall") and role == "both":
        raise RefusedError(
            f"no private release of {score} is known when both halves are private: one test record can bring two "
            "residuals together, so no table is far from instability. Give public train records, or use score='hsic', "
            "method='gap' or method='votes'. Nothing was spent."
        )
    if delta == 0 and not _by_laplace(score, role):
        raise InputError(f"score {score!r} needs a delta above 0 here, such as 1e-6.")


def _plan(score: str, one: float | None, *, epsilon: float, delta: float, looks: tuple[int, int]) -> Plan:
    """Return the budget tree, free where noise for a sensitivity of ``one`` would exceed any gap."""
    name = f"direction (paper, {score})"
    if one is not None:
        if 2 * one / epsilon > LARGEST_GAP[score]:
            return Plan(name, buys="nothing: the noise would be larger than any gap")
        return Plan(name, laplace_event(2, sensitivity=2 * one, epsilon=epsilon), buys="two scores")
    released, parts = looks if score == "iqr" else (2, 2)
    part = ApproximateEvent(epsilon=epsilon / parts, delta=delta / parts)
    return Plan(
        name,
        RepeatedEvent(event=part, count=released),
        buys="log interquartile ranges, where stable" if score == "iqr" else "two scores, where stable",
        delta=delta * released / parts,
    )


def _notes(role: Role, score: str, constants: Constants, rows: int) -> tuple[str, ...]:
    covers = {
        "test": f"Covers all {rows:,} private rows, the test set; the training records are stated to be public.",
        "train": f"Covers all {rows:,} private rows, the training set; the test records are stated to be public.",
        "both": f"Covers all {rows:,} rows, training and test half alike.",
    }[role]
    if constants == "corrected":
        return (covers,)
    if score == "iqr" and role != "train":
        claim = (
            "The paper's constants: it counts three looks at a record where there are four, so what was charged is "
            "4/3 of the ε and δ it claims."
        )
    else:
        claim = "The paper's constants: true here, and larger than needed."
    return covers, claim


def _needs(score: str, sensitivity: Callable[[int, int], float], role: Role, n: int, m: int, epsilon: float) -> str:
    """Return about how many private rows would do, for a clear gap: a tenth of the largest."""
    factor = 1
    while 2 * sensitivity(n if role == "test" else n * factor, m if role == "train" else m * factor) / epsilon > (
        LARGEST_GAP[score] / 10 / math.log(10)
    ):
        factor *= 2
    rows = factor * {"test": m, "train": n, "both": n + m}[role]
    return f"At ε = {epsilon:g} the noise is larger than any gap of two scores; it needs about N = {rows:,} rows."
