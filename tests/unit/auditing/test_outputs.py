"""Whatever a mechanism returns, raises or changes: it is read as the value that it is, or refused in words."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import threading
from collections import deque, namedtuple
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest

from escudo.auditing import _targets, adapt, audit, replay
from escudo.auditing._cells import keys_of
from escudo.auditing._outputs import Encoder
from escudo.auditing._targets import Failure, Reply, own_copy, run_one
from escudo.errors import InputError
from escudo.mechanisms import laplace
from escudo.privacy import Guarantee
from escudo.report import audit_page

CLAIM = Guarantee(epsilon=1.0)
RNG = np.random.default_rng(0)


def quiet(mechanism, **options):
    given = {"claim": CLAIM, "pairs": [(0, 1)], "seed": 3, "max_runs": 300, "progress": False} | options
    return audit(mechanism, **given)


def read(output):
    """Return the structure of an output, and its numbers."""
    encoder = Encoder()
    found = encoder.encode([output])
    return encoder.structures[int(found.codes[0])], [float(v) for v in found.values[0] if not math.isnan(v)]


class Plain:
    def __init__(self, value):
        self.value = value


class TestLater:
    """What is given later: coroutines and iterators."""

    def test_a_coroutine_is_awaited_in_one_loop(self):
        loops = set()

        async def count(dataset, rng):
            await asyncio.sleep(0)
            loops.add(asyncio.get_running_loop())
            return dataset + int(rng.integers(2))

        run = adapt(count)
        assert {run_one(run, 5, RNG) for _ in range(20)} == {5, 6}
        assert len(loops) == 1

    def test_an_error_in_a_coroutine_is_an_output(self):
        async def count(dataset, rng):
            raise KeyError("age")

        assert run_one(adapt(count), 5, RNG).label == "error: KeyError"

    def test_a_mechanism_may_be_forgotten_while_another_loop_runs(self):
        async def later(dataset, rng):
            return dataset

        async def forget():
            kept.clear()
            gc.collect()

        kept = [adapt(later)]
        assert kept[0](3, None) == 3
        asyncio.run(forget())  # an error there would be a warning, and fail

    def test_inside_a_running_loop_it_is_said_what_to_do(self):
        async def count(dataset, rng):
            return dataset

        async def notebook():
            return quiet(count)

        with pytest.raises(InputError, match=r"asyncio\.to_thread"):
            asyncio.run(notebook())

    @pytest.mark.parametrize(
        "output",
        [lambda: (k for k in (1, 2)), lambda: map(int, "12"), lambda: zip([1], [2], strict=True), lambda: iter([1, 2])],
        ids=["generator", "map", "zip", "iterator"],
    )
    def test_iterators_are_read_to_their_end(self, output):
        assert np.ravel(run_one(adapt(lambda dataset, rng: output()), 0, RNG)).tolist() == [1, 2]

    def test_items_that_come_later_are_gathered(self):
        async def items(dataset, rng):
            for k in (1, 2):
                yield k + dataset

        assert run_one(adapt(items), 1, RNG) == [2, 3]

    def test_an_error_in_a_generator_is_an_output(self):
        def items(dataset, rng):
            yield 1
            raise KeyError("age")

        assert run_one(adapt(items), 5, RNG).label == "error: KeyError"

    def test_an_endless_iterator_is_refused(self, monkeypatch):
        monkeypatch.setattr(_targets, "_LONGEST", 50)

        def endless(dataset, rng):
            while True:
                yield 1

        async def endless_later(dataset, rng):
            while True:
                yield 1

        for mechanism in (endless, endless_later):
            with pytest.raises(InputError, match="longer than 50 items, or endless"):
                quiet(mechanism)

    def test_a_broken_coroutine_is_caught_by_what_it_returns(self):
        async def leak(dataset, rng):
            return dataset

        found = quiet(leak, memoryless=True)
        assert found.violated
        assert set(found.outputs.labels) == {"0", "1"}


class TestObjects:
    @pytest.mark.parametrize(
        "output",
        [object(), threading.Lock(), lambda: 3, len, json, [object()], Plain(threading.Lock())],
        ids=["object", "lock", "function", "built-in", "module", "in a list", "in an attribute"],
    )
    def test_what_has_no_value_is_refused_in_words(self, output):
        with pytest.raises(InputError, match=r"Return numbers, texts, lists.* or pass features="):
            read(output)

    def test_an_audit_of_objects_says_nothing_about_their_addresses(self):
        with pytest.raises(InputError, match="an address in memory"):
            quiet(lambda dataset, rng: object())

    @pytest.mark.parametrize(
        ("output", "numbers"),
        [
            (Plain(2.5), [2.5]),
            (namedtuple("Point", "x y")(1, 2), [1, 2]),
            (range(3), [0, 1, 2]),
            (deque([1, 2]), [1, 2]),
            ({"a": 4}.values(), [4]),
            (pd.Series([1.5, 2.0]), [1.5, 2.0]),
            (Plain(Plain([1, 2])), [1, 2]),
            ({"a": (k for k in (1, 2))}, [1, 2]),
        ],
        ids=["attributes", "named tuple", "range", "deque", "view", "series", "nested", "inside"],
    )
    def test_objects_are_what_they_hold(self, output, numbers):
        assert read(output)[1] == numbers

    def test_what_holds_itself_is_refused(self):
        loop = []
        loop.append(loop)
        with pytest.raises(InputError, match="holds itself"):
            read(loop)


class TestNumbers:
    @pytest.mark.parametrize(
        ("output", "structure", "numbers"),
        [
            ("17.25", "'#'", [17.25]),
            (" 5 of -3e-07 mg. ", "' # of # mg. '", [5.0, -3e-07]),
            ("x=1.50;y=007", "'x=#0;y=#(ddd)'", [1.5, 7.0]),
            ("3,4.5,6", "'#,#,#'", [3, 4.5, 6]),
            ("2024-01-05", "'#-#(dd)-#(dd)'", [2024, 1, 5]),
            ("a1 and 10.0.0.1", "'a1 and 10.0.0.1'", []),
            ("no. #1", "'no. \uff03#'", [1]),
            ('{"n": [1, 2.5], "ok": null}', "json({'n': [#, #], 'ok': None})", [1, 2.5]),
            ("[not json 5", "'[not json #'", [5]),
            (b"17.5", "b'#'", [17.5]),
            (b'{"n": 3}', "bjson({'n': #})", [3]),
            (b"\xff5", r"b'\xff5'", []),
            (Decimal("0.1"), "#", [0.1]),
            (Decimal("1.50"), "#0", [1.5]),
            (Decimal("NaN"), "#", []),
            (Fraction(1, 3), "#", [1 / 3]),
            (1 + 2j, "complex(#, #)", [1, 2]),
            (np.complex64(1 + 2j), "complex(#, #)", [1, 2]),
            (np.array([1 + 2j]), "[complex(#, #)]", [1, 2]),
            (np.float32(0.5), "#", [0.5]),
            (np.array(2**40), "#", [2.0**40]),
            (2**70 + 5, "(# + #)", [2.0**70, 5]),
            (np.array([2**60 + 1]), "[(# + #)]", [2.0**60, 1]),
            (str(2**70 + 5), "'(# + #)'", [2.0**70, 5 + 2**70 - int(Decimal(repr(2.0**70)))]),
            (-(10**400), "(# + #)", [-math.inf, 400]),
            ("1e400", "'(# + #)'", [math.inf, 400]),
            (Fraction(10**20 + 1, 10**20), "(# + #)", [1.0, 1e-20]),
            ("nothing", "'nothing'", []),
            ("", "''", []),
        ],
        ids=lambda value: None if isinstance(value, list | np.ndarray) else str(value)[:20],
    )
    def test_a_number_is_a_number_however_it_is_given(self, output, structure, numbers):
        found = read(output)
        assert found[0] == structure
        assert found[1] == pytest.approx(numbers, rel=1e-12)

    def test_texts_that_differ_only_in_how_a_number_is_written_are_told_apart(self):
        texts = ["5", "5.0", "5.00", "05", "5e0", "+5", " 5", "#", "5#", "0.00", "00"]
        keys = keys_of(Encoder().encode(texts)).tolist()
        assert keys[0] == keys[1]  # as 5 and 5.0 are one number
        assert len(set(keys)) == len(texts) - 1

    def test_low_digits_of_long_whole_numbers_are_seen(self):
        def long(dataset, rng):
            return 2**80 + dataset

        assert quiet(long, memoryless=True).violated

    def test_a_number_in_a_text_takes_no_more_runs_than_the_number(self):
        def noisy(dataset, rng):  # 2.5 times the claim
            return dataset + rng.laplace(scale=0.4)

        forms = [
            noisy,
            lambda dataset, rng: str(noisy(dataset, rng)),
            lambda dataset, rng: json.dumps({"count": noisy(dataset, rng)}),
            lambda dataset, rng: f"There are {noisy(dataset, rng):.3f} people.".encode(),
        ]
        found = [quiet(form, seed=1, max_runs=400, last_bits=False) for form in forms]
        assert all(one.violated for one in found)
        assert [one.runs for one in found] == [found[0].runs] * 4


class TestErrors:
    def test_the_text_of_an_error_is_looked_at(self):
        def fails(dataset, rng):
            raise ValueError(f"{dataset} records are too few")

        found = quiet(fails, memoryless=True)
        assert found.violated
        assert not found.nothing_audited

    def test_the_kind_is_found_where_every_text_is_another(self):
        def fails(dataset, rng):
            text = "".join(rng.choice(list("abcdefgh"), 8))
            raise (KeyError if rng.random() < 0.1 + 0.8 * dataset else ValueError)(text)

        found = quiet(fails)
        assert found.violated
        assert found.witness.y["event"] in ("output is error: KeyError", "output is error: ValueError")

    def test_addresses_in_its_text_are_left_out(self):
        assert len({Failure(ValueError(f"bad {object()}")).content for _ in range(3)}) == 1

    def test_an_error_without_a_readable_text_is_its_type(self):
        class Odd(Exception):
            def __str__(self):
                raise RuntimeError

        assert read(Failure(Odd())) == ("error: Odd", [])

    def test_the_status_of_a_service_is_apart_from_its_body(self):
        def service(dataset, rng):
            failed = rng.random() < 0.1 + 0.8 * dataset
            body = "".join(rng.choice(list("abcdefgh"), 8)) if failed else float(rng.random())
            return Reply(seconds=float(rng.random()), status=500 if failed else 200, value=body)

        found = quiet(service)
        assert found.violated
        assert found.witness.y["event"] in ("output is status 500", "output is status 200, {'seconds': #, 'value': #}")
        assert "Some runs ended with an error (status 500); an error counts as an output." in found.notes

    def test_features_are_not_asked_of_errors(self):
        def service(dataset, rng):
            return Reply(seconds=0.1, status=200 + 300 * dataset, value={"count": 1} if not dataset else "no")

        assert quiet(service, features=lambda output: output["value"]["count"], memoryless=True).violated


class TestNothing:
    @pytest.mark.parametrize(
        ("mechanism", "why"),
        [
            (lambda dataset, rng: 1 / 0, "all 40 runs ended with an error"),
            (lambda dataset, rng: Reply(seconds=float(rng.random()), status=401, value="key?"), "all 40 runs ended"),
        ],
        ids=["raises", "status 401"],
    )
    def test_if_everything_failed_the_verdict_says_that_nothing_was_audited(self, mechanism, why):
        found = quiet(mechanism, max_runs=40)
        assert found.nothing_audited
        assert found.answers == 0
        assert found.power is None
        assert found.verdict.startswith(f"Nothing was audited: {why}")
        assert found.to_json()["nothing_audited"]
        assert "Nothing was audited" in audit_page(found)
        assert "No broken promise" not in audit_page(found)

    def test_if_some_failed_something_was(self):
        def sometimes(dataset, rng):
            return 1 / int(rng.integers(2))

        found = quiet(sometimes, max_runs=40)
        assert not found.nothing_audited
        assert 0 < found.answers < found.runs == 40


class TestOwnCopies:
    @pytest.mark.parametrize(
        ("dataset", "change"),
        [
            ([1, 2], lambda d: d.append(3)),
            ([[1], [2]], lambda d: d[0].append(3)),
            ({"a": 1}, lambda d: d.clear()),
            ({"a": [1]}, lambda d: d["a"].clear()),
            (([1], 2), lambda d: d[0].clear()),
            (np.arange(3), lambda d: d.fill(9)),
            (np.array([[1], None], dtype=object), lambda d: d[0].append(9)),
            (pl.DataFrame({"a": [1, 2]}), lambda d: d.drop_in_place("a")),
            (pd.DataFrame({"a": [1, 2]}), lambda d: d.insert(0, "b", 0)),
            (Plain([1]), lambda d: d.value.clear()),
        ],
        ids=["list", "nested", "dict", "of lists", "tuple", "array", "objects", "polars", "pandas", "object"],
    )
    def test_a_mechanism_that_changes_its_input_changes_no_later_run(self, dataset, change):
        def show(d):
            return str(vars(d) if isinstance(d, Plain) else d)

        fresh, before = own_copy(dataset), show(dataset)
        change(fresh())
        assert show(fresh()) == show(dataset) == before

    @pytest.mark.parametrize("dataset", [3, "abc", (1, ("a", 2.5)), None, np.float64(2)], ids=str)
    def test_what_cannot_be_changed_is_not_copied(self, dataset):
        assert own_copy(dataset)() is dataset

    def test_what_cannot_be_copied_is_shared(self):
        lock = threading.Lock()
        assert own_copy([lock])()[0] is lock

    def test_an_audit_gives_every_call_its_own(self):
        class Eats:
            def __call__(self, rows, rng):
                return len([rows.pop() for _ in range(len(rows))])

        class EatsMany(Eats):
            def batch(self, rows, count, rng):
                return [self(rows, rng)] * count

        for mechanism in (Eats(), EatsMany()):
            pair = ([1], [1, 1])
            found = quiet(mechanism, pairs=[pair], stop_early=False, max_runs=60, memoryless=True)
            assert set(found.outputs.labels) == {"1", "2"}
            assert pair == ([1], [1, 1])

    def test_a_replay_gives_every_call_its_own(self):
        def total(rows, rng):
            return laplace(rows.pop(), sensitivity=1, epsilon=1.0, seed=rng).value

        pair = ([5], [6])
        assert not replay(total, [pair]).raised
        assert pair == ([5], [6])
