"""A neural model as plain JSON values and arrays, and back; every value is checked as if a stranger had written it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from escudo.errors import InputError
from escudo.synthesis._files import described as common_description
from escudo.synthesis.neural._model import NeuralModel
from escudo.synthesis.neural._network import Network, Unit
from escudo.synthesis.neural._units import columns_of

__all__ = ["described", "read_model"]

_LARGEST = 100_000


def described(model: NeuralModel) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """Return a model's description, and its arrays in one flat name space."""
    network = model.network
    form = {
        "units": [[list(unit.columns), list(unit.parents)] for unit in network.units],
        "direct": network.direct,
        "hidden": list(network.hidden),
        "latent": network.latent,
        "encoder": list(network.encoder),
        "decoder": list(network.decoder),
    }
    arrays = {
        f"{layer}/{name}": np.asarray(model.parameters[layer][name], np.float64) for layer, name, _ in network.shapes
    }
    return common_description(model) | {"network": form}, arrays


def read_model(form: Mapping[str, Any], arrays: Mapping[str, Any], common: Mapping[str, Any]) -> NeuralModel:
    """Return the model that :func:`described` took apart.

    Raises:
        InputError: If the form is not usable, or an array is missing.
    """
    columns = columns_of(common["schema"])
    count = len(columns.specs)
    units = tuple(Unit(_places(unit[0], count), _places(unit[1], count)) for unit in form["units"])
    if sorted(column for unit in units for column in unit.columns) != list(range(count)):
        raise InputError("its units do not hold every column once.")
    network = Network(
        columns=columns,
        units=units,
        direct=form["direct"] is True,
        hidden=_widths(form["hidden"]),
        latent=_width(form["latent"], least=0),
        encoder=_widths(form["encoder"]),
        decoder=_widths(form["decoder"]),
    )
    parameters: dict[str, dict[str, Any]] = {}
    for layer, name, _ in network.shapes:
        if f"{layer}/{name}" not in arrays:
            raise InputError(f"layer {layer!r} lacks its array {name!r}.")
        parameters.setdefault(layer, {})[name] = arrays[f"{layer}/{name}"]
    return NeuralModel(network=network, parameters=parameters, **common)


def _places(numbers: Any, count: int) -> tuple[int, ...]:
    found = tuple(numbers)
    if not all(type(number) is int and 0 <= number < count for number in found):
        raise InputError("a unit names a column that is not there.")
    return found


def _widths(numbers: Any) -> tuple[int, ...]:
    return tuple(_width(number, least=1) for number in numbers)


def _width(number: Any, *, least: int) -> int:
    if type(number) is not int or not least <= number <= _LARGEST:
        raise InputError("a layer's width is out of range.")
    return number
