"""Programs in processes of their own that need not load escudo first: forks of one process that has loaded it.

Python's fork server is started once for each process of tests. What it forks has its own folder, environment, standard
output and ``__main__``, takes signals, and ends by itself; only the libraries were loaded before.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TextIO

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "escudo.cli",
        "escudo.releasing",
        "escudo.synthesis._generators",
        "jinja2",
        "opendp.prelude",
        "polars",
        "rich.table",
    ]
)


@dataclass
class Started:
    """A program that runs; ``printed`` is what it says, on either stream, as it says it."""

    process: BaseProcess
    printed: TextIO

    def end(self) -> tuple[int, str]:
        """Wait for its end; return how it ended and what else it printed."""
        with self.printed as rest:
            said = rest.read()
        self.process.join()
        code = self.process.exitcode
        assert code is not None
        self.process.close()
        return code, said


def start(
    program: str, arguments: Sequence[str] = (), *, folder: Path, environment: Mapping[str, str] | None = None
) -> Started:
    """Run a text of Python as ``python -c`` would."""
    reader, writer = _SERVER.Pipe(duplex=False)
    around = dict(os.environ if environment is None else environment)
    process = _SERVER.Process(target=_run, args=(program, [*arguments], str(folder), around, writer))
    process.start()
    writer.close()
    return Started(process, os.fdopen(os.dup(reader.fileno()), encoding="utf-8", errors="replace"))


def _run(program: str, arguments: list[str], folder: str, environment: dict[str, str], out: Connection) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for stream in (1, 2):
        os.dup2(out.fileno(), stream)
    out.close()
    sys.stdout = open(1, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115 - as long as the process
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    sys.argv, sys.path[0:0] = ["-c", *arguments], [""]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(program, "<program>", "exec"), main.__dict__)
