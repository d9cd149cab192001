from __future__ import annotations

import math
import time

import numpy as np
import pytest

from escudo.causal import SEM
from escudo.causal._inference import Factor
from escudo.errors import InputError, ZeroProbabilityError

LN2 = math.log(2)

SURVEY = """
# survey.sem: Ada's status affects Byron's
R1 ~ neg: 0.9, pos: 0.1
R3 ~ neg: 0.9, pos: 0.1
R2 := R1
D1 := R1
D2 := R2
D3 := R3
O  := truncated_geometric(count(D1, D2, D3 = pos), epsilon = ln(2))
"""

NETWORK = """
B ~ false: 0.5, true: 0.5      # Bob joins
F ~ false: 0.5, true: 0.5      # Alice and Charlie are friends anyway
EAB := B
EBC := B
EAC := F or (EAB and EBC)
DAB := EAB
DBC := EBC
DAC := EAC
O := truncated_geometric(count(DAB, DBC, DAC = true), epsilon = ln(2))
"""

RESPONSES = """
R[1..3] ~ no: 0.5, yes: 0.5
D[i in 1..3] := randomised_response(R[i], epsilon = ln(2))
O := count(D[1..3] = yes)
"""

SEQUENCE = """
X ~ 0: 0.5, 1: 0.5
Y := randomised_response(X, epsilon = ln(2))
Z := randomised_response(X, epsilon = ln(2)) if Y = 0 else randomised_response(X, epsilon = ln(3))
"""


def log_ratio(sem: SEM, of: tuple[str, ...], on: tuple[str, ...], **how: object) -> float:
    """The largest log ratio of the kernel between two settings, over all backgrounds: the effect, by definition."""
    law = sem.law(on, inputs=of, background=True, **how)
    sizes = [math.prod(len(sem.range(name)) for name in group) for group in (law.inputs, law.background, law.of)]
    log = law.log.reshape(sizes)
    worst = 0.0
    for one in log:
        for two in log:
            possible = one > -np.inf
            worst = max(worst, float(np.max(np.where(possible, one - np.where(possible, two, 0.0), -np.inf))))
    return worst


class TestThePapersModels:
    def test_a_noisy_count_gives_the_laws_of_the_answer_key(self):
        sem = SEM.parse(SURVEY)
        nobody = sem.probability("O", do={"D1": "neg", "D2": "neg", "D3": "neg"})
        assert list(nobody.values()) == pytest.approx([2 / 3, 1 / 6, 1 / 12, 1 / 12])

    @pytest.mark.parametrize(
        ("of", "steps"),
        [("R1", 2), ("R2", 1), ("R3", 1), ("D1", 1), ("R1,R2", 2), ("R1,R2,R3", 3), ("D1,D2", 2), ("D1,D2,D3", 3)],
    )
    def test_effects_in_the_noisy_count_are_whole_multiples_of_epsilon(self, of, steps):
        assert log_ratio(SEM.parse(SURVEY), tuple(of.split(",")), ("O",)) == pytest.approx(steps * LN2)

    @pytest.mark.parametrize(("children", "steps"), [(["D1"], 1), (["R2"], 1), (["D1", "R2"], 2), ([], 0)])
    def test_effects_along_some_arrows_only(self, children, steps):
        cut = [("R1", child) for child in children]
        assert log_ratio(SEM.parse(SURVEY), ("R1",), ("O",), cut=cut) == pytest.approx(steps * LN2, abs=1e-12)

    def test_one_status_decides_the_other(self):
        assert log_ratio(SEM.parse(SURVEY), ("R1",), ("R2",)) == math.inf
        assert log_ratio(SEM.parse(SURVEY), ("R2",), ("R1",)) == 0.0

    @pytest.mark.parametrize(
        ("of", "steps"), [("DAB", 1), ("DAB,DBC", 2), ("B", 3), ("EAB", 2), ("EAC", 1), ("EAB,EBC", 3), ("F", 1)]
    )
    def test_effects_in_the_social_network(self, of, steps):
        assert log_ratio(SEM.parse(NETWORK), tuple(of.split(",")), ("O",)) == pytest.approx(steps * LN2)

    def test_randomised_response_bounds_the_status_but_not_the_data_point(self):
        sem = SEM.parse(RESPONSES)
        assert log_ratio(sem, ("R1",), ("D1",)) == pytest.approx(LN2)
        assert log_ratio(sem, ("R1",), ("O",)) == pytest.approx(LN2)
        assert log_ratio(sem, ("D1",), ("O",)) == math.inf

    def test_a_sequence_of_two_answers_adds_up(self):
        sem = SEM.parse(SEQUENCE)
        assert log_ratio(sem, ("X",), ("Y",)) == pytest.approx(LN2)
        assert log_ratio(sem, ("X",), ("Z",)) < math.log(6)
        assert log_ratio(sem, ("X",), ("Y", "Z")) == pytest.approx(math.log(6))

    def test_intervening_on_byron_tells_nothing_about_ada_and_observing_him_does(self):
        sem = SEM.parse(SURVEY)
        assert sem.probability({"R1": "pos"}, do={"D2": "pos"}) == pytest.approx(0.1)
        assert sem.probability({"R1": "pos"}, given={"D2": "pos"}) == pytest.approx(1.0)


class TestAsking:
    @pytest.fixture
    def sem(self):
        return SEM.parse(SURVEY)

    def test_one_variable_several_variables_and_an_assignment(self, sem):
        single = sem.probability("R1")
        assert dict(single) == {"neg": 0.9, "pos": 0.1}
        assert single == {"neg": 0.9, "pos": 0.1}
        assert (len(single), single.names, single.array.tolist()) == (2, ("R1",), [0.9, 0.1])
        several = sem.probability(["R1", "R2"])
        assert list(several) == [("neg", "neg"), ("neg", "pos"), ("pos", "neg"), ("pos", "pos")]
        assert several["pos", "pos"] == pytest.approx(0.1)
        assert sem.probability(["R1"])["pos",] == 0.1
        assert sem.probability({"R1": "pos", "R3": "pos"}) == pytest.approx(0.01)
        assert sem.probability({}) == 1.0

    def test_values_that_a_variable_never_takes_are_no_keys(self, sem):
        law = sem.probability(["R1", "R2"])
        assert "pos" not in law
        assert ("pos", "other") not in law
        with pytest.raises(KeyError):
            sem.probability("R1")["other"]

    def test_asking_about_what_is_set_or_seen(self, sem):
        assert sem.probability("R1", do={"R1": "pos"}) == {"neg": 0.0, "pos": 1.0}
        assert sem.probability(["R1", "R2"], given={"R1": "pos"})["pos", "pos"] == 1.0
        assert sem.probability({"R1": "neg"}, given={"R1": "pos"}) == 0.0
        assert sem.probability({"R1": "pos"}, do={"R1": "pos"}, given={"R1": "pos"}) == 1.0

    def test_do_takes_keywords_or_a_mapping_and_composes(self, sem):
        assert sem.do(D1="pos") == sem.do({"D1": "pos"})
        assert sem.do(D1="pos").do(D2="neg") == sem.do(D1="pos", D2="neg")
        assert sem.do(D1="pos").do(D1="neg") == sem.do(D1="neg")
        assert sem.do(R1="pos").exogenous == ("R3",)
        assert sem.do(R1="pos").graph.parents("R1") == ()

    def test_given_is_a_view_that_takes_more_evidence(self, sem):
        view = sem.given(D1="pos")
        assert view.probability({"R2": "pos"}) == 1.0
        assert view.given(R3="pos").probability("D3")["pos"] == 1.0
        with pytest.raises(InputError, match="already observed as 'pos'"):
            view.given(D1="neg")
        with pytest.raises(InputError, match="Intervene first"):
            view.do(D2="pos")

    def test_evidence_of_probability_zero_is_refused_with_a_remedy_and_do_is_not(self, sem):
        with pytest.raises(ZeroProbabilityError, match=r"evidence on R1, R2 has probability zero.*do\("):
            sem.given(R1="pos", R2="neg")
        with pytest.raises(ZeroProbabilityError):
            sem.probability("O", given={"R1": "pos", "R2": "neg"})
        with pytest.raises(ZeroProbabilityError):
            sem.probability({"O": 1}, given={"R1": "pos", "R2": "neg"})
        assert sum(sem.probability("O", do={"R1": "pos", "R2": "neg"}).values()) == pytest.approx(1)

    def test_evidence_far_below_the_smallest_float_still_counts(self):
        sem = SEM.parse(
            "A ~ a: 0.5, b: 0.5\nN := 0 if A = a else 1\n"
            "X := truncated_geometric(N, epsilon = 1000, lower = 0, upper = 5)\n"
        )
        assert sem.probability({"X": 5}) == 0.0  # e⁻⁴⁰⁰⁰ is no float, but it is not impossible
        assert sem.probability({"A": "b"}, given={"X": 5}) == pytest.approx(1.0)
        assert sem.probability("X", do={"A": "a"}).log[5] == pytest.approx(-5000)

    def test_another_population_for_one_question(self, sem):
        assert sem.probability({"O": 3}, population={"R1": {"pos": 1.0}, "R3": {"pos": 1.0}}) == pytest.approx(2 / 3)
        joint = np.array([[0.5, 0.0], [0.0, 0.5]])
        assert sem.probability({"R1": "pos", "R3": "neg"}, population=joint) == 0.0
        factors = [Factor(("R3",), [0.0, 1.0]), Factor(("R1",), [0.25, 0.75])]
        assert sem.with_population(factors).probability({"R1": "pos", "R3": "pos"}) == 0.75

    def test_a_population_of_some_variables_leaves_the_others_their_marginal(self):
        sem = SEM.parse("A, B ~ (0, 0): 0.5, (1, 1): 0.5").with_population({"A": {0: 0.1, 1: 0.9}})
        assert sem.probability(["A", "B"]).array == pytest.approx(np.array([[0.05, 0.05], [0.45, 0.45]]))

    @pytest.mark.parametrize("population", [{"R1": {"neg": 0.5, "pos": 0.6}}, [0.5, 0.5], {"O": {0: 1.0}}, []])
    def test_a_population_that_does_not_fit_is_refused(self, sem, population):
        with pytest.raises(InputError, match="population"):
            sem.with_population(population)

    def test_a_population_naming_a_variable_twice_is_refused(self, sem):
        with pytest.raises(InputError, match="names a variable twice"):
            sem.with_population({"R1": {"pos": 1.0}, ("R1", "R3"): {("pos", "pos"): 1.0}})

    @pytest.mark.parametrize(
        ("question", "words"),
        [
            (lambda sem: sem.probability("Q"), "no variable 'Q'"),
            (lambda sem: sem.probability("R11"), "Did you mean 'R1'"),
            (lambda sem: sem.probability(["R1", "R1"]), "named twice"),
            (lambda sem: sem.probability({"R1": "poz"}), "'R1' never takes the value 'poz'.*Did you mean 'pos'"),
            (lambda sem: sem.do(R1=["pos"]), "never takes the value"),
            (lambda sem: sem.range("Q"), "no variable 'Q'"),
            (lambda sem: sem.equation("R1"), "'R1' is exogenous"),
            (lambda sem: sem.law("O", inputs=["D1"], cut=[("D1", "R1")]), "not an arrow from an input"),
            (lambda sem: sem.law("O", inputs=["D1"], cut=[("D2", "O")]), "not an arrow from an input"),
            (lambda sem: sem.sample(0, seed=1), "rows must be"),
        ],
    )
    def test_names_and_values_that_do_not_exist_are_named(self, sem, question, words):
        with pytest.raises(InputError, match=words):
            question(sem)

    def test_a_kernel_keeps_only_the_background_that_matters(self, sem):
        assert sem.law("O", background=True).background == ("R1", "R3")
        assert sem.law("D1", background=True).background == ("R1",)
        assert sem.law("O", inputs=["R1"], background=True).background == ("R3",)
        everywhere = sem.law("O", inputs=["R1"], background=True, cut=[("R1", "D1"), ("R1", "R2")])
        assert everywhere.background == ("R3",)
        assert np.array_equal(everywhere.array, sem.law("O", inputs=["R1"], background=True).array)

    def test_the_graph_has_an_arrow_from_every_parent(self, sem):
        assert set(sem.graph.edges) == {
            *(("R1", "R2"), ("R1", "D1"), ("R2", "D2"), ("R3", "D3")),
            *(("D1", "O"), ("D2", "O"), ("D3", "O")),
        }
        assert set(sem.graph.nodes) == set(sem.variables)

    def test_the_representation_names_the_variables_only(self, sem):
        assert repr(sem) == "SEM(exogenous: R1, R3; endogenous: R2, D1, D2, D3, O)"

    def test_models_with_other_numbers_or_names_differ(self, sem):
        assert sem != SEM.parse(SURVEY.replace("ln(2)", "ln(3)"))
        assert sem != SEM.parse(SURVEY.replace("neg: 0.9, pos: 0.1", "neg: 0.8, pos: 0.2", 1))
        assert sem != SEM.parse(SURVEY.replace("D3 := R3", "D3 := R2"))
        assert sem != SEM.parse("X ~ 0: 1")
        assert SEM.parse("X ~ 0: 0.5, 1: 0.5") != SEM.parse("X ~ false: 0.5, true: 0.5")
        assert sem != "a text"


class TestSampling:
    def test_the_same_seed_gives_the_same_rows_and_frequencies_follow_the_law(self):
        sem = SEM.parse(NETWORK)
        rows = sem.sample(20_000, seed=7)
        again = sem.sample(20_000, seed=np.random.default_rng(7))
        assert list(rows) == list(sem.variables)
        assert all(np.array_equal(rows[name], again[name]) for name in rows)
        assert np.array_equal(rows["EAC"], rows["F"] | (rows["EAB"] & rows["EBC"]))
        for value, weight in sem.probability("O").items():
            error = math.sqrt(weight * (1 - weight) / 20_000)
            assert abs(np.mean(rows["O"] == value) - weight) < 5 * error

    def test_samples_follow_an_intervention(self):
        rows = SEM.parse(SURVEY).sample(1000, seed=1, do={"D1": "pos"})
        assert set(rows["D1"]) == {"pos"}
        assert set(rows["R1"]) == {"neg", "pos"}

    def test_values_of_mixed_kinds_stay_what_they_are(self):
        rows = SEM.parse('A ~ 0: 0.5, 1: 0.5\nX := (A, "t") if A = 0 else "word"').sample(50, seed=3)
        assert set(rows["X"]) == {(0, "t"), "word"}

    def test_outcomes_of_probability_zero_never_come(self):
        rows = SEM.parse("A ~ a: 0, b: 0.5, c: 0, d: 0.5, e: 0").sample(5000, seed=5)
        assert set(rows["A"]) == {"b", "d"}

    def test_a_draw_of_exactly_zero_skips_an_impossible_first_outcome(self):
        class Zeros(np.random.Generator):
            def random(self, size):
                return np.zeros(size)

        rows = SEM.parse("A ~ a: 0, b: 1").sample(3, seed=Zeros(np.random.PCG64(1)))
        assert set(rows["A"]) == {"b"}

    def test_hidden_steps_are_drawn_in_turn(self):
        sem = SEM.parse("D[1..40] ~ no: 0.5, yes: 0.5\nO := count(D[1..40] = yes)")
        rows = sem.sample(200, seed=11)
        assert np.array_equal(rows["O"], sum((rows[f"D{i}"] == "yes").astype(int) for i in range(1, 41)))


class TestScale:
    COUNT = """
    R[1..1000] ~ neg: 0.9, pos: 0.1
    D[i in 1..1000] := R[i]
    O := truncated_geometric(count(D[1..1000] = pos), epsilon = 1)
    """

    def test_a_noisy_count_of_a_thousand_people_is_exact_and_quick(self):
        sem = SEM.parse(self.COUNT)
        assert len(sem.variables) == 2001
        start = time.process_time()
        law = sem.probability("O")
        changed = sem.probability("O", do={"D500": "pos"})
        assert time.process_time() - start < 20.0
        assert sum(law.values()) == pytest.approx(1)
        counts = np.array([math.comb(1000, c) * 0.1**c * 0.9 ** (1000 - c) for c in range(1001)])
        expected = counts @ sem_table(1000, 1.0)
        assert law.array == pytest.approx(expected, abs=1e-12)
        assert np.abs(law.log - changed.log).max() < 1.0

    def test_the_kernel_of_one_data_point_among_a_thousand_has_effect_epsilon(self):
        sem = SEM.parse(self.COUNT)
        start = time.process_time()
        law = sem.law("O", inputs=["D7"], background=False)
        assert time.process_time() - start < 20.0
        assert np.abs(law.log[0] - law.log[1]).max() <= 1.0 + 1e-9

    def test_a_chain_of_two_hundred_variables_is_quick(self):
        sem = SEM.parse("X0 ~ a: 0.9, b: 0.1\nX[i in 1..200] := randomised_response(X[i-1], epsilon = 6)")
        start = time.process_time()
        answer = sem.probability({"X200": "a"}, given={"X0": "a", "X100": "b"})
        assert time.process_time() - start < 20.0
        flip = 1 / (1 + math.exp(6))
        assert answer == pytest.approx((1 - (1 - 2 * flip) ** 100) / 2)

    def test_counts_of_correlated_people_stay_cheap(self):
        sem = SEM.parse(
            "R0 ~ no: 0.5, yes: 0.5\n"
            "R[i in 1..150] := randomised_response(R[i-1], epsilon = 3)\n"
            "O := count(R[1..150] = yes)"
        )
        start = time.process_time()
        law = sem.probability("O", given={"R75": "yes"})
        assert time.process_time() - start < 20.0
        assert sum(law.values()) == pytest.approx(1)
        assert law[0] == 0.0

    def test_an_equation_too_wide_for_a_table_says_so_but_answers_questions(self):
        sem = SEM.parse("D[1..40] ~ no: 0.5, yes: 0.5\nO := max(count(D[1..40] = yes), 3)")
        assert len(sem.equation("O").hidden) > 0
        assert sem.equation("O").deterministic
        with pytest.raises(InputError, match="above the limit"):
            _ = sem.equation("O").table
        assert sem.probability({"O": 3}) == pytest.approx(sum(math.comb(40, c) for c in range(4)) / 2**40)


def sem_table(n: int, epsilon: float) -> np.ndarray:
    """The truncated geometric table, written out from its formula."""
    alpha = math.exp(-epsilon)
    c, o = np.arange(n + 1)[:, None], np.arange(n + 1)[None, :]
    table = (1 - alpha) / (1 + alpha) * np.exp(-epsilon * np.abs(o - c))
    table[:, 0] = np.exp(-epsilon * c[:, 0]) / (1 + alpha)
    table[:, -1] = np.exp(-epsilon * (n - c[:, 0])) / (1 + alpha)
    return table
