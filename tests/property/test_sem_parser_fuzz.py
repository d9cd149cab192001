"""Whatever text it is given, the reader returns a model or raises an error of escudo's own, soon and with a place."""

from __future__ import annotations

import itertools
import sys
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from escudo.causal import SEM
from escudo.errors import EscudoError, ParseError

VALID = """
# survey
R1, R2 ~ (neg, neg): 0.8, (pos, neg): 0.1, (pos, pos): 1/10
R[3..5] ~ neg: 0.9, pos: 0.1
D[i in 1..5] := randomised_response(R[i], epsilon = ln(3))
W | D1, D2 ~
    neg, neg -> low: 0.8, high: 0.2
    _, _ -> low: 0.3, high: 0.7
N := count(D[1..5] = pos) + 1 if W = low else max(0, 2)
T := (N, "a b", true)
O := truncated_geometric(count(D1, D2, D3 = pos), epsilon = 1, lower = 0, upper = 2)
B := report_noisy_max(one: N, two: 3, epsilon = 2, noise = geometric)
"""
WORDS = [
    *(
        "R1",
        "D1",
        "X",
        "neg",
        "pos",
        "low",
        "_",
        "i",
        "[",
        "]",
        "(",
        ")",
        ",",
        ":",
        ":=",
        "~",
        "|",
        "->",
        "..",
        "=",
        "==",
    ),
    *(
        "!=",
        "<",
        ">=",
        "+",
        "-",
        "*",
        "//",
        "%",
        "/",
        "if",
        "else",
        "and",
        "or",
        "not",
        "in",
        "true",
        "0",
        "1",
        "0.5",
        "1e9",
    ),
    *("count", "sum", "min", "abs", "any", "tuple", "choose", "coin", "truncated_geometric", "exponential_mechanism"),
    *(
        "report_noisy_max",
        "kary_response",
        "epsilon",
        "sensitivity",
        "lower",
        "noise",
        "ln",
        "exp",
        "\n",
        "\n",
        " ",
        "#",
        '"a"',
        "'",
    ),
]


def outcome(text: str) -> SEM | EscudoError:
    """Return the model, or the error that says why there is none; anything else that is raised fails the test."""
    try:
        return SEM.parse(text)
    except EscudoError as error:
        return error


def read(text: str) -> None:
    """Read a text: it is a model that can be written and read again, or refused at a place inside it."""
    result = outcome(text)
    if isinstance(result, SEM):
        assert SEM.parse(result.to_text()) == result
    else:
        assert isinstance(result, ParseError)
        assert 1 <= result.line <= text.count("\n") + 1
        assert 1 <= result.column <= len(text) + 1


@given(st.text(max_size=80))
@example("\x00")
@example("X ~ ²: 1")
@example('X := "\\ud800"')
@example("X ~ a: 1 \\")
def test_any_text_at_all_is_read_or_refused(text):
    read(text)


@given(st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join))
def test_any_sequence_of_the_languages_words_is_read_or_refused(text):
    read(text)


@given(st.data())
def test_a_valid_text_with_a_few_changes_is_read_or_refused(data):
    text = VALID
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 6))
        text = text[:place] + data.draw(st.sampled_from(["", *WORDS])) + text[place + length :]
    read(text)


@given(st.lists(st.sampled_from(VALID.strip().splitlines()), max_size=12).map("\n".join))
def test_lines_of_a_valid_text_in_any_order_and_number_are_read_or_refused(text):
    read(text)


@pytest.mark.parametrize(
    "text",
    [
        "X := " + "(" * 50_000,
        "X := " + "(" * 50_000 + "1" + ")" * 50_000,
        "X := " + "-" * 100_000 + "1",
        "X := " + "not " * 50_000 + "true",
        "X := " + "1 + " * 20_000 + "1",
        "X := " + "1 * " * 20_000 + "1",
        "X := " + "1 if true else " * 20_000 + "1",
        "X := " + "max(" * 20_000,
        "X ~ " + "(" * 20_000,
        "X ~ a: " + "(" * 20_000,
        "X ~ a: " + "1 / " * 50_000 + "1",
        "X ~ a: 1e999999999",
        "X ~ a: " + "9" * 100_000,
        "X := " + "9" * 100_000,
        "X := 9007199254740992 * 9007199254740992",
        "X[1..1000000000] ~ a: 1",
        "X[1..10000] ~ a: .5, b: .5\nY[1..10000] := count(X[1..10000] = a)",
        "X[1..20] ~ a: .5, b: .5\nY := (" + ", ".join(f"X{i}" for i in range(1, 21)) + ")",
        "X[1..30] ~ 0: .5, 1: .5\nY := " + " + ".join(f"{2**i} * X{i}" for i in range(1, 31)),
        "X[1..9] ~ 0: .5, 1: .5\nY := truncated_geometric(X1, epsilon = 1, lower = -1000000000, upper = 1000000000)",
        "X ~ 0: .5, 1: .5\nY := report_noisy_max(X, 0, epsilon = 0.0000001, noise = geometric)",
        "X[1..30] ~ 0: .5, 1: .5\nY := exponential_mechanism("
        + ", ".join(f"X{i}" for i in range(1, 31))
        + ", epsilon = 1)",
        "X0 ~ a: 1\n" + "\n".join(f"X{i} := X{i - 1}" for i in range(1, 3000)),
        "\n".join(f"X{i} := X{(i + 1) % 3000}" for i in range(3000)),
        "A, B ~ " + ", ".join(f"({i}, {i}): 1/3000" for i in range(3000)),
        "X | A ~\n" + "a -> b: 1\n" * 5_000,
        "#" * 500_000,
        "\n" * 200_000,
        "x" * 1_000_001,
        "X := count(" + "A[" * 20_000,
        'X := "' + "a" * 200_000,
    ],
    ids=lambda text: text[:24].replace("\n", " "),
)
def test_a_text_made_to_exhaust_the_reader_does_not(text):
    start = time.process_time()
    result = outcome(text)
    assert time.process_time() - start < 50.0  # what it guards against takes hours
    assert len(str(result)) < 2_000


def test_the_work_of_reading_grows_like_the_text():
    def calls(definitions: int) -> int:
        text = "R0 ~ a: 0.5, b: 0.5\n" + "\n".join(
            f"R{i} := kary_response(R{i - 1}, epsilon = 1)" for i in range(1, definitions)
        )
        made, before = itertools.count(), sys.getprofile()
        sys.setprofile(lambda *event: next(made))
        try:
            SEM.parse(text)
        finally:
            sys.setprofile(before)
        return next(made)

    # Counted, not timed: a busy machine must not decide. Quadratic work would make it 100 times as many.
    assert calls(1000) < 15 * calls(100)
