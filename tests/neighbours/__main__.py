"""Try many pairs: ``make neighbours N=100000``, or ``python -m neighbours --pairs 1000 --only dask``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Any

import quick_jax


def main() -> int:
    """Read the arguments and run."""
    # Tables here have a few rows, and networks run for milliseconds: threads and good code cost more than they save.
    quick = {"XLA_FLAGS": quick_jax.FLAGS, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    for name, value in quick.items():
        os.environ.setdefault(name, value)
    parser = argparse.ArgumentParser(prog="python -m neighbours", description=__doc__)
    parser.add_argument("--pairs", type=int, default=2000, help="about how many pairs")
    parser.add_argument("--only", default="", help="only cases whose name holds this text")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=None, help="where to write the result as JSON")
    parser.add_argument("--first", action="store_true", help="stop at the first pair that is told apart")
    parser.add_argument("--mutations", action="store_true", help="put known defects back and see each one caught")
    given = parser.parse_args()
    if given.mutations:
        from neighbours.mutations import caught_all

        return 0 if caught_all(given.out, only=given.only) else 1
    from neighbours.runs import run

    for stop in (signal.SIGINT, signal.SIGTERM):  # also where a shell has told its background jobs to ignore it
        signal.signal(stop, signal.default_int_handler)

    terms: dict[str, Any] = {"only": given.only, "seed": given.seed, "workers": given.workers, "out": given.out}
    terms["first"] = given.first
    return 1 if run(given.pairs, **terms) else 0


if __name__ == "__main__":
    sys.exit(main())
