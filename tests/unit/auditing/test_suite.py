"""Audits in a build: one error over all, assertions that fail as they should, and the pytest plugin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import escudo
from escudo.auditing import Suite, SuiteEntry, SuiteResult, assert_private
from escudo.errors import InputError
from escudo.privacy import Guarantee

SOURCE = Path(escudo.__file__).parents[1]


def noisy(scale):
    def count(rows, rng):
        return round(sum(rows) + rng.laplace(scale=scale), 3)

    return count


class TestAssertions:
    def test_a_broken_promise_fails_with_its_witness(self):
        with pytest.raises(AssertionError, match=r"VIOLATED: the claim ε ≤ 1.00 is rejected[\s\S]*output") as error:
            assert_private(noisy(0.2), epsilon=1.0)
        assert len(str(error.value).splitlines()) > 1

    def test_a_kept_promise_passes_and_gives_the_audit(self):
        found = assert_private(noisy(1.0), epsilon=1.0, max_runs=1000)
        assert not found.violated
        assert (found.confidence, found.seed) == (0.999, 0)

    def test_a_promise_of_another_kind_can_be_given(self):
        with pytest.raises(AssertionError, match="μ"):
            assert_private(
                lambda rows, rng: round(sum(rows) + rng.normal(), 3), claim=Guarantee(mu=0.2), last_bits=False
            )

    def test_what_was_not_audited_does_not_pass(self):
        def fails(rows, rng):
            raise RuntimeError("no")

        with pytest.raises(AssertionError, match="Nothing was audited"):
            assert_private(fails, epsilon=1.0)

    @pytest.mark.parametrize("options", [{}, {"epsilon": 1.0, "claim": Guarantee(epsilon=1.0)}])
    def test_one_claim_is_needed(self, options):
        with pytest.raises(InputError, match="say what is claimed"):
            assert_private(noisy(1.0), **options)


class TestOneError:
    def test_each_audit_has_an_equal_part(self, tmp_path):
        (tmp_path / "m.py").write_text("def f(rows, rng):\n    return int(sum(rows) + rng.integers(9))\n")
        one = {"mechanism": "m.py:f", "epsilon": 4.0, "max_runs": 40, "seed": 1}
        suite = Suite(confidence=0.9, audits=tuple({**one, "name": str(i)} for i in range(4)), folder=tmp_path)
        seen = []
        found = suite.run(lambda name, entry: seen.append(name))
        assert [entry.audit.confidence for entry in found.entries] == [pytest.approx(0.975)] * 4
        assert seen == ["0", "1", "2", "3"]
        assert not found.violated

    def test_what_xml_cannot_hold_is_marked(self):
        text = SuiteResult(confidence=0.9, entries=(SuiteEntry(name="a\x00b", error="<&\x1b"),)).to_junit()
        assert "a\ufffdb" in text
        assert "&lt;&amp;\ufffd" in text


def test_the_plugin_shares_one_error_over_a_run(tmp_path):
    (tmp_path / "test_here.py").write_text(
        "def count(rows, rng):\n"
        "    return round(sum(rows) + rng.laplace(scale=0.2), 3)\n"
        "def test_kept(assert_private):\n"
        "    assert assert_private(count, epsilon=9.0, max_runs=100).confidence == 1 - 0.1 / 2\n"
        "def test_broken(assert_private):\n"
        "    assert_private(count, epsilon=1.0)\n"
    )
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**outside, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "escudo.testing", "-p", "no:randomly", "-p", "no:cacheprovider", "-q",
         "--audit-confidence", "0.9", "--rootdir", str(tmp_path), "-c", os.devnull, str(tmp_path / "test_here.py")],
        capture_output=True, text=True, env=environment, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert "2 audits, one error of 0.1 over all of them:" in done.stdout
    assert "test_broken: VIOLATED" in done.stdout
