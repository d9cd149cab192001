"""Run causal-learn's FCI on a table of codes, without privacy; run by ``hidden_causes.py`` in another environment.

    python peer_fci.py CODES.npy ALPHA

Prints the marks as JSON (at [a][b] the one at b: 0 no edge, 1 circle, 2 arrow, 3 tail) and the seconds it took. The
test is χ² on counts; all else is causal-learn's default.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time

import numpy as np
from causallearn.search.ConstraintBased.FCI import fci

MARKS = {0: 0, 2: 1, 1: 2, -1: 3}


def main() -> None:
    codes = np.load(sys.argv[1])
    busy = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):  # it prints some edges
        graph, _ = fci(codes, "chisq", float(sys.argv[2]), verbose=False, show_progress=False)
    ends = graph.graph  # [b, a] holds the mark at b of the edge with a
    marks = [[MARKS[int(ends[b][a])] for b in range(len(ends))] for a in range(len(ends))]
    print(json.dumps({"marks": marks, "seconds": time.process_time() - busy}))


if __name__ == "__main__":
    main()
