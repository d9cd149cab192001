"""Populations: the joint law of the exogenous variables, as a product of laws of disjoint groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from escudo._validate import did_you_mean
from escudo.causal._inference import Array, Factor, product
from escudo.causal._sem_values import Value, arrange, as_table, as_value, as_weight, check_name, normalised, show
from escudo.errors import InputError

__all__ = ["Population", "checked_law", "law_of", "marginal", "read_exogenous", "replaced"]

Ranges: TypeAlias = Mapping[str, tuple[Value, ...]]
Population: TypeAlias = "Array | Sequence[Factor] | Mapping[str | tuple[str, ...], object]"


def law_of(names: tuple[str, ...], given: object, ranges: Ranges) -> Factor:
    """Return the joint law of ``names`` from ``{value or tuple of values: probability}`` or an array."""
    shape = tuple(len(ranges[name]) for name in names)
    if not isinstance(given, Mapping):
        return checked_law(Factor(names, _shaped(names, given, shape)))
    table = np.zeros(shape)
    for values, weight in given.items():
        table[_position(names, values, ranges)] = as_weight(f"The population of {', '.join(names)}", weight)
    return checked_law(Factor(names, table))


def read_exogenous(given: Mapping[str | tuple[str, ...], object]) -> tuple[dict[str, tuple[Value, ...]], list[Factor]]:
    """Return ranges and laws from ``{"R": {"neg": 0.9, "pos": 0.1}}``; a list of values gives a range without a law."""
    ranges: dict[str, tuple[Value, ...]] = {}
    laws: list[Factor] = []
    for key, law in given.items():
        names = tuple(check_name(name) for name in (key if isinstance(key, tuple) else (key,)))
        for name in names:
            if name in ranges or names.count(name) > 1:
                raise InputError(f"Exogenous variable {name!r} is given twice.")
        listed = law if isinstance(law, Iterable) and not isinstance(law, str) else ()
        keys = [values if len(names) > 1 else (values,) for values in listed]
        if not keys or any(not isinstance(values, tuple) or len(values) != len(names) for values in keys):
            raise InputError(
                f"Give {', '.join(names)} as {{{'(value, value)' if len(names) > 1 else 'value'}: probability}}."
            )
        for axis, name in enumerate(names):
            ranges[name] = arrange(name, (as_value(values[axis]) for values in keys))
        if isinstance(law, Mapping):
            laws.append(law_of(names, law, ranges))
    return ranges, laws


def checked_law(law: Factor) -> Factor:
    """Return the factor with probabilities checked and adding up to 1 over all axes."""
    table = normalised(f"The population of {', '.join(law.names)}", law.array.reshape(-1)).reshape(law.array.shape)
    return law if table is law.array else Factor(law.names, table)


def marginal(population: Iterable[Factor], without: Iterable[str]) -> tuple[Factor, ...]:
    """Return the joint law of the variables that are left when ``without`` are summed out."""
    gone = set(without)
    laws = []
    for law in population:
        names = tuple(name for name in law.names if name not in gone)
        if names:
            laws.append(law if names == law.names else product([law], names))
    return tuple(laws)


def replaced(
    population: Sequence[Factor], exogenous: tuple[str, ...], ranges: Ranges, given: Population
) -> tuple[Factor, ...]:
    """Return the population in which the variables that ``given`` names have its law, the others their own marginal."""
    if isinstance(given, Mapping):
        laws = []
        for key, law in given.items():
            names = key if isinstance(key, tuple) else (key,)
            _known(names, exogenous)
            laws.append(law_of(names, law, ranges))
    elif isinstance(given, (list, tuple)) and given and all(isinstance(law, Factor) for law in given):
        laws = []
        for law in given:
            _known(law.names, exogenous)
            shape = tuple(len(ranges[name]) for name in law.names)
            laws.append(checked_law(Factor(law.names, _shaped(law.names, law.array, shape))))
    else:
        laws = [law_of(exogenous, given, ranges)]
    named = [name for law in laws for name in law.names]
    if len(set(named)) < len(named):
        raise InputError("The population names a variable twice.")
    return (*marginal(population, named), *laws)


def _known(names: tuple[str, ...], exogenous: tuple[str, ...]) -> None:
    for name in names:
        if name not in exogenous:
            raise InputError(
                f"The population is a law of exogenous variables; {name!r} is not one of {show(exogenous)}."
                + did_you_mean(str(name), exogenous)
            )


def _shaped(names: tuple[str, ...], given: object, shape: tuple[int, ...]) -> Array:
    table = as_table(f"The population of {', '.join(names)}", given)
    if table.shape != shape:
        raise InputError(f"The population of {', '.join(names)} has shape {table.shape}; their ranges need {shape}.")
    return table


def _position(names: tuple[str, ...], values: object, ranges: Ranges) -> tuple[int, ...]:
    point = values if isinstance(values, tuple) and len(names) > 1 else (values,)
    if len(point) != len(names):
        raise InputError(f"The population of {', '.join(names)} needs {len(names)} values per entry; got {values!r}.")
    for name, value in zip(names, point, strict=True):
        if value not in ranges[name]:
            raise InputError(f"{name!r} never takes the value {value!r}; its values are {show(ranges[name])}.")
    return tuple(ranges[name].index(value) for name, value in zip(names, point, strict=True))
