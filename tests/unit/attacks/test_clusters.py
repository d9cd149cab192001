"""Fits are spread over a cluster by joblib, and the answer is the same."""

from __future__ import annotations

import joblib
import pytest

from escudo.attacks import attack

ARGUMENTS = {"epsilon": 1.0, "choose": [3], "attacks": [("queries", "logistic")], "shadows": 6, "trials": 6, "seed": 3}


def test_a_local_dask_cluster(rows, schema):
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    alone = attack("independent", rows, schema, jobs=1, **ARGUMENTS).to_json()
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, processes=False)
    with cluster, distributed.Client(cluster), joblib.parallel_config(backend="dask", n_jobs=2):
        assert attack("independent", rows, schema, **ARGUMENTS).to_json() == alone


def test_a_local_ray(rows, schema):
    ray = pytest.importorskip("ray", reason="ray is not installed")
    from ray.util.joblib import register_ray

    alone = attack("independent", rows, schema, jobs=1, **ARGUMENTS).to_json()
    ray.init(num_cpus=2, include_dashboard=False)
    try:
        register_ray()
        with joblib.parallel_config(backend="ray"):
            assert attack("independent", rows, schema, **ARGUMENTS).to_json() == alone
    finally:
        ray.shutdown()
