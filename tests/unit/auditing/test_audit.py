"""audit(): what it takes, what it answers, and that it can be repeated and resumed."""

from __future__ import annotations

import hashlib
import json
import math

import numpy as np
import polars as pl
import pytest

from escudo.auditing import Uncounted, _audit, _views, adapt, audit
from escudo.auditing._outputs import Encoder
from escudo.errors import InputError
from escudo.mechanisms import laplace
from escudo.privacy import Guarantee
from escudo.table import Schema

CLAIM = Guarantee(epsilon=1.0)


class Geometric:
    """Integer noise of scale ``scale`` on a number: ε = 1/scale."""

    def __init__(self, scale):
        self.stop = 1 - math.exp(-1 / scale)

    def __call__(self, dataset, rng):
        return int(self.batch(dataset, 1, rng)[0])

    def batch(self, dataset, count, rng):
        return dataset + rng.geometric(self.stop, count) - rng.geometric(self.stop, count)


def quiet(mechanism, **options):
    given = {"claim": CLAIM, "pairs": [(0, 1)], "seed": 3, "max_runs": 2000, "progress": False} | options
    return audit(mechanism, **given)


def test_outputs_of_many_lengths_are_taken_also_where_a_block_holds_short_ones_only():
    def ragged(dataset, rng):
        return [float(dataset + rng.integers(2))] * (1 + 2 * (rng.random() < 0.02))

    assert quiet(ragged, max_runs=3000, stop_early=False).runs == 3000


class TestPassedOn:
    def test_what_a_mechanism_notes_stands_in_the_audit(self):
        class Noted(Geometric):
            notes = ("It was asked often.",)

        assert "It was asked often." in quiet(Noted(1.0), max_runs=200).notes

    def test_notes_that_are_no_list_are_left_alone(self):
        class Noted(Geometric):
            notes = "text"

        assert not {"t", "text"} & set(quiet(Noted(1.0), max_runs=200).notes)

    def test_the_witness_of_a_dict_names_its_key(self):
        def counts(rows, rng):
            return {"women": float(rng.integers(3)), "men": float(rows + rng.integers(3))}

        assert "men" in quiet(counts, pairs=[(0, 3)], max_runs=800, stop_early=False).witness.y["event"]


class TestFindings:
    def test_too_little_noise_is_found_and_the_audit_stops_early(self):
        found = quiet(Geometric(0.4))
        assert found.violated
        assert found.stopped == "violated"
        assert found.runs < 2000
        assert 1 <= found.epsilon_lower < 2.5
        assert found.verdict.startswith("VIOLATED: the claim ε ≤ 1.00 is rejected; ε ≥ 1.")

    def test_enough_noise_is_not_accused_and_the_power_is_stated(self):
        found = quiet(Geometric(1.0), max_runs=5000)
        assert not found.violated
        assert 0.5 < found.epsilon_lower <= 1
        assert "No violation found; ε ≥ 0." in found.verdict
        assert "would have been seen with probability 0.9" in found.verdict or "probability 1.00" in found.verdict
        assert "private" not in found.verdict

    def test_all_runs_go_into_the_bound_when_asked(self):
        found = quiet(Geometric(0.4), stop_early=False, max_runs=4000)
        assert found.runs == 4000
        assert found.epsilon_lower > 1.8
        assert found.stopped == "runs"

    def test_the_effect_is_measured_and_has_the_witness(self):
        found = quiet(Geometric(0.4))
        assert found.effect.known == "measured"
        assert found.effect.epsilon == found.epsilon_lower
        assert found.effect.confidence == 0.95
        first, second = found.witness.probabilities
        assert first > math.e * second
        assert {found.witness.x1["data"], found.witness.x2["data"]} == {"0", "1"}

    def test_clopper_pearson_stands_beside_it(self):
        found = quiet(Geometric(0.4), stop_early=False, max_runs=4000)
        assert 1 < found.clopper_pearson < 2.5

    def test_the_history_never_falls_and_ends_at_the_bound(self):
        found = quiet(Geometric(0.5), stop_early=False)
        assert (np.diff(found.history.epsilon_lower) >= 0).all()
        assert (np.diff(found.history.runs) > 0).all()
        assert found.history.epsilon_lower[-1] == found.epsilon_lower

    def test_the_outputs_of_both_datasets_are_counted(self):
        found = quiet(Geometric(1.0))
        assert found.outputs.first.sum() + found.outputs.second.sum() == found.runs

    def test_an_impossible_output_gives_a_large_bound(self):
        leak = adapt(lambda dataset, rng: dataset * (rng.random() < 0.1))
        found = quiet(leak, stop_early=False, max_runs=5000)
        assert found.epsilon_lower > 3

    def test_the_second_pair_is_found_among_harmless_ones(self):
        pairs = [(0, 0), (0, 5, "the bad one"), (1, 1), (2, 2)]
        found = quiet(Geometric(2.0), pairs=pairs, max_runs=3000)
        assert found.violated
        assert "the bad one" in found.notes[0]

    def test_everything_goes_into_json(self):
        document = json.dumps(quiet(Geometric(0.4)).to_json(), allow_nan=False)
        assert "VIOLATED" in document

    def test_a_card_is_shown_in_notebooks(self):
        assert "Audit of" in quiet(Geometric(0.4))._repr_html_()


class TestClaims:
    @pytest.mark.parametrize(
        ("claim", "words"),
        [
            (Guarantee(mu=0.3), "μ ≥ 0."),
            (Guarantee(rho=0.05), "ρ ≥ 0."),
            (Guarantee(epsilon=0.3, delta=0.01), "at δ = 0.01"),
            (Guarantee(curve=((0.2, 0.05), (0.5, 0.001))), "the claimed privacy curve"),
        ],
        ids=["GDP", "zCDP", "approximate", "curve"],
    )
    def test_a_false_claim_in_any_notion_is_rejected(self, claim, words):
        def shifted(dataset, rng):
            return dataset + rng.normal()

        found = quiet(shifted, claim=claim, last_bits=False)
        assert found.violated
        assert words in found.verdict

    def test_a_lower_bound_comes_in_the_notion_of_the_claim(self):
        normal = adapt(lambda dataset, rng: dataset + rng.normal())
        found = quiet(normal, claim=Guarantee(mu=1.2), max_runs=2000, last_bits=False)
        assert not found.violated
        assert 0.5 < found.lower <= 1


class TestOutputs:
    @pytest.mark.parametrize(
        ("mechanism", "event"),
        [
            (lambda d, rng: "yes" if rng.random() < 0.2 + 0.6 * d else "no", "'"),
            (lambda d, rng: None if d and rng.random() < 0.3 else 1.5, "None"),
            (lambda d, rng: [True] * (1 + d * (rng.random() < 0.5)), "["),
            (lambda d, rng: {"a": 1} if d or rng.random() < 0.5 else {"b": 2}, "{"),
            (lambda d, rng: {1, 2} if d or rng.random() < 0.5 else {2, 3}, "("),
        ],
        ids=["category", "none", "list", "dictionary", "set"],
    )
    def test_outputs_of_any_kind_can_be_audited(self, mechanism, event):
        found = quiet(mechanism, claim=Guarantee(epsilon=0.3))
        assert found.violated
        assert found.outputs.kind == "category"

    def test_an_error_is_an_output(self):
        def fails(dataset, rng):
            if dataset and rng.random() < 0.5:
                raise ZeroDivisionError("by nothing")
            return 0

        found = quiet(fails)
        assert found.violated
        assert "error: ZeroDivisionError, 'by nothing'" in found.outputs.labels

    def test_a_mechanism_that_always_fails_is_pointed_out(self):
        found = quiet(lambda dataset, rng: 1 / 0, max_runs=100)
        assert any(note.startswith("Every run ended with an error (error: ZeroDivisionError)") for note in found.notes)
        assert found.witness.y["event"] == "output is error: ZeroDivisionError"
        assert found.power is None  # nothing can be seen in outputs that are all the same

    def test_a_table_can_be_an_output(self):
        def sample(dataset, rng):
            return pl.DataFrame({"x": rng.normal(size=5) + 3 * dataset, "y": ["a"] * 5})

        assert quiet(sample, max_runs=600).violated

    def test_features_choose_what_is_looked_at(self):
        found = quiet(
            lambda d, rng: {"noise": rng.random(300), "count": d + rng.integers(2)}, features=lambda o: o["count"]
        )
        assert found.violated

    def test_long_outputs_are_summarised_and_that_is_said(self):
        found = quiet(lambda d, rng: rng.normal(size=400) + d, claim=Guarantee(epsilon=0.1), max_runs=300)
        assert any("summarised" in note for note in found.notes)

    def test_vectors_are_seen_as_a_whole(self):
        class Sum:
            def __call__(self, dataset, rng):
                return self.batch(dataset, 1, rng)[0]

            def batch(self, dataset, count, rng):  # each entry is weak, together they are not
                return np.round(rng.normal(0.25 * dataset, size=(count, 12)), 3)

        found = quiet(Sum(), claim=Guarantee(epsilon=1.0), max_runs=20_000)
        assert found.violated

    def test_shared_noise_is_seen_in_differences(self):
        def shared(dataset, rng):
            noise = rng.laplace(scale=20)
            return [noise, noise + dataset]

        assert quiet(shared, claim=Guarantee(epsilon=1.0), max_runs=600).epsilon_lower > 0.9

    def test_noise_in_floating_point_is_seen_in_the_last_bits(self):
        def naive(dataset, rng):
            return dataset + rng.laplace(scale=4.0)

        seen = quiet(naive, claim=Guarantee(epsilon=0.3), max_runs=4000)
        assert seen.violated
        assert "last bit" in str(seen.witness) or "learnt" in str(seen.witness)
        assert not quiet(naive, claim=Guarantee(epsilon=0.3), max_runs=4000, last_bits=False).violated

    def test_outputs_that_never_come_twice_are_shown_by_their_kind(self):
        def naive(dataset, rng):
            return [dataset + rng.laplace(), rng.laplace(scale=3.0)]

        found = quiet(naive, claim=Guarantee(epsilon=0.5), pairs=[(1, 2)], seed=4, max_runs=8000)
        assert "last bit" in str(found.witness)
        assert found.outputs.kind == "category"
        assert all("last bit" in label for label in found.outputs.labels)
        assert int(found.outputs.first.sum() + found.outputs.second.sum()) == found.runs


class TestRunning:
    def test_a_seed_repeats_an_audit(self):
        first, second = (quiet(Geometric(0.7), max_runs=600).to_json() for _ in range(2))
        first.pop("seconds"), second.pop("seconds")
        assert first == second

    def test_a_seed_repeats_an_audit_of_single_calls_however_long_they_take(self, monkeypatch):
        def noisy(dataset, rng):
            return dataset + int(rng.integers(3)) + int(rng.geometric(0.6))

        how = {"max_runs": 1500, "stop_early": False, "pairs": [(0, 1), (5, 3), (1, 1), (2, 3)]}
        seen = []
        for slow in (_audit._SLOW_BLOCK, 1e-9, 2e-3):  # as it is; blocks of a few calls; blocks of many
            monkeypatch.setattr(_audit, "_SLOW_BLOCK", slow)
            seen.append(quiet(noisy, **how).to_json())
            assert seen[-1].pop("seconds") >= 0
        assert seen[0] == seen[1] == seen[2]

    def test_when_a_claim_is_refuted_does_not_depend_on_how_long_calls_take(self, monkeypatch):
        def noisy(dataset, rng):
            return round(dataset + rng.laplace(scale=0.5), 3)

        first = [quiet(noisy, seed=seed).to_json() for seed in range(3)]
        monkeypatch.setattr(_audit, "_SLOW_BLOCK", 1e-9)
        second = [quiet(noisy, seed=seed).to_json() for seed in range(3)]
        for one in (*first, *second):
            assert one.pop("seconds") >= 0
            assert one["violated"]
        assert first == second

    def test_without_a_seed_one_is_drawn_and_recorded(self):
        found = quiet(Geometric(0.4), seed=None)
        again = quiet(Geometric(0.4), seed=found.seed)
        assert (found.runs, found.epsilon_lower) == (again.runs, again.epsilon_lower)

    def test_progress_tells_runs_bound_and_what_is_left(self):
        seen = []
        quiet(Geometric(0.45), on_progress=lambda *told: seen.append(told))
        assert [told[0] for told in seen] == sorted(told[0] for told in seen)
        assert seen[-1][1] >= 1
        assert any(told[2] is not None and told[2] > 0 for told in seen)

    def test_time_can_be_limited(self):
        found = quiet(Geometric(1.0), max_runs=10**9, max_seconds=0.2)
        assert found.stopped == "time"
        assert found.runs < 10**9

    def test_answers_that_do_not_count_are_left_out(self):
        class Cached:
            calls = 0

            def __call__(self, dataset, rng):
                self.calls += 1
                if self.calls % 2:
                    raise Uncounted
                return int(dataset + rng.geometric(0.5))

        found = quiet(Cached(), max_runs=200, claim=Guarantee(epsilon=3.0))
        assert found.runs == 100  # calls that do not count use up max_runs too
        assert "did not count" in " ".join(found.notes)

    def test_pairs_come_from_a_schema(self):
        schema = Schema.from_dict({"age": {"type": "numeric", "lower": 0, "upper": 100}})

        def oldest(frame, rng):  # forgets that missing ages drop out
            return laplace(len(frame.drop_nans()), sensitivity=1, epsilon=2.0, seed=rng).value

        found = audit(oldest, claim=Guarantee(epsilon=0.5), schema=schema, seed=1, max_runs=3000, progress=False)
        assert any("missing" in label for label in found.pairs)
        assert found.violated

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"pairs": None}, "exactly one of the two"),
            ({"pairs": []}, "pairs is empty"),
            ({"pairs": [(1,)]}, "number 1 is not"),
            ({"confidence": 1.0}, "confidence"),
            ({"max_runs": 0}, "max_runs"),
            ({"max_seconds": -1}, "max_seconds"),
            ({"seed": -1}, "seed"),
            ({"target": "http://127.0.0.1:9"}, "not both"),
        ],
        ids=lambda value: value if isinstance(value, str) else "-".join(value),
    )
    def test_bad_arguments_are_refused(self, options, words):
        with pytest.raises(InputError, match=words):
            quiet(Geometric(1.0), **options)

    def test_a_mechanism_must_be_callable(self):
        with pytest.raises(InputError, match="callable"):
            quiet(17)


class TestLog:
    def test_an_audit_goes_on_where_a_crash_left_it(self, tmp_path):
        whole = quiet(Geometric(0.9), max_runs=700, log=tmp_path / "whole.jsonl")
        path = tmp_path / "cut.jsonl"
        text = (tmp_path / "whole.jsonl").read_bytes()
        path.write_bytes(text[: int(len(text) * 0.6)])
        resumed = quiet(Geometric(0.9), max_runs=700, log=path, seed=99)
        assert resumed.seed == whole.seed
        assert (resumed.runs, resumed.epsilon_lower) == (whole.runs, whole.epsilon_lower)
        assert path.read_bytes() == text

    def test_single_calls_go_on_as_if_nothing_had_happened(self, tmp_path, monkeypatch):
        def noisy(dataset, rng):
            return dataset + int(rng.integers(3)) + int(rng.geometric(0.6))

        how = {"max_runs": 900, "stop_early": False, "pairs": [(0, 1), (5, 3), (1, 1)]}
        whole = quiet(noisy, log=tmp_path / "whole.jsonl", **how).to_json()
        whole.pop("seconds")
        text = (tmp_path / "whole.jsonl").read_bytes()
        monkeypatch.setattr(_audit, "_SLOW_BLOCK", 1e-9)  # and calls take longer now
        for part in (0.2, 0.55, 0.9):
            path = tmp_path / f"cut at {part}.jsonl"
            path.write_bytes(text[: int(len(text) * part)])
            resumed = quiet(noisy, log=path, **how).to_json()
            resumed.pop("seconds")
            assert resumed == whole, part

    def test_a_finished_log_answers_without_running_anything(self, tmp_path):
        path = tmp_path / "log.jsonl"
        whole = quiet(Geometric(0.9), max_runs=300, log=path)

        def never(dataset, rng):
            raise AssertionError

        again = quiet(never, max_runs=300, log=path)
        assert again.epsilon_lower == whole.epsilon_lower
        assert again.notes == whole.notes

    def test_assignments_are_written_before_the_mechanism_is_called(self, tmp_path):
        path = tmp_path / "log.jsonl"

        class Crash(BaseException):
            pass

        calls = []

        def crashes(dataset, rng):
            calls.append(dataset)
            if len(calls) > 30:
                raise Crash
            return dataset

        with pytest.raises(Crash):
            quiet(crashes, log=path)
        last = json.loads(path.read_text().splitlines()[-1])
        assert "assigned" in last
        # The same assignments are made good after the crash.
        resumed = quiet(lambda d, rng: d, log=path, memoryless=True)
        assert resumed.violated

    def test_uncounted_answers_survive_in_the_log(self, tmp_path):
        calls = []

        def odd(dataset, rng):
            calls.append(dataset)
            if len(calls) % 3 == 0:
                raise Uncounted
            return dataset + int(rng.integers(3))

        path = tmp_path / "log.jsonl"
        first = quiet(odd, max_runs=100, log=path)
        second = quiet(odd, max_runs=100, log=path)
        assert first.epsilon_lower == second.epsilon_lower

    def test_the_log_of_another_experiment_is_refused(self, tmp_path):
        path = tmp_path / "log.jsonl"
        quiet(Geometric(1.0), max_runs=60, log=path)
        with pytest.raises(InputError, match="another experiment: its claim differs"):
            quiet(Geometric(1.0), claim=Guarantee(epsilon=2.0), log=path)

    def test_the_log_of_another_mechanism_is_refused(self, tmp_path):
        path = tmp_path / "log.jsonl"
        quiet(nothing_hidden, max_runs=60, log=path)
        with pytest.raises(InputError, match="another experiment: its mechanism differs"):
            quiet(nothing_hidden_either, max_runs=60, log=path)

    @pytest.mark.parametrize("content", [b"hello\n", b'{"a": 1}\n', b"half a li"], ids=["text", "json", "cut"])
    def test_a_file_that_is_no_log_is_refused_and_kept(self, tmp_path, content):
        path = tmp_path / "notes.txt"
        path.write_bytes(content)
        with pytest.raises(InputError, match="no trial log"):
            quiet(Geometric(1.0), log=path)
        assert path.read_bytes() == content

    def test_a_folder_that_is_not_there_is_an_error_in_words(self, tmp_path):
        with pytest.raises(InputError, match="cannot be used"):
            quiet(Geometric(1.0), log=tmp_path / "no" / "log.jsonl")


def nothing_hidden(dataset, rng):
    return dataset


def nothing_hidden_either(dataset, rng):
    return dataset


class TestSeams:
    def test_outputs_and_witness_name_the_same_dataset_first(self):
        def louder(rows, rng):
            return float(rng.laplace(rows[0], 0.3))

        for pair in (([0.0], [1.0]), ([1.0], [0.0])):
            found = audit(louder, claim=Guarantee(epsilon=1.0), pairs=[pair], max_runs=2000, seed=3, progress=False)
            middles = (found.outputs.edges[:-1] + found.outputs.edges[1:]) / 2
            means = [(middles * runs).sum() / runs.sum() for runs in (found.outputs.first, found.outputs.second)]
            likelier_is_one = "1" in str(found.witness.x1["data"])
            assert (means[0] > means[1]) == likelier_is_one

    def test_a_batch_that_fails_is_as_many_outputs(self):
        class Refusing:
            def __call__(self, rows, rng):
                return self.batch(rows, 1, rng)[0]

            def batch(self, rows, count, rng):
                if rows[0] is None:
                    raise ValueError("no bounds")
                return rng.normal(size=count)

        found = audit(
            Refusing(), claim=Guarantee(epsilon=1.0), pairs=[([None], [1.0])], max_runs=500, seed=1, progress=False
        )
        assert found.violated

    def test_answers_that_do_not_count_use_up_runs_all_the_same(self):
        calls = []

        def cached(rows, rng):
            calls.append(1)
            if len(calls) > 20:
                raise Uncounted("seen before")
            return float(rng.normal())

        found = audit(cached, claim=Guarantee(epsilon=1.0), pairs=[([0], [1])], max_runs=300, seed=1, progress=False)
        assert len(calls) == 300
        assert found.runs == 20


class TestBlindSpots:
    def test_what_would_have_been_seen_is_not_said_of_texts_that_never_repeat(self):
        def digest(dataset, rng):
            return hashlib.sha256(rng.bytes(8)).hexdigest()

        found = quiet(digest, max_runs=300)
        assert found.power is None
        assert any("texts that came only once, and nothing orders them" in note for note in found.notes)
        assert quiet(lambda d, rng: f"{rng.integers(9)} cases", max_runs=300).power is not None

    def test_the_length_of_a_text_is_looked_at(self):
        def longer(dataset, rng):
            return "".join(rng.choice(list("abcdefgh"), 8 + 4 * (rng.random() < 0.1 + 0.8 * dataset)))

        found = quiet(longer)
        assert found.violated
        assert "length of the text" in found.witness.y["event"]

    @pytest.mark.parametrize("seed", [1, 2])
    def test_numbers_in_texts_json_and_errors_take_as_many_runs_as_bare_ones(self, seed):
        def bare(dataset, rng):
            return round(dataset + rng.laplace(scale=0.4), 3)

        def failing(dataset, rng):
            raise ValueError(f"the sum {bare(dataset, rng)} is too large")

        forms = [
            bare,
            lambda d, rng: f"about {bare(d, rng)} mg",
            lambda d, rng: json.dumps({"sum": bare(d, rng)}),
            failing,
        ]
        runs = [quiet(form, seed=seed, last_bits=False).runs for form in forms]
        assert max(runs[1:]) <= 1.5 * runs[0] < 600

    def test_the_numbers_of_errors_are_no_answers(self):
        def mixed(dataset, rng):  # answers say nothing; every other call fails, and its text tells
            if rng.random() < 0.5:
                return round(100 * rng.random(), 3)
            raise ValueError(f"{round(dataset * 3 + rng.laplace(scale=1.0) + 50, 3)} is too large")

        found = quiet(mixed, last_bits=False, max_runs=4000)
        assert found.violated
        assert "of error: ValueError" in found.witness.y["event"]

    @pytest.mark.parametrize("seed", [1, 2])
    def test_noise_whose_scale_depends_on_the_data_is_seen_in_both_tails(self, seed):
        def scaled(dataset, rng):  # at ε = 1, δ(1) = 0.06
            return round(rng.normal(scale=1.0 + 0.9 * dataset), 3)

        claim = Guarantee(epsilon=0.5, delta=0.01)
        found = quiet(scaled, claim=claim, seed=seed, max_runs=3000, last_bits=False)
        assert found.violated
        event = found.witness.y["event"]  # in the one or the other words
        assert "distance of the output from" in event or " or output ≥ " in event

    def test_wide_outputs_are_looked_at_in_bounded_time(self, monkeypatch):
        class Wide:
            def __call__(self, dataset, rng):
                return self.batch(dataset, 1, rng)[0]

            def batch(self, dataset, count, rng):
                numbers = rng.normal(size=(count, 1000))
                numbers[:, 700:] += 0.5 * dataset  # what is far out counts as well
                return np.round(numbers, 3)

        looked, whole = [], _views._best_columns
        monkeypatch.setattr(
            _views, "_best_columns", lambda columns, *rest: looked.append(len(columns)) or whole(columns, *rest)
        )
        assert quiet(Wide(), max_runs=200).violated
        assert max(looked) <= 48

    def test_long_lists_are_summarised_as_arrays_are(self):
        numbers = np.arange(1000.0)
        wide, again = Encoder(), Encoder()
        rows = wide.encode([numbers.tolist(), (2 * numbers).tolist()]).values
        assert np.array_equal(rows, again.encode(np.stack([numbers, 2 * numbers])).values)
        assert wide.summarised

    def test_a_mechanism_that_always_fails_in_the_same_way_is_not_run_for_ever(self):
        found = quiet(lambda dataset, rng: 1 / 0, max_runs=100_000)
        assert (found.stopped, found.nothing_audited) == ("failed", True)
        assert found.runs < 200

    @pytest.mark.parametrize(
        "claim", [CLAIM, Guarantee(epsilon=0.8, delta=0.01), Guarantee(mu=0.7), Guarantee(rho=0.2)]
    )
    def test_a_claim_is_never_rejected_with_a_bound_below_it(self, claim):
        for seed in range(6):
            found = quiet(lambda d, rng: round(d + rng.normal(scale=0.6), 3), claim=claim, seed=seed, max_runs=4000)
            assert found.violated
            assert (found.epsilon_lower if claim.epsilon else found.lower) >= (claim.epsilon or claim.mu or claim.rho)

    def test_several_workers_draw_what_one_would(self):
        def noisy(dataset, rng):
            return round(dataset + rng.laplace(scale=0.5), 3)

        one, three = (quiet(noisy, workers=workers).to_json() for workers in (1, 3))
        one.pop("seconds"), three.pop("seconds")
        assert one == three

    def test_coroutines_are_awaited_by_every_worker(self):
        async def later(dataset, rng):
            return int(dataset + rng.geometric(0.9))

        assert quiet(later, workers=3, max_runs=300).violated

    def test_one_bad_pair_among_many_is_found_in_far_fewer_runs_than_each_of_them_needs(self):
        class Shifted:
            def __call__(self, dataset, rng):
                return self.batch(dataset, 1, rng)[0]

            def batch(self, dataset, count, rng):
                return np.round(dataset + rng.laplace(size=count), 3)

        pairs = [(0, 4, "the bad one") if i == 37 else (i % 5, i % 5 + 1) for i in range(60)]
        found = quiet(Shifted(), pairs=pairs, max_runs=12_000)
        assert found.violated
        assert found.runs < 4000
        assert "the bad one" in " ".join(found.notes)
