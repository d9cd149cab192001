"""Model files: ``model.json`` and ``parameters.safetensors`` in one folder; no code, no rows, no pickle.

Reading one cannot run anything: JSON holds plain values and safetensors plain arrays. It cannot exhaust memory either:
both files are refused above a size limit before they are opened, and arrays take no more room than their file does.
Every value is then checked as if a stranger had written it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from escudo._files import folder_draft, put_folder
from escudo.causal import CausalGraph
from escudo.errors import EscudoError, InputError
from escudo.privacy import Guarantee, Plan
from escudo.synthesis._laws import SPREAD, Conditional, TableConditional, conditional_from_arrays
from escudo.synthesis._linear import LinearConditional, LinearModel
from escudo.synthesis._linked_model import LinkedModel, RowModel
from escudo.synthesis._model import CausalModel, CellModel, Model
from escudo.table import LinkedSchema, Numeric, Schema

if TYPE_CHECKING:
    from escudo.synthesis.neural import NeuralModel

_FORMAT = "escudo model"
_VERSION = 1
_DESCRIPTION, _PARAMETERS = "model.json", "parameters.safetensors"
_MAX_DESCRIPTION = 64 * 2**20
_MAX_PARAMETERS = 2 * 2**30


def describe(model: Model) -> dict[str, Any]:
    """Return what every model's description holds."""
    stated = None if model.stated is None else _told(model.stated)
    return _described(model, {"schema": model.schema.to_dict(), **_spread(model)}, {"stated": stated})


def _spread(model: Model) -> dict[str, Any]:
    """Return how numbers spread inside the bins of columns whose bins are not of equal width."""
    uneven = [column.name for column in model.schema.fields if isinstance(column, Numeric) and column.edges is not None]
    return {"spread": dict.fromkeys(uneven, SPREAD)} if uneven and isinstance(model, CellModel) else {}


def describe_linked(model: LinkedModel) -> dict[str, Any]:
    """Return what the description of a model of linked tables holds beside its laws."""
    return _described(model, {"linked": model.schema.to_dict()}, {})


def _described(model: Model | LinkedModel, schema: dict[str, Any], claimed: dict[str, Any]) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "generator": model.generator,
        "guarantee": model.guarantee.to_json(),
        "plan": model.plan.to_json(),
        **schema,
        "graph": _told(model.graph),
        **claimed,
        "details": dict(model.details),
    }


def _told(graph: CausalGraph) -> dict[str, Any]:
    told: dict[str, Any] = {
        "nodes": list(graph.nodes),
        "edges": [list(edge) for edge in graph.edges],
        "latents": sorted(graph.latents),
    }
    if graph.undirected_edges:
        told["undirected"] = [list(edge) for edge in graph.undirected_edges]
    if graph.groups:
        told["groups"] = {node: list(columns) for node, columns in graph.groups.items()}
    return told


def _graph(told: Mapping[str, Any]) -> CausalGraph:
    return CausalGraph.from_edges(
        [tuple(edge) for edge in told["edges"]],
        nodes=told["nodes"],
        latents=told["latents"],
        undirected=[tuple(edge) for edge in told.get("undirected", ())],
        groups=told.get("groups"),
    )


def write_folder(
    directory: Path, description: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]], *, overwrite: bool
) -> None:
    """Write a model's two files into ``directory``, both or none; nothing but an earlier model is ever replaced.

    Raises:
        InputError: If the folder exists and ``overwrite`` is false or it holds more than a model, or cannot be written.
    """
    from safetensors.numpy import save

    if directory.exists() and not overwrite:
        raise InputError(f"{directory} exists; choose another folder, or pass overwrite=True.")
    try:
        if directory.exists() and (others := set(os.listdir(directory)) - {_DESCRIPTION, _PARAMETERS}):
            raise InputError(
                f"{directory} holds {min(others)!r}, which is no part of a model; choose another folder. Nothing was "
                "deleted."
            )
        with folder_draft(directory) as draft:
            (draft / _DESCRIPTION).write_text(json.dumps(description, indent=1, allow_nan=False), encoding="utf-8")
            # The file holds arrays row by row, whatever their order in memory.
            content = save({key: np.ascontiguousarray(array) for key, array in arrays.items()})
            (draft / _PARAMETERS).write_bytes(content)  # save_file would call a full disk an error of its own
            draft.chmod(0o755)
            put_folder(draft, directory)
    except OSError as error:
        reason = error.strerror or "input/output error"
        raise InputError(f"The model could not be written to {directory}: {reason}.") from None


def load(directory: str | os.PathLike[str]) -> CausalModel | LinearModel | NeuralModel:
    """Read a model that ``model.save`` wrote; safe on files from strangers.

    Raises:
        InputError: If a file is missing, too large, damaged, or of a newer version.
    """
    with _reading(Path(directory)) as (description, arrays):
        if description.get("format") != _FORMAT:
            raise InputError("it does not say that it is an escudo model.")
        if description.get("version") != _VERSION:
            raise InputError(f"its version is not {_VERSION}; it needs a newer escudo.")
        if any(told != SPREAD for told in description.get("spread", {}).values()):
            raise InputError("it spreads numbers inside bins in a way that this version does not know.")
        if "linked" in description:
            raise InputError("it is one of linked tables; read it with load_linked.")
        schema = Schema.from_dict(description["schema"])
        stated = description.get("stated")  # files of 0.1 do not have it
        common: dict[str, Any] = {
            "schema": schema,
            "graph": _graph(description["graph"]),
            "stated": None if stated is None else _graph(stated),
            "guarantee": Guarantee.from_json(description["guarantee"]),
            "generator": str(description["generator"]),
            "plan": Plan.from_json(description["plan"], max_rows_per_person=schema.max_rows_per_person),
            "details": dict(description["details"]),
        }
        if "network" in description:
            from escudo.synthesis.neural import read_model

            return read_model(description["network"], arrays, common)
        cells: dict[str, Conditional] = {}
        equations: dict[str, LinearConditional] = {}
        for number, law in enumerate(description["laws"]):
            own = _own(arrays, f"{number}/")
            if law["kind"] == LinearConditional.kind:
                equations[law["column"]] = LinearConditional.from_arrays(tuple(law["parents"]), own)
            else:
                cells[law["column"]] = conditional_from_arrays(law["kind"], law["parents"], own)
        if equations:  # then every column must have one, which the model checks
            return LinearModel(conditionals=equations, **common)
        seen = {
            law["column"]: conditional_from_arrays(law["kind"], law["parents"], _own(arrays, f"observed/{number}/"))
            for number, law in enumerate(description.get("observed", []))
        }
        return CausalModel(conditionals=cells, observed=seen, **common)


def holds_linked(directory: str | os.PathLike[str]) -> bool:
    """Return whether a folder holds a model of linked tables; nothing of it is checked."""
    return "linked" in _read_description(Path(directory) / _DESCRIPTION)


def load_linked(directory: str | os.PathLike[str]) -> LinkedModel:
    """Read a model of linked tables that ``model.save`` wrote; safe on files from strangers.

    Raises:
        InputError: If a file is missing, too large, damaged, of a newer version, or of a model of one table.
    """
    with _reading(Path(directory)) as (description, arrays):
        if description.get("format") != _FORMAT or description.get("version") != _VERSION:
            raise InputError(f"it does not say that it is an escudo model of version {_VERSION}.")
        if "linked" not in description:
            raise InputError("it is one of a single table; read it with load.")
        return _linked(description, arrays)


@contextmanager
def _reading(folder: Path) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
    """Yield the description and the arrays of a model's files; what is wrong with them is told with their folder."""
    description, arrays = _read_description(folder / _DESCRIPTION), _read_arrays(folder / _PARAMETERS)
    try:
        yield description, arrays
    except EscudoError as error:
        raise InputError(f"{folder} is no usable model: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise InputError(
            f"{folder} is no usable model: {_DESCRIPTION} lacks something or has it in a wrong form."
        ) from None


def _linked(description: Mapping[str, Any], arrays: Mapping[str, Any]) -> LinkedModel:
    """Read a model of linked tables."""
    schema = LinkedSchema.from_dict(description["linked"])

    def laws(told: Any, prefix: str) -> dict[str, TableConditional]:
        found = {}
        for number, law in enumerate(told):
            made = conditional_from_arrays(law["kind"], law["parents"], _own(arrays, f"{prefix}{number}/"))
            if not isinstance(made, TableConditional):
                raise InputError("a law of linked tables is no table.")
            found[law["column"]] = made
        return found

    rows = {}
    for table, told in description["rows"].items():
        lengths = np.asarray(arrays[f"{table}/lengths"], dtype=np.float64)
        if not (np.isfinite(lengths).all() and (lengths >= 0).all()):
            raise InputError("a law of the number of rows is none.")
        rows[table] = RowModel(laws(told["first"], f"{table}/first/"), laws(told["next"], f"{table}/next/"), lengths)
    return LinkedModel(
        schema=schema,
        graph=_graph(description["graph"]),
        people=laws(description["laws"], "people/"),
        rows=rows,
        guarantee=Guarantee.from_json(description["guarantee"]),
        plan=Plan.from_json(description["plan"], max_rows_per_person=schema.max_rows_per_person),
        details=dict(description["details"]),
    )


def _own(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}


def _read_description(path: Path) -> Mapping[str, Any]:
    if not path.exists() and (model := path.parent / "model" / path.name).exists():
        raise InputError(f"{path.parent} is a release; its model is {model.parent}.")
    text = _bounded(path, _MAX_DESCRIPTION).decode("utf-8", errors="replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not readable as JSON; the model file is damaged.") from None
    if not isinstance(value, dict):
        raise InputError(f"{path} holds no JSON object; the model file is damaged.")
    return value


def _read_arrays(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.numpy import load as load_arrays

    content = _bounded(path, _MAX_PARAMETERS)
    try:
        arrays = load_arrays(content)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path} is not readable as safetensors; the model file is damaged.") from None
    if any(array.dtype != np.float64 for array in arrays.values()):
        raise InputError(f"{path} holds arrays of an unexpected type; the model file is damaged.")
    return arrays


def _bounded(path: Path, limit: int) -> bytes:
    try:
        if path.stat().st_size > limit:
            raise InputError(f"{path} is larger than {limit // 2**20} MiB; it is no model of escudo.")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or 'input/output error'}.") from None
