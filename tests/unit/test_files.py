"""Files that appear whole or not at all, whoever writes them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import escudo
from escudo import _files
from escudo.errors import InputError


def test_a_file_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "graph.dot"
    _files.write_whole(file, b"one")
    assert file.read_bytes() == b"one"
    assert file.stat().st_mode & 0o777 == 0o666 & ~_umask()

    def full(self: Path, content: bytes) -> int:
        with self.open("wb") as opened:
            opened.write(content[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        _files.write_whole(file, b"two")
    assert os.listdir(tmp_path) == ["graph.dot"]
    assert file.read_bytes() == b"one"


def test_a_private_draft_is_its_owners_from_the_first_moment(tmp_path: Path) -> None:
    with _files.file_draft(tmp_path / "page.html", private=True) as draft:
        assert draft.stat().st_mode & 0o777 == 0o600
        draft.replace(tmp_path / "page.html")
    assert os.listdir(tmp_path) == ["page.html"]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_folder_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool) -> None:
    if not can_exchange:
        monkeypatch.setattr(_files, "_exchange", lambda first, second: False)
    place = tmp_path / "out"
    for name in ("old", "new"):
        with _files.folder_draft(place) as draft:
            (draft / name).touch()
            _files.put_folder(draft, place)
    assert os.listdir(place) == ["new"]
    assert os.listdir(tmp_path) == ["out"]


def test_a_folder_that_cannot_be_named_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "out"
    place.mkdir()
    (place / "old").touch()

    def refuse(*_: object) -> bool:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(_files, "_exchange", refuse)
    with pytest.raises(OSError, match="Input/output"), _files.folder_draft(place) as draft:
        _files.put_folder(draft, place)
    assert os.listdir(place) == ["old"]
    assert os.listdir(tmp_path) == ["out"]


def test_a_model_that_cannot_be_replaced_is_still_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = escudo.Schema.from_dict({"ill": ["no", "yes"]})
    table = escudo.PrivateTable(pl.DataFrame({"ill": ["no", "yes", "no"] * 50}), schema)
    model = escudo.synthesize(table, None, epsilon=1.0, delta=1e-6, seed=0)
    model.save(tmp_path / "model")

    def refuse(*_: object) -> bool:
        raise OSError(5, "Input/output error")

    for owner, name in ((_files, "_exchange"), (os, "replace"), (os, "rename")):
        monkeypatch.setattr(owner, name, refuse)
    with pytest.raises(InputError, match="Input/output"):
        model.save(tmp_path / "model", overwrite=True)
    assert escudo.load(tmp_path / "model").schema == schema
    assert os.listdir(tmp_path) == ["model"]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows"])
def test_rows_that_come_in_blocks_are_written_whole_or_not_at_all(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_files, "_ROWS_OF_A_PART", 250)
    frames = [pl.DataFrame({"a": range(start, start + 100), "b": ["=x", "y"] * 50}) for start in range(0, 700, 100)]
    place = tmp_path / name
    _files.write_rows(iter(frames), place)
    parts = sorted(place.glob("part-*.parquet")) if place.is_dir() else [place]
    read = pl.concat([pl.read_csv(part) if name.endswith("csv") else pl.read_parquet(part) for part in parts])
    assert len(parts) == (3 if name == "rows" else 1)
    assert read["a"].to_list() == list(range(700))
    assert read["b"][0] == ("'=x" if name.endswith("csv") else "=x")
    assert os.listdir(tmp_path) == [name]

    def broken() -> Iterator[pl.DataFrame]:
        yield from frames
        raise OSError(28, "No space left on device")

    with pytest.raises((OSError, pl.exceptions.PolarsError)):
        _files.write_rows(broken(), tmp_path / f"second-{name}")
    assert os.listdir(tmp_path) == [name]
