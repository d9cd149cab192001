"""Directions and a training on a cluster of Dask, as a program of its own: two workers, one of which may be lost.

``python dask_cluster.py FOLDER`` reads the Parquet files in FOLDER's ``rows`` by workers that are processes. Some work
waits, with all rows, for the file ``go on`` in FOLDER, and leaves one file each time it begins. Then two columns are
compared and networks trained, of rows and of people, and what the custodian asks is asked. An attack leaves one file
for each fit, and waits in the fourth one for the file ``fit on``. The answers are printed as JSON. What would hold or
encode rows in the client is taken away from it.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
import uuid
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import spark_cluster

from escudo.attacks import attack
from escudo.synthesis import clinic
from escudo.table import PrivateTable, Schema, _rows, _whole


def main(folder: Path) -> None:
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    def held(rows: Any) -> Any:
        """Of whatever runs of it there are, one answer comes back, by a draw of its own."""
        drawn = secrets.randbits(32)
        (folder / f"held-{os.getpid()}-{drawn}").touch()
        while not (folder / "go on").exists():
            time.sleep(0.05)
        return np.array([len(rows), drawn])

    def fitted(rows: Any, rng: np.random.Generator) -> Any:
        (folder / f"fit-{uuid.uuid4()}-{os.getpid()}").touch()
        while len(list(folder.glob("fit-*"))) == 4 and not (folder / "fit on").exists():
            time.sleep(0.05)
        return spark_cluster.made_of(rows, rng)

    schema = spark_cluster.clinic(1)[1]
    people = Schema(schema.fields, person_id="who", max_rows_per_person=2)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster),
        mock.patch.object(_whole, "held", None),
        mock.patch.object(_rows.Arrays, "read", None),
        mock.patch.object(_rows.Query, "piece", None),
        mock.patch.object(_rows.Query, "bounded", None),
    ):
        frame = dd.read_parquet(folder / "rows")
        with PrivateTable(frame, schema).in_one_place() as whole:
            answers = {"held": whole.found(held).tolist()}
        with PrivateTable(frame, people).in_one_place() as whole:
            answers["people"] = whole.found(np.shape).tolist()
        answers["compared"] = spark_cluster.compared(frame, schema)
        answers["asked"] = spark_cluster.asked(frame, schema)
        made = clinic(40, seed=1)
        linked = {name: dd.from_pandas(one.to_pandas(), npartitions=2) for name, one in made.frames.items()}
        answers["people"] = [*answers["people"], spark_cluster.asked_of_people(linked, made)]
        answers["attacked"] = attack(fitted, frame, schema, **spark_cluster.ATTACKED, log=folder / "fits").to_json()
        print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
