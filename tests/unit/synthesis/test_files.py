"""Model files: what is written is read back, and what a stranger wrote can only be refused."""

from __future__ import annotations

import copy
import json
import os
import random
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

import escudo.synthesis
from escudo.causal import CausalGraph, asia
from escudo.errors import InputError
from escudo.privacy import Guarantee, Plan, PureEvent
from escudo.synthesis import (
    CausalModel,
    LogitConditional,
    MaxConditional,
    NoisyOrConditional,
    TableConditional,
    _files,
)
from escudo.synthesis._files import write_folder
from escudo.synthesis._linear import LinearConditional, LinearModel
from escudo.table import PrivateTable, Schema

COMMON: dict[str, Any] = {
    "guarantee": Guarantee(epsilon=0.5, delta=1e-6, relation="add_remove", for_release=False),
    "plan": Plan("moments", children=[Plan("a", PureEvent(epsilon=0.5), buys="4 cells"), Plan("sampling")], delta=1e-6),
    "details": {"rows": 120, "note": "Ωμέγα"},
}


def of_every_kind() -> CausalModel:
    schema = Schema.from_dict(
        {
            "age": {"type": "numeric", "lower": 0, "upper": 100, "bins": 3, "missing": True},
            "smöke": ["no", "yes"],
            "lung": ["no", "yes"],
            "bronc": ["no", "yes"],
            "stage": {"type": "ordinal", "levels": [1, 2, 3]},
        }
    )
    rng = np.random.default_rng(0)
    laws = {
        "age": TableConditional((), rng.dirichlet(np.ones(4))),
        "smöke": TableConditional(("age",), rng.dirichlet(np.ones(2), size=4)),
        "lung": MaxConditional(("smöke",), 0.1, (np.array([0.0, 0.6]),)),
        "bronc": NoisyOrConditional(("smöke", "age"), 0.05, (np.array([0.0, 0.3]), np.array([0.0, 0.1, 0.2, 0.3]))),
        "stage": LogitConditional(("lung",), np.array([0.0, -1.0, 0.5]), (rng.normal(size=(2, 3)),)),
    }
    graph = CausalGraph.from_edges(
        [("age", "smöke"), ("smöke", "lung"), ("smöke", "bronc"), ("age", "bronc"), ("lung", "stage"), ("u", "stage")],
        latents=["u"],
    )
    return CausalModel(schema=schema, graph=graph, conditionals=laws, generator="moments", **COMMON)


def linear() -> LinearModel:
    schema = Schema.from_dict(
        {name: {"type": "numeric", "lower": 0, "upper": 10, "bins": 5} for name in ("altitude", "temperature")}
    )
    laws = {
        "altitude": LinearConditional((), 0.1, np.zeros(0), 0.2),
        "temperature": LinearConditional(("altitude",), -0.2, np.array([-0.7]), 0.05),
    }
    graph = CausalGraph.from_edges([("altitude", "temperature")])
    return LinearModel(schema=schema, graph=graph, conditionals=laws, generator="linear", **COMMON)


MODELS: dict[str, Callable[[], CausalModel | LinearModel]] = {"cells": of_every_kind, "linear": linear}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> CausalModel | LinearModel:
    return MODELS[request.param]()


# -- there and back


def test_a_model_read_back_is_the_model_that_was_written(model: CausalModel | LinearModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    again = escudo.synthesis.load(tmp_path / "model")
    assert type(again) is type(model)
    assert again.schema == model.schema
    assert again.graph == model.graph
    assert again.guarantee == model.guarantee
    assert again.plan == model.plan
    assert (again.generator, dict(again.details)) == (model.generator, dict(model.details))
    assert again.sample(500, seed=7).equals(model.sample(500, seed=7))
    first = model.schema.names[0]
    assert again.sample(50, do={first: 5}, seed=7).equals(model.sample(50, do={first: 5}, seed=7))


def test_a_model_is_two_plain_files_and_the_same_model_gives_the_same_bytes(
    model: CausalModel | LinearModel, tmp_path: Path
) -> None:
    model.save(tmp_path / "a")
    escudo.synthesis.load(tmp_path / "a").save(tmp_path / "b")
    assert sorted(os.listdir(tmp_path / "a")) == ["model.json", "parameters.safetensors"]
    for name in os.listdir(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_an_existing_folder_is_replaced_only_when_asked(model: CausalModel | LinearModel, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(InputError, match="exists"):
        model.save(tmp_path / "model")
    assert os.listdir(tmp_path / "model") == []
    model.save(tmp_path / "model", overwrite=True)
    escudo.synthesis.load(tmp_path / "model")
    assert os.listdir(tmp_path) == ["model"]


def test_a_folder_with_anything_but_a_model_is_never_replaced(model: CausalModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    (tmp_path / "model" / "thesis.txt").write_text("ten years of work")
    with pytest.raises(InputError, match=r"'thesis.txt'.*another folder. Nothing was deleted"):
        model.save(tmp_path / "model", overwrite=True)
    assert sorted(os.listdir(tmp_path / "model")) == ["model.json", "parameters.safetensors", "thesis.txt"]
    escudo.synthesis.load(tmp_path / "model")


def test_a_failed_write_leaves_nothing(model: CausalModel, tmp_path: Path) -> None:
    """As on a full disk: the system itself refuses to let any file grow."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
        with pytest.raises(InputError, match=r"could not be written to .*: File too large"):
            model.save(tmp_path / "deep" / "model")
        with pytest.raises(InputError, match=r"could not be written to .*: File too large"):
            write_folder(tmp_path / "deep" / "model", {}, {"numbers": np.zeros(100)}, overwrite=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_place_that_cannot_be_written_is_an_error(model: CausalModel, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="could not be written"):
        model.save(tmp_path / "file" / "model")


# -- files from strangers


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bytes, bytes]]:
    """The two files of each model."""
    found = {}
    for name, make in MODELS.items():
        folder = tmp_path_factory.mktemp(name) / "model"
        make().save(folder)
        found[name] = ((folder / "model.json").read_bytes(), (folder / "parameters.safetensors").read_bytes())
    return found


@pytest.fixture
def offered(tmp_path: Path) -> Callable[[bytes, bytes], Path]:
    def write(description: bytes, parameters: bytes) -> Path:
        (tmp_path / "model.json").write_bytes(description)
        (tmp_path / "parameters.safetensors").write_bytes(parameters)
        return tmp_path

    return write


def only_refused(folder: Path) -> bool:
    """Load and use whatever is there; return whether it was refused. Anything but InputError is a failure."""
    try:
        model = escudo.synthesis.load(folder)
        model.sample(3, seed=0)
        str(model), repr(model), str(model.plan)
    except InputError:
        return True
    return False


def test_the_check_accepts_what_was_saved(saved: Any, offered: Callable[..., Path]) -> None:
    for description, parameters in saved.values():
        assert not only_refused(offered(description, parameters))


def test_missing_files_and_folders_are_refused(tmp_path: Path, saved: Any) -> None:
    assert only_refused(tmp_path / "absent")
    (tmp_path / "model.json").write_bytes(saved["cells"][0])
    with pytest.raises(InputError, match=r"parameters\.safetensors cannot be read"):
        escudo.synthesis.load(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model.json").rename(tmp_path / "model" / "model.json")
    with pytest.raises(InputError, match=r"is a release; its model is .*model\.$"):
        escudo.synthesis.load(tmp_path)


@pytest.mark.parametrize("which", MODELS)
def test_files_cut_anywhere_are_refused(which: str, saved: Any, offered: Callable[..., Path]) -> None:
    description, parameters = saved[which]
    for length in [*range(0, len(description) - 1, max(1, len(description) // 60))]:
        assert only_refused(offered(description[:length], parameters)), length
    for length in range(0, len(parameters), max(1, len(parameters) // 60)):
        assert only_refused(offered(description, parameters[:length])), length


@pytest.mark.parametrize("which", MODELS)
def test_files_with_flipped_bytes_are_refused_or_still_a_model(
    which: str, saved: Any, offered: Callable[..., Path]
) -> None:
    rng = random.Random(3)
    for _ in range(300):
        files = [bytearray(part) for part in saved[which]]
        target = rng.choice(files)
        for _ in range(rng.choice([1, 1, 2, 8])):
            target[rng.randrange(len(target))] = rng.randrange(256)
        only_refused(offered(bytes(files[0]), bytes(files[1])))


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
    st.sampled_from([-1, 0, 2**63, 1e308, "table", "linear", "smöke", [], {}, [[]], [["smöke", "smöke"]], "u"]),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path to every value of a JSON document."""
    found = [path]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            found += places(inner, (*path, position))
    return found


@given(data=st.data())
def test_any_value_of_the_description_replaced_or_removed_is_refused_or_still_a_model(
    saved: Any, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    which = data.draw(st.sampled_from(sorted(saved)))
    document = json.loads(saved[which][0])
    path = data.draw(st.sampled_from(places(document)[1:]))
    home = document
    for step in path[:-1]:
        home = home[step]
    if data.draw(st.booleans()):
        home[path[-1]] = data.draw(ODD)
    else:
        del home[path[-1]]
    folder = tmp_path_factory.mktemp("offered")
    (folder / "model.json").write_text(json.dumps(document))
    (folder / "parameters.safetensors").write_bytes(saved[which][1])
    only_refused(folder)


def changed(saved: Any, change: Callable[[Any], Any], which: str = "cells") -> tuple[bytes, bytes]:
    document = copy.deepcopy(json.loads(saved[which][0]))
    result = change(document)
    return json.dumps(document if result is None else result).encode(), saved[which][1]


def _set(document: Any, *path: Any, value: Any) -> None:
    for step in path[:-1]:
        document = document[step]
    document[path[-1]] = value


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda d: [d], "no JSON object"),
        (lambda d: _set(d, "format", value="escudo ledger"), "not say that it is an escudo model"),
        (lambda d: _set(d, "version", value=2), "newer escudo"),
        (lambda d: _set(d, "laws", 0, "kind", value="pickle"), "Unknown kind of conditional 'pickle'"),
        (lambda d: _set(d, "laws", 0, "kind", value=["table"]), "Unknown kind|wrong form"),
        (lambda d: _set(d, "laws", 0, "column", value="absent"), "no law for column 'age'"),
        (lambda d: _set(d, "laws", 1, "parents", value=["absent"]), "does not fit its parent"),
        (lambda d: _set(d, "laws", 1, "parents", value=[]), "one axis per parent"),
        (lambda d: _set(d, "graph", "edges", value=[["age", "smöke"], ["smöke", "age"]]), "cycle"),
        (lambda d: _set(d, "guarantee", "epsilon", value=-1), "epsilon"),
        (lambda d: _set(d, "guarantee", "rho", value=1), "exactly one notion"),
        (lambda d: _set(d, "plan", "children", 0, "event", "kind", value="free lunch"), "free lunch"),
        (lambda d: _set(d, "schema", value={}), "no usable model"),
        (lambda d: _set(d, "details", value=[1]), "wrong form"),
    ],
)
def test_a_wrong_description_is_refused_with_what_is_wrong(
    saved: Any, offered: Callable[..., Path], change: Callable[[Any], Any], expected: str
) -> None:
    with pytest.raises(InputError, match=expected):
        escudo.synthesis.load(offered(*changed(saved, change)))


@pytest.mark.parametrize(
    ("name", "array", "expected"),
    [
        ("0/table", np.ones(4), "sum to 1"),
        ("0/table", np.array([0.5, 0.5, 0.5, -0.5]), "sum to 1"),
        ("0/table", np.array([0.5, 0.5, np.nan, 0.0]), "sum to 1"),
        ("0/table", np.full(4, 0.25, dtype=np.float32), "unexpected type"),
        ("0/table", np.full((2, 2), 0.5), "one axis per parent"),
        ("0/table", np.full(5, 0.2), "fits its schema"),
        ("0/table", np.zeros(0), "one axis per parent"),
        ("1/table", np.full((3, 2), 0.5), "does not fit its parent"),
        ("2/leak", np.array([1.5]), r"\[0, 1\]"),
        ("2/leak", np.zeros(0), "lacks one of its arrays"),
        ("2/strength0", np.array([0.5]), "does not fit its parent"),
        ("4/intercept", np.array([0.0, np.inf, 0.0]), "finite"),
        ("4/weight0", np.zeros((2, 2)), "weight per parent level"),
    ],
)
def test_wrong_arrays_are_refused_with_what_is_wrong(
    saved: Any, offered: Callable[..., Path], name: str, array: Any, expected: str
) -> None:
    description, parameters = saved["cells"]
    arrays = load(parameters)
    assert name in arrays
    with pytest.raises(InputError, match=expected):
        escudo.synthesis.load(offered(description, save(arrays | {name: array})))


def test_a_missing_array_is_refused(saved: Any, offered: Callable[..., Path]) -> None:
    description, parameters = saved["cells"]
    arrays = {key: array for key, array in load(parameters).items() if key != "4/weight0"}
    with pytest.raises(InputError, match="lacks one of its arrays"):
        escudo.synthesis.load(offered(description, save(arrays)))


@pytest.mark.parametrize(
    ("file", "limit"),
    [("model.json", _files._MAX_DESCRIPTION), ("parameters.safetensors", _files._MAX_PARAMETERS)],
)
def test_a_huge_file_is_refused_before_it_is_read(
    saved: Any, offered: Callable[..., Path], file: str, limit: int
) -> None:
    folder = offered(*saved["cells"])
    os.truncate(folder / file, limit + 1)  # a hole: it takes no room on disk
    with pytest.raises(InputError, match="is larger than"):
        escudo.synthesis.load(folder)


def test_a_header_that_claims_more_than_the_file_holds_is_refused(saved: Any, offered: Callable[..., Path]) -> None:
    description, _ = saved["cells"]
    header = json.dumps({"0/table": {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 2**43]}}).encode()
    with pytest.raises(InputError, match="not readable as safetensors"):
        escudo.synthesis.load(offered(description, len(header).to_bytes(8, "little") + header))


def test_deeply_nested_json_is_refused(saved: Any, offered: Callable[..., Path]) -> None:
    deep = b'{"format":' * 100_000 + b"1" + b"}" * 100_000
    with pytest.raises(InputError, match="not readable as JSON"):
        escudo.synthesis.load(offered(deep, saved["cells"][1]))


def test_a_schema_of_many_cells_takes_no_memory_before_its_laws_are_checked(
    saved: Any, offered: Callable[..., Path]
) -> None:
    def widen(document: Any) -> None:
        document["schema"]["columns"]["age"]["bins"] = 60_000

    with pytest.raises(InputError, match="fits its schema"):
        escudo.synthesis.load(offered(*changed(saved, widen)))


def test_columns_listed_before_their_causes_are_read_back_in_order(tmp_path: Path) -> None:
    network = asia()
    names = list(reversed(network.nodes))
    schema = Schema.from_dict({name: list(network.levels[name]) for name in names})
    rows = network.sample_frame(2000, rng=np.random.default_rng(0))
    model = escudo.synthesis.synthesize(PrivateTable(rows, schema), network.graph, epsilon=1.0, delta=1e-6, seed=1)
    model.save(tmp_path / "model")
    read = escudo.synthesis.load(tmp_path / "model")
    for name in names:
        assert read.conditionals[name].parents == model.conditionals[name].parents
        assert np.allclose(read.conditionals[name].table, model.conditionals[name].table, atol=1e-12)
