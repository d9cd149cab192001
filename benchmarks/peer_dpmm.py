"""Fit one of dpmm's generators to a table of codes; run by ``release.py`` with the Python of another environment.

    python peer_dpmm.py METHOD EPSILON DELTA SEED CODES.csv SYNTHETIC.csv

Writes as many synthetic rows as it was given, and prints what it took as JSON. AIM is given the workload that
``release.py`` scores: all tables of three columns.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pandas as pd
from dpmm.models.aim import AIMGM
from dpmm.models.mst import MSTGM
from dpmm.models.priv_bayes import PrivBayesGM

METHODS = {"AIM": AIMGM, "MST": MSTGM, "PrivBayes": PrivBayesGM}
WORKLOAD = {"AIM": {"degree": 3}}


def main() -> None:
    method, epsilon, delta, seed, source, target = sys.argv[1:]
    codes = pd.read_csv(source)
    sizes = {name: int(codes[name].max()) + 1 for name in codes}
    start, busy = time.perf_counter(), time.process_time()
    own = WORKLOAD.get(method, {})
    model = METHODS[method](epsilon=float(epsilon), delta=float(delta), domain=sizes, n_jobs=1, **own)
    model.set_random_state(np.random.RandomState(int(seed)))
    model.set_domain(sizes)
    model.fit(codes)
    made = model.generate(n_records=len(codes))
    took = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - busy}
    if own:
        took["workload"] = "all triples"
    made[list(codes)].to_csv(target, index=False)
    print(json.dumps(took))


if __name__ == "__main__":
    main()
