"""What comes back from a worker, as text that cannot run code: escudo's own results, made of plain values and arrays.

JSON, with marks for what it lacks: tuples, arrays, mappings with any keys, and dataclasses by where they are in escudo.
Reading it back makes dataclasses of escudo and nothing else. Numbers come back to the last bit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np

_OURS = "escudo."


def to_text(value: Any) -> str:
    """Return a result as text.

    Raises:
        TypeError: If it holds anything else than plain values, arrays and dataclasses of escudo.

    >>> from_text(to_text(((1, 0.1), {2: None}, np.arange(2))))
    ((1, 0.1), {2: None}, array([0, 1]))
    """
    return json.dumps(_marked(value))


def from_text(text: str) -> Any:
    """Return the result that :func:`to_text` wrote.

    Raises:
        ValueError: If the text says that it is something else.
    """
    return _made(json.loads(text))


def _marked(value: Any) -> Any:
    if isinstance(value, np.bool_ | np.integer):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_marked(one) for one in value]
    if isinstance(value, tuple):
        return {"tuple": [_marked(one) for one in value]}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return {"array": value.tolist(), "type": value.dtype.str}
    if isinstance(value, Mapping):
        return {"pairs": [[_marked(key), _marked(one)] for key, one in value.items()]}
    kind = type(value)
    if is_dataclass(kind) and kind.__module__.startswith(_OURS):
        held = {each.name: _marked(getattr(value, each.name)) for each in fields(value) if each.init}
        return {"kind": [kind.__module__, kind.__qualname__], "fields": held}
    raise TypeError(f"a result holds a {kind.__name__}")


def _made(marked: Any) -> Any:
    if isinstance(marked, list):
        return [_made(one) for one in marked]
    if not isinstance(marked, dict):
        return marked
    if "tuple" in marked:
        return tuple(map(_made, marked["tuple"]))
    if "array" in marked:
        return np.array(marked["array"], dtype=marked["type"])
    if "pairs" in marked:
        return {_made(key): _made(one) for key, one in marked["pairs"]}
    module, name = marked["kind"]
    kind = getattr(import_module(module), name) if module.startswith(_OURS) else None
    if not (isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module):
        raise ValueError("no result of escudo")
    return kind(**{key: _made(one) for key, one in marked["fields"].items()})
