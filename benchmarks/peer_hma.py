"""Make people and visits with SDV's HMA, without privacy; run by ``linked.py`` in another environment.

    python peer_hma.py FOLDER PEOPLE SEED

FOLDER holds ``patients.csv`` and ``visits.csv``; the synthetic ones are written beside them as ``synthetic-*.csv``.
Everything is SDV's default: metadata as it detects them, with the keys and the link stated. Prints the seconds it took.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sdv.metadata import Metadata
from sdv.multi_table import HMASynthesizer

TABLES = ("patients", "visits")


def main() -> None:
    """Fit, sample and write."""
    warnings.simplefilter("ignore")
    folder, people, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    np.random.seed(seed)  # noqa: NPY002 - it draws from there
    frames = {name: pd.read_csv(folder / f"{name}.csv") for name in TABLES}
    metadata = Metadata.detect_from_dataframes(frames, infer_sdtypes=True, infer_keys=None)
    metadata.update_column("patient", table_name="patients", sdtype="id")
    metadata.update_column("patient", table_name="visits", sdtype="id")
    metadata.set_primary_key("patient", table_name="patients")
    metadata.add_relationship("patients", "visits", "patient", "patient")
    start = time.process_time()
    made = HMASynthesizer(metadata, verbose=False)
    made.fit(frames)
    drawn = made.sample(people, main_table_name="patients")
    for name in TABLES:
        drawn[name].to_csv(folder / f"synthetic-{name}.csv", index=False)
    print(json.dumps({"seconds": time.process_time() - start}))


if __name__ == "__main__":
    main()
