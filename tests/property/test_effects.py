"""Exact effects against a brute-force oracle, on random models and mechanisms.

The oracle below is written from the definitions: it walks through every value of every variable, and knows nothing of
closed forms, elimination or diagrams.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.causal import SEM
from escudo.effects import (
    CountMechanism,
    Diagram,
    Mechanism,
    associative,
    bound,
    definitions,
    direct,
    effect,
    nondisclosure,
    path,
    posterior,
    semantic_privacy,
    total,
)

seeds = st.integers(0, 2**32 - 1)


def log_ratio(a: float, b: float) -> float:
    if a == 0:
        return -math.inf
    return math.inf if b == 0 else math.log(a / b)


def same(value: float, expected: float) -> bool:
    return value == expected or abs(value - expected) <= 1e-9


# -- models --------------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """A random model: ranges, exogenous names, equations as (parents, table), and a population as a joint table."""

    ranges: dict[str, int]
    exogenous: list[str]
    equations: dict[str, tuple[tuple[str, ...], np.ndarray]] = field(default_factory=dict)
    population: np.ndarray = field(default_factory=lambda: np.ones(()))

    def sem(self) -> SEM:
        return SEM.build(
            exogenous={name: list(range(self.ranges[name])) for name in self.exogenous},
            equations={
                name: (parents, table, tuple(range(self.ranges[name])))
                for name, (parents, table) in self.equations.items()
            },
            population=self.population,
        )

    def backgrounds(self) -> Iterator[dict[str, int]]:
        for values in product(*(range(self.ranges[name]) for name in self.exogenous)):
            yield dict(zip(self.exogenous, values, strict=True))

    def worlds(
        self, start: dict[str, int], *, do: dict[str, int], edges: dict[str, dict[str, int]] | None = None
    ) -> Iterator[tuple[dict[str, int], float]]:
        """Yield every assignment with its probability; a child in ``edges`` reads the given values of some parents."""
        partial = [({**start, **{k: v for k, v in do.items() if k in self.exogenous}}, 1.0)]
        for name, (parents, table) in self.equations.items():
            longer = []
            for values, weight in partial:
                if name in do:
                    longer.append(({**values, name: do[name]}, weight))
                    continue
                read = {**values, **(edges or {}).get(name, {})}
                row = table[tuple(read[parent] for parent in parents)]
                longer += [({**values, name: v}, weight * row[v]) for v in range(len(row)) if row[v] > 0]
            partial = longer
        yield from partial

    def law(self, on: tuple[str, ...], u: dict[str, int], **how) -> dict[tuple[int, ...], float]:
        law = dict.fromkeys(product(*(range(self.ranges[name]) for name in on)), 0.0)
        for values, weight in self.worlds(u, **how):
            law[tuple(values[name] for name in on)] += weight
        return law

    def mixed(self, on: tuple[str, ...], population: np.ndarray, **how) -> dict[tuple[int, ...], float]:
        law = dict.fromkeys(product(*(range(self.ranges[name]) for name in on)), 0.0)
        for u in self.backgrounds():
            weight = population[tuple(u.values())]
            for y, p in self.law(on, u, **how).items():
                law[y] += weight * p
        return law

    def settings(self, names: tuple[str, ...]) -> list[dict[str, int]]:
        return [
            dict(zip(names, values, strict=True)) for values in product(*(range(self.ranges[name]) for name in names))
        ]


def largest(laws: list[dict[tuple[int, ...], float]]) -> float:
    return max(log_ratio(one[y], two[y]) for one in laws for two in laws for y in one)


def random_model(seed: int, *, most_exogenous: int = 3, most_endogenous: int = 4) -> tuple[Model, np.random.Generator]:
    rng = np.random.default_rng(seed)
    exogenous = [f"U{i}" for i in range(rng.integers(1, most_exogenous + 1))]
    model = Model({name: int(rng.integers(1, 4)) for name in exogenous}, exogenous)
    for i in range(rng.integers(1, most_endogenous + 1)):
        known = list(model.ranges)
        parents = tuple(rng.permutation(known)[: rng.integers(0, min(3, len(known)) + 1)].tolist())
        size = int(rng.integers(1, 4))
        shape = [model.ranges[parent] for parent in parents]
        name = f"X{i}"
        model.ranges[name] = size
        model.equations[name] = (parents, random_rows(rng, shape, size))
    shape = [model.ranges[name] for name in exogenous]
    model.population = random_law(rng, shape)
    return model, rng


def random_rows(rng: np.random.Generator, shape: list[int], size: int) -> np.ndarray:
    table = np.empty((*shape, size))
    kind = rng.integers(3)
    for index in np.ndindex(*shape):
        if kind == 0:  # deterministic
            table[index] = np.eye(size)[rng.integers(size)]
        else:
            table[index] = random_law(rng, [size], zeros=kind == 1)
    return table


def random_law(rng: np.random.Generator, shape: list[int], *, zeros: bool = True) -> np.ndarray:
    weights = rng.integers(0 if zeros else 1, 5, size=shape).astype(float) + (0 if zeros else rng.random(shape))
    if weights.sum() == 0:
        weights.flat[0] = 1.0
    return weights / weights.sum()


def some(rng: np.random.Generator, names: list[str], most: int = 2) -> tuple[str, ...]:
    return tuple(rng.permutation(names)[: rng.integers(1, min(most, len(names)) + 1)].tolist())


@given(seeds)
def test_effects_over_all_populations_equal_enumeration_of_all_backgrounds(seed):
    model, rng = random_model(seed)
    of, on = some(rng, list(model.ranges)), some(rng, list(model.ranges))
    expected = max(largest([model.law(on, u, do=x) for x in model.settings(of)]) for u in model.backgrounds())
    found = effect(model.sem(), of, on)
    assert same(found.epsilon, expected)
    if found.witness is not None:
        w = found.witness
        background = {name: w.background.get(name, 0) for name in model.exogenous}
        y = tuple(w.y[name] for name in on)
        first, second = (model.law(on, background, do=dict(x))[y] for x in (w.x1, w.x2))
        assert same(log_ratio(first, second), expected)


@given(seeds)
def test_the_ways_to_compute_a_worst_case_agree(seed):
    model, rng = random_model(seed)
    of, on = some(rng, list(model.ranges), 3), some(rng, list(model.ranges))
    sem = model.sem()
    expected = effect(sem, of, on)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("escudo.effects._worst._AT_ONCE", 0)  # sum one variable at a time, dropping equal alternatives
        assert same(effect(sem, of, on).epsilon, expected.epsilon)
        patch.setattr("escudo.effects._worst._MOST_WORLDS", 1)  # two chosen settings instead of all
        found = effect(sem, of, on)
    assert same(found.epsilon, expected.epsilon)
    if found.witness is not None:
        w, names = found.witness, tuple(found.on)
        background = {name: w.background.get(name, 0) for name in model.exogenous}
        y = tuple(w.y[name] for name in names)
        first, second = (model.law(names, background, do=dict(x))[y] for x in (w.x1, w.x2))
        assert same(log_ratio(first, second), expected.epsilon)


@given(seeds)
def test_effects_at_a_population_equal_enumeration_and_never_exceed_the_worst_case(seed):
    model, rng = random_model(seed)
    sem = model.sem()
    of, on = some(rng, list(model.ranges)), some(rng, list(model.ranges))
    worst = effect(sem, of, on).epsilon
    for law in (model.population, random_law(rng, list(model.population.shape), zeros=False)):
        expected = largest([model.mixed(on, law, do=x) for x in model.settings(of)])
        found = effect(sem, of, on, population=law).epsilon
        assert same(found, expected)
        assert found <= worst + 1e-9
    assert same(effect(sem, of, on, population="own").epsilon, effect(sem, of, on, population=model.population).epsilon)


@given(seeds)
def test_direct_effects_equal_enumeration_of_held_values(seed):
    model, rng = random_model(seed)
    names = list(model.ranges)
    of = some(rng, names, 1)
    held = some(rng, [name for name in names if name not in of]) if len(names) > 1 else ()
    if not held:
        return
    on = some(rng, names)
    choices = model.settings(held)
    expected = max(
        largest([model.law(on, u, do={**m, **x}) for x in model.settings(of)])
        for u in model.backgrounds()
        for m in choices
    )
    assert same(direct(model.sem(), of, on, holding=held).epsilon, expected)
    at = max(largest([model.mixed(on, model.population, do={**m, **x}) for x in model.settings(of)]) for m in choices)
    assert same(direct(model.sem(), of, on, holding=held, population="own").epsilon, at)


@given(seeds)
def test_path_effects_equal_enumeration_of_edge_interventions(seed):
    model, rng = random_model(seed)
    read = sorted({parent for parents, _ in model.equations.values() for parent in parents})
    if not read:
        return
    x = read[rng.integers(len(read))]
    children = [name for name, (parents, _) in model.equations.items() if x in parents]
    through, on = some(rng, children, 3), some(rng, list(model.ranges))
    sem, values = model.sem(), range(model.ranges[x])

    def law(u, v, do):
        return model.law(on, u, do=do, edges={child: {x: v} for child in through})

    natural = max(largest([law(u, v, {}) for v in values]) for u in model.backgrounds())
    held = max(largest([law(u, v, {x: b}) for v in values]) for u in model.backgrounds() for b in values)
    own = largest(
        [model.mixed(on, model.population, do={}, edges={child: {x: v} for child in through}) for v in values]
    )
    assert same(path(sem, x, on, through=through).epsilon, natural)
    assert same(path(sem, x, on, through=through, baseline="held").epsilon, held)
    assert same(path(sem, x, on, through=through, population="own").epsilon, own)
    assert natural <= held + 1e-9
    if x in model.exogenous and x not in on:
        assert same(natural, held)
    if x not in on and set(through) == set(children):
        assert same(natural, effect(sem, x, on).epsilon)


@given(seeds)
def test_associations_equal_enumeration_of_conditional_laws(seed):
    model, rng = random_model(seed)
    of, on = some(rng, list(model.ranges)), some(rng, list(model.ranges))
    joint = model.mixed((*of, *on), model.population, do={})
    laws = []
    for x in model.settings(of):
        x = tuple(x.values())
        rest = {xy[len(x) :]: p for xy, p in joint.items() if xy[: len(x)] == x}
        if (seen := sum(rest.values())) > 0:
            laws.append({y: p / seen for y, p in rest.items()})
    assert same(associative(model.sem(), of, on).epsilon, largest(laws))


@given(seeds)
def test_the_worst_association_bounds_every_population_and_two_backgrounds_attain_it(seed):
    model, rng = random_model(seed, most_endogenous=3)
    of, on = some(rng, model.exogenous), some(rng, list(model.ranges))
    sem = model.sem()
    worst = associative(sem, of, on, population=None).epsilon
    pairs = []
    backgrounds = list(model.backgrounds())
    for u, v in product(backgrounds, backgrounds):
        law = np.zeros(model.population.shape)
        law[tuple(u.values())] += 0.5
        law[tuple(v.values())] += 0.5
        pairs.append(associative(sem, of, on, population=law).epsilon)
    assert same(max(pairs), worst)
    assert associative(sem, of, on, population=random_law(rng, list(model.population.shape))).epsilon <= worst + 1e-9


@given(seeds)
def test_setting_an_exogenous_variable_is_setting_a_copy_of_it(seed):
    model, rng = random_model(seed)
    x, on = model.exogenous[rng.integers(len(model.exogenous))], some(rng, list(model.equations))
    copied = Model(
        {f"C{x}" if name == x else name: size for name, size in model.ranges.items()} | {x: model.ranges[x]},
        [f"C{x}" if name == x else name for name in model.exogenous],
        {x: ((f"C{x}",), np.eye(model.ranges[x])), **model.equations},
        model.population,
    )
    assert same(effect(model.sem(), x, on).epsilon, effect(copied.sem(), x, on).epsilon)
    own = effect(model.sem(), x, on, population="own").epsilon
    assert same(own, effect(copied.sem(), x, on, population="own").epsilon)


@given(seeds)
def test_a_diagram_never_proves_less_than_the_exact_effect(seed):
    model, rng = random_model(seed, most_endogenous=5)
    sem = model.sem()
    mechanisms = [name for name in model.equations if rng.random() < 0.6]
    diagram = Diagram.of(sem, mechanisms=mechanisms)
    of, on = some(rng, list(model.ranges), 3), some(rng, list(model.ranges), 3)
    proved = bound(diagram, of, on).epsilon
    assert proved >= effect(sem, of, on).epsilon - 1e-9
    assert proved >= effect(sem, of, on, population="own").epsilon - 1e-9


@given(seeds)
def test_more_mechanisms_never_weaken_a_proof(seed):
    model, rng = random_model(seed, most_endogenous=5)
    sem = model.sem()
    mechanisms = list(model.equations)
    fewer = [name for name in mechanisms if rng.random() < 0.5]
    of, on = some(rng, list(model.ranges)), some(rng, list(model.ranges))
    all_of_them, some_of_them = (bound(Diagram.of(sem, mechanisms=m), of, on).epsilon for m in (mechanisms, fewer))
    assert all_of_them <= some_of_them + 1e-9


# -- mechanisms ----------------------------------------------------------------------------------------------------


def random_mechanism(seed: int) -> tuple[np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    shape = [int(rng.integers(1, 4)) for _ in range(n)] if n < 4 else [2, 2, 2, 2]
    return random_rows(rng, shape, int(rng.integers(1, 4))), rng


def compared(table: np.ndarray, pairs) -> float:
    best = 0.0
    for d, e in pairs:
        best = max([best, *(log_ratio(a, b) for a, b in zip(table[d], table[e], strict=True))])
    return best


def conditional(table: np.ndarray, population: np.ndarray, i: int, v: int) -> np.ndarray | None:
    law, seen = np.zeros(table.shape[-1]), 0.0
    for d in np.ndindex(*population.shape):
        if d[i] == v:
            law += population[d] * table[d]
            seen += population[d]
    return law / seen if seen > 0 else None


def bayesian(table: np.ndarray, population: np.ndarray) -> float:
    best = 0.0
    for i in range(population.ndim):
        laws = [conditional(table, population, i, v) for v in range(population.shape[i])]
        laws = [law for law in laws if law is not None]
        best = max([best, *(log_ratio(a, b) for p in laws for q in laws for a, b in zip(p, q, strict=True))])
    return best


def intervened(table: np.ndarray, population: np.ndarray) -> float:
    best = 0.0
    for i in range(population.ndim):
        laws = []
        for v in range(population.shape[i]):
            law = np.zeros(table.shape[-1])
            for d in np.ndindex(*population.shape):
                law += population[d] * table[(*d[:i], v, *d[i + 1 :])]
            laws.append(law)
        best = max([best, *(log_ratio(a, b) for p in laws for q in laws for a, b in zip(p, q, strict=True))])
    return best


def distance(d: tuple[int, ...], e: tuple[int, ...]) -> int:
    return sum(a != b for a, b in zip(d, e, strict=True))


@given(seeds)
def test_definitions_equal_their_words_on_random_mechanisms(seed):
    table, rng = random_mechanism(seed)
    shape = list(table.shape[:-1])
    population = random_law(rng, shape)
    databases = list(np.ndindex(*shape))
    result = definitions(table, population)
    neighbours = [(d, e) for d in databases for e in databases if distance(d, e) == 1]
    dp = compared(table, neighbours)
    for number in (1, 2, 4, 5, 6, 8):
        assert same(result[number].epsilon, dp)
    inside = [(d, e) for d, e in neighbours if population[d] > 0 and population[e] > 0]
    assert same(result[10].epsilon, compared(table, inside))
    assert same(result[7].epsilon, intervened(table, population))
    assert same(result["bayesian0"].epsilon, bayesian(table, population))
    # Definition 3 quantifies over all populations: two-point ones attain it, and no random one exceeds it.
    attained = 0.0
    for d, e in product(databases, databases):
        law = np.zeros(shape)
        law[d] += 0.5
        law[e] += 0.5
        attained = max(attained, bayesian(table, law))
    assert same(result[3].epsilon, attained)
    assert bayesian(table, random_law(rng, shape)) <= result[3].epsilon + 1e-9


@given(seeds)
def test_definition_4_as_printed_is_attained_by_populations_that_meet_its_condition(seed):
    table, rng = random_mechanism(seed)
    shape = list(table.shape[:-1])
    printed = definitions(table, independence="pairwise-conditional")[4].epsilon
    attained = 0.0
    for d, e in product(np.ndindex(*shape), np.ndindex(*shape)):
        law = np.zeros(shape)
        law[d] += 0.5
        law[e] += 0.5
        if pairwise_independent_given_the_rest(law):
            attained = max(attained, bayesian(table, law))
    assert same(printed, attained)
    product_law = np.array(1.0)
    for size in shape:
        product_law = np.multiply.outer(product_law, random_law(rng, [size]))
    assert bayesian(table, product_law) <= definitions(table)[4].epsilon + 1e-9


@given(seeds)
def test_mixtures_of_products_on_distant_boxes_stay_within_definition_4_as_printed(seed):
    rng = np.random.default_rng(seed)
    shape = [int(rng.integers(2, 4)) for _ in range(3)] + [2] * int(rng.integers(0, 2))
    table = random_rows(rng, shape, int(rng.integers(2, 4)))
    boxes = []
    for values in ([0], [1, 2]):  # on the first three points the boxes share no value
        law = np.array(1.0)
        for i, size in enumerate(shape):
            inside = [v for v in values if v < size] if i < 3 else range(size)
            weights = np.zeros(size)
            weights[list(inside)] = random_law(rng, [len(inside)])
            law = np.multiply.outer(law, weights)
        boxes.append(law)
    share = rng.random()
    population = share * boxes[0] + (1 - share) * boxes[1]
    assert pairwise_independent_given_the_rest(population)
    printed = definitions(table, population, independence="pairwise-conditional")
    assert bayesian(table, population) <= printed[4].epsilon + 1e-9


def pairwise_independent_given_the_rest(law: np.ndarray) -> bool:
    for i in range(law.ndim):
        for j in range(i):
            slices = np.moveaxis(law, (j, i), (-2, -1)).reshape(-1, law.shape[j], law.shape[i])
            for table in slices:
                outer = np.outer(table.sum(axis=1), table.sum(axis=0))
                if not np.allclose(table * table.sum(), outer, atol=1e-12):
                    return False
    return True


@given(seeds)
def test_the_definitions_are_ordered_as_the_paper_says(seed):
    table, rng = random_mechanism(seed)
    shape, n = list(table.shape[:-1]), table.ndim - 1
    population = random_law(rng, shape)
    result = definitions(table, population, independence="pairwise-conditional")
    one, three, printed = result[1].epsilon, result[3].epsilon, result[4].epsilon
    slack = 1e-9
    assert max(result[7].epsilon, result[10].epsilon) <= one + slack
    assert one <= printed + slack
    assert printed <= three + slack
    assert three <= n * one + slack or math.isinf(one)
    assert result["bayesian0"].epsilon <= three + slack
    if n <= 2:
        assert same(printed, one)
    if n == 1:
        assert same(three, one)
        assert same(result[7].epsilon, one)
    laws = [random_law(rng, [size], zeros=False) for size in shape]
    independent = np.array(1.0)
    for law in laws:
        independent = np.multiply.outer(independent, law)
    at = definitions(table, independent)
    assert same(at[7].epsilon, at["bayesian0"].epsilon)
    assert same(at[10].epsilon, one)


@given(seeds)
def test_an_output_that_never_happens_and_a_value_that_nobody_has_change_what_they_should(seed):
    table, rng = random_mechanism(seed)
    shape = list(table.shape[:-1])
    population = random_law(rng, shape)
    before = definitions(table, population)
    wider = np.concatenate([table, np.zeros((*shape, 1))], axis=-1)
    after = definitions(wider, population)
    assert all(same(after[k].epsilon, before[k].epsilon) for k in before)
    extra = random_rows(rng, [1, *shape[1:]], table.shape[-1])
    more = definitions(np.concatenate([table, extra]), np.concatenate([population, np.zeros((1, *shape[1:]))]))
    for number in (10, "bayesian0"):
        assert same(more[number].epsilon, before[number].epsilon)
    for number in (1, 7, 8):
        assert more[number].epsilon >= before[number].epsilon - 1e-9


@given(seeds)
def test_data_points_of_a_mechanism_have_its_epsilons_as_effects(seed):
    table, rng = random_mechanism(seed)
    shape = list(table.shape[:-1])
    population = random_law(rng, shape)
    names = [f"R{i}" for i in range(len(shape))]
    points = [f"D{i}" for i in range(len(shape))]
    sem = SEM.build(
        exogenous={name: list(range(size)) for name, size in zip(names, shape, strict=True)},
        equations={
            **{d: (r, np.eye(s), tuple(range(s))) for d, r, s in zip(points, names, shape, strict=True)},
            "O": (points, table, tuple(range(table.shape[-1]))),
        },
        population=population,
    )
    result = definitions(table, population)
    for i, point in enumerate(points):
        assert same(effect(sem, point, "O").epsilon, result[1].persons[i])
        assert same(effect(sem, point, "O", population="own").epsilon, result[7].persons[i])
        assert same(associative(sem, point, "O").epsilon, result["bayesian0"].persons[i])
        assert same(associative(sem, point, "O", population=None).epsilon, result[3].persons[i])
    together = effect(sem, points, "O").epsilon
    assert together <= total(sem, points, "O").epsilon + 1e-9
    assert same(together, result[3].epsilon)


@given(seeds)
def test_counts_have_the_definitions_of_their_full_tables(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    count = CountMechanism(random_rows(rng, [n + 1], int(rng.integers(1, 4))))
    law = random_law(rng, [n + 1])
    counts = np.indices((2,) * n).sum(axis=0)
    population = law[counts] / np.array([math.comb(n, c) for c in range(n + 1)])[counts]
    for independence in ("mutual", "pairwise-conditional"):
        short = definitions(count, law, independence=independence)
        full = definitions(count.expand(), population, independence=independence)
        for number in full:
            assert same(short[number].epsilon, full[number].epsilon), number
    assert same(semantic_privacy(count).rho, semantic_privacy(count.expand()).rho)


# -- beliefs -------------------------------------------------------------------------------------------------------


@given(seeds)
def test_beliefs_stay_within_the_closed_form_and_its_credence_attains_it(seed):
    table, rng = random_mechanism(seed)
    shape = list(table.shape[:-1])
    mechanism = Mechanism(table)
    worst = semantic_privacy(mechanism)
    epsilon = definitions(mechanism)[1].epsilon
    assert worst.difference <= math.tanh(epsilon / 2) + 1e-9
    if math.isfinite(epsilon):
        assert epsilon - 1e-9 <= worst.rho <= 2 * epsilon + 1e-9
        assert worst.difference >= math.tanh(epsilon / 4) - 1e-9
    for credence in (random_law(rng, shape), random_law(rng, shape, zeros=False)):
        found = semantic_privacy(mechanism, credence)
        assert found.difference <= worst.difference + 1e-9
        assert found.rho <= worst.rho + 1e-9
        assert same(found.difference, believed(table, credence))
    if worst.credence is not None:
        credence = np.zeros(shape)
        for database, weight in worst.credence:
            credence[tuple(database.values())] += weight
        p = posterior(mechanism, credence, worst.output)
        q = posterior(mechanism, credence, worst.output, without=worst.person, value=worst.replacement)
        assert abs(np.abs(p - q).sum() / 2 - worst.difference) <= 1e-9


def believed(table: np.ndarray, credence: np.ndarray) -> float:
    """Return the largest statistical difference between beliefs with and without a person, by going through all."""
    best = 0.0
    for i in range(credence.ndim):
        for v in range(credence.shape[i]):
            for o in range(table.shape[-1]):
                p = {d: table[(*d, o)] * credence[d] for d in np.ndindex(*credence.shape)}
                q = {d: table[(*d[:i], v, *d[i + 1 :], o)] * credence[d] for d in np.ndindex(*credence.shape)}
                if sum(p.values()) > 0 and sum(q.values()) > 0:
                    difference = sum(abs(p[d] / sum(p.values()) - q[d] / sum(q.values())) for d in p) / 2
                    best = max(best, difference)
    return best


@given(seeds)
def test_what_an_output_discloses_stays_within_definition_3(seed):
    table, rng = random_mechanism(seed)
    shape = list(table.shape[:-1])
    worst = nondisclosure(table)
    assert same(worst.log_ratio, definitions(table)[3].epsilon)
    credence = random_law(rng, shape)
    for about in (None, "D1"):
        found, limit = nondisclosure(table, credence, about=about), nondisclosure(table, about=about)
        assert found.difference <= limit.difference + 1e-9
        assert found.log_ratio <= limit.log_ratio + 1e-9


def test_the_oracle_itself_knows_a_textbook_case():
    model = Model(
        {"U": 2, "X": 2}, ["U"], {"X": (("U",), np.array([[0.75, 0.25], [0.25, 0.75]]))}, np.array([0.5, 0.5])
    )
    laws = [model.law(("X",), {"U": 0}, do={"U": v}) for v in (0, 1)]
    assert largest(laws) == pytest.approx(math.log(3))


# -- beyond the paper


@given(st.integers(0, 2**32 - 1))
def test_given_what_lies_before_a_data_point_has_no_larger_effect(seed: int) -> None:
    """Any mechanism of three data points, any population, any covariate of the true data: also where they go along."""
    rng = np.random.default_rng(seed)

    def law(count: int = 2) -> str:
        shares = rng.dirichlet(np.full(count, 0.7)) + 1e-6
        return ", ".join(f"{value}: {share / shares.sum():.17g}" for value, share in enumerate(shares))

    def rows(parents: int, count: int = 2) -> str:
        cells = product((0, 1), repeat=parents)
        return "\n".join(f"    {', '.join(map(str, cell))} -> {law(count)}" for cell in cells)

    sem = SEM.parse(
        f"R1 ~ {law()}\nR2 | R1 ~\n{rows(1)}\nR3 | R1, R2 ~\n{rows(2)}\nC | R1, R3 ~\n{rows(2)}\n"
        f"D1 := R1\nD2 := R2\nD3 := R3\nO | D1, D2, D3 ~\n{rows(3, 3)}\n"
    )
    table = sem.law("O", inputs=["D1", "D2", "D3"]).log
    for axis, point in enumerate(("D1", "D2", "D3")):
        bound = float(np.abs(np.diff(table, axis=axis)).max())  # what the mechanism promises this data point
        for seen in ({"C": 0}, {"C": 1}, {"C": 1, "R2": 0}):
            laws = [sem.do({point: value}).given(seen).probability("O").log for value in (0, 1)]
            assert float(np.abs(laws[0] - laws[1]).max()) <= bound + 1e-9
