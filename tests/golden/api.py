"""Every public name: what it is, how it is called, and what it offers.

A name is public if ``escudo`` or one of its public packages lists it in ``__all__``. Of classes, every attribute
without an underscore at its front is public, also where a base has it. Annotations are written as in the source.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import re
import types
from collections.abc import Iterator, Mapping, Set
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

_HOME = re.compile(r"\bescudo\.(\w+\.)*(?=\w)")  # where a class lives is nobody's business
_CALLED = ("__init__", "__call__", "__enter__", "__exit__", "__getitem__", "__iter__", "__len__", "__contains__")


def packages() -> list[str]:
    """Return the public packages: those that ``escudo`` lists, and public packages inside them."""
    found, waiting = [], ["escudo"]
    while waiting:
        name = waiting.pop(0)
        found.append(name)
        module = import_module(name)
        for inner in getattr(module, "__all__", []):
            value = getattr(module, inner, None)
            if isinstance(value, types.ModuleType) and value.__name__ == f"{name}.{inner}":
                waiting.append(value.__name__)
    return sorted({*found, "escudo.auditing.museum", "escudo.mechanisms.dpsgd"})


def snapshot() -> dict[str, Any]:
    """Return every public package with its public names; what two packages offer is described where it is at home."""
    names = {package: dict(_names(package)) for package in packages()}
    homes = {id(value): f"{package}.{name}" for package, inner in names.items() for name, value in inner.items()}
    classes = {value for inner in names.values() for value in inner.values() if isinstance(value, type)}

    def shown(name: str, value: Any) -> Any:
        home = homes[id(value)]
        return described(value, classes) if home == name or not callable(value) else f"is {home}"

    return {
        package: {name: shown(f"{package}.{name}", value) for name, value in inner.items()}
        for package, inner in names.items()
    }


def _names(package: str) -> Iterator[tuple[str, Any]]:
    module = import_module(package)
    listed = getattr(module, "__all__", None)
    for name in sorted(listed if listed is not None else (name for name in vars(module) if not name.startswith("_"))):
        value = getattr(module, name)
        if not isinstance(value, types.ModuleType) or value.__name__ == f"{package}.{name}":
            yield name, value


def described(value: Any, public: Set[type] = frozenset()) -> Any:
    """Return a name's kind and signature; of a class, also what it offers. Of its bases only public ones are told."""
    if isinstance(value, types.ModuleType):
        return "package"
    if isinstance(value, type):
        return {"is": _class(value, public), **dict(_members(value))}
    if inspect.isroutine(value):
        return f"def {_signature(value)}"
    return f"{type(value).__name__} = {_shown(value)}"


def _class(value: type, public: Set[type]) -> str:
    known = [base for base in value.__mro__[1:-1] if base in public or not base.__module__.startswith("escudo")]
    bases = ", ".join(base.__name__ for base in known if base.__module__ != "typing")
    kind = "class"
    if dataclasses.is_dataclass(value):
        kind = "frozen dataclass" if value.__dataclass_params__.frozen else "dataclass"  # type: ignore[attr-defined]
    if getattr(value, "_is_protocol", False):
        kind = "protocol"
    if kind == "protocol" or inspect.isabstract(value) or issubclass(value, Enum):
        return f"{kind}({bases})"
    return f"{kind}({bases}), made by {_signature(value)}"


def _members(value: type) -> Iterator[tuple[str, str]]:
    found: dict[str, str] = {}
    for base in reversed(value.__mro__):
        if not base.__module__.startswith("escudo"):
            continue
        for name, written in vars(base).get("__annotations__", {}).items():
            if not name.startswith("_"):
                found[name] = f"attribute: {written}"
        for name, member in vars(base).items():
            if name.startswith("_") and name not in _CALLED[1:]:
                continue
            text = _member(member)
            if text is not None and not (name in found and text.startswith("attribute")):
                found[name] = text
    yield from sorted(found.items())


def _member(member: Any) -> str | None:
    if isinstance(member, property):
        return f"property: {_returned(member.fget)}"
    if isinstance(member, classmethod):
        return f"class def {_signature(member.__func__)}"
    if isinstance(member, staticmethod):
        return f"static def {_signature(member.__func__)}"
    if inspect.isfunction(member):
        return f"def {_signature(member)}"
    if type(member).__name__ == "cached_property":
        return f"property: {_returned(member.func)}"
    if isinstance(member, types.MemberDescriptorType | types.GetSetDescriptorType):
        return None  # slots, which the annotations tell
    return f"attribute = {_shown(member)}"


def _signature(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    parts, before = [], None
    for parameter in signature.parameters.values():
        if parameter.name.startswith("_") and parameter.kind is parameter.KEYWORD_ONLY:
            continue
        if before is parameter.POSITIONAL_ONLY is not parameter.kind:
            parts.append("/")
        if parameter.kind is parameter.KEYWORD_ONLY and before not in (
            parameter.KEYWORD_ONLY,
            parameter.VAR_POSITIONAL,
        ):
            parts.append("*")
        before = parameter.kind
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        text = stars + parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {_written(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {_shown(parameter.default)}"
        parts.append(text)
    if before is inspect.Parameter.POSITIONAL_ONLY:
        parts.append("/")
    returned = "" if isinstance(value, type) else f" -> {_written(signature.return_annotation)}"
    return f"({', '.join(parts)}){returned}"


def _returned(value: Any) -> str:
    return _written(inspect.signature(value).return_annotation)


def _written(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _shown(value: Any) -> str:
    if isinstance(value, type):
        return value.__name__
    if inspect.isroutine(value):
        return "a function"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_shown(key)}: {_shown(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}[{', '.join(map(_shown, value))}]"
    if isinstance(value, Set):
        return f"{type(value).__name__}[{', '.join(sorted(map(_shown, value)))}]"
    if dataclasses.is_dataclass(value):
        fields = (f"{one.name}={_shown(getattr(value, one.name))}" for one in dataclasses.fields(value))
        return f"{type(value).__name__}({', '.join(fields)})"
    return _HOME.sub("", repr(value)) if type(value).__repr__ is not object.__repr__ else type(value).__name__


def lines(api: dict[str, Any]) -> list[str]:
    """Return a snapshot as one line for each name and member, so that a difference can be read."""
    listed = []
    for package, names in api.items():
        for name, value in names.items():
            if isinstance(value, str):
                listed.append(f"{package}.{name}: {value}")
            else:
                listed += [f"{package}.{name}{'' if key == 'is' else '.' + key}: {text}" for key, text in value.items()]
    return listed


def difference(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return what was taken away (-) and what came (+); empty if nothing."""
    changed = difflib.unified_diff(lines(before), lines(after), lineterm="", n=0)
    return "\n".join(line for line in changed if not line.startswith(("---", "+++", "@@")))


FILE = Path(__file__).parent / "api.json"


def read() -> dict[str, Any]:
    """Return the snapshot that is committed."""
    held: dict[str, Any] = json.loads(FILE.read_text())
    return held


def write() -> None:
    """Renew the snapshot."""
    FILE.write_text(json.dumps(snapshot(), indent=1, ensure_ascii=False) + "\n")
