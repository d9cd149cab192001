"""Logs of trials and of fits that somebody else may have written: read back whole, or refused in words."""

from __future__ import annotations

import base64
import json
import tracemalloc
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.attacks._game import FitLog
from escudo.auditing import audit
from escudo.auditing._outputs import Encoded, Encoder, TrialLog
from escudo.errors import InputError
from escudo.privacy import Guarantee

FACTS: dict[str, Any] = {"claim": {"epsilon": 1.0}, "pairs": ["a", "b"], "mechanism": "m", "seed": 7}


def packed(array: Any) -> str:
    return base64.b85encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 9)).decode()


HEAD = {"format": "escudo trial log 1", **FACTS}
ASSIGNED: dict[str, Any] = {"pair": 1, "runs": 10, "assigned": "ff80"}
SEEN: dict[str, Any] = {
    "width": 2,
    "values": packed(np.arange(20.0)),
    "codes": packed(np.ones(10, np.int32)),
    "counted": "",
    "structures": ["(#,#)"],
}


def written(path: Path, *entries: Any) -> Path:
    lines = [entry if isinstance(entry, bytes) else json.dumps(entry).encode() for entry in entries]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def opened(path: Path) -> TrialLog:
    log = TrialLog(path, FACTS)
    log.close()
    return log


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path, labels = tmp_path / "log", np.arange(13) % 3 == 0
    log = TrialLog(path, FACTS)
    log.assign(1, labels)
    log.observe(Encoded(np.arange(24.0).reshape(12, 2), np.ones(12, np.int32)), np.arange(13) > 0, ["#", "x"])
    log.assign(0, labels)
    log.close()
    first, second = opened(path).stored(Encoder())
    assert first.labels.tolist() == second.labels.tolist() == labels.tolist()
    assert first.outputs is not None
    assert first.outputs.values.tolist() == np.arange(24.0).reshape(12, 2).tolist()
    assert (first.pair, second.pair, second.outputs) == (1, 0, None)


BOMB = base64.b85encode(zlib.compress(b"\0" * 2**28, 9)).decode()
DAMAGE: dict[str, list[Any]] = {
    "a bomb": [HEAD, ASSIGNED, SEEN | {"values": BOMB}],
    "a bomb in codes": [HEAD, ASSIGNED, SEEN | {"codes": BOMB}],
    "more runs than bits": [HEAD, ASSIGNED | {"runs": 10**12}],
    "more runs than an integer of C": [HEAD, ASSIGNED | {"runs": 10**30}],
    "runs below 0": [HEAD, ASSIGNED | {"runs": -1}],
    "no run": [HEAD, ASSIGNED | {"runs": 0, "assigned": ""}],
    "runs as text": [HEAD, ASSIGNED | {"runs": "10"}],
    "runs as truth": [HEAD, ASSIGNED | {"runs": True, "assigned": "80"}],
    "a pair below 0": [HEAD, ASSIGNED | {"pair": -1}],
    "a pair too many": [HEAD, ASSIGNED | {"pair": 3}],
    "no width": [HEAD, ASSIGNED, SEEN | {"width": 0}],
    "a width too many": [HEAD, ASSIGNED, SEEN | {"width": 10**9}],
    "fewer outputs": [HEAD, ASSIGNED, SEEN | {"values": packed(np.arange(18.0))}],
    "outputs cut short": [HEAD, ASSIGNED, SEEN | {"values": SEEN["values"][:-5]}],
    "forms below 0": [HEAD, ASSIGNED, SEEN | {"codes": packed(np.full(10, -1, np.int32))}],
    "forms not listed": [HEAD, ASSIGNED, SEEN | {"codes": packed(np.full(10, 5, np.int32))}],
    "forms that are no list": [HEAD, ASSIGNED, SEEN | {"structures": "abc"}],
    "forms that are no texts": [HEAD, ASSIGNED, SEEN | {"structures": [1]}],
    "outputs of nothing": [HEAD, SEEN],
    "outputs twice": [HEAD, ASSIGNED, SEEN, SEEN],
    "assigned twice": [HEAD, ASSIGNED, ASSIGNED],
    "a number": [HEAD, 3],
    "a list": [HEAD, ["assigned"]],
    "no hexadecimal": [HEAD, ASSIGNED | {"assigned": "xyz!"}],
    "a seed below 0": [HEAD | {"seed": -1}, ASSIGNED],
    "a seed as text": [HEAD | {"seed": "7"}, ASSIGNED],
    "no seed": [{key: HEAD[key] for key in HEAD if key != "seed"}, ASSIGNED],
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_log_is_refused_in_words_and_kept_as_it_is(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / "log", *DAMAGE[name])
    before = path.read_bytes()
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="log is damaged"):
            opened(path)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
    assert path.read_bytes() == before


@pytest.mark.parametrize("place", [0, 1])
def test_a_line_nested_too_deep_is_no_log(place: int, tmp_path: Path) -> None:
    lines: list[Any] = [HEAD, ASSIGNED]
    lines[place] = b"[" * 100_000 + b"]" * 100_000
    with pytest.raises(InputError, match="no trial log"):
        opened(written(tmp_path / "log", *lines))


@pytest.mark.parametrize("kept", [0, 1, 5, 17, 18, 19, 60])
def test_a_log_that_was_cut_off_on_its_first_line_begins_anew(kept: int, tmp_path: Path) -> None:
    path = written(tmp_path / "log", HEAD)
    whole = path.read_bytes()
    path.write_bytes(whole[:kept])
    opened(path).close()
    assert path.read_bytes() == whole
    path.write_bytes(b'{"formal"')
    with pytest.raises(InputError, match="no trial log"):
        opened(path)


def test_an_audit_refuses_a_log_with_a_pair_it_does_not_have(tmp_path: Path) -> None:
    how: dict[str, Any] = {"claim": Guarantee(epsilon=1.0), "pairs": [(0, 1)], "seed": 1, "progress": False}
    audit(lambda dataset, rng: 0, log=tmp_path / "log", max_runs=20, **how)
    lines = (tmp_path / "log").read_text().splitlines()
    lines[1] = lines[1].replace('"pair": 0', '"pair": 4')
    (tmp_path / "log").write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match="a pair that the audit does not have"):
        audit(lambda dataset, rng: 0, log=tmp_path / "log", max_runs=20, **how)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def edited(draw: st.DrawFn, entries: list[dict[str, Any]]) -> bytes:
    """A log with a value put in the place of another, or with some bytes changed."""
    lines = [dict(entry) for entry in entries]
    for _ in range(draw(st.integers(0, 2))):
        line = draw(st.sampled_from(lines))
        line[draw(st.sampled_from(sorted(line)))] = draw(ANYTHING)
    content = bytearray(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(content) - 1))
        content[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return bytes(content)


@given(content=edited([HEAD, ASSIGNED, SEEN, ASSIGNED]))
def test_any_log_is_read_or_refused(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "log"
    path.write_bytes(content)
    found = []
    with suppress(InputError):
        found = opened(path).stored(Encoder())
    for block in found:
        assert block.pair < 2
        assert block.labels.size <= 8 * len(content)


FIT: dict[str, Any] = {
    "key": ["in", True, 5],
    "sets": [{"queries": base64.b64encode(np.arange(3.0).tobytes()).decode()}],
}


class TestFits:
    @staticmethod
    def opened(path: Path) -> FitLog:
        return FitLog(path, "x")

    def test_what_is_written_is_read_back(self, tmp_path: Path) -> None:
        log = FitLog(tmp_path / "fits", "x")
        log.put(("in", True, 5), [{"queries": np.arange(3.0)}])
        found = self.opened(tmp_path / "fits").get(("in", True, 5))
        assert found is not None
        assert found[0]["queries"].tolist() == [0.0, 1.0, 2.0]

    @pytest.mark.parametrize(
        "line",
        [
            b"[" * 100_000 + b"]" * 100_000,
            {},
            [],
            3,
            FIT | {"key": ["in", True]},
            FIT | {"key": ["in", True, "5"]},
            FIT | {"key": ["in", 1, 5]},
            FIT | {"key": [3, True, 5]},
            FIT | {"key": ["in", True, -5]},
            FIT | {"sets": {"queries": "AAAA"}},
            FIT | {"sets": ["x"]},
            FIT | {"sets": [{"queries": "AAAA"}]},
            FIT | {"sets": [{"queries": "!"}]},
        ],
    )
    def test_a_line_that_is_no_fit_is_refused_and_what_follows_is_kept(self, line: Any, tmp_path: Path) -> None:
        path = written(tmp_path / "fits", {"format": "escudo fits 1", "attack": "x"}, FIT, line, FIT)
        before = path.read_bytes()
        with pytest.raises(InputError, match="damaged: line 3 is no fit"):
            self.opened(path)
        assert path.read_bytes() == before

    def test_a_line_that_was_cut_short_is_left_out(self, tmp_path: Path) -> None:
        path = written(tmp_path / "fits", {"format": "escudo fits 1", "attack": "x"}, FIT, FIT)
        path.write_bytes(path.read_bytes()[:-20])
        assert len(self.opened(path)) == 1
        assert path.read_bytes().endswith(b"}\n")

    @given(content=edited([{"format": "escudo fits 1", "attack": "x"}, FIT]))
    def test_any_log_is_read_or_refused(self, content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
        path = tmp_path_factory.mktemp("fuzz") / "fits"
        path.write_bytes(content)
        with suppress(InputError):
            assert len(self.opened(path)) <= 1


def test_a_log_that_could_not_be_written_is_closed_without_a_second_error(tmp_path: Path) -> None:
    class Full:
        def close(self) -> None:
            raise OSError(28, "No space left on device")

    log = TrialLog.__new__(TrialLog)
    log._file = Full()  # type: ignore[assignment]
    log.close()
