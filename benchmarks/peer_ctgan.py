"""Fit SmartNoise's DP-CTGAN to a table of codes; run by ``neural_tables.py`` with the Python of another environment.

    python peer_ctgan.py FOLDER

Reads ``job.json`` and ``private.npy`` from the folder, writes ``synthetic.npy`` and ``cost.json``. All options are its
defaults. It trains until its own accountant says that ε is spent, or for its 300 epochs; ``cap`` seconds by the clock
end it earlier, which its accountant calls a smaller ε.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from snsynth.pytorch.nn import DPCTGAN


class _OutOfTime(Exception):
    pass


def main() -> None:
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    codes = np.load(folder / "private.npy")
    torch.set_num_threads(1)
    np.random.seed(job["seed"])  # noqa: NPY002  # what it draws from
    frame = pd.DataFrame(codes, columns=job["columns"]).astype(str)
    made = DPCTGAN(epsilon=job["epsilon"], delta=job["delta"], cuda=False, verbose=False)
    began, clock = time.process_time(), time.perf_counter()

    class Spent(list):
        """Its record of ε after each epoch, which also looks at the clock."""

        def append(self, epsilon: float) -> None:
            super().append(epsilon)
            if time.perf_counter() - clock > job["cap"]:
                raise _OutOfTime

    made.epsilon_list = Spent()
    stopped = False
    try:
        made.fit(frame, categorical_columns=job["columns"], preprocessor_eps=0.0)
    except _OutOfTime:
        stopped = True
    rows = made.sample(len(codes)).astype(int)[job["columns"]].to_numpy()
    epochs, spent = len(made.epsilon_list) - 1, made.epsilon_list[-1]
    told = f"{epochs} epochs, its ε {spent:.2f}" + (", stopped by the clock" if stopped else "")
    np.save(folder / "synthetic.npy", rows)
    cost = {"cpu_seconds": time.process_time() - began, "told": told}
    (folder / "cost.json").write_text(json.dumps(cost))


if __name__ == "__main__":
    main()
