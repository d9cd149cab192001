"""A stopped release goes on from its checkpoint: the same model, paid once; the folder holds nothing of a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.mechanisms.dpsgd import _mechanism
from escudo.privacy import Ledger, MemoryAccount
from escudo.synthesis import synthesize
from escudo.synthesis.neural import _prepared, paid
from escudo.table import PrivateTable, Schema

SCHEMA = Schema.from_dict({"a": ["0", "1"], "b": ["0", "1", "2"]})
GRAPH = CausalGraph.from_edges([("a", "b")])
TERMS: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "steps": 40, "seed": 3}
KINDS: dict[str, dict[str, Any]] = {
    "autoregressive": {"generator": "autoregressive"},
    "vae": {"generator": "vae", "latent": 1, "encoder": (), "decoder": (), "pretraining": 2},
}


class Stopped(BaseException):
    """As if the process had been killed."""


def people(last: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(1)
    a = np.append(rng.integers(0, 2, 79), last)
    return pl.DataFrame({"a": a, "b": a + np.append(rng.integers(0, 2, 79), last)}).cast(pl.String)


def made(account: Any, folder: Path | None = None, rows: pl.DataFrame | None = None, **changes: Any) -> Any:
    options = {**TERMS, **KINDS["autoregressive"], **changes}
    if folder is not None:
        options["checkpoint"] = folder
    graph = options.pop("graph", GRAPH)
    return synthesize(PrivateTable(people() if rows is None else rows, SCHEMA, account), graph, **options)


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Checkpoints after every few steps."""
    monkeypatch.setattr(_mechanism, "_SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr("escudo.mechanisms.dpsgd._sampling._SEGMENT_ROWS", 1)


@pytest.fixture
def stop(monkeypatch):
    """Run a release until its first checkpoint of the training is written."""

    def run(account: Any, folder: Path, **changes: Any) -> None:
        write = _mechanism.write_state

        def written(*arguments: Any) -> None:
            write(*arguments)
            raise Stopped

        with monkeypatch.context() as patch:
            patch.setattr(_mechanism, "write_state", written)
            with pytest.raises(Stopped):
                made(account, folder, **changes)

    return run


@pytest.fixture
def ledger(tmp_path):
    with Ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as book:
        book.open("people", epsilon=3.0, delta=1e-5)
        yield book


def spends(book: Ledger) -> int:
    return sum(row.kind == "spend" for row in book.history())


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_release_gives_what_it_would_have_given_and_pays_once(kind, stop, tmp_path, ledger):
    folder, account = tmp_path / "kept", ledger.account("people")
    stop(account, folder, **KINDS[kind])
    assert spends(ledger) == 1
    went_on = made(account, folder, **KINDS[kind])
    assert spends(ledger) == 1
    assert not folder.exists()
    whole = made(MemoryAccount(), **KINDS[kind])
    assert went_on.guarantee == whole.guarantee
    assert went_on.details == whole.details
    for layer, arrays in whole.parameters.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(went_on.parameters[layer][name], array)


def test_one_stopped_before_its_training_keeps_its_start(tmp_path, ledger, monkeypatch):
    folder, account = tmp_path / "kept", ledger.account("people")

    def stops(*_: Any) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(_prepared, "pretrained", stops)
        with pytest.raises(Stopped):
            made(account, folder)
    monkeypatch.setattr(_prepared.PreparedMoments, "fit", lambda *_, **__: pytest.fail("measured again"))
    assert made(account, folder).details["rows"] == 80
    assert spends(ledger) == 1


def test_one_for_release_goes_on_and_keeps_no_key(stop, tmp_path, ledger):
    folder, account = tmp_path / "kept", ledger.account("people")
    stop(account, folder, seed=None)
    assert json.loads((folder / "record.json").read_text())["generator"] is None
    assert made(account, folder, seed=None).guarantee.for_release
    assert spends(ledger) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": 1.5}, "settings"),
        ({"steps": 41}, "settings"),
        ({"graph": CausalGraph.from_edges([("b", "a")])}, "graph"),
        ({"hidden": (2,)}, "graph"),
    ],
    ids=["epsilon", "steps", "graph", "network"],
)
def test_another_release_is_refused_before_anything_is_spent(stop, tmp_path, ledger, change, said):
    folder, account = tmp_path / "kept", ledger.account("people")
    stop(account, folder)
    with pytest.raises(InputError, match=f"checkpoint of another release: .*{said}.*Nothing was spent"):
        made(account, folder, **change)
    assert spends(ledger) == 1
    assert folder.exists()


def test_another_seed_is_refused(stop, tmp_path):
    account = MemoryAccount()
    stop(account, tmp_path / "kept")
    with pytest.raises(InputError, match="seed"):
        made(paid(tmp_path / "kept", account), tmp_path / "kept", seed=4)


def test_a_plan_that_was_not_paid_from_this_account_is_charged(stop, tmp_path, ledger):
    folder = tmp_path / "kept"
    stop(MemoryAccount(), folder)
    made(paid(folder, ledger.account("people")), folder)
    assert spends(ledger) == 1


def test_a_charge_is_taken_as_made_once_and_for_the_same_plan_only(stop, tmp_path):
    account, folder = MemoryAccount(), tmp_path / "kept"
    stop(account, folder)
    event = account.receipts[0].event
    again = paid(folder, account)
    assert again.spend(event, for_release=True).sequence == 2  # that was a seeded run
    assert again.spend(event, for_release=False) == account.receipts[0]
    assert again.spend(event, for_release=False).sequence == 3
    assert paid(tmp_path / "nowhere", account) is account


def test_the_folder_is_its_owner_s_and_holds_nothing_of_the_rows(stop, tmp_path):
    records = []
    for last in (0, 1):
        folder = tmp_path / str(last)
        stop(MemoryAccount(), folder, rows=people(last))
        assert folder.stat().st_mode & 0o077 == 0
        assert all(file.stat().st_mode & 0o077 == 0 for file in folder.glob("*.*"))
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        assert files == ["record.json", "start/model.json", "start/parameters.safetensors", "training.safetensors"]
        record = json.loads((folder / "record.json").read_text())
        del record["receipt"]["recorded_at"]
        records.append(record)
    assert records[0] == records[1]  # neighbours: digests, receipt and generator alike


def test_a_checkpoint_in_use_is_refused(stop, tmp_path):
    from escudo.synthesis.neural._checkpoint import Checkpoint

    pytest.importorskip("fcntl")
    folder = tmp_path / "kept"
    with Checkpoint(folder=folder, facts={}).held():
        with pytest.raises(InputError, match="in use by another training"):
            made(MemoryAccount(), folder)
        assert folder.exists()


def test_a_charge_that_has_had_its_release_pays_for_no_other(stop, tmp_path):
    """Somebody looks for a charge while the stopped release goes on elsewhere, and comes when that is done."""
    account, folder = MemoryAccount(), tmp_path / "kept"
    stop(account, folder)
    again = paid(folder, account)
    made(account, folder)  # elsewhere
    assert len(account.receipts) == 1
    with pytest.raises(InputError, match="was finished meanwhile"):
        made(again, folder)
    assert len(account.receipts) == 1
    made(account, tmp_path / "another")
    assert len(account.receipts) == 2


def test_a_damaged_record_is_refused(stop, tmp_path):
    folder = tmp_path / "kept"
    stop(MemoryAccount(), folder)
    (folder / "record.json").write_text("{}")
    with pytest.raises(InputError, match="no readable checkpoint"):
        made(MemoryAccount(), folder)
