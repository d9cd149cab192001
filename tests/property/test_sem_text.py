"""Expressions of the text format against an interpreter that carries whole distributions, written from the meaning."""

from __future__ import annotations

from itertools import product
from math import exp
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.causal import SEM, _sem_compile
from escudo.causal._sem_mechanisms import truncated_geometric

RANGES = {
    "A": ("neg", "pos"),
    "E": ("pos", "mid", "neg"),
    "B": (0, 1, 2),
    "F": (-1, 2),
    "C": (False, True),
    "G": (False, True),
}
HEADER = """
A ~ neg: 0.5, pos: 0.5
E ~ pos: 0.2, mid: 0.3, neg: 0.5
B ~ 0: 0.2, 1: 0.3, 2: 0.5
F ~ -1: 0.5, 2: 0.5
C ~ false: 0.5, true: 0.5
G ~ false: 0.25, true: 0.75
"""


def sure(value):
    return {value: 1.0}


def bind(*laws_and_function):
    """Return the law of f(x, y, …) for independent x, y, … with the given laws."""
    *laws, function = laws_and_function
    result: dict = {}
    for combination in product(*(law.items() for law in laws)):
        weight = 1.0
        for _, p in combination:
            weight *= p
        value = function(*(v for v, _ in combination))
        result[value] = result.get(value, 0.0) + weight
    return result


def combine(texts_and_meanings, pattern, function):
    """Return (text, meaning) of an operation on expressions that are given the same way."""
    texts = [text for text, _ in texts_and_meanings]
    meanings = [meaning for _, meaning in texts_and_meanings]
    return pattern.format(*texts, all=", ".join(texts)), lambda env: bind(*(m(env) for m in meanings), function)


def names(kind):
    return st.sampled_from([name for name, values in RANGES.items() if type(values[0]) is kind]).map(
        lambda name: (name, lambda env: sure(env[name]))
    )


def numbers(depth):
    leaf = st.one_of(
        names(int),
        st.integers(-3, 3).map(lambda n: (f"({n})", lambda env: sure(n))),
        st.sampled_from([0.25, 1.0]).map(lambda p: (f"bernoulli({p})", lambda env: {1: p, 0: 1 - p})),
    )
    if depth == 0:
        return leaf
    inner, tests = numbers(depth - 1), truths(depth - 1)
    return st.one_of(
        leaf,
        st.lists(inner, min_size=1, max_size=3).map(lambda xs: combine(xs, "sum({all})", lambda *v: sum(v))),
        st.lists(inner, min_size=1, max_size=3).map(lambda xs: combine(xs, "max({all})", lambda *v: max(v))),
        st.lists(inner, min_size=1, max_size=3).map(lambda xs: combine(xs, "min({all})", lambda *v: min(v))),
        st.tuples(inner, inner).map(lambda xs: combine(xs, "({} - {})", lambda a, b: a - b)),
        st.tuples(inner, inner, inner).map(lambda xs: combine(xs, "({} - {} + {})", lambda a, b, c: a - b + c)),
        st.tuples(inner, inner).map(lambda xs: combine(xs, "({} * {})", lambda a, b: a * b)),
        st.tuples(inner).map(lambda xs: combine(xs, "({} // 2 % 3)", lambda a: a // 2 % 3)),
        st.tuples(inner).map(lambda xs: combine(xs, "-{}", lambda a: -a)),
        st.tuples(inner).map(lambda xs: combine(xs, "abs({})", abs)),
        st.lists(tests, min_size=1, max_size=3).map(
            lambda xs: combine([(f"({t})", m) for t, m in xs], "count({all})", lambda *v: sum(v))
        ),
        st.sampled_from(["neg", "pos"]).map(
            lambda level: (f"count(A, E = {level})", lambda env: sure((env["A"] == level) + (env["E"] == level)))
        ),
        st.tuples(inner, tests, inner).map(lambda xs: combine(xs, "({} if {} else {})", lambda a, t, b: a if t else b)),
        st.tuples(inner, inner).map(
            lambda xs: (
                f"choose({xs[0][0]}: 1/4, {xs[1][0]}: 3/4)",
                lambda env: bind({0: 0.25, 1: 0.75}, xs[0][1](env), xs[1][1](env), lambda i, a, b: (a, b)[i]),
            )
        ),
    )


def truths(depth):
    leaf = st.one_of(
        names(bool),
        st.booleans().map(lambda b: (str(b).lower(), lambda env: sure(b))),
        st.sampled_from([("A", "pos"), ("A", "neg"), ("E", "mid"), ("E", "pos")]).flatmap(
            lambda case: st.sampled_from(["=", "==", "!="]).map(
                lambda sign: (
                    f"{case[0]} {sign} {case[1]}",
                    lambda env: sure((env[case[0]] == case[1]) == (sign != "!=")),
                )
            )
        ),
    )
    if depth == 0:
        return leaf
    inner, ints = truths(depth - 1), numbers(depth - 1)
    bracketed = inner.map(lambda x: (f"({x[0]})", x[1]))
    return st.one_of(
        leaf,
        st.tuples(bracketed, bracketed).map(lambda xs: combine(xs, "{} and {}", lambda a, b: a and b)),
        st.tuples(bracketed, bracketed).map(lambda xs: combine(xs, "{} or {}", lambda a, b: a or b)),
        st.tuples(bracketed).map(lambda xs: combine(xs, "not {}", lambda a: not a)),
        st.tuples(ints, ints).map(lambda xs: combine(xs, "{} < {}", lambda a, b: a < b)),
        st.tuples(ints, ints).map(lambda xs: combine(xs, "{} >= {}", lambda a, b: a >= b)),
        st.lists(bracketed, min_size=1, max_size=3).map(lambda xs: combine(xs, "any({all})", lambda *v: any(v))),
        st.lists(bracketed, min_size=1, max_size=3).map(lambda xs: combine(xs, "all({all})", lambda *v: all(v))),
        st.tuples(inner.map(lambda x: (f"({x[0]})", x[1]))).map(
            lambda xs: (
                f"({xs[0][0]} if coin(0.25) else C)",
                lambda env: bind({True: 0.25, False: 0.75}, xs[0][1](env), lambda c, a: a if c else env["C"]),
            )
        ),
    )


def anything(depth):
    pairs = st.tuples(numbers(depth - 1), truths(depth - 1), names(str))
    return st.one_of(
        numbers(depth),
        truths(depth),
        pairs.map(lambda xs: combine(xs, "({}, {}, {})", lambda *v: v)),
        st.tuples(names(str), truths(depth - 1)).map(
            lambda xs: combine(xs, '{} if {} else "other"', lambda a, t: a if t else "other")
        ),
    )


def agree(sem, meaning):
    used = sem.parents("X")
    for point in product(*(RANGES[name] for name in used)):
        env = {**{name: values[0] for name, values in RANGES.items()}, **dict(zip(used, point, strict=True))}
        answer = sem.probability("X", do=dict(zip(used, point, strict=True)))
        expected = meaning(env)
        for value, weight in answer.items():
            assert weight == pytest.approx(expected.get(value, 0.0), abs=1e-12)
            assert (weight == 0) == (expected.get(value, 0.0) == 0)
        assert sum(answer.values()) == pytest.approx(1)


@given(anything(3))
def test_an_expression_has_the_law_its_meaning_has(case):
    text, meaning = case
    sem = SEM.parse(f"{HEADER}X := {text}")
    agree(sem, meaning)


@given(anything(3))
def test_taking_an_expression_apart_into_hidden_steps_changes_nothing(case):
    text, meaning = case
    with patch.object(_sem_compile, "SPLIT", 1), patch.object(_sem_compile, "DENSE", 0):
        sem = SEM.parse(f"{HEADER}X := {text}")
        agree(sem, meaning)
        assert SEM.parse(sem.to_text()) == sem


@given(anything(3))
def test_what_is_written_reads_back_as_the_same_model(case):
    text, _ = case
    sem = SEM.parse(f"{HEADER}X := {text}\nY := X")
    again = SEM.parse(sem.to_text())
    assert again == sem
    assert again.to_text() == sem.to_text()


@given(
    lows=st.integers(-3, 3),
    width=st.integers(0, 5),
    epsilon=st.floats(0.05, 4.0),
    lower=st.integers(-6, 2),
    outputs=st.integers(1, 8),
)
def test_truncated_geometric_is_noise_summed_and_clamped(lows, width, epsilon, lower, outputs):
    values = tuple(range(lows, lows + width + 1))
    upper = lower + outputs - 1
    kernel = truncated_geometric(values, epsilon=epsilon, lower=lower, upper=upper)
    alpha = exp(-epsilon)
    for value, row in zip(values, kernel.log, strict=True):
        expected = dict.fromkeys(range(lower, upper + 1), 0.0)
        for noise in range(-900, 901):
            expected[min(max(value + noise, lower), upper)] += (1 - alpha) / (1 + alpha) * alpha ** abs(noise)
        assert [exp(x) for x in row] == pytest.approx(list(expected.values()), abs=1e-12)
