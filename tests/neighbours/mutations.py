"""Known defects, put back one by one: each must be caught, or the harness could not have found it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

HOME = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A defect: what to write instead of what, and where it should show.

    Attributes:
        defect: What is wrong then; the number is that of the confirmed defect.
        changes: Files below ``src/escudo``, a text that is there once, and what to write instead.
        only: Cases whose names hold this text are tried; ``"promises"`` for what no pair can show.
        pairs: How many pairs at the most.
    """

    defect: str
    changes: tuple[tuple[str, str, str], ...]
    only: str
    pairs: int = 400


def known() -> list[Mutation]:
    """Return the defects of ``mutations.toml``."""
    listed = tomllib.loads((Path(__file__).parent / "mutations.toml").read_text())["mutation"]
    return [
        Mutation(
            defect=one["defect"],
            changes=tuple((change["file"], change["old"], change["new"]) for change in one["change"]),
            only=one["only"],
            pairs=one.get("pairs", 400),
        )
        for one in listed
    ]


def caught(mutation: Mutation) -> tuple[bool, str]:
    """Put a defect into a copy of the source and try; return whether it was seen, and how."""
    with TemporaryDirectory(prefix="escudo-") as name:
        source = Path(name) / "src"
        shutil.copytree(HOME / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        for changed, old, new in mutation.changes:
            file = source / "escudo" / changed
            text = file.read_text()
            if text.count(old) != 1:
                return False, f"{changed} does not hold the text to change exactly once"
            file.write_text(text.replace(old, new))
        asked = [sys.executable, "-m", "neighbours", "--only", mutation.only, "--pairs", str(mutation.pairs)]
        asked += ["--first", "--workers", "1"]
        path = os.pathsep.join([str(source), str(HOME / "tests")])
        ran = subprocess.run(
            asked, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False, cwd=name
        )
    found = [line for line in ran.stdout.splitlines() if line.startswith("told apart: ")]
    if ran.returncode == 1 and found:
        return True, found[0].removeprefix("told apart: ")
    return False, ran.stdout[-300:] + ran.stderr[-300:]


def caught_all(out: Path | None, *, only: str) -> bool:
    """Put every defect back, say which were caught, and write it down."""
    rows, start = [], time.perf_counter()
    for mutation in known():
        if only not in mutation.defect:
            continue
        seen, how = caught(mutation)
        files = sorted({changed for changed, _, _ in mutation.changes})
        rows.append({"defect": mutation.defect, "files": files, "caught": seen, "how": how})
        print(f"{'caught' if seen else 'MISSED'}: {mutation.defect}: {how}", flush=True)
    seen = sum(bool(row["caught"]) for row in rows)
    print(f"{seen} of {len(rows)} defects caught in {time.perf_counter() - start:.0f} s.")
    if out is not None:
        from neighbours.runs import commit, machine

        result = {"commit": commit(), "machine": machine(), "defects": len(rows), "caught": seen, "list": rows}
        out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return seen == len(rows)
