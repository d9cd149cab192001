"""Check or renew the golden answers and the API: ``python -m golden``, ``python -m golden --write``."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

import quick_jax
from golden.seen import machine


def main() -> int:
    """Read the arguments, ask everything in every engine, compare or write."""
    parser = argparse.ArgumentParser(prog="python -m golden", description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew answers.json and api.json")
    parser.add_argument("--only", default="", help="only cases whose name holds this text")
    parser.add_argument("--unsteady", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--one-engine", action="store_true", help="each case in one engine instead of in all")
    given = parser.parse_args()
    from golden import answers, api

    if given.unsteady:
        sys.stdout.write(json.dumps(answers.unsteady(given.only)))
        return 0
    held: dict[str, Any] = answers.read() if answers.FILE.exists() else {"machine": {}, "answers": {}}
    exact = given.write or held["machine"] == answers.machine()
    kept: dict[str, Any] = {}
    wrong = 0
    for case in answers.every_case():
        before = held["answers"].get(case.name)
        if given.only not in case.name:
            if before is not None:
                kept[case.name] = before
            continue
        first = case.see()
        told = [] if before is None else answers.moved(before, first, exact=exact)
        if before is None and not given.write:
            told = ["is not in answers.json"]
        kept[case.name] = before if before is not None and not told else first.record()
        wrong += bool(told) and not given.write
        for words in told:
            print(f"{case.name}: {words}", flush=True)
        for engine in case.engines if len(case.engines) > 1 and not given.one_engine else ():
            for words in answers.moved(kept[case.name], case.see(engine), exact=True):
                wrong += 1
                print(f"{case.name} on {engine}: {words}", flush=True)
    if given.write:
        answers.write(kept)
        asked = {case.name for case in answers.every_case() if given.only in case.name}
        unsteady = _unsteady(given.only)
        for name, piece in unsteady:
            kept[name]["pieces"][piece][1] = None
        answers.write(kept)
        print(f"Wrote {len(asked)} answers; {len(unsteady)} pieces hang on the last bit of some sum.")
    changes = api.difference(api.read() if api.FILE.exists() else {}, api.snapshot())
    if changes:
        print(f"The API {'was' if given.write else 'is'} not as it is written down:\n{changes}")
    if given.write:
        api.write()
    return 1 if wrong or (changes and not given.write) else 0


def _unsteady(only: str) -> set[tuple[str, str]]:
    """Return which pieces are others, also about, on processors of other kinds, which stand for all other machines."""
    old = {
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
        "XLA_FLAGS": f"{quick_jax.FLAGS} --xla_cpu_max_isa=AVX2",
        "PYTHONWARNINGS": "ignore",
    }
    kinds = [{**old, "OPENBLAS_CORETYPE": "Haswell"}, {**old, "OPENBLAS_CORETYPE": "Sandybridge"}]
    if "X86_V4" in machine()["processor"]:
        kinds.append({"OPENBLAS_CORETYPE": "SkylakeX", "PYTHONWARNINGS": "ignore"})
    asked = [sys.executable, "-m", "golden", "--unsteady", "--only", only]
    found = set()
    for kind in kinds:
        ran = subprocess.run(asked, env={**os.environ, **kind}, stdout=subprocess.PIPE, text=True, check=True)
        found |= {(name, piece) for name, piece in json.loads(ran.stdout)}
    return found


if __name__ == "__main__":
    sys.exit(main())
