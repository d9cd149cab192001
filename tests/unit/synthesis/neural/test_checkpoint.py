"""A stopped release goes on from its checkpoint, once: the same model, paid once; the folder holds nothing of a row."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.errors import BudgetExceededError, InputError
from escudo.mechanisms.dpsgd import _mechanism
from escudo.mechanisms.dpsgd._checkpoint import TrainingFile
from escudo.privacy import Ledger, MemoryAccount
from escudo.privacy._totals import leaves
from escudo.synthesis import fitting, prepare, synthesize
from escudo.synthesis.neural import _training
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
    """Run a release until a checkpoint of its training is written, the first one unless ``turn`` says otherwise."""

    def run(account: Any, folder: Path, *, turn: int = 1, **changes: Any) -> None:
        keep, turns = TrainingFile.keep, iter(range(1, 10**9))

        def kept(file: TrainingFile, arrays: Any) -> None:
            keep(file, arrays)
            if arrays and next(turns) == turn:
                raise Stopped

        with monkeypatch.context() as patch:
            patch.setattr(TrainingFile, "keep", kept)
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


def about(folder: Path) -> dict[str, str]:
    """What the header of a checkpoint says."""
    content = (folder / "training.safetensors").read_bytes()
    facts = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    return json.loads(facts["about"])


def restored(copy: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(copy, folder)
    return folder


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
    (paid,) = [row for row in ledger.history("people") if row.kind == "spend"]
    anchor = {"ledger_id": ledger.anchor["ledger_id"], "rows": paid.sequence, "head": paid.hash}
    assert went_on.details == whole.details | {"anchor": anchor}  # of the one spend, whoever went on
    for layer, arrays in whole.parameters.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(went_on.parameters[layer][name], array)


def test_one_stopped_before_its_training_keeps_its_start(tmp_path, ledger, monkeypatch):
    folder, account = tmp_path / "kept", ledger.account("people")

    def stops(*_: Any) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(_training, "pretrain", stops)
        with pytest.raises(Stopped):
            made(account, folder)
    monkeypatch.setattr(_training.PreparedMoments, "run", lambda *_, **__: pytest.fail("measured again"))
    assert made(account, folder).details["rows"] == 80
    assert spends(ledger) == 1


def test_one_for_release_goes_on_and_keeps_no_key(stop, tmp_path, ledger):
    folder, account = tmp_path / "kept", ledger.account("people")
    stop(account, folder, seed=None)
    assert "generator" not in about(folder)
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
        made(account, tmp_path / "kept", seed=4)


# -- copies


def test_of_three_copies_one_is_released(stop, tmp_path, ledger):
    """The cap allows one release only: whoever goes on from copies gets no other."""
    account, folder, copy = ledger.open("few", epsilon=2.2, delta=1e-5), tmp_path / "kept", tmp_path / "copy"
    stop(account, folder, seed=None)
    shutil.copytree(folder, copy)
    models = []
    for turn in range(3):
        restored(copy, folder)
        if turn == 0:
            models.append(made(account, folder, seed=None))
            continue
        with pytest.raises(
            InputError, match=r"cannot go on for nothing.*finished.*Nothing was spent.*costs ε = \d.*--again"
        ):
            made(account, folder, seed=None)
        with pytest.raises(BudgetExceededError):
            made(account, folder, seed=None, again=True)
        assert folder.exists()
    assert len(models) == spends(ledger) == 1
    assert ledger.verify().ok


def test_two_copies_under_way_at_once_give_one_model(stop, tmp_path, ledger, monkeypatch):
    """The second goes on from the newest state while the first is at work, which then comes to no end."""
    account, folder, other = ledger.account("people"), tmp_path / "kept", tmp_path / "other"
    stop(account, folder)
    finish, models = TrainingFile.finish, []

    def meanwhile(file: TrainingFile) -> None:
        monkeypatch.setattr(TrainingFile, "finish", finish)
        shutil.copytree(folder, other)
        models.append(made(account, other))
        finish(file)

    monkeypatch.setattr(TrainingFile, "finish", meanwhile)
    with pytest.raises(InputError, match="finished"):
        made(account, folder)
    assert len(models) == spends(ledger) == 1


def test_an_older_copy_is_refused_and_the_newest_goes_on(stop, tmp_path, ledger):
    account, folder, old = ledger.account("people"), tmp_path / "kept", tmp_path / "old"
    stop(account, folder)
    shutil.copytree(folder, old)
    stop(account, folder)  # after it went on
    with pytest.raises(InputError, match=r"cannot go on for nothing.*not the newest checkpoint"):
        made(account, old)
    newest = made(account, folder)
    assert {**newest.details, "anchor": None} == made(MemoryAccount()).details | {"anchor": None}
    assert spends(ledger) == 1


def test_a_start_without_its_training_is_an_older_copy(stop, tmp_path, ledger):
    """The state before the first step, put in place of a later one."""
    account, folder, old = ledger.account("people"), tmp_path / "kept", tmp_path / "old"
    keep = TrainingFile.keep

    def copied(file: TrainingFile, arrays: Any) -> None:
        keep(file, arrays)
        if not old.exists():
            shutil.copytree(folder, old)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingFile, "keep", copied)
        stop(account, folder, turn=2)
    assert (old / "training.safetensors").read_bytes() != (folder / "training.safetensors").read_bytes()
    with pytest.raises(InputError, match="not the newest checkpoint"):
        made(account, restored(old, folder))
    assert spends(ledger) == 1


@pytest.mark.parametrize("name", ["start/parameters.safetensors", "start/model.json", "training.safetensors"])
def test_no_file_of_the_folder_can_be_another_s(stop, tmp_path, name):
    account, one, two = MemoryAccount(), tmp_path / "one", tmp_path / "two"
    for folder, seed in ((one, 3), (two, 4)):
        stop(account, folder, seed=seed)
    shutil.copy(two / name, one / name)
    if (one / name).read_bytes() == (two / name).read_bytes() and name.endswith("model.json"):
        (one / name).write_text((one / name).read_text() + " ")
    with pytest.raises(InputError, match=r"its start is not the one|seed differ"):
        made(account, one, again=True)
    assert len(account.receipts) == 2


def test_one_that_stopped_between_going_on_and_its_next_state_pays_for_the_rest(stop, tmp_path, monkeypatch):
    account, folder = MemoryAccount(), tmp_path / "kept"
    stop(account, folder)
    resume = MemoryAccount.resume

    def stops(*arguments: Any) -> str:
        resume(*arguments)
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(MemoryAccount, "resume", stops)
        with pytest.raises(Stopped):
            made(account, folder)
    with pytest.raises(
        InputError, match=r"cannot go on for nothing\. This checkpoint was resumed before.*costs ε = \d"
    ):
        made(account, folder)
    assert len(account.receipts) == 1
    went_on = made(account, folder, again=True)
    whole = made(MemoryAccount())
    assert went_on.details == whole.details
    assert len(account.receipts) == 2
    (step, times), *others = leaves(account.receipts[1].event)
    assert others == []  # not the start, which was paid for and is not measured again
    assert 0 < times < TERMS["steps"]
    assert step in dict(leaves(account.receipts[0].event))


def test_what_was_lost_on_its_way_out_costs_what_is_left(tmp_path, ledger):
    """The training has ended, and the disk is full: the folder is there, and the last steps are paid for again."""
    account, folder = ledger.account("people"), tmp_path / "kept"
    table = PrivateTable(people(), SCHEMA, account, rows=80)
    terms: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "steps": 40, "checkpoint": folder}
    with (
        pytest.raises(OSError, match="full"),
        fitting(prepare(SCHEMA, GRAPH, generator="autoregressive", public_rows=80, **terms), table),
    ):
        raise OSError("full")
    with pytest.raises(InputError, match="finished"):
        synthesize(table, GRAPH, generator="autoregressive", **terms)
    assert spends(ledger) == 1
    synthesize(table, GRAPH, generator="autoregressive", again=True, **terms)
    assert spends(ledger) == 2
    assert not folder.exists()
    assert [row.kind for row in ledger.history() if row.kind != "mark"][1:] == [
        "spend",
        "finish",
        "failed",
        "spend",
        "finish",
    ]


# -- accounts


def test_a_checkpoint_is_nothing_without_the_account_that_paid(stop, tmp_path, ledger):
    folder, account = tmp_path / "kept", ledger.account("people")
    other = ledger.open("others", epsilon=3.0, delta=1e-5)
    stop(account, folder)
    for wrong in (MemoryAccount(), other):
        with pytest.raises(InputError, match="not paid for by this account, but by that of dataset 'people'"):
            made(wrong, folder)
    assert spends(ledger) == 1
    made(account, folder)


def test_one_in_memory_is_gone_with_its_process(stop, tmp_path, ledger):
    folder = tmp_path / "kept"
    stop(MemoryAccount(), folder)
    for other in (MemoryAccount(), ledger.account("people")):
        with pytest.raises(InputError, match=r"gone with its process\. A checkpoint needs a ledger"):
            made(other, folder)
    assert spends(ledger) == 0


def test_an_account_that_knows_no_checkpoints_is_refused(tmp_path):
    class Plain:
        relation, unit, max_rows_per_person = "replace_one", "row", None

        def spend(self, *_: Any, **__: Any) -> None:
            pytest.fail("was charged")

        def fail(self, *_: Any) -> None: ...

    with pytest.raises(InputError, match="checkpoint needs an account"):
        made(Plain(), tmp_path / "kept")


def test_again_needs_a_checkpoint_and_a_plain_answer():
    for wrong in ({"again": True}, {"again": "no"}):
        with pytest.raises(InputError, match="again"):
            made(MemoryAccount(), **wrong)


def test_the_folder_is_its_owner_s_and_holds_nothing_of_the_rows(stop, tmp_path):
    records = []
    for last in (0, 1):
        folder = tmp_path / str(last)
        stop(MemoryAccount(), folder, rows=people(last))
        assert folder.stat().st_mode & 0o077 == 0
        assert all(file.stat().st_mode & 0o077 == 0 for file in folder.glob("*.*"))
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        assert files == ["start/model.json", "start/parameters.safetensors", "training.safetensors"]
        record = about(folder)
        del record["start"], record["training"]  # of what was released
        records.append(record)
    assert records[0] == records[1]  # neighbours: digests and generator alike


def test_one_in_use_is_refused_before_anything_is_charged(tmp_path, ledger, monkeypatch):
    pytest.importorskip("fcntl")
    folder, account, fitted = tmp_path / "kept", ledger.account("people"), _training.PreparedMoments.run

    def meanwhile(*arguments: Any, **terms: Any) -> Any:
        with pytest.raises(InputError, match="in use by another training"):
            made(account, folder)
        assert spends(ledger) == 1
        return fitted(*arguments, **terms)

    monkeypatch.setattr(_training.PreparedMoments, "run", meanwhile)
    made(account, folder)
    assert spends(ledger) == 1
    assert not folder.exists()


def test_a_refused_charge_leaves_no_folder(tmp_path):
    with pytest.raises(BudgetExceededError):
        made(MemoryAccount(epsilon=0.1, delta=1e-5), tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_a_damaged_checkpoint_is_refused(stop, tmp_path):
    account, folder = MemoryAccount(), tmp_path / "kept"
    stop(account, folder)
    (folder / "training.safetensors").write_text("{}")
    with pytest.raises(InputError, match="no readable checkpoint"):
        made(account, folder)
