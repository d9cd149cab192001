"""Answers that repeat: what may be bet on, what is asked instead, and who must not be accused."""

from __future__ import annotations

import functools
import math
from collections import Counter

import numpy as np
import polars as pl
import pytest

from escudo.auditing import audit, pairs_of
from escudo.auditing._outputs import Encoder
from escudo.auditing._pairs import NewQuestions, Repeats, _Answers, fingerprints, key_of
from escudo.auditing._targets import Reply
from escudo.errors import InputError
from escudo.privacy import Guarantee
from escudo.table import Schema

CLAIM = Guarantee(epsilon=1.0)
PAIR = ([0, 0, 0], [0, 0, 1])


def quiet(mechanism, **options):
    given = {"claim": CLAIM, "pairs": [PAIR], "seed": 3, "max_runs": 2000, "progress": False} | options
    return audit(mechanism, **given)


def kept(scale, seed=0):
    """A private sum that keeps its answers: noise is drawn once for each question."""
    noise = np.random.default_rng(seed)

    @functools.cache
    def answer(rows):
        return round(sum(rows) + noise.laplace(scale=scale), 3)

    return lambda rows, rng: answer(tuple(sorted(rows)))


class TestNoNoise:
    @pytest.mark.parametrize("delta", [0.0, 1e-5, 0.01])
    @pytest.mark.parametrize(
        "mechanism",
        [
            lambda rows, rng: sum(rows),
            lambda rows, rng: {"mean": sum(rows) / len(rows), "size": len(rows)},
            lambda rows, rng: f"there are {sum(rows)} cases",
        ],
        ids=["sum", "mean", "text"],
    )
    def test_it_is_caught_within_100_calls(self, mechanism, delta):
        found = quiet(mechanism, claim=Guarantee(epsilon=1.0, delta=delta), max_runs=100)
        assert found.violated
        assert found.epsilon_lower >= 1

    def test_it_is_caught_in_tables(self):
        frames = [pl.DataFrame({"age": [20.0, 30.0, last], "sex": ["f", "m", "f"]}) for last in (40.0, 90.0)]
        assert quiet(lambda frame, rng: frame["age"].mean(), pairs=[tuple(frames)], max_runs=100).violated

    def test_given_pairs_are_asked_before_any_is_made(self):
        pairs = [(float(i), i + 0.5) for i in range(60)]  # numbers: nothing can be added to them
        found = quiet(lambda number, rng: 3 * number, pairs=pairs, max_runs=100)
        assert found.violated

    def test_two_numbers_cannot_tell_no_noise_from_noise_that_is_kept(self):
        found = quiet(lambda number, rng: number, pairs=[(0, 1)])
        assert found.nothing_audited
        assert found.stopped == "repeats"
        assert found.runs < 1100
        assert "every question always has the same answer" in found.verdict
        assert any("give several pairs" in note for note in found.notes)

    def test_two_numbers_tell_noise_that_is_rare_from_noise_that_is_kept(self):
        def rarely(number, rng):
            return number + (rng.random() < 0.005)

        found = audit(rarely, claim=Guarantee(epsilon=1.0), pairs=[(0, 1)], max_runs=3000, seed=1, progress=False)
        assert found.violated

    def test_a_mechanism_known_to_keep_nothing_is_caught_by_repeats(self):
        found = quiet(lambda number, rng: number, pairs=[(0, 1)], memoryless=True)
        assert found.violated
        assert found.runs < 60


class TestKept:
    def test_noise_that_is_kept_is_not_accused(self):
        accused = [quiet(kept(1.0, seed), seed=seed, max_runs=120, confidence=0.9).violated for seed in range(25)]
        assert sum(accused) <= 7  # of 25 at most 1 in 10 is expected; 8 or more have a chance of 2 in 1,000

    def test_half_the_noise_that_is_kept_is_caught(self):
        assert quiet(kept(0.3)).violated

    def test_what_is_guaranteed_is_said(self):
        notes = " ".join(quiet(kept(1.0), max_runs=80).notes)
        assert "each asked once. What is found holds if noise is drawn anew for every question" in notes

    def test_a_cache_that_begins_later_is_noticed_and_nobody_accused(self):
        class Later:
            def __init__(self, seed):
                self.noise, self.calls, self.known = np.random.default_rng(seed), 0, {}

            def __call__(self, rows, rng):
                self.calls += 1
                key = tuple(rows)
                if self.calls < 60 or key not in self.known:
                    self.known[key] = round(sum(rows) + self.noise.laplace(), 3)
                return self.known[key]

        found = [quiet(Later(seed), seed=seed, max_runs=160) for seed in range(10)]
        assert not any(one.violated for one in found)
        assert all("each asked once" in " ".join(one.notes) for one in found)


class TestFresh:
    def test_an_honest_mechanism_is_asked_the_same_and_told_nothing(self):
        def coin(rows, rng):
            return sum(rows) % 2 if rng.random() < math.e / (1 + math.e) else 1 - sum(rows) % 2

        found = quiet(coin, max_runs=400)
        assert not found.violated
        assert found.epsilon_lower > 0.3
        assert found.notes == ()

    def test_answers_that_are_the_same_for_both_datasets_are_no_reason_to_ask_others(self):
        found = quiet(lambda rows, rng: "ok", max_runs=200)
        assert found.runs == 200
        assert [note[:30] for note in found.notes] == ["Every run had the same output,"]

    def test_long_runs_of_a_common_answer_are_no_cache(self):
        rng, wrong = np.random.default_rng(0), 0
        for _ in range(200):
            answers = _Answers()
            for answer in rng.random(300) < 0.9:
                answers.add(int(answer))
                wrong += answers.surprising
        assert wrong <= 3  # surprising less than once in a thousand, for each beginning of a run

    def test_equal_answers_after_many_different_ones_are(self):
        answers = _Answers()
        for answer in [*range(30), *[99] * 6]:
            answers.add(answer)
        assert answers.surprising


class TestFingerprints:
    def test_an_answer_is_the_same_whatever_else_comes_in_its_block(self):
        encoder = Encoder()
        alone = fingerprints(encoder.encode([[1.0], [2.0]]), encoder.structures)
        among = fingerprints(encoder.encode([[1.0], [3.0, 4.0, 5.0], [2.0]]), encoder.structures)
        assert alone == [among[0], among[2]]
        assert len(set(among)) == 3

    def test_the_time_that_a_service_took_makes_no_other_answer(self):
        encoder = Encoder()
        replies = [Reply(seconds=s, status=200, value=v) for s, v in ((0.1, 5), (0.2, 5), (0.1, 6))]
        first, second, third = fingerprints(encoder.encode(replies), encoder.structures)
        assert first == second != third


class TestQuestions:
    def test_the_order_of_records_makes_no_other_question(self):
        assert key_of([1, 2]) == key_of([2, 1]) != key_of([1, 2, 2])
        assert key_of(3.5) == key_of(3.5) != key_of(4.5)

    @pytest.mark.parametrize(
        "pair",
        [
            ([0], [1]),
            ((0, 5), (0, 5, 7)),
            (np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [9.0, 4.0]])),
            (pl.DataFrame({"a": [1, 2]}), pl.DataFrame({"a": [1]})),
        ],
        ids=["lists", "one more", "arrays", "tables"],
    )
    def test_new_pairs_differ_in_one_record_and_were_never_asked(self, pair):
        new = NewQuestions([(*pair, "")], [key_of(pair[0])], seed=1).take(40)
        assert len(new) == 40
        keys = [key_of(dataset) for both in new for dataset in both]
        assert len(set(keys)) == 80
        for first, second in new:
            assert type(first) is type(pair[0])
            one, other = ([str(r) for r in (x.rows() if isinstance(x, pl.DataFrame) else x)] for x in (first, second))
            apart = Counter(one), Counter(other)
            assert sum((apart[0] - apart[1]).values()) <= 1 >= sum((apart[1] - apart[0]).values())

    @pytest.mark.parametrize("pair", [(0, 1), ("a", "b"), ([0, 0], [1, 1]), ({"a": 1}, {"a": 2})])
    def test_what_has_no_records_or_differs_in_several_gives_no_new_pair(self, pair):
        assert not NewQuestions([(*pair, "")], [key_of(pair[0])], seed=1).left

    @pytest.mark.parametrize("kind", [list, np.array])
    def test_new_pairs_of_one_kind_of_record_are_not_larger_than_they_must(self, kind):
        new = NewQuestions([(kind([0, 0]), kind([0, 1]), "")], (), seed=1).take(300)
        assert len(new) == 300
        assert max(len(first) for first, _ in new) < 1500

    def test_arrays_have_the_properties_of_lists_and_the_order_of_their_rows_makes_no_other_question(self):
        rows = [[1.0, 5.0], [2.0, 4.5], [0.0, 3.0]]
        described = [NewQuestions([], (), seed=1)._described(dataset) for dataset in (rows, np.array(rows))]
        np.testing.assert_array_equal(*(found[:41] for found in described))  # the rest counts kinds
        assert key_of(np.array(rows)) == key_of(np.array(rows[::-1])) != key_of(np.array(rows[:2]))
        assert NewQuestions([], (), seed=1)._described(np.zeros((0, 2)))[0] == 0

    def test_repeats_know_what_was_asked(self):
        repeats = Repeats([([0], [1], "")])
        repeats.note(0, [False, True, False], [5, 6, 5])
        assert repeats.forbid(0)
        assert repeats.again == 1
        repeats.note(0, [False], [7])
        assert repeats.varied
        assert not repeats.forbid(0)


def test_an_audit_by_new_questions_goes_on_from_its_log(tmp_path):
    def seeded(rows, rng):  # noise by the question, as any process would draw it
        return round(sum(rows) + np.random.default_rng([len(rows), sum(rows)]).laplace(scale=0.6), 3)

    whole = quiet(seeded, max_runs=90, stop_early=False, log=tmp_path / "whole.jsonl").to_json()
    text = (tmp_path / "whole.jsonl").read_bytes()
    (tmp_path / "cut.jsonl").write_bytes(text[: int(len(text) * 0.7)])
    resumed = quiet(seeded, max_runs=90, stop_early=False, log=tmp_path / "cut.jsonl").to_json()
    whole.pop("seconds"), resumed.pop("seconds")
    assert resumed == whole


def test_a_log_of_new_questions_that_were_never_asked_is_refused(tmp_path):
    quiet(lambda rows, rng: int(rng.integers(9)), max_runs=60, log=tmp_path / "log")
    lines = (tmp_path / "log").read_bytes().replace(b'"pair": 0', b'"pair": 1')
    (tmp_path / "log").write_bytes(lines)
    with pytest.raises(InputError, match="log is damaged"):
        quiet(lambda rows, rng: 0, max_runs=60, log=tmp_path / "log")


class TestSchemas:
    SCHEMA = Schema.from_dict(
        {"age": {"type": "numeric", "lower": 0, "upper": 100, "integer": True}, "town": ["a", "b", "c"]}
    )

    @pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
    def test_every_pair_differs_in_one_record(self, relation):
        pairs = pairs_of(self.SCHEMA, relation=relation)
        assert len({label for _, _, label in pairs}) == len(pairs)
        for first, second, label in pairs:
            one, other = (Counter(map(str, frame.rows())) for frame in (first, second))
            gone, come = ((one - other).total(), (other - one).total())
            assert (gone, come) == ((1, 1) if relation == "replace_one" else (0, 1)), label

    def test_boundaries_outliers_levels_duplicates_and_missing_values_are_there(self):
        labels = {label for _, _, label in pairs_of(self.SCHEMA)}
        for words in ("lowest to just beyond", "an outlier", "town 'b'", "the odd one joins", "missing age only"):
            assert any(words in label for label in labels), words
        assert "4 and 5 equal records" in {label for _, _, label in pairs_of(self.SCHEMA, relation="add_remove")}

    def test_a_person_with_as_many_rows_as_count_and_with_more(self):
        schema = Schema.from_dict({"ill": ["no", "yes"]}, person_id="who", max_rows_per_person=3)
        pairs = {label: (first, second) for first, second, label in pairs_of(schema, relation="add_remove")}
        first, second = pairs["one person with 7 rows more"]
        assert len(second) == len(first) + 7
        assert set(second["who"]) - set(first["who"]) == {"the one who differs"}
        assert "one person with 3 rows more" in pairs
        rows = [label for _, _, label in pairs_of(schema, relation="add_remove", unit="row")]
        assert not any("one person" in label for label in rows)

    def test_a_bound_on_a_persons_rows_that_is_forgotten_is_found(self):
        schema = Schema.from_dict({"ill": ["no", "yes"]}, person_id="who", max_rows_per_person=2)
        claim = Guarantee(epsilon=1.0, relation="add_remove", unit="person", max_rows_per_person=2)

        def noisy(frame, rng, most):
            rows = frame.group_by("who").head(most) if most else frame
            return round(len(rows) + rng.laplace(scale=2.0), 3)

        found = [
            audit(
                lambda frame, rng, most=most: noisy(frame, rng, most),
                claim=claim, schema=schema, seed=1, max_runs=3000, progress=False,
            )
            for most in (0, 2)
        ]  # fmt: skip
        assert [one.violated for one in found] == [True, False]
        assert "one person with 5 rows more" in " ".join(found[0].notes)
