"""What commands print: each is run on the table of the demo while the documentation is built.

All of them share one folder and run in the order of ``SESSION``, in this process; one that does not end as it should
stops the build. Seeds keep the pages the same from build to build.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["transcripts"]

TABLE = "visits.csv --schema visits.toml"
SESSION: list[tuple[str, int]] = [  # what is typed, and how it ends
    ("schema draft visits.csv --out draft.toml", 0),
    ("schema confirm draft.toml --all", 0),
    ("schema show visits.toml", 0),
    (f"schema check {TABLE}", 0),
    ("schema convert visits.toml visits.json", 0),
    ("schema learn visits.csv --epsilon 0.5 --out learnt.toml", 0),
    ("graph show clinic.dot", 0),
    ("graph check clinic.dot --schema visits.toml", 0),
    ("graph convert clinic.dot clinic.gml", 0),
    ("ledger open visits --epsilon 3 --delta 1e-6 --ledger sqlite:///ledger.db", 0),
    (
        f"release {TABLE} --graph clinic.dot --epsilon 1 --out release --ledger sqlite:///ledger.db --dataset visits "
        "--save-config monthly.toml",
        0,
    ),
    ("run monthly.toml --plan --force", 0),
    ("forecast visits.toml --graph clinic.dot --rows 2000 --epsilon 1 --delta 1e-6 --error 0.01", 0),
    ("sample release/model --rows 3 --do smoke=yes --seed 1", 0),
    ("what-if release/model smoke lung=yes --compare no,yes --confidence 0.95", 0),
    ("evaluate visits.csv test.csv --release release --target lung --seed 1 --jobs 1", 0),
    (
        f"attack {TABLE} --graph clinic.dot --epsilon 1 --targets 1 --shadows 4 --trials 4 --seed 1 --jobs 1",
        0,
    ),
    ("direction stations.csv frost height --schema stations.toml --epsilon 1 --seed 1", 0),
    (f"discover {TABLE} --epsilon 1 --out found.dot --seed 1", 0),
    (f"effect {TABLE.replace(' ', ' smoke lung ', 1)} --graph clinic.dot --epsilon 1 --seed 1", 0),
    ("audit mylib.py:noisy_count --epsilon 1 --seed 1", 5),
    ("museum --list", 0),
    ("effects survey.sem", 0),
    ("definitions survey.sem", 0),
    ("ledger show visits --ledger sqlite:///ledger.db", 0),
    ("ledger history visits --ledger sqlite:///ledger.db", 0),
    ("ledger verify --ledger sqlite:///ledger.db", 0),
    ("ledger backup copy.jsonl --ledger sqlite:///ledger.db", 0),
    ("ledger restore copy.jsonl --ledger sqlite:///again.db", 0),
    ("ledger recover --ledger sqlite:///ledger.db", 0),
    ("ledger export --format csv --ledger sqlite:///ledger.db", 0),
    ("studio --demo --no-browser", 130),
    ("doctor", 0),
]
LIBRARY = """
def noisy_count(rows, rng):
    return sum(rows) + round(rng.laplace(scale=0.5))
"""
SURVEY = """
R1 ~ no: 0.8, yes: 0.2
R2 ~ no: 0.8, yes: 0.2
D1 := R1
D2 := R2
O  := truncated_geometric(count(D1, D2 = yes), epsilon = 1)
"""


def transcripts() -> dict[str, list[tuple[str, str]]]:
    """Return, for each command, what is typed and what comes back."""
    found: dict[str, list[tuple[str, str]]] = {}
    with tempfile.TemporaryDirectory() as place, _inside(Path(place)):
        _write_tables(Path(place))
        for typed, ends in SESSION:
            shown, code = (_interrupted if typed.startswith("studio") else _run)(typed)
            if code != ends:
                raise RuntimeError(f"escudo {typed} ended with {code}, not {ends}:\n{shown}")
            found.setdefault(typed.split()[0], []).append((f"escudo {typed}", shown.replace(place, "...")))
    return found


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before, width = Path.cwd(), os.environ.get("COLUMNS")
    os.chdir(folder)
    os.environ["COLUMNS"] = "110"
    try:
        yield
    finally:
        os.chdir(before)
        del os.environ["COLUMNS"]
        if width is not None:
            os.environ["COLUMNS"] = width


def _run(words: str) -> tuple[str, int]:
    """Run a command in this process; return what it printed and how it ended."""
    from escudo.cli import main

    printed, code, before = io.StringIO(), 0, sys.argv
    sys.argv = ["escudo", *shlex.split(words)]
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv = before
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", printed.getvalue())
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n"), code


def _interrupted(words: str) -> tuple[str, int]:
    """Run a command that serves until somebody presses Ctrl-C; its address is another each time."""
    server = subprocess.Popen(
        [sys.executable, "-m", "escudo", *shlex.split(words)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert server.stdout is not None
    lines: list[str] = []
    for line in server.stdout:
        lines.append(re.sub(r"(http://127\.0\.0\.1:)\S+", r"\g<1>...", line).rstrip())
        if "Ctrl-C" in line:
            server.send_signal(signal.SIGINT)
    return "\n".join(lines).strip("\n"), server.wait()


def _write_tables(folder: Path) -> None:
    import numpy as np
    import polars as pl

    import escudo
    from escudo.causal import asia

    clinic, rng = asia(), np.random.default_rng(1988)
    for name, rows in (("visits", 2000), ("test", 500)):
        clinic.sample_frame(rows, rng=rng).write_csv(folder / f"{name}.csv")
    levels = {name: list(values) for name, values in clinic.levels.items()}
    escudo.Schema.from_dict(levels).write(folder / "visits.toml")
    clinic.graph.write(folder / "clinic.dot")
    height = rng.uniform(0, 3000, 2000)
    frost = (20 + 300 * (height / 3000) ** 4 + rng.normal(0, 25, 2000)).clip(0, 365)
    pl.DataFrame({"height": height, "frost": frost}).write_csv(folder / "stations.csv")
    (folder / "stations.toml").write_text(
        '[columns.height]\ntype = "numeric"\nlower = 0\nupper = 3000\n'
        '[columns.frost]\ntype = "numeric"\nlower = 0\nupper = 365\n'
    )
    (folder / "mylib.py").write_text(LIBRARY)
    (folder / "survey.sem").write_text(SURVEY)
