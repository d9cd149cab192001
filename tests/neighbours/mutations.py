"""Known defects, put back one by one: each must be caught, or the harness could not have found it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

HOME = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A defect: what to write instead of what, and where it should show.

    Attributes:
        defect: What is wrong then.
        file: Below ``src/escudo``.
        old: The text that is there now, once.
        new: The defect.
        only: Cases whose names hold this text are tried; ``"promises"`` for what no pair can show.
        pairs: How many pairs at the most.
    """

    defect: str
    file: str
    old: str
    new: str
    only: str
    pairs: int = 400


MUTATIONS: list[Mutation] = []


def caught(mutation: Mutation) -> tuple[bool, str]:
    """Put a defect into a copy of the source and try; return whether it was seen, and how."""
    with TemporaryDirectory(prefix="escudo-") as name:
        source = Path(name) / "src"
        shutil.copytree(HOME / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        file = source / "escudo" / mutation.file
        text = file.read_text()
        if text.count(mutation.old) != 1:
            return False, f"{mutation.file} does not hold the text to change exactly once"
        file.write_text(text.replace(mutation.old, mutation.new))
        asked = [sys.executable, "-m", "neighbours", "--only", mutation.only, "--pairs", str(mutation.pairs), "--first"]
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
    for mutation in MUTATIONS:
        if only not in mutation.defect:
            continue
        seen, how = caught(mutation)
        rows.append({"defect": mutation.defect, "file": mutation.file, "caught": seen, "how": how})
        print(f"{'caught' if seen else 'MISSED'}: {mutation.defect}: {how}", flush=True)
    seen = sum(bool(row["caught"]) for row in rows)
    print(f"{seen} of {len(rows)} defects caught in {time.perf_counter() - start:.0f} s.")
    if out is not None:
        from neighbours.runs import commit, machine

        result = {"commit": commit(), "machine": machine(), "defects": len(rows), "caught": seen, "list": rows}
        out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return seen == len(rows)
