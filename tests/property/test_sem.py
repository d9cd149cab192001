"""Structural equation models against an oracle that enumerates every world from the definitions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import fsum, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.causal import SEM
from escudo.causal._inference import Factor, Lookup, contract
from escudo.errors import ZeroProbabilityError

TOLERANCE = 1e-9
LEVELS = (("neg", "pos"), (0, 1, 2), (False, True), ("only",), (("a", 1), ("b", 2)), (3, 7))


@dataclass(frozen=True)
class Spec:
    """A model as plain dictionaries: what the oracle reads, and what SEM.build is given."""

    ranges: dict
    population: dict  # tuple of exogenous values -> probability
    exogenous: tuple
    equations: dict  # name -> (parents, {parents' values: {value: probability}})

    def build(self) -> SEM:
        shape = [len(self.ranges[name]) for name in self.exogenous]
        table = np.array([self.population[u] for u in product(*(self.ranges[n] for n in self.exogenous))])
        return SEM.build(
            exogenous={name: list(self.ranges[name]) for name in self.exogenous},
            equations=self.equations,
            population=table.reshape(shape),
        )

    def worlds(self, do=None, read=None):
        """Yield (world, probability) for every way things can go.

        ``do`` sets variables. ``read`` maps (parent, child) to the value that this child reads instead of its parent's.
        """
        do, read = do or {}, read or {}
        for u, weight in self.population.items():
            # Setting an exogenous variable leaves the others with their marginal law: sum over what it would have been.
            start = {name: do.get(name, value) for name, value in zip(self.exogenous, u, strict=True)}
            branches = [(start, weight)]
            for name, (parents, rows) in self.equations.items():
                grown = []
                for world, so_far in branches:
                    if name in do:
                        grown.append(({**world, name: do[name]}, so_far))
                        continue
                    seen = tuple(read.get((parent, name), world[parent]) for parent in parents)
                    grown += [({**world, name: value}, so_far * p) for value, p in rows[seen].items()]
                branches = grown
            yield from branches

    def probability(self, names, do=None, given=None, read=None):
        """Return {values of names: probability}, or None if the evidence cannot happen."""
        given = given or {}
        chosen = [
            (world, weight)
            for world, weight in self.worlds(do, read)
            if all(world[name] == value for name, value in given.items())
        ]
        total = fsum(weight for _, weight in chosen)
        if given and total == 0:
            return None
        answer = dict.fromkeys(product(*(self.ranges[name] for name in names)), 0.0)
        for world, weight in chosen:
            answer[tuple(world[name] for name in names)] += weight / (total if given else 1.0)
        return answer


def random_spec(rng: np.random.Generator) -> Spec:
    count = int(rng.integers(2, 7))
    names = [f"V{i}" for i in range(count)]
    ranges = {name: LEVELS[rng.integers(len(LEVELS))] for name in names}
    exogenous = tuple(names[: int(rng.integers(1, min(4, count) + 1))])
    cells = list(product(*(ranges[name] for name in exogenous)))
    population = dict(zip(cells, random_law(rng, len(cells)), strict=True))
    equations = {}
    for position in range(len(exogenous), count):
        chosen = rng.permutation(position)[: int(rng.integers(0, 4))]
        parents = tuple(names[i] for i in chosen)
        values = ranges[names[position]]
        rows = {
            point: dict(zip(values, random_law(rng, len(values)), strict=True))
            for point in product(*(ranges[parent] for parent in parents))
        }
        equations[names[position]] = (parents, rows)
    return Spec(ranges, population, exogenous, equations)


def random_law(rng: np.random.Generator, size: int) -> list[float]:
    """Return probabilities with exact zeros, sometimes a point mass."""
    weights = rng.random(size) * (rng.random(size) < 0.7)
    if weights.sum() == 0 or rng.random() < 0.2:
        weights = np.zeros(size)
        weights[rng.integers(size)] = 1.0
    return (weights / weights.sum()).tolist()


def assert_same(answer, expected):
    """Equal to 1e-9, and zero exactly where the oracle is zero."""
    for point, weight in expected.items():
        key = point if not answer.single else point[0]
        assert answer[key] == pytest.approx(weight, abs=TOLERANCE)
        assert (answer[key] == 0) == (weight == 0)


def some(rng, names, most=3):
    return [str(name) for name in rng.permutation(names)[: int(rng.integers(1, most + 1))]]


@pytest.mark.parametrize("seed", range(250))
def test_do_given_and_their_combination_agree_with_enumeration(seed):
    rng = np.random.default_rng(seed)
    spec = random_spec(rng)
    sem = spec.build()
    for _ in range(4):
        names = some(rng, sem.variables)
        do = {name: spec.ranges[name][rng.integers(len(spec.ranges[name]))] for name in some(rng, sem.variables, 2)}
        evidence = {
            name: spec.ranges[name][rng.integers(len(spec.ranges[name]))] for name in some(rng, sem.variables, 2)
        }
        assert_same(sem.probability(names), spec.probability(names))
        assert_same(sem.probability(names, do=do), spec.probability(names, do=do))
        assert_same(sem.do(do).probability(names), spec.probability(names, do=do))
        for intervention in ({}, do):
            expected = spec.probability(names, do=intervention, given=evidence)
            if expected is None:
                with pytest.raises(ZeroProbabilityError):
                    sem.probability(names, do=intervention, given=evidence)
                continue
            answer = sem.probability(names, do=intervention, given=evidence)
            assert_same(answer, expected)
            point = list(expected)[int(rng.integers(len(expected)))]
            single = sem.probability(dict(zip(names, point, strict=True)), do=intervention, given=evidence)
            assert single == pytest.approx(expected[point], abs=TOLERANCE)
            assert (single == 0) == (expected[point] == 0)


@pytest.mark.parametrize("seed", range(120))
def test_kernels_with_inputs_background_and_cut_arrows_agree_with_enumeration(seed):
    rng = np.random.default_rng(10_000 + seed)
    spec = random_spec(rng)
    sem = spec.build()
    names, inputs = tuple(some(rng, sem.variables, 2)), tuple(some(rng, sem.variables, 2))
    arrows = [(x, child) for child in sem.endogenous for x in sem.parents(child) if x in inputs]
    cut = [arrow for arrow in arrows if rng.random() < 0.5]
    for edges in (None, cut):
        plain = sem.law(names, inputs=inputs, cut=edges)
        fixed = sem.law(names, inputs=inputs, background=True, cut=edges)
        assert plain.array.shape == tuple(len(sem.range(name)) for name in (*inputs, *names))
        for cell in product(*(range(len(sem.range(name))) for name in inputs)):
            values = {name: sem.range(name)[place] for name, place in zip(inputs, cell, strict=True)}
            do = values if edges is None else {}
            read = {} if edges is None else {(x, child): values[x] for x, child in edges}
            expected = np.array(list(spec.probability(names, do=do, read=read).values()))
            assert plain.array[cell].ravel() == pytest.approx(expected, abs=TOLERANCE)
            assert np.array_equal(plain.array[cell].ravel() == 0, expected == 0)
            for u in product(*(range(len(sem.range(name))) for name in fixed.background)):
                background = {name: sem.range(name)[place] for name, place in zip(fixed.background, u, strict=True)}
                expected = background_law(spec, names, do, read, background)
                assert fixed.array[(*cell, *u)].ravel() == pytest.approx(expected, abs=TOLERANCE)


def background_law(spec, names, do, read, background):
    """The law with the exogenous variables at fixed values; those that do not matter are put anywhere."""
    point = tuple(background.get(name, spec.ranges[name][0]) for name in spec.exogenous)
    fixed = Spec(spec.ranges, {point: 1.0}, spec.exogenous, spec.equations)
    return np.array(list(fixed.probability(names, do=do, read=read).values()))


@pytest.mark.parametrize("seed", range(60))
def test_a_random_model_written_as_text_reads_back_equal(seed):
    sem = random_spec(np.random.default_rng(20_000 + seed)).build()
    again = SEM.parse(sem.to_text())
    assert again == sem
    assert again.to_text() == sem.to_text()
    name = sem.variables[seed % len(sem.variables)]
    changed = sem.do({name: sem.range(name)[-1]})
    assert SEM.parse(changed.to_text()) == changed


@pytest.mark.parametrize("seed", range(40))
def test_another_population_gives_what_a_model_built_with_it_gives(seed):
    rng = np.random.default_rng(30_000 + seed)
    spec = random_spec(rng)
    cells = list(spec.population)
    other = Spec(
        spec.ranges, dict(zip(cells, random_law(rng, len(cells)), strict=True)), spec.exogenous, spec.equations
    )
    sem = spec.build()
    table = np.array(list(other.population.values())).reshape([len(spec.ranges[name]) for name in spec.exogenous])
    last = sem.variables[-1]
    assert_same(sem.probability([last], population=table), other.probability([last]))
    assert_same(
        sem.with_population({spec.exogenous: other.population} if len(spec.exogenous) > 1 else table).probability(
            [last]
        ),
        other.probability([last]),
    )


@st.composite
def networks(draw):
    """Random factors and lookups over a few variables, each variable set by at most one lookup."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=6))
    names = [f"x{i}" for i in range(len(sizes))]
    number = st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0])
    factors = []
    for output in range(1, len(sizes)):
        if draw(st.booleans()):
            inputs = draw(st.lists(st.integers(0, output - 1), max_size=3, unique=True))
            shape = [sizes[i] for i in inputs]
            index = draw(st.lists(st.integers(0, sizes[output] - 1), min_size=prod(shape), max_size=prod(shape)))
            array = np.array(index, dtype=np.intp).reshape(shape)
            factors.append(Lookup(tuple(names[i] for i in inputs), names[output], array, sizes[output]))
    for _ in range(draw(st.integers(1, 4))):
        axes = draw(st.lists(st.integers(0, len(sizes) - 1), max_size=3, unique=True))
        shape = [sizes[i] for i in axes]
        cells = draw(st.lists(number, min_size=prod(shape), max_size=prod(shape)))
        factors.append(Factor([names[i] for i in axes], np.array(cells).reshape(shape)))
    factors += [Factor((name,), np.ones(size)) for name, size in zip(names, sizes, strict=True)]
    keep = draw(st.lists(st.sampled_from(names), unique=True, max_size=3))
    return names, sizes, factors, keep


@given(networks())
def test_contraction_is_the_sum_over_all_cells_in_plain_numbers_and_in_logarithms(case):
    names, sizes, factors, keep = case
    expected = np.zeros([sizes[names.index(name)] for name in keep])
    for cell in product(*(range(size) for size in sizes)):
        at = dict(zip(names, cell, strict=True))
        weight = 1.0
        for factor in factors:
            if isinstance(factor, Lookup):
                weight *= float(factor.index[tuple(at[name] for name in factor.inputs)] == at[factor.output])
            else:
                weight *= factor.array[tuple(at[name] for name in factor.names)]
        expected[tuple(at[name] for name in keep)] += weight
    plain = contract(factors, keep)
    # A factor of e^-1000 and one of e^+1000 cancel exactly in the answer but force logarithms on the way.
    tiny = Factor.from_log((), -1000.0)
    logs = contract([*factors, tiny], keep, log=True) + 1000.0
    assert plain == pytest.approx(expected, rel=1e-12)
    assert np.array_equal(plain == 0, expected == 0)
    assert np.exp(logs) == pytest.approx(expected, rel=1e-9)
    assert np.array_equal(logs == -np.inf, expected == 0)
