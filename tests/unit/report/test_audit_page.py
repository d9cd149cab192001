"""The report on an audit: whole, honest, escaped, and readable without colours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from escudo.auditing import Audit, History, Outputs, Power
from escudo.effects import Witness
from escudo.privacy import Guarantee
from escudo.report._effect_pages import audit_page
from escudo.report._svg import Line, Scale, lines

RUNS = np.array([50, 100, 1000, 12_400])


def make(**changes: Any) -> Audit:
    facts: dict[str, Any] = {
        "epsilon_lower": 1.31,
        "violated": True,
        "runs": 12_400,
        "claim": Guarantee(epsilon=1.0),
        "confidence": 0.95,
        "stopped": "violated",
        "witness": Witness(
            y={"event": "output < -0.5"}, x1={"data": [0, 0]}, x2={"data": [0, 1]}, probabilities=(0.31, 0.079)
        ),
        "clopper_pearson": 1.12,
        "history": History(
            runs=RUNS, log_wealth=np.array([0.0, 0.4, 1.9, 3.1]), epsilon_lower=np.array([0.0, 0.3, 0.9, 1.31])
        ),
        "outputs": Outputs(
            kind="number",
            labels=("a", "b", "c"),
            edges=np.array([-2.0, -0.5, 0.5, 2.0]),
            first=np.array([30, 50, 20]),
            second=np.array([10, 40, 50]),
        ),
        "pairs": ("[0, 0] against [0, 1]",),
        "seconds": 3.1,
        "seed": 7,
    }
    return Audit(**(facts | changes))


def test_a_violation_reads_from_the_verdict_to_the_limits(outline: Any) -> None:
    page = outline(audit_page(make(), mechanism="mylib:noisy_count"))
    order = [
        "The mechanism breaks its promise",
        "mylib:noisy_count",
        "VIOLATED: the claim ε ≤ 1.00 is rejected; ε ≥ 1.31 with 95 % confidence",
        "The bet against the claim",
        "The witness",
        "output < -0.5",
        "3.92 times as often",
        "What came out",
        "What was tried",
        "What was not tested",
        "Seed 7 repeats this audit",
    ]
    places = [page.text.index(words) for words in order]
    assert places == sorted(places)
    assert "it crossed the dashed line" in page.text.lower()


def test_the_page_loads_nothing_and_runs_nothing(outline: Any) -> None:
    page = outline(audit_page(make()))
    assert page.scripts == 0
    assert all(not load.startswith(("http", "//")) for load in page.loads)


def test_no_violation_is_no_proof(outline: Any) -> None:
    text = outline(
        audit_page(make(violated=False, stopped="runs", power=Power(epsilon=1.5, probability=0.97, mass=0.2)))
    ).text
    assert "No broken promise was found" in text
    assert "Not finding a violation is no proof" in text
    assert "It did not reach the dashed line" in text
    assert "The largest difference seen" in text
    assert "with probability 0.97" in text


def test_notes_such_as_the_cost_of_calls_are_shown(outline: Any) -> None:
    text = outline(audit_page(make(notes=("412 calls were made.",)))).text
    assert "To bear in mind" in text
    assert "412 calls were made." in text


@pytest.mark.parametrize(
    ("claim", "lower", "words"),
    [
        (Guarantee(mu=1.0), 1.2, "μ ≥ 1.2"),
        (Guarantee(rho=0.5), 0.7, "ρ ≥ 0.7"),
        (Guarantee(epsilon=1.0, delta=1e-3), None, "ε ≤ 1.00 at δ = 0.001"),
        (Guarantee(curve=((0.0, 0.5), (1.0, 0.1))), None, "the claimed privacy curve"),
    ],
    ids=["mu", "rho", "delta", "curve"],
)
def test_every_kind_of_claim_has_its_words(outline: Any, claim: Guarantee, lower: float | None, words: str) -> None:
    assert words in outline(audit_page(make(claim=claim, lower=lower, delta=claim.delta))).text


def test_everything_from_outside_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    page = audit_page(
        make(
            witness=Witness(y={"event": evil}, x1={"data": evil}, x2={"data": evil}),
            pairs=(evil,),
            notes=(evil,),
            outputs=Outputs(
                kind="category", labels=(evil, "b"), edges=None, first=np.array([1, 2]), second=np.array([2, 1])
            ),
        ),
        mechanism=evil,
    )
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_an_event_never_seen_under_the_second_input_has_no_ratio(outline: Any) -> None:
    witness = Witness(y={"event": "e"}, x1={"data": 0}, x2={"data": 1}, probabilities=(0.2, 0.0))
    assert "in none of those with the second" in outline(audit_page(make(witness=witness))).text


@pytest.mark.parametrize(
    "outputs",
    [
        None,
        Outputs(
            kind="number",
            labels=("a", "b"),
            edges=np.array([-np.inf, 0.0, np.inf]),
            first=np.array([1, 2]),
            second=np.array([0, 0]),
        ),
        Outputs(kind="score", labels=(), edges=np.array([0.0, 1.0]), first=np.array([3]), second=np.array([1])),
    ],
    ids=["none", "open-ends", "score"],
)
def test_odd_outputs_are_drawn_or_left_out(outline: Any, outputs: Outputs | None) -> None:
    text = outline(audit_page(make(outputs=outputs))).text
    assert ("What came out" in text) == (outputs is not None)
    assert "nan" not in audit_page(make(outputs=outputs)).lower().replace("finance", "")


def test_an_audit_without_a_witness_or_history_is_still_a_page(outline: Any) -> None:
    empty = History(runs=np.array([], dtype=np.int64), log_wealth=np.array([]), epsilon_lower=np.array([]))
    text = outline(audit_page(make(witness=None, history=empty, violated=False, runs=0, epsilon_lower=0.0))).text
    assert "The witness" not in text


def test_long_inputs_are_cut() -> None:
    page = audit_page(make(pairs=("x" * 5000,)))
    assert "x" * 500 not in page


def chart_of(x: list[float], y: list[float]) -> str:
    xs, ys = np.array(x), np.array(y)
    up = Scale.of_heights(ys, covering=(0.0, 1.0))
    line = Line(name="w", x=xs, y=ys)
    return str(lines([line], title="Wealth", across=Scale.of_runs(xs), up=up, level=(0.8, "enough")))


def test_a_line_chart_says_what_it_shows_and_marks_the_level() -> None:
    chart = chart_of(RUNS.tolist(), [0.0, 0.5, 1.0, 2.0])
    assert 'aria-label="Wealth"' in chart
    assert 'class="level"' in chart
    assert ">1,000<" in chart


def test_short_histories_have_a_linear_axis() -> None:
    assert ">20<" in chart_of([10.0, 20.0], [0.0, 1.0])
