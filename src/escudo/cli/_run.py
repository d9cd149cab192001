"""``escudo run``: a command line that stands in a file, to be read by others, kept with a release and given again.

The file holds what would be typed: the command, and each argument and option under its own name. It has no meaning of
its own. The command's parser reads it, so whatever is wrong with it is said before anything is read or spent, and the
same file gives the same plan. Paths are relative to the file's folder, wherever it is run from.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import typer

from escudo.cli._console import JsonFlag, flag

if TYPE_CHECKING:
    from escudo.cli._options import TableOptions

SaveConfig = Annotated[
    Path | None,
    typer.Option(
        "--save-config",
        metavar="FILE",
        help="Write this command line to a TOML file, for 'escudo run FILE', and go on.",
    ),
]
_NOT_KEPT = ("save_config", "plan", "as_json", "force")
"""What is said anew each time: how to show the answer, and whether something may be replaced."""
_ADDRESSES = ("data", "more", "graph", "ledger")
"""Texts that may be paths, or addresses that hold one."""
NAMED_DATA = re.compile(r"([^=/\\:?.]+)=(.+)", re.DOTALL)
"""A file or an address with the name of the linked table that it holds."""
_FILES = ("sqlite:///", "duckdb:///")
"""How the address of a database begins that is a file."""
KEPT: dict[str, type[TableOptions]] = {}
"""The options of each command that a file can hold, by the command's name."""


_current: ContextVar[dict[str, str] | None] = ContextVar("config", default=None)


def current_config() -> dict[str, str] | None:
    """Return name and SHA-256 of the file that says what is being run; None if it was only typed."""
    return _current.get()


@contextmanager
def saving(name: str, asked: TableOptions) -> Iterator[None]:
    """Write down what was asked, if that was asked too, and have it known while it is run.

    Raises:
        InputError: If the file cannot be written, or would hold a password.
    """
    from escudo.table import write_text

    path = asked.save_config
    if path is None:
        yield
        return
    text = _text(name, asked, path)
    write_text(path, text, overwrite=_is_config(path))
    with _known(path, text):
        yield


@contextmanager
def _known(path: Path, text: str) -> Iterator[None]:
    token = _current.set({"file": path.name, "sha256": hashlib.sha256(text.encode()).hexdigest()})
    try:
        yield
    finally:
        _current.reset(token)


def _text(name: str, asked: TableOptions, path: Path) -> str:
    from escudo.cli._options import DEFAULT_LEDGER as usual_ledger
    from escudo.table import toml_pairs

    told: dict[str, Any] = {"command": name}
    for key, meant in _keys(type(asked)).items():
        value = getattr(asked, meant.field)
        if (
            meant.field == "ledger"
            and value is None
            and asked.dataset is not None
            and "ESCUDO_LEDGER" not in os.environ
        ):
            value = usual_ledger  # which is in the folder that the command was given in
        if meant.field in _NOT_KEPT or value == meant.default:
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, str):
                _check_no_password(key, one)
        told[key] = _placed(meant, value, lambda place: os.path.relpath(place, path.resolve().parent))
    return f"# What 'escudo run {path.name}' does; paths are relative to this file.\n{toml_pairs(told)}"


class _Key(NamedTuple):
    """What a key of the file stands for: an argument, or an option, whose name without dashes it is."""

    field: str
    default: Any
    argument: bool
    flag: bool
    path: bool


def _keys(options: type[TableOptions]) -> dict[str, _Key]:
    kinds = get_type_hints(options, include_extras=True)
    found = {}
    for field, parameter in inspect.signature(options).parameters.items():
        kind, told = get_args(kinds[field])[:2] if get_origin(kinds[field]) is Annotated else (kinds[field], None)
        names = (getattr(told, "default", None), *(getattr(told, "param_decls", None) or ()))  # typer's own order
        long = next((name for name in names if isinstance(name, str) and name.startswith("--")), f"--{field}")
        argument = isinstance(told, typer.models.ArgumentInfo)
        path = Path in (kind, *get_args(kind))
        key = _Key(field, parameter.default, argument, kind is bool, path)
        found[long.removeprefix("--").replace("_", "-")] = key
    return found


def _placed(meant: _Key, value: Any, moved: Callable[[str], str]) -> Any:
    """Return a value with the path in it moved to another folder's view, if there is a relative one."""
    if isinstance(value, list | tuple):
        return [_placed(meant, one, moved) for one in value]
    if meant.field in ("data", "more") and (named := NAMED_DATA.fullmatch(value)):  # the name of a linked table
        return f"{named[1]}={_placed(meant, named[2], moved)}"
    if meant.path:
        return Path(moved(str(value))).as_posix()
    if meant.field not in _ADDRESSES or (meant.field == "graph" and value == "discover"):
        return value
    for start in _FILES:
        if value.startswith(start):
            place, mark, query = value.removeprefix(start).partition("?")
            return value if place.startswith("/") else f"{start}{Path(moved(place)).as_posix()}{mark}{query}"
    return value if "://" in value else Path(moved(value)).as_posix()


def _check_no_password(key: str, value: str) -> None:
    from urllib.parse import urlsplit

    from escudo.errors import InputError

    if "://" not in value:
        return
    try:
        kept = urlsplit(value).password is not None or "password" in urlsplit(value).query
    except ValueError:
        kept = True
    if kept:
        raise InputError(
            f"{key} holds a password, which must not stand in a file; leave it out of the address and give it by a "
            "password file (.pgpass) or the environment (PGPASSWORD). Nothing was written."
        )


def _is_config(path: Path) -> bool:
    from escudo.errors import EscudoError

    try:
        return "command" in _read(path)[1]
    except EscudoError:
        return False


def _read(path: Path) -> tuple[str, Mapping[str, Any]]:
    from escudo.table import parse_toml, read_text

    text = read_text(path)
    return text, parse_toml(text, source=str(path))


def run(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What --save-config wrote, or somebody by hand.")],
    plan: Annotated[bool, flag("--plan", "Show the budget tree and stop.")] = False,
    force: Annotated[bool, flag("--force", "Replace an earlier answer.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run what a file says: data, schema, graph, budget and outputs of one command.

    Example: escudo run release.toml --plan

    The file holds 'command' and what would be typed after it, each argument
    and option under its own name; --save-config writes one.
    """
    from escudo.errors import InputError

    text, told = _read(file)
    name = told.get("command")
    if not isinstance(name, str) or name not in KEPT:
        raise InputError(f"'{file}': command must be one of {', '.join(map(repr, KEPT))}.")
    keys = _keys(KEPT[name])
    words = _words(file, name, keys, {key: value for key, value in told.items() if key != "command"})
    said = {"plan": plan, "force": force, "json": as_json}
    words = [*(f"--{key}" for key, wanted in said.items() if wanted and key in keys), *words]
    root: Any = context.find_root()
    with _known(file, text):
        command = root.command.commands[name]
        with command.make_context(name, words, parent=root) as inner:
            command.invoke(inner)


def _words(file: Path, name: str, keys: Mapping[str, _Key], told: Mapping[str, Any]) -> list[str]:
    """Return what would be typed for the file's keys."""
    from escudo._validate import did_you_mean
    from escudo.errors import InputError

    known = {key: meant for key, meant in keys.items() if meant.field not in _NOT_KEPT}
    options: list[str] = []
    arguments: dict[str, list[str]] = {}
    for key, value in told.items():
        if key not in known:
            raise InputError(f"'{file}': {name} has no {key!r}; it has {', '.join(known)}.{did_you_mean(key, known)}")
        meant = known[key]
        if meant.flag:
            if not isinstance(value, bool):
                raise InputError(f"'{file}': {key} must be true or false.")
            options += [f"--{key}"] if value else []
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, bool) or not isinstance(item, str | int | float):
                raise InputError(
                    f"'{file}': {key} must be a text or a number, or a list of them if it may be repeated."
                )
            word = _placed(meant, str(item), lambda place: os.path.join(file.parent, place))
            if meant.argument:
                arguments.setdefault(meant.field, []).append(word)
            else:
                options.append(f"--{key}={word}")
    return [*options, "--", *(word for meant in known.values() for word in arguments.get(meant.field, []))]
